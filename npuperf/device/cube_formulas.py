"""Floating-point operations of matrix products and convolutions, by their shapes; and what every formula is made of.

A formula says what the task asks for, [least, most] as far as shapes, types and formats tell it: a padded format hides
up to 15 rows, a list of groups is data. What a kernel does beyond that (padding to 16, masked blocks) is not useful.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.model.chip import CUBE_FLOP

#: Dimensions of a tensor; () is one number, or an optional input that was not given: exports do not tell them apart.
Shape = tuple[int, ...]
#: What can be from … to, both included.
Span = tuple[int, int]

#: Bytes of an element.
_BYTES: Final = {
    "INT4": 0.5, "BOOL": 1, "INT8": 1, "UINT8": 1, "HIFLOAT8": 1, "FLOAT8_E4M3FN": 1, "FLOAT8_E5M2": 1,
    "FLOAT8_E8M0": 1, "FLOAT16": 2, "BF16": 2, "INT16": 2, "UINT16": 2, "FLOAT32": 4, "INT32": 4, "UINT32": 4,
    "FLOAT64": 8, "INT64": 8, "UINT64": 8, "COMPLEX64": 8, "COMPLEX128": 16,
}  # fmt: skip
HALF: Final = ("FLOAT16", "BF16")
#: Bytes of which rows of matrices should be multiples (CANN, graph fusion patterns: MatMulTransposeWeightFusionPass).
ALIGNED: Final = 512
#: Nothing in a device's memory has more elements.
_MOST_ELEMENTS: Final = 1 << 48

# What an interval is due to, in :attr:`Cost.note`.
PADDED: Final = "padded"
TRANSPOSES: Final = "transposes"
GROUPS: Final = "groups"


class Cost(Struct, frozen=True):
    """What a kernel is asked to do, each as [least, most]; equal where shapes tell it exactly.

    ``least``, ``most``: FLOP of matrix products, a multiply-add is two; 0 for kernels of vector cores.
    ``rate``: FLOP per cycle and cube core of their type: 8192 FP16 and BF16, 16384 INT8, 4096 HF32, 2048 FP32; 0 where
    there are none or the type's rate is not known.
    ``vector``: operations on single elements, a function like exp is one; None: not known.
    ``bytes``: of memory, each input read once and each output written once; None: a type or an output is not recorded.
    ``dims``: batch, M, N, K of a matrix product, where they are certain. ``inner``: of its matrices in ND, the bytes of
    those innermost dimensions that are no multiple of 512.
    ``note``: why least and most differ, or what was taken for granted, words separated by a space: ``padded`` (the
    format's shape is), ``transposes`` and ``layout`` (undecided), ``groups`` and ``lengths`` (data), ``mask`` (what it
    hides is data), ``causal`` (a compressed mask: a window would be less).
    """

    least: float
    most: float
    rate: int
    vector: tuple[float, float] | None
    bytes: tuple[int, int] | None
    dims: tuple[int, int, int, int] | None = None
    note: str = ""
    inner: tuple[int, ...] = ()

    @property
    def units(self) -> float | None:
        """How many FLOP of FP16 one of these is worth on cube cores; None: not known."""
        return CUBE_FLOP / self.rate if self.rate else None


class Tensor(Struct, frozen=True):
    """An input or an output; type and format are empty where they are not recorded."""

    shape: Shape
    dtype: str
    format: str

    @property
    def elements(self) -> int:
        """How many; 1 of a number, or of an input that was not given."""
        return prod(self.shape)

    @property
    def given(self) -> bool:
        """Tell a tensor of at least one dimension that has elements."""
        return bool(self.shape) and 0 not in self.shape

    @property
    def unaligned(self) -> int | None:
        """The bytes of its innermost dimension where they are no multiple of 512; None: they are, or nothing tells."""
        size = _BYTES.get(self.dtype)
        if size is None or self.format != "ND" or len(self.shape) < 2:
            return None
        return int(self.shape[-1] * size) if self.shape[-1] * size % ALIGNED else None

    def bytes(self) -> tuple[int, int] | None:
        """Return its bytes: of what may not have been given from 0; None where the type is not known."""
        size = _BYTES.get(self.dtype)
        if not self.given:
            return 0, 0 if self.shape else int(size or 16)
        return None if size is None else (int(self.elements * size), int(self.elements * size))


class Call(Struct, frozen=True):
    """A kernel's inputs and outputs; ``outs``: None where not recorded; ``hf32``: FP32 may be cut to 19 bits."""

    ins: tuple[Tensor, ...]
    outs: tuple[Tensor, ...] | None
    hf32: bool | None = None

    @property
    def out(self) -> Tensor | None:
        """The first output."""
        return self.outs[0] if self.outs else None

    def traffic(self) -> tuple[int, int] | None:
        """Return the bytes of all inputs and outputs, once each."""
        return None if self.outs is None else total(t.bytes() for t in (*self.ins, *self.outs))


def total(parts: Iterator[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Add intervals up; None where one is not known."""
    least = most = 0
    for part in parts:
        if part is None:
            return None
        least, most = least + part[0], most + part[1]
    return least, most


def sane(shape: Shape) -> bool:
    """Tell dimensions that a tensor can have: -1 stands for one that was not known when the file was written."""
    return not shape or (min(shape) >= 0 and max(shape) <= _MOST_ELEMENTS and prod(shape) <= _MOST_ELEMENTS)


def cube_rate(first: str, second: str, hf32: bool | None) -> int:
    """Return the FLOP per cycle and cube core of a product of two types; 0: not known.

    16 × 16 × 16 multiply-adds of FP16 or BF16 are 8192; INT8 twice that, FP32 a quarter at most, HF32 half (measured
    on 910B: FP32 kernels kept their cubes busy for no less). A weight of INT8 or INT4 beside FP16 is widened first.
    FP32 of which the file does not say whether it may be cut to HF32 has no rate.
    """
    if first in HALF and second in (*HALF, "INT8", "INT4"):
        return 8192
    if first == second == "INT8":
        return 16384
    if first == second == "FLOAT32" and hf32 is not None:
        return 4096 if hf32 else 2048
    return 0


# -- Matrix products.


class Product(Struct, frozen=True):
    """Sizes of one matrix product, each from … to, as far as they are known."""

    m: Span
    n: Span
    k: Span

    def flop(self) -> tuple[int, int]:
        """Two operations per multiply-add."""
        return 2 * self.m[0] * self.n[0] * self.k[0], 2 * self.m[1] * self.n[1] * self.k[1]

    def exact(self) -> bool:
        """Tell sizes that are all known."""
        return all(low == high for low, high in (self.m, self.n, self.k))


def sides(tensor: Tensor) -> tuple[Shape, Span, Span] | None:
    """Return batch, rows and columns of a matrix; None: it is none.

    FRACTAL_NZ stores rows × columns as (…, columns / c, rows / 16, 16, c), both rounded up, with c 32 bytes wide, and
    exports write either that or the shape before (CANN, "Data formats").
    """
    shape = tensor.shape
    if len(shape) < 2 or 0 in shape:
        return None
    if tensor.format == "FRACTAL_NZ" and len(shape) >= 4 and shape[-2] == 16 and shape[-1] in (8, 16, 32, 64):
        across, down, _, width = shape[-4:]
        return shape[:-4], (16 * down - 15, 16 * down), (width * (across - 1) + 1, width * across)
    rows, columns = shape[-2:]
    return shape[:-2], (rows, rows), (columns, columns)


def _common(first: Span, second: Span | None) -> Span | None:
    if second is None:
        return first
    low, high = max(first[0], second[0]), min(first[1], second[1])
    return (low, high) if low <= high else None


def products(first: tuple[Span, Span], second: tuple[Span, Span], out: tuple[Span, Span] | None) -> list[Product]:
    """Return what a product of two matrices (rows, columns) can be, each as it is or transposed.

    The output decides: ``8192,512`` is K × N or N × K. Without one, all that fit each other are returned.
    """
    found: list[Product] = []
    for rows, inner in (first, first[::-1]):
        for also_inner, columns in (second, second[::-1]):
            k = _common(inner, also_inner)
            m, n = (_common(rows, out[0]), _common(columns, out[1])) if out else (rows, columns)
            if m and n and k and Product(m, n, k) not in found:
                found.append(Product(m, n, k))
    return found


def _note(found: list[Product], *more: str) -> str:
    padded = [PADDED] if any(not one.exact() for one in found) else []
    return " ".join([*([TRANSPOSES] if len(found) > 1 else []), *padded, *more])


def _of_products(call: Call, found: list[Product], batch: int, more: str = "") -> Cost | None:
    """Return the cost of one product of which these are possible.

    With ``more`` nothing of it may have been done, and something besides it.
    """
    if not found:
        return None
    flop = [one.flop() for one in found]
    least, most = min(low for low, _ in flop) * batch, max(high for _, high in flop) * batch
    dims = (batch, found[0].m[0], found[0].n[0], found[0].k[0])
    return Cost(
        least=0.0 if more else float(least), most=float(most),
        rate=cube_rate(call.ins[0].dtype, call.ins[1].dtype, call.hf32), vector=None if more else (0.0, 0.0),
        bytes=call.traffic(),
        dims=dims if len(found) == 1 and found[0].exact() and not more else None,
        note=_note(found, *([more] if more else [])),
    )  # fmt: skip


def _broadcast(shapes: list[Shape]) -> Shape | None:
    """Return the common shape of tensors that are repeated along sizes of 1."""
    width = max(map(len, shapes))
    sizes = list(zip(*((1,) * (width - len(shape)) + shape for shape in shapes), strict=True))
    common = tuple(max(size) for size in sizes)
    return common if all(one in (1, size) for ones, size in zip(sizes, common, strict=True) for one in ones) else None


def matmul(call: Call) -> Cost | None:
    """2 · batch · M · N · K; batch is that of both inputs, repeated where one has none (torch.matmul)."""
    if len(call.ins) < 2:
        return None
    first, second = sides(call.ins[0]), sides(call.ins[1])
    out = sides(call.out) if call.out else None
    if not first or not second or (call.outs is not None and not out):
        return None
    batch = _broadcast([first[0], second[0]])
    if batch is None or (out and prod(out[0]) != prod(batch)):
        return None
    return _of_products(call, products(first[1:], second[1:], out[1:] if out else None), prod(batch))


def quantised_matmul(call: Call) -> Cost | None:
    """The same; vector cores scale the weights before it, or the product after it."""
    found = matmul(call)
    return found and replace(found, vector=None)


def gathered_matmul(call: Call) -> Cost | None:
    """2 · M · N · K of a product whose rows are gathered before or scattered after it: M is the larger of both sides.

    AllGatherMatmul has the rows of all ranks in its output, MatmulReduceScatter in its input.
    """
    first, out = (sides(t) if t else None for t in (call.ins[0] if call.ins else None, call.out))
    second = sides(call.ins[1]) if len(call.ins) > 1 else None
    if not first or not second or not out or any((first[0], second[0], out[0])):
        return None
    m, k = (max(first[1], out[1]), first[2])
    found = _of_products(call, products((m, k), second[1:], (m, out[2])), 1)
    return found and replace(found, vector=None)


def grouped_matmul(call: Call) -> Cost | None:
    """2 · M · N · K at most: how many of the M rows belong to a group is data (aclnnGroupedMatmul: group_list).

    A 3-D weight has a matrix per group, and so has a 3-D output, where the groups divide K. Where every group has an
    input or an output of its own, it is the sum of them, exactly.
    """
    if len(call.ins) < 2:
        return None
    one = _of_products(call, _of_one_group(call.ins[0], call.ins[1], call.out), 1, GROUPS)
    return one if one and len(call.outs or ()) < 2 else _of_own_groups(call)


def _own_groups(call: Call, out: Tensor) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
    """Return every way to divide lists into groups: an input, a weight and an output of each.

    Where one side has one tensor for all of them, the other tells how many rows of it are a group's.
    """
    ins, outs = call.ins, call.outs or ()
    if len(outs) > 1:
        yield list(zip(ins, ins[len(outs) : 2 * len(outs)], outs, strict=False))
        rows = [replace(ins[0], shape=(*y.shape[:1], *ins[0].shape[1:])) for y in outs]
        yield list(zip(rows, ins[1 : len(outs) + 1], outs, strict=False))
    for count in range(2, len(ins) // 2 + 1 if len(outs) == 1 else 0):
        if all(len(t.shape) == 2 for t in (*ins[:count], out)) and sum(t.shape[0] for t in ins[:count]) == out.shape[0]:
            parts = [replace(out, shape=(x.shape[0], out.shape[1])) for x in ins[:count]]
            yield list(zip(ins, ins[count : 2 * count], parts, strict=False))


def _of_own_groups(call: Call) -> Cost | None:
    for groups in _own_groups(call, call.out) if call.out else ():
        each = [_of_one_group(*group) for group in groups]
        if len(each) < 2 or len(each) < len(call.outs or ()) or not all(each):
            continue
        low = sum(min(one.flop()[0] for one in found) for found in each)
        high = sum(max(one.flop()[1] for one in found) for found in each)
        rate = cube_rate(groups[0][0].dtype, groups[0][1].dtype, call.hf32)
        return Cost(float(low), float(high), rate, None, call.traffic(), None, PADDED if low < high else "")
    return None


def _of_one_group(x: Tensor, weight: Tensor, out: Tensor | None) -> list[Product]:
    first, second, third = sides(x), sides(weight), sides(out) if out else None
    if not first or not second or first[0] or (out and not third):
        return []
    return products(first[1:], second[1:], third[1:] if third else None)


def grouped_swiglu(call: Call) -> Cost | None:
    """2 · M · N · K at most; the output has N / 2 columns, halves being multiplied (aclnnGroupedMatmulSwigluQuant)."""
    out = sides(call.out) if call.out else None
    return _of_whole_rows(call, (2 * out[2][0], 2 * out[2][1])) if out else None


def grouped_routing(call: Call) -> Cost | None:
    """2 · M · N · K at most; the output has a row per token, the input one per token and expert."""
    out = sides(call.out) if call.out else None
    return _of_whole_rows(call, out[2]) if out else None


def _of_whole_rows(call: Call, columns: Span) -> Cost | None:
    if len(call.ins) < 2:
        return None
    first, second = sides(call.ins[0]), sides(call.ins[1])
    if not first or not second or first[0]:
        return None
    return _of_products(call, products(first[1:], second[1:], (first[1], columns)), 1, GROUPS)


def feed_forward(call: Call) -> Cost | None:
    """2 · rows · elements of both weights, of one expert: x, weights up, weights down (aclnnFFN).

    With a matrix per expert, how many rows belong to any is data. A gated first layer has twice the columns.
    """
    if len(call.ins) < 3 or not call.ins[0].given:
        return None
    up, down = sides(call.ins[1]), sides(call.ins[2])
    if not up or not down or len(up[0]) > 1 or call.ins[0].format == "FRACTAL_NZ":
        return None
    width = call.ins[0].shape[-1]
    if not up[1][0] <= width <= up[1][1] or not down[2][0] <= width <= down[2][1]:
        return None
    rows = 2 * (call.ins[0].elements // width) * width
    low, high = (rows * (up[2][side] + down[1][side]) for side in (0, 1))
    rate = cube_rate(call.ins[0].dtype, call.ins[1].dtype, call.hf32)
    note = " ".join([GROUPS] * bool(up[0]) + [PADDED] * (low < high))
    return Cost(0.0 if up[0] else float(low), float(high), rate, None, call.traffic(), None, note)


def mla_prolog(call: Call) -> Cost | None:
    """2 · tokens · elements of the four weights that project a token to query, compressed key and rope (MlaProlog).

    Inputs: tokens (…, hidden), then weights to the compressed query, from there to all heads, from each head to the
    compressed key, and of the key (aclnnMlaProlog).
    """
    if len(call.ins) < 5 or not call.ins[0].given:
        return None
    weights = [sides(weight) for weight in call.ins[1:5]]
    tokens = call.ins[0].elements // call.ins[0].shape[-1]
    low = high = 0
    for one in weights:
        if one is None:
            return None
        batch, rows, columns = one
        low, high = low + prod(batch) * rows[0] * columns[0], high + prod(batch) * rows[1] * columns[1]
    rates = {cube_rate(call.ins[0].dtype, weight.dtype, call.hf32) for weight in call.ins[1:5]}
    rate = rates.pop() if len(rates) == 1 else 0
    least, most = float(2 * tokens * low), float(2 * tokens * high)
    return Cost(least, most, rate, None, call.traffic(), None, PADDED if low < high else "")


# -- Convolutions.


class _Planes(Struct, frozen=True):
    """A tensor of a convolution: channels from … to, and positions, of all images together."""

    channels: Span
    positions: int


def _planes(tensor: Tensor) -> _Planes | None:
    """Read a tensor by its format; C1 and C0 are channels, divided and rounded up to C0 (CANN, "Data formats")."""
    shape = tensor.shape
    if tensor.format in ("NCHW", "NCDHW") and len(shape) in (4, 5):
        return _Planes((shape[1], shape[1]), shape[0] * prod(shape[2:]))
    if tensor.format in ("NHWC", "NDHWC") and len(shape) in (4, 5):
        return _Planes((shape[-1], shape[-1]), prod(shape[:-1]))
    if tensor.format == "NC1HWC0" and len(shape) == 5:
        return _Planes((shape[4] * (shape[1] - 1) + 1, shape[4] * shape[1]), shape[0] * shape[2] * shape[3])
    if tensor.format == "NDC1HWC0" and len(shape) == 6:
        return _Planes((shape[5] * (shape[2] - 1) + 1, shape[5] * shape[2]), prod(shape[:2]) * shape[3] * shape[4])
    return None


def _filter_elements(weight: Tensor, x: _Planes, y: _Planes) -> Span | None:
    """Return the elements of a filter; a fractal one, (C1 · window, N1, 16, C0), is read with the channels beside it.

    Filters of groups have another number of C1 or N1 in it than the tensors, and are not told.
    """
    if weight.format in ("NCHW", "NCDHW", "NHWC", "NDHWC", "HWCN", "DHWCN"):
        return weight.elements, weight.elements
    if weight.format not in ("FRACTAL_Z", "FRACTAL_Z_3D") or len(weight.shape) != 4 or weight.shape[2] != 16:
        return None
    window_channels, down, _, width = weight.shape
    across = -(-x.channels[1] // width)
    if window_channels % across or down != -(-y.channels[1] // 16):
        return None
    window = window_channels // across
    return x.channels[0] * y.channels[0] * window, x.channels[1] * y.channels[1] * window


def _convolution(
    call: Call, x: Tensor | None, weight: Tensor | None, y: Tensor | None, bias: int | None = None
) -> Cost | None:
    """2 · images · positions of the output · elements of the filter; a border of zeros counts as any other.

    ``y``: the output of the forward convolution, wherever it stands in this kernel; ``bias``: its channels.
    """
    planes = [_planes(t) if t and t.given else None for t in (x, y)]
    if x is None or weight is None or y is None or not weight.given or not all(planes):
        return None
    before, after = planes
    assert before and after
    if bias is not None and after.channels[0] <= bias <= after.channels[1]:
        after = _Planes((bias, bias), after.positions)
    elements = _filter_elements(weight, before, after)
    if elements is None:
        return None
    low, high = (float(2 * after.positions * size) for size in elements)
    inputs = [t for t in (x, weight, y) if t in call.ins]
    rate = cube_rate(inputs[0].dtype, inputs[1].dtype, call.hf32)
    return Cost(low, high, rate, (0.0, 0.0), call.traffic(), None, PADDED if low < high else "")


def _wide(call: Call) -> list[Tensor]:
    """Return the inputs that are neither lists of sizes nor biases."""
    return [t for t in call.ins if len(t.shape) > 1]


def convolution(call: Call) -> Cost | None:
    """x, filter, bias → y."""
    wide, lines = _wide(call), [t.shape[0] for t in call.ins[2:] if len(t.shape) == 1]
    return _convolution(call, wide[0], wide[1], call.out, lines[0] if lines else None) if len(wide) > 1 else None


def convolution_input(call: Call) -> Cost | None:
    """Filter, gradient of y → gradient of x."""
    wide = _wide(call)
    return _convolution(call, call.out, wide[0], wide[1]) if len(wide) > 1 else None


def convolution_filter(call: Call) -> Cost | None:
    """x, gradient of y → gradient of the filter."""
    wide = _wide(call)
    return _convolution(call, wide[0], call.out, wide[1]) if len(wide) > 1 else None


def convolution_transposed(call: Call) -> Cost | None:
    """x, filter → y: the gradient of a convolution of which x is the output."""
    wide = _wide(call)
    return _convolution(call, call.out, wide[1], wide[0]) if len(wide) > 1 else None

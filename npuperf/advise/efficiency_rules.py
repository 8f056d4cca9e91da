"""Kernels that use little of what the chip can, by what their units did and what they are asked to do."""

from __future__ import annotations

import math
import re
from typing import Final, TypedDict

import numpy as np

from npuperf.advise.moves import STORE_NZ, STORE_NZ_SOURCE, rearranging, share_of_compute
from npuperf.advise.needs import (
    ALL_ROWS,
    INFERENCE,
    OPERATOR_TYPES,
    SHAPES,
    Need,
    Option,
    Requirement,
)
from npuperf.advise.rule import Answer, Detected, notable_wait, quote, rule, top_types
from npuperf.base.messages import Message, Series, number, say, series, share
from npuperf.base.units import NS_PER_S, short_names
from npuperf.device.cores import on_cores
from npuperf.device.cube_formulas import Cost
from npuperf.device.pipes import MOST
from npuperf.device.view import DeviceView
from npuperf.model.chip import CUBE_FLOP
from npuperf.model.groups import alike, distinct, first_rows
from npuperf.model.labels import F64, Mask, Operands

_PIPE_RATIOS: Final = say("pipe ratios of op_summary and kernel_details (metrics PipeUtilization)")
#: Rows of a table in the evidence, and those that are named.
_ROWS: Final = 10
_LISTED: Final = 3


class ProductRow(TypedDict):
    """Matmuls of one type and size in the evidence.

    ``padded``: the part of their products that is padding; ``fills``: the sizes that it fills up.
    """

    type: str | None
    batch: int
    m: int
    n: int
    k: int
    count: int
    total_ns: int
    padded: float
    fills: list[str]


def _part(view: DeviceView, of: Mask, known: Mask) -> float:
    """Return the part of some kernels' time in which something is known of them."""
    total = int(view.tasks.dur[of].sum())
    return int(view.tasks.dur[of & known].sum()) / total if total else float(not of.any())


def _pipes_known(view: DeviceView) -> float:
    cores = view.compute & (on_cores(view.tasks) | ~view.tasks.core.known())
    return _part(view, cores, ~np.isnan(view.use.pipes.scalar)) if cores.any() else 0.0


_PIPES: Final = Need(
    say("pipe ratios"),
    _pipes_known,
    lambda _: say("no pipe ratios are recorded: record with --aic-metrics PipeUtilization"),
)


def _won(view: DeviceView, chosen: Mask, part: F64) -> int:
    """Return what is won at most, ns of the window, if of each kernel that part were; only exposed time counts."""
    total = int((part[chosen] * view.tasks.dur[chosen]).sum())
    return total if total < notable_wait(view) else min(total, view.exposed(chosen))


# -- Kernels that do little but scalar computing.


@rule(say("kernels limited by scalar computing"), _PIPE_RATIOS, (_PIPES, ALL_ROWS))
def scalar_kernels(view: DeviceView) -> Answer:
    """Find kernels whose scalar units are busy for longer than everything else together."""
    part = np.nan_to_num(view.use.pipes.scalar.astype(np.float64))
    chosen = view.compute & (part > 0)
    most = _won(view, chosen, part)
    if most < notable_wait(view):
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say(
            "{share} of compute time is in kernels that do little but scalar computing: {types}",
            share=share(share_of_compute(view, chosen)),
            types=quote(rows),
        ),
        evidence={"share_of_compute": share_of_compute(view, chosen), "count": int(chosen.sum()), "types": rows},
        gain=(0, view.per_step(most)),
        refute=say("with another dtype or size their scalar units are as busy, and they take as long"),
        next=(
            Option(
                say(
                    "in operators of your own (Ascend C, Triton) let vector instructions do what loops over single "
                    "elements do, and addresses and masks be computed outside of these; of CANN's operators compare "
                    "another dtype, and last dimensions that are multiples of 32 bytes"
                ),
                say("Ascend C best practices: vector units read blocks of 32 bytes, scalar units compute one value"),
            ),
        ),
    )


# -- Matrix products in FP32 that HF32 or BF16 would serve.

_MATMUL: Final = re.compile(r"mat_?mul|gemm", re.I)
_CONV: Final = re.compile(r"conv\dd", re.I)
_HF32: Final = say("torch_npu.npu.matmul.allow_hf32 (off by default), torch_npu.npu.conv.allow_hf32 (on by default)")
#: Of the time that cube cores multiply: HF32 takes half as long as FP32.
_WITH_HF32: Final = 0.5


def _multiply(view: DeviceView) -> Mask:
    """Return the kernels that are matmuls or convolutions by their type, as far as a formula knows them."""
    return view.compute & view.types.flag([bool(_MATMUL.search(n) or _CONV.search(n)) for n in view.types.names])


def _flags_known(view: DeviceView) -> float:
    """Return the part of the time of matmuls and convolutions of which types are recorded, and of FP32 HF32, too."""
    operands = view.tasks.operands
    parsed = [Operands.parse(text) for text in operands.names]
    told = operands.flag([bool(o.dtypes) and (o.hf32 is not None or "FLOAT32" not in o.dtypes) for o in parsed])
    return _part(view, _multiply(view), told)


def _no_flags(view: DeviceView) -> Message:
    if not (_multiply(view) & view.tasks.operands.known()).any():
        return say("data types are not recorded: record with npuperf profile --level 1 --shapes")
    return say("whether FP32 may be computed as HF32 is not recorded: kernel_details.csv and op_summary tell it")


_HF32_FLAGS: Final = Need(say("data types and HF32 Eligible"), _flags_known, _no_flags)


@rule(
    say("matmuls and convolutions in FP32"),
    say("Input Data Types and HF32 Eligible; cube cores multiply FP32 at a quarter of the rate of BF16, HF32 at half"),
    (OPERATOR_TYPES, _HF32_FLAGS, ALL_ROWS),
)
def fp32_products(view: DeviceView) -> Answer:
    """Find products of FP32 that may not be cut to HF32, as far as cube cores are busy with them."""
    chosen = _multiply(view) & view.use.costs.flag(cost.rate == 2048 for cost in view.use.costs.known)
    busy = view.use.pipes.mac.astype(np.float64)
    part = _WITH_HF32 * np.where(np.isnan(busy), 1.0, np.minimum(busy, 1.0))
    most = _won(view, chosen, part)
    if most < notable_wait(view):
        return None
    rows = top_types(view, chosen)
    types = [row["type"] or "" for row in top_types(view, chosen, len(view.types.names))]
    matmuls, convolutions = any(map(_MATMUL.search, types)), any(map(_CONV.search, types))
    return Detected(
        title=say(
            "{share} of compute time multiplies matrices in FP32, without HF32: {types}",
            share=share(share_of_compute(view, chosen)),
            types=quote(rows),
        ),
        evidence={"share_of_compute": share_of_compute(view, chosen), "count": int(chosen.sum()), "types": rows},
        gain=(0, view.per_step(most)),
        refute=say("results or losses differ by more than is acceptable, or the kernels take as long: they wait for "
                   "memory"),
        next=(
            Option(
                say("set torch_npu.npu.matmul.allow_hf32 = True: values keep their 4 bytes, products lose precision as "
                    "with TF32 on GPUs"),
                _HF32,
                (Requirement(say("matmuls in FP32"), lambda _: matmuls),),
            ),
            Option(
                say("leave torch_npu.npu.conv.allow_hf32 = True, which is its default and is off here"),
                _HF32,
                (Requirement(say("convolutions in FP32"), lambda _: convolutions),),
            ),
            Option(
                say("multiply in BF16 (torch.autocast): four times the rate of FP32, and half of its bytes"),
                say("PyTorch, Automatic Mixed Precision"),
            ),
        ),
    )  # fmt: skip


# -- Sizes that cube cores fill up to whole fractals.

_FRACTALS: Final = say("CANN, data formats: cube cores multiply blocks of 16 × 16 values, of 16 × 32 bytes along K")
#: Values along K that a block has, by the rate of its type.
_ALONG_K: Final = {8192: 16, 16384: 32, 4096: 8, 2048: 8}


def filled_up(cost: Cost) -> dict[str, tuple[int, int]]:
    """Return those of M, N and K that are filled up to whole blocks, and to what; none where that is not certain."""
    if cost.dims is None or not all(cost.dims) or cost.rate not in _ALONG_K:
        return {}
    units = zip("MNK", cost.dims[1:], (16, 16, _ALONG_K[cost.rate]), strict=True)
    return {name: (size, -(-size // unit) * unit) for name, size, unit in units if size % unit}


def padded_part(cost: Cost) -> float:
    """Return the part of a product's multiplications that is padding: M, N and K are filled up to whole blocks."""
    return 1 - math.prod(size / whole for size, whole in filled_up(cost).values())


def _mac_known(view: DeviceView) -> float:
    return _part(view, _matmuls(view), ~np.isnan(view.use.pipes.mac))


def _matmuls(view: DeviceView) -> Mask:
    return view.compute & view.types.flag([bool(_MATMUL.search(n)) for n in view.types.names])


_MAC: Final = Need(say("pipe ratios"), _mac_known, _PIPES.supply)


def _no_sizes(view: DeviceView) -> Message:
    if not (_matmuls(view) & view.tasks.shapes.known()).any():
        return SHAPES.supply(view)
    return say("sizes of matmuls are unknown: there is no formula for their operator types, or shapes do not fit it")


_SIZES: Final = Need(say("sizes of matmuls"), lambda v: _part(v, _matmuls(v), _with_cost(v)), _no_sizes)


def _with_cost(view: DeviceView) -> Mask:
    """Return the kernels whose shapes fit their type, and their counters."""
    found: Mask = view.use.costs.code >= 0
    if view.use.work is not None:
        found[view.use.work.task[view.use.work.contradicts]] = False
    return found


def _sized(view: DeviceView) -> Mask:
    """Return the matmuls whose sizes are certain."""
    certain = view.use.costs.flag(cost.dims is not None for cost in view.use.costs.known)
    return _matmuls(view) & _with_cost(view) & certain


def _product_rows(view: DeviceView, chosen: Mask) -> list[ProductRow]:
    """Group matmuls by type and sizes, the longest first."""
    index = np.flatnonzero(chosen)
    kind = alike(view.types.codes.take(index), view.use.costs.code.take(index))
    count = np.bincount(kind)
    total = np.bincount(kind, view.tasks.dur[index])
    rows: list[ProductRow] = []
    for at, group in zip(index[first_rows(kind, len(count))].tolist(), range(len(count)), strict=True):
        cost = view.use.costs.known[int(view.use.costs.code[at])]
        batch, m, n, k = cost.dims or (0, 0, 0, 0)
        rows.append({"type": view.types[at], "batch": batch, "m": m, "n": n, "k": k, "count": int(count[group]),
                     "total_ns": int(total[group]),
                     "padded": padded_part(cost), "fills": [*filled_up(cost)]})  # fmt: skip
    return sorted(rows, key=lambda row: -row["total_ns"])


def _sizes(rows: list[ProductRow]) -> Series:
    """Return matmuls as a list to show."""
    short = short_names(row["type"] or "N/A" for row in rows)
    return series(
        say("{type} ×{count} of {m} × {k} by {k} × {n}", type=short[row["type"] or "N/A"], m=row["m"], n=row["n"],
            k=row["k"], count=row["count"])
        for row in rows[:_LISTED]
    )  # fmt: skip


@rule(
    say("padding in matmuls"),
    say("input shapes, and how long cube cores multiply (aic_mac_ratio)"),
    (OPERATOR_TYPES, _SIZES, _MAC, ALL_ROWS),
)
def padded_products(view: DeviceView) -> Answer:
    """Find matmuls of which much is padding, as far as cube cores are busy with it."""
    padded = view.use.costs.spread(map(padded_part, view.use.costs.known))
    part = padded * np.clip(np.nan_to_num(view.use.pipes.mac.astype(np.float64)), 0, 1)
    chosen = _sized(view) & (part > 0)
    most = _won(view, chosen, part)
    if most < notable_wait(view):
        return None
    rows = _product_rows(view, chosen)
    rows.sort(key=lambda row: -row["padded"] * row["total_ns"])
    names = [name for name in "MNK" if any(name in row["fills"] for row in rows[:_LISTED])]
    return Detected(
        title=say(
            "for {part} of the time of these matmuls cube cores multiply padding, which fills {sizes} up to multiples "
            "of 16 (K: of 32 bytes): {products}",
            part=share(float((part[chosen] * view.tasks.dur[chosen]).sum()) / int(view.tasks.dur[chosen].sum())),
            sizes=series(names),
            products=_sizes(rows),
        ),
        evidence={"padding_ns": int((part[chosen] * view.tasks.dur[chosen]).sum()), "count": int(chosen.sum()),
                  "products": rows[:_ROWS]},
        gain=(0, view.per_step(most)),
        refute=say("with sizes that are multiples of 16 the same useful work takes as long"),
        next=(
            Option(
                say(
                    "let batch, sequence and vocabulary sizes fill multiples of 16 with work that counts, or multiply "
                    "several small matrices as one"
                ),
                _FRACTALS,
            ),
        ),
    )  # fmt: skip


# -- Matmuls of few rows: their weights are read for hardly any work.


def _narrow(view: DeviceView) -> tuple[Mask, F64, F64]:
    """Return matmuls that memory limits for their few rows, and of each task the parts that other advice would save.

    Their weights are most of what they move, HBM needs longer for it than cube cores for the products, and these are
    idle for most of the time. A larger batch leaves at most the products' time, weights of one byte at most halve what
    is read of weights.
    """
    costs, rates = view.use.costs, view.use.rates
    if rates is None or rates.memory is None:  # there is no matmul, or _MEMORY had said so
        return np.zeros(len(view.tasks), np.bool_), np.zeros(len(view.tasks)), np.zeros(len(view.tasks))
    of_weights, saved = [], []
    for cost in costs.known:
        weights = seconds = 0.0
        if cost.dims is not None and cost.dims[0] == 1 and cost.rate and cost.bytes:
            _, m, n, k = cost.dims
            weights = n * k / (m * k + n * k + m * n)
            seconds = cost.bytes[0] / rates.memory.hbm_rate
        products = cost.least * (cost.units or 0.0) / rates.cube
        limited = weights >= MOST and seconds > products
        of_weights.append(weights / 2 if limited else 0.0)
        saved.append(products * NS_PER_S if limited else 0.0)
    halved, products_ns = map(costs.spread, (of_weights, saved))
    chosen = _sized(view) & (halved > 0) & (view.use.pipes.mac < MOST)
    return chosen, halved, np.maximum(1 - products_ns / np.maximum(view.tasks.dur, 1), 0.0)


def _memory_known(view: DeviceView) -> float:
    return float(not _matmuls(view).any() or (view.use.rates is not None and view.use.rates.memory is not None))


_MEMORY: Final = Need(
    say("rates of cube cores and memory"),
    _memory_known,
    lambda _: say("how fast cube cores and memory are is not known: name the device (--soc)"),
)


@rule(
    say("matmuls of few rows"),
    say("shapes and pipe ratios, beside the rates of cube cores and HBM"),
    (OPERATOR_TYPES, _SIZES, _MAC, _MEMORY, ALL_ROWS),
)
def narrow_products(view: DeviceView) -> Answer:
    """Find matmuls that wait for their weights."""
    chosen, halved, shared = _narrow(view)
    batch, bytes_ = _won(view, chosen, shared), _won(view, chosen, halved)
    if batch < notable_wait(view):
        return None
    rows, operands = _product_rows(view, chosen), view.tasks.operands
    nz = operands.flag(["FRACTAL_NZ" in Operands.parse(text).formats for text in operands.names])
    halves = view.use.costs.flag(cost.rate == CUBE_FLOP for cost in view.use.costs.known)
    of_halves, not_nz = bool((chosen & halves).any()), bool((chosen & ~nz).any())
    return Detected(
        title=say(
            "{share} of compute time is in matmuls of so few rows that reading the weights limits them: {products}",
            share=share(share_of_compute(view, chosen)),
            products=_sizes(rows),
        ),
        evidence={"share_of_compute": share_of_compute(view, chosen), "count": int(chosen.sum()),
                  "products": rows[:_ROWS]},
        gain=(0, view.per_step(batch)),
        refute=say("twice as many rows take twice as long"),
        next=(
            Option(
                say("let more rows share one reading of the weights: larger batches, or more requests that are decoded "
                    "together (the maximum assumes the same work in as few steps as cube cores allow)"),
                say("roofline: bytes of weights by HBM's rate, products by that of cube cores"),
                gain=lambda v: (0, v.per_step(batch)),
            ),
            Option(
                say("quantise the weights to INT8 (torch_npu.npu_weight_quant_batchmatmul): half as much is read"),
                say("torch_npu.npu_weight_quant_batchmatmul"),
                (INFERENCE, Requirement(say("weights of FP16 or BF16"), lambda _: of_halves)),
                gain=lambda v: (0, v.per_step(bytes_)),
                refute=say("results differ by more than is acceptable, or the matmuls take as long"),
            ),
            Option(STORE_NZ, STORE_NZ_SOURCE,
                   (INFERENCE, Requirement(say("weights that are not FRACTAL_NZ"), lambda _: not_nz))),
        ),
    )  # fmt: skip


# -- Kernels that wait for what they read: rows of matrices that are no multiple of 512 bytes, and copies.

_ALIGNMENT: Final = say(
    "CANN, graph fusion patterns MatMulTransposeWeightFusionPass, MatMulAlignInputsFusionPass (innermost dimensions "
    "that are no multiples of 512 bytes); Ascend C best practices: transfers off 512 bytes reach down to 70 % of the "
    "bandwidth"
)
#: What of reading is saved at most: what is off 512 bytes reaches 70 % of the bandwidth at the least.
_OFF_ALIGNMENT: Final = 0.3


def _reads_known(view: DeviceView) -> float:
    return _part(view, _matmuls(view), ~np.isnan(view.use.pipes.reads))


@rule(
    say("rows of matmuls off 512 bytes"),
    _ALIGNMENT,
    (OPERATOR_TYPES, _SIZES, Need(say("pipe ratios"), _reads_known, _PIPES.supply), _MEMORY, ALL_ROWS),
)
def unaligned_products(view: DeviceView) -> Answer:
    """Find matmuls that wait for matrices whose innermost dimension is no multiple of 512 bytes."""
    if view.use.rates is None or view.use.rates.memory is None:  # told of Atlas A2 and A3 alone
        return None
    off = view.use.costs.flag(bool(cost.inner) for cost in view.use.costs.known)
    reads = np.nan_to_num(view.use.pipes.reads.astype(np.float64))
    chosen = _sized(view) & off & (reads >= MOST)
    most = _won(view, chosen, _OFF_ALIGNMENT * np.minimum(reads, 1.0))
    if most < notable_wait(view):
        return None
    rows = _product_rows(view, chosen)
    inner = sorted({size for at in distinct(view.use.costs.code[chosen]).tolist()
                    for size in view.use.costs.known[at].inner})  # fmt: skip
    return Detected(
        title=say(
            "{share} of compute time is in matmuls that wait for matrices whose rows of {sizes} bytes are no multiples "
            "of 512: {products}",
            share=share(share_of_compute(view, chosen)),
            sizes=series(inner[:_LISTED]),
            products=_sizes(rows),
        ),
        evidence={"share_of_compute": share_of_compute(view, chosen), "count": int(chosen.sum()),
                  "row_bytes": inner[:_ROWS], "products": rows[:_ROWS]},
        gain=(0, view.per_step(most)),
        refute=say("with rows that are multiples of 512 bytes (256 values of BF16) and as much work they take as long"),
        next=(
            Option(
                say("let hidden, head and vocabulary sizes per rank be multiples of 256 values of two bytes, or of 128 "
                    "of four; a weight whose other dimension is one may be stored transposed"),
                _ALIGNMENT,
            ),
            Option(STORE_NZ, STORE_NZ_SOURCE, (INFERENCE,)),
        ),
    )  # fmt: skip


#: A kernel that does nothing takes 1 to 5 us.
_LAUNCHING: Final = 5000


def _moving(view: DeviceView) -> Mask:
    """Return the kernels that compute nothing and of which the bytes that they must move are known."""
    flags = (cost.vector == (0.0, 0.0) and not cost.rate and bool(cost.bytes and cost.bytes[0])
             for cost in view.use.costs.known)  # fmt: skip
    return view.compute & view.use.costs.flag(flags)


def _sizes_known(view: DeviceView) -> float:
    return _part(view, rearranging(view), _with_cost(view))


_COPY_SIZES: Final = Need(say("sizes of copies"), _sizes_known, SHAPES.supply)
_COPIES: Final = Need(
    say("pipe ratios"), lambda view: _part(view, _moving(view), ~np.isnan(view.use.pipes.reads)), _PIPES.supply
)


_COPY_MEMORY: Final = Need(
    _MEMORY.what,
    lambda view: float(not _moving(view).any() or (view.use.rates is not None and view.use.rates.memory is not None)),
    _MEMORY.supply,
)


@rule(
    say("copies that wait for reading"),
    say("shapes, and aiv_mte2_ratio or aic_mte2_ratio, beside the rate of HBM"),
    (OPERATOR_TYPES, _COPY_SIZES, _COPIES, _COPY_MEMORY, ALL_ROWS),
)
def slow_copies(view: DeviceView) -> Answer:
    """Find copies that read for most of their time, and move less than half of what HBM gives."""
    if view.use.rates is None or view.use.rates.memory is None:
        return None
    rate, dur = view.use.rates.memory.hbm_rate, view.tasks.dur
    sizes = view.use.costs.spread(float(cost.bytes[0]) if cost.bytes else 0.0 for cost in view.use.costs.known)
    part = np.maximum(1 - (sizes / rate * NS_PER_S + _LAUNCHING) / np.maximum(dur, 1), 0.0)
    chosen = _moving(view) & (np.nan_to_num(view.use.pipes.reads) >= MOST) & (part > MOST)
    most = _won(view, chosen, part)
    if most < notable_wait(view):
        return None
    rows = top_types(view, chosen)
    reached = float(sizes[chosen].sum()) / int(dur[chosen].sum())
    return Detected(
        title=say(
            "{share} of compute time is in copies that read most of the time and move {rate} GB/s, of {most} that HBM "
            "gives: {types}",
            share=share(share_of_compute(view, chosen)),
            rate=number(round(reached, 1)),
            most=number(round(rate / 1e9)),
            types=quote(rows),
        ),
        evidence={"share_of_compute": share_of_compute(view, chosen), "count": int(chosen.sum()),
                  "gb_per_s": reached, "types": rows},
        gain=(0, view.per_step(most)),
        refute=say("copies of as many bytes whose rows lie together and are multiples of 512 bytes take as long"),
        next=(
            Option(
                say("let what is read together lie together: order dimensions so that the innermost one stays, and its "
                    "bytes are a multiple of 512; or let the next operator read the values as they lie"),
                say("Ascend C best practices: 16 KB and more at once, at addresses that are multiples of 512 bytes"),
            ),
        ),
    )  # fmt: skip

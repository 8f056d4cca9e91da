"""Floating-point operations of attention kernels, by what shapes, types and outputs prove of layout, mask and lengths.

Attributes (layout, heads, sparse mode) are not in an export. So every layout is tried that fits all shapes, and what
they differ in becomes [least, most]:

- layout: query and key agree in their batch, and heads of the query are a multiple of those of the key; maxima and sums
  of the softmax, (B, N, S, 8) or (T, N, 8), tell heads and length (aclnnFlashAttentionScore);
- mask: without one everything is computed, whatever pre_tockens and next_tockens say (sparse mode 0). One of 2048 ×
  2048 beside other lengths is compressed: modes 2, 3, 7 and 8 are causal, aligned at the first or the last token; 4 is
  a window, which no shape tells from them: it does less, and only counters show it. A mask of the lengths themselves
  hides what it likes: taken for something between causal and nothing, and so is one of a prefix (mode 6). Sources:
  CANN, "Introduction to sparse mode"; torch_npu, npu_fusion_attention;
- lengths: of packed sequences (T, N, D) only the sum is known, of paged and padded ones only what there is room for.

A pair is a query and a key that one head multiplies: 2 · D of the query + 2 · D of the value forward. Backward are five
products for two, of which the first repeats the forward's (FlashAttention-2's benchmark: 2.5 times the forward).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.cube_formulas import HALF, Call, Cost, Shape, Span, Tensor, cube_rate, total

LAYOUT: Final = "layout"
MASK: Final = "mask"
CAUSAL: Final = "causal"
LENGTHS: Final = "lengths"

#: The size of a compressed mask.
_COMPRESSED: Final = (2048, 2048)
_MASK_TYPES: Final = ("BOOL", "INT8", "UINT8", "")
#: Heads and D that attention operators take at most, but for some in the newest versions.
_HEADS: Final = 256
_D: Final = 768
#: Operations of the vector cores per pair: scale, maximum, difference, exp, sum.
_FORWARD: Final = 5
#: Scale, difference and exp once more; difference of the gradient, product, scale.
_BACKWARD: Final = 6


class _Layout(Struct, frozen=True):
    """How query and key are laid out; ``width`` is heads × D of the query.

    ``batch`` 0: packed, and ``q`` and ``kv`` are tokens of all sequences.
    """

    batch: int
    q: int
    kv: int
    width: int
    heads: int | None

    def pairs(self, mask: str, sequences: int | None, data: bool) -> Span:
        """Return how many pairs a head has: ``sequences`` how many are packed, ``data``: any may be shorter."""
        q, kv = self.q, self.kv
        few, more = _corner(q, kv)
        low, high = {"": (q * kv, q * kv), CAUSAL: (few, more), MASK: (few, q * kv)}[mask]
        if self.batch:
            return 0 if data else low * self.batch, high * self.batch
        if data or q != kv:
            return 0, high
        # all of one length have the fewest pairs; without their number a token has itself
        squares = q * q // sequences if sequences else q
        return (squares + q) // 2 if mask and sequences else squares, high


def _corner(q: int, kv: int) -> Span:
    """Return the pairs of a causal mask, aligned at the first tokens and at the last ones, the fewer first."""
    short = min(q, kv)
    first = short * (short + 1) // 2 + max(q - kv, 0) * kv
    last = q * kv - q * (q - 1) // 2 if q <= kv else kv * (kv + 1) // 2
    return min(first, last), max(first, last)


def _layouts(q: Shape, k: Shape, sequence_first: bool) -> list[_Layout]:
    """Return all layouts that query and key can be of.

    BSH, SBH, TND in three dimensions, BNSD, BSND in four (aclnnFlashAttentionScore; inference has no SBH). One of
    more heads, or of a larger D, than these operators take is only believed where there is no other.
    """
    if len(q) != len(k) or len(q) not in (3, 4) or 0 in q or 0 in k:
        return []
    found = []
    if len(q) == 3:
        if q[2] % k[2] == 0:
            if q[0] == k[0]:
                found.append(_Layout(q[0], q[1], k[1], q[2], None))
            if q[1] == k[1] and sequence_first:
                found.append(_Layout(q[1], q[0], k[0], q[2], None))
        if q[2] == k[2] and q[1] % k[1] == 0:
            found.append(_Layout(0, q[0], k[0], q[1] * q[2], q[1]))
    elif q[0] == k[0] and q[3] == k[3]:
        if q[1] % k[1] == 0:
            found.append(_Layout(q[0], q[2], k[2], q[1] * q[3], q[1]))
        if q[2] % k[2] == 0:
            found.append(_Layout(q[0], q[1], k[1], q[2] * q[3], q[2]))
    found = list(dict.fromkeys(found))
    return [one for one in found if (one.heads or 1) <= _HEADS and one.width <= _D * (one.heads or _HEADS)] or found


def _told(layouts: list[_Layout], stats: list[Shape]) -> list[_Layout]:
    """Return the layouts that the softmax's maxima and sums allow, with the heads that these tell."""
    if len(set(stats)) > 1:
        return []  # one of them is wrong
    if not stats:
        return layouts
    found = []
    *batch, first, second, _ = stats[0]
    heads, tokens = (first, second) if batch else (second, first)
    for one in layouts:
        same = one.batch == (batch[0] if batch else 0) and one.q == tokens and one.heads in (None, heads)
        if same and one.width % heads == 0:
            found.append(replace(one, heads=heads))
    return list(dict.fromkeys(found))


def _stats(tensors: tuple[Tensor, ...], last: int) -> list[Shape]:
    return [
        t.shape for t in tensors if len(t.shape) in (3, 4) and t.given and t.shape[-1] == last and t.dtype == "FLOAT32"
    ]


def _mask(layout: _Layout, tensors: tuple[Tensor, ...], also_float: bool) -> str:
    """Tell what is known of a mask: none, a causal one, or one that hides what it likes."""
    kinds = set()
    for t in tensors:
        size = t.shape[-2:]
        wide = len(size) == 2 and also_float and t.dtype in HALF and size[0] >= layout.q and size[1] >= layout.kv
        if len(size) == 2 and t.given and (t.dtype in _MASK_TYPES or wide):
            compressed = size == _COMPRESSED and layout.batch and (layout.q, layout.kv) != _COMPRESSED
            kinds.add(CAUSAL if compressed else MASK)
    return kinds.pop() if len(kinds) == 1 else MASK if kinds else ""


def _of_mask(layouts: list[_Layout], tensors: tuple[Tensor, ...]) -> list[_Layout]:
    """Return the layouts whose lengths a mask has, if it has those of one; a compressed one tells nothing."""
    sizes = {t.shape[-2:] for t in tensors if len(t.shape) > 1 and t.dtype in _MASK_TYPES} - {_COMPRESSED}
    return [one for one in layouts if (one.q, one.kv) in sizes] or layouts


def _apart(shape: Shape) -> tuple[Shape, int]:
    """Return all but the last size, and that; of (blocks, heads, D / 16, size, 16) D is what stands apart."""
    return (shape[:-1], shape[-1]) if len(shape) != 5 else ((*shape[:2], shape[3]), shape[2] * shape[4])


def _rope(q: Tensor, k: Tensor, more: tuple[Tensor, ...], taken: tuple[Shape, ...] = ()) -> tuple[str, int] | None:
    """Return type and size of the query's part with the rotated positions, where it is apart (MLA).

    Query and key have one, each shaped as they are but for D.
    """
    (rows, width), (key_rows, key_width) = _apart(q.shape), _apart(k.shape)
    fit = [t for t in more if t.given and len(t.shape) > 2 and t.shape not in (q.shape, k.shape, *taken)]
    fit = [t for t in fit if t.dtype in HALF or (t.dtype == q.dtype and t.shape[-1] not in (1, 8))]
    for i, ours in enumerate(fit):
        for theirs in fit[i + 1 :]:
            (our_rows, our_width), (their_rows, their_width) = _apart(ours.shape), _apart(theirs.shape)
            if (our_rows, their_rows) == (rows, key_rows) and our_width * key_width == their_width * width:
                return ours.dtype, our_width
    return None


def _per_pair(call: Call, rope: tuple[str, int] | None, backward: bool) -> tuple[int, int]:
    """Return operations per pair and element of the query's D, as a fraction: 2 · (1 + value / query) forward."""
    q, k, v = (_apart(t.shape)[1] for t in call.ins[:3])
    of_query, of_value = (3, 2) if backward else (1, 1)
    return 2 * (of_query * (q + (rope[1] if rope else 0)) * k + of_value * v * q), q * k


def _rate(call: Call, rope: tuple[str, int] | None) -> int:
    q, k = call.ins[:2]
    return cube_rate(q.dtype, k.dtype, call.hf32) if rope is None or rope[0] == q.dtype else 0


def _cost(call: Call, layouts: list[_Layout], *, backward: bool = False, paddable: bool = False) -> Cost | None:
    """Put [least, most] of all layouts together; ``paddable``: lengths as an input mean shorter sequences."""
    q, k, v = call.ins[:3]
    if not layouts or not v.given or v.shape[:-1] != k.shape[:-1]:
        return None
    more = call.ins[4 if backward else 3 :]
    rope = _rope(q, k, more, (call.ins[3].shape,) if backward else ())
    lines = [t.shape[0] for t in more if len(t.shape) == 1 and t.given and t.dtype == "INT64"]
    sequences = max(lines, default=0)  # what else is counted per sequence is no longer; 1 may be any number
    each, parts = _per_pair(call, rope, backward)
    least, most, low, high = [], [], [], []
    notes = [LAYOUT] if len(layouts) > 1 else []
    for one in layouts:
        mask = _mask(one, more, paddable)
        data = paddable and (bool(lines) or not one.batch)
        pairs = one.pairs(mask, sequences if sequences > 1 else None, data)
        notes += [mask] * bool(mask) + [LENGTHS] * (data or not one.batch)
        least.append(pairs[0] * one.width * each / parts)
        most.append(pairs[1] * one.width * each / parts)
        if one.heads:
            count = (_BACKWARD if backward else _FORWARD) * one.heads
            low.append(float(pairs[0] * count))
            high.append(float(pairs[1] * count))
    vector = (min(low), max(high)) if len(low) == len(layouts) else None
    return Cost(min(least), max(most), _rate(call, rope), vector, call.traffic(), None, " ".join(dict.fromkeys(notes)))


def attention(call: Call) -> Cost | None:
    """FlashAttentionScore: query, key, value, … → maxima, sums, softmax, output: 4 · pairs · heads · D."""
    if len(call.ins) < 3:
        return None
    layouts = _layouts(call.ins[0].shape, call.ins[1].shape, sequence_first=True)
    layouts = _told(layouts, _stats((call.outs or ())[:2], 8))
    return _cost(call, _of_mask(layouts, call.ins[3:]))


def attention_backward(call: Call) -> Cost | None:
    """FlashAttentionScoreGrad: query, key, value, gradient, …, maxima, sums, … → gradients: 10 · pairs · heads · D."""
    if len(call.ins) < 4:
        return None
    layouts = _layouts(call.ins[0].shape, call.ins[1].shape, sequence_first=True)
    layouts = _told(layouts, _stats(call.ins[4:], 8))
    return _cost(call, _of_mask(layouts, call.ins[4:]), backward=True)


def inference_attention(call: Call) -> Cost | None:
    """Prompt, incremental and fused inference attention: query, key, value, … → output, log of the sums.

    Where lengths are an input, sequences are padded to the largest and any may be shorter. With a table of blocks keys
    are in pages, (blocks, size, heads × D), (blocks, heads, size, D) or (blocks, heads, D / 16, size, 16), and a
    sequence has at most as many as the table is wide (aclnnFusedInferAttentionScore).
    """
    if len(call.ins) < 3:
        return None
    table = [t for t in call.ins[3:] if len(t.shape) == 2 and t.dtype == "INT32" and t.given]
    if len(table) == 1 and all(t.given for t in call.ins[:3]):
        return _paged(call, table[0])
    layouts = _layouts(call.ins[0].shape, call.ins[1].shape, sequence_first=False)
    layouts = _told(layouts, _stats((call.outs or ())[1:2], 1))
    return _cost(call, _of_mask(layouts, call.ins[3:]), paddable=True)


def _paged(call: Call, table: Tensor) -> Cost | None:
    q, k, v = call.ins[:3]
    place = {3: 1, 4: 2, 5: 3}.get(len(k.shape))
    if place is None or len(v.shape) != len(k.shape) or len(q.shape) not in (3, 4):
        return None
    if len(k.shape) > 3 and q.shape[-1] % _apart(k.shape)[1]:
        return None
    rope = _rope(q, k, call.ins[3:])
    each, parts = _per_pair(call, rope, backward=False)
    most = q.elements * table.shape[1] * k.shape[place] * each / parts
    few, everything = total(t.bytes() for t in (q, table, *(call.outs or ()))), call.traffic()
    traffic = (few[0], everything[1]) if few and everything else None
    return Cost(0.0, most, _rate(call, rope), None, traffic, None, LENGTHS)

"""How fast collectives are, by kind, ranks and size: algorithm and bus bandwidth, as NCCL-tests defines them.

Algorithm bandwidth is the size over the time; bus bandwidth is that times what of the size an ideal algorithm moves
over each rank's link, so that it may be held against the link whatever the kind and however many ranks there are. The
size is that of the whole buffer: of an allGather what each rank has in the end, of a reduceScatter what it begins with.
(nccl-tests, doc/PERFORMANCE.md.) Sizes are told by elements, else by what moved over one transport, which is what such
an algorithm moves: inferred. The time is without waiting for other ranks, as far as that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.device.rank_summary import WAITS, RankSummary, least_transfer, least_wait, links_side_by_side
from npuperf.model.communication import REFERENCE
from npuperf.model.groups import alike, first_rows
from npuperf.model.job_result import CollectiveRate
from npuperf.model.labels import F64, I64, Labels, Mask

#: What of the size each rank's link carries at best, of so many ranks.
_FACTORS: Final[dict[str, Callable[[F64], F64]]] = {
    "allReduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(
        ("allGather", "reduceScatter", "alltoall", "alltoallv", "alltoallvc", "gather", "scatter"),
        lambda n: (n - 1) / n,
    ),
    **dict.fromkeys(("broadcast", "reduce", "send", "receive", "batchSendRecv"), np.ones_like),
}
#: Those of which the elements of one rank are a part of the size, as large as the others'.
_PARTS: Final = ("allGather", "reduceScatter")
#: Those of which elements tell the size.
_BY_ELEMENTS: Final = (*_PARTS, "allReduce", "broadcast", "reduce", "send", "receive")
#: Those in which some rank moves nothing, or does so for several operations: what it moves is no part of the size.
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
_TWO: Final = ("send", "receive", "batchSendRecv")


class _Rows(Struct, frozen=True):
    """Operations of one rank, a row each: how many ranks they have (0: not known), bytes (NaN: not known), ns.

    ``size``: of the whole buffer; ``bus``: what an ideal algorithm moves; ``moved``: by the rank, over ``links`` side
    by side (0: not known), each used for a part of ``busy`` (0: not known, or it holds waiting); ``cut``: packets are
    recorded, ``odd``: some of them are no multiple of what they should be.
    """

    kind: Labels
    group: Labels
    ranks: I64
    at_least: Mask
    size: F64
    bus: F64
    by_elements: Mask
    moved: F64
    busy: F64
    links: I64
    transport: Labels
    cut: Mask
    odd: Mask


def rates_alone(summary: RankSummary, unit: int) -> list[CollectiveRate]:
    """Return the rates of one rank's operations, of which it is only known in part how long it waits for others.

    ``unit``: bytes of which packets should be multiples.
    """
    least = least_transfer(summary)
    return collective_rates([summary], least, summary.operations.stay - least_wait(summary, least), unit)


def collective_rates(ranks: Sequence[RankSummary], least: I64, most: I64, unit: int) -> list[CollectiveRate]:
    """Return the rates of all operations of some ranks by kind, number of ranks, size class and transport.

    ``least``, ``most``: the time that each is under way and not waiting, ns, rank by rank. Those with most time first;
    last those of which no size is known.
    """
    own = [_rows(rank, unit) for rank in ranks]
    if not own:
        return []
    rows = _Rows(*(_joined([getattr(one, name) for one in own]) for name in _Rows.__struct_fields__))
    counts = rows.kind.flag([name in _FACTORS for name in rows.kind.names]) & (rows.ranks != 1) & (most > 0)
    chosen = np.flatnonzero(counts)
    if not len(chosen):
        return []
    power = size_class(np.nan_to_num(rows.size).astype(np.int64))
    columns = (rows.kind.codes, rows.group.codes, rows.ranks, rows.at_least, power, rows.transport.codes)
    kind = alike(*(column[chosen] for column in columns))
    first = chosen[first_rows(kind, int(kind.max()) + 1)]
    members = np.split(chosen[np.argsort(kind, kind="stable")], np.cumsum(np.bincount(kind))[:-1])
    found = [_rate(rows, int(at), mine, least, most, class_text(int(power[at])))
             for at, mine in zip(first, members, strict=True)]  # fmt: skip
    return sorted(found, key=lambda one: (one.bytes is None, -one.time_ns[1]))


def _joined(columns: list[Any]) -> Any:
    return Labels.concat(columns) if isinstance(columns[0], Labels) else np.concatenate(columns)


def _rate(rows: _Rows, at: int, mine: I64, least: I64, most: I64, size: str | None) -> CollectiveRate:
    """Sum up operations that are alike, of which ``at`` is one."""
    time = int(least[mine].sum()), int(most[mine].sum())
    whole, bus = float(rows.size[mine].sum()), float(rows.bus[mine].sum())  # NaN where one is not known
    busy, cut = float(rows.busy[mine].sum()), rows.cut[mine]
    transport = rows.transport[at]
    return CollectiveRate(
        kind=rows.kind[at] or "",
        group=rows.group[at],
        ranks=int(rows.ranks[at]) or None,
        at_least=bool(rows.at_least[at]),
        size_class=size,
        transport=transport,
        operations=len(mine),
        bytes=None if np.isnan(whole) else round(whole),
        by_elements=bool(rows.by_elements[mine].all()),
        time_ns=time,
        algorithm_gb_per_s=_over(whole, time),
        bus_gb_per_s=_over(bus, time),
        link_gb_per_s=float(rows.moved[mine].sum()) / busy if busy > 0 else None,
        links=int(rows.links[mine].max()) or None,
        reference_gb_per_s=REFERENCE.get((transport or "").upper()),
        unaligned=int(np.count_nonzero(rows.odd[mine])) if cut.any() else None,
    )


def _over(moved: float, time: tuple[int, int]) -> tuple[float, float | None] | None:
    """Return bytes over ns, which are GB/s, at least and at most: no most where no time is certain."""
    return None if np.isnan(moved) else (moved / time[1], moved / time[0] if time[0] else None)


def _rows(rank: RankSummary, unit: int) -> _Rows:
    operations, cut_into = rank.operations, rank.bandwidth
    count = len(operations)
    kinds, kind = operations.type.names, operations.type

    def of(names: Sequence[str]) -> Mask:
        return kind.flag([name in names for name in kinds])

    known = {group.id: (len(set(group.ranks)) or group.least, not group.ranks) for group in rank.groups}
    told = [known.get(name, (0, False)) for name in operations.group.names] + [(0, False)]
    ranks = np.array([n for n, _ in told], np.int64)[operations.group.codes]
    at_least = np.array([least for _, least in told], np.bool_)[operations.group.codes] & (ranks > 0)
    called = {group.id: group.kind for group in rank.groups}
    group = Labels.of([*(called.get(name) for name in operations.group.names), None]).take(
        operations.group.codes.astype(np.int64)
    )
    ranks, at_least = np.where(of(_TWO) & (ranks != 1), 2, ranks), at_least & ~of(_TWO)

    carries = cut_into.bytes > 0
    used = cut_into.op[carries]
    moved, busy = (
        np.bincount(used, column[carries], count).astype(np.float64) for column in (cut_into.bytes, cut_into.ns)
    )
    names = cut_into.transport.names
    there = np.zeros((len(names), count), np.bool_)
    there[cut_into.transport.codes[carries], used] = True
    several = alike(*there) if len(names) else np.zeros(count, np.int64)
    first = first_rows(several, int(several.max(initial=-1)) + 1).tolist()
    texts = [" + ".join(name for name, own in zip(names, there[:, row], strict=True) if own) or None for row in first]
    transport = Labels.of(texts).take(several)

    many = np.maximum(ranks, 2).astype(np.float64)
    factor = np.full(count, np.nan)
    for name in kinds:
        if name in _FACTORS:
            np.copyto(factor, _FACTORS[name](many), where=of([name]))
    factor[(ranks == 0) & ~of(_ROOTED)] = np.nan  # of these it is the same however many ranks there are
    by_elements = (operations.bytes >= 0) & of(_BY_ELEMENTS) & ((ranks > 0) | ~of(_PARTS))
    size = np.where(by_elements, operations.bytes * np.where(of(_PARTS), ranks, 1), np.nan)
    single = (there.sum(axis=0) == 1) & ~of(_ROOTED)
    bus = np.where(by_elements, size * factor, np.where(single, moved, np.nan))
    size = np.where(by_elements, size, np.where(single, moved / factor, np.nan))

    beside = links_side_by_side(rank.links)
    way = alike(kind.codes, operations.group.codes, transport.codes)
    each = first_rows(way, int(way.max(initial=-1)) + 1).tolist()
    lanes = [beside.get((kind[i], operations.group[i], transport[i]), 0) for i in each]
    links = np.where(moved > 0, np.array(lanes, np.int64)[way], 0)
    told = (there.sum(axis=0) == 1) & ~transport.flag([name.upper() == WAITS for name in transport.names])
    packets = (cut_into.packet > 0) & (cut_into.count > 0)
    odd = packets & (cut_into.packet > unit) & (cut_into.packet % unit != 0)
    cut, unaligned = (np.bincount(cut_into.op[rows], minlength=count) > 0 for rows in (packets, odd))
    return _Rows(kind, group, ranks, at_least, size, bus, by_elements, moved, np.where(told, busy, 0.0), links,
                 transport, cut, unaligned)  # fmt: skip


def size_class(size: I64) -> I64:
    """Return k where 2^k ≤ size < 2^(k+1), -1 for sizes below one (not recorded)."""
    return np.where(size > 0, np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1, -1).astype(np.int64)


def class_text(power: int) -> str | None:
    """Render a size class, e.g. ``8–16 MiB``; None where sizes are not recorded."""
    if power < 0:
        return None
    unit, small = divmod(power, 10)
    name = ("B", "KiB", "MiB", "GiB", "TiB")[min(unit, 4)]
    return f"{2**small}–{2 ** (small + 1)} {name}"

"""Links between ranks: what went over each, how fast, and which are slower than their peers.

A row src→dst stands in the file of src, and of src alone: in the exporter's matrix of rank r (communication_matrix.json
of four ranks of one host) every row is ``r-peer``, none is ``peer-r``. It is what r itself moved. Who moves is not who
sends: there, pipeline stages report the bytes in operations that receive, so data ran from dst to src. Both rows of a
pair are therefore different transfers of one link: they add up, and the direction is not told. A row in the other
end's file counts only where src's own file is silent about it.

A link is judged by its peers: pairs of ranks, of any group, with the same transport, kind of operation and size of
operation. All links of one collective are held up by its slowest one, so pairs of one group may be slow together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.cluster.alike import class_text, medians_of_others, size_class
from npuperf.cluster.summary import RankSummary
from npuperf.documents.cluster import Link
from npuperf.model.communication import LinkUse, ProcessGroup
from npuperf.model.groups import alike
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.thresholds import Thresholds

#: GB/s that the vendor's tools compare with (msprof's number_constant.py, first generation); shown, never decisive.
_REFERENCE: Final = {"HCCS": 18.0, "HCCS_SW": 18.0, "PCIE": 20.0, "RDMA": 12.5}
#: Types in which two ranks are by themselves.
_PAIRWISE: Final = frozenset({"send", "receive", "batchSendRecv"})
#: By how much single operations may miss their total and still be all of it: files round to 3–6 decimals.
_ROUNDING: Final = 0.001


def judge_links(
    ranks: Sequence[RankSummary], step_ns: int, steps: int, thresholds: Thresholds, most: int = 1_000
) -> list[Link]:
    """Return the slow links between ranks, those that lose most first, then of the others the busiest.

    ``lost_ns`` adds both directions, as time does. ``most``: links to return, unless more are slow; all are judged.
    """
    uses = [_analysed(_uses(summary), summary) for summary in ranks]
    reporter = np.repeat(np.array([s.rank for s in ranks], np.int64), [len(u) for u in uses])
    use = _concat(uses)
    if not len(use):
        return []
    chosen = np.flatnonzero(_reported_once(use, reporter))
    use, reporter = _take(use, chosen), reporter[chosen]
    return _links(_take(use, np.flatnonzero(_counted_once(use, reporter))), step_ns * steps, thresholds, most)


def _links(use: LinkUse, window_ns: int, thresholds: Thresholds, most: int) -> list[Link]:
    """Sum rows by transport, kind, size class and pair, and hold each against its peers."""
    low, high = np.minimum(use.source, use.target), np.maximum(use.source, use.target)
    single = use.name.known()
    power = np.where(single, size_class(use.bytes), -1)
    row = alike(use.transport.codes, use.type.codes, power, low, high)
    _, first = np.unique(row, return_index=True)
    moved, spent = _sum(row, use.bytes), _sum(row, use.ns)
    rate = moved / spent
    usual = _usual(use, first, power, moved, rate, thresholds)
    lost = np.where(np.isnan(usual), 0.0, np.maximum(spent - moved / usual, 0)).astype(np.int64)
    slow = (rate < thresholds.transfer_ratio * usual) & (lost > thresholds.lost_share * window_ns)
    count = _counts(use, row, single)
    order = np.lexsort((high[first], low[first], -spent, -lost * slow))[: max(most, int(slow.sum()))]
    return [
        Link(
            ranks=(int(low[first[i]]), int(high[first[i]])),
            transport=use.transport[first[i]] or "",
            kind=use.type[first[i]] or "",
            size_class=class_text(int(power[first[i]])),
            count=int(count[i]) if count[i] >= 0 else None,
            bytes=int(moved[i]),
            time_ns=int(spent[i]),
            gb_per_s=float(rate[i]),
            peers_gb_per_s=None if np.isnan(usual[i]) else float(usual[i]),
            reference_gb_per_s=_REFERENCE.get((use.transport[first[i]] or "").upper()),
            slow=bool(slow[i]),
            lost_ns=int(lost[i]),
        )
        for i in order.tolist()
    ]


def _usual(use: LinkUse, first: I64, power: I64, moved: I64, rate: F64, thresholds: Thresholds) -> F64:
    """Return for each link the median GB/s of its peers, NaN where they are too few.

    Totals mix operations of all sizes: they are compared with totals that moved about as much.
    """
    amount = np.where(power[first] < 0, size_class(moved), -1)
    kind = alike(use.transport.codes[first], use.type.codes[first], power[first], amount)
    usual, others = medians_of_others(kind, rate, int(kind.max()) + 1)
    return np.where(others >= thresholds.peers_least, usual, np.nan)


def _counts(use: LinkUse, row: I64, single: Mask) -> I64:
    """Return how many operations each link had, -1 where a total without a count is among them."""
    count = np.where(single, 1, use.count)
    unknown = np.bincount(row, weights=count < 0) > 0
    return np.where(unknown, -1, _sum(row, np.maximum(count, 0)))


def _sum(row: I64, values: I64) -> I64:
    total = np.zeros(int(row.max()) + 1, np.int64)
    np.add.at(total, row, values)
    return total


def _reported_once(use: LinkUse, reporter: I64) -> Mask:
    """Drop what the other end says about transfers that their own rank reports."""
    transfer = alike(use.type.codes, use.group.codes, use.transport.codes, use.source, use.target)
    own = use.source == reporter
    silent = np.bincount(transfer, weights=own) == 0
    kept: Mask = own | silent[transfer]
    return kept


def _counted_once(use: LinkUse, reporter: I64) -> Mask:
    """Choose between totals and single operations: those, if they are the whole total, else the total.

    Files with totals name only the best, middle and worst operations, one of them several times where there are few.
    """
    total = ~use.name.known()
    link = alike(reporter, use.step, use.type.codes, use.group.codes, use.transport.codes, use.source, use.target)
    single = ~total & _first_of(alike(link, use.name.codes))
    whole = np.bincount(link, weights=use.bytes * total)
    parts = np.bincount(link, weights=use.bytes * single, minlength=len(whole))
    by_parts = parts >= (1 - _ROUNDING) * whole
    return np.where(by_parts[link], single, total)


def _first_of(number: I64) -> Mask:
    mask = np.zeros(len(number), np.bool_)
    mask[np.unique(number, return_index=True)[1]] = True
    return mask


def _analysed(use: LinkUse, summary: RankSummary) -> LinkUse:
    """Return the rows of the analysed steps, without what has no time, no bytes or no two known ends."""
    real = (use.bytes > 0) & (use.ns > 0) & (use.source >= 0) & (use.target >= 0) & (use.source != use.target)
    here = (use.step < 0) | np.isin(use.step, summary.step_number) | (len(summary.step_number) == 0)
    return _take(use, np.flatnonzero(real & here))


def _uses(summary: RankSummary) -> LinkUse:
    """Return what a rank says about its links; else, what its operations with one single partner moved."""
    return summary.links if len(summary.links) else _between_two(summary)


def _between_two(summary: RankSummary) -> LinkUse:
    """Take operations between two ranks as uses of their link: no other link can have carried them."""
    moved, operations = summary.bandwidth, summary.operations
    if not len(moved):
        return LinkUse.empty()
    row = alike(moved.op, moved.transport.codes)
    first = np.unique(row, return_index=True)[1]
    op = moved.op[first]
    return LinkUse(
        step=operations.step[op],
        type=operations.type.take(op),
        group=operations.group.take(op),
        transport=moved.transport.take(first),
        source=np.full(len(op), summary.rank, np.int64),
        target=_partners(summary)[op],
        bytes=_sum(row, moved.bytes),
        ns=_sum(row, moved.ns),
        count=np.ones(len(op), np.int64),
        # The row's number stands for its name: names may be missing, or come twice.
        name=Labels(np.arange(len(op), dtype=np.int32), tuple(f"{summary.rank}:{i}" for i in op.tolist())),
    )


def _partners(summary: RankSummary) -> I64:
    """Return the only other rank of each operation, -1 where there are more or it is not known."""
    by_group = {g.id: _other(g, summary.rank) for g in summary.groups}
    names = summary.operations.group.names
    other = np.array([*(by_group.get(n, -1) for n in names), -1], np.int64)[summary.operations.group.codes]
    return np.where(summary.operations.peer >= 0, summary.operations.peer, other)


def _other(group: ProcessGroup, rank: int) -> int:
    others = set(group.ranks) - {rank}
    return others.pop() if len(others) == 1 and rank in group.ranks else -1


def _take(use: LinkUse, index: I64) -> LinkUse:
    new: dict[str, Any] = {}
    for name in use.__struct_fields__:
        column = getattr(use, name)
        new[name] = column.take(index) if isinstance(column, Labels) else column[index]
    return LinkUse(**new)


def _concat(uses: Sequence[LinkUse]) -> LinkUse:
    if not uses:
        return LinkUse.empty()
    new: dict[str, Any] = {}
    for name in LinkUse.__struct_fields__:
        parts = [getattr(use, name) for use in uses]
        new[name] = Labels.concat(parts) if isinstance(parts[0], Labels) else np.concatenate(parts)
    return LinkUse(**new)


class SlowLink(Struct, frozen=True):
    """A pair of ranks whose link is slower than its peers: by type, the part of its time that they would take."""

    ranks: tuple[int, int]
    factors: dict[str, float]
    lost_ns: int


def slow_links(links: Sequence[Link], groups: Sequence[frozenset[int]]) -> list[SlowLink]:
    """Sum up slow links by pair of ranks, the costliest first. ``groups``: the ranks of each process group."""
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for link in links:
        if link.slow:
            pairs[link.ranks] += link.lost_ns
    found = [SlowLink(ranks, peer_factors(links, ranks, groups), lost) for ranks, lost in pairs.items()]
    return sorted(found, key=lambda link: -link.lost_ns)


def peer_factors(links: Sequence[Link], ranks: tuple[int, int], groups: Sequence[frozenset[int]]) -> dict[str, float]:
    """Return by type which part of its time a pair's operations would take with the link at the pace of its peers.

    A collective is as slow as its slowest link: the others of its group bound what is gained. Empty without peers.
    """
    pair = frozenset(ranks)
    around = frozenset[int]().union(*(g for g in groups if pair <= g))
    factors = {}
    for kind in {k.kind for k in links if frozenset(k.ranks) == pair and k.peers_gb_per_s}:
        own = [k for k in links if k.kind == kind and frozenset(k.ranks) == pair and k.peers_gb_per_s]
        now = max(sum(k.time_ns for k in own), 1)
        then = sum(k.bytes / k.peers_gb_per_s for k in own if k.peers_gb_per_s)
        others: dict[tuple[int, int], int] = defaultdict(int)
        for link in links:
            if link.kind == kind and frozenset(link.ranks) != pair and frozenset(link.ranks) <= around:
                others[link.ranks] += link.time_ns
        slowest = max(others.values(), default=0) if kind not in _PAIRWISE else 0
        factors[kind] = min(max(then, slowest) / now, 1.0)
    return factors

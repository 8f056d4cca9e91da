"""Links between ranks: what went over each, how fast, which are slower than their peers; and what packets lose.

A row src→dst stands in the file of src, and of src alone: in the exporter's matrix of rank r (communication_matrix.json
of four ranks of one host) every row is ``r-peer``, none is ``peer-r``. It is what r itself moved. Who moves is not who
sends: there, pipeline stages report the bytes in operations that receive, so data ran from dst to src. Both rows of a
pair are therefore different transfers of one link: they add up, and the direction is not told. A row in the other
end's file counts only where src's own file is silent about it. Time that the link loses does not add up so: both ways
of a collective are used at once.

A link is judged by its peers: pairs of ranks, of any group, with the same transport, kind of operation and size of
operation; where these are too few to tell what is usual, by those between the same machines, even a single one. All
links of one collective are held up by its slowest one, so pairs of one group may be slow together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.device.collective_rates import class_text, size_class
from npuperf.device.operators import costliest
from npuperf.device.rank_summary import RankSummary
from npuperf.model.communication import REFERENCE, LinkUse
from npuperf.model.groups import alike, distinct, first_rows, medians, medians_of_others, sums_of
from npuperf.model.job_result import Link
from npuperf.model.labels import F64, I64, Columns, Labels, Mask
from npuperf.model.thresholds import Thresholds

#: Types in which two ranks are by themselves.
_PAIRWISE: Final = frozenset({"send", "receive", "batchSendRecv"})
#: By how much single operations may miss their total and still be all of it: files round to 3–6 decimals.
_ROUNDING: Final = 0.001


class LinkPaces(Columns, frozen=True):
    """What one way of a link took in operations of one type and group, and what it would take as fast as its peers.

    ``now`` and ``then`` in ns of the analysed steps, the same where it has no peers (``judged`` is false). ``type`` and
    ``group`` as in :class:`npuperf.model.communication.Operations`.
    """

    type: Labels
    group: Labels
    source: I64
    target: I64
    now: I64
    then: F64
    judged: Mask


class JudgedLinks(Struct, frozen=True):
    """The links of a job as the document has them, and by group and way what they are held up by."""

    links: list[Link]
    paces: LinkPaces


def judge_links(
    ranks: Sequence[RankSummary], step_ns: int, steps: int, thresholds: Thresholds, most: int = 1_000
) -> JudgedLinks:
    """Return the slow links between ranks, those that lose most first, then of the others the busiest.

    ``most``: links to return, unless more are slow; all are judged.
    """
    use = _each_transfer_once(ranks)
    if not len(use):
        return JudgedLinks([], LinkPaces.empty())
    low, high = np.minimum(use.source, use.target), np.maximum(use.source, use.target)
    single = use.name.known()
    power = np.where(single, size_class(use.bytes), -1)
    row = alike(use.transport.codes, use.type.codes, power, low, high)
    links = int(row.max()) + 1
    first = first_rows(row, links)
    low, high, power = low[first], high[first], power[first]
    moved, spent = sums_of(row, use.bytes, links), sums_of(row, use.ns, links)
    rate = moved / spent
    # Peers: totals mix operations of all sizes, so they are compared with totals that moved about as much.
    # Where a power of two parts those that did, classes half a power further on hold them together.
    usual = np.full(links, np.nan)
    for further in (1.0, np.sqrt(2)):
        amount = np.where(power < 0, size_class((moved * further).astype(np.int64)), -1)
        kind = alike(use.transport.codes[first], use.type.codes[first], power, amount)
        median, others = medians_of_others(kind, rate, int(kind.max()) + 1)
        usual = np.where(np.isnan(usual) & (others >= thresholds.peers_least), median, usual)
    outside = use.transport.take(first).flag([name.upper() == "RDMA" for name in use.transport.names])
    between = _between(ranks, low, high, outside)
    kind = alike(use.transport.codes[first], use.type.codes[first], power, amount, between)
    median, others = medians_of_others(kind, rate, int(kind.max()) + 1)
    usual = np.where(np.isnan(usual) & (others > 0) & (between >= 0), median, usual)
    known = ~np.isnan(usual[row])
    then = np.where(known, use.bytes / usual[row], use.ns)
    lost = _lost(ranks, use, row, then)
    slow = (rate < thresholds.transfer_ratio * usual) & (lost > thresholds.lost_share * step_ns * steps)
    count = np.where(single, 1, use.count)  # -1: a total without a count
    counted = np.bincount(row, weights=count < 0) == 0
    count = sums_of(row, np.maximum(count, 0), links)
    order = np.lexsort((high, low, -spent, -lost * slow))[: max(most, int(slow.sum()))]
    found = [
        Link(
            ranks=(int(low[i]), int(high[i])),
            transport=use.transport[first[i]] or "",
            kind=use.type[first[i]] or "",
            size_class=class_text(int(power[i])),
            count=int(count[i]) if counted[i] else None,
            bytes=int(moved[i]),
            time_ns=int(spent[i]),
            gb_per_s=float(rate[i]),
            peers_gb_per_s=None if np.isnan(usual[i]) else float(usual[i]),
            reference_gb_per_s=REFERENCE.get((use.transport[first[i]] or "").upper()),
            slow=bool(slow[i]),
            lost_ns=int(lost[i]),
        )
        for i in order.tolist()
    ]
    return JudgedLinks(found, _paces(use, then, known))


def machines(ranks: Sequence[RankSummary]) -> list[str | None]:
    """Return on which machine each rank is, None where that is not recorded."""
    hosts = [rank.host for rank in ranks]
    if None in hosts and len({rank.device for rank in ranks}) == len(ranks):  # numbers of devices are of one machine
        return [""] * len(ranks)
    return [*hosts]


def _between(ranks: Sequence[RankSummary], low: I64, high: I64, outside: Mask) -> I64:
    """Number the pairs of machines that links from ``low`` to ``high`` are between; -1 where that is not known.

    Where machines are not recorded, ranks are on one that links join which do not lead ``outside``, if their devices
    have different numbers.
    """
    names, place = machines(ranks), {rank.rank: i for i, rank in enumerate(ranks)}
    one, two = (np.array([place.get(end, -1) for end in ends.tolist()], np.int64) for ends in (low, high))
    there = (one >= 0) & (two >= 0)
    if None not in names:
        of = np.unique(np.array(names), return_inverse=True)[1].astype(np.int64)
    else:
        of, before = np.arange(len(ranks)), np.empty(0, np.int64)
        joined = there & ~outside
        while not np.array_equal(of, before):
            before = of.copy()
            least = np.minimum(of[one[joined]], of[two[joined]])
            np.minimum.at(of, one[joined], least)
            np.minimum.at(of, two[joined], least)
        device = np.array([rank.device for rank in ranks])
        twice = np.unique(np.stack([of, device]), axis=1, return_counts=True)
        of = np.where(np.isin(of, twice[0][0, twice[1] > 1]), -1, of)
    ends = np.sort(np.stack([of[one], of[two]]), axis=0)
    return np.where(there & (ends[0] >= 0), ends[0] * len(ranks) + ends[1], -1)


def _paces(use: LinkUse, then: F64, known: Mask) -> LinkPaces:
    """Sum up uses of links by type, group and way. ``then``: what each takes as fast as its peers, ns, where known."""
    way = alike(use.type.codes, use.group.codes, use.source, use.target)
    size = int(way.max()) + 1
    first = first_rows(way, size)
    return LinkPaces(
        type=use.type.take(first),
        group=use.group.take(first),
        source=use.source[first],
        target=use.target[first],
        now=sums_of(way, use.ns, size),
        then=np.bincount(way, weights=then).astype(np.float64),
        judged=np.bincount(way, weights=known) > 0,
    )


def _lost(ranks: Sequence[RankSummary], use: LinkUse, row: I64, then: F64) -> I64:
    """Return for how long each link (``row`` of each use) held its operations up, ns.

    Both ways of a collective are used at once, so the worse one counts; sends and receives follow one another. What
    is exchanged in one batch may be either: there the operations are counted.
    """
    way = alike(row, use.source < use.target)
    size = int(way.max()) + 1
    first = first_rows(way, size)
    beyond = np.maximum(np.bincount(way, weights=use.ns - then, minlength=size), 0.0)
    links = int(row.max()) + 1
    both, worse = np.bincount(row[first], weights=beyond, minlength=links), np.zeros(links)
    np.maximum.at(worse, row[first], beyond)
    of_link = first_rows(row, links)
    apart = use.type.take(of_link).flag([name in _PAIRWISE for name in use.type.names])
    lost = np.where(apart, both, worse)
    by_rank = {rank.rank: rank for rank in ranks}
    batched = use.type.take(of_link).flag([name == "batchSendRecv" for name in use.type.names])
    for i in np.flatnonzero(batched & (both > worse)).tolist():
        ends = int(use.source[of_link[i]]), int(use.target[of_link[i]])
        lost[i] = max(both[i] * _once(by_rank, ends), worse[i])
    return lost.astype(np.int64)


def _once(ranks: Mapping[int, RankSummary], ends: tuple[int, int]) -> float:
    """Return which part of what two ranks report of their exchanges is left if each exchange counts once.

    One in which both receive is reported by both.
    """
    exchanges = reports = 0
    for own, peer in (ends, ends[::-1]):
        if own in ranks:
            done = ranks[own].operations
            mine = done.type.flag([name == "batchSendRecv" for name in done.type.names]) & (done.peer == peer)
            moved = ranks[own].bandwidth
            reported = np.bincount(moved.op[moved.bytes > 0], minlength=len(done)) > 0
            exchanges, reports = max(exchanges, int(mine.sum())), reports + int((mine & reported).sum())
    return exchanges / reports if 0 < exchanges < reports else 1.0


def _each_transfer_once(ranks: Sequence[RankSummary]) -> LinkUse:
    """Return what went over links in the analysed steps, without what has no time, no bytes or no two known ends.

    What the other end says about transfers is dropped where their own rank reports them. Of totals and single
    operations, those count if they are the whole total, else the total: files with totals name only the best, middle
    and worst operations, one of them several times where there are few.
    """
    parts, own_rank = [], []
    for rank in ranks:
        told: set[str | None] = set()  # groups of which the files name links
        for use in (rank.links, _between_two(rank)):
            real = (use.bytes > 0) & (use.ns > 0) & (use.source >= 0) & (use.target >= 0) & (use.source != use.target)
            real &= analysed(use.step, rank) & ~use.group.flag([name in told for name in use.group.names])
            parts.append(use.filter(real))
            own_rank.append(rank.rank)
            told.update(parts[-1].group.texts())
    reporter = np.repeat(np.array(own_rank, np.int64), [len(part) for part in parts])
    if not len(reporter):
        return LinkUse.empty()
    columns: dict[str, Any] = {}
    for name in LinkUse.__struct_fields__:
        pieces = [getattr(part, name) for part in parts]
        columns[name] = Labels.concat(pieces) if isinstance(pieces[0], Labels) else np.concatenate(pieces)
    use = LinkUse(**columns)
    transfer = alike(use.type.codes, use.group.codes, use.transport.codes, use.source, use.target)
    own = use.source == reporter
    kept = np.flatnonzero(own | (np.bincount(transfer, weights=own) == 0)[transfer])
    use, reporter = use.take(kept), reporter[kept]
    total = ~use.name.known()
    link = alike(reporter, use.step, use.type.codes, use.group.codes, use.transport.codes, use.source, use.target)
    first = np.zeros(len(use), np.bool_)
    first[np.unique(alike(link, use.name.codes), return_index=True)[1]] = True
    single = ~total & first
    whole = np.bincount(link, weights=use.bytes * total)
    by_parts = np.bincount(link, weights=use.bytes * single, minlength=len(whole)) >= (1 - _ROUNDING) * whole
    return use.filter(np.where(by_parts[link], single, total))


def _between_two(summary: RankSummary) -> LinkUse:
    """Take a rank's operations with one single partner as uses of their link: no other link can have carried them."""
    moved, operations = summary.bandwidth, summary.operations
    if not len(moved):
        return LinkUse.empty()
    row = alike(moved.op, moved.transport.codes)
    size = int(row.max()) + 1
    first = first_rows(row, size)
    op = moved.op[first]
    partner = {g.id: sum(g.ranks) - summary.rank for g in summary.groups
               if len({*g.ranks}) == len(g.ranks) == 2 and summary.rank in g.ranks}  # fmt: skip
    names = operations.group.names
    of_group = np.array([*(partner.get(name, -1) for name in names), -1], np.int64)[operations.group.codes]
    return LinkUse(
        step=operations.step[op],
        type=operations.type.take(op),
        group=operations.group.take(op),
        transport=moved.transport.take(first),
        source=np.full(len(op), summary.rank, np.int64),
        target=np.where(operations.peer >= 0, operations.peer, of_group)[op],
        bytes=sums_of(row, moved.bytes, size),
        ns=sums_of(row, moved.ns, size),
        count=np.ones(len(op), np.int64),
        # The row's number stands for its name: names may be missing, or come twice.
        name=Labels(np.arange(len(op), dtype=np.int32), tuple(f"{summary.rank}:{i}" for i in op.tolist())),
    )


def analysed(step: I64, rank: RankSummary) -> Mask:
    """Tell which rows are of the rank's analysed steps, by the step of each."""
    here: Mask = (step < 0) | np.isin(step, rank.step_number) | (len(rank.step_number) == 0)
    return here


# -- Links that are slower than their peers, by pair of ranks.


#: By type and group of operations, None where files do not name it: how long a link holds them up, and would as fast as
#: its peers (ns of all steps).
HoldsUp = dict[tuple[str, str | None], tuple[float, float]]


class SlowLink(Struct, frozen=True):
    """A pair of ranks whose link is slower than its peers, and how long it holds operations up."""

    ranks: tuple[int, int]
    holds_up: HoldsUp
    lost_ns: int


def slow_links(judged: JudgedLinks) -> list[SlowLink]:
    """Sum up slow links by pair of ranks, the costliest first."""
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for link in judged.links:
        if link.slow:
            pairs[link.ranks] += link.lost_ns
    found = [SlowLink(ranks, held_by(judged.paces, ranks), lost) for ranks, lost in pairs.items()]
    return sorted(found, key=lambda link: -link.lost_ns)


def held_by(paces: LinkPaces, ranks: tuple[int, int]) -> HoldsUp:
    """Return how long the link of a pair holds operations up, now and at the pace of its peers.

    A collective is as slow as its slowest link: what the others of its own group take in it bounds what is gained.
    Empty where the link has no peers.
    """
    pair = np.isin(paces.source, ranks) & np.isin(paces.target, ranks)
    kind = alike(paces.type.codes, paces.group.codes)
    found: HoldsUp = {}
    for k in distinct(kind[pair & paces.judged]).tolist():
        own, others = np.flatnonzero((kind == k) & pair), (kind == k) & ~pair
        name, group = paces.type[own[0]] or "", paces.group[own[0]]
        if name in _PAIRWISE:
            now, then = float(paces.now[own].sum()), float(paces.then[own].sum())
        else:
            now = float(paces.now[own].max())
            then = max(float(paces.then[own].max()), float(paces.now[others].max(initial=0)))
        found[name, group] = now, min(then, now)
    return found


def held_in(paces: LinkPaces, group: str, types: Container[str]) -> HoldsUp:
    """Return how long the slowest link of a group holds its operations of some types up, now and at its peers' pace."""
    found: HoldsUp = {}
    mine = paces.group.flag([name == group for name in paces.group.names])
    for name in paces.type.names:
        own = mine & paces.type.flag([other == name for other in paces.type.names])
        if name in types and own.any():
            now = float(paces.now[own].max())
            found[name, group] = now, min(float(paces.then[own].max()), now)
    return found


# -- What transfers lose by how they are cut, and by what goes wrong on their way: raw material of findings.
#
# Each cost is that of the worst rank, which stands first in ``ranks``: ranks lose at the same time, so their losses do
# not add up. Sums are over the analysed steps.

What = Literal["small", "unaligned", "retry", "relay", "slowed_compute"]
#: A packet that takes less is shorter than its own latency (1.05 µs, measured over HCCS): its rate is a clock's tick.
_LATENCY: Final = 1_000
#: Operations that stand in the evidence.
_SHOWN: Final = 5


class PacketCost(Struct, frozen=True):
    """What one cause costs the worst of ``ranks`` in one kind of operation over one transport.

    ``count``: packets, operations or kernels concerned, ``bytes`` and ``time_ns`` of them. ``lost_ns``: beyond what
    alike ones take that the cause spares; None where there are too few of those. ``by_rank``: that of each rank, in
    the order of ``ranks``; ``evidence``: by what it was judged.
    """

    what: What
    ranks: tuple[int, ...]
    transport: str | None
    kind: str | None
    count: int
    bytes: int
    time_ns: int
    lost_ns: int | None
    by_rank: tuple[int | None, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)


def packet_costs(ranks: Sequence[RankSummary], step_ns: int, steps: int, thresholds: Thresholds) -> list[PacketCost]:
    """Return what costs more than a notable part of a step, and every retry and relay; the costliest first.

    What goes wrong is worth telling at any price; where no loss is known, all of the time stands for it.
    """
    own: list[PacketCost] = []
    for rank in ranks:
        own += _by_size(rank, thresholds)
        own += _flagged("retry", rank, rank.operations.retry, thresholds)
        own += _flagged("relay", rank, rank.operations.relay, thresholds)
        if rank.beside.slowed:  # kernels that communication slows down; the kind is the costliest one
            own.append(
                PacketCost(
                    what="slowed_compute",
                    ranks=(rank.rank,),
                    transport=None,
                    kind=rank.beside.slowed[0].type,
                    count=sum(row.beside for row in rank.beside.slowed),
                    bytes=0,
                    time_ns=sum(row.total_ns for row in rank.beside.slowed),
                    lost_ns=sum(row.lost_ns for row in rank.beside.slowed),
                    evidence={"types": costliest(rank.beside.slowed)},
                )
            )
    least = thresholds.lost_share * step_ns * steps
    worst: dict[tuple[str, str | None, str | None], list[PacketCost]] = {}
    for cost in sorted(own, key=lambda c: (-1 if c.lost_ns is None else -c.lost_ns, -c.time_ns, c.ranks[0])):
        if cost.what in ("retry", "relay") or (cost.time_ns if cost.lost_ns is None else cost.lost_ns) > least:
            kind = None if cost.what == "slowed_compute" else cost.kind
            worst.setdefault((cost.what, cost.transport, kind), []).append(cost)
    return [
        replace(costs[0], ranks=tuple(c.ranks[0] for c in costs), by_rank=tuple(c.lost_ns for c in costs))
        for costs in worst.values()
    ]


def _by_size(rank: RankSummary, thresholds: Thresholds) -> list[PacketCost]:
    """Hold small packets against the size class that the rank's own transport moves fastest, and packets of odd sizes
    against even ones of the same transport, kind of operation and size class.
    """
    rows, operations = rank.bandwidth, rank.operations
    here = analysed(operations.step, rank)[rows.op] & (rows.packet > 0) & (rows.count > 0) & (rows.ns > 0)
    index = np.flatnonzero(here)
    if not len(index):
        return []
    op, size, count, moved, ns = (c[index] for c in (rows.op, rows.packet, rows.count, rows.bytes, rows.ns))
    transport, kind = rows.transport.take(index), operations.type.take(op)
    rate, power = moved / ns, size_class(size)

    def summed(
        what: What, chosen: Mask, lost: F64, yardstick: Callable[[int], dict[str, float | str | None]]
    ) -> list[PacketCost]:
        """Sum the chosen rows by transport and kind; ``lost`` is NaN where it is not known."""
        rows, found = np.flatnonzero(chosen), []
        key = alike(transport.codes[rows], kind.codes[rows])
        for k in range(int(key.max(initial=-1)) + 1):
            mine = rows[key == k]
            known = lost[mine][~np.isnan(lost[mine])]
            carried, spent = int(moved[mine].sum()), int(ns[mine].sum())
            cost = PacketCost(
                what=what,
                ranks=(rank.rank,),
                transport=transport[mine[0]],
                kind=kind[mine[0]],
                count=int(count[mine].sum()),
                bytes=carried,
                time_ns=spent,
                lost_ns=max(int(known.sum()), 0) if len(known) else None,
                evidence={"gb_per_s": carried / spent, **yardstick(int(transport.codes[mine[0]]))},
            )
            found.append(cost)
        return found

    # The fastest size class of each transport, and which it is; the last place is that of none.
    row = alike(transport.codes, power)
    of_class, spent, packets = (np.bincount(row, weights=c) for c in (moved, ns, count))
    pace = np.where(spent >= _LATENCY * packets, of_class / spent, np.nan)
    first = np.unique(row, return_index=True)[1]
    best, best_class = np.full(len(transport.names) + 1, np.nan), np.full(len(transport.names) + 1, -1)
    for i in np.argsort(pace).tolist():  # NaN last, the fastest before it
        if not np.isnan(pace[i]):
            best[transport.codes[first[i]]], best_class[transport.codes[first[i]]] = pace[i], power[first[i]]
    usual = best[transport.codes]
    small = (size < thresholds.small_packet_bytes) & (rate < thresholds.transfer_ratio * usual)
    lost = np.where(small, ns - moved / np.where(small, usual, 1.0), 0.0)
    # Links side by side lose at the same time: an operation cannot lose more than its own length.
    of_op = alike(op, transport.codes)
    lost *= np.minimum(1.0, operations.stay[op] / np.maximum(np.bincount(of_op, weights=lost)[of_op], 1.0))
    found = summed("small", small, lost, lambda code: {
        "best_gb_per_s": float(best[code]), "best_size": class_text(int(best_class[code])),
    })  # fmt: skip

    unit = thresholds.packet_alignment_bytes
    odd, even = (size % unit != 0) & (size > unit), size % unit == 0
    if not odd.any():
        return found
    usual = _usual(alike(transport.codes, kind.codes, power), rate, even, thresholds.peers_least)
    return found + summed("unaligned", odd, ns - moved / usual, lambda _: {"aligned_to": unit})


def _flagged(what: Literal["retry", "relay"], rank: RankSummary, flag: I64, thresholds: Thresholds) -> list[PacketCost]:
    """Hold operations that were repeated, or went a detour, against alike ones that were not."""
    operations = rank.operations
    here = analysed(operations.step, rank)
    odd, even = here & (flag == 1), here & (flag == 0)
    if not odd.any():
        return []
    moved = sums_of(rank.bandwidth.op, rank.bandwidth.bytes, len(operations))
    key = alike(operations.type.codes, operations.group.codes, size_class(moved))
    beyond = np.maximum(operations.stay - _usual(key, operations.stay, even, thresholds.peers_least), 0)  # NaN stays
    found = []
    for code in distinct(operations.type.codes[odd]).tolist():
        rows = np.flatnonzero(odd & (operations.type.codes == code))
        known = beyond[rows][~np.isnan(beyond[rows])]
        longest = rows[np.argsort(-operations.stay[rows], kind="stable")][:_SHOWN]
        cost = PacketCost(
            what=what,
            ranks=(rank.rank,),
            transport=None,
            kind=operations.type[rows[0]],
            count=len(rows),
            bytes=int(moved[rows].sum()),
            time_ns=int(operations.stay[rows].sum()),
            lost_ns=int(known.sum()) if len(known) else None,
            evidence={"operations": operations.name.take(longest).texts()},
        )
        found.append(cost)
    return found


def _usual(key: I64, values: F64 | I64, chosen: Mask, least: int) -> F64:
    """Return for each row the median of the chosen rows of its key, NaN where these are fewer than ``least``."""
    kinds = int(key.max()) + 1
    usual = medians(key[chosen], values[chosen], kinds)
    usual[np.bincount(key[chosen], minlength=kinds) < least] = np.nan
    return usual[key]

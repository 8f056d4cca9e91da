"""From one device's profile to its summary: where its own work was blocked by communication, and what it did else."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.partition import Gaps
from npuperf.device.slowed import Slowed, slowed
from npuperf.device.study import Study
from npuperf.model.communication import Bandwidth, Communication, LinkUse, Operations, ProcessGroup
from npuperf.model.device import DeviceProfile, VendorStep
from npuperf.model.groups import alike, distinct, last_largest, sums_of
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.result import Bound, CommunicationBounds, Partition, Phase
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds


class LocalTime(Struct, frozen=True):
    """Stretches of a rank's own time between communication, and what fills them (ns, a row each).

    ``length`` = compute + host + other, host being waits for the host and launches under way.
    """

    length: I64
    compute: I64
    host: I64

    @classmethod
    def spread(cls, length: I64, share: float) -> LocalTime:
        """Return stretches of which the same share is compute, and no wait is known."""
        return cls(length, np.rint(length * share).astype(np.int64), np.zeros(len(length), np.int64))

    def __len__(self) -> int:
        return len(self.length)


class OperatorTime(Struct, frozen=True):
    """Kernels of one type and shape on a rank, all steps together."""

    type: str
    shapes: str | None
    count: int
    total_ns: int
    where: str | None = None


class ExpertTimes(Struct, frozen=True):
    """Grouped matmuls of a rank in order of time: ns, and tokens from the input shapes (-1 not recorded)."""

    start: I64
    ns: I64
    tokens: I64


class RankSummary(Struct, frozen=True):
    """What one device of one rank tells the job. Times are epoch ns of the device's own clock.

    The rank's own track of work is blocked in ``blocks``: stretches of exposed communication after which work went
    on; block j ends (``release``) with the end of operation ``until[j]``. Between blocks, the track advances by
    itself: ``to_block[j]`` is the local time from release j-1 (or ``begin``) to block j, ``tail`` the one from the
    last release to ``end``.
    Operation k arrives ``to_start[k]`` after release ``base[k]`` (-1: after ``begin``) or, where ``after[k]`` ≥ 0,
    ``to_start[k].length`` after the end of operation ``after[k]``.

    ``compute_before`` and ``host_before``: per operation, what the track spent so between ``begin`` and its start.

    ``exposed_*``: stretches of exposed communication, disjoint and in order; ``exposed_op`` is the operation that
    began first, which owns them.
    ``step_start``/``step_end``: the steps that ``step_number`` names.
    ``span_ns``: the exporter's length of the window, where there are no kernels and ``begin`` and ``end`` are those of
    the operations alone; else None. ``compute_ns``, ``host_ns``: totals of the window, None where files do not tell.
    """

    rank: int
    device: int
    source: str
    host: str | None
    begin: int
    end: int
    step_number: I64
    step_start: I64
    step_end: I64
    operations: Operations
    groups: tuple[ProcessGroup, ...]
    distributed: dict[str, int]
    exposed_op: I64
    exposed_start: I64
    exposed_end: I64
    until: I64
    block_start: I64
    to_block: LocalTime
    base: I64
    after: I64
    to_start: LocalTime
    compute_before: I64
    host_before: I64
    tail: LocalTime
    bandwidth: Bandwidth
    links: LinkUse
    compute_ns: int | None
    host_ns: int | None
    exposed_known: bool = True
    span_ns: int | None = None
    vendor_bubble_ns: int | None = None
    operators: tuple[OperatorTime, ...] = ()
    experts: ExpertTimes | None = None
    slowed: tuple[Slowed, ...] = ()
    where: str | None = None
    kineto: bool = False


# -- Experts: grouped matmuls whose ranks have different loads, so that all wait for the fullest one.

#: No dimension has more.
_DIGITS: Final = 18
_GROUPED: Final = re.compile(r"(aclnn)?groupedmatmul", re.IGNORECASE)


def expert_times(tasks: Tasks, types: Labels) -> ExpertTimes:
    """Return a device's grouped matmuls in order of start. ``types``: of the tasks, names where not recorded."""
    grouped = types.flag([bool(_GROUPED.match(name)) for name in types.names])
    rows = np.flatnonzero(grouped & (tasks.work == Work.COMPUTE))
    rows = rows[np.argsort(tasks.start[rows], kind="stable")]
    shapes = tasks.shapes
    tokens = np.array([*(_tokens(text) for text in shapes.names), -1], np.int64)[shapes.codes[rows]]
    return ExpertTimes(tasks.start[rows], tasks.dur[rows], tokens)


def _tokens(shapes: str) -> int:
    """Sum the first dimensions of all inputs but the last two, which are weights and group list; -1 unknown.

    The exporter's own reading (ep_load_balance): absent inputs, empty between semicolons, do not count.
    """
    inputs = [text.strip() for text in shapes.replace('"', "").split(";") if text.strip()]
    first = [text.split(",")[0].strip() for text in inputs[:-2]]
    return sum(map(int, first)) if first and all(f.isdecimal() and len(f) <= _DIGITS for f in first) else -1


#: An operation that begins so soon after another one of its group was queued behind it (ns).
_QUEUED: Final = 10_000
#: Times in files are rounded: what lies closer than this (ns) touches.
_ROUNDING: Final = 1_000
#: Operator types (with shapes) that are kept, the longest ones.
_OPERATORS: Final = 48
#: By how much all communication may differ from the exposed part and still count as not hidden at all.
_HIDDEN: Final = 0.001


def summarise(
    study: Study,
    tasks: Tasks,
    types: Labels,
    span: tuple[int, int],
    window: Partition,
    phases: list[Phase],
    bound: Bound,
    thresholds: Thresholds,
) -> RankSummary | None:
    """Reduce the window ``span`` of a device that has kernels; None where it has no communication.

    ``tasks``, ``types``, ``phases`` and ``bound`` are of the ``window``.
    """
    profile = study.profile
    inside = _inside(profile.communication.operations, span)
    if not inside.any() or profile.excerpt:
        return None
    operations = profile.communication.operations.filter(inside)
    compute, idle = study.timeline.compute, study.timeline.idle
    synced = (study.syncs.start - study.launches.skew, study.syncs.end - study.launches.skew)
    exposed = _minus(Intervals.union(operations.start, operations.end), compute)
    summary = _track(profile, operations, exposed, span, compute, _host(idle), _unblocked(exposed, idle, *synced))
    host_ns = window.host_wait_ns + window.launch_latency_ns
    known = bool(idle.known.any()) or not window.idle_ns
    shown = (study.steps.start < span[1]) & (study.steps.end > span[0])
    longest = max((p for p in phases if p.bound == bound), key=_length, default=None)
    return replace(
        summary,
        step_number=study.step_numbers[shown],
        step_start=study.steps.start[shown],
        step_end=study.steps.end[shown],
        bandwidth=profile.communication.bandwidth.of(inside),
        compute_ns=window.compute_ns,
        host_ns=host_ns if known else None,
        operators=_operators(study, tasks),
        experts=expert_times(tasks, types),
        slowed=slowed(tasks, types, thresholds)[:_OPERATORS],
        kineto=profile.kineto,
        where=longest.where if longest else None,
        vendor_bubble_ns=_bubble(profile.vendor_steps),
    )


def summarise_without_kernels(profile: DeviceProfile, step: int | None) -> RankSummary | None:
    """Reduce a device of which only its communication and the exporter's own split of the steps are known.

    Its compute time is spread evenly over the time between operations.
    """
    operations = profile.communication.operations
    inside = np.ones(len(operations), np.bool_) if step is None else operations.step == step
    if not inside.any():
        return None
    operations = operations.filter(inside)
    steps = [v for v in profile.vendor_steps if step in (None, v.step)]
    busy = Intervals.union(operations.start, operations.end)
    span = int(busy.start[0]), int(busy.end[-1])
    none = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    summary = _track(profile, operations, busy, span, none, none, np.zeros(len(busy), np.bool_))
    apart = bool(steps) and sum(v.comm_exposed for v in steps) >= (1 - _HIDDEN) * busy.total()
    numbers = sorted({int(s) for s in operations.step.tolist() if s >= 0})
    starts = [int(operations.start[operations.step == n].min()) for n in numbers]
    summary = replace(
        summary,
        step_number=np.array(numbers, np.int64),
        step_start=np.array(starts, np.int64),
        step_end=np.array([*starts[1:], span[1]][: len(starts)], np.int64),
        bandwidth=profile.communication.bandwidth.of(inside),
        compute_ns=sum(v.compute for v in steps) if steps else None,
        exposed_known=apart,
        span_ns=sum(v.span for v in steps) if steps else None,
        vendor_bubble_ns=_bubble(tuple(steps)),
    )
    return _spread(summary)


def extend(summary: RankSummary, tail: int) -> RankSummary:
    """Give a device without kernels its whole window: its last operation is as far from the end as its peers' is."""
    whole = summary.end - summary.begin
    if summary.span_ns is None or summary.span_ns <= whole:
        return summary
    tail = min(max(tail, 0), summary.span_ns - whole)
    lead = summary.span_ns - whole - tail
    first = np.where(np.arange(len(summary.to_block)) == 0, lead, 0)
    early = np.where((summary.base < 0) & (summary.after < 0), lead, 0)
    begin = summary.begin - lead
    return _spread(
        replace(
            summary,
            begin=begin,
            end=summary.end + tail,
            step_start=np.where(np.arange(len(summary.step_start)) == 0, begin, summary.step_start),
            step_end=np.where(np.arange(len(summary.step_end)) == len(summary.step_end) - 1, summary.end + tail,
                              summary.step_end),
            to_block=replace(summary.to_block, length=summary.to_block.length + first),
            to_start=replace(summary.to_start, length=summary.to_start.length + early),
            tail=replace(summary.tail, length=summary.tail.length + tail),
        )
    )  # fmt: skip


def filled_like(summary: RankSummary, peer: RankSummary) -> RankSummary:
    """Fill the stretches of a device without kernels as those of a peer with the same operations are filled.

    The whole is then scaled to the compute time that the exporter gives.
    """
    names = ("to_block", "to_start", "tail")
    total = summary.compute_ns
    if total is None or len(summary.operations) != len(peer.operations):
        return summary
    if not summary.exposed_known and peer.compute_ns:
        summary = _paced_like(summary, peer, total / peer.compute_ns)
    if any(len(getattr(summary, n)) != len(getattr(peer, n)) for n in names):
        return summary
    own: dict[str, LocalTime] = {n: getattr(summary, n) for n in names}
    like: dict[str, LocalTime] = {n: getattr(peer, n) for n in names}
    compute = {n: own[n].length * _share(like[n]) for n in names}
    scale = total / max(float(compute["to_block"].sum() + compute["tail"].sum()), 1.0)
    filled = {
        n: LocalTime(
            own[n].length, np.rint(np.minimum(compute[n] * scale, own[n].length)).astype(np.int64), own[n].host
        )
        for n in names
    }
    spent = np.concatenate([[0], np.cumsum(filled["to_block"].compute)])
    before = spent[np.where(summary.after < 0, summary.base + 1, summary.base + 2).clip(0, len(spent) - 1)]
    before = before + np.where(summary.after < 0, filled["to_start"].compute, 0)
    return replace(
        summary, to_block=filled["to_block"], to_start=filled["to_start"], tail=filled["tail"], compute_before=before
    )


def _paced_like(summary: RankSummary, peer: RankSummary, pace: float) -> RankSummary:
    """Lay out a device whose communication is partly hidden as a peer's: blocked by the same operations.

    When it came to each block is not recorded: its own time until then is the peer's, at its own ``pace``.
    """
    operations, until = summary.operations, peer.until
    release = operations.end[until]
    previous = np.concatenate([[summary.begin], release])[:-1].astype(np.int64)
    length = np.rint(peer.to_block.length * pace).astype(np.int64)
    block_start = np.clip(previous + length, previous, np.maximum(release, previous))
    since = np.where(peer.base >= 0, np.append(release, summary.begin)[peer.base], summary.begin)
    from_ = np.where(peer.after >= 0, operations.end[peer.after], since)
    last = int(release[-1]) if len(release) else summary.begin
    blocked = Intervals.union(block_start, release)
    busy = Intervals.union(operations.start, operations.end)
    owner, exposed = _owners(operations, _minus(busy, _complement(blocked, busy)))
    none = np.zeros(len(until), np.int64)
    start = np.maximum(operations.start - from_, 0)
    tail = np.array([max(summary.end - last, 0)], np.int64)
    return replace(
        summary,
        until=until,
        block_start=block_start,
        base=peer.base,
        after=peer.after,
        to_block=LocalTime(block_start - previous, none, none),
        to_start=LocalTime(start, np.zeros_like(start), np.zeros_like(start)),
        tail=LocalTime(tail, np.zeros_like(tail), np.zeros_like(tail)),
        exposed_op=owner,
        exposed_start=exposed.start,
        exposed_end=exposed.end,
    )


def _complement(these: Intervals, over: Intervals) -> Intervals:
    """Return what of the whole of ``over`` lies outside of ``these``."""
    return these.gaps(int(over.start[0]), int(over.end[-1])) if len(over) else over


def _share(local: LocalTime) -> F64:
    return np.asarray(local.compute / np.maximum(local.length, 1))


def _spread(summary: RankSummary) -> RankSummary:
    """Spread the compute time of a device without kernels evenly over the time between operations."""
    busy = Intervals.union(summary.operations.start, summary.operations.end)
    local = summary.end - summary.begin - busy.total()
    share = min(1.0, (summary.compute_ns or 0) / max(local, 1))
    before = summary.operations.start - summary.begin - busy.before(summary.operations.start)
    return replace(
        summary,
        to_block=LocalTime.spread(summary.to_block.length, share),
        to_start=LocalTime.spread(summary.to_start.length, share),
        tail=LocalTime.spread(summary.tail.length, share),
        compute_before=np.rint(share * before).astype(np.int64),
    )


def _length(phase: Phase) -> int:
    return phase.end_ns - phase.start_ns


def _bubble(steps: tuple[VendorStep, ...]) -> int | None:
    known = [v.bubble for v in steps if v.bubble is not None]
    return sum(known) if known else None


def _inside(operations: Operations, span: tuple[int, int]) -> Mask:
    inside: Mask = (operations.start >= span[0]) & (operations.start < span[1])
    return inside


def _minus(these: Intervals, those: Intervals) -> Intervals:
    """Return what of ``these`` the others do not cover."""
    if not len(these):
        return these
    free = those.gaps(int(these.start[0]), int(these.end[-1]))
    first = np.searchsorted(these.end, free.start, side="right")
    last = np.searchsorted(these.start, free.end, side="left")
    count = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(free)), count)
    place = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    start = np.maximum(free.start[owner], these.start[place])
    end = np.minimum(free.end[owner], these.end[place])
    real = end > start
    return Intervals(start[real], end[real])


def _host(idle: Gaps) -> Intervals:
    """Return the stretches in which the device waited for the host or for a launch under way."""
    known = idle.known & (idle.ready > idle.start)
    return Intervals(idle.start[known], idle.ready[known])


def _unblocked(exposed: Intervals, idle: Gaps, sync_start: I64, sync_end: I64) -> Mask:
    """Tell where work did not go on because communication ended: it was launched only later, by a host not waiting."""
    if not len(idle.start) or not len(exposed):
        return np.zeros(len(exposed), np.bool_)
    at = np.minimum(np.searchsorted(idle.start, exposed.end), len(idle.start) - 1)
    late = (idle.start[at] == exposed.end) & idle.known[at] & (idle.submitted[at] > exposed.end)
    order = np.argsort(sync_start, kind="stable")
    reach = np.maximum.accumulate(sync_end[order]) if len(order) else sync_end
    before = np.searchsorted(sync_start[order], exposed.end, side="right") - 1
    waited = (before >= 0) & (reach[np.maximum(before, 0)] >= exposed.end) if len(order) else np.zeros_like(late)
    unblocked: Mask = late & ~waited
    return unblocked


def _track(
    profile: DeviceProfile,
    operations: Operations,
    exposed: Intervals,
    span: tuple[int, int],
    compute: Intervals,
    host: Intervals,
    unblocked: Mask,
) -> RankSummary:
    """Lay out the rank's own track: where it was blocked, and how far it had come when each operation began."""
    begin, end = span
    block_start, until = _blocks(operations, *_closed(exposed, compute, unblocked))
    release = operations.end[until]
    base = np.searchsorted(release, operations.start, side="right") - 1
    inside = base + 1 < len(release)
    inside &= operations.start > np.append(block_start, end)[np.minimum(base + 1, len(release))]
    after = _predecessors(operations, np.where(inside, np.append(block_start, end)[base + 1], begin), inside)
    since = np.where(base >= 0, np.append(release, begin)[base], begin)
    from_ = np.where(after >= 0, np.minimum(operations.end[after], operations.start), since)
    previous = np.concatenate([[begin], release]).astype(np.int64)
    communication: Communication = profile.communication
    owner, exposed = _owners(operations, exposed)
    none = np.empty(0, np.int64)

    def local(start: I64, stop: I64) -> LocalTime:
        return LocalTime(
            stop - start, compute.before(stop) - compute.before(start), host.before(stop) - host.before(start)
        )

    return RankSummary(
        rank=profile.rank if profile.rank is not None else -1,
        device=profile.device,
        source=profile.source,
        host=communication.host,
        begin=begin,
        end=end,
        step_number=none,
        step_start=none,
        step_end=none,
        operations=operations,
        groups=communication.groups,
        distributed=communication.distributed,
        exposed_op=owner,
        exposed_start=exposed.start,
        exposed_end=exposed.end,
        until=until,
        block_start=block_start,
        to_block=local(previous[:-1], block_start),
        base=base,
        after=after,
        to_start=local(from_, operations.start),
        compute_before=compute.before(operations.start) - compute.before(np.array([begin])),
        host_before=host.before(operations.start) - host.before(np.array([begin])),
        tail=local(previous[-1:], np.maximum(np.array([end], np.int64), previous[-1:])),
        bandwidth=communication.bandwidth,
        links=communication.links,
        compute_ns=None,
        host_ns=None,
    )


def _closed(exposed: Intervals, compute: Intervals, unblocked: Mask) -> tuple[Intervals, Mask]:
    """Join stretches that nothing but rounding parts."""
    if len(exposed) < 2:
        return exposed, unblocked
    gaps = Intervals(exposed.end[:-1], exposed.start[1:])
    fresh = np.append(True, (gaps.end - gaps.start > _ROUNDING) | (compute.within(gaps) > 0))
    last = np.append(np.flatnonzero(fresh)[1:], len(exposed)) - 1
    return Intervals(exposed.start[fresh], exposed.end[last]), unblocked[last]


def _blocks(operations: Operations, exposed: Intervals, unblocked: Mask) -> tuple[I64, I64]:
    """Return where the track was blocked and by which operation: the last one to end in a stretch.

    A stretch in which none ended was no wait for one: the device had nothing to do while communication went on.
    """
    order = np.argsort(operations.end, kind="stable")
    at = np.searchsorted(operations.end[order], exposed.end, side="right") - 1
    last = order[np.maximum(at, 0)]
    real = (at >= 0) & (operations.end[last] > exposed.start) & ~unblocked
    return exposed.start[real], last[real].astype(np.int64)


def _predecessors(operations: Operations, since: I64, inside: Mask) -> I64:
    """Return for each operation the one whose end let it begin, -1 where the track did.

    While the track is blocked that is the last to end; elsewhere one of the same group that ended just before.
    """
    order = np.argsort(operations.end, kind="stable")
    at = np.searchsorted(operations.end[order], operations.start + _ROUNDING, side="right") - 1
    last = order[np.maximum(at, 0)].astype(np.int64)
    ended = operations.end[last]
    known = (at >= 0) & (operations.stay > _ROUNDING) & (operations.start[last] < operations.start)
    queued = (operations.start - ended <= _QUEUED) & (operations.group.codes[last] == operations.group.codes)
    chosen = known & np.where(inside, ended > since, queued)
    return np.where(chosen, last, -1)


def _owners(operations: Operations, exposed: Intervals) -> tuple[I64, Intervals]:
    """Cut exposed stretches so that each piece belongs to the operation that began first, and name it."""
    cuts = distinct(np.concatenate([exposed.start, exposed.end, operations.start, operations.end]))
    if len(cuts) < 2 or not len(exposed):
        return np.empty(0, np.int64), exposed
    pieces = Intervals(cuts[:-1], cuts[1:])
    chosen = exposed.within(pieces) > 0
    start, end = pieces.start[chosen], pieces.end[chosen]
    owner = _first_running(operations, start)
    fresh = np.append(True, (owner[1:] != owner[:-1]) | (start[1:] != end[:-1]))
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(start)) - 1
    return owner[first], Intervals(start[first], end[last])


def _first_running(operations: Operations, time: I64) -> I64:
    """Return for each time the running operation that began first; one runs at each of these times."""
    owner = np.full(len(time), -1, np.int64)
    # Operations are ordered by start: the first whose end lies beyond is found by sweeping the running maximum.
    reach = np.maximum.accumulate(operations.end)
    owner = np.searchsorted(reach, time, side="right").astype(np.int64)
    return np.minimum(owner, len(operations) - 1)


def _operators(study: Study, tasks: Tasks) -> tuple[OperatorTime, ...]:
    """Return the types and shapes with most time."""
    rows = np.flatnonzero(tasks.work == Work.COMPUTE)
    if not len(rows):
        return ()
    types = tasks.type if (tasks.type.codes[rows] >= 0).any() else tasks.name
    kind, dur = alike(types.codes.take(rows), tasks.shapes.codes.take(rows)), tasks.dur.take(rows)
    count = np.bincount(kind)
    total = sums_of(kind, dur, len(count))
    order = np.argsort(-total, kind="stable")[:_OPERATORS]
    longest = rows[last_largest(kind, dur, len(count))[order]]
    return tuple(
        OperatorTime(types[int(row)] or "N/A", tasks.shapes[int(row)], int(count), int(total),
                     study.profile.host.code_line(int(tasks.op[int(row)])))
        for row, count, total in zip(longest.tolist(), count[order].tolist(), total[order].tolist(), strict=True)
    )  # fmt: skip


# -- The transfers of one rank alone: between which bounds they lie, when nobody knows who waited for whom.
#
# A stay is waiting and transfer. What an operation moved over one transport took at least as long as it did on one of
# its links: the exporter sums links that run side by side, so the sum is divided by their number. Of transports whose
# links cannot be counted, and of RDMA, whose times hold waiting for the other end, nothing is certain.

#: Its times run from the first payload to the end of the closing task, and so hold waiting.
_WAITS: Final = "RDMA"


def bounds_alone(summary: RankSummary, exposed_ns: int) -> CommunicationBounds:
    """Return the bounds of a rank's transfers. ``exposed_ns``: its communication that no compute hides."""
    least, stay = least_transfer(summary), summary.operations.stay
    exposed = summary.exposed_end - summary.exposed_start
    own = np.bincount(summary.exposed_op, weights=exposed, minlength=len(stay)).astype(np.int64)
    # Wherever in its stay a transfer lies, what does not fit into the hidden part is exposed.
    certain = int(np.maximum(least - (stay - own), 0).sum()) if summary.exposed_known else 0
    return CommunicationBounds(
        transfer_least_ns=int(least.sum()),
        transfer_most_ns=int(stay.sum()),
        exposed_least_ns=min(certain, exposed_ns),
        exposed_most_ns=exposed_ns,
    )


def least_transfer(summary: RankSummary) -> I64:
    """Return how much of each operation's stay is transfer for certain, ns."""
    moved, operations = summary.bandwidth, summary.operations
    least = np.zeros(len(operations), np.int64)
    if not len(moved):
        return least
    row = alike(moved.op, moved.transport.codes)
    first = np.unique(row, return_index=True)[1]
    op, transport = moved.op[first], moved.transport.take(first)
    count = _side_by_side(summary.links)
    type_, group = operations.type.take(op), operations.group.take(op)
    beside = np.array([0 if (transport[i] or "").upper() == _WAITS else count.get((type_[i], group[i], transport[i]), 0)
                       for i in range(len(op))], np.int64)  # fmt: skip
    spent = np.bincount(row, weights=moved.ns).astype(np.int64)
    np.maximum.at(least, op, np.where(beside > 0, spent // np.maximum(beside, 1), 0))
    return np.minimum(least, operations.stay)


def links_beside(links: LinkUse) -> int:
    """Return how many links the rank's widest operation uses side by side: it has at least as many partners."""
    return max(_side_by_side(links).values(), default=0)


def _side_by_side(links: LinkUse) -> dict[tuple[str | None, str | None, str | None], int]:
    """Return by type, group and transport how many links an operation uses side by side: a row is one link's."""
    if not len(links):
        return {}
    kind = alike(links.type.codes, links.group.codes, links.transport.codes)
    _, first, rows = np.unique(alike(kind, links.step, links.name.codes), return_index=True, return_counts=True)
    widest = np.zeros(int(kind.max()) + 1, np.int64)
    np.maximum.at(widest, kind[first], rows)
    place = np.unique(kind, return_index=True)[1].tolist()
    return {(links.type[i], links.group[i], links.transport[i]): int(n) for i, n in zip(place, widest, strict=True)}

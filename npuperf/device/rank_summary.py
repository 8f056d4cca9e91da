"""From one device's profile to its summary: where its own work was blocked by communication, and what it did else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import Message, say, share
from npuperf.device.operators import BesideCommunication, beside_communication
from npuperf.device.partition import Gaps
from npuperf.device.roles import RoleTimes, role_times
from npuperf.device.study import Study
from npuperf.model.communication import REFERENCE, TOGETHER, Bandwidth, Communication, LinkUse, Operations, ProcessGroup
from npuperf.model.device import DeviceProfile, VendorStep
from npuperf.model.groups import alike, distinct, last_largest, sums_of
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
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

    @property
    def columns(self) -> tuple[I64, I64, I64]:
        """Length, compute and host."""
        return self.length, self.compute, self.host


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

    def between(self, begin: int, end: int) -> ExpertTimes:
        """Return those that begin in a window."""
        first, last = np.searchsorted(self.start, [begin, end]).tolist()
        return ExpertTimes(self.start[first:last], self.ns[first:last], self.tokens[first:last])


class RankSummary(Struct, frozen=True):
    """What one device of one rank tells the job. Times are epoch ns of the device's own clock.

    The rank's own track of work is blocked in ``blocks``: stretches of exposed communication after which work went
    on; block j ends (``release``) with the end of operation ``until[j]``. Between blocks, the track advances by
    itself: ``to_block[j]`` is the local time from release j-1 (or ``begin``) to block j, ``tail`` the one from the
    last release to ``end``.
    Operation k arrives ``to_start[k]`` after release ``base[k]`` (-1: after ``begin``) or, where ``after[k]`` ≥ 0,
    ``to_start[k].length`` after the end of operation ``after[k]``.

    ``compute_before`` and ``host_before``: per operation, what the track spent so between ``begin`` and its start.

    ``world``: how many ranks the job has, None where it is not recorded. ``transit``: per operation, for how long the
    exporter saw data move on one plane, -1 where that is not recorded.

    ``exposed_*``: stretches of exposed communication, disjoint and in order; ``exposed_op`` is the operation that
    began first, which owns them.
    ``step_start``/``step_end``: the steps that ``step_number`` names; ``to_step``: what the track spent until each of
    them begins, ``in_step``: in it.
    ``span_ns``: the exporter's length of the window, where there are no kernels and ``begin`` and ``end`` are those of
    the operations alone; else None. ``compute_ns``, ``host_ns``: totals of the window, None where files do not tell.
    ``stage``: of a pipeline, where a file names it. ``recorded_rank``: None where no file names one, so that ``rank``
    is a device's number. ``clock_mhz``: of its cores while kernels ran, on average, None where that is not known.
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
    to_step: LocalTime
    in_step: LocalTime
    operations: Operations
    groups: tuple[ProcessGroup, ...]
    distributed: dict[str, int]
    world: int | None
    transit: I64
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
    stage: int | None = None
    recorded_rank: int | None = None
    operators: tuple[OperatorTime, ...] = ()
    experts: ExpertTimes | None = None
    roles: tuple[RoleTimes, ...] = ()
    beside: BesideCommunication = BesideCommunication()
    where: str | None = None
    kineto: bool = False
    clock_mhz: float | None = None

    @property
    def place(self) -> tuple[str, int, int | None]:
        """What tells its device from others: the folder, its number there, and its rank where a file names it."""
        return self.source, self.device, self.recorded_rank


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
    profile, idle, steps = study.profile, study.timeline.idle, study.steps
    operations = profile.communication.operations
    inside = (operations.start >= span[0]) & (operations.start < span[1])
    if not inside.any() or profile.excerpt:
        return None
    known = idle.known & (idle.ready > idle.start)
    shown = (steps.start < span[1]) & (steps.end > span[0])
    numbers = study.step_numbers[shown].tolist()
    longest = max((p for p in phases if p.bound == bound), key=lambda p: p.end_ns - p.start_ns, default=None)
    operations, compute = operations.filter(inside), study.timeline.compute
    exposed = Intervals.union(operations.start, operations.end).minus(compute)
    return _summary(
        profile,
        inside,
        operations,
        span,
        exposed,
        _unblocked(exposed, idle, study.syncs.start - study.launches.skew, study.syncs.end - study.launches.skew),
        compute,
        host=Intervals(idle.start[known], idle.ready[known]),  # waits for the host and for launches under way
        step_number=study.step_numbers[shown],
        step_start=steps.start[shown],
        step_end=steps.end[shown],
        compute_ns=window.compute_ns,
        host_ns=window.host_wait_ns + window.launch_latency_ns if idle.known.any() or not window.idle_ns else None,
        vendor_bubble_ns=_bubble([v for v in profile.vendor_steps if not numbers or v.step in (None, *numbers)]),
        operators=_operators(study, tasks),
        experts=expert_times(tasks, types),
        roles=role_times(profile.host.events, study.launches.skew, study.timeline.active, *span),
        beside=beside_communication(tasks, types, thresholds),
        where=longest.where if longest else None,
        kineto=profile.kineto,
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
    numbers = sorted({int(s) for s in operations.step.tolist() if s >= 0})
    starts = [int(operations.start[operations.step == n].min()) for n in numbers]
    none = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    of_step = [[v for v in steps if v.step == number] for number in numbers]
    length, spent = np.array([(sum(v.span for v in own), sum(v.compute for v in own)) for own in of_step],
                             np.int64).reshape(-1, 2).T  # fmt: skip
    summary = _summary(
        profile,
        inside,
        operations,
        span,
        busy,
        np.zeros(len(busy), np.bool_),
        compute=none,
        host=none,
        to_step=LocalTime(*(np.cumsum(parts) - parts for parts in (length, spent, 0 * spent))),
        in_step=LocalTime(length, spent, 0 * spent),
        step_number=np.array(numbers, np.int64),
        step_start=np.array(starts, np.int64),
        step_end=np.array([*starts[1:], span[1]][: len(starts)], np.int64),
        compute_ns=sum(v.compute for v in steps) if steps else None,
        host_ns=None,
        exposed_known=bool(steps) and sum(v.comm_exposed for v in steps) >= (1 - _HIDDEN) * busy.total(),
        span_ns=sum(v.span for v in steps) if steps else None,
        vendor_bubble_ns=_bubble(steps),
        stage=profile.stage,
    )
    return _spread(summary, summary.to_block.length, summary.to_start.length, summary.tail.length)


def renumbered(summary: RankSummary, by: int) -> RankSummary:
    """Return the same with all steps numbered by so much more."""

    def moved(step: I64) -> I64:
        return np.where(step >= 0, step + by, step)

    return replace(
        summary,
        step_number=summary.step_number + by,
        operations=replace(summary.operations, step=moved(summary.operations.step)),
        links=replace(summary.links, step=moved(summary.links.step)),
    )


def reset(summary: RankSummary, at: int, by: int) -> RankSummary:
    """Return the same with a clock that is ``by`` ns ahead of what it shows from ``at`` on: it was set there.

    The stretch in which it was set gets as much longer, or shorter, and what fills it no longer than the stretch.
    """

    def moved(time: I64) -> I64:
        return np.asarray(time + np.where(time >= at, by, 0))

    def refilled(part: LocalTime, begin: I64, end: I64) -> LocalTime:
        length = np.maximum(part.length + (moved(end) - end) - (moved(begin) - begin), 0)
        compute = np.minimum(part.compute, length)
        return LocalTime(length, compute, np.minimum(part.host, length - compute))

    operations, experts = summary.operations, summary.experts
    release = operations.end[summary.until]
    previous = np.concatenate([[summary.begin], release]).astype(np.int64)
    to_block = refilled(summary.to_block, previous[:-1], summary.block_start)
    begin, end = (int(moved(np.array([time]))[0]) for time in (summary.begin, summary.end))
    own = summary.step_end - summary.step_start
    less = int((summary.to_block.compute - to_block.compute).sum())
    return replace(
        summary,
        begin=begin,
        end=end,
        step_start=moved(summary.step_start),
        step_end=moved(summary.step_end),
        to_step=refilled(summary.to_step, np.full(len(own), summary.begin), summary.step_start),
        in_step=refilled(summary.in_step, summary.step_start, summary.step_end),
        operations=replace(operations, start=moved(operations.start), end=moved(operations.end)),
        exposed_start=moved(summary.exposed_start),
        exposed_end=moved(summary.exposed_end),
        block_start=moved(summary.block_start),
        to_block=to_block,
        to_start=refilled(summary.to_start, operations.start - summary.to_start.length, operations.start),
        tail=refilled(summary.tail, previous[-1:], previous[-1:] + summary.tail.length),
        compute_ns=None if summary.compute_ns is None else summary.compute_ns - less,
        experts=None if experts is None else ExpertTimes(moved(experts.start), experts.ns, experts.tokens),
    )


def of_steps(summary: RankSummary, first: int, last: int) -> RankSummary:
    """Return what a rank did in some of its steps, from the ``first`` to the ``last`` place in ``step_number``.

    What is known of all steps together only, as of operators, is told of as many average ones.
    """
    operations, kept = summary.operations, slice(first, last + 1)
    begin, end = int(summary.step_start[first]), int(summary.step_end[last])
    inside = (operations.start >= begin) & (operations.start < end)
    bare = summary.span_ns is not None
    if bare:  # its window is that of its operations
        begin, end = int(operations.start[inside].min(initial=end)), int(operations.end[inside].max(initial=begin))
    row = np.where(inside, np.cumsum(inside) - 1, -1)
    spent = [int(column[first]) for column in summary.to_step.columns]  # by the track when they begin, and in them
    within = [int(a[last] + b[last]) - before for a, b, before
              in zip(summary.to_step.columns, summary.in_step.columns, spent, strict=True)]  # fmt: skip
    share, pieces = (last + 1 - first) / len(summary.step_number), inside[summary.exposed_op]
    found = replace(
        summary,
        begin=begin,
        end=end,
        step_number=summary.step_number[kept],
        step_start=summary.step_start[kept],
        step_end=summary.step_end[kept],
        to_step=LocalTime(*(c[kept] - before for c, before in zip(summary.to_step.columns, spent, strict=True))),
        in_step=LocalTime(*(column[kept] for column in summary.in_step.columns)),
        operations=operations.filter(inside),
        transit=summary.transit[inside],
        exposed_op=row[summary.exposed_op[pieces]],
        exposed_start=summary.exposed_start[pieces],
        exposed_end=summary.exposed_end[pieces],
        compute_before=summary.compute_before[inside] - spent[1],
        host_before=summary.host_before[inside] - spent[2],
        bandwidth=summary.bandwidth.of(inside),
        compute_ns=None if summary.compute_ns is None else within[1],
        host_ns=None if summary.host_ns is None else within[2],
        span_ns=within[0] if bare else None,
        vendor_bubble_ns=None if summary.vendor_bubble_ns is None else round(summary.vendor_bubble_ns * share),
        operators=tuple(replace(o, total_ns=round(o.total_ns * share)) for o in summary.operators),
        experts=summary.experts and summary.experts.between(begin, end),
        roles=tuple(role.between(begin, end) for role in summary.roles),
        **_track_within(summary, inside, row, (begin, end), (spent, within)),
    )
    return _spread(found, *(part.length for part in (found.to_block, found.to_start, found.tail))) if bare else found


def _track_within(
    summary: RankSummary, inside: Mask, row: I64, window: tuple[int, int], spent: tuple[list[int], list[int]]
) -> dict[str, Any]:
    """Return the parts of a summary that lay out the track, of a window alone.

    ``inside``: the operations that begin in it, ``row``: their new numbers; ``spent``: what the track has spent by the
    window's begin, and spends in it (length, compute, host).
    """
    (begin, end), (before, within) = window, spent
    blocks = np.flatnonzero(inside[summary.until])
    until, block_start, start = summary.until[blocks], summary.block_start[blocks], summary.operations.start[inside]
    release = summary.operations.end[until]
    base = np.searchsorted(blocks, summary.base[inside], side="right") - 1  # after a block before the window: its begin
    after = np.where(summary.after >= 0, row[summary.after], -1)[inside]
    as_before = (after >= 0) | ((summary.after[inside] < 0) & np.isin(summary.base[inside], blocks))
    previous, since = np.append(begin, release), np.append(release, begin)[base]
    lengths = [(block_start - previous[:-1], np.maximum(start - since, 0), np.maximum(end - previous[-1:], 0))]
    for cause, by_start in ((1, summary.compute_before), (2, summary.host_before)):
        by_block = np.cumsum(summary.to_block.columns[cause])[blocks]
        reached = np.append(by_block, before[cause])
        stretches = np.diff(by_block, prepend=before[cause]), by_start[inside] - reached[base]
        lengths.append((*stretches, before[cause] + within[cause] - np.append(before[cause], by_block)[-1:]))
    to_block, to_start, tail = (LocalTime(*parts) for parts in zip(*lengths, strict=True))
    own = zip(summary.to_start.columns, to_start.columns, strict=True)
    return {
        "until": row[until],
        "block_start": block_start,
        "base": base,
        "after": after,
        "to_block": to_block,
        "to_start": LocalTime(*(np.where(as_before, whole[inside], part) for whole, part in own)),
        "tail": tail,
    }


def extend(summary: RankSummary, tail: int) -> RankSummary:
    """Give a device without kernels its whole window: its last operation is as far from the end as its peers' is."""
    whole = summary.end - summary.begin
    if summary.span_ns is None or summary.span_ns <= whole:
        return summary
    tail = min(max(tail, 0), summary.span_ns - whole)
    lead = summary.span_ns - whole - tail
    step_start, step_end = summary.step_start.copy(), summary.step_end.copy()
    step_start[:1], step_end[-1:] = summary.begin - lead, summary.end + tail
    to_block, to_start = summary.to_block.length.copy(), summary.to_start.length.copy()
    to_block[:1] += lead
    to_start[(summary.base < 0) & (summary.after < 0)] += lead
    summary = replace(
        summary, begin=summary.begin - lead, end=summary.end + tail, step_start=step_start, step_end=step_end
    )
    return _spread(summary, to_block, to_start, summary.tail.length + tail)


def _spread(summary: RankSummary, to_block: I64, to_start: I64, tail: I64) -> RankSummary:
    """Spread the compute time of a device without kernels evenly over the time between operations: these lengths."""
    start = summary.operations.start
    busy = Intervals.union(start, summary.operations.end)
    share = min(1.0, (summary.compute_ns or 0) / max(summary.end - summary.begin - busy.total(), 1))
    filled = [
        LocalTime(length, np.rint(length * share).astype(np.int64), np.zeros(len(length), np.int64))
        for length in (to_block, to_start, tail)
    ]
    before = np.rint(share * (start - summary.begin - busy.before(start))).astype(np.int64)
    return replace(summary, to_block=filled[0], to_start=filled[1], tail=filled[2], compute_before=before)


def filled_like(summary: RankSummary, peer: RankSummary) -> RankSummary:
    """Fill the stretches of a device without kernels as those of a peer with the same operations are filled.

    The whole is then scaled to the compute time that the exporter gives.
    """
    total, theirs = summary.compute_ns, _same_operations(summary, peer)
    if total is None or theirs is None:
        return summary
    if not summary.exposed_known and peer.compute_ns:
        summary = _paced_like(summary, peer, theirs, total / peer.compute_ns)
    if len(summary.until) != len(peer.until):
        return summary
    own = (summary.to_block, summary.to_start, summary.tail)
    busy = [part.compute / np.maximum(part.length, 1) for part in (peer.to_block, peer.to_start, peer.tail)]
    compute = [mine.length * part for mine, part in zip(own, (busy[0], busy[1][theirs], busy[2]), strict=True)]
    scale = total / max(float(compute[0].sum() + compute[2].sum()), 1.0)
    to_block, to_start, tail = (
        LocalTime(mine.length, np.rint(np.minimum(spent * scale, mine.length)).astype(np.int64), mine.host)
        for mine, spent in zip(own, compute, strict=True)
    )
    spent = np.concatenate([[0], np.cumsum(to_block.compute)])
    before = spent[np.where(summary.after < 0, summary.base + 1, summary.base + 2).clip(0, len(spent) - 1)]
    before = before + np.where(summary.after < 0, to_start.compute, 0)
    return replace(summary, to_block=to_block, to_start=to_start, tail=tail, compute_before=before)


def _same_operations(summary: RankSummary, peer: RankSummary) -> I64 | None:
    """Return for each operation the row of a peer's that is the same; None where they do not do the same.

    It is of the same type, in the n-th group of its kind that the rank took part in, and as many were before it: beside
    compute, operations of several groups begin in another order on each rank.
    """
    known: dict[tuple[str | None, ...], int] = {}
    order, kinds = [], []
    for rank in (summary, peer):
        operations, named = rank.operations, {group.id: group.kind for group in rank.groups}
        codes, first, group = np.unique(operations.group.codes, return_index=True, return_inverse=True)
        seen, places = Counter[str | None](), np.zeros(len(codes), np.int64)
        for at in np.argsort(first).tolist():
            kind = named.get(operations.group.names[codes[at]]) if codes[at] >= 0 else None
            places[at] = known.setdefault(("group", kind, str(seen[kind])), len(known))
            seen[kind] += 1
        types = np.array([*(known.setdefault((name,), len(known)) for name in operations.type.names), -1], np.int64)
        kinds.append(np.stack([types[operations.type.codes], places[group.ravel()]]))
        order.append(np.lexsort(kinds[-1]))
    if not np.array_equal(kinds[0][:, order[0]], kinds[1][:, order[1]]):
        return None
    rows = np.empty(len(order[0]), np.int64)
    rows[order[0]] = order[1]
    return rows


def _paced_like(summary: RankSummary, peer: RankSummary, theirs: I64, pace: float) -> RankSummary:
    """Lay out a device whose communication is partly hidden as a peer's: blocked by the same operations.

    When it came to each block is not recorded: its own time until then is the peer's, at its own ``pace``. ``theirs``:
    the peer's row of each operation.
    """
    operations, until = summary.operations, np.argsort(theirs)[peer.until]
    release = np.maximum.accumulate(operations.end[until])
    previous = np.concatenate([[summary.begin], release]).astype(np.int64)
    length = np.rint(peer.to_block.length * pace).astype(np.int64)
    block_start = np.clip(previous[:-1] + length, previous[:-1], np.maximum(release, previous[:-1]))
    base, after, since, previous = _track(operations, summary.begin, summary.end, block_start, until)
    busy = Intervals.union(operations.start, operations.end)
    if len(busy):
        busy = busy.minus(Intervals.union(block_start, release).gaps(int(busy.start[0]), int(busy.end[-1])))
    owner, exposed = _owners(operations, busy)
    to_block, to_start, tail = (
        LocalTime(own, np.zeros_like(own), np.zeros_like(own))
        for own in (
            np.maximum(block_start - previous[:-1], 0),
            np.maximum(operations.start - since, 0),
            np.maximum(summary.end - previous[-1:], 0),
        )
    )
    return replace(
        summary,
        until=until,
        block_start=block_start,
        base=base,
        after=after,
        to_block=to_block,
        to_start=to_start,
        tail=tail,
        exposed_op=owner,
        exposed_start=exposed.start,
        exposed_end=exposed.end,
    )


def _bubble(steps: Sequence[VendorStep]) -> int | None:
    known = [v.bubble for v in steps if v.bubble is not None]
    return sum(known) if known else None


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


def _summary(
    profile: DeviceProfile,
    inside: Mask,
    operations: Operations,
    span: tuple[int, int],
    exposed: Intervals,
    unblocked: Mask,
    compute: Intervals,
    host: Intervals,
    **told: Any,
) -> RankSummary:
    """Lay out the rank's own track: where it was blocked, and how far it had come when each operation began.

    ``operations``: those of the device that are ``inside``; ``told``: what else the summary tells.
    """
    begin, end = span
    block_start, until = _blocks(operations, exposed, unblocked, compute)
    base, after, since, previous = _track(operations, begin, end, block_start, until)
    owner, exposed = _owners(operations, exposed)

    def local(start: I64, stop: I64) -> LocalTime:
        return LocalTime(
            stop - start, compute.before(stop) - compute.before(start), host.before(stop) - host.before(start)
        )

    first, last = told["step_start"], told["step_end"]
    told = {"to_step": local(np.full(len(first), begin), first), "in_step": local(first, last), **told}
    return RankSummary(
        rank=profile.rank if profile.rank is not None else -1,
        recorded_rank=profile.rank,
        device=profile.device,
        source=profile.source,
        host=profile.communication.host,
        begin=begin,
        end=end,
        operations=operations,
        groups=profile.communication.groups,
        distributed=profile.communication.distributed,
        world=profile.world_size,
        transit=_transit(profile.communication, inside),
        exposed_op=owner,
        exposed_start=exposed.start,
        exposed_end=exposed.end,
        until=until,
        block_start=block_start,
        to_block=local(previous[:-1], block_start),
        base=base,
        after=after,
        to_start=local(since, operations.start),
        compute_before=compute.before(operations.start) - compute.before(np.array([begin])),
        host_before=host.before(operations.start) - host.before(np.array([begin])),
        tail=local(previous[-1:], np.maximum(np.array([end], np.int64), previous[-1:])),
        bandwidth=profile.communication.bandwidth.of(inside),
        links=profile.communication.links,
        **told,
    )


def _track(operations: Operations, begin: int, end: int, block_start: I64, until: I64) -> tuple[I64, I64, I64, I64]:
    """Return of each operation its ``base``, its ``after`` and the time from which its ``to_start`` counts.

    The last: from when each block's ``to_block``, and then the tail, count.
    """
    release = operations.end[until]
    base = np.searchsorted(release, operations.start, side="right") - 1
    inside_block = base + 1 < len(release)
    inside_block &= operations.start > np.append(block_start, end)[np.minimum(base + 1, len(release))]
    blocked_since = np.where(inside_block, np.append(block_start, end)[base + 1], begin)
    after = _predecessors(operations, blocked_since, inside_block)
    since = np.where(base >= 0, np.append(release, begin)[base], begin)
    since = np.where(after >= 0, np.minimum(operations.end[after], operations.start), since)
    return base, after, since, np.concatenate([[begin], release]).astype(np.int64)


def held_by_exchanges(summary: RankSummary) -> RankSummary | None:
    """Return the same with a track that needs at once what it receives while it computes; None if that is nothing.

    What came meanwhile is needed later on, and what is sent behind other operations was there before: nobody knows
    when. Right after it came, and right before it went, is the worst. As measured that keeps nobody, but repaired ranks
    come earlier.
    """
    operations = summary.operations
    sends = operations.type.flag([name == "send" for name in operations.type.names])
    meanwhile = np.setdiff1d(np.flatnonzero(operations.p2p & ~sends), summary.until)
    came = operations.end[meanwhile]
    last = np.searchsorted(summary.block_start, came, side="right") - 1  # the block that began before
    blocked = (
        (last >= 0) & (operations.end[summary.until][np.maximum(last, 0)] > came) if len(summary.until) else last >= 0
    )
    meanwhile = meanwhile[~blocked & (came < summary.end)]
    if not len(meanwhile) or summary.span_ns is not None:
        return None
    at = np.concatenate([summary.block_start, operations.end[meanwhile]])
    order = np.argsort(at, kind="stable")
    block_start, until = at[order], np.concatenate([summary.until, meanwhile])[order]
    base, after, since, previous = _track(operations, summary.begin, summary.end, block_start, until)
    inside = (base + 1 < len(until)) & (operations.start > np.append(block_start, summary.end)[base + 1])
    ready = sends & operations.p2p & (after >= 0) & ~inside
    since = np.where(ready, np.append(operations.end[until], summary.begin)[base], since)
    after = np.where(ready, -1, after)
    whole = np.append(np.searchsorted(summary.block_start, block_start), len(summary.until))  # the stretch each is of

    def cut(length: I64, of: I64, parts: Sequence[LocalTime]) -> LocalTime:
        whole_length, compute, host = (
            np.concatenate([getattr(p, n) for p in parts]) for n in ("length", "compute", "host")
        )
        share = length / np.maximum(whole_length[of], 1)
        return LocalTime(length, *(np.rint(part[of] * share).astype(np.int64) for part in (compute, host)))

    own = [summary.to_block, summary.tail]
    return replace(
        summary,
        until=until,
        block_start=block_start,
        base=base,
        after=after,
        to_block=cut(np.maximum(block_start - previous[:-1], 0), whole[:-1], own),
        to_start=cut(np.maximum(operations.start - since, 0), np.arange(len(since)), [summary.to_start]),
        tail=cut(np.maximum(summary.end - previous[-1:], 0), whole[-1:], own),
    )


def _transit(communication: Communication, inside: Mask) -> I64:
    """Return the exporter's own Transit of the operations that are ``inside``, ns, -1 where it has none."""
    transit = np.full(len(inside), -1, np.int64)
    transit[communication.vendor.op] = communication.vendor.transit
    return transit[inside]


def _blocks(operations: Operations, exposed: Intervals, unblocked: Mask, compute: Intervals) -> tuple[I64, I64]:
    """Return where the track was blocked and by which operation: the last one to end in a stretch.

    Stretches that nothing but rounding parts are one. One in which no operation ended was no wait: the device had
    nothing to do while communication went on.
    """
    start, end = exposed.start, exposed.end
    if len(exposed) > 1:
        gaps = Intervals(end[:-1], start[1:])
        fresh = np.append(True, (gaps.end - gaps.start > _ROUNDING) | (compute.within(gaps) > 0))
        last = np.append(np.flatnonzero(fresh)[1:], len(exposed)) - 1
        start, end, unblocked = start[fresh], end[last], unblocked[last]
    order = np.argsort(operations.end, kind="stable")
    at = np.searchsorted(operations.end[order], end, side="right") - 1
    last = order[np.maximum(at, 0)]
    real = (at >= 0) & (operations.end[last] > start) & ~unblocked
    return start[real], last[real].astype(np.int64)


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
    # Operations are ordered by start: the first that still runs is the first by which the latest end lies beyond.
    owner = np.searchsorted(np.maximum.accumulate(operations.end), start, side="right").astype(np.int64)
    owner = np.minimum(owner, len(operations) - 1)
    fresh = np.append(True, (owner[1:] != owner[:-1]) | (start[1:] != end[:-1]))
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(start)) - 1
    return owner[first], Intervals(start[first], end[last])


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
# links cannot be counted, and of RDMA, whose times hold waiting for the other end, nothing is certain. For as long as
# the exporter saw data move on one plane (its Transit), the operation was transferring as well. What it waited for
# others before it moved anything, its own notifications tell: that much is waiting, as far as can be inferred. The
# exporter's Wait is the sum of those of one plane, early and late ones, and says neither: it is not used.

#: Waiting of a smaller part of the exposed communication is not worth a word.
_NOTABLE: Final = 0.05
#: Its times run from the first payload to the end of the closing task, and so hold waiting.
WAITS: Final = "RDMA"


def bounds_alone(summary: RankSummary, exposed_ns: int) -> CommunicationBounds:
    """Return the bounds of a rank's transfers. ``exposed_ns``: its communication that no compute hides."""
    least, stay = least_transfer(summary), summary.operations.stay
    wait = least_wait(summary, least)
    exposed = summary.exposed_end - summary.exposed_start
    own = np.bincount(summary.exposed_op, weights=exposed, minlength=len(stay)).astype(np.int64)
    # Wherever in its stay a transfer lies, what does not fit into the hidden part is exposed; waiting comes first.
    certain = int(np.maximum(least - (stay - own), 0).sum()) if summary.exposed_known else 0
    until = (summary.operations.start + wait)[summary.exposed_op]
    waited = np.clip(until, summary.exposed_start, summary.exposed_end) - summary.exposed_start
    most = max(exposed_ns - int(waited.sum()), 0) if summary.exposed_known else exposed_ns
    longest, told = next(iter(awaited_ranks([summary], [wait])), None), None
    if longest and exposed_ns - most >= _NOTABLE * exposed_ns > 0:
        told = say("at least {share} of the exposed communication is waiting for other ranks, most of it for {whom} "
                   "(inferred: Notify_Wait before the first transfer)", share=share(1 - most / exposed_ns),
                   whom=longest.name)  # fmt: skip
    return CommunicationBounds(
        transfer_least_ns=int(least.sum()),
        transfer_most_ns=int((stay - wait).sum()),
        exposed_least_ns=min(certain, most),
        exposed_most_ns=most,
        total_ns=int(stay.sum()),
        awaited_ns=int(wait.sum()),
        awaited_rank=longest.rank if longest else None,
        awaited_group=longest.group if longest else None,
        waits=told,
    )


class Awaited(Struct, frozen=True):
    """A rank that others waited for, ns: counted inside of ``group``, or in the job where that is None."""

    rank: int
    group: str | None
    ns: int

    @property
    def name(self) -> Message:
        """What it is called."""
        if self.group is None:
            return say("rank {rank}", rank=self.rank)
        return say("rank {rank} of its group", rank=self.rank)


def awaited_ranks(summaries: Sequence[RankSummary], waited: Sequence[I64]) -> list[Awaited]:
    """Return for whom ranks waited, as parts of their operations tell, the longest first.

    ``waited``: of each rank how long each of its operations did.
    """
    found = Counter[tuple[int, str | None]]()
    for summary, wait in zip(summaries, waited, strict=True):
        members = {group.id: group.ranks for group in summary.groups}
        operations = summary.operations
        for row in np.flatnonzero((wait > 0) & (operations.awaited_rank >= 0)).tolist():
            rank, group = int(operations.awaited_rank[row]), operations.group[row]
            ranks = members.get(group or "", ())
            whom = (ranks[rank], None) if rank < len(ranks) else (rank, group)
            found[whom] += int(wait[row])
    return [Awaited(rank, group, ns) for (rank, group), ns in found.most_common()]


def least_transfer(summary: RankSummary) -> I64:
    """Return how much of each operation's stay is transfer for certain, ns."""
    moved, operations = summary.bandwidth, summary.operations
    least = np.zeros(len(operations), np.int64)
    if not len(moved):
        return least
    row = alike(moved.op, moved.transport.codes)
    first = np.unique(row, return_index=True)[1]
    op, transport = moved.op[first], moved.transport.take(first)
    count = links_side_by_side(summary.links)
    type_, group = operations.type.take(op), operations.group.take(op)
    beside = np.array([0 if (transport[i] or "").upper() == WAITS else count.get((type_[i], group[i], transport[i]), 0)
                       for i in range(len(op))], np.int64)  # fmt: skip
    spent = np.bincount(row, weights=moved.ns).astype(np.int64)
    np.maximum.at(least, op, np.where(beside > 0, spent // np.maximum(beside, 1), 0))
    waits, certain = np.zeros((2, len(operations)), np.bool_)
    waits[op[transport.flag([name.upper() == WAITS for name in transport.names])]] = True
    certain[op] = True
    least = np.where(certain & ~waits, np.maximum(least, summary.transit), least)
    return np.minimum(least, operations.stay)


def least_wait(summary: RankSummary, certain: I64) -> I64:
    """Return how long each operation waited for others at least, as its parts tell (inferred), ns. ``certain``: what of
    each is transfer (:func:`least_transfer`).

    Only of operations in which all do the same: of others an early wait may be for data that is on its way.
    """
    operations = summary.operations
    same = operations.type.flag([name in TOGETHER for name in operations.type.names])
    waited = np.where(same, np.maximum(operations.awaited, 0), 0)
    waited[:] = np.minimum(waited, operations.stay - certain)
    return waited


class HeldUp(Struct, frozen=True):
    """An operation that cannot have been transferring all the time: ``other``, of its type and group, moved as much or
    more sooner.

    ``bytes`` that the rank with most moved, and the shortest ``stay`` of the ranks that were loaded, ns.
    """

    name: str
    bytes: int
    stay: int
    other: str
    other_bytes: int
    other_stay: int


def held_up_alone(summary: RankSummary, factor: float) -> list[HeldUp]:
    """Return the same of one rank's operations in which all do the same, by what they moved or took in."""
    operations = summary.operations
    moved = sums_of(summary.bandwidth.op, summary.bandwidth.bytes, len(operations))
    moved = moved if moved.any() else operations.bytes
    same = np.flatnonzero(operations.type.flag([name in TOGETHER for name in operations.type.names]))
    name, stay, moved = operations.name.take(same), operations.stay[same], moved[same]
    kind = alike(operations.type.codes[same], operations.group.codes[same])
    found = [
        HeldUp(name[row] or "N/A", int(moved[row]), int(stay[row]),
               name[other] or "N/A", int(moved[other]), int(stay[other]))
        for row, other in slower_than_larger(kind, moved, stay, factor)
    ]  # fmt: skip
    return sorted(found, key=lambda h: -h.stay)


def slower_than_larger(kind: I64, moved: I64, stay: I64, factor: float) -> list[tuple[int, int]]:
    """Return rows that took ``factor`` times as long (ns) as another row of their kind that moved as much or more
    (bytes, counted if above 0), each with the one that was fastest.
    """
    found = list[tuple[int, int]]()
    for k in distinct(kind).tolist():
        rows = np.flatnonzero((kind == k) & (moved > 0))
        rows = rows[np.lexsort((stay[rows], -moved[rows]))]
        best = np.minimum.accumulate(stay[rows])
        first = np.append(True, best[1:] < best[:-1])  # of each pace the row that set it
        setter = rows[np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))]
        slow = stay[rows] > factor * np.maximum(stay[setter], 1)
        found += zip(rows[slow].tolist(), setter[slow].tolist(), strict=True)
    return found


class LinkRate(Struct, frozen=True):
    """How fast the links of one transport carried what operations of some ranks moved, and how that was cut.

    ``gb_per_s``: of a link while it was used, as exporters sum links side by side; ``reference_gb_per_s``: what the
    vendor's tools compare with. ``odd``: of ``packets`` those that are no multiple of so many bytes as the question
    says, with their rate and that of the others, None where there are none.
    """

    transport: str
    gb_per_s: float
    reference_gb_per_s: float | None
    packets: int
    odd: int
    odd_gb_per_s: float | None
    even_gb_per_s: float | None


def link_rates(ranks: Sequence[RankSummary], alignment: int) -> list[LinkRate]:
    """Return the rate of each transport, that with most bytes first. RDMA's times hold waiting: nothing is said."""
    found: list[tuple[int, LinkRate]] = []
    moved = Labels.concat([r.bandwidth.transport for r in ranks])
    bytes_, ns, packet, count = (np.concatenate([getattr(r.bandwidth, name) for r in ranks])
                                 for name in ("bytes", "ns", "packet", "count"))  # fmt: skip

    def rate(rows: Mask) -> float | None:
        return float(bytes_[rows].sum() / ns[rows].sum()) if ns[rows].any() else None

    for name in moved.compact().names:
        rows = moved.flag([own == name for own in moved.names]) & (ns > 0)
        pace = rate(rows)
        if pace is None or name.upper() == WAITS:
            continue
        cut = rows & (packet > 0) & (count > 0)
        odd = cut & (packet > alignment) & (packet % alignment != 0)
        packets = int(count[cut].sum()), int(count[odd].sum())
        one = LinkRate(name, pace, REFERENCE.get(name.upper()), *packets, rate(odd), rate(cut & ~odd))
        found.append((int(bytes_[rows].sum()), one))
    return [one for _, one in sorted(found, key=lambda row: -row[0])]


def links_beside(links: LinkUse) -> int:
    """Return how many links the rank's widest operation uses side by side: it has at least as many partners."""
    return max(links_side_by_side(links).values(), default=0)


def links_side_by_side(links: LinkUse) -> dict[tuple[str | None, str | None, str | None], int]:
    """Return by type, group and transport how many links an operation uses side by side: a row is one link's."""
    if not len(links):
        return {}
    kind = alike(links.type.codes, links.group.codes, links.transport.codes)
    _, first, rows = np.unique(alike(kind, links.step, links.name.codes), return_index=True, return_counts=True)
    widest = np.zeros(int(kind.max()) + 1, np.int64)
    np.maximum.at(widest, kind[first], rows)
    place = np.unique(kind, return_index=True)[1].tolist()
    return {(links.type[i], links.group[i], links.transport[i]): int(n) for i, n in zip(place, widest, strict=True)}

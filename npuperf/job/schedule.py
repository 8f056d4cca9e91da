"""A pipeline's schedule: how many micro-batches a step has, in how many chunks and in which order they run.

It is told by what goes over the links. A micro-batch is one activation from stage to stage, and in training one
gradient back; of several that nothing was computed between (parts of an activation, its shape before it) all together
are one. That counts in any schedule, whether an exchange is recorded by itself (send, receive: DeepSpeed, Megatron with
--overlap-p2p-communication) or with the one the other way (batchSendRecv: Megatron's batch_isend_irecv, in which who
receives reports bytes and who only sends none). Chunks go round: from the last stage back to the first, once less often
than there are chunks (Narayanan et al. 2021). How far a stage runs ahead of the gradients tells the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say, say_n
from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import Clocks
from npuperf.job.links import analysed
from npuperf.job.match import Matched
from npuperf.job.pipeline import PipelineStages, PipelineTime
from npuperf.job.waits import JobWaits, turns
from npuperf.model.groups import alike, distinct
from npuperf.model.intervals import Intervals
from npuperf.model.job_result import PipelineStep, StageDoing, StageTrack
from npuperf.model.labels import F64, I64, Mask

ONE_BY_ONE: Final = "1F1B"
ALL_FORWARD_FIRST: Final = "GPipe"
INTERLEAVED: Final = "interleaved 1F1B"
FORWARD_ONLY: Final = "forward only"
#: What a sender computes between two micro-batches is at least this part of the most that it does: a forward beside a
#: forward and a backward is a third. What it computes between parts of one is nothing, or a copy.
_BETWEEN: Final = 0.05
#: Compute between exchanges is the same within this: kernels vary by less, a forward is half a backward.
_EVEN: Final = 1.25


class Schedule(Struct, frozen=True):
    """What a pipeline does in a step, None where that cannot be told, and ``why``: the evidence, or what is missing.

    ``chunks``: of layers per stage, one behind the other (virtual stages).
    """

    why: Message
    micro_batches: int | None = None
    chunks: int | None = None
    name: str | None = None

    def share(self, stages: int) -> float | None:
        """Return which part of the pipeline's time the schedule alone leaves idle: (p - 1) / (v·m + p - 1)."""
        if self.micro_batches is None:
            return None
        return (stages - 1) / ((self.chunks or 1) * self.micro_batches + stages - 1)


class _Transfers(Struct, frozen=True):
    """What went between stages in the analysed steps, a row each: rows of matched operations of its two ends.

    ``link``: the stage at its upper end; ``down``: to the next stage, as activations go; ``run``: the same pair of
    ranks in the same step.
    """

    sender: I64
    receiver: I64
    link: I64
    down: Mask
    run: I64


def find_schedule(ranks: Sequence[RankSummary], matched: Matched, stages: PipelineStages) -> Schedule:
    """Tell the schedule of a job's pipelines, which are all alike."""
    pairs = _pairs(ranks, matched, stages)
    if not len(pairs):
        return Schedule(say("no exchanges between stages were matched"))
    stage = np.sort(stages.of[matched.rank[pairs]], axis=1)
    silent = {*range(stages.count - 1)} - {*stage[np.diff(stage).ravel() == 1, 0].tolist()}
    if silent and (np.diff(stage) == 1).any():
        return Schedule(say("no exchange between stages {a} and {b} was matched", a=min(silent), b=min(silent) + 1))
    moved = _moved(ranks, matched, stages, pairs)
    if moved is None:
        return _by_exchanges(ranks, matched, stages, pairs)
    if not len(moved.link):
        return Schedule(say("stages exchange with others than their neighbours"))
    runs, links = int(moved.run.max()) + 1, stages.count
    of_run = np.zeros(runs, np.int64)
    of_run[moved.run] = moved.link
    counts = np.stack([np.bincount(moved.run[moved.down == way], minlength=runs) for way in (True, False)], axis=1)
    by_link = [counts[of_run == link] for link in range(links)]
    if any((own != own[:1]).any() for own in by_link):
        return Schedule(say("not all ranks of a stage exchange equally often in every step"))
    down, up = (np.array([int(own[0, way]) if len(own) else 0 for own in by_link]) for way in (0, 1))
    parts = _parts(ranks, matched, moved)
    if len({*down[:-1].tolist()}) > 1:
        return Schedule(say("stages do not exchange equally often"))
    down, up = down // parts[0], up // parts[1]
    each, around = int(down[0]), int(down[-1])
    if not up.any() and not around:
        return Schedule(
            say_n("per step {n} activation over every link, no gradient back",
                  "per step {n} activations over every link, no gradients back", each), each, 1, FORWARD_ONLY
        )  # fmt: skip
    if (up != down).any():
        return Schedule(say("not as many gradients come back over every link as activations go"))
    if around:
        micro = each - around
        if micro < 1 or each % micro:
            return Schedule(say("what goes round from the last stage to the first fits no number of chunks"))
        why = say("per step {n} activations from stage to stage, {around} from the last to the first", n=each,
                  around=around)  # fmt: skip
        return Schedule(why, micro, each // micro, INTERLEAVED)
    found = _in_order(matched, moved, stages, each, parts)
    if stages.count == 2 and parts[1] == 1 and found.name == ONE_BY_ONE and each % 2 == 0 and each & (each - 1):
        # Chunks of two stages go over the same link: 2v - 1 times an even number of micro-batches.
        back = moved.sender[~moved.down]
        spent = np.concatenate([r.compute_before for r in ranks])[back]
        between = _between(spent[np.lexsort((matched.start[back], moved.run[~moved.down]))], each)
        if between.max() > _EVEN * between.min():
            return Schedule(say("chunks of two stages would look alike, and compute between exchanges is uneven"))
    return found


def _pairs(ranks: Sequence[RankSummary], matched: Matched, stages: PipelineStages) -> I64:
    """Return exchanges of two ranks of different stages in the analysed steps: the rows of both, a line each."""
    if not matched.instances:
        return np.empty((0, 2), np.int64)
    size = np.diff(np.append(matched.starts, len(matched.members)))
    first = matched.starts[(size == 2) & matched.p2p[matched.members[matched.starts]]]
    pairs = np.stack([matched.members[first], matched.members[first + 1]], axis=1)
    here = np.concatenate([analysed(rank.operations.step, rank) for rank in ranks])
    stage = stages.of[matched.rank[pairs]]
    chosen: Mask = here[pairs].all(axis=1) & (stage >= 0).all(axis=1) & (stage[:, 0] != stage[:, 1])
    return pairs[chosen]


def _moved(ranks: Sequence[RankSummary], matched: Matched, stages: PipelineStages, pairs: I64) -> _Transfers | None:
    """Return what went over which link in these exchanges; without rows where stages are no neighbours.

    None where it is not recorded who received.
    """
    kind = np.array([*matched.types, ""], dtype=object)[matched.type]
    got = np.concatenate(
        [np.bincount(r.bandwidth.op[r.bandwidth.bytes > 0], minlength=len(r.operations)) > 0 for r in ranks]
    )
    receives = ((kind == "receive") | ((kind != "send") & got))[pairs]
    if not receives.any(axis=1).all():
        return None
    receiver = np.concatenate([pairs[receives[:, end], end] for end in (0, 1)])
    sender = np.concatenate([pairs[receives[:, end], 1 - end] for end in (0, 1)])
    source, target, last = stages.of[matched.rank[sender]], stages.of[matched.rank[receiver]], stages.count - 1
    around = (np.abs(source - target) == last) & (last > 1)
    if ((np.abs(source - target) != 1) & ~around).any():
        empty = np.empty(0, np.int64)
        return _Transfers(empty, empty, empty, np.empty(0, np.bool_), empty)
    down = np.where(around, source > target, target > source)
    place = np.sort(matched.rank[np.stack([sender, receiver], axis=1)], axis=1)
    run = alike(place[:, 0], place[:, 1], matched.step[sender])
    return _Transfers(sender, receiver, np.where(down, source, target), down, run)


def _parts(ranks: Sequence[RankSummary], matched: Matched, moved: _Transfers) -> tuple[int, int]:
    """Return of how many transfers an activation consists, and a gradient: nothing was computed between them.

    Where no compute is known, or not all have as many, it is one.
    """
    before = np.concatenate([r.compute_before for r in ranks])[moved.sender]
    way = 2 * moved.run + moved.down
    order = np.lexsort((matched.start[moved.sender], way))
    fresh = np.append(True, way[order][1:] != way[order][:-1])
    between = np.diff(before[order], prepend=0)
    most = np.zeros(int(way.max()) + 1)
    np.maximum.at(most, way[order][~fresh], between[~fresh])
    fresh |= (between > _BETWEEN * most[way[order]]) | (most[way[order]] == 0)
    first = np.flatnonzero(fresh)
    size, down = np.diff(np.append(first, len(order))), moved.down[order][first]
    return max(gcd(*size[down].tolist()), 1), max(gcd(*size[~down].tolist()), 1)


def _in_order(
    matched: Matched, moved: _Transfers, stages: PipelineStages, micro: int, parts: tuple[int, int]
) -> Schedule:
    """Tell the order of a pipeline without chunks by how far each stage is ahead of the gradients that come back."""
    # As the upper rank of each link has them: what it sends, and what comes back; of one operation the former first.
    row = np.where(moved.down, moved.sender, moved.receiver)
    order = np.lexsort((~moved.down, matched.start[row], moved.run))
    run, step = moved.run[order], np.where(moved.down[order], parts[1], -parts[0])
    most = np.zeros(stages.count - 1, np.int64)
    np.maximum.at(most, moved.link[order], np.cumsum(step))  # as much comes back as went: each run begins at none
    ahead = -(-most // (parts[0] * parts[1]))
    behind = np.arange(stages.count - 1, 0, -1)
    one_by_one = bool(((ahead == np.minimum(behind, micro)) | (ahead == np.minimum(behind + 1, micro))).all())
    all_first = not ((step[1:] > step[:-1]) & (run[1:] == run[:-1])).any()
    joined = len(distinct(np.concatenate([moved.sender, moved.receiver]))) < 2 * len(moved.sender)
    if one_by_one and (joined or not all_first):
        why = say_n("per step {n} activation over every link, {n} gradient back, at most {ahead} ahead",
                    "per step {n} activations over every link, {n} gradients back, at most {ahead} ahead", micro,
                    ahead=int(ahead[0]))  # fmt: skip
        return Schedule(why, micro, 1, ONE_BY_ONE)
    if one_by_one:
        why = say_n("per step {n} activation over every link, {n} gradient back: alike in 1F1B and GPipe",
                    "per step {n} activations over every link, {n} gradients back: too few to tell 1F1B from GPipe",
                    micro)  # fmt: skip
        return Schedule(why, micro, 1)
    if all_first:
        why = say("per step {n} activations over every link, and only then {n} gradients back", n=micro)
        return Schedule(why, micro, 1, ALL_FORWARD_FIRST)
    return Schedule(say("activations and gradients are in an order that is neither 1F1B's nor GPipe's"))


def _between(spent: I64, times: int) -> F64:
    """Return what is computed between exchanges, the median of all runs of ``times`` of them, ns."""
    return np.asarray(np.median(np.diff(spent.reshape(-1, times), axis=1), axis=0))


def _by_exchanges(ranks: Sequence[RankSummary], matched: Matched, stages: PipelineStages, pairs: I64) -> Schedule:
    """Tell the schedule by how often stages exchange, where it is not recorded who received.

    1F1B joins a send with the next receive once the pipeline is full: over each link it exchanges as often as there are
    micro-batches and stages behind; GPipe twice per micro-batch. Of two stages both may be as many: then in 1F1B the
    last one computes alike between exchanges, in GPipe most between its last forward and its first backward.
    """
    unknown = Schedule(say("it is not recorded who sends and who receives"))
    place = np.sort(matched.rank[pairs], axis=1)
    stage = np.sort(stages.of[place], axis=1)
    run = alike(place[:, 0], place[:, 1], matched.step[pairs[:, 0]])
    count = np.bincount(run)[run]
    often = [distinct(count[stage[:, 0] == link]).tolist() for link in range(stages.count - 1)]
    if (np.diff(stage) != 1).any() or any(len(found) != 1 for found in often):
        return unknown
    times = [found[0] for found in often]
    behind, last = range(stages.count - 1, 0, -1), times[-1]
    upper, lower = np.take_along_axis(pairs, np.argsort(stages.of[matched.rank[pairs]], axis=1), axis=1).T
    spent = np.concatenate([r.compute_before for r in ranks])

    def between(end: I64, link: int) -> F64:
        rows = np.flatnonzero(stage[:, 0] == link)
        return _between(spent[end[rows]][np.lexsort((matched.start[end[rows]], run[rows]))], times[link])

    if min(times) < 2:
        return unknown
    first, final = between(upper, 0), between(lower, stages.count - 2)
    # Where gradients come back the first stage computes now more, now less; with one micro-batch nothing between.
    back = first.max() > _EVEN * first.min() if last > 2 else first.max() < _BETWEEN * final.max()
    if not back:
        return unknown
    one_by_one = all(n == last - 1 + min(b, last - 1) for n, b in zip(times, behind, strict=True))
    all_first = last % 2 == 0 and len({*times}) == 1
    if one_by_one and all_first and last > 2:
        middle, others = final[last // 2 - 1], np.delete(final, last // 2 - 1)
        all_first = bool(middle > _EVEN * others.max())
        one_by_one = bool(final.max() <= _EVEN * final.min())
    if last == 2 and (one_by_one or all_first):
        return Schedule(say("each link has an exchange forward and one back per step"), 1, 1)
    if one_by_one and not all_first:
        why = say("the last two stages exchange {times} times per step, once more than there are micro-batches",
                  times=last)  # fmt: skip
        return Schedule(why, last - 1, 1, ONE_BY_ONE)
    if all_first and not one_by_one:
        why = say("stages exchange {times} times per step, twice per micro-batch", times=last)
        return Schedule(why, last // 2, 1, ALL_FORWARD_FIRST)
    return unknown


# -- One step of one pipeline, drawn: when each stage works on which micro-batch, and when it waits.

#: Stretches shorter than this part of the step are no wider than half a point of a picture.
_SEEN: Final = 1 / 2000
#: Of more stretches, later stages are left out.
_MOST: Final = 3000


class _Work(Struct, frozen=True):
    """Where a stage computes between two exchanges (ns, its own clock), and for which micro-batches (-1: none)."""

    start: int
    end: int
    forward: int
    backward: int


class _Flow(Struct, frozen=True):
    """Per operation whether it brings or takes an activation or a gradient: columns in, out of each way; ``parts``."""

    moves: Mask
    parts: tuple[int, int]

    @classmethod
    def of(cls, ranks: Sequence[RankSummary], matched: Matched, moved: _Transfers) -> _Flow:
        """Note what was transferred at its operations: activation in and out, gradient in and out."""
        moves = np.zeros((len(matched.rank), 4), np.bool_)
        for way, down in ((0, moved.down), (2, ~moved.down)):
            moves[moved.receiver[down], way] = True
            moves[moved.sender[down], way + 1] = True
        return cls(moves, _parts(ranks, matched, moved))


def step_in_time(
    ranks: Sequence[RankSummary],
    matched: Matched,
    waits: JobWaits,
    clocks: Clocks,
    stages: PipelineStages,
    windows: Sequence[PipelineTime],
    schedule: Schedule,
) -> PipelineStep | None:
    """Return the step of median length of the first pipeline whose ranks are all known in time, None without one."""
    pairs = _pairs(ranks, matched, stages)
    own = {(w.rank, int(matched.step[w.p2p[0]])): w for w in windows}
    for members in _pipelines(matched, pairs, stages, len(ranks)):
        shared = set.intersection(*({step for rank, step in own if rank == m} for m in members))
        known = all(ranks[m].exposed_known and ranks[m].compute_ns for m in members)
        if shared and known and len({*clocks.part[members].tolist()}) == 1:
            break
    else:
        return None
    bounds = {step: [_bounds(ranks[m], step) for m in members] for step in shared}
    step = sorted(shared, key=lambda s: (bounds[s][0][1] - bounds[s][0][0], s))[(len(shared) - 1) // 2]
    moved = _moved(ranks, matched, stages, pairs) if schedule.micro_batches and schedule.chunks == 1 else None
    works: list[list[_Work]] | None = None
    if moved is not None and len(moved.link):
        flow = _Flow.of(ranks, matched, moved)
        found = [_works(ranks[m], matched, own[m, step], flow, schedule) for m in members]
        works = [one for one in found if one is not None]
        works = works if len(works) == len(found) else None
    # Exact whole numbers: the job's clock where each rank's step begins and ends.
    begin, end = (np.array([b[i] for b in bounds[step]]) for i in (0, 1))
    first = int(clocks.corrected(np.array(members), begin).min())
    span = int(clocks.corrected(np.array(members), end).max()) - first
    tracks: list[StageTrack] = []
    for i, m in enumerate(members):
        split = turns(ranks[m], matched, waits, m)[0]
        track = _track(ranks[m], split, bounds[step][i], works[i] if works else [], round(_SEEN * span))
        times = [clocks.corrected(np.full(len(t), m), t) - first for t in (track.start, track.end)]
        if tracks and sum(len(t.what) for t in tracks) + len(track.what) > _MOST:
            break
        tracks.append(
            StageTrack(stage=i, rank=ranks[m].rank, start_ns=times[0].tolist(), end_ns=times[1].tolist(),
                       what=track.what, forward=track.forward, backward=track.backward)
        )  # fmt: skip
    return PipelineStep(step=step if step >= 0 else None, span_ns=span, told=works is not None, stages=tracks)


def _pipelines(matched: Matched, pairs: I64, stages: PipelineStages, ranks: int) -> list[list[int]]:
    """Return the ranks (places) of pipelines, in the order of their stages, each with one rank per stage."""
    label = np.arange(ranks)
    ends = matched.rank[pairs]
    for _ in range(stages.count):  # a pipeline is no longer
        lowest = label[ends].min(axis=1)
        for side in (0, 1):
            np.minimum.at(label, ends[:, side], lowest)
    found = []
    for one in distinct(label[ends].ravel()).tolist():
        members = np.flatnonzero(label == one)
        members = members[np.argsort(stages.of[members], kind="stable")]
        if stages.of[members].tolist() == [*range(stages.count)]:
            found.append(members.tolist())
    return found


def _bounds(rank: RankSummary, step: int) -> tuple[int, int]:
    """Return from when to when a rank's step lasts, by its own clock."""
    at = np.flatnonzero(rank.step_number == step)
    return (int(rank.step_start[at[0]]), int(rank.step_end[at[0]])) if len(at) else (rank.begin, rank.end)


def _works(
    rank: RankSummary, matched: Matched, own: PipelineTime, flow: _Flow, schedule: Schedule
) -> list[_Work] | None:
    """Find between which exchanges a stage works on which micro-batch, None where they do not tell.

    What is sent after a stretch was made in it: an activation by a forward, a gradient by a backward. What is sent to
    nobody (the last stage's activation, the first one's gradient) was made right after what it needs had come.
    Exchanges that nothing is computed between are one moment.
    """
    rows = own.p2p[flow.moves[own.p2p].any(axis=1)]
    if not len(rows):
        return None
    moves = flow.moves[rows]
    number = (np.cumsum(moves, axis=0) - 1) // np.repeat(flow.parts, 2)
    spent = rank.compute_before[rows - matched.first[own.rank]]
    least = _BETWEEN * max(int(np.diff(spent).max(initial=0)), 1)
    moment = np.cumsum(np.append(0, np.diff(spent) > least))
    # What there is at this stage: activation in and out, gradient in and out.
    told = [bool(moves[:, way].any()) for way in range(4)]
    begin, receives = own.begin, moves[:, 0] | moves[:, 2]
    done: tuple[set[int], set[int]] = (set(), set())
    arrived: tuple[set[int], set[int]] = (set(), set())
    found = []
    for k in range(int(moment[-1]) + 2):
        here = moment == k
        end = int(matched.start[rows[here]].min()) if here.any() else own.end
        sent = [{*number[here & moves[:, 2 * way + 1], 2 * way + 1].tolist()} - done[way] for way in (0, 1)]
        work = [sent[way] if told[2 * way + 1] else arrived[way] - done[way] for way in (0, 1)]
        if max(map(len, work)) > 1 or (any(work) and end <= begin):
            return None
        if any(work):
            found.append(_Work(begin, end, *(next(iter(one), -1) for one in work)))
        elif 0 < k <= int(moment[-1]):
            return None  # it computed something, and nothing says what
        for way in (0, 1):
            done[way].update(work[way])
        arrived = ({*number[here & moves[:, 0], 0].tolist()}, {*number[here & moves[:, 2], 2].tolist()})
        if here.any():
            got = here & receives
            begin = int(matched.end[rows[got]].max()) if got.any() else int(matched.start[rows[here]].min())
    both = schedule.name != FORWARD_ONLY
    every = {*range(schedule.micro_batches or 0)}
    return found if done == (every, every if both else set()) else None


class _Stretches(Struct):
    start: I64
    end: I64
    what: list[StageDoing]
    forward: list[int]
    backward: list[int]


def _track(rank: RankSummary, waited: I64, bounds: tuple[int, int], works: list[_Work], least: int) -> _Stretches:
    """Split a rank's step: communication that nothing hides, micro-batches, and its own time beside these."""
    low, high = bounds
    ends = (rank.exposed_start, waited), (waited, rank.exposed_end)
    wait, moving = (Intervals.union(np.clip(a, low, high), np.clip(b, low, high)) for a, b in ends)
    free = wait.joined(moving).gaps(low, high)
    found: list[tuple[int, int, StageDoing, int, int]] = []
    found += [(a, b, "wait", -1, -1) for a, b in _ends(wait)]
    found += [(a, b, "communication", -1, -1) for a, b in _ends(moving)]
    taken = Intervals.union(*(np.array([getattr(w, end) for w in works], np.int64) for end in ("start", "end")))
    found += [(a, b, "own", -1, -1) for a, b in _ends(free.minus(taken))]
    for work in works:
        name: StageDoing = "forward" if work.forward >= 0 else "backward"
        if min(work.forward, work.backward) >= 0:
            name = "both"
        found += [
            (max(a, work.start), min(b, work.end), name, work.forward, work.backward)
            for a, b in _ends(free.near(work.start, work.end))
        ]
    seen = sorted(one for one in found if one[1] - one[0] > least)
    start, end, what, forward, backward = ([*column] for column in zip(*seen, strict=True)) if seen else ([],) * 5
    return _Stretches(np.array(start, np.int64), np.array(end, np.int64), what, forward, backward)


def _ends(intervals: Intervals) -> list[tuple[int, int]]:
    return [*zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)]

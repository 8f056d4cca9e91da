"""Whether ranks are of one run at all, and where a clock was set while it was recorded.

All ranks leave a collective together, whoever came last. So the ends of their common operations lie a constant apart,
and a drift of less than a thousandth: what is more is no drift of a clock. A clock that is set moves all that comes
after by as much, once or twice; ends that are apart otherwise are of programs that did not run together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from npuperf.device.rank_summary import RankSummary
from npuperf.device.witness import SetBack, find_set_back
from npuperf.job.clocks import DRIFT_MOST, ENDS_APART, Ends, evenly, line, walk
from npuperf.job.match import Matched
from npuperf.model.groups import distinct
from npuperf.model.labels import F64, I64, Mask

#: So many of the ends must be where they belong: some operations end late on one rank.
_MOST: Final = 0.9
#: Of so many operations at least it is told how most of their ends lie, and of so many if all lie alike.
_LEAST, _FEW = 6, 4
#: Then they must be this many times as far apart as ends of one operation may be.
_FAR: Final = 10
#: A clock was set where so many ends before and so many after lie apart.
_SIDE: Final = 2
#: A clock is set no more often while it is recorded.
_JUMPS_MOST: Final = 2
#: Of more operations than this part, some must have been left before all had come: they are none in common.
_HALF: Final = 0.5


class Jump(Struct, frozen=True):
    """The clock of the rank at ``place`` was set: from ``at`` on (ns, as it shows) ``by`` is to be added."""

    place: int
    at: int
    by: int


class Apart(Struct, frozen=True):
    """Why two ranks (places) are of different runs: their clocks would drift so (``drift``), so large a share of their
    common operations was left before all had come (``early``), the steps of one take so much longer that they cannot
    be the other's (``steps``), or they were recorded at different times (``time``, ns).
    """

    places: tuple[int, int]
    why: Literal["drift", "early", "steps", "time"]
    value: float


class Runs(Struct, frozen=True):
    """The ranks (places) of each run, and for each but the first why it is another one."""

    places: tuple[tuple[int, ...], ...]
    apart: tuple[Apart, ...]


def look(ranks: Sequence[RankSummary], matched: Matched) -> tuple[Runs | None, list[Jump]]:
    """Return the runs that ranks are of, None where they can be of one, and where clocks were set in that."""
    chosen = evenly(matched)
    meetings = _meetings(matched, chosen)
    runs = _find_runs(ranks, matched, meetings)
    if runs is not None or all(_settled(own) for own in meetings):
        return runs, []
    return None, _find_jumps(len(ranks), matched, chosen, meetings)


def find_set_backs(ranks: Sequence[RankSummary], matched: Matched) -> dict[int, SetBack]:
    """Return by place whose clocks were set back so far that the numbers of operations tell, and what that mixes up.

    By how much, the ends of a rank tell whose clock nobody set back, if there is one.
    """
    told = {place: back for place, rank in enumerate(ranks) if (back := find_set_back(rank.operations)) is not None}
    if not told:
        return {}
    meetings, found = _meetings(matched, evenly(matched)), dict[int, SetBack]()
    for place, back in told.items():
        by = [
            jump.by
            for meeting in meetings
            for peer in list(meeting.keys() - told.keys())[:1]
            if place in meeting
            for mine, theirs in [meeting[peer].beside(meeting[place])]
            for jump in _jumps_in(theirs.end, mine.end)
        ]
        most = max([back.by, *map(round, by)])
        # Set was it after the last end before that, and before the first start after that.
        found[place] = SetBack(most, min(back.start, back.end - most), max(back.end, back.start + most))
    return found


class _Own(Struct, frozen=True):
    """The chosen operations of one rank in one group: their numbers, and their times, ns from the origin on."""

    instance: I64
    start: F64
    end: F64

    def beside(self, other: _Own) -> tuple[_Own, _Own]:
        """Return those of both that both have, in the order of time."""
        _, a, b = np.intersect1d(self.instance, other.instance, assume_unique=True, return_indices=True)
        order = np.argsort(self.end[a], kind="stable")
        return self.take(a[order]), other.take(b[order])

    def take(self, rows: I64) -> _Own:
        """Return some of them."""
        return _Own(self.instance[rows], self.start[rows], self.end[rows])


#: Of a group, the operations of each of its ranks, by its place.
_Meeting = dict[int, _Own]


def _meetings(matched: Matched, chosen: Mask) -> list[_Meeting]:
    """Return the operations of each group."""
    ends = Ends.of(matched, chosen)
    rows = matched.members[chosen[matched.instance[matched.members]]]
    group = matched.instance_group[matched.instance[rows]]
    found: list[_Meeting] = [{} for _ in matched.groups]
    order = np.lexsort((ends.rank, group))
    cuts = np.flatnonzero((np.diff(group[order]) != 0) | (np.diff(ends.rank[order]) != 0)) + 1
    for own in np.split(order, cuts) if len(order) else []:
        found[group[own[0]]][int(ends.rank[own[0]])] = _Own(ends.instance[own], ends.start[own], ends.end[own])
    return found


def _find_runs(ranks: Sequence[RankSummary], matched: Matched, meetings: Sequence[_Meeting]) -> Runs | None:
    """Put ranks together that can be of one run; None where all can, or where nothing tells."""
    found: list[Apart] = []
    untold: list[tuple[int, int]] = []
    run = np.arange(len(ranks))
    for group, meeting in zip(matched.groups, meetings, strict=True):
        led = list(group.members[:1])
        for member in group.members[1:]:
            reasons: list[Apart] = []
            for leader in led:
                reason = _apart(ranks, meeting, (leader, member))
                if reason is None:
                    untold.append((leader, member))
                elif isinstance(reason, bool):
                    run[run == run[member]] = run[leader]
                    break
                else:
                    reasons.append(reason)
            else:
                led += [member] if len(reasons) == len(led) else []
                found += reasons
    if not found:
        return None
    for a, b in untold:  # together, unless others of theirs are known not to be
        if not any({run[a], run[b]} == {run[p] for p in apart.places} for apart in found):
            run[run == run[b]] = run[a]
    runs = sorted((tuple(np.flatnonzero(run == r).tolist()) for r in distinct(run).tolist()), key=lambda own: -len(own))
    if len(runs) < 2:
        return None
    of_first = [next((a for a in found if {*a.places} & {*own} and {*a.places} & {*runs[0]}), None) for own in runs[1:]]
    return Runs(tuple(runs), tuple(reason or found[0] for reason in of_first))


def _apart(ranks: Sequence[RankSummary], meeting: _Meeting, places: tuple[int, int]) -> Apart | bool | None:
    """Say why two ranks of a group cannot be of one run; True where they can, None where nothing tells."""
    one, other = (ranks[p] for p in places)
    spans = [(int(r.step_start[-1] - r.step_start[0]), r) for r in (one, other) if len(r.step_start) > 2]
    if len(spans) == 2 and len(one.step_start) == len(other.step_start):
        # Ranks of one group begin a step within a step's length of each other.
        longest = max(int(np.diff(r.step_start).max()) for _, r in spans)
        if abs(spans[0][0] - spans[1][0]) > 2 * longest:
            return Apart(places, "steps", spans[1][0] / max(spans[0][0], 1))
    if not {*places} <= meeting.keys():
        return None
    mine, theirs = meeting[places[0]].beside(meeting[places[1]])
    start, end, start2, end2 = mine.start, mine.end, theirs.start, theirs.end
    if len(end) < _FEW:
        return None
    apart = end - end2
    if _steady(end, apart):
        return True
    if len(end) < _LEAST:  # too few for a slope that some may miss: all must go one way, and far
        steps, span = np.diff(apart), float(np.ptp(end))
        far = abs(float(steps.sum())) > _FAR * 2 * ENDS_APART + DRIFT_MOST * span
        return (
            Apart(places, "drift", float(steps.sum()) / span) if far and len({*np.sign(steps).tolist()}) == 1 else None
        )
    jumps = _jumps_in(end2, end)
    moved = _moved(end2, jumps) if len(jumps) <= _JUMPS_MOST else end2
    offset, drift = line(moved, end)
    left = np.abs(end - moved * (1 + drift) - offset)
    span, usual = float(np.ptp(end)), float(np.median(left))
    if abs(drift) > DRIFT_MOST and abs(drift) * span > 2 * ENDS_APART + 3 * usual:
        return Apart(places, "drift", drift)
    shift = moved * (1 + drift) + offset - end2
    early = np.maximum(start, start2 + shift) - np.minimum(end, end2 + shift) > ENDS_APART
    if early.mean() > _HALF:
        return Apart(places, "early", float(early.mean()))
    longest_window = max(one.end - one.begin, other.end - other.begin)
    if (usual > 2 * ENDS_APART or jumps) and abs(offset) > longest_window:
        return Apart(places, "time", abs(offset))
    return True


def _steady(time: F64, apart: F64) -> bool:
    """Tell whether ends lie a constant and a drift apart, without looking closer."""
    return bool(np.mean(_in_place(time, apart)) >= _MOST)


def _in_place(time: F64, apart: F64) -> Mask:
    """Tell which ends lie no further from most of them than a drift explains."""
    most = 2 * ENDS_APART + DRIFT_MOST * float(np.ptp(time))
    return np.asarray(np.abs(apart - np.median(apart)) <= most)


def _settled(meeting: _Meeting) -> bool:
    """Tell whether no end in a group lies so far from the one before that a clock may have been set between them."""
    own = list(meeting.values())
    for other in own[1:]:
        one, two = own[0].beside(other)
        most = 2 * ENDS_APART + DRIFT_MOST * np.diff(one.end)
        if len(most) > 1 and (np.abs(np.diff(one.end - two.end)) > most).any():
            return False
    return True


class _Set(Struct, frozen=True):
    """A clock was set between the ends ``since`` and ``at`` (ns, as it shows): ``by`` is to be added from then on."""

    since: float
    at: float
    by: float


def _jumps_in(own: F64, known: F64) -> list[_Set]:
    """Return where the clock that shows ``own`` was set, by the same ends on a clock that is known.

    There all of the ends before and all of those after lie further apart than any drift explains.
    """
    order = np.argsort(known, kind="stable")
    own, known = own[order], known[order]
    apart = known - own
    cuts: list[int] = []
    todo = [(0, len(own))]
    while todo and len(cuts) <= _JUMPS_MOST:
        a, b = todo.pop()
        if b - a < 2 * _SIDE:
            continue
        beside = np.lib.stride_tricks.sliding_window_view(apart[a:b], _SIDE)
        low, high = beside.min(axis=1), beside.max(axis=1)
        size = np.maximum(low[_SIDE:] - high[:-_SIDE], low[:-_SIDE] - high[_SIDE:])
        around = known[a + 2 * _SIDE - 1 : b] - known[a : b - 2 * _SIDE + 1]
        beyond = size - (2 * ENDS_APART + DRIFT_MOST * around)
        if beyond.max() <= 0:
            continue
        cut = a + _SIDE + int(np.argmax(beyond))
        cuts.append(cut)
        todo += [(a, cut), (cut, b)]
    if not cuts:
        return []
    bounds = [0, *sorted(cuts), len(own)]

    def levels(drift: float) -> list[_Set]:
        level = [float(np.median((apart - drift * own)[a:b])) for a, b in pairwise(bounds)]
        return [_Set(float(own[cut - 1]), float(own[cut]), after - before)
                for cut, (before, after) in zip(bounds[1:-1], pairwise(level), strict=True)]  # fmt: skip

    pieces = [line(own[a:b], known[a:b])[1] for a, b in pairwise(bounds) if b - a > _SIDE]
    return levels(float(np.median(pieces)) if pieces else 0.0)


def _moved(own: F64, jumps: Sequence[_Set]) -> F64:
    return np.asarray(own + sum((np.where(own >= jump.at, jump.by, 0.0) for jump in jumps), np.zeros(len(own))))


def _told_by_one(meetings: Sequence[_Meeting]) -> dict[int, list[list[_Set]]]:
    """Return by place where clocks were set if it was not that of the one other rank that tells it."""
    told = defaultdict[int, list[list[_Set]]](list)
    for meeting in meetings:
        if _settled(meeting):
            continue
        (first, own), *others = meeting.items()
        for place, theirs in others:
            one, two = own.beside(theirs)
            for mine, at, known in ((first, one.end, two.end), (place, two.end, one.end)):
                found = _jumps_in(at, known)
                if 0 < len(found) <= _JUMPS_MOST:
                    told[mine].append(found)
    return told


def _find_jumps(ranks: int, matched: Matched, chosen: Mask, meetings: Sequence[_Meeting]) -> list[Jump]:
    """Return where clocks were set; what most clocks say at that time counts.

    Ranks that have few ends in common with those that are known do not tell it by these alone: of what another rank
    tells, that counts which more of them agree with than with a clock that nobody set.
    """
    ends = Ends.of(matched, chosen)
    raw: list[list[_Set]] = [[] for _ in range(ranks)]
    told = _told_by_one(meetings)

    def fit(rank: int, every: F64, own: F64, known: F64) -> tuple[F64, tuple[float, float]]:
        def agreeing(jumps: Sequence[_Set]) -> int:
            return int(np.count_nonzero(_in_place(known, known - _moved(own, jumps))))

        found = _jumps_in(own, known) or max(([], *told.get(rank, ())), key=agreeing)
        raw[rank] = found if len(found) <= _JUMPS_MOST else []
        return _moved(every, raw[rank]), line(_moved(own, raw[rank]), known)

    offset, drift = walk(ends, ranks, fit)
    found: list[Jump] = []

    def seen(place: int, jump: _Set) -> bool:
        return _seen(matched, place, jump, ends.origin)

    for place, own in enumerate(_by_most(raw, offset, drift, seen)):
        mine, done = slice(*matched.first[place : place + 2].tolist()), 0.0
        times = np.sort(np.concatenate([matched.start[mine], matched.end[mine]])) - ends.origin
        for jump in sorted(own, key=lambda one: one.at):
            jump = _nearer(matched, place, jump, (offset, drift), ends.origin)
            # In the longest stretch between the two ends: a clock that was set forward made it longer.
            here = times[(times >= jump.since) & (times <= jump.at)]
            edge = int(here[int(np.argmax(np.diff(here)))]) + 1 if len(here) > 1 else round(jump.at)
            found.append(Jump(place, edge + ends.origin + round(done), round(jump.by)))
            done += jump.by
    return found


def _nearer(matched: Matched, place: int, jump: _Set, clocks: tuple[F64, F64], origin: int) -> _Set:
    """Narrow down where a clock was set: by all operations of the rank, which end near their other ends before it, and
    after it with what is to be added. ``clocks``: offset and drift of each rank.
    """
    offset, drift = clocks

    def common(rows: I64) -> F64:
        of = matched.rank[rows]
        return np.asarray((matched.end[rows] - origin) * (1 + drift[of]) + offset[of])

    mine = np.flatnonzero((matched.rank == place) & (matched.instance >= 0))
    own = matched.end[mine] - origin
    mine = mine[(own >= jump.since - abs(jump.by)) & (own <= jump.at + abs(jump.by))]
    first = matched.members[matched.starts][matched.instance[mine]]
    peer = np.where(first == mine, matched.members[matched.starts + 1][matched.instance[mine]], first)
    order = np.argsort(common(peer), kind="stable")
    mine, apart = mine[order], (common(mine) - common(peer))[order]
    after = np.abs(apart + jump.by) < np.abs(apart)
    wrong = np.append(0, np.cumsum(after)) + np.append(np.cumsum(~after[::-1])[::-1], 0)  # by how many come before
    cut = int(np.argmin(wrong))
    end = (matched.end[mine] - origin).astype(np.float64)
    return _Set(float(end[cut - 1]) if cut else jump.since, float(end[cut]) if cut < len(end) else jump.at, jump.by)


def _seen(matched: Matched, place: int, jump: _Set, origin: int) -> bool:
    """Tell whether a rank's own times show that its clock was set: between the two ends lies more or less than between
    the same two in other steps. Where there are none nothing speaks against it.
    """
    mine = slice(*matched.first[place : place + 2].tolist())
    order = np.argsort(matched.end[mine], kind="stable")
    end, step = matched.end[mine][order] - origin, matched.step[mine][order]
    seen, nth = Counter[int](), list[int]()  # of each operation, its place in its step
    for n in step.tolist():
        nth.append(seen[n])
        seen[n] += 1
    since, at = (int(np.argmin(np.abs(end - time))) for time in (jump.since, jump.at))
    ends = dict(zip(zip(step.tolist(), nth, strict=True), end.tolist(), strict=True))
    later = int(step[at] - step[since])
    others = seen.keys() - {-1, int(step[since])}
    alike = [(ends.get((n, nth[since])), ends.get((n + later, nth[at]))) for n in others]
    usual = [b - a for a, b in alike if a is not None and b is not None]
    return not usual or 2 * abs(end[at] - end[since] - float(np.median(usual))) > abs(jump.by)


def _by_most(
    raw: Sequence[Sequence[_Set]], offset: F64, drift: F64, seen: Callable[[int, _Set], bool]
) -> list[list[_Set]]:
    """Return the jumps of each rank; where most ranks seem to jump at once, it is the clock they are held against.

    Where half of them do, so it is if a rank's own times show nothing of it (not ``seen``).
    """
    jumps = [list(own) for own in raw]

    def common(place: int, time: float) -> float:
        return float(time * (1 + drift[place]) + offset[place])

    for place, own in enumerate(raw):
        for jump in own:
            if jump not in jumps[place]:
                continue
            alike = [
                (p, other)
                for p, theirs in enumerate(jumps)
                for other in theirs
                if abs(other.by - jump.by) <= 2 * ENDS_APART + abs(jump.by) / 10
                and common(p, other.since) <= common(place, jump.at)
                and common(place, jump.since) <= common(p, other.at)
            ]
            half = 2 * len(alike) == len(raw) and not all(seen(p, other) for p, other in alike)
            if 2 * len(alike) <= len(raw) and not half:
                continue
            since = max(common(p, other.since) for p, other in alike)
            at = min(common(p, other.at) for p, other in alike) + jump.by
            for p, other in alike:
                jumps[p].remove(other)
            for p in {*range(len(raw))} - {p for p, _ in alike}:
                first, last = ((time - offset[p]) / (1 + drift[p]) for time in (since, at))
                jumps[p].append(_Set(float(first), float(last), -jump.by))
    return jumps

"""Run a program stretch by stretch: most instructions only follow the one before them, on their thread and stream.

On the host such instructions add up; on a stream ``end = max(end before + step, host + launch)``, which unrolls to
running sums and maxima. So a stretch of them, whose first may also wait for another stream, is a single instruction.
The short program of stretches, and of what has to stay by itself, is executed; its times are those between stretches,
from which the times within them follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.host.nesting import NONE
from npuperf.model.groups import distinct
from npuperf.model.labels import I32, I64, Mask
from npuperf.replay.maxplus import NEVER, Program, Times, run

#: Columns that say which clocks are read and written, and those that say which arms are on.
_WIRES: Final = ("pred", "waited", "host", "stream", "other", "save", "initial")
_ARMS: Final = ("waited_ns", "other_ns", "gap_ns", "overlap_ns")
#: Columns that say how one instruction follows another on its stream.
_STEPS: Final = ("gap_ns", "extra_ns", "dur_ns", "overlap_ns")
#: Longer than any run, ns: a clock that was never set counts as this much before the end of its first stretch.
_LONGEST: Final = 1 << 50
#: Instructions that are worked on at once.
_PORTION: Final = 1 << 14


class Shortcut(Struct, frozen=True):
    """How a program is shortened; programs with the same clocks may share it.

    ``kinds``: what instructions are. ``by_host``: all of them, host clock by host clock; ``setters``: the places in it
    at which a clock is set anew. ``alone``: instructions that the short program has as they are; ``moved`` and
    ``behind``: how far their own host clock, and the one that they follow, have moved. ``plain``: the others that
    occupy a stream, stream by stream; ``place``: theirs in ``by_host``. Of each stretch: ``first``, an index into
    ``plain``; ``since``, the place where its host clock was set. ``short``: the wires of the short program, in which
    ``of_alone`` and ``of_stretch`` are the instructions; ``before`` and ``awaited``: those in it that set last the
    clock of each stretch's stream, and the other clock that its first instruction awaits. ``clocks`` and ``steps`` are
    those of the program itself, which many a changed one leaves as they are.
    """

    program: Program
    kinds: _Kinds
    by_host: I32
    setters: I64
    alone: I64
    moved: _Moved
    behind: _Moved
    plain: I32
    place: I32
    first: I64
    since: I64
    short: dict[str, I32]
    of_alone: I64
    of_stretch: I64
    before: I64
    awaited: I64
    clocks: _Clocks
    steps: _Steps

    @classmethod
    def of(cls, program: Program) -> Shortcut:
        """Find the stretches: O(instructions)."""
        kinds = _Kinds.of(program)
        by_host = _clock_by_clock(program.host)
        place = np.empty_like(by_host)
        place[by_host] = np.arange(len(by_host))
        begins = kinds.sets[by_host] | _differs(program.host[by_host])
        since = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
        alone = np.flatnonzero(kinds.alone)
        plain = np.flatnonzero(~kinds.alone & (program.stream != program.trash)).astype(np.int32)
        plain = plain[_clock_by_clock(program.stream[plain])]
        plain_place = place[plain]
        first = np.flatnonzero(_breaks(program, kinds, plain, since[plain_place]))
        heads = plain[first]
        order = np.argsort(np.concatenate([alone, heads]), kind="stable")
        short = np.empty_like(order)
        short[order] = np.arange(len(order))
        of_alone, of_stretch = np.split(short, [len(alone)])
        wires = _wires(program, kinds, alone, heads, order)
        own, behind = place[alone].astype(np.int64), _behind(program, by_host, alone)
        setters = np.flatnonzero(kinds.sets[by_host])
        return cls(
            program=program,
            kinds=kinds,
            by_host=by_host,
            setters=setters,
            alone=alone,
            moved=_Moved(own, since[own]),
            behind=_Moved(behind, np.where(behind >= 0, since[behind], NONE) if len(behind) else behind),
            plain=plain,
            place=plain_place,
            first=first,
            since=since[plain_place[first]],
            short=wires,
            of_alone=of_alone,
            of_stretch=of_stretch,
            before=_last_set(wires, program.stream[heads], of_stretch),
            awaited=_last_set(wires, program.other[heads], of_stretch),
            clocks=_Clocks.of(program, by_host, setters),
            steps=_Steps.of(program, plain, first),
        )

    def fit(self, program: Program) -> bool:
        """Tell whether a program can be run by these stretches: the same clocks, and nothing more that is awaited."""
        return self._shares(program, _WIRES) and (self._has_arms(program) or self.kinds.cover(_Kinds.of(program)))

    def _has_arms(self, program: Program) -> bool:
        """Tell whether nothing more is awaited, and no more instructions follow nothing, with the same clocks."""
        for name in _ARMS:
            on, before = (getattr(one, name) for one in (program, self.program))
            if on is not before:
                more, less = (before, on) if name in _STEPS else (on, before)
                if ((more > NEVER) & (less == NEVER)).any():
                    return False
        return True

    def _shares(self, program: Program, names: tuple[str, ...]) -> bool:
        return all(getattr(program, name) is getattr(self.program, name) for name in names)

    def run(self, program: Program) -> tuple[I64, I64]:
        """Execute a program that fits; return start and end of its instructions, NEVER where they occupy no stream.

        O(instructions), and what :func:`npuperf.replay.maxplus.run` needs for the short program.
        """
        tracks, done = self._run_short(program)
        start, end = (np.full(len(program), NEVER) for _ in range(2))
        own_start, own_end = tracks.times()
        for part in _portions(len(self.plain)):
            which = self.plain[part].astype(np.intp)
            start[which], end[which] = own_start[part], own_end[part]
        start[self.alone], end[self.alone] = done.start[self.of_alone], done.end[self.of_alone]
        return start, end

    def run_to(self, program: Program, asked: I64) -> tuple[I64, I64, int] | None:
        """Execute a program that fits; return start and end of a few instructions that occupy a stream.

        The last number is when all have ended. None where streams could go back, so that each would have to be seen.
        """
        tracks, done = self._run_short(program)
        if not tracks.steps.forward:
            return None
        found = np.array([self._times_of(i, tracks, done) for i in asked.tolist()], np.int64).reshape(-1, 2)
        occupied = self.short["stream"] != self.program.trash
        return found[:, 0], found[:, 1], int(done.end[occupied].max(initial=NEVER))

    def _times_of(self, instruction: int, tracks: _Tracks, done: Times) -> tuple[int, int]:
        if self.kinds.alone[instruction]:
            at = self.of_alone[np.searchsorted(self.alone, instruction)]
            return int(done.start[at]), int(done.end[at])
        return tracks.times_at(int(np.flatnonzero(self.plain == instruction)[0]))

    def _run_short(self, program: Program) -> tuple[_Tracks, Times]:
        """Execute the short program; return the plain instructions, put in between its times, and these."""
        same = self._shares(program, ("host_ns",))
        clocks = self.clocks if same else _Clocks.of(program, self.by_host, self.setters)
        steps = self.steps if self._shares(program, _STEPS) else _Steps.of(program, self.plain, self.first)
        launched, late = np.empty_like(steps.total), np.empty_like(steps.total)
        for part in _portions(len(self.plain)):
            clock = clocks.total.take(self.place[part])
            clock += _at(program.launch_ns, self.plain[part])
            launched[part] = clock
            clock += steps.work[part]
            np.subtract(clock, steps.total[part], out=late[part])
        done = run(self._shortened(program, clocks, steps, late))
        heads = self.plain[self.first]
        awaited = _set(done, self.awaited, program.initial[program.other[heads]]) + program.other_ns[heads]
        tracks = _Tracks(
            program=program,
            plain=self.plain,
            steps=steps,
            launched=launched,
            clock=done.host[self.of_stretch] - clocks.begun(self.since),
            before=_set(done, self.before, program.initial[program.stream[heads]]),
            awaited=awaited,
            end=done.end[self.of_stretch],
        )
        return tracks, done

    def _shortened(self, program: Program, clocks: _Clocks, steps: _Steps, late: I64) -> Program:
        """Return the short program; ``late``: by how much each launch alone would have ends exceed the sum of steps."""
        alone, first = self.alone, self.first
        own = program.host_ns[alone] + clocks.moved(self.behind)
        of_alone = {name: getattr(program, name)[alone] for name in (*_ARMS, "launch_ns", "extra_ns", "dur_ns")}
        of_alone["host_ns"] = np.where(self.kinds.sets[alone], own, clocks.moved(self.moved))
        latest = np.maximum.reduceat(late, first) if len(first) else first
        awaited_ns = program.other_ns[self.plain[first]] + steps.work[first] - steps.total[first]
        of_stretch = {
            "launch_ns": latest - clocks.begun(self.since) + steps.whole,
            "gap_ns": steps.whole - steps.base,
            "other_ns": awaited_ns + steps.whole,
        }
        nothing = {"waited_ns": NEVER, "overlap_ns": NEVER}
        columns: dict[str, Any] = dict(self.short)
        for name, values in of_alone.items():
            columns[name] = np.empty(len(self.short["pred"]), np.int64)
            columns[name][self.of_alone] = values
            columns[name][self.of_stretch] = of_stretch.get(name, nothing.get(name, 0))
        return Program(**columns, initial=program.initial)


class _Kinds(Struct, frozen=True):
    """What instructions are: ``alone`` in the short program, setting a host clock anew, awaiting another device clock.

    A host clock is set anew by what waits for the device, and by what goes on from another thread.
    """

    alone: Mask
    sets: Mask
    awaits: Mask

    @classmethod
    def of(cls, program: Program) -> _Kinds:
        if not _tidy(program):
            everything = np.ones(len(program), np.bool_)
            return cls(everything, everything, everything)
        sets = (program.pred != program.host) | (program.waited_ns > NEVER)
        unfollowed = (program.gap_ns == NEVER) & (program.overlap_ns == NEVER) & (program.stream != program.trash)
        return cls(sets | unfollowed | (program.save != program.trash), sets, program.other_ns > NEVER)

    def cover(self, other: _Kinds) -> bool:
        """Tell whether stretches made for these kinds of instructions suit others, too."""
        more = other.alone & ~self.alone | other.sets & ~self.sets | other.awaits & ~(self.awaits | self.alone)
        return not more.any()


class _Moved(Struct, frozen=True):
    """How far host clocks have moved: since when, and until when (both places in ``by_host``; NONE: not at all)."""

    until: I64
    since: I64


class _Clocks(Struct, frozen=True):
    """Host clocks one after the other: the running sum of how much each instruction moves its clock, ns."""

    total: I64

    @classmethod
    def of(cls, program: Program, by_host: I32, setters: I64) -> _Clocks:
        total = np.empty(len(program), np.int64)
        for part in _portions(len(total)):
            total[part] = _at(program.host_ns, by_host[part])
        total[setters] = 0
        return cls(np.cumsum(total, out=total))

    def moved(self, which: _Moved) -> I64:
        """Return how far clocks have moved, ns."""
        if not len(self.total):
            return which.until
        return np.where(which.until >= 0, self.total[which.until] - self.begun(which.since), 0)

    def begun(self, since: I64) -> I64:
        """Return what the running sum is before places."""
        return np.where(since > 0, self.total[np.maximum(since, 1) - 1], 0) if len(self.total) else since


class _Steps(Struct, frozen=True):
    """Plain instructions, stream by stream: from the start of each to its end (``work``), all in ns.

    ``total``: the running sum of their steps from end to end; ``base`` and ``whole``: before and after each stretch.
    ``forward``: no instruction ends before the one before it.
    """

    first: I64
    work: I64
    total: I64
    base: I64
    whole: I64
    forward: bool

    @classmethod
    def of(cls, program: Program, plain: I32, first: I64) -> _Steps:
        work, total = np.empty(len(plain), np.int64), np.empty(len(plain), np.int64)
        for part in _portions(len(plain)):
            which = plain[part].astype(np.intp)
            np.add(_at(program.extra_ns, which), _at(program.dur_ns, which), out=work[part])
            step = work[part] + _at(program.gap_ns, which)
            np.maximum(step, _at(program.overlap_ns, which), out=total[part])
        forward, step = bool(total.min(initial=0) >= 0), total[first]
        np.cumsum(total, out=total)
        whole = total[np.append(first[1:], len(plain))[: len(first)] - 1]
        return cls(first, work, total, total[first] - step, whole, forward)


class _Tracks(Struct, frozen=True):
    """Plain instructions between the times of the short program, ns.

    ``launched``: of each, by the running sum of host clocks. Of each stretch: ``clock``, by how much its host clock is
    ahead of that sum; when what is ``before`` it on its stream, and what its first instruction ``awaited``, ended; its
    end.
    """

    program: Program
    plain: I32
    steps: _Steps
    launched: I64
    clock: I64
    before: I64
    awaited: I64
    end: I64

    def _bounds(self) -> tuple[I64, I64]:
        """Return for each stretch the least and the most that ends exceed the running sum of steps, ns."""
        steps, first = self.steps, self.steps.first
        low = np.maximum(self.before - steps.base, self.awaited + steps.work[first] - steps.total[first])
        high = self.end - steps.whole
        return np.maximum(low, high - _LONGEST), high

    def times(self) -> tuple[I64, I64]:
        """Return start and end of the plain instructions."""
        steps, first = self.steps, self.steps.first
        start, end = np.empty_like(steps.total), np.empty_like(steps.total)
        if not len(first):
            return start, end
        low, high = self._bounds()
        # One running maximum over all stretches: each is lifted so that it begins where the one before it ends.
        lift = np.cumsum(np.append(0, high[:-1] - low[1:]))
        reached = NEVER
        for part in _portions(len(self.plain)):
            heads = slice(*np.searchsorted(first, (part.start, part.stop)).tolist())
            begins = first[heads] - part.start
            each = _Each.of(begins, heads, part.stop - part.start)
            which, own = self.plain[part].astype(np.intp), start[part]
            launched, lifted = self.launched[part] + each.given(self.clock), each.given(lift)
            late = launched + steps.work[part]
            late -= steps.total[part]
            np.maximum(late, each.given(low), out=late)
            late += lifted
            late[0] = max(int(late[0]), reached)
            np.maximum.accumulate(late, out=late)
            reached = int(late[-1])
            late -= lifted
            np.add(late, steps.total[part], out=end[part])
            own[1:], own[0] = end[part][:-1], end[max(part.start - 1, 0)]
            own[begins] = self.before[heads]
            own += _at(self.program.gap_ns, which)
            np.maximum(own, launched, out=own)
            own[begins] = np.maximum(own[begins], self.awaited[heads])
            own += _at(self.program.extra_ns, which)
        return start, end

    def times_at(self, at: int) -> tuple[int, int]:
        """Return start and end of one plain instruction."""
        steps = self.steps
        stretch = int(np.searchsorted(steps.first, at, side="right")) - 1
        begin, clock, low = int(steps.first[stretch]), int(self.clock[stretch]), int(self._bounds()[0][stretch])
        late = self.launched[begin : at + 1] + steps.work[begin : at + 1] - steps.total[begin : at + 1] + clock
        if at == begin:
            free, awaited = int(self.before[stretch]), int(self.awaited[stretch])
        else:
            free, awaited = max(low, int(late[:-1].max())) + int(steps.total[at - 1]), NEVER
        program, instruction = self.program, int(self.plain[at])
        start = max(int(self.launched[at]) + clock, free + int(program.gap_ns[instruction]), awaited)
        return start + int(program.extra_ns[instruction]), max(low, int(late.max())) + int(steps.total[at])


def _at(column: I64, which: I32 | I64) -> I64:
    """Return a column at some places; of one that has but one value only that."""
    return column[:1] if column.strides == (0,) else column.take(which)


def _portions(count: int) -> Iterator[slice]:
    """Cut indices into portions that caches hold: what is worked out on the way takes no time to get memory for."""
    return (slice(begin, min(begin + _PORTION, count)) for begin in range(0, count, _PORTION))


class _Each(Struct, frozen=True):
    """The stretches that a portion of instructions is of, and how many it has of each."""

    there: slice
    count: I64

    @classmethod
    def of(cls, begins: I64, heads: slice, size: int) -> _Each:
        """Find them: ``heads`` begin in the portion, at ``begins``; what is before these is of the one before."""
        borders = begins if len(begins) and not begins[0] else np.append(0, begins)
        return cls(slice(heads.stop - len(borders), heads.stop), np.diff(borders, append=size))

    def given(self, values: I64) -> I64:
        """Return what is known of stretches for every instruction; where all are of one only that."""
        return values[self.there] if len(self.count) == 1 else np.repeat(values[self.there], self.count)


def _tidy(program: Program) -> bool:
    """Tell whether clocks of hosts, of streams, and those that are saved are different ones."""

    def rows(*columns: I32) -> Mask:
        used = np.zeros(len(program.initial), np.bool_)
        for column in columns:
            used[column] = True
        used[program.trash] = False
        return used

    waited, other = program.waited[program.waited_ns > NEVER], program.other[program.other_ns > NEVER]
    hosts, streams, saved = rows(program.pred, program.host), rows(program.stream), rows(program.save)
    return not (hosts & (streams | saved | rows(waited, other)) | (streams & saved)).any()


def _clock_by_clock(row: I32) -> I32:
    """Return the order of instructions, clock by clock."""
    order = np.argsort(row.astype(np.int16) if row.max(initial=0) < 1 << 15 else row, kind="stable")
    return order.astype(np.int32)


def _differs(values: I32 | I64) -> Mask:
    """True where a value is not that before it; the first is."""
    return np.concatenate([np.ones(min(len(values), 1), np.bool_), values[1:] != values[:-1]])


def _breaks(program: Program, kinds: _Kinds, plain: I32, since: I64) -> Mask:
    """True for plain instructions that begin a stretch.

    They are on another stream, or count from another moment of a host clock, or await something, or their stream's
    clock is looked at before them: by whoever waits for it, and whoever goes on on it.
    """
    begins = _differs(program.stream[plain]) | _differs(since) | kinds.awaits[plain]
    place = _key(program.stream[plain], plain, len(program))
    alone, sets = np.flatnonzero(kinds.alone), np.flatnonzero(kinds.sets)
    awaiting = np.flatnonzero(kinds.awaits)
    for row, seen in ((program.stream, alone), (program.waited, sets), (program.other, awaiting)):
        at = np.searchsorted(place, _key(row[seen], seen, len(program)))
        begins[at[at < len(plain)]] = True
    return begins


def _key(row: I32, number: I32 | I64, count: int) -> I64:
    """Return numbers that order instructions by a row, then by their own number below ``count``."""
    return row.astype(np.int64) * count + number


def _behind(program: Program, by_host: I32, alone: I64) -> I64:
    """Return what last moved the host clock that each instruction alone follows (place in ``by_host``), or NONE."""
    n = len(program)
    if not n:
        return alone
    row = program.pred[alone]
    at = np.searchsorted(_key(program.host[by_host], by_host, n), _key(row, alone, n)) - 1
    return np.where((at >= 0) & (program.host[by_host[at]] == row), at, NONE)


def _wires(program: Program, kinds: _Kinds, alone: I64, heads: I32, order: I64) -> dict[str, I32]:
    """Return which clocks the short program reads and writes; ``heads`` are the first instructions of stretches."""
    unused = np.full(len(heads), program.trash, np.int32)
    pairs = {
        "pred": (program.pred[alone], program.host[heads]),
        "waited": (program.waited[alone], unused),
        "host": (np.where(kinds.sets[alone], program.host[alone], np.int32(program.trash)), unused),
        "stream": (program.stream[alone], program.stream[heads]),
        "other": (program.other[alone], program.other[heads]),
        "save": (program.save[alone], unused),
    }
    return {name: np.concatenate(pair)[order] for name, pair in pairs.items()}


def _last_set(wires: dict[str, I32], row: I32, at: I64) -> I64:
    """Return which short instruction before ``at`` set a device clock last, NONE if none did."""
    m = len(wires["stream"])
    if not m:
        return at
    number = np.arange(m)
    sets = distinct(np.concatenate([_key(wires[name], number, m) for name in ("stream", "save")]))
    last = np.searchsorted(sets, _key(row, at, m)) - 1
    return np.where((last >= 0) & (sets[last] // m == row), sets[last] % m, NONE)


def _set(done: Times, setter: I64, initial: I64) -> I64:
    """Return what device clocks stand at after what set them, or initially."""
    return np.where(setter >= 0, done.end[setter], initial) if len(setter) else initial

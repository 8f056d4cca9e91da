"""Core limits per stream: the replay with core-dependent durations, and the search for the best split.

A limit below a kernel's blocks slows it down. Its work may divide over the fewer cores without loss (the tiling is
made for them), or its blocks stay and run in more waves; the truth lies between the two. In return streams whose
limits together fit the chip do not wait for each other's cores any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.messages import say
from npuperf.device.cores import Contended, Sweep, blocks
from npuperf.device.host_events import NONE
from npuperf.device.maxplus import NEVER, Program
from npuperf.device.order import is_event_wait, previous_same, records_events
from npuperf.device.partition import Launches
from npuperf.device.replay import Replayed
from npuperf.device.whatif import Scene, gains_of, saved
from npuperf.model.groups import numbered
from npuperf.model.intervals import SMALL, Intervals, narrow
from npuperf.model.labels import F64, I64, Columns, Mask
from npuperf.model.result import Contention, SlowerKernel
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

# -- Contention for cores: kernels that are launched and next in line while other streams leave them too few cores.
#
# A wait for an event looks the same in the kernel table: a kernel starts when one of another stream has ended. Only
# a recorded event wait in front of it tells the two apart, so a wait counts as certain only where the profile
# records events and no wait stands there.

_NO_EVENTS: Final = say("no events are recorded, so any of these waits may be for another stream's result")
#: Pieces of waits looked at together.
_PORTION: Final = 1 << 20


class CoreWaits(Columns, frozen=True):
    """Waits for cores: kernel ``kernel`` (an index into the sweep's kernels) of task ``task`` was ready at ``since``.

    Until ``until`` (its start) there were too few free cores for it during ``short_ns``, and none on a side that it
    needs during ``full_ns``. ``holders``: the streams that ran last before it began, as the sweep's bits;
    ``certain``: it waited for nothing else.
    """

    kernel: I64
    task: I64
    since: I64
    until: I64
    short_ns: I64
    full_ns: I64
    holders: I64
    certain: Mask


def find_core_waits(
    tasks: Tasks, launches: Launches, sweep: Sweep, thresholds: Thresholds, *, graph: bool
) -> CoreWaits:
    """Find all waits for cores of the kernels of a sweep over ``tasks`` (ordered by start).

    ``graph``: kernels without a launch of their own belong to graphs, which are submitted as a whole.
    """
    before = previous = previous_same(tasks.stream)
    free = np.where(before >= 0, tasks.end[before], np.iinfo(np.int64).min)
    # It is ready when it is launched, and everything before it on its stream has ended, waits included.
    ready = np.maximum(np.where(launches.known, launches.end + launches.latency, free), free)
    waiting = is_event_wait(tasks)
    behind = np.zeros(len(tasks), np.bool_)  # an event wait stands right in front of it
    for _ in range(3):  # a record or two may stand between the wait and the kernel
        control = (before >= 0) & (tasks.work[before] == Work.CONTROL)
        behind |= control & waiting[before]
        before = np.where(control, previous[before], NONE)
    submitted = launches.known | (graph & (ready > np.iinfo(np.int64).min))
    late = submitted & (ready <= tasks.start - thresholds.wait_least_ns)
    kernel = np.flatnonzero(late[sweep.index])
    task = sweep.index[kernel]
    since, until = ready[task], tasks.start[task]
    short, full = np.zeros(len(task), np.int64), np.zeros(len(task), np.int64)
    for wait, begin, end, none in _lacking(sweep, kernel, since, until):
        np.add.at(short, wait, end - begin)
        np.add.at(full, wait[none], (end - begin)[none])
    last = np.maximum.accumulate(np.where(sweep.running > 0, np.arange(len(sweep.running)), 0))
    piece = np.clip(np.searchsorted(sweep.border, until, side="left") - 1, 0, len(last) - 1)
    certain = records_events(tasks).any() & ~behind[task]
    found = CoreWaits(kernel, task, since, until, short, full, sweep.streams[last[piece]], certain)
    return found.filter(short >= thresholds.wait_least_ns)


def _lacking(sweep: Sweep, kernel: I64, since: I64, until: I64) -> Iterator[tuple[I64, I64, I64, Mask]]:
    """Yield the pieces of each wait in which too few cores are free for its kernel: wait, start, end, whether none is.

    Pieces come in portions, so that memory does not grow with how long kernels wait.
    """
    first = np.maximum(np.searchsorted(sweep.border, since, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(sweep.border, until, side="left"), len(sweep.border) - 1)
    count = np.maximum(last - first, 0)
    so_far = np.concatenate([[0], np.cumsum(count)])
    begin = 0
    while begin < len(kernel):
        end = max(int(np.searchsorted(so_far, so_far[begin] + _PORTION, side="right")) - 1, begin + 1)
        mine = np.arange(begin, end)
        wait = np.repeat(mine, count[mine])
        piece = first[wait] + np.arange(len(wait)) - (so_far[wait] - so_far[begin])
        short, none = np.zeros(len(wait), np.bool_), np.zeros(len(wait), np.bool_)
        for need, (cores, wanted) in zip((sweep.cube, sweep.vector), sweep.sides, strict=True):
            needed, free = need[kernel[wait]], cores - wanted[piece]
            short |= (needed > 0) & (free < needed)
            none |= (needed > 0) & (free < 1)
        wait, piece, none = wait[short], piece[short], none[short]
        yield (
            wait,
            np.maximum(sweep.border[piece], since[wait]),
            np.minimum(sweep.border[piece + 1], until[wait]),
            none,
        )
        begin = end


def find_contention(tasks: Tasks, waits: CoreWaits, sweep: Sweep) -> Contended:
    """Sum waits for cores by stream and holders."""
    stream = tasks.stream[waits.task]
    rows = []
    for bits, number in sorted(set(zip(waits.holders.tolist(), stream.tolist(), strict=True))):
        mine = (waits.holders == bits) & (stream == number)
        rows.append(
            Contention(
                stream=number,
                holders=[s for s in sweep.names(bits) if s != number],
                kernels=int(mine.sum()),
                least_ns=int(waits.short_ns[mine & waits.certain].sum()),
                most_ns=int(waits.short_ns[mine].sum()),
                full_ns=int(waits.full_ns[mine].sum()),
            )
        )
    rows.sort(key=lambda row: -row.most_ns)
    certain: list[Intervals] = []
    most: list[Intervals] = []
    for wait, begin, end, _ in _lacking(sweep, waits.kernel, waits.since, waits.until):
        sure = waits.certain[wait]
        certain.append(Intervals.union(begin[sure], end[sure]))
        most.append(Intervals.union(begin, end))
    reason = _NO_EVENTS if rows and not records_events(tasks).any() else None
    return Contended(rows, (_total(certain), _total(most)), reason)


def _total(parts: Sequence[Intervals]) -> int:
    """Return how much time some sets cover together, ns."""
    if not parts:
        return 0
    return Intervals.union(*(np.concatenate([getattr(p, e) for p in parts]) for e in ("start", "end"))).total()


#: Cube and vector cores that a stream may use.
Limit = tuple[int, int]
Split = Mapping[int, Limit]

#: Streams that a split is searched for at most: beyond it nobody could keep track of the scopes.
MOST_STREAMS: Final = 4
#: Instructions replayed in a search, and those of a profile that are searched on.
_BUDGET: Final = 4_000_000
_EXCERPT: Final = 30_000
_ROUNDS: Final = 3
#: Splits found on a part of a long profile that are replayed on all of it.
_FINAL: Final = 3


class Bench(Struct, frozen=True):
    """What splits are tried on. Columns are of the replay's active tasks; ``cube`` and ``vector`` are their blocks.

    ``undisturbed``: durations had no kernel shared cores (ns). ``held``: for how long a task waited for cores,
    ``certain`` whether it can have waited for nothing else, ``crowd`` which streams were after them: an index into
    ``crowds`` (its own stream first, then those that had them), NONE where it did not wait.
    ``streams``: those with a notable part of the kernel time, the busiest first.
    """

    scene: Scene
    chip: Limit
    stream: I64
    dur: I64
    cube: I64
    vector: I64
    undisturbed: I64
    held: I64
    crowd: I64
    certain: Mask
    crowds: tuple[tuple[int, ...], ...]
    streams: tuple[int, ...]
    used: dict[tuple[int, int], int] = field(default_factory=dict)
    tried: dict[tuple[tuple[int, Limit], ...], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, scene: Scene, tasks: Tasks, sweep: Sweep, waits: CoreWaits, thresholds: Thresholds) -> Bench:
        """Prepare; ``sweep`` and ``waits`` are of all ``tasks``."""
        active = scene.replay.active
        undisturbed = tasks.dur.copy()
        undisturbed[sweep.index] = sweep.undisturbed()
        undisturbed = narrow(undisturbed.take(active))
        numbers, of_stream = numbered(sweep.stream)
        time = np.bincount(of_stream, sweep.dur)
        notable = thresholds.cause_share * time.sum()
        busiest = [i for i in np.argsort(-time, kind="stable").tolist() if time[i] >= notable]
        used = blocks(tasks)
        held, certain = np.zeros(len(active), np.int64), np.zeros(len(active), np.bool_)
        place = np.full(len(tasks), NONE, np.int32)
        place[active] = np.arange(len(active), dtype=np.int32)
        at = place[waits.task]
        held[at], certain[at] = waits.short_ns, waits.certain
        together = [*zip(tasks.stream[waits.task].tolist(), waits.holders.tolist(), strict=True)]
        number = {pair: i for i, pair in enumerate(dict.fromkeys(together))}
        crowd = np.full(len(active), NONE, np.int32)
        crowd[at] = [number[pair] for pair in together]
        return cls(
            scene=scene,
            chip=(sweep.cores.cube or 0, sweep.cores.vector or 0),
            stream=narrow(tasks.stream[active], SMALL),
            dur=narrow(tasks.dur[active]),
            cube=narrow(np.maximum(used.cube[active], 0), SMALL),
            vector=narrow(np.maximum(used.vector[active], 0), SMALL),
            undisturbed=undisturbed,
            held=narrow(held),
            crowd=narrow(crowd, SMALL),
            certain=certain,
            crowds=tuple((stream, *sweep.names(bits)) for stream, bits in number),
            streams=tuple(numbers[busiest].tolist()),
        )

    def uses(self, stream: int, side: int) -> int:
        """Return the most cores that a kernel of a stream uses on side 0 (cube) or 1 (vector)."""
        if (stream, side) not in self.used:
            wanted = (self.cube, self.vector)[side][self.stream == stream]
            self.used[stream, side] = min(int(wanted.max(initial=0)), self.chip[side])
        return self.used[stream, side]


def factors(blocks: I64, cores: int, limit: int) -> tuple[F64, F64]:
    """Return by which factor a limit lengthens kernels with these blocks, least and most.

    On ``cores`` they now run in full, or in waves if there are more blocks.
    """
    used = np.clip(blocks, 1, max(cores, 1))
    divided = np.maximum(used / limit, 1.0)
    waves = np.maximum(-(-blocks // limit), 1) / np.maximum(-(-blocks // max(cores, 1)), 1)
    none = blocks <= 0
    return np.where(none, 1.0, np.minimum(divided, waves)), np.where(none, 1.0, np.maximum(divided, waves))


def slow_down(bench: Bench, split: Split) -> tuple[F64, F64]:
    """Return by which factor a split lengthens every task, least and most."""
    least, most = np.ones(len(bench.stream)), np.ones(len(bench.stream))
    for stream, limit in split.items():
        mine = bench.stream == stream
        for wanted, cores, cap in zip((bench.cube, bench.vector), bench.chip, limit, strict=True):
            if cap:
                low, high = factors(wanted[mine], cores, cap)
                least[mine], most[mine] = np.maximum(least[mine], low), np.maximum(most[mine], high)
    return least, most


def _programs(bench: Bench, split: Split) -> tuple[Program, Program]:
    """Return the programs of the best and of the worst case of a split."""
    least, most = slow_down(bench, split)

    def fits(streams: Sequence[int]) -> bool:
        """Tell whether the kernels of all these streams find room on the chip at the same time."""
        return {*streams} <= split.keys() and all(
            sum(min(split[s][side], bench.uses(s, side)) for s in streams) <= bench.chip[side] for side in (0, 1)
        )

    freed = np.array([*(fits(crowd) for crowd in bench.crowds), False])[bench.crowd]
    changed = np.isin(bench.stream, list(split))
    best = _changed(bench, np.where(changed, np.rint(bench.undisturbed * least), bench.dur), freed)
    worst = _changed(bench, np.rint(bench.dur * most), freed & bench.certain)
    return best, worst


def _changed(bench: Bench, dur: F64 | I64, freed: Mask) -> Program:
    """Return the program with other durations and without waits for cores."""
    replay = bench.scene.replay
    columns = {name: getattr(replay.program, name).astype(np.int64) for name in ("dur_ns", "other_ns", "extra_ns")}
    columns["dur_ns"][replay.task] = dur
    awaited = replay.awaited
    by_other = freed & (awaited >= 0) & (bench.stream[awaited] != bench.stream)
    columns["other_ns"][replay.task[by_other]] = NEVER
    at = replay.task[freed]
    columns["extra_ns"][at] = np.maximum(columns["extra_ns"][at] - bench.held[freed], 0)
    return replay.program.with_columns(**columns)


def gain(bench: Bench, split: Split) -> tuple[int, int]:
    """Replay a split; return what it saves of the window at least and at most, ns, as far as the model tells."""
    key = tuple(sorted(split.items()))
    if key not in bench.tried:
        best, worst = (saved(bench.scene, program) for program in _programs(bench, split))
        bench.tried[key] = (min(best, worst), max(best, worst))
    return bench.tried[key]


def gain_interval(bench: Bench, split: Split) -> tuple[int, int]:
    """Return what a split saves of the window, with everything that the model leaves open, ns.

    Where the launch of graphs is not recorded, they may follow each other, or begin when the host says so.
    """
    programs = [*_programs(bench, split)]
    gains = [g for program in programs for g in gains_of(bench.scene, program)]
    if bench.scene.replay.loose.any():
        gains += [saved(bench.scene, bench.scene.replay.fixed(program)) for program in programs]
    return min(gains) - bench.scene.error, min(max(gains), bench.scene.measured)


def most_possible(bench: Bench) -> int:
    """Return what could be saved if no kernel waited for cores and none became slower, ns."""
    return saved(bench.scene, _changed(bench, bench.undisturbed, bench.held > 0))


class Search(Struct, frozen=True):
    """What a search has found: the best split, if any gains; how many were tried, on how many kernels.

    ``most_ns``: what none of them exceeds at its best; None where it was searched on a part of the profile only.
    """

    split: dict[int, Limit] | None
    tried: int
    kernels: int
    most_ns: int | None


def best_split(bench: Bench) -> Search:
    """Search the split of all cores over the main streams (two at least) that is best to propose.

    It must save time in its worst case. Of those it is the one that saves most then, as long as no other split could
    beat it, at its worst or at its best, by more than its own interval is wide; else the one that could be beaten by
    least. Long profiles repeat themselves: the search runs on their beginning, and what it finds is replayed in full.
    """
    part = _excerpt(bench) if searched_in_part(bench) else bench
    _search(part, lambda found: found)  # the most in the worst case,
    _search(part, lambda found: (found[1], found[0]))  # in the best case,
    _search(part, lambda found: (found[0] + found[1], found[0]))  # and between them
    top = [max((found[i] for found in part.tried.values()), default=0) for i in (0, 1)]

    def worth(split: tuple[tuple[int, Limit], ...]) -> tuple[bool, int]:
        least, most = part.tried[split]
        regret = max(top[0] - least, top[1] - most)
        close = regret <= most - least
        return (close, least if close else -regret)

    certain = [split for split, found in part.tried.items() if found[0] > 0]
    ranked = [dict(split) for split in sorted(certain, key=worth, reverse=True)]
    tried, kernels = len(part.tried), len(part.stream)
    if part is bench:
        return Search(ranked[0] if ranked else None, tried, kernels, top[1])
    best = max(ranked[:_FINAL], key=lambda split: gain(bench, split)[0], default=None)
    return Search(best if best is not None and gain(bench, best)[0] > 0 else None, tried, kernels, None)


def searched_in_part(bench: Bench) -> bool:
    """Tell whether a search runs on the beginning of the profile only."""
    return _reach(bench) < len(bench.stream)


def _reach(bench: Bench) -> int:
    """Return how many tasks a search runs on: all, or of a long window as many as can be replayed often enough."""
    scene = bench.scene
    reached = np.maximum.accumulate(scene.replay.task)
    count = int(np.searchsorted(reached, reached[min(scene.first, len(reached) - 1)] + _EXCERPT))
    return count if count < min(scene.last, len(reached)) else len(reached)


def _excerpt(bench: Bench) -> Bench:
    """Return the beginning of a long window: as much as a search runs on."""
    scene, replay, count = bench.scene, bench.scene.replay, _reach(bench)
    until = int(replay.task[:count].max()) + 1
    part = replace(
        replay,
        program=replay.program.part(slice(until)),
        base=Replayed(replay.base.start[:count], replay.base.end[:count], replay.mark[:0]),
        mark=replay.mark[:0],
        moment=replay.moment[:0],
        **{name: getattr(replay, name)[:count] for name in ("active", "awaited", "task", "assumed_gap", "loose")},
    )
    shorter = replace(
        scene,
        replay=part,
        last=count,
        opening=NONE,
        closing=NONE,
        work=scene.work[:count],
        types=scene.types.take(np.arange(count)),
        ending=scene.ending[:0],
        lengths=[],
    )
    of_tasks = ("stream", "dur", "cube", "vector", "undisturbed", "held", "crowd", "certain")
    return replace(bench, scene=shorter, used={}, tried={}, **{name: getattr(bench, name)[:count] for name in of_tasks})


def _search(bench: Bench, judged: Callable[[tuple[int, int]], tuple[int, int]]) -> None:
    """Try splits until nothing improves.

    Scans both sides together first (kernels that mix sides need both), then each side for itself. Sides that only
    one stream uses stay whole.
    """
    tries = _BUDGET // max(len(bench.scene.replay.program), 1)
    users = [[s for s in bench.streams if bench.uses(s, side)] for side in (0, 1)]
    # An even share of each side that several streams use, all of the others.
    split: dict[int, Limit] = {}
    for stream in bench.streams:
        share = [c // len(mine) if stream in mine else c for c, mine in zip(bench.chip, users, strict=True)]
        split[stream] = share[0], share[1]
    for _ in range(_ROUNDS):
        before = split
        for sides in ((0, 1), (0,), (1,)):
            for pair in combinations(bench.streams, 2):
                options = [split, *_moves(bench, split, pair, sides, users, max(tries // 6, 2))]
                split = max(options, key=lambda option: judged(gain(bench, option)))
        if split == before:
            break


def _moves(
    bench: Bench, split: Split, pair: tuple[int, int], sides: tuple[int, ...], users: Sequence[Sequence[int]], most: int
) -> Iterator[dict[int, Limit]]:
    """Yield splits that divide what two streams have of some sides otherwise."""
    one, other = pair
    shared = [side for side in sides if one in users[side] and other in users[side]]
    if not shared or len(shared) < len(sides):
        return
    total = [bench.chip[side] - sum(split[s][side] for s in users[side] if s not in pair) for side in (0, 1)]
    scale = shared[0]
    first = max(1, total[scale] - bench.uses(other, scale))
    last = min(total[scale] - 1, bench.uses(one, scale))
    if last < first:
        first = last = max(1, min(last, total[scale] - 1))
    for x in range(first, last + 1, max(1, (last - first + 1) // max(most, 1))):
        limits = {s: list(split[s]) for s in pair}
        for side in shared:
            part = x if side == scale else min(max(round(x * total[side] / total[scale]), 1), total[side] - 1)
            limits[one][side], limits[other][side] = part, total[side] - part
        yield {**split, **{s: (cube, vector) for s, (cube, vector) in limits.items()}}


def complete_split(bench: Bench, asked: Split) -> dict[int, Limit]:
    """Give the main streams that a split does not name what it leaves over, each on its own."""
    rest = [max(cores - sum(limit[side] for limit in asked.values()), 0) for side, cores in enumerate(bench.chip)]
    return {**dict.fromkeys(bench.streams, (rest[0], rest[1])), **asked}


def slower_kernels(bench: Bench, split: Split) -> list[SlowerKernel]:
    """List the types of kernels that a split slows down, the most time first."""
    least, most = slow_down(bench, split)
    types = bench.scene.types
    found: dict[tuple[int, int], list[int]] = {}
    for i in np.flatnonzero(most > 1).tolist():
        found.setdefault((int(bench.stream[i]), int(types.codes[i])), []).append(i)
    rows = [
        SlowerKernel(
            stream=stream,
            type=types.names[code] if code >= 0 else None,
            count=len(at),
            total_ns=int(bench.dur[at].sum()),
            least=float(least[at].min()),
            most=float(most[at].max()),
        )
        for (stream, code), at in found.items()
    ]
    return sorted(rows, key=lambda r: -r.total_ns * (r.most - 1))

"""What else was measured on both sides: counts, cores, communication, links, ranks, and roots of waiting.

Times, counts and bytes are per step and device. Only what both sides have is compared; where a side has a single value,
nothing says whether a difference is more than chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import fsum
from operator import add
from statistics import fmean
from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.against.parity import known_as
from npuperf.base.messages import Message, say_n
from npuperf.model.comparison import COUNTED, Compared, Shift
from npuperf.model.job_result import Cluster, Root
from npuperf.model.labels import F64
from npuperf.model.noise import Judged, judge_counts, judge_shift
from npuperf.model.parts import Count, CountKind, Digest, TypeSteps
from npuperf.model.result import Result
from npuperf.model.thresholds import Thresholds

#: Of one kind of thing, so many that changed most are listed.
MOST: Final = 20
#: Points of percent by which occupancy has to differ to be listed.
_POINTS: Final = 0.5
#: Relative difference from which on links and communication, of which a side has a single value, are listed.
_NOTABLE: Final = 0.05

#: Single launches are in the waterfall, with their counts.
_IN_WATERFALL: Final = "launch"


class Listed(Struct):
    """What changed, how much did not, and how much more changed than is listed."""

    shifts: list[Shift] = field(default_factory=list)
    unchanged: int = 0
    more: int = 0

    def add(self, found: Iterable[Shift | None], most: int = MOST) -> None:
        """List what changed most of one kind of thing; None did not change."""
        every = list(found)
        changed = sorted(
            (shift for shift in every if shift is not None),
            key=lambda shift: (-abs((shift.new or 0.0) - (shift.old or 0.0)), shift.what),
        )
        self.shifts += changed[:most]
        self.more += len(changed[most:])
        self.unchanged += len(every) - len(changed)

    @property
    def note(self) -> Message | None:
        """Say that there is more."""
        if not self.more:
            return None
        return say_n("{n} more figure changed, by less than those that are listed",
                     "{n} more figures changed, by less than those that are listed", self.more)  # fmt: skip


def shifts(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> Listed:
    """Compare everything but the length of the steps and their parts."""
    listed = Listed()
    digests = [[run.digest for run in side if run.digest is not None] for side in (old, new)]
    makers = {run.workload.kineto or run.input.kind == "kineto" for run in (*old, *new)}
    _add_counts(listed, *digests, one_maker=len(makers) == 1)
    listed.add(_cores(old, new))
    jobs = [[run.cluster for run in side if run.cluster is not None] for side in (old, new)]
    least = thresholds.compare_floor_ns
    if all(jobs):
        roots = [_roots(job) for job in jobs]
        every = dict.fromkeys((*roots[0], *roots[1]), 0.0)  # a side that has none of a root has nothing of it
        listed.add(_both({**every, **roots[0]}, {**every, **roots[1]}, "ns", least))
    listed.add(_both(_communication(jobs[0]), _communication(jobs[1]), "ns", least))
    listed.add(_both(_links(jobs[0]), _links(jobs[1]), "GB/s"))
    listed.add(_ranks(old, new, thresholds))
    listed.add(_both(_waits(jobs[0]), _waits(jobs[1]), "ns", least))
    return listed


# --- counts -----------------------------------------------------------------------------------------------------------


class _Series(Struct, frozen=True):
    """What a side counts in each step, over all its runs; ``devices`` share it."""

    steps: int
    devices: int
    rows: dict[tuple[CountKind, str], list[int]]

    def of(self, kind: CountKind, key: str) -> list[int]:
        """Return a count per step, zeros where this side has none."""
        return self.rows.get((kind, key)) or [0] * self.steps

    def total(self, kind: CountKind) -> list[int]:
        """Return how many of a kind there are in each step."""
        rows = [counts for (of, _), counts in self.rows.items() if of == kind]
        return [sum(step) for step in zip(*rows, strict=True)] if rows else [0] * self.steps


def _add_counts(listed: Listed, old: Sequence[Digest], new: Sequence[Digest], *, one_maker: bool) -> None:
    """Add the kinds of things, and of each kind what changed most.

    Of different makers only the kinds: what is counted has other names there, and more of it is neither better nor
    worse.
    """
    if not old or not new:
        return
    uncounted = {kind for digest in (*old, *new) for kind in digest.uncounted}
    shaped = [any(c.kind == "host_operator" and " " in c.key for d in side for c in d.counts) for side in (old, new)]
    a, b = (_series(side, lambda row: row.count, shapes=all(shaped)) for side in (old, new))
    devices = a.devices, b.devices
    stepped = [all(digest.steps for digest in side) for side in (old, new)]
    per_step = " per step" if all(stepped) else ""
    for kind, of in COUNTED.items():
        name = of.name.id
        # counts of a step are not those of a whole recording
        worse = of.more_is_worse and one_maker and stepped[0] == stepped[1]
        keys = list(dict.fromkeys(key for row, key in (*a.rows, *b.rows) if row == kind))
        if kind in uncounted or not keys:
            continue
        listed.add([_counted(f"{name}{per_step}", a.total(kind), b.total(kind), devices, worse)])
        if kind != _IN_WATERFALL and one_maker:
            listed.add(_counted(f"{name}: {key}", a.of(kind, key), b.of(kind, key), devices, worse) for key in keys)
    if not one_maker:
        return
    # What is copied and sent, of things whose size both sides tell.
    a, b = (_series(side, lambda row: row.bytes) for side in (old, new))
    known = [(kind, key) for kind, key in a.rows if kind in ("copy", "collective") and (kind, key) in b.rows]
    listed.add(
        _counted(
            f"{COUNTED[kind].name.id}: {key}",
            a.of(kind, key),
            b.of(kind, key),
            devices,
            stepped[0] == stepped[1],
            "bytes",
        )
        for kind, key in known
    )


def _series(digests: Sequence[Digest], counted: Callable[[Count], list[int] | None], *, shapes: bool = True) -> _Series:
    """Return the runs of a side one after the other; without ``shapes`` the host's operators by their names alone."""
    steps = sum(max(len(digest.steps), 1) for digest in digests)
    rows: dict[tuple[CountKind, str], list[int]] = defaultdict(lambda: [0] * steps)
    done = 0
    for digest in digests:
        for row in digest.counts:
            counts = counted(row)
            if counts is None or len(counts) != max(len(digest.steps), 1):
                continue
            plain = row.kind == "host_operator" and not shapes
            series = rows[row.kind, row.key.partition(" ")[0] if plain else row.key]  # shapes follow the first blank
            for place, count in enumerate(counts, done):
                series[place] += count
        done += max(len(digest.steps), 1)
    return _Series(steps, max((digest.devices for digest in digests), default=1) or 1, rows)


def _counted(
    what: str,
    old: Sequence[int],
    new: Sequence[int],
    devices: tuple[int, int],
    more_is_worse: bool,
    unit: str = "count",
) -> Shift | None:
    """Return a shift of counts per device, None where their mean is the same.

    Compared are whole numbers: counts times the devices of the other side.
    """
    a, b = ([n * times for n in counts] for counts, times in ((old, devices[1]), (new, devices[0])))
    if sum(a) * len(b) == sum(b) * len(a):
        return None
    means = (sum(a) / len(a) / devices[1] / devices[0], sum(b) / len(b) / devices[0] / devices[1])
    return Shift(
        what=what,
        unit=unit,
        old=means[0],
        new=means[1],
        verdict=judge_counts(a, b).verdict if more_is_worse else "cannot_tell",
        samples=(len(old), len(new)),
    )


# --- single values per side -------------------------------------------------------------------------------------------


def _cores(old: Sequence[Result], new: Sequence[Result]) -> Iterator[Shift | None]:
    """Yield which part of the cores kernels use, means over devices in percent."""
    for side in ("cube", "vector"):
        uses = [[getattr(device.cores, side) for run in runs for device in run.devices] for runs in (old, new)]
        a, b = ([u.occupancy_busy for u in of if u is not None and u.occupancy_busy is not None] for of in uses)
        if a and b:
            means = 100 * fmean(a), 100 * fmean(b)
            differs = abs(means[1] - means[0]) >= _POINTS
            yield _single(f"occupancy of {side} cores", "percent", *means) if differs else None


def _single(what: str, unit: str, old: float, new: float) -> Shift:
    return Shift(what=what, unit=unit, old=old, new=new, verdict="cannot_tell", samples=(1, 1))


def _both(old: Mapping[str, float], new: Mapping[str, float], unit: str, least: float = 0.0) -> Iterator[Shift | None]:
    """Yield what both sides have a value of, None where it hardly differs, or by no more than ``least``."""
    for what, a in old.items():
        b = new.get(what)
        if b is None:
            continue
        notable = abs(b - a) > max(_NOTABLE * max(abs(a), abs(b)), least)
        yield _single(what, unit, a, b) if notable else None


def _mean_of(found: Iterable[tuple[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for what, value in found:
        values[what].append(value)
    return {what: fmean(each) for what, each in values.items()}


def _communication(jobs: Sequence[Cluster]) -> dict[str, float]:
    """Return transfer per kind of group, ns per step and rank, hidden by compute or not."""
    found: list[tuple[str, float]] = []
    for job in jobs:
        transfers: dict[str, float] = defaultdict(float)
        for group in job.groups:
            name = f"transfer in {group.kind or group.group}"
            transfers[name] += group.transfer_ns / (max(job.steps, 1) * max(len(job.ranks), 1))
        found += transfers.items()
    return _mean_of(found)


def _links(jobs: Sequence[Cluster]) -> dict[str, float]:
    """Return the bandwidth between each two ranks, GB/s, over operations of all sizes."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for link in (link for job in jobs for link in job.links):
        sums = found[f"{link.transport} {link.ranks[0]}-{link.ranks[1]}"]
        sums[0] += link.bytes
        sums[1] += link.time_ns
    return {what: size / ns for what, (size, ns) in found.items() if ns}


def _waits(jobs: Sequence[Cluster]) -> dict[str, float]:
    """Return how long each rank waits for others, ns per step."""
    return _mean_of(
        (f"waiting of rank {rank.rank}", rank.comm.wait_ns / max(job.steps, 1)) for job in jobs for rank in job.ranks
    )


def _roots(jobs: Sequence[Cluster]) -> dict[str, float]:
    """Return the waiting that each root explains, ns per step."""

    def name(root: Root) -> str:
        about = ",".join(map(str, root.ranks)) if root.stage is None else str(root.stage)
        why = f"({root.why})" if root.why != "unknown" else ""
        by = ("of unknown cause",) if root.kind == "unknown" else ("caused by", root.kind)
        return " ".join(part for part in ("waiting", *by, about, why) if part)

    return _mean_of((name(root), root.wait_ns / max(job.steps, 1)) for job in jobs for root in job.roots)


def _ranks(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> Iterator[Shift | None]:
    """Yield the steps of each rank that both sides have, of jobs, judged."""
    sides: list[dict[int, list[F64]]] = [defaultdict(list), defaultdict(list)]
    for found, runs in zip(sides, (old, new), strict=True):
        for device in (device for run in runs for device in run.devices):
            if device.rank is not None and device.whole_steps:
                found[device.rank].append(np.array([s.partition.span_ns for s in device.whole_steps], np.float64))
    shared = [rank for rank in sides[0] if rank in sides[1]]
    if len(shared) < 2:
        return
    ratio, floor = thresholds.compare_ratio, thresholds.compare_floor_ns
    middles = {rank: (_median(sides[0][rank]), _median(sides[1][rank])) for rank in shared}
    listed = set(sorted(shared, key=lambda rank: -abs(middles[rank][1] - middles[rank][0]))[:MOST])
    for rank in shared:
        a, b = sides[0][rank], sides[1][rank]
        was, now = middles[rank]
        if abs(now - was) <= max(ratio * was, floor):
            yield None
            continue
        judged = judge_shift(a, b, ratio=ratio, floor=floor) if rank in listed else None
        yield Shift(
            what=f"step of rank {rank}",
            unit="ns",
            old=was,
            new=now,
            verdict=judged.verdict if judged else "cannot_tell",
            interval=judged.interval if judged else None,
            samples=(sum(map(len, a)), sum(map(len, b))),
        )


def _median(runs: Sequence[F64]) -> float:
    return float(np.median(np.concatenate(runs)))


# -- The step and the operator types on both sides, each judged by its time in every step.

#: Operator types that are judged and listed: those whose time changed most.
_MOST: Final = 20
#: Relative change of the step below which an operator is not listed: nothing could be said of it.
_LEAST: Final = 0.0005


def step_row(samples: tuple[Sequence[F64], Sequence[F64]], judged: Judged) -> Compared | None:
    """Return the whole step with the means of both sides; None where one has no step."""
    old, new = (np.concatenate(side) if side else np.empty(0) for side in samples)
    if not len(old) or not len(new):
        return None
    means = round(float(old.mean())), round(float(new.mean()))
    return Compared(
        kind="step",
        name="",
        change="same" if means[0] == means[1] else "changed",
        verdict=judged.verdict,
        old_ns=means[0],
        new_ns=means[1],
        count=len(new),
        noise_ns=_noise(judged),
    )


def operator_rows(
    old: Sequence[Digest], new: Sequence[Digest], thresholds: Thresholds, *, by_ending: bool = False
) -> tuple[list[Compared], int]:
    """Return operator types, ns per step and device, what changed most first, and how many hardly changed.

    ``by_ending``: a name that the other side does not know is taken for the type that it ends with.
    Times are the kernels' own, and may overlap; ``count`` is per step of the new side, on all devices. What chance
    may do is judged against the ratio of the operator's own time, not of the step.
    """
    mine, theirs = ({steps.type for digest in side for steps in digest.types} for side in (old, new))
    before, were = _by_type(old, known_as(mine, theirs) if by_ending else {})
    after, counts = _by_type(new, known_as(theirs, mine) if by_ending else {})
    spans = [ns for digest in old for ns in digest.span_ns]
    step = max(sum(spans) / len(spans), 1.0) if spans else 1.0
    means = {name: (_mean(before.get(name)), _mean(after.get(name))) for name in {**before, **after}}
    changed = [name for name, (a, b) in means.items() if abs((b or 0.0) - (a or 0.0)) > _LEAST * step]
    changed.sort(key=lambda name: (-abs((means[name][1] or 0.0) - (means[name][0] or 0.0)), name))
    rows, work = [], work_changes(old, new)
    for name in changed[:_MOST]:
        a, b = before.get(name), after.get(name)
        judged = judge_shift(a, b, ratio=thresholds.compare_ratio) if a is not None and b is not None else None
        was, now = means[name]
        row = Compared(
            kind="operator",
            name=name,
            change="changed" if judged else "added" if a is None else "removed",
            verdict=judged.verdict if judged else "worse" if a is None else "better",
            old_ns=None if was is None else round(was),
            new_ns=None if now is None else round(now),
            count=counts.get(name),
            noise_ns=_noise(judged),
            old_count=were.get(name),
            work_change=work.get(name) if judged else None,
        )
        rows.append(row)
    return rows, len(means) - len(rows)


def work_changes(old: Sequence[Digest], new: Sequence[Digest]) -> dict[str, tuple[float, float]]:
    """Return how many times the work of the old side's kernels one of the new side does, by operator type.

    Of the same shapes and dtypes, each as often among its kernels, it is the same, whatever formulas tell of it.
    """
    kinds = [_kinds(side) for side in (old, new)]
    found = {name: (1.0, 1.0) for name, own in kinds[0].items() if own and kinds[1].get(name) == own}
    flop, more = (_flop_per_kernel(side) for side in (old, new))
    for name, (least, most) in flop.items():
        if name not in found and name in more and least > 0:
            found[name] = (more[name][0] / most, more[name][1] / least)
    return found


def _kinds(digests: Sequence[Digest]) -> dict[str, dict[str, Fraction]]:
    """Return which part of the kernels of a type has which shapes and dtypes; nothing of types without shapes."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for part in (part for digest in digests for part in digest.parts if part.part == "compute" and part.key):
        type_, _, rest = str(part.key).partition(" ")
        counts[type_][rest] += part.count
    if any(digest.keyed_by != "shapes" for digest in digests):
        return {}
    found = {}
    for type_, own in counts.items():
        kernels = sum(own.values())
        if kernels and all(rest.startswith("[") for rest in own):
            found[type_] = {rest: Fraction(n, kernels) for rest, n in own.items()}
    return found


def _flop_per_kernel(digests: Sequence[Digest]) -> dict[str, tuple[float, float]]:
    """Return useful FLOP per kernel, least and most, of types of which every run tells them."""
    found: dict[str, list[TypeSteps]] = defaultdict(list)
    for steps in (steps for digest in digests for steps in digest.types):
        found[steps.type].append(steps)
    sums = {}
    for name, runs in found.items():
        known = [run.useful_flop for run in runs if run.useful_flop is not None]
        kernels = sum(sum(run.count) for run in runs)
        if len(known) == len(runs) and kernels:
            sums[name] = (fsum(low for low, _ in known) / kernels, fsum(high for _, high in known) / kernels)
    return sums


def _noise(judged: Judged | None) -> int | None:
    return None if judged is None or judged.margin is None else round(judged.margin)


def _by_type(digests: Sequence[Digest], known: Mapping[str, str]) -> tuple[dict[str, list[F64]], dict[str, int]]:
    """Return the time of every operator type in each step, one array per run that has it, and its kernels per step.

    ``known``: other names for types; what has one name then is one. Kernels are those of the last run that has any.
    """
    times: dict[str, list[F64]] = {}
    kernels: dict[str, int] = {}
    for digest in digests:
        sums: dict[str, tuple[list[int], list[int]]] = {}
        for steps in digest.types:
            name = known.get(steps.type, steps.type)
            ns, count = sums.get(name, ([0] * len(steps.ns), [0] * len(steps.count)))
            sums[name] = list(map(add, ns, steps.ns)), list(map(add, count, steps.count))
        for name, (ns, count) in sums.items():
            if ns:
                times.setdefault(name, []).append(np.array(ns, np.float64))
            if count:
                kernels[name] = round(sum(count) / len(count))
    return times, kernels


def _mean(runs: Sequence[F64] | None) -> float | None:
    return float(np.concatenate(runs).mean()) if runs else None

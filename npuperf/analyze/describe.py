"""The window of a device described: how it splits, its steps, streams, phases and synchronisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct, structs

from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import Message, chain, factor, say
from npuperf.device.blame import IdleAfter, sum_blame
from npuperf.device.cores import core_use
from npuperf.device.dependencies import with_dependencies
from npuperf.device.mode import Traits, is_slowed
from npuperf.device.partition import Launches, lay_out, window
from npuperf.device.replay import Elasticities
from npuperf.device.steps import join_alike, segment, shortest_phase, typical_step
from npuperf.device.study import Study
from npuperf.device.syncs import place
from npuperf.device.verdict import WINDOW, Pace, PaceSums, compare, judge
from npuperf.device.whatif import Scene, predict
from npuperf.model.chip import Cores
from npuperf.model.device import Environment
from npuperf.model.groups import largest, rows_of_each, tally
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels
from npuperf.model.result import (
    Clock,
    Device,
    JudgedSteps,
    Partition,
    Phase,
    RecordedVariable,
    ReplayCheck,
    Step,
    Stream,
    SyncSite,
    TypeTime,
    Verdict,
)
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

# -- What recording itself did to the steps that were judged, said where it matters, and the run's environment.


def with_recording_cost(verdict: Verdict, overhead: float | None, thresholds: Thresholds) -> Verdict:
    """Add to a verdict what recording cost, where that is notable: it slows the host, hardly ever the device."""
    if overhead is None or not is_slowed(overhead, thresholds):
        return verdict
    cost = say(
        "recording made steps {times} times as long: host times, and the device's waiting for the "
        "host, may be its own doing",
        times=factor(overhead),
    )
    evidence = {**verdict.evidence, "recording_overhead": overhead}
    return structs.replace(verdict, reason=chain(verdict.reason, cost), evidence=evidence)


def with_costliest(verdict: Verdict, devices: Sequence[Device], thresholds: Thresholds) -> Verdict:
    """Add to the verdict over several devices what recording cost the one that it cost most."""
    if len(devices) < 2:
        return verdict
    known = [d.recording_overhead for d in devices if d.recording_overhead is not None]
    return with_recording_cost(verdict, max(known, default=None), thresholds)


#: Changes of the host's part in a step begin so.
_HOSTS: Final = ("host", "launches", "latency", "sync")


def at_own_pace(rows: list[tuple[str, Message]], traits: Traits, thresholds: Thresholds) -> list[tuple[str, Message]]:
    """Leave out what-ifs of the host where its times are the recording's own, or those of blocking launches."""
    if not (traits.blocking or traits.slowed(thresholds)):
        return rows
    return [row for row in rows if not row[0].startswith(_HOSTS)]


def variables(environment: Environment) -> list[RecordedVariable]:
    """List the recorded environment."""
    return [RecordedVariable(name=name, value=value, recorded_by=by) for name, value, by in environment.recorded()]


#: Names of a blame list beyond this one are summed by cause.
_NAMES: Final = 12
#: Sync places for which the gain is replayed.
_SYNC_PLACES: Final = 5
_TYPES: Final = 3
_STEP: Final = say("the step")
_PHASE: Final = say("the phase")


def describe(
    study: Study,
    tasks: Tasks,
    span: tuple[int, int],
    request: AnalyzeRequest,
    scene: Scene | None,
    thresholds: Thresholds,
) -> tuple[Pace, Device]:
    """Describe the window that is judged: all but the use of its cores, and what rules and proposals say."""
    profile, launches, origin = study.profile, study.launches, study.timeline.span[0]
    shortest = shortest_phase(study.timeline.span[1] - origin, study.steps, thresholds)
    cuts = _cuts(study, span, shortest, thresholds)  # before there are more columns
    judging = _Judging.of(study, thresholds)
    mine, pace, verdict = judging.windows(window(*span), _STEP if len(study.steps) else WINDOW)[0]
    steps = [s for s in _steps(study, judging) if request.step in (None, s.step)]
    whole = mine if request.step is not None else study.timeline.whole()
    judged = _judged(study, steps, span, mine, whole)
    phases = _phases(study, judging, cuts, shortest)
    del judging  # much memory
    report = Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=request.soc or profile.soc,
        cores_cube=(request.cores or profile.cores).cube,
        cores_vector=(request.cores or profile.cores).vector,
        origin_ns=origin,
        partition=whole,
        verdict=with_recording_cost(verdict, profile.context.overhead, thresholds),
        clock=_clock(launches, len(profile.tasks)),
        steps=steps,
        streams=_streams(tasks, launches, profile.tasks.without_counters(), span),
        cores=core_use(Tasks.empty(), Cores(), 0),
        vendor=compare(profile.vendor_steps, steps, whole, thresholds) if request.step is None or steps else [],
        phases=phases,
        blame=sum_blame(study.blamed.within(*span), profile.host, study.nesting, _NAMES),
        typical_step=typical_step([s for s in steps if s.whole], phases, shortest, thresholds),
        syncs=_syncs(study, scene, span, max(judged.steps if judged else 0, 1), thresholds),
        replay=_check(study, thresholds),
        judged=judged,
        recording_overhead=profile.context.overhead,
        environment=variables(profile.context.environment),
    )
    return pace, with_dependencies(report, study, span, thresholds)


def _judged(
    study: Study, steps: list[Step], span: tuple[int, int], mine: Partition, whole: Partition
) -> JudgedSteps | None:
    """Say how many steps ``span`` holds, and what of the ``whole`` lies outside of them."""
    if not steps:
        return None
    origin = study.timeline.span[0]
    before = span[0] - origin if whole.span_ns > mine.span_ns else 0
    return JudgedSteps(
        steps=sum(s.whole for s in steps) or len(steps),
        start_ns=span[0] - origin,
        partition=mine,
        before_ns=before,
        after_ns=whole.span_ns - mine.span_ns - before,
    )


def _clock(launches: Launches, tasks: int) -> Clock:
    known = int(np.count_nonzero(launches.known))
    untold = launches.untold if known else None
    most = launches.latency_most
    return Clock(
        launch_latency_ns=launches.latency if launches.untold is None else None,
        latency_samples=launches.samples,
        skew_ns=launches.skew,
        launches=known,
        tasks=tasks,
        skew_most_ns=launches.skew_most,
        latency_bounds_ns=None if untold is None or most is None else (0, most),
        latency_reason=untold,
    )


class _Judging(Struct, frozen=True):
    """What windows are judged by; ``elasticities`` are None where the replay abstains."""

    study: Study
    sums: PaceSums
    elasticities: Elasticities | None
    thresholds: Thresholds

    @classmethod
    def of(cls, study: Study, thresholds: Thresholds) -> _Judging:
        """Make sums over the whole profile."""
        tasks, replay = study.profile.tasks, study.replay
        elasticities = None
        if replay is not None and study.usable:
            elasticities = Elasticities.of(replay, tasks.work[replay.active])
        return cls(study, PaceSums.of(tasks, study.launches, thresholds), elasticities, thresholds)

    def windows(self, windows: Intervals, what: Message) -> list[tuple[Partition, Pace, Verdict]]:
        """Split and judge each window; ``what``: how to call one."""
        study, launches = self.study, self.study.launches
        excerpt, known = study.profile.excerpt, launches.untold is None or not launches.known.any()
        elasticity = self.elasticities.of_windows(windows) if self.elasticities else [None] * len(windows)
        rows = zip(study.timeline.partition(windows), self.sums.of_windows(windows), elasticity, strict=True)
        return [
            (p, pace, judge(p, pace, self.thresholds, elasticity=e, excerpt=excerpt, what=what, latency_known=known))
            for p, pace, e in rows
        ]


def _steps(study: Study, judging: _Judging) -> list[Step]:
    judged = judging.windows(study.steps, _STEP)
    starts = (study.steps.start - study.timeline.span[0]).tolist()
    host = study.profile.host_steps
    lengths = dict(zip(host.number.tolist(), (host.end - host.start).tolist(), strict=True))
    return [
        Step(
            step=number,
            start_ns=start,
            partition=partition,
            verdict=verdict,
            whole=whole,
            host_ns=lengths.get(number),
        )
        for number, start, (partition, _, verdict), whole in zip(
            study.step_numbers.tolist(), starts, judged, study.whole.tolist(), strict=True
        )
    ]


def _cuts(study: Study, span: tuple[int, int], shortest: int, thresholds: Thresholds) -> Intervals | None:
    """Cut the window into phases; where rows are missing there are none to be told."""
    if study.profile.excerpt:
        return None
    return segment(study.profile.tasks, study.launches, study.timeline, span, shortest, thresholds)


def _phases(study: Study, judging: _Judging, cuts: Intervals | None, shortest: int) -> list[Phase]:
    """Judge each phase, and join neighbours of one verdict."""
    if cuts is None:
        return []
    bounds = [verdict.bound for _, _, verdict in judging.windows(cuts, _PHASE)]
    windows = join_alike(cuts, bounds, shortest)
    judged = judging.windows(windows, _PHASE)
    tasks = study.profile.tasks
    weight = np.where(tasks.work != Work.CONTROL, tasks.dur, 0)
    return [
        _phase(study, weight, start, end, partition, verdict)
        for start, end, (partition, _, verdict) in zip(
            windows.start.tolist(), windows.end.tolist(), judged, strict=True
        )
    ]


def _phase(study: Study, weight: I64, start: int, end: int, partition: Partition, verdict: Verdict) -> Phase:
    """Describe one phase; ``weight``: the time of each task of the profile that counts, ns."""
    tasks, host = study.profile.tasks, study.profile.host
    origin = study.timeline.span[0]
    first, last = np.searchsorted(tasks.start, [start, end]).tolist()
    steps = tasks.step[first:last]
    steps = steps[steps >= 0]
    blame = sum_blame(study.blamed.within(start, end), host, study.nesting, _NAMES)
    where = next((b.where for b in blame if b.where), None) if verdict.bound == "host" else None
    if where is None:
        longest = first + largest(weight[first:last], _NAMES)
        where = next((line for i in longest.tolist() if (line := host.code_line(int(tasks.op[i])))), None)
    return Phase(
        start_ns=start - origin,
        end_ns=end - origin,
        first_step=int(steps.min()) if len(steps) else None,
        last_step=int(steps.max()) if len(steps) else None,
        label=study.sections.label(first, last, weight),
        bound=verdict.bound,
        partition=partition,
        blame=blame,
        verdict=verdict,
        where=where,
        kernels=_top_types(study.types, weight, first, last),
    )


def _top_types(types: Labels, weight: I64, first: int, last: int) -> list[TypeTime]:
    codes, count, total = tally(types.codes[first:last], weight[first:last])
    order = np.argsort(-total, kind="stable")[:_TYPES].tolist()
    return [
        TypeTime(
            type=types.names[c] if (c := int(codes[i])) >= 0 else "N/A", count=int(count[i]), total_ns=int(total[i])
        )
        for i in order
        if total[i] > 0
    ]


def _check(study: Study, thresholds: Thresholds) -> ReplayCheck | None:
    replay = study.replay
    if replay is None:
        return None
    reason = replay.refusal(thresholds)
    return ReplayCheck(
        usable=reason is None,
        reason=reason,
        error=replay.error,
        unexplained_ns=replay.unexplained_ns,
        launched=replay.launched,
    )


def _syncs(
    study: Study, scene: Scene | None, span: tuple[int, int], steps: int, thresholds: Thresholds
) -> list[SyncSite]:
    """List the places where the host waits for the device, the costliest first."""
    sites = []
    begin, end = (times - study.launches.skew for times in (study.syncs.start, study.syncs.end))
    chosen = study.syncs_of(span)
    before, length = np.maximum(np.minimum(end, span[0]) - begin, 0), end - begin
    idle = IdleAfter.of(study.syncs, study.timeline.idle, study.blamed, study.launches.skew, thresholds.pause_ns, span)
    for point in study.points:
        calls = point.calls[chosen[point.calls]]
        if len(calls):
            sites.append((point, len(calls), int(length[calls].sum()), idle.total(calls)))
    sites.sort(key=lambda s: (-s[3], -s[2]))
    gains: dict[str, tuple[int, int] | None] = {}
    several = len({place(point) for point in study.points}) > 1
    for point, *_ in sites[:_SYNC_PLACES] if scene else []:
        name = place(point)
        if scene and name not in gains:
            found = predict(scene, f"sync:{name}*0" if several else "sync*0")  # the latter is asked for anyway
            gains[name] = (found.least // steps, found.most // steps)
    return [
        SyncSite(
            name=point.name,
            torch_op=point.op,
            where=point.where,
            count=count,
            host_ns=host,
            idle_ns=idle,
            gain_ns_per_step=gains.get(place(point)),
            kind=point.kind,
            pinned=point.pinned,
            purpose=point.purpose,
            before_ns=int(before[point.calls[chosen[point.calls]]].sum()),
        )
        for point, count, host, idle in sites
    ]


def _streams(tasks: Tasks, launches: Launches, everything: Tasks, span: tuple[int, int]) -> list[Stream]:
    """Split the window once more for each stream alone; collectives without a stream come last."""
    streams = []
    own = tally(tasks.stream, (tasks.work != Work.CONTROL).astype(np.int64))
    counts = dict(zip(own[0].tolist(), own[1].tolist(), strict=True))
    for number, rows in rows_of_each(everything.stream):
        count = counts.get(number, 0)
        if count:
            timeline = lay_out(everything, launches, span, rows)
            partition = timeline.partition(window(*span))[0]
            streams.append(Stream(stream=number if number >= 0 else None, tasks=count, partition=partition))
    return sorted(streams, key=lambda s: (s.stream is None, -s.partition.compute_ns, s.stream or 0))

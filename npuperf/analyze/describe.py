"""The window of a device described: how it splits, its steps, streams, phases and synchronisations."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.analyze.request import AnalyzeRequest
from npuperf.documents.analysis import (
    Clock,
    CoreUse,
    Device,
    Partition,
    Phase,
    ReplayCheck,
    Step,
    Stream,
    SyncSite,
    TypeTime,
    Verdict,
)
from npuperf.host.blame import sum_blame
from npuperf.host.syncs import place
from npuperf.messages import Message, say
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene, predict
from npuperf.timeline.launches import Launches
from npuperf.timeline.partition import lay_out, window
from npuperf.timeline.phases import join_alike, segment, shortest_phase
from npuperf.timeline.typical import typical_step
from npuperf.timeline.vendor import compare
from npuperf.timeline.verdict import WINDOW, Pace, judge, paces

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
    use: CoreUse,
    thresholds: Thresholds,
) -> tuple[Pace, Device]:
    """Describe the window: everything but what rules and proposals say of it."""
    profile, launches, origin = study.profile, study.launches, study.timeline.span[0]
    whole, pace, verdict = _judge_windows(study, window(*span), thresholds, _STEP if len(study.steps) else WINDOW)[0]
    steps = [s for s in _steps(study, thresholds) if request.step in (None, s.step)]
    shortest = shortest_phase(study.timeline.span[1] - origin, study.steps, thresholds)
    phases = _phases(study, span, shortest, thresholds)
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
        verdict=verdict,
        clock=Clock(
            launch_latency_ns=launches.latency,
            latency_samples=launches.samples,
            skew_ns=launches.skew,
            launches=int(np.count_nonzero(launches.known)),
            tasks=len(profile.tasks),
        ),
        steps=steps,
        streams=_streams(tasks, launches, profile.tasks.without_counters(), span),
        cores=use,
        vendor=compare(profile.vendor_steps, steps, whole, thresholds) if request.step is None or steps else [],
        phases=phases,
        blame=sum_blame(study.blamed.within(*span), profile.host, study.nesting, _NAMES),
        typical_step=typical_step(steps, phases, shortest, thresholds),
        syncs=_syncs(study, scene, span, max(len(steps), 1)),
        replay=_check(study, thresholds),
    )
    return pace, report


def _judge_windows(
    study: Study, windows: Intervals, thresholds: Thresholds, what: Message
) -> list[tuple[Partition, Pace, Verdict]]:
    """Split and judge each window; ``what``: how to call one."""
    tasks, launches = study.profile.tasks, study.launches
    rows = zip(
        study.timeline.partition(windows),
        paces(tasks, launches, windows, thresholds),
        study.elasticity(windows),
        strict=True,
    )
    excerpt = study.profile.excerpt
    return [(p, pace, judge(p, pace, thresholds, elasticity=e, excerpt=excerpt, what=what)) for p, pace, e in rows]


def _steps(study: Study, thresholds: Thresholds) -> list[Step]:
    judged = _judge_windows(study, study.steps, thresholds, _STEP)
    starts = (study.steps.start - study.timeline.span[0]).tolist()
    return [
        Step(step=number, start_ns=start, partition=partition, verdict=verdict)
        for number, start, (partition, _, verdict) in zip(study.step_numbers.tolist(), starts, judged, strict=True)
    ]


def _phases(study: Study, span: tuple[int, int], shortest: int, thresholds: Thresholds) -> list[Phase]:
    """Cut the window into phases, judge each, and join neighbours of one verdict."""
    if study.profile.excerpt:
        return []
    cuts = segment(study.profile.tasks, study.launches, study.timeline, span, shortest, thresholds)
    bounds = [verdict.bound for _, _, verdict in _judge_windows(study, cuts, thresholds, _PHASE)]
    windows = join_alike(cuts, bounds, shortest)
    judged = _judge_windows(study, windows, thresholds, _PHASE)
    return [
        _phase(study, start, end, partition, verdict)
        for start, end, (partition, _, verdict) in zip(
            windows.start.tolist(), windows.end.tolist(), judged, strict=True
        )
    ]


def _phase(study: Study, start: int, end: int, partition: Partition, verdict: Verdict) -> Phase:
    tasks, host = study.profile.tasks, study.profile.host
    origin = study.timeline.span[0]
    first, last = np.searchsorted(tasks.start, [start, end]).tolist()
    steps = tasks.step[first:last]
    steps = steps[steps >= 0]
    weight = np.where(tasks.work != Work.CONTROL, tasks.dur, 0)
    blame = sum_blame(study.blamed.within(start, end), host, study.nesting, _NAMES)
    where = next((b.where for b in blame if b.where), None) if verdict.bound == "host" else None
    if where is None:
        longest = first + np.argsort(-weight[first:last], kind="stable")[:_NAMES]
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
    codes = types.codes[first:last] + 1
    totals = np.bincount(codes, weights=weight[first:last], minlength=1)
    counts = np.bincount(codes, weights=weight[first:last] > 0, minlength=1)
    order = np.argsort(-totals, kind="stable")[:_TYPES].tolist()
    return [
        TypeTime(type=types.names[c - 1] if c else "N/A", count=int(counts[c]), total_ns=int(totals[c]))
        for c in order
        if totals[c] > 0
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


def _syncs(study: Study, scene: Scene | None, span: tuple[int, int], steps: int) -> list[SyncSite]:
    """List the places where the host waits for the device, the costliest first."""
    sites = []
    begin = study.syncs.start - study.launches.skew
    chosen = (begin >= span[0] - study.launches.latency) & (begin < span[1])
    for point in study.points:
        calls = point.calls[chosen[point.calls]]
        if len(calls):
            host = int((study.syncs.end - study.syncs.start)[calls].sum())
            sites.append((point, len(calls), host, study.idle_after(calls, span)))
    sites.sort(key=lambda s: (-s[3], -s[2]))
    gains: dict[str, tuple[int, int] | None] = {}
    for point, *_ in sites[:_SYNC_PLACES] if scene else []:
        name = place(point)
        if scene and name not in gains:
            found = predict(scene, f"sync:{name}*0")
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
        )
        for point, count, host, idle in sites
    ]


def _streams(tasks: Tasks, launches: Launches, everything: Tasks, span: tuple[int, int]) -> list[Stream]:
    """Split the window once more for each stream alone; collectives without a stream come last."""
    streams = []
    for number in np.unique(everything.stream[everything.work != Work.CONTROL]).tolist():
        mine = everything.stream == number
        own = Launches(launches.end[mine], launches.latency, launches.samples, launches.skew, launches.implausible)
        timeline = lay_out(everything.filter(mine), own, span)
        count = int(np.count_nonzero((tasks.stream == number) & (tasks.work != Work.CONTROL)))
        if count:
            partition = timeline.partition(window(*span))[0]
            streams.append(Stream(stream=number if number >= 0 else None, tasks=count, partition=partition))
    return sorted(streams, key=lambda s: (s.stream is None, -s.partition.compute_ns, s.stream or 0))

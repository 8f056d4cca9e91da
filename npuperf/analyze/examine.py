"""One device: from its profile to its part of the result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from msgspec import structs

from npuperf.advise import advise
from npuperf.analyze.changes import replay_changes, unanswered
from npuperf.analyze.request import AnalyzeRequest
from npuperf.cluster.waits import Stays
from npuperf.cores.blocks import core_use
from npuperf.documents.analysis import (
    Clock,
    CoreUse,
    Device,
    Finding,
    Kernel,
    Partition,
    Phase,
    ReplayCheck,
    Step,
    Stream,
    SuperKernelCheck,
    SyncSite,
    TypeTime,
    Verdict,
    WhatIf,
)
from npuperf.host.blame import sum_blame
from npuperf.host.syncs import place
from npuperf.messages import Message, say, say_n
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.operators.sums import Key, OperatorSum, longest_kernels, sum_operators, type_labels
from npuperf.readers.log import ReadLog
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene, predict
from npuperf.scopes import core_limits, fusion
from npuperf.scopes.bench import study_cores
from npuperf.scopes.expect import Checked, check
from npuperf.scopes.fused import check_super_kernels
from npuperf.scopes.splits import Split
from npuperf.scopes.view import DeviceView
from npuperf.timeline.launches import Launches
from npuperf.timeline.partition import add, lay_out, window
from npuperf.timeline.phases import join_alike, segment, shortest_phase
from npuperf.timeline.typical import typical_step
from npuperf.timeline.vendor import compare, partition_of
from npuperf.timeline.verdict import NO_PACE, WINDOW, Pace, judge, paces

NO_TIME_PARTITION: Final = Partition(**dict.fromkeys(Partition.__struct_fields__, 0))
#: Names of a blame list beyond this one are summed by cause.
_NAMES: Final = 12
#: Sync places for which the gain is replayed.
_SYNC_PLACES: Final = 5
_TYPES: Final = 3
_STEP: Final = say("the step")
_PHASE: Final = say("the phase")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What SuperKernels are held against: an earlier profile without them, and lines of CANN's log."""

    profiles: tuple[DeviceProfile, ...] = ()
    plog: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """What one device adds to the result."""

    report: Device
    pace: Pace
    excerpt: bool = False
    stays: Stays | None = None
    operators: dict[Key, OperatorSum] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    what_if: list[WhatIf] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)


def examine(
    profile: DeviceProfile, request: AnalyzeRequest, thresholds: Thresholds, earlier: Earlier, log: ReadLog
) -> Examined | None:
    """Examine one device; None if the profile says nothing about it."""
    active = profile.tasks.work != Work.CONTROL
    if not active.any():
        return _vendor_only(profile, request, thresholds) if profile.vendor_steps else None
    study = Study.of(profile, thresholds)
    _warn(study, request.cores, log)
    span = study.timeline.span if request.step is None else study.step_span(request.step)
    return _examined(study, span, request, thresholds, earlier)


def _warn(study: Study, cores: Cores | None, log: ReadLog) -> None:
    """Say what a reader should know of a profile before its figures."""
    profile, tasks = study.profile, study.profile.tasks
    if study.launches.implausible:
        log.warn(
            say_n(
                "rank {rank} device {device}: {n} task starts long before its recorded launch; that launch counts as "
                "unknown",
                "rank {rank} device {device}: {n} tasks start long before their recorded launch; those launches count "
                "as unknown",
                study.launches.implausible,
                rank=profile.rank,
                device=profile.device,
            )
        )
    if not (tasks.type.known() & (tasks.work != Work.CONTROL)).any():
        log.warn(say("operator types are not recorded (Level0): kernels are grouped by name without running number"))
    known = profile.cores
    if cores and known.cube and (cores.cube, cores.vector) != (known.cube, known.vector):
        log.warn(
            say(
                "{given} says {cores} cores, and the profile {recorded} ({source}): the former are used",
                given=cores.source,
                cores=_pair(cores),
                recorded=_pair(known),
                source=known.source,
            )
        )


def _pair(cores: Cores) -> str:
    return f"{cores.cube},{cores.vector}"


def _examined(
    study: Study, span: tuple[int, int], request: AnalyzeRequest, thresholds: Thresholds, earlier: Earlier
) -> Examined:
    """Put together what is said about the window ``span`` of one device."""
    profile, timeline = study.profile, study.timeline
    whole_run = request.step is None
    inside = np.ones(len(profile.tasks), np.bool_)
    if not whole_run:
        inside = (profile.tasks.start >= span[0]) & (profile.tasks.start < span[1])
    tasks = profile.tasks if whole_run else profile.tasks.filter(inside)
    plain = tasks.without_counters()
    cores = request.cores or profile.cores
    origin = timeline.span[0]
    scene = None
    if study.replay is not None and study.elasticities is not None:
        scene = Scene.of(study, study.replay, span)
    use, held, bench = study_cores(study, cores, span, scene, thresholds, request.cores_of)
    pace, report = _report(
        study, plain, span, request, scene, core_use(plain, cores, span[1] - span[0], use), thresholds
    )
    view = DeviceView(
        study=study,
        tasks=plain,
        types=type_labels(plain),
        launches=study.launches.filter(inside),
        waits=timeline.host_waits(len(profile.tasks))[inside],
        held=held[inside],
        cores=cores,
        report=report,
        scene=scene,
        bench=bench,
        thresholds=thresholds,
    )
    view = _with_scopes(view, request.cores_of, earlier)
    windowed = replace(profile, tasks=plain)
    return Examined(
        report=view.report,
        pace=pace,
        excerpt=profile.excerpt,
        stays=Stays.of(view.report, plain),
        operators=sum_operators(profile, tasks, cores, origin),
        kernels=longest_kernels(profile, plain, origin, request.top),
        findings=advise(view, request.rules),
        what_if=replay_changes(view, request.what_if),
        checked=[check(windowed, expectation) for expectation in request.expect],
    )


def _with_scopes(view: DeviceView, asked: Split, earlier: Earlier) -> DeviceView:
    """Add core limits, proposed and asked for, then SuperKernels, which depend on them, and their verification."""
    report = structs.replace(view.report, core_splits=core_limits.splits(view, asked))
    view = replace(view, report=report)
    checks = _check_super_kernels(view, earlier)
    report = structs.replace(report, super_kernels=fusion.scopes(view), super_kernel_checks=checks)
    return replace(view, report=report)


def _check_super_kernels(view: DeviceView, earlier: Earlier) -> list[SuperKernelCheck]:
    """Hold the SuperKernels of a profile against the same device's earlier profile without them."""
    if not (earlier.profiles or earlier.plog):
        return []
    who = (view.profile.rank, view.profile.device)
    same = [p for p in earlier.profiles if (p.rank, p.device) == who] or [*earlier.profiles]
    return check_super_kernels(same[0].tasks if same else Tasks.empty(), view.tasks, earlier.plog)


def _report(
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
    whole, pace, verdict = _judge_windows(
        study, window(*span), thresholds, say("the step") if len(study.steps) else WINDOW
    )[0]
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


def _vendor_only(profile: DeviceProfile, request: AnalyzeRequest, thresholds: Thresholds) -> Examined:
    """Report on the exporter's own split when there is no kernel to look at."""
    chosen = [v for v in profile.vendor_steps if request.step in (None, v.step)]
    partitions = [partition_of(v) for v in chosen]
    whole = add(partitions) if partitions else NO_TIME_PARTITION
    steps = [
        Step(step=v.step, start_ns=0, partition=p, verdict=judge(p, NO_PACE, thresholds))
        for v, p in zip(chosen, partitions, strict=True)
        if v.step is not None
    ]
    none = Tasks.empty()
    report = Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=profile.soc,
        cores_cube=None,
        cores_vector=None,
        origin_ns=0,
        partition=whole,
        verdict=judge(whole, NO_PACE, thresholds),
        clock=Clock(launch_latency_ns=0, latency_samples=0, skew_ns=0, launches=0, tasks=0),
        steps=steps,
        streams=[],
        cores=core_use(none, Cores(), 0),
        vendor=[],
        phases=[],
    )
    reason = say("there is no kernel in the data, only the exporter's own split")
    return Examined(report, NO_PACE, what_if=[unanswered(expr, report, reason) for expr in request.what_if])

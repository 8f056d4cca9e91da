"""One device: from its profile to its part of the result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from npuperf.advise import advise
from npuperf.advise.rule import View
from npuperf.cluster.waits import Stays
from npuperf.cores.blocks import core_use
from npuperf.documents.analysis import (
    Clock,
    Device,
    Finding,
    Kernel,
    Partition,
    Phase,
    ReplayCheck,
    Step,
    Stream,
    SyncSite,
    TypeTime,
    Verdict,
    WhatIf,
)
from npuperf.host.blame import sum_blame
from npuperf.host.mode import mode_of, no_launches
from npuperf.host.syncs import place
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile, ReadLog
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.operators.sums import Key, OperatorSum, longest_kernels, sum_operators, type_labels
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene, pattern, predict
from npuperf.scopes.bench import CoreStudy, add_checks, add_scopes
from npuperf.scopes.expect import Checked, Expectation, check
from npuperf.scopes.splits import Split
from npuperf.timeline.launches import Launches
from npuperf.timeline.partition import add, lay_out, window
from npuperf.timeline.phases import join_alike, segment, shortest_phase
from npuperf.timeline.typical import typical_step
from npuperf.timeline.vendor import compare, partition_of
from npuperf.timeline.verdict import NO_PACE, Pace, judge, paces

NO_TIME_PARTITION: Final = Partition(**dict.fromkeys(Partition.__struct_fields__, 0))
#: Names of a blame list beyond this one are summed by cause.
_NAMES: Final = 12
#: Sync places for which the gain is replayed.
_SYNC_PLACES: Final = 5
_TYPES: Final = 3
#: Operator types that are named where an expression matches none.
_NEAR: Final = 3


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a device: a step (None: all), core counts, list lengths, what-if expressions, core limits."""

    top: int = 10
    step: int | None = None
    cores: Cores | None = None
    what_if: tuple[str, ...] = ()
    soc: str | None = None
    cores_of: Split = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    earlier: tuple[DeviceProfile, ...] = ()
    plog: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(slots=True)
class Part:
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


def examine(profile: DeviceProfile, ask: Question, thresholds: Thresholds, log: ReadLog) -> Part | None:
    """Examine one device; None if the profile says nothing about it."""
    active = profile.tasks.work != Work.CONTROL
    if not active.any():
        return _vendor_only(profile, ask, thresholds) if profile.vendor_steps else None
    study = Study.of(profile, thresholds)
    launches = study.launches
    if launches.implausible:
        log.warn(f"rank {profile.rank} device {profile.device}: {launches.implausible} tasks start long before "
                 "their recorded launch; those launches count as unknown")  # fmt: skip
    if not (profile.tasks.type.known() & active).any():
        log.warn("operator types are not recorded (Level0): kernels are grouped by name without running number")
    if ask.cores and profile.cores.cube and _pair(ask.cores) != _pair(profile.cores):
        log.warn(
            f"{ask.cores.source} says {_pair(ask.cores)} cores, and the profile {_pair(profile.cores)} "
            f"({profile.cores.source}): the former are used"
        )
    span = study.timeline.span if ask.step is None else study.step_span(ask.step)
    return _report(study, span, ask, thresholds)


def _pair(cores: Cores) -> str:
    return f"{cores.cube},{cores.vector}"


def _report(study: Study, span: tuple[int, int], ask: Question, thresholds: Thresholds) -> Part:
    """Put together what is said about the window ``span`` of one device."""
    profile, launches, timeline = study.profile, study.launches, study.timeline
    inside = np.ones(len(profile.tasks), np.bool_)
    if ask.step is not None:
        inside = (profile.tasks.start >= span[0]) & (profile.tasks.start < span[1])
    tasks = profile.tasks.filter(inside)
    plain = tasks.without_counters()
    cores = ask.cores or profile.cores
    origin = timeline.span[0]
    whole, pace, verdict = _judge_windows(study, window(*span), thresholds)[0]
    steps = [s for s in _steps(study, thresholds) if ask.step in (None, s.step)]
    count = max(len(steps), 1)
    scene = _scene(study, span)
    core_study = CoreStudy.of(study, cores, span, scene, thresholds, ask.cores_of)
    use = core_use(plain, cores, whole.span_ns)
    use.over_time = core_study.over_time
    shortest = shortest_phase(timeline.span[1] - origin, study.steps, thresholds)
    phases = _phases(study, span, shortest, thresholds)
    report = Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=ask.soc or profile.soc,
        cores_cube=cores.cube,
        cores_vector=cores.vector,
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
        streams=_streams(plain, launches, profile.tasks.without_counters(), span),
        cores=use,
        vendor=compare(profile.vendor_steps, steps, whole, thresholds) if ask.step is None or steps else [],
        phases=phases,
        blame=sum_blame(study.blamed.within(*span), profile.host, study.nesting, _NAMES),
        typical_step=typical_step(steps, phases, shortest, thresholds),
        syncs=_syncs(study, scene, span, count),
        replay=_check(study, thresholds),
    )
    view = View(
        profile=profile,
        tasks=plain,
        types=type_labels(plain),
        launches=launches.filter(inside),
        waits=timeline.host_waits(len(profile.tasks))[inside],
        cores=cores,
        report=report,
        scene=scene,
        thresholds=thresholds,
        held=core_study.held[inside] if core_study.held is not None else np.zeros(len(plain), np.int64),
        mode=core_study.mode,
        bench=core_study.bench,
        no_bench=core_study.no_bench,
    )
    add_scopes(report, view, ask.cores_of)
    windowed = replace(profile, tasks=plain)
    add_checks(report, windowed, ask.earlier, ask.plog)
    return Part(
        report=report,
        pace=pace,
        excerpt=profile.excerpt,
        stays=_stays(report, plain),
        operators=sum_operators(profile, tasks, cores, origin),
        kernels=longest_kernels(profile, plain, origin, ask.top),
        findings=advise(view, thresholds, ask.rules),
        what_if=_what_if(study, scene, report, ask, thresholds),
        checked=[check(windowed, expectation) for expectation in ask.expect],
    )


def _stays(report: Device, tasks: Tasks) -> Stays:
    """Return how long the rank stayed in each of its collectives."""
    collectives = tasks.only(Work.COMMUNICATION)
    types = type_labels(collectives)
    return Stays(report, tuple(types[i] or "" for i in range(len(collectives))), collectives.dur)


def _judge_windows(study: Study, windows: Intervals, thresholds: Thresholds) -> list[tuple[Partition, Pace, Verdict]]:
    """Split and judge each window."""
    tasks, launches = study.profile.tasks, study.launches
    rows = zip(
        study.timeline.partition(windows),
        paces(tasks, launches, windows, thresholds),
        study.elasticity(windows),
        strict=True,
    )
    excerpt = study.profile.excerpt
    return [(p, pace, judge(p, pace, thresholds, elasticity=e, excerpt=excerpt)) for p, pace, e in rows]


def _steps(study: Study, thresholds: Thresholds) -> list[Step]:
    judged = _judge_windows(study, study.steps, thresholds)
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
    bounds = [verdict.bound for _, _, verdict in _judge_windows(study, cuts, thresholds)]
    windows = join_alike(cuts, bounds, shortest)
    judged = _judge_windows(study, windows, thresholds)
    types = type_labels(study.profile.tasks)
    return [
        _phase(study, start, end, partition, verdict, types)
        for start, end, (partition, _, verdict) in zip(
            windows.start.tolist(), windows.end.tolist(), judged, strict=True
        )
    ]


def _phase(study: Study, start: int, end: int, partition: Partition, verdict: Verdict, types: Labels) -> Phase:
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
        kernels=_top_types(types, weight, first, last),
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


def _scene(study: Study, span: tuple[int, int]) -> Scene | None:
    """Set the stage for what-ifs; None where the replay abstains."""
    if study.replay is None or study.elasticities is None:
        return None
    return Scene.of(study, study.replay, span)


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


def _what_if(study: Study, scene: Scene | None, report: Device, ask: Question, thresholds: Thresholds) -> list[WhatIf]:
    """Replay the user's expressions, and the changes that every report shows."""
    if scene is None:
        return [_unanswered(expr, report, _why_no_model(study, thresholds)) for expr in ask.what_if]
    asked = [_answered(expr, "", scene, report) for expr in ask.what_if]
    standard = [_answered(expr, title, scene, report) for expr, title in _standard(report) if expr not in ask.what_if]
    return [*asked, *(w for w in standard if w.reason is None)]


def _unanswered(expression: str, report: Device, reason: str, title: str = "") -> WhatIf:
    return WhatIf(
        expr=expression,
        span_ns=None,
        gain_pct=None,
        gain_ns_per_step=None,
        gain_pct_interval=None,
        gain_per="step" if report.steps else "window",
        title=title,
        asked=not title,
        reason=reason,
        rank=report.rank,
        device=report.device,
    )


def _answered(expression: str, title: str, scene: Scene, report: Device) -> WhatIf:
    found = predict(scene, expression)
    answer = _unanswered(expression, report, "" if found.matched else _unmatched(expression, scene), title)
    if found.matched:
        before, per = max(found.before, 1), max(len(report.steps), 1)
        answer.reason = None
        answer.span_ns = found.after
        answer.gain_pct = 100 * (found.before - found.after) / before
        answer.gain_ns_per_step = (found.least // per, found.most // per)
        answer.gain_pct_interval = (100 * found.least / before, 100 * found.most / before)
    return answer


def _unmatched(expression: str, scene: Scene) -> str:
    """Name the parts of an expression that match nothing, and operator types that may be meant."""
    parts = [part for part in expression.split(",") if not predict(scene, part).matched]
    wanted = [part.split(":", 1)[1].split("*")[0].lower() for part in parts if part.startswith(("op:", "launches:"))]
    near = [name for name in scene.types.names if any(w and w in name.lower() for w in wanted)][:_NEAR]
    return f"nothing here matches {', '.join(parts)}" + (f"; there are {', '.join(near)}" if near else "")


def _why_no_model(study: Study, thresholds: Thresholds) -> str:
    if study.profile.excerpt:
        return "rows are missing from the kernel table, so nothing can be replayed"
    if study.replay is None:
        return no_launches(mode_of(study.profile))
    return study.replay.refusal(thresholds) or "the replay abstains"


def _standard(report: Device) -> list[tuple[str, str]]:
    """Return the changes that are worth a line in every report, with their titles."""
    rows = [
        ("host*0,latency*0", "no waiting for the host at all (what graph capture can reach at most)"),
        ("host*0.5", "host twice as fast"),
        ("launches*0.5", "kernels fused in pairs"),
    ]
    causes = dict.fromkeys(b.cause for b in report.blame)
    titles = {
        "tiling": "no shape inference and tiling on the host",
        "data_loading": "data always ready",
        "compile": "operators compiled before",
        "gc": "no garbage collection",
    }
    rows += [(f"host:{cause}*0", title) for cause, title in titles.items() if cause in causes]
    if any(s.idle_ns for s in report.syncs):
        rows.append(("sync*0", "no waiting of the host for the device"))
    if report.partition.comm_exposed_ns:
        rows.append(("overlap", "communication beside compute"))
        rows.append(("comm*0.5", "communication twice as fast"))
    if report.phases:
        times: dict[str, int] = {}
        for kernel in (k for p in report.phases for k in p.kernels):
            times[kernel.type] = times.get(kernel.type, 0) + kernel.total_ns
        if times:
            top = max(times, key=times.__getitem__)
            rows.append((f"op:{pattern(top)}*0.5", f"{top} twice as fast"))
    return rows


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


def _vendor_only(profile: DeviceProfile, ask: Question, thresholds: Thresholds) -> Part:
    """Report on the exporter's own split when there is no kernel to look at."""
    chosen = [v for v in profile.vendor_steps if ask.step in (None, v.step)]
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
    reason = "there is no kernel in the data, only the exporter's own split"
    return Part(report, NO_PACE, what_if=[_unanswered(expr, report, reason) for expr in ask.what_if])

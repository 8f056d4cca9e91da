"""The window of a device described: how it splits, its steps, streams, phases and synchronisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, structs

from npuperf.analyze.request import Question
from npuperf.base.messages import Message, chain, factor, say
from npuperf.device import core_limits, superkernel
from npuperf.device.blame import IdleAfter, sum_blame
from npuperf.device.cores import Worked, core_use
from npuperf.device.dependencies import sum_dependencies
from npuperf.device.efficiency import DeviceEfficiency
from npuperf.device.mode import is_slowed
from npuperf.device.partition import lay_out, span_of, window, within
from npuperf.device.rank_summary import RankSummary, bounds_alone
from npuperf.device.replay import Elasticities
from npuperf.device.steps import join_alike, segment, shortest_phase, typical_step
from npuperf.device.study import Study
from npuperf.device.syncs import sync_name
from npuperf.device.verdict import WINDOW, Pace, PaceSums, compare_vendor_steps, give_verdict
from npuperf.device.view import DeviceWindow
from npuperf.device.whatif import predict
from npuperf.model.efficiency_result import Efficiency
from npuperf.model.groups import largest, rows_of_each, tally
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64
from npuperf.model.memory_result import Memory
from npuperf.model.result import (
    Blame,
    Clock,
    CoreClock,
    Dependency,
    Device,
    JudgedSteps,
    Partition,
    Phase,
    RecordedVariable,
    ReplayCheck,
    Step,
    Stream,
    SuperKernelCheck,
    SyncSite,
    TypeTime,
    Verdict,
    WitnessCheck,
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


#: Names of a blame list beyond this one are summed by cause.
_NAMES: Final = 12
#: Sync places for which the gain is replayed.
_SYNC_PLACES: Final = 5
_TYPES: Final = 3
_STEP: Final = say("the step")
_PHASE: Final = say("the phase")


class JudgedWindow(Struct, frozen=True):
    """What is judged of a device: a window as a whole, and by steps and phases.

    ``partition`` is of the window, ``whole`` of all that was recorded, or of the step that was asked for; ``shortest``:
    the length of a phase that is worth telling, ns; ``efficiency``: of the whole, and of the window.
    """

    partition: Partition
    whole: Partition
    pace: Pace
    verdict: Verdict
    steps: list[Step]
    phases: list[Phase]
    blame: list[Blame]
    dependencies: list[Dependency]
    shortest: int
    efficiency: tuple[Efficiency | None, Efficiency | None]

    @property
    def whole_steps(self) -> list[Step]:
        """The steps that are judged: the whole ones, or all where none is."""
        return [s for s in self.steps if s.whole] or self.steps


def judge_window(
    study: Study, span: tuple[int, int], step: int | None, efficiency: DeviceEfficiency | None, thresholds: Thresholds
) -> JudgedWindow:
    """Split and judge the window ``span``; ``step``: the one that it is, if one was asked for.

    ``efficiency``: None where nothing tells the peak of the cores.
    """

    def efficiencies(windows: Intervals, *, modules: bool = False) -> Sequence[Efficiency | None]:
        return [None] * len(windows) if efficiency is None else efficiency.of_windows(windows, modules=modules)

    origin, profile = study.timeline.span[0], study.profile
    shortest = shortest_phase(study.timeline.span[1] - origin, study.steps, thresholds)
    cuts = None  # where rows are missing there are no phases to be told
    if not profile.excerpt:  # before there are more columns
        cuts = segment(profile.tasks, study.launches, study.timeline, span, shortest, thresholds)
    judge_all = _judge_of(study, thresholds)
    partition, pace, verdict = judge_all(window(*span), _STEP if len(study.steps) else WINDOW)[0]
    host_steps = profile.host_steps
    lengths = dict(zip(host_steps.number.tolist(), (host_steps.end - host_steps.start).tolist(), strict=True))
    starts, found = (study.steps.start - origin).tolist(), judge_all(study.steps, _STEP)
    steps = [
        Step(step=number, start_ns=start, partition=own, verdict=said, whole=whole, host_ns=lengths.get(number),
             efficiency=of_step)
        for number, start, (own, _, said), whole, of_step in zip(
            study.step_numbers.tolist(), starts, found, study.whole.tolist(), efficiencies(study.steps), strict=True
        )
        if step in (None, number)
    ]  # fmt: skip
    phases: list[tuple[int, int, Partition, Verdict]] = []
    if cuts is not None:
        told = judge_all(cuts, _PHASE)
        joined = join_alike(cuts, [found.bound for _, _, found in told], shortest)
        if len(joined) < len(cuts):
            told = judge_all(joined, _PHASE)
        borders = zip(joined.start.tolist(), joined.end.tolist(), strict=True)
        phases = [(*at, own, found) for at, (own, _, found) in zip(borders, told, strict=True)]
    del judge_all  # much memory
    blame = sum_blame(study.blamed.within(*span), profile.host, study.nesting, _NAMES)
    needed, *by_phase = sum_dependencies(study, [span, *((start, end) for start, end, *_ in phases)], thresholds)
    weight, recorded = _occupying(profile.tasks), span_of(profile.tasks)
    if step is not None:
        recorded = span
    ends = np.array([(begin, end) for begin, end, *_ in phases], np.int64).reshape(-1, 2)
    of_phases = efficiencies(Intervals(ends[:, 0], ends[:, 1]))
    (of_window,) = efficiencies(window(*span), modules=True)
    (of_whole,) = [of_window] if recorded == span else efficiencies(window(*recorded))
    return JudgedWindow(
        partition=partition,
        whole=partition if recorded == span else study.timeline.partition(window(*recorded))[0],
        pace=pace,
        verdict=with_recording_cost(verdict, profile.context.overhead, thresholds),
        steps=steps,
        phases=[
            _phase(study, weight, *phase, own, blame if phase[:2] == span else None, of_phase)
            for phase, own, of_phase in zip(phases, by_phase, of_phases, strict=True)
        ],
        blame=blame,
        dependencies=needed,
        shortest=shortest,
        efficiency=(of_whole, of_window),
    )


def describe(
    window: DeviceWindow,
    judged: JudgedWindow,
    request: Question,
    summary: RankSummary | None,
    super_kernel_checks: list[SuperKernelCheck],
    witnesses: list[WitnessCheck],
    worked: Worked | None,
    memory: Memory | None,
    clock: CoreClock | None,
) -> Device:
    """Put together what is said of a device; ``worked``: of all its tasks."""
    study, span, thresholds = window.study, window.span, window.thresholds
    profile, environment = study.profile, study.profile.context.environment
    # SuperKernels depend on core limits, proposed and asked for.
    splits = core_limits.describe_splits(window, request.cores_of)
    launches, replay = study.launches, study.replay
    worked = worked and worked.filter(within(profile.tasks, span))
    launched = int(np.count_nonzero(launches.known))
    refusal = None if replay is None else replay.refusal(thresholds, study.judged)
    origin, (first, last) = study.timeline.span[0], span_of(profile.tasks)
    of_tasks = dict(zip(study.step_numbers.tolist(), study.timeline.partition(study.of_tasks), strict=True))
    compared = {step.step: of_tasks[step.step] for step in judged.steps}
    all_counts = request.step is not None  # of the step that was asked for
    return Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=window.soc,
        cores_cube=window.cores.cube,
        cores_vector=window.cores.vector,
        origin_ns=origin,
        partition=judged.whole,
        verdict=judged.verdict,
        clock=Clock(
            launch_latency_ns=launches.latency if launches.untold is None else None,
            latency_samples=launches.samples,
            skew_ns=launches.skew,
            launches=launched,
            tasks=len(profile.tasks),
            skew_most_ns=launches.skew_most,
            latency_bounds_ns=(0, launches.latency_most)
            if launched and launches.untold is not None and launches.latency_most is not None
            else None,
            latency_reason=launches.untold if launched else None,
        ),
        steps=judged.steps,
        streams=_streams(window),
        cores=core_use(window.tasks, window.cores, span[1] - span[0], window.over_time, worked),
        vendor=compare_vendor_steps(profile.vendor_steps, compared, judged.whole, thresholds)
        if request.step is None or judged.steps
        else [],
        phases=judged.phases,
        witnesses=witnesses,
        blame=judged.blame,
        dependencies=judged.dependencies,
        typical_step=typical_step(
            [s for s in judged.steps if s.whole], judged.phases, _labels_of(study), judged.shortest, thresholds
        ),
        syncs=_syncs(window),
        replay=None
        if replay is None
        else ReplayCheck(
            usable=refusal is None,
            reason=refusal,
            error=replay.error,
            unexplained_ns=replay.unexplained_in(study.judged),
            launched=replay.launched,
        ),
        communication=None if summary is None else bounds_alone(summary, judged.partition.comm_exposed_ns),
        core_splits=splits,
        super_kernels=superkernel.find_scopes(window, splits, [e.where for e in request.expect]),
        super_kernel_checks=super_kernel_checks,
        judged=JudgedSteps(
            steps=len(judged.whole_steps),
            start_ns=span[0] - origin,
            partition=judged.partition,
            before_ns=0 if all_counts else max(span[0] - first, 0),
            after_ns=0 if all_counts else max(last - span[1], 0),
            host_before_ns=0 if all_counts else max(first - span[0], 0),
            host_after_ns=0 if all_counts else max(span[1] - last, 0),
            efficiency=judged.efficiency[1],
        )
        if judged.steps or study.since is not None
        else None,
        efficiency=judged.efficiency[0],
        memory=memory,
        core_clock=clock,
        recording_overhead=profile.context.overhead,
        environment=[RecordedVariable(name=n, value=v, recorded_by=by) for n, v, by in environment.recorded()],
    )


#: Splits and judges each of some windows, which are called as the message says.
_JudgeAll = Callable[[Intervals, Message], list[tuple[Partition, Pace, Verdict]]]


def _judge_of(study: Study, thresholds: Thresholds) -> _JudgeAll:
    """Make sums over the whole profile, by which any windows are judged."""
    tasks, replay, launches = study.profile.tasks, study.replay, study.launches
    elasticities = None  # where the replay abstains
    if replay is not None and study.usable:
        elasticities = Elasticities.of(replay, tasks.work[replay.active])
    sums = PaceSums.of(tasks, launches, thresholds)
    excerpt, known = study.profile.excerpt, launches.untold is None or not launches.known.any()

    def judge_all(windows: Intervals, what: Message) -> list[tuple[Partition, Pace, Verdict]]:
        elasticity = elasticities.of_windows(windows) if elasticities else [None] * len(windows)
        rows = zip(study.timeline.partition(windows), sums.of_windows(windows), elasticity, strict=True)
        return [
            (p, pace, give_verdict(p, pace, thresholds, elasticity=e, excerpt=excerpt, what=what, latency_known=known))
            for p, pace, e in rows
        ]

    return judge_all


def _occupying(tasks: Tasks) -> I64:
    """Return how long each task occupies the device, ns."""
    return np.where(tasks.work != Work.CONTROL, tasks.dur, 0)


def _labels_of(study: Study) -> Callable[[int, int], Message | None]:
    """Return what names the part of the program that ran between two times, ns from the device's first task."""
    tasks, weight, origin = study.profile.tasks, _occupying(study.profile.tasks), study.timeline.span[0]

    def label(start: int, end: int) -> Message | None:
        first, last = np.searchsorted(tasks.start, [origin + start, origin + end]).tolist()
        return study.sections.label(first, last, weight)

    return label


def _phase(
    study: Study,
    weight: I64,
    start: int,
    end: int,
    partition: Partition,
    verdict: Verdict,
    dependencies: list[Dependency],
    blame: list[Blame] | None,
    efficiency: Efficiency | None,
) -> Phase:
    """Describe one phase; ``weight``: the time of each task of the profile that counts, ns.

    ``blame``: that of the phase where it is known, as of one that is all that is judged.
    """
    tasks, host = study.profile.tasks, study.profile.host
    origin = study.timeline.span[0]
    first, last = np.searchsorted(tasks.start, [start, end]).tolist()
    steps = tasks.step[first:last]
    steps = steps[steps >= 0]
    if blame is None:
        blame = sum_blame(study.blamed.within(start, end), host, study.nesting, _NAMES)
    where = next((b.where for b in blame if b.where), None) if verdict.bound == "host" else None
    if where is None:
        longest = first + largest(weight[first:last], _NAMES)
        where = next((line for i in longest.tolist() if (line := host.code_line(int(tasks.op[i])))), None)
    codes, count, total = (found.tolist() for found in tally(study.types.codes[first:last], weight[first:last]))
    top = sorted(range(len(total)), key=lambda i: -total[i])[:_TYPES]
    names = (*study.types.names, "N/A")  # the last place is that of -1
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
        kernels=[TypeTime(type=names[codes[i]], count=count[i], total_ns=total[i]) for i in top if total[i] > 0],
        dependencies=dependencies,
        efficiency=efficiency,
    )


def _syncs(window: DeviceWindow) -> list[SyncSite]:
    """List the places where the host waits for the device, the costliest first."""
    study, span, scene, sites = window.study, window.span, window.scene, []
    begin, end = (times - study.launches.skew for times in (study.syncs.start, study.syncs.end))
    chosen = study.syncs_of(span)
    before, length = np.maximum(np.minimum(end, span[0]) - begin, 0), end - begin
    inside = Intervals(np.clip(begin, *span), np.clip(end, *span))
    held = inside.end - inside.start - study.timeline.active.within(inside)
    idle = IdleAfter.of(study.syncs, study.timeline.idle, study.paused, study.launches.skew, span)
    for point in study.points:
        calls = point.calls[chosen[point.calls]]
        if len(calls):
            sites.append((point, len(calls), int(length[calls].sum()), idle.total(calls)))
    sites.sort(key=lambda s: (-s[3], -s[2]))
    gains: dict[str, tuple[int, int] | None] = {}
    several = len({sync_name(point) for point in study.points}) > 1
    for point, *_ in sites[:_SYNC_PLACES] if scene else []:
        name = sync_name(point)
        if scene and name not in gains:
            found = predict(scene, f"sync:{name}*0" if several else "sync*0")  # the latter is asked for anyway
            gains[name] = (window.per_step(found.least), window.per_step(found.most))
    return [
        SyncSite(
            name=point.name,
            torch_op=point.op,
            where=point.where,
            count=count,
            host_ns=host,
            idle_ns=idle,
            gain_ns_per_step=gains.get(sync_name(point)),
            kind=point.kind,
            pinned=point.pinned,
            purpose=point.purpose,
            before_ns=int(before[point.calls[chosen[point.calls]]].sum()),
            held_ns=int(held[point.calls[chosen[point.calls]]].sum()),
        )
        for point, count, host, idle in sites
    ]


def _streams(judged: DeviceWindow) -> list[Stream]:
    """Split the window once more for each stream alone; collectives without a stream come last.

    Each is laid out as the device is, beyond the window, too: a launch may be there that its stream waits for last.
    """
    everything, streams = judged.profile.tasks, []
    span = judged.study.timeline.span
    hosts_end = span[1] > span_of(everything)[1]
    own = tally(judged.tasks.stream, (judged.tasks.work != Work.CONTROL).astype(np.int64))
    counts = dict(zip(own[0].tolist(), own[1].tolist(), strict=True))
    for number, rows in rows_of_each(everything.stream):
        count = counts.get(number, 0)
        if count:
            timeline = lay_out(everything, judged.study.launches, span, rows, hosts_end=hosts_end)
            partition = timeline.partition(window(*judged.span))[0]
            streams.append(Stream(stream=number if number >= 0 else None, tasks=count, partition=partition))
    return sorted(streams, key=lambda s: (s.stream is None, -s.partition.compute_ns, s.stream or 0))

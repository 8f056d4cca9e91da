"""One device: from its profile to its part of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field, structs

from npuperf.advise import advise, advise_memory
from npuperf.advise.launches import NO_LAUNCHING, NO_WAIT, may_capture, without_launching
from npuperf.advise.rule import MemoryView
from npuperf.analyze.describe import describe, judge_window
from npuperf.analyze.digests import DeviceDigest, digest_device, digest_vendor
from npuperf.analyze.request import Question
from npuperf.analyze.summed import RankSums
from npuperf.base.memory import give_back
from npuperf.base.messages import Message, say, say_n, series
from npuperf.base.units import short_names
from npuperf.device.chip_rate import ChipCounters, CubeRate
from npuperf.device.cores import Worked, core_use
from npuperf.device.cube_work import Peak
from npuperf.device.efficiency import DeviceEfficiency
from npuperf.device.expect import Checked, check_limit
from npuperf.device.memory_study import MemoryStudy, describe_memory, study_memory
from npuperf.device.memory_whatif import lower
from npuperf.device.mode import is_graph, no_launches
from npuperf.device.operators import Key, OperatorSum, longest_kernels, sum_operators, type_labels
from npuperf.device.partition import add, within
from npuperf.device.rank_summary import RankSummary, bounds_alone, summarise, summarise_without_kernels
from npuperf.device.steps import numbers_repeat, step_windows, whole_steps
from npuperf.device.study import Study
from npuperf.device.verdict import NO_PACE, Pace, give_verdict, partition_of
from npuperf.device.view import DeviceView, DeviceWindow, KernelUse
from npuperf.device.whatif import (
    Scene,
    is_all_communication,
    names_ranks,
    parse,
    pattern,
    peak_of,
    predict,
    types_taken,
    with_communication,
)
from npuperf.device.witness import CROSSED, SetBack, check_totals, find_set_back, steps_in_order, why_cut
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.intervals import Intervals
from npuperf.model.labels import Labels
from npuperf.model.result import Clock, Device, Finding, Kernel, Partition, Step, WhatIf
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.readers.log import ReadLog


class Earlier(Struct, frozen=True):
    """What this profile is held against: tasks of another one, and lines of CANN's log.

    ``tasks``: by rank and device; ``size``: of the files that they are from, bytes.
    """

    tasks: dict[tuple[int | None, int], Tasks] = field(default_factory=dict)
    plog: tuple[str, ...] = ()
    size: int = 0


class Ranked(Struct, frozen=True):
    """The operators and the longest kernels, most time first, of a stretch of a device's time."""

    operators: dict[Key, OperatorSum] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)

    @classmethod
    def of(cls, profile: DeviceProfile, tasks: Tasks, types: Labels, use: KernelUse, question: Question) -> Ranked:
        """Sum and list some tasks of a device; ``types``, ``use``: theirs. Times are epoch ns."""
        cores = question.cores or profile.cores
        operators = sum_operators(profile, tasks, types, cores, use.work, use.roofline)
        return cls(operators, longest_kernels(profile, tasks, question.top))

    def since(self, origin: int) -> Ranked:
        """Return the same with times that count from the device's origin, as all positions of its report do."""
        return Ranked(
            {
                key: structs.replace(one, first=one.first - origin, last=one.last - origin)
                for key, one in self.operators.items()
            },
            [structs.replace(kernel, start_ns=kernel.start_ns - origin) for kernel in self.kernels],
        )


class Examined(Struct, frozen=True):
    """What one device adds to the result.

    ``listed``: of all that was recorded, or of the step that was asked for; ``judged``: of what is judged alone, None
    where that is the same; ``sums``: the exporter's, where there are no kernels.
    """

    report: Device
    pace: Pace
    digest: DeviceDigest
    excerpt: Message | None = None
    sums: RankSums | None = None
    summary: RankSummary | None = None
    listed: Ranked = Ranked()
    judged: Ranked | None = None
    findings: list[Finding] = field(default_factory=list)
    what_if: list[WhatIf] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)


def examine(
    profile: DeviceProfile, request: Question, thresholds: Thresholds, earlier: Earlier, log: ReadLog
) -> Examined | None:
    """Examine one device; None if the profile says nothing about it."""
    if not (profile.tasks.work != Work.CONTROL).any():
        told = profile.vendor_steps or profile.memory is not None
        return _vendor_only(profile, request, thresholds, log) if told else None
    profile, useless, back = _told_apart(profile, request.step, thresholds, log)
    filed, counted = profile.cores, ChipCounters.of(profile.tasks, request.cores or profile.cores, profile.frequency)
    profile = structs.replace(profile, cores=counted.cores(filed))
    cores, soc = request.cores or profile.cores, request.soc or profile.soc
    recorded, types = profile.tasks, type_labels(profile.tasks)
    peak = Peak.of(counted.rate, cores, soc, asked=request.soc is not None or request.cores is not None)
    use = used = KernelUse.of(recorded, types, peak, cores, soc)
    if request.step is not None:
        numbers, windows = step_windows(recorded)
        at = int(np.flatnonzero(numbers == request.step)[0])
        inside = within(recorded, (int(windows.start[at]), int(windows.end[at])))
        recorded, types, used = recorded.part(inside), types.filter(inside), use.part(inside)
    listed = Ranked.of(profile, recorded, types, used, request)
    rest = request.step is None and _goes_beyond_steps(recorded, thresholds)  # then counters are asked for once more
    worked = Worked.of(profile.tasks)
    profile = profile.without_counters()
    if not rest:
        del recorded, types
    give_back()  # what reading needed; from here on what one part has freed the next one takes
    totals = check_totals(profile, thresholds)
    if back is None and useless is None and (cut := why_cut(totals)):  # of what lies at the same times less is counted
        log.warn(say("rank {rank}, device {device}: {why}", rank=profile.rank, device=profile.device, why=cut))
        useless = cut
    if useless:
        profile = structs.replace(profile, excerpt=useless)
    study = Study.of(profile, thresholds)
    _warn(study, request.cores, filed, counted.rate, log)
    origin = study.timeline.span[0]
    listed = listed.since(origin)

    # What is said about the window that is judged.
    span = study.judged if request.step is None else study.step_span(request.step)
    inside = within(profile.tasks, span)
    of_window = None
    if rest:
        of_window = Ranked.of(profile, recorded.part(inside), types.filter(inside), use.part(inside), request)
        of_window = of_window.since(origin)
        del recorded, types
    efficiency = None if use.measured is None else DeviceEfficiency.of(study, use.measured, counted.mhz)
    judged = judge_window(study, span, request.step, efficiency, thresholds)
    steps = [step.step for step in judged.whole_steps]
    window = DeviceWindow.of(study, span, steps, soc, cores, request.cores_of, thresholds)
    bound = judged.verdict.bound
    clock = counted.clock(window.tasks, inside, cores, soc, origin, thresholds.clock_ratio)
    summary = summarise(study, window.tasks, window.types, span, judged.partition, judged.phases, bound, thresholds)
    if summary is not None and clock is not None:
        summary = structs.replace(summary, clock_mhz=clock.mean_mhz)
    replaced = []  # the SuperKernels of this profile beside the same device's earlier profile without them
    if earlier.tasks or earlier.plog:
        from npuperf.device.fused import check_super_kernels

        any_ = next(iter(earlier.tasks.values()), Tasks.empty())
        before = earlier.tasks.get((profile.rank, profile.device), any_)
        replaced = check_super_kernels(before, window.tasks, earlier.plog, thresholds.compare_ratio)
    memory = study_memory(profile, study)
    of_memory = describe_memory(memory, origin, soc)
    report = describe(window, judged, request, summary, replaced, totals, worked, of_memory, clock)
    view = DeviceView(**structs.asdict(window), paused=study.paused.within(*span), report=report, memory=memory,
                      use=use.part(inside))  # fmt: skip
    expected = profile if request.step is None else structs.replace(profile, tasks=window.tasks)
    return Examined(
        report=report,
        pace=judged.pace,
        digest=digest_device(study, report, summary, use.work),
        excerpt=profile.excerpt,
        summary=summary,
        listed=listed,
        judged=of_window,
        findings=[
            *advise(view, request.rules, summary),
            *_of_memory(memory, report, profile, study, thresholds, request.rules),
        ],
        what_if=_replay_changes(view, tuple(e for e in request.what_if if not names_ranks(e))),
        checked=[check_limit(expected, expectation, cores) for expectation in request.expect],
    )


def _told_apart(
    profile: DeviceProfile, step: int | None, thresholds: Thresholds, log: ReadLog
) -> tuple[DeviceProfile, Message | None, SetBack | None]:
    """Return a device without steps where these cannot be told apart, with why it is of no use, and a clock set back.

    ``step``: the one that was asked for. What is found is warned of.
    """
    back = find_set_back(profile.communication.operations)
    useless = None if back is None else _mixed_up(profile, back, step_windows(profile.tasks)[1], log)
    if back is None and step is None and numbers_repeat(profile.tasks, thresholds):
        useless = CROSSED if steps_in_order(profile.communication.operations) else None
        log.warn(
            say(
                "rank {rank}, device {device}: numbers of steps occur again after other steps, so steps are not told "
                "apart and the whole recording is judged",
                rank=profile.rank,
                device=profile.device,
            )
            if useless is None
            else say("rank {rank}, device {device}: {why}", rank=profile.rank, device=profile.device, why=useless)
        )
        profile = profile.without_steps()
    elif useless and step is None:
        profile = profile.without_steps()
    return profile, useless, back


def _goes_beyond_steps(tasks: Tasks, thresholds: Thresholds) -> bool:
    """Tell whether kernels were recorded outside of the whole steps, if there are any."""
    numbers, _ = step_windows(tasks)
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    whole = whole_steps(tasks, numbers, thresholds)
    return bool(whole.any() and (not whole.all() or (tasks.step[kernels] < 0).any()))


def _mixed_up(profile: DeviceProfile, back: SetBack, steps: Intervals, log: ReadLog) -> Message | None:
    """Warn of a clock that was set back; say why the device is of no use where most of its ``steps`` are mixed up."""
    why = back.why(steps)
    log.warn(say("rank {rank}, device {device}: {why}", rank=profile.rank, device=profile.device, why=why or back.said))
    return why


def _warn(study: Study, asked: Cores | None, filed: Cores, rate: CubeRate | None, log: ReadLog) -> None:
    """Say what a reader should know of a profile before its figures.

    ``asked`` and ``filed``: core counts of the user and of files; ``rate``: what the counters of kernels tell.
    """
    profile, tasks = study.profile, study.profile.tasks
    if study.launches.implausible:
        log.warn(
            say_n(
                "rank {rank}, device {device}: {n} task starts long before its recorded launch; that "
                "launch is treated as unknown",
                "rank {rank}, device {device}: {n} tasks start long before their recorded launch; those "
                "launches are treated as unknown",
                study.launches.implausible,
                rank=profile.rank,
                device=profile.device,
            )
        )
    if study.since is not None:
        log.warn(
            say(
                "rank {rank}, device {device}: the recording began while earlier work still ran, which is not in it; "
                "what is judged begins where that had ended",
                rank=profile.rank,
                device=profile.device,
            )
        )
    if not (tasks.type.known() & (tasks.work != Work.CONTROL)).any():
        log.warn(say("operator types are not recorded: kernels are grouped by name, without running numbers"))
    if asked and filed.cube and (asked.cube, asked.vector) != (filed.cube, filed.vector):
        log.warn(say("{given} says {cores} cores, the profile says {recorded} ({source}): {cores} are used",
                     given=asked.source, cores=f"{asked.cube},{asked.vector}", recorded=f"{filed.cube},{filed.vector}",
                     source=filed.source))  # fmt: skip
    used = asked or filed
    if rate is not None and rate.cores and not rate.inferred and used.cube and used.cube != rate.cores:
        log.warn(say("{given} says {cores} cube cores, the counters of kernels say {counted} at {mhz} MHz: {cores} are "
                     "used", given=used.source, cores=used.cube, counted=rate.cores,
                     mhz=round(rate.mhz or 0)))  # fmt: skip


def _vendor_only(profile: DeviceProfile, request: Question, thresholds: Thresholds, log: ReadLog) -> Examined:
    """Report on the exporter's own split when there is no kernel to look at."""
    chosen = [v for v in profile.vendor_steps if request.step in (None, v.step)]
    partitions = [partition_of(v) for v in chosen]
    whole = add(partitions) if partitions else Partition(**dict.fromkeys(Partition.__struct_fields__, 0))
    steps = [
        Step(step=v.step, start_ns=0, partition=p, verdict=give_verdict(p, NO_PACE, thresholds))
        for v, p in zip(chosen, partitions, strict=True)
        if v.step is not None
    ]
    memory = study_memory(profile, None)
    origin = int(memory.memory.counters.time[0]) if memory is not None and len(memory.memory.counters) else 0
    summary, back = summarise_without_kernels(profile, request.step), find_set_back(profile.communication.operations)
    mixed = None
    if back is not None and summary is not None:
        mixed = _mixed_up(profile, back, Intervals(summary.step_start, summary.step_end), log)
    summary = None if mixed else summary
    bubbles = [v.bubble for v in chosen]
    report = Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=profile.soc,
        cores_cube=None,
        cores_vector=None,
        origin_ns=origin,
        partition=whole,
        verdict=give_verdict(whole, NO_PACE, thresholds, excerpt=mixed),
        clock=Clock(launch_latency_ns=None, latency_samples=0, skew_ns=0, launches=0, tasks=0),
        steps=steps,
        streams=[],
        cores=core_use(Tasks.empty(), Cores(), 0),
        vendor=[],
        phases=[],
        communication=None if summary is None else bounds_alone(summary, whole.comm_exposed_ns),
        stage=profile.stage,
        bubble_ns=None if None in bubbles else sum(b for b in bubbles if b is not None),
        memory=describe_memory(memory, origin, request.soc or profile.soc),
    )
    reason = say("there are no kernels in the data, only the exporter's own breakdown")
    return Examined(
        report=report,
        pace=NO_PACE,
        digest=digest_vendor(report),
        excerpt=mixed,
        sums=RankSums.of(chosen, profile.stage),
        summary=summary,
        findings=_of_memory(memory, report, profile, None, thresholds, request.rules),
        what_if=[
            _lowered(expr, memory, profile, None, report)
            if peak_of(expr) is not None
            else unanswered(expr, reason, device=report)
            for expr in request.what_if
            if not names_ranks(expr)
        ],
    )


def _of_memory(
    memory: MemoryStudy | None,
    report: Device,
    profile: DeviceProfile,
    study: Study | None,
    thresholds: Thresholds,
    names: Sequence[str],
) -> list[Finding]:
    """Ask the rules about memory; nothing where none is recorded."""
    if memory is None or report.memory is None:
        return []
    return advise_memory(MemoryView(memory, report.memory, profile, study, thresholds), names)


#: Changes of the host's part in a step begin so.
_HOSTS: Final = ("host", "launches", "latency", "sync")
#: Changes of one cause, where it is to blame for anything.
_CAUSES: Final = {
    "tiling": say("no shape inference and tiling on the host"),
    "data_loading": say("data always ready"),
    "compile": say("operators compiled beforehand"),
    "gc": say("no garbage collection"),
}


def _replay_changes(view: DeviceView, asked: tuple[str, ...]) -> list[WhatIf]:
    """Replay the user's expressions, then the changes that every report shows."""
    scene, report, thresholds = view.scene, view.report, view.thresholds
    why = None
    if scene is None:
        if view.profile.excerpt:
            why = say("{why}: nothing can be replayed", why=view.profile.excerpt)
        elif view.study.replay is None:
            why = no_launches(view.mode, timeline=len(view.profile.host.events) > 0)
        else:
            why = view.study.replay.refusal(thresholds, view.study.judged) or say("the replay gives no figures")
    own = [
        _lowered(expr, view.memory, view.profile, view.study, report)
        if peak_of(expr) is not None
        else unanswered(expr, why, device=report)
        if scene is None
        else _answered(expr, None, scene, report)
        for expr in asked
    ]
    if scene is None:
        return own
    # changes of the host are left out where its times are the recording's own, or those of blocking launches
    left_out = _HOSTS if view.traits.blocking or view.traits.slowed(thresholds) else ()
    shown = ((expr, title) for expr, title in _standard(view, scene) if not expr.startswith(left_out))
    standard = [_answered(expr, title, scene, report) for expr, title in shown if expr not in asked]
    return [*own, *(w for w in standard if w.reason is None)]


def unanswered(
    expression: str, reason: Message | None, title: Message | None = None, device: Device | None = None
) -> WhatIf:
    """Return a what-if without figures, and why it has none: of a device, or of the whole job."""
    return WhatIf(
        expr=expression,
        span_ns=None,
        gain_pct=None,
        gain_ns_per_step=None,
        gain_pct_interval=None,
        gain_per="step" if device is None or device.steps else "window",
        title=title,
        asked=title is None,
        reason=reason,
        rank=None if device is None else device.rank,
        device=None if device is None else device.device,
    )


def _answered(expression: str, title: Message | None, scene: Scene, report: Device) -> WhatIf:
    found = predict(scene, expression)
    if not found.matched:  # name the parts that match nothing
        parts = [part for part in expression.split(",") if not predict(scene, part).matched]
        return unanswered(
            expression, say("nothing in this profile matches {parts}", parts=series(parts)), title, report
        )
    # The least gain is what is certain: of communication only transfers become faster, waiting stays.
    known = report.communication
    part = known.transfer_least_ns / known.total_ns if known and known.total_ns else 0.0
    sure = with_communication(scene, found.expr, part)
    certain = predict(scene, sure).least if any(c.factor != 1 for c in parse(sure)) else 0
    least = min(found.least, certain)
    if known and known.awaited_ns:  # and at most what may be one
        found = predict(scene, with_communication(scene, found.expr, known.transfer_most_ns / known.total_ns))
    before, per = max(scene.measured, 1), max(report.step_count, 1)
    return WhatIf(
        expr=expression,
        span_ns=found.after,
        gain_pct=min(100 * (found.before - found.after) / before, 100.0),
        gain_ns_per_step=(least // per, found.most // per),
        gain_pct_interval=(100 * least / before, 100 * found.most / before),
        gain_per="step" if report.steps else "window",
        title=types_taken(scene, expression) if title is None else title,
        asked=title is None,
        reason=None,
        rank=report.rank,
        device=report.device,
    )


def _lowered(
    expression: str, memory: MemoryStudy | None, profile: DeviceProfile, study: Study | None, report: Device
) -> WhatIf:
    """Answer what a change of memory brings; ``study``: of the device's tasks, if it has any."""
    found = lower(memory, profile, study, expression)
    reason = found if isinstance(found, Message) else None
    answer = structs.replace(unanswered(expression, reason, device=report), peak_of=peak_of(expression))
    if isinstance(found, Message):
        return answer
    return structs.replace(
        answer,
        recorded_bytes=found.recorded,
        peak_bytes=found.peak,
        gain_bytes=found.gain,
        assumes=found.assumes,
    )


_WITHOUT_WAIT: Final = say("no waiting for the host at all")
_NO_WAIT_CAPTURED: Final = say("no waiting for the host at all (the most that graph capture can reach)")
_NO_LAUNCHING: Final = say("launching costs nothing (the most that graph capture can reach)")


def _standard(view: DeviceView, scene: Scene) -> list[tuple[str, Message]]:
    """Return the changes that are worth a line in every report, with their titles.

    Fewer launches mean something where each kernel is launched by itself and the device waits for that.
    """
    report = view.report
    apart = without_launching(view) == NO_LAUNCHING
    rows = [
        (NO_WAIT, _NO_WAIT_CAPTURED if may_capture(view) and not apart else _WITHOUT_WAIT),
        ("host*0.5", say("host twice as fast")),
    ]
    if may_capture(view) and apart:
        rows.insert(1, (NO_LAUNCHING, _NO_LAUNCHING))
    if view.host_bound and not is_graph(view.mode):
        rows.append(("launches*0.5", say("kernels fused in pairs")))
    causes = dict.fromkeys(b.cause for b in report.blame)
    rows += [(f"host:{cause}*0", title) for cause, title in _CAUSES.items() if cause in causes]
    if len(view.paused.start):
        rows.append(("host:pause*0", say("no pauses of the host")))
    if any(s.idle_ns for s in report.syncs):
        rows.append(("sync*0", say("no waiting of the host for the device")))
    if report.window.comm_exposed_ns:
        rows.append(("overlap", say("communication overlapped with compute")))
        rows.append(("comm*0.5", say("transfers twice as fast")))
    recorded = dict.fromkeys(name for name in scene.types.names if name)
    times: dict[str, int] = {}
    for kernel in (k for p in report.phases for k in p.kernels if k.type in recorded):
        times[kernel.type] = times.get(kernel.type, 0) + kernel.total_ns
    top = max(times, key=times.__getitem__, default=None)
    if top is not None and not is_all_communication(scene, named := pattern(top, scene.types.names)):
        short = short_names(recorded)[top]
        title = say("{type} twice as fast", type=short)
        rows.append((f"op:{named}*0.5", title if named == top else say("{change}, and no other type", change=title)))
    return rows

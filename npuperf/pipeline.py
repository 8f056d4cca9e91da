"""From a path to a result: find, read, analyze, advise. Everything the command line does, as one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from npuperf import __version__
from npuperf.advise import advise, load_thresholds, sort_findings
from npuperf.advise.rule import View
from npuperf.analyze.bound import NO_PACE, Pace, judge, paces
from npuperf.analyze.cores import core_use
from npuperf.analyze.launch import Launches, calibrate
from npuperf.analyze.operators import (
    Key,
    OperatorSum,
    list_operators,
    longest_kernels,
    merge,
    sum_operators,
    type_labels,
)
from npuperf.analyze.partition import Timeline, add, lay_out, window
from npuperf.analyze.steps import step_windows
from npuperf.analyze.vendor import compare, partition_of
from npuperf.engine.ranks import map_ranks
from npuperf.errors import InputError, UsageError
from npuperf.model.chip import Cores
from npuperf.model.profile import DeviceProfile, ReadLog
from npuperf.model.result import (
    SCHEMA_VERSION,
    Clock,
    Device,
    Finding,
    Input,
    InputKind,
    Kernel,
    Lost,
    Partition,
    Result,
    Step,
    Stream,
    Tool,
    Verdict,
)
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.readers.find import Source, find
from npuperf.readers.read import Progress, read_source

NO_TIME_PARTITION = Partition(**dict.fromkeys(Partition.__struct_fields__, 0))


@dataclass(frozen=True, slots=True)
class Options:
    """What to analyze of a path. ``cores`` is the user's word on core counts and goes before the profile's."""

    top: int = 10
    step: int | None = None
    rank: int | None = None
    device: int | None = None
    cores: Cores | None = None


@dataclass(slots=True)
class _Part:
    """What one device adds to the result."""

    report: Device
    pace: Pace
    operators: dict[Key, OperatorSum] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class _Read:
    """One source after reading: its devices' parts, or why there are none."""

    log: ReadLog
    parts: list[_Part]
    seen: list[tuple[int | None, int]]
    steps: set[int]
    kineto: bool = False
    error: InputError | None = None


def analyze_path(path: Path, options: Options | None = None, progress: Progress | None = None) -> Result:
    """Analyze everything at ``path``.

    ``progress`` gets the number of bytes read since its last call. Raises InputError when nothing can be
    read, UsageError when the rank, device or step asked for is not there.
    """
    options = options or Options()
    limits = load_thresholds()
    sources, notes = find(path)
    reads = map_ranks(lambda source: _read(source, options, limits, progress), sources)
    errors = [r.error for r in reads if r.error]
    if errors and len(errors) == len(reads):
        raise errors[0]
    parts = [part for r in reads for part in r.parts]
    _check_choice(options, reads, parts)
    return Result(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="npuperf", version=__version__),
        input=_input(path, sources, reads, notes),
        verdict=_overall(parts, bool(_found_twice(reads)), limits),
        devices=[p.report for p in parts],
        operators=list_operators(merge([p.operators for p in parts]), limits),
        kernels=sorted((k for p in parts for k in p.kernels), key=lambda k: -k.dur_ns)[: options.top],
        findings=sort_findings([f for p in parts for f in p.findings]),
        what_if=[],
        gates=[],
        comparison=None,
        thresholds=limits.as_dict(),
    )


def source_bytes(path: Path) -> int:
    """Return how many bytes the progress of :func:`analyze_path` adds up to."""
    sources, _ = find(path)
    return sum(f.stat().st_size for s in sources for f in s.timeline if f.suffix != ".gz")


def _read(source: Source, options: Options, limits: Thresholds, progress: Progress | None) -> _Read:
    log = ReadLog()
    try:
        profiles = read_source(source, log, progress)
    except InputError as error:
        return _Read(log, [], [], set(), error=error)
    chosen = [p for p in profiles if options.rank in (None, p.rank) and options.device in (None, p.device)]
    read = _Read(log, [], [(p.rank, p.device) for p in profiles], set(), kineto=log.kineto)
    for profile in chosen:
        numbers, _ = step_windows(profile.tasks)
        steps = set(numbers.tolist()) or {v.step for v in profile.vendor_steps if v.step is not None}
        read.steps |= steps
        if options.step is None or options.step in steps:
            part = _analyze(profile, options, limits, log)
            if part:
                read.parts.append(part)
    return read


def _check_choice(options: Options, reads: list[_Read], parts: list[_Part]) -> None:
    """Refuse a rank, device or step that the data does not have, and list what it has."""
    if parts or (options.rank is None and options.device is None and options.step is None):
        return
    seen = [pair for r in reads for pair in r.seen]
    ranks = sorted({str(r) for r, _ in seen if r is not None}) or ["none recorded"]
    devices = sorted({str(d) for _, d in seen})
    steps = sorted({s for r in reads for s in r.steps})
    raise UsageError(
        "nothing matches that choice of rank, device and step",
        hint=f"ranks: {', '.join(ranks)}; devices: {', '.join(devices)}; steps: {steps or 'none recorded'}",
    )


def _input(path: Path, sources: list[Source], reads: list[_Read], notes: list[str]) -> Input:
    logs = [r.log for r in reads]
    warnings = [*notes, *(w for log in logs for w in log.warnings), *(str(r.error) for r in reads if r.error)]
    twice = _found_twice(reads)
    if twice:
        warnings.append(f"{', '.join(twice)}: found more than once, so these are different runs")
    return Input(
        path=str(path),
        kind=_kind(path, sources, reads),
        files=[f for log in logs for f in log.files],
        lost=[Lost(file=x.file, rows=x.rows, reason=x.reason) for log in logs for x in log.lost],
        warnings=list(dict.fromkeys(warnings)),
        missing=list(dict.fromkeys(m for log in logs for m in log.missing)),
    )


def _found_twice(reads: list[_Read]) -> list[str]:
    """Return the ranks that several sources claim: they cannot be of one run."""
    seen = [pair for r in reads for pair in r.seen]
    return sorted({f"rank {r} device {d}" for r, d in seen if r is not None and seen.count((r, d)) > 1})


def _kind(path: Path, sources: list[Source], reads: list[_Read]) -> InputKind:
    if len(sources) > 1:
        return "cluster"
    if reads[0].kineto:
        return "kineto"
    if path.is_dir() and sources[0].kind == "csv" and not sources[0].kernels:
        return "json" if sources[0].timeline else "db" if sources[0].db else "csv"
    return sources[0].kind


def _overall(parts: list[_Part], different_runs: bool, limits: Thresholds) -> Verdict:
    if not parts:
        reason = "no device task: the data holds host events only, as of a run without an NPU or GPU"
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if len(parts) == 1:
        return parts[0].report.verdict
    if different_runs:
        reason = "several runs lie here (see warnings); each device has its own verdict, give one run for one answer"
        return Verdict(bound="unknown", basis="measured", reason=reason)
    pace = sum((p.pace for p in parts), NO_PACE)
    verdict = judge(add([p.report.partition for p in parts]), pace, limits)
    bounds = [p.report.verdict.bound for p in parts]
    counts = ", ".join(f"{bounds.count(b)} {b}" for b in dict.fromkeys(bounds))
    verdict.reason = f"over all {len(parts)} devices ({counts}): {verdict.reason}"
    return verdict


def _cores(profile: DeviceProfile, options: Options) -> Cores:
    return options.cores or profile.cores


def _analyze(profile: DeviceProfile, options: Options, limits: Thresholds, log: ReadLog) -> _Part | None:
    active = profile.tasks.work != Work.CONTROL
    if not active.any():
        return _vendor_only(profile, options, limits) if profile.vendor_steps else None
    launches = calibrate(profile.tasks, limits)
    if launches.implausible:
        log.warn(f"rank {profile.rank} device {profile.device}: {launches.implausible} tasks start long before "
                 "their recorded launch; those launches count as unknown")  # fmt: skip
    if not (profile.tasks.type.known() & active).any():
        log.warn("operator types are not recorded (Level0): kernels are grouped by name without running number")
    timeline = lay_out(profile.tasks, launches)
    numbers, windows = step_windows(profile.tasks)
    span = timeline.span
    if options.step is not None:
        at = int(np.flatnonzero(numbers == options.step)[0])
        span = (int(windows.start[at]), int(windows.end[at]))
    inside = (profile.tasks.start >= span[0]) & (profile.tasks.start < span[1])
    return _report(profile, profile.tasks.filter(inside), launches, timeline, span, options, limits)


def _report(
    profile: DeviceProfile,
    tasks: Tasks,
    launches: Launches,
    timeline: Timeline,
    span: tuple[int, int],
    options: Options,
    limits: Thresholds,
) -> _Part:
    """Put together what is said about one device; ``tasks`` are those of the window ``span``."""
    plain = tasks.without_counters()
    cores = _cores(profile, options)
    whole = timeline.partition(window(*span))[0]
    pace = paces(profile.tasks, launches, window(*span), limits)[0]
    verdict = judge(whole, pace, limits, excerpt=profile.excerpt)
    steps = [s for s in _steps(profile, launches, timeline, limits) if options.step in (None, s.step)]
    report = Device(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        level=profile.context.level,
        soc=profile.soc,
        cores_cube=cores.cube,
        cores_vector=cores.vector,
        origin_ns=timeline.span[0],
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
        cores=core_use(plain, cores, whole.span_ns),
        vendor=compare(profile.vendor_steps, steps, whole, limits) if options.step is None or steps else [],
        phases=[],
    )
    origin = timeline.span[0]
    inside = Launches(
        end=launches.end[(profile.tasks.start >= span[0]) & (profile.tasks.start < span[1])],
        latency=launches.latency,
        samples=launches.samples,
        skew=launches.skew,
        implausible=launches.implausible,
    )
    view = View(profile, plain, type_labels(plain), inside, cores, whole, verdict, [s.step for s in steps], limits)
    return _Part(
        report=report,
        pace=pace,
        operators=sum_operators(profile, tasks, cores, origin),
        kernels=longest_kernels(profile, plain, origin, options.top),
        findings=advise(view, limits),
    )


def _steps(profile: DeviceProfile, launches: Launches, timeline: Timeline, limits: Thresholds) -> list[Step]:
    numbers, windows = step_windows(profile.tasks)
    partitions = timeline.partition(windows)
    found = paces(profile.tasks, launches, windows, limits)
    return [
        Step(
            step=number,
            start_ns=start - timeline.span[0],
            partition=partition,
            verdict=judge(partition, pace, limits, excerpt=profile.excerpt),
        )
        for number, start, partition, pace in zip(
            numbers.tolist(), windows.start.tolist(), partitions, found, strict=True
        )
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


def _vendor_only(profile: DeviceProfile, options: Options, limits: Thresholds) -> _Part:
    """Report on the exporter's own split when there is no kernel to look at."""
    chosen = [v for v in profile.vendor_steps if options.step in (None, v.step)]
    partitions = [partition_of(v) for v in chosen]
    whole = add(partitions) if partitions else NO_TIME_PARTITION
    steps = [
        Step(step=v.step, start_ns=0, partition=p, verdict=judge(p, NO_PACE, limits))
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
        verdict=judge(whole, NO_PACE, limits),
        clock=Clock(launch_latency_ns=0, latency_samples=0, skew_ns=0, launches=0, tasks=0),
        steps=steps,
        streams=[],
        cores=core_use(none, Cores(), 0),
        vendor=[],
        phases=[],
    )
    return _Part(report, NO_PACE)

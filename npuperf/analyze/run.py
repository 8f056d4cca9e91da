"""From a path to a result: find, read, analyze, advise. Everything the command line does, as one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from npuperf import __version__
from npuperf.advise import load_thresholds, sort_findings
from npuperf.advise.slow_rank import judge_ranks
from npuperf.analyze.examine import Part, Question, examine
from npuperf.cluster.waits import collective_waits, keep_pace
from npuperf.documents.analysis import (
    SCHEMA_VERSION,
    Device,
    Elasticity,
    Finding,
    Input,
    InputKind,
    Lost,
    Result,
    Tool,
    Verdict,
)
from npuperf.errors import InputError, UsageError
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile, ReadLog
from npuperf.model.thresholds import Thresholds
from npuperf.operators.sums import (
    list_operators,
    merge,
)
from npuperf.parallel import map_ranks
from npuperf.readers.find import Source, find
from npuperf.readers.plog import read_plog
from npuperf.readers.read import Progress, read_source
from npuperf.replay.whatif import parse
from npuperf.scopes.expect import Expectation
from npuperf.scopes.expect import judge as judge_limit
from npuperf.scopes.splits import Limit
from npuperf.timeline.partition import add
from npuperf.timeline.steps import step_windows
from npuperf.timeline.verdict import NO_PACE, judge


@dataclass(frozen=True, slots=True)
class Options:
    """What to analyze of a path. ``cores`` is the user's word on core counts and goes before the profile's;
    ``what_if`` are expressions of :mod:`npuperf.analyze.whatif`; ``cores_of`` a split of cores to replay, by stream;
    ``expect`` limits that kernels must obey; ``before`` an earlier profile of the same program, against which
    SuperKernels are held, and ``plog`` a folder of CANN's logs. ``rules`` are those to ask (all if empty).
    """

    top: int = 10
    step: int | None = None
    rank: int | None = None
    device: int | None = None
    cores: Cores | None = None
    what_if: tuple[str, ...] = ()
    soc: str | None = None
    cores_of: Mapping[int, Limit] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    before: Path | None = None
    plog: Path | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


@dataclass(slots=True)
class _Read:
    """One source after reading: its devices' parts, or why there are none."""

    log: ReadLog
    parts: list[Part]
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
    for expression in options.what_if:
        parse(expression)
    thresholds = load_thresholds(options.thresholds)
    sources, notes = find(path)
    context = ReadLog()
    ask = _question(options, context)
    reads = map_ranks(lambda source: _read(source, options, ask, thresholds, progress), sources)
    errors = [r.error for r in reads if r.error]
    if errors and len(errors) == len(reads):
        raise errors[0]
    parts = [part for r in reads for part in r.parts]
    _check_choice(options, reads, parts)
    findings = [f for p in parts for f in p.findings]
    if options.what_if and not parts:
        notes.append("what-if: there is no device task to replay")
    different_runs = bool(_found_twice(reads))
    slow, pacing = (None, None) if different_runs else _across_ranks(parts, thresholds)
    return Result(
        schema_version=SCHEMA_VERSION,
        tool=Tool(name="npuperf", version=__version__),
        input=_input(path, sources, reads, notes, context),
        verdict=_overall(parts, pacing, different_runs, thresholds),
        devices=[p.report for p in parts],
        operators=list_operators(merge([p.operators for p in parts]), thresholds),
        kernels=sorted((k for p in parts for k in p.kernels), key=lambda k: -k.dur_ns)[: options.top],
        findings=sort_findings([*findings, slow] if slow else findings),
        what_if=[w for p in parts for w in p.what_if],
        gates=[judge_limit(e, [p.checked[i] for p in parts if p.checked]) for i, e in enumerate(options.expect)],
        comparison=None,
        thresholds=thresholds.as_dict(),
    )


def source_bytes(path: Path) -> int:
    """Return how many bytes the progress of :func:`analyze_path` adds up to."""
    sources, _ = find(path)
    return sum(f.stat().st_size for s in sources for f in s.timeline if f.suffix != ".gz")


def _question(options: Options, log: ReadLog) -> Question:
    """Turn the options into what every device is asked; reads the earlier profile and the logs, if any."""
    lines: list[str] = []
    if options.plog is not None:
        lines, files = read_plog(options.plog)
        log.files += files
    earlier: list[DeviceProfile] = []
    if options.before is not None:
        sources, _ = find(options.before)
        earlier = [profile for source in sources for profile in read_source(source, log)]
    return Question(
        top=options.top,
        step=options.step,
        cores=options.cores,
        what_if=options.what_if,
        soc=options.soc,
        cores_of=options.cores_of,
        expect=options.expect,
        earlier=tuple(earlier),
        plog=tuple(lines),
        rules=options.rules,
    )


def _read(source: Source, options: Options, ask: Question, thresholds: Thresholds, progress: Progress | None) -> _Read:
    log = ReadLog()
    try:
        profiles = read_source(source, log, progress)
    except InputError as error:
        return _Read(log, [], [], set(), error=error)
    read = _Read(log, [], [(p.rank, p.device) for p in profiles], set(), kineto=log.kineto)
    for profile in profiles:
        numbers, _ = step_windows(profile.tasks)
        steps = set(numbers.tolist()) or {v.step for v in profile.vendor_steps if v.step is not None}
        read.steps |= steps
        chosen = options.rank in (None, profile.rank) and options.device in (None, profile.device)
        if chosen and (options.step is None or options.step in steps):
            part = examine(profile, ask, thresholds, log)
            if part:
                read.parts.append(part)
    return read


def _check_choice(options: Options, reads: list[_Read], parts: list[Part]) -> None:
    """Refuse a rank, device or step that the data does not have, and list what it has."""
    if parts or (options.rank is None and options.device is None and options.step is None):
        return
    seen = [pair for r in reads for pair in r.seen]
    there = {
        "ranks": {r for r, _ in seen if r is not None},
        "devices": {d for _, d in seen},
        "steps": {s for r in reads for s in r.steps},
    }
    listed = (f"{what}: {', '.join(map(str, sorted(found))) or 'none recorded'}" for what, found in there.items())
    raise UsageError("nothing matches that choice of rank, device and step", hint="; ".join(listed))


def _input(path: Path, sources: list[Source], reads: list[_Read], notes: list[str], context: ReadLog) -> Input:
    logs = [*(r.log for r in reads), context]
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


def _overall(parts: list[Part], pacing: Device | None, different_runs: bool, thresholds: Thresholds) -> Verdict:
    if not parts:
        reason = "no device task: the data holds host events only, as of a run without an NPU or GPU"
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if len(parts) == 1:
        return parts[0].report.verdict
    if different_runs:
        reason = "several runs lie here (see warnings); each device has its own verdict, give one run for one answer"
        return Verdict(bound="unknown", basis="measured", reason=reason)
    bounds = [p.report.verdict.bound for p in parts]
    counts = ", ".join(f"{bounds.count(b)} {b}" for b in dict.fromkeys(bounds))
    everyone = f"over all {len(parts)} devices ({counts})"
    if pacing:
        own = pacing.verdict
        return structs.replace(
            own, reason=f"{everyone}: rank {pacing.rank} sets the pace, the others wait: {own.reason}"
        )
    pace = sum((p.pace for p in parts), NO_PACE)
    partition = add([p.report.partition for p in parts])
    elasticity = _mean_elasticity(parts)
    verdict = judge(partition, pace, thresholds, elasticity=elasticity, excerpt=any(p.excerpt for p in parts))
    verdict.reason = f"{everyone}: {verdict.reason}"
    return verdict


def _across_ranks(parts: list[Part], thresholds: Thresholds) -> tuple[Finding | None, Device | None]:
    """Look at ranks that wait for each other: correct their what-ifs, and name the one that is waited for.

    The second is the rank that sets the pace of all, where the others lose a notable part of their time to it.
    """
    chosen = [p for p in parts if p.stays]
    stays = [p.stays for p in chosen if p.stays]
    waits = collective_waits(stays)
    if waits is None:
        return None, None
    keep_pace(stays, [p.what_if for p in chosen], waits, thresholds.cause_share)
    slow = judge_ranks(stays, waits, thresholds)
    if slow is None or slow.gain_pct is None or slow.gain_pct[1] < 100 * thresholds.idle_share:
        return slow, None
    pacing = next(s.report for s in stays if s.report.rank == slow.rank)
    return slow, pacing if pacing.verdict.bound != "communication" else None


def _mean_elasticity(parts: list[Part]) -> Elasticity | None:
    """Weigh the devices' elasticities by their spans; None if one of them has none."""
    found = [(p.report.verdict.elasticity, p.report.partition.span_ns) for p in parts]
    whole = sum(span for _, span in found)
    known = [(e, span / whole) for e, span in found if e is not None]
    if not whole or len(known) < len(found):
        return None
    return Elasticity(
        host=sum(e.host * share for e, share in known),
        compute=sum(e.compute * share for e, share in known),
        communication=sum(e.communication * share for e, share in known),
    )

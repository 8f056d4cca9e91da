"""From a request to a result: read, examine every device, look across them, judge the gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from npuperf import __version__
from npuperf.advise import advise_ranks, load_thresholds, sort_findings
from npuperf.analyze import metrics
from npuperf.analyze.examine import Earlier, Examined, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.cluster.waits import collective_waits, keep_pace
from npuperf.documents.analysis import Device, Elasticity, Finding, Input, InputKind, Result, Verdict, WhatIf
from npuperf.documents.base import Tool
from npuperf.documents.gates import judge_gate, parse_condition
from npuperf.errors import InputError, UsageError
from npuperf.messages import Message, say, say_n, series
from npuperf.model.thresholds import Thresholds
from npuperf.operators.sums import list_operators, merge
from npuperf.parallel import Engine
from npuperf.readers.context import read_plog
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import Progress, Reading, Recording, open_recording
from npuperf.replay.whatif import parse
from npuperf.scopes.expect import judge_cores
from npuperf.timeline.partition import add
from npuperf.timeline.steps import step_windows
from npuperf.timeline.verdict import NO_PACE, judge

metrics.register_all()


@dataclass(frozen=True, slots=True)
class _Source:
    """One source after its devices were examined; ``seen``: ranks and devices that it has, examined or not.

    What was read of it may go.
    """

    log: ReadLog
    error: InputError | None = None
    examined: tuple[Examined, ...] = ()
    seen: tuple[tuple[int | None, int], ...] = ()
    steps: frozenset[int] = field(default_factory=frozenset)


def run(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
) -> Result:
    """Analyze everything at the request's path, or a recording of it that is open already.

    ``progress`` gets the number of bytes read since its last call; ``finished`` is called after each rank. Raises
    InputError when nothing can be read, UsageError when the rank, device or step asked for is not there, or an
    expression or engine cannot be.
    """
    for expression in request.what_if:
        parse(expression)
    conditions = [parse_condition(text, Result) for text in request.fail_on]
    engine = Engine.asked(request.engine, request.workers, request.scheduler)
    thresholds = load_thresholds(request.thresholds)
    recording = recording or open_recording(request.path)
    context = ReadLog()
    earlier = _earlier(request, context)
    work = partial(_examine, request=request, thresholds=thresholds, earlier=earlier)
    sources = recording.map(work, progress, engine, finished)
    errors = [s.error for s in sources if s.error]
    if errors and len(errors) == len(sources):
        raise errors[0]
    examined = [e for s in sources for e in s.examined]
    if not examined:
        _check_choice(request, sources)
    result = _result(request, recording, sources, context, thresholds)
    gates = [judge_cores(e, [x.checked[i] for x in examined if x.checked]) for i, e in enumerate(request.expect)]
    return structs.replace(result, gates=(*gates, *(judge_gate(condition, result) for condition in conditions)))


def _examine(reading: Reading, request: AnalyzeRequest, thresholds: Thresholds, earlier: Earlier) -> _Source:
    log = ReadLog(kineto=reading.log.kineto)  # the reading's own is shared by all who ask
    log.add(reading.log)
    examined: list[Examined | None] = []
    steps: set[int] = set()
    for profile in reading.profiles:
        numbers, _ = step_windows(profile.tasks)
        own = set(numbers.tolist()) or {v.step for v in profile.vendor_steps if v.step is not None}
        steps |= own
        chosen = request.rank in (None, profile.rank) and request.device in (None, profile.device)
        if chosen and (request.step is None or request.step in own):
            examined.append(examine(profile, request, thresholds, earlier, log))
    seen = tuple((p.rank, p.device) for p in reading.profiles)
    return _Source(log, reading.error, tuple(e for e in examined if e), seen, frozenset(steps))


def _earlier(request: AnalyzeRequest, log: ReadLog) -> Earlier:
    """Read the earlier profile and the logs that SuperKernels are held against, if any."""
    lines: list[str] = []
    if request.plog is not None:
        lines, files = read_plog(request.plog)
        log.files += files
    if request.before is None:
        return Earlier(plog=tuple(lines))
    before = open_recording(request.before)
    readings = before.map(lambda reading: reading)
    for reading in readings:
        if reading.error:
            raise reading.error
        log.add(reading.log)
    return Earlier(tuple(p for r in readings for p in r.profiles), tuple(lines))


def _check_choice(request: AnalyzeRequest, sources: list[_Source]) -> None:
    """Refuse a rank, device or step that the data does not have, and list what it has."""
    if not request.partial:
        return
    seen = [pair for s in sources for pair in s.seen]
    there = say("ranks: {ranks}; devices: {devices}; steps: {steps}",
                ranks=_listed({r for r, _ in seen if r is not None}), devices=_listed({d for _, d in seen}),
                steps=_listed({step for s in sources for step in s.steps}))  # fmt: skip
    raise UsageError(say("nothing in this profile matches this choice of rank, device and step"), hint=there)


def _listed(numbers: set[int]) -> Message:
    return say("{numbers}", numbers=series(sorted(numbers))) if numbers else say("none recorded")


def _result(
    request: AnalyzeRequest, recording: Recording, sources: list[_Source], context: ReadLog, thresholds: Thresholds
) -> Result:
    examined = [e for s in sources for e in s.examined]
    twice = _found_twice(sources)
    across, what_if = ([], [e.what_if for e in examined]) if twice else _across_ranks(examined, thresholds)
    findings = [f for e in examined for f in e.findings]
    findings += [f for f in across if not request.rules or f.rule in request.rules]
    return Result(
        tool=Tool(name="npuperf", version=__version__),
        input=_input(request, recording, sources, context, twice),
        verdict=overall_verdict(examined, across, thresholds, different_runs=bool(twice)),
        devices=[e.report for e in examined],
        operators=list_operators(merge([e.operators for e in examined]), thresholds),
        kernels=sorted((k for e in examined for k in e.kernels), key=lambda k: -k.dur_ns)[: request.top],
        findings=sort_findings(findings),
        what_if=[w for mine in what_if for w in mine],
        thresholds=thresholds.as_dict(),
    )


def _across_ranks(examined: list[Examined], thresholds: Thresholds) -> tuple[list[Finding], list[list[WhatIf]]]:
    """Look at ranks that wait for each other: name the one that is waited for, and correct their what-ifs."""
    stays = [s for e in examined if (s := e.stays)]
    waits = collective_waits(stays)
    if waits is None:
        return [], [e.what_if for e in examined]
    paced = iter(keep_pace(stays, [e.what_if for e in examined if e.stays], waits, thresholds.cause_share))
    what_if = [next(paced) if e.stays else e.what_if for e in examined]
    return advise_ranks(stays, waits, thresholds), what_if


def _input(
    request: AnalyzeRequest, recording: Recording, sources: list[_Source], context: ReadLog, twice: list[Message]
) -> Input:
    logs = [*(s.log for s in sources), context]
    warnings = [*recording.notes, *(w for log in logs for w in log.warnings)]
    warnings += [s.error.message for s in sources if s.error]
    if request.what_if and not any(s.examined for s in sources):
        warnings.append(say("what-if: there is no device task to replay"))
    if twice:
        warnings.append(say("{devices}: found more than once, so these are different runs", devices=series(twice)))
    return Input(
        path=str(recording.path),
        kind=_kind(recording, sources),
        files=[f for log in logs for f in log.files],
        lost=[x for log in logs for x in log.lost],
        warnings=list(dict.fromkeys(warnings)),
        missing=list(dict.fromkeys(m for log in logs for m in log.missing)),
    )


def _found_twice(sources: list[_Source]) -> list[Message]:
    """Return the ranks that several sources claim: they cannot be of one run."""
    seen = [pair for s in sources for pair in s.seen]
    pairs = {(r, d) for r, d in seen if r is not None and seen.count((r, d)) > 1}
    return [say("rank {rank}, device {device}", rank=r, device=d) for r, d in sorted(pairs)]


def _kind(recording: Recording, sources: list[_Source]) -> InputKind:
    first = recording.sources[0]
    if len(sources) > 1:
        return "cluster"
    if sources[0].log.kineto:
        return "kineto"
    if recording.path.is_dir() and first.kind == "csv" and not first.kernels:
        return "json" if first.timeline else "db" if first.db else "csv"
    return first.kind


def overall_verdict(
    examined: Sequence[Examined], findings: Sequence[Finding], thresholds: Thresholds, *, different_runs: bool
) -> Verdict:
    """Give the verdict over all devices; of ranks that wait for one of them, that one's."""
    if not examined:
        reason = say("no device tasks: the data has host events only, as from a run without an NPU or GPU")
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if len(examined) == 1:
        return examined[0].report.verdict
    if different_runs:
        reason = say(
            "these are several runs (see warnings), so each device has its own verdict; analyze one "
            "run for a single verdict"
        )
        return Verdict(bound="unknown", basis="measured", reason=reason)
    everyone = _everyone(examined)
    pacing = _pacing(examined, findings, thresholds)
    if pacing is not None:
        reason = say("{everyone}: rank {rank} sets the pace, the others wait: {reason}",
                     everyone=everyone, rank=pacing.rank, reason=pacing.verdict.reason)  # fmt: skip
        return structs.replace(pacing.verdict, reason=reason)
    verdict = judge(
        add([e.report.partition for e in examined]),
        sum((e.pace for e in examined), NO_PACE),
        thresholds,
        elasticity=_mean_elasticity(examined),
        excerpt=any(e.excerpt for e in examined),
    )
    return structs.replace(verdict, reason=say("{everyone}: {reason}", everyone=everyone, reason=verdict.reason))


def _everyone(examined: Sequence[Examined]) -> Message:
    bounds = [e.report.verdict.bound for e in examined]
    counts = (say("{count} {bound}", count=bounds.count(b), bound=b) for b in dict.fromkeys(bounds))
    return say_n("over {n} device ({counts})", "over all {n} devices ({counts})", len(examined), counts=series(counts))


def _pacing(examined: Sequence[Examined], findings: Sequence[Finding], thresholds: Thresholds) -> Device | None:
    """Return the rank that sets the pace of all, where the others lose a notable part of their time to it."""
    slow = next((f for f in findings if f.rule == "slow_rank" and f.status == "problem"), None)
    if slow is None or slow.gain_pct is None or slow.gain_pct[1] < 100 * thresholds.idle_share:
        return None
    pacing = next(e.report for e in examined if e.report.rank == slow.rank)
    return pacing if pacing.verdict.bound != "communication" else None


def _mean_elasticity(examined: Sequence[Examined]) -> Elasticity | None:
    """Weigh the devices' elasticities by their spans; None if one of them has none."""
    found = [(e.report.verdict.elasticity, e.report.partition.span_ns) for e in examined]
    whole = sum(span for _, span in found)
    known = [(e, span / whole) for e, span in found if e is not None] if whole else []
    if not known or len(known) < len(found):
        return None
    return Elasticity(
        host=sum(e.host * share for e, share in known),
        compute=sum(e.compute * share for e, share in known),
        communication=sum(e.communication * share for e, share in known),
    )

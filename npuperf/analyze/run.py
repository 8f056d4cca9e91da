"""From a request to a result: read, examine every device, look across them; then the gates are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from npuperf import __version__
from npuperf.advise import load_thresholds, sort_findings
from npuperf.analyze.examine import Earlier, Examined, examine
from npuperf.analyze.lacks import name_places
from npuperf.analyze.losses import with_losses
from npuperf.analyze.merged_digest import merge_digests
from npuperf.analyze.overall import overall_verdict
from npuperf.analyze.recorded_pace import with_costliest
from npuperf.analyze.request import AnalyzeRequest
from npuperf.analyze.side_by_side import Across, look_across, own_findings
from npuperf.analyze.what_ran import ProcessFingerprint, shared_workload, workload_of, workload_of_host
from npuperf.cluster.job_grammar import check, names_ranks
from npuperf.documents.analysis import Input, InputKind, Result
from npuperf.documents.base import Tool
from npuperf.errors import InputError, UsageError
from npuperf.messages import Message, say, say_n, series
from npuperf.model.thresholds import Thresholds
from npuperf.operators.sums import list_operators, merge
from npuperf.parallel import Engine
from npuperf.readers.context import read_plog
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.recording import Reading, Recording, open_recording
from npuperf.readers.summaries import merged_suggestions, merged_sums
from npuperf.replay.whatif import parse
from npuperf.scopes.expect import judge_cores
from npuperf.timeline.steps import step_windows

if TYPE_CHECKING:  # of most recordings there is none
    from npuperf.analyze.counting import DeviceCounts
    from npuperf.documents.digest import Digest
    from npuperf.model.device import DeviceProfile
    from npuperf.model.host_profile import HostProfile


class _Source(Struct, frozen=True):
    """One source after its devices were examined; ``seen``: ranks and devices that it has, examined or not.

    ``tasks``: how many it has; ``host``: what was counted of a run without any; ``setups``: what was run, as those say
    that were examined. What was read of it may go.
    """

    log: ReadLog
    error: InputError | None = None
    examined: tuple[Examined, ...] = ()
    seen: tuple[tuple[int | None, int], ...] = ()
    steps: frozenset[int] = field(default_factory=frozenset)
    tasks: int = 0
    host: DeviceCounts | None = None
    setups: tuple[ProcessFingerprint, ...] = ()


def run(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
) -> Result:
    """Analyze as :func:`analyzed` does, and judge the gates. What the request compares with is not looked at.

    Raises as :func:`analyzed` does, and UsageError for gates that cannot be, before anything is read.
    """
    from npuperf.analyze.held_against import conditions_of, held_against  # most analyses are held against nothing

    conditions = conditions_of(request)
    return held_against(request, conditions, analyzed(request, recording, progress, finished))


def analyzed(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
    settled: Callable[[Result], None] | None = None,
) -> Result:
    """Analyze everything at the request's path, or a recording of it that is open already.

    Of the gates only limits of cores are judged, for which the tasks are needed. ``progress`` gets the number of bytes
    read since its last call; ``finished`` is called after each rank; ``settled`` gets the result if it would be the
    same again: no source failed, as one does whose worker dies, and no file that the system may let us read another
    time. Raises InputError when nothing can be read, UsageError when the rank, device or step asked for is not there,
    or an expression or engine cannot be.
    """
    for expression in request.what_if:
        (check if names_ranks(expression) else parse)(expression)
    engine = Engine.asked(request.engine, request.workers, request.scheduler)
    thresholds = load_thresholds(request.thresholds)
    recording = recording or open_recording(request.path)
    if request.chosen_ranks:
        recording = recording.of_ranks(request.chosen_ranks)
    context = ReadLog()
    earlier = _earlier(request, context, cached=recording.cache is not None)
    work = partial(_examine, request=request, thresholds=thresholds, earlier=earlier)
    sources = recording.map(work, progress, engine, finished)
    errors = [s.error for s in sources if s.error]
    if errors and len(errors) == len(sources):
        raise errors[0]
    examined = [e for s in sources for e in s.examined]
    if not examined and not any(s.host for s in sources):
        _check_choice(request, sources)
    result = _result(request, recording, sources, context, thresholds)
    gates = (judge_cores(e, [x.checked[i] for x in examined if x.checked]) for i, e in enumerate(request.expect))
    result = structs.replace(result, gates=tuple(gates))
    if settled is not None and not errors and all(log.settled for log in (context, *(s.log for s in sources))):
        settled(result)
    return result


def _examine(reading: Reading, request: AnalyzeRequest, thresholds: Thresholds, earlier: Earlier) -> _Source:
    log = ReadLog(kineto=reading.log.kineto)  # the reading's own is shared by all who ask
    log.add(reading.log)
    examined: list[Examined | None] = []
    setups: list[ProcessFingerprint] = []
    steps: set[int] = set()
    profiles = reading.handed_over()
    seen = tuple((p.rank, p.device) for p in profiles)
    tasks = sum(len(p.tasks) for p in profiles)
    while profiles:
        own = _steps_of(profiles[0])
        steps |= own
        if _is_chosen(profiles[0], own, request):
            setups.append(workload_of(profiles[0]))
            examined.append(examine(profiles.popleft(), request, thresholds, earlier, log))  # which lets go of parts
        else:
            profiles.popleft()
    host = None
    if reading.host is not None:
        steps |= set(reading.host.host_steps.number.tolist())
        host = _count_host(reading.host, request)
        setups += [workload_of_host(reading.host)] if host else []
    found = tuple(e for e in examined if e)
    return _Source(log, reading.error, found, seen, frozenset(steps), tasks, host, tuple(setups))


def _steps_of(profile: DeviceProfile) -> set[int]:
    """Return the numbers of a device's steps."""
    numbers, _ = step_windows(profile.tasks)
    return set(numbers.tolist()) or {v.step for v in profile.vendor_steps if v.step is not None}


def _is_chosen(profile: DeviceProfile, steps: set[int], request: AnalyzeRequest) -> bool:
    """Tell whether a device, which has these steps, was asked for."""
    of_rank = not request.chosen_ranks or profile.rank in request.chosen_ranks
    return of_rank and request.device in (None, profile.device) and (request.step is None or request.step in steps)


def _count_host(profile: HostProfile, request: AnalyzeRequest) -> DeviceCounts | None:
    """Count what the host did, if it is of a rank that was asked for, and no device was."""
    of_rank = not request.chosen_ranks or profile.rank in request.chosen_ranks
    if not of_rank or request.device is not None:
        return None
    from npuperf.analyze.host_counting import count_host

    return count_host(profile, request.step)


def _digest_of_hosts(sources: list[_Source]) -> Digest | None:
    """Return what was counted where there is no device at all."""
    hosts = [s.host for s in sources if s.host is not None]
    if not hosts:
        return None
    from npuperf.analyze.host_counting import digest_of_hosts

    return digest_of_hosts(hosts)


def _earlier(request: AnalyzeRequest, log: ReadLog, *, cached: bool) -> Earlier:
    """Read the earlier profile and the logs that SuperKernels are held against, if any."""
    lines: list[str] = []
    if request.plog is not None:
        lines = read_plog(request.plog, log)
    if request.before is None:
        return Earlier(plog=tuple(lines))
    before = open_recording(request.before, cached=cached)
    for note in before.notes:
        log.warn(note)
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
    across = Across.apart(examined) if twice else look_across(examined, request, thresholds)
    findings = across.findings + own_findings(examined, across, thresholds)
    verdict = overall_verdict(examined, across, thresholds, different_runs=bool(twice))
    verdict = with_costliest(verdict, across.devices, thresholds)
    return Result(
        tool=Tool(name="npuperf", version=__version__),
        input=_input(request, recording, sources, context, twice),
        verdict=with_losses(verdict, [s.log for s in sources], sum(s.tasks for s in sources)),
        devices=across.devices,
        operators=list_operators(merge([e.operators for e in examined]), thresholds),
        kernels=sorted((k for e in examined for k in e.kernels), key=lambda k: -k.dur_ns)[: request.top],
        findings=sort_findings(findings),
        what_if=across.what_if,
        cluster=across.cluster,
        host_sums=merged_sums(one for s in sources if s.examined for one in s.log.host_sums),
        suggestions=merged_suggestions(one for s in sources if s.examined for one in s.log.suggestions),
        thresholds=thresholds.as_dict(),
        workload=shared_workload([setup for s in sources for setup in s.setups]),
        digest=merge_digests([e.digest for e in examined], across.exposed) or _digest_of_hosts(sources),
    )


def _input(
    request: AnalyzeRequest, recording: Recording, sources: list[_Source], context: ReadLog, twice: list[Message]
) -> Input:
    logs = [*(s.log for s in sources), context]
    warnings = [*recording.notes, *(w for log in logs for w in log.warnings)]
    warnings += [s.error.message for s in sources if s.error]
    lacking = sorted(request.chosen_ranks - {rank for s in sources for rank, _ in s.seen})
    if lacking:
        warnings.append(say_n("rank {ranks} is not among the profiles at this path",
                              "ranks {ranks} are not among the profiles at this path",
                              len(lacking), ranks=series(lacking)))  # fmt: skip
    if request.what_if and not any(s.examined for s in sources):
        warnings.append(say("what-if: there is no device task to replay"))
    if twice:
        warnings.append(say("{devices}: found more than once, so these are different runs", devices=series(twice)))
    elif claimed := _claimed_twice(sources):
        warnings.append(say_n("several folders say that they are rank {ranks}, so they are not looked at as one job",
                              "several folders say that they are the same rank ({ranks}), so they are not looked at as "
                              "one job", len(claimed), ranks=series(claimed)))  # fmt: skip
    return Input(
        path=str(recording.path),
        kind=_kind(recording, sources),
        files=[f for log in logs for f in log.files],
        lost=[x for log in logs for x in log.lost],
        warnings=list(dict.fromkeys(warnings)),
        missing=list(dict.fromkeys((*_missing(recording, sources), *context.missing))),
    )


def _missing(recording: Recording, sources: list[_Source]) -> list[Message]:
    """Say what was not there, of which ranks where others have it."""
    read = [(s, source.root) for s, source in zip(sources, recording.sources, strict=True) if s.error is None]
    ranks = [{rank for rank, _ in s.seen if rank is not None} for s, _ in read]
    return name_places([s.log.missing for s, _ in read], ranks, [root for _, root in read])


def _found_twice(sources: list[_Source]) -> list[Message]:
    """Return the ranks that several sources claim: they cannot be of one run."""
    seen = [pair for s in sources for pair in s.seen]
    pairs = {pair for pair, count in Counter(seen).items() if pair[0] is not None and count > 1}
    return [say("rank {rank}, device {device}", rank=r, device=d) for r, d in sorted(pairs)]


def _claimed_twice(sources: list[_Source]) -> list[int]:
    """Return the ranks that several sources say they are, with devices of their own."""
    seen = Counter(rank for s in sources for rank in {r for r, _ in s.seen if r is not None})
    return sorted(rank for rank, count in seen.items() if count > 1)


def _kind(recording: Recording, sources: list[_Source]) -> InputKind:
    first = recording.sources[0]
    if len(sources) > 1:
        return "cluster"
    if sources[0].log.kineto:
        return "kineto"
    if recording.path.is_dir() and first.kind == "csv" and not first.kernels:
        return "json" if first.timeline else "db" if first.db else "csv"
    return first.kind

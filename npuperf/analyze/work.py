"""From a recording to a result: read every source, examine its devices, look across them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from msgspec import Struct, field, structs

from npuperf.advise import advised_once, load_thresholds, sort_findings
from npuperf.analyze.describe import with_costliest
from npuperf.analyze.devices import AllDevices, each_for_itself, rated
from npuperf.analyze.digests import merge_digests
from npuperf.analyze.examine import Earlier, Examined, Ranked, examine
from npuperf.analyze.request import Question
from npuperf.base import __version__
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import few, total_bytes
from npuperf.base.messages import Message, Series, chain, say, say_n, series
from npuperf.base.parallel import Engine
from npuperf.base.units import NS_PER_S
from npuperf.device.expect import judge_cores
from npuperf.device.operators import list_operators, merge_operators
from npuperf.device.rank_summary import RankSummary, summarise_without_kernels
from npuperf.device.steps import step_windows
from npuperf.device.whatif import names_ranks, parse
from npuperf.model.device import DeviceProfile, is_kept
from npuperf.model.job_result import Cluster
from npuperf.model.parts import GroupSize, Tool, Workload
from npuperf.model.result import Input, InputKind, Kernel, Operator, Result, Verdict
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds
from npuperf.readers.context import merged_exports, read_plog
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.recording import Reading, Recording, none_readable, open_recording
from npuperf.readers.source import NO_CORES

if TYPE_CHECKING:
    from npuperf.model.device import HostProfile
    from npuperf.model.parts import Digest
    from npuperf.model.result import HostRun

# -- Which files were not there, and of which ranks where others have them.


def name_places(
    missing: Sequence[Sequence[Message]], ranks: Sequence[set[int]], roots: Sequence[Path]
) -> list[Message]:
    """Return what is missing of each source once, with the ranks it is about unless it is missing of all.

    ``ranks``: of each source, as far as they are recorded; else the folder stands for it.
    """
    lacking: dict[Message, list[int]] = {}
    for place, notes in enumerate(missing):
        for note in dict.fromkeys(notes):
            lacking.setdefault(note, []).append(place)
    return [
        note if len(places) == len(missing) else _placed(note, [(ranks[i], roots[i]) for i in places])
        for note, places in lacking.items()
    ]


def _placed(note: Message, places: list[tuple[set[int], Path]]) -> Message:
    what, then = note.parameters["what"], note.parameters["consequence"]
    if all(ranks for ranks, _ in places):
        numbers = sorted({rank for ranks, _ in places for rank in ranks})
        return say_n("{what} of rank {ranks}: {consequence}", "{what} of ranks {ranks}: {consequence}",
                     len(numbers), what=what, ranks=series(numbers), consequence=then)  # fmt: skip
    folders: Series = series(str(root) for _, root in places)
    return say("{what} in {folders}: {consequence}", what=what, folders=folders, consequence=then)


# -- Several runs in one folder, whose devices have the same ranks and numbers.


def told_apart(examined: list[Examined], path: Path) -> list[Examined]:
    """Name the run of every device where two devices have the same rank and number: by what differs in their paths."""
    own = Counter((e.report.rank, e.report.device) for e in examined)
    if all(n == 1 for n in own.values()):
        return examined
    sources = dict.fromkeys(e.report.source for e in examined)
    names = _apart([Path(source) for source in sources], path)
    run = dict(zip(sources, names, strict=True))

    def named(part: _T, e: Examined) -> _T:
        return structs.replace(part, run=run[e.report.source])  # type: ignore[type-var]  # structs all

    def ranked(own: Ranked, e: Examined) -> Ranked:
        return structs.replace(own, kernels=[named(k, e) for k in own.kernels])

    return [
        structs.replace(
            e,
            report=named(e.report, e),
            findings=[named(f, e) for f in e.findings],
            listed=ranked(e.listed, e),
            judged=e.judged and ranked(e.judged, e),
            what_if=[named(w, e) for w in e.what_if],
        )
        for e in examined
    ]


def _apart(sources: Sequence[Path], path: Path) -> list[str]:
    """Return what of each path is not that of all: below the folder asked about, without what follows in common."""
    parts = [s.relative_to(path).parts if s.is_relative_to(path) and s != path else s.parts for s in sources]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({own[0] for own in parts}) == 1:
        parts = [own[1:] for own in parts]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({own[-1] for own in parts}) == 1:
        parts = [own[:-1] for own in parts]
    return ["/".join(own) for own in parts]


# -- What a verdict is worth where much of what it rests on could not be read.

#: Losses of less than this part of what was read do not turn a verdict.
_NOTABLE: Final = 0.1


def with_losses(verdict: Verdict, logs: Sequence[ReadLog], tasks: int) -> Verdict:
    """Say it where many device tasks, or events of timelines, were lost; where most were, nobody can tell what limits.

    ``tasks``: how many device tasks are known in the end. What a table lost the timeline may have.
    """
    if verdict.bound == "unknown":
        return verdict
    tasks_lost, events_lost = sum(log.tasks_lost for log in logs), sum(log.events_lost for log in logs)
    events = sum(log.events for log in logs)
    told, evidence = [], dict(verdict.evidence)
    if tasks_lost > _NOTABLE * tasks:
        told.append(say_n("{n} row about device tasks could not be used, and {read} tasks are known",
                          "{n} rows about device tasks could not be used, and {read} tasks are known",
                          tasks_lost, read=tasks))  # fmt: skip
        evidence |= {"task_rows_lost": float(tasks_lost), "tasks_read": float(tasks)}
    if events_lost > _NOTABLE * events:
        told.append(say_n("{n} event of the timeline could not be used, beside {read} that could",
                          "{n} events of the timeline could not be used, beside {read} that could",
                          events_lost, read=events))  # fmt: skip
        evidence |= {"events_lost": float(events_lost), "events_read": float(events)}
    if not told:
        return verdict
    if tasks_lost > tasks or events_lost > events:
        return Verdict(bound="unknown", basis="inferred", reason=chain(*told), evidence=evidence)
    return structs.replace(verdict, reason=chain(verdict.reason, *told), evidence=evidence)


# -- What was run and how it was recorded, as files tell it: by this, recordings are told to be of one workload.

#: Variables that tell processes, machines or folders apart, not what is run.
_PLACES: Final = re.compile(
    r"(_PATH|_HOME|_DIR|_FILE|_IP|_IFNAME|_PORT|_ADDR|_DEVICES)$|^(LOCAL_|WORLD_)?(RANK|SIZE)$|^PROF(ILER|ILING)?_|^LD_PRELOAD$"
    r"|^(MSMONITOR|KINETO)_USE_DAEMON$|^TORCH_DEVICE_BACKEND_AUTOLOAD$"
)
_UNNAMED: Final = "unnamed"
#: Times before this are none of a clock that counts from 1970: such profiles count from the machine's start.
_CALENDAR: Final = 1_400_000_000 * NS_PER_S

_T = TypeVar("_T")


class ProcessFingerprint(Struct, frozen=True):
    """What one process or device tells; ``groups``: kinds and ranks of the groups that it knows."""

    workload: Workload
    groups: frozenset[tuple[str, tuple[int, ...]]] = frozenset()


def workload_of(profile: DeviceProfile) -> ProcessFingerprint:
    """Return what the files of one device tell."""
    known = profile.communication.groups
    groups = frozenset((g.kind or _UNNAMED, tuple(sorted(g.ranks))) for g in known if g.ranks)
    size = profile.world_size
    return ProcessFingerprint(_workload(profile, world_size=size, frequency_mhz=profile.frequency_mhz), groups)


def workload_of_host(profile: HostProfile) -> ProcessFingerprint:
    """Return what the files of a process without a device tell."""
    return ProcessFingerprint(_workload(profile, world_size=profile.context.world_size))


def shared_workload(found: Sequence[ProcessFingerprint]) -> Workload:
    """Put together what the processes of a run tell, in the order of their files.

    They agree in nearly all of it; where they do not, the first that knows counts. The clock is the least and most of
    all, the cost of recording that of the dearest, and groups are those that any of them knows.
    """
    all_ = [one.workload for one in found]
    clocks = [one.frequency_mhz for one in all_ if one.frequency_mhz is not None]
    groups = {group for one in found for group in one.groups}
    sizes = Counter((kind, len(ranks)) for kind, ranks in groups if len(ranks) > 1)  # of one rank nothing is exchanged
    return Workload(
        command=_first(one.command or None for one in all_) or (),
        git_commit=_first(one.git_commit for one in all_),
        recorded_at=min((one.recorded_at for one in all_ if one.recorded_at), default=None),
        soc=_first(one.soc for one in all_),
        cann=_first(one.cann for one in all_),
        torch=_first(one.torch for one in all_),
        torch_npu=_first(one.torch_npu for one in all_),
        level=_first(one.level for one in all_),
        options=_first(one.options or None for one in all_) or (),
        world_size=max((one.world_size for one in all_ if one.world_size is not None), default=None),
        groups=tuple(GroupSize(kind=kind, groups=n, ranks=ranks) for (kind, ranks), n in sorted(sizes.items())),
        frequency_mhz=(min(low for low, _ in clocks), max(high for _, high in clocks)) if clocks else None,
        recording_overhead=max((o for one in all_ if (o := one.recording_overhead) is not None), default=None),
        settings=_first(one.settings or None for one in all_) or (),
        kineto=any(one.kineto for one in all_),
    )


def _utc(text: str | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None for what is none."""
    try:
        at = datetime.fromisoformat(text or "")
        return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _dated(workload: Workload, begun: Iterable[int]) -> Workload:
    """Add when it was recorded, where clocks tell (ns, when devices and processes began)."""
    if (first := min((at for at in begun if at >= _CALENDAR), default=None)) is None:
        return workload
    at = datetime.fromtimestamp(first // NS_PER_S, timezone.utc)
    return structs.replace(workload, recorded_at=f"{at:%Y-%m-%dT%H:%M:%SZ}")


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _workload(
    profile: DeviceProfile | HostProfile,
    *,
    world_size: int | None,
    frequency_mhz: tuple[int, int] | None = None,
) -> Workload:
    """Return what was run; of its settings, variables that were set and matter for what runs, by name."""
    context = profile.context
    return Workload(
        command=context.command,
        git_commit=context.git_commit,
        recorded_at=_utc(context.created),
        soc=profile.soc,
        cann=context.cann,
        torch=context.torch,
        torch_npu=context.torch_npu,
        level=context.level,
        options=tuple(f"{name}={value}" for name, value in sorted(context.options.items())),
        world_size=world_size,
        frequency_mhz=frequency_mhz,
        recording_overhead=context.overhead,
        settings=tuple(
            f"{name}={value}"
            for name, value, _ in context.environment.recorded()
            if value and is_kept(name) and not _PLACES.search(name)
        ),
        kineto=profile.kineto,
    )


class _Host(Struct, frozen=True):
    """What a process without a device did: its counts, and its report."""

    counted: Digest
    run: HostRun


class _Source(Struct, frozen=True):
    """One source after its devices were examined; ``seen``: ranks and devices that it has, examined or not.

    ``tasks``: how many it has; ``host``: of a run without any; ``refused``: why the counters of
    another recording are not of these kernels; ``setups``: what was run, as those say that were examined. What was read
    of it may go.
    """

    log: ReadLog
    error: InputError | None = None
    examined: tuple[Examined, ...] = ()
    seen: tuple[tuple[int | None, int], ...] = ()
    steps: frozenset[int] = field(default_factory=frozenset)
    tasks: int = 0
    host: _Host | None = None
    refused: tuple[Message, ...] = ()
    setups: tuple[ProcessFingerprint, ...] = ()


def work_out(
    question: Question,
    recording: Recording,
    engine: Engine,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
) -> tuple[Result, bool]:
    """Analyze a recording as it is asked for; tell, too, whether the result would be the same again.

    It would if no source failed, as one does whose worker dies, and no file that the system may let us read another
    time. Of the gates only limits of cores are judged, for which the tasks are needed (:mod:`npuperf.against.run` has
    more). ``progress`` gets the number of bytes read since its last call; ``finished`` is called after each rank.
    Raises InputError when nothing can be read, UsageError when the rank, device or step asked for is not there, or an
    expression cannot be.
    """
    for expression in question.what_if:
        if names_ranks(expression):
            from npuperf.job.job_whatif import check  # loaded where it is asked about

            check(expression)
        else:
            parse(expression)
    step = None
    if question.gives_model:
        from npuperf.analyze.model_mfu import step_of, with_model_size

        step = step_of(question)
    thresholds, whole = load_thresholds(question.thresholds), recording
    if question.chosen_ranks:
        recording = recording.of_ranks(question.chosen_ranks)
    context = ReadLog()
    earlier = _earlier(question, context, cached=recording.cache is not None)
    counters = _tasks_of(question.other, context, cached=recording.cache is not None) if question.other else None
    work = partial(_examine, question=question, thresholds=thresholds, earlier=earlier, counters=counters)
    carried = earlier.size + (counters.size if counters is not None else 0)
    sources = recording.map(work, progress, engine, finished, carried=carried)
    if refused := next((why for s in sources for why in s.refused), None):
        raise UsageError(refused)
    errors = [s.error for s in sources if s.error]
    if errors and len(errors) == len(sources):
        raise none_readable(errors)
    examined = [e for s in sources for e in s.examined]
    hosts = [s.host for s in sources if s.host is not None]
    if not examined and not hosts and question.partial:
        _refuse_choice(sources)
    # Ranks that several sources claim cannot be of one run.
    seen = Counter(pair for s in sources for pair in s.seen if pair[0] is not None)
    twice = [say("rank {rank}, device {device}", rank=r, device=d) for (r, d), n in sorted(seen.items()) if n > 1]
    examined = told_apart(examined, recording.path)
    together: AllDevices | None = None
    if not twice and sum(e.summary is not None for e in examined) > 1:
        from npuperf.analyze.whole_job import as_one_job  # one device has no use for all that this loads

        together = as_one_job(examined, question, thresholds)
    elif question.rank is not None and any(e.summary is not None for e in examined):
        together = _part_of_job(whole, examined, question, thresholds, engine, context)
    if together is None:
        found = rated(examined, thresholds)
        together = each_for_itself(found, question, thresholds, different_runs=bool(twice), hosts=bool(hosts))
    digest = merge_digests([e.digest for e in examined], together.exposed)
    if digest is None and hosts:  # there is no device at all
        from npuperf.analyze.counting import digest_of_hosts

        digest = digest_of_hosts([host.counted for host in hosts])
    verdict = with_costliest(together.verdict, together.devices, thresholds)
    checked = [e.checked for e in examined if e.checked]
    exported: dict[str, Any] = merged_exports([s.log for s in sources if s.examined])
    workload, devices, model = shared_workload([setup for s in sources for setup in s.setups]), together.devices, None
    if step is not None:
        told = together.cluster and together.cluster.world_size
        world_size, apart = question.world_size or told or workload.world_size, bool(twice or together.runs)
        devices, model = with_model_size(devices, step, world_size, apart=apart, log=context)
    operators, kernels = _merged([e.listed for e in examined], question.top, thresholds)
    judged_operators = judged_kernels = None
    if any(e.judged for e in examined):
        alone = [e.judged or e.listed for e in examined]
        judged_operators, judged_kernels = _merged(alone, question.top, thresholds)
    failed = [message for log in (context, *(s.log for s in sources)) for message in log.failed]
    result = Result(
        tool=Tool(name="npuperf", version=__version__),
        input=_input(question, recording, sources, context, twice),
        verdict=with_losses(verdict, [s.log for s in sources], sum(s.tasks for s in sources)),
        devices=devices,
        operators=operators,
        kernels=kernels,
        judged_operators=judged_operators,
        judged_kernels=judged_kernels,
        findings=advised_once(sort_findings(together.findings)),
        what_if=together.what_if,
        cluster=together.cluster and _with_unread(together.cluster, errors, [*recording.notes, *failed]),
        runs=together.runs,
        hosts=[host.run for host in hosts],
        thresholds=thresholds.as_dict(),
        workload=_dated(workload, [*(d.origin_ns for d in devices), *(h.run.origin_ns for h in hosts)]),
        model=model,
        digest=digest,
        gates=tuple(judge_cores(e, [of_one[i] for of_one in checked]) for i, e in enumerate(question.expect)),
        **exported,
    )
    return result, not (errors or failed)


def _with_unread(cluster: Cluster, errors: list[InputError], others: list[Message]) -> Cluster:
    """Add why ranks that are there were not loaded, and what else was not read: a short report shows no other notes."""
    unread = [say_n("{n} source could not be read: {why}", "{n} sources could not be read; the first: {why}",
                    len(errors), why=errors[0].what)] if errors else []  # fmt: skip
    return structs.replace(cluster, notes=[*unread, *few(others), *cluster.notes])


def _part_of_job(
    whole: Recording,
    examined: list[Examined],
    question: Question,
    thresholds: Thresholds,
    engine: Engine,
    log: ReadLog,
) -> AllDevices | None:
    """Split the communication of one rank by what other ranks' operations tell, of which little else is read."""
    others = whole.of_other_ranks(question.chosen_ranks)
    if not others.sources:
        return None
    from npuperf.analyze.whole_job import as_part_of_job

    found = others.map(partial(_operations, step=question.step), engine=engine)
    for other, _ in found:
        log.files += other.files
        log.lost += other.lost
        log.warnings += other.warnings
        log.failed += other.failed
    return as_part_of_job(examined, [s for _, summaries in found for s in summaries], question, thresholds)


def _operations(reading: Reading, step: int | None) -> tuple[ReadLog, list[RankSummary]]:
    """Reduce a source to what its operations tell; what nobody could read is told."""
    log = ReadLog()
    log.add(reading.log)
    if reading.error is not None:
        log.fail(reading.error.message, reading.error)
    found = [summarise_without_kernels(profile, step) for profile in reading.handed_over()]
    return log, [summary for summary in found if summary is not None]


def _merged(listed: list[Ranked], top: int, thresholds: Thresholds) -> tuple[list[Operator], list[Kernel]]:
    """Return the operators of all devices together, and the longest of their kernels."""
    operators = list_operators(merge_operators([each.operators for each in listed]), thresholds)
    return operators, sorted((k for each in listed for k in each.kernels), key=lambda k: -k.dur_ns)[:top]


def _examine(
    reading: Reading, question: Question, thresholds: Thresholds, earlier: Earlier, counters: Earlier | None
) -> _Source:
    """Examine the devices of a source that were asked for; where it has none, count what its host did."""
    log = ReadLog(kineto=reading.log.kineto)  # the reading's own is shared by all who ask
    log.add(reading.log)
    examined: list[Examined | None] = []
    setups: list[ProcessFingerprint] = []
    steps: set[int] = set()
    refused: list[Message] = []
    profiles = reading.handed_over()
    seen = tuple((p.rank, p.device) for p in profiles)
    tasks = sum(len(p.tasks) for p in profiles)
    ranks = question.chosen_ranks
    while profiles:
        profile = profiles[0]
        own = _steps_of(profile) if question.partial else set()
        steps |= own
        of_rank = not ranks or profile.rank in ranks
        chosen = of_rank and question.device in (None, profile.device) and question.step in (None, *own)
        if chosen:
            setups.append(workload_of(profile))
        if chosen and counters is not None:
            profiles[0], why = _with_counters(profile, counters, str(question.other), log)
            refused += [why] if why is not None else []
        del profile  # of which parts are let go while it is examined
        if chosen and refused:
            profiles.popleft()
        elif chosen:
            examined.append(examine(profiles.popleft(), question, thresholds, earlier, log))
        else:
            profiles.popleft()
    host = None
    if reading.host is not None:
        steps |= set(reading.host.host_steps.number.tolist())
        if question.device is None and (not ranks or reading.host.rank in ranks):
            from npuperf.analyze.counting import count_host
            from npuperf.device.host_events import Nesting
            from npuperf.device.host_work import host_run

            nesting = Nesting.build(reading.host.host.events)
            counted = count_host(reading.host, nesting, question.step)
            if counted is not None:
                host = _Host(counted, host_run(reading.host, nesting, question.step))
                setups.append(workload_of_host(reading.host))
    found = tuple(e for e in examined if e)
    if found and all(e.report.cores_cube is not None for e in found):  # as the user, or the chip's name, says
        log.missing = [note for note in log.missing if note != NO_CORES]
    return _Source(log, reading.error, found, seen, frozenset(steps), tasks, host, tuple(refused), tuple(setups))


def _steps_of(profile: DeviceProfile) -> set[int]:
    """Return the numbers of the steps that a device has: of its tasks, else as the exporter has them."""
    return {*step_windows(profile.tasks)[0].tolist()} or {v.step for v in profile.vendor_steps if v.step is not None}


def _earlier(question: Question, log: ReadLog, *, cached: bool) -> Earlier:
    """Read the earlier profile and the logs that SuperKernels are held against, if any."""
    lines: list[str] = []
    if question.plog is not None:
        lines = read_plog(question.plog, log)
    if question.before is None:
        return Earlier(plog=tuple(lines))
    return structs.replace(_tasks_of(question.before, log, cached=cached), plog=tuple(lines))


def _tasks_of(path: Path, log: ReadLog, *, cached: bool) -> Earlier:
    """Read the tasks of a recording that the one in question is held against."""
    recording = open_recording(path, cached=cached)
    for note in recording.notes:
        log.warn(note)
    tasks: dict[tuple[int | None, int], Tasks] = {}
    for reading in recording.map(lambda reading: reading):
        if reading.error:
            raise reading.error
        log.add(reading.log)
        for profile in reading.handed_over():
            tasks.setdefault((profile.rank, profile.device), profile.tasks)
    return Earlier(tasks, size=total_bytes(file for source in recording.sources for file in source.data_files()))


def _with_counters(
    profile: DeviceProfile, counters: Earlier, path: str, log: ReadLog
) -> tuple[DeviceProfile, Message | None]:
    """Join the counters of another recording's device to a profile; return also why that is refused."""
    from npuperf.readers.other_counters import join_counters  # seldom asked for

    only = next(iter(counters.tasks.values())) if len(counters.tasks) == 1 else None
    other = counters.tasks.get((profile.rank, profile.device), only)
    if other is None:
        log.warn(say("rank {rank}, device {device}: {path} has no such device, whose counters could be joined",
                     rank=profile.rank, device=profile.device, path=path))  # fmt: skip
        return profile, None
    joined = join_counters(profile.tasks, other, path)
    if joined.said is not None:
        log.warn(say("rank {rank}, device {device}: {why}", rank=profile.rank, device=profile.device, why=joined.said))
    return structs.replace(profile, tasks=joined.tasks), joined.refused


def _refuse_choice(sources: list[_Source]) -> NoReturn:
    """Say that the data has not this rank, device or step, and list what it has. Raises UsageError."""

    def listed(numbers: set[int]) -> Message:
        return say("{numbers}", numbers=series(sorted(numbers))) if numbers else say("none recorded")

    seen = [pair for s in sources for pair in s.seen]
    there = say("ranks: {ranks}; devices: {devices}; steps: {steps}",
                ranks=listed({r for r, _ in seen if r is not None}), devices=listed({d for _, d in seen}),
                steps=listed({step for s in sources for step in s.steps}))  # fmt: skip
    raise UsageError(say("nothing in this profile matches this choice of rank, device and step"), hint=there)


def _input(
    question: Question, recording: Recording, sources: list[_Source], context: ReadLog, twice: list[Message]
) -> Input:
    logs = [*(s.log for s in sources), context]
    warnings = [*recording.notes, *(w for log in logs for w in log.warnings)]
    warnings += [s.error.message for s in sources if s.error]
    lacking = sorted(question.chosen_ranks - {rank for s in sources for rank, _ in s.seen})
    if lacking:
        warnings.append(say_n("rank {ranks} is not among the profiles at this path",
                              "ranks {ranks} are not among the profiles at this path",
                              len(lacking), ranks=series(lacking)))  # fmt: skip
    if question.what_if and not any(s.examined for s in sources):
        warnings.append(say("what-if: there is no device task to replay"))
    own = [{rank for rank, _ in s.seen if rank is not None} for s in sources]
    claimed = sorted(rank for rank, n in Counter(rank for ranks in own for rank in ranks).items() if n > 1)
    if twice:
        warnings.append(say("{devices}: found more than once, so these are different runs", devices=series(twice)))
    elif claimed:
        warnings.append(say_n("several folders say that they are rank {ranks}, so they are not looked at as one job",
                              "several folders say that they are the same rank ({ranks}), so they are not looked at as "
                              "one job", len(claimed), ranks=series(claimed)))  # fmt: skip
    there = recording.sources
    first = there[0]
    kind: InputKind = first.kind
    if len(sources) > 1:
        kind = "cluster"
    elif sources[0].log.kineto:
        kind = "kineto"
    elif recording.path.is_dir() and first.kind == "csv" and not first.kernels:
        kind = "json" if first.timeline else "db" if first.db else "csv"
    read = [at for at, s in enumerate(sources) if s.error is None]
    roots = [there[at].root for at in read]
    missing = name_places([sources[at].log.missing for at in read], [own[at] for at in read], roots)
    return Input(
        path=str(recording.path),
        kind=kind,
        files=[f for log in logs for f in log.files],
        lost=[x for log in logs for x in log.lost],
        warnings=list(dict.fromkeys(warnings)),
        missing=list(dict.fromkeys((*missing, *context.missing))),
    )

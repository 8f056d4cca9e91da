"""From a recording to a result: read every source, examine its devices, look across them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field, structs

from npuperf.advise import load_thresholds, sort_findings
from npuperf.analyze.describe import with_costliest
from npuperf.analyze.devices import AllDevices, each_for_itself
from npuperf.analyze.digests import merge_digests
from npuperf.analyze.examine import Earlier, Examined, examine
from npuperf.analyze.request import Question
from npuperf.base import __version__
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import Message, Series, chain, say, say_n, series
from npuperf.base.parallel import Engine
from npuperf.device.expect import judge_cores
from npuperf.device.operators import list_operators, merge_operators
from npuperf.device.steps import step_windows
from npuperf.device.whatif import names_ranks, parse
from npuperf.model.device import Context, DeviceProfile, is_kept
from npuperf.model.parts import GroupSize, Tool, Workload
from npuperf.model.result import Input, InputKind, Result, Verdict
from npuperf.model.thresholds import Thresholds
from npuperf.readers.context import merged_exports, read_plog
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.recording import Reading, Recording, open_recording

if TYPE_CHECKING:
    from npuperf.model.device import HostProfile
    from npuperf.model.parts import Digest

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
#: Kinds of groups that have all ranks of a job.
_OF_ALL: Final = ("default_group", "default_pg", "world")
_UNNAMED: Final = "unnamed"

_T = TypeVar("_T")


class ProcessFingerprint(Struct, frozen=True):
    """What one process or device tells; ``groups``: kinds and ranks of the groups that it knows."""

    workload: Workload
    groups: frozenset[tuple[str, tuple[int, ...]]] = frozenset()


def workload_of(profile: DeviceProfile) -> ProcessFingerprint:
    """Return what the files of one device tell."""
    communication, context = profile.communication, profile.context
    groups = frozenset((g.kind or _UNNAMED, tuple(sorted(g.ranks))) for g in communication.groups if g.ranks)
    told = communication.distributed.get("world_size") or _told_size(context)
    of_all = (len(ranks) for kind, ranks in groups if kind in _OF_ALL)
    workload = _workload(context, soc=profile.soc, kineto=profile.kineto)
    return ProcessFingerprint(
        structs.replace(
            workload,
            world_size=told or max(of_all, default=None),
            frequency_mhz=profile.frequency_mhz,
        ),
        groups,
    )


def workload_of_host(profile: HostProfile) -> ProcessFingerprint:
    """Return what the files of a process without a device tell."""
    workload = _workload(profile.context, soc=profile.soc, kineto=profile.kineto)
    return ProcessFingerprint(structs.replace(workload, world_size=_told_size(profile.context)))


def shared_workload(found: Sequence[ProcessFingerprint]) -> Workload:
    """Put together what the processes of a run tell, in the order of their files.

    They agree in nearly all of it; where they do not, the first that knows counts. The clock is the least and most of
    all, the cost of recording that of the dearest, and groups are those that any of them knows.
    """
    all_ = [one.workload for one in found]
    clocks = [one.frequency_mhz for one in all_ if one.frequency_mhz is not None]
    return Workload(
        command=_first(one.command or None for one in all_) or (),
        git_commit=_first(one.git_commit for one in all_),
        soc=_first(one.soc for one in all_),
        cann=_first(one.cann for one in all_),
        torch=_first(one.torch for one in all_),
        torch_npu=_first(one.torch_npu for one in all_),
        level=_first(one.level for one in all_),
        options=_first(one.options or None for one in all_) or (),
        world_size=max((one.world_size for one in all_ if one.world_size is not None), default=None),
        groups=_sizes(frozenset().union(*(one.groups for one in found))),
        frequency_mhz=(min(low for low, _ in clocks), max(high for _, high in clocks)) if clocks else None,
        recording_overhead=max((o for one in all_ if (o := one.recording_overhead) is not None), default=None),
        settings=_first(one.settings or None for one in all_) or (),
        kineto=any(one.kineto for one in all_),
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _sizes(groups: frozenset[tuple[str, tuple[int, ...]]]) -> tuple[GroupSize, ...]:
    """Count groups by kind and size; of one rank there is no communication."""
    sizes = [(kind, len(ranks)) for kind, ranks in groups if len(ranks) > 1]
    return tuple(GroupSize(kind=k, groups=sizes.count((k, n)), ranks=n) for k, n in sorted(set(sizes)))


def _workload(context: Context, *, soc: str | None, kineto: bool) -> Workload:
    return Workload(
        command=context.command,
        git_commit=context.git_commit,
        soc=soc,
        cann=context.cann,
        torch=context.torch,
        torch_npu=context.torch_npu,
        level=context.level,
        options=tuple(f"{name}={value}" for name, value in sorted(context.options.items())),
        recording_overhead=context.overhead,
        settings=_settings(context),
        kineto=kineto,
    )


def _settings(context: Context) -> tuple[str, ...]:
    """Return the variables that were set and matter for what runs, by name."""
    recorded = context.environment.recorded()
    return tuple(
        f"{name}={value}" for name, value, _ in recorded if value and is_kept(name) and not _PLACES.search(name)
    )


def _told_size(context: Context) -> int | None:
    value = context.environment.get("WORLD_SIZE") or ""
    return int(value) if re.fullmatch(r"[0-9]{1,7}", value) and int(value) else None


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
    host: Digest | None = None
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
    thresholds = load_thresholds(question.thresholds)
    if question.chosen_ranks:
        recording = recording.of_ranks(question.chosen_ranks)
    context = ReadLog()
    earlier = _earlier(question, context, cached=recording.cache is not None)
    work = partial(_examine, question=question, thresholds=thresholds, earlier=earlier)
    sources = recording.map(work, progress, engine, finished)
    errors = [s.error for s in sources if s.error]
    if errors and len(errors) == len(sources):
        raise errors[0]
    examined = [e for s in sources for e in s.examined]
    if not examined and not any(s.host for s in sources):
        _check_choice(question, sources)
    result = _result(question, recording, sources, context, thresholds)
    gates = (judge_cores(e, [x.checked[i] for x in examined if x.checked]) for i, e in enumerate(question.expect))
    result = structs.replace(result, gates=tuple(gates))
    return result, not errors and all(log.settled for log in (context, *(s.log for s in sources)))


def _examine(reading: Reading, question: Question, thresholds: Thresholds, earlier: Earlier) -> _Source:
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
        if _is_chosen(profiles[0], own, question):
            setups.append(workload_of(profiles[0]))
            examined.append(examine(profiles.popleft(), question, thresholds, earlier, log))  # which lets go of parts
        else:
            profiles.popleft()
    host = None
    if reading.host is not None:
        steps |= set(reading.host.host_steps.number.tolist())
        host = _count_host(reading.host, question)
        setups += [workload_of_host(reading.host)] if host else []
    found = tuple(e for e in examined if e)
    return _Source(log, reading.error, found, seen, frozenset(steps), tasks, host, tuple(setups))


def _steps_of(profile: DeviceProfile) -> set[int]:
    """Return the numbers of a device's steps."""
    numbers, _ = step_windows(profile.tasks)
    return set(numbers.tolist()) or {v.step for v in profile.vendor_steps if v.step is not None}


def _is_chosen(profile: DeviceProfile, steps: set[int], question: Question) -> bool:
    """Tell whether a device, which has these steps, was asked for."""
    of_rank = not question.chosen_ranks or profile.rank in question.chosen_ranks
    return of_rank and question.device in (None, profile.device) and (question.step is None or question.step in steps)


def _count_host(profile: HostProfile, question: Question) -> Digest | None:
    """Count what the host did, if it is of a rank that was asked for, and no device was."""
    of_rank = not question.chosen_ranks or profile.rank in question.chosen_ranks
    if not of_rank or question.device is not None:
        return None
    from npuperf.analyze.counting import count_host

    return count_host(profile, question.step)


def _digest_of_hosts(sources: list[_Source]) -> Digest | None:
    """Return what was counted where there is no device at all."""
    hosts = [s.host for s in sources if s.host is not None]
    if not hosts:
        return None
    from npuperf.analyze.counting import digest_of_hosts

    return digest_of_hosts(hosts)


def _earlier(question: Question, log: ReadLog, *, cached: bool) -> Earlier:
    """Read the earlier profile and the logs that SuperKernels are held against, if any."""
    lines: list[str] = []
    if question.plog is not None:
        lines = read_plog(question.plog, log)
    if question.before is None:
        return Earlier(plog=tuple(lines))
    before = open_recording(question.before, cached=cached)
    for note in before.notes:
        log.warn(note)
    readings = before.map(lambda reading: reading)
    for reading in readings:
        if reading.error:
            raise reading.error
        log.add(reading.log)
    return Earlier(tuple(p for r in readings for p in r.profiles), tuple(lines))


def _check_choice(question: Question, sources: list[_Source]) -> None:
    """Refuse a rank, device or step that the data does not have, and list what it has."""
    if not question.partial:
        return
    seen = [pair for s in sources for pair in s.seen]
    there = say("ranks: {ranks}; devices: {devices}; steps: {steps}",
                ranks=_listed({r for r, _ in seen if r is not None}), devices=_listed({d for _, d in seen}),
                steps=_listed({step for s in sources for step in s.steps}))  # fmt: skip
    raise UsageError(say("nothing in this profile matches this choice of rank, device and step"), hint=there)


def _listed(numbers: set[int]) -> Message:
    return say("{numbers}", numbers=series(sorted(numbers))) if numbers else say("none recorded")


def _result(
    question: Question, recording: Recording, sources: list[_Source], context: ReadLog, thresholds: Thresholds
) -> Result:
    examined = [e for s in sources for e in s.examined]
    twice = _found_twice(sources)
    together: AllDevices | None = None
    if not twice and sum(e.summary is not None for e in examined) > 1:
        from npuperf.analyze.whole_job import as_one_job  # one device has no use for all that this loads

        together = as_one_job(examined, question, thresholds)
    if together is None:
        together = each_for_itself(examined, question, thresholds, different_runs=bool(twice))
    verdict = with_costliest(together.verdict, together.devices, thresholds)
    result = Result(
        tool=Tool(name="npuperf", version=__version__),
        input=_input(question, recording, sources, context, twice),
        verdict=with_losses(verdict, [s.log for s in sources], sum(s.tasks for s in sources)),
        devices=together.devices,
        operators=list_operators(merge_operators([e.operators for e in examined]), thresholds),
        kernels=sorted((k for e in examined for k in e.kernels), key=lambda k: -k.dur_ns)[: question.top],
        findings=sort_findings(together.findings),
        what_if=together.what_if,
        cluster=together.cluster,
        thresholds=thresholds.as_dict(),
        workload=shared_workload([setup for s in sources for setup in s.setups]),
        digest=merge_digests([e.digest for e in examined], together.exposed) or _digest_of_hosts(sources),
    )
    return structs.replace(result, **merged_exports([s.log for s in sources if s.examined]))


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

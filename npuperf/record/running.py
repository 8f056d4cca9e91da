"""A program that runs already: whose it is, what of it is there, and through what it can be recorded."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from npuperf.base.errors import ExitCode, InputError, NpuperfError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.files import begun_in, is_file, read_input, refuse_ways_out
from npuperf.base.messages import Message, ns, say, say_n
from npuperf.base.notes import read_note
from npuperf.base.process import Detached
from npuperf.model.recorded import Way
from npuperf.record.folder import RunFolder, this_host
from npuperf.record.manifest import BUSY, OUT, read, read_all
from npuperf.record.plan import PLAN_VARIABLE, find_msprof
from npuperf.record.request import ProfileRequest

#: A plan or a request of ours has a few KB.
_MOST: Final = 1 << 20
#: The largest number that the kernel gives a process (PID_MAX_LIMIT of 64-bit Linux).
_MOST_PROCESSES: Final = 1 << 22
#: The log that a process keeps open as long as torch_npu's dynamic profiling is there, in the folder of its settings.
_DYNAMIC_LOG: Final = re.compile(r"(.+)/log/dp_.+_(\d+)_rank_(-?\d+)\.log")
#: Variables with which torch_npu listens to msMonitor, today's and the older one.
_MONITORED: Final = ("MSMONITOR_USE_DAEMON", "KINETO_USE_DAEMON")
#: Those with which something else may begin a recording.
_OTHERS: Final = (*_MONITORED, "PROF_CONFIG_PATH", "PROFILING_MODE")
#: The first Python that has sys.remote_exec, and what the kernel asks of who uses it.
_LETS_IN: Final = (3, 14)
_CAP_SYS_PTRACE: Final = 19
#: Seconds between two looks at a window that is made longer, and those in which an agent takes notice by the clock.
_TICK: Final = 0.05
_NOTICING: Final = 1.0


class UnreachableError(NpuperfError):
    """A running program that cannot be recorded."""

    exit_code = ExitCode.CHILD_FAILED


@dataclass(frozen=True, slots=True)
class Reachable:
    """A process that can be recorded.

    ``place`` is the folder in which its agent takes requests, that of torch_npu's settings, or CANN's socket;
    nothing yet where an agent is to be let in.
    ``python`` is its interpreter, as it was started, ``engine`` the one that its standby was started with.
    """

    process: Detached
    place: Path
    rank: int | None = None
    python: str | None = None
    engine: str = "auto"


@dataclass(frozen=True, slots=True)
class Running:
    """A program that can be recorded: the process that was named, as it was started, and those that are asked."""

    pid: int
    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    way: Way
    reachable: tuple[Reachable, ...]

    @property
    def name(self) -> str:
        """How it was started."""
        return for_shell(*self.argv)


@dataclass(frozen=True, slots=True)
class _Process:
    """What the system tells of a process."""

    process: Detached
    environment: Mapping[str, str]
    python: str | None
    version: tuple[int, int] | None
    words: tuple[str, ...]
    has_torch: bool
    files: tuple[str, ...]

    @property
    def is_python(self) -> bool:
        return self.version is not None

    @property
    def rank(self) -> int | None:
        text = self.environment.get("RANK", "")
        return int(text) if text.isdecimal() and len(text) < 10 else None


def find_running(pid: int, mine: Mapping[str, str]) -> Running:
    """Find out how a program can be recorded: the process that is named, and all that descends from it.

    ``mine`` is npuperf's own environment. Raises UsageError where there is no such process, InputError where it is not
    ours to reach, and UnreachableError where nothing in it can be asked.
    """
    head = _head(pid)
    try:
        argv, cwd, environment = tuple(head.cmdline()), Path(head.cwd()), head.environ()
        family = [p for p in (head, *head.children(recursive=True)) if p.pid != os.getpid()]
        seen = [one for p in family if (one := _look(p)) is not None]
    except psutil.NoSuchProcess as error:
        raise _no_process(pid) from error
    except psutil.AccessDenied as error:
        raise InputError(say("pid {pid}: the system does not let this user look into it", pid=pid)) from error
    if any(one.rank is not None for one in seen):  # what started the ranks makes no steps
        ranks = [one for one in seen if one.rank is not None]
        seen = ranks if any(one.has_torch for one in ranks) else seen
    reasons: list[NpuperfError] = []
    ways: tuple[tuple[Way, Iterable[Reachable]], ...] = (
        ("agent", _agents(seen, reasons)),
        ("torch_npu", _dynamic(seen)),
        ("msprof", _collectors(seen, mine)),
        ("remote", [] if reasons else _open_to_us(seen, reasons)),
    )
    for way, found in ways:
        if reachable := tuple(found):
            return Running(pid, argv, cwd, environment, way, reachable)
    raise next(iter(reasons), None) or _why_not(pid, argv, seen, mine)


def own_object(path: Path) -> dict[str, object]:
    """Read a small JSON object that nobody but this user can have written. Raises InputError where it is none."""
    try:
        found = path.lstat()
    except (OSError, ValueError) as error:
        raise InputError(say("{path}: cannot be read: {why}", path=str(path), why=str(error))) from error
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        what = say("{path}: not a file that only this user can have written; it was not read", path=str(path))
        raise InputError(what)
    return read_note(path, most=_MOST)


# -- The process that is named.


def _head(pid: int) -> psutil.Process:
    """Return a process that this user may reach; raises UsageError or InputError."""
    if pid == os.getpid():
        raise UsageError(say("--pid {pid}: that is npuperf itself", pid=pid))
    if pid > _MOST_PROCESSES or not psutil.pid_exists(pid):
        raise _no_process(pid)
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise UsageError(say("--pid {pid}: it has ended", pid=pid))
        inside = _elsewhere(pid)
        if inside is not None:
            raise InputError(
                say("pid {pid}: it runs in another container", pid=pid),
                hint=say("run npuperf in there, where it is process {pid}: docker exec CONTAINER npuperf profile "
                         "--pid {pid}", pid=inside),
            )  # fmt: skip
        owner = process.uids()
        if {owner.real, owner.effective} != {os.geteuid()}:
            user = process.username()
            raise InputError(
                say("pid {pid}: it runs as {user}; npuperf reaches only programs of the user that runs it",
                    pid=pid, user=user),
                hint=say("sudo -u {user} npuperf profile --pid {pid}", user=user, pid=pid),
            )  # fmt: skip
    except psutil.NoSuchProcess as error:
        raise _no_process(pid) from error
    return process


def _no_process(pid: int) -> UsageError:
    return UsageError(say("--pid {pid}: there is no such process", pid=pid))


def _elsewhere(pid: int) -> int | None:
    """Return a process's number in the container that it is in; None where that is ours, or not to be seen."""
    for kind in ("pid", "mnt"):
        with suppress(OSError, InputError):
            if Path(f"/proc/{pid}/ns/{kind}").readlink() != Path(f"/proc/self/ns/{kind}").readlink():
                numbers = re.search(r"^NSpid:\s*(.*)$", read_input(f"/proc/{pid}/status").decode(), re.MULTILINE)
                return int(numbers[1].split()[-1]) if numbers else pid
    return None


def _look(process: psutil.Process) -> _Process | None:
    """Return what is told of a process; None where it has ended, or is none of ours."""
    root = Path(f"/proc/{process.pid}")
    try:
        if process.uids().real != os.geteuid() or process.status() == psutil.STATUS_ZOMBIE or _elsewhere(process.pid):
            return None
        maps = read_input(root / "maps")
        files = []
        for link in (root / "fd").iterdir():
            with suppress(OSError):
                files.append(str(link.readlink()))
        found = Detached(process.pid, process.create_time())
        version = _version(Path(process.exe()).name, maps)
        words, has_torch = tuple(process.cmdline()), b"/libtorch" in maps
        return _Process(found, process.environ(), _python(process), version, words, has_torch, tuple(files))
    except (psutil.Error, OSError, InputError):
        return None


def _version(program: str, maps: bytes) -> tuple[int, int] | None:
    """Return the version of the Python that runs, (0, 0) where its name does not tell it; None where none does."""
    named = re.match(r"python(\d)\.(\d+)", program) or re.search(r"/libpython(\d)\.(\d+)", maps.decode("latin-1"))
    if named:
        return int(named[1]), int(named[2])
    return (0, 0) if b"libpython" in maps or re.match(r"py(thon|py)", program) else None


def _python(process: psutil.Process) -> str | None:
    """Return the interpreter by the name that it was started by: that of an environment is a link to another's."""
    argv, search = process.cmdline(), process.environ().get("PATH")
    if not argv:
        return None
    named = str(Path(process.cwd(), argv[0])) if os.sep in argv[0] else shutil.which(argv[0], path=search)
    return named if named and os.path.realpath(named) == process.exe() else None


# -- What waits in it.


def _agents(seen: Iterable[_Process], reasons: list[NpuperfError]) -> list[Reachable]:
    """Return processes in which an agent of npuperf waits; ``reasons`` gets why others cannot be asked."""
    found = []
    for one in seen:
        named = one.environment.get(PLAN_VARIABLE)
        if not named:
            continue
        try:
            plan = own_object(Path(named))
        except InputError as error:
            reasons.append(error)
            continue
        status = {p.pid: p for p in read_all(Path(str(plan.get("status")))) if p.host == this_host()}.get(
            one.process.pid
        )
        run = RunFolder(Path(named).parent.parent)
        if "standby" not in plan:
            reasons += [_taken(one, run)] if status is None or status.state not in OUT else []
            continue
        place = Path(str(plan["standby"]))
        try:
            state = place.lstat()
        except OSError:
            continue  # the run directory is gone
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
            reasons.append(InputError(say("{path}: others may write there; nothing was asked", path=str(place))))
        elif status is not None and status.state not in OUT:
            if (by := recorded_by(place, one.process.pid)) is not None:
                reasons.append(_taken(one, by))
            else:
                rank = status.rank if one.rank is None else one.rank
                found.append(Reachable(one.process, place, rank, one.python, str(plan.get("engine"))))
    return found


def recorded_by(place: Path, pid: int) -> RunFolder | None:
    """Return the run that a waiting agent was asked to record into and has not finished; None where there is none."""
    for name in (f"{pid}.json", f"{pid}.taken"):
        with suppress(InputError):
            run = RunFolder(Path(str(own_object(place / name).get("plan"))).parent.parent)
            states = {p.pid: p.state for p in read_all(run.status) if p.host == this_host()}
            unfinished = (*BUSY, "waiting", "waiting for the NPU")
            if run.lock.holder() is not None and states.get(pid, "waiting") in unfinished:
                return run
    return None


def _taken(one: _Process, run: RunFolder) -> NpuperfError:
    """Say that a process is recorded already, or was and waits for nothing."""
    pid, path = one.process.pid, run.shown
    states = {p.pid: p.state for p in read_all(run.status)}
    if states.get(pid) == "recorded":
        what = say("pid {pid}: it was recorded into {run}, and its agent waits for nothing any more", pid=pid, run=path)
        return UnreachableError(what, hint=say("npuperf profile --standby lets a program be recorded at any time"))
    hint = say("--more {run} makes that recording longer", run=for_shell(path))
    return UnreachableError(say("pid {pid}: it is being recorded already, into {run}", pid=pid, run=path), hint=hint)


def _dynamic(seen: Iterable[_Process]) -> list[Reachable]:
    """Return processes that look at a file of torch_npu's dynamic profiling."""
    found = []
    for one in seen:
        for file in one.files:
            log = _DYNAMIC_LOG.fullmatch(file)
            if log and int(log[2]) == one.process.pid:  # its helper has inherited the file, too
                rank = int(log[3]) if int(log[3]) >= 0 else None
                found.append(Reachable(one.process, Path(log[1]), rank, one.python))
                break
    return found


def _collectors(seen: Iterable[_Process], mine: Mapping[str, str]) -> list[Reachable]:
    """Return processes that CANN lets msprof into: started with PROFILING_MODE=dynamic, they open a socket."""
    found = []
    for one in seen:
        if one.environment.get("PROFILING_MODE") != "dynamic":
            continue
        socket = Path(one.environment.get("HOME", "/"), f"dynamic_profiling_socket_{one.process.pid}")
        if socket.is_socket():
            found.append(Reachable(one.process, socket, one.rank, one.python))
    return found if found and (msprof := find_msprof(mine)) is not None and msprof.works else []


def _open_to_us(seen: Iterable[_Process], reasons: list[NpuperfError]) -> list[Reachable]:
    """Return processes whose Python lets in code of the same user's; ``reasons`` gets why others do not."""
    found = []
    for one in seen:
        if not one.has_torch or (one.version or (0, 0)) < _LETS_IN or any(map(one.environment.get, _OTHERS)):
            continue
        what = None
        if one.environment.get("PYTHON_DISABLE_REMOTE_DEBUG"):
            what = say("PYTHON_DISABLE_REMOTE_DEBUG is set there")
        elif any(word.removeprefix("-X") == "disable-remote-debug" for word in one.words):
            what = say("it was started with -X disable-remote-debug")
        elif one.python is None:
            what = say("its interpreter is not there any more")
        elif not _may_trace():
            what = say("this system lets only root write into running programs (kernel.yama.ptrace_scope)")
        if what is None:
            found.append(Reachable(one.process, Path(), one.rank, one.python))
        else:
            reasons.append(not_let_in(one.process.pid, what, one.words))
    return found


def not_let_in(pid: int, why: Message, words: Sequence[str]) -> UnreachableError:
    """Say that a process's Python did not let us in."""
    hint = say("start it with: npuperf profile --standby -- {command}", command=for_shell(*words))
    return UnreachableError(say("pid {pid}: its Python lets nobody in: {why}", pid=pid, why=why), hint=hint)


def _may_trace() -> bool:
    """Tell whether the kernel lets this user write into programs of its own that it has not started."""
    try:
        scope = int(read_input("/proc/sys/kernel/yama/ptrace_scope"))
        rights = re.search(rb"^CapEff:\s*([0-9a-f]+)$", read_input("/proc/self/status"), re.MULTILINE)
        return scope == 0 or (scope < 3 and rights is not None and bool(int(rights[1], 16) >> _CAP_SYS_PTRACE & 1))
    except (InputError, ValueError):
        return True  # a kernel without that


def _why_not(pid: int, argv: tuple[str, ...], seen: list[_Process], mine: Mapping[str, str]) -> UnreachableError:
    """Say why nothing can be asked, and how to start the program next time."""
    again = say("start it with: npuperf profile --standby -- {command}", command=for_shell(*argv))
    python = [one for one in seen if one.is_python]
    if not python:
        what = say_n("pid {pid}: it is no Python program", "pid {pid}: none of its {n} processes is a Python program",
                     len(seen), pid=pid)  # fmt: skip
        return UnreachableError(what, hint=say("for anything but PyTorch: npuperf profile --engine msprof -- COMMAND"))
    if any(PLAN_VARIABLE in one.environment for one in python):
        hint = say("try again when it has")
        return UnreachableError(
            say("pid {pid}: npuperf waits in it, but it has not imported torch", pid=pid), hint=hint
        )
    torch = [one for one in python if one.has_torch]
    if not torch:
        return UnreachableError(say("pid {pid}: no process of it has imported torch", pid=pid), hint=again)
    if any(one.environment.get("PROFILING_MODE") == "dynamic" for one in torch):
        reason = None
        if (msprof := find_msprof(mine)) is None or not msprof.works:
            reason = (msprof and msprof.note) or say("msprof was not found")
        what = say("pid {pid}: started with PROFILING_MODE=dynamic, but {why}", pid=pid,
                   why=reason or say("CANN has opened no dynamic_profiling_socket for it"))  # fmt: skip
        return UnreachableError(what, hint=again)
    if any(one.environment.get(name) == "1" for one in torch for name in _MONITORED):
        what = say("pid {pid}: msMonitor's daemon has it recorded, not npuperf", pid=pid)
        hint = say("dyno --certs-dir DIR nputrace --start-step -1 --iterations 2 --log-file FOLDER, then "
                   "npuperf profile --export FOLDER")  # fmt: skip
        return UnreachableError(what, hint=hint)
    if any(one.environment.get("PROF_CONFIG_PATH") for one in torch):
        what = say("pid {pid}: PROF_CONFIG_PATH is set, but torch_npu's dynamic profiling has not begun there", pid=pid)
        return UnreachableError(what, hint=say("it begins with the first import of torch_npu, if the folder is there"))
    return UnreachableError(say("pid {pid}: it runs PyTorch, and nothing in it can be asked to record", pid=pid),
                            hint=again)  # fmt: skip


# -- A window that is under way.


def extend(request: ProfileRequest) -> Message:
    """Make a window that is under way longer, and return until when it goes on.

    Raises InputError where there is no run, and UsageError where there is no window of it under way.
    """
    assert request.more is not None
    folder = RunFolder(request.more.absolute())
    known = read(folder)
    if known is None or known.options is None or not is_file(folder.plan):
        raise InputError(say("{path}: not a run of npuperf", path=str(request.more)))
    refuse_ways_out(folder.path, folder.work.name)
    options, named = known.options, folder.shown
    processes = [p for p in read_all(folder.status) if p.state not in OUT]
    lasts = {*BUSY} - {"saving"}  # the profiler has stopped by then
    at_work = [p for p in processes if p.state in lasts or p.state.startswith("waiting")]
    if folder.lock.holder() is None or not at_work:
        ended = next((p for p in processes if p.recorded), None)
        what = say("{run}: nothing is being recorded there", run=named)
        if ended is not None:
            what = say("{run}: its recording is over, with step {step}", run=named, step=ended.recorded[-1])
        raise UsageError(
            what, hint=say("npuperf profile --pid records a program that was started with --standby again")
        )
    plan = own_object(folder.plan)
    if options.whole_run or "more" not in plan or options.standby:
        raise UsageError(say("{run}: how long it is recorded cannot be changed any more", run=named))
    if (options.duration is None) != (request.duration is None):
        by_time = options.duration is not None
        hint = say("--duration 5s") if by_time else say("--active 2")
        raise UsageError(say("{run}: it is recorded by {what}", run=named,
                             what=say("time") if by_time else say("steps")), hint=hint)  # fmt: skip
    name = "active" if request.duration is None else "duration"
    longer = [request.duration or request.active]
    while is_file(target := folder.more.with_name(f"{folder.more.name}.{len(longer) - 1}")):
        known_before = own_object(target).get(name, 0)
        longer.append(known_before if isinstance(known_before, int | float) else 0)
    with begun_in(folder.work) as (begun, file):
        file.write(json.dumps({name: longer[0]}).encode())
        file.close()
        target.hardlink_to(begun)
    if _is_too_late(folder, lasts, len(longer)):
        raise UsageError(say("{run}: its recording ended meanwhile", run=named))
    if request.duration is not None:
        return say("{run}: recorded {seconds} longer", run=named, seconds=ns(request.duration * 1e9))
    first = next((p.recorded[0] for p in at_work if p.recorded), None)
    if first is None:
        return say_n("{run}: {n} step more will be recorded", "{run}: {n} steps more will be recorded",
                     request.active, run=named)  # fmt: skip
    return say(
        "{run}: recorded until the end of step {step}", run=named, step=first + options.active - 1 + int(sum(longer))
    )


def _is_too_late(folder: RunFolder, lasts: set[str], count: int) -> bool:
    """Tell whether windows have ended without notice of what they were to be longer by, the last of ``count`` times.

    By the clock it is taken notice of within some tenths of a second, by steps with the end of the one under way.
    """
    until = time.monotonic() + _NOTICING
    while time.monotonic() < until:
        processes = [p for p in read_all(folder.status) if p.state not in OUT]
        if any(p.longer >= count for p in processes):
            return False
        if not any(p.state in lasts or p.state.startswith("waiting") for p in processes):
            return True
        time.sleep(_TICK)
    return False

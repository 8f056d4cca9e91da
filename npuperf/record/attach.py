"""Record a program that runs already: ask its processes, follow their window, and put back what was changed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from npuperf.base.errors import ExitCode, InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.files import begun_in, is_there, read_input, write_atomically
from npuperf.base.messages import Message, ns, say, say_n, series
from npuperf.base.notes import read_object
from npuperf.base.process import Beside, run_quietly
from npuperf.model.document import Problem
from npuperf.model.recorded import WAYS, Attached, ProcessStatus, Recorded, RecordingPlan, Setting, Way, Window
from npuperf.record.folder import ELSEWHERE, RunFolder, this_host
from npuperf.record.manifest import BUSY, OUT, read_all, state_of
from npuperf.record.plan import AGENT, RecordingJob, find_msprof, msprof_arguments, torch_arguments
from npuperf.record.program import settings_of
from npuperf.record.request import ProfileRequest, flag
from npuperf.record.running import Reachable, Running, UnreachableError, not_let_in, own_object, recorded_by

#: Seconds between two looks, and those in which some process must have begun: torch_npu looks at its settings every 1
#: to 50 seconds, by the length of a step, and asks for the step after it.
_TICK: Final = 0.2
PATIENCE: Final = 120.0
#: Seconds for the other processes of a job once the first is recorded: its ranks make their steps together.
_STRAGGLING: Final = 10.0
#: Seconds in which the helper that puts things back has begun, and msprof has answered.
_STARTING: Final = 10.0
_ANSWERING: Final = 60.0


@dataclass(frozen=True, slots=True)
class Followed:
    """How a window went.

    ``interrupted``: the user ended it; ``ended``: processes that are gone, ``busy``: those that record on.
    """

    seconds: float
    interrupted: bool
    ended: tuple[int, ...]
    busy: tuple[int, ...]


def check_way(running: Running, request: ProfileRequest) -> None:
    """Raise UsageError for what was asked and the way in which a program can be recorded does not have."""
    _WAYS[running.way].check(request)


def as_started(request: ProfileRequest, running: Running) -> ProfileRequest:
    """Return the request with what was decided when the program was started: that nothing but its CPU is recorded."""
    if request.engine == "auto" and {one.engine for one in running.reachable} == {"cpu"}:
        return msgspec.structs.replace(request, engine="cpu")
    return request


def attached(running: Running) -> Attached:
    """Return what a run directory says of the program that it recorded."""
    pids = tuple(one.process.pid for one in running.reachable)
    return Attached(pid=running.pid, argv=running.argv, way=running.way, pids=pids)


def introduce(running: Running) -> Message:
    """Say what is asked to record, and how."""
    how = WAYS[running.way]
    return say_n("asking {n} process of pid {pid} ({command}), through {way}",
                 "asking {n} processes of pid {pid} ({command}), through {way}",
                 len(running.reachable), pid=running.pid, command=running.name, way=how)  # fmt: skip


def preview_running(running: Running, request: ProfileRequest, folder: RunFolder) -> RecordingPlan:
    """Describe what would be asked of whom; nothing is made."""
    counted = None
    if request.duration is None:
        first = request.warmup + (request.wait if running.way in ("agent", "remote") else 0)
        last = first + request.active - 1
        counted = Window(first=first, last=last, repeat=request.repeat, step_on=request.step_on)
    return RecordingPlan(
        argv=running.argv,
        added={},
        folder=str(folder.path),
        engine=request.engine,
        window=counted,
        ranks=request.ranks,
        settings=_WAYS[running.way].settings(request, folder),
        cautions=(),
        attached=attached(running),
        duration=request.duration,
    )


def follow(
    running: Running, job: RecordingJob, folder: RunFolder, tick: Callable[[], bool], stop: Callable[[Message], None]
) -> Followed:
    """Ask for a window, and wait for its end; ``tick`` is called now and then, ``stop`` to end the window.

    Ctrl-C ends the window early, a second one does not wait for it. Whatever happens, the program goes on. Raises
    UnreachableError where a process has been asked by another npuperf meanwhile.
    """
    way = _WAYS[running.way](running, job, folder)
    began = time.monotonic()
    with _put_back(way.changes(), job, folder):
        try:
            way.ask()
            interrupted, busy = _wait(running, job, folder, way, tick, stop)
        finally:
            way.end()
    gone = tuple(one.process.pid for one in running.reachable if not one.process.alive())
    return Followed(time.monotonic() - began, interrupted, gone, busy)


def _wait(
    running: Running,
    job: RecordingJob,
    folder: RunFolder,
    way: _Way,
    tick: Callable[[], bool],
    stop: Callable[[Message], None],
) -> tuple[bool, tuple[int, ...]]:
    """Return whether the user ended the window, and who records on all the same."""
    interrupted, seen, moved = False, None, time.monotonic()
    while True:
        try:
            way.look()
            tick()
            said = {p.pid: p for p in read_all(folder.status) if p.host == this_host()}
            alive = [one for one in running.reachable if one.process.alive()]
            open_ = [one for one in alive if not _is_final(said.get(one.process.pid), job.request)]
            busy = tuple(one.process.pid for one in open_ if _state(said, one) in BUSY)
            now, news = time.monotonic(), [(p.pid, p.state, p.step) for p in said.values()]
            if news != seen:
                seen, moved = news, now
            has_begun = any(p.folders or p.recorded for p in said.values())
            patience = _STRAGGLING if has_begun else PATIENCE
            if not open_ or (not busy and (interrupted or now - moved > patience)):
                return interrupted, ()
            time.sleep(_TICK)
        except KeyboardInterrupt:
            if interrupted:
                return True, busy
            interrupted = True
            stop(say("Ctrl-C"))
            way.end()
            job.tell(way.ending())


def _state(said: dict[int, ProcessStatus], one: Reachable) -> str:
    found = said.get(one.process.pid)
    return found.state if found else ""


def _is_final(process: ProcessStatus | None, request: ProfileRequest) -> bool:
    """Tell whether a process has recorded all that it was to, or will record nothing."""
    if process is None or process.state != "recorded":
        return process is not None and (process.state in OUT or (process.state == "aside" and process.early))
    full = request.duration is not None or len(process.recorded) >= request.active * request.repeat
    return full or process.early or process.stopped is not None


def why_nothing_came(
    running: Running, followed: Followed, processes: Sequence[ProcessStatus], request: ProfileRequest
) -> Problem:
    """Explain a window in which nothing was recorded."""
    code = ExitCode.CHILD_FAILED
    hint = say("--step-on forward counts module calls; --duration 5s needs no steps")
    if running.way == "torch_npu":
        hint = say("torch_npu's dynamic profiling counts optimizer.step() alone; for anything else start the program "
                   "with npuperf profile --standby")  # fmt: skip
    waits_for_steps = request.duration is None and request.start_on is None and request.delay is None
    has_none = bool(processes) and not any(p.step or p.threads or p.problem for p in processes)
    fitting = hint if waits_for_steps and has_none else None
    if followed.interrupted:
        what = say("interrupted before anything was recorded; the program goes on")
        return Problem(what=what, hint=fitting, exit_code=ExitCode.INTERRUPTED)
    for process in processes:
        if process.problem or process.problems:
            why = process.problem or process.problems[0]
            return Problem(what=say("{process}: {problem}", process=process.name, problem=why), exit_code=code)
    left_out = [p for p in processes if p.state == "left out"]
    if left_out and len(left_out) == len(processes):
        return Problem(what=say("no process has one of the requested ranks"), hint=say("check --ranks"), exit_code=code)
    if len(followed.ended) == len(running.reachable):
        what = say("the program ended before anything was recorded")
        return Problem(what=what, hint=fitting, exit_code=code)
    state = next((state_of(p) for p in processes if p.state in BUSY), None)
    if state is not None:
        return Problem(what=say("the program ended while {state}, and nothing was saved", state=state), exit_code=code)
    if running.way == "remote" and not processes:
        what = say_n("for {n} second its main thread was inside one call of C code, as a join or a lock is, so Python "
                     "could let nobody in; it goes on",
                     "for {n} seconds its main thread was inside one call of C code, as a join or a lock is, so Python "
                     "could let nobody in; it goes on", round(followed.seconds))  # fmt: skip
        again = say("start it with: npuperf profile --standby -- {command}", command=running.name)
        return Problem(what=what, hint=again, exit_code=code)
    if request.duration is not None:
        what = say("nothing could be recorded for {time}: the program made no step, and its main thread may have been "
                   "inside one call; it goes on", time=ns(request.duration * 1e9))  # fmt: skip
        return Problem(what=what, hint=say("try again, or for longer"), exit_code=code)
    seconds = round(followed.seconds)
    what = say_n("no step ended within {n} second, so nothing was recorded; the program goes on",
                 "no step ended within {n} seconds, so nothing was recorded; the program goes on", seconds)  # fmt: skip
    return Problem(what=what, hint=hint, exit_code=code)


def ended_meanwhile(followed: Followed, processes: Sequence[ProcessStatus], folder: RunFolder) -> Problem | None:
    """Say that the program ended before its window was whole, where it did, and what was kept."""
    cut = next((p for p in processes if p.pid in followed.ended and (p.early or p.state in BUSY)), None)
    if cut is None:
        return None
    what = say("{process}: the program ended at step {step}, during recording", process=cut.name, step=cut.step)
    hint = say("npuperf analyze {folder} shows what was kept", folder=for_shell(folder.shown))
    return Problem(what=what, hint=hint, exit_code=ExitCode.CHILD_FAILED)


def doubts_of_way(running: Running, document: Recorded) -> list[Message]:
    """Say what a way gets wrong: torch_npu's hook begins a step within the optimizer's range, where it is not seen."""
    merged = next((p for p in document.proofs if running.way == "torch_npu" and 0 < p.numbered < p.steps), None)
    if merged is None:
        return []
    return [
        say("torch_npu took the kernels of {all} steps for those of {n}, so a step seems longer than it is; --active 1 "
            "records one alone, and under npuperf profile --standby steps are told apart",
            all=merged.steps, n=merged.numbered)
    ]  # fmt: skip


def still_busy(followed: Followed, folder: RunFolder) -> Problem:
    """Say what is left to do where the user did not wait for the end of a window."""
    pids = series(followed.busy)
    what = say("not waited for: pid {pids} records on, into {folder}", pids=pids, folder=folder.shown)
    hint = say("when that is over: npuperf profile --export {folder}", folder=for_shell(folder.shown))
    return Problem(what=what, hint=hint, exit_code=ExitCode.INTERRUPTED)


@contextmanager
def _put_back(changes: dict[str, object], job: RecordingJob, folder: RunFolder) -> Iterator[None]:
    """Have a helper undo, at the end of the block, what is changed in it; it does so if npuperf is killed, too."""
    log = folder.work / "put-back.log"
    call = [sys.executable, "-I", "-S", str(AGENT / "put_back.py"), json.dumps(changes)]
    try:
        helper = Beside(call, job.environment, log)
    except OSError as error:
        raise InputError(say("npuperf cannot start a process of its own: {why}", why=error.strerror)) from error
    try:
        last = time.monotonic() + _STARTING
        while log.stat().st_size == 0 and helper.ended is None and time.monotonic() < last:
            time.sleep(0.01)
        if log.stat().st_size == 0 or helper.ended is not None:
            raise InputError(say("npuperf cannot start a process of its own: {why}", why=read_input(log).decode()))
        yield
    finally:
        helper.end()


# -- The ways. Each names what it lacks, and how to do without.


class _Way:
    """How processes are asked, and how far they say they are."""

    way: ClassVar[Way]
    engines: ClassVar[tuple[str, ...]] = ()
    lacks: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[Message | None] = None

    def __init__(self, running: Running, job: RecordingJob, folder: RunFolder) -> None:
        self.running, self.job, self.folder = running, job, folder

    @classmethod
    def check(cls, request: ProfileRequest) -> None:
        """Refuse what it does not have."""
        lacking = next((name for name in cls.lacks if name in request.given), None)
        if lacking is not None:
            what = say("{option}: {way} does not have it", option=flag(lacking), way=WAYS[cls.way])
            raise UsageError(what, hint=cls.instead)
        if request.engine not in cls.engines:
            what = say("--engine {engine}: this program is recorded through {way}",
                       engine=request.engine, way=WAYS[cls.way])  # fmt: skip
            raise UsageError(what, hint=say("leave --engine out"))

    @classmethod
    def settings(cls, request: ProfileRequest, folder: RunFolder) -> tuple[Setting, ...]:
        """Return what the profilers are given."""
        return settings_of(request)

    def changes(self) -> dict[str, object]:
        """Return what is to be put back, as the helper takes it."""
        return {"remove": [], "restore": None}

    def ask(self) -> None:
        """Ask for the window."""

    def look(self) -> None:
        """Write down how far the processes are, where they do not do so themselves."""

    def end(self) -> None:
        """End the window early, where that can be done; what has not begun does not begin any more."""
        with suppress(OSError):  # a new name needs no space, unlike a new file
            self.folder.go_on.rename(self.folder.stop)

    def ending(self) -> Message:
        """Say what Ctrl-C does."""
        return say("ending the recording; the program goes on (Ctrl-C again does not wait for it)")

    def note(self, one: Reachable, state: str, recorded: Sequence[int] = (), folders: Sequence[Path] = ()) -> None:
        """Write what a process would say of itself."""
        status = ProcessStatus(
            state=state,
            pid=one.process.pid,
            host=this_host(),
            rank=one.rank,
            engine=self.way if self.way == "msprof" else "torch",
            step=recorded[-1] + 1 if recorded else 0,
            recorded=tuple(recorded),
            folders=tuple(map(str, folders)),
            executable=one.python,
            argv=self.running.argv,
        )
        write_atomically(
            self.folder.status / f"{this_host()}_{one.process.pid}.json",
            msgspec.json.encode(status, enc_hook=str).decode(),
        )


#: How a request's file ends, and what its agent makes of that.
_REQUESTS: Final = ("json", "taken")


class _Agents(_Way):
    """A request for each, in the folder that its agent looks into, which takes it by renaming it."""

    way: ClassVar[Way] = "agent"
    engines = ("auto", "torch", "cpu", "e2e")

    def _request(self) -> str:
        return json.dumps({"plan": str(self.folder.plan)})

    def changes(self) -> dict[str, object]:
        """Remove what was asked, taken or not."""
        files = [str(one.place / f"{one.process.pid}.{end}") for one in self.running.reachable for end in _REQUESTS]
        return {"remove": [[file, self._request()] for file in files], "restore": None}

    def ask(self) -> None:
        """Ask each, unless another npuperf has."""
        for one in self.running.reachable:
            target = one.place / f"{one.process.pid}.json"
            try:
                with begun_in(one.place) as (begun, file):
                    file.write(self._request().encode())
                    file.close()
                    target.hardlink_to(begun)
            except FileExistsError as error:
                by = recorded_by(one.place, one.process.pid)
                run = by.shown if by else str(target)
                what = say("pid {pid}: it is being recorded already, into {run}", pid=one.process.pid, run=run)
                raise UnreachableError(what) from error
            except OSError as error:
                why = error.strerror or str(error)
                raise InputError(say("{path}: cannot be written: {why}", path=str(target), why=why)) from error


class _LetIn(_Agents):
    """The same agent, which Python itself lets into the main thread, between two bytecodes, and which leaves it then.

    Until it has taken its request it is let in again and again: it may have come at a bad moment.
    """

    way = "remote"

    def __init__(self, running: Running, job: RecordingJob, folder: RunFolder) -> None:
        folder.standby.mkdir(mode=0o700)
        reachable = tuple(dataclasses.replace(one, place=folder.standby) for one in running.reachable)
        super().__init__(dataclasses.replace(running, reachable=reachable), job, folder)
        self._script = folder.work / "enter.py"
        self._again = 0.0

    def ask(self) -> None:
        """Leave the requests, and be let in."""
        if (folder := _open_to_others(self._script)) is not None:
            what = say("{path}: others may write there, and Python would run what they put in the place of npuperf's",
                       path=str(folder))  # fmt: skip
            raise InputError(what, hint=ELSEWHERE)
        write_atomically(self._script, _ENTER.format(agent=str(AGENT), requests=str(self.folder.standby)))
        super().ask()
        for one in self.running.reachable:
            why = self._knock(one)
            if why is not None:
                raise not_let_in(one.process.pid, say("{error}", error=why), self.running.argv)
        self._again = time.monotonic() + _AGAIN

    def look(self) -> None:
        """Knock again where nobody has answered."""
        if time.monotonic() >= self._again:
            self._again = time.monotonic() + _AGAIN
            for one in self.running.reachable:
                if is_there(one.place / f"{one.process.pid}.json") and one.process.alive():
                    self._knock(one)

    def _knock(self, one: Reachable) -> str | None:
        """Have the process's own interpreter let us in: it takes the same version; return why it does not."""
        call = [one.python or "", "-I", "-S", "-c", _KNOCK, str(one.process.pid), str(self._script)]
        printed = run_quietly(call, self.running.environment, limit=_ANSWERING)
        return None if printed.returncode == 0 else (printed.text.strip().splitlines() or [""])[-1]


#: Seconds after which a process that has not answered is asked once more.
_AGAIN: Final = 2.0
_KNOCK: Final = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
#: What Python runs in the program: as little as there can be, and nothing that it would complain of there.
_ENTER: Final = """
import contextlib, importlib.util, os, sys
with contextlib.suppress(Exception):
    agent = sys.modules.get("_npuperf_agent")
    if agent is None:
        folder = {agent!r}
        spec = importlib.util.spec_from_file_location(
            "_npuperf_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        agent = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(agent)
    agent.enter({requests!r})
"""


def _open_to_others(file: Path) -> Path | None:
    """Return a folder on the way to a file in which others may exchange things; None where there is none."""
    for folder in file.resolve().parents:
        found = folder.stat()
        is_open = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if is_open or found.st_uid not in (0, os.geteuid()):
            return folder
    return None


#: What only an agent can arrange in the process.
_IN_PROCESS: Final = ("all_threads", "execution_trace", "metadata")
#: How torch_npu's settings call what was asked for; its experimental ones are called as its profiler calls them.
_DYNAMIC: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_FORMATS: Final = {"text": ["text"], "db": ["db"], "both": ["text", "db"]}


class _Dynamic(_Way):
    """torch_npu reads profiler_config.json when its time changes, and begins a window with the next step.

    It cannot be ended early. The file is the user's: what is not about the window stays in it, and it is put back.
    """

    way = "torch_npu"
    engines = ("auto", "torch")
    lacks = ("duration", "delay", "start_on", "repeat", "step_on", "wait", "own_profiler", "max_size", *_IN_PROCESS)
    instead = say("say how many steps: --warmup 1 --active 2; for all else start the program with "
                  "npuperf profile --standby")  # fmt: skip

    def __init__(self, running: Running, job: RecordingJob, folder: RunFolder) -> None:
        super().__init__(running, job, folder)
        self._file = running.reachable[0].place / "profiler_config.json"
        if any(one.place != running.reachable[0].place for one in running.reachable):
            raise InputError(say("the processes of pid {pid} have several folders of torch_npu's settings; name the "
                                 "pid of one of them", pid=running.pid))  # fmt: skip
        self._before, self._time, self._mode = self._content()
        known = read_object(self._file)
        chosen = self.chosen(job.request, folder)
        self._ours = json.dumps({**known, **chosen}, indent=4)
        self._states: dict[int, str] = {}

    def _content(self) -> tuple[str | None, int, int]:
        """Return the file's text, its time (ns) and its mode; raises InputError where it is no file of this user's."""
        if not is_there(self._file):
            return None, 0, 0o640
        own_object(self._file)
        found = self._file.stat()
        return read_input(self._file).decode("utf-8", "replace"), found.st_mtime_ns, stat.S_IMODE(found.st_mode)

    @classmethod
    def chosen(cls, request: ProfileRequest, folder: RunFolder) -> dict[str, object]:
        """Return the settings of a window."""
        arguments = torch_arguments(request)
        profile = {a.keyword: a.value for a in arguments["profile"]}
        experimental = {a.keyword: a.value for a in arguments["experimental"]}
        return {
            "activities": list(request.activities),
            "prof_dir": str(folder.raw),
            "analyse": False,
            **{name: profile.get(name, False) for name in _DYNAMIC},
            "active": request.active,
            "warmup": request.warmup,
            "start_step": -1,
            "is_rank": request.ranks is not None,
            "rank_list": list(request.ranks or ()),
            "experimental_config": {
                **experimental,
                "export_type": _FORMATS[request.export],
                "host_sys": list(request.host_sys),
            },
        }

    @classmethod
    def settings(cls, request: ProfileRequest, folder: RunFolder) -> tuple[Setting, ...]:
        """Return what would stand in the file."""
        chosen = cls.chosen(request, folder)
        inner = chosen.pop("experimental_config")
        return tuple(
            Setting(of="profiler_config.json", name=name, value=value)  # type: ignore[arg-type]  # as JSON has them
            for name, value in {**chosen, **inner}.items()  # type: ignore[dict-item]
        )

    def changes(self) -> dict[str, object]:
        """Put the file back, with its time."""
        restore = {"file": str(self._file), "ours": self._ours, "before": self._before, "time": self._time}
        return {"remove": [], "restore": restore}

    def ask(self) -> None:
        """Change the file. Its time is in whole seconds what torch_npu goes by: it has to be later than any before."""
        later = max(time.time_ns(), self._time + 10**9)
        try:
            with begun_in(self._file.parent) as (begun, file):
                file.write(self._ours.encode())
                file.close()
                begun.chmod(self._mode)
                os.utime(begun, ns=(later, later))
                begun.replace(self._file)
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(say("{path}: cannot be written: {why}", path=str(self._file), why=why)) from error

    def look(self) -> None:
        """Tell by the folders that torch_npu makes, the last file in which it writes when its window is over."""
        for one in self.running.reachable:
            pid, request = one.process.pid, self.job.request
            folders = sorted(self.folder.raw.glob(f"*_{pid}_*_ascend_pt"))
            if request.ranks is not None and one.rank is not None and one.rank not in request.ranks:
                state = "left out"
            elif not folders:
                state = "waiting"
            else:
                state = "recorded" if any(folders[-1].glob("profiler_info*.json")) else "recording"
            if self._states.get(pid) != state:
                self._states[pid] = state
                first = self._first_step(pid) + request.warmup
                recorded = range(first, first + request.active) if state == "recorded" else ()
                self.note(one, state, recorded, folders if state == "recorded" else ())

    def _first_step(self, pid: int) -> int:
        """Return the step at which torch_npu says that it began, 0 where it does not say."""
        said = b""
        for log in sorted(self._file.parent.glob(f"log/dp_*_{pid}_rank_*.log")):
            with suppress(InputError):
                said += read_input(log)
        began = re.findall(rb"Start Dynamic Profiler at (\d{1,18}) step", said)
        return int(began[-1]) if began else 0

    def ending(self) -> Message:
        """Nothing ends it early."""
        return say("torch_npu ends its window after the steps that were asked for; waiting for it (Ctrl-C again does "
                   "not wait; the program goes on in any case)")  # fmt: skip


class _Collectors(_Way):
    """An msprof for each process, told what to do on its standard input; it counts no steps."""

    way = "msprof"
    engines = ("auto", "msprof")
    lacks = ("active", "warmup", "delay", "start_on", "wait", "repeat", "step_on", "own_profiler", "shapes", "stack",
             "memory", "modules", "flops", "op_attr", "op_args", "gc_threshold", *_IN_PROCESS)  # fmt: skip
    instead = say("say how long: --duration 5s")

    def __init__(self, running: Running, job: RecordingJob, folder: RunFolder) -> None:
        super().__init__(running, job, folder)
        self._until: float | None = None
        self._helpers: dict[Reachable, Beside] = {}

    @classmethod
    def check(cls, request: ProfileRequest) -> None:
        """It needs a duration."""
        super().check(request)
        if request.duration is None:
            raise UsageError(say("this program is recorded through {way}, which counts no steps",
                                 way=WAYS[cls.way]), hint=cls.instead)  # fmt: skip

    @classmethod
    def settings(cls, request: ProfileRequest, folder: RunFolder) -> tuple[Setting, ...]:
        """Return msprof's arguments."""
        words = (word.lstrip("-").partition("=") for word in msprof_arguments(request))
        return tuple(Setting(of="msprof", name=name, value=value) for name, _, value in words)

    def ask(self) -> None:
        """Start them, and the collection."""
        msprof = find_msprof(self.job.environment)
        assert msprof is not None  # else there were no such processes
        ranks = self.job.request.ranks
        for one in self.running.reachable:
            if ranks is not None and (one.rank or 0) not in ranks:
                self.note(one, "left out")
                continue
            pid = one.process.pid
            target = self.folder.raw / f"{this_host()}_{pid}"
            target.mkdir(mode=0o750)
            call = [str(msprof.binary), "--dynamic=on", f"--pid={pid}", f"--output={target}"]
            call += msprof_arguments(self.job.request)
            log = self.folder.work / f"msprof-{pid}.log"
            self._helpers[one] = helper = Beside(call, self.job.environment, log, listens=True)
            helper.write("start")
            self.note(one, "recording")
        self._until = time.monotonic() + (self.job.request.duration or 0.0)

    def look(self) -> None:
        """End the collection when its time is over."""
        if self._until is not None and time.monotonic() >= self._until:
            self.end()

    def end(self) -> None:
        """Stop, and wait for the data."""
        super().end()
        self._until = None
        for helper in self._helpers.values():
            helper.write("stop")
            helper.write("quit")
        for one, helper in self._helpers.items():
            last = time.monotonic() + _ANSWERING
            while helper.ended is None and time.monotonic() < last:
                time.sleep(_TICK)
            helper.end()
            found = sorted((self.folder.raw / f"{this_host()}_{one.process.pid}").glob("PROF_*"))
            self.note(one, "recorded" if found else "failed", folders=found)
        self._helpers = {}


_WAYS: Final[dict[Way, type[_Way]]] = {
    "agent": _Agents,
    "torch_npu": _Dynamic,
    "msprof": _Collectors,
    "remote": _LetIn,
}

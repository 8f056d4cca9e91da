"""One process of the user's program: counts its steps, records the wanted ones, and says what happened."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import engines, sources
from .engines import say
from .history import History
from .sources import OVER, RECORD, WAIT, WARM_UP, Rivals, Window

#: Seconds between two writes of the step counter.
_PULSE = 0.5
#: Step times kept: enough for a median.
_KEPT = 200
#: Steps timed after the last window, to compare with the steps inside it.
_AFTERWARDS = 8
#: Steps by which a thread must be ahead of the main thread to be the one that is recorded.
_HEAD_START = 8


class Status:
    """What one process tells npuperf: one small JSON file, always whole, ``<folder>/<host>_<pid>.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.document: dict[str, Any] = {
            "state": "waiting",
            "step": 0,
            "recorded": [],
            "folders": [],
            "warnings": [],
        }
        #: Host times between step ends, ns, by their place relative to the recorded windows.
        self.before: deque[int] = deque(maxlen=_KEPT)
        self.inside: deque[int] = deque(maxlen=_KEPT)
        self.after: deque[int] = deque(maxlen=_KEPT)
        self._written = 0.0

    def warn(self, message: dict[str, Any]) -> None:
        """Add a warning."""
        self.document["warnings"].append(message)

    def pulse(self, step: int) -> None:
        """Write the step counter if the last time is long ago."""
        if time.monotonic() - self._written > _PULSE:
            self.write(step=step)

    def write(self, **news: Any) -> None:
        """Write, with some fields set before. A disk that is full must not stop the program."""
        self._written = time.monotonic()
        self.document.update(
            news,
            pid=os.getpid(),
            host=os.uname().nodename,
            python=platform.python_version(),
            executable=sys.executable,
            argv=getattr(sys, "argv", []),
            step_ns={"before": list(self.before), "inside": list(self.inside), "after": list(self.after)},
        )
        target = os.path.join(self.folder, f"{os.uname().nodename}_{os.getpid()}.json")
        with contextlib.suppress(OSError):
            with open(target + ".part", "w", encoding="utf-8") as file:
                json.dump(self.document, file)
            os.replace(target + ".part", target)


class Session:
    """What the agent does in one process.

    ``plan`` is the JSON document of :mod:`npuperf.record.plan`. States: waiting, waiting for the NPU, warming up,
    recording, saving, recorded; and those that end it: left out (another rank), aside (the program has its own
    profiler), refused (options this version lacks), failed.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self._torch: Any = None
        self._torch_npu: Any = None
        self._undo: list[Callable[[], Any]] = []
        self.rivals = Rivals(self._met, self.explicit_step)
        self._begin()

    def _begin(self) -> None:
        self.status = Status(self.plan["status"])
        self.window = Window(self.plan)
        self.exits = Exits(self.finish)
        self.engine: Any = None
        self.history: History | None = None
        self.step = 0
        self.is_open = False
        self.is_over = False
        self.has_recorded_all = False
        self._explicit = False
        #: The thread whose steps count, once one has made a step; ``_is_settled``: it remains the one.
        self._thread: int | None = None
        self._is_settled = False
        #: Steps of every thread, by its ident; each writes its own.
        self._steps: dict[int, int] = {}
        self._lock = threading.Lock()
        self._mark = 0
        self.worker = ""
        self._pid = os.getpid()

    # ---- what the interpreter tells ----

    def torch_imported(self, torch: Any) -> None:
        """Look for steps; torch_npu may follow, or may have come with torch."""
        self._torch = torch
        self._torch_npu = self._torch_npu or sys.modules.get("torch_npu")
        self._follow()
        self.status.write()
        atexit.register(self._last_word)
        if self.window.whole and not _is_launcher() and self._is_without_npu():
            self._open_once()

    def torch_npu_imported(self, module: Any) -> None:
        """Refuse at once what this version cannot do: hours later would be too late."""
        self._torch_npu = module
        if self.plan["engine"] == "cpu":
            return
        candidate: Any = (engines.E2E if self.plan["engine"] == "e2e" else engines.TorchNpu)(self.plan, module)
        problems = candidate.problems()
        if problems:
            self.status.write(state="refused", problems=problems, torch_npu=getattr(module, "__version__", None))
            raise SystemExit(2)
        self.rivals.watch(candidate.owner(), self.plan["own_profiler"] == "replace")
        if self.plan.get("snapshot") and (self.plan["ranks"] is None or (_rank() or 0) in self.plan["ranks"]):
            self.history = History(self.plan["raw"], self.status.warn)
            self.history.follow(module)
        if self.window.whole:
            self._open_with_the_device(module)

    def import_failed(self, name: str, error: BaseException) -> None:
        """Keep why torch cannot be imported."""
        known = self.status.document.get("import_error")  # torch repeats what torch_npu failed on
        if isinstance(error, Exception) and not isinstance(error, ModuleNotFoundError) and not known:
            first = (str(error).splitlines() or [""])[0]
            self.status.write(state="failed", import_error=f"{name}: {type(error).__name__}: {first}")

    def forked(self) -> None:
        """In a forked child: begin again where nothing had begun, else leave the recording to the parent."""
        has_begun = self.step or self.is_open or self.is_over
        self._unfollow()
        self.exits.follow(False)
        if self.engine is not None:
            self.engine.forked()
        if has_begun:
            self.is_open, self.is_over = False, True
            return
        self._begin()
        if self._torch is not None:
            self._follow()

    # ---- steps ----

    def explicit_step(self) -> None:
        """End a step because the program says so; other sources are not heard any more."""
        if not self._explicit:
            self._explicit = True
            self._unfollow()
            if not self.is_open:
                self.step = 0
                self._steps.clear()
        self._tick()

    def _follow(self) -> None:
        """Attach the wanted source of steps."""
        how = self.plan["step_on"]
        if how == "optimizer":
            self._undo.append(sources.optimizers(self._torch, sources.once_per_round(self._tick)))
        elif how == "forward":
            self._undo.append(sources.forwards(self._torch, sources.once_per_round(self._tick)))
        else:
            event = sources.every(float(how), self._tick)
            self._undo.append(sources.forwards(self._torch, event))
            self._undo.append(sources.optimizers(self._torch, event))

    def _unfollow(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _tick(self) -> None:
        """A step has ended in this thread. Whatever goes wrong, the program goes on, without being profiled."""
        now = time.perf_counter_ns()
        if self.is_over:
            return
        thread = threading.get_ident()
        step = self._steps[thread] = self._steps.get(thread, 0) + 1
        try:
            if thread == self._thread or self._leads(thread, step):
                self._end_step(step, now)
        except Exception as error:
            self._leave(state="failed", problem=f"{type(error).__name__}: {error}")

    def _leads(self, thread: int, step: int) -> bool:
        """Tell whether a thread's steps are those that count from now on: one thread's are, until recording ends.

        A profiler's steps begin and end in one thread. It is the main thread, unless another is further by far; among
        others it is the one that is furthest.
        """
        with self._lock:
            furthest = 0 if self._thread is None else self._steps.get(self._thread, 0)
            main = threading.main_thread().ident
            lead = 0 if thread == main else _HEAD_START if self._thread == main else 1
            is_led = self._thread is not None
            if is_led and (self._is_settled or self.window.begins(furthest) or step < furthest + lead):
                return False
            self.window.catch_up(furthest, step)
            self._thread, self._mark = thread, 0
            return True

    def _end_step(self, step: int, now: int) -> None:
        if self._mark:  # the length of the step that ended
            times = self.status.after if self.status.inside else self.status.before
            if self.is_open:
                times = self.status.inside
            if not self.is_open or self.window.phase(self.step) == RECORD:
                times.append(now - self._mark)
        was_open = self.is_open
        self.step = step
        if self.is_open or self.has_recorded_all or self.window.begins(step):
            with self._undisturbed():
                self._advance()
        if not self.is_open:  # what is recorded is the program, not our writing
            self.status.pulse(step)
        # The step after the profiler starts or stops pays for it: it is not timed.
        self._mark = time.perf_counter_ns() if was_open == self.is_open else 0

    def _advance(self) -> None:
        """Open, step or close the profiler, as the schedule says for the step that begins."""
        if not self.is_open:
            if not self.has_recorded_all:
                self._open()
            elif len(self.status.after) >= _AFTERWARDS:
                self._leave()
            return
        if os.path.exists(self.plan["stop"]):
            self.status.document["stopped"] = self.step
            self._close(early=True)
            return
        phase = self.window.phase(self.step)
        if phase in (WARM_UP, RECORD):
            self._enter(phase)
        with self._driving("step()"):
            self.engine.step()
        if phase in (WAIT, OVER):
            self._close()

    def _enter(self, phase: str) -> None:
        """Tell which step begins now, before it is recorded; only a new state is written."""
        if phase == RECORD:
            self.status.document["recorded"].append(self.step)
        state = "recording" if phase == RECORD else "warming up"
        if self.status.document["state"] != state:
            self.status.write(state=state, step=self.step)

    # ---- recording ----

    def _is_without_npu(self) -> bool:
        """Tell whether nothing but the CPU will ever be there to record."""
        if self.plan["engine"] != "auto":
            return bool(self.plan["engine"] == "cpu")
        if self._torch_npu is not None:
            return not self._torch_npu.npu.device_count()
        return importlib.util.find_spec("torch_npu") is None

    def _open_with_the_device(self, module: Any) -> None:
        """Open when the program has chosen its device: after its first set_device, or when it first uses an NPU."""
        choosing = []
        set_device = module._C._npu_setDevice

        def chosen(device: int) -> Any:
            choosing.append(device)
            result = set_device(device)
            if module._C._npu_setDevice is chosen:
                module._C._npu_setDevice = set_device
            self._open_once()
            return result

        module._C._npu_setDevice = chosen
        module.npu._lazy_call(lambda: None if choosing else self._open_once())

    def _open_once(self) -> None:
        if not self.is_open and not self.is_over and not self.has_recorded_all:
            with self._undisturbed():
                self._open()

    def _open(self) -> None:
        """Start recording; a failure costs the recording and never the program."""
        self._thread, self._is_settled = threading.get_ident(), True
        rank = _rank()
        if self.plan["ranks"] is not None and (rank or 0) not in self.plan["ranks"]:
            self._leave(state="left out", rank=rank)
            return
        if self.engine is None:
            problem = self._choose_engine()
            if problem:
                self._leave(state="failed", problem=problem)
                return
        if not self.window.whole and not self.engine.ready():
            self.window.delay += 1
            self._is_settled = False
            self.status.write(state="waiting for the NPU")
            return
        self.worker = os.uname().nodename if rank is None else f"{os.uname().nodename}_rank{rank}"
        version = getattr(self._torch, "__version__", None)
        self.status.document.update(rank=rank, world_size=_number("WORLD_SIZE"), engine=self.engine.name, torch=version)
        self.status.document.update(self.engine.facts())
        self._enter(self.window.phase(self.step))
        with self._driving("start()"):
            self.engine.open(self.step, self.worker, self.window.delay)
            self.is_open = True
        if not self.is_open:
            self._leave(state="failed", problem=self.status.document["warnings"][-1])

    def _choose_engine(self) -> dict[str, Any] | None:
        """Choose how to record; return why it cannot be done, or None."""
        engine, reason = engines.choose(self.plan, self._torch, self._torch_npu)
        if engine is None:
            return reason
        silencers = [name for name in self.plan["silencers"] if os.environ.get(name)]
        if silencers and engine.name == "torch":
            return say("{name} was set inside the program: torch_npu.profiler records nothing while it is set",
                       name=silencers[0])  # fmt: skip
        if engine.name == "cpu":
            self.rivals.watch(engine.owner(), self.plan["own_profiler"] == "replace")
            self.status.document["why_cpu"] = reason
        self.engine = engine
        return None

    def _close(self, early: bool = False, last: bool = False) -> None:
        """Stop recording and keep what there is; a step that has not ended does not count as recorded.

        ``early``: the program ends, or was recorded for long enough; ``last``: no window may follow.
        """
        self.is_open = False
        if self.step in self.status.document["recorded"]:
            self.status.document["recorded"].remove(self.step)
        self.status.write(state="saving", step=self.step)
        with self._driving("stop()"):
            self.engine.close()
        if self.history is not None:
            self.history.keep(self.engine.folders(self.worker))
        self.has_recorded_all = early or last or self.window.whole or self.window.phase(self.step) == OVER
        self._tell_threads()
        self.status.write(state="recorded", folders=self.engine.folders(self.worker), early=early)

    def _tell_threads(self) -> None:
        """Say whose steps were recorded, where several threads make steps."""
        others = [steps for thread, steps in self._steps.items() if thread != self._thread]
        if not others:
            return
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        thread, threads, steps = names.get(self._thread, str(self._thread)), len(others) + 1, sum(others)
        if self.engine.hears_all_threads:
            told = say("{threads} threads make steps: those of thread {thread} were counted, {steps} of others were "
                       "not; what these did meanwhile is in the recording",
                       threads=threads, thread=thread, steps=steps)  # fmt: skip
        else:
            told = say("{threads} threads make steps: only those of thread {thread} were recorded, {steps} of others "
                       "were not", threads=threads, thread=thread, steps=steps)  # fmt: skip
        self.status.warn(told)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Do what must not be interrupted; then let exits be guarded as long as something is being recorded."""
        with undisturbed(lambda: self.exits.follow(self.is_open)):
            yield

    @contextlib.contextmanager
    def _driving(self, call: str) -> Iterator[None]:
        """Run a profiler's own code: mark it as ours, keep its words, and survive its errors."""
        self.rivals.ours = True
        try:
            yield
        except Exception as error:
            self.status.warn(
                say(
                    "the profiler failed in {call} at step {step}: {error}",
                    call=call,
                    step=self.step,
                    error=f"{type(error).__name__}: {error}",
                )
            )
        finally:
            self.rivals.ours = False
            self.status.document["said"] = self.engine.said[-20000:]

    def _leave(self, **news: Any) -> None:
        """Do nothing more in this process: its steps cost nothing from here on."""
        self.is_over = True
        self._unfollow()
        self.status.write(step=self.step, **news)

    def _met(self) -> None:
        """The program makes its own profiler: defer to it, unless it is to be replaced."""
        if self.plan["own_profiler"] == "replace":
            return
        if self.is_open:
            self.status.warn(
                say("the program created its own profiler at step {step}: recording ended there", step=self.step)
            )
            with self._undisturbed():
                self._close(last=True)
        elif not self.is_over and not self.has_recorded_all:
            self._leave(state="aside")

    def _last_word(self) -> None:
        """Tell the last step, and where the program's own profilers wrote."""
        if os.getpid() == self._pid:
            self.status.write(step=self.step, own_data=self.rivals.data())

    def finish(self) -> None:
        """The process ends: save what is being recorded."""
        if self.is_open:
            with self._undisturbed():
                self._close(early=not self.window.whole)


# -- While something is being recorded, every way out of the process saves it first.


class Exits:
    """Calls ``finish`` at exit, at SIGTERM and before os._exit, while something is being recorded.

    Whatever the program puts in the place of ours meanwhile is the program's, and stays.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self._restore: list[Callable[[], Any]] = []

    def follow(self, recording: bool) -> None:
        """Take over while something is being recorded, and give back what is still ours afterwards."""
        if recording and not self._restore:
            # Handlers run in reverse order: torch_npu's own, which shuts the device down, was registered before.
            atexit.register(self.finish)
            self._restore = [lambda: atexit.unregister(self.finish), self._guard_exit()]
            in_main = threading.current_thread() is threading.main_thread()
            # A handler that the program has installed for SIGTERM stays.
            if in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                self._restore.append(_handle(signal.SIGTERM, self._terminated))
        while self._restore and not recording:
            with contextlib.suppress(ValueError):  # signals are set in the main thread only; ours passes them on
                self._restore.pop()()

    def _guard_exit(self) -> Callable[[], None]:
        leave, pid = os._exit, os.getpid()

        def _exit(status: int) -> None:
            if os.getpid() == pid:  # forked children leave this way, too
                self.finish()
            leave(status)

        os._exit = _exit  # type: ignore[assignment]

        def restore() -> None:
            if os._exit is _exit:
                os._exit = leave

        return restore

    def _terminated(self, number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a launcher may send it again
        self.finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _handle(number: int, handler: Callable[[int, Any], Any]) -> Callable[[], None]:
    """Handle a signal; return what gives it back, unless somebody else has taken it since."""
    before = signal.signal(number, handler)

    def restore() -> None:
        if signal.getsignal(number) == handler:
            signal.signal(number, before)

    return restore


@contextlib.contextmanager
def undisturbed(then: Callable[[], None]) -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a profiler's own code runs: half a step cannot be stopped.

    ``then`` is called before they are let through. Handlers are exchanged, not masked: the kernel would give a masked
    signal to any other thread, and Python would handle it in this one all the same.
    """
    held: list[int] = []

    def hold(number: int, _: Any) -> None:
        held.append(number)

    restore = []
    if threading.current_thread() is threading.main_thread():  # signals can be set, and are handled, there only
        of_python = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
        restore = [_handle(number, hold) for number in of_python]
    try:
        yield
    finally:
        for give_back in restore:
            give_back()
        then()
        for number in dict.fromkeys(held):
            handler = signal.getsignal(number)
            if callable(handler):  # sent again, it would wake event loops a second time
                handler(number, sys._getframe())
            else:
                os.kill(os.getpid(), number)


def _rank() -> int | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    found = [_number(name) for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")]
    return next((n for n in found if n is not None), None)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _is_launcher() -> bool:
    """Tell whether this process only starts others: a launcher, or a helper of multiprocessing."""
    words = getattr(sys, "orig_argv", None) or sys.argv
    names = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "--multiprocessing-fork")
    return "RANK" not in os.environ and any(os.path.basename(word) in names for word in words)

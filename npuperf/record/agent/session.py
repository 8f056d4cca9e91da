"""One process of the user's program: counts its steps, records the wanted ones, and says what happened."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from . import engines, sources, standby
from .engines import say, words_of_threads
from .exits import EndOfThread, Exits, undisturbed
from .history import History
from .rivals import Rivals, Scopes
from .sources import OVER, RECORD, WARM_UP, Listening, Turn, Turns, Window
from .status import PULSE, Status, importing, is_launcher, number, rank_of_process

#: Steps timed after the last window, to compare with the steps inside it.
_AFTERWARDS = 8
#: Steps by which a thread must be ahead of the main thread to be the one that is recorded.
_HEAD_START = 8
#: Seconds between two looks for a request, or for what ends a window; between two tries to begin one that is due.
_LOOK = 0.2
_TRY = 0.05
#: Seconds for which a window that is due waits for the end of a step, where the program makes steps.
_GRACE = 1.0
#: Seconds after which it is told why a window has not begun, and those after which one that was asked for is given up.
_LATE = 2.0
_TOO_LATE = 10.0
#: A window that the program's own profiler cuts short before it has a step is tried again, so often at most.
_TRIES = 3


class Session:
    """What the agent does in one process.

    ``plan`` is the JSON document of :mod:`npuperf.record.plan`. States: waiting, waiting for the NPU, warming up,
    recording, saving, recorded; aside (the program's own profiler is recording); standby, until somebody asks with
    another plan; and those that end it: left out (another rank), launcher (it only starts others), refused (options
    this version lacks), stopped (before anything was recorded), failed, forked (from a process that records).
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._first_plan = plan
        #: Where requests are left; None: this process is not in standby. ``_once``: it is left after the first one.
        self._requests: str | None = plan.get("standby")
        self._once = bool(plan.get("once"))
        #: Nothing of this is in the program any more.
        self.has_left = False
        self._torch: Any = None
        self._torch_npu: Any = None
        self._first_status: Status | None = None
        self._in_main: Any = None
        self._beside = standby.Beside(self._look)
        self._was_beside = False
        self.engine: Any = None
        self.history: History | None = None
        self.rivals = Rivals(self._met, self.explicit_step)
        self._scopes: Any = None
        #: What every thread does; each writes its own.
        self._turns = Turns()
        self._heard = Listening(None, self._tick, self._range_begins, self._turns)
        self.exits = Exits(self.finish)
        self._make_locks()
        self._begin(plan)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        #: Held while the profiler is started or stopped: a step, the clock and a request may want it at once.
        self._switching = threading.RLock()
        self._is_switching = False

    def _begin(self, plan: dict[str, Any]) -> None:
        """Begin with a plan as if nothing had happened before; in standby, if that is the first one."""
        self.is_idle = self._requests is not None and plan is self._first_plan
        self.plan = plan
        self._forget_steps()
        #: The turn of the thread whose steps count.
        self._turn = Turn()
        if not self.is_idle:
            self.status = Status(plan["status"])
        else:  # what the program has had recorded by itself is kept
            self.status = self._first_status = self._first_status or Status(plan["status"])
            self.status.document["state"] = "standby"
        self.status.threads = self._turns
        self.window = Window(plan)
        self.rivals.may("aside" if self.is_idle else plan.get("own_profiler", "aside"))
        #: How often the program's own profiler has cut a window short before a step of it was recorded.
        self._cut = 0
        self._was_put_off = False
        self._opened = 0
        self.is_open = False
        self.is_over = False
        self.has_recorded_all = False
        #: The thread whose steps count, once one has made a step; ``_is_settled``: it remains the one.
        self._thread: int | None = None
        self._is_settled = False
        #: How often what is being recorded was made longer.
        self._longer = 0
        self._opened_at = 0.0
        self._end_of_thread: Any = None
        self._name = ""
        self.worker = ""
        self._pid = os.getpid()

    def _forget_steps(self) -> None:
        """Count from 0, in every thread."""
        for turn in list(self._turns.values()):
            turn.forget()

    @property
    def step(self) -> int:
        """The step under way, of those that count."""
        return self._turn.step

    # ---- what the interpreter tells ----

    def torch_imported(self, torch: Any) -> None:
        """Look for steps; torch_npu may follow, or may have come with torch."""
        self._torch = torch
        self._torch_npu = self._torch_npu or sys.modules.get("torch_npu")
        self._in_main = standby.InMain(self._between_bytecodes, torch)
        self._heard = Listening(torch, self._tick, self._range_begins, self._turns)
        self._heard.torch_npu, self._scopes = self._torch_npu, Scopes(torch, self.rivals.is_ours)
        self.rivals.watch(torch)
        if not self.is_idle:
            self._heard.follow(self.plan)
        if not self._once:
            self.status.write()
        atexit.register(self._last_word)
        if self._requests is not None or self.window.told:
            self._beside.start()
        if self.window.whole and not is_launcher() and engines.is_without_npu(self.plan, self._torch_npu):
            self._open_once()

    def torch_npu_imported(self, module: Any) -> None:
        """Refuse at once what this version cannot do: hours later would be too late."""
        self._torch_npu = self._heard.torch_npu = module
        self.rivals.watch(module)
        if self.plan["engine"] == "cpu":
            return
        problems = engines.problems(self.plan, module)
        if problems:
            self.status.write(state="refused", problems=problems, torch_npu=getattr(module, "__version__", None))
            raise SystemExit(2)
        if self.plan.get("snapshot") and (self.plan["ranks"] is None or (rank_of_process() or 0) in self.plan["ranks"]):
            self.history = History(self.plan["raw"], self.status.warn)
            self.history.follow(module)
        self._heard.watch(module)
        if self.window.whole and not self.is_idle:
            engines.when_chosen(module, self._open_once)

    def enter(self, torch: Any, plan: dict[str, Any]) -> None:
        """Do what was asked for in a program that has imported torch long ago, which may be profiling itself."""
        self.torch_imported(torch)
        if self._torch_npu is not None:
            self._heard.watch(self._torch_npu)
            self.rivals.watch(self._torch_npu)
        self.rivals.look_round(torch)
        self._adopt(plan)

    def importing(self, name: str) -> Any:
        """Be entered while torch or torch_npu is imported."""
        return importing(name, self.plan["engine"], self.status.warn)

    def import_failed(self, name: str, error: BaseException) -> None:
        """Keep why torch cannot be imported."""
        if name == "torch_npu" and self._first_plan["engine"] == "cpu":  # some library tries, and goes on without
            return
        known = self.status.document.get("import_error")  # torch repeats what torch_npu failed on
        if isinstance(error, Exception) and not isinstance(error, ModuleNotFoundError) and not known:
            first = (str(error).splitlines() or [""])[0]
            self.status.write(state="failed", import_error=f"{name}: {type(error).__name__}: {first}")

    def before_fork(self) -> None:
        """Fork without a thread of ours: Python warns of forks beside threads."""
        self._was_beside = self._beside.stop()

    def after_fork(self) -> None:
        """Go on in the parent."""
        if self._was_beside:
            self._beside.start()

    def forked(self) -> None:
        """In a forked child: count steps anew, by the hooks that are there, and record unless the parent has begun to.

        A profiler that has run in the parent is not to be run in its child; once the parent is done, so is the child.
        A child of a process in standby is in standby, too.
        """
        if self.has_left:
            return
        was_open, has_begun, history = self.is_open, self.is_open or self.status.document["recorded"], self.history
        self._beside = standby.Beside(self._look)
        self._make_locks()  # another thread of the parent may have held them
        self._turns.alone(threading.get_ident())
        self.exits.follow(False)
        if self._scopes is not None:
            self._scopes.give_back()
        if self.engine is not None:
            self.engine.forked()
        if self._once:  # it was not asked for
            self.is_open = False
            self._depart()
            return
        if (was_open and self._requests is not None) or self.is_over or self.has_recorded_all:
            self._heard.unfollow()
            self.is_open, self.is_idle, self.is_over = False, False, True
            return
        if self._requests is not None:
            self._heard.unfollow()
            self._heard.forget_ranges()
            self._first_status = None
        self._begin(self._first_plan)
        if self._requests is not None:
            if self._torch is not None:
                self.status.write()
        elif has_begun:
            self.engine = self.history = None
            self.window = Window.never()
            self.status.document["state"] = "forked"
        else:
            self.engine = None
            if history is not None:
                history.warn = self.status.warn
        if self._was_beside:
            self._beside.start()

    # ---- steps ----

    def explicit_step(self) -> None:
        """End a step because the program says so; other sources are not heard any more."""
        if not self._heard.is_explicit:
            self._heard.is_explicit = True
            self._heard.unfollow()
            if not self.is_open:
                self._forget_steps()
        self._tick()

    def _tick(self) -> None:
        """A step has ended in this thread. Whatever goes wrong, the program goes on, without being profiled."""
        if self.is_over or self.is_idle or self._heard.backward.holds(self._tick):
            return
        now, thread = time.perf_counter_ns(), threading.get_ident()
        turn = self._turns[thread]
        turn.step += 1
        if turn.step < turn.quiet_until:
            self.status.before.append(now - turn.mark)
            turn.mark = now
            if now > turn.tell_at:
                self._tell(now)
            return
        try:
            if turn is self._turn or self._leads(thread, turn):
                self._end_step(turn, now)
            elif self.engine is not None:
                self.engine.hear(thread, self.is_open)
        except Exception as error:
            self._leave(state="failed", problem=f"{type(error).__name__}: {error}")

    def _tell(self, now: int) -> None:
        """Tell how many steps there are, and how long they took; the next one does not pay for that."""
        self.status.write(step=self.step, rank=rank_of_process())
        self._turn.mark = time.perf_counter_ns()
        self._turn.tell_at = now + int(PULSE * 1e9)

    def _leads(self, thread: int, turn: Turn) -> bool:
        """Tell whether a thread's steps are those that count from now on: one thread's are, until recording ends.

        A profiler's steps begin and end in one thread. It is the main thread, unless another is further by far; among
        others it is the one that is furthest.
        """
        if self._thread is None and sources.loads_data(self._torch):
            self.is_over = True
            self._heard.unfollow()
            return False
        with self._lock:
            furthest = 0 if self._thread is None else self.step
            main = threading.main_thread().ident
            lead = 0 if thread == main else _HEAD_START if self._thread == main else 1
            is_led = self._thread is not None
            if is_led and (self._is_settled or self.window.begins(furthest) or turn.step < furthest + lead):
                return False
            self.window.catch_up(furthest, turn.step)
            self._turn.quiet_until = turn.mark = 0
            self._thread, self._turn = thread, turn
            return True

    def _end_step(self, turn: Turn, now: int) -> None:
        if turn.mark:  # the length of the step that ended
            times = self.status.after if self.status.inside else self.status.before
            if self.is_open:
                times = self.status.inside
            if not self.is_open or self.window.phase(turn.step - 1) == RECORD:
                times.append(now - turn.mark)
        was_open = self.is_open
        if self.is_open or self.has_recorded_all or self.window.begins(turn.step):
            with self._undisturbed():
                self._advance()
        # The step after the profiler starts or stops pays for it: it is not timed.
        turn.mark = time.perf_counter_ns() if was_open == self.is_open else 0
        if not (self.is_open or self.is_over or self.is_idle):  # what is recorded is the program, not our writing
            if now > turn.tell_at:
                self._tell(now)
            if turn.mark and not self.has_recorded_all and not self.window.begins(turn.step):
                turn.note, turn.quiet_until = self.status.before.append, self.window.quiet_until(turn.step)

    def _advance(self) -> None:
        """Open, step or close the profiler, as the schedule says for the step that begins."""
        if self.engine is not None:
            self.engine.let_go()
        if not self.is_open:
            if not self.has_recorded_all:
                self._open()
            elif len(self.status.after) >= _AFTERWARDS:
                self._leave()
            return
        if self.engine.overtaken_by:
            if not self.rivals.active:
                self._close(last=True)
            return
        if os.path.exists(self.plan["stop"]):
            self.status.document["stopped"] = self.step
            self._close(early=True)
            return
        self._extend()
        phase = self.window.phase(self.step)
        if phase not in (WARM_UP, RECORD):
            self._close()
            return
        self._enter(phase)
        with self._driving("step()"):
            self.engine.step()

    def _extend(self) -> None:
        """Let what is being recorded go on for longer, where somebody has asked for that."""
        path = f"{self.plan['more']}.{self._longer}"  # every process reads each of them, once
        if os.path.exists(path):
            self._longer += 1
            more = standby.own_object(path)
            if more is not None:
                with contextlib.suppress(ValueError, TypeError):
                    self.window.extend(more, self.step)
            self.status.write(longer=self._longer)

    def _enter(self, phase: str, within: bool = False) -> None:
        """Tell which step begins now, before it is recorded; only a new state is written."""
        if phase == RECORD and not within:
            self.status.document["recorded"].append(self.step)
        state = "recording" if phase == RECORD else "warming up"
        if self.status.document["state"] != state:
            self.status.write(state=state, step=self.step)

    # ---- requests and the clock: what the thread beside the program sees ----

    def _look(self) -> float | None:
        """Take a request, or see to a window that begins or ends by the clock; return when to look again."""
        if self.is_idle:
            plan = standby.take(self._requests or "")
            if plan is not None:
                self._adopt(plan)
            return _LOOK if self.is_idle else 0.0
        if self.is_over or (self.has_recorded_all and self._requests is None):
            return None
        now, is_to_stop = time.monotonic(), os.access(self.plan["stop"], os.F_OK)
        if self.is_open:
            self._extend()
            ends = now if is_to_stop else self.window.ends
            if ends is None or now < ends:
                return _LOOK if ends is None else min(_LOOK, ends - now)
            return self._ask_main(ends, now)
        if is_to_stop:
            self._give_up(state="stopped")
            return _LOOK
        due = self.window.due
        if due is None or now < due:
            return _LOOK if due is None else min(_LOOK, due - now)
        self._turn.quiet_until = 0
        seconds = self.window.seconds
        if self._requests is not None and seconds is not None and now > due + max(_TOO_LATE, seconds):
            self._give_up(state="stopped", problem=self._why_late())
            return _LOOK
        if now > due + _LATE and not self.status.document.get("problem"):
            with self._switching:
                self.status.write(problem=None if self.is_open else self._why_late())
        return self._ask_main(due, now)

    def _why_late(self) -> dict[str, Any] | None:
        """Say why a window has not begun when it was time, where the state does not tell."""
        is_told = self.status.document["state"] != "waiting" or bool(self._turns.made())
        return None if is_told else standby.why_late(by_time=self._goes_by_time())

    def _ask_main(self, since: float, now: float) -> float:
        """Have the profiler started or stopped in the main thread, unless a step's end is the better place for it."""
        main = threading.main_thread().ident
        if self._others_make_steps(main) or (self.is_open and self._thread != main) or not self._goes_by_time():
            return _LOOK
        if self._turns.made() and now < since + _GRACE:
            return _TRY
        self._in_main.ask()
        return _TRY

    def _others_make_steps(self, main: int | None) -> bool:
        return any(thread != main and turn.step for thread, turn in list(self._turns.items()))

    def _goes_by_time(self) -> bool:
        """Tell whether this process may be recorded though it makes no step: one that uses an NPU, or the first one."""
        if is_launcher():
            return False
        parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
        return not engines.is_without_npu(self.plan, self._torch_npu) or parent is None or parent() is None

    def _between_bytecodes(self) -> None:
        """In the main thread: start or stop the profiler, if it is time and nobody is about to."""
        if self._is_switching or self.is_idle or self.is_over or self._heard.backward.is_inside():
            return
        if self._scopes is not None and self._scopes.is_at_one:  # to be asked again soon
            return
        if not self.is_open and sources.is_being_imported("torch", "torch_npu"):  # profilers use what is half there
            return
        with self._undisturbed(caught=True):
            now = time.monotonic()
            if self.is_open and self._thread == threading.get_ident():
                stopped = os.path.exists(self.plan["stop"])
                self._extend()
                if stopped or (self.window.ends is not None and now >= self.window.ends):
                    if stopped:
                        self.status.document["stopped"] = self.step
                    self._close(early=stopped)
            elif not self.is_open and not self.has_recorded_all and self.window.begins(self.step):
                self._open(within=True)

    def _adopt(self, plan: dict[str, Any]) -> None:
        """Do what was asked for, as if this process had begun with that plan."""
        with self._switching:
            if not self.is_idle:
                return
            try:
                self._begin({**plan, "began": time.time()})  # its clock starts here, however long it was not seen
                self.engine = None
                refused = engines.problems(self.plan, self._torch_npu)
                if refused or is_launcher():
                    self._give_up(state="refused" if refused else "launcher", problems=refused)
                    return
                self.status.write()
                self._heard.follow(self.plan)
            except Exception as error:
                self._give_up(state="failed", problem=f"{type(error).__name__}: {error}")

    def _give_up(self, **news: Any) -> None:
        with self._switching:
            if not self.is_open:
                self._leave(**news)

    def _rest(self) -> None:
        """Go back to standby: whoever asks next finds everything as it was."""
        if self._once:
            self._depart()
            return
        self._heard.unfollow()
        self._heard.forget_ranges()
        self._begin(self._first_plan)
        self.status.write()

    def _depart(self) -> None:
        """Leave a program that was entered as it was; the thread beside it ends when it looks next."""
        self.is_over, self.is_idle, self.has_left = True, False, True
        self._heard.unfollow()
        self._heard.forget_ranges()
        self.rivals.leave()
        atexit.unregister(self._last_word)
        self.engine = self._end_of_thread = None

    # ---- what the program says: its ranges, and npuperf.start() and stop() ----

    def started(self) -> None:
        """Record from here on, in this thread, until it is stopped; once more, if something was recorded before."""
        if self._torch is None or self.has_left or self.is_open or (self.is_over and not self.has_recorded_all):
            return
        with self._undisturbed():
            if self.is_open:
                return
            if self.is_over or self.is_idle:
                self.is_over = self.is_idle = False
                self._heard.follow(self.plan)
            self.has_recorded_all = False
            self.window.held = True
            self._open_here(say("npuperf.start() at step {step} recorded nothing: the program had not opened its NPU",
                                step=self.step))  # fmt: skip
        if self.is_open:
            self._beside.start()

    def stopped(self) -> None:
        """End what is being recorded; another thread's recording ends with its next step, if it can be seen."""
        if not self.is_open or self.window.whole:
            return
        self.window.ends = time.monotonic()
        if self._thread == threading.get_ident() and not self._heard.backward.is_inside():
            with self._undisturbed():
                if self.is_open:
                    self._close(last=not self.window.told)

    def _range_begins(self) -> None:
        """The range with which recording is to begin does so, in this thread."""
        if not (self._is_switching or self.is_open or self.is_over or self.is_idle or self.has_recorded_all):
            with self._undisturbed():
                if not self.is_open:
                    self._open_here(None)

    def _open_here(self, lost: dict[str, Any] | None) -> None:
        """Begin in this thread, at once; where that cannot be, ``lost`` is told."""
        try:
            self._open()
        except Exception as error:
            self._leave(state="failed", problem=f"{type(error).__name__}: {error}")
        if not self.is_open:
            self.window.held = False
            if lost is not None and self.status.document["state"] == "waiting for the NPU":
                self.status.warn(lost)

    # ---- recording ----

    def _open_once(self) -> None:
        if not self.is_open and not self.is_over and not self.has_recorded_all and not self.rivals.is_ours():
            with self._undisturbed():
                self._open()

    def _open(self, within: bool = False) -> None:
        """Start recording; a failure costs the recording and never the program. ``within``: a step may be half over."""
        self._thread, self._is_settled = threading.get_ident(), True
        own = self._turns[self._thread]
        own.step = own.step or self.step
        self._turn.quiet_until = own.quiet_until = 0
        self._turn = own
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        self._name = names.get(self._thread, str(self._thread))
        if os.path.exists(self.plan["stop"]):  # before it had begun
            self._leave(state="stopped")
            return
        rank = rank_of_process()
        if self.plan["ranks"] is not None and (rank or 0) not in self.plan["ranks"]:
            self._leave(state="left out", rank=rank)
            return
        if self.engine is None:
            self.engine, problem = engines.choose(self.plan, self._torch, self._torch_npu, self.status.document)
            if problem:
                self._leave(state="failed", problem=problem)
                return
        is_ready = self.window.whole or self.engine.ready()
        if self.rivals.active or not is_ready:
            self.window.put_off()
            self._is_settled = False
            state = "aside" if is_ready else "waiting for the NPU"
            if self.status.document["state"] != state:
                self.status.write(state=state)
            return
        self._was_put_off, self._opened = self.status.document["state"] == "aside", self.step
        self.worker = os.uname().nodename if rank is None else f"{os.uname().nodename}_rank{rank}"
        version = getattr(self._torch, "__version__", None)
        self.status.document.update(rank=rank, world_size=number("WORLD_SIZE"), engine=self.engine.name, torch=version)
        self.status.document.update(self.engine.facts())
        self.status.document.pop("problem", None)
        self.window.begin(self.step)
        self._enter(self.window.phase(self.step), within)
        with self._driving("start()"):
            self.engine.scopes, self.engine.is_within = self._scopes, within
            self.engine.open(self.step, self.worker, 0 if self.window.held else self.window.warmup)
            self.is_open = True
            self._end_of_thread = EndOfThread(self._thread_ends)
        self._opened_at = self.window.start_clock()
        if not self.is_open:
            self._leave(state="failed", problem=self.status.document["warnings"].pop())

    def _close(self, early: bool = False, last: bool = False, empty: bool = False) -> None:
        """Stop recording and keep what there is; a step that has not ended does not count as recorded.

        ``early``: the program or the thread ends, or was recorded for long enough; ``last``: no window may follow;
        ``empty``: there is nothing to keep.
        """
        self.is_open = False
        self._end_of_thread.then = None
        document, known = self.status.document, self.status.document["folders"]
        if not self.engine.can_stop() or (self.engine.overtaken_by and self.rivals.active):
            document["recorded"] = [step for step in document["recorded"] if step < self._opened]
            self._lose()
            return
        seconds = document.get("seconds", 0.0) + time.monotonic() - self._opened_at
        if self.step in document["recorded"]:
            document["recorded"].remove(self.step)
        self.status.write(state="saving", step=self.step)
        with self._driving("stop()"):
            self.engine.close()
        if self.history is not None:
            self.history.keep(self.engine.folders(self.worker))
        is_over = self.window.whole or self.window.phase(self.step) == OVER
        goes_on = is_over and self.window.told and not self.window.held and self.window.again()
        self.has_recorded_all = early or last or (is_over and not goes_on)
        self.window.held = False
        if self.has_recorded_all:
            self._heard.forget_ranges()
        document["folders"] = self.engine.folders(self.worker)
        others = [turn.step for turn in self._turns.made() if turn is not self._turn]
        if others and document["folders"]:
            self.status.warn(words_of_threads(self.engine, self._name, others))
        if empty:
            document["folders"] = known if self.history is None else document["folders"]
            for path in set(self.engine.folders(self.worker)) - set(document["folders"]):
                (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
        elif self._was_put_off:
            first = next((step for step in document["recorded"] if step >= self._opened), self._opened)
            self.status.warn(
                say("recording began at step {step}, when the program's own profiler had ended", step=first)
            )
        early = early or (empty and last)
        self.status.write(state="aside" if empty else "recorded", early=early, seconds=round(seconds, 6))
        if self._requests is not None and self.has_recorded_all:
            self._rest()

    def _lose(self) -> None:
        """Give up what another thread records: this one cannot stop that, and to try would crash the program.

        Nor can the thread itself while a profiler of the program is there.
        """
        if self.rivals.active:
            self._leave(state="aside")
            return
        why = say("thread {thread} was being recorded when recording had to end, and only that thread can end it: "
                  "nothing of it was kept", thread=self._name)  # fmt: skip
        self.is_over = True
        self._heard.unfollow()
        if self.status.document["folders"]:
            self.status.warn(why)
            self.status.write(state="recorded", step=self.step)
        else:
            self.status.write(state="failed", step=self.step, problem=why)

    def _thread_ends(self) -> None:
        """The thread that records ends: save what it did. Nobody else could: see :meth:`_lose`."""
        if os.getpid() != self._pid:  # forked, where the threads of the parent end at once, with their locks held
            return
        with self._switching:
            if self.is_open and threading.get_ident() == self._thread:
                self.status.document["why_early"] = say(
                    "thread {thread} ended at step {step}, during recording: that step is incomplete",
                    thread=self._name, step=self.step,
                )  # fmt: skip
                self._close(early=True)
                self.exits.follow(False)

    @contextlib.contextmanager
    def _undisturbed(self, caught: bool = False) -> Iterator[None]:
        """Do what must not be interrupted; then let exits be guarded as long as something is being recorded."""
        with self._switching:
            self._is_switching = True
            try:
                with undisturbed(lambda: self.exits.follow(self.is_open), caught):
                    yield
            finally:
                self._is_switching = False

    @contextlib.contextmanager
    def _driving(self, call: str) -> Iterator[None]:
        """Run a profiler's own code: mark it as ours, keep its words, and survive its errors."""
        self.rivals.ours = threading.get_ident()
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
            self.rivals.ours = None
            self.status.document["said"] = self.engine.said[-20000:]

    def _leave(self, **news: Any) -> None:
        """Do nothing more in this process, or until it is asked: its steps cost nothing from here on."""
        self.status.write(step=self.step, **news)
        if self._requests is not None:
            self._rest()
        else:
            self.is_over = True
            self._heard.unfollow()
            self._heard.forget_ranges()

    def _met(self, kind: str) -> bool:
        """A profiler of the program begins: ours ends before it, and begins again where it has nothing yet.

        Returns whether it must not begin: inside ``backward``, after which autograd would give the thread back a
        profiler that is gone, and crash. One that would go on after ``backward`` is lost with its end anyway.
        """
        if not self.is_open and not self._is_switching:
            return False
        if self.is_open and self._heard.backward.is_inside():
            self.status.warn(say("the program's own profiler began inside of backward at step {step}, while npuperf "
                                 "recorded, and records nothing: --wait chooses another step",
                                 step=self.step))  # fmt: skip
            return True
        with self._undisturbed():
            if not self.is_open:
                return False
            if self.engine.can_stop():
                recorded = [step for step in self.status.document["recorded"] if self._opened <= step < self.step]
                empty = not (recorded or self.window.whole or self.window.told or self.window.held)
                self._cut += empty
                if not empty:
                    self._tell_of_rival()
                self._close(last=not empty or self._cut == _TRIES, empty=empty)
                if not self.has_recorded_all:
                    self.window.delay = self.step + 1 - self.window.wait
                return False
            # Only the thread that is recorded can stop it, at the end of its step, which is not recorded.
            if not self.engine.overtaken_by:
                self._tell_of_rival()
            self.engine.overtaken_by.add(kind)
            if self.step in self.status.document["recorded"]:
                self.status.document["recorded"].remove(self.step)
        return False

    def _tell_of_rival(self) -> None:
        self.status.warn(say("the program's own profiler began at step {step}: recording ended there", step=self.step))

    def _last_word(self) -> None:
        """Tell the last step, and where the program's own profilers wrote."""
        if os.getpid() == self._pid:
            self.status.write(step=self.step, own_data=self.rivals.data())

    def finish(self) -> None:
        """The process ends: save what is being recorded."""
        if self.is_open:
            with self._undisturbed():
                self._close(early=not self.window.whole)

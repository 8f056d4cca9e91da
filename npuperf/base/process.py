"""The only place that starts other programs, and workers of our own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import psutil

from npuperf.base.errors import ExitCode, InputError
from npuperf.base.files import read_input
from npuperf.base.loading import no_matrix_threads
from npuperf.base.messages import say

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

#: Seconds between two looks at a program that runs.
_TICK = 0.2
#: Seconds that processes get between being asked to end and being made to.
_GRACE = 5.0
#: This many signals within this many seconds mean: now.
_IMPATIENT = (3, 3.0)
#: Seconds that a signal to end waits at most until what is being recorded is saved: `docker stop` waits 10 before it
#: kills, Slurm and Kubernetes 30. Seconds between two looks whether it is.
_SAVING = 5.0
_SAVED = 0.05
#: A Python program keeps what it says to a file to itself for a while, and a signal makes it lose that.
_AT_ONCE = {"PYTHONUNBUFFERED": "1"}
#: Seconds between two looks at a helper, and how much it gives way to others when it works beside a program.
_LOOK = 1.0
_NICE = 10
#: What sees to what outlives us, the pipe that it listens to, and all helpers that are no part of a program.
_GUARD = Path(__file__).resolve().parent.parent / "record" / "agent" / "guard.py"
_guard: int | None = None
_HELPERS: set[int] = set()
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
#: Where Linux lists the threads of this process, and what that of Arrow's memory is called, which sees to forks itself.
_THREADS = Path("/proc/self/task")
_OF_ARROW = b"jemalloc_bg_thd"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. ``signal`` is the first signal that npuperf itself received meanwhile.

    ``asked``: npuperf had asked it to end.
    """

    returncode: int
    seconds: float
    signal: int | None = None
    asked: bool = False

    @property
    def status(self) -> int:
        """Return the exit status as a shell says it: 128 + n for a program killed by signal n."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode


@dataclass(frozen=True, slots=True)
class Printed:
    """What a helper printed and how it ended. ``returncode`` is None when it could not be started.

    ``late``: it took longer than it was given, and was ended.
    """

    returncode: int | None
    text: str
    late: bool = False


#: Signals that ask a program to end.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Signals by which schedulers and users tell a program something, and which end one that does not listen.
FOR_PROGRAMS: Final = tuple(
    number
    for number in signal.valid_signals()
    if number >= getattr(signal, "SIGRTMIN", 1 << 30)
    or number in [getattr(signal, f"SIG{name}", 0) for name in ("USR1", "USR2", "QUIT", "ALRM", "XCPU", "PWR", "IO")]
)


def run_attached(
    command: Sequence[str],
    environment: Mapping[str, str],
    tick: Callable[[], bool],
    *,
    wrapped: bool = False,
    saving: Callable[[int], bool] = lambda number: False,
) -> Ended:
    """Run a program on our own stdin, stdout and stderr until it ends; call ``tick`` now and then.

    Signals reach the program as if it ran alone: from the terminal directly, else passed on to it, and not to what it
    has started, which it may end in its own order. Another program that is ``wrapped`` around it passes nothing on:
    what asks to end goes to all below it then, all else (``FOR_PROGRAMS``) no further. Those that are ignored (nohup, a
    script's background) stay so. The first that asks it to end waits while ``saving``, which is told its number, says
    that what the program has recorded is being saved, for some seconds at most; a second goes to its children, too, as
    one for its group would; three in quick succession kill.
    Once ``tick`` returns True the program is asked to end, as by a SIGTERM; what ``tick`` raises is raised when it has
    ended. What an interrupted program leaves behind is ended, too; strangers never are. Raises OSError when the program
    cannot be started.
    """
    _adopt_orphans()
    in_terminal = False  # whether one sends its Ctrl-C to our process group
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY)
        try:
            in_terminal = os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    received: list[tuple[float, int]] = []
    waiting: list[int] = []
    began = time.monotonic()
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        received.append((now, number))
        many, seconds = _IMPATIENT
        if child is None:  # nobody to pass it on to, yet
            waiting.append(number)
            return
        if len(received) >= many and now - received[-many][0] < seconds:
            _send(_family(child.pid), signal.SIGKILL)
        elif not (in_terminal and number == signal.SIGINT):
            waiting.append(number)
            if len(received) > 1 or not saving(number):
                let_go()

    def let_go() -> None:
        while waiting:
            ask(waiting.pop(0))

    def ask(number: int) -> None:
        if child is not None:
            _send(_family(child.pid)[: None if wrapped or len(received) > 1 else 1], number)

    def hand_on(number: int, _: FrameType | None) -> None:
        if child is not None and not wrapped and not (in_terminal and number == signal.SIGQUIT):
            child.send_signal(number)

    with handling(_ENDING, pass_on), handling(FOR_PROGRAMS, hand_on):
        child = subprocess.Popen(list(command), env=dict(environment), preexec_fn=_enrolled(b"*", not in_terminal))
        if waiting and (len(received) > 1 or not saving(waiting[0])):
            let_go()
        stopped, failed = False, None
        while True:
            try:
                child.wait(_SAVED if waiting else _TICK)
                break
            except subprocess.TimeoutExpired:
                pass
            if waiting and (time.monotonic() - received[0][0] > _SAVING or not saving(waiting[0])):
                let_go()
            try:
                ends = failed is None and tick()
            except Exception as error:  # ours, and no reason for the program to end
                ends, failed = False, error
            if ends and not stopped:
                stopped = True
                ask(signal.SIGTERM)
        if received or stopped:
            _end(_leftovers())
    _forget(child.pid)
    if failed is not None:
        raise failed
    return Ended(child.returncode, time.monotonic() - began, received[0][1] if received else None, stopped)


def _start(
    command: Sequence[str], environment: Mapping[str, str] | None, output: Any, listens: bool = False, **more: Any
) -> subprocess.Popen[bytes]:
    """Start a helper in a session of its own: the terminal's Ctrl-C is ours to handle."""
    return subprocess.Popen(
        list(command),
        env=None if environment is None else dict(environment),
        stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **more,
    )


def run_quietly(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    tick: Callable[[float], None] | None = None,
    limit: float | None = None,
) -> Printed:
    """Run a helper to its end and return what it printed; Ctrl-C ends it and everything it started.

    ``tick`` is told now and then for how many seconds it has been running; after ``limit`` seconds it is ended.
    """
    began = time.monotonic()
    try:
        with _deferring():
            child = _start(command, environment, subprocess.PIPE, preexec_fn=_enrolled(b"+"))
    except OSError as error:
        return Printed(None, f"{command[0]}: {error.strerror}")
    late = False
    try:
        while True:
            try:
                output, _ = child.communicate(timeout=None if tick is None and limit is None else _LOOK)
                break
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - began
                if limit is not None and passed > limit and not late:
                    late = True
                    _end(_family(child.pid))
                if tick is not None:
                    tick(passed)
    except BaseException:
        _end(_family(child.pid))
        child.wait()
        raise
    finally:
        _forget(child.pid)
    return Printed(child.returncode, output.decode("utf-8", "replace"), late)


class Beside:
    """A helper that works on its own beside a program, as slowly as the program needs; its output goes to a file.

    One that ``listens`` can be told what to do.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, *, listens: bool = False
    ) -> None:
        """Start it; raises OSError when that cannot be done."""
        with log.open("wb") as output:
            self._child = _start(command, environment, output, listens, preexec_fn=_enrolled(b"+"))
        _HELPERS.add(self._child.pid)
        with contextlib.suppress(psutil.Error, OSError):
            psutil.Process(self._child.pid).nice(_NICE)

    @property
    def ended(self) -> int | None:
        """Its exit status, None while it works."""
        return self._child.poll()

    def write(self, line: str) -> None:
        """Tell one that listens something, unless it has ended."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.write(f"{line}\n".encode())
                self._child.stdin.flush()

    def end(self) -> None:
        """End it and everything it started, if it still works."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        if self._child.poll() is None:
            _end(_family(self._child.pid))
            self._child.wait()
        _HELPERS.discard(self._child.pid)
        _forget(self._child.pid)


@dataclass(frozen=True, slots=True)
class Outliving:
    """What is done for an attached program that outlives us: the descriptors ``kept`` stay open until it ends.

    ``go_on`` is renamed to ``stop`` at once; ``exit_status`` gets its status (-n for signal n), if that can be known.
    """

    kept: Sequence[int]
    go_on: Path
    stop: Path
    exit_status: Path


@contextlib.contextmanager
def guarded(held: Sequence[int], program: Outliving | None = None) -> Iterator[None]:
    """While in the block, what is started quietly or beside ends when we are killed; not for use by two threads.

    A small process of its own sees to that. It keeps the file descriptors ``held`` open until nothing of it is left.
    """
    global _guard
    kept = () if program is None else program.kept
    files = () if program is None else (program.go_on, program.stop, program.exit_status)
    numbers = [",".join(map(str, opened)) for opened in (held, kept)]
    try:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), *numbers, *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # who reads our output waits for nobody but us
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(*held, *kept),
        )
    except OSError:  # no more processes: the program says so better
        yield
        return
    assert guard.stdin is not None
    _guard = guard.stdin.fileno()
    _HELPERS.add(guard.pid)
    try:
        yield
    finally:
        _guard = None
        guard.stdin.close()
        guard.wait()
        _HELPERS.discard(guard.pid)


@dataclass(frozen=True, slots=True)
class Detached:
    """A program that goes on without us: its process number and when it began (seconds since the epoch)."""

    pid: int
    began: float

    @classmethod
    def myself(cls) -> Detached:
        """Return this process."""
        return cls(os.getpid(), psutil.Process().create_time())

    def alive(self) -> bool:
        """Tell whether it still runs; a process that has its number by chance is not it."""
        try:
            return abs(psutil.Process(self.pid).create_time() - self.began) < 1 and is_running(self.pid)
        except (psutil.Error, ValueError, OverflowError):  # nor is what was noted by a damaged file
            return False

    def end(self) -> None:
        """End it and everything it started."""
        _end(_family(self.pid))


def carriers(name: str, value: str) -> list[Detached]:
    """Return the processes whose environment has a variable with this value, the oldest first; never ourselves.

    Whoever started them, and whoever of their parents has died: what they start inherits it.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            carries = process.pid != os.getpid() and process.environ().get(name) == value
            if carries and process.status() != psutil.STATUS_ZOMBIE:
                found.append(Detached(process.pid, process.create_time()))
    return sorted(found, key=lambda one: (one.began, one.pid))


def is_running(pid: int) -> bool:
    """Tell whether a process has this number, and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return False


def end_all(found: Sequence[Detached]) -> None:
    """End programs and everything they started."""
    _end([process for one in found if one.alive() for process in _family(one.pid)])


@contextlib.contextmanager
def run_logged(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> Iterator[tuple[Detached, Callable[[], int | None]]]:
    """Start a program whose output goes to ``log``, in a session of its own, so that it survives us.

    Yields the program and a function that returns its exit status once it has ended, None before. Leaving the block by
    an exception (Ctrl-C, a timeout) ends the program and everything it started. Raises InputError when it cannot start.
    """
    _adopt_orphans()
    try:
        with log.open("ab") as output:
            child = _start(command, {**environment, **_AT_ONCE}, output, cwd=folder)
    except OSError as error:
        what = say("{program}: cannot be started: {why}", program=command[0], why=error.strerror)
        raise InputError(what) from error
    with contextlib.suppress(psutil.NoSuchProcess):
        began = psutil.Process(child.pid).create_time()
    try:
        yield Detached(child.pid, began), child.poll
    except BaseException:
        _end(_family(child.pid))
        child.wait()
        _end(_leftovers())
        raise


class WorkerDiedError(Exception):
    """A worker ended before it answered; ``status`` is its exit status, -n for a signal."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


class _RemoteError(Exception):
    """The traceback of an error in a worker, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Worker(Generic[T, R]):
    """A Python of its own that applies one function to what it is handed, one thing at a time.

    A ProcessPoolExecutor cannot tell which task its worker died of, fails all others with it, and leaves orphans
    when it is killed itself. This worker dies with us, whatever we die of.
    """

    def __init__(self, work: Callable[[T], R]) -> None:
        from multiprocessing import Pipe, get_context

        # With one thread a fork is safe: others may hold locks for good. A forked worker has everything loaded,
        # which takes another one 0.3 s.
        threads = []
        with contextlib.suppress(OSError, InputError):
            threads = [read_input(path / "comm").strip() for path in _THREADS.iterdir()]
        alone = len(threads) - threads.count(_OF_ARROW) == 1
        process = get_context("fork").Process if alone else get_context("spawn").Process
        self._line, theirs = Pipe()
        # What a spawned one starts with goes through a pipe that we hold both ends of: more than fits in would never be
        # taken from one that is killed now. So its work follows on the line, which breaks with it.
        self._process = process(target=_serve, args=(theirs, work if alone else None), daemon=True)
        # Both for good in the child; a terminal's Ctrl-C is ours to handle.
        with no_matrix_threads(), held_back(signal.SIGINT, tracked=not alone):
            self._process.start()
        theirs.close()
        if not alone:
            self.hand(work)

    def hand(self, item: T | Callable[[T], R]) -> None:
        """Hand it something to work on; whether it is still alive shows when it is to answer."""
        with contextlib.suppress(OSError):
            self._line.send(item)

    def answer(self) -> Callable[[], R]:
        """Wait for the answer; calling it returns the result or raises what the work raised. Raises WorkerDiedError."""
        try:
            done, answer = self._line.recv()
        except (EOFError, OSError) as error:
            self._process.join(_GRACE)
            raise WorkerDiedError(self._process.exitcode) from error

        def result() -> R:
            if not done:
                error, there = answer
                raise error from _RemoteError(there)
            return answer  # type: ignore[no-any-return]

        return result

    def end(self) -> None:
        """End it at once, at work or not: it only reads."""
        self._process.kill()
        self._process.join()
        self._line.close()


def first_ready(workers: Collection[Worker[T, R]]) -> list[Worker[T, R]]:
    """Wait until one of the workers has an answer, or died, and return all that do."""
    from multiprocessing.connection import wait

    lines = {worker._line: worker for worker in workers}
    return [lines[line] for line in wait(list(lines))]  # type: ignore[index]  # it returns what it was given


def _serve(line: Connection, work: Callable[[Any], object] | None) -> None:
    """Be a worker: answer until nobody asks any more. The work comes first on the line if it is not there."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what a forked one took over is not for it
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            work = work or line.recv()
            while True:
                item = line.recv()
                answer: tuple[bool, object]  # whether the work was done, and its result or its error
                try:
                    answer = True, work(item)
                except Exception as error:
                    from traceback import format_exc

                    answer = False, (RuntimeError(f"{type(error).__name__}: {error}"), format_exc())
                    with contextlib.suppress(Exception):  # not every error survives the way
                        pickle.loads(pickle.dumps(error))
                        answer = False, (error, format_exc())
                try:
                    line.send(answer)
                except (pickle.PicklingError, TypeError, AttributeError) as error:
                    line.send((False, (RuntimeError(f"the answer cannot be sent: {error}"), "")))
    except MemoryError:  # for the question, or for what is to be sent: who asked sees us end, and asks once more
        os._exit(ExitCode.INPUT)


@contextlib.contextmanager
def held_back(number: signal.Signals, *, tracked: bool = True) -> Iterator[None]:
    """Let a signal wait; what is started meanwhile never gets it.

    ``tracked``: Python starts a process that sees to what it calls resources beside the first that is spawned; a fork
    has no use for it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if tracked:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # else it starts with the first child, and lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _enrolled(kind: bytes, own_group: bool = False) -> Callable[[], None] | None:
    """Return what a child does before it becomes the program: so there is no moment in which nobody guards it.

    ``kind``: ``*`` for the user's program, ``+`` for what works for us.
    """
    guard = _guard
    if guard is None:
        return os.setpgrp if own_group else None

    def enrol() -> None:
        if own_group:
            os.setpgrp()
        with contextlib.suppress(OSError):  # somebody has killed the guard
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            os.write(guard, b"%b%d\n" % (kind, os.getpid()))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    return enrol


def _forget(pid: int) -> None:
    """Tell the guard that a child has ended."""
    if _guard is not None:
        with contextlib.suppress(OSError):
            os.write(_guard, b"-%d\n" % pid)


def _leftovers() -> list[psutil.Process]:
    """Return all that descends from us, but for helpers that go on."""
    helpers = {process for pid in _HELPERS for process in _family(pid)}
    return [process for process in _family(os.getpid())[1:] if process not in helpers]


@contextlib.contextmanager
def handling(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals in the block, but for those that are ignored."""
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def outliving() -> Iterator[None]:
    """Take no notice of signals that are for a program, while it starts and when it has ended."""
    with handling(FOR_PROGRAMS, lambda *_: None):  # children would inherit that they are ignored
        yield


@contextlib.contextmanager
def _deferring() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while a child is started: raised in what Python does around a fork, they are lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    try:
        with handling((signal.SIGINT, signal.SIGTERM), lambda number, _: held.append(number)):
            yield
    finally:
        for number in held:
            os.kill(os.getpid(), number)


def _adopt_orphans() -> None:
    """Become the parent of processes that lose theirs, so that they can be found (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _send(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _end(processes: Sequence[psutil.Process]) -> None:
    """Ask processes to end, and make those that do not."""
    _send(processes, signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=_GRACE)
    _send(alive, signal.SIGKILL)

"""Where chaos happens: folders of one command's own, npuperf below the library of faults, and what it left."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import hashlib
import importlib
import mmap
import multiprocessing.util
import os
import pkgutil
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), *(str(HERE.parent / name) for name in (".", "fuzz", "tune", "record"))]

import npuperf  # noqa: E402 - of this checkout

#: Seconds that every command is given, and so many more for each that it takes undisturbed: others work here, too.
LIMIT, EACH = 60, 10
#: Seconds that what it started gets to end after it.
_GRACE = 30
#: Every kind of call, as the board of faults.c counts them, and what the board has besides.
KINDS = ("open", "make", "list", "stat", "read", "write", "close", "rename", "remove", "touch", "lock", "memory",
         "process", "thread", "pipe")  # fmt: skip
_BOARD = struct.Struct(f"{len(KINDS) + 5}l")
_HITS, _HELD = len(KINDS) + 1, len(KINDS) + 3
#: All inputs are as old as this: what was changed just now is not kept.
OLD = (1_700_000_000, 1_700_000_000)
#: What npuperf loads where it needs it.
_LOADED = ("rich.console", "rich.table", "rich.progress", "pyarrow.parquet", "yaml", "statistics", "numpy.ma", "hmac",
           "distributed", "encodings.utf_8_sig", "email.parser", "email.policy", "importlib_metadata")  # fmt: skip


def load() -> None:
    """Load all of npuperf here: most of a short command's time is Python's start."""
    for module in pkgutil.walk_packages(npuperf.__path__, "npuperf."):
        if not re.search(r"agent|__main__|\.lib", module.name):
            importlib.import_module(module.name)
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()


@dataclass(frozen=True)
class Command:
    """Words of a command line; ``loose``: its answer tells times, and differs from run to run."""

    words: str
    loose: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a command left: its status, None if it hung, its words, and files; what runs still; calls by kind, and hits.

    ``left``: what has no place any more.
    """

    status: int | None
    out: bytes
    said: str
    written: Mapping[str, bytes]
    left: tuple[str, ...]
    running: tuple[str, ...]
    calls: Mapping[str, int]
    hits: int
    seconds: float


@dataclass
class Trouble:
    """What a command meets: a fault for faults.c, and what is done while a call waits, and in the new process."""

    fault: str = ""
    held: Callable[[int], object] | None = None
    prepare: Callable[[], object] | None = None
    #: Python begins anew, to be disturbed while it loads, too.
    fresh: bool = False
    seconds: float = 10 * LIMIT


class Place:
    """Folders of a command, made anew for each run under the same names."""

    def __init__(self, base: Path, make_inputs: Callable[[Path], object]) -> None:
        self.base, self.root, self.pid = base, base / "place", -1
        self.inputs, self.out, self.home, self.tmp = (self.root / name for name in ("in", "out", "home", "tmp"))
        make_inputs(base / "inputs")
        for file in (base / "inputs").rglob("*"):
            os.utime(file, OLD)
        self.anew()

    def anew(self, home: Path | None = None) -> None:
        """Be as before the first command; ``home``: with what is kept of earlier answers."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.base / "inputs", self.inputs)
        for folder in (self.out, self.tmp, self.home):
            folder.mkdir()
        if home is not None:
            shutil.copytree(home, self.home, dirs_exist_ok=True)

    def words(self, command: Command) -> list[str]:
        inputs = {file.stem: file for file in self.inputs.iterdir()}
        return [word.format(out=self.out, python=sys.executable, **inputs) for word in command.words.split()]

    def read_by(self, command: Command) -> list[Path]:
        """The files that a command is about, sorted."""
        named = [Path(word) for word in self.words(command) if word.startswith(str(self.inputs))]
        below = [file for path in named for file in (path.rglob("*") if path.is_dir() else [path])]
        return sorted(file for file in below if file.is_file() and file.stat().st_size)

    def digest(self) -> str:
        """Of all inputs, names and contents; what npuperf keeps in a run directory is none."""
        seen = hashlib.sha256()
        for file in sorted(path for path in self.inputs.rglob("*") if path.is_file()):
            if not {"analysis", ".cache"} & {*file.parts}:
                seen.update(f"{file}\0".encode() + file.read_bytes())
        return seen.hexdigest()

    def _environment(self, command: Command, fault: str) -> dict[str, str]:
        mine = ("NPUPERF", "ASCEND", "TUNE", "FAKE", "XDG", "PYTHON")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(mine)},
            "CHAOS_BOARD": str(self.base / "board"), "CHAOS_ROOT": str(self.root), "CHAOS_FAULT": fault,
            "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / "cache"), "TMPDIR": str(self.tmp),
            "XDG_STATE_HOME": str(self.home / "state"), "PATH": f"{self.inputs / 'bin'}:{os.environ['PATH']}",
            "LANG": "C.UTF-8", "COLUMNS": "120", "PYTHONPATH": str(ROOT), "FAKE_AOE_SECONDS": "0.05",
            # Python renames bytecode to its place that a full disk has cut off, and never looks at it again.
            "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", **command.environment,
        }  # fmt: skip

    def again(self, command: Command) -> Outcome:
        """Do a command undisturbed; what another one has written, and nobody has begun, is gone."""
        for path in self.out.iterdir():
            if not path.name.startswith(".npuperf-"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self.run(command, Trouble())

    def run(self, command: Command, trouble: Trouble) -> Outcome:
        """Run a command, disturbed or not, and look at what it left."""
        (self.base / "board").write_bytes(bytes(_BOARD.size))
        with (self.base / "board").open("r+b") as opened:
            board = mmap.mmap(opened.fileno(), _BOARD.size)
        before, shared = _numbers(), _shared_memory()
        stdout, stderr, environment = (
            self.out / "stdout",
            self.base / "stderr",
            self._environment(command, trouble.fault),
        )
        with stdout.open("wb") as out, stderr.open("wb") as said:
            if trouble.fresh:
                child: _Forked | subprocess.Popen[bytes] = subprocess.Popen(
                    [sys.executable, HERE / "launch.py", *self.words(command)], cwd=self.out, stdout=out, stderr=said,
                    stdin=subprocess.DEVNULL, env=environment, start_new_session=True, preexec_fn=trouble.prepare,
                )  # fmt: skip
            else:
                files = (out.fileno(), said.fileno())
                child = _Forked(self.words(command), self.out, files, environment, trouble.prepare)
        self.pid, began, status = child.pid, time.monotonic(), None
        while (status := child.poll()) is None and time.monotonic() - began < trouble.seconds:
            if trouble.held is not None and _BOARD.unpack_from(board)[_HELD]:
                trouble.held(self.pid)
                trouble.held = None
                board[-struct.calcsize("l") :] = struct.pack("l", 1)
            time.sleep(0.002)
        seconds = time.monotonic() - began
        while (
            (running := self.processes(before)) and status is not None and time.monotonic() - began < seconds + _GRACE
        ):
            time.sleep(0.02)
        names = [_called(one) for one in running]
        for one in running:
            with contextlib.suppress(psutil.Error):
                one.kill()
        if status is None:
            os.waitpid(self.pid, 0)
        written = {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}
        left = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.name.startswith(".npuperf-")]
        left += [f"tmp/{path.name}" for path in self.tmp.iterdir()]
        left += [f"/dev/shm/{name}" for name in _shared_memory() - shared]
        found = _BOARD.unpack_from(board)
        return Outcome(
            status, written.pop("stdout", b""), stderr.read_text(errors="replace"), written, tuple(sorted(left)),
            tuple(names), dict(zip(KINDS, found, strict=False)), found[_HITS], seconds,
        )  # fmt: skip

    def processes(self, before: frozenset[str] = frozenset()) -> list[psutil.Process]:
        """All that runs here, whoever started it, by its session, or by what it was given; ``before`` did already."""
        found, mark = [], f"CHAOS_ROOT={self.root}\0".encode()
        for pid in _numbers() - before:
            with contextlib.suppress(psutil.Error, OSError):
                state, _, _, session = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:4]
                ours = int(session) == self.pid or mark in Path(f"/proc/{pid}/environ").read_bytes()
                if ours and state != b"Z":
                    found.append(psutil.Process(int(pid)))
        return sorted(found, key=lambda one: one.pid)


def _numbers() -> frozenset[str]:
    return frozenset(name for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208


def _called(process: psutil.Process) -> str:
    """Say what a process is, and what it waits for."""
    with contextlib.suppress(psutil.Error, OSError):
        waits = Path(f"/proc/{process.pid}/wchan").read_text()
        return f"{process.pid} {process.status()} in {waits}: {' '.join(process.cmdline())[-80:]}"
    return str(process.pid)


def _shared_memory() -> set[str]:
    """Pieces of memory that have names; semaphores of others come and go."""
    others = ("sem.", "DynamicProfileNpuShm")  # the latter is torch_npu's, of whoever uses it beside us
    return {name for name in os.listdir("/dev/shm") if not name.startswith(others)}  # noqa: PTH208


class _Forked:
    """npuperf in a fork of this process, which has loaded it all."""

    def __init__(
        self, words: list[str], folder: Path, files: tuple[int, int], environment: Mapping[str, str],
        prepare: Callable[[], object] | None,
    ) -> None:  # fmt: skip
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                _become(words, folder, files, environment, prepare)
                status = _be_npuperf()
            except BaseException as error:
                os.write(2, f"outside of npuperf: {error!r}\n".encode())
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def _become(
    words: list[str], folder: Path, files: tuple[int, int], environment: Mapping[str, str],
    prepare: Callable[[], object] | None,
) -> None:  # fmt: skip
    """Make of this process what a new one would be."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
        os.dup2(file, number)
    os.closerange(3, 1 << 10)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit.register(multiprocessing.util._exit_function)
    tempfile.tempdir = None
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = ["npuperf", *words]
    from npuperf.base import cache

    cache._WORTH_KEEPING = 0  # type: ignore[misc]
    ctypes.CDLL(None).chaos_begin()
    if prepare is not None:
        prepare()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = [_stream(number) for number in (1, 2)]  # type: ignore[misc]


def _stream(number: int) -> object:
    """Return what Python makes of a descriptor: nothing where it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    stream = open(number, "w", closefd=False)  # noqa: SIM115
    stream.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    return stream


def _be_npuperf() -> int:
    """Do what a Python does that begins with npuperf; return the exit status."""
    from npuperf.__main__ import main

    status: int | str | None = 0
    try:
        main()
    except SystemExit as left:
        status = left.code
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        return int(status or 0)
    return 120

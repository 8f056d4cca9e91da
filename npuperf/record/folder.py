"""The run directory: one folder for one measurement, shared by all commands."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from npuperf.base.errors import InputError, UsageError, unreadable
from npuperf.base.escape import for_shell
from npuperf.base.files import MANIFEST, is_file, is_folder, is_there, shown
from npuperf.base.messages import Message, say
from npuperf.base.notes import part_of, read_object

# -- Who works on a run directory: a lock that dies with its holder.

#: A reader holds the file for an instant: so often, and so long apart (s), is it tried again.
_TRIES, _PAUSE = 5, 0.01
_RECORD: Final = 4096


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds a lock, and when it began (seconds since the epoch)."""

    host: str = "?"
    pid: int = 0
    began: float = 0.0

    def __str__(self) -> str:
        return f"pid {self.pid}, {self.host}"


class Lock:
    """A file that one process at a time holds.

    The kernel's lock (flock) tells: it ends with its holder, whatever that died of, and is not fooled by numbers of
    processes that are used again. Who the holder is stands in the file. It decides alone where a file system has no
    such locks, and where it was written on another machine, of which the kernel may know nothing.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._opened: int | None = None
        self._shared = False

    def take(self) -> bool:
        """Hold it from now on, if nobody does. Raises OSError when the file cannot be made."""
        for _ in range(_TRIES):
            if self.holder() is None:
                opened = self._open()
                if _lock(opened, exclusive=True) is not False:
                    import psutil

                    me = Holder(host=this_host(), pid=os.getpid(), began=psutil.Process().create_time())
                    with suppress(OSError):  # a full disk: the kernel's lock is held all the same
                        os.ftruncate(opened, 0)
                        os.pwrite(opened, msgspec.json.encode(me), 0)
                    return True
            time.sleep(_PAUSE)
        return False

    def release(self) -> None:
        """Let go, also of what others share."""
        if self._opened is None:
            return
        with suppress(OSError, ImportError):
            import fcntl

            os.ftruncate(self._opened, 0)
            fcntl.flock(self._opened, fcntl.LOCK_UN)
        if not self._shared:
            os.close(self._opened)
            self._opened = None

    def share(self) -> tuple[int, ...]:
        """Return a descriptor for a child, which holds the lock whenever we do, and on if we die; () if none can be."""
        try:
            shared = self._open()
        except OSError:
            return ()
        self._shared = True
        return (shared,)

    def _open(self) -> int:
        if self._opened is None:
            self._opened = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644)
        return self._opened

    def holder(self) -> Holder | None:
        """Return who holds it, None if nobody does; of another machine's process nothing else can be known."""
        try:
            opened = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        noted = None
        try:
            with suppress(OSError, msgspec.DecodeError, RecursionError):
                noted = msgspec.json.decode(os.pread(opened, _RECORD, 0), type=Holder)
            free = _lock(opened, exclusive=False)
        finally:
            os.close(opened)
        if free is False:
            return noted or Holder()
        if noted is not None and noted.host == this_host():
            from npuperf.base.process import Detached

            return None if free or not Detached(noted.pid, noted.began).alive() else noted
        return noted

    def refusal(self, holder: Holder, path: str) -> tuple[Message, Message | None]:
        """Return what to say of who holds it, and what to do if that is over."""
        what = say("{path}: process {pid} on {host} is at work there", path=path, pid=holder.pid, host=holder.host)
        if holder.host == this_host():
            return what, None
        return what, say("if it is over, delete {file}", file=str(self.file))


def this_host() -> str:
    """Return the machine's name."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "?")


def _lock(opened: int, *, exclusive: bool) -> bool | None:
    """Lock an open file: whether that could be done, None where the file system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(opened, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


ELSEWHERE: Final = say("choose another folder with -o")
#: The first run of a folder; those after it are result.1, result.2, …
FIRST: Final = Path("result")
_WORK: Final = ".profile"
#: Of runs that recorded nothing so many are kept, to look at.
_FAILED: Final = 3
_NUMBER: Final = re.compile(r"\.(\d{1,9})", re.ASCII)
#: Seconds in which another npuperf has made its folder, too.
_MAKING: Final = 5.0


class RunFolder:
    """Where a run keeps its things: ``manifest`` says what is known about it, ``export_log`` what the exporters said.

    ``raw`` holds what the profilers wrote; ``work`` is npuperf's own: ``plan`` for the agent, ``status`` of every
    process, ``stop`` (a file whose presence ends recording; until then it is called ``go_on``, because a name can be
    changed on a full disk), ``more`` (by how much a window under way is to be longer), ``standby`` (where requests to
    processes in standby are left), the program's ``exit_status`` from below msprof or from npuperf's guard, and
    ``exporting``, which names the raw data whose export has begun and not ended. ``lock`` is held while the run is
    made, ``export_lock`` by who exports.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, shown(path)  # the latter as it is called in a command
        self.manifest, self.raw, self.work = path / MANIFEST, path / "raw", path / _WORK
        self.plan, self.status, self.exporting = self.work / "plan.json", self.work / "status", self.work / "exporting"
        self.stop, self.go_on, self.more = self.work / "stop", self.work / "go-on", self.work / "more"
        self.standby, self.exit_status = self.work / "standby", self.work / "exit-status"
        self.export_log, self.beside_log = path / "export.log", self.work / "beside.log"
        self.lock, self.export_lock = Lock(self.work / "lock"), Lock(self.work / "export-lock")

    @property
    def written(self) -> tuple[Path, ...]:
        """What of it recording and exporting write to."""
        return (self.manifest, self.raw, self.work, self.export_log)

    @property
    def in_use(self) -> bool:
        """Tell whether somebody is making or exporting this run."""
        return any(lock.holder() is not None for lock in (self.lock, self.export_lock))


def latest_run(first: Path = FIRST) -> Path:
    """Return the run with the highest number that is not being made just now; ``first`` where there is no other.

    One that recorded nothing counts only where no other did.
    """
    found = [path for _, path in _series(first) if path == first or _is_run(path)]
    ended = [path for path in found if not RunFolder(path).in_use]
    return ([path for path in ended if _has_data(path)] or ended or found or [first])[-1]


def failed_since(run: Path) -> Path | None:
    """Return the run with the highest number where that is a later one than this and recorded nothing."""
    last = next((path for _, path in reversed(_series(FIRST)) if _is_run(path)), run)
    return None if last == run or RunFolder(last).in_use or _has_data(last) else last


def next_run(first: Path = FIRST) -> Path:
    """Return the folder for a new run: the first that no run came after, unless it recorded nothing."""
    series = _series(first)
    if not series:
        return first
    number, path = series[-1]
    if not RunFolder(path).in_use and (_is_free(path) or (_is_run(path) and not _has_data(path))):
        return path
    return first.with_name(f"{first.name}.{number + 1}")


def broken_off(folder: RunFolder) -> list[Message]:
    """Say what nobody is at work on any more, and was not finished: npuperf was killed, or its disk was full."""
    if folder.in_use:
        return []
    found, again = [], f"npuperf profile --export {for_shell(folder.shown)}"
    if part_of(part_of(read_object(folder.manifest), "stages"), "run").get("status") == "running":
        found.append(say("{run}: this run was interrupted; {command} exports and reads what it recorded",
                         run=folder.shown, command=again))  # fmt: skip
    if folder.exporting.is_dir() and any(folder.exporting.iterdir()):
        found.append(say("{run}: an export broke off, so its files may be incomplete; {command} exports anew",
                         run=folder.shown, command=again))  # fmt: skip
    return found


def check_begun(folder: RunFolder) -> None:
    """Raise InputError where nothing is there to read, and that is no fault: it comes later, or elsewhere."""
    if _has_data(folder.path):
        return
    if part_of(read_object(folder.manifest), "options").get("standby"):
        what = say("{run}: its program was started with --standby; what --pid records has run directories of its own",
                   run=folder.shown)  # fmt: skip
        raise InputError(what, hint=say("name one of those, or none: npuperf analyze takes the latest"))
    if folder.lock.holder() is not None:
        what = say("{folder}: this run is still being recorded", folder=folder.shown)
        raise InputError(what, hint=say("wait for its end, or end its program"))


def check_free(path: Path, force: bool) -> None:
    """Raise UsageError when the folder holds something and may not be moved aside.

    A run that recorded nothing may be; one that somebody works on may not.
    """
    if _is_free(path):
        return
    if not _is_run(path):
        raise UsageError(say("{path}: exists and is not a run of npuperf", path=str(path)), hint=ELSEWHERE)
    _check_unused(path)
    if not force and _has_data(path):
        hint = say("choose another folder with -o, or let --force move this one to {path}", path=str(_aside(path)))
        raise UsageError(say("{path}: already holds a run", path=str(path)), hint=hint)


def create(path: Path | None, force: bool) -> tuple[RunFolder, Path | None]:
    """Make an empty run directory and take its lock; return it, and where a run that was there already lies now.

    Without a path it is the next of the current folder's runs.
    """
    with _making_alone(path or FIRST):
        path = path or next_run()
        check_free(path, force)
        moved = None
        folder = RunFolder(path.absolute())
        try:
            if _is_run(path):
                moved = _aside(path)
                path.rename(moved)
            folder.work.mkdir(parents=True)
            taken = folder.lock.take()
            folder.status.mkdir()
            folder.raw.mkdir()
            folder.go_on.touch()
            # torch_npu refuses to write where others may.
            folder.raw.chmod(0o750 & folder.raw.stat().st_mode)
        except OSError as error:
            folder.lock.release()
            what = say("{path}: cannot be created: {why}", path=str(path), why=error.strerror or str(error))
            raise InputError(what, hint=ELSEWHERE) from error
        if not taken:
            _check_unused(path)
    return folder, moved


def bytes_below(path: Path) -> int:
    """Return how many bytes lie below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for base, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += Path(base, name).lstat().st_size
    return total


def _series(first: Path) -> list[tuple[int, Path]]:
    """Return what is called as runs are: result, result.1, result.2, …, by number."""
    names = []
    with suppress(OSError):
        names = [p.name[len(first.name) :] for p in first.parent.iterdir() if p.name.startswith(first.name)]
    numbers = [int(found[1]) for name in names if (found := _NUMBER.fullmatch(name))]
    before = [(0, first)] if "" in names else []
    return [*before, *((number, first.with_name(f"{first.name}.{number}")) for number in sorted(numbers))]


def _is_run(path: Path) -> bool:
    """Tell whether npuperf made a folder; without a manifest it was killed in its first moments."""
    return is_file(path / MANIFEST) or is_folder(path / _WORK)


def _is_free(path: Path) -> bool:
    """Tell whether there is nothing; what we may not look into may hold anything."""
    try:
        return not is_there(path) or (path.is_dir() and not any(path.iterdir()))
    except PermissionError:
        return False
    except OSError as error:
        raise unreadable(path, error) from error


def _has_data(path: Path) -> bool:
    return any(any((path / part).glob("*")) for part in ("raw", "tune"))


def _check_unused(path: Path) -> None:
    """Raise UsageError while somebody works on a run."""
    folder = RunFolder(path)
    for lock in (folder.lock, folder.export_lock):
        holder = lock.holder()
        if holder is not None:
            what, hint = lock.refusal(holder, str(path))
            raise UsageError(what, hint=hint or ELSEWHERE)


def _aside(path: Path) -> Path:
    """Return the next name of result.old.1, result.old.2, …, which are never the latest run."""
    old = f"{path.name}.old"
    return path.with_name(f"{old}.{max((number for number, _ in _series(path.with_name(old))), default=0) + 1}")


def forget_failed(path: Path) -> tuple[list[Path], int]:
    """Remove all but the last of a path's runs that were moved aside and recorded nothing; return these, and how many.

    They hold what was said of the failure, and no data.
    """
    old = [run for _, run in _series(path.with_name(f"{path.name}.old")) if _is_run(run) and not run.is_symlink()]
    failed = [run for run in old if not _has_data(run) and not RunFolder(run).in_use]
    for run in failed[:-_FAILED]:
        shutil.rmtree(run, ignore_errors=True)
    return failed[-_FAILED:], len(failed[:-_FAILED])


@contextmanager
def _making_alone(path: Path) -> Iterator[None]:
    """Let no other npuperf make a folder beside this one at the same time, where the file system can tell."""
    opened, last = None, time.monotonic() + _MAKING
    try:
        with suppress(OSError, ImportError):
            import fcntl

            opened = os.open(path.absolute().parent, os.O_RDONLY)
            while time.monotonic() < last:
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.01)
        yield
    finally:
        if opened is not None:
            os.close(opened)

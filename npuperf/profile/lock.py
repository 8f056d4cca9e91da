"""Who works on a run directory: a lock that dies with its holder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from npuperf.messages import Message, say

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
                    self._sign(opened)
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
        try:
            noted = _read(opened)
            free = _lock(opened, exclusive=False)
        finally:
            os.close(opened)
        if free is False:
            return noted or Holder()
        if noted is None or (noted.host == this_host() and (free or not _lives(noted))):
            return None
        return noted

    def refusal(self, holder: Holder, path: str) -> tuple[Message, Message | None]:
        """Return what to say of who holds it, and what to do if that is over."""
        what = say("{path}: process {pid} on {host} is at work there", path=path, pid=holder.pid, host=holder.host)
        if holder.host == this_host():
            return what, None
        return what, say("if it is over, delete {file}", file=str(self.file))

    def _sign(self, opened: int) -> None:
        import psutil

        me = Holder(host=this_host(), pid=os.getpid(), began=psutil.Process().create_time())
        with suppress(OSError):  # a full disk: the kernel's lock is held all the same
            os.ftruncate(opened, 0)
            os.pwrite(opened, msgspec.json.encode(me), 0)


def this_host() -> str:
    """Return the machine's name."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "?")


def _read(opened: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(opened, _RECORD, 0), type=Holder)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _lives(holder: Holder) -> bool:
    from npuperf.process import Detached

    return Detached(holder.pid, holder.began).alive()


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

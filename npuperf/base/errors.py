"""What can go wrong, and the one table of exit codes."""

from __future__ import annotations

import errno
import os
from enum import IntEnum
from typing import Final

from npuperf.base.messages import Message, chain, say


class ExitCode(IntEnum):
    """Exit status of every npuperf command. Part of the interface: change only with a changelog entry."""

    DONE = 0
    GATE_FAILED = 1
    USAGE = 2
    INPUT = 3
    GATE_UNKNOWN = 4
    CHILD_FAILED = 5
    INTERNAL = 70
    INTERRUPTED = 130


def with_hint(what: Message, hint: Message | None) -> Message:
    """Return what happened and what to do next as one message."""
    return chain(what, hint and say("next: {hint}", hint=hint), by="\n  ")


class NpuperfError(Exception):
    """An error for the person at the terminal: what happened, where, and what to do next."""

    exit_code = ExitCode.INPUT

    def __init__(self, what: Message, *, hint: Message | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    @property
    def message(self) -> Message:
        """Both as one message."""
        return with_hint(self.what, self.hint)

    def __str__(self) -> str:
        return str(self.message)


class InputError(NpuperfError):
    """Input that is missing, unreadable or damaged beyond use."""


class UsageError(NpuperfError):
    """A command line that cannot be carried out as written."""

    exit_code = ExitCode.USAGE


def unreadable(path: object, error: OSError) -> InputError:
    """Return the error for a file that the system does not let us read."""
    why = os.strerror(error.errno) if error.errno else str(error)  # libraries have words of their own around it
    return InputError(say("{path}: cannot be read: {why}", path=str(path), why=why))


#: What the system answers where a program has made a mistake; all else is what the machine, its disks or others did.
_MISTAKES: Final = (None, errno.EBADF, errno.EINVAL, errno.EFAULT, errno.ENOTSOCK, errno.ENOSYS)


def of_the_system(error: BaseException) -> InputError | None:
    """Return the error for what the system failed to do, or None where the fault is another: ours, or want of memory.

    Whoever knows what is being done says so; here ends what nobody expects: a disk that fails, a file server that is
    gone, no more processes.
    """
    if not isinstance(error, OSError) or error.errno in _MISTAKES or lacks_memory(error):
        return None
    why, hint = error.strerror or str(error), say("this is the system's answer: run again once what it names is mended")
    if isinstance(error.filename, str | bytes):
        return InputError(say("{path}: {why}", path=os.fsdecode(error.filename), why=why), hint=hint)
    return InputError(say("{why}", why=why), hint=hint)


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error is want of memory, in whichever words: Python's, of threads, of libraries being loaded."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
        or "Failed to launch worker thread" in str(error)  # Arrow's
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    )

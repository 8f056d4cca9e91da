"""What can go wrong, and the one table of exit codes."""

from __future__ import annotations

import errno
from enum import IntEnum

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
    return InputError(say("{path}: cannot be read: {why}", path=str(path), why=error.strerror or str(error)))


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error is want of memory, in whichever words: Python's, of threads, of libraries being loaded."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    )

"""What can go wrong, and the one table of exit codes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


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


def exit_of_gates(states: Iterable[str]) -> ExitCode:
    """Return the answer of gates: one that failed goes before one that cannot be judged."""
    found = set(states)
    if "fail" in found:
        return ExitCode.GATE_FAILED
    return ExitCode.GATE_UNKNOWN if "cannot_tell" in found else ExitCode.DONE


class NpuperfError(Exception):
    """An error for the person at the terminal: what happened, where, and what to do next."""

    exit_code = ExitCode.INPUT

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return self.what if self.hint is None else f"{self.what}\n  next: {self.hint}"


class InputError(NpuperfError):
    """Input that is missing, unreadable or damaged beyond use."""


class UsageError(NpuperfError):
    """A command line that cannot be carried out as written."""

    exit_code = ExitCode.USAGE

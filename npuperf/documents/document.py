"""What every verb returns: a document, which says by itself with which status to leave."""

from __future__ import annotations

from npuperf.documents.base import SCHEMA_VERSION, Model
from npuperf.documents.gates import Gate
from npuperf.errors import ExitCode, with_hint
from npuperf.messages import Message


class Problem(Model, frozen=True, kw_only=True):
    """Why a verb did not do what was asked, and what to do next."""

    what: Message
    hint: Message | None = None
    exit_code: int = ExitCode.INPUT

    @property
    def message(self) -> Message:
        """What happened and what to do next, as one message."""
        return with_hint(self.what, self.hint)


class Document(Model, frozen=True, kw_only=True):
    """The result of a verb."""

    schema_version: str = SCHEMA_VERSION
    problem: Problem | None = None
    gates: tuple[Gate, ...] = ()

    @property
    def exit_code(self) -> int:
        """The status to leave with: a problem first, then a gate that failed, then one that cannot be judged."""
        if self.problem is not None:
            return self.problem.exit_code
        found = {gate.status for gate in self.gates if gate.level == "fail"}
        if "fail" in found:
            return ExitCode.GATE_FAILED
        return ExitCode.GATE_UNKNOWN if "cannot_tell" in found else ExitCode.DONE

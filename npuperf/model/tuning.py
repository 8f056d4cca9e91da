"""What a tuning run with AOE changed: the document of ``npuperf tune``. Times in µs unless a name says otherwise."""

from __future__ import annotations

from typing import Final, Literal

from npuperf.base.messages import Message, say
from npuperf.model.comparison import Comparison
from npuperf.model.document import Document
from npuperf.model.parts import Model

Mode = Literal["op", "subgraph", "mixed"]
Status = Literal["successful", "failed", "incomplete", "nothing_to_tune"]
Kind = Literal["operator", "subgraph", "model"]
Basis = Literal["name", "type", "none"]
Change = Literal["added", "updated", "unknown"]
CheckStatus = Literal["ok", "warn", "fail", "unknown"]
BankChangeKind = Literal["added", "removed", "changed"]


class Entry(Model, frozen=True, kw_only=True):
    """One operator, subgraph or model, before and after. ``speedup`` is before/after; None where a time is missing.

    ``reported_improvement_pct`` is the file's own figure: before/after − 1, whatever its documentation says.
    ``change`` of a model is unknown: models have no record of their own. ``task``: the task that tuned it.
    """

    kind: Kind
    name: str
    types: tuple[str, ...] = ()
    task: str | None = None
    repo_key: str | None = None
    strategy: str | None = None
    change: Change = "unknown"
    before_us: float | None = None
    after_us: float | None = None
    speedup: float | None = None
    time_saved_pct: float | None = None
    reported_improvement_pct: float | None = None


class Task(Model, frozen=True, kw_only=True):
    """What AOE tuned in one go: a model, or the graph of a program. ``status`` None: the file does not say."""

    name: str | None
    status: Status | None
    tuning_time_s: float | None


class Summary(Model, frozen=True, kw_only=True):
    """Counts of the knowledge base: added and updated records, hits (reserved or updated), unsatisfied cases."""

    added: int = 0
    updated: int = 0
    hit: int = 0
    reserved: int = 0
    unsatisfied: int = 0
    total: int = 0


class FieldChange(Model, frozen=True, kw_only=True):
    """One field of a record's knowledge, as JSON text; None where it is absent."""

    field: str
    before: str | None
    after: str | None


class BankChange(Model, frozen=True, kw_only=True):
    """One record that differs. ``info`` is its info_dict as JSON text."""

    soc: str
    cores: int
    op: str
    info: str
    change: BankChangeKind
    fields: tuple[FieldChange, ...] = ()


class BankDiff(Model, frozen=True, kw_only=True):
    """What differs between two knowledge bases of operators."""

    before: str
    after: str
    records_before: int
    records_after: int
    changes: tuple[BankChange, ...] = ()
    unchanged: int = 0
    warnings: tuple[Message, ...] = ()


class Check(Model, frozen=True, kw_only=True):
    """A condition for tuning: what is required and what was found. ``hard`` ones that fail forbid tuning."""

    name: str
    status: CheckStatus
    required: Message
    found: Message
    hard: bool

    @property
    def speaks_against(self) -> bool:
        """Tell whether somebody who is about to tune should know of it."""
        return self.status in ("fail", "warn") or (self.hard and self.status == "unknown")

    @property
    def sentence(self) -> Message:
        """All of it in one line."""
        return say("check {name}: {status}: {found} (required: {required})",
                   name=self.name, status=_STATUS[self.status], found=self.found, required=self.required)  # fmt: skip


_STATUS: Final[dict[CheckStatus, Message]] = {
    "ok": say("ok"),
    "warn": say("warning"),
    "fail": say("FAILS"),
    "unknown": say("unknown"),
}


class Saving(Model, frozen=True, kw_only=True):
    """What a tuned operator saves per step of the profile, as far as its calls are in device-bound time.

    ``calls_per_step`` counts all, ``felt_per_step`` those outside of host-bound phases; ``basis``: whether calls were
    found by the operator's name, or only by its type (then the least is 0: which calls are this case is not known).
    """

    name: str
    calls_per_step: float
    felt_per_step: float
    least_ns: int
    most_ns: int
    basis: Basis
    reason: Message | None


class BankUse(Model, frozen=True, kw_only=True):
    """How programs use what was tuned: where it lies, what to set for them, and what to build anew once.

    ``export`` is None where programs of the same user find the bank by themselves.
    """

    place: str
    export: str | None
    refresh: Message


class Tuning(Document, frozen=True, kw_only=True):
    """Everything that the result files of one tuning run say, and what it is worth.

    ``saved_ns``: what all operators save per step, least and most; less than the sum of ``savings`` where several may
    be the same calls. ``verification``: the program profiled without and with the bank.
    """

    mode: Mode | None
    status: Status
    recovered: bool
    files: tuple[str, ...]
    tasks: tuple[Task, ...] = ()
    entries: tuple[Entry, ...] = ()
    failed_operators: tuple[str, ...] = ()
    summary: Summary | None = None
    tuning_time_s: float | None = None
    warnings: tuple[Message, ...] = ()
    bank: BankDiff | None = None
    use: BankUse | None = None
    folder: str | None = None
    checks: tuple[Check, ...] = ()
    savings: tuple[Saving, ...] = ()
    saved_ns: tuple[int, int] | None = None
    step_ns: int | None = None
    verification: Comparison | None = None


class BankChanges(Document, frozen=True, kw_only=True):
    """The document of ``npuperf tune --diff`` of two knowledge bases."""

    bank: BankDiff


class ResultChanges(Document, frozen=True, kw_only=True):
    """The document of ``npuperf tune --diff`` of two results."""

    comparison: Comparison


class PlannedProgram(Model, frozen=True, kw_only=True):
    """One program that tuning would run, as it would be typed in a shell."""

    title: Message
    shell: str


class TunableOperator(Model, frozen=True, kw_only=True):
    """An operator type of the profile as something to tune, per step on average.

    ``most_ns``: the most that tuning it can save by the replay, and up to its roof where that is known; null where it
    was not replayed, or runs on no AI core. ``chosen``: whether this run would tune it; ``reason``: why it cannot be
    tuned, or saves nothing.
    """

    type: str
    calls: float
    time_ns: int
    share: float
    most_ns: int | None
    chosen: bool
    reason: Message | None = None


class TunePlan(Document, frozen=True, kw_only=True):
    """The document of ``npuperf tune --dry-run``: what would be run, and what speaks against it.

    ``folder`` is for results and logs, ``place`` the knowledge base; ``ops``: the file of operators to tune;
    ``operators``: those of the profile, the most expensive first.
    """

    folder: str
    place: str
    ops: str | None
    programs: tuple[PlannedProgram, ...]
    checks: tuple[Check, ...]
    operators: tuple[TunableOperator, ...] = ()


class Taken(Model, frozen=True, kw_only=True):
    """How many records a merged knowledge base got from another."""

    source: str
    records: int


class Merged(Document, frozen=True, kw_only=True):
    """The document of ``npuperf tune --merge``: records in all, from where, conflicts (the first bank won)."""

    into: str
    records: int
    taken: tuple[Taken, ...]
    conflicts: int
    backup: str | None
    warnings: tuple[Message, ...] = ()


class RolledBack(Document, frozen=True, kw_only=True):
    """The document of ``npuperf tune --rollback``: the bank, and where what was there is kept."""

    place: str
    backup: str | None

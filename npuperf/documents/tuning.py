"""What a tuning run with AOE changed: the document of ``npuperf tune``. Times in µs unless a name says otherwise."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

TUNING_SCHEMA: Final = "1.0"

Mode = Literal["op", "subgraph", "mixed"]
Status = Literal["successful", "failed", "incomplete", "nothing_to_tune"]
Kind = Literal["operator", "subgraph", "model"]
Basis = Literal["name", "type", "none"]
GateStatus = Literal["pass", "fail", "cannot_tell"]
Change = Literal["added", "updated", "unknown"]
CheckStatus = Literal["ok", "warn", "fail", "unknown"]
BankChangeKind = Literal["added", "removed", "changed"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One operator, subgraph or model, before and after. ``speedup`` is before/after; None where a time is missing.

    ``reported_improvement_pct`` is the file's own figure: before/after − 1, whatever its documentation says.
    ``change`` of a model is unknown: models have no record of their own.
    """

    kind: Kind
    name: str
    types: tuple[str, ...] = ()
    repo_key: str | None = None
    strategy: str | None = None
    change: Change = "unknown"
    before_us: float | None = None
    after_us: float | None = None
    speedup: float | None = None
    time_saved_pct: float | None = None
    reported_improvement_pct: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the knowledge base: added and updated records, hits (reserved or updated), unsatisfied cases."""

    added: int = 0
    updated: int = 0
    hit: int = 0
    reserved: int = 0
    unsatisfied: int = 0
    total: int = 0


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a record's knowledge, as JSON text; None where it is absent."""

    field: str
    before: str | None
    after: str | None


class BankChange(msgspec.Struct, frozen=True, kw_only=True):
    """One record that differs. ``info`` is its info_dict as JSON text."""

    soc: str
    cores: int
    op: str
    info: str
    change: BankChangeKind
    fields: tuple[FieldChange, ...] = ()


class BankDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two knowledge bases of operators."""

    before: str
    after: str
    records_before: int
    records_after: int
    changes: tuple[BankChange, ...] = ()
    unchanged: int = 0
    warnings: tuple[str, ...] = ()


class EntryChange(msgspec.Struct, frozen=True, kw_only=True):
    """One operator or subgraph in two results: its time after tuning in each (µs); None where it is not tuned."""

    name: str
    strategy: str | None
    change: BankChangeKind
    before_us: float | None
    after_us: float | None
    speedup: float | None


class ResultDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the results of two tuning runs. ``unchanged``: tuned to the same time in both."""

    before: str
    after: str
    changes: tuple[EntryChange, ...] = ()
    unchanged: int = 0
    warnings: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A condition for tuning: what is required and what was found. ``hard`` ones that fail forbid tuning."""

    name: str
    status: CheckStatus
    required: str
    found: str
    hard: bool


class Saving(msgspec.Struct, frozen=True, kw_only=True):
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
    reason: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """An operator type, or the whole step, without and with the bank: mean times in ns, noise of their difference.

    ``noise_ns`` is None where there is a single time on one side. ``predicted_ns``: what tuning it was expected to save
    per step, least and most; None for what was not tuned.
    """

    name: str
    count: int
    before_ns: int
    after_ns: int
    noise_ns: int | None
    verdict: Literal["faster", "same", "slower", "cannot tell"]
    predicted_ns: tuple[int, int] | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Two profiles of one program: without and with the bank. ``predicted_ns``: per step, least and most."""

    baseline: str
    tuned: str
    step: Verified | None
    operators: tuple[Verified, ...]
    predicted_ns: tuple[int, int] | None
    verdict: Literal["kept", "not felt", "worse", "cannot tell"]
    reason: str


class TuneGate(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a pipeline asked for."""

    expr: str
    status: GateStatus
    value: float | None
    limit: float
    reason: str = ""


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the result files of one tuning run say, and what it is worth.

    ``saved_ns``: what all operators save per step, least and most; less than the sum of ``savings`` where several may
    be the same calls.
    """

    schema_version: str
    mode: Mode | None
    status: Status
    recovered: bool
    files: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    failed_operators: tuple[str, ...] = ()
    summary: Summary | None = None
    tuning_time_s: float | None = None
    warnings: tuple[str, ...] = ()
    bank: BankDiff | None = None
    folder: str | None = None
    checks: tuple[Check, ...] = ()
    savings: tuple[Saving, ...] = ()
    saved_ns: tuple[int, int] | None = None
    step_ns: int | None = None
    verification: Verification | None = None
    gates: tuple[TuneGate, ...] = ()

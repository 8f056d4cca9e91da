"""The tables of the documents of ``tune``, one line per column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from npuperf.documents.comparison import Compared
from npuperf.documents.tuning import Tuning
from npuperf.messages import say
from npuperf.render.comparison_tables import PARITY, WATERFALL
from npuperf.render.tables import Column, Row, Table, each
from npuperf.units import NS_PER_US


def _entries(tuning: Tuning) -> Iterator[Row]:
    """Yield the entries, those that save the most time first."""
    for entry in sorted(tuning.entries, key=lambda e: (e.before_us or 0) - (e.after_us or 0), reverse=True):
        yield (entry,)


def _us(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NS_PER_US


def _speedup(row: Compared) -> float | None:
    return row.old_ns / row.new_ns if row.old_ns and row.new_ns else None


def _moved(change: Any) -> str | None:
    return ", ".join(f"{f.field} {f.before or '–'} → {f.after or '–'}" for f in change.fields) or None


# fmt: off
_NAME: Final = Column("name", say("name"), weight=0)
#: AOE's own figure is before/after − 1, which reads as a share of time and is none.
ENTRIES: Final = Table("entries", say("what was tuned"), _entries, (
    _NAME,
    Column("change", say("change"), "word", weight=0),
    Column("before_us", say("before µs"), "plain"),
    Column("after_us", say("after µs"), "plain"),
    Column("speedup", say("speed-up"), "plain"),
    Column("time_saved_pct", say("saved %"), "plain"),
    Column("strategy", say("strategy")),
    Column("types", say("types")),
    Column("reported_improvement_pct", say("AOE's figure %"), "plain", weight=2),
    Column("kind", say("kind"), "word", weight=2),
    Column("task", say("task"), weight=2),
    Column("repo_key", say("repo key"), weight=2),
), usual=True)
TASKS: Final = Table("tasks", say("what AOE was given"), each("tasks"), (
    _NAME,
    Column("status", say("status"), "word", weight=0),
    Column("tuning_time_s", say("seconds"), "plain"),
))
SAVINGS: Final = Table("savings", say("savings per step of the profile"), each("savings"), (
    _NAME,
    Column("calls_per_step", say("calls per step"), "plain"),
    Column("felt_per_step", say("calls in device-bound time"), "plain"),
    Column("least_ns", say("saves, min"), "us"),
    Column("most_ns", say("saves, max"), "us"),
    Column("reason", say("note"), "message"),
))
VERIFIED: Final = Table("verified", say("without and with the tuned knowledge base"), each("verification.rows"), (
    Column("name", say("operator"), "word", lambda c: "step" if c.kind == "step" else c.name, 0),
    Column("verdict", say("verdict"), "word", weight=0),
    Column("count", say("calls"), "count"),
    Column("before_ns", say("before"), "us", "old_ns"),
    Column("after_ns", say("after"), "us", "new_ns"),
    Column("noise_ns", say("noise"), "us"),
    Column("predicted_least_ns", say("predicted per step, min"), "us", "expected_ns.0"),
    Column("predicted_most_ns", say("predicted per step, max"), "us", "expected_ns.1"),
))
EXPLAINED: Final = replace(WATERFALL, rows=each("verification.waterfall"))
SET_UP: Final = replace(PARITY, rows=each("verification.parity"))
CHECKS: Final = Table("checks", say("conditions for tuning"), each("checks"), (
    _NAME,
    Column("status", say("status"), "word", weight=0),
    Column("found", say("found"), "message"),
    Column("required", say("required"), "message"),
))
RESULTS: Final = Table("results", say("what the runs tuned differently"), each("comparison.rows"), (
    _NAME,
    Column("strategy", say("strategy")),
    Column("change", say("change"), "word"),
    Column("before_us", say("first µs"), "plain", lambda c: _us(c.old_ns)),
    Column("after_us", say("second µs"), "plain", lambda c: _us(c.new_ns)),
    Column("speedup", say("speed-up"), "plain", _speedup),
), usual=True)
BANK: Final = Table("bank", say("what changed in the knowledge base"), each("bank.changes"), (
    Column("op", say("operator"), weight=0),
    Column("change", say("change"), "word", weight=0),
    Column("soc", say("SoC")),
    Column("cores", say("cores"), "id"),
    Column("info", say("case")),
    Column("fields", say("changed fields"), get=_moved),
))

TUNING: Final = (VERIFIED, ENTRIES, TASKS, SAVINGS, BANK, CHECKS, EXPLAINED, SET_UP)
BANK_CHANGES: Final = (BANK,)
RESULT_CHANGES: Final = (RESULTS,)
PLAN: Final = (CHECKS,)

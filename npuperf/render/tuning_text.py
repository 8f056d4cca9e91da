"""A tuning result as text, JSON, CSV or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from npuperf import __version__
from npuperf.documents.tuning import TUNING_SCHEMA, BankDiff, Check, ResultDiff, Status, Tuning, Verification
from npuperf.files import shown
from npuperf.render.analysis_tables import Cell, Column, Table, how_many
from npuperf.render.analysis_text import Bands
from npuperf.render.csv import table_csv
from npuperf.render.json import schema_of
from npuperf.render.markdown import table_markdown
from npuperf.render.words import gate_text
from npuperf.units import duration, interval, percents, plural

_STATUS: Final[dict[Status, tuple[str, str]]] = {
    "successful": ("SUCCESSFUL", "bold green"),
    "failed": ("FAILED", "bold red"),
    "incomplete": ("INCOMPLETE", "bold yellow"),
    "nothing_to_tune": ("NOTHING TO TUNE", "bold"),
}
_MODES: Final = {"op": "operator tuning", "subgraph": "subgraph tuning", "mixed": "subgraph and operator tuning"}
_COLUMNS: Final = (
    Column("name", "name"),
    Column("change", "change"),
    Column("before_us", "before µs", "plain"),
    Column("after_us", "after µs", "plain"),
    Column("speedup", "speed-up", "plain"),
    Column("time_saved_pct", "saved %", "plain"),
    Column("strategy", "strategy"),
    Column("types", "types"),
    Column("reported_improvement_pct", "AOE's figure %", "plain"),
    Column("kind", "kind"),
    Column("repo_key", "repo key"),
)
#: Columns on the screen. AOE's own figure is before/after − 1, which reads as a share of time and is none.
_ON_SCREEN: Final = 8


_SAVINGS: Final = (
    Column("name", "name"),
    Column("calls_per_step", "calls per step", "plain"),
    Column("felt_per_step", "felt", "plain"),
    Column("least_ns", "saves, least", "us"),
    Column("most_ns", "most", "us"),
    Column("reason", "note"),
)
_VERIFIED: Final = (
    Column("name", "operator"),
    Column("verdict", "verdict"),
    Column("count", "calls", "count"),
    Column("before_ns", "before", "us"),
    Column("after_ns", "after", "us"),
    Column("noise_ns", "noise", "us"),
    Column("predicted_least_ns", "predicted per step, least", "us"),
    Column("predicted_most_ns", "most", "us"),
)
_RESULTS: Final = (
    Column("name", "name"),
    Column("strategy", "strategy"),
    Column("change", "change"),
    Column("before_us", "first µs", "plain"),
    Column("after_us", "second µs", "plain"),
    Column("speedup", "speed-up", "plain"),
)
_BANK_COLUMNS: Final = (
    Column("op", "operator"),
    Column("change", "change"),
    Column("soc", "SoC"),
    Column("cores", "cores", "count"),
    Column("info", "case"),
    Column("fields", "what moved"),
)


def bank_table(diff: BankDiff) -> Table:
    """Return the records that differ."""
    rows: list[tuple[Cell, ...]] = [
        (
            c.op,
            c.change,
            c.soc,
            c.cores,
            c.info,
            ", ".join(f"{f.field} {f.before or '–'} → {f.after or '–'}" for f in c.fields) or None,
        )
        for c in diff.changes
    ]
    return Table("bank", "what changed in the bank", _BANK_COLUMNS, rows, keys=1)


def print_bank(diff: BankDiff, console: Console, top: int) -> None:
    """Print what differs between two banks."""
    _print_head(f"{diff.before} → {diff.after}", console)
    _print_bank_diff(diff, console, top)


def _print_head(what: str, console: Console) -> None:
    console.print(Text(f"npuperf {__version__}  {what}", style="bold"))


def _print_bank_diff(diff: BankDiff, console: Console, top: int) -> None:
    console.print(_bank_summary(diff))
    _print_table(bank_table(diff), console, top, len(_BANK_COLUMNS))
    _print_warnings(diff.warnings, console)


def _print_warnings(warnings: Sequence[str], console: Console) -> None:
    for warning in warnings:
        console.print(Text(f"warning: {warning}"))


def _bank_summary(diff: BankDiff) -> str:
    counts = {kind: sum(c.change == kind for c in diff.changes) for kind in ("added", "changed", "removed")}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{diff.records_before} → {diff.records_after} records: {listed}, {diff.unchanged} unchanged"


def _results_table(diff: ResultDiff) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (c.name, c.strategy, c.change, c.before_us, c.after_us, c.speedup) for c in diff.changes
    ]
    return Table("results", "what the runs tuned differently", _RESULTS, rows, keys=1)


def _results_summary(diff: ResultDiff) -> str:
    counts = {kind: sum(c.change == kind for c in diff.changes) for kind in ("added", "changed", "removed")}
    return f"{', '.join(f'{n} {kind}' for kind, n in counts.items())}, {diff.unchanged} tuned to the same time"


def print_results(diff: ResultDiff, console: Console, top: int) -> None:
    """Print what differs between the results of two runs."""
    _print_head(f"{diff.before} → {diff.after}", console)
    console.print(_results_summary(diff))
    _print_table(_results_table(diff), console, top, len(_RESULTS))
    _print_warnings(diff.warnings, console)


def _results_markdown(diff: ResultDiff, top: int) -> str:
    title = f"# Tuning results: {diff.before} → {diff.after}"
    return _page(title, _results_summary(diff), _results_table(diff), diff.warnings, top)


def _page(title: str, summary: str, table: Table, warnings: Sequence[str], top: int) -> str:
    """Put a Markdown page together."""
    parts = [title, summary, *([table_markdown(table, top)] if table.rows else [])]
    return "\n\n".join([*parts, *(f"- warning: {w}" for w in warnings)]) + "\n"


def tuning_schema() -> dict[str, Any]:
    """Derive the JSON Schema of the tuning document from its model."""
    return schema_of(Tuning, "npuperf tune result")


def tuning_table(tuning: Tuning) -> Table:
    """Return the entries, those that save the most time first."""
    saved = sorted(tuning.entries, key=lambda e: (e.before_us or 0) - (e.after_us or 0), reverse=True)
    rows: list[tuple[Cell, ...]] = [
        (
            e.name,
            e.change,
            e.before_us,
            e.after_us,
            e.speedup,
            e.time_saved_pct,
            e.strategy,
            ", ".join(e.types) or None,
            e.reported_improvement_pct,
            e.kind,
            e.repo_key,
        )
        for e in saved
    ]
    return Table("entries", "what was tuned", _COLUMNS, rows, keys=1)


def print_tuning(tuning: Tuning, console: Console, top: int) -> None:
    """Print one screen: how it ended, what was tuned, what to mind."""
    _print_head(shown(tuning.folder) if tuning.folder else ", ".join(map(shown, tuning.files)), console)
    word, style = _STATUS[tuning.status]
    console.print(Text(word, style=style) + Text(f"  {_summary(tuning)}"))
    if tuning.saved_ns:
        console.print(_saved_line(tuning.saved_ns, tuning.step_ns))
    for line in _gate_lines(tuning):
        console.print(Text(line))
    if tuning.verification is not None:
        console.print(Text(_verdict_line(tuning.verification), style="bold"))
        _print_table(_verified_table(tuning.verification), console, top, len(_VERIFIED))
    _print_table(tuning_table(tuning), console, top, _ON_SCREEN)
    if tuning.savings:
        _print_table(_savings_table(tuning), console, top, len(_SAVINGS))
    if tuning.bank is not None:
        console.print()
        console.print(Text(f"bank {shown(tuning.bank.after)}", style="bold"))
        _print_bank_diff(tuning.bank, console, top)
    if tuning.failed_operators:
        console.print()
        console.print(Text(f"failed: {', '.join(tuning.failed_operators)}", style="red"))
    _print_warnings(tuning.warnings, console)


def check_lines(checks: Sequence[Check], *, full: bool) -> list[str]:
    """Say what speaks against tuning; everything with ``full``."""
    shown = [c for c in checks if full or c.status in ("fail", "warn") or (c.hard and c.status == "unknown")]
    words = {"ok": "ok", "warn": "warning", "fail": "FAILS", "unknown": "unknown"}
    return [f"check {c.name}: {words[c.status]}: {c.found} (required: {c.required})" for c in shown]


def _savings_table(tuning: Tuning) -> Table:
    """Return what entries save per step of the profile."""
    rows: list[tuple[Cell, ...]] = [
        (s.name, s.calls_per_step, s.felt_per_step, s.least_ns, s.most_ns, s.reason or None) for s in tuning.savings
    ]
    return Table("savings", "what it saves per step of the profile", _SAVINGS, rows, keys=1)


def _verified_table(found: Verification) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (v.name, v.verdict, v.count, v.before_ns, v.after_ns, v.noise_ns, *(v.predicted_ns or (None, None)))
        for v in ([found.step] if found.step else []) + list(found.operators)
    ]
    return Table("verified", "without and with the bank", _VERIFIED, rows, keys=1)


def _saved_line(saved_ns: tuple[int, int], step_ns: int | None) -> str:
    """Say what is saved per step."""
    least, most = saved_ns
    share = f" ({percents(least / step_ns, most / step_ns)} of {duration(step_ns)})" if step_ns else ""
    return f"expected: {interval(least, most)} per step{share}, in device-bound time only"


def _verdict_line(found: Verification) -> str:
    predicted = f"; predicted {interval(*found.predicted_ns)} per step" if found.predicted_ns else ""
    measured = ""
    if found.step:
        measured = (
            f"; measured {duration(found.step.before_ns - found.step.after_ns)}, noise {duration(found.step.noise_ns)}"
        )
    return f"{found.verdict.upper()}  {found.reason}{predicted}{measured}"


def _gate_lines(tuning: Tuning) -> list[str]:
    return [gate_text(g, None if g.value is None else f"{round(g.value, 2):g}") for g in tuning.gates]


def notes(tuning: Tuning) -> list[str]:
    """Return what a table of the entries does not say: how it ended, gates, warnings."""
    return [
        f"{_STATUS[tuning.status][0].lower()}: {_summary(tuning)}",
        *_gate_lines(tuning),
        *(f"warning: {w}" for w in tuning.warnings),
    ]


def _print_table(table: Table, console: Console, top: int, columns: int) -> None:
    if not table.rows:
        return
    rows = [row[:columns] for row in table.rows[:top]]
    console.print()
    console.print(Text(f"{table.title} ({how_many(len(rows), len(table.rows), 'entries')})", style="bold"))
    console.print(Bands(Table(table.name, table.title, table.columns[:columns], rows, table.keys)))


def _summary(tuning: Tuning) -> str:
    parts = [_MODES[tuning.mode]] if tuning.mode else []
    if tuning.tuning_time_s is not None:
        parts.append(f"{tuning.tuning_time_s:g} s")
    if tuning.recovered:
        parts.append("recovered from a damaged file")
    s = tuning.summary
    if s is not None:
        parts.append(
            f"{s.added} added, {s.updated} updated, {s.reserved} reserved, {s.unsatisfied} unsatisfied of {s.total}"
        )
    if tuning.failed_operators:
        parts.append(plural(len(tuning.failed_operators), "operator") + " failed")
    return "; ".join(parts)


def _json(tuning: Tuning, top: int) -> str:
    return document(tuning)


def _csv(tuning: Tuning, top: int) -> str:
    return table_csv(tuning_table(tuning))


def _markdown(tuning: Tuning, top: int) -> str:
    parts = [f"# npuperf tune: {_STATUS[tuning.status][0].lower()}", _summary(tuning)]
    table = tuning_table(tuning)
    if table.rows:
        parts.append(table_markdown(table, top))
    parts[1:1] = [_saved_line(tuning.saved_ns, tuning.step_ns)] if tuning.saved_ns else []
    parts[1:1] = [*_gate_lines(tuning), *([_verdict_line(tuning.verification)] if tuning.verification else [])]
    if tuning.verification is not None:
        parts.append(table_markdown(_verified_table(tuning.verification), top))
    if tuning.savings:
        parts.append(table_markdown(_savings_table(tuning), top))
    if tuning.failed_operators:
        parts.append("Failed: " + ", ".join(f"`{name}`" for name in tuning.failed_operators))
    parts += [f"- warning: {w}" for w in tuning.warnings]
    parts += [_bank_markdown(tuning.bank, top)] if tuning.bank is not None else []
    return "\n\n".join(p for p in parts if p) + "\n"


def _bank_json(diff: BankDiff, top: int) -> str:
    return document({"schema_version": TUNING_SCHEMA, "bank": diff})


def _bank_csv(diff: BankDiff, top: int) -> str:
    return table_csv(bank_table(diff))


def _bank_markdown(diff: BankDiff, top: int) -> str:
    title = f"# Knowledge base: {diff.before} → {diff.after}"
    return _page(title, _bank_summary(diff), bank_table(diff), diff.warnings, top)


def document(value: object) -> str:
    """Render a document of ``tune`` as JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


#: Formats that need no terminal, by name.
TUNING_DOCUMENTS: Final[dict[str, Callable[[Tuning, int], str]]] = {
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}
RESULT_DOCUMENTS: Final[dict[str, Callable[[ResultDiff, int], str]]] = {
    "json": lambda diff, _: document({"schema_version": TUNING_SCHEMA, "results": diff}),
    "csv": lambda diff, _: table_csv(_results_table(diff)),
    "markdown": _results_markdown,
}
BANK_DOCUMENTS: Final[dict[str, Callable[[BankDiff, int], str]]] = {
    "json": _bank_json,
    "csv": _bank_csv,
    "markdown": _bank_markdown,
}

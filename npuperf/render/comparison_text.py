"""Text on a comparison: the verdict first, then the set-ups, the gates, and what changed; one screen of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table as RichTable

from npuperf.documents.analysis import Result
from npuperf.documents.comparison import Comparison
from npuperf.messages import Message, chain, say
from npuperf.render import View
from npuperf.render.cluster_words import job_line
from npuperf.render.comparison_tables import COMPARED, SHIFTS, interval
from npuperf.render.comparison_words import (
    DIFFERENCES,
    PARTS,
    falls,
    falls_table,
    falls_title,
    finding_line,
    parity_lines,
    step_lines,
    unchanged,
    verdict_line,
)
from npuperf.render.core_text import gate_parts
from npuperf.render.finding_text import finding_lines, footer
from npuperf.render.language import text
from npuperf.render.page import problem_lines, warnings
from npuperf.render.tables import Column, fill, filled, how_many
from npuperf.render.terminal import (
    BOUNDS,
    LINE_STYLES,
    Fitted,
    Text,
    cut,
    line,
    line_text,
    one_line,
    print_all,
    rows_of,
    section,
)
from npuperf.render.words import BOUND, outside_lines, steps_line, verdict_of

_FINDINGS, _SHIFTS, _ALIGNED, _PROBLEMS, _WARNINGS = 5, 5, 3, 2, 2
_SIGNS: Final = {"+": "red", "-": "green"}
_FEW_SHIFTS: Final = SHIFTS.only(
    "what",
    "old",
    "new",
    Column("apart", say("differs by"), get=interval),
    "verdict",
)


def comparison_screen(result: Result, comparison: Comparison, view: View) -> str:
    """Return the screen of an analysis that was held against a baseline; the analysis itself follows, shortened."""
    return print_all(_screen(result, comparison, view), view)


def full_comparison(result: Result, comparison: Comparison, view: View) -> str:
    """Return everything on the difference of two sides, which stands before a full analysis."""
    return print_all(_parts(result, comparison, view), view)


def _screen(result: Result, comparison: Comparison, view: View) -> Iterator[RenderableType]:
    yield from _parts(result, comparison, view)
    yield section(say("this run by itself (--full shows all of it)"), *_itself(result))
    yield from finding_lines(result, view, _PROBLEMS, brief=True)
    yield from footer(result, view, 0)


def _parts(result: Result, comparison: Comparison, view: View) -> Iterator[RenderableType]:
    tool = f"{result.tool.name} {result.tool.version}"
    against = say("{new} against {old}", new=comparison.new, old=comparison.old)
    yield Text.assemble((tool, "bold"), f"  {text(against)}")
    yield line_text(verdict_line(comparison))
    yield _facts(comparison, 1 if result.digest is None else result.digest.devices, view)
    minds = comparison.warnings[: rows_of(view, _WARNINGS)]
    yield from (*map(line_text, warnings(minds)), *cut(len(minds), len(comparison.warnings), _all))
    yield from map(line_text, problem_lines(result))
    yield from gate_parts(result, view)
    yield from _waterfall(comparison, view)
    yield from _findings(comparison, view)
    yield from _shifts(result, comparison, view)
    yield from _steps(comparison, view)


def _facts(comparison: Comparison, devices: int, view: View) -> RenderableType:
    """Show how long the steps are, and what differs between the set-ups."""
    facts = RichTable.grid(padding=(0, 2, 0, 0))
    for said in step_lines(comparison, devices):
        facts.add_row(line(said.label or ""), line(said.content))
    for number, said in enumerate(parity_lines(comparison, None if view.full else DIFFERENCES)):
        name = "" if number else say("set-up")
        facts.add_row(line(name), line(said.content, LINE_STYLES.get(said.style, said.style)))
    return facts


def _waterfall(comparison: Comparison, view: View) -> Iterator[RenderableType]:
    rows = falls(comparison, rows_of(view, PARTS))
    if rows:
        found = filled(falls_table(view.width), rows)
        yield section(
            falls_title(comparison), Fitted(found, one_line=not view.full, styles={len(rows) - 1: "bold"}, signs=_SIGNS)
        )
    elif comparison.waterfall:
        yield line(unchanged(comparison), "dim")


def _findings(comparison: Comparison, view: View) -> Iterator[RenderableType]:
    changes = [f for f in comparison.findings if f.change != "same"]
    shown = changes[: rows_of(view, _FINDINGS)]
    if not shown:
        return
    lines = RichTable.grid(padding=(0, 2, 0, 0))
    for said in map(finding_line, shown):
        what = line(said.content)
        lines.add_row(
            line(said.label or "", LINE_STYLES.get(said.style, said.style)), what if view.full else one_line(what)
        )
    title = say("findings that are new, gone or changed ({n})", n=how_many(len(shown), len(changes)))
    yield section(title, lines)


def _shifts(result: Result, comparison: Comparison, view: View) -> Iterator[RenderableType]:
    """Show what was measured on both sides: what changed, unless all of it is wanted."""
    if view.full:
        for table in (SHIFTS, COMPARED):
            found = fill(table, result, view.top)
            if found.rows:
                yield section(found.title, Fitted(found))
        return
    judged = sorted(comparison.shifts, key=lambda shift: shift.verdict == "cannot_tell")
    changed = [(shift,) for shift in judged if shift.verdict != "same"]
    found = filled(_FEW_SHIFTS.titled(say("what else changed")), changed, rows_of(view, _SHIFTS))
    if found.rows:
        yield section(found.title, Fitted(found, one_line=True))


def _steps(comparison: Comparison, view: View) -> Iterator[RenderableType]:
    shown = comparison.aligned[: rows_of(view, _ALIGNED)]
    if shown:
        yield section(say("steps and phases"), *map(line, shown), *cut(len(shown), len(comparison.aligned), _all))


def _all(few: str) -> Message:
    return say("{shown} shown; --full shows all", shown=few)


def _itself(result: Result) -> Iterator[Text]:
    """Say what limits this run, whatever the other one was like."""
    job = result.cluster
    yield line(chain(job_line(job), *outside_lines(result.devices), by=" · ") if job else steps_line(result))
    bound = result.verdict.bound
    yield Text.assemble((text(BOUND[bound]), f"bold {BOUNDS[bound]}"), f"  {text(verdict_of(result))}")

"""The page of an analysis that a pipeline asked for: the verdict, what changed, the gates. Sixty lines at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from npuperf.documents.analysis import Result
from npuperf.documents.comparison import Comparison
from npuperf.messages import say, say_n
from npuperf.render import View
from npuperf.render.analysis_page import shares_line
from npuperf.render.analysis_tables import GATES
from npuperf.render.comparison_words import (
    FALLS,
    PARTS,
    falls,
    falls_title,
    finding_line,
    parity_lines,
    step_lines,
    verdict_line,
)
from npuperf.render.page import Line, Page, Section, gate_line, problem_lines, warnings
from npuperf.render.tables import filled
from npuperf.render.words import BOUND, steps_line, verdict_of

#: Of a list, so much at most: the whole is to be read at a glance.
_GATES, _FEW, _WARNINGS = 8, 3, 1
_KERNELS: Final = 10
_OVER_LIMIT: Final = GATES.only("expr", "stream", "type", "core", "count", "cube", "vector", "likely").titled(
    say("kernels above a limit")
)
#: Gates that stop the pipeline first.
_ORDER: Final = {"fail": 0, "cannot_tell": 1, "pass": 2}


def summary(result: Result, view: View) -> Page:
    """Return what a pipeline asked for: how the run compares, and what its gates say."""
    itself = [Line(steps_line(result)), Line(verdict_of(result), "bold", BOUND[result.verdict.bound])]
    shares = shares_line(result)
    itself += [Line(shares)] if shares else []
    comparison = result.comparison
    name = PurePath(result.input.path).name or result.input.path
    title = say("{title}", title=f"{name} ({result.input.kind})")
    gates = [Section(say("gates"), list(_gates(result)))] if result.gates else []
    alone = Section(say("this run by itself"), itself)
    if comparison is None:
        over = filled(_OVER_LIMIT, [(gate, kernel) for gate in result.gates for kernel in gate.over], _KERNELS)
        return Page(title, problem_lines(result), [over], [*gates, alone])
    table = FALLS.only("part", "what", "delta_ns", "count_ns", "speed_ns", "old_ns", "new_ns").titled(
        falls_title(comparison)
    )
    rows = falls(comparison, PARTS if view.top is None else view.top)
    return Page(
        say("{new} against {old}", new=comparison.new, old=comparison.old),
        [*_verdict(result, comparison), *problem_lines(result)],
        [filled(table, rows)] if rows else [],
        [*gates, *_changes(comparison, _FEW), alone],
        warnings(comparison.warnings[:_WARNINGS]),
    )


def with_comparison(result: Result, page: Page, view: View) -> Page:
    """Return the whole page of an analysis, with all that a comparison tells before it."""
    comparison = result.comparison
    if comparison is None:
        return page
    table = FALLS.only(*_all_but_bar()).titled(falls_title(comparison))
    rows = falls(comparison, view.top)
    return replace(
        page,
        lines=[*_verdict(result, comparison), *page.lines],
        tables=[*([filled(table, rows)] if rows else []), *page.tables],
        sections=[*_changes(comparison, None), *page.sections],
        notes=[*warnings(comparison.warnings), *page.notes],
    )


def _all_but_bar() -> Iterator[str]:
    return (column.key for column in FALLS.columns if column.unit != "bar")


def _verdict(result: Result, comparison: Comparison) -> Iterator[Line]:
    yield verdict_line(comparison)
    yield from step_lines(comparison, 1 if result.digest is None else result.digest.devices)


def _gates(result: Result) -> Iterator[Line]:
    gates = sorted(result.gates, key=lambda gate: (_ORDER[gate.status], gate.level != "fail"))
    yield from map(gate_line, gates[:_GATES])
    if len(gates) > _GATES:
        yield _more(len(gates) - _GATES)


def _changes(comparison: Comparison, most: int | None) -> Iterator[Section]:
    yield Section(say("set-up"), list(parity_lines(comparison, most)))
    changes = [change for change in comparison.findings if change.change != "same"]
    lines = [finding_line(change) for change in changes[:most]]
    if len(lines) < len(changes):
        lines.append(_more(len(changes) - len(lines)))
    if lines:
        yield Section(say("findings that are new, gone or changed"), lines)
    if most is None and comparison.aligned:
        yield Section(say("steps and phases"), list(map(Line, comparison.aligned)))


def _more(n: int) -> Line:
    return Line(say_n("{n} more: --full shows it", "{n} more: --full shows them", n), "dim")

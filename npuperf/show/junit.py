"""JUnit's XML, which dashboards of pipelines read: a test case for every gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from npuperf.base.escape import for_xml
from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View
from npuperf.show.language import lines_of, speaking, text
from npuperf.show.page import gate_line

_Element = Literal["failure", "error", "system-out"]
_ELEMENTS: Final[dict[str, _Element]] = {"pass": "system-out", "fail": "failure", "cannot_tell": "error"}


class _Case(Struct, frozen=True):
    """One test case: what it says, and in which element."""

    name: str
    element: _Element
    lines: list[str]


def render_junit(document: Document, view: View) -> str:
    """Return one suite with a case for what went wrong, for the comparison, and for each gate.

    A gate that cannot be judged is an error, one that only warns passes and says so in its output. The comparison's
    verdict alone fails nothing: gates do. It is English in any language: who reads it knows cases by their names.
    """
    with speaking("en"):
        cases = _distinct(list(_cases(document)))
    found = Counter(case.element for case in cases)
    counts = f'tests="{len(cases)}" failures="{found["failure"]}" errors="{found["error"]}" skipped="0"'
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts}>",
            f'<testsuite name="npuperf" {counts}>',
            *map(_xml, cases),
            "</testsuite>",
            "</testsuites>\n",
        )
    )


def _cases(document: Document) -> Iterator[_Case]:
    problem = document.problem
    if problem is not None:
        yield _Case(text(say("problem")), "error", lines_of(problem.message))
    comparison = document.comparison if isinstance(document, Result) else None
    if comparison is not None:
        from npuperf.show.comparison_text import step_lines, verdict_line  # of no use without a comparison

        told = (verdict_line(comparison), *step_lines(comparison))
        lines = [line for of in told for line in lines_of(say("{label}: {text}", label=of.label, text=of.content))]
        yield _Case(text(say("comparison with {baseline}", baseline=comparison.old)), "system-out", lines)
    for gate in document.gates:
        element = _ELEMENTS[gate.status] if gate.level == "fail" else "system-out"
        yield _Case(gate.expr, element, lines_of(gate_line(gate).content))
    if problem is None and comparison is None and not document.gates:  # an empty suite counts as none
        yield _Case(text(say("no gates")), "system-out", lines_of(say("nothing was asked of this run")))


def _distinct(cases: list[_Case]) -> list[_Case]:
    """Return cases under different names: dashboards take those of one name for one."""
    seen: Counter[str] = Counter()
    distinct = []
    for case in cases:
        seen[case.name] += 1
        name = case.name if seen[case.name] == 1 else f"{case.name} ({seen[case.name]})"
        distinct.append(_Case(name, case.element, case.lines))
    return distinct


def _xml(case: _Case) -> str:
    said = "\n".join(map(for_xml, case.lines))
    message = "" if case.element == "system-out" else f' message="{for_xml(case.lines[0])}"'
    return (
        f'<testcase classname="npuperf" name="{for_xml(case.name)}">'
        f"<{case.element}{message}>{said}</{case.element}></testcase>"
    )

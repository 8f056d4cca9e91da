"""A document as JUnit's XML, which dashboards of pipelines read: a test case for every gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from npuperf.base.escape import for_xml
from npuperf.base.messages import Parameter, say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View
from npuperf.show.language import lines_of, speaking, text
from npuperf.show.sheet import gate_line

_ELEMENTS: Final = {"pass": "system-out", "fail": "failure", "cannot_tell": "error"}


def render_junit(document: Document, view: View) -> str:
    """Return one suite with a case for what went wrong, for the comparison, and for each gate.

    A gate that cannot be judged is an error, one that only warns passes and says so in its output. The comparison's
    verdict alone fails nothing: gates do. It is English in any language: who reads it knows cases by their names.
    """
    cases: list[str] = []
    names: Counter[str] = Counter()
    elements: Counter[str] = Counter()

    def add(name: str, element: str, said: Iterable[Parameter]) -> None:
        names[name] += 1  # under different names: dashboards take those of one name for one
        elements[element] += 1
        again = "" if names[name] == 1 else f" ({names[name]})"
        first, *more = [for_xml(line) for of in said for line in lines_of(of)]
        message = "" if element == "system-out" else f' message="{first}"'
        cases.append(
            f'<testcase classname="npuperf" name="{for_xml(f"{name}{again}")}">'
            f"<{element}{message}>" + "\n".join((first, *more)) + f"</{element}></testcase>"
        )

    with speaking("en"):
        problem = document.problem
        if problem is not None:
            add(text(say("problem")), "error", [problem.message])
        comparison = document.comparison if isinstance(document, Result) else None
        if comparison is not None:
            from npuperf.show.comparison_text import step_lines, verdict_line  # of no use without a comparison

            told = (verdict_line(comparison), *step_lines(comparison))
            lines = [say("{label}: {text}", label=of.label, text=of.content) for of in told]
            add(text(say("comparison with {baseline}", baseline=comparison.old)), "system-out", lines)
        for gate in document.gates:
            element = _ELEMENTS[gate.status] if gate.level == "fail" else "system-out"
            add(gate.expr, element, [gate_line(gate).content])
        if problem is None and comparison is None and not document.gates:  # an empty suite counts as none
            add(text(say("no gates")), "system-out", [say("nothing was asked of this run")])
    # No schema of JUnit's has ``skipped`` on all suites, nor asks for it on one.
    counts = f'tests="{len(cases)}" failures="{elements["failure"]}" errors="{elements["error"]}"'
    head = ('<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>", f'<testsuite name="npuperf" {counts}>')
    return "\n".join((*head, *cases, "</testsuite>", "</testsuites>\n"))

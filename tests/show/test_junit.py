"""JUnit's XML: whole, whatever names hold, and failing where the pipeline does."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from comparisons import GATES, UNTOLD, WORSE
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sample_documents import TUNING, result

from languages import compile_language
from npuperf.base.errors import ExitCode
from npuperf.base.escape import for_xml, visible
from npuperf.base.messages import say
from npuperf.model.document import Document, Gate, Problem
from npuperf.show import language
from npuperf.show.formats import View, render


def suite(document: Document) -> ElementTree.Element:
    (found,) = ElementTree.fromstring(render(document, "junit").encode())
    return found


def outcomes(document: Document) -> dict[str, tuple[str, str]]:
    """What each case says, and in which element."""
    found = {}
    for case in suite(document):
        (element,) = case
        found[case.attrib["name"]] = (element.tag, element.text or "")
    return found


def test_a_case_for_the_comparison_and_each_gate() -> None:
    found = outcomes(replace(result(), comparison=WORSE, gates=GATES))
    assert {name: tag for name, (tag, _) in found.items()} == {
        "comparison with runs/monday": "system-out",
        "step_time>+5%,200us for 2 of 3": "failure",
        "warn: count.launches>+0": "system-out",  # it only warns
        "occupancy.cube<50%": "error",
        "host_wait>20%": "system-out",
    }
    said = found["step_time>+5%,200us for 2 of 3"][1]
    assert "12.94 ms, baseline 12.31 ms, limit 12.93 ms; it differs by +440.00 to +710.00 us" in said
    assert "the condition held in 2 of the last 3 runs" in said
    assert said.count("+380.41 us") == said.count("+140.00 us") == said.count("+105.00 us") == 1
    assert found["comparison with runs/monday"][1].startswith("WORSE: the step is")
    assert "gate WARN" in found["warn: count.launches>+0"][1]


#: Attributes of an element that both schemas in use allow, and those that one of them asks for: junit-10.xsd of
#: Jenkins' xUnit plugin, and junit.xsd of those who read what Jenkins itself does.
ATTRIBUTES = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set[str]()),
    "testsuite": ({"name", "tests", "failures", "errors", "time", "timestamp", "hostname", "id", "package"},
                  {"name", "tests", "failures", "errors"}),
    "testcase": ({"name", "time", "classname"}, {"name"}),
    "failure": ({"type", "message"}, set[str]()),
    "error": ({"type", "message"}, set[str]()),
    "system-out": (set[str](), set[str]()),
}  # fmt: skip


@pytest.mark.parametrize("document", [replace(result(), comparison=WORSE, gates=GATES), result()])
def test_nothing_is_there_that_a_schema_forbids(document: Document) -> None:
    root = ElementTree.fromstring(render(document, "junit").encode())
    for element in root.iter():
        allowed, asked = ATTRIBUTES[element.tag]
        assert asked <= element.attrib.keys() <= allowed, element.tag


@pytest.mark.parametrize(
    "document",
    [
        replace(result(), gates=GATES, comparison=UNTOLD),
        replace(result(), gates=GATES[2:]),
        replace(result(), gates=GATES[3:]),
        replace(result(), gates=(GATES[1],)),
        TUNING,
        result(),
        replace(TUNING, problem=Problem(what=say("aoe failed"), exit_code=ExitCode.CHILD_FAILED), gates=()),
    ],
)
def test_it_fails_where_the_exit_status_does(document: Document) -> None:
    found = suite(document)
    counts = {name: int(found.attrib[name]) for name in ("tests", "failures", "errors")}
    tags = [case[0].tag for case in found]
    assert counts == {"tests": len(tags), "failures": tags.count("failure"), "errors": tags.count("error")}
    assert counts["tests"] >= 1  # an empty suite is taken for one that never ran
    assert bool(counts["failures"] + counts["errors"]) == bool(document.exit_code)
    assert bool(counts["failures"]) == (document.exit_code == ExitCode.GATE_FAILED)


def test_gates_of_one_spelling_stay_apart() -> None:
    gate = Gate(expr="lock", status="fail", value=1.0, limit=0.0)
    assert list(outcomes(replace(result(), gates=(gate, gate, gate)))) == ["lock", "lock (2)", "lock (3)"]


@given(st.text(), st.text())
def test_any_text_is_text(expr: str, reason: str) -> None:
    gate = Gate(expr=expr, status="fail", value=None, limit=None, reason=say("{reason}", reason=reason))
    ((name, (tag, said)),) = outcomes(replace(TUNING, gates=(gate,))).items()
    assert tag == "failure"
    if max(len(expr), len(reason)) < 900:
        spelled = [visible(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff") for text in (expr, reason)]
        assert name == spelled[0]  # of attributes, too: no parser takes a blank or line's end for another
        assert said == f"gate FAIL  {spelled[0]}: {spelled[1]}"


def test_every_character_has_a_spelling() -> None:
    every = "".join(map(chr, range(0x110000)))
    for start in range(0, len(every), 500):
        ElementTree.fromstring(f'<a b="{for_xml(every[start : start + 500])}"/>')


def test_it_is_english_in_any_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    (tmp_path / "xx.po").write_text(f'{head}msgid "no gates"\nmsgstr "keine <Schranken>"\n', "utf-8")
    compile_language(tmp_path / "xx.po")
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    (case,) = ElementTree.fromstring(render(result(), "junit", View(language="xx")))[0]
    assert case.attrib["name"] == "no gates"  # under which dashboards know it

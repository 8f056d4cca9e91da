"""Whole screens, as recorded under tests/cases (``--update`` records them anew), and what holds for all of them."""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from sample_documents import result

from npuperf.base.messages import say
from npuperf.model.document import Document, Gate
from npuperf.model.result import Result
from npuperf.show.formats import View, render

CASES = Path(__file__).resolve().parents[1] / "cases"
SCREENS = {
    "transformer": View(width=80),
    "transformer-full": View(width=120, full=True),
    "micro_batch": View(width=80),
    "micro_batch-full": View(width=100, full=True),
    "job": View(width=80),
    "job-full": View(width=100, full=True),
    "large_job": View(width=80),
    "compared": View(width=80),
    "tuning": View(width=100),
    "failed_tuning": View(width=80),
    "bank_changes": View(width=80),
    "result_changes": View(width=80),
    "tune_plan": View(width=80),
    "merged": View(width=80),
    "rolled_back": View(width=80),
    "recorded": View(width=80),
    "recording_plan": View(width=80),
}
PAGES = ("transformer", "job", "compared", "tuning", "bank_changes", "recorded")


def compare(name: str, said: str, request: pytest.FixtureRequest) -> None:
    case = CASES / name
    if request.config.getoption("--update"):
        case.parent.mkdir(parents=True, exist_ok=True)
        case.write_text(said, "utf-8")
    recorded = case.read_text("utf-8")
    assert said == recorded, "\n".join(difflib.unified_diff(recorded.splitlines(), said.splitlines(), lineterm=""))


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str, everything: dict[str, Document], request: pytest.FixtureRequest) -> None:
    compare(f"screens/{name}.txt", render(everything[name.removesuffix("-full")], "text", SCREENS[name]), request)


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, everything: dict[str, Document], request: pytest.FixtureRequest) -> None:
    compare(f"pages/{name}.md", render(everything[name], "markdown"), request)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("full", [False, True])
def test_text_fits_the_screen_but_for_code(width: int, full: bool, everything: dict[str, Document]) -> None:
    for name in ("transformer", "micro_batch", "job", "large_job", "tuning"):
        document = everything[name]
        code = set(code_of(document))
        shown = render(document, "text", View(width=width, full=full)).splitlines()
        assert max(len(line) for line in shown if line not in code) <= width, name


def code_of(document: Document) -> list[str]:
    devices = document.devices if isinstance(document, Result) else []
    found = [scope for device in devices for scope in (*device.core_splits, *device.super_kernels)]
    return [line.rstrip() for s in found if s.code for line in s.code.splitlines()]


def test_code_is_never_wrapped(everything: dict[str, Document]) -> None:
    shown = render(everything["micro_batch"], "text", View(width=40, full=True)).splitlines()
    code = code_of(everything["micro_batch"])
    assert code and set(code) <= {line.rstrip() for line in shown}
    for device in everything["micro_batch"].devices:  # type: ignore[attr-defined]
        for scope in (*device.core_splits, *device.super_kernels):
            ast.parse(scope.code)


def test_one_screen_begins_with_the_steps_and_the_verdict() -> None:
    lines = render(result(), "text", View(width=80)).splitlines()
    assert lines[1] == "3 steps · 2.31 ms/step (2.31–2.38)  ███  heights from 0"
    assert lines[2].startswith("HOST-BOUND  measured: ")
    assert len(lines) <= 84


def test_a_larger_lever_of_another_kind_stands_beside_the_verdict() -> None:
    finding = next(f for f in result().findings if f.status == "problem")
    title = say("the host loads data for {part} of the step", part="38 %")
    other = msgspec.structs.replace(finding, title=title, relieves="communication", gain_pct=(0.0, 90.0))
    said = "largest lever: the host loads data for 38 % of the step"
    for form in ("text", "markdown"):
        both = render(msgspec.structs.replace(result(), findings=[other]), form, View(width=1000))
        (verdict,) = [line for line in both.splitlines() if "HOST-BOUND" in line and "measured" in line]
        assert said in verdict
    same = msgspec.structs.replace(other, relieves=result().verdict.bound)
    assert said not in render(msgspec.structs.replace(result(), findings=[same]), "text", View(width=1000))


def test_colour_only_where_it_is_wanted() -> None:
    assert "\x1b" not in render(result(), "text", View(full=True))
    assert "\x1b[" in render(result(), "text", View(colour=True))


def test_wide_screens_are_used() -> None:
    longest = [max(map(len, render(result(), "text", View(width=w)).splitlines())) for w in (80, 160)]
    assert longest[0] <= 80 and longest[1] > 140


def test_people_see_the_numbers_of_the_document() -> None:
    for form in ("text", "markdown"):
        said = render(result(), form, View(width=200, full=True))
        judged = result().devices[0].window  # of which nothing that was recorded is left out here
        for name in judged.__struct_fields__:
            if ns := getattr(judged, name):
                assert f"{ns / 1e6:.3f}" in said
        for o in result().operators:
            assert re.search(rf"{o.type}\W.*\W{o.count}\W.*{o.total_ns / 1e6:.3f}.*{100 * o.share:.1f}", said)


def test_notes_beside_a_table_are_lines_that_nobody_wraps(everything: dict[str, Document]) -> None:
    said = render(everything["tuning"], "notes", View(width=20)).splitlines()
    assert said[0].startswith("SUCCESSFUL  operator tuning; 12.5 s; recovered from a damaged file; 1 added")
    assert "gate PASS  regression>3%: 0" in said
    assert "warning: 1.50 ms are 25.0 % of it" in said
    assert render(everything["transformer"], "notes") == ""


@pytest.mark.parametrize(("table", "kept"), [("operators", "total"), ("roofline", "max"), ("gates", "idle>1%")])
def test_narrow_tables_have_what_they_are_about(table: str, kept: str) -> None:
    gate = Gate(expr="idle>1%", status="pass", value=0.5, limit=1.0, reason=None)
    shown = render(replace(result(), gates=(gate,)), "text", View(width=60, table=table))
    assert kept in shown.split()
    assert table != "gates" or "level" not in shown  # which is told where one has another than the usual


def test_a_table_without_rows_says_why() -> None:
    shown = [render(one, "text", View(table="memory", width=120)) for one in (result(), replace(result(), devices=[]))]
    assert "no rows, as no memory is recorded (npuperf profile --memory)" in shown[0]
    assert "no rows, as no device task is recorded in this data" in shown[1]

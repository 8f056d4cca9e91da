"""docs/gates.md is complete: every metric, aggregate, kind of count and preset, each in words that can be typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from npuperf.against.gates import Aggregate, form_of, parse_gate, spelled
from npuperf.against.locks import read_lock
from npuperf.against.metrics import register_all
from npuperf.base.errors import ExitCode
from npuperf.model.document import METRICS
from npuperf.model.parts import CountKind
from npuperf.model.result import Result
from npuperf.model.tuning import Tuning
from npuperf.tune import request

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "gates.md").read_text("utf-8")
DOCUMENTS = {"analyze": Result, "tune": Tuning}
UNITS = {"percent": "%", "ns": "time", "count": "count", "bytes": "bytes", "mhz": "MHz"}

assert request
register_all()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    return [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("| `")]


METRIC_ROWS = [[cell.strip("| ") for cell in row] for row in rows(section("Metrics"))]


def test_every_metric_is_listed_as_it_is_written_with_its_unit() -> None:
    listed = {(form.strip("`"), verb, unit) for form, verb, unit, *_ in METRIC_ROWS}
    verbs = {document.__name__: verb for verb, document in DOCUMENTS.items()}
    assert listed == {(form_of(m), verbs[m.document.__name__], UNITS[m.unit]) for m in METRICS.values()}


@pytest.mark.parametrize("row", METRIC_ROWS, ids=lambda row: row[0])
def test_every_example_is_a_gate_on_its_metric(row: list[str]) -> None:
    form, verb, _, meaning, example = row
    condition = parse_gate(example.strip("`"), DOCUMENTS[verb])
    assert form_of(condition.metric) == form.strip("`")
    assert len(meaning) > 10


def test_gates_in_sentences_can_be_read() -> None:
    shown = [gate for line in PAGE.splitlines() if line.startswith("    npuperf")
             for gate in re.findall(r'--fail-on "([^"]+)"', line)]  # fmt: skip
    assert len(shown) >= 4
    for gate in shown:
        condition = parse_gate(gate, Result)
        assert spelled(parse_gate(spelled(condition), Result)) == spelled(condition)


def test_all_aggregates_and_kinds_of_counts_are_listed() -> None:
    (aggregates,) = [row[1] for row in re.findall(r"^\| (AGG[^|]*) \| ([^|]*) \|", PAGE, re.MULTILINE)]
    assert re.findall(r"`(\w+)`", aggregates) == list(get_args(Aggregate))
    assert [row[0].strip("|` ") for row in rows(section("Locks"))] == list(get_args(CountKind))


def test_the_lock_that_is_shown_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(npuperf_lock.*?)```", PAGE, re.DOTALL)
    (tmp_path / "perf.lock").write_text(shown, "utf-8")
    locked = read_lock(tmp_path / "perf.lock")
    assert locked.counts["launch"]["Add [4096,1024 x2] FLOAT16"].count == ((12, 12), (13, 13))


def test_the_file_that_is_shown_has_gates() -> None:
    (shown,) = re.findall(r"```yaml\n(gates:.*?)```", PAGE, re.DOTALL)
    for gate in yaml.safe_load(shown)["gates"]:
        parse_gate(gate, Result)


def test_statuses_are_those_of_gates() -> None:
    listed = {int(n) for n in re.findall(r"^\| (\d+) \|", section("Exit status"), re.MULTILINE)}
    assert listed == {ExitCode.DONE, ExitCode.GATE_FAILED, ExitCode.USAGE, ExitCode.INPUT, ExitCode.GATE_UNKNOWN}

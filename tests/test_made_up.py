"""What can be added in one file, is: a made-up format, table, rule, language and gate metric, in all verbs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, run_cli

from languages import compile_language
from npuperf import advise
from npuperf.advise.rule import Detected, Rule
from npuperf.base.messages import say
from npuperf.device.view import DeviceView
from npuperf.model import document
from npuperf.model.document import Document, Measured, Metric
from npuperf.model.result import Result
from npuperf.model.tuning import Tuning
from npuperf.show import analysis_tables, language
from npuperf.show import formats as formats
from npuperf.show.formats import View
from npuperf.show.tables import Column, Table, each
from npuperf.tune import request as tune_request

SAMPLE = str(ROOT / "samples" / "transformer_ascend_pt")
RESULT = "aoe_result_opat_20260101120000000_pid7.json"


@pytest.fixture
def additions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(formats, "_KNOWN", dict(formats._KNOWN))
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))
    assert tune_request  # what it registers when it is loaded would be forgotten with the additions
    monkeypatch.setattr(document, "METRICS", dict(document.METRICS))
    monkeypatch.setattr(advise, "RULES", list(advise.RULES))
    monkeypatch.setattr(language, "LOCALE", tmp_path / "locale")
    monkeypatch.setattr("npuperf.cli.command_line.FORMATS", formats.FORMATS)
    monkeypatch.setattr(analysis_tables, "TABLES", (*analysis_tables.TABLES, made_up_table()))
    add_format()
    add_rule()
    add_metrics()
    add_language(tmp_path / "locale")
    yield
    language._read.cache_clear()


def add_format() -> None:
    def kinds(document: Document, view: View) -> str:
        return f"<{type(document).__name__} exit={document.exit_code}>\n"

    formats.register(Document, "tag", kinds)


def made_up_table() -> Table:
    """Of each step how long it takes and the slice of it that is compute; a row leads to the step's place."""
    return Table("made_up", say("steps, made up"), each("devices", "steps"), (
        Column("step", say("number"), "id", weight=0),
        Column("took_ns", say("took"), "ms", "partition.span_ns"),
        Column("busy", say("busy"), "share", lambda _, s: s.partition.compute_ns / s.partition.span_ns, whole=1.0),
    ), topic="exporter", go=lambda at, device, step: at.stretch(device, step.start_ns, 1))  # fmt: skip


def add_rule() -> None:
    def steps(view: DeviceView) -> Detected:
        title = say("rank {rank} has {steps} steps", rank=view.profile.rank, steps=len(view.steps))
        return Detected(title=title, refute=say("it has none"), next=say("count again"), evidence={})

    rule = Rule("made_up", say("counting"), say("fingers"), (), steps, any_device=True)
    advise.register(rule)


def add_metrics() -> None:
    document.register(
        Metric("made_up.steps", "count", Result, lambda result, _: Measured(len(result.devices[0].steps))),
        Metric("made_up.entries", "count", Tuning, lambda tuning, _: Measured(len(tuning.entries))),
    )


def add_language(folder: Path) -> None:
    folder.mkdir()
    (folder / "xx.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
        'msgid "rank {rank} has {steps} steps"\nmsgstr "{steps} Schritte hat Rang {rank}"\n\n'
        'msgid "interrupted"\nmsgstr "unterbrochen"\n\n'
        'msgid "{path}: no such file or folder"\nmsgstr "{path}: fehlt"\n',
        "utf-8",
    )
    compile_language(folder / "xx.po")


@pytest.fixture
def tuned(tmp_path: Path) -> str:
    """A result of AOE with one tuned operator."""
    tuning = {"opat_tuning_result": "tuning successful", "repo_modified_operators": {"add_repo_operators": []}}
    (tmp_path / RESULT).write_text(json.dumps({"report_1_1": [{"basic": {"tuning_name": "t"}}, {"OPAT": tuning}]}))
    return str(tmp_path / RESULT)


def test_a_format_serves_all_verbs(additions: None, tuned: str, tmp_path: Path) -> None:
    assert run_cli(["analyze", SAMPLE, "--format", "tag"]).stdout == "<Result exit=0>\n"
    assert run_cli(["tune", "--from", tuned, "--format", "tag"]).stdout == "<Tuning exit=0>\n"
    from npuperf.model.recorded import Recorded

    assert formats.render(Recorded(folder="r"), "tag") == "<Recorded exit=0>\n"


def test_a_table_is_everywhere(additions: None, tmp_path: Path) -> None:
    steps = json.loads(run_cli(["analyze", SAMPLE, "--format", "json"]).stdout)["devices"][0]["steps"]
    times = [(step["step"], step["partition"]["span_ns"], step["partition"]["compute_ns"]) for step in steps]
    assert len(times) == 3
    assert "made_up" in run_cli(["analyze", "--table", "help"]).stdout
    csv = run_cli(["analyze", SAMPLE, "--table", "made_up", "--format", "csv"]).stdout.splitlines()
    assert csv == ["step,took_ns,busy", *(f"{step},{took},{busy / took}" for step, took, busy in times)]
    shown = [(str(step), f"{took / 1e6:.3f}", f"{100 * busy / took:.1f}") for step, took, busy in times]
    full = run_cli(["analyze", SAMPLE, "--full"]).stdout
    alone = run_cli(["analyze", SAMPLE, "--table", "made_up"]).stdout
    for screen in (full[full.index("steps, made up (3)") :], alone):
        lines = [line.split() for line in screen.splitlines()]
        assert [tuple(line) for line in lines if tuple(line) in shown] == shown
    markdown = run_cli(["analyze", SAMPLE, "--format", "markdown"]).stdout
    rows = markdown[markdown.index("## steps, made up (3)") :].splitlines()[4:7]
    assert [tuple(row.split(" | ")[:3]) for row in rows] == [(f"| {a}", b, c) for a, b, c in shown]
    assert all("█" in row for row in rows)
    page = tmp_path / "page.html"
    run_cli(["analyze", SAMPLE, "--html", str(page)])
    (table,) = (part for part in page.read_text("utf-8").split('<div class="grid"') if ">steps, made up (3)<" in part)
    assert [line.count("data-go=") for line in table.splitlines() if line.startswith("<tr") and "<td" in line] == [
        1
    ] * 3
    assert all(f">{took}" in table for _, took, _ in shown)


def test_a_rule_is_asked_and_named(additions: None, tmp_path: Path) -> None:
    found = json.loads(run_cli(["analyze", SAMPLE, "--format", "json"]).stdout)["findings"]
    (made,) = [f for f in found if f["rule"] == "made_up"]
    assert (made["status"], made["title"]) == ("problem", "rank 0 has 3 steps")
    assert made["messages"]["title"] == {"id": "rank {rank} has {steps} steps", "parameters": {"rank": 0, "steps": 3}}
    recipe = tmp_path / "ours.yaml"
    recipe.write_text("rules: [made_up]\n")
    for verb in ("analyze", "tune", "profile"):
        done = run_cli([verb, "--recipe", str(recipe), *([SAMPLE] if verb == "analyze" else [])])
        assert "unknown key" not in done.stderr
    assert "rank 0 has 3 steps" in run_cli(["analyze", SAMPLE, "--recipe", str(recipe)]).stdout


def test_a_metric_is_a_gate_of_its_verb(additions: None, tuned: str) -> None:
    assert run_cli(["analyze", SAMPLE, "--fail-on", "made_up.steps>2"]).returncode == 1
    assert run_cli(["analyze", SAMPLE, "--fail-on", "made_up.steps>3"]).returncode == 0
    assert run_cli(["tune", "--from", tuned, "--fail-on", "made_up.entries<1"]).returncode == 1
    other = run_cli(["analyze", SAMPLE, "--fail-on", "made_up.entries>0"])
    assert other.returncode == 2 and "made_up.steps" in other.stderr


def test_a_language_is_one_file(additions: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPUPERF_LANGUAGE", "xx")
    assert "3 Schritte hat Rang 0" in run_cli(["analyze", SAMPLE, "--full"]).stdout
    for words in (["analyze", "/no/such"], ["profile", "--export", "/no/such"], ["tune", "--from", "/no/such"]):
        assert run_cli(words).returncode in (2, 3)
    assert "/no/such: fehlt" in run_cli(["analyze", "/no/such"]).stderr
    document = run_cli(["analyze", SAMPLE, "--format", "json"]).stdout
    assert "rank 0 has 3 steps" in document and "Schritte" not in document

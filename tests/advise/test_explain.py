"""All about one rule: what it judges by, and what it found in a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, run_cli

from npuperf.advise import RULES, explain, load_shipped, rule_names
from npuperf.advise.rule import Rule
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.thresholds import Thresholds
from npuperf.show.formats import View, render

SAMPLE = "samples/transformer_ascend_pt"
#: What is judged alike for all rules.
FOR_ALL = {"severity_high", "severity_medium", "enough_data"}
#: Thresholds as the functions of these rules have them, read by a person.
READ = {
    "small_kernels": {"cause_share", "small_kernel_ns", "small_kernel_share", "idle_share"},
    "uneven_host": {"cause_share", "uneven_share", "idle_share"},
    "memory_headroom": {"headroom_share"},
    "short_peak": {"short_peak_share", "short_peak_drop", "memory_share"},
    "casts": {"layout_share"},
    "uneven_clocks": {"clock_ratio", "lost_share"},
    "recording_cost": {"recording_cost_share"},
    "odd_packets": {"packet_alignment_bytes", "lost_share"},
}


def rule(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


@pytest.mark.parametrize("name", READ)
def test_limits_are_those_that_its_functions_read(name: str) -> None:
    assert {*rule(name).limits} - FOR_ALL == READ[name]


def test_no_threshold_of_the_rules_is_nobody_s() -> None:
    """Every one that stands in the text of a rule's file is among those of some rule."""
    known = set(Thresholds.__struct_fields__)
    text = "".join(path.read_text() for path in (ROOT / "npuperf" / "advise").glob("*.py"))
    named = {*re.findall(r"thresholds\.(\w+)", text)} & known
    assert len(named) > 20
    assert not named - {limit for one in RULES for limit in one.limits}


def test_what_a_rule_looks_for_is_the_first_thought_of_who_wrote_it() -> None:
    calls = (
        "Sum what launching calls take beyond twice the median of calls of their name, while the window was launched"
    )
    assert rule("uneven_host").asks == calls
    more = "Name the kinds and sizes of which all ranks are there, and the links are used for little of the time"
    assert rule("slow_collectives").asks == more  # of which a second paragraph follows
    asked = {one.name: one.asks for one in RULES}
    assert {name for name, words in asked.items() if words is not None and words != " ".join(words.split())} == set()
    assert sum(words is not None for words in asked.values()) > len(asked) // 2


def test_every_rule_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the source of each number, and with every answer of the run, whole."""
    monkeypatch.chdir(ROOT)
    result = run(AnalyzeRequest(path=Path(SAMPLE), thresholds={"cause_share": 0.5}))
    shipped = load_shipped("thresholds.yaml")
    for name in rule_names():
        found = explain(name, result)
        assert found.findings == [finding for finding in result.findings if finding.rule == name]
        for limit in found.limits:
            assert (limit.shipped, limit.source) == (shipped[limit.name]["value"], shipped[limit.name]["source"])
            assert limit.value == (0.5 if limit.name == "cause_share" else limit.shipped)
        told = " ".join(render(found, "text", View(width=200)).split())
        assert f"{name} in {SAMPLE}" in told
        for finding in found.findings:
            for step in (finding.next, *finding.alternatives, *(one.what for one in finding.preconditions)):
                assert step is None or str(step).split(";")[0][:60].strip() in told
        assert ("cause_share = 0.5 (shipped: 0.02): our choice" in told) == ("cause_share" in rule(name).limits)
        assert json.loads(render(found, "json"))["rule"] == name
        assert render(found, "markdown").startswith(f"# npuperf: {name} in {SAMPLE}")


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = run_cli(["analyze", SAMPLE, "--explain", "sync_points"])
    assert told.returncode == 0
    for part in ("asked of  each device", "thresholds", "cause_share = 0.02", "rank 0, device 0: a problem",
                 "holds  recorded: launches", "torch operator  aten::item", "do  keep values"):  # fmt: skip
        assert part in told.stdout
    absent = run_cli(["analyze", SAMPLE, "--explain", "memory_leak"])
    assert "the rule was not asked of this run" in absent.stdout
    unknown = run_cli(["analyze", SAMPLE, "--explain", "sync_point"])
    assert unknown.returncode == 2
    assert "did you mean sync_points?" in unknown.stderr
    both = run_cli(["analyze", SAMPLE, "--explain", "sync_points", "--table", "kernels", "--html", "x.html"])
    assert both.returncode == 2
    assert "--explain and --table, --html" in both.stderr
    failed = run_cli(["analyze", SAMPLE, "--explain", "sync_points", "--fail-on", "idle>1%"])
    assert failed.returncode == 1  # a gate is judged all the same

"""A dozen lines, and the last line of every report: the verdict, the step, what to do first, and what failed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from comparisons import GATES, SAME, UNTOLD, WORSE
from conftest import ROOT, Done, run_cli
from hostile_documents import Poisoner
from msgspec.structs import replace
from sample_documents import result

from npuperf.model.comparison import Comparison
from npuperf.model.document import Document
from npuperf.model.gist import Gist
from npuperf.model.result import Result
from npuperf.model.schema import schema_of
from npuperf.show.formats import View, render

SAMPLES = ("transformer_ascend_pt", "micro_batch_ascend_pt", "memory_ascend_pt", "pipeline_job")
#: Of which one fails: 27 % of the sample's time is waiting for the host, and it has no step of a second.
ASKED = ["--fail-on", "host_wait>20%", "--fail-on", "step_time>1s"]


def last(text: str) -> str:
    """The last paragraph of a report: its last line, which may be wrapped."""
    return " ".join(text.rstrip("\n").rpartition("\n\n")[2].split())


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_dozen_lines_are_enough(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for columns in (80, 120):
        lines = run_cli(["analyze", f"samples/{sample}", "--brief"], columns).stdout.splitlines()
        assert 5 < len(lines) <= 12, lines
        assert "-BOUND  measured: " in lines[1] and all(len(line) <= columns for line in lines)
        assert lines[-1] == f"the whole report: npuperf analyze samples/{sample}"
        assert any(line.startswith("      → ") for line in lines)  # something to do


def test_the_last_line_tells_what_to_do_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said = last(run_cli(["analyze", "samples/pipeline_job"], 80).stdout)
    assert said.startswith("COMPUTE-BOUND · 55.20 ms/step · first: move layers from stage 1 to the others: ")
    memory = last(run_cli(["analyze", "samples/memory_ascend_pt"], 80).stdout)
    assert memory.startswith("HOST-BOUND · 1.50 ms/step · first: ")
    assert "MiB" not in memory  # which would not make a step that waits for the host any shorter


def test_what_stops_a_pipeline_is_said_last_and_on_stderr(tmp_path: Path) -> None:
    run = ["analyze", str(ROOT / "samples" / "transformer_ascend_pt"), *ASKED]
    text, data = run_cli(run), run_cli([*run, "--format", "json"])
    assert text.returncode == data.returncode == 1
    assert last(text.stdout).endswith(" · gate failed: host_wait>20%")
    assert text.stderr == data.stderr and data.stderr.count("\n") == 1
    assert data.stderr.startswith("npuperf: gate FAIL  host_wait>20%: ")
    assert json.loads(data.stdout)["gates"][0]["status"] == "fail"  # and nothing follows it
    table = run_cli([*run, "--format", "csv"])
    assert "HOST-BOUND" not in table.stdout and table.stderr.count("host_wait>20%") == 1
    fine = run_cli([*run[:2], "--fail-on", "step_time>1s"])
    assert fine.returncode == 0 and fine.stderr == "" and last(fine.stdout).endswith(" · the gate passed")


@pytest.mark.parametrize("comparison", [WORSE, SAME, UNTOLD])
def test_of_a_comparison_the_difference_is_said(comparison: Comparison) -> None:
    held = replace(result(), comparison=comparison, gates=GATES)
    said = last(render(held, "text", View(width=80)))
    words = {"worse": "WORSE", "same": "SAME", "cannot_tell": "CANNOT TELL"}
    assert said.startswith(f"{words[comparison.verdict]} · mean step ")
    assert ("most of it: " in said) == (comparison.verdict == "worse")  # else there is nothing to explain
    assert "gates failed" in said or "gate failed" in said
    brief = render(held, "text", View(width=80, brief=True)).splitlines()  # two of them answer its what-if
    assert len(brief) <= 12 + 2 and brief[1].startswith(words[comparison.verdict])
    assert brief[0] == f"npuperf 0.1.0  {comparison.new} against {comparison.old}"


def test_markdown_has_it_first_and_folds_the_rest(everything: dict[str, Document]) -> None:
    whole = render(everything["transformer"], "markdown", View())
    first, _, rest = render(everything["transformer"], "markdown", View(brief=True)).partition("<details><summary>")
    assert "**HOST-BOUND** measured: " in first and "| " not in first and len(first.split("\n\n")) < 12
    assert first.count("→") == 3  # findings, each with what to do
    title, _, told = whole.partition("\n\n")
    assert first.startswith(title)
    assert rest == f"the whole report</summary>\n\n{told.rstrip()}\n\n</details>\n"


@pytest.mark.parametrize("more", [["--format", "csv"], ["--format", "html"], ["--full"], ["--table", "steps"]])
def test_what_a_dozen_lines_cannot_be(more: list[str]) -> None:
    done = run_cli(["analyze", str(ROOT / "samples" / "transformer_ascend_pt"), "--brief", *more])
    assert done.returncode == 2 and done.stdout == "" and "--brief" in done.stderr


# -- The user's own what-ifs stand right below the verdict, and name what they mean.


def asked(*expressions: str, sample: str = "transformer_ascend_pt") -> Done:
    options = [word for expression in expressions for word in ("--what-if", expression)]
    return run_cli(["analyze", str(ROOT / "samples" / sample), *options], columns=100)


def test_a_name_means_a_type_a_pattern_or_what_types_begin_with() -> None:
    exact, begun, wild, two = (
        " ".join(asked(e).stdout.split("\n\n")[0].split("what if  ")[1].split())
        for e in ("op:MatMulV2*0.5,host*0", "op:matmul*0.5,host*0", "op:*mul?2*0.5,host*0", "op:LayerNorm*0.5,host*0")
    )
    gain = exact.removeprefix("op:MatMulV2*0.5,host*0: ").split(";")[0]
    assert gain.startswith("saves ") and "types:" not in exact  # it is named as it is called
    for said in (begun, wild):
        assert f": {gain}; types: MatMulV2; " in said
    assert "types: LayerNormV4Grad, LayerNormV4;" in two


def test_a_name_that_nothing_has_exits_with_2_and_the_nearest() -> None:
    for expression, near in (
        ("op:Matnul*0.5", "MatMulV2"),
        ("op:Flesh*0", "FlashAttentionScore"),
        ("launches:LayerNomV4*0.5", "LayerNormV4"),
        ("sync:train.py:67*0", "train.py:66"),
    ):
        done = asked("host*0.5", expression)
        assert done.returncode == 2 and done.stdout == "" and repr(expression) in done.stderr
        assert f"next: the nearest: {near}" in done.stderr
    assert asked("host:gc*0").returncode == 0  # a cause that this run has nothing of is no mistake


def test_answers_of_a_job_come_before_those_of_its_ranks() -> None:
    done = asked("rank:1=median", "host*0.5", sample="pipeline_job").stdout
    own = done.split("\n\n")[0].split("what if  ")[1:]
    assert own[0].startswith("rank:1=median: saves ") and own[1].startswith("host*0.5")
    assert done.index("what if  ") < done.index("why ranks wait")


# -- The gist as JSON.


def gist(*arguments: str) -> dict[str, Any]:
    done = run_cli(["analyze", *arguments, "--brief", "--format", "json"])
    assert len(done.stdout.encode()) <= 8192
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema_of(Gist)).validate(found)
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_gist_is_that_of_the_whole_document(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path = f"samples/{sample}"
    found, whole = gist(path), json.loads(run_cli(["analyze", path, "--full", "--format", "json"]).stdout)
    assert found["bound"] == whole["verdict"]["bound"]
    assert found["reason"] == whole["verdict"]["reason"][:300]
    assert found["evidence"].items() <= whole["verdict"]["evidence"].items()
    spans = [step["partition"]["span_ns"] for d in whole["devices"] for step in d["steps"] if step["whole"]]
    expected = whole["cluster"]["step_ns"] if whole["cluster"] else sum(spans) // len(spans)
    assert found["step_ns"] == expected
    rules = {f["rule"]: f for f in whole["findings"] if f["status"] == "problem"}
    named = [one["id"] for one in found["findings"]]
    assert named and {name for name in named if ":" not in name} <= {*rules}
    assert {*found["cannot_tell"]} <= {f["rule"] for f in whole["findings"] if f["status"] == "cannot_tell"}
    for command in found["next"]:
        assert run_cli(shlex.split(command)[1:]).returncode == 0, command


def test_the_gist_has_gates_and_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = gist("samples/transformer_ascend_pt", *ASKED)
    assert [(gate["expr"], gate["status"]) for gate in found["gates"]] == [
        ("host_wait>20%", "fail"), ("step_time>1s", "pass")
    ]  # fmt: skip
    same = gist("samples/transformer_ascend_pt", "--baseline", "samples/transformer_ascend_pt")
    assert (same["compared"]["outcome"], same["compared"]["delta_ns"]) == ("same", 0)


def test_no_gist_is_larger_whatever_names_are() -> None:
    """Names of C++ have thousands of letters; every text of this document has many, and every list is long."""
    hostile: Result = Poisoner("n" * 3000).of(Result)
    many = replace(hostile, comparison=None, cluster=None, findings=[
        replace(finding, rule=f"rule_{n}", status="problem") for n in range(200) for finding in hostile.findings
    ], gates=hostile.gates * 100)  # fmt: skip
    for one in (hostile, many):
        made = render(one, "json", View(brief=True))
        assert len(made.encode()) <= 8192
        assert json.loads(made)["bound"] == one.verdict.bound

"""What the exporter itself summed and suggested: read where it lies, counted, and told where it is damaged."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from build import K, ascend_pt
from small_programs import analyzed

from npuperf.model.result import HostSum, Result
from npuperf.model.schema import schema_of
from npuperf.readers.find import find
from npuperf.show.formats import render

REAL = Path(__file__).parents[3] / "shared" / "data" / "msinsight" / "text" / "level1" / "rank0_ascend_pt"

API = (
    "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n"
    "host,acl,aclrtMemcpy,1700.5,2,850.25,1.5,1699,0\nhost,node,launch,30,3,10,5,20,1\n"
)
#: By hand from the rows below: (level, name, calls, ns in all, ns of the longest).
OLD = {
    "acl_0_1.csv": "Name,Type,Start Time,Duration(us),Process ID,Thread ID\na,ACL_OP,1,5,1,1\n",
    "acl_statistic_0_1.csv": "Name,Type,Time(%),Time(us),Count,Avg(us),Min(us),Max(us),Process ID,Thread ID\n"
    "a,ACL_OP,50,5,1,5,5,5,1,1\na,ACL_OP,50,7,2,3.5,3,4,1,2\n",
    "runtime_api_0_1.csv": "Name,Stream ID,Time(%),Time(ns),Calls,Avg(ns),Min(ns),Max(ns),Process ID,Thread ID\n"
    "KernelLaunch,3,100,4500,3,1500,1000,2500,1,1\n",
    "ge_op_execute_0_1.csv": "Thread ID,OP Name,OP Type,Event Type,Start Time,Duration(us)\n"
    "1,conv,Conv2D,tiling,10,2.5\n1,relu,Relu,tiling,20,1.5\n1,conv,Conv2D,infer_shape,5,1\n",
    "msprof_tx_0_1.csv": "pid, tid, category, event_type, payload_type, payload_value, Start_time(ns), End_time(ns), "
    "message_type, message, call_trace\n1,1,0,start/end,0,0,1000,4000,0,epoch,\n1,1,0,start/end,0,0,9000,9500,0,epoch,"
    "\n",
    "pytorch_operator_view.csv": "Name,Duration(us)\naten::add,8\n",
}  # fmt: skip
OLD_SUMS = {
    ("acl", "a", 3, 12_000, 5_000), ("runtime", "KernelLaunch", 3, 4_500, 2_500), ("ge", "tiling", 2, 4_000, 2_500),
    ("ge", "infer_shape", 1, 1_000, 1_000), ("tx", "epoch", 2, 3_500, 3_000), ("torch", "aten::add", 1, 8_000, 8_000),
}  # fmt: skip


def rule(suggestion: str, operators: list[Any], *, snake: bool = False) -> dict[str, Any]:
    """A file of suggestions in one of its two spellings."""
    kind, held, text, names = ("Rule Type", "Rule Subtype", "Rule Suggestion", "Op List")
    if snake:
        kind, held, text, names = ("rule_type", "rule_subtype", "rule_suggestion", "op_list")
    empty = {kind: "Memory", "result": []}
    found = {kind: "Computation", "result": [{held: "AI Core", text: suggestion, names: operators}]}
    return {"status": 0, "data": [empty, found]}


def recorded(where: Path, files: dict[str, str]) -> Result:
    """A profile of one kernel with these files beside its tables."""
    output = ascend_pt(where, [K(0, 5_000)]) / "ASCEND_PROFILER_OUTPUT"
    for name, text in files.items():
        (output / name).write_text(text)
    return analyzed(where)


def sums(found: list[HostSum]) -> set[tuple[str, str, int, int, int | None]]:
    return {(s.level, s.name, s.count, s.total_ns, s.max_ns) for s in found}


def test_sums_of_today(tmp_path: Path) -> None:
    found = recorded(tmp_path, {"api_statistic.csv": API}).host_sums
    assert sums(found) == {("acl", "aclrtMemcpy", 2, 1_700_500, 1_699_000), ("node", "launch", 3, 30_000, 20_000)}
    assert [s.name for s in found] == ["aclrtMemcpy", "launch"]  # most time first


def test_sums_and_lists_of_older_exporters(tmp_path: Path) -> None:
    """acl_*.csv has the calls of acl_statistic_*.csv one by one: they are not counted twice, and are read alone."""
    found = recorded(tmp_path / "all", OLD)
    assert sums(found.host_sums) == OLD_SUMS and found.input.lost == [] and found.input.warnings == []
    alone = recorded(tmp_path / "alone", {"acl_0_1.csv": OLD["acl_0_1.csv"]})
    assert sums(alone.host_sums) == {("acl", "a", 1, 5_000, 5_000)}


def test_ranks_are_added_up(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = ascend_pt(tmp_path / f"r{rank}", [K(0, 5_000)])
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        output = folder / "ASCEND_PROFILER_OUTPUT"
        (output / "api_statistic.csv").write_text(API.replace("1699", str(1699 + rank)))
        (output / "prof_rule_0.json").write_text(json.dumps(rule("use more cores", ["conv", f"relu{rank}"])))
    found = analyzed(tmp_path)
    assert [(s.name, s.count, s.total_ns, s.max_ns, s.files) for s in found.host_sums] == [
        ("aclrtMemcpy", 4, 3_401_000, 1_700_000, 2), ("launch", 6, 60_000, 20_000, 2),
    ]  # fmt: skip
    (one,) = found.suggestions
    assert (one.operators, one.files) == (("conv", "relu0", "relu1"), 2)


@pytest.mark.parametrize("snake", [False, True])
def test_suggestions_are_shown_as_the_exporters(tmp_path: Path, snake: bool) -> None:
    text = json.dumps(rule("use [x] more cores", ["conv", {"op": 1}], snake=snake))
    found = recorded(tmp_path, {"prof_rule_0.json": text, "api_statistic.csv": API})
    (one,) = found.suggestions
    assert (one.kind, one.rule, one.suggestion, one.files) == ("Computation", "AI Core", "use [x] more cores", 1)
    assert one.operators == ("conv", '{"op": 1}')
    assert "what msprof suggests (its words, not checked)" in render(found, "markdown")
    assert "msprof itself suggests 1 thing: --table suggestions" in render(found, "text")
    document = json.loads(render(found, "json"))
    jsonschema.validate(document, schema_of(Result))
    assert document["suggestions"][0]["suggestion"] == "use [x] more cores"


def test_nothing_is_said_where_there_is_nothing(tmp_path: Path) -> None:
    found = recorded(tmp_path, {"prof_rule_0.json": '{"status": 0, "data": [{"Rule Type": "Memory", "result": []}]}'})
    assert found.suggestions == [] and found.host_sums == [] and found.input.lost == []
    assert "suggests" not in render(found, "text")


def test_msprof_folders_and_what_torch_npu_keeps_of_them(tmp_path: Path) -> None:
    """The newest of repeated exports, in either layout; inside of a torch_npu folder suggestions only."""
    kept = ascend_pt(tmp_path / "torch", [K(0, 5_000)])
    inner = kept / "PROF_000001_20250101000000000_X" / "mindstudio_profiler_output"
    inner.mkdir(parents=True)
    for name in ("prof_rule_0_20250101120000.json", "prof_rule_0_20250101110000.json"):
        (inner / name).write_text(json.dumps(rule(name, [])))
    (inner / "api_statistic_20250101120000.csv").write_text(API)
    ((source,), _) = find(tmp_path / "torch")
    assert [f.name for f in source.summaries] == ["prof_rule_0_20250101120000.json"]
    old = tmp_path / "PROF_000002_20250101000000000_Y" / "device_0" / "summary"
    old.mkdir(parents=True)
    (old / "op_summary_0_1.csv").write_text("Op Name,Task Start Time(us),Task Duration(us)\na,1000,5\n")
    for name, text in {**OLD, "prof_rule_0.json": json.dumps(rule("less", []))}.items():
        (old / name).write_text(text)
    found = analyzed(old.parents[1])
    assert sums(found.host_sums) == OLD_SUMS and [s.suggestion for s in found.suggestions] == ["less"]


@pytest.mark.parametrize("cell", ["", "-3", "x", "1e300", "inf", "9" * 5000, "1" * 16])
@pytest.mark.parametrize("column", [3, 4])
def test_damaged_rows_are_counted_and_told(tmp_path: Path, cell: str, column: int) -> None:
    """One time or count that cannot be: its row is lost, with a word; the others are used."""
    rows = [line.split(",") for line in API.splitlines()]
    rows[2][column] = cell
    found = recorded(tmp_path, {"api_statistic.csv": "\n".join(map(",".join, rows)) + "\n"})
    assert sums(found.host_sums) == {("acl", "aclrtMemcpy", 2, 1_700_500, 1_699_000)}
    assert [(Path(x.file).name, x.rows) for x in found.input.lost] == [("api_statistic.csv", 1)]
    assert "first in row 3" in str(found.input.lost[0].reason)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("api_statistic.csv", "", "the file is empty"), ("api_statistic.csv", "a,b\n1,2\n", "no column 'Api Name'"),
        ("prof_rule_0.json", "{", "cannot be read"), ("prof_rule_0.json", "[]", "not a JSON object"),
        ("prof_rule_0.json", '{"data": 1}', "no list of suggestions"), ("prof_rule_0.json", "{}", "no list"),
        ("prof_rule_0.json", '{"data":' * 10_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_damaged_files_cost_themselves(tmp_path: Path, name: str, text: str, said: str) -> None:
    found = recorded(tmp_path, {name: text})
    assert any(said in str(w) and "is not shown" in str(w) for w in found.input.warnings), found.input.warnings
    assert found.operators and not found.host_sums and not found.suggestions


@pytest.mark.parametrize("group", [1, {"result": 7}, {"result": [{}]}, {"result": [{"Rule Suggestion": 3}]}])
def test_parts_that_suggest_nothing_are_counted(tmp_path: Path, group: Any) -> None:
    text = json.dumps({"data": [group, *rule("less", [])["data"]]})
    found = recorded(tmp_path, {"prof_rule_0.json": text})
    assert [s.suggestion for s in found.suggestions] == ["less"]
    assert [x.rows for x in found.input.lost] == [1]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    output = ascend_pt(tmp_path, [K(0, 5_000)]) / "ASCEND_PROFILER_OUTPUT"
    os.mkfifo(output / "api_statistic.csv")
    found = analyzed(tmp_path)
    assert found.operators and any("a pipe, not a file" in str(w) for w in found.input.warnings)


def test_sums_of_a_real_recording() -> None:
    if not REAL.exists():
        pytest.skip("the recording is not here")
    with (REAL / "ASCEND_PROFILER_OUTPUT" / "api_statistic.csv").open(newline="") as file:
        rows = [(r["Level"], r["API Name"], int(r["Count"]), round(float(r["Time(us)"]) * 1000),
                 round(float(r["Max(us)"]) * 1000)) for r in csv.DictReader(file)]  # fmt: skip
    assert sums(analyzed(REAL).host_sums) == set(rows) and len(rows) == 57

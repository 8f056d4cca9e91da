"""aoe_result files of every schema, whole and in contradiction with themselves, and two of them side by side."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aoe_results import BARE, BASIC, GROUPED, LISTED, SUBGRAPHS, changed, read, rows, summary, times, tune
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from workplace import bank, record

from npuperf.base.errors import InputError
from npuperf.model.schema import schema_of
from npuperf.model.tuning import Tuning
from npuperf.show.formats import render
from npuperf.tune.results import compare_tunings, read_results, result_files


def test_operators_with_strategies(tmp_path: Path) -> None:
    found = read(tmp_path, LISTED)
    assert rows(found) == [
        ("operator", "net/softmax", "Format", "added", 80.0, 32.0),
        ("operator", "net/dense", "Schedule", "updated", 12.0, 10.0),
        ("operator", "net/dense", "Impl", "added", 10.0, 8.0),
    ]
    assert [e.speedup for e in found.entries] == [2.5, 1.2, 1.25]
    assert [e.time_saved_pct for e in found.entries] == [60.0, 16.67, 20.0]
    assert [e.reported_improvement_pct for e in found.entries] == [150.0, 20.0, 25.0]
    assert [e.types for e in found.entries][:2] == [("SoftmaxV2",), ("MatMulV2", "Add")]
    assert (found.mode, found.status, found.recovered) == ("op", "successful", False)
    assert found.summary is not None and (found.summary.hit, found.summary.total) == (8, 13)
    assert found.tuning_time_s == 44 and found.warnings == ()


def test_operators_in_two_lists(tmp_path: Path) -> None:
    found = read(tmp_path, GROUPED)
    assert rows(found) == [
        ("operator", "a", None, "added", 4.0, 2.0),
        ("operator", "b", None, "updated", 9.0, 6.0),
    ]
    assert found.status == "successful" and found.entries[1].types == ("conv2d",)


def test_a_bare_list_with_its_summary_beside_it(tmp_path: Path) -> None:
    """Models are in ms, operators in µs: the unit is in the key."""
    found = read(tmp_path, BARE)
    assert rows(found) == [
        ("model", "model", None, "unknown", 110_000.0, 100_000.0),
        ("operator", "s", None, "added", 5.0, 4.0),
    ]
    assert found.summary is not None and found.summary.reserved == 2
    assert found.warnings == ()


def test_subgraphs_keep_their_keys_as_text(tmp_path: Path) -> None:
    """2**64 - 1 is not a float; percentages that were cut instead of rounded are no contradiction."""
    found = read(tmp_path, SUBGRAPHS)
    assert (found.mode, found.status) == ("subgraph", "successful")
    assert [e.repo_key for e in found.entries] == [None, "1024942313106047484", "18446744073709551615"]
    assert [e.before_us for e in found.entries] == [6000.0, 3000.0, 5000.0]
    assert found.warnings == ()


def test_reports_of_one_name_and_of_several(tmp_path: Path) -> None:
    """A plain JSON reader keeps the last of two equal keys; AOE writes them."""
    one = json.dumps(LISTED)[1:-1]
    two = json.dumps(SUBGRAPHS)[1:-1]
    found = read(tmp_path, "{" + one + "," + one + "," + two + "}")
    assert len(found.entries) == 3 + 3 + 3
    assert found.mode == "mixed" and not found.recovered
    assert found.summary is not None and found.summary.added == 2 + 2 + 1
    assert found.tuning_time_s == 3 * 44


def test_tasks_keep_their_names(tmp_path: Path) -> None:
    """Each report is a task of AOE's, with its name and time; what it tuned says which one it was."""
    named = {**LISTED, "report_2": [{"basic": {"tuning_name": "second", "tuning_time(s)": 3}}]}
    found = read(tmp_path, named)
    assert [(t.name, t.status, t.tuning_time_s) for t in found.tasks] == [
        ("job", "successful", 44.0), ("second", "nothing_to_tune", 3.0),
    ]  # fmt: skip
    assert {e.task for e in found.entries} == {"job"}
    unnamed = read(tmp_path, {"report_1": [{"basic": {"tuning_name": 7}}]})
    assert [(t.name, t.status, t.tuning_time_s) for t in unnamed.tasks] == [(None, "incomplete", None)]
    one, two = (render(d, "markdown") for d in (read(tmp_path, LISTED), found))
    assert "task job" in one and "what AOE was given" not in one
    assert "what AOE was given" in two and "second" in two


def test_failures(tmp_path: Path) -> None:
    failed = changed(LISTED, opat_tuning_result="tuning failed", tuning_failed_operators=["res4a"])
    found = read(tmp_path, failed)
    assert (found.status, found.failed_operators) == ("failed", ("res4a",))
    assert read(tmp_path, changed(LISTED, opat_tuning_result="tuning incomplete")).status == "incomplete"
    assert read(tmp_path, changed(LISTED, opat_tuning_result="something new")).status == "incomplete"
    crashed = json.loads(json.dumps(LISTED))
    del crashed["report_20260101_1"][0]["basic"]["tuning_time(s)"]
    without_time = read(tmp_path, crashed)
    assert without_time.status == "incomplete" and "no tuning time" in str(without_time.warnings[0])
    nothing = read(tmp_path, {"report_1": [BASIC]})
    assert (nothing.status, nothing.mode, nothing.entries) == ("nothing_to_tune", None, ())
    assert "neither OPAT nor SGAT" in str(nothing.warnings[0])


def test_contradictions_are_named(tmp_path: Path) -> None:
    wrong = changed(LISTED, repo_summary=summary(2, 1, 7, 3, total_num=99, repo_hit_num=3))
    wrong["report_20260101_1"][1]["OPAT"]["repo_modified_operators"][0]["tune_performance"]["Format"][
        "performance_improvement"
    ] = "60.00%"  # the share of time saved, which is what the manual says it is
    found = read(tmp_path, wrong)
    assert found.status == "successful"
    said = "\n".join(map(str, found.warnings))
    assert "the file says 60 % improvement, its times say 150 %" in said
    assert "3 hits, but 7 reserved and 1 updated" in said
    assert "a total of 99, but 2 added, 3 hit and 3 unsatisfied" in said
    short = read(tmp_path, changed(LISTED, repo_summary=summary(5, 1, 7, 3)))
    assert "5 added in the summary, but 2 listed" in str(short.warnings[0])


@pytest.mark.parametrize("said", ["33.3%", "33.33%", "33.34%", "33%", "33.6%", "33.30%", "36%"])
def test_rounding_is_no_contradiction(tmp_path: Path, said: str) -> None:
    """80 → 60 µs is 33.333… %: one, two and no decimals, rounded or cut; and what no rounding makes of it."""
    one = {"op_name": "a", "op_type": "T", "tune_performance": {"Format": times(80, 60, said, update_mode="add")}}
    found = read(tmp_path, changed(LISTED, repo_modified_operators=[one], repo_summary=summary(1, 0, 0, 0)))
    assert ["the file says" in str(w) for w in found.warnings] == [True] * (said in ("33.6%", "33.30%", "36%"))


@pytest.mark.parametrize("value", [0, -80, "N/A", "80", float("nan"), True, [80], 1e-9])
def test_a_time_that_is_none_is_told(tmp_path: Path, value: object) -> None:
    """It gives no speedup, and who reads the table learns why."""
    damaged = {**times(80, 60, None, update_mode="add"), "performance_before_tune(us)": value}
    one = {"op_name": "a", "op_type": "T", "tune_performance": {"Format": damaged}}
    found = read(tmp_path, changed(LISTED, repo_modified_operators=[one], repo_summary=summary(1, 0, 0, 0)))
    assert (found.entries[0].before_us, found.entries[0].after_us, found.entries[0].speedup) == (None, 60, None)
    (told,) = map(str, found.warnings)
    assert "a: performance_before_tune(us) is " in told and "nothing was measured" in told


def test_names_in_gbk_are_read(tmp_path: Path) -> None:
    """Chinese systems write it; damaged UTF-8 is not taken for it."""
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    text = (
        json.dumps(LISTED, ensure_ascii=False).replace("net/softmax", "网络/第一层").replace("net/dense", "网络/第二层")
    )
    file.write_bytes(text.encode("gbk"))
    found = read_results([file])
    assert [e.name for e in found.entries] == ["网络/第一层", "网络/第二层", "网络/第二层"]
    assert (found.status, found.warnings) == ("successful", ())
    file.write_bytes(text.encode().replace("第一".encode(), b"\xb5\xdb", 1))
    found = read_results([file])
    assert found.entries[1].name == "网络/第二层" and found.recovered
    assert any("characters are no text" in str(w) for w in found.warnings)


def test_one_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    read(tmp_path, LISTED)
    (tmp_path / "aoe_result_opat_20260101120000001_pid7.json").touch()
    found = read_results(result_files(tmp_path)[0])
    assert found.entries and found.recovered and found.status != "successful"
    assert any("empty" in str(w) for w in found.warnings)


def test_the_files_of_one_run(tmp_path: Path) -> None:
    """Those of the newest process belong together: each took 44 s, so what begins within a minute after that does."""
    for name in ("opat_20260101120000000_pid7", "opat_20260101130000000_pid8", "opat_20260101130130000_pid8"):
        (tmp_path / f"aoe_result_{name}.json").write_text(json.dumps(LISTED))
    assert [f.name[-8:-5] for f in result_files(tmp_path)[0]] == ["id8", "id8"]
    assert len(read_results(result_files(tmp_path)[0]).entries) == 6
    with pytest.raises(InputError, match="no aoe_result"):
        result_files(_empty(tmp_path))


def test_two_runs_with_one_process_number_are_not_added_up(tmp_path: Path) -> None:
    """As in containers, where every run is process 12; the first took 44 s and was over long before, or crashed."""
    crashed = json.loads(json.dumps(LISTED))
    del crashed["report_20260101_1"][0]["basic"]["tuning_time(s)"]
    for stamp, content in (
        ("20260101120000000", LISTED),
        ("20260101120030000", crashed),
        ("20260101120031000", LISTED),
    ):
        (tmp_path / f"aoe_result_opat_{stamp}_pid12.json").write_text(json.dumps(content))
    ((newest,), _) = result_files(tmp_path)
    assert "20260101120031000" in newest.name
    done = json.loads(tune("--from", tmp_path, "--format", "json").stdout)
    assert (done["summary"]["added"], len(done["entries"])) == (2, 3)
    assert any("2 other result files there are of earlier runs" in w for w in done["warnings"])


def test_counts_are_of_strategies_not_of_names(tmp_path: Path) -> None:
    """One operator with two new strategies counts twice, as the guide defines the counts."""
    both = {"Schedule": times(12, 10, "20.00%", update_mode="add"), "Impl": times(10, 8, "25.00%", update_mode="add")}
    one = {"op_name": "a", "op_type": "T", "tune_performance": both}
    found = read(tmp_path, changed(LISTED, repo_modified_operators=[one], repo_summary=summary(2, 0, 0, 0)))
    assert found.warnings == ()
    short = read(tmp_path, changed(LISTED, repo_modified_operators=[one], repo_summary=summary(1, 0, 0, 0)))
    assert "1 added in the summary, but 2 listed" in str(short.warnings[0])


def test_a_subgraph_run_without_its_section_has_failed(tmp_path: Path) -> None:
    """The guide: a failed tuning of subgraphs has none. Operators without one had nothing to tune."""
    nothing = {"report_1": [BASIC]}
    assert read(tmp_path, nothing).status == "nothing_to_tune"
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    assert read_results([file], "op").status == "nothing_to_tune"
    failed = read_results([file], "subgraph")
    assert failed.status == "failed" and "the tuning of subgraphs failed" in str(failed.warnings[0])
    assert read(tmp_path, {**SUBGRAPHS, **nothing}).status == "failed"  # its other report tells what was tuned


@pytest.mark.parametrize("number", [-1, -0.5, 1e300, 10**400, float("inf"), float("nan"), True, "5", None])
def test_numbers_that_no_clock_and_no_count_gave(tmp_path: Path, number: object) -> None:
    """They are not given, and the document can be written and read."""
    wrong = changed(LISTED, repo_summary={**summary(2, 1, 7, 3), "repo_add_num": number})
    for times_ in (wrong["report_20260101_1"][1]["OPAT"]["repo_modified_operators"][0]["tune_performance"]["Format"],):
        times_["performance_after_tune(us)"] = number
    wrong["report_20260101_1"][0]["basic"] = {"tuning_time(s)": number}
    found = read(tmp_path, wrong)
    first = found.entries[0]
    assert (first.before_us, first.after_us, first.speedup) == (80.0, None, None)
    assert found.tuning_time_s is None and found.summary is None
    assert any("the summary lacks counts" in str(w) for w in found.warnings)
    schema = schema_of(Tuning)
    jsonschema.validate(json.loads(render(found, "json")), schema)


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def test_all_formats_show_the_same_figures(tmp_path: Path) -> None:
    (tmp_path / "aoe_result_opat_20260101120000000_pid7.json").write_text(json.dumps(LISTED))
    text = tune("--from", tmp_path)
    assert text.returncode == 0 and text.stdout.splitlines()[0].startswith("npuperf ")
    assert "SUCCESSFUL  operator tuning; 44 s" in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80
    document = json.loads(tune("--from", tmp_path, "--format", "json").stdout)
    assert set(document) == set(Tuning.__struct_fields__) and document["schema_version"] == "2.0"
    table = list(csv.DictReader(io.StringIO(tune("--from", tmp_path, "--format", "csv").stdout)))
    markdown = tune("--from", tmp_path, "--format", "markdown").stdout
    for entry in document["entries"]:
        (row,) = [r for r in table if (r["name"], r["strategy"]) == (entry["name"], entry["strategy"])]
        assert float(row["speedup"]) == entry["speedup"] and float(row["before_us"]) == entry["before_us"]
        for shown in (text.stdout, markdown):
            assert f"{entry['speedup']:g}" in shown and f"{entry['time_saved_pct']:g}" in shown
    saved = [float(r["before_us"]) - float(r["after_us"]) for r in table]
    assert saved == sorted(saved, reverse=True)


def test_two_run_directories_are_compared_by_their_newest_runs(tmp_path: Path) -> None:
    """Not by the snapshots of banks that lie in them."""
    for name, softmax in (("one", 32), ("two", 16)):
        for stamp in ("20260101", "20260102"):
            folder = tmp_path / name / "tune" / stamp
            bank(folder / "bank_before", [record(16, 64)])
            (folder / "state.json").write_text("{}")
            text = json.dumps(LISTED).replace(": 32", f": {softmax}") if stamp == "20260102" else json.dumps(LISTED)
            (folder / "aoe_result_opat_20260101120000000_pid7.json").write_text(text)
    found = json.loads(tune("--diff", tmp_path / "one", tmp_path / "two", "--format", "json").stdout)["comparison"]
    assert [(r["name"], r["old_ns"], r["new_ns"]) for r in found["rows"]] == [("net/softmax", 32_000, 16_000)]


def test_what_two_runs_tuned_differently(tmp_path: Path) -> None:
    """a: 80 → 32 and 80 → 20.001; b stays; c is gone; d is new."""

    def write(name: str, operators: dict[str, tuple[float, float]]) -> Path:
        listed = [{"op_name": n, "op_type": "T", "tune_performance": {"Schedule": times(*t, None, update_mode="add")}}
                  for n, t in operators.items()]  # fmt: skip
        file = tmp_path / f"aoe_result_opat_{name}_pid1.json"
        opat = {"opat_tuning_result": "tuning successful", "repo_modified_operators": listed}
        file.write_text(json.dumps({"report_1_1": [BASIC, {"OPAT": opat}]}))
        return file

    first = write("1", {"a": (80, 32), "b": (9, 6), "c": (4, 2)})
    second = write("2", {"a": (80, 20.001), "b": (9, 6), "d": (5, 1)})
    found = compare_tunings(read_results([first]), read_results([second]))
    assert [(r.name, r.kind, r.strategy, r.change, r.old_ns, r.new_ns) for r in found.rows] == [
        ("a", "operator", "Schedule", "changed", 32_000, 20_001),
        ("c", "operator", "Schedule", "removed", 2_000, None),
        ("d", "operator", "Schedule", "added", None, 1_000),
    ]
    assert {row.verdict for row in found.rows} == {found.verdict} == {"cannot_tell"}  # one time each: no noise is known
    assert found.unchanged == 1
    many = read_results([write("3", dict.fromkeys("hbfcdegija", (5, 1)))])
    assert [row.name for row in compare_tunings(many, replace(many, entries=())).rows] == list("abcdefghij")
    again = compare_tunings(read_results([first]), read_results([first]))
    assert (again.verdict, again.rows, again.unchanged) == ("same", (), 3)
    half = replace(read_results([first]), status="incomplete")
    assert compare_tunings(half, half).verdict == "cannot_tell"  # there may be more entries
    done = tune("--diff", first, second)
    assert done.returncode == 0 and "1 added, 1 changed, 1 removed, 1 tuned to the same time" in done.stdout
    assert json.loads(tune("--diff", first, second, "--format", "json").stdout)["comparison"]["unchanged"] == 1


NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12)


TIMES = st.floats(0.001, 1e6, allow_nan=False).map(lambda x: round(x, 3))


TYPES = st.lists(st.sampled_from(["MatMulV2", "Add", "Conv2D"]), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(NAMES, TYPES, TIMES, TIMES, st.booleans()), max_size=5, unique_by=lambda o: o[0]),
       st.sampled_from(["v1", "v2", "v3"]))  # fmt: skip
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_is_read(tmp_path: Path, operators: list[Any], schema: str) -> None:
    """Reading the rendered form gives back the operators, in every schema."""

    def one(name: str, types: list[str], before: float, after: float, added: bool) -> dict[str, Any]:
        head = {"op_name": name, "op_type": types[0] if len(types) == 1 else f"[{', '.join(types)}]"}
        if schema == "v3":
            change = times(before, after, None, update_mode="add" if added else "update")
            return {**head, "tune_performance": {"Schedule": change}}
        return {**head, **times(before, after, None)}

    written = [one(*o) for o in operators]
    parts = {"add_repo_operators": [w for w, o in zip(written, operators, strict=True) if o[4]],
             "update_repo_operators": [w for w, o in zip(written, operators, strict=True) if not o[4]]}  # fmt: skip
    opat = {"opat_tuning_result": "tuning successful", "repo_modified_operators": written if schema == "v3" else parts}
    report = [BASIC, {"OPAT": opat}]
    file = tmp_path / "aoe_result_opat_1_pid1.json"
    file.write_text(json.dumps(report if schema == "v2" else {"report_1_1": report}), "utf-8")
    found = read_results([file])
    assert not found.recovered
    expected = {(n, tuple(t), b, a, "added" if added else "updated") for n, t, b, a, added in operators}
    assert {(e.name, e.types, e.before_us, e.after_us, e.change) for e in found.entries} == expected


def test_the_document_follows_its_schema(tmp_path: Path) -> None:

    file = tmp_path / "aoe_result_opat_1_pid1.json"
    file.write_text(json.dumps(LISTED))
    jsonschema.validate(json.loads(tune("--from", file, "--format", "json").stdout), schema_of(Tuning))

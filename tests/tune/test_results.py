"""aoe_result files of every schema, whole and damaged. Expected figures are worked out by hand beside the data."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuperf.documents.tuning import Tuning
from npuperf.errors import InputError
from npuperf.render.json import shipped_schema
from npuperf.render.tuning_text import tuning_schema
from npuperf.tune.bank import compare, read_bank
from npuperf.tune.lenient import Object, parse
from npuperf.tune.results import compare_results, read_results, result_files

ROOT = Path(__file__).resolve().parents[2]


def times(before: float, after: float, improvement: str | None, unit: str = "us", **more: Any) -> dict[str, Any]:
    found = {f"performance_after_tune({unit})": after, f"performance_before_tune({unit})": before, **more}
    return found if improvement is None else {**found, "performance_improvement": improvement}


def summary(added: int, updated: int, reserved: int, unsatisfied: int, **more: int) -> dict[str, int]:
    return {
        "repo_add_num": added,
        "repo_update_num": updated,
        "repo_reserved_num": reserved,
        "repo_hit_num": reserved + updated,
        "repo_unsatisfied_num": unsatisfied,
        "total_num": added + reserved + updated + unsatisfied,
        **more,
    }


BASIC = {"basic": {"tuning_name": "job", "tuning_time(s)": 44}}

# 80 → 32 µs: 2.5 times as fast, 60 % less time, "150 %" as AOE counts it. 12 → 10: 1.2, 16.67 %, "20 %".
LISTED = {
    "report_20260101_1": [
        BASIC,
        {
            "OPAT": {
                "opat_tuning_result": "tuning successful",
                "repo_modified_operators": [
                    {
                        "op_name": "net/softmax",
                        "op_type": "SoftmaxV2",
                        "tune_performance": {"Format": times(80, 32, "150.00%", update_mode="add")},
                    },
                    {
                        "op_name": "net/dense",
                        "op_type": "[MatMulV2, Add]",
                        "tune_performance": {
                            "Schedule": times(12, 10, "20.00%", update_mode="update"),
                            "Impl": times(10, 8, "25.00%", update_mode="add"),
                        },
                    },
                ],
                "repo_summary": summary(2, 1, 7, 3),
            }
        },
    ]
}
GROUPED = {
    "report_20260101_1": [
        {"basic": {"tuning_name": "job", "tuning_time(s)": 26.5}},
        {
            "OPAT": {
                "opat_tune_result": "tune success",
                "repo_modified_operators": {
                    "add_repo_operators": [{"op_name": "a", "op_type": "matmul", **times(4, 2, "100.00%")}],
                    "update_repo_operators": [{"op_name": "b", "op_type": ["conv2d"], **times(9, 6, "50.00%")}],
                },
                "repo_summary": summary(1, 1, 0, 0),
            }
        },
    ]
}
BARE = [
    {"basic": {"tuning_name": "job", "tuning_time(s)": 1000}},
    {
        "OPAT": {
            "model_baseline_performance(ms)": 110.0,
            "model_result_performance(ms)": 100.0,
            "model_performance_improvement": "10.00%",
            "opat_tuning_result": "tuning successful",
            "repo_modified_operators": {"add_repo_operators": [{"op_name": "s", "op_type": "x", **times(5, 4, "25%")}]},
        },
        "repo_summary": summary(1, 0, 2, 0),
    },
]
SUBGRAPHS = {
    "report_20260101_1": [
        BASIC,
        {
            "SGAT": {
                "model_baseline_performance(ms)": 6.0,
                "model_result_performance(ms)": 4.0,
                "model_performance_improvement": "50.00%",
                "repo_modified_subgraphs": {
                    "add_repo_subgraphs": [{"repo_key": "1024942313106047484", **times(3, 2, "49.99%", "ms")}],
                    "update_repo_subgraphs": [{"repo_key": 18446744073709551615, **times(5, 4, "25.00%", "ms")}],
                },
                "repo_summary": summary(1, 1, 0, 120),
            }
        },
    ]
}


def read(folder: Path, content: Any, name: str = "aoe_result_opat_20260101120000000_pid7.json") -> Tuning:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")
    before = file.read_bytes()
    found = read_results([file])
    assert file.read_bytes() == before
    return found


def rows(tuning: Tuning) -> list[tuple[Any, ...]]:
    return [(e.kind, e.name, e.strategy, e.change, e.before_us, e.after_us) for e in tuning.entries]


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


def changed(document: dict[str, Any], **opat: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(document))
    copy["report_20260101_1"][1]["OPAT"].update(opat)
    return copy


def test_failures(tmp_path: Path) -> None:
    failed = changed(LISTED, opat_tuning_result="tuning failed", tuning_failed_operators=["res4a"])
    found = read(tmp_path, failed)
    assert (found.status, found.failed_operators) == ("failed", ("res4a",))
    assert read(tmp_path, changed(LISTED, opat_tuning_result="tuning incomplete")).status == "incomplete"
    assert read(tmp_path, changed(LISTED, opat_tuning_result="something new")).status == "incomplete"
    crashed = json.loads(json.dumps(LISTED))
    del crashed["report_20260101_1"][0]["basic"]["tuning_time(s)"]
    without_time = read(tmp_path, crashed)
    assert without_time.status == "incomplete" and "no tuning time" in without_time.warnings[0]
    nothing = read(tmp_path, {"report_1": [BASIC]})
    assert (nothing.status, nothing.mode, nothing.entries) == ("nothing_to_tune", None, ())
    assert "neither OPAT nor SGAT" in nothing.warnings[0]


def test_contradictions_are_named(tmp_path: Path) -> None:
    wrong = changed(LISTED, repo_summary=summary(2, 1, 7, 3, total_num=99, repo_hit_num=3))
    wrong["report_20260101_1"][1]["OPAT"]["repo_modified_operators"][0]["tune_performance"]["Format"][
        "performance_improvement"
    ] = "60.00%"  # the share of time saved, which is what the manual says it is
    found = read(tmp_path, wrong)
    assert found.status == "successful"
    said = "\n".join(found.warnings)
    assert "the file says 60.0 % improvement, its times say 150.00 %" in said
    assert "3 hits are not 7 reserved and 1 updated" in said
    assert "a total of 99 is not 2 added, 3 hit and 3 unsatisfied" in said
    short = read(tmp_path, changed(LISTED, repo_summary=summary(5, 1, 7, 3)))
    assert "5 added by the summary, 2 listed" in short.warnings[0]


# ---- damage ----


def test_the_manual_s_own_mistakes(tmp_path: Path) -> None:
    """Its samples lack a comma, the outer brace, and have dots for what was left out."""
    text = json.dumps(SUBGRAPHS)
    no_comma = text.replace('], "update_repo_subgraphs"', '] "update_repo_subgraphs"')
    assert no_comma != text
    found = read(tmp_path, no_comma)
    assert len(found.entries) == 3 and found.recovered and found.status == "incomplete"
    assert "a missing comma at row 1" in found.warnings[0]
    no_brace = read(tmp_path, text[1:])
    assert len(no_brace.entries) == 3 and no_brace.recovered
    dots = read(tmp_path, text[:-1] + ', "report_2": [ ....... ] }')
    assert len(dots.entries) == 3 and dots.recovered


def test_every_truncation_keeps_what_is_whole(tmp_path: Path) -> None:
    """Cut at every byte: no error but a clear one, no figure that is not in the whole file, never a success."""
    text = json.dumps(LISTED, indent=1)
    whole = read(tmp_path, LISTED)
    seen = 0
    for end in range(len(text) - 1):
        try:
            found = read(tmp_path, text[:end])
        except InputError as error:
            assert "empty" in str(error) or "no tuning report" in str(error)
            continue
        assert found.recovered and found.status in ("incomplete", "nothing_to_tune", "failed"), end
        assert found.status != "successful"
        for entry in found.entries:
            twin = next(e for e in whole.entries if (e.name, e.strategy) == (entry.name, entry.strategy))
            assert entry.before_us in (None, twin.before_us) and entry.after_us in (None, twin.after_us), end
        assert len(found.entries) >= seen
        seen = len(found.entries)
    assert seen == 3


def test_files_from_editors_and_crashes(tmp_path: Path) -> None:
    text = json.dumps(LISTED)
    assert len(read(tmp_path, "\ufeff" + text.replace(", ", ",\r\n")).entries) == 3
    two = read(tmp_path, text + "\n" + text)
    assert len(two.entries) == 6 and two.recovered
    assert any("2 documents in one file" in w for w in two.warnings)
    for content, words in (("", "empty"), ("  \n", "empty"), ("[]", "no tuning report"), ("hello", "no tuning report")):
        with pytest.raises(InputError, match=words):
            read(tmp_path, content)
    (tmp_path / "binary.json").write_bytes(b"\x00\xff\xfe" * 50)
    with pytest.raises(InputError, match="no tuning report"):
        read_results([tmp_path / "binary.json"])


def test_nothing_is_guessed() -> None:
    """A number at the very end may be half of one."""
    (document,) = parse('{"a": 1, "b": 26.8').documents
    assert isinstance(document, Object) and document.members == [("a", 1)]
    assert parse('{"a": 1}').faults == []


def test_what_no_measurement_is(tmp_path: Path) -> None:
    """Infinite and undefined times are none; what is nested too deeply is refused, many faults are counted."""
    text = re.sub(r": 32\b", ": NaN", json.dumps(LISTED), count=1)
    assert "NaN" in text
    found = read(tmp_path, text)
    assert found.entries and all(e.after_us is None or e.after_us > 0 for e in found.entries)
    for deep in ("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(InputError):
            read(tmp_path, deep)
    parsed = parse("[" + " ".join(map(str, range(20_000))) + "]")
    assert parsed.documents == [[*range(20_000)]] and len(parsed.faults) == 51


def test_one_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    read(tmp_path, LISTED)
    (tmp_path / "aoe_result_opat_20260101120000001_pid7.json").touch()
    found = read_results(result_files(tmp_path))
    assert found.entries and found.recovered and found.status != "successful"
    assert any("empty" in w for w in found.warnings)


def test_the_files_of_one_run(tmp_path: Path) -> None:
    """Those of the newest process belong together."""
    for name in ("opat_20260101120000000_pid7", "opat_20260101130000000_pid8", "opat_20260101140000000_pid8"):
        (tmp_path / f"aoe_result_{name}.json").write_text(json.dumps(LISTED))
    assert [f.name[-8:-5] for f in result_files(tmp_path)] == ["id8", "id8"]
    assert len(read_results(result_files(tmp_path)).entries) == 6
    with pytest.raises(InputError, match="no aoe_result"):
        result_files(_empty(tmp_path))


def tune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "npuperf", "tune", *map(str, arguments)],
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_all_formats_show_the_same_figures(tmp_path: Path) -> None:
    (tmp_path / "aoe_result_opat_20260101120000000_pid7.json").write_text(json.dumps(LISTED))
    text = tune("--from", tmp_path)
    assert text.returncode == 0 and text.stdout.splitlines()[0].startswith("npuperf ")
    assert "SUCCESSFUL  operator tuning; 44 s" in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80
    document = json.loads(tune("--from", tmp_path, "--format", "json").stdout)
    assert set(document) == set(Tuning.__struct_fields__) and document["schema_version"] == "1.0"
    table = list(csv.DictReader(io.StringIO(tune("--from", tmp_path, "--format", "csv").stdout)))
    markdown = tune("--from", tmp_path, "--format", "markdown").stdout
    for entry in document["entries"]:
        (row,) = [r for r in table if (r["name"], r["strategy"]) == (entry["name"], entry["strategy"])]
        assert float(row["speedup"]) == entry["speedup"] and float(row["before_us"]) == entry["before_us"]
        for shown in (text.stdout, markdown):
            assert f"{entry['speedup']:g}" in shown and f"{entry['time_saved_pct']:g}" in shown
    saved = [float(r["before_us"]) - float(r["after_us"]) for r in table]
    assert saved == sorted(saved, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--mode is missing"),
        (["--from", "{folder}/none"], 3, "no such file or folder"),
        (["--from", "{folder}"], 3, "no aoe_result"),
        (["--from", "{folder}", "more"], 2, "take nothing else"),
        (["--from", "{folder}", "-o", "{folder}/there"], 2, "--force"),
    ],
)
def test_errors_teach(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "there").write_text("")
    done = tune(*(a.format(folder=tmp_path) for a in arguments))
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "there").read_text() == ""


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


# ---- knowledge bases ----

MATMUL = "Ascend910B3_20_AiCore_MatMulV3_runtime_kb.json"


def record(m: int, base: int, number: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "info_dict": {"m": m, "n": 64, "trans": False},
        "knowledge": {"baseM": base, "depth": 2, **more},
        "op": "MatMulV3",
        "version": 0,
    }


def bank(folder: Path, records: list[Any], name: str = MATMUL, end: str = "\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    (folder / name).write_text(end.join(lines), "utf-8", newline="")
    return folder


def test_what_changed_in_a_bank(tmp_path: Path) -> None:
    """All records have one id; order, spelling of numbers and line ends do not matter."""
    before = bank(tmp_path / "a", [record(16, 64), record(32, 64), record(48, 64), "{}"], end="\r\n")
    same = json.dumps(record(32, 64)).replace('"n": 64', '"n": 64.0')
    after = bank(tmp_path / "b", ["\ufeff" + same, record(48, 128, dbL0A=1), record(80, 64)])
    found = compare(read_bank(before), read_bank(after))
    assert (found.records_before, found.records_after, found.unchanged) == (3, 3, 1)
    by_kind = {c.change: c for c in found.changes}
    assert json.loads(by_kind["removed"].info)["m"] == 16
    assert json.loads(by_kind["added"].info)["m"] == 80
    moved = [(f.field, f.before, f.after) for f in by_kind["changed"].fields]
    assert moved == [("baseM", "64", "128"), ("dbL0A", None, "1")]
    assert {(c.soc, c.cores, c.op) for c in found.changes} == {("Ascend910B3", 20, "MatMulV3")}
    assert found.warnings == ()


def test_true_is_not_one(tmp_path: Path) -> None:
    one, yes = record(16, 64), record(16, 64)
    one["info_dict"]["trans"], yes["info_dict"]["trans"] = 1, True
    found = compare(read_bank(bank(tmp_path / "a", [one])), read_bank(bank(tmp_path / "b", [yes])))
    assert sorted(c.change for c in found.changes) == ["added", "removed"]


def test_banks_with_faults(tmp_path: Path) -> None:
    broken = bank(tmp_path / "a", [record(16, 64), '{"id": 1, "info_d', record(16, 999), '["no record"]'])
    bank(broken, [record(16, 64)], name=MATMUL.replace("_20_", "_16_"))
    (broken / "notes.json").write_text("[]")
    found = read_bank(broken)
    assert len(found.records) == 2 and len(found.files) == 2
    said = "\n".join(found.faults())
    assert f"{MATMUL}:2, 4: not a record" in said
    assert (
        f"{MATMUL}:3: cases that stand there before" in said
        and found.records[min(found.records)].knowledge["baseM"] == 64
    )
    warnings = compare(found, found).warnings
    assert any("tuned for 16 and 20 cores" in w for w in warnings)
    with pytest.raises(InputError, match="not a runtime knowledge base"):
        read_bank(broken / "notes.json")


def test_claims_that_the_bank_does_not_show(tmp_path: Path) -> None:
    """The result file says 2 added and 1 updated."""
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    file.write_text(json.dumps(LISTED))
    bank(tmp_path / "a", [record(16, 64)])
    bank(tmp_path / "b", [record(16, 64), record(32, 64)])
    wrong = tune("--from", file, "--diff", tmp_path / "a", tmp_path / "a")
    assert wrong.returncode == 0 and "was TUNE_BANK_PATH another one" in " ".join(wrong.stdout.split())
    right = json.loads(tune("--from", file, "--diff", tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    (warning,) = right["warnings"]
    assert "the bank shows 1: several operators may be one case" in warning
    assert right["bank"]["changes"][0]["change"] == "added"
    alone = json.loads(tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    assert alone == {"schema_version": "1.0", "bank": right["bank"]}
    shown = tune("--diff", tmp_path / "a", tmp_path / "b").stdout
    assert "1 → 2 records: 1 added, 0 changed, 0 removed, 1 unchanged" in shown
    assert "MatMulV3,added,Ascend910B3,20," in tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "csv").stdout
    assert "| MatMulV3 | added |" in tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "markdown").stdout


def test_two_run_directories_are_compared_by_their_newest_runs(tmp_path: Path) -> None:
    """Not by the snapshots of banks that lie in them."""
    for name, softmax in (("one", 32), ("two", 16)):
        for stamp in ("20260101", "20260102"):
            folder = tmp_path / name / "tune" / stamp
            bank(folder / "bank_before", [record(16, 64)])
            (folder / "state.json").write_text("{}")
            text = json.dumps(LISTED).replace(": 32", f": {softmax}") if stamp == "20260102" else json.dumps(LISTED)
            (folder / "aoe_result_opat_20260101120000000_pid7.json").write_text(text)
    found = json.loads(tune("--diff", tmp_path / "one", tmp_path / "two", "--format", "json").stdout)["results"]
    assert [(c["name"], c["before_us"], c["after_us"]) for c in found["changes"]] == [("net/softmax", 32, 16)]


# ---- results against results, any content, any damage --------------------------------------------------------------


def test_what_two_runs_tuned_differently(tmp_path: Path) -> None:
    """a: 80 → 32 and 80 → 20; b stays; c is gone; d is new."""

    def write(name: str, operators: dict[str, tuple[float, float]]) -> Path:
        listed = [{"op_name": n, "op_type": "T", "tune_performance": {"Schedule": times(*t, None, update_mode="add")}}
                  for n, t in operators.items()]  # fmt: skip
        file = tmp_path / f"aoe_result_opat_{name}_pid1.json"
        opat = {"opat_tuning_result": "tuning successful", "repo_modified_operators": listed}
        file.write_text(json.dumps({"report_1_1": [BASIC, {"OPAT": opat}]}))
        return file

    first = write("1", {"a": (80, 32), "b": (9, 6), "c": (4, 2)})
    second = write("2", {"a": (80, 20), "b": (9, 6), "d": (5, 1)})
    found = compare_results(read_results([first]), read_results([second]))
    assert [(c.name, c.change, c.before_us, c.after_us, c.speedup) for c in found.changes] == [
        ("a", "changed", 32, 20, 1.6), ("c", "removed", 2, None, None), ("d", "added", None, 1, None)
    ]  # fmt: skip
    assert found.unchanged == 1
    done = tune("--diff", first, second)
    assert done.returncode == 0 and "1 added, 1 changed, 1 removed, 1 tuned to the same time" in done.stdout
    assert json.loads(tune("--diff", first, second, "--format", "json").stdout)["results"]["unchanged"] == 1


NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12)
TIMES = st.floats(0.001, 1e6, allow_nan=False).map(lambda x: round(x, 3))
TYPES = st.lists(st.sampled_from(["MatMulV2", "Add", "Conv2D"]), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(NAMES, TYPES, TIMES, TIMES, st.booleans()), max_size=5, unique_by=lambda o: o[0]),
       st.sampled_from(["v1", "v2", "v3"]))  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@given(st.integers(0, 2**32 - 1), st.sampled_from([LISTED, GROUPED]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_no_success(tmp_path: Path, seed: int, whole: Any) -> None:
    """Bytes cut out, doubled or changed: an error or a document, and no success that the whole file does not have."""
    source = random.Random(seed)
    data = bytearray(json.dumps(whole).encode())
    for _ in range(source.randint(1, 4)):
        at, kind = source.randrange(len(data)), source.randrange(3)
        if kind == 0:
            del data[at : at + source.randint(1, 40)]
        elif kind == 1:
            data[at:at] = data[at : at + source.randint(1, 40)]
        else:
            data[at] = source.randrange(256)
    file = tmp_path / "aoe_result_opat_1_pid1.json"
    file.write_bytes(bytes(data))
    try:
        found = read_results([file])
    except InputError:
        return
    if found.status == "successful":
        assert not found.recovered
        assert b"success" in bytes(data)


def test_the_document_follows_its_schema(tmp_path: Path) -> None:
    assert json.loads(json.dumps(tuning_schema())) == shipped_schema("tuning")
    file = tmp_path / "aoe_result_opat_1_pid1.json"
    file.write_text(json.dumps(LISTED))
    jsonschema.validate(json.loads(tune("--from", file, "--format", "json").stdout), shipped_schema("tuning"))

"""What was run, as manifests, profilers and ranks tell it, and which ranks lack what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from build import K, analyze_path, ascend_pt
from clusters import large_job, result_of
from msgspec.structs import replace

from npuperf.analyze.work import ProcessFingerprint, _dated, _utc, name_places, shared_workload
from npuperf.base.messages import say
from npuperf.model.chip import Cores
from npuperf.model.parts import GroupSize, Workload
from npuperf.show.formats import View, render

MANIFEST: dict[str, Any] = {
    "command": ["python", "train.py", "--lr", "0.1"],
    "git": {"commit": "abc123", "dirty": False},
    "soc": "Ascend910B1",
    "versions": {"cann": "8.3.RC1", "torch": "2.7.1", "torch_npu": "2.7.1.post2"},
    "environment": {
        "TASK_QUEUE_ENABLE": "2", "HCCL_IF_IP": "10.0.0.1", "ASCEND_HOME_PATH": "/usr/local/Ascend", "RANK": "0",
        "LOCAL_RANK": "0", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "ASCEND_RT_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "", "HCCL_BUFFSIZE": "200", "SECRET_TOKEN": "x",
    },
    "options": {"stack": True, "shapes": True, "memory": False, "gc_threshold": None, "aic_metrics": "PipeUtilization",
                "activities": ["CPU", "NPU"], "active": 10},
    "overhead": {"inside_ns": 11_000_000, "outside_ns": 10_000_000, "inside": 2, "outside": 9},
}  # fmt: skip


#: When the first kernel of :mod:`build` runs: ``date -u -d @1736413971``.
BEGUN = "2025-01-09T09:12:51Z"


def recorded(run: Path, manifest: dict[str, Any] | None, **info: Any) -> Workload:
    folder = ascend_pt(run / "raw", [K(0, 5_000)])
    if manifest is not None:
        (run / "npuperf.json").write_text(json.dumps(manifest))
    (folder / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0, **info}))
    return analyze_path(run).workload


def test_the_manifest_tells_what_was_run(tmp_path: Path) -> None:
    found = recorded(tmp_path, MANIFEST)
    assert found == Workload(
        command=("python", "train.py", "--lr", "0.1"),
        git_commit="abc123",
        recorded_at=BEGUN,
        soc="Ascend910B1",
        cann="8.3.RC1",
        torch="2.7.1",
        torch_npu="2.7.1.post2",
        options=("activities=cpu,npu", "aic_metrics=PipeUtilization", "gc_threshold=off", "memory=off", "shapes=on",
                 "stack=on"),
        world_size=8,
        recording_overhead=1.1,
        settings=("HCCL_BUFFSIZE=200", "TASK_QUEUE_ENABLE=2"),
    )  # fmt: skip


def test_the_profiler_has_the_last_word_in_the_same_words(tmp_path: Path) -> None:
    config = {
        "common_config": {"with_stack": False, "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]},
        "experimental_config": {
            "_profiler_level": "Level1",
            "_aic_metrics": "ACL_AICORE_MEMORY_ACCESS",
            "_host_sys": [],
        },
    }
    found = recorded(tmp_path, {**MANIFEST, "git": {"commit": "abc123", "dirty": True}}, config=config)
    assert (found.level, found.git_commit) == ("Level1", "abc123-dirty")
    assert found.options == (
        "activities=cpu,npu", "aic_metrics=MemoryAccess", "gc_threshold=off", "host_sys=off", "memory=off", "shapes=on",
        "stack=off",
    )  # fmt: skip


def test_a_clock_that_counts_from_the_start_of_the_machine_leaves_the_date_to_the_manifest() -> None:
    own = Workload(recorded_at=_utc("2026-11-26T20:00:00+02:00"))
    assert _dated(own, [5_000_000_000]) == Workload(recorded_at="2026-11-26T18:00:00Z")
    assert _dated(own, [5_000_000_000, 1_736_413_971_000_000_000]).recorded_at == BEGUN
    nothing = (None, "", "yesterday", "2026-11-26T20:00:00", "0001-01-01T00:00:00+14:00")
    assert [_utc(text) for text in nothing] == [None] * 5


def test_reports_say_what_was_run(tmp_path: Path) -> None:
    git = {"commit": "abc123", "dirty": True}
    recorded(tmp_path / "my run", {**MANIFEST, "git": git, "cores_cube": 24, "cores_vector": 48})
    found = analyze_path(tmp_path / "my run")
    told = {
        "command": "python train.py --lr 0.1",
        "commit": "abc123, with changes that were not committed",
        "recorded": "2025-01-09 09:12 UTC",
        "versions": "torch 2.7.1, torch_npu 2.7.1.post2, CANN 8.3.RC1",
        "chip": "Ascend910B1 (24 cube and 48 vector cores)",
        "ranks": "0, of 8 in all",
        "settings": "HCCL_BUFFSIZE=200, TASK_QUEUE_ENABLE=2",
    }
    markdown, screen = render(found, "markdown"), render(found, "text", View(full=True, width=160))
    assert {label: said for label, said in told.items() if f"- **{label}** {said}\n" not in markdown} == {}
    rows = (re.split(" {2,}", line.strip(), maxsplit=1) for line in screen.partition("what was run\n")[2].splitlines())
    assert told.items() <= dict(row for row in rows if len(row) == 2).items()
    assert "not in the files" not in markdown + screen
    recorded(tmp_path / "bare", None)
    assert "**not in the files** command, commit, versions" in render(analyze_path(tmp_path / "bare"), "markdown")


def test_commands_to_go_on_with_name_the_true_path() -> None:
    """As a shell takes it; what is read by programs has it, too, beside the sentence as translators know it."""
    job = result_of(large_job(96))
    there = replace(job, input=replace(job.input, path="my job"))
    assert "npuperf analyze 'my job' --rank 77" in render(there, "text", View(width=200))
    roots = json.loads(render(there, "json"))["cluster"]["roots"]
    with_advice = [root for root in roots if "--rank" in (root["next"] or "")]
    assert with_advice and all("npuperf analyze 'my job' --rank" in root["next"] for root in with_advice)
    assert {"npuperf analyze PATH" in root["messages"]["next"]["id"] for root in with_advice} == {True}
    assert "analyze PATH" not in render(there, "text", View(full=True)) + render(there, "markdown", View(full=True))


def test_what_nobody_tells_is_empty(tmp_path: Path) -> None:
    assert recorded(tmp_path, None) == Workload(recorded_at=BEGUN)
    odd = {"git": "abc", "options": 7, "command": "train.py", "environment": []}
    assert recorded(tmp_path / "odd", odd) == Workload(recorded_at=BEGUN)


def test_ranks_put_together_what_they_know() -> None:
    """The first that knows counts; clocks, costs and groups are those of all."""
    one = ProcessFingerprint(
        Workload(soc="A", frequency_mhz=(1650, 1800), recording_overhead=1.2, world_size=4),
        frozenset({("tp", (0, 1)), ("dp", (0, 2)), ("pp", (0,))}),
    )
    other = ProcessFingerprint(
        Workload(soc="B", cann="8.3", frequency_mhz=(1000, 1650), recording_overhead=1.1, kineto=True),
        frozenset({("tp", (2, 3)), ("dp", (0, 2)), ("tp", (4, 5, 6))}),
    )
    assert shared_workload([one, other]) == Workload(
        soc="A",
        cann="8.3",
        world_size=4,
        groups=(
            GroupSize(kind="dp", groups=1, ranks=2),
            GroupSize(kind="tp", groups=2, ranks=2),
            GroupSize(kind="tp", groups=1, ranks=3),
        ),
        frequency_mhz=(1000, 1800),
        recording_overhead=1.2,
        kineto=True,
    )
    assert shared_workload([]) == Workload()


# --- notes about missing files say of which ranks, where others have the file -----------------------------------------

TABLE = say("{what}: {consequence}", what=say("no table"), consequence=say("types are unknown"))
TRACE = say("{what}: {consequence}", what=say("no trace"), consequence=say("launches are unknown"))


@pytest.mark.parametrize(
    ("missing", "ranks", "said"),
    [
        ([[TABLE]], [{0}], ["no table: types are unknown"]),
        ([[TABLE], [TABLE]], [{0}, {1}], ["no table: types are unknown"]),
        ([[TABLE], []], [{0}, {1}], ["no table of rank 0: types are unknown"]),
        ([[], [TABLE], [TABLE]], [{0}, {3}, {1}], ["no table of ranks 1, 3: types are unknown"]),
        ([[TRACE], [TABLE], [TABLE, TRACE]], [{0}, {1}, {2}],
         ["no trace of ranks 0, 2: launches are unknown", "no table of ranks 1, 2: types are unknown"]),
        ([[], [TABLE]], [{0}, set()], ["no table in /b: types are unknown"]),
    ],
)  # fmt: skip
def test_who_lacks_what(missing: list[list[object]], ranks: list[set[int]], said: list[str]) -> None:
    roots = [Path(f"/{name}") for name in "abc"[: len(missing)]]
    assert [str(note) for note in name_places(missing, ranks, roots)] == said  # type: ignore[arg-type]


def test_two_ranks_of_which_one_has_no_table(tmp_path: Path) -> None:
    for rank in range(2):
        folder = ascend_pt(tmp_path / str(rank), [K(1_000 + 20_000 * i, 9_000, f"k{i}", "MatMul", "AI_CORE", block=4)
                                                  for i in range(9)])  # fmt: skip
        (info,) = folder.glob("profiler_info_0.json")
        info.unlink()
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        if rank == 1:
            (table,) = folder.rglob("kernel_details.csv")
            table.unlink()
    said = [str(note) for note in analyze_path(tmp_path).input.missing]
    assert [note for note in said if note.startswith("no kernel_details.csv")] == [
        "no kernel_details.csv or op_summary*.csv of rank 1: core types, Block Dim and hardware counters are unknown "
        "(export with ExportType.Text, or msprof --export=on)"
    ]


@pytest.mark.parametrize(("told", "lacking"), [({}, 1), ({"cores": Cores(24, 48)}, 0)])
def test_cores_that_the_user_names_are_not_missing(tmp_path: Path, told: dict[str, Any], lacking: int) -> None:
    folder = ascend_pt(tmp_path, [K(1_000, 9_000, "k", "MatMul", "AI_CORE", block=4)])
    said = [str(note).split(":")[0] for note in analyze_path(folder, **told).input.missing]
    assert said == ["no PROF_*/device_*/info.json.*"] * lacking


def test_ranks_that_cannot_be_read_lack_nothing(tmp_path: Path) -> None:
    """So that what the only other one lacks is lacking everywhere."""
    for rank in range(2):
        folder = ascend_pt(tmp_path / str(rank), [K(1_000, 9_000, "k", "MatMul", "AI_CORE", block=4)])
        for file in (f for f in folder.rglob("*") if rank and f.is_file()):
            file.write_text("no data")
    result = analyze_path(tmp_path)
    assert result.input.warnings and [str(note).split(":")[0] for note in result.input.missing] == [
        "no PROF_*/device_*/info.json.*"
    ]


REAL = Path(__file__).parents[3] / "shared" / "data" / "msinsight" / "cluster4"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
def test_a_real_job() -> None:
    """Ranks 0 and 2 have kernel tables, none has a trace."""
    said = [str(note).split(":")[0] for note in analyze_path(REAL).input.missing]
    assert "no kernel_details.csv or op_summary*.csv of ranks 1, 3" in said
    assert "no trace_view.json, msprof_*.json or .db" in said

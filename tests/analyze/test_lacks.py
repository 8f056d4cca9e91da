"""Notes about missing files say of which ranks, where others have the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt

from npuperf.analyze.work import name_places
from npuperf.base.messages import say

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


REAL = Path(__file__).parents[3] / "shared" / "data" / "msinsight" / "cluster4"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
def test_a_real_job() -> None:
    """Ranks 0 and 2 have kernel tables, none has a trace."""
    said = [str(note).split(":")[0] for note in analyze_path(REAL).input.missing]
    assert "no kernel_details.csv or op_summary*.csv of ranks 1, 3" in said
    assert "no trace_view.json, msprof_*.json or .db" in said

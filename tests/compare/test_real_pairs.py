"""Two real ranks side by side: the compute part of the waterfall is what the table of kernels says by itself."""

from __future__ import annotations

import csv
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from npuperf.advise import load_thresholds
from npuperf.analyze.request import AnalyzeRequest
from npuperf.analyze.run import run
from npuperf.compare.compare import compare_results

DATA = Path(__file__).parents[3] / "shared" / "data" / "msinsight" / "text" / "level1"
RANKS = [DATA / f"rank{rank}_ascend_pt" for rank in (0, 1)]


def by_type(folder: Path) -> dict[str, tuple[int, float]]:
    """Duration (ns) and kernels of each type but communication; no two kernels of these ranks overlap."""
    (table,) = folder.rglob("kernel_details.csv")
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["Type"].startswith("hcom"):
                ns, count = found[row["Type"]]
                found[row["Type"]] = (ns + int(Decimal(row["Duration(us)"]) * 1000), count + 1)
    return dict(found)


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
def test_compute_is_what_the_table_of_kernels_says() -> None:
    old, new = (run(AnalyzeRequest(path=folder)) for folder in RANKS)
    found = compare_results([old], [new], load_thresholds())
    sums = defaultdict(lambda: [0, 0.0, 0, 0.0])
    for part in found.waterfall:
        if part.part == "compute":
            row = sums[(part.key or "").partition(" ")[0]]
            for place, value in enumerate((part.old_ns, part.old_count, part.new_ns, part.new_count)):
                row[place] += value
    tables = [by_type(folder) for folder in RANKS]
    expected = {t: [*tables[0].get(t, (0, 0)), *tables[1].get(t, (0, 0))] for t in {**tables[0], **tables[1]}}
    assert dict(sums) == expected
    assert found.delta_ns == sum(part.delta_ns for part in found.waterfall)
    assert found.verdict == "cannot_tell"  # one step each

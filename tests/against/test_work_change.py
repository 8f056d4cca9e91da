"""Whether an operator's kernels became slower at the same work, or do more: by their shapes, else by useful FLOP."""

from __future__ import annotations

import csv
from fractions import Fraction
from math import isqrt
from pathlib import Path

import pytest
from build import analyze_path
from digests import digest_of
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.shifts import operator_rows, work_changes
from npuperf.base.messages import text
from npuperf.model.comparison import Comparison
from npuperf.model.parts import Digest, PartSum, TypeSteps
from npuperf.show.comparison_text import work_line

CLUSTER = Path(__file__).resolve().parents[3] / "shared" / "data" / "msinsight" / "cluster4"
#: Steps of the same length but for a little, so that a change of half of it is beyond doubt.
STEPS = (1_000_000, 1_001_000, 999_000, 1_000_500, 999_500, 1_000_200, 999_800, 1_000_100)


def side(
    kernels: dict[str, int], flop: tuple[float, float] | None = None, slower: float = 1.0, keyed_by: str = "shapes"
) -> Digest:
    """A run of one operator type whose ``kernels`` have so many of each shape in all steps."""
    ns = [round(step * slower) for step in STEPS]
    count = sum(kernels.values()) // len(STEPS)
    return replace(
        digest_of({}, STEPS),
        keyed_by=keyed_by,
        parts=[PartSum(part="compute", key=f"MatMulV2{shapes}", ns=sum(ns), count=n) for shapes, n in kernels.items()],
        types=[TypeSteps(type="MatMulV2", ns=ns, count=[count] * len(STEPS), useful_flop=flop)],
    )


SAME = {" [64,64;64,64] FLOAT16": 16, " [64,128;128,64] FLOAT16": 8}


def test_the_same_shapes_are_the_same_work() -> None:
    """Twice as many kernels of each shape are the same work per kernel; other shares of shapes are not."""
    assert work_changes([side(SAME)], [side(SAME, (5.0, 9.0))]) == {"MatMulV2": (1.0, 1.0)}
    assert work_changes([side(SAME)], [side({name: 2 * n for name, n in SAME.items()})]) == {"MatMulV2": (1.0, 1.0)}
    assert work_changes([side(SAME)], [side(dict.fromkeys(SAME, 8))]) == {}
    assert work_changes([side({"": 8})], [side({"": 8})]) == {}, "without shapes nothing is known"
    assert work_changes([side(SAME, keyed_by="type")], [side(SAME, keyed_by="type")]) == {}


def test_else_useful_flop_tell() -> None:
    """300 to 330 FLOP of 24 kernels and 1000 of 16: 12.5 to 13.75 each, and 62.5."""
    new = {" [128,128;128,64] FLOAT16": 16}
    found = work_changes([side(SAME, (300.0, 330.0))], [side(new, (1000.0, 1000.0))])
    assert found == {"MatMulV2": (pytest.approx(62.5 / 13.75), pytest.approx(62.5 / 12.5))}
    assert work_changes([side(SAME)], [side(new, (1000.0, 1000.0))]) == {}
    assert work_changes([side(SAME, (0.0, 0.0))], [side(new, (1000.0, 1000.0))]) == {}


def said(old: Digest, new: Digest) -> str | None:
    rows, _ = operator_rows([old], [new], load_thresholds())
    found = work_line(Comparison(old="a", new="b", verdict="worse", rows=tuple(rows)))
    return None if found is None else text(found)


def test_it_is_said_of_what_changed_for_certain() -> None:
    new = {" [128,128;128,64] FLOAT16": 16}
    assert said(side(SAME), side(SAME, slower=1.5)) == "slower at the same work: MatMulV2"
    assert said(side(SAME), side(SAME, slower=0.5)) == "faster at the same work: MatMulV2"
    twice = said(side(SAME), side({name: 2 * n for name, n in SAME.items()}, slower=2))
    assert twice == "as much work per kernel, but another number of kernels: MatMulV2 3 → 6"
    more = said(side(SAME, (24.0, 24.0)), side(new, (32.0, 32.0), slower=1.5))
    assert more == "other work per kernel: MatMulV2 × 2.00"
    bounds = said(side(SAME, (24.0, 48.0)), side(new, (64.0, 64.0), slower=1.5))
    assert bounds == "other work per kernel: MatMulV2 × 2.00 to 4.00"
    assert said(side(SAME, (24.0, 96.0)), side(new, (32.0, 32.0), slower=1.5)) is None, "half or twice as much"
    assert said(side(SAME), side(SAME)) is None


@pytest.mark.skipif(not CLUSTER.is_dir(), reason="the shared recordings are not here")
def test_two_stages_of_a_real_pipeline() -> None:
    """The last stage has the LM head: products of its MatMulV3 are larger, as 2mnk of every row in the files says."""

    def per_kernel(folder: Path) -> Fraction:
        (table,) = folder.rglob("kernel_details.csv")
        flop, kernels = 0, 0
        with table.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["Type"] == "MatMulV3":
                    a, b = (list(map(int, one.split(","))) for one in row["Input Shapes"].strip('"').split(";")[:2])
                    m, n = map(int, row["Output Shapes"].strip('"').split(","))
                    flop += 2 * m * n * isqrt(a[0] * a[1] * b[0] * b[1] // (m * n))
                    kernels += 1
        return Fraction(flop, kernels)

    first, last = CLUSTER / "rank_0_ascend_pt", CLUSTER / "rank_2_ascend_pt"
    found = analyze_path(last, baseline=(str(first),), allow_mismatch=True, no_cache=True).comparison
    assert found is not None
    row = next(row for row in found.rows if row.name == "MatMulV3")
    by_hand = float(per_kernel(last) / per_kernel(first))
    assert by_hand > 1.5
    assert row.work_change == (pytest.approx(by_hand, rel=1e-9), pytest.approx(by_hand, rel=1e-9))

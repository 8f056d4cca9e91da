"""What is shown of roofs: the planned profile of efficiency_plan.py, whose roofs are worked out by hand here.

20 cores at 1800 MHz: 294.912 TFLOPS; L2 36 000e6 · 196 = 7.056e12 bytes/s. A product asks for 1.342 177 28 TFLOP, that
is 4.551 111 ms of its 10; its 2.6 GB take less at HBM's 1.6e12. The addition moves 6 MiB: 0.9 us from L2, 3.9 us from
HBM.
"""

from __future__ import annotations

import csv
import io
import random
import re
from math import log10
from pathlib import Path

import pytest
from build import analyze_path
from conftest import run_cli
from efficiency_plan import FITTING, MS, Product, table
from msgspec.structs import replace

from npuperf.model.result import Result
from npuperf.show.efficiency_charts import roofline_chart
from npuperf.show.sheet import Whereabouts


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("plan"), Product(), Product(), Product(unit="scalar"))


@pytest.fixture(scope="module")
def result(path: Path) -> Result:
    return analyze_path(path)


def drawn(result: Result) -> str:
    chart = roofline_chart(result, Whereabouts([], result.devices))
    assert chart is not None and chart.svg is not None and chart.topic == "efficiency"
    return str(chart.svg)


def test_the_table_says_what_limits_and_what_could_be_won(path: Path) -> None:
    done = run_cli(["analyze", str(path), "--no-cache", "--format", "csv", "--table", "roofline"])
    product, add = csv.DictReader(io.StringIO(done.stdout))
    assert (product["type"], product["bound_by"], product["count"]) == ("MatMulV3", "cube", "3")
    assert float(product["roof_share"]) == pytest.approx(1.34217728e12 / 294.912e12 / 0.01, rel=1e-9)
    most = 3 * (10 * MS - 4_551_112)
    assert (product["recoverable_least_ns"], product["recoverable_most_ns"]) == ("0", str(most))
    size = 2 * (2 * 1024 * 640_000 + 1024 * 1024)
    assert float(product["intensity"]) == pytest.approx(1.34217728e12 / size, rel=1e-9)
    assert float(product["flop_per_s"]) == pytest.approx(134.217728e12, rel=1e-9)
    # a thousandth of its time: no roof is near
    assert (add["type"], add["bound_by"], add["recoverable_most_ns"]) == ("Add", "unknown", str(5 * MS - 892))
    assert float(add["roof_share"]) == pytest.approx(6 * 2**20 / 1.6e12 / 0.005, rel=1e-9)


def test_people_read_words(path: Path) -> None:
    shown = run_cli(["analyze", str(path), "--no-cache", "--table", "roofline"], columns=120).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("MatMulV3")]
    assert line.split() == [
        "MatMulV3",
        "AI_CORE",
        "3",
        "30.000",
        "cube",
        "45.5",
        "0.000",
        "16.347",
        "134.2",
        "512.2",
    ] or ("16.347" in line and "45.5" in line and "cube" in line)


def test_operators_lie_below_the_roofs_where_their_work_is(result: Result) -> None:
    """By the labels of the axes: a power of ten each."""
    assert result.judged_operators is None
    faster = [
        replace(one, flop_per_s=1e11) if one.type == "Add" else one for one in result.operators
    ]  # or it is left out
    svg = drawn(replace(result, operators=faster))
    for one in svg.split("<svg ")[-2:]:  # wide and narrow
        axis = re.findall(r'y="([\d.]+)"[^>]*>([\d.]+) ([TGM])FLOPS<', one)
        assert {"T", "G"} <= {unit for _, _, unit in axis} and all(v in ("1", "10", "100") for _, v, _ in axis)
        ys = {float(v) * 10 ** {"T": 12, "G": 9, "M": 6}[unit]: float(y) - 4 for y, v, unit in axis}
        (low, y_low), (high, y_high) = sorted(ys.items())[:2]
        per_decade = (y_low - y_high) / log10(high / low)
        circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', one)
        assert len(circles) == 2
        assert float(circles[0][1]) == pytest.approx(y_low - per_decade * log10(134.217728e12 / low), abs=0.1)
        radii = [float(radius) for _, _, radius in circles]
        assert radii[1] / radii[0] == pytest.approx((5 / 30) ** 0.5, rel=0.01)  # as large as its time
        levels = [float(y) for y in re.findall(r'd="M [\d.]+ ([\d.]+) H [\d.]+" class="roof r-level"', one)]
        assert levels[0] == pytest.approx(y_low - per_decade * log10(294.912e12 / low), abs=0.1)
        assert all(float(y) > levels[0] for _, y, _ in circles)


@pytest.mark.parametrize("seed", range(8))
def test_names_lie_upon_nothing_else(result: Result, seed: int) -> None:
    """Operators anywhere below the roofs: whatever is named, its letters meet no other text, no roof, no other circle.

    Where roofs are named may not be free: of their names it is asked for that they do not meet each other.
    """
    made = random.Random(seed)
    operators = [
        replace(result.operators[0], type=f"Kind{'x' * made.randrange(14)}{i}", total_ns=made.randrange(10**5, 10**8),
                share=0.05, intensity=10 ** made.uniform(-1, 3.2), flop_per_s=10 ** made.uniform(10.5, 14.4))
        for i in range(made.randrange(2, 14))
    ]  # fmt: skip
    svg = drawn(replace(result, operators=operators))
    for one in svg.split("<svg ")[-2:]:  # wide and narrow
        circles = [tuple(map(float, c)) for c in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', one)]
        texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="plot-text( strong| end)">([^<]*)<', one)
        boxes = []
        for x, y, kind, said in texts:
            if kind == " end" and "/s" not in said and "FP16" not in said:
                continue  # of the axes
            wide = len(said) * 12 * 0.6 if kind == " end" else len(said) * 12 * 0.65
            left = float(x) - wide if kind == " end" else float(x)
            boxes.append((kind == " strong", (left, left + wide, float(y) - 12, float(y))))
        found = re.findall(r'd="M ([\d.]+) ([\d.]+) (?:L ([\d.]+) ([\d.]+)|H ([\d.]+))" class="roof', one)
        lines = [(float(a), float(b), float(c or e), float(d or b)) for a, b, c, d, e in found]
        assert len(lines) == 4
        for at, (strong, box) in enumerate(boxes):
            for _, other in boxes[:at]:
                assert not meet(box, other)
            if strong:
                own = [c for c in circles if meet(box, (c[0] - c[2] * 0.6, c[0] + c[2] * 0.6, c[1] - c[2] * 0.6,
                                                        c[1] + c[2] * 0.6))]  # fmt: skip
                assert not own
                for x, y, x_end, y_end in lines:
                    for step in range(1001):  # along the roof
                        at_x, at_y = x + (x_end - x) * step / 1000, y + (y_end - y) * step / 1000
                        assert not (box[0] < at_x < box[1] and box[2] < at_y < box[3])


Box = tuple[float, float, float, float]


def meet(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def test_every_operator_says_what_it_is(result: Result) -> None:
    svg = drawn(result)
    assert "MatMulV3, AI_CORE: 30.00 ms" in svg and "limited by cube, nearest roof 45.5 %" in svg
    assert "could win up to 16.3 ms" in svg
    assert 'style="' not in svg


def test_there_is_no_picture_without_roofs_or_of_different_chips(result: Result, tmp_path: Path) -> None:
    nothing = replace(result, devices=[replace(device, efficiency=None, judged=None) for device in result.devices])
    assert roofline_chart(nothing, Whereabouts([])) is None
    (device,) = result.devices
    found = device.window_efficiency
    assert found is not None and found.roofs is not None
    slower = replace(found, roofs=replace(found.roofs, cube_flop_per_s=found.roofs.cube_flop_per_s / 2))
    judged = device.judged and replace(device.judged, efficiency=slower)
    other = replace(device, efficiency=slower, judged=judged)
    assert roofline_chart(replace(result, devices=[device, other]), Whereabouts([])) is None
    without = table(tmp_path, Product(FITTING), counters=False)
    shown = run_cli(["analyze", str(without), "--no-cache", "--table", "roofline"]).stdout
    assert "no rows, as nothing tells the peak of the cube cores" in " ".join(shown.split())

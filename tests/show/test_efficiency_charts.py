"""Efficiency on the page and in notebooks: bars as wide as the parts that were planned, and nothing of a name's own."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from build import analyze_path
from efficiency_plan import BUSY, PEAK, USEFUL, WHOLE, Product, table
from msgspec.structs import replace

from npuperf.model.result import Result
from npuperf.show.charts import charts_of
from npuperf.show.formats import View, render
from npuperf.show.notebook import result_html

HOSTILE = "</title></svg><script>alert(1)</script>\"' onload=x"
#: In thousandths of the whole, from left to right.
ENDS = [
    1000 * 3 * USEFUL / WHOLE,
    1000 * 3 * BUSY / WHOLE,
    1000 * 0.03 * PEAK / WHOLE,
    1000 * 0.035 * PEAK / WHOLE,
    1000,
]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = table(tmp_path_factory.mktemp("plan"), Product(), Product(), Product(unit="scalar"))
    return analyze_path(path, no_cache=True)


def drawn(result: Result) -> list[list[ElementTree.Element]]:
    """The pieces of every row."""
    (chart,) = [chart for chart in charts_of(result) if chart.id == "efficiency"]
    body = ElementTree.fromstring(str(chart.svg))
    return [list(svg.iter("rect")) for svg in body.iter("svg") if svg.get("class") == "bar"]


def ends(piece: ElementTree.Element) -> tuple[float, float]:
    left = float(piece.get("x", ""))
    return left, left + float(piece.get("width", ""))


def test_one_bar_has_all_parts_and_each_begins_where_the_one_before_ends(result: Result) -> None:
    whole, *single = drawn(result)
    assert [ends(piece)[1] for piece in whole] == pytest.approx(ENDS, abs=0.02)
    assert [ends(piece)[0] for piece in whole] == pytest.approx([0, *ENDS[:-1]], abs=0.02)
    assert [ends(piece) for (piece,) in single] == [ends(piece) for piece in whole]
    told = [piece.findtext("title") for piece in whole]
    assert told == [piece.findtext("title") for (piece,) in single]
    assert told[0] == "useful: 4.027 TFLOP, 13.65 ms (34.1 %)"
    assert told[2] == "cube cores idle in kernels: 4.424 TFLOP, 15.00 ms (37.5 %)"
    assert len({piece.get("class") for piece in whole}) == 5


def test_every_device_has_a_bar_the_least_efficient_first(result: Result) -> None:
    (device,) = result.devices
    judged = device.judged
    assert judged is not None and judged.efficiency is not None
    worse = replace(judged, efficiency=replace(judged.efficiency, hfu=(0.1, 0.1)))
    several = replace(result, devices=[device, replace(device, run=HOSTILE, rank=3, judged=worse)])
    (chart,) = [chart for chart in charts_of(several) if chart.id == "efficiency"]
    names = [span.text or "" for span in ElementTree.fromstring(str(chart.svg)).iter("span")
             if span.get("class") == "bar-name"]  # fmt: skip
    assert "rank 3" in names[0] and names[1] == "device 0" and len(names) == 2 + 5
    assert HOSTILE in names[0] and "<script>" not in str(chart.svg)
    assert "<script>alert" not in render(several, "html", View()) and "<script>alert" not in result_html(several)


def test_the_page_and_the_notebook_have_it_where_it_is_known(result: Result) -> None:
    page, notebook = render(result, "html", View()), result_html(result)
    for shown in (page, notebook):
        assert "where peak × time goes" in shown and "cube cores busy 37.5 % of 294.9 TFLOPS" in shown
    (device,) = result.devices
    assert device.judged is not None
    judged = replace(device.judged, efficiency=None)
    without = replace(result, devices=[replace(device, efficiency=None, judged=judged, steps=[], phases=[])])
    for shown in (render(without, "html", View()), result_html(without)):
        assert "peak × time" not in shown and "cube cores busy" not in shown


def test_the_chart_is_the_same_wherever_it_was_recorded(result: Result, tmp_path: Path) -> None:
    """Without counters there is nothing to draw; with the chip's name, what shapes tell."""
    path = table(tmp_path, *[Product()] * 3, counters=False)
    assert not [chart for chart in charts_of(analyze_path(path, no_cache=True)) if chart.id == "efficiency"]
    whole, *_ = drawn(analyze_path(path, no_cache=True, soc="Ascend910B3"))
    assert ends(whole[0])[1] == pytest.approx(ENDS[0], abs=0.02)

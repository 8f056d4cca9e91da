"""Charts: what is drawn is what was measured, nothing is longer than its whole, names stay names."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from gettext import NullTranslations
from itertools import pairwise
from pathlib import Path
from random import Random
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from xml.etree import ElementTree

import msgspec
import pytest
from clusters import large_job, pipeline_job, result_of
from comparisons import DELTA, NEW_STEP, OLD_STEP, WORSE
from msgspec.structs import replace

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import Message, Quantity, Series, say
from npuperf.base.units import duration, percent
from npuperf.model.comparison import Compared, Comparison, Outcome
from npuperf.model.document import Document
from npuperf.model.job_result import PipelineStep, StageTrack
from npuperf.model.parts import Model
from npuperf.model.result import (
    Blame,
    CoresOverTime,
    Device,
    Elasticity,
    OddStep,
    Partition,
    Result,
    Spread,
    Step,
    TypicalStep,
    WhatIf,
)
from npuperf.model.tuning import BankChanges, BankDiff, Entry, ResultChanges, Saving, Tuning
from npuperf.show import language
from npuperf.show.charts import charts_of
from npuperf.show.formats import View, render
from npuperf.show.svg import STEP_PARTS, WIDTH, Chart, fitting, parts_of_step, plain, width_of

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
MS = 1_000_000
HOSTILE = "</title></svg><script>alert(1)</script>\"' onload=x \u202e\x1b[31m&amp;{n}%s"


@cache
def analyzed(name: str) -> Result:
    return run(AnalyzeRequest(path=SAMPLES / name))


def chart(document: Document, name: str) -> Chart:
    (found,) = [c for c in charts_of(document) if c.id == name]
    return found


def tree(found: Chart) -> ElementTree.Element:
    """The picture as XML: it is well-formed, or this raises."""
    assert found.svg is not None
    return ElementTree.fromstring(str(found.svg))


def rows_of(found: Chart) -> list[ElementTree.Element]:
    return [item for item in tree(found).iter("li") if item.find("svg[@class='bar']") is not None]


def words(row: ElementTree.Element, kind: str) -> str:
    return "".join(row.find(f"span[@class='bar-{kind}']").itertext())  # type: ignore[union-attr]


def pieces(row: ElementTree.Element) -> list[tuple[float, float]]:
    """From where to where each filled piece of a row is drawn, on 1,000 units."""
    drawn = [(float(r.get("x", "")), float(r.get("width", ""))) for r in row.iter("rect")]
    return [(x, x + width) for x, width in drawn]


def whiskers(row: ElementTree.Element) -> list[tuple[float, float]]:
    paths = [p.get("d", "") for p in row.iter("path") if p.get("class") == "whisker"]
    found = [re.match(r"M ([\d.]+) [\d.]+ H ([\d.]+)", d) for d in paths]
    return [(float(m[1]), float(m[2])) for m in found if m]


def partition(compute: int, transfer: int = 0, wait: int = 0, host: int = 0, rest: int = 0) -> Partition:
    return Partition(
        span_ns=compute + transfer + wait + host + rest, compute_ns=compute, comm_exposed_ns=transfer + wait,
        other_exposed_ns=0, idle_ns=host + rest, host_wait_ns=host, launch_latency_ns=0, dependency_wait_ns=0,
        unattributed_ns=rest, comm_transfer_ns=transfer, comm_wait_ns=wait,
    )  # fmt: skip


def stepped(device: Device, splits: list[Partition]) -> Device:
    at, steps = 0, []
    for number, split in enumerate(splits):
        steps.append(Step(step=number, start_ns=at, partition=split, verdict=device.verdict))
        at += split.span_ns
    return replace(device, steps=steps)


def alone(*splits: Partition, **more: Any) -> Result:
    """One device with these steps, and nothing else."""
    result = result_of(None)
    device = replace(stepped(result.devices[0], list(splits)), **more)
    return replace(result, devices=[device])


# --- one device -------------------------------------------------------------------------------------------------------


def test_parts_lie_one_behind_the_other_over_the_whole_width() -> None:
    split = partition(500 * MS, 200 * MS, 150 * MS, 100 * MS, 50 * MS)
    result = alone(partition=split)
    rows = rows_of(chart(result, "partition"))
    assert [pieces(row) for row in rows] == [[(0, 500)], [(500, 700)], [(700, 850)], [(850, 950)], [(950, 1000)]]
    assert [words(row, "value") for row in rows][:2] == ["500.00 ms (50.0 %)", "200.00 ms (20.0 %)"]


def test_a_part_has_the_number_that_the_report_has() -> None:
    result = analyzed("transformer_ascend_pt")
    screen = render(result, "markdown", View(language="en"))
    window = result.devices[0].window
    assert f"{100 * window.compute_ns / window.span_ns:.1f}" in screen
    said = [words(row, "value") for row in rows_of(chart(result, "partition"))]
    assert said[0] == f"{duration(window.compute_ns)} ({percent(window.compute_ns / window.span_ns)})"


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "micro_batch_ascend_pt"])
def test_parts_of_steps_add_up(name: str) -> None:
    """Of every analysis: what the chart takes for parts is all of a step, none of it twice."""
    for device in analyzed(name).devices:
        for step in device.steps:
            assert sum(parts_of_step(step.partition)) == step.partition.span_ns


def columns(found: Chart) -> list[list[float]]:
    """The heights of the parts of every column, from the bottom up, as a share of the picture's height."""
    groups = [g for g in tree(found).iter("g") if g.get("class") == "step"]
    return [[float(r.get("height", "")) / 240 for r in g.iter("rect") if r.get("class") != "odd"] for g in groups]


def test_columns_are_as_high_as_steps_are_long() -> None:
    result = alone(partition(600, 200, 0, 200), partition(300, 100), partition(1, 0, 0, 0, 999))
    found = columns(chart(result, "steps"))
    assert found[0] == pytest.approx([0.6, 0.2, 0.2], abs=1e-4)
    assert found[1] == pytest.approx([0.3, 0.1], abs=1e-4)
    assert sum(found[2]) == pytest.approx(1, abs=1e-4)


def test_many_steps_are_means_of_neighbours() -> None:
    """301 steps are 101 columns of 3, the last of one alone: 1 is 1, 100 three of 1, 2, 3 ns are 2."""
    result = alone(*[partition(1_000 * (1 + i % 3)) for i in range(301)])
    found = chart(result, "steps")
    heights = [sum(column) for column in columns(found)]
    assert heights[:-1] == pytest.approx([1.0] * 100, abs=1e-4) and heights[-1] == pytest.approx(0.5, abs=1e-4)
    assert "each column is the mean of 3 steps" in str(found.caption)


def test_unusual_steps_are_marked() -> None:
    spread = Spread(min_ns=1, median_ns=1, max_ns=1)
    odd = [OddStep(step=1, span_ns=9, why=say("longer"))]
    result = alone(partition(5), partition(9), typical_step=TypicalStep(steps=1, length=spread, phases=[], odd=odd))
    groups = [g for g in tree(chart(result, "steps")).iter("g") if g.get("class") == "step"]
    assert [sum(r.get("class") == "odd" for r in g.iter("rect")) for g in groups] == [0, 1]
    assert "unusual steps (1)" in str(chart(result, "steps").caption)


def change(expr: str, low: float, high: float, asked: bool = False) -> WhatIf:
    return WhatIf(
        expr=expr, span_ns=1, gain_pct=(low + high) / 2, gain_ns_per_step=(round(low * 1000), round(high * 1000)),
        gain_pct_interval=(low, high), gain_per="step", title=None, asked=asked, reason=None, rank=0, device=0,
    )  # fmt: skip


def test_what_is_saved_is_filled_to_the_least_and_a_line_to_the_most() -> None:
    result = replace(alone(), what_if=[change("host*0.5", 10, 20), change("comm*0", 0, 40), change("x", 0, 0)])
    rows = rows_of(chart(result, "what-if"))
    assert [words(row, "name") for row in rows] == ["comm*0", "host*0.5"]
    assert [pieces(row) for row in rows] == [[], [(0, 250)]]
    assert [whiskers(row) for row in rows] == [[(0, 1000)], [(250, 500)]]
    assert "1 other change saves nothing" in str(chart(result, "what-if").caption)
    assert [words(row, "value") for row in rows] == ["0–40.0 %", "10.0–20.0 %"]
    with language.speaking("zh"):
        assert [words(row, "value") for row in rows_of(chart(result, "what-if"))] == ["0–40.0 %", "10.0–20.0 %"]


def test_chinese_phases_have_chinese_colons() -> None:
    result = analyzed("transformer_ascend_pt")
    with language.speaking("zh"):
        names = [words(row, "name") for row in rows_of(chart(result, "typical"))]
    assert 3 * len(names) == len(result.devices[0].phases)  # in each of three steps
    assert all(re.fullmatch(r"[^:：]+：[^:：]+", name) for name in names), names


def test_phases_have_the_least_and_the_most_of_all_steps_beside_them() -> None:
    result = analyzed("transformer_ascend_pt")
    typical = result.devices[0].typical_step
    assert typical is not None
    said = [f"{duration(phase.length.min_ns)} to {duration(phase.length.max_ns)}" for phase in typical.phases]
    assert [words(row, "note") for row in rows_of(chart(result, "typical"))] == said


def test_elasticities_are_shares_of_the_width() -> None:
    verdict = replace(alone().verdict, elasticity=Elasticity(host=0.75, compute=-0.0, communication=0.2))
    rows = rows_of(chart(replace(alone(), verdict=verdict), "elasticity"))
    assert [pieces(row) for row in rows] == [[(0, 750)], [], [(0, 200)]]
    assert words(rows[0], "value") == "saves 7.5 %"


def test_blame_is_as_wide_as_it_is_long() -> None:
    blame = [
        Blame(cause="sync", name="aten::item", ns=300, count=1, where="train.py:7"),
        Blame(cause="sync", name="aten::item", ns=200, count=1, where="train.py:9"),
        Blame(cause="gc", name="gc", ns=500, count=1, where=None),
    ]
    wide = next(svg for svg in tree(chart(alone(blame=blame), "blame")).iter("svg"))
    drawn = [(float(r.get("x", "")), float(r.get("y", "")), float(r.get("width", ""))) for r in wide.iter("rect")]
    assert drawn == [(0, 0, 1040), (0, 30, 520), (0, 60, 520), (0, 90, 312), (312, 90, 208), (520, 30, 520),
                     (520, 60, 520)]  # fmt: skip


def test_operators_are_as_long_as_their_time() -> None:
    result = analyzed("transformer_ascend_pt")
    found = chart(result, "operators")
    rows = rows_of(found)
    ranked = sorted(result.operators, key=lambda o: -o.total_ns)
    assert len(rows) == 15
    for row, operator in zip(rows, ranked, strict=False):
        ((_, end),) = pieces(row)
        assert end == pytest.approx(WIDTH * operator.total_ns / ranked[0].total_ns, abs=0.01)
        assert words(row, "value") == f"{duration(operator.total_ns)} ({percent(operator.share)})"


def test_letters_fit_their_room() -> None:
    assert fitting("aten::linear", 1000, 13) == "aten::linear"
    assert fitting("ab", 5, 13) == "" and fitting("同步等待设备", 26, 13) == ""
    cut = fitting("a_long_name_of_an_operator", 90, 13)
    assert cut.endswith("…") and width_of(cut, 13) <= 90


# --- a job ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 99])
def test_stages_and_groups_add_up(count: int) -> None:
    cluster = replace(pipeline_job(), groups=pipeline_job().groups[:count])
    result = result_of(cluster)
    kinds: Counter[str | None] = Counter()
    for group in cluster.groups:
        kinds[group.kind] += group.transfer_ns + group.wait_ns + group.unknown_ns
    longest = max(*kinds.values(), *(s.compute_ns + s.bubble_ns for s in cluster.stages))  # one scale for both charts
    for row, stage in zip(rows_of(chart(result, "stages")), cluster.stages, strict=True):
        (_, middle), (begin, end) = pieces(row)
        assert middle == pytest.approx(begin, abs=0.02) == pytest.approx(WIDTH * stage.compute_ns / longest, abs=0.02)
        assert end == pytest.approx(WIDTH * (stage.compute_ns + stage.bubble_ns) / longest, abs=0.02)


def test_communication_begins_at_nothing_and_is_drawn_to_the_nanosecond() -> None:
    """Two groups of a kind of 5 ns each: what is transfer, waiting and unknown."""
    group = replace(pipeline_job().groups[0], transfer_ns=2, wait_ns=1, unknown_ns=2)
    cluster = replace(pipeline_job(), groups=[group, group], stages=[])
    (row,) = rows_of(chart(result_of(cluster), "groups"))
    assert pieces(row) == [(0, 400), (400, 600), (600, 1000)]


def test_one_step_of_the_pipeline_is_drawn_to_scale() -> None:
    """Where the last stage turns round the forward comes first; text is not stretched; what is not seen is left out."""
    first = StageTrack(
        stage=0, rank=0, start_ns=[0, 2000, 5000, 5001, 7000], end_ns=[2000, 5000, 5001, 7000, 10000],
        what=["forward", "wait", "own", "both", "own"], forward=[0, -1, -1, 3, -1], backward=[-1, -1, -1, 0, -1],
    )  # fmt: skip
    last = StageTrack(
        stage=1, rank=2, start_ns=[0, 2000, 6000], end_ns=[2000, 6000, 10000],
        what=["wait", "both", "communication"], forward=[-1, 0, -1], backward=[-1, 0, -1],
    )  # fmt: skip
    cluster = pipeline_job()
    assert cluster.pipeline is not None
    step = PipelineStep(step=7, span_ns=10000, told=True, stages=[first, last])
    found = chart(result_of(replace(cluster, pipeline=replace(cluster.pipeline, in_time=step))), "pipeline-step")
    wide, narrow = (
        svg for svg in tree(found).iter("svg") if svg.get("viewBox", "").startswith(("0 0 1040", "0 0 360"))
    )
    for svg, width in ((wide, 1040), (narrow, 360)):
        boxes = [(float(r.get("x", "")), float(r.get("width", "")), r.get("class")) for r in svg.iter("rect")]
        spans = [(a, b) for track in (first, last) for a, b in zip(track.start_ns, track.end_ns, strict=True)]
        spans.remove((5000, 5001))
        for (x, wide_, _), (a, b) in zip(boxes, spans, strict=True):
            assert (x, wide_) == pytest.approx((width * a / 10000, width * (b - a) / 10000), abs=0.01)
        (upper, lower) = sorted({float(r.get("y", "")) for r in svg.iter("rect")})
        (high,) = {float(r.get("height", "")) for r in svg.iter("rect")}
        assert upper + high < lower and lower + high <= float(svg.get("viewBox", "").split()[3])
        texts = [t.text for t in svg.iter("text") if t.get("class") == "track-text"]
        assert texts == ["F1", "B1 F4", "F1 B1"]
    for stages, shown in (([*cluster.stages, *cluster.stages][:3], ["2 of 3 stages"]), (cluster.stages[:2], [])):
        one = replace(cluster, stages=stages, pipeline=replace(cluster.pipeline, in_time=step))
        assert re.findall(r"\d+ of \d+ stages", plain(chart(result_of(one), "pipeline-step").caption)) == shown
    unknown = replace(step, told=False)
    found = chart(result_of(replace(cluster, pipeline=replace(cluster.pipeline, in_time=unknown))), "pipeline-step")
    assert "does not tell where one micro-batch ends" in plain(found.caption)


def test_roots_are_shares_of_all_waiting() -> None:
    cluster = pipeline_job()
    for row in rows_of(chart(result_of(cluster), "roots")):
        assert all(end <= WIDTH for _, end in pieces(row))
        share = float(words(row, "value").removesuffix(" %")) / 100
        assert sum(end - begin for begin, end in pieces(row)) == pytest.approx(WIDTH * share, abs=1)


# --- comparisons and tunings ------------------------------------------------------------------------------------------


def test_a_waterfall_ends_where_the_new_step_does() -> None:
    """Every row begins where the one above ends; widths times the scale are the differences, to the rounding."""
    rows = rows_of(chart(replace(alone(), comparison=WORSE), "waterfall"))
    (_, before), (_, after) = pieces(rows[0])[0], pieces(rows[-1])[0]
    scale = (after - before) / DELTA
    at = before
    for row in rows[1:-1]:
        delta = said_ns(words(row, "value"))
        drawn = pieces(row)
        if delta:
            assert min(begin for begin, _ in drawn) == pytest.approx(min(at, at + scale * delta), abs=0.2)
            assert max(end for _, end in drawn) == pytest.approx(max(at, at + scale * delta), abs=0.2)
        at += scale * delta
    assert at == pytest.approx(after, abs=0.2)
    assert words(rows[0], "value") == duration(OLD_STEP) and words(rows[-1], "value") == duration(NEW_STEP)
    assert all(0 <= begin <= end <= WIDTH for row in rows for begin, end in pieces(row))


def said_ns(change: str) -> float:
    number, unit = change.split()
    return float(number) * {"ns": 1, "us": 1e3, "ms": MS}[unit]


def test_an_interval_lies_beside_nothing() -> None:
    """Nothing is in the middle; from 440 to 710 us of at most 710."""
    rows = rows_of(chart(replace(alone(), comparison=WORSE), "interval"))
    assert whiskers(rows[2]) == [pytest.approx((500 + 500 * 440 / 710, 1000), abs=0.01)]


def test_differences_have_their_side() -> None:
    compared = (
        Compared(kind="operator", name="Longer", change="changed", verdict="worse", old_ns=100, new_ns=300),
        Compared(kind="operator", name="Shorter", change="changed", verdict="better", old_ns=200, new_ns=100),
        Compared(kind="operator", name="Same", change="same", verdict="same", old_ns=200, new_ns=200),
    )
    rows = rows_of(chart(replace(alone(), comparison=replace(WORSE, rows=compared)), "differences"))
    assert [(words(row, "name"), pieces(row)) for row in rows] == [("Longer", [(500, 1000)]), ("Shorter", [(250, 500)])]
    assert [words(row, "value") for row in rows] == ["+200 ns, +200.0 %", "-100 ns, -50.0 %"]


def tuning(name: str = "MatMul") -> Tuning:
    step = Compared(kind="step", name="step", change="changed", verdict="better", old_ns=1000, new_ns=800,
                    noise_ns=50, expected_ns=(100, 250))  # fmt: skip
    return Tuning(
        mode="op", status="successful", recovered=False, files=("a",),
        entries=(Entry(kind="operator", name=name, before_us=20.0, after_us=5.0), Entry(kind="operator", name="n")),
        savings=(Saving(name=name, calls_per_step=2, felt_per_step=1, least_ns=30, most_ns=60, basis="name",
                        reason=None),),
        saved_ns=(30, 60), step_ns=1000,
        verification=Comparison(old="a", new="b", verdict="better", rows=(step,)),
    )  # fmt: skip


def test_a_tuning_before_and_after() -> None:
    (row,) = rows_of(chart(tuning(), "tuned"))
    assert pieces(row) == [(0, 1000), (0, 250)]
    assert words(row, "value") == "20.00 us → 5.00 us (×4.00)"
    assert "1 of 2 entries" in str(chart(tuning(), "tuned").caption)
    (row,) = rows_of(chart(tuning(), "savings"))
    assert (pieces(row), whiskers(row)) == ([(0, 500)], [(500, 1000)])


def test_a_verified_gain_has_its_interval_beside_what_was_predicted() -> None:
    """200 ± 50 ns were saved, 100 to 250 predicted."""
    without, with_, measured, predicted = rows_of(chart(tuning(), "verified"))
    assert (pieces(without), pieces(with_)) == ([(0, 1000)], [(0, 800)])
    assert (pieces(measured), whiskers(measured)) == ([(0, 800)], [(600, 1000)])
    assert (pieces(predicted), whiskers(predicted)) == ([(0, 400)], [(400, 1000)])


@pytest.mark.parametrize(("verdict", "colour"), [("better", "c-gain"), ("worse", "c-worse"), ("same", "c-total")])
def test_what_was_measured_has_the_colour_of_its_verdict(verdict: Outcome, colour: str) -> None:
    document = tuning()
    found = replace(document.verification or WORSE, verdict=verdict)
    _, with_, measured, _ = rows_of(chart(replace(document, verification=found), "verified"))
    for row in (with_, measured):
        assert [r.get("class", "").split()[-1] for r in row.iter("rect")] == [colour]


def test_what_takes_longer_than_before_is_no_gain() -> None:
    slower = (Entry(kind="operator", name="A", before_us=5.0, after_us=20.0),)
    drawn = chart(replace(tuning(), entries=slower), "tuned")
    (row,) = rows_of(drawn)
    assert [r.get("class", "").split()[-1] for r in row.iter("rect")] == ["c-total", "c-worse"]
    assert "longer" in str(drawn.svg)
    assert "speed-up" not in str(drawn.caption)


def test_results_of_two_runs() -> None:
    row = Compared(kind="operator", name="A", change="changed", verdict="better", old_ns=400, new_ns=100)
    found = ResultChanges(comparison=Comparison(old="a", new="b", verdict="cannot_tell", rows=(row,)))
    (drawn,) = rows_of(chart(found, "results"))
    assert pieces(drawn) == [(0, 1000), (0, 250)]


# --- all of them ------------------------------------------------------------------------------------------------------


def documents(name: str = "x") -> Iterator[Document]:
    """Documents with all charts, in which every name begins with this one."""
    compared = Compared(kind="operator", name="MatMul", change="changed", verdict="worse", old_ns=100, new_ns=300)
    comparison = replace(WORSE, rows=(*WORSE.rows, compared))
    yield renamed(replace(analyzed("transformer_ascend_pt"), comparison=comparison), name)
    yield renamed(analyzed("pipeline_job"), name)
    yield renamed(tuning(), name)


def renamed(value: Any, name: str) -> Any:
    """Put a name before every string that others may have written."""
    if isinstance(value, Model):
        kinds = {field.name: field.type for field in msgspec.structs.fields(value)}
        return replace(value, **{f: renamed(getattr(value, f), name) for f, kind in kinds.items() if not fixed(kind)})
    if isinstance(value, list | tuple):
        return type(value)(renamed(item, name) for item in value)
    if isinstance(value, Message):
        return Message(value.id, {k: renamed(v, name) for k, v in value.parameters.items()}, value.plural, value.n)
    if isinstance(value, Series):
        return Series(tuple(renamed(item, name) for item in value.items), value.by)
    return f"{name}{value}" if isinstance(value, str) and not isinstance(value, Quantity) else value


def fixed(kind: Any) -> bool:
    """Tell whether a field has one of few words, or is an open bag of them."""
    arguments = [a for a in get_args(kind) if a is not NoneType]
    return get_origin(kind) in (Literal, dict) or any(get_origin(a) is Literal for a in arguments)


def everything(document: Document) -> str:
    """All that charts bring to a page, their matrices as the page has them."""
    found = charts_of(document)
    drawn = "".join(str(c.svg or "") for c in found)
    return drawn + json.dumps([c.matrix.packed() for c in found if c.matrix])


def shape(document: Document) -> set[tuple[str, tuple[str, ...]]]:
    trees = [tree(c) for c in charts_of(document) if c.svg is not None]
    return {(node.tag, tuple(sorted(node.attrib))) for one in trees for node in one.iter()}


def test_all_kinds_are_tried_here() -> None:
    found = {c.id for document in documents() for c in charts_of(document)}
    assert found >= {
        "waterfall", "interval", "differences", "roots", "ranks", "partition", "steps", "typical", "elasticity",
        "what-if", "blame", "operators", "cores", "stages", "groups", "links", "who-waits", "verified", "tuned",
        "savings",
    }  # fmt: skip


@pytest.mark.parametrize("name", [HOSTILE, "x" * 10_000, '"><img src=x onerror=alert(1)>'])
def test_names_stay_names(name: str) -> None:
    """No element and no attribute that a harmless name does not have; nothing unseen; and no page full of one name."""
    for hostile, harmless in zip(documents(name), documents("a name of no harm " * 3), strict=True):
        assert shape(hostile) <= shape(harmless)
        said = everything(hostile)
        assert "\u202e" not in said and "\x1b" not in said and len(said) < 500_000
        assert not any(re.search(r"<(script|img)", str(c.svg)) for c in charts_of(hostile))


def test_nothing_has_a_style_or_a_handler() -> None:
    for document in documents():
        for one in (tree(c) for c in charts_of(document) if c.svg is not None):
            for node in one.iter():
                assert not {k for k in node.attrib if k in ("style", "fill", "stroke") or k.startswith("on")}


def test_nothing_is_drawn_beyond_its_picture() -> None:
    for document in documents():
        for one in (tree(c) for c in charts_of(document) if c.svg is not None):
            for svg in one.iter("svg"):
                width, height = map(float, svg.get("viewBox", "").split()[2:])
                for r in svg.iter("rect"):
                    x, y, wide, high = (float(r.get(k, "nan")) for k in ("x", "y", "width", "height"))
                    assert x >= -0.01 and x + wide <= width + 0.02 and y >= -0.01 and y + high <= height + 0.01


def test_pictures_say_what_they_show() -> None:
    """What is not beside its own words has a name, and no two charts have one identity."""
    for document in documents():
        found = charts_of(document)
        assert len({c.id for c in found}) == len(found)
        assert all(str(c.title) and c.caption is not None and str(c.caption) for c in found)
        for one in (tree(c) for c in found if c.svg is not None):
            for svg in one.iter("svg"):
                assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg.get("aria-label"))


#: What is swept over time where no kernel uses cores of either kind.
NO_SIDES = CoresOverTime(
    cube=None, vector=None, by_type=[], together=[], pairs=[], contention=[], contended_ns=None, contention_reason=None
)


@pytest.mark.parametrize(
    "document",
    [
        replace(result_of(None), devices=[]),
        alone(partition=partition(0)),
        alone(partition=partition(0), cores=replace(alone().devices[0].cores, over_time=NO_SIDES)),
        Tuning(mode=None, status="failed", recovered=False, files=()),
        ResultChanges(comparison=Comparison(old="a", new="b", verdict="same")),
        BankChanges(bank=BankDiff(before="a", after="b", records_before=0, records_after=0)),
        replace(alone(partition=partition(0)), comparison=Comparison(old="a", new="b", verdict="cannot_tell")),
    ],
)
def test_without_data_there_is_no_chart(document: Document) -> None:
    assert charts_of(document) == []


def test_one_step_of_one_rank() -> None:
    assert [c.id for c in charts_of(alone(partition(7), partition=partition(7)))] == ["partition"]


class Chinese(NullTranslations):
    """Every word outside of the places of a sentence is 字."""

    def gettext(self, message: str) -> str:
        return re.sub(r"[A-Za-z]+(?![^{]*\})", "字", message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


def test_everything_is_said_in_the_language_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left in Latin letters are units, names and code."""
    monkeypatch.setattr(language, "translations", lambda code: Chinese())
    result = analyzed("pipeline_job")
    with language.speaking("zh"):
        found = [tree(c) for c in charts_of(result) if c.svg is not None]
    said = {said for one in found for row in one.iter("li") for said in row.itertext()}
    names = {o.type for o in result.operators} | {g.kind for g in result.cluster.groups if result.cluster}  # type: ignore[union-attr]
    for text in said - names:
        rest = re.sub(r"AI_\w+|MIX_\w+|COMMUNICATION|MatMulV3 .*|\b(ns|us|ms|s)\b|\w+\*[\d.]+|rank:1=median", "", text)
        assert not re.search(r"[A-Za-z]{3,}", rest), text


def job(ranks: int, steps: int) -> Result:
    """A job whose every step of every rank is unlike the others."""
    cluster = large_job(ranks)
    result = result_of(cluster)
    chance = Random(19)
    times = (900 * MS, MS, 500 * MS, 70 * MS, 20 * MS)
    devices = [
        stepped(d, [partition(*(chance.randrange(1, most) for most in times)) for _ in range(steps)])
        for d in result.devices
    ]
    return replace(result, devices=devices)


def test_a_thousand_ranks_take_little_room() -> None:
    """As the page has them: the matrices packed with all other data, the rest as it is."""
    found = charts_of(job(1024, 100))
    drawn = sum(len(str(c.svg or "").encode()) for c in found)
    packed = json.dumps([c.matrix.packed() for c in found if c.matrix]).encode()
    size = drawn + len(base64.b64encode(gzip.compress(packed, 9, mtime=0)))
    print(f"charts of 1,024 ranks and 100 steps: {size / 1000:.0f} kB")
    assert size <= 400_000


def test_parts_have_different_colours() -> None:
    colours = [colour for _, _, colour in STEP_PARTS]
    assert len(set(colours)) == len(colours) and all(a != b for a, b in pairwise(colours))

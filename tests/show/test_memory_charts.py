"""Memory on pages and in traces: what is drawn is what was planned and what the document says, to the pixel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from build import EPOCH, analyze_path
from conftest import run_cli
from memory_plan import MIB, STEP, Block, Plan, Training, sample, write_memory
from msgspec.structs import replace

from npuperf.base.units import duration, mib_text
from npuperf.model.memory_result import Alive, Memory
from npuperf.model.result import Result
from npuperf.show.charts import charts_of
from npuperf.show.formats import View, render
from npuperf.show.notebook import result_html
from npuperf.show.svg import Chart

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "memory_ascend_pt"
#: The wide drawing's ground, pixels: where its upper and lower edges are, and how far it reaches.
TOP, BASE, LEFT, RIGHT = 22.0, 280.0, 70.0, 1032.0
HOSTILE = "</title></svg><script>alert(1)</script>\"' onload=x \u202e\x1b[31m&amp;{n}%s"
TRAINING = Training(steps=5, leak=8 * MIB, spike=300 * MIB, late=48 * MIB, state=120 * MIB)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return analyze_path(TRAINING.write(tmp_path_factory.mktemp("memory")), no_cache=True)


def memory_of(result: Result) -> Memory:
    found = result.devices[0].memory
    assert found is not None
    return found


def chart(result: Result, name: str) -> Chart:
    (found,) = [c for c in charts_of(result) if c.id == name]
    return found


def wide(found: Chart) -> ElementTree.Element:
    """The drawing for wide screens: it is well-formed, or this raises."""
    pictures = ElementTree.fromstring(str(found.svg)).iter("svg")
    return next(svg for svg in pictures if "wide-only" in svg.get("class", ""))


def titles(found: ElementTree.Element, class_: str) -> list[str]:
    return [rect.findtext("title", "") for rect in found.iter("rect") if rect.get("class") == class_]


def heights(path: str) -> list[float]:
    """How high a line of steps is in each of the 240 slices, as y."""
    told: list[float] = []
    for y, x in re.findall(r"V ([\d.]+) H ([\d.]+)", path):
        told += [float(y)] * (round((float(x) - LEFT) / (RIGHT - LEFT) * 240) - len(told))
    return told


def test_the_curve_is_as_high_as_what_is_allocated(trained: Result) -> None:
    memory = memory_of(trained)
    assert memory.curve is not None
    picture = wide(chart(trained, "memory"))
    areas = [path for path in picture.iter("path") if path.get("class", "").startswith("area")]
    top = round(1.03 * max(memory.curve.process))  # the highest of all that is drawn
    assert [BASE - (BASE - TOP) * value / top for value in memory.curve.allocated] == pytest.approx(
        heights(areas[0].get("d", "")), abs=0.01
    )
    # the lowest area is what was there before: a line as high as planned, from end to end
    assert areas[-1].get("class") == "area m-before"
    assert heights(areas[-1].get("d", "")) == pytest.approx([BASE - (BASE - TOP) * 1000 * MIB / top] * 240, abs=0.01)


def test_classes_lie_upon_each_other_and_add_up(trained: Result) -> None:
    memory = memory_of(trained)
    assert memory.curve is not None
    told = titles(wide(chart(trained, "memory")), "hit")
    assert len(told) == 240
    for i, said in enumerate(told):
        assert f" {mib_text(memory.curve.allocated[i])} allocated" in said
        parts = {name: values[i] for name, values in memory.curve.classes.items()}
        assert 1000 * MIB + sum(parts.values()) == memory.curve.allocated[i]
        assert f"reserved: {mib_text(4096 * MIB)}" in said
        for name in ("lasting", "activation", "gradient", "temporary", "unreleased"):
            assert (f"{name}: {mib_text(parts[name])}" in said) == bool(parts[name])


def test_steps_and_the_peak_are_marked_where_they_are(trained: Result) -> None:
    plan, memory = TRAINING.plan(), memory_of(trained)
    most, at = plan.peak()
    assert memory.curve is not None and memory.peak_at_ns is not None
    first = plan.counters()[0][0]
    start, end = memory.curve.start_ns, memory.curve.start_ns + 240 * memory.curve.slice_ns
    picture = wide(chart(trained, "memory"))

    def x(time: int) -> float:  # of a planned time
        return LEFT + (RIGHT - LEFT) * (time - first) / (end - start)

    marks = [
        float(re.findall(r"M ([\d.]+)", p.get("d", ""))[0])
        for p in picture.iter("path")
        if p.get("class") == "step-mark"
    ]
    # the first step begins before anything is recorded of memory: it is marked at the edge
    assert marks == pytest.approx([LEFT, *(x(step * STEP) for step in range(1, 5))], abs=0.01)
    (circle,) = picture.iter("circle")
    assert float(circle.get("cx", "")) == pytest.approx(x(at), abs=0.01)
    words = [text.text for text in picture.iter("text")]
    assert f"peak {mib_text(most)}" in words and {"step 1", "step 5"} <= set(words)


def test_the_limit_is_drawn_where_it_is_near_and_told_where_it_is_far(trained: Result) -> None:
    for hbm, near in ((5 << 30, True), (64 << 30, False)):
        device = replace(trained.devices[0], memory=replace(memory_of(trained), hbm_bytes=hbm))
        found = chart(replace(trained, devices=[device]), "memory")
        lines = [path.get("class") for path in wide(found).iter("path")]
        assert ("line m-hbm" in lines) == near
        assert ("has 65536.000 MiB, beyond the scale" in str(found.caption)) == (not near)


def slabs(found: Chart) -> list[tuple[float, float, float, str]]:
    """Row, left and width of each block as shares of the picture, and what it says."""
    rects = [(g.find("rect"), g.findtext("title", "")) for g in wide(found).iter("g")]
    return [(float(r.get("y", "")) / 30, float(r.get("x", "")) / 1040, float(r.get("width", "")) / 1040, said)
            for r, said in rects if r is not None]  # fmt: skip


def test_the_peak_is_as_wide_as_its_parts_together(trained: Result) -> None:
    memory = memory_of(trained)
    most, _ = TRAINING.plan().peak()
    found = chart(trained, "memory-peak")
    drawn = slabs(found)
    assert drawn[0][1:3] == (0, 1) and drawn[0][3].startswith(f"allocated at the peak: {mib_text(most)}")
    second = [(width, said) for row, _, width, said in drawn if row == 1]
    assert sum(width for width, _ in second) == pytest.approx(1, abs=0.001)
    assert second[0][0] == pytest.approx(1000 * MIB / most, abs=0.001) and "from before the window" in second[0][1]
    (spike,) = [(width, said) for row, _, width, said in drawn if row == 2 and said.startswith("aten::cat")]
    assert spike[0] == pytest.approx(300 * MIB / most, abs=0.001)
    # it is planned to live for 15 us; only one such block is there, so that it is known when
    assert "300.000 MiB (17.3 %) · 1 block · temporary" in spike[1] and spike[1].endswith(duration(15_000))
    told = ["1732.000 MiB = 1000.000 MiB", "+ 732.000 MiB in blocks"]
    page = render(trained, "html", View(language="en"))
    assert all(part in page for part in told)
    section = page.split('id="memory"')[1].split("</section>")[0]  # with the tables of its topic
    assert all(f'id="chart-{name}"' in section for name in ("memory", "memory-peak")) and "memory by step" in section
    assert sum(row.bytes for row in memory.alive) == 732 * MIB


def test_modules_hold_lines_and_lines_operators(trained: Result) -> None:
    rows = [
        Alive(class_="activation", inferred=True, operator="aten::mm", where="m.py(3): forward", module="Net/Linear_0",
              count=3, bytes=30 * MIB),
        Alive(class_="gradient", inferred=True, operator="aten::mm", where=None, module="Net/Linear_0", count=1,
              bytes=10 * MIB),
        Alive(class_="unknown", inferred=False, operator=None, where=None, module=None, count=9, bytes=20 * MIB),
    ]  # fmt: skip
    memory = replace(
        memory_of(trained), alive=rows, blocks=[], peak_bytes=60 * MIB, before_bytes=0, alive_bytes=60 * MIB
    )
    found = chart(replace(trained, devices=[replace(trained.devices[0], memory=memory)]), "memory-peak")
    said = [(int(row), said.split(":")[0], round(width, 3)) for row, _, width, said in slabs(found)]
    assert said == [
        (0, "allocated at the peak", 1.0),
        (1, "Net/Linear_0", 0.667),
        (2, "m.py(3)", 0.5),
        (3, "aten", 0.5),
        (2, "no line recorded", 0.167),
        (3, "aten", 0.167),
        (1, "9 more blocks", 0.333),
    ]
    (leaf,) = [said for row, _, width, said in slabs(found) if row == 3 and width > 0.4]
    assert leaf == "aten::mm: 30.000 MiB (50.0 %) · 3 blocks · activation (inferred) · m.py(3): forward"


def test_where_events_have_no_times_none_is_told(trained: Result) -> None:
    memory = replace(memory_of(trained), timed=False, peak_at_ns=None, steps=[])
    result = replace(trained, devices=[replace(trained.devices[0], memory=memory)])
    found = chart(result, "memory")
    assert "counts events" in str(found.caption) and len(list(wide(found).iter("circle"))) == 1
    for one in (found, chart(result, "memory-peak")):
        assert not re.search(r"\d (ns|us|ms|s)\b", " ".join(wide(one).itertext()))


def test_where_rows_are_missing_nothing_is_split(tmp_path: Path) -> None:
    blocks = tuple(Block(10_000 * i, None, (i + 1) * MIB) for i in range(5))
    result = analyze_path(write_memory(Plan(0, blocks, unwritten=frozenset({1, 3})), tmp_path), no_cache=True)
    assert memory_of(result).split == "cannot_tell"
    assert [c.id for c in charts_of(result) if c.id.startswith("memory")] == ["memory"]
    found = chart(result, "memory")
    assert [p.get("class") for p in wide(found).iter("path") if "area" in p.get("class", "")] == ["area m-all"]
    assert "what blocks are for cannot be told" in str(found.caption) and "rows are missing" in str(found.caption)


def test_ranks_are_on_one_scale_the_highest_first(trained: Result) -> None:
    device, memory = trained.devices[0], memory_of(trained)
    assert memory.curve is not None and memory.peak_bytes is not None
    classes = {name: [value // 2 for value in values] for name, values in memory.curve.classes.items()}
    half = replace(memory.curve, allocated=[value // 2 for value in memory.curve.allocated], classes=classes)
    low = replace(device, rank=0, memory=replace(memory, curve=half, peak_bytes=memory.peak_bytes // 2))
    result = replace(trained, devices=[low, replace(device, rank=1)])
    found = chart(result, "memory-ranks")
    pictures = list(ElementTree.fromstring(str(found.svg)).iter("svg"))
    curves = [svg for svg in pictures if svg.get("class") == "curve"]
    assert [svg.findtext("title", "")[:6] for svg in curves] == ["rank 1", "rank 0"]
    least = [min(map(float, re.findall(r"V ([\d.]+)", svg.find("path").get("d", "")))) for svg in curves]  # type: ignore[union-attr]
    assert (100 - least[0]) == pytest.approx(2 * (100 - least[1]), abs=0.02)
    assert "rank 1, device 0 has the highest peak, 1732.000 MiB, 866.000 MiB more" in str(found.caption)
    assert "rank 1" in str(chart(result, "memory").title)  # the one with the highest peak is drawn large


def test_names_of_others_are_text(trained: Result) -> None:
    memory = memory_of(trained)
    rows = [replace(row, operator=HOSTILE, where=HOSTILE, module=HOSTILE) for row in memory.alive]
    hostile = replace(memory, alive=rows, blocks=[replace(b, operator=HOSTILE, where=HOSTILE, module=HOSTILE)
                      for b in memory.blocks], peak_operator=HOSTILE)  # fmt: skip
    result = replace(trained, devices=[replace(trained.devices[0], memory=hostile)])
    for name in ("memory", "memory-peak"):
        wide(chart(result, name))
        assert "<script" not in str(chart(result, name).svg) and "\x1b" not in str(chart(result, name).svg)
    assert "<script>alert" not in render(result, "html", View(language="en"))


def test_without_memory_nothing_is_drawn(tmp_path: Path) -> None:
    result = analyze_path(TRAINING.write(tmp_path, memory=False), no_cache=True)
    assert not [c.id for c in charts_of(result) if c.id.startswith("memory")]
    page = render(result, "html", View(language="en"))
    assert 'id="chart-memory' not in page and 'id="memory"' not in page


# -- The sample that ships, and its page of the documentation.


def test_the_sample_is_what_its_generator_writes(tmp_path: Path) -> None:
    sample(tmp_path / "memory")
    files = {path.relative_to(SAMPLE) for path in SAMPLE.rglob("*") if path.is_file()}
    made = {path.relative_to(tmp_path / "memory") for path in (tmp_path / "memory").rglob("*") if path.is_file()}
    assert files == made
    assert all((SAMPLE / file).read_bytes() == (tmp_path / "memory" / file).read_bytes() for file in files)
    assert sum((SAMPLE / file).stat().st_size for file in files) < 60_000


def test_the_page_of_memory_shows_the_screen_of_the_sample() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "memory.md").read_text("utf-8"), re.DOTALL)
    screen = run_cli(["analyze", str(SAMPLE), "--no-cache"], columns=80).stdout
    assert shown in "".join(f"{line.rstrip()}\n" for line in screen.splitlines())


def test_the_page_of_memory_says_what_the_plan_without_a_block_reaches() -> None:
    """Worked out from the plan: what the counters were if these blocks had never been asked for."""
    training = Training(steps=4, layers=3, activation=192 * MIB, gradient=48 * MIB, before=1400 * MIB, leak=8 * MIB,
                        late=96 * MIB, spike=700 * MIB, state=300 * MIB)  # fmt: skip
    plan, page = training.plan(), (ROOT / "docs" / "memory.md").read_text("utf-8")
    for operator in ("aten::cat", "aten::leaky"):
        rest = replace(plan, blocks=tuple(block for block in plan.blocks if block.name != operator))
        lower = plan.peak()[0] - rest.peak()[0]
        assert f"{mib_text(lower)} lower" in page
        done = run_cli(["analyze", str(SAMPLE), "--no-cache", "--what-if", f"block:{operator}*0", "--format", "json"])
        (found,) = [w for w in json.loads(done.stdout)["what_if"] if w["expr"] == f"block:{operator}*0"]
        assert (found["peak_bytes"], found["gain_bytes"]) == (rest.peak()[0], [lower, lower])


def test_the_report_for_markdown_and_notebooks_has_the_tables_of_memory() -> None:
    result = analyze_path(SAMPLE, no_cache=True)
    said = render(result, "markdown", View(language="en"))
    assert "## memory by step" in said and "## blocks that lived at the peak" in said and "3008.000" in said
    cell = result_html(result)
    assert "memory over time" in cell and "allocated at the peak: 3008.000 MiB" in cell


# -- Traces.


def counters(file: Path) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for event in json.loads(file.read_text("utf-8")):
        if event["ph"] == "C" and event["name"].startswith("memory"):
            found.setdefault(event["name"], []).append((event["ts"], event["args"]["bytes"]))
    return found


def test_traces_count_every_byte_when_it_changes(tmp_path: Path) -> None:
    folder, plan = TRAINING.write(tmp_path / "run"), TRAINING.plan()
    over, full = tmp_path / "over.json", tmp_path / "full.json"
    done = run_cli(["analyze", str(folder), "--no-cache", "--trace", str(over), "--trace-full", str(full)])
    assert done.returncode == 0, done.stderr
    planned = plan.counters()
    changes = [(t, a) for i, (t, a, _) in enumerate(planned) if not i or planned[i - 1][1] != a]
    told = counters(over)
    assert told["memory allocated"] == [(f"{(EPOCH + t) // 1000}.{(EPOCH + t) % 1000:03d}", a) for t, a in changes]
    assert [value for _, value in told["memory reserved"]] == [4096 * MIB]
    assert [value for _, value in told["memory of the process"]] == [(4096 + 550) * MIB]
    events = json.loads(full.read_text("utf-8"))
    (epoch,) = [int(e["args"]["epoch_ns"]) for e in events if e["name"] == "npuperf_epoch"]
    exact = [(epoch + round(ts * 1000), a) for ts, a in counters(full)["memory allocated"]]
    assert exact == [(EPOCH + t, a) for t, a in changes]


def test_without_memory_traces_count_none(tmp_path: Path) -> None:
    folder, over = TRAINING.write(tmp_path / "run", memory=False), tmp_path / "over.json"
    assert run_cli(["analyze", str(folder), "--no-cache", "--trace", str(over)]).returncode == 0
    assert not counters(over)

"""A comparison as people see it: the verdict first, a waterfall that adds up where it is read, the same everywhere."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from comparisons import DELTA, FAILED, GATES, NEW_STEP, OLD_STEP, PARTS, SAME, UNTOLD, WATERFALL, WORSE, part
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from sample_documents import result

from npuperf.base.messages import Message, chain, say
from npuperf.model.comparison import Comparison, Difference, FindingChange, Shift, WaterfallPart
from npuperf.model.document import Gate, OverLimit
from npuperf.model.parts import Part
from npuperf.model.result import Result
from npuperf.show.comparison_text import COMPARISON_TABLES
from npuperf.show.formats import View, render
from npuperf.show.sheet import held_against

#: A number of the waterfall, with thin separators, to the nanosecond.
NUMBER = re.compile(r"[+-]?\d{1,3}(?: \d{3})*\.\d{3}(?!\d)")


_OLD, _NEW = (tuple(f"MatMulV2 [{n},{m}]" for m in (8, 16)) for n in (1, 2))
OTHER_SHAPES = replace(
    WORSE,
    waterfall=(replace(WATERFALL[0], key="MatMulV2", instead_of=_OLD, replaced_by=_NEW), *PARTS[1:]),
)


def held(comparison: Comparison, gates: tuple[Gate, ...] = ()) -> Result:
    """The analysis of a sample beside a comparison."""
    return replace(result(), comparison=comparison, gates=gates)


def screen(comparison: Comparison, width: int = 100, gates: tuple[Gate, ...] = (), **view: bool) -> list[str]:
    return render(held(comparison, gates), "text", View(width=width, **view)).splitlines()


def markdown(comparison: Comparison, gates: tuple[Gate, ...] = (), **view: bool) -> list[str]:
    return render(held(comparison, gates), "markdown", View(**view)).splitlines()


def waterfall(lines: list[str]) -> list[list[int]]:
    """The numbers of each row of the waterfall, ns; its last row is the whole step."""
    (first,) = [i for i, line in enumerate(lines) if "where the difference of the mean step comes from" in line]
    last = next(i for i, line in enumerate(lines) if i > first and re.match(r"\W*mean step\W", line))
    found = [NUMBER.findall(line) for line in lines[first : last + 1]]
    return [[round(float(number.replace(" ", "")) * 1000) for number in row] for row in found if row]


def test_the_verdict_comes_first() -> None:
    lines = screen(WORSE)
    assert lines[0] == "npuperf 0.1.0  runs/tuesday against runs/monday"
    assert lines[1] == "WORSE  the step is 5.1 % longer (+627.98 us)"
    assert lines[2] == "mean step    12.31 ms → 12.94 ms (+627.98 us, +5.1 %)"
    assert lines[3] == "median step  12.30 ms → 12.87 ms (+570.00 us, +4.6 %)"
    assert lines[4] == "difference   +440.00 to +710.00 us with 99 % confidence; exact rank interval; 10 and 12 steps"
    assert lines[5].startswith("set-up       AI Core frequency: 1800 MHz → 1650 MHz; kernels take longer")
    assert screen(UNTOLD)[1].startswith("CANNOT TELL  two steps of the baseline decide nothing: record ten with")


def test_the_page_shows_the_real_screen() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "comparison.md").read_text("utf-8")
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert render(held(WORSE, GATES), "text", View(width=80)).startswith(shown)


def test_nothing_that_changed_is_said_to_be_so() -> None:
    lines = screen(SAME)
    assert lines[1:6] == [
        "SAME  the steps are the same",
        "mean step    12.31 ms, the same on both sides",
        "median step  12.30 ms, the same on both sides",
        "difference   -20.00 to +30.00 us with 99 % confidence; exact rank interval; 10 and 12 steps",
        "set-up       the same on both sides, as far as it is recorded",
    ]
    assert lines[6] == "no part of the mean step changed"
    identical = replace(SAME, interval_ns=(0, 0), confidence=None, method=say("every step is identical"))
    assert screen(identical)[4] == "difference   0 ns; every step is identical; 10 and 12 steps"
    unsure = replace(SAME, workload="unknown")
    assert screen(unsure)[5] == "set-up       nothing is known to differ"


def test_a_comparison_that_knows_nothing_says_why() -> None:
    nothing = Comparison(old="a", new="b", verdict="cannot_tell", reason=say("no step was recorded"))
    for form in ("text", "markdown", "junit"):
        said = render(held(nothing), form, View(full=True))
        assert "CANNOT TELL" in said and "no step was recorded" in said
        assert "None" not in said and "mean step" not in said


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_screen_adds_up_to_the_nanosecond(width: int) -> None:
    *rows, whole = waterfall(screen(WORSE, width))
    assert len(rows) == 11  # ten parts, and the others as one
    assert whole[0] == DELTA == sum(row[0] for row in rows)
    for column in range(len(whole)):
        assert whole[column] == sum(row[column] for row in rows)
    for row in (*rows, whole):
        assert row[0] == row[1] + row[2]
        if len(row) == 5:
            assert row[0] == row[4] - row[3]
    assert width < 120 or whole[3:] == [OLD_STEP, NEW_STEP]


parts = st.builds(
    lambda n, old, new, few, more: part("compute", f"Op{n}", old, new, (few, more)),
    *(st.integers(0, 10**10) for _ in range(5)),
)


@settings(max_examples=20)
@given(st.lists(parts, min_size=1, max_size=30), st.sampled_from(["text", "markdown"]))
def test_any_waterfall_adds_up_where_people_read_it(some: list[WaterfallPart], form: str) -> None:
    old, new = sum(p.old_ns for p in some), sum(p.new_ns for p in some)
    made = replace(WORSE, waterfall=tuple(some), old_step_ns=old, new_step_ns=new, delta_ns=new - old)
    lines = screen(made, 200) if form == "text" else markdown(made)
    if all(p.old_ns == p.new_ns for p in some):
        assert not [line for line in lines if "where the difference" in line]
        return
    *rows, whole = waterfall(lines)
    assert len(rows) <= 11
    assert whole[0] == new - old and whole[3:] == [old, new]
    for column, sum_ in enumerate(whole):
        assert sum_ == sum(row[column] for row in rows)


def test_the_largest_parts_are_named_and_the_others_are_one_row() -> None:
    lines = screen(WORSE)
    names = [line.split("  ")[1].strip() for line in lines if NUMBER.search(line)]
    assert names[:3] == ["compute", "host wait", "transfer"] and names[-2:] == ["the rest", "mean step"]
    said = "\n".join(lines)
    assert "14 more parts" in said and "new: aten::item (waiting for" in said and "gone: Add [1024] FLOAT16" in said
    assert "AddLayerNorm [1024,1024] FLOAT16 instead of Add [1024,1024], LayerNorm [1024,1024] (inferred)" in (
        "\n".join(screen(WORSE, 240))
    )
    assert "MatMulV2 with other shapes (inferred)" in "\n".join(screen(OTHER_SHAPES, 140))
    eleven = replace(WORSE, waterfall=tuple(p for p in PARTS if p.delta_ns)[:11])
    assert "more part" not in "\n".join(screen(eleven))  # it would take as much room as the part itself


def test_bars_are_signs_that_every_terminal_has() -> None:
    bars = [line.split()[-1] for line in screen(WORSE, 160) if re.search(r"  (\++|-+)$", line)]
    assert len(bars) == 11 and bars[0] == "+" * 12  # none for the whole
    assert all(bar.isascii() for bar in bars) and "----" in bars


def test_colours_are_those_of_the_verdict() -> None:
    red, green = "\x1b[1;31m", "\x1b[32m"
    assert f"{red}WORSE" in render(held(WORSE), "text", View(colour=True))
    assert f"{green}BETTER" in render(held(replace(WORSE, verdict="better")), "text", View(colour=True))
    bars = render(held(WORSE), "text", View(colour=True, width=160))
    assert re.search(r"\x1b\[31m\+", bars) and re.search(r"\x1b\[32m-", bars)
    assert "\x1b" not in render(held(WORSE), "text")


@pytest.mark.parametrize("width", [40, 50, 60, 80, 120, 200])
@pytest.mark.parametrize("full", [False, True])
def test_nothing_is_wider_than_the_screen(width: int, full: bool) -> None:
    wide = replace(WATERFALL[0], key="矩阵乘法" * 20, where="模型.py:12 前向")
    difference = replace(WORSE.parity[0], what="频率" * 9, old="每" * 90)
    made = replace(WORSE, old="基线" * 9, waterfall=(wide, *PARTS[1:]), parity=(difference,))
    assert max(map(cell_len, screen(made, width, GATES, full=full))) <= width
    if not full:
        assert any("矩阵乘" in line for line in screen(made, width))  # what changed is named on the narrowest


def test_one_screen_and_one_page_have_an_end() -> None:
    many = replace(
        WORSE,
        parity=tuple(replace(WORSE.parity[0], what=f"w{i}") for i in range(50)),
        waterfall=tuple(part("compute", f"Op{i}", 10, 1000 - i) for i in range(500)),
        findings=WORSE.findings * 50,
        shifts=WORSE.shifts * 50,
        aligned=WORSE.aligned * 50,
        warnings=WORSE.warnings * 50,
    )
    page = markdown(many, (FAILED,) * 50)
    assert len(page) <= 61
    said = "\n".join(page)
    assert "42 more: --full shows them" in said and "147 more: --full shows them" in said
    assert "47 more differences: --full shows all" in said and "490 more parts" in said
    assert len(screen(many)) <= 80
    everything = markdown(many, (FAILED,) * 50, full=True)
    assert len([line for line in everything if "Op" in line]) == 500 and len(everything) > 600


def test_a_page_with_gates_alone_is_as_short() -> None:
    page = markdown(WORSE, GATES)
    alone = render(replace(result(), gates=GATES), "markdown").splitlines()
    assert len(alone) < len(page) < 60
    assert "- gate PASS  host_wait>20%: 12.5 %" in alone and any("HOST-BOUND" in line for line in alone)


def test_kernels_above_a_limit_are_on_the_page() -> None:
    kernel = OverLimit(
        rank=0, device=0, stream=9, name="mm", type="MatMulV2", core="AI_CORE", count=4, cube=24, vector=0,
        reason=say("its blocks are fixed"),
    )  # fmt: skip
    gate = Gate(expr="cores", status="fail", value=1.0, limit=0.0, over=(kernel,) * 30)
    page = render(replace(result(), gates=(gate,)), "markdown").splitlines()
    assert len(page) < 60 and "## kernels above a limit (10 of 30)" in page
    assert page.count("| cores | 9 | MatMulV2 | AI_CORE | 4 | 24 | 0 | its blocks are fixed |") == 10


def test_gates_that_stop_the_pipeline_come_first_on_a_page() -> None:
    gates = [line.split()[2] for line in markdown(WORSE, tuple(reversed(GATES))) if line.startswith("- gate")]
    assert gates == ["FAIL", "WARN", "CANNOT", "PASS"]


def test_how_often_a_gate_held_is_said_once() -> None:
    gate = Gate(expr="x>3 for 1 of 2", status="fail", value=4.0, limit=3.0, runs=(True,))
    assert str(held_against(gate)) == "4; the condition held in 1 of 1 run"
    alone = say("this run alone would fail: 1 of 3 so far, and 2 make it fail")
    once = replace(gate, expr="x>3 for 2 of 3", status="pass", reason=alone)
    assert str(held_against(once)) == f"4; {alone!s}"


def test_a_failed_gate_says_what_explains_it() -> None:
    lines = screen(WORSE, 400, GATES)
    (at,) = [i for i, line in enumerate(lines) if line.startswith("gate FAIL")]
    assert lines[at] == (
        "gate FAIL  step_time>+5%,200us for 2 of 3: 12.94 ms, baseline 12.31 ms, limit 12.93 ms; "
        "it differs by +440.00 to +710.00 us; the condition held in 2 of the last 3 runs"
    )
    assert lines[at + 1] == (
        "  explained by compute MatMulV2 [1024,1024;1024,4096] FLOAT16 +380.41 us; "
        "host wait new: aten::item (waiting for the device) +140.00 us; transfer dp +105.00 us"
    )


def test_set_ups_are_told_in_numbers_that_fit() -> None:
    matters, other = WORSE.parity
    assert any("torch_npu: 2.1.0 → not recorded" in line for line in screen(WORSE, full=True))
    for parity, last in (
        ((matters, other), "1 difference that should not change the time: --full shows all"),
        ((matters, other, other), "2 differences that should not change the time: --full shows all"),
        ((matters,) * 4, "1 more difference: --full shows all"),
        ((matters,) * 5, "2 more differences: --full shows all"),
    ):
        said = screen(replace(WORSE, parity=parity))
        assert next(line.strip() for line in said if "--full shows all" in line) == last


def test_a_reason_in_the_verdict_is_not_given_twice() -> None:
    why = WORSE.parity[0].reason
    assert isinstance(why, Message) and isinstance(WORSE.reason, Message)
    said = "\n".join(screen(replace(WORSE, reason=chain(why, WORSE.reason)), 200))
    assert said.count(str(why)) == 1 and "AI Core frequency: 1800 MHz → 1650 MHz\n" in said


@pytest.mark.parametrize(
    ("of", "key", "what"),
    [
        ("host_wait", "torch_op: aten::linear", "aten::linear (torch operators)"),
        ("host_wait", "unrecorded: nothing recorded", "nothing recorded"),
        ("host_wait", "gc: others", "others (garbage collection)"),
        ("host_wait", "torch_op", "torch operators"),
        ("host_wait", "unheard: of", "unheard: of"),
        ("dependency", "host_call", "a call of the host"),
        ("dependency", None, ""),
        ("compute", None, "all operators"),
        ("compute", "gc: others", "gc: others"),
    ],
)
def test_causes_are_named_in_words(of: Part, key: str | None, what: str) -> None:
    lines = screen(replace(WORSE, waterfall=(part(of, key, 0, 900_000, (1, 1)), *PARTS[1:])))
    (row,) = [line for line in lines if line.endswith("+900.000  1")]
    cells = re.split(r"  +", row.strip())
    assert cells[1:-4] == ([what] if what else [])


def test_a_median_that_is_the_mean_is_not_told_again() -> None:
    one = replace(WORSE, old_median_ns=OLD_STEP, new_median_ns=NEW_STEP)
    assert not [line for line in screen(one) if line.startswith("median")]


def test_findings_say_what_became_of_them() -> None:
    said = [" ".join(line.split()) for line in screen(WORSE, 120)]
    assert "findings that are new, gone or changed (3)" in said
    assert "new, high, rank 0 the host waits for the device" in said
    assert "gone, low casts take time" in said
    assert "changed, low → medium small kernels are 9 (before: small kernels are 3)" in said
    still = FindingChange(rule="x", rank=None, change="same", old=say("as it was"), new=say("as it was"))
    assert "as it was" not in "\n".join(screen(replace(WORSE, findings=(still,)), full=False))


def test_only_what_changed_is_on_one_screen_of_what_else_was_measured() -> None:
    brief, full = ("\n".join(screen(WORSE, 120, full=full)) for full in (False, True))
    assert "occupancy of cube cores" in brief and "vector cores  " not in brief.split("this run by itself")[0]
    assert "vector cores  " in full and "1800 MHz" in full
    assert re.search(r"occupancy of cube cores +81\.2 % +74\.5 % +-7\.5 to -5\.2 % +worse", brief)


def test_the_analysis_follows_shortened() -> None:
    brief, full = screen(WORSE), screen(WORSE, full=True)
    assert any("HOST-BOUND" in line for line in brief) and not any("typical step" in line for line in brief)
    assert any("typical step" in line for line in full)
    alone = render(result(), "text", View(width=100, full=True)).splitlines()
    body = "\n".join(alone[: alone.index("", len(alone) - 4)])  # the last line is of the comparison
    assert "\n".join(full).count(body) == 1  # nothing of it is missing, nothing is said twice


def test_every_table_has_a_row_for_each_thing() -> None:
    rows = {}
    for table in COMPARISON_TABLES:
        rows[table.name] = list(csv.DictReader(io.StringIO(render(held(WORSE), "csv", View(table=table.name)))))
    counts = {name: len(found) for name, found in rows.items()}
    assert counts == {
        "comparison": 1, "waterfall": len(PARTS), "parity": 2, "compared": 2, "shifts": 7, "finding_changes": 3,
        "aligned": 1, "causes": 1, "memory_changes": 0,
    }  # fmt: skip
    for table in COMPARISON_TABLES:
        assert render(result(), "csv", View(table=table.name)).count("\n") == 1  # nothing was compared


def test_all_formats_have_the_same_numbers() -> None:
    document = json.loads(render(held(WORSE), "json"))["comparison"]
    rows = list(csv.DictReader(io.StringIO(render(held(WORSE), "csv", View(table="waterfall")))))
    columns = ("delta_ns", "count_ns", "speed_ns", "old_ns", "new_ns")
    exact = [[p[name] for name in columns] for p in document["waterfall"]]
    assert exact == [[int(row[name]) for name in columns] for row in rows]
    assert [sum(column) for column in zip(*exact, strict=True)] == [
        document["delta_ns"], DELTA - sum(p.speed_ns for p in PARTS), sum(p.speed_ns for p in PARTS),
        document["old_step_ns"], document["new_step_ns"],
    ]  # fmt: skip
    largest = sorted((row for row in exact if row[0]), key=lambda row: -abs(row[0]))
    for lines in (screen(WORSE, 200, full=True), markdown(WORSE, full=True)):
        *shown, _, whole = waterfall(lines)  # before the whole stand those without a difference, as one row
        assert shown == largest and whole[0] == document["delta_ns"]
    (one,) = csv.DictReader(io.StringIO(render(held(WORSE), "csv", View(table="comparison"))))
    assert (one["verdict"], one["delta_ns"], one["least_ns"]) == ("worse", str(DELTA), "440000")
    assert document["interval_ns"] == [int(one["least_ns"]), int(one["most_ns"])]


def test_a_mismatch_is_told_before_what_matters_less() -> None:
    mismatch = Difference(what="world size", old="8", new="16", matters=True, mismatch=True)
    said = render(held(replace(WORSE, parity=(mismatch,))), "text", View(colour=True))
    assert re.search(r"\x1b\[1;31mworld size: 8 → 16", said)


def test_bytes_that_read_the_same_are_given_in_full() -> None:
    """Two KiB of 717 MiB are seen; of other sizes the unit is enough."""
    near = Shift(what="near", unit="bytes", old=751_631_360, new=751_633_408, verdict="worse")
    far = Shift(what="far", unit="bytes", old=1 << 20, new=2 << 20, verdict="worse")
    said = "\n".join(screen(replace(WORSE, shifts=(near, far))))
    assert re.search(r"near\s+751 631 360 bytes\s+751 633 408 bytes", said)
    assert re.search(r"far\s+1\.0 MiB\s+2\.0 MiB", said)


@pytest.mark.parametrize(
    ("stepped", "label", "title"),
    [
        ((True, True), "mean step", "where the difference of the mean step comes from"),
        ((True, False), "step or recording", "where the difference comes from"),
        ((False, False), "recording", "where the difference comes from"),
    ],
)
def test_without_steps_nothing_is_called_one(stepped: tuple[bool, bool], label: str, title: str) -> None:
    for format_ in ("text", "markdown"):
        said = render(held(replace(WORSE, stepped=stepped)), format_, View(width=150))
        assert f"{label}" in said and title in said
        assert ("mean step" in said) == all(stepped)


def test_the_mean_of_devices_is_no_step_of_the_job() -> None:
    one = held(WORSE)
    assert one.digest is not None and one.digest.devices == 1
    four = replace(one, digest=replace(one.digest, devices=4))
    assert ["mean of 4 devices" in render(run, "text", View(width=150)) for run in (one, four)] == [False, True]


def test_the_gates_are_what_a_job_without_a_baseline_asked_for() -> None:
    page = render(replace(result(), gates=GATES), "markdown")
    assert page.index("## gates") < page.index("## this run by itself") < page.index("% of span is compute")

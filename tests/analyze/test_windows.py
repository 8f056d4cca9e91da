"""What is on the screen is of the judged steps, whatever lies outside of them: set-up before, an evaluation after."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt
from msgspec.structs import replace
from small_programs import answer, starved

from npuperf.model.result import Result
from npuperf.show.formats import render
from npuperf.show.report import View

US = 1_000
#: 100 kernels of 6 µs in steps 11 and 12, every 40 µs from 0 on, each launched 10 µs before.
PROGRAM = starved()
SETUP, EVALUATION = 300, 200


def around(launched: bool = True) -> list[K]:
    """Kernels outside of the steps: set-up until 1 ms before them, an evaluation from 1 ms after them."""
    made = [K(-20_000 * US + i * 50 * US, 20 * US, f"setup{i}", "Init", block=4) for i in range(SETUP)]
    made += [K(5_000 * US + i * 50 * US, 30 * US, f"evaluation{i}", "Evaluate", block=4) for i in range(EVALUATION)]
    return [replace(k, launch=k.start - 9 * US, launch_dur=US) for k in made] if launched else made


def of(folder: Path, made: list[K], **asked: object) -> Result:
    ordered = sorted(made, key=lambda k: k.start)
    return analyze_path(ascend_pt(folder, ordered, cores="24,48"), **asked)


def table(result: Result, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(result, "csv", View(table=name)))))


def test_operators_and_kernels_are_of_the_judged_steps(tmp_path: Path) -> None:
    result = of(tmp_path, [*PROGRAM, *around()], top=5)
    assert {(o.type, o.count, o.total_ns) for o in result.operators} == {
        ("Add", 100, 600 * US), ("Init", SETUP, SETUP * 20 * US), ("Evaluate", EVALUATION, EVALUATION * 30 * US)
    }  # fmt: skip
    assert {k.type for k in result.kernels} == {"Evaluate"}  # the longest
    (operator,) = result.judged_operators or []
    assert (operator.type, operator.count, operator.total_ns, operator.share) == ("Add", 100, 600 * US, 1.0)
    assert (operator.block_dim and operator.block_dim.min, operator.first_ns) == (40, 20_000 * US)
    assert [k.type for k in result.judged_kernels or []] == ["Add"] * 5
    screen = render(result, "text", View(full=True))
    assert "Evaluate" not in screen and "Init" not in screen
    assert [row["type"] for row in table(result, "operators")] == ["Add"]
    assert {row["type"] for row in table(result, "kernels")} == {"Add"}
    assert "Evaluate" not in render(result, "html")


def test_nothing_is_listed_twice_where_everything_is_judged(tmp_path: Path) -> None:
    result = of(tmp_path, PROGRAM)
    assert result.judged_operators is None and result.judged_kernels is None
    assert [row["count"] for row in table(result, "operators")] == ["100"]


def test_the_table_of_devices_is_of_the_judged_steps(tmp_path: Path) -> None:
    """Steps 11 and 12 last from 0 to 3.966 ms; the recording is 35 ms long."""
    result = of(tmp_path, [*PROGRAM, *around()])
    (row,) = table(result, "devices")
    assert (int(row["span_ns"]), int(row["compute_ns"])) == (3_966 * US, 600 * US)
    assert result.devices[0].partition.span_ns == 20_000 * US + 5_000 * US + (EVALUATION - 1) * 50 * US + 30 * US


def test_all_that_was_recorded_is_a_row_only_where_some_of_it_is_not_judged(tmp_path: Path) -> None:
    """The host's step may begin before the first task, so that the recording's tasks are the shorter of the two."""
    (row,) = table(of(tmp_path / "more", [*PROGRAM, *around()]), "recorded")
    assert int(row["span_ns"]) == 20_000 * US + 5_000 * US + (EVALUATION - 1) * 50 * US + 30 * US
    steps = {11: (-100 * US, 1_990 * US), 12: (1_990 * US, 4_200 * US)}
    folder = ascend_pt(tmp_path / "host", PROGRAM, steps, cores="24,48")
    (device,) = (result := analyze_path(folder)).devices
    assert device.window.span_ns > device.partition.span_ns == 99 * 40 * US + 6 * US
    assert not table(result, "recorded")


@pytest.mark.parametrize("launched", [True, False])
def test_what_lies_outside_of_the_steps_keeps_nothing_from_being_replayed(tmp_path: Path, launched: bool) -> None:
    """Kernels without a launch, four fifths of the recording, and idle time that nothing explains."""
    alone = of(tmp_path / "alone", PROGRAM, what_if=("host*0.5",))
    result = of(tmp_path / "both", [*PROGRAM, *around(launched)], what_if=("host*0.5",))
    device, before = result.devices[0], alone.devices[0]
    assert before.replay is not None and device.replay is not None
    assert device.replay.usable and (device.replay.launched, device.replay.reason) == (1.0, None)
    assert device.replay.unexplained_ns == before.replay.unexplained_ns
    assert device.verdict.basis == "measured" and device.verdict.bound == before.verdict.bound == "host"
    assert device.verdict.elasticity is not None and before.verdict.elasticity is not None
    assert device.verdict.elasticity.host == pytest.approx(before.verdict.elasticity.host, abs=0.01)
    mine, theirs = (next(w for w in r.what_if if w.expr == "host*0.5") for r in (result, alone))
    assert mine.gain_pct == pytest.approx(theirs.gain_pct, abs=1)


def test_launches_that_are_missing_within_the_steps_do(tmp_path: Path) -> None:
    """A fifth of the steps' kernels has no launch; outside of them all have."""
    program = [replace(k, launch=None) if i % 5 == 0 else k for i, k in enumerate(PROGRAM)]
    device = of(tmp_path, [*program, *around()]).devices[0]
    assert device.replay is not None and not device.replay.usable
    assert device.replay.launched == pytest.approx(0.8)
    assert str(device.replay.reason) == "the launches of 20.0 % of the tasks are unknown"


def test_host_calls_outside_of_the_steps_are_not_the_steps_unevenness(tmp_path: Path) -> None:
    """Calls of 10 µs before every launch of the steps; of those outside every other one takes 30 µs, not 1."""
    kernels = sorted([*PROGRAM, *around()], key=lambda k: k.start)
    calls = [H("AscendCL@aclnnAdd", (k.launch or 0) - 10 * US, 10 * US) for k in PROGRAM]
    slow = [H("AscendCL@aclnnAdd", (k.launch or 0) - 30 * US, (1 + 29 * (i % 2)) * US)
            for i, k in enumerate(around())]  # fmt: skip
    even = answer(analyze_path(ascend_pt(tmp_path / "a", kernels, host=[*calls, *slow])), "uneven_host")
    assert even.status == "ok"
    uneven = [replace(c, dur=38 * US, start=c.start - 28 * US) if i % 4 == 0 else c for i, c in enumerate(calls)]
    found = answer(analyze_path(ascend_pt(tmp_path / "b", kernels, host=[*uneven, *slow])), "uneven_host")
    # 25 of 100 calls take 18 µs beyond twice the median of 10 µs
    assert (found.evidence["excess_ns"], found.evidence["calls_ns"]) == (25 * 18 * US, (25 * 38 + 75 * 10) * US)

"""MFU by the model's size in a report: which windows have it, by whose share of the work, and what is said without."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt

from npuperf.base.messages import text
from npuperf.model.result import Result

#: 24 cube cores at 1800 MHz, 8192 FLOP a cycle: 353.8944 TFLOPS.
PEAK = 24 * 1800e6 * 8192
SOC = "Ascend910B2"
MS = 1_000_000
#: Steps of 2, 3 and 5 ms.
STEPS = {1: (0, 2 * MS), 2: (2 * MS, 5 * MS), 3: (5 * MS, 10 * MS)}


def recorded(root: Path, steps: dict[int, tuple[int, int]] = STEPS) -> Path:
    kernels = [
        K(start=begin + 100_000, dur=(end - begin) // 2, step=number if steps else "", launch=begin + 10_000,
          type="MatMulV2", name="MatMul", core="AI_CORE")
        for number, (begin, end) in (steps or {0: (0, 4 * MS)}).items()
    ]  # fmt: skip
    return ascend_pt(root, kernels, steps, cores="24,48")


def warnings(result: Result) -> str:
    return "\n".join(map(text, result.input.warnings))


def test_every_step_and_what_is_judged_have_it(tmp_path: Path) -> None:
    """A step of 4 devices asks for 1.2e12 FLOP, of each for 3e11."""
    found = analyze_path(recorded(tmp_path), soc=SOC, model_flops=1.2e12, tokens=4000, world_size=4, no_cache=True)
    (device,) = found.devices
    by_step = {s.step: s.efficiency for s in device.steps}
    whole = [s.step for s in device.steps if s.whole]
    assert whole, "there are whole steps"
    for number in whole:
        own = by_step[number]
        span = next(s.partition.span_ns for s in device.steps if s.step == number)
        assert own is not None and own.mfu.palm == own.mfu.verl == pytest.approx(3e11 / (PEAK * span / 1e9), rel=1e-12)
        assert own.tokens_per_s == pytest.approx(1000 / (span / 1e9), rel=1e-12)
    judged = device.judged
    assert judged is not None and judged.efficiency is not None and judged.steps == len(whole)
    share = 3e11 * len(whole) / (PEAK * judged.partition.span_ns / 1e9)
    assert judged.efficiency.mfu.palm == pytest.approx(share, rel=1e-12)
    assert all(phase.efficiency is None or phase.efficiency.mfu.palm is None for phase in device.phases)
    assert found.model is not None
    assert (found.model.devices, found.model.assumed, found.model.given) == (4, False, True)
    assert "MFU" not in warnings(found)


def test_the_step_that_was_asked_for(tmp_path: Path) -> None:
    found = analyze_path(recorded(tmp_path), soc=SOC, model_flops=3e11, world_size=1, step=2, no_cache=True)
    (device,) = found.devices
    assert [s.step for s in device.steps] == [2]
    assert device.efficiency is not None
    assert device.efficiency.mfu.palm == pytest.approx(3e11 / (PEAK * device.steps[0].partition.span_ns / 1e9))


def test_devices_that_nobody_counted_are_said(tmp_path: Path) -> None:
    found = analyze_path(recorded(tmp_path), soc=SOC, model_flops=3e11, no_cache=True)
    assert found.model is not None and (found.model.devices, found.model.assumed) == (1, True)
    assert "--world-size" in warnings(found)


def test_without_a_peak_the_option_is_named(tmp_path: Path) -> None:
    found = analyze_path(recorded(tmp_path), model_flops=3e11, world_size=1, no_cache=True)
    assert found.devices[0].efficiency is None
    assert "nothing tells the peak of its cube cores (give --soc)" in warnings(found)


def test_without_steps_there_is_none(tmp_path: Path) -> None:
    found = analyze_path(recorded(tmp_path, {}), soc=SOC, model_flops=3e11, world_size=1, no_cache=True)
    (device,) = found.devices
    assert device.efficiency is not None and device.efficiency.mfu.palm is None
    assert "no whole step is recorded" in warnings(found)


def test_a_size_that_cannot_be_is_said(tmp_path: Path) -> None:
    found = analyze_path(recorded(tmp_path), soc=SOC, model_flops=3e15, world_size=1, no_cache=True)
    judged = found.devices[0].judged
    assert judged is not None and judged.efficiency is not None and judged.efficiency.mfu.palm is None
    assert "above its peak" in warnings(found)

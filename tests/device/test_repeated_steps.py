"""A program that counts its steps from 0 twice: a number is then no step, and its median no step's length."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt, kernel_details


def counted(numbers: list[int]) -> list[K]:
    """A step of ten kernels of 50 µs, 1 ms in all, per number."""
    return [K(n * 1_000_000 + i * 100_000, 50_000, step=number, launch=n * 1_000_000 + i * 100_000 - 20_000,
              launch_dur=2_000) for n, number in enumerate(numbers) for i in range(10)]  # fmt: skip


@pytest.mark.parametrize("table_alone", [True, False])
def test_steps_that_cannot_be_told_apart_are_none(tmp_path: Path, table_alone: bool) -> None:
    kernels = counted([0, 1, 2, 0, 1, 2])
    path = kernel_details(tmp_path / "kernel_details.csv", kernels) if table_alone else ascend_pt(tmp_path, kernels)
    result = analyze_path(path)
    assert result.devices[0].steps == []
    assert any("numbers of steps occur again" in str(warning) for warning in result.input.warnings)
    assert all(f.gain_per == "window" for f in result.findings)


def test_steps_in_order_are_steps(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, counted([5, 6, 7, 8])))
    assert [s.step for s in result.devices[0].steps] == [5, 6, 7, 8]
    assert result.input.warnings == []


def test_steps_may_overlap(tmp_path: Path) -> None:
    """A last step of two kernels begins before the last kernel of the step before it begins, on another stream."""
    late = [K(1_850_000 + i * 10_000, 5_000, step=7, stream=5, launch=1_800_000, launch_dur=2_000) for i in range(2)]
    result = analyze_path(ascend_pt(tmp_path, [*counted([5, 6]), *late]))
    assert [s.step for s in result.devices[0].steps] == [5, 6, 7]

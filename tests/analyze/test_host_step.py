"""How long a step is for the host, where the device shows less of it."""

from __future__ import annotations

from pathlib import Path

from build import K, ascend_pt
from small_programs import analyzed

from npuperf.show.formats import View, render


def said(root: Path, kernels: list[K], steps: dict[int, tuple[int, int]]) -> str:
    result = analyzed(ascend_pt(root, kernels, steps=steps))
    lengths = {s.step: s.host_ns for s in result.devices[0].steps}
    assert lengths == {number: end - start for number, (start, end) in steps.items()}
    return " ".join(str(render(result, "text", View(width=200))).split())


def kernels(step: int, begin: int) -> list[K]:
    return [K(begin + i * 50_000, 50_000, f"k{i}", launch=begin + i * 50_000 - 9_000, step=step) for i in range(40)]


def test_what_precedes_the_first_kernel_of_an_only_step_is_told(tmp_path: Path) -> None:
    """The host's step lasts 3 ms: 0.9 ms before the first kernel, 2 ms of kernels, 0.1 ms after the last."""
    assert "2.00 ms/step · the host's step takes 3.00 ms" in said(tmp_path, kernels(11, 0), {11: (-900_000, 2_100_000)})


def test_the_next_step_tells_how_long_a_step_is(tmp_path: Path) -> None:
    """Two steps, 3 ms apart: the first one lasts until the second one's first kernel."""
    two = [*kernels(11, 0), *kernels(12, 3_000_000)]
    assert "the host's step" not in said(tmp_path, two, {11: (-900_000, 2_100_000), 12: (2_100_000, 5_100_000)})


def test_a_host_that_runs_ahead_is_done_before_the_device(tmp_path: Path) -> None:
    assert "the host's step" not in said(tmp_path, kernels(11, 0), {11: (-900_000, 1_000_000)})

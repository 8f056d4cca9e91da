"""Operators launched one by one before a graph whose kernels have no launches of their own."""

from __future__ import annotations

from pathlib import Path

from build import H, K, analyze_path, ascend_pt


def mixed(graph: int) -> list[K]:
    """Two steps: 20 kernels of 8 µs as the host launches them, every 40 µs; then kernels of a graph, back to back."""
    kernels, at = [], 0
    for step in (11, 12):
        for _ in range(20):
            kernels.append(K(at, 8_000, step=step, launch=at - 12_000, launch_dur=2_000))
            at += 40_000
        for _ in range(graph):
            kernels.append(K(at, 40_000, "MatMul_7", "MatMulV2", "AI_CORE", block=24, step=step))
            at += 40_500
        at += 20_000
    return kernels


def test_kernels_of_a_graph_are_not_paced_by_the_host(tmp_path: Path) -> None:
    """0.8 ms of the host's pace, then 2.4 ms of a graph that needs no host: what is 10 % faster saves more there."""
    host = [H("aten::mm", -20_000, 1_000, python=True)]
    result = analyze_path(ascend_pt(tmp_path, mixed(graph=60), host=host))
    assert result.devices[0].partition.idle_ns > 0.15 * result.devices[0].partition.span_ns
    assert result.verdict.bound == "compute"


def test_a_small_graph_leaves_the_run_to_the_host(tmp_path: Path) -> None:
    host = [H("aten::mm", -20_000, 1_000, python=True)]
    assert analyze_path(ascend_pt(tmp_path, mixed(graph=4), host=host)).verdict.bound == "host"

"""Short gaps before kernels that were launched long before are not the host's, even where clocks disagree."""

from __future__ import annotations

from pathlib import Path

from build import K, ascend_pt
from small_programs import analyzed


def test_a_gap_after_a_launch_that_has_arrived_is_a_dependency(tmp_path: Path) -> None:
    """The first kernel starts 20 µs before its launch ends: clocks disagree. All others were launched 1 ms before."""
    first = K(0, 9_000, "k0", "MatMulV2", "AI_CORE", launch=10_000, launch_dur=10_000)
    rest = [K(i * 10_000, 9_000, f"k{i}", "MatMulV2", "AI_CORE", launch=i * 10_000 - 1_000_000, launch_dur=2_000)
            for i in range(1, 100)]  # fmt: skip
    (device,) = analyzed(ascend_pt(tmp_path, [first, *rest])).devices
    assert device.clock.launch_latency_ns is None
    assert (device.partition.host_wait_ns, device.partition.launch_latency_ns) == (0, 0)
    assert device.partition.dependency_wait_ns == device.partition.idle_ns == 99 * 1_000

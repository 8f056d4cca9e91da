"""A wait of the host may be what orders two streams: that nothing else does is not recorded, so no gain is sure."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt


def gain(folder: Path, second_stream: int) -> tuple[int, int]:
    """1 ms on stream 5, a wait of the host for it, then 0.5 ms on a stream, and 40 kernels more before and after."""
    before = [K(i * 100_000, 100_000, "b", stream=5, launch=i * 10_000 - 410_000, launch_dur=2_000) for i in range(20)]
    first = K(2_000_000, 1_000_000, "a", stream=5, launch=-200_000, launch_dur=2_000)
    wait = H("AscendCL@aclrtSynchronizeStream", -190_000, 3_196_000)  # until 3.006 ms
    second = K(3_030_000, 500_000, "c", stream=second_stream, launch=3_018_000, launch_dur=2_000)
    path = ascend_pt(folder, [*before, first, second], host=[wait, H("aten::mm", -420_000, 5_000, python=True)])
    (found,) = (w for w in analyze_path(path, what_if=("sync*0",)).what_if if w.asked)
    assert found.gain_ns_per_step is not None
    return found.gain_ns_per_step


def test_what_another_stream_may_need_is_no_sure_gain(tmp_path: Path) -> None:
    """Beside each other they save all 530 µs of the second; one after the other only the 30 µs between them."""
    least, most = gain(tmp_path, second_stream=2)
    assert 0 <= least <= 30_000
    assert most == pytest.approx(530_000, abs=5_000)


def test_one_stream_keeps_its_order_anyway(tmp_path: Path) -> None:
    least, most = gain(tmp_path, second_stream=5)
    assert 25_000 <= least <= most <= 30_000

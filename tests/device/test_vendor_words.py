"""What is said of the exporter's own split of a step beside ours."""

from __future__ import annotations

import re
from pathlib import Path

from build import K, analyze_path, ascend_pt

HEADER = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
STEP = {1: (0, 1_000_000)}


def why(root: Path, computing: str, free: str) -> tuple[bool, str]:
    """One step of 1 ms: 600 µs of kernels from its start, then a gap of 390 µs and 10 µs more."""
    rows = [K(0, 600_000, step=1), K(990_000, 10_000, step=1)]
    folder = ascend_pt(root, rows, STEP)
    table = f"{HEADER}\n0,1,{computing},0,0,0,{free},0,0\n"
    (folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").write_text(table)
    (device,) = analyze_path(folder).devices
    (check,) = device.vendor
    return check.agrees, str(check.why)


def test_the_difference_is_said_and_not_the_tolerance(tmp_path: Path) -> None:
    """610 µs of compute and 390 µs free are ours; theirs are 0.5 µs more and less: that is the difference."""
    agrees, words = why(tmp_path, "610.5", "389.5")
    assert agrees and "the largest difference is 500" in words, words
    assert re.search(r"\d[^,]* is tolerated", words) and "within" not in words
    agrees, words = why(tmp_path / "same", "610", "390")
    assert agrees and "the largest difference is 0 ns" in words, words

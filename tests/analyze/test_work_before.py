"""Recordings that begin while earlier work still runs: what is judged begins where that has ended.

No row tells of that work; here it is known, because the device's tasks are laid out around it by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from build import H, K, ascend_pt
from small_programs import analyzed

from npuperf.analyze.digests import judged_windows
from npuperf.model.result import Result
from npuperf.show.formats import View, render

US = 1_000
MS = 1_000_000
SAID = "the recording began while earlier work still ran"
WAIT = "AscendCL@aclrtSynchronizeStream"


def kernels(begin: int, launched: int, count: int = 40, step: int | str = "", stream: int = 2) -> list[K]:
    """Kernels of 50 µs, back to back, launched every 10 µs."""
    return [K(begin + i * 50 * US, 50 * US, f"k{begin}_{i}", launch=launched + i * 10 * US, launch_dur=US, step=step,
              stream=stream) for i in range(count)]  # fmt: skip


def one_by_one(begin: int, count: int = 20, step: int | str = "") -> list[K]:
    """Kernels of 50 µs every 100 µs, each begun 8 µs after its launch returns: by these the latency is known."""
    return [K(begin + i * 100 * US, 50 * US, f"o{begin}_{i}", launch=begin + i * 100 * US - 9 * US, launch_dur=US,
              step=step) for i in range(count)]  # fmt: skip


def copy(begin: int, dur: int, launched: int) -> K:
    return K(begin, dur, "MEMCPY_ASYNC", core="PCIE_DMA_SQE", launch=launched, launch_dur=US, stream=9)


def said(result: Result) -> str:
    return " ".join(str(render(result, "text", View(width=200))).split())


def test_a_first_kernel_that_had_to_wait_begins_what_is_judged(tmp_path: Path) -> None:
    """The host begins its step at -500 µs and launches 0.4 ms before the first kernel: until then the device was busy.

    So the step is 2 ms of kernels and the 2 ms of those launched one by one, and none of it is idle before.
    """
    made = [*kernels(0, -400 * US, step=11), *one_by_one(2_200 * US, step=11)]
    result = analyzed(ascend_pt(tmp_path, made, {11: (-500 * US, 4_150 * US)}))
    (device,) = result.devices
    (step,) = device.steps
    assert (step.start_ns, step.partition.span_ns, step.partition.compute_ns) == (0, 4_150 * US, 3 * MS)
    assert SAID in said(result)


def test_a_first_kernel_that_was_launched_late_was_not_held_up(tmp_path: Path) -> None:
    made = [*one_by_one(0, step=11), *kernels(2 * MS, 1_900 * US, step=11)]
    result = analyzed(ascend_pt(tmp_path, made, {11: (-500 * US, 4_100 * US)}))
    assert result.devices[0].steps[0].partition.span_ns == 4_600 * US
    assert SAID not in said(result)


@pytest.mark.parametrize(("moved", "held"), [(100 * US, False), (63 * US, False), (62 * US, True), (5 * US, True)])
def test_a_copy_may_have_been_prepared_meanwhile(tmp_path: Path, moved: int, held: bool) -> None:
    """It begins 3.99 ms after its launch arrived: 63.3 times as long as it takes is no proof, 64.4 times is."""
    made = [copy(0, moved, -4 * MS), *one_by_one(200 * US, step=11)]
    result = analyzed(ascend_pt(tmp_path, made, {11: (-5 * MS, 2_200 * US)}))
    (step,) = result.devices[0].steps
    assert step.partition.span_ns == (2_200 * US if held else 7_200 * US)
    assert (SAID in said(result)) == held
    if held:  # what the host did before that is no part of what it can save
        assert result.verdict.elasticity is not None and result.verdict.elasticity.host <= 1.01


def waiting(dur: int) -> tuple[list[K], tuple[H, ...]]:
    """A short copy runs at once on a stream of its own; the host waits for another stream, which is busy until 400 ms.

    Its first kernel was launched 1 ms after the beginning. Then kernels are launched one by one.
    """
    first = K(400 * MS, 50 * US, "first", launch=1 * MS, launch_dur=US)
    later = one_by_one(400 * MS + 200 * US)
    return [copy(0, dur, -9 * US), first, *later], (H(WAIT, -20 * US, 400 * MS + 100 * US),)


def test_a_wait_that_began_before_the_first_task(tmp_path: Path) -> None:
    """Without steps, too: 400 ms were "idle that no call of the host explains"."""
    made, host = waiting(20 * US)
    result = analyzed(ascend_pt(tmp_path, made, host=host), what_if=("host*0.5",))
    (device,) = result.devices
    assert device.judged is not None
    assert (device.judged.steps, device.judged.start_ns, device.judged.before_ns) == (0, 400 * MS, 400 * MS)
    assert device.partition.span_ns == 400 * MS + 200 * US + 19 * 100 * US + 50 * US  # the whole span stays
    assert device.window.span_ns == device.partition.span_ns - 400 * MS
    assert device.window.dependency_wait_ns == 0
    assert sum(p.partition.span_ns for p in device.phases) == device.window.span_ns
    assert SAID in said(result) and "not counted: 400.00 ms before" in said(result)
    # What is summed to be compared is of the same time: 21 kernels of 50 us, and nothing of the copy before.
    begin = device.origin_ns + 400 * MS
    _, windows = judged_windows(device)
    assert (windows.start.tolist(), windows.end.tolist()) == ([begin], [begin + device.window.span_ns])
    assert result.digest is not None
    sums = {part: sum(p.ns for p in result.digest.parts if p.part == part) for part in ("compute", "other")}
    assert sums == {"compute": 21 * 50 * US, "other": 0}
    assert sum(p.ns for p in result.digest.parts) == result.digest.total_ns
    # The host's wait for that work is no host time: half of what it does between launches is what can be saved.
    (less,) = (w for w in result.what_if if w.asked)
    assert less.span_ns is not None and less.span_ns >= device.window.span_ns // 2


def test_a_long_wait_in_the_middle_is_the_program_s(tmp_path: Path) -> None:
    """The same after more work than the wait is long: it may wait for anything."""
    made, host = waiting(20 * US)
    before = [K(-900 * MS, 899 * MS, "long", launch=-901 * MS, launch_dur=US)]
    result = analyzed(ascend_pt(tmp_path, [*before, *made], host=host))
    assert result.devices[0].judged is None and SAID not in said(result)

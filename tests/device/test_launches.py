"""Launch latency and clocks: one machine with one true latency, its device's clock moved, and waits of the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.advise import load_thresholds
from npuperf.device.partition import Returns, calibrate
from npuperf.model.result import Device
from npuperf.model.tasks import Tasks, Work

LIMITS = load_thresholds()
US = 1_000
LATENCY, CALL, BACK = 9 * US, 4 * US, 12 * US  # launch end to start, launch call, kernel's end to the host's return
DUR, PERIOD, N = 20 * US, 100 * US, 40


def kernels(skew: int) -> list[K]:
    """An idle device, one launch per period (they end at 0, 100, … µs); its clock is ``skew`` behind the host's."""
    return [
        K(i * PERIOD + LATENCY - skew, DUR, f"k{i}", launch=i * PERIOD - CALL, launch_dur=CALL, step=11)
        for i in range(N)
    ]


def device(folder: Path, skew: int, waits: bool) -> Device:
    """The run as recorded; with ``waits`` the host waits for the device after every kernel."""
    done = LATENCY + DUR + BACK
    host = [H("AscendCL@aclrtSynchronizeDevice", i * PERIOD + 1, done - 1) for i in range(N)] if waits else []
    (found,) = analyze_path(ascend_pt(folder, kernels(skew), host=host)).devices
    return found


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("skew", [0, 5 * US, 13 * US])
def test_clocks_that_nothing_contradicts_are_taken_to_agree(tmp_path: Path, skew: int, waits: bool) -> None:
    """Up to 13 µs (latency and call) nothing starts before its launch: what is seen is latency less skew."""
    clock = device(tmp_path, skew, waits).clock
    assert (clock.skew_ns, clock.launch_latency_ns) == (0, max(LATENCY - skew, 0))
    assert clock.latency_reason is None and clock.latency_bounds_ns is None


@pytest.mark.parametrize("skew", [15 * US, 20 * US, 40 * US])
def test_clocks_that_disagree_leave_the_latency_open(tmp_path: Path, skew: int) -> None:
    """Kernels start ``skew - 13`` µs before their launch. The host is back 12 µs after the end of each, no sooner.

    So the skew is anything up to 12 µs more than it is, and the latency anything up to 12 µs more than it is.
    """
    found = device(tmp_path, skew, waits=True)
    clock = found.clock
    assert clock.launch_latency_ns is None and "clocks of host and device disagree" in str(clock.latency_reason)
    assert (clock.skew_ns, clock.skew_most_ns) == (skew - LATENCY - CALL, skew + BACK)
    assert clock.latency_bounds_ns == (0, LATENCY + BACK)
    p = found.partition
    assert p.launch_latency_ns == 0 and p.idle_ns == (N - 1) * (PERIOD - DUR)
    assert p.host_wait_ns == p.idle_ns  # all of it ends with a launch that just arrived
    assert "launch latency included" in str(found.verdict.reason)
    assert found.verdict.evidence["launch_latency_share"] is None


def test_without_waits_nothing_bounds_it(tmp_path: Path) -> None:
    clock = device(tmp_path, 20 * US, waits=False).clock
    assert clock.launch_latency_ns is None and clock.skew_most_ns is None and clock.latency_bounds_ns is None


def test_one_machine_has_one_latency_whatever_its_clocks(tmp_path: Path) -> None:
    """Recordings of the same machine with other clocks: no two that tell a latency by bounds tell different ones."""
    bounds = {device(tmp_path / str(skew), skew * US, waits=True).clock.latency_bounds_ns for skew in (15, 18, 25, 60)}
    assert bounds == {(0, LATENCY + BACK)}


def test_a_device_whose_clock_is_ahead(tmp_path: Path) -> None:
    """The device's clock is 30 µs ahead: the host is back 18 µs before what it waited for has ended."""
    clock = device(tmp_path, -30 * US, waits=True).clock
    assert clock.launch_latency_ns is None and "host is back" in str(clock.latency_reason)
    assert (clock.skew_ns, clock.skew_most_ns) == (0, -30 * US + BACK)


def test_moments_instead_of_calls_tell_no_latency(tmp_path: Path) -> None:
    """Where only the arrow's start is recorded, what comes after it is the queue's time, too."""
    moments = [K(k.start, k.dur, k.name, launch=i * PERIOD, step=11) for i, k in enumerate(kernels(0))]
    (found,) = analyze_path(ascend_pt(tmp_path, moments)).devices
    assert found.clock.launch_latency_ns is None and "not recorded" in str(found.clock.latency_reason)
    assert (found.partition.host_wait_ns, found.partition.launch_latency_ns) == (found.partition.idle_ns, 0)


def test_no_launch_into_an_idle_device_tells_no_latency(tmp_path: Path) -> None:
    queued = [K(i * DUR, DUR, f"k{i}", launch=i * US - 500 * US, launch_dur=500, step=11) for i in range(30)]
    clock = analyze_path(ascend_pt(tmp_path, queued)).devices[0].clock
    assert (clock.launch_latency_ns, clock.latency_samples) == (None, 0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 40_000), st.sampled_from([1, 2])), min_size=3),
    st.integers(-50_000, 80_000),
    st.booleans(),
)  # fmt: skip
def test_the_true_skew_is_within_its_bounds(drawn: list[tuple[int, int, int]], skew: int, one_stream: bool) -> None:
    """Random launches on two streams, a device that never starts early, and hosts that never return early."""
    clock, free, made = 0, {1: 0, 2: 0}, []
    for gap, dur, stream in drawn:
        launch = clock + gap
        start = max(launch + 1 + gap // 3, free[stream])
        free[stream] = start + dur
        made.append((start, free[stream], launch, stream))
        clock = launch + 1
    made.sort()
    start, end, launch, stream = (np.array(column, np.int64) for column in zip(*made, strict=True))
    tasks = Tasks.build(
        start - skew, end - skew, np.full(len(start), Work.COMPUTE, np.uint8),
        stream=stream, launch_start=launch, launch_end=launch + 1,
    )  # fmt: skip
    # A wait for one stream returns when that stream is done, whichever it is; of two, the one that is done first.
    ends = {s: max((int(e) for e, at in zip(end, stream, strict=True) if at == s), default=None) for s in (1, 2)}
    known = [e for e in ends.values() if e is not None]
    done = min(known) if one_stream else max(known)
    asked = int(launch.max()) + 1
    back = max(done, asked)
    returns = Returns(np.array([asked]), np.array([back]), np.array([one_stream]))
    found = calibrate(tasks, LIMITS, returns)
    if found.implausible:
        return
    assert found.skew <= max(skew, 0)
    if found.skew_most is not None:
        assert skew <= found.skew_most

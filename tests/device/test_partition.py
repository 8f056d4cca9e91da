"""The partition is exact: compared, to the nanosecond, with a slow one that looks at every elementary interval."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, HEADER, H, K, analyze_path, ascend_pt, kernel_details, row
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from small_programs import analyzed

from npuperf.advise import load_thresholds
from npuperf.device.partition import Launches, Returns, calibrate, lay_out, owned, uncovered, window
from npuperf.model.intervals import Intervals
from npuperf.model.result import Device, Partition
from npuperf.model.tasks import NO_TIME, Tasks, Work

LIMITS = load_thresholds()
Task = tuple[int, int, int, int | None, int | None]  # start, end, work, launch start, launch end

tasks_strategy = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from([0, 1, 3, 8, 20]),
        st.sampled_from([Work.COMPUTE, Work.COMPUTE, Work.COMMUNICATION, Work.OTHER, Work.CONTROL]),
        st.one_of(st.none(), st.tuples(st.integers(-30, 3), st.integers(0, 4))),
    ),
    min_size=1,
    max_size=9,
)


def placed(drawn: list, base: int) -> list[Task]:
    tasks: list[Task] = []
    for start, dur, work, launch in drawn:
        begin = None if launch is None else base + start + launch[0] - launch[1]
        end = None if launch is None else base + start + launch[0]
        tasks.append((base + start, base + start + dur, int(work), begin, end))
    return sorted(tasks, key=lambda t: (t[0], t[1]))


def columns(tasks: list[Task]) -> Tasks:
    start, end, work, begin, launched = zip(*tasks, strict=True)
    return Tasks.build(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array(work, np.uint8),
        launch_start=np.array([NO_TIME if b is None else b for b in begin], np.int64),
        launch_end=np.array([NO_TIME if e is None else e for e in launched], np.int64),
    )


def slow_skew(tasks: list[Task]) -> int:
    return max([0] + [t[3] - t[0] for t in tasks if t[3] is not None])


def slow_latency(tasks: list[Task], skew: int) -> int:
    """The lower 10 % quantile of start - launch end over compute tasks launched to an idle device."""
    waits = []
    for i, t in enumerate(tasks):
        before = [o[1] for o in tasks[:i] if o[2] != Work.CONTROL] + [o[0] for o in tasks[:i] if o[2] == Work.CONTROL]
        empty = not before or (t[4] is not None and t[4] - skew >= max(before))
        if t[2] == Work.COMPUTE and t[4] is not None and empty:
            waits.append(max(t[0] - (t[4] - skew), 0))
    return sorted(waits)[int(0.1 * (len(waits) - 1))] if waits else 0


def slow_untold(tasks: list[Task], latency_seen: bool) -> bool:
    """Launch latency stands apart where kernels were launched while idle, and calls of some length launched them."""
    return not latency_seen or not any(t[3] is not None and t[4] > t[3] for t in tasks)


def slow_samples(tasks: list[Task], skew: int) -> bool:
    for i, t in enumerate(tasks):
        before = [o[1] for o in tasks[:i] if o[2] != Work.CONTROL] + [o[0] for o in tasks[:i] if o[2] == Work.CONTROL]
        if t[2] == Work.COMPUTE and t[4] is not None and (not before or t[4] - skew >= max(before)):
            return True
    return False


def slow_partition(tasks: list[Task], begin: int, end: int, skew: int, latency: int) -> dict[str, int]:
    active = [t for t in tasks if t[2] != Work.CONTROL]
    first, last = min(t[0] for t in active), max(t[1] for t in active)
    parts = dict.fromkeys(("compute", "comm_exposed", "other_exposed", "idle"), 0)
    parts |= dict.fromkeys(("host_wait", "launch_latency", "dependency_wait", "unattributed"), 0)
    borders = sorted({begin, end} | {b for t in active for b in t[:2] if begin <= b <= end})
    for a, b in itertools.pairwise(borders):
        works = {t[2] for t in active if t[0] <= a and t[1] >= b}
        if works:
            name = ("compute", "comm_exposed", "other_exposed")[min(works)]
            parts[name] += b - a
            continue
        parts["idle"] += b - a
        gap_start = max([t[1] for t in active if t[1] <= a and t[1] > t[0]] + [first])
        gap_end = min([t[0] for t in active if t[0] >= b and t[1] > t[0]] + [last])
        launches = [t[4] - skew for t in active if t[0] == gap_end and t[4] is not None]
        if not launches:
            parts["unattributed"] += b - a
            continue
        launched = min(max(min(launches), gap_start), gap_end)
        ready = min(launched + latency, gap_end)
        if slow_untold(tasks, slow_samples(tasks, skew)):  # until the launch has arrived the device waits for the host
            launched = ready = min(max(min(launches) + latency, gap_start), gap_end)
        for name, low, high in (
            ("host_wait", gap_start, launched), ("launch_latency", launched, ready), ("dependency_wait", ready, gap_end)
        ):  # fmt: skip
            parts[name] += max(0, min(high, b) - max(low, a))
    return parts


def assert_adds_up(p: Partition) -> None:
    assert p.span_ns == p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
    assert p.idle_ns == p.host_wait_ns + p.launch_latency_ns + p.dependency_wait_ns + p.unattributed_ns
    assert p.comm_exposed_ns == p.comm_transfer_ns + p.comm_wait_ns + p.comm_unknown_ns
    assert min(getattr(p, name) for name in p.__struct_fields__) >= 0


@settings(max_examples=150)
@given(tasks_strategy, st.sampled_from([0, EPOCH, 1_800_000_000_000_000_000]), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_slow_partition(drawn: list, base: int, left: float, right: float) -> None:
    tasks = placed(drawn, base)
    if all(t[2] == Work.CONTROL for t in tasks):
        return
    table = columns(tasks)
    launches = calibrate(table, LIMITS)
    assert launches.skew == slow_skew(tasks)
    assert launches.latency == slow_latency(tasks, launches.skew)
    timeline = lay_out(table, launches)
    begin, end = timeline.span
    inner = sorted((begin + int(left * (end - begin)), begin + int(right * (end - begin))))
    for a, b in ((begin, end), tuple(inner)):
        found = timeline.partition(window(a, b))[0]
        assert_adds_up(found)
        expected = slow_partition(tasks, a, b, launches.skew, launches.latency)
        assert {name: getattr(found, f"{name}_ns") for name in expected} == expected


def random_kernels(seed: int) -> list[K]:
    source = random.Random(seed)
    kernels, clock, ends = [], 0, {2: 0, 5: 0}
    for i in range(60):
        clock += source.randint(100, 9000)
        stream = source.choice([2, 5])
        start = max(clock + 700, ends[stream] + 40)
        ends[stream] = start + source.randint(1, 9000)
        core = source.choice(["AI_CORE", "AI_VECTOR_CORE"])
        kernels.append(
            K(start, ends[stream] - start, f"k{i}", f"T{i % 5}", core, stream, step=11 + i // 30, launch=clock)
        )
    kernels.append(K(20_000, 90_000, "hcom_allReduce__1_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=11,
                     launch=10_000))  # fmt: skip
    return kernels


def parts_of(path: Path) -> list[tuple[int, ...]]:
    (device,) = analyze_path(path).devices
    partitions = [device.partition, *(s.partition for s in device.steps)]
    for p in partitions:
        assert_adds_up(p)
    return [tuple(getattr(p, name) for name in p.__struct_fields__) for p in partitions]


@pytest.mark.parametrize("seed", range(4))
def test_invariances_through_files(tmp_path: Path, seed: int) -> None:
    kernels = random_kernels(seed)
    expected = parts_of(ascend_pt(tmp_path / "plain", kernels))
    assert len(expected) == 3
    renamed = [replace(k, stream=k.stream if k.stream == "N/A" else 90 - int(k.stream)) for k in kernels]
    shuffled = random.Random(seed).sample(kernels, len(kernels))
    assert parts_of(ascend_pt(tmp_path / "renamed", renamed)) == expected
    assert parts_of(ascend_pt(tmp_path / "shuffled", shuffled)) == expected
    assert parts_of(ascend_pt(tmp_path / "shifted", kernels, epoch=EPOCH + 86_400_000_000_007)) == expected


def test_slices_give_what_the_whole_file_gives(tmp_path: Path) -> None:
    kernels = random_kernels(7)
    whole = parts_of(kernel_details(tmp_path / "whole" / "kernel_details.csv", kernels))
    output = tmp_path / "PROF_000001_20250101000000000_X" / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    for i in range(3):
        text = "\r\n".join([HEADER, *(row(k) for k in kernels[i::3])]) + "\r\n"
        (output / f"op_summary_slice_{i}_20250101000000.csv").write_text(text, newline="")
    assert parts_of(output) == whole


def test_streams_are_split_on_their_own(tmp_path: Path) -> None:
    kernels = [K(0, 10_000, stream=2), K(4_000, 10_000, stream=5), K(30_000, 2_000, stream=2)]
    (device,) = analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)).devices
    assert {s.stream: (s.partition.compute_ns, s.partition.idle_ns) for s in device.streams} == {
        2: (12_000, 20_000),
        5: (10_000, 22_000),
    }
    assert (device.partition.compute_ns, device.partition.idle_ns) == (16_000, 16_000)


def test_steps_tile_the_time_between_them(tmp_path: Path) -> None:
    kernels = [K(0, 5_000, step=11), K(6_000, 1_000, step=11), K(20_000, 5_000, step=12), K(40_000, 1_000, step=13)]
    (device,) = analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)).devices
    assert [(s.step, s.start_ns, s.partition.span_ns, s.partition.idle_ns) for s in device.steps] == [
        (11, 0, 20_000, 14_000),
        (12, 20_000, 20_000, 15_000),
        (13, 40_000, 1_000, 0),
    ]


# -- Who owns which nanosecond: held against a slow answer that asks for every one of them.


Spans = list[tuple[int, int]]

spans = st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0, 1, 2, 7, 30])), max_size=8).map(
    lambda drawn: sorted((start, start + length) for start, length in drawn)
)


def edges(pairs: Spans) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def covered(pairs: Spans) -> set[int]:
    return {ns for a, b in pairs for ns in range(a, b)}


@given(spans, spans)
def test_of_overlapping_tasks_the_first_begun_owns_each_nanosecond(tasks: Spans, free: Spans) -> None:
    expected = [0] * len(tasks)
    for ns in covered(free):
        running = [i for i, (a, b) in enumerate(tasks) if a <= ns < b]
        if running:
            expected[min(running)] += 1
    assert owned(*edges(tasks), Intervals.union(*edges(free))).tolist() == expected


@given(spans, spans)
def test_together_they_own_their_union(tasks: Spans, free: Spans) -> None:
    found = owned(*edges(tasks), Intervals.union(*edges(free)))
    assert int(found.sum()) == len(covered(tasks) & covered(free))
    assert (found >= 0).all()


@given(spans, spans)
def test_what_a_set_leaves_of_windows(windows: Spans, busy: Spans) -> None:
    real = [(a, b) for a, b in windows if b > a]
    found = uncovered(Intervals(*edges(real)), Intervals.union(*edges(busy)))
    pairs = list(zip(found.start.tolist(), found.end.tolist(), strict=True))
    assert covered(pairs) == covered(windows) - covered(busy)
    assert all(a < b for a, b in pairs)
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(pairs))


def test_a_long_task_hides_those_that_begin_while_it_runs() -> None:
    start, end = edges([(0, 100), (10, 40), (60, 130), (120, 125), (200, 210)])
    assert owned(start, end, Intervals(*edges([(0, 300)]))).tolist() == [100, 0, 30, 0, 10]
    assert owned(start, end, Intervals(*edges([(90, 110), (205, 300)]))).tolist() == [10, 0, 10, 0, 5]


# -- Launch latency and clocks: one machine with one true latency, its device's clock moved, and waits of the host.


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


@settings(max_examples=70)
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


# -- Short gaps before kernels that were launched long before are not the host's, even where clocks disagree.


def test_a_gap_after_a_launch_that_has_arrived_is_a_dependency(tmp_path: Path) -> None:
    """The first kernel starts 20 µs before its launch ends: clocks disagree. All others were launched 1 ms before."""
    first = K(0, 9_000, "k0", "MatMulV2", "AI_CORE", launch=10_000, launch_dur=10_000)
    rest = [K(i * 10_000, 9_000, f"k{i}", "MatMulV2", "AI_CORE", launch=i * 10_000 - 1_000_000, launch_dur=2_000)
            for i in range(1, 100)]  # fmt: skip
    (device,) = analyzed(ascend_pt(tmp_path, [first, *rest])).devices
    assert device.clock.launch_latency_ns is None
    assert (device.partition.host_wait_ns, device.partition.launch_latency_ns) == (0, 0)
    assert device.partition.dependency_wait_ns == device.partition.idle_ns == 99 * 1_000


@pytest.mark.parametrize(("hosts_end", "launched", "host", "unknown"), [
    (True, True, 40 + 60, 0), (False, True, 40, 60), (True, False, 0, 50 + 60), (False, False, 0, 50 + 60),
])  # fmt: skip
def test_behind_the_last_task_the_device_waits_for_a_host_whose_step_goes_on(
    hosts_end: bool, launched: bool, host: int, unknown: int
) -> None:
    """Idle from 100 to 150, of which the launch arrives at 140, and from 200 to 260, where the host's step ends."""
    tasks = Tasks.build(np.array([0, 150]), np.array([100, 200]), np.array([Work.COMPUTE] * 2, np.uint8))
    launches = Launches(np.array([-5, 140] if launched else [NO_TIME] * 2), 0, samples=1, skew=0, implausible=0)
    found = lay_out(tasks, launches, (0, 260), hosts_end=hosts_end).whole()
    assert (found.host_wait_ns, found.unattributed_ns, found.idle_ns) == (host, unknown, 110)
    assert found.dependency_wait_ns == (10 if launched else 0)

"""The partition is exact: compared, to the nanosecond, with a slow one that looks at every elementary interval."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, HEADER, K, analyze_path, ascend_pt, kernel_details, row
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.device.partition import calibrate, lay_out, window
from npuperf.model.result import Partition
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


@settings(max_examples=600, deadline=None)
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

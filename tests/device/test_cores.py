"""Cores: how many kernels use, and what those that fill the chip suggest."""

from __future__ import annotations

import csv
import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from build import K, analyze_path, ascend_pt, events, kernel_details
from msgspec import structs
from msgspec.structs import replace

from npuperf.base.messages import say
from npuperf.device.cores import Worked, blocks, core_use, occupancy
from npuperf.model.chip import Cores
from npuperf.model.labels import Labels
from npuperf.model.result import CoreType, CoreUse, Device, Operator
from npuperf.model.tasks import Tasks, Work

SPLIT = Cores(24, 48, "--cores")  # Atlas A2
UNIFIED = Cores(32, 0, "--cores")  # Ascend910A: vector units inside the AI cores

Kernel = tuple[str, int, int, int]  # core, duration, Block Dim, Mix Block Dim


def table(kernels: list[Kernel]) -> Tasks:
    """One kernel after the other."""
    core, dur, block, mix = zip(*kernels, strict=True)
    end = np.cumsum(np.array(dur, np.int64))
    return Tasks.build(
        end - np.array(dur, np.int64),
        end,
        np.full(len(end), Work.COMPUTE, np.uint8),
        block=np.array(block, np.int64),
        mix_block=np.array(mix, np.int64),
        core=Labels.of(list(core)),
        type=Labels.of([f"T{i}" for i in range(len(end))]),
    )


def use(kernels: list[Kernel], cores: Cores, span: int = 1_000_000) -> CoreUse:
    return core_use(table(kernels), cores, span)


def only_type(found: CoreUse, core: str) -> CoreType:
    (mine,) = [t for t in found.by_type if t.core == core]
    return mine


@pytest.mark.parametrize(
    ("kernel", "cube", "vector"),
    [
        (("AI_CORE", 100, 12, 0), 12 / 24, None),
        (("AI_VECTOR_CORE", 100, 12, 0), None, 12 / 48),
        (("MIX_AIC", 100, 6, 12), 6 / 24, 12 / 48),
        (("MIX_AIV", 100, 24, 12), 12 / 24, 24 / 48),  # Block Dim counts vector cores, Mix Block Dim cube cores
        (("AI_CORE", 100, 25, 0), 1.0, None),  # more blocks than cores: all are busy at first
        (("MIX_AIC", 100, 48, 96), 1.0, 1.0),
        (("AI_CORE", 100, -1, 0), None, None),
        (("AI_CORE", 100, 0, 0), None, None),
        (("MIX_AIC", 100, 24, -1), 1.0, None),
        (("AI_CPU", 100, 4, 0), None, None),
        (("DSA_SQE", 100, 4, 0), None, None),
    ],
)
def test_which_cores_a_kernel_keeps_busy(kernel: Kernel, cube: float | None, vector: float | None) -> None:
    found = use([kernel], SPLIT)
    assert (found.cube and found.cube.occupancy_busy) == (None if cube is None else pytest.approx(cube))
    assert (found.vector and found.vector.occupancy_busy) == (None if vector is None else pytest.approx(vector))


@pytest.mark.parametrize(
    ("block", "cores", "waves", "tail"),
    [
        (1, 24, 1, 23 / 24),
        (24, 24, 1, 0.0),
        (25, 24, 2, 23 / 48),
        (36, 24, 2, 12 / 48),
        (48, 24, 2, 0.0),
        (100, 24, 5, 20 / 120),
    ],
)
def test_waves_and_tail_of_one_kernel(block: int, cores: int, waves: int, tail: float) -> None:
    mine = only_type(use([("AI_CORE", 700, block, 0)], Cores(cores, 2 * cores, None)), "AI_CORE")
    assert mine.waves_max == waves == math.ceil(block / cores)
    assert mine.tail == pytest.approx(tail)
    assert mine.occupancy == pytest.approx(min(block / cores, 1))


def test_each_core_type_counts_waves_on_its_own_side() -> None:
    """48 vector cores: a MIX_AIV kernel of 48 blocks is one wave, a MIX_AIC kernel of 48 blocks two of 24."""
    found = use([("MIX_AIV", 10, 48, 24), ("MIX_AIC", 10, 48, 48)], SPLIT)
    assert only_type(found, "MIX_AIV").waves_max == 1
    assert only_type(found, "MIX_AIC").waves_max == 2
    assert (only_type(found, "MIX_AIV").mix_block_max, only_type(found, "MIX_AIC").mix_block_min) == (24, 48)


def test_occupancy_weighs_by_duration_over_busy_time_and_over_the_span() -> None:
    """Cube: 12 of 24 cores for 300 ns, 24 for 100 ns: 6000 core ns of 9600 while busy, of 24000 in 1000 ns."""
    found = use([("AI_CORE", 300, 12, 0), ("AI_CORE", 100, 24, 0), ("AI_VECTOR_CORE", 50, 48, 0)], SPLIT, span=1_000)
    assert found.cube and found.vector
    assert found.cube.occupancy_busy == pytest.approx(6_000 / 9_600)
    assert found.cube.occupancy_span == pytest.approx(6_000 / 24_000)
    assert found.cube.idle_core_ns == 9_600 - 6_000
    assert found.cube.kernels == 2
    assert found.vector.occupancy_span == pytest.approx(48 * 50 / (48 * 1_000))
    assert found.vector.idle_core_ns == 0


def test_cycles_say_how_long_the_cores_that_blocks_hold_work() -> None:
    """Both kernels hold 24 of 24 cube and 48 of 48 vector cores; cube cores work 30 of 400 ns, vector cores 360.

    The times are of op_summary, in us. Where a tenth of the time has none they say nothing.
    """
    kernels: list[Kernel] = [("MIX_AIC", 300, 24, 48), ("MIX_AIC", 100, 24, 48)]
    times = {"aicore_time": np.array([0.03, 0.0], np.float32), "aiv_time": np.array([0.26, 0.12], np.float32)}
    tasks = table(kernels).with_columns(pmu=times)
    found = core_use(tasks, SPLIT, 400, worked=Worked.of(tasks))
    assert found.cube and found.vector
    assert (found.cube.occupancy_busy, found.vector.occupancy_busy) == (1.0, 1.0)
    assert found.cube.at_work == pytest.approx(30 / 400)
    assert found.vector.at_work == pytest.approx((260 + 100) / 400)
    part = table(kernels).with_columns(pmu={name: np.array([us[0], np.nan]) for name, us in times.items()})
    found = core_use(part, SPLIT, 400, worked=Worked.of(part))
    assert found.cube and found.cube.at_work is None
    assert Worked.of(table(kernels)) is None


def test_unknown_blocks_are_counted_and_leave_the_means_alone() -> None:
    found = use([("AI_CORE", 300, 12, 0), ("AI_CORE", 900, -1, 0)], SPLIT)
    mine = only_type(found, "AI_CORE")
    assert (mine.kernels, mine.total_ns, mine.blocks_unknown) == (2, 1_200, 1)
    assert (mine.block_min, mine.block_median, mine.block_max) == (12, 12.0, 12)
    assert mine.occupancy == pytest.approx(0.5)
    assert found.cube and found.cube.kernels == 1


def test_blocks_all_unknown_give_a_reason() -> None:
    found = use([("AI_CORE", 300, -1, 0)], SPLIT)
    mine = only_type(found, "AI_CORE")
    assert (mine.block_min, mine.block_max, mine.occupancy, mine.tail) == (None, None, None, None)
    assert found.cube is None and found.most_idle == []
    assert found.reason and "Block Dim" in str(found.reason)


def test_a_chip_without_vector_cores() -> None:
    found = use([("AI_CORE", 300, 16, 0), ("AI_VECTOR_CORE", 100, 8, 0)], UNIFIED)
    assert found.cube and found.cube.occupancy_busy == pytest.approx(0.5)
    assert found.vector is None
    mine = only_type(found, "AI_VECTOR_CORE")
    assert (mine.occupancy, mine.waves_max, mine.tail) == (None, None, None)
    assert [k.core for k in found.most_idle] == ["AI_CORE"]


@pytest.mark.parametrize("cores", [Cores(), Cores(24, None, "info.json.0"), Cores(None, 48, None)])
def test_unknown_core_counts_are_values(cores: Cores) -> None:
    found = use([("AI_CORE", 300, 16, 0), ("AI_VECTOR_CORE", 100, 8, 0), ("MIX_AIC", 5, 8, 16)], cores)
    assert (found.cube is None, found.vector is None) == (not cores.cube, not cores.vector)
    assert only_type(found, "AI_CORE").block_max == 16
    if cores.cube is None:
        assert found.reason and "--cores" in str(found.reason) and "--soc" in str(found.reason)


def test_no_kernels_at_all() -> None:
    found = core_use(Tasks.empty(), SPLIT, 0)
    assert (found.cube, found.vector, found.by_type, found.most_idle) == (None, None, [], [])
    assert found.reason


def test_the_idlest_kernels_first() -> None:
    """Idle core time: 23*10, 40*100 (vector), 0, 12*50; of two waves, 24 and 6 blocks, 18 cores in the second half."""
    found = use(
        [("AI_CORE", 10, 1, 0), ("AI_VECTOR_CORE", 100, 8, 0), ("AI_CORE", 999, 24, 0), ("MIX_AIC", 50, 12, 48),
         ("AI_CORE", 100, 30, 0)], SPLIT
    )  # fmt: skip
    assert [(k.type, k.core, k.cores, k.block_dim, k.idle_core_ns, k.tail_core_ns) for k in found.most_idle] == [
        ("T1", "AI_VECTOR_CORE", 48, 8, 4_000, 0),
        ("T4", "AI_CORE", 24, 30, 0, 900),
        ("T3", "MIX_AIC", 24, 12, 600, 0),
        ("T0", "AI_CORE", 24, 1, 230, 0),
    ]


def test_occupancy_of_blocks_without_cores_is_not_a_number() -> None:
    used = blocks(table([("MIX_AIV", 10, 24, 12)]))
    assert (used.cube.tolist(), used.vector.tolist()) == ([12], [24])
    assert np.isnan(occupancy(used.cube, None)).all()
    assert np.isnan(occupancy(np.array([0, -1]), 24)).all()


def only_device(path: Path, **asked: Any) -> Device:
    (device,) = analyze_path(path, **asked).devices
    return device


def test_kernels_side_by_side_occupy_no_more_than_all_cores(tmp_path: Path) -> None:
    """Three streams with 40 of 48 vector cores each for the same 100 µs: all 48 for 100 of 200 µs, and no more."""
    kernels = [K(0, 100_000, f"k{s}", "Add", stream=s, block=40) for s in (2, 3, 4)]
    device = only_device(ascend_pt(tmp_path, [*kernels, K(200_000, 0, "end", "Add", block=40)], cores="24,48"))
    assert device.cores.vector and device.cores.vector.occupancy_span == pytest.approx(0.5)


def test_told_core_counts_go_before_the_profile_s(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 100, core="AI_CORE", block=12)], cores="20,40")
    assert (only_device(folder).cores_cube, str(only_device(folder).cores.source)) == (20, "info.json.0")
    told = only_device(folder, cores=Cores(12, 24, say("--cores")))
    assert (told.cores_cube, told.cores_vector, str(told.cores.source)) == (12, 24, "--cores")
    assert told.cores.cube and told.cores.cube.occupancy_busy == pytest.approx(1.0)


def test_a_profile_that_names_only_cube_cores(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 100, core="AI_CORE", block=12), K(200, 100, block=12)], cores="24,48")
    (info,) = folder.rglob("info.json.0")
    info.write_text(json.dumps({"DeviceInfo": [{"id": 0, "ai_core_num": 24}]}))
    device = only_device(folder)
    assert (device.cores_cube, device.cores_vector) == (24, None)
    assert device.cores.cube and device.cores.vector is None


# --- operators against plain Python and pandas ---------------------------------------------------------------------

CORES_OF = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU")


def random_kernels(seed: int, count: int = 300) -> list[K]:
    source = random.Random(seed)
    kernels, clock = [], 0
    for i in range(count):
        clock += source.randint(0, 3_000)
        dur = source.choice([0, 1, source.randint(2, 90_000)]) if i < count - 1 else 77
        block = source.choice([0, source.randint(1, 120)])
        core = source.choice(CORES_OF)
        mix = source.randint(1, 100) if core.startswith("MIX") and block else 0  # both are recorded, or neither
        kernels.append(K(clock, dur, f"k{i}", f"Op{source.randint(0, 6)}", core, source.choice([2, 5]), block, mix))
        clock += dur
    return kernels


def expected_occupancy(rows: pd.DataFrame, side: str, cores: int) -> float | None:
    """Σ min(blocks / cores, 1)·duration ÷ Σ duration over the kernels that use this side with known blocks."""
    main = {"cube": ("AI_CORE", "MIX_AIC"), "vector": ("AI_VECTOR_CORE", "MIX_AIV")}[side]
    other = {"cube": "MIX_AIV", "vector": "MIX_AIC"}[side]
    used = rows["block"].where(rows["core"].isin(main), rows["mix"].where(rows["core"] == other, 0))
    known = rows[used > 0]
    if not known["dur"].sum():
        return None
    share = (used[used > 0] / cores).clip(upper=1)
    return float((share * known["dur"]).sum() / known["dur"].sum())


def hull(values: pd.Series) -> tuple[int, int] | None:
    known = values[values > 0]
    return (int(known.min()), int(known.max())) if len(known) else None


def as_pair(found: Operator, name: str) -> tuple[int, int] | None:
    value = getattr(found, name)
    return (value.min, value.max) if value else None


@pytest.mark.parametrize("seed", range(5))
def test_operators_equal_a_plain_group_by(tmp_path: Path, seed: int) -> None:
    kernels = random_kernels(seed)
    path = kernel_details(tmp_path / "kernel_details.csv", kernels)
    result = analyze_path(path, cores=Cores(24, 48, "--cores"))
    frame = pd.DataFrame([structs.asdict(k) for k in kernels]).rename(columns={"start": "at"})
    groups = dict(iter(frame.groupby(["type", "core"])))
    assert len(result.operators) == len(groups) > 20
    total = int(frame["dur"].sum())
    for found in result.operators:
        rows = groups.pop((found.type, found.core))
        assert (found.count, found.total_ns) == (len(rows), rows["dur"].sum())
        assert (found.min_ns, found.max_ns) == (rows["dur"].min(), rows["dur"].max())
        assert (found.first_ns, found.last_ns) == tuple(rows["at"].agg(["min", "max"]) - frame["at"].min())
        assert found.share == pytest.approx(rows["dur"].sum() / total, rel=1e-12)
        assert as_pair(found, "block_dim") == hull(rows["block"])
        assert as_pair(found, "mix_block_dim") == hull(rows["mix"])
        for side, cores in (("cube", 24), ("vector", 48)):
            expected = expected_occupancy(rows, side, cores)
            shown = getattr(found, f"occupancy_{side}")
            assert shown == (None if expected is None else pytest.approx(expected, rel=1e-9)), (found, side)
    assert groups == {}


@pytest.mark.parametrize("seed", range(3))
def test_device_core_use_equals_a_plain_sum(tmp_path: Path, seed: int) -> None:
    kernels = random_kernels(seed)
    path = kernel_details(tmp_path / "kernel_details.csv", kernels)
    device = only_device(path, cores=Cores(24, 48, "--cores"))
    frame = pd.DataFrame([structs.asdict(k) for k in kernels])
    assert device.cores.cube and device.cores.vector
    assert device.cores.cube.occupancy_busy == pytest.approx(expected_occupancy(frame, "cube", 24))
    assert device.cores.vector.occupancy_busy == pytest.approx(expected_occupancy(frame, "vector", 48))


def test_unknown_block_dim_spellings_are_unknown(tmp_path: Path) -> None:
    """Level0 writes 0, unset fields 4294967295, a torch_npu and CANN mismatch empty cells."""
    path = kernel_details(tmp_path / "kernel_details.csv", [K(i * 100, 50, f"k{i}", "Add") for i in range(5)])
    lines = path.read_text().splitlines()
    for line, cell in zip(range(1, 6), ("0", "4294967295", "", "N/A", "-1"), strict=True):
        lines[line] = lines[line].replace(",40,0,", f",{cell},0,")
    path.write_text("\n".join(lines) + "\n")
    (operator,) = analyze_path(path, cores=SPLIT).operators
    assert (operator.count, operator.block_dim, operator.occupancy_vector) == (5, None, None)


def two_devices(folder: Path, kernels: list[K]) -> Path:
    return kernel_details(folder / "kernel_details.csv", kernels)


def test_operators_add_up_over_devices(tmp_path: Path) -> None:
    first = random_kernels(1)
    second = [replace(k, device=1) for k in random_kernels(2)]
    both = analyze_path(two_devices(tmp_path, [*first, *second]), cores=SPLIT)
    assert [d.device for d in both.devices] == [0, 1]
    sums: dict[tuple[str, str], list[int]] = defaultdict(list)
    for k in (*first, *second):
        sums[k.type, k.core].append(k.dur)
    expected = {key: (len(v), sum(v), min(v), max(v)) for key, v in sums.items()}
    found = {(o.type, o.core): (o.count, o.total_ns, o.min_ns, o.max_ns) for o in both.operators}
    assert found == expected
    frame = pd.DataFrame([structs.asdict(k) for k in (*first, *second)])
    for o in both.operators:
        rows = frame[(frame["type"] == o.type) & (frame["core"] == o.core)]
        expected_cube = expected_occupancy(rows, "cube", 24)
        assert o.occupancy_cube == (None if expected_cube is None else pytest.approx(expected_cube))
    assert sum(o.share for o in both.operators) == pytest.approx(1)


def test_operators_add_up_over_ranks_and_equal_the_files(tmp_path: Path) -> None:
    durations: list[int] = []
    for rank in range(3):
        kernels = random_kernels(rank, count=50)
        folder = ascend_pt(tmp_path / f"r{rank}", kernels)
        (folder / "profiler_info_0.json").rename(folder / f"profiler_info_{rank}.json")
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        with (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(newline="") as file:
            durations += [round(float(row["Duration(us)"]) * 1000) for row in csv.DictReader(file)]
    result = analyze_path(tmp_path)
    assert [d.rank for d in result.devices] == [0, 1, 2]
    assert sum(o.count for o in result.operators) == len(durations) == 150
    assert sum(o.total_ns for o in result.operators) == sum(durations)


def test_a_kernel_of_no_length_at_the_end_counts(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(0, 1_000, "a", "Add"), K(1_000, 0, "b", "Mul")])
    assert {o.type: (o.count, o.total_ns) for o in analyze_path(path).operators} == {"Add": (1, 1_000), "Mul": (1, 0)}


def test_collectives_that_start_together_are_counted_once(tmp_path: Path) -> None:
    """Two groups start a collective in the same nanosecond: the timeline repeats the table's rows."""
    kernels = [
        K(0, 1_000, "k", "Add", launch=-500),
        K(2_000, 5_000, "hcom_allReduce__1_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, launch=500),
        K(2_000, 7_000, "hcom_allGather__2_0_1", "hcom_allGather_", "COMMUNICATION", "N/A", 0, launch=600),
    ]
    assert len(events(kernels)) > len(kernels)
    operators = analyze_path(ascend_pt(tmp_path, kernels)).operators
    assert {o.type: (o.count, o.total_ns) for o in operators} == {
        "Add": (1, 1_000),
        "hcom_allReduce_": (1, 5_000),
        "hcom_allGather_": (1, 7_000),
    }


# -- Core counts suggested where a profile does not name them, by kernels put together by hand.


ROOT = Path(__file__).resolve().parents[3] / "shared" / "data"
Kernels = list[tuple[str, int, int]]  # core type, Block Dim, Mix Block Dim


def device(root: Path, kernels: Kernels, **more: str) -> Device:
    rows = [K(i * 1_000, 900, f"{c}_{i}", f"T{i % 3}", c, 2, b, m) for i, (c, b, m) in enumerate(kernels)]
    (found,) = analyze_path(ascend_pt(root, rows, **more)).devices
    return found


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (
            [("AI_CORE", 20, 0)] * 3 + [("AI_VECTOR_CORE", 40, 0)] * 4 + [("AI_VECTOR_CORE", 1, 0)] * 9,
            "--cores 20,40: 3 kernels use exactly 20 cube cores and 4 exactly 40 vector cores, none starts more blocks "
            "than that",
        ),
        (
            [("MIX_AIC", 24, 48)] * 2 + [("MIX_AIV", 48, 24)] * 3 + [("AI_VECTOR_CORE", 256, 0)],
            "suggest --cores 24,48: 5 kernels use exactly 24 cube cores and 5 exactly 48 vector cores, 1 kernel starts",
        ),
    ],
)
def test_what_kernels_that_fill_the_chip_suggest(kernels: Kernels, words: str, tmp_path: Path) -> None:
    found = device(tmp_path, kernels)
    assert words in str(found.cores.reason) and "core counts are unknown" in str(found.cores.reason)
    assert (found.cores_cube, found.cores_vector) == (None, None)  # a suggestion is no fact


@pytest.mark.parametrize(
    "kernels",
    [
        [("AI_CORE", 7, 0)] * 9 + [("AI_VECTOR_CORE", 13, 0)] * 9,  # no chip has as many
        [("AI_CORE", 20, 0)] * 9,  # nothing is known of the vector cores
        [("AI_CORE", 20, 0), ("AI_VECTOR_CORE", 40, 0)],  # once may be chance
        [("AI_CORE", 20, 0)] * 3 + [("AI_CORE", 24, 0)] * 4 + [("AI_VECTOR_CORE", 40, 0)] * 3,  # more kernels need more
        [("MIX_AIC", 256, 0)] * 3,
    ],
)
def test_nothing_is_suggested_that_kernels_do_not_show(kernels: Kernels, tmp_path: Path) -> None:
    reason = str(device(tmp_path, kernels).cores.reason)
    assert "--cores CUBE,VECTOR or --soc NAME" in reason
    assert "suggest" not in reason and "24,48" not in reason and "910B1" not in reason


def test_a_column_of_zeros_is_no_missing_column(tmp_path: Path) -> None:
    found = device(tmp_path, [("AI_CORE", 0, 0)] * 3, cores="24,48")
    assert str(found.cores.reason).startswith("no kernel has a Block Dim above 0")


@pytest.mark.parametrize(
    ("file", "cores"),
    [
        ("msprof-analyze/arithmetic_utilization/kernel_details.csv", "24,48"),
        ("msinsight/text/level0/rank0_ascend_pt", None),
        ("hta/alexnet_gpu.json.gz", None),
    ],
)
def test_real_profiles(file: str, cores: str | None) -> None:
    """Counted in the raw file: 13 of its kernels use 24 cube cores and 177 use 48 vector cores, two have more blocks.

    Other profiles have counters that tell how many cores there are (test_chip_rate.py).
    """
    if not (ROOT / file).exists():
        pytest.skip("the collection of real profiles is not here")
    (found,) = (d for d in analyze_path(ROOT / file).devices if d.rank in (0, None))
    reason = str(found.cores.reason)
    assert (f"--cores {cores}" in reason) if cores else ("--cores" not in reason)

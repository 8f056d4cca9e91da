"""The chip out of its counters: planted cores and clocks, written as the exporter rounds them, and real recordings."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from build import analyze_path
from counted_kernels import Row, exported, kernels, recorded, table
from msgspec.structs import replace

from npuperf.device.chip_rate import CubeRate, clocks, measure_cube
from npuperf.model.chip import Cores
from npuperf.model.labels import Labels
from npuperf.model.result import Result
from npuperf.model.tasks import Tasks, Work

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def rate(rows: list[Row]) -> CubeRate:
    found = measure_cube(table(rows))
    assert found is not None
    return found


CHIPS = [(24, 1850), (24, 1800), (20, 1800), (20, 1650), (20, 1500), (28, 1650), (32, 1650), (36, 1800), (8, 1650),
         (10, 1800), (5, 1650), (12, 1650), (20, 2000)]  # fmt: skip


@pytest.mark.parametrize(("cores", "mhz"), CHIPS)
def test_planted_cores_and_clock_are_found(cores: int, mhz: int) -> None:
    found = rate(kernels(cores, mhz))
    assert found.cores == cores
    assert found.mhz == pytest.approx(mhz, rel=1e-4) and found.core_mhz == pytest.approx(cores * mhz, rel=1e-4)
    assert found.flop_per_s == pytest.approx(cores * mhz * 1e6 * 16 * 16 * 16 * 2, rel=1e-4)
    assert 190 <= found.rows <= 200 and found.left_out == 0  # a row of little use is rounded too much to count


@pytest.mark.parametrize(("cores", "mhz"), CHIPS)
def test_kernels_of_one_block_count_do_not_mislead(cores: int, mhz: int) -> None:
    """Twice as many blocks as cores look like twice as many cores at half the clock, which no chip runs at."""
    for waves in (1, 2, 3, 4):
        found = rate([exported(100 + i, waves * cores, cores, mhz) for i in range(20)])
        assert found.core_mhz == pytest.approx(cores * mhz, rel=1e-4)
        # 96 blocks in 4 waves on 24 cores at 1850 MHz take as long as in 3 waves on 32 cores at 1387.5 MHz
        assert found.cores == cores or (waves > 1 and found.cores is None)


def test_kernels_with_few_blocks_tell_cores_where_one_number_agrees() -> None:
    assert rate([exported(200, 8, 24, 1800, busy=0.9 + i / 1000) for i in range(9)]).cores == 24


def test_the_slave_side_of_a_mix_kernel_counts_by_its_own_blocks() -> None:
    rows = [replace(exported(300 + i, 20, 20, 1650), core="MIX_AIV", block=40, mix=20) for i in range(5)]
    assert rate(rows).cores == 20
    vector_alone = [Row(10, 40, 0, 0, 0, "MIX_AIV"), Row(10, 40, 0, 0, 0, "AI_VECTOR_CORE")]
    assert rate(rows + vector_alone).left_out == 0


def test_two_rows_are_not_enough_and_three_are() -> None:
    rows = kernels(20, 1650, n=3, most=1)
    assert measure_cube(table(rows[:2])) is None
    assert rate(rows).rows == 3


def test_outliers_are_left_out_and_counted() -> None:
    rows = kernels(24, 1850)
    for i in range(0, 200, 20):
        rows[i] = replace(rows[i], percent=round(rows[i].percent * 0.9, 3))
    found = rate(rows)
    assert (found.cores, found.left_out) == (24, 10)


def test_counters_that_do_not_agree_tell_nothing() -> None:
    rows = kernels(24, 1850)
    assert measure_cube(table([*rows[:170], *(replace(r, percent=r.percent * 0.9) for r in rows[170:])])) is None


ODD = {
    "negative cycles": {"cycles": -5.0},
    "no cycles": {"cycles": 0.0},
    "N/A": {"cycles": math.nan},
    "endless cycles": {"cycles": math.inf},
    "a ratio above 1": {"mac": 1.2},
    "a negative ratio": {"mac": -0.1},
    "no utilization": {"percent": 0.0},
    "N/A utilization": {"percent": math.nan},
    "negative utilization": {"percent": -3.0},
    "utilization above the whole": {"percent": 100.2},
    "no duration": {"dur": 0.0},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_row_with_odd_counters_is_left_out_and_counted(odd: dict[str, float]) -> None:
    rows = kernels(20, 1800, n=20)
    rows[3] = replace(rows[3], **odd)
    found = rate(rows)
    assert (found.cores, found.left_out) == (20, 1) and found.rows <= 19


def test_short_kernels_that_round_too_much_tell_nothing() -> None:
    """Three digits after the point of 0.03 % are two percent: so it is in the recording with 256 blocks."""
    rows = [exported(42_000 + 100 * i, 256, 24, 1800, busy=0.0003) for i in range(50)]
    assert all(r.percent < 0.05 for r in rows)
    assert measure_cube(table(rows)) is None


def test_without_block_counts_only_the_product_is_known() -> None:
    found = rate([replace(r, block=0) for r in kernels(20, 1800)])
    assert (found.cores, found.mhz) == (None, None) and found.core_mhz == pytest.approx(36_000, rel=1e-4)
    assert found.as_cores() is None and "36000" in str(found.source)


def test_a_core_held_at_a_lower_clock_for_a_while_is_no_other_chip() -> None:
    slow, full = kernels(20, 1800, 1300, n=150), kernels(20, 1800, n=50)
    found = rate([*full, *slow])
    assert found.cores == 20 and found.mhz == pytest.approx(1800, rel=1e-4)
    seen = clocks(table([*full, *slow]), Cores(20, 40))
    assert seen is not None
    assert seen[:50] == pytest.approx(1800, rel=2e-3) and seen[50:] == pytest.approx(1300, rel=2e-3)


@pytest.mark.parametrize(("cores", "rated", "mhz", "wrong"), [(20, 1800, 1500, 24), (20, 1650, 1500, 22)])
def test_a_whole_recording_at_a_lower_clock_is_not_taken_for_more_cores(
    cores: int, rated: int, mhz: int, wrong: int
) -> None:
    """20 cores rated at 1800 MHz that all run at 1500 look like 24 at 1500, unless some kernel has more blocks."""
    assert cores * rated == wrong * mhz
    alike = rate(kernels(cores, rated, mhz, most=1))
    assert alike.cores is None and alike.core_mhz == pytest.approx(cores * rated, rel=1e-4)
    assert alike.likely == (cores, wrong)
    assert rate(kernels(cores, rated, mhz, most=2)).cores == cores  # kernels of 21 blocks run in two waves


def test_a_lower_clock_that_fits_no_whole_number_of_cores_leaves_the_known_chip() -> None:
    assert rate(kernels(20, 1800, 1700, most=1)).cores == 20


def test_counters_that_contradict_each_other_tell_nothing() -> None:
    """Cycles of one core beside the utilization of all: no number of cores makes a clock of that."""
    rows = [Row(d, 20, round(1800 * d), d, 66.1) for d in (20.5, 40.25, 80.125, 99.0)]
    assert measure_cube(table(rows)) is None


def test_no_counters_no_chip() -> None:
    tasks = table(kernels(20, 1650, n=5))
    assert measure_cube(tasks.without_counters()) is None
    assert measure_cube(Tasks.empty()) is None
    no_clock = replace(tasks, pmu={n: v for n, v in tasks.pmu.items() if n != "aicore_time"})
    found = measure_cube(no_clock)
    assert found is not None and found.cores is None
    assert clocks(no_clock, Cores(20, 40)) is None


# --- without cube_utilization, as in databases ---------------------------------------------------------------------


def by_waves(cube: list[int], vector: list[int], chip: tuple[int, int], mhz: float) -> Tasks:
    """Kernels of cube cores, then of vector cores, with so many blocks each: time and cycles of their cores."""
    made = random.Random(f"{cube} {vector}")
    rows = [(block, chip[0], "AI_CORE") for block in cube] + [(block, chip[1], "AI_VECTOR_CORE") for block in vector]
    us = np.array([made.uniform(20, 400) for _ in rows])
    cycles = [time * mhz * block / math.ceil(block / cores) for time, (block, cores, _) in zip(us, rows, strict=True)]
    end = np.cumsum(np.rint(us * 1100).astype(np.int64))
    of_cube = np.array([core == "AI_CORE" for *_, core in rows])
    pmu = {
        "aic_total_cycles": np.where(of_cube, np.rint(cycles), 0),
        "aicore_time": np.where(of_cube, us, 0),
        "aiv_total_cycles": np.where(of_cube, 0, np.rint(cycles)),
        "aiv_time": np.where(of_cube, 0, us),
    }
    return Tasks.build(
        end - np.rint(us * 1000).astype(np.int64),
        end,
        np.full(len(rows), Work.COMPUTE, np.uint8),
        block=np.array([block for block, *_ in rows], np.int64),
        core=Labels.of([core for *_, core in rows]),
        pmu={name: column.astype(np.float32) for name, column in pmu.items()},
    )


def test_the_only_chip_that_fits_the_waves_is_inferred() -> None:
    """24 blocks in one wave are too many for 20 cores, and 256 in six for 72."""
    found = measure_cube(by_waves([8, 24, 24, 30], [48, 256], (24, 48), 1800))
    assert found is not None
    assert (found.cores, found.mhz, found.core_mhz, found.rows, found.inferred) == (24, 1800, 43200, 4, True)
    assert "inferred" in str(found.source) and "24 cube cores at 1800 MHz" in str(found.source)
    # of the same cores, a 910B1 at 1850 MHz would look the same if it never ran at that
    assert found.throttled == ((24, 1850),) and found.most_flop_per_s == 24 * 1850e6 * 8192
    assert "unless it is throttled throughout: 24 at 1850 MHz" in str(found.source)


def test_a_chip_that_is_throttled_throughout_to_another_ones_clock_is_named() -> None:
    """24 cores that are rated at 1800 MHz run at 1500 all the time, and no kernel has more than 20 blocks."""
    found = measure_cube(by_waves([8, 16, 20, 20], [40, 36], (24, 48), 1500))
    assert found is not None and found.inferred and (found.cores, found.mhz) == (20, 1500)
    assert {(24, 1800), (24, 1850)} <= {*found.throttled} and found.most_flop_per_s is not None
    assert found.most_flop_per_s >= 24 * 1800e6 * 8192
    # with more blocks than that it is no chip of 20 cores, and no chip of 24 is rated so
    assert measure_cube(by_waves([8, 16, 24, 24], [48, 36], (24, 48), 1500)) is None


def test_waves_that_only_one_chip_has_prove_it() -> None:
    """36 cores at 1800 MHz in one wave, 37 to 72 in two: no other chip has so many, so none is throttled to it."""
    found = measure_cube(by_waves([36, 36, 37, 30], [72, 73], (36, 72), 1800))
    assert found is not None and (found.cores, found.mhz, found.throttled) == (36, 1800, ())
    assert "throttled" not in str(found.source) and found.most_flop_per_s is None


@pytest.mark.parametrize(
    ("cube", "vector", "chip", "mhz"),
    [
        ([8, 24, 24], [48], (24, 48), 1800),  # 36 cores take as many waves
        ([8, 16, 20], [40], (20, 40), 1800),  # and so do 24
        ([8, 24, 24, 30], [48, 256], (24, 48), 1700),  # no known chip runs at that
        ([24, 30], [48, 256], (24, 48), 1800),  # too few kernels
        ([22, 44, 45], [44, 90], (22, 44), 1800),  # nor has one so many cores
        ([8, 16, 18], [36], (24, 48), 1500),  # slower than rated, and no kernel fills 20 cores
    ],
)
def test_what_several_chips_or_none_fit_is_not_told(
    cube: list[int], vector: list[int], chip: tuple[int, int], mhz: float
) -> None:
    assert measure_cube(by_waves(cube, vector, chip, mhz)) is None


# --- in a report ---------------------------------------------------------------------------------------------------


def warnings(result: Result) -> list[str]:
    return [str(w) for w in result.input.warnings]


def test_counters_give_core_counts_where_nothing_else_does(tmp_path: Path) -> None:
    result = analyze_path(recorded(tmp_path, kernels(20, 1650, n=30)))
    (device,) = result.devices
    assert (device.cores_cube, device.cores_vector) == (20, 40)
    assert device.cores.cube is not None and device.cores.reason is None
    assert "20 cube cores at 1650 MHz" in str(device.cores.source) and "40 vector cores inferred" in str(
        device.cores.source
    )
    assert not any("core counts are unknown" in str(note) for note in result.input.missing)
    assert not any("cores" in w for w in warnings(result))


def test_vector_cores_are_not_inferred_where_no_chip_has_so_many_cube_cores(tmp_path: Path) -> None:
    (device,) = analyze_path(recorded(tmp_path, kernels(10, 1800, n=30))).devices
    assert (device.cores_cube, device.cores_vector) == (10, None)


@pytest.mark.parametrize("given", [Cores(24, 48, "--cores"), Cores(20, 40, "--cores"), Cores(20, 39, "--cores")])
def test_what_the_user_says_counts_and_a_contradiction_is_said(tmp_path: Path, given: Cores) -> None:
    result = analyze_path(recorded(tmp_path, kernels(20, 1650, n=30)), cores=given)
    assert (result.devices[0].cores_cube, result.devices[0].cores_vector) == (given.cube, given.vector)
    said = [w for w in warnings(result) if "cores" in w]
    assert bool(said) == (given.cube != 20)  # vector cores of the counters are inferred, and contradict nobody
    for w in said:
        assert "24 cube cores" in w and "20 at 1650 MHz" in w and "24 are used" in w


# --- real recordings, counted from their files in another way -------------------------------------------------------

#: By hand: rows with a cube_utilization above 0, once each (three of pipe_utilization stand there twice).
REAL = {
    "msinsight/cluster4/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv": (20, 1650, 392),
    "msinsight/cluster4/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv": (20, 1650, 398),
    "msinsight/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv": (24, 1800, 23),
    "msinsight/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv": (24, 1800, 23),
    "msprof-analyze/pipe_utilization/kernel_details.csv": (20, 1800, 18),
    "op_summary_2026/op_summary_pipe_utilization.csv": (20, 1650, 3),
}
#: Two rows of little use; no utilization at all; no counters.
UNTOLD = [
    "op_summary_2026/op_summary_block_over_cores.csv",
    "msinsight/toy/op_summary_1.csv",
    "msprof-analyze/arithmetic_utilization/kernel_details.csv",
    "msprof-analyze/oldest/kernel_details.csv",
]


@pytest.mark.parametrize("name", REAL)
def test_real_recordings_tell_their_chip(name: str) -> None:
    if not (DATA / name).is_file():
        pytest.skip("the collection of real profiles is not here")
    cores, mhz, rows = REAL[name]
    result = analyze_path(DATA / name)
    (device,) = result.devices
    assert (device.cores_cube, device.cores_vector) == (cores, 2 * cores)
    assert f"{cores} cube cores at {mhz} MHz, {rows} rows" in str(device.cores.source)
    assert not any("cores" in w for w in warnings(result))


@pytest.mark.parametrize("name", UNTOLD)
def test_real_recordings_that_tell_nothing(name: str) -> None:
    if not (DATA / name).is_file():
        pytest.skip("the collection of real profiles is not here")
    (device,) = analyze_path(DATA / name).devices
    assert device.cores_cube is None and device.cores.source is None

"""The clock of the cores: planted below the rated one, for a while, in a job, and where it is as it should be."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from build import analyze_path
from cluster_files import write
from cluster_job import Job
from counted_kernels import Row, exported, kernels, recorded, table
from small_programs import answer, assert_complete, problem

from npuperf.advise import load_thresholds
from npuperf.device.chip_rate import ChipCounters
from npuperf.model.chip import Cores
from npuperf.model.device import ClockRates
from npuperf.model.result import CoreClock, Result

CORES = Cores(20, 40)


def run_of(*parts: tuple[int, float]) -> list[Row]:
    """So many kernels of 100 µs each at one clock after another, of 20 cores that are rated at 1800 MHz."""
    return [exported(100.0, 20 - i % 7, 20, 1800, mhz) for n, mhz in parts for i in range(n)]


def test_a_clock_that_falls_on_the_way_is_a_problem_with_its_price(tmp_path: Path) -> None:
    """60 kernels at the rated clock, then 40 at 1350: each of these would take 75 µs. They begin every 101 µs."""
    found = problem(recorded(tmp_path, run_of((60, 1800), (40, 1350))), "low_clock")
    assert found.gain_ns_per_step == (0, 40 * 25_000)
    title = str(found.title)
    assert title.startswith("for 40.0 % of the kernels' time the cores run below the 1800 MHz that they are rated at: ")
    assert title.endswith(": 1620 MHz on average, 1350 at the lowest, from 6.06 ms on")
    assert found.evidence["since_ns"] == 60 * 101_000 and found.evidence["slowed_ns"] == 40 * 100_000


def test_a_whole_recording_below_the_rated_clock(tmp_path: Path) -> None:
    found = problem(recorded(tmp_path, kernels(20, 1800, 1700, most=1)), "low_clock")
    assert "for 100.0 % of the kernels' time" in str(found.title) and "1800 MHz that they are rated at" in str(
        found.title
    )
    assert "on, " not in str(found.title)


@pytest.mark.parametrize(
    "parts",
    [
        [(100, 1800)],
        [(95, 1800), (5, 1650)],  # they lose 0.4 % of the step
        [(100, 1790)],  # half a percent
    ],
)
def test_a_clock_that_costs_little_is_none(tmp_path: Path, parts: list[tuple[int, float]]) -> None:
    assert answer(recorded(tmp_path, run_of(*parts)), "low_clock").status == "ok"


def test_it_cannot_be_told_without_counters_or_a_rating(tmp_path: Path) -> None:
    no_cores = [Row(r.dur, r.block, r.cycles, r.aicore, 0.0) for r in run_of((50, 1800))]
    path = recorded(tmp_path / "cores", no_cores)  # ArithmeticUtilization has cycles, and no utilization of the cube
    assert "core counts are unknown" in str(answer(path, "low_clock").needs)
    unrated = analyze_path(path, cores=CORES)
    assert "--soc" in str(answer(unrated, "low_clock").needs)
    rated = analyze_path(path, cores=CORES, soc="Ascend910B3")
    assert answer(rated, "low_clock").status == "ok"


def test_a_card_that_runs_faster_than_its_chip_is_rated_is_no_problem(tmp_path: Path) -> None:
    """CANN has 1500 MHz for an Ascend910B4, of which cards at 1650 MHz are recorded."""
    rows = [Row(r.dur, r.block, r.cycles, r.aicore, 0.0) for r in kernels(20, 1650, most=1)]
    result = analyze_path(recorded(tmp_path, rows), cores=CORES, soc="Ascend910B4")
    (clock,) = [d.core_clock for d in result.devices]
    assert clock is not None and clock.basis == "highest" and clock.slowed_ns == 0
    assert answer(result, "low_clock").status == "cannot_tell"


def test_kernels_slower_than_others_are_a_problem_whatever_the_rating(tmp_path: Path) -> None:
    rows = [Row(r.dur, r.block, r.cycles, r.aicore, 0.0) for r in run_of((60, 1800), (40, 1350))]
    found = problem(analyze_path(recorded(tmp_path, rows), cores=CORES), "low_clock")
    assert "below 1800 MHz, at which other kernels ran" in str(found.title)
    assert found.gain_ns_per_step == (0, 40 * 25_000)


def of_frequency(soc: str | None, *values: tuple[float, int]) -> CoreClock | None:
    """Ten kernels of 100 µs, one after the other; values of AI Core Freq, from the n-th kernel on (-1: before it)."""
    tasks = table(run_of((10, 1800))).without_counters()
    time, mhz = np.array([max(int(n * 100_000), 0) for n, _ in values]), np.array([v for _, v in values])
    counters = ChipCounters.of(tasks, CORES, ClockRates.of(time, mhz))
    return counters.clock(tasks, slice(0, 10), CORES, soc, 0, 0.01)


@pytest.mark.parametrize(
    ("values", "soc", "basis", "slowed", "told"),
    [
        ([(-1, 1800)], "Ascend910B3", "chip", 0, 10),
        ([(-1, 800), (0, 1800)], "Ascend910B3", "chip", 0, 10),  # idle cores run at 800 MHz
        ([(-1, 1800), (4, 800)], "Ascend910B3", "chip", 0, 4),  # of the others it tells nothing
        ([(-1, 800), (0, 1500)], "Ascend910B3", "chip", 10, 10),
        ([(-1, 1500)], None, "highest", 0, 10),
        ([(-1, 1650)], "Ascend910B4", "highest", 0, 10),
        ([(-1, 1800), (6, 1500)], None, "highest", 4, 10),
        ([(-1, 1800), (6.5, 1500)], None, "highest", 3, 10),  # it fell during the seventh, which was not slower before
        ([(3, 1500)], "Ascend910B3", "chip", 7, 7),  # before the first value none is told
    ],
)
def test_without_counters_the_frequency_that_was_recorded_tells(
    values: list[tuple[float, int]], soc: str | None, basis: str, slowed: int, told: int
) -> None:
    clock = of_frequency(soc, *values)
    assert clock is not None and not clock.by_counters
    assert (clock.basis, clock.slowed_ns, clock.told_ns) == (basis, slowed * 100_000, told * 100_000)
    assert clock.lost_ns == pytest.approx(slowed * 100_000 * (1 - 1500 / 1800), abs=1)


def test_idle_cores_alone_tell_no_clock() -> None:
    assert of_frequency("Ascend910B3", (-1, 800)) is None


def test_steps_at_a_low_clock_are_named(tmp_path: Path) -> None:
    """Four steps of ten kernels: all of the second and third at 1350 MHz, two kernels of the fourth at 1790."""
    parts = run_of((10, 1800), (20, 1350), (8, 1800), (2, 1790))
    path = recorded(tmp_path, parts)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for n, row in enumerate(rows):
        row["Step Id"] = str(11 + n // 10)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    result = analyze_path(path)
    found = problem(path, "low_clock")
    assert ", 1350 at the lowest, in steps 12-13" in str(found.title)
    assert found.evidence["slowed_steps"] == [12, 13] and found.evidence["by_counters"]
    (device,) = result.devices
    ran = [step.efficiency and step.efficiency.ran_mhz for step in device.steps]
    assert ran[1] == ran[2] == (1350, 1350, 1350) and ran[0] == (1800, 1800, 1800)
    assert ran[3] is not None and (ran[3][0], ran[3][2]) == (1790, 1800) and ran[3][1] == pytest.approx(1798)


def test_a_chip_that_is_inferred_from_waves_is_no_rating() -> None:
    """That all kernels run at the rated clock is what it is inferred from: slower ones may be another chip's."""
    tasks = table(kernels(24, 1800, n=60))
    pmu = {name: column for name, column in tasks.pmu.items() if name != "cube_utilization"}
    pmu |= {name: np.zeros(60, np.float32) for name in ("aiv_time", "aiv_total_cycles")}
    counters = ChipCounters.of(tasks.with_columns(pmu=pmu), Cores())
    assert counters.rate is not None and counters.rate.inferred and counters.rate.cores == 24
    clock = counters.clock(tasks, slice(0, 60), counters.cores(Cores()), None, 0, 0.01)
    assert clock is not None and (clock.basis, clock.core_mhz, clock.rows) == ("highest", None, 0)


def test_clocks_of_no_core_are_left_out() -> None:
    odd = [Row(100, 20, 20 * 100 * mhz, 100, 90.0) for mhz in (75, 225, 20_000)]
    assert ChipCounters.of(table(odd), CORES).mhz is None


# --- across ranks --------------------------------------------------------------------------------------------------


def at_clock(path: Path, mhz: float) -> None:
    """Rewrite a rank's counters as if its cores had run at this clock: cycles and what is worked out of them."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    at = {name: rows[0].index(name) for name in ("aic_total_cycles", "aiv_total_cycles", "cube_utilization(%)")}
    for row in rows[1:]:
        for name, i in at.items():
            if row[i] not in ("N/A", "0", "0.0", "0.000"):
                row[i] = f"{float(row[i]) * mhz / 1650:.{3 if '%' in name else 0}f}"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[int, float]], Result]:
    def make(clocks: dict[int, float]) -> Result:
        out = write(Job(pp=1, dp=4, steps=3, layers=3, kernels=8, seed=5), tmp_path_factory.mktemp("job"))
        for rank, mhz in clocks.items():
            at_clock(out / f"rank_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", mhz)
        return analyze_path(out)

    return make


def test_a_rank_whose_clock_is_lower_than_others_is_named(job: Callable[[dict[int, float]], Result]) -> None:
    result = job({2: 1320.0})
    (found,) = [f for f in result.findings if f.rule == "uneven_clocks"]
    assert result.cluster is not None
    assert_complete(found, result.cluster.step_ns)
    assert "rank 2 runs its cores at 1320 MHz on average while it computes, another one at 1650" in str(found.title)
    own = next(d for d in result.devices if d.rank == 2)
    assert found.rank == 2 and found.gain_ns_per_step is not None
    # of its compute time a fifth is the clock's, of which a step gains no more
    assert found.gain_ns_per_step[1] == pytest.approx(own.window.compute_ns * 0.2 / own.step_count, rel=1e-3)
    alone = {f.rank: f for f in result.findings if f.rule == "low_clock" and f.status == "problem"}
    assert [*alone] == [2]


def test_the_worst_of_several_is_named(job: Callable[[dict[int, float]], Result]) -> None:
    (found,) = [f for f in job({0: 1500.0, 3: 1200.0}).findings if f.rule == "uneven_clocks"]
    assert str(found.title).startswith("2 ranks run their cores at a lower clock") and found.rank == 3


def test_a_rating_that_is_not_told_apart_bounds_the_price(job: Callable[[dict[int, float]], Result]) -> None:
    """33000 may be 22 cores at 1500 or 20 at 1650 MHz where all kernels run at 1320, none with more than 20 blocks."""
    result = job({2: 1320.0})
    clock = next(d.core_clock for d in result.devices if d.rank == 2)
    assert clock is not None and (clock.basis, clock.cores) == ("at_least", None)
    assert clock.rated_mhz == pytest.approx(1500, rel=1e-4) and clock.slowed_ns == clock.told_ns > 0
    assert clock.lost_ns == pytest.approx(clock.told_ns * (1 - 1320 / 1650), rel=1e-4)


def test_ranks_of_one_clock_are_no_problem(job: Callable[[dict[int, float]], Result]) -> None:
    assert not [f for f in job({}).findings if f.rule in ("uneven_clocks", "low_clock") and f.status != "ok"]


def test_a_clock_is_another_one_by_as_much_in_all_that_is_said_of_it() -> None:
    assert load_thresholds().clock_ratio == 0.01 and np.isclose(1800 * 0.01, 18)

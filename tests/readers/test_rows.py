"""Rows that are set aside and counted: absurdly far from all others, there twice; rows that the timeline has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, K, ascend_pt, events, kernel_details

from npuperf.base.messages import say
from npuperf.model.tasks import Work
from npuperf.readers.cells import far_off
from npuperf.readers.recording import Reading, open_recording

SECOND, HOUR, DAY = 10**9, 3600 * 10**9, 24 * 3600 * 10**9


def far(starts: list[int], ends: list[int] | None = None) -> list[int]:
    start = np.array(starts, np.int64)
    end = start + 1000 if ends is None else np.array(ends, np.int64)
    return np.flatnonzero(far_off(start, end)).tolist()


def test_one_time_near_zero_and_one_far_in_the_future_are_far_off() -> None:
    kernels = [EPOCH + i * SECOND for i in range(30)]
    assert far([1000, *kernels]) == [0]
    assert far([*kernels[:5], EPOCH + 40_000 * DAY, *kernels[5:]]) == [5]
    assert far([1000, *kernels, 4 * 10**18]) == [0, 31]
    assert far([-(4 * 10**18), *kernels], [4 * 10**18, *(k + 1000 for k in kernels)]) == [0]


def test_one_that_never_ends_is_far_off() -> None:
    kernels = [EPOCH + i * SECOND for i in range(30)]
    assert far(kernels, [kernels[0] + 30 * 365 * DAY, *(k + 1000 for k in kernels[1:])]) == [0]


@pytest.mark.parametrize("wrong", [3, 15, 25, 40])
def test_those_that_last_fifty_years_are_far_off_however_many(wrong: int) -> None:
    """Their starts are gone and their ends are right: together they would last longer than 64 bits can say."""
    kernels = [EPOCH + i * SECOND for i in range(40)]
    assert far([*([0] * wrong), *kernels[wrong:]], [k + 1000 for k in kernels]) == list(range(wrong))


@pytest.mark.parametrize(
    "starts",
    [
        [EPOCH, *(EPOCH + 23 * HOUR + i * 1000 for i in range(50))],  # a pause of most of a day
        [EPOCH + i * 6 * HOUR for i in range(200)],  # weeks, evenly
        [EPOCH, *(EPOCH + 3 * DAY + i * 60 * SECOND for i in range(200))],  # three days before hours of work
        [*(EPOCH + i for i in range(10)), *(EPOCH + 365 * DAY + i for i in range(10))],  # two halves: who is right?
        [1000, EPOCH],
    ],
)
def test_pauses_and_long_recordings_stay(starts: list[int]) -> None:
    assert far(starts) == []


def read(path: Path) -> Reading:
    (reading,) = open_recording(path).map(lambda reading: reading)
    assert reading.error is None
    return reading


def test_a_row_fifty_years_away_is_lost_and_told(tmp_path: Path) -> None:
    made = [K(i * 10_000, 2_500, f"k{i}") for i in range(20)]
    path = kernel_details(tmp_path / "kernel_details.csv", made)
    path.write_text(path.read_text().replace("1736413971000060.000", "1.000"))
    reading = read(path)
    assert len(reading.profiles[0].tasks) == 19
    assert [(x.rows, x.reason.parameters["row"]) for x in reading.log.lost] == [(1, 8)]


def test_an_event_fifty_years_away_is_lost_whatever_clock_others_have(tmp_path: Path) -> None:
    """The host's events count from an epoch, those of the device from its start: that is no damage."""
    made = events([K(i * 10_000 + 5_000, 2_500, f"k{i}", launch=i * 10_000) for i in range(20)])
    hardware = next(e["pid"] for e in made if e["name"] == "process_name" and e["args"]["name"] == "Ascend Hardware")
    of_device = [e for e in made if e["pid"] == hardware and e["ph"] == "X"]
    of_device[3]["ts"] = "1.000"
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(made))
    reading = read(path)
    assert len(reading.profiles[0].tasks) == 19
    assert [x.rows for x in reading.log.lost] == [1]
    for event in of_device:
        event["ts"] = event["ts"].removeprefix("173641397")
    path.write_text(json.dumps(made))
    reading = read(path)
    assert len(reading.profiles[0].tasks) == 20
    assert not reading.log.lost


# -- Kernel tables beside timelines: rows that stand there twice, or are missing.


def kernels(reading: Reading) -> int:
    return sum(len(p.tasks.only(Work.COMPUTE)) for p in reading.profiles)


def test_rows_that_stand_there_twice_count_once(tmp_path: Path) -> None:
    """A table that was put together from itself; two equal rows among many may be two kernels."""
    made = [K(i * 40_000, 6_000, f"op_{i}", step=11) for i in range(20)]
    twice = read(kernel_details(tmp_path / "twice" / "kernel_details.csv", [*made, *made]))
    once = read(kernel_details(tmp_path / "once" / "kernel_details.csv", made))
    ((left,), (right,)) = twice.profiles, once.profiles
    assert left.tasks.start.tolist() == right.tasks.start.tolist()
    assert [(x.rows, x.reason) for x in twice.log.lost] == [(20, say("listed twice in the table; counted once"))]
    few = read(kernel_details(tmp_path / "few" / "kernel_details.csv", [*made, made[3]]))
    assert kernels(few) == 21 and not few.log.lost
    # Equal kernels of which a spreadsheet program has rounded the starts, or with other blocks, are not the same.
    rounded = [K(i // 10 * 1_000_000, 20_000, "op", step=11) for i in range(40)]
    blocks = [K(i // 2 * 40_000, 6_000, "op", step=11, block=20 + i % 2) for i in range(40)]
    for name, rows in (("rounded", rounded), ("blocks", blocks)):
        found = read(kernel_details(tmp_path / name / "kernel_details.csv", rows))
        assert kernels(found) == 40, name


def test_rows_lost_from_a_table_are_taken_from_the_timeline(tmp_path: Path) -> None:
    made = [K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(6)]
    folder = ascend_pt(tmp_path, made)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = table.read_text().split("\n")
    table.write_text("\n".join([*lines[:3], "cut,short", *lines[4:]]))
    result = read(folder)
    assert kernels(result) == 6
    assert [x.rows for x in result.log.lost] == [1]
    assert any("taken from the timeline" in str(w) for w in result.log.warnings)

"""The clock of AI Cores: from timelines and databases, while the device ran, and as the real files have it."""

from __future__ import annotations

import json
import re
import sqlite3
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, K, ascend_pt, us
from inputs import KERNELS, database

from npuperf.model.device import ClockRates
from npuperf.model.tasks import Tasks
from npuperf.readers.recording import open_recording

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msinsight"


def clock(path: Path) -> tuple[int, int] | None:
    return open_recording(path).profiles[0].frequency_mhz


def with_track(folder: Path, values: list[tuple[int, object]], device: int = 0) -> Path:
    """Add the counter's track: ns after EPOCH and MHz."""
    pid = 90 + device
    trace = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(trace.read_text())
    events += [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "AI Core Freq"}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": f"NPU {device}"}},
        *({"ph": "C", "name": "AI Core Freq", "pid": pid, "tid": 0, "ts": us(EPOCH + time), "args": {"MHz": mhz}}
          for time, mhz in values),
        {"ph": "C", "name": "HBM 0/Read", "pid": pid, "tid": 0, "ts": us(EPOCH), "args": {"Read(MB/s)": 1}},
    ]  # fmt: skip
    trace.write_text(json.dumps(events))
    return folder


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([(-50_000, 1800), (90_000, 800)], (1800, 1800)),  # what was set before holds; what comes after does not count
        ([(-50_000, 1000), (5_000, 1800), (6_000, 1650)], (1000, 1800)),
        ([(2_000, 1650)], (1650, 1650)),
        ([(10_000, 1650)], None),  # the last task has ended
        ([(0, 0), (1_000, -1), (2_000, "fast"), (3_000, None)], None),
        ([], None),
    ],
)
def test_the_clock_is_that_while_tasks_ran(
    tmp_path: Path, values: list[tuple[int, object]], expected: tuple[int, int] | None
) -> None:
    folder = ascend_pt(tmp_path, [K(0, 4_000), K(5_000, 5_000)])
    assert clock(with_track(folder, values)) == expected


def test_another_device_has_a_clock_of_its_own(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 4_000), K(0, 4_000, device=1)])
    with_track(folder, [(0, 1000)], device=1)
    assert {p.device: p.frequency_mhz for p in open_recording(folder).profiles} == {0: None, 1: (1000, 1000)}
    with_track(folder, [(0, 1800)])
    assert {p.device: p.frequency_mhz for p in open_recording(folder).profiles} == {0: (1800, 1800), 1: (1000, 1000)}


def test_databases_have_it_in_a_table(tmp_path: Path) -> None:
    path = database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, "blockNum")
    assert clock(path) is None
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE AICORE_FREQ(deviceId, timestampNs, freq)")
        rows = [(0, EPOCH - 1_000, 1800), (0, EPOCH + 30_000, 1200), (0, EPOCH + 99_000, 800), (1, EPOCH, 600)]
        db.executemany("INSERT INTO AICORE_FREQ VALUES (?,?,?)", rows)
    assert clock(path) == (1200, 1800)


def test_the_clock_over_time_is_a_step_function() -> None:
    """1800 from 10 on, 1500 from 20, 800 from 30: means of stretches counted for every ns; what is the same is once."""
    rates = ClockRates.of(np.array([30, 10, 20, 15, 12]), np.array([800, 1800, 1500, 0, 1800]))
    assert rates.time.tolist() == [10, 20, 30] and rates.mhz.tolist() == [1800, 1500, 800]
    at = [0 if t < 10 else 1800 if t < 20 else 1500 if t < 30 else 800 for t in range(60)]
    edges = [0, 7, 13, 20, 22, 45, 60]
    means = [sum(at[low:high]) / (high - low) for low, high in pairwise(edges)]
    assert rates.averages(np.array(edges)).tolist() == pytest.approx(means)


def test_no_task_no_clock() -> None:
    rates = ClockRates.of(np.array([1], np.int64), np.array([1800], np.int64))
    assert rates.during(Tasks.empty()) is None


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize("rank", [0, 1])
def test_real_timelines_have_what_is_written_in_them(rank: int) -> None:
    folder = DATA / "text" / "level1" / f"rank{rank}_ascend_pt"
    (trace,) = folder.rglob("trace_view.json")
    written = re.findall(r'"args": \{"MHz": (\d+)\}', trace.read_text())
    assert written
    assert clock(folder) == (min(map(int, written)), max(map(int, written)))


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_real_databases_have_what_their_table_has() -> None:
    (path,) = (DATA / "db" / "level1" / "rank0_ascend_pt").rglob("ascend_pytorch_profiler_*.db")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        written = db.execute("SELECT min(freq), max(freq) FROM AICORE_FREQ").fetchone()
    assert clock(DATA / "db" / "level1" / "rank0_ascend_pt") == written

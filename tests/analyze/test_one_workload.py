"""Six recordings of one program on one machine, exported as text and as databases: one machine, one answer."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Device, Result

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
ALL = ("text/level0/rank0", "text/level1/rank0", "text/level1/rank1", "db/level0/rank0", "db/level1/rank0",
       "db/level1/rank1")  # fmt: skip
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="no data of msinsight")


@cache
def analyzed(name: str) -> Result:
    return run(AnalyzeRequest(path=REAL / f"{name}_ascend_pt", what_if=("launches*0.5", "host*0.5")))


def device(name: str) -> Device:
    (found,) = analyzed(name).devices
    return found


@pytest.mark.parametrize("name", ALL)
def test_no_recording_tells_the_launch_latency(name: str) -> None:
    """In five something begins 3 to 24 µs before its own launch call; text at Level0 has no launch calls."""
    clock = device(name).clock
    assert clock.launch_latency_ns is None and clock.latency_reason is not None
    assert ("not recorded" in str(clock.latency_reason)) == (name == "text/level0/rank0")
    assert device(name).window.launch_latency_ns == 0


def test_their_bounds_are_those_of_one_machine() -> None:
    """Clocks are between 3 and 24 µs apart at least; the most that the latency can be is alike."""
    bounds = [device(name).clock.latency_bounds_ns for name in ALL if name != "text/level0/rank0"]
    assert all(b is not None and b[0] == 0 for b in bounds)
    most = [b[1] for b in bounds if b is not None]
    assert max(most) - min(most) < 5_000 and min(most) > 5_000 and max(most) < 30_000


@pytest.mark.parametrize("expression", ["launches*0.5", "host*0.5"])
def test_faster_launching_is_worth_alike(expression: str) -> None:
    """Two recordings of one program differ by a tenth or so in anything; once this one differed a hundredfold."""
    found = [next(w for w in analyzed(name).what_if if w.expr == expression) for name in ALL]
    most = [w.gain_ns_per_step[1] for w in found if w.gain_ns_per_step]
    assert len(most) == len(ALL) and max(most) < 1.25 * min(most)


def recorded(name: str) -> tuple[int, int, list[tuple[int, int]]]:
    """Return when the host began and ended its one step, and from when to when each task of the device ran, ns."""
    output = REAL / f"{name}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    if name.startswith("db"):
        (path,) = output.glob("ascend_pytorch_profiler_*.db")
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as rows:
            ((step, begin, end),) = rows.execute("SELECT id, startNs, endNs FROM STEP_TIME")
            assert step == 50
            ran = "SELECT startNs, endNs FROM TASK JOIN STRING_IDS ON taskType = id WHERE value NOT LIKE 'PROFILING_%'"
            return begin, end, rows.execute(ran).fetchall()
    events = json.loads((output / "trace_view.json").read_bytes())
    ((begin, end),) = [borders(e) for e in events if e["name"] == "ProfilerStep#50"]
    (device,) = [e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "Ascend Hardware"]
    ran = [e for e in events if e["ph"] == "X" and e["pid"] == device and not e["name"].startswith("PROFILING_")]
    return begin, end, [borders(e) for e in ran]


def borders(event: dict[str, Any]) -> tuple[int, int]:
    begin = Decimal(str(event["ts"])) * 1000
    return round(begin), round(begin + Decimal(str(event["dur"])) * 1000)


@pytest.mark.parametrize("name", ALL)
def test_the_step_is_judged_with_what_the_host_does_around_its_tasks(name: str) -> None:
    """One step, 50: no task runs when the host begins or ends it, so it is as long as the host's range is.

    The first task is the copy of the input, 12 to 15 ms after the begin; 1.3 to 1.6 ms after the last one the host is
    done. That is no part of the device's whole span, and is idle but for the launch latency, which is not known here.
    """
    begin, end, tasks = recorded(name)
    first, last = min(start for start, _ in tasks), max(stop for _, stop in tasks)
    assert 12_000_000 < first - begin < 15_200_000 and 1_250_000 < end - last < 1_650_000
    found = device(name)
    assert found.judged is not None and [s.step for s in found.steps] == [50]
    assert found.judged.partition == found.steps[0].partition
    assert found.judged.partition.span_ns == pytest.approx(end - begin, abs=2)
    assert found.partition.span_ns == pytest.approx(last - first, abs=2)
    assert (found.judged.before_ns, found.judged.after_ns) == (0, 0)
    idle = found.judged.partition.idle_ns - found.partition.idle_ns
    assert idle == pytest.approx(end - begin - (last - first), abs=4)

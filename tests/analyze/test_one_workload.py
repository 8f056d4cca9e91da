"""Six recordings of one program on one machine, exported as text and as databases: one machine, one answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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


@pytest.mark.parametrize("name", ALL)
def test_the_step_is_judged_not_what_lies_before_it(name: str) -> None:
    """One step, 50; before its first kernel the input is copied for 4 to 6 ms, and nothing follows it."""
    found = device(name)
    assert found.judged is not None and [s.step for s in found.steps] == [50]
    assert found.judged.partition == found.steps[0].partition
    assert 4_000_000 < found.judged.before_ns < 6_000_000 and found.judged.after_ns == 0
    assert found.partition.span_ns == found.judged.before_ns + found.judged.partition.span_ns

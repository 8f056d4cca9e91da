"""What the host recorded: events around a time, and their lines of code, against looking at every event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from build import H, K, ascend_pt

from npuperf.model.device import DeviceProfile, HostSteps
from npuperf.model.host import Enclosing, Lines, Spans
from npuperf.model.labels import Labels
from npuperf.readers.recording import open_recording


@pytest.mark.parametrize("count", [0, 1, 256, 257, 3000])
def test_events_around_a_time_are_all_found_the_latest_first(count: int) -> None:
    rng = np.random.default_rng(count)
    thread, start = rng.integers(0, 3, count), rng.integers(0, 50_000, count)
    order = np.lexsort((start, thread))
    thread, start = thread[order], start[order]
    length = np.where(rng.random(count) < 0.01, 20_000, rng.integers(0, 40, count))  # few reach over many others
    spans = Spans(start, start + length, thread, Labels.missing(count))
    for time in rng.integers(0, 70_000, 60).tolist():
        for one in range(4):
            around = (thread == one) & (start <= time) & (spans.end >= time)
            assert [*spans.around(one, time)] == np.flatnonzero(around)[::-1].tolist()
            assert spans.innermost(one, time) == max(np.flatnonzero(around).tolist(), default=-1)
    for one, longer in enumerate(Enclosing.of(spans).longer.tolist()):
        earlier = (spans.end[:one] > spans.end[one]) & (thread[:one] == thread[one])
        assert longer == max(np.flatnonzero(earlier).tolist(), default=-1)


def test_steps_are_those_that_contain_a_time() -> None:
    number, start, end = np.array([7, 5, 6]), np.array([40, 10, 20]), np.array([50, 20, 30])
    inside = [next((n for n, a, b in zip(number, start, end, strict=True) if a <= ns < b), -1) for ns in range(60)]
    assert HostSteps(number, start, end).at(np.arange(60)).tolist() == inside


# -- Code lines of many events against those that are found one by one.


ROOT = Path(__file__).resolve().parents[2]
REAL = (
    ROOT / "samples" / "transformer_ascend_pt",
    *(ROOT.parent / "shared" / "data" / name for name in ("msinsight/text/level1", "hta/simple_add_gpu.json.gz")),
)


def one_by_one(profile: DeviceProfile) -> list[str | None]:
    events = profile.host.events
    return [profile.host.line_at(*place) for place in zip(events.thread.tolist(), events.start.tolist(), strict=True)]


def all_lines(profile: DeviceProfile) -> list[str | None]:
    events = profile.host.events
    return Lines.of(profile.host).at(events.thread, events.start).texts()


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_lines_are_those_found_one_by_one(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    profile = open_recording(path).profiles[0]
    lines = one_by_one(profile)
    assert len(lines) > 300
    assert all_lines(profile) == lines
    ops = np.arange(len(profile.host.ops))
    assert Lines.of(profile.host).of_ops(ops).texts() == [profile.host.code_line(op) for op in ops.tolist()]
    assert path != REAL[0] or sum(line is not None for line in lines) > 300


def test_an_event_has_the_line_of_the_frame_around_it(tmp_path: Path) -> None:
    host = [
        H("train.py(7): main", 0, 1_000, python=True),
        H("train.py(9): step", 100, 300, python=True),
        H("aten::mm", 150, 50, python=True),
        H("aten::add", 400, 50, python=True),  # begins when the function returns, and so still counts to it
        H("aten::mul", 500, 50, python=True),
        H("aten::sub", 2_000, 50, python=True),
    ]
    profile = open_recording(ascend_pt(tmp_path, [K(0, 100, launch=20)], host=host)).profiles[0]
    found = dict(zip(profile.host.events.name.texts(), all_lines(profile), strict=True))
    assert all_lines(profile) == one_by_one(profile)
    assert found["aten::mm"] == "train.py:9 step"
    assert found["aten::mul"] == "train.py:7 main"
    assert found["aten::sub"] is None


def test_of_no_operator_there_is_no_line() -> None:
    profile = open_recording(REAL[0]).profiles[0]
    assert Lines.of(profile.host).of_ops(np.array([-1, -1])).texts() == [None, None]

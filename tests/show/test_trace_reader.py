"""The strict reader refuses what viewers show wrongly or not at all: else its word would be worth nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_reader import read_strictly

NAMES = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "p"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "t"}},
]


def piece(ts: Any, dur: Any, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "x", "pid": 1, "tid": 2, "ts": ts, "dur": dur, **more}


def arrow(kind: str, ts: Any, id_: Any = 1) -> dict[str, Any]:
    return {"ph": kind, "name": "a", "cat": "c", "id": id_, "pid": 1, "tid": 2, "ts": ts, "bp": "e"}


def read(folder: Path, *events: dict[str, Any]) -> Any:
    (folder / "trace.json").write_text(json.dumps([*NAMES, *events]))
    return read_strictly(folder / "trace.json")


def test_what_is_right_is_read(tmp_path: Path) -> None:
    trace = read(tmp_path, piece(1.0, 3.0), piece(1.0, 1.0), piece(2.0, 2.0), arrow("s", 1.5), arrow("f", 2.0))
    assert [(s.start, s.end, s.depth) for s in trace.slices] == [(1000, 4000, 0), (1000, 2000, 1), (2000, 4000, 1)]
    ((kind, begin, end),) = trace.flows
    assert (kind, begin.start, end.start) == ("c", 1000, 2000)


@pytest.mark.parametrize(
    "events",
    [
        [piece(1.0, 3.0), piece(2.0, 3.0)],  # half over one another
        [piece(1.0, 1.0), piece(1.0, 3.0)],  # the shorter first
        [piece("1.000", 1.0)],  # text
        [piece(1.001, 1.0)],  # which is 1000 ns to a viewer that cuts off
        [piece(-1.0, 1.0)],
        [piece(1.0, 1.0, tid=3)],  # a thread without a name
        [piece(1.0, 1.0, pid=1 << 32)],
        [piece(1.0, 1.0, ph="i")],  # which Insight does not know
        [piece(1.0, 1.0), arrow("s", 1.5)],  # an arrow without an end
        [piece(1.0, 1.0), arrow("s", 1.5), arrow("f", 2.0)],  # ends where nothing is any more
        [piece(1.0, 1.0), arrow("s", 1.5), arrow("f", 1.0)],  # ends before it begins
        [piece(1.0, 1.0), arrow("s", 1.5, 1 << 53), arrow("f", 1.5, 1 << 53)],
        [piece(1.0, 1.0), arrow("s", 1.0), arrow("s", 1.5), arrow("f", 1.5)],  # one id for two
        [{"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 0, "args": {"n": 1}}],  # which Insight leaves out
        [NAMES[1]],
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        read(tmp_path, *events)

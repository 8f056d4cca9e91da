"""Chrome's trace format as strict viewers read it, written from the format and not from what writes it.

Events are ordered by time, those of one time as they stand in the file, as Perfetto does. Slices of one thread must lie
inside of each other or apart; arrows must begin and end in a slice of their thread that is there at their time.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

TEXT = re.compile(r"\d+\.\d{3}")
PHASES = {"M", "X", "I", "C", "s", "f"}  # those that Perfetto and MindStudio Insight both know


@dataclass
class ReadSlice:
    pid: int
    tid: int
    name: str
    start: int
    end: int
    args: dict[str, Any]
    depth: int = 0


@dataclass
class ReadTrace:
    """Times in ns, as they stand in the file."""

    events: list[dict[str, Any]]
    slices: list[ReadSlice] = field(default_factory=list)
    flows: list[tuple[str, ReadSlice, ReadSlice]] = field(default_factory=list)
    counters: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    marks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    epoch: int = 0

    def track(self, piece: ReadSlice) -> str:
        """The thread's name without the number of the sub-track."""
        return re.sub(r" \(\d+\)$", "", self.threads[piece.tid][1])

    def of(self, process: str) -> list[ReadSlice]:
        return [s for s in self.slices if self.processes[s.pid] == process]


def read_strictly(path: Path, *, text_times: bool = False) -> ReadTrace:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(raw.decode("utf-8"), parse_float=Decimal, parse_constant=_never)
    assert isinstance(events, list)
    found = ReadTrace(events)
    for event in events:
        assert event["ph"] in PHASES, event
        assert all(type(event[key]) is int and 0 < event[key] < 1 << 32 for key in ("pid", "tid")), event
        assert type(event["name"]) is str
    for event in (e for e in events if e["ph"] == "M"):
        _label(found, event)
    timed = [(_ns(e["ts"], text_times), e) for e in events if e["ph"] != "M"]
    timed.sort(key=lambda pair: pair[0])
    _follow(found, timed)
    return found


def _never(word: str) -> None:
    raise AssertionError(word)


def _ns(value: Any, text: bool) -> int:
    """A time as ns, which a viewer gets whether it rounds or cuts off."""
    if text and isinstance(value, str):
        assert TEXT.fullmatch(value)
        return int(value.replace(".", ""))
    assert isinstance(value, Decimal | int)
    assert not isinstance(value, bool)
    exact = int((Decimal(value) * 1000).to_integral_value())
    assert round(float(value) * 1000.0) == int(float(value) * 1000.0) == exact >= 0, value
    return exact


def _label(found: ReadTrace, event: dict[str, Any]) -> None:
    args, pid, tid = event["args"], event["pid"], event["tid"]
    match event["name"]:
        case "process_name":
            assert pid not in found.processes
            found.processes[pid] = args["name"]
        case "process_labels":
            found.labels[pid] = args["labels"]
        case "thread_name":
            assert tid not in found.threads, "one number for two threads"
            assert tid not in found.processes
            found.threads[tid] = pid, args["name"]
        case "npuperf_epoch":
            found.epoch = int(args["epoch_ns"])
        case other:
            assert other in ("process_sort_index", "thread_sort_index")
            assert type(args["sort_index"]) is int


def _follow(found: ReadTrace, timed: list[tuple[int, dict[str, Any]]]) -> None:
    open_: dict[int, list[ReadSlice]] = defaultdict(list)
    begun: dict[tuple[str, str, int], ReadSlice] = {}
    ended: set[tuple[str, str, int]] = set()
    for time, event in timed:
        kind, pid, tid = event["ph"], event["pid"], event["tid"]
        assert pid in found.processes
        if kind == "C":
            for name, value in event["args"].items():
                assert type(value) is int
                assert time > 0
                found.counters[pid, name].append((time, value))
            continue
        assert found.threads[tid][0] == pid
        stack = open_[tid]
        while stack and stack[-1].end <= time:
            stack.pop()
        if kind == "I":
            assert event["s"] in "gpt"
            found.marks.append((time, event))
        elif kind == "X":
            piece = ReadSlice(
                pid, tid, event["name"], time, time + _ns(event["dur"], False), event.get("args", {}), len(stack)
            )
            assert not stack or piece.end <= stack[-1].end, ("half over", stack[-1], piece)
            stack.append(piece)
            found.slices.append(piece)
        else:
            key = event["cat"], event["name"], event["id"]
            assert type(event["id"]) is int
            assert 0 <= event["id"] < 1 << 53
            assert stack, ("an arrow to nothing", event)
            if kind == "s":
                assert key not in begun
                begun[key] = stack[-1]
            else:
                assert event["bp"] == "e"
                assert key not in ended
                ended.add(key)
                found.flows.append((event["cat"], begun[key], stack[-1]))
    assert ended == begun.keys()

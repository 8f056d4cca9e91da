"""What the host does by itself in its steps, where there is no device: against a count nanosecond by nanosecond."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from build import analyze_path
from conftest import run_cli
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.model.parts import Workload
from npuperf.model.result import HostRun, Result
from npuperf.readers.find import Source
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.source import SourceRead, read_source
from npuperf.show.draw import draw
from npuperf.show.formats import View, render

BASE = 1_790_857_026_000_000_000
#: What the words for causes of these names are worked out from elsewhere; here they only have to be kept apart.
NAMES = ("aten::mm", "aten::add", "aten::copy_", "MyRange", "train.py(7): step", "Optimizer.step#SGD.step")


def event(name: str, start: int, end: int, tid: int = 5, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 5, "tid": tid, "ts": start, "dur": end - start, "args": {}}


def nested(source: random.Random, start: int, end: int, depth: int = 0) -> list[dict[str, Any]]:
    """Events one inside of another, and beside each other, at whole µs."""
    found, at = [], start
    while depth < 4 and at < end - 2:
        begin = source.randint(at, min(at + 12, end - 2))
        stop = source.randint(begin + 1, min(begin + 30, end))
        found.append(event(source.choice(NAMES), begin, stop))
        found += nested(source, begin, stop - 1, depth + 1)  # none is as long as what it is in
        at = stop
    return found


def profile(path: Path, events: list[dict[str, Any]]) -> Path:
    for one in events:
        if one["name"].endswith("step") and "(" in one["name"]:
            one["cat"] = "python_function"
    content = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events, "baseTimeNanoseconds": BASE}
    path.write_text(json.dumps(content))
    return path


def run_of(path: Path) -> HostRun:
    result: Result = analyze_path(path)
    (run,) = result.hosts
    return run


@pytest.mark.parametrize("seed", range(6))
def test_times_are_those_of_a_count_by_hand(tmp_path: Path, seed: int) -> None:
    """Of each µs in a step the event that began last and has not ended; no other thread's, none between steps."""
    source = random.Random(seed)
    steps = [(10, 150), (170, 260)]
    mine = [e for begin, end in steps for e in nested(source, begin, end)] + nested(source, 150, 170)
    marks = [event(f"ProfilerStep#{3 + i}", *ends, cat="user_annotation") for i, ends in enumerate(steps)]
    others = [dict(e, tid=6) for e in nested(source, 0, 300)]
    run = run_of(profile(tmp_path / "a.pt.trace.json", [*marks, *mine, *others]))

    by_hand, calls = Counter[str](), Counter[str]()
    for begin, end in steps:
        for at in range(begin, end):
            around = [e for e in mine if e["ts"] <= at < e["ts"] + e["dur"]]
            # of those that began together the shorter one is inside
            inner = max(around, key=lambda e: (e["ts"], -e["dur"]), default=None)
            by_hand[inner["name"] if inner else "nothing recorded"] += 1_000
        calls += Counter(e["name"] for e in mine if begin <= e["ts"] < end)
    told, counted = Counter[str](), Counter[str]()
    for work in run.work:
        told[work.name] += work.self_ns
        counted[work.name] += work.calls or 0
    assert told == by_hand and sum(told.values()) == run.span_ns == (140 + 90) * 1_000
    assert counted == calls
    assert [(s.step, s.length_ns) for s in run.steps] == [(3, 140_000), (4, 90_000)]
    assert (run.threads, run.events) == (2, len(marks) + len(mine) + len(others))


def test_without_steps_all_of_the_time_counts(tmp_path: Path) -> None:
    events = [event("aten::mm", 10, 40), event("aten::add", 20, 25), event("aten::mm", 60, 70)]
    run = run_of(profile(tmp_path / "a.pt.trace.json", events))
    assert [(w.name, w.self_ns, w.calls) for w in run.work] == [
        ("aten::mm", 35_000, 2), ("nothing recorded", 20_000, None), ("aten::add", 5_000, 1),
    ]  # fmt: skip
    assert run.steps == [] and run.span_ns == 60_000


def test_what_the_profiler_does_is_one_row(tmp_path: Path) -> None:
    """And a function of Python's own library is a part of whatever of the user's called it."""
    frames = [event("train.py(3): main", 0, 100, cat="python_function"),
              event("torch/profiler/profiler.py(7): step", 10, 40, cat="python_function"),
              event("contextlib.py(1): inner", 12, 30, cat="python_function"),
              event("contextlib.py(1): inner", 50, 60, cat="python_function"), event("aten::mm", 52, 58)]  # fmt: skip
    run = run_of(profile(tmp_path / "a.pt.trace.json", frames))
    assert [(w.cause, w.name, w.self_ns, w.calls, w.where) for w in run.work] == [
        ("python", "train.py(3): main", 64_000, 1, "train.py main"),
        ("profiler", "others", 30_000, None, None),
        ("torch_op", "aten::mm", 6_000, 1, "train.py main"),
    ]


def test_it_is_on_the_screen_and_in_tables(tmp_path: Path) -> None:
    """The first screen of who tries npuperf on a machine without an NPU."""
    marks = [event(f"ProfilerStep#{n}", 100 * n, 100 * n + 80, cat="user_annotation") for n in (1, 2, 3)]
    ops = [event("aten::mm", 100 * n, 100 * n + 20) for n in (1, 2, 3)]
    path = str(profile(tmp_path / "a.pt.trace.json", [*marks, *ops]))
    shown = run_cli(["analyze", path]).stdout
    assert "3 steps of the host · 80.00 us/step" in shown and "host events only" in shown
    assert "npuperf profile" not in shown  # of a trace that npuperf has not recorded
    result = analyze_path(Path(path))
    ours = render(replace(result, workload=Workload(command=("python", "train.py"), kineto=True)), "text")
    assert "75.0 % of it: nothing recorded" in ours and "npuperf profile --stack" in ours
    assert [line.split() for line in shown.splitlines() if "aten::mm" in line] == [
        ["torch", "operators", "aten::mm", "0.020", "25.0", "1"]
    ]
    rows = csv.DictReader(io.StringIO(run_cli(["analyze", path, "--table", "host_work", "--format", "csv"]).stdout))
    assert [(r["name"], r["self_ns"], r["per_step"], r["calls"]) for r in rows] == [
        ("nothing recorded", "180000", "60000", ""), ("aten::mm", "60000", "20000", "3"),
    ]  # fmt: skip
    steps = run_cli(["analyze", path, "--table", "host_steps", "--format", "csv"]).stdout
    assert [line.split(",")[1:] for line in steps.splitlines()[1:]] == [
        ["1", "0", "80000"], ["2", "100000", "80000"], ["3", "200000", "80000"],
    ]  # fmt: skip
    page = run_cli(["analyze", path, "--format", "html"]).stdout
    assert 'id="chart-host_work"' in page
    assert "\n1 step of the host" in run_cli(["analyze", path, "--step", "2"]).stdout


def test_a_page_draws_its_threads(tmp_path: Path) -> None:
    """Every event of both steps, in its thread, with its inputs and the code line that its stack has."""
    steps = [(10, 150), (170, 260)]
    marks = [event(f"ProfilerStep#{3 + i}", *ends, cat="user_annotation") for i, ends in enumerate(steps)]
    mine = [event("aten::mm", 20, 40), event("aten::add", 25, 30), event("aten::mm", 180, 250)]
    mine[0]["args"] = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"],
                       "Call stack": "train.py(41): forward"}  # fmt: skip
    other = event("aten::copy_", 100, 260, tid=6)
    path = profile(tmp_path / "a.pt.trace.json", [*marks, *mine, other])
    recording, result = open_recording(path, keep=True), analyze_path(path)
    (picture,) = draw(recording, result, load_thresholds({}))
    assert [(lane.kind, lane.thread) for lane in picture.lanes] == [("host", 5), ("host", 6)]
    assert [(one.start, one.end, one.step) for one in picture.exact] == [(0, 140_000, 3), (160_000, 250_000, 4)]
    found = {
        (lane.thread, picture.names[name], start, end, depth)
        for lane in picture.lanes
        for name, start, end, depth in zip(
            *(getattr(lane.slices, field).tolist() for field in ("name", "start", "end", "depth")), strict=True)
    }  # fmt: skip
    us = 1000
    assert found == {
        (5, "ProfilerStep#3", 0, 140 * us, 0), (5, "aten::mm", 10 * us, 30 * us, 1),
        (5, "aten::add", 15 * us, 20 * us, 2), (5, "ProfilerStep#4", 160 * us, 250 * us, 0),
        (5, "aten::mm", 170 * us, 240 * us, 1), (6, "aten::copy_", 90 * us, 250 * us, 0),
    }  # fmt: skip
    main = picture.lanes[0].slices
    first = main.start.tolist().index(10 * us)
    assert picture.facts[main.facts[first]] == {"inputs": "2,3 float; 3,4 float"}
    assert picture.names[main.where[first]] == "train.py:41 forward"
    page = render(result, "html", View(pictures=(picture,)))
    assert "no timeline" not in page
    longest = "0:170000:240000"  # of aten::mm
    assert set(re.findall(r'<tr data-go="([^"]+)"', page)) >= {longest, "0:0:140000", "0:160000:250000"}


def test_a_host_that_cannot_be_read_again_is_not_drawn_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = profile(tmp_path / "one.pt.trace.json", [event("aten::mm", 10, 30)]), Counter[str]()

    def once(source: Source, log: ReadLog, progress: Progress | None) -> SourceRead:
        reads["all"] += 1
        if reads["all"] > 1:
            raise InputError(say("{path}: Stale file handle", path=str(source.root)))
        return read_source(source, log, progress)

    monkeypatch.setattr("npuperf.readers.recording.read_source", once)
    done = run_cli(["analyze", str(path), "--html", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "has no timeline of" in done.stderr and "Stale file handle" in done.stderr
    assert "Stale file handle" in page and "0 of 0 devices" not in page and "what is read back from JSON" not in page

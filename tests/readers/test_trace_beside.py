"""Traces read in stretches tell what they tell as a whole; what is expected is told by hand, or by the other way."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from threading import Event, Thread

import pytest
from build import K, events
from test_damage import mutate
from ways import decoded_only, in_stretches, told

from npuperf import parallel
from npuperf.readers import pieces, trace_beside
from npuperf.readers.log import ReadLog
from npuperf.readers.trace import read_trace
from npuperf.readers.trace_beside import Told, TraceStretch, read_stretches, spare_helpers

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT.parent / "shared" / "data"
TRACES = sorted(path for place in (ROOT / "samples", REAL) for path in place.rglob("*trace*.json"))
KERNELS = [K(i * 10_000, 2_500, f"k{i % 7}", launch=i * 10_000 - 5_000) for i in range(60)]
ODD = [
    '"ts": 1700000000000000.123',
    '"ts": null',
    '"ts": "12"',
    '"ts": "x"',
    '"dur": "1.5"',
    '"dur": 1e999',
    '"dur": NaN',
    '"dur": -3',
    '"dur": true',
    '"pid": "Spans"',
    '"pid": 1.5',
    '"pid": true',
    '"pid": 99999999999999999999',
    '"tid": "7"',
    '"tid": null',
    '"tid": 140000000000000',
    '"id": 1.5',
    '"id": "x"',
    '"id": 340282366920938463463374607431768211456',
    '"name": null',
    '"name": ""',
    '"name": "a\\u0062}, {"',
    '"name": "\\ud800"',
    '"cat": 5',
    '"cat": null',
    '"ph": "C"',
    '"ph": 1',
    '"args": []',
    '"args": null',
    '"args": {"connection_id": "7", "Task Type": 5}',
    '"args": {"connection_id": 1.0, "list": [{"a": 1}, {"b": 2}]}',
]


def both_ways(path: Path, monkeypatch: pytest.MonkeyPatch, size: int = 700) -> tuple[object, object]:
    whole = told(path)
    with monkeypatch.context() as patch:
        in_stretches(patch, size)
        return whole, told(path)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.parent.name}/{path.name}")
def test_recorded_traces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = max(2_000, path.stat().st_size // 9)
    whole, stretched = both_ways(path, monkeypatch, size)
    assert whole == stretched


@pytest.mark.parametrize("form", ["list", "object", "numbers"])
def test_sound_traces_are_read_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    made = events(KERNELS, {11: (0, 10**6)})
    if form == "numbers":
        made = [{**e, "ts": float(e["ts"]) - 1.7e15} if "ts" in e else e for e in made]
    text = json.dumps(made)
    if form != "list":
        text = f'{{"schemaVersion": 1, "traceEvents": {text}, "traceName": "x]"}}'
    path = write(tmp_path / "trace.json", text)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 600)
    in_stretches(monkeypatch, 1_000)
    parts = read_stretches(path, 0, None)
    assert parts is not None
    assert parts[0].gathered.events == len(made)
    assert ("schemaVersion" in parts[0].header) == (form != "list") == ("traceName" in parts[0].header)
    shared = read_stretches(path, 2, None)
    assert shared is not None
    assert sum(part.gathered.events for part in shared) == len(made)


@pytest.mark.parametrize("odd", ODD)
def test_odd_events_are_the_same_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    made = [json.dumps(e) for e in events(KERNELS)]
    key = odd.split(":")[0].strip('"')
    at = [i for i, e in enumerate(made) if json.loads(e).get("ph") in ("X", "s", "f")][100]
    event = {k: v for k, v in json.loads(made[at]).items() if k != key}
    made[at] = json.dumps(event)[:-1] + f", {odd}}}"
    whole, stretched = both_ways(write(tmp_path / "trace.json", f"[{', '.join(made)}]"), monkeypatch)
    assert whole == stretched
    made[at] = json.dumps({**event, key: 7})[:-1] + f", {odd}}}"  # twice: the last one counts
    whole, stretched = both_ways(write(tmp_path / "twice.json", f"[{', '.join(made)}]"), monkeypatch)
    assert whole == stretched


def test_damaged_traces_are_the_same_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = json.dumps(events(KERNELS, {11: (0, 10**6)})).encode()
    path = tmp_path / "trace.json"
    for seed in range(80):
        path.write_bytes(mutate(random.Random(seed), plain))
        whole, stretched = both_ways(path, monkeypatch, 300 + 40 * seed)
        assert whole == stretched, seed


def test_times_are_exact(tmp_path: Path) -> None:
    ts = ("1700000000000000.123", "1700000000000000.120", "1700000000000000.12", "1700000000000000")
    made = [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": t, "dur": 0.001} for t in ts]
    trace = read_trace([write(tmp_path / "trace.json", json.dumps(made))], ReadLog())
    assert (trace.slices.start - 1_700_000_000_000_000_000).tolist() == [123, 120, 120, 0]
    assert (trace.slices.end - trace.slices.start).tolist() == [1] * 4


def test_a_file_cut_behind_an_event_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [json.dumps(e) for e in events(KERNELS)]
    path = write(tmp_path / "trace.json", f"[{', '.join(made)}]")
    cut_stretches = trace_beside._stretches

    def cutting(path: Path) -> list[TraceStretch]:
        found = list(cut_stretches(path))
        os.truncate(path, len("[" + ", ".join(made[:200])))
        return found

    with monkeypatch.context() as patch:
        in_stretches(patch, 3_000)
        patch.setattr(trace_beside, "_stretches", cutting)
        stretched = told(path)
    assert stretched == told(path)
    assert "the list of events is not closed" in str(stretched[-1])


def test_no_threads_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    path = write(tmp_path / "trace.json", json.dumps(events(KERNELS)))
    whole = told(path)
    in_stretches(monkeypatch)
    monkeypatch.setattr(Thread, "start", refused)
    assert told(path) == whole


def test_progress_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = json.dumps(events(KERNELS))
    in_stretches(monkeypatch)
    for text in (sound, sound.replace('"k3"', '"k3')):
        path = write(tmp_path / "trace.json", text)
        sizes: list[int] = []
        read_trace([path], ReadLog(), sizes.append)
        assert sum(sizes) == path.stat().st_size
    sizes = []
    told_ = Told(sizes.append)
    for size in (10, 20):
        told_.tell(size)
    for size in (15, 15, 15, 5):
        told_.again(size)
    assert sizes == [10, 20, 15, 5]


def test_where_nobody_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small or packed file, one that is read beside others or in a worker, and without the compiled reader."""
    path = write(tmp_path / "trace.json", "[]")
    monkeypatch.setattr(parallel, "cores", lambda: 9)
    assert spare_helpers(path) == 0
    monkeypatch.setattr(trace_beside, "WORTH_HELP", 0)
    assert spare_helpers(path) == 3
    assert spare_helpers(tmp_path / "absent") == 0
    (tmp_path / "packed").write_bytes(b"\x1f\x8b")
    assert spare_helpers(tmp_path / "packed") == 0
    found: list[int] = []
    beside = Thread(target=lambda: found.append(spare_helpers(path)))
    beside.start()
    beside.join()
    assert found == [0]
    with monkeypatch.context() as patch:
        decoded_only(patch)
        assert spare_helpers(path) == 0
    monkeypatch.setattr(parallel, "_ONE_OF_MANY", Event())
    parallel._ONE_OF_MANY.set()
    assert spare_helpers(path) == 0

"""Damaged files of every kind: whole rows and events are kept, and nothing but an InputError escapes."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from pathlib import Path

import pytest
from build import HEADER, K, events, kernel_details, row
from inputs import database

from npuperf.base.errors import InputError
from npuperf.model.tasks import Work
from npuperf.readers import pieces
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import Reading, open_recording
from npuperf.readers.trace import read_trace

read_each_way = pytest.mark.usefixtures("each_way")


def read(path: Path) -> Reading:
    (reading,) = open_recording(path).map(lambda reading: reading)
    if reading.error:
        raise reading.error
    return reading


def kernels(reading: Reading) -> int:
    return sum(len(p.tasks.only(Work.COMPUTE)) for p in reading.profiles)


def test_a_table_cut_anywhere_keeps_its_whole_rows(tmp_path: Path) -> None:
    made = [K(i * 10_000, 2_500 + i, f"k{i}") for i in range(3)]
    whole = kernel_details(tmp_path / "all" / "kernel_details.csv", made).read_bytes()
    path = tmp_path / "kernel_details.csv"
    lines = whole.split(b"\r\n")
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\r\n") - 1
        try:
            count = kernels(read(path))
        except InputError:
            count = 0
        # the last row may be complete but for its line end, or cut inside its last cell
        assert complete <= count + (complete < 0) <= complete + 1 + (complete < 0), (cut, lines)


@read_each_way
def test_one_garbled_event_costs_one_event(tmp_path: Path) -> None:
    made = [K(i * 10_000, 2_500, f"k{i}") for i in range(30)]
    text = json.dumps(events(made)).replace('"name": "k17"', '"name": "k17')
    path = tmp_path / "trace_view.json"
    path.write_text(text)
    reading = read(path)
    assert kernels(reading) == 29
    assert [x.rows for x in reading.log.lost] == [1]


@read_each_way
def test_zeros_behind_the_first_events_cost_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk leaves them. Each byte is looked at a few times, however many there are, and not with each block."""
    looked = []
    last_gap = pieces._last_gap

    def counted(buffer: bytes, end: int) -> tuple[int, int] | None:
        looked.append(end)
        return last_gap(buffer, end)

    made = b", ".join(json.dumps(e).encode() for e in events([K(i * 10_000, 2_500, f"k{i}") for i in range(6)]))
    monkeypatch.setattr(pieces, "PIECE_BYTES", len(made) + len(b"["))
    monkeypatch.setattr(pieces, "_last_gap", counted)
    path = tmp_path / "trace_view.json"
    for blocks in (20, 200):
        looked.clear()
        path.write_bytes(b"[" + made + bytes(blocks * len(made)))
        log = ReadLog()
        assert len(read_trace([path], log).slices) == 5
        assert [x.rows for x in log.lost] == [1]
        assert sum(looked) <= 12 * path.stat().st_size  # twice, where stretches are tried first


def mutate(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.choice([1, 2, 20])):
        i = source.randrange(max(1, len(changed)))
        kind = source.random()
        if kind < 0.4 and changed:
            changed[i] = source.randrange(256)
        elif kind < 0.6:
            del changed[i : i + source.randrange(1, 200)]
        else:
            junk = b'"', b"\n", b",", b"}", b"{", b"]", b"\0", b"N/A", b"-1", b"1e999", b"9" * 25, b"\xff\xfe", b"[[["
            changed[i:i] = source.choice(junk)
    return bytes(changed)


@pytest.mark.parametrize("kind", ["kernel_details.csv", "trace_view.json", "trace.json.gz", "step_trace_time.csv"])
def test_damage_never_escapes_as_anything_but_an_input_error(tmp_path: Path, each_way: str, kind: str) -> None:
    if each_way == "compiled" and kind.endswith(".csv"):
        pytest.skip("tables are read one way")
    made = [K(i * 10_000, 2_500, f"k{i}", step=11, launch=i * 10_000 - 5_000) for i in range(12)]
    step = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n11,1.5,2.5,0,2.5,3\n"
    plain = {
        "kernel_details.csv": "\r\n".join([HEADER, *map(row, made)]).encode() + b"\r\n",
        "trace_view.json": json.dumps(events(made, {11: (0, 10**6)})).encode(),
        "trace.json.gz": gzip.compress(json.dumps(events(made)).encode()),
        "step_trace_time.csv": step.encode(),
    }[kind]
    path = tmp_path / kind
    outcomes = {"result": 0, "error": 0}
    for seed in range(150):
        path.write_bytes(mutate(random.Random(seed), plain))
        digest = hashlib.sha256(path.read_bytes()).digest()
        try:
            for profile in read(path).profiles:
                assert (profile.tasks.dur >= 0).all()
            outcomes["result"] += 1
        except InputError as error:
            assert str(path) in str(error)
            outcomes["error"] += 1
        assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert min(outcomes.values()) > 0


def test_a_database_cut_short_gives_what_is_left(tmp_path: Path) -> None:
    many = [K(i * 10_000, 5_000, f"k{i}", launch=i * 10_000 - 4_000) for i in range(3_000)]
    whole = database(tmp_path / "msprof_20250101000000.db", many, "blockNum")
    data = whole.read_bytes()
    outcomes = set()
    for share in (0.2, 0.5, 0.8, 0.95):
        path = tmp_path / "ascend_pytorch_profiler.db"
        path.write_bytes(data[: int(len(data) * share)])
        try:
            reading = read(path)
            assert any("damaged or cut short" in str(w) for w in reading.log.warnings)
            outcomes.add("result")
        except InputError as error:
            assert str(path) in str(error)
            outcomes.add("error")
    assert "result" in outcomes

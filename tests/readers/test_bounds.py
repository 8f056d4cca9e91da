"""What is no data has an end: events, lines, headers and packed files without one are stepped over or refused."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from build import K, events, kernel_details

from npuperf.base.errors import InputError
from npuperf.readers import pieces, table
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import Reading, open_recording
from npuperf.readers.trace import read_trace

KB = 1 << 10


@pytest.fixture(autouse=True)
def _small_bounds(either_reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4 * KB)
    monkeypatch.setattr(pieces, "_SEAM", KB)
    monkeypatch.setattr(pieces, "_MOST_EVENT", 32 * KB)
    monkeypatch.setattr(pieces, "_MOST_HEADER", 32 * KB)
    monkeypatch.setattr(pieces, "_MOST_BEFORE", 256 * KB)
    monkeypatch.setattr(table, "_LONGEST_LINE", 32 * KB)


MADE = [json.dumps(e) for e in events([K(i * 10_000, 2_500, f"k{i}") for i in range(20)])]


def slices(path: Path, log: ReadLog) -> int:
    return len(read_trace([path], log).slices)


def written(folder: Path, content: str, *, packed: bool = False) -> Path:
    path = folder / ("trace_view.json.gz" if packed else "trace_view.json")
    data = content.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize(
    ("blanks", "packed"), [(16 * KB, False), (16 * KB, True), (200 * KB, False), (200 * KB, True), (600 * KB, False)]
)
def test_blanks_anywhere_cost_nothing(tmp_path: Path, blanks: int, packed: bool) -> None:
    many = " " * blanks
    whole = slices(written(tmp_path, "[" + ",".join(MADE) + "]"), ReadLog())
    for text in (
        many + "[" + ",".join(MADE) + "]",
        "[" + many + ",".join(MADE) + "]",
        "[" + ",".join(MADE[:12]) + many + "," + many + ",".join(MADE[12:]) + "]",
        "[" + ",".join(MADE) + many + "]" + many,
        '{"traceEvents":[' + ",".join(MADE) + "]}" + many,
    ):
        log = ReadLog()
        assert slices(written(tmp_path, text, packed=packed), log) == whole
        assert not log.lost and not log.warnings


@pytest.mark.parametrize("filling", ["x", "}", "]", "{", "[", "}]", "} ", "\\u0000", "[1,"])
def test_an_event_too_large_costs_itself(tmp_path: Path, filling: str) -> None:
    large = MADE[12].replace('"name": "', '"name": "' + filling * (200 * KB // len(filling)), 1)
    path = written(tmp_path, "[" + ",".join([*MADE[:12], large, *MADE[13:]]) + "]")
    whole = slices(written(tmp_path / "..", "[" + ",".join(MADE) + "]"), ReadLog())
    log = ReadLog()
    assert '"ph": "X"' in MADE[12]
    assert slices(path, log) == whole - 1
    assert [x.rows for x in log.lost] == [1]


@pytest.mark.parametrize("before", [True, False])
def test_other_keys_beside_the_events_may_be_large(tmp_path: Path, before: bool) -> None:
    whole = slices(written(tmp_path, "[" + ",".join(MADE) + "]"), ReadLog())
    other, all_ = '"other": "' + "x" * (200 * KB) + '"', '"traceEvents": [' + ",".join(MADE) + "]"
    log = ReadLog()
    assert slices(written(tmp_path, "{" + ", ".join([other, all_] if before else [all_, other]) + "}"), log) == whole
    assert not log.lost


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        ('{"rank": 2, "traceEvents": [', "]}", False),
        ('{"traceEvents": [', '], "rank": 2}', False),
        ('{"rank": 2,, "traceEvents": [', "]}", True),
        ('{"rank": "' + "x" * 40 * KB + '", "traceEvents": [', "]}", True),
        ('{"traceEvents": [', '], "rank": 2, "wor', True),
    ],
)
def test_what_stands_beside_the_events_and_cannot_be_read_is_told(
    tmp_path: Path, before: str, behind: str, told: bool
) -> None:
    log = ReadLog()
    path = written(tmp_path, before + ",".join(MADE) + behind)
    assert slices(path, log) == slices(written(tmp_path, "[" + ",".join(MADE) + "]"), ReadLog())
    said = f"{path}: what stands beside the events cannot be read; what it tells is unknown"
    assert [str(w) for w in log.warnings] == [said] * told


@pytest.mark.parametrize("start", ["", "[", '{"a": "'])
def test_a_packed_file_of_zeros_is_given_up(tmp_path: Path, start: str) -> None:
    path = written(tmp_path, start + "\0" * (4096 * KB), packed=True)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"no event in its first|no trace event could be read"):
        slices(path, ReadLog())
    assert tracemalloc.get_traced_memory()[1] < 1024 * KB
    tracemalloc.stop()


def test_zeros_behind_events_of_a_packed_file_are_given_up_and_told(tmp_path: Path) -> None:
    whole = slices(written(tmp_path, "[" + ",".join(MADE) + "]"), ReadLog())
    path = written(tmp_path, "[" + ",".join(MADE) + "," + "\0" * (1024 * KB) + "," + ",".join(MADE), packed=True)
    log = ReadLog()
    assert whole - 1 <= slices(path, log) <= whole
    assert [w.parameters["offset"] for w in log.warnings if "was not read" in w.id]


def test_damaged_events_are_told_in_a_few_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "[" + ",".join(MADE[:12] + ['{"ph": X}'] * 500 + MADE[12:]) + "]")
    log = ReadLog()
    assert slices(path, log) == sum('"ph": "X"' in e for e in MADE)
    assert [x.rows for x in log.lost] == [1, 1, 1, 497]


def read(path: Path) -> Reading:
    (reading,) = open_recording(path).map(lambda reading: reading)
    return reading


def test_a_line_too_long_costs_itself(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(i * 10_000, 2_500, f"k{i}") for i in range(20)])
    rows = path.read_text().splitlines()
    for row in ("x" * (300 * KB), '"' + "x," * (150 * KB), "," * (300 * KB)):
        path.write_text("\n".join([*rows[:8], row, *rows[8:]]) + "\n")
        reading = read(path)
        assert len(reading.profiles[0].tasks) == 20
        assert [x.rows for x in reading.log.lost] == [1]


def test_a_header_without_end_is_no_table(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(0, 2_500)])
    header, row, *_ = path.read_text().splitlines()
    path.write_text(header + ",x" * (64 * KB) + "\n" + row + "\n")
    error = read(path).error
    assert error is not None and "header is longer" in str(error)

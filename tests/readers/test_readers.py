"""Readers against tables of every spelling and condition; expected values are written by hand."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from decimal import Decimal
from pathlib import Path

import pytest
from build import EPOCH, HEADER, K, ascend_pt, events, kernel_details, row, us
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.analyze.run import analyze_path
from npuperf.errors import InputError
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.device import ReadLog
from npuperf.readers import pieces
from npuperf.readers.table import Table, read_table
from npuperf.readers.trace import read_trace

T1, T2 = 1736413971558972912, 1736413971560588764  # ns
ROWS = f"{T1 // 1000}.912\t,185.504\n{T2 // 1000}.764\t,501.17\n"


def read(path: Path, text: str | bytes) -> tuple[Table, ReadLog]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    log = ReadLog()
    return read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True), log


@pytest.mark.parametrize(
    "header",
    [
        "Start Time(us),Duration(us)",
        "Task Start Time(us),Task Duration(us)",
        "Task Start Time,Task Duration(us)",
        "task_start(us),task_time(us)",
        " start time(us) ,DURATION(us)",
        '"Start Time(us)","Duration(us)"',
        "\ufeffStart Time(us),Duration(us)",
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_start_and_duration_in_every_spelling(tmp_path: Path, header: str, newline: str) -> None:
    table, log = read(tmp_path / "k.csv", f"{header}\n{ROWS}".replace("\n", newline))
    assert table.times["start"].tolist() == [T1, T2]
    assert table.times["dur"].tolist() == [185_504, 501_170]
    assert log.lost == [] and log.warnings == []


def test_a_start_without_unit_is_told_by_magnitude(tmp_path: Path) -> None:
    table, _ = read(tmp_path / "k.csv", f"Task Start Time,Task Duration(us)\n{T1},1\n")
    assert table.times["start"].tolist() == [T1]


@pytest.mark.parametrize(
    ("block", "mix"), [("Block Dim", "Mix Block Dim"), ("Block Num", "Mix Block Num"), ("block_dim", "MIX BLOCK NUM")]
)
def test_block_columns_in_every_spelling(tmp_path: Path, block: str, mix: str) -> None:
    table, _ = read(
        tmp_path / "k.csv", f"Start Time(us),Duration(us),{block},{mix}\n1,1,24,48\n2,1,N/A,\n3,1,4294967295,0\n"
    )
    assert table.ints["block"].tolist() == [24, -1, -1]
    assert table.ints["mix_block"].tolist() == [48, -1, 0]


def test_the_first_alias_with_data_wins(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Block Num,Block Dim\n1,1,,7\n2,1,24,9\n")
    assert table.ints["block"].tolist() == [7, 24]
    assert any("mean the same" in w for w in log.warnings)


def test_duplicate_headers_are_said(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Duration(us)\n1,2,3\n")
    assert table.times["dur"].tolist() == [2000]
    assert any("2 times" in w for w in log.warnings)


def test_nulls_shapes_and_extra_columns(tmp_path: Path) -> None:
    text = (
        'Surprise,Name,Start Time(us),Duration(us),Input Shapes,Type\nx,"a,b",1,2,"""4,5;\n6,7""",N/A\n,c,3,4,N/A,Add\n'
    )
    table, log = read(tmp_path / "k.csv", text)
    assert [table.texts["name"][i] for i in range(2)] == ["a,b", "c"]
    assert [table.texts["type"][i] for i in range(2)] == [None, "Add"]
    assert [table.texts["shapes"][i] for i in range(2)] == ["4,5;\n6,7", None]
    assert log.lost == []


def test_utf16_and_semicolons_as_spreadsheets_write_them(tmp_path: Path) -> None:
    text = f"Start Time(us);Duration(us)\n{T1 // 1000}.912;1.5\n"
    table, _ = read(tmp_path / "k.csv", text.encode("utf-16"))
    assert (table.times["start"].tolist(), table.times["dur"].tolist()) == ([T1], [1500])


def test_rows_that_stand_there_twice_count_once(tmp_path: Path) -> None:
    """A table that was put together from itself; two equal rows among many may be two kernels."""
    kernels = [K(i * 40_000, 6_000, f"op_{i}", step=11) for i in range(20)]
    twice = analyze_path(kernel_details(tmp_path / "twice" / "kernel_details.csv", [*kernels, *kernels]))
    once = analyze_path(kernel_details(tmp_path / "once" / "kernel_details.csv", kernels))
    assert twice.operators == once.operators
    assert [(x.rows, x.reason) for x in twice.input.lost] == [(20, "stand in the table twice; counted once")]
    few = analyze_path(kernel_details(tmp_path / "few" / "kernel_details.csv", [*kernels, kernels[3]]))
    assert sum(o.count for o in few.operators) == 21 and not few.input.lost
    # Equal kernels of which a spreadsheet program has rounded the starts, or with other blocks, are not the same.
    rounded = [K(i // 10 * 1_000_000, 20_000, "op", step=11) for i in range(40)]
    blocks = [K(i // 2 * 40_000, 6_000, "op", step=11, block=20 + i % 2) for i in range(40)]
    for name, rows in (("rounded", rounded), ("blocks", blocks)):
        found = analyze_path(kernel_details(tmp_path / name / "kernel_details.csv", rows))
        assert sum(o.count for o in found.operators) == 40, name


def test_steps_of_a_host_that_ran_ahead_are_not_the_device_s(tmp_path: Path) -> None:
    """Two graphs, submitted at once in two short steps; they run long after. Nothing says which kernel is whose."""
    kernels = [K(1_000_000 + i * 40_000, 39_000, f"op_{i}") for i in range(20)]
    steps_ = {20: (0, 50_000), 21: (50_000, 1_100_000)}  # the last range lasts until the device is done
    folder = ascend_pt(tmp_path, kernels, steps_)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    (device,) = analyze_path(folder).devices
    assert device.steps == []


def test_one_bad_cell_costs_one_cell(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Block Dim\n1,1,24\n2,1,many\n3,1,40\n")
    assert table.ints["block"].tolist() == [24, -1, 40]
    assert any("row 3" in w and "many" in w for w in log.warnings)


def test_rows_of_the_wrong_width_are_counted(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Name\n1,1,a\n2,1\n3,1,c,d\n4,1,e\n")
    assert table.times["start"].tolist() == [1000, 4000]
    assert [(x.rows, x.reason.split(":")[0]) for x in log.lost] == [(1, "row 3"), (1, "row 4")]


def test_a_stray_quote_does_not_swallow_its_neighbours(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", 'Start Time(us),Duration(us),Name\n1,1,a\n2,1,"b\n3,1,c\n4,1,d\n')
    assert sorted(table.times["start"].tolist())[-2:] == [3000, 4000]
    assert log.lost


def test_header_only_empty_and_foreign_files(tmp_path: Path) -> None:
    for text, words in (
        ("", "row 1: the file is empty"),
        ("a,b,c\n1,2,3\n", "row 1: no column"),
        (HEADER + "\r\n", "row 2: no usable row"),
        (HEADER, "row 2: no usable row"),
        (HEADER + "\r\n" + "1,0,x,x,x,N/A,N/A,0,0,0,0,x\r\n", "row 2: no usable row"),
    ):
        path = tmp_path / "kernel_details.csv"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            analyze_path(path)
        assert str(path) in str(caught.value) and words in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_times_are_exact(tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int]]) -> None:
    text = "Start Time(us),Duration(us)\n" + "".join(f"{us(EPOCH + s)}\t,{us(d)}\n" for s, d in times)
    table, _ = read(tmp_path_factory.mktemp("exact") / "k.csv", text)
    exact = [int(Decimal(us(EPOCH + s)) * 1000) for s, _ in times]
    assert table.times["start"].tolist() == exact
    assert table.times["dur"].tolist() == [d for _, d in times]


def test_a_table_cut_anywhere_keeps_its_whole_rows(tmp_path: Path) -> None:
    kernels = [K(i * 10_000, 2_500 + i, f"k{i}") for i in range(4)]
    whole = kernel_details(tmp_path / "all" / "kernel_details.csv", kernels).read_bytes()
    path = tmp_path / "kernel_details.csv"
    lines = whole.split(b"\r\n")
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\r\n") - 1
        try:
            count = sum(o.count for o in analyze_path(path).operators)
        except InputError:
            count = 0
        # the last row may be complete but for its line end, or cut inside its last cell
        assert complete <= count + (complete < 0) <= complete + 1 + (complete < 0), (cut, lines)


def test_a_trace_cut_anywhere_keeps_its_whole_events(tmp_path: Path) -> None:
    kernels = [K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(3)]
    whole = json.dumps(events(kernels)).encode()
    path = tmp_path / "trace_view.json"
    texts = [json.dumps(e).encode() for e in events(kernels)]
    ends = [whole.index(text) + len(text) for text in texts]
    checked = 0
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        log = ReadLog()
        try:
            trace = read_trace([path], log)
        except InputError:
            assert not any(end <= cut for end in ends)
            continue
        kept = len(trace.slices) + len(trace.flows.id)
        whole_events = sum(1 for end, e in zip(ends, events(kernels), strict=True) if end <= cut and e["ph"] != "M")
        assert kept == whole_events
        assert log.lost or log.warnings
        checked += 1
    assert checked > 100


@pytest.mark.parametrize("piece", [64, 300, 1 << 20])
@pytest.mark.parametrize("form", ["list", "object", "spaced", "gzip"])
def test_traces_in_every_form_and_piece_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, form: str
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece)
    made = events([K(i * 10_000, 2_500, f"k}}, {{{i}", launch=i * 10_000 - 5_000) for i in range(40)], {11: (0, 10**6)})
    text = json.dumps(made, indent=2 if form == "spaced" else None)
    if form == "object":
        text = f'{{"schemaVersion": 1, "traceEvents": {text}, "traceName": "x]"}}'
    path = tmp_path / ("trace.json.gz" if form == "gzip" else "trace.json")
    path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    log = ReadLog()
    trace = read_trace([path], log)
    assert log.lost == []
    slices = [e for e in made if e["ph"] == "X"]
    assert [trace.slices.name[i] for i in range(len(trace.slices))] == [e["name"] for e in slices]
    assert trace.slices.start.tolist() == [int(e["ts"].replace(".", "")) for e in slices]
    assert len(trace.flows.link("HostToDevice").from_tid) == 40


def test_numbers_as_times_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"baseTimeNanoseconds": 1700000000000000000, "traceEvents": ['
        '{"ph":"X","name":"a","cat":"kernel","pid":0,"tid":7,"ts":1234567.891,"dur":20.192,"args":{"stream":7}},'
        '{"ph":"X","name":"b","cat":"kernel","pid":0,"tid":7,"ts":2234567,"dur":1,"args":{"memory bandwidth":inf}},'
        '{"ph":"X","name":"c","cat":"kernel","pid":0,"tid":7,"ts":3234567,"dur":NaN}]}'
    )
    log = ReadLog()
    trace = read_trace([path], log)
    assert trace.slices.start.tolist() == [1700000001234567891, 1700000002234567000]
    assert (trace.slices.end - trace.slices.start).tolist() == [20192, 1000]
    assert [(x.rows, x.reason) for x in log.lost] == [(1, "events without a readable time")]


def test_one_garbled_event_costs_one_event(tmp_path: Path) -> None:
    kernels = [K(i * 10_000, 2_500, f"k{i}") for i in range(30)]
    text = json.dumps(events(kernels)).replace('"name": "k17"', '"name": "k17')
    path = tmp_path / "trace_view.json"
    path.write_text(text)
    result = analyze_path(path)
    assert sum(o.count for o in result.operators) == 29
    assert [x.rows for x in result.input.lost] == [1]


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
            junk = [
                b'"',
                b"\n",
                b",",
                b"}",
                b"{",
                b"]",
                b"\x00",
                b"N/A",
                b"-1",
                b"1e999",
                b"9" * 25,
                b"\xff\xfe",
                b"[[[",
            ]
            changed[i:i] = source.choice(junk)
    return bytes(changed)


@pytest.mark.parametrize("kind", ["kernel_details.csv", "trace_view.json", "trace.json.gz", "step_trace_time.csv"])
def test_damage_never_escapes_as_anything_but_an_input_error(tmp_path: Path, kind: str) -> None:
    kernels = [K(i * 10_000, 2_500, f"k{i}", step=11, launch=i * 10_000 - 5_000) for i in range(12)]
    step = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n11,1.5,2.5,0,2.5,3\n"
    plain = {
        "kernel_details.csv": "\r\n".join([HEADER, *map(row, kernels)]).encode() + b"\r\n",
        "trace_view.json": json.dumps(events(kernels, {11: (0, 10**6)})).encode(),
        "trace.json.gz": gzip.compress(json.dumps(events(kernels)).encode()),
        "step_trace_time.csv": step.encode(),
    }[kind]
    path = tmp_path / kind
    outcomes = {"result": 0, "error": 0}
    for seed in range(150):
        path.write_bytes(mutate(random.Random(seed), plain))
        digest = hashlib.sha256(path.read_bytes()).digest()
        try:
            for device in analyze_path(path).devices:
                p = device.partition
                assert p.span_ns == p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
            outcomes["result"] += 1
        except InputError as error:
            assert str(path) in str(error)
            outcomes["error"] += 1
        assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert min(outcomes.values()) > 0


def test_rows_lost_from_a_table_are_taken_from_the_timeline(tmp_path: Path) -> None:
    kernels = [K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(6)]
    folder = ascend_pt(tmp_path, kernels)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = table.read_text().split("\n")
    table.write_text("\n".join([*lines[:3], "cut,short", *lines[4:]]))
    result = analyze_path(folder)
    assert sum(o.count for o in result.operators) == 6
    assert [x.rows for x in result.input.lost] == [1]
    assert any("taken from the timeline" in w for w in result.input.warnings)

"""Tables of every spelling and condition; expected values are written by hand."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from build import EPOCH, HEADER, us
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.errors import InputError
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.table import RowTable, read_table

T1, T2 = 1736413971558972912, 1736413971560588764  # ns
ROWS = f"{T1 // 1000}.912\t,185.504\n{T2 // 1000}.764\t,501.17\n"


def read(path: Path, text: str | bytes) -> tuple[RowTable, ReadLog]:
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
    assert any("mean the same" in str(w) for w in log.warnings)


def test_duplicate_headers_are_said(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Duration(us)\n1,2,3\n")
    assert table.times["dur"].tolist() == [2000]
    assert any("2 times" in str(w) for w in log.warnings)


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


def test_one_bad_cell_costs_one_cell(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Block Dim\n1,1,24\n2,1,many\n3,1,40\n")
    assert table.ints["block"].tolist() == [24, -1, 40]
    assert any("row 3" in str(w) and "many" in str(w) for w in log.warnings)


def test_rows_of_the_wrong_width_are_counted(tmp_path: Path) -> None:
    table, log = read(tmp_path / "k.csv", "Start Time(us),Duration(us),Name\n1,1,a\n2,1\n3,1,c,d\n4,1,e\n")
    assert table.times["start"].tolist() == [1000, 4000]
    assert [(x.rows, str(x.reason).split(":")[0]) for x in log.lost] == [(1, "row 3"), (1, "row 4")]


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
            _ = open_recording(path).profiles
        assert str(path) in str(caught.value) and words in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_times_are_exact(tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int]]) -> None:
    text = "Start Time(us),Duration(us)\n" + "".join(f"{us(EPOCH + s)}\t,{us(d)}\n" for s, d in times)
    table, _ = read(tmp_path_factory.mktemp("exact") / "k.csv", text)
    exact = [int(Decimal(us(EPOCH + s)) * 1000) for s, _ in times]
    assert table.times["start"].tolist() == exact
    assert table.times["dur"].tolist() == [d for _, d in times]

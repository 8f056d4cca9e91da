"""Tables of every spelling and condition; expected values are written by hand."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build import EPOCH, HEADER, us
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.base.errors import InputError
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.tasks import NO_TIME
from npuperf.readers import table as table_module
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
    """Two of them would make one row of what each of them begins, had no row of its own stood between them."""
    rows = '1,1,a\n2,1,"b\n3,1,c\n4,1,d\n5,1,"e\n6,1,f\n'
    table, log = read(tmp_path / "k.csv", f"Start Time(us),Duration(us),Name\n{rows}")
    assert table.times["start"].tolist() == [1000, 3000, 4000, 6000]
    assert [str(part.reason) for part in log.lost] == [f"row {n}: a quote is not closed" for n in (3, 6)]


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


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_times_are_exact(tmp_path_factory: pytest.TempPathFactory, times: list[tuple[int, int]]) -> None:
    text = "Start Time(us),Duration(us)\n" + "".join(f"{us(EPOCH + s)}\t,{us(d)}\n" for s, d in times)
    table, _ = read(tmp_path_factory.mktemp("exact") / "k.csv", text)
    exact = [int(Decimal(us(EPOCH + s)) * 1000) for s, _ in times]
    assert table.times["start"].tolist() == exact
    assert table.times["dur"].tolist() == [d for _, d in times]


def exact(cell: str, ns_per_unit: int) -> int:
    """What a cell says, in ns: of its digits the first six behind the point count, halves go to the even number."""
    whole, _, rest = cell.partition(".")
    return int((Decimal(f"{whole}.{rest[:6] or 0}") * ns_per_unit).quantize(Decimal(1), ROUND_HALF_EVEN))


DIGITS = st.integers(0, 10**9).flatmap(
    lambda whole: st.integers(0, 9).flatmap(
        lambda places: st.integers(0, 10**places - 1).map(
            lambda rest: f"{whole}.{rest:0{places}d}" if places else str(whole)
        )
    )
)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.booleans(), DIGITS), min_size=1, max_size=12),
    st.sampled_from([("us", 10**3), ("ns", 1), ("ms", 10**6), ("s", 10**9)]),
    st.booleans(),
)
def test_the_path_of_clean_tables_and_that_of_others_give_what_stands_there(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, bool, str]], unit: tuple[str, int], bad: bool
) -> None:
    """An unreadable cell in another column sends the whole table down the other path."""
    starts = [us(EPOCH + s).rstrip("0").rstrip(".") if short else us(EPOCH + s) for s, short, _ in rows]
    lines = [f"{start},{dur},{'x' if bad else 7},0.1\n" for start, (_, _, dur) in zip(starts, rows, strict=True)]
    text = f"Start Time(us),Duration({unit[0]}),Block Dim,aic_mac_ratio\n{''.join(lines)}"
    table, _ = read(tmp_path_factory.mktemp("paths") / "k.csv", text)
    assert table.times["start"].tolist() == [exact(s, 1000) for s in starts]
    durations = [exact(dur, unit[1]) for _, _, dur in rows]
    assert table.times["dur"].tolist() == [NO_TIME if d >= 4 * 10**18 else d for d in durations]
    assert table.ints["block"].tolist() == [-1 if bad else 7] * len(rows)
    assert table.pmu["aic_mac_ratio"].tolist() == [np.float32("0.1")] * len(rows)


def test_columns_that_come_in_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred bytes at a time: names of one batch are found again in another, the last row lacks what others have."""
    monkeypatch.setattr("npuperf.readers.table._BLOCK_BYTES", 100)
    rows = "".join(f"{i}.250,{i % 7}.5,{i % 3},{'ABC'[i % 3]},{i}.5\n" for i in range(100)) + "100.250,1,N/A,N/A,\n"
    table, log = read(tmp_path / "k.csv", f"Start Time(us),Duration(us),Block Dim,Name,aic_mac_ratio\n{rows}")
    assert table.times["start"].tolist() == [1000 * i + 250 for i in range(101)]
    assert table.times["dur"].tolist() == [1000 * (i % 7) + 500 for i in range(100)] + [1000]
    assert table.ints["block"].tolist() == [i % 3 for i in range(100)] + [-1]
    assert [table.texts["name"][i] for i in range(101)] == ["ABC"[i % 3] for i in range(100)] + [None]
    assert table.pmu["aic_mac_ratio"][:100].tolist() == [i + 0.5 for i in range(100)]
    assert np.isnan(table.pmu["aic_mac_ratio"][100]) and not log.warnings


def test_times_without_unit_are_judged_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches hold small numbers only; the last row shows that all of them are ns."""
    monkeypatch.setattr("npuperf.readers.table._BLOCK_BYTES", 100)
    rows = "".join(f"{i},1\n" for i in range(100)) + f"{T1},1\n"
    table, _ = read(tmp_path / "k.csv", f"Task Start Time,Duration(us)\n{rows}")
    assert table.times["start"].tolist() == [*range(100), T1]


def test_cells_over_several_lines_at_the_seam_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuperf.readers.table._BLOCK_BYTES", 100)
    rows = "".join(f'{i}.5,1,"a\nb"\n' for i in range(60))
    table, log = read(tmp_path / "k.csv", f"Start Time(us),Duration(us),Name\n{rows}")
    assert table.times["start"].tolist() == [1000 * i + 500 for i in range(60)]
    assert table.texts["name"].names == ("a\nb",) and not log.lost


def test_an_infinite_counter_is_none(tmp_path: Path) -> None:
    for other in ("7", "x"):
        text = f"Start Time(us),Duration(us),Block Dim,aic_mac_ratio\n1,1,{other},inf\n2,1,1,0.5\n"
        table, log = read(tmp_path / "k.csv", text)
        np.testing.assert_array_equal(table.pmu["aic_mac_ratio"], np.array([np.nan, 0.5], np.float32))
        assert "column 'aic_mac_ratio': 1 unreadable cell, in row 2: 'inf'" in str(log.warnings)


def test_an_unreadable_counter_costs_one_cell_and_is_told(tmp_path: Path) -> None:
    """The others stay what they are, however they are written."""
    text = "Start Time(us),Duration(us),aic_mac_ratio\n" + "".join(f"1,1,{c}\n" for c in ("1e-05", "few", ".5", "N/A"))
    table, log = read(tmp_path / "k.csv", text)
    np.testing.assert_array_equal(table.pmu["aic_mac_ratio"], np.array([1e-05, np.nan, 0.5, np.nan], np.float32))
    assert [str(w).partition(": ")[2] for w in log.warnings] == [
        "column 'aic_mac_ratio': 1 unreadable cell, in row 3: 'few'"
    ]


def test_integers_of_many_digits_are_unreadable_not_cut(tmp_path: Path) -> None:
    cells = ("1" * 30, "9" * 20, "18446744073709551615", "4294967295", "24")
    table, log = read(
        tmp_path / "k.csv", "Start Time(us),Duration(us),Block Dim\n" + "".join(f"1,1,{c}\n" for c in cells)
    )
    assert table.ints["block"].tolist() == [-1, -1, -1, -1, 24]
    told = [str(w) for w in log.warnings]
    assert len(told) == 2 and cells[0] in told[0] and cells[1] in told[1]  # the other two mean "not recorded"


@pytest.mark.parametrize("cell", ["9" * 307, "9" * 5000, "1" + "0" * 200, "1e308", "inf"])
def test_a_duration_that_overflows_costs_its_cell_and_nothing_is_printed(tmp_path: Path, cell: str) -> None:
    """Warnings of numpy are errors in tests; one would be printed between the lines of a report."""
    table, log = read(tmp_path / "k.csv", f"Start Time(us),Duration(us)\n1,1\n2,{cell}\n3,1\n")
    assert table.times["dur"].tolist() == [1000, NO_TIME, 1000]
    assert ["column 'Duration(us)': 1 unreadable cell" in str(told) for told in log.warnings] == [True]


# -- What is read with types is what the same cells are as text, judged one by one.

HEADERS = ("Name", "Start Time(us)", "Duration(us)", "Block Dim", "aic_mac_ratio", "Model ID", "Input Shapes")
ROW = ("k", "1736413971558972.912\t", "12.5", "20", "0.31", "4294967295", '"""8,4;4,2"""')


def csv(*rows: tuple[str, ...], end: str = "\n") -> bytes:
    return "".join(",".join(row) + end for row in (HEADERS, *rows)).encode()


def with_cell(header: str, *cells: str) -> bytes:
    """A row per cell, which stands under ``header``."""
    at = HEADERS.index(header)
    return csv(ROW, *((*ROW[:at], cell, *ROW[at + 1 :]) for cell in cells), ROW)


def told(path: Path) -> list[Any]:
    """All that reading a table tells, to be compared."""
    log = ReadLog()
    try:
        found = read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True)
    except InputError as error:
        return [str(error)]
    numbers = {**found.times, **found.ints, **{name: column.view(np.int32) for name, column in found.pmu.items()}}
    texts = {name: (column.texts(), column.names) for name, column in found.texts.items()}
    return [{name: column.tolist() for name, column in numbers.items()}, texts, log]


def has_types(path: Path, data: bytes) -> bool:
    """Assert that both ways tell the same of some bytes; return whether they could be read with types."""
    path.write_bytes(data)
    typed, refused = told(path), []
    with pytest.MonkeyPatch.context() as patch:
        read_arrow = table_module._read_arrow

        def texts_only(path: Path, layout: Any, types: Any, block: int, *more: Any) -> Any:
            if types is table_module._TEXTS:
                return read_arrow(path, layout, types, block, *more)
            refused.append(len(typed) == 1 or read_arrow(path, layout, types, block, *more) is None)
            return None

        patch.setattr(table_module, "_read_arrow", texts_only)
        assert told(path) == typed
    return refused == [False]


@pytest.mark.parametrize(
    ("header", "cells", "typed"),
    [
        ("Duration(us)", ["0", "1.5", "999.999", "7\t", "N/A", "", "\t", "NaN", "-", "0001.25", '"1.5\t"'], True),
        ("Duration(us)", ["1.2345", "1.23450", "1.2335", "20.310000", "0.0005", "1736413971558972.912345"], True),
        ("Duration(us)", ["3999999999999999.999", "4000000000000000.000", "-3.5", "1e3", "1.", ".5"], True),
        ("Duration(us)", ["1.2345678"], False),
        ("Duration(us)", ["9" * 60], False),
        ("Duration(us)", ['"1.5'], False),
        ("Block Dim", ["0", "4294967295", "9223372036854775807", "null", "007", "-1", "-7", "20 ", '"20"'], True),
        ("Block Dim", ["9223372036854775808"], False),
        ("Block Dim", ["2.0"], False),
        ("Block Dim", ["many"], False),
        ("aic_mac_ratio", ["0", "66.1", "9007199254740992", "0.1234567890123456", "N/A", "nan", "1e-05", "inf"], True),
        ("aic_mac_ratio", ["16777217", "16777217.0000000001", "16777216.9999999", "0." + "1" * 30], True),
        ("aic_mac_ratio", ["few"], False),
        ("Name", ['"a"', '"a,b"', '"say ""a"""', "a b", " a ", "None", '"N/A"', "漢字", ""], True),
        ("Name", ['"a\nb"'], False),
        ("Name", ["a,b"], False),
        ("Model ID", ["anything", '"at, all"', ""], True),
    ],
)
def test_cells_with_types_and_as_text(tmp_path: Path, header: str, cells: list[str], typed: bool) -> None:
    assert has_types(tmp_path / "kernel_details.csv", with_cell(header, *cells)) is typed


@pytest.mark.parametrize(
    ("data", "typed"),
    [
        (csv(ROW, ROW, end="\r\n"), True),
        (csv(ROW, ROW)[:-1], True),
        (csv(ROW, ROW) + b"\n", False),
        (csv(ROW, ROW).replace(b"\nk,", b"\n\xff,"), False),
        (csv(ROW, ROW[:-1]), False),
        (csv(ROW).replace(b",", b";").replace(b"8;4;4;2", b"8,4"), True),
        (b"\xef\xbb\xbf" + csv(ROW), True),
        (csv(ROW).replace(b"Start Time(us)", b"Start Time"), True),
        (csv(ROW).decode().encode("utf-16"), False),
    ],
)
def test_lines_with_types_and_as_text(tmp_path: Path, data: bytes, typed: bool) -> None:
    assert has_types(tmp_path / "kernel_details.csv", data) is typed


def test_bytes_changed_at_random(tmp_path: Path) -> None:
    data = csv(*((*ROW[:3], str(i), f"0.{i}", *ROW[5:]) for i in range(6)))
    chance, typed = random.Random(5), 0
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            at = chance.randrange(len(changed))
            changed[at : at + chance.choice((1, 1, 1, 0))] = bytes([chance.choice(b'0159.,"\n\r\t -ekN/A\x00\xff')])
        typed += has_types(tmp_path / "kernel_details.csv", bytes(changed))
    assert 50 < typed < 350

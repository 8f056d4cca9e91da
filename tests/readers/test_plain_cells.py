"""What compiled code takes of a table is what Arrow makes of the same cells, on every input; the rest it leaves."""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ways import tables_by_arrow

from npuperf.base.errors import InputError
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.tasks import NO_TIME
from npuperf.readers import plain_cells, table
from npuperf.readers.log import ReadLog
from npuperf.readers.table import RowTable, read_table

SOURCE = Path(plain_cells.__file__).with_name("plain_cells.c")
DRIVER = Path(__file__).with_name("cells_driver.c")
COMPILER = shlex.split(os.environ.get("CC") or "cc")
HEADERS = ("Name", "Start Time(us)", "Duration(us)", "Block Dim", "aic_mac_ratio", "Model ID", "Input Shapes")
ROW = ("k", "1736413971558972.912\t", "12.5", "20", "0.31", "4294967295", '"""8,4;4,2"""')

if not plain_cells.compiled_source() and shutil.which(COMPILER[0]) is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


def csv(*rows: tuple[str, ...], end: str = "\n") -> bytes:
    return "".join(",".join(row) + end for row in (HEADERS, *rows)).encode()


def with_cell(header: str, *cells: str) -> bytes:
    """A row per cell, which stands under ``header``."""
    at = HEADERS.index(header)
    return csv(ROW, *((*ROW[:at], cell, *ROW[at + 1 :]) for cell in cells), ROW)


def is_taken(path: Path) -> bool:
    """Tell whether compiled code takes a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_read_text", lambda *_: pytest.fail("left to Arrow"))
        try:
            read(path)
        except pytest.fail.Exception:
            return False
    return True


def read(path: Path) -> RowTable:
    return read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, ReadLog(), pmu=True)


def told(path: Path) -> list[Any]:
    """All that reading a table tells, to be compared."""
    log = ReadLog()
    try:
        found = read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True)
    except InputError as error:
        return [str(error)]
    numbers = {**found.times, **found.ints}
    pmu = {name: column.view(np.int32).tolist() for name, column in found.pmu.items() if not np.isnan(column).any()}
    gaps = {name: np.nan_to_num(column, nan=-1).tolist() for name, column in found.pmu.items()}
    texts = {name: (column.texts(), column.names) for name, column in found.texts.items()}
    return [{name: column.tolist() for name, column in numbers.items()}, pmu, gaps, texts, log]


def both(path: Path, data: bytes) -> bool:
    """Assert that both ways tell the same of some bytes; return whether compiled code took them."""
    path.write_bytes(data)
    compiled = told(path)
    with pytest.MonkeyPatch.context() as patch:
        tables_by_arrow(patch)
        assert told(path) == compiled
    return is_taken(path) if len(compiled) > 1 else False


def test_the_library_is_made_of_this_source() -> None:
    again = "run pip install -e . again: the compiled reader is another source's, or none"
    assert plain_cells.compiled_source() == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), again


def test_a_plain_table(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    other = ("ü", "1736413971558973", "0.001", "N/A", "", "x", "N/A")
    path.write_bytes(csv(ROW, other, ROW))
    assert is_taken(path)
    found = read(path)
    assert found.times["start"].tolist() == [1736413971558972912, 1736413971558973000, 1736413971558972912]
    assert found.times["dur"].tolist() == [12_500, 1, 12_500]
    assert found.ints["block"].tolist() == [20, -1, 20]
    assert found.pmu["aic_mac_ratio"].tolist()[::2] == [float(np.float32(0.31))] * 2
    assert np.isnan(found.pmu["aic_mac_ratio"][1])
    assert found.texts["name"].texts() == ["k", "ü", "k"]
    assert found.texts["shapes"].texts() == ["8,4;4,2", None, "8,4;4,2"]


@pytest.mark.parametrize(
    ("header", "cells", "taken"),
    [
        ("Duration(us)", ["0", "1.5", "999.999", "7\t", "N/A", "", "\t", "NaN", "-", "0001.25"], True),
        (
            "Duration(us)",
            ["1.2345", "1.23450", "1.2335", "1.234500", "1.234501", "20.310000", "0.0005", "0.0015"],
            True,
        ),
        ("Duration(us)", ["1736413971558972.912345", "3999999999999999.999"], True),
        ("Duration(us)", ["1.2345678"], False),
        ("Duration(us)", ["-3.5"], False),
        ("Duration(us)", ["4000000000000000.000"], False),
        ("Duration(us)", ["99999999999999999999"], False),
        ("Duration(us)", ['"1.5"', '"1.5\t"', '"7"'], True),
        ("Duration(us)", ['"1.5'], False),
        ("Duration(us)", ['"1.5"0'], False),
        ("Duration(us)", ['"N/A"'], False),
        ("Duration(us)", ['"'], False),
        ("Duration(us)", ["1e3"], False),
        ("Duration(us)", ["1."], False),
        ("Duration(us)", [".5"], False),
        ("Block Dim", ["0", "4294967295", "9223372036854775807", "null", "007"], True),
        ("Block Dim", ["9223372036854775808"], False),
        ("Block Dim", ["18446744073709551615"], False),
        ("Block Dim", ["-1"], False),
        ("Block Dim", ["2.0"], False),
        ("Block Dim", ["20 "], False),
        (
            "aic_mac_ratio",
            ["0", "0.000", "1", "66.1", "9007199254740992", "16777217", "0.1234567890123456", "nan"],
            False,
        ),
        ("aic_mac_ratio", ["0", "0.000", "1", "66.1", "9007199254740992", "0.1234567890123456", "N/A", "nan"], True),
        ("aic_mac_ratio", ["1e-05"], False),
        ("aic_mac_ratio", ["0." + "1" * 30], False),
        ("aic_mac_ratio", ["inf"], False),
        ("Name", ['"a"', '"a,b"', '"say ""a"""', "a b", " a ", "None", '"N/A"', "漢字", ""], True),
        ("Name", ['a"b'], False),
        ("Name", ['"a"b'], False),
        ("Name", ['"a\nb"'], False),
        ("Name", ["a,b"], False),
        ("Name", ["a\rb"], False),
        ("Model ID", ["anything", '"at, all"', ""], True),
    ],
)
def test_cells_that_are_plain_and_others(tmp_path: Path, header: str, cells: list[str], taken: bool) -> None:
    assert both(tmp_path / "kernel_details.csv", with_cell(header, *cells)) is taken


@pytest.mark.parametrize(
    ("data", "taken"),
    [
        (csv(ROW, ROW, end="\r\n"), True),
        (csv(ROW, ROW)[:-1], True),
        (csv(ROW, ROW)[:-9], False),
        (csv(ROW, ROW) + b"\n", False),
        (csv(ROW, ROW).replace(b"\n", b"\n\n", 2), False),
        (csv(ROW).replace(b"\n", b"\r"), False),
        (csv(ROW, ROW).replace(b",k,", b",\xff,").replace(b"\nk,", b"\n\xff,"), False),
        (csv(ROW, ROW[:-1]), False),
        (csv((*ROW, "more")), False),
        (csv(), False),
        (csv(ROW).replace(b",", b";").replace(b"8;4;4;2", b"8,4"), True),
        (b"\xef\xbb\xbf" + csv(ROW), True),
        (csv(ROW).decode().encode("utf-16"), False),
    ],
)
def test_lines_that_are_plain_and_others(tmp_path: Path, data: bytes, taken: bool) -> None:
    assert both(tmp_path / "kernel_details.csv", data) is taken


def test_times_without_a_unit_are_judged_as_a_whole(tmp_path: Path) -> None:
    data = csv(ROW).replace(b"Start Time(us)", b"Start Time")
    assert not both(tmp_path / "kernel_details.csv", data)


def test_times_are_rounded_to_the_even_ns(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(with_cell("Duration(us)", "1.2345", "1.2335", "0.0005", "0.0015", "7.123456", "2.999501"))
    assert is_taken(path)
    assert read(path).times["dur"].tolist()[1:-1] == [1234, 1234, 0, 2, 7123, 3000]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**16), st.integers(0, 16))
def test_decimals_are_rounded_once(tmp_path_factory: pytest.TempPathFactory, whole: int, places: int) -> None:
    digits = str(whole).rjust(places + 1, "0")
    cell = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}".rstrip(".")
    both(tmp_path_factory.mktemp("decimals") / "kernel_details.csv", with_cell("aic_mac_ratio", cell))


def test_a_decimal_near_the_middle_of_two_of_single_precision(tmp_path: Path) -> None:
    """As a double it is the middle, from where it would be rounded to the even one, which is the wrong one."""
    path = tmp_path / "kernel_details.csv"
    for cell in ("16777217.0000000001", "16777217.000000001", "16777219", "16777216.9999999"):
        both(path, with_cell("aic_mac_ratio", cell))


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 18])
def test_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """3,000 different names, so that tables of texts grow; columns grow as well, which were expected to be short."""
    monkeypatch.setattr(plain_cells, "_BLOCK_BYTES", block)
    monkeypatch.setattr(table, "_ROWS_EXPECTED", 3)
    path = tmp_path / "kernel_details.csv"
    count = 3000 if block > 7 else 40
    path.write_bytes(csv(*((f"k{i}", f"{i}.{i % 1000:03}", *ROW[2:]) for i in range(count))))
    found = read(path)
    assert found.times["start"].tolist() == [i * 1000 + i % 1000 for i in range(count)]
    assert found.texts["name"].texts() == [f"k{i}" for i in range(count)]
    assert set(found.texts["shapes"].texts()) == {"8,4;4,2"} and (found.times["start"] != NO_TIME).all()


def test_texts_of_any_length_are_told_apart(tmp_path: Path) -> None:
    """Of each length one text per place at which it differs."""
    path = tmp_path / "kernel_details.csv"
    names = ["a" * at + "b" + "a" * (size - at - 1) for size in range(1, 40) for at in range(size)]
    names += ["a" * size for size in range(1, 40)]
    path.write_bytes(csv(*((name, *ROW[1:]) for name in names)))
    assert is_taken(path)
    assert read(path).texts["name"].texts() == names
    assert len(read(path).texts["name"].names) == len(names) == len({*names})


@pytest.mark.parametrize("header", ["Name", "Model ID"])  # one that is kept, and one that is not
def test_signs_at_any_place_of_a_cell(tmp_path: Path, header: str) -> None:
    path, at = tmp_path / "kernel_details.csv", HEADERS.index(header)
    for sign, whole, meant in ((",", '"{}"', ","), ('""', '"{}"', '"'), ("! #", "{}", "! #"), ("ü\x7f", "{}", "ü\x7f")):
        texts = ["k" * before + "{}" + "k" * after for before in range(1, 21) for after in (1, 7, 8, 9)]
        cells = [whole.format(text.format(sign)) for text in texts]
        path.write_bytes(csv(*((*ROW[:at], cell, *ROW[at + 1 :]) for cell in cells)))
        assert is_taken(path)
        kept = read(path).texts["name"].texts()
        assert kept == ([text.format(meant) for text in texts] if header == "Name" else ["k"] * len(texts))
    for before in range(20):
        odd = "k" * before + '"k'
        assert not both(path, with_cell(header, odd))
        assert not both(path, with_cell(header, f'"{odd}"'))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Change a few bytes."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(changed))
        changed[at : at + chance.choice((1, 1, 1, 0))] = bytes([chance.choice(b'0159.,"\n\r\t -ekN/A\x00\xff')])
    return bytes(changed)


def test_bytes_changed_at_random(tmp_path: Path) -> None:
    data = csv(*((*ROW[:3], str(i), f"0.{i}", *ROW[5:]) for i in range(6)))
    chance = random.Random(5)
    taken = sum(both(tmp_path / "kernel_details.csv", damaged(data, chance)) for _ in range(400))
    assert 50 < taken < 350


def test_no_byte_outside_is_touched(tmp_path: Path) -> None:
    driver, tables = tmp_path / "driver", tmp_path / "tables"
    sanitized = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [*COMPILER, *sanitized, f"-I{SOURCE.parent}", str(DRIVER), "-lm", "-o", str(driver)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no sanitizers here: {built.stderr[-200:]}")
    lines = csv(ROW, ROW).split(b"\n", 1)[1]
    chance = random.Random(7)
    made = [lines[:size] for size in range(len(lines))]
    made += [lines[:size] + b"\n" for size in range(len(lines))]
    made += [damaged(lines, chance) for _ in range(2000)]
    tables.write_bytes(b"".join(b"%d\n%b" % (len(some), some) for some in made))
    ran = subprocess.run([str(driver), str(tables)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:3000]
    count, rows = (int(part.split()[0]) for part in ran.stdout.split(", "))
    assert count == len(made) and rows > 500

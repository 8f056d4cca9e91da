"""Tables that the compiled reader takes are what the other ways make of the same bytes; the rest it leaves to them."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_plan import MIB
from test_damage import mutate

from npuperf.base.errors import InputError
from npuperf.model.columns import ColumnNames, Kind
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers import memory_files
from npuperf.readers import table as table_module
from npuperf.readers.log import ReadLog
from npuperf.readers.table import read_table

COMPILER = shlex.split(os.environ.get("CC", "cc"))
SOURCE = Path(table_module.__file__).with_name("plain_rows.c")
ROOT = Path(__file__).resolve().parents[2]
PLAIN_WAY = table_module.read_plain
FILES = sorted(
    path
    for place in (ROOT / "samples", ROOT.parent / "shared" / "data")
    for path in place.rglob("*.csv")
    if memory_files.MEMORY_FILES.match(path.name)
)
COLUMNS = (
    ColumnNames("component", Kind.TEXT, ("component",)),
    ColumnNames("time", Kind.TIME, ("timestamp",)),
    ColumnNames("size", Kind.BYTES, ("size",)),
    ColumnNames("total", Kind.BYTES, ("total",)),
    ColumnNames("stream", Kind.INT, ("stream",)),
)
HEADER = "Component,Other,Timestamp(us),Size(KB),Total(MB),Stream"
PLAIN = ("PTA", "unused", "1764246877000015.420\t", "0.5", "4097.8876953125", "20281703200")
ODD = [
    "", "\t", "N/A", "N/A\t", "-", "None", " 5", "5 ", "-1", "-0.0", "0", "00", "007.5", "+5", ".5", "5.", "1e3", "inf",
    "nan", "4294967295", "18446744073709551615", "9223372036854775807", "99999999999999999999", "1.2345", "1.23456789",
    "4000000000000000.001", "0.1", "0.30000000000000004", "98304.00048828125", "123456789.12345678", "9007199254740993",
    "100000.00048828125", "9999999999.9", '"5"', '"a', 'a"', "ü", "\x00", "\x7f", "a,b", "a\nb", "a\r", "\r\n", "N/A,",
    "PTA+GE", " PTA ", "x" * 600, "1764246877000015.42", "1764246877000015", "1\t\t", "5\t", "0.0005", "12.5x", "-5.5",
]  # fmt: skip
if table_module._library() is None and shutil.which(COMPILER[0]) is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


def ways(path: Path, columns: tuple[ColumnNames, ...] = COLUMNS, **asked: Any) -> tuple[Any, Any, ReadLog]:
    """The table as it is read, whether it was taken as plain, and what is read without the compiled reader."""
    taken: list[bool] = []

    def noted(*given: Any) -> Any:
        found = PLAIN_WAY(*given)
        taken.append(found is not None)
        return found

    log, other_log = ReadLog(), ReadLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "read_plain", noted)
        table = read_table(path, columns, (), log, **asked)
        patch.setattr(table_module, "read_plain", lambda *_: None)
        other = read_table(path, columns, (), other_log, **asked)
    assert len(taken) == 1
    assert told(table, log) == told(other, other_log)
    return table, taken[0], log


def told(table: Any, log: ReadLog) -> Any:
    numbers = {name: column.tolist() for name, column in {**table.times, **table.ints}.items()}
    texts = {name: column.texts() for name, column in table.texts.items()}
    return numbers, texts, log.lost, log.warnings


def write(path: Path, rows: list[tuple[str, ...]], end: str = "\n", newline: str = "\n") -> Path:
    path.write_bytes((newline.join([HEADER, *map(",".join, rows)]) + end).encode())
    return path


def test_every_cell_is_exact(tmp_path: Path) -> None:
    """Times and bytes of random exact values, as exporters spell them: with fractions worked out here."""
    chance = random.Random(7)
    rows, times, sizes, totals = [], [], [], []
    for at in range(5000):
        times.append(1_764_246_877_000_000_000 + chance.randrange(10**12))
        sizes.append(chance.randrange(1, 1 << 30) * 512)
        totals.append(chance.randrange(1, 1 << 28) * 512)
        spelled = f"{times[-1] // 1000}.{times[-1] % 1000:03d}\t", repr(sizes[-1] / 1024), repr(totals[-1] / MIB)
        rows.append((f"aten::op{at % 37}", "x", *spelled, "2"))
    for portion, line in ((1 << 19, "\n"), (1 << 19, "\r\n"), (1000, "\r\n"), (200, "\n"), (200, "\r\n")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_module, "_PORTION", portion)
            table, plain, _ = ways(write(tmp_path / "t.csv", rows, line, line))
        assert plain
        assert (table.times["time"].tolist(), table.ints["size"].tolist()) == (times, sizes)
        assert table.ints["total"].tolist() == totals
        assert table.texts["component"].texts() == [f"aten::op{at % 37}" for at in range(5000)]


@pytest.mark.parametrize("kib", ["0.1", "1187.981", "3.0000000000001", "8388607.7"])
def test_bytes_that_are_no_multiples_are_the_nearest(tmp_path: Path, kib: str) -> None:
    table, plain, _ = ways(write(tmp_path / "t.csv", [(*PLAIN[:3], kib, kib, "2")]))
    assert plain
    assert table.ints["size"].tolist() == [round(Fraction(kib) * 1024)]
    assert table.ints["total"].tolist() == [round(Fraction(kib) * MIB)]


def test_what_is_not_recorded_is_unknown(tmp_path: Path) -> None:
    rows = [("N/A", "", "\t", "", "N/A", "N/A"), ("", "", "N/A\t", "-1", "-0.0", "4294967295"), PLAIN]
    table, plain, log = ways(write(tmp_path / "t.csv", rows))
    assert plain and not log.warnings
    assert table.texts["component"].texts() == [None, None, "PTA"]
    assert table.times["time"].tolist() == [NO_TIME, NO_TIME, 1_764_246_877_000_015_420]
    assert [table.ints[name].tolist() for name in ("size", "total", "stream")] == [
        [UNKNOWN, UNKNOWN, 512], [UNKNOWN, 0, 4097 * MIB + 930_816], [UNKNOWN, UNKNOWN, 20281703200]
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ODD), st.booleans()), min_size=1, max_size=4), st.data())
@settings(max_examples=300, deadline=None)
def test_odd_cells_are_what_the_other_ways_make_of_them(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[int, str, bool]], data: st.DataObject
) -> None:
    rows = [list(PLAIN) for _ in range(5)]
    for at, (column, cell, whole) in enumerate(cells):
        rows[at][column] = cell if whole else rows[at][column] + cell
    end = data.draw(st.sampled_from(["\n", "", "\n\n", "\r\n", "\r", "\r\r", "\x00", "\nPTA,", "\nPTA"]))
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "_PORTION", data.draw(st.sampled_from([90, 1 << 19])))
        ways(write(path, [tuple(row) for row in rows], end, data.draw(st.sampled_from(["\n", "\r\n", "\r"]))))


@pytest.mark.parametrize("cell", ['"5"', "1e3", "+5", "00", ".5", "5.", " 5", "12.5x", "0.30000000000000004"])
def test_what_is_not_plain_is_left_to_the_other_ways(tmp_path: Path, cell: str) -> None:
    rows = [PLAIN] * 3 + [(*PLAIN[:3], cell, *PLAIN[4:])]
    table, plain, _ = ways(write(tmp_path / "t.csv", rows))
    assert not plain and len(table) == 4


def test_a_row_that_is_cut_loses_nothing_silently(tmp_path: Path) -> None:
    table, plain, log = ways(write(tmp_path / "t.csv", [PLAIN, PLAIN[:3], PLAIN]))
    assert not plain
    assert len(table) == 2 and sum(lost.rows for lost in log.lost) == 1


def test_too_many_words_are_left_to_the_other_ways(tmp_path: Path) -> None:
    many = [(f"op{at}", *PLAIN[1:]) for at in range(5000)]
    assert [ways(write(tmp_path / "t.csv", rows))[1] for rows in (many[:4000], many)] == [True, False]


def test_rows_that_are_not_needed_are_left_out(tmp_path: Path) -> None:
    rows = [(name, *PLAIN[1:]) for name in ("PTA+GE", "PTA", "PTA", "PTA+GE", "APP", "GE")]
    with_them, plain, _ = ways(write(tmp_path / "t.csv", rows), needless=("component", ("PTA+GE", "GE")))
    assert plain and with_them.texts["component"].texts() == ["PTA", "PTA", "APP"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_samples_and_real_files_are_the_same_both_ways(path: Path) -> None:
    columns = (*memory_files._BLOCKS, *memory_files._TOLD, *memory_files._RECORDS[:2])
    names = dict.fromkeys(column.name for column in columns)
    _, plain, _ = ways(path, tuple(next(c for c in columns if c.name == name) for name in names))
    assert plain


def damaged() -> list[bytes]:
    """Healthy files as bytes are changed, cut and doubled, and rows of odd cells."""
    chance = random.Random(3)
    rows = "\n".join([HEADER, *(",".join(PLAIN) + "\r" * (at % 2) for at in range(40))]) + "\n"
    odd = [",".join(chance.choice(ODD) if chance.random() < 0.3 else cell for cell in PLAIN) for _ in range(400)]
    texts = [rows.encode(), "\n".join([HEADER, *odd[:20]]).encode(), *(f"{HEADER}\n{row}\n".encode() for row in odd)]
    return texts + [mutate(chance, chance.choice(texts[:2])) for _ in range(400)]


def test_damaged_tables_are_the_same_both_ways(tmp_path: Path) -> None:
    path, taken = tmp_path / "t.csv", 0
    for text in damaged():
        path.write_bytes(text)
        with suppress(InputError):  # no header is left
            taken += ways(path)[1]
    assert taken > 10


DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include "plain_rows.c"
enum { MOST = 64, COLUMNS = 5 };
int main(int count, char **paths) {
    static const int64_t kinds[COLUMNS] = {WORD, TIME, BYTES, BYTES, WHOLE}, places[COLUMNS] = {0, 2, 3, 4, 5};
    FILE *file = fopen(paths[count - 1], "rb");
    long size, read = 0;
    while (file && fscanf(file, "%ld", &size) == 1) {
        char *text = malloc((size_t)size);
        if (fgetc(file) != '\\n' || fread(text, 1, (size_t)size, file) != (size_t)size) return 2;
        for (int64_t most = 3; most <= MOST; most += MOST - 3) {
            Column columns[COLUMNS] = {{0}};
            for (int i = 0; i < COLUMNS; i++) {
                columns[i].place = places[i];
                columns[i].kind = kinds[i];
                columns[i].scale = 1024;
                columns[i].numbers = malloc((size_t)most * sizeof(int64_t));
                columns[i].codes = malloc((size_t)most * sizeof(int32_t));
                columns[i].text = malloc(100);
                columns[i].room = 100;
                columns[i].ends = malloc(WORDS / 2 * sizeof(int32_t));
                columns[i].table = calloc(WORDS, sizeof(int32_t));
            }
            int64_t rows = rows_read(text, size, ',', 6, columns, COLUMNS, most);
            if (rows < REFUSED || rows > most) return 3;
            for (int64_t row = 0; row < rows; row++)
                if (columns[0].codes[row] < 0 || columns[0].codes[row] >= columns[0].count) return 4;
            for (int i = 0; i < COLUMNS; i++) {
                free(columns[i].numbers); free(columns[i].codes); free(columns[i].text);
                free(columns[i].ends); free(columns[i].table);
            }
        }
        free(text);
        read++;
    }
    printf("%ld texts\\n", read);
    return file ? fclose(file) : 2;
}
"""


def test_nothing_is_read_or_written_beyond_what_is_given(tmp_path: Path) -> None:
    """The same under the sanitizers for addresses and undefined behaviour, from memory of exactly each text's size."""
    driver, texts = tmp_path / "driver", tmp_path / "texts"
    (tmp_path / "driver.c").write_text(DRIVER)
    command = [*COMPILER, "-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
               f"-I{SOURCE.parent}", str(tmp_path / "driver.c"), "-lm", "-o", str(driver)]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no sanitizers here: {built.stderr[-200:]}")
    made = [text.partition(b"\n")[2] for text in damaged()]
    made += [text[:cut] for text in made[:2] for cut in range(0, len(text), 7)]
    texts.write_bytes(b"".join(b"%d\n%b" % (len(text), text) for text in made))
    ran = subprocess.run([str(driver), str(texts)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:3000]
    assert ran.stdout == f"{len(made)} texts\n"

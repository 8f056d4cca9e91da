"""What compiled code takes of a table is what SQLite gives of it, whatever lies there; the rest it leaves to SQLite."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
import struct
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.readers import plain_rows
from npuperf.readers.log import ReadLog
from npuperf.readers.plain_rows import Stored
from npuperf.readers.sqlite import ChosenRows, open_database
from npuperf.readers.sqlite_cells import NotInBulkError

SOURCE = Path(plain_rows.__file__).with_name("plain_rows.c")
#: Where the widths of integers in records end, on both sides.
BORDERS = [sign * (1 << bits) + by for bits in (7, 15, 23, 31, 47, 62) for sign in (1, -1) for by in (-1, 0, 1)]
INTEGERS = st.sampled_from([0, 1, -1, (1 << 63) - 1, -(1 << 63) + 1, *BORDERS])

if not plain_rows.compiled_source() and shutil.which("cc") is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


def make(path: Path, script: str, table: str = "", rows: list[tuple[Any, ...]] | None = None) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        for row in rows or ():
            connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        connection.commit()
    return path


def compiled(path: Path, *columns: str, rows: int = 1000) -> list[list[int]] | None:
    """Columns of table T as compiled code reads them, so many rows at once; None where it leaves them."""
    with open_database(path, ReadLog()) as db, pytest.MonkeyPatch.context() as patch:
        patch.setattr("npuperf.readers.sqlite._BATCH", rows)
        assert db.plain is not None and db.has("T")
        try:
            return [c.tolist() for c in db.integers_in_bulk("T", [*columns])]
        except NotInBulkError:
            return None


def of_sqlite(path: Path, *columns: str) -> list[list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT {', '.join(f'IFNULL({c}, -1)' for c in columns)} FROM T").fetchall()
    return [[row[i] for row in rows] for i in range(len(columns))]


def test_the_library_is_made_of_this_source() -> None:
    again = "run pip install -e . again: the compiled reader is another source's, or none"
    assert plain_rows.compiled_source() == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), again


@pytest.mark.parametrize("page", [512, 1024, 4096, 65536])
@pytest.mark.parametrize("count", [0, 1, 5, 700, 20_000])
def test_tables_of_any_depth(tmp_path: Path, page: int, count: int) -> None:
    """20,000 rows of three columns are leaves under two levels of pages of 512 bytes; another table lies between."""
    path = make(tmp_path / "x.db", f"PRAGMA page_size = {page}; CREATE TABLE T(a, b, c); CREATE TABLE U(a)")
    with closing(sqlite3.connect(path)) as connection:
        for at in range(0, count, 1000):
            more = range(at, min(at + 1000, count))
            connection.executemany("INSERT INTO T VALUES (?, ?, ?)", [(i, -i * i, i << 40) for i in more])
            connection.executemany("INSERT INTO U VALUES (?)", [(i,) for i in more])
        connection.commit()
    for rows in (7, 1 << 20):
        found = compiled(path, "c", "a", "b", rows=rows)
        assert found == [[i << 40 for i in range(count)], [*range(count)], [-i * i for i in range(count)]]


def test_pages_that_lie_in_any_order_and_half_empty_ones(tmp_path: Path) -> None:
    path = make(tmp_path / "x.db", "PRAGMA page_size = 512; CREATE TABLE T(id INTEGER PRIMARY KEY, a)")
    numbers = random.Random(3).sample(range(30_000), 6_000)
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO T VALUES (?, ?)", [(i, i * 3) for i in numbers])
        connection.execute("DELETE FROM T WHERE id % 5 = 0 OR id BETWEEN 9000 AND 15000")
        connection.commit()
    left = sorted(i for i in numbers if i % 5 and not 9000 <= i <= 15000)
    assert compiled(path, "id", "a") == [left, [i * 3 for i in left]]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(INTEGERS | st.none(), st.text("0123456789", min_size=1, max_size=18), INTEGERS), max_size=30))
def test_every_width_of_integers_and_texts_of_digits(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    path = make(tmp_path_factory.mktemp("rows") / "x.db", "CREATE TABLE T(a, b, c)", "T", rows)
    expected = [[-1 if a is None else a for a, _, _ in rows], [int(b) for _, b, _ in rows], [c for *_, c in rows]]
    assert compiled(path, "a", "b", "c") == expected


@pytest.mark.parametrize(
    "cell", [0.5, 2.0, "", "x", "-1", " 1", "9223372036854775808", "0" * 20, b"", b"7", "1" * 5000]
)
def test_what_is_no_integer_is_left(tmp_path: Path, cell: object) -> None:
    path = make(tmp_path / "x.db", "CREATE TABLE T(a, b)", "T", [(1, 2), (3, cell), (5, 6)])
    assert compiled(path, "b") is None
    assert compiled(path, "a") == (None if isinstance(cell, str) and len(cell) > 4096 else [[1, 3, 5]])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CREATE TABLE T(a INTEGER, b, PRIMARY KEY (a)); INSERT INTO T VALUES (7, 8)", [[7], [8]]),
        ("CREATE TABLE T(a INT PRIMARY KEY, b); INSERT INTO T VALUES (7, 8)", [[7], [8]]),
        ("CREATE TABLE T(a INTEGER, b INTEGER, PRIMARY KEY (a, b)); INSERT INTO T VALUES (7, 8)", [[7], [8]]),
        ("CREATE TABLE T(a INTEGER PRIMARY KEY DESC, b); INSERT INTO T VALUES (NULL, 8)", None),
        ("CREATE TABLE T(a, b, PRIMARY KEY (a)) WITHOUT ROWID; INSERT INTO T VALUES (7, 8)", None),
        ("CREATE TABLE T(a, x AS (a + 1), b); INSERT INTO T VALUES (7, 8)", None),
        ("CREATE TABLE T(a); INSERT INTO T VALUES (7); ALTER TABLE T ADD COLUMN b DEFAULT 8", None),
        ("PRAGMA encoding = 'UTF-16'; CREATE TABLE T(a, b); INSERT INTO T VALUES (7, '8')", None),
        ("CREATE TABLE T(a REAL, b); INSERT INTO T VALUES (7.5, 8)", None),
        ("PRAGMA auto_vacuum = FULL; CREATE TABLE T(a, b); INSERT INTO T VALUES (7, 8)", [[7], [8]]),
    ],
)
def test_ways_of_declaring_tables(tmp_path: Path, script: str, expected: list[list[int]] | None) -> None:
    path = make(tmp_path / "x.db", script)
    assert compiled(path, "a", "b") == expected
    with open_database(path, ReadLog()) as db:  # what is left to SQLite comes from there
        log = db.log
        found = db.columns("T", {"a": "a", "b": "b"})
    if "7.5" not in script:
        assert [found["a"].tolist(), found["b"].tolist()] == of_sqlite(path, "a", "b") or "UTF-16" in script
        assert not log.warnings


def test_numbers_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[Any, ...]] = [
        (1, 2, 0.1),
        (1, 3, None),
        (1, 4, 7),
        (None, 5, -(1 << 62)),
        (1, 6, 1e300),
        (1, 7, 0),
    ]
    path = make(tmp_path / "x.db", "CREATE TABLE T(m, t, v NUMERIC)", "T", rows)
    monkeypatch.setattr("npuperf.readers.sqlite._BATCH", 4)
    with open_database(path, ReadLog()) as db:
        assert db.plain is not None and db.has("T")
        found = [[c.tolist() for c in b] for b in db.numbers_in_bulk("T", ("m", "t"), "v")]
    assert [column for batch in found for column in batch[0]] == [1, 1, 1, -1, 1, 1]
    assert [column for batch in found for column in batch[1]] == [2, 3, 4, 5, 6, 7]
    values = [value for batch in found for value in batch[2]]
    assert values[:1] + values[2:] == [float(np.float32(0.1)), 7.0, -(2.0**62), float("inf"), 0.0]
    assert np.isnan(values[1])


def test_only_rows_that_are_wanted_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "x.db", "CREATE TABLE T(a, b)", "T", [(i, i % 3) for i in range(1000)])
    monkeypatch.setattr("npuperf.readers.sqlite._BATCH", 64)
    with open_database(path, ReadLog()) as db:
        assert db.plain is not None and db.has("T")
        found = db.integers_in_bulk("T", ["a", "b"], ChosenRows("", ("b",), lambda b: b == 2))
    assert found[0].tolist() == [*range(2, 1000, 3)] and set(found[1].tolist()) == {2}


def test_more_rows_than_a_file_has_room_for_are_left(tmp_path: Path) -> None:
    """Two pages that name each other's children would go round for ever; here every child is the same leaf."""
    path = make(tmp_path / "x.db", "PRAGMA page_size = 512; CREATE TABLE T(a)")
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO T VALUES (?)", [(i,) for i in range(3000)])
        connection.commit()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
    data = bytearray(path.read_bytes())
    top = (root - 1) * 512
    assert data[top] == 5
    places = struct.unpack_from(f">{struct.unpack_from('>H', data, top + 3)[0]}H", data, top + 12)
    for place in places:  # every child, but for the last one, is the first
        data[top + place : top + place + 4] = data[top + places[0] : top + places[0] + 4]
    path.write_bytes(data)
    assert compiled(path, "a") == of_sqlite(path, "a")  # as SQLite has it, which does not look either
    with ExitStack() as stack:
        few = plain_rows.open_plain(path, 2000, stack)
        assert few is not None
        with pytest.raises(NotInBulkError):
            few.whole(Stored(root, ("a",)), ["a"], 100)


def test_damaged_pages_give_what_sqlite_gives_or_are_left(tmp_path: Path) -> None:
    """Bytes are changed at random: no change may be read as something else than SQLite reads."""
    sound = make(tmp_path / "sound.db", "PRAGMA page_size = 512; CREATE TABLE T(id INTEGER PRIMARY KEY, a, b TEXT)")
    with closing(sqlite3.connect(sound)) as connection:
        connection.executemany("INSERT INTO T VALUES (?, ?, ?)", [(i, i * 1000 - 5, str(i)) for i in range(400)])
        connection.commit()
    data = sound.read_bytes()
    chance = random.Random(17)
    path = tmp_path / "x.db"
    taken = 0
    for _ in range(600):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 4))):
            page = chance.randrange(1, len(data) // 512) * 512
            at = page + (chance.randrange(12) if chance.random() < 0.3 else chance.randrange(512))
            damaged[at] = chance.choice((0, 1, 5, 13, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        path.write_bytes(damaged)
        found = compiled(path, "id", "a", "b")
        if found is None:
            continue
        taken += 1
        expected = of_sqlite(path, "id", "a", "b")
        assert found == [[int(cell) for cell in column] for column in expected]
    assert 50 < taken < 590

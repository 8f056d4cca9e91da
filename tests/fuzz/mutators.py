"""Damage of every kind. A mutator changes one thing and says what; all chance comes from the generator it is given.

``keeps``: no task's row is gone or changed beyond recognition after it: whoever reads fewer tasks has to say so.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

# -- What a damaged disk, a careless tool or an enemy puts into a cell, a name or a value.

#: Names that something further on could take for more than text.
NAMES = (
    "[x]", "[/red]", "[bold red]x", "\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "bell\x07", "null\x00byte",
    "\u202eright", "\u2066isolated", "two\nlines", "carriage\rreturn", "tab\tbed", "=cmd()", "+1+cmd()", "-2+3",
    "@sum", '"""', "'", "```", "`id`", "$(id)", "a|b|c", "<script>alert(1)</script>", "{name}", "%s", "\\",
    "../../etc/passwd", "\ufeff", "名字", "x" * 70_000,
)  # fmt: skip
#: Cells of a table where a number belongs.
CELLS = (
    "", "N/A", "soon", "nan", "inf", "-inf", "-1", "0", "1e300", "-1e300", "1e-400", str(2**63), str(-(2**63)),
    "9" * 5000, "1.000", "2026-02-30", "0x10", "1_000", "١٢٣", "½", "1,5", " 7 ", "--", "1.2.3", "true", '"', "'7'",
    "7\x00",
)  # fmt: skip
#: Cells of a database. A pair is text in bytes that are no UTF-8.
INVALID_TEXT = b"\xff\xfe\xc3("
VALUES = (
    None, "", "soon", "N/A", "9" * 5000, "1.000", "2026-02-30", b"", b"\xff\x00\xfe", 1e300, -1e300, float("inf"),
    1e-320, 0.5, 2**63 - 1, -(2**63), 2**62, -1, 0, 1, 4294967295,
)  # fmt: skip
#: Numbers of steps, as names carry them.
STEPS = ("ProfilerStep#" + "9" * 30, "ProfilerStep#-1", "ProfilerStep#", "ProfilerStep#1.5", "ProfilerStep#١")


class Raw(str):
    """Text that stands in JSON as it is, valid or not."""


#: Values where JSON has another one.
TREES = (
    None, True, False, 0, -1, 2**63, -(2**63), 1e300, -1e300, 0.5, "", "soon", "7", [], {}, [None], {"a": {}},
    "x" * 1_000_000, Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("-1e999"), Raw("9" * 5000), Raw("-0"),
    Raw("01"), Raw("[" * 5000 + "]" * 5000), Raw('{"a":' * 5000 + "1" + "}" * 5000), Raw("[" * 5000),
    Raw('{"name":1,"name":"x","name":[]}'), Raw('"\\ud800"'), Raw('"\\u0000"'), Raw('"\\x"'), Raw('"tab\there"'),
    Raw("'single'"), Raw("undefined"), Raw(""),
)  # fmt: skip
#: Values of a recipe.
YAML = (
    '!!int "x"', "!!python/object/apply:os.system [id]", "2026-02-30", "2026-13-01T99:99:99", ".inf", ".nan", "~",
    "yes", "-1", "9" * 5000, "0o8", "1e999", "[" * 5000, "{" * 5000, "[" * 5000 + "]" * 5000, "&a [*a]", "*nobody",
    "{<<: 1}", "? [a]", "|\n  x", '"\\ud800"', "'\x07'", "!!binary x", "!!timestamp x", "!!set {a, b}", "{[a]: b}",
    "- a", "\t", "%YAML 9", "190:20:30", "",
)  # fmt: skip


@dataclass(frozen=True)
class Mutator:
    """One way to do damage. ``act`` gets the generator and what is damaged, and returns that, or None if in place."""

    name: str
    act: Callable[[Random, Any], Any]
    keeps: bool = False


BYTES: list[Mutator] = []
TABLE: list[Mutator] = []
TREE: list[Mutator] = []
DATABASE: list[Mutator] = []
FOLDER: list[Mutator] = []
LINES: list[Mutator] = []


def mutates(register: list[Mutator], *, keeps: bool = False, often: int = 1) -> Callable[[Any], Any]:
    """Register a function; ``often``: how many times it is in the draw."""

    def add(act: Any) -> Any:
        register.extend([Mutator(act.__name__, act, keeps)] * often)
        return act

    return add


def somewhere(rng: Random, data: bytes, most: int = 4096) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.randrange(1, most))


@mutates(BYTES, often=2)
def flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 30)) if data else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


@mutates(BYTES)
def cut(rng: Random, data: bytes) -> bytes:
    return data[: somewhere(rng, data)[0]]


@mutates(BYTES)
def leave_out(rng: Random, data: bytes) -> bytes:
    begin, end = somewhere(rng, data)
    return data[:begin] + data[end:]


@mutates(BYTES)
def insert(rng: Random, data: bytes) -> bytes:
    at = somewhere(rng, data)[0]
    junk = b'"', b"\n", b",", b"}", b"]", b"{", b"\x00", b"\xff\xfe", b"[[[", b"\xef\xbb\xbf", b"9" * 5000
    return data[:at] + rng.choice(junk) * rng.choice((1, 1, 2, 50)) + data[at:]


@mutates(BYTES)
def repeat(rng: Random, data: bytes) -> bytes:
    begin, end = somewhere(rng, data)
    at = somewhere(rng, data)[0]
    return data[:at] + data[begin:end] + data[at:]


@mutates(BYTES)
def zero_pages(rng: Random, data: bytes) -> bytes:
    page = rng.choice((512, 1024, 4096))
    begin = rng.randrange(len(data) // page + 1) * page
    return data[:begin] + bytes(len(data[begin : begin + page])) + data[begin + page :]


@mutates(BYTES)
def replace_all(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    heads = (b"", b"\x00" * 5000, rng.randbytes(3000), b"SQLite format 3\x00", b"\x1f\x8b\x08\x00")
    return rng.choice((*heads, text.encode("utf-16"), b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r"), data + data))


Rows = list[list[str]]


def cell_of(rng: Random, rows: Rows) -> tuple[int, int]:
    row = rng.randrange(1, len(rows)) if len(rows) > 1 else 0
    return row, rng.randrange(max(1, len(rows[row])))


@mutates(TABLE, often=4)
def change_cells(rng: Random, rows: Rows) -> Rows:
    _, column = cell_of(rng, rows)
    for _ in range(rng.choice((1, 1, 3, len(rows)))):
        row, other = cell_of(rng, rows)
        at = min(rng.choice((column, column, other)), len(rows[row]) - 1)
        if at >= 0:
            rows[row][at] = rng.choice(CELLS)
    return rows


@mutates(TABLE, keeps=True, often=2)
def name_badly(rng: Random, rows: Rows) -> Rows:
    named = [
        i for i, title in enumerate(rows[0]) if title.strip() in ("Name", "Type", "Op Name", "OP Type", "Input Shapes")
    ]
    for _ in range(rng.choice((1, 5)) if named else 0):
        row, at = rng.randrange(1, len(rows)), rng.choice(named)
        if at < len(rows[row]):
            rows[row][at] = rng.choice(NAMES)
    return rows


@mutates(TABLE)
def drop_column(rng: Random, rows: Rows) -> Rows:
    _, at = cell_of(rng, rows)
    return [row[:at] + row[at + 1 :] for row in rows]


@mutates(TABLE)
def repeat_column(rng: Random, rows: Rows) -> Rows:
    _, at = cell_of(rng, rows)
    return [row[:at] + row[at : at + 1] + row[at:] for row in rows]


@mutates(TABLE, keeps=True)
def reorder_columns(rng: Random, rows: Rows) -> Rows:
    order = rng.sample(range(len(rows[0])), len(rows[0]))
    return [[row[i] for i in order] if len(row) == len(order) else row for row in rows]


@mutates(TABLE)
def rename_column(rng: Random, rows: Rows) -> Rows:
    rows[0][rng.randrange(len(rows[0]))] = rng.choice((*NAMES, "Duration(us)", "Start Time(us)", "Name", ""))
    return rows


@mutates(TABLE)
def change_rows(rng: Random, rows: Rows) -> Rows:
    if len(rows) < 2:
        return rows
    row = rng.randrange(1, len(rows))
    before, there, after = rows[:row], rows[row], rows[row + 1 :]
    mixed = rows[:1] + rng.sample(rows[1:], len(rows) - 1)
    instead_ = [[], [there], [there, there], [there, []], [there[:3]], [there * 2]]
    return rng.choice(([*before, *rng.choice(instead_), *after], rows[:1], rows[1:], before + rows, mixed))


def nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a tree with a key in it."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from nodes(tree[key])


def some_nodes(rng: Random, tree: Any) -> list[tuple[Any, Any]]:
    """Return some, as likely of one sort as of another: events are many and alike."""
    sorts: dict[str, list[tuple[Any, Any]]] = {}
    for holder, key in nodes(tree):
        sorts.setdefault(key if isinstance(key, str) else "", []).append((holder, key))
    names = rng.choices(sorted(sorts), k=rng.choice((1, 1, 2, 8))) if sorts else ()
    found = [rng.choice(sorts[name]) for name in names]
    return found[:1] if rng.random() < 0.5 else found


@mutates(TREE, often=4)
def change_values(rng: Random, tree: Any) -> Any:
    for holder, key in some_nodes(rng, tree):
        if isinstance(holder, dict) or key < len(holder):
            holder[key] = rng.choice(TREES)
    return rng.choice(TREES) if rng.random() < 0.05 else tree


@mutates(TREE, often=2)
def change_texts(rng: Random, tree: Any) -> Any:
    texts = [(h, k) for h, k in nodes(tree) if isinstance(h[k], str)]
    for holder, key in rng.choices(texts, k=rng.choice((1, 3, 20))) if texts else ():
        holder[key] = rng.choice((*NAMES, *CELLS, *STEPS))
    return tree


@mutates(TREE)
def change_keys(rng: Random, tree: Any) -> Any:
    for holder, key in some_nodes(rng, tree):
        if isinstance(holder, dict) and key in holder:
            holder[rng.choice((*NAMES, *CELLS, "name", "ts", "step9999999999999999999"))] = holder.pop(key)
    return tree


@mutates(TREE)
def drop_values(rng: Random, tree: Any) -> Any:
    for holder, key in some_nodes(rng, tree):
        with suppress(KeyError, IndexError):
            del holder[key]
    return tree


@mutates(TREE)
def repeat_values(rng: Random, tree: Any) -> Any:
    for holder, key in some_nodes(rng, tree):
        if isinstance(holder, list) and key < len(holder):
            holder.insert(rng.randrange(len(holder) + 1), holder[key])
    return tree


def parse_table(data: bytes) -> Rows:
    return [*csv.reader(io.StringIO(data.decode("utf-8-sig", "replace"), newline=""))] or [[""]]


def table_bytes(rows: Rows) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def json_bytes(tree: Any) -> bytes:
    """Return a tree as JSON, raw values as they are, everything else with its bytes or escaped."""
    raws: list[str] = []

    def held(value: Any) -> Any:
        if isinstance(value, Raw):
            raws.append(str(value))
            return f"<raw {len(raws) - 1}>"
        if isinstance(value, dict):
            return {key: held(v) for key, v in value.items()}
        return [held(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(held(tree))
    for i, raw in enumerate(raws):
        text = text.replace(f'"<raw {i}>"', raw, 1)
    return text.encode()


Db = sqlite3.Connection


def tables(db: Db) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def columns(db: Db, table: str) -> list[str]:
    return [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]


def some_table(rng: Random, db: Db) -> str:
    """Return a table, the important ones more often."""
    found, important = tables(db), ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "CANN_API", "STRING_IDS")
    return rng.choice(found + [t for t in found if t in important] * 2)


def some_rows(rng: Random, db: Db, table: str) -> str:
    """Return a condition for some rows."""
    ids = [number for (number,) in db.execute(f'SELECT rowid FROM "{table}"')]
    chosen = rng.sample(ids, min(len(ids), rng.choice((1, 1, 3, len(ids)))))
    return f"WHERE rowid IN ({','.join(map(str, chosen))})"


def write_cell(db: Db, table: str, column: str, where: str, value: object) -> None:
    given = "CAST(? AS TEXT)" if value is INVALID_TEXT else "?"
    db.execute(f'UPDATE "{table}" SET "{column}" = {given} {where}', (value,))


@mutates(DATABASE, often=6)
def change_cell(rng: Random, db: Db) -> None:
    table = some_table(rng, db)
    for column in rng.choices(columns(db, table), k=rng.choice((1, 1, 2))):
        value = rng.choice((*VALUES, INVALID_TEXT))
        write_cell(db, table, column, some_rows(rng, db, table), value)


@mutates(DATABASE, keeps=True, often=2)
def change_strings(rng: Random, db: Db) -> None:
    if "STRING_IDS" in tables(db):
        for _ in range(rng.choice((1, 4))):
            query = "SELECT rowid FROM STRING_IDS WHERE value NOT LIKE 'KERNEL%' AND value LIKE ?"
            ids = [i for (i,) in db.execute(query, (rng.choice(("hcom%", "%", "%")),))]
            if ids:
                where = f"WHERE rowid = {rng.choice(ids)}"
                write_cell(db, "STRING_IDS", "value", where, rng.choice((*NAMES, *STEPS, INVALID_TEXT)))


@mutates(DATABASE, keeps=True, often=2)
def lose_table(rng: Random, db: Db) -> None:
    db.execute(f'DROP TABLE "{some_table(rng, db)}"')


@mutates(DATABASE, keeps=True, often=3)
def lose_column(rng: Random, db: Db) -> None:
    table = some_table(rng, db)
    if len(columns(db, table)) > 1:
        db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{rng.choice(columns(db, table))}"')


@mutates(DATABASE, keeps=True)
def rename(rng: Random, db: Db) -> None:
    table = some_table(rng, db)
    if rng.random() < 0.5:
        db.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_2"')
    else:
        db.execute(
            f'ALTER TABLE "{table}" RENAME COLUMN "{rng.choice(columns(db, table))}" TO "{rng.choice(("x", "name_2"))}"'
        )


@mutates(DATABASE, keeps=True)
def retype(rng: Random, db: Db) -> None:
    """As text, which some exporters write, or as bytes."""
    table = some_table(rng, db)
    kind = "TEXT" if table == "STRING_IDS" else rng.choice(("TEXT", "BLOB"))
    cells = ", ".join(f'CAST("{c}" AS {kind}) AS "{c}"' for c in columns(db, table))
    db.execute(f'CREATE TABLE retyped AS SELECT {cells} FROM "{table}"')
    db.executescript(f'DROP TABLE "{table}"; ALTER TABLE retyped RENAME TO "{table}"')


@mutates(DATABASE)
def change_number_of_rows(rng: Random, db: Db) -> None:
    table = some_table(rng, db)
    where = some_rows(rng, db, table)
    if rng.random() < 0.5:
        db.execute(f'DELETE FROM "{table}" {where}')
    else:
        db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" {where}')


@mutates(DATABASE)
def change_column(rng: Random, db: Db) -> None:
    table = some_table(rng, db)
    column = rng.choice(columns(db, table))
    same = f'"{column}"'
    plain = ("NULL", "-1", "0", "rowid", "9223372036854775807", "x'00'")
    made = (f"-{same}", f"{same} * 1000", f"{same} + 0.5", f"{same} + 1000000000000000000")
    text = rng.choice((*plain, *made, f"CAST({same} AS TEXT)", f"' ' || {same}"))
    db.execute(f'UPDATE "{table}" SET "{column}" = {text}')


@mutates(DATABASE)
def change_schema(rng: Random, db: Db) -> None:
    """A view instead of a table (one of them without an end), other indexes, another encoding of the header."""
    table = some_table(rng, db)
    cells = ", ".join(f'x AS "{c}"' for c in columns(db, table))
    endless = f"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {cells} FROM c"
    view = f'ALTER TABLE "{table}" RENAME TO "other"; CREATE VIEW "{table}" AS '
    db.executescript(rng.choice((f'{view} SELECT * FROM "other"', f"{view} SELECT * FROM nowhere", f"{view} {endless}",
                                 f'CREATE TABLE "{table} 2" AS SELECT * FROM "{table}"', "PRAGMA user_version = -1",
                                 "PRAGMA journal_mode = WAL", 'CREATE TABLE "a""b"(x)')))  # fmt: skip


@mutates(LINES, often=3)
def change_value_of_line(rng: Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    key, colon, _ = lines[at].partition(":")
    lines[at] = f"{key}{colon or ':'} {rng.choice((*YAML, *CELLS, *NAMES))}"
    return lines


@mutates(LINES)
def change_key_of_line(rng: Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    key, _, value = lines[at].partition(":")
    indent = key[: len(key) - len(key.lstrip())]
    lines[at] = f"{indent}{rng.choice((*YAML, *NAMES, 'profile', 'tune', 'rules'))}: {value}"
    return lines


@mutates(LINES)
def change_lines(rng: Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    other, more = [rng.choice(YAML)], [*lines, rng.choice(YAML)]
    return rng.choice((lines[:at] + lines[at + 1 :], lines[:at] + lines, other, more))


def files_below(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*") if not p.is_symlink())


def instead(path: Path) -> Path:
    """Make room for something else of this name."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return path


def beside(rng: Random, path: Path, name: str) -> Path:
    """Return a place of a new name, or of this path's own, which is then free."""
    if rng.random() < 0.5:
        return instead(path)
    new = path.with_name(name)
    return new if not os.path.lexists(new) else path.with_name(f"other_{rng.randrange(10**9)}")


@mutates(FOLDER)
def remove(rng: Random, path: Path) -> None:
    instead(path)


@mutates(FOLDER, often=2)
def copy(rng: Random, path: Path) -> None:
    target = path.with_name(rng.choice(ODD_NAMES) + rng.choice((path.name, path.suffix, "")))
    if not os.path.lexists(target):
        with suppress(OSError):
            if path.is_dir():
                shutil.copytree(path, target, symlinks=True)  # one may lead to the root of all folders
            else:
                shutil.copyfile(path, target)


@mutates(FOLDER)
def move(rng: Random, path: Path) -> None:
    target = path.with_name(rng.choice(ODD_NAMES) + rng.choice((path.name, path.suffix, "")))
    if not os.path.lexists(target):
        with suppress(OSError):
            path.rename(target)


@mutates(FOLDER, keeps=True)
def put_behind_a_link(rng: Random, path: Path) -> None:
    target = path.with_name(".elsewhere" if rng.random() < 0.5 else "elsewhere")
    if not os.path.lexists(target):
        path.rename(target)
        path.symlink_to(target)


@mutates(FOLDER)
def link_to_nothing(rng: Random, path: Path) -> None:
    name = path.name
    places = "nowhere", "/", ".", "..", name, "/dev/zero", "/dev/full", "/proc/self/mem", "x" * 255
    beside(rng, path, f"2_{name}").symlink_to(rng.choice(places))


@mutates(FOLDER)
def pipe(rng: Random, path: Path) -> None:
    name = rng.choice(("trace_view.json", "t.json", "t.json.gz", "analysis.db", "kernel_details.csv"))
    os.mkfifo(beside(rng, path, name))


@mutates(FOLDER)
def listen(rng: Random, path: Path) -> None:
    place = beside(rng, path, rng.choice(("msprof_1.db", "t.json.gz", "npuperf.json", "info.json.0")))
    with closing(socket.socket(socket.AF_UNIX)) as listener, suppress(OSError):  # names may be too long
        listener.bind(str(place))


@mutates(FOLDER)
def make_folder(rng: Random, path: Path) -> None:
    beside(rng, path, rng.choice(OTHERS)).mkdir()


@mutates(FOLDER)
def make_empty(rng: Random, path: Path) -> None:
    beside(rng, path, rng.choice(OTHERS)).touch()


@mutates(FOLDER)
def forbid(rng: Random, path: Path) -> None:
    path.chmod(0)


#: Names of files that others may have, and beginnings of names: of all bytes that names may have.
OTHERS = ("trace_view.json", "t.json", "analysis.db", "kernel_details.csv", "npuperf.json")
ODD_NAMES = (
    "x" * 200, "[red]", "\x1b[31m", "\n", "\u202e", os.fsdecode(b"\xff\xfe"), "=1+1", "`id`", "|", "a b", "-o", "%s",
    "{x}", "PROF_1_2_", "2_",
)  # fmt: skip

"""Databases with damage that is known: what is whole is used, what is not is counted and told, however rows are read.

A small database is built by hand; some of its cells, columns or tables are then damaged with SQLite itself. How many
rows are left, and what must be said, follows from what was done.
"""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from build import EPOCH, K
from inputs import database
from ways import DATABASE_WAYS, read_databases

from npuperf.base.errors import InputError
from npuperf.model.tasks import Work
from npuperf.readers import sqlite
from npuperf.readers.db import read_analysis_db
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.sqlite import open_database

KERNELS, COLLECTIVES, STEPS = 20, 4, 6
THREAD = (5 << 32) + 12
NAMES = 500  # ids of texts of torch operators begin here


def rows_of(count: int) -> list[K]:
    made = [
        K(i * 10_000, 5_000, f"k{i}", f"Type{i}", "AI_CORE", block=20, step=11, launch=i * 10_000 - 4_000)
        for i in range(count - COLLECTIVES)
    ]  # fmt: skip
    last = count * 10_000
    return made + [
        K(last + i * 10_000, 8_000, f"hcom_allReduce__123_{i}_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=11,
          launch=last + i * 10_000 - 3_000)
        for i in range(COLLECTIVES)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database in which every table that matters has rows, and every row is of use."""
    total = KERNELS + COLLECTIVES
    steps = [(11 + i, i * 50_000 - 9_000, i * 50_000 + 41_000) for i in range(STEPS)]
    path = database(tmp_path_factory.mktemp("sound") / "x.db", rows_of(total), "blockDim", steps=steps)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE PYTORCH_API(startNs TEXT, endNs TEXT, globalTid, connectionId, name, callchainId, type);"
            "CREATE TABLE CONNECTION_IDS(id, connectionId); CREATE TABLE TASK_PMU_INFO(globalTaskId, name, value);"
            "CREATE TABLE PYTORCH_CALLCHAINS(id, stack, stackDepth);"
            "CREATE TABLE COMMUNICATION_TASK_INFO(globalTaskId, opId, srcRank, dstRank, size, taskType, transportType,"
            " linkType); ALTER TABLE COMMUNICATION_OP ADD opId; ALTER TABLE COMMUNICATION_OP ADD groupName;"
            "CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE(id, name); CREATE TABLE ENUM_HCCL_LINK_TYPE(id, name);"
            "INSERT INTO ENUM_HCCL_TRANSPORT_TYPE VALUES (0, 'SDMA');"
            "INSERT INTO ENUM_HCCL_LINK_TYPE VALUES (1, 'HCCS');"
            "CREATE TABLE META_DATA(name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('ENV_VARIABLES', '{}');"
            "UPDATE COMMUNICATION_OP SET opId = rowid, groupName = 902;"
        )  # fmt: skip
        texts = [(NAMES + i, f"aten::op{i}") for i in range(KERNELS)]
        texts += [(900, "aic_mac_ratio"), (901, "train.py(7): step"), (902, "group"), (903, "Memcpy"), (904, "SDMA")]
        connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", texts)
        ops = [(str(EPOCH + at - 5_000), str(EPOCH + at - 2_000), THREAD, 300 + i, NAMES + i, 1, 50001)
               for i in range(KERNELS) for at in [i * 10_000]]  # fmt: skip
        connection.executemany("INSERT INTO PYTORCH_API VALUES (?,?,?,?,?,?,?)", ops)
        connection.executemany("INSERT INTO CONNECTION_IDS VALUES (?,?)", [(300 + i, i) for i in range(KERNELS)])
        connection.executemany("INSERT INTO TASK_PMU_INFO VALUES (?,900,?)", [(i, i / 32) for i in range(KERNELS)])
        connection.execute("INSERT INTO PYTORCH_CALLCHAINS VALUES (1, 901, 0)")
        for i in range(COLLECTIVES):  # copies within collectives
            at = EPOCH + (total + i) * 10_000
            connection.execute("INSERT INTO TASK VALUES (?,?,0,?,?,904,2)", (at, at + 4_000, KERNELS + i, 600 + i))
            connection.execute("INSERT INTO COMMUNICATION_TASK_INFO VALUES (?,?,0,1,4096,903,0,1)", (600 + i, i + 1))
        connection.commit()
    return path.read_bytes()


@dataclass
class Seen:
    """What came of a database: rows by what they are, and what was told."""

    kernels: list[tuple[Any, ...]]
    others: list[tuple[Any, ...]]
    events: list[tuple[Any, ...]]
    steps: list[tuple[int, ...]]
    operations: list[str | None]
    moved: int
    lost: list[tuple[int, str]]
    told: list[str]


def seen(path: Path) -> Seen:
    (reading,) = open_recording(path).map(lambda reading: reading)
    if reading.error:
        raise reading.error
    (profile,) = reading.profiles
    tasks, host, communication = profile.tasks, profile.host, profile.communication
    mac = tasks.pmu.get("aic_mac_ratio")
    kernels, others = [], []
    for i in range(len(tasks)):
        row = (int(tasks.start[i]), int(tasks.end[i]), int(tasks.stream[i]), int(tasks.block[i]), tasks.name[i],
               tasks.type[i], tasks.core[i], tasks.state[i], int(tasks.launch_start[i]),
               host.torch_op(int(tasks.op[i])), None if mac is None or mac[i] != mac[i] else float(mac[i]))  # fmt: skip
        (others if tasks.work[i] else kernels).append(row)
    events = host.events
    spans = zip(events.start.tolist(), events.end.tolist(), events.thread.tolist(), events.name.texts(), strict=True)
    steps = profile.host_steps
    return Seen(
        kernels, others, list(spans), list(zip(steps.number.tolist(), steps.start.tolist(), strict=True)),
        communication.operations.name.texts(), int(communication.bandwidth.bytes.sum()),
        [(x.rows, str(x.reason)) for x in reading.log.lost],
        [str(w).removeprefix(f"{path}: ") for w in (*reading.log.warnings, *reading.log.missing)
         if "info.json" not in str(w) and "kernel_details" not in str(w)],
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, sound: bytes) -> Path:
    made = tmp_path / "ascend_pytorch_profiler_4.db"
    made.write_bytes(sound)
    return made


def run(path: Path, *statements: str | tuple[str, tuple[object, ...]]) -> None:
    """Change a database, which stays the file that it is."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))
        connection.commit()


def either_way(path: Path) -> Seen:
    """Read in bulk and row by row: both must find, and tell, the same. Nothing of the user's changes."""
    before = {p.name: hashlib.sha256(p.read_bytes()).digest() for p in path.parent.iterdir() if p.is_file()}
    found = []
    for way in DATABASE_WAYS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("npuperf.readers.sqlite._BATCH", 7)
            read_databases(patch, way)
            found.append(seen(path))
    assert found[0] == found[1]
    assert {p.name: hashlib.sha256(p.read_bytes()).digest() for p in path.parent.iterdir() if p.is_file()} == before
    return found[0]


def test_the_sound_database_loses_and_tells_nothing(path: Path) -> None:
    whole = either_way(path)
    assert (len(whole.kernels), len(whole.others)) == (KERNELS, 2 * COLLECTIVES)
    assert len(whole.events) == 2 * KERNELS + COLLECTIVES and len(whole.operations) == COLLECTIVES
    assert whole.moved == COLLECTIVES * 4096 and whole.steps == [
        (11 + i, EPOCH + i * 50_000 - 9_000) for i in range(STEPS)
    ]
    assert [row[9] for row in whole.kernels] == [f"aten::op{i}" for i in range(KERNELS)]
    assert [row[10] for row in whole.kernels] == [i / 32 for i in range(KERNELS)]
    assert (whole.lost, whole.told) == ([], [])


#: What no integer is.
NONSENSE = ["abc", "", b"\xff\x00", 1e300, float("inf"), float("-inf"), -(1 << 63), -5, 0.5, "12x", "9" * 25, "0x10",
            b"7z", "-3"]  # fmt: skip
#: What no time is, too.
NO_TIMES = [*NONSENSE, None, (1 << 63) - 1, "9223372036854775807", 5 * 10**18, -1]


def damage(path: Path, table: str, column: str, values: list[Any], rows: list[int]) -> None:
    change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
    run(path, *((change, (value, row)) for value, row in zip(values, rows, strict=True)))


def dealt(source: random.Random, values: list[Any], size: int) -> Iterator[tuple[list[Any], list[int]]]:
    """Deal damage out to some of ``size`` rows at a time, until all of it was."""
    values = source.sample(values, len(values))
    while values:
        count = min(len(values), source.randint((size + 1) // 2, size))
        yield values[:count], sorted(source.sample(range(1, size + 1), count))
        del values[:count]


TIMES = [(table, column) for table in ("TASK", "COMMUNICATION_OP", "CANN_API", "PYTORCH_API", "STEP_TIME")
         for column in ("startNs", "endNs")]  # fmt: skip


@pytest.mark.parametrize(("table", "column"), TIMES)
def test_rows_without_a_usable_time_are_lost_and_counted(path: Path, sound: bytes, table: str, column: str) -> None:
    """As many as were damaged, and only those: the other rows stay what they are."""
    source = random.Random(f"{table}.{column}")
    whole = either_way(path)
    size = {"COMMUNICATION_OP": COLLECTIVES, "STEP_TIME": STEPS}.get(table, KERNELS)
    for values, rows in dealt(source, NO_TIMES, size):
        path.write_bytes(sound)
        damage(path, table, column, values, rows)
        found = either_way(path)
        assert found.lost == [(len(rows), f"table {table}: no usable start and end")], values
        assert found.told == []
        gone = {row - 1 for row in rows}
        if table == "TASK":
            assert found.kernels == [row for i, row in enumerate(whole.kernels) if i not in gone]
        elif table == "COMMUNICATION_OP":
            assert len(found.others) == len(whole.others) - len(rows)
            assert found.operations == [name for i, name in enumerate(whole.operations) if i not in gone]
        elif table == "STEP_TIME":
            assert found.steps == [step for i, step in enumerate(whole.steps) if i not in gone]
        else:
            assert len(found.events) == len(whole.events) - len(rows)
            index = 8 if table == "CANN_API" else 0
            same = [row[index] for i, row in enumerate(whole.kernels) if i not in gone]
            assert [row[index] for i, row in enumerate(found.kernels) if i not in gone] == same


#: Columns of ids and numbers; which column of a kernel shows them, if one does, and what it is then without them.
CELLS = [
    ("TASK", "streamId", 2, -1), ("TASK", "connectionId", 8, None), ("TASK", "deviceId", None, None),
    ("TASK", "taskType", None, None), ("COMPUTE_TASK_INFO", "name", 4, "KERNEL_AICORE"),
    ("COMPUTE_TASK_INFO", "opType", 5, None), ("COMPUTE_TASK_INFO", "taskType", 6, "AI_CORE"),
    ("COMPUTE_TASK_INFO", "opState", 7, None), ("COMPUTE_TASK_INFO", "blockDim", 3, -1),
    ("CANN_API", "globalTid", None, None), ("CANN_API", "connectionId", 8, None), ("CANN_API", "name", None, None),
    ("PYTORCH_API", "name", None, None), ("PYTORCH_API", "connectionId", None, None),
    ("PYTORCH_API", "callchainId", None, None), ("COMMUNICATION_OP", "opName", None, None),
    ("COMMUNICATION_TASK_INFO", "size", None, None), ("CONNECTION_IDS", "connectionId", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "shown", "without"), CELLS)
def test_one_cell_costs_one_cell(
    path: Path, sound: bytes, table: str, column: str, shown: int | None, without: object
) -> None:
    source = random.Random(f"{table}.{column}")
    whole = either_way(path)
    size = COLLECTIVES if table.startswith("COMMUNICATION") else KERNELS
    for values, rows in dealt(source, NONSENSE, size):
        path.write_bytes(sound)
        damage(path, table, column, values, rows)
        found = either_way(path)
        cells = "1 unreadable cell" if len(rows) == 1 else f"{len(rows)} unreadable cells"
        assert found.told == [f"table {table}, column {column}: {cells}"], values
        assert found.lost == []
        assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]
        assert len(found.events) == len(whole.events) and len(found.others) == len(whole.others)
        if table == "COMMUNICATION_TASK_INFO":
            assert found.moved == whole.moved - 4096 * len(rows)
        for i, (row, before) in enumerate(zip(found.kernels, whole.kernels, strict=True)):
            if shown is None or i + 1 not in rows:
                assert row[2:8] == before[2:8]
            elif without is not None:
                assert row[shown] == without


def test_numbers_of_another_type_are_the_numbers_they_are(path: Path, sound: bytes) -> None:
    whole = either_way(path)
    for expression in ("CAST({0} AS TEXT)", "CAST({0} AS BLOB)", "' ' || {0} || ' '"):
        path.write_bytes(sound)
        for table, column in [*TIMES, *((t, c) for t, c, *_ in CELLS)]:
            run(path, f"UPDATE {table} SET {column} = {expression.format(column)} WHERE rowid % 3 = 1")
        assert either_way(path) == whole
    path.write_bytes(sound)
    for table, column, *_ in CELLS:
        if column != "globalTid":  # larger than a float is exact
            run(path, f"UPDATE {table} SET {column} = CAST({column} AS REAL) WHERE rowid % 3 = 1")
    assert either_way(path) == whole


def test_damage_in_many_cells_of_many_tables_adds_up(path: Path, sound: bytes) -> None:
    for seed in range(12):
        source = random.Random(seed)
        path.write_bytes(sound)
        lost, told = {}, {}
        for table, column in source.sample([("TASK", "startNs"), ("CANN_API", "endNs"), ("PYTORCH_API", "startNs")], 2):
            rows = source.sample(range(1, KERNELS + 1), source.randint(1, 9))
            damage(path, table, column, [source.choice(NO_TIMES) for _ in rows], rows)
            lost[f"table {table}: no usable start and end"] = len(rows)
        kept = KERNELS - lost.get("table TASK: no usable start and end", 0)
        for table, column, *_ in source.sample([c for c in CELLS if c[0] == "COMPUTE_TASK_INFO"], 3):
            rows = source.sample(range(1, KERNELS + 1), source.randint(2, 9))
            damage(path, table, column, [source.choice(NONSENSE) for _ in rows], rows)
            told[f"table {table}, column {column}: {len(rows)} unreadable cells"] = 1
        found = either_way(path)
        assert {reason: rows for rows, reason in found.lost} == lost, seed
        assert set(found.told) == set(told), seed
        assert len(found.kernels) == kept


def test_operators_whose_task_is_unknown_leave_their_tasks_as_kernels(path: Path) -> None:
    """A task without its record is still a kernel: its time is not gone."""
    whole = either_way(path)
    damage(path, "COMPUTE_TASK_INFO", "globalTaskId", ["x", None, -7], [2, 3, 4])
    found = either_way(path)
    assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]
    assert [row[4] for row in found.kernels][:5] == ["k0", *["KERNEL_AICORE"] * 3, "k4"]
    assert found.lost == [(3, "table COMPUTE_TASK_INFO: it is not known which task these operators are of")]
    assert "3 kernels have no row in COMPUTE_TASK_INFO; their names and types are unknown" in found.told


def test_rows_that_are_gone_are_told_by_what_refers_to_them(path: Path, sound: bytes) -> None:
    whole = either_way(path)
    run(path, "DELETE FROM COMPUTE_TASK_INFO WHERE globalTaskId IN (3, 7)")
    found = either_way(path)
    assert found.told == ["2 kernels have no row in COMPUTE_TASK_INFO; their names and types are unknown"]
    assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]
    path.write_bytes(sound)
    run(path, "DELETE FROM TASK WHERE globalTaskId IN (3, 7)")
    found = either_way(path)
    assert found.lost == [
        (2, "table COMPUTE_TASK_INFO: operators whose task is not in TASK, so they have no times"),
        (2, "table TASK_PMU_INFO: counters of tasks that are not in TASK"),
    ]
    assert found.kernels == [row for i, row in enumerate(whole.kernels) if i not in (3, 7)]
    path.write_bytes(sound)
    run(path, "UPDATE TASK SET globalTaskId = NULL WHERE globalTaskId < 600")
    assert len(either_way(path).kernels) == KERNELS


def test_texts_that_are_none_or_not_utf_8(path: Path, sound: bytes) -> None:
    """Of the rows of STRING_IDS six hold the names of kernels 0, 1 and 2, and their types."""
    named = "id IN (SELECT name FROM COMPUTE_TASK_INFO WHERE globalTaskId < 3)"
    for value in ("NULL", "x'ff00'", "7.5", "12"):
        path.write_bytes(sound)
        run(path, f"UPDATE STRING_IDS SET value = {value} WHERE {named}")
        found = either_way(path)
        assert found.lost == [(3, "table STRING_IDS: no id, or no text")]
        assert found.told == ["3 texts that rows refer to are not in STRING_IDS; they are unknown"]
        assert [row[4] for row in found.kernels][:4] == [*["KERNEL_AICORE"] * 3, "k3"]
    path.write_bytes(sound)
    run(path, f"UPDATE STRING_IDS SET value = CAST(x'6bff' || value AS TEXT) WHERE {named}")
    found = either_way(path)
    assert found.told == ["some texts are not UTF-8; the bytes at fault are shown as \ufffd"] and found.lost == []
    assert [row[4] for row in found.kernels][:4] == ["k\ufffdk0", "k\ufffdk1", "k\ufffdk2", "k3"]
    path.write_bytes(sound)
    run(path, f"DELETE FROM STRING_IDS WHERE {named}")
    assert either_way(path).told == ["3 texts that rows refer to are not in STRING_IDS; they are unknown"]


def test_counters_without_a_value_a_name_or_a_task(path: Path, sound: bytes) -> None:
    whole = either_way(path)
    values = ["abc", b"\xff", float("inf"), float("-inf"), 1e300, None]
    damage(path, "TASK_PMU_INFO", "value", values, [2, 5, 9, 10, 11, 12])
    found = either_way(path)
    assert found.lost == [(5, "table TASK_PMU_INFO: counters without a readable value")] and found.told == []
    gone = {1, 4, 8, 9, 10, 11}
    assert [r[10] for r in found.kernels] == [None if i in gone else r[10] for i, r in enumerate(whole.kernels)]
    said = "table TASK_PMU_INFO: it is not known which counter, or which task, these are of"
    for column in ("name", "globalTaskId"):
        for values, rows in dealt(random.Random(column), [*NONSENSE, None], KERNELS):
            path.write_bytes(sound)
            damage(path, "TASK_PMU_INFO", column, values, rows)
            found = either_way(path)
            assert found.lost == [(len(rows), said)]
            gone = {row - 1 for row in rows}
            assert [r[10] for r in found.kernels] == [None if i in gone else r[10] for i, r in enumerate(whole.kernels)]
    path.write_bytes(sound)
    damage(path, "TASK_PMU_INFO", "globalTaskId", [10**6], [3])
    assert either_way(path).lost == [(1, "table TASK_PMU_INFO: counters of tasks that are not in TASK")]
    path.write_bytes(sound)
    damage(path, "TASK_PMU_INFO", "name", [10**6, 10**6], [3, 4])
    assert either_way(path).lost == [(2, said)]


def test_parts_of_operations_that_are_not_listed(path: Path, sound: bytes) -> None:
    for column in ("opId", "globalTaskId"):
        path.write_bytes(sound)
        damage(path, "COMMUNICATION_TASK_INFO", column, [10**6], [2])
        found = either_way(path)
        said = "table COMMUNICATION_TASK_INFO: parts of operations, or of tasks, that are not listed"
        assert found.lost == [(1, said)] and found.moved == 4096 * (COLLECTIVES - 1)


def test_a_time_fifty_years_before_all_others_is_set_aside(path: Path) -> None:
    damage(path, "TASK", "startNs", [1000], [4])
    found = either_way(path)
    assert found.lost == [(1, "table TASK: their times are more than a day away from those of the others")]
    assert len(found.kernels) == KERNELS - 1


#: A column, and what is said when it is not there.
COLUMNS = {
    ("TASK", "streamId"): "streams are unknown",
    ("TASK", "deviceId"): "the device is unknown",
    ("TASK", "connectionId"): "what launched its rows is unknown, as far as only this column tells",
    ("TASK", "taskType"): "kinds of tasks are unknown",
    ("CANN_API", "connectionId"): "what launched its rows is unknown, as far as only this column tells",
    ("CANN_API", "globalTid"): "threads are unknown",
    ("COMPUTE_TASK_INFO", "opType"): "what it tells is unknown",
    ("PYTORCH_API", "name"): "what it tells is unknown",
    ("STEP_TIME", "id"): "what it tells is unknown",
}


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_missing_column_costs_what_it_tells(path: Path, table: str, column: str) -> None:
    whole = either_way(path)
    run(path, f"ALTER TABLE {table} DROP COLUMN {column}")
    found = either_way(path)
    assert found.told == [f"table {table} has no column {column}: {COLUMNS[table, column]}"]
    assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]
    assert len(found.events) == len(whole.events) and found.lost == []


@pytest.mark.parametrize(
    ("table", "column"),
    [("CANN_API", "endNs"), ("TASK_PMU_INFO", "value"), ("META_DATA", "value"), ("ENUM_HCCL_LINK_TYPE", "name")],
)
def test_a_table_without_a_column_that_all_depends_on_is_told(path: Path, table: str, column: str) -> None:
    run(path, f"ALTER TABLE {table} DROP COLUMN {column}")
    found = either_way(path)
    assert found.told == [f"table {table} has no column {column}, so nothing of it can be used"]
    assert len(found.kernels) == KERNELS and len(found.events) == (
        KERNELS if table == "CANN_API" else 2 * KERNELS + COLLECTIVES
    )


def test_tables_that_are_missing_are_told(path: Path, sound: bytes) -> None:
    whole = either_way(path)
    said = {
        "COMPUTE_TASK_INFO": f"{path} has no table COMPUTE_TASK_INFO: "
        "names, types, shapes and Block Dim of operators are unknown",
        "CANN_API": f"{path} has no table CANN_API: launches are unknown",
        "STRING_IDS": "no table STRING_IDS, so all names are unknown",
        "COMMUNICATION_OP": "no table COMMUNICATION_OP, which COMMUNICATION_TASK_INFO refers to; "
        "what they tell is unknown",
        "PYTORCH_API": "no table PYTORCH_API, which CONNECTION_IDS refers to; what they tell is unknown",
    }  # fmt: skip
    for table, sentence in said.items():
        path.write_bytes(sound)
        run(path, f"DROP TABLE {table}")
        found = either_way(path)
        assert sentence in found.told, table
        if table != "STRING_IDS":  # whose texts tell kernels from other tasks
            assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]


def test_steps_of_the_exporter_without_usable_parts(tmp_path: Path) -> None:
    path = tmp_path / "analysis.db"
    with closing(sqlite3.connect(path)) as connection:
        columns = "step, deviceId, computing, communication_not_overlapped, free, bubble"
        connection.execute(f"CREATE TABLE StepTraceTime({columns})")
        rows = [
            ("3", 0, 10.5, 2.25, 1.0, 0), (4, 0, 9, "0.0", 0.5, "x"), ("5", 0, -7.0, 1, 1, 0), (6, 0, "abc", 1, 1, 0),
            (7, 0, 1e300, 1, 1, 0), (8, 0, float("inf"), 1, 1, 0), (9, 0, b"\xff", 1, 1, 0), (10, 0, 1, 1, -0.0004, 0),
        ]  # fmt: skip
        connection.executemany("INSERT INTO StepTraceTime VALUES (?,?,?,?,?,?)", rows)
        connection.commit()
    log = ReadLog()
    steps, _ = read_analysis_db(path, log)
    assert [(s.step, s.compute, s.comm_exposed, s.free, s.bubble) for s in steps] == [
        (3, 10_500, 2_250, 1_000, 0), (4, 9_000, 0, 500, None), (10, 1_000, 1_000, 0, 0)
    ]  # fmt: skip
    assert [(x.rows, str(x.reason)) for x in log.lost] == [(5, "table StepTraceTime: no usable times")]


def test_the_exporter_s_sums_with_cells_that_are_none(tmp_path: Path) -> None:
    """Of three operations one has no length, one no readable wait; of five packets three are of use."""
    path = tmp_path / "analysis.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE CommAnalyzerTime(hccl_op_name, group_name, step, type, start_timestamp, elapse_time,"
            " transit_time, wait_time, synchronization_time, idle_time)"
        )
        key = ("g", "step1", "collective")
        rows: list[tuple[object, ...]] = [
            ("a", *key, 1000.5, 2.5, 1, 0.5, 0, 0), ("b", *key, 2000, "x", 1, 0, 0, 0),
            ("c", *key, 3000, 1, 1, b"?", 0, None),
        ]  # fmt: skip
        connection.executemany("INSERT INTO CommAnalyzerTime VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
        connection.execute(
            "CREATE TABLE CommAnalyzerBandwidth(hccl_op_name, group_name, step, transport_type, transit_size,"
            " transit_time, package_size, count, total_duration)"
        )
        packets = [
            ("a", "HCCS", 2, 3),
            ("c", "HCCS", float("inf"), 3),
            ("nobody", "HCCS", 2, 3),
            ("c", "RDMA", 4, 3),
            ("c", None, 4, 3),
        ]
        rows = [(name, "g", "step1", link, 8, 1, size, count, 1) for name, link, size, count in packets]
        connection.executemany("INSERT INTO CommAnalyzerBandwidth VALUES (?,?,?,?,?,?,?,?,?)", rows)
        connection.commit()
    log = ReadLog()
    _, sums = read_analysis_db(path, log, communication=True)
    assert sums.operations.start.tolist() == [1_000_500, -1, 3_000_000]
    assert sums.operations.end.tolist() == [3_500_500, -1, 4_000_000]
    assert sums.bandwidth.bytes.tolist() == [6_000_000, 8_000_000, 12_000_000]
    assert sums.bandwidth.count.tolist() == [3, -1, 3]
    assert [(x.rows, str(x.reason)) for x in log.lost] == [
        (1, "operations without a usable start or length"),
        (1, "table CommAnalyzerBandwidth: of operations that are not listed"),
        (1, "table CommAnalyzerBandwidth: over a link that is not named"),
    ]
    assert [str(w).removeprefix(f"{path}: ") for w in log.warnings] == [
        "table CommAnalyzerTime, column wait_time: 1 unreadable cell",
        "table CommAnalyzerBandwidth, column package_size: 1 unreadable cell",
    ]


def test_a_view_that_never_ends_is_not_read(path: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS {} FROM c"
    run(path, "DROP TABLE CANN_API", f"CREATE VIEW CANN_API AS {endless.format('startNs')}",
        "DROP TABLE PYTORCH_CALLCHAINS", f"CREATE VIEW PYTORCH_CALLCHAINS AS {endless.format('id')}")  # fmt: skip
    found = either_way(path)
    said = {f"{table} is not a table; it was not read" for table in ("CANN_API", "PYTORCH_CALLCHAINS")}
    assert said <= {*found.told}
    assert len(found.kernels) == KERNELS


def test_statements_that_take_longer_than_the_file_explains_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_STEPS_ALWAYS", 1_000_000)
    log = ReadLog()
    query = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0"
    with open_database(path, log) as db:
        assert list(db.rows("T", query)) == []
        many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
        assert sum(map(len, db.rows("U", many))) <= path.stat().st_size + 100_000
    assert [str(w).split(": ", 1)[1] for w in log.warnings] == [
        "table T: reading stopped after 0 rows: the file is damaged: it leads to more rows than it has room for",
        next(w for w in (str(w).split(": ", 1)[1] for w in log.warnings) if w.startswith("table U: reading stopped")),
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="SQLite's limits cannot be set")
def test_a_text_of_many_megabytes_costs_its_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_LONGEST", 100_000)
    whole = either_way(path)
    run(path, "UPDATE STRING_IDS SET value = hex(zeroblob(60000)) WHERE rowid IN (3, 30)")
    found = either_way(path)
    assert found.lost == [(2, "table STRING_IDS: longer than any row of a profile")]
    assert [row[:2] for row in found.kernels] == [row[:2] for row in whole.kernels]
    assert found.told == ["2 texts that rows refer to are not in STRING_IDS; they are unknown"]


@pytest.fixture(params=["wal", "journal"])
def unfinished(request: pytest.FixtureRequest, path: Path) -> Iterator[tuple[Path, str]]:
    """A database whose writer was killed: after writing a row into its log, or in the midst of deleting all rows."""
    kind = str(request.param)
    script = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
    script += "c.execute('PRAGMA cache_size = 1');"
    if kind == "wal":
        script += "c.execute('PRAGMA journal_mode = WAL'); c.execute('PRAGMA wal_autocheckpoint = 0');"
        script += "c.execute('DELETE FROM TASK WHERE rowid = 5'); os._exit(0)"
    else:
        script += "c.execute('BEGIN'); c.execute('DELETE FROM TASK'); c.execute('UPDATE STRING_IDS SET value = 7');"
        script += "c.execute('PRAGMA cache_spill = 1'); c.execute('UPDATE CANN_API SET name = 7'); os._exit(0)"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    return path, kind


def test_what_a_killed_writer_left_is_taken_into_account(unfinished: tuple[Path, str]) -> None:
    path, kind = unfinished
    assert path.with_name(f"{path.name}-{kind}").stat().st_size > 0
    found = either_way(path)
    said = f"its writer did not close it; what {path.name}-{kind} beside it holds was taken into account, in a copy"
    assert found.told == [said]
    gone = {4} if kind == "wal" else set()
    assert [row[4] for row in found.kernels] == [f"k{i}" for i in range(KERNELS) if i not in gone]


def test_a_copy_that_cannot_be_made_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    path.write_bytes(path.read_bytes()[:30_000])
    with closing(Path("/dev/full").open("wb", buffering=0)) as full, monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: full)
        told = pytest.raises(InputError, match=r"a copy is needed to read it, and cannot be made: No space left")
        with told as caught, open_database(path, ReadLog()):
            pass
    assert "TMPDIR" in str(caught.value)


def test_what_does_not_belong_to_a_database_is_left_alone(path: Path) -> None:
    whole = either_way(path)
    path.with_name(f"{path.name}-wal").write_bytes(b"no log at all")
    path.with_name(f"{path.name}-journal").write_bytes(bytes(600))
    assert either_way(path) == whole


def test_a_locked_database_is_read(path: Path) -> None:
    whole = seen(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert seen(path) == whole


def test_pipes_and_files_without_permission_are_told(path: Path) -> None:
    pipe = path.with_name("ascend_pytorch_profiler_5.db")
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a pipe"), open_database(pipe, ReadLog()):
        pass
    folder = path.with_name("msprof_1.db")
    folder.mkdir()
    with pytest.raises(InputError, match="a folder"), open_database(folder, ReadLog()):
        pass


def test_errors_of_the_disk_are_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        """A connection whose disk fails in the middle of a table."""

        text_factory = str

        def __init__(self, real: sqlite3.Connection) -> None:
            self.real = real

        def execute(self, query: str, *more: Any) -> Any:
            if 'FROM "CANN_API"' not in query:
                return self.real.execute(query, *more)
            return self.failing(query)

        def failing(self, query: str) -> Iterator[Any]:
            yield from () if "LIMIT" in query else self.real.execute(f"{query} LIMIT 5")
            raise sqlite3.OperationalError("disk I/O error")

    log = ReadLog()
    read_databases(monkeypatch, "by row")
    with open_database(path, log) as db:
        monkeypatch.setattr(db.file, "connection", Disk(db.file.connection), raising=False)
        assert len(db.spans("CANN_API", {})["start"]) == 5
    assert [str(w) for w in log.warnings] == [f"{path}: table CANN_API: reading stopped after 5 rows: disk I/O error"]
    assert log.failed  # it may do better the next time


def test_rows_without_a_device_belong_to_the_only_one_or_to_none(path: Path) -> None:
    """Kernels 0 to 9 run on device 0, the others on device 1; of kernels 2 and 12 it is not known."""
    run(path, "UPDATE TASK SET deviceId = 1 WHERE globalTaskId BETWEEN 10 AND 19",
        "UPDATE TASK SET deviceId = 'x' WHERE globalTaskId IN (2, 12)")  # fmt: skip
    (reading,) = open_recording(path).map(lambda reading: reading)
    kernels = {p.device: len(p.tasks.only(Work.COMPUTE)) for p in reading.profiles}
    assert kernels == {0: 9, 1: 9}
    assert [(x.rows, str(x.reason)) for x in reading.log.lost] == [
        (2, "table TASK: no device is named, and there are several")
    ]
    run(path, "UPDATE TASK SET deviceId = 0 WHERE deviceId = 1")
    assert len(either_way(path).kernels) == KERNELS

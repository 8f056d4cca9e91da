"""Databases: the same run in their tables and in text files, and what only they hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, H, ascend_pt
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import KERNELS, database
from ways import DATABASE_WAYS, read_databases

from npuperf.base.errors import InputError
from npuperf.base.loading import library_of
from npuperf.model.device import DeviceProfile
from npuperf.readers import sqlite as sqlite_reader
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.sqlite import Database, NotInBulkError, OpenFile, open_database

STEPS = {11: (-10_000, 30_000), 12: (30_000, 90_000)}


def only(path: Path) -> DeviceProfile:
    (profile,) = open_recording(path).profiles
    return profile


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, "blockDim")


def add(path: Path, script: str, **rows: list[tuple[object, ...]]) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    for table, values in rows.items():
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(values[0]))})", values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("block", ["blockDim", "blockNum"])
def test_database_and_text_give_the_same_tasks(tmp_path: Path, block: str) -> None:
    text = only(ascend_pt(tmp_path, KERNELS, STEPS))
    ours = only(database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, block))
    assert (ours.rank, text.rank) == (4, 0)
    for column in ("start", "end", "work", "step", "launch_start", "launch_end", "launch_thread"):
        assert getattr(ours.tasks, column).tolist() == getattr(text.tasks, column).tolist(), column
    for column in ("name", "type", "core"):
        theirs = getattr(text.tasks, column)
        assert [getattr(ours.tasks, column)[i] for i in range(4)] == [theirs[i] for i in range(4)], column
    assert ours.tasks.block.tolist() == [20, 40, -1, 40]  # a collective has no blocks


def test_counters_become_columns_and_the_first_of_equal_rows_counts(db: Path) -> None:
    """Kernels 0, 1 and 3 are tasks; metric 90 is aic_mac_ratio, 91 is not a counter."""
    add(
        db,
        "CREATE TABLE TASK_PMU_INFO(globalTaskId, name, value);",
        STRING_IDS=[(90, "aic_mac_ratio"), (91, "whatever")],
        TASK_PMU_INFO=[(3, 90, 0.25), (0, 90, None), (0, 90, 0.5), (0, 90, 0.75), (0, 91, 1.0), (77, 90, 0.1)],
    )
    tasks = only(db).tasks
    assert list(tasks.pmu) == ["aic_mac_ratio"]
    np.testing.assert_array_equal(tasks.pmu["aic_mac_ratio"], np.array([0.5, np.nan, np.nan, 0.25], np.float32))


def test_torch_operators_lead_to_tasks_and_code_lines(db: Path) -> None:
    """Two operators on thread 12, recorded out of order, with times as text; connection 1 is kernel b's."""
    thread = (5 << 32) + 12
    add(
        db,
        "CREATE TABLE PYTORCH_API(startNs, endNs, globalTid, connectionId, name, callchainId, type);"
        "CREATE TABLE PYTORCH_CALLCHAINS(id, stack, stackDepth); CREATE TABLE CONNECTION_IDS(id, connectionId);"
        "CREATE TABLE MSTX_EVENTS(startNs, endNs, globalTid, message);",
        STRING_IDS=[
            (90, "aten::add"), (91, "aten::mm"), (92, "train.py(7): step"), (93, "torch/nn/x.py(1): f"), (94, "frame"),
            (95, "my mark"),
        ],
        PYTORCH_API=[
            (str(EPOCH + 9_000), str(EPOCH + 13_000), thread, 5, 90, 1, 50001),
            (str(EPOCH - 9_500), str(EPOCH - 7_000), thread, 6, 91, None, None),
            (str(EPOCH), str(EPOCH + 90_000), thread, None, 94, None, 50003),
        ],
        PYTORCH_CALLCHAINS=[(1, 92, 1), (1, 93, 0)],
        CONNECTION_IDS=[(5, 1), (6, 0)],
        MSTX_EVENTS=[(EPOCH, EPOCH + 5, thread, 95)],
    )  # fmt: skip
    profile = only(db)
    assert [profile.host.torch_op(op) for op in profile.tasks.op.tolist()] == ["aten::mm", "aten::add", None, None]
    assert profile.host.code_line(int(profile.tasks.op[1])) == "train.py:7 step"
    events = profile.host.events
    assert {events.name[i] for i in range(len(events))} == {"Node@launch", "aten::add", "aten::mm", "my mark"}
    keys = list(zip(events.thread.tolist(), events.start.tolist(), strict=True))
    assert keys == sorted(keys) and events.end[keys.index((12, EPOCH))] == EPOCH + 5


def test_host_calls_keep_their_layer(tmp_path: Path) -> None:
    host = [H("AscendCL@Add_Tiling", 1_000, 500), H("Runtime@KernelLaunch", 2_000, 100)]
    profile = only(database(tmp_path / "msprof_1.db", KERNELS, "blockNum", host))
    names = {profile.host.events.name[i] for i in range(len(profile.host.events))}
    assert names == {"AscendCL@Add_Tiling", "Runtime@KernelLaunch", "Node@launch"}


def test_files_that_are_no_database_or_hold_no_tasks(tmp_path: Path) -> None:
    path = tmp_path / "msprof_1.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="not a readable SQLite database"):
        only(path)
    path.unlink()
    add(path, "CREATE TABLE SOMETHING(x)")
    with pytest.raises(InputError, match="no table TASK"):
        only(path)
    add(path, "CREATE TABLE TASK(startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId)")
    with pytest.raises(InputError, match="no device task could be read"):
        only(path)


def test_the_exporter_s_split_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "analysis.db"
    add(
        path,
        "CREATE TABLE StepTraceTime(step, computing, communication_not_overlapped, free)",
        StepTraceTime=[("3", 10.5, 2.25, 1.0), ("4", 9.0, 0.0, 0.5)],
    )
    steps = only(path).vendor_steps
    assert [(s.step, s.compute, s.comm_exposed, s.free, s.span) for s in steps] == [
        (3, 10_500, 2_250, 1_000, 13_750), (4, 9_000, 0, 500, 9_500)
    ]  # fmt: skip


#: What a cell of a column without a type may hold.
CELLS = st.one_of(
    st.integers(0, 4), st.integers(-(1 << 63), (1 << 63) - 1), st.none(), st.floats(allow_nan=False, width=32),
    st.sampled_from(["3", " 4", "0x5", "x", "", "99999999999999999999", b"", b"7", b"\xff\x00", 0.5, 2.0]),
)  # fmt: skip


def by_cells(rows: list[tuple[object, ...]], columns: int) -> tuple[list[list[int]], list[int]]:
    """Integers as they stand there, -1 for what is none or below that; and of each column how many are not usable."""

    def told(cell: object) -> int | None:
        if cell is None:
            return -1
        if isinstance(cell, float):
            cell = int(cell) if cell.is_integer() else "a fraction"
        try:
            number = int(cell)  # type: ignore[call-overload]
        except ValueError:
            return None
        return number if -1 <= number < 1 << 63 else None

    found = [[told(row[i]) for row in rows] for i in range(columns)]
    return [[-1 if n is None else n for n in column] for column in found], [column.count(None) for column in found]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), CELLS), max_size=12),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4),
)
def test_columns_in_bulk_and_by_row_hold_what_the_cells_do(
    tmp_path_factory: pytest.TempPathFactory, odd: list[tuple[object, ...]], plain: list[tuple[object, ...]]
) -> None:
    """Three rows at a time, so that what does not fit comes before and after the bulk reader knows the types."""
    path, rows = tmp_path_factory.mktemp("cells") / "x.db", plain + odd
    add(path, "CREATE TABLE T(a, b); CREATE TABLE STRING_IDS(id, value);", **({"T": rows} if rows else {}))
    expected, unusable = by_cells(rows, 2)
    for way in DATABASE_WAYS:
        log = ReadLog()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("npuperf.readers.sqlite._BATCH", 3)
            read_databases(patch, way)
            with open_database(path, log) as db:
                assert [column.tolist() for column in db.columns("T", {"a": "a", "b": "b"}).values()] == expected
        assert [w.n for w in log.warnings] == [n for n in unusable if n]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(88, 91), CELLS), min_size=1, max_size=20), st.integers(1, 5))
def test_counters_in_bulk_and_by_row_are_the_first_number_of_each_task(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]], batch: int
) -> None:
    """Kernels 0, 1 and 3 are tasks; metrics 89 and 90 are counters."""
    path = database(tmp_path_factory.mktemp("counters") / "ascend_pytorch_profiler_4.db", KERNELS, "blockDim")
    names = {89: "aic_mac_ratio", 90: "aiv_vec_ratio"}
    add(path, "CREATE TABLE TASK_PMU_INFO(globalTaskId, name, value);",
        STRING_IDS=list(names.items()), TASK_PMU_INFO=rows)  # fmt: skip
    expected: dict[str, list[float]] = {}
    for task, metric, value in rows:
        if metric in names:
            column = expected.setdefault(names[metric], [np.nan] * 4)
            with suppress(TypeError, ValueError):
                number = float(value)  # type: ignore[arg-type]
                if np.isnan(column[task]) and np.isfinite(number) and task != 2:  # that is the collective
                    column[task] = number
    for way in DATABASE_WAYS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("npuperf.readers.sqlite._BATCH", batch)
            read_databases(patch, way)
            pmu = only(path).tasks.pmu
        assert pmu.keys() == expected.keys()
        for name, column in expected.items():
            np.testing.assert_array_equal(pmu[name], np.array(column, np.float32))


def test_without_the_compiled_reader_rows_are_read_one_by_one(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(db, ReadLog()) as opened:
        if library_of(Path(sqlite_reader.__file__).with_name("plain_rows.c")).exists():  # there was a compiler
            (counted,) = opened.file.connection.execute("SELECT count(*) FROM TASK").fetchone()
            assert [len(column) for column in opened.integers_in_bulk("TASK", ["globalTaskId"])] == [counted]
        read_databases(monkeypatch, "by row")
        with pytest.raises(NotInBulkError):
            opened.integers_in_bulk("TASK", ["globalTaskId"])
    assert len(only(db).tasks) == len(KERNELS)


@given(st.lists(st.integers(-1, 9) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=8))
def test_texts_of_ids_near_each_other_and_far_apart(ids: list[int]) -> None:
    texts = {number: f"text {number}" for number in ids if number % 2} | {3: "N/A"}
    with closing(sqlite3.connect(":memory:")) as connection:
        labels = Database(Path(), OpenFile(Path(), connection, 0), ReadLog(), texts).text(np.array(ids, np.int64))
    assert [labels[i] for i in range(len(ids))] == [texts[n] if n % 2 and n != 3 else None for n in ids]

"""Memory files that are cut, lack their twin or hold what cannot be, and the same tables of a database."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from build import EPOCH, analyze_path
from memory_plan import MIB, Block, Plan, write_memory

from npuperf.base.errors import InputError
from npuperf.model.memory_result import Memory
from npuperf.model.result import Result
from npuperf.show.memory_text import memory_lines

PLAN = Plan(
    1000 * MIB,
    (Block(10_000, 90_000, 300 * MIB, "a"), Block(20_000, 30_000, 50 * MIB, "b", 5_000), Block(40_000, None, 512, "c")),
    older=((35_000, 100 * MIB),),
)
OPERATORS, RECORDS, MODULES = "operator_memory.csv", "memory_record.csv", "npu_module_mem.csv"


def analyzed(path: Path) -> tuple[Result, Memory]:
    result = analyze_path(path, no_cache=True)
    found = result.devices[0].memory
    assert found is not None
    return result, found


def edit(path: Path, change: object) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\r\n".join(change(lines)) + "\r\n", newline="")  # type: ignore[operator]


@pytest.mark.parametrize("lacking", [RECORDS, MODULES])
def test_a_missing_twin_leaves_the_sum(tmp_path: Path, lacking: str) -> None:
    folder = write_memory(PLAN, tmp_path)
    (folder / lacking).unlink()
    _, found = analyzed(folder)
    assert (found.peak_bytes, found.before_bytes, found.alive_bytes) == (1350 * MIB, 1000 * MIB, 350 * MIB)
    assert found.split == "measured"
    assert (found.process_bytes is None) == (lacking == RECORDS)
    assert (not found.modules) == (lacking == MODULES)


def test_without_blocks_the_peak_is_told_alone(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    (folder / OPERATORS).unlink()
    _, found = analyzed(folder)
    assert (found.peak_bytes, found.split, found.alive) == (1350 * MIB, "cannot_tell", [])
    assert "operator_memory.csv" in str(found.reason)


def test_modules_alone_are_no_peak(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    for name in (OPERATORS, RECORDS):
        (folder / name).unlink()
    _, found = analyzed(folder)
    assert (found.peak_bytes, found.residual_bytes) == (None, None)
    assert {m.name: m.most_bytes for m in found.modules} == {"HCCL": 400 * MIB, "RUNTIME": 60 * MIB}


def test_one_file_is_analyzed_by_itself(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    result, found = analyzed(folder / OPERATORS)
    assert (found.peak_bytes, found.split) == (1350 * MIB, "measured")
    assert result.input.kind == "csv"


@pytest.mark.parametrize("cell", ["-512.0", "0.0", "", "huge", "1e300", "nan"])
def test_a_size_that_cannot_be_loses_the_row_and_says_so(tmp_path: Path, cell: str) -> None:
    folder = write_memory(PLAN, tmp_path)
    edit(folder / OPERATORS, lambda lines: [line.replace("307200.0", cell) for line in lines])
    result, found = analyzed(folder)
    assert sum(lost.rows for lost in result.input.lost) == 1
    assert (found.peak_bytes, found.split, found.lost_rows) == (1350 * MIB, "cannot_tell", 0)
    assert "1 row of operator_memory.csv" in str(found.reason)


def test_a_cut_file_keeps_what_is_whole(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    for name in (OPERATORS, RECORDS):
        text = (folder / name).read_bytes()
        (folder / name).write_bytes(text[: len(text) - 12])
    result, found = analyzed(folder)
    assert found.peak_bytes == 1350 * MIB
    assert result.input.warnings or result.input.lost


def test_rows_in_any_order_and_of_another_device(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    wanted = analyzed(folder)[1]
    chance = random.Random(3)
    other = [b.replace("NPU:0", "NPU:3") for b in (folder / OPERATORS).read_text().splitlines()[1:2]]

    def shuffled(lines: list[str]) -> list[str]:
        rows = lines[1:]
        chance.shuffle(rows)
        return [lines[0], *rows]

    for name in (OPERATORS, RECORDS):
        edit(folder / name, shuffled)
    edit(folder / OPERATORS, lambda lines: [*lines, *other])
    result = analyze_path(folder, no_cache=True)
    first, second = (device.memory for device in result.devices)
    assert first == wanted
    assert second is not None and second.peak_bytes == 1300 * MIB
    assert [device.device for device in result.devices] == [0, 3]


def test_modules_without_a_figure_and_the_graph_engines_blocks(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path)
    edit(folder / MODULES, lambda lines: [line.replace("60.0,", "-1,") for line in lines])
    row = "cann::Conv2D,64.0,{0}.000\t,{1}.000\t,,5.0,,0.25,74.75,,0.1875,74.75,,,NPU:0"
    engine = row.format(EPOCH // 1000 + 11, EPOCH // 1000 + 16)
    edit(folder / OPERATORS, lambda lines: [*lines, engine])
    edit(folder / RECORDS, lambda lines: [*lines, f"GE,{EPOCH // 1000 + 12}.000\t,0.25,74.75,,,NPU:0"])
    _, found = analyzed(folder)
    assert (found.peak_bytes, found.split, found.lost_rows) == (1350 * MIB, "measured", 0)
    assert [m.name for m in found.modules] == ["HCCL"]


def test_a_table_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / OPERATORS).write_text("Name,Count\na,1\n")
    with pytest.raises(InputError, match=r"operator_memory\.csv: row 1: no column 'Size'"):
        analyze_path(tmp_path, no_cache=True)


def test_msprof_counts_in_kilobytes(tmp_path: Path) -> None:
    t = EPOCH // 1000
    (tmp_path / "npu_mem_20250101000000.csv").write_text(
        f"Device_id,event,ddr(KB),hbm(KB),memory(KB),timestamp(us)\n0,app,0,2048,2048,{t}.0\n0,Device,0,9999,9999,{t}.0\n"
    )
    (tmp_path / "npu_module_mem_20250101000000.csv").write_text(
        f"Device_id,Component,Timestamp(us),Total Reserved(KB),Device\n0,HCCL,{t}.0,512.5,NPU:0\n0,APP,{t}.0,1,NPU:0\n"
    )
    (tmp_path / "operator_memory_20250101000000.csv").write_text(
        "Device_id,Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(KB),"
        "Allocation Total Reserved(KB),Release Total Allocated(KB),Release Total Reserved(KB),Device\n"
        f"0,Conv2D1,64,{t}.0,9.0,64,2048,0,2048,NPU:0\n"
    )
    _, found = analyzed(tmp_path)
    assert (found.peak_bytes, found.blocks_recorded) == (None, 0), "the graph engine's blocks are none of PyTorch's"
    assert found.process_bytes == 2048 * 1024
    assert [(m.name, m.bytes) for m in found.modules] == [("HCCL", 524_800)]


def test_a_database_tells_the_same_bytes(tmp_path: Path) -> None:
    folder = write_memory(PLAN, tmp_path / "text")
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    names = {"a": 1, "b": 2, "c": 3, "PTA": 4, "PTA+GE": 5, "app": 6}
    ends = {"a": 90_000, "b": 30_000}
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE STRING_IDS (id INTEGER, value TEXT)")
        db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(i, name) for name, i in names.items()])
        db.execute("CREATE TABLE ENUM_MODULE (id INTEGER, name TEXT)")
        db.executemany("INSERT INTO ENUM_MODULE VALUES (?, ?)", [(3, "HCCL"), (12, "RUNTIME"), (40, "APP")])
        db.execute("CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, "
                   "globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, "
                   "taskId INTEGER, modelId INTEGER)")  # fmt: skip
        db.execute("INSERT INTO TASK VALUES (?, ?, 0, 1, 1, 1, 1, 0, 2, 1, 0)", (EPOCH, EPOCH + 5_000))
        db.execute("CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, "
                   "activeReleaseTime INTEGER, duration INTEGER, activeDuration INTEGER, "
                   "allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER, allocationTotalActive INTEGER, "
                   "releaseTotalAllocated INTEGER, releaseTotalReserved INTEGER, releaseTotalActive INTEGER, "
                   "streamPtr INTEGER, deviceId INTEGER)")  # fmt: skip
        for block in PLAN.blocks:
            back = None if block.freed is None else EPOCH + ends[block.name] + (0 if block.waits else 2_000)
            active = None if block.freed is None else EPOCH + block.freed + block.waits
            db.execute("INSERT INTO OP_MEMORY VALUES (?, ?, ?, ?, ?, 0, 0, 1, 1, 1, 1, 1, 1, 2, 0)",
                       (names[block.name], block.size, EPOCH + block.start, back, active))  # fmt: skip
        db.execute("CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, totalAllocated INTEGER, "
                   "totalReserved INTEGER, totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER)")  # fmt: skip
        for time, allocated, active in PLAN.counters():
            for component in ("PTA", "PTA+GE"):
                row = (names[component], EPOCH + time, allocated, PLAN.reserved, active, 2, 0)
                db.execute("INSERT INTO MEMORY_RECORD VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.execute(
            "CREATE TABLE NPU_MEM (type INTEGER, ddr NUMERIC, hbm NUMERIC, timestampNs INTEGER, deviceId INTEGER)"
        )
        db.execute("CREATE TABLE NPU_MODULE_MEM (moduleId INTEGER, timestampNs INTEGER, totalReserved NUMERIC, "
                   "deviceId INTEGER)")  # fmt: skip
        process = PLAN.reserved + sum(PLAN.outside.values()) + PLAN.unnamed
        for at in PLAN.sampled:
            db.execute("INSERT INTO NPU_MEM VALUES (?, 0, ?, ?, 0)", (names["app"], process, EPOCH + at))
            for module, size in ((3, 400 * MIB), (12, 60 * MIB), (40, PLAN.reserved)):
                db.execute("INSERT INTO NPU_MODULE_MEM VALUES (?, ?, ?, 0)", (module, EPOCH + at, size))
    wanted, found = analyzed(folder)[1], analyzed(path)[1]
    same = [
        "peak",
        "before",
        "freed",
        "alive",
        "residual",
        "reserved",
        "cached",
        "waiting",
        "outside",
        "unnamed",
        "process",
    ]
    for what in (*(f"{name}_bytes" for name in same), "modules"):
        assert getattr(found, what) == getattr(wanted, what), what
    assert [(a.operator, a.bytes) for a in found.alive] == [(a.operator, a.bytes) for a in wanted.alive]


def test_what_graphs_plan_is_told_of_each(tmp_path: Path) -> None:
    """By hand: in graph 1 the places 4 and 5 have all three blocks; 4294967295 is the end of the graph."""
    rows = [
        "Device_id,Op Name,Model Name,Graph ID,Node Index Start,Node Index End,Size(KB)",
        "0,Conv_1,0,1,0,5,1024",
        "0,MatMul_2,0,1,4,4294967295,512.5",
        "0,Add_3,0,1,3,6,256",
        "0,Late_4,0,1,6,7,600",  # from 6 on: Add_3, which ends there, MatMul_2 and itself
        "0,Cast_1,branch/while,2,0,0,100",
        "0,,branch/while,2,1,1,101",
        "0,Odd_9,0,1,9,8,1",
    ]
    (tmp_path / "static_op_mem_20260101000000.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "op_summary_20260101000000.csv").write_text(
        "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n0,a,Add,AI_CORE,1000000.0,5.0\n"
    )
    result = analyze_path(tmp_path, no_cache=True)
    memory = result.devices[0].memory
    assert memory is not None and memory.peak_bytes is None
    first, second = memory.graphs
    assert (first.model, first.graph, first.blocks, first.node) == (None, 1, 4, 4)
    assert first.peak_bytes == int((1024 + 512.5 + 256) * 1024)
    told = [(one.operator, one.bytes) for one in first.largest]
    assert told == [("Conv_1", 1024 * 1024), ("MatMul_2", int(512.5 * 1024)), ("Add_3", 256 * 1024)]
    assert (second.model, second.graph, second.peak_bytes, second.node) == ("branch/while", 2, 101 * 1024, 1)
    assert [one.operator for one in second.largest] == [None]
    assert [(lost.rows, lost.file.endswith(".csv")) for lost in result.input.lost] == [(1, True)]
    assert any("2 graphs plan memory" in str(one.content) for one in memory_lines(result))

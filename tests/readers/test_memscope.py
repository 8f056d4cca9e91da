"""Dumps of msmemscope, written from plans of which every byte is known, as text and as database.

Columns and attributes are those of Ascend/msmemscope: csrc/analysis/data_handler.cpp (WriteDumpRecord, and FixJson for
a database), csrc/analysis/dump.cpp (DumpMemoryEvent: a block's rows are written when it ends).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from build import EPOCH, analyze_path
from memory_plan import MIB, Block, Plan

from npuperf.base.errors import InputError
from npuperf.model.result import Finding, WhatIf
from npuperf.model.tasks import NO_TIME
from npuperf.readers.log import ReadLog
from npuperf.readers.memscope import read_memscope

COLUMNS = ["ID", "Event", "Event Type", "Name", "Timestamp(ns)", "Process Id", "Thread Id", "Device Id", "Ptr", "Attr",
           "Call Stack(Python)", "Call Stack(C)"]  # fmt: skip
POOL = 4096 * MIB
Row = list[object]


def rows_of(plan: Plan, uses: Sequence[tuple[str, int, int]] = (("aten::add", 10_001, 0),)) -> list[Row]:
    """What msmemscope writes: the rows of each block together, when it ends; what never ends comes last.

    ``uses``: by which operator, when, of which of the plan's blocks.
    """
    moves = sorted(
        [(b.start, 1, at, b.size) for at, b in enumerate(plan.blocks)]
        + [(b.freed, 0, at, b.size) for at, b in enumerate(plan.blocks) if b.freed is not None]
    )
    used, after = plan.before, dict[tuple[int, int], int]()
    for _, begins, at, size in moves:
        used += size if begins else -size
        after[begins, at] = used
    found: list[Row] = []

    def add(event: str, kind: str, time: int, address: int, attributes: str, stack: str = "") -> None:
        found.append(
            [len(found), event, kind, "N/A", EPOCH + time, 7, 8, "0", f"0x{address:016x}", attributes, stack, ""]
        )

    add("SYSTEM", "START_TRACE", 0, 0, f"free:{POOL},total:{65536 * MIB}")
    for at in sorted(range(len(plan.blocks)), key=lambda at: plan.blocks[at].freed or 1 << 60):
        block = plan.blocks[at]
        told = f"allocation_id:{at + 100},addr:0x{at % 2 + 1:016x},size:{block.size},total:{POOL},used:"
        stack = '"/usr/lib/python3/site-packages/torch/nn.py(5): call;/home/u/train.py(41): forward"'
        add("MALLOC", "PTA", block.start, at % 2 + 1, f"{told}{after[1, at]},owner:PTA@ops@aten", stack)
        if block.freed is not None:
            add("FREE", "PTA", block.freed, at % 2 + 1, f"{told}{after[0, at]}")
    add("MALLOC", "HAL", 1, 900, f"allocation_id:900,addr:0x9,size:{POOL},page_type:huge,alloc_type:alloc")
    add("MALLOC", "HAL", 2, 901, f"allocation_id:901,addr:0x8,size:{300 * MIB},page_type:huge,alloc_type:alloc")
    add("FREE", "HAL", 5, 901, f"allocation_id:901,addr:0x8,size:{300 * MIB}")
    add("MALLOC", "PTA_WORKSPACE", 6, 902, f"allocation_id:902,addr:0x7,size:{8 * MIB},total:{8 * MIB},used:{8 * MIB}")
    add("MALLOC", "HOST_PINNED", 7, 903, "allocation_id:903,addr:0x6,size:512,pinned:true,used:512")
    found[-1][7] = "cpu"
    for name, time, block in uses:
        told = f"dtype:1,shape:(4,),size:512,format:2,type:PTA,allocation_id:{block + 100}"
        add("ACCESS", "READ", time, block % 2 + 1, told)
        found[-1][3] = name
    return found


def as_text(rows: list[Row], path: Path) -> Path:
    lines = [",".join(COLUMNS)]
    for row in rows:
        lines.append(",".join([*map(str, row[:9]), f'"{{{row[9]}}}"', *map(str, row[10:])]))
    path.write_text("\n".join(lines) + "\n")
    return path


def as_database(rows: list[Row], path: Path) -> Path:
    with sqlite3.connect(path) as db:
        numbers = ("ID", "Timestamp(ns)", "Process Id", "Thread Id")
        columns = ", ".join(f'"{name}" {"INTEGER" if name in numbers else "TEXT"}' for name in COLUMNS)
        db.execute(f"CREATE TABLE memscope_dump ({columns})")
        for row in rows:
            told = ",".join(f'"{k}":"{v}"' for k, _, v in (part.partition(":") for part in str(row[9]).split(",")))
            db.execute(f"INSERT INTO memscope_dump VALUES ({','.join('?' * 12)})", [*row[:9], f"{{{told}}}", *row[10:]])
    db.close()
    return path


PLAN = Plan(
    1000 * MIB,
    (
        Block(10_000, 90_000, 300 * MIB),
        Block(20_000, 30_000, 512),
        Block(40_000, None, 4 * MIB),
        Block(50_000, 60_000, MIB),
    ),
)


@pytest.mark.parametrize("ending", ["csv", "db"])
def test_blocks_counters_and_what_the_process_takes(tmp_path: Path, ending: str) -> None:
    write = as_text if ending == "csv" else as_database
    log = ReadLog()
    (memory,) = read_memscope(write(rows_of(PLAN), tmp_path / f"memscope_dump_2025.{ending}"), log).values()
    assert not log.lost
    blocks = memory.blocks
    assert (blocks.start - EPOCH).tolist() == [10_000, 20_000, 40_000, 50_000]
    assert [t if t == NO_TIME else t - EPOCH for t in blocks.freed.tolist()] == [90_000, 30_000, NO_TIME, 60_000]
    assert blocks.size.tolist() == [300 * MIB, 512, 4 * MIB, MIB]
    assert blocks.where.texts() == ["u/train.py:41 forward"] * 4
    expected = [1300 * MIB, 1300 * MIB + 512, 1300 * MIB, 1304 * MIB, 1305 * MIB, 1304 * MIB, 1004 * MIB]
    assert memory.counters.allocated.tolist() == expected
    assert set(memory.counters.reserved.tolist()) == {POOL} and set(memory.counters.active.tolist()) == {-1}
    assert memory.process.size.tolist() == [POOL, POOL + 300 * MIB, POOL]
    assert (memory.other.name.texts(), memory.other.size.tolist()) == (["workspace"], [8 * MIB])
    assert memory.hbm == 65536 * MIB


@pytest.mark.parametrize("ending", ["csv", "db"])
def test_a_dump_is_analyzed_and_adds_up(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "msmemscope_7_2025_ascend" / "device_0" / "dump"
    folder.mkdir(parents=True)
    write = as_text if ending == "csv" else as_database
    write(rows_of(PLAN), folder / f"memscope_dump_20250428113810.{ending}")
    result = analyze_path(tmp_path, no_cache=True)
    memory = result.devices[0].memory
    assert memory is not None and (memory.source, result.input.kind) == ("memscope", "memscope")
    assert (memory.peak_bytes, memory.before_bytes, memory.alive_bytes) == (1305 * MIB, 1000 * MIB, 305 * MIB)
    assert (memory.residual_bytes, memory.split) == (0, "measured")


#: Times, and blocks of PLAN: two lie at one address, the third outlives the recording.
USES = [("aten::mm", 11_000, 0), ("aten::add", 20_500, 1), ("aten::mul", 25_000, 1), ("aten::relu", 41_000, 2),
        ("aten::sum", 30_500, 1), ("aten::exp", 55_000, 3), ("aten::late", 95_000, 0)]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "db"])
def test_accesses_are_those_of_the_block_that_lives(tmp_path: Path, ending: str) -> None:
    write = as_text if ending == "csv" else as_database
    path = write(rows_of(PLAN, USES), tmp_path / f"memscope_dump_1.{ending}")
    (memory,) = read_memscope(path, ReadLog()).values()
    accesses = memory.accesses
    told = [*zip(accesses.name.texts(), (accesses.time - EPOCH).tolist(), accesses.block.tolist(), strict=True)]
    # what comes after a block was given back is none of its accesses
    assert told == sorted((use for use in USES if use[0] not in ("aten::sum", "aten::late")), key=lambda use: use[1])


def test_accesses_without_ids_are_told_by_address(tmp_path: Path) -> None:
    rows = rows_of(PLAN, USES)
    for row in rows:
        row[9] = re.sub(r"allocation_id:\d+,?", "", str(row[9])).rstrip(",")
    (memory,) = read_memscope(as_text(rows, tmp_path / "memscope_dump_1.csv"), ReadLog()).values()
    # of address 1 the first block ends unseen when the third begins there; of address 2 the second is given back first
    assert memory.accesses.block.tolist() == [0, 1, 1, 2, 3]


def idle(tmp_path: Path, uses: Sequence[tuple[str, int, int]]) -> tuple[Finding, WhatIf]:
    as_text(rows_of(PLAN, uses), tmp_path / "memscope_dump_1.csv")
    result = analyze_path(tmp_path, no_cache=True, what_if=("free_at_last_use",))
    return next(f for f in result.findings if f.rule == "idle_blocks"), result.what_if[0]


def test_blocks_that_nothing_uses_any_more(tmp_path: Path) -> None:
    """At the peak of 1,305 MiB block 0 has 300, of which the last use is at 11 us, and blocks 2 and 3 are in use."""
    found, asked = idle(tmp_path, USES)
    assert found.status == "problem" and found.evidence["bytes"] == 300 * MIB and found.evidence["count"] == 1
    # without it from 11 us on the highest instant is its own beginning: 1,300 MiB
    assert found.gain_bytes == (0, 5 * MIB)
    # block 2 outlives the recording, but may be used after it; block 3 ends a little earlier
    assert (asked.recorded_bytes, asked.peak_bytes) == (1305 * MIB, 1300 * MIB)
    assert asked.gain_bytes == (5 * MIB, 5 * MIB)
    assert found.code == "u/train.py:41 forward"


def test_blocks_that_are_used_until_the_peak_are_none(tmp_path: Path) -> None:
    found, asked = idle(tmp_path, [*USES, ("aten::mm", 70_000, 0)])
    # without block 2, which may be used after the recording, the peak is that block's own beginning: 1,304 MiB
    assert found.status == "ok" and asked.gain_bytes == (0, MIB)


def test_of_a_block_that_outlives_the_recording_the_last_use_is_not_known(tmp_path: Path) -> None:
    found, asked = idle(tmp_path, [("aten::mm", 70_000, 0), ("aten::relu", 41_000, 2)])
    assert found.status == "ok" and asked.gain_bytes == (0, MIB)
    assert "2 blocks" in " ".join(map(str, asked.assumes))


def test_without_accesses_no_last_use_is_known(tmp_path: Path) -> None:
    found, asked = idle(tmp_path, [])
    assert found.status == "cannot_tell" and "msmemscope" in str(found.needs) and asked.gain_bytes is None


def test_damage_is_told(tmp_path: Path) -> None:
    rows = rows_of(PLAN)
    rows[1][9] = "allocation_id:100"
    log = ReadLog()
    (memory,) = read_memscope(as_text(rows, tmp_path / "memscope_dump_1.csv"), log).values()
    assert len(memory.blocks) == 3 and sum(lost.rows for lost in log.lost) == 1
    with pytest.raises(InputError, match=re.escape("no event of a device's memory")):
        read_memscope(as_text(rows[-1:], tmp_path / "memscope_dump_2.csv"), ReadLog())
    with sqlite3.connect(tmp_path / "memscope_dump_3.db") as db:
        db.execute("CREATE TABLE other (a)")
    db.close()
    with pytest.raises(InputError, match="without a table"):
        read_memscope(tmp_path / "memscope_dump_3.db", ReadLog())

"""Kernel tables beside timelines: rows that stand there twice, or are missing."""

from __future__ import annotations

from pathlib import Path

from build import K, ascend_pt, kernel_details

from npuperf.base.messages import say
from npuperf.model.tasks import Work
from npuperf.readers.recording import Reading, open_recording


def read(path: Path) -> Reading:
    (reading,) = open_recording(path).map(lambda reading: reading)
    return reading


def kernels(reading: Reading) -> int:
    return sum(len(p.tasks.only(Work.COMPUTE)) for p in reading.profiles)


def test_rows_that_stand_there_twice_count_once(tmp_path: Path) -> None:
    """A table that was put together from itself; two equal rows among many may be two kernels."""
    made = [K(i * 40_000, 6_000, f"op_{i}", step=11) for i in range(20)]
    twice = read(kernel_details(tmp_path / "twice" / "kernel_details.csv", [*made, *made]))
    once = read(kernel_details(tmp_path / "once" / "kernel_details.csv", made))
    ((left,), (right,)) = twice.profiles, once.profiles
    assert left.tasks.start.tolist() == right.tasks.start.tolist()
    assert [(x.rows, x.reason) for x in twice.log.lost] == [(20, say("listed twice in the table; counted once"))]
    few = read(kernel_details(tmp_path / "few" / "kernel_details.csv", [*made, made[3]]))
    assert kernels(few) == 21 and not few.log.lost
    # Equal kernels of which a spreadsheet program has rounded the starts, or with other blocks, are not the same.
    rounded = [K(i // 10 * 1_000_000, 20_000, "op", step=11) for i in range(40)]
    blocks = [K(i // 2 * 40_000, 6_000, "op", step=11, block=20 + i % 2) for i in range(40)]
    for name, rows in (("rounded", rounded), ("blocks", blocks)):
        found = read(kernel_details(tmp_path / name / "kernel_details.csv", rows))
        assert kernels(found) == 40, name


def test_rows_lost_from_a_table_are_taken_from_the_timeline(tmp_path: Path) -> None:
    made = [K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(6)]
    folder = ascend_pt(tmp_path, made)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = table.read_text().split("\n")
    table.write_text("\n".join([*lines[:3], "cut,short", *lines[4:]]))
    result = read(folder)
    assert kernels(result) == 6
    assert [x.rows for x in result.log.lost] == [1]
    assert any("taken from the timeline" in str(w) for w in result.log.warnings)

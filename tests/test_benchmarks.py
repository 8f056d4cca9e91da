"""The benchmarks compare what they say they compare, and the pages show what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_analyze
import measuring
from figures import FILE, Goal, compare, filled, kept, summary, tables
from measuring import Command, Usage, in_turn, measure
from readers import TRACES, read_table

PAGES = {"docs/performance.md": ("figures", tables), "README.md": ("speed", summary)}
HOARD = """import os
os.write(os.memfd_create('x'), bytes({stored} << 20)); kept = b'1' * ({own} << 20); print(1, flush=True); input()"""
#: Starts two of them, says when both have all, and lets them go when that was seen.
TWO_HOARDS = """import os, subprocess, sys, time
call = dict(args=[sys.executable, '-c', {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
both = [subprocess.Popen(**call), subprocess.Popen(**call)]
for one in both: one.stdout.readline()
open({full!r}, 'w').close()
while not os.path.exists({seen!r}): time.sleep(0.01)
for one in both: one.communicate(b'go')"""


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_what_was_measured(page: str) -> None:
    mark, render = PAGES[page]
    text = (ROOT / page).read_text("utf-8")
    assert filled(text, mark, render(json.loads(FILE.read_text("utf-8")))) == text, "bench_analyze.py --update-docs"


def test_every_part_is_in_the_help() -> None:
    assert bench_analyze.__doc__
    listed = bench_analyze.__doc__.split("named):\n")[1].split("\n\nData")[0].splitlines()
    assert [line.split()[0] for line in listed if line] == list(bench_analyze.PARTS)


def test_ratios_are_those_of_rounds() -> None:
    """Medians and ratios by hand: rounds of 2:1, 9:3 and 4:4, in CPU seconds."""
    own = [Usage(2, 10, 300), Usage(9, 10, 200), Usage(4, 10, 100)]
    other = [Usage(1, 5, 100), Usage(3, 5, 100), Usage(4, 5, 100)]
    row = compare("a", own, "b", other, 1_500_000, Goal("cpu", "≤", 1.5), Goal("megabytes", "≤", 200))
    assert (row.cpu.median, row.cpu.least, row.cpu.greatest) == (2, 1, 3)
    assert (row.own.cpu, row.own.peak, row.other.wall, row.rounds) == (4, 200, 5, 3)
    (line,) = [
        line for line in tables({"p": {"title": "T", "where": "W", "rows": kept([row])}}).splitlines() if "a |" in line
    ]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "a", "b", "1 500 000", "3", "4.00 : 3.00", "2.00× [1.00–3.00]", "10.0 : 5.00", "2.00× [2.00–2.00]",
        "200 : 100", "CPU ≤ 1.5×: **missed**; ≤ 200 MB",
    ]  # fmt: skip


def test_commands_take_turns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write = f"import sys; open({str(log)!r}, 'a').write(sys.argv[1])"
    commands = {name: Command([sys.executable, "-c", write, name]) for name in "abc"}
    taken = in_turn(commands, 3)
    assert log.read_text() == "abccbaabc"
    assert {name: len(used) for name, used in taken.items()} == dict.fromkeys("abc", 3)
    log.unlink()
    in_turn(commands, 2, ordered=True)
    assert log.read_text() == "abcabc"


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        measure(Command([sys.executable, "-c", "raise SystemExit('no such thing')"]))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_children_and_of_files_in_memory_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two children of 30 MB that keep 20 MB each in files without a name: 100 MB, and what Python itself takes."""
    full, seen, memory_of = tmp_path / "full", tmp_path / "seen", measuring._memory_of

    def watched(processes: Sequence[Path]) -> int:
        is_full = full.exists()
        found = memory_of(processes)
        if is_full:
            seen.touch()
        return found

    monkeypatch.setattr(measuring, "_memory_of", watched)
    both = TWO_HOARDS.format(child=HOARD.format(own=30, stored=20), full=str(full), seen=str(seen))
    alone = measure(Command([sys.executable, "-c", "import time; time.sleep(1)"])).peak
    assert 100 <= measure(Command([sys.executable, "-c", both])).peak <= 100 + 5 * alone


@pytest.mark.parametrize("reader", TRACES)
def test_frozen_readers_read_everything(reader: str, sample: Path) -> None:
    """In a process of its own: DuckDB's last words are of no interest to who runs tests."""
    output = sample / "ASCEND_PROFILER_OUTPUT"
    events = json.loads((output / "trace_view.json").read_text("utf-8"))
    rows = (output / "kernel_details.csv").read_bytes().splitlines()
    if find_spec(reader.split("_")[0]) is None:
        pytest.skip(f"{reader} is not installed")
    code = "import readers, sys, pathlib; print(readers.TRACES[sys.argv[1]](pathlib.Path(sys.argv[2])))"
    command = [sys.executable, "-c", code, reader, output / "trace_view.json"]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(events)
    assert read_table(output / "kernel_details.csv") == len(rows) - 1

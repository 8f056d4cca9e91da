"""Programs: compiled and in blocks of numpy, against a plain loop over the instructions."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.device import maxplus
from npuperf.device.maxplus import LONG_AGO, NEVER, Program, run

SOURCE = Path(maxplus.__file__).with_suffix(".c")
ARMS = ("pred", "host_ns", "waited", "waited_ns", "host", "launch_ns", "stream", "gap_ns", "other", "other_ns",
        "extra_ns", "dur_ns", "overlap_ns", "save")  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Rows: threads, streams, registers, a clock that stands at 0, trash. Some are syncs, some have no launch."""
    threads, streams, registers = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(0, 2))
    count = draw(st.integers(0, 120))
    often = draw(st.sampled_from([0.0, 0.03, 0.3]))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    devices = threads + streams + registers
    trash = devices + 1

    def chosen(share: float) -> np.ndarray:
        return random.random(count) < share

    def delays(on: np.ndarray) -> np.ndarray:
        return np.where(on, random.integers(0, 50, count), NEVER)

    sync = chosen(often)
    launched = sync | ~chosen(often)
    own = np.where(launched, random.integers(0, threads, count), trash)
    handed = launched & chosen(often)
    stream = np.where(sync, trash, threads + random.integers(0, streams, count))
    awaiting = ~sync & (chosen(often) | ~launched)
    saving = ~sync & chosen(often) if registers else np.zeros(count, np.bool_)
    initial = np.full(trash + 1, LONG_AGO)
    initial[:threads] = random.integers(0, 20) + draw(st.sampled_from([0, 1 << 40]))
    initial[devices] = 0
    return Program(
        pred=np.where(handed, random.integers(0, threads, count), own),
        host_ns=random.integers(0, 50, count),
        waited=np.where(sync, threads + random.integers(0, streams, count), trash),
        waited_ns=delays(sync & chosen(0.8)),
        host=own,
        launch_ns=np.where(launched & ~sync, random.integers(0, 20, count), NEVER),
        stream=stream,
        gap_ns=delays(~sync & chosen(0.95)),
        other=np.where(launched, threads + random.integers(0, streams + registers, count), devices),
        other_ns=delays(awaiting),
        extra_ns=np.where(chosen(0.1), 30, 0),
        dur_ns=np.where(sync, 0, random.integers(0, 60, count)),
        overlap_ns=np.where(~sync & chosen(often), 0, NEVER),
        save=np.where(saving, threads + streams + random.integers(0, max(registers, 1), count), trash),
        initial=initial,
    )


def plain(program: Program) -> list[tuple[int, int, int]]:
    """Execute the instructions one by one."""

    def after(time: int, delay: int) -> int:
        return 2 * LONG_AGO if delay == NEVER else time + delay

    clock = program.initial.tolist()
    done = []
    for i in range(len(program)):
        op = {name: int(getattr(program, name)[i]) for name in ARMS}
        host = max(clock[op["pred"]] + op["host_ns"], after(clock[op["waited"]], op["waited_ns"]))
        clock[op["host"]] = host
        free = clock[op["stream"]]
        arms = (host, op["launch_ns"]), (free, op["gap_ns"]), (clock[op["other"]], op["other_ns"])
        start = max(after(*arm) for arm in arms) + op["extra_ns"]
        end = max(start + op["dur_ns"], after(free, op["overlap_ns"]))
        clock[op["stream"]] = clock[op["save"]] = end
        done.append((host, start, end))
    return done


def on_streams(program: Program, start: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
    """Start and end of the instructions that occupy a stream: those of others mean nothing."""
    occupies = program.stream != program.trash
    return list(zip(start[occupies].tolist(), end[occupies].tolist(), strict=True))


def expected(program: Program) -> list[tuple[int, int]]:
    done = np.array(plain(program), np.int64).reshape(-1, 3)
    return on_streams(program, done[:, 1], done[:, 2])


def found(program: Program) -> list[tuple[int, int]]:
    times = run(program)
    return on_streams(program, times.start, times.end)


@pytest.fixture(params=["compiled", "numpy"], scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways of running a program; the first where there was a compiler."""
    if request.param == "compiled" and not maxplus.compiled_source():
        pytest.skip("needs the compiled library")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(maxplus, "_library", lambda: None)
        yield request.param


def test_the_library_is_made_of_this_source() -> None:
    again = "run pip install -e . again"
    assert maxplus.compiled_source() == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), again


def test_a_library_with_another_idea_of_the_columns_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not maxplus.compiled_source() or maxplus._library.__wrapped__() is not None
    monkeypatch.setattr(maxplus, "_COLUMNS", maxplus._COLUMNS[:-1])
    assert maxplus._library.__wrapped__() is None


def test_no_byte_outside_is_touched(tmp_path: Path) -> None:
    """Nor is any behaviour undefined, as it would be for sums that overflow."""
    compiler, driver = shlex.split(os.environ.get("CC", "cc")), Path(__file__).with_name("maxplus_driver.c")
    sanitized = ("-std=c11", "-O1", "-g", "-Wall", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    command = (*compiler, *sanitized, f"-I{SOURCE.parent}", str(driver), "-o", str(tmp_path / "driver"))
    if shutil.which(compiler[0]) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a C compiler with sanitizers")
    ran = subprocess.run([str(tmp_path / "driver")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:3000]
    assert ran.stdout.startswith("3000 programs")


@settings(max_examples=100)
@given(programs(), st.sampled_from([1, 7, 50, 1 << 18]))
def test_running_equals_a_plain_loop(way: str, program: Program, portion: int) -> None:
    before = program.initial.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxplus, "_PORTION", portion)
        assert found(program) == expected(program)
    assert (program.initial == before).all()


@given(programs(), st.sampled_from([np.int16, np.int32]), st.integers(1, 3))
def test_columns_may_be_narrow_and_anywhere_in_memory(way: str, program: Program, kind: type, step: int) -> None:
    """Rows in 2 or 4 bytes, delays that are all alike as one number, and every second or third of a longer column."""
    columns: dict[str, np.ndarray] = {}
    for name in ("pred", "waited", "host", "stream", "other", "save"):
        spread = np.zeros(len(program) * step, kind)
        spread[::step] = getattr(program, name)
        columns[name] = spread[::step]
    alike = {"extra_ns": 30, "host_ns": 9}
    columns |= {name: np.broadcast_to(np.int64(value), len(program)) for name, value in alike.items()}
    changed = program.with_columns(**columns)
    assert found(changed) == expected(changed)


@given(programs(), st.randoms(use_true_random=False), st.sampled_from([np.int32, np.int64]))
def test_only_some_instructions_may_be_asked_for(way: str, program: Program, random: Random, kind: type) -> None:
    """In any order; their times are those of the whole."""
    occupies = np.flatnonzero(program.stream != program.trash).tolist()
    only = random.sample(occupies, random.randint(0, len(occupies)))
    times = run(program, np.array(only, kind))
    of_all = dict(zip(occupies, expected(program), strict=True))
    assert list(zip(times.start.tolist(), times.end.tolist(), strict=True)) == [of_all[i] for i in only]


def test_rows_that_are_none_are_that_which_nobody_reads(way: str) -> None:
    if way == "numpy":
        pytest.skip("numpy raises nothing either, and reads other rows")
    program = in_turns(64)
    other, save = program.other.copy(), program.save.copy()
    other[8], other[9], save[10] = -1, 5, 1 << 40
    odd = program.with_columns(other=other, save=save)
    other[8:10], save[10] = 4, 4
    assert found(odd) == expected(program.with_columns(other=other, save=save))


def test_arms_stay_off_however_many_follow_each_other(way: str) -> None:
    """Instructions on the row that nobody reads, all arms off, before one at 10 + 5 ns that has that row beside it."""
    for count in range(1, 18):
        program, off = in_turns(count), np.full(count, NEVER)
        early, row = np.arange(count) < count - 1, np.full(count, 4)
        rows = {name: np.where(early, 4, getattr(program, name)) for name in ("pred", "host", "stream")}
        delays = {"launch_ns": np.where(early, NEVER, 5), "gap_ns": off, "other_ns": off}
        program = program.with_columns(**rows, **delays, other=row, host_ns=np.where(early, 0, 10))
        assert found(program) == expected(program) == [(15, 15 + count - 1)]


@pytest.mark.parametrize("most", [1, 60, 200])
def test_many_clocks_mean_longer_blocks(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxplus, "_library", lambda: None)
    monkeypatch.setattr(maxplus, "_MOST", most)
    assert found(in_turns(400)) == expected(in_turns(400))


def in_turns(count: int) -> Program:
    """One thread launches for two streams, mostly for the first; every eighth waits for the other stream's last."""
    number = np.arange(count)
    second = number % 8 == 7
    nothing = np.full(count, NEVER)
    return Program(
        pred=np.zeros(count, np.int64),
        host_ns=np.full(count, 10),
        waited=np.full(count, 4),
        waited_ns=nothing,
        host=np.zeros(count, np.int64),
        launch_ns=np.full(count, 5),
        stream=1 + second,
        gap_ns=np.where((number == 0) | (number == 7), NEVER, 1),
        other=np.where(second, 1, 2),
        other_ns=np.where(second, 3, NEVER),
        extra_ns=np.zeros(count, np.int64),
        dur_ns=number % 23,
        overlap_ns=nothing,
        save=np.full(count, 4),
        initial=np.array([0, LONG_AGO, LONG_AGO, 0, LONG_AGO]),
    )


def test_work_grows_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the numbers that numpy touches: each instruction once for every clock, and once more."""
    touched = []
    step = maxplus._step

    def counted(clock: np.ndarray, delay: np.ndarray, state: np.ndarray) -> object:
        touched.append(state.size // len(program.initial))
        return step(clock, delay, state)

    monkeypatch.setattr(maxplus, "_library", lambda: None)
    monkeypatch.setattr(maxplus, "_step", counted)
    for count in (4_000, 16_000):
        program = in_turns(count)
        touched.clear()
        run(program)
        assert count <= sum(touched) / (len(program.initial) + 1) <= count * 1.1  # the last block is filled up

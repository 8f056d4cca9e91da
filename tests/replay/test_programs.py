"""Programs: the vectorised machine, and running stretch by stretch, against a plain loop over the instructions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.replay import maxplus, shortcut
from npuperf.replay.maxplus import NEVER, Program, run
from npuperf.replay.shortcut import Shortcut

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
    initial = np.full(trash + 1, NEVER)
    initial[:threads] = random.integers(0, 20)
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
    clock = program.initial.tolist()
    done = []
    for i in range(len(program)):
        op = {name: int(getattr(program, name)[i]) for name in ARMS}
        host = max(clock[op["pred"]] + op["host_ns"], clock[op["waited"]] + op["waited_ns"])
        clock[op["host"]] = host
        free = clock[op["stream"]]
        start = max(host + op["launch_ns"], free + op["gap_ns"], clock[op["other"]] + op["other_ns"]) + op["extra_ns"]
        end = max(start + op["dur_ns"], free + op["overlap_ns"])
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


@settings(max_examples=200, deadline=None)
@given(programs())
def test_the_machine_equals_a_plain_loop(program: Program) -> None:
    times = run(program)
    assert on_streams(program, times.start, times.end) == expected(program)
    launched = np.flatnonzero(program.pred != program.trash)
    assert times.host[launched].tolist() == [plain(program)[i][0] for i in launched.tolist()]


@pytest.mark.parametrize("most", [1, 60, 200])
def test_many_clocks_mean_longer_blocks(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = in_turns(400)
    monkeypatch.setattr(maxplus, "_MOST", most)
    times = run(program)
    assert on_streams(program, times.start, times.end) == expected(program)


@settings(max_examples=300, deadline=None)
@given(programs(), st.sampled_from([1, 7, 1 << 14]))
def test_stretch_by_stretch_equals_a_plain_loop(program: Program, portion: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortcut, "_PORTION", portion)
        assert on_streams(program, *Shortcut.of(program).run(program)) == expected(program)


@settings(max_examples=200, deadline=None)
@given(programs())
def test_a_few_times_equal_a_plain_loop(program: Program) -> None:
    """Asked for by themselves, they are the same; streams of these programs never go back but where nothing follows."""
    occupies = np.flatnonzero(program.stream != program.trash)
    found = Shortcut.of(program).run_to(program, occupies[::3])
    assert found is not None
    assert list(zip(*found[:2], strict=True)) == expected(program)[::3]
    assert found[2] == max((end for _, end in expected(program)), default=NEVER)


def test_streams_that_go_back_are_run_as_a_whole() -> None:
    program = in_turns(64)
    gap = program.gap_ns.copy()
    gap[30] = -100
    assert Shortcut.of(program).run_to(program.with_columns(gap_ns=gap), np.array([3])) is None


@settings(max_examples=200, deadline=None)
@given(programs(), st.integers(0, 10_000))
def test_changed_programs_share_stretches(program: Program, seed: int) -> None:
    """Other delays, and arms that are off now, need no other stretches."""
    random = np.random.default_rng(seed)
    n = len(program)
    shortcut = Shortcut.of(program)

    def scaled(values: np.ndarray) -> np.ndarray:
        return np.where(values > NEVER, random.integers(0, 90, n), NEVER)

    launched = program.pred != program.trash
    changed = program.with_columns(
        host_ns=random.integers(0, 90, n),
        waited_ns=np.where(random.random(n) < 0.5, NEVER, scaled(program.waited_ns)),
        launch_ns=scaled(program.launch_ns),
        gap_ns=scaled(program.gap_ns),
        other_ns=np.where(launched & (random.random(n) < 0.5), NEVER, scaled(program.other_ns)),
        dur_ns=random.integers(0, 90, n),
    )
    assert shortcut.fit(changed)
    assert on_streams(changed, *shortcut.run(changed)) == expected(changed)


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
        initial=np.array([0, NEVER, NEVER, 0, NEVER]),
    )


@pytest.mark.parametrize(
    ("arm", "delay"), [("waited_ns", 2), ("other_ns", 2), ("gap_ns", NEVER)], ids=["waits", "awaits", "unfollowed"]
)
def test_what_waits_for_more_needs_other_stretches(arm: str, delay: int) -> None:
    program = in_turns(64)
    column = getattr(program, arm).copy()
    column[40] = delay
    assert not Shortcut.of(program).fit(program.with_columns(**{arm: column}))
    assert not Shortcut.of(program).fit(program.with_columns(stream=program.stream.copy()))


def test_clocks_of_mixed_kinds_are_run_as_they_are() -> None:
    """A thread that goes on from a stream's clock by itself: nothing may be added up there."""
    program = in_turns(64)
    pred = program.pred.copy()
    pred[20::10] = 1
    mixed = program.with_columns(pred=pred)
    shortcut = Shortcut.of(mixed)
    assert len(shortcut.alone) == 64
    assert on_streams(mixed, *shortcut.run(mixed)) == expected(mixed)


@pytest.mark.parametrize("shortened", [False, True])
def test_work_grows_with_the_program(shortened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the numbers that the machine touches; of the shortened program these are fewer by far."""
    touched = []
    step = maxplus._step

    def counted(clock: np.ndarray, delay: np.ndarray, state: np.ndarray) -> object:
        touched.append(state.size // len(program.initial))
        return step(clock, delay, state)

    monkeypatch.setattr(maxplus, "_step", counted)
    sums = []
    for count in (4_000, 16_000):
        program = in_turns(count)
        touched.clear()
        if shortened:
            shortcut = Shortcut.of(program)
            assert len(shortcut.of_alone) + len(shortcut.of_stretch) <= count / 4 + 2
            shortcut.run(program)
        else:
            run(program)
        sums.append(sum(touched))
        # Each instruction once for every clock, and once more; padding of the last block aside.
        assert len(program) / 4.1 <= sums[-1] / (len(program.initial) + 1) <= len(program) * 1.1
    assert sums[1] <= 4.1 * sums[0]

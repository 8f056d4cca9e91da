"""The exact sum, classes, steps and leaks, held against plans of which every byte is known."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from build import analyze_path
from memory_plan import MIB, STEP, Block, Plan, Training, write_memory

from npuperf.device import memory_study
from npuperf.device.sections import PARTS
from npuperf.model.memory_result import Memory, TrainingPart

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "msinsight"


def memory_of(path: Path) -> Memory:
    found = analyze_path(path, no_cache=True).devices[0].memory
    assert found is not None
    return found


def test_the_peak_is_what_was_before_less_what_was_given_back_plus_what_lives(tmp_path: Path) -> None:
    plan = Plan(
        1000 * MIB,
        (Block(10_000, 90_000, 300 * MIB, "a"), Block(20_000, 30_000, 50 * MIB, "b"), Block(40_000, None, 512, "c")),
        older=((35_000, 100 * MIB), (95_000, MIB)),
    )
    found = memory_of(write_memory(plan, tmp_path))
    # the peak is at 20 us: a and b live, nothing older was given back
    assert (found.peak_bytes, found.before_bytes, found.freed_bytes) == (1350 * MIB, 1000 * MIB, 0)
    assert (found.alive_bytes, found.residual_bytes, found.split) == (350 * MIB, 0, "measured")
    assert [(a.operator, a.bytes) for a in found.alive] == [("a", 300 * MIB), ("b", 50 * MIB)]
    assert found.peak_operator == "b"
    assert (found.reserved_bytes, found.cached_bytes, found.waiting_bytes) == (4096 * MIB, 2746 * MIB, 0)
    assert (found.outside_bytes, found.unnamed_bytes) == (550 * MIB, 90 * MIB)
    assert [(m.name, m.bytes) for m in found.modules] == [("HCCL", 400 * MIB), ("RUNTIME", 60 * MIB)]


def test_a_block_that_a_stream_still_uses_waits(tmp_path: Path) -> None:
    plan = Plan(0, (Block(0, 10_000, 100 * MIB, waits=20_000), Block(15_000, None, 200 * MIB)))
    found = memory_of(write_memory(plan, tmp_path))
    assert (found.peak_bytes, found.alive_bytes, found.waiting_bytes) == (200 * MIB, 200 * MIB, 100 * MIB)


def test_releases_before_6_0_tell_no_active_bytes(tmp_path: Path) -> None:
    plan = Plan(
        MIB, (Block(0, 10_000, 8 * MIB, "a"), Block(5_000, None, 2 * MIB, "cann::b"), Block(7_000, 9_000, MIB, "c"))
    )
    found = memory_of(write_memory(plan, tmp_path, columns=10))
    # the graph engine's block is of another pool, which the planned counters count: a rise that no row explains
    assert (found.split, found.lost_rows, found.peak_bytes) == ("cannot_tell", 1, 12 * MIB)
    whole = Plan(MIB, (plan.blocks[0], plan.blocks[2]))
    found = memory_of(write_memory(whole, tmp_path, columns=10))
    assert (found.split, found.peak_bytes, found.alive_bytes, found.waiting_bytes) == (
        "measured",
        10 * MIB,
        9 * MIB,
        None,
    )


def test_lost_rows_leave_the_peak_and_no_split(tmp_path: Path) -> None:
    blocks = tuple(Block(10_000 * i, None, (i + 1) * MIB) for i in range(5))
    found = memory_of(write_memory(Plan(0, blocks, unwritten=frozenset({1, 3})), tmp_path))
    assert (found.peak_bytes, found.split, found.lost_rows) == (15 * MIB, "cannot_tell", 2)
    assert found.before_bytes is None and not found.alive


@pytest.mark.parametrize("seed", range(20))
def test_any_plan_adds_up_to_the_byte(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    blocks = []
    for _ in range(chance.randint(1, 60)):
        start = chance.randrange(0, 10_000_000, 7)
        freed = None if chance.random() < 0.2 else start + chance.randrange(3_000, 3_000_000)
        waits = chance.choice((0, 0, 50_000))
        blocks.append(Block(start, freed, 512 * chance.randint(1, 1 << 18), chance.choice("abc"), waits))
    older = tuple((chance.randrange(10_000_000), 512 * chance.randint(1, 1000)) for _ in range(chance.randint(0, 5)))
    plan = Plan(4096 * MIB, tuple(sorted(blocks, key=lambda b: b.start)), older=older)
    found = memory_of(write_memory(plan, tmp_path))
    most, when = plan.peak()
    alive = sum(b.size for b in blocks if b.start <= when and (b.freed is None or b.freed > when))
    freed = sum(size for t, size in older if t <= when)
    first = min([b.start for b in blocks] + [t for t, _ in older])
    before = plan.before - sum(size for t, size in older if t == first)
    assert found.peak_bytes == most
    assert (found.before_bytes, found.freed_bytes, found.alive_bytes) == (before, freed - (plan.before - before), alive)
    assert found.residual_bytes == 0
    assert sum(a.bytes for a in found.alive) == alive


def test_classes_of_a_training(tmp_path: Path) -> None:
    found = memory_of(Training(state=32 * MIB).write(tmp_path))
    by_class = {}
    for alive in found.alive:
        by_class[alive.class_] = by_class.get(alive.class_, 0) + alive.bytes
    # at the first backward of the second step: all activations and one gradient, and what the optimizer keeps
    assert by_class == {"activation": 4 * 64 * MIB, "gradient": 16 * MIB, "lasting": 32 * MIB}
    assert found.peak_bytes == (1000 + 32 + 4 * 64 + 16) * MIB
    assert (found.peak_step, found.peak_part, found.peak_operator) == (2, "backward", "aten::mm")
    assert [s.step for s in found.steps] == [1, 2, 3, 4]
    assert [s.kept_bytes for s in found.steps] == [32 * MIB, 0, 0, 0]
    assert all(a.inferred == (a.class_ in ("activation", "gradient")) for a in found.alive)


@pytest.mark.parametrize("block", [Block(1_000, 2_000, 3000 * MIB, "aten::early"),
                                   Block(4 * STEP - 100_000, 4 * STEP - 50_000, 3000 * MIB, "aten::late")])  # fmt: skip
def test_what_no_launch_asks_for_or_gives_back_is_of_no_part_of_training(tmp_path: Path, block: Block) -> None:
    """Before the first launch nothing can have given a block back, and behind the last one nothing asks for any."""
    folder, plan = Training().write(tmp_path), Training().plan()
    blocks = tuple(sorted((*plan.blocks, block), key=lambda one: one.start))
    write_memory(Plan(plan.before, blocks, sampled=plan.sampled), folder / "ASCEND_PROFILER_OUTPUT")
    (found,) = (alive for alive in memory_of(folder).alive if alive.operator == block.name)
    assert (found.class_, found.inferred, found.bytes) == ("temporary", False, block.size)


def test_a_leak_is_what_every_step_keeps(tmp_path: Path) -> None:
    found = memory_of(Training(leak=3 * MIB, state=32 * MIB).write(tmp_path / "leaks"))
    assert found.leak_bytes_per_step == 3 * MIB
    assert [(one.operator, one.count, one.bytes) for one in found.leaks] == [("aten::leaky", 1, 3 * MIB)]
    assert memory_of(Training(state=32 * MIB).write(tmp_path / "state")).leak_bytes_per_step == 0
    assert memory_of(Training(steps=2, leak=MIB).write(tmp_path / "two")).leak_bytes_per_step is None


def test_older_blocks_that_are_given_back_do_not_hide_a_leak(tmp_path: Path) -> None:
    training = Training(leak=3 * MIB)
    folder = training.write(tmp_path)
    plan = training.plan()
    older = tuple((training.times(step)[1] - 5_000, 5 * MIB) for step in range(4))
    write_memory(Plan(plan.before, plan.blocks, older, sampled=plan.sampled), folder / "ASCEND_PROFILER_OUTPUT")
    found = memory_of(folder)
    assert found.leak_bytes_per_step == 3 * MIB
    assert found.growth_bytes_per_step == -2 * MIB


def test_the_curve_has_the_peak_and_its_classes(tmp_path: Path) -> None:
    found = memory_of(Training(spike=500 * MIB).write(tmp_path))
    curve = found.curve
    assert curve is not None
    assert max(curve.allocated) == found.peak_bytes
    at = curve.allocated.index(found.peak_bytes)
    assert found.peak_at_ns is not None
    assert curve.start_ns + at * curve.slice_ns <= found.peak_at_ns < curve.start_ns + (at + 1) * curve.slice_ns
    assert sum(told[at] for told in curve.classes.values()) == found.alive_bytes


def test_parts_are_those_of_training_in_their_order() -> None:
    assert get_args(TrainingPart) == tuple(PARTS)


def test_without_memory_there_is_none(tmp_path: Path) -> None:
    assert analyze_path(Training().write(tmp_path, memory=False), no_cache=True).devices[0].memory is None


@pytest.mark.skipif(not REAL.is_dir(), reason="needs recordings that are not the project's")
@pytest.mark.parametrize(
    ("path", "peak", "before", "freed", "alive"),
    [
        ("cluster4/rank_0_ascend_pt", 10782243840, 4514074624, 0, 6268169216),
        ("cluster4/rank_2_ascend_pt", 11343561216, 4530867712, 16778240, 6829471744),
        *((f"{kind}/{which}", 1245688832, 981462016, 245969408, 510196224)
          for kind in ("text", "db") for which in ("level0/rank0_ascend_pt", "level1/rank0_ascend_pt")),
    ],
)  # fmt: skip
def test_real_recordings_close_to_the_byte(path: str, peak: int, before: int, freed: int, alive: int) -> None:
    found = memory_of(REAL / path)
    assert (found.peak_bytes, found.before_bytes, found.freed_bytes, found.alive_bytes) == (peak, before, freed, alive)
    assert (found.residual_bytes, found.lost_rows) == (0, 0)
    assert found.modules[0].name == "HCCL"


@pytest.mark.parametrize("at_once", [1, 3, 64, 1 << 16])
def test_what_lives_is_summed_alike_in_portions_of_any_size(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(memory_study, "_AT_ONCE", at_once)
    chance = np.random.default_rng(at_once)
    start, size = chance.integers(0, 60, 50), chance.integers(1, 100, 50)
    end = np.where(chance.random(50) < 0.2, np.iinfo(np.int64).max, start + chance.integers(0, 30, 50))
    for times in (np.arange(-1, 100), np.array([7, 7, 30]), np.array([20]), np.empty(0, np.int64)):
        lives = [sum(s for a, b, s in zip(start, end, size, strict=True) if a <= t < b) for t in times]
        assert memory_study.held(start, end, size, times).tolist() == lives


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_plan_adds_up_when_its_counters_are_looked_at_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    blocks = tuple(Block(i * 1000, i * 1000 + 7_500, (i + 1) * MIB, "a") for i in range(30))
    older = ((4_000, 10 * MIB), (4_000, 5 * MIB), (21_000, 3 * MIB))
    folder = write_memory(Plan(100 * MIB, blocks, older), tmp_path)
    monkeypatch.setattr(memory_study, "_AT_ONCE", at_once)
    found = memory_of(folder)
    # eight blocks live at a time: 23 to 30 MiB at the end, when all older ones are gone
    assert (found.peak_bytes, found.before_bytes, found.freed_bytes, found.alive_bytes) == (
        (100 - 18 + sum(range(23, 31))) * MIB, 100 * MIB, 18 * MIB, sum(range(23, 31)) * MIB
    )  # fmt: skip
    assert (found.residual_bytes, found.lost_rows, found.split) == (0, 0, "measured")

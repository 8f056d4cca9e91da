"""What changes of blocks make of the peak, held against plans that are added up again without npuperf."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from build import analyze_path
from memory_plan import MIB, Block, Plan, Training, write_memory
from msgspec.structs import replace

from npuperf.base.errors import UsageError
from npuperf.device.memory_whatif import Buffers
from npuperf.device.whatif import parse, peak_of
from npuperf.model.result import WhatIf

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "msinsight"


def asked(path: Path, expression: str) -> WhatIf:
    found = analyze_path(path, what_if=(expression,), no_cache=True).what_if
    assert [w.expr for w in found if w.asked] == [expression]
    one = found[0]
    assert (one.span_ns, one.gain_ns_per_step, one.gain_pct, one.gain_pct_interval) == (None,) * 4
    return one


def grown(size: int, factor: float) -> int:
    """Bytes of a block of another size: a multiple of 512, rounded up."""
    return -int(-size * factor // 512) * 512


# -- Blocks of operators.


@pytest.mark.parametrize("factor", [0, 0.3, 0.5, 2])
@pytest.mark.parametrize("seed", range(6))
def test_the_new_peak_is_the_highest_instant_of_the_plan_with_other_blocks(
    tmp_path: Path, seed: int, factor: float
) -> None:
    chance = random.Random(seed)
    blocks = []
    for i in range(chance.randint(20, 60)):
        start = chance.randrange(0, 10_000_000, 7)
        freed = None if chance.random() < 0.2 else start + chance.randrange(3_000, 3_000_000)
        blocks.append(Block(start, freed, 512 * chance.randint(1, 1 << 18), "abc"[i % 3], chance.choice((0, 50_000))))
    older = tuple((chance.randrange(10_000_000), 512 * chance.randint(1, 1000)) for _ in range(3))
    plan = Plan(4096 * MIB, tuple(sorted(blocks, key=lambda b: b.start)), older=older)
    changed = tuple(replace(b, size=grown(b.size, factor)) if b.name in "ab" else b for b in plan.blocks)
    then = replace(plan, blocks=changed).peak()[0]
    found = asked(write_memory(plan, tmp_path), f"block:a*{factor},block:B*{factor}")
    assert (found.recorded_bytes, found.peak_bytes) == (plan.peak()[0], then)
    assert found.gain_bytes == (plan.peak()[0] - then,) * 2
    assert found.peak_of == "allocated" and found.assumes


def test_a_short_peak_leads_to_the_next_highest_instant_not_to_the_peak_less_its_size(tmp_path: Path) -> None:
    training = Training(spike=500 * MIB)
    found = asked(training.write(tmp_path), "block:aten::c?t*0")
    assert found.peak_bytes == Training().plan().peak()[0]
    assert found.gain_bytes is not None and found.gain_bytes[0] < 500 * MIB


# -- The batch.


@pytest.mark.parametrize("factor", [0.5, 0.25, 2])
def test_activations_grow_with_the_batch_and_nothing_else(tmp_path: Path, factor: float) -> None:
    training = Training(state=40 * MIB, spike=100 * MIB)
    then = replace(training, activation=grown(64 * MIB, factor), spike=grown(100 * MIB, factor)).plan().peak()[0]
    found = asked(training.write(tmp_path), f"batch*{factor}")
    assert found.peak_bytes == then
    # of temporary blocks of backward, as of the short one, it is not certain that they grow
    sure = replace(training, activation=grown(64 * MIB, factor)).plan().peak()[0]
    now = training.plan().peak()[0]
    assert found.gain_bytes == tuple(sorted((now - sure, now - then)))


def test_what_may_be_a_copy_of_parameters_does_not_grow_for_certain(tmp_path: Path) -> None:
    # activations as large as gradients in half precision would be: casts of parameters are kept for backward, too
    found = asked(Training(activation=8 * MIB, gradient=16 * MIB).write(tmp_path), "batch*0.5")
    assert found.gain_bytes is not None and found.gain_bytes[0] == 0 < found.gain_bytes[1]


# -- Activations computed anew.


def test_layers_that_are_computed_anew_keep_nothing_until_backward_gets_to_them(tmp_path: Path) -> None:
    training = Training(modules=True, small=10 * MIB)
    path = training.write(tmp_path)
    found = asked(path, "recompute:forward")
    # By hand: layers 0 to 2 keep nothing from the next layer's forward on; layer 3 is followed by its own backward.
    # Each is asked for again when the layer after it has been given back. Highest is the backward of layer 0, with
    # its activations and four gradients.
    assert found.recorded_bytes == (1000 + 4 * 74 + 16) * MIB
    assert found.peak_bytes == (1000 + 74 + 4 * 16) * MIB
    # at least the input of each is kept, which is no larger than its largest block: 64 MiB each, then the small ones
    # alone are given back, and highest is the first backward: four large, one small, one gradient
    least = (1000 + 4 * 64 + 10 + 16) * MIB
    assert found.gain_bytes == (found.recorded_bytes - least, found.recorded_bytes - found.peak_bytes)
    one = asked(path, "recompute:layer_0")
    assert one.peak_bytes == found.recorded_bytes - 74 * MIB
    assert "Layer_1" in str(asked(path, "recompute:Nothing").reason)


def test_without_ranges_nothing_is_computed_anew(tmp_path: Path) -> None:
    found = asked(Training().write(tmp_path), "recompute:forward")
    assert found.gain_bytes is None and "--stack" in str(found.reason)


# -- The last use.


def test_of_last_uses_without_addresses_nothing_is_certain(tmp_path: Path) -> None:
    assert "--shapes" in str(asked(Training().write(tmp_path), "free_at_last_use").reason)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs recordings that are not the project's")
def test_of_a_real_recording_the_last_use_is_an_interval_from_nothing() -> None:
    found = asked(REAL / "text/level1/rank0_ascend_pt", "free_at_last_use")
    assert found.gain_bytes is not None and found.gain_bytes[0] == 0 < found.gain_bytes[1]
    assert found.gain_bytes[1] <= 510196224  # no more than what lives at the peak


# -- HCCL's buffers.


def test_buffers_of_every_communicator_are_two() -> None:
    known = Buffers(3 * 400 * MIB + 41 * MIB, 3, 200, assumed=True)
    assert known.saved_with(100) == (3 * 200 * MIB,) * 2
    assert known.saved_with(300) == (-3 * 200 * MIB,) * 2
    # HCCL has room for two communicators more, which were not used while it was recorded
    assert Buffers(5 * 400 * MIB, 3, 200, assumed=True).saved_with(100) == (3 * 200 * MIB, 5 * 200 * MIB)
    # no size is known: at most all that two smaller buffers do not need
    assert Buffers(5 * 248 * MIB, 5, None, assumed=True).saved_with(100) == (0, 5 * 48 * MIB)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs recordings that are not the project's")
@pytest.mark.parametrize(
    ("path", "gain"),
    [
        # one communicator, whose 404 MiB are two buffers of 200 and 4 MiB more
        ("text/level1/rank0_ascend_pt", (200 * MIB, 200 * MIB)),
        # five, as communication.json names them, with 248 MiB each, which no default explains
        ("cluster4/rank_0_ascend_pt", (0, 1302016000 - 5 * 200 * MIB)),
    ],
)
def test_buffers_of_real_recordings(path: str, gain: tuple[int, int]) -> None:
    found = asked(REAL / path, "hccl_buffer=100")
    assert (found.peak_of, found.gain_bytes) == ("process", gain)


def test_what_hccl_has_needs_communicators(tmp_path: Path) -> None:
    assert "communicators are not recorded" in str(asked(Training().write(tmp_path), "hccl_buffer=100").reason)


# -- Where nothing is told.


def test_lost_rows_are_not_replayed(tmp_path: Path) -> None:
    blocks = tuple(Block(10_000 * i, None, (i + 1) * MIB) for i in range(5))
    found = asked(write_memory(Plan(0, blocks, unwritten=frozenset({1})), tmp_path), "block:aten**0")
    assert found.gain_bytes is None and "rows are missing" in str(found.reason)


def test_without_memory_the_option_is_named_that_records_it(tmp_path: Path) -> None:
    found = asked(Training().write(tmp_path, memory=False), "batch*0.5")
    assert found.gain_bytes is None and "npuperf profile --memory" in str(found.reason)


def test_an_operator_that_is_not_there_names_near_ones(tmp_path: Path) -> None:
    assert "aten::leaky" in str(asked(Training(leak=MIB).write(tmp_path), "block:leaky*0").reason)


@pytest.mark.parametrize(
    "expression",
    ["host*0.5,batch*0.5", "free_at_last_use,overlap", "hccl_buffer=100,batch*0.5", "block*0", "batch:x*0.5",
     "hccl_buffer=0", "hccl_buffer*0.5", "recompute", "free_at_last_use*0"],
)  # fmt: skip
def test_expressions_that_have_no_answer(expression: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        parse(expression)
    with pytest.raises(UsageError):
        analyze_path(Training(steps=1).write(tmp_path), what_if=(expression,), no_cache=True)


def test_what_is_about_memory() -> None:
    for expression in ("block:a::b*0", "batch*2", "recompute:forward", "free_at_last_use", "hccl_buffer=100"):
        assert peak_of(expression) is not None
    assert peak_of("op:block*0.5,host*0.5") is None

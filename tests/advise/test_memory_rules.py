"""What holds memory is named with the bytes of the plan, and nothing is named where nothing was planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import H, analyze_path
from memory_plan import MIB, STEP, Block, Plan, Training, write_memory

from npuperf.advise import RULES
from npuperf.model.result import Finding

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "msinsight"
NAMES = {rule.name for rule in RULES if rule.on_memory}


def answers(path: Path, **asked: object) -> dict[str, Finding]:
    return {f.rule: f for f in analyze_path(path, no_cache=True, **asked).findings if f.rule in NAMES}


def problems(path: Path, **asked: object) -> dict[str, Finding]:
    return {name: f for name, f in answers(path, **asked).items() if f.status == "problem"}


def peak(training: Training) -> int:
    return training.plan().peak()[0]


# -- Planted in a training.


@pytest.mark.parametrize(
    "training",
    [Training(), Training(state=32 * MIB), Training(layers=2, gradient=64 * MIB), Training(modules=True, small=MIB),
     Training(steps=2), Training(steps=1, activation=MIB)],
)  # fmt: skip
def test_a_healthy_training_has_no_finding(tmp_path: Path, training: Training) -> None:
    assert not problems(training.write(tmp_path))


def test_a_leak_of_one_block_a_step(tmp_path: Path) -> None:
    found = problems(Training(leak=3 * MIB).write(tmp_path))
    assert set(found) == {"memory_leak"}
    leak = found["memory_leak"]
    assert leak.evidence["leak_bytes_per_step"] == 3 * MIB
    assert leak.evidence["leaks"] == [{"operator": "aten::leaky", "where": None, "count": 1, "bytes": 3 * MIB}]
    without = peak(Training(leak=3 * MIB)) - peak(Training())
    assert leak.gain_bytes == (without, without) == (12 * MIB, 12 * MIB)


def test_a_block_of_a_few_bytes_a_step_is_no_leak_worth_a_line(tmp_path: Path) -> None:
    assert answers(Training(leak=512).write(tmp_path))["memory_leak"].status == "ok"


def test_two_steps_do_not_tell_a_leak(tmp_path: Path) -> None:
    found = answers(Training(steps=2, leak=3 * MIB).write(tmp_path))["memory_leak"]
    assert found.status == "cannot_tell" and "npuperf profile --memory" in str(found.needs)


def test_one_late_release(tmp_path: Path) -> None:
    found = problems(Training(late=64 * MIB).write(tmp_path))
    assert set(found) == {"late_release"}
    late = found["late_release"]
    assert late.evidence["bytes"] == 64 * MIB
    assert [(row["operator"], row["count"]) for row in late.evidence["held_by"]] == [("aten::late", 1)]
    assert late.gain_bytes == (0, peak(Training(late=64 * MIB)) - peak(Training()))
    assert "inferred" in str(late.title)


def test_a_short_peak(tmp_path: Path) -> None:
    found = problems(Training(spike=500 * MIB).write(tmp_path))
    assert set(found) == {"short_peak"}
    short = found["short_peak"]
    lower = peak(Training(spike=500 * MIB)) - peak(Training())
    assert short.gain_bytes == (lower, lower)  # to the next highest instant, not by the block's size
    assert lower < 500 * MIB
    assert short.evidence["next_bytes"] == peak(Training())
    assert [(row["operator"], row["bytes"]) for row in short.evidence["held_by"]] == [("aten::cat", 500 * MIB)]


def test_all_of_them_at_once(tmp_path: Path) -> None:
    found = problems(Training(leak=3 * MIB, late=64 * MIB, spike=500 * MIB).write(tmp_path))
    assert set(found) == {"memory_leak", "late_release", "short_peak"}
    assert found["memory_leak"].evidence["leak_bytes_per_step"] == 3 * MIB
    assert [row["operator"] for row in found["short_peak"].evidence["held_by"]] == ["aten::cat"]


# -- Planted in the allocator.


def in_pieces(*, free: bool) -> Plan:
    """300 MiB are reserved and filled; two thirds are given back, or not; then a block of 150 MiB is asked for."""
    kept = (Block(1_000, None, 100 * MIB, "a"), Block(2_000, 50_000 if free else None, 100 * MIB, "b"))
    more = (Block(3_000, 60_000 if free else None, 100 * MIB, "a"), Block(90_000, None, 150 * MIB, "c"))
    return Plan(0, kept + more, reserved=300 * MIB, grows=((90_000, 450 * MIB),))


def test_memory_that_is_free_and_fits_nothing_is_in_fragments(tmp_path: Path) -> None:
    found = problems(write_memory(in_pieces(free=True), tmp_path))
    assert set(found) == {"memory_fragments"}
    evidence = found["memory_fragments"].evidence
    # 450 MiB are reserved, 300 were in use at most; 200 were free when 150 more were taken
    assert (evidence["reserved_bytes"], evidence["filled_bytes"]) == (450 * MIB, 300 * MIB)
    assert (evidence["unfilled_bytes"], evidence["asked_bytes"]) == (150 * MIB, 150 * MIB)
    assert (evidence["free_bytes"], evidence["in_vain"]) == (200 * MIB, 1)
    assert found["memory_fragments"].gain_bytes == (0, 150 * MIB)


def test_memory_that_grows_as_it_is_filled_is_in_no_fragments(tmp_path: Path) -> None:
    assert answers(write_memory(in_pieces(free=False), tmp_path))["memory_fragments"].status == "ok"


def test_what_was_reserved_before_the_recording_tells_no_fragments(tmp_path: Path) -> None:
    plan = Plan(0, (Block(1_000, None, 100 * MIB),), reserved=400 * MIB)
    found = answers(write_memory(plan, tmp_path))["memory_fragments"]
    assert found.status == "cannot_tell" and found.evidence["filled_bytes"] == 100 * MIB


def test_blocks_that_wait_for_a_stream(tmp_path: Path) -> None:
    plan = Plan(0, (Block(0, 10_000, 100 * MIB, "a", waits=20_000), Block(15_000, None, 200 * MIB, "b")))
    found = problems(write_memory(plan, tmp_path))
    assert set(found) == {"waiting_blocks"}
    waiting = found["waiting_blocks"]
    assert waiting.gain_bytes == (0, 100 * MIB)
    assert [(row["operator"], row["bytes"]) for row in waiting.evidence["held_by"]] == [("a", 100 * MIB)]


@pytest.mark.parametrize(("gib", "status"), [(60, "ok"), (63, "problem"), (None, "cannot_tell")])
def test_how_much_room_is_left(tmp_path: Path, gib: int | None, status: str) -> None:
    beside = 550 * MIB  # HCCL, the runtime, and what has no name
    plan = Plan(0, (Block(1_000, None, 100 * MIB),), reserved=(gib or 1) * 1024 * MIB - beside)
    found = answers(write_memory(plan, tmp_path), **({"soc": "Ascend910B3"} if gib else {}))["memory_headroom"]
    assert found.status == status
    if status == "problem":
        assert found.evidence["headroom_bytes"] == 1024 * MIB


# -- Time that the device's memory costs.


def calls(name: str, steps: range, *, python: bool = False) -> tuple[H, ...]:
    return tuple(H(name, step * STEP + 1_150_000, 100_000, python=python) for step in steps)


@pytest.mark.parametrize(
    ("name", "python"),
    [("AscendCL@aclrtMallocPhysical", False), ("AscendCL@aclrtFree", False), ("aclrtMallocAlign32", False),
     ("/usr/lib/torch_npu/npu/memory.py(190): empty_cache", True)],
)  # fmt: skip
def test_steps_that_take_memory_from_the_device(tmp_path: Path, name: str, python: bool) -> None:
    found = problems(Training(calls=calls(name, range(4), python=python)).write(tmp_path))
    assert set(found) == {"device_allocations"}
    taken = found["device_allocations"]
    assert taken.gain_ns_per_step == (0, 100_000) and taken.gain_bytes is None
    assert taken.evidence["ns_per_step"] == [100_000] * 4
    assert ("empty_cache" in str(taken.next)) == python


def test_a_first_step_may_take_memory_and_the_hosts_own_is_not_the_devices(tmp_path: Path) -> None:
    first = calls("AscendCL@aclrtMallocPhysical", range(1))
    assert not problems(Training(calls=first).write(tmp_path / "first"))
    assert not problems(Training(calls=calls("AscendCL@aclrtMallocHost", range(4))).write(tmp_path / "host"))


# -- Where nothing was recorded, and what real recordings say.


def test_without_memory_no_rule_about_it_says_anything(tmp_path: Path) -> None:
    assert not answers(Training().write(tmp_path, memory=False))


def test_lost_rows_tell_neither_leaks_nor_peaks(tmp_path: Path) -> None:
    blocks = tuple(Block(10_000 * i, None, (i + 1) * MIB) for i in range(5))
    found = answers(write_memory(Plan(0, blocks, unwritten=frozenset({1})), tmp_path))
    assert {found[name].status for name in ("memory_leak", "short_peak", "late_release")} == {"cannot_tell"}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs recordings that are not the project's")
@pytest.mark.parametrize(
    "path", ["text/level0/rank0_ascend_pt", "text/level1/rank1_ascend_pt", "db/level1/rank0_ascend_pt"]
)
def test_a_real_training_in_data_parallel(path: str) -> None:
    """AlexNet: 61,100,840 parameters of 4 bytes; its largest layer has 9216 x 4096 weights and 4096 biases."""
    found = problems(REAL / path)
    assert set(found) == {"gradient_copies", "hccl_buffers"}
    assert found["gradient_copies"].gain_bytes == (0, 61_100_840 * 4)
    buffers = found["hccl_buffers"]
    largest = (9216 * 4096 + 4096) * 4
    assert buffers.evidence["most_moved_bytes"] == largest
    assert buffers.gain_bytes == (0, 2 * (200 - -(-largest // MIB)) * MIB)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs recordings that are not the project's")
@pytest.mark.parametrize("rank", [0, 2])
def test_a_real_pipeline_has_no_finding(rank: int) -> None:
    # expandable_segments is on, one step was recorded, and its 248 MiB per communicator are no default
    found = answers(REAL / f"cluster4/rank_{rank}_ascend_pt")
    assert not [f for f in found.values() if f.status == "problem"]
    assert {name for name, f in found.items() if f.status == "ok"} == {
        "short_peak", "memory_fragments", "waiting_blocks",
    }  # fmt: skip

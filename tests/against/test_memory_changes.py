"""Two peaks of memory side by side: parts that add up to the difference, gates and locks on bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from build import analyze_path
from memory_plan import MIB, Block, Plan, Training, write_memory

from npuperf.against.baselines import reduced
from npuperf.against.locks import write_lock
from npuperf.base.messages import text
from npuperf.model.parts import encoded
from npuperf.model.result import Result


def compared(old: Path, new: Path) -> dict[tuple[str, str | None], int]:
    found = analyze_path(new, baseline=(str(old),), no_cache=True, allow_mismatch=True)
    assert found.comparison is not None
    return {(change.part, change.key): change.delta_bytes for change in found.comparison.memory}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("sides")
    return (
        Training(state=32 * MIB).write(root / "old"),
        Training(state=32 * MIB, leak=3 * MIB, activation=80 * MIB).write(root / "new"),
    )


def test_the_parts_of_two_peaks_add_up(sides: tuple[Path, Path]) -> None:
    parts = compared(*sides)
    # four activations of 16 MiB more each; the leak of every step but the one of the peak lives through a step
    assert parts["alive", "aten::mm (activation)"] == 4 * 16 * MIB
    assert sum(parts.values()) == 0, "the process holds the same: what PyTorch has more is cached no more"
    of_peak = sum(delta for (part, _), delta in parts.items() if part in ("before", "freed", "alive"))
    peaks = [analyze_path(side, no_cache=True).devices[0].memory for side in sides]
    assert of_peak == peaks[1].peak_bytes - peaks[0].peak_bytes
    back = compared(*reversed(sides))
    assert {key: -delta for key, delta in parts.items()} == back
    assert compared(sides[0], sides[0]) == {}


@pytest.mark.parametrize("seed", range(10))
def test_any_two_plans_add_up(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def plan() -> Plan:
        blocks = []
        for _ in range(chance.randint(1, 30)):
            start = chance.randrange(0, 900_000, 7)
            freed = start + chance.randrange(3_000, 400_000) if chance.random() < 0.8 else None
            size = 512 * chance.randint(1, 90_000)
            blocks.append(Block(start, freed, size, chance.choice("abc"), chance.choice((0, 9_000))))
        outside = {name: chance.randrange(0, 900) * MIB for name in chance.sample(["HCCL", "RUNTIME", "SLOG", "GE"], 2)}
        return Plan(2048 * MIB, tuple(sorted(blocks, key=lambda b: b.start)), ((500_000, chance.randrange(9) * 512),),
                    chance.randrange(4096, 8192, 2) * MIB, outside, chance.randrange(100) * MIB)  # fmt: skip

    old, new = (plan(), plan())
    parts = compared(write_memory(old, tmp_path / "a"), write_memory(new, tmp_path / "b"))
    of_peak = sum(delta for (part, _), delta in parts.items() if part in ("before", "freed", "alive"))
    assert of_peak == new.peak()[0] - old.peak()[0]
    process = [p.reserved + sum(p.outside.values()) + p.unnamed for p in (old, new)]
    assert sum(parts.values()) == process[1] - process[0]


def test_a_side_that_cannot_be_split_tells_the_peak_alone(tmp_path: Path) -> None:
    whole = Plan(0, (Block(0, None, 4 * MIB), Block(9_000, None, 8 * MIB)), sampled=())
    cut = Plan(0, whole.blocks, unwritten=frozenset({1}), sampled=())
    parts = compared(write_memory(whole, tmp_path / "a"), write_memory(cut, tmp_path / "b"))
    assert parts == {}
    more = Plan(MIB, whole.blocks, unwritten=frozenset({1}), sampled=())
    assert compared(write_memory(whole, tmp_path / "a"), write_memory(more, tmp_path / "c")) == {("peak", None): MIB}


def gates(path: Path, *asked: str, **more: object) -> dict[str, str]:
    found: Result = analyze_path(path, fail_on=asked, no_cache=True, **more)
    return {gate.expr: gate.status for gate in found.gates}


def test_gates_on_memory(sides: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = sides
    # the new peak is 1000 + 32 + 4 · 80 + 16 MiB and the leak of two steps or more
    assert gates(new, "memory_peak>1GiB", "memory_peak>60GiB", "memory_reserved>4GiB", "memory_leak>0") == {
        "memory_peak>1GiB": "fail", "memory_peak>60GiB": "pass", "memory_reserved>4GiB": "pass", "memory_leak>0": "fail"
    }  # fmt: skip
    assert gates(old, "memory_leak>0", "memory_leak=0") == {"memory_leak>0": "pass", "memory_leak=0": "fail"}
    against = gates(new, "memory_peak>+2%", "memory_peak>+10%", baseline=(str(old),))
    assert against == {"memory_peak>+2%": "fail", "memory_peak>+10%": "pass"}
    # 4096 + 460 + 90 MiB of 64 GiB
    assert gates(old, "memory_headroom<59GiB", "memory_headroom<60GiB", soc="Ascend910B1") == {
        "memory_headroom<59GiB": "pass", "memory_headroom<60GiB": "fail"
    }  # fmt: skip
    assert gates(old, "memory_headroom<1GiB") == {"memory_headroom<1GiB": "cannot_tell"}
    bare = Training().write(tmp_path, memory=False)
    asked = [f"memory_{what}>0" for what in ("peak", "reserved", "leak")] + ["memory_fragments>1%", "count.blocks>0"]
    assert set(gates(bare, *asked).values()) == {"cannot_tell"}


def test_a_lock_holds_bytes_of_every_step(sides: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = sides
    lock = tmp_path / "memory.lock"
    write_lock(analyze_path(old, no_cache=True), lock)
    assert f'"aten::mm": {{count: 8, bytes: {4 * (64 + 16) * MIB}}}' in lock.read_text()
    assert {g.status for g in analyze_path(old, check=(lock,), no_cache=True).gates} == {"pass"}
    failed = [g for g in analyze_path(new, check=(lock,), no_cache=True).gates if g.status == "fail"]
    said = " ".join(str(g.reason) + g.expr for g in failed)
    assert "aten::mm" in said and "aten::leaky" in said


def test_a_kept_baseline_keeps_what_the_peak_is_made_of(sides: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = sides
    (tmp_path / "main.json").write_bytes(encoded(reduced(analyze_path(old, no_cache=True)), text))
    found = analyze_path(new, baseline=("main",), baseline_dir=tmp_path, no_cache=True)
    assert found.comparison is not None
    wanted = compared(old, new)
    assert {(c.part, c.key): c.delta_bytes for c in found.comparison.memory} == wanted

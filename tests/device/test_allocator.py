"""What other settings of the allocator would reserve, held against an allocator of the tests' own that has them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from memory_plan import MIB
from memory_snapshot import PADDING, Allocator, dump

from npuperf.device.allocator import replay_allocator
from npuperf.model.device_memory import DeviceMemory
from npuperf.readers.log import ReadLog
from npuperf.readers.snapshot import read_snapshot

Move = tuple[str, int, int]


def moves(seed: int, count: int = 400) -> list[Move]:
    """What a program does: blocks by number, with bytes and stream; now and then the cache is emptied."""
    chance, live, waiting = random.Random(seed), list[int](), list[int]()
    found: list[Move] = []
    for number in range(count):
        if live and chance.random() < 0.45:
            block = live.pop(chance.randrange(len(live)))
            waits = chance.random() < 0.1
            found.append(("give" if waits else "free", block, 0))
            waiting += [block] * waits
        elif waiting and chance.random() < 0.4:
            found.append(("release", waiting.pop(0), 0))
        elif seed % 3 == 0 and chance.random() < 0.01:
            found.append(("empty", 0, 0))
        else:
            live.append(number)
            found.append((f"malloc {chance.choice((7, 7, 7, 9))}", number, int(2 ** chance.uniform(8, 28.5))))
    return found


class Numbered(Allocator):
    """An allocator that knows its blocks by their numbers in a list of moves."""

    def __init__(self, **asked: Any) -> None:
        super().__init__(**asked)
        self.numbers: dict[int, int] = {}


def played(moves: list[Move], allocator: Allocator) -> Allocator:
    at = allocator.numbers if isinstance(allocator, Numbered) else dict[int, int]()
    for move, number, size in moves:
        if move.startswith("malloc"):
            at[number] = allocator.malloc(size, int(move.split()[1]))
        elif move == "empty":
            allocator.empty_cache()
        elif move == "release":
            allocator.release(at[number])
        else:
            allocator.free(at[number], waits=move == "give")
    return allocator


def most(allocator: Allocator) -> int:
    return max(reserved for _, _, reserved in allocator.counters)


def read(allocator: Allocator, path: Path, *, entries: int | None = None) -> DeviceMemory:
    (memory,) = read_snapshot(dump(allocator.snapshot(entries=entries), path), ReadLog()).values()
    return memory


@pytest.mark.parametrize("seed", range(15))
def test_other_settings_reserve_what_an_allocator_that_has_them_does(tmp_path: Path, seed: int) -> None:
    done = moves(seed)
    as_it_was = played(done, Allocator())
    found = replay_allocator(read(as_it_was, tmp_path / "s.pickle"))
    assert found is not None
    assert found.recorded == most(as_it_was)
    assert found.split == {mb: most(played(done, Allocator(max_split=mb * MIB))) for mb in (64, 128, 256, 512)}
    expandable = most(played(done, Allocator(expandable=True)))
    # the tests' allocator gives no expandable segment back when the cache is emptied
    assert found.expandable == expandable if seed % 3 else found.expandable <= expandable


def test_a_growing_request_costs_segments_that_expandable_ones_reuse(tmp_path: Path) -> None:
    done: list[Move] = []
    for step in range(10):  # each step asks for a little more, so that no piece is ever large enough
        done += [("malloc 7", 2 * step, (100 + 4 * step) * MIB - PADDING), ("free", 2 * step, 0)]
    found = replay_allocator(read(played(done, Allocator()), tmp_path / "s.pickle"))
    assert found is not None
    assert found.recorded == sum(100 + 4 * step for step in range(10)) * MIB
    assert found.expandable == 140 * MIB  # 136 MiB in pages of 20


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("ring", [False, True])
def test_a_history_that_begins_late_is_replayed_from_what_was_there(tmp_path: Path, seed: int, ring: bool) -> None:
    """Recording that begins late, and one of which only the last events are kept; blocks are freed and kept."""
    done, late = moves(seed), 150 + 5 * seed
    began = Numbered()
    played(done[:late], began)
    _, active, held = began.counters[-1]
    at = Numbered()
    at.recording = ring
    played(done[:late], at)
    at.recording, kept = True, len(at.events)
    played(done[late:], at)
    entries = len(at.events) + 1 - kept if ring else None  # one for the snapshot's own
    found = replay_allocator(read(at, tmp_path / "s.pickle", entries=entries))
    assert found is not None
    assert (found.older, found.recorded) == (active, max([held, *(most for _, _, most in at.counters[kept:])]))
    for mb, reserved in found.split.items():  # the setting changed where the history begins
        other = Numbered()
        played(done[:late], other)
        other.max_split = mb * MIB
        played(done[late:], other)
        assert reserved == max(most for _, _, most in other.counters[len(began.counters) - 1 :])
    assert found.expandable >= max(active for _, active, _ in at.counters[kept:])


def test_expandable_segments_begin_with_what_was_there_side_by_side(tmp_path: Path) -> None:
    """Blocks of 40 MiB, and free segments of 20 between them: neither has room for 60 MiB; together they lack 20."""
    allocator = Allocator()
    allocator.recording = False
    blocks = [allocator.malloc(size * MIB - PADDING) for size in (40, 20, 40, 20, 40)]
    for gap in (1, 3):
        allocator.free(blocks[gap])
    allocator.recording = True
    allocator.free(allocator.malloc(60 * MIB - PADDING))
    found = replay_allocator(read(allocator, tmp_path / "s.pickle"))
    assert found is not None
    assert (found.older, found.recorded) == (120 * MIB, 220 * MIB)
    assert found.expandable == 180 * MIB


def test_silent_where_the_recorded_segments_do_not_come_out_again(tmp_path: Path) -> None:
    done = moves(1)
    lost = played(done, Allocator())
    lost.events.pop(next(at for at, event in enumerate(lost.events) if event["action"] == "free_completed"))
    assert replay_allocator(read(lost, tmp_path / "lost.pickle")) is None
    moved = played(done, Allocator())
    moved.segments[-1].pieces[0].address -= MIB  # what was there does not fit into the segments
    assert replay_allocator(read(moved, tmp_path / "moved.pickle")) is None
    assert replay_allocator(read(played(done, Allocator(expandable=True)), tmp_path / "expandable.pickle")) is None
    other = played(done, Allocator(max_split=64 * MIB))  # which a snapshot of torch_npu does not tell
    assert replay_allocator(read(other, tmp_path / "split.pickle")) is None

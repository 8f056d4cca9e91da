"""Memory snapshots: every byte held against an allocator of the tests' own, and pickles that mean harm."""

from __future__ import annotations

import os
import pickle
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build import analyze_path
from memory_plan import MIB, Block, Plan, Training, write_memory
from memory_snapshot import PADDING, Allocator, dump, run_plan

from npuperf.base.errors import InputError
from npuperf.model.device_memory import DeviceMemory
from npuperf.model.tasks import NO_TIME
from npuperf.readers.log import ReadLog
from npuperf.readers.snapshot import read_snapshot
from npuperf.show.memory_text import memory_lines

LINE = ("/home/u/train.py", 41, "forward")
LIBRARY = ("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125, "forward")


def read(path: Path, log: ReadLog | None = None) -> DeviceMemory:
    (memory,) = read_snapshot(path, log or ReadLog()).values()
    return memory


def told(memory: DeviceMemory) -> list[tuple[int, int, int]]:
    """The counters of a memory, without those after which nothing is different."""
    counters = memory.counters
    return [*zip(counters.allocated.tolist(), counters.active.tolist(), counters.reserved.tolist(), strict=True)]


def changes(counters: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [now for at, now in enumerate(counters) if not at or now != counters[at - 1]]


def played(seed: int, count: int = 300, **options: Any) -> Allocator:
    """An allocator after random use, with sizes from bytes to tens of megabytes on two streams."""
    chance, allocator, live = random.Random(seed), Allocator(**options), list[int]()
    waiting: list[int] = []
    for _ in range(count):
        allocator.now += chance.choice((0, 0, 1, 7))
        if live and chance.random() < 0.45:
            address = live.pop(chance.randrange(len(live)))
            waits = chance.random() < 0.2
            allocator.free(address, waits=waits)
            waiting += [address] * waits
        elif waiting and chance.random() < 0.3:
            allocator.release(waiting.pop(0))
        elif chance.random() < 0.02:
            allocator.empty_cache()
        else:
            size = int(2 ** chance.uniform(0, 25.5))
            live.append(
                allocator.malloc(
                    size, chance.choice((7, 7, 9)), LIBRARY, ("/home/u/train.py", chance.randrange(5), "f")
                )
            )
    return allocator


@pytest.mark.parametrize("seed", range(25))
def test_every_counter_and_every_size_is_that_of_the_allocator(tmp_path: Path, seed: int) -> None:
    timed = seed % 2 == 1  # as of torch.cuda, which asks for no more than it is asked for; nor does a newer NPU
    allocator = played(seed, expandable=seed % 4 > 1, padding=0 if timed or seed % 5 == 4 else PADDING)
    memory = read(dump(allocator.snapshot(timed=timed), tmp_path / "s.pickle"))
    assert memory.doubt is None
    assert memory.blocks.size.tolist() == allocator.sizes
    assert told(memory) == changes(allocator.counters)
    assert memory.time_known == timed
    for times in (memory.counters.time, memory.blocks.start):
        assert (np.diff(times) > 0).all()
    assert int(memory.segments.size.sum()) == allocator.counters[-1][2]
    taken = sum(e["size"] for e in allocator.events if e["action"] in ("segment_alloc", "segment_map"))
    given = sum(e["size"] for e in allocator.events if e["action"] == "segment_free")
    assert int(memory.segment_events.size.sum()) == taken - given == allocator.counters[-1][2]


def test_blocks_have_their_ends_their_stream_and_their_line(tmp_path: Path) -> None:
    allocator = Allocator()
    first = allocator.malloc(3 * MIB, 7, LIBRARY, LINE, ("/home/u/run.py", 3, "<module>"))
    second = allocator.malloc(100, 9, LIBRARY)
    allocator.free(first, waits=True)
    third = allocator.malloc(3 * MIB, 7, ("", 0, "at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)"),
                             ("", 0, "at::_ops::add_Tensor::call(at::Tensor const&)"), LINE)  # fmt: skip
    allocator.release(first)
    memory = read(dump(allocator.snapshot(), tmp_path / "s.pickle"))
    blocks = memory.blocks
    # events: two segments are taken for the first two blocks, none for the third one
    assert blocks.start.tolist() == [2, 4, 6]
    assert blocks.freed.tolist() == [5, NO_TIME, NO_TIME]
    assert blocks.released.tolist() == [7, NO_TIME, NO_TIME]
    assert blocks.address.tolist() == [first, second, third]
    assert blocks.stream.tolist() == [7, 9, 7]
    assert blocks.where.texts() == ["u/train.py:41 forward", None, "u/train.py:41 forward"]
    assert blocks.name.texts() == [None, None, "aten::add"]
    assert not memory.time_known


def test_what_lived_before_a_bounded_history_has_no_beginning(tmp_path: Path) -> None:
    plan = Plan(
        1001 * MIB,
        (Block(10_000, 90_000, 300 * MIB), Block(20_000, 30_000, 512), Block(40_000, None, 4 * MIB, waits=5_000)),
        older=((35_000, 100 * MIB), (95_000, MIB)),
    )
    allocator = Allocator()
    run_plan(plan, allocator)
    memory = read(dump(allocator.snapshot(timed=True), tmp_path / "s.pickle"))
    assert told(memory) == changes(allocator.counters)
    assert memory.blocks.size.tolist() == [300 * MIB, 512, 4 * MIB]
    assert memory.counters.allocated[0] == 1001 * MIB  # a segment is taken before anything is handed out
    assert (memory.counters.time[1] - memory.counters.time[0]) == 1  # within one microsecond, in order
    last = 6
    cut = read(dump(allocator.snapshot(entries=last), tmp_path / "cut.pickle"))
    assert told(cut) == changes(allocator.counters[-last:-1])
    assert len(cut.blocks) < 3


def test_running_out_of_memory_is_told(tmp_path: Path) -> None:
    allocator = Allocator(device_bytes=100 * MIB)
    allocator.malloc(60 * MIB - PADDING, 7, LINE)
    assert allocator.malloc(50 * MIB - PADDING, 7, LIBRARY, LINE) == -1
    (failure,) = read(dump(allocator.snapshot(), tmp_path / "s.pickle")).failures
    assert (failure.asked, failure.free, failure.where) == (50 * MIB, 40 * MIB, "u/train.py:41 forward")


def test_the_workspace_is_no_part_of_the_pool(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.malloc(5 * MIB)
    memory = read(dump(allocator.snapshot(workspace=(8 * MIB, 2 * MIB)), tmp_path / "s.pickle"))
    assert told(memory) == changes(allocator.counters)
    assert [*zip(memory.modules.name.texts(), memory.modules.size.tolist(), strict=True)] == [("workspace", 10 * MIB)]
    assert len(memory.blocks) == 1


@pytest.mark.parametrize(("pool", "told"), [((3, 0), True), ((0, 3), False)])  # of a graph, and a user's own
@pytest.mark.parametrize("without", ["", "pool_id", "segment_pool_id"])
def test_blocks_of_a_graph_s_pool_stay_with_it(tmp_path: Path, pool: tuple[int, int], without: str, told: bool) -> None:
    allocator = Allocator()
    allocator.malloc(30 * MIB)
    first = allocator.malloc(60 * MIB, 7, LINE)
    allocator.malloc(5 * MIB)
    state = allocator.snapshot()
    for row in [*state["segments"], *state["device_traces"][0]]:
        if first in (row.get("address"), row.get("addr")):
            row["segment_pool_id" if "address" in row else "pool_id"] = pool
        if without:
            row.pop(without, None)
    memory = read(dump(state, tmp_path / "s.pickle"))
    assert memory.of_graphs.tolist() == [False, told, False]
    found = analyze_path(tmp_path / "s.pickle", no_cache=True).devices[0].memory
    assert found is not None
    pools = [(one.where, one.bytes) for one in found.alive if one.class_ == "graph_pool"]
    assert pools == ([("u/train.py:41 forward", allocator.sizes[1])] if told else [])


def test_devices_are_told_apart_and_others_have_no_memory(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.malloc(5 * MIB)
    assert [*read_snapshot(dump(allocator.snapshot(device=3), tmp_path / "s.pickle"), ReadLog())] == [3]


def test_state_without_history_and_history_without_state(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.malloc(5 * MIB, 7, LINE)
    whole = allocator.snapshot()
    state = read(dump({**whole, "device_traces": [[]]}, tmp_path / "state.pickle"))
    assert (len(state.blocks), len(state.counters)) == (0, 1)
    assert told(state) == [allocator.counters[-1]]
    used = state.segments.state.texts().index("active_allocated")
    assert state.segments.where[used] == "u/train.py:41 forward"
    assert told(read(dump(whole["segments"], tmp_path / "list.pkl"))) == [allocator.counters[-1]]
    history = read(dump({**whole, "segments": []}, tmp_path / "history.pickle"))
    assert history.doubt is not None


def test_a_history_that_contradicts_the_state_is_in_doubt(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.malloc(5 * MIB)
    snapshot = allocator.snapshot()
    for block in snapshot["segments"][0]["blocks"]:
        block["state"] = "inactive"
    assert read(dump(snapshot, tmp_path / "s.pickle")).doubt is not None
    other = Allocator()
    other.malloc(100_000)
    snapshot = other.snapshot()
    snapshot["segments"][0]["blocks"][0]["size"] += 512
    assert read(dump(snapshot, tmp_path / "t.pickle")).doubt is not None


def test_rows_that_are_not_what_they_should_be_are_counted(tmp_path: Path) -> None:
    allocator = Allocator()
    for _ in range(4):
        allocator.malloc(5 * MIB, 7, LINE)
    snapshot = allocator.snapshot()
    trace = snapshot["device_traces"][0]
    trace += [7, {"action": "alloc"}, {"action": "alloc", "addr": 1 << 70, "size": 1, "stream": 1},
              {"action": ["alloc"], "addr": 1, "size": 1, "stream": 1},
              {"action": "melt", "addr": 1, "size": 1, "stream": 1},
              {"action": "alloc", "addr": 1, "size": 1.5, "stream": True}]  # fmt: skip
    snapshot["segments"] += ["x", {"address": "0"}]
    snapshot["segments"][0]["blocks"].append(None)
    trace[1]["frames"] = {"line": 1}
    trace[2]["frames"] = [3, {"filename": 3, "line": "x", "name": None}]
    log = ReadLog()
    memory = read(dump(snapshot, tmp_path / "s.pickle"), log)
    assert len(memory.blocks) == 4
    assert {str(lost.reason).split()[0]: lost.rows for lost in log.lost} == {"segments": 2, "blocks": 1, "events": 6}


# -- Pickles that are no snapshots, or mean harm.


class Runs:
    """What unpickles to a call of os.system."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def nested(depth: int) -> bytes:
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


def hostile(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    allocator = Allocator()
    allocator.malloc(5 * MIB)
    good = pickle.dumps(allocator.snapshot())
    begin, ran = b"\x80\x04}\x8c\x08segments", f"touch {folder}/ran"
    yield "system", pickle.dumps({"segments": [], "device_traces": [[Runs(ran)]]}), "asks for"
    yield "old", b"cos\nsystem\n(S'" + ran.encode() + b"'\ntR.", "asks for os.system"
    yield "inst", b"(S'" + ran.encode() + b"'\nios\nsystem\n.", "asks for os.system"
    yield "eval", b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "asks for builtins.eval"
    yield "elsewhere", begin + b"\x8c\x01xQs.", "asks for an object that lies elsewhere"
    yield "extension", begin + b"\x82\x01s.", "damaged"
    yield "build", begin + b"]\x8c\x01xbs.", "damaged"
    yield "called", begin + b"\x8c\x01x)Rs.", "damaged"
    yield "deep", nested(2_000_000), "no memory snapshot"
    yield "hashed", b"\x80\x04})" + b"\x85" * 2_000_000 + b"K\x01s.", "harm"
    yield "itself", b"\x80\x04]\x94h\x00a.", "no memory snapshot"
    yield "memo", begin + b"r" + struct.pack("<I", 0x7FFF_FFFF) + b"]s.", "memory"
    yield "bytes", begin + b"\x8e" + struct.pack("<Q", 1 << 42) + b"x" * 100, "memory"
    yield "long", begin + b"\x8b" + struct.pack("<i", 0x7FFF_FFF0) + b"x" * 100, "memory"
    yield "text", begin + b"\x8d" + struct.pack("<Q", 1 << 42) + b"x" * 100, "memory"
    yield "cut", good[: len(good) // 2], "cut off"
    yield "empty", b"", "cut off"
    yield "text file", b"hello, world\n", "damaged"
    yield "number", pickle.dumps(3), "no memory snapshot"
    yield "numbers", pickle.dumps({"segments": 3, "device_traces": {}}), "no memory snapshot"
    yield "other", pickle.dumps({"model": [1, 2]}), "no memory snapshot"
    yield "nothing", pickle.dumps({"segments": [], "device_traces": []}), "without segments"


def test_no_pickle_runs_anything_or_takes_more_than_it_may(tmp_path: Path) -> None:
    for name, data, expected in hostile(tmp_path):
        path = tmp_path / "s.pickle"
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            read_snapshot(path, ReadLog())
        assert expected in str(caught.value), (name, str(caught.value))
    assert not (tmp_path / "ran").exists()


# -- Where snapshots lie.


def made(folder: Path, name: str, seed: int = 1) -> Allocator:
    folder.mkdir(parents=True, exist_ok=True)
    allocator = played(seed, 60)
    dump(allocator.snapshot(), folder / name)
    return allocator


def test_a_snapshot_alone_is_a_device_without_kernels(tmp_path: Path) -> None:
    allocator = made(tmp_path, "oom_snapshot_123_20261126083000.pickle")
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"model": [1, 2]}))
    for path in (tmp_path, tmp_path / "oom_snapshot_123_20261126083000.pickle"):
        result = analyze_path(path, no_cache=True)
        memory = result.devices[0].memory
        assert memory is not None
        assert (result.input.kind, memory.source, memory.timed) == ("snapshot", "snapshot", False)
        assert memory.peak_bytes == max(used for used, _, _ in allocator.counters)
        assert (memory.residual_bytes, memory.split, memory.peak_at_ns) == (0, "measured", None)
        assert not result.input.lost and not result.input.missing
        assert "its events have no times" in str(memory_lines(result)[0].content)


def test_a_snapshot_beside_a_profile_is_of_its_device(tmp_path: Path) -> None:
    folder = Training().write(tmp_path, memory=False)
    allocator = made(tmp_path, "snapshot.pickle")
    (device,) = analyze_path(tmp_path, no_cache=True).devices
    assert device.memory is not None and device.memory.source == "snapshot"
    assert device.memory.peak_bytes == max(used for used, _, _ in allocator.counters)
    assert device.partition.compute_ns > 0
    # what the profiler recorded has steps and operators; the snapshot adds what it alone knows
    whole = Training()
    write_memory(whole.plan(), folder / "ASCEND_PROFILER_OUTPUT")
    (device,) = analyze_path(tmp_path, no_cache=True).devices
    assert device.memory is not None and device.memory.source == "profiler"
    assert device.memory.peak_bytes == whole.plan().peak()[0]


def test_snapshots_of_several_processes_in_one_folder_are_several_devices(tmp_path: Path) -> None:
    for device in range(3):
        dump(
            played(device, 40).snapshot(device=device), tmp_path / f"oom_snapshot_{100 + device}_20261126083000.pickle"
        )
    assert [d.device for d in analyze_path(tmp_path, no_cache=True).devices] == [0, 1, 2]


def test_a_damaged_snapshot_leaves_the_profile(tmp_path: Path) -> None:
    Training().write(tmp_path)
    made(tmp_path, "snapshot.pickle")
    whole = (tmp_path / "snapshot.pickle").read_bytes()
    (tmp_path / "snapshot.pickle").write_bytes(whole[: len(whole) // 2])
    result = analyze_path(tmp_path, no_cache=True)
    assert result.devices[0].memory is not None and result.devices[0].memory.source == "profiler"
    assert any("cut off" in str(warning) for warning in result.input.warnings)

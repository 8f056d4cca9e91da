"""Counts per step: held against what was built, and against counting row by row."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, H, K, analyze_path, ascend_pt, kernel_details
from conversion import to_db
from inputs import KERNELS, database

from npuperf.analyze.counting import MOST_KEYS, Places, host_alone, merge_counts, tallied
from npuperf.model.device import HostSteps
from npuperf.model.intervals import Intervals
from npuperf.model.labels import Labels
from npuperf.model.parts import Count, CountKind
from npuperf.model.result import Result

STEPS = {7: (0, 100_000), 8: (100_000, 200_000)}


def step(begin: int, number: int, matmuls: int) -> list[K]:
    """One step of 100 us: matmuls, an addition on the AI CPU, a copy, an allReduce; launched just before."""
    known = {"step": number, "launch_dur": 500}

    def at(start: int) -> dict[str, int]:
        return {**known, "launch": start - 1_000}

    first, then = begin + 10_000, begin + 60_000
    made = [
        K(start, 4_000, "mm", "MatMul", "AI_CORE", shapes="2,3;3,4", **at(start))
        for start in range(first, first + 5_000 * matmuls, 5_000)
    ]
    made.append(K(then, 3_000, "add", "Add", "AI_CPU", **at(then)))
    made.append(K(then + 10_000, 3_000, "MEMCPY_ASYNC", "", "PCIE_DMA_SQE", **at(then + 10_000)))
    reduce = ("hcom_allReduce__868_0_1", "hcom_allReduce_", "COMMUNICATION")
    made.append(K(then + 20_000, 5_000, *reduce, "N/A", 0, **at(then + 20_000)))
    return made


def calls(begin: int, syncs: int) -> list[H]:
    made = [H("AscendCL@aclrtSynchronizeStream", begin + 88_000 + 2_000 * n, 1_000) for n in range(syncs)]
    made += [H("AscendCL@opCompile", begin + 2_000, 2_000), H("AscendCL@aclopCompile", begin + 2_500, 500)]
    return [
        *made,
        H("AscendCL@aclrtMallocAlign32", begin + 5_000, 100),
        H("AscendCL@aclmdlRIExecuteAsync", begin + 6_000, 100),
    ]


@pytest.fixture
def built(tmp_path: Path) -> Result:
    """Two steps; the second has one matmul more, and waits once more."""
    kernels = [*step(0, 7, 3), *step(100_000, 8, 4)]
    return analyze_path(ascend_pt(tmp_path, kernels, STEPS, host=[*calls(0, 1), *calls(100_000, 2)]))


def counted(result: Result) -> dict[tuple[CountKind, str], list[int]]:
    assert result.digest is not None
    return {(c.kind, c.key): c.count for c in result.digest.counts}


def test_everything_is_counted_where_it_happens(built: Result) -> None:
    assert built.digest is not None
    assert built.digest.steps == [7, 8]
    assert counted(built) == {
        ("launch", "MatMul [2,3;3,4]"): [3, 4],
        ("launch", "Add"): [1, 1],
        ("aicpu", "Add"): [1, 1],
        ("copy", "MEMCPY_ASYNC"): [1, 1],
        ("collective", "allReduce"): [1, 1],
        ("sync", "AscendCL@aclrtSynchronizeStream (stream)"): [1, 2],
        ("compile", "AscendCL@opCompile"): [1, 1],  # with another one inside, which is a part of it
        ("graph_replay", "AscendCL@aclmdlRIExecuteAsync"): [1, 1],
        ("allocation", "AscendCL@aclrtMallocAlign32"): [1, 1],
    }
    assert built.digest.uncounted == ["block", "host_operator"]


def test_one_step_is_counted_as_in_all(tmp_path: Path) -> None:
    kernels = [*step(0, 7, 3), *step(100_000, 8, 4)]
    folder = ascend_pt(tmp_path, kernels, STEPS, host=[*calls(0, 1), *calls(100_000, 2)])
    everything, second = counted(analyze_path(folder)), counted(analyze_path(folder, step=8))
    assert second == {key: [count[1]] for key, count in everything.items()}


def test_a_table_alone_tells_nothing_of_calls_and_copies(tmp_path: Path) -> None:
    kernel_details(tmp_path / "kernel_details.csv", [k for k in step(0, 7, 3) if k.type])
    result = analyze_path(tmp_path)
    assert result.digest is not None
    assert result.digest.uncounted == [
        "sync",
        "copy",
        "compile",
        "graph_replay",
        "allocation",
        "block",
        "host_operator",
    ]
    assert counted(result)["launch", "MatMul [2,3;3,4]"] == [3]
    assert counted(result)["collective", "allReduce"] == [1]


def test_databases_count_like_text(tmp_path: Path) -> None:
    path = database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, "blockNum",
                    [H("AscendCL@aclrtSynchronizeDevice", 70_000, 100)])  # fmt: skip
    found = counted(analyze_path(path))
    assert found["launch", "MatMul"] == [1, 0]
    assert found["launch", "Add"] == [1, 1]
    assert found["sync", "AscendCL@aclrtSynchronizeDevice (device)"] == [0, 1]


def test_without_steps_all_that_was_recorded_is_one(tmp_path: Path) -> None:
    kernels = [K(k.start, k.dur, k.name, k.type, k.core, k.stream, k.block, k.mix, "", k.launch, k.launch_dur,
                 shapes=k.shapes) for k in step(0, 7, 3)]  # fmt: skip
    result = analyze_path(ascend_pt(tmp_path, kernels, host=calls(0, 2)))
    assert result.digest is not None
    assert result.digest.steps == []
    assert counted(result)["sync", "AscendCL@aclrtSynchronizeStream (stream)"] == [2]
    assert counted(result)["launch", "MatMul [2,3;3,4]"] == [3]


def test_lines_of_code_are_those_of_the_calls(tmp_path: Path) -> None:
    frames = [
        H("/home/me/train.py(41): loss", 85_000, 5_000, python=True),
        H("/home/me/train.py(52): log", 90_500, 5_000, python=True),
    ]
    waits = [H("AscendCL@aclrtSynchronizeStream", 88_000, 1_000), H("AscendCL@aclrtSynchronizeStream", 91_000, 1_000)]
    result = analyze_path(ascend_pt(tmp_path, step(0, 7, 1), {7: (0, 100_000)}, host=[*frames, *waits]))
    assert result.digest is not None
    (sync,) = (c for c in result.digest.counts if c.kind == "sync")
    assert (sync.count, sync.where) == ([2], "me/train.py:41 loss, me/train.py:52 log")


def test_waits_of_the_profiler_are_not_the_programs(tmp_path: Path) -> None:
    """Nor is it known without the table of kernels which of them were on the AI CPU."""
    ours = [H(f"AscendCL@aclrtSynchronize{what}", at, 500) for what, at in (("Stream", 70_000), ("Device", 72_000))]
    theirs = [
        H("torch_npu/profiler/profiler.py(231): step", 74_000, 9_000, python=True),
        H("AscendCL@aclrtSynchronizeStream", 76_000, 500),
    ]
    folder = ascend_pt(tmp_path, step(0, 7, 1), {7: (0, 100_000)}, host=[*ours, *theirs])
    next(folder.rglob("kernel_details.csv")).unlink()
    result = analyze_path(folder)
    assert result.digest is not None and "aicpu" in result.digest.uncounted
    waits = {key: count for (kind, key), count in counted(result).items() if kind == "sync"}
    assert waits == {
        "AscendCL@aclrtSynchronizeStream (stream)": [1], "AscendCL@aclrtSynchronizeDevice (device)": [1],
    }  # fmt: skip


def test_bytes_of_copies_are_summed_by_direction(tmp_path: Path) -> None:
    """In a timeline, and in the same as a database; where one of them has no size, there is no sum."""
    kernels = [K(start, 2_000, "mm", "MatMul", "AI_CORE", step=7) for start in (1_000, 50_000)]
    copies = [(10_000, "host to device", 100), (20_000, "host to device", 2**33), (30_000, "device to host", 8)]
    kernels += [K(start, 5_000, "MEMCPY_ASYNC", "", "PCIE_DMA_SQE", step=7) for start, _, _ in copies]
    for known in (True, False):
        folder = ascend_pt(tmp_path / str(known), kernels, {7: (0, 100_000)})
        trace = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
        events = json.loads(trace.read_text())
        mine = [e for e in events if e["name"] == "MEMCPY_ASYNC"]
        for event, (_, direction, size) in zip(mine, copies, strict=True):
            event["args"] |= {"operation": direction, "size(B)": size}
        if not known:
            del mine[0]["args"]["size(B)"]
        trace.write_text(json.dumps(events))
        for path in (folder, to_db(folder, tmp_path / f"{known}.db")) if known else (folder,):
            digest = analyze_path(path).digest
            assert digest is not None
            found = {c.key: (c.count, c.bytes) for c in digest.counts if c.kind == "copy"}
            assert found == {
                "host to device": ([2], [2**33 + 100] if known else None),
                "device to host": ([1], [8]),
            }


def test_bytes_of_collectives_are_those_of_the_file(tmp_path: Path) -> None:
    """Only one of two operations has its size recorded: then the kind of operation has none."""
    kernels = [K(1_000, 5_000, "a", "Add", step=7), *(
        K(10_000 * n, 5_000, f"hcom_allReduce__868_{n}_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=7)
        for n in (1, 2)
    )]  # fmt: skip
    for recorded, moved in ((("1", "2"), [3_000_000]), (("1",), None)):
        folder = ascend_pt(tmp_path / str(len(recorded)), kernels)
        sizes = {"Transit Size(MB)": 1.5, "Transit Time(ms)": 0.004, "Bandwidth(GB/s)": 300.0, "Size Distribution": {}}
        ops = {
            f"hcom_allReduce__868_{n}_1@17522688603477080868": {
                "Communication Time Info": {
                    "Start Timestamp(us)": (EPOCH + 10_000 * int(n)) / 1000,
                    "Elapse Time(ms)": 0.005, "Transit Time(ms)": 0.004, "Wait Time(ms)": 0,
                    "Synchronization Time(ms)": 0, "Idle Time(ms)": 0.001,
                },
                "Communication Bandwidth Info": {"HCCS": sizes},
            }
            for n in recorded
        }  # fmt: skip
        content = json.dumps({"step7": {"collective": ops, "p2p": {}}})
        (folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").write_text(content)
        result = analyze_path(folder)
        assert result.digest is not None
        (found,) = (c for c in result.digest.counts if c.kind == "collective")
        assert (found.key, found.count, found.bytes) == ("allReduce", [2], moved)


# --- the parts, by brute force ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_places_are_those_that_looking_at_each_would_find(seed: int) -> None:
    rng = random.Random(seed)
    borders = sorted(rng.sample(range(1_000), 8))
    windows = [*zip(borders[::2], borders[1::2], strict=True)]
    rng.shuffle(windows)
    begin, end = (np.array(side, np.int64) for side in zip(*windows, strict=True))
    numbers = np.array(rng.sample(range(50), len(windows)), np.int64)
    time = np.sort(np.array([rng.randrange(1_000) for _ in range(300)] + borders, np.int64))
    expected = [next((i for i, (a, b) in enumerate(windows) if a <= t < b), -1) for t in time.tolist()]
    places = Places(Intervals(begin, end), numbers, HostSteps.empty())
    assert places.of_tasks(time).tolist() == expected
    host = HostSteps(numbers[::-1], begin[::-1], end[::-1])
    order = rng.sample(range(len(time)), len(time))
    of_host = Places(Intervals(begin[:0], end[:0]), numbers, host).of_calls(time[order])
    assert of_host.tolist() == [expected[i] for i in order]


@pytest.mark.parametrize("seed", range(5))
def test_tallies_are_those_of_counting_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    keys = [rng.choice(["a", "b", "c", None]) for _ in range(400)]
    place = [rng.randrange(-1, 3) for _ in range(400)]
    moved = [rng.randrange(100) if key != "b" else -1 for key in keys]
    counts, first, _ = tallied("copy", Labels.of(keys), np.array(place), 3, moved=np.array(moved))
    rows = [(k, p, m) for k, p, m in zip(keys, place, moved, strict=True) if k and p >= 0]
    expected = Counter((k, p) for k, p, _ in rows)
    assert {(c.key, p): n for c in counts for p, n in enumerate(c.count) if n} == dict(expected)
    for count, row in zip(counts, first.tolist(), strict=True):
        assert row == next(i for i, (k, p) in enumerate(zip(keys, place, strict=True)) if k == count.key and p >= 0)
        sums = [sum(m for k, p, m in rows if (k, p) == (count.key, at)) for at in range(3)]
        assert count.bytes == (None if count.key == "b" else sums)


def test_too_many_keys_are_told_apart_by_less() -> None:
    size = MOST_KEYS + 1
    keys, types = Labels.of([f"Add [{n}]" for n in range(size)]), Labels.of(["Add"] * size)
    counts, _, _ = tallied("launch", keys, np.zeros(size, np.int64), 1, less=types)
    assert [(c.key, c.count) for c in counts] == [("Add", [size])]


def test_devices_are_added_by_the_numbers_of_their_steps() -> None:
    mine = [
        Count(kind="launch", key="Add", count=[1, 2], where="a.py:1 f"),
        Count(kind="copy", key="host to device", count=[1, 0], bytes=[10, 0]),
        Count(kind="sync", key="wait", count=[1, 1]),
    ]
    theirs = [
        Count(kind="launch", key="Add", count=[10, 20]),
        Count(kind="copy", key="host to device", count=[1, 1], bytes=[5, 6]),
    ]
    one, other = host_alone([3, 4], [1, 1], mine, []), host_alone([4, 5], [1, 1], theirs, ["sync"])
    counts, untold = merge_counts([one, other], [3, 4, 5])
    assert counts == [
        Count(kind="launch", key="Add", count=[1, 12, 20], where="a.py:1 f"),
        Count(kind="copy", key="host to device", count=[1, 1, 1], bytes=[10, 5, 6]),
    ]
    assert untold == ["sync"]  # of one device it is known, which is not all of it


def test_bytes_that_one_device_does_not_tell_are_not_told() -> None:
    one, other = Count(kind="copy", key="a", count=[1], bytes=[10]), Count(kind="copy", key="a", count=[2])
    counts, _ = merge_counts([host_alone([], [], [one], []), host_alone([], [], [other], [])], [])
    assert counts == [Count(kind="copy", key="a", count=[3])]

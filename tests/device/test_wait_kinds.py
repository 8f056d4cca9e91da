"""What the host waits for, from events nested by hand and copies as they are recorded."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from build import H, K, ascend_pt
from small_programs import analyzed, answer

from npuperf.device.host_events import Nesting
from npuperf.device.syncs import SyncPoint, find_syncs, sync_name, sync_names, sync_points
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import Labels
from npuperf.model.result import Result, SyncSite
from npuperf.model.tasks import Tasks, Work

Event = tuple[int, int, int, str]  # thread, start, end, name
DATA = Path(__file__).parents[3] / "shared" / "data"


def points(events: list[Event], copies: list[tuple[str, int, int]] = ()) -> list[SyncPoint]:  # type: ignore[assignment]
    """Sync points of events; ``copies``: device copies by name, thread and time of their launch."""
    rows = sorted(events, key=lambda e: (e[0], e[1], -e[2]))
    thread, start, end = (np.array([e[i] for e in rows], np.int64) for i in range(3))
    built = Nesting.build(Spans(start, end, thread, Labels.of([e[3] for e in rows])))
    launch = np.array([c[2] for c in copies], np.int64)
    tasks = Tasks.build(
        launch + 5, launch + 6, np.full(len(copies), Work.OTHER, np.uint8), name=Labels.of([c[0] for c in copies]),
        launch_start=launch, launch_end=launch + 1, launch_thread=np.array([c[1] for c in copies], np.int64),
    )  # fmt: skip
    return sync_points(find_syncs(built), built, HostOps(), tasks)


def only(events: list[Event], copies: list[tuple[str, int, int]] = ()) -> SyncPoint:  # type: ignore[assignment]
    (point,) = points(events, copies)
    return point


STREAM = "AscendCL@aclrtSynchronizeStreamWithTimeout"


def test_a_queued_copy_to_the_device_tells_its_direction() -> None:
    """images.npu() of torch_npu: the copy is queued, another thread submits it, the host waits. Once: no kind."""
    batch = [
        (1, 0, 100, "train.py(375): train"),
        (1, 2, 90, "aten::to"),
        (1, 4, 88, "aten::copy_"),
        (1, 6, 10, "acl_memcpy_host_to_device"),
        (1, 12, 86, STREAM),
        (2, 11, 20, "Dequeue@acl_memcpy_host_to_device"),
    ]
    point = only(batch)
    assert (point.kind, point.op, point.pinned, point.purpose) == ("htod", "aten::to", None, None)
    back = [(t, a, b, n.replace("host_to_device", "device_to_host")) for t, a, b, n in batch]
    assert only(back).kind == "dtoh"
    # Of another operator's copy nothing follows, nor of a copy that is submitted after the wait.
    assert only([e for e in batch if "memcpy" not in e[3]] + [(1, 95, 97, "acl_memcpy_host_to_device")]).kind == "copy"
    late = [e for e in batch if e[0] == 1 and "memcpy" not in e[3]] + [(1, 87, 88, "acl_memcpy_host_to_device")]
    assert only(late).kind == "copy"


@pytest.mark.parametrize(
    ("name", "kind", "pinned"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "htod", False),
        ("Memcpy HtoD (Pinned -> Device)", "htod", True),
        ("Memcpy DtoH (Device -> Pageable)", "dtoh", False),
        ("Memcpy DtoD (Device -> Device)", "dtod", None),
    ],
)
def test_a_copy_of_a_gpu_tells_direction_and_memory(name: str, kind: str, pinned: bool | None) -> None:
    copy = [(1, 0, 50, "aten::to"), (1, 1, 49, "aten::copy_"), (1, 2, 10, "cudaMemcpyAsync"),
            (1, 11, 40, "cudaStreamSynchronize")]  # fmt: skip
    point = only(copy, [(name, 1, 2)])
    assert (point.kind, point.pinned) == (kind, pinned)
    assert only(copy).kind == "copy"
    assert only(copy, [(name, 7, 2)]).kind == "copy"  # another thread's


def test_the_last_copy_before_the_wait_counts() -> None:
    """An operator that copies its argument to the device and its result back waits for the latter."""
    events = [(1, 0, 50, "aten::nonzero"), (1, 1, 3, "cudaMemcpyAsync"), (1, 4, 8, "cudaMemcpyAsync"),
              (1, 10, 40, "cudaStreamSynchronize")]  # fmt: skip
    copies = [("Memcpy HtoD (Pinned -> Device)", 1, 1), ("Memcpy DtoH (Device -> Pinned)", 1, 4)]
    assert only(events, copies).kind == "dtoh"


@pytest.mark.parametrize(
    ("around", "call", "kind"),
    [
        (["aten::item", "aten::_local_scalar_dense"], STREAM, "dtoh"),
        (["aten::item", "aten::_local_scalar_dense"], "AscendCL@aclrtMemcpy", "dtoh"),
        (["<built-in method cpu of Tensor object at 0x7f>", "aten::to", "aten::copy_"], "AscendCL@aclrtMemcpy", "dtoh"),
        (["<built-in method npu of Tensor object at 0x7f>", "aten::to", "aten::copy_"], "AscendCL@aclrtMemcpy", "htod"),
        (["<built-in method to of Tensor object at 0x7f>", "aten::to", "aten::copy_"], "AscendCL@aclrtMemcpy", "copy"),
        (["aten::_to_copy"], "AscendCL@aclrtSynchronizeStream", "copy"),
        (["memcpy_host_to_device.py(3): main"], "AscendCL@aclrtSynchronizeStream", "stream"),
        ([], "AscendCL@aclrtSynchronizeDevice", "device"),
        ([], "AscendCL@aclrtSynchronizeStream", "stream"),
        ([], "AscendCL@aclrtSynchronizeEvent", "event"),
        ([], "cudaDeviceSynchronize", "device"),
        ([], "cudaEventSynchronize", "event"),
        ([], "cuCtxSynchronize", "device"),
        ([], "cudaMemcpy", "copy"),
        (["aten::item"], "aten::_local_scalar_dense", "dtoh"),  # where no runtime call is recorded
    ],
)
def test_without_a_recorded_copy_operators_and_calls_tell(around: list[str], call: str, kind: str) -> None:
    events = [(1, i, 100 - i, name) for i, name in enumerate([*around, call])]
    assert only(events).kind == kind


def test_waits_at_one_line_for_different_things_are_apart() -> None:
    """Frames name a function by its first line, so a batch's copy and a loss's .item() share a place."""
    events = [
        (1, 0, 100, "main.py(375): train"),
        (1, 2, 40, "aten::to"),
        (1, 3, 5, "acl_memcpy_host_to_device"),
        (1, 6, 39, STREAM),
        (1, 50, 90, "aten::item"),
        (1, 51, 89, "aten::_local_scalar_dense"),
        (1, 52, 88, STREAM),
    ]
    found = {p.kind: p for p in points(events)}
    assert set(found) == {"htod", "dtoh"}
    assert {sync_name(p) for p in found.values()} == {"main.py:375:htod", "main.py:375:dtoh"}
    assert all("main.py:375" in sync_names(p) for p in found.values())  # as users have written it


def test_a_wait_after_all_work_of_a_step_and_the_profiler_s_own() -> None:
    """Launches at 20 and 120; the waits at 30 and 130 follow them, the one at 110 does not, 190 is the profiler's."""
    events = [
        (1, 0, 100, "ProfilerStep#1"),
        (1, 30, 90, "AscendCL@aclrtSynchronizeDevice"),
        (1, 100, 200, "ProfilerStep#2"),
        (1, 108, 115, "aten::add"),
        (1, 110, 114, "AscendCL@aclrtSynchronizeStream"),
        (1, 130, 180, "AscendCL@aclrtSynchronizeDevice"),
        (1, 188, 199, "torch_npu/profiler/profiler.py(231): step"),
        (1, 190, 195, "AscendCL@aclrtSynchronizeDevice"),
    ]
    launches = [("Add", 1, 20), ("Add", 1, 120)]
    found = {(p.name.removeprefix("AscendCL@"), p.purpose): len(p.calls) for p in points(events, launches)}
    assert found == {
        ("aclrtSynchronizeDevice", "step_end"): 2,
        ("aclrtSynchronizeStream", None): 1,
        ("aclrtSynchronizeDevice", "profiler"): 1,
    }


# --- against profiles that nobody planted: counted in the raw files ------------------------------------------------


def sites(result: Result) -> list[SyncSite]:
    (device,) = result.devices
    return device.syncs


def raw_events(path: Path) -> list[tuple[float, float, int, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        data = json.load(file)
    rows = data if isinstance(data, list) else data["traceEvents"]
    return [(float(e["ts"]), float(e["ts"]) + float(e["dur"]), e["tid"], e["name"]) for e in rows
            if e.get("ph") == "X" and e.get("cat") != "cuda_sync"]  # fmt: skip


def waits_in(events: list[tuple[float, float, int, str]], operator: str) -> tuple[int, float]:
    """How many waiting calls lie in an operator of this name, and how long they take (us)."""
    calls = [e for e in events if "Synchronize" in e[3] or e[3] == "AscendCL@aclrtMemcpy"]
    outer = [e for e in events if e[3] == operator]
    mine = [c for c in calls if any(o[2] == c[2] and o[0] <= c[0] and c[1] <= o[1] for o in outer)]
    return len(mine), sum(b - a for a, b, _, _ in mine)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_batch_is_copied_to_the_device(rank: int) -> None:
    """images.to(device) and target.to(device) of a ResNet: the recorded copies are acl_memcpy_host_to_device.

    Once they were syncs with the advice to avoid .item() and .cpu().
    """
    folder = DATA / "msinsight" / "text" / "level1" / f"rank{rank}_ascend_pt"
    if not folder.exists():
        pytest.skip("no shared data")
    events = raw_events(folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json")
    result = analyzed(folder)
    for operator, kind in (("aten::to", "htod"), ("aten::item", "dtoh")):
        mine = [s for s in sites(result) if s.torch_op == operator]
        assert {s.kind for s in mine} == {kind}
        count, waited = waits_in(events, operator)
        assert sum(s.count for s in mine) == count > 0
        assert sum(s.host_ns for s in mine) == pytest.approx(1000 * waited, abs=500 * count)
    found = answer(result, "blocking_copies")
    assert found.status == "problem" and found.gain_ns_per_step
    assert "pin_memory=True" in str(found.next) and ".item()" not in str(found.next)
    # At most the wait less what the copy itself takes on the device: 6,089.620 - 840.077 us, 7,172.340 - 1,272.505.
    assert found.gain_ns_per_step[1] == {0: 5_249_543, 1: 5_899_835}[rank]
    # The wait of .item() is the rest of the queue: nothing follows it in the step, so nothing is gained without it.
    assert answer(result, "sync_points").status == "ok"


def test_real_copies_whose_direction_is_not_recorded_stay_unknown() -> None:
    path = DATA / "msprof-analyze" / "timeline" / "trace_view.json"
    if not path.exists():
        pytest.skip("no shared data")
    mine = [s for s in sites(analyzed(path.parent)) if s.torch_op == "aten::to"]
    assert {s.kind for s in mine} == {"copy"}
    assert sum(s.count for s in mine) == waits_in(raw_events(path), "aten::to")[0] == 8


@pytest.mark.parametrize("name", ["alexnet_gpu", "simple_add_gpu"])
def test_real_pageable_copies_of_a_gpu(name: str) -> None:
    path = DATA / "hta" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("no shared data")
    raw = Counter(e[3] for e in raw_events(path))
    copies = [s for s in sites(analyzed(path)) if s.torch_op == "aten::to"]
    assert {(s.kind, s.pinned) for s in copies} == {("htod", False)}
    assert sum(s.count for s in copies) == raw["Memcpy HtoD (Pageable -> Device)"] == 16


def test_a_real_database_tells_the_same_kinds() -> None:
    folder = DATA / "msinsight" / "db" / "level1" / "rank0_ascend_pt"
    if not folder.exists():
        pytest.skip("no shared data")
    (path,) = (folder / "ASCEND_PROFILER_OUTPUT").glob("ascend_pytorch_profiler*.db")
    query = "SELECT s.value FROM PYTORCH_API p JOIN STRING_IDS s ON s.id = p.name WHERE s.value LIKE '%memcpy%'"
    with sqlite3.connect(path) as db:
        queued = {name for (name,) in db.execute(query)}
    assert "acl_memcpy_host_to_device" in queued and not any("device_to_host" in n for n in queued)
    kinds = {(s.torch_op, s.kind) for s in sites(analyzed(folder))}
    assert ("aten::to", "htod") in kinds and ("aten::item", "dtoh") in kinds


# --- the direction that CANN records -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("host to device", "htod"),
        ("host to device ex", "htod"),
        ("device to host", "dtoh"),
        ("addr device to device", "dtod"),
        ("other", "copy"),
        (None, "copy"),
    ],
)
def test_newer_timelines_record_the_direction_of_copies(tmp_path: Path, operation: str | None, kind: str) -> None:
    """Kernels at 0 and 100 µs; between them a copy of 20 µs inside aten::to, after which the host waits for it."""
    kernels = [K(0, 10_000, launch=-20_000), K(100_000, 10_000, launch=90_000),
               K(50_000, 20_000, "MEMCPY_ASYNC", core="MEMCPY_ASYNC", launch=40_000, launch_dur=1_000)]  # fmt: skip
    host = [H("aten::to", 35_000, 45_000), H("AscendCL@aclrtSynchronizeStream", 45_000, 30_000)]
    folder = ascend_pt(tmp_path, kernels, host=host)
    (path,) = folder.rglob("trace_view.json")
    rows = json.loads(path.read_text())
    for row in rows:
        if operation and row["name"] == "MEMCPY_ASYNC" and row.get("ph") == "X":
            row["args"] |= {"size(B)": 4096, "bandwidth(GB/s)": 1.5, "operation": operation}
    path.write_text(json.dumps(rows))
    (site,) = sites(analyzed(folder))
    assert (site.torch_op, site.kind) == ("aten::to", kind)


def test_databases_record_the_direction_of_copies(tmp_path: Path) -> None:
    """A real one whose queued copies do not say it, with MEMCPY_INFO as msprof --runtime-api writes it."""
    folder = DATA / "msinsight" / "db" / "level1" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    if not folder.exists():
        pytest.skip("no shared data")
    (source,) = folder.glob("ascend_pytorch_profiler*.db")
    for number, kind in ((None, "copy"), (1, "htod"), (2, "dtoh")):
        path = tmp_path / str(number) / source.name
        path.parent.mkdir()
        path.write_bytes(source.read_bytes())
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE STRING_IDS SET value = replace(value, '_host_to_device', '')")
            if number is not None:
                db.execute("CREATE TABLE ENUM_MEMCPY_OPERATION (id INTEGER, name TEXT)")
                db.executemany(
                    "INSERT INTO ENUM_MEMCPY_OPERATION VALUES (?, ?)", [(1, "host to device"), (2, "device to host")]
                )
                db.execute("CREATE TABLE MEMCPY_INFO (globalTaskId INTEGER, size INTEGER, memcpyOperation INTEGER)")
                copies = "SELECT id FROM STRING_IDS WHERE value = 'MEMCPY_ASYNC'"
                chosen = f"SELECT globalTaskId, 64, {number} FROM TASK WHERE taskType IN ({copies})"
                db.execute(f"INSERT INTO MEMCPY_INFO {chosen}")
        assert {s.kind for s in sites(analyzed(path)) if s.torch_op == "aten::to"} == {kind}

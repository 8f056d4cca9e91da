"""One run, two exports: text files and databases that were made of each other give one answer."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from build import EPOCH, K, ascend_pt, us
from conversion import to_db
from conversion_text import to_text
from small_programs import analyzed

from npuperf.advise import RULES
from npuperf.model.device import DeviceProfile
from npuperf.readers.recording import open_recording
from npuperf.show.formats import render

SAMPLES = Path(__file__).parents[2] / "samples"
REAL = Path(__file__).parents[3] / "shared" / "data" / "msinsight"
TEXTS = [SAMPLES / "transformer_ascend_pt", *(REAL / f"text/level1/rank{r}_ascend_pt" for r in (0, 1))]
DATABASES = [REAL / f"db/level1/rank{r}_ascend_pt" for r in (0, 1)]
#: What differs because the files do, or because it numbers what stands beside it.
OF_FILES = {"input", "source", "messages", "tool", "host_sums", "suggestions", "witnesses"}


OF_MEMORY = frozenset(rule.name for rule in RULES if rule.on_memory is not None)


def document(path: Path) -> dict[str, Any]:
    """The JSON document, its findings by rule, without what names files, and without memory, which is not converted."""
    found = json.loads(render(analyzed(path), "json"))
    found["findings"] = {f["rule"]: f for f in found["findings"] if f["rule"] not in OF_MEMORY}
    if "copies" in found["findings"]:  # advised there, where a finding of memory advises it first
        found["findings"]["copies"]["next"] = None
    found["digest"]["uncounted"] = [kind for kind in found["digest"]["uncounted"] if kind != "block"]
    found["digest"]["counts"] = [count for count in found["digest"]["counts"] if count["kind"] != "block"]
    for device in found["devices"]:
        device["memory"] = None
    return found  # type: ignore[no-any-return]


def differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in OF_FILES or (key == "source" and "findings" in path):
                yield from differences(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{path}/{i}")
    elif one != other:
        yield path, one, other


def there(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return path


def only(path: Path) -> DeviceProfile:
    (profile,) = open_recording(path).profiles
    return profile


#: What counts from the begin of an operation until its waits are over, and follows from that.
OF_WAITS = re.compile(r"/communication/(awaited|exposed_most|transfer_most)_ns$|/transfer_most_ns$|/what_if/\d+/"
                      r"|/collective_rates/\d+/(time_ns/1|(algorithm|bus)_gb_per_s/0)$"
                      r"|/exposed_communication/gain_(ns_per_step|pct)/1$")  # fmt: skip


def begun_before(path: Path) -> int:
    """By how much operations begin earlier in the table than in the timeline, in all, ns: one cuts, the other rounds.

    Databases made of both have the table's begin of an operation and the timeline's of its parts.
    """
    output = path / "ASCEND_PROFILER_OUTPUT"
    events = json.loads((output / "trace_view.json").read_text("utf-8"))
    drawn = {e["name"]: Decimal(e["ts"]) for e in events if e["ph"] == "X" and e["name"].startswith("hcom_")}
    with (output / "kernel_details.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Name"] in drawn]
    apart = [int((drawn[row["Name"]] - Decimal(row["Start Time(us)"].strip())) * 1000) for row in rows]
    assert apart and set(apart) <= {0, 1}
    return sum(apart)


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_a_text_export_and_its_databases_give_one_answer(tmp_path: Path, path: Path) -> None:
    text = document(there(path))
    assert text["operators"] and text["devices"][0]["blame"] and text["what_if"]
    found, cut = list(differences(text, document(to_db(path, tmp_path)))), begun_before(path)
    assert [path for path, *_ in found if not OF_WAITS.search(path)] == []
    pct = cut / text["digest"]["total_ns"] * 100 + 1e-12
    assert [(path, a, b) for path, a, b in found if abs(a - b) > (pct if "pct" in path else cut)] == []


@pytest.mark.parametrize("path", DATABASES, ids=lambda p: p.name)
def test_databases_and_their_text_export_give_one_answer(tmp_path: Path, path: Path) -> None:
    db = document(there(path))
    assert db["operators"] and db["devices"][0]["blame"] and db["what_if"]
    assert list(differences(db, document(to_text(path, tmp_path)))) == []


def test_there_and_back_again(tmp_path: Path) -> None:
    path = SAMPLES / "transformer_ascend_pt"
    back = to_text(to_db(path, tmp_path / "db"), tmp_path / "text")
    assert list(differences(document(path), document(back))) == []


def test_what_level0_has_in_databases_only_is_not_guessed_of_text(tmp_path: Path) -> None:
    """Databases have the queue's core types at that level; the table has N/A, the timeline AI_CORE for vector cores."""
    path = there(REAL / "db/level0/rank0_ascend_pt")
    db, text = document(path), document(to_text(path, tmp_path))
    found = list(differences(db, text))
    cores = [(path, of_text) for path, _, of_text in found if path.endswith("/core")]
    assert cores and {of_text for _, of_text in cores} == {None}
    rules = {path.split("/")[2] for path, *_ in found if path.startswith("/findings")}
    elsewhere = {path for path, *_ in found if not path.startswith("/findings") and not path.endswith("/core")}
    assert text["digest"]["uncounted"] == ["aicpu", *db["digest"]["uncounted"]]
    assert all(path.startswith("/devices/0/cores/") for path in elsewhere - {"/digest/uncounted"})
    assert {text["findings"][rule]["status"] for rule in rules} == {"cannot_tell"}


# A made-up step on two threads. Python's thread 10 runs train.py; 11 takes from the task queue, 12 runs backward.
PID, DEVICE = 4242, 3
STACK = "torch/nn/functional.py(9): linear;\r\n/home/me/job/train.py(41): forward;\r\n/home/me/job/train.py(80): main"
STEP = "torch_npu/profiler/profiler.py(244): step;\r\n/home/me/job/train.py(99): main"


def process(name: str, place: int, label: str, device: int = DEVICE) -> tuple[int, list[dict[str, Any]]]:
    pid = PID if name == "Python" else PID << 10 | place << 5 | device
    about = {"process_name": {"name": name}, "process_labels": {"labels": label}}
    about["process_sort_index"] = {"sort_index": place}  # type: ignore[dict-item]
    return pid, [{"ph": "M", "name": kind, "pid": pid, "tid": 0, "args": args} for kind, args in about.items()]


def x(name: str, pid: int, tid: int, start: int, end: int, cat: str = "", **args: object) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(EPOCH + start), "dur": (end - start) / 1000}
    return {**event, "args": args, **({"cat": cat} if cat else {})}


def arrow(cat: str, number: object, *ends: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [{"ph": ph, "name": cat, "cat": cat, "id": number, "pid": pid, "tid": tid, "ts": us(EPOCH + time)}
            for ph, (pid, tid, time) in zip("sf", ends, strict=True)]  # fmt: skip


def made_up(root: Path, label: str = f"NPU {DEVICE}") -> Path:
    """Kernel "mm" through the task queue, a copy without a node, "mm_grad" in backward, a collective behind it."""
    (python, a), (cann, b) = process("Python", 0, "CPU"), process("CANN", 7, "CPU")
    (hard, c), (comm, d) = process("Ascend Hardware", 13, label), process("Communication", 15, label)
    (collector, e) = process("Python GC", 1, "CPU")
    thread = {"ph": "M", "name": "thread_name", "pid": comm, "tid": 0, "args": {"name": "Group g Communication"}}
    events = [
        *a, *b, *c, *d, *e, thread,
        x("train.py(99): main", python, 10, 0, 990_000, "python_function"),
        x("torch_npu/profiler/profiler.py(241): step", python, 10, 10, 900, "python_function"),
        x("train.py(30): collate", python, 10, 300_000, 350_000, "python_function"),
        x("ProfilerStep#7", python, 10, 1_000, 950_000, "cpu_op", **{"Call stack": STEP}),
        x("aten::mm", python, 10, 50_000, 90_000, "cpu_op", **{"Call stack": STACK, "Sequence number": 5}),
        x("aclnnMm", python, 10, 60_000, 80_000, "cpu_op"),
        x("Enqueue", python, 10, 61_000, 62_000, "enqueue", correlation_id=1),
        x("Dequeue@aclnnMm", python, 11, 100_000, 140_000, "dequeue", correlation_id=1),
        x("aten::copy_", python, 10, 200_000, 240_000, "cpu_op", **{"Call stack": STACK}),
        x("my_range", python, 10, 290_000, 360_000, "cpu_op", **{"Call stack": "/home/me/job/train.py(85): main"}),
        x("aten::item", python, 10, 310_000, 320_000, "cpu_op"),
        x("MmBackward0", python, 12, 400_000, 480_000, "cpu_op", **{"Sequence number": 5, "Fwd thread id": 1}),
        x("c10d::allreduce_", python, 12, 500_000, 560_000, "cpu_op"),
        x("GC", collector, 99, 600_000, 640_000, "GC"),
        x("Node@launch", cann, 11, 110_000, 120_000, connection_id=21),
        x("AscendCL@aclrtMemcpyAsync", cann, 10, 210_000, 230_000, connection_id=1),
        x("Node@launch", cann, 12, 410_000, 420_000, connection_id=23),
        x("Node@launch", cann, 12, 510_000, 520_000, connection_id=24),
        x("mm", hard, 2, 130_000, 180_000, **{"Task Type": "AI_CORE", "connection_id": 21, "Task Id": 1}),
        x("MEMCPY_ASYNC", hard, 2, 250_000, 260_000,
          **{"Task Type": "PCIE_DMA_SQE", "connection_id": 1, "operation": "host to device"}),
        x("mm_grad", hard, 2, 430_000, 490_000, **{"Task Type": "AI_CORE", "connection_id": 23, "Task Id": 3}),
        x("hcom_allReduce__001_0_1", comm, 0, 530_000, 700_000, connection_id=24),
        *arrow("async_npu", EPOCH + 130_000, (python, 10, 60_000), (hard, 2, 130_000)),
        *arrow("async_npu", EPOCH + 430_000, (python, 12, 400_000), (hard, 2, 430_000)),
        *arrow("async_npu", EPOCH + 530_000, (python, 12, 500_000), (comm, 0, 530_000)),
        *arrow("async_task_queue", 1, (python, 10, 61_000), (python, 11, 100_000)),
        *arrow("fwdbwd", 5, (python, 10, 50_000), (python, 12, 400_000)),
    ]  # fmt: skip
    output = root / "host_1_20250101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "trace_view.json").write_text(json.dumps(events))
    header = ("Step Id,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
              "Mix Block Dim,Stream ID")  # fmt: skip
    rows = [("mm", "MatMul", "AI_CORE", 130_000, 50_000, 20, 2),
            ("mm_grad", "MatMul", "AI_CORE", 430_000, 60_000, 20, 2),
            ("hcom_allReduce__001_0_1", "hcom_allReduce_", "COMMUNICATION", 530_000, 170_000, 0, "N/A")]  # fmt: skip
    lines = [f"7,{name},{type_},dynamic,{core},{us(EPOCH + start)}\t,{us(dur)},0,{block},0,{stream}"
             for name, type_, core, start, dur, block, stream in rows]  # fmt: skip
    (output / "kernel_details.csv").write_text("\n".join([header, *lines]) + "\n")
    folder = output.parent
    (folder / "profiler_info_5.json").write_text(json.dumps({"rank_id": 5}))
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "1"}}))
    return folder


def test_a_made_up_run_has_one_answer_in_both_exports(tmp_path: Path) -> None:
    """A copy's connection is shared by the calls of two layers: its launch is the outer one's start."""
    folder = made_up(tmp_path)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    cann = PID << 10 | 7 << 5 | DEVICE
    inner = [x("Runtime@MemcpyAsync", cann, 10, 212_000, 228_000, connection_id=1),
             x("Communication@Launch", cann, 12, 512_000, 518_000, connection_id=30)]  # fmt: skip
    path.write_text(json.dumps([*inner, *json.loads(path.read_text())]))
    made = to_db(folder, tmp_path / "db")
    for export in (folder, made, to_text(made, tmp_path / "text")):
        tasks = only(export).tasks
        assert "Communication@Launch" in only(export).host.events.name.names
        assert tasks.launch_start[tasks.name.flag([n == "MEMCPY_ASYNC" for n in tasks.name.names])] == [EPOCH + 210_000]
        assert list(differences(document(folder), document(export))) == []


@pytest.fixture(params=["text", "db"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> DeviceProfile:
    folder = made_up(tmp_path)
    return only(folder if request.param == "text" else to_db(folder, tmp_path / "db"))


def by_name(profile: DeviceProfile) -> dict[str | None, int]:
    return {profile.tasks.name[i]: i for i in range(len(profile.tasks))}


def test_every_task_has_its_launch_its_operator_and_its_line(profile: DeviceProfile) -> None:
    """The copy has no node: its call's start is its launch, and the operator around that call is behind it.

    A connection of CANN and a correlation of the task queue may both be 1.
    """
    tasks, host, at = profile.tasks, profile.host, by_name(profile)
    times = [tasks.launch_start - EPOCH, tasks.launch_end - EPOCH, tasks.launch_thread]
    launches = {name: tuple(int(column[i]) for column in times) for name, i in at.items()}
    assert launches == {
        "mm": (110_000, 120_000, 11), "MEMCPY_ASYNC": (210_000, 210_000, 10), "mm_grad": (410_000, 420_000, 12),
        "hcom_allReduce__001_0_1": (510_000, 520_000, 12),
    }  # fmt: skip
    assert {name: (host.torch_op(int(tasks.op[i])), host.code_line(int(tasks.op[i]))) for name, i in at.items()} == {
        "mm": ("aten::mm", "job/train.py:41 forward"),
        "MEMCPY_ASYNC": ("aten::copy_", "job/train.py:41 forward"),
        "mm_grad": ("MmBackward0", "job/train.py:41 forward"),
        "hcom_allReduce__001_0_1": ("c10d::allreduce_", None),
    }
    assert tasks.step.tolist() == [7] * 4


def test_copies_have_their_direction(profile: DeviceProfile) -> None:
    at = by_name(profile)
    assert profile.tasks.copy[at["MEMCPY_ASYNC"]] == "host to device"
    assert profile.tasks.copy[at["mm"]] is None


def test_rank_device_and_environment_are_the_same(profile: DeviceProfile) -> None:
    assert (profile.rank, profile.device) == (5, DEVICE)
    assert profile.context.environment.in_process == {"ASCEND_LAUNCH_BLOCKING": "1"}


def test_the_line_is_the_innermost_that_was_recorded(profile: DeviceProfile) -> None:
    """At 65 µs an operator's stack is inside of main's frame, at 315 µs collate's frame is inside of a range's stack.

    main was open when the tracer began, at the line that started the profiler: only its name is true of 370 µs.
    """
    assert profile.host.line_at(10, EPOCH + 65_000) == "job/train.py:41 forward"
    assert profile.host.line_at(10, EPOCH + 315_000) == "job/train.py:30 collate"
    assert profile.host.line_at(10, EPOCH + 370_000) == "job/train.py main"


def test_collections_and_frames_are_events_of_the_host(profile: DeviceProfile) -> None:
    events = profile.host.events
    found = [(events.name[i], int(events.thread[i]), int(events.start[i]) - EPOCH) for i in range(len(events))]
    assert ("GC", 10, 600_000) in found
    assert ("train.py(30): collate", 10, 300_000) in found
    assert ("Node@launch", 11, 110_000) in found and len(found) == len(set(found)) == 18


@pytest.mark.parametrize(("label", "device"), [("NPU", DEVICE), ("NPU 6", 6)])
def test_a_device_without_a_number_in_its_label_has_it_in_its_processes(
    tmp_path: Path, label: str, device: int
) -> None:
    assert only(made_up(tmp_path, label)).device == device


def test_process_ids_that_are_made_otherwise_name_no_device(tmp_path: Path) -> None:
    """A shown order that contradicts one id: ids have another meaning, and the folder's only device is number 0."""
    folder = made_up(tmp_path, "NPU")
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(path.read_text())
    for event in events:
        if event["name"] == "process_sort_index" and event["args"]["sort_index"] == 7:
            event["args"]["sort_index"] = 8
    path.write_text(json.dumps(events))
    assert only(folder).device == 0


def test_tasks_that_timelines_hide_are_left_out(tmp_path: Path) -> None:
    """The parent of an FFTS+ task has a kernel's type, but no operator."""
    folder = to_db(made_up(tmp_path), tmp_path / "db")
    (path,) = folder.glob("*/ascend_pytorch_profiler_5.db")
    connection = sqlite3.connect(path)
    (kind,) = connection.execute("SELECT id FROM STRING_IDS WHERE value = 'KERNEL_AICORE'").fetchone()
    times = (EPOCH + 429_000, EPOCH + 491_000)
    connection.execute("INSERT INTO TASK VALUES (?,?,?,23,77,?,?,0,2,9,0)", (*times, DEVICE, PID, kind))
    connection.commit()
    connection.close()
    assert set(by_name(only(folder))) == {"mm", "MEMCPY_ASYNC", "mm_grad", "hcom_allReduce__001_0_1"}
    assert len(only(folder).tasks) == 4


def test_waits_stand_where_recorded_stacks_say(tmp_path: Path) -> None:
    """Two waits of one operator in one function, 350 and 351 by its stacks; its frame only knows where it begins."""
    folder = made_up(tmp_path)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    cann = PID << 10 | 7 << 5 | DEVICE
    found = json.loads(path.read_text())
    found.append(x("train.py(340): load", PID, 10, 700_000, 800_000, "python_function"))
    for line, start in ((350, 710_000), (351, 760_000)):
        stack = f"torch/_tensor.py(9): to;\r\n/home/me/job/train.py({line}): load"
        found.append(x("aten::to", PID, 10, start, start + 30_000, "cpu_op", **{"Call stack": stack}))
        found.append(x("AscendCL@aclrtSynchronizeStream", cann, 10, start + 5_000, start + 25_000, connection_id=line))
    path.write_text(json.dumps(found))
    for export in (folder, to_db(folder, tmp_path / "db")):
        (device,) = analyzed(export).devices
        assert [(s.torch_op, s.where, s.count) for s in device.syncs] == [
            ("aten::to", "job/train.py:350 load", 1), ("aten::to", "job/train.py:351 load", 1)
        ]  # fmt: skip


def test_kernels_without_any_record_of_operators_are_kernels(tmp_path: Path) -> None:
    """Of a database whose operators are lost the queue's types tell what computes: 50 µs and 60 µs."""
    folder = to_db(made_up(tmp_path), tmp_path / "db")
    (path,) = folder.glob("*/ascend_pytorch_profiler_5.db")
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM COMPUTE_TASK_INFO")
    connection.commit()
    connection.close()
    (device,) = analyzed(folder).devices
    assert device.partition.compute_ns == 110_000


ON_AI_CPU = ("allreduceAicpuKernel", "reduce_scatterAicpuKernel", "HcclLaunchAicpuKernel", "MatmulAllReduceAicpu")


@pytest.mark.parametrize("export", ["folder", "table", "trace", "database"])
@pytest.mark.parametrize("name", [*ON_AI_CPU, "Cast"])
def test_what_carries_out_a_collective_on_an_ai_cpu_only_waits(tmp_path: Path, name: str, export: str) -> None:
    """Per turn of 10 ms: 2 ms of a matmul, and a collective from 4 to 7 ms; its kernel is there from 1 to 7.5 ms."""
    ms, turns = 1_000_000, 6
    kernels = [
        made
        for i in range(turns)
        for at in [i * 10 * ms]
        for made in (
            K(at, 2 * ms, "aclnnMatmul_MatMulCommon_MatMulV2", "MatMulV2", "AI_CORE", 2, 24),
            K(at + ms, 6_500_000, name, name, "AI_CPU", 9, 1),
            K(at + 4 * ms, 3 * ms, f"hcom_allReduce__438_{i}_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0),
        )
    ]

    def parts(kernels: list[K], into: str) -> tuple[float, float, set[str], bool]:
        folder = ascend_pt(tmp_path / into, kernels)
        own = folder / "ASCEND_PROFILER_OUTPUT"
        places = {"folder": folder, "table": own / "kernel_details.csv", "trace": own / "trace_view.json"}
        found = analyzed(places[export] if export in places else to_db(folder, tmp_path / "db" / into))
        (device,) = found.devices
        split = device.window
        types = {o.type for o in found.window_operators} | {c.key for c in found.digest.counts if c.kind == "aicpu"}
        advised = any(f.rule == "ai_cpu" and f.status == "problem" for f in found.findings)
        return split.compute_ns / ms, split.comm_exposed_ns / ms, {n for n in types if n == name}, advised

    compute, exposed, listed, advised = parts(kernels, "all")
    alone = [k for k in kernels if k.core != "COMMUNICATION"]
    if name == "Cast":  # which is an operator
        assert (compute, exposed, advised) == (7.5 * turns, 0, True) and listed
        return
    assert (compute, exposed, listed, advised) == (2 * turns, 3 * turns, set(), False)
    # Where no operation is listed, its kernel is all that tells of it.
    assert parts(alone, "alone")[:2] == (2 * turns, 5.5 * turns)

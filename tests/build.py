"""Small profiles by hand: kernel tables and timelines in the exporters' own spelling."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Result

EPOCH = 1_736_413_971_000_000_000  # ns; 16 digits of µs, as real exports have

HEADER = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Stream ID,OP State,Input Shapes"
)


class K(Struct, frozen=True):
    """One kernel; start, dur and launch in ns after EPOCH."""

    start: int
    dur: int
    name: str = "aclnnAdd_Add_Add"
    type: str = "Add"
    core: str = "AI_VECTOR_CORE"
    stream: int | str = 2
    block: int = 40
    mix: int = 0
    step: int | str = ""
    launch: int | None = None
    launch_dur: int = 0
    device: int = 0
    state: str = "static"
    shapes: str = ""


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def row(k: K, epoch: int = EPOCH) -> str:
    cells = [k.step, k.device, k.name, k.type, k.core, us(epoch + k.start) + "\t", us(k.dur), "0", k.block, k.mix]
    return ",".join(map(str, [*cells, k.stream, k.state, f'"{k.shapes}"' if k.shapes else "N/A"]))


def kernel_details(path: Path, kernels: list[K], epoch: int = EPOCH) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\r\n".join([HEADER, *(row(k, epoch) for k in kernels)]) + "\r\n", newline="")
    return path


def is_collective(k: K) -> bool:
    return k.core in ("COMMUNICATION", "HCCL")


class H(Struct, frozen=True):
    """A host event on the launching thread (11) of the CANN or Python process; times in ns after EPOCH."""

    name: str
    start: int
    dur: int
    python: bool = False
    thread: int = 11


def host_event(h: H, epoch: int = EPOCH) -> dict:
    frame = {"cat": "python_function" if "): " in h.name else "cpu_op"} if h.python else {}
    return _x(h.name, 1 if h.python else 2, h.thread, epoch + h.start, h.dur, **frame)


def events(kernels: list[K], steps: dict[int, tuple[int, int]] | None = None, epoch: int = EPOCH) -> list[dict]:
    """Trace events of the kernels: device tasks, Node@launch where a launch is known, flows, ProfilerStep ranges."""
    made: list[dict] = []
    for pid, name, label in (
        (1, "Python", "CPU"), (2, "CANN", "CPU"), (3, "Ascend Hardware", "NPU 0"), (4, "Communication", "NPU 0")
    ):  # fmt: skip
        made.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        made.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}})
    made.append({"ph": "M", "name": "thread_name", "pid": 4, "tid": 0, "args": {"name": "Group 0 Communication"}})
    for number, (begin, end) in (steps or {}).items():
        made.append(_x(f"ProfilerStep#{number}", 1, 10, epoch + begin, end - begin, cat="cpu_op"))
    for i, k in enumerate(kernels):
        pid, tid = (4, 0) if is_collective(k) else (3, int(k.stream))
        args = {"Task Type": k.core, "connection_id": i, "Model Id": 4294967295}
        made.append(_x(k.name, pid, tid, epoch + k.start, k.dur, args=args))
        if k.launch is not None:
            begin = epoch + k.launch
            made.append(_x("Node@launch", 2, 11, begin, k.launch_dur, args={"connection_id": i}))
            flow = {"name": "HostToDevice", "cat": "HostToDevice", "id": str(i << 32)}
            made.append({**flow, "ph": "s", "pid": 2, "tid": 11, "ts": us(begin)})
            made.append({**flow, "ph": "f", "pid": pid, "tid": tid, "ts": us(epoch + k.start), "bp": "e"})
    return made


def _x(name: str, pid: int, tid: int, start: int, dur: int, **more: object) -> dict:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(start), "dur": dur / 1000, "args": {}, **more}


def ascend_pt(
    root: Path,
    kernels: list[K],
    steps: dict[int, tuple[int, int]] | None = None,
    epoch: int = EPOCH,
    cores: str = "",
    host: Iterable[H] = (),
) -> Path:
    """A whole torch_npu result folder; ``cores`` like ``24,48`` writes info.json.0, ``host`` host events."""
    folder = root / "host_1_20250101000000000_ascend_pt"
    rows = [k for k in kernels if k.core not in ("EVENT_WAIT", "EVENT_RECORD", "PCIE_DMA_SQE")]
    kernel_details(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", rows, epoch)
    trace = json.dumps([*events(kernels, steps, epoch), *(host_event(h, epoch) for h in host)])
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(trace)
    (folder / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0}))
    if cores:
        cube, vector = map(int, cores.split(","))
        device = folder / "PROF_000001_20250101000000000_X" / "device_0"
        device.mkdir(parents=True)
        info = {"DeviceInfo": [{"id": 0, "ai_core_num": cube, "aiv_num": vector}]}
        (device / "info.json.0").write_text(json.dumps(info))
    return folder


def analyze_path(path: Path, **asked: Any) -> Result:
    """Analyze what was built."""
    return run(AnalyzeRequest(path=path, **asked))

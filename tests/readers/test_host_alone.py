"""Recordings without a device: the host's operators and what went into them, in both dialects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from build import H, K, ascend_pt, events, host_event, kernel_details

from npuperf.model.device import HostProfile
from npuperf.readers.recording import open_recording

BASE = 1_790_857_026_000_000_000


def op(name: str, start: float, dur: float, dims: Any = None, types: Any = None, **more: Any) -> dict[str, Any]:
    args = {} if dims is None else {"Input Dims": dims, "Input type": types}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 5, "ts": start, "dur": dur, "args": args, **more}


def kineto(path: Path, found: list[dict[str, Any]], **header: Any) -> Path:
    """A trace of PyTorch's own profiler; its base time stands behind the events."""
    content = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": found, "baseTimeNanoseconds": BASE, **header}
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def host_of(path: Path) -> HostProfile:
    (host,) = open_recording(path).map(lambda reading: reading.host)
    assert host is not None
    return host


STEP = op("ProfilerStep#3", 1.0, 90.0, cat="user_annotation")


def test_kineto_names_inputs_in_lists(tmp_path: Path) -> None:
    mm = op(
        "aten::addmm", 10.5, 5.0, [[32], [8, 16], [16, 32], [], []], ["float", "float", "float", "Scalar", "Scalar"]
    )
    cat = op("aten::cat", 20.0, 5.0, [[[2, 3], [], [4, 3]], []], ["TensorList", "Scalar"])
    host = host_of(kineto(tmp_path / "a.pt.trace.json", [STEP, mm, cat, op("aten::empty", 30.0, 1.0)]))
    found = host.operators
    assert found.start.tolist() == [BASE + 10_500, BASE + 20_000, BASE + 30_000]
    assert found.name.texts() == ["aten::addmm", "aten::cat", "aten::empty"]
    assert found.shapes.texts() == ["32;8,16;16,32", "(2,3 scalar 4,3)", None]
    assert found.dtypes.texts() == ["float;float;float", "TensorList", None]
    assert host.host_steps.at(found.start).tolist() == [3, 3, 3]
    assert host.kineto


def test_packed_traces_are_the_same(tmp_path: Path) -> None:
    mm = op("aten::mm", 10.0, 5.0, [[2, 3], [3, 4]], ["float", "float"])
    packed = host_of(kineto(tmp_path / "a.pt.trace.json.gz", [STEP, mm])).operators
    assert (packed.shapes.texts(), packed.start.tolist()) == (["2,3;3,4"], [BASE + 10_000])


def test_torch_npu_names_them_in_a_text(tmp_path: Path) -> None:
    """As with --activities cpu: the exporter's processes are there, and no task is."""
    folder = tmp_path / "host_1_20250101000000000_ascend_pt"
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    mm = host_event(H("aten::mm", 10_000, 5_000, python=True))
    mm["args"] = {"Input Dims": "2,3;\r\n3,4;\r\n", "Input type": "float;\r\nfloat;\r\nScalar"}
    trace = json.dumps([*events([], {7: (0, 100_000)}), mm])
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(trace)
    (folder / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0}))
    host = host_of(folder)
    assert host.operators.name.texts()[-1] == "aten::mm"
    assert host.operators.shapes.texts()[-1] == "2,3;3,4"
    assert (host.rank, host.kineto, host.host_steps.number.tolist()) == (0, False, [7])


def test_a_trace_without_events_is_read(tmp_path: Path) -> None:
    """Its base time has no place in the narrow numbers of columns that are empty."""
    named = {"ph": "M", "name": "process_name", "pid": 5, "tid": 0, "args": {"name": "python"}}
    reading = open_recording(kineto(tmp_path / "a.pt.trace.json", [named])).map(lambda reading: reading.error)
    assert list(reading) == [None]


def test_damage_costs_what_is_damaged(tmp_path: Path) -> None:
    odd = [
        op("aten::mm", 10.0, 5.0, "not;\x00", 7),
        op("aten::mm", 20.0, 5.0, [[2, "x"], None, 4], ["float"]),
        op("aten::mm", 30.0, 5.0, {"a": 1}, []),
        {**op("aten::mm", 40.0, 5.0), "args": None},
        op("aten::mm", 50.0, 5.0, [[2, 3]], ["float"]),
    ]
    found = host_of(kineto(tmp_path / "a.pt.trace.json", [STEP, *odd])).operators
    assert len(found) == 5
    assert found.shapes.texts()[-1] == "2,3"


def test_where_a_device_is_there_is_no_lone_host(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 5_000)], host=[H("aten::mm", 0, 5_000, python=True)])
    assert open_recording(folder).map(lambda reading: reading.host) == [None]
    table = kernel_details(tmp_path / "alone" / "kernel_details.csv", [K(0, 5_000)])
    assert open_recording(table).map(lambda reading: reading.host) == [None]

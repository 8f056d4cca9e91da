"""Who wrote a trace: real and made-up ones, whole and cut anywhere, and JSON of other programs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt

from npuperf.base.errors import InputError
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import interpret
from npuperf.readers.trace import read_trace

Event = dict[str, object]
REAL = Path(__file__).parents[3] / "shared" / "data"


def cpu_op(i: int, at: object) -> Event:
    return {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 5, "args": {"n": i}}


def npu_trace() -> list[Event]:
    """In the exporter's order: the framework's events and the starts of arrows, names of processes, then the rest."""
    events: list[Event] = [cpu_op(i, f"{1_000 + 20 * i}.000") for i in range(20)]
    for i in range(20):
        call = {"ph": "X", "pid": 7, "tid": 7, "cat": "enqueue", "name": "Enqueue", "ts": f"{1_001 + 20 * i}", "dur": 2}
        events.append({**call, "args": {"correlation_id": i}})
        events.append({"ph": "s", "pid": 7, "tid": 7, "cat": "async_npu", "name": "async_npu", "id": i,
                       "ts": f"{1_002 + 20 * i}"})  # fmt: skip
    for pid, name in ((7, "Python"), (8, "CANN"), (9, "Ascend Hardware")):
        events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
    events.append({"ph": "M", "pid": 9, "tid": 0, "name": "process_labels", "args": {"labels": "NPU 0"}})
    for i in range(20):
        args = {"Task Type": "AI_CORE", "connection_id": i + 1}
        events.append(
            {"ph": "X", "pid": 9, "tid": 2, "name": "MatMul", "ts": f"{1_010 + 20 * i}", "dur": 4, "args": args}
        )
    return events


def told(path: Path) -> str:
    log = ReadLog()
    try:
        timeline = interpret(read_trace((path,), log), (path,))
    except InputError:
        return "nobody's"
    return "kineto" if timeline.kineto else "ascend"


def write(folder: Path, content: object) -> Path:
    path = folder / "some.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_whole_file_of_another_kind_is_not_called_cut(tmp_path: Path) -> None:
    """Exporters write traces of threads and queues alone: nothing in them is of a device."""
    queue = {"ph": "X", "pid": 7, "tid": 7, "name": "Enqueue@add", "ts": "1000.000", "dur": 2, "args": {}}
    text = json.dumps([queue] * 9)
    hints = []
    for content in (text, text[: len(text) // 2], text[: text.rindex(",") - 1]):
        with pytest.raises(InputError, match="neither a trace of the NPU's profilers") as caught:
            analyze_path(write(tmp_path, content))
        hints.append(str(caught.value.hint))
    assert ["cut off" in hint for hint in hints] == [False, True, True]
    assert "of a kind that is not read" in hints[0]


def test_an_npu_trace_cut_anywhere_is_no_trace_of_a_gpu(tmp_path: Path) -> None:
    whole = json.dumps(npu_trace())
    assert told(write(tmp_path, whole)) == "ascend"
    kinds = [told(write(tmp_path, whole[:end])) for end in range(300, len(whole), 101)]
    named = whole.index('"CANN"')
    assert "kineto" not in kinds
    assert kinds == ["ascend" if end > named + 10 else "nobody's" for end in range(300, len(whole), 101)] or (
        kinds.count("ascend") >= sum(end > named + 200 for end in range(300, len(whole), 101))
    )


@pytest.mark.parametrize("cat", ["kernel", "gpu_memcpy", "cuda_runtime", "cuda_driver", "hip_runtime"])
def test_gpu_events_without_a_header(tmp_path: Path, cat: str) -> None:
    """Other tools leave a list of events only."""
    assert told(write(tmp_path, [{**cpu_op(0, 1_000), "cat": cat}])) == "kineto"


def test_a_cpu_trace_has_the_header(tmp_path: Path) -> None:
    events = [cpu_op(i, 1_000 + 20 * i) for i in range(5)]
    assert told(write(tmp_path, {"schemaVersion": 1, "traceEvents": events})) == "kineto"
    whole = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events})
    assert told(write(tmp_path, whole[:-70])) == "kineto"


@pytest.mark.parametrize(
    "content",
    [
        [cpu_op(0, 1_000)],
        {"traceEvents": [cpu_op(0, 1_000)]},
        {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "name": "page load", "ts": 5, "dur": 7, "cat": "blink"}]},
        '[{"ph": "X", "pid": 1, "tid": 1, "name": "x", "ts": 1, "dur": 2}, {"ph": "X", "pid',
    ],
)
def test_what_nothing_tells_is_refused(tmp_path: Path, content: object) -> None:
    path = write(tmp_path, content)
    assert told(path) == "nobody's"
    with pytest.raises(InputError) as refused:
        analyze_path(path)
    assert "neither a trace of the NPU's profilers nor of PyTorch's" in str(refused.value.what)


def test_beside_a_table_a_cut_trace_is_left_out(tmp_path: Path) -> None:
    folder = ascend_pt(
        tmp_path, [K(1_000 + 20_000 * i, 9_000, f"k{i}", "MatMul", "AI_CORE", block=4) for i in range(9)]
    )
    (trace,) = folder.rglob("trace_view.json")
    trace.write_text(json.dumps(npu_trace())[:3_500])
    result = analyze_path(folder)
    assert result.input.kind == "ascend_pt"
    assert [o.type for o in result.operators] == ["MatMul"]
    assert any("cut off before it names its processes" in str(w) for w in result.input.warnings)


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize(
    "path",
    [
        "msprof-analyze/timeline/trace_view.json",
        "msinsight/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
        "msinsight/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    ],
)
def test_real_npu_traces_cut_anywhere(tmp_path: Path, path: str) -> None:
    whole = (REAL / path).read_text()
    kinds = {told(write(tmp_path, whole[: len(whole) * part // 20])) for part in range(1, 20)}
    assert kinds == {"ascend", "nobody's"}


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize("name", ["alexnet_gpu", "simple_add_gpu"])
def test_real_gpu_traces_cut_anywhere(tmp_path: Path, name: str) -> None:
    whole = gzip.decompress((REAL / "hta" / f"{name}.json.gz").read_bytes()).decode()
    kinds = {told(write(tmp_path, whole[: len(whole) * part // 20])) for part in range(11, 21)}
    assert kinds == {"kineto"}

"""Who wrote a trace: told by what only that profiler writes, never by what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

from npuperf.errors import InputError
from npuperf.messages import say
from npuperf.readers.trace import Trace

Dialect = Literal["ascend", "kineto"]

#: Processes that stand for an NPU or its runtime.
NPU_PROCESSES: Final = ("Ascend Hardware", "CANN", "Communication", "HCCL", "Overlap Analysis")
_NPU_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "async_task_queue"})
_NPU_EVENTS: Final = frozenset({"enqueue", "dequeue"})
#: Kineto writes these before its events (newer versions some of them behind).
_KINETO_HEADER: Final = frozenset({"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"})
_GPU_EVENTS: Final = re.compile(
    r"^((concurrent_)?kernel|gpu_memcpy|gpu_memset|gpu_user_annotation|\w+_(runtime|driver))$"
)


def dialect_of(trace: Trace, paths: tuple[Path, ...] = ()) -> Dialect:
    """Return who wrote a trace. Raises InputError where nothing in it tells.

    The NPU's profilers name their processes behind the events of the framework: a file that was cut before has no
    name, and the same events of the framework as a trace of PyTorch's own profiler.
    """
    if trace.pids(*NPU_PROCESSES):
        return "ascend"
    path = str(paths[0]) if paths else "trace"
    if _is_cut_from_an_npu(trace):
        what = say("{path}: the trace is cut off before it names its processes, so its tasks cannot be told", path=path)
        raise InputError(what, hint=say("export the profile again"))
    if _KINETO_HEADER & trace.header.keys() or any(_GPU_EVENTS.match(c) for c in _used(trace)):
        return "kineto"
    what = say(
        "{path}: neither a trace of the NPU's profilers nor of PyTorch's: it names no process of an NPU, and has no "
        "header or GPU event of PyTorch's profiler",
        path=path,
    )
    raise InputError(what, hint=say("it may be cut off: export the profile again"))


def _is_cut_from_an_npu(trace: Trace) -> bool:
    arrows = any(name in _NPU_ARROWS for name in trace.flows.links)
    return arrows or any(name in _NPU_EVENTS for name in _used(trace)) or bool(trace.slices.task_type.known().any())


def _used(trace: Trace) -> tuple[str, ...]:
    return trace.slices.cat.names

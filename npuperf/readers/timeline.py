"""Timelines to device tasks: which device, which launch, which torch operator, which step.

Two dialects: Ascend (trace_view.json, msprof*.json) and Kineto (GPU or CPU runs of the PyTorch profiler).
"""

from __future__ import annotations

import re
from itertools import pairwise
from os import SEEK_END
from pathlib import Path
from typing import Final, Literal

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.files import open_input
from npuperf.base.messages import say
from npuperf.model.communication import Operations
from npuperf.model.device import ClockRates, HostSteps
from npuperf.model.device_memory import DeviceMemory
from npuperf.model.groups import distinct, rows_of_each, sorted_rows
from npuperf.model.host import Arrows, HostOps, Spans, is_user_frame
from npuperf.model.intervals import SIGNED, narrow
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.names import is_collective
from npuperf.model.tasks import NO_TIME, RUNTIME_CORES, Tasks, Work, beside_operations, in_order, work_of_tasks
from npuperf.readers.cells import integer
from npuperf.readers.collectives import told_operations, torch_groups
from npuperf.readers.comm_groups import GroupBook, named_operations
from npuperf.readers.comm_parts import parts_of
from npuperf.readers.join import Queue, behind_launches, carrying, enclosing, match, match_keys, pick, user_frames
from npuperf.readers.trace import Slices, Trace

# -- Who wrote a trace: told by what only that profiler writes, never by what is missing.

Dialect = Literal["ascend", "kineto"]

#: Processes that stand for an NPU or its runtime.
NPU_PROCESSES: Final = ("Ascend Hardware", "CANN", "Communication", "HCCL", "Overlap Analysis")
_NPU_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "async_task_queue"})
_NPU_EVENTS: Final = frozenset({"enqueue", "dequeue"})
#: Kineto writes these before its events (newer versions some of them behind).
_KINETO_HEADER: Final = frozenset({"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"})
#: Of each end of a file: brackets and blanks.
_TAIL_BYTES: Final = 256
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
    path, used = str(paths[0]) if paths else "trace", trace.slices.cat.names
    told = not (_NPU_ARROWS.isdisjoint(trace.flows.links) and _NPU_EVENTS.isdisjoint(used))
    if told or trace.slices.task_type.known().any():
        what = say("{path}: the trace is cut off before it names its processes, so its tasks cannot be told", path=path)
        raise InputError(what, hint=say("export the profile again"))
    if _KINETO_HEADER & trace.header.keys() or any(_GPU_EVENTS.match(c) for c in used):
        return "kineto"
    what = say(
        "{path}: neither a trace of the NPU's profilers nor of PyTorch's: it names no process of an NPU, and has no "
        "header or GPU event of PyTorch's profiler",
        path=path,
    )
    if paths and _is_closed(paths[-1]):
        hint = say("the file is whole, but of a kind that is not read: give trace_view.json, msprof_*.json or a trace "
                   "of PyTorch's, or the folder that holds it")  # fmt: skip
    else:
        hint = say("it may be cut off: export the profile again")
    raise InputError(what, hint=hint)


def _is_closed(path: Path) -> bool:
    """Tell whether a file ends with the bracket that it began with."""
    with open_input(path) as file:
        first = file.read(_TAIL_BYTES).lstrip()[:1]
        file.seek(max(file.seek(0, SEEK_END) - _TAIL_BYTES, 0))
        return first + file.read().rstrip()[-1:] in (b"[]", b"{}")


_STEP = re.compile(r"^ProfilerStep#(\d{1,18})$")
_LABEL = re.compile(r"(?:NPU|GPU|XPU)\s*(\d{1,9})")
_RUNTIME = re.compile(r"_(runtime|driver)$")
_INVALID_CONNECTION = 4294967295
#: Types of tasks that say nothing.
VAGUE: Final = ("Other", "UNKNOWN")


class TraceTimeline(Struct, frozen=True):
    """What one timeline tells: tasks per device (None: the file does not number it) and the host's view.

    ``named``: operations whose group it names; ``book``: what else it says of groups; ``environment``: variables;
    ``clock``: of the AI Cores of each device, ``memory`` what a database has of its memory.
    """

    devices: dict[int | None, Tasks]
    host: HostOps = field(default_factory=HostOps)
    host_steps: HostSteps = field(default_factory=HostSteps.empty)
    soc: str | None = None
    rank: int | None = None
    kineto: bool = False
    named: Operations = field(default_factory=Operations.empty)
    book: GroupBook = field(default_factory=GroupBook)
    environment: dict[str, str] = field(default_factory=dict)
    clock: dict[int | None, ClockRates] = field(default_factory=dict)
    memory: dict[int | None, DeviceMemory] = field(default_factory=dict)


def interpret(trace: Trace, paths: tuple[Path, ...] = ()) -> TraceTimeline:
    """Turn a trace into a timeline, in whichever dialect it is written. Raises InputError where nothing tells."""
    return _ascend(trace) if dialect_of(trace, paths) == "ascend" else _kineto(trace)


#: Share of tasks outside of all of the host's steps from which these are not those of the device.
_OUTSIDE: Final = 0.2
#: Share of tasks that may begin after the host's last step has ended.
_AFTER: Final = 0.02


def assign_steps(tasks: Tasks, host: HostOps, steps: HostSteps) -> Tasks:
    """Give tasks without a step the step whose host range submitted them.

    The torch operator's time counts before the launch's, because a task queue may launch a step's last
    kernels while Python is in the next step; without either, the device's own time must do.
    """
    if not len(steps) or (tasks.step >= 0).any() or not len(tasks):
        return tasks
    time = host.submitted(tasks)
    if (time == NO_TIME).all():
        number = steps.at(tasks.start)
        # The host ran ahead if much lies outside of its steps, or kernels begin after its last: they say nothing then.
        after = np.count_nonzero((tasks.start > steps.end.max()) & (tasks.work == Work.COMPUTE))
        outside = after > _AFTER * len(tasks) or np.count_nonzero(number < 0) > _OUTSIDE * len(tasks)
        return tasks if outside else tasks.with_columns(step=number)
    return tasks.with_columns(step=np.where(time == NO_TIME, -1, steps.at(time)))


def _in(values: I64, chosen: list[int]) -> Mask:
    """Tell which values are among a few."""
    found = np.zeros(len(values), np.bool_)
    for one in chosen:
        found |= values == one
    return found


def _rows_of(trace: Trace, pids: list[int]) -> I64:
    """Return the rows of some processes."""
    return np.flatnonzero(_in(trace.slices.pid, pids))


def _device_of(trace: Trace, pid: int) -> int | None:
    """Return the device's number in a process's label; exporters that leave it out there have it in their ids.

    Such an id is the pid, the process's place in the order shown, and the device. It is taken apart only where the
    order proves that of all of the exporter's processes.
    """
    label = trace.process_labels.get(pid, "")
    found = _LABEL.search(label)
    if found or label not in ("NPU", ""):
        return int(found.group(1)) if found else None
    own = trace.pids("Ascend Hardware", "CANN", "Communication", "HCCL", "Overlap Analysis")
    proven = [p for p in own if p >> 10 == pid >> 10 > 0 and trace.process_order.get(p) == p >> 5 & 31]
    return pid & 31 if len(proven) == len(own) > 1 else None


def _category(slices: Slices, *wanted: str) -> Mask:
    return slices.cat.flag([c in wanted for c in slices.cat.names])


#: What only copies and collectives have.
_OF_PARTS: Final = ("moved", "partner", "elements", "dtype")


def _ascend(trace: Trace) -> TraceTimeline:
    slices = trace.slices
    operators = slices.filter(_category(slices, "cpu_op")).by_thread()
    ops, stacks = _spans(operators), operators.stack
    del operators
    host_steps, collective = _host_steps(slices), _communication_ops(trace)
    named = named_operations(trace, slices.take(collective), parts_of(trace, collective))
    devices = _ascend_devices(trace, collective, ops)
    trace.flows = trace.flows.without("async_npu", "async_task_queue")
    # What the host did comes last, as it takes most memory.
    slices = trace.slices = slices.without("connection", "task_type", "operation", *_OF_PARTS)
    of_devices = trace.pids("Ascend Hardware", "Communication", "HCCL", "Overlap Analysis")
    of_devices += [pid for pid, label in trace.process_labels.items() if _LABEL.search(label)]
    host = _host_ops(trace, ops, stacks, slices.filter(~_in(slices.pid, of_devices)))
    clock: dict[int | None, ClockRates] = {}
    if trace.clock:
        time, pid, mhz = np.array(trace.clock, np.int64).T
        clock = {_device_of(trace, one): ClockRates.of(time[at], mhz[at]) for one, at in rows_of_each(pid)}
    return TraceTimeline(devices, host, host_steps, named=named, clock=clock)


def _ascend_devices(trace: Trace, collective: I64, ops: Spans) -> dict[int | None, Tasks]:
    """Return the tasks of each device; ``collective``: the rows of its collectives."""
    every = trace.slices
    parts: dict[int | None, list[I64]] = {}
    for rows in (_rows_of(trace, trace.pids("Ascend Hardware")), collective):
        pids = every.pid[rows]
        for pid in distinct(pids).tolist():
            parts.setdefault(_device_of(trace, pid), []).append(rows[pids == pid])
    if not parts:
        return {}
    ends = np.cumsum([0, *(sum(map(len, own)) for own in parts.values())]).tolist()
    numbers, ordered = [*parts], []
    for number in numbers:
        rows = np.concatenate(parts.pop(number))
        start = every.start[rows]
        ordered.append(rows if in_order(start) else rows[sorted_rows(start, every.end[rows])])
    rows = np.concatenate(ordered)
    communicates = np.zeros(len(every), np.bool_)
    communicates[collective] = True
    slices = every.take(rows)
    work = work_of_tasks(slices.task_type, slices.name)
    work[communicates[rows]] = Work.COMMUNICATION
    work = beside_operations(work, slices.name)
    del rows, pids, communicates, ordered, start
    launch_start, launch_end, launch_thread = _ascend_launches(trace, slices)
    trace.flows = trace.flows.without("HostToDevice")
    # A timeline without any vector kernel gives the queue's types, where vector kernels are AI_CORE as well.
    cores = [RUNTIME_CORES.get(n, n) for n in slices.task_type.names]
    vague = {*VAGUE} if "AI_VECTOR_CORE" in cores else {*VAGUE, "AI_CORE"}
    core = Labels.of([None if n in vague else n for n in cores]).take(slices.task_type.codes.astype(np.int64))
    # What the task queue's consumer took out; arrows lead back to the calls that put it in.
    taken = every.filter(_category(every, "dequeue"))
    links = trace.flows.link("async_task_queue")
    arrow = match_keys((taken.tid, taken.start), (links.to_tid, links.to_time))
    queue = Queue(taken.tid, taken.start, taken.end, pick(links.from_tid, arrow), pick(links.from_time, arrow))
    tasks = Tasks.build(
        slices.start,
        slices.end,
        work,
        stream=np.where(work == Work.COMMUNICATION, -1, slices.tid),
        name=slices.name,
        core=core,
        copy=slices.operation,
        moved=slices.moved,
        launch_start=launch_start,
        launch_end=launch_end,
        launch_thread=launch_thread,
        op=behind_launches(ops, queue, launch_thread, launch_start, _launching_ops(trace, slices, ops)),
    )
    return {number: tasks.part(slice(*place)) for number, place in zip(numbers, pairwise(ends), strict=True)}


def _communication_ops(trace: Trace) -> I64:
    """Return the rows of collectives: each is one event on a "Group … Communication" thread; planes hold its parts."""
    slices = trace.slices
    groups = [key for key, name in trace.threads.items() if name.startswith("Group ")]
    mine = _rows_of(trace, trace.pids("Communication", "HCCL"))
    if not groups:
        return mine[slices.name.flag([n.startswith("hcom") for n in slices.name.names])[mine]]
    pid, tid = np.array(groups, np.int64).T
    return mine[match_keys((slices.pid[mine], slices.tid[mine]), (pid, tid)) >= 0]


def _ascend_launches(trace: Trace, tasks: Slices) -> tuple[I64, I64, I64]:
    """Find each task's host launch, its start, end and thread: Node@launch by connection id, else by the flow."""
    every = trace.slices
    node = np.flatnonzero(every.name.flag([n == "Node@launch" for n in every.name.names]))
    connected = np.where(tasks.connection == _INVALID_CONNECTION, -1, tasks.connection)
    by_id = match(connected, every.connection[node])
    by_id[connected < 0] = -1
    call = pick(node, by_id)
    found = pick(every.start, call, NO_TIME), pick(every.end, call, NO_TIME), pick(every.tid, call)
    open_ = np.flatnonzero(by_id < 0)
    if len(open_):
        told = _flown(trace, tasks.take(open_), connected[open_], every.take(node))
        for column, values in zip(found, told, strict=True):
            column[open_] = values
    return found


def _flown(trace: Trace, tasks: Slices, connected: I64, node: Slices) -> tuple[I64, I64, I64]:
    """Find the launches of tasks without a node of their connection: the node around the flow's start, else the flow.

    Copies and events are not launched through nodes: the start of whichever call carries their connection id.
    """
    every, links = trace.slices, trace.flows.link("HostToDevice")
    flow = match_keys((tasks.start, tasks.pid, tasks.tid), (links.to_time, links.to_pid, links.to_tid))
    alone = np.flatnonzero((flow < 0) & (connected >= 0))
    if len(alone) and len(links.to_time):  # of several tasks that are launched at once one has the flow
        others = every.take(_rows_of(trace, distinct(links.to_pid).tolist()))
        there = match_keys((links.to_time, links.to_pid, links.to_tid), (others.start, others.pid, others.tid))
        ids = pick(others.connection, there)
        flow[alone] = match(connected[alone], np.where(ids < 0, -2, ids))
    time, thread = pick(links.from_time, flow, NO_TIME), pick(links.from_tid, flow)
    call, known = np.full(len(flow), -1), np.flatnonzero(flow >= 0)
    call[known] = enclosing(thread[known], time[known], node.tid, node.start, node.end)
    missing = np.flatnonzero((connected >= 0) & (flow < 0))
    if len(missing):
        host = every.filter(_in(every.pid, trace.pids("CANN")) & (every.connection >= 0))
        carrier = carrying(connected[missing], host.start, host.connection)
        time[missing], thread[missing] = pick(host.start, carrier, NO_TIME), pick(host.tid, carrier)
    around = ((node.start, time), (node.end, time), (node.tid, thread))
    start, end, thread = (np.where(call >= 0, pick(own, call), other) for own, other in around)
    return start, end, thread


def _launching_ops(trace: Trace, tasks: Slices, ops: Spans) -> I64:
    """Find the torch operator behind each task, through torch_npu's own arrows.

    They name only the first task of a launch, so tasks of the same connection share the answer. Arrows are matched by
    time first, in the order of which both come: other keys would have to be sorted.
    """
    links = trace.flows.link("async_npu")
    arrow = match_keys((tasks.start, tasks.pid, tasks.tid), (links.to_time, links.to_pid, links.to_tid))
    op = pick(match_keys((links.from_tid, links.from_time), (ops.thread, ops.start)), arrow)
    alone = np.flatnonzero((op < 0) & (tasks.connection >= 0))
    if len(alone):
        known = np.flatnonzero((op >= 0) & (tasks.connection >= 0))
        op[alone] = pick(op[known], match(tasks.connection[alone], tasks.connection[known]))
    return op


def _host_ops(trace: Trace, ops: Spans, stacks: Labels, events: Slices) -> HostOps:
    """Put together what the host did; ``events``: everything of its threads, ``stacks``: of the operators."""
    python = events.filter(_category(events, "python_function"))
    names = python.name.compact()  # of all that happens few are frames: only these are looked at
    ours = python.filter(names.flag(list(map(is_user_frame, names.names))))
    links = trace.flows.link("fwdbwd")
    arrows = Arrows.build(links.to_tid, links.to_time, links.from_tid, links.from_time)
    every = Spans(python.start, python.end, python.tid, names)
    frames = user_frames(_spans(ours.by_thread()), every, stacks)
    # Garbage collection has a track of its own, but stops the main thread.
    events = events.afresh()
    collector = _in(events.pid, trace.pids("Python GC"))
    steps = events.name.flag([bool(_STEP.match(n)) for n in events.name.names])
    thread = events.tid
    if collector.any() and steps.any():
        thread = np.where(collector, events.tid[np.flatnonzero(steps)[0]], thread)
    order = sorted_rows(thread, events.start, -events.afresh().end)
    events = events.take(order)  # of which columns are made anew: those in the old order may go
    thread = thread[order]
    del order, collector, steps
    done = Spans(events.start, events.end, narrow(thread, SIGNED), events.name.compact().narrowed())
    return HostOps(ops, stacks, frames, arrows, done)


def _spans(slices: Slices) -> Spans:
    return Spans(slices.start, slices.end, narrow(slices.tid, SIGNED), slices.name.narrowed())


def _host_steps(slices: Slices) -> HostSteps:
    """Find the ``ProfilerStep#N`` ranges on the host (Kineto repeats them on the device)."""
    numbers = [int(m.group(1)) if (m := _STEP.match(n)) else -1 for n in slices.name.names]
    found = slices.name.flag([number >= 0 for number in numbers]) & _category(slices, "cpu_op", "user_annotation")
    steps = slices.filter(found)
    return HostSteps(np.array([*numbers, -1], np.int64)[steps.name.codes], steps.start, steps.end)


def _kineto(trace: Trace) -> TraceTimeline:
    slices = trace.slices
    gpu = slices.filter(_category(slices, "kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset"))
    ops = slices.filter(_category(slices, "cpu_op")).by_thread()
    is_runtime = slices.cat.flag([bool(_RUNTIME.search(c)) for c in slices.cat.names])
    runtime = slices.filter(is_runtime)
    of_host = is_runtime | _category(slices, "cpu_op", "user_annotation", "python_function")
    host = _host_ops(trace, _spans(ops), ops.stack, slices.filter(of_host))
    collective = gpu.name.flag([is_collective(n) for n in gpu.name.names])
    work = np.where(collective, Work.COMMUNICATION, Work.COMPUTE)
    work = np.where(_category(gpu, "gpu_memcpy", "gpu_memset"), Work.OTHER, work).astype(np.uint8)
    op = np.full(len(gpu), -1, np.int64)
    if (gpu.external != gpu.correlation).any():  # old traces put the correlation there, which is no op
        op = np.where(gpu.external > 0, match(gpu.external, ops.external), -1)
    soc = rank = None
    match trace.header.get("deviceProperties"):
        case [{"name": str(name)}, *_]:
            soc = name
    match trace.header.get("distributedInfo"):
        case {"rank": int(number)} if integer(number) >= 0 and number is not True:
            rank = int(number)
    launch = np.where(gpu.correlation > 0, match(gpu.correlation, runtime.correlation), -1)
    tasks = Tasks.build(
        gpu.start,
        gpu.end,
        work,
        stream=np.where(gpu.stream >= 0, gpu.stream, gpu.tid),
        name=gpu.name,
        type=gpu.name,
        core=Labels(gpu.cat.codes, tuple("GPU" if c.endswith("kernel") else c for c in gpu.cat.names)),
        launch_start=pick(runtime.start, launch, NO_TIME),
        launch_end=pick(runtime.end, launch, NO_TIME),
        launch_thread=pick(runtime.tid, launch),
        op=op,
    )
    groups = torch_groups(trace.header, trace.groups)
    numbers = np.where(gpu.device >= 0, gpu.device, gpu.pid)
    devices: dict[int | None, Tasks] = {d: tasks.filter(numbers == d).sorted() for d in distinct(numbers).tolist()}
    return TraceTimeline(
        devices,
        host,
        _host_steps(slices),
        soc=soc,
        rank=rank,
        kineto=True,
        named=told_operations(gpu.filter(work == Work.COMMUNICATION), runtime, trace.collectives, groups),
        book=groups.book,
    )

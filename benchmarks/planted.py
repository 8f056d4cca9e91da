"""Planted profiles: programs whose bottleneck is known, run on a simulated host and device, written as real files.

A program is a list of host actions per step: operators, waits for the device, data loading, compilation, work
handed to another thread. Host threads take turns by their clocks; streams run their tasks in order, events order
streams, collectives wait for the slowest rank. A :class:`World` changes the speeds or leaves things out, so the
effect of a fix can be measured by running the same program again. Times are integer nanoseconds. The module
knows nothing of npuperf.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

ORIGIN = 1_763_000_000_000_000_000
MAIN, AUTOGRAD, CONSUMER, WORKER = 7001, 7002, 7003, 7004
COMPUTE, SECOND, THIRD, FOURTH, COMM = 2, 5, 6, 7, 9
DATA = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LAUNCH_CALL, TAIL, TURNAROUND, SYNC_RETURN = 3_000, 500, 400, 6_000
PYTHON, CANN, HARDWARE, COMMUNICATION = 7001, 7169024, 7169248, 7169280
HEADER = (
    "Step Id,Device_id,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,Stream ID"
)


@dataclass(frozen=True)
class Op:
    """An operator: host and device time in µs, the part of the host time that is tiling, streams it waits for."""

    type: str
    host: float
    device: float
    stream: int = COMPUTE
    tiling: float = 0.0
    after: tuple[int, ...] = ()
    where: str = "train.py(40): step"
    collective: bool = False

    @property
    def torch(self) -> str:
        """Name of the torch operator."""
        return f"aten::{self.type.lower()}"


@dataclass(frozen=True)
class Sync:
    """The host waits for a stream, or for all of them (None)."""

    where: str
    stream: int | None = COMPUTE


@dataclass(frozen=True)
class Busy:
    """The host does something that launches nothing: ``event`` as recorded, None for unrecorded Python."""

    us: float
    event: str | None = None
    where: str = "train.py(30): main"


@dataclass(frozen=True)
class On:
    """Hand work to another thread and wait until it has launched it all."""

    thread: int
    actions: tuple[Action, ...]


Action = Op | Sync | Busy | On
#: The actions of a step, per thread that starts by itself.
Program = Callable[[int], dict[int, list[Action]]]


@dataclass(frozen=True)
class World:
    """How fast things are, and which fixes are applied."""

    host: float = 1.0
    compute: float = 1.0
    comm: float = 1.0
    latency: float = 1.0
    types: tuple[tuple[str, float], ...] = ()
    causes: tuple[tuple[str, float], ...] = ()
    no_sync: str | None = None
    overlap: bool = False


@dataclass(frozen=True)
class Scenario:
    """A program with everything around it, and what is true of it."""

    name: str
    program: Program
    steps: int = 6
    latency_us: float = 8.0
    queue: bool = False
    skew: int = 0
    stacks: bool = True
    ranks: int = 1
    unlaunched: float = 0.0
    slow_rank: float = 1.0
    cause: str = ""
    sync_line: str | None = None
    fixes: tuple[tuple[str, World], ...] = ()


@dataclass
class Task:
    """A task on the device. ``free``: when it could have started but for its launch."""

    op: Op
    step: int
    number: int
    thread: int
    called: int
    launch: tuple[int, int]
    start: int
    end: int
    free: int

    @property
    def host_paced(self) -> bool:
        """Whether its launch, and nothing else, decided when it started."""
        return self.start > self.free + TURNAROUND


@dataclass
class Event:
    """A recorded host event; ``number`` is the launched task's."""

    name: str
    cat: str
    thread: int
    start: int
    end: int
    number: int = 0


@dataclass
class Recording:
    """What one rank did: device tasks in launch order, host events, steps on the host."""

    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def span(self) -> int:
        """Length of the steps: until host and device are done with the last one."""
        return max(*(t.end for t in self.tasks), self.steps[-1][2]) - self.steps[0][1]


class _Machine:
    """One rank: thread clocks, stream ends, and what was recorded."""

    def __init__(self, scenario: Scenario, world: World, arrivals: list[int] | None) -> None:
        self.scenario, self.world, self.arrivals = scenario, world, arrivals
        self.clock: dict[int, int] = {}
        self.random: dict[int, random.Random] = {}
        self.ends: dict[int, int] = {}
        self.record = Recording()
        self.step = 0
        self.collectives = 0

    def run(self, first_step: int = 11) -> Recording:
        """Run all steps."""
        clock = 0
        for n in range(self.scenario.steps):
            self.step = first_step + n
            begin = clock
            threads = self.scenario.program(n)
            heap = [(begin, tid, iter(actions)) for tid, actions in threads.items()]
            heapq.heapify(heap)
            done = begin
            while heap:
                _, tid, actions = heapq.heappop(heap)
                self.clock[tid] = max(self.clock.get(tid, 0), begin)
                action = next(actions, None)
                if action is None:
                    done = max(done, self.clock[tid])
                    continue
                self._do(tid, action)
                heapq.heappush(heap, (self.clock[tid], tid, actions))
            clock = done
            self.record.steps.append((self.step, begin, clock))
        return self.record

    def _vary(self, tid: int, us: float, spread: float = 0.1) -> float:
        if tid not in self.random:
            self.random[tid] = random.Random(f"{self.scenario.name}/{tid}")
        return us * (1 - spread + 2 * spread * self.random[tid].random())

    def _host(self, tid: int, us: float, cause: str = "") -> int:
        factor = self.world.host * dict(self.world.causes).get(cause, 1.0)
        return int(1000 * self._vary(tid, us) * factor)

    def _event(self, name: str, cat: str, tid: int, start: int, end: int, number: int = 0) -> None:
        self.record.events.append(Event(name, cat, tid, start, end, number))

    def _do(self, tid: int, action: Action) -> None:
        if isinstance(action, Op):
            self._op(tid, action)
        elif isinstance(action, Sync):
            self._sync(tid, action)
        elif isinstance(action, Busy):
            cause = "data_loading" if action.event == DATA else ""
            start = self.clock[tid]
            self.clock[tid] += self._host(tid, action.us, cause)
            if action.event:
                layer = "python" if not action.event.startswith("AscendCL") else "cann"
                self._event(action.event, layer, tid, start, self.clock[tid])
            self._frame(action.where, tid, start, self.clock[tid])
        else:
            self.clock[action.thread] = self.clock[tid] + 15_000
            for inner in action.actions:
                self._do(action.thread, inner)
            self.clock[tid] = self.clock[action.thread] + 10_000

    def _frame(self, where: str, tid: int, start: int, end: int) -> None:
        if tid == MAIN and self.scenario.stacks:
            self._event(where, "frame", tid, start - 200, end + 200)

    def _op(self, tid: int, op: Op) -> None:
        called = self.clock[tid]
        number = len(self.record.tasks) + 1
        total = self._host(tid, op.host)
        tiling = int(1000 * self._vary(tid, op.tiling) * self.world.host * dict(self.world.causes).get("tiling", 1.0))
        if self.scenario.queue:
            enqueued = called + total // 2
            self.clock[tid] = enqueued
            self._event(op.torch, "python", tid, called, enqueued)
            self._event(f"Enqueue@aclnn{op.type}", "enqueue", tid, enqueued - 800, enqueued - 100)
            launcher, begin = CONSUMER, max(self.clock.get(CONSUMER, 0), enqueued + 2_000)
            end = begin + total // 2 + tiling
            self._event(f"Dequeue@aclnn{op.type}", "dequeue", launcher, begin, end)
            self.clock[CONSUMER] = end
        else:
            launcher, begin, end = tid, called + total // 3, called + total + tiling
            self.clock[tid] = end
            name = op.torch if tid != AUTOGRAD else f"autograd::engine::evaluate_function: {op.type}Backward0"
            self._event(name, "python", tid, called, end)
        self._frame(op.where, tid, called, self.clock[tid])
        launched = end - TAIL
        call = launched - min(LAUNCH_CALL, (launched - begin) // 2)
        if tiling:
            middle = call - 200
            name = f"AscendCL@aclnn{op.type}GetWorkspaceSize"
            self._event(name, "cann", launcher, max(begin, middle - tiling), middle)
        self._event("Node@launch", "cann", launcher, call, launched, number)
        self._device(op, number, launcher, tid, called, (call, launched))

    def _device(self, op: Op, number: int, launcher: int, tid: int, called: int, launch: tuple[int, int]) -> None:
        scale = self.world.comm if op.collective else self.world.compute * dict(self.world.types).get(op.type, 1.0)
        dur = max(int(1000 * self._vary(tid, op.device, 0.03) * scale), 1)
        latency = int(1000 * self._vary(tid, self.scenario.latency_us, 0.15) * self.world.latency)
        waits = [] if self.world.overlap and (op.collective or COMM in op.after) else list(op.after)
        free = max([self.ends.get(op.stream, -TURNAROUND), *(self.ends.get(s, -TURNAROUND) for s in waits)])
        start = max(launch[1] + latency, free + TURNAROUND)
        if op.collective:
            arrived = max(start, self.arrivals[self.collectives]) if self.arrivals else start
            self.collectives += 1
            end = arrived + dur
        else:
            end = start + dur
        if op.after:
            before = self.ends.get(op.stream, free)
            self.record.waits.append((op.stream, before + 100, max(free, before + 120)))
        self.ends[op.stream] = end
        self.record.tasks.append(Task(op, self.step, number, launcher, called, launch, start, end, free))

    def _sync(self, tid: int, sync: Sync) -> None:
        if self.scenario.queue:  # the queue is drained first
            self.clock[tid] = max(self.clock[tid], self.clock.get(CONSUMER, 0))
        begin = self.clock[tid] + 1_000
        if self.world.no_sync is not None and self.world.no_sync in sync.where:
            self.clock[tid] = begin + 1_000
            return
        ends = list(self.ends.values()) if sync.stream is None else [self.ends.get(sync.stream, 0)]
        end = max([begin + 1_000, *(e + SYNC_RETURN for e in ends)])
        name = "aclrtSynchronizeDevice" if sync.stream is None else "aclrtSynchronizeStreamWithTimeout"
        self._event("aten::item", "python", tid, begin - 800, end + 300)
        self._event("aten::_local_scalar_dense", "python", tid, begin - 400, end + 200)
        self._event(f"AscendCL@{name}", "cann", tid, begin, end)
        self._frame(sync.where, tid, begin - 900, end + 400)
        self.clock[tid] = end + 500


def run(scenario: Scenario, world: World | None = None) -> list[Recording]:
    """Run the scenario: one recording per rank. Collectives end when the slowest rank has arrived."""
    world = world or World()
    worlds = [
        replace(world, host=world.host * (scenario.slow_rank if rank == scenario.ranks - 1 else 1.0))
        for rank in range(scenario.ranks)
    ]
    arrivals: list[int] | None = None
    for _ in range(1 if scenario.ranks == 1 else 60):
        found = [_Machine(scenario, w, arrivals).run() for w in worlds]
        starts = [[t.start for t in r.tasks if t.op.collective] for r in found]
        latest = [max(column) for column in zip(*starts, strict=True)]
        if latest == arrivals or scenario.ranks == 1:
            break
        arrivals = latest
    return found


# --- writing -------------------------------------------------------------------------------------------------------


def us(ns: int) -> str:
    """Render ns as µs with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def write(scenario: Scenario, out: Path, recordings: list[Recording] | None = None) -> Path:
    """Write the profile of all ranks; return the folder to analyze."""
    recordings = recordings or run(scenario)
    for rank, recording in enumerate(recordings):
        folder = out / f"rank{rank}_1_20251113000000000_ascend_pt"
        results = folder / "ASCEND_PROFILER_OUTPUT"
        results.mkdir(parents=True, exist_ok=True)
        _write_kernels(results / "kernel_details.csv", recording)
        _write_trace(results / "trace_view.json", recording, scenario)
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        if scenario.ranks > 1:  # what tells that all ranks of the job are here
            job = {"distributed_args": {"world_size": scenario.ranks}}
            (folder / "profiler_metadata.json").write_text(json.dumps(job))
        device = folder / "PROF_000001_20251113000000000_PLANTED" / "device_0"
        device.mkdir(parents=True, exist_ok=True)
        (device / "info.json.0").write_text(json.dumps({"DeviceInfo": [{"id": 0, "ai_core_num": 24, "aiv_num": 48}]}))
    return out


def _write_kernels(path: Path, recording: Recording) -> None:
    rows = [HEADER]
    until = None
    for t in sorted(recording.tasks, key=lambda t: t.start):
        wait = 0 if until is None else max(t.start - until, 0)
        until = max(t.end, until or 0)
        core = "COMMUNICATION" if t.op.collective else "AI_CORE"
        stream, block = ("N/A", 0) if t.op.collective else (t.op.stream, 24)
        timing = f"{us(ORIGIN + t.start)}\t,{us(t.end - t.start)},{us(wait)}"
        rows.append(f"{t.step},0,{_name(t)},{t.op.type},dynamic,{core},{timing},{block},0,{stream}")
    path.write_text("\r\n".join(rows) + "\r\n", newline="")


def _name(task: Task) -> str:
    if task.op.collective:
        return f"{task.op.type}_731_{task.number}_1"
    return f"aclnn{task.op.type}_{task.op.type}_{task.op.type}"


def _write_trace(path: Path, recording: Recording, scenario: Scenario) -> None:
    events = [*_metadata(), *_host_events(recording, scenario.skew), *_device_events(recording, scenario)]
    path.write_text(json.dumps(events))


def _metadata() -> Iterator[dict]:
    for pid, name, label in (
        (PYTHON, "Python", "CPU"), (CANN, "CANN", "CPU"), (HARDWARE, "Ascend Hardware", "NPU 0"),
        (COMMUNICATION, "Communication", "NPU 0"),
    ):  # fmt: skip
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}
    yield {"ph": "M", "name": "thread_name", "pid": COMMUNICATION, "tid": 0, "args": {"name": "Group 0 Communication"}}


def _x(name: str, pid: int, tid: int, start: int, end: int, **more: object) -> dict:
    times = {"ts": us(ORIGIN + start), "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, **times, "args": {}, **more}


def _host_events(recording: Recording, skew: int) -> Iterator[dict]:
    """``skew``: by how much the host's clock is ahead of the device's."""
    for number, begin, end in recording.steps:
        yield _x(f"ProfilerStep#{number}", PYTHON, MAIN, begin + skew, end + skew, cat="cpu_op")
    cats = {"python": "cpu_op", "frame": "python_function", "enqueue": "enqueue", "dequeue": "dequeue"}
    for e in recording.events:
        if e.cat == "cann":
            args = {"connection_id": e.number} if e.number else {}
            yield _x(e.name, CANN, e.thread, e.start + skew, e.end + skew, args=args)
        else:
            yield _x(e.name, PYTHON, e.thread, e.start + skew, e.end + skew, cat=cats[e.cat])


def _device_events(recording: Recording, scenario: Scenario) -> Iterator[dict]:
    dropped = random.Random(scenario.name)
    for stream, begin, end in recording.waits:
        args = {"Task Type": "EVENT_WAIT", "connection_id": 4294967295}
        yield _x("EVENT_WAIT", HARDWARE, stream, begin, end, args=args)
    for t in recording.tasks:
        pid, tid = (COMMUNICATION, 0) if t.op.collective else (HARDWARE, t.op.stream)
        known = dropped.random() >= scenario.unlaunched
        args = {"Task Type": "AI_CORE", "connection_id": t.number if known else 4294967295}
        yield _x(_name(t), pid, tid, t.start, t.end, args=args)
        if not known:
            continue
        flow, start = str(t.number << 32), us(ORIGIN + t.start)
        common = {"name": "HostToDevice", "cat": "HostToDevice", "id": flow}
        yield {**common, "ph": "s", "pid": CANN, "tid": t.thread, "ts": us(ORIGIN + t.launch[0] + scenario.skew)}
        yield {**common, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": start}
        arrow = {"name": "torch_to_npu", "cat": "async_npu", "id": ORIGIN + t.start, "bp": "e"}
        op_thread = MAIN if t.thread == CONSUMER else t.thread
        yield {**arrow, "ph": "s", "pid": PYTHON, "tid": op_thread, "ts": us(ORIGIN + t.called + scenario.skew)}
        yield {**arrow, "ph": "f", "pid": pid, "tid": tid, "ts": start}


# --- scenarios -----------------------------------------------------------------------------------------------------

FASTER = ("host*0.5", World(host=0.5))
SLIM = ("host*0.8", World(host=0.8))
KERNELS = ("compute*0.7", World(compute=0.7))
NO_SYNC = ("sync*0", World(no_sync=""))
COMM_FASTER = ("comm*0.5", World(comm=0.5))
OVERLAP = ("overlap", World(overlap=True))
READY = ("host:data_loading*0", World(causes=(("data_loading", 0.0),)))
NO_TILING = ("host:tiling*0", World(causes=(("tiling", 0.0),)))


def ops(count: int, host: float, device: float, **more: object) -> list[Action]:
    """``count`` equal operators."""
    return [Op("MatMul" if device > 50 else "Add", host, device, **more) for _ in range(count)]  # type: ignore[arg-type]


def main(*actions: Action) -> dict[int, list[Action]]:
    """A step of the main thread alone."""
    return {MAIN: list(actions)}


def training(host: float, device: float, count: int = 40) -> list[Action]:
    """Forward, backward on the autograd thread, optimizer."""
    backward = tuple(ops(count, host, device * 1.6))
    return [*ops(count, host, device), On(AUTOGRAD, backward), *ops(count // 4, host * 0.7, device * 0.4)]


def streams(count: int, host: float, device: float, rows: tuple[int, ...]) -> list[Action]:
    """Operators dealt out to streams in turn."""
    return [Op("MatMul", host, device, stream=rows[i % len(rows)]) for i in range(count)]


def collective(us_: float, **more: object) -> Op:
    """A collective that needs the compute stream's results so far."""
    return Op("hcom_allReduce_", 25, us_, stream=COMM, after=(COMPUTE,), collective=True, **more)  # type: ignore[arg-type]


def layered(layers: int, host: float, device: float, comm: float, waits: bool) -> list[Action]:
    """Layers with a collective each; ``waits``: the next layer needs its result."""
    actions: list[Action] = []
    for i in range(layers):
        need = (COMM,) if waits and i else ()
        actions += [Op("MatMul", host, device, after=need), *ops(3, host, device / 4), collective(comm)]
    return [*actions, Op("Add", host, device / 4, after=(COMM,))]


def scenarios() -> list[Scenario]:
    """Every planted situation."""
    found: list[Scenario] = []

    def add(name: str, program: Program, *fixes: tuple[str, World], **more: object) -> None:
        found.append(Scenario(name, program, fixes=fixes, **more))  # type: ignore[arg-type]

    for host in (8, 20, 60):
        for device in (2, 15, 40, 300):
            add(f"even host {host} device {device}", lambda n, h=host, d=device: main(*ops(120, h, d)), FASTER, KERNELS)
    for host, device in ((25, 4), (25, 60), (10, 12)):
        add(f"training {host}/{device}", lambda n, h=host, d=device: main(*training(h, d)), FASTER, KERNELS)
        add(
            f"task queue {host}/{device}",
            lambda n, h=host, d=device: main(*ops(120, h, d)),
            FASTER,
            KERNELS,
            queue=True,
        )
    for count in (2, 3, 4):
        rows = (COMPUTE, SECOND, THIRD, FOURTH)[:count]
        for host, device in ((15, 30), (15, 150)):
            add(
                f"{count} streams {host}/{device}",
                lambda n, h=host, d=device, r=rows: main(*streams(120, h, d, r)),
                FASTER,
                KERNELS,
            )
    add(
        "streams that order each other",
        lambda n: main(
            *[
                Op("MatMul", 12, 40, stream=(COMPUTE, SECOND)[i % 2], after=((SECOND, COMPUTE)[i % 2],))
                for i in range(100)
            ]
        ),
        FASTER,
        KERNELS,
    )
    add(
        "a side stream joined late",
        lambda n: main(
            *ops(20, 10, 60),
            Op("Side", 10, 400, stream=SECOND, after=(COMPUTE,)),
            *ops(20, 10, 60),
            Op("Join", 10, 60, after=(SECOND,)),
            *ops(20, 10, 60),
        ),
        FASTER,
        ("op:Side*0.5", World(types=(("Side", 0.5),))),
    )
    line, at_57 = "train.py(57): step", {"sync_line": "train.py:57 step", "cause": "sync"}
    for host, device in ((10, 30), (10, 100), (30, 20)):
        add(
            f"item every step {host}/{device}",
            lambda n, h=host, d=device: main(*ops(80, h, d), Sync(line)),
            NO_SYNC,
            FASTER,
            **at_57,
        )
        add(
            f"item every 8 operators {host}/{device}",
            lambda n, h=host, d=device: main(*[a for _ in range(12) for a in (*ops(8, h, d), Sync(line))]),
            NO_SYNC,
            FASTER,
            **at_57,
        )
    add(
        "item every kernel",
        lambda n: main(*[a for _ in range(60) for a in (*ops(1, 15, 30), Sync(line))]),
        NO_SYNC,
        FASTER,
        **at_57,
    )
    add(
        "device sync at the end",
        lambda n: main(*ops(60, 12, 40), Sync("train.py(66): main", None)),
        NO_SYNC,
        FASTER,
        sync_line="train.py:66 main",
        cause="sync",
    )
    add(
        "two syncs, one costly",
        lambda n: main(*ops(40, 10, 60), Sync(line), Busy(800), *ops(40, 10, 60), Sync("log.py(9): log")),
        ("sync:train.py:57*0", World(no_sync="train.py(57)")),
        NO_SYNC,
        **at_57,
    )
    add("sync with a task queue", lambda n: main(*ops(80, 20, 30), Sync(line)), NO_SYNC, FASTER, queue=True, **at_57)
    for us_ in (1_000, 5_000, 20_000):
        add(
            f"data stall {us_} µs",
            lambda n, u=us_: main(Busy(u, DATA), *ops(60, 10, 50)),
            READY,
            FASTER,
            cause="data_loading",
        )
    add(
        "data stall, then a sync",
        lambda n: main(Busy(4_000, DATA), *ops(60, 10, 50), Sync(line)),
        READY,
        NO_SYNC,
        cause="data_loading",
    )
    add(
        "data stall in one step",
        lambda n: main(*([Busy(30_000, DATA)] if n == 3 else []), *ops(60, 10, 50)),
        FASTER,
        cause="data_loading",
    )
    add(
        "compile stall in one step",
        lambda n: main(*ops(20, 10, 50), *([Busy(40_000, "AscendCL@opCompile")] if n == 2 else []), *ops(40, 10, 50)),
        FASTER,
        cause="compile",
    )
    add(
        "compile stall every step",
        lambda n: main(Busy(6_000, "AscendCL@opCompile"), *ops(60, 10, 50)),
        FASTER,
        cause="compile",
    )
    add("garbage collection", lambda n: main(*ops(30, 12, 10), Busy(5_000, "GC"), *ops(30, 12, 10)), FASTER, cause="gc")
    add("slow Python between steps", lambda n: main(Busy(8_000), *ops(60, 10, 40)), FASTER, cause="python")
    for tiling in (10, 40):
        add(
            f"tiling {tiling} µs",
            lambda n, t=tiling: main(*ops(100, 12, 6, tiling=t)),
            NO_TILING,
            FASTER,
            cause="tiling" if tiling > 20 else "",
        )
    add("tiling on a busy device", lambda n: main(*ops(100, 12, 90, tiling=30)), NO_TILING, KERNELS)
    for comm in (40, 400):
        add(
            f"exposed collectives {comm} µs",
            lambda n, c=comm: main(*layered(12, 8, 80, c, True)),
            COMM_FASTER,
            OVERLAP,
            KERNELS,
        )
        add(
            f"overlapped collectives {comm} µs",
            lambda n, c=comm: main(*layered(12, 8, 80, c, False)),
            COMM_FASTER,
            KERNELS,
        )
    add("collectives and a slow host", lambda n: main(*layered(12, 40, 30, 60, True)), FASTER, COMM_FASTER)
    add(
        "collective at the end",
        lambda n: main(*ops(60, 8, 60), collective(3_000), Op("Add", 8, 5, after=(COMM,))),
        COMM_FASTER,
        OVERLAP,
    )
    for ranks, slow in ((2, 1.0), (2, 2.0), (4, 1.5)):
        add(
            f"{ranks} ranks, one {slow} times slower",
            lambda n: main(*layered(8, 30, 40, 80, True)),
            KERNELS,
            FASTER,
            COMM_FASTER,
            ranks=ranks,
            slow_rank=slow,
        )
    add("device first, then host", lambda n: main(*ops(20, 10, 500), *ops(700, 30, 3), Sync(line)), FASTER, KERNELS)
    add("host first, then device", lambda n: main(*ops(300, 30, 3), *ops(20, 10, 500), Sync(line)), FASTER, KERNELS)
    add(
        "device, host, communication",
        lambda n: main(
            *ops(20, 10, 400), *ops(600, 30, 3), collective(8_000), Op("Add", 8, 5, after=(COMM,)), Sync(line)
        ),
        FASTER,
        COMM_FASTER,
    )
    add(
        "host-bound steps, then device-bound ones",
        lambda n: main(*(ops(200, 30, 4) if n < 3 else ops(40, 10, 200))),
        FASTER,
        KERNELS,
    )
    add("one slow step", lambda n: main(*ops(60, 30 if n != 4 else 90, 10)), FASTER, SLIM)
    for share in (0.02, 0.3, 1.0):
        add(f"launches missing {share}", lambda n: main(*ops(120, 30, 5)), FASTER, unlaunched=share)
    for skew in (5_000, 20_000):
        add(f"clocks {skew} ns apart", lambda n: main(*ops(120, 30, 10)), FASTER, KERNELS, skew=skew)
    add("clocks apart, with syncs", lambda n: main(*ops(60, 12, 40), Sync(line)), NO_SYNC, FASTER, skew=20_000, **at_57)
    add("no stacks", lambda n: main(*ops(120, 30, 5)), FASTER, stacks=False)
    add("slow launches", lambda n: main(*ops(120, 10, 7)), ("latency*0", World(latency=0.0)), FASTER, latency_us=18.0)
    add("two threads", lambda n: {MAIN: ops(60, 25, 10), WORKER: ops(60, 25, 10, stream=SECOND)}, FASTER, KERNELS)
    add(
        "one operator dominates",
        lambda n: main(*[a for _ in range(20) for a in (*ops(3, 8, 20), Op("Attention", 20, 300))]),
        ("op:Attention*0.5", World(types=(("Attention", 0.5),))),
        KERNELS,
    )
    return found

"""Make a synthetic torch_npu profile: a simulated training run, written in the real file formats.

    python benchmarks/simulate.py OUT [--preset sample|bench] [--kernels N] [--steps N] [--seed N]

One host thread launches kernels in order, streams run them in order, a collective runs beside the backward
pass, and the host waits for the device at the end of each step. All times are integer nanoseconds. The module
knows nothing of npuperf, so that what it writes can judge it. The same seed writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

ORIGIN = 1_762_000_000_000_000_000  # epoch ns of the first launch
PYTHON, CANN, HARDWARE, COMMUNICATION, OVERLAP = 4242, 4344039, 4344256, 4344288, 4344480
MAIN, AUTOGRAD = 4242, 4301
COMPUTE_STREAM, SECOND_STREAM = 2, 5
LAUNCH_NS, LATENCY_NS, TURNAROUND_NS = 4_000, 8_000, 400
NO_MODEL = 4294967295
BLOCK_ROWS = 20_000

HEADER = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),{block},Mix {block},HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,"
    "aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,"
    "aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),"
    "aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),"
    "aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)"
)
PMU_COLUMNS = 25
#: The chip, and how much of a kernel's time its cores have blocks; a cube core makes 16 × 16 × 16 products a cycle.
CUBE_CORES, VECTOR_CORES, MHZ, AT_WORK, CUBE_FLOP = 24, 48, 1800, 0.93, 8192
#: Useful work as a part of what cube cores do; the rest is padding.
USEFUL = 0.95


@dataclass(frozen=True)
class Operands:
    """Inputs and outputs as the exporter names them, and the floating point operations of their products."""

    shapes: str = "2048,1024;1024,1024"
    dtypes: str = "DT_BF16;DT_BF16"
    formats: str = "ND;ND"
    out_shapes: str = "2048,1024"
    out_dtypes: str = "DT_BF16"
    out_formats: str = "ND"
    flop: int = 0

    def cells(self) -> str:
        """Render the columns from Input Shapes on."""
        ins, outs = (f'"""{text}"""' for text in (self.shapes, self.out_shapes))
        return f"{ins},{self.dtypes},{self.formats},{outs},{self.out_dtypes},{self.out_formats}"


def product(m: int, n: int, k: int, *, backward: bool = False) -> Operands:
    """Operands of a product of m × k by the transpose of n × k, or of its first input's gradient: m × n by n × k."""
    if backward:
        return Operands(f"{m},{n};{n},{k}", out_shapes=f"{m},{k}", flop=2 * m * n * k)
    return Operands(f"{m},{k};{n},{k}", out_shapes=f"{m},{n}", flop=2 * m * n * k)


def attention(tokens: int, heads: int, size: int, *, backward: bool = False) -> Operands:
    """Operands of fused attention with a compressed causal mask; backward takes five products where forward has two."""
    tensor, pairs = f"{tokens},1,{heads * size}", tokens * (tokens + 1) // 2
    statistics = f"1,{heads},{tokens},8"
    if backward:
        ins = [tensor] * 4 + ["2048,2048", statistics, statistics, "", tensor]
        kinds = ["DT_BF16"] * 4 + ["BOOL", "FLOAT", "FLOAT", "DT_BF16", "DT_BF16"]
        outs, out_kinds = [tensor] * 3, ["DT_BF16"] * 3
    else:
        ins = [tensor] * 3 + ["", "", "", "2048,2048"]
        kinds = ["DT_BF16"] * 4 + ["UINT8", "DT_BF16", "BOOL"]
        outs, out_kinds = [statistics, statistics, "", tensor], ["FLOAT", "FLOAT", "DT_BF16", "DT_BF16"]
    return Operands(";".join(ins), ";".join(kinds), ";".join(["ND"] * len(ins)), ";".join(outs), ";".join(out_kinds),
                    ";".join(["ND"] * len(outs)), 2 * pairs * heads * size * (5 if backward else 2))  # fmt: skip


@dataclass(frozen=True)
class Op:
    """One operator: what Python calls, what runs, for how long (µs on host and device), on how many cores."""

    torch: str
    type: str
    core: str
    host: float
    device: float
    block: int
    mix: int = 0
    frame: str = ""
    backward: bool = False
    stream: int = COMPUTE_STREAM
    operands: Operands = Operands()

    @property
    def kernel(self) -> str:
        """Name of the kernel, in the exporter's manner."""
        return f"aclnn{self.type}_{self.type}_{self.type}"


def layer(frame: str) -> list[Op]:
    """One transformer layer, forward."""
    attending, mlp = "model.py(88): attention", "model.py(131): mlp"
    query, out = product(2048, 1024, 1024), product(2048, 512, 1024)
    up, down = product(2048, 1536, 1024), product(2048, 1024, 1536)
    return [
        Op("aten::layer_norm", "LayerNormV4", "AI_VECTOR_CORE", 28, 11.2, 40, frame=frame),
        Op("aten::linear", "MatMulV2", "AI_CORE", 34, 22.5, 20, frame=attending, operands=query),
        Op("aten::transpose", "Transpose", "AI_VECTOR_CORE", 22, 9.4, 32, frame=attending),
        Op(
            "npu::npu_fusion_attention",
            "FlashAttentionScore",
            "MIX_AIC",
            61,
            34.1,
            24,
            mix=48,
            frame=attending,
            operands=attention(2048, 8, 64),
        ),
        Op("aten::linear", "MatMulV2", "AI_CORE", 33, 14.7, 20, frame=attending, operands=out),
        Op("aten::add", "Add", "AI_VECTOR_CORE", 17, 4.3, 48, frame=frame),
        Op("aten::linear", "MatMulV2", "AI_CORE", 33, 26.0, 24, frame=mlp, operands=up),
        Op("aten::gelu", "Gelu", "AI_VECTOR_CORE", 18, 6.1, 48, frame=mlp),
        Op("aten::linear", "MatMulV2", "AI_CORE", 33, 25.8, 24, frame=mlp, operands=down),
        Op("aten::add", "Add", "AI_VECTOR_CORE", 17, 4.2, 48, frame=frame),
    ]


def training_step() -> list[Op]:
    """A small training step: two layers forward, backward, optimizer; some of it not well written."""
    forward = [
        Op("aten::embedding", "GatherV2", "AI_VECTOR_CORE", 30, 7.7, 24, frame="train.py(52): step"),
        Op("aten::_to_copy", "Cast", "AI_VECTOR_CORE", 19, 3.3, 16, frame="train.py(53): step"),
        *layer("model.py(74): forward"),
        *layer("model.py(74): forward"),
        Op("aten::cumsum", "Cumsum", "AI_CPU", 45, 71.0, 1, frame="train.py(57): step"),
        Op("aten::nll_loss", "NLLLoss", "AI_VECTOR_CORE", 26, 5.2, 8, frame="train.py(58): step"),
    ]
    backward = [gradient(op) for op in reversed(forward) if op.core != "AI_CPU"]
    optimizer = [
        Op("aten::_foreach_add_", "ForeachAddList", "AI_VECTOR_CORE", 38, 24.0, 48, frame="train.py(63): step"),
        Op("aten::mul", "Mul", "AI_VECTOR_CORE", 16, 2.6, 12, frame="train.py(64): step"),
    ]
    return forward + backward + optimizer


def gradient(op: Op) -> Op:
    """The backward operator of ``op``: somewhat dearer on both sides, on the autograd thread."""
    operands = op.operands
    if op.core == "MIX_AIC":
        operands = attention(2048, 8, 64, backward=True)
    elif op.core == "AI_CORE":
        m, k, n, _ = map(int, operands.shapes.replace(";", ",").split(","))
        operands = product(m, n, k, backward=True)
    return replace(
        op,
        torch=f"{op.torch}_backward",
        type=op.type if op.core == "AI_CORE" else f"{op.type}Grad",
        host=op.host * 1.1,
        device=op.device * 1.3,
        backward=True,
        operands=operands,
    )


def bench_step(size: int) -> list[Op]:
    """``size`` kernels of the usual kinds on two streams, as a benchmark wants them."""
    kinds = [*layer("x.py(1): f"), Op("aten::sum", "ReduceSum", "AI_VECTOR_CORE", 15, 12.0, 16)]
    kinds = [replace(op, stream=(COMPUTE_STREAM, SECOND_STREAM)[i % 2]) for i, op in enumerate(kinds)]
    rare = Op("aten::unique", "Unique", "AI_CPU", 40, 55.0, 1)
    return [rare if i % 997 == 996 else kinds[i % len(kinds)] for i in range(size)]


COPY = Op("aten::_to_copy", "MEMCPY_ASYNC", "PCIE_DMA_SQE", 40, 21.0, 0, frame="train.py(49): step")
REDUCE = Op("c10d::allreduce_", "hcom_allReduce_", "COMMUNICATION", 48, 620.0, 0, backward=True, stream=-1)
WAIT = Op("aten::wait", "EVENT_WAIT", "EVENT_WAIT_SQE", 3, 1.0, 0)


@dataclass
class Task:
    """A task on the device and the host call behind it; times in epoch ns."""

    number: int
    step: int
    op: Op
    call: tuple[int, int]
    launch: int
    start: int
    end: int
    kind: str = "kernel"

    @property
    def thread(self) -> int:
        """Python thread of the call."""
        return AUTOGRAD if self.op.backward else MAIN

    @property
    def name(self) -> str:
        """Name of the task on the device."""
        if self.kind == "collective":
            return f"hcom_allReduce__731_{self.step}_1"
        return self.op.kernel if self.kind == "kernel" else self.op.type


@dataclass
class Run:
    """The state of the simulation: the host's clock and the end of each stream."""

    seed: int
    clock: int = ORIGIN
    stream_end: dict[int, int] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def launch(self, step: int, op: Op, kind: str = "kernel", after: int = 0) -> Task:
        """Run one operator on the host and queue its kernel on the device."""
        called = self.clock
        launched = called + self._vary(op.host)
        self.clock = launched + LAUNCH_NS
        free = self.stream_end.get(op.stream, 0) + TURNAROUND_NS
        start = max(self.clock + LATENCY_NS, free, after)
        end = start + self._vary(op.device)
        self.stream_end[op.stream] = end
        self.number += 1
        return Task(self.number, step, op, (called, self.clock + 500), launched, start, end, kind)

    def wait_for_device(self) -> tuple[int, int]:
        """Synchronise: the host goes on when every stream is empty. Return begin and end of the wait."""
        begin = self.clock
        self.clock = max([begin, *self.stream_end.values()]) + 15_000
        return begin, self.clock

    def _vary(self, us: float) -> int:
        return int(us * (900 + 200 * self.random.random()))


Step = tuple[int, tuple[int, int], tuple[int, int], list[Task]]


def simulate(steps: Iterable[tuple[int, list[Op]]], seed: int) -> Iterator[Step]:
    """Yield each step: number, range on the host, when the host waited at its end, tasks in launch order."""
    run = Run(seed)
    for number, ops in steps:
        begin = run.clock
        tasks = [run.launch(number, COPY, "copy")]
        middle = len(ops) * 9 // 10
        for i, op in enumerate(ops):
            if i == middle:
                tasks.append(run.launch(number, REDUCE, "collective", after=run.stream_end[COMPUTE_STREAM]))
            tasks.append(run.launch(number, op))
        tasks.append(run.launch(number, WAIT, "control"))
        wait = run.wait_for_device()
        yield number, (begin, run.clock), wait, tasks
        run.clock += 60_000


def us(ns: int) -> str:
    """Render ns as µs with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def counters(task: Task) -> str:
    """Render the hardware counters: plausible shares of the kernel's own time, and what the exporter makes of them."""
    time, core, op = (task.end - task.start) / 1000, task.op.core, task.op
    at_work, cube, vector = AT_WORK * time, [], []
    if core in ("AI_CORE", "MIX_AIC"):
        cycles = round(at_work * MHZ * min(op.block, CUBE_CORES))
        mac = round(op.operands.flop / USEFUL / (cycles * CUBE_FLOP), 3)
        cube = [mac, 0.21, 0.4, 0.83 if op.block < CUBE_CORES else 0.58, 0.09]
    if core in ("AI_VECTOR_CORE", "MIX_AIC"):
        vector = [0.31, 0.24, 0.55, 0.37]
    if not cube and not vector:
        return ",".join(["N/A"] * PMU_COLUMNS)
    cells = [f"{at_work:.3f}", str(cycles)] if cube else ["0", "0"]
    for share in cube or [0.0] * 5:
        cells += [f"{at_work * share:.3f}", f"{share:g}"]
    cells.append("0.004" if cube else "0")
    blocks = min(op.mix or op.block, VECTOR_CORES)
    cells += [f"{at_work:.3f}", str(round(at_work * MHZ * blocks))] if vector else ["0", "0"]
    for share in vector or [0.0] * 4:
        cells += [f"{at_work * share:.3f}", f"{share:g}"]
    used = f"{100 * cycles / (MHZ * CUBE_CORES * time):.3f}" if cube else "0"
    return ",".join([*cells, "0.011" if vector else "0", used])


def kernel_row(task: Task, wait: int) -> str:
    """Render one row of kernel_details.csv."""
    op = task.op
    timing = f"{us(task.start)}\t,{us(task.end - task.start)},{us(wait)}"
    if task.kind == "collective":
        tail = ",".join(["N/A"] * (8 + PMU_COLUMNS))
        return f"{task.step},0,{NO_MODEL},N/A,N/A,{task.name},{op.type},N/A,{op.core},{timing},0,N/A,{tail}\r\n"
    head = f"{task.step},0,{NO_MODEL},{task.number & 0xFFFF},{op.stream},{task.name},{op.type},dynamic,{op.core}"
    return f"{head},{timing},{op.block},{op.mix},NO,{op.operands.cells()},N/A,{counters(task)}\r\n"


def metadata() -> Iterator[str]:
    """Render the names of processes and threads."""
    processes = [(PYTHON, "Python", "CPU"), (CANN, "CANN", "CPU"), (HARDWARE, "Ascend Hardware", "NPU 0")]
    processes += [(COMMUNICATION, "Communication", "NPU 0"), (OVERLAP, "Overlap Analysis", "NPU 0")]
    for pid, name, label in processes:
        yield _json(ph="M", name="process_name", pid=pid, tid=0, args={"name": name})
        yield _json(ph="M", name="process_labels", pid=pid, tid=0, args={"labels": label})
    threads = [(pid, tid, f"Thread {tid}") for pid in (PYTHON, CANN) for tid in (MAIN, AUTOGRAD)]
    threads += [(HARDWARE, stream, f"Stream {stream}") for stream in (COMPUTE_STREAM, SECOND_STREAM)]
    for pid, tid, name in [*threads, (COMMUNICATION, 0, "Group 0 Communication")]:
        yield _json(ph="M", name="thread_name", pid=pid, tid=tid, args={"name": name})


def _json(**event: object) -> str:
    return json.dumps(event)


def host_events(task: Task) -> str:
    """Render the operator on the host, its launch, and the arrows that leave them."""
    begin, end = task.call
    flow, tid, launch = task.number << 32, task.thread, us(task.launch)
    return (
        f'{{"ph": "X", "name": "{task.op.torch}", "pid": {PYTHON}, "tid": {tid}, "ts": "{us(begin)}", '
        f'"dur": {us(end - begin)}, "cat": "cpu_op", '
        f'"args": {{"Sequence number": {task.number}, "Fwd thread id": 0}}}}, '
        f'{{"name": "Node@launch", "pid": {CANN}, "tid": {tid}, "ts": "{launch}", "dur": {us(LAUNCH_NS)}, '
        f'"args": {{"Thread Id": {tid}, "Mode": "launch", "level": "node", "id": "0", '
        f'"item_id": "{task.op.kernel}", "connection_id": {task.number}}}, "ph": "X"}}, '
        f'{{"name": "HostToDevice{flow}", "ph": "s", "cat": "HostToDevice", "id": "{flow}", "pid": {CANN}, '
        f'"tid": {tid}, "ts": "{launch}"}}, '
        f'{{"ph": "s", "bp": "e", "name": "torch_to_npu", "id": {task.start}, "pid": {PYTHON}, "tid": {tid}, '
        f'"ts": "{us(begin)}", "cat": "async_npu"}}'
    )


def device_events(task: Task) -> str:
    """Render the task on the device, and the arrows that arrive at it."""
    flow, start = task.number << 32, us(task.start)
    pid, tid = (COMMUNICATION, 0) if task.kind == "collective" else (HARDWARE, task.op.stream)
    args = (
        f'"connection_id": {task.number}, "model id": {NO_MODEL}, "data_type": "BFP16"'
        if task.kind == "collective"
        else f'"Model Id": {NO_MODEL}, "Task Type": "{task.op.core}", "Physic Stream Id": {tid}, '
        f'"Task Id": {task.number & 0xFFFF}, "Batch Id": 0, "Subtask Id": {NO_MODEL}, "connection_id": {task.number}'
    )
    return (
        f'{{"name": "{task.name}", "pid": {pid}, "tid": {tid}, "ts": "{start}", "dur": {us(task.end - task.start)}, '
        f'"args": {{{args}}}, "ph": "X"}}, '
        f'{{"name": "HostToDevice{flow}", "ph": "f", "id": "{flow}", "ts": "{start}", "cat": "HostToDevice", '
        f'"pid": {pid}, "tid": {tid}, "bp": "e"}}, '
        f'{{"ph": "f", "bp": "e", "name": "torch_to_npu", "id": {task.start}, "pid": {pid}, "tid": {tid}, '
        f'"ts": "{start}", "cat": "async_npu"}}'
    )


def waiting(begin: int, end: int) -> Iterator[str]:
    """Render the wait for the device at the end of a step: the loss is read back."""
    dur = (end - begin) / 1000
    yield _json(ph="X", name="aten::item", pid=PYTHON, tid=MAIN, ts=us(begin), dur=dur, cat="cpu_op", args={})
    begin, dur = begin + 600, (end - begin - 1_200) / 1000
    name = "AscendCL@aclrtSynchronizeStreamWithTimeout"
    yield _json(ph="X", name=name, pid=CANN, tid=MAIN, ts=us(begin), dur=dur, args={"level": "acl"})
    yield _frame("train.py(66): step", begin - 900, end + 100)


def python_frames(tasks: list[Task], host: tuple[int, int]) -> Iterator[str]:
    """Render the Python functions around the operators: the loop, the user's function, a library's inside it."""
    yield _frame("train.py(71): main", *host)
    for task in tasks:
        if task.op.frame and not task.op.backward:
            begin, end = task.call
            yield _frame(task.op.frame, begin - 300, end + 300)
            yield _frame("torch/nn/modules/module.py(1751): _call_impl", begin - 100, end + 100)


def _frame(name: str, begin: int, end: int) -> str:
    args = {"Python id": 1, "Python parent id": 0}
    dur = (end - begin) / 1000
    return _json(ph="X", name=name, pid=PYTHON, tid=MAIN, ts=us(begin), dur=dur, cat="python_function", args=args)


def backward_arrows(tasks: list[Task]) -> Iterator[str]:
    """Tie each backward operator to its forward operator."""
    forward = {t.op.torch: t for t in tasks if not t.op.backward}
    for t in tasks:
        origin = forward.get(t.op.torch.removesuffix("_backward")) if t.op.backward else None
        if origin:
            common = {"bp": "e", "name": "fwdbwd", "id": t.number, "pid": PYTHON, "cat": "fwdbwd"}
            yield _json(ph="s", tid=MAIN, ts=us(origin.call[0]), **common)
            yield _json(ph="f", tid=AUTOGRAD, ts=us(t.call[0]), **common)


def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Unite overlapping intervals."""
    united: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((begin, end))
    return united


def length(intervals: list[tuple[int, int]]) -> int:
    """Return the summed length."""
    return sum(end - begin for begin, end in intervals)


def step_row(step: int, host_begin: int, tasks: list[Task]) -> str:
    """Render one row of step_trace_time.csv."""
    compute = merge([(t.start, t.end) for t in tasks if t.kind == "kernel"])
    comm = merge([(t.start, t.end) for t in tasks if t.kind == "collective"])
    both = merge(compute + comm)
    hidden = length(compute) + length(comm) - length(both)
    span, exposed = both[-1][1] - both[0][0], length(comm) - hidden
    preparing = both[0][0] - host_begin
    cells = [length(compute), exposed, hidden, length(comm), span - length(both), span, 0, exposed, preparing]
    return f"0,{step}," + ",".join(str(ns / 1000) for ns in cells) + "\n"


def write_context(out: Path) -> None:
    """Write what describes the collection: options, environment, core counts of an Ascend910B1."""
    schedule = {"wait": 10, "active": 3, "warmup": 1, "repeat": 1, "skip_first": 0}
    common = {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"], "schedule": schedule, "with_stack": True}
    experimental = {"_profiler_level": "Level1", "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION"}
    info = {"config": {"common_config": common, "experimental_config": experimental}, "rank_id": 0}
    environment = {"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "", "HCCL_ALGO": ""}}
    cores = {"DeviceInfo": [{"id": 0, "ai_core_num": 24, "aiv_num": 48}], "platform_version": "5"}
    device = out / "PROF_000001_20251101123000123_SYNTHETIC" / "device_0"
    device.mkdir(parents=True, exist_ok=True)
    (out / "profiler_info_0.json").write_text(json.dumps(info, indent=1))
    (out / "profiler_metadata.json").write_text(json.dumps(environment, indent=1))
    (device / "info.json.0").write_text(json.dumps(cores, indent=1))


class Writer:
    """Writes the three big files step by step, so that memory stays bounded by one step."""

    def __init__(self, out: Path, block: str, frames: bool) -> None:
        folder = out / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True, exist_ok=True)
        self.kernels = self._open(folder / "kernel_details.csv")
        self.trace = self._open(folder / "trace_view.json")
        self.steps = self._open(folder / "step_trace_time.csv")
        self.frames = frames
        self.busy = 0
        self.kernels.write(HEADER.format(block=block) + "\r\n")
        self.trace.write("[" + ", ".join(metadata()))
        self.steps.write(
            "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
            "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        )

    @staticmethod
    def _open(path: Path) -> TextIO:
        return path.open("w", newline="", encoding="utf-8")

    def step(self, number: int, host: tuple[int, int], wait: tuple[int, int], tasks: list[Task]) -> None:
        """Write one step."""
        dur = (host[1] - host[0]) / 1000
        name = f"ProfilerStep#{number}"
        self._events(_json(ph="X", name=name, pid=PYTHON, tid=MAIN, ts=us(host[0]), dur=dur, cat="cpu_op", args={}))
        self._events(*waiting(*wait))
        for first in range(0, len(tasks), BLOCK_ROWS):
            block = tasks[first : first + BLOCK_ROWS]
            self._events(*map(host_events, block), *map(device_events, block))
        if self.frames:
            self._events(*python_frames(tasks, host), *backward_arrows(tasks))
        rows = sorted((t for t in tasks if t.kind in ("kernel", "collective")), key=lambda t: t.start)
        for first in range(0, len(rows), BLOCK_ROWS):
            self.kernels.writelines(self._row(t) for t in rows[first : first + BLOCK_ROWS])
        self._overlap(tasks)
        self.steps.write(step_row(number, host[0], tasks))

    def _row(self, task: Task) -> str:
        wait = max(0, task.start - self.busy) if self.busy else 0
        self.busy = max(self.busy, task.end)
        return kernel_row(task, wait)

    def _events(self, *events: str) -> None:
        self.trace.write("".join(", " + e for e in events))

    def _overlap(self, tasks: list[Task]) -> None:
        for tid, (name, kind) in enumerate((("Computing", "kernel"), ("Communication", "collective"))):
            for begin, end in merge([(t.start, t.end) for t in tasks if t.kind == kind]):
                self._events(_json(name=name, pid=OVERLAP, tid=tid, ts=us(begin), dur=(end - begin) / 1000, ph="X"))

    def close(self) -> None:
        """Finish the files."""
        self.trace.write("]")
        for file in (self.kernels, self.trace, self.steps):
            file.close()


def main() -> None:
    """Parse the arguments and write the profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=("sample", "bench"), default="sample")
    parser.add_argument("--kernels", type=int, default=1_000_000, help="kernels in all (bench)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block-column", choices=("Block Dim", "Block Num"), default="Block Dim")
    options = parser.parse_args()
    sample = options.preset == "sample"
    ops = training_step() if sample else bench_step(options.kernels // options.steps)
    write_context(options.out)
    writer = Writer(options.out, options.block_column, frames=sample)
    for step in simulate(((11 + i, ops) for i in range(options.steps)), options.seed):
        writer.step(*step)
    writer.close()


if __name__ == "__main__":
    main()

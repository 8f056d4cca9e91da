"""Write a simulated cluster job as the profiler writes a real one: one rank_N_ascend_pt folder per rank.

Formats are those of data/msinsight/cluster4, oddities included: communication.json has no transfer and no wait for
most collectives, its start is a JSON number (a quarter of a microsecond), src-dst of communication_matrix.json are
ranks inside the group, Bubble is always 0. Times are in each device's own clock. The module knows nothing of npuperf.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from cluster_job import Comm, Fault, Group, Job, Kernel, Segment, link_ns_per_byte, own_groups, shaped
from cluster_world import Operation, StepRecord, Truth, early, moved_bytes, simulate

FIRST_STEP = 10
HEADER = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,"
    "aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,"
    "aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),"
    "aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),"
    "aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)"
)
NOT_APPLICABLE = ",N/A" * 34
CUBE = ("MatMulV3", "GroupedMatmul")
MIX = ("FlashAttentionScore", "FlashAttentionScoreGrad")
TYPE_IN_MATRIX = {"reduceScatter": "reduce", "alltoallv": "alltoall"}
STEP_TRACE = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
ENVIRONMENT = (
    "ASCEND_GLOBAL_LOG_LEVEL", "HCCL_RDMA_TC", "HCCL_RDMA_SL", "ACLNN_CACHE_LIMIT", "HOST_CACHE_CAPACITY",
    "ASCEND_ENHANCE_ENABLE", "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING", "HCCL_ALGO",
)  # fmt: skip
PYTHON, CANN, HARDWARE, COMMUNICATION = 7001, 7169024, 7169248, 7169280
MAIN, COMPUTE = 7001, 2
NOTHING = '{"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0, "Size Distribution": {}}'  # noqa: E501


def write(truth: Truth | Job, out: Path, ranks: Iterable[int] | None = None) -> Path:
    """Write all recorded ranks of a job, or some; return the folder to analyze."""
    truth = truth if isinstance(truth, Truth) else simulate(truth)
    for rank in truth.job.recorded() if ranks is None else ranks:
        _Writer(truth, rank).write(Path(out) / f"rank_{rank}_ascend_pt")
    return Path(out)


def us(ns: int) -> str:
    """Render ns as µs with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


class _Step:
    """One step of a rank in its device's clock: kernels, operations, the host's window."""

    def __init__(self, truth: Truth, rank: int, record: StepRecord) -> None:
        self.record, self.operations = record, record.operations
        self.start, self.finish = truth.clock(rank, record.start), truth.clock(rank, record.finish)
        self.launch = truth.clock(rank, record.launch)
        arrivals = np.array([op.arrival[rank] for op in record.operations], np.int64)
        ends = np.array([op.end[rank] for op in record.operations], np.int64)
        self.arrival, self.end = truth.clock(rank, arrivals), truth.clock(rank, ends)
        self.begin, self.stop = (int(t) for t in truth.clock(rank, np.array([record.begin, record.end])))
        self.number = record.number + FIRST_STEP + dict(truth.job.shifted).get(rank, 0)

    def order(self) -> np.ndarray:
        """Rows by start: kernels, then operations (numbered after them)."""
        return np.argsort(np.concatenate([self.start, self.arrival]), kind="stable")

    def overlapped(self) -> int:
        """Time in operations while a kernel runs."""
        return sum(int(self._covered(e) - self._covered(b)) for b, e in _together(self.arrival, self.end))

    def _covered(self, at: int) -> int:
        before = np.concatenate([[0], np.cumsum(self.finish - self.start)])
        index = np.searchsorted(self.start, at)
        last = np.maximum(index - 1, 0)
        return before[index] - np.where(index > 0, np.maximum(self.finish[last] - at, 0), 0)


class _Writer:
    """Writes the files of one rank."""

    def __init__(self, truth: Truth, rank: int) -> None:
        self.truth, self.job, self.rank = truth, truth.job, rank
        self.device = truth.job.device(rank)
        self.program = truth.programs[rank]
        self.kernels = [shaped(self.job, rank, k) for k in self.program.kernels]
        steps = (record for record in truth.ranks[rank] if (rank, record.number) not in truth.job.skipped)
        self.steps = [_Step(truth, rank, record) for record in steps]
        self.launch_of = _kernel_launches(self.program.items)
        groups = (item.group for item in self.program.items if isinstance(item, Comm))
        self.groups = list(dict.fromkeys([*own_groups(self.job, rank).values(), *groups]))

    def write(self, folder: Path) -> None:
        """Write the rank's folder."""
        results = folder / "ASCEND_PROFILER_OUTPUT"
        results.mkdir(parents=True, exist_ok=True)
        (folder / f"profiler_info_{self.rank}.json").write_text(json.dumps(self._info(), indent=4))
        (folder / "profiler_metadata.json").write_text(json.dumps(self._metadata()))
        (results / "step_trace_time.csv").write_text("\n".join(self._step_trace()) + "\n")
        (results / "communication.json").write_text(self._communication())
        (results / "communication_matrix.json").write_text(self._matrix())
        if self.rank not in self.job.bare:
            (results / "kernel_details.csv").write_text("\r\n".join(self._kernel_rows()) + "\r\n", newline="")
        if self.job.trace:
            (results / "trace_view.json").write_text("[" + ",\n".join(self._trace()) + "]")

    # --- what was recorded ---

    def _info(self) -> dict:
        job, host = self.job, self.job.host(self.rank)
        common = {
            "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"],
            "schedule": {"wait": 0, "active": job.steps, "warmup": 1, "repeat": 1, "skip_first": FIRST_STEP - 1},
            "record_shapes": True, "profile_memory": False, "with_stack": False, "with_flops": False,
            "with_modules": False,
        }  # fmt: skip
        experimental = {
            "_profiler_level": "Level1", "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION", "_l2_cache": False,
            "_msprof_tx": False, "_mstx": False, "_data_simplification": True, "record_op_args": False,
            "_export_type": ["text"], "_host_sys": [], "_op_attr": False, "_gc_detect_threshold": None,
            "_mstx_domain_include": [], "_mstx_domain_exclude": [], "_sys_io": False, "_sys_interconnection": False,
        }  # fmt: skip
        # Each host counts from its own start: far apart between hosts, the same on one.
        booted = 4_699_801_002_845_430 + host * 86_400_123_456_789
        return {
            "config": {"common_config": common, "experimental_config": experimental},
            "start_info": {"syscnt_enable": True, "freq": 100, "start_cnt": booted // 10, "start_monotonic": booted},
            "end_info": {
                "collectionTimeEnd": self.steps[-1].stop,
                "MonotonicTimeEnd": booted + self.steps[-1].record.end,
            },
            "torch_npu_version": "2.7.1", "cann_version": "8.3.RC1", "rank_id": str(self.rank),
        }  # fmt: skip

    def _metadata(self) -> dict:
        job = self.job
        arguments = {
            "tensor_model_parallel_size": job.tp, "pipeline_model_parallel_size": job.pp,
            "data_parallel_size": job.dp, "context_parallel_size": 1, "expert_model_parallel_size": job.ep,
            "sequence_parallel": False, "rank": self.rank, "world_size": job.world,
        }  # fmt: skip
        groups = {
            g.name: {"group_name": g.kind, "group_rank": g.ranks.index(self.rank), "global_ranks": list(g.ranks)}
            for g in own_groups(job, self.rank).values()
        }
        environment = {**dict.fromkeys(ENVIRONMENT, ""), "ASCEND_GLOBAL_LOG_LEVEL": "3"}
        return {"distributed_args": arguments, "ENV_VARIABLES": environment, "parallel_group_info": groups}

    # --- the device ---

    def _step_trace(self) -> Iterator[str]:
        """Yield a step's split of the time from its first task to the next step's first, as the exporter does."""
        yield STEP_TRACE
        first = [int(min([*step.start[:1], *step.arrival[:1]])) for step in self.steps]
        last = int(max([*self.steps[-1].finish[-1:], *self.steps[-1].end]))
        for step, begin, stop in zip(self.steps, first, [*first[1:], last], strict=True):
            computing = int((step.finish - step.start).sum())
            communication, overlapped = sum(e - b for b, e in _together(step.arrival, step.end)), step.overlapped()
            exposed, length = communication - overlapped, stop - begin
            received = [op.comm[self.rank].type == "receive" for op in step.operations]
            bubble = int((step.end - step.arrival)[received].sum())
            values = (computing, exposed, overlapped, communication, length - computing - exposed, length - bubble)
            shown = ",".join(str(v / 1000) for v in values)
            rest = f"{bubble / 1000 or 0},{max(exposed - bubble, 0) / 1000},{(begin - step.begin) / 1000}"
            yield f"{self.device},{step.number},{shown},{rest}"

    def _kernel_rows(self) -> Iterator[str]:
        yield HEADER
        parts = [_row_parts(kernel) for kernel in self.kernels]
        cube = [kernel.type in CUBE for kernel in self.kernels]
        until, task = 0, 30_000
        for step in self.steps:
            start = np.concatenate([step.start, step.arrival]).tolist()
            end = np.concatenate([step.finish, step.end]).tolist()
            head = f"{step.number},{self.device},4294967295,"
            for i in step.order().tolist():
                begin, ns = start[i], end[i] - start[i]
                wait = max(begin - until, 0) / 1000 if until else 0
                until, task = max(until, end[i]), task + 7
                timing = f"{begin // 1000}.{begin % 1000:03d}\t,{ns / 1000:.3f},{wait:.6f}"
                if i < len(parts):
                    front, back = parts[i]
                    yield f"{head}{task},2,{front}{timing}{back}{_pipes(cube[i], ns)}"
                else:
                    op = step.operations[i - len(parts)]
                    name = op.name(self.rank)
                    type_ = op.comm[self.rank].type
                    yield f"{head}N/A,N/A,{name},hcom_{type_}_,N/A,COMMUNICATION,{timing},0{NOT_APPLICABLE}"

    # --- communication ---

    def _communication(self) -> str:
        steps = []
        for step in self.steps:
            found: dict[str, list[tuple[str, _Entry]]] = {"p2p": [], "collective": []}
            for i, op in enumerate(step.operations):
                entry = _Entry(self.job, op, self.rank, int(step.arrival[i]), int(step.end[i]))
                found["p2p" if op.peer_pair else "collective"].append((f"{op.name(self.rank)}@{op.group.hash}", entry))
            steps.append(f'"step{step.number}": {{{", ".join(_block(k, v) for k, v in found.items())}}}')
        return f"{{{', '.join(steps)}}}"

    def _matrix(self) -> str:
        steps = {}
        for step in self.steps:
            kinds: dict[str, dict] = {"p2p": {}, "collective": {}}
            links: dict[tuple, dict[str, list]] = defaultdict(lambda: defaultdict(list))
            for op in step.operations:
                type_ = op.comm[self.rank].type
                of = TYPE_IN_MATRIX.get(type_, type_.lower())
                for link, row in _links(self.job, op, self.rank):
                    links[op.peer_pair, of, op.group.hash][link].append((*row, op.name(self.rank)))
            for (p2p, of, hash_), found in links.items():
                for place, rows in _places(found):
                    kinds["p2p" if p2p else "collective"][f"{of}-{place}@{hash_}"] = rows
            steps[f"step{step.number}"] = kinds
        return json.dumps(steps)

    # --- the timeline ---

    def _trace(self) -> Iterator[str]:
        yield from self._names()
        for step in self.steps:
            yield _x(f"ProfilerStep#{step.number}", PYTHON, MAIN, step.begin, step.stop, ', "cat": "cpu_op"')
            launch, before = step.launch.tolist(), step.begin
            of_kernel = dict(zip(self.launch_of.tolist(), range(len(self.launch_of)), strict=True))
            ops = {op.comm[self.rank].launch: i for i, op in enumerate(step.operations)}
            for n, at in enumerate(launch):
                number = (step.record.number * self.program.launches + n) + 1
                if n in of_kernel:
                    i = of_kernel[n]
                    names = f"aten::{self.kernels[i].type.lower()}", _kernel_name(self.kernels[i].type)
                    where, times = (HARDWARE, COMPUTE), (int(step.start[i]), int(step.finish[i]))
                else:
                    op = step.operations[ops[n]]
                    names = f"c10d::{op.comm[self.rank].type}", op.name(self.rank)
                    where = COMMUNICATION, self._thread(op.group)
                    times = int(step.arrival[ops[n]]), int(step.end[ops[n]])
                yield from _launched(names, where, times, (before, at), number)
                before = at
            if step.stop > before + 2_000:  # the step ends with the host waiting for the device
                yield _x("AscendCL@aclrtSynchronizeDevice", CANN, MAIN, before + 1_000, step.stop - 500)

    def _thread(self, group: Group) -> int:
        return 10 * self.groups.index(group)

    def _names(self) -> Iterator[str]:
        device = f"NPU {self.device}"
        for pid, name, label in (
            (PYTHON, "Python", "CPU"), (CANN, "CANN", "CPU"), (HARDWARE, "Ascend Hardware", device),
            (COMMUNICATION, "Communication", device),
        ):  # fmt: skip
            yield _meta("process_name", pid, 0, name=name)
            yield _meta("process_labels", pid, 0, labels=label)
        for group in self.groups:
            yield _meta("thread_name", COMMUNICATION, self._thread(group), name=f"Group {group.hash} Communication")


def _kernel_launches(items: list) -> np.ndarray:
    """Which launch of the step each kernel is."""
    rows = [np.arange(i.launch, i.launch + i.high - i.low) for i in items if isinstance(i, Segment)]
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


def _together(start: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
    """What intervals cover together, as intervals that do not touch."""
    found: list[tuple[int, int]] = []
    for s, e in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if found and s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], e)
        else:
            found.append((s, e))
    return found


# --- rows of kernel_details.csv ------------------------------------------------------------------------------------


def _kernel_name(type_: str) -> str:
    return f"aclnn{type_}_{type_}_{type_}"


def _row_parts(kernel: Kernel) -> tuple[str, str]:
    """What stands before and after the times in every row of a kernel."""
    core, blocks, mix = ("AI_CORE", 20, 0) if kernel.type in CUBE else ("AI_VECTOR_CORE", 40, 0)
    if kernel.type in MIX:
        core, blocks, mix = "MIX_AIC", 20, 40
    shapes = []
    for text in (kernel.inputs, kernel.outputs):
        parts = text.count(";") + 1
        shapes.append(f'"""{text}""",{";".join(["DT_BF16"] * parts)},{";".join(["ND"] * parts)}')
    front = f"{_kernel_name(kernel.type)},{kernel.type},dynamic,{core},"
    return front, f",{blocks},{mix},NO,{shapes[0]},{shapes[1]},N/A,"


def _pipes(cube: bool, ns: int) -> str:
    """Times of the pipes: most of the kernel in its core's main ones, of 20 cube and 40 vector cores at 1650 MHz."""
    t = ns * 0.97 / 1000
    if cube:
        return (
            f"{t:.3f},{round(t * 33000)},{t * 0.78:.3f},0.78,{t * 0.3:.3f},0.3,{t * 0.6:.3f},0.6,{t * 0.8:.3f},0.8,"
            f"{t * 0.5:.3f},0.5,0.004,0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,97.000"
        )
    return (
        "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,"
        f"{t:.3f},{round(t * 66000)},{t * 0.2:.3f},0.2,{t * 0.1:.3f},0.1,{t * 0.8:.3f},0.8,{t * 0.7:.3f},0.7,0.01,0.000"
    )


# --- communication -------------------------------------------------------------------------------------------------


def _transport(job: Job, a: int, b: int) -> str:
    return "HCCS" if job.host(a) == job.host(b) else "RDMA"


def _peers(op: Operation, rank: int) -> tuple[int, ...]:
    """To whom the rank's files show transfers: in point-to-point operations the receiver's do."""
    if op.peer_pair:
        return (op.comm[rank].peer,) if op.comm[rank].receives else ()
    return op.group.peers(rank) if len(op.group.ranks) > 1 else ()


def _moved(job: Job, op: Operation, rank: int, peer: int) -> tuple[float, float]:
    """Megabytes and milliseconds of an operation on one link."""
    size, rate = moved_bytes(job, op, rank), link_ns_per_byte(job, op.group, rank, peer, op.step)
    return size / 1e6, round(size * rate * op.noise * early(job, op, rank) / 20) * 20 / 1e6


class _Entry:
    """One operation's block in communication.json."""

    def __init__(self, job: Job, op: Operation, rank: int, start: int, end: int) -> None:
        self.op, self.comm, self.start, self.elapse = op, op.comm[rank], start, (end - start) / 1e6
        self.tiny = op.bytes < 10_000 and len(op.group.ranks) > 1
        self.rows: dict[str, dict[float, list[float]]] = {}
        for peer in _peers(op, rank):
            size, ms = _moved(job, op, rank, peer)
            row = self.rows.setdefault(_transport(job, rank, peer), {}).setdefault(size, [0, 0.0])
            row[0] += 1
            row[1] += ms
        self.wait, self.sync, self.transit = self._times(rank)

    def _times(self, rank: int) -> tuple[float, float, float]:
        """Wait, synchronization, transit as the exporter reports them: it sees the master plane only."""
        if self.tiny:
            return max(self.elapse - 0.0126, 0.0), max(self.elapse - 0.0126, 0.0), 0.0023
        if self.op.peer_pair and self.comm.sends:
            hidden = 0.03264 if not self.comm.receives else 0.03264 + self.op.transfer(rank) / 1e6
            wait = max(self.elapse - hidden, 0.0)
            return wait, wait, 0
        return 0, 0, 0

    def text(self) -> str:
        """Render as the exporter does."""
        times = self.times(f'"Start Timestamp(us)": {self.start / 1000!r}, ')
        return f'{{{times}, "Communication Bandwidth Info": {_bandwidth(self.rows, True)}}}'

    def times(self, start: str = "") -> str:
        """Render the time info."""
        return _times(start, self.elapse, self.transit, self.wait, self.sync)


def _times(start: str, elapse: float, transit: float, wait: float, sync: float) -> str:
    idle = max(elapse - transit - wait, 0)
    ratios = [round(t / (t + transit), 4) if t + transit else 0 for t in (wait, sync)]
    return (
        f'"Communication Time Info": {{{start}"Elapse Time(ms)": {elapse!r}, "Transit Time(ms)": {transit!r}, '
        f'"Wait Time(ms)": {wait!r}, "Synchronization Time(ms)": {sync!r}, "Idle Time(ms)": {idle!r}, '
        f'"Wait Time Ratio": {ratios[0]!r}, "Synchronization Time Ratio": {ratios[1]!r}}}'
    )


def _bandwidth(rows: dict[str, dict[float, list[float]]], single: bool) -> str:
    """Render the block of all transports; the total has neither bandwidth nor large packets."""
    found = {t: _transport_block(sizes, single, t) for t, sizes in rows.items()}
    every = [sizes for t, sizes in rows.items() if t != "RDMA"]
    if every:
        found["SDMA"] = _transport_block(every[0], single, "SDMA")
    order = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
    nothing = NOTHING if single else '{"Transit Time(ms)": 0, "Transit Size(MB)": 0, "Size Distribution": {}}'
    return "{" + ", ".join(f'"{t}": {found.get(t, nothing)}' for t in order) + "}"


def _transport_block(sizes: dict[float, list[float]], single: bool, transport: str) -> str:
    size, ms = sum(s * n for s, (n, _) in sizes.items()), sum(ms for _, ms in sizes.values())
    rows = "" if transport == "SDMA" else ", ".join(f'"{s}": [{n}, {ms!r}]' for s, (n, ms) in sizes.items())
    if not single:
        return f'{{"Transit Time(ms)": {ms!r}, "Transit Size(MB)": {size!r}, "Size Distribution": {{{rows}}}}}'
    limit = 0.5 if transport == "RDMA" else 32
    large = sum(n for s, (n, _) in sizes.items() if s > limit) / max(sum(n for n, _ in sizes.values()), 1)
    rate = round(size / ms, 4) if ms else 0
    return (
        f'{{"Transit Size(MB)": {size!r}, "Transit Time(ms)": {ms!r}, "Bandwidth(GB/s)": {rate!r}, '
        f'"Large Packet Ratio": {0 if transport == "SDMA" else large!r}, "Size Distribution": {{{rows}}}}}'
    )


def _block(kind: str, entries: list[tuple[str, _Entry]]) -> str:
    """Render p2p or collective with its total."""
    found = [f'"{name}": {entry.text()}' for name, entry in entries]
    total: dict[str, dict[float, list[float]]] = {}
    for _, entry in entries:
        for transport, sizes in entry.rows.items():
            for size, (count, ms) in sizes.items():
                row = total.setdefault(transport, {}).setdefault(size, [0, 0.0])
                row[0] += count
                row[1] += ms
    sums = [float(sum(getattr(e, key) for _, e in entries)) for key in ("elapse", "transit", "wait", "sync")]
    found.append(
        f'"Total Op Info": {{{_times("", *sums)}, "Communication Bandwidth Info": {_bandwidth(total, False)}}}'
    )
    return f'"{kind}": {{{", ".join(found)}}}'


Row = tuple[str, float, float]


def _links(job: Job, op: Operation, rank: int) -> Iterator[tuple[str, Row]]:
    """Yield links of an operation as the matrix names them: by ranks inside the group."""
    inside = {r: i for i, r in enumerate(op.group.ranks)}
    if len(op.group.ranks) > 1:
        size = (op.bytes + 8) / 1e6
        yield f"{inside[rank]}-{inside[rank]}", ("LOCAL", size, size / 330)
    for peer in _peers(op, rank):
        yield f"{inside[rank]}-{inside[peer]}", (_transport(job, rank, peer), *_moved(job, op, rank, peer))


def _places(found: dict[str, list]) -> Iterator[tuple[str, dict]]:
    """Yield the best, middle and worst operations of every link, and all together."""
    best_first = {link: sorted(ops, key=lambda o: -o[1] / max(o[2], 1e-9)) for link, ops in found.items()}
    for place, at in (
        ("top1", 0),
        ("middle", None),
        ("bottom1", -1),
        ("total", None),
        ("bottom2", -2),
        ("bottom3", -3),
    ):
        rows = {}
        for link, ops in found.items():
            if place == "total":
                rows[link] = _matrix_row(ops[0][0], sum(o[1] for o in ops), sum(o[2] for o in ops))
            elif at is None or -len(ops) <= at < len(ops):
                transport, size, ms, name = best_first[link][len(ops) // 2 if at is None else at]
                rows[link] = {**_matrix_row(transport, size, ms), "Op Name": name}
        if rows:
            yield place, rows


def _matrix_row(transport: str, size: float, ms: float) -> dict:
    rate = round(size / ms, 4) if ms else 0
    return {"Transport Type": transport, "Transit Size(MB)": size, "Transit Time(ms)": ms, "Bandwidth(GB/s)": rate}


# --- events of trace_view.json -------------------------------------------------------------------------------------


def _meta(what: str, pid: int, tid: int, **args: str) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})


def _x(name: str, pid: int, tid: int, start: int, end: int, more: str = "", args: str = "") -> str:
    times = f'"ts": "{us(start)}", "dur": {(end - start) / 1000}'
    return f'{{"ph": "X", "name": "{name}", "pid": {pid}, "tid": {tid}, {times}, "args": {{{args}}}{more}}}'


def _launched(
    names: tuple[str, str], where: tuple[int, int], times: tuple[int, int], host: tuple[int, int], number: int
) -> Iterator[str]:
    """Yield what a launch leaves: the operator, the call, the task, and the flows between them."""
    (operator, task), (pid, tid), (start, end), (begin, launched) = names, where, times, host
    call = launched - min(3_000, (launched - begin) // 3)
    yield _x(operator, PYTHON, MAIN, begin + 100, launched + 50, ', "cat": "cpu_op"')
    yield _x("Node@launch", CANN, MAIN, call, launched, args=f'"connection_id": {number}')
    yield _x(task, pid, tid, start, end, args=f'"Task Type": "AI_CORE", "connection_id": {number}')
    flow = f'"name": "HostToDevice", "cat": "HostToDevice", "id": "{number << 32}"'
    yield f'{{{flow}, "ph": "s", "pid": {CANN}, "tid": {MAIN}, "ts": "{us(call)}"}}'
    yield f'{{{flow}, "ph": "f", "bp": "e", "pid": {pid}, "tid": {tid}, "ts": "{us(start)}"}}'
    arrow = f'"name": "torch_to_npu", "cat": "async_npu", "id": {start}, "bp": "e"'
    yield f'{{{arrow}, "ph": "s", "pid": {PYTHON}, "tid": {MAIN}, "ts": "{us(begin + 100)}"}}'
    yield f'{{{arrow}, "ph": "f", "pid": {pid}, "tid": {tid}, "ts": "{us(start)}"}}'


# --- load tests ----------------------------------------------------------------------------------------------------


def big(out: Path, ranks: int, kernels: int, **more: object) -> Truth:
    """Write a large job: ``ranks`` (tensor parallel 8 and 4 stages from 256 ranks on) of about ``kernels`` each."""
    pp, tp = (4, 8) if ranks >= 256 else (1, 1)
    layout = {"pp": pp, "tp": tp, "dp": ranks // pp // tp, "hosts": max(ranks // 8, 1)}
    steps = 1 if kernels < 200 else 5
    per_layer = max((kernels // steps - 2 * pp - 6) // (2 * pp) // (1 if pp > 1 else 4), 1)
    size = {"steps": steps, "micro_batches": pp, "layers": 1 if pp > 1 else 4, "kernels": per_layer, "kernel_us": 50.0}
    truth = simulate(Job(**{**layout, **size, **more}))  # type: ignore[arg-type]
    write(truth, out)
    return truth


def sample(out: Path) -> None:
    """Write samples/pipeline_job: logits weigh on the last of two stages, and rank 1 computes slowly."""
    logits = Fault("stage", stage=1, factor=5.0, operator="MatMulV3", head=True, design=True)
    faults = (logits, Fault("compute", (1,), 1.15))
    write(Job(pp=2, dp=2, micro_batches=4, steps=2, layers=2, kernels=6, hosts=2, seed=7, faults=faults), out)


if __name__ == "__main__":
    sample(Path(sys.argv[1]))

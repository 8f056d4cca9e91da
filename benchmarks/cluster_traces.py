"""Write a simulated cluster job as PyTorch's own profiler does on GPUs: one Kineto trace per rank.

Formats are those of torch 2.x (saveNcclMeta in torch/csrc/profiler/util.cpp, Kineto's output_json.cpp): times count
from a base, process groups stand in distributedInfo and in the arguments of record_param_comms, newer releases repeat
them at the kernel. Sends and receives of a batch are launched together, by a call that belongs to no operator. Times
are in each device's own clock. The module knows nothing of npuperf.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from cluster_files import _kernel_launches, _Step, us
from cluster_job import Group, Job, groups, own_groups, shaped
from cluster_world import ORIGIN, Operation, Truth, simulate

#: What of groups a trace has: at kernels and operators with numbers; at operators alone; nothing, as in old releases.
Told = Literal["kernels", "operators", "nothing"]
Library = Literal["nccl", "rccl"]
BASE = ORIGIN - 86_400_000_000_000
HOST, THREAD, COMPUTE, FIRST_STREAM = 4321, 4321, 7, 20
DESCRIBED = {
    "default_group": "default_pg", "dp_cp": "DATA_PARALLEL_GROUP_WITH_CP", "mp": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP", "exp": "EXPERT_MODEL_PARALLEL_GROUP",
}  # fmt: skip
#: How torch spells an operation, and the kernel that NCCL runs for it.
SPELLED = {
    "allReduce": ("allreduce", "AllReduce_Sum_bf16_RING_LL"),
    "allGather": ("_allgather_base", "AllGather_RING_LL"),
    "reduceScatter": ("_reduce_scatter_base", "ReduceScatter_Sum_bf16_RING_LL"),
    "alltoall": ("all_to_all", "SendRecv"),
    "alltoallv": ("all_to_allv", "SendRecv"),
    "broadcast": ("broadcast", "Broadcast_RING_LL"),
    "send": ("send", "SendRecv"),
    "receive": ("recv", "SendRecv"),
}
CALLS = {"nccl": ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaDeviceSynchronize"),
         "rccl": ("hipLaunchKernel", "hipExtLaunchKernel", "hipDeviceSynchronize")}  # fmt: skip
_LEFT_OUT = 30


def write_traces(truth: Truth | Job, out: Path, told: Told = "kernels", library: Library = "nccl") -> Path:
    """Write a trace of every recorded rank of a job; return the folder to analyze."""
    truth = truth if isinstance(truth, Truth) else simulate(truth)
    out.mkdir(parents=True, exist_ok=True)
    for rank in truth.job.recorded():
        (out / f"rank{rank}.pt.trace.json").write_text(_Trace(truth, rank, told, library).text())
    return out


def _ranks(ranks: tuple[int, ...]) -> str:
    """Spell ranks as torch's format_list does: of a long list most are left out."""
    shown = [str(r) for r in ranks]
    if len(shown) > _LEFT_OUT:
        shown = [*shown[: _LEFT_OUT - 1], "...", shown[-1]]
    return f"[{', '.join(shown)}]"


class _Trace:
    """The trace of one rank."""

    def __init__(self, truth: Truth, rank: int, told: Told, library: Library) -> None:
        self.truth, self.job, self.rank, self.told, self.library = truth, truth.job, rank, told, library
        self.device = truth.job.device(rank)
        self.program = truth.programs[rank]
        self.kernels = [shaped(self.job, rank, kernel) for kernel in self.program.kernels]
        self.numbers = {group.name: str(i) for i, group in enumerate(groups(self.job))}
        self.counted: dict[tuple[str, bool], int] = defaultdict(int)
        self.ids = 0

    def text(self) -> str:
        """Return the whole trace."""
        info: dict[str, Any] = {"backend": "nccl", "rank": self.rank, "world_size": self.job.world}
        if self.told != "nothing":
            own = own_groups(self.job, self.rank).values()
            info["pg_count"] = len(own)
            info["pg_config"] = [
                {"pg_name": self.numbers[g.name], "pg_desc": DESCRIBED[g.kind], "backend_config": "cuda:nccl",
                 "pg_size": len(g.ranks), "ranks": list(g.ranks)} for g in own
            ]  # fmt: skip
        header = {
            "schemaVersion": 1, "deviceProperties": [{"id": self.device, "name": "GPU", "numSms": 108}],
            "distributedInfo": info, "baseTimeNanoseconds": BASE,
        }  # fmt: skip
        events = ",\n".join(self.events())
        return f'{json.dumps(header)[:-1]}, "traceEvents": [\n{events}\n]}}'

    def events(self) -> Iterator[str]:
        """Yield what happened: of every launch the operator, the call and the kernel."""
        for pid, label in ((HOST, "CPU"), (self.device, f"GPU {self.device}")):
            yield json.dumps({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}})
        launch_of = _kernel_launches(self.program.items)
        for step in (_Step(self.truth, self.rank, record) for record in self.truth.ranks[self.rank]):
            name = f"ProfilerStep#{step.number}"
            yield self._x("user_annotation", name, THREAD, step.begin, step.stop)
            of_kernel = {n: i for i, n in enumerate(launch_of.tolist())}
            of_operation = {op.comm[self.rank].launch: i for i, op in enumerate(step.operations)}
            before = step.begin
            for n, at in enumerate(step.launch.tolist()):
                if n in of_kernel:
                    i = of_kernel[n]
                    yield from self._kernel(self.kernels[i].type, int(step.start[i]), int(step.finish[i]), before, at)
                else:
                    i = of_operation[n]
                    yield from self._operation(step.operations[i], int(step.arrival[i]), int(step.end[i]), before, at)
                before = at
            if step.stop > before + 2_000:  # the step ends with the host waiting for the device
                yield self._x("cuda_runtime", CALLS[self.library][2], THREAD, before + 1_000, step.stop - 500,
                              correlation=self._id())  # fmt: skip

    def _id(self) -> int:
        self.ids += 1
        return self.ids

    def _x(self, cat: str, name: str, tid: int, start: int, end: int, **args: object) -> str:
        pid = self.device if cat == "kernel" else HOST
        told = json.dumps({key.replace("_", " ") if key == "External_id" else key: v for key, v in args.items()})
        return (
            f'{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {us(start - BASE)}, '
            f'"dur": {us(end - start)}, "args": {told}}}'
        )

    def _kernel(self, type_: str, start: int, end: int, before: int, launched: int) -> Iterator[str]:
        """Yield a kernel of compute."""
        number = self._id()
        yield self._x("cpu_op", f"aten::{type_.lower()}", THREAD, before + 100, launched + 50, External_id=number)
        yield from self._launched(f"{type_}_kernel", COMPUTE, start, end, before, launched, number, {})

    def _launched(
        self, name: str, stream: int, start: int, end: int, before: int, launched: int, operator: int, told: dict
    ) -> Iterator[str]:
        """Yield a call and its kernel; ``operator``: 0 where it belongs to none."""
        call = launched - min(3_000, (launched - before) // 3)
        outer: dict[str, object] = {"External_id": operator} if operator else {}
        number = self._id()
        api = CALLS[self.library][stream != COMPUTE]
        yield self._x("cuda_runtime", api, THREAD, call, launched, correlation=number, **outer)
        yield self._x("kernel", name, stream, start, end, correlation=number, device=self.device, stream=stream,
                      **outer, **told)  # fmt: skip

    def _operation(self, op: Operation, start: int, end: int, before: int, launched: int) -> Iterator[str]:
        """Yield a collective: the operators that start it, all within the time before its call, and its kernel."""
        comm = op.comm[self.rank]
        spelled = [SPELLED[op.type][0]] if op.type in SPELLED else []
        if op.peer_pair:  # some are batches of one
            spelled = [*["send"] * comm.sends, *["recv"] * comm.receives]
        kernel = SPELLED[op.type if op.type in SPELLED else "send"][1]
        name = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
        if self.library == "rccl":  # one kernel is all that there is
            name = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
        self.counted[op.group.name, op.peer_pair] += 1
        batch = op.type == "batchSendRecv"
        operator, arguments = 0, {}
        for i, one in enumerate(spelled):
            number = self._id()
            arguments = self._arguments(op, one, self.counted[op.group.name, op.peer_pair])
            first = before + 150 + 20 * i
            shown = arguments if self.told != "nothing" else {}
            yield self._x("cpu_op", "record_param_comms", THREAD, first, first + 10 if batch else launched + 20,
                          External_id=number, **shown)  # fmt: skip
            operator = 0 if batch else number
        shown = {k: v for k, v in arguments.items() if k not in ("Rank", "Global rank start", "Global rank stride")}
        kept = shown if self.told == "kernels" and not batch else {}
        stream = FIRST_STREAM + list(own_groups(self.job, self.rank).values()).index(op.group)
        yield from self._launched(name, stream, start, end, before, launched, operator, kept)

    def _arguments(self, op: Operation, spelled: str, number: int) -> dict[str, object]:
        group, peer = op.group, op.comm[self.rank].peer
        found: dict[str, object] = {
            "Collective name": spelled, "dtype": "BFloat16", "In msg nelems": op.bytes // 2,
            "Out msg nelems": op.bytes // 2, "In split size": "[]", "Out split size": "[]",
            "Global rank start": group.ranks[0], "Group size": len(group.ranks),
            "Process Group Name": self.numbers[group.name], "Process Group Description": DESCRIBED[group.kind],
            "Process Group Ranks": _ranks(group.ranks),
            "Rank": group.ranks.index(peer if peer >= 0 else self.rank),
        }  # fmt: skip
        stride = _stride(group)
        if stride:
            found["Global rank stride"] = stride
        if peer >= 0:
            found["Src Rank" if spelled == "recv" else "Dst Rank"] = peer
        if self.told == "kernels":
            found["Seq"] = number
        return found


def _stride(group: Group) -> int:
    """Return the distance between its ranks, 0 where that differs."""
    steps = {b - a for a, b in pairwise(group.ranks)}
    return steps.pop() if len(steps) == 1 else 0

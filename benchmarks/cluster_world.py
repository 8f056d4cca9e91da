"""A simulated job on many ranks: who computes, who waits for whom, and what is to blame are known.

Every rank runs a program per step: forward and backward of its stage in 1F1B order, collectives per layer, gradients,
optimizer. A rank's host launches, its device runs in order; a collective begins when its last member has arrived.
Times are integer nanoseconds of one true clock. All randomness is drawn per rank and step, or per operation, from a
hash of the seed: a job with a fault repaired meets the same luck. The module knows nothing of npuperf.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

ORIGIN = 1_764_000_000_000_000_000
FIRST_STEP = 10
SYNC_RETURN, BETWEEN_STEPS = 6_000, 40_000
BASE_TRANSFER, LONELY_TRANSFER, RECEIVER_LATER = 10_000, 2_500, 2_000
HCCS_BYTES_PER_NS, RDMA_BYTES_PER_NS = 20.0, 12.0
FaultKind = Literal["compute", "host", "stage", "link", "group", "stall", "stalls"]


@dataclass(frozen=True)
class Fault:
    """Something wrong, or uneven by design.

    ``compute``: kernels of ``ranks`` take ``factor`` times as long (only those of type ``operator``; only the
    ``head``: embedding and logits; ``design``: because their shapes are larger). ``stage``: the same for all ranks of
    ``stage``. ``host``: every launch of ``ranks`` takes ``factor`` times as long. ``link``: between two global
    ranks, both ways. ``group``: all transfers of the group of kind ``group`` that has exactly ``ranks``. ``stall``:
    the host of ``ranks`` stops for ``ns`` in ``step`` (from 0), at that part ``at`` of its launches; ``stalls``:
    that happens to any rank in any step with probability ``share``.
    """

    kind: FaultKind
    ranks: tuple[int, ...] = ()
    factor: float = 1.0
    operator: str | None = None
    head: bool = False
    design: bool = False
    stage: int | None = None
    group: str | None = None
    step: int | None = None
    ns: int = 0
    at: float = 0.0
    share: float = 0.0


@dataclass(frozen=True)
class Job:
    """A job: layout, work, speeds, luck, clocks, and what of it is recorded. Sizes in MB are 10^6 bytes.

    Ranks: tensor parallel fastest, then data, then pipeline. ``ep``: ranks per group of experts, along the data axis.
    ``bare``: ranks without kernel_details.csv. ``lonely``: collectives in groups of one, as Megatron has them.
    """

    pp: int = 1
    dp: int = 2
    tp: int = 1
    ep: int = 1
    hosts: int = 1
    steps: int = 4
    micro_batches: int = 1
    layers: int = 2
    kernels: int = 5
    optimizer: int = 4
    kernel_us: float = 200.0
    host_us: float = 15.0
    latency_us: float = 6.0
    activation_mb: float = 8.0
    layer_mb: float = 4.0
    gradient_mb: float = 30.0
    buckets: int = 2
    overlap: bool = False
    gradients: Literal["reduceScatter", "allReduce"] = "reduceScatter"
    norm: bool = True
    lonely: bool = False
    jitter: float = 0.01
    host_jitter: float = 0.2
    transfer_jitter: float = 0.005
    end_jitter_us: float = 1.0
    offset_ms: float = 5.0
    device_offset_us: float = 30.0
    drift_ppm: float = 50.0
    missing: tuple[int, ...] = ()
    bare: tuple[int, ...] = ()
    trace: bool = False
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.pp * self.dp * self.tp

    def rank(self, stage: int, replica: int, shard: int) -> int:
        """Global rank of a place in the layout."""
        return shard + self.tp * (replica + self.dp * stage)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Stage, replica and shard of a rank."""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp

    def stage_ranks(self, stage: int) -> tuple[int, ...]:
        """All ranks of a stage."""
        return tuple(range(stage * self.tp * self.dp, (stage + 1) * self.tp * self.dp))

    def host(self, rank: int) -> int:
        """Host of a rank: equal blocks of consecutive ranks."""
        return rank * self.hosts // self.world

    def device(self, rank: int) -> int:
        """Physical device of a rank on its host."""
        return rank - next(r for r in range(rank + 1) if self.host(r) == self.host(rank))

    def recorded(self) -> list[int]:
        """Ranks whose files are written."""
        return [r for r in range(self.world) if r not in self.missing]


# --- luck ----------------------------------------------------------------------------------------------------------


def unit(*key: int) -> float:
    """Draw from [-1, 1) by key alone (splitmix64 over its numbers)."""
    state = 0x9E3779B97F4A7C15
    for part in key:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return (state >> 11) / 2**52 - 1.0


def units(count: int, *key: int) -> np.ndarray:
    """Draw ``count`` numbers from [-1, 1) by key alone."""
    return np.random.Generator(np.random.SFC64(list(key))).random(count) * 2.0 - 1.0


# --- groups --------------------------------------------------------------------------------------------------------


def group_hash(name: str) -> int:
    """Return the 64-bit hash by which operations name their group: two polynomial string hashes, high word first."""
    high = low = 0
    for letter in name:
        high = (high * 29 + ord(letter)) & 0xFFFFFFFF
        low = (low * 131 + ord(letter)) & 0xFFFFFFFF
    return high << 32 | low


@dataclass(frozen=True)
class Group:
    """A process group: ``name`` as in parallel_group_info, members in the group's order."""

    name: str
    kind: str
    ranks: tuple[int, ...]

    @cached_property
    def hash(self) -> int:
        """The 64-bit hash that operations carry."""
        return group_hash(self.name)

    @cached_property
    def digits(self) -> str:
        """Last three digits of the hash, as operation names carry them."""
        return f"{self.hash % 1000:03d}"


@lru_cache(maxsize=64)
def groups(job: Job) -> tuple[Group, ...]:
    """Return all groups of the job; those of one member are there as Megatron makes them."""
    found = [("default_group", tuple(range(job.world)))]
    for stage in range(job.pp):
        for t in range(job.tp):
            members = tuple(job.rank(stage, d, t) for d in range(job.dp))
            found.append(("dp_cp", members))
            if job.ep > 1:
                found += [("exp", members[i : i + job.ep]) for i in range(0, job.dp, job.ep)]
    for d in range(job.dp):
        found.append(("mp", tuple(job.rank(s, d, t) for s in range(job.pp) for t in range(job.tp))))
        found += [("tp", tuple(job.rank(s, d, t) for t in range(job.tp))) for s in range(job.pp)]
        if job.pp > 1:
            found += [("pp", tuple(job.rank(s, d, t) for s in range(job.pp))) for t in range(job.tp)]
    return tuple(Group(f"group_name_{i}", kind, ranks) for i, (kind, ranks) in enumerate(found))


@lru_cache(maxsize=64)
def _own_groups(job: Job) -> dict[int, dict[str, Group]]:
    own: dict[int, dict[str, Group]] = defaultdict(dict)
    for group in groups(job):
        for rank in group.ranks:
            own[rank][group.kind] = group
    return own


def own_groups(job: Job, rank: int) -> dict[str, Group]:
    """Return the groups of a rank by their kind."""
    return _own_groups(replace(job, faults=(), seed=0))[rank]


# --- programs ------------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A kernel of a program: how long it takes where nothing is wrong; shapes of inputs and outputs."""

    type: str
    inputs: str
    outputs: str
    ns: float
    head: bool = False


class Segment(NamedTuple):
    """Kernels ``low`` to ``high`` of the program, launched in a row from launch ``launch`` on."""

    low: int
    high: int
    launch: int


class Comm(NamedTuple):
    """A communication operation. ``peer``: global rank for point-to-point, else -1; ``sends``: to the peer.

    ``blocks``: later kernels wait for it; otherwise it runs on a second stream until a :class:`Join`.
    """

    type: str
    group: Group
    bytes: int
    launch: int
    blocks: bool = True
    peer: int = -1
    sends: bool = False
    receives: bool = False


class Join(NamedTuple):
    """Later kernels wait for everything on the second stream."""


#: Types of a layer's forward kernels: share of the time, inputs, outputs. Backward takes twice as long.
LAYER = (
    ("MatMulV3", 2.0, "4096,1024;4096,1024", "4096,4096"),
    ("RmsNorm", 0.3, "4096,1,1024;1024", "4096,1,1024;4096,1,1"),
    ("FlashAttentionScore", 1.6, "4096,1,2048;4096,1,1024;4096,1,1024", "1,16,4096,8;1,16,4096,8;;4096,1,2048"),
    ("Add", 0.3, "4096,1,1024;4096,1,1024", "4096,1,1024"),
    ("SwiGlu", 0.8, "4096,1,6144", "4096,1,3072"),
)
EMBEDDING = ("GatherV2", "151936,1024;1,4096;1", "1,4096,1024")
LOGITS = ("MatMulV3", "4096,1024;151936,1024", "4096,151936")
BACKWARD = {"FlashAttentionScore": "FlashAttentionScoreGrad", "RmsNorm": "RmsNormGrad", "SwiGlu": "SwiGluGrad"}


@dataclass
class Program:
    """What one rank does in each step. ``launches``: how many things its host launches."""

    kernels: list[Kernel] = field(default_factory=list)
    items: list[Segment | Comm | Join] = field(default_factory=list)
    launches: int = 0

    def run(self, kernels: list[Kernel]) -> None:
        """Add kernels that run one after the other."""
        low = len(self.kernels)
        self.kernels += kernels
        self.items.append(Segment(low, len(self.kernels), self.launches))
        self.launches += len(kernels)

    def talk(self, type_: str, group: Group, megabytes: float, **more: object) -> None:
        """Add a communication operation."""
        self.items.append(Comm(type_, group, int(megabytes * 1e6), self.launches, **more))  # type: ignore[arg-type]
        self.launches += 1


class _Builder:
    """Writes a rank's program: one 1F1B step of Megatron."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.own = job, rank, own_groups(job, rank)
        self.stage, self.replica, self.shard = job.place(rank)
        self.program = Program()

    def build(self) -> Program:
        """Return the program of a step."""
        job = self.job
        warm_up = min(job.pp - self.stage - 1, job.micro_batches)
        steady = job.micro_batches - warm_up
        for _ in range(warm_up):
            self._exchange(-1, receives=True)
            self._forward()
            self._exchange(+1, sends=True)
        if steady:
            self._exchange(-1, receives=True)
        for i in range(steady):
            self._forward()
            self._exchange(+1, sends=True, receives=True)
            self._backward(last=i == steady - 1 and not warm_up)
            self._exchange(-1, sends=True, receives=i < steady - 1)
        for i in range(warm_up):
            self._exchange(+1, receives=True)
            self._backward(last=i == warm_up - 1)
            self._exchange(-1, sends=True)
        self._finish()
        return self.program

    def _exchange(self, towards: int, sends: bool = False, receives: bool = False) -> None:
        other = self.stage + towards
        if 0 <= other < self.job.pp:
            peer = self.job.rank(other, self.replica, self.shard)
            self.program.talk(
                "batchSendRecv", self.own["pp"], self.job.activation_mb, peer=peer, sends=sends, receives=receives
            )

    def _kernels(self, backward: bool) -> list[Kernel]:
        total = sum(LAYER[i % len(LAYER)][1] for i in range(self.job.kernels))
        scale = self.job.kernel_us * 1000 * self.job.kernels / total * (2 if backward else 1)
        rows = [LAYER[i % len(LAYER)] for i in range(self.job.kernels)]
        return [Kernel(BACKWARD.get(t, t) if backward else t, i, o, share * scale) for t, share, i, o in rows]

    def _layer(self, backward: bool) -> None:
        self.program.run(self._kernels(backward))
        if self.job.ep > 1:
            ns = self.job.kernel_us * 2000 * (2 if backward else 1)
            self.program.talk("alltoallv", self.own["exp"], self.job.layer_mb)
            self.program.run([Kernel("GroupedMatmul", "4096,1024;8,1024,4096", "4096,4096", ns)])
            self.program.talk("alltoallv", self.own["exp"], self.job.layer_mb)
        if self.job.tp > 1:
            self.program.talk("allReduce", self.own["tp"], self.job.layer_mb)

    def _head(self, backward: bool) -> None:
        ns = self.job.kernel_us * 1000 * (2 if backward else 1)
        if self.stage == 0 and not backward:
            self.program.run([Kernel(*EMBEDDING, ns, True)])
        if self.stage == self.job.pp - 1:
            self.program.run([Kernel(*LOGITS, ns, True)])

    def _forward(self) -> None:
        if self.stage == 0:
            self._head(False)
        for _ in range(self.job.layers):
            self._layer(False)
        if self.stage == self.job.pp - 1 != 0:
            self._head(False)

    def _backward(self, last: bool) -> None:
        self._head(True)
        sent = 0
        for layer in range(1, self.job.layers + 1):
            self._layer(True)
            if last and self.job.overlap:
                due = layer * self.job.buckets // self.job.layers
                self._reduce(due - sent)
                sent = due

    def _reduce(self, buckets: int) -> None:
        for _ in range(buckets if self.job.dp > 1 else 0):
            size = self.job.gradient_mb / self.job.buckets
            self.program.talk(self.job.gradients, self.own["dp_cp"], size, blocks=not self.job.overlap)

    def _finish(self) -> None:
        job, program = self.job, self.program
        if job.lonely:
            alone = next((g for g in self.own.values() if len(g.ranks) == 1), None)
            if alone:
                program.talk("allReduce", alone, 0)
        if job.overlap:
            program.items.append(Join())
        else:
            self._reduce(job.buckets)
        if job.norm and len(self.own["mp"].ranks) > 1:
            program.talk("allReduce", self.own["mp"], 8e-6)
        shape = "4096,1024"
        program.run([Kernel("ApplyAdamWV2", shape, shape, job.kernel_us * 1000)] * job.optimizer)
        if job.gradients == "reduceScatter" and job.dp > 1:
            program.talk("allGather", self.own["dp_cp"], job.gradient_mb)


def program(job: Job, rank: int) -> Program:
    """Return what a rank does in a step: the same with and without faults."""
    return _Builder(job, rank).build()


# --- what is wrong -------------------------------------------------------------------------------------------------


def hit_ranks(job: Job, fault: Fault) -> tuple[int, ...]:
    """Return the ranks that a fault is about."""
    if fault.kind == "stage":
        return job.stage_ranks(fault.stage or 0)
    return fault.ranks or tuple(range(job.world))


def hits(fault: Fault, kernel: Kernel) -> bool:
    """Whether a fault of compute slows this kernel."""
    return fault.operator in (None, kernel.type) and (kernel.head or not fault.head)


def _speed(job: Job, rank: int, kernels: list[Kernel]) -> np.ndarray:
    """Nominal duration of each kernel of a rank, ns, faults included."""
    ns = np.array([k.ns for k in kernels])
    for fault in job.faults:
        if fault.kind in ("compute", "stage") and rank in hit_ranks(job, fault):
            ns *= np.array([fault.factor if hits(fault, k) else 1.0 for k in kernels])
    return ns


def _host_factor(job: Job, rank: int) -> float:
    return float(np.prod([f.factor for f in job.faults if f.kind == "host" and rank in f.ranks]))


def _stalls(job: Job, rank: int, step: int) -> list[tuple[float, int]]:
    """Return where in its launches, and for how long, the host of a rank stops in this step."""
    found = [(f.at, f.ns) for f in job.faults if f.kind == "stall" and rank in f.ranks and f.step in (None, step)]
    for f in job.faults:
        if f.kind == "stalls" and unit(job.seed, 77, rank, step) < 2 * f.share - 1:
            found.append((f.at, int(f.ns * (1 + 0.5 * unit(job.seed, 78, rank, step)))))
    return found


def link_ns_per_byte(job: Job, group: Group, a: int, b: int) -> float:
    """Return how long a byte takes between two members of a group."""
    ns = 1 / (HCCS_BYTES_PER_NS if job.host(a) == job.host(b) else RDMA_BYTES_PER_NS)
    for f in job.faults:
        whole = f.kind == "group" and f.group == group.kind and set(f.ranks) == set(group.ranks)
        if whole or (f.kind == "link" and set(f.ranks) == {a, b}):
            ns *= f.factor
    return ns


def _slowest_ns_per_byte(job: Job, group: Group) -> float:
    """Of all links of a group; only few need a look: one inside a host, one between hosts, and those with faults."""
    ranks = group.ranks
    pairs = [pair for pair in pairwise(ranks) if job.host(pair[0]) != job.host(pair[1])][:1] or [ranks[:2]]
    pairs += [f.ranks[:2] for f in job.faults if f.kind == "link" and set(f.ranks) <= set(ranks)]
    return max(link_ns_per_byte(job, group, a, b) for a, b in pairs)


def link_bytes(op: Operation) -> int:
    """Return what goes over one link (one way) of an operation: every pair of members has one."""
    if op.peer_pair:
        return op.bytes
    return op.bytes * (2 if op.type == "allReduce" else 1) // len(op.group.ranks)


# --- running -------------------------------------------------------------------------------------------------------


@dataclass
class Operation:
    """One operation on all its ranks: true arrivals and ends. ``index``: its number as each rank names it."""

    number: int
    type: str
    group: Group
    bytes: int
    step: int
    ranks: tuple[int, ...]
    peer_pair: bool = False
    arrival: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    index: dict[int, int] = field(default_factory=dict)
    comm: dict[int, Comm] = field(default_factory=dict)
    noise: float = 1.0

    @property
    def begun(self) -> int:
        """When the last rank had arrived."""
        return max(self.arrival.values())

    @property
    def last(self) -> int:
        """The rank that arrived last."""
        return max(self.arrival, key=lambda r: self.arrival[r])

    def wait(self, rank: int) -> int:
        """How long a rank waited for the others."""
        return self.begun - self.arrival[rank]

    def transfer(self, rank: int) -> int:
        """How long a rank was in the operation with all others there."""
        return self.end[rank] - self.begun

    def stay(self, rank: int) -> int:
        """How long a rank was in the operation."""
        return self.end[rank] - self.arrival[rank]

    def name(self, rank: int) -> str:
        """Return its name in the rank's files."""
        return f"hcom_{self.type}__{self.group.digits}_{self.index[rank]}_1"


@dataclass
class StepRecord:
    """One step of one rank, true time: kernels (as in the program), host window, launches, operations in order."""

    number: int
    begin: int
    end: int
    start: np.ndarray
    finish: np.ndarray
    launch: np.ndarray
    operations: list[Operation] = field(default_factory=list)


class _Rank:
    """A rank while it runs."""

    def __init__(self, job: Job, rank: int, program: Program) -> None:
        self.job, self.rank, self.program = job, rank, program
        self.ns, self.host = _speed(job, rank, program.kernels), _host_factor(job, rank)
        self.steps: list[StepRecord] = []
        self.main = self.second = 0
        self.cursor = 0
        self.joining = False
        self.queue: deque[tuple[Operation, int]] = deque()
        self.seen: dict[tuple[str, int], int] = defaultdict(int)
        self.index: dict[str, int] = defaultdict(int)
        self.begin_step(int(20_000 * (1 + unit(job.seed, 5, rank))))

    def begin_step(self, at: int) -> None:
        """The host starts launching a step."""
        job, step, count = self.job, len(self.steps), self.program.launches
        cost = job.host_us * 1000 * self.host * (1 + job.host_jitter * units(count, job.seed, 1, self.rank, step))
        for where, ns in _stalls(job, self.rank, step):
            cost[min(int(where * count), count - 1)] += ns
        spread = 1 + job.jitter * units(len(self.ns), job.seed, 2, self.rank, step)
        self.durations = np.maximum(np.rint(self.ns * spread), 1).astype(np.int64)
        launch = at + np.cumsum(np.maximum(np.rint(cost), 1)).astype(np.int64)
        empty = np.zeros(len(self.ns), np.int64)
        self.steps.append(StepRecord(step, at, at, empty, empty.copy(), launch))
        self.ready = launch + round(job.latency_us * 1000)
        self.cursor = 0

    def end_step(self) -> bool:
        """The host waits for the device; return whether another step begins."""
        record = self.steps[-1]
        record.end = max(int(record.launch[-1]), self.main, self.second) + SYNC_RETURN
        if len(self.steps) == self.job.steps:
            return False
        self.begin_step(record.end + BETWEEN_STEPS)
        return True

    def compute(self, part: Segment) -> None:
        """Run kernels in a row: each starts when it has arrived and the one before has ended."""
        if part.high == part.low:
            return
        dur = self.durations[part.low : part.high]
        ready = self.ready[part.launch : part.launch + len(dur)]
        before = np.cumsum(dur) - dur
        end = before + dur + np.maximum.accumulate(np.maximum(ready - before, self.main))
        record = self.steps[-1]
        record.start[part.low : part.high] = end - dur
        record.finish[part.low : part.high] = end
        self.main = int(end[-1])


class _Machine:
    """All ranks together."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.ranks = [_Rank(job, r, program(job, r)) for r in range(job.world)]
        self.open: dict[tuple, Operation] = {}
        self.operations: list[Operation] = []
        self.rates: dict[Group, float] = {}
        self.runnable: deque[_Rank] = deque(self.ranks)

    def run(self) -> None:
        """Run all ranks to their ends."""
        while self.runnable:
            self._continue(self.runnable.popleft())
        if self.open:
            raise RuntimeError(f"deadlock: {list(self.open)[:4]}")

    def _continue(self, rank: _Rank) -> None:
        while True:
            if rank.cursor == len(rank.program.items):
                if not rank.end_step():
                    return
                continue
            item = rank.program.items[rank.cursor]
            if isinstance(item, Join):
                rank.joining = bool(rank.queue)
                if rank.joining:
                    return
                rank.main = max(rank.main, rank.second)
            elif isinstance(item, Segment):
                rank.compute(item)
            else:
                self._meet(rank, item)
                if item.blocks:
                    return
            rank.cursor += 1

    def _meet(self, rank: _Rank, comm: Comm) -> None:
        """A rank comes to an operation: into it at once, or into the queue of its second stream."""
        op = self._operation(rank, comm)
        ready = max(rank.main, int(rank.ready[comm.launch]))
        rank.steps[-1].operations.append(op)
        if comm.blocks:
            self._arrive(op, rank, ready)
            return
        rank.queue.append((op, ready))
        if len(rank.queue) == 1:
            self._arrive(op, rank, max(ready, rank.second))

    def _operation(self, rank: _Rank, comm: Comm) -> Operation:
        """The k-th of a rank with the same peers is the k-th of theirs."""
        ranks = comm.group.ranks if comm.peer < 0 else tuple(sorted((rank.rank, comm.peer)))
        key = (comm.group.name, comm.peer)
        full = (comm.group.name, ranks, rank.seen[key])
        rank.seen[key] += 1
        if full not in self.open:
            number = int(comm.group.name[11:]) * 1_000_003 + ranks[0] * 10_007 + full[2]
            noise = 1 + self.job.transfer_jitter * unit(self.job.seed, 3, number)
            step = len(rank.steps) - 1
            self.open[full] = Operation(
                number, comm.type, comm.group, comm.bytes, step, ranks, comm.peer >= 0, noise=noise
            )
        op = self.open[full]
        op.comm[rank.rank], op.index[rank.rank] = comm, rank.index[comm.group.name] + 3
        rank.index[comm.group.name] += 1
        if len(op.comm) == len(ranks):
            self.operations.append(self.open.pop(full))
        return op

    def _arrive(self, op: Operation, rank: _Rank, at: int) -> None:
        op.arrival[rank.rank] = at
        if len(op.arrival) == len(op.ranks):
            begun, ns = op.begun, self._transfer(op)
            for member in op.ranks:
                op.end[member] = begun + self._until(op, member, ns)
            for member in op.ranks:
                self._leave(op, self.ranks[member])

    def _leave(self, op: Operation, rank: _Rank) -> None:
        end = op.end[rank.rank]
        if op.comm[rank.rank].blocks:
            rank.main = end
            rank.cursor += 1
            self.runnable.append(rank)
            return
        rank.second = end
        rank.queue.popleft()
        if rank.queue:
            following, ready = rank.queue[0]
            self._arrive(following, rank, max(ready, end))
        elif rank.joining:
            self.runnable.append(rank)

    def _transfer(self, op: Operation) -> float:
        if len(op.group.ranks) == 1:
            return LONELY_TRANSFER
        if op.peer_pair:
            rate = link_ns_per_byte(self.job, op.group, *op.ranks)
        else:
            rate = self.rates.get(op.group) or self.rates.setdefault(op.group, _slowest_ns_per_byte(self.job, op.group))
        return BASE_TRANSFER + link_bytes(op) * rate * op.noise

    def _until(self, op: Operation, rank: int, ns: float) -> int:
        """From the last arrival to this rank's end: ends of a collective differ a little, of point-to-point by side."""
        draw, comm = unit(self.job.seed, 4, op.number, rank), op.comm[rank]
        if len(op.group.ranks) > 1:
            ns += 1000 * self.job.end_jitter_us * draw
        if op.type == "alltoallv":
            ns *= 0.9 + 0.1 * unit(self.job.seed, 6, op.number, rank)
        if op.peer_pair and comm.receives and not comm.sends:
            ns += RECEIVER_LATER
        return max(round(ns), 1)


@dataclass
class Truth:
    """What happened: per rank its steps, all operations, all in true time."""

    job: Job
    programs: list[Program]
    ranks: list[list[StepRecord]]
    operations: list[Operation]

    @cached_property
    def step_ns(self) -> int:
        """Mean length of a step: of the whole job, over its steps."""
        begin = min(steps[0].begin for steps in self.ranks)
        return (max(steps[-1].end for steps in self.ranks) - begin) // self.job.steps

    def offset(self, rank: int) -> int:
        """By how much the device's clock is ahead of the true one at the start, ns."""
        job = self.job
        host = job.offset_ms * 1e6 * unit(job.seed, 11, job.host(rank)) * (job.hosts > 1)
        return round(host + job.device_offset_us * 1000 * unit(job.seed, 12, rank))

    def drift(self, rank: int) -> float:
        """By how much the device's clock is too fast, as a fraction."""
        return self.job.drift_ppm * 1e-6 * unit(self.job.seed, 13, self.job.host(rank))

    def clock(self, rank: int, true: np.ndarray | int) -> np.ndarray:
        """Return what the device's clock shows at true times: epoch ns."""
        ns = np.asarray(true, np.int64)
        return ORIGIN + ns + self.offset(rank) + np.rint(ns * self.drift(rank)).astype(np.int64)

    def wait_ns(self, rank: int | None = None, kind: str | None = None) -> int:
        """Waiting of one rank, or of all that are there; in groups of one kind, or all. All steps together."""
        ranks = range(self.job.world) if rank is None else [rank]
        ops = [op for op in self.operations if kind in (None, op.group.kind)]
        return sum(op.wait(r) for op in ops for r in ranks if r in op.arrival)

    def transfer_ns(self, rank: int | None = None) -> int:
        """Transfer of one rank, or of all. All steps together."""
        ranks = range(self.job.world) if rank is None else [rank]
        return sum(op.transfer(r) for op in self.operations for r in ranks if r in op.arrival)

    def compute_ns(self, rank: int) -> int:
        """Time in kernels of a rank. All steps together."""
        return int(sum((s.finish - s.start).sum() for s in self.ranks[rank]))

    @cached_property
    def schedule_wait_ns(self) -> int:
        """Waiting of all ranks in point-to-point operations when nothing is wrong: the schedule's own."""
        return simulate(replace(self.job, faults=())).wait_ns(kind="pp")


def simulate(job: Job) -> Truth:
    """Run the job."""
    machine = _Machine(job)
    machine.run()
    return Truth(job, [r.program for r in machine.ranks], [r.steps for r in machine.ranks], machine.operations)


def fixed(job: Job, fault: Fault) -> Truth:
    """Run the job with this fault repaired and the same luck."""
    return simulate(replace(job, faults=tuple(f for f in job.faults if f != fault)))


def gain_ns(truth: Truth, fault: Fault) -> int:
    """Return what repairing the fault saves per step."""
    return truth.step_ns - fixed(truth.job, fault).step_ns


# --- self-check ----------------------------------------------------------------------------------------------------


def check(truth: Truth) -> list[str]:
    """Return which invariants are broken."""
    wrong = []
    for op in truth.operations:
        waits = [op.wait(r) for r in op.ranks]
        if min(waits) != 0 or op.wait(op.last) != 0:
            wrong.append(f"{op.type} {op.number}: waits {waits}")
        if any(op.stay(r) != op.wait(r) + op.transfer(r) or op.transfer(r) <= 0 for r in op.ranks):
            wrong.append(f"{op.type} {op.number}: stay is not wait and transfer")
    for rank, steps in enumerate(truth.ranks):
        for before, after in pairwise(steps):
            if after.begin < before.end or (len(after.start) and after.start[0] < before.finish[-1]):
                wrong.append(f"rank {rank}: step {after.number} begins inside the one before")
    # Ends jitter by a microsecond each: a repair may lose that much.
    wrong += [f"repairing {f} costs {-gain_ns(truth, f)} ns" for f in truth.job.faults if gain_ns(truth, f) < -1000]
    return wrong


def main() -> int:
    """Check the invariants on all scenarios."""
    from cluster_scenarios import scenarios

    bad = 0
    for scenario in scenarios():
        for line in check(simulate(scenario.job)):
            bad += 1
            print(f"{scenario.name}: {line}")
    print(f"{bad} invariants broken")
    return 1 if bad else 0


if __name__ == "__main__":
    if "--check" not in sys.argv:
        sys.exit("usage: python benchmarks/cluster_world.py --check")
    sys.exit(main())

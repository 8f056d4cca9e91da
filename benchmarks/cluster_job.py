"""A job on many ranks as it is meant to run: layout, groups, the program of every rank, and what is wrong with it.

The plan that cluster_world.py runs; it knows nothing of npuperf. Times are nanoseconds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

MESH = 16
HCCS_BYTES_PER_NS, RDMA_BYTES_PER_NS = 20.0, 12.0
FaultKind = Literal["compute", "host", "stage", "link", "group", "stall", "stalls"]


@dataclass(frozen=True)
class Fault:
    """Something wrong, or uneven by design.

    ``compute``: kernels of ``ranks`` take ``factor`` times as long (only those of type ``operator``; only the
    ``head``: embedding and logits; ``design``: because their shapes are larger). ``stage``: the same for all ranks of
    ``stage``. ``host``: every launch of ``ranks`` takes ``factor`` times as long. ``link``: between two global
    ranks, both ways. ``group``: all transfers of the group of kind ``group`` that has exactly ``ranks``. ``stall``:
    the host of ``ranks`` stops for ``ns`` at that part ``at`` of its launches; ``stalls``: that happens to any rank in
    any step with probability ``share``. Only in ``steps`` (from 0), if there are any.
    """

    kind: FaultKind
    ranks: tuple[int, ...] = ()
    factor: float = 1.0
    operator: str | None = None
    head: bool = False
    design: bool = False
    stage: int | None = None
    group: str | None = None
    steps: tuple[int, ...] = ()
    ns: int = 0
    at: float = 0.0
    share: float = 0.0

    def during(self, step: int) -> bool:
        """Whether it is there in a step."""
        return not self.steps or step in self.steps


class Jump(NamedTuple):
    """The clock of a rank is set forward by ``us`` at ``step``: 2.0 is just before its third step, 2.5 amid it."""

    rank: int
    step: float
    us: float


@dataclass(frozen=True)
class Job:
    """A job: layout, work, speeds, luck, clocks, and what of it is recorded. Sizes in MB are 10^6 bytes.

    Ranks: tensor parallel fastest, then data, then pipeline. ``ep``: ranks per group of experts, along the data axis;
    ``tokens``: how uneven the experts' tokens are, another way in every step. ``virtual``: chunks of layers per stage
    of the interleaved schedule (three stages at least, micro-batches a multiple of them), which sends while it
    computes. ``separate``: send and receive, in groups of two, instead of batchSendRecv. ``bare``: ranks without
    kernel_details.csv. ``skipped``: steps (from 0) of ranks that were not recorded, ``shifted``: ranks whose steps are
    numbered by so much more. ``origin_s``: the run begins so much later. ``lonely``: collectives in groups of one, as
    Megatron has them. ``norm_over``: the kind of group that sums up the gradients' norm.
    """

    pp: int = 1
    dp: int = 2
    tp: int = 1
    ep: int = 1
    hosts: int = 1
    steps: int = 4
    micro_batches: int = 1
    schedule: Literal["1f1b", "gpipe", "interleaved"] = "1f1b"
    virtual: int = 2
    separate: bool = False
    layers: int = 2
    kernels: int = 5
    optimizer: int = 4
    kernel_us: float = 200.0
    host_us: float = 15.0
    latency_us: float = 6.0
    start_us: float = 20.0
    activation_mb: float = 8.0
    layer_mb: float = 4.0
    gradient_mb: float = 30.0
    buckets: int = 2
    overlap: bool = False
    gradients: Literal["reduceScatter", "allReduce"] = "reduceScatter"
    norm: bool = True
    norm_over: str = "mp"
    lonely: bool = False
    tokens: float = 0.0
    jitter: float = 0.01
    host_jitter: float = 0.2
    transfer_jitter: float = 0.005
    end_jitter_us: float = 1.0
    offset_ms: float = 5.0
    device_offset_us: float = 30.0
    drift_ppm: float = 50.0
    device_drift_ppm: float = 0.0
    jumps: tuple[Jump, ...] = ()
    origin_s: int = 0
    missing: tuple[int, ...] = ()
    bare: tuple[int, ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()
    shifted: tuple[tuple[int, int], ...] = ()
    trace: bool = False
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.pp * self.dp * self.tp

    @property
    def parts(self) -> int:
        """Into how many pieces the layers are cut."""
        return self.pp * (self.virtual if self.schedule == "interleaved" else 1)

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
    """A process group: ``name`` as in parallel_group_info, members in the group's order.

    Send and receive have groups of their own for every two ranks, which no file names.
    """

    name: str
    kind: str
    ranks: tuple[int, ...]

    @cached_property
    def hash(self) -> int:
        """The 64-bit hash that operations carry."""
        return group_hash(self.name)

    @cached_property
    def number(self) -> int:
        """A number of its own."""
        return int(self.name[11:]) if self.name[11:].isdigit() else 10_000 + self.ranks[0] * 1_000 + self.ranks[1]

    @cached_property
    def digits(self) -> str:
        """Last three digits of the hash, as operation names carry them."""
        return f"{self.hash % 1000:03d}"

    def peers(self, rank: int) -> tuple[int, ...]:
        """Members to which a rank has a link: all in a small group, the next one in a ring in a large one."""
        if len(self.ranks) <= MESH:
            return tuple(r for r in self.ranks if r != rank)
        return (self.ranks[(self.ranks.index(rank) + 1) % len(self.ranks)],)


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

    ``blocks``: later kernels wait for it; otherwise it runs on another stream, ``lane``, until a :class:`Join`.
    """

    type: str
    group: Group
    bytes: int
    launch: int
    blocks: bool = True
    peer: int = -1
    sends: bool = False
    receives: bool = False
    lane: int = 0


class Await(NamedTuple):
    """Later kernels wait for so many operations of a stream, counted from the begin of the step."""

    lane: int
    count: int


class Join(NamedTuple):
    """Later kernels wait for everything on other streams."""


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
    items: list[Segment | Comm | Await | Join] = field(default_factory=list)
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
    """Writes a rank's program: a step of Megatron."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.own = job, rank, own_groups(job, rank)
        self.stage, self.replica, self.shard = job.place(rank)
        self.program = Program()
        self.met, self.posted = [0, 0], 0

    def build(self) -> Program:
        """Return the program of a step."""
        {"1f1b": self._one_by_one, "gpipe": self._all_forward_first, "interleaved": self._interleaved}[
            self.job.schedule
        ]()
        self._finish()
        return self.program

    def _one_by_one(self) -> None:
        """1F1B: as many forwards ahead as there are stages behind."""
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

    def _all_forward_first(self) -> None:
        """GPipe: all forwards, then all backwards."""
        for _ in range(self.job.micro_batches):
            self._exchange(-1, receives=True)
            self._forward()
            self._exchange(+1, sends=True)
        for i in range(self.job.micro_batches):
            self._exchange(+1, receives=True)
            self._backward(last=i == self.job.micro_batches - 1)
            self._exchange(-1, sends=True)

    def _interleaved(self) -> None:
        """Interleaved 1F1B: chunks of layers go round the stages, ``pp`` micro-batches at a time.

        Sending and receiving go on beside the computing, and a receive is posted as soon as its turn comes among what
        goes between the two: both post in the order of the stage that sends activations, or they would wait for ever.
        """
        job = self.job
        if job.pp < 3 or job.micro_batches % job.pp:
            raise ValueError("interleaved: three stages, micro-batches a multiple of them")
        after, turns = (self.stage + 1) % job.pp, self._turns(self.stage)
        came = sent = 0  # on the stream to the stage after
        for n, (backward, part) in enumerate(turns):
            if backward and part < job.parts - 1:
                self._move(after, receives=True, blocks=False, lane=1 + after)
                came += 1
                self.program.items.append(Await(1 + after, came + sent))
            elif not backward and part > 0:
                self._meet_before(backward)
            if backward:
                self._backward(n == len(turns) - 1, part)
            else:
                self._forward(part)
            if backward and part > 0:
                self._meet_before(backward)
            elif not backward and part < job.parts - 1:
                self._move(after, sends=True, blocks=False, lane=1 + after)
                sent += 1

    def _meet_before(self, backward: bool) -> None:
        """The next gradients go to the stage before, or the next activations are waited for."""
        before = (self.stage - 1) % self.job.pp
        order = self._order(before)
        self.met[backward] += 1
        place = [n for n, kind in enumerate(order, 1) if kind == backward][self.met[backward] - 1]
        for sends in order[self.posted : place]:
            self._move(before, sends=sends, receives=not sends, blocks=False, lane=1 + before)
        self.posted = max(self.posted, place)
        if not backward:
            self.program.items.append(Await(1 + before, place))

    def _turns(self, stage: int) -> list[tuple[bool, int]]:
        """Return what a stage does in turn: whether backward, and of which part of the model."""
        job = self.job
        count = job.micro_batches * job.virtual
        ahead = 2 * (job.pp - stage - 1) + (job.virtual - 1) * job.pp
        ahead = count if job.micro_batches == job.pp else min(ahead, count)
        found = []
        for k in range(count + ahead):
            if k < count:
                found.append((False, k // job.pp % job.virtual * job.pp + stage))
            if k >= ahead:
                found.append((True, (job.virtual - 1 - (k - ahead) // job.pp % job.virtual) * job.pp + stage))
        return found

    def _order(self, stage: int) -> list[bool]:
        """Return in which order activations of a stage (False) and gradients for it (True) go."""
        return [backward for backward, part in self._turns(stage) if part < self.job.parts - 1]

    def _exchange(self, towards: int, sends: bool = False, receives: bool = False) -> None:
        """With a neighbour; separately, activations go before gradients on both sides."""
        other = self.stage + towards
        if not 0 <= other < self.job.pp:
            return
        if not self.job.separate:
            self._move(other, sends=sends, receives=receives)
            return
        for sending in (towards > 0, towards < 0):
            if sends if sending else receives:
                self._move(other, sends=sending, receives=not sending)

    def _move(self, stage: int, sends: bool = False, receives: bool = False, **more: object) -> None:
        name, group = "batchSendRecv", self.own["pp"]
        peer = self.job.rank(stage, self.replica, self.shard)
        if self.job.separate or self.job.schedule == "interleaved":
            low, high = sorted((self.rank, peer))
            name, group = "send" if sends else "receive", Group(f"{group.name} {low}:{high}", "pp", (low, high))
        self.program.talk(name, group, self.job.activation_mb, peer=peer, sends=sends, receives=receives, **more)

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

    def _head(self, shape: tuple[str, str, str], factor: float = 1.0) -> None:
        self.program.run([Kernel(*shape, self.job.kernel_us * 1000 * factor, True)])

    def _forward(self, part: int | None = None) -> None:
        """Layers of a part of the model, the stage's own if not told; the first has the embedding, the last logits."""
        part = self.stage if part is None else part
        if part == 0:
            self._head(EMBEDDING)
        for _ in range(self.job.layers):
            self._layer(False)
        if part == self.job.parts - 1:
            self._head(LOGITS)

    def _backward(self, last: bool, part: int | None = None) -> None:
        if (self.stage if part is None else part) == self.job.parts - 1:
            self._head(LOGITS, 2.0)
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
        if job.overlap or job.schedule == "interleaved":
            program.items.append(Join())
        if not job.overlap:
            self._reduce(job.buckets)
        if job.norm and len(self.own[job.norm_over].ranks) > 1:
            program.talk("allReduce", self.own[job.norm_over], 8e-6)
        shape = "4096,1024"
        if job.optimizer:
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


def larger(text: str, factor: float) -> str:
    """Return shapes with their largest dimension multiplied, wherever it occurs."""
    largest = max((int(n) for n in re.findall(r"\d+", text)), default=0)
    return re.sub(rf"\b{largest}\b", str(round(largest * factor)), text)


def shaped(job: Job, rank: int, kernel: Kernel) -> Kernel:
    """Return the kernel with the shapes that its rank gives it: larger where the work is uneven by design."""
    for f in job.faults:
        if f.design and f.kind in ("compute", "stage") and rank in hit_ranks(job, f) and hits(f, kernel):
            kernel = kernel._replace(inputs=larger(kernel.inputs, f.factor), outputs=larger(kernel.outputs, f.factor))
    return kernel


def speed(job: Job, rank: int, kernels: list[Kernel], step: int) -> np.ndarray:
    """Nominal duration of each kernel of a rank in a step, ns, faults and tokens included."""
    ns = np.array([k.ns for k in kernels])
    for fault in job.faults:
        if fault.kind in ("compute", "stage") and rank in hit_ranks(job, fault) and fault.during(step):
            ns *= np.array([fault.factor if hits(fault, k) else 1.0 for k in kernels])
    if job.tokens:
        ns *= np.where([k.type == "GroupedMatmul" for k in kernels], tokens(job, rank, step), 1.0)
    return ns


def tokens(job: Job, rank: int, step: int) -> float:
    """Return how many tokens the experts of a rank get in a step, by the even number."""
    return 1 + job.tokens * unit(job.seed, 8, rank, step)


def host_factor(job: Job, rank: int, step: int) -> float:
    """Return how many times longer the host of a rank takes for every launch of a step."""
    return float(np.prod([f.factor for f in job.faults if f.kind == "host" and rank in f.ranks and f.during(step)]))


def stalls(job: Job, rank: int, step: int) -> list[tuple[float, int]]:
    """Return where in its launches, and for how long, the host of a rank stops in this step."""
    found = [(f.at, f.ns) for f in job.faults if f.kind == "stall" and rank in f.ranks and f.during(step)]
    for f in job.faults:
        if f.kind == "stalls" and f.during(step) and unit(job.seed, 77, rank, step) < 2 * f.share - 1:
            found.append((f.at, int(f.ns * (1 + 0.5 * unit(job.seed, 78, rank, step)))))
    return found


def link_ns_per_byte(job: Job, group: Group, a: int, b: int, step: int) -> float:
    """Return how long a byte takes between two members of a group in a step."""
    ns = 1 / (HCCS_BYTES_PER_NS if job.host(a) == job.host(b) else RDMA_BYTES_PER_NS)
    for f in job.faults:
        whole = f.kind == "group" and f.group == group.kind and set(f.ranks) == set(group.ranks)
        if f.during(step) and (whole or (f.kind == "link" and set(f.ranks) == {a, b})):
            ns *= f.factor
    return ns


def slowest_ns_per_byte(job: Job, group: Group, step: int) -> float:
    """Of all links of a group; only few need a look: one inside a host, one between hosts, and those with faults."""
    ranks = group.ranks
    pairs = [pair for pair in pairwise(ranks) if job.host(pair[0]) != job.host(pair[1])][:1] or [ranks[:2]]
    slow = [f.ranks[:2] for f in job.faults if f.kind == "link" and set(f.ranks) <= set(ranks)]
    pairs += [(a, b) for a, b in slow if b in group.peers(a) or a in group.peers(b)]
    return max(link_ns_per_byte(job, group, a, b, step) for a, b in pairs)


def link_bytes(type_: str, group: Group, size: int) -> int:
    """Return what goes over one link (one way) in a collective on ``size`` bytes."""
    members = len(group.ranks)
    share = size * (2 if type_ == "allReduce" else 1) // members
    return share if members <= MESH else share * (members - 1)

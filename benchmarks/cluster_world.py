"""A simulated job on many ranks: who computes, who waits for whom, and what is to blame are known.

Every rank runs a program per step (cluster_job.py): forward and backward of its stage in 1F1B order, collectives per
layer, gradients, optimizer. A rank's host launches, its device runs in order; a collective begins when its last member
has arrived. Times are integer nanoseconds of one true clock. All randomness is drawn per rank and step, or per
operation, from a hash of the seed: a job with a fault repaired meets the same luck. cluster_files.py writes the files,
cluster_scenarios.py has the situations. The module knows nothing of npuperf.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from cluster_job import (
    Await,
    Comm,
    Fault,
    Group,
    Job,
    Join,
    Program,
    Segment,
    host_factor,
    link_bytes,
    link_ns_per_byte,
    program,
    slowest_ns_per_byte,
    speed,
    stalls,
    tokens,
    unit,
    units,
)

__all__ = ["Fault", "Job", "Operation", "StepRecord", "Truth", "check", "fixed", "gain_ns", "simulate"]

ORIGIN = 1_764_000_000_000_000_000
SYNC_RETURN, BETWEEN_STEPS = 6_000, 40_000
BASE_TRANSFER, LONELY_TRANSFER, RECEIVER_LATER = 10_000, 2_500, 2_000


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
        return f"hcom_{self.comm[rank].type}__{self.group.digits}_{self.index[rank]}_1"


def moved_bytes(job: Job, op: Operation, rank: int) -> int:
    """Return what an operation moves over one link of a rank: what its experts' tokens are, in an alltoallv."""
    size = op.bytes if op.peer_pair else link_bytes(op.type, op.group, op.bytes)
    return round(size * tokens(job, rank, op.step)) if op.type == "alltoallv" and job.tokens else size


def early(job: Job, op: Operation, rank: int) -> float:
    """Return what part of its time a rank is in an operation that it may leave early, its links included."""
    return 0.9 + 0.1 * unit(job.seed, 6, op.number, rank) if op.type == "alltoallv" else 1.0


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


@dataclass
class _Lane:
    """A stream beside the main one: operations not yet over, with when they may begin; ends of the step's others.

    ``wanted``: how many of them the main one waits for.
    """

    queue: deque[tuple[Operation, int]] = field(default_factory=deque)
    ends: list[int] = field(default_factory=list)
    wanted: int = -1


class _Rank:
    """A rank while it runs."""

    def __init__(self, job: Job, rank: int, program: Program) -> None:
        self.job, self.rank, self.program = job, rank, program
        self.steps: list[StepRecord] = []
        self.main = self.other = 0
        self.cursor = 0
        self.joining = False
        self.lanes: dict[int, _Lane] = defaultdict(_Lane)
        self.seen: dict[tuple[str, int, int], int] = defaultdict(int)
        self.index: dict[str, int] = defaultdict(int)
        self.begin_step(int(job.start_us * 1000 * (1 + unit(job.seed, 5, rank))))

    def begin_step(self, at: int) -> None:
        """The host starts launching a step."""
        job, step, count = self.job, len(self.steps), self.program.launches
        cost = job.host_us * 1000 * host_factor(job, self.rank, step)
        cost = cost * (1 + job.host_jitter * units(count, job.seed, 1, self.rank, step))
        for where, ns in stalls(job, self.rank, step):
            cost[min(int(where * count), count - 1)] += ns
        nominal = speed(job, self.rank, self.program.kernels, step)
        spread = 1 + job.jitter * units(len(nominal), job.seed, 2, self.rank, step)
        self.durations = np.maximum(np.rint(nominal * spread), 1).astype(np.int64)
        launch = at + np.cumsum(np.maximum(np.rint(cost), 1)).astype(np.int64)
        empty = np.zeros(len(nominal), np.int64)
        self.steps.append(StepRecord(step, at, at, empty, empty.copy(), launch))
        self.ready = launch + round(job.latency_us * 1000)
        self.cursor = 0
        self.lanes.clear()

    def end_step(self) -> bool:
        """The host waits for the device; return whether another step begins."""
        record = self.steps[-1]
        record.end = max(int(record.launch[-1]), self.main, self.other) + SYNC_RETURN
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
        self.rates: dict[tuple[Group, int], float] = {}
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
                rank.joining = any(lane.queue for lane in rank.lanes.values())
                if rank.joining:
                    return
                rank.main = max(rank.main, rank.other)
            elif isinstance(item, Segment):
                rank.compute(item)
            elif isinstance(item, Await):
                lane = rank.lanes[item.lane]
                if len(lane.ends) < item.count:
                    lane.wanted = item.count
                    return
                rank.main = max(rank.main, lane.ends[item.count - 1])
            else:
                self._meet(rank, item)
                if item.blocks:
                    return
            rank.cursor += 1

    def _meet(self, rank: _Rank, comm: Comm) -> None:
        """A rank comes to an operation: into it at once, or into the queue of another stream."""
        op = self._operation(rank, comm)
        ready = max(rank.main, int(rank.ready[comm.launch]))
        rank.steps[-1].operations.append(op)
        if comm.blocks:
            self._arrive(op, rank, ready)
            return
        lane = rank.lanes[comm.lane]
        lane.queue.append((op, ready))
        if len(lane.queue) == 1:
            self._arrive(op, rank, max([ready, *lane.ends[-1:]]))

    def _operation(self, rank: _Rank, comm: Comm) -> Operation:
        """The k-th of a rank with the same peers, and the same way, is the k-th of theirs."""
        ranks = comm.group.ranks if comm.peer < 0 else tuple(sorted((rank.rank, comm.peer)))
        sender = {"send": rank.rank, "receive": comm.peer}.get(comm.type, -1)
        key = (comm.group.name, comm.peer, sender)
        full = (comm.group.name, ranks, sender, rank.seen[key])
        rank.seen[key] += 1
        if full not in self.open:
            number = comm.group.number * 1_000_003 + ranks[0] * 10_007 + full[-1]
            number += sender > ranks[0]
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
            begun = op.begun
            for member in op.ranks:
                op.end[member] = begun + self._until(op, member)
            for member in op.ranks:
                self._leave(op, self.ranks[member])

    def _leave(self, op: Operation, rank: _Rank) -> None:
        end = op.end[rank.rank]
        if op.comm[rank.rank].blocks:
            rank.main = end
            rank.cursor += 1
            self.runnable.append(rank)
            return
        lane = rank.lanes[op.comm[rank.rank].lane]
        lane.ends.append(end)
        rank.other = max(rank.other, end)
        lane.queue.popleft()
        if len(lane.ends) == lane.wanted:
            lane.wanted = -1
            self.runnable.append(rank)
        if lane.queue:
            following, ready = lane.queue[0]
            self._arrive(following, rank, max(ready, end))
        elif rank.joining and not any(other.queue for other in rank.lanes.values()):
            rank.joining = False
            self.runnable.append(rank)

    def _transfer(self, op: Operation, rank: int) -> float:
        if len(op.group.ranks) == 1:
            return LONELY_TRANSFER
        if op.peer_pair:
            rate = link_ns_per_byte(self.job, op.group, *op.ranks, op.step)
        else:
            key = op.group, op.step
            rate = self.rates.get(key) or self.rates.setdefault(key, slowest_ns_per_byte(self.job, *key))
        return BASE_TRANSFER + moved_bytes(self.job, op, rank) * rate * op.noise

    def _until(self, op: Operation, rank: int) -> int:
        """From the last arrival to this rank's end: ends of a collective differ a little, of point-to-point by side."""
        ns, draw, comm = self._transfer(op, rank), unit(self.job.seed, 4, op.number, rank), op.comm[rank]
        if len(op.group.ranks) > 1:
            ns += 1000 * self.job.end_jitter_us * draw
        ns *= early(self.job, op, rank)
        if op.peer_pair and comm.receives and not comm.sends:
            ns += RECEIVER_LATER
        return max(round(ns), 1)


class _Busy:
    """How much of any interval is covered by kernels that run one after the other."""

    def __init__(self, start: np.ndarray, finish: np.ndarray) -> None:
        self.start, self.finish = start.tolist(), finish.tolist()
        self.before = [0, *accumulate(f - s for s, f in zip(self.start, self.finish, strict=True))]

    def within(self, begin: int, end: int) -> int:
        """Time covered from ``begin`` to ``end``."""
        return self._until(end) - self._until(begin)

    def _until(self, at: int) -> int:
        i = bisect_left(self.start, at)
        return self.before[i] - max(self.finish[i - 1] - at, 0) if i else 0


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
        job = self.job
        own = job.device_drift_ppm * unit(job.seed, 14, rank)
        return (job.drift_ppm * unit(job.seed, 13, job.host(rank)) + own) * 1e-6

    def clock(self, rank: int, true: np.ndarray | int) -> np.ndarray:
        """Return what the device's clock shows at true times: epoch ns."""
        ns = np.asarray(true, np.int64)
        shown = ORIGIN + self.job.origin_s * 10**9 + ns + self.offset(rank)
        shown += np.rint(ns * self.drift(rank)).astype(np.int64)
        for jump in self.job.jumps:
            if jump.rank == rank:
                shown += np.where(ns >= self.moment(rank, jump.step), round(jump.us * 1000), 0)
        return shown

    def moment(self, rank: int, at: float) -> int:
        """True time of a part of a rank's steps: 2.5 is amid its third, 2.0 just before it."""
        step, part = self.ranks[rank][int(at)], at % 1
        return round(step.begin + part * (step.end - step.begin)) if part else step.begin - BETWEEN_STEPS // 2

    def wait_ns(self, rank: int | None = None, kind: str | None = None) -> int:
        """Waiting of one rank, or of all that are there; in groups of one kind, or all. All steps together."""
        ranks = range(self.job.world) if rank is None else [rank]
        ops = [op for op in self.operations if kind in (None, op.group.kind)]
        return sum(op.wait(r) for op in ops for r in ranks if r in op.arrival)

    def transfer_ns(self, rank: int | None = None) -> int:
        """Transfer of one rank, or of all. All steps together."""
        ranks = range(self.job.world) if rank is None else [rank]
        return sum(op.transfer(r) for op in self.operations for r in ranks if r in op.arrival)

    def exposed_ns(self, rank: int) -> tuple[int, int]:
        """Waiting and transfer of a rank while none of its kernels runs. All steps together."""
        wait = transfer = 0
        for step in self.ranks[rank]:
            busy = _Busy(step.start, step.finish)
            for op in step.operations:
                wait += op.wait(rank) - busy.within(op.arrival[rank], op.begun)
                transfer += op.transfer(rank) - busy.within(op.begun, op.end[rank])
        return wait, transfer

    def idle_ns(self, rank: int) -> int:
        """Time in which the device had nothing launched, from its first task to its last: all of it the host's."""
        steps = self.ranks[rank]
        spans = [span for s in steps for span in zip(s.start.tolist(), s.finish.tolist(), strict=True)]
        spans += [(op.arrival[rank], op.end[rank]) for s in steps for op in s.operations]
        idle, until = 0, min(spans)[0]
        for begin, end in sorted(spans):
            idle += max(begin - until, 0)
            until = max(until, end)
        return idle

    def compute_ns(self, rank: int) -> int:
        """Time in kernels of a rank. All steps together."""
        return int(sum((s.finish - s.start).sum() for s in self.ranks[rank]))

    @cached_property
    def clean(self) -> Truth:
        """The same job with nothing wrong: stages are equal, what waiting is left is the schedule's and luck's."""
        return simulate(replace(self.job, faults=()))

    @property
    def schedule_wait_ns(self) -> int:
        """Waiting of all ranks in point-to-point operations when nothing is wrong: the schedule's own."""
        return self.clean.wait_ns(kind="pp")


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
    wrong += [f"repairing {f} costs {-gain_ns(truth, f)} ns" for f in truth.job.faults if gain_ns(truth, f) < 0]
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

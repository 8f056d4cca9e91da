"""What several ranks of one job tell together: part of the document of ``npuperf analyze``.

Sums are over the analysed steps; times are integer nanoseconds; missing is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from npuperf.base.messages import Message
from npuperf.model.parts import Model

RootKind = Literal["rank", "stage", "link", "group", "schedule", "jitter", "unknown"]
Why = Literal["compute", "host", "communication", "unknown"]


class RankCommunication(Model, frozen=True, kw_only=True):
    """Time of one rank in communication: total = transfer + wait + unknown, all and exposed (nothing hides it)."""

    total_ns: int
    transfer_ns: int
    wait_ns: int
    unknown_ns: int
    wait_by_kind: dict[str, int]
    exposed_transfer_ns: int
    exposed_wait_ns: int
    exposed_unknown_ns: int


class ClockOffset(Model, frozen=True, kw_only=True):
    """What is added to the device's times to reach the first rank's clock: estimate, provable bounds, residual.

    ``operations``: collectives that it rests on. Null bounds: no collective bounds it.
    """

    offset_ns: int
    low_ns: int | None
    high_ns: int | None
    residual_ns: int
    drift_ppm: float | None
    operations: int


class ClusterRank(Model, frozen=True, kw_only=True):
    """One rank of the job."""

    rank: int
    device: int
    stage: int | None
    host: str | None
    source: str
    step_ns: int
    compute_ns: int | None
    host_wait_ns: int | None
    idle_ns: int | None
    comm: RankCommunication
    clock: ClockOffset | None


class RunOfRanks(Model, frozen=True, kw_only=True):
    """Ranks that can be of one run, where those that were read cannot all be.

    ``step_ns``: their mean step, null where steps are not recorded; ``begin_ns``: when the first was begun to be
    recorded, epoch; ``apart``: why they are not of the first run, null for that; ``next``: how to analyze them alone.
    """

    ranks: list[int]
    step_ns: int | None
    begin_ns: int
    apart: Message | None
    next: Message


class ClusterGroup(Model, frozen=True, kw_only=True):
    """A process group. ``complete``: all its ranks were loaded; else, or where that is not known, transfer and waits
    are lower bounds.

    ``inferred``: the files do not name its ranks; they are those that have operations of it.
    ``transfer_ns``, ``wait_ns`` and ``unknown_ns``: of all its ranks together.
    """

    group: str
    kind: str | None
    ranks: list[int]
    missing: list[int]
    complete: bool
    inferred: bool
    operations: int
    unmatched: int
    transfer_ns: int
    wait_ns: int
    unknown_ns: int = 0


class Collective(Model, frozen=True, kw_only=True):
    """One communication operation on all its ranks (the costliest are listed). ``arrival_ns``: after the first
    arrival, on the corrected clock; null where arrivals cannot be separated. ``last``: the rank that arrived last, null
    where others may have come later. A stay has ``transfer_ns`` at least, and ``unknown_ns`` more at most: what may be
    waiting for ranks that were not loaded, or cannot be told where ranks leave an operation early.
    """

    step: int | None
    name: str
    group: str
    kind: str | None
    ranks: list[int]
    complete: bool
    transfer_ns: int
    unknown_ns: int = 0
    wait_ns: list[int]
    arrival_ns: list[int] | None
    last: int | None


class CollectiveRate(Model, frozen=True, kw_only=True):
    """How fast collectives of one kind, number of ranks and size class are, as NCCL-tests defines it; GB/s.

    ``group``: what the program calls their groups, null where not recorded. ``ranks``: null where not known,
    ``at_least``: links tell no more of them. ``bytes``: of the whole buffers, null where not known, by their elements
    or (``by_elements`` is false) by what moved over one transport: inferred.
    ``time_ns``: without waiting for other ranks, at least and at most, as far as that is told; so ``bus_gb_per_s`` has
    no most where nothing certain is. ``link_gb_per_s``: of each of ``links`` side by side (null: not known) while it is
    used; ``reference_gb_per_s``: the vendor's figure of a link, shown only. ``unaligned``: operations with packets that
    are no multiple of 512 bytes, null where packets are not recorded.
    """

    kind: str
    group: str | None
    ranks: int | None
    at_least: bool
    size_class: str | None
    transport: str | None
    operations: int
    bytes: int | None
    by_elements: bool
    time_ns: tuple[int, int]
    algorithm_gb_per_s: tuple[float, float | None] | None
    bus_gb_per_s: tuple[float, float | None] | None
    link_gb_per_s: float | None
    links: int | None
    reference_gb_per_s: float | None
    unaligned: int | None


class Stage(Model, frozen=True, kw_only=True):
    """A pipeline stage: its ranks alike. ``compute_ns``: mean of its ranks; ``bubble_ns``: exposed waiting for other
    stages of its ranks between first forward and last backward, the drain included, mean of its ranks.

    ``vendor_bubble_ns``: the exporter's own Bubble.
    """

    stage: int
    ranks: list[int]
    compute_ns: int
    bubble_ns: int
    window_ns: int
    vendor_bubble_ns: int | None


#: What a stage does in a stretch of a step: work on micro-batches; both, where nothing recorded lies between them; its
#: own time beside these; waiting for other ranks; communication that is under way, or may be.
StageDoing = Literal["forward", "backward", "both", "own", "wait", "communication"]


class StageTrack(Model, frozen=True, kw_only=True):
    """What one rank of a stage did in a step: stretches in order, columns of one length, ns after the step's begin.

    ``forward``, ``backward``: the micro-batch that it worked on, from 0, as activations and as gradients follow each
    other over the links; -1 none, or not told.
    """

    stage: int
    rank: int
    start_ns: list[int]
    end_ns: list[int]
    what: list[StageDoing]
    forward: list[int]
    backward: list[int]


class PipelineStep(Model, frozen=True, kw_only=True):
    """One step of one pipeline on the job's clock, of median length; ``span_ns``: from the first begin to the last end.

    ``told``: whether micro-batches are told apart; else ``own`` is all that ranks did between communication. Stretches
    below a 2,000th of the span are left out; of very many, whole stages (``stages`` are the first ones).
    """

    step: int | None
    span_ns: int
    told: bool
    stages: list[StageTrack]


class Pipeline(Model, frozen=True, kw_only=True):
    """All stages together. ``imbalance``: longest over mean stage compute; ``schedule_share``: the schedule's own
    bubble, (p-1)/(v·m+p-1), null where micro-batches cannot be counted. ``interleaving``: chunks of layers per stage
    (virtual stages); ``schedule``: 1F1B, GPipe, interleaved 1F1B or forward only; ``why``: by what that is told, or why
    it is not. ``schedule_wait_ns``, ``imbalance_wait_ns``: their parts of the waiting, of all ranks and of one pipeline
    (``per_pipeline``). ``in_time``: one step, null where kernels or exchanges of a pipeline's ranks are not all known.
    """

    stages: int
    micro_batches: int | None
    interleaving: int | None
    schedule: str | None = None
    why: Message | None = None
    imbalance: float
    max_over_min: float
    schedule_share: float | None
    bubble_share: float
    schedule_wait_ns: int
    imbalance_wait_ns: int
    pipelines: int
    gain_ns_per_step: tuple[int, int] | None
    in_time: PipelineStep | None = None


class Link(Model, frozen=True, kw_only=True):
    """What went between two ranks over one transport in operations of one kind and size class (bytes, log2).

    ``peers_gb_per_s``: median of its peers, null where there are too few; ``reference_gb_per_s``: the vendor's figure,
    shown only. ``count``: null where the files have totals without counts. ``lost_ns``: against its peers.
    """

    ranks: tuple[int, int]
    transport: str
    kind: str
    size_class: str | None
    count: int | None
    bytes: int
    time_ns: int
    gb_per_s: float
    peers_gb_per_s: float | None
    reference_gb_per_s: float | None
    slow: bool
    lost_ns: int


class Root(Model, frozen=True, kw_only=True):
    """A root cause of waiting. ``wait_ns``: the waiting of all ranks that it explains, ``share``: of all waiting.

    ``gain_ns_per_step``: what repairing it alone saves the job, replayed; null where the replay abstains.
    ``gain_behind_ns_per_step``: what it saves once the roots before it are repaired, where it saves little alone.
    ``steps``: the only steps in which it is there; empty where it lasts.
    ``where``: phase or code line; ``operators``: what takes the time; ``title``: in words; ``next``: what to do.
    """

    kind: RootKind
    ranks: list[int]
    why: Why
    wait_ns: int
    share: float
    gain_ns_per_step: tuple[int, int] | None
    gain_behind_ns_per_step: tuple[int, int] | None = None
    where: str | None
    steps: list[int] = []
    stage: int | None = None
    group: str | None = None
    operators: list[str] = []
    title: Message
    next: Message | None = None
    evidence: dict[str, Any] = {}


class ClusterReplay(Model, frozen=True, kw_only=True):
    """How well the replay over all ranks reproduces the job's length; figures are given below 5 %."""

    usable: bool
    error: float
    measured_ns: int
    reason: Message | None


class Experts(Model, frozen=True, kw_only=True):
    """Imbalance of experts over one group, of one layer (n-th grouped matmul): longest over mean, and its cost."""

    group: str
    ranks: list[int]
    layer: int
    time_ns: list[int]
    tokens: list[int | None]
    imbalance: float
    lost_ns: int


class JobRole(Model, frozen=True, kw_only=True):
    """A role in reinforcement learning (rollout, update, …): ranges on the hosts whose ``names`` tell it.

    ``turns``: how often each rank takes it, null where not all do at once. A turn is as long as that of its longest
    rank, and ``time_ns`` all turns together, of which ``share`` is its part of the ranks' window. The ranks' time in it
    is ``busy_share`` work and communication of the device, ``idle_share`` none while the rank is in it, ``early_share``
    having ended before the longest. ``longest_rank`` is the longest in ``longest_in`` turns; ``longest_ns`` and
    ``median_ns``: of ranks, all turns; ``tail_ns``: by what the turns are longer than those of the median rank.
    """

    role: str
    names: list[str]
    ranks: list[int]
    turns: int | None
    time_ns: int
    share: float
    busy_share: float
    idle_share: float
    early_share: float
    longest_rank: int
    longest_in: int
    longest_ns: int
    median_ns: int
    tail_ns: int


class Cluster(Model, frozen=True, kw_only=True):
    """The job: its step, its ranks, who waits for whom, and why.

    ``world_size``: how many ranks the job has, null where that is not known, ``world_size_least`` how many at least, by
    every hint there is. ``absent``: those that were not loaded, or are left out because rows of their kernel tables are
    missing (``cut``); ``notes``: what could not be told, and what would tell.
    """

    step_ns: int
    steps: int
    ranks: list[ClusterRank]
    groups: list[ClusterGroup]
    stages: list[Stage]
    links: list[Link]
    roots: list[Root]
    collectives: list[Collective] = []
    collective_rates: list[CollectiveRate] = []
    pipeline: Pipeline | None = None
    experts: list[Experts] = []
    roles: list[JobRole] = []
    replay: ClusterReplay | None = None
    world_size: int | None = None
    world_size_least: int = 0
    absent: list[int] = []
    cut: list[int] = []
    notes: list[Message] = []

    def time_of(self, ranks: Sequence[ClusterRank]) -> int:
        """Return the time of some ranks together, ns: of the steps of each, whose parts add up to it.

        The job's own step is longer than those of ranks that end sooner than others.
        """
        return sum(rank.step_ns for rank in ranks) * max(self.steps, 1)

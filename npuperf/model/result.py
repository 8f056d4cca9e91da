"""The result of an analysis: the one document that text, JSON, CSV and Markdown all show.

Its JSON form is a contract (``schema_version``): fields may be added, never renamed. Times are integer nanoseconds;
``*_ns`` positions in time are relative to the device's ``origin_ns``; missing is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from npuperf.base.escape import for_shell
from npuperf.base.messages import Message
from npuperf.model.comparison import Compared, Comparison
from npuperf.model.document import Document
from npuperf.model.efficiency_result import Efficiency, Limit, ModelWork
from npuperf.model.job_result import Cluster, CollectiveRate, RunOfRanks
from npuperf.model.memory_result import Memory
from npuperf.model.parts import Digest, Model, Pmu, Tool, Workload

Bound = Literal["host", "compute", "communication", "unknown"]
Basis = Literal["measured", "inferred"]
Status = Literal["problem", "ok", "cannot_tell"]
Severity = Literal["high", "medium", "low"]
Held = Literal["ok", "violated", "unknown"]
DependencyKind = Literal["stream", "communication", "copy", "event", "launch", "switch", "host_call", "unrecorded"]
InputKind = Literal["ascend_pt", "prof", "csv", "json", "db", "kineto", "cluster", "snapshot", "memscope"]


class Lost(Model, frozen=True, kw_only=True):
    """Rows (or trace events) of a file that could not be used, and why."""

    file: str
    rows: int
    reason: Message


class Input(Model, frozen=True, kw_only=True):
    """What was read, what of it was lost, and which files were not there and what they would tell.

    ``anonymous``: names in the document are made up, but for public ones.
    """

    path: str
    kind: InputKind
    files: list[str]
    lost: list[Lost]
    warnings: list[Message]
    missing: list[Message]
    anonymous: bool = False


class Elasticity(Model, frozen=True, kw_only=True):
    """Relative change of the window's length per relative change of one resource's time."""

    host: float
    compute: float
    communication: float


class Verdict(Model, frozen=True, kw_only=True):
    """What limits a stretch of time, and how that is known. ``evidence`` holds the numbers judged."""

    bound: Bound
    basis: Basis
    reason: Message
    evidence: dict[str, float | None] = {}
    elasticity: Elasticity | None = None


class Partition(Model, frozen=True, kw_only=True):
    """A window of device time split into parts that add up exactly.

    span = compute + comm_exposed + other_exposed + idle;
    idle = host_wait + launch_latency + dependency_wait + unattributed;
    comm_exposed = comm_transfer + comm_wait + comm_unknown: data on its way, waiting for other ranks, and what cannot
    be told apart, which is all of it where no other rank was loaded.
    """

    span_ns: int
    compute_ns: int
    comm_exposed_ns: int
    other_exposed_ns: int
    idle_ns: int
    host_wait_ns: int
    launch_latency_ns: int
    dependency_wait_ns: int
    unattributed_ns: int
    comm_transfer_ns: int = 0
    comm_wait_ns: int = 0
    comm_unknown_ns: int = 0


class Step(Model, frozen=True, kw_only=True):
    """One step, as docs/phases.md has it: as the host ran it where that is recorded, else between first kernels.

    ``whole``: it was recorded from beginning to end, as far as that can be told. ``host_ns``: how long the host's own
    range of the step lasts; null where it is not recorded.
    """

    step: int
    start_ns: int
    partition: Partition
    verdict: Verdict
    whole: bool = True
    host_ns: int | None = None
    efficiency: Efficiency | None = None


class StepColumns(Model, frozen=True, kw_only=True):
    """The steps of a device whose ``steps`` are cut: their numbers, which are ``whole``, and their parts, ns.

    A part that is not among ``parts`` is 0 in all of them, or the sum of others that a partition is.
    ``efficiency``: of each what gates ask for (:class:`EfficiencySum`), null where any step has none: a column for
    each number, of an interval one for its least and one for its most (``hfu_least``, ``hfu_most``). One that is not
    there is null in all of them, a most alike its least, and ``kernels`` alike ``hfu``.
    """

    step: list[int]
    whole: list[bool]
    parts: dict[str, list[int]]
    efficiency: dict[str, list[float | None]] | None = None


class Stream(Model, frozen=True, kw_only=True):
    """One stream on its own: the device's window split by this stream's tasks alone."""

    stream: int | None
    tasks: int
    partition: Partition


class Blame(Model, frozen=True, kw_only=True):
    """What the launching thread did while the device waited."""

    cause: str
    name: str
    ns: int
    count: int
    where: str | None


class HostStep(Model, frozen=True, kw_only=True):
    """One step as the host ran it, ns; ``start_ns`` counts from the run's ``origin_ns``."""

    step: int
    start_ns: int
    length_ns: int


class HostWork(Model, frozen=True, kw_only=True):
    """What the thread that makes the steps did, in itself: without what it called that was recorded, too.

    ``calls``: events that began in what is summed up; null for time without an event, and for several names together.
    """

    cause: str
    name: str
    calls: int | None
    self_ns: int
    where: str | None


class HostRun(Model, frozen=True, kw_only=True):
    """A process of which no device task is recorded. ``span_ns``: of its steps together, or of all without any.

    ``origin_ns``: when its first event began; ``work`` adds up to ``span_ns``; ``threads`` and ``events``: recorded.
    """

    rank: int | None
    source: str
    origin_ns: int
    span_ns: int
    threads: int
    events: int
    steps: list[HostStep]
    work: list[HostWork]

    @property
    def per_step(self) -> int:
        """By how many a time is divided to be that of a step; by 1 where no step is recorded."""
        return max(len(self.steps), 1)


class Dependency(Model, frozen=True, kw_only=True):
    """What the idle device waited for once its next task was launched.

    The lines add up to the dependency_wait_ns of the phase, or of the window that is judged.
    ``name``: the task, row or host call waited for, of kinds launch and switch the task that began late; ``stream``:
    the one waited for. ``certain``: recorded, not inferred from times. Where nothing is recorded, ``stream`` is the one
    of which the wait lies between two tasks, ``meanwhile`` the call in which the host waited for the device, too, which
    explains nothing, and ``needs`` what might tell more.
    """

    kind: DependencyKind
    name: str
    ns: int
    count: int
    where: str | None = None
    certain: bool
    stream: int | None = None
    meanwhile: str | None = None
    needs: Message | None = None


class TypeTime(Model, frozen=True, kw_only=True):
    """An operator type with its time in a phase."""

    type: str
    count: int
    total_ns: int


class Phase(Model, frozen=True, kw_only=True):
    """A stretch of time with one verdict.

    ``label`` says which part of the program launched it, ``where`` the line of code most of it comes from.
    The lines of ``blame`` add up to the partition's host_wait_ns, those of ``dependencies`` to its
    dependency_wait_ns.
    """

    start_ns: int
    end_ns: int
    first_step: int | None
    last_step: int | None
    label: Message | None
    bound: Bound
    partition: Partition
    blame: list[Blame]
    verdict: Verdict
    where: str | None
    kernels: list[TypeTime]
    dependencies: list[Dependency] = []
    efficiency: Efficiency | None = None


class Spread(Model, frozen=True, kw_only=True):
    """Least, median and greatest of something measured in every step, ns."""

    min_ns: int
    median_ns: int
    max_ns: int


class TypicalPhase(Model, frozen=True, kw_only=True):
    """A phase that every usual step has; start and end count from the step's start."""

    bound: Bound
    label: Message | None
    start: Spread
    end: Spread
    length: Spread


class OddStep(Model, frozen=True, kw_only=True):
    """A step unlike the others, and in what."""

    step: int
    span_ns: int
    why: Message


class TypicalStep(Model, frozen=True, kw_only=True):
    """What the steps have in common: the usual phases over ``steps`` steps, and the steps that differ."""

    steps: int
    length: Spread
    phases: list[TypicalPhase]
    odd: list[OddStep]


#: What a call waits for; ``copy``: one between host and device, in a direction that is not recorded.
WaitKind = Literal["htod", "dtoh", "dtod", "copy", "stream", "event", "device", "unknown"]
#: Whose wait it is, or what it is for: the profiler's own; at the end of a step, after all of its work was launched.
WaitPurpose = Literal["profiler", "compile", "capture", "step_end"]


class SyncSite(Model, frozen=True, kw_only=True):
    """Calls that make the host wait for the device: how often, how long, and how long the device idled after.

    ``gain_ns_per_step``: what the replay saves without these waits, an interval; null where it abstains. ``pinned``:
    whether the host memory that is copied is pinned, ``purpose``: whose wait it is or what for; null where unknown.
    ``before_ns``: how much of ``host_ns`` lies before what is judged, where nothing can be replayed; ``held_ns``: in
    how much of it the device was idle, as it is while a copy is prepared on the host.
    """

    name: str
    torch_op: str | None
    where: str | None
    count: int
    host_ns: int
    idle_ns: int
    gain_ns_per_step: tuple[int, int] | None
    kind: WaitKind = "unknown"
    pinned: bool | None = None
    purpose: WaitPurpose | None = None
    before_ns: int = 0
    held_ns: int = 0


class ReplayCheck(Model, frozen=True, kw_only=True):
    """How well the model reproduces what is judged, and whether figures may be modelled with it.

    ``error``: relative difference of its length, or of the steps', whichever is more; ``unexplained_ns``: idle time in
    it that is kept as measured; ``launched``: the share of its tasks with a known launch.
    """

    usable: bool
    reason: Message | None
    error: float
    unexplained_ns: int
    launched: float


class CoreSide(Model, frozen=True, kw_only=True):
    """Use of the cube or of the vector cores. Occupancies are fractions of all cores of that side, by blocks.

    ``occupancy_busy`` is weighted by the duration of the kernels that use this side,
    ``occupancy_span`` is the part of all cores' time in the window that kernels occupy, however many run at once.
    ``at_work``: the part of all cores' time in these kernels in which they work, by their recorded cycles; null where
    these are not recorded of nearly all.
    """

    cores: int
    kernels: int
    occupancy_busy: float | None
    occupancy_span: float | None
    idle_core_ns: int
    at_work: float | None = None


class CoreType(Model, frozen=True, kw_only=True):
    """Block Dim / Mix Block Dim of all kernels of one core type. ``tail``: unused part of the last waves."""

    core: str
    kernels: int
    total_ns: int
    blocks_unknown: int
    block_min: int | None
    block_median: float | None
    block_max: int | None
    mix_block_min: int | None
    mix_block_max: int | None
    occupancy: float | None
    waves_max: int | None
    tail: float | None


class IdleKernel(Model, frozen=True, kw_only=True):
    """A kind of kernel that leaves core time unused on the side it mainly runs on.

    ``idle_core_ns``: cores without a block; ``tail_core_ns``: cores that the last of several waves leaves unused.
    """

    name: str
    type: str | None
    core: str
    count: int
    block_dim: int
    cores: int
    idle_core_ns: int
    waves: int
    tail_core_ns: int


class CoreTime(Model, frozen=True, kw_only=True):
    """One side's cores over time: cores · kernel_ns = occupied + idle, to the core-nanosecond.

    ``kernel_ns``: time in which any kernel runs on the device, ``busy_ns``: in which one uses this side,
    ``full_ns``: in which no core of it is free, ``over_ns``: in which kernels together ask for more than there are.
    ``slices``: mean share of cores occupied in equal slices of the window.
    """

    cores: int
    kernel_ns: int
    busy_ns: int
    full_ns: int
    over_ns: int
    occupied_core_ns: int
    idle_core_ns: int
    slices: list[float]


class IdleType(Model, frozen=True, kw_only=True):
    """Core time left idle while kernels of a type ran; what several kernels leave idle together is split evenly."""

    type: str | None
    core: str
    kernels: int
    idle_cube_core_ns: int
    idle_vector_core_ns: int


class StreamSet(Model, frozen=True, kw_only=True):
    """The time in which kernels of exactly these streams ran, and the core time that they left idle."""

    streams: list[int]
    ns: int
    idle_cube_core_ns: int
    idle_vector_core_ns: int


class StreamPair(Model, frozen=True, kw_only=True):
    """Two streams side by side. ``share``: overlap per kernel time of the shorter; ``over_ns``: of the overlap,
    time in which all running kernels together ask for more cores than the chip has.
    """

    streams: tuple[int, int]
    overlap_ns: int
    share: float
    over_ns: int


class Contention(Model, frozen=True, kw_only=True):
    """Kernels of ``stream``, launched and next in line, while ``holders`` left them fewer cores than they need.

    ``most_ns`` counts every such wait; ``least_ns`` only those that cannot have been a wait for an event;
    ``full_ns`` is the part of ``most_ns`` in which not one core of a side they need was free.
    """

    stream: int
    holders: list[int]
    kernels: int
    least_ns: int
    most_ns: int
    full_ns: int


class CoresOverTime(Model, frozen=True, kw_only=True):
    """The occupancy of the cores over time, from an exact sweep over all kernels with known blocks.

    ``contended_ns``: time in which at least one stream waits for cores, least and most; null where launches are
    not recorded (see ``contention_reason``).
    """

    cube: CoreTime | None
    vector: CoreTime | None
    by_type: list[IdleType]
    together: list[StreamSet]
    pairs: list[StreamPair]
    contention: list[Contention]
    contended_ns: tuple[int, int] | None
    contention_reason: Message | None


class CoreUse(Model, frozen=True, kw_only=True):
    """How many cores kernels use. Null sides: core counts or block counts are unknown (see ``reason``)."""

    source: Message | None
    cube: CoreSide | None
    vector: CoreSide | None
    by_type: list[CoreType]
    most_idle: list[IdleKernel]
    reason: Message | None
    over_time: CoresOverTime | None = None


class RuleCheck(Model, frozen=True, kw_only=True):
    """A condition of a documented feature, held against the profile. ``unknown``: the profile does not tell."""

    rule: Message
    status: Held
    detail: Message


class CoreLimit(Model, frozen=True, kw_only=True):
    """The most cores that one stream's kernels may use; ``kernels`` of it ran on ``types``, from ``where``."""

    stream: int
    cube: int
    vector: int
    kernels: int
    types: list[str]
    where: list[str]


class SlowerKernel(Model, frozen=True, kw_only=True):
    """Kernels of one type that a limit slows down, by a factor between ``least`` and ``most``."""

    stream: int
    type: str | None
    count: int
    total_ns: int
    least: float
    most: float


class CoreSplit(Model, frozen=True, kw_only=True):
    """Core limits per stream, replayed. ``span_ns``: the window's length with them, least and most.

    The least assumes that a kernel's work divides without loss over fewer cores, or keeps its blocks and runs
    them in more waves, whichever is faster; the most assumes the slower of the two. ``asked``: by the user.
    ``tried``: splits replayed to find this one, on ``searched_kernels`` kernels; none of them saves more than
    ``bound_ns_per_step``, at its best (None where the search ran on a part of the profile).
    """

    limits: list[CoreLimit]
    asked: bool
    mode: Message
    span_ns: tuple[int, int] | None
    gain_ns_per_step: tuple[int, int] | None
    gain_pct: tuple[float, float] | None
    slower: list[SlowerKernel]
    rules: list[RuleCheck]
    code: str | None
    reason: Message | None
    tried: int = 0
    searched_kernels: int = 0
    bound_ns_per_step: int | None = None


class ScopeOption(Model, frozen=True, kw_only=True):
    """An option of a SuperKernel and why it is set."""

    key: str
    value: str
    reason: Message


class Segment(Model, frozen=True, kw_only=True):
    """Consecutive kernels that one SuperKernel can hold. ``gaps_ns``: between them, in one run through."""

    first: str
    last: str
    kernels: int
    gaps_ns: int
    stopped_by: Message | None


class SuperKernelScope(Model, frozen=True, kw_only=True):
    """A sequence worth a SuperKernel: its segments, how often it runs, and what it would save per step.

    ``cube`` and ``vector``: the cores that the SuperKernel launches with; None where blocks are unknown.
    """

    name: str
    stream: int
    count: int
    types: list[str]
    where: list[str]
    segments: list[Segment]
    kernels: int
    dur_ns: int
    gaps_ns: int
    cube: int | None
    vector: int | None
    gain_ns_per_step: tuple[int, int]
    options: list[ScopeOption]
    rules: list[RuleCheck]
    code: str


class SuperKernelCheck(Model, frozen=True, kw_only=True):
    """A SuperKernel of this profile beside the kernels it replaced in another one.

    ``compared``: mean times per run through. ``block_expected``: the most cores of its kernels; ``parts``: how many
    SuperKernels the scope became; ``gaps_ns``: between the kernels it replaced. ``basis``: inferred where kernels were
    paired by what disappeared.
    """

    compared: Compared
    parts: int
    kernels: int
    block_dim: int | None
    block_expected: int | None
    gaps_ns: int | None
    basis: Basis
    reason: Message
    log: list[str]


class Clock(Model, frozen=True, kw_only=True):
    """What the profile says about launches: calibrated latency and the host-device clock disagreement.

    ``launch_latency_ns`` is null, with a reason, where launches alone cannot tell it from the disagreement of the
    clocks; ``latency_bounds_ns`` is then what it can be (null: nothing bounds it), and partitions count it to
    ``host_wait_ns``.
    ``skew_ns``: by how much the device's clock is behind the host's at least, ``skew_most_ns``: at most, if told.
    """

    launch_latency_ns: int | None
    latency_samples: int
    skew_ns: int
    launches: int
    tasks: int
    skew_most_ns: int | None = None
    latency_bounds_ns: tuple[int, int] | None = None
    latency_reason: Message | None = None


class CoreClock(Model, frozen=True, kw_only=True):
    """What hardware counters tell of a device's cores: how many there are, at which clock they are rated and ran, MHz.

    ``cores``: the cube cores, null where counters do not tell; ``used``: whether the device's core counts are these.
    ``core_mhz``: cube cores × rated MHz, and ``rows``, the kernels that agree in it; ``left_out``: those whose counters
    are odd, or do not agree. Null and 0 where the use of cube cores is not recorded. ``rated_mhz``: by the ``basis``:
    that product (``at_least`` where its cores are not told apart), the table of chips, or the highest clock that
    kernels ran at, which is no rating (null: none). ``by_counters``: what tells the clock of kernels; else what AI Core
    Freq had while they ran.
    ``told_ns``: the time of the window's kernels whose clock is known; ``mean_mhz``, ``least_mhz`` and ``most_mhz`` are
    of these (null: of none), ``slowed_ns`` of those below ``rated_mhz``, of which the first began at ``since_ns`` (null
    where none was faster before), ``slowed_steps`` those whose kernels ran below it on average; ``lost_ns``: what they
    would save at it, or the most it may be, if all their work went with the clock.
    """

    cores: int | None
    used: bool
    core_mhz: float | None
    rows: int
    left_out: int
    rated_mhz: float | None
    basis: Literal["counters", "chip", "at_least", "highest"] | None
    told_ns: int
    mean_mhz: float | None
    least_mhz: int | None
    most_mhz: int | None
    slowed_ns: int
    lost_ns: int
    since_ns: int | None
    by_counters: bool = True
    slowed_steps: list[int] = []


class CommunicationBounds(Model, frozen=True, kw_only=True):
    """What of a rank's communication is transfer, as far as its own files tell: at least and at most, the rest being
    waiting for other ranks; all of it (stays of operations summed, ``total_ns``), and what of it no compute hides.

    That it is not more is inferred: ``awaited_ns`` of it went by before operations moved anything, most of it for
    ``awaited_rank``, which is counted inside of the group ``awaited_group``, or in the job where that is null; so says
    ``waits``, where it is a notable part.
    """

    transfer_least_ns: int
    transfer_most_ns: int
    exposed_least_ns: int
    exposed_most_ns: int
    total_ns: int
    awaited_ns: int = 0
    awaited_rank: int | None = None
    awaited_group: str | None = None
    waits: Message | None = None


class VendorCheck(Model, frozen=True, kw_only=True):
    """Our split of a step beside the exporter's (step_trace_time.csv); differences are ours minus theirs."""

    step: int | None
    agrees: bool
    compute_diff_ns: int
    comm_exposed_diff_ns: int
    free_diff_ns: int
    span_diff_ns: int
    why: Message


#: Totals that several files of a recording give: time in kernels during the steps, durations of kernels added up, their
#: number, time in communication, steps of the host.
Total = Literal["compute", "kernel_time", "kernels", "communication", "steps"]


class WitnessCheck(Model, frozen=True, kw_only=True):
    """A total that another file of the recording tells (``source``), beside what the tasks that were read come to.

    ``told`` and ``found``: ns, or a count where ``unit`` says so. ``missing_share``: which part of what was told is not
    there; ``holds``: no more than is tolerated, so that the device may be judged.
    """

    total: Total
    source: str
    unit: Literal["ns", "count"]
    told: int
    found: int
    missing_share: float
    holds: bool
    figures: Message


class JudgedSteps(Model, frozen=True, kw_only=True):
    """The window that a device's verdict, phases, blame, findings and what-ifs are about: its whole steps.

    Of a recording without steps that began while earlier work still ran: what comes after that; ``steps`` is then 0.
    ``before_ns`` and ``after_ns``: how much of the device's span lies before and after it. ``host_before_ns`` and
    ``host_after_ns``: how much of it lies before the device's first task and after the end of its last, as the host's
    part of steps does. So the window, before_ns and after_ns are as long as the device's span and these two.
    """

    steps: int
    start_ns: int
    partition: Partition
    before_ns: int
    after_ns: int
    host_before_ns: int = 0
    host_after_ns: int = 0
    efficiency: Efficiency | None = None


class RecordedVariable(Model, frozen=True, kw_only=True):
    """An environment variable of the run: its value, empty where it was not set, and who recorded that.

    ``profiler``: as the process had it when the profiler started; ``npuperf``: as the program was started with it.
    """

    name: str
    value: str
    recorded_by: Literal["profiler", "npuperf"]


class Device(Model, frozen=True, kw_only=True):
    """One device of one rank. ``partition`` is of its whole span; ``judged`` is null where all of that is judged.

    ``witnesses``: totals that other files of the recording give. Where one does not hold, rows are missing.

    ``efficiency``: of its whole span, null where neither counters nor a known chip tell the peak.

    ``recording_overhead``: how many times longer a recorded step took than others of the run, null where that was not
    measured.

    ``stage``: of a pipeline, from 0, and ``bubble_ns``: the time in receives, both as the exporter's sums of a device
    without kernels tell them, else null. ``run``: what tells it from a device of the same rank and number that another
    folder has, null where none does. ``step_columns``: its steps, in a document that is cut; else null.
    """

    rank: int | None
    device: int
    source: str
    level: str | None
    soc: str | None
    cores_cube: int | None
    cores_vector: int | None
    origin_ns: int
    partition: Partition
    verdict: Verdict
    clock: Clock
    steps: list[Step]
    streams: list[Stream]
    cores: CoreUse
    vendor: list[VendorCheck]
    phases: list[Phase]
    witnesses: list[WitnessCheck] = []
    blame: list[Blame] = []
    dependencies: list[Dependency] = []
    typical_step: TypicalStep | None = None
    syncs: list[SyncSite] = []
    replay: ReplayCheck | None = None
    communication: CommunicationBounds | None = None
    collective_rates: list[CollectiveRate] = []
    core_splits: list[CoreSplit] = []
    super_kernels: list[SuperKernelScope] = []
    super_kernel_checks: list[SuperKernelCheck] = []
    judged: JudgedSteps | None = None
    recording_overhead: float | None = None
    stage: int | None = None
    bubble_ns: int | None = None
    run: str | None = None
    environment: list[RecordedVariable] = []
    memory: Memory | None = None
    efficiency: Efficiency | None = None
    core_clock: CoreClock | None = None
    step_columns: StepColumns | None = None

    @property
    def window(self) -> Partition:
        """The split of what is judged: of the whole steps, or of the whole span where no step is recorded."""
        return self.judged.partition if self.judged else self.partition

    @property
    def window_efficiency(self) -> Efficiency | None:
        """The efficiency of what is judged."""
        return self.judged.efficiency if self.judged else self.efficiency

    @property
    def whole_steps(self) -> list[Step]:
        """The steps that are judged: the whole ones, or all where none is."""
        return [s for s in self.steps if s.whole] or self.steps

    @property
    def step_count(self) -> int:
        """The number of steps that are judged, 0 if none is recorded."""
        return self.judged.steps if self.judged else len(self.steps)


def highest_peak(devices: Iterable[Device]) -> Device | None:
    """Return the device whose memory has the highest peak, of equal ones the first; None where none is recorded."""
    recorded = [(device, device.memory) for device in devices if device.memory is not None]
    return max(recorded, key=lambda one: one[1].peak_bytes or 0, default=(None, None))[0]


def least_efficient(devices: Iterable[Device]) -> Device | None:
    """Return the device whose cube cores do least of what they could, of equal ones the first; None: none is known.

    By useful work; where none has shapes that tell it, by how busy they are.
    """
    known = [(device, found) for device in devices if (found := device.window_efficiency) is not None]
    return min(known, key=lambda one: (one[1].hfu[0], one[1].cube_busy_share or 0.0), default=(None, None))[0]


class Range(Model, frozen=True, kw_only=True):
    """Smallest and largest value."""

    min: int
    max: int


class Operator(Model, frozen=True, kw_only=True):
    """All kernels of one type on one kind of core. ``share``: of the summed time of all operators.

    ``useful_flop``: of products, least and most, by the shapes of kernels that tell it, ``cube_busy_flop``: by the
    counters of those that have them, both in FP16 units; null where none does. ``bound_by``: the nearest roof for most
    of the time, or scalar work, ``roof_share``: the part of the time that nearest roofs take, ``recoverable_ns``: what
    could be won, least and most, both of kernels with a roof, ``roofed_ns``: the time of these; ``flop_per_s``: of cube
    cores in FP16 units, or operations of vector cores, by kernels whose shapes tell them, ``intensity``: the same per
    byte that must be moved; null where nothing tells.
    """

    type: str
    core: str | None
    count: int
    total_ns: int
    min_ns: int
    max_ns: int
    share: float
    block_dim: Range | None
    mix_block_dim: Range | None
    occupancy_cube: float | None
    occupancy_vector: float | None
    first_ns: int
    last_ns: int
    torch_op: str | None
    where: str | None
    pmu: Pmu | None
    useful_flop: tuple[float, float] | None = None
    cube_busy_flop: float | None = None
    roof_share: float | None = None
    recoverable_ns: tuple[int, int] | None = None
    bound_by: Limit | None = None
    roofed_ns: int = 0
    flop_per_s: float | None = None
    intensity: float | None = None


class Kernel(Model, frozen=True, kw_only=True):
    """One kernel: the longest ones are listed; ``run``: as of a device."""

    rank: int | None
    device: int
    name: str | None
    type: str | None
    core: str | None
    stream: int | None
    step: int | None
    start_ns: int
    dur_ns: int
    block_dim: int | None
    mix_block_dim: int | None
    torch_op: str | None
    where: str | None
    run: str | None = None


class Precondition(Model, frozen=True, kw_only=True):
    """Something that an answer or a piece of advice presupposes; ``holds`` is null where the profile does not tell."""

    what: Message
    holds: bool | None


class Excluded(Model, frozen=True, kw_only=True):
    """A piece of advice that is not given, and what of its presuppositions does not hold."""

    advice: Message
    because: Message


class AlsoFound(Model, frozen=True, kw_only=True):
    """Ranks of which a finding holds, too, in a document that is cut.

    ``title`` and ``needs``: theirs, null where they are the finding's own, and where nothing was found.
    """

    ranks: list[int]
    title: Message | None = None
    needs: Message | None = None


class Finding(Model, frozen=True, kw_only=True):
    """The answer of one rule.

    ``gain_ns_per_step`` is an interval computed from the data, or null; ``gain_per`` says whether the window
    had steps to spread it over. ``gain_pct`` is of a step, or of the whole window. ``relieves``: the limit that it is
    about, so that a verdict can name a larger lever of another kind. ``preconditions``: what the answer and its advice
    presuppose; ``alternatives``: what else applies, after ``next``; ``excluded``: advice that the run
    rules out. ``gain_withheld``: why a computed gain is not told. ``gain_bytes``: of memory, least and most. ``run``:
    as of a device. ``also``: other ranks of which the rule says the same, each with a finding of its own where the
    document is whole.
    """

    rule: str
    status: Status
    severity: Severity
    title: Message
    evidence: dict[str, Any]
    gain_ns_per_step: tuple[int, int] | None
    gain_pct: tuple[float, float] | None
    gain_per: Literal["step", "window"]
    refute: Message | None
    next: Message | None
    code: str | None
    needs: Message | None
    source: Message | None
    rank: int | None
    device: int
    relieves: Bound | None = None
    preconditions: list[Precondition] = []
    alternatives: list[Message] = []
    excluded: list[Excluded] = []
    gain_withheld: Message | None = None
    gain_bytes: tuple[int, int] | None = None
    run: str | None = None
    also: list[AlsoFound] = []


def texts_in(evidence: object) -> Iterator[str]:
    """Yield the texts of a finding's evidence in the order in which they stand there."""
    if isinstance(evidence, str):
        yield evidence
    elif isinstance(evidence, Mapping):
        for item in evidence.values():
            yield from texts_in(item)
    elif isinstance(evidence, list | tuple):
        for item in evidence:
            yield from texts_in(item)


class WhatIf(Model, frozen=True, kw_only=True):
    """A modelled change of one device's window, or of the whole job (rank and device null).

    ``span_ns``: the window's length with it; ``gain_*``: saved, per step (or window) as an interval and in
    percent of now. Null, with a reason, where the model abstains. ``asked``: by the user, not by default.
    Communication of a device by itself may be waiting for other ranks, which no faster network shortens: ``span_ns``
    and ``gain_pct`` take all of it for transfer, the lower ends only what is transfer for certain. ``run``: as of a
    device.

    Of a change of memory the fields of time are null, and ``peak_of`` says which peak it is about: of PyTorch's
    allocated memory or of all that the process has. ``recorded_bytes``: as recorded; ``peak_bytes``: with the change,
    as the model has it; ``gain_bytes``: by how much it is lower, least and most; ``assumes``: what that presupposes.
    """

    expr: str
    span_ns: int | None
    gain_pct: float | None
    gain_ns_per_step: tuple[int, int] | None
    gain_pct_interval: tuple[float, float] | None
    gain_per: Literal["step", "window"]
    title: Message | None
    asked: bool
    reason: Message | None
    rank: int | None
    device: int | None
    run: str | None = None
    peak_of: Literal["allocated", "process"] | None = None
    recorded_bytes: int | None = None
    peak_bytes: int | None = None
    gain_bytes: tuple[int, int] | None = None
    assumes: list[Message] = []


class HostSum(Model, frozen=True, kw_only=True):
    """Calls, ranges or stages of dispatching of one name on the host, as the exporter itself summed or listed them.

    Of everything that was recorded. ``level``: where they belong, in the exporter's words (acl, model, node, runtime,
    communication), or ge (dispatching by GE), tx (marked ranges), torch. ``files``: how many files they are from.
    """

    level: str
    name: str
    count: int
    total_ns: int
    max_ns: int | None
    files: int

    def and_also(self, other: HostSum) -> HostSum:
        """Return the sum of this and another of the same name."""
        most = [ns for ns in (self.max_ns, other.max_ns) if ns is not None]
        return HostSum(
            level=self.level,
            name=self.name,
            count=self.count + other.count,
            total_ns=self.total_ns + other.total_ns,
            max_ns=max(most, default=None),
            files=self.files + other.files,
        )


class Suggestion(Model, frozen=True, kw_only=True):
    """What the exporter's own rules suggest (prof_rule_N.json), in its own words; npuperf has not checked it.

    ``kind``: its group of rules, ``rule``: a part of that; ``files``: how many files suggest it.
    """

    kind: str
    rule: str
    suggestion: str
    operators: tuple[str, ...]
    files: int


#: Tables that the exporter wrote itself, as it did: fields of a result, and of what is known of a recording beside it.
EXPORTED = ("host_sums", "suggestions")


class ListCut(Model, frozen=True, kw_only=True):
    """A list of which the document shows a part, or of several lists of one place all together."""

    list: str
    shown: int
    total: int


class Result(Document, frozen=True, kw_only=True):
    """The document of ``npuperf analyze``.

    ``operators`` and ``kernels`` are of all that was recorded, or of the step that was asked for; ``judged_operators``
    and ``judged_kernels`` of what is judged alone, None where that is the same.
    ``runs``: where the ranks that were read cannot be of one job, which of them can; ``cluster`` is None then.
    ``hosts``: processes without a device, as of a run on the CPU alone.
    ``digest``: what is measured per step, by which others are compared with this; ``workload``: what was run;
    ``model``: what a step of the model asks of a device, where the user gave its size.
    Those of EXPORTED are the exporter's, where it wrote any; no verdict depends on them.
    ``cut``: the lists that are not whole, of a job of many ranks unless all of it is asked for (``--full``).
    """

    tool: Tool
    input: Input
    verdict: Verdict
    devices: list[Device]
    operators: list[Operator]
    kernels: list[Kernel]
    findings: list[Finding]
    what_if: list[WhatIf]
    judged_operators: list[Operator] | None = None
    judged_kernels: list[Kernel] | None = None
    cluster: Cluster | None = None
    runs: list[RunOfRanks] = []
    hosts: list[HostRun] = []
    comparison: Comparison | None = None
    digest: Digest | None = None
    workload: Workload = Workload()
    model: ModelWork | None = None
    host_sums: list[HostSum] = []
    suggestions: list[Suggestion] = []
    cut: list[ListCut] = []
    thresholds: dict[str, Any]

    @property
    def place(self) -> str:
        """The path that was analyzed, as a shell takes it."""
        return for_shell(self.input.path)

    @property
    def window_operators(self) -> list[Operator]:
        """The operators of what is judged, the most expensive first."""
        return self.operators if self.judged_operators is None else self.judged_operators

    @property
    def window_kernels(self) -> list[Kernel]:
        """The longest kernels of what is judged."""
        return self.kernels if self.judged_kernels is None else self.judged_kernels

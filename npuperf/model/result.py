"""The result of an analysis: the one document that text, JSON, CSV and Markdown all show.

Its JSON form is a contract (``schema_version``): fields may be added, never renamed. Times are integer
nanoseconds; ``*_ns`` positions in time are relative to the device's ``origin_ns``; missing is null.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

SCHEMA_VERSION: Final = "1.0"

Bound = Literal["host", "compute", "communication", "unknown"]
Basis = Literal["measured", "inferred"]
Status = Literal["problem", "ok", "cannot_tell"]
Severity = Literal["high", "medium", "low"]
InputKind = Literal["ascend_pt", "prof", "csv", "json", "db", "kineto", "cluster"]


class Model(msgspec.Struct, kw_only=True):
    """Base of every part of the document."""


class Tool(Model):
    """Who wrote the document."""

    name: str
    version: str


class Lost(Model):
    """Rows (or trace events) of a file that could not be used, and why."""

    file: str
    rows: int
    reason: str


class Input(Model):
    """What was read, what of it was lost, and which files were not there and what they would tell."""

    path: str
    kind: InputKind
    files: list[str]
    lost: list[Lost]
    warnings: list[str]
    missing: list[str]


class Elasticity(Model):
    """Relative change of the window's length per relative change of one resource's time."""

    host: float
    compute: float
    communication: float


class Verdict(Model):
    """What limits a stretch of time, and how that is known. ``evidence`` holds the numbers judged."""

    bound: Bound
    basis: Basis
    reason: str
    evidence: dict[str, float | None] = {}
    elasticity: Elasticity | None = None


class Partition(Model):
    """A window of device time split into parts that add up exactly.

    span = compute + comm_exposed + other_exposed + idle;
    idle = host_wait + launch_latency + dependency_wait + unattributed.
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


class Step(Model):
    """One step: from its first device task to the next step's first (the last: to its last task's end)."""

    step: int
    start_ns: int
    partition: Partition
    verdict: Verdict


class Stream(Model):
    """One stream on its own: the device's window split by this stream's tasks alone."""

    stream: int | None
    tasks: int
    partition: Partition


class Blame(Model):
    """What the launching thread did while the device waited."""

    cause: str
    name: str
    ns: int
    count: int
    where: str | None


class TypeTime(Model):
    """An operator type with its time in a phase."""

    type: str
    count: int
    total_ns: int


class Phase(Model):
    """A stretch of time with one verdict.

    ``label`` says which part of the program launched it, ``where`` the line of code most of it comes from.
    The lines of ``blame`` add up to the partition's host_wait_ns.
    """

    start_ns: int
    end_ns: int
    first_step: int | None
    last_step: int | None
    label: str
    bound: Bound
    partition: Partition
    blame: list[Blame]
    verdict: Verdict
    where: str | None
    kernels: list[TypeTime]


class Spread(Model):
    """Least, median and greatest of something measured in every step, ns."""

    min_ns: int
    median_ns: int
    max_ns: int


class TypicalPhase(Model):
    """A phase that every usual step has; start and end count from the step's start."""

    bound: Bound
    label: str
    start: Spread
    end: Spread
    length: Spread


class OddStep(Model):
    """A step unlike the others, and in what."""

    step: int
    span_ns: int
    why: str


class TypicalStep(Model):
    """What the steps have in common: the usual phases over ``steps`` steps, and the steps that differ."""

    steps: int
    length: Spread
    phases: list[TypicalPhase]
    odd: list[OddStep]


class SyncSite(Model):
    """Calls that make the host wait for the device: how often, how long, and how long the device idled after.

    ``gain_ns_per_step``: what the replay saves without these waits, an interval; null where it abstains.
    """

    name: str
    torch_op: str | None
    where: str | None
    count: int
    host_ns: int
    idle_ns: int
    gain_ns_per_step: tuple[int, int] | None


class ReplayCheck(Model):
    """How well the model reproduces the measured window, and whether figures may be modelled with it.

    ``error``: relative difference of the window's length; ``unexplained_ns``: idle time kept as measured.
    """

    usable: bool
    reason: str | None
    error: float
    unexplained_ns: int
    launched: float


class CoreSide(Model):
    """Use of the cube or of the vector cores. Occupancies are fractions of all cores of that side.

    ``occupancy_busy`` is weighted by the duration of the kernels that use this side,
    ``occupancy_span`` spreads the same core time over the whole window.
    """

    cores: int
    kernels: int
    occupancy_busy: float | None
    occupancy_span: float | None
    idle_core_ns: int


class CoreType(Model):
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


class IdleKernel(Model):
    """A kind of kernel that leaves core time unused on the side it mainly runs on."""

    name: str
    type: str | None
    core: str
    count: int
    block_dim: int
    cores: int
    idle_core_ns: int


class CoreUse(Model):
    """How many cores kernels use. Null sides: core counts or block counts are unknown (see ``reason``)."""

    source: str | None
    cube: CoreSide | None
    vector: CoreSide | None
    by_type: list[CoreType]
    most_idle: list[IdleKernel]
    reason: str | None


class Clock(Model):
    """What the profile says about launches: calibrated latency and the host-device clock disagreement."""

    launch_latency_ns: int
    latency_samples: int
    skew_ns: int
    launches: int
    tasks: int


class VendorCheck(Model):
    """Our split of a step beside the exporter's (step_trace_time.csv); differences are ours minus theirs."""

    step: int | None
    agrees: bool
    compute_diff_ns: int
    comm_exposed_diff_ns: int
    free_diff_ns: int
    span_diff_ns: int
    why: str


class Device(Model):
    """One device of one rank."""

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
    blame: list[Blame] = []
    typical_step: TypicalStep | None = None
    syncs: list[SyncSite] = []
    replay: ReplayCheck | None = None


class Range(Model):
    """Smallest and largest value."""

    min: int
    max: int


class Pmu(Model):
    """Hardware counters of an operator: duration-weighted means, and the bound they point to."""

    bound: Literal["compute", "memory", "scalar", "conflict", "unknown"]
    rule: str
    means: dict[str, float]


class Operator(Model):
    """All kernels of one type on one kind of core. ``share``: of the summed time of all operators."""

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


class Kernel(Model):
    """One kernel: the longest ones are listed."""

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


class Finding(Model):
    """The answer of one rule.

    ``gain_ns_per_step`` is an interval computed from the data, or null; ``gain_per`` says whether the window
    had steps to spread it over. ``gain_pct`` is of a step, or of the whole window.
    """

    rule: str
    status: Status
    severity: Severity
    title: str
    evidence: dict[str, Any]
    gain_ns_per_step: tuple[int, int] | None
    gain_pct: tuple[float, float] | None
    gain_per: Literal["step", "window"]
    refute: str | None
    next: str
    code: str | None
    needs: str | None
    source: str | None
    rank: int | None
    device: int


class WhatIf(Model):
    """A modelled change of one device's window.

    ``span_ns``: the window's length with it; ``gain_*``: saved, per step (or window) as an interval and in
    percent of now. Null, with a reason, where the model abstains. ``asked``: by the user, not by default.
    """

    expr: str
    span_ns: int | None
    gain_pct: float | None
    gain_ns_per_step: tuple[int, int] | None
    gain_pct_interval: tuple[float, float] | None
    gain_per: Literal["step", "window"]
    title: str
    asked: bool
    reason: str | None
    rank: int | None
    device: int


class Gate(Model):
    """A condition that a pipeline asked for."""

    expr: str
    status: Literal["pass", "fail", "cannot_tell"]
    value: float | None
    limit: float | None


class Result(Model):
    """The whole document."""

    schema_version: str
    tool: Tool
    input: Input
    verdict: Verdict
    devices: list[Device]
    operators: list[Operator]
    kernels: list[Kernel]
    findings: list[Finding]
    what_if: list[WhatIf]
    gates: list[Gate]
    comparison: Any
    thresholds: dict[str, Any]

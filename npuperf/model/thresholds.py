"""Numbers that judge: where a share or a time becomes worth saying. Values live in advise/thresholds.yaml."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict


class Thresholds(Struct, frozen=True):
    """Each field is documented, with its source, beside its value in ``advise/thresholds.yaml``."""

    idle_share: float
    lead_ns: int
    gap_ns: int
    gap_kernels_share: float
    gap_kernels_least: int
    latency_quantile: float
    latency_limit_ns: int
    skew_limit_ns: int
    clock_rounding_ns: int
    whole_step_share: float
    round_trip_ns: int
    pmu_share: float
    pmu_lead_share: float
    pmu_busy_share: float
    conflict_share: float
    vendor_tolerance: float
    witness_share: float
    small_kernel_ns: int
    small_kernel_share: float
    layout_share: float
    idle_core_share: float
    clock_ratio: float
    ai_cpu_share: float
    dynamic_share: float
    assumed_gap_ns: int
    replay_error: float
    replay_launched: float
    replay_unexplained: float
    launch_jitter_ns: int
    wait_least_ns: int
    wait_after_ns: int
    phase_share: float
    vocabulary_least: int
    odd_step_share: float
    cause_share: float
    tiling_cache_entries: int
    host_operator_elements: int
    uneven_share: float
    pause_ns: int
    staging_factor: int
    root_share: float
    comm_exposed_share: float
    severity_high: float
    severity_medium: float
    first_call_factor: float
    transfer_ratio: float
    held_up_factor: float
    peers_least: int
    lost_share: float
    small_packet_bytes: int
    packet_alignment_bytes: int
    beside_kernels_least: int
    beside_ratio: float
    enough_data: float
    recording_cost_share: float
    compile_call_ns: int
    fragments_share: float
    memory_share: float
    leak_steps: int
    leak_share: float
    short_peak_share: float
    short_peak_drop: float
    late_share: float
    headroom_share: float
    compare_ratio: float
    compare_floor_ns: int

    def as_dict(self) -> dict[str, float]:
        """Return all of them, by name."""
        return asdict(self)

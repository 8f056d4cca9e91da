"""Advice: one rule per module, each a question to the data with three answers: problem, no problem, cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from npuperf.advise import (
    ai_cpu,
    blocking_copies,
    casts,
    compilation,
    copies,
    core_limit,
    data_loading,
    dynamic_shape,
    early_steps,
    env_settings,
    exposed_communication,
    fused_operators,
    garbage_collection,
    graph_capture,
    host_operators,
    host_pauses,
    idle_cores,
    launch_blocking,
    layout,
    odd_packets,
    online_compile,
    recording_cost,
    relayed_transfers,
    retried_transfers,
    runtime_threads,
    slow_link,
    slow_rank,
    slowed_compute,
    small_kernels,
    small_packets,
    start_up,
    super_kernel,
    sync_points,
    task_queue,
    tiling_cache,
    uneven_experts,
    uneven_host,
    value_dependent,
)
from npuperf.advise.rule import RankRule, Rule
from npuperf.advise.shipped import load_shipped
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import Device, Finding
from npuperf.documents.cluster import Cluster
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

#: Every rule, on one device or across ranks, in the order of asking. A new one is a file of its own and a line here.
RULES: Final[list[Rule | RankRule]] = [
    recording_cost.RULE,
    launch_blocking.RULE,
    env_settings.RULE,
    sync_points.RULE,
    value_dependent.RULE,
    blocking_copies.RULE,
    data_loading.RULE,
    compilation.RULE,
    online_compile.RULE,
    garbage_collection.RULE,
    host_pauses.RULE,
    graph_capture.RULE,
    small_kernels.RULE,
    fused_operators.RULE,
    dynamic_shape.RULE,
    runtime_threads.RULE,
    tiling_cache.RULE,
    host_operators.RULE,
    task_queue.RULE,
    uneven_host.RULE,
    ai_cpu.RULE,
    layout.RULE,
    casts.RULE,
    copies.RULE,
    idle_cores.RULE,
    core_limit.RULE,
    super_kernel.RULE,
    early_steps.RULE,
    start_up.RULE,
    slow_rank.RULE,
    slow_link.RULE,
    uneven_experts.RULE,
    exposed_communication.RULE,
    slowed_compute.RULE,
    retried_transfers.RULE,
    relayed_transfers.RULE,
    small_packets.RULE,
    odd_packets.RULE,
]

_ORDER: Final = {"problem": 0, "cannot_tell": 1, "ok": 2}
_SEVERITY: Final = {"high": 0, "medium": 1, "low": 2}


def register(rule: Rule | RankRule) -> None:
    """Add a rule that lies elsewhere; it is asked last."""
    if rule.name in rule_names():
        raise ValueError(f"there is a rule {rule.name} already")
    RULES.append(rule)


def rule_names() -> list[str]:
    """Return the names of all rules, in the order of asking."""
    return [rule.name for rule in RULES]


def advise(view: DeviceView, names: Sequence[str] = (), summary: RankSummary | None = None) -> list[Finding]:
    """Ask every rule, or those named, about one device; problems first, the gravest on top.

    ``summary``: the device's communication, if it has any.
    """
    rules = [r for r in RULES if (not names or r.name in names) and (r.any_device or not view.profile.kineto)]
    alone = [r.ask(view, summary) for r in rules if isinstance(r, RankRule) and r.alone]
    return sort_findings([*(r.ask(view) for r in rules if isinstance(r, Rule)), *alone])


def advise_job(study: JobStudy, cluster: Cluster, thresholds: Thresholds, names: Sequence[str] = ()) -> list[Finding]:
    """Ask every rule that looks across ranks, or those named; see :class:`npuperf.advise.rule.RankRule`."""
    kineto = any(r.kineto for r in study.ranks)
    rules = [r for r in RULES if isinstance(r, RankRule) and (not names or r.name in names)]
    rules = [r for r in rules if r.any_device or not kineto]
    return sort_findings([f for rule in rules for f in rule.judge(study, cluster, thresholds)])


def without_alone(findings: Sequence[Finding], report: Device, study: JobStudy | None) -> list[Finding]:
    """Drop what a rank of a job answered by itself to questions that the job has answered."""
    if study is None or (report.source, report.device) not in study.places:
        return [*findings]
    across = {r.name for r in RULES if isinstance(r, RankRule)}
    return [f for f in findings if f.rule not in across]


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Order findings: problems before open questions, the gravest first."""

    def rank(f: Finding) -> tuple[int, int, float]:
        gain = f.gain_ns_per_step[1] if f.gain_ns_per_step else 0
        return _ORDER[f.status], _SEVERITY[f.severity], -float(gain)

    return sorted(findings, key=rank)


def load_thresholds(changed: Mapping[str, float] | None = None) -> Thresholds:
    """Read thresholds.yaml; ``changed`` values override it."""
    values = {name: entry["value"] for name, entry in load_shipped("thresholds.yaml").items()}
    return Thresholds(**{**values, **(changed or {})})

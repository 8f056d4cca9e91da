"""Advice: rules by topic, each a question to the data with three answers: problem, no problem, cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from npuperf.advise import core_use, fused_operators, host_waits, launches, moves, pauses, ranks, settings, transfers
from npuperf.advise.rule import JobView, Rule, load_shipped
from npuperf.device.rank_summary import RankSummary
from npuperf.device.view import DeviceView
from npuperf.model.job_result import Cluster
from npuperf.model.result import Device, Finding
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.job.job_study import JobStudy

#: Every rule, on one device or across ranks, in the order of asking. A new one is added to its topic, and a line here.
RULES: Final[list[Rule]] = [
    settings.RECORDING_COST,
    host_waits.LAUNCH_BLOCKING,
    settings.ENV_SETTINGS,
    host_waits.SYNC_POINTS,
    host_waits.VALUE_DEPENDENT,
    host_waits.BLOCKING_COPIES,
    pauses.DATA_LOADING,
    pauses.COMPILATION,
    pauses.ONLINE_COMPILE,
    pauses.GARBAGE_COLLECTION,
    pauses.HOST_PAUSES,
    launches.GRAPH_CAPTURE,
    launches.SMALL_KERNELS,
    fused_operators.FUSED_OPERATORS,
    launches.DYNAMIC_SHAPE,
    launches.RUNTIME_THREADS,
    launches.TILING_CACHE,
    launches.HOST_OPERATORS,
    launches.TASK_QUEUE,
    launches.UNEVEN_HOST,
    core_use.AI_CPU,
    moves.LAYOUT,
    moves.CASTS,
    moves.COPIES,
    core_use.IDLE_CORES,
    core_use.CORE_LIMIT,
    core_use.SUPER_KERNEL,
    pauses.EARLY_STEPS,
    pauses.START_UP,
    ranks.SLOW_RANK,
    ranks.SLOW_LINK,
    ranks.UNEVEN_EXPERTS,
    ranks.EXPOSED_COMMUNICATION,
    transfers.SLOWED_COMPUTE,
    transfers.RETRIED_TRANSFERS,
    transfers.RELAYED_TRANSFERS,
    transfers.SMALL_PACKETS,
    transfers.ODD_PACKETS,
]

_ORDER: Final = {"problem": 0, "cannot_tell": 1, "ok": 2}
_SEVERITY: Final = {"high": 0, "medium": 1, "low": 2}


def register(rule: Rule) -> None:
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
    return sort_findings([r.ask(view, summary) for r in rules if r.judge or r.judge_rank])


def advise_job(study: JobStudy, cluster: Cluster, thresholds: Thresholds, names: Sequence[str] = ()) -> list[Finding]:
    """Ask every rule that looks across ranks, or those named; see :class:`npuperf.advise.rule.Rule`."""
    job = JobView(study, cluster, thresholds)
    kineto = any(r.kineto for r in study.ranks)
    rules = [r for r in RULES if (not names or r.name in names) and (r.any_device or not kineto)]
    return sort_findings([f for rule in rules if rule.judge_job for f in rule.judge_job(rule, job)])


def without_alone(findings: Sequence[Finding], report: Device, study: JobStudy | None) -> list[Finding]:
    """Drop what a rank of a job answered by itself to questions that the job has answered."""
    if study is None or (report.source, report.device) not in study.places:
        return [*findings]
    answered = {r.name for r in RULES if r.judge_job}
    return [f for f in findings if f.rule not in answered]


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

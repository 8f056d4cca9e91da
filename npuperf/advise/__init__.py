"""Advice: rules by topic, each a question to the data with three answers: problem, no problem, cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from npuperf.advise import (
    clock,
    core_use,
    efficiency_rules,
    fused_operators,
    host_waits,
    launches,
    memory_advice,
    memory_rules,
    moves,
    pauses,
    ranks,
    settings,
    transfers,
)
from npuperf.advise.needs import bare
from npuperf.advise.rule import JobView, MemoryView, Rule, load_shipped
from npuperf.base.messages import Message, say
from npuperf.device.rank_summary import RankSummary
from npuperf.device.view import DeviceView
from npuperf.model.job_result import Cluster
from npuperf.model.result import Device, Finding
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.job.job_study import JobStudy
    from npuperf.model.gist import Explanation
    from npuperf.model.result import Result

#: Every rule, on one device or across ranks, in the order of asking. A new one is added to its topic, and a line here.
RULES: Final[list[Rule]] = [
    settings.recording_cost,
    host_waits.launch_blocking,
    settings.env_settings,
    host_waits.sync_points,
    host_waits.value_dependent,
    host_waits.blocking_copies,
    pauses.data_loading,
    pauses.captures,
    pauses.compilation,
    pauses.online_compile,
    pauses.garbage_collection,
    pauses.host_pauses,
    fused_operators.fused_operators,  # before those that advise its change among others, as the queue
    launches.task_queue,
    launches.graph_capture,
    launches.small_kernels,
    launches.dynamic_shape,
    launches.runtime_threads,
    launches.tiling_cache,
    launches.host_operators,
    launches.uneven_host,
    core_use.ai_cpu,
    moves.layout,
    moves.casts,
    moves.copies,
    efficiency_rules.scalar_kernels,
    efficiency_rules.fp32_products,
    efficiency_rules.padded_products,
    efficiency_rules.narrow_products,
    efficiency_rules.unaligned_products,
    efficiency_rules.slow_copies,
    moves.moved_for_products,
    core_use.idle_cores,
    core_use.core_limit,
    core_use.super_kernel,
    clock.low_clock,
    pauses.early_steps,
    pauses.start_up,
    ranks.slow_rank,
    clock.uneven_clocks,
    ranks.slow_link,
    ranks.uneven_experts,
    ranks.exposed_communication,
    transfers.waiting_kernels,
    transfers.slowed_compute,
    transfers.retried_transfers,
    transfers.relayed_transfers,
    transfers.small_packets,
    transfers.odd_packets,
    transfers.slow_collectives,
    memory_advice.out_of_memory,
    memory_advice.segment_settings,
    memory_rules.memory_headroom,
    memory_rules.memory_leak,
    memory_rules.short_peak,
    memory_rules.late_release,
    memory_rules.idle_blocks,
    memory_rules.gradient_copies,
    memory_rules.memory_fragments,
    memory_rules.waiting_blocks,
    memory_rules.hccl_buffers,
    memory_rules.device_allocations,
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


def explain(name: str, result: Result) -> Explanation:
    """Return all about a rule, and its answers in a result. ``name``: one of :func:`rule_names`."""
    from npuperf.model.gist import Explanation, RuleLimit  # seldom asked for
    from npuperf.model.shortened import unfolded

    rule = next(rule for rule in RULES if rule.name == name)
    shipped = load_shipped("thresholds.yaml")
    asked = {"device": rule.on_device or rule.on_rank, "ranks": rule.on_job, "memory": rule.on_memory}
    return Explanation(
        tool=result.tool,
        path=result.input.path,
        rule=name,
        title=rule.title,
        asks=rule.asks,
        source=rule.source,
        of=[of for of, look in asked.items() if look],  # type: ignore[misc]  # names of the keys above
        relieves=rule.relieves,
        gpus=rule.any_device,
        needs=[need.what for need in rule.needs],
        requires=[requirement.what for requirement in rule.requires],
        limits=[
            RuleLimit(
                name=limit,
                value=result.thresholds.get(limit, shipped[limit]["value"]),
                shipped=shipped[limit]["value"],
                source=shipped[limit]["source"],
            )
            for limit in rule.limits
        ],
        findings=[finding for finding in unfolded(result).findings if finding.rule == name],
    )


def advise(view: DeviceView, names: Sequence[str] = (), summary: RankSummary | None = None) -> list[Finding]:
    """Ask every rule, or those named, about one device; problems first, the gravest on top.

    ``summary``: the device's communication, if it has any.
    """
    rules = [r for r in RULES if (not names or r.name in names) and (r.any_device or not view.profile.kineto)]
    return sort_findings([r.ask(view, summary) for r in rules if r.on_device or r.on_rank])


def advise_memory(view: MemoryView, names: Sequence[str] = ()) -> list[Finding]:
    """Ask every rule about memory, or those named, where a device's memory was recorded."""
    rules = [r for r in RULES if not names or r.name in names]
    return sort_findings([rule.ask_memory(view) for rule in rules if rule.on_memory])


def advise_job(study: JobStudy, cluster: Cluster, thresholds: Thresholds, names: Sequence[str] = ()) -> list[Finding]:
    """Ask every rule that looks across ranks, or those named; see :class:`npuperf.advise.rule.Rule`."""
    job = JobView(study, cluster, thresholds)
    kineto = any(r.kineto for r in study.ranks)
    rules = [r for r in RULES if (not names or r.name in names) and (r.any_device or not kineto)]
    return sort_findings([f for rule in rules for f in rule.ask_job(job)])


def without_alone(findings: Sequence[Finding], report: Device, study: JobStudy | None) -> list[Finding]:
    """Drop what a rank of a job answered by itself to questions that the job has answered."""
    if study is None or (report.source, report.device, report.rank) not in study.places:
        return [*findings]
    answered = {r.name for r in RULES if r.on_job}
    return [f for f in findings if f.rule not in answered]


def within_job(findings: Sequence[Finding], device: Device, thresholds: Thresholds) -> list[Finding]:
    """Let what a rank asked by itself be answered with what others of its job tell: how its communication splits."""
    if not device.window.comm_transfer_ns + device.window.comm_wait_ns:
        return [*findings]
    name = ranks.exposed_communication.name
    return [ranks.split_by_job(f, device, thresholds) if (f.rule, f.status) == (name, "problem") else f
            for f in findings]  # fmt: skip


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Order findings: problems before open questions, the gravest first.

    Of equally grave ones what ended the program comes first, then bytes, which are recorded where they are asked for:
    no number of them is as much as one of nanoseconds.
    """

    def rank(f: Finding) -> tuple[int, int, int, int]:
        kind = 0 if f.rule == memory_advice.out_of_memory.name else 1 if f.gain_bytes else 2
        gain = f.gain_bytes or f.gain_ns_per_step or (0, 0)
        return _ORDER[f.status], _SEVERITY[f.severity], kind, -gain[1]

    return sorted(findings, key=rank)


def advised_once(findings: Sequence[Finding]) -> list[Finding]:
    """Let a change be advised by the first finding on a device that it helps, and the later ones lead to that.

    So nobody adds up what is gained once. ``findings``: in the order in which they are read.
    """
    titles = {rule.name: rule.title for rule in RULES}
    first: dict[tuple[str | None, int | None, int, Message], Finding] = {}
    told = []
    for f in findings:
        if f.status == "problem" and f.next is not None:
            before = first.setdefault((f.run, f.rank, f.device, bare(f.next)), f)
            if before.rule != f.rule:
                f = replace(f, next=say("as advised for “{finding}”: one change for both", finding=titles[before.rule]))
        told.append(f)
    return told


def load_thresholds(changed: Mapping[str, float] | None = None) -> Thresholds:
    """Read thresholds.yaml; ``changed`` values override it."""
    values = {name: entry["value"] for name, entry in load_shipped("thresholds.yaml").items()}
    return Thresholds(**{**values, **(changed or {})})

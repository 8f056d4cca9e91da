"""The verdict over everything that was analyzed: what would shorten the job's step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from npuperf.analyze.examine import Examined
from npuperf.analyze.side_by_side import Across
from npuperf.documents.analysis import Bound, Elasticity, Partition, Verdict
from npuperf.documents.cluster import Cluster, Root
from npuperf.messages import Message, Quantity, chain, ns, say, say_n, series, share
from npuperf.model.thresholds import Thresholds
from npuperf.timeline.partition import add
from npuperf.timeline.verdict import NO_PACE, judge

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy


def overall_verdict(
    examined: Sequence[Examined], across: Across, thresholds: Thresholds, *, different_runs: bool
) -> Verdict:
    """Give the verdict over all devices: of a job by what its step depends on, else over what they do together."""
    if not examined:
        reason = say("no device tasks: the data has host events only, as from a run on the CPU alone")
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if len(examined) == 1:
        return _with_waits(examined[0].report.verdict, examined[0].report.window)
    if different_runs:
        reason = say(
            "these are several runs (see warnings), so each device has its own verdict; analyze one "
            "run for a single verdict"
        )
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if across.study is not None and across.cluster is not None and across.study.elasticity is not None:
        return _of_job(across.study, across.cluster, across.study.elasticity)
    verdict = judge(
        add([d.window for d in across.devices]),
        sum((e.pace for e in examined), NO_PACE),
        thresholds,
        elasticity=_mean_elasticity(examined),
        excerpt=any(e.excerpt for e in examined),
        latency_known=all(d.clock.latency_reason is None for d in across.devices),
    )
    verdict = _with_waits(verdict, add([d.window for d in across.devices]))
    reason = say("{everyone}: {reason}", everyone=_everyone(examined), reason=verdict.reason)
    return structs.replace(verdict, reason=reason)


def _with_waits(verdict: Verdict, whole: Partition) -> Verdict:
    """Say of ranks that were not matched with others what their communication may be."""
    if verdict.bound != "communication" or whole.comm_transfer_ns or whole.comm_wait_ns:
        return verdict
    waits = say("this holds waiting for other ranks, which one rank alone cannot tell from transfer")
    return structs.replace(verdict, reason=chain(verdict.reason, waits))


#: Ranks that are named.
_RANKS: Final = 8
_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host"),
    "compute": say("compute"),
    "communication": say("communication"),
    "unknown": say("unknown"),
}
_TIME: Final[dict[Bound, Message]] = {
    "host": say("host time"),
    "compute": say("compute time"),
    "communication": say("transfer time"),
}


#: The same where ranks are missing: their own waiting for these is in it.
_UNTOLD: Final = say("communication (transfer, or waiting for ranks that were not loaded)")


def _is_untold(cluster: Cluster) -> bool:
    """Tell whether more of the communication cannot be told apart than is known to be transfer."""
    unknown = sum(r.comm.exposed_unknown_ns for r in cluster.ranks)
    return unknown > sum(r.comm.exposed_transfer_ns for r in cluster.ranks)


def _of_job(study: JobStudy, cluster: Cluster, e: Elasticity) -> Verdict:
    """Name the resource that the job's step depends on most, over all ranks, and the root that costs most."""
    values: dict[Bound, float] = {"host": e.host, "compute": e.compute, "communication": e.communication}
    bound = max(values, key=lambda b: values[b])
    evidence: dict[str, float | None] = {f"{name}_elasticity": v for name, v in values.items()}
    evidence["other_elasticity"] = study.other
    waiting = sum(r.comm.exposed_wait_ns for r in cluster.ranks)
    evidence["wait_share"] = waiting / max(cluster.time_of(cluster.ranks), 1)
    time = {**_TIME, "communication": _UNTOLD} if _is_untold(cluster) else _TIME
    lever = say("10 % less {time} on all ranks shortens the step by {effect} ({others})", time=time[bound],
                effect=_tenth(values[bound]),
                others=series(say("{name} {effect}", name=time[b], effect=_tenth(v))
                              for b, v in values.items() if b != bound))  # fmt: skip
    job = say_n("over {n} rank", "over all {n} ranks", len(cluster.ranks))
    if study.other > values[bound]:
        idle = say("most of the step depends on time that is neither compute nor transfer, and launches that would "
                   "tell are not recorded")  # fmt: skip
        reason = say("{job}: {why}", job=job, why=chain(_first_root(cluster), idle, lever))
        return Verdict(bound="unknown", basis="measured", reason=reason, evidence=evidence, elasticity=e)
    reason = say("{job}: {why}", job=job, why=chain(_first_root(cluster), lever))
    return Verdict(bound=bound, basis="measured", reason=reason, evidence=evidence, elasticity=e)


def _first_root(cluster: Cluster) -> Message | None:
    """Say what costs the job most, if somebody can mend it."""
    first = next((r for r in cluster.roots if r.kind in ("rank", "stage", "group", "link")), None)
    if first is None or first.gain_ns_per_step is None:
        return None
    return _paced(first, ns(*first.gain_ns_per_step))


def _paced(root: Root, gain: Quantity) -> Message:
    if root.kind == "rank" and len(root.ranks) > 1:
        if len(root.ranks) > _RANKS:
            return say("{n} ranks set the pace, the others wait: without their delay the step is {gain} shorter",
                       n=len(root.ranks), gain=gain)  # fmt: skip
        return say("ranks {ranks} set the pace, the others wait: without their delay the step is {gain} shorter",
                   ranks=series(root.ranks), gain=gain)  # fmt: skip
    if root.kind == "rank":
        return say("rank {rank} sets the pace, the others wait: without its delay the step is {gain} shorter",
                   rank=root.ranks[0], gain=gain)  # fmt: skip
    if root.kind == "stage":
        return say("stage {stage} is the longest: with equal stages the step is {gain} shorter",
                   stage=root.stage, gain=gain)  # fmt: skip
    if root.kind == "link":
        a, b = root.ranks
        return say("the link between ranks {a} and {b} is slower than its peers: at their pace the step is {gain} "
                   "shorter", a=a, b=b, gain=gain)  # fmt: skip
    return say("a group's transfers are slower than those of its peers: at their pace the step is {gain} shorter",
               gain=gain)  # fmt: skip


def _tenth(elasticity: float) -> Quantity:
    """Return the effect of a tenth less."""
    return share(max(elasticity, 0.0) / 10)


def _everyone(examined: Sequence[Examined]) -> Message:
    bounds = [e.report.verdict.bound for e in examined]
    counts = (say("{count} {bound}", count=bounds.count(b), bound=_BOUND[b]) for b in dict.fromkeys(bounds))
    return say_n("over {n} device ({counts})", "over all {n} devices ({counts})", len(examined), counts=series(counts))


def _mean_elasticity(examined: Sequence[Examined]) -> Elasticity | None:
    """Weigh the devices' elasticities by their spans; None if one of them has none."""
    found = [(e.report.verdict.elasticity, e.report.window.span_ns) for e in examined]
    whole = sum(span for _, span in found)
    known = [(e, span / whole) for e, span in found if e is not None] if whole else []
    if not known or len(known) < len(found):
        return None
    return Elasticity(
        host=sum(e.host * share for e, share in known),
        compute=sum(e.compute * share for e, share in known),
        communication=sum(e.communication * share for e, share in known),
    )

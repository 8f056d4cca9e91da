"""Communication that no compute hides: what of it is waiting no rank knows alone; of a job, what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from npuperf.advise.across import JobSteps, job_finding
from npuperf.advise.rule import Answer, Detected, RankRule, at_most
from npuperf.cluster.alone import bounds_alone
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import CommunicationBounds, Finding
from npuperf.documents.cluster import Cluster, ClusterRank
from npuperf.messages import Message, chain, say, series, share
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

NAME: Final = "exposed_communication"
TITLE = say("exposed communication")
SOURCE = say("communication operations beside kernels: the time that operations cover and no kernel does")
_REFUTE: Final = say("--what-if comm*0 saves little: other waits then take its place")
_REFUTE_WAITS: Final = say("another recording of all ranks, with nobody late, has as much of it")
#: Groups over which gradients are reduced and parameters gathered: their transfers need not wait for each other.
_DATA_PARALLEL: Final = frozenset({"dp", "dp_cp", "default_group", "fsdp", "data_parallel"})
#: Parts of the exposed time that are not worth a word, and kinds of groups that are named.
_SMALL: Final = 0.05
_KINDS: Final = 2
#: What is a figure other than zero on the screen.
_SEEN: Final = 0.0005
#: Megatron-LM's arguments.py asks for the distributed optimizer, and for the first option before the second.
_OVERLAP: Final = say(
    "let these transfers run beside compute: gradients in buckets during backward (Megatron: --overlap-grad-reduce, "
    "and with the distributed optimizer --overlap-param-gather, too)"
)
#: CANN's environment variable reference: set, it switches HCCL's own choice between servers off.
_ALGORITHM: Final = say("between servers, HCCL chooses the algorithm by itself only where HCCL_ALGO is not set")


def judge_alone(view: DeviceView, summary: RankSummary) -> Answer:
    """Ask one rank: what it tells is how much there is, and what of it is transfer at least."""
    del summary
    whole, bounds = view.partition, view.report.communication
    if whole.span_ns <= 0 or whole.comm_exposed_ns < view.thresholds.comm_exposed_share * whole.span_ns:
        return None
    part = share(whole.comm_exposed_ns / whole.span_ns)
    exposed = (say("{share} of the step is exposed communication", share=part) if view.steps
               else say("{share} of the span is exposed communication", share=part))  # fmt: skip
    most = view.per_step(whole.comm_exposed_ns)
    replayed = view.predict("comm*0")
    return Detected(
        title=chain(exposed, _told(bounds)),
        evidence={"exposed_ns": whole.comm_exposed_ns, "transfer_least_ns": bounds.exposed_least_ns if bounds else 0},
        gain=at_most((0, min(most, replayed[1]) if replayed else most)),
        refute=_REFUTE,
        next=say("analyze the folder with all ranks: it tells who waits for whom"),
    )


def _told(bounds: CommunicationBounds | None) -> Message:
    """Say what one rank knows of its transfers."""
    if bounds is None or bounds.exposed_least_ns < _SMALL * bounds.exposed_most_ns:
        return say("one rank cannot tell transfer from waiting")
    return say(
        "at least {least} of it is transfer, of the rest one rank cannot tell whether it waits for others",
        least=share(bounds.exposed_least_ns / bounds.exposed_most_ns),
    )


def judge(study: JobStudy, cluster: Cluster, thresholds: Thresholds) -> list[Finding]:
    """Ask a job: how its exposed communication splits decides what to do about it."""
    known = [(r, s) for r, s in zip(cluster.ranks, study.ranks, strict=True) if s.exposed_known]
    ranks = [r for r, _ in known]
    whole = cluster.time_of(ranks)
    parts = _with_certain(_parts(ranks), sum(bounds_alone(s, _exposed(r)).exposed_least_ns for r, s in known))
    if not whole or sum(parts) < thresholds.comm_exposed_share * whole:
        return []
    transfer, wait, unknown = parts
    worst = max(ranks, key=_exposed)
    kinds = _by_kind(cluster)
    problem = Detected(
        title=_title(parts, whole, sorted(_waits(ranks).items(), key=lambda k: -k[1])),
        evidence={
            "transfer_ns": transfer,
            "wait_ns": wait,
            "unknown_ns": unknown,
            "wait_by_kind_ns": _waits(ranks),
            "transfer_by_kind_ns": dict(kinds),
        },
        gain=(0, _most(study, cluster, ranks)),
        refute=_REFUTE if transfer > max(wait, unknown) else _REFUTE_WAITS,
        next=_next(parts, cluster, kinds),
    )
    return [job_finding(NAME, SOURCE, problem, worst.rank, JobSteps.of(cluster), thresholds)]


def _parts(ranks: Sequence[ClusterRank]) -> tuple[int, int, int]:
    """Return transfer, waiting and what cannot be told apart, of all ranks."""
    comm = [r.comm for r in ranks]
    return (
        sum(c.exposed_transfer_ns for c in comm),
        sum(c.exposed_wait_ns for c in comm),
        sum(c.exposed_unknown_ns for c in comm),
    )


def _with_certain(parts: tuple[int, int, int], least: int) -> tuple[int, int, int]:
    """Take what is transfer for certain, whoever is waited for, out of what cannot be told apart."""
    transfer, wait, unknown = parts
    more = min(max(least - transfer, 0), unknown)
    return transfer + more, wait, unknown - more


def _exposed(rank: ClusterRank) -> int:
    return sum(_parts([rank]))


def _waits(ranks: Sequence[ClusterRank]) -> dict[str, int]:
    """Return all waiting (exposed or not) by kind of group."""
    found: dict[str, int] = {}
    for rank in ranks:
        for kind, waited in rank.comm.wait_by_kind.items():
            found[kind] = found.get(kind, 0) + waited
    return found


def _by_kind(cluster: Cluster) -> list[tuple[str, int]]:
    """Return the transfers by kind of group, the longest first."""
    from npuperf.cluster.waits import kind_name  # loaded where there is a job

    found: dict[str, int] = {}
    for group in cluster.groups:
        name = kind_name(group.kind, group.group)
        found[name] = found.get(name, 0) + group.transfer_ns
    return sorted(found.items(), key=lambda kind: -kind[1])


def _title(parts: tuple[int, int, int], whole: int, kinds: Sequence[tuple[str, int]]) -> Message:
    """Say how the exposed part splits. Where some of it cannot be told apart, the rest is what there is at least."""
    transfer, wait, unknown = (share(part / whole) for part in parts)
    exposed = say("{share} of the ranks' time is exposed communication", share=share(sum(parts) / whole))
    names = series([name for name, waited in kinds if waited][:_KINDS])
    if parts[2] > _SEEN * whole:
        told = say("at least {wait} is waiting for other ranks and {transfer} transfer, {unknown} cannot be told apart",
                   wait=wait, transfer=transfer, unknown=unknown)  # fmt: skip
    elif parts[1] > _SMALL * sum(parts):
        told = say("{transfer} transfer, {wait} waiting for other ranks, mostly in {kinds}",
                   transfer=transfer, wait=wait, kinds=names)  # fmt: skip
    else:
        told = say("{transfer} transfer, {wait} waiting for other ranks", transfer=transfer, wait=wait)
    return say("{exposed}: {told}", exposed=exposed, told=told)


def _most(study: JobStudy, cluster: Cluster, ranks: Sequence[ClusterRank]) -> int:
    """Return what a step saves at most if nothing is transferred any more; waiting is for the roots to mend."""
    from npuperf.cluster.changes import predict

    steps = max(cluster.steps, 1)
    answer = predict(study, cluster.links, "comm*0")
    unknown = max(r.comm.exposed_unknown_ns for r in ranks) / steps
    if answer.reason is None:
        return min(int(max(answer.most, 0.0) / steps + unknown), cluster.step_ns)
    return min(int(max(r.comm.exposed_transfer_ns for r in ranks) / steps + unknown), cluster.step_ns)


def _next(parts: tuple[int, int, int], cluster: Cluster, kinds: Sequence[tuple[str, int]]) -> Message:
    """Say what to do about the largest part."""
    transfer, wait, unknown = parts
    if unknown > max(transfer, wait):
        return say("load all ranks of the job: only together they tell transfer from waiting")
    if wait > transfer:
        root = next((r for r in cluster.roots if r.kind not in ("schedule", "jitter", "unknown")), None)
        if root is None:
            return say("most of it is waiting, which no faster network shortens: npuperf analyze PATH --table roots")
        return say("most of it is waiting, which no faster network shortens; first of its causes: {cause}",
                   cause=root.title)  # fmt: skip
    if not kinds or kinds[0][0] not in _DATA_PARALLEL:
        names = series([name for name, _ in kinds[:1]] or ["N/A"])
        return say("most of it is transfer, mostly in {kinds}: npuperf analyze PATH --table collectives shows the "
                   "longest operations; see which of them can begin earlier, or move less", kinds=names)  # fmt: skip
    remote = any(link.transport.upper() == "RDMA" for link in cluster.links)
    return chain(_OVERLAP, _ALGORITHM if remote else None)


RULE = RankRule(NAME, TITLE, SOURCE, judge, alone=judge_alone, any_device=True, relieves="communication")

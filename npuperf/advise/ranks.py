"""Ranks that wait for one another: for a slow rank or stage, a slow link, the fullest experts; and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from npuperf.advise.rule import Answer, Detected, JobView, Rule, at_most, severity
from npuperf.base.messages import Message, chain, ns, number, say, say_n, series, share, size
from npuperf.device.rank_summary import (
    HeldUp,
    LinkRate,
    RankSummary,
    held_up_alone,
    link_rates,
)
from npuperf.device.view import DeviceView
from npuperf.model.job_result import Cluster, ClusterRank, Link, Root
from npuperf.model.labels import I64
from npuperf.model.result import Device, Finding
from npuperf.model.thresholds import Thresholds

#: Rows of a table in the evidence.
_SHOWN: Final = 10


# -- Root causes of waiting between ranks: a slow rank, an unequal stage, a slow group; replayed, not voted.

_REFUTED_BY: Final = {
    "rank": say("the ranks have different work by design, or another rank is last in another recording"),
    "stage": say("another recording, with the same split of layers, has stages of equal length"),
    "link": say("another recording shows this link as fast as its peers"),
    "group": say("another recording shows the same transfer times in all groups of this kind"),
}


_CHANCE: Final = say("another recording has another rank late in some steps, or none: then it was chance")


def _mendable_roots(job: JobView) -> list[Detected]:
    """Return each root cause that somebody can mend."""
    step = max(job.cluster.step_ns, 1)
    return [
        Detected(
            title=chain(root.title, _behind(root)),
            evidence={"kind": root.kind, "ranks": root.ranks, "waited_ns": root.wait_ns, **root.evidence},
            gain=gain,
            percent=(100 * gain[0] / step, 100 * gain[1] / step),
            refute=_CHANCE if root.steps else _REFUTED_BY[root.kind],
            next=root.next,
            rank=root.ranks[0] if root.kind == "rank" and len(root.ranks) == 1 else None,
            device=job.device(root.ranks[0]),
        )
        for root in job.cluster.roots
        if root.kind in _REFUTED_BY and (gain := root.gain_ns_per_step)
    ]


def _behind(root: Root) -> Message | None:
    """Say what it saves behind others, where it saves little by itself."""
    if root.gain_behind_ns_per_step is None:
        return None
    return say(
        "hidden behind others: {saved} per step once these are repaired", saved=ns(*root.gain_behind_ns_per_step)
    )


slow_rank = Rule(
    "slow_rank",
    say("slow rank"),
    say("durations of the same operations on all ranks: they end together, so the rank that stayed shortest came last"),
    on_job=_mendable_roots,
    any_device=True,
)


# -- A link between two ranks that is slower than links of its kind.

#: Links that lose nearly as much as the worst one may be held up by it: of those the slowest is named.
_AS_MUCH: Final = 0.8


def unsaid(cluster: Cluster) -> list[Link]:
    """Return the links that no root is about: a slow one holds up all links of its groups, and is said once."""
    roots = [frozenset(r.ranks) for r in cluster.roots if r.kind == "link" and r.gain_ns_per_step]
    said = [frozenset(g.ranks) for g in cluster.groups for pair in roots if pair <= frozenset(g.ranks)] + roots
    return [link for link in cluster.links if not any(frozenset(link.ranks) <= ranks for ranks in said)]


def _slowest_link(job: JobView) -> list[Detected]:
    """Name the slowest of the links that lose most; see :func:`npuperf.job.links.judge_links`."""
    slow = sorted((link for link in unsaid(job.cluster) if link.slow), key=lambda link: -link.lost_ns)
    if not slow:
        return []
    lost = Counter[tuple[int, int]]()
    for link in slow:
        lost[link.ranks] += link.lost_ns
    worst = min(
        (link for link in slow if lost[link.ranks] >= _AS_MUCH * max(lost.values())),
        key=lambda link: link.gb_per_s / link.peers_gb_per_s if link.peers_gb_per_s else 1.0,
    )
    first, second = worst.ranks
    gain = job.gain(lost[worst.ranks])
    title = say(
        "the {transport} link between ranks {first} and {second} moves {rate} GB/s in {kind}, links of other ranks "
        "{peers} GB/s",
        transport=worst.transport,
        first=first,
        second=second,
        rate=number(worst.gb_per_s),
        kind=worst.kind,
        peers=number(worst.peers_gb_per_s or 0.0),
    )
    others = len(lost) - 1
    more = say_n("another link is slow, too", "{n} other links are slow, too", others) if others else None
    swap = say(
        "run the job with ranks {first} and {second} on other devices: if the slow link stays with the devices, have "
        "them checked; if it moves with the ranks, look at what else uses it then",
        first=first,
        second=second,
    )
    ports = say(
        "hccn_tool -i {device} -stat -g on the hosts of ranks {first} and {second} counts errors and retries of "
        "their ports; then look at cables, optical modules and the switches between them",
        device=job.device(first),
        first=first,
        second=second,
    )
    shown = ("transport", "kind", "size_class", "gb_per_s", "peers_gb_per_s", "reference_gb_per_s", "lost_ns")
    rows = [{"ranks": list(link.ranks), **{name: getattr(link, name) for name in shown}} for link in slow[:_SHOWN]]
    problem = Detected(
        rank=first,
        device=job.device(first),
        title=chain(title, job.price(gain), more),
        evidence={"links": rows},
        gain=gain,
        refute=say(
            "the transfers lie beside compute that takes longer anyway, or the pair is as fast as the others in "
            "another recording"
        ),
        next=ports if worst.transport.upper() == "RDMA" else swap,
    )
    return [problem]


slow_link = Rule(
    "slow_link",
    say("slow link"),
    say("bytes and times of transfers (communication_matrix.json, analysis.db): the link beside those of other pairs "
        "of ranks with the same transport, kind and size of operation"),
    on_job=_slowest_link,
)  # fmt: skip


# -- Experts with different loads: all ranks of their group wait for the fullest one.


def _fullest_rank(job: JobView) -> list[Detected]:
    """Name the fullest rank of the group that loses most; see :func:`npuperf.job.job_report.judge_experts`."""
    lost = Counter[str]()
    for layer in job.cluster.experts:
        lost[layer.group] += layer.lost_ns
    if not any(lost.values()):
        return []
    group = max(lost, key=lambda g: lost[g])
    layers = [layer for layer in job.cluster.experts if layer.group == group]
    ranks = layers[0].ranks
    times: I64 = np.array([layer.time_ns for layer in layers], np.int64).sum(axis=0)
    fullest = ranks[int(times.argmax())]
    gain, steps = job.gain(lost[group]), max(job.cluster.steps, 1)
    tokens = zip(ranks, zip(*(layer.tokens for layer in layers), strict=True), strict=True)
    worst = sorted(layers, key=lambda layer: -layer.lost_ns)[:_SHOWN]
    title = say(
        "experts are loaded unevenly over {ranks} ranks: grouped matmuls take rank {rank} {longest} of a step, the "
        "ranks {mean} on average, and each layer waits for its longest",
        ranks=len(ranks),
        rank=fullest,
        longest=ns(int(times.max()) // steps),
        mean=ns(float(times.mean()) / steps),
    )
    problem = Detected(
        rank=fullest,
        device=job.device(fullest),
        title=chain(title, job.price(gain)),
        evidence={
            "group": group,
            "lost_ns": lost[group],
            "time_ns": {str(r): int(t) for r, t in zip(ranks, times, strict=True)},
            "tokens": {str(r): None if None in mine else sum(t for t in mine if t is not None) for r, mine in tokens},
            "layers": [{"layer": w.layer, "imbalance": w.imbalance, "lost_ns": w.lost_ns} for w in worst],
        },
        gain=gain,
        refute=say(
            "tokens are spread evenly over the ranks in other recordings, or the ranks do not wait for one another "
            "after the grouped matmuls"
        ),
        next=say(
            "spread the tokens more evenly (load-balancing loss or expert bias, a capacity limit), or the experts: "
            "place full and empty ones together, repeat the fullest"
        ),
    )
    return [problem]


uneven_experts = Rule(
    "uneven_experts",
    say("uneven experts"),
    say("durations and input shapes of the grouped matmuls of each rank, the n-th of a step beside the others' n-th"),
    on_job=_fullest_rank,
    any_device=True,
)


# -- Communication that no compute hides: what of it is waiting no rank knows alone; of a job, what to do about it.

_FASTER_NETWORK: Final = say("--what-if comm*0 saves little: other waits then take its place")
_NOBODY_LATE: Final = say("another recording of all ranks, with nobody late, has as much of it")
#: Groups over which gradients are reduced and parameters gathered: their transfers need not wait for each other.
#: Megatron's and MindSpeed's names; that of all ranks (torch_npu's, and distributed_c10d.py's group_desc), over which
#: DDP reduces; the dimensions of torchtitan's device mesh (parallel_dims.py).
_DATA_PARALLEL: Final = frozenset({
    "dp", "dp_cp", "data_parallel", "default_group", "default_pg",
    "fsdp", "dp_replicate", "dp_shard", "dp_shard_cp", "dp_shard_mod_ep", "dp_shard_in_ep",
})  # fmt: skip
#: Parts of the exposed time that are not worth a word, and kinds of groups that are named.
_SMALL: Final = 0.05
_KINDS: Final = 2
#: What is a figure other than zero on the screen.
_SEEN: Final = 0.0005
#: Megatron-LM's arguments.py asks for the distributed optimizer, and for the first option before the second.
OVERLAP: Final = say(
    "let these transfers run beside compute: gradients in buckets during backward (Megatron: --overlap-grad-reduce, "
    "and with the distributed optimizer --overlap-param-gather, too)"
)
#: CANN's environment variable reference: set, it switches HCCL's own choice between servers off.
_ALGORITHM: Final = say("between servers, HCCL chooses the algorithm by itself only where HCCL_ALGO is not set")


def _carried(rates: Sequence[LinkRate], alignment: int) -> Message | None:
    """Say how fast the links are that carry most, and how what they carry is cut: facts, whatever is to blame."""
    if not rates:
        return None
    most = rates[0]
    pace = number(most.gb_per_s)
    if most.reference_gb_per_s is not None:
        told = say("a link of {transport} carries {rate} GB/s while it is used (the vendor's tools compare with "
                   "{reference})", transport=most.transport, rate=pace,
                   reference=number(most.reference_gb_per_s))  # fmt: skip
    else:
        told = say("a link of {transport} carries {rate} GB/s while it is used", transport=most.transport, rate=pace)
    if not most.odd or most.odd_gb_per_s is None:
        return told
    others = most.gb_per_s if most.even_gb_per_s is None else most.even_gb_per_s
    odd = say_n("{n} of {all} packets is no multiple of {unit} bytes ({rate} GB/s, the others {others})",
                "{n} of {all} packets are no multiple of {unit} bytes ({rate} GB/s, the others {others})", most.odd,
                all=number(most.packets), unit=alignment, rate=number(most.odd_gb_per_s),
                others=number(others))  # fmt: skip
    return chain(told, odd, by=", ")


def _exposed_of_rank(view: DeviceView, summary: RankSummary) -> Answer:
    """Ask one rank: what it tells is how much there is, and what of it is transfer at least."""
    whole, bounds = view.partition, view.report.communication
    if whole.span_ns <= 0 or whole.comm_exposed_ns < view.thresholds.comm_exposed_share * whole.span_ns:
        return None
    part = share(whole.comm_exposed_ns / whole.span_ns)
    exposed = (say("{share} of the step is exposed communication", share=part) if view.steps
               else say("{share} of the span is exposed communication", share=part))  # fmt: skip
    waits = bounds.waits if bounds else None
    held = held_up_alone(summary, view.thresholds.held_up_factor)
    known = say("one rank cannot tell transfer from waiting")
    if bounds is not None and bounds.exposed_least_ns >= _SMALL * whole.comm_exposed_ns:
        known = say(
            "at least {least} of it is transfer, of the rest one rank cannot tell whether it waits for others",
            least=share(bounds.exposed_least_ns / whole.comm_exposed_ns),
        )
    if waits is not None:
        known = waits
    elif held:
        known = chain(known, _held(held[0]))
    most = view.per_step(bounds.exposed_most_ns if bounds else whole.comm_exposed_ns)
    replayed = view.predict("comm*0")
    unit = view.thresholds.packet_alignment_bytes
    rates = link_rates([summary], unit)
    return Detected(
        title=chain(exposed, known, _carried(rates, unit)),
        evidence={
            "exposed_ns": whole.comm_exposed_ns,
            "transfer_least_ns": bounds.exposed_least_ns if bounds else 0,
            "transfer_most_ns": bounds.exposed_most_ns if bounds else whole.comm_exposed_ns,
            "held_up": [to_builtins(one) for one in held[:_SHOWN]],
            "rates": to_builtins(rates),
        },
        gain=at_most((0, min(most, replayed[1]) if replayed else most)),
        refute=_FASTER_NETWORK,
        next=say("record the process groups (newer releases of PyTorch, with ProfilerActivity.CPU), then analyze the "
                 "folder with all ranks: it tells who waits for whom")
        if summary.kineto and not summary.operations.group.known().any()
        else say("analyze the folder with all ranks: it tells who waits for whom"),
    )  # fmt: skip


def split_by_job(finding: Finding, device: Device, thresholds: Thresholds) -> Finding:
    """Return what one rank said of its exposed communication with the split that all ranks of its job tell."""
    whole, whom = device.window, device.communication.waits if device.communication else None
    parts = [share(t / whole.comm_exposed_ns) for t in (whole.comm_transfer_ns, whole.comm_wait_ns)]
    split = say("{transfer} of it is transfer and {wait} waiting for other ranks", transfer=parts[0], wait=parts[1])
    if whole.comm_unknown_ns:
        split = say("at least {transfer} of it is transfer and {wait} waiting for other ranks", transfer=parts[0],
                    wait=parts[1])  # fmt: skip
    part = share(whole.comm_exposed_ns / whole.span_ns)
    exposed = (say("{share} of the step is exposed communication", share=part) if device.steps
               else say("{share} of the span is exposed communication", share=part))  # fmt: skip
    most = (whole.comm_transfer_ns + whole.comm_unknown_ns) // max(device.step_count, 1)
    per, (low, high) = max(device.step_count, 1), finding.gain_ns_per_step or (0, most)
    gain = (min(low, most), min(high, most))
    waits = whole.comm_wait_ns > whole.comm_transfer_ns + whole.comm_unknown_ns
    return replace(
        finding,
        title=chain(exposed, split, whom if waits else None),
        evidence={**finding.evidence, "transfer_ns": whole.comm_transfer_ns, "wait_ns": whole.comm_wait_ns,
                  "unknown_ns": whole.comm_unknown_ns},
        severity=severity(gain[1] * per / whole.span_ns, thresholds),
        gain_ns_per_step=gain,
        gain_pct=(100 * gain[0] * per / whole.span_ns, 100 * gain[1] * per / whole.span_ns),
        refute=_NOBODY_LATE if waits else finding.refute,
        next=say("most of it is waiting, which no faster network shortens: npuperf analyze PATH, without --rank, tells "
                 "why the others come late") if waits else finding.next,
    )  # fmt: skip


def _exposed_of_job(job: JobView) -> list[Detected]:
    """Ask a job: how its exposed communication splits decides what to do about it."""
    from npuperf.job.job_whatif import predict  # loaded where there is a job
    from npuperf.job.waits import held_up, kind_name

    cluster = job.cluster
    ranks = [r for r, s in zip(cluster.ranks, job.study.ranks, strict=True) if s.exposed_known]
    whole = cluster.time_of(ranks)
    transfer, wait, unknown = (
        sum(getattr(r.comm, name) for r in ranks)
        for name in ("exposed_transfer_ns", "exposed_wait_ns", "exposed_unknown_ns")
    )
    if not whole or transfer + wait + unknown < job.thresholds.comm_exposed_share * whole:
        return []
    waits, transfers = Counter[str](), Counter[str]()  # exposed or not, by kind of group
    for rank in ranks:
        waits.update(rank.comm.wait_by_kind)
    for group in cluster.groups:
        transfers[kind_name(group.kind, group.group)] += group.transfer_ns
    parts = (transfer, wait, unknown)
    total = sum(parts)
    sent, waited = share(transfer / whole), share(wait / whole)
    held = held_up(job.study.matched, job.study.ranks, job.thresholds.held_up_factor)
    awaited = job.study.awaited
    if unknown > _SEEN * whole:  # then the rest is what there is at least
        split = say("at least {wait} is waiting for other ranks and {transfer} transfer, {unknown} cannot be told "
                    "apart", wait=waited, transfer=sent, unknown=share(unknown / whole))  # fmt: skip
        if awaited:
            split = say("{split}; of the waiting {time} is for ranks that were not loaded, most of it for {whom} "
                        "(inferred: Notify_Wait before the first transfer)", split=split,
                        time=ns(sum(one.ns for one in awaited)), whom=awaited[0].name)  # fmt: skip
        elif held:
            split = say("{split}; {why}", split=split, why=_held(held[0]))
    elif wait > _SMALL * total:
        kinds = [kind for kind, time in waits.most_common() if time]
        split = say("{transfer} transfer, {wait} waiting for other ranks, mostly in {kinds}",
                    transfer=sent, wait=waited, kinds=series(kinds[:_KINDS]))  # fmt: skip
    else:
        split = say("{transfer} transfer, {wait} waiting for other ranks", transfer=sent, wait=waited)
    exposed = say("{share} of the ranks' time is exposed communication", share=share(total / whole))
    # What a step saves at most if nothing is transferred any more; waiting is for the roots to mend.
    answer = predict(job.study, "comm*0")
    alone = max(r.comm.exposed_transfer_ns + r.comm.exposed_unknown_ns for r in ranks)
    saved = max(answer.most, 0.0) if answer.reason is None else alone
    worst = max(ranks, key=_exposed).rank
    unit = job.thresholds.packet_alignment_bytes
    rates = link_rates(job.study.ranks, unit)
    problem = Detected(
        rank=worst,
        device=job.device(worst),
        title=chain(say("{exposed}: {told}", exposed=exposed, told=split), _carried(rates, unit)),
        evidence={
            "transfer_ns": transfer,
            "wait_ns": wait,
            "unknown_ns": unknown,
            "wait_by_kind_ns": dict(waits),
            "transfer_by_kind_ns": dict(transfers.most_common()),
            "held_up": [to_builtins(one) for one in held[:_SHOWN]],
            "awaited": [to_builtins(one) for one in awaited[:_SHOWN]],
            "rates": to_builtins(rates),
        },
        gain=(0, min(int(saved / max(cluster.steps, 1)), cluster.step_ns)),
        refute=_FASTER_NETWORK if transfer > max(wait, unknown) else _NOBODY_LATE,
        next=_mend_largest(parts, cluster, [kind for kind, _ in transfers.most_common(1)]),
    )
    return [problem]


def _held(one: HeldUp) -> Message:
    """Say by which operation it shows that ranks are waited for which were not loaded."""
    return say("{name} moves {size} in {stay} ({rate} GB/s), {other} {more} in {sooner} ({pace} GB/s): it waits, "
               "likely for ranks that were not loaded", name=one.name, size=size(one.bytes), stay=ns(one.stay),
               rate=number(one.bytes / one.stay), other=one.other, more=size(one.other_bytes),
               sooner=ns(one.other_stay), pace=number(one.other_bytes / max(one.other_stay, 1)))  # fmt: skip


def _exposed(rank: ClusterRank) -> int:
    return rank.comm.exposed_transfer_ns + rank.comm.exposed_wait_ns + rank.comm.exposed_unknown_ns


def _mend_largest(parts: tuple[int, int, int], cluster: Cluster, kind: list[str]) -> Message:
    """Say what to do about the largest part; ``kind``: of the groups that transfer longest."""
    transfer, wait, unknown = parts
    if unknown > max(transfer, wait):
        return say("load all ranks of the job: only together they tell transfer from waiting")
    if wait > transfer:
        root = next((r for r in cluster.roots if r.kind not in ("schedule", "jitter", "unknown")), None)
        if root is None:
            return say("most of it is waiting, which no faster network shortens: npuperf analyze PATH --table roots")
        return say("most of it is waiting, which no faster network shortens; first of its causes: {cause}",
                   cause=root.title)  # fmt: skip
    if not _DATA_PARALLEL.intersection(kind):
        return say("most of it is transfer, mostly in {kinds}: npuperf analyze PATH --table collectives shows the "
                   "longest operations; see which of them can begin earlier, or move less",
                   kinds=series(kind or ["N/A"]))  # fmt: skip
    return chain(OVERLAP, _ALGORITHM if any(link.transport.upper() == "RDMA" for link in cluster.links) else None)


exposed_communication = Rule(
    "exposed_communication",
    say("exposed communication"),
    say("communication operations beside kernels: the time that operations cover and no kernel does"),
    on_rank=_exposed_of_rank,
    on_job=_exposed_of_job,
    any_device=True,
    relieves="communication",
)

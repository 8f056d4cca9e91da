"""The job's part of the document, from what was worked out: ranks, groups, stages, links, collectives, roots."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

import numpy as np
from msgspec import structs

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, Quantity, Series, ns, number, say, say_n, series
from npuperf.base.messages import share as part
from npuperf.base.units import in_rows
from npuperf.device.collective_rates import collective_rates
from npuperf.device.partition import add
from npuperf.device.rank_summary import OperatorTime, RankSummary
from npuperf.job.job_roles import judge_roles
from npuperf.job.job_study import JobStudy, SeveralRuns
from npuperf.job.one_clock import Apart
from npuperf.job.root_causes import RootCause
from npuperf.job.waits import by_kind, kind_name, split_exposed
from npuperf.model.communication import SEVERAL, ProcessGroup
from npuperf.model.groups import distinct
from npuperf.model.job_result import (
    ClockOffset,
    Cluster,
    ClusterGroup,
    ClusterRank,
    ClusterReplay,
    Collective,
    Experts,
    Pipeline,
    RankCommunication,
    Root,
    RunOfRanks,
    Stage,
)
from npuperf.model.result import Device, Partition
from npuperf.model.thresholds import Thresholds

# -- A root cause in words: what it is, what it costs, where to look, and what to do next.

#: What tells why somebody begins late.
_EARLIER: Final = say("look at earlier steps, too, or record from a step earlier on: they tell why a rank begins late")
#: Operators that are named.
_OPERATORS: Final = 3
#: Ranks that are named.
_RANKS: Final = 8
#: What an operator takes beyond its peers must be this part of what the rank does.
_NOTABLE: Final = 0.05


def root(study: JobStudy, cause: RootCause, wait: int, share: float, gain: tuple[int, int] | None) -> Root:
    """Return a cause as it stands in the document."""
    operators = _operators(study, cause)
    title, next_ = _in_words(study, cause)
    ranks = [study.ranks[p] for p in cause.places]
    group = study.matched.groups[cause.group] if cause.group is not None else None
    parts = cause.parts.items() if cause.kind == "rank" else ()
    excess = {"excess": cause.excess, **{f"{why}_excess": value for why, value in parts}}
    return Root(
        kind=cause.kind,
        ranks=[r.rank for r in ranks],
        why=cause.why,
        wait_ns=wait,
        share=share,
        gain_ns_per_step=gain,
        gain_behind_ns_per_step=per_step(cause.behind, study) if cause.behind else None,
        steps=list(cause.steps),
        where=next((o.where for r in ranks for o in r.operators if o.where and _label(o) in operators), None)
        or next((r.where for r in ranks if r.where), None),
        stage=cause.stage,
        group=group.id if group else None,
        operators=operators,
        title=title,
        next=next_,
        evidence={f"{name}_ns_per_step": round(value / study.step_count) for name, value in excess.items()},
    )


def _label(operator: OperatorTime) -> str:
    return f"{operator.type} {operator.shapes.strip(chr(34))}" if operator.shapes else operator.type


def _operators(study: JobStudy, cause: RootCause) -> list[str]:
    """Return the operators that take longer on the cause's ranks than on the others, costliest first."""
    if cause.kind not in ("rank", "stage") or cause.why != "compute":
        return []
    stage = study.stages.of
    mine, others = [], []
    for place, summary in enumerate(study.ranks):
        if summary.operators and place in cause.places:
            mine.append(summary)
        elif summary.operators and (cause.kind == "stage" or stage[place] == stage[cause.places[0]]):
            others.append(summary)
    if not mine or not others:
        return []
    own, theirs = _times(mine), _times(others)
    more = {name: fsum(times) / len(mine) - float(np.median(theirs.get(name, [0.0]))) for name, times in own.items()}
    least = _NOTABLE * cause.excess
    return sorted((n for n, v in more.items() if v > max(least, 0)), key=lambda n: -more[n])[:_OPERATORS]


def _times(ranks: list[RankSummary]) -> dict[str, list[float]]:
    """Return the times of each operator, ns, where ranks have it."""
    times: dict[str, list[float]] = defaultdict(list)
    for operator in (operator for rank in ranks for operator in rank.operators):
        times[_label(operator)].append(float(operator.total_ns))
    return times


def _in_words(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    """Say what a cause is, and what to do next."""
    more, ranks = ns(round(cause.excess / (len(cause.steps) or study.step_count))), _listed(study, cause)
    if cause.kind == "rank":
        return _rank_in_words(study, cause, more)
    if cause.kind == "stage":
        title = say_n("stage {stage} (rank {ranks}) computes {more} longer per step than the stages' usual pace",
                      "stage {stage} (ranks {ranks}) computes {more} longer per step than the stages' usual pace",
                      len(cause.places), stage=cause.stage, ranks=ranks, more=more)  # fmt: skip
        return title, say("move layers from stage {stage} to the others: look at the stage split, not at the network",
                          stage=cause.stage)  # fmt: skip
    if cause.kind == "group":
        group = study.matched.groups[cause.group or 0]
        title = say("group {group} (ranks {ranks}) transfers {more} longer per step than groups of its kind",
                    group=kind_name(group.kind, group.id), ranks=series(group.ranks[:_RANKS]), more=more)  # fmt: skip
        return title, say("look at its links: npuperf analyze PATH --table links")
    if cause.kind == "link":
        a, b = (study.ranks[p].rank for p in cause.places)
        title = say("the link between ranks {a} and {b} is slower than its peers: operations over it take {more} "
                    "longer per step", a=a, b=b, more=more)  # fmt: skip
        return title, say("check this link, then compare again: npuperf analyze PATH --table links")
    if cause.kind == "schedule":
        return _schedule_in_words(study)
    if cause.kind == "jitter":
        if cause.why == "compute":
            return say("stages are not quite equal, but making them so saves little"), None
        if study.step_count < 2:
            return say("no rank stands out; one step cannot tell what lasts"), None
        if cause.places:
            rank = study.ranks[cause.places[0]].rank
            title = say("delays that save too little to be named: the largest that lasts is rank {rank}'s, which takes "
                        "{more} longer per step than its peers", rank=rank, more=more)  # fmt: skip
            return title, say("compare it with its peers: npuperf analyze PATH --rank {rank}", rank=rank)
        return say("now one rank is late, now another: no lasting cause"), None
    if cause.begins_late:
        title = say("ranks begin at different times: why lies before what is looked at")
        return title, _EARLIER
    if cause.places:
        title = say_n("rank {ranks} waits for the others in every step: most ranks take longer than it does",
                      "ranks {ranks} wait for the others in every step: most ranks take longer than these",
                      len(cause.places), ranks=ranks)  # fmt: skip
        return title, say("compare their data and shapes with the others': npuperf analyze PATH --rank {rank}",
                          rank=study.ranks[cause.places[0]].rank)  # fmt: skip
    title = say("waits that nothing in these files explains")
    if any(r.kineto for r in study.ranks):
        return title, say("load all ranks of the job, with their launches")
    return title, say("load all ranks of the job, with launches (npuperf profile --level 1)")


def _schedule_in_words(study: JobStudy) -> tuple[Message, Message | None]:
    schedule, stages = study.schedule, study.stages.count
    own = schedule.share(stages) if schedule else None
    if schedule is None or own is None:
        return say("the pipeline's own bubble over {stages} stages: nobody's fault", stages=stages), None
    next_ = say("more micro-batches per step make it smaller (now {part} of the pipeline's time)", part=part(own))
    micro, chunks = schedule.micro_batches, schedule.chunks or 1
    if chunks > 1:
        return say("the pipeline's own bubble ({micro} micro-batches in {chunks} chunks per stage on {stages} stages): "
                   "nobody's fault", micro=micro, chunks=chunks, stages=stages), next_  # fmt: skip
    return say("the pipeline's own bubble ({micro} micro-batches on {stages} stages): nobody's fault",
               micro=micro, stages=stages), next_  # fmt: skip


def _passing_in_words(study: JobStudy, cause: RootCause, more: Quantity) -> tuple[Message, Message | None]:
    """Say of a rank that is late in some steps only in which, and where to look."""
    place = cause.places[0]
    summary, own = study.ranks[place], [step - study.counted.moved[place] for step in cause.steps]  # as it counts them
    rank, n, every, steps = summary.rank, number(len(own)), study.step_count, series(_few(own))
    alone = np.count_nonzero(study.stages.of == study.stages.of[place]) == 1
    if alone and cause.why == "compute":
        title = say("rank {rank}, the only one of its stage, computes {more} longer in {n} of {all} steps ({steps}) "
                    "than in the others, and other stages wait for it",
                    rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    elif alone:
        title = say("rank {rank}, the only one of its stage, takes {more} longer in {n} of {all} steps ({steps}) than "
                    "in the others, and other stages wait for it",
                    rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    elif cause.why == "compute":
        title = say("rank {rank} computes {more} longer than its peers in {n} of {all} steps ({steps}), and they wait "
                    "for it", rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    elif cause.why == "host":
        title = say("rank {rank} waits {more} longer for its host than its peers in {n} of {all} steps ({steps}), and "
                    "they wait for it", rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    elif summary.host_ns is None:
        title = say("rank {rank} takes {more} longer than its peers in {n} of {all} steps ({steps}), and they wait for "
                    "it; its compute is not longer, and launches that would tell more are not recorded",
                    rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    else:
        title = say("rank {rank} takes {more} longer than its peers in {n} of {all} steps ({steps}), and they wait for "
                    "it: mostly neither in compute nor waiting for its host",
                    rank=rank, more=more, n=n, all=every, steps=steps)  # fmt: skip
    return title, say("look at what it does there: npuperf analyze PATH --rank {rank} --step {step}",
                      rank=rank, step=own[0])  # fmt: skip


def _rank_in_words(study: JobStudy, cause: RootCause, more: Quantity) -> tuple[Message, Message | None]:
    summary = study.ranks[cause.places[0]]
    rank = summary.rank
    if cause.begins_late:
        title = say_n("rank {ranks} begins {more} later than its peers, and they wait for it: why lies before what is "
                      "looked at",
                      "ranks {ranks} begin about {more} later than their peers, and they wait for them: why lies "
                      "before what is looked at",
                      len(cause.places), ranks=_listed(study, cause), more=ns(round(cause.excess)))  # fmt: skip
        return title, _EARLIER
    if cause.steps:
        return _passing_in_words(study, cause, more)
    if len(cause.places) > 1:
        ranks = _listed(study, cause)
        what = {
            "compute": say("ranks {ranks} each compute about {more} longer per step than their peers, which wait for "
                           "them", ranks=ranks, more=more),
            "host": say("ranks {ranks} each wait about {more} longer per step for their hosts than their peers, which "
                        "wait for them", ranks=ranks, more=more),
        }.get(cause.why, say("ranks {ranks} each take about {more} longer per step than their peers, which wait for "
                             "them; their compute is not longer", ranks=ranks, more=more))  # fmt: skip
        return what, say("see what they share (machine, data), then look at one: npuperf analyze PATH --rank {rank}",
                         rank=rank)  # fmt: skip
    if cause.why == "compute":
        title = say("rank {rank} computes {more} longer per step than its peers, and they wait for it",
                    rank=rank, more=more)  # fmt: skip
        if summary.kineto:  # AI Cores are an NPU's
            return title, say("compare its data and its shapes with its peers': npuperf analyze PATH --rank {rank}",
                              rank=rank)  # fmt: skip
        return title, say("compare its data, its shapes and its AI Core frequency with its peers': npuperf analyze "
                          "PATH --rank {rank}", rank=rank)  # fmt: skip
    if cause.why == "host":
        title = say("rank {rank} waits {more} longer per step for its host than its peers, and they wait for it",
                    rank=rank, more=more)  # fmt: skip
        return title, say("look at what its host does while the device waits: npuperf analyze PATH --rank {rank}",
                          rank=rank)  # fmt: skip
    if summary.host_ns is None:
        title = say("rank {rank} takes {more} longer per step than its peers, and they wait for it; its compute is not "
                    "longer, and launches that would tell more are not recorded", rank=rank, more=more)  # fmt: skip
        return title, (say("record CPU activities, too: they hold the launches") if summary.kineto
                       else say("record launches: npuperf profile --activities cpu,npu --level 1"))  # fmt: skip
    title = say("rank {rank} takes {more} longer per step than its peers, and they wait for it: mostly neither in "
                "compute nor waiting for its host, but in copies or waits between streams",
                rank=rank, more=more)  # fmt: skip
    return title, say("look at its copies and streams: npuperf analyze PATH --rank {rank}", rank=rank)


def _listed(study: JobStudy, cause: RootCause) -> Series:
    """Return the numbers of a cause's ranks, of many only the first."""
    numbers: list[str | int] = [study.ranks[p].rank for p in cause.places]
    return series(numbers if len(numbers) <= _RANKS else [*numbers[:_RANKS], "…"])


#: Operations that are listed: those with most waiting.
_COLLECTIVES: Final = 200


def describe_job(
    study: JobStudy, devices: Sequence[Device], thresholds: Thresholds, cut: Mapping[int, Message] | None = None
) -> Cluster:
    """Return the job's part of the document. ``devices``: the reports of all of its ranks, in any order.

    ``cut``: ranks that were read, but are not in the job because rows of them are missing, and what tells that.
    """
    reports = {(d.source, d.device, d.rank): d for d in devices}
    stages = _stages(study)
    return Cluster(
        step_ns=round(study.length / study.step_count),
        steps=study.step_count,
        ranks=[_describe_rank(study, i, reports.get(r.place)) for i, r in enumerate(study.ranks)],
        groups=_groups(study),
        stages=stages,
        links=list(study.links),
        roots=_roots(study),
        collectives=_collectives(study),
        collective_rates=collective_rates(
            study.ranks,
            study.waits.transfer,
            study.waits.transfer + study.waits.unknown,
            thresholds.packet_alignment_bytes,
        ),
        pipeline=_pipeline(study, stages),
        experts=judge_experts(study.ranks, thresholds),
        roles=judge_roles(study.ranks),
        replay=ClusterReplay(
            usable=study.usable,
            error=study.error,
            measured_ns=round(study.length),
            reason=None if study.usable else say("the replay over all ranks misses the measured time"),
        ),
        world_size=study.world.size,
        world_size_least=study.world.least,
        absent=absent(study),
        cut=sorted(cut or {}),
        notes=_notes(study, cut or {}),
    )


def describe_runs(found: SeveralRuns) -> list[RunOfRanks]:
    """Return the runs that ranks are of, the one with most ranks first."""
    runs = []
    for nth, places in enumerate(found.runs.places):
        own = [found.ranks[place] for place in places]
        steps = [(r.end - int(r.step_start[0])) / len(r.step_start) for r in own if len(r.step_start)]
        runs.append(
            RunOfRanks(
                ranks=[r.rank for r in own],
                step_ns=round(float(np.median(steps))) if steps else None,
                begin_ns=min(r.begin for r in own),
                apart=_why_apart(found, found.runs.apart[nth - 1]) if nth else None,
                next=_alone(own, [r for i, r in enumerate(found.ranks) if i not in places]),
            )
        )
    return runs


def _why_apart(found: SeveralRuns, apart: Apart) -> Message:
    a, b = (found.ranks[place].rank for place in apart.places)
    if apart.why == "drift":
        return say("the clocks of ranks {a} and {b} would drift apart by {ppm} ppm, and crystals do by less than 200",
                   a=a, b=b, ppm=abs(round(apart.value * 1e6)))  # fmt: skip
    if apart.why == "early":
        return say("one of ranks {a} and {b} would have left {share} of their common collectives before the other came",
                   a=a, b=b, share=part(apart.value))  # fmt: skip
    if apart.why == "steps":
        return say("ranks {a} and {b} have a group in common, and the steps of one take {share} of the other's",
                   a=a, b=b, share=part(apart.value))  # fmt: skip
    return say("ranks {a} and {b} were recorded {apart} apart, and their collectives do not end together",
               a=a, b=b, apart=ns(round(apart.value)))  # fmt: skip


def _alone(own: Sequence[RankSummary], others: Sequence[RankSummary]) -> Message:
    """Say how to analyze some ranks alone: by their folder where no others are in it."""
    folder = os.path.commonpath([r.source for r in own])
    if any(os.path.commonpath([folder, r.source]) == folder for r in others):
        return say("npuperf analyze PATH --ranks {ranks}", ranks=",".join(str(r.rank) for r in own))
    return say("npuperf analyze {path}", path=folder)


def narrow(cluster: Cluster, group: str) -> Cluster:
    """Return the same with the groups of one kind, or one group, alone, their operations and the links within them.

    Raises UsageError where there is no such group.
    """
    chosen = [g for g in cluster.groups if group in (g.group, g.kind)]
    if not chosen:
        known = dict.fromkeys(g.kind or g.group for g in cluster.groups)
        raise UsageError(say("--group {group}: no such process group", group=repr(group)),
                         hint=say("there are {groups}", groups=series(known)))  # fmt: skip
    ids, ranks = {g.group for g in chosen}, [set(g.ranks) for g in chosen]
    return structs.replace(
        cluster,
        groups=chosen,
        collectives=[c for c in cluster.collectives if c.group in ids],
        collective_rates=[c for c in cluster.collective_rates if c.group in {g.kind for g in chosen if g.kind}],
        links=[k for k in cluster.links if any(set(k.ranks) <= own for own in ranks)],
    )


def absent(study: JobStudy) -> list[int]:
    """Return the ranks of the job that were not loaded."""
    loaded = {r.rank for r in study.ranks}
    return [r for r in range(study.world.least) if r not in loaded]


def _describe_rank(study: JobStudy, place: int, report: Device | None) -> ClusterRank:
    summary, matched, waits, clocks = study.ranks[place], study.matched, study.waits, study.clocks
    stage = int(study.stages.of[place])
    window = _compared(study, place, report)
    span = window.span_ns if window else summary.end - summary.begin
    rows = (matched.rank == place) & ~waits.alone
    exposed = split_exposed(summary, matched, waits, place, np.array([summary.begin]), np.array([summary.end]))
    clock = None
    if clocks.used[place] and clocks.part[place] == 0:
        low, high = float(clocks.low[place]), float(clocks.high[place])
        slope = float(clocks.drift[place])
        clock = ClockOffset(
            offset_ns=round(float(clocks.offset[place])),
            low_ns=round(low) if np.isfinite(low) else None,
            high_ns=round(high) if np.isfinite(high) else None,
            residual_ns=round(float(np.nan_to_num(clocks.residual[place]))),
            drift_ppm=slope * 1e6 if slope else None,
            operations=int(clocks.used[place]),
        )
    return ClusterRank(
        rank=summary.rank,
        device=summary.device,
        stage=stage if stage >= 0 else None,
        host=summary.host,
        source=summary.source,
        step_ns=span // max(len(summary.step_number), 1),
        compute_ns=summary.compute_ns,
        host_wait_ns=window.host_wait_ns if window and summary.host_ns is not None else summary.host_ns,
        idle_ns=window.idle_ns if window else None,
        comm=RankCommunication(
            total_ns=int(matched.stay[rows].sum()),
            transfer_ns=int(waits.transfer[rows].sum()),
            wait_ns=int(waits.wait[rows].sum()),
            unknown_ns=int(waits.unknown[rows].sum()),
            wait_by_kind=by_kind(matched, waits.wait, rows),
            exposed_transfer_ns=int(exposed.transfer[0] - exposed.alone[0]),
            exposed_wait_ns=int(exposed.wait[0]),
            exposed_unknown_ns=int(exposed.unknown[0]),
        ),
        clock=clock,
    )


def _compared(study: JobStudy, place: int, report: Device | None) -> Partition | None:
    """Return how a rank split the time that is compared: that of the steps that all ranks recorded.

    None where that is not known: also of a rank whose clock was set, and whose split shows it.
    """
    steps = study.counted.compared
    if any(jump.place == place for jump in study.jumps):
        return None
    if report is None or steps is None:
        return report.window if report else None
    own = [s.partition for s in report.steps if s.step + study.counted.moved[place] in steps]
    return add(own) if len(own) == len(steps) else None


def _groups(study: JobStudy) -> list[ClusterGroup]:
    matched, waits = study.matched, study.waits
    there = matched.instance >= 0
    size = len(matched.groups)
    transfer, least, unknown = (np.bincount(matched.group[there], weights=v[there], minlength=size)
                                for v in (waits.transfer, waits.wait, waits.unknown))  # fmt: skip
    count = np.bincount(matched.instance_group, minlength=size)
    lost = np.bincount(matched.group[~there & ~waits.alone & (matched.group >= 0)], minlength=size)
    loaded = {r.rank for r in study.ranks}
    found = [
        ClusterGroup(
            group=g.id,
            kind=g.kind,
            ranks=list(g.ranks),
            missing=[r for r in g.ranks if r not in loaded],
            complete=g.complete,
            inferred=g.inferred,
            operations=int(count[i]),
            unmatched=int(lost[i]),
            transfer_ns=int(transfer[i]),
            wait_ns=int(least[i]),
            unknown_ns=int(unknown[i]),
        )
        for i, g in enumerate(matched.groups)
        if not g.single and (count[i] or lost[i])
    ]
    return sorted(found, key=lambda g: -g.wait_ns)


def _stages(study: JobStudy) -> list[Stage]:
    if not study.stages.real or study.bubble is None:
        return []
    found = []
    for stage in range(study.stages.count):
        places = study.stages.ranks(stage)
        if not len(places):
            continue
        ranks = [study.ranks[int(p)] for p in places]
        compute = [r.compute_ns for r in ranks if r.compute_ns is not None]
        vendor = [r.vendor_bubble_ns for r in ranks if r.vendor_bubble_ns is not None]
        found.append(
            Stage(
                stage=stage,
                ranks=[r.rank for r in ranks],
                compute_ns=round(sum(compute) / len(compute)) if compute else 0,
                bubble_ns=round(float(study.bubble.wait[places].mean())),
                window_ns=round(float(study.bubble.window[places].mean())),
                vendor_bubble_ns=round(sum(vendor) / len(vendor)) if vendor else None,
            )
        )
    return found


def _pipeline(study: JobStudy, stages: list[Stage]) -> Pipeline | None:
    if study.bubble is None or len(stages) < study.stages.count or not all(s.compute_ns for s in stages):
        return None
    compute = [s.compute_ns for s in stages]
    schedule = study.schedule
    gain = next((c.gain for c in study.causes if c.kind == "stage"), None)
    return Pipeline(
        stages=len(stages),
        micro_batches=schedule.micro_batches if schedule else None,
        interleaving=schedule.chunks if schedule else None,
        schedule=schedule.name if schedule else None,
        why=schedule.why if schedule else None,
        imbalance=max(compute) * len(compute) / sum(compute),
        max_over_min=max(compute) / min(compute),
        schedule_share=schedule.share(len(stages)) if schedule else None,
        bubble_share=sum(s.bubble_ns for s in stages) / max(len(stages) * max(s.window_ns for s in stages), 1),
        schedule_wait_ns=round(fsum(c.wait for c in study.causes if c.kind == "schedule")),
        imbalance_wait_ns=round(fsum(c.wait for c in study.causes if c.kind == "stage" or c.uneven)),
        pipelines=min(len(s.ranks) for s in stages),
        gain_ns_per_step=per_step(gain, study) if gain else None,
        in_time=study.in_time,
    )


def per_step(gain: tuple[float, float], study: JobStudy) -> tuple[int, int]:
    """Return a gain of the job per step, never above the step."""
    step = study.length / study.step_count
    least, most = (min(g / study.step_count, step) for g in gain)
    return int(least), int(most)


def _roots(study: JobStudy) -> list[Root]:
    """Return the roots; rounded, their waiting still adds up to all that was blamed."""
    absent = int(study.waits.absent.sum())
    total = fsum(c.wait for c in study.causes) + absent
    ends = np.rint(np.cumsum([c.wait for c in study.causes])).astype(np.int64)
    waits = np.diff(np.concatenate([[0], ends])).tolist()
    found = [
        root(study, cause, wait, wait / total if total else 0.0, per_step(cause.gain, study) if cause.gain else None)
        for cause, wait in zip(study.causes, waits, strict=True)
        if wait or cause.behind or (cause.kind in ("group", "link") and cause.gain is not None)
    ]
    if absent:  # nobody can mend it here, but it is more than a guess
        title, next_ = absent_in_words(study)
        found.append(Root(kind="unknown", ranks=[], why="unknown", wait_ns=absent, share=absent / total,
                          gain_ns_per_step=None, where=None, title=title, next=next_))  # fmt: skip
    return found


def absent_in_words(study: JobStudy) -> tuple[Message, Message]:
    """Say for whom that was not loaded the others waited, as parts of their operations tell, and what to do."""
    whom = study.awaited[0].name
    title = say("waiting for {whom}, not loaded (inferred: Notify_Wait before the first transfer)", whom=whom)
    if len(study.awaited) > 1:
        title = say("waiting for ranks that were not loaded, longest for {whom} (inferred: Notify_Wait before the "
                    "first transfer)", whom=whom)  # fmt: skip
    return title, say("load {whom}: only its own files tell why it came late", whom=whom)


def _collectives(study: JobStudy) -> list[Collective]:
    """List the operations in which most was waited."""
    matched, waits, clocks = study.matched, study.waits, study.clocks
    least = np.add.reduceat(waits.wait[matched.members], matched.starts)
    bounds = [*matched.starts.tolist(), len(matched.members)]
    found = []
    for i in np.argsort(-least, kind="stable")[:_COLLECTIVES].tolist():
        rows = matched.members[bounds[i] : bounds[i + 1]]
        rows = rows[np.argsort(matched.rank[rows], kind="stable")]
        group, places = matched.groups[int(matched.instance_group[i])], matched.rank[rows]
        arrival = clocks.corrected(places, matched.start[rows])
        order = np.sort(waits.wait[rows])
        floor = 3 * float(np.nan_to_num(clocks.residual[places]).max())
        separable = len(set(clocks.part[places].tolist())) == 1
        last = int(waits.last[i])
        summary = study.ranks[int(matched.rank[last])]
        name = summary.operations.name[last - int(matched.first[matched.rank[last]])]
        step = int(matched.step[rows[0]])
        collective = Collective(
            step=step if step >= 0 else None,
            name=name or "N/A",
            group=group.id,
            kind=kind_name(group.kind, group.id),
            ranks=[study.ranks[int(p)].rank for p in places],
            complete=bool(matched.complete[i]),
            transfer_ns=int(waits.transfer[rows].max()),
            unknown_ns=int((waits.transfer[rows] + waits.unknown[rows]).max() - waits.transfer[rows].max()),
            wait_ns=waits.wait[rows].tolist(),
            arrival_ns=(arrival - arrival.min()).tolist() if separable else None,
            last=summary.rank if matched.complete[i] and len(order) > 1 and order[1] > floor else None,
        )
        found.append(collective)
    return found


def _notes(study: JobStudy, cut: Mapping[int, Message]) -> list[Message]:
    """Say what could not be told, and what would tell it."""
    notes = _of_steps(study)
    if cut:
        notes.append(say_n("rank {ranks} was read, but is left out of the job: {why}",
                           "ranks {ranks} were read, but are left out of the job; of the first: {why}", len(cut),
                           ranks=series(_few(sorted(cut))), why=cut[min(cut)]))  # fmt: skip
    missing = [rank for rank in absent(study) if rank not in cut]
    if missing:
        notes.append(say_n("{n} rank of the job was not loaded ({ranks}): waits in its groups are lower bounds",
                           "{n} ranks of the job were not loaded ({ranks}): waits in their groups are lower bounds",
                           len(missing), ranks=series(_few(missing))))  # fmt: skip
    elif study.world.size is None and study.waits.unknown[~study.waits.known].any():
        notes.append(say("how many ranks the job has is not recorded, so it cannot be told what of its operations is "
                         "waiting for ranks that were not loaded: load all, or say that these are (--world-size {n})",
                         n=study.world.least))  # fmt: skip
    notes += _of_clocks(study)
    wrong, rows = study.left_out
    if wrong:
        notes.append(say_n("{n} operation was left out: its times contradict the others'",
                           "{n} operations were left out: their times contradict the others'", wrong))  # fmt: skip
    lost = int(np.count_nonzero((study.matched.instance < 0) & ~study.waits.alone)) - rows
    if lost:
        notes.append(say_n("{n} operation was found on one rank only, or could not be matched: it is neither waiting "
                           "nor transfer",
                           "{n} operations were found on one rank only, or could not be matched: they are neither "
                           "waiting nor transfer", lost))  # fmt: skip
    several = sum(int(np.count_nonzero(r.operations.peer == SEVERAL)) for r in study.ranks)
    if several:
        notes.append(say_n("{n} batch of sends and receives is with several ranks, or may be: who waits for whom in it "
                           "cannot be told, as it can where it is with one, or with all others of its group",
                           "{n} batches of sends and receives are with several ranks, or may be: who waits for whom in "
                           "them cannot be told, as it can where they are with one, or with all others of their group",
                           several))  # fmt: skip
    begin = np.array([r.begin for r in study.ranks], np.int64)
    apart = np.abs(begin - int(np.median(begin)))
    far = [r.rank for i, r in enumerate(study.ranks) if apart[i] > r.end - r.begin]
    if far:  # their windows have nothing in common with the others'
        notes.append(say_n("times of rank {ranks} are up to {apart} from the others': its clock is wrong, or it was "
                           "recorded at another time, and then nobody waited for it",
                           "times of ranks {ranks} are up to {apart} from the others': their clocks are wrong, or they "
                           "were recorded at another time, and then nobody waited for them",
                           len(far), ranks=series(_few(far)), apart=ns(int(apart.max()))))  # fmt: skip
    if study.stages.guessed:
        notes.append(say("no process group is called a pipeline (pp): ranks that exchange point to point one after the "
                         "other, and of which all but the first begin by waiting, are taken for one"))  # fmt: skip
    untold = [r for r in study.ranks if r.host_ns is None]
    if any(r.kineto for r in untold):
        notes.append(say("launches are not recorded on every rank, so slow hosts cannot be told from other delays"))
    elif untold:
        notes.append(say("launches are not recorded on every rank, so slow hosts cannot be told from other delays "
                         "(record with npuperf profile --level 1)"))  # fmt: skip
    return notes


def _of_clocks(study: JobStudy) -> list[Message]:
    """Say whose clocks were set while they were recorded."""
    notes = []
    for jump in study.jumps[:_RANKS]:
        rank, by = study.ranks[jump.place].rank, ns(abs(jump.by))
        ahead = say("the clock of rank {rank} was set {by} ahead while it was recorded: its times after that are "
                    "corrected, but drawn as recorded", rank=rank, by=by)  # fmt: skip
        back = say("the clock of rank {rank} was set {by} back while it was recorded: what came just before and after "
                   "mixes up", rank=rank, by=by)  # fmt: skip
        notes.append(ahead if jump.by < 0 else back)
    return notes


def _of_steps(study: JobStudy) -> list[Message]:
    """Say which ranks count their steps otherwise, and which steps are left out."""
    counted, notes = study.counted, []
    ranks = [r.rank for r in study.ranks]
    if counted.compared:
        of: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank, steps in zip(ranks, counted.recorded, strict=True):
            of[steps].append(rank)
        each = sorted(of.items(), key=lambda item: len(item[1]))
        shown = series(say_n("rank {ranks} has {steps}", "ranks {ranks} have {steps}", len(own),
                             ranks=series(_few(own)), steps=ranges(steps))
                       for steps, own in each[:_RANKS])  # fmt: skip
        notes.append(say_n("not all ranks have the same whole steps ({shown}): step {steps} is compared, which all "
                           "have",
                           "not all ranks have the same whole steps ({shown}): steps {steps} are compared, which all "
                           "have", len(counted.compared), shown=shown, steps=ranges(counted.compared)))  # fmt: skip
    for by in sorted({by for by in counted.moved if by}):
        own = [rank for rank, moved in zip(ranks, counted.moved, strict=True) if moved == by]
        notes.append(say_n("rank {ranks} numbers its steps otherwise ({by}): its collectives tell which step is which",
                           "ranks {ranks} number their steps otherwise ({by}): their collectives tell which step is "
                           "which", len(own), ranks=series(_few(own)), by=f"{-by:+d}"))  # fmt: skip
    return notes


def ranges(numbers: Sequence[int]) -> Series:
    """Return numbers, those in a row by their first and last."""
    return series(in_rows(numbers)[:_RANKS])


def _few(numbers: list[int]) -> list[str]:
    shown = [str(n) for n in numbers[:_RANKS]]
    return [*shown, "…"] if len(numbers) > _RANKS else shown


# -- Experts: grouped matmuls whose ranks have different loads, so that all wait for the fullest one.

#: What programs call the groups over which experts are spread: Megatron exp or ep, MindSpeed exp, vLLM ep.
_KINDS: Final = frozenset({"ep", "exp", "expert", "experts", "expert_parallel", "expert_model_parallel", "moe_ep"})


def judge_experts(ranks: Sequence[RankSummary], thresholds: Thresholds) -> list[Experts]:
    """Return the layers of each group of experts whose imbalance costs a notable part of the ranks' time.

    A layer is the n-th grouped matmul of a step. The ranks wait for the longest in every step, whichever it is.
    """
    by_rank = {s.rank: s for s in ranks}
    found: list[Experts] = []
    groups = (g for s in ranks for g in s.groups if (g.kind or "").lower() in _KINDS and len(g.ranks) > 1)
    for group in {tuple(sorted(g.ranks)): g for g in groups}.values():
        layers = _layers(group, [by_rank[r] for r in group.ranks if r in by_rank])
        window = np.mean([by_rank[r].end - by_rank[r].begin for r in layers[0].ranks]) if layers else 0
        if sum(layer.lost_ns for layer in layers) > thresholds.lost_share * window:
            found += layers
    return sorted(found, key=lambda e: (-e.lost_ns, e.group, e.layer))


def _layers(group: ProcessGroup, ranks: Sequence[RankSummary]) -> list[Experts]:
    """Compare the ranks of a group matmul by matmul; those with another number of matmuls are left out."""
    placed = []  # of each rank its matmuls, the step of each (from 0) and its number in it; -1 outside of steps
    for summary in ranks:
        experts = summary.experts
        if experts is None or not len(experts.ns):
            continue
        step, inside = np.zeros(len(experts.start), np.int64), np.ones(len(experts.start), np.bool_)
        if len(summary.step_start):
            step = np.searchsorted(summary.step_start, experts.start, side="right") - 1
            inside = (step >= 0) & (experts.start < summary.step_end[step])
        nth = np.arange(len(step)) - np.searchsorted(step, step, side="left")
        placed.append((summary.rank, experts, np.where(inside, step, -1), np.where(inside, nth, -1)))
    forms = [(step.tobytes(), nth.tobytes()) for _, _, step, nth in placed]
    usual = max(forms, key=Counter(forms).__getitem__, default=None)
    same = [row for row, form in zip(placed, forms, strict=True) if form == usual]
    if len(same) < 2:
        return []
    layer_of = same[0][3]
    found = []
    for layer in distinct(layer_of[layer_of >= 0]).tolist():
        times = np.stack([e.ns[layer_of == layer] for _, e, _, _ in same])  # [rank, step]
        tokens = np.stack([e.tokens[layer_of == layer] for _, e, _, _ in same])
        longest, mean = int(times.max(axis=0).sum()), float(times.mean(axis=0).sum())
        layers = Experts(
            group=group.id,
            ranks=[rank for rank, _, _, _ in same],
            layer=layer,
            time_ns=times.sum(axis=1).tolist(),
            tokens=[None if (mine < 0).any() else int(mine.sum()) for mine in tokens],
            imbalance=longest / mean if mean else 1.0,
            lost_ns=int(longest - mean),
        )
        found.append(layers)
    return found

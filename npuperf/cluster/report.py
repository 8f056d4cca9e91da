"""The job's part of the document, from what was worked out: ranks, groups, stages, links, collectives, roots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import structs

from npuperf.cluster.experts import judge_experts
from npuperf.cluster.judge import JobStudy
from npuperf.cluster.root_causes import RootCause
from npuperf.cluster.root_text import root
from npuperf.cluster.waits import by_kind, kind_name, split_exposed
from npuperf.documents.analysis import Device
from npuperf.documents.cluster import (
    ClockOffset,
    Cluster,
    ClusterGroup,
    ClusterRank,
    ClusterReplay,
    Collective,
    Pipeline,
    RankCommunication,
    Root,
    Stage,
)
from npuperf.errors import UsageError
from npuperf.messages import Message, ns, say, say_n, series
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds

#: Operations that are listed: those with most waiting.
_COLLECTIVES: Final = 200
_NAMED: Final = 8


def describe_job(study: JobStudy, devices: Sequence[Device], thresholds: Thresholds) -> Cluster:
    """Return the job's part of the document. ``devices``: the reports of all of its ranks, in any order."""
    reports = {(d.source, d.device): d for d in devices}
    step = round(study.length / study.step_count)
    return Cluster(
        step_ns=step,
        steps=study.step_count,
        ranks=[_rank(study, i, reports) for i in range(len(study.ranks))],
        groups=_groups(study),
        stages=_stages(study),
        links=list(study.links),
        roots=_roots(study),
        collectives=_collectives(study),
        pipeline=_pipeline(study),
        experts=judge_experts(study.ranks, thresholds),
        replay=ClusterReplay(
            usable=study.usable,
            error=study.error,
            measured_ns=round(study.length),
            reason=None if study.usable else say("the replay over all ranks misses the measured time"),
        ),
        world_size=study.world,
        absent=absent(study),
        notes=_notes(study),
    )


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
        links=[k for k in cluster.links if any(set(k.ranks) <= own for own in ranks)],
    )


def absent(study: JobStudy) -> list[int]:
    """Return the ranks of the job that were not loaded."""
    loaded = {r.rank for r in study.ranks}
    return [r for r in range(study.world or 0) if r not in loaded]


def _rank(study: JobStudy, place: int, reports: dict[tuple[str, int], Device]) -> ClusterRank:
    summary = study.ranks[place]
    report = reports.get((summary.source, summary.device))
    stage = int(study.stages.of[place])
    span = report.window.span_ns if report else summary.end - summary.begin
    steps = max(len(summary.step_number), 1)
    return ClusterRank(
        rank=summary.rank,
        device=summary.device,
        stage=stage if stage >= 0 else None,
        host=summary.host,
        source=summary.source,
        step_ns=span // steps,
        compute_ns=summary.compute_ns,
        host_wait_ns=summary.host_ns,
        idle_ns=report.window.idle_ns if report else None,
        comm=_communication(study, place),
        clock=_clock(study, place),
    )


def _communication(study: JobStudy, place: int) -> RankCommunication:
    matched, waits = study.matched, study.waits
    rows = (matched.rank == place) & ~waits.alone
    edge = np.array([study.ranks[place].begin], np.int64), np.array([study.ranks[place].end], np.int64)
    exposed = split_exposed(study.ranks[place], matched, waits, place, *edge)
    return RankCommunication(
        total_ns=int(matched.stay[rows].sum()),
        transfer_ns=int(waits.transfer[rows].sum()),
        wait_ns=int(waits.wait[rows].sum()),
        unknown_ns=int(waits.unknown[rows].sum()),
        wait_by_kind=by_kind(matched, waits.wait, rows),
        exposed_transfer_ns=int(exposed.transfer[0] - exposed.alone[0]),
        exposed_wait_ns=int(exposed.wait[0]),
        exposed_unknown_ns=int(exposed.unknown[0]),
    )


def _clock(study: JobStudy, place: int) -> ClockOffset | None:
    clocks = study.clocks
    if not clocks.used[place] or clocks.part[place] != 0:
        return None
    low, high = float(clocks.low[place]), float(clocks.high[place])
    slope = float(clocks.drift[place])
    return ClockOffset(
        offset_ns=round(float(clocks.offset[place])),
        low_ns=round(low) if np.isfinite(low) else None,
        high_ns=round(high) if np.isfinite(high) else None,
        residual_ns=round(float(np.nan_to_num(clocks.residual[place]))),
        drift_ppm=slope * 1e6 if slope else None,
        operations=int(clocks.used[place]),
    )


def _groups(study: JobStudy) -> list[ClusterGroup]:
    matched, waits = study.matched, study.waits
    there = matched.instance >= 0
    size = len(matched.groups)
    transfer, least = (np.bincount(matched.group[there], weights=v[there], minlength=size)
                       for v in (waits.transfer, waits.wait))  # fmt: skip
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


def _pipeline(study: JobStudy) -> Pipeline | None:
    stages = _stages(study)
    if study.bubble is None or len(stages) < study.stages.count or not all(s.compute_ns for s in stages):
        return None
    compute = [s.compute_ns for s in stages]
    micro = study.micro_batches
    window = [w.window_ns for w in stages]
    pipelines = min(len(s.ranks) for s in stages)
    gain = next((c.gain for c in study.causes if c.kind == "stage"), None)
    return Pipeline(
        stages=len(stages),
        micro_batches=micro,
        interleaving=1 if micro is not None else None,
        imbalance=max(compute) * len(compute) / sum(compute),
        max_over_min=max(compute) / min(compute),
        schedule_share=(len(stages) - 1) / (micro + len(stages) - 1) if micro is not None else None,
        bubble_share=sum(s.bubble_ns for s in stages) / max(len(stages) * max(window), 1),
        schedule_wait_ns=round(sum(c.wait for c in study.causes if c.kind == "schedule")),
        imbalance_wait_ns=round(sum(c.wait for c in study.causes if c.kind == "stage" or c.uneven)),
        pipelines=pipelines,
        gain_ns_per_step=per_step(gain, study) if gain else None,
    )


def per_step(gain: tuple[float, float], study: JobStudy) -> tuple[int, int]:
    """Return a gain of the job per step, never above the step."""
    step = study.length / study.step_count
    least, most = (min(g / study.step_count, step) for g in gain)
    return int(least), int(most)


def _roots(study: JobStudy) -> list[Root]:
    """Return the roots; rounded, their waiting still adds up to all that was blamed."""
    total = sum(c.wait for c in study.causes)
    ends = np.rint(np.cumsum([c.wait for c in study.causes])).astype(np.int64)
    waits = np.diff(np.concatenate([[0], ends])).tolist()
    return [
        root(study, cause, wait, wait / total if total else 0.0, per_step(cause.gain, study) if cause.gain else None)
        for cause, wait in zip(study.causes, waits, strict=True)
        if wait or _counts(cause)
    ]


def _counts(cause: RootCause) -> bool:
    return cause.kind in ("group", "link") and cause.gain is not None


def _collectives(study: JobStudy) -> list[Collective]:
    """List the operations in which most was waited."""
    matched, waits = study.matched, study.waits
    if not matched.instances:
        return []
    least = np.add.reduceat(waits.wait[matched.members], matched.starts)
    bounds = [*matched.starts.tolist(), len(matched.members)]
    found = []
    for i in np.argsort(-least, kind="stable")[:_COLLECTIVES].tolist():
        rows = matched.members[bounds[i] : bounds[i + 1]]
        rows = rows[np.argsort(matched.rank[rows], kind="stable")]
        found.append(_collective(study, i, rows))
    return found


def _collective(study: JobStudy, instance: int, rows: I64) -> Collective:
    matched, waits, clocks = study.matched, study.waits, study.clocks
    group = matched.groups[int(matched.instance_group[instance])]
    places = matched.rank[rows]
    arrival = clocks.corrected(places, matched.start[rows])
    order = np.sort(waits.wait[rows])
    floor = 3 * float(np.nan_to_num(clocks.residual[places]).max())
    separable = len(set(clocks.part[places].tolist())) == 1
    last = int(waits.last[instance])
    summary = study.ranks[int(matched.rank[last])]
    name = summary.operations.name[last - int(matched.first[matched.rank[last]])]
    step = int(matched.step[rows[0]])
    return Collective(
        step=step if step >= 0 else None,
        name=name or "N/A",
        group=group.id,
        kind=kind_name(group.kind, group.id),
        ranks=[study.ranks[int(p)].rank for p in places],
        complete=bool(matched.complete[instance]),
        transfer_ns=int((matched.stay[rows] - waits.wait[rows])[0]),
        wait_ns=waits.wait[rows].tolist(),
        arrival_ns=(arrival - arrival.min()).tolist() if separable else None,
        last=summary.rank if len(order) > 1 and order[1] > floor else None,
    )


def _notes(study: JobStudy) -> list[Message]:
    """Say what could not be told, and what would tell it."""
    notes = []
    missing = absent(study)
    if missing:
        notes.append(say_n("{n} rank of the job was not loaded ({ranks}): waits in its groups are lower bounds",
                           "{n} ranks of the job were not loaded ({ranks}): waits in their groups are lower bounds",
                           len(missing), ranks=series(_few(missing))))  # fmt: skip
    wrong = int(np.count_nonzero(study.clocks.wrong))
    if wrong:
        notes.append(say_n("{n} operation was left out: its times contradict the others'",
                           "{n} operations were left out: their times contradict the others'", wrong))  # fmt: skip
    lost = int(np.count_nonzero((study.matched.instance < 0) & ~study.waits.alone))
    if lost:
        notes.append(say_n("{n} operation was found on one rank only, or could not be matched: it is neither waiting "
                           "nor transfer",
                           "{n} operations were found on one rank only, or could not be matched: they are neither "
                           "waiting nor transfer", lost))  # fmt: skip
    notes += _elsewhen(study)
    if study.stages.guessed:
        notes.append(say("no process group is called a pipeline (pp): groups whose ranks exchange point to point, and "
                         "all but the first begin by waiting, are taken for one"))  # fmt: skip
    untold = [r for r in study.ranks if r.host_ns is None]
    if any(r.kineto for r in untold):
        notes.append(say("launches are not recorded on every rank, so slow hosts cannot be told from other delays"))
    elif untold:
        notes.append(say("launches are not recorded on every rank, so slow hosts cannot be told from other delays "
                         "(record with npuperf profile --level 1)"))  # fmt: skip
    return notes


def _elsewhen(study: JobStudy) -> list[Message]:
    """Say which ranks' times are so far from the others' that their windows have nothing in common."""
    begin = np.array([r.begin for r in study.ranks], np.int64)
    apart = np.abs(begin - int(np.median(begin)))
    far = [i for i, r in enumerate(study.ranks) if apart[i] > r.end - r.begin]
    if not far:
        return []
    named, most = series(_few([study.ranks[i].rank for i in far])), ns(int(apart.max()))
    return [say_n("times of rank {ranks} are up to {apart} from the others': its clock is wrong, or it was recorded at "
                  "another time, and then nobody waited for it",
                  "times of ranks {ranks} are up to {apart} from the others': their clocks are wrong, or they were "
                  "recorded at another time, and then nobody waited for them",
                  len(far), ranks=named, apart=most)]  # fmt: skip


def _few(numbers: list[int]) -> list[str]:
    shown = [str(n) for n in numbers[:_NAMED]]
    return [*shown, "…"] if len(numbers) > _NAMED else shown

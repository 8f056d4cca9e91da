"""Several devices that wait for each other: one job, with its own part of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.advise import advise_job, within_job, without_alone
from npuperf.analyze.devices import AllDevices, each_for_itself, rated, verdict_of_sum, with_rates
from npuperf.analyze.digests import group_kind, judged_windows, places_of
from npuperf.analyze.examine import Examined, unanswered
from npuperf.analyze.request import Question
from npuperf.base.messages import Message, Quantity, chain, ns, say, say_n, series, share
from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_report import absent_in_words, describe_job, describe_runs, narrow, per_step, ranges
from npuperf.job.job_study import JobSplit, JobStudy, SeveralRuns, split_job, study_job
from npuperf.job.job_whatif import answers, from_nothing, keep_pace, may_bring_nothing, predict
from npuperf.job.waits import split_each, split_exposed
from npuperf.model.groups import numbered
from npuperf.model.intervals import Intervals
from npuperf.model.job_result import Cluster, Root
from npuperf.model.labels import Labels
from npuperf.model.parts import Part, PartSum
from npuperf.model.result import Bound, Device, Elasticity, Verdict, WhatIf
from npuperf.model.thresholds import Thresholds


def waited(study: JobStudy, device: Device) -> int:
    """Return how long a device waited for others of the job, ns."""
    place = place_of(study, device)
    return int(study.waited[place]) if place >= 0 else 0


def place_of(study: JobSplit, device: Device) -> int:
    """Return where a device stands among the ranks of the job; negative: it is none of them."""
    return study.places.get((device.source, device.device, device.rank), -1)


# -- Exposed communication of one rank within a job, by kind of group: on its way, waiting for others, unknown.

_PARTS: Final[tuple[Part, ...]] = ("transfer", "wait", "comm_unknown")


def exposed_parts(study: JobSplit, place: int, exposed: Sequence[int], windows: Intervals) -> tuple[PartSum, ...]:
    """Split what is exposed (ns) in each window of the rank at ``place`` as its partitions are split, and by group.

    Counted are the operations that begin in the windows: all may wait, and each is transfer or cannot be split. What no
    operation covers is unknown and of no group, and so are windows in which operations tell more than tasks do.
    """
    matched, whole = study.matched, study.ranks[place]
    mine = slice(*matched.first[place : place + 2].tolist())
    # Of what kind the group of each operation is; else its size, where files tell it, or the collective.
    own, group = numbered(matched.group[mine])
    groups = [matched.groups[code] if code >= 0 else None for code in own.tolist()]
    names = [g and group_kind(g.kind, () if g.inferred else g.ranks) for g in groups]
    types = Labels(matched.type[mine].astype(np.int32), matched.types)
    keys = Labels.of(names).take(group).fill(types).compact()
    kinds = [(None, ~keys.known()), *((name, keys.codes == code) for code, name in enumerate(keys.names))]
    rows = [those[whole.exposed_op] for _, those in kinds]
    splits = split_each(whole, matched, study.waits, place, windows.start, windows.end, rows)
    told = sum((split.transfer + split.wait for split in splits), np.zeros(len(windows), np.int64))
    usable = told <= np.array(exposed, np.int64)
    rest = sum(exposed) - int(told[usable].sum())
    unknown = [int(split.unknown[usable].sum()) for split in splits]
    if sum(unknown) > rest:
        unknown = [0] * len(splits)
    # Without kernels windows have no place in time, so that all operations count.
    start, known = whole.operations.start, study.waits.known[mine]
    begun = places_of(start, windows) >= 0 if whole.span_ns is None else np.ones(len(start), np.bool_)
    found = [PartSum(part="comm_unknown", key=None, ns=rest - sum(unknown), count=0)]
    for (key, those), split, untold in zip(kinds, splits, unknown, strict=True):
        times = int(split.transfer[usable].sum()), int(split.wait[usable].sum()), untold
        counts = (int(np.count_nonzero(begun & those & chosen)) for chosen in (known, begun, ~known))
        rows_of_key = zip(_PARTS, times, counts, strict=True)
        found += [PartSum(part=part, key=key, ns=ns, count=count) for part, ns, count in rows_of_key]
    return tuple(part for part in found if part.ns or part.count)


#: Waiting of a smaller part is not worth a word; ranks that are waited for, and named.
_NOTABLE: Final = 0.05
_LATEST: Final = 3
#: What every report of a job shows.
_STANDARD: Final[tuple[tuple[str, Message], ...]] = (
    ("compute*0.9", say("all ranks compute a tenth faster")),
    ("comm*0.5", say("transfers twice as fast")),
    ("host*0.5", say("all hosts twice as fast")),
)


def as_one_job(examined: Sequence[Examined], request: Question, thresholds: Thresholds) -> AllDevices | None:
    """Study the devices as one job; None where they have no operations in common, and nothing tells why."""
    summaries = [e.summary for e in examined if e.summary is not None]
    study = study_job(summaries, thresholds, request.world_size)
    if study is None:
        if len({s.rank for s in summaries}) < 2 or not all(s.operations.p2p.all() for s in summaries):
            return None
        told = each_for_itself(rated(examined, thresholds), request, thresholds, different_runs=False)
        why = say("not shown as one job: sends and receives name no peer here, and no collective of these ranks brings "
                  "their clocks together, by which both ends would be found")  # fmt: skip
        return replace(told, verdict=replace(told.verdict, reason=chain(told.verdict.reason, why)))
    if isinstance(study, SeveralRuns):
        return _as_several_runs(study, examined, request, thresholds)
    devices = [_with_exposed(study, e, thresholds) for e in examined]
    cut = {e.report.rank: e.excerpt for e in examined
           if e.summary is None and e.excerpt is not None and e.report.rank is not None}  # fmt: skip
    cluster = describe_job(study, devices, thresholds, cut | study.mixed)
    findings = advise_job(study, cluster, thresholds, request.rules)
    waits = [waited(study, d) for d in devices]
    for e, wait in zip(examined, waits, strict=True):
        own = without_alone(e.findings, e.report, study)
        findings += may_bring_nothing(own, e.report, wait, thresholds.cause_share)
    what_if = keep_pace(devices, [e.what_if for e in examined], waits, thresholds.cause_share)
    if study.waits.unknown[~study.waits.known].any():
        what_if = [from_nothing(mine) for mine in what_if]
    verdict = None if study.elasticity is None else _verdict(study, cluster, study.elasticity)
    if request.group is not None:
        cluster = narrow(cluster, request.group)
    return AllDevices(
        devices=devices,
        findings=findings,
        what_if=[*_job_what_if(study, cluster, request.what_if), *(w for mine in what_if for w in mine)],
        verdict=verdict or verdict_of_sum(examined, devices, thresholds),
        cluster=cluster,
        exposed=[_exposed(study, d) for d in devices],
    )


def _as_several_runs(
    found: SeveralRuns, examined: Sequence[Examined], request: Question, thresholds: Thresholds
) -> AllDevices:
    """Let every device stand for itself, and say which ranks are of one run, and why not all are."""
    together = each_for_itself(rated(examined, thresholds), request, thresholds, different_runs=True)
    runs = describe_runs(found)
    named = (say_n("rank {ranks}", "ranks {ranks}", len(run.ranks), ranks=ranges(run.ranks)) for run in runs)
    each = (say_n("rank {ranks}: {step} per step ({next})", "ranks {ranks}: {step} per step ({next})", len(run.ranks),
                  ranks=ranges(run.ranks), step=ns(run.step_ns), next=run.next) if run.step_ns is not None else run.next
            for run in runs)  # fmt: skip
    why = chain(*(run.apart for run in runs))
    reason = chain(say("not of one job: {runs} ({why})", runs=series(named), why=why), *each)
    return replace(together, runs=runs, verdict=Verdict(bound="unknown", basis="measured", reason=reason))


def as_part_of_job(
    examined: Sequence[Examined], others: Sequence[RankSummary], request: Question, thresholds: Thresholds
) -> AllDevices | None:
    """Put together what one rank says, and what the operations of the ``others`` say of its waiting; None where they
    have none in common.
    """
    split = split_job([*(e.summary for e in examined if e.summary is not None), *others], request.world_size)
    if split is None or not any(place_of(split, e.report) >= 0 for e in examined):
        return None
    own, waiting = [], thresholds.cause_share
    for e in examined:
        device = _with_exposed(split, e, thresholds)
        if (bounds := e.report.communication) is not None and place_of(split, device) >= 0:
            device = replace(device, communication=replace(bounds, waits=_for_whom(split, device, bounds.waits)))
        waited = device.window.comm_wait_ns
        findings = may_bring_nothing(within_job(e.findings, device, thresholds), device, waited, waiting)
        follows = waited >= waiting * device.window.span_ns
        own.append(replace(e, report=device, findings=findings,
                           what_if=from_nothing(e.what_if, every=True) if follows else e.what_if))  # fmt: skip
    told = each_for_itself(own, request, thresholds, different_runs=False)
    waits = own[0].report.communication.waits if own[0].report.communication else None
    if told.verdict.bound == "communication" and waits is not None:
        told = replace(told, verdict=replace(told.verdict, reason=chain(told.verdict.reason, waits)))
    return replace(told, exposed=[_exposed(split, e.report) for e in own])


def _for_whom(split: JobSplit, device: Device, alone: Message | None) -> Message | None:
    """Say for which ranks a rank of the job waited, None where that is nothing notable; of what it waited for ranks
    that were not loaded its own files tell more (``alone``).
    """
    place, matched = place_of(split, device), split.matched
    summary, op = split.ranks[place], matched.first[place] + split.ranks[place].exposed_op
    until = matched.start[op] + split.waits.here[op]  # the wait comes first
    waited = np.clip(until, summary.exposed_start, summary.exposed_end) - summary.exposed_start
    judged = places_of(summary.exposed_start, _windows(split, device)) >= 0
    inside = (matched.instance[op] >= 0) & (judged | (summary.span_ns is not None))
    last = matched.rank[split.waits.last[matched.instance[op[inside]]]]
    spent = np.bincount(last, waited[inside], len(split.ranks))
    whole = device.window.comm_wait_ns
    if 2 * spent.sum() < whole:
        return alone
    order = np.argsort(-spent, kind="stable").tolist()[:_LATEST]
    longest = [p for p in order if spent[p] >= _NOTABLE * whole > 0]
    if not longest or whole < _NOTABLE * device.window.comm_exposed_ns:
        return None
    per = max(device.step_count, 1)
    named = (say("rank {rank} ({time})", rank=split.ranks[p].rank, time=ns(round(spent[p] / per))) for p in longest)
    if device.steps:
        return say("per step it waits for {ranks}", ranks=series(named))
    return say("it waits for {ranks}", ranks=series(named))


def _exposed(study: JobSplit, device: Device) -> tuple[PartSum, ...] | None:
    """Return the exposed communication of a device's steps by part and kind of group; None where it cannot be split."""
    place = place_of(study, device)
    if place < 0 or not study.ranks[place].exposed_known:
        return None
    split = [s.partition for s in device.whole_steps] or [device.window]
    return exposed_parts(study, place, [p.comm_exposed_ns for p in split], _windows(study, device))


def _windows(study: JobSplit, device: Device) -> Intervals:
    """Return what is judged of a device, epoch ns of its own clock."""
    numbers, windows = judged_windows(device)
    if device.origin_ns and numbers:
        return windows
    moved = study.ranks[place_of(study, device)].begin - device.origin_ns
    return Intervals(windows.start + moved, windows.end + moved)


def _with_exposed(study: JobSplit, e: Examined, thresholds: Thresholds) -> Device:
    """Split the exposed communication of a device's whole window, its steps and its phases."""
    device, place = e.report, place_of(study, e.report)
    if place < 0 or not study.ranks[place].exposed_known:
        return with_rates(e, thresholds)
    begun, judged = study.ranks[place].begin, device.judged
    origin = device.origin_ns or begun
    whole = begun - origin
    if judged is not None:  # the host's part of steps lies around what the device did
        whole = judged.start_ns - judged.before_ns + judged.host_before_ns
    lasting = [(own.start_ns, own.partition) for own in device.steps]
    lasting += [(own.start_ns, own.partition) for own in device.phases]
    windows = [(whole, device.partition), *([(judged.start_ns, judged.partition)] if judged else []), *lasting]
    start, parts = zip(*windows, strict=True)
    begin = np.array(start, np.int64) + origin
    end = begin + np.array([p.span_ns for p in parts], np.int64)
    found = split_exposed(study.ranks[place], study.matched, study.waits, place, begin, end)
    # What of a window's exposed communication these operations do not cover stays unknown.
    split = iter([
        replace(p, comm_transfer_ns=t, comm_wait_ns=w, comm_unknown_ns=p.comm_exposed_ns - t - w)
        if t + w <= p.comm_exposed_ns
        else p
        for p, t, w in zip(parts, found.transfer.tolist(), found.wait.tolist(), strict=True)
    ])  # fmt: skip
    return replace(
        device,
        communication=device.communication and replace(device.communication, waits=None),  # all ranks tell more
        partition=next(split),
        judged=judged and replace(judged, partition=next(split)),
        steps=[replace(step, partition=next(split)) for step in device.steps],
        phases=[replace(phase, partition=next(split)) for phase in device.phases],
    )


def _job_what_if(study: JobStudy, cluster: Cluster, asked: Sequence[str]) -> list[WhatIf]:
    """Answer what was asked of the job, then what every report shows, then what repairing the roots brings."""
    mine = [e for e in asked if answers(e)]
    found = [_answer(study, e, None) for e in mine]
    repairs = [(f"rank:{r.ranks[0]}=median", say("rank {rank} works like its peers", rank=r.ranks[0]))
               for r in cluster.roots if r.kind == "rank" and len(r.ranks) == 1]  # fmt: skip
    shown = [_answer(study, e, title) for e, title in (*repairs, *_STANDARD) if e not in mine]
    return [*found, *(w for w in shown if w.reason is None)]


def _answer(study: JobStudy, expression: str, title: Message | None) -> WhatIf:
    answer = predict(study, expression)
    if answer.reason is not None:
        return unanswered(expression, answer.reason, title)
    length = max(study.length, 1.0)
    least = max(answer.least, 0.0) if answer.saved >= 0 else answer.least  # what only saves costs nothing
    most = min(answer.most, length)
    return WhatIf(
        expr=expression,
        span_ns=round(study.length - answer.saved),
        gain_pct=100 * answer.saved / length,
        gain_ns_per_step=per_step((least, most), study),
        gain_pct_interval=(100 * least / length, 100 * most / length),
        gain_per="step",
        title=title,
        asked=title is None,
        reason=None,
        rank=None,
        device=None,
    )


# -- The verdict over all ranks: what would shorten the job's step.

#: Ranks that are named.
_RANKS: Final = 8
_TIME: Final[dict[Bound, Message]] = {
    "host": say("host time"),
    "compute": say("compute time"),
    "communication": say("transfer time"),
}


#: The same where ranks are missing: their own waiting for these is in it.
_UNTOLD: Final = say("communication (transfer, or waiting for ranks that were not loaded)")


def _verdict(study: JobStudy, cluster: Cluster, e: Elasticity) -> Verdict:
    """Name the resource that the job's step depends on most, over all ranks, and the root that costs most."""
    values: dict[Bound, float] = {"host": e.host, "compute": e.compute, "communication": e.communication}
    bound = max(values, key=lambda b: values[b])
    evidence: dict[str, float | None] = {f"{name}_elasticity": v for name, v in values.items()}
    evidence["other_elasticity"] = study.other
    waiting = sum(r.comm.exposed_wait_ns for r in cluster.ranks)
    evidence["wait_share"] = waiting / max(cluster.time_of(cluster.ranks), 1)
    unknown = sum(r.comm.exposed_unknown_ns for r in cluster.ranks)
    unknown += int(study.waits.absent.sum())
    apart = unknown <= sum(r.comm.exposed_transfer_ns for r in cluster.ranks)  # most of what is known is transfer
    time = _TIME if apart else {**_TIME, "communication": _UNTOLD}
    lever = say("10 % less {time} on all ranks shortens the step by {effect} ({others})", time=time[bound],
                effect=_tenth(values[bound]),
                others=series(say("10 % less {name} by {effect}", name=time[b], effect=_tenth(v))
                              for b, v in values.items() if b != bound))  # fmt: skip
    # What costs the job most, if somebody can mend it.
    first = next((r for r in cluster.roots if r.kind in ("rank", "stage", "group", "link")), None)
    paced = None if first is None or first.gain_ns_per_step is None else _paced(first, ns(*first.gain_ns_per_step))
    if 2 * study.waits.absent.sum() > study.matched.stay.sum():  # most of all communication
        paced = say("most communication is {what}", what=absent_in_words(study)[0])
    idle = None
    if study.other > values[bound]:
        bound = "unknown"
        idle = say("most of the step depends on time that is neither compute nor transfer, and launches that would "
                   "tell are not recorded")  # fmt: skip
    loaded = len(cluster.ranks)
    partly = cluster.absent or not all(g.complete for g in cluster.groups)  # or nobody knows
    job = (say("over the {n} ranks whose data is whole", n=loaded) if cluster.cut
           else say("over the {n} ranks that were loaded", n=loaded) if partly
           else say_n("over {n} rank", "over all {n} ranks", loaded))  # fmt: skip
    reason = say("{job}: {why}", job=job, why=chain(paced, idle, lever))
    return Verdict(bound=bound, basis="measured", reason=reason, evidence=evidence, elasticity=e)


def _paced(root: Root, gain: Quantity) -> Message:
    if root.kind == "rank" and len(root.ranks) > 1:
        if len(root.ranks) > _RANKS:
            return say("{n} ranks set the pace, the others wait: without their delay the step is {gain} shorter",
                       n=len(root.ranks), gain=gain)  # fmt: skip
        return say("ranks {ranks} set the pace, the others wait: without their delay the step is {gain} shorter",
                   ranks=series(root.ranks), gain=gain)  # fmt: skip
    if root.kind == "rank" and root.steps:
        return say_n("rank {rank} is late in {n} step, the others wait: without that the step is on average {gain} "
                     "shorter",
                     "rank {rank} is late in {n} steps, the others wait: without that the step is on average {gain} "
                     "shorter", len(root.steps), rank=root.ranks[0], gain=gain)  # fmt: skip
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

"""Several devices that wait for each other: one job, with its own part of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import structs

from npuperf.advise import advise_job
from npuperf.analyze.device_digest import judged_windows
from npuperf.analyze.examine import Examined, unanswered
from npuperf.analyze.exposed_kinds import exposed_parts
from npuperf.analyze.request import AnalyzeRequest
from npuperf.analyze.side_by_side import Across, place_of, waited
from npuperf.cluster.changes import predict
from npuperf.cluster.job_grammar import answers
from npuperf.cluster.judge import JobStudy, study_job
from npuperf.cluster.pace import keep_pace
from npuperf.cluster.report import describe_job, narrow, per_step
from npuperf.cluster.waits import split_exposed
from npuperf.documents.analysis import Device, Partition, WhatIf
from npuperf.documents.cluster import Cluster
from npuperf.documents.digest import PartSum
from npuperf.messages import Message, say
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds

#: What every report of a job shows.
_STANDARD: Final[tuple[tuple[str, Message], ...]] = (
    ("compute*0.9", say("all ranks compute a tenth faster")),
    ("comm*0.5", say("transfers twice as fast")),
    ("host*0.5", say("all hosts twice as fast")),
)


def as_one_job(examined: Sequence[Examined], request: AnalyzeRequest, thresholds: Thresholds) -> Across | None:
    """Study the devices as one job; None where they have no operations in common."""
    study = study_job([e.summary for e in examined if e.summary is not None], thresholds)
    if study is None:
        return None
    devices = [_with_exposed(study, e.report) for e in examined]
    cluster = describe_job(study, devices, thresholds)
    findings = advise_job(study, cluster, thresholds, request.rules)
    own = keep_pace(devices, [e.what_if for e in examined], [waited(study, d) for d in devices], thresholds.cause_share)
    if request.group is not None:
        cluster = narrow(cluster, request.group)
    return Across(
        devices=devices,
        what_if=[*_job_what_if(study, cluster, request.what_if), *(w for mine in own for w in mine)],
        findings=findings,
        cluster=cluster,
        study=study,
        exposed=[_exposed(study, d) for d in devices],
    )


def _exposed(study: JobStudy, device: Device) -> tuple[PartSum, ...] | None:
    """Return the exposed communication of a device's steps by part and kind of group; None where it cannot be split."""
    place = place_of(study, device)
    if place < 0 or not study.ranks[place].exposed_known:
        return None
    numbers, windows = judged_windows(device)
    if not device.origin_ns or not numbers:
        begin = study.ranks[place].begin + np.zeros(len(windows), np.int64)
        windows = Intervals(begin, begin + (windows.end - windows.start))
    split = [s.partition for s in device.whole_steps] or [device.window]
    return exposed_parts(study, place, [p.comm_exposed_ns for p in split], windows)


def _with_exposed(study: JobStudy, device: Device) -> Device:
    """Split the exposed communication of a device's whole window, its steps and its phases."""
    place = place_of(study, device)
    if place < 0 or not study.ranks[place].exposed_known:
        return device
    origin = device.origin_ns or study.ranks[place].begin

    def split(parts: list[Partition], start: list[int]) -> list[Partition]:
        begin = np.array(start, np.int64) + origin
        end = begin + np.array([p.span_ns for p in parts], np.int64)
        return _split(study, place, parts, begin, end)

    begun = study.ranks[place].begin - origin
    alike = device.judged is None or device.judged.partition.span_ns == device.partition.span_ns
    (whole,) = split([device.partition], [begun if alike else 0])
    judged = device.judged
    if judged is not None:
        (mine,) = split([judged.partition], [judged.start_ns])
        judged = structs.replace(judged, partition=mine)
    steps = split([s.partition for s in device.steps], [s.start_ns for s in device.steps])
    phases = split([p.partition for p in device.phases], [p.start_ns for p in device.phases])
    return structs.replace(
        device,
        partition=whole,
        judged=judged,
        steps=[structs.replace(s, partition=p) for s, p in zip(device.steps, steps, strict=True)],
        phases=[structs.replace(s, partition=p) for s, p in zip(device.phases, phases, strict=True)],
    )


def _split(study: JobStudy, place: int, parts: list[Partition], begin: I64, end: I64) -> list[Partition]:
    """Split each window; what of its exposed communication these operations do not cover stays unknown."""
    if not parts:
        return parts
    found = split_exposed(study.ranks[place], study.matched, study.waits, place, begin, end)
    return [
        structs.replace(p, comm_transfer_ns=t, comm_wait_ns=w, comm_unknown_ns=p.comm_exposed_ns - t - w)
        if t + w <= p.comm_exposed_ns
        else p
        for p, t, w in zip(parts, found.transfer.tolist(), found.wait.tolist(), strict=True)
    ]


def _job_what_if(study: JobStudy, cluster: Cluster, asked: Sequence[str]) -> list[WhatIf]:
    """Answer what was asked of the job, then what every report shows, then what repairing the roots brings."""
    mine = [e for e in asked if answers(e)]
    found = [_answer(study, e, None) for e in mine]
    repairs = [(f"rank:{r.ranks[0]}=median", say("rank {rank} works like its peers", rank=r.ranks[0]))
               for r in cluster.roots if r.kind == "rank" and len(r.ranks) == 1]  # fmt: skip
    shown = [_answer(study, e, title) for e, title in (*repairs, *_STANDARD) if e not in mine]
    return [*found, *(w for w in shown if w.reason is None)]


def _answer(study: JobStudy, expression: str, title: Message | None) -> WhatIf:
    answer = predict(study, study.links, expression)
    if answer.reason is not None:
        return unanswered(expression, answer.reason, title)
    length = max(study.length, 1.0)
    least = max(answer.least, 0.0) if answer.saved >= 0 else answer.least  # what only saves costs nothing
    most = min(answer.most, length)
    gain = per_step((least, most), study)
    return structs.replace(
        unanswered(expression, None, title),
        span_ns=round(study.length - answer.saved),
        gain_pct=100 * answer.saved / length,
        gain_ns_per_step=gain,
        gain_pct_interval=(100 * least / length, 100 * most / length),
        gain_per="step",
    )

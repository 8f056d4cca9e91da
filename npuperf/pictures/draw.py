"""Pictures of devices for a page: a second pass over a recording, of which only a few devices are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.cluster.summarise import summarise
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import Device, Result
from npuperf.documents.picture import Exact, Picture
from npuperf.model.device import DeviceProfile
from npuperf.model.memory import give_back
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds
from npuperf.parallel import Engine
from npuperf.pictures.buckets import Buckets
from npuperf.pictures.choose import choose
from npuperf.pictures.device_lanes import core_lanes, parts_lane, stream_lanes, waits_lane
from npuperf.pictures.drawing import Drawing
from npuperf.pictures.host_lanes import host_lanes
from npuperf.pictures.job_split import told_apart
from npuperf.pictures.signposts import signposts
from npuperf.pictures.slice_columns import Names
from npuperf.pictures.stretches import stretches
from npuperf.readers.log import Progress
from npuperf.readers.recording import Reading, Recording
from npuperf.replay.study import Study
from npuperf.timeline.steps import numbers_repeat

#: Buckets and slices of all pictures together, and the least that a picture has of each.
BUCKETS: Final = 8192
_FEWEST_BUCKETS: Final = 1024
SLICES: Final = 24_000
#: The part of a picture's slices that tasks may have.
_OF_TASKS: Final = 2

#: How the devices of different folders are told apart.
_Key = tuple[str, int | None, int]


class Size(Struct, frozen=True):
    """How much a picture may have: buckets per lane, and slices."""

    buckets: int = BUCKETS
    slices: int = SLICES

    def shared(self, pictures: int) -> Size:
        """Return the size of each of several pictures."""
        share = max(pictures, 1)
        return Size(max(self.buckets // share, _FEWEST_BUCKETS), self.slices // share)


def draw(
    recording: Recording,
    result: Result,
    thresholds: Thresholds,
    *,
    limit: int = 8,
    step: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
) -> tuple[Picture, ...]:
    """Draw the devices of a result, or of more than ``limit`` the most telling ones, in this order.

    ``step``: the one that the result is about. Devices without kernels have no picture, nor have those that can no
    longer be read. ``engine``, ``progress`` and ``finished``: as in :meth:`Recording.map`.
    """
    chosen = choose(result, limit)
    if not chosen:
        return ()
    wanted = {_key(one.report): one.report for one in chosen}
    ranks = {device.rank for device in wanted.values() if device.rank is not None}
    if len(ranks) == len(wanted):
        recording = recording.of_ranks(ranks)
    size = Size().shared(len(chosen))
    job = result.cluster is not None and len(chosen) == len(result.devices)  # of a part of it nobody's waits are known
    work = partial(_draw, wanted=wanted, thresholds=thresholds, size=size, step=step, job=job)
    found = [one for some in recording.map(work, progress, engine, finished) for one in some]
    pictures = told_apart(found, thresholds) if job else [picture for picture, _ in found]
    drawn = {_key(picture): picture for picture in pictures}
    offsets = _offsets(result)
    shown = ((one.why, drawn[_key(one.report)]) for one in chosen if _key(one.report) in drawn)
    return tuple(replace(picture, why=why, offset_ns=offsets.get(picture.rank, 0)) for why, picture in shown)


def _key(device: Device | DeviceProfile | Picture) -> _Key:
    return device.source, device.rank, device.device


def _offsets(result: Result) -> dict[int | None, int]:
    """Return what is added to the times of each rank to reach the job's clock, ns."""
    ranks = result.cluster.ranks if result.cluster else []
    return {one.rank: one.clock.offset_ns for one in ranks if one.clock is not None}


def _draw(
    reading: Reading, wanted: dict[_Key, Device], thresholds: Thresholds, size: Size, step: int | None, job: bool
) -> list[tuple[Picture, RankSummary | None]]:
    """Draw the devices of one source that were chosen; with what a ``job`` needs of each."""
    found = []
    for profile in reading.profiles:
        report = wanted.get(_key(profile))
        if report is not None and (profile.tasks.work != Work.CONTROL).any():
            study = study_of(profile, thresholds, step)
            summary = _summary(study, report, thresholds, step) if job else None
            found.append((draw_study(study, report, size=size, step=step), summary))
            give_back()
    return found


def study_of(profile: DeviceProfile, thresholds: Thresholds, step: int | None) -> Study:
    """Work out everything of a device as for its report."""
    if step is None and numbers_repeat(profile.tasks, thresholds):
        profile = profile.without_steps()
    return Study.of(profile, thresholds)


def _summary(study: Study, report: Device, thresholds: Thresholds, step: int | None) -> RankSummary | None:
    """Reduce a device to what its job needs, as the analysis did."""
    span = study.judged if step is None else study.step_span(step)
    tasks = study.profile.tasks
    inside = slice(0, len(tasks))
    if span != study.timeline.span:
        inside = slice(*np.searchsorted(tasks.start, span).tolist())
    plain = tasks.without_counters().part(inside)
    return summarise(study, plain, study.types.filter(inside), span, report, thresholds)


def draw_study(study: Study, report: Device, *, size: Size, step: int | None = None) -> Picture:
    """Draw a device that has kernels; ``report``: what the result says of it, ``step``: the one that it is about."""
    profile, tasks = study.profile, study.profile.tasks
    window = study.timeline.span if step is None else study.step_span(step)
    buckets = Buckets.of(*window, size.buckets)
    drawing = Drawing(
        study=study,
        report=report,
        buckets=buckets,
        stretches=stretches(report, window, tasks.start, size.slices // _OF_TASKS, step),
        origin=window[0],
        slices=size.slices,
        names=Names(),
    )
    rows, cut = drawing.near(tasks.start, tasks.end, size.slices // _OF_TASKS)
    waits = waits_lane(drawing)
    lanes = (
        parts_lane(drawing),
        *([waits] if waits else []),
        *stream_lanes(drawing, rows),
        *host_lanes(drawing),
        *core_lanes(drawing),
    )
    return Picture(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        origin_ns=window[0],
        span_ns=int(buckets.length.sum()),
        lanes=lanes,
        names=drawing.names.all(),
        exact=_exact(drawing, cut),
        places=signposts(drawing),
        begin_ns=window[0] - report.origin_ns,
    )


def _exact(drawing: Drawing, cut: Sequence[int]) -> tuple[Exact, ...]:
    origin = drawing.origin
    return tuple(
        Exact(s.start - origin, s.end - origin, s.step, s.why, count, s.typical)
        for s, count in zip(drawing.stretches, cut, strict=True)
    )

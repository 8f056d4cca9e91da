"""Pictures of devices for a page: a second pass over a recording, of which only a few devices are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from npuperf.documents.analysis import Device, Result
from npuperf.documents.picture import Exact, Picture
from npuperf.messages import Message
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


@dataclass(frozen=True, slots=True)
class Size:
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
    work = partial(_draw, wanted=wanted, thresholds=thresholds, size=size, step=step)
    drawn = {(p.source, p.rank, p.device): p for some in recording.map(work, progress, engine, finished) for p in some}
    offsets = _offsets(result)
    found = ((one, drawn[_key(one.report)]) for one in chosen if _key(one.report) in drawn)
    return tuple(replace(picture, why=one.why, offset_ns=offsets.get(picture.rank, 0)) for one, picture in found)


def _key(device: Device | DeviceProfile) -> _Key:
    return device.source, device.rank, device.device


def _offsets(result: Result) -> dict[int | None, int]:
    """Return what is added to the times of each rank to reach the job's clock, ns."""
    ranks = result.cluster.ranks if result.cluster else []
    return {one.rank: one.clock.offset_ns for one in ranks if one.clock is not None}


def _draw(
    reading: Reading, wanted: dict[_Key, Device], thresholds: Thresholds, size: Size, step: int | None
) -> list[Picture]:
    """Draw the devices of one source that were chosen."""
    found = []
    for profile in reading.profiles:
        report = wanted.get(_key(profile))
        if report is not None and (profile.tasks.work != Work.CONTROL).any():
            found.append(draw_device(profile, report, thresholds, size=size, step=step))
            give_back()
    return found


def draw_device(
    profile: DeviceProfile, report: Device, thresholds: Thresholds, *, size: Size | None = None, step: int | None = None
) -> Picture:
    """Draw one device, which has at least one task that occupies it; ``report``: what the result says of it."""
    if step is None and numbers_repeat(profile.tasks, thresholds):
        profile = profile.without_steps()  # as the report was made
    return draw_study(Study.of(profile, thresholds), report, size=size or Size(), step=step)


def draw_study(
    study: Study, report: Device, *, size: Size, step: int | None = None, why: Message | None = None
) -> Picture:
    """Draw a device of which everything is worked out."""
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
        why=why,
    )


def _exact(drawing: Drawing, cut: Sequence[int]) -> tuple[Exact, ...]:
    origin = drawing.origin
    return tuple(
        Exact(s.start - origin, s.end - origin, s.step, s.why, count, s.typical)
        for s, count in zip(drawing.stretches, cut, strict=True)
    )

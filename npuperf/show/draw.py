"""Pictures of devices for a page: a second pass over a recording, of which only a few devices are looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.memory import give_back
from npuperf.base.messages import Message, chain, say
from npuperf.base.parallel import Engine
from npuperf.device.blame import NOTHING
from npuperf.device.host_events import CAUSES, CODE
from npuperf.device.operators import core_labels
from npuperf.device.partition import within
from npuperf.device.rank_summary import RankSummary, summarise
from npuperf.device.steps import numbers_repeat
from npuperf.device.study import Study
from npuperf.job.job_study import JobStudy, study_job
from npuperf.job.waits import split_exposed, turns
from npuperf.model.device import DeviceProfile, HostProfile
from npuperf.model.groups import distinct, first_rows, group_sums, numbered
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8
from npuperf.model.picture import NO_DEVICE, Exact, Lane, LaneSlices, Picture, place_name
from npuperf.model.result import Device, HostRun, Result
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds
from npuperf.readers.log import Progress
from npuperf.readers.recording import Reading, Recording
from npuperf.show.lanes import (
    COLOUR,
    Buckets,
    Canvas,
    Drawing,
    Facts,
    HostSide,
    Names,
    clock_lane,
    core_lanes,
    host_lanes,
    memory_lane,
    parts_lane,
    slices,
    stream_lanes,
    waits_lane,
)

# -- Which devices of a job are drawn: those that others wait for, extremes, and one of each kind.

_ROOT: Final = say("others wait for it")
_SLOWEST: Final = say("it has the longest steps")
_FASTEST: Final = say("it has the shortest steps")
_FIRST: Final = say("it is the first")


def choose(result: Result, limit: int) -> list[tuple[Device, Message | None]]:
    """Choose up to ``limit`` devices, the most telling first, with why each; all, without, where they are not more."""
    devices = [d for d in result.devices if d.clock.tasks]  # others have no kernels to draw
    if len(devices) <= limit:
        return [(device, None) for device in devices]
    of_rank = {d.rank: d for d in reversed(devices)}
    by_step = sorted(devices, key=lambda d: d.window.span_ns // max(d.step_count, 1))
    telling = [(by_step[-1], _SLOWEST), (by_step[0], _FASTEST), (devices[0], _FIRST)]
    if (cluster := result.cluster) is not None:
        roots = [(of_rank[rank], _ROOT) for root in cluster.roots for rank in root.ranks if rank in of_rank]
        firsts = ((stage.stage, min(stage.ranks, default=None)) for stage in cluster.stages)
        stages = [(of_rank[rank], say("it is the first of stage {stage}", stage=stage))
                  for stage, rank in firsts if rank in of_rank]  # fmt: skip
        telling = [*roots, *telling, *stages]
    found: dict[int, tuple[Device, Message | None]] = {}
    for device, why in telling:
        found.setdefault(id(device), (device, why))
    return [*found.values()][:limit]


# -- Communication that nothing hides, told apart by what all ranks of a job tell together: on its way, or waiting.


def told_apart(drawn: Sequence[tuple[Picture, RankSummary | None]], thresholds: Thresholds) -> list[Picture]:
    """Split the communication of the device's time in pictures of all devices of a job, as their report does."""
    found = study_job([summary for _, summary in drawn if summary is not None], thresholds)
    study = found if isinstance(found, JobStudy) else None
    pictures = []
    for picture, _ in drawn:
        place = -1 if study is None else study.places.get((picture.source, picture.device, picture.rank), -1)
        if study is not None and place >= 0 and study.ranks[place].exposed_known:
            lanes = (
                Lane(
                    lane.kind,
                    lane.title,
                    _split_shares(lane.shares, picture, study, place),
                    _split_slices(lane.slices, picture.origin_ns, study, place),
                    cut=lane.cut,
                )
                if lane.kind == "parts"
                else lane
                for lane in picture.lanes
            )
            picture = replace(picture, lanes=tuple(lanes))
        pictures.append(picture)
    return pictures


def _split_shares(shares: Mapping[str, U8], picture: Picture, study: JobStudy, place: int) -> dict[str, U8]:
    """Split shares of buckets; what operations do not cover, or where they tell more than tasks do, stays unknown."""
    exposed = shares.get("communication")
    if exposed is None:
        return dict(shares)
    buckets = Buckets.of(picture.origin_ns, picture.origin_ns + picture.span_ns, len(exposed))
    windows = buckets.windows
    found = split_exposed(study.ranks[place], study.matched, study.waits, place, windows.start, windows.end)
    told = buckets.shares({"transfer": found.transfer, "comm_wait": found.wait})
    rest = exposed.astype(np.int64) - sum(share.astype(np.int64) for share in told.values())
    usable = rest >= -1  # each is rounded
    split = {
        **shares,
        **{name: np.where(usable, share, 0).astype(np.uint8) for name, share in told.items()},
        "communication": np.where(usable, np.maximum(rest, 0), exposed).astype(np.uint8),
    }
    return {name: share for name, share in split.items() if share.any()}


def _split_slices(parts: LaneSlices, origin: int, study: JobStudy, place: int) -> LaneSlices:
    """Cut slices of communication where waiting and transfers begin and end."""
    rank = study.ranks[place]
    waited, sent = turns(rank, study.matched, study.waits, place)
    wait = Intervals.union(rank.exposed_start - origin, waited - origin)
    transfer = Intervals.union(sent - origin, rank.exposed_end - origin)
    mine = parts.colour == COLOUR["communication"]
    whole = Intervals(parts.start[mine], parts.end[mine])
    borders = distinct(np.concatenate([t for one in (whole, wait, transfer) for t in (one.start, one.end)]))
    owner = np.searchsorted(whole.start, borders, side="right") - 1
    inside = (owner >= 0) & (borders < whole.end[owner]) if len(whole) else np.zeros(len(borders), np.bool_)
    begin, finish = borders[inside], np.append(borders[1:], borders[-1:])[inside]
    cut = np.full(len(begin), COLOUR["communication"])
    for one, name in ((transfer, "transfer"), (wait, "comm_wait")):
        cut[one.within(Intervals(begin, finish)) > 0] = COLOUR[name]
    others = (column[~mine] for column in (parts.start, parts.end, parts.colour))
    start, end, colour = (np.concatenate(pair) for pair in zip(others, (begin, finish, cut), strict=True))
    order = np.argsort(start, kind="stable")
    return slices(start[order], end[order], colour[order])


# -- Where in a picture to look for what a report names: operators, waits, synchronisations, steps.
#
# What a report says is about what is judged: operators and waits are looked for there first, and then everywhere.

#: How many of a kind have a place: those that take most time.
_OPERATORS: Final = 400
_WAITS: Final = 200
_SYNCS: Final = 200

#: What is found: its kind, its name, and from when to when, epoch ns.
Signpost = tuple[str, str, int, int]


def signposts(drawing: Drawing) -> Iterator[Signpost]:
    """Yield places of a picture; of several things of one name the longest comes first."""
    study, report, (first, last) = drawing.study, drawing.report, drawing.window
    # The longest kernel of each type, and of each type on each core.
    tasks, types, cores = study.profile.tasks, study.types, core_labels(study.profile.tasks)
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    kinds = types.codes.astype(np.int64)
    sync_start, sync_end = study.syncs.start - study.launches.skew, study.syncs.end - study.launches.skew
    drawn = (sync_end > first) & (sync_start < last)
    # What is judged comes before all that is drawn; of one step alone these are the same.
    for span in dict.fromkeys((study.judged if drawing.window == study.timeline.span else drawing.window,
                               drawing.window)):  # fmt: skip
        rows = np.flatnonzero(kernels & (tasks.start < span[1]) & (tasks.start >= span[0]))
        for keys, known in ((kinds, None), (kinds * (len(cores.names) + 1) + cores.codes, cores)):
            for row in _longest(keys, tasks.dur, rows, _OPERATORS):
                name = place_name(types[row] or "N/A", known[row] if known else None)
                yield "operator", name, int(tasks.start[row]), int(tasks.end[row])
        pieces = study.blamed.within(*span)
        events = study.nesting.events.name
        labels = events.take(np.where(pieces.cause == CODE["unrecorded"], -1, pieces.event))
        key = pieces.cause.astype(np.int64) * (len(events.names) + 1) + labels.codes + 1
        for row in _longest(key, pieces.end - pieces.start, np.arange(len(key)), _WAITS, pieces.cause):
            cause = CAUSES[int(pieces.cause[row])]
            yield "wait", f"{cause}: {labels[row] or NOTHING}", int(pieces.start[row]), int(pieces.end[row])
        # Waits for the device: by the call with all that tells it from others, by its name, by its code line.
        inside = study.syncs_of(span) & drawn
        found = []
        for point in study.points:
            calls = point.calls[inside[point.calls]]
            if len(calls):
                names = (place_name(point.name, point.op, point.where), point.name, point.where)
                longest = int(calls[np.argmax((sync_end - sync_start)[calls])])
                found.append((longest, dict.fromkeys(filter(None, names))))
        found.sort(key=lambda one: int(sync_start[one[0]] - sync_end[one[0]]))
        for call, called in found[:_SYNCS]:
            yield from (("sync", name, int(sync_start[call]), int(sync_end[call])) for name in called)
    for step in report.steps:
        start = report.origin_ns + step.start_ns
        yield "step", str(step.step), start, start + step.partition.span_ns


def _longest(keys: I64, length: I64, rows: I64, most: int, kinds: U8 | None = None) -> list[int]:
    """Return the longest row of each key, for the keys that take most time, and for the first of each of ``kinds``.

    A report names the first of each cause, however little time it takes.
    """
    if not len(rows):
        return []
    groups = group_sums((keys,), length, rows)
    longest = groups.largest[np.argsort(-groups.total, kind="stable")]
    listed = np.arange(len(longest)) < most
    if kinds is not None:
        found, which = numbered(kinds[longest])
        listed[first_rows(which, len(found))] = True
    rows_of_keys: list[int] = longest[listed].tolist()
    return rows_of_keys


# -- Which stretches of a device's time are shown with every task: the typical step, extremes, odd ones.

#: Two steps are the longest and the shortest one, and neither is typical.
_EXTREMES: Final = 2
#: Odd steps that are shown.
_ODD: Final = 2
_TYPICAL: Final = say("a typical step")
_FIRST_OF_EQUALS: Final = say("the first of two steps that take the same time")
_LONGEST: Final = say("the longest step")
_SHORTEST: Final = say("the shortest step")
_HOST: Final = say("the step that waits longest for the host")
_ONLY: Final = say("the only step")
_ONLY_WHOLE: Final = say("the only whole step")
_ASKED: Final = say("the step that was asked for")
_ALL: Final = say("all that was recorded")
_PHASE: Final = say("the beginning of a phase of usual length")
_BEGINNING: Final = say("the beginning of the recording")


def stretches(report: Device, window: tuple[int, int], starts: I64, most: int, asked: int | None) -> list[Exact]:
    """Return up to a handful of stretches that do not overlap, in order.

    Of steps those that tell most; without steps everything if it is not too much, else as much of a usual phase, or of
    the recording, as can be shown. ``window``: what is drawn; ``starts``: of all tasks of the device, in order;
    ``most``: about so many tasks can be shown; ``asked``: the step that a report of one step is about.
    """
    if asked is not None:
        return [Exact(*window, asked, _ASKED, typical=True)]
    if report.steps:
        return _telling_steps(report)
    first, last = np.searchsorted(starts, window).tolist()
    if last - first <= most:
        return [Exact(*window, None, _ALL)]
    begin, end, why = *window, _BEGINNING
    if report.phases:
        phases = sorted(report.phases, key=lambda p: (p.end_ns - p.start_ns, p.start_ns))
        usual = phases[(len(phases) - 1) // 2]
        begin, end, why = report.origin_ns + usual.start_ns, report.origin_ns + usual.end_ns, _PHASE
    first, last = np.searchsorted(starts, [begin, end]).tolist()
    if last - first > most:
        end = max(int(starts[first + most]), begin + 1)
    return [Exact(begin, end, None, why)]


def _telling_steps(report: Device) -> list[Exact]:
    steps = report.whole_steps
    odd = {o.step: o.why for o in report.typical_step.odd} if report.typical_step else {}
    usual = [s for s in steps if s.step not in odd] or steps
    typical = sorted(usual, key=lambda s: (s.partition.span_ns, s.step))[(len(usual) - 1) // 2]
    found: dict[int, list[Message]] = {typical.step: []}
    if len(steps) == 1:
        found[typical.step].append(_ONLY if len(report.steps) == 1 else _ONLY_WHOLE)
    else:
        shortest, longest = (one(steps, key=lambda s: s.partition.span_ns) for one in (min, max))
        if len(steps) > _EXTREMES:
            found[typical.step].append(_TYPICAL)
        if shortest.partition.span_ns < longest.partition.span_ns:
            found.setdefault(longest.step, []).append(_LONGEST)
            found.setdefault(shortest.step, []).append(_SHORTEST)
        elif len(steps) == _EXTREMES:
            found[typical.step].append(_FIRST_OF_EQUALS)
        waits = max(steps, key=lambda s: s.partition.host_wait_ns)
        if waits.partition.host_wait_ns > min(s.partition.host_wait_ns for s in steps):
            found.setdefault(waits.step, []).append(_HOST)
        for number in [*odd][:_ODD]:
            found.setdefault(number, []).append(say("unlike the others: {why}", why=odd[number]))
    shown = []
    for step in report.steps:
        if step.step in found:
            start = report.origin_ns + step.start_ns
            why = chain(*found[step.step], by=", ")
            shown.append(Exact(start, start + step.partition.span_ns, step.step, why, typical=step is typical))
    return shown


# -- The pictures themselves.

#: Buckets and slices of all pictures together, and the least that a picture has of each.
BUCKETS: Final = 8192
_FEWEST_BUCKETS: Final = 1024
SLICES: Final = 24_000
#: The part of a picture's slices that tasks may have.
_OF_TASKS: Final = 2
#: The part that host events may have beside them.
_OF_HOST: Final = 4

#: How the devices of different folders are told apart.
_Key = tuple[str, int | None, int]
_K = TypeVar("_K")


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
    failed: Callable[[InputError], None] | None = None,
) -> tuple[Picture, ...]:
    """Draw the devices of a result, or of more than ``limit`` the most telling ones, in this order.

    ``step``: the one that the result is about. Devices without kernels have no picture, nor have those that can no
    longer be read: why the first was not is given to ``failed``. ``engine``, ``progress`` and ``finished``: as in
    :meth:`Recording.map`.
    """
    chosen = choose(result, limit)
    if not chosen:
        return _hosts(recording, result, limit, step, engine, progress, finished, failed)
    in_job = result.cluster.ranks if result.cluster else []
    offsets: dict[int | None, int] = {one.rank: one.clock.offset_ns for one in in_job if one.clock is not None}
    wanted = {_key(device): (device, why, offsets.get(device.rank, 0)) for device, why in chosen}
    ranks = {device.rank for device, _ in chosen if device.rank is not None}
    if len(ranks) == len(wanted):
        recording = recording.of_ranks(ranks)
    size = Size().shared(len(chosen))
    job = result.cluster is not None and len(chosen) == len(result.devices)  # of a part of it nobody's waits are known
    work = partial(_draw, wanted=wanted, thresholds=thresholds, size=size, step=step, job=job)
    read = recording.map(work, progress, engine, finished)
    found = [one for some in read if not isinstance(some, InputError) for one in some]
    pictures = told_apart(found, thresholds) if job else [picture for picture, _ in found]
    return _in_order(wanted, {_key(picture): picture for picture in pictures}, read, failed)


def _in_order(
    wanted: Collection[_K],
    drawn: Mapping[_K, Picture],
    read: Sequence[object],
    failed: Callable[[InputError], None] | None,
) -> tuple[Picture, ...]:
    """Return the pictures in the order in which they are wanted; why one is missing, if nothing was read, is told."""
    pictures = tuple(drawn[key] for key in wanted if key in drawn)
    why = next((one for one in read if isinstance(one, InputError)), None)
    if failed is not None and why is not None and len(pictures) < len(wanted):
        failed(why)
    return pictures


def _hosts(
    recording: Recording,
    result: Result,
    limit: int,
    step: int | None,
    engine: Engine | None,
    progress: Progress | None,
    finished: Callable[[], None] | None,
    failed: Callable[[InputError], None] | None,
) -> tuple[Picture, ...]:
    """Draw hosts without a device, the first ``limit`` of them."""
    wanted = {(run.rank, run.source): run for run in result.hosts[:limit]}
    if not wanted:
        return ()
    work = partial(_of_host, wanted=wanted, size=Size().shared(len(wanted)), step=step)
    read = recording.map(work, progress, engine, finished)
    drawn = {(one.rank, one.source): one for one in read if isinstance(one, Picture)}
    return _in_order(wanted, drawn, read, failed)


def _of_host(
    reading: Reading, wanted: Mapping[tuple[int | None, str], HostRun], size: Size, step: int | None
) -> Picture | InputError | None:
    profile = reading.host
    run = None if profile is None else wanted.get((profile.rank, profile.source))
    return draw_host(profile, run, size=size, step=step) if profile is not None and run is not None else reading.error


def draw_host(profile: HostProfile, run: HostRun, *, size: Size, step: int | None = None) -> Picture:
    """Draw the threads of a host without a device; ``run``: what the result says of it, ``step``: what it is about."""
    side, events = HostSide.alone(profile), profile.host.events
    steps = {
        one.step: (run.origin_ns + one.start_ns, run.origin_ns + one.start_ns + one.length_ns) for one in run.steps
    }
    window = (int(events.start.min()), int(events.end.max())) if step is None else steps[step]
    if step is not None:
        exact = [Exact(*window, step, _ASKED, typical=True)]
    elif steps:
        exact = _steps_of_host(steps)
    else:
        starts = np.sort(events.start)
        all_of_it = len(starts) <= size.slices
        end = window[1] if all_of_it else max(int(starts[size.slices]), window[0] + 1)
        exact = [Exact(window[0], end, None, _ALL if all_of_it else _BEGINNING)]
    canvas = Canvas(Buckets.of(*window, size.buckets), exact, size.slices, Names(), Facts())
    lanes = tuple(host_lanes(canvas, side, size.slices))
    places = {("step", str(number)): (a - window[0], b - window[0]) for number, (a, b) in steps.items()
              if a < window[1] and b > window[0]}  # fmt: skip
    inside = np.flatnonzero((events.thread == side.main) & (events.start < window[1]) & (events.end > window[0]))
    for row in _longest(events.name.codes.astype(np.int64), events.end - events.start, inside, _OPERATORS):
        places["host", events.name[row] or ""] = int(events.start[row]) - window[0], int(events.end[row]) - window[0]
    return Picture(
        rank=profile.rank,
        device=NO_DEVICE,
        source=profile.source,
        origin_ns=window[0],
        span_ns=int(canvas.buckets.length.sum()),
        lanes=lanes,
        names=canvas.names.all(),
        exact=tuple(Exact(s.start - window[0], s.end - window[0], s.step, s.why, s.cut, s.typical) for s in exact),
        places=places,
        begin_ns=window[0] - run.origin_ns,
        facts=canvas.facts.all(),
    )


def _steps_of_host(steps: Mapping[int, tuple[int, int]]) -> list[Exact]:
    """Return the host's step of median length, the longest and the shortest one, in order of time."""
    ordered = sorted(steps, key=lambda number: (steps[number][1] - steps[number][0], number))
    typical, shortest, longest = ordered[(len(ordered) - 1) // 2], ordered[0], ordered[-1]
    why = {typical: _TYPICAL if len(ordered) > _EXTREMES else _ONLY if len(ordered) == 1 else _SHORTEST}
    if len(ordered) > 1:
        why = {shortest: _SHORTEST, longest: _LONGEST, **why}
    return [Exact(*steps[n], n, why[n], typical=n == typical) for n in sorted(why, key=lambda n: steps[n])]


def _key(device: Device | DeviceProfile | Picture) -> _Key:
    return device.source, device.rank, device.device


def _draw(
    reading: Reading,
    wanted: dict[_Key, tuple[Device, Message | None, int]],
    thresholds: Thresholds,
    size: Size,
    step: int | None,
    job: bool,
) -> list[tuple[Picture, RankSummary | None]] | InputError:
    """Draw the devices of one source that were chosen; with what a ``job`` needs of each, as its analysis had it.

    ``wanted``: what the result says of each, why it is drawn, and its offset to the job's clock. Returns the error of
    a source that could not be read.
    """
    if reading.error is not None:
        return reading.error
    found = []
    for profile in reading.profiles:
        if _key(profile) in wanted and (profile.tasks.work != Work.CONTROL).any():
            report, why, offset = wanted[_key(profile)]
            if step is None and numbers_repeat(profile.tasks, thresholds):
                profile = profile.without_steps()
            study = Study.of(profile, thresholds)
            summary = None
            if job:
                span = study.judged if step is None else study.step_span(step)
                inside = within(profile.tasks, span)
                plain, types = profile.tasks.without_counters().part(inside), study.types.filter(inside)
                bound = report.verdict.bound
                summary = summarise(study, plain, types, span, report.window, report.phases, bound, thresholds)
            picture = draw_study(study, report, size=size, step=step, why=why, offset=offset)
            found.append((picture, summary))
            give_back()
    return found


def draw_study(
    study: Study, report: Device, *, size: Size, step: int | None = None, why: Message | None = None, offset: int = 0
) -> Picture:
    """Draw a device that has kernels; ``report``: what the result says of it, ``step``: the one that it is about.

    ``why`` and ``offset`` (ns): as in the picture.
    """
    profile, tasks = study.profile, study.profile.tasks
    window = study.timeline.span if step is None else study.step_span(step)
    most = size.slices // _OF_TASKS
    drawing = Drawing(
        study=study,
        report=report,
        buckets=Buckets.of(*window, size.buckets),
        stretches=stretches(report, window, tasks.start, most, step),
        slices=size.slices,
        names=Names(),
        facts=Facts(),
    )
    rows, cut = drawing.near(tasks.start, tasks.end, most)
    waits, clock, memory = waits_lane(drawing), clock_lane(drawing), memory_lane(drawing)
    lanes = (
        parts_lane(drawing),
        *([waits] if waits else []),
        *stream_lanes(drawing, rows),
        *host_lanes(drawing, HostSide.of(study), size.slices // _OF_HOST),
        *core_lanes(drawing),
        *(lane for lane in (clock, memory) if lane is not None),
    )
    places: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, name, start, end in signposts(drawing):
        places.setdefault((kind, name), (start - window[0], end - window[0]))
    return Picture(
        rank=profile.rank,
        device=profile.device,
        source=profile.source,
        origin_ns=window[0],
        span_ns=int(drawing.buckets.length.sum()),
        lanes=lanes,
        names=drawing.names.all(),
        exact=tuple(
            Exact(s.start - window[0], s.end - window[0], s.step, s.why, count, s.typical)
            for s, count in zip(drawing.stretches, cut, strict=True)
        ),
        places=places,
        offset_ns=offset,
        begin_ns=window[0] - report.origin_ns,
        why=why,
        facts=drawing.facts.all(),
    )

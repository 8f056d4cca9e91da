"""Communication that nothing hides, told apart by what all ranks of a job tell together: on its way, or waiting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from npuperf.cluster.judge import JobStudy, study_job
from npuperf.cluster.summary import RankSummary
from npuperf.cluster.waits import split_exposed, turns
from npuperf.documents.picture import Lane, LaneSlices, Picture
from npuperf.model.groups import distinct
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8
from npuperf.model.thresholds import Thresholds
from npuperf.pictures.buckets import Buckets
from npuperf.pictures.slice_columns import COLOUR, slices


def told_apart(drawn: Sequence[tuple[Picture, RankSummary | None]], thresholds: Thresholds) -> list[Picture]:
    """Split the communication of the device's time in pictures of all devices of a job, as their report does."""
    study = study_job([summary for _, summary in drawn if summary is not None], thresholds)
    pictures = [picture for picture, _ in drawn]
    return pictures if study is None else [_split(picture, study) for picture in pictures]


def _split(picture: Picture, study: JobStudy) -> Picture:
    place = study.places.get((picture.source, picture.device), -1)
    if place < 0 or not study.ranks[place].exposed_known:
        return picture
    lanes = (_lane(lane, picture, study, place) if lane.kind == "parts" else lane for lane in picture.lanes)
    return replace(picture, lanes=tuple(lanes))


def _lane(lane: Lane, picture: Picture, study: JobStudy, place: int) -> Lane:
    shares = {**lane.shares, **_shares(lane, picture, study, place)}
    return replace(
        lane,
        shares={name: share for name, share in shares.items() if share.any()},
        slices=_slices(lane.slices, picture.origin_ns, study, place),
    )


def _shares(lane: Lane, picture: Picture, study: JobStudy, place: int) -> dict[str, U8]:
    """Return shares of buckets; what operations do not cover, or where they tell more than tasks do, stays unknown."""
    exposed = lane.shares.get("communication")
    if exposed is None:
        return {}
    buckets = Buckets.of(picture.origin_ns, picture.origin_ns + picture.span_ns, len(exposed))
    windows = buckets.windows
    found = split_exposed(study.ranks[place], study.matched, study.waits, place, windows.start, windows.end)
    told = buckets.shares({"transfer": found.transfer, "comm_wait": found.wait})
    rest = exposed.astype(np.int64) - sum(share.astype(np.int64) for share in told.values())
    usable = rest >= -1  # each is rounded
    kept = {name: np.where(usable, share, 0).astype(np.uint8) for name, share in told.items()}
    return {**kept, "communication": np.where(usable, np.maximum(rest, 0), exposed).astype(np.uint8)}


def _slices(parts: LaneSlices, origin: int, study: JobStudy, place: int) -> LaneSlices:
    """Cut slices of communication where waiting ends."""
    rank = study.ranks[place]
    middle = turns(rank, study.matched, study.waits, place)
    known = study.waits.known[study.matched.first[place] + rank.exposed_op]
    wait = Intervals.union(rank.exposed_start - origin, middle - origin)
    transfer = Intervals.union(middle[known] - origin, rank.exposed_end[known] - origin)
    inside = parts.colour == COLOUR["communication"]
    start, end, colour = (column[~inside] for column in (parts.start, parts.end, parts.colour))
    begin, finish, cut = _cut(Intervals(parts.start[inside], parts.end[inside]), wait, transfer)
    start, end, colour = (np.concatenate(pair) for pair in ((start, begin), (end, finish), (colour, cut)))
    order = np.argsort(start, kind="stable")
    return slices(start[order], end[order], colour[order])


def _cut(whole: Intervals, wait: Intervals, transfer: Intervals) -> tuple[I64, I64, U8]:
    """Cut intervals at the borders of two sets; return pieces and their colours."""
    borders = distinct(np.concatenate([t for one in (whole, wait, transfer) for t in (one.start, one.end)]))
    owner = np.searchsorted(whole.start, borders, side="right") - 1
    inside = (owner >= 0) & (borders < whole.end[owner]) if len(whole) else np.zeros(len(borders), np.bool_)
    begin, owner = borders[inside], owner[inside]
    finish = np.append(borders[1:], borders[-1:])[inside]
    colour = np.full(len(begin), COLOUR["communication"])
    for one, name in ((transfer, "transfer"), (wait, "comm_wait")):
        colour[one.within(Intervals(begin, finish)) > 0] = COLOUR[name]
    return begin, finish, colour

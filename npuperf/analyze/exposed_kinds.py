"""Exposed communication of one rank within a job, by kind of group: on its way, waiting for others, unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.analyze.device_digest import group_kind, places_of
from npuperf.cluster.judge import JobStudy
from npuperf.cluster.summary import RankSummary
from npuperf.cluster.waits import ExposedSplit, split_exposed
from npuperf.documents.digest import Part, PartSum
from npuperf.model.intervals import Intervals
from npuperf.model.labels import Labels, Mask

_PARTS: Final[tuple[Part, ...]] = ("transfer", "wait", "comm_unknown")


def exposed_parts(study: JobStudy, place: int, exposed: Sequence[int], windows: Intervals) -> tuple[PartSum, ...]:
    """Split what is exposed (ns) in each window of the rank at ``place`` as its partitions are split, and by group.

    Counted are the operations that begin in the windows: all may wait, and each is transfer or cannot be split. What no
    operation covers is unknown and of no group, and so are windows in which operations tell more than tasks do.
    """
    mine = slice(*study.matched.first[place : place + 2].tolist())
    keys = _keys(study, mine)
    kinds = [(None, ~keys.known()), *((name, keys.codes == code) for code, name in enumerate(keys.names))]
    splits = [_split(study, place, those, windows) for _, those in kinds]
    told = sum((split.transfer + split.wait for split in splits), np.zeros(len(windows), np.int64))
    usable = told <= np.array(exposed, np.int64)
    rest = sum(exposed) - int(told[usable].sum())
    unknown = [int(split.unknown[usable].sum()) for split in splits]
    if sum(unknown) > rest:
        unknown = [0] * len(splits)
    begun, known = _begun(study.ranks[place], windows), study.waits.known[mine]
    found = [PartSum(part="comm_unknown", key=None, ns=rest - sum(unknown), count=0)]
    for (key, those), split, untold in zip(kinds, splits, unknown, strict=True):
        times = int(split.transfer[usable].sum()), int(split.wait[usable].sum()), untold
        counts = (int(np.count_nonzero(begun & those & chosen)) for chosen in (known, begun, ~known))
        rows = zip(_PARTS, times, counts, strict=True)
        found += [PartSum(part=part, key=key, ns=ns, count=count) for part, ns, count in rows]
    return tuple(part for part in found if part.ns or part.count)


def _keys(study: JobStudy, mine: slice) -> Labels:
    """Return of what kind the group of each operation is; else its size, where files tell it, or the collective."""
    matched = study.matched
    names = [group_kind(group.kind, () if group.inferred else group.ranks) for group in matched.groups]
    types = Labels(matched.type[mine].astype(np.int32), matched.types)
    return Labels.of(names).take(np.append(np.arange(len(names)), -1)[matched.group[mine]]).fill(types).compact()


def _split(study: JobStudy, place: int, mine: Mask, windows: Intervals) -> ExposedSplit:
    """Split the exposed communication of some of a rank's operations."""
    whole = study.ranks[place]
    rows = mine[whole.exposed_op]
    some = replace(
        whole,
        exposed_op=whole.exposed_op[rows],
        exposed_start=whole.exposed_start[rows],
        exposed_end=whole.exposed_end[rows],
    )
    return split_exposed(some, study.matched, study.waits, place, windows.start, windows.end)


def _begun(summary: RankSummary, windows: Intervals) -> Mask:
    """Tell which operations begin in a window; without kernels windows have no place in time, so all count."""
    start = summary.operations.start
    if summary.span_ns is not None:
        return np.ones(len(start), np.bool_)
    return places_of(start, windows) >= 0

"""How long ranks waited for each other in each operation: stay = wait + transfer, exact, and without any clock.

An operation in which everybody needs everybody ends for all at the same time. So the rank that stayed shortest came
last and waited for nobody: its stay is the transfer, and what the others stayed longer they waited.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.cluster.match import Matched
from npuperf.cluster.summary import RankSummary
from npuperf.model.labels import I64, Mask


class JobWaits(Struct, frozen=True):
    """Per operation (as in :class:`npuperf.cluster.match.Matched`), ns: stay = transfer + wait + unknown.

    ``known``: all members of its group took part. Of an operation whose group is partial ``wait`` is what the rank
    waited at least, for those that are there, and the rest is unknown. ``alone``: its group has one member, so nobody
    is waited for. ``last``: per instance, the operation of the rank that arrived last.
    """

    transfer: I64
    wait: I64
    unknown: I64
    known: Mask
    alone: Mask
    last: I64


def find_waits(matched: Matched) -> JobWaits:
    """Split every stay."""
    stay = matched.stay
    shortest = np.minimum.reduceat(stay[matched.members], matched.starts) if matched.instances else stay[:0]
    there = matched.instance >= 0
    own = np.where(there, shortest[matched.instance], stay) if matched.instances else stay
    complete = there & matched.complete[matched.instance] if matched.instances else there
    alone = np.array([g.single for g in matched.groups] + [False], np.bool_)[matched.group]
    known = complete | alone
    transfer = np.where(complete, own, np.where(alone, stay, 0))
    wait = np.where(there, stay - own, 0)
    order = np.lexsort((stay[matched.members], matched.instance[matched.members]))
    return JobWaits(
        transfer=transfer,
        wait=wait,
        unknown=np.where(known, 0, stay - wait),
        known=known,
        alone=alone,
        last=matched.members[order][matched.starts] if matched.instances else matched.members,
    )


class ExposedSplit(Struct, frozen=True):
    """Exposed communication of one rank in some windows, ns: a row per window, adding up to what is exposed.

    ``alone``: operations of groups with one member, which is part of ``transfer``.
    """

    transfer: I64
    wait: I64
    unknown: I64
    alone: I64


def split_exposed(
    summary: RankSummary, matched: Matched, waits: JobWaits, place: int, start: I64, end: I64
) -> ExposedSplit:
    """Split the exposed communication of the rank at ``place`` in each window ``[start, end)``.

    Of overlapping operations the one that began first owns the time.
    """
    op = matched.first[place] + summary.exposed_op
    known = waits.known[op]
    begin, stop = summary.exposed_start, summary.exposed_end
    middle = turns(summary, matched, waits, place)

    def within(first: I64, last: I64, chosen: Mask) -> I64:
        return _before(first[chosen], last[chosen], end) - _before(first[chosen], last[chosen], start)

    return ExposedSplit(
        transfer=within(middle, stop, known),
        wait=within(begin, middle, np.ones(len(op), np.bool_)),
        unknown=within(middle, stop, ~known),
        alone=within(begin, stop, waits.alone[op]),
    )


def turns(summary: RankSummary, matched: Matched, waits: JobWaits, place: int) -> I64:
    """Return for each piece of exposed communication when waiting ends in it: within a stay the wait comes first."""
    op = matched.first[place] + summary.exposed_op
    middle: I64 = np.clip(matched.start[op] + waits.wait[op], summary.exposed_start, summary.exposed_end)
    return middle


def _before(start: I64, end: I64, time: I64) -> I64:
    """Return for each time how much of the pieces, disjoint and in order, lies before it."""
    if not len(start):
        return np.zeros(len(time), np.int64)
    covered = np.concatenate([[0], np.cumsum(end - start)])
    at = np.searchsorted(start, time, side="right") - 1
    inside = np.clip(time - start[at], 0, (end - start)[at])
    return np.where(at >= 0, covered[at] + inside, 0)


def by_kind(matched: Matched, values: I64, rows: Mask) -> dict[str, int]:
    """Sum values of operations by the kind of their group; groups of unknown kind by their id."""
    totals = np.bincount(matched.group[rows], weights=values[rows], minlength=len(matched.groups))
    found: dict[str, int] = {}
    for group, total in zip(matched.groups, totals.tolist(), strict=True):
        if total:
            name = kind_name(group.kind, group.id)
            found[name] = found.get(name, 0) + int(total)
    return found


def kind_name(kind: str | None, group: str) -> str:
    """Return how waiting for a group is called: by its kind where that is recorded."""
    return kind or (f"group {group}" if group else "all ranks")

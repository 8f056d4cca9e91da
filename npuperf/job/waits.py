"""How long ranks waited for each other in each operation: stay = wait + transfer, exact, and without any clock.

An operation in which everybody needs everybody ends for all at the same time. So the rank that stayed shortest came
last and waited for nobody: its stay is the transfer, and what the others stayed longer they waited.

Of a rooted operation who leaves early may have transferred less, so the shortest stay is what transfers take at most.
Where each rank moves another amount it says nothing of the others: how long they waited for the last to come, only a
common clock tells, and within what it is off.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from npuperf.device.rank_summary import HeldUp, RankSummary, least_transfer, least_wait, slower_than_larger
from npuperf.job.match import Matched
from npuperf.model.groups import alike, sums_of
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask


class Arrivals(Struct, frozen=True):
    """When operations began on the common clock, and by how much that may be off, ns (a row each).

    ``common``: per instance, whether all its ranks have that clock.
    """

    start: I64
    off: I64
    common: Mask


class JobWaits(Struct, frozen=True):
    """Per operation (as in :class:`npuperf.job.match.Matched`), ns: stay = transfer + wait + unknown.

    The one place where a stay is split: tables, findings, partitions, what-ifs and gates take it from here.
    ``known``: all members of its group took part. Of an operation whose group is partial, or may be, ``wait`` is what
    the rank waited at least, for those that are there, ``transfer`` what is transfer whoever is waited for
    (:func:`npuperf.device.rank_summary.least_transfer`), and the rest is unknown. So it is of complete ones whose
    shortest stay is but a bound, or which rest on clocks. ``kept``: what is no waiting for those that are there, as
    likely as can be told. ``absent``: what of ``wait`` is for ranks that were not loaded, which is inferred
    (:func:`npuperf.device.rank_summary.least_wait`). ``alone``: its group has one member, so nobody is waited for.
    ``last``: per instance, the operation of the rank that arrived last.
    """

    transfer: I64
    wait: I64
    unknown: I64
    kept: I64
    absent: I64
    known: Mask
    alone: Mask
    last: I64

    @property
    def here(self) -> I64:
        """What was waited for ranks that were loaded."""
        return self.wait - self.absent


def find_waits(matched: Matched, ranks: Sequence[RankSummary], arrivals: Arrivals | None = None) -> JobWaits:
    """Split every stay of these ranks' operations. ``arrivals``: None where the ranks have no common clock."""
    stay = matched.stay
    shortest = np.minimum.reduceat(stay[matched.members], matched.starts) if matched.instances else stay[:0]
    there = matched.instance >= 0
    own = np.where(there, shortest[matched.instance], stay) if matched.instances else stay
    complete = there & matched.complete[matched.instance] if matched.instances else there
    alone = np.array([g.single for g in matched.groups] + [False], np.bool_)[matched.group]
    known = complete | alone
    wait = np.where(there, stay - own, 0)
    of_each = [least_transfer(rank) for rank in ranks]
    certain = np.concatenate(of_each)
    possible = stay - np.concatenate([least_wait(rank, least) for rank, least in zip(ranks, of_each, strict=True)])
    if matched.instances:  # the same transfer takes all its ranks as long
        together = there & matched.together[matched.instance]
        least = np.maximum.reduceat(certain[matched.members], matched.starts)
        most = np.minimum.reduceat(possible[matched.members], matched.starts)
        certain = np.where(together, least[matched.instance], certain)
        possible = np.where(together, most[matched.instance], possible)
    absent = np.where(known, 0, np.maximum(stay - wait - np.maximum(possible, certain), 0))
    wait = wait + absent
    two = np.diff(np.append(matched.starts, len(matched.members))) == 2  # of more each may move what its own part is
    exact = matched.together | (matched.p2p[matched.members[matched.starts]] & two) if matched.instances else two
    same = complete & exact[matched.instance] if matched.instances else complete
    transfer = np.where(same, own, np.where(alone, stay, np.minimum(certain, stay - wait)))
    kept = stay - wait + absent
    own_size = matched.variable & there & ~alone
    if own_size.any():
        wait, kept, transfer, absent = _by_clock(
            matched, own_size, complete, certain, (wait, kept, transfer, absent), arrivals
        )
    here = wait - absent
    order = np.lexsort((stay[matched.members], here[matched.members], matched.instance[matched.members]))
    return JobWaits(
        transfer=transfer,
        wait=wait,
        unknown=stay - wait - transfer,
        kept=kept,
        absent=absent,
        known=known,
        alone=alone,
        last=matched.members[order][matched.starts] if matched.instances else matched.members,
    )


def _by_clock(
    matched: Matched, chosen: Mask, complete: Mask, certain: I64, split: tuple[I64, ...], arrivals: Arrivals | None
) -> tuple[I64, ...]:
    """Return wait, kept, transfer and absent with those of the ``chosen`` operations as the common clock tells them.

    Without one, nothing but what is transfer for certain is known; the replay keeps to the shortest stay.
    """
    wait, kept, transfer, absent = split
    stay, instance = matched.stay, matched.instance
    since = off = np.zeros(len(stay), np.int64)
    clocked = np.zeros(len(stay), np.bool_)
    if arrivals is not None:
        begun = np.maximum.reduceat(arrivals.start[matched.members], matched.starts)[instance]
        since, off = np.clip(begun - arrivals.start, 0, np.maximum(stay - certain, 0)), arrivals.off
        clocked = chosen & arrivals.common[instance]
    kept = np.where(clocked, stay - since, kept)
    wait = np.where(chosen, np.where(clocked, np.maximum(since - off, 0), 0), wait)
    sure = np.where(complete & clocked, np.maximum(stay - since - off, 0), 0)
    transfer = np.where(chosen, np.maximum(sure, np.minimum(certain, stay - wait)), transfer)
    return wait, kept, transfer, np.where(chosen, 0, absent)


def held_up(matched: Matched, ranks: Sequence[RankSummary], factor: float) -> list[HeldUp]:
    """Return operations of groups that were not loaded whole, or may not have been, which took ``factor`` times as long
    as others of their type and group that moved as much or more: the longest first.

    All that were loaded were there, so that they waited for others, if the link did not fail them.
    """
    if not matched.instances:
        return []
    moved = np.concatenate([sums_of(r.bandwidth.op, r.bandwidth.bytes, len(r.operations)) for r in ranks])
    if not moved.any():  # of what went over links nothing is recorded, but maybe how many elements there were
        moved = np.concatenate([r.operations.bytes for r in ranks])
    most = np.maximum.reduceat(moved[matched.members], matched.starts)
    stay = np.minimum.reduceat(matched.stay[matched.members], matched.starts)
    heads = matched.members[matched.starts]
    kind = alike(matched.type[heads], matched.instance_group)
    name = Labels.concat([r.operations.name for r in ranks]).take(heads)
    chosen = ~matched.complete & matched.together
    found = [
        HeldUp(
            name[row] or "N/A", int(most[row]), int(stay[row]), name[other] or "N/A", int(most[other]), int(stay[other])
        )
        for row, other in slower_than_larger(kind, most, stay, factor)
        if chosen[row]
    ]
    return sorted(found, key=lambda h: -h.stay)


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
    return split_each(summary, matched, waits, place, start, end, [slice(None)])[0]


def split_each(
    summary: RankSummary,
    matched: Matched,
    waits: JobWaits,
    place: int,
    start: I64,
    end: I64,
    kinds: Sequence[Mask | slice],
) -> list[ExposedSplit]:
    """Split the pieces of each kind by itself: all pieces of an operation are of one, none of another's."""
    waited, sent = turns(summary, matched, waits, place)
    alone = waits.alone[matched.first[place] + summary.exposed_op]
    times = np.concatenate([start, end])

    def within(first: I64, last: I64) -> I64:
        before = Intervals.union(first, last).before(times)
        return before[len(start) :] - before[: len(start)]

    found = []
    for rows in kinds:
        begin, until, since, stop, single = (
            column[rows] for column in (summary.exposed_start, waited, sent, summary.exposed_end, alone)
        )
        one = ExposedSplit(within(since, stop), within(begin, until), within(until, since),
                           within(begin[single], stop[single]))  # fmt: skip
        found.append(one)
    return found


def turns(summary: RankSummary, matched: Matched, waits: JobWaits, place: int) -> tuple[I64, I64]:
    """Return for each piece of exposed communication when waiting ends in it, and when transfer for certain begins.

    Within a stay the wait comes first. What is transfer for certain of a stay that is not known otherwise may lie
    anywhere in the rest of it: only what does not fit into the hidden part is exposed, and is put at the end.
    """
    op, mine = summary.exposed_op, slice(*matched.first[place : place + 2].tolist())  # of so many ranks its own alone
    transfer = waits.transfer[mine]
    waited = np.clip((matched.start[mine] + waits.wait[mine])[op], summary.exposed_start, summary.exposed_end)
    length = summary.exposed_end - waited
    exposed = np.bincount(op, weights=length, minlength=len(transfer)).astype(np.int64)
    hidden = transfer + waits.unknown[mine] - exposed
    certain = np.maximum(transfer - hidden, 0)
    order, reached = np.argsort(op, kind="stable"), np.empty(len(op), np.int64)
    reached[order] = np.cumsum(length[order])
    behind = np.cumsum(exposed)[op] - reached  # what of the operation's exposed rest lies behind each piece
    sent = np.maximum(summary.exposed_end - np.clip(certain[op] - behind, 0, length), waited)
    return waited, sent


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

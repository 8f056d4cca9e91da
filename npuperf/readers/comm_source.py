"""A source's communication: the files that tell of it, read once, and put together per device."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.messages import say
from npuperf.base.units import NS_PER_MS, NS_PER_US
from npuperf.model.communication import (
    EVERYBODY,
    SEVERAL,
    Bandwidth,
    Communication,
    LinkUse,
    Operations,
    VendorTimes,
)
from npuperf.model.device import Told
from npuperf.model.groups import alike, distinct, first_rows
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.readers.comm_files import least_ranks, read_communication_json, read_matrix, typed_links, world_links
from npuperf.readers.comm_groups import GroupBook, by_digits, digits_of, operations, read_groups
from npuperf.readers.find import Source
from npuperf.readers.join import match, match_keys, pick, shared_codes
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import TraceTimeline

if TYPE_CHECKING:
    from npuperf.readers.comm_db import DbCommunication

# -- One device's communication, put together: exact times from its tasks, the rest from what exporters summed.

#: How far the exporter's start of an operation may lie from the device's, ns: it is that of the master plane.
_NEAR: Final = NS_PER_MS
#: Kernels that carry out an operation which has a row of its own.
_INNER: Final = re.compile(r"ai(v|cpu)_?kernel$", re.IGNORECASE)
R = TypeVar("R", Bandwidth, VendorTimes)
T = TypeVar("T", Operations, Bandwidth, VendorTimes)


def join(
    tasks: Tasks, parts: Sequence[Communication], named: Operations, book: GroupBook, rank: int | None, *, alone: bool
) -> tuple[Communication, list[Mask]]:
    """Return a device's communication, and of each part which of its operations had to be left out.

    ``parts``: what files recorded, best first, with ranks inside of groups; ``named``: operations whose group the
    timeline names; ``alone``: there is no other device, so what its tasks lack is its own as well.
    """
    ops = Operations.empty()
    mine = np.flatnonzero(tasks.work == Work.COMMUNICATION)
    if len(mine):
        name, type_ = tasks.name.take(mine).fill(tasks.type.take(mine)), tasks.type.take(mine).compact()
        ops = operations(name.compact(), tasks.start[mine], tasks.end[mine], type_=type_, step=tasks.step[mine])
        ops = _once(_outer(ops), parts)
    bandwidth, vendor, left_out = Bandwidth.empty(), VendorTimes.empty(), []
    for part in parts:
        place = _places(ops, part.operations)
        ops, place = _enriched(ops, part.operations, place, alone=alone)
        left_out.append(place < 0)
        bandwidth, vendor = _added(bandwidth, part.bandwidth, place), _added(vendor, part.vendor, place)
    if len(named):
        ops, _ = _enriched(ops, named, _places(ops, named), alone=False, sure=True)
    order = np.lexsort((ops.end, ops.start)).astype(np.int64)
    at = np.empty(len(order) + 1, np.int64)
    at[order], at[-1] = np.arange(len(order)), -1
    recorded = [part.links for part in parts if len(part.links)]
    links = next((use for use in recorded if use.name.known().all()), recorded[0] if recorded else LinkUse.empty())
    links = _stepped(links, ops)  # of every operation, rather than sums and the best and worst operations
    ops = ops.take(order)
    if not ops.group.known().all():  # the last digits tell: the group whose hash ends so, else the digits
        digits = digits_of(ops.name)
        hashes = by_digits({*book.groups, *(g for p in parts for g in p.operations.group.names)})
        told = Labels.concat([Labels(digits.codes, tuple(hashes.get(d.zfill(3), d) for d in digits.names))])
        ops = replace(ops, group=ops.group.fill(told))
    seen = {id_ for labels in (ops.group, links.group) for id_ in labels.compact().names}
    groups = book.of_rank(rank, seen)
    groups = tuple(replace(g, least=max(least_ranks(links, g.id), _reached(ops, g.id))) if not g.ranks else g
                   for g in groups)  # fmt: skip
    links = typed_links(world_links(links, book), ops)
    # The other end of point-to-point operations: of a group of two the other one, else that of its links.
    other, size = np.full((2, len(ops.group.names) + 1), -1, np.int64)
    for code, id_ in enumerate(ops.group.names):
        ranks = book.ranks(id_)
        size[code] = len(ranks)
        if len(ranks) == 2 and rank in ranks:
            other[code] = ranks[1 - ranks.index(rank)]
    peer = _first(_first(ops.peer, other[ops.group.codes]), _linked(ops, links, rank, size[ops.group.codes]))
    ops = replace(ops, peer=np.where(ops.p2p, peer, -1))
    host = next((p.host for p in parts if p.host), None)
    done = Communication(
        ops, groups, replace(bandwidth, op=at[bandwidth.op]), links, replace(vendor, op=at[vendor.op]),
        dict(book.distributed), host,
    )  # fmt: skip
    return done, left_out


def _reached(ops: Operations, group: str) -> int:
    """Return how many ranks a group has at least by what its collectives were made of; 0 where that is not recorded."""
    mine = ops.group.flag([name == group for name in ops.group.names]) & ~ops.p2p
    return max(int(ops.reached[mine].max(initial=0)), 0)


def _stepped(links: LinkUse, ops: Operations) -> LinkUse:
    """Give links of single operations the operation's step, where only one has the name."""
    if not len(links) or not len(ops):
        return links
    ours, theirs = shared_codes(ops.name, links.name)
    known, first, count = np.unique(ours, return_index=True, return_counts=True)
    at = pick(first[count == 1], match(theirs, known[count == 1]))
    step = np.where(theirs >= 0, pick(ops.step, at), -1)
    return replace(links, step=_first(links.step, step))


def _outer(ops: Operations) -> Operations:
    """Leave out kernels that carry out operations which are listed themselves."""
    inner = ops.name.flag([bool(_INNER.search(n)) for n in ops.name.names]) & (ops.index < 0)
    numbered = np.flatnonzero(ops.index >= 0)
    if not inner.any() or not len(numbered):
        return ops
    order = numbered[np.argsort(ops.start[numbered], kind="stable")]
    until = np.maximum.accumulate(ops.end[order])
    before = np.searchsorted(ops.start[order], ops.start + NS_PER_US, side="right") - 1
    within = (before >= 0) & (ops.end <= until[before] + NS_PER_US)
    return ops.filter(~(inner & within))


def _once(ops: Operations, parts: Sequence[Communication]) -> Operations:
    """Count rows of the same operation once: several planes may each have one, within the whole.

    Names with a running number are those of one operation at a time, others only where the times are equal; names that
    operations of several groups have are not: three digits are not many.
    """
    ambiguous: set[str] = set()
    for part in parts:
        names, groups = part.operations.name, part.operations.group
        width = len(groups.names) + 1
        own = distinct(names.codes.astype(np.int64) * width + groups.codes + 1) // width  # each name, once per group
        ambiguous |= {names.names[code] for code in own[1:][own[1:] == own[:-1]].tolist() if code >= 0}
    unique = (ops.index >= 0) & ~ops.name.flag([n in ambiguous for n in ops.name.names])
    while len(ops) > 1:
        order = np.lexsort((-ops.end, ops.start, ops.name.codes))
        name, start, end = ops.name.codes[order], ops.start[order], ops.end[order]
        same = (name[1:] == name[:-1]) & (name[1:] >= 0)
        within = unique[order][1:] & (end[1:] <= end[:-1]) & (start[1:] < end[:-1])
        equal = (start[1:] == start[:-1]) & (end[1:] == end[:-1])
        again = order[1:][same & (within | equal)]
        if not len(again):
            break
        kept = np.ones(len(ops), np.bool_)
        kept[again] = False
        ops, unique = ops.filter(kept), unique[kept]
    return ops


def _places(ops: Operations, recorded: Operations) -> I64:
    """Return the row of ``ops`` that each recorded operation is, -1 for none: by name, and by time of equal names."""
    if not len(ops) or not len(recorded):
        return np.full(len(recorded), -1, np.int64)
    ours, theirs = shared_codes(ops.name, recorded.name)
    (nth, many), (their_nth, their_many) = (_nth(*of) for of in ((ours, ops), (theirs, recorded)))
    place = match_keys((theirs, their_nth), (ours, nth))
    step = pick(ops.step, place)
    steps_differ = (step != recorded.step) & (step >= 0) & (recorded.step >= 0)
    equal = (place >= 0) & (pick(many, place) == their_many)
    good = equal & (_near(ops, recorded, place) | ((their_many == 1) & ~steps_differ))
    nearest = _nearest(ours, ops.start, theirs, recorded.start)
    free = ~good & _near(ops, recorded, nearest) & ~np.isin(nearest, place[good])
    place = np.where(good, place, np.where(free, nearest, -1))
    # A row that several claim is that of the nearest of them.
    order = np.lexsort((np.abs(pick(ops.start, place) - recorded.start), place))
    again = np.zeros(len(place), np.bool_)
    again[order[1:]] = place[order][1:] == place[order][:-1]
    return np.where(again, -1, place)


def _nth(name: I64, ops: Operations) -> tuple[I64, I64]:
    """Return which of its name each row is, by start, then end, and how many have that name."""
    order = np.lexsort((ops.end, ops.start, name))
    _, first, inverse, count = np.unique(name[order], return_index=True, return_inverse=True, return_counts=True)
    nth, many = np.empty((2, len(name)), np.int64)
    nth[order] = np.arange(len(name)) - first[inverse]
    many[order] = count[inverse]
    return nth, many


def _nearest(name: I64, start: I64, their_name: I64, their_start: I64) -> I64:
    """Return the row with the same name whose start is nearest, -1 for none."""
    order = np.lexsort((start, name))
    every = np.lexsort((np.concatenate([start, their_start]), np.concatenate([name, their_name])))
    before = np.cumsum(every < len(name))
    at = np.empty(len(every), np.int64)
    at[every] = before
    right = np.minimum(at[len(name) :], len(name) - 1)
    left = np.maximum(at[len(name) :] - 1, 0)
    left, right = order[left], order[right]
    far = np.iinfo(np.int64).max
    distance = [np.where(name[side] == their_name, np.abs(start[side] - their_start), far) for side in (left, right)]
    nearest = np.where(distance[0] <= distance[1], left, right)
    return np.where(np.minimum(*distance) < far, nearest, -1)


def _near(ops: Operations, recorded: Operations, place: I64) -> Mask:
    start, end, theirs = pick(ops.start, place), pick(ops.end, place), recorded.start
    near = (place >= 0) & (theirs >= start - _NEAR) & (theirs <= np.maximum(end, start + _NEAR))
    return near.astype(np.bool_)


def _enriched(
    ops: Operations, recorded: Operations, place: I64, *, alone: bool, sure: bool = False
) -> tuple[Operations, I64]:
    """Fill what ``ops`` lack from what was recorded, and add what they lack wholly.

    ``sure``: recorded types count before those of names: NCCL runs alltoall by the kernels that send and receive.
    Also return where each recorded operation is now; -1: it has no time, or is perhaps another device's.
    """
    back = np.full(len(ops), -1, np.int64)
    back[place[place >= 0]] = np.flatnonzero(place >= 0)
    numbers: dict[str, Any] = {
        part: _first(getattr(ops, part), pick(getattr(recorded, part), back)) for part in _FILLED
    }
    type_, p2p = recorded.type.take(back), np.append(recorded.p2p, False)[back]
    filled = replace(
        ops,
        type=type_.fill(ops.type) if sure else ops.type.fill(type_),
        group=recorded.group.take(back).fill(ops.group),
        p2p=np.where(type_.known(), p2p, ops.p2p) if sure else ops.p2p | p2p,
        **numbers,
    )
    new = np.flatnonzero((place < 0) & (recorded.start > 0) & alone)
    place = place.copy()
    place[new] = len(ops) + np.arange(len(new))
    return _concat(filled, recorded.take(new)), place


_FILLED: Final = ("step", "index", "peer", "retry", "relay", "bytes", "awaited", "awaited_rank", "reached")


def _first(values: I64, other: I64) -> I64:
    return np.where(values >= 0, values, other)


def _added(rows: R, more: R, place: I64) -> R:
    """Add the rows of operations that have a place and no row yet; they point to the place."""
    at = place[more.op] if len(more.op) else more.op
    kept = np.flatnonzero((at >= 0) & ~np.isin(at, rows.op))
    if not len(kept):
        return rows
    columns = {name: getattr(more, name).take(kept) for name in more.__struct_fields__}
    return _concat(rows, type(rows)(**(columns | {"op": at[kept]})))


def _concat(one: T, other: T) -> T:
    columns: dict[str, Any] = {}
    for name in one.__struct_fields__:
        pair = [getattr(one, name), getattr(other, name)]
        columns[name] = Labels.concat(pair) if isinstance(pair[0], Labels) else np.concatenate(pair)
    return type(one)(**columns)


def _linked(ops: Operations, links: LinkUse, rank: int | None, size: I64) -> I64:
    """Return the only other rank that an operation's links name; SEVERAL where these are more, EVERYBODY where they are
    all others of its group, which has so many ranks (``size``).

    A matrix has the best and worst operation of each link, so it may lack links of those that have several: beside one
    that is known to have more, others of its group may, too.
    """
    if rank is None or not len(links) or not len(ops):
        return np.full(len(ops), -1, np.int64)
    far = np.where(links.source == rank, links.target, np.where(links.target == rank, links.source, -1))
    mine = np.flatnonzero((far >= 0) & links.name.known())
    ours, theirs = shared_codes(ops.name, links.name.take(mine))
    pair = alike(theirs, far[mine])
    each = first_rows(pair, int(pair.max(initial=-1)) + 1)  # a row of every name and rank
    single = each[np.bincount(theirs[each])[theirs[each]] == 1]
    found = pick(far[mine][single], match(ours, theirs[single]))
    batched = ops.type.flag([t == "batchSendRecv" for t in ops.type.names])
    found = found if links.name.known().all() else np.where(batched, -1, found)
    named = distinct(theirs[each])
    ends = pick(np.bincount(theirs[each])[named], match(ours, named))
    more = batched & (ends > 1)
    beside = np.isin(ops.group.codes, ops.group.codes[more]) & batched & (found < 0)
    return np.where(more & (ends == size - 1), EVERYBODY, np.where(more | beside, SEVERAL, found))


class CommunicationFiles(Struct):
    """What was read: the exporter's ``sums``, best first; what a database has, by device; groups.

    ``whole``: the sums of operations and of links were there, and nothing of them was lost. ``left_out``: the
    operations of each of the sums that no device has so far.
    """

    sums: list[Communication] = field(default_factory=list)
    recorded: dict[int, Communication] = field(default_factory=dict)
    book: GroupBook = field(default_factory=GroupBook)
    whole: bool = False
    left_out: list[Mask] = field(default_factory=list)

    def take(self, recorded: DbCommunication) -> None:
        """Take over what a database has."""
        self.recorded = recorded.devices
        self.book.take(recorded.book)

    def read(self, source: Source, log: ReadLog, attempt: Callable[[], AbstractContextManager[None]]) -> None:
        """Read what the exporter summed of each operation and link, and which ranks the groups have."""
        notes = len(log.lost) + len(log.warnings)
        if source.communication:
            with attempt():
                self.sums.append(read_communication_json(source.communication, log))
                log.use(source.communication)
        if source.matrix:
            with attempt():
                self.sums.append(Communication(links=read_matrix(source.matrix, log)))
                log.use(source.matrix)
        self.whole = len(self.sums) == 2 and notes == len(log.lost) + len(log.warnings)
        if source.db and not self.recorded and not source.communication:
            from npuperf.readers.comm_db import read_communication_db
            from npuperf.readers.sqlite import open_database

            with attempt(), open_database(source.db, log) as db:
                self.take(read_communication_db(db))
                log.use(source.db)
        self.book.take(read_groups(source.groups, log))

    def told(self, source: Source) -> Told | None:
        """Return how many operations the exporter summed, and the time in which one of them was under way."""
        operations = next((part.operations for part in self.sums if len(part.operations)), None)
        if operations is None:
            return None
        timed = operations.start > 0
        under_way = Intervals.union(operations.start[timed], operations.end[timed]).total()
        file = source.communication if source.communication and self.sums[0].operations is operations else None
        name = (file or source.analysis_db or source.communication or source.root).name
        return Told(name, int(np.count_nonzero(timed)), under_way)

    def of_device(
        self, number: int | None, rank: int | None, tasks: Tasks, timeline: TraceTimeline, *, alone: bool
    ) -> Communication:
        """Return one device's communication; ``alone``: the source has no other."""
        own = [self.recorded[d] for d in (number, -1) if d is not None and d in self.recorded]
        parts = [*self.sums, *(own or (list(self.recorded.values()) if alone else []))]
        rank = rank if rank is not None else self.book.rank
        self.book.take(timeline.book)
        done, left_out = join(tasks, parts, timeline.named, self.book, rank, alone=alone)
        here = left_out[: len(self.sums)]
        self.left_out = [a & b for a, b in zip(self.left_out, here, strict=True)] if self.left_out else here
        return done

    def report(self, log: ReadLog) -> None:
        """Tell of the operations that no device has."""
        lost = sum(int(np.count_nonzero(mask)) for mask in self.left_out)
        if lost:
            file = next((f for f in log.files if Path(f).name == "communication.json"), log.files[-1])
            log.lose(file, lost, say("recorded operations without a time, or perhaps of another device"))

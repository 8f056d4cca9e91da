"""What the parts of a communication operation tell of it: tasks on planes, each of one link, that notify and move data.

Before data moves, both ends of a link notify each other that they are there. So what a rank waited until it moved the
first data of an operation it waited for somebody to come. Later waits hold the other end's own transfers.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from npuperf.model.groups import alike, last_largest, rows_of_each
from npuperf.model.labels import I64, Columns, Labels, Mask
from npuperf.readers.trace import Trace

#: Waits for the other end of a link, as exporters call them.
NOTIFY_WAIT: Final = "Notify_Wait"
_GROUP: Final = re.compile("Group ")
#: Bytes of an element, by HCCL's names (ENUM_HCCL_DATA_TYPE in msprof's databases).
_BYTES: Final = {
    "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "FP16": 2, "BFP16": 2, "INT32": 4, "UINT32": 4, "FP32": 4,
    "INT64": 8, "UINT64": 8, "FP64": 8, "INT128": 16,
}  # fmt: skip


class Parts(Columns, frozen=True):
    """Tasks between a rank and another one, ns: ``op`` is the row of the operation, ``partner`` the other rank inside
    of its group. ``waits``: for a notification; ``moved``: bytes of data.
    """

    op: I64
    plane: I64
    start: I64
    end: I64
    waits: Mask
    moved: I64
    partner: I64


def bytes_of(elements: I64, dtype: Labels) -> I64:
    """Return how many bytes so many elements are, -1 where their number or their type is not known."""
    size = np.array([*(_BYTES.get(name, 0) for name in dtype.names), 0], np.int64)[dtype.codes]
    return np.where((elements > 0) & (size > 0), elements * size, -1)


def parts_of(trace: Trace, collective: I64) -> Parts:
    """Return what planes hold of a timeline's collectives, the rows of which are given: a group's planes follow its
    thread. Where they hold anything outside of its operations they are others', and tell nothing.
    """
    every, found = trace.slices, list[Parts]()
    mine = np.flatnonzero(every.partner >= 0)
    ops = np.argsort(every.start[collective], kind="stable")
    for pid, own in rows_of_each(every.pid[mine]):
        threads = np.array(sorted(tid for (p, tid), name in trace.threads.items() if p == pid and _GROUP.match(name)))
        here = ops[every.pid[collective[ops]] == pid]
        group, of_op = (
            np.searchsorted(threads, every.tid[rows], "right") - 1 for rows in (mine[own], collective[here])
        )
        for number in range(len(threads)):
            rows, these = mine[own[group == number]], here[of_op == number]
            at = np.searchsorted(every.start[collective[these]], every.start[rows], "right") - 1
            if len(rows) and len(these) and (at >= 0).all():
                op, part = these[at], every.take(rows)
                if (part.start < every.end[collective[op]]).all():
                    waits = part.name.flag([name == NOTIFY_WAIT for name in part.name.names])
                    found.append(Parts(op, part.tid, part.start, part.end, waits, part.moved, part.partner))
    if not found:
        return Parts.empty()
    return Parts(*(np.concatenate([getattr(part, name) for part in found]) for name in Parts.__struct_fields__))


def first_waits(parts: Parts, start: I64) -> dict[str, I64]:
    """Return of each operation, which begin at ``start``, how long it waited for others at least, for whom longest, and
    how many ranks its parts reach: the columns ``awaited``, ``awaited_rank`` and ``reached`` of Operations, -1 unknown.

    Counted is the longest wait that was over when the operation first moved data over any link. Taken off is what the
    other end may have done in it: it notifies as long after its own begin as this one waits after its begin, and may
    have moved data of others meanwhile, but no longer than this one's busiest plane does in all.
    """
    count = len(start)
    awaited, rank, reached = (np.full(count, -1, np.int64) for _ in range(3))
    if not len(parts):
        return {"awaited": awaited, "awaited_rank": rank, "reached": reached}
    np.maximum.at(reached, parts.op, parts.partner + 1)
    pair = alike(parts.op, parts.partner)
    each = np.unique(pair, return_index=True)[1]
    others = np.bincount(parts.op[each], minlength=count)
    reached = np.where(others > 0, np.maximum(reached, others + 1), -1)

    moves = parts.filter(parts.moved > 0)
    first = np.full(count, -1, np.int64)  # of an operation that moved nothing it is not known what waits are for
    if len(moves):
        begun = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(begun, moves.op, moves.start)
        first = np.where(begun < np.iinfo(np.int64).max, begun, -1)
        plane = alike(moves.op, moves.plane)
        spent = np.bincount(plane, weights=moves.end - moves.start)
        of_plane = moves.op[np.unique(plane, return_index=True)[1]]
        busiest = np.zeros(count)
        np.maximum.at(busiest, of_plane, spent)
        before = parts.filter(parts.waits & (parts.end <= first[parts.op]))
        if len(before):
            length = before.end - before.start
            group = alike(before.op)
            longest = last_largest(group, length, int(group.max()) + 1)
            op = before.op[longest]
            others_own = before.start[longest] - start[op] + np.rint(busiest[op]).astype(np.int64)
            awaited[op] = np.maximum(length[longest] - others_own, 0)
            rank[op] = np.where(awaited[op] > 0, before.partner[longest], -1)
    return {"awaited": awaited, "awaited_rank": rank, "reached": reached}

"""What torch_npu writes of the host into its database: operators, Python frames, the task queue, garbage collection.

CONNECTION_IDS ties operators to the launches of their kernels, calls that put work into the queue to those that take
it out, and forward operators to backward operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.host import Arrows, Spans, frame_cause, is_user_frame
from npuperf.model.intervals import SIGNED, narrow
from npuperf.model.labels import I64, Labels
from npuperf.model.names import is_step
from npuperf.model.tasks import UNKNOWN
from npuperf.readers.join import Queue, match, pick, user_frames
from npuperf.readers.sqlite import Database, Spelled

_TORCH_OP, _QUEUE, _PYTHON_FRAME = 50001, 50002, 50003
_TID_MASK: Final = 0xFFFFFFFF
#: SQLite takes statements of a million characters.
_MOST_IDS: Final = 50_000


class TorchEvents(Struct, frozen=True):
    """Operators with their stacks, the user's frames, arrows from backward to forward, the queue, and all events.

    ``launched`` and ``launcher``: connection ids of launches with the operator behind each.
    """

    ops: Spans
    stack: Labels
    frames: Spans
    arrows: Arrows
    queue: Queue
    launched: I64
    launcher: I64
    events: Spans

    def op_of(self, connection: I64) -> I64:
        """Return the operator that a task's connection id leads to, -1 unknown."""
        return pick(self.launcher, match(connection, self.launched))


def host_spans(db: Database, table: str, wanted: Mapping[str, Spelled], where: str = "") -> dict[str, I64]:
    """Read a table of host events: ``start``, ``end``, ``thread`` and what is ``wanted``."""
    rows = db.spans(table, {"thread": "globalTid"} | dict(wanted), where)
    thread = rows["thread"]
    return rows | {"thread": np.where(thread < 0, UNKNOWN, thread & _TID_MASK)}


def read_torch(db: Database, launches: I64) -> TorchEvents:
    """Read torch_npu's own tables; ``launches``: connection ids of launches, which name kernels."""
    wanted: dict[str, Spelled] = {"kind": ("type",), "name": "name", "stack": ("callchainId",)}
    wanted["connection"] = "connectionId"
    chosen = ""
    if {"type", "name"} <= db.has("PYTORCH_API"):
        ids = [number for number, text in db.strings.items() if _is_wanted(text)]
        named = f" OR name IN ({','.join(map(str, ids))})" if ids and len(ids) <= _MOST_IDS else " OR 1" if ids else ""
        chosen = f"WHERE type != {_PYTHON_FRAME} OR type IS NULL{named}"
    rows = host_spans(db, "PYTORCH_API", wanted, chosen)
    name = db.text(rows["name"])
    is_frame = rows["kind"] == _PYTHON_FRAME
    is_op = np.flatnonzero(np.isin(rows["kind"], (_TORCH_OP, UNKNOWN)))
    is_op = is_op[np.lexsort((-rows["end"][is_op], rows["start"][is_op], rows["thread"][is_op]))]
    ops, stack = _spans(rows, name, is_op), _stacks(db, rows["stack"][is_op])
    at = np.flatnonzero(is_frame)
    at = at[np.lexsort((-rows["end"][at], rows["start"][at], rows["thread"][at]))]
    frames = _spans(rows, name, at[name.flag(list(map(_is_wanted, name.names)))[at]])
    pairs = db.columns("CONNECTION_IDS", {"id": "id", "connection": "connectionId"})
    which, op = _joined(pairs["id"], rows["connection"][is_op])
    connection = pairs["connection"][which]
    is_launch = np.isin(connection, launches)
    ours = np.flatnonzero(frames.name.flag(list(map(is_user_frame, frames.name.names))))
    mine = Spans(frames.start[ours], frames.end[ours], frames.thread[ours], frames.name.take(ours).compact())
    events = _spans(rows, name, np.flatnonzero(~is_frame))
    # Python's garbage collections stop the thread whose steps are marked, as in timelines.
    gc = host_spans(db, "GC_RECORD", {})
    steps = np.flatnonzero(ops.name.flag([is_step(n) for n in ops.name.names]))
    size = len(gc["start"])
    thread = np.full(size, ops.thread[steps[0]]) if len(steps) else gc["thread"]
    collections = Spans(gc["start"], gc["end"], thread, Labels(np.zeros(size, np.int32), ("GC",) if size else ()))
    return TorchEvents(
        ops,
        stack,
        user_frames(mine, frames, stack),
        _arrows(ops, connection[~is_launch], op[~is_launch]),
        _queue(rows, name, pairs),
        connection[is_launch],
        op[is_launch],
        joined([events, frames, collections]),
    )


def joined(parts: list[Spans]) -> Spans:
    """Return events of several kinds as one table, in its order, an outer event before an inner one."""
    start, end, thread = (np.concatenate([getattr(p, n) for p in parts]) for n in ("start", "end", "thread"))
    name = Labels.concat([p.name for p in parts])
    order = np.lexsort((-end, start, thread))
    return Spans(start[order], end[order], narrow(thread[order], SIGNED), name.take(order))


def _spans(rows: dict[str, I64], name: Labels, at: I64) -> Spans:
    return Spans(rows["start"][at], rows["end"][at], rows["thread"][at], name.take(at).compact())


def _is_wanted(text: str) -> bool:
    if "): " not in text and not text.startswith(("nn.Module", "<built-in ")):
        return False
    return is_user_frame(text) or text.startswith("nn.Module") or frame_cause(text) != "python"


def _joined(left: I64, right: I64) -> tuple[I64, I64]:
    """Return the rows of both sides for every pair of equal keys; negative keys are none."""
    order = np.argsort(right, kind="stable")
    first, last = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    count = np.where(left >= 0, last - first, 0)
    which = np.repeat(np.arange(len(left)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    return which, order[np.repeat(first, count) + within]


def _arrows(ops: Spans, connection: I64, op: I64) -> Arrows:
    """Find forward operators of backward operators: they share an id that names no kernel, and begin first."""
    order = np.lexsort((ops.start[op], connection))
    connection, op = connection[order], op[order]
    first = np.ones(len(op), np.bool_)
    first[1:] = connection[1:] != connection[:-1]
    forward = op[np.flatnonzero(first)][np.cumsum(first) - 1]
    here, there = op[~first], forward[~first]
    return Arrows.build(ops.thread[here], ops.start[here], ops.thread[there], ops.start[there])


def _queue(rows: dict[str, I64], name: Labels, pairs: dict[str, I64]) -> Queue:
    """Find what the task queue's consumer took out, and through shared ids the calls that put it in."""
    is_queue = rows["kind"] == _QUEUE
    into, out = (
        np.flatnonzero(is_queue & name.flag([n.startswith(word) for n in name.names]))
        for word in ("Enqueue", "Dequeue")
    )
    id_in, id_out = (
        pick(pairs["connection"], match(rows["connection"][at], pairs["id"]), missing) for at, missing in
        ((into, -1), (out, -2))
    )  # fmt: skip
    call = pick(into, match(id_out, id_in))
    return Queue(
        rows["thread"][out], rows["start"][out], rows["end"][out], pick(rows["thread"], call), pick(rows["start"], call)
    )


def _stacks(db: Database, ids: I64) -> Labels:
    """Return the recorded stacks with these ids, innermost frame first."""
    rows = db.columns("PYTORCH_CALLCHAINS", {"id": "id", "stack": "stack", "depth": "stackDepth"})
    order = np.lexsort((rows["depth"], rows["id"]))
    stacks: dict[int, list[str]] = {}
    for id_, frame in zip(rows["id"][order].tolist(), rows["stack"][order].tolist(), strict=True):
        stacks.setdefault(id_, []).append(db.strings.get(frame, ""))
    known, codes = np.unique(ids, return_inverse=True)
    return Labels.of([";".join(stacks[i]) if i in stacks else None for i in known.tolist()]).take(codes)

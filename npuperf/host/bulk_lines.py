"""Lines of code for many times at once: those that HostOps finds one by one, which takes too long for thousands."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.host.enclosing import NONE
from npuperf.model.groups import distinct
from npuperf.model.host import HostOps, Spans, shorten, user_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.runs import rows_of


class Lines(Struct, frozen=True):
    """What tells lines of code: frames, operators whose recorded stack has a line, backward operators with arrows.

    ``stacks``: the lines of these operators; ``arrow``: the arrow of each of the backward ones.
    """

    host: HostOps
    frames: Enclosing
    recorded: Enclosing
    stacks: Labels
    backward: Enclosing
    arrow: I64

    @classmethod
    def of(cls, host: HostOps) -> Lines:
        """Look at what the host recorded."""
        ops, stack = host.ops, host.stack if len(host.stack) else Labels.missing(len(host.ops))
        found = [user_frame(text) for text in stack.names]
        lines = Labels.of(found).take(stack.codes.astype(np.int64))
        step = ops.name.flag([name.startswith("ProfilerStep#") for name in ops.name.names])
        told = lines.known() & ~step
        arrow = _arrows(host)
        return cls(
            host=host,
            frames=Enclosing.of(host.frames),
            recorded=Enclosing.of(_some(ops, told)),
            stacks=lines.filter(told),
            backward=Enclosing.of(_some(ops, arrow >= 0)),
            arrow=arrow[arrow >= 0],
        )

    def of_ops(self, op: I64) -> Labels:
        """Return for each torch operator the line that :meth:`HostOps.code_line` finds; none for NONE."""
        known = np.flatnonzero(op >= 0)
        ops = self.host.ops
        found = self.at(ops.thread[op[known]], ops.start[op[known]], ops.end[op[known]])
        place = np.full(len(op), NONE)
        place[known] = np.arange(len(known))
        return found.take(place)

    def at(self, thread: I64, time: I64, until: I64 | None = None, *, forward: bool = True) -> Labels:
        """Return for each time on a thread the line that :meth:`HostOps.line_at` finds.

        ``until``: only operators that last so long count.
        """
        until = time if until is None else until
        frame, op = self.frames.innermost(thread, time, time), self.recorded.innermost(thread, time, until)
        inner = op >= 0
        both = np.flatnonzero(inner & (frame >= 0))
        inner[both] = self.recorded.spans.start[op[both]] >= self.frames.spans.start[frame[both]]
        texts = self.host.frames.name.take(frame).compact()
        lines = self.stacks.take(np.where(inner, op, NONE)).fill(Labels(texts.codes, tuple(map(shorten, texts.names))))
        if not forward or not len(self.arrow):
            return lines
        behind = np.where(inner | (frame >= 0), NONE, self.backward.innermost(thread, time, until))
        rows = np.flatnonzero(behind >= 0)
        arrow, arrows = self.arrow[behind[rows]], self.host.arrows
        place = np.full(len(time), NONE)
        place[rows] = np.arange(len(rows))
        then = self.at(arrows.forward_thread[arrow], arrows.forward_time[arrow], forward=False)
        return lines.fill(then.take(place))


class Enclosing(Struct, frozen=True):
    """Events with a way out of those that have ended. ``longer``: the latest earlier one of its thread that ends later.

    NONE where there is none.
    """

    spans: Spans
    longer: I64

    @classmethod
    def of(cls, spans: Spans) -> Enclosing:
        """Find for each event the way out; pointers double their reach every round."""
        longer = np.arange(-1, len(spans) - 1)
        fresh = np.ones(len(spans), np.bool_)
        np.not_equal(spans.thread[1:], spans.thread[:-1], out=fresh[1:])
        longer[fresh] = NONE
        open_ = np.flatnonzero(longer >= 0)
        while len(open_):
            open_ = open_[spans.end[longer[open_]] <= spans.end[open_]]
            longer[open_] = longer[longer[open_]]
            open_ = open_[longer[open_] >= 0]
        return cls(spans, longer)

    def innermost(self, thread: I64, time: I64, until: I64) -> I64:
        """Return the latest-started event of each thread that has begun at a time and lasts ``until`` then at least."""
        at = np.full(len(time), NONE)
        for one in distinct(thread).tolist() if len(self.spans) else ():
            mine = np.flatnonzero(thread == one)
            rows = rows_of(self.spans.thread, one)
            last = rows.start + np.searchsorted(self.spans.start[rows], time[mine], side="right") - 1
            at[mine] = np.where(last >= rows.start, last, NONE)
        open_ = np.flatnonzero(at >= 0)
        while len(open_):
            open_ = open_[self.spans.end[at[open_]] < until[open_]]
            at[open_] = self.longer[at[open_]]
            open_ = open_[at[open_] >= 0]
        return at


def _some(spans: Spans, chosen: Mask) -> Spans:
    return Spans(spans.start[chosen], spans.end[chosen], spans.thread[chosen], spans.name.filter(chosen))


def _arrows(host: HostOps) -> I64:
    """Return for each operator the arrow that leads from where it begins to its forward operator, NONE without one."""
    arrows, ops = host.arrows, host.ops
    found = np.full(len(ops), NONE)
    for thread in distinct(arrows.thread).tolist():
        own, theirs = rows_of(ops.thread, thread), rows_of(arrows.thread, thread)
        at = np.minimum(theirs.start + np.searchsorted(arrows.time[theirs], ops.start[own]), theirs.stop - 1)
        found[own] = np.where(arrows.time[at] == ops.start[own], at, NONE)
    return found

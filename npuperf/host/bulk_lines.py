"""Lines of code for many host events at once: the same that HostOps finds one by one, where that takes too long."""

from __future__ import annotations

import numpy as np

from npuperf.host.nesting import NONE, Nesting
from npuperf.model.host import Arrows, HostOps, is_user_frame, shorten
from npuperf.model.labels import I64, Labels, Mask


def lines_of(event: I64, host: HostOps, nesting: Nesting) -> Labels:
    """Return the line of the user's code in which each event began, as :meth:`HostOps.line_at`; none for NONE."""
    if not host.has_lines or not len(nesting.events):
        return Labels.missing(len(event))
    if host.stack.names:  # which operator's stack counts is told one by one
        return _one_by_one(event, host, nesting)
    names = nesting.events.name
    frames = names.flag([is_user_frame(n) for n in names.names])
    at = nesting.nearest(event, frames)
    arrow = _arrows(nesting.nearest(np.where(at < 0, event, NONE), _has_arrow(host.arrows, nesting)), host, nesting)
    behind = np.flatnonzero(arrow >= 0)
    then = host.arrows.forward_time[arrow[behind]]
    at[behind] = nesting.nearest(nesting.at(host.arrows.forward_thread[arrow[behind]], then), frames)
    texts = names.take(at).compact()
    lines = Labels(texts.codes, tuple(map(shorten, texts.names)))
    # Where a frame ends at that very time it still counts, and nesting does not say so.
    close = (event >= 0) & np.isin(nesting.events.start[event], host.frames.end)
    close[behind] |= np.isin(then, host.frames.end)
    if not close.any():
        return lines
    asked = _one_by_one(np.where(close, event, NONE), host, nesting)
    return asked.fill(lines.take(np.where(close, NONE, np.arange(len(event)))))


def _one_by_one(event: I64, host: HostOps, nesting: Nesting) -> Labels:
    """Ask for the line of each of the events, of the same ones once."""
    found, which = np.unique(event, return_inverse=True)
    thread, start = nesting.events.thread[found], nesting.events.start[found]
    lines = [
        None if one < 0 else host.line_at(*place)
        for one, *place in zip(found.tolist(), thread.tolist(), start.tolist(), strict=True)
    ]
    return Labels.of(lines).take(which.reshape(-1))


def _has_arrow(arrows: Arrows, nesting: Nesting) -> Mask:
    """True for events that begin where a backward operator with a known forward operator does."""
    marked = np.zeros(len(nesting.events), np.bool_)
    if len(arrows.time):
        at = nesting.at(arrows.thread, arrows.time)
        marked[at[at >= 0]] = True
    return marked


def _arrows(event: I64, host: HostOps, nesting: Nesting) -> I64:
    """Return the arrow of the backward operator that begins with each event, -1 for NONE."""
    arrows = host.arrows
    found = np.full(len(event), NONE)
    mine = np.flatnonzero(event >= 0)
    for thread in np.unique(arrows.thread).tolist():
        low, high = np.searchsorted(arrows.thread, [thread, thread + 1]).tolist()
        own = mine[nesting.events.thread[event[mine]] == thread]
        start = nesting.events.start[event[own]]
        at = np.minimum(low + np.searchsorted(arrows.time[low:high], start), high - 1)
        found[own] = np.where(arrows.time[at] == start, at, NONE)
    return found

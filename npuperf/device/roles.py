"""Reinforcement learning: which part of an iteration a rank is in, by the names of ranges on its host.

A range is what the program marked (mstx, record_function), or a function of its own that was recorded. Time belongs to
the innermost one: the transfer of weights within a rollout is no rollout.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64
from npuperf.model.names import Role, role_of


class RoleTimes(Struct, frozen=True):
    """One role of a rank: its turns in order of time, epoch ns of the device's clock.

    ``names``: of the ranges that tell. ``length``: what of a turn is no other role's within it; ``active``: what of
    that the device works or communicates in.
    """

    role: Role
    names: tuple[str, ...]
    start: I64
    end: I64
    length: I64
    active: I64

    def between(self, begin: int, end: int) -> RoleTimes:
        """Return the turns that begin in a window."""
        inside = np.flatnonzero((self.start >= begin) & (self.start < end))
        columns = (self.start[inside], self.end[inside], self.length[inside], self.active[inside])
        return RoleTimes(self.role, self.names, *columns)


def role_times(events: Spans, skew: int, active: Intervals, begin: int, end: int) -> tuple[RoleTimes, ...]:
    """Return the roles of a rank in a window; ``skew``: how far the host's clock is ahead of the device's, ns."""
    told = [role_of(name) for name in events.name.names]
    rows = np.flatnonzero(events.name.flag([role is not None for role in told]))
    start, stop = np.maximum(events.start[rows] - skew, begin), np.minimum(events.end[rows] - skew, end)
    names, code = events.name.names, events.name.codes[rows]
    here = stop > start
    whole: dict[Role, Intervals] = {}
    called: dict[Role, tuple[str, ...]] = {}
    for role in dict.fromkeys(told[c] for c in distinct(code[here].astype(np.int64)).tolist()):
        assert role is not None
        mine = here & np.array([t == role for t in told], np.bool_)[code]
        whole[role] = Intervals.union(start[mine], stop[mine])
        called[role] = tuple(sorted(names[c] for c in distinct(code[mine].astype(np.int64)).tolist()))
    times = []
    for role, turns in whole.items():
        inner = Intervals(turns.start[:0], turns.end[:0])
        for other in (own for name, own in whole.items() if name != role):
            around = np.searchsorted(turns.start, other.start, side="right") - 1
            within = (around >= 0) & (other.end <= turns.end[around])
            within &= (other.start > turns.start[around]) | (other.end < turns.end[around])
            inner = inner.joined(Intervals(other.start[within], other.end[within]))
        own = turns.minus(inner)
        work = own.minus(own.minus(active))
        times.append(RoleTimes(role, called[role], turns.start, turns.end, own.within(turns), work.within(turns)))
    return tuple(times)

"""Which part of the program launched a task: forward, backward or optimizer, the user's own ranges, modules."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.host.causes import CODE
from npuperf.host.enclosing import NONE
from npuperf.host.nesting import Nesting
from npuperf.messages import Message, say, series
from npuperf.model.groups import tally
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks

_OPTIMIZER: Final = re.compile(r"^Optimizer\.")
_BACKWARD: Final = re.compile(r"^autograd::engine::evaluate_function|[bB]ackward")
_MODULE: Final = re.compile(r"^nn\.Module: (.+)$")
#: The parts of training.
PARTS: Final = {"forward": say("forward"), "backward": say("backward"), "optimizer": say("optimizer")}
#: What a label names must cover this share of the phase's launches.
_MAIN_SHARE: Final = 0.6
_PART_SHARE: Final = 0.2


class Sections(Struct, frozen=True):
    """Per task: the part of training it belongs to, and the user's range or module around its launch."""

    part: Labels
    range: Labels

    def label(self, first: int, last: int, weight: I64) -> Message | None:
        """Name the tasks ``first`` … ``last-1`` by what most of their time belongs to."""
        parts = _shares(self.part, first, last, weight)
        notable = {name for name, share in parts if share >= _PART_SHARE}
        named = [name for name in self.part.names if name in notable]
        ranges = [name for name, share in _shares(self.range, first, last, weight)[:1] if share >= _MAIN_SHARE]
        if not named:
            return say("{range}", range=ranges[0]) if ranges else None
        listed = series(PARTS[name] for name in named)
        return say("{parts} in {range}", parts=listed, range=ranges[0]) if ranges else say("{parts}", parts=listed)


def find_sections(tasks: Tasks, host: HostOps, nesting: Nesting) -> Sections:
    """Find the part and the range of every task, by its torch operator, else by its launch."""
    events = nesting.events
    if not len(events):
        return Sections(Labels.missing(len(tasks)), Labels.missing(len(tasks)))
    thread, time = tasks.launch_thread.copy(), np.where(tasks.launched, tasks.launch_start, 0)
    if len(host.ops):
        known = tasks.op >= 0
        thread = np.where(known, host.ops.thread[tasks.op], thread)
        time = np.where(known, host.ops.start[tasks.op], time)
    inner = nesting.at(thread, time)
    names = events.name.names
    optimizer = nesting.nearest(inner, events.name.flag([bool(_OPTIMIZER.search(n)) for n in names])) != NONE
    backward = nesting.nearest(inner, events.name.flag([bool(_BACKWARD.search(n)) for n in names])) != NONE
    forward = (inner != NONE) & _before_the_end_of(backward, tasks.step, time)
    part = np.select([optimizer, backward, forward], [2, 1, 0], NONE).astype(np.int32)
    return Sections(Labels(part, tuple(PARTS)).narrowed(), _ranges(inner, nesting))


def _before_the_end_of(backward: Mask, step: I64, time: I64) -> Mask:
    """True for what is launched before the last launch of a backward pass in its step; what follows is neither."""
    numbers, which = np.unique(step, return_inverse=True)
    last = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(last, which[backward], time[backward])
    before: Mask = time <= last[which]
    return before


def _ranges(inner: I64, nesting: Nesting) -> Labels:
    """Name the innermost user range around each launch, else the module just below the model itself."""
    events = nesting.events
    names = events.name.names
    own = nesting.nearest(inner, nesting.causes == CODE["range"])
    module = events.name.flag([bool(_MODULE.match(n)) for n in names])
    model = nesting.outermost(inner, module)
    below = _child_towards(inner, model, module, nesting)
    chosen = np.where(own >= 0, own, np.where(below >= 0, below, model))
    found = events.name.take(chosen)
    return Labels(found.codes, tuple(_MODULE.sub(r"\1", n) for n in found.names)).narrowed()


def _child_towards(inner: I64, model: I64, module: Mask, nesting: Nesting) -> I64:
    """Return the module just inside ``model`` on the way to each event, NONE if there is none."""
    child = np.full(len(inner), NONE)
    at = nesting.nearest(inner, module)
    while (moving := (at >= 0) & (at != model)).any():
        child = np.where(moving, at, child)
        at = nesting.nearest(np.where(moving, nesting.parent[at], NONE), module)
    return child


def _shares(labels: Labels, first: int, last: int, weight: I64) -> list[tuple[str, float]]:
    """Return the names of a stretch of tasks with their share of its weight, the largest first."""
    codes, _, sums = tally(labels.codes[first:last], weight[first:last])
    total = int(weight[first:last].sum())
    order = np.argsort(-sums, kind="stable")
    named = ((int(codes[i]), int(sums[i])) for i in order.tolist())
    return [(labels.names[code], ns / total) for code, ns in named if code >= 0 and ns]

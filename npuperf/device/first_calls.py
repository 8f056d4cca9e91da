"""Work of a process's first calls: contexts, modules, the code of each kernel. A warm run has none of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.device.host_events import NONE, Nesting
from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.labels import I64, Mask
from npuperf.model.names import names_for
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds

#: Calls that may be one-time work; waits and copies take as long as the device, compilation has a rule of its own.
_CALL: Final = names_for("call", "operator")
_NOT: Final = names_for("async")
#: Calls that only set something up.
_ONCE: Final = names_for("set_up")
#: The call that is used to make the context, if it is the first of all.
_CONTEXT: Final = names_for("context")
_LAUNCH: Final = names_for("launch")
#: One-time work is done in one of the first calls of a name: the very first may only be on another thread or stream.
_FIRST: Final = 3


def first_calls(nesting: Nesting, tasks: Tasks, thresholds: Thresholds) -> Mask:
    """Tell the host events that do one-time work: long calls that are the first, and never so long again."""
    events = nesting.events
    found = np.zeros(len(events), np.bool_)
    if len(events):
        found[_first_of_name(events, thresholds)] = True
        found[_first_of_kernel(nesting, tasks, thresholds)] = True
    return found


def _first_of_name(events: Spans, thresholds: Thresholds) -> I64:
    """Return the calls that are long, among the first of their name, and never so long again."""
    names = events.name.names
    dur = events.end - events.start
    calls = events.name.flag([bool(_CALL.search(n)) and not _NOT.search(n) for n in names])
    long = calls & (dur >= thresholds.pause_ns)
    if not long.any():
        return np.empty(0, np.int64)
    first_of_all = int(np.flatnonzero(calls)[np.argmin(events.start[calls])])
    once = long & events.name.flag([bool(_ONCE.match(n)) for n in names])
    if _CONTEXT.match(names[events.name.codes[first_of_all]]):
        once[first_of_all] |= bool(long[first_of_all])
    for code in distinct(events.name.codes[long]).tolist():
        mine = np.flatnonzero(events.name.codes == code)
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        first, later = mine[:_FIRST], mine[_FIRST:]
        if len(later):
            once[first[dur[first] >= thresholds.first_call_factor * dur[later].max()]] = True
    return np.flatnonzero(once & long)


def _first_of_kernel(nesting: Nesting, tasks: Tasks, thresholds: Thresholds) -> I64:
    """Return the launches that are long and the first of their kernel: the runtime loads its code then.

    Later launches of the same kernel are not nearly as long, launches of kernels that ran before are usually not (the
    median tells), and far less often than first ones.
    """
    launched = np.flatnonzero(tasks.launched & tasks.name.known())
    length = tasks.launch_end[launched] - tasks.launch_start[launched]
    if not (length >= thresholds.pause_ns).any():
        return np.empty(0, np.int64)
    factor = thresholds.first_call_factor
    order = np.argsort(tasks.launch_start[launched], kind="stable")
    launched, length = launched[order], length[order]
    kernel = tasks.name.codes[launched]
    _, at = np.unique(kernel, return_index=True)
    first = np.zeros(len(launched), np.bool_)
    first[at] = True
    longest = np.zeros(len(tasks.name.names), np.int64)  # of later launches, by kernel
    np.maximum.at(longest, kernel[~first], length[~first])
    long = length >= thresholds.pause_ns
    usual = float(np.median(length[~first])) if (~first).any() else 0.0
    chosen = first & long & (length >= factor * np.maximum(longest[kernel], usual))
    if long[~first].mean() * factor > long[first].mean() if (~first).any() else False:
        return np.empty(0, np.int64)  # long launches are no matter of being the first
    rows = launched[chosen]
    event = nesting.at(tasks.launch_thread[rows], tasks.launch_start[rows])
    launches = nesting.events.name.flag([bool(_LAUNCH.match(n)) for n in nesting.events.name.names])
    event = nesting.nearest(event, launches)
    return distinct(event[event != NONE])

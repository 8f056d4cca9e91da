"""What timelines say about process groups: the names of threads, and the header of PyTorch's own traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from npuperf.model.communication import Operations
from npuperf.model.labels import Labels
from npuperf.readers.comm_groups import GroupBook, group_hash
from npuperf.readers.comm_names import digits_of, operations
from npuperf.readers.join import match_keys
from npuperf.readers.trace import Slices, Trace

_THREAD: Final = re.compile(r"Group (.+) Communication")
#: Some exporters only number the groups.
_NUMBER: Final = re.compile(r"\d{1,6}")


def named_operations(trace: Trace, collective: Slices) -> Operations:
    """Return the operations whose thread names their group, as in "Group group_name_5 Communication"."""
    found = {key: _group(name) for key, name in trace.threads.items()}
    keys = [key for key, group in found.items() if group is not None]
    if not keys or not len(collective):
        return Operations.empty()
    pid, tid = np.array(keys, np.int64).T
    thread = match_keys((collective.pid, collective.tid), (pid, tid))
    group = Labels.of([found[key] for key in keys]).take(thread)
    digits = digits_of(collective.name)
    # The digits in an operation's name are the group's last: what contradicts them is another numbering.
    ends = Labels.concat([Labels(group.codes, tuple(g[-3:] for g in group.names)), digits]).codes
    same = group.known() & (ends[: len(collective)] == ends[len(collective) :])
    mine = np.flatnonzero(same)
    here = collective.take(mine)
    return operations(here.name, here.start, here.end, group=group.take(mine))


def _group(thread: str) -> str | None:
    found = _THREAD.fullmatch(thread)
    return None if not found or _NUMBER.fullmatch(found[1]) else group_hash(found[1])


def header_groups(header: Mapping[str, object]) -> GroupBook:
    """Return how many ranks a PyTorch trace says there are."""
    info = header.get("distributedInfo")
    size = info.get("world_size") if isinstance(info, dict) else None
    usable = isinstance(size, int) and not isinstance(size, bool) and size > 0
    return GroupBook(distributed={"world_size": size} if usable and isinstance(size, int) else {})

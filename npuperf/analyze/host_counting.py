"""Counts of a run without any device: torch operators and calls of the host, so that a lock needs no NPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from npuperf.analyze.counting import (
    OF_CALLS,
    OF_KERNELS,
    DeviceCounts,
    Places,
    count_calls,
    count_compilations,
    counted_calls,
    merge_counts,
)
from npuperf.documents.digest import CountKind, Digest
from npuperf.host.causes import RUNTIME_CALL
from npuperf.host.nesting import Nesting
from npuperf.host.syncs import find_syncs, sync_points
from npuperf.model.host_profile import HostProfile
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks
from npuperf.operators.keys import torch_operator_keys

#: Events of operators that are none: marks, and what the backward pass puts around its operators.
_NO_OPERATORS: Final = ("autograd::", "torch::autograd", "profiler::")


def count_host(profile: HostProfile, step: int | None = None) -> DeviceCounts | None:
    """Count torch operators by what went into them, nested ones as well, and what else the host recorded.

    ``step``: only this one; None where it is not there.
    """
    numbers = _steps(profile)
    if step is not None:
        numbers = numbers[numbers == step]
        if not len(numbers):
            return None
    none = np.empty(0, np.int64)
    places = Places(Intervals(none, none), numbers, profile.host_steps)
    operators, host = profile.operators, profile.host
    names = operators.name
    called = names.flag(["::" in n and not n.startswith(_NO_OPERATORS) for n in names.names])
    keys = torch_operator_keys(operators)
    keys, plain = (Labels(np.where(called, x.codes, np.int32(-1)), x.names) for x in (keys, names))
    nesting = Nesting.build(host.events)
    counts = counted_calls("host_operator", keys, operators.thread, operators.start, host, places, less=plain)
    told: tuple[CountKind, ...] = ("compile",)  # torch names what it compiles among its operators
    if host.events.name.has(RUNTIME_CALL):
        syncs = find_syncs(nesting)
        counts += count_calls(nesting, syncs, sync_points(syncs, nesting, host, Tasks.empty()), host, places)
        told = OF_CALLS
    else:
        counts += count_compilations(nesting, host, places)
    if profile.kineto:  # there is no AI CPU to tell of
        told = (*told, "aicpu")
    untold = [kind for kind in (*OF_KERNELS, *OF_CALLS) if kind not in told]
    return DeviceCounts(tuple(numbers.tolist()), tuple(counts), tuple(untold))


def digest_of_hosts(hosts: Sequence[DeviceCounts]) -> Digest | None:
    """Return the digest of a run without any device: counts alone. None where nothing was recorded.

    No time of a device was recorded, so there is no length of a step, and no window.
    """
    if not hosts:
        return None
    steps = sorted({number for host in hosts for number in host.numbers})
    counts, untold = merge_counts(hosts, steps)
    return Digest(
        devices=0,
        windows=0,
        steps=steps,
        span_ns=[],
        total_ns=0,
        parts=[],
        types=[],
        counts=counts,
        uncounted=untold,
    )


def _steps(profile: HostProfile) -> I64:
    """Return the numbers of the recorded steps, in order of time."""
    steps = profile.host_steps
    in_order = steps.number[np.argsort(steps.start, kind="stable")].tolist()
    return np.array([*dict.fromkeys(in_order)], np.int64)

"""One rank, reduced to what questions across ranks need: small enough to send, and made where its data lies."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.cluster.beside import Slowed
from npuperf.model.communication import Bandwidth, LinkUse, Operations, ProcessGroup
from npuperf.model.labels import I64


class LocalTime(Struct, frozen=True):
    """Stretches of a rank's own time between communication, and what fills them (ns, a row each).

    ``length`` = compute + host + other, host being waits for the host and launches under way.
    """

    length: I64
    compute: I64
    host: I64

    @classmethod
    def spread(cls, length: I64, share: float) -> LocalTime:
        """Return stretches of which the same share is compute, and no wait is known."""
        return cls(length, np.rint(length * share).astype(np.int64), np.zeros(len(length), np.int64))

    def __len__(self) -> int:
        return len(self.length)


class OperatorTime(Struct, frozen=True):
    """Kernels of one type and shape on a rank, all steps together."""

    type: str
    shapes: str | None
    count: int
    total_ns: int
    where: str | None = None


class ExpertTimes(Struct, frozen=True):
    """Grouped matmuls of a rank in order of time: ns, and tokens from the input shapes (-1 not recorded)."""

    start: I64
    ns: I64
    tokens: I64


class RankSummary(Struct, frozen=True):
    """What one device of one rank tells the job. Times are epoch ns of the device's own clock.

    The rank's own track of work is blocked in ``blocks``: stretches of exposed communication after which work went
    on; block j ends (``release``) with the end of operation ``until[j]``. Between blocks, the track advances by
    itself: ``to_block[j]`` is the local time from release j-1 (or ``begin``) to block j, ``tail`` the one from the
    last release to ``end``.
    Operation k arrives ``to_start[k]`` after release ``base[k]`` (-1: after ``begin``) or, where ``after[k]`` ≥ 0,
    ``to_start[k].length`` after the end of operation ``after[k]``.

    ``compute_before`` and ``host_before``: per operation, what the track spent so between ``begin`` and its start.

    ``exposed_*``: stretches of exposed communication, disjoint and in order; ``exposed_op`` is the operation that
    began first, which owns them.
    ``step_start``/``step_end``: the steps that ``step_number`` names.
    ``span_ns``: the exporter's length of the window, where there are no kernels and ``begin`` and ``end`` are those of
    the operations alone; else None. ``compute_ns``, ``host_ns``: totals of the window, None where files do not tell.
    """

    rank: int
    device: int
    source: str
    host: str | None
    begin: int
    end: int
    step_number: I64
    step_start: I64
    step_end: I64
    operations: Operations
    groups: tuple[ProcessGroup, ...]
    distributed: dict[str, int]
    exposed_op: I64
    exposed_start: I64
    exposed_end: I64
    until: I64
    block_start: I64
    to_block: LocalTime
    base: I64
    after: I64
    to_start: LocalTime
    compute_before: I64
    host_before: I64
    tail: LocalTime
    bandwidth: Bandwidth
    links: LinkUse
    compute_ns: int | None
    host_ns: int | None
    exposed_known: bool = True
    span_ns: int | None = None
    vendor_bubble_ns: int | None = None
    operators: tuple[OperatorTime, ...] = ()
    experts: ExpertTimes | None = None
    slowed: tuple[Slowed, ...] = ()
    where: str | None = None
    kineto: bool = False

"""What transfers lose by how they are cut, and by what goes wrong on their way: raw material of findings.

Each cost is that of the worst rank, which stands first in ``ranks``: ranks lose at the same time, so their losses do
not add up. Sums are over the analysed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.device.operators import costliest
from npuperf.device.rank_summary import RankSummary
from npuperf.job.links import analysed, class_text, size_class
from npuperf.model.groups import alike, distinct, medians, sums_of
from npuperf.model.labels import F64, I64, Mask
from npuperf.model.thresholds import Thresholds

What = Literal["small", "unaligned", "retry", "relay", "slowed_compute"]
#: A packet that takes less is shorter than its own latency (1.05 µs, measured over HCCS): its rate is a clock's tick.
_LATENCY: Final = 1_000
#: Operations that stand in the evidence.
_SHOWN: Final = 5


class PacketCost(Struct, frozen=True):
    """What one cause costs the worst of ``ranks`` in one kind of operation over one transport.

    ``count``: packets, operations or kernels concerned, ``bytes`` and ``time_ns`` of them. ``lost_ns``: beyond what
    alike ones take that the cause spares; None where there are too few of those. ``by_rank``: that of each rank, in
    the order of ``ranks``; ``evidence``: by what it was judged.
    """

    what: What
    ranks: tuple[int, ...]
    transport: str | None
    kind: str | None
    count: int
    bytes: int
    time_ns: int
    lost_ns: int | None
    by_rank: tuple[int | None, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)


def packet_costs(ranks: Sequence[RankSummary], step_ns: int, steps: int, thresholds: Thresholds) -> list[PacketCost]:
    """Return what costs more than a notable part of a step, and every retry and relay; the costliest first.

    What goes wrong is worth telling at any price; where no loss is known, all of the time stands for it.
    """
    own: list[PacketCost] = []
    for rank in ranks:
        own += _by_size(rank, thresholds)
        own += _flagged("retry", rank, rank.operations.retry, thresholds)
        own += _flagged("relay", rank, rank.operations.relay, thresholds)
        if rank.slowed:  # kernels that communication slows down; the kind is the costliest one
            own.append(
                PacketCost(
                    what="slowed_compute",
                    ranks=(rank.rank,),
                    transport=None,
                    kind=rank.slowed[0].type,
                    count=sum(row.beside for row in rank.slowed),
                    bytes=0,
                    time_ns=sum(row.total_ns for row in rank.slowed),
                    lost_ns=sum(row.lost_ns for row in rank.slowed),
                    evidence={"types": costliest(rank.slowed)},
                )
            )
    least = thresholds.lost_share * step_ns * steps
    worst: dict[tuple[str, str | None, str | None], list[PacketCost]] = {}
    for cost in sorted(own, key=lambda c: (-1 if c.lost_ns is None else -c.lost_ns, -c.time_ns, c.ranks[0])):
        if cost.what in ("retry", "relay") or (cost.time_ns if cost.lost_ns is None else cost.lost_ns) > least:
            kind = None if cost.what == "slowed_compute" else cost.kind
            worst.setdefault((cost.what, cost.transport, kind), []).append(cost)
    return [
        replace(costs[0], ranks=tuple(c.ranks[0] for c in costs), by_rank=tuple(c.lost_ns for c in costs))
        for costs in worst.values()
    ]


def _by_size(rank: RankSummary, thresholds: Thresholds) -> list[PacketCost]:
    """Hold small packets against the size class that the rank's own transport moves fastest, and packets of odd sizes
    against even ones of the same transport, kind of operation and size class.
    """
    rows, operations = rank.bandwidth, rank.operations
    here = analysed(operations.step, rank)[rows.op] & (rows.packet > 0) & (rows.count > 0) & (rows.ns > 0)
    index = np.flatnonzero(here)
    if not len(index):
        return []
    op, size, count, moved, ns = (c[index] for c in (rows.op, rows.packet, rows.count, rows.bytes, rows.ns))
    transport, kind = rows.transport.take(index), operations.type.take(op)
    rate, power = moved / ns, size_class(size)

    def summed(
        what: What, chosen: Mask, lost: F64, yardstick: Callable[[int], dict[str, float | str | None]]
    ) -> list[PacketCost]:
        """Sum the chosen rows by transport and kind; ``lost`` is NaN where it is not known."""
        rows, found = np.flatnonzero(chosen), []
        key = alike(transport.codes[rows], kind.codes[rows])
        for k in range(int(key.max(initial=-1)) + 1):
            mine = rows[key == k]
            known = lost[mine][~np.isnan(lost[mine])]
            carried, spent = int(moved[mine].sum()), int(ns[mine].sum())
            cost = PacketCost(
                what=what,
                ranks=(rank.rank,),
                transport=transport[mine[0]],
                kind=kind[mine[0]],
                count=int(count[mine].sum()),
                bytes=carried,
                time_ns=spent,
                lost_ns=max(int(known.sum()), 0) if len(known) else None,
                evidence={"gb_per_s": carried / spent, **yardstick(int(transport.codes[mine[0]]))},
            )
            found.append(cost)
        return found

    # The fastest size class of each transport, and which it is; the last place is that of none.
    row = alike(transport.codes, power)
    of_class, spent, packets = (np.bincount(row, weights=c) for c in (moved, ns, count))
    pace = np.where(spent >= _LATENCY * packets, of_class / spent, np.nan)
    first = np.unique(row, return_index=True)[1]
    best, best_class = np.full(len(transport.names) + 1, np.nan), np.full(len(transport.names) + 1, -1)
    for i in np.argsort(pace).tolist():  # NaN last, the fastest before it
        if not np.isnan(pace[i]):
            best[transport.codes[first[i]]], best_class[transport.codes[first[i]]] = pace[i], power[first[i]]
    usual = best[transport.codes]
    small = (size < thresholds.small_packet_bytes) & (rate < thresholds.transfer_ratio * usual)
    lost = np.where(small, ns - moved / np.where(small, usual, 1.0), 0.0)
    # Links side by side lose at the same time: an operation cannot lose more than its own length.
    of_op = alike(op, transport.codes)
    lost *= np.minimum(1.0, operations.stay[op] / np.maximum(np.bincount(of_op, weights=lost)[of_op], 1.0))
    found = summed("small", small, lost, lambda code: {
        "best_gb_per_s": float(best[code]), "best_size": class_text(int(best_class[code])),
    })  # fmt: skip

    unit = thresholds.packet_alignment_bytes
    odd, even = (size % unit != 0) & (size > unit), size % unit == 0
    if not odd.any():
        return found
    usual = _usual(alike(transport.codes, kind.codes, power), rate, even, thresholds.peers_least)
    return found + summed("unaligned", odd, ns - moved / usual, lambda _: {"aligned_to": unit})


def _flagged(what: Literal["retry", "relay"], rank: RankSummary, flag: I64, thresholds: Thresholds) -> list[PacketCost]:
    """Hold operations that were repeated, or went a detour, against alike ones that were not."""
    operations = rank.operations
    here = analysed(operations.step, rank)
    odd, even = here & (flag == 1), here & (flag == 0)
    if not odd.any():
        return []
    moved = sums_of(rank.bandwidth.op, rank.bandwidth.bytes, len(operations))
    key = alike(operations.type.codes, operations.group.codes, size_class(moved))
    beyond = np.maximum(operations.stay - _usual(key, operations.stay, even, thresholds.peers_least), 0)  # NaN stays
    found = []
    for code in distinct(operations.type.codes[odd]).tolist():
        rows = np.flatnonzero(odd & (operations.type.codes == code))
        known = beyond[rows][~np.isnan(beyond[rows])]
        longest = rows[np.argsort(-operations.stay[rows], kind="stable")][:_SHOWN]
        cost = PacketCost(
            what=what,
            ranks=(rank.rank,),
            transport=None,
            kind=operations.type[rows[0]],
            count=len(rows),
            bytes=int(moved[rows].sum()),
            time_ns=int(operations.stay[rows].sum()),
            lost_ns=int(known.sum()) if len(known) else None,
            evidence={"operations": operations.name.take(longest).texts()},
        )
        found.append(cost)
    return found


def _usual(key: I64, values: F64 | I64, chosen: Mask, least: int) -> F64:
    """Return for each row the median of the chosen rows of its key, NaN where these are fewer than ``least``."""
    kinds = int(key.max()) + 1
    usual = medians(key[chosen], values[chosen], kinds)
    usual[np.bincount(key[chosen], minlength=kinds) < least] = np.nan
    return usual[key]

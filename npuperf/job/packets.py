"""What transfers lose by how they are cut, and by what goes wrong on their way: raw material of findings.

Each cost is that of the worst rank, which stands first in ``ranks``: ranks lose at the same time, so their losses do
not add up. Sums are over the analysed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.device.operators import Slowed, costliest
from npuperf.device.rank_summary import RankSummary
from npuperf.job.links import class_text, size_class
from npuperf.model.groups import alike, distinct, medians
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.thresholds import Thresholds

What = Literal["small", "unaligned", "retry", "relay", "slowed_compute"]
#: A packet that takes less is shorter than its own latency (1.05 µs, measured over HCCS): its rate is a clock's tick.
_LATENCY: Final = 1_000
#: Kinds of slowed kernels that stand in the evidence.
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


class _Packets(Struct, frozen=True):
    """The packets of one rank: a row for each operation, transport and size. ``rate``: GB/s."""

    op: I64
    transport: Labels
    kind: Labels
    size: I64
    count: I64
    bytes: I64
    ns: I64
    stay: I64

    @property
    def rate(self) -> F64:
        return self.bytes / self.ns

    @classmethod
    def of(cls, rank: RankSummary) -> _Packets:
        """Take the rows with a packet size, of the analysed steps."""
        rows, operations = rank.bandwidth, rank.operations
        index = np.flatnonzero(_analysed(rank)[rows.op] & (rows.packet > 0) & (rows.count > 0) & (rows.ns > 0))
        op = rows.op[index]
        return cls(
            op=op,
            transport=rows.transport.take(index),
            kind=operations.type.take(op),
            size=rows.packet[index],
            count=rows.count[index],
            bytes=rows.bytes[index],
            ns=rows.ns[index],
            stay=operations.stay,
        )


def packet_costs(
    ranks: Sequence[RankSummary],
    step_ns: int,
    steps: int,
    thresholds: Thresholds,
    beside: Sequence[Sequence[Slowed]] = (),
) -> list[PacketCost]:
    """Return what costs more than a notable part of a step, and every retry and relay; the costliest first.

    ``beside``: for each rank what :func:`npuperf.device.operators.slowed` found.
    """
    own: list[PacketCost] = []
    for rank in ranks:
        packets = _Packets.of(rank)
        if len(packets.op):
            own += _small(rank.rank, packets, thresholds) + _unaligned(rank.rank, packets, thresholds)
        own += _flagged("retry", rank, rank.operations.retry, thresholds)
        own += _flagged("relay", rank, rank.operations.relay, thresholds)
    own += [slowed_cost(rank.rank, rows) for rank, rows in zip(ranks, beside, strict=False) if rows]
    least = thresholds.lost_share * step_ns * steps
    return _worst([cost for cost in own if _notable(cost, least)])


def _analysed(rank: RankSummary) -> Mask:
    """Tell which operations are of the analysed steps."""
    step = rank.operations.step
    here: Mask = (step < 0) | np.isin(step, rank.step_number) | (len(rank.step_number) == 0)
    return here


def _notable(cost: PacketCost, least: float) -> bool:
    """What goes wrong is worth telling at any price; where no loss is known, all of the time stands for it."""
    known = cost.time_ns if cost.lost_ns is None else cost.lost_ns
    return cost.what in ("retry", "relay") or known > least


def _worst(own: list[PacketCost]) -> list[PacketCost]:
    """Keep the worst rank's cost of each cause, with the other ranks that it costs."""
    same: dict[tuple[str, str | None, str | None], list[PacketCost]] = {}
    for cost in sorted(own, key=_order):
        kind = None if cost.what == "slowed_compute" else cost.kind
        same.setdefault((cost.what, cost.transport, kind), []).append(cost)
    return [
        replace(costs[0], ranks=tuple(c.ranks[0] for c in costs), by_rank=tuple(c.lost_ns for c in costs))
        for costs in same.values()
    ]


def _order(cost: PacketCost) -> tuple[int, int, int]:
    return -1 if cost.lost_ns is None else -cost.lost_ns, -cost.time_ns, cost.ranks[0]


def _small(rank: int, packets: _Packets, thresholds: Thresholds) -> list[PacketCost]:
    """Hold small packets against the size class that the rank's own transport moves fastest."""
    best, best_class = _fastest(packets)
    usual = best[packets.transport.codes]
    slow = (packets.size < thresholds.small_packet_bytes) & (packets.rate < thresholds.transfer_ratio * usual)
    lost = np.where(slow, packets.ns - packets.bytes / np.where(slow, usual, 1.0), 0.0)
    # Links side by side lose at the same time: an operation cannot lose more than its own length.
    of_op = alike(packets.op, packets.transport.codes)
    sum_of_op = np.bincount(of_op, weights=lost)[of_op]
    lost *= np.minimum(1.0, packets.stay[packets.op] / np.maximum(sum_of_op, 1.0))

    def yardstick(transport: int) -> dict[str, float | str | None]:
        return {"best_gb_per_s": float(best[transport]), "best_size": class_text(int(best_class[transport]))}

    return _costs("small", rank, packets, slow, lost, yardstick)


def _fastest(packets: _Packets) -> tuple[F64, I64]:
    """Return the GB/s of the fastest size class of each transport, and which it is (NaN and -1: none)."""
    power = size_class(packets.size)
    row = alike(packets.transport.codes, power)
    moved, spent, count = (np.bincount(row, weights=c) for c in (packets.bytes, packets.ns, packets.count))
    rate = np.where(spent >= _LATENCY * count, moved / spent, np.nan)
    first = np.unique(row, return_index=True)[1]
    best = np.full(len(packets.transport.names) + 1, np.nan)
    which = np.full(len(best), -1, np.int64)
    for i in np.argsort(rate).tolist():  # NaN last, the fastest before it
        if not np.isnan(rate[i]):
            transport = packets.transport.codes[first[i]]
            best[transport], which[transport] = rate[i], power[first[i]]
    return best, which


def _unaligned(rank: int, packets: _Packets, thresholds: Thresholds) -> list[PacketCost]:
    """Hold packets of odd sizes against even ones of the same transport, kind of operation and size class."""
    unit = thresholds.packet_alignment_bytes
    odd = (packets.size % unit != 0) & (packets.size > unit)
    if not odd.any():
        return []
    key = alike(packets.transport.codes, packets.kind.codes, size_class(packets.size))
    kinds = int(key.max()) + 1
    even = packets.size % unit == 0
    usual = medians(key[even], packets.rate[even], kinds)
    usual[np.bincount(key[even], minlength=kinds) < thresholds.peers_least] = np.nan
    lost = np.where(odd, packets.ns - packets.bytes / usual[key], 0.0)
    return _costs("unaligned", rank, packets, odd, lost, lambda transport: {"aligned_to": unit})


def _costs(
    what: What,
    rank: int,
    packets: _Packets,
    chosen: Mask,
    lost: F64,
    yardstick: Callable[[int], Mapping[str, float | str | None]],
) -> list[PacketCost]:
    """Sum the chosen rows by transport and kind; ``lost`` is NaN where it is not known."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    found = []
    key = alike(packets.transport.codes[rows], packets.kind.codes[rows])
    for k in range(int(key.max()) + 1):
        mine = rows[key == k]
        known = lost[mine][~np.isnan(lost[mine])]
        moved, spent = int(packets.bytes[mine].sum()), int(packets.ns[mine].sum())
        cost = PacketCost(
            what=what,
            ranks=(rank,),
            transport=packets.transport[mine[0]],
            kind=packets.kind[mine[0]],
            count=int(packets.count[mine].sum()),
            bytes=moved,
            time_ns=spent,
            lost_ns=max(int(known.sum()), 0) if len(known) else None,
            evidence={"gb_per_s": moved / spent, **yardstick(int(packets.transport.codes[mine[0]]))},
        )
        found.append(cost)
    return found


def _flagged(what: Literal["retry", "relay"], rank: RankSummary, flag: I64, thresholds: Thresholds) -> list[PacketCost]:
    """Hold operations that were repeated, or went a detour, against alike ones that were not."""
    operations = rank.operations
    here = _analysed(rank)
    odd, even = here & (flag == 1), here & (flag == 0)
    if not odd.any():
        return []
    moved = np.zeros(len(operations), np.int64)
    np.add.at(moved, rank.bandwidth.op, rank.bandwidth.bytes)
    key = alike(operations.type.codes, operations.group.codes, size_class(moved))
    kinds = int(key.max()) + 1
    usual = medians(key[even], operations.stay[even], kinds)
    usual[np.bincount(key[even], minlength=kinds) < thresholds.peers_least] = np.nan
    beyond = np.maximum(operations.stay - usual[key], 0)  # NaN stays NaN
    return [
        _flagged_kind(what, rank, np.flatnonzero(odd & (operations.type.codes == code)), moved, beyond)
        for code in distinct(operations.type.codes[odd]).tolist()
    ]


def _flagged_kind(what: Literal["retry", "relay"], rank: RankSummary, rows: I64, moved: I64, beyond: F64) -> PacketCost:
    operations = rank.operations
    known = beyond[rows][~np.isnan(beyond[rows])]
    names = [operations.name[i] for i in rows[np.argsort(-operations.stay[rows], kind="stable")][:_SHOWN].tolist()]
    return PacketCost(
        what=what,
        ranks=(rank.rank,),
        transport=None,
        kind=operations.type[rows[0]],
        count=len(rows),
        bytes=int(moved[rows].sum()),
        time_ns=int(operations.stay[rows].sum()),
        lost_ns=int(known.sum()) if len(known) else None,
        evidence={"operations": names},
    )


def slowed_cost(rank: int, rows: Sequence[Slowed]) -> PacketCost:
    """Sum up the kernels of a rank that communication slows down; the kind is the costliest one."""
    return PacketCost(
        what="slowed_compute",
        ranks=(rank,),
        transport=None,
        kind=rows[0].type,
        count=sum(row.beside for row in rows),
        bytes=0,
        time_ns=sum(row.total_ns for row in rows),
        lost_ns=sum(row.lost_ns for row in rows),
        evidence={"types": costliest(rows)},
    )

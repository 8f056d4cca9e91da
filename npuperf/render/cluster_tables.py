"""The tables of a job: its ranks, who waits for whom, and why; one line per column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from npuperf.documents.analysis import Result
from npuperf.documents.cluster import ClusterRank
from npuperf.messages import say
from npuperf.render.cluster_rows import outliers_first, ranges, roots_by_gain
from npuperf.render.tables import Column, Row, Table, each


def _roots(result: Result) -> Iterator[Row]:
    return ((root,) for root in (roots_by_gain(result.cluster) if result.cluster else ()))


def _ranks(result: Result) -> Iterator[Row]:
    return ((rank,) for rank in (outliers_first(result.cluster) if result.cluster else ()))


class Arrival(Struct, frozen=True):
    """One rank in a collective: how long it waited, and how long after the first it came."""

    rank: int
    wait_ns: int
    arrival_ns: int | None


def _arrivals(result: Result) -> Iterator[Row]:
    for of in result.cluster.collectives if result.cluster else ():
        arrivals: Sequence[int | None] = of.arrival_ns or [None for _ in of.ranks]
        for rank, wait, after in zip(of.ranks, of.wait_ns, arrivals, strict=True):
            yield of, Arrival(rank, wait, after)


def _kinds(rank: ClusterRank) -> str | None:
    return ", ".join(f"{kind} {wait}" for kind, wait in rank.comm.wait_by_kind.items()) or None


def _of_ranks(*row: Any) -> str:
    return ranges(row[-1].ranks)


# fmt: off
_RANK: Final = Column("rank", say("rank"), "id", weight=0)
_RANKS: Final = Column("ranks", say("ranks"), get=_of_ranks, weight=0)
_STAGE: Final = Column("stage", say("stage"), "id", weight=2)
_MACHINE: Final = Column("host", say("machine"), weight=2, quiet=True)
_GROUP: Final = Column("group", say("group"), weight=2)
_KIND: Final = Column("kind", say("kind"))
_COMPLETE: Final = Column("complete", say("all ranks loaded"), "word", weight=2)
_LAST: Final = Column("last", say("came last"), "id")
_SAVES: Final = (
    Column("gain_low_ns", say("saves per step, min"), "ms", "gain_ns_per_step.0"),
    Column("gain_high_ns", say("saves per step, max"), "ms", "gain_ns_per_step.1"),
)

ROOTS: Final = Table("roots", say("root causes of waiting, by what repairing one alone saves"), _roots, (
    Column("kind", say("root"), "word", weight=0),
    _RANKS, _STAGE, _GROUP,
    Column("why", say("for its"), "word"),
    Column("title", say("cause"), "message", weight=0),
    Column("wait_ns", say("waiting"), "ms"),
    Column("share", say("% of all waiting"), "share", weight=0),
    *_SAVES,
    Column("operators", say("operators"), weight=2),
    Column("where", say("where"), weight=2),
    Column("next", say("next"), "message"),
))
RANKS: Final = Table("ranks", say("ranks, the most unusual first"), _ranks, (
    _RANK,
    Column("device", say("device"), "id", weight=2),
    Column("stage", say("stage"), "id"),
    _MACHINE,
    Column("step_ns", say("step"), "ms", weight=0),
    Column("compute_ns", say("compute"), "ms"),
    Column("comm_ns", say("comm."), "ms", "comm.total_ns"),
    Column("transfer_ns", say("transfer"), "ms", "comm.transfer_ns"),
    Column("wait_ns", say("waiting"), "ms", "comm.wait_ns"),
    Column("unknown_ns", say("unknown"), "ms", "comm.unknown_ns"),
    Column("exposed_transfer_ns", say("exposed transfer"), "ms", "comm.exposed_transfer_ns", 2),
    Column("exposed_wait_ns", say("exposed waiting"), "ms", "comm.exposed_wait_ns", 2),
    Column("exposed_unknown_ns", say("exposed, unknown"), "ms", "comm.exposed_unknown_ns", 2),
    Column("host_wait_ns", say("host wait"), "ms"),
    Column("idle_ns", say("idle"), "ms"),
    Column("wait_by_kind", say("waiting by kind of group, ns"), get=_kinds, weight=2),
    Column("source", say("source"), weight=3),
))
STAGES: Final = Table("stages", say("pipeline stages, mean of their ranks"), each("cluster.stages"), (
    Column("stage", say("stage"), "id", weight=0),
    _RANKS,
    Column("compute_ns", say("compute"), "ms"),
    Column("bubble_ns", say("bubble"), "ms"),
    Column("window_ns", say("pipeline's window"), "ms"),
    Column("vendor_bubble_ns", say("exporter's Bubble"), "ms"),
))
GROUPS: Final = Table("groups", say("process groups"), each("cluster.groups"), (
    Column("group", say("group"), weight=0),
    _KIND, _RANKS,
    Column("missing", say("not loaded"), get=lambda group: ranges(group.missing) or None),
    _COMPLETE,
    Column("inferred", say("ranks inferred"), "word", weight=2),
    Column("operations", say("operations"), "count"),
    Column("unmatched", say("unmatched"), "count", weight=2),
    Column("transfer_ns", say("transfer"), "ms", weight=0),
    Column("wait_ns", say("waiting"), "ms", weight=0),
))
_COLLECTIVES: Final = Table("collectives", say("operations in which most is waited"), each("cluster.collectives"), (
    Column("step", say("step"), "id", quiet=True),
    Column("name", say("operation"), weight=0),
    _GROUP, _KIND, _RANKS, _COMPLETE,
    Column("transfer_ns", say("transfer"), "ms", weight=0),
    Column("wait_ns", say("waiting, all ranks"), "ms", lambda of: sum(of.wait_ns), 0),
    Column("wait_max_ns", say("waiting, max"), "ms", lambda of: max(of.wait_ns, default=None)),
    _LAST,
))
_WAITS: Final = Table("waits", say("waiting of every rank in these operations"), _arrivals, (
    Column("step", say("step"), "id", quiet=True),
    Column("name", say("operation"), weight=0),
    _GROUP, _KIND, _RANK,
    Column("wait_ns", say("waiting"), "ms", weight=0),
    Column("transfer_ns", say("transfer"), "ms"),
    Column("arrival_ns", say("came after the first"), "ms"),
    _LAST,
    Column("complete", say("all ranks loaded"), "word", weight=2),
))
LINKS: Final = Table("links", say("links between ranks"), each("cluster.links"), (
    Column("from", say("rank"), "id", "ranks.0", 0),
    Column("to", say("with rank"), "id", "ranks.1", 0),
    Column("transport", say("transport"), weight=0),
    Column("kind", say("operation")),
    Column("size_class", say("size")),
    Column("count", say("count"), "count", weight=2),
    Column("bytes", say("bytes"), "count", weight=3),
    Column("time_ns", say("time"), "ms", weight=2),
    Column("gb_per_s", say("GB/s"), "plain", weight=0),
    Column("peers_gb_per_s", say("peers GB/s"), "plain"),
    Column("reference_gb_per_s", say("vendor's GB/s"), "plain", weight=2),
    Column("slow", say("slow"), "word"),
    Column("lost_ns", say("lost"), "ms", weight=0),
))
CLOCKS: Final = Table("clocks", say("clocks against the first rank's"), each("cluster.ranks", "clock"), (
    _RANK, _MACHINE,
    Column("offset_ns", say("correction"), "us", weight=0),
    Column("low_ns", say("provable, min"), "us"),
    Column("high_ns", say("provable, max"), "us"),
    Column("residual_ns", say("residual"), "us", weight=0),
    Column("drift_ppm", say("drift, ppm"), "plain"),
    Column("operations", say("operations"), "count"),
))
_EXPERTS: Final = Table("experts", say("uneven experts"), each("cluster.experts"), (
    _GROUP, _RANKS,
    Column("layer", say("layer"), "id", weight=0),
    Column("imbalance", say("longest over mean"), "plain"),
    Column("lost_ns", say("lost"), "ms"),
))

CLUSTER_TABLES: Final = (ROOTS, RANKS, STAGES, GROUPS, _COLLECTIVES, _WAITS, LINKS, CLOCKS, _EXPERTS)

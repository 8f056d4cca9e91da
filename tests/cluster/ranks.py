"""Ranks' summaries written by hand: as little as a question needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from npuperf.cluster.summary import ExpertTimes, LocalTime, RankSummary
from npuperf.model.communication import Bandwidth, LinkUse, Operations, ProcessGroup
from npuperf.model.labels import I64, Labels

MS = 1_000_000


def ints(values: Sequence[int]) -> I64:
    return np.array(values, np.int64)


def summary(rank: int, **parts: Any) -> RankSummary:
    """A rank of which only ``parts`` are known; its window is 100 ms."""
    none = ints([])
    empty = {"I64": none, "LocalTime": LocalTime(none, none, none), "dict[str, int]": {}, "int | None": None}
    given: dict[str, Any] = {f.name: empty[str(f.type)] for f in fields(RankSummary) if str(f.type) in empty}
    given |= {
        "rank": rank,
        "device": rank % 8,
        "source": f"rank_{rank}",
        "host": None,
        "begin": 0,
        "end": 100 * MS,
        "operations": Operations.empty(),
        "groups": (),
        "bandwidth": Bandwidth.empty(),
        "links": LinkUse.empty(),
        **parts,
    }
    return RankSummary(**given)


def link_use(rows: Sequence[dict[str, Any]]) -> LinkUse:
    """Rows of links: source, target, bytes and ns are asked for."""

    def column(name: str, default: int) -> I64:
        return ints([row.get(name, default) for row in rows])

    def texts(name: str, default: str | None) -> Labels:
        return Labels.of([row.get(name, default) for row in rows])

    return LinkUse(
        step=column("step", -1),
        type=texts("type", "allReduce"),
        group=texts("group", "1"),
        transport=texts("transport", "HCCS"),
        source=column("source", -1),
        target=column("target", -1),
        bytes=column("bytes", 0),
        ns=column("ns", 0),
        count=column("count", -1),
        name=texts("name", None),
    )


def operations(rows: Sequence[dict[str, Any]]) -> Operations:
    """Operations one after the other, ``stay`` ns each unless said otherwise."""

    def column(name: str, default: int) -> I64:
        return ints([row.get(name, default) for row in rows])

    start = np.cumsum(column("stay", MS)) - column("stay", MS)
    return Operations(
        name=Labels.of([row.get("name", f"hcom_{i}") for i, row in enumerate(rows)]),
        type=Labels.of([row.get("type", "allReduce") for row in rows]),
        group=Labels.of([row.get("group", "1") for row in rows]),
        start=start,
        end=start + column("stay", MS),
        step=column("step", -1),
        index=column("index", -1),
        p2p=np.zeros(len(rows), np.bool_),
        peer=column("peer", -1),
        retry=column("retry", -1),
        relay=column("relay", -1),
    )


def bandwidth(rows: Sequence[tuple[int, str, int, int, int]]) -> Bandwidth:
    """Rows of (operation, transport, bytes of a packet, packets, ns)."""
    return Bandwidth(
        op=ints([r[0] for r in rows]),
        transport=Labels.of([r[1] for r in rows]),
        bytes=ints([r[2] * r[3] for r in rows]),
        ns=ints([r[4] for r in rows]),
        packet=ints([r[2] for r in rows]),
        count=ints([r[3] for r in rows]),
    )


def group(ranks: Sequence[int], kind: str | None = None, id: str = "1") -> ProcessGroup:
    return ProcessGroup(id, kind, tuple(ranks))


def experts(rows: Sequence[tuple[int, int, int]]) -> ExpertTimes:
    """Grouped matmuls as (start, ns, tokens)."""
    return ExpertTimes(*(ints([row[i] for row in rows]) for i in range(3)))

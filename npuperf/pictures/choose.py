"""Which devices of a job are drawn: those that others wait for, extremes, and one of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Device, Result
from npuperf.documents.cluster import Cluster
from npuperf.messages import Message, say

_ROOT: Final = say("others wait for it")
_SLOWEST: Final = say("it has the longest steps")
_FASTEST: Final = say("it has the shortest steps")
_FIRST: Final = say("it is the first")


class Chosen(Struct, frozen=True):
    """A device that is drawn, and why this one; None where all are."""

    report: Device
    why: Message | None = None


def choose(result: Result, limit: int) -> list[Chosen]:
    """Choose up to ``limit`` devices, the most telling first; all of them where they are not more."""
    devices = [d for d in result.devices if d.clock.tasks]  # others have no kernels to draw
    if len(devices) <= limit:
        return [Chosen(device) for device in devices]
    found: dict[int, Chosen] = {}
    for device, why in _telling(devices, result.cluster):
        found.setdefault(id(device), Chosen(device, why))
    return [*found.values()][:limit]


def _telling(devices: list[Device], cluster: Cluster | None) -> Iterator[tuple[Device, Message]]:
    """Yield devices with what there is to see in each, maybe several times."""
    of_rank = {d.rank: d for d in reversed(devices)}
    if cluster is not None:
        ranks = (rank for root in cluster.roots for rank in root.ranks)
        yield from ((of_rank[rank], _ROOT) for rank in ranks if rank in of_rank)
    by_step = sorted(devices, key=lambda d: d.window.span_ns // max(d.step_count, 1))
    yield by_step[-1], _SLOWEST
    yield by_step[0], _FASTEST
    yield devices[0], _FIRST
    if cluster is not None:
        firsts = ((stage.stage, min(stage.ranks, default=None)) for stage in cluster.stages)
        for stage, rank in firsts:
            if rank in of_rank:
                yield of_rank[rank], say("it is the first of stage {stage}", stage=stage)

"""Operators that see more shapes than the tiling cache holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from npuperf.advise.needs import HOST_DOINGS, SHAPES, where_host_bound
from npuperf.advise.requirements import DYNAMIC_GRAPH
from npuperf.advise.rule import Answer, Detected, Rule, Untold, at_most
from npuperf.host.mode import is_graph
from npuperf.messages import say
from npuperf.model.labels import I64
from npuperf.scopes.view import DeviceView

TITLE = say("tiling cache")
SOURCE = say("GE: the tiling cache keeps 120 entries per operator, on by default; data-dependent inputs bypass it")


class _Nodes(Struct, frozen=True):
    """Per node of the graph that is named: how often it was launched, and with how many different shapes."""

    launches: I64
    shapes: I64

    @classmethod
    def of(cls, view: DeviceView) -> _Nodes:
        known = view.compute & view.tasks.shapes.known() & view.tasks.name.known()
        size = len(view.tasks.name.names)
        pairs = np.unique(np.stack([view.tasks.name.codes[known], view.tasks.shapes.codes[known]]), axis=1)
        launches = np.bincount(view.tasks.name.codes[known], minlength=size)
        return cls(launches, np.bincount(pairs[0], minlength=size) if pairs.size else np.zeros(size, np.int64))

    def settled(self, most: int, enough: float) -> float:
        """Return the part of launches of nodes that show whether the cache holds their shapes.

        Those whose shapes recur do, and those with more launches than the cache has entries, and fewer shapes.
        """
        recurs = self.launches - self.shapes >= enough * self.launches
        told = recurs | (self.launches > most)
        return float(self.launches[told].sum() / max(self.launches.sum(), 1))


def judge(view: DeviceView) -> Answer:
    """Count the distinct shapes of each operator of a dynamic graph; few launches show no cache that overflows."""
    waited = view.blamed("tiling")
    if not is_graph(view.mode) or waited < max(view.thresholds.cause_share * view.partition.span_ns, 1):
        return None
    entries, enough = view.thresholds.tiling_cache_entries, view.thresholds.enough_data
    nodes = _Nodes.of(view)
    crowded = _crowded(view, nodes, entries)
    if not crowded:
        return None if nodes.settled(entries, enough) >= enough else _too_few(nodes, entries)
    return Detected(
        title=say("{name} was launched with {shapes} different shapes; the tiling cache keeps {entries}",
                  name=crowded[0]["name"], shapes=crowded[0]["shapes"], entries=entries),
        evidence={"operators": crowded, "tiling_wait_ns": waited},
        gain=at_most(view.predict("host:tiling*0")),
        refute=say("tiling takes just as long with fewer shapes (the maximum assumes that every tiling is "
"found in the cache)"),
        next=say("pad batch and sequence lengths to a few sizes: fewer shapes per operator than the cache keeps"),
    )  # fmt: skip


def _too_few(nodes: _Nodes, entries: int) -> Untold:
    most = int(nodes.launches.max(initial=0))
    needs = say(
        "no operator was launched more than {launches} times, often with shapes that occur once, and the cache keeps "
        "{entries}: record more steps with npuperf profile --active 20 --shapes",
        launches=most,
        entries=entries,
    )
    return Untold(needs, {"most_launches": most, "most_shapes": int(nodes.shapes.max(initial=0))})


def _crowded(view: DeviceView, nodes: _Nodes, most: int) -> list[dict[str, Any]]:
    """Return the operators with more distinct shapes than ``most``."""
    order = np.argsort(-nodes.shapes, kind="stable")[:3].tolist()
    return [{"name": view.tasks.name.names[c], "shapes": int(nodes.shapes[c])} for c in order if nodes.shapes[c] > most]


RULE = Rule(
    "tiling_cache",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(SHAPES)),
    judge,
    relieves="host",
    requires=(DYNAMIC_GRAPH,),
)

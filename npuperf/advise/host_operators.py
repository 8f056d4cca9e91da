"""Operators on a handful of values that the device computes though the host could."""

from __future__ import annotations

import re
from math import prod
from typing import Final

import numpy as np

from npuperf.advise.needs import HOST_DOINGS, SHAPES, where_host_bound
from npuperf.advise.requirements import DYNAMIC_GRAPH
from npuperf.advise.rule import Answer, Detected, Rule, quote, top_types
from npuperf.messages import say
from npuperf.model.labels import Mask
from npuperf.scopes.view import DeviceView

TITLE = say("tiny operators on the device")
SOURCE = say("GE: operators whose inputs and outputs have 8 elements at most run on the host in dynamic graphs")

_SHAPE_WORK: Final = re.compile(
    r"^(Pack|Concat\w*|Gather\w*|Slice\w*|StridedSlice\w*|Squeeze|Unsqueeze|Shape\w*|Cast|Range)$"
)


def judge(view: DeviceView) -> Answer:
    """Find kernels of types that compute shapes, with no input beyond a few elements, in dynamic graphs."""
    if DYNAMIC_GRAPH.test(view) is not True or not view.host_bound:
        return None
    elements = view.thresholds.host_operator_elements
    tiny = _tiny(view, elements)
    waits = int(view.waits[tiny].sum())
    if waits < view.thresholds.cause_share * view.partition.span_ns:
        return None
    rows = top_types(view, tiny)
    return Detected(
        title=say(
            "operators with inputs of at most {elements} elements run on the device: {types}",
            elements=elements,
            types=quote(rows),
        ),
        evidence={"count": int(tiny.sum()), "host_wait_ns": waits, "types": rows},
        gain=(0, view.per_step(waits + view.exposed(tiny))),
        refute=say("their inputs come from the device, or their outputs are larger: then they cannot move to the host"),
        next=say(
            "compute shapes from host values (Shape, Size, constants, CPU inputs), so that the graph keeps them on "
            "the host"
        ),
    )


def _tiny(view: DeviceView, most: int) -> Mask:
    small = view.tasks.shapes.flag([_elements(text) <= most for text in view.tasks.shapes.names])
    shape_work = view.types.flag([bool(_SHAPE_WORK.match(n)) for n in view.types.names])
    chosen: Mask = view.compute & small & shape_work
    return chosen


def _elements(shapes: str) -> int:
    """Return the number of elements of the largest input in a cell like ``"2,3;4"``."""
    sizes = [np.array(re.findall(r"\d+", shape), dtype=np.int64).tolist() for shape in shapes.split(";")]
    return max((prod(size) for size in sizes), default=0)


RULE = Rule(
    "host_operators",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(SHAPES)),
    judge,
    relieves="host",
    requires=(DYNAMIC_GRAPH,),
)

"""GE graphs of dynamic shape scheduled by a single host thread (MAX_RUNTIME_CORE_NUMBER)."""

from __future__ import annotations

from typing import Final

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.needs import HOST_DOINGS, STATES, where_host_bound
from npuperf.advise.requirements import DYNAMIC_GRAPH, DYNAMIC_SHAPES, Option, Requirement
from npuperf.advise.rule import Answer, Detected, Rule, at_most
from npuperf.host.mode import is_graph
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("scheduling threads of dynamic graphs")
SOURCE = say("GE: MAX_RUNTIME_CORE_NUMBER, unset = 1 thread, 3 = memory, launch and the rest in parallel")

#: Threads of their own for memory, launches and the rest.
_ENOUGH: Final = 3


def _few(view: DeviceView) -> bool | None:
    threads = view.traits.runtime_threads
    return None if threads is None else threads < _ENOUGH


_NEXT: Final = Option(
    say(
        "export MAX_RUNTIME_CORE_NUMBER=3 and bind the process to its own CPUs before the first step (graph mode "
        "with dynamic shapes only; not on 200I/500 A2; leave ENABLE_DYNAMIC_SHAPE_MULTI_STREAM unset)"
    ),
    SOURCE,
    (Requirement(say("{name} below {threads}", name="MAX_RUNTIME_CORE_NUMBER", threads=_ENOUGH), _few),),
)


def judge(view: DeviceView) -> Answer:
    """Only graphs of dynamic shape are scheduled so, and only where the device waits for the scheduling."""
    part, _ = dynamic_share(view)
    moved = view.blamed("launch", "memory")
    if not view.host_bound or part < view.thresholds.dynamic_share or not is_graph(view.mode):
        return None
    if _few(view) is False or moved + view.blamed("tiling") < view.thresholds.cause_share * view.partition.span_ns:
        return None
    return Detected(
        title=say("a dynamic-shape graph is scheduled while the device waits"),
        evidence={
            "dynamic_share_of_compute": part,
            "launch_and_memory_wait_ns": moved,
            "threads": view.traits.runtime_threads,
        },
        gain=at_most(view.predict("host:launch*0,host:memory*0")),
        refute=_refute(view),
        next=(_NEXT,),
    )


def _refute(view: DeviceView) -> Message:
    if view.traits.runtime_threads is None:
        return say(
            "the variable is already set (this profile does not record it), or the process has fewer than two CPUs "
            "(the maximum assumes that launching and memory work are hidden entirely)"
        )
    return say(
        "the process has fewer than two CPUs (the maximum assumes that launching and memory work are hidden entirely)"
    )


RULE = Rule(
    "runtime_threads",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(STATES)),
    judge,
    relieves="host",
    requires=(DYNAMIC_SHAPES, DYNAMIC_GRAPH),
)

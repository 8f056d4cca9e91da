"""GE graphs of dynamic shape scheduled by a single host thread (MAX_RUNTIME_CORE_NUMBER)."""

from __future__ import annotations

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.rule import Answer, Detected, Rule, at_most, is_graph_mode, lacks_states
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("scheduling threads of dynamic graphs")
SOURCE = say("GE: MAX_RUNTIME_CORE_NUMBER, unset = 1 thread, 3 = memory, launch and the rest in parallel")


def judge(view: DeviceView) -> Answer:
    """Only graphs of dynamic shape are scheduled so, and only where the device waits for the scheduling."""
    part, _ = dynamic_share(view)
    moved = view.blamed("launch", "memory")
    if not view.host_bound or part < view.thresholds.dynamic_share or not is_graph_mode(view):
        return None
    if moved + view.blamed("tiling") < view.thresholds.cause_share * view.partition.span_ns:
        return None
    return Detected(
        title=say("a dynamic-shape graph is scheduled while the device waits"),
        evidence={"dynamic_share_of_compute": part, "launch_and_memory_wait_ns": moved},
        gain=at_most(view.predict("host:launch*0,host:memory*0")),
        refute=say(
            "the variable is already set (profiles do not record it), or the process has fewer than "
            "two CPUs (the maximum assumes that launching and memory work are hidden entirely)"
        ),
        next=say(
            "export MAX_RUNTIME_CORE_NUMBER=3 and bind the process to its own CPUs before the first step (graph mode "
            "with dynamic shapes only; not on 200I/500 A2; leave ENABLE_DYNAMIC_SHAPE_MULTI_STREAM unset)"
        ),
    )


RULE = Rule("runtime_threads", TITLE, SOURCE, lacks_states, judge, relieves="host")

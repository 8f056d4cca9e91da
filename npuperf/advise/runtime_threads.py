"""GE graphs of dynamic shape scheduled by a single host thread (MAX_RUNTIME_CORE_NUMBER)."""

from __future__ import annotations

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.rule import View, finding, is_graph_mode, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "scheduling threads of dynamic graphs"
SOURCE = "GE: MAX_RUNTIME_CORE_NUMBER, unset = 1 thread, 3 = memory, launch and the rest in parallel"


def needs(view: View) -> str | None:
    """Shape states and the host's scheduling must be recorded."""
    known = bool(view.tasks.state.known().any())
    return lacks_host_events(
        view, (known, "OP State is not recorded: it needs CANN 8 or newer and npuperf profile --level 1")
    )


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Only graphs of dynamic shape are scheduled so, and only where the device waits for the scheduling."""
    share, _ = dynamic_share(view)
    moved = view.blamed("launch", "memory")
    if not view.host_bound or share < thresholds.dynamic_share or not is_graph_mode(view):
        return None
    if moved + view.blamed("tiling") < thresholds.cause_share * view.partition.span_ns:
        return None
    gain = view.predict("host:launch*0,host:memory*0")
    return finding(
        view,
        "runtime_threads",
        "problem",
        "a graph of dynamic shape is scheduled while the device waits",
        evidence={"dynamic_share_of_compute": share, "launch_and_memory_wait_ns": moved},
        gain=(0, gain[1]) if gain else None,
        refute="the variable is set already (profiles do not record it), or the process has fewer than two CPUs (the "
        "most hides launching and memory work entirely)",
        next="export MAX_RUNTIME_CORE_NUMBER=3 and bind the process to its own CPUs before the first step (graph mode "
        "with dynamic shapes only; not on 200I/500 A2; leave ENABLE_DYNAMIC_SHAPE_MULTI_STREAM unset)",
        source=SOURCE,
    )

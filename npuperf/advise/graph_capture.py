"""Steps that the host launches operator by operator, though they could be replayed as a graph."""

from __future__ import annotations

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.rule import Answer, Detected, Rule, at_most, lacks_launches
from npuperf.advise.small_kernels import NOT_LAUNCHING
from npuperf.messages import Message, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("kernels launched one by one")
SOURCE = say("TorchAir: aclgraph (reduce-overhead) replays captured launches, max-autotune sinks static graphs")


def judge(view: DeviceView) -> Answer:
    """Capture helps where the device waits for launches rather than for data, compilation or synchronisation."""
    wait = view.partition.host_wait_ns + view.partition.launch_latency_ns
    # Where the host recorded nothing for so long, it cannot have been launching.
    pauses = [b.ns for b in view.report.blame if b.cause == "unrecorded" and b.ns >= view.thresholds.pause_ns * b.count]
    launching = wait - view.blamed(*NOT_LAUNCHING) - sum(pauses)
    if not view.host_bound or launching < max(view.thresholds.idle_share * view.partition.span_ns, wait / 2):
        return None
    dynamic, _ = dynamic_share(view)
    return Detected(
        title=_title(view, wait, launching),
        evidence={"launch_wait_ns": launching, "dynamic_share_of_compute": dynamic, "kernels": int(view.compute.sum())},
        gain=at_most(view.predict("host*0,latency*0")),
        refute=say(
            "a captured step takes just as long (the maximum assumes that no launch is waited for), "
            "or shapes or syncs prevent capture"
        ),
        next=say(
            "use torch.compile with torchair's backend: config.mode 'reduce-overhead' for few shapes (64 captures at "
            "most), 'max-autotune' for static ones"
        ),
    )


def _title(view: DeviceView, wait: int, launching: int) -> Message:
    """Name the partition's two lines and, where it differs, what of them capturing could spare."""
    whole = share(wait / view.partition.span_ns)
    if launching == wait:
        return say(
            "kernels are launched one by one: waiting for the host and launch latency take {whole} of span", whole=whole
        )
    return say(
        "kernels are launched one by one: waiting for the host and launch latency take {whole} of span ({launching} "
        "without data loading, syncs, pauses and the like)",
        whole=whole,
        launching=share(launching / view.partition.span_ns),
    )


RULE = Rule("graph_capture", TITLE, SOURCE, lacks_launches, judge, relieves="host")

"""Steps that the host launches operator by operator, and what of graphs, queues and fused optimizers fits them."""

from __future__ import annotations

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.launch_remedies import launch_remedies
from npuperf.advise.launch_waits import NO_LAUNCHING, launch_wait
from npuperf.advise.needs import HOST_WAITS
from npuperf.advise.requirements import EAGER
from npuperf.advise.rule import Answer, Detected, Rule, at_most
from npuperf.messages import Message, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("kernels launched one by one")
SOURCE = say("the partition of time: waiting for the host and launch latency, without what else the host was doing")


def judge(view: DeviceView) -> Answer:
    """Fewer launches help where the device waits for them rather than for data, compilation or synchronisation."""
    wait, launching = launch_wait(view)
    if not view.host_bound or launching < max(view.thresholds.idle_share * view.partition.span_ns, wait / 2):
        return None
    dynamic, _ = dynamic_share(view)
    return Detected(
        title=_title(view, wait, launching),
        evidence={"launch_wait_ns": launching, "dynamic_share_of_compute": dynamic, "kernels": int(view.compute.sum())},
        gain=at_most(view.predict("host*0,latency*0" if launching == wait else NO_LAUNCHING)),
        refute=say(
            "the step takes just as long with fewer or cheaper launches (the maximum assumes that none is waited for)"
        ),
        next=launch_remedies(view),
    )


def _title(view: DeviceView, wait: int, launching: int) -> Message:
    """Name the partition's two lines and, where it differs by more than a tenth, what of them is launching."""
    whole = share(wait / view.partition.span_ns)
    if launching >= view.thresholds.enough_data * wait:
        return say(
            "kernels are launched one by one: waiting for the host and launch latency take {whole} of span", whole=whole
        )
    return say(
        "kernels are launched one by one: waiting for the host and launch latency take {whole} of span ({launching} "
        "without data loading, syncs, pauses and the like)",
        whole=whole,
        launching=share(launching / view.partition.span_ns),
    )


RULE = Rule("graph_capture", TITLE, SOURCE, HOST_WAITS, judge, relieves="host", requires=(EAGER,))

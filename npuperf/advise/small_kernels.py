"""Many kernels so short that launching them costs more than running them."""

from __future__ import annotations

from npuperf.advise.launch_remedies import size_remedies
from npuperf.advise.launch_waits import launch_wait
from npuperf.advise.needs import HOST_WAITS
from npuperf.advise.rule import Answer, Detected, Rule, at_most, quote, top_types
from npuperf.messages import ns, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("very small kernels")
SOURCE = say("kernel durations and the waits for their launches")


def judge(view: DeviceView) -> Answer:
    """Small kernels matter only where the device waits for their launches."""
    thresholds = view.thresholds
    chosen = view.compute & (view.tasks.dur < thresholds.small_kernel_ns)
    part = int(chosen.sum()) / max(int(view.compute.sum()), 1)
    wait, launching = launch_wait(view)
    waits = int(view.waits[chosen].sum()) - (wait - launching)
    few = part < thresholds.small_kernel_share or waits < thresholds.cause_share * view.partition.span_ns
    if not view.host_bound or few:
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say("{share} of kernels run for less than {limit}: {types}",
                  share=share(part), limit=ns(thresholds.small_kernel_ns), types=quote(rows)),
        evidence={
            "share_of_kernels": part,
            "count": int(chosen.sum()),
            "host_wait_ns": int(view.waits[chosen].sum()),
            "types": rows,
        },
        # Which launches the advice saves is not known: the most is sure, the least is not.
        gain=at_most(view.predict("launches*0.5")),
        refute=say(
            "waiting for the host stays the same when the operators are fused (the gain assumes half as many launches)"
        ),
        next=size_remedies(view),
    )  # fmt: skip


RULE = Rule("small_kernels", TITLE, SOURCE, HOST_WAITS, judge, any_device=True, relieves="host")

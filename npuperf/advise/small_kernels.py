"""Many kernels so short that launching them costs more than running them."""

from __future__ import annotations

from typing import Final

from npuperf.advise.rule import Answer, Detected, Rule, lacks_launches, quote, top_types
from npuperf.messages import ns, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("very small kernels")
SOURCE = say("CANN on dynamic-shape scheduling: host-bound networks gain from fewer launches (fusion, graph capture)")

#: Host time that fewer launches do not save.
NOT_LAUNCHING: Final = ("sync", "data_loading", "compile", "gc", "communication")


def judge(view: DeviceView) -> Answer:
    """Small kernels matter only where the device waits for their launches."""
    thresholds = view.thresholds
    chosen = view.compute & (view.tasks.dur < thresholds.small_kernel_ns)
    part = int(chosen.sum()) / max(int(view.compute.sum()), 1)
    waits = int(view.waits[chosen].sum()) - view.blamed(*NOT_LAUNCHING)
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
        gain=view.predict("launches*0.5"),
        refute=say(
            "waiting for the host stays the same when the operators are fused (the gain assumes half as many launches)"
        ),
        next=say(
            "fuse them (torch.compile with the npu backend, fused optimizers, npu_* operators) or capture the step as "
            "a graph"
        ),
    )  # fmt: skip


RULE = Rule("small_kernels", TITLE, SOURCE, lacks_launches, judge, any_device=True, relieves="host")

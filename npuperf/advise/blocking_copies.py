"""Copies between host and device in which the host waits: pageable memory, or a copy that is asked to block."""

from __future__ import annotations

from typing import Final

from npuperf.advise.needs import HOST_DOINGS, RUNTIME_CALLS, Need
from npuperf.advise.rule import Answer, Rule
from npuperf.advise.sync_points import called, costly, detected
from npuperf.documents.analysis import SyncSite
from npuperf.messages import Message, chain, ns, say, say_n
from npuperf.scopes.view import DeviceView

TITLE = say("blocking copies")
SOURCE = say(
    "copies and waits in the timeline, replay without the wait; a copy to the device lets the host go on only from "
    "pinned memory and with non_blocking=True (PyTorch)"
)


def _calls_where_waited(view: DeviceView) -> float:
    """Ask for the runtime's calls wherever the device notably waits for the host, whatever bounds the run."""
    waits = view.partition.host_wait_ns >= view.thresholds.cause_share * view.partition.span_ns
    return view.part(RUNTIME_CALLS.recorded) if waits else 1.0


#: What rules need that look for single calls of the runtime.
HOST_CALLS: Final = (*HOST_DOINGS, Need(RUNTIME_CALLS.what, _calls_where_waited, RUNTIME_CALLS.supply))


def judge(view: DeviceView) -> Answer:
    """Name the place whose copies cost most."""
    sites = costly(view, lambda site: site.kind in ("htod", "copy"))
    if not sites:
        return None
    worst = sites[0].site
    refute = say("the step takes just as long with the batch already on the device")
    return detected(sites, _title(worst), refute, _advice(worst, view))


def _title(site: SyncSite) -> Message:
    call, waited = called(site), ns(site.host_ns)
    if site.kind == "copy":
        return say_n("the host waits {waited} for copies between host and device, in a direction that is not recorded, "
                     "in {call} ({n} time)",
                     "the host waits {waited} for copies between host and device, in a direction that is not recorded, "
                     "in {call} ({n} times)", site.count, waited=waited, call=call)  # fmt: skip
    if site.pinned is False:
        return say_n("the host waits {waited} for copies of pageable memory to the device in {call} ({n} time)",
                     "the host waits {waited} for copies of pageable memory to the device in {call} ({n} times)",
                     site.count, waited=waited, call=call)  # fmt: skip
    return say_n("the host waits {waited} for copies to the device in {call} ({n} time)",
                 "the host waits {waited} for copies to the device in {call} ({n} times)",
                 site.count, waited=waited, call=call)  # fmt: skip


def _advice(site: SyncSite, view: DeviceView) -> Message:
    if site.kind == "copy":
        newer = say("newer CANN records the direction (operation of MEMCPY_ASYNC)")
        return chain(
            say(
                "to the device: copy from pinned memory (DataLoader(pin_memory=True)) with non_blocking=True; to the "
                "host: keep the values on the device"
            ),
            None if view.profile.kineto else newer,
        )
    if site.pinned:
        return say("the memory is pinned: add non_blocking=True to the copy (.to(device, non_blocking=True))")
    if site.pinned is False:
        return say(
            "keep batches in pinned memory (DataLoader(pin_memory=True) or .pin_memory()) and copy with "
            "non_blocking=True"
        )
    return say(
        "keep batches in pinned memory (DataLoader(pin_memory=True) or .pin_memory()) and copy with non_blocking=True: "
        "one of the two is missing, which one is not recorded"
    )


RULE = Rule(
    "blocking_copies",
    TITLE,
    SOURCE,
    HOST_CALLS,
    judge,
    any_device=True,
    relieves="host",
)

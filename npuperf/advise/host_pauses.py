"""Pauses of the host: the device waits while the program does something else than launching, for long."""

from __future__ import annotations

import numpy as np

from npuperf.advise.needs import HOST_WAITS
from npuperf.advise.rule import Answer, Detected, Rule, at_most, notable_wait
from npuperf.advise.start_up import one_time
from npuperf.documents.analysis import Blame
from npuperf.host.blame import NOTHING, Blamed, sum_blame
from npuperf.messages import Message, Quantity, ns, say, say_n, share
from npuperf.model.frames import is_frame
from npuperf.model.host import shorten
from npuperf.scopes.view import DeviceView

TITLE = say("pauses of the host")
SOURCE = say("launches of the timeline, and what the host did between them; npuperf's definition of a pause (pause_ns)")

#: Names of causes in the evidence.
_NAMES = 3


def judge(view: DeviceView) -> Answer:
    """Sum the pauses that the device waits for, and name what most of them is spent on."""
    found = _lasting(view)
    length = found.end - found.start
    total = int(length.sum())
    if total < notable_wait(view):
        return None
    rows = sum_blame(found, view.profile.host, view.study.nesting, _NAMES)
    gaps = view.study.timeline.idle
    gap = np.searchsorted(gaps.start, found.start, side="right") - 1
    each = np.bincount(np.unique(gap, return_inverse=True)[1].reshape(-1), weights=length)
    worst = rows[0]
    return Detected(
        title=_title(len(each), share(total / view.partition.span_ns), ns(int(each.max())), worst),
        evidence={
            "host_wait_ns": total,
            "pauses": len(each),
            "longest_ns": int(each.max()),
            "names": [{"cause": b.cause, "name": b.name, "ns": b.ns, "where": b.where} for b in rows[:_NAMES]],
        },
        gain=_gain(view, total),
        refute=say("the pauses are as they should be: the program has nothing to do, or must wait for something else"),
        next=_next(view, worst),
    )


def _lasting(view: DeviceView) -> Blamed:
    """Return the pauses but for one-time work, which a warm run has none of: ``start_up`` is about it."""
    found = view.paused
    events = view.study.nesting.events
    kept = ~np.isin(found.event, one_time(events, view.thresholds))
    return Blamed(found.start[kept], found.end[kept], found.event[kept], found.cause[kept])


def _gain(view: DeviceView, total: int) -> tuple[int, int] | None:
    """Return what is gained without them: never more than they last, for the replay has one-time work in them, too."""
    replayed = at_most(view.predict("host:pause*0"))
    return replayed and (0, min(replayed[1], view.per_step(total)))


def _title(count: int, part: Quantity, longest: Quantity, worst: Blame) -> Message:
    """Say how often the host pauses, and in what, where that is recorded."""
    if worst.name == NOTHING:
        return say_n(
            "the host pauses once, for {longest} ({share} of span), and launches nothing; what it does is not recorded",
            "the host pauses {n} times ({share} of span, {longest} at most) and launches nothing; what it does is not "
            "recorded",
            count, share=part, longest=longest,
        )  # fmt: skip
    return say_n(
        "the host pauses once, for {longest} ({share} of span), and launches nothing: {call}",
        "the host pauses {n} times ({share} of span, {longest} at most) and launches nothing, mostly in {call}",
        count, share=part, longest=longest, call=_call(worst),
    )  # fmt: skip


def _call(worst: Blame) -> str | Message:
    if is_frame(worst.name):
        return worst.where or shorten(worst.name)
    return say("{call} at {place}", call=worst.name, place=worst.where) if worst.where else worst.name


def _next(view: DeviceView, worst: Blame) -> Message:
    if worst.cause == "memory":
        return say(
            "record later steps: the first ones of a run take memory from the driver, later ones find it in the cache; "
            "if these calls recur there, tensors of ever new sizes fragment it"
        )
    if worst.name != NOTHING:
        return say(
            "let another thread or process do it (checkpoints, logs, preparing data), or do it less often; faster "
            "launches do not shorten a pause"
        )
    if view.profile.kineto:
        return say(
            "if the program waits for requests there, nothing is wrong: look at a time of full load; else record with "
            "torch.profiler and with_stack=True, which shows what it does"
        )
    return say(
        "if the program waits for requests there, nothing is wrong: look at a time of full load; else record with "
        "npuperf profile --stack, which shows what it does"
    )


RULE = Rule("host_pauses", TITLE, SOURCE, HOST_WAITS, judge, any_device=True, relieves="host")

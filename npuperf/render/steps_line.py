"""How many steps there are, and how long they take."""

from __future__ import annotations

from statistics import median

from npuperf.documents.analysis import Result
from npuperf.messages import Message, chain, ns, say, say_n
from npuperf.units import spread


def steps_line(result: Result) -> Message:
    """Say how many steps there are, how long one takes, and between which bounds."""
    spans = [step.partition.span_ns for device in result.devices for step in device.steps]
    devices = say_n("{n} device", "{n} devices", len(result.devices)) if len(result.devices) != 1 else None
    if not spans:
        whole = max((device.partition.span_ns for device in result.devices), default=None)
        return chain(say("no steps recorded"), say("{span} in all", span=ns(whole)), devices, by=" · ")
    steps = say_n("{n} step", "{n} steps", max(len(device.steps) for device in result.devices))
    usual = round(median(spans))
    length = say("{median}/step", median=ns(usual))
    if len(spans) > 1:
        ends = spread(min(spans), max(spans), usual)
        length = say("{median}/step ({ends})", median=ns(usual), ends=ends)
    return chain(steps, length, devices, by=" · ")

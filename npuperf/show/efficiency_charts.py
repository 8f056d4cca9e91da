"""The chart of efficiency: peak × time of every device as one bar of its parts, of the least efficient part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import Final

from npuperf.base.messages import chain, ns, say, say_n, share
from npuperf.base.units import TERA, grouped
from npuperf.model.efficiency_result import Efficiency, EfficiencyPart, EfficiencyPartName
from npuperf.model.result import Device, least_efficient
from npuperf.show.efficiency_tables import words_of
from npuperf.show.efficiency_text import LEAST, efficiency_title, idle_line, interval, says_something, useful_line
from npuperf.show.svg import BarRow, Chart, Piece, bars, element, legend
from npuperf.show.words import device_name

_COLOURS: Final[dict[EfficiencyPartName, str]] = {
    "useful": "e-useful",
    "useful_or_padded": "e-maybe",
    "padded": "e-padded",
    "cube_busy_without_formula": "c-cube",
    "cube_uncounted": "e-uncounted",
    "cube_idle": "e-idle",
    "vector": "c-vector",
    "communication": "c-communication",
    "other": "c-other",
    "host_wait": "c-host_wait",
    "launch_latency": "c-launch_latency",
    "dependency": "c-dependency_wait",
    "unattributed": "c-unattributed",
}
#: Of many devices so many are drawn, the least efficient first.
_DEVICES: Final = 16


def efficiency_charts(devices: Sequence[Device]) -> Iterator[Chart]:
    """Yield the chart, if anything is known of what cube cores do and it can be split."""
    known = [(device, found) for device in devices
             if (found := device.window_efficiency) is not None and found.parts and says_something(found)]  # fmt: skip
    least = least_efficient([device for device, _ in known])
    found = None if least is None else least.window_efficiency
    if least is None or found is None:
        return
    known.sort(key=lambda one: (one[1].hfu[0], one[1].cube_busy_share or 0.0))
    shown, several = known[:_DEVICES], len(devices) > 1
    wholes = [_whole(device, of, several) for device, of in shown]
    caption = chain(
        efficiency_title(found, least if several else None),
        useful_line(found),
        say_n("{shown} of {n} device, the least efficient first", "{shown} of {n} devices, the least efficient first",
              len(known), shown=len(shown)) if len(known) > 1 else None,
        say("below, the parts of {device}: each begins where the one above it ends", device=device_name(least))
        if several
        else say("the parts add up to it: each begins where the one above it ends"),
    )  # fmt: skip
    used = {part.part: words_of(device, part) for device, of in shown for part in of.parts if part.share >= LEAST}
    entries = [(colour, used[name]) for name, colour in _COLOURS.items() if name in used]
    body = element("div", legend(entries), bars(wholes, 0, 1), bars(_one_by_one(least, found), 0, 1))
    yield Chart("efficiency", say("where peak × time goes"), caption, body, wide=True,
                topic="efficiency")  # fmt: skip


def _whole(device: Device, found: Efficiency, several: bool) -> BarRow:
    """Return all parts of a device in one bar."""
    pieces, at = [], 0.0
    for part in found.parts:
        pieces.append(_piece(device, part, at))
        at += part.share
    if several:
        value = say("useful {useful}", useful=interval(found.hfu))
        if not found.formula_share:
            value = say("busy {busy}", busy=share(found.cube_busy_share))
        return BarRow(device_name(device), value, pieces)
    whole = grouped(fsum(part.flop for part in found.parts) / TERA, 3)
    return BarRow(say("peak × time"), say("{flop} TFLOP, {time}", flop=whole, time=ns(found.span_ns)), pieces,
                  strong=True)  # fmt: skip


def _one_by_one(device: Device, found: Efficiency) -> Iterator[BarRow]:
    """Yield a row for each of the parts that there are, each beginning where the one above it ends."""
    at = 0.0
    for part in found.parts:
        if part.ns:
            value = say("{time} ({share})", time=ns(part.ns), share=share(part.share))
            note = idle_line(found) if part.part == "cube_idle" else None
            yield BarRow(words_of(device, part), value, [_piece(device, part, at)], note)
        at += part.share


def _piece(device: Device, part: EfficiencyPart, at: float) -> Piece:
    told = say("{part}: {flop} TFLOP, {time} ({share})", part=words_of(device, part), time=ns(part.ns),
               flop=grouped(part.flop / TERA, 3), share=share(part.share))  # fmt: skip
    return Piece(at, at + part.share, _COLOURS[part.part], told)

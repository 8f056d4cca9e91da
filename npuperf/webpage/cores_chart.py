"""How many of the cores are in use over time, one panel for each kind of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from npuperf.documents.analysis import CoreTime, Device, Result
from npuperf.messages import Message, ns, say, say_n, share
from npuperf.webpage.chart import Chart, chosen, of_device, plain, sentences
from npuperf.webpage.svg import WIDTH, element, rounded, stretched
from npuperf.webpage.whereabouts import Whereabouts

_HEIGHT: Final = 100


def cores_over_time(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the share of cores in use, slice by slice of the window."""
    device = chosen(result)
    use = device.cores.over_time if device else None
    if device is None or use is None:
        return None
    cores = device.cores
    found = (
        ("cube", say("cube cores"), use.cube, cores.cube),
        ("vector", say("vector cores"), use.vector, cores.vector),
    )
    sides = [(name, words, side, sums) for name, words, side, sums in found if side is not None and side.slices]
    if not sides:
        return None
    slices = len(sides[0][2].slices)
    caption = sentences(
        say_n("mean share of cores in use, in {n} slice of the time", "mean share of cores in use, in {n} equal "
              "slices of the time", slices),
        *(say("{side}: {used} of the window", side=words, used=share(sums.occupancy_span if sums else None))
          for _, words, _, sums in sides),
    )  # fmt: skip
    panels = [_panel(device, name, words, side) for name, words, side, _ in sides]
    title_ = of_device(result, device, say("cores in use over time"))
    return Chart("cores", title_, caption, element("div", *panels), wide=True)


def _panel(device: Device, name: str, words: Message, side: CoreTime) -> Markup:
    most = max(side.slices)
    said = plain(say("{side} in use over time: {least} to {most}", side=words, least=share(min(side.slices)),
                     most=share(most)))  # fmt: skip
    picture = stretched(_HEIGHT, *_steps(side.slices, name), class_="curve", said=said)
    heading = say_n("{side} ({n} core)", "{side} ({n} cores)", side.cores, side=words)
    up = element("div", element("span", "100 %"), element("span", "0 %"), class_="axis-y", aria_hidden="true")
    ends = element("span", "0"), element("span", plain(ns(device.window.span_ns)))
    along = element("div", *ends, class_="axis-x", aria_hidden="true")
    return element(
        "div", element("p", plain(heading), class_="panel-name"), element("div", up, picture, along, class_="axes")
    )


def _steps(slices: Sequence[float], name: str) -> list[Markup]:
    """Return the line of a share over time as steps, and what is below it."""
    width = WIDTH / len(slices)
    heights = [rounded(_HEIGHT * (1 - min(max(part, 0.0), 1.0))) for part in slices]
    line = " ".join(f"V {y} H {rounded(width * (i + 1))}" for i, y in enumerate(heights))
    return [
        element("path", d=f"M 0 {_HEIGHT} {line} V {_HEIGHT} Z", class_=f"area c-{name}"),
        element("path", d=f"M 0 {heights[0]} {line}", class_=f"line c-{name}"),
    ]

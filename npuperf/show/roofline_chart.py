"""Operators below the roofs of the chip, by their work per byte and per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10, sqrt
from typing import Final

from markupsafe import Markup
from msgspec import Struct

from npuperf.base.messages import Message, chain, ns, number, say, say_n, share
from npuperf.base.units import short_names
from npuperf.model.efficiency_result import Roofs
from npuperf.model.result import Operator, Result
from npuperf.show.efficiency_tables import LIMITS, ROOFLINE
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import DRAWN, Chart, element, legend, plain, rect, rounded, width_of

# Axes of ten times as much, the roofs as lines, operators as large as their time.

_HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT, _SIZE = 380, 14, 44, 90, 12, 12
_WIDE: Final = DRAWN[0][1]
#: Radii of the operator with most time, on wide and narrow screens, and of the smallest ones.
_LARGEST, _LARGEST_NARROW, _SMALLEST = 26.0, 17.0, 3.0
#: Operators with less than this share of the time are in the table alone; so many are named.
_LEAST, _NAMED = 0.001, 8
#: Slower ones than this part of the peak would leave the others no room.
_SLOWEST: Final = 1e-6
#: Where along a rising roof its name is.
_NAMED_AT: Final = 0.45
#: Peaks no further apart are one.
_ONE: Final = 1e-3
_FLOPS: Final = (("TFLOPS", 12), ("GFLOPS", 9), ("MFLOPS", 6))
_COLOURS: Final = {
    "AI_CORE": ("c-cube", say("cube cores")),
    "AI_VECTOR_CORE": ("c-vector", say("vector cores")),
}
_MIXED: Final = ("c-mixed", say("cube and vector cores"))


#: Left, right, top, bottom.
_Box = tuple[float, float, float, float]


class _Point(Struct, frozen=True):
    """An operator: FLOP per byte, FLOP per second."""

    operator: Operator
    x: float
    y: float


def roofline_chart(result: Result, where: Whereabouts) -> Chart | None:
    """Draw what operators do per byte and per second below the roofs, where all devices have the same."""
    found = [device.window_efficiency for device in result.devices]
    known = [one.roofs for one in found if one is not None and one.roofs is not None]
    roofs = max(known, key=lambda one: one.cube_flop_per_s, default=None)
    if roofs is None or len(known) < len(found):
        return None
    if min(one.cube_flop_per_s for one in known) < roofs.cube_flop_per_s * (1 - _ONE):
        return None
    least = _SLOWEST * roofs.cube_flop_per_s
    points = [
        _Point(one, one.intensity, one.flop_per_s)
        for one in sorted(result.window_operators, key=lambda one: -one.total_ns)
        if one.intensity and one.flop_per_s and one.flop_per_s >= least and one.share >= _LEAST
    ]
    if not points:
        return None
    time = sum(point.operator.share for point in points)
    caption = chain(
        say_n("{n} operator of which bytes and operations are known: {part} of all operators' time",
              "{n} operators of which bytes and operations are known: {part} of all operators' time",
              len(points), part=share(time)),
        _won(result),
        say("as large as its time; bytes are those that must be moved, operations of cube cores as if all were FP16"),
        None if roofs.hbm_of_chip or roofs.hbm_bytes_per_s is None
        else say("HBM's rate is the highest that such chips have: --soc NAME names the chip"),
    )  # fmt: skip
    title = say("operators below the roofs of the chip")
    said = plain(chain(title, caption))
    drawn = []
    for class_, width in DRAWN:
        parts = _Plot(width, roofs, points).drawn(where)
        drawn.append(element(
            "svg", element("title", said), *parts, viewBox=f"0 0 {width} {_HEIGHT}", class_=f"plot {class_}",
            role="img", aria_label=said, focusable="false",
        ))  # fmt: skip
    used = dict(_COLOURS.get(point.operator.core or "", _MIXED) for point in points)
    body = element("div", legend(used.items()), *drawn)
    return Chart("roofline", title, caption, body, wide=True, topic="efficiency")


def _won(result: Result) -> Message | None:
    """Say what could be won in all, per step."""
    ends = [device.window_efficiency.recoverable_ns for device in result.devices if device.window_efficiency]
    known = [one for one in ends if one is not None]
    if not known:
        return None
    spans = sum(device.window.span_ns for device in result.devices)
    least, most = (sum(side) for side in zip(*known, strict=True))
    part = share(least / spans, most / spans) if spans else None
    return say("could be won: {part} of the device's time", part=part) if part else None


class _Plot:
    """One drawing at a width, in pixels; axes in powers of ten."""

    def __init__(self, width: int, roofs: Roofs, points: Sequence[_Point]) -> None:
        self.left, self.right, self.base = _LEFT, width - _RIGHT, _HEIGHT - _BOTTOM
        self.roofs, self.points = roofs, points
        self.largest = _LARGEST if width == _WIDE else _LARGEST_NARROW
        slope = roofs.hbm_bytes_per_s or roofs.cube_flop_per_s / 100
        ends = [*(log10(point.x) for point in points), log10(roofs.cube_flop_per_s / slope) + 0.5]
        self.x0, self.x1 = floor(min(ends)), ceil(max(ends))
        self.y0 = floor(min(log10(roofs.cube_flop_per_s) - 1, *(log10(point.y) for point in points)))
        self.y1 = log10(roofs.cube_flop_per_s) + 0.25

    def x(self, value: float) -> float:
        """Return where so many FLOP per byte are."""
        return self.left + (self.right - self.left) * (log10(value) - self.x0) / (self.x1 - self.x0)

    def y(self, value: float) -> float:
        """Return where so many FLOP per second are."""
        return self.base - (self.base - _TOP) * (log10(value) - self.y0) / (self.y1 - self.y0)

    def drawn(self, where: Whereabouts) -> Iterator[Markup]:
        """Yield axes, roofs, operators and their names."""
        yield rect(self.left, _TOP, self.right - self.left, self.base - _TOP, "plot-ground")
        yield from self._axes()
        taken: list[_Box] = []
        yield from self._roofs(taken)
        names = short_names(point.operator.type for point in self.points)
        for point in self.points:  # the largest first, so that it covers none
            one = point.operator
            colour, _ = _COLOURS.get(one.core or "", _MIXED)
            tip = element("title", plain(_told(point)))
            at, high, radius = self._circle(point)
            yield element("circle", tip, cx=at, cy=high, r=radius, class_=f"bubble {colour}",
                          data_go=where.row(ROOFLINE, (one,)) or None)  # fmt: skip
        for point in self.points[:_NAMED]:
            yield from self._named(point, names[point.operator.type], taken)

    def _circle(self, point: _Point) -> tuple[float, float, float]:
        radius = self.largest * sqrt(point.operator.total_ns / self.points[0].operator.total_ns)
        return self.x(point.x), self.y(point.y), max(radius, _SMALLEST)

    def _axes(self) -> Iterator[Markup]:
        for power in range(self.x0, self.x1 + 1):
            at = self.x(10.0**power)
            yield element("path", d=f"M {rounded(at)} {_TOP} V {self.base}", class_="grid")
            if self.left < at < self.right - _SIZE or power == self.x0:
                yield element("text", f"{10.0**power:g}", x=at, y=self.base + 16, class_="plot-text middle")
        label = plain(say("FLOP per byte"))
        yield element("text", label, x=self.right, y=self.base + 34, class_="plot-text end")
        for power in range(self.y0, floor(self.y1) + 1):
            at = self.y(10.0**power)
            yield element("path", d=f"M {self.left} {rounded(at)} H {self.right}", class_="grid")
            name, unit = next(((name, unit) for name, unit in _FLOPS if power >= unit), _FLOPS[-1])
            yield element("text", f"{10.0 ** (power - unit):g} {name}", x=self.left - 6, y=at + _SIZE / 3,
                          class_="plot-text end")  # fmt: skip

    def _roofs(self, taken: list[_Box]) -> Iterator[Markup]:
        """Yield the roofs: a rate of operations is level, one of bytes rises until it meets the peak of cube cores."""
        peak, first, last = self.roofs.cube_flop_per_s, 10.0**self.x0, 10.0**self.x1
        rates = [
            (say("L2"), self.roofs.l2_bytes_per_s, "r-l2", 0),
            (say("HBM"), self.roofs.hbm_bytes_per_s, "r-hbm", 1),
        ]
        corner = first if all(rate is None for _, rate, _, _ in rates) else last
        for name, rate, class_, below in rates:
            if rate is None:
                continue
            begin, end = max(first, 10.0**self.y0 / rate), min(peak / rate, last)
            if end <= begin:
                continue
            corner = min(corner, end)
            ends = (f"{rounded(self.x(at))} {rounded(self.y(at * rate))}" for at in (begin, end))
            yield element("path", d=f"M {' L '.join(ends)}", class_=f"roof {class_}")
            middle = begin * (end / begin) ** _NAMED_AT
            label = plain(say("{name} {rate} GB/s", name=name, rate=number(round(rate / 1e9))))
            beside = self.x(middle) + below * (width_of(label, _SIZE) + 12) - 6
            yield self._label(label, beside, self.y(rate * middle) + below * (_SIZE + 6) - 4, taken)
        vector = self.roofs.vector_flop_per_s
        begin = max(vector / self.roofs.l2_bytes_per_s, first) if self.roofs.l2_bytes_per_s else first
        for name, rate, start in ((say("cube, FP16"), peak, corner), (say("vector, FP16"), vector, begin)):
            yield element("path", d=f"M {rounded(self.x(start))} {rounded(self.y(rate))} H {self.right}",
                          class_="roof r-level")  # fmt: skip
            label = plain(say("{name} {rate} TFLOPS", name=name, rate=number(round(rate / 1e12, 1))))
            yield self._label(label, self.right - 4, self.y(rate) - 5, taken)

    def _label(self, label: str, x: float, y: float, taken: list[_Box]) -> Markup:
        """Write what ends at a place, or begins at the left edge."""
        wide = width_of(label, _SIZE)
        x = max(x, self.left + wide + 2)
        taken.append((x - wide, x, y - _SIZE, y))
        return element("text", label, x=x, y=y, class_="plot-text end")

    def _named(self, point: _Point, name: str, taken: list[_Box]) -> Iterator[Markup]:
        """Write a name beside, below or above its operator, where there is room that nothing else has."""
        at, high, radius = self._circle(point)
        wide, level = width_of(name, _SIZE), high + _SIZE / 3
        others = [self._circle(other) for other in self.points if other is not point]
        circles = [(x - r, x + r, y - r, y + r) for x, y, r in others]
        for left, base in (
            (at + radius + 4, level),
            (at - radius - 4 - wide, level),
            (at - wide / 2, high + radius + _SIZE),
            (at - wide / 2, high - radius - 4),
        ):
            box = (left, left + wide, base - _SIZE, base)
            inside = self.left < left and left + wide < self.right and box[2] > _TOP and base < self.base
            if inside and not any(_meet(box, other) for other in (*taken, *circles)):
                taken.append(box)
                yield element("text", name, x=left, y=base, class_="plot-text strong")
                return


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _told(point: _Point) -> Message:
    one = point.operator
    won = None
    if one.recoverable_ns is not None:
        won = say("could win {won}", won=ns(*one.recoverable_ns))
    return chain(
        say("{type}, {core}: {time} ({share})", type=one.type, core=one.core or "–", time=ns(one.total_ns),
            share=share(one.share)),
        say("{flop} TFLOPS at {intensity} FLOP per byte", flop=number(point.y / 1e12), intensity=number(point.x)),
        say("limited by {limit}, nearest roof {part}", limit=LIMITS[one.bound_by or "unknown"],
            part=share(one.roof_share)) if one.roof_share is not None else None,
        won,
        by=" · ",
    )  # fmt: skip

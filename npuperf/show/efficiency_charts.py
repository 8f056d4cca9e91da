"""Charts of efficiency: peak × time as a bar of its parts, and operators below the roofs of the chip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, fsum, log10, sqrt
from typing import Final

from markupsafe import Markup
from msgspec import Struct

from npuperf.base.messages import Message, chain, ns, number, say, say_n, share
from npuperf.base.units import TERA, grouped, short_names
from npuperf.model.efficiency_result import Efficiency, EfficiencyPart, EfficiencyPartName, Roofs
from npuperf.model.result import Device, Operator, Result, least_efficient
from npuperf.show.efficiency_tables import LIMITS, ROOFLINE, words_of
from npuperf.show.efficiency_text import LEAST, efficiency_title, idle_line, interval, says_something, useful_line
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import DRAWN, BarRow, Chart, Piece, bars, element, legend, plain, rect, rounded, width_of
from npuperf.show.words import at_most, device_name

# -- Peak × time of every device as one bar of its parts, of the least efficient part by part.

_PARTS: Final[dict[EfficiencyPartName, str]] = {
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
    entries = [(colour, used[name]) for name, colour in _PARTS.items() if name in used]
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
    return Piece(at, at + part.share, _PARTS[part.part], told)


# -- Operators by their work per byte and per second. Axes of ten times as much, the roofs as lines, operators as large
# as their time.

_HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT, _SIZE = 380, 14, 44, 90, 12, 12
_WIDE: Final = DRAWN[0][1]
#: Radii of the operator with most time, on wide and narrow screens, and of the smallest ones.
_LARGEST, _LARGEST_NARROW, _SMALLEST = 26.0, 17.0, 3.0
#: Operators with less than this share of the time are in the table alone; so many are named.
_LEAST, _NAMED = 0.001, 8
#: Slower ones than this part of the peak would leave the others no room.
_SLOWEST: Final = 1e-6
#: Where along a roof its name may be, as parts of the roof: the first that is free.
_NAMED_AT: Final = (0.45, 0.3, 0.6, 0.2, 0.75, 0.1, 0.9)
_LEVEL_AT: Final = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3)
#: Bold letters beside plain ones.
_BOLD: Final = 1.12
#: Peaks no further apart are one.
_ONE: Final = 1e-3
_FLOPS: Final = (("TFLOPS", 12), ("GFLOPS", 9), ("MFLOPS", 6))
_COLOURS: Final = {
    "AI_CORE": ("c-cube", say("cube cores")),
    "AI_VECTOR_CORE": ("c-vector", say("vector cores")),
}
_MIXED: Final = ("c-mixed", say("cube and vector cores"))


#: Left, right, top, bottom; of a line from where to where.
_Box = tuple[float, float, float, float]
_Line = tuple[float, float, float, float]


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
    time = fsum(point.operator.share for point in points)
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
    least, most = (fsum(side) for side in zip(*known, strict=True))
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
        decade = (self.right - self.left) / (self.x1 - self.x0)
        if max(ends) > self.x1 - self.largest / decade:  # the circle needs room, too
            self.x1 += 1
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
        self.circles = {id(point): self._circle(point) for point in self.points}
        self.lines: list[_Line] = []
        taken: list[_Box] = []
        yield from self._roofs(taken)
        names = short_names(point.operator.type for point in self.points)
        for point in self.points:  # the largest first, so that it covers none
            one = point.operator
            colour, _ = _COLOURS.get(one.core or "", _MIXED)
            tip = element("title", plain(_told(point)))
            at, high, radius = self.circles[id(point)]
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
        labels: list[tuple[str, list[tuple[float, float]]]] = []
        for name, rate, class_, below in rates:
            if rate is None:
                continue
            begin, end = max(first, 10.0**self.y0 / rate), min(peak / rate, last)
            if end <= begin:
                continue
            corner = min(corner, end)
            line = (self.x(begin), self.y(begin * rate), self.x(end), self.y(end * rate))
            self.lines.append(line)
            ends = " L ".join(f"{rounded(x)} {rounded(y)}" for x, y in (line[:2], line[2:]))
            yield element("path", d=f"M {ends}", class_=f"roof {class_}")
            label = plain(say("{name} {rate} GB/s", name=name, rate=number(round(rate / 1e9))))
            middles = [begin * (end / begin) ** part for part in _NAMED_AT]
            wide = below * (width_of(label, _SIZE) + 12) - 6
            labels.append((label, [(self.x(at) + wide, self.y(rate * at) + below * (_SIZE + 6) - 4) for at in middles]))
        vector = self.roofs.vector_flop_per_s
        begin = max(vector / self.roofs.l2_bytes_per_s, first) if self.roofs.l2_bytes_per_s else first
        for name, rate, start in ((say("cube, FP16"), peak, corner), (say("vector, FP16"), vector, begin)):
            level, left = self.y(rate), self.x(start)
            self.lines.append((left, level, self.right, level))
            yield element("path", d=f"M {rounded(left)} {rounded(level)} H {self.right}", class_="roof r-level")
            label = plain(say("{name} {rate} TFLOPS", name=name, rate=number(round(rate / 1e12, 1))))
            above = [(left + (self.right - 4 - left) * part, level - 5) for part in _LEVEL_AT]
            labels.append((label, [*above, *((x, level + _SIZE + 3) for x, _ in above)]))
        for label, places in labels[::-1]:  # a level one has fewer places
            yield self._label(label, places, taken)

    def _label(self, label: str, places: Sequence[tuple[float, float]], taken: list[_Box]) -> Markup:
        """Write what ends at the first of the places that is free, else at the first of them within the plot."""
        wide = width_of(label, _SIZE)
        boxes = [(x - wide, x, y - _SIZE, y) for x, y in places]
        boxes = [box for box in boxes if self.left + 2 <= box[0] and box[1] <= self.right] or [
            (self.left + 2, self.left + 2 + wide, boxes[0][2], boxes[0][3])
        ]
        box = next((box for box in boxes if self._free(box, taken)), boxes[0])
        taken.append(box)
        return element("text", label, x=box[1], y=box[3], class_="plot-text end")

    def _free(self, box: _Box, taken: Sequence[_Box], own: _Point | None = None) -> bool:
        """Tell a place where neither a text nor a roof nor a circle is, but that of its ``own`` operator."""
        circles = ((x - r, x + r, y - r, y + r) for at, (x, y, r) in self.circles.items() if at != id(own))
        texts = any(_meet(box, other) for other in (*taken, *circles))
        return not texts and not any(_cuts(box, line) for line in self.lines)

    def _named(self, point: _Point, name: str, taken: list[_Box]) -> Iterator[Markup]:
        """Write a name beside, below or above its operator, where there is room that nothing else has."""
        at, high, radius = self.circles[id(point)]
        wide, level = _BOLD * width_of(name, _SIZE), high + _SIZE / 3
        beside = 0.7 * radius + 3  # of a corner
        for left, base in (
            (at + radius + 4, level),
            (at - radius - 4 - wide, level),
            (at - wide / 2, high + radius + _SIZE),
            (at - wide / 2, high - radius - 4),
            (at + beside, high + beside + _SIZE),
            (at + beside, high - beside),
            (at - beside - wide, high + beside + _SIZE),
            (at - beside - wide, high - beside),
        ):
            box = (left, left + wide, base - _SIZE, base)
            inside = self.left < left and left + wide < self.right and box[2] > _TOP and base < self.base
            if inside and self._free(box, taken, point):
                taken.append(box)
                yield element("text", name, x=left, y=base, class_="plot-text strong")
                return


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _cuts(box: _Box, line: _Line) -> bool:
    """Tell a line that comes into a box (Liang and Barsky)."""
    left, right, top, bottom = box
    x, y, x_end, y_end = line
    low, high = 0.0, 1.0
    for step, room in ((x - x_end, x - left), (x_end - x, right - x), (y - y_end, y - top), (y_end - y, bottom - y)):
        if not step and room < 0:
            return False
        if step < 0:
            low = max(low, room / step)
        elif step:
            high = min(high, room / step)
    return low <= high


def _told(point: _Point) -> Message:
    one = point.operator
    won = None
    if one.recoverable_ns is not None:
        won = say("could win {won}", won=at_most(*one.recoverable_ns))
    return chain(
        say("{type}, {core}: {time} ({share})", type=one.type, core=one.core or "–", time=ns(one.total_ns),
            share=share(one.share)),
        say("{flop} TFLOPS at {intensity} FLOP per byte", flop=number(point.y / 1e12), intensity=number(point.x)),
        say("limited by {limit}, nearest roof {part}", limit=LIMITS[one.bound_by or "unknown"],
            part=share(one.roof_share)) if one.roof_share is not None else None,
        won,
        by=" · ",
    )  # fmt: skip

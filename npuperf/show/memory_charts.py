"""Charts of memory: over time by class and against its limits, what lived at the peak, and one curve for every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

from markupsafe import Markup

from npuperf.base.messages import Message, Parameter, chain, mib, ns, say, say_n, series
from npuperf.base.units import NS_PER_MS, NS_PER_S, NS_PER_US
from npuperf.model.memory_result import Alive, Memory, MemoryBlock, MemoryCurve
from npuperf.model.result import Device
from npuperf.show.memory_text import peak_sum
from npuperf.show.svg import (
    DRAWN,
    WIDTH,
    Chart,
    Slab,
    element,
    icicle,
    legend,
    plain,
    rect,
    rounded,
    stretched,
    width_of,
)
from npuperf.show.words import WORDS, device_name, named

#: Where so many bytes are on an axis.
_Scale = Callable[[float], float]
#: What fills the curve from the bottom up: what was there before the recording, then the classes of blocks.
_BEFORE: Final = "before"
LAYERS: Final[dict[str, Message]] = {
    _BEFORE: say("from before the window"),
    **{
        name: WORDS[name]
        for name in (
            *("lasting", "kv_cache", "graph_pool", "workspace", "activation", "gradient", "temporary"),
            *("unreleased", "unknown"),
        )
    },
}
_ALL: Final = say("allocated")
#: Lines above the areas: a field of the curve, and its words.
_LINES: Final = {"reserved": say("reserved"), "process": say("process")}
_LIMIT: Final = say("HBM")
#: A limit farther above all curves than this leaves them no room: then it is told, and not drawn.
_FAR: Final = 2.0
#: Room above the highest, of all that is drawn.
_ROOM: Final = 1.03
#: Of many ranks so many are drawn, the highest.
_RANKS: Final = 24
#: How high a rank's curve is.
_SMALL: Final = 100


def memory_charts(devices: Sequence[Device]) -> Iterator[Chart]:
    """Yield the charts of the device with the highest peak, and of several the curves of all beside each other."""
    found = sorted(
        ((device, memory) for device in devices if (memory := device.memory) is not None),
        key=lambda one: -(one[1].peak_bytes or 0),
    )
    if not found:
        return
    device, memory = found[0]
    several = len(devices) > 1
    if memory.curve is not None:
        yield _over_time(device, memory, memory.curve, several)
    if memory.split == "measured" and memory.peak_bytes:
        yield _at_the_peak(device, memory, memory.peak_bytes, several)
    curves = [(one, memory, memory.curve) for one, memory in found if memory.curve is not None]
    if len(curves) > 1:
        yield _ranks(curves)


# -- Over time: areas of classes, lines of what is reserved, on axes of bytes and of time.

_HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT, _SIZE = 320, 22, 40, 70, 8, 12
#: Room that a label of the axis of time needs, the gap between two lines of text, and between two steps.
_TICK, _ROW, _APART = 70, 15, 6


def _over_time(device: Device, memory: Memory, curve: MemoryCurve, several: bool) -> Chart:
    """Draw what is allocated over time, by class, with what is reserved and the process has, steps and the peak."""
    most = _highest([curve])
    near = memory.hbm_bytes is not None and memory.hbm_bytes <= _FAR * most
    top = round(_ROOM * max(most, memory.hbm_bytes or 0 if near else 0))
    layers = _layers(memory, curve)
    operator = memory.peak_operator and say("asked for by {operator}", operator=memory.peak_operator)
    caption = chain(
        _peak(memory, operator or None),
        say("each slice of {width} shows its highest instant", width=ns(curve.slice_ns))
        if memory.timed else say("the axis counts events, which have no times"),
        say("the device has {hbm}, beyond the scale", hbm=mib(memory.hbm_bytes))
        if memory.hbm_bytes is not None and not near else None,
        chain(say("what blocks are for cannot be told"), memory.reason) if memory.split == "cannot_tell" else None,
        say("dashed: steps begin") if memory.steps else None,
    )  # fmt: skip
    said = plain(chain(say("memory over time"), caption))
    drawn = []
    for class_, width in DRAWN:
        parts = _Plot(width, top, curve).drawn(memory, layers, hover=class_ == "wide-only", limit=near)
        drawn.append(element(
            "svg", element("title", said), *parts, viewBox=f"0 0 {width} {_HEIGHT}", class_=f"plot {class_}",
            role="img", aria_label=said, focusable="false",
        ))  # fmt: skip
    used = [(f"m-{name}", words) for name, words, _ in layers]
    used += [(f"m-{name}", words) for name, words in _LINES.items() if max(getattr(curve, name), default=-1) >= 0]
    used += [("m-hbm", _LIMIT)] if near else []
    title = named(device, say("memory over time"), several)
    return Chart("memory", title, caption, element("div", legend(used), *drawn), wide=True, topic="memory")


def _peak(memory: Memory, operator: Message | None) -> Message | None:
    """Say how high the peak is, when it is, and of which parts it is the sum."""
    if memory.peak_bytes is None:
        return None
    at = say("peak {peak}", peak=mib(memory.peak_bytes))
    if memory.peak_at_ns is not None:
        at = say("peak {peak} at {time}", peak=mib(memory.peak_bytes), time=ns(memory.peak_at_ns))
    step = None if memory.peak_step is None else say("in step {step}", step=memory.peak_step)
    return chain(at, step, operator, by=", ")


def _highest(curves: Sequence[MemoryCurve]) -> int:
    return max(1, *(max(column) for c in curves for column in (c.allocated, c.reserved, c.process) if column))


def _layers(memory: Memory, curve: MemoryCurve) -> list[tuple[str, Message, list[int]]]:
    """Return what the areas are, from the bottom up: they add up to what is allocated.

    Where rows are missing it is not known what was there before them: then there is one.
    """
    allocated = [max(value, 0) for value in curve.allocated]
    if memory.split == "cannot_tell":
        return [("all", _ALL, allocated)]
    before = [max(whole - sum(parts), 0) for whole, *parts in zip(allocated, *curve.classes.values(), strict=True)]
    found = {_BEFORE: before, **curve.classes}
    return [(name, words, found[name]) for name, words in LAYERS.items() if any(found.get(name, ()))]


class _Plot:
    """One drawing of a curve at a width, in pixels; ``top``: bytes at its upper edge."""

    def __init__(self, width: int, top: int, curve: MemoryCurve) -> None:
        self.left, self.right, self.base = _LEFT, width - _RIGHT, _HEIGHT - _BOTTOM
        self.top, self.curve = top, curve
        self.start, self.end = curve.start_ns, curve.start_ns + curve.slice_ns * len(curve.allocated)

    def x(self, time: int) -> float:
        """Return where a time is."""
        return self.left + (self.right - self.left) * (time - self.start) / (self.end - self.start)

    def y(self, value: float) -> float:
        """Return where so many bytes are."""
        return self.base - (self.base - _TOP) * value / self.top

    def drawn(
        self, memory: Memory, layers: Sequence[tuple[str, Message, list[int]]], *, hover: bool, limit: bool
    ) -> Iterator[Markup]:
        """Yield the areas, lines and labels; ``hover``: with what each slice is; ``limit``: with the device's HBM."""
        yield rect(self.left, _TOP, self.right - self.left, self.base - _TOP, "plot-ground")
        step, unit, name = _byte_tick(self.top)
        for n in range(int(self.top / step) + 1):
            at = self.y(n * step)
            yield element("path", d=f"M {self.left} {rounded(at)} H {self.right}", class_="grid")
            label = f"{n * step / unit:g} {name}" if n else "0"
            yield element("text", label, x=self.left - 6, y=at + _SIZE / 3, class_="plot-text end")
        xs = [self.x(self.start + self.curve.slice_ns * i) for i in range(len(self.curve.allocated) + 1)]
        yield from _areas(xs, layers, self.y, self.base)
        for field in _LINES:
            yield from _line(xs, getattr(self.curve, field), self.y, f"m-{field}")
        if limit and memory.hbm_bytes is not None:
            yield element("path", d=f"M {self.left} {rounded(self.y(memory.hbm_bytes))} H {self.right}",
                          class_="line m-hbm")  # fmt: skip
        yield from self._times(timed=memory.timed)
        yield from self._steps(memory)
        yield from self._marked(memory)
        if hover:
            yield from self._hovered(xs, layers, timed=memory.timed)

    def _times(self, *, timed: bool) -> Iterator[Markup]:
        least = (self.end - self.start) * _TICK / (self.right - self.left)
        step, unit, name = _time_tick(least, max(abs(self.start), abs(self.end)))
        unit, name = (unit, name) if timed else (1, "")
        for n in range(-(-self.start // step), self.end // step + 1):
            at = self.x(n * step)
            yield element("path", d=f"M {rounded(at)} {self.base} v 4", class_="tick")
            label = f"{n * step / unit:g} {name}".rstrip()
            if at + width_of(label, _SIZE) / 2 <= self.right + _RIGHT:
                yield element("text", label, x=at, y=self.base + _ROW, class_="plot-text middle")

    def _steps(self, memory: Memory) -> Iterator[Markup]:
        """Mark where steps begin, and name those that have room."""
        free = last = 0.0
        for step in memory.steps:
            at = self.x(max(step.start_ns, self.start))
            if at > self.right or at < last + _APART:
                continue
            last = at
            yield element("path", d=f"M {rounded(at)} {_TOP} V {self.base}", class_="step-mark")
            label = plain(say("step {step}", step=step.step))
            if at >= free and at + width_of(label, _SIZE) <= self.right + _RIGHT:
                yield element("text", label, x=at, y=self.base + 2 * _ROW + 3, class_="plot-text")
                free = at + width_of(label, _SIZE) + _SIZE

    def _marked(self, memory: Memory) -> Iterator[Markup]:
        """Mark the peak."""
        if memory.peak_bytes is None:
            return
        slice_ = self.curve.allocated.index(max(self.curve.allocated))  # which has it, where nothing has times
        time = self.start + self.curve.slice_ns * slice_ if memory.peak_at_ns is None else memory.peak_at_ns
        at, high = self.x(time), self.y(memory.peak_bytes)
        yield element("path", d=f"M {rounded(at)} {_TOP - 4} V {self.base}", class_="peak-line")
        yield element("circle", cx=at, cy=high, r=4.5, class_="peak-mark")
        label = plain(say("peak {peak}", peak=mib(memory.peak_bytes)))
        side = "end" if at > (self.left + self.right) / 2 else ""
        yield element(
            "text", label, x=at - 4 if side else at + 4, y=_TOP - 8, class_=f"plot-text strong {side}".rstrip()
        )

    def _hovered(
        self, xs: Sequence[float], layers: Sequence[tuple[str, Message, list[int]]], *, timed: bool
    ) -> Iterator[Markup]:
        """Say what each slice is where the pointer rests on it."""
        for i, (left, right) in enumerate(pairwise(xs)):
            start, allocated = self.start + self.curve.slice_ns * i, mib(max(self.curve.allocated[i], 0))
            told = [say("from {start}: {allocated} allocated", start=ns(start), allocated=allocated)
                    if timed else say("{allocated} allocated", allocated=allocated)]  # fmt: skip
            if len(layers) > 1:
                told += [
                    say("{what}: {size}", what=words, size=mib(values[i])) for _, words, values in layers if values[i]
                ]
            for field, words in _LINES.items():
                if (value := getattr(self.curve, field)[i]) >= 0:
                    told.append(say("{what}: {size}", what=words, size=mib(value)))
            tip = element("title", plain(chain(*told, by=" · ")))
            yield rect(left, _TOP, right - left, self.base - _TOP, "hit", tip)


def _areas(
    xs: Sequence[float], layers: Sequence[tuple[str, Message, list[int]]], y: _Scale, base: float
) -> Iterator[Markup]:
    """Yield areas one upon the other: the highest first, so that those below cover what is not theirs."""
    total = [0] * (len(xs) - 1)
    drawn = []
    for name, _, values in layers:
        total = [low + value for low, value in zip(total, values, strict=True)]
        path = "".join(f"V {rounded(y(value))} H {rounded(xs[end])}" for value, _, end in _runs(total))
        drawn.append(
            element("path", d=f"M {rounded(xs[0])} {rounded(base)} {path} V {rounded(base)} Z", class_=f"area m-{name}")
        )
    yield from reversed(drawn)


def _line(xs: Sequence[float], values: Sequence[int], y: _Scale, class_: str) -> Iterator[Markup]:
    """Yield a line of steps, with gaps where nothing is known."""
    path, known = "", False
    for value, first, end in _runs(values):
        if value >= 0:
            path += f"{'V' if known else f'M {rounded(xs[first])}'} {rounded(y(value))} H {rounded(xs[end])}"
        known = value >= 0
    if path:
        yield element("path", d=path, class_=f"line {class_}")


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield stretches of equal values: the value, and from which place up to which."""
    at = 0
    for value, some in groupby(values):
        first, at = at, at + sum(1 for _ in some)
        yield value, first, at


def _byte_tick(top: int) -> tuple[float, int, str]:
    """Return a step of 1, 2 or 5 for about five labels, with the unit that they are in."""
    name, unit = next((n, 1 << shift) for n, shift in _BYTES if top >= 1 << shift or not shift)
    return _round(top / 5 / unit) * unit, unit, name


_BYTES: Final = (("MiB", 20), ("KiB", 10), ("B", 0))
_TIMES: Final = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"), (1, "ns"))


def _time_tick(least: float, largest: int) -> tuple[int, int, str]:
    """Return a step of 1, 2 or 5 that is not below a time, and the unit of the largest label."""
    unit, name = next((unit, name) for unit, name in _TIMES if largest >= unit or unit == 1)
    return max(round(_round(least)), 1), unit, name


def _round(least: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is no less."""
    power: float = 10.0 ** int(f"{least:e}".partition("e")[2])
    return next((n * power for n in (1, 2, 5) if n * power >= least), 10 * power)


# -- At the peak: modules, their lines of code, their operators, each as wide as its blocks are large.


def _at_the_peak(device: Device, memory: Memory, peak: int, several: bool) -> Chart:
    """Draw the peak as its parts: what was there before, and the blocks by module, line and operator."""
    named_rows = [row for row in memory.alive if row.operator or row.where or row.module]
    rest = [row for row in memory.alive if not (row.operator or row.where or row.module)]
    levels = [level for level in ("module", "where") if any(getattr(row, level) for row in named_rows)]
    by_class = "module" not in levels
    of_rows: dict[_Key, list[MemoryBlock]] = {}
    for block in memory.blocks if memory.timed else ():
        of_rows.setdefault(_key(block), []).append(block)
    slabs = list(_nested(named_rows, ["class_", *levels] if by_class else levels, of_rows))
    if rest:
        n = sum(row.count for row in rest)
        words = plain(say_n("{n} more block", "{n} more blocks", n))
        slabs.append(Slab(words, sum(row.bytes for row in rest), colour="m-unknown"))
    before = peak - sum(row.bytes for row in memory.alive)
    if before > 0:
        note = None
        if memory.freed_bytes:
            note = say("{before}, less {freed} given back since", before=mib(memory.before_bytes or 0),
                       freed=mib(memory.freed_bytes))  # fmt: skip
        slabs.insert(0, Slab(plain(LAYERS[_BEFORE]), before, note=note, colour=f"m-{_BEFORE}"))
    root = Slab(plain(say("allocated at the peak: {peak}", peak=mib(peak))), peak, tuple(slabs), colour="m-all")
    order = {"class_": say("what for"), "module": say("module"), "where": say("line of code")}
    shown = [order[level] for level in (["class_"] if by_class else []) + levels]
    caption = chain(
        peak_sum(memory),
        say("top to bottom: {levels}, operator; as wide as its blocks are large", levels=series(shown)),
        say("colours are those of the curve"),
    )
    title = named(device, say("what was allocated at the peak"), several)
    return Chart(
        "memory-peak", title, caption, icicle(root, plain(chain(title, caption)), mib), wide=True, topic="memory"
    )


#: What tells rows of blocks apart: their class, operator, line and module.
_Key = tuple[str, str | None, str | None, str | None]


def _key(row: Alive | MemoryBlock) -> _Key:
    return row.class_, row.operator, row.where, row.module


def _nested(
    rows: Sequence[Alive], levels: Sequence[str], blocks: Mapping[_Key, Sequence[MemoryBlock]]
) -> Iterator[Slab]:
    """Yield rows under what they agree in, level by level, the largest first; at last their operators."""
    if not levels:
        for row in sorted(rows, key=lambda row: -row.bytes):
            operator = row.operator or plain(say("no operator recorded"))
            yield Slab(operator, row.bytes, note=_told(row, blocks.get(_key(row), ())), colour=f"m-{row.class_}")
        return
    groups: dict[str | None, list[Alive]] = {}
    for row in rows:
        groups.setdefault(getattr(row, levels[0]), []).append(row)
    for name, some in sorted(groups.items(), key=lambda one: -sum(row.bytes for row in one[1])):
        called: Parameter = _UNKNOWN[levels[0]] if name is None else LAYERS[name] if levels[0] == "class_" else name
        inside = tuple(_nested(some, levels[1:], blocks))
        count = say_n("{n} block", "{n} blocks", sum(row.count for row in some))
        yield Slab(plain(called), sum(row.bytes for row in some), inside, note=count,
                   colour=f"m-{name}" if levels[0] == "class_" else "m-all")  # fmt: skip


_UNKNOWN: Final = {"module": say("no module recorded"), "where": say("no line recorded")}


def _told(row: Alive, blocks: Sequence[MemoryBlock]) -> Message:
    """Say what is known of some blocks: how many, what for, the line, and how long the largest lived."""
    count = say_n("{n} block", "{n} blocks", row.count)
    what = say("{what} (inferred)", what=LAYERS[row.class_]) if row.inferred else LAYERS[row.class_]
    line = say("{line}", line=row.where) if row.where else None
    if not blocks:
        return chain(count, what, line, by=" · ")
    first = blocks[0]  # the largest
    lived = say("since {start}, not given back", start=ns(first.start_ns))
    if first.end_ns is not None:
        lived = say("from {start} to {end}, {time}", start=ns(first.start_ns), end=ns(first.end_ns),
                    time=ns(first.end_ns - first.start_ns))  # fmt: skip
    if row.count > 1:
        lived = say("the largest, {size}: {lived}", size=mib(first.bytes), lived=lived)
    return chain(count, what, line, lived, by=" · ")


# -- Every rank's curve on one scale, the highest first.


def _ranks(found: Sequence[tuple[Device, Memory, MemoryCurve]]) -> Chart:
    """Draw the curves of several devices on the same scale."""
    shown = found[:_RANKS]
    top = _highest([curve for _, _, curve in shown])
    used: dict[str, Message] = {}
    panels = []
    for device, memory, curve in shown:
        layers = _layers(memory, curve)
        used |= {name: words for name, words, _ in layers}
        xs = [WIDTH * i / len(curve.allocated) for i in range(len(curve.allocated) + 1)]
        drawn = [*_areas(xs, layers, lambda value: _SMALL * (1 - value / top), _SMALL)]
        for field in _LINES:
            drawn += _line(xs, getattr(curve, field), lambda value: _SMALL * (1 - value / top), f"m-{field}")
        name = chain(say("{device}", device=device_name(device)), _peak(memory, None), by=": ")
        panels.append(element("div", element("p", plain(name), class_="panel-name"),
                              stretched(_SMALL, *drawn, class_="curve", said=plain(name))))  # fmt: skip
    highest, lowest = (memory.peak_bytes or 0 for _, memory, _ in (found[0], found[-1]))
    caption = chain(
        say("{device} has the highest peak, {peak}, {more} more than the lowest", device=device_name(found[0][0]),
            peak=mib(highest), more=mib(highest - lowest)),
        say("all on one scale, up to {top}, each from the beginning of its recording to the end", top=mib(top)),
        say("{shown} of {all} devices, the highest first", shown=len(shown), all=len(found))
        if len(shown) < len(found) else None,
    )  # fmt: skip
    words = [(f"m-{name}", said) for name, said in (LAYERS | {"all": _ALL}).items() if name in used]
    words += [(f"m-{name}", said) for name, said in _LINES.items()
              if any(max(getattr(c, name), default=-1) >= 0 for _, _, c in shown)]  # fmt: skip
    body = element("div", legend(words), element("div", *panels, class_="multiples"))
    return Chart("memory-ranks", say("memory of every rank over time"), caption, body, wide=True, topic="memory")

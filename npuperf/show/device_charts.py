"""Charts of one device: where its time goes, what would save some, what it did and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from npuperf.base.messages import Message, chain, ns, say, say_n, series, share
from npuperf.base.units import short_names
from npuperf.model.result import Blame, CoreTime, Device, Operator, Result, Step, TypicalPhase, WhatIf
from npuperf.show.matrix import grouped
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import (
    STEP_PARTS,
    WIDTH,
    BarRow,
    Chart,
    Piece,
    Slab,
    bars,
    chosen,
    edges,
    element,
    icicle,
    legend,
    mean,
    of_device,
    parts_of_step,
    plain,
    rect,
    rounded,
    sentences,
    stretched,
    title,
    words_of_part,
)
from npuperf.show.words import CAUSE, WORDS, sure

#: So many steps are drawn singly, and so many rows of a list.
_STEPS, _OPERATORS, _PHASES, _CHANGES = 120, 15, 20, 12
#: How high a picture of steps is drawn, and how much of a column's room is left between two.
_HEIGHT, _GAP = 240, 0.12
_MARK: Final = 7
_BOUND_COLOUR: Final = {
    "host": "c-host_wait",
    "compute": "c-compute",
    "communication": "c-communication",
    "unknown": "c-unattributed",
}
#: What kernels run on, by the core type of the files.
_CORE_COLOUR: Final = {
    "AI_CORE": "c-cube",
    "AI_VECTOR_CORE": "c-vector",
    "MIX_AIC": "c-mixed",
    "MIX_AIV": "c-mixed",
    "AI_CPU": "c-ai_cpu",
    "COMMUNICATION": "c-communication",
}
#: A tenth less of a resource is what elasticities are about.
_TENTH: Final = 0.1


def partition(result: Result, where: Whereabouts) -> Chart | None:
    """Draw where the device's time goes, part by part."""
    device = chosen(result)
    if device is None or not device.window.span_ns:
        return None
    window = device.window
    found = zip(STEP_PARTS, parts_of_step(window), strict=True)
    rows, at = [], 0
    for (field, words, colour), time in found:
        if time:
            name = plain(words_of_part(device, field, words))
            value = plain(say("{time} ({share})", time=ns(time), share=share(time / window.span_ns)))
            rows.append(BarRow(name, value, (Piece(at, at + time, colour),)))
        at += time
    caption = sentences(
        say_n("{n} step, {span} in all", "{n} steps, {span} in all", device.step_count, span=ns(window.span_ns))
        if device.step_count
        else say("{span} in all", span=ns(window.span_ns)),
        say("the parts add up to it: each begins where the one above it ends"),
    )
    title_ = of_device(result, device, say("where the time goes"))
    return Chart("partition", title_, caption, bars(rows, 0, window.span_ns))


# --- steps ------------------------------------------------------------------------------------------------------------


def steps(result: Result, where: Whereabouts) -> Chart | None:
    """Draw every step as a column of its parts; of many steps the means of neighbours."""
    device = chosen(result)
    if device is None or len(device.whole_steps) < 2:
        return None
    found = device.whole_steps
    groups = [found[low:high] for low, high in grouped(len(found), _STEPS).bounds]
    odd = {step.step for step in device.typical_step.odd} if device.typical_step else set()
    sums = [[sum(column) for column in zip(*(parts_of_step(s.partition) for s in g), strict=True)] for g in groups]
    means = [[part / len(g) for part in parts] for g, parts in zip(groups, sums, strict=True)]
    highest = max(map(sum, means))
    if not highest:
        return None
    columns = [
        _column(i, len(groups), device, group, parts, highest, odd, where)
        for i, (group, parts) in enumerate(zip(groups, means, strict=True))
    ]
    spans = [step.partition.span_ns for step in found]
    caption = sentences(
        say_n("{n} step: {least} to {most}, mean {mean}", "{n} steps: {least} to {most}, mean {mean}", len(found),
              least=ns(min(spans)), most=ns(max(spans)), mean=ns(mean(spans))),
        say_n("each column is {n} step", "each column is the mean of {n} steps", len(groups[0]))
        if len(groups[0]) > 1 else None,
        say("marked below: unusual steps ({steps})", steps=series(str(s.step) for s in found if s.step in odd))
        if odd else None,
    )  # fmt: skip
    said = plain(chain(say("columns of steps, each split into its parts"), caption))
    picture = stretched(_HEIGHT + _MARK, *columns, class_="columns", said=said)
    used = [(colour, plain(words_of_part(device, field, words)))
            for i, (field, words, colour) in enumerate(STEP_PARTS) if any(parts[i] for parts in means)]  # fmt: skip
    axis = _axes(picture, plain(ns(highest)), _step_name(groups[0]), _step_name(groups[-1]))
    body = element("div", legend(used), axis, class_="steps-chart")
    return Chart("steps", of_device(result, device, say("steps and their parts")), caption, body, wide=True)


def _step_name(group: Sequence[Step]) -> str:
    first, last = group[0].step, group[-1].step
    return plain(say("step {step}", step=str(first) if first == last else f"{first}–{last}"))


def _column(
    i: int,
    of: int,
    device: Device,
    group: Sequence[Step],
    parts: Sequence[float],
    highest: float,
    odd: set[int],
    where: Whereabouts,
) -> Markup:
    """Return a step as a column, from the bottom up; parts meet at rounded heights, so that none is lost."""
    left, width = WIDTH * (i + _GAP / 2) / of, WIDTH * (1 - _GAP) / of
    at = edges([round(part) for part in parts], round(highest), 100 * _HEIGHT)
    blocks = [
        rect(left, _HEIGHT - high / 100, width, (high - low) / 100, f"fill {colour}")
        for (_, _, colour), low, high in zip(STEP_PARTS, at, at[1:], strict=False)
        if high > low
    ]
    marked = [rect(left, _HEIGHT + 2, width, _MARK - 2, "odd")] if any(s.step in odd for s in group) else []
    said = [
        say("{name}: {time}", name=words_of_part(device, field, words), time=ns(round(part)))
        for (field, words, _), part in zip(STEP_PARTS, parts, strict=True)
        if part
    ]
    whole = say("{name}: {time}", name=_step_name(group), time=ns(round(sum(parts))))
    go = where.row("steps", (device, group[0])) if len(group) == 1 else ""
    return element("g", title(plain(chain(whole, *said, by=" · "))), *blocks, *marked,
                   class_="step", data_go=go or None)  # fmt: skip


def _axes(picture: Markup, most: str, first: str, last: str) -> Markup:
    """Put the scale beside a picture: text that is not stretched with it."""
    up = element("div", element("span", most), element("span", "0"), class_="axis-y", aria_hidden="true")
    along = element("div", element("span", first), element("span", last), class_="axis-x", aria_hidden="true")
    return element("div", up, picture, along, class_="axes")


# --- what would save time ---------------------------------------------------------------------------------------------


def what_if(result: Result, where: Whereabouts) -> Chart | None:
    """Draw what changes would save: from nothing to the least, and as an interval to the most."""
    alone = len(result.devices) == 1
    found = [w for w in result.what_if if w.gain_ns_per_step and w.gain_pct_interval and (alone or w.device is None)]
    told = [w for w in found if w.asked or (w.gain_pct or 0) > 0]
    shown = sorted(told, key=lambda w: (not w.asked, -(w.gain_pct_interval or (0, 0))[1]))[:_CHANGES]
    if not shown:
        return None
    most = max((w.gain_pct_interval or (0.0, 0.0))[1] for w in shown)
    least = min(0.0, *((w.gain_pct_interval or (0.0, 0.0))[0] for w in shown))
    span = say("a step") if shown[0].gain_per == "step" else say("the window")
    caption = sentences(
        say("saved, in % of {span}: what is filled is saved at least, the line ends at the most", span=span),
        say("the longest ends at {share}", share=share(most / 100)),
        _without_gain(len(found) - len(told)),
    )
    rows = [_change_row(w) for w in shown]
    # What comes to nothing on every line has no scale: any does.
    return Chart("what-if", say("what if (replayed)"), caption, bars(rows, least, most or 1.0))


def _without_gain(n: int) -> Message | None:
    return say_n("{n} other change saves nothing", "{n} other changes save nothing", n) if n else None


def _change_row(w: WhatIf) -> BarRow:
    low, high = w.gain_pct_interval or (0.0, 0.0)
    saved = say("saves {saved}", saved=ns(*(w.gain_ns_per_step or (0, 0))))
    name = w.title if w.title is not None else say("{change}", change=w.expr)
    note = chain(say("{change}", change=w.expr) if w.title is not None else None, saved, by=" · ")
    pieces = (Piece(0, low, "c-gain"), Piece(low, high, "c-gain", look="whisker"))
    return BarRow(plain(name), plain(share(low / 100, high / 100)), pieces if high > low else pieces[:1], plain(note))


def elasticity(result: Result, where: Whereabouts) -> Chart | None:
    """Draw how much shorter the whole gets with a tenth less of each resource."""
    found = result.verdict.elasticity
    if found is None:
        return None
    values = (
        (say("10 % less host time"), found.host, "c-host_wait"),
        (say("10 % less compute time"), found.compute, "c-compute"),
        (say("10 % less communication time"), found.communication, "c-communication"),
    )
    rows = [
        BarRow(plain(name), plain(say("saves {share}", share=share(_TENTH * value))), (Piece(0, value, colour),))
        for name, value, colour in values
    ]
    low, high = min(0.0, *(v for _, v, _ in values)), max(1.0, *(v for _, v, _ in values))
    caption = None
    if high == 1:
        caption = say("a bar over the whole width: the time shrinks as much as the resource does")
    title_ = say("how much depends on what: a tenth less of each")
    return Chart("elasticity", title_, caption, bars(rows, low, high))


# --- what it waited for, and what it did ------------------------------------------------------------------------------


def blame_icicle(result: Result, where: Whereabouts) -> Chart | None:
    """Draw waiting for the host by cause, by what the host did, by line of code: as wide as it is long."""
    device = chosen(result)
    if device is None or not device.blame:
        return None
    total = sum(piece.ns for piece in device.blame)
    if total <= 0:
        return None
    root = Slab(plain(say("waiting for the host, {time}", time=ns(total))), total, _causes(device, total, where))
    slowest = root.inside[0]
    part = share(slowest.ns / total)
    caption = sentences(
        say("top to bottom: cause, what the host did, line of code; as wide as it takes time"),
        say("most of it: {cause} ({share})", cause=slowest.name, share=part),
    )
    title_ = of_device(result, device, say("waiting for the host: what the host did"))
    return Chart("blame", title_, caption, icicle(root, plain(chain(title_, caption))), wide=True)


def _causes(device: Device, total: int, where: Whereabouts) -> tuple[Slab, ...]:
    groups: dict[str, list[Blame]] = {}
    for piece in device.blame:
        groups.setdefault(piece.cause, []).append(piece)
    slabs = [
        Slab(plain(CAUSE.get(cause, cause)), sum(b.ns for b in lines), tuple(_doings(device, lines, where)))
        for cause, lines in groups.items()
    ]
    return tuple(sorted(slabs, key=lambda slab: -slab.ns))


def _doings(device: Device, lines: Sequence[Blame], where: Whereabouts) -> Iterator[Slab]:
    by_name: dict[str, list[Blame]] = {}
    for piece in lines:
        by_name.setdefault(piece.name, []).append(piece)
    for name, pieces in sorted(by_name.items(), key=lambda item: -sum(b.ns for b in item[1])):
        code = sorted((p for p in pieces if p.where), key=lambda p: -p.ns)
        inside = tuple(Slab(p.where or "", p.ns) for p in code)
        go = where.row("blame", (device, pieces[0]))
        yield Slab(plain(WORDS.get(name, name)), sum(p.ns for p in pieces), inside, go)


def operators(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the operators that take most of the time."""
    total = sum(operator.total_ns for operator in result.operators)
    if total <= 0:
        return None
    ranked = sorted(result.operators, key=lambda operator: -operator.total_ns)
    shown = ranked[:_OPERATORS]
    names = short_names(o.type for o in shown)
    rows = [_operator_row(o, names[o.type], where) for o in shown]
    part = share(sum(o.total_ns for o in shown) / total)
    caption = say_n(
        "{shown} of {n} operator: {part} of all operators' time, {time}",
        "{shown} of {n} operators: {part} of all operators' time, {time}",
        len(ranked), shown=len(shown), part=part, time=ns(total),
    )  # fmt: skip
    if len(shown) == len(ranked):
        caption = say_n("{n} operator, {time}", "all {n} operators, together {time}", len(ranked), time=ns(total))
    title_ = say("operators, in % of all operators' time")
    colours = dict.fromkeys(_core_colour(o.core) for o in shown)
    body = element(
        "div", legend((c, plain(_CORE_WORDS[c])) for c in colours), bars(rows, 0, shown[0].total_ns, many=True)
    )
    return Chart("operators", title_, caption, body, wide=True)


_CORE_WORDS: Final = {
    "c-cube": say("cube cores"),
    "c-vector": say("vector cores"),
    "c-mixed": say("cube and vector cores"),
    "c-ai_cpu": say("AI CPU"),
    "c-communication": say("communication"),
    "c-unattributed": say("other or unknown"),
}


def _core_colour(core: str | None) -> str:
    return _CORE_COLOUR.get(core or "", "c-unattributed")


def _operator_row(operator: Operator, name: str, where: Whereabouts) -> BarRow:
    value = say("{time} ({share})", time=ns(operator.total_ns), share=share(operator.share))
    count = say_n("{n} kernel", "{n} kernels", operator.count)
    core = say("{core}", core=operator.core) if operator.core else None
    code = operator.where or operator.torch_op
    note = chain(core, count, say("{code}", code=code) if code else None, by=" · ")
    piece = Piece(0, operator.total_ns, _core_colour(operator.core))
    return BarRow(name, plain(value), (piece,), plain(note), where.row("operators", (operator,)))


# --- the typical step -------------------------------------------------------------------------------------------------


def typical_step(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the phases that all usual steps have, one below the other, where they lie in the step."""
    device = chosen(result)
    typical = device.typical_step if device else None
    if device is None or typical is None or not typical.phases:
        return None
    longest = sorted(typical.phases, key=lambda p: -p.length.median_ns)[:_PHASES]
    shown = [p for p in typical.phases if p in longest]
    basis = "inferred" if any(p.verdict.basis == "inferred" for p in device.phases) else "measured"
    end = max(typical.length.median_ns, *(p.end.max_ns for p in shown))
    length = typical.length
    caption = sentences(
        say("{alike} of {steps} steps are alike: {median}, {least} to {most}", alike=typical.steps,
            steps=device.step_count, median=ns(length.median_ns), least=ns(length.min_ns), most=ns(length.max_ns)),
        say("a bar lies where its phase lies in the step; its line: where it ends in the fastest and the slowest one"),
        say("the longest {shown} of {all} phases", shown=len(shown), all=len(typical.phases))
        if len(shown) < len(typical.phases) else None,
    )  # fmt: skip
    rows = [_phase_row(p, basis, length.median_ns) for p in shown]
    title_ = of_device(result, device, say("the typical step, phase by phase"))
    return Chart("typical", title_, caption, bars(rows, 0, end))


def _phase_row(phase: TypicalPhase, basis: str, span: int) -> BarRow:
    bound = sure(plain(WORDS[phase.bound]), basis)
    name = say("{bound}", bound=bound)
    if phase.label is not None:
        name = say("{label}: {text}", label=bound, text=phase.label)
    part = share(phase.length.median_ns / span if span else None)
    value = say("{time} ({share})", time=ns(phase.length.median_ns), share=part)
    spread = phase.length
    note = say("{least} to {most}", least=ns(spread.min_ns), most=ns(spread.max_ns))
    pieces = [Piece(phase.start.median_ns, phase.end.median_ns, _BOUND_COLOUR[phase.bound])]
    if phase.end.max_ns > phase.end.min_ns:
        pieces.append(Piece(phase.end.min_ns, phase.end.max_ns, "", look="whisker"))
    return BarRow(plain(name), plain(value), tuple(pieces), plain(note) if spread.max_ns > spread.min_ns else "")


# -- How many of the cores are in use over time, one panel for each kind of them.

_CORES_CHART_HEIGHT: Final = 100


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
    picture = stretched(_CORES_CHART_HEIGHT, *_steps(side.slices, name), class_="curve", said=said)
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
    heights = [rounded(_CORES_CHART_HEIGHT * (1 - min(max(part, 0.0), 1.0))) for part in slices]
    line = " ".join(f"V {y} H {rounded(width * (i + 1))}" for i, y in enumerate(heights))
    return [
        element("path", d=f"M 0 {_CORES_CHART_HEIGHT} {line} V {_CORES_CHART_HEIGHT} Z", class_=f"area c-{name}"),
        element("path", d=f"M 0 {heights[0]} {line}", class_=f"line c-{name}"),
    ]

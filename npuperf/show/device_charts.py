"""Charts of one device: where its time goes, what would save some, what it did and what it waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import fsum
from typing import Final

from markupsafe import Markup

from npuperf.base.messages import Message, chain, ns, say, say_n, series, share
from npuperf.base.units import short_names
from npuperf.model.result import Device, HostRun, Result, Step, WhatIf
from npuperf.show.analysis_tables import NAMED
from npuperf.show.job_text import outliers_first, roots_by_gain
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
    edges,
    element,
    icicle,
    legend,
    parts_of_step,
    plain,
    rect,
    rounded,
    stretched,
    words_of_part,
)
from npuperf.show.words import CAUSE, WORDS, at_most, named, sure

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
_CORE_WORDS: Final = {
    "c-cube": say("cube cores"),
    "c-vector": say("vector cores"),
    "c-mixed": say("cube and vector cores"),
    "c-ai_cpu": say("AI CPU"),
    "c-communication": say("communication"),
    "c-unattributed": say("other or unknown"),
}
#: Processes without a device that are drawn.
_RUNS: Final = 4
#: A tenth less of a resource is what elasticities are about.
_TENTH: Final = 0.1


def device_charts(result: Result, where: Whereabouts) -> Iterator[Chart | None]:
    """Yield the charts of a device: of the only one, or of the one to look at first, of the first cause of waiting."""
    cluster, devices = result.cluster, result.devices
    device = devices[0] if devices else None
    if device is not None and cluster is not None and cluster.ranks:
        kinds = ("rank", "stage", "link", "group")
        causes = (r.ranks[0] for r in roots_by_gain(cluster) if r.kind in kinds and r.ranks)
        rank = next(causes, outliers_first(cluster)[0].rank)
        device = next((d for d in devices if d.rank == rank), device)
    several = len(devices) > 1
    if device is not None:
        yield _partition(device, several)
        yield _steps(device, several, where)
        yield _typical_step(device, several)
    scale = _saved(result)  # they stand side by side
    yield _elasticity(result, scale)
    yield _what_if(result, scale)
    if device is not None:
        yield _blame(device, several, where)
    yield from _host_work(result.hosts)
    yield _operators(result, where)
    if device is not None:
        yield _cores_over_time(device, several)


def _partition(device: Device, several: bool) -> Chart | None:
    """Draw where the device's time goes, part by part."""
    if not device.window.span_ns:
        return None
    window = device.window
    rows, at = [], 0
    for (field, words, colour), time in zip(STEP_PARTS, parts_of_step(window), strict=True):
        if time:
            value = say("{time} ({share})", time=ns(time), share=share(time / window.span_ns))
            rows.append(BarRow(words_of_part(device, field, words), value, [Piece(at, at + time, colour)]))
        at += time
    caption = chain(
        say_n("{n} step, {span} in all", "{n} steps, {span} in all", device.step_count, span=ns(window.span_ns))
        if device.step_count
        else say("{span} in all", span=ns(window.span_ns)),
        say("the parts add up to it: each begins where the one above it ends"),
    )
    title = named(device, say("where the time goes"), several)
    return Chart("partition", title, caption, bars(rows, 0, window.span_ns))


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(device: Device, several: bool, where: Whereabouts) -> Chart | None:
    """Draw every step as a column of its parts, from the bottom up; of many steps the means of neighbours."""
    found = device.whole_steps
    if len(found) < 2:
        return None
    groups = [found[low:high] for low, high in grouped(len(found), _STEPS).bounds]
    odd = {step.step for step in device.typical_step.odd} if device.typical_step else set()
    sums = [[sum(column) for column in zip(*(parts_of_step(s.partition) for s in g), strict=True)] for g in groups]
    means = [[part / len(g) for part in parts] for g, parts in zip(groups, sums, strict=True)]
    highest = max(map(fsum, means))
    if not highest:
        return None
    columns = []
    for i, (group, parts) in enumerate(zip(groups, means, strict=True)):
        left, width = WIDTH * (i + _GAP / 2) / len(groups), WIDTH * (1 - _GAP) / len(groups)
        at = edges([round(part) for part in parts], round(highest), 100 * _HEIGHT)  # rounded, so that none is lost
        blocks = [
            rect(left, _HEIGHT - high / 100, width, (high - low) / 100, f"fill {colour}")
            for (_, _, colour), low, high in zip(STEP_PARTS, at, at[1:], strict=False)
            if high > low
        ]
        if any(step.step in odd for step in group):
            blocks.append(rect(left, _HEIGHT + 2, width, _MARK - 2, "odd"))
        told = [say("{name}: {time}", name=_step_name(group), time=ns(round(fsum(parts))))]
        told += [
            say("{name}: {time}", name=words_of_part(device, field, words), time=ns(round(part)))
            for (field, words, _), part in zip(STEP_PARTS, parts, strict=True)
            if part
        ]
        go = where.row(NAMED["steps"], (device, group[0])) if len(group) == 1 else ""
        tip = element("title", plain(chain(*told, by=" · ")))
        columns.append(element("g", tip, *blocks, class_="step", data_go=go or None))
    spans = [step.partition.span_ns for step in found]
    caption = chain(
        say_n("{n} step: {least} to {most}, mean {mean}", "{n} steps: {least} to {most}, mean {mean}", len(found),
              least=ns(min(spans)), most=ns(max(spans)), mean=ns(sum(spans) / len(spans))),
        say_n("each column is {n} step", "each column is the mean of {n} steps", len(groups[0]))
        if len(groups[0]) > 1 else None,
        say("marked below: unusual steps ({steps})", steps=series(str(s.step) for s in found if s.step in odd))
        if odd else None,
    )  # fmt: skip
    said = plain(chain(say("columns of steps, each split into its parts"), caption))
    picture = stretched(_HEIGHT + _MARK, *columns, class_="columns", said=said)
    used = [(colour, words_of_part(device, field, words))
            for i, (field, words, colour) in enumerate(STEP_PARTS) if any(parts[i] for parts in means)]  # fmt: skip
    axes = _axes(picture, plain(ns(highest)), "0", _step_name(groups[0]), _step_name(groups[-1]))
    body = element("div", legend(used), axes, class_="steps-chart")
    return Chart("steps", named(device, say("steps and their parts"), several), caption, body, wide=True)


def _step_name(group: Sequence[Step]) -> str:
    first, last = group[0].step, group[-1].step
    return plain(say("step {step}", step=str(first) if first == last else f"{first}–{last}"))


def _axes(picture: Markup, most: str, least: str, first: str, last: str) -> Markup:
    """Put the scale beside a picture: text that is not stretched with it."""
    up = element("div", element("span", most), element("span", least), class_="axis-y", aria_hidden="true")
    along = element("div", element("span", first), element("span", last), class_="axis-x", aria_hidden="true")
    return element("div", up, picture, along, class_="axes")


# --- what would save time ---------------------------------------------------------------------------------------------


#: A what-if with what it saves: ns per step, and percent, least and most.
_Change = tuple[WhatIf, tuple[int, int], tuple[float, float]]


def _changes(result: Result) -> tuple[list[_Change], int]:
    """Return the changes that are drawn, those that were asked for first, and how many save nothing."""
    alone = len(result.devices) == 1
    found = [
        (w, w.gain_ns_per_step, w.gain_pct_interval)
        for w in result.what_if
        if w.gain_ns_per_step and w.gain_pct_interval and (alone or w.device is None)
    ]
    gaining = [one for one in found if one[0].asked or (one[0].gain_pct or 0) > 0]
    shown = sorted(gaining, key=lambda one: (not one[0].asked, -one[2][1]))[:_CHANGES]
    return shown, len(found) - len(gaining)


def _saved(result: Result) -> tuple[float, float]:
    """Return the one scale of what changes and a tenth less of each resource save, in percent: from where to where."""
    told = result.verdict.elasticity
    tenths = [100 * _TENTH * value for value in (told.host, told.compute, told.communication)] if told else []
    ends = [end for _, _, pct in _changes(result)[0] for end in pct]
    return min(0.0, *tenths, *ends, 0.0), max(0.0, *tenths, *ends, 100 * _TENTH if told else 0.0)


def _what_if(result: Result, scale: tuple[float, float]) -> Chart | None:
    """Draw what changes would save: from nothing to the least, and as an interval to the most."""
    shown, without = _changes(result)
    if not shown:
        return None
    most = max(pct[1] for _, _, pct in shown)
    span = say("a step") if shown[0][0].gain_per == "step" else say("the window")
    caption = chain(
        say("saved, in % of {span}: what is filled is saved at least, the line ends at the most", span=span),
        say("the longest ends at {share}", share=share(most / 100)),
        say_n("{n} other change saves nothing", "{n} other changes save nothing", without) if without else None,
    )
    rows = []
    for w, gain_ns, (low, high) in shown:
        change, saved = say("{change}", change=w.expr), say("saves {saved}", saved=at_most(*gain_ns))
        pieces = [Piece(0, low, "c-gain")]
        if high > low:
            pieces.append(Piece(low, high, "c-gain", look="whisker"))
        note = saved if w.title is None else chain(change, saved, by=" · ")
        rows.append(BarRow(w.title or change, share(low / 100, high / 100), pieces, note))
    # What comes to nothing on every line has no scale: any does.
    return Chart("what-if", say("what if (replayed)"), caption, bars(rows, scale[0], scale[1] or 1.0))


def _elasticity(result: Result, scale: tuple[float, float]) -> Chart | None:
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
        BarRow(name, say("saves {share}", share=share(_TENTH * value)), [Piece(0, 100 * _TENTH * value, colour)])
        for name, value, colour in values
    ]
    whole = share((scale[1] - scale[0]) / 100)
    caption = say("the whole width is {share}", share=whole)
    if _changes(result)[0]:
        caption = say("the whole width is {share}, here and in the chart of changes", share=whole)
    title = say("how much depends on what: a tenth less of each")
    return Chart("elasticity", title, caption, bars(rows, *scale))


# --- what it waited for, and what it did ------------------------------------------------------------------------------


def _blame(device: Device, several: bool, where: Whereabouts) -> Chart | None:
    """Draw waiting for the host by cause, by what the host did, by line of code: as wide as it is long."""
    whole = say("waiting for the host, {time}", time=ns(sum(piece.ns for piece in device.blame)))
    title = named(device, say("waiting for the host: what the host did"), several)
    done = ((p.cause, p.name, p.ns, p.where, where.row(NAMED["blame"], (device, p))) for p in device.blame)
    return _done("blame", title, whole, done)


def _host_work(runs: Sequence[HostRun]) -> Iterator[Chart | None]:
    """Draw what the host did where there is no device, of each of the first processes."""
    for run in runs[:_RUNS]:
        title = say("what the host did, each by itself")
        if run.rank is not None and len(runs) > 1:
            title = say("rank {rank}: {title}", rank=run.rank, title=title)
        whole = say_n("{n} step, {span} in all", "{n} steps, {span} in all", len(run.steps), span=ns(run.span_ns))
        yield _done("host_work", title, whole, ((w.cause, w.name, w.self_ns, w.where, "") for w in run.work))


def _done(
    id_: str, title: Message, whole: Message, done: Iterable[tuple[str, str, int, str | None, str]]
) -> Chart | None:
    """Draw what the host did: of each cause, name, time (ns), line of code, and where it is in the timeline."""
    causes: dict[str, dict[str, list[tuple[int, str | None, str]]]] = {}
    for cause, name, time, line, go in done:
        causes.setdefault(cause, {}).setdefault(name, []).append((time, line, go))
    slabs = []
    for cause, doings in causes.items():
        inside = []
        for name, pieces in doings.items():
            lines = tuple(Slab(line, time) for time, line, _ in sorted(pieces, key=lambda p: -p[0]) if line)
            inside.append(Slab(plain(WORDS.get(name, name)), sum(time for time, *_ in pieces), lines, pieces[0][2]))
        inside.sort(key=lambda slab: -slab.size)
        slabs.append(Slab(plain(CAUSE.get(cause, cause)), sum(slab.size for slab in inside), tuple(inside)))
    slabs.sort(key=lambda slab: -slab.size)
    total = sum(slab.size for slab in slabs)
    if total <= 0:
        return None
    root = Slab(plain(whole), total, tuple(slabs))
    caption = chain(
        say("top to bottom: cause, what the host did, line of code; as wide as it takes time"),
        say("most of it: {cause} ({share})", cause=slabs[0].name, share=share(slabs[0].size / total)),
    )
    return Chart(id_, title, caption, icicle(root, plain(chain(title, caption))), wide=True)


def _operators(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the operators that take most of the time."""
    total = sum(operator.total_ns for operator in result.window_operators)
    if total <= 0:
        return None
    ranked = sorted(result.window_operators, key=lambda operator: -operator.total_ns)
    shown = ranked[:_OPERATORS]
    names = short_names(o.type for o in shown)
    colours = [_CORE_COLOUR.get(o.core or "", "c-unattributed") for o in shown]
    rows = []
    for o, colour in zip(shown, colours, strict=True):
        code = o.where or o.torch_op
        note = chain(say("{core}", core=o.core) if o.core else None, say_n("{n} kernel", "{n} kernels", o.count),
                     say("{code}", code=code) if code else None, by=" · ")  # fmt: skip
        value = say("{time} ({share})", time=ns(o.total_ns), share=share(o.share))
        rows.append(
            BarRow(names[o.type], value, [Piece(0, o.total_ns, colour)], note, where.row(NAMED["operators"], (o, None)))
        )
    part = share(sum(o.total_ns for o in shown) / total)
    caption = say_n(
        "{shown} of {n} operator: {part} of all operators' time, {time}",
        "{shown} of {n} operators: {part} of all operators' time, {time}",
        len(ranked), shown=len(shown), part=part, time=ns(total),
    )  # fmt: skip
    if len(shown) == len(ranked):
        caption = say_n("{n} operator, {time}", "all {n} operators, together {time}", len(ranked), time=ns(total))
    title = say("operators, in % of all operators' time")
    used = legend((colour, _CORE_WORDS[colour]) for colour in dict.fromkeys(colours))
    body = element("div", used, bars(rows, 0, shown[0].total_ns, many=True))
    return Chart("operators", title, caption, body, wide=True)


# --- the typical step -------------------------------------------------------------------------------------------------


def _typical_step(device: Device, several: bool) -> Chart | None:
    """Draw the phases that all usual steps have, one below the other, where they lie in the step."""
    typical = device.typical_step
    if typical is None or not typical.phases:
        return None
    longest = sorted(typical.phases, key=lambda p: -p.length.median_ns)[:_PHASES]
    shown = [p for p in typical.phases if p in longest]
    basis = "inferred" if any(p.verdict.basis == "inferred" for p in device.phases) else "measured"
    end = max(typical.length.median_ns, *(p.end.max_ns for p in shown))
    length = typical.length
    caption = chain(
        say("{alike} of {steps} steps are alike: {median}, {least} to {most}", alike=typical.steps,
            steps=device.step_count, median=ns(length.median_ns), least=ns(length.min_ns), most=ns(length.max_ns)),
        say("a bar lies where its phase lies in the step; its line: where it ends in the fastest and the slowest one"),
        say("the longest {shown} of {all} phases", shown=len(shown), all=len(typical.phases))
        if len(shown) < len(typical.phases) else None,
    )  # fmt: skip
    rows = []
    for p in shown:
        bound, lasts = sure(plain(WORDS[p.bound]), basis), p.length
        name = say("{bound}", bound=bound)
        if p.label is not None:
            name = say("{label}: {text}", label=bound, text=p.label)
        part = share(lasts.median_ns / length.median_ns if length.median_ns else None)
        pieces = [Piece(p.start.median_ns, p.end.median_ns, _BOUND_COLOUR[p.bound])]
        if p.end.max_ns > p.end.min_ns:
            pieces.append(Piece(p.end.min_ns, p.end.max_ns, "", look="whisker"))
        note = say("{least} to {most}", least=ns(lasts.min_ns), most=ns(lasts.max_ns))
        value = say("{time} ({share})", time=ns(lasts.median_ns), share=part)
        rows.append(BarRow(name, value, pieces, note if lasts.max_ns > lasts.min_ns else None))
    title = named(device, say("the typical step, phase by phase"), several)
    return Chart("typical", title, caption, bars(rows, 0, end))


# -- How many of the cores are in use over time, one panel for each kind of them.

_CORES_CHART_HEIGHT: Final = 100


def _cores_over_time(device: Device, several: bool) -> Chart | None:
    """Draw the share of cores in use, slice by slice of the window: a line of steps, and what is below it."""
    cores, use = device.cores, device.cores.over_time
    if use is None:
        return None
    found = (
        ("cube", say("cube cores"), use.cube, cores.cube),
        ("vector", say("vector cores"), use.vector, cores.vector),
    )
    sides = [(name, words, side, sums) for name, words, side, sums in found if side is not None and side.slices]
    if not sides:
        return None
    caption = chain(
        say_n("mean share of cores that blocks hold, in {n} slice of the time", "mean share of cores that blocks hold, "
              "in {n} equal slices of the time", len(sides[0][2].slices)),
        *(say("{side}: {used} of the window", side=words, used=share(sums.occupancy_span if sums else None))
          for _, words, _, sums in sides),
    )  # fmt: skip
    high, panels = _CORES_CHART_HEIGHT, []
    for name, words, side, _ in sides:
        said = plain(say("{side} in use over time: {least} to {most}", side=words, least=share(min(side.slices)),
                         most=share(max(side.slices))))  # fmt: skip
        width = WIDTH / len(side.slices)
        heights = [rounded(high * (1 - min(max(part, 0.0), 1.0))) for part in side.slices]
        line = " ".join(f"V {y} H {rounded(width * (i + 1))}" for i, y in enumerate(heights))
        drawn = [
            element("path", d=f"M 0 {high} {line} V {high} Z", class_=f"area c-{name}"),
            element("path", d=f"M 0 {heights[0]} {line}", class_=f"line c-{name}"),
        ]
        picture = stretched(high, *drawn, class_="curve", said=said)
        heading = say_n("{side} ({n} core)", "{side} ({n} cores)", side.cores, side=words)
        axes = _axes(picture, "100 %", "0 %", "0", plain(ns(device.window.span_ns)))
        panels.append(element("div", element("p", plain(heading), class_="panel-name"), axes))
    title = named(device, say("cores in use over time"), several)
    return Chart("cores", title, caption, element("div", *panels), wide=True)

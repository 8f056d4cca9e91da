"""Text on cores: how many are used over time, who waits for them, what limits and SuperKernels change, gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from npuperf.documents.analysis import (
    CoresOverTime,
    CoreSplit,
    Device,
    Gate,
    Result,
    RuleCheck,
    SuperKernelCheck,
    SuperKernelScope,
)
from npuperf.render.terminal import grid, keep_numbers_whole, section
from npuperf.render.words import GATE, device_name
from npuperf.units import duration, interval, percent, percents, plural

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_GATE_STYLE: Final = {"pass": "green", "fail": "bold red", "cannot_tell": "yellow"}
_HELD: Final = {"ok": ("ok", "dim"), "violated": ("!", "red"), "unknown": ("?", "yellow")}
_ROWS: Final = 5
_LINES: Final = 3


def gate_lines(result: Result) -> Iterator[RenderableType]:
    """Show what every gate said, and the kernels above a limit."""
    for gate in result.gates:
        yield Text.assemble(
            "gate ", (GATE[gate.status], _GATE_STYLE[gate.status]), f"  {gate.expr}: {gate.reason or ''}"
        )
        yield from _over(gate)


def _over(gate: Gate) -> Iterator[RenderableType]:
    if not gate.over:
        return
    table = grid(
        ("stream", "right"), ("type", "left"), ("core", "left"), ("n", "right"), ("cube", "right"), ("vector", "right"),
        ("likely", "left"),
    )  # fmt: skip
    for row in gate.over[:_ROWS]:
        table.add_row(
            str(row.stream), row.type or row.name, row.core, str(row.count), str(row.cube), str(row.vector), row.reason
        )
    yield _indented(keep_numbers_whole(table, wrap=True))
    if len(gate.over) > _ROWS:
        text = f"{_ROWS} of {len(gate.over)} kinds of kernels; --format csv --table gates has all"
        yield Text(text, style="dim")


def core_lines(result: Result) -> Iterator[RenderableType]:
    """Say how many cores are used, draw it over time, and say which streams wait for each other's cores."""
    for d in result.devices[:1] if result.input.kind != "kineto" else ():
        which = "" if len(result.devices) == 1 else f" ({device_name(d)})"
        title, over = f"cores used{which}: ", d.cores.over_time
        for name, side, time in (
            ("cube", d.cores.cube, over and over.cube),
            ("vector", d.cores.vector, over and over.vector),
        ):
            if side:
                text = f"{name:<6} {percent(side.occupancy_busy)} used, {percent(side.occupancy_span)} in all"
                picture = "".join(_LEVELS[_level(x)] for x in time.slices) if time else ""
                yield Text.assemble((title, "bold"), f"{text:<36}", (picture, "cyan"), no_wrap=True)
                title = " " * len(title)
        if title.strip():
            yield Text.assemble((title, "bold"), d.cores.reason or "no core figures")
        if over:
            yield from _streams(over, max(len(d.steps), 1))


def _streams(use: CoresOverTime, steps: int) -> Iterator[RenderableType]:
    """Name overlap of streams and their waits for each other's cores."""
    if not use.pairs:
        return
    for pair in use.pairs[:1]:
        one, other = pair.streams
        over = f", {duration(pair.over_ns)} of it asking for more cores than there are" if pair.over_ns else ""
        text = f"streams {one} and {other} run side by side for {percent(pair.share)} of the shorter's time{over}"
        yield _indented(Text(text))
    for wait in use.contention[:2]:
        holders = " and ".join(map(str, wait.holders)) or "others"
        least, most = wait.least_ns // steps, wait.most_ns // steps
        how_long = interval(least, most)
        text = f"stream {wait.stream} waits for cores that stream {holders} holds: {how_long} per step"
        yield _indented(Text(f"{text}, {plural(wait.kernels, 'kernel')}", style="yellow"))
    if use.contention_reason:
        yield _indented(Text(use.contention_reason, style="dim"))


def _indented(text: RenderableType) -> RenderableType:
    return Padding(text, (0, 0, 0, 2))


def _level(share: float) -> int:
    """Return the height of a bar; anything but nothing is seen."""
    return max(round(share * (len(_LEVELS) - 1)), 1 if share > 0 else 0)


def scope_sections(result: Result, full: bool) -> Iterator[RenderableType]:
    """Show core limits (asked for, or all with ``full``), SuperKernels and their verification."""
    several = len(result.devices) > 1
    for d in result.devices:
        name = f"{device_name(d)}: " if several else ""
        for split in d.core_splits:
            if split.asked or full:
                yield _split(d, split, name, full)
        said: set[str] = set()
        for scope in d.super_kernels if full else ():
            yield _scope(scope, name, said)
            said |= {rule.detail for rule in scope.rules}
        if d.super_kernel_checks:
            yield section(f"{name}SuperKernels, and the kernels they replaced", _checks(d.super_kernel_checks))


def _split(device: Device, split: CoreSplit, name: str, full: bool) -> RenderableType:
    limits = "; ".join(f"stream {x.stream}: {x.cube},{x.vector}" for x in split.limits)
    title = f"{name}core limits {limits} ({'asked' if split.asked else 'proposed'}, replayed)"
    if split.gain_ns_per_step is None or split.gain_pct is None or split.span_ns is None:
        return section(title, Text(f"cannot tell: {split.reason}", style="yellow"))
    per = "step" if device.steps else "window"
    steps = max(len(device.steps), 1)
    now = device.partition.span_ns // steps
    least, most = (share / 100 for share in split.gain_pct)
    if most < 0:
        effect = f"costs {interval(*(-ns for ns in reversed(split.gain_ns_per_step)))} ({percents(-most, -least)})"
    else:
        effect = f"saves {interval(*split.gain_ns_per_step)} ({percents(least, most)})"
    lines: list[RenderableType] = [
        Text(f"{per} {duration(now)} → {interval(split.span_ns[0] // steps, split.span_ns[1] // steps)}, {effect}"),
        Text(f"for {split.mode}", style="dim"),
    ]
    if split.tried and split.bound_ns_per_step is None:
        text = f"{split.tried} splits tried on the first {split.searched_kernels} kernels, the best replayed on all"
        lines.append(Text(text, style="dim"))
    elif split.bound_ns_per_step is not None:
        text = f"of {split.tried} splits tried none saves more than {duration(split.bound_ns_per_step)} at its best"
        lines.append(Text(text, style="dim"))
    if split.slower:
        lines.append(_slower(split))
    lines += _rules(split.rules, full)
    return Group(section(title, Group(*lines)), *([Text(), _code(split.code)] if split.code else []))


def _slower(split: CoreSplit) -> RenderableType:
    table = grid(("slower", "left"), ("stream", "right"), ("n", "right"), ("ms now", "right"), ("by", "left"))
    for row in split.slower[:_ROWS]:
        factor = f"{row.least:.2f}" if row.least == row.most else f"{row.least:.2f}–{row.most:.2f}"
        table.add_row(row.type or "N/A", str(row.stream), str(row.count), f"{row.total_ns / 1e6:.3f}", f"×{factor}")
    if len(split.slower) <= _ROWS:
        return keep_numbers_whole(table)
    more = Text(f"{_ROWS} of {len(split.slower)} types; --format json has all", style="dim")
    return Group(keep_numbers_whole(table), more)


def _rules(rules: Sequence[RuleCheck], full: bool) -> list[RenderableType]:
    """Show violated rules, then those that the profile cannot tell; the others with ``full``."""
    lines: list[RenderableType] = []
    for status in ("violated", "unknown", "ok"):
        sign, style = _HELD[status]
        rows = [r for r in rules if r.status == status]
        if status == "ok" and not full:
            continue
        lines += [Text.assemble((f"{sign:<2} ", style), f"{r.rule}: {r.detail}") for r in rows]
    return lines


def _scope(scope: SuperKernelScope, name: str, said: Set[str]) -> RenderableType:
    """Show a proposed scope; of its rules those that were not ``said`` of one before."""
    title = f"{name}SuperKernel {scope.name}: {plural(scope.kernels, 'kernel')} ×{scope.count} on stream {scope.stream}"
    lines: list[RenderableType] = [
        Text(
            f"{duration(scope.gain_ns_per_step[1])} of gaps per step to save at most: {duration(scope.gaps_ns)} "
            f"between its kernels beside {duration(scope.dur_ns)} in them; kernel heads cannot be measured and are not "
            "counted; published cases include slower ones"
        ),
        Text(_launch_text(scope), style="dim"),
    ]
    if len(scope.segments) > 1:
        for segment in scope.segments[:_ROWS]:
            stop = f", then {segment.stopped_by}" if segment.stopped_by else ""
            text = f"segment {segment.first} … {segment.last}: {plural(segment.kernels, 'kernel')}, "
            lines.append(Text(f"{text}{duration(segment.gaps_ns)} of gaps{stop}"))
        if len(scope.segments) > _ROWS:
            lines.append(Text(f"{_ROWS} of {len(scope.segments)} segments; --format json has all", style="dim"))
    lines += [Text(f"{o.key}={o.value}: {o.reason}", style="dim") for o in scope.options]
    lines += _rules([rule for rule in scope.rules if rule.detail not in said], True)
    if any(rule.detail in said for rule in scope.rules):
        lines.append(Text("the other rules as above", style="dim"))
    return Group(section(title, Group(*lines)), Text(), _code(scope.code))


def _code(code: str) -> RenderableType:
    """Show code that can be pasted: at the margin, and no line of it is wrapped."""
    return Text(code.rstrip(), no_wrap=True, overflow="ignore")


def _launch_text(scope: SuperKernelScope) -> str:
    if scope.cube is None:
        return "how many cores it launches with is not known: Block Dim is not recorded"
    return f"launches with {scope.cube} cube and {scope.vector} vector cores, as its largest kernels need"


def _checks(checks: Sequence[SuperKernelCheck]) -> RenderableType:
    table = grid(
        ("scope", "left"), ("verdict", "left"), ("n", "right"), ("before", "right"), ("after", "right"),
        ("saved", "right"), ("cores", "right"), ("expected", "right"), ("why", "left"),
    )  # fmt: skip
    for c in checks:
        table.add_row(
            c.scope,
            c.verdict + ("?" if c.basis == "inferred" else ""),
            str(c.count),
            duration(c.before_ns),
            duration(c.after_ns if c.count else None),
            duration(c.saved_ns),
            "–" if c.block_dim is None else str(c.block_dim),
            "–" if c.block_expected is None else str(c.block_expected),
            c.reason,
        )
    lines: list[RenderableType] = [keep_numbers_whole(table, wrap=True)]
    messages = list(dict.fromkeys(line for c in checks for line in c.log))
    lines += [Text(f"plog {line}", style="yellow") for line in messages[:_LINES]]
    if len(messages) > _LINES:
        lines.append(Text(f"{_LINES} of {len(messages)} messages; --format json has all", style="dim"))
    return Group(*lines)

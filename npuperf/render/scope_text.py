"""Text on core limits, SuperKernels, and SuperKernels beside the kernels they replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from npuperf.documents.analysis import CoreSplit, Device, Result, RuleCheck, Segment, SuperKernelCheck, SuperKernelScope
from npuperf.messages import Message, chain, factor, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.core_tables import SUPER_KERNEL_CHECKS
from npuperf.render.language import text, words
from npuperf.render.tables import Column, Table, filled, how_many
from npuperf.render.terminal import Fitted, code, hanging, rows_of, section
from npuperf.render.words import named

_HELD: Final = {"ok": ("ok", "dim"), "violated": ("!", "red"), "unknown": ("?", "yellow")}
_ROWS, _LINES = 5, 3


def scope_sections(result: Result, view: View) -> Iterator[RenderableType]:
    """Show core limits (asked for, or all with ``full``), SuperKernels and their verification."""
    several = len(result.devices) > 1
    for device in result.devices:
        for split in device.core_splits:
            if split.asked or view.full:
                yield _split(device, split, several, view)
        said: set[Message] = set()
        for scope in device.super_kernels if view.full else ():
            yield _scope(device, scope, several, said, view)
            said |= {rule.detail for rule in scope.rules}
        if device.super_kernel_checks:
            yield _checks(device, several, view)


def _split(device: Device, split: CoreSplit, several: bool, view: View) -> RenderableType:
    limits = (
        say("stream {stream}: {cube},{vector}", stream=x.stream, cube=x.cube, vector=x.vector) for x in split.limits
    )
    title = (
        say("core limits {limits} (asked, replayed)", limits=series(limits, by="; "))
        if split.asked
        else say("core limits {limits} (proposed, replayed)", limits=series(limits, by="; "))
    )
    heading = text(named(device, title, several))
    effect = _effect(device, split)
    if effect is None:
        return section(heading, Text(words("cannot tell: {reason}", reason=split.reason), style="yellow"))
    lines: list[RenderableType] = [Text(text(effect)), Text(words("for {mode}", mode=split.mode), style="dim")]
    searched = _searched(split)
    lines += [Text(text(searched), style="dim")] if searched else []
    lines += _slower(split, view) if split.slower else []
    lines += _rules(split.rules, view.full)
    return Group(section(heading, *lines), *([Text(), code(split.code)] if split.code else []))


def _effect(device: Device, split: CoreSplit) -> Message | None:
    """Say what limits change, per step; None where that is not known."""
    if split.gain_ns_per_step is None or split.gain_pct is None or split.span_ns is None:
        return None
    steps = max(len(device.steps), 1)
    least, most = (percent / 100 for percent in split.gain_pct)
    now, then = ns(device.partition.span_ns // steps), ns(*(span // steps for span in split.span_ns))
    change = (
        say("step {now} → {then}", now=now, then=then)
        if device.steps
        else say("window {now} → {then}", now=now, then=then)
    )
    if most < 0:
        low, high = split.gain_ns_per_step
        effect = say("costs {time} ({share})", time=ns(-high, -low), share=share(-most, -least))
    else:
        effect = say("saves {time} ({share})", time=ns(*split.gain_ns_per_step), share=share(least, most))
    return chain(change, effect, by=", ")


def _searched(split: CoreSplit) -> Message | None:
    """Say how far the search for a split reached."""
    if split.bound_ns_per_step is not None:
        return say(
            "of {tried} splits tried, none saves more than {most} at its best",
            tried=split.tried,
            most=ns(split.bound_ns_per_step),
        )
    if not split.tried:
        return None
    return say(
        "{tried} splits tried on the first {kernels} kernels, the best replayed on all",
        tried=split.tried,
        kernels=split.searched_kernels,
    )


_SLOWER: Final = Table(
    "",
    say("slower"),
    lambda _: (),
    (
        Column("type", say("slower"), get=lambda k: k.type or "N/A", weight=0),
        Column("stream", say("stream"), "id"),
        Column("count", say("n"), "id"),
        Column("total_ns", say("ms now"), "duration"),
        Column(
            "by", say("by"), get=lambda k: "×" + "–".join(dict.fromkeys((str(factor(k.least)), str(factor(k.most)))))
        ),
    ),
)


def _slower(split: CoreSplit, view: View) -> list[RenderableType]:
    found = filled(_SLOWER, [(kernel,) for kernel in split.slower], rows_of(view, _ROWS))
    if len(found.rows) == found.total:
        return [Fitted(found)]
    shown = how_many(len(found.rows), found.total)
    return [Fitted(found), Text(words("{shown} types; --format json has all", shown=shown), style="dim")]


def _rules(rules: Sequence[RuleCheck], full: bool) -> list[RenderableType]:
    """Show violated rules, then those that the profile cannot tell; the others with ``full``."""
    lines: list[RenderableType] = []
    for status in ("violated", "unknown", "ok") if full else ("violated", "unknown"):
        sign, style = _HELD[status]
        found = (rule for rule in rules if rule.status == status)
        lines += [
            hanging(Text(f"{sign:<2}", style), Text(words("{rule}: {detail}", rule=r.rule, detail=r.detail)))
            for r in found
        ]
    return lines


def _scope(device: Device, scope: SuperKernelScope, several: bool, said: Set[Message], view: View) -> RenderableType:
    """Show a proposed scope; of its rules those that were not ``said`` of one before."""
    kernels = say_n("{n} kernel", "{n} kernels", scope.kernels)
    title = say(
        "SuperKernel {name}: {kernels} ×{count} on stream {stream}",
        name=scope.name,
        kernels=kernels,
        count=scope.count,
        stream=scope.stream,
    )
    worth = words(
        "saves at most {most} of gaps per step: {gaps} between its kernels beside {time} in them; kernel heads "
        "cannot be measured and are not counted; published cases include slower ones",
        most=ns(scope.gain_ns_per_step[1]),
        gaps=ns(scope.gaps_ns),
        time=ns(scope.dur_ns),
    )
    lines: list[RenderableType] = [Text(worth), Text(text(_launched(scope)), style="dim")]
    lines += _segments(scope.segments, view) if len(scope.segments) > 1 else []
    lines += [
        Text(words("{option}: {reason}", option=f"{o.key}={o.value}", reason=o.reason), style="dim")
        for o in scope.options
    ]
    lines += _rules([rule for rule in scope.rules if rule.detail not in said], full=True)
    if any(rule.detail in said for rule in scope.rules):
        lines.append(Text(words("the other rules as above"), style="dim"))
    return Group(section(text(named(device, title, several)), *lines), Text(), code(scope.code))


def _segments(segments: list[Segment], view: View) -> Iterator[Text]:
    shown = segments[: rows_of(view, _ROWS)]
    for segment in shown:
        held = say(
            "segment {first} … {last}: {kernels}, {gaps} of gaps",
            first=segment.first,
            last=segment.last,
            kernels=say_n("{n} kernel", "{n} kernels", segment.kernels),
            gaps=ns(segment.gaps_ns),
        )
        stop = segment.stopped_by and say("then {reason}", reason=segment.stopped_by)
        yield Text(text(chain(held, stop, by=", ")))
    if len(shown) < len(segments):
        few = how_many(len(shown), len(segments))
        yield Text(words("{shown} segments; --format json has all", shown=few), style="dim")


def _launched(scope: SuperKernelScope) -> Message:
    if scope.cube is None:
        return say("how many cores it launches with is not known: Block Dim is not recorded")
    return say(
        "launches with {cube} cube and {vector} vector cores, as its largest kernels need",
        cube=scope.cube,
        vector=scope.vector,
    )


def _judged(_: object, check: SuperKernelCheck) -> str:
    return check.compared.verdict + ("?" if check.basis == "inferred" else "")


_COMPACT: Final = SUPER_KERNEL_CHECKS.only(
    "scope",
    Column("verdict", say("verdict"), "word", _judged, 0),
    Column("count", say("n"), "id", lambda _, c: c.compared.count),
    "before_ns",
    "after_ns",
    "saved_ns",
    "block_dim",
    "block_expected",
    "reason",
)


def _checks(device: Device, several: bool, view: View) -> RenderableType:
    checks = device.super_kernel_checks
    lines: list[RenderableType] = [Fitted(filled(_COMPACT, [(device, check) for check in checks], view.top))]
    log = list(dict.fromkeys(line for check in checks for line in check.log))
    shown = log[: rows_of(view, _LINES)]
    lines += [Text(words("plog {line}", line=line), style="yellow") for line in shown]
    if len(shown) < len(log):
        few = how_many(len(shown), len(log))
        lines.append(Text(words("{shown} messages; --format json has all", shown=few), style="dim"))
    return section(text(named(device, SUPER_KERNEL_CHECKS.title, several)), *lines)

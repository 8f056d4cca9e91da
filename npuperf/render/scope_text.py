"""Text on core limits, SuperKernels, and SuperKernels beside the kernels they replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from rich.console import Group, RenderableType

from npuperf.documents.analysis import (
    CoreSplit,
    Device,
    Result,
    RuleCheck,
    Segment,
    SlowerKernel,
    SuperKernelScope,
)  # fmt: skip
from npuperf.messages import NOTHING, Message, chain, factor, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.analysis_tables import SUPER_KERNEL_CHECKS
from npuperf.render.tables import Column, Table, each, filled
from npuperf.render.terminal import Fitted, Text, code, cut, hanging, line, rows_of, section
from npuperf.render.words import named, sure

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
    listed = series(limits, by="; ")
    title = say("core limits {limits} (proposed, replayed)", limits=listed)
    if split.asked:
        title = say("core limits {limits} (requested, replayed)", limits=listed)
    heading = named(device, title, several)
    effect = _effect(device, split)
    if effect is None:
        return section(heading, line(say("cannot tell: {reason}", reason=split.reason), "yellow"))
    lines: list[RenderableType] = [line(effect), line(say("for {mode}", mode=split.mode), "dim")]
    searched = _searched(split)
    lines += [line(searched, "dim")] if searched else []
    lines += _slower(split, view) if split.slower else []
    lines += _rules(split.rules, view.full)
    return Group(section(heading, *lines), *([Text(), code(split.code)] if split.code else []))


def _effect(device: Device, split: CoreSplit) -> Message | None:
    """Say what limits change, per step; None where that is not known."""
    if split.gain_ns_per_step is None or split.gain_pct is None or split.span_ns is None:
        return None
    steps = max(device.step_count, 1)
    least, most = (percent / 100 for percent in split.gain_pct)
    now, then = ns(device.window.span_ns // steps), ns(*(span // steps for span in split.span_ns))
    change = say("step {now} → {then}", now=now, then=then)
    if not device.steps:
        change = say("window {now} → {then}", now=now, then=then)
    if most < 0:
        low, high = split.gain_ns_per_step
        effect = say("costs {time} ({share})", time=ns(-high, -low), share=share(-most, -least))
    else:
        effect = say("saves {time} ({share})", time=ns(*split.gain_ns_per_step), share=share(least, most))
    return chain(change, effect, by=", ")


def _searched(split: CoreSplit) -> Message | None:
    """Say how far the search for a split reached."""
    if split.bound_ns_per_step is not None:
        return say("of {tried} splits tried, none saves more than {most} at its best",
                   tried=split.tried, most=ns(split.bound_ns_per_step))  # fmt: skip
    if not split.tried:
        return None
    return say("{tried} splits tried on the first {kernels} kernels; the best one was replayed on all "
"kernels",
               tried=split.tried, kernels=split.searched_kernels)  # fmt: skip


def _by(kernel: SlowerKernel) -> str:
    return "×" + "–".join(dict.fromkeys((str(factor(kernel.least)), str(factor(kernel.most)))))


# fmt: off
_SLOWER: Final = Table("", NOTHING, each(), (
    Column("type", say("slower"), get=lambda k: k.type or "N/A", weight=0),
    Column("stream", say("stream"), "id"),
    Column("count", say("n"), "id"),
    Column("total_ns", say("ms now"), "duration"),
    Column("by", say("by"), get=_by),
))
# fmt: on


def _slower(split: CoreSplit, view: View) -> list[RenderableType]:
    found = filled(_SLOWER, [(kernel,) for kernel in split.slower], rows_of(view, _ROWS))
    more = cut(len(found.rows), found.total, lambda few: say("{shown} types; --format json shows all", shown=few))
    return [Fitted(found), *more]


def _rules(rules: Sequence[RuleCheck], full: bool) -> list[RenderableType]:
    """Show violated rules, then those that the profile cannot tell; the others with ``full``."""
    lines: list[RenderableType] = []
    for status in ("violated", "unknown", "ok") if full else ("violated", "unknown"):
        sign, style = _HELD[status]
        details = (say("{rule}: {detail}", rule=r.rule, detail=r.detail) for r in rules if r.status == status)
        lines += [hanging(Text(f"{sign:<2}", style), line(detail)) for detail in details]
    return lines


def _scope(device: Device, scope: SuperKernelScope, several: bool, said: Set[Message], view: View) -> RenderableType:
    """Show a proposed scope; of its rules those that were not ``said`` of one before."""
    title = say(
        "SuperKernel {name}: {kernels} ×{count} on stream {stream}",
        name=scope.name, kernels=_kernels(scope), count=scope.count, stream=scope.stream,
    )  # fmt: skip
    worth = say(
        "saves at most {most} of gaps per step; each run has {gaps} between its kernels and "
"{time} in them; kernel heads cannot be measured and are not counted; in some published "
"cases a SuperKernel was slower",
        most=ns(scope.gain_ns_per_step[1]), gaps=ns(scope.gaps_ns), time=ns(scope.dur_ns),
    )  # fmt: skip
    options = (say("{option}: {reason}", option=f"{o.key}={o.value}", reason=o.reason) for o in scope.options)
    lines: list[RenderableType] = [line(worth), line(_launched(scope), "dim")]
    lines += _segments(scope.segments, view) if len(scope.segments) > 1 else []
    lines += [line(option, "dim") for option in options]
    lines += _rules([rule for rule in scope.rules if rule.detail not in said], full=True)
    if any(rule.detail in said for rule in scope.rules):
        lines.append(line(say("other rules: as above"), "dim"))
    return Group(section(named(device, title, several), *lines), Text(), code(scope.code))


def _segments(segments: list[Segment], view: View) -> Iterator[Text]:
    shown = segments[: rows_of(view, _ROWS)]
    for segment in shown:
        held = say(
            "segment {first} … {last}: {kernels}, gaps {gaps}",
            first=segment.first, last=segment.last, kernels=_kernels(segment), gaps=ns(segment.gaps_ns),
        )  # fmt: skip
        stop = segment.stopped_by and say("ended by {reason}", reason=segment.stopped_by)
        yield line(chain(held, stop, by=", "))
    yield from cut(len(shown), len(segments), lambda few: say("{shown} segments; --format json shows all", shown=few))


def _kernels(of: SuperKernelScope | Segment) -> Message:
    return say_n("{n} kernel", "{n} kernels", of.kernels)


def _launched(scope: SuperKernelScope) -> Message:
    if scope.cube is None:
        return say("the number of cores it launches with is unknown: kernels of it have no Block Dim")
    return say("launches with {cube} cube and {vector} vector cores, as its largest kernels need",
               cube=scope.cube, vector=scope.vector)  # fmt: skip


_COMPACT: Final = SUPER_KERNEL_CHECKS.only(
    "scope",
    Column("verdict", say("verdict"), "word", lambda _, c: sure(c.compared.verdict, c.basis), 0),
    Column("count", say("n"), "id", "compared.count"),
    *("before_ns", "after_ns", "saved_ns", "block_dim", "block_expected", "reason"),
)


def _checks(device: Device, several: bool, view: View) -> RenderableType:
    checks = device.super_kernel_checks
    lines: list[RenderableType] = [Fitted(filled(_COMPACT, [(device, check) for check in checks], view.top))]
    log = list(dict.fromkeys(words for check in checks for words in check.log))
    shown = log[: rows_of(view, _LINES)]
    lines += [line(say("plog {line}", line=words), "yellow") for words in shown]
    lines += cut(len(shown), len(log), lambda few: say("{shown} messages; --format json shows all", shown=few))
    return section(named(device, SUPER_KERNEL_CHECKS.title, several), *lines)

"""Text on what to do: modelled changes, findings, and what was read to know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table as RichTable

from npuperf.base.messages import NOTHING, Message, Parameter, chain, factor, ns, say, say_n, series
from npuperf.base.units import percents
from npuperf.model.result import CoreSplit, Device, Finding, Result, RuleCheck, SuperKernelScope, WhatIf
from npuperf.show.analysis_tables import NAMED
from npuperf.show.device_text import WORTH
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.tables import Column, Table, each, filled
from npuperf.show.terminal import Fitted, Text, code, cut, hanging, line, rows_of, section
from npuperf.show.words import WORDS, elsewhere, folded, gain, lost_lines, missed, named, saving, sure, thresholds_line

_SEVERITY: Final = {"high": "bold red", "medium": "yellow", "low": "dim"}
_CHANGES, _FINDINGS, _WARNINGS, _FEW = 2, 3, 3, 3


def _saved_share(w: WhatIf) -> str | None:
    if w.gain_pct_interval is None:
        return None
    low, high = (pct / 100 for pct in w.gain_pct_interval)
    return percents(low, high).removesuffix(" %")


def _worth(w: WhatIf) -> bool:
    """Tell whether a change is worth a line: what it saves, or what it may save where that cannot be told."""
    least, most = w.gain_pct_interval or (0.0, 0.0)
    return max(w.gain_pct or 0.0, most if not least else 0.0) >= 100 * WORTH


def _change(w: WhatIf) -> str:
    note = w.reason or w.title
    said = say("{change}: {note}", change=w.expr, note=note) if note is not None else say("{change}", change=w.expr)
    return text(said)


_COMPACT: Final = NAMED["what_if"].only(
    Column("rank", say("rank"), "id", lambda w: w.device if w.rank is None else w.rank, 0, quiet=True),
    Column("share", say("%"), get=_saved_share, weight=0),
    Column("saved", say("saved"), get=lambda w: w.gain_ns_per_step and str(ns(*w.gain_ns_per_step))),
    Column("change", say("change"), get=_change, weight=0),
)


def what_if_lines(result: Result, view: View, most: int = _CHANGES) -> Iterator[RenderableType]:
    """Show the most rewarding changes, of one device or of a job as a whole; the user's own stand below the verdict."""
    whole = len(result.devices) == 1
    standard = [w for w in result.what_if if not w.asked and _worth(w) and (whole or w.device is None)]
    rows = sorted(standard, key=lambda w: -(w.gain_pct or 0))[: rows_of(view, most)]
    if rows:
        about = chain(say("replayed"), missed(result), say("in % of span"))
        yield section(say("what if ({about})", about=about), Fitted(filled(_COMPACT, [(w,) for w in rows])))


def finding_lines(
    result: Result, view: View, most: int = _FINDINGS, *, brief: bool = False
) -> Iterator[RenderableType]:
    """Show the problems (so many, unless asked for more), each with what to do next, then what else was checked.

    ``brief``: a line each, without what to do.
    """
    if not result.findings:
        return
    problems = folded(result.findings, "problem")
    lines = RichTable.grid(padding=(0, 2, 0, 0))
    shown = problems[: rows_of(view, most)]
    for finding, devices in shown:
        what = line(chain(finding.title, elsewhere(devices), gain(finding)))
        lines.add_row(line(WORDS[finding.severity], _SEVERITY[finding.severity]), what)
        if brief:
            continue
        others = finding.alternatives
        steps = [finding.next, *others]
        if others and not view.full:  # the first of several remedies
            steps = [say_n("{step} ({n} more remedy: --full)", "{step} ({n} more remedies: --full)",
                           len(others), step=finding.next)]  # fmt: skip
        for step in steps:
            lines.add_row("", Text.assemble(("→ ", "bold green"), (text(step), "green")))
        if view.full:
            refute = finding.refute and say("not the cause if {condition}", condition=finding.refute)
            grounds = chain(refute, finding.source and say("source: {source}", source=finding.source))
            lines.add_row("", line(grounds, "dim"))
    for more in cut(len(shown), len(problems), lambda few: say("{shown} findings; --full shows all", shown=few)):
        lines.add_row("", more)
    for sign, said in _others(result.findings, brief, view.full):
        lines.add_row(line(sign, "dim"), line(said, "dim"))
    yield section(say("findings"), lines)


def _others(findings: list[Finding], brief: bool, full: bool) -> Iterator[tuple[Parameter, Message]]:
    """Say what cannot be told, and which checks found no problem on any device, and could tell on all."""
    doubtful = {f.rule for f in findings if f.status != "ok"}
    fine = {f.title for f in findings if f.status == "ok" and f.rule not in doubtful}
    if brief:
        unknown = {f.title for f in findings if f.status == "cannot_tell"}
        cannot = say_n("{n} check cannot tell", "{n} checks cannot tell", len(unknown)) if unknown else None
        none = say_n("{n} check found no problem", "{n} checks found no problem", len(fine)) if fine else None
        if unknown or fine:
            yield "?" if unknown else WORDS["ok"], say("{found} (--full shows more)", found=chain(cannot, none))
    elif full:
        for finding, _ in folded(findings, "cannot_tell"):
            yield "?", say("{check}: {needs}", check=finding.title, needs=finding.needs)
        if fine:
            yield WORDS["ok"], say("{checks}", checks=series(sorted(fine, key=text)))
    else:
        titles = list(dict.fromkeys(finding.title for finding, _ in folded(findings, "cannot_tell")))
        if titles:
            few = series(titles) if len(titles) <= _FEW else say_n("{n} check", "{n} checks", len(titles))
            yield "?", say("cannot tell: {checks} (--full shows what is missing)", checks=few)
        if fine:
            yield WORDS["ok"], say_n("{n} check without a problem (--full shows it)",
                                     "{n} checks without a problem (--full shows them)", len(fine))  # fmt: skip


def footer(result: Result, view: View, most: int = _WARNINGS) -> Iterator[RenderableType]:
    """Say what was read, lost and missing; all of it with ``full``."""
    source = result.input
    read = say_n("read {n} file", "read {n} files", len(source.files))
    lost = sum(x.rows for x in source.lost)
    minds = (*lost_lines(result), *source.warnings)
    count = len(minds) + len(source.missing)
    unsaid = not most and not view.full
    notes = say_n("{n} note: --full shows it", "{n} notes: --full shows them", count) if unsaid and count else None
    yield line(chain(read, say_n("{n} row or event lost", "{n} rows or events lost", lost), notes), "dim")
    if unsaid:
        return
    lines = RichTable.grid(padding=(0, 1, 0, 0))

    def add(sign: str, note: Parameter, style: str = "dim") -> None:
        lines.add_row(f"  {sign}", Text(text(note), style, overflow="fold"))

    for sign, told, style in (("!", minds, "yellow"), ("?", source.missing, "dim")):
        shown = told[: rows_of(view, most)]
        for note in shown:
            add(sign, note, style)
        if more := len(told) - len(shown):
            add("·", say_n("{n} more note; --full shows all", "{n} more notes; --full shows all", more))
    if vendor := _vendor_line(result, view.full):
        add("·", vendor)
    if result.suggestions:
        add("·", say_n("msprof itself suggests {n} thing: --table suggestions",
                       "msprof itself suggests {n} things: --table suggestions", len(result.suggestions)))  # fmt: skip
    if view.full:
        for name in source.files:
            add("·", name)
        add("·", thresholds_line(result))
    if lines.row_count:
        yield lines


def _vendor_line(result: Result, full: bool) -> Message | None:
    """Say once whether the exporter's own split of the steps agrees with ours."""
    checks = [v for d in result.devices for v in d.vendor]
    if not checks:
        return None
    differ = [v for v in checks if not v.agrees]
    v = (differ or checks)[0]
    where = say("the whole run") if v.step is None else say("step {step}", step=v.step)
    if not differ:
        said = say("step_trace_time, which counts from the first kernel on, agrees in {where}", where=where)
    elif len(differ) == 1:
        said = say("step_trace_time, which counts from the first kernel on, differs in {where}", where=where)
    else:
        said = say("step_trace_time, which counts from the first kernel on, differs in {where} ({some} of {all} do)",
                   where=where, some=len(differ), all=len(checks))  # fmt: skip
    return say("{line}: {why}", line=said, why=v.why) if full else said


# -- Text on core limits, SuperKernels, and SuperKernels beside the kernels they replaced.

_HELD: Final = {"violated": ("!", "red"), "unknown": ("?", "yellow"), "ok": ("ok", "dim")}
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


# fmt: off
_SLOWER: Final = Table("", NOTHING, each(), (
    Column("type", say("slower"), get=lambda k: k.type or "N/A", weight=0),
    Column("stream", say("stream"), "id"),
    Column("count", say("n"), "id"),
    Column("total_ns", say("ms now"), "duration"),
    Column("by", say("by"), get=lambda k: "×" + "–".join(dict.fromkeys((str(factor(k.least)), str(factor(k.most)))))),
))
# fmt: on


def _split(device: Device, split: CoreSplit, several: bool, view: View) -> RenderableType:
    """Show what limits per stream change, how far the search for them reached, and the code that sets them."""
    limits = (
        say("stream {stream}: {cube},{vector}", stream=x.stream, cube=x.cube, vector=x.vector) for x in split.limits
    )
    listed = series(limits, by="; ")
    title = say("core limits {limits} (proposed, replayed)", limits=listed)
    if split.asked:
        title = say("core limits {limits} (requested, replayed)", limits=listed)
    heading = named(device, title, several)
    if split.gain_ns_per_step is None or split.gain_pct is None or split.span_ns is None:
        return section(heading, line(say("cannot tell: {reason}", reason=split.reason), "yellow"))
    steps = max(device.step_count, 1)
    now, then = ns(device.window.span_ns // steps), ns(*(span // steps for span in split.span_ns))
    change = say("step {now} → {then}", now=now, then=then)
    if not device.steps:
        change = say("window {now} → {then}", now=now, then=then)
    effect = saving(split.gain_ns_per_step, split.gain_pct, per="step" if device.steps else "window")
    lines: list[RenderableType] = [line(chain(change, effect, by=", "))]
    lines.append(line(say("for {mode}", mode=split.mode), "dim"))
    if split.bound_ns_per_step is not None:
        lines.append(line(say("of {tried} splits tried, none saves more than {most} at its best",
                              tried=split.tried, most=ns(split.bound_ns_per_step)), "dim"))  # fmt: skip
    elif split.tried:
        lines.append(line(say("{tried} splits tried on the first {kernels} kernels; the best one was replayed on all "
                              "kernels", tried=split.tried, kernels=split.searched_kernels), "dim"))  # fmt: skip
    if split.slower:
        found = filled(_SLOWER, [(kernel,) for kernel in split.slower], rows_of(view, _ROWS))
        more = cut(len(found.rows), found.total, lambda few: say("{shown} types; --format json shows all", shown=few))
        lines += [Fitted(found), *more]
    lines += _rules(split.rules, view.full)
    return Group(section(heading, *lines), *([Text(), code(split.code)] if split.code else []))


def _rules(rules: Sequence[RuleCheck], full: bool) -> list[RenderableType]:
    """Show violated rules, then those that the profile cannot tell; the others with ``full``."""
    lines: list[RenderableType] = []
    for status, (sign, style) in _HELD.items():
        if full or status != "ok":
            details = (say("{rule}: {detail}", rule=r.rule, detail=r.detail) for r in rules if r.status == status)
            lines += [hanging(Text(f"{sign:<2}", style), line(detail)) for detail in details]
    return lines


def _scope(device: Device, scope: SuperKernelScope, several: bool, said: Set[Message], view: View) -> RenderableType:
    """Show a proposed scope; of its rules those that were not ``said`` of one before."""
    kernels = say_n("{n} kernel", "{n} kernels", scope.kernels)
    title = say("SuperKernel {name}: {kernels} ×{count} on stream {stream}",
                name=scope.name, kernels=kernels, count=scope.count, stream=scope.stream)  # fmt: skip
    worth = say(
        "saves at most {most} of gaps per step; each run has {gaps} between its kernels and "
        "{time} in them; kernel heads cannot be measured and are not counted; in some published "
        "cases a SuperKernel was slower",
        most=ns(scope.gain_ns_per_step[1]), gaps=ns(scope.gaps_ns), time=ns(scope.dur_ns),
    )  # fmt: skip
    launched = say("launches with {cube} cube and {vector} vector cores, as its largest kernels need",
                   cube=scope.cube, vector=scope.vector)  # fmt: skip
    if scope.cube is None:
        launched = say("the number of cores it launches with is unknown: kernels of it have no Block Dim")
    lines: list[RenderableType] = [line(worth), line(launched, "dim")]
    segments = scope.segments if len(scope.segments) > 1 else []
    shown = segments[: rows_of(view, _ROWS)]
    for s in shown:
        held = say("segment {first} … {last}: {kernels}, gaps {gaps}", first=s.first, last=s.last,
                   kernels=say_n("{n} kernel", "{n} kernels", s.kernels), gaps=ns(s.gaps_ns))  # fmt: skip
        lines.append(line(chain(held, s.stopped_by and say("ended by {reason}", reason=s.stopped_by), by=", ")))
    lines += cut(len(shown), len(segments), lambda few: say("{shown} segments; --format json shows all", shown=few))
    options = (say("{option}: {reason}", option=f"{o.key}={o.value}", reason=o.reason) for o in scope.options)
    lines += [line(option, "dim") for option in options]
    lines += _rules([rule for rule in scope.rules if rule.detail not in said], full=True)
    if any(rule.detail in said for rule in scope.rules):
        lines.append(line(say("other rules: as above"), "dim"))
    return Group(section(named(device, title, several), *lines), Text(), code(scope.code))


_COMPACT_CHECKS: Final = NAMED["super_kernel_checks"].only(
    "scope",
    Column("verdict", say("verdict"), "word", lambda _, c: sure(c.compared.verdict, c.basis), 0),
    Column("count", say("n"), "id", "compared.count"),
    *("before_ns", "after_ns", "saved_ns", "block_dim", "block_expected", "reason"),
)


def _checks(device: Device, several: bool, view: View) -> RenderableType:
    checks = device.super_kernel_checks
    lines: list[RenderableType] = [Fitted(filled(_COMPACT_CHECKS, [(device, check) for check in checks], view.top))]
    log = list(dict.fromkeys(words for check in checks for words in check.log))
    shown = log[: rows_of(view, _LINES)]
    lines += [line(say("plog {line}", line=words), "yellow") for words in shown]
    lines += cut(len(shown), len(log), lambda few: say("{shown} messages; --format json shows all", shown=few))
    return section(named(device, _COMPACT_CHECKS.title, several), *lines)

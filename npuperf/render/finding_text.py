"""Text on what to do: modelled changes, findings, and what was read to know it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table as RichTable

from npuperf.documents.analysis import Finding, ReplayCheck, Result, WhatIf
from npuperf.documents.cluster import ClusterReplay
from npuperf.messages import Message, Parameter, chain, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.analysis_tables import WHAT_IF
from npuperf.render.host_text import WORTH
from npuperf.render.language import text
from npuperf.render.tables import Column, filled
from npuperf.render.terminal import Fitted, Text, cut, line, one_line, rows_of, section
from npuperf.render.words import WORDS, elsewhere, folded, gain, lost_lines, thresholds_line
from npuperf.units import percents

_SEVERITY: Final = {"high": "bold red", "medium": "yellow", "low": "dim"}
_CHANGES, _FINDINGS, _WARNINGS, _FEW = 2, 3, 3, 3


def _saved_share(w: WhatIf) -> str | None:
    if w.gain_pct_interval is None:
        return None
    low, high = (pct / 100 for pct in w.gain_pct_interval)
    return percents(low, high).removesuffix(" %").replace(" to ", "–")


def _saved(w: WhatIf) -> str | None:
    return None if w.gain_ns_per_step is None else str(ns(*w.gain_ns_per_step))


_COMPACT: Final = WHAT_IF.only(
    Column("rank", say("rank"), "id", lambda w: w.device if w.rank is None else w.rank, 0, quiet=True),
    Column("share", say("%"), get=_saved_share, weight=0),
    Column("saved", say("saved"), get=_saved),
    Column("change", say("change"), get=lambda w: text(_change(w)), weight=0),
)


def _change(w: WhatIf) -> Message:
    note = w.reason or w.title
    return say("{change}: {note}", change=w.expr, note=note) if note is not None else say("{change}", change=w.expr)


def what_if_lines(result: Result, view: View, most: int = _CHANGES) -> Iterator[RenderableType]:
    """Show the user's questions and, for one device or for a job as a whole, the most rewarding changes."""
    asked = [w for w in result.what_if if w.asked]
    whole = len(result.devices) == 1
    standard = [w for w in result.what_if if not w.asked and (w.gain_pct or 0) >= 100 * WORTH]
    standard = sorted((w for w in standard if whole or w.device is None), key=lambda w: -(w.gain_pct or 0))
    rows = asked + standard[: rows_of(view, most)]
    if not rows:
        return
    errors = [replay.error for replay in _replays(result) if replay and replay.usable]
    off = say("{error} off the measured window", error=share(max(errors))) if errors else None
    of = say("in % of span")
    about = chain(say("replayed"), off, of)
    table = filled(_COMPACT, [(w,) for w in rows])
    yield section(say("what if ({about})", about=about), Fitted(table, one_line=not view.full))


def _replays(result: Result) -> list[ReplayCheck | None] | list[ClusterReplay | None]:
    """Return the replays that answers come from: the job's, or those of the devices."""
    if result.cluster is not None:
        return [result.cluster.replay]
    return [d.replay for d in result.devices]


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
        what = line(_what(finding, devices))
        lines.add_row(line(WORDS[finding.severity], _SEVERITY[finding.severity]), one_line(what) if brief else what)
        if brief:
            continue
        for step in _next(finding, view.full):
            lines.add_row("", Text.assemble(("→ ", "bold green"), (text(step), "green")))
        if view.full:
            lines.add_row("", line(_grounds(finding), "dim"))
    for more in cut(len(shown), len(problems), lambda few: say("{shown} findings; --full shows all", shown=few)):
        lines.add_row("", more)
    for sign, said in _briefly(result.findings) if brief else _others(result.findings, view.full):
        lines.add_row(line(sign, "dim"), line(said, "dim"))
    yield section(say("findings"), lines)


def _next(finding: Finding, full: bool) -> list[Message | None]:
    """Say what to do; of several remedies the first, and how many more there are, unless all are asked for."""
    others = finding.alternatives
    if full or not others:
        return [finding.next, *others]
    return [say_n("{step} ({n} more remedy: --full)", "{step} ({n} more remedies: --full)",
                  len(others), step=finding.next)]  # fmt: skip


def _what(finding: Finding, devices: int) -> Message:
    """Say what was found, where else, and what it would save."""
    return chain(finding.title, elsewhere(devices), gain(finding))


def _grounds(finding: Finding) -> Message:
    """Say what would prove a finding wrong, and where it comes from."""
    refute = finding.refute and say("not the cause if {condition}", condition=finding.refute)
    return chain(refute, finding.source and say("source: {source}", source=finding.source))


def _briefly(findings: list[Finding]) -> Iterator[tuple[Parameter, Message]]:
    """Say the same in one line."""
    unknown = {f.title for f in findings if f.status == "cannot_tell"}
    fine = _fine(findings)
    cannot = say_n("{n} check cannot tell", "{n} checks cannot tell", len(unknown)) if unknown else None
    none = say_n("{n} check found no problem", "{n} checks found no problem", len(fine)) if fine else None
    if unknown or fine:
        yield "?" if unknown else WORDS["ok"], say("{found} (--full shows more)", found=chain(cannot, none))


def _others(findings: list[Finding], full: bool) -> Iterator[tuple[Parameter, Message]]:
    """Say what cannot be told, and which checks found no problem."""
    unknown = [finding for finding, _ in folded(findings, "cannot_tell")]
    fine = _fine(findings)
    if full:
        for finding in unknown:
            yield "?", say("{check}: {needs}", check=finding.title, needs=finding.needs)
        if fine:
            yield WORDS["ok"], say("{checks}", checks=series(sorted(fine, key=text)))
        return
    titles = list(dict.fromkeys(finding.title for finding in unknown))
    if titles:
        few = series(titles) if len(titles) <= _FEW else say_n("{n} check", "{n} checks", len(titles))
        yield "?", say("cannot tell: {checks} (--full shows what is missing)", checks=few)
    if fine:
        yield WORDS["ok"], say_n("{n} check without a problem (--full shows it)",
                                 "{n} checks without a problem (--full shows them)", len(fine))  # fmt: skip


def _fine(findings: list[Finding]) -> set[Message]:
    """Return the checks that found no problem on any device, and could tell on all."""
    doubtful = {f.rule for f in findings if f.status != "ok"}
    return {f.title for f in findings if f.status == "ok" and f.rule not in doubtful}


def footer(result: Result, view: View, most: int = _WARNINGS) -> Iterator[RenderableType]:
    """Say what was read, lost and missing; all of it with ``full``."""
    source = result.input
    read = say_n("read {n} file", "read {n} files", len(source.files))
    lost = sum(x.rows for x in source.lost)
    minds = len(lost_lines(result)) + len(source.warnings) + len(source.missing)
    unsaid = not most and not view.full
    notes = say_n("{n} note: --full shows it", "{n} notes: --full shows them", minds) if unsaid and minds else None
    yield line(chain(read, say_n("{n} row or event lost", "{n} rows or events lost", lost), notes), "dim")
    if unsaid:
        return
    lines = RichTable.grid(padding=(0, 1, 0, 0))
    for sign, note, style in _footnotes(result, view, most):
        lines.add_row(f"  {sign}", Text(text(note), style, overflow="fold"))
    yield lines


def _footnotes(result: Result, view: View, most: int) -> Iterator[tuple[str, Parameter, str]]:
    source = result.input
    minds = [("!", note, "yellow") for note in (*lost_lines(result), *source.warnings)]
    for notes in (minds, [("?", note, "dim") for note in source.missing]):
        shown = notes[: rows_of(view, most)]
        yield from shown
        if len(shown) < len(notes):
            more = say_n("{n} more note; --full shows all", "{n} more notes; --full shows all", len(notes) - len(shown))
            yield "·", more, "dim"
    yield from (("·", note, "dim") for note in _vendor_lines(result, view.full))
    if result.suggestions:
        more = say_n("msprof itself suggests {n} thing: --table suggestions",
                     "msprof itself suggests {n} things: --table suggestions", len(result.suggestions))  # fmt: skip
        yield "·", more, "dim"
    if view.full:
        yield from (("·", name, "dim") for name in source.files)
        yield "·", thresholds_line(result), "dim"


def _vendor_lines(result: Result, full: bool) -> Iterator[Message]:
    """Say once whether the exporter's own split of the steps agrees with ours."""
    checks = [v for d in result.devices for v in d.vendor]
    differ = [v for v in checks if not v.agrees]
    for v in differ[:1] or checks[:1]:
        where = say("the whole run") if v.step is None else say("step {step}", step=v.step)
        if not differ:
            said = say("step_trace_time's figures agree with these in {where}", where=where)
        elif len(differ) == 1:
            said = say("step_trace_time's figures differ from these in {where}", where=where)
        else:
            said = say("step_trace_time's figures differ from these in {where} ({some} of {all} do)",
                       where=where, some=len(differ), all=len(checks))  # fmt: skip
        yield say("{line}: {why}", line=said, why=v.why) if full else said

"""Text for the terminal: the verdict first, one screen, and everything with ``--full``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.console import JustifyMethod as Justify
from rich.table import Table as RichTable
from rich.text import Text

from npuperf.documents.analysis import Bound, Device, Finding, Range, Result, Spread, Step, WhatIf
from npuperf.render.analysis_tables import TABLES, Table, how_many
from npuperf.render.core_text import core_lines, gate_lines, scope_sections
from npuperf.render.terminal import grid, keep_numbers_whole, section
from npuperf.render.words import BOUND, CAUSE, PARTS, device_name, gain
from npuperf.units import duration, interval, percent, percents, plural

_COLOURS = {"host": "yellow", "compute": "cyan", "communication": "magenta", "unknown": "red"}
_SEVERITY = {"high": "red", "medium": "yellow", "low": "dim"}
#: The field's short names, to leave room for the code line.
_CORES = {"AI_CORE": "AIC", "AI_VECTOR_CORE": "AIV", "COMMUNICATION": "COMM"}
_LETTER = {"host": "H", "compute": "C", "communication": "M", "unknown": "?"}
_BAR = 24
_STRIP = 64
#: Shares of the time below which a line is not worth its room on one screen.
_WORTH = 0.02
_CHANGES = 3
_CAUSES = 4
_OPERATORS = 3
_FINDINGS = 3
_FEW = 5


def print_text(result: Result, console: Console, *, full: bool, top: int) -> None:
    """Print the report to ``console``."""
    console.print(Group(*_screen(result, full, top)), crop=False)  # code is not to be cut


def _screen(result: Result, full: bool, top: int) -> Iterator[RenderableType]:
    yield _header(result)
    yield _verdict(result)
    yield from gate_lines(result)
    if len(result.devices) == 1:
        yield Text()
        yield _partition(result.devices[0])
    elif result.devices:
        yield section("devices", _compact_devices(result.devices if full else result.devices[:16]))
        if not full and len(result.devices) > 16:
            yield Text(f"  {how_many(16, len(result.devices), 'devices')}; --full shows all", style="dim")
    if result.devices:
        waiting = max(result.devices, key=lambda d: d.partition.host_wait_ns)
        name = f"{device_name(waiting)}: " if len(result.devices) > 1 else ""
        yield from _phase_lines(waiting, name)
        yield from _blame_lines(waiting, name)
    yield from _what_if(result, full)
    steps = [(d, s) for d in result.devices for s in d.steps]
    if len(steps) > 1 and len(result.devices) == 1 and (full or not result.devices[0].typical_step):
        shown = [s for _, s in steps] if full else _typical(steps)
        yield section(f"steps ({how_many(len(shown), len(steps), 'steps')})", _compact_steps(shown))
    if result.operators:
        rows = result.operators if full else result.operators[: min(top, _OPERATORS)]
        yield section(
            f"operators by total time ({how_many(len(rows), len(result.operators), 'operators')})",
            _compact_operators(result, len(rows)),
        )
    yield from core_lines(result)
    yield from scope_sections(result, full)
    yield from _findings(result.findings, full)
    if full:
        yield from _all_tables(result)
    yield from _footer(result, full)


def _header(result: Result) -> Text:
    tool = f"{result.tool.name} {result.tool.version}"
    text = Text.assemble((tool, "bold"), f"  {result.input.path}", (f"  {result.input.kind}", "dim"))
    if len(result.devices) == 1:
        d = result.devices[0]
        cores = None if result.input.kind == "kineto" else _cores_of(d)
        who = [f"rank {d.rank}" if d.rank is not None else None, f"device {d.device}", d.soc, cores, d.level]
        text.append("\n" + " · ".join(w for w in who if w), style="dim")
    return text


def _cores_of(device: Device) -> str:
    if device.cores_cube is None:
        return "core counts unknown"
    return f"{device.cores_cube} cube and {device.cores_vector} vector cores"


def _verdict(result: Result) -> Text:
    verdict = result.verdict
    label = Text(BOUND[verdict.bound], style=f"bold {_COLOURS[verdict.bound]}")
    basis = "" if verdict.bound == "unknown" else f"{verdict.basis}: "
    return Text.assemble(label, f"  {basis}{verdict.reason}")


def _partition(device: Device) -> RenderableType:
    p = device.partition
    table = grid(("where the time goes", "left"), ("ms", "right"), ("%", "right"), ("", "left"))
    for key, label, depth in PARTS:
        ns = getattr(p, key)
        if (depth == 2 and ns == 0) or (key == "other_exposed_ns" and ns == 0):
            continue
        share = ns / p.span_ns if p.span_ns else 0.0
        bar = "█" * round(_BAR * share) if depth else ""
        style = {0: "bold", 1: "", 2: "dim"}[depth]
        table.add_row(
            "  " * depth + label, f"{ns / 1e6:,.3f}".replace(",", " "), f"{100 * share:.1f}", bar, style=style
        )
    parts = p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
    check = f"check: the parts add up, {abs(p.span_ns - parts)} ns off"
    c = device.clock
    if c.launches:
        check += f"; launch latency {duration(c.launch_latency_ns)}, clock skew ≥ {duration(c.skew_ns)}"
    return Group(keep_numbers_whole(table), Text(check, style="dim"))


def _phase_lines(device: Device, name: str) -> Iterator[RenderableType]:
    """Show the typical step as a bar and its phases as lines; without steps, the window's phases."""
    typical = device.typical_step
    rows: list[tuple[Bound, str, int, int, Spread | None]] = []
    if typical:
        rows += [(p.bound, p.label, p.start.median_ns, p.end.median_ns, p.length) for p in typical.phases]
        title = f"in every step ({typical.steps} of {len(device.steps)} alike, {_range_ms(typical.length)})"
        span = typical.length.median_ns
    else:
        span = device.partition.span_ns
        begin = device.phases[0].start_ns if device.phases else 0
        rows += [(p.bound, p.label, p.start_ns - begin, p.end_ns - begin, None) for p in device.phases]
        title = f"phases ({len(rows)})"
    if len(rows) < 2 and not (typical and typical.odd):
        return
    table = grid(("ms", "right"), ("%", "right"), ("verdict", "left"), ("part", "left"), ("least–most ms", "left"))
    basis = "inferred" if any(p.verdict.basis == "inferred" for p in device.phases) else "measured"
    most = sorted(range(len(rows)), key=lambda i: rows[i][2] - rows[i][3])[:_FEW]
    for i in sorted(most):
        bound, label, start, end, length = rows[i]
        table.add_row(
            f"{start / 1e6:.3f}–{end / 1e6:.3f}",
            _share(end - start, span),
            _bound_text(bound, basis),
            label or "–",
            "–" if length is None else f"{length.min_ns / 1e6:.3f}–{length.max_ns / 1e6:.3f}",
        )
    lines: list[RenderableType] = [_strip([(b, s, e) for b, _, s, e, _ in rows], span), keep_numbers_whole(table)]
    if len(rows) > _FEW:
        lines.append(Text(f"{how_many(_FEW, len(rows), 'phases')}, the longest; --full shows all", style="dim"))
    odd = typical.odd if typical else []
    lines += [Text(f"odd: step {o.step}, {o.why}", style="yellow") for o in odd[:3]]
    if len(odd) > 3:
        lines.append(Text(f"{len(odd) - 3} more odd steps in --format json", style="dim"))
    yield section(name + title, Group(*lines))


def _range_ms(spread: Spread) -> str:
    if spread.min_ns == spread.max_ns:
        return f"{spread.median_ns / 1e6:.3f} ms"
    return f"{spread.min_ns / 1e6:.3f}–{spread.max_ns / 1e6:.3f} ms"


def _strip(rows: list[tuple[Bound, int, int]], span: int) -> Text:
    """Draw a step as a strip: one letter per phase's verdict, as wide as its time."""
    strip = Text()
    for bound, start, end in rows:
        first, last = (round(_STRIP * at / max(span, 1)) for at in (start, end))
        strip.append(_LETTER[bound] * max(last - first, 0), style=_COLOURS[bound])
    return strip


def _blame_lines(device: Device, name: str) -> Iterator[RenderableType]:
    """Say what the host did while the device waited, where that is a notable part of the time."""
    wait = device.partition.host_wait_ns
    if not device.blame or wait < _WORTH * device.partition.span_ns:
        return
    totals: dict[str, int] = {}
    for b in device.blame:
        totals[b.cause] = totals.get(b.cause, 0) + b.ns
    causes = sorted(totals, key=lambda c: -totals[c])
    table = grid(("cause", "left"), ("ms", "right"), ("%", "right"), ("mostly", "left"))
    for cause in causes[:_CAUSES]:
        named = next(b for b in device.blame if b.cause == cause and b.name != "others")
        where = f", {named.where}" if named.where else ""
        doing = "" if named.name == "nothing recorded" else f"{named.name}{where}"
        table.add_row(CAUSE.get(cause, cause), f"{totals[cause] / 1e6:.3f}", _share(totals[cause], wait), doing)
    lines: list[RenderableType] = [keep_numbers_whole(table)]
    costly = [s for s in device.syncs if s.idle_ns >= _WORTH * device.partition.span_ns]
    for s in costly[:2]:
        where = f" from {s.where}" if s.where else ""
        text = f"sync: {s.torch_op or s.name}{where} ×{s.count}: the device idled {duration(s.idle_ns)} after it"
        lines.append(Text(text, style="yellow"))
    few = how_many(min(_CAUSES, len(causes)), len(causes), "causes")
    what = f"waiting for the host, {duration(wait)}: what it did ({few})"
    yield section(name + what, Group(*lines))


def _what_if(result: Result, full: bool) -> Iterator[RenderableType]:
    """Show the user's questions and, for one device, the most rewarding changes."""
    asked = [w for w in result.what_if if w.asked]
    standard = [w for w in result.what_if if not w.asked and (w.gain_pct or 0) >= 100 * _WORTH]
    standard.sort(key=lambda w: -(w.gain_pct or 0))
    rows = asked + (standard[: len(standard) if full else _CHANGES] if len(result.devices) == 1 else [])
    if not rows:
        return
    several = len(result.devices) > 1
    table = grid(("rank", "right"), ("gain %", "right"), (f"per {rows[0].gain_per}", "right"), ("change", "left"))
    for w in rows:
        note = w.reason or w.title
        table.add_row(
            f"{w.rank if w.rank is not None else w.device}" if several else "",
            _gain_share(w),
            "–" if w.gain_ns_per_step is None else interval(*w.gain_ns_per_step),
            w.expr + (f": {note}" if note else ""),
        )
    errors = [d.replay.error for d in result.devices if d.replay and d.replay.usable]
    check = f" (replayed; the model is {percent(max(errors))} off the measured window)" if errors else ""
    yield section(f"what if{check}", keep_numbers_whole(table))


def _gain_share(w: WhatIf) -> str:
    if w.gain_pct_interval is None:
        return "–"
    return percents(*(pct / 100 for pct in w.gain_pct_interval)).removesuffix(" %").replace(" to ", "–")


def _compact_devices(devices: Sequence[Device]) -> RichTable:
    table = grid(
        ("rank", "right"), ("dev", "right"), ("span ms", "right"), ("compute %", "right"), ("comm %", "right"),
        ("other %", "right"), ("idle %", "right"), ("host %", "right"), ("verdict", "left"),
    )  # fmt: skip
    for d in devices:
        p = d.partition
        shares = (p.compute_ns, p.comm_exposed_ns, p.other_exposed_ns, p.idle_ns, p.host_wait_ns)
        table.add_row(
            "–" if d.rank is None else str(d.rank),
            str(d.device),
            f"{p.span_ns / 1e6:.3f}",
            *(_share(ns, p.span_ns) for ns in shares),
            _bound_text(d.verdict.bound, d.verdict.basis),
        )
    return keep_numbers_whole(table)


def _compact_steps(steps: Sequence[Step]) -> RichTable:
    table = grid(
        ("step", "right"), ("ms", "right"), ("compute %", "right"), ("comm %", "right"), ("other %", "right"),
        ("idle %", "right"), ("host %", "right"), ("verdict", "left"),
    )  # fmt: skip
    for s in steps:
        p = s.partition
        shares = (p.compute_ns, p.comm_exposed_ns, p.other_exposed_ns, p.idle_ns, p.host_wait_ns)
        table.add_row(
            str(s.step),
            f"{p.span_ns / 1e6:.3f}",
            *(_share(ns, p.span_ns) for ns in shares),
            _bound_text(s.verdict.bound, s.verdict.basis),
        )
    return keep_numbers_whole(table)


def _typical(steps: Sequence[tuple[Device, Step]]) -> list[Step]:
    """Choose the steps worth a line on one screen: the longest ones, in time order."""
    longest = sorted(range(len(steps)), key=lambda i: -steps[i][1].partition.span_ns)[:_FEW]
    return [steps[i][1] for i in sorted(longest)]


def _share(ns: int, span: int) -> str:
    return f"{100 * ns / span:.1f}" if span else "–"


def _bound_text(bound: str, basis: str) -> Text:
    return Text(bound + ("?" if basis == "inferred" else ""), style=_COLOURS[bound])


def _compact_operators(result: Result, rows: int) -> RichTable:
    table = grid(
        ("type", "left"), ("core", "left"), ("n", "right"), ("ms", "right"), ("%", "right"),
        ("blocks", "right"), ("used %", "right"), ("where", "left"),
    )  # fmt: skip
    for o in result.operators[:rows]:
        used = max((u for u in (o.occupancy_cube, o.occupancy_vector) if u is not None), default=None)
        table.add_row(
            _short(o.type.removeprefix("void "), 16),
            _CORES.get(o.core or "–", o.core or "–"),
            str(o.count),
            f"{o.total_ns / 1e6:.3f}",
            f"{100 * o.share:.1f}",
            _range(o.block_dim),
            "–" if used is None else f"{100 * used:.0f}",
            o.where or o.torch_op or "–",
        )
    return keep_numbers_whole(table)


def _range(values: Range | None) -> str:
    if values is None:
        return "–"
    return str(values.max) if values.min == values.max else f"{values.min}–{values.max}"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _findings(findings: list[Finding], full: bool) -> Iterator[RenderableType]:
    if not findings:
        return
    problems = _distinct([f for f in findings if f.status == "problem"])
    open_ = _distinct([f for f in findings if f.status == "cannot_tell"])
    fine = sorted({f.title for f in findings if f.status == "ok"} - {f.title for f, _ in open_})
    lines = RichTable.grid(padding=(0, 2, 0, 0))
    shown = problems if full else problems[:_FINDINGS]
    for f, n in shown:
        where = f" (and on {n - 1} more devices)" if n > 1 else ""
        lines.add_row(Text(f.severity, _SEVERITY[f.severity]), Text(f.title + where))
        more = f"; refuted if {f.refute}; source: {f.source}" if full and f.refute else ""
        lines.add_row("", Text(f"{gain(f)}; next: {f.next}{more}", style="dim"))
    if len(shown) < len(problems):
        lines.add_row("", Text(f"{how_many(len(shown), len(problems), 'findings')}; --full shows all", style="dim"))
    for f, _ in open_ if full else []:
        lines.add_row(Text("?", "dim"), Text(f"{f.title}: {f.needs}", style="dim"))
    if open_ and not full:
        titles = list(dict.fromkeys(f.title for f, _ in open_))
        few = ", ".join(titles) if len(titles) <= _FEW else plural(len(titles), "check")
        lines.add_row(Text("?", "dim"), Text(f"cannot tell: {few} (--full says what is missing)", style="dim"))
    if fine:
        text = ", ".join(fine) if full else f"{plural(len(fine), 'check')} without a problem (--full names them)"
        lines.add_row(Text("ok", "dim"), Text(text, style="dim"))
    yield section("findings", lines)


def _distinct(findings: list[Finding]) -> list[tuple[Finding, int]]:
    """Fold the same rule's answer on many devices into one line: the gravest, and how many."""
    by_rule: dict[tuple[str, str | None], list[Finding]] = {}
    for f in findings:
        by_rule.setdefault((f.rule, f.needs), []).append(f)
    return [(group[0], len(group)) for group in by_rule.values()]


def _all_tables(result: Result) -> Iterator[RenderableType]:
    for make in TABLES.values():
        table = make(result)
        if table.rows and table.name != "findings":
            yield section(f"{table.title} ({len(table.rows)})", Bands(table))


class Bands:
    """A wide table in bands that fit the terminal: the key columns stand again in front of each band."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.used = [i for i, c in enumerate(table.columns) if any(row[i] is not None for row in table.rows)]
        self.keys = [i for i in self.used if i < table.keys]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        band, taken = list(self.keys), self._width(self.keys, room)
        for i in self.used:
            if i in self.keys:
                continue
            width = self._width([i], room)
            if taken + width > room and len(band) > len(self.keys):
                yield self._band(band, room)
                band, taken = list(self.keys), self._width(self.keys, room)
            band.append(i)
            taken += width
        yield self._band(band, room)

    def _cells(self, i: int) -> list[str]:
        return [self.table.columns[i].format(row[i]) for row in self.table.rows]

    def _width(self, columns: list[int], room: int) -> int:
        """Return the room that columns take: their longest cell or header word, texts not over a third."""
        total = 0
        for i in columns:
            column = self.table.columns[i]
            widest = max(map(cell_len, [*self._cells(i), *column.title.split()]))
            total += 2 + (min(widest, room // 3) if column.unit == "text" else widest)
        return total

    def _band(self, columns: list[int], room: int) -> RichTable:
        rich = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        widths = {i: self._width([i], room) - 2 for i in columns}
        last = columns[-1]
        if self.table.columns[last].unit == "text" and last not in self.keys:  # a text at the end has all the room
            rest = room - self._width(columns[:-1], room)
            widths[last] = min(rest, max(map(cell_len, [*self._cells(last), self.table.columns[last].title])))
        for i in columns:
            column = self.table.columns[i]
            justify: Justify = "left" if column.unit == "text" else "right"
            rich.add_column(column.title, justify=justify, overflow="fold", width=widths[i])
        for cells in zip(*(self._cells(i) for i in columns), strict=True):
            rich.add_row(*map(Text, cells))
        return rich


def _footer(result: Result, full: bool) -> Iterator[RenderableType]:
    source = result.input
    lost = sum(x.rows for x in source.lost)
    yield Text(f"read {plural(len(source.files), 'file')}; {plural(lost, 'row or event')} lost", style="dim")
    lines = RichTable.grid(padding=(0, 1, 0, 0))
    few = None if full else 3
    for x in source.lost[:few]:
        lines.add_row("  !", Text(f"lost {x.rows} in {x.file}: {x.reason}", style="yellow"))
    for warning in source.warnings[:few]:
        lines.add_row("  !", Text(warning, style="yellow"))
    hidden = len(source.lost[few:]) + len(source.warnings[few:]) if few else 0
    if hidden:
        lines.add_row("  !", Text(f"{plural(hidden, 'more warning')}; --full shows all", style="dim"))
    for text in source.missing if full else ():
        lines.add_row("  ?", Text(text, style="dim"))
    if source.missing and not full:
        names = "; ".join(dict.fromkeys(text.split(":")[0] for text in source.missing))
        lines.add_row("  ?", Text(f"{names} (--full says what they would tell)", style="dim"))
    for text in _vendor_lines(result, full):
        lines.add_row("  ·", Text(text, style="dim"))
    if full:
        for name in source.files:
            lines.add_row("  ·", Text(name, style="dim", overflow="fold"))
        limits = ", ".join(f"{k} {v}" for k, v in result.thresholds.items())
        lines.add_row("  ·", Text(f"thresholds: {limits}", style="dim"))
    yield lines


def _vendor_lines(result: Result, full: bool) -> Iterator[str]:
    """Say once whether the exporter's own split of the steps agrees with ours."""
    checks = [v for d in result.devices for v in d.vendor]
    differ = [v for v in checks if not v.agrees]
    for v in differ[:1] or checks[:1]:
        where = "the whole run" if v.step is None else f"step {v.step}"
        count = f" ({len(differ)} of {len(checks)} do)" if len(differ) > 1 else ""
        verb = "differ from" if differ else "agree with"
        why = f": {v.why}" if full else " (--full)" if differ else ""
        yield f"step_trace_time's figures {verb} these in {where}{count}{why}"

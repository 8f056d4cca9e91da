"""Text for the terminal: the verdict first, one screen, and everything with ``--full``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.console import JustifyMethod as Justify
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from npuperf.model.result import Device, Finding, Range, Result, Step
from npuperf.render.tables import TABLES, Table, how_many
from npuperf.render.words import BOUND, PARTS, gain
from npuperf.units import duration, percent, plural

_COLOURS = {"host": "yellow", "compute": "cyan", "communication": "magenta", "unknown": "red"}
_SEVERITY = {"high": "red", "medium": "yellow", "low": "dim"}
#: The field's short names, to leave room for the code line.
_CORES = {"AI_CORE": "AIC", "AI_VECTOR_CORE": "AIV", "COMMUNICATION": "COMM"}
_BAR = 24
_FEW = 5


def print_text(result: Result, console: Console, *, full: bool, top: int) -> None:
    """Print the report to ``console``."""
    console.print(Group(*_screen(result, full, top)), soft_wrap=False)


def _screen(result: Result, full: bool, top: int) -> Iterator[RenderableType]:
    yield _header(result)
    yield Text()
    yield _verdict(result)
    if len(result.devices) == 1:
        yield Text()
        yield _partition(result.devices[0])
    elif result.devices:
        yield _section("devices", _compact_devices(result.devices if full else result.devices[:16]))
        if not full and len(result.devices) > 16:
            yield Text(f"  {how_many(16, len(result.devices), 'devices')}; --full shows all", style="dim")
    steps = [(d, s) for d in result.devices for s in d.steps]
    if len(steps) > 1 and len(result.devices) == 1:
        shown = [s for _, s in steps] if full else _typical(steps)
        yield _section(f"steps ({how_many(len(shown), len(steps), 'steps')})", _compact_steps(shown))
    if result.operators:
        rows = result.operators if full else result.operators[: min(top, _FEW)]
        yield _section(
            f"operators by total time ({how_many(len(rows), len(result.operators), 'operators')})",
            _compact_operators(result, len(rows)),
        )
    yield from _longest(result)
    yield from _core_line(result)
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


def _name(device: Device) -> str:
    rank = f"rank {device.rank}, " if device.rank is not None else ""
    return f"{rank}device {device.device}"


def _cores_of(device: Device) -> str:
    if device.cores_cube is None:
        return "core counts unknown"
    return f"{device.cores_cube} cube and {device.cores_vector} vector cores"


def _verdict(result: Result) -> Text:
    verdict = result.verdict
    label = Text(BOUND[verdict.bound], style=f"bold {_COLOURS[verdict.bound]}")
    return Text.assemble(label, f"  {verdict.basis}: {verdict.reason}")


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2)))


def _grid(*columns: tuple[str, Justify]) -> RichTable:
    """Make a plain table with one row per line."""
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header, justify in columns:
        table.add_column(header, justify=justify, no_wrap=True)
    return table


def _keep_numbers_whole(table: RichTable) -> RichTable:
    """Let only the last column be cut when the terminal is narrow, and leave out columns with nothing in them."""
    table.columns[:] = [c for c in table.columns if any(str(cell) not in ("–", "") for cell in c.cells)]
    for column in table.columns[:-1]:
        widest = max([cell_len(str(cell)) for cell in column.cells] + [cell_len(str(column.header))])
        column.min_width = widest
    return table


def _partition(device: Device) -> RenderableType:
    p = device.partition
    table = _grid(("where the time goes", "left"), ("ms", "right"), ("%", "right"), ("", "left"))
    for key, label, depth in PARTS:
        ns = getattr(p, key)
        if depth == 2 and ns == 0:
            continue
        share = ns / p.span_ns if p.span_ns else 0.0
        bar = "█" * round(_BAR * share) if depth else ""
        style = {0: "bold", 1: "", 2: "dim"}[depth]
        table.add_row(
            "  " * depth + label, f"{ns / 1e6:,.3f}".replace(",", " "), f"{100 * share:.1f}", bar, style=style
        )
    parts = p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
    check = f"check: the parts add up to the span, {abs(p.span_ns - parts)} ns off"
    c = device.clock
    if c.launches:
        check += f"; launch latency {duration(c.launch_latency_ns)}, clock skew at least {duration(c.skew_ns)}"
    return Group(_keep_numbers_whole(table), Text(check, style="dim"))


def _compact_devices(devices: Sequence[Device]) -> RichTable:
    table = _grid(
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
    return _keep_numbers_whole(table)


def _compact_steps(steps: Sequence[Step]) -> RichTable:
    table = _grid(
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
    return _keep_numbers_whole(table)


def _typical(steps: Sequence[tuple[Device, Step]]) -> list[Step]:
    """Choose the steps worth a line on one screen: the longest ones, in time order."""
    longest = sorted(range(len(steps)), key=lambda i: -steps[i][1].partition.span_ns)[:_FEW]
    return [steps[i][1] for i in sorted(longest)]


def _share(ns: int, span: int) -> str:
    return f"{100 * ns / span:.1f}" if span else "–"


def _bound_text(bound: str, basis: str) -> Text:
    return Text(bound + ("?" if basis == "inferred" else ""), style=_COLOURS[bound])


def _compact_operators(result: Result, rows: int) -> RichTable:
    table = _grid(
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
    return _keep_numbers_whole(table)


def _range(values: Range | None) -> str:
    if values is None:
        return "–"
    return str(values.max) if values.min == values.max else f"{values.min}–{values.max}"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _longest(result: Result) -> Iterator[RenderableType]:
    for k in result.kernels[:1]:
        step = f", step {k.step}" if k.step is not None else ""
        where = k.where or k.torch_op
        text = f"{_short(k.name or 'N/A', 60)} {duration(k.dur_ns)} at {duration(k.start_ns)}{step}" + (
            f", from {where}" if where else ""
        )
        yield Text.assemble(("longest kernel: ", "bold"), text)


def _core_line(result: Result) -> Iterator[RenderableType]:
    for d in result.devices[:1] if result.input.kind != "kineto" else ():
        sides = [("cube", d.cores.cube), ("vector", d.cores.vector)]
        known = [
            f"{name} {percent(s.occupancy_busy)} while busy, {percent(s.occupancy_span)} of the span"
            for name, s in sides
            if s
        ]
        text = "; ".join(known) or d.cores.reason or "no core figures"
        which = "" if len(result.devices) == 1 else f" ({_name(d)})"
        yield Text.assemble((f"cores used{which}: ", "bold"), text)


def _findings(findings: list[Finding], full: bool) -> Iterator[RenderableType]:
    if not findings:
        return
    problems = _distinct([f for f in findings if f.status == "problem"])
    open_ = _distinct([f for f in findings if f.status == "cannot_tell"])
    fine = sorted({f.title for f in findings if f.status == "ok"} - {f.title for f, _ in open_})
    lines = RichTable.grid(padding=(0, 2, 0, 0))
    shown = problems if full else problems[:_FEW]
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
        titles = ", ".join(dict.fromkeys(f.title for f, _ in open_))
        lines.add_row(Text("?", "dim"), Text(f"cannot tell: {titles} (--full says what is missing)", style="dim"))
    if fine:
        lines.add_row(Text("ok", "dim"), Text(", ".join(fine), style="dim"))
    yield _section("findings", lines)


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
            yield _section(f"{table.title} ({len(table.rows)})", _Bands(table))


class _Bands:
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
    yield Text()
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
    for text in _vendor_lines(result):
        lines.add_row("  ·", Text(text, style="dim"))
    if full:
        for name in source.files:
            lines.add_row("  ·", Text(name, style="dim", overflow="fold"))
        limits = ", ".join(f"{k} {v}" for k, v in result.thresholds.items())
        lines.add_row("  ·", Text(f"thresholds: {limits}", style="dim"))
    yield lines


def _vendor_lines(result: Result) -> Iterator[str]:
    """Say once whether the exporter's own split of the steps agrees with ours."""
    checks = [v for d in result.devices for v in d.vendor]
    differ = [v for v in checks if not v.agrees]
    for v in differ[:1] or checks[:1]:
        where = "the whole run" if v.step is None else f"step {v.step}"
        count = f" ({len(differ)} of {len(checks)} steps differ)" if len(differ) > 1 else ""
        verb = "differ from" if differ else "agree with"
        yield f"the exporter's own step times (step_trace_time) {verb} these in {where}{count}: {v.why}"

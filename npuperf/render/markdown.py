"""Markdown: the whole report, for merge requests and issue trackers."""

from __future__ import annotations

from npuperf.documents.analysis import Device, Finding, Result
from npuperf.render.analysis_tables import TABLES, Table, evidence, how_many
from npuperf.render.words import BOUND, PARTS, gain, title_of
from npuperf.units import duration, percent


def render_markdown(result: Result, top: int) -> str:
    """Render the report; long tables are cut at ``top`` rows and say so."""
    parts = [f"# npuperf: {title_of(result)}", _verdict(result)]
    parts += [_device(d) for d in result.devices]
    for make in TABLES.values():
        table = make(result)
        if table.rows and table.name not in ("findings", "devices"):
            parts.append(table_markdown(table, top))
    parts += [_findings(result.findings), _input(result)]
    return "\n\n".join(p for p in parts if p) + "\n"


def _verdict(result: Result) -> str:
    verdict = result.verdict
    numbers = ", ".join(f"{k} {evidence(v)}" for k, v in verdict.evidence.items())
    text = f"**{BOUND[verdict.bound]}** ({verdict.basis}): {verdict.reason}"
    return f"{text}\n\n{numbers}" if numbers else text


def _device(device: Device) -> str:
    name = f"rank {device.rank}, device {device.device}" if device.rank is not None else f"device {device.device}"
    p = device.partition
    lines = [f"## Where the time goes: {name}", "", "| part | ms | % |", "|---|---:|---:|"]
    for key, label, depth in PARTS:
        ns = getattr(p, key)
        share = f"{100 * ns / p.span_ns:.1f}" if p.span_ns else "–"
        lines.append(f"| {'· ' * depth}{label} | {ns / 1e6:.3f} | {share} |")
    return "\n".join(lines)


def table_markdown(table: Table, top: int) -> str:
    """Render a table under its title, cut at ``top`` rows."""
    rows = table.rows[:top]
    lines = [f"## {table.title} ({how_many(len(rows), len(table.rows), 'rows')})", ""]
    lines.append("| " + " | ".join(_cell(c.title) for c in table.columns) + " |")
    lines.append("|" + "|".join("---" if c.unit == "text" else "---:" for c in table.columns) + "|")
    for row in rows:
        cells = (c.format(v) for c, v in zip(table.columns, row, strict=True))
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _findings(findings: list[Finding]) -> str:
    lines = ["## Findings", ""]
    for f in findings:
        if f.status == "problem":
            lines.append(f"- **{f.severity}** {_cell(f.title)}: {gain(f)}. Next: {_cell(f.next)}")
        elif f.status == "cannot_tell":
            lines.append(f"- cannot tell, {f.title}: {_cell(f.needs or '')}")
    lines.append(f"- no problem: {', '.join(sorted({f.title for f in findings if f.status == 'ok'})) or 'none'}")
    return "\n".join(lines)


def _input(result: Result) -> str:
    lines = ["## Input", "", f"{result.input.path} ({result.input.kind})", ""]
    lines += [f"- read {_cell(f)}" for f in result.input.files]
    lines += [f"- **lost** {x.rows} in {_cell(x.file)}: {_cell(x.reason)}" for x in result.input.lost]
    lines += [f"- warning: {_cell(w)}" for w in result.input.warnings]
    lines += [f"- missing: {_cell(m)}" for m in result.input.missing]
    limits = ", ".join(f"{k} {v}" for k, v in result.thresholds.items())
    clocks = ", ".join(
        f"launch latency {duration(d.clock.launch_latency_ns)}, clock skew {duration(d.clock.skew_ns)}, "
        f"launches known for {percent(d.clock.launches / d.clock.tasks if d.clock.tasks else None)} of tasks"
        for d in result.devices[:1]
    )
    return "\n".join([*lines, "", f"Calibration: {clocks or 'none'}.", "", f"Thresholds: {limits}."])

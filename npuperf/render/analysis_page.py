"""The page of an analysis, for Markdown, and where its time goes, for all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as chain_of
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Clock, Device, Finding, Partition, Result
from npuperf.documents.cluster import Cluster
from npuperf.messages import NOTHING, Message, chain, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.analysis_tables import LONG, TABLES, TOLD
from npuperf.render.cluster_words import (
    clocks_line,
    job_line,
    links_line,
    notes_of,
    pipeline_lines,
    pipeline_title,
    replay_line,
    waiting_line,
)
from npuperf.render.language import text
from npuperf.render.page import Line, Page, Section, common, warnings
from npuperf.render.signs import in_letters, meter
from npuperf.render.tables import Column, Filled, Row, Table, each, fill, filled
from npuperf.render.words import (
    BOUND,
    WORDS,
    device_name,
    elsewhere,
    folded,
    gain,
    lost_lines,
    outside_lines,
    steps_line,
    thresholds_line,
    verdict_of,
)  # fmt: skip

#: Tables that have bars beside a column: which, and what is all of it.
_METERS: Final = {
    "blame": ("share", 1.0),
    "what_if": ("gain_pct", 100.0),
    "operators": ("share", 1.0),
    "roots": ("share", 1.0),
}
_ELSEWHERE: Final = ("findings", "devices", *LONG, *TOLD)


def page(result: Result, view: View) -> Page:
    """Return everything that an analysis says; unless all is wanted, what a pipeline asked of it alone."""
    if result.comparison is None and not result.gates:
        return whole_page(result, view)
    from npuperf.render.summary_page import summary, with_comparison  # which few ask for

    return with_comparison(result, whole_page(result, view), view) if view.full else summary(result, view)


def whole_page(result: Result, view: View) -> Page:
    """Return everything that an analysis says, whatever it is held against."""
    verdict = Line(verdict_of(result), "bold", BOUND[result.verdict.bound])
    evidence = series(say("{name} {share}", name=k, share=share(v)) for k, v in result.verdict.evidence.items())
    cluster = result.cluster
    lines = [
        Line(chain(job_line(cluster), *outside_lines(result.devices), by=" · ") if cluster else steps_line(result)),
        verdict,
        *([Line(evidence)] if evidence.items else []),
    ]
    alone = apart_line(result.devices[0].window) if len(result.devices) == 1 else None
    lines += [*([Line(alone)] if alone else []), *common(result)]
    lines += map(Line, _job(cluster) if cluster else ())
    shares = shares_line(result) if cluster and not view.full else None  # which have a table otherwise
    lines += [Line(shares)] if shares else []
    wider = any(device.window != device.partition for device in result.devices)  # than what the partitions show
    elsewhere = [name for name in _ELSEWHERE if not (wider and name == "devices")]
    tables = [fill(_with_meter(table), result, view.top) for table in TABLES if table.name not in elsewhere]
    if cluster is None or view.full:  # a table for each of a thousand ranks is no page
        tables = [*_partitions(result), *tables]
    findings = list(_findings(result.findings) if cluster is None or view.full else _folded(result.findings))
    told = input_lines(result, full=cluster is None or view.full)
    sections = [Section(say("findings"), findings), Section(say("input"), list(told))]
    name = PurePath(result.input.path).name or result.input.path
    title = say("{title}", title=f"{name} ({result.input.kind})")
    return Page(title, lines, tables, sections)


def _with_meter(table: Table) -> Table:
    """Return a table with a bar beside its column of shares, if it is one of those that are about them."""
    key, whole = _METERS.get(table.name, (None, 1.0))
    columns = ([column, *([_meter(column, whole)] if column.key == key else [])] for column in table.columns)
    return table.only(*chain_of.from_iterable(columns)) if key else table


def _meter(column: Column, whole: float = 1.0) -> Column:
    """Return the column of bars for one of numbers of which ``whole`` is all."""

    def drawn(*row: object) -> str:
        value = column.cell(row)
        return meter(value / whole if isinstance(value, int | float) else None)

    return Column("bar", NOTHING, "bar", drawn)


def _partitions(result: Result) -> Iterator[Filled]:
    for device in result.devices:
        title = say("where the time goes on {device}", device=device_name(device))
        share = PARTITION_TABLE.columns[2]
        table = PARTITION_TABLE.only(_DEEPER, "ns", share, _meter(share))
        yield filled(table.titled(title), partition_rows(device))


def shares_line(result: Result) -> Message | None:
    """Say with bars where the time of all devices goes, in parts of it that are worth a word."""
    windows = [device.window for device in result.devices]
    whole = sum(window.span_ns for window in windows)
    parts = {field: sum(getattr(window, field) for window in windows) for field in SIGNS}
    told = any(window.comm_transfer_ns or window.comm_wait_ns for window in windows)
    titles = {field: title for field, title, _ in _PARTS}
    if not told:
        titles["comm_unknown_ns"] = titles["comm_exposed_ns"]
    said = [
        say("{part} {bar} {share}", part=titles[field], bar=meter(time / whole), share=share(time / whole))
        for field, time in parts.items()
        if time >= _NOTABLE * whole > 0
    ]
    return chain(*said, by=" · ") if said else None


def _job(cluster: Cluster) -> Iterator[Message]:
    """Say what the ranks tell together; the roots and the ranks themselves are tables."""
    yield waiting_line(cluster)
    if cluster.pipeline:
        yield chain(pipeline_title(cluster.pipeline), *pipeline_lines(cluster))
    said = (replay_line(cluster), links_line(cluster), clocks_line(cluster), *notes_of(cluster))
    yield from (message for message in said if message)


def _folded(findings: list[Finding]) -> Iterator[Line]:
    """Say every rule's answer once, and on how many devices it is the same."""
    for f, devices in folded(findings, "problem"):
        yield Line(chain(f.title, elsewhere(devices), gain(f), *_next(f)), "bold", WORDS[f.severity])
    yield from _findings([f for f, _ in folded(findings, "cannot_tell")] + [f for f in findings if f.status == "ok"])


def _next(f: Finding) -> list[Message]:
    return [say("next: {step}", step=f.next), *(say("or: {step}", step=step) for step in f.alternatives)]


def _findings(findings: list[Finding]) -> Iterator[Line]:
    for f in findings:
        if f.status == "problem":
            yield Line(chain(f.title, gain(f), *_next(f)), "bold", WORDS[f.severity])
        elif f.status == "cannot_tell":
            yield Line(say("cannot tell, {check}: {needs}", check=f.title, needs=f.needs))
    fine = dict.fromkeys(f.title for f in findings if f.status == "ok")
    yield Line(say("no problem: {checks}", checks=series(fine)) if fine else say("no problem: none"))


def input_lines(result: Result, full: bool) -> Iterator[Line]:
    """Say what was read, what of it was lost, what is missing, and with which thresholds it was judged."""
    source = result.input
    yield Line(say("{path} ({kind})", path=source.path, kind=source.kind))
    if full:
        yield from (Line(say("read {file}", file=file)) for file in source.files)
    else:
        yield Line(say_n("read {n} file", "read {n} files", len(source.files)))
    yield from map(Line, lost_lines(result))
    yield from warnings(source.warnings)
    yield from (Line(say("missing: {what}", what=what)) for what in source.missing)
    yield Line(say("calibration: {clocks}", clocks=_calibration(result)))
    yield Line(thresholds_line(result))


def _calibration(result: Result) -> Message:
    for device in result.devices[:1]:
        clock = device.clock
        known = share(clock.launches / clock.tasks if clock.tasks else None)
        return say("{clocks}, launches known for {known} of tasks", clocks=clock_line(clock), known=known)
    return say("none")


class Part(Struct, frozen=True):
    """One row: its name, its time, its share of the span, and where that lies in a bar of the whole."""

    title: Message
    depth: int
    ns: int
    share: float | None
    bar: str


_COMMUNICATION, _UNKNOWN = "M", "?"
#: Letters and colours of the parts that a bar is made of, in its order; idle time of unknown cause is a point.
SIGNS: Final = {
    "compute_ns": "C",
    "comm_transfer_ns": _COMMUNICATION,
    "comm_wait_ns": "W",
    "comm_unknown_ns": _UNKNOWN,
    "other_exposed_ns": "o",
    "host_wait_ns": "H",
    "launch_latency_ns": "L",
    "dependency_wait_ns": "D",
    "unattributed_ns": ".",
}
COLOURS: Final = {
    "C": "cyan", "M": "magenta", "W": "red", "?": "magenta", "o": "blue", "H": "yellow", "L": "bright_yellow",
    "D": "green", ".": "dim",
}  # fmt: skip
#: Rows that stand for several parts of the bar.
_SEVERAL: Final = {"span_ns": "CMW?oHLD.", "comm_exposed_ns": "MW?", "idle_ns": "HLD."}
#: The rows of a partition: field, label, depth.
_PARTS: Final = (
    ("span_ns", say("span"), 0),
    ("compute_ns", say("compute"), 1),
    ("comm_exposed_ns", say("exposed communication"), 1),
    ("comm_transfer_ns", say("transfer"), 2),
    ("comm_wait_ns", say("waiting for other ranks"), 2),
    ("comm_unknown_ns", say("transfer or waiting (cannot tell)"), 2),
    ("other_exposed_ns", say("exposed copies and other work"), 1),
    ("idle_ns", say("idle"), 1),
    ("host_wait_ns", say("waiting for the host"), 2),
    ("launch_latency_ns", say("launch latency"), 2),
    ("dependency_wait_ns", say("waiting for a dependency"), 2),
    ("unattributed_ns", say("unattributed (no launch recorded)"), 2),
)
#: Where the launch latency cannot be told it counts to the host.
_WITH_LATENCY: Final = say("waiting for the host and launches")
#: Share of the span below which no word is said about how communication splits.
_NOTABLE: Final = 0.02
#: What the letters mean.
LETTERS: Final = {
    **{SIGNS[field]: title for field, title, _ in _PARTS if field in SIGNS},
    _COMMUNICATION: say("communication"),
}

PARTITION_TABLE: Final = Table(
    "",
    say("where the time goes"),
    each(),
    (
        Column("part", say("part"), get=lambda part: "  " * part.depth + text(part.title), weight=0),
        Column("ns", say("ms"), "duration", weight=0),
        Column("share", say("% of span"), "share", weight=0),
        Column("bar", NOTHING, "bar", lambda part: part.bar or " "),
    ),
)


#: The parts, in Markdown, which drops common blanks.
_DEEPER: Final = Column("part", say("part"), get=lambda part: "\u00a0\u00a0" * part.depth + text(part.title), weight=0)


def partition_rows(device: Device, room: int = 0) -> list[Row]:
    """Return the parts that there are, each with its place in a bar of so much room for the whole."""
    whole = device.window
    included = {"host_wait_ns": _WITH_LATENCY} if device.clock.latency_reason else {}
    letters = partition_bar(whole, room)
    rows: list[Row] = []
    for field, title, depth in _PARTS:
        if _is_shown(whole, field, depth):
            time = getattr(whole, field)
            share = time / whole.span_ns if whole.span_ns else None
            own = _SEVERAL.get(field) or SIGNS[field]
            bar = "".join(letter if letter in own else " " for letter in letters)
            rows.append((Part(included.get(field, title), depth, time, share, bar.rstrip()),))
    return rows


def partition_bar(whole: Partition, room: int) -> str:
    """Return where the time goes as letters, ``room`` of them for all of it."""
    pieces = [(letter, getattr(whole, field)) for field, letter in SIGNS.items()]
    if not _is_shown(whole, "comm_unknown_ns", 2):  # no line of its own says what it is
        pieces = [(_COMMUNICATION if letter == _UNKNOWN else letter, size) for letter, size in pieces]
    return in_letters(pieces, room)


def _is_shown(whole: Partition, field: str, depth: int) -> bool:
    if field == "comm_unknown_ns" and not (whole.comm_transfer_ns or whole.comm_wait_ns):
        return False  # all of it: the line above says how much
    return bool(getattr(whole, field)) or not (depth == 2 or field == "other_exposed_ns")


def apart_line(whole: Partition) -> Message | None:
    """Say what one rank alone cannot tell, and what would, where that is a notable part of the time."""
    told = whole.comm_transfer_ns or whole.comm_wait_ns
    if told or whole.comm_exposed_ns <= _NOTABLE * whole.span_ns:
        return None
    return say("one rank alone cannot tell transfer from waiting: load all ranks")


def clock_line(clock: Clock) -> Message:
    """Say how long launches take to arrive and by how much the clocks disagree, as far as the launches tell."""
    skew = ns(clock.skew_ns)
    if clock.latency_reason is None:
        return say("launch latency {latency}, clock skew ≥ {skew}", latency=ns(clock.launch_latency_ns), skew=skew)
    if clock.latency_bounds_ns is None:
        return say("launch latency cannot be told ({why}), clock skew ≥ {skew}", why=clock.latency_reason, skew=skew)
    bounds = ns(*clock.latency_bounds_ns)
    return say("launch latency {bounds} ({why}), clock skew {least} to {most}",
               bounds=bounds, why=clock.latency_reason, least=skew, most=ns(clock.skew_most_ns))  # fmt: skip


def check_line(device: Device) -> Message:
    """Say that the parts add up, and what the launches were calibrated with."""
    p, clock = device.window, device.clock
    parts = p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
    off = say("check: the parts add up to the span, {off} ns off", off=abs(p.span_ns - parts))
    return chain(off, clock_line(clock) if clock.launches else None)

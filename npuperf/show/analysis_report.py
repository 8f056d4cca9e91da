"""The report of an analysis, for Markdown, and where its time goes, for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import NOTHING, Message, chain, ns, say, say_n, series, share
from npuperf.model.comparison import Comparison
from npuperf.model.result import Clock, Device, Finding, Partition, Result
from npuperf.show import comparison_text as compared
from npuperf.show import job_text, words
from npuperf.show.analysis_tables import GATES, LONG, TABLES, TOLD
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.report import Section, TextReport, common, gate_line, problem_lines, warnings
from npuperf.show.tables import Column, Filled, Row, Table, each, fill, filled
from npuperf.show.words import Line, meter

#: Of a list, so much at most on the report that a pipeline asked for: the whole is to be read at a glance.
_GATES, _FEW, _WARNINGS = 8, 3, 1
_KERNELS: Final = 10
_OVER_LIMIT: Final = GATES.only("expr", "stream", "type", "core", "count", "cube", "vector", "likely").titled(
    say("kernels above a limit")
)
#: Gates that stop the pipeline first.
_ORDER: Final = {"fail": 0, "cannot_tell": 1, "pass": 2}
#: Tables that have bars beside a column: which, and what is all of it.
_METERS: Final = {
    "blame": ("share", 1.0),
    "what_if": ("gain_pct", 100.0),
    "operators": ("share", 1.0),
    "roots": ("share", 1.0),
}
_ELSEWHERE: Final = ("findings", "devices", *LONG, *TOLD)


def report(result: Result, view: View) -> TextReport:
    """Return everything that an analysis says; unless all is wanted, what a pipeline asked of it alone."""
    comparison = result.comparison
    if comparison is None and not result.gates:
        return whole_report(result, view)
    if not view.full:
        return summary(result, view)
    whole = whole_report(result, view)
    if comparison is None:
        return whole
    rows = compared.falls(comparison, view.top)
    bare = [column.key for column in compared.FALLS.columns if column.unit != "bar"]
    table = compared.FALLS.only(*bare).titled(compared.falls_title(comparison))
    return replace(
        whole,
        lines=[*_verdict(result, comparison), *whole.lines],
        tables=[*([filled(table, rows)] if rows else []), *whole.tables],
        sections=[*_changes(comparison, None), *whole.sections],
        notes=[*warnings(comparison.warnings), *whole.notes],
    )


def summary(result: Result, view: View) -> TextReport:
    """Return what a pipeline asked for: how the run compares, and what its gates say. Sixty lines at most."""
    itself = [Line(words.steps_line(result)), _bound(result)]
    shares = shares_line(result)
    itself += [Line(shares)] if shares else []
    comparison = result.comparison
    gates = []
    if result.gates:
        ordered = sorted(result.gates, key=lambda gate: (_ORDER[gate.status], gate.level != "fail"))
        more = [_more(len(ordered) - _GATES)] if len(ordered) > _GATES else []
        gates.append(Section(say("gates"), [*map(gate_line, ordered[:_GATES]), *more]))
    alone = Section(say("this run by itself"), itself)
    if comparison is None:
        over = filled(_OVER_LIMIT, [(gate, kernel) for gate in result.gates for kernel in gate.over], _KERNELS)
        return TextReport(_title(result), problem_lines(result), [over], [*gates, alone])
    rows = compared.falls(comparison, compared.PARTS if view.top is None else view.top)
    table = compared.FALLS.only("part", "what", "delta_ns", "count_ns", "speed_ns", "old_ns", "new_ns")
    return TextReport(
        say("{new} against {old}", new=comparison.new, old=comparison.old),
        [*_verdict(result, comparison), *problem_lines(result)],
        [filled(table.titled(compared.falls_title(comparison)), rows)] if rows else [],
        [*gates, *_changes(comparison, _FEW), alone],
        warnings(comparison.warnings[:_WARNINGS]),
    )


def _verdict(result: Result, comparison: Comparison) -> Iterator[Line]:
    yield compared.verdict_line(comparison)
    yield from compared.step_lines(comparison, 1 if result.digest is None else result.digest.devices)


def _changes(comparison: Comparison, most: int | None) -> Iterator[Section]:
    yield Section(say("set-up"), list(compared.parity_lines(comparison, most)))
    changes = [change for change in comparison.findings if change.change != "same"]
    lines = [compared.finding_line(change) for change in changes[:most]]
    if len(lines) < len(changes):
        lines.append(_more(len(changes) - len(lines)))
    if lines:
        yield Section(say("findings that are new, gone or changed"), lines)
    if most is None and comparison.aligned:
        yield Section(say("steps and phases"), list(map(Line, comparison.aligned)))


def _more(n: int) -> Line:
    return Line(say_n("{n} more: --full shows it", "{n} more: --full shows them", n), "dim")


def _title(result: Result) -> Message:
    name = PurePath(result.input.path).name or result.input.path
    return say("{title}", title=f"{name} ({result.input.kind})")


def _bound(result: Result) -> Line:
    return Line(words.verdict_of(result), "bold", words.BOUND[result.verdict.bound])


def whole_report(result: Result, view: View) -> TextReport:
    """Return everything that an analysis says, whatever it is held against."""
    cluster, devices = result.cluster, result.devices
    steps = words.steps_line(result)
    if cluster:
        steps = chain(job_text.job_line(cluster), *words.outside_lines(devices), by=" · ")
    evidence = series(say("{name} {share}", name=k, share=share(v)) for k, v in result.verdict.evidence.items())
    alone = apart_line(devices[0].window) if len(devices) == 1 else None
    lines = [Line(steps), _bound(result), *([Line(evidence)] if evidence.items else [])]
    lines += [*([Line(alone)] if alone else []), *common(result)]
    if cluster:  # what the ranks tell together; the roots and the ranks themselves are tables
        lines.append(Line(job_text.waiting_line(cluster)))
        if cluster.pipeline:
            lines.append(Line(chain(job_text.pipeline_title(cluster.pipeline), *job_text.pipeline_lines(cluster))))
        told = (job_text.replay_line(cluster), job_text.links_line(cluster), job_text.clocks_line(cluster))
        lines += [Line(message) for message in (*told, *job_text.notes_of(cluster)) if message]
    shares = shares_line(result) if cluster and not view.full else None  # which have a table otherwise
    lines += [Line(shares)] if shares else []

    wider = any(device.window != device.partition for device in devices)  # than what the partitions show
    elsewhere = [name for name in _ELSEWHERE if not (wider and name == "devices")]
    tables: list[Filled] = []
    if cluster is None or view.full:  # a table for each of a thousand ranks is no report
        ratio = PARTITION_TABLE.columns[2]
        # Markdown drops common blanks.
        deeper = Column("part", say("part"), get=lambda part: "\u00a0\u00a0" * part.depth + text(part.title), weight=0)
        split = PARTITION_TABLE.only(deeper, "ns", ratio, _meter(ratio))
        for device in devices:
            title = say("where the time goes on {device}", device=words.device_name(device))
            tables.append(filled(split.titled(title), partition_rows(device)))
    for table in TABLES:
        if table.name in elsewhere:
            continue
        key, whole = _METERS.get(table.name, (None, 1.0))
        with_bars = [
            c for column in table.columns for c in (column, *([_meter(column, whole)] if column.key == key else []))
        ]
        tables.append(fill(table.only(*with_bars) if key else table, result, view.top))

    found: list[Line] = []
    rest = result.findings
    if cluster is not None and not view.full:  # every rule's answer once, and on how many devices it is the same
        found = [_problem(f, devices) for f, devices in words.folded(rest, "problem")]
        rest = [f for f, _ in words.folded(rest, "cannot_tell")] + [f for f in rest if f.status == "ok"]
    for f in rest:
        if f.status == "problem":
            found.append(_problem(f))
        elif f.status == "cannot_tell":
            found.append(Line(say("cannot tell, {check}: {needs}", check=f.title, needs=f.needs)))
    fine = dict.fromkeys(f.title for f in rest if f.status == "ok")
    found.append(Line(say("no problem: {checks}", checks=series(fine)) if fine else say("no problem: none")))
    read = list(input_lines(result, full=cluster is None or view.full))
    return TextReport(_title(result), lines, tables, [Section(say("findings"), found), Section(say("input"), read)])


def _meter(column: Column, whole: float = 1.0) -> Column:
    """Return the column of bars for one of numbers of which ``whole`` is all."""

    def drawn(*row: object) -> str:
        value = column.cell(row)
        return meter(value / whole if isinstance(value, int | float) else None)

    return Column("bar", NOTHING, "bar", drawn)


def _problem(f: Finding, devices: int = 1) -> Line:
    """Say a problem, on how many devices it is the same, what it would save and what to do."""
    steps = [say("next: {step}", step=f.next), *(say("or: {step}", step=step) for step in f.alternatives)]
    said = chain(f.title, words.elsewhere(devices), words.gain(f), *steps)
    return Line(said, "bold", words.WORDS[f.severity])


def shares_line(result: Result) -> Message | None:
    """Say with bars where the time of all devices goes, in parts of it that are worth a word."""
    windows = [device.window for device in result.devices]
    whole = sum(window.span_ns for window in windows)
    parts = {field: sum(getattr(window, field) for window in windows) for field in SIGNS}
    titles = {field: title for field, title, _ in _PARTS}
    if not any(window.comm_transfer_ns or window.comm_wait_ns for window in windows):
        titles["comm_unknown_ns"] = titles["comm_exposed_ns"]
    said = [
        say("{part} {bar} {share}", part=titles[field], bar=meter(time / whole), share=share(time / whole))
        for field, time in parts.items()
        if time >= _NOTABLE * whole > 0
    ]
    return chain(*said, by=" · ") if said else None


def input_lines(result: Result, full: bool) -> Iterator[Line]:
    """Say what was read, what of it was lost, what is missing, and with which thresholds it was judged."""
    source = result.input
    yield Line(say("{path} ({kind})", path=source.path, kind=source.kind))
    if full:
        yield from (Line(say("read {file}", file=file)) for file in source.files)
    else:
        yield Line(say_n("read {n} file", "read {n} files", len(source.files)))
    yield from map(Line, words.lost_lines(result))
    yield from warnings(source.warnings)
    yield from (Line(say("missing: {what}", what=what)) for what in source.missing)
    clocks = say("none")
    for device in result.devices[:1]:
        clock = device.clock
        known = share(clock.launches / clock.tasks if clock.tasks else None)
        clocks = say("{clocks}, launches known for {known} of tasks", clocks=clock_line(clock), known=known)
    yield Line(say("calibration: {clocks}", clocks=clocks))
    yield Line(words.thresholds_line(result))


# -- Where the time of a device goes, for all formats.


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
    return words.in_letters(pieces, room)


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

"""The report of an analysis, for Markdown, and where its time goes, for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from npuperf.base.escape import for_shell
from npuperf.base.messages import NOTHING, Message, Parameter, chain, ns, say, say_n, series, share
from npuperf.base.units import in_rows
from npuperf.model.comparison import Comparison
from npuperf.model.result import Clock, Device, Finding, Partition, Result
from npuperf.show import comparison_text as compared
from npuperf.show import job_text, words
from npuperf.show.analysis_tables import NAMED
from npuperf.show.efficiency_text import efficiency_lines
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.memory_text import memory_lines, only_memory
from npuperf.show.sheet import Sheet, common, gate_line, problem_lines, sheet_of, warnings
from npuperf.show.tables import Column, Filled, Row, Table, each, fill, filled, tables_of
from npuperf.show.words import EVIDENCE, Line, meter

#: Of a list, so much at most on the report that a pipeline asked for: the whole is to be read at a glance.
_GATES, _FEW, _WARNINGS = 8, 3, 1
_KERNELS: Final = 10
#: Ranks are listed as so many stretches of numbers at most.
_RANGES: Final = 16
_OVER_LIMIT: Final = (
    NAMED["gates"]
    .only("expr", "stream", "type", "core", "count", "cube", "vector", "likely")
    .titled(say("kernels above a limit"))
)
#: Gates that stop the pipeline first.
_ORDER: Final = {"fail": 0, "cannot_tell": 1, "pass": 2}


def report(result: Result, view: View) -> Sheet:
    """Return everything that an analysis says; unless all is wanted, what a pipeline asked of it alone."""
    comparison = result.comparison
    if not view.full and (comparison is not None or result.gates):
        return _summary(result, view)
    tables: list[Filled] = []
    if comparison is not None and (rows := compared.falls(comparison, view.top)):
        bare = [column.key for column in compared.FALLS.columns if column.unit != "bar"]
        tables.append(filled(compared.FALLS.only(*bare).titled(compared.falls_title(comparison)), rows))
    return sheet_of(
        _title(result),
        [*_verdict(result), *_lines(result, view)],
        [*tables, *_tables(result, view)],
        [
            *(_changes(comparison, None) if comparison is not None else ()),
            (say("findings"), _findings(result, view)),
            (say("what was run"), list(ran_lines(result))),
            (say("input"), list(input_lines(result, full=result.cluster is None or view.full))),
        ],
        warnings(comparison.warnings if comparison is not None else ()),
    )


def _summary(result: Result, view: View) -> Sheet:
    """Return what a pipeline asked for: how the run compares, and what its gates say. Sixty lines, and what-ifs."""
    shares, comparison = shares_line(result), result.comparison
    itself = [
        Line(words.steps_line(result)),
        _bound(result),
        *words.asked_lines(result),
        *([Line(shares)] if shares else []),
    ]
    sections = []
    if result.gates:
        ordered = sorted(result.gates, key=lambda gate: (_ORDER[gate.status], gate.level != "fail"))
        more = [_more(len(ordered) - _GATES)] if len(ordered) > _GATES else []
        sections.append((say("gates"), [*map(gate_line, ordered[:_GATES]), *more]))
    alone = (say("this run by itself"), itself if comparison else [*itself, *ran_lines(result)])
    if comparison is None:
        over = filled(_OVER_LIMIT, [(gate, kernel) for gate in result.gates for kernel in gate.over], _KERNELS)
        return sheet_of(_title(result), problem_lines(result), [over], [*sections, alone])
    rows = compared.falls(comparison, compared.PARTS if view.top is None else view.top)
    table = compared.FALLS.only("part", "what", "delta_ns", "count_ns", "speed_ns", "old_ns", "new_ns")
    return sheet_of(
        say("{new} against {old}", new=comparison.new, old=comparison.old),
        [*_verdict(result), *problem_lines(result)],
        [filled(table.titled(compared.falls_title(comparison)), rows)],
        [*sections, *_changes(comparison, _FEW), alone],
        warnings(comparison.warnings[:_WARNINGS]),
    )


def _verdict(result: Result) -> Iterator[Line]:
    """Say how the run compares, if it does."""
    if result.comparison is not None:
        yield compared.verdict_line(result.comparison)
        yield from compared.step_lines(result.comparison, 1 if result.digest is None else result.digest.devices)


def _changes(comparison: Comparison, most: int | None) -> Iterator[tuple[Message, list[Line]]]:
    yield say("set-up"), list(compared.parity_lines(comparison, most))
    if work := compared.work_line(comparison):
        yield say("operators"), [Line(work)]
    if peak := compared.memory_line(comparison):
        yield say("memory"), [Line(peak)]
    changes = [change for change in comparison.findings if change.change != "same"]
    lines = [compared.finding_line(change) for change in changes[:most]]
    if len(lines) < len(changes):
        lines.append(_more(len(changes) - len(lines)))
    if lines:
        yield say("findings that are new, gone or changed"), lines
    if most is None and comparison.aligned:
        yield say("steps and phases"), list(map(Line, comparison.aligned))


def ran_lines(result: Result) -> Iterator[Line]:
    """Say what was run, where, on which ranks, and when it was recorded; and what of it no file tells."""
    ran, chips = result.workload, dict.fromkeys((d.soc, d.cores_cube, d.cores_vector) for d in result.devices if d.soc)
    commit: Parameter = ran.git_commit
    if ran.git_commit is not None and (clean := ran.git_commit.removesuffix("-dirty")) != ran.git_commit:
        commit = say("{commit}, with changes that were not committed", commit=clean)
    parts = (("torch", ran.torch), ("torch_npu", ran.torch_npu), ("CANN", ran.cann))
    versions = [f"{name} {version}" for name, version in parts if version]
    seen = (*(d.rank for d in result.devices), *(h.rank for h in result.hosts))
    loaded = sorted({rank for rank in seen if rank is not None})
    ranks = say("{ranks}", ranks=series(in_rows(loaded)[:_RANGES])) if loaded else None
    if loaded and ran.world_size and ran.world_size > len(loaded):
        ranks = say("{ranks}, of {n} in all", ranks=ranks, n=ran.world_size)
    told: list[tuple[Message, Parameter]] = [
        (say("command"), for_shell(*ran.command) or None),
        (say("commit"), commit),
        (say("recorded"), ran.recorded_at and words.date(ran.recorded_at)),
        (say("versions"), series(versions) if versions else None),
        (say("chip"), chain(*(_chip(*chip) for chip in chips), by=", ") if chips else None),
        (say("ranks"), ranks),
    ]
    yield from (Line(content, label=label) for label, content in told if content is not None)
    chosen = [option for option in (ran.level, *ran.options) if option and not option.endswith("=off")]
    for label, values in ((say("profiler"), chosen), (say("settings"), ran.settings)):
        if values:
            yield Line(series(values), label=label)
    if lacking := [label for label, content in told[:4] if content is None]:
        lacks = say("{what} (npuperf profile writes them down)", what=series(lacking))
        yield Line(series(lacking) if result.input.kind == "kineto" else lacks, "dim", say("not in the files"))


def _chip(soc: str, cube: int | None, vector: int | None) -> Message:
    if cube is None or vector is None:
        return say("{soc}", soc=soc)
    return say("{soc} ({cube} cube and {vector} vector cores)", soc=soc, cube=cube, vector=vector)


def _more(n: int) -> Line:
    return Line(say_n("{n} more: --full shows it", "{n} more: --full shows them", n), "dim")


def _title(result: Result) -> Message:
    name = PurePath(result.input.path).name or result.input.path
    return say("{title}", title=f"{name} ({result.input.kind})")


def _bound(result: Result) -> Line:
    return Line(words.verdict_of(result), "bold", words.BOUND[result.verdict.bound])


def _lines(result: Result, view: View) -> Iterator[Line]:
    """Say what limits the run, what its gates found, and what its ranks tell together."""
    cluster, devices = result.cluster, result.devices
    if only_memory(result):
        yield from (*memory_lines(result), *common(result))
        return
    yield Line(job_text.run_line(result))
    yield _bound(result)
    yield from words.asked_lines(result)
    evidence = [say("{name} {share}", name=EVIDENCE.get(k, k), share=share(v))
                for k, v in result.verdict.evidence.items()]  # fmt: skip
    if evidence:
        yield Line(series(evidence))
    alone = apart_line(devices[0]) if len(devices) == 1 else None
    if alone:
        yield Line(alone)
    yield from efficiency_lines(result)
    yield from memory_lines(result)
    yield from common(result)
    if cluster:  # what the ranks tell together; the roots and the ranks themselves are tables
        yield Line(job_text.waiting_line(cluster))
        if cluster.pipeline:
            yield Line(chain(job_text.pipeline_title(cluster.pipeline), *job_text.pipeline_lines(cluster)))
        yield from map(Line, job_text.asides(cluster))
        shares = None if view.full else shares_line(result)  # which have a table otherwise
        if shares:
            yield Line(shares)


def _tables(result: Result, view: View) -> Iterator[Filled]:
    """Yield where the time of every device goes, and all tables that are not told in other words."""
    if result.cluster is None or view.full:  # a table for each of a thousand ranks is no report
        ratio = PARTITION_TABLE.columns[2]
        # Markdown drops common blanks.
        deeper = Column("part", say("part"), get=lambda part: "\u00a0\u00a0" * part.depth + text(part.title), weight=0)
        split = PARTITION_TABLE.only(deeper, "ns", ratio, ratio.bars(1.0))
        for device in () if only_memory(result) else result.devices:
            title = say("where the time goes on {device}", device=words.device_name(device))
            yield filled(split.titled(title), partition_rows(device))
    for table in tables_of(Result):
        if not table.aside and table.name != "devices":  # which has what the partitions show
            yield fill(table.with_meters(), result, view.top)


def _findings(result: Result, view: View) -> list[Line]:
    lines: list[Line] = []
    rest = result.findings
    if result.cluster is not None and not view.full:  # every rule's answer once, and on how many devices it is the same
        lines = [_problem(f, devices) for f, devices in words.folded(rest, "problem")]
        rest = [f for f, _ in words.folded(rest, "cannot_tell")] + [f for f in rest if f.status == "ok"]
    for f in rest:
        if f.status == "problem":
            lines.append(_problem(f))
        elif f.status == "cannot_tell":
            lines.append(Line(say("cannot tell, {check}: {needs}", check=f.title, needs=f.needs)))
    fine = dict.fromkeys(f.title for f in rest if f.status == "ok")
    return [*lines, Line(say("no problem: {checks}", checks=series(fine)))] if fine else lines


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
    titles = {field: title for field, title, *_ in _PARTS}
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
#: The rows of a partition: field, label, depth, its letters in a bar of the whole, and the colour of its own one. Rows
#: of several letters stand for several parts of the bar; idle time of unknown cause is a point.
_PARTS: Final = (
    ("span_ns", say("span"), 0, "CMW?oHLD.", ""),
    ("compute_ns", say("compute"), 1, "C", "cyan"),
    ("comm_exposed_ns", say("exposed communication"), 1, "MW?", ""),
    ("comm_transfer_ns", say("transfer"), 2, _COMMUNICATION, "magenta"),
    ("comm_wait_ns", say("waiting for other ranks"), 2, "W", "red"),
    ("comm_unknown_ns", say("transfer or waiting (cannot tell)"), 2, _UNKNOWN, "magenta"),
    ("other_exposed_ns", say("exposed copies and other work"), 1, "o", "blue"),
    ("idle_ns", say("idle"), 1, "HLD.", ""),
    ("host_wait_ns", say("waiting for the host"), 2, "H", "yellow"),
    ("launch_latency_ns", say("launch latency"), 2, "L", "bright_yellow"),
    ("dependency_wait_ns", say("waiting for a dependency"), 2, "D", "green"),
    ("unattributed_ns", say("unattributed (no launch recorded)"), 2, ".", "dim"),
)
#: Letters of the parts that a bar is made of, in its order, and the colours and the meaning of letters.
SIGNS: Final = {field: letters for field, _, _, letters, colour in _PARTS if colour}
COLOURS: Final = {letters: colour for _, _, _, letters, colour in _PARTS if colour}
LETTERS: Final = {letters: title for _, title, _, letters, colour in _PARTS if colour} | {
    _COMMUNICATION: say("communication")
}
#: Share of the span below which no word is said about how communication splits.
_NOTABLE: Final = 0.02

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
    included = {"host_wait_ns": words.WITH_LAUNCHES} if device.clock.latency_reason else {}
    letters = partition_bar(whole, room)
    rows: list[Row] = []
    for field, title, depth, own, _ in _PARTS:
        if _is_shown(whole, field, depth):
            time = getattr(whole, field)
            share = time / whole.span_ns if whole.span_ns else None
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


def apart_line(device: Device) -> Message | None:
    """Say for whom a rank waits, or what one rank alone cannot tell, and what would, where that is notable."""
    whole = device.window
    waits = device.communication.waits if device.communication else None
    if whole.comm_transfer_ns or whole.comm_wait_ns:
        if whole.comm_unknown_ns <= _NOTABLE * whole.span_ns:
            return waits
        return chain(waits, say("load all ranks of the job: only together they tell transfer from waiting"))
    if whole.comm_exposed_ns <= _NOTABLE * whole.span_ns:
        return None
    return chain(waits, say("one rank alone cannot tell transfer from waiting: load all ranks"))


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

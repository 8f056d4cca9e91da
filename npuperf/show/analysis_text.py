"""Screens of an analysis: of one device, of a job, of a comparison. One screen each, and everything with ``--full``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace
from rich.console import RenderableType
from rich.table import Table as RichTable

from npuperf.base.messages import Message, chain, say, share
from npuperf.base.units import NS_PER_US, grouped
from npuperf.device.counters import UNITS
from npuperf.model.comparison import Comparison
from npuperf.model.job_result import Cluster
from npuperf.model.result import Device, Operator, Partition, Result
from npuperf.show import analysis_report as parts
from npuperf.show import comparison_text as compared
from npuperf.show import device_text, terminal
from npuperf.show.analysis_tables import NAMED
from npuperf.show.brief import recap, render_brief
from npuperf.show.efficiency_tables import of_peak
from npuperf.show.efficiency_text import efficiency_sections
from npuperf.show.finding_text import finding_lines, footer, scope_sections, what_if_lines
from npuperf.show.formats import View
from npuperf.show.job_text import run_line
from npuperf.show.language import text
from npuperf.show.memory_text import memory_sections, only_memory
from npuperf.show.sheet import problem_lines, warnings
from npuperf.show.tables import EXTRA, Cell, Column, Table, fill, filled, how_many, tables_of
from npuperf.show.terminal import Fitted, Text, indented, line, line_text, print_all, rows_of, section
from npuperf.show.words import BOUND, any_of, asked_lines, spark, sure, verdict_of

#: There are no more lines on the screen of a job, whatever the number of ranks, with the last of them.
_LINES: Final = 48
_DEVICES, _OPERATORS, _STEPS = 16, 8, 5
#: A bar beside numbers has no less room than this, and no more; sections stand so much to the right.
_NARROWEST, _WIDEST, _INDENT = 16, 120, 2
#: Fewer steps are no series; of more than so many signs nobody sees the one that matters.
_SERIES, _MOST_SIGNS = 3, 100


def render_text(result: Result, view: View) -> str:
    """Return the report, or one table of it."""
    if view.table is not None:
        return terminal.render_text(result, view)
    if view.brief:
        return render_brief(result, view)
    end = print_all([Text(), line(recap(result), "bold")], view)
    more = print_all(map(line_text, asked_lines(result)), view)  # for which room is made
    return _report(result, view, _LINES - end.count("\n") + more.count("\n")) + end


def _report(result: Result, view: View, room: int) -> str:
    """Return the report without its last line; that of a job has ``room`` for so many lines."""
    comparison = result.comparison
    if comparison is not None and not view.full:  # and, shortened, what limits it whatever the other one was like
        parts = [*_compared(result, comparison, view)]
        itself = say("this run by itself (--full shows all of it)")
        asked = map(line_text, asked_lines(result))
        parts.append(section(itself, line(run_line(result)), _verdict(result), *asked))
        return print_all([*parts, *finding_lines(result, view, _PROBLEMS, brief=True), *footer(result, view, 0)], view)
    if result.cluster:
        report = _job(result, result.cluster, view, room)
    else:
        parts = [*_head(result, view), *_devices(result, view), *finding_lines(result, view)]
        parts += (*_ran(result), *_all_tables(result, view)) if view.full else ()
        report = print_all([*parts, *footer(result, view)], view)
    return report if comparison is None else f"{print_all(_compared(result, comparison, view), view)}\n{report}"


def _job(result: Result, cluster: Cluster, view: View, most: int) -> str:
    """Return what the ranks tell together, as brief as one screen demands; with ``full`` what each of them does."""
    from npuperf.show import job_screen  # which one device has no use for

    def screen(room: job_screen.Room) -> Iterator[RenderableType]:
        yield from _head(result, view)
        yield from job_screen.job_parts(cluster, view, room)
        said = {root.title for root in job_screen.roots_shown(cluster, view, room)}
        more = replace(result, findings=[f for f in result.findings if f.title not in said])
        if not view.full:
            yield from efficiency_sections(result, view, brief=True)
            yield from memory_sections(result, view, brief=True)
        yield from finding_lines(more, view, room.findings, brief=room.brief and not view.full)
        if view.full:
            yield from _devices(result, view)
            yield from _ran(result)
            yield from _all_tables(result, view)
        else:
            yield from what_if_lines(result, view, room.changes)
        yield from footer(result, view, room.notes)

    shown = ""
    for room in job_screen.ROOMS:
        shown = print_all(screen(room), view)
        if view.full or view.top is not None or shown.count("\n") <= most:
            break
    return shown


def _head(result: Result, view: View) -> Iterator[RenderableType]:
    """Yield what every screen begins with: what was analyzed, how long its steps are, and the verdict."""
    tool = f"{result.tool.name} {result.tool.version}"
    yield Text.assemble((tool, "bold"), f"  {result.input.path}", (f"  {result.input.kind}", "dim"))
    if not only_memory(result):
        yield from _series(result, line(run_line(result), "bold"), view)
        yield _verdict(result)
    yield from map(line_text, asked_lines(result))
    if result.comparison is None:  # which says it before
        yield from map(line_text, problem_lines(result))
        yield from device_text.gate_parts(result, view)


def _verdict(result: Result) -> Text:
    bound = result.verdict.bound
    return Text.assemble((text(BOUND[bound]), f"bold {terminal.BOUNDS[bound]}"), f"  {text(verdict_of(result))}")


def _series(result: Result, said: Text, view: View) -> Iterator[RenderableType]:
    """Draw how long the steps are, the longest of each on several devices: beside what is said if there is room."""
    times: dict[int, int] = {}
    for device in result.devices:
        for step in device.whole_steps:
            times[step.step] = max(times.get(step.step, 0), step.partition.span_ns)
    if len(times) < _SERIES or result.runs:
        yield said
        return
    values = [ns for _, ns in sorted(times.items())]
    drawn = spark(values, max(min(view.width - _INDENT, _MOST_SIGNS), 1), view.blocks)
    odd = {step.step for device in result.devices if device.typical_step for step in device.typical_step.odd}
    marks = "".join("^" if marked else " " for marked in any_of([step in odd for step in sorted(times)], drawn.each))
    picture = Text()
    for sign, mark in zip(drawn.signs, marks, strict=True):
        picture.append(sign, "yellow" if mark == "^" else "cyan")
    meaning = chain(
        say("heights from 0") if view.blocks else say("digits from 0 to 8, the longest"),
        say("each sign: the longest of {n} steps", n=drawn.each) if drawn.each > 1 else None,
        say("the slowest device of each step") if len(result.devices) > 1 else None,
    )
    facts = Text(f"  {text(meaning)}", "dim")
    beside = Text.assemble(said, "  ", picture, facts)
    if "^" not in marks and beside.cell_len <= view.width:
        yield beside
        return
    yield said
    together = picture.cell_len + facts.cell_len <= view.width - _INDENT
    yield indented(Text.assemble(picture, facts) if together else picture)
    if "^" in marks:
        yield indented(Text.assemble((marks.rstrip(), "yellow"), ("  " + text(say("unusual")), "dim")))
    if not together:
        yield indented(facts)


def _devices(result: Result, view: View) -> Iterator[RenderableType]:
    """Yield where the time of the devices goes, and their memory."""
    if only_memory(result):
        yield from memory_sections(result, view)
        return
    alone = len(result.devices) == 1
    if alone:
        yield _partition(result, view)
    elif result.devices:
        yield from _compact(_COMPACT_DEVICES, result, view, _DEVICES)
    if result.devices:
        waiting = max(result.devices, key=lambda d: d.window.host_wait_ns)
        yield from device_text.phase_lines(waiting, not alone, view)
        yield from device_text.blame_lines(waiting, not alone, view)
        held = max(result.devices, key=lambda d: d.window.dependency_wait_ns)
        yield from device_text.dependency_lines(held, not alone, view)
    yield from _hosts(result, view)
    yield from what_if_lines(result, view)
    if not view.full:  # where they are among the tables
        if alone and not result.devices[0].typical_step:
            yield from _compact(_COMPACT_STEPS, result, view, _STEPS)
        yield from _compact(_COMPACT_OPERATORS, result, view, _OPERATORS)
    yield from device_text.core_lines(result, view)
    yield from efficiency_sections(result, view)
    yield from memory_sections(result, view)
    yield from scope_sections(result, view)


def _hosts(result: Result, view: View) -> Iterator[RenderableType]:
    """Say what hosts without a device did, and how to learn more where nothing is recorded for much of the time."""
    yield from _compact(_COMPACT_HOST, result, view, _OPERATORS)
    work = [work for run in result.hosts for work in run.work]
    untold = sum(w.self_ns for w in work if w.cause == "unrecorded") / max(sum(w.self_ns for w in work), 1)
    has_frames = any(w.cause == "python" for w in work)
    is_ours = bool(result.workload.command)  # else other profilers have other words for it
    if is_ours and not has_frames and untold >= device_text.WORTH:
        yield indented(line(say("{share} of it: nothing recorded; the program's own functions are with npuperf profile "
                                "--stack", share=share(untold)), "dim"))  # fmt: skip


def _partition(result: Result, view: View) -> RenderableType:
    """Show which device it is, how it was recorded, and where its time goes: bars beside numbers if there is room."""
    device = result.devices[0]
    facts = [say("rank {rank}", rank=device.rank)] if device.rank is not None else []
    facts.append(say("device {device}", device=device.device))
    facts += [say("{soc}", soc=device.soc)] if device.soc else []
    if result.input.kind != "kineto":
        if device.cores_cube is None:
            facts.append(say("core counts unknown"))
        elif device.cores_vector is None:
            facts.append(say("{cube} cube cores, vector cores unknown", cube=device.cores_cube))
        else:
            facts.append(say("{cube} cube and {vector} vector cores",
                             cube=device.cores_cube, vector=device.cores_vector))  # fmt: skip
        facts += [say("{level}", level=device.level)] if device.level else []
    body: list[RenderableType] = []
    numbers = Fitted(filled(parts.PARTITION_TABLE.only("part", "ns", "share"), parts.partition_rows(device)))
    room = view.width - _INDENT - numbers.width
    if room < _NARROWEST:  # a bar above the numbers
        letters = parts.partition_bar(device.window, view.width - _INDENT)
        meant = {letter: parts.LETTERS[letter] for letter in dict.fromkeys(letters)}
        body += [terminal.painted(letters, parts.COLOURS), terminal.legend_of(meant, parts.COLOURS)]
    rows = parts.partition_rows(device, min(room, _WIDEST) if room >= _NARROWEST else 0)
    styles = {i: ("bold", "", "dim")[row[0].depth] for i, row in enumerate(rows)}
    body.append(Fitted(filled(parts.PARTITION_TABLE, rows), styles=styles, signs=parts.COLOURS))
    notes = (parts.apart_line(device), parts.check_line(device) if view.full else None)
    title = say("where the time goes: {facts}", facts=chain(*facts, by=" · "))
    return section(title, *body, *(line(note, "dim") for note in notes if note))


def _window(what: Any) -> Partition:
    """Return the split of a step, or of what is judged of a device."""
    split: Partition = what.window if isinstance(what, Device) else what.partition
    return split


def _share_of_span(part: str) -> Callable[..., Cell]:
    def get(*row: Any) -> Cell:
        partition = _window(row[-1])
        return getattr(partition, part) / partition.span_ns if partition.span_ns else None

    return get


def _blocks(operator: Operator) -> str | None:
    blocks = operator.block_dim
    return None if blocks is None else "–".join(dict.fromkeys((str(blocks.min), str(blocks.max))))


def _unit(operator: Operator) -> str | None:
    """Name the unit that is busy most by the counters, and its side where an operator runs on cube and vector cores."""
    pmu = operator.pmu
    busiest = pmu.sides[0].units[0] if pmu is not None and pmu.sides else None
    if pmu is None or busiest is None or busiest.ratio <= 0:
        return None
    side = {"cube": "AIC ", "vector": "AIV "}.get(pmu.sides[0].side or "", "") if len(pmu.sides) > 1 else ""
    return side + text(say("{unit} {ratio}", unit=UNITS[busiest.unit], ratio=share(busiest.ratio)))


# fmt: off
#: The field's short names, to leave room for the code line.
_CORES: Final = {"AI_CORE": "AIC", "AI_VECTOR_CORE": "AIV", "COMMUNICATION": "COMM"}
_SHARES: Final = (
    Column("span", say("ms"), "duration", lambda *row: _window(row[-1]).span_ns),
    Column("compute", say("compute"), "share", _share_of_span("compute_ns")),
    Column("comm", say("comm."), "share", _share_of_span("comm_exposed_ns")),
    Column("other", say("other"), "share", _share_of_span("other_exposed_ns")),
    Column("idle", say("idle"), "share", _share_of_span("idle_ns")),
    Column("host", say("host wait"), "share", _share_of_span("host_wait_ns")),
    Column("bound", say("verdict"), "word", lambda *row: sure(row[-1].verdict.bound, row[-1].verdict.basis)),
)
_COMPACT_DEVICES: Final = (
    NAMED["devices"]
    .only("run", "rank", "device", "stage", *_SHARES[:3], "bubble", *_SHARES[3:])
    .titled(say("devices, in % of span"))
)
_COMPACT_STEPS: Final = NAMED["steps"].only("step", *_SHARES).titled(say("steps, in % of span"))
_COMPACT_HOST: Final = NAMED["host_work"].only(
    "rank", "cause", "name", Column("ms", say("ms"), "duration", lambda run, work: work.self_ns / run.per_step),
    Column("share", say("%"), "share", lambda run, work: work.self_ns / run.span_ns),
    Column("calls", say("n"), "plain", lambda run, work: None if work.calls is None else work.calls / run.per_step),
    "where",
).titled(say("what the host did, each by itself, per step on average"))  # fmt: skip
_COMPACT_OPERATORS: Final = NAMED["operators"].only(
    Column("type", say("type"), "kernel", weight=0),
    Column("core", say("core"), get=lambda o, _: _CORES.get(o.core, o.core), weight=2),
    Column("count", say("n"), "id"),
    Column("total", say("ms"), "duration", "total_ns"),
    Column("share", say("%"), "share"),
    Column("peak", say("peak %"), "share", of_peak, 2),
    Column("unit", say("busiest unit"), get=lambda o, _: _unit(o), weight=2, least=18),
    Column("blocks", say("blocks"), get=lambda o, _: _blocks(o), weight=3),
    Column("used", say("held %"), "share", weight=3,
           get=lambda o, _: max((u for u in (o.occupancy_cube, o.occupancy_vector) if u is not None), default=None)),
    Column("where", say("where"), "code", get=lambda o, _: o.where or o.torch_op, weight=0),
    Column("spread", say("min–max us"), weight=EXTRA,
           get=lambda o, _: "–".join(grouped(end / NS_PER_US, 3) for end in (o.min_ns, o.max_ns))),
    Column("torch_op", say("torch operator"), weight=EXTRA),
).titled(say("operators, in % of operator time"))
# fmt: on


def _compact(table: Table, result: Result, view: View, rows: int) -> Iterator[RenderableType]:
    found = fill(table, result, rows_of(view, rows))
    if found.rows:
        yield section(found.title, Fitted(found))


def _ran(result: Result) -> Iterator[RenderableType]:
    """Show what was run, where and when."""
    facts = RichTable.grid(padding=(0, 2, 0, 0))
    for said in parts.ran_lines(result):
        facts.add_row(line(said.label or ""), Text(text(said.content), said.style, overflow="fold"))
    yield section(say("what was run"), facts)


def _all_tables(result: Result, view: View) -> Iterator[RenderableType]:
    """Yield every table that is not on the screen anyway."""
    alone = len(result.devices) == 1  # of which the screen has what the table of devices has
    for table in tables_of(Result):
        if not table.aside and not (alone and table.name == "devices"):
            found = fill(table, result, view.top)
            if found.rows:
                yield section(found.title, Fitted(found))


# -- The screen of a comparison: the verdict first, then the set-ups, the gates, and what changed.

_FINDINGS, _SHIFTS, _ALIGNED, _PROBLEMS, _WARNINGS = 5, 5, 3, 2, 2
#: With less room a part of the waterfall and what it is about share a column.
_ROOM = 60
_NARROW_FALLS: Final = compared.FALLS.only(
    Column("what", say("what"), get=lambda fall: f"{text(fall.part)} {fall.what}".rstrip(), weight=0),
    *("delta_ns", "count_ns", "speed_ns"),
)
_FEW_SHIFTS: Final = NAMED["shifts"].only(
    "what", "old", "new", Column("apart", say("differs by"), get=compared.interval), "verdict"
)


def _compared(result: Result, comparison: Comparison, view: View) -> Iterator[RenderableType]:
    """Show all that there is on the difference of two sides."""
    c = comparison
    tool = f"{result.tool.name} {result.tool.version}"
    against = say("{new} against {old}", new=c.new, old=c.old)
    yield Text.assemble((tool, "bold"), f"  {text(against)}")
    yield line_text(compared.verdict_line(c))
    facts = RichTable.grid(padding=(0, 2, 0, 0))  # how long the steps are, and what differs between the set-ups
    for said in compared.step_lines(c, 1 if result.digest is None else result.digest.devices):
        facts.add_row(line(said.label or ""), line(said.content))
    for place, said in enumerate(compared.parity_lines(c, None if view.full else compared.DIFFERENCES)):
        style = terminal.LINE_STYLES.get(said.style, said.style)
        facts.add_row(line("" if place else say("set-up")), line(said.content, style))
    yield facts
    minds = c.warnings[: rows_of(view, _WARNINGS)]
    yield from (*map(line_text, warnings(minds)), *terminal.cut(len(minds), len(c.warnings), _all))
    yield from map(line_text, problem_lines(result))
    yield from device_text.gate_parts(result, view)

    rows = compared.falls(c, rows_of(view, compared.PARTS))
    if rows:
        table = filled(compared.FALLS if view.width >= _ROOM else _NARROW_FALLS, rows)
        last, signs = {len(rows) - 1: "bold"}, {"+": "red", "-": "green"}
        yield section(compared.falls_title(c), Fitted(table, styles=last, signs=signs))
    elif c.waterfall:
        yield line(compared.unchanged(c), "dim")
    if work := compared.work_line(c):
        yield line(work)

    changes = [f for f in c.findings if f.change != "same"]
    shown = changes[: rows_of(view, _FINDINGS)]
    lines = RichTable.grid(padding=(0, 2, 0, 0))
    for said in map(compared.finding_line, shown):
        what = line(said.content)
        style = terminal.LINE_STYLES.get(said.style, said.style)
        lines.add_row(line(said.label or "", style), what)
    if shown:
        n = how_many(len(shown), len(changes))
        yield section(say("findings that are new, gone or changed ({n})", n=n), lines)

    if peak := compared.memory_line(c):
        parts = [(change,) for change in compared.of_peak(c)]
        table = filled(NAMED["memory_changes"], parts, rows_of(view, _SHIFTS))
        more = terminal.cut(len(table.rows), len(parts),
                            lambda few: say("{shown} parts; --table memory_changes shows all", shown=few))  # fmt: skip
        yield section(peak, Fitted(table), *more)
    if view.full:
        measured = [fill(table, result, view.top) for table in (NAMED["shifts"], NAMED["compared"])]
    else:  # what changed of what was measured on both sides
        judged = sorted(c.shifts, key=lambda shift: shift.verdict == "cannot_tell")
        changed = [(shift,) for shift in judged if shift.verdict != "same"]
        measured = [filled(_FEW_SHIFTS.titled(say("what else changed")), changed, rows_of(view, _SHIFTS))]
    yield from (section(found.title, Fitted(found)) for found in measured if found.rows)
    aligned = c.aligned[: rows_of(view, _ALIGNED)]
    if aligned:
        more = terminal.cut(len(aligned), len(c.aligned), _all)
        yield section(say("steps and phases"), *map(line, aligned), *more)


def _all(few: str) -> Message:
    return say("{shown} shown; --full shows all", shown=few)

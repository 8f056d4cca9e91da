"""Text for the terminal: the verdict first, one screen, and everything with ``--full``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.console import RenderableType

from npuperf.documents.analysis import Device, Operator, Partition, Result
from npuperf.messages import Message, chain, say
from npuperf.render import View
from npuperf.render.analysis_page import (
    COLOURS,
    LETTERS,
    PARTITION_TABLE,
    apart_line,
    check_line,
    partition_bar,
    partition_rows,
)
from npuperf.render.analysis_tables import DEVICES, LONG, OPERATORS, STEPS, TABLES, TOLD
from npuperf.render.core_text import core_lines, gate_parts
from npuperf.render.dependency_text import dependency_lines
from npuperf.render.finding_text import finding_lines, footer, what_if_lines
from npuperf.render.host_text import blame_lines, phase_lines
from npuperf.render.language import text
from npuperf.render.page import problem_lines
from npuperf.render.scope_text import scope_sections
from npuperf.render.signs import Spark, any_of, spark
from npuperf.render.tables import EXTRA, Cell, Column, Table, fill, filled
from npuperf.render.terminal import (
    BOUNDS,
    Fitted,
    Text,
    indented,
    legend_of,
    line,
    line_text,
    painted,
    print_all,
    rows_of,
    section,
)
from npuperf.render.terminal import render_text as render_page
from npuperf.render.words import BOUND, steps_line, sure, verdict_of
from npuperf.units import NS_PER_US, grouped

#: The field's short names, to leave room for the code line.
_CORES: Final = {"AI_CORE": "AIC", "AI_VECTOR_CORE": "AIV", "COMMUNICATION": "COMM"}
_DEVICES, _OPERATORS, _STEPS = 16, 8, 5
#: A bar beside numbers has no less room than this, and no more; sections stand so much to the right.
_NARROWEST, _WIDEST, _INDENT = 16, 120, 2
#: Fewer steps are no series; of more than so many signs nobody sees the one that matters.
_SERIES, _MOST_SIGNS = 3, 100


def render_text(result: Result, view: View) -> str:
    """Return the report, or one table of it."""
    if view.table is not None:
        return render_page(result, view)
    if result.comparison is None:
        return _report(result, view)
    from npuperf.render.comparison_text import comparison_screen, full_comparison  # which few ask for

    if view.full:
        return f"{full_comparison(result, result.comparison, view)}\n{_report(result, view)}"
    return comparison_screen(result, result.comparison, view)


def _report(result: Result, view: View) -> str:
    if result.cluster is None:
        return print_all(_screen(result, view), view)
    from npuperf.render.job_screen import render_job  # much that one device has no use for

    return render_job(result, result.cluster, view)


def _screen(result: Result, view: View) -> Iterator[RenderableType]:
    yield from head(result, steps_line(result), view)
    yield from devices(result, view)
    yield from finding_lines(result, view)
    if view.full:
        yield from all_tables(result, view)
    yield from footer(result, view)


def head(result: Result, steps: Message, view: View) -> Iterator[RenderableType]:
    """Yield what every screen begins with: what was analyzed, and the verdict."""
    yield _header(result)
    yield from _steps(result, steps, view)
    yield _verdict(result)
    if result.comparison is None:  # which says it before
        yield from map(line_text, problem_lines(result))
        yield from gate_parts(result, view)


def devices(result: Result, view: View) -> Iterator[RenderableType]:
    """Yield where the time of the devices goes."""
    if len(result.devices) == 1:
        yield _partition(result, view)
    elif result.devices:
        yield from _compact(_COMPACT_DEVICES, result, view, _DEVICES)
    if result.devices:
        waiting, several = max(result.devices, key=lambda d: d.window.host_wait_ns), len(result.devices) > 1
        yield from phase_lines(waiting, several, view)
        yield from blame_lines(waiting, several, view)
        held = max(result.devices, key=lambda d: d.window.dependency_wait_ns)
        yield from dependency_lines(held, several, view)
    yield from what_if_lines(result, view)
    if not view.full:  # where they are among the tables
        if result.devices and not result.devices[0].typical_step and len(result.devices) == 1:
            yield from _compact(_COMPACT_STEPS, result, view, _STEPS)
        yield from _compact(_COMPACT_OPERATORS, result, view, _OPERATORS)
    yield from core_lines(result, view)
    yield from scope_sections(result, view)


def _header(result: Result) -> Text:
    tool = f"{result.tool.name} {result.tool.version}"
    return Text.assemble((tool, "bold"), f"  {result.input.path}", (f"  {result.input.kind}", "dim"))


def _steps(result: Result, steps: Message, view: View) -> Iterator[RenderableType]:
    """Say how long the steps are, and draw it where there are several: beside what is said if there is room."""
    said = line(steps, "bold")
    times = _step_times(result)
    if len(times) < _SERIES:
        yield said
        return
    drawn = spark(list(times.values()), max(min(view.width - _INDENT, _MOST_SIGNS), 1), view.blocks)
    odd = {step.step for device in result.devices if device.typical_step for step in device.typical_step.odd}
    marks = "".join("^" if marked else " " for marked in any_of([step in odd for step in times], drawn.each))
    picture = Text()
    for sign, mark in zip(drawn.signs, marks, strict=True):
        picture.append(sign, "yellow" if mark == "^" else "cyan")
    facts = Text(f"  {text(_drawn(drawn, len(result.devices) > 1, view))}", "dim")
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


def _step_times(result: Result) -> dict[int, int]:
    """Return how long every step is, ns; on several devices the longest of each."""
    times: dict[int, int] = {}
    for device in result.devices:
        for step in device.whole_steps:
            times[step.step] = max(times.get(step.step, 0), step.partition.span_ns)
    return dict(sorted(times.items()))


def _drawn(drawn: Spark, several: bool, view: View) -> Message:
    """Say what the signs of a series of steps mean."""
    scale = say("from 0") if view.blocks else say("from 0 to 8, the longest")
    several_each = say("each sign: the longest of {n} steps", n=drawn.each) if drawn.each > 1 else None
    return chain(scale, several_each, say("the slowest device of each step") if several else None)


def _verdict(result: Result) -> Text:
    bound = result.verdict.bound
    return Text.assemble((text(BOUND[bound]), f"bold {BOUNDS[bound]}"), f"  {text(verdict_of(result))}")


def _partition(result: Result, view: View) -> RenderableType:
    device = result.devices[0]
    numbers = Fitted(filled(PARTITION_TABLE.only("part", "ns", "share"), partition_rows(device)))
    room = view.width - _INDENT - numbers.width
    rows = partition_rows(device, min(room, _WIDEST) if room >= _NARROWEST else 0)
    styles = {i: ("bold", "", "dim")[row[0].depth] for i, row in enumerate(rows)}
    title = say("where the time goes: {facts}", facts=chain(*_facts(result, device), by=" · "))
    notes = (apart_line(device.window), check_line(device) if view.full else None)
    said = (line(note, "dim") for note in notes if note)
    bar = () if room >= _NARROWEST else _bar(device, view)
    return section(title, *bar, Fitted(filled(PARTITION_TABLE, rows), styles=styles, signs=COLOURS), *said)


def _bar(device: Device, view: View) -> Iterator[Text]:
    """Draw where the time goes above the numbers, where there is no room beside them."""
    letters = partition_bar(device.window, view.width - _INDENT)
    yield painted(letters, COLOURS)
    yield legend_of({letter: LETTERS[letter] for letter in dict.fromkeys(letters)}, COLOURS)


def _facts(result: Result, device: Device) -> Iterator[Message]:
    """Say which device it is and how it was recorded."""
    if device.rank is not None:
        yield say("rank {rank}", rank=device.rank)
    yield say("device {device}", device=device.device)
    if device.soc:
        yield say("{soc}", soc=device.soc)
    if result.input.kind == "kineto":
        return
    if device.cores_cube is None:
        yield say("core counts unknown")
    else:
        yield say("{cube} cube and {vector} vector cores", cube=device.cores_cube, vector=device.cores_vector)
    if device.level:
        yield say("{level}", level=device.level)


def _window(what: Any) -> Partition:
    """Return the split of a step, or of what is judged of a device."""
    split: Partition = what.window if isinstance(what, Device) else what.partition
    return split


def _share_of_span(part: str) -> Callable[..., Cell]:
    def get(*row: Any) -> Cell:
        partition = _window(row[-1])
        return getattr(partition, part) / partition.span_ns if partition.span_ns else None

    return get


# fmt: off
_SHARES: Final = (
    Column("span", say("ms"), "duration", lambda *row: _window(row[-1]).span_ns),
    Column("compute", say("compute"), "share", _share_of_span("compute_ns")),
    Column("comm", say("comm."), "share", _share_of_span("comm_exposed_ns")),
    Column("other", say("other"), "share", _share_of_span("other_exposed_ns")),
    Column("idle", say("idle"), "share", _share_of_span("idle_ns")),
    Column("host", say("host wait"), "share", _share_of_span("host_wait_ns")),
    Column("bound", say("verdict"), "word", lambda *row: sure(row[-1].verdict.bound, row[-1].verdict.basis)),
)
# fmt: on


def _us(ns: int) -> str:
    return grouped(ns / NS_PER_US, 3)


def _used(operator: Operator) -> float | None:
    return max((u for u in (operator.occupancy_cube, operator.occupancy_vector) if u is not None), default=None)


def _blocks(operator: Operator) -> str | None:
    blocks = operator.block_dim
    return None if blocks is None else "–".join(dict.fromkeys((str(blocks.min), str(blocks.max))))


_COMPACT_DEVICES: Final = DEVICES.only("rank", "device", *_SHARES).titled(say("devices, in % of span"))
_COMPACT_STEPS: Final = STEPS.only("step", *_SHARES).titled(say("steps, in % of span"))
_COMPACT_OPERATORS: Final = OPERATORS.only(
    Column("type", say("type"), "kernel", weight=0),
    Column("core", say("core"), get=lambda o: _CORES.get(o.core, o.core)),
    Column("count", say("n"), "id"),
    Column("total", say("ms"), "duration", "total_ns"),
    Column("share", say("%"), "share"),
    Column("blocks", say("blocks"), get=_blocks),
    Column("used", say("used %"), "share", _used),
    Column("where", say("where"), get=lambda o: o.where or o.torch_op),
    Column("spread", say("min–max us"), get=lambda o: f"{_us(o.min_ns)}–{_us(o.max_ns)}", weight=EXTRA),
    Column("torch_op", say("torch operator"), weight=EXTRA),
).titled(say("operators, in % of operator time"))


def _compact(table: Table, result: Result, view: View, rows: int) -> Iterator[RenderableType]:
    found = fill(table, result, rows_of(view, rows))
    if found.rows:
        yield section(found.title, Fitted(found, one_line=True))


def all_tables(result: Result, view: View) -> Iterator[RenderableType]:
    """Yield every table that is not on the screen anyway."""
    alone = len(result.devices) == 1 and result.devices[0].window == result.devices[0].partition
    shown_before = {"findings", *LONG, *TOLD, *(("devices",) if alone else ())}
    for table in TABLES:
        found = fill(table, result, view.top)
        if found.rows and table.name not in shown_before:
            yield section(found.title, Fitted(found))

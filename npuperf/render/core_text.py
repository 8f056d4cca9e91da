"""Text on cores: gates on them, how many are used over time, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType

from npuperf.documents.analysis import CoreSide, CoresOverTime, CoreTime, Result
from npuperf.messages import Message, chain, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.analysis_tables import GATES
from npuperf.render.language import text
from npuperf.render.page import gate_line
from npuperf.render.signs import heights, thinned
from npuperf.render.tables import Column, filled
from npuperf.render.terminal import Fitted, Text, cut, indented, line, line_text, rows_of
from npuperf.render.words import device_name

#: A picture of cores over time has no less room than this; what is said before it is so wide.
_NARROWEST, _BEFORE, _NAME = 8, 46, 12
_OVER, _PAIRS, _WAITS = 5, 1, 2

_OVER_LIMIT: Final = GATES.only(
    Column("stream", say("stream"), "id", weight=0),
    Column("type", say("type"), "kernel", lambda o: o.type or o.name, 0),
    "core",
    Column("count", say("n"), "id"),
    Column("cube", say("cube"), "id", weight=0),
    Column("vector", say("vector"), "id", weight=0),
    Column("reason", say("likely reason"), "message"),
)


def gate_parts(result: Result, view: View) -> Iterator[RenderableType]:
    """Show what every gate said, and the kernels above a limit."""
    for gate in result.gates:
        yield line_text(gate_line(gate))
        if gate.over:
            found = filled(_OVER_LIMIT, [(row,) for row in gate.over], rows_of(view, _OVER))
            yield indented(Fitted(found))
            yield from cut(len(found.rows), found.total, _all_in_csv)


def _all_in_csv(few: str) -> Message:
    return say("{shown} kinds of kernels; --format csv --table gates shows all", shown=few)


def core_lines(result: Result, view: View) -> Iterator[RenderableType]:
    """Say how many cores are used, draw it over time, and say which streams wait for each other's cores."""
    for device in result.devices[:1] if result.input.kind != "kineto" else ():
        use, over = device.cores, device.cores.over_time
        if len(result.devices) > 1:
            yield line(say("cores used on {device}", device=device_name(device)), "bold")
        if use.cube:
            yield _side(say("cube cores"), use.cube, over.cube if over else None, view)
        if use.vector:
            yield _side(say("vector cores"), use.vector, over.vector if over else None, view)
        if not (use.cube or use.vector):
            yield line(say("cores used: {reason}", reason=use.reason or say("no core figures")))
        if over:
            yield from map(indented, _streams(over, max(len(device.steps), 1), view))


def _side(name: Message, side: CoreSide, time: CoreTime | None, view: View) -> Text:
    """Say how many cores of a side are used, and draw it over time where there is room."""
    busy, span = share(side.occupancy_busy), share(side.occupancy_span)
    cores = set_cell_size(text(name), max(cell_len(text(name)), _NAME))
    used = text(say("{cores} {busy} while busy, {span} of span", cores=cores, busy=busy, span=span))
    used = set_cell_size(used, max(cell_len(used), _BEFORE)) + " "
    slices = thinned(time.slices, view.width - cell_len(used)) if time else []
    if len(slices) < _NARROWEST:
        return Text(used.rstrip())
    return Text.assemble(used, (heights(slices, view.blocks), "cyan"), no_wrap=True)


def _streams(use: CoresOverTime, steps: int, view: View) -> Iterator[Text]:
    """Name overlap of streams and their waits for each other's cores."""
    if not use.pairs:
        return
    for pair in use.pairs[: rows_of(view, _PAIRS)]:
        beside = say("streams {one} and {other} run side by side for {share} of the shorter's time",
                     one=pair.streams[0], other=pair.streams[1], share=share(pair.share))  # fmt: skip
        more = say("{time} of it requesting more cores than there are", time=ns(pair.over_ns)) if pair.over_ns else None
        yield line(chain(beside, more, by=", "))
    for wait in use.contention[: rows_of(view, _WAITS)]:
        time = ns(wait.least_ns // steps, wait.most_ns // steps)
        waits = say("stream {stream} waits for cores held by {holders}: {time} per step",
                    stream=wait.stream, holders=_holders(wait.holders), time=time)  # fmt: skip
        yield line(chain(waits, say_n("{n} kernel", "{n} kernels", wait.kernels), by=", "), "yellow")
    if use.contention_reason:
        yield line(use.contention_reason, "dim")


def _holders(streams: list[int]) -> Message:
    if not streams:
        return say("another stream")
    if len(streams) == 1:
        return say("stream {stream}", stream=streams[0])
    *most, last = streams
    return say("streams {most} and {last}", most=series(most), last=last)

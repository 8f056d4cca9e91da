"""Text on cores: gates on them, how many are used over time, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from npuperf.documents.analysis import CoreSide, CoresOverTime, CoreTime, Result
from npuperf.documents.gates import Gate
from npuperf.messages import Message, chain, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.language import text, words
from npuperf.render.page import gate_lines
from npuperf.render.page_text import line_text
from npuperf.render.tables import Column, Table, filled, how_many
from npuperf.render.terminal import Fitted, indented, rows_of
from npuperf.render.words import device_name

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_OVER, _PAIRS, _WAITS = 5, 1, 2

_OVER_LIMIT: Final = Table(
    "gates",
    say("kernels above the limit"),
    lambda _: (),
    (
        Column("stream", say("stream"), "id", weight=0),
        Column("type", say("type"), get=lambda o: o.type or o.name, weight=0),
        Column("core", say("core")),
        Column("count", say("n"), "id"),
        Column("cube", say("cube"), "id", weight=0),
        Column("vector", say("vector"), "id", weight=0),
        Column("reason", say("likely"), "message"),
    ),
)


def gate_parts(result: Result, view: View) -> Iterator[RenderableType]:
    """Show what every gate said, and the kernels above a limit."""
    for gate, line in zip(result.gates, gate_lines(result), strict=True):
        yield line_text(line)
        if gate.over:
            yield from _over(gate, view)


def _over(gate: Gate, view: View) -> Iterator[RenderableType]:
    found = filled(_OVER_LIMIT, [(row,) for row in gate.over], rows_of(view, _OVER))
    yield indented(Fitted(found))
    if len(found.rows) < found.total:
        shown = how_many(len(found.rows), found.total)
        yield Text(words("{shown} kinds of kernels; --format csv --table gates has all", shown=shown), style="dim")


def core_lines(result: Result, view: View) -> Iterator[RenderableType]:
    """Say how many cores are used, draw it over time, and say which streams wait for each other's cores."""
    for device in result.devices[:1] if result.input.kind != "kineto" else ():
        use, over = device.cores, device.cores.over_time
        if len(result.devices) > 1:
            yield Text(words("cores used on {device}", device=device_name(device)), style="bold")
        if use.cube:
            yield _side(say("cube cores"), use.cube, over.cube if over else None)
        if use.vector:
            yield _side(say("vector cores"), use.vector, over.vector if over else None)
        if not (use.cube or use.vector):
            yield Text(words("cores used: {reason}", reason=use.reason or say("no core figures")))
        if over:
            yield from map(indented, _streams(over, max(len(device.steps), 1), view))


def _side(name: Message, side: CoreSide, time: CoreTime | None) -> Text:
    busy, span = share(side.occupancy_busy), share(side.occupancy_span)
    used = words("{cores} {busy} while busy, {span} in all", cores=f"{text(name):<12}", busy=busy, span=span)
    picture = "".join(_LEVELS[_level(x)] for x in time.slices) if time else ""
    return Text.assemble(f"{used:<46} ", (picture, "cyan"), no_wrap=True)


def _level(part: float) -> int:
    """Return the height of a bar; anything but nothing is seen."""
    return max(round(part * (len(_LEVELS) - 1)), 1 if part > 0 else 0)


def _streams(use: CoresOverTime, steps: int, view: View) -> Iterator[Text]:
    """Name overlap of streams and their waits for each other's cores."""
    if not use.pairs:
        return
    for pair in use.pairs[: rows_of(view, _PAIRS)]:
        one, other = pair.streams
        part = share(pair.share)
        beside = say(
            "streams {one} and {other} run side by side for {share} of the shorter's time",
            one=one,
            other=other,
            share=part,
        )
        more = say("{time} of it asking for more cores than there are", time=ns(pair.over_ns)) if pair.over_ns else None
        yield Text(text(chain(beside, more, by=", ")))
    for wait in use.contention[: rows_of(view, _WAITS)]:
        waits = say(
            "stream {stream} waits for cores that {holders} holds: {time} per step",
            stream=wait.stream,
            holders=_holders(wait.holders),
            time=ns(wait.least_ns // steps, wait.most_ns // steps),
        )
        yield Text(text(chain(waits, say_n("{n} kernel", "{n} kernels", wait.kernels), by=", ")), style="yellow")
    if use.contention_reason:
        yield Text(text(use.contention_reason), style="dim")


def _holders(streams: list[int]) -> Message:
    if not streams:
        return say("another stream")
    if len(streams) == 1:
        return say("stream {stream}", stream=streams[0])
    *most, last = streams
    return say("streams {most} and {last}", most=series(most), last=last)

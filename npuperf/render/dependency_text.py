"""Text on what the device waited for once its next task was launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from rich.console import RenderableType

from npuperf.documents.analysis import Dependency, Device
from npuperf.messages import Message, chain, ns, say
from npuperf.render import View
from npuperf.render.analysis_tables import DEPENDENCIES
from npuperf.render.host_text import WORTH
from npuperf.render.tables import Column, filled, how_many
from npuperf.render.terminal import Fitted, line, rows_of, section
from npuperf.render.words import WAITED_FOR, named
from npuperf.units import short_name

_KINDS: Final = 3
#: What a device may wait for where that is inferred from times.
_PERHAPS: Final = {
    "stream": say("another stream?"),
    "communication": say("communication?"),
    "copy": say("a copy?"),
    "event": say("an event?"),
    "launch": say("the launch on its way?"),
    "switch": say("the next task of a stream?"),
    "host_call": say("a call of the host?"),
    "unrecorded": say("nothing recorded"),
}


class WaitedFor(Struct, frozen=True):
    """All waits of one kind, and the line of it that took longest."""

    ns: int
    wait: int
    certain: bool
    mostly: Dependency

    @property
    def what(self) -> Message:
        """What was waited for."""
        return (WAITED_FOR if self.certain else _PERHAPS)[self.mostly.kind]

    @property
    def example(self) -> Message | None:
        """What took longest, and where; of what is not recorded, what the host did meanwhile."""
        mostly, where = self.mostly, say("{where}", where=self.mostly.where) if self.mostly.where else None
        if mostly.kind == "unrecorded":
            between = None if mostly.stream is None else say("between two tasks of stream {n}", n=mostly.stream)
            idle = say("the host, too, waited in {call}", call=mostly.meanwhile) if mostly.meanwhile else None
            return chain(between, where, idle, by=", ") if between or where or idle else None
        short = short_name(mostly.name)
        name = say("{name}", name=short)
        if mostly.stream is not None:
            name = say("{name} of stream {stream}", name=short, stream=mostly.stream)
        return chain(name, where, by=", ")


_COLUMNS: Final = DEPENDENCIES.only(
    Column("what", say("what for"), "message", weight=0),
    Column("ns", say("ms"), "duration", weight=0),
    Column("share", say("%"), "share", lambda w: w.ns / w.wait),
    Column("example", say("mostly"), "message"),
)


def dependency_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Say what the device waited for, where that is a notable part of the time."""
    wait = sum(d.ns for d in device.dependencies)
    if not wait or wait < WORTH * device.window.span_ns:
        return
    kinds = _kinds(device.dependencies, wait)
    table = filled(_COLUMNS, [(kind,) for kind in kinds], rows_of(view, _KINDS))
    unrecorded = sum(k.ns for k in kinds if k.mostly.kind == "unrecorded")
    needs = next((d.needs for d in device.dependencies if d.needs), None)
    notes = [line(needs, "dim")] if needs and unrecorded >= WORTH * device.window.span_ns else []
    title = say(
        "waiting for a dependency, {wait}: what for ({shown} kinds), in % of the wait",
        wait=ns(wait),
        shown=how_many(len(table.rows), table.total),
    )
    yield section(named(device, title, several), Fitted(table, one_line=True), *notes)


def _kinds(dependencies: list[Dependency], wait: int) -> list[WaitedFor]:
    """Sum up by kind, the longest first."""
    groups: dict[str, list[Dependency]] = {}
    for piece in dependencies:
        groups.setdefault(piece.kind, []).append(piece)
    kinds = [
        WaitedFor(
            sum(d.ns for d in lines), wait, all(d.certain for d in lines),
            next((d for d in lines if d.name != "others"), lines[0]),
        )
        for lines in groups.values()
    ]  # fmt: skip
    return sorted(kinds, key=lambda k: -k.ns)

"""Text on a job of several ranks: why they wait, the pipeline, a bar per rank, links and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table as RichTable

from npuperf.documents.cluster import Cluster, Root
from npuperf.messages import NOTHING, Message, say, say_n, series
from npuperf.render import View
from npuperf.render.cluster_rows import Slice, mean_of, outliers, roots_by_gain, slice_of
from npuperf.render.cluster_tables import RANKS
from npuperf.render.cluster_words import (
    clocks_line,
    links_line,
    notes_of,
    others_line,
    pipeline_lines,
    pipeline_title,
    pointer,
    replay_line,
    root_line,
    slow_link,
    slow_links,
    taking_line,
    waiting_title,
    worth_showing,
)
from npuperf.render.language import text
from npuperf.render.tables import Column, Filled, filled
from npuperf.render.terminal import Fitted, Text, hanging, line, one_line, rows_of, section
from npuperf.units import percent

_WIDEST, _NARROWEST = 100, 18
#: Lengths of steps are worth a column where they differ by more than this share.
_UNEVEN: Final = 0.005
#: Kinds of waiting that take less of the step are hardly seen in a bar.
_SEEN: Final = 0.01
_COMPUTE, _TRANSFER, _HOST, _IDLE, _UNKNOWN, _WAIT = "█", "▓", "H", "·", "?", "w"
#: Letters of waiting, by the kind of the group that ranks wait in.
_WAITS: Final = {"pp": "p", "dp": "d", "dp_cp": "d", "tp": "t", "ep": "e", "exp": "e"}
#: So many kinds of groups without a letter of their own are named.
_OTHERS: Final = 3
_SIGNS: Final = {
    _COMPUTE: "cyan", _TRANSFER: "magenta", "p": "red", "d": "red", "t": "red", "e": "red", _WAIT: "red",
    _HOST: "yellow", _IDLE: "dim", _UNKNOWN: "dim",
}  # fmt: skip


class Room(Struct, frozen=True):
    """How much of each there is room for on a screen.

    ``detailed``: causes with the operators that take the time, and with next steps that wrap; ``brief``: findings
    without what to do.
    """

    roots: int
    detailed: int
    ranks: int
    links: int
    findings: int
    changes: int
    notes: int
    brief: bool = True


#: From the most that a screen of a job shows to the least.
ROOMS: Final = (
    Room(5, 5, 8, 3, 3, 2, 3, brief=False),
    Room(5, 3, 8, 3, 2, 2, 2, brief=False),
    Room(5, 3, 8, 3, 3, 2, 1),
    Room(4, 3, 8, 3, 2, 1, 1),
    Room(4, 2, 6, 2, 2, 1, 0),
    Room(4, 2, 6, 2, 2, 0, 0),
    Room(3, 2, 5, 2, 2, 0, 0),
    Room(3, 1, 4, 2, 2, 0, 0),
    Room(3, 1, 3, 1, 1, 0, 0),
    Room(2, 1, 3, 1, 1, 0, 0),
    Room(2, 0, 3, 1, 1, 0, 0),
    Room(1, 0, 3, 1, 1, 0, 0),
)


def job_parts(cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    """Show what several ranks tell together."""
    if cluster.roots:
        yield from _roots(cluster, view, room)
    if cluster.pipeline:
        lines = (line(said) for said in pipeline_lines(cluster))
        yield section(pipeline_title(cluster.pipeline), *lines)
    if cluster.ranks:
        yield from _ranks(cluster, view, room)
    yield from _links(cluster, view, room)
    yield from _asides(cluster, view, room)


def roots_shown(cluster: Cluster, view: View, room: Room) -> list[Root]:
    """Return the causes that a screen shows."""
    few = rows_of(view, room.roots)
    return roots_by_gain(cluster) if few is None else worth_showing(cluster)[:few]


def _roots(cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    """Show the root causes: their share of all waiting, what they cost, what takes the time, what to do."""
    shown = roots_shown(cluster, view, room)
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for i, root in enumerate(shown):
        detailed = view.full or i < room.detailed
        grid.add_row(Text(percent(root.share), "bold"), Group(*_root(root, cluster, detailed)))
    reliable = replay_line(cluster) if any(r.gain_ns_per_step for r in shown) else None
    yield section(waiting_title(cluster, len(shown)), grid, *([line(reliable, "dim")] if reliable else []))


def _root(root: Root, cluster: Cluster, detailed: bool) -> Iterator[Text]:
    yield line(root_line(root, cluster))
    taking = taking_line(root)
    if taking and detailed:
        yield one_line(line(taking, "dim"))
    if root.next:
        next_ = Text.assemble(("→ ", "bold green"), (text(root.next), "green"))
        yield next_ if detailed else one_line(next_)


def _who(row: Slice) -> str:
    return text(say("all")) if row.rank is None else str(row.rank)


_RANK: Final = Column("rank", say("rank"), "id", _who, 0)
_STAGE: Final = Column("stage", say("stage"), "id", weight=0, quiet=True)
_STEP: Final = Column("step_ns", say("step ms"), "duration", weight=0)
_IDLES: Final = Column("idle", say("idle"), "share")
_SHARES: Final = (
    Column("compute", say("compute"), "share", weight=0),
    Column("transfer", say("transfer"), "share"),
    Column("wait", say("waits"), "share", weight=0),
    Column("unknown", say("unknown"), "share", lambda row: row.unknown or None),
)
_HOSTS: Final = Column("host", say("host"), "share", lambda row: row.host or None)
_SLICES: Final = RANKS.titled(say("ranks"))


def _ranks(cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    """Show where the time of the most unusual ranks goes, as numbers and as bars, and say what the others are like."""
    listed, rest = outliers(cluster, rows_of(view, room.ranks))
    everyone = mean_of([slice_of(r, cluster.steps) for r in cluster.ranks])
    rows = [everyone, *(slice_of(r, cluster.steps) for r in listed)]
    table = _with_bars(rows, view.width)
    parts: list[RenderableType] = [Fitted(table, one_line=True, styles={0: "bold"}, signs=_SIGNS)]
    if table.table.columns[-1].unit == "bar":
        parts.insert(0, _legend(rows))
    if rest:
        parts.append(line(others_line([slice_of(r, cluster.steps) for r in rest])))
    yield section(say("where the step goes, in % of it, the most unusual ranks first"), *parts)


def _with_bars(rows: list[Slice], width: int) -> Filled:
    """Return the table of ranks with bars in the room beside the numbers; idle time, which they show, makes room."""
    steps = [row.step_ns for row in rows]
    who = [_RANK, _STAGE, *([_STEP] if max(steps) - min(steps) > _UNEVEN * max(steps) else [])]
    whole = [(row,) for row in rows]
    for numbers in ((*_SHARES, _HOSTS, _IDLES), (*_SHARES, _HOSTS), _SHARES):
        columns = (*who, *numbers)
        room = min(width - 2 - Fitted(filled(_SLICES.only(*columns), whole)).width, _WIDEST)
        if room >= _NARROWEST:
            bar = Column("bar", NOTHING, "bar", partial(draw, room=room), 0)
            return filled(_SLICES.only(*columns, bar), whole)
    return filled(_SLICES.only(*who, *_SHARES, _HOSTS, _IDLES), whole)


def draw(row: Slice, room: int) -> str:
    """Draw where a rank's time goes: signs in proportion, ``room`` of them for the whole step."""
    parts = [(_COMPUTE, row.compute or 0.0), (_TRANSFER, row.transfer), (_UNKNOWN, row.unknown)]
    parts += sorted((_WAITS.get(kind, _WAIT), part) for kind, part in row.waits)
    parts.append((_HOST, row.host or 0.0))
    bar, done = "", 0.0
    for sign, part in parts:
        done = min(done + part, 1.0)
        bar += sign * (round(room * done) - len(bar))
    return bar + _IDLE * (room - len(bar))


def _legend(rows: list[Slice]) -> Text:
    """Say what the signs of the bars mean."""
    waited = dict.fromkeys(kind for row in rows for kind, part in row.waits if part >= _SEEN)
    letters = {kind: _WAITS.get(kind, _WAIT) for kind in waited}
    signs: dict[str, Message] = {_COMPUTE: say("compute"), _TRANSFER: say("transfer")}
    if any(row.unknown for row in rows):
        signs[_UNKNOWN] = say("unknown")
    if letters:
        by_letter = sorted(letters, key=lambda kind: letters[kind])
        others = [kind for kind in by_letter if letters[kind] == _WAIT]
        named = by_letter if len(others) <= _OTHERS else [kind for kind in by_letter if kind not in others]
        rest = len(by_letter) - len(named)
        kinds = series([*named, *([say_n("{n} group", "{n} groups", rest)] if rest else [])])
        signs[" ".join(sorted(set(letters.values())))] = say("waits in {kinds}", kinds=kinds)
    if any(row.host for row in rows):
        signs[_HOST] = say("host")
    signs[_IDLE] = say("rest")
    words = ((f"{sign} ", _SIGNS.get(sign[0], "")) for sign in signs)
    meant = ((f"{text(word)}  ", "dim") for word in signs.values())
    return Text.assemble(*chain.from_iterable(zip(words, meant, strict=True)))


def _links(cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    slow = slow_links(cluster)
    shown = slow[: rows_of(view, room.links)]
    yield from (line(slow_link(link, cluster.steps), "yellow") for link in shown)
    more = len(slow) - len(shown)
    if more:
        yield line(say_n("{n} more slow link; --table links shows it", "{n} more slow links; --table links shows them",
                         more), "dim")  # fmt: skip


def _asides(cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    """Say what else there is to know, in a line each."""
    yield from (line(said, "dim") for said in (links_line(cluster), clocks_line(cluster, view.full)) if said)
    notes = notes_of(cluster)
    shown = notes[: rows_of(view, max(room.notes, 1))]
    said = (line(note, "yellow") for note in shown)
    yield from (hanging(Text("!", "yellow"), part if room.notes or view.full else one_line(part)) for part in said)
    more = len(notes) - len(shown)
    if more and room.notes:
        yield line(say_n("{n} more note; --full shows all", "{n} more notes; --full shows all", more), "dim")
    look = None if view.full else pointer(cluster)
    if look:
        yield line(look, "dim")

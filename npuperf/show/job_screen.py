"""The screen of a job of several ranks: why they wait, the pipeline, a bar per rank, links and clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain as flatten
from statistics import fmean
from typing import Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table as RichTable

from npuperf.base.messages import NOTHING, Message, chain, ns, say, say_n, series, share
from npuperf.base.units import percent
from npuperf.model.job_result import Cluster, ClusterRank, Root
from npuperf.show import job_text
from npuperf.show.analysis_tables import NAMED
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.tables import Column, Filled, filled
from npuperf.show.terminal import Fitted, Text, hanging, line, rows_of, section


class Room(Struct, frozen=True):
    """How much of each there is room for on a screen.

    ``detailed``: causes with the operators that take the time; ``brief``: findings without what to do.
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
    """Show what several ranks tell together: causes, pipeline, ranks, links, then what else there is to know."""
    if cluster.roots:
        yield _roots(cluster, view, room)
    if cluster.pipeline:
        yield section(job_text.pipeline_title(cluster.pipeline), *map(line, job_text.pipeline_lines(cluster)))
    if cluster.roles:
        yield section(job_text.roles_title(cluster), *map(line, job_text.role_lines(cluster)))
    if cluster.ranks:
        yield _ranks(cluster, view, room)
    slow = job_text.slow_links(cluster)
    links = slow[: rows_of(view, room.links)]
    yield from (line(job_text.slow_link(link, cluster.steps), "yellow") for link in links)
    if len(links) < len(slow):
        yield line(say_n("{n} more slow link; --table links shows it", "{n} more slow links; --table links shows them",
                         len(slow) - len(links)), "dim")  # fmt: skip
    asides = (job_text.links_line(cluster), job_text.clocks_line(cluster, view.full))
    yield from (line(said, "dim") for said in asides if said)
    notes = job_text.notes_of(cluster)
    shown = notes[: rows_of(view, max(room.notes, 1))]
    for note in shown:
        yield hanging(Text("!", "yellow"), line(note, "yellow"))
    more = len(notes) - len(shown)
    if more and room.notes:
        yield line(say_n("{n} more note; --full shows all", "{n} more notes; --full shows all", more), "dim")
    if cluster.ranks and not view.full:  # the rank to look at by itself: one of the first cause, else the oddest
        repairable = (r for r in job_text.roots_by_gain(cluster) if r.kind in job_text.REPAIRABLE)
        first = next((r.ranks[0] for r in repairable if r.ranks), job_text.outliers_first(cluster)[0].rank)
        yield line(say("one rank's phases, blame, operators, cores: npuperf analyze PATH --rank {rank}", rank=first),
                   "dim")  # fmt: skip


def roots_shown(cluster: Cluster, view: View, room: Room) -> list[Root]:
    """Return the causes that a screen shows: those worth its room, by what repairing one alone saves."""
    few = rows_of(view, room.roots)
    return job_text.roots_by_gain(cluster) if few is None else job_text.roots_worth(cluster)[:few]


def _roots(cluster: Cluster, view: View, room: Room) -> RenderableType:
    """Show the root causes: their share of all waiting, what they cost, what takes the time, what to do."""
    shown = roots_shown(cluster, view, room)
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for i, root in enumerate(shown):
        detailed = view.full or i < room.detailed
        lines = [line(job_text.root_line(root, cluster))]
        taking = job_text.taking_line(root)
        if taking and detailed:
            lines.append(line(taking, "dim"))
        if root.next:
            lines.append(Text.assemble(("→ ", "bold green"), (text(root.next), "green")))
        grid.add_row(Text(percent(root.share), "bold"), Group(*lines))
    wait, part = job_text.waiting(cluster)
    title = say("why ranks wait for each other, in % of {wait} per step ({part} of their time)", wait=wait, part=part)
    if len(shown) < len(cluster.roots):
        title = say("why ranks wait ({shown} of {all}), in % of {wait} per step ({part} of their time)",
                    shown=len(shown), all=len(cluster.roots), wait=wait, part=part)  # fmt: skip
    reliable = job_text.replay_line(cluster) if any(r.gain_ns_per_step for r in shown) else None
    return section(title, grid, *([line(reliable, "dim")] if reliable else []))


# -- The ranks of a job as rows: where each one's time goes, and which of them stand out.

#: A rank is listed by itself where it is so far from its peers, as a share of the step; a few are in any case.
_APART: Final = 0.01
_LEAST: Final = 3
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


class Slice(Struct, frozen=True):
    """Where the time of a rank goes, as shares of it; of several ranks, their means. What is not known is None.

    ``waits``: exposed waiting by kind of group; ``idle`` includes ``host``. ``rank`` is None for all ranks together.
    """

    rank: int | None
    stage: int | None
    step_ns: int
    compute: float | None
    transfer: float
    wait: float
    unknown: float
    host: float | None
    idle: float | None
    waits: tuple[tuple[str, float], ...]


def slice_of(rank: ClusterRank, steps: int) -> Slice:
    """Return where a rank's time goes."""
    whole = max(rank.step_ns * max(steps, 1), 1)
    comm = rank.comm
    waiting = max(sum(comm.wait_by_kind.values()), 1)
    compute, host, idle = (
        None if time is None else time / whole for time in (rank.compute_ns, rank.host_wait_ns, rank.idle_ns)
    )
    return Slice(
        rank=rank.rank,
        stage=rank.stage,
        step_ns=rank.step_ns,
        compute=compute,
        transfer=comm.exposed_transfer_ns / whole,
        wait=comm.exposed_wait_ns / whole,
        unknown=comm.exposed_unknown_ns / whole,
        host=host,
        idle=idle,
        # What of the waiting is exposed is not known by kind: in proportion.
        waits=tuple((k, ns / waiting * comm.exposed_wait_ns / whole) for k, ns in comm.wait_by_kind.items()),
    )


def mean_of(slices: Sequence[Slice]) -> Slice:
    """Return several ranks as one row."""

    def mean(values: Iterable[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return fmean(known) if known else None

    kinds = dict.fromkeys(kind for s in slices for kind, _ in s.waits)
    return Slice(
        rank=None,
        stage=None,
        step_ns=round(fmean(s.step_ns for s in slices)),
        compute=mean(s.compute for s in slices),
        transfer=fmean(s.transfer for s in slices),
        wait=fmean(s.wait for s in slices),
        unknown=fmean(s.unknown for s in slices),
        host=mean(s.host for s in slices),
        idle=mean(s.idle for s in slices),
        waits=tuple((kind, fmean(dict(s.waits).get(kind, 0.0) for s in slices)) for kind in kinds),
    )


def outliers(cluster: Cluster, most: int | None) -> tuple[list[ClusterRank], list[ClusterRank]]:
    """Return the ranks to list, at most so many (None: all), and the rest."""
    ranks = job_text.outliers_first(cluster)
    if most is None or len(ranks) <= most + 1:  # a line about one rank is as long as its row
        return ranks, []
    apart = job_text.distances(cluster)
    standing_out = sum(apart[r.rank] >= _APART for r in ranks)
    shown = min(most, max(standing_out, _LEAST))
    return ranks[:shown], ranks[shown:]


# fmt: off
_STEP: Final = Column("step_ns", say("step ms"), "duration", weight=0)
_IDLES: Final = Column("idle", say("idle"), "share")
_SHARES: Final = (
    Column("compute", say("compute"), "share", weight=0),
    Column("transfer", say("transfer"), "share"),
    Column("wait", say("waits"), "share", weight=0),
    Column("unknown", say("unknown"), "share", lambda row: row.unknown or None),
)
_HOSTS: Final = Column("host", say("host"), "share", lambda row: row.host or None)
_WHO: Final = (
    Column("rank", say("rank"), "id", lambda row: text(say("mean")) if row.rank is None else str(row.rank), 0),
    Column("stage", say("stage"), "id", weight=0, quiet=True),
)
_SLICES: Final = NAMED["ranks"].titled(say("ranks"))
# fmt: on


def _ranks(cluster: Cluster, view: View, room: Room) -> RenderableType:
    """Show where the time of the most unusual ranks goes, as numbers and as bars, and say what the others are like."""
    listed, rest = outliers(cluster, rows_of(view, room.ranks))
    everyone = mean_of([slice_of(r, cluster.steps) for r in cluster.ranks])
    rows = [everyone, *(slice_of(r, cluster.steps) for r in listed)]
    table = _with_bars(rows, view.width)
    parts: list[RenderableType] = [Fitted(table, styles={0: "bold"}, signs=_SIGNS)]
    if table.table.columns[-1].unit == "bar":
        parts.insert(0, _legend(rows))
    if rest:
        others = [slice_of(r, cluster.steps) for r in rest]
        steps = [s.step_ns for s in others]
        between = [say("step {length}", length=ns(min(steps), max(steps)))]
        for what, values in (
            (say("compute"), [s.compute for s in others]),
            (say("transfer"), [s.transfer for s in others]),
            (say("waiting"), [s.wait for s in others]),
            (say("host wait"), [s.host for s in others]),
        ):
            known = [v for v in values if v is not None]
            if most := max(known, default=0.0):
                between.append(say("{what} {part}", what=what, part=share(min(known), most)))
        facts = chain(*between, by=", ")
        parts.append(line(say_n("the other {n} rank: {facts}", "the other {n} ranks: {facts}", len(rest),
                                facts=facts)))  # fmt: skip
    return section(say("where the step goes, in % of it, the most unusual ranks first"), *parts)


def _with_bars(rows: list[Slice], width: int) -> Filled:
    """Return the table of ranks with bars in the room beside the numbers; idle time, which they show, makes room."""
    steps = [row.step_ns for row in rows]
    who = [*_WHO, *([_STEP] if max(steps) - min(steps) > _UNEVEN * max(steps) else [])]
    whole = [(row,) for row in rows]
    for numbers in ((*_SHARES, _HOSTS, _IDLES), (*_SHARES, _HOSTS), _SHARES):
        columns = (*who, *numbers)
        room = min(width - 2 - Fitted(filled(_SLICES.only(*columns), whole)).width, _WIDEST)
        if room >= _NARROWEST:
            bar = Column("bar", NOTHING, "bar", lambda row: draw(row, room), 0)  # noqa: B023 - used before the next
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
    return Text.assemble(*flatten.from_iterable(zip(words, meant, strict=True)))

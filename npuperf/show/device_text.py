"""Text on a step's phases, on what the host did while the device waited for it, on cores, and on dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType

from npuperf.base.messages import Message, chain, ns, say, say_n, series, share
from npuperf.base.units import ms, short_name
from npuperf.model.result import Basis, Blame, Bound, CoresOverTime, Dependency, Device, Result, Spread
from npuperf.show import terminal
from npuperf.show.analysis_tables import NAMED
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.sheet import gate_line
from npuperf.show.tables import EXTRA, Column, filled, how_many
from npuperf.show.terminal import Fitted, Text, cut, indented, line, line_text, rows_of, section
from npuperf.show.words import CAUSE, WAITED_FOR, WORDS, device_name, heights, in_letters, named, sure, thinned

_LETTER: Final = {"host": "H", "compute": "C", "communication": "M", "unknown": "?"}
_COLOURS: Final = {letter: terminal.BOUNDS[bound] for bound, letter in _LETTER.items()}
_WIDEST: Final = 160
#: Shares of the time below which a line is not worth its room on one screen.
WORTH: Final = 0.02
_PHASES, _ODD, _CAUSES, _SYNCS = 5, 3, 3, 2
_Named = TypeVar("_Named", Blame, Dependency)


class Stretch(Struct, frozen=True):
    """A phase of the typical step, or of the window: from and to, ns, of ``span`` ns."""

    bound: Bound
    basis: Basis
    label: Message | None
    start: int
    end: int
    span: int
    length: Spread | None = None


_STRETCHES: Final = NAMED["phases"].only(
    Column("at", say("ms"), get=lambda s: f"{ms(s.start)}–{ms(s.end)}", weight=0),
    Column("share", say("%"), "share", lambda s: (s.end - s.start) / s.span if s.span else None),
    Column("bound", say("verdict"), "word", lambda s: sure(s.bound, s.basis)),
    Column("label", say("part"), "message"),
    Column("length", say("min–max ms"), get=lambda s: s.length and f"{ms(s.length.min_ns)}–{ms(s.length.max_ns)}"),
)


def phase_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Show the typical step as a bar and its phases as lines; without steps, the window's phases."""
    typical = device.typical_step
    basis: Basis = "inferred" if any(p.verdict.basis == "inferred" for p in device.phases) else "measured"
    if typical:
        span, length = typical.length.median_ns, typical.length
        found = [
            Stretch(p.bound, basis, p.label, p.start.median_ns, p.end.median_ns, span, p.length) for p in typical.phases
        ]
        ends = ms(span) if length.min_ns == length.max_ns else f"{ms(length.min_ns)}–{ms(length.max_ns)}"
        title = say("typical step ({alike} of {steps} steps are alike, {ends} ms), in % of the step",
                    alike=typical.steps, steps=device.step_count, ends=ends)  # fmt: skip
    else:
        span, begin = device.window.span_ns, device.phases[0].start_ns if device.phases else 0
        found = [Stretch(p.bound, basis, p.label, p.start_ns - begin, p.end_ns - begin, span) for p in device.phases]
        title = say("phases ({phases}), in % of span", phases=len(found))
    odd = typical.odd if typical else []
    if len(found) < 2 and not odd:
        return
    longest = sorted(range(len(found)), key=lambda i: found[i].start - found[i].end)[: rows_of(view, _PHASES)]
    lines: list[RenderableType] = []
    if found:  # as a strip: a letter per phase's verdict, as wide as its time
        pieces, at = [], 0
        for s in found:
            pieces += [(" ", max(s.start - at, 0)), (_LETTER[s.bound], s.end - max(s.start, at))]
            at = max(s.end, at)
        pieces.append((" ", max(span - at, 0)))
        strip = in_letters(pieces, min(view.width - 2, _WIDEST))
        table = filled(_STRETCHES, [(found[i],) for i in sorted(longest)])
        legend = terminal.legend_of({_LETTER[s.bound]: WORDS[s.bound] for s in found}, _COLOURS)
        lines += [terminal.painted(strip, _COLOURS), legend, Fitted(table)]
    lines += cut(len(longest), len(found), lambda few: say("the longest {shown} phases; --full shows all", shown=few))
    shown = odd[: rows_of(view, _ODD)]
    lines += [line(say("unusual: step {step}, {why}", step=step.step, why=step.why), "yellow") for step in shown]
    if more := len(odd) - len(shown):
        lines.append(line(say_n("{n} more unusual step; --format json shows all",
                                "{n} more unusual steps; --format json shows all", more), "dim"))  # fmt: skip
    yield section(named(device, title, several), *lines)


class Cause(Struct, frozen=True):
    """All that the host did for one cause, and the line of it that took longest."""

    cause: str
    ns: int
    wait: int
    count: int
    mostly: Blame

    @property
    def doing(self) -> str | None:
        """What took longest, and where; nothing where nothing is recorded."""
        if self.mostly.name == "nothing recorded":
            return None
        return ", ".join(filter(None, (self.mostly.name, self.mostly.where)))


_CAUSE_COLUMNS: Final = NAMED["blame"].only(
    Column("cause", say("cause"), get=lambda c: text(CAUSE.get(c.cause, c.cause)), weight=0),
    Column("ns", say("ms"), "duration", weight=0),
    Column("share", say("%"), "share", lambda c: c.ns / c.wait),
    Column("doing", say("mostly"), weight=0),
    Column("count", say("intervals"), "count", weight=EXTRA),
)


def blame_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Say what it did while the device waited, where that is a notable part of the time."""
    wait, span = device.window.host_wait_ns, device.window.span_ns
    if not device.blame or wait < WORTH * span:
        return
    groups: dict[str, list[Blame]] = {}
    for piece in device.blame:
        groups.setdefault(piece.cause, []).append(piece)
    causes = [
        Cause(cause, sum(b.ns for b in lines), wait, sum(b.count for b in lines), _mostly(lines))
        for cause, lines in groups.items()
    ]
    rows = [(cause,) for cause in sorted(causes, key=lambda c: -c.ns)]
    table = filled(_CAUSE_COLUMNS, rows, rows_of(view, _CAUSES))
    costly = [s for s in device.syncs if s.idle_ns >= WORTH * span]
    syncs = []
    for site in costly[: rows_of(view, _SYNCS)]:
        where = say("from {where}", where=site.where) if site.where else None
        call = chain(say("{call}", call=site.torch_op or site.name), where, by=" ")
        known = say("copy, direction not recorded") if site.kind == "copy" else WORDS[site.kind]
        syncs.append(line(say("sync ({kind}): {call} ×{count}: the device was then idle for {idle}",
                              kind=known, call=call, count=site.count, idle=ns(site.idle_ns)), "yellow"))  # fmt: skip
    title = say("waiting for the host, {wait}: what it did ({shown} causes), in % of the wait",
                wait=ns(wait), shown=how_many(len(table.rows), table.total))  # fmt: skip
    yield section(named(device, title, several), Fitted(table), *syncs)


def _mostly(lines: Sequence[_Named]) -> _Named:
    """Return what took longest of what has a name."""
    return next((piece for piece in lines if piece.name != "others"), lines[0])


# -- Text on cores: gates on them, how many are used over time, and who waits for them.

#: A picture of cores over time has no less room than this; what is said before it is so wide.
_NARROWEST, _BEFORE, _NAME = 8, 46, 12
_OVER, _PAIRS, _WAITS = 5, 1, 2

_OVER_LIMIT: Final = NAMED["gates"].only(
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
            yield from cut(len(found.rows), found.total, lambda few: say(
                "{shown} kinds of kernels; --format csv --table gates shows all", shown=few))  # fmt: skip


def core_lines(result: Result, view: View) -> Iterator[RenderableType]:
    """Say how many cores are used, draw it over time, and say which streams wait for each other's cores."""
    for device in result.devices[:1] if result.input.kind != "kineto" else ():
        use, over = device.cores, device.cores.over_time
        if len(result.devices) > 1:
            yield line(say("cores used on {device}", device=device_name(device)), "bold")
        sides = (
            (say("cube cores"), use.cube, over and over.cube),
            (say("vector cores"), use.vector, over and over.vector),
        )
        for name, side, time in sides:
            if not side:
                continue
            busy, span = share(side.occupancy_busy), share(side.occupancy_span)
            cores = set_cell_size(text(name), max(cell_len(text(name)), _NAME))
            used = text(say("{cores} {busy} while busy, {span} of span, by blocks", cores=cores, busy=busy, span=span))
            if side.at_work is not None:  # cycles outrank blocks
                used = text(say("{cores} {worked} at work by cycles, {busy} held by blocks",
                                cores=cores, worked=share(side.at_work), busy=busy))  # fmt: skip
            used = set_cell_size(used, max(cell_len(used), _BEFORE)) + " "
            slices = thinned(time.slices, view.width - cell_len(used)) if time else []
            if len(slices) < _NARROWEST:
                yield Text(used.rstrip())
            else:
                yield Text.assemble(used, (heights(slices, view.blocks), "cyan"), no_wrap=True)
        if not (use.cube or use.vector):
            yield line(say("cores used: {reason}", reason=use.reason or say("no core figures")))
        if device.core_clock is not None and device.core_clock.used and use.source is not None:
            yield line(use.source, "dim")
        if over and over.pairs:
            yield from map(indented, _streams(over, max(len(device.steps), 1), view))


def _streams(use: CoresOverTime, steps: int, view: View) -> Iterator[Text]:
    """Name overlap of streams and their waits for each other's cores."""
    for pair in use.pairs[: rows_of(view, _PAIRS)]:
        beside = say("streams {one} and {other} run side by side for {share} of the shorter's time",
                     one=pair.streams[0], other=pair.streams[1], share=share(pair.share))  # fmt: skip
        more = say("{time} of it requesting more cores than there are", time=ns(pair.over_ns)) if pair.over_ns else None
        yield line(chain(beside, more, by=", "))
    for wait in use.contention[: rows_of(view, _WAITS)]:
        holders = say("another stream")
        if len(wait.holders) == 1:
            holders = say("stream {stream}", stream=wait.holders[0])
        elif wait.holders:
            holders = say("streams {most} and {last}", most=series(wait.holders[:-1]), last=wait.holders[-1])
        time = ns(wait.least_ns // steps, wait.most_ns // steps)
        waits = say("stream {stream} waits for cores held by {holders}: {time} per step",
                    stream=wait.stream, holders=holders, time=time)  # fmt: skip
        yield line(chain(waits, say_n("{n} kernel", "{n} kernels", wait.kernels), by=", "), "yellow")
    if use.contention_reason:
        yield line(use.contention_reason, "dim")


# -- Text on what the device waited for once its next task was launched.

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


_COLUMNS: Final = NAMED["dependencies"].only(
    Column("what", say("what for"), "message", weight=0),
    Column("ns", say("ms"), "duration", weight=0),
    Column("share", say("%"), "share", lambda w: w.ns / w.wait),
    Column("example", say("mostly"), "message", weight=0),
)


def dependency_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Say what the device waited for, where that is a notable part of the time."""
    wait = sum(d.ns for d in device.dependencies)
    if not wait or wait < WORTH * device.window.span_ns:
        return
    groups: dict[str, list[Dependency]] = {}
    for piece in device.dependencies:
        groups.setdefault(piece.kind, []).append(piece)
    kinds = [
        WaitedFor(sum(d.ns for d in lines), wait, all(d.certain for d in lines), _mostly(lines))
        for lines in groups.values()
    ]
    kinds.sort(key=lambda k: -k.ns)
    table = filled(_COLUMNS, [(kind,) for kind in kinds], rows_of(view, _KINDS))
    unrecorded = sum(k.ns for k in kinds if k.mostly.kind == "unrecorded")
    needs = next((d.needs for d in device.dependencies if d.needs), None)
    notes = [line(needs, "dim")] if needs and unrecorded >= WORTH * device.window.span_ns else []
    title = say("waiting for a dependency, {wait}: what for ({shown} kinds), in % of the wait",
                wait=ns(wait), shown=how_many(len(table.rows), table.total))  # fmt: skip
    yield section(named(device, title, several), Fitted(table), *notes)

"""Text on a step's phases and on what it did while the device waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from rich.console import RenderableType

from npuperf.documents.analysis import Basis, Blame, Bound, Device, OddStep, Spread, SyncSite
from npuperf.messages import Message, chain, ns, say, say_n
from npuperf.render import View
from npuperf.render.analysis_tables import BLAME, PHASES
from npuperf.render.language import text
from npuperf.render.signs import in_letters
from npuperf.render.tables import EXTRA, Column, filled, how_many
from npuperf.render.terminal import BOUNDS, Fitted, Text, cut, legend_of, line, painted, rows_of, section
from npuperf.render.words import CAUSE, WORDS, named, sure
from npuperf.units import ms

_LETTER: Final = {"host": "H", "compute": "C", "communication": "M", "unknown": "?"}
_COLOURS: Final = {letter: BOUNDS[bound] for bound, letter in _LETTER.items()}
_WIDEST: Final = 160
#: Shares of the time below which a line is not worth its room on one screen.
WORTH: Final = 0.02
_PHASES, _ODD, _CAUSES, _SYNCS = 5, 3, 3, 2


class Stretch(Struct, frozen=True):
    """A phase of the typical step, or of the window: from and to, ns, of ``span`` ns."""

    bound: Bound
    basis: Basis
    label: Message | None
    start: int
    end: int
    span: int
    length: Spread | None = None


_STRETCHES: Final = PHASES.only(
    Column("at", say("ms"), get=lambda s: f"{ms(s.start)}–{ms(s.end)}", weight=0),
    Column("share", say("%"), "share", lambda s: (s.end - s.start) / s.span if s.span else None),
    Column("bound", say("verdict"), "word", lambda s: sure(s.bound, s.basis)),
    Column("label", say("part"), "message"),
    Column("length", say("min–max ms"), get=lambda s: s.length and f"{ms(s.length.min_ns)}–{ms(s.length.max_ns)}"),
)


def phase_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Show the typical step as a bar and its phases as lines; without steps, the window's phases."""
    found, odd = _stretches(device), device.typical_step.odd if device.typical_step else []
    if len(found) < 2 and not odd:
        return
    top = rows_of(view, _PHASES)
    longest = sorted(range(len(found)), key=lambda i: found[i].start - found[i].end)[:top]
    table = filled(_STRETCHES, [(found[i],) for i in sorted(longest)])
    lines: list[RenderableType] = []
    if found:
        lines += [_strip(found, view.width), _legend(found), Fitted(table, one_line=True)]
    lines += cut(len(longest), len(found), lambda few: say("the longest {shown} phases; --full shows all", shown=few))
    lines += _odd_lines(odd, rows_of(view, _ODD))
    yield section(named(device, _phases_title(device, len(found)), several), *lines)


def _stretches(device: Device) -> list[Stretch]:
    typical = device.typical_step
    basis: Basis = "inferred" if any(p.verdict.basis == "inferred" for p in device.phases) else "measured"
    if typical:
        span = typical.length.median_ns
        return [
            Stretch(p.bound, basis, p.label, p.start.median_ns, p.end.median_ns, span, p.length) for p in typical.phases
        ]
    span, begin = device.window.span_ns, device.phases[0].start_ns if device.phases else 0
    return [Stretch(p.bound, basis, p.label, p.start_ns - begin, p.end_ns - begin, span) for p in device.phases]


def _phases_title(device: Device, phases: int) -> Message:
    typical = device.typical_step
    if typical is None:
        return say("phases ({phases}), in % of span", phases=phases)
    length = typical.length
    ends = ms(length.median_ns) if length.min_ns == length.max_ns else f"{ms(length.min_ns)}–{ms(length.max_ns)}"
    return say("typical step ({alike} of {steps} steps are alike, {ends} ms), in % of the step",
               alike=typical.steps, steps=device.step_count, ends=ends)  # fmt: skip


def _strip(found: list[Stretch], width: int) -> Text:
    """Draw a step as a strip: one letter per phase's verdict, as wide as its time."""
    pieces, at = [], 0
    for stretch in found:
        pieces += [(" ", max(stretch.start - at, 0)), (_LETTER[stretch.bound], stretch.end - max(stretch.start, at))]
        at = max(stretch.end, at)
    pieces.append((" ", max(found[0].span - at, 0)))
    return painted(in_letters(pieces, min(width - 2, _WIDEST)), _COLOURS)


def _legend(found: list[Stretch]) -> Text:
    """Say what the letters of a strip mean."""
    return legend_of({_LETTER[s.bound]: WORDS[s.bound] for s in found}, _COLOURS)


def _odd_lines(odd: list[OddStep], top: int | None) -> Iterator[Text]:
    for step in odd[:top]:
        yield line(say("unusual: step {step}, {why}", step=step.step, why=step.why), "yellow")
    more = len(odd) - len(odd[:top])
    if more:
        yield line(
            say_n(
                "{n} more unusual step; --format json shows all",
                "{n} more unusual steps; --format json shows all",
                more,
            ),
            "dim",
        )


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


_CAUSE_COLUMNS: Final = BLAME.only(
    Column("cause", say("cause"), get=lambda c: text(CAUSE.get(c.cause, c.cause)), weight=0),
    Column("ns", say("ms"), "duration", weight=0),
    Column("share", say("%"), "share", lambda c: c.ns / c.wait),
    Column("doing", say("mostly")),
    Column("count", say("intervals"), "count", weight=EXTRA),
)


def blame_lines(device: Device, several: bool, view: View) -> Iterator[RenderableType]:
    """Say what it did while the device waited, where that is a notable part of the time."""
    wait, span = device.window.host_wait_ns, device.window.span_ns
    if not device.blame or wait < WORTH * span:
        return
    causes = _causes(device.blame, wait)
    table = filled(_CAUSE_COLUMNS, [(cause,) for cause in causes], rows_of(view, _CAUSES))
    costly = [s for s in device.syncs if s.idle_ns >= WORTH * span]
    syncs = [line(_sync(s), "yellow") for s in costly[: rows_of(view, _SYNCS)]]
    title = say(
        "waiting for the host, {wait}: what it did ({shown} causes), in % of the wait",
        wait=ns(wait),
        shown=how_many(len(table.rows), table.total),
    )
    yield section(named(device, title, several), Fitted(table, one_line=True), *syncs)


def _causes(blame: list[Blame], wait: int) -> list[Cause]:
    """Sum up what it did by cause, the longest first."""
    groups: dict[str, list[Blame]] = {}
    for piece in blame:
        groups.setdefault(piece.cause, []).append(piece)
    causes = []
    for cause, lines in groups.items():
        mostly = next((b for b in lines if b.name != "others"), lines[0])
        causes.append(Cause(cause, sum(b.ns for b in lines), wait, sum(b.count for b in lines), mostly))
    return sorted(causes, key=lambda c: -c.ns)


def _sync(site: SyncSite) -> Message:
    where = say("from {where}", where=site.where) if site.where else None
    call = chain(say("{call}", call=site.torch_op or site.name), where, by=" ")
    known = say("copy, direction not recorded") if site.kind == "copy" else WORDS[site.kind]
    return say(
        "sync ({kind}): {call} ×{count}: the device was then idle for {idle}",
        kind=known,
        call=call,
        count=site.count,
        idle=ns(site.idle_ns),
    )

"""Charts of a tuning: what it made faster, what that saves, and what a run with it showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.documents.comparison import Compared, Comparison, Outcome
from npuperf.documents.tuning import Entry, ResultChanges, Tuning
from npuperf.messages import Message, factor, ns, number, say, say_n, share
from npuperf.render.words import OUTCOME
from npuperf.units import NS_PER_US, short_names
from npuperf.webpage.bars import BarRow, Piece, bars
from npuperf.webpage.chart import Chart, plain, sentences
from npuperf.webpage.comparison_charts import falls_chart
from npuperf.webpage.svg import element, legend

_ROWS: Final = 20
_BEFORE, _AFTER = "c-total", "c-gain"
#: What a verdict makes of the colour of what was measured; of any other nothing is known to be gained or lost.
_OF_VERDICT: Final[dict[Outcome, str]] = {"better": _AFTER, "worse": "c-worse"}


def tuned(document: Tuning) -> Chart | None:
    """Draw every tuned operator's time before and after, those first that save most."""
    known = [
        (e, e.before_us, e.after_us) for e in document.entries if e.before_us is not None and e.after_us is not None
    ]
    if not known:
        return None
    known.sort(key=lambda found: found[2] - found[1])
    rows = [(e.name, before * NS_PER_US, after * NS_PER_US, _about(e)) for e, before, after in known]
    return _pairs("tuned", say("what was tuned, before and after"), rows, len(document.entries))


def _about(entry: Entry) -> str:
    return ", ".join(entry.types) if entry.types and entry.types != (entry.name,) else ""


def results(document: ResultChanges) -> Chart | None:
    """Draw what two tuning runs got of the same operators."""
    known = [(r.name, float(r.old_ns), float(r.new_ns), "") for r in document.comparison.rows
             if r.old_ns is not None and r.new_ns is not None]  # fmt: skip
    known.sort(key=lambda row: row[2] - row[1])
    title = say("what the runs tuned differently, first and second")
    return _pairs("results", title, known, len(document.comparison.rows))


def _pairs(id_: str, title: Message, found: Sequence[tuple[str, float, float, str]], listed: int) -> Chart | None:
    """Draw pairs of bars: (name, before, after, note); ``listed``: rows that there are, with those lacking a time."""
    shown = found[:_ROWS]
    longest = max((max(before, after) for _, before, after, _ in shown), default=0.0)
    if not longest:
        return None
    names = short_names(name for name, _, _, _ in shown)
    rows = [_pair(names[name], before, after, note) for name, before, after, note in shown]
    best = max((before / after for _, before, after, _ in found if after), default=0.0)
    longer = any(after > before for _, before, after, _ in shown)
    caption = sentences(
        say_n("{shown} of {n} entry", "{shown} of {n} entries", listed, shown=len(shown)),
        say("the largest speed-up is {factor}", factor=factor(best)) if best > 1 else None,
    )
    words = [(_BEFORE, plain(say("above: before"))), (_AFTER, plain(say("below: after")))]
    words += [("c-worse", plain(say("+ longer")))] if longer else []
    return Chart(id_, title, caption, element("div", legend(words), bars(rows, 0, longest)))


def _pair(name: str, before: float, after: float, note: str) -> BarRow:
    value = say("{old} → {new}", old=ns(before), new=ns(after))
    if after:
        value = say("{old} → {new} (×{factor})", old=ns(before), new=ns(after), factor=factor(before / after))
    colour = "c-worse" if after > before else _AFTER
    pieces = (Piece(0, before, _BEFORE, part="upper"), Piece(0, after, colour, look="stripes", part="lower"))
    return BarRow(name, plain(value), pieces, note)


def savings(document: Tuning) -> Chart | None:
    """Draw what every operator saves in a step of the profile: the least, and as an interval to the most."""
    found = sorted((s for s in document.savings if s.most_ns > 0), key=lambda s: -s.most_ns)
    if not found:
        return None
    shown = found[:_ROWS]
    names = short_names(s.name for s in shown)
    rows = [
        BarRow(names[s.name], plain(ns(s.least_ns, s.most_ns)),
               (Piece(0, s.least_ns, _AFTER), Piece(s.least_ns, s.most_ns, "", look="whisker")),
               plain(say("{felt} of {calls} calls per step are in device-bound time", felt=number(s.felt_per_step),
                         calls=number(s.calls_per_step))))
        for s in shown
    ]  # fmt: skip
    in_all, step = document.saved_ns, document.step_ns
    part = share(*(end / step for end in in_all)) if in_all and step else None
    caption = sentences(
        say("what is filled is saved at least, the line ends at the most"),
        say("together {saved} per step", saved=ns(*in_all)) if in_all else None,
        say("{part} of a step", part=part) if part else None,
    )
    title = say("predicted saving per step of the profile")
    return Chart("savings", title, caption, bars(rows, 0, max(s.most_ns for s in shown)))


def verified(document: Tuning) -> Chart | None:
    """Draw what a run with the tuned knowledge base showed: the steps, beside what was predicted."""
    found = document.verification
    step = found.step if found else None
    if found is None or step is None or step.old_ns is None or step.new_ns is None:
        return None
    saved, expected = step.old_ns - step.new_ns, step.expected_ns or found.expected_ns
    after = _OF_VERDICT.get(found.verdict, _BEFORE)
    sides = [
        BarRow(plain(name), plain(ns(time)), (Piece(0, time, colour),))
        for name, time, colour in ((say("without"), step.old_ns, _BEFORE), (say("with"), step.new_ns, after))
    ]
    return _verified(found.verdict, sides, saved, _sure(found, step), expected)


def _sure(found: Comparison, step: Compared) -> tuple[int, int] | None:
    """Return what is saved at least and at most, as far as chance leaves it open."""
    if found.interval_ns is not None:
        return -found.interval_ns[1], -found.interval_ns[0]
    saved = step.saved_ns
    return None if saved is None or not step.noise_ns else (saved - step.noise_ns, saved + step.noise_ns)


def explained(document: Tuning) -> Chart | None:
    """Draw what made the step with the tuned knowledge base shorter or longer."""
    return falls_chart(document.verification) if document.verification else None


def _verified(
    verdict: Outcome,
    sides: list[BarRow],
    saved: int,
    sure: tuple[int, int] | None,
    expected: tuple[int, int] | None,
) -> Chart:
    whisker = (Piece(*sure, "", look="whisker"),) if sure else ()
    pieces = (Piece(0, saved, _OF_VERDICT.get(verdict, _BEFORE)), *whisker)
    gains = [BarRow(plain(say("measured")), plain(ns(*sure) if sure else ns(saved)), pieces)]
    if expected is not None:
        predicted = (Piece(0, expected[0], _BEFORE), Piece(*expected, "", look="whisker"))
        gains.append(BarRow(plain(say("predicted")), plain(ns(*expected)), predicted))
    ends = [saved, *(sure or ()), *(expected or ())]
    longest = max(piece.high for row in sides for piece in row.pieces)
    body = element(
        "div",
        bars(sides, 0, longest),
        element("p", plain(say("saved per step")), class_="panel-name"),
        bars(gains, min(0, *ends), max(1, *ends)),
    )
    caption = sentences(
        OUTCOME[verdict],
        say("a line is the interval of what chance leaves open; one that reaches to nothing may be chance")
        if sure else None,
    )  # fmt: skip
    title = say("the step without and with the tuned knowledge base")
    return Chart("verified", title, caption, body)

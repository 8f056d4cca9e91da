"""What a page draws of a document: a list of charts, each made by a function where its data is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from npuperf.base.messages import Message, chain, factor, ns, ns_change, number, say, say_n, share, share_change
from npuperf.base.units import NS_PER_US, short_names
from npuperf.model.comparison import Compared, Comparison, Outcome
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.model.tuning import Entry, ResultChanges, Tuning
from npuperf.show.comparison_text import Fall, falls, step_lines, verdict_line
from npuperf.show.device_charts import (  # fmt: skip
    blame_icicle,
    cores_over_time,
    elasticity,
    operators,
    partition,
    steps,
    typical_step,
    what_if,
)
from npuperf.show.job_charts import groups, links, ranks_by_step, roots, stages, who_waits
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import BarRow, Chart, Piece, bars, element, legend, plain, sentences
from npuperf.show.tables import Row
from npuperf.show.words import OUTCOME

if TYPE_CHECKING:
    from npuperf.model.picture import Picture

# -- Charts of a comparison: from the old step to the new one, how sure that is, and which operators changed.

_PARTS, _ROWS = 10, 20
#: Bars begin at nothing unless less than this share of them changes: then nothing would be seen.
_SEEN: Final = 0.25
#: How much room is left beside what changes where they do not, as a share of it.
_ROOM: Final = 0.15


def waterfall(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the way from the old mean step to the new one."""
    return falls_chart(result.comparison) if result.comparison else None


def falls_chart(found: Comparison) -> Chart | None:
    """Draw the way from the old mean step to the new one, part by part; the parts add up to the nanosecond."""
    old, new = found.old_step_ns, found.new_step_ns
    rows = falls(found, _PARTS)
    if old is None or new is None or not rows:
        return None
    parts = [_fall(row) for row in rows[:-1]]  # the last is their sum
    places = _running(old, parts)
    low, high = _scale(places)
    stepped = all(found.stepped)
    before, after = (say("mean step before"), say("mean step after")) if stepped else (say("before"), say("after"))
    made = [
        _end(before, old, low),
        *(_part(part, at) for part, at in zip(parts, _starts(old, parts), strict=True)),
        _end(after, new, low),
    ]
    by = ns_change(new - old)
    caption = sentences(
        say("{old} → {new}: {change}", old=ns(old), new=ns(new), change=by),
        say("every row begins where the one above ends; the upper half is by count, the lower (striped) by speed"),
        say("the scale begins at {least}, not at nothing", least=ns(low)) if low else None,
    )
    words = (
        ("c-worse", plain(say("+ longer"))),
        ("c-better", plain(say("- shorter"))),
    )
    body = element("div", legend(words), bars(made, low, high))
    title = (
        say("where the difference of the mean step comes from") if stepped else say("where the difference comes from")
    )
    return Chart("waterfall", title, caption, body, wide=True)


def _fall(row: Row) -> Fall:
    fall: Fall = row[0]
    return fall


def _starts(old: int, parts: Sequence[Fall]) -> list[int]:
    found, at = [], old
    for part in parts:
        found.append(at)
        at += part.delta_ns
    return found


def _running(old: int, parts: Sequence[Fall]) -> list[int]:
    """Return every place that the way touches."""
    found = [old]
    for part, at in zip(parts, _starts(old, parts), strict=True):
        found += [at + part.count_ns, at + part.delta_ns]
    return found


def _scale(places: Sequence[int]) -> tuple[float, float]:
    low, high = min(places), max(places)
    if not low or high - low >= _SEEN * high:
        return min(low, 0), high
    room = max((high - low) * _ROOM, 1.0)
    return max(low - room, 0.0), high + room


def _end(name: Message, time: int, low: float) -> BarRow:
    return BarRow(plain(name), plain(ns(time)), (Piece(low, time, "c-total"),), strong=True)


def _part(fall: Fall, at: int) -> BarRow:
    name = chain(fall.part, say("{what}", what=fall.what) if fall.what.strip() else None, by=" ")
    between, after = at + fall.count_ns, at + fall.delta_ns
    by_count = say("by count {change}", change=ns_change(fall.count_ns))
    by_speed = say("by speed {change}", change=ns_change(fall.speed_ns))
    pieces = (
        Piece(at, between, _sign(fall.count_ns), plain(by_count), part="upper"),
        Piece(between, after, _sign(fall.speed_ns), plain(by_speed), look="stripes", part="lower"),
    )
    note = chain(by_count if fall.count_ns else None, by_speed if fall.speed_ns else None,
                 say("{where}", where=fall.where) if fall.where.strip() else None, by=" · ")  # fmt: skip
    return BarRow(plain(name), plain(ns_change(fall.delta_ns)), pieces, plain(note))


def _sign(change: float) -> str:
    return "c-worse" if change > 0 else "c-better"


# --- the steps --------------------------------------------------------------------------------------------------------


def steps_apart(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the median step of both sides, and the interval of their difference against nothing."""
    return apart_chart(result.comparison, 1 if result.digest is None else result.digest.devices) if (
        result.comparison
    ) else None  # fmt: skip


def apart_chart(found: Comparison, devices: int = 1) -> Chart | None:
    """Draw the median step of both sides, and the interval of their difference against nothing."""
    old, new, interval = found.old_median_ns, found.new_median_ns, found.interval_ns
    if old is None or new is None or interval is None:
        return None
    sides = [
        BarRow(plain(name), plain(ns(time)), (Piece(0, time, "c-total"),))
        for name, time in ((say("before"), old), (say("after"), new))
    ]
    low, high = interval
    difference = BarRow(
        plain(say("difference: {verdict}", verdict=OUTCOME[found.verdict])), plain(ns_change(low, high)),
        (Piece(0, new - old, _sign(new - old)), Piece(low, high, "", look="whisker")), strong=True,
    )  # fmt: skip
    reach = max(abs(low), abs(high), abs(new - old), 1)
    body = element("div", bars(sides, 0, max(old, new, 1)), bars([difference], -reach, reach))
    lines = (line.content for line in (verdict_line(found), *step_lines(found, devices)))
    said = [line for line in lines if isinstance(line, Message)]
    caption = sentences(
        *said[:1],
        said[-1] if len(said) > 1 else None,
        say("the line is the interval of the difference; one that lies on both sides of the middle may be chance"),
    )
    return Chart("interval", say("median step before and after"), caption, body)


def differences(result: Result, where: Whereabouts) -> Chart | None:
    """Draw by how much operators changed, to the left what got shorter."""
    return rows_chart(result.comparison) if result.comparison else None


def rows_chart(found: Comparison) -> Chart | None:
    """Draw by how much operators changed, to the left what got shorter."""
    known = [(row, row.new_ns - row.old_ns) for row in found.rows
             if row.kind != "step" and row.old_ns is not None and row.new_ns is not None]  # fmt: skip
    changed = sorted((pair for pair in known if pair[1]), key=lambda pair: -abs(pair[1]))
    if not changed:
        return None
    shown = changed[:_ROWS]
    names = short_names(row.name for row, _ in shown)
    reach = max(abs(delta) + (row.noise_ns or 0) for row, delta in shown)
    caption = sentences(
        say_n("{shown} row that changed", "{shown} of {n} rows that changed", len(changed), shown=len(shown)),
        say("to the left: shorter than before; to the right: longer; lines show what may be chance"),
    )
    rows = [_delta(row, delta, names[row.name]) for row, delta in shown]
    return Chart(
        "differences",
        say("what changed, operator by operator"),
        caption,
        bars(rows, -reach, reach),
    )


def _delta(row: Compared, delta: int, name: str) -> BarRow:
    pieces = [Piece(0, delta, _sign(delta))]
    if row.noise_ns:
        pieces.append(Piece(delta - row.noise_ns, delta + row.noise_ns, "", look="whisker"))
    part = share_change(delta / row.old_ns) if row.old_ns else None
    value = chain(say("{change}", change=ns_change(delta)), say("{part}", part=part) if part else None, by=", ")
    note = say("{old} → {new}, {verdict}", old=ns(row.old_ns), new=ns(row.new_ns), verdict=OUTCOME[row.verdict])
    return BarRow(name, plain(value), tuple(pieces), plain(note))


# -- Charts of a tuning: what it made faster, what that saves, and what a run with it showed.

_TUNING_CHARTS_ROWS: Final = 20
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
    shown = found[:_TUNING_CHARTS_ROWS]
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
    shown = found[:_TUNING_CHARTS_ROWS]
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


#: In the order of the page. A chart returns None where its data is not there.
RESULT_CHARTS: Final[tuple[Callable[[Result, Whereabouts], Chart | None], ...]] = (
    waterfall,
    steps_apart,
    differences,
    roots,
    ranks_by_step,
    partition,
    steps,
    typical_step,
    elasticity,
    what_if,
    blame_icicle,
    operators,
    cores_over_time,
    stages,
    groups,
    links,
    who_waits,
)
TUNING_CHARTS: Final[tuple[Callable[[Tuning], Chart | None], ...]] = (verified, explained, tuned, savings)


def charts_of(document: Document, pictures: Sequence[Picture] = ()) -> list[Chart]:
    """Return the charts of a document, in the current language; ``pictures``: the timelines that they lead to."""
    devices = document.devices if isinstance(document, Result) else ()
    return list(_charts(document, Whereabouts(pictures, devices)))


def _charts(document: Document, where: Whereabouts) -> Iterator[Chart]:
    found: list[Chart | None] = []
    if isinstance(document, Result):
        found = [make(document, where) for make in RESULT_CHARTS]
    elif isinstance(document, Tuning):
        found = [make(document) for make in TUNING_CHARTS]
    elif isinstance(document, ResultChanges):
        found = [results(document)]
    yield from (chart for chart in found if chart is not None)

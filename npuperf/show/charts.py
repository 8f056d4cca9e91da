"""What a page draws of a document: a list of charts, each made by a function where its data is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from npuperf.base.messages import Message, chain, factor, ns, ns_change, number, say, say_n, share, share_change
from npuperf.base.units import NS_PER_US, short_names
from npuperf.model.comparison import Comparison, Outcome
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.model.tuning import ResultChanges, Tuning
from npuperf.show.comparison_text import falls, step_lines, verdict_line
from npuperf.show.device_charts import device_charts
from npuperf.show.efficiency_charts import efficiency_charts, roofline_chart
from npuperf.show.job_charts import groups, in_time, links, ranks_by_step, roots, stages, who_waits
from npuperf.show.memory_charts import memory_charts
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import BarRow, Chart, Piece, bars, element, legend, plain
from npuperf.show.words import OUTCOME, at_most

if TYPE_CHECKING:
    from npuperf.model.picture import Picture

# -- Charts of a comparison: from the old step to the new one, how sure that is, and which operators changed.

_PARTS, _ROWS = 10, 20
#: Bars begin at nothing unless less than this share of them changes: then nothing would be seen.
_SEEN: Final = 0.25
#: How much room is left beside what changes where they do not, as a share of it.
_ROOM: Final = 0.15


def falls_chart(found: Comparison) -> Chart | None:
    """Draw the way from the old mean step to the new one, part by part; the parts add up to the nanosecond."""
    old, new = found.old_step_ns, found.new_step_ns
    rows = falls(found, _PARTS)
    if old is None or new is None or not rows:
        return None
    made, at, places = [], old, [old]  # every place that the way touches
    for (fall,) in rows[:-1]:  # the last is their sum
        between, after = at + fall.count_ns, at + fall.delta_ns
        by_count = say("by count {change}", change=ns_change(fall.count_ns))
        by_speed = say("by speed {change}", change=ns_change(fall.speed_ns))
        pieces = (
            Piece(at, between, _sign(fall.count_ns), by_count, part="upper"),
            Piece(between, after, _sign(fall.speed_ns), by_speed, look="stripes", part="lower"),
        )
        name = chain(fall.part, say("{what}", what=fall.what) if fall.what.strip() else None, by=" ")
        note = chain(by_count if fall.count_ns else None, by_speed if fall.speed_ns else None,
                     say("{where}", where=fall.where) if fall.where.strip() else None, by=" · ")  # fmt: skip
        made.append(BarRow(name, ns_change(fall.delta_ns), pieces, note))
        places += [between, after]
        at = after
    low: float = min(places)
    high: float = max(places)
    if low and high - low < _SEEN * high:
        room = max((high - low) * _ROOM, 1.0)
        low, high = max(low - room, 0.0), high + room
    else:
        low = min(low, 0)
    stepped = all(found.stepped)
    before, after_ = (say("mean step before"), say("mean step after")) if stepped else (say("before"), say("after"))
    ends = [
        BarRow(name, ns(time), [Piece(low, time, "c-total")], strong=True)
        for name, time in ((before, old), (after_, new))
    ]
    by = ns_change(new - old)
    caption = chain(
        say("{old} → {new}: {change}", old=ns(old), new=ns(new), change=by),
        say("every row begins where the one above ends; the upper half is by count, the lower (striped) by speed"),
        say("the scale begins at {least}, not at nothing", least=ns(low)) if low else None,
    )
    words = (("c-worse", say("+ longer")), ("c-better", say("- shorter")))
    body = element("div", legend(words), bars([ends[0], *made, ends[1]], low, high))
    title = say("where the difference comes from")
    if stepped:
        title = say("where the difference of the mean step comes from")
    return Chart("waterfall", title, caption, body, wide=True)


def _sign(change: float) -> str:
    return "c-worse" if change > 0 else "c-better"


# --- the steps --------------------------------------------------------------------------------------------------------


def apart_chart(found: Comparison, devices: int = 1) -> Chart | None:
    """Draw the median step of both sides, and the interval of their difference against nothing."""
    old, new, interval = found.old_median_ns, found.new_median_ns, found.interval_ns
    if old is None or new is None or interval is None:
        return None
    sides = [
        BarRow(name, ns(time), [Piece(0, time, "c-total")])
        for name, time in ((say("before"), old), (say("after"), new))
    ]
    low, high = interval
    difference = BarRow(
        say("difference: {verdict}", verdict=OUTCOME[found.verdict]), ns_change(low, high),
        (Piece(0, new - old, _sign(new - old)), Piece(low, high, "", look="whisker")), strong=True,
    )  # fmt: skip
    reach = max(abs(low), abs(high), abs(new - old), 1)
    body = element("div", bars(sides, 0, max(old, new, 1)), bars([difference], -reach, reach))
    lines = (line.content for line in (verdict_line(found), *step_lines(found, devices)))
    said = [line for line in lines if isinstance(line, Message)]
    caption = chain(
        *said[:1],
        said[-1] if len(said) > 1 else None,
        say("the line is the interval of the difference; one that lies on both sides of the middle may be chance"),
    )
    return Chart("interval", say("median step before and after"), caption, body)


def differences(found: Comparison) -> Chart | None:
    """Draw by how much operators changed, to the left what got shorter."""
    known = [(row, row.old_ns, row.new_ns - row.old_ns) for row in found.rows
             if row.kind != "step" and row.old_ns is not None and row.new_ns is not None]  # fmt: skip
    changed = sorted((one for one in known if one[2]), key=lambda one: -abs(one[2]))
    if not changed:
        return None
    shown = changed[:_ROWS]
    names = short_names(row.name for row, _, _ in shown)
    reach = max(abs(delta) + (row.noise_ns or 0) for row, _, delta in shown)
    caption = chain(
        say_n("{shown} row that changed", "{shown} of {n} rows that changed", len(changed), shown=len(shown)),
        say("to the left: shorter than before; to the right: longer; lines show what may be chance"),
    )
    drawn = []
    for row, old, delta in shown:
        pieces = [Piece(0, delta, _sign(delta))]
        if row.noise_ns:
            pieces.append(Piece(delta - row.noise_ns, delta + row.noise_ns, "", look="whisker"))
        part = say("{part}", part=share_change(delta / old)) if old else None
        value = chain(say("{change}", change=ns_change(delta)), part, by=", ")
        note = say("{old} → {new}, {verdict}", old=ns(old), new=ns(row.new_ns), verdict=OUTCOME[row.verdict])
        drawn.append(BarRow(names[row.name], value, pieces, note))
    return Chart("differences", say("what changed, operator by operator"), caption, bars(drawn, -reach, reach))


# -- Charts of a tuning: what it made faster, what that saves, and what a run with it showed.

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
    rows = [
        (e.name, before * NS_PER_US, after * NS_PER_US, "" if e.types == (e.name,) else ", ".join(e.types))
        for e, before, after in known
    ]
    return _pairs("tuned", say("what was tuned, before and after"), rows, len(document.entries))


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
    rows = []
    for name, before, after, note in shown:
        value = say("{old} → {new}", old=ns(before), new=ns(after))
        if after:
            value = say("{old} → {new} (×{factor})", old=ns(before), new=ns(after), factor=factor(before / after))
        colour = "c-worse" if after > before else _AFTER
        pieces = (Piece(0, before, _BEFORE, part="upper"), Piece(0, after, colour, look="stripes", part="lower"))
        rows.append(BarRow(names[name], value, pieces, note))
    best = max((before / after for _, before, after, _ in found if after), default=0.0)
    longer = any(after > before for _, before, after, _ in shown)
    caption = chain(
        say_n("{shown} of {n} entry", "{shown} of {n} entries", listed, shown=len(shown)),
        say("the largest speed-up is {factor}", factor=factor(best)) if best > 1 else None,
    )
    words = [(_BEFORE, say("above: before")), (_AFTER, say("below: after"))]
    words += [("c-worse", say("+ longer"))] if longer else []
    return Chart(id_, title, caption, element("div", legend(words), bars(rows, 0, longest)))


def savings(document: Tuning) -> Chart | None:
    """Draw what every operator saves in a step of the profile: the least, and as an interval to the most."""
    found = sorted((s for s in document.savings if s.most_ns > 0), key=lambda s: -s.most_ns)
    if not found:
        return None
    shown = found[:_ROWS]
    names = short_names(s.name for s in shown)
    rows = [
        BarRow(names[s.name], ns(s.least_ns, s.most_ns),
               [Piece(0, s.least_ns, _AFTER), Piece(s.least_ns, s.most_ns, "", look="whisker")],
               say("{felt} of {calls} calls per step are in device-bound time", felt=number(s.felt_per_step),
                   calls=number(s.calls_per_step)))
        for s in shown
    ]  # fmt: skip
    in_all, step = document.saved_ns, document.step_ns
    part = share(*(end / step for end in in_all)) if in_all and step else None
    caption = chain(
        say("what is filled is saved at least, the line ends at the most"),
        say("together {saved} per step", saved=at_most(*in_all)) if in_all else None,
        say("{part} of a step", part=part) if part else None,
    )
    title = say("predicted saving per step of the profile")
    return Chart("savings", title, caption, bars(rows, 0, max(s.most_ns for s in shown)))


def verified(found: Comparison) -> Chart | None:
    """Draw what a run with the tuned knowledge base showed: the steps, beside what was predicted."""
    step = found.step
    if step is None or step.old_ns is None or step.new_ns is None:
        return None
    saved, expected = step.old_ns - step.new_ns, step.expected_ns or found.expected_ns
    colour = _OF_VERDICT.get(found.verdict, _BEFORE)
    sides = [
        BarRow(name, ns(time), [Piece(0, time, of)])
        for name, time, of in ((say("without"), step.old_ns, _BEFORE), (say("with"), step.new_ns, colour))
    ]
    sure = None  # what is saved at least and at most, as far as chance leaves it open
    if found.interval_ns is not None:
        sure = -found.interval_ns[1], -found.interval_ns[0]
    elif step.saved_ns is not None and step.noise_ns:
        sure = step.saved_ns - step.noise_ns, step.saved_ns + step.noise_ns
    pieces = [Piece(0, saved, colour), *([Piece(*sure, "", look="whisker")] if sure else [])]
    gains = [BarRow(say("measured"), ns(*sure) if sure else ns(saved), pieces)]
    if expected is not None:
        predicted = [Piece(0, expected[0], _BEFORE), Piece(*expected, "", look="whisker")]
        gains.append(BarRow(say("predicted"), ns(*expected), predicted))
    ends = [saved, *(sure or ()), *(expected or ())]
    longest = max(piece.high for row in sides for piece in row.pieces)
    body = element(
        "div",
        bars(sides, 0, longest),
        element("p", plain(say("saved per step")), class_="panel-name"),
        bars(gains, min(0, *ends), max(1, *ends)),
    )
    caption = chain(
        OUTCOME[found.verdict],
        say("a line is the interval of what chance leaves open; one that reaches to nothing may be chance")
        if sure else None,
    )  # fmt: skip
    title = say("the step without and with the tuned knowledge base")
    return Chart("verified", title, caption, body)


def charts_of(document: Document, pictures: Sequence[Picture] = ()) -> list[Chart]:
    """Return the charts of a document, in the order of the page and in the current language.

    ``pictures``: the timelines that they lead to. What a chart is about may not be there: then there is none.
    """
    made: list[Chart | None] = []
    if isinstance(document, Result):
        where = Whereabouts(pictures, document.devices)
        if (compared := document.comparison) is not None:
            devices = 1 if document.digest is None else document.digest.devices
            made += [falls_chart(compared), apart_chart(compared, devices), differences(compared)]
        cluster = document.cluster
        made += [roots(cluster), in_time(cluster)] if cluster else []
        made += [ranks_by_step(document, where), *device_charts(document, where), *efficiency_charts(document.devices)]
        made += [roofline_chart(document, where)]
        made += memory_charts(document.devices)
        made += [stages(cluster), groups(cluster), links(cluster), who_waits(cluster)] if cluster else []
    elif isinstance(document, Tuning):
        if document.verification is not None:
            made += [verified(document.verification), falls_chart(document.verification)]
        made += [tuned(document), savings(document)]
    elif isinstance(document, ResultChanges):
        made.append(results(document))
    return [chart for chart in made if chart is not None]

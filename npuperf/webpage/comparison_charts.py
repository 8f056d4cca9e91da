"""Charts of a comparison: from the old step to the new one, how sure that is, and which operators changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.documents.analysis import Result
from npuperf.documents.comparison import Compared, Comparison
from npuperf.messages import Message, chain, ns, ns_change, say, say_n, share_change
from npuperf.render.comparison_words import Fall, falls, step_lines, verdict_line
from npuperf.render.tables import Row
from npuperf.render.words import OUTCOME
from npuperf.units import short_names
from npuperf.webpage.bars import BarRow, Piece, bars
from npuperf.webpage.chart import Chart, plain, sentences
from npuperf.webpage.svg import element, legend
from npuperf.webpage.whereabouts import Whereabouts

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

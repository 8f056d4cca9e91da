"""What a comparison says, for every format that people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.documents.comparison import Comparison, Difference, FindingChange, WaterfallPart
from npuperf.documents.comparison_names import worded
from npuperf.messages import (
    NOTHING,
    Message,
    Parameter,
    Series,
    chain,
    ns,
    ns_change,
    number,
    say,
    say_n,
    series,
    share_change,
)
from npuperf.render.comparison_tables import CHANGE, PART
from npuperf.render.language import text
from npuperf.render.page import Line
from npuperf.render.tables import Column, Row, Table, each
from npuperf.render.words import CAUSE, OUTCOME, WAITED_FOR, WORDS
from npuperf.units import grouped

#: Styles of verdicts, as lines have them.
_STYLES: Final = {"better": "good", "worse": "bad", "same": "bold", "cannot_tell": "warning"}
#: Rows of the waterfall, and differences of the set-ups, that one screen has room for.
PARTS, DIFFERENCES = 10, 3
#: Of what an operator replaces, so many are named.
_REPLACED = 3
_BAR = 12
#: With less room a part and what it is about share a column.
_ROOM = 60


def verdict_line(comparison: Comparison) -> Line:
    """Return the verdict and why it is so."""
    why = comparison.reason or say("the steps of both sides were held against each other")
    return Line(why, _STYLES[comparison.verdict], OUTCOME[comparison.verdict])


def step_lines(comparison: Comparison, devices: int = 1) -> Iterator[Line]:
    """Say how long the mean and the median step of both sides are, and by how much the steps differ for sure.

    Of several devices it is the mean of each, and not the step of the job, which lasts from the first to the last.
    """
    c = comparison
    if c.old_step_ns is not None and c.new_step_ns is not None:
        mean = say("mean of {n} devices", n=devices) if devices > 1 else None
        yield Line(chain(_change(c.old_step_ns, c.new_step_ns), mean), label=_whole(c))
    medians = c.old_median_ns, c.new_median_ns
    if (
        all(c.stepped)
        and medians != (c.old_step_ns, c.new_step_ns)
        and c.old_median_ns is not None
        and c.new_median_ns is not None
    ):
        yield Line(_change(c.old_median_ns, c.new_median_ns), label=say("median step"))
    if c.interval_ns is not None:
        yield Line(chain(_sure(c), _grounds(c)), label=say("difference"))
    if c.expected_ns is not None:
        yield Line(say("{saved} per step", saved=ns(*c.expected_ns)), label=say("predicted saving"))


def _whole(c: Comparison) -> Message:
    """Name what the parts add up to: the mean step, or all of a recording where no steps are."""
    if all(c.stepped):
        return say("mean step")
    return say("step or recording") if any(c.stepped) else say("recording")


def _change(old: int, new: int) -> Message:
    """Say from what to what a time changed, and by how much."""
    if old == new:
        return say("{time}, the same on both sides", time=ns(old))
    by = say("{change}", change=ns_change(new - old))
    part = say("{part}", part=share_change((new - old) / old)) if old else None
    return say("{old} → {new} ({by})", old=ns(old), new=ns(new), by=chain(by, part, by=", "))


def _sure(c: Comparison) -> Message:
    least = ns_change(*(c.interval_ns or (None, None)))
    if c.confidence is None:
        return say("{interval}", interval=least)
    return say("{interval} with {percent} % confidence", interval=least, percent=number(100 * c.confidence))


def _grounds(c: Comparison) -> Message | None:
    """Say how the interval was found, and from how many steps."""
    old, new = c.samples
    known = all(c.stepped)
    steps = say("{old} and {new} steps", old=old, new=new) if known and (old or new) else None
    if known and old and old == new:
        steps = say_n("{n} step on each side", "{n} steps on each side", old)
    return chain(c.method, steps) if c.method or steps else None


def parity_lines(comparison: Comparison, most: int | None = DIFFERENCES) -> Iterator[Line]:
    """Yield what differs between the set-ups and may explain a change in time; all of it where ``most`` is None."""
    notable = [d for d in comparison.parity if d.matters or d.mismatch]
    shown = comparison.parity if most is None else notable[:most]
    for difference in shown:
        told = most is not None and _holds(comparison.reason, difference.reason)  # the verdict gives the reason
        yield Line(_difference(difference, told), _parity_style(difference))
    left = len(comparison.parity) - len(shown)
    if not comparison.parity:
        yield Line(_alike(comparison), "dim")
    elif left:
        more = say_n("{n} more difference", "{n} more differences", left)
        if len(shown) == len(notable):  # of those that may change the time none is left
            more = say_n(
                "{n} difference that should not change the time",
                "{n} differences that should not change the time",
                left,
            )
        yield Line(say("{more}: --full shows all", more=more), "dim")


def _alike(comparison: Comparison) -> Message:
    if comparison.workload == "same":
        return say("the same on both sides, as far as it is recorded")
    if comparison.method is None and comparison.old_step_ns is None and comparison.new_step_ns is None:
        return say("not compared")
    return say("nothing is known to differ")


def _parity_style(difference: Difference) -> str:
    return "bad" if difference.mismatch else "warning" if difference.matters else "dim"


def _difference(difference: Difference, told: bool) -> Message:
    old, new = (say("not recorded") if side is None else worded(side) for side in (difference.old, difference.new))
    differs = say("{what}: {old} → {new}", what=worded(difference.what), old=old, new=new)
    return chain(differs, None if told else difference.reason)


def _holds(message: Parameter, part: Message | None) -> bool:
    """Tell whether a message is another one, or has it among its parameters."""
    if part is None:
        return False
    if message == part:
        return True
    if isinstance(message, Message):
        return any(_holds(inside, part) for inside in message.parameters.values())
    return isinstance(message, Series) and any(_holds(inside, part) for inside in message.items)


# --- the waterfall ----------------------------------------------------------------------------------------------------


class Fall(Struct, frozen=True):
    """One row of the waterfall as people see it; the rest is one row, and the whole step the last."""

    part: Message
    what: str
    calls: str
    old_ns: int
    new_ns: int
    delta_ns: int
    count_ns: int
    speed_ns: int
    bar: str = " "
    where: str = " "


# fmt: off
#: Differences are shown to the nanosecond, so that they add up where people read them.
FALLS: Final = Table("waterfall", say("where the difference of the mean step comes from, in µs"), each(), (
    Column("part", say("part"), "message", weight=0),
    Column("what", say("what"), weight=0, least=44),
    Column("delta_ns", say("change"), "bare_us_change", weight=0),
    Column("count_ns", say("by count"), "bare_us_change"),
    Column("speed_ns", say("by speed"), "bare_us_change"),
    Column("calls", say("count"), weight=2),
    Column("old_ns", say("before"), "bare_us", weight=3),
    Column("new_ns", say("after"), "bare_us", weight=3),
    Column("where", say("where"), weight=4),
    Column("bar", NOTHING, "bar", weight=3),
), counted=False)
_NARROW_FALLS: Final = FALLS.only(
    Column("what", say("what"), get=lambda fall: f"{text(fall.part)} {fall.what}".rstrip(), weight=0), "delta_ns",
    "count_ns", "speed_ns",
)
# fmt: on


def falls_title(comparison: Comparison) -> Message:
    """Say what the waterfall explains."""
    return FALLS.title if all(comparison.stepped) else say("where the difference comes from, in µs")


def unchanged(comparison: Comparison) -> Message:
    """Say that there is nothing to explain."""
    return say("no part of the mean step changed") if all(comparison.stepped) else say("no part of it changed")


def falls_table(width: int) -> Table:
    """Return the table of the waterfall for a screen so wide."""
    return FALLS if width >= _ROOM else _NARROW_FALLS


def falls(comparison: Comparison, most: int | None = PARTS) -> list[Row]:
    """Return the parts that changed most, the others as one row, and their sum, which is the step's difference."""
    parts = sorted((p for p in comparison.waterfall if _differs(p)), key=lambda p: -abs(p.delta_ns))
    shown, rest = parts[:most], parts[most:] if most is not None else []
    rest += [p for p in comparison.waterfall if not _differs(p)]
    if not parts:
        return []
    if len(rest) == 1:  # which takes no more room
        shown, rest = [*shown, *rest], []
    rows = [_fall(PART[p.part], _what(p), [p], p) for p in shown]
    if rest:
        rows.append(_fall(say("the rest"), text(_rest(rest)), rest))
    greatest = max(abs(row.delta_ns) for row in rows)
    whole = _fall(_whole(comparison), " ", comparison.waterfall)
    return [(_with_bar(row, greatest),) for row in rows] + [(whole,)]


def _rest(parts: Sequence[WaterfallPart]) -> Message:
    if any(map(_differs, parts)):
        return say_n("{n} more part", "{n} more parts", len(parts))
    return say_n("{n} part that did not change", "{n} parts that did not change", len(parts))


def _differs(part: WaterfallPart) -> bool:
    return bool(part.delta_ns or part.count_ns or part.speed_ns)


def _fall(title: Message, what: str, parts: Sequence[WaterfallPart], one: WaterfallPart | None = None) -> Fall:
    return Fall(
        part=title,
        what=what,
        calls=_calls(one) if one else " ",
        old_ns=sum(p.old_ns for p in parts),
        new_ns=sum(p.new_ns for p in parts),
        delta_ns=sum(p.delta_ns for p in parts),
        count_ns=sum(p.count_ns for p in parts),
        speed_ns=sum(p.speed_ns for p in parts),
        where=(one.where or one.torch_op or " ") if one else " ",
    )


def _with_bar(row: Fall, greatest: int) -> Fall:
    length = -(-_BAR * abs(row.delta_ns) // greatest) if greatest else 0  # anything but nothing is seen
    return replace(row, bar=("+" if row.delta_ns > 0 else "-") * length or " ")


def _what(part: WaterfallPart) -> str:
    """Name what a part is about; a name that only one side has says so before it, where nothing cuts it off."""
    key = _key(part)
    if key is None:
        return " "
    if part.instead_of:
        return text(_replacement(part, key))
    if part.change == "added":
        return text(say("new: {name}", name=key))
    if part.change == "removed":
        return text(say("gone: {name}", name=key))
    return key


def _key(part: WaterfallPart) -> str | None:
    """Return what a part is about in words: causes of waits are given by their names in the document."""
    if part.key is None:
        return text(say("all operators")) if part.part == "compute" else None  # a summary of steps tells none apart
    if part.part == "dependency":
        return text(WAITED_FOR.get(part.key, part.key))
    cause, found, name = part.key.partition(": ")
    if part.part != "host_wait" or cause not in CAUSE:
        return part.key
    if not found or cause == "unrecorded":
        return text(CAUSE[cause])
    return text(say("{name} ({cause})", name=WORDS["others"] if name == "others" else name, cause=CAUSE[cause]))


def _replacement(part: WaterfallPart, key: str) -> Message:
    """Say which operators stand where others stood, which nothing records."""
    keys = (*part.replaced_by, *part.instead_of)
    if len(part.replaced_by) > 1 and all(name.startswith(f"{key} ") for name in keys):
        return say("{type} with other shapes (inferred)", type=key)
    new, old = (_few(names) for names in (part.replaced_by or (key,), part.instead_of))
    return say("{new} instead of {old} (inferred)", new=new, old=old)


def _few(names: Sequence[str]) -> Series:
    more = len(names) - _REPLACED
    return series([*names[:_REPLACED], say("and {n} more", n=more)] if more > 0 else names)


def _calls(part: WaterfallPart) -> str:
    if not (part.old_count or part.new_count):
        return " "
    old, new = (grouped(calls, 2).rstrip("0").rstrip(".") for calls in (part.old_count, part.new_count))
    return new if old == new else text(say("{old} → {new}", old=old, new=new))


def part_line(part: WaterfallPart) -> Message:
    """Say in a few words what a part changed."""
    name = _what(part).strip()
    what = chain(PART[part.part], say("{name}", name=name) if name else None, by=" ")
    return say("{what} {change}", what=what, change=ns_change(part.delta_ns))


# --- findings ---------------------------------------------------------------------------------------------------------


def finding_line(change: FindingChange) -> Line:
    """Say that a finding is new, gone, or says something else."""
    said: Message = change.new or change.old or say("{rule}", rule=change.rule)
    if change.change == "changed" and change.old is not None and change.new is not None:
        said = say("{new} (before: {old})", new=change.new, old=change.old)
    old, new = (severity and WORDS.get(severity, severity) for severity in (change.old_severity, change.new_severity))
    severity = say("{old} → {new}", old=old, new=new) if old and new and old != new else new or old
    rank = say("rank {rank}", rank=change.rank) if change.rank is not None else None
    about = chain(CHANGE[change.change], say("{severity}", severity=severity) if severity else None, rank, by=", ")
    style = {"added": "bad", "removed": "good"}.get(change.change, "bold")
    return Line(said, style, about)

"""A comparison in words and tables, for every format: the verdict, the set-ups, where the difference comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base import messages
from npuperf.base.messages import (
    NOTHING,
    Message,
    Parameter,
    Series,
    chain,
    factor,
    mib,
    ns,
    ns_change,
    number,
    say,
    say_n,
    series,
)
from npuperf.base.units import grouped
from npuperf.model.comparison import Comparison, FindingChange, MemoryChange, Shift, WaterfallPart, worded
from npuperf.show.language import text
from npuperf.show.tables import Column, Row, Table, each
from npuperf.show.words import CAUSE, OUTCOME, WAITED_FOR, WORDS, Line, at_most

#: Parts of a step, for people.
PART: Final = {
    "compute": say("compute"),
    "transfer": say("transfer"),
    "wait": say("wait for ranks"),
    "comm_unknown": say("communication"),
    "host_wait": say("host wait"),
    "launch_latency": say("launch latency"),
    "dependency": say("dependency"),
    "unattributed": say("unattributed"),
    "other": say("other work"),
}
#: Parts of a peak of memory, and of what the process has beside it.
MEMORY_PART: Final = {
    "before": say("from before the window"),
    "freed": say("of that given back"),
    "alive": say("blocks of the window"),
    "peak": say("peak"),
    "cached": say("cached"),
    "waiting": say("waiting for a stream"),
    "outside": say("outside of PyTorch"),
}
#: Operators of which it is said whether their work changed.
_OPERATORS: Final = 4
#: What a change of a finding is called.
CHANGE: Final = {"added": say("new"), "removed": say("gone"), "changed": say("changed"), "same": say("same")}


def measured(shift: Shift, value: float | None) -> str | None:
    """Return a value of a shift with its unit, for people."""
    if value is None:
        return None
    if shift.unit == "ns":
        return str(ns(value))
    if shift.unit == "percent":
        return str(messages.share(value / 100))
    if shift.unit == "bytes":
        return str(messages.size(round(value)))
    shown = {"MHz": say("{n} MHz", n=number(value)), "GB/s": say("{n} GB/s", n=number(value))}
    return text(shown.get(shift.unit, number(value)))


def on_side(shift: Shift, value: float | None) -> str | None:
    """Return a side of a shift, for people: with all digits where both sides would read the same."""
    if shift.unit == "bytes" and value is not None and measured(shift, shift.old) == measured(shift, shift.new):
        return text(say("{n} bytes", n=grouped(value, 0)))
    return measured(shift, value)


def of_peak(comparison: Comparison) -> list[MemoryChange]:
    """Return the parts that add up to the difference of the peaks of memory."""
    return [change for change in comparison.memory if change.part in ("before", "freed", "alive", "peak")]


def memory_line(comparison: Comparison) -> Message | None:
    """Say by how much the peak of memory is higher or lower; None where it is not, or not recorded on both sides."""
    delta = sum(change.delta_bytes for change in of_peak(comparison))
    if not delta:
        return None
    apart = mib(abs(delta))
    more, less = (
        say("the peak of memory is {apart} higher", apart=apart),
        say("the peak of memory is {apart} lower", apart=apart),
    )
    return more if delta > 0 else less


def work_line(comparison: Comparison) -> Message | None:
    """Say of operators that changed for certain whether that is their work; None where nothing tells it."""
    rows = [r for r in comparison.rows if r.kind == "operator" and r.verdict in ("worse", "better")]
    known = [r for r in rows if r.same_work is not None][:_OPERATORS]
    told: list[Message] = []
    alike = [r for r in known if r.same_work and r.count == r.old_count]
    slower, faster = ([r.name for r in alike if r.verdict == verdict] for verdict in ("worse", "better"))
    if slower:
        told.append(say("slower at the same work: {operators}", operators=series(slower)))
    if faster:
        told.append(say("faster at the same work: {operators}", operators=series(faster)))
    times = [say("{operator} {old} → {new}", operator=r.name, old=r.old_count, new=r.count)
             for r in known if r.same_work and r.count != r.old_count]  # fmt: skip
    if times:
        told.append(say("as much work per kernel, but another number of kernels: {operators}", operators=series(times)))
    other = [say("{operator} {times}", operator=r.name, times=_times(r.work_change))
             for r in known if not r.same_work and r.work_change]  # fmt: skip
    if other:
        told.append(say("other work per kernel: {operators}", operators=series(other)))
    return chain(*told) if told else None


def _times(change: tuple[float, float]) -> Message:
    low, high = change
    if low == high:
        return say("× {factor}", factor=factor(low))
    return say("× {least} to {most}", least=factor(low), most=factor(high))


def interval(shift: Shift) -> str | None:
    """Return the interval of a shift's difference, for people."""
    if shift.interval is None:
        return None
    low, high = shift.interval
    if shift.unit == "ns":
        return str(ns_change(low, high))
    if shift.unit == "percent":
        return str(messages.share_change(low / 100, high / 100))
    least, most = (measured(shift, end) for end in shift.interval)
    return text(say("{low} to {high}", low=least, high=most))


def _for_people(name: str | None) -> Message | str | None:
    return name and worded(name)


# fmt: off
_VERDICT: Final = Column("verdict", say("verdict"), "word", weight=0)
COMPARISON_TABLES: Final = (
    Table("comparison", say("this run against its baseline"), each("comparison"), (
        _VERDICT,
        Column("old", say("baseline"), weight=2),
        Column("new", say("run"), weight=2),
        Column("old_step_ns", say("baseline's mean step"), "us"),
        Column("new_step_ns", say("mean step"), "us"),
        Column("delta_ns", say("difference of the means"), "us_change", weight=0),
        Column("old_median_ns", say("baseline's median step"), "us"),
        Column("new_median_ns", say("median step"), "us"),
        Column("least_ns", say("steps differ by, min"), "us_change", "interval_ns.0"),
        Column("most_ns", say("steps differ by, max"), "us_change", "interval_ns.1"),
        Column("confidence", say("confidence"), "percent"),
        Column("old_samples", say("baseline's steps"), "count", "samples.0"),
        Column("new_samples", say("steps"), "count", "samples.1"),
        Column("workload", say("workload"), "word"),
        Column("method", say("method"), "message", weight=2),
        Column("reason", say("reason"), "message"),
    ), aside=True),
    Table("causes", say("what slows the job, and costs another time than before"), each("comparison.causes"), (
        Column("kind", say("kind"), "word"),
        Column("ranks", say("ranks"), weight=0),
        Column("stage", say("stage"), "id"),
        Column("change", say("change"), "word", weight=0, brief=lambda c: CHANGE[c.change]),
        Column("least_ns", say("step differs by, min"), "us_change", "delta_ns.0", weight=0),
        Column("most_ns", say("step differs by, max"), "us_change", "delta_ns.1", weight=0),
        Column("old_least_ns", say("costs before, min"), "us", "old_ns.0", weight=2),
        Column("old_most_ns", say("costs before, max"), "us", "old_ns.1", weight=2),
        Column("new_least_ns", say("costs after, min"), "us", "new_ns.0", weight=2),
        Column("new_most_ns", say("costs after, max"), "us", "new_ns.1", weight=2),
        Column("title", say("cause"), "message"),
    ), aside=True, topic="comparison"),
    Table("waterfall", say("what makes the mean step longer or shorter"), each("comparison.waterfall"), (
        Column("part", say("part"), weight=0, brief=lambda p: PART[p.part]),
        Column("key", say("what"), weight=0),
        Column("delta_ns", say("difference"), "us_change", weight=0),
        Column("count_ns", say("by count"), "us_change"),
        Column("speed_ns", say("by speed"), "us_change"),
        Column("old_ns", say("before"), "us"),
        Column("new_ns", say("after"), "us"),
        Column("old_count", say("count before"), "plain", weight=2),
        Column("new_count", say("count after"), "plain", weight=2),
        Column("change", say("change"), "word", weight=2),
        Column("instead_of", say("instead of (inferred)"), weight=2),
        Column("replaced_by", say("replaced by (inferred)"), weight=2),
        Column("where", say("where"), "code", weight=2),
        Column("torch_op", say("torch operator"), weight=2),
    ), aside=True),
    Table("parity", say("what differs between the set-ups"), each("comparison.parity"), (
        Column("what", say("what"), weight=0, brief=lambda d: _for_people(d.what)),
        Column("old", say("before"), weight=0, brief=lambda d: _for_people(d.old)),
        Column("new", say("after"), weight=0, brief=lambda d: _for_people(d.new)),
        Column("matters", say("matters"), "word"),
        Column("mismatch", say("another workload"), "word"),
        Column("reason", say("why"), "message"),
    ), aside=True, topic="comparison"),
    Table("compared", say("steps and operators on both sides"), each("comparison.rows"), (
        Column("kind", say("kind"), "word"),
        Column("name", say("name"), "kernel", weight=0),
        _VERDICT,
        Column("change", say("change"), "word"),
        Column("old_ns", say("before"), "us"),
        Column("new_ns", say("after"), "us"),
        Column("noise_ns", say("noise"), "us"),
        Column("count", say("count"), "count"),
        Column("old_count", say("count before"), "count"),
        Column("least_work", say("work of a kernel, times, min"), "plain", "work_change.0"),
        Column("most_work", say("work of a kernel, times, max"), "plain", "work_change.1"),
    ), aside=True, topic="comparison",
       go=lambda at, row: at.anywhere("operator", row.name) if row.kind == "operator" else ""),
    Table("memory_changes", say("what makes the peak of memory higher or lower"), each("comparison.memory"), (
        Column("part", say("part"), weight=0, brief=lambda m: MEMORY_PART[m.part]),
        Column("key", say("what"), weight=0),
        Column("delta_bytes", say("difference"), "mib", weight=0),
        Column("old_bytes", say("before"), "mib"),
        Column("new_bytes", say("after"), "mib"),
    ), aside=True, topic="comparison"),
    Table("shifts", say("what else was measured on both sides"), each("comparison.shifts"), (
        Column("what", say("what"), weight=0, brief=lambda s: _for_people(s.what)),
        Column("old", say("before"), "plain", weight=0, brief=lambda s: on_side(s, s.old)),
        Column("new", say("after"), "plain", weight=0, brief=lambda s: on_side(s, s.new)),
        Column("unit", say("unit"), "word", weight=2),
        Column("least", say("differs by, min"), "plain", "interval.0",
               brief=lambda s: measured(s, s.interval[0] if s.interval else None)),
        Column("most", say("differs by, max"), "plain", "interval.1",
               brief=lambda s: measured(s, s.interval[1] if s.interval else None)),
        Column("old_samples", say("samples before"), "count", "samples.0", weight=2),
        Column("new_samples", say("samples after"), "count", "samples.1", weight=2),
        _VERDICT,
    ), aside=True, topic="comparison"),
    Table("finding_changes", say("findings that are new, gone or changed"), each("comparison.findings"), (
        Column("change", say("change"), "word", weight=0, brief=lambda f: CHANGE[f.change]),
        Column("rule", say("rule")),
        Column("rank", say("rank"), "id", quiet=True),
        Column("ranks", say("ranks"), weight=2),
        Column("old_severity", say("severity before"), "word", weight=2),
        Column("new_severity", say("severity after"), "word", weight=2),
        Column("old", say("before"), "message"),
        Column("new", say("after"), "message"),
    ), aside=True),
    Table("aligned", say("steps and phases that only one side has"), each("comparison.aligned"), (
        Column("said", say("what"), "message", lambda said: said, 0),
    ), aside=True),
)
# fmt: on
NAMED: Final = {table.name: table for table in COMPARISON_TABLES}

#: Of what an operator replaces, so many are named.
_REPLACED = 3


def part_name(part: WaterfallPart) -> str:
    """Name what a part is about; a name that only one side has says so before it, where nothing cuts it off."""
    key = _key(part)
    if key is None:
        return " "
    if part.instead_of:  # which nothing records
        keys = (*part.replaced_by, *part.instead_of)
        if len(part.replaced_by) > 1 and all(name.startswith(f"{key} ") for name in keys):
            return text(say("{type} with other shapes (inferred)", type=key))
        new, old = (messages.first_few(names, _REPLACED) for names in (part.replaced_by or (key,), part.instead_of))
        return text(say("{new} instead of {old} (inferred)", new=new, old=old))
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


def part_line(part: WaterfallPart) -> Message:
    """Say in a few words what a part changed."""
    name = part_name(part).strip()
    what = chain(PART[part.part], say("{name}", name=name) if name else None, by=" ")
    return say("{what} {change}", what=what, change=ns_change(part.delta_ns))


# -- What a comparison says.

#: Styles of verdicts, as lines have them.
_STYLES: Final = {"better": "good", "worse": "bad", "same": "bold", "cannot_tell": "warning"}
#: Rows of the waterfall, and differences of the set-ups, that one screen has room for.
PARTS, DIFFERENCES = 10, 3
_BAR = 12


def verdict_line(comparison: Comparison) -> Line:
    """Return the verdict and why it is so."""
    return Line(reason_of(comparison), _STYLES[comparison.verdict], OUTCOME[comparison.verdict])


def reason_of(comparison: Comparison) -> Message:
    """Return why the verdict is so."""
    return comparison.reason or say("the steps of both sides were held against each other")


def length_line(comparison: Comparison) -> Message | None:
    """Say from what to what the mean step changed."""
    old, new = comparison.old_step_ns, comparison.new_step_ns
    if old is None or new is None:
        return None
    return say("{what} {change}", what=_whole(comparison), change=_change(old, new))


def largest_parts(comparison: Comparison, most: int) -> list[Message]:
    """Say what the parts changed that explain most of a difference."""
    parts = sorted((p for p in comparison.waterfall if p.delta_ns), key=lambda p: -abs(p.delta_ns))
    return [part_line(part) for part in parts[:most]]


def step_lines(comparison: Comparison, devices: int = 1) -> Iterator[Line]:
    """Say how long the mean and the median step of both sides are, and by how much the steps differ for sure.

    Of several devices it is the mean of each, and not the step of the job, which lasts from the first to the last.
    """
    c = comparison
    if c.old_step_ns is not None and c.new_step_ns is not None:
        mean = say("mean of {n} devices", n=devices) if devices > 1 else None
        yield Line(chain(_change(c.old_step_ns, c.new_step_ns), mean), label=_whole(c))
    known = all(c.stepped)
    means, medians = (c.old_step_ns, c.new_step_ns), (c.old_median_ns, c.new_median_ns)
    if known and medians != means and medians[0] is not None and medians[1] is not None:
        yield Line(_change(medians[0], medians[1]), label=say("median step"))
    if c.interval_ns is not None:
        sure = say("{interval}", interval=ns_change(*c.interval_ns))
        if c.confidence is not None:
            sure = say("{interval} with {percent} % confidence",
                       interval=ns_change(*c.interval_ns), percent=number(100 * c.confidence))  # fmt: skip
        old, new = c.samples
        steps = say("{old} and {new} steps", old=old, new=new) if known and (old or new) else None
        if known and old and old == new:
            steps = say_n("{n} step on each side", "{n} steps on each side", old)
        yield Line(chain(sure, chain(c.method, steps) if c.method or steps else None), label=say("difference"))
    if c.expected_ns is not None:
        yield Line(say("{saved} per step", saved=at_most(*c.expected_ns)), label=say("predicted saving"))


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
    part = say("{part}", part=messages.share_change((new - old) / old)) if old else None
    return say("{old} → {new} ({by})", old=ns(old), new=ns(new), by=chain(by, part, by=", "))


def parity_lines(comparison: Comparison, most: int | None = DIFFERENCES) -> Iterator[Line]:
    """Yield what differs between the set-ups and may explain a change in time; all of it where ``most`` is None."""
    c = comparison
    notable = [d for d in c.parity if d.matters or d.mismatch]
    shown = c.parity if most is None else notable[:most]
    for d in shown:
        old, new = (say("not recorded") if side is None else worded(side) for side in (d.old, d.new))
        differs = say("{what}: {old} → {new}", what=worded(d.what), old=old, new=new)
        told = most is not None and _holds(c.reason, d.reason)  # the verdict gives the reason
        style = "bad" if d.mismatch else "warning" if d.matters else "dim"
        yield Line(chain(differs, None if told else d.reason), style)
    left = len(c.parity) - len(shown)
    if not c.parity:
        if c.workload == "same":
            alike = say("the same on both sides, as far as it is recorded")
        elif c.method is None and c.old_step_ns is None and c.new_step_ns is None:
            alike = say("not compared")
        else:
            alike = say("nothing is known to differ")
        yield Line(alike, "dim")
    elif left:
        more = say_n("{n} more difference", "{n} more differences", left)
        if len(shown) == len(notable):  # of those that may change the time none is left
            more = say_n("{n} difference that should not change the time",
                         "{n} differences that should not change the time", left)  # fmt: skip
        yield Line(say("{more}: --full shows all", more=more), "dim")


def _holds(message: Parameter, part: Message | None) -> bool:
    """Tell whether a message is another one, or has it among its parameters."""
    if part is None:
        return False
    inside = message.parameters.values() if isinstance(message, Message) else ()
    items = message.items if isinstance(message, Series) else inside
    return message == part or any(_holds(item, part) for item in items)


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
    Column("where", say("where"), "code", weight=4),
    Column("bar", NOTHING, "bar", weight=3),
), counted=False)
# fmt: on


def falls_title(comparison: Comparison) -> Message:
    """Say what the waterfall explains."""
    return FALLS.title if all(comparison.stepped) else say("where the difference comes from, in µs")


def unchanged(comparison: Comparison) -> Message:
    """Say that there is nothing to explain."""
    return say("no part of the mean step changed") if all(comparison.stepped) else say("no part of it changed")


def falls(comparison: Comparison, most: int | None = PARTS) -> list[Row]:
    """Return the parts that changed most, the others as one row, and their sum, which is the step's difference."""
    waterfall = comparison.waterfall
    parts = sorted((p for p in waterfall if _differs(p)), key=lambda p: -abs(p.delta_ns))
    if not parts:
        return []
    shown, rest = parts[:most], parts[most:] if most is not None else []
    changed = bool(rest)
    rest += [p for p in waterfall if not _differs(p)]
    if len(rest) == 1:  # which takes no more room
        shown, rest = [*shown, *rest], []
    rows = [_fall(PART[p.part], part_name(p), [p], p) for p in shown]
    if rest:
        more = say_n("{n} part that did not change", "{n} parts that did not change", len(rest))
        if changed:
            more = say_n("{n} more part", "{n} more parts", len(rest))
        rows.append(_fall(say("the rest"), text(more), rest))
    greatest = max(abs(row.delta_ns) for row in rows)
    barred: list[Row] = []
    for row in rows:
        length = -(-_BAR * abs(row.delta_ns) // greatest) if greatest else 0  # anything but nothing is seen
        barred.append((replace(row, bar=("+" if row.delta_ns > 0 else "-") * length or " "),))
    return [*barred, (_fall(_whole(comparison), " ", waterfall),)]


def _differs(part: WaterfallPart) -> bool:
    return bool(part.delta_ns or part.count_ns or part.speed_ns)


def _fall(title: Message, what: str, parts: Sequence[WaterfallPart], one: WaterfallPart | None = None) -> Fall:
    calls, where = " ", " "
    if one:
        old, new = (grouped(n, 2).rstrip("0").rstrip(".") for n in (one.old_count, one.new_count))
        if one.old_count or one.new_count:
            calls = new if old == new else text(say("{old} → {new}", old=old, new=new))
        where = one.where or one.torch_op or " "
    fields = ("old_ns", "new_ns", "delta_ns", "count_ns", "speed_ns")
    old_ns, new_ns, delta_ns, count_ns, speed_ns = (sum(getattr(p, of) for p in parts) for of in fields)
    return Fall(title, what, calls, old_ns, new_ns, delta_ns, count_ns, speed_ns, where=where)


def finding_line(change: FindingChange) -> Line:
    """Say that a finding is new, gone, or says something else."""
    said: Message = change.new or change.old or say("{rule}", rule=change.rule)
    if change.change == "changed" and change.old is not None and change.new is not None:
        said = say("{new} (before: {old})", new=change.new, old=change.old)
    old, new = (severity and WORDS.get(severity, severity) for severity in (change.old_severity, change.new_severity))
    severity = say("{old} → {new}", old=old, new=new) if old and new and old != new else new or old
    rank = say("rank {rank}", rank=change.rank) if change.rank is not None else None
    if len(change.ranks) > 1:
        rank = say("{n} ranks", n=len(change.ranks))
    about = chain(CHANGE[change.change], say("{severity}", severity=severity) if severity else None, rank, by=", ")
    style = {"added": "bad", "removed": "good"}.get(change.change, "bold")
    return Line(said, style, about)

"""The tables of a comparison, one line per column."""

from __future__ import annotations

from typing import Final

from npuperf.documents.comparison import Shift
from npuperf.messages import Message, ns, number, say, share, size
from npuperf.render.language import text
from npuperf.render.tables import Column, Table, each
from npuperf.units import grouped

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
#: What a change of a finding is called.
CHANGE: Final = {"added": say("new"), "removed": say("gone"), "changed": say("changed"), "same": say("same")}


def measured(shift: Shift, value: float | None) -> str | None:
    """Return a value of a shift with its unit, for people."""
    if value is None:
        return None
    known = {"ns": ns(value), "percent": share(value / 100), "bytes": size(round(value))}.get(shift.unit)
    if known is not None:
        return str(known)
    shown = {"MHz": say("{n} MHz", n=number(value)), "GB/s": say("{n} GB/s", n=number(value))}
    return text(shown.get(shift.unit, number(value)))


def on_side(shift: Shift, value: float | None) -> str | None:
    """Return a side of a shift, for people: with all digits where both sides would read the same."""
    said = measured(shift, value)
    if shift.unit == "bytes" and value is not None and measured(shift, shift.old) == measured(shift, shift.new):
        return text(say("{n} bytes", n=grouped(value, 0)))
    return said


def interval(shift: Shift) -> str | None:
    """Return the interval of a shift's difference, for people."""
    if shift.interval is None:
        return None
    low, high = (measured(shift, end) for end in shift.interval)
    return text(say("{low} to {high}", low=low, high=high))


def _for_people(name: str | None) -> Message | str | None:
    from npuperf.documents.comparison_names import worded  # these tables are declared for every analysis

    return name and worded(name)


# fmt: off
_VERDICT: Final = Column("verdict", say("verdict"), "word", weight=0)
COMPARISON: Final = Table("comparison", say("this run against its baseline"), each("comparison"), (
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
))
WATERFALL: Final = Table("waterfall", say("what makes the mean step longer or shorter"), each("comparison.waterfall"), (
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
    Column("where", say("where"), weight=2),
    Column("torch_op", say("torch operator"), weight=2),
))
PARITY: Final = Table("parity", say("what differs between the set-ups"), each("comparison.parity"), (
    Column("what", say("what"), weight=0, brief=lambda d: _for_people(d.what)),
    Column("old", say("before"), weight=0, brief=lambda d: _for_people(d.old)),
    Column("new", say("after"), weight=0, brief=lambda d: _for_people(d.new)),
    Column("matters", say("matters"), "word"),
    Column("mismatch", say("another workload"), "word"),
    Column("reason", say("why"), "message"),
))
COMPARED: Final = Table("compared", say("steps and operators on both sides"), each("comparison.rows"), (
    Column("kind", say("kind"), "word"),
    Column("name", say("name"), "kernel", weight=0),
    _VERDICT,
    Column("change", say("change"), "word"),
    Column("old_ns", say("before"), "us"),
    Column("new_ns", say("after"), "us"),
    Column("noise_ns", say("noise"), "us"),
    Column("count", say("count"), "count"),
))
SHIFTS: Final = Table("shifts", say("what else was measured on both sides"), each("comparison.shifts"), (
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
))
FINDING_CHANGES: Final = Table("finding_changes", say("findings that are new, gone or changed"),
                               each("comparison.findings"), (
    Column("change", say("change"), "word", weight=0, brief=lambda f: CHANGE[f.change]),
    Column("rule", say("rule")),
    Column("rank", say("rank"), "id", quiet=True),
    Column("old_severity", say("severity before"), "word", weight=2),
    Column("new_severity", say("severity after"), "word", weight=2),
    Column("old", say("before"), "message"),
    Column("new", say("after"), "message"),
))
ALIGNED: Final = Table("aligned", say("steps and phases that only one side has"), each("comparison.aligned"), (
    Column("said", say("what"), "message", lambda said: said, 0),
))
# fmt: on
COMPARISON_TABLES: Final = (COMPARISON, WATERFALL, PARITY, COMPARED, SHIFTS, FINDING_CHANGES, ALIGNED)

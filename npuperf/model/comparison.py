"""Two measurements of one thing, side by side: what changed, by how much more than chance, and what that means."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from npuperf.base.messages import Message, say, series
from npuperf.model.job_result import RootKind
from npuperf.model.parts import CountKind, Model, Part

Outcome = Literal["better", "same", "worse", "cannot_tell"]
Change = Literal["added", "removed", "changed", "same"]
Parity = Literal["same", "different", "unknown"]


class Compared(Model, frozen=True, kw_only=True):
    """One thing on both sides: mean times in ns, None where a side lacks it.

    ``count``: how often the new side has it, ``old_count``: the old one, of operators.

    Of operators these are of one kernel where a tuning is verified, and of all of a step where analyses are compared.

    ``noise_ns``: by how much the difference may be off by chance, None where one side has a single value.
    ``expected_ns``: what the change was predicted to save, least and most. ``work_change``: of an operator, how many
    times the work of the old side's kernels one of the new side does on average, least and most: 1 where both have the
    same shapes and dtypes as often, else by useful FLOP; null where these are not known.
    """

    kind: Literal["step", "operator", "subgraph", "model", "scope"]
    name: str
    change: Change
    verdict: Outcome
    old_ns: int | None
    new_ns: int | None
    count: int | None = None
    noise_ns: int | None = None
    expected_ns: tuple[int, int] | None = None
    strategy: str | None = None
    old_count: int | None = None
    work_change: tuple[float, float] | None = None

    @property
    def same_work(self) -> bool | None:
        """Whether each kernel does as much work on both sides; None where that is not known."""
        if self.work_change is None or self.work_change[0] < 1 < self.work_change[1]:
            return None
        return self.work_change == (1.0, 1.0)

    @property
    def saved_ns(self) -> int | None:
        """By how much shorter the new side is, where both are there."""
        return None if self.old_ns is None or self.new_ns is None else self.old_ns - self.new_ns


class Difference(Model, frozen=True, kw_only=True):
    """What differs between two set-ups. ``matters``: it may explain a difference in time.

    ``mismatch``: with it the two are not of one workload, and nothing is compared unless that is allowed.
    """

    what: str
    old: str | None
    new: str | None
    matters: bool
    mismatch: bool = False
    reason: Message | None = None


class WaterfallPart(Model, frozen=True, kw_only=True):
    """One part of the difference of the mean steps, ns: by count, and by speed, which add up to it.

    ``old_ns``, ``new_ns``: of the mean step; ``old_count``, ``new_count``: per step. ``change``: whether both sides
    have it; ``instead_of``: keys of the old side that this operator replaces (inferred), ``replaced_by``: those of
    the new side that the row holds then: with the sides exchanged the two change places.
    """

    part: Part
    key: str | None
    delta_ns: int
    count_ns: int
    speed_ns: int
    old_ns: int = 0
    new_ns: int = 0
    old_count: float = 0.0
    new_count: float = 0.0
    change: Change = "changed"
    where: str | None = None
    torch_op: str | None = None
    instead_of: tuple[str, ...] = ()
    replaced_by: tuple[str, ...] = ()


class FindingChange(Model, frozen=True, kw_only=True):
    """A finding that is new, gone, or says something else than before; null where a side has not got it.

    ``rank``: the first of ``ranks``, of which it is told alike; null where it is of the only device, or of the job.
    """

    rule: str
    rank: int | None
    ranks: list[int] = []
    change: Change
    old: Message | None
    new: Message | None
    old_severity: str | None = None
    new_severity: str | None = None


class CauseChange(Model, frozen=True, kw_only=True):
    """Something lasting that slows a job, and costs its step another time than before.

    ``old_ns``, ``new_ns``: what the step would be shorter by without it, least and most, replayed; null on a side that
    has not got it. ``delta_ns``: the difference, least and most. ``title``: of the side that it costs more.
    """

    kind: RootKind
    ranks: list[int]
    stage: int | None
    change: Change
    old_ns: tuple[int, int] | None
    new_ns: tuple[int, int] | None
    delta_ns: tuple[int, int]
    title: Message


class Shift(Model, frozen=True, kw_only=True):
    """Something measured on both sides: the middle of each side's samples, and the interval of their difference.

    ``unit``: ns, percent, count, bytes, GB/s, cores or MHz. ``interval``: null where there are too few samples.
    ``samples``: of both sides.
    """

    what: str
    unit: str
    old: float | None
    new: float | None
    verdict: Outcome
    interval: tuple[float, float] | None = None
    samples: tuple[int, int] = (0, 0)


#: What a peak consists of, and the process's memory beside it; ``peak``: of one that cannot be split.
MemoryPart = Literal["before", "freed", "alive", "peak", "cached", "waiting", "outside"]


class MemoryChange(Model, frozen=True, kw_only=True):
    """One part of the difference of two peaks of memory, bytes. ``freed`` counts against the peak, so it is negative.

    ``key``: of blocks their operator and class, of what is outside of PyTorch the module of CANN.
    """

    part: MemoryPart
    key: str | None
    old_bytes: int
    new_bytes: int
    delta_bytes: int


class Comparison(Model, frozen=True, kw_only=True):
    """Everything that is known of a change. ``old`` and ``new`` name the sides; ``unchanged`` rows are not listed.

    ``old_step_ns``, ``new_step_ns`` and ``delta_ns`` are of the mean step, which the ``waterfall`` explains to the ns;
    ``old_median_ns`` and ``new_median_ns`` of the median one, which ``interval_ns`` is about: of the difference of the
    steps, found by ``method``, at ``confidence``. ``sure_ns``: by how much operators that changed for certain make the
    step longer in sum, if their time counts in it. ``samples``: steps of both sides; ``stepped``: whether each side has
    steps recorded, without which all that it recorded counts as one. ``expected_ns``: what was predicted to be saved
    per step. ``parity``: what differs between the set-ups, what may change most first.
    ``workload``: whether both sides ran the same. ``causes``: of a job, what lasts and costs its step another time than
    before, most first. ``memory``: what the difference of the peaks of memory consists of, where both recorded it.
    ``steps``: steps that only one side has, and other alignment.
    """

    old: str
    new: str
    verdict: Outcome
    reason: Message | None = None
    old_step_ns: int | None = None
    new_step_ns: int | None = None
    delta_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    old_median_ns: int | None = None
    new_median_ns: int | None = None
    samples: tuple[int, int] = (0, 0)
    stepped: tuple[bool, bool] = (True, True)
    method: Message | None = None
    confidence: float | None = None
    sure_ns: int = 0
    expected_ns: tuple[int, int] | None = None
    workload: Parity = "unknown"
    parity: tuple[Difference, ...] = ()
    causes: tuple[CauseChange, ...] = ()
    waterfall: tuple[WaterfallPart, ...] = ()
    rows: tuple[Compared, ...] = ()
    shifts: tuple[Shift, ...] = ()
    memory: tuple[MemoryChange, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    aligned: tuple[Message, ...] = ()
    unchanged: int = 0
    warnings: tuple[Message, ...] = ()

    @property
    def step(self) -> Compared | None:
        """The whole step, where both sides have steps."""
        return next((row for row in self.rows if row.kind == "step"), None)


# -- Kinds of things that are counted, for gates, comparisons and locks.

_OF_CALLS: Final = say("npuperf profile --activities cpu,npu records them")
_OF_LEVEL: Final = say("npuperf profile --level 1 records them")


class CountedKind(Struct, frozen=True):
    """One kind: the name of its metric (``count.…``), what it is called, and what records it.

    ``things``: what locks call it, where that is more; ``more_is_worse``: as far as that can be said; ``shapes``: what
    records the shapes by which operators of the kind are told apart.
    """

    metric: str
    name: Message
    recorded: Message
    things: Message
    more_is_worse: bool = True
    shapes: Message | None = None


COUNTED: Final[dict[CountKind, CountedKind]] = {
    "launch": CountedKind("launches", say("launches"), say("only a recording of a device has them"), say("launches"),
                          shapes=say("npuperf profile --level 1 records them")),
    "sync": CountedKind("syncs", say("synchronizations"), _OF_CALLS, say("waits of the host for the device")),
    "copy": CountedKind("copies", say("copies"), _OF_CALLS, say("copies")),
    "aicpu": CountedKind("aicpu", say("AI CPU operators"), _OF_LEVEL, say("AI CPU operators")),
    "compile": CountedKind("compiles", say("compilations"), _OF_CALLS, say("compilations")),
    "collective": CountedKind("collectives", say("collectives"), _OF_LEVEL, say("collectives"), more_is_worse=False),
    "graph_replay": CountedKind("graph_replays", say("graph replays"), _OF_CALLS, say("graph replays"),
                                more_is_worse=False),
    "allocation": CountedKind("allocations", say("allocator calls"), _OF_CALLS, say("calls of the allocator")),
    "block": CountedKind("blocks", say("memory blocks"), say("npuperf profile --memory records them"),
                         say("blocks of memory that operators ask for")),
    "host_operator": CountedKind("host_operators", say("host operators"),
                                 say("they are counted only where no device was recorded"),
                                 say("operators of the host"), shapes=say("npuperf profile --shapes records them")),
}  # fmt: skip


# -- What a comparison calls the things it compares: a machine reads these names as they are, people in their language.

#: Names and values that are a few words.
_KNOWN: Final = {
    word.id: word
    for word in (
        # what may differ between two set-ups
        say("AI Core frequency"), say("recording overhead"), say("world size"), say("operators of training"),
        say("launches per step"), say("command"), say("process groups"), say("table of kernels"),
        say("launches of kernels"), say("calls of the runtime"), say("cores"), say("devices"), say("recorded with"),
        say("profiler level"), say("profiler options"), say("environment"), say("git commit"),
        say("rows lost in reading"), say("operators told apart by"), say("steps"), say("steps told by"),
        # values of these
        say("yes"), say("none by their names"), say("whole"), say("rows are missing"), say("recorded"), say("none"),
        say("shapes"), say("type"), say("core"), say("the host's ranges"), say("first kernels"),
        *(kind.name for kind in COUNTED.values()),
        # what caused waiting
        say("rank"), say("stage"), say("link"), say("group"), say("schedule"), say("jitter"), say("host"),
        say("compute"), say("communication"), say("cube"), say("vector"),
    )
}  # fmt: skip
_COUNTS: Final = "|".join(kind.name.id for kind in COUNTED.values())
#: Names with a number or a name in them; what was found in the parentheses is handed on.
_FORMS: Final[tuple[tuple[str, Callable[..., Message]], ...]] = (
    (r"step of rank (\d+)", lambda rank: say("step of rank {rank}", rank=rank)),
    (r"waiting of rank (\d+)", lambda rank: say("waiting of rank {rank}", rank=rank)),
    (r"transfer in (.+)", lambda group: say("transfer in {group}", group=group)),
    (r"occupancy of (cube|vector) cores", lambda side: say("occupancy of {side} cores", side=_KNOWN[side])),
    (rf"({_COUNTS}) per step", lambda name: say("{name} per step", name=_KNOWN[name])),
    (rf"({_COUNTS}): (.+)", lambda name, key: say("{name}: {key}", name=_KNOWN[name], key=key)),
    (r"waiting(?: of unknown cause| caused by (\w+))(?: ([\d,]+))?(?: \((\w+)\))?", lambda *of: _waiting(*of)),
    (r"((?:\d+|none)(?: \+ (?:\d+|none))+)", lambda runs: say("{n}", n=series(map(worded, runs.split(" + ")), " + "))),
)


def worded(name: str) -> Message | str:
    """Return a name or a value of a comparison for people; what is none of ours, such as a command, stays as it is."""
    if name in _KNOWN:
        return _KNOWN[name]
    for form, made in _FORMS:
        found = re.fullmatch(form, name, re.DOTALL)
        if found is not None:
            return made(*found.groups())
    return name


def _waiting(kind: str | None, about: str | None, why: str | None) -> Message:
    """Say which waiting: ``about``: which ranks or which stage caused it; ``why``: by what."""
    if kind is None:
        by = say("waiting of unknown cause {about}", about=about) if about else say("waiting of unknown cause")
    elif about:
        by = say("waiting caused by {kind} {about}", kind=worded(kind), about=about)
    else:
        by = say("waiting caused by {kind}", kind=worded(kind))
    return say("{waiting} ({why})", waiting=by, why=worded(why)) if why else by

"""Two measurements of one thing, side by side: what changed, by how much more than chance, and what that means."""

from __future__ import annotations

from typing import Literal

from npuperf.documents.base import Model
from npuperf.documents.digest import Part
from npuperf.messages import Message

Outcome = Literal["better", "same", "worse", "cannot_tell"]
Change = Literal["added", "removed", "changed", "same"]
Parity = Literal["same", "different", "unknown"]


class Compared(Model, frozen=True, kw_only=True):
    """One thing on both sides: mean times in ns, None where a side lacks it. ``count``: how often the new side has it.

    Of operators these are of one kernel where a tuning is verified, and of all of a step where analyses are compared.

    ``noise_ns``: by how much the difference may be off by chance, None where one side has a single value.
    ``expected_ns``: what the change was predicted to save, least and most.
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
    """A finding that is new, gone, or says something else than before; null where a side has not got it."""

    rule: str
    rank: int | None
    change: Change
    old: Message | None
    new: Message | None
    old_severity: str | None = None
    new_severity: str | None = None


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


class Comparison(Model, frozen=True, kw_only=True):
    """Everything that is known of a change. ``old`` and ``new`` name the sides; ``unchanged`` rows are not listed.

    ``old_step_ns``, ``new_step_ns`` and ``delta_ns`` are of the mean step, which the ``waterfall`` explains to the ns;
    ``old_median_ns`` and ``new_median_ns`` of the median one, which ``interval_ns`` is about: of the difference of the
    steps, found by ``method``, at ``confidence``. ``samples``: steps of both sides; ``stepped``: whether each side has
    steps recorded, without which all that it recorded counts as one. ``expected_ns``: what was predicted to be saved
    per step. ``parity``: what differs between the set-ups, what may change most first.
    ``workload``: whether both sides ran the same. ``steps``: steps that only one side has, and other alignment.
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
    expected_ns: tuple[int, int] | None = None
    workload: Parity = "unknown"
    parity: tuple[Difference, ...] = ()
    waterfall: tuple[WaterfallPart, ...] = ()
    rows: tuple[Compared, ...] = ()
    shifts: tuple[Shift, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    aligned: tuple[Message, ...] = ()
    unchanged: int = 0
    warnings: tuple[Message, ...] = ()

    @property
    def step(self) -> Compared | None:
        """The whole step, where both sides have steps."""
        return next((row for row in self.rows if row.kind == "step"), None)

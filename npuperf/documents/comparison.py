"""Two measurements of one thing, side by side: what changed, by how much more than chance, and what that means."""

from __future__ import annotations

from typing import Literal

from npuperf.documents.base import Model
from npuperf.messages import Message

Outcome = Literal["better", "same", "worse", "cannot_tell"]
Change = Literal["added", "removed", "changed", "same"]
Part = Literal[
    "compute", "transfer", "wait", "comm_unknown", "host_wait", "launch_latency", "dependency", "unattributed", "other"
]


class Compared(Model, frozen=True, kw_only=True):
    """One thing on both sides: mean times in ns, None where a side lacks it. ``count``: how often the new side has it.

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
    """What differs between two set-ups. ``matters``: it may explain a difference in time."""

    what: str
    old: str | None
    new: str | None
    matters: bool


class WaterfallPart(Model, frozen=True, kw_only=True):
    """One part of the difference of the mean steps, ns: by count, and by speed."""

    part: Part
    key: str | None
    delta_ns: int
    count_ns: int
    speed_ns: int


class Comparison(Model, frozen=True, kw_only=True):
    """Everything that is known of a change. ``old`` and ``new`` name the sides; ``unchanged`` rows are not listed.

    ``interval_ns``: of the difference of the steps. ``expected_ns``: what was predicted to be saved per step.
    """

    old: str
    new: str
    verdict: Outcome
    reason: Message | None = None
    old_step_ns: int | None = None
    new_step_ns: int | None = None
    delta_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    expected_ns: tuple[int, int] | None = None
    parity: tuple[Difference, ...] = ()
    waterfall: tuple[WaterfallPart, ...] = ()
    rows: tuple[Compared, ...] = ()
    unchanged: int = 0
    warnings: tuple[Message, ...] = ()

    @property
    def step(self) -> Compared | None:
        """The whole step, where both sides have steps."""
        return next((row for row in self.rows if row.kind == "step"), None)


def outcome(saved_ns: float, noise_ns: float | None) -> Outcome:
    """Judge what a change saved: chance explains whatever is within the noise."""
    if noise_ns is None:
        return "cannot_tell"
    if abs(saved_ns) <= noise_ns:
        return "same"
    return "better" if saved_ns > 0 else "worse"

"""Whether two sides' steps differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuperf.documents.comparison import Outcome
from npuperf.messages import Message, say
from npuperf.model.labels import F64


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a shift between two sides, in the unit of the samples; "worse" is more.

    ``estimate``: the typical difference of a new and an old sample; ``interval``: where it lies at ``confidence``,
    both None where there are too few samples; ``tolerance``: what it must exceed; ``needs``: what would decide.
    """

    verdict: Outcome
    method: Message
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    tolerance: float = 0.0
    needs: Message | None = None


def judge_shift(old: Sequence[F64], new: Sequence[F64], *, ratio: float = 0.0, floor: float = 0.0) -> Judged:
    """Judge two sides, each of one series of samples per run."""
    return Judged("cannot_tell", say("not judged"))


def judge_counts(old: Sequence[int], new: Sequence[int]) -> Judged:
    """Judge two sides' counts per step, which are exact."""
    return Judged("cannot_tell", say("not judged"))

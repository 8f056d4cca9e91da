"""The steps of two sides, as samples of one thing: steps of one kind beside each other, and operators as witnesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from typing import Final

import numpy as np

from npuperf.model.labels import F64, Mask
from npuperf.model.noise import LEAST, surely_shifted
from npuperf.model.parts import Digest

#: Steps of a kind that each side needs: from so few their median is known well enough to be taken off.
_OF_A_KIND: Final = 4
#: An operator that moved by less than this part of the tolerance is no evidence.
_SMALL: Final = 0.1

#: What a step runs: kernels of each type.
Kind = frozenset[tuple[str, int]]
#: Samples of a side in every step, one series per run.
_Samples = Sequence[F64]


def kinds(digest: Digest) -> list[Kind]:
    """Return of every step what it runs, by which kinds of steps are told apart."""
    return [
        frozenset((t.type, t.count[place]) for t in digest.types if place < len(t.count) and t.count[place])
        for place in range(len(digest.steps))
    ]


class StepKinds:
    """Which steps of two sides are of one kind, as far as that tells steps apart."""

    def __init__(self, old: Sequence[Digest], new: Sequence[Digest]) -> None:
        """Find the kinds that both sides have often enough, and equally often, but for where a recording begins."""
        sides = [[kind for digest in side for kind in kinds(digest)] for side in (old, new)]
        counts = [Counter(side) for side in sides]
        steps = [len(side) for side in sides]
        every = {*counts[0], *counts[1]}
        even = all(abs(counts[0][kind] * steps[1] - counts[1][kind] * steps[0]) <= max(steps) for kind in every)
        shared = [kind for kind in counts[0] if min(count[kind] for count in counts) >= _OF_A_KIND]
        found = shared if even and len(shared) > 1 else []
        #: Of each kind its steps on either side, over all runs.
        self._steps: list[tuple[Mask, Mask]] = [
            (np.array([k == kind for k in sides[0]]), np.array([k == kind for k in sides[1]])) for kind in found
        ]

    def leveled(self, old: _Samples, new: _Samples) -> tuple[_Samples, _Samples]:
        """Return samples of every step without what steps of one kind take longer than those of another.

        What is taken off is the same on both sides: the mean of their medians of the kind, about the usual one.
        """
        flat = [np.concatenate(side) if side else np.empty(0) for side in (old, new)]
        if any(len(mask) != len(values) for masks in self._steps for mask, values in zip(masks, flat, strict=True)):
            return old, new
        levels = [fsum(float(np.median(v[m])) for v, m in zip(flat, masks, strict=True)) / 2 for masks in self._steps]
        weights = [int(masks[0].sum()) for masks in self._steps]
        usual = float(np.average(levels, weights=weights)) if levels else 0.0
        for level, masks in zip(levels, self._steps, strict=True):
            for values, mask in zip(flat, masks, strict=True):
                values[mask] -= level - usual
        ends = [np.cumsum([len(run) for run in side])[:-1] for side in (old, new)]
        return np.split(flat[0], ends[0]), np.split(flat[1], ends[1])


def sure_change(old: Sequence[Digest], new: Sequence[Digest], of: StepKinds, tolerance: float) -> float:
    """Return by how much operators that changed for certain make the step longer, in sum, ns; 0 where none did.

    An operator's time has less noise than the step, which waits as well. Each type is one of as many tests as there are
    types, however few of them moved. Whether their time makes the step longer, or is hidden by other work, is not told.
    """
    digests = [*old, *new]
    every = [{t.type: np.array(t.ns, np.float64) for t in digest.types} for digest in digests]
    steps = [len(digest.span_ns) for digest in digests]
    if min(sum(steps[: len(old)]), sum(steps[len(old) :])) < LEAST:
        return 0.0
    if any(len(ns) != n for own, n in zip(every, steps, strict=True) for ns in own.values()):
        return 0.0
    names = dict.fromkeys(name for own in every for name in own)
    total = 0.0
    for name in names:
        found = [own.get(name, np.zeros(n)) for own, n in zip(every, steps, strict=True)]
        before, after = found[: len(old)], found[len(old) :]
        if abs(float(np.concatenate(after).mean() - np.concatenate(before).mean())) > _SMALL * tolerance:
            total += surely_shifted(*of.leveled(before, after), len(names)) or 0.0
    return total

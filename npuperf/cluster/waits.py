"""Ranks that wait for each other: how long each one stays in the same collectives.

Clocks of different machines need not agree for this: a collective ends on all ranks at about the same time, so the
rank that stayed in it shortest came last, and what the others stayed longer they waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from npuperf.documents.analysis import Device, WhatIf
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks, Work
from npuperf.operators.sums import type_labels


@dataclass(frozen=True, slots=True)
class Stays:
    """The collectives of one rank in order: their types, and how long the rank stayed in each (ns)."""

    report: Device
    types: tuple[str, ...]
    dur: I64

    @classmethod
    def of(cls, report: Device, tasks: Tasks) -> Stays:
        """Take the collectives from a device's tasks."""
        collectives = tasks.only(Work.COMMUNICATION)
        types = type_labels(collectives)
        return cls(report, tuple(types[i] or "" for i in range(len(collectives))), collectives.dur)


def collective_waits(stays: Sequence[Stays]) -> I64 | None:
    """Return how long each rank waited in each collective, [rank, collective] in ns.

    None where fewer than two ranks have collectives, or the ranks' sequences differ.
    """
    if len(stays) < 2 or not stays[0].types or any(s.types != stays[0].types for s in stays):
        return None
    dur = np.stack([s.dur for s in stays])
    waits: I64 = dur - dur.min(axis=0)
    return waits


def keep_pace(stays: Sequence[Stays], what_if: Sequence[list[WhatIf]], waits: I64, share: float) -> list[list[WhatIf]]:
    """Correct the what-ifs (per rank) of ranks that wait for others: what they save alone they would wait longer.

    All ranks advance with the one that waits least, so its gain is everybody's if all change alike; a rank's own
    gain stays inside the interval. Ranks that wait less than ``share`` of their window are left alone.
    """
    waited = waits.sum(axis=1)
    first = int(waited.argmin())
    pace = {w.expr: w for w in what_if[first] if w.span_ns is not None}
    corrected = []
    for stay, mine, wait in zip(stays, what_if, waited.tolist(), strict=True):
        follows = wait >= share * stay.report.partition.span_ns
        corrected.append(
            [_follow(w, stay.report, pace.get(w.expr), stays[first].report) if follows else w for w in mine]
        )
    return corrected


def _follow(own: WhatIf, report: Device, pace: WhatIf | None, pacing: Device) -> WhatIf:
    """Return what a change brings a rank that advances with another one."""
    if pace is None or pace.span_ns is None or own.gain_ns_per_step is None or pace.gain_ns_per_step is None:
        return own
    span, per = max(report.partition.span_ns, 1), max(len(report.steps), 1)
    saved = pacing.partition.span_ns - pace.span_ns
    least = min(own.gain_ns_per_step[0], pace.gain_ns_per_step[0])
    most = max(own.gain_ns_per_step[1], pace.gain_ns_per_step[1])
    return replace(
        own,
        span_ns=span - saved,
        gain_pct=100 * saved / span,
        gain_ns_per_step=(least, most),
        gain_pct_interval=(100 * least * per / span, 100 * most * per / span),
    )

"""Ranks that wait for each other: how long each one stays in the same collectives.

Clocks of different machines need not agree for this: a collective ends on all ranks at about the same time, so the
rank that stayed in it shortest came last, and what the others stayed longer they waited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.documents.analysis import Device, WhatIf
from npuperf.model.labels import I64


@dataclass(frozen=True, slots=True)
class Stays:
    """The collectives of one rank in order: their types, and how long the rank stayed in each (ns)."""

    report: Device
    types: tuple[str, ...]
    dur: I64


def collective_waits(stays: list[Stays]) -> I64 | None:
    """Return how long each rank waited in each collective, [rank, collective] in ns.

    None where fewer than two ranks have collectives, or the ranks' sequences differ.
    """
    if len(stays) < 2 or not stays[0].types or any(s.types != stays[0].types for s in stays):
        return None
    dur = np.stack([s.dur for s in stays])
    waits: I64 = dur - dur.min(axis=0)
    return waits


def keep_pace(stays: list[Stays], what_if: list[list[WhatIf]], waits: I64, share: float) -> None:
    """Correct the what-ifs (per rank) of ranks that wait for others: what they save alone they would wait longer.

    All ranks advance with the one that waits least, so its gain is everybody's if all change alike; a rank's own
    gain stays inside the interval. Ranks that wait less than ``share`` of their window are left alone.
    """
    waited = waits.sum(axis=1)
    first = int(waited.argmin())
    pace = {w.expr: w for w in what_if[first] if w.span_ns is not None}
    for stay, mine, wait in zip(stays, what_if, waited.tolist(), strict=True):
        for own in mine if wait >= share * stay.report.partition.span_ns else ():
            if own.span_ns is not None and own.expr in pace:
                _follow(own, stay.report, pace[own.expr], stays[first].report)


def _follow(own: WhatIf, report: Device, pace: WhatIf, pacing: Device) -> None:
    assert pace.span_ns is not None and own.gain_ns_per_step is not None and pace.gain_ns_per_step is not None
    span, per = max(report.partition.span_ns, 1), max(len(report.steps), 1)
    saved = pacing.partition.span_ns - pace.span_ns
    least = min(own.gain_ns_per_step[0], pace.gain_ns_per_step[0])
    most = max(own.gain_ns_per_step[1], pace.gain_ns_per_step[1])
    own.span_ns = span - saved
    own.gain_pct = 100 * saved / span
    own.gain_ns_per_step = (least, most)
    own.gain_pct_interval = (100 * least * per / span, 100 * most * per / span)

"""What-ifs and findings of ranks that wait for others: what such a rank saves alone it would only wait longer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from npuperf.documents.analysis import Device, Finding, WhatIf


def keep_pace(
    reports: Sequence[Device], what_if: Sequence[list[WhatIf]], waited: Sequence[int], share: float
) -> list[list[WhatIf]]:
    """Correct the what-ifs (per rank) of ranks that waited for others, ns each.

    All ranks advance with the one that waits least, so its gain is everybody's if all change alike; a rank's own
    gain stays inside the interval. Ranks that wait less than ``share`` of their window are left alone.
    """
    first = min(range(len(waited)), key=waited.__getitem__)
    pace = {w.expr: w for w in what_if[first] if w.span_ns is not None}
    corrected = []
    for report, mine, wait in zip(reports, what_if, waited, strict=True):
        follows = wait >= share * report.window.span_ns
        corrected.append([_follow(w, report, pace.get(w.expr), reports[first]) if follows else w for w in mine])
    return corrected


def _follow(own: WhatIf, report: Device, pace: WhatIf | None, pacing: Device) -> WhatIf:
    """Return what a change brings a rank that advances with another one."""
    if pace is None or pace.span_ns is None or own.gain_ns_per_step is None or pace.gain_ns_per_step is None:
        return own
    span, per = max(report.window.span_ns, 1), max(report.step_count, 1)
    saved = min(pacing.window.span_ns - pace.span_ns, span)
    least = min(own.gain_ns_per_step[0], pace.gain_ns_per_step[0])
    most = min(max(own.gain_ns_per_step[1], pace.gain_ns_per_step[1]), span // per)
    return replace(
        own,
        span_ns=span - saved,
        gain_pct=100 * saved / span,
        gain_ns_per_step=(least, most),
        gain_pct_interval=(100 * least * per / span, 100 * most * per / span),
    )


def may_bring_nothing(findings: Sequence[Finding], report: Device, waited: int, share: float) -> list[Finding]:
    """Let gains of a rank that waited for others, in all ``waited`` ns, begin at nothing."""
    if waited < share * report.window.span_ns:
        return [*findings]
    return [
        replace(f, gain_ns_per_step=(0, f.gain_ns_per_step[1]), gain_pct=(0.0, f.gain_pct[1]))
        if f.gain_ns_per_step and f.gain_pct
        else f
        for f in findings
    ]

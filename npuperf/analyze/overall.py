"""The verdict over all devices."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from npuperf.analyze.examine import Examined
from npuperf.documents.analysis import Device, Elasticity, Finding, Verdict
from npuperf.messages import Message, say, say_n, series
from npuperf.model.thresholds import Thresholds
from npuperf.timeline.partition import add
from npuperf.timeline.verdict import NO_PACE, judge


def overall_verdict(
    examined: Sequence[Examined], findings: Sequence[Finding], thresholds: Thresholds, *, different_runs: bool
) -> Verdict:
    """Give the verdict over all devices; of ranks that wait for one of them, that one's."""
    if not examined:
        reason = say("no device task: the data holds host events only, as of a run without an NPU or GPU")
        return Verdict(bound="unknown", basis="measured", reason=reason)
    if len(examined) == 1:
        return examined[0].report.verdict
    if different_runs:
        reason = say(
            "several runs lie here (see warnings); each device has its own verdict, give one run for one answer"
        )
        return Verdict(bound="unknown", basis="measured", reason=reason)
    everyone = _everyone(examined)
    pacing = _pacing(examined, findings, thresholds)
    if pacing is not None:
        reason = say(
            "{everyone}: rank {rank} sets the pace, the others wait: {reason}",
            everyone=everyone,
            rank=pacing.rank,
            reason=pacing.verdict.reason,
        )
        return structs.replace(pacing.verdict, reason=reason)
    verdict = judge(
        add([e.report.partition for e in examined]),
        sum((e.pace for e in examined), NO_PACE),
        thresholds,
        elasticity=_mean_elasticity(examined),
        excerpt=any(e.excerpt for e in examined),
    )
    return structs.replace(verdict, reason=say("{everyone}: {reason}", everyone=everyone, reason=verdict.reason))


def _everyone(examined: Sequence[Examined]) -> Message:
    bounds = [e.report.verdict.bound for e in examined]
    counts = (say("{count} {bound}", count=bounds.count(b), bound=b) for b in dict.fromkeys(bounds))
    return say_n("over {n} device ({counts})", "over all {n} devices ({counts})", len(examined), counts=series(counts))


def _pacing(examined: Sequence[Examined], findings: Sequence[Finding], thresholds: Thresholds) -> Device | None:
    """Return the rank that sets the pace of all, where the others lose a notable part of their time to it."""
    slow = next((f for f in findings if f.rule == "slow_rank" and f.status == "problem"), None)
    if slow is None or slow.gain_pct is None or slow.gain_pct[1] < 100 * thresholds.idle_share:
        return None
    pacing = next(e.report for e in examined if e.report.rank == slow.rank)
    return pacing if pacing.verdict.bound != "communication" else None


def _mean_elasticity(examined: Sequence[Examined]) -> Elasticity | None:
    """Weigh the devices' elasticities by their spans; None if one of them has none."""
    found = [(e.report.verdict.elasticity, e.report.partition.span_ns) for e in examined]
    whole = sum(span for _, span in found)
    known = [(e, span / whole) for e, span in found if e is not None] if whole else []
    if not known or len(known) < len(found):
        return None
    return Elasticity(
        host=sum(e.host * share for e, share in known),
        compute=sum(e.compute * share for e, share in known),
        communication=sum(e.communication * share for e, share in known),
    )

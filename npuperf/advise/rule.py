"""What rules see and how they answer."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from npuperf.documents.analysis import Finding, Severity, Status
from npuperf.host.mode import no_launches
from npuperf.messages import Message, chain, say
from npuperf.model.labels import Mask
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import View
from npuperf.units import percent as share_text

#: What to do where a rule found no problem.
NOTHING: Final = chain()


def lacks_launches(view: View) -> Message | None:
    """Say what is missing for a rule about waiting for the host, if anything."""
    if not view.launches.known.any():
        return no_launches(view.mode)
    if view.profile.excerpt:
        return say("rows are missing from the kernel table: analyze the file as it was exported")
    return None


def lacks_host_events(view: View, *more: tuple[bool, Message]) -> Message | None:
    """Say what is missing for a rule about what the host was doing, if anything.

    ``more``: further conditions, each with what is missing where it does not hold. Where the device does not
    wait for the host nothing more needs to be known.
    """
    missing = lacks_launches(view)
    if missing or not view.host_bound:
        return missing
    if not len(view.profile.host.events):
        return say("host events are not recorded: npuperf profile --activities cpu,npu --level 1")
    return next((text for holds, text in more if not holds), None)


def is_graph_mode(view: View) -> bool:
    """Tell whether kernels come from a compiled or captured graph."""
    return view.mode in ("aclgraph", "ge")


def blamed_cause(
    view: View, rule: str, cause: str, title: str, *, refute: str, next: str, source: str
) -> Finding | None:
    """Report a cause of host wait that takes a notable part of the window, with the gain of its absence."""
    waited = view.blamed(cause)
    if waited < notable_wait(view):
        return None
    lines = [b for b in view.report.blame if b.cause == cause]
    gain = view.predict(f"host:{cause}*0")
    return finding(
        view,
        rule,
        "problem",
        f"{title}: {share_text(waited / view.partition.span_ns)} of the time, in {lines[0].name}",
        evidence={
            "host_wait_ns": waited,
            "names": [{"name": b.name, "ns": b.ns, "count": b.count, "where": b.where} for b in lines[:3]],
        },
        gain=gain,
        refute=refute,
        next=next,
        source=source,
    )


def notable_wait(view: View) -> float:
    """Return the host wait, ns, from which a cause is worth a finding."""
    return max(view.thresholds.cause_share * view.partition.span_ns, 1)


def finding(
    view: View,
    rule: str,
    status: Status,
    title: Message,
    *,
    evidence: dict[str, Any] | None = None,
    gain: tuple[int, int] | None = None,
    refute: Message | None = None,
    next: Message = NOTHING,
    needs: Message | None = None,
    source: Message | None = None,
    code: str | None = None,
) -> Finding:
    """Fill in a finding. ``gain``: ns per step, least and most; its share of the step sets the severity."""
    step = view.per_step(view.partition.span_ns)
    percent = (100 * gain[0] / step, 100 * gain[1] / step) if gain and step else None
    return Finding(
        rule=rule,
        status=status,
        severity=_severity(percent, view.thresholds),
        title=title,
        evidence=evidence or {},
        gain_ns_per_step=gain,
        gain_pct=percent,
        gain_per="step" if view.steps else "window",
        refute=refute,
        next=next,
        code=code,
        needs=needs,
        source=source,
        rank=view.profile.rank,
        device=view.profile.device,
    )


def _severity(percent: tuple[float, float] | None, thresholds: Thresholds) -> Severity:
    most = percent[1] / 100 if percent else 0.0
    if most >= thresholds.severity_high:
        return "high"
    return "medium" if most >= thresholds.severity_medium else "low"


def top_types(view: View, chosen: Mask, count: int = 3) -> list[dict[str, Any]]:
    """Quote the operator types that ``chosen`` tasks spend most time in."""
    codes = view.types.codes[chosen]
    dur = view.tasks.dur[chosen]
    totals = np.bincount(codes + 1, weights=dur, minlength=1)
    counts = np.bincount(codes + 1, minlength=1)
    order = np.argsort(-totals, kind="stable")[:count].tolist()
    return [
        {
            "type": view.types.names[i - 1] if i else None,
            "count": int(counts[i]),
            "total_ns": int(totals[i]),
        }
        for i in order
        if counts[i]
    ]


def quote(rows: list[dict[str, Any]]) -> str:
    """Render quoted types, e.g. ``TransData ×12, Cast ×3``."""
    return ", ".join(f"{row['type'] or 'N/A'} ×{row['count']}" for row in rows)

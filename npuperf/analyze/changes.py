"""What-ifs of a report: the user's own, and those that are worth a line in every report."""

from __future__ import annotations

from typing import Final

from npuperf.documents.analysis import Device, WhatIf
from npuperf.host.mode import no_launches
from npuperf.messages import Message, chain, say, series
from npuperf.replay.whatif import Scene, pattern, predict
from npuperf.scopes.view import DeviceView

#: Operator types that are named where an expression matches none.
_NEAR: Final = 3
#: Changes of one cause, where it is to blame for anything.
_CAUSES: Final = {
    "tiling": say("no shape inference and tiling on the host"),
    "data_loading": say("data always ready"),
    "compile": say("operators compiled before"),
    "gc": say("no garbage collection"),
}


def replay_changes(view: DeviceView, asked: tuple[str, ...]) -> list[WhatIf]:
    """Replay the user's expressions, then the changes that every report shows."""
    scene, report = view.scene, view.report
    if scene is None:
        return [unanswered(expr, report, _why_no_model(view)) for expr in asked]
    own = [_answered(expr, None, scene, report) for expr in asked]
    standard = [_answered(expr, title, scene, report) for expr, title in _standard(report) if expr not in asked]
    return [*own, *(w for w in standard if w.reason is None)]


def unanswered(expression: str, report: Device, reason: Message, title: Message | None = None) -> WhatIf:
    """Say why a change cannot be replayed."""
    return WhatIf(
        expr=expression,
        span_ns=None,
        gain_pct=None,
        gain_ns_per_step=None,
        gain_pct_interval=None,
        gain_per="step" if report.steps else "window",
        title=title,
        asked=title is None,
        reason=reason,
        rank=report.rank,
        device=report.device,
    )


def _answered(expression: str, title: Message | None, scene: Scene, report: Device) -> WhatIf:
    found = predict(scene, expression)
    if not found.matched:
        return unanswered(expression, report, _unmatched(expression, scene), title)
    before, per = max(found.before, 1), max(len(report.steps), 1)
    return WhatIf(
        expr=expression,
        span_ns=found.after,
        gain_pct=100 * (found.before - found.after) / before,
        gain_ns_per_step=(found.least // per, found.most // per),
        gain_pct_interval=(100 * found.least / before, 100 * found.most / before),
        gain_per="step" if report.steps else "window",
        title=title,
        asked=title is None,
        reason=None,
        rank=report.rank,
        device=report.device,
    )


def _unmatched(expression: str, scene: Scene) -> Message:
    """Name the parts of an expression that match nothing, and operator types that may be meant."""
    parts = [part for part in expression.split(",") if not predict(scene, part).matched]
    wanted = [part.split(":", 1)[1].split("*")[0].lower() for part in parts if part.startswith(("op:", "launches:"))]
    near = [name for name in scene.types.names if any(w and w in name.lower() for w in wanted)][:_NEAR]
    nothing = say("nothing here matches {parts}", parts=series(parts))
    return chain(nothing, say("there are {types}", types=series(near)) if near else None)


def _why_no_model(view: DeviceView) -> Message:
    if view.profile.excerpt:
        return say("rows are missing from the kernel table, so nothing can be replayed")
    if view.study.replay is None:
        return no_launches(view.mode)
    return view.study.replay.refusal(view.thresholds) or say("the replay abstains")


def _standard(report: Device) -> list[tuple[str, Message]]:
    """Return the changes that are worth a line in every report, with their titles."""
    rows = [
        ("host*0,latency*0", say("no waiting for the host at all (what graph capture can reach at most)")),
        ("host*0.5", say("host twice as fast")),
        ("launches*0.5", say("kernels fused in pairs")),
    ]
    causes = dict.fromkeys(b.cause for b in report.blame)
    rows += [(f"host:{cause}*0", title) for cause, title in _CAUSES.items() if cause in causes]
    if any(s.idle_ns for s in report.syncs):
        rows.append(("sync*0", say("no waiting of the host for the device")))
    if report.partition.comm_exposed_ns:
        rows.append(("overlap", say("communication beside compute")))
        rows.append(("comm*0.5", say("communication twice as fast")))
    times: dict[str, int] = {}
    for kernel in (k for p in report.phases for k in p.kernels):
        times[kernel.type] = times.get(kernel.type, 0) + kernel.total_ns
    if times:
        top = max(times, key=times.__getitem__)
        rows.append((f"op:{pattern(top)}*0.5", say("{type} twice as fast", type=top)))
    return rows

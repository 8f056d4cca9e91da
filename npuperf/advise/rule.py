"""What rules see and how they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from npuperf.documents.analysis import Device, Finding, Partition, Severity, Status, Verdict
from npuperf.host.mode import Mode, no_launches
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.replay.whatif import Scene, predict
from npuperf.scopes.splits import Bench
from npuperf.timeline.launches import Launches
from npuperf.units import percent as share_text

#: Launching operators looked at for code lines.
_OPS: Final = 50


@dataclass(frozen=True, slots=True)
class View:
    """One device as a rule sees it: the tasks of the window judged, and what is already known of it.

    ``waits``: how long the idle device waited for the launch of each task, ``held``: how long each waited for cores
    that other streams held, as far as that can be told (ns); ``scene``: for what-ifs;
    ``bench``: for core limits, or ``no_bench`` says why there is none.
    """

    profile: DeviceProfile
    tasks: Tasks
    types: Labels
    launches: Launches
    waits: I64
    cores: Cores
    report: Device
    scene: Scene | None
    thresholds: Thresholds
    held: I64
    mode: Mode = "unknown"
    bench: Bench | None = None
    no_bench: str | None = None

    @property
    def partition(self) -> Partition:
        """The split of the window."""
        return self.report.partition

    @property
    def verdict(self) -> Verdict:
        """The verdict over the window."""
        return self.report.verdict

    @property
    def steps(self) -> list[int]:
        """The numbers of the window's steps."""
        return [s.step for s in self.report.steps]

    @property
    def host_bound_ns(self) -> int:
        """How much of the window lies in host-bound phases."""
        return sum(p.end_ns - p.start_ns for p in self.report.phases if p.bound == "host")

    @property
    def host_bound(self) -> bool:
        """Whether the window, or a notable part of it, is host-bound."""
        notable = self.thresholds.idle_share * self.partition.span_ns
        return self.verdict.bound == "host" or self.host_bound_ns >= max(notable, 1)

    def blamed(self, *causes: str) -> int:
        """Return how long the device waited for the host while it was at one of these causes, ns."""
        return sum(b.ns for b in self.report.blame if b.cause in causes)

    def predict(self, expression: str) -> tuple[int, int] | None:
        """Return what a change saves per step (ns, least and most), or None where the replay abstains."""
        if self.scene is None:
            return None
        found = predict(self.scene, expression)
        return (self.per_step(max(found.least, 0)), self.per_step(max(found.most, 0))) if found.matched else None

    @property
    def compute(self) -> Mask:
        """True for compute tasks."""
        return np.equal(self.tasks.work, Work.COMPUTE)

    def per_step(self, ns: int) -> int:
        """Spread a sum over the steps of the window."""
        return ns // max(len(self.steps), 1)

    def exposed(self, chosen: Mask) -> int:
        """Return the device time, ns, that only ``chosen`` tasks cover: what their removal could save at most."""
        active = self.tasks.work != Work.CONTROL
        rest = active & ~chosen
        everything = Intervals.union(self.tasks.start[active], self.tasks.end[active])
        return everything.total() - Intervals.union(self.tasks.start[rest], self.tasks.end[rest]).total()


def lacks_launches(view: View) -> str | None:
    """Say what is missing for a rule about waiting for the host, if anything."""
    if not view.launches.known.any():
        return no_launches(view.mode)
    if view.profile.excerpt:
        return "rows are missing from the kernel table: analyze the file as it was exported"
    return None


def lacks_host_events(view: View, *more: tuple[bool, str]) -> str | None:
    """Say what is missing for a rule about what the host was doing, if anything.

    ``more``: further conditions, each with what is missing where it does not hold. Where the device does not
    wait for the host nothing more needs to be known.
    """
    missing = lacks_launches(view)
    if missing or not view.host_bound:
        return missing
    if not len(view.profile.host.events):
        return "host events are not recorded: npuperf profile --activities cpu,npu --level 1"
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
    title: str,
    *,
    evidence: dict[str, Any] | None = None,
    gain: tuple[int, int] | None = None,
    refute: str | None = None,
    next: str = "",
    needs: str | None = None,
    source: str | None = None,
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
        code=None,
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


def code_lines(view: View, chosen: I64, count: int = 3) -> list[str]:
    """Return where most of some tasks come from: code lines, or torch operators where no stack is recorded."""
    ops, place = np.unique(view.tasks.op[chosen], return_inverse=True)
    total = np.bincount(place, view.tasks.dur[chosen], minlength=len(ops))
    host, lines = view.profile.host, dict[str, None]()
    for i in np.argsort(-total, kind="stable")[:_OPS].tolist():
        line = host.code_line(int(ops[i])) or host.torch_op(int(ops[i]))
        if line:
            lines.setdefault(line)
    return list(lines)[:count]


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

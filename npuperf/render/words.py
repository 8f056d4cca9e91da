"""Words that every format uses for the same thing."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from npuperf.documents.analysis import Device, Finding, Gate, Result
from npuperf.documents.tuning import TuneGate
from npuperf.units import duration, percents

BOUND: Final = {
    "host": "HOST-BOUND",
    "compute": "COMPUTE-BOUND",
    "communication": "COMMUNICATION-BOUND",
    "unknown": "CANNOT TELL",
}

GATE: Final = {"pass": "PASS", "fail": "FAIL", "cannot_tell": "CANNOT TELL"}

#: Causes of host wait for people.
CAUSE: Final = {
    "sync": "waiting for the device",
    "data_loading": "data loading",
    "compile": "compiling operators",
    "gc": "garbage collection",
    "communication": "communication calls",
    "tiling": "shapes and tiling",
    "launch": "launching",
    "execute": "aclnn/aclop calls",
    "memory": "memory calls",
    "runtime": "runtime calls",
    "queue": "task queue",
    "optimizer": "optimizer",
    "autograd": "autograd",
    "torch_op": "torch operators",
    "python": "Python",
    "range": "user range",
    "profiler": "the profiler itself",
    "unrecorded": "nothing recorded",
}

#: The rows of a partition: field, label, depth.
PARTS: Final = (
    ("span_ns", "span", 0),
    ("compute_ns", "compute", 1),
    ("comm_exposed_ns", "communication, exposed", 1),
    ("other_exposed_ns", "copies and other work, exposed", 1),
    ("idle_ns", "idle", 1),
    ("host_wait_ns", "waiting for the host", 2),
    ("launch_latency_ns", "launch latency", 2),
    ("dependency_wait_ns", "waiting for a dependency", 2),
    ("unattributed_ns", "unattributed (no launch recorded)", 2),
)


def title_of(result: Result) -> str:
    """Name what was analyzed."""
    name = PurePath(result.input.path).name or result.input.path
    return f"{name} ({result.input.kind})"


def gain(finding: Finding) -> str:
    """Render an expected gain as an interval per step."""
    if finding.gain_ns_per_step is None or finding.gain_pct is None:
        return "gain not computable from this data"
    low, high = finding.gain_ns_per_step
    least, most = finding.gain_pct
    per = "per step" if finding.gain_per == "step" else "in all"
    if duration(low) == duration(high):
        return f"gain {duration(high)} {per} ({most:.1f} %)"
    low_text = "0" if low == 0 else duration(low)
    return f"gain {low_text} to {duration(high)} {per} ({percents(least / 100, most / 100)})"


def device_name(device: Device) -> str:
    """Name a device and its rank."""
    rank = f"rank {device.rank}, " if device.rank is not None else ""
    return f"{rank}device {device.device}"


def gate_text(gate: Gate | TuneGate, found: str | None = None) -> str:
    """Say in one line what a gate found, its reason unless told."""
    return f"gate {GATE[gate.status]}  {gate.expr}: {gate.reason or '' if found is None else found}"

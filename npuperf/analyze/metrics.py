"""What gates of ``npuperf analyze`` are held against: the worst device counts."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from npuperf.documents.analysis import Device, Result
from npuperf.documents.gates import Measured, Metric, register
from npuperf.messages import Message, say, say_n


def register_all() -> None:
    """Make the metrics of analyses known."""
    register(
        Metric("step_time", "ns", Result, _step_time),
        Metric("host_wait", "percent", Result, _share(lambda d: d.window.host_wait_ns, _untold)),
        Metric("idle", "percent", Result, _share(lambda d: d.window.idle_ns)),
        Metric("comm.exposed", "percent", Result, _share(lambda d: d.window.comm_exposed_ns)),
        Metric("comm.wait", "percent", Result, _share(lambda d: d.window.comm_wait_ns, _not_apart)),
        Metric("comm.transfer", "percent", Result, _share(lambda d: d.window.comm_transfer_ns, _not_apart)),
        Metric("findings", "count", Result, _findings),
    )


def _step_time(result: Result) -> Measured:
    """The job's step, or the median length of the steps of the slowest device, ns: what the report shows."""
    if result.cluster is not None:
        return Measured(float(result.cluster.step_ns))
    lengths = [[s.partition.span_ns for s in d.whole_steps] for d in result.devices if d.steps]
    if not lengths:
        return Measured(None, say("no step is recorded"))
    return Measured(float(max(median(mine) for mine in lengths)))


def _share(
    part: Callable[[Device], int], untold: Callable[[Device], Message | None] = lambda device: None
) -> Callable[[Result], Measured]:
    """Measure a part of the span in percent. ``untold``: why a device cannot tell it, if so."""

    def measure(result: Result) -> Measured:
        spans = [d for d in result.devices if d.window.span_ns]
        if not spans:
            return Measured(None, say("no device task in this data"))
        missing = next((why for d in spans if (why := untold(d))), None)
        worst = max(100 * part(d) / d.window.span_ns for d in spans)
        return Measured(worst, missing, at_least=missing is not None)

    return measure


def _untold(device: Device) -> Message | None:
    if not device.window.unattributed_ns:
        return None
    return say("idle time without a recorded launch may be waiting for the host")


def _not_apart(device: Device) -> Message | None:
    """Say what of exposed communication is neither known to be transfer nor waiting for other ranks."""
    if not device.window.comm_unknown_ns:
        return None
    return say("transfer and waiting cannot be told apart without all ranks of the job")


def _findings(result: Result) -> Measured:
    """The problems that were found; there may be more where a rule could not tell."""
    if not result.devices:
        return Measured(None, say("no device task in this data"))
    untold = sum(f.status == "cannot_tell" for f in result.findings)
    problems = sum(f.status == "problem" for f in result.findings)
    reason = say_n("{n} check cannot tell", "{n} checks cannot tell", untold) if untold else None
    return Measured(problems, reason, at_least=untold > 0)

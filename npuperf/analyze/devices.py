"""What all devices say together where they are of no common job, and one verdict over them."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

from msgspec import Struct, field, structs

from npuperf.analyze.examine import Examined, unanswered
from npuperf.analyze.request import Question
from npuperf.analyze.summed import in_one_state, together
from npuperf.base.messages import Message, chain, say, say_n, series
from npuperf.device.collective_rates import rates_alone
from npuperf.device.partition import add
from npuperf.device.verdict import NO_PACE, give_verdict
from npuperf.device.whatif import names_ranks
from npuperf.model.job_result import Cluster, RunOfRanks
from npuperf.model.parts import PartSum
from npuperf.model.result import Bound, Device, Elasticity, Finding, Partition, Verdict, WhatIf
from npuperf.model.thresholds import Thresholds

_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host"),
    "compute": say("compute"),
    "communication": say("communication"),
    "unknown": say("unknown"),
}


class AllDevices(Struct, frozen=True, kw_only=True):
    """What several devices tell together; without a ``cluster`` each stands for itself. With ``runs`` they cannot be of
    one job.

    ``exposed``: of each device in its order the exposed communication of its steps, where the job tells more of it.
    """

    devices: list[Device]
    findings: list[Finding]
    what_if: list[WhatIf]
    verdict: Verdict
    cluster: Cluster | None = None
    runs: list[RunOfRanks] = field(default_factory=list)
    exposed: list[tuple[PartSum, ...] | None] = field(default_factory=list)


def with_rates(e: Examined, thresholds: Thresholds) -> Device:
    """Return the report of a device whose operations no others tell more about, with their rates."""
    if e.summary is None:
        return e.report
    return structs.replace(e.report, collective_rates=rates_alone(e.summary, thresholds.packet_alignment_bytes))


def rated(examined: Sequence[Examined], thresholds: Thresholds) -> list[Examined]:
    """Return what was found of devices that are of no common job."""
    return [structs.replace(e, report=with_rates(e, thresholds)) for e in examined]


def each_for_itself(
    examined: Sequence[Examined],
    request: Question,
    thresholds: Thresholds,
    *,
    different_runs: bool,
    hosts: bool = False,
) -> AllDevices:
    """Put together what devices say, each for itself; ``hosts``: events of hosts without one were read."""
    no_job = say("this asks about several ranks of one job: analyze the folder that holds them all")
    asked = [] if different_runs else [unanswered(e, no_job) for e in request.what_if if names_ranks(e)]
    devices, none = [e.report for e in examined], None
    sums = [e.sums for e in examined if e.sums is not None]
    if len(sums) == len(devices) > 1 and not different_runs:
        devices = in_one_state(devices, sums, thresholds)
    if not devices and not hosts:
        none = say("no device tasks: none of the files that were read has any, nor events of the host")
    elif not devices:
        none = say("no device tasks: the data has host events only, as from a run on the CPU alone")
    elif different_runs and len(devices) > 1:
        none = say(
            "these are several runs (see warnings), so each device has its own verdict; analyze one "
            "run for a single verdict"
        )
    if none is not None:
        verdict = Verdict(bound="unknown", basis="measured", reason=none)
    elif len(devices) == 1:
        verdict = _with_waits(devices[0].verdict, devices[0].window, devices[0])
    else:
        verdict = verdict_of_sum(examined, devices, thresholds)
    return AllDevices(
        devices=devices,
        findings=[f for e in examined for f in e.findings],
        what_if=[*asked, *(w for e in examined for w in e.what_if)],
        verdict=verdict,
    )


def verdict_of_sum(examined: Sequence[Examined], devices: Sequence[Device], thresholds: Thresholds) -> Verdict:
    """Judge what all devices do together. ``devices``: their reports, which a job tells more about."""
    whole = add([d.window for d in devices])
    verdict = give_verdict(
        whole,
        sum((e.pace for e in examined), NO_PACE),
        thresholds,
        elasticity=_mean_elasticity(devices),
        excerpt=_first_excerpt(examined),
        latency_known=all(d.clock.latency_reason is None for d in devices),
    )
    bounds = [d.verdict.bound for d in devices]
    counts = (say("{count} {bound}", count=bounds.count(b), bound=_BOUND[b]) for b in dict.fromkeys(bounds))
    everyone = say_n("over {n} device ({counts})", "over all {n} devices ({counts})", len(devices),
                     counts=series(counts))  # fmt: skip
    sums = [e.sums for e in examined if e.sums is not None]
    more = together([d.rank for d in devices], sums) if len(sums) == len(devices) > 1 else None
    if more is None:
        verdict = _with_waits(verdict, whole, devices[0] if len(devices) == 1 else None)
    reason = say("{everyone}: {reason}", everyone=everyone, reason=chain(verdict.reason, more))
    return structs.replace(verdict, reason=reason)


def _first_excerpt(examined: Sequence[Examined]) -> Message | None:
    """Say why a device lacks rows, if one does, and which."""
    for e in examined:
        if e.excerpt is not None:
            alone = len(examined) == 1
            who = say("rank {rank}, device {device}", rank=e.report.rank, device=e.report.device)
            return e.excerpt if alone else say("{who}: {why}", who=who, why=e.excerpt)
    return None


def _with_waits(verdict: Verdict, whole: Partition, alone: Device | None) -> Verdict:
    """Say of ranks that were not matched with others what their communication may be; ``alone``: the only one."""
    if verdict.bound != "communication" or whole.comm_transfer_ns or whole.comm_wait_ns:
        return verdict
    waits = alone.communication.waits if alone and alone.communication else None
    if waits is None:
        waits = say("this holds waiting for other ranks, which one rank alone cannot tell from transfer")
    if alone is None:
        waits = say("this holds waiting for other ranks, which cannot be told from transfer: no operation of one of "
                    "these ranks is known to be another's, too")  # fmt: skip
    return structs.replace(verdict, reason=chain(verdict.reason, waits))


def _mean_elasticity(devices: Sequence[Device]) -> Elasticity | None:
    """Weigh the devices' elasticities by their spans; None if one of them has none."""
    found = [(d.verdict.elasticity, d.window.span_ns) for d in devices]
    whole = sum(span for _, span in found)
    known = [(e, span / whole) for e, span in found if e is not None] if whole else []
    if not known or len(known) < len(found):
        return None
    return Elasticity(
        host=fsum(e.host * share for e, share in known),
        compute=fsum(e.compute * share for e, share in known),
        communication=fsum(e.communication * share for e, share in known),
    )

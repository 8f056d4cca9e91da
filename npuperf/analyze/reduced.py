"""A result as it is kept as a baseline: whatever a comparison or a gate may ask for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from npuperf.documents.analysis import CoreUse, Device, Finding, Input, Partition, Result, Step, Verdict
from npuperf.documents.cluster import Cluster
from npuperf.messages import NOTHING, Message, say_n

#: Steps are what gates are held against, so they stay: of so many devices, and of the worst in any respect.
_DEVICES_WITH_STEPS: Final = 32
_STEPS: Final = 200
#: What the usual step consists of is much alike on all devices.
_DEVICES_WITH_TYPICAL_STEP: Final = 4
_PROBLEMS: Final = 1_000
_UNTOLD: Final = 100
_LINKS: Final = 200
_ROOTS: Final = 50
#: Of files, warnings and the like.
_NOTES: Final = 20


def reduced(result: Result) -> Result:
    """Return a result without what only its own report shows. Its digest and its workload stay as they are."""
    with_steps = _telling(result.devices)
    devices = [
        _device(device, steps=at in with_steps, typical=at < _DEVICES_WITH_TYPICAL_STEP)
        for at, device in enumerate(result.devices)
    ]
    findings, left_out = _findings(result.findings)
    return structs.replace(
        result,
        input=_input(result.input, left_out),
        verdict=structs.replace(result.verdict, evidence={}),
        devices=devices,
        operators=[],
        kernels=[],
        findings=findings,
        what_if=[],
        cluster=_cluster(result.cluster) if result.cluster else None,
        comparison=None,
        gates=(),
        host_sums=[],
        suggestions=[],
    )


def left_out_of(answers: int) -> Message:
    """Say that a baseline has not every answer of every rank's checks."""
    return say_n(
        "{n} answer of checks on single ranks was not kept in the baseline, so a finding may be called new that is not",
        "{n} answers of checks on single ranks were not kept in the baseline, so a finding may be called new that is "
        "not",
        answers,
    )


#: By what one device is worse than another.
_RESPECTS: Final[tuple[Callable[[Partition], int], ...]] = (
    lambda part: part.span_ns,
    lambda part: part.host_wait_ns,
    lambda part: part.idle_ns,
    lambda part: part.comm_exposed_ns,
    lambda part: part.comm_transfer_ns,
    lambda part: part.comm_wait_ns,
)


def _telling(devices: Sequence[Device]) -> set[int]:
    """Return the places of the devices whose steps are kept: the worst ones, and the first as far as there is room."""
    if len(devices) <= _DEVICES_WITH_STEPS:
        return set(range(len(devices)))

    def worst(respect: Callable[[Partition], int]) -> int:
        windows = [device.window for device in devices]
        return max(range(len(devices)), key=lambda at: respect(windows[at]) / max(windows[at].span_ns, 1))

    return {*map(worst, _RESPECTS), *range(_DEVICES_WITH_STEPS - len(_RESPECTS))}


def _input(found: Input, left_out: int) -> Input:
    told = [left_out_of(left_out)] if left_out else []
    return structs.replace(
        found,
        files=found.files[:_NOTES],
        lost=found.lost[:_NOTES],
        warnings=[*found.warnings[:_NOTES], *told],
        missing=found.missing[:_NOTES],
    )


def _device(device: Device, *, steps: bool, typical: bool) -> Device:
    return structs.replace(
        device,
        verdict=_bound(device.verdict),
        steps=[_step(step) for step in device.steps[:_STEPS]] if steps else [],
        streams=[],
        cores=_cores(device.cores, why=steps),
        vendor=[],
        phases=[],
        communication=device.communication if steps else None,
        blame=[],
        dependencies=[],
        typical_step=device.typical_step if typical else None,
        syncs=[],
        core_splits=[],
        super_kernels=[],
        super_kernel_checks=[],
        environment=[],
    )


def _bound(verdict: Verdict) -> Verdict:
    """Return what limits a stretch of time, without why."""
    return Verdict(bound=verdict.bound, basis=verdict.basis, reason=NOTHING)


def _step(step: Step) -> Step:
    return structs.replace(step, verdict=_bound(step.verdict))


def _cores(use: CoreUse, *, why: bool) -> CoreUse:
    """Return how many cores kernels use together; ``why`` that is not known is much alike on all devices."""
    return structs.replace(use, by_type=[], most_idle=[], over_time=None, reason=use.reason if why else None)


def _findings(findings: Sequence[Finding]) -> tuple[list[Finding], int]:
    """Return what was found, and how many answers that say something were left out.

    A check without a problem says as much as none, but for one of each: it was made.
    """
    telling = {(f.rule, f.rank, f.device) for f in findings if f.status != "ok"}
    kept = [finding for finding in findings if (finding.rule, finding.rank, finding.device) in telling]
    problems = [finding for finding in kept if finding.status == "problem"]
    others = [finding for finding in kept if finding.status != "problem"]
    left_out = max(len(problems) - _PROBLEMS, 0) + max(len(others) - _UNTOLD, 0)
    named = {rule for rule, _, _ in telling}
    made = {finding.rule: finding for finding in reversed(findings) if finding.rule not in named}
    few = (*problems[:_PROBLEMS], *others[:_UNTOLD], *made.values())
    return [_finding(finding) for finding in few], left_out


def _finding(finding: Finding) -> Finding:
    """Return a finding without its evidence, and with all that tells whether another says the same."""
    found = structs.replace(
        finding, evidence={}, refute=None, code=None, source=None, alternatives=[], gain_withheld=None
    )
    return found if finding.status == "problem" else structs.replace(found, next=None, preconditions=[], excluded=[])


def _cluster(cluster: Cluster) -> Cluster:
    return structs.replace(
        cluster,
        ranks=[structs.replace(rank, clock=None, source="") for rank in cluster.ranks],
        collectives=[],
        links=cluster.links[:_LINKS],
        roots=[structs.replace(root, evidence={}, next=None) for root in cluster.roots[:_ROOTS]],
        experts=[],
        notes=[],
    )

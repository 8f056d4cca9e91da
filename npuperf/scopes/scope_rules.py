"""What is documented about SuperKernel scopes, held against the profile.

Sources: TorchAir's page on scopes, and GE's SuperKernel pass and HCCL engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from npuperf.documents.analysis import RuleCheck
from npuperf.messages import say, series
from npuperf.model.chip import product_of_soc
from npuperf.model.labels import I64
from npuperf.model.tasks import Work
from npuperf.scopes.own_cores import Owned
from npuperf.scopes.sequences import KernelSequence, streams_within, without_blocks
from npuperf.scopes.view import DeviceView

#: The rule about waits that may be in the gaps.
GAPS: Final = say("gaps")
UNKNOWN_WAITS: Final = say("other streams run at the same time, and it is unknown whether kernels wait for their cores")
#: Where HCCL expands its operators, and the value with which SuperKernels can hold them.
EXPANSION: Final = "HCCL_OP_EXPANSION_MODE"
AIV_ONLY: Final = "AIV"


def scope_rules(
    view: DeviceView, sequence: KernelSequence, kernels: I64, launch: tuple[int, int] | None, owned: Owned
) -> Iterator[RuleCheck]:
    """Hold a scope over ``kernels``, one run of a sequence, against everything that is documented about scopes."""
    product = product_of_soc(view.report.soc or "")
    chip = product or say("the profile does not name the chip")
    detail = say("Atlas A3 (newer CANN: A2, too): {product}", product=chip)
    yield RuleCheck(rule=say("product"), status="ok" if product == "Atlas A3" else "unknown", detail=detail)
    yield RuleCheck(rule=say("mode"), status="ok", detail=say("max-autotune only: GE executes the graph"))
    yield _static_rule(view, sequence)
    yield from _core_rules(view, sequence, kernels, launch, owned)
    if _may_wait_for_cores(view, sequence):
        detail = say("{unknown}: part of the gaps may be such waits, which fusion does not save", unknown=UNKNOWN_WAITS)
        yield RuleCheck(rule=GAPS, status="unknown", detail=detail)
    yield from _communication_rule(view, kernels)
    detail = say(
        "to see where the scope breaks, use a separate run with ASCEND_GLOBAL_LOG_LEVEL=2 (CANN logs errors only "
        "otherwise): strict-scope-check=bypass warns in plog (super_kernel_scope) and makes no SuperKernel of that "
        "scope; abort stops the compilation; neither sees communication"
    )
    yield RuleCheck(rule=say("scope"), status="unknown", detail=detail)
    detail = say("every operator must support SuperKernels (TBE and TIK do not): the profile does not tell, plog does")
    yield RuleCheck(rule=say("operators"), status="unknown", detail=detail)


def _static_rule(view: DeviceView, sequence: KernelSequence) -> RuleCheck:
    rule = say("static graph")
    if bool(view.tasks.state.known()[sequence.runs[0]].all()):
        return RuleCheck(rule=rule, status="ok", detail=say("OP State shows a static graph"))
    detail = say("OP State is not recorded for all kernels, so the graph may be dynamic")
    return RuleCheck(rule=rule, status="unknown", detail=detail)


def _core_rules(
    view: DeviceView, sequence: KernelSequence, kernels: I64, launch: tuple[int, int] | None, owned: Owned
) -> Iterator[RuleCheck]:
    """Check what depends on how many cores the kernels start, and whose these are."""
    if launch is None:
        detail = say(
            "Block Dim is missing for {missing} of {kernels} kernels: if a kernel launches with fewer cores than the "
            "SuperKernel and calls SyncAll, it hangs without this option",
            missing=len(without_blocks(view.tasks, kernels)),
            kernels=len(kernels),
        )
        yield RuleCheck(rule=say("feed-sync-all"), status="unknown", detail=detail)
    if owned.reason:
        detail = say("left at 0, because streams with cores of their own must not share them: {why}", why=owned.reason)
        yield RuleCheck(rule=say("stream-fusion"), status="unknown", detail=detail)
    limited = {x.stream for split in view.report.core_splits for x in split.limits}
    if sequence.stream in limited:
        detail = say("judged without the core limits above: with them, its kernels launch with fewer cores")
        yield RuleCheck(rule=say("core limits"), status="unknown", detail=detail)


def _communication_rule(view: DeviceView, kernels: I64) -> Iterator[RuleCheck]:
    """Say under which condition communication within the scope is fused."""
    inside = kernels[view.tasks.work[kernels] == Work.COMMUNICATION]
    if not len(inside):
        return
    types = series(dict.fromkeys(str(view.types[i] or view.tasks.name[i]) for i in inside.tolist()))
    if view.traits.environment.get(EXPANSION) == AIV_ONLY:
        detail = say("{types}: can be fused, because {name} is {value}", types=types, name=EXPANSION, value=AIV_ONLY)
        yield RuleCheck(rule=say("communication"), status="ok", detail=detail)
        return
    detail = say(
        "{types}: fused only where HCCL runs them on vector cores ({name}={value}, for inference); elsewhere each of "
        "them ends a SuperKernel",
        types=types,
        name=EXPANSION,
        value=AIV_ONLY,
    )
    yield RuleCheck(rule=say("communication"), status="unknown", detail=detail)


def _may_wait_for_cores(view: DeviceView, sequence: KernelSequence) -> bool:
    """Tell whether kernels of other streams run meanwhile, and nothing tells when they hold the cores."""
    use = view.report.cores.over_time
    return (use is None or use.contended_ns is None) and len(streams_within(view.tasks, sequence)) > 1

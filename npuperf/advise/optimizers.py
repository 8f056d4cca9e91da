"""Which optimizer a step runs, and how: parameter by parameter, by lists of them, or fused."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.requirements import Requirement
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

_STEP: Final = re.compile(r"^Optimizer\.step#(\w+)\.step$")
#: Optimizers of torch that torch_npu.optim has fused ones for.
_FUSED: Final = {
    "SGD": "NpuFusedSGD",
    "Adadelta": "NpuFusedAdadelta",
    "Lamb": "NpuFusedLamb",
    "Adam": "NpuFusedAdam",
    "AdamW": "NpuFusedAdamW",
    "AdamP": "NpuFusedAdamP",
    "BertAdam": "NpuFusedBertAdam",
    "RMSprop": "NpuFusedRMSprop",
    "RMSpropTF": "NpuFusedRMSpropTF",
}
_ONE_KERNEL: Final = re.compile(r"_fused_(adam|adamw|sgd|adagrad)_|ApplyAdamW?|ApplyFused|npu_apply_adam", re.I)


def optimizers(view: DeviceView) -> list[str]:
    """Return the classes of the optimizers whose steps were recorded."""
    return [match.group(1) for match in map(_STEP.match, view.profile.host.events.name.names) if match]


def replaceable(view: DeviceView) -> str | None:
    """Return an optimizer that torch_npu has a fused one for."""
    return next((name for name in optimizers(view) if name in _FUSED), None)


def fused_name(optimizer: str) -> str:
    """Return torch_npu's fused optimizer for one of torch."""
    return f"torch_npu.optim.{_FUSED[optimizer]}"


def fused_optimizer(view: DeviceView) -> Message:
    """Say which optimizer replaces which."""
    name = replaceable(view)
    if name is None:
        return say("use a fused optimizer of torch_npu.optim (NpuFusedAdamW and others)")
    return say(
        "replace {optimizer} by {fused}, which updates all parameters of a type as one tensor; they must not be "
        "allocated anew afterwards",
        optimizer=name,
        fused=fused_name(name),
    )


def _not_fused(view: DeviceView) -> bool | None:
    if not optimizers(view):
        return None if _silent(view) else False
    return replaceable(view) is not None and not _has(view, _ONE_KERNEL)


def _one_by_one(view: DeviceView) -> bool | None:
    if not optimizers(view):
        return None if _silent(view) else False
    return not _has(view, _ONE_KERNEL) and not _has(view, re.compile("^aten::_foreach_"))


def _not_replaceable(view: DeviceView) -> bool | None:
    if not optimizers(view):
        return None if _silent(view) else False
    return replaceable(view) is None


def _silent(view: DeviceView) -> bool:
    """Tell whether an optimizer's step would not have been seen: no torch operators are recorded, or only kernels."""
    return not len(view.profile.host.ops)


def _has(view: DeviceView, pattern: re.Pattern[str]) -> bool:
    return view.profile.host.events.name.has(pattern) or view.profile.tasks.type.has(pattern)


NOT_FUSED: Final = Requirement(say("an optimizer of torch that torch_npu has a fused one for"), _not_fused)
NOT_REPLACEABLE: Final = Requirement(say("an optimizer that torch_npu has no fused one for"), _not_replaceable)
ONE_BY_ONE: Final = Requirement(say("an optimizer that updates parameter by parameter"), _one_by_one)

"""MFU of steps by the model's size: what a step asks for, which part of the peak that is, and each device's tokens.

Two conventions, which differ by up to 2 in attention. PaLM (Chowdhery et al. 2022, appendix B): 6 FLOP per token and
parameter and 12 L H Q T of attention, causal or not; torchtitan (``get_nparams_and_flops``) counts the same and leaves
the embedding out, of which no products are. verl (``verl/utils/flops_counter.py``) counts the embedding beside the
LM head, and of attention the half that a causal mask leaves. Neither counts what is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.analyze.request import Question
from npuperf.base.errors import UsageError
from npuperf.base.messages import say, say_n, series
from npuperf.base.units import NS_PER_S
from npuperf.model.efficiency_result import Efficiency, ModelWork
from npuperf.model.result import Device
from npuperf.readers.log import ReadLog

#: The options that say a model's size, by their fields.
SIZE: Final = ("params", "embedding", "layers", "hidden", "seq", "tokens")


def step_of(question: Question) -> ModelStep | None:
    """Return what a step of the model asks for, if its size is given. Raises UsageError where that is no size."""
    return ModelStep.of(question.model_flops, {name: getattr(question, name) for name in SIZE})


def with_model_size(
    devices: Sequence[Device], step: ModelStep, world_size: int | None, *, apart: bool, log: ReadLog
) -> tuple[list[Device], ModelWork | None]:
    """Add what the model's size tells to the windows of whole steps of each device, and return what is asked of each.

    ``world_size``: how many devices the job has, where that is known; ``apart``: those that were loaded are not of one
    job. Nothing is told where the work of a device, its steps or its peak are not known; that is said.
    """
    if not devices:
        return [*devices], None
    known = world_size is not None and world_size >= len(devices)
    if apart and not known:
        log.warn(say("MFU by the model's size: these ranks are not of one job, so nothing tells how many devices share "
                     "its work (give --world-size)"))  # fmt: skip
        return [*devices], None
    if not known:
        log.warn(say_n("how many devices the job has is not recorded: the model's work is that of the {n} device that "
                       "was loaded (give --world-size)",
                       "how many devices the job has is not recorded: the model's work is divided among the {n} that "
                       "were loaded (give --world-size)", len(devices)))  # fmt: skip
    share = world_size if known and world_size is not None else len(devices)
    work = step.per_device(share, assumed=not known)
    stepped = [device for device in devices if any(one.whole for one in device.steps)]
    if unstepped := len(devices) - len(stepped):
        log.warn(say_n("MFU by the model's size: no whole step is recorded of {n} device (npuperf profile marks steps)",
                       "MFU by the model's size: no whole step is recorded of {n} devices (npuperf profile marks "
                       "steps)", unstepped))  # fmt: skip
    peakless = sum(device.efficiency is None for device in stepped)
    if peakless:
        log.warn(say_n("MFU cannot be told of {n} device: nothing tells the peak of its cube cores (give --soc)",
                       "MFU cannot be told of {n} devices: nothing tells the peak of their cube cores (give --soc)",
                       peakless))  # fmt: skip
    found = [_of_device(device, work) for device in devices]
    impossible = sum(_impossible(device) for device in found)
    if impossible:
        log.warn(say_n("MFU by the model's size: {n} device would be above its peak, so the size, the tokens of a step "
                       "or the number of devices ({devices}) is not that of this run",
                       "MFU by the model's size: {n} devices would be above their peaks, so the size, the tokens of a "
                       "step or the number of devices ({devices}) is not that of this run",
                       impossible, devices=share))  # fmt: skip
    return found, work


def _of_device(device: Device, work: ModelWork) -> Device:
    judged = device.judged
    if judged is None or not any(one.whole for one in device.steps):
        return device
    beyond = (judged.before_ns, judged.after_ns, judged.host_before_ns, judged.host_after_ns)
    return replace(
        device,
        steps=[replace(one, efficiency=with_model(one.efficiency, work, 1)) if one.whole else one
               for one in device.steps],
        judged=replace(judged, efficiency=with_model(judged.efficiency, work, judged.steps)),
        efficiency=device.efficiency if any(beyond) else with_model(device.efficiency, work, judged.steps),
    )  # fmt: skip


def _impossible(device: Device) -> bool:
    """Tell whether steps of this model would take more than the peak, so that there is no MFU."""
    judged = device.judged and device.judged.efficiency
    return bool(judged and any(one.whole for one in device.steps) and judged.mfu.palm is None)


#: Per parameter and token: a multiplication and an addition forward, and two of each backward.
_PER_PARAMETER: Final = 6


def palm_flop_per_token(*, params: float, embedding: float, layers: float, hidden: float, seq: float) -> float:
    """Return FLOP per token as PaLM and torchtitan count: attention in full, no embedding.

    ``hidden``: heads × head dimension, so that queries and keys, and scores and values, are twice that per layer.
    """
    return _PER_PARAMETER * (params - embedding) + _PER_PARAMETER * layers * (2 * hidden) * seq


def verl_flop_per_token(*, params: float, layers: float, hidden: float, seq: float) -> float:
    """Return FLOP per token as verl counts: half of attention, and the embedding as if it were multiplied, too."""
    return _PER_PARAMETER * params + _PER_PARAMETER * layers * hidden * seq


class ModelStep(Struct, frozen=True):
    """A step of the whole job: FLOP by both conventions, or as ``given``, and its tokens where they are known."""

    palm: float
    verl: float
    tokens: float | None = None
    given: bool = False

    @classmethod
    def of(cls, model_flops: float | None, size: Mapping[str, float | None]) -> ModelStep | None:
        """Return what the options say, of which ``size`` has those of the model's size by name; None: nothing.

        Raises UsageError for what is no size, or only a part of one.
        """
        asked = {"model_flops": model_flops, **size}
        options = {name: f"--{name.replace('_', '-')}" for name in asked}
        for name, value in asked.items():
            if value is not None and not (isfinite(value) and value > 0):
                raise UsageError(say("{option} {value}: a number above 0 is wanted", option=options[name],
                                     value=f"{value:g}"))  # fmt: skip
        lacking = [options[name] for name, value in size.items() if value is None]
        known = {name: value for name, value in size.items() if value is not None}
        if model_flops is not None:
            of_size = [options[name] for name in known if name != "tokens"]
            if of_size:
                raise UsageError(say("--model-flops and {options}: give one or the other", options=series(of_size)))
            return cls(model_flops, model_flops, known.get("tokens"), given=True)
        if not known:
            return None
        if lacking:
            raise UsageError(say("the model's size is not whole without {options}", options=series(lacking)),
                             hint=say("give all of them, or --model-flops alone"))  # fmt: skip
        if known["embedding"] >= known["params"]:
            raise UsageError(say("--embedding {embedding}: of {params} parameters these would be all",
                                 embedding=f"{known['embedding']:g}", params=f"{known['params']:g}"))  # fmt: skip
        if known["seq"] > known["tokens"]:
            raise UsageError(say("--seq {seq}: a step has no more tokens than {tokens}", seq=f"{known['seq']:g}",
                                 tokens=f"{known['tokens']:g}"),
                             hint=say("--tokens are those of a step of the whole job"))  # fmt: skip
        tokens = known.pop("tokens")
        palm = palm_flop_per_token(**known)
        del known["embedding"]
        return cls(tokens * palm, tokens * verl_flop_per_token(**known), tokens)

    def per_device(self, devices: int, *, assumed: bool) -> ModelWork:
        """Divide it among the devices of the job."""
        return ModelWork(
            palm_flop=self.palm / devices,
            verl_flop=self.verl / devices,
            given=self.given,
            tokens=None if self.tokens is None else self.tokens / devices,
            devices=devices,
            assumed=assumed,
        )


def with_model(of_window: Efficiency | None, work: ModelWork, steps: int) -> Efficiency | None:
    """Add to the efficiency of a window of so many whole steps what these ask for by the model's size.

    More than all of the peak cannot be, and stays null: what must be multiplied is no more than either convention.
    """
    if of_window is None or not of_window.span_ns or not steps:
        return of_window
    seconds = of_window.span_ns / NS_PER_S
    palm, verl = (flop * steps / (of_window.peak_flop_per_s * seconds) for flop in (work.palm_flop, work.verl_flop))
    possible = min(palm, verl) <= 1
    return replace(
        of_window,
        mfu=replace(of_window.mfu, palm=palm if possible else None, verl=verl if possible else None),
        tokens_per_s=None if work.tokens is None else work.tokens * steps / seconds,
    )

"""A report with what the model's size tells beside it: MFU of steps, and tokens per second of each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from npuperf.analyze.request import Question
from npuperf.base.messages import say, say_n
from npuperf.device.model_size import ModelStep, with_model
from npuperf.model.efficiency_result import ModelWork
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

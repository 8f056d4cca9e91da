"""What a profile says about operators: which calls there are, how long, and which of them the device waits for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npuperf.cores.blocks import on_cores
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.operators.sums import type_labels

if TYPE_CHECKING:
    from npuperf.documents.analysis import Device
    from npuperf.readers.recording import Recording


@dataclass(frozen=True, slots=True)
class Usage:
    """The compute kernels of one device of a profile. ``felt``: outside of host-bound phases.

    ``tunable``: kernels on AI cores; ``dynamic``: the share of those of dynamic shape, where that is known.
    ``lengths``: of the steps (ns), none where none is recorded; ``step_ns``: their mean, as calls are counted per step
    on average, else the whole window.
    """

    soc: str | None
    cores: int | None
    lengths: I64
    step_ns: int
    names: Labels
    types: Labels
    dur: I64
    felt: Mask
    tunable: Mask
    dynamic: float | None
    most_blocks: int | None

    @property
    def steps(self) -> int:
        """How many steps to spread calls over."""
        return max(len(self.lengths), 1)

    def busiest(self, count: int | None = None, *, felt: bool = True) -> list[str]:
        """Return the operator types with most time (that is ``felt`` and can be tuned, or any), the most first."""
        time = np.where(self.felt & self.tunable, self.dur, 0) if felt else self.dur
        total = np.bincount(self.types.codes + 1, time, minlength=1)[1:]
        order = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
        return [self.types.names[i] for i in order[:count]]


def read_usage(path: Path, recording: Recording | None = None) -> Usage | None:
    """Read the first device of a profile, each file once; None where it has no kernel.

    ``recording``: what is kept of the profile, where it was read before.
    """
    from npuperf.analyze.request import AnalyzeRequest  # most of what is asked of tune needs no analysis
    from npuperf.analyze.run import run
    from npuperf.readers.recording import open_recording

    recording = recording or open_recording(path, keep=True)
    devices = {(d.rank, d.device): d for d in run(AnalyzeRequest(path=path), recording).devices}
    for profile in recording.profiles:
        device = devices.get((profile.rank, profile.device))
        kernels = profile.tasks.only(Work.COMPUTE).without_counters()
        if device is not None and len(kernels):
            return _usage(kernels, device)
    return None


def _usage(kernels: Tasks, device: Device) -> Usage:
    felt = np.ones(len(kernels), np.bool_)
    at = kernels.start - device.origin_ns
    for phase in device.phases:
        if phase.bound == "host":
            felt &= ~((at >= phase.start_ns) & (at < phase.end_ns))
    if device.steps:
        last = device.steps[-1]
        inside = (at >= device.steps[0].start_ns) & (at < last.start_ns + last.partition.span_ns)
        kernels, felt = kernels.filter(inside), felt[inside]
    known = kernels.state.known()
    lengths = np.array([s.partition.span_ns for s in device.steps], np.int64)
    return Usage(
        soc=device.soc,
        cores=device.cores_cube,
        lengths=lengths,
        step_ns=round(float(lengths.mean())) if len(lengths) else device.partition.span_ns,
        names=kernels.name,
        types=type_labels(kernels),
        dur=kernels.dur,
        felt=felt,
        dynamic=float(kernels.dynamic[known].mean()) if known.any() else None,
        tunable=on_cores(kernels),
        most_blocks=_most_blocks(kernels),
    )


def _most_blocks(kernels: Tasks) -> int | None:
    on_cube = kernels.core.flag([c in ("AI_CORE", "MIX_AIC") for c in kernels.core.names])
    blocks = kernels.block[on_cube & (kernels.block > 0)]
    return int(blocks.max()) if len(blocks) else None

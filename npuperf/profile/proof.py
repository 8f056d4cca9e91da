"""Proof that a profile is there: count what was read of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from npuperf.documents.recorded import Proof
from npuperf.model.device import DeviceProfile
from npuperf.model.tasks import NO_TIME, Work
from npuperf.readers.recording import Reading, Recording


def prove(recording: Recording) -> tuple[Proof, ...]:
    """Read everything of a recording; what cannot be read is a proof that does not hold."""
    return tuple(proof for proofs in recording.map(_proofs) for proof in proofs)


def _proofs(reading: Reading) -> list[Proof]:
    path, rank = str(reading.source.root.absolute()), reading.source.rank
    if reading.error is not None:
        return [Proof(path=path, rank=rank, problem=reading.error.what)]
    lost = sum(loss.rows for loss in reading.log.lost)
    if not reading.profiles:
        return [Proof(path=path, rank=rank, events=_host_events(reading.source.timeline), lost=lost)]
    return [_of(path, profile, lost) for profile in reading.profiles]


def _host_events(files: Sequence[Path]) -> int:
    """Count the events with a duration in traces of the CPU only."""
    mark = re.compile(rb'"ph":\s*"X"')
    return sum(len(mark.findall(line)) for file in files for line in file.open("rb"))


def _of(path: str, profile: DeviceProfile, lost: int) -> Proof:
    tasks = profile.tasks
    kernels = np.isin(tasks.work, (Work.COMPUTE, Work.COMMUNICATION))
    return Proof(
        path=path,
        rank=profile.rank,
        device=profile.device,
        kernels=int(kernels.sum()),
        launched=int((kernels & (tasks.launch_end != NO_TIME)).sum()),
        steps=len(set(profile.host_steps.number.tolist())),
        lost=lost,
    )

"""Proof that a profile is there: read it with the readers that ``analyze`` uses, and count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuperf.errors import InputError
from npuperf.model.device import DeviceProfile, ReadLog
from npuperf.model.tasks import NO_TIME, Work
from npuperf.readers.find import find
from npuperf.readers.read import read_source


@dataclass(frozen=True, slots=True)
class Proof:
    """What was read of one device, or why nothing was. ``launched`` counts kernels whose host launch is known."""

    path: str
    rank: int | None = None
    device: int | None = None
    kernels: int = 0
    launched: int = 0
    steps: int = 0
    events: int = 0
    lost: int = 0
    problem: str | None = None

    @property
    def holds(self) -> bool:
        """Tell whether there is something to analyze."""
        return self.problem is None and bool(self.kernels or self.events)


def prove(path: Path) -> list[Proof]:
    """Read everything at ``path``; what cannot be read is a proof that does not hold."""
    try:
        sources, _ = find(path)
    except InputError as error:
        return [Proof(str(path), problem=error.what)]
    found: list[Proof] = []
    for source in sources:
        log = ReadLog()
        try:
            profiles = read_source(source, log)
        except InputError as error:
            found.append(Proof(str(source.root), source.rank, problem=error.what))
            continue
        lost = sum(loss.rows for loss in log.lost)
        if not profiles:
            found.append(Proof(str(source.root), source.rank, events=_host_events(source.timeline), lost=lost))
        found += [_of(str(source.root), profile, lost) for profile in profiles]
    return found


def _host_events(files: Sequence[Path]) -> int:
    """Count the events with a duration in traces of the CPU only."""
    mark = re.compile(rb'"ph":\s*"X"')
    return sum(len(mark.findall(line)) for file in files for line in file.open("rb"))


def _of(path: str, profile: DeviceProfile, lost: int) -> Proof:
    tasks = profile.tasks
    kernels = np.isin(tasks.work, (Work.COMPUTE, Work.COMMUNICATION))
    return Proof(
        path,
        profile.rank,
        profile.device,
        kernels=int(kernels.sum()),
        launched=int((kernels & (tasks.launch_end != NO_TIME)).sum()),
        steps=len(set(profile.host_steps.number.tolist())),
        lost=lost,
    )

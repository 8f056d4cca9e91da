"""What the processes of the program said of themselves."""

from __future__ import annotations

from pathlib import Path

import msgspec


class StepTimes(msgspec.Struct, frozen=True):
    """Host times between step ends, ns: before, inside and after the recorded windows."""

    before: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ProcessStatus(msgspec.Struct, frozen=True):
    """One process that had something to say; the states are those of :class:`npuperf.agent.session.Session`."""

    state: str
    pid: int
    host: str
    step: int = 0
    recorded: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    step_ns: StepTimes = StepTimes()
    rank: int | None = None
    world_size: int | None = None
    engine: str | None = None
    device: int | None = None
    soc: str | None = None
    cores_cube: int | None = None
    cores_vector: int | None = None
    python: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    cann: str | None = None
    executable: str | None = None
    argv: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    problem: str | None = None
    import_error: str | None = None
    own_data: tuple[str, ...] = ()
    early: bool = False
    #: At which step npuperf stopped recording, and why.
    stopped: str | None = None
    why_cpu: str | None = None
    said: str = ""

    @property
    def name(self) -> str:
        """Return how to call the process."""
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"


def read_all(folder: Path) -> list[ProcessStatus]:
    """Return every process, by rank, then pid."""
    found = []
    for file in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(file.read_bytes(), type=ProcessStatus))
        except (OSError, msgspec.DecodeError):  # the process died while its disk was full
            continue
    return sorted(found, key=lambda p: (p.rank is None, p.rank or 0, p.pid))

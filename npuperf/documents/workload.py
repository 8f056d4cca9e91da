"""What was run, and how it was recorded: by this two recordings are told to be of one workload."""

from __future__ import annotations

from npuperf.documents.base import Model


class GroupSize(Model, frozen=True, kw_only=True):
    """Process groups of one kind: how many there are, and of how many ranks."""

    kind: str
    groups: int
    ranks: int


class Workload(Model, frozen=True, kw_only=True):
    """The fingerprint of a recording. Null, or empty, is what the files do not tell.

    ``options``: the profiler's, as ``name=value``; ``frequency_mhz``: AI Core clock, least and most that was recorded;
    ``recording_overhead``: how many times longer a recorded step took than others of the run; ``settings``:
    environment variables that matter, as ``NAME=value``.
    """

    command: tuple[str, ...] = ()
    git_commit: str | None = None
    soc: str | None = None
    cann: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    level: str | None = None
    options: tuple[str, ...] = ()
    world_size: int | None = None
    groups: tuple[GroupSize, ...] = ()
    frequency_mhz: tuple[int, int] | None = None
    recording_overhead: float | None = None
    settings: tuple[str, ...] = ()
    kineto: bool = False

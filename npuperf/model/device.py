"""One device's profile, as every reader delivers it and every analysis takes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.model.chip import Cores
from npuperf.model.communication import Communication
from npuperf.model.environment import Environment
from npuperf.model.host import HostOps
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks


class HostSteps(Struct, frozen=True):
    """``ProfilerStep#N`` ranges of the host: number, start, end (epoch ns)."""

    number: I64
    start: I64
    end: I64

    @classmethod
    def empty(cls) -> HostSteps:
        """Return no steps."""
        none = np.empty(0, np.int64)
        return cls(none, none, none)

    def __len__(self) -> int:
        return len(self.number)

    def at(self, time: I64) -> I64:
        """Return the number of the step that contains each time, -1 outside all steps."""
        if not len(self):
            return np.full(len(time), -1, np.int64)
        order = np.argsort(self.start, kind="stable")
        i = np.searchsorted(self.start[order], time, side="right") - 1
        step = order[np.maximum(i, 0)]
        inside = (i >= 0) & (time < self.end[step])
        return np.where(inside, self.number[step], -1)


class VendorStep(Struct, frozen=True):
    """One row of step_trace_time.csv (or analysis.db): the exporter's own split of a step, ns.

    ``comm``: all communication, hidden or not; None where the file does not say.
    """

    step: int | None
    device: int | None
    compute: int
    comm_exposed: int
    free: int
    span: int
    bubble: int | None = None
    comm: int | None = None


class Context(Struct, frozen=True):
    """How the profile was taken. None means the profile does not say.

    ``overhead``: how many times longer a recorded step took than one outside of the recording, ``command`` the
    program's command line; ``stacks``: whether call stacks were recorded; ``extras``: the options of ``npuperf
    profile`` that were on and make recording dearer; ``watches_gc``: whether garbage collection was recorded.
    ``options``: all that decide what is recorded, by npuperf's names; ``git_commit``: of the program, with ``-dirty``
    where files differed from it.
    """

    level: str | None = None
    environment: Environment = field(default_factory=Environment)
    cann: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    overhead: float | None = None
    stacks: bool | None = None
    extras: tuple[str, ...] = ()
    watches_gc: bool | None = None
    command: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None

    def or_else(self, other: Context) -> Context:
        """Fill what is not said from another description of the same recording."""
        mine, theirs = self.environment, other.environment
        at_start = theirs.at_start if mine.at_start is None else mine.at_start
        return replace(
            self,
            level=self.level or other.level,
            environment=Environment(mine.in_process or theirs.in_process, at_start),
            cann=self.cann or other.cann,
            torch=self.torch or other.torch,
            torch_npu=self.torch_npu or other.torch_npu,
            overhead=self.overhead if self.overhead is not None else other.overhead,
            stacks=self.stacks if self.stacks is not None else other.stacks,
            extras=tuple(dict.fromkeys((*self.extras, *other.extras))),
            watches_gc=self.watches_gc if self.watches_gc is not None else other.watches_gc,
            command=self.command or other.command,
            options={**other.options, **self.options},
            git_commit=self.git_commit or other.git_commit,
        )


class DeviceProfile(Struct, frozen=True):
    """Everything read about one device of one rank. ``rank`` None: the files do not name it.

    ``excerpt``: rows are missing from the kernel table, so its gaps are not idle time. ``frequency_mhz``: the clock of
    its AI Cores while it ran tasks, least and most, None where it is not recorded.
    """

    source: str
    rank: int | None
    device: int
    soc: str | None
    cores: Cores
    tasks: Tasks
    host: HostOps = field(default_factory=HostOps)
    host_steps: HostSteps = field(default_factory=HostSteps.empty)
    vendor_steps: tuple[VendorStep, ...] = ()
    context: Context = field(default_factory=Context)
    excerpt: bool = False
    kineto: bool = False
    communication: Communication = field(default_factory=Communication)
    frequency_mhz: tuple[int, int] | None = None

    def without_counters(self) -> DeviceProfile:
        """Return the same without hardware counters."""
        return replace(self, tasks=self.tasks.without_counters())

    def without_steps(self) -> DeviceProfile:
        """Return the same without numbers of steps, as where these do not tell steps apart."""
        none = np.full(len(self.tasks), -1, self.tasks.step.dtype)
        return replace(self, tasks=self.tasks.with_columns(step=none), host_steps=HostSteps.empty())

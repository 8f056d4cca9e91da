"""One device's profile, as every reader delivers it and every analysis takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.messages import Message
from npuperf.model.chip import Cores
from npuperf.model.communication import OF_ALL, Communication
from npuperf.model.device_memory import DeviceMemory
from npuperf.model.host import HostOps
from npuperf.model.labels import F64, I16, I64, Columns, Labels
from npuperf.model.tasks import Tasks, Work

# -- Environment variables of a run, as far as they were recorded.

#: What a manifest keeps: variables that decide how a program runs and how it is measured.
_PREFIXES: Final = ("ASCEND_", "HCCL_", "TORCH_", "PYTORCH_", "ACLNN_", "NPU_", "TASK_QUEUE", "CPU_AFFINITY", "OMP_")
_NAMES: Final = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PROF_CONFIG_PATH", "MSMONITOR_USE_DAEMON",
    "KINETO_USE_DAEMON", "PYTHONTRACEMALLOC", "PYTHONDEVMODE", "PYTHONMALLOC", "TUNE_BANK_PATH",
    "MAX_RUNTIME_CORE_NUMBER", "COMBINED_ENABLE", "HOST_CACHE_CAPACITY", "ENABLE_DYNAMIC_SHAPE_MULTI_STREAM",
    "PER_STREAM_QUEUE", "LD_PRELOAD", "PROFILER_SAMPLECONFIG", "PROFILING_MODE",
    "INF_NAN_MODE_ENABLE", "STREAMS_PER_DEVICE",
)  # fmt: skip
#: A name part that keeps a variable out of the manifest.
_SECRET: Final = ("TOKEN", "SECRET", "PASSWORD", "KEY")


def is_kept(name: str) -> bool:
    """Tell whether a manifest names this variable if it is set; what looks like a secret is never kept."""
    return (name.startswith(_PREFIXES) or name in _NAMES) and not any(part in name for part in _SECRET)


class Environment(Struct, frozen=True):
    """``at_start``: as the manifest has it, None where there is none; ``in_process``: as the profiler saw it.

    The profiler records a few names and leaves those empty that are not set.
    """

    in_process: Mapping[str, str] = field(default_factory=dict)
    at_start: Mapping[str, str] | None = None

    def recorded(self) -> list[tuple[str, str, Literal["profiler", "npuperf"]]]:
        """Return every variable that is recorded, by name: value, and who recorded it."""
        found: dict[str, tuple[str, Literal["profiler", "npuperf"]]] = {
            name: (value, "npuperf") for name, value in (self.at_start or {}).items()
        }
        found |= {name: (value, "profiler") for name, value in self.in_process.items()}
        return [(name, *found[name]) for name in sorted(found)]

    def get(self, name: str) -> str | None:
        """Return the value, ``""`` where the variable was not set, None where that was not recorded."""
        if name in self.in_process:
            return self.in_process[name]
        if self.at_start is None or not is_kept(name):
            return None
        return self.at_start.get(name, "")


class HostSteps(Columns, frozen=True):
    """``ProfilerStep#N`` ranges of the host: number, start, end (epoch ns)."""

    number: I64
    start: I64
    end: I64

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return where each step begins and ends, in order of time: from the first of its ranges to the last."""
        found: dict[int, tuple[int, int]] = {}
        for i in np.argsort(self.start, kind="stable").tolist():
            begin, end = found.get(number := int(self.number[i]), (int(self.start[i]), 0))
            found[number] = begin, max(end, int(self.end[i]))
        return found

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


class Told(Struct, frozen=True):
    """What a second file tells of a device: how many things it has, and their time, ns.

    ``source``: the file's name.
    """

    source: str
    count: int
    ns: int


class SecondSources(Struct, frozen=True):
    """What else tells how much a device did, beside the table or timeline that its tasks are read from.

    ``kernels``: files that count kernels, with their durations added up; ``communication``: one that has the stay of
    each operation, with the time in which one was under way; ``steps``: the file that ``vendor_steps`` are from.
    """

    kernels: tuple[Told, ...] = ()
    communication: Told | None = None
    steps: str | None = None


#: What of a context is said as a whole, or not at all.
_EITHER: Final = (
    *("level", "cann", "torch", "torch_npu", "overhead", "stacks", "watches_gc"),
    *("command", "git_commit", "created"),
)


class Context(Struct, frozen=True):
    """How the profile was taken. None means the profile does not say.

    ``overhead``: how many times longer a recorded step took than one outside of the recording, ``command`` the
    program's command line; ``stacks``: whether call stacks were recorded; ``extras``: the options of ``npuperf
    profile`` that were on and make recording dearer; ``watches_gc``: whether garbage collection was recorded.
    ``options``: all that decide what is recorded, by npuperf's names; ``git_commit``: of the program, with ``-dirty``
    where files differed from it; ``created``: when the run began (ISO 8601); ``exported``: tables that the exporter
    wrote itself, by their fields in a result.
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
    created: str | None = None
    exported: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def world_size(self) -> int | None:
        """How many ranks the job had, as torchrun told the process in WORLD_SIZE."""
        value = self.environment.get("WORLD_SIZE") or ""
        return int(value) if re.fullmatch(r"[0-9]{1,7}", value) and int(value) else None

    def or_else(self, other: Context) -> Context:
        """Fill what is not said from another description of the same recording."""
        mine, theirs = self.environment, other.environment
        at_start = theirs.at_start if mine.at_start is None else mine.at_start
        said = {name: getattr(self, name) for name in _EITHER if getattr(self, name) not in (None, "", ())}
        return replace(
            self,
            environment=Environment(mine.in_process or theirs.in_process, at_start),
            extras=tuple(dict.fromkeys((*self.extras, *other.extras))),
            options={**other.options, **self.options},
            **{name: said.get(name, getattr(other, name)) for name in _EITHER},
        )


class ProcessProfile(Struct, frozen=True, kw_only=True):
    """What is read about one process of a run. ``rank`` None: the files do not name it."""

    source: str
    rank: int | None
    soc: str | None = None
    host: HostOps = field(default_factory=HostOps)
    host_steps: HostSteps = field(default_factory=HostSteps.empty)
    context: Context = field(default_factory=Context)
    kineto: bool = False


#: The clock of idle cores, MHz (msprof-analyze, freq_analysis): it tells nothing of kernels.
_IDLE_MHZ: Final = 800


class ClockRates(Struct, frozen=True):
    """The clock of one device's AI Cores over time: epoch ns in order, and MHz from then on."""

    time: I64
    mhz: I64

    @classmethod
    def of(cls, time: I64, mhz: I64) -> ClockRates:
        """Order values by time; one that is no clock is left out, as is one that says what the one before does."""
        sane = np.flatnonzero((mhz > 0) & (mhz <= np.iinfo(np.int16).max) & (time >= 0))
        order = sane[np.argsort(time[sane], kind="stable")]
        kept = order[np.append(True, np.diff(mhz[order]) != 0)[: len(order)]]
        return cls(time[kept], mhz[kept])

    def during(self, tasks: Tasks) -> tuple[int, int] | None:
        """Return the least and the most while tasks ran, MHz; None where no value holds then."""
        busy = np.flatnonzero(tasks.work != Work.CONTROL)
        if not len(busy) or not len(self.time):
            return None
        first = int(np.searchsorted(self.time, tasks.start[busy].min(), side="right")) - 1
        stop = int(np.searchsorted(self.time, tasks.end[busy].max(), side="left"))
        held = self.mhz[max(first, 0) : stop]
        return (int(held.min()), int(held.max())) if len(held) else None

    def of_each(self, tasks: Tasks) -> I16:
        """Return the highest clock while each task ran, MHz; 0 where none is told: before the first value, or idle."""
        first = np.searchsorted(self.time, tasks.start, side="right") - 1
        last = np.maximum(np.searchsorted(self.time, tasks.end, side="left") - 1, first)
        found = np.zeros(len(tasks), np.int16)
        known = np.flatnonzero(first >= 0)
        if len(known):
            both = np.stack([first[known], last[known] + 1], axis=1).ravel()
            highest = np.maximum.reduceat(np.append(self.mhz, 0), both)[::2]
            found[known] = np.where(highest > _IDLE_MHZ, highest, 0)
        return found

    def averages(self, edges: I64) -> F64:
        """Return the mean clock between each two neighbouring edges, MHz, 0 before the first value."""
        time, mhz = self.time, self.mhz.astype(np.float64)
        so_far = np.append(0.0, np.cumsum(mhz[:-1] * np.diff(time)))
        at = np.searchsorted(time, edges, side="right") - 1
        there = np.maximum(at, 0)
        reached = np.where(at >= 0, so_far[there] + mhz[there] * (edges - time[there]), 0.0)
        return np.diff(reached) / np.maximum(np.diff(edges), 1)


class DeviceProfile(ProcessProfile, frozen=True, kw_only=True):
    """Everything read about one device of one rank.

    ``excerpt``: why the gaps between its tasks are not idle time, as where rows are missing; None: no reason to think
    so. ``frequency``: the clock of its AI Cores over time, None where it is not recorded.
    ``stage``: of a pipeline, from 0, as a file names it, None where none does. ``memory``: None: not recorded.
    """

    device: int
    cores: Cores
    tasks: Tasks
    vendor_steps: tuple[VendorStep, ...] = ()
    excerpt: Message | None = None
    second: SecondSources = field(default_factory=SecondSources)
    communication: Communication = field(default_factory=Communication)
    frequency: ClockRates | None = None
    stage: int | None = None
    memory: DeviceMemory | None = None

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has: as its program or its launcher said, or as many as the group of all has."""
        told = self.communication.distributed.get("world_size") or self.context.world_size
        return told or max((len(g.ranks) for g in self.communication.groups if g.kind in OF_ALL), default=0) or None

    @property
    def frequency_mhz(self) -> tuple[int, int] | None:
        """The clock of its AI Cores while it ran tasks, least and most, MHz; None where it is not recorded."""
        return None if self.frequency is None else self.frequency.during(self.tasks)

    def without_counters(self) -> DeviceProfile:
        """Return the same without hardware counters."""
        return replace(self, tasks=self.tasks.without_counters())

    def without_steps(self) -> DeviceProfile:
        """Return the same without numbers of steps, as where these do not tell steps apart."""
        none = np.full(len(self.tasks), -1, self.tasks.step.dtype)
        return replace(self, tasks=self.tasks.with_columns(step=none), host_steps=HostSteps.empty())


# -- One process's host where no device task is recorded, as of a run on the CPU alone.


class TorchOperators(Columns, frozen=True):
    """Torch operators with what went into them, ordered by start: epoch ns, a row each, nested ones as well.

    ``shapes`` and ``dtypes``: of the tensors among the inputs, separated by ``;`` (``2,3;3,4``), missing where they
    are not recorded.
    """

    start: I64
    thread: I64
    name: Labels
    shapes: Labels
    dtypes: Labels


class HostProfile(ProcessProfile, frozen=True, kw_only=True):
    """Everything read about a process of which no device task is recorded."""

    operators: TorchOperators

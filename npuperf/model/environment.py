"""Environment variables of a run, as far as they were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

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

"""Environment variables: those that explain a measurement, and those that would spoil it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from npuperf.messages import Message, say

#: Set by ``msprof`` and by TF Adapter; torch_npu.profiler does nothing where one of them is set.
SILENCERS: Final = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")
#: Recorded in the manifest: they decide how a program runs and how it is measured.
_PREFIXES: Final = ("ASCEND_", "HCCL_", "TORCH_", "PYTORCH_", "ACLNN_", "NPU_", "TASK_QUEUE", "CPU_AFFINITY", "OMP_")
_NAMES: Final = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PROF_CONFIG_PATH", "MSMONITOR_USE_DAEMON",
    "KINETO_USE_DAEMON", "PYTHONTRACEMALLOC", "PYTHONDEVMODE", "PYTHONMALLOC", "TUNE_BANK_PATH",
    "MAX_RUNTIME_CORE_NUMBER", "COMBINED_ENABLE", *SILENCERS,
)  # fmt: skip
#: A name part that keeps a variable out of the manifest.
_SECRET: Final = ("TOKEN", "SECRET", "PASSWORD", "KEY")


def _another_profiler(tool: str) -> Message:
    return say("{tool} may start a profiler of its own: two of them damage each other's data", tool=tool)


#: Variables (value or None for any) that distort what is measured, and why.
_DISTORTING: Final = (
    (
        "ASCEND_LAUNCH_BLOCKING",
        "1",
        say("every operator waits for the device: nothing overlaps as it does in a real run"),
    ),
    ("PYTORCH_NO_NPU_MEMORY_CACHING", None, say("memory is not cached: every allocation goes to the driver")),
    ("ASCEND_GLOBAL_LOG_LEVEL", "0", say("CANN writes debug logs, which slows the host down")),
    ("ASCEND_GLOBAL_LOG_LEVEL", "1", say("CANN writes info logs, which slows the host down")),
    ("ASCEND_SLOG_PRINT_TO_STDOUT", "1", say("CANN prints its log, which slows the host down")),
    ("PYTHONTRACEMALLOC", None, say("Python traces every allocation, which slows the host down")),
    ("PYTHONDEVMODE", None, say("Python runs in development mode, which slows the host down")),
    ("PYTHONMALLOC", "debug", say("Python checks every allocation, which slows the host down")),
    ("PROF_CONFIG_PATH", None, _another_profiler("torch_npu")),
    ("MSMONITOR_USE_DAEMON", "1", _another_profiler("msMonitor")),
    ("KINETO_USE_DAEMON", "1", _another_profiler("dynolog")),
)


def worth_keeping(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that explain a result, without anything that looks like a secret."""
    kept = {n: v for n, v in environment.items() if n.startswith(_PREFIXES) or n in _NAMES}
    return {n: kept[n] for n in sorted(kept) if not any(part in n for part in _SECRET)}


def distortions(environment: Mapping[str, str]) -> list[Message]:
    """Warn of every variable that distorts the measurement."""
    return [
        say("{name}={value} is set: {why}", name=name, value=environment[name], why=why)
        for name, value, why in _DISTORTING
        if name in environment and (environment[name] == value if value else environment[name] not in ("", "0"))
    ]


def for_program(environment: Mapping[str, str], agent: Path, plan: Path) -> tuple[dict[str, str], list[Message]]:
    """Return the environment of a program that the agent shall enter, and what was changed in it."""
    chosen = {name: value for name, value in environment.items() if name not in SILENCERS}
    removed = [name for name in SILENCERS if environment.get(name)]
    before = environment.get("PYTHONPATH")
    chosen["PYTHONPATH"] = str(agent) if not before else f"{agent}{os.pathsep}{before}"
    chosen["NPUPERF_PLAN"] = str(plan)
    return chosen, [
        say(
            "{name}={value} is set: torch_npu.profiler would record nothing; the program is started without it",
            name=name,
            value=environment[name],
        )
        for name in removed
    ]

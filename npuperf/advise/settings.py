"""Environment variables whose values slow down a run of this kind.

Each is a fact with its documentation, asked only where it matters: what slows the host where the device waits for the
host, what slows transfers where they are exposed. Variables with a rule of their own (ASCEND_LAUNCH_BLOCKING,
TASK_QUEUE_ENABLE, MAX_RUNTIME_CORE_NUMBER) are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from npuperf.advise.needs import Need
from npuperf.advise.rule import Answer, Detected, rule
from npuperf.base.escape import for_shell
from npuperf.base.messages import Message, chain, factor, say, series
from npuperf.device.mode import is_compiled
from npuperf.device.view import DeviceView

_CANN: Final = say("CANN, environment variables")
_TORCH_NPU: Final = say("Ascend Extension for PyTorch, environment variables")
_PYTHON: Final = say("Python, command line and environment")

#: ``ACLNN_CACHE_LIMIT`` where it is not set.
_ACLNN_ENTRIES: Final = 10_000
#: Nothing that is counted has more.
_DIGITS: Final = 18


class Fact(Struct, frozen=True):
    """A variable: which values slow a run down, in which runs that matters, what it does, and what to do."""

    name: str
    slows: Callable[[str], bool]
    matters: Callable[[DeviceView], bool]
    effect: Message
    advice: Message
    source: Message


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in values


def _below_default(value: str) -> bool:
    return value.strip().isdecimal() and len(value) <= _DIGITS and int(value) < _ACLNN_ENTRIES


def _host_bound(view: DeviceView) -> bool:
    """Where it is not known what the step waits for, it may be the host."""
    return view.host_bound or view.verdict.bound == "unknown"


def _eager_host_bound(view: DeviceView) -> bool:
    return _host_bound(view) and view.mode in ("eager", "unknown")


def _dynamic_graph(view: DeviceView) -> bool:
    return _host_bound(view) and is_compiled(view.mode) and (view.traits.runtime_threads or 1) > 1


def _communication(view: DeviceView) -> bool:
    exposed = view.partition.comm_exposed_ns
    return exposed > 0 and exposed >= view.thresholds.comm_exposed_share * view.partition.span_ns


FACTS: Final = (
    Fact(
        "ASCEND_GLOBAL_LOG_LEVEL",
        _one_of("0", "1"),
        _host_bound,
        say("ASCEND_GLOBAL_LOG_LEVEL writes debug (0) or info (1) lines for every call"),
        say("unset ASCEND_GLOBAL_LOG_LEVEL (errors only)"),
        _CANN,
    ),
    Fact(
        "ASCEND_SLOG_PRINT_TO_STDOUT",
        _one_of("1"),
        _host_bound,
        say("ASCEND_SLOG_PRINT_TO_STDOUT prints CANN's log in place of writing it to files"),
        say("unset ASCEND_SLOG_PRINT_TO_STDOUT"),
        _CANN,
    ),
    Fact(
        "ACLNN_CACHE_LIMIT",
        _below_default,
        _eager_host_bound,
        say("ACLNN_CACHE_LIMIT keeps fewer operators than the default of 10000, so that more are tiled again"),
        say("unset ACLNN_CACHE_LIMIT, or raise it where shapes vary (2 KB of host memory per entry and thread)"),
        _CANN,
    ),
    Fact(
        "PYTORCH_NO_NPU_MEMORY_CACHING",
        lambda value: value.strip() not in ("", "0"),
        _eager_host_bound,
        say("PYTORCH_NO_NPU_MEMORY_CACHING takes all memory from the driver and gives it back at once"),
        say("unset PYTORCH_NO_NPU_MEMORY_CACHING (it is for debugging)"),
        _TORCH_NPU,
    ),
    Fact(
        "ENABLE_DYNAMIC_SHAPE_MULTI_STREAM",
        _one_of("1"),
        _dynamic_graph,
        say("ENABLE_DYNAMIC_SHAPE_MULTI_STREAM=1 switches off what MAX_RUNTIME_CORE_NUMBER is set for"),
        say("unset ENABLE_DYNAMIC_SHAPE_MULTI_STREAM"),
        say("GE, runtime v2: scheduling threads"),
    ),
    Fact(
        "PYTHONTRACEMALLOC",
        lambda value: value.strip() not in ("", "0"),
        _host_bound,
        say("PYTHONTRACEMALLOC records a traceback for every allocation of Python"),
        say("unset PYTHONTRACEMALLOC"),
        _PYTHON,
    ),
    Fact(
        "PYTHONDEVMODE",
        lambda value: bool(value.strip()),
        _host_bound,
        say("PYTHONDEVMODE adds run-time checks to Python"),
        say("unset PYTHONDEVMODE"),
        _PYTHON,
    ),
    Fact(
        "PYTHONMALLOC",
        lambda value: value.strip().endswith("debug"),
        _host_bound,
        say("PYTHONMALLOC checks every allocation of Python"),
        say("unset PYTHONMALLOC"),
        _PYTHON,
    ),
    Fact(
        "HCCL_DETERMINISTIC",
        _one_of("true", "strict"),
        _communication,
        say("HCCL_DETERMINISTIC makes reductions deterministic, which are slower"),
        say("unset HCCL_DETERMINISTIC where results need not be equal to the last bit"),
        _CANN,
    ),
)  # fmt: skip


def _unknown(view: DeviceView) -> list[str]:
    """Return the variables that matter to this run whose values are not recorded."""
    return [fact.name for fact in FACTS if fact.matters(view) and view.traits.environment.get(fact.name) is None]


#: A value that is recorded may be a problem whatever else is not.
_ENVIRONMENT: Final = Need(
    say("environment"),
    lambda view: float(not _unknown(view)),
    lambda view: say(
        "what is set for {names} is not recorded: record with npuperf profile, which keeps the environment in "
        "npuperf.json, and analyze its folder",
        names=series(_unknown(view)),
    ),
    vital=False,
)


@rule(
    say("environment variables"),
    _CANN,
    (_ENVIRONMENT,),
)
def env_settings(view: DeviceView) -> Answer:
    """Hold the recorded values against what is documented of them."""
    values = {fact.name: view.traits.environment.get(fact.name) for fact in FACTS}
    found = [fact for fact in FACTS if (value := values[fact.name]) and fact.slows(value) and fact.matters(view)]
    if not found:
        return None
    return Detected(
        title=chain(*(fact.effect for fact in found)),
        evidence={"settings": [{"name": f.name, "value": values[f.name], "source": str(f.source)} for f in found]},
        refute=say("the step takes just as long without them, or the program changes them after its start"),
        next=chain(*(fact.advice for fact in found)),
        severity="medium",
    )


# -- Recording made the steps longer than they are, so that the profile does not show the program's usual pace.

_LEVEL: Final = re.compile(r"(\d)$")
_OVERHEAD: Final = Need(
    say("overhead"),
    lambda view: float(view.traits.overhead is not None),
    lambda _: say(
        "what recording costs is not known: npuperf profile times steps outside of the recorded window, too (--wait)"
    ),
)


@rule(
    say("cost of recording"),
    say("npuperf.json: median host time of steps inside and outside of the recorded window"),
    (_OVERHEAD,),
)
def recording_cost(view: DeviceView) -> Answer:
    """Compare steps inside and outside of the recording."""
    overhead = view.traits.overhead
    if overhead is None or not view.traits.slowed(view.thresholds):
        return None
    context = view.profile.context
    found = _LEVEL.search(context.level or "")
    level = int(found.group(1)) if found else 1
    program = for_shell(*context.command)
    lower = min(level, 1) if context.extras else level - 1
    command = f"npuperf profile --level {lower}{' -- ' + program if program else ''}"
    if context.extras:  # without the extras first, then on a lower level
        less = say(
            "record again with less: {command} (without {options})",
            command=command,
            options=series(f"--{name.replace('_', '-')}" for name in context.extras),
        )
    elif level > 1:
        less = say("record again with less: {command}", command=command)
    elif level == 1:
        less = say(
            "record again with less: {command} (level 0 has fewer events, and no operator types or shapes)",
            command=command,
        )
    else:
        less = say(
            "take host times from elsewhere: the recording has nothing left to leave out but the host's operators "
            "(--activities npu)"
        )
    return Detected(
        title=say("recording made steps {times} times as long: host times in this profile are not the program's own",
                  times=factor(overhead)),
        evidence={"overhead": overhead, "level": context.level, "extras": [*context.extras]},
        refute=say("steps outside of the recorded window were shorter for another reason: they did less work"),
        next=less,
        severity="high",
    )  # fmt: skip

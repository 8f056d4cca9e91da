"""What a user can ask of ``npuperf profile``, and what each engine makes of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from npuperf.errors import UsageError

Engine = Literal["auto", "torch", "e2e", "msprof", "cpu"]
Level = Literal["0", "1", "2", "none"]
Export = Literal["text", "db", "both"]
OwnProfiler = Literal["aside", "replace"]

#: Name of a metric set → number of ACL_AICORE_* that the legacy interface takes.
METRICS: Final = {
    "ArithmeticUtilization": 0,
    "PipeUtilization": 1,
    "Memory": 2,
    "MemoryL0": 3,
    "ResourceConflictRatio": 4,
    "MemoryUB": 5,
    "L2Cache": None,
    "MemoryAccess": None,
    "AiCoreNone": 0xFF,
}
HOST_SYSTEMS: Final = ("cpu", "mem", "disk", "network", "osrt", "numa")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to record. Steps are counted from 0; ``given`` names the options that the user gave.

    ``step_on`` is ``optimizer``, ``forward`` or a number of seconds as text; ``max_size`` is in bytes,
    ``gc_threshold`` in ms.
    """

    engine: Engine = "auto"
    wait: int = 10
    warmup: int = 1
    active: int = 2
    repeat: int = 1
    step_on: str = "optimizer"
    whole_run: bool = False
    ranks: tuple[int, ...] | None = None
    own_profiler: OwnProfiler = "aside"
    max_size: int | None = None
    level: Level = "1"
    aic_metrics: str = "PipeUtilization"
    export: Export = "text"
    activities: tuple[str, ...] = ("CPU", "NPU")
    shapes: bool = False
    stack: bool = False
    memory: bool = False
    modules: bool = False
    flops: bool = False
    l2_cache: bool = False
    mstx: bool = False
    mstx_include: tuple[str, ...] = ()
    mstx_exclude: tuple[str, ...] = ()
    op_attr: bool = False
    op_args: bool = False
    gc_threshold: float | None = None
    host_sys: tuple[str, ...] = ()
    sys_io: bool = False
    sys_interconnection: bool = False
    simplify: bool = True
    acl_api: bool = True
    task_time: bool = True
    aicpu: bool = True
    communication: bool = True
    training_trace: bool = False
    msprof_arg: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


#: Which engines know an option. Options that are not here concern every engine.
_ENGINES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("warmup", "activities", "own_profiler"), ("torch", "cpu")),
    **dict.fromkeys(("shapes", "memory", "modules", "flops"), ("torch", "cpu")),
    "stack": ("torch", "cpu", "e2e"),
    **dict.fromkeys(("op_attr", "op_args", "gc_threshold", "simplify"), ("torch",)),
    **dict.fromkeys(("level", "mstx", "mstx_include", "mstx_exclude"), ("torch", "msprof")),
    **dict.fromkeys(("host_sys", "sys_io", "sys_interconnection", "export"), ("torch", "msprof")),
    **dict.fromkeys(("aic_metrics", "l2_cache"), ("torch", "msprof", "e2e")),
    **dict.fromkeys(("wait", "active", "repeat", "step_on", "whole_run", "ranks"), ("torch", "cpu", "e2e")),
    **dict.fromkeys(("acl_api", "task_time", "aicpu"), ("e2e", "msprof")),
    "training_trace": ("e2e",),
    "msprof_arg": ("msprof",),
}


def flag(name: str) -> str:
    """Return the option as it is typed."""
    return "--" + name.replace("_", "-")


def build(values: Mapping[str, Any], given: Iterable[str]) -> Options:
    """Make options of values as a user writes them (text or numbers); names that are no option are passed over.

    Raises UsageError for values that cannot be.
    """
    known = {name: values[name] for name in Options.__struct_fields__ if values.get(name) is not None}
    for name, read in _READ.items():
        if isinstance(known.get(name), str):
            known[name] = read(known[name])
    known["given"] = tuple(name for name in given if name in known)
    try:
        return _checked(msgspec.convert(known, Options))
    except msgspec.ValidationError as error:
        raise UsageError(f"options: {error}") from error


def _checked(options: Options) -> Options:
    for name in options.given:
        engines = _ENGINES.get(name)
        if engines and options.engine not in ("auto", *engines):
            hint = f"it is for --engine {' or '.join(engines)}"
            raise UsageError(f"{flag(name)}: not an option of the {options.engine} engine", hint=hint)
        if engines and options.engine == "auto" and "torch" not in engines:
            raise UsageError(f"{flag(name)}: needs --engine {' or '.join(engines)}")
    if "communication" in options.given and options.engine in ("auto", "torch", "msprof"):
        if not options.communication:
            raise UsageError("--no-communication: only the e2e engine can leave it out", hint="--level 0 does, too")
        if options.level in ("0", "none"):
            raise UsageError(f"--communication: nothing of it is recorded at level {options.level}", hint="--level 1")
    if options.engine == "e2e" and METRICS[options.aic_metrics] is None:
        names = ", ".join(n for n, number in METRICS.items() if number is not None)
        raise UsageError(f"--aic-metrics {options.aic_metrics}: the e2e engine has only {names}")
    if options.op_attr and options.export == "text":
        raise UsageError("--op-attr is kept in databases only", hint="add --export db or --export both")
    if options.mstx_include and options.mstx_exclude:
        raise UsageError("--mstx-include and --mstx-exclude: only one of them can be used")
    if options.level in ("0", "none") and "aic_metrics" in options.given and options.aic_metrics != "AiCoreNone":
        hint = "use --level 1 or --level 2, or leave --aic-metrics out"
        raise UsageError(
            f"--aic-metrics {options.aic_metrics}: no counters are recorded at level {options.level}", hint=hint
        )
    return options


def torch_arguments(options: Options) -> dict[str, list[tuple[str, Any, str | None]]]:
    """Translate for torch_npu.profiler: keyword, value, and the option if the user asked for it.

    Enumerations are given by member name; the agent looks them up in the version that is installed.
    """
    asked = set(options.given)

    def entry(name: str, key: str, value: Any) -> tuple[str, Any, str | None]:
        return (key, value, flag(name) if name in asked else None)

    switches = {"shapes": "record_shapes", "memory": "profile_memory", "stack": "with_stack"}
    switches.update(modules="with_modules", flops="with_flops")
    profile = [entry(name, key, True) for name, key in switches.items() if getattr(options, name)]
    counters = options.aic_metrics if options.level in ("1", "2") else "AiCoreNone"
    formats = {"text": ["Text"], "db": ["Db"], "both": ["Text", "Db"]}[options.export]
    experimental = [
        entry("level", "profiler_level", "Level_none" if options.level == "none" else f"Level{options.level}"),
        entry("aic_metrics", "aic_metrics", counters),
        entry("export", "export_type", formats if options.export == "both" else formats[0]),
    ]
    for name, key in (
        ("l2_cache", "l2_cache"),
        ("mstx", "mstx"),
        ("op_attr", "op_attr"),
        ("op_args", "record_op_args"),
        ("sys_io", "sys_io"),
        ("sys_interconnection", "sys_interconnection"),
    ):
        if getattr(options, name):
            experimental.append(entry(name, key, True))
    for name, key in (("mstx_include", "mstx_domain_include"), ("mstx_exclude", "mstx_domain_exclude")):
        if getattr(options, name):
            experimental.append(entry(name, key, list(getattr(options, name))))
    if options.gc_threshold is not None:
        experimental.append(entry("gc_threshold", "gc_detect_threshold", options.gc_threshold))
    if options.host_sys:
        experimental.append(entry("host_sys", "host_sys", [s.upper() for s in options.host_sys]))
    if not options.simplify:
        experimental.append(entry("simplify", "data_simplification", False))
    return {"profile": profile, "experimental": experimental}


def e2e_arguments(options: Options) -> list[tuple[str, Any, str | None]]:
    """Translate for the legacy ``torch_npu.npu.profileConfig``."""
    values: dict[str, tuple[str, Any]] = {
        "ACL_PROF_ACL_API": ("acl_api", options.acl_api),
        "ACL_PROF_TASK_TIME": ("task_time", options.task_time),
        "ACL_PROF_AICORE_METRICS": ("aic_metrics", options.aic_metrics != "AiCoreNone"),
        "ACL_PROF_AICPU": ("aicpu", options.aicpu),
        "ACL_PROF_L2CACHE": ("l2_cache", options.l2_cache),
        "ACL_PROF_HCCL_TRACE": ("communication", options.communication),
        "ACL_PROF_TRAINING_TRACE": ("training_trace", options.training_trace),
        "TORCH_CALL_STACK": ("stack", options.stack),
        "aiCoreMetricsType": ("aic_metrics", METRICS[options.aic_metrics]),
    }
    return [(key, value, flag(name) if name in options.given else None) for key, (name, value) in values.items()]


def msprof_arguments(options: Options) -> list[str]:
    """Translate for the msprof command; only what differs from its defaults or was asked for."""

    def on(value: bool) -> str:
        return "on" if value else "off"

    found = []
    if "level" in options.given or options.level != "1":
        found.append("--task-time=" + {"0": "l0", "1": "l1", "2": "l1", "none": "off"}[options.level])
    if options.level == "2":
        found.append("--runtime-api=on")
    if options.aic_metrics == "AiCoreNone":
        found.append("--ai-core=off")
    else:
        found.append(f"--aic-metrics={options.aic_metrics}")
    if "acl_api" in options.given:
        found.append(f"--ascendcl={on(options.acl_api)}")
    if "task_time" in options.given:
        found.append(f"--task-time={on(options.task_time)}")
    if "aicpu" in options.given or options.level == "2":
        found.append(f"--aicpu={on(options.aicpu)}")
    switches = (
        (options.l2_cache, "--l2=on"),
        (options.mstx, "--msproftx=on"),
        (options.sys_io, "--sys-io-profiling=on"),
        (options.sys_interconnection, "--sys-interconnection-profiling=on"),
        (options.export == "db", "--type=db"),
        (bool(options.mstx_include), f"--mstx-domain-include={','.join(options.mstx_include)}"),
        (bool(options.mstx_exclude), f"--mstx-domain-exclude={','.join(options.mstx_exclude)}"),
        (bool(options.host_sys), f"--host-sys={','.join(options.host_sys)}"),
        (options.max_size is not None, f"--storage-limit={(options.max_size or 0) >> 20}MB"),
    )
    return [*found, *(text for wanted, text in switches if wanted), *options.msprof_arg]


def step_source(text: str) -> str:
    """Read ``--step-on``: ``optimizer``, ``forward``, or ``2-seconds``, which becomes ``2``."""
    if text in ("optimizer", "forward"):
        return text
    seconds = re.fullmatch(r"(\d+(?:\.\d+)?)-?(?:s|seconds?)", text)
    if not seconds or float(seconds[1]) <= 0:
        raise UsageError(f"--step-on {text!r}: unknown", hint="give optimizer, forward, or a time such as 2-seconds")
    return seconds[1]


def rank_list(text: str) -> tuple[int, ...]:
    """Read ``--ranks``: ``0,8`` or ``0-3``."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            raise UsageError(f"--ranks {text!r}: {part!r} is not a rank", hint="give numbers: 0,8 or 0-3")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


def byte_size(text: str) -> int:
    """Read ``--max-size``: ``500M``, ``2G``."""
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not size or float(size[1]) <= 0:
        raise UsageError(f"--max-size {text!r}: not a size", hint="give a number with K, M, G or T: 500M, 2G")
    return int(float(size[1]) * 1024 ** " KMGT".index(size[2].upper() or " "))


def _metrics(text: str) -> str:
    """Return the name of a metric set, given by name or by its number (1, 0xFF)."""
    try:
        number = int(text, 0)
    except ValueError:
        name = "AiCoreNone" if text.lower() == "none" else text
        return _known("--aic-metrics", name, tuple(METRICS))
    for name, code in METRICS.items():
        if code == number:
            return name
    codes = ", ".join(f"{code} {name}" for name, code in METRICS.items() if code is not None)
    raise UsageError(f"--aic-metrics {text}: no such number", hint=codes)


def _known(option: str, value: str, values: tuple[str, ...]) -> str:
    """Return the value in its exact spelling."""
    exact = {v.lower(): v for v in values}
    if value.lower() in exact:
        return exact[value.lower()]
    near = difflib.get_close_matches(value.lower(), exact, n=1)
    did_you_mean = f"did you mean {exact[near[0]]}? " if near else ""
    raise UsageError(f"{option} {value!r}: unknown", hint=f"{did_you_mean}valid: {', '.join(values)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _activities(text: str) -> tuple[str, ...]:
    return tuple(_known("--activities", name, ("CPU", "NPU")) for name in _names(text))


def _choice(option: str, choices: Any) -> Callable[[str], str]:
    return lambda text: _known(option, text, get_args(choices))


def _host_systems(text: str) -> tuple[str, ...]:
    return tuple(_known("--host-sys", name, HOST_SYSTEMS) for name in _names(text))


#: How options are read that a user writes as text.
_READ: Final[dict[str, Callable[[str], Any]]] = {
    "engine": _choice("--engine", Engine),
    "level": _choice("--level", Level),
    "export": _choice("--export", Export),
    "own_profiler": _choice("--own-profiler", OwnProfiler),
    "aic_metrics": _metrics,
    "step_on": step_source,
    "ranks": rank_list,
    "max_size": byte_size,
    "activities": _activities,
    "host_sys": _host_systems,
    "mstx_include": _names,
    "mstx_exclude": _names,
}

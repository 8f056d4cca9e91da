"""What can be asked of ``npuperf profile``, and how it is read from the words of a command line."""

# Annotations are values here, not text: options are read from them.
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from npuperf.base.declared import DATA, HOW, NOT_TYPED, OUTPUT, WHAT, WHEN, BareWords, Typed
from npuperf.base.errors import UsageError
from npuperf.base.messages import chain, say, series

# -- Lists of ranks as users write them.


def rank_list(text: str) -> tuple[int, ...]:
    """Read ``--ranks``: ``0,8`` or ``0-3``."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            what = say("--ranks {text}: {part} is not a rank", text=repr(text), part=repr(part))
            raise UsageError(what, hint=say("give numbers: 0,8 or 0-3"))
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


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

#: What is recorded to be compared, unless something else is given: more steps than one needs to look at, since noise
#: is told by them, and no counters, which cost device time. Level 1 stays: it has shapes and communication.
_TO_COMPARE: Final[dict[str, object]] = {"active": 10, "aic_metrics": "AiCoreNone"}


class RecordingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to record. Steps are counted from 0; ``given`` names the options that the user gave.

    ``step_on`` is ``optimizer``, ``forward`` or a number of seconds as text; ``max_size`` is in bytes,
    ``gc_threshold`` in ms. ``for_compare`` is what chose the usual values of others (:data:`_TO_COMPARE`).
    """

    engine: Annotated[Engine, Typed(HOW, say("auto, torch, e2e, msprof or cpu."), "--engine", metavar="NAME")] = "auto"
    wait: Annotated[int, Typed(WHEN, say("Steps to skip first."), "--wait", metavar="N", least=1)] = 10
    warmup: Annotated[
        int, Typed(WHEN, say("Steps in which the profiler runs without recording."), "--warmup", metavar="N", least=0)
    ] = 1
    active: Annotated[int, Typed(WHEN, say("Steps to record."), "--active", metavar="N", least=1)] = 2
    delay: Annotated[
        float | None,
        Typed(
            WHEN,
            say("Begin to record this long after the start, steps or not: 30s, 5m."),
            "--delay",
            metavar="TIME",
            kind=str,
        ),
    ] = None
    duration: Annotated[
        float | None,
        Typed(
            WHEN,
            say("Record for this long, steps or not: 5s, 500ms, 2m."),
            "--duration",
            metavar="TIME",
            kind=str,
        ),
    ] = None
    start_on: Annotated[
        str | None,
        Typed(
            WHEN,
            say(
                "Begin to record when a range of this name begins (record_function, mstx); npuperf.start: when the "
                "program calls that."
            ),
            "--start-on",
            metavar="RANGE",
        ),
    ] = None
    standby: Annotated[
        bool,
        Typed(
            WHEN,
            say("Record nothing until npuperf profile --pid asks for it in another shell, any number of times."),
            "--standby",
        ),
    ] = False
    for_compare: Annotated[
        bool,
        Typed(
            WHEN,
            say(
                "Record for a comparison: 10 steps, since their noise tells what is chance, and no counters, which "
                "cost time."
            ),
            "--for-compare",
        ),
    ] = False
    repeat: Annotated[
        int, Typed(WHEN, say("How many times to record; each makes its own folder."), "--repeat", metavar="N", least=1)
    ] = 1
    step_on: Annotated[
        str,
        Typed(WHEN, say("What ends a step: optimizer, forward, or a time (2-seconds)."), "--step-on", metavar="WHAT"),
    ] = "optimizer"
    whole_run: Annotated[bool, Typed(WHEN, say("Record the whole run, regardless of steps."), "--whole-run")] = False
    ranks: Annotated[
        tuple[int, ...] | None,
        Typed(WHAT, say("Record only these ranks: 0,8 or 0-3."), "--ranks", metavar="LIST", kind=str),
    ] = None
    own_profiler: Annotated[
        OwnProfiler,
        Typed(
            HOW,
            say("If the program has its own profiler: defer to it (aside), or replace it (replace)."),
            "--own-profiler",
            metavar="aside|replace",
        ),
    ] = "aside"
    max_size: Annotated[
        int | None,
        Typed(WHEN, say("Stop recording when the data exceeds this size: 2G."), "--max-size", metavar="SIZE", kind=str),
    ] = None
    level: Annotated[Level, Typed(DATA, say("How much to record: 0, 1, 2 or none."), "--level", metavar="LEVEL")] = "1"
    aic_metrics: Annotated[
        str, Typed(DATA, say("Hardware counters, by name or number (0–5, 0xFF)."), "--aic-metrics", metavar="NAME")
    ] = "PipeUtilization"
    export: Annotated[
        Export,
        Typed(
            WHAT,
            say(
                "Format to export the raw data to: text, db or both; or a folder of raw data to export, "
                "without running a program."
            ),
            "--export",
            metavar="FORMAT|DIR",
            kind=list[str],
        ),
    ] = "text"
    activities: Annotated[
        tuple[str, ...],
        Typed(DATA, say("cpu,npu or one of them."), "--activities", metavar="LIST", kind=str, usual="cpu,npu"),
    ] = ("CPU", "NPU")
    shapes: Annotated[bool, Typed(DATA, say("Operator shapes."), "--shapes")] = False
    stack: Annotated[bool, Typed(DATA, say("Call stacks, so that the analysis can name code lines."), "--stack")] = (
        False
    )
    memory: Annotated[bool, Typed(DATA, say("Memory use."), "--memory")] = False
    snapshot: Annotated[
        bool,
        Typed(DATA, say("A snapshot of PyTorch's memory with its history, also when it runs out."), "--snapshot"),
    ] = False
    modules: Annotated[bool, Typed(DATA, say("Module names."), "--modules")] = False
    flops: Annotated[bool, Typed(DATA, say("Floating-point operations, estimated."), "--flops")] = False
    l2_cache: Annotated[bool, Typed(DATA, say("L2 cache hits."), "--l2-cache")] = False
    mstx: Annotated[bool, Typed(DATA, say("mstx ranges."), "--mstx")] = False
    mstx_include: Annotated[
        tuple[str, ...], Typed(DATA, say("Only these mstx domains."), "--mstx-include", metavar="LIST", kind=str)
    ] = ()
    mstx_exclude: Annotated[
        tuple[str, ...], Typed(DATA, say("All but these mstx domains."), "--mstx-exclude", metavar="LIST", kind=str)
    ] = ()
    op_attr: Annotated[bool, Typed(DATA, say("Operators' attributes (databases only)."), "--op-attr")] = False
    op_args: Annotated[bool, Typed(DATA, say("Operators' arguments."), "--op-args")] = False
    all_threads: Annotated[
        bool,
        Typed(DATA, say("PyTorch's operators of every thread that makes steps, not of one alone."), "--all-threads"),
    ] = False
    execution_trace: Annotated[
        bool, Typed(DATA, say("PyTorch's execution trace, which can be replayed."), "--execution-trace")
    ] = False
    metadata: Annotated[
        tuple[str, ...],
        Typed(DATA, say("What to write into the recording; repeatable."), "--metadata", metavar="KEY=VALUE"),
    ] = ()
    gc_threshold: Annotated[
        float | None,
        Typed(DATA, say("Garbage collections longer than this."), "--gc-threshold", metavar="MS", least=0),
    ] = None
    host_sys: Annotated[
        tuple[str, ...],
        Typed(DATA, say("The host's cpu, mem, disk, network, osrt, numa."), "--host-sys", metavar="LIST", kind=str),
    ] = ()
    sys_io: Annotated[bool, Typed(DATA, say("NIC and RoCE."), "--sys-io")] = False
    sys_interconnection: Annotated[
        bool, Typed(DATA, say("HCCS, PCIe and the links between chips."), "--sys-interconnection")
    ] = False
    simplify: Annotated[bool, Typed(OUTPUT, say("Delete intermediate files."), "--simplify/--no-simplify")] = True
    acl_api: Annotated[bool, Typed(DATA, say("AscendCL calls (e2e, msprof)."), "--acl-api/--no-acl-api")] = True
    task_time: Annotated[bool, Typed(DATA, say("Task times (e2e, msprof)."), "--task-time/--no-task-time")] = True
    aicpu: Annotated[bool, Typed(DATA, say("AI CPU tasks (e2e, msprof)."), "--aicpu/--no-aicpu")] = True
    communication: Annotated[
        bool,
        Typed(DATA, say("Communication (from level 1 on)."), "--communication/--no-communication", "--hccl/--no-hccl"),
    ] = True
    training_trace: Annotated[bool, Typed(DATA, say("Iteration traces (e2e)."), "--training-trace")] = False
    msprof_arg: Annotated[
        tuple[str, ...],
        Typed(HOW, say("Any argument for msprof; repeatable (msprof)."), "--msprof-arg", metavar="ARG"),
    ] = ()
    stop_after: Annotated[
        bool, Typed(WHEN, say("End the program when everything has been recorded."), "--stop-after")
    ] = False
    export_early: Annotated[
        bool, Typed(WHEN, say("Export as soon as everything has been recorded, beside the program."), "--export-early")
    ] = False
    given: Annotated[tuple[str, ...], NOT_TYPED] = ()


class ProfileRequest(RecordingOptions, frozen=True, kw_only=True):
    """What to run or to export, where to, and how. Raises UsageError for options that exclude each other.

    ``pid`` is a running program to record in place of one to start, ``more`` a run whose window is to be longer.
    ``command`` are the words after the options, ``module`` what ``-m`` names. ``source`` is raw data to export in
    place of running a program; its own formats are made unless ``given`` has "export". ``python`` is the interpreter
    for scripts and exports; ``output`` is the run directory (None: the next free of result, result.1, …); ``force``
    moves a run that is there aside; ``export_timeout`` is in minutes (None: by the size of the data).
    """

    command: Annotated[tuple[str, ...], BareWords("SCRIPT")] = ()
    module: Annotated[
        str | None, Typed(WHAT, say("Run a module, like python -m."), "-m", "--module", metavar="NAME", first=True)
    ] = None
    source: Annotated[Path | None, NOT_TYPED] = None
    pid: Annotated[
        int | None,
        Typed(
            WHAT,
            say("Record a program that runs already, with all that it has started: npuperf does not end it."),
            "--pid",
            metavar="PID",
            least=1,
            first=True,
        ),
    ] = None
    more: Annotated[
        Path | None,
        Typed(
            WHEN,
            say("Let a recording that is under way go on for --active or --duration."),
            "--more",
            metavar="RUN_DIR",
        ),
    ] = None
    output: Annotated[
        Path | None,
        Typed(
            OUTPUT,
            say("The run directory to make (result, then result.1, …)."),
            "-o",
            "--output",
            metavar="DIR",
            first=True,
        ),
    ] = None
    force: Annotated[bool, Typed(OUTPUT, say("Move a run that is in the way of -o aside."), "--force", first=True)] = (
        False
    )
    python: Annotated[
        str | None,
        Typed(WHAT, say("The interpreter for scripts and exports."), "--python", metavar="FILE", first=True),
    ] = None
    export_timeout: Annotated[
        float | None,
        Typed(
            WHEN,
            say("End the export of a folder after this many minutes (30, and 1 for each 10 MB)."),
            "--export-timeout",
            metavar="MINUTES",
            least=0,
        ),
    ] = None
    export_processes: Annotated[
        int | None,
        Typed(
            HOW,
            say("Processes that export a folder (half as many as there are cores)."),
            "--export-processes",
            metavar="N",
            least=1,
        ),
    ] = None
    dry_run: Annotated[bool, Typed(HOW, say("Show what would be done, and do nothing."), "--dry-run", last=True)] = (
        False
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out."""
        if self.source is not None and (self.command or self.module):
            what = say("--export {folder} exports what is there; it runs no program", folder=str(self.source))
            raise UsageError(what)
        if self.source is not None and self.dry_run:
            raise UsageError(say("--dry-run shows how a program would be recorded; --export FOLDER runs none"))
        wrong = next((text for text in self.metadata if not text.partition("=")[0].strip() or "=" not in text), None)
        if wrong is not None:
            raise UsageError(say("--metadata {text}: not KEY=VALUE", text=repr(wrong)))
        _check_engine(self)
        _check_level(self)
        _check_beginning(self)
        _check_running(self)
        if self.whole_run and (self.stop_after or self.export_early):
            what = say("{option}: with --whole-run recording ends with the program",
                       option="--stop-after" if self.stop_after else "--export-early")  # fmt: skip
            raise UsageError(what)
        if self.op_attr and self.export == "text":
            raise UsageError(say("--op-attr is kept in databases only"), hint=say("add --export db or --export both"))
        if self.mstx_include and self.mstx_exclude:
            raise UsageError(say("--mstx-include and --mstx-exclude: only one of them can be used"))

    @property
    def is_told(self) -> bool:
        """Tell whether it is a time or a range that recording begins with, and no step."""
        return any(value is not None for value in (self.delay, self.duration, self.start_on))

    @property
    def first_recorded(self) -> int:
        """The first step to record."""
        return self.wait + self.warmup


#: Which engines know an option. Options that are not here concern every engine.
_ENGINES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("warmup", "activities", "own_profiler"), ("torch", "cpu")),
    **dict.fromkeys(("shapes", "memory", "modules", "flops"), ("torch", "cpu")),
    "stack": ("torch", "cpu", "e2e"),
    **dict.fromkeys(("delay", "duration", "start_on", "standby"), ("torch", "cpu", "e2e")),
    "snapshot": ("torch", "cpu", "e2e"),
    **dict.fromkeys(("execution_trace", "metadata"), ("torch", "cpu")),
    **dict.fromkeys(("op_attr", "op_args", "gc_threshold", "simplify", "all_threads"), ("torch",)),
    **dict.fromkeys(("level", "mstx", "mstx_include", "mstx_exclude"), ("torch", "msprof")),
    **dict.fromkeys(("host_sys", "sys_io", "sys_interconnection", "export"), ("torch", "msprof")),
    **dict.fromkeys(("aic_metrics", "l2_cache"), ("torch", "msprof", "e2e")),
    **dict.fromkeys(("wait", "active", "for_compare", "repeat", "step_on"), ("torch", "cpu", "e2e")),
    **dict.fromkeys(("whole_run", "ranks"), ("torch", "cpu", "e2e")),
    **dict.fromkeys(("stop_after", "export_early"), ("torch", "cpu", "e2e")),
    **dict.fromkeys(("acl_api", "task_time", "aicpu"), ("e2e", "msprof")),
    "training_trace": ("e2e",),
    "msprof_arg": ("msprof",),
}


def flag(name: str) -> str:
    """Return the option as it is typed."""
    return "--" + name.replace("_", "-")


def read_request(values: Mapping[str, object], given: Iterable[str]) -> ProfileRequest:
    """Make a request of values as a user writes them (text or numbers); names that are no option are passed over.

    Raises UsageError for values that cannot be.
    """
    given = tuple(given)
    known = {name: values[name] for name in ProfileRequest.__struct_fields__ if values.get(name) is not None}
    if known.get("for_compare"):
        known |= {name: value for name, value in _TO_COMPARE.items() if name not in given}
    if known.get("pid") and "wait" not in given:  # its operators are compiled
        known["wait"] = 1
    exports = known.get("export")
    if isinstance(exports, list | tuple):
        known["export"], known["source"] = export_words(exports)
    for name, read in _READ.items():
        text = known.get(name)
        if isinstance(text, str):
            known[name] = read(text)
    known = {name: value for name, value in known.items() if value is not None}
    known["given"] = tuple(name for name in given if name in known and name in RecordingOptions.__struct_fields__)
    try:
        return msgspec.convert(known, ProfileRequest)
    except msgspec.ValidationError as error:
        raise UsageError(say("options: {error}", error=str(error))) from error


def _check_engine(request: ProfileRequest) -> None:
    """Refuse options that the chosen engine does not know."""
    for name in request.given:
        engines = _ENGINES.get(name)
        if engines is None or request.engine in engines or (request.engine == "auto" and "torch" in engines):
            continue
        if request.engine == "auto":
            raise UsageError(say("{option}: needs --engine {names}", option=flag(name), names=series(engines, " | ")))
        hint = say("it is for --engine {names}", names=series(engines, " | "))
        what = say("{option}: not an option of the {engine} engine", option=flag(name), engine=request.engine)
        raise UsageError(what, hint=hint)
    if request.engine == "e2e" and METRICS[request.aic_metrics] is None:
        names = series(name for name, number in METRICS.items() if number is not None)
        raise UsageError(say("--aic-metrics {metrics}: the e2e engine has only {names}",
                             metrics=request.aic_metrics, names=names))  # fmt: skip


def _check_level(request: ProfileRequest) -> None:
    """Refuse options that the chosen level does not record."""
    low = request.level in ("0", "none")
    if "communication" in request.given and request.engine in ("auto", "torch", "msprof"):
        if not request.communication:
            raise UsageError(
                say("--no-communication: only the e2e engine can leave it out"),
                hint=say("--level 0 also leaves it out"),
            )
        if low:
            what = say("--communication: level {level} does not record it", level=request.level)
            raise UsageError(what, hint=say("add --level 1"))
    if low and "aic_metrics" in request.given and request.aic_metrics != "AiCoreNone":
        what = say("--aic-metrics {metrics}: no counters are recorded at level {level}",
                   metrics=request.aic_metrics, level=request.level)  # fmt: skip
        raise UsageError(what, hint=say("use --level 1 or --level 2, or leave --aic-metrics out"))


def _check_beginning(request: ProfileRequest) -> None:
    """Refuse what says twice, or in two ways, when recording begins and how long it takes."""
    for timed, others in _TIMED.items():
        for name in others:
            is_again = timed == "duration" and name == "repeat" and request.start_on
            if getattr(request, timed) and name in request.given and not is_again:
                what = say("{option}: not together with {other}", option=flag(timed), other=flag(name))
                raise UsageError(what, hint=_INSTEAD[timed])


#: Options that say by the clock when to record, those that say it by steps, and what to do about both.
_TIMED: Final = {
    "delay": ("wait", "repeat", "whole_run"),
    "duration": ("wait", "warmup", "active", "repeat", "whole_run"),
    "start_on": ("wait", "warmup", "delay", "whole_run"),
    "standby": (
        "wait",
        "warmup",
        "active",
        "delay",
        "duration",
        "start_on",
        "repeat",
        "whole_run",
        "stop_after",
        "export_early",
    ),
}
_INSTEAD: Final = {
    "delay": say("--delay 30s --active 2 records 2 steps after 30 seconds, --wait 10 --active 2 those after step 10"),
    "duration": say("--delay 30s --duration 5s records 5 seconds, --wait 10 --active 2 records 2 steps"),
    "start_on": say(
        "--start-on RANGE --active 2 records 2 steps from there on, --start-on RANGE --duration 5s 5 seconds"
    ),
    "standby": say("give it to npuperf profile --pid, which begins a recording"),
}


#: Options that have no meaning where the program runs already, and why.
_NOT_RUNNING: Final = {
    "standby": say("it is for a program that npuperf starts"),
    "whole_run": say("its beginning is over; use --duration"),
    "stop_after": say("npuperf ends no program that it has not started"),
    "export_early": say("it is exported as soon as it is recorded"),
    "snapshot": say("the history of memory is kept from the start of a program on; add it to --standby"),
}


def _check_running(request: ProfileRequest) -> None:
    """Refuse what cannot be asked of a program that runs already, or of a window that is under way."""
    named = say("--pid") if request.pid is not None else say("--more")
    if request.pid is None and request.more is None:
        return
    if request.command or request.module:
        what = say("{option} is about a program that runs already; it starts none", option=named)
        words = " ".join(request.command) or f"-m {request.module}"
        raise UsageError(what, hint=say("leave out {words}, or {option}", words=words, option=named))
    if request.source is not None or (request.pid is not None and request.more is not None):
        other = say("--export {folder}", folder=str(request.source)) if request.source else say("--more")
        raise UsageError(say("{option} and {other}: only one of them can be used", option=named, other=other))
    if request.pid is not None:
        unfit = next((name for name in _NOT_RUNNING if getattr(request, name)), None)
        if unfit is not None:
            raise UsageError(say("{option}: not with --pid: {why}", option=flag(unfit), why=_NOT_RUNNING[unfit]))
        return
    unfit = next((name for name in request.given if name not in ("active", "duration")), None)
    if unfit is not None:
        raise UsageError(say("{option}: not with --more, which changes nothing but when a recording ends",
                             option=flag(unfit)))  # fmt: skip
    if request.duration is None and "active" not in request.given:
        what = say("--more: by how much?")
        raise UsageError(what, hint=say("add --active 2 or --duration 5s"))


def export_words(words: Sequence[str]) -> tuple[str | None, Path | None]:
    """Tell formats from a folder: ``--export`` takes both."""
    known = get_args(Export)
    formats = [w for w in words if w in known]
    folders = [w for w in words if w not in known]
    if len(formats) > 1 or len(folders) > 1:
        what = say("--export {words}: one format and one folder at most", words=" ".join(words))
        raise UsageError(what, hint=say("both means text and db"))
    if folders and not Path(folders[0]).exists():
        what = say("--export {word}: no such format or folder", word=folders[0])
        raise UsageError(what, hint=say("give a format ({formats}) or a folder of raw data", formats=series(known)))
    return formats[0] if formats else None, Path(folders[0]) if folders else None


def step_source(text: str) -> str:
    """Read ``--step-on``: ``optimizer``, ``forward``, or ``2-seconds``, which becomes ``2``."""
    if text in ("optimizer", "forward"):
        return text
    seconds = re.fullmatch(r"(\d+(?:\.\d+)?)-?(?:s|seconds?)", text)
    if not seconds or float(seconds[1]) <= 0:
        hint = say("give optimizer, forward, or a time such as 2-seconds")
        raise UsageError(say("--step-on {text}: unknown", text=repr(text)), hint=hint)
    return seconds[1]


def seconds(option: str, text: str) -> float:
    """Read a time: ``5s``, ``500ms``, ``2m``; a number alone is in seconds."""
    time = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)?", text.strip())
    if not time or float(time[1]) <= 0:
        what = say("{option} {text}: not a time", option=option, text=repr(text))
        raise UsageError(what, hint=say("give a number with ms, s, m or h: 500ms, 5s"))
    return float(time[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}[time[2] or "s"]


def byte_size(text: str) -> int:
    """Read ``--max-size``: ``500M``, ``2G``."""
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not size or float(size[1]) <= 0:
        hint = say("give a number with K, M, G or T: 500M, 2G")
        raise UsageError(say("--max-size {text}: not a size", text=repr(text)), hint=hint)
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
    codes = series(f"{code} {name}" for name, code in METRICS.items() if code is not None)
    raise UsageError(say("--aic-metrics {text}: no such number", text=text), hint=say("valid: {names}", names=codes))


def _known(option: str, value: str, values: tuple[str, ...]) -> str:
    """Return the value in its exact spelling."""
    exact = {v.lower(): v for v in values}
    if value.lower() in exact:
        return exact[value.lower()]
    near = difflib.get_close_matches(value.lower(), exact, n=1)
    did_you_mean = say("did you mean {name}?", name=exact[near[0]]) if near else None
    hint = chain(did_you_mean, say("valid: {names}", names=series(values)), by=" ")
    raise UsageError(say("{option} {value}: unknown", option=option, value=repr(value)), hint=hint)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _choice(option: str, choices: Any) -> Callable[[str], str]:
    return lambda text: _known(option, text, get_args(choices))


def _choices(option: str, choices: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(_known(option, name, choices) for name in _names(text))


#: How options are read that a user writes as text.
_READ: Final[dict[str, Callable[[str], object]]] = {
    "engine": _choice("--engine", Engine),
    "level": _choice("--level", Level),
    "export": _choice("--export", Export),
    "own_profiler": _choice("--own-profiler", OwnProfiler),
    "aic_metrics": _metrics,
    "step_on": step_source,
    "ranks": rank_list,
    "max_size": byte_size,
    "delay": lambda text: seconds("--delay", text),
    "duration": lambda text: seconds("--duration", text),
    "activities": _choices("--activities", ("CPU", "NPU")),
    "host_sys": _choices("--host-sys", HOST_SYSTEMS),
    "mstx_include": _names,
    "mstx_exclude": _names,
}

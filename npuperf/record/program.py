"""How the program is started: its command and its environment, with the agent inside or under msprof."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.files import open_input
from npuperf.base.messages import Message, say, say_n, series
from npuperf.base.process import run_quietly
from npuperf.model.device import is_kept
from npuperf.model.recorded import RecordingPlan, Setting, Window
from npuperf.record.folder import RunFolder
from npuperf.record.plan import (
    AGENT,
    INJECT,
    PLAN_VARIABLE,
    SILENCERS,
    e2e_arguments,
    find_msprof,
    msprof_arguments,
    not_found,
    torch_arguments,
)
from npuperf.record.request import ProfileRequest, flag


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
)
_OTHERS: Final = (
    ("PROF_CONFIG_PATH", None, _another_profiler("torch_npu")),
    ("MSMONITOR_USE_DAEMON", "1", _another_profiler("msMonitor")),
    ("KINETO_USE_DAEMON", "1", _another_profiler("dynolog")),
)


def worth_keeping(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that explain a result, without anything that looks like a secret."""
    return {name: environment[name] for name in sorted(environment) if is_kept(name)}


def distortions(environment: Mapping[str, str], *, elsewhere: bool = True) -> list[Message]:
    """Warn of every variable that distorts the measurement; ``elsewhere``: also of profilers that others may start."""
    return [
        say("{name}={value} is set: {why}", name=name, value=environment[name], why=why)
        for name, value, why in (*_DISTORTING, *(_OTHERS if elsewhere else ()))
        if name in environment and (environment[name] == value if value else environment[name] not in ("", "0"))
    ]


def for_program(environment: Mapping[str, str], agent: Path, plan: Path) -> tuple[dict[str, str], list[Message]]:
    """Return the environment of a program that the agent shall enter, and what was changed in it."""
    chosen = {name: value for name, value in environment.items() if name not in SILENCERS}
    before = environment.get("PYTHONPATH")
    chosen["PYTHONPATH"] = f"{agent}{os.pathsep}{before}" if before else str(agent)
    chosen[PLAN_VARIABLE] = str(plan)
    return chosen, [
        say("{name}={value} is set, with which torch_npu.profiler would record nothing: the program "
"is started without it",
            name=name, value=environment[name])
        for name in SILENCERS if environment.get(name)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """``argv`` is what is started; ``script`` the file of the user's that it names first, if any."""

    argv: tuple[str, ...]
    script: Path | None = None


def resolve(words: Sequence[str], module: str | None = None, python: str | None = None) -> Command:
    """Find out what to start.

    A Python file, a notebook or ``module`` runs under ``python`` (by default npuperf's own interpreter if it has torch,
    else the first python on PATH), a shell script under sh, anything else as it is. Raises UsageError when there is
    nothing to start.
    """
    if module is not None:
        return Command((find_python(python), "-m", module, *words))
    if not words:
        raise UsageError(say("nothing to run"), hint=say("npuperf profile train.py, or npuperf profile -- COMMAND"))
    first = Path(words[0])
    if first.is_dir() and (first / "__main__.py").is_file():
        return Command((find_python(python), *words), first / "__main__.py")
    if first.is_file():
        with open_input(first) as opened:
            line = opened.read(200).partition(b"\n")[0]
        if first.suffix == ".ipynb":
            return Command((_with_jupyter(find_python(python), first), "-m", "jupyter", "execute", *words), first)
        shebang, executable = line.startswith(b"#!"), os.access(first, os.X_OK)
        if first.suffix in (".py", ".pyc", ".pyz") or (shebang and b"python" in line and not executable):
            return Command((find_python(python), *words), first)
        if executable and (shebang or line.startswith(b"\x7fELF")):
            # A file in the current folder is started by path, never by looking for its name elsewhere.
            named = words[0] if os.sep in words[0] else f"{os.curdir}{os.sep}{words[0]}"
            return Command((named, *words[1:]), first)
        if first.suffix in (".sh", ".bash") or shebang:
            return Command(("bash" if shutil.which("bash") else "sh", *words), first)
        raise UsageError(say("{file}: neither a Python file nor an executable", file=str(first)))
    if shutil.which(words[0]):
        scripts = (Path(word) for word in words[1:] if word.endswith((".py", ".sh")))
        return Command(tuple(words), next((s for s in scripts if s.is_file()), None))
    what = say("{word}: no such file or command", word=words[0])
    if first.suffix or os.sep in words[0]:
        what = say("{word}: no such file", word=words[0])
    raise UsageError(what, hint=say("options of npuperf come before the script; commands come after --"))


def _with_jupyter(python: str, notebook: Path) -> str:
    """Return the interpreter if it can execute notebooks; the kernel that it starts is the program then."""
    asked = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('jupyter', 'nbclient', 'ipykernel'))))"
    if run_quietly([python, "-c", asked]).returncode == 0:
        return python
    what = say("{file}: {python} cannot execute notebooks: nbclient or ipykernel is not installed",
               file=str(notebook), python=python)  # fmt: skip
    made = f"jupyter nbconvert --to script {for_shell(str(notebook))}"
    script = f"npuperf profile {for_shell(str(notebook.with_suffix('.py')))}"
    raise UsageError(what, hint=say("{command}", command=f"{made} && {script}"))


def find_python(chosen: str | None = None) -> str:
    """Return the interpreter for Python programs: the chosen one, npuperf's own if it has torch, or that on PATH."""
    if chosen is not None:
        found = shutil.which(chosen)
        if not found:
            raise UsageError(say("--python {name}: no such program", name=chosen))
        return found
    if importlib.util.find_spec("torch") is None:
        other = shutil.which("python") or shutil.which("python3")
        if other:
            return other
    return sys.executable


#: A script of the vendor's own guide records one or two steps after the first ten, in which operators are compiled.
_FIRST_STEPS = 10
#: More kinds of data than this at once, and the vendor's guide does not trust the times any more (our number).
_MANY_KINDS = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started. ``cautions`` say what makes the figures doubtful."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    cautions: tuple[Message, ...]


def prepare(command: Command, request: ProfileRequest, folder: RunFolder, environment: Mapping[str, str]) -> Launch:
    """Decide what is started; raises InputError or UsageError when msprof is wanted and cannot be used."""
    cautions = [*_cautions(request), *distortions(environment)]
    if request.engine == "msprof":
        msprof = find_msprof(environment)
        if msprof is None:
            raise not_found(environment)
        if not msprof.works:
            raise InputError(say("{why}; recording needs the driver", why=msprof.note))
        if any(name in environment for name in SILENCERS):
            hint = say("unset {names}", names=series(SILENCERS, " "))
            raise UsageError(say("this shell already runs under msprof"), hint=hint)
        arguments = msprof_arguments(request)
        unknown = [a for a in arguments if "--" in msprof.help and a.split("=")[0] not in msprof.help]
        asked = [a for a in unknown if a not in msprof_arguments(ProfileRequest(engine="msprof"))]
        if asked:
            what = say("this CANN's msprof has no {options}", options=series(asked))
            raise UsageError(what, hint=say("msprof --help lists what it has"))
        known = [a for a in arguments if a not in unknown]
        relay = (sys.executable, "-I", str(AGENT / "relay.py"), str(folder.exit_status))
        argv = (str(msprof.binary), f"--output={folder.raw}", *known, *relay, *command.argv)
        return Launch(argv, dict(environment), tuple(cautions))
    chosen, removed = for_program(environment, INJECT, folder.plan)
    return Launch(command.argv, chosen, (*removed, *cautions))


def preview(
    launch: Launch, request: ProfileRequest, folder: RunFolder, environment: Mapping[str, str]
) -> RecordingPlan:
    """Describe what would be started; nothing is made."""
    window = None
    if request.engine != "msprof" and not (request.whole_run or request.standby or request.duration is not None):
        first = request.first_recorded - (request.wait if request.is_told else 0)
        last = first + request.active - 1
        window = Window(first=first, last=last, repeat=request.repeat, step_on=request.step_on)
    return RecordingPlan(
        argv=launch.argv,
        added={n: v for n, v in launch.environment.items() if environment.get(n) != v},
        folder=str(folder.path),
        engine=request.engine,
        window=window,
        ranks=request.ranks,
        settings=settings_of(request),
        cautions=launch.cautions,
        delay=request.delay,
        duration=request.duration,
        start_on=request.start_on,
        standby=request.standby,
    )


def settings_of(request: ProfileRequest) -> tuple[Setting, ...]:
    """Return the arguments that a profiler in the program is given."""
    groups = {"profileConfig": e2e_arguments(request)} if request.engine == "e2e" else torch_arguments(request)
    unused = {"msprof": tuple(groups), "cpu": ("experimental",)}.get(request.engine, ())  # msprof: in its command
    return tuple(
        Setting(of=name, name=a.keyword, value=a.value)
        for name, arguments in groups.items()
        if name not in unused
        for a in arguments
    )


def _cautions(request: ProfileRequest) -> list[Message]:
    """Warn of options that make figures doubtful."""
    found = []
    if request.duration is not None and request.delay is None and request.start_on is None:
        found.append(say("recording begins at once: operators may still be compiled; add --delay 30s"))
    by_step = not (request.engine == "msprof" or request.whole_run or request.standby or request.is_told)
    if by_step and request.first_recorded < _FIRST_STEPS:
        found.append(
            say(
                "recording includes step {step}: operators may still be compiled in the first {first} "
                "steps; use --wait {first}",
                step=request.first_recorded,
                first=_FIRST_STEPS,
            )
        )
    if request.engine != "msprof" and request.whole_run:
        found.append(
            say("the whole run is recorded: its first steps compile operators, and the data grows with every step")
        )
    names = ("shapes", "stack", "memory", "modules", "flops", "l2_cache", "op_attr", "op_args", "host_sys", "sys_io")
    kinds = [flag(n) for n in (*names, "sys_interconnection", "mstx") if getattr(request, n)]
    kinds += ["--level 2"] if request.level == "2" else []
    if len(kinds) > _MANY_KINDS:
        found.append(say_n("{n} kind of data at once ({kinds}) slows the program down: record them in several runs",
                           "{n} kinds of data at once ({kinds}) slow the program down: record them in several runs",
                           len(kinds), kinds=series(kinds)))  # fmt: skip
    return found

"""What the profilers are given: each engine's arguments, and the JSON document of the agent inside the program."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from npuperf.base.cann import find_program, roots, set_env_script
from npuperf.base.errors import InputError
from npuperf.base.files import scratch_folder
from npuperf.base.messages import Message, say, series
from npuperf.base.process import run_quietly
from npuperf.record.folder import RunFolder
from npuperf.record.request import METRICS, ProfileRequest, flag

Tell = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class RecordingJob:
    """What all steps of a run need to know. ``tell`` gets what matters, ``progress``, if any, what only begins."""

    request: ProfileRequest
    environment: Mapping[str, str]
    tell: Tell
    progress: Tell | None
    keep_recording: bool


#: The variable that names the plan to every process of a program.
PLAN_VARIABLE: Final = "NPUPERF_PLAN"
#: Set by ``msprof`` and by TF Adapter; torch_npu.profiler does nothing where one of them is set.
SILENCERS: Final = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")

Value = bool | int | float | str | list[str]


class Argument(NamedTuple):
    """A keyword and its value; ``option`` is how the user asked for it, None where it is a default."""

    keyword: str
    value: Value
    option: str | None


#: Options that are switched on, and the keyword of ``torch_npu.profiler.profile`` for each.
_PROFILE: Final = (
    ("shapes", "record_shapes"),
    ("memory", "profile_memory"),
    ("stack", "with_stack"),
    ("modules", "with_modules"),
    ("flops", "with_flops"),
    ("execution_trace", "execution_trace_observer"),
    ("all_threads", "enable_profiler_in_child_thread"),
)
#: The same for ``_ExperimentalConfig``: switches and lists, left out where they are off or empty.
_EXPERIMENTAL: Final = (
    ("l2_cache", "l2_cache"),
    ("mstx", "mstx"),
    ("op_attr", "op_attr"),
    ("op_args", "record_op_args"),
    ("sys_io", "sys_io"),
    ("sys_interconnection", "sys_interconnection"),
    ("mstx_include", "mstx_domain_include"),
    ("mstx_exclude", "mstx_domain_exclude"),
)


def torch_arguments(request: ProfileRequest) -> dict[str, list[Argument]]:
    """Translate for torch_npu.profiler: the arguments of ``profile``, and those of its experimental configuration.

    Of the former two are done by the agent: an observer is made, and threads enabled. ``metadata`` are what is added.
    Enumerations are given by member name; the agent looks them up in the version that is installed.
    """
    profile = [_argument(request, name, key, True) for name, key in _PROFILE if getattr(request, name)]
    level = "Level_none" if request.level == "none" else f"Level{request.level}"
    counters = request.aic_metrics if request.level in ("1", "2") else "AiCoreNone"
    formats: Value = {"text": "Text", "db": "Db"}.get(request.export) or ["Text", "Db"]
    found: list[tuple[str, str, Value]] = [
        ("level", "profiler_level", level),
        ("aic_metrics", "aic_metrics", counters),
        ("export", "export_type", formats),
    ]
    for name, key in _EXPERIMENTAL:
        value = getattr(request, name)
        if value:
            found.append((name, key, list(value) if isinstance(value, tuple) else value))
    if request.gc_threshold is not None:
        found.append(("gc_threshold", "gc_detect_threshold", request.gc_threshold))
    if request.host_sys:
        found.append(("host_sys", "host_sys", [s.upper() for s in request.host_sys]))
    if not request.simplify:
        found.append(("simplify", "data_simplification", False))
    words = [_argument(request, "metadata", *text.split("=", 1)) for text in request.metadata]
    return {
        "profile": profile,
        "experimental": [_argument(request, *entry) for entry in found],
        "metadata": words,
    }


def e2e_arguments(request: ProfileRequest) -> list[Argument]:
    """Translate for the legacy ``torch_npu.npu.profileConfig``."""
    values = (
        ("acl_api", "ACL_PROF_ACL_API", request.acl_api),
        ("task_time", "ACL_PROF_TASK_TIME", request.task_time),
        ("aic_metrics", "ACL_PROF_AICORE_METRICS", request.aic_metrics != "AiCoreNone"),
        ("aicpu", "ACL_PROF_AICPU", request.aicpu),
        ("l2_cache", "ACL_PROF_L2CACHE", request.l2_cache),
        ("communication", "ACL_PROF_HCCL_TRACE", request.communication),
        ("training_trace", "ACL_PROF_TRAINING_TRACE", request.training_trace),
        ("stack", "TORCH_CALL_STACK", request.stack),
        ("aic_metrics", "aiCoreMetricsType", METRICS[request.aic_metrics] or 0),
    )
    return [_argument(request, *entry) for entry in values]


def _argument(request: ProfileRequest, name: str, keyword: str, value: Value) -> Argument:
    return Argument(keyword, value, flag(name) if name in request.given else None)


def msprof_arguments(request: ProfileRequest) -> list[str]:
    """Translate for the msprof command; only what differs from its defaults or was asked for."""
    given = request.given
    times = {"0": "l0", "1": "l1", "2": "l1", "none": "off"}[request.level]
    counters = "--ai-core=off" if request.aic_metrics == "AiCoreNone" else f"--aic-metrics={request.aic_metrics}"
    switches = (
        ("level" in given or request.level != "1", f"--task-time={times}"),
        (request.level == "2", "--runtime-api=on"),
        (True, counters),
        ("acl_api" in given, f"--ascendcl={_on(request.acl_api)}"),
        ("task_time" in given, f"--task-time={_on(request.task_time)}"),
        ("aicpu" in given or request.level == "2", f"--aicpu={_on(request.aicpu)}"),
        (request.l2_cache, "--l2=on"),
        (request.mstx, "--msproftx=on"),
        (request.sys_io, "--sys-io-profiling=on"),
        (request.sys_interconnection, "--sys-interconnection-profiling=on"),
        (request.export == "db", "--type=db"),
        (bool(request.mstx_include), f"--mstx-domain-include={','.join(request.mstx_include)}"),
        (bool(request.mstx_exclude), f"--mstx-domain-exclude={','.join(request.mstx_exclude)}"),
        (bool(request.host_sys), f"--host-sys={','.join(request.host_sys)}"),
        (request.max_size is not None, f"--storage-limit={(request.max_size or 0) >> 20}MB"),
    )
    return [*(text for wanted, text in switches if wanted), *request.msprof_arg]


def _on(value: bool) -> str:
    return "on" if value else "off"


#: The agent, and the folder of it that goes on PYTHONPATH.
AGENT: Final = Path(__file__).resolve().parent / "agent"
INJECT: Final = AGENT / "inject"


def plan_of(request: ProfileRequest, folder: RunFolder) -> dict[str, object]:
    """Return the document that :class:`npuperf.record.agent.session.Session` takes."""
    # The legacy profiler has no warm-up: the step is simply not recorded.
    e2e = request.engine == "e2e"
    # Told when to begin, it waits for no step; a time and a range need no warm-up.
    warmup = request.warmup if request.duration is None and request.start_on is None else 0
    return {
        "engine": request.engine,
        "raw": str(folder.raw),
        "status": str(folder.status),
        "stop": str(folder.stop),
        "more": str(folder.more),
        "standby": str(folder.standby) if request.standby else None,
        "began": time.time(),
        "delay": request.delay,
        "duration": request.duration,
        "start_on": request.start_on,
        "schedule": {
            "wait": (0 if request.is_told else request.wait) + (warmup if e2e else 0),
            "warmup": 0 if e2e else warmup,
            "active": request.active,
            "repeat": request.repeat,
        },
        "step_on": request.step_on,
        "whole_run": request.whole_run,
        "ranks": None if request.ranks is None else list(request.ranks),
        "own_profiler": request.own_profiler,
        "silencers": list(SILENCERS),
        "snapshot": request.snapshot,
        "activities": list(request.activities),
        "e2e": e2e_arguments(request),
        **torch_arguments(request),
    }


# -- CANN's exporter on this machine: where msprof is, and what to do where it does not work.

#: The binary below an installation: today's layout, and that of CANN 5.
_BINARIES: Final = ("tools/profiler/bin/msprof", "toolkit/tools/profiler/bin/msprof")
#: The exporter written in Python, below the folder "tools/profiler".
_SCRIPT: Final = "profiler_tool/analysis/msprof/msprof.py"
#: msprof asks the driver for the platform before it reads its options.
_NO_DRIVER: Final = "Init platform by driver failed"


@dataclass(frozen=True, slots=True)
class Msprof:
    """An msprof that was found. ``script`` is the toolkit's own exporter; ``note`` says why it has to be used."""

    binary: Path
    script: Path | None
    works: bool
    help: str
    note: Message | None = None


def find_msprof(environment: Mapping[str, str]) -> Msprof | None:
    """Look for msprof on PATH, then below the CANN that the environment names, then where it is usually installed."""
    binary = find_program("msprof", _BINARIES, environment)
    if binary is None:
        return None
    script = binary.resolve().parents[1] / _SCRIPT
    beside = script if script.is_file() else None
    output = run_quietly([str(binary), "--help"])  # without a driver it cannot even show that
    if _NO_DRIVER not in output.text and output.returncode is not None:
        return Msprof(binary, beside, True, output.text)
    why = say("{binary} does not start ({words})", binary=str(binary), words=output.text.strip())
    if _NO_DRIVER in output.text:
        why = say("{binary} finds no driver", binary=str(binary))
    note = say("{why}, and there is no msprof.py beside it", why=why)
    if beside:
        note = say("{why}: {script} is used instead", why=why, script=str(beside))
    return Msprof(binary, beside, False, output.text, note)


def not_found(environment: Mapping[str, str]) -> InputError:
    """Return the error for a machine on which :func:`find_msprof` finds nothing."""
    places = series(["PATH", *(f"{root}/{_BINARIES[0]}" for root in roots(environment))])
    return InputError(
        say("msprof was not found (looked at {places})", places=places),
        hint=say("source {script}", script=set_env_script(environment)),
    )


@contextmanager
def msprof_first(msprof: Msprof, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield an environment in which ``msprof`` is that one, or a stand-in for it that calls the toolkit's exporter.

    torch_npu finds the exporter from where msprof lies (what stands before "tools" in its real path), so the stand-in
    lies in a folder that looks like a toolkit.
    """

    def with_path(first: Path) -> dict[str, str]:
        return {**environment, "PATH": f"{first}{os.pathsep}{environment.get('PATH', os.defpath)}"}

    if msprof.works or msprof.script is None:
        yield with_path(msprof.binary.parent)
        return
    elsewhere = "/var/tmp" if "tools" in tempfile.gettempdir() else None
    with scratch_folder(elsewhere) as folder:
        profiler = folder / "tools" / "profiler"
        (profiler / "bin").mkdir(parents=True)
        (profiler / "profiler_tool").symlink_to(msprof.script.parents[2])
        stand_in = profiler / "bin" / "msprof"
        stand_in.write_text(f"#!{sys.executable}\nSCRIPT = {str(msprof.script)!r}\n{_STAND_IN}", "utf-8")
        stand_in.chmod(0o755)
        yield with_path(stand_in.parent)


_STAND_IN: Final = """
import subprocess
import sys

options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
if "help" in options:
    print("msprof.py in place of msprof: --export=on --type=text|db --analyze=on --output=FOLDER")
    sys.exit(0)
if options.get("analyze") == "on":
    steps = [["analyze", "-r", options.get("rule", "communication").split(",")[0]]]
elif options.get("type") == "db":
    steps = [["export", "db"]]
else:
    steps = [["export", "timeline"], ["export", "summary"]]
status = 0
for step in steps:
    call = [sys.executable, SCRIPT, *step, "-dir", options.get("output", ".")]
    status = subprocess.call(call) or status
sys.exit(status)
"""

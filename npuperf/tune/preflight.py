"""What must hold before tuning: every documented condition, with what is required and what was found."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from npuperf.cann import cann_version, roots, set_env_script
from npuperf.documents.tuning import Check
from npuperf.model.chip import product_of_soc
from npuperf.tune.job import Dump, Job, Script
from npuperf.tune.store import default_places

_GB: Final = 1 << 30
_TE, _TPN = 8, 8
#: Tuning modes by product (CANN 9.0; SEED: A2 and A3 have no subgraph tuning).
_NO_SUBGRAPHS: Final = ("Atlas A2", "Atlas A3")
_NO_AOE: Final = re.compile(r"^ascend950", re.I)
#: 200I/500 A2: offline inference only.
_NO_PROGRAMS: Final = re.compile(r"^ascend310b", re.I)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of where tuning will run; None is unknown. ``dynamic``: the share of kernels of dynamic shape."""

    soc: str | None
    cores: int | None
    dynamic: float | None
    model_bytes: int | None
    most_blocks: int | None


def check(job: Job, machine: Machine, environment: Mapping[str, str], place: Path) -> list[Check]:
    """Check everything; ``hard`` ones that fail forbid tuning, the others are recommendations.

    ``place``: where the bank will be written.
    """
    return [
        _product(job, machine),
        _shapes(job, machine),
        _bank(job, environment, place),
        _cann(environment),
        _disk(),
        _memory(job, machine, environment),
        _cpus(job, environment),
        _compilers(environment, job),
        _off(job, "profiling", "off while tuning", _set(environment, "PROFILING_MODE", "PROFILER_SAMPLECONFIG")),
        _off(job, "static memory", "GE_USE_STATIC_MEMORY unset", _set(environment, "GE_USE_STATIC_MEMORY", off=())),
        _one_device(job, environment),
        _cpu_binding(environment),
        _device_cores(machine),
        _other_users(),
        *_by_hand(job),
    ]


def _by_hand(job: Job) -> Iterator[Check]:
    """Name what nothing here can tell."""
    yield _made("device memory", "unknown", "enough for the model beside AOE", "not read from the device")
    if job.mode == "op":
        yield _made("order", "unknown", "subgraphs before operators, where the product has both", "not recorded")
    if isinstance(job.source, Script):
        required = "the program runs through with the right accuracy, one step of training is enough"
        yield _made("program", "unknown", required, "not run before tuning")


def _made(name: str, status: str, required: str, found: str, *, hard: bool = False) -> Check:
    return Check(name=name, status=status, required=required, found=found, hard=hard)  # type: ignore[arg-type]


def _product(job: Job, machine: Machine) -> Check:
    required = "a product that has this tuning: no subgraphs on Atlas A2 and A3, no programs on 310B, nothing on 950"
    if machine.soc is None:
        return _made("product", "unknown", required, "the chip is not known; give --soc", hard=True)
    product = product_of_soc(machine.soc)
    bad = (
        _NO_AOE.match(machine.soc)
        or (job.mode == "subgraph" and product in _NO_SUBGRAPHS)
        or (isinstance(job.source, Script) and _NO_PROGRAMS.match(machine.soc))
    )
    return _made("product", "fail" if bad else "ok", required, f"{machine.soc} ({product or 'other'})", hard=True)


def _shapes(job: Job, machine: Machine) -> Check:
    """Check the program's operators by its profile; what is in a model or a dump is AOE's to tell."""
    required = "static shapes"
    if not isinstance(job.source, Script):
        return _made("shapes", "unknown", required, "not read from the model: AOE refuses dynamic ones", hard=True)
    if machine.dynamic is None:
        return _made("shapes", "unknown", required, "no profile says; OP State needs CANN 8 and --level 1", hard=True)
    found = f"{100 * machine.dynamic:.0f} % of the kernels in the profile are dynamic"
    status = "fail" if machine.dynamic == 1 else "warn" if machine.dynamic else "ok"
    return _made("shapes", status, required, found, hard=True)


def _bank(job: Job, environment: Mapping[str, str], place: Path) -> Check:
    named = str(job.bank) if job.bank else environment.get("TUNE_BANK_PATH")
    required = "TUNE_BANK_PATH, where it is set, is a folder that can be read, written and entered"
    if not named:
        existing = next(p for p in [place, *place.parents] if p.exists())
        status = "ok" if existing.is_dir() and _can_write(existing) else "fail"
        others = set(default_places("op" if job.mode == "op" else "graph", Path.home())) - {place}
        other = f" ({min(others)} in other versions of CANN)" if len(others) == 1 else ""
        return _made("bank path", status, required, f"not set: the bank is {place}{other}", hard=True)
    path = Path(named).absolute()
    fine = path.is_dir() and os.access(path, os.R_OK | os.W_OK | os.X_OK) and _can_write(path)
    why = "" if fine else ": cannot be written" if path.is_dir() else ": no such folder"
    return _made("bank path", "ok" if fine else "fail", required, f"{path}{why}", hard=True)


def _can_write(folder: Path) -> bool:
    """Try it: root may write by permission where the file system is read-only."""
    probe = folder / f".npuperf-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def _cann(environment: Mapping[str, str]) -> Check:
    sourced = any(environment.get(name) for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"))
    found = f"CANN {cann_version(environment) or 'of unknown version'}" if sourced else "ASCEND_TOOLKIT_HOME is not set"
    advice = "" if sourced else f"; source {set_env_script(environment)}"
    return _made("CANN environment", "ok" if sourced else "warn", "set_env.sh sourced", found + advice)


def _disk() -> Check:
    home = Path.home()
    try:
        free = shutil.disk_usage(home).free
    except OSError as error:
        return _made("disk", "unknown", "20 GB free in the home", str(error))
    return _made(
        "disk", "ok" if free >= 20 * _GB else "warn", "20 GB free in the home", f"{free / _GB:.1f} GB in {home}"
    )


def _memory(job: Job, machine: Machine, environment: Mapping[str, str]) -> Check:
    free = psutil.virtual_memory().available
    least, why = 32 * _GB, "32 GB"
    if job.mode == "op" and (job.deep or any("deeper_opat" in a or a.endswith("=O1") for a in job.arguments)):
        least, why = 64 * _GB, "64 GB for deep tuning"
    if job.in_adapter:
        parallel = tuning_parallel(environment)
        if machine.model_bytes is None:
            return _made("memory", "unknown", f"the model's memory × {parallel}", "the model's memory is not known")
        least, why = machine.model_bytes * parallel, f"the model's {machine.model_bytes / _GB:.1f} GB × {parallel}"
    return _made("memory", "ok" if free >= least else "warn", why, f"{free / _GB:.1f} GB available")


def _cpus(job: Job, environment: Mapping[str, str]) -> Check:
    """CPU cores: TE and TPN are TE_PARALLEL_COMPILER and TUNING_PARALLEL_NUM."""
    have = os.cpu_count() or 1
    te, tpn = compilers(job, environment), tuning_parallel(environment)
    if job.in_adapter:
        processes = _processes(environment)
        each = te + tpn + min(have // 2, 8) + 50 if job.mode == "op" else 2 * tpn + te
        formula = "TE + TPN + min(cores/2, 8) + 50" if job.mode == "op" else "2·TPN + TE"
        need, formula = processes * each, formula if processes == 1 else f"{processes} × ({formula})"
    elif job.mode == "op":
        extra = 58 if isinstance(job.source, Dump | Script) else 50
        need, formula = te + tpn + 1 + min(have // 2, 8) + extra, f"TE + TPN + 1 + min(cores/2, 8) + {extra}"
    else:
        need, formula = 2 * tpn + te + 1, "2·TPN + TE + 1"
    required = f"{need} CPU cores ({formula}, TE {te}, TPN {tpn})"
    return _made("CPU cores", "ok" if have >= need else "warn", required, f"{have}")


def _processes(environment: Mapping[str, str]) -> int:
    """Return how many processes the program has, as far as the environment says."""
    size = environment.get("WORLD_SIZE") or environment.get("RANK_SIZE") or "1"
    return max(int(size), 1) if size.isdecimal() else 1


def compilers(job: Job, environment: Mapping[str, str]) -> int:
    """Return TE_PARALLEL_COMPILER, 8 unless set."""
    text = str(job.parallel) if job.parallel is not None else environment.get("TE_PARALLEL_COMPILER", "")
    return int(text) if text.isdecimal() and int(text) else _TE


def tuning_parallel(environment: Mapping[str, str]) -> int:
    """Return TUNING_PARALLEL_NUM of CANN's aoe.ini, 8 unless set."""
    for root in roots(environment):
        for place in ("tools/aoe/conf/aoe.ini", "conf/aoe.ini"):
            file = Path(root, place)
            if file.is_file():
                found = re.search(
                    r"^\s*TUNING_PARALLEL_NUM\s*=\s*(\d+)", file.read_text("utf-8", "replace"), re.MULTILINE
                )
                return int(found[1]) if found else _TPN
    return _TPN


def _compilers(environment: Mapping[str, str], job: Job) -> Check:
    have, te = os.cpu_count() or 1, compilers(job, environment)
    most = max(int(have * 0.8), 1)
    required = f"TE_PARALLEL_COMPILER within 1 and {min(32, most)} (80 % of the CPU cores, 32 at most)"
    return _made("compilers", "ok" if 1 <= te <= min(32, most) else "warn", required, str(te))


def _set(environment: Mapping[str, str], *names: str, off: Sequence[str] = ("false", "0")) -> list[str]:
    """Return those variables that are set to anything but ``off``."""
    return [f"{name}={environment[name]}" for name in names if environment.get(name, "") not in ("", *off)]


def _off(job: Job, name: str, required: str, found: Sequence[str]) -> Check:
    """Check variables that are set; where none is, a program may say otherwise."""
    if found:
        return _made(name, "warn", required, ", ".join(found))
    if isinstance(job.source, Script):
        return _made(name, "unknown", required, "the environment says nothing; the program may")
    return _made(name, "ok", required, "as required")


def _one_device(job: Job, environment: Mapping[str, str]) -> Check:
    required = "one device"
    size = _processes(environment)
    words = job.source.command if isinstance(job.source, Script) else ()
    many = size > 1
    launcher = next((w for w in words if Path(w).name in ("torchrun", "mpirun", "torch.distributed.run")), None)
    found = f"{size} processes" if many else f"started by {launcher}" if launcher else "one"
    if found == "one" and words:
        return _made("single device", "unknown", required, "one process is started; it may use several")
    return _made("single device", "warn" if many or launcher else "ok", required, found)


def _cpu_binding(environment: Mapping[str, str]) -> Check:
    allowed, have = len(psutil.Process().cpu_affinity()), os.cpu_count() or 1
    bound = environment.get("CPU_AFFINITY_CONF", "0") not in ("", "0")
    found = f"CPU_AFFINITY_CONF={environment.get('CPU_AFFINITY_CONF')}" if bound else f"{allowed} of {have} CPU cores"
    return _made("CPU binding", "warn" if bound or allowed < have else "ok", "not bound to some CPU cores", found)


def _device_cores(machine: Machine) -> Check:
    required = "at least as many device cores as any operator uses"
    if machine.cores is None or machine.most_blocks is None:
        return _made("device cores", "unknown", required, "needs a profile with core counts (--level 1)")
    fine = machine.most_blocks <= machine.cores
    found = f"{machine.cores}, and {machine.most_blocks} used at most"
    return _made("device cores", "ok" if fine else "warn", required, found)


def _other_users() -> Check:
    required = "nobody else tunes on this machine"
    others = list(_running_aoe())
    found = "; ".join(others[:3]) or "no other aoe runs"
    return _made("other tuning", "warn" if others else "ok", required, found)


def _running_aoe() -> Iterator[str]:
    for process in psutil.process_iter(["name", "username", "pid"]):
        if process.info["name"] == "aoe":
            yield f"aoe, process {process.info['pid']} of {process.info['username']}"

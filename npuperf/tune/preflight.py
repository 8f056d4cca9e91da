"""What must hold before tuning: every documented condition, with what is required and what was found."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from npuperf.cann import cann_version, roots, set_env_script
from npuperf.documents.tuning import Check, CheckStatus
from npuperf.errors import InputError
from npuperf.files import read_input
from npuperf.messages import Message, chain, say, say_n, series, share, size
from npuperf.model.chip import product_of_soc
from npuperf.tune.bank import read_bank
from npuperf.tune.job import Dump, Script, SingleOperators, TuningJob, described_operators
from npuperf.tune.script_options import static_memory
from npuperf.tune.store import default_places

_GIB: Final = 1 << 30
_TE, _TPN = 8, 8
#: Where the driver shows its devices.
_DEVICES: Final = Path("/dev")
#: Faults of a bank that a check names.
_FAULTS: Final = 3
#: Tuning modes by product (CANN 9.0; SEED: A2 and A3 have no subgraph tuning).
_NO_SUBGRAPHS: Final = ("Atlas A2", "Atlas A3")
_NO_AOE: Final = re.compile(r"^ascend950", re.I)
#: 200I/500 A2: offline inference only.
_NO_PROGRAMS: Final = re.compile(r"^ascend310b", re.I)


@dataclass(frozen=True, slots=True)
class TuningHost:
    """What is known of where tuning will run; None is unknown. ``dynamic``: the share of kernels of dynamic shape."""

    soc: str | None
    cores: int | None
    dynamic: float | None
    model_bytes: int | None
    most_blocks: int | None


def check(job: TuningJob, machine: TuningHost, environment: Mapping[str, str], place: Path) -> list[Check]:
    """Check everything; ``hard`` ones that fail forbid tuning, the others are recommendations.

    ``place``: where the bank will be written.
    """
    return [
        _product(job, machine),
        _shapes(job, machine),
        _bank(job, environment, place),
        *_records(job, place),
        _device(job, environment),
        _again(job, environment),
        _cann(environment),
        _disk(),
        _memory(job, machine, environment),
        _cpus(job, environment),
        _compilers(environment, job),
        _off(job, "profiling", say("off while tuning"), _set(environment, "PROFILING_MODE", "PROFILER_SAMPLECONFIG")),
        static_memory(job, environment),
        _one_device(job, environment),
        _cpu_binding(environment),
        _device_cores(machine),
        _other_users(),
        *_by_hand(job),
    ]  # fmt: skip


def _by_hand(job: TuningJob) -> Iterator[Check]:
    """Name what nothing here can tell."""
    yield _made("device memory", "unknown", say("enough for the model beside AOE"), say("not read from the device"))
    if job.mode == "op":
        required = say("subgraphs tuned before operators, where the product has both")
        yield _made("order", "unknown", required, say("not recorded"))
    if isinstance(job.source, Script):
        required = say("the program runs to the end with the right accuracy; one step of training is enough")
        yield _made("program", "unknown", required, say("not run before tuning"))


def _made(name: str, status: CheckStatus, required: Message, found: Message, *, hard: bool = False) -> Check:
    return Check(name=name, status=status, required=required, found=found, hard=hard)


def _product(job: TuningJob, machine: TuningHost) -> Check:
    required = say(
        "a product that supports this tuning: no subgraphs on Atlas A2 and A3, no programs on 310B, nothing on 950"
    )
    if machine.soc is None:
        return _made("product", "unknown", required, say("the chip is not known; give --soc"), hard=True)
    product = product_of_soc(machine.soc)
    bad = (
        _NO_AOE.match(machine.soc)
        or (job.mode == "subgraph" and product in _NO_SUBGRAPHS)
        or (isinstance(job.source, Script) and _NO_PROGRAMS.match(machine.soc))
    )
    found = say("{soc} ({product})", soc=machine.soc, product=product or say("other"))
    return _made("product", "fail" if bad else "ok", required, found, hard=True)


def _shapes(job: TuningJob, machine: TuningHost) -> Check:
    """Check the program's operators by its profile; what is in a model or a dump is AOE's to tell."""
    required = say("static shapes")
    if isinstance(job.source, SingleOperators):
        return _described_shapes(job.source, required)
    if not isinstance(job.source, Script):
        found = say("not read from the model: AOE refuses dynamic shapes")
        return _made("shapes", "unknown", required, found, hard=True)
    if machine.dynamic is None:
        found = say("no profile shows the shapes; OP State needs CANN 8 or newer and --level 1")
        return _made("shapes", "unknown", required, found, hard=True)
    found = say("{share} of the kernels in the profile have dynamic shapes", share=share(machine.dynamic))
    status: CheckStatus = "fail" if machine.dynamic == 1 else "warn" if machine.dynamic else "ok"
    return _made("shapes", status, required, found, hard=True)


def _described_shapes(source: SingleOperators, required: Message) -> Check:
    """Check the shapes that a file describes."""
    operators = described_operators(source.file)
    dynamic = [one.type for one in operators if one.dynamic]
    if dynamic:
        found = say_n("{n} of {all} operators has a dynamic shape: {types}",
                      "{n} of {all} operators have dynamic shapes: {types}",
                      len(dynamic), all=len(operators), types=series(dict.fromkeys(dynamic)))  # fmt: skip
        return _made("shapes", "fail", required, found, hard=True)
    found = say_n("{n} operator, static", "{n} operators, all static", len(operators))
    return _made("shapes", "ok", required, found, hard=True)


def _bank(job: TuningJob, environment: Mapping[str, str], place: Path) -> Check:
    named = str(job.bank) if job.bank else environment.get("TUNE_BANK_PATH")
    required = say("TUNE_BANK_PATH, where it is set, is a folder that can be read, written and entered")
    if not named:
        existing = next(p for p in [place, *place.parents] if p.exists())
        fine = existing.is_dir() and _can_write(existing)
        return _made("bank path", "ok" if fine else "fail", required, _default_bank(job, place), hard=True)
    path = Path(named).absolute()
    fine = path.is_dir() and os.access(path, os.R_OK | os.W_OK | os.X_OK) and _can_write(path)
    found = say("{path}", path=str(path))
    if not fine:
        found = say("{path}: cannot be written", path=str(path))
        if not path.is_dir():
            found = say("{path}: no such folder", path=str(path))
    return _made("bank path", "ok" if fine else "fail", required, found, hard=True)


def _records(job: TuningJob, place: Path) -> Iterator[Check]:
    """Check a bank of operators that is there already; nobody but CANN can read one of subgraphs."""
    if job.mode != "op" or not place.is_dir():
        return
    required = say("a knowledge base that CANN can read, line by line")
    bank = read_bank(place)
    refused = bank.lines_without_record()
    faults = [*refused, *bank.unread]  # the latter need not be part of it
    if faults:
        more = len(faults) - _FAULTS
        rest = say_n("{n} more file", "{n} more files", more) if more > 0 else None
        yield _made("bank content", "fail" if refused else "warn", required, chain(*faults[:_FAULTS], rest), hard=True)
    else:
        found = say_n("{n} record in {place}", "{n} records in {place}", len(bank.records), place=str(place))
        yield _made("bank content", "ok", required, found, hard=True)


def _device(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check which device AOE is told to take; how many there are is known where the driver shows them."""
    required = say("ASCEND_DEVICE_ID, where it is set, is the number of a device, from 0 on")
    named = str(job.device) if job.device is not None else environment.get("ASCEND_DEVICE_ID", "")
    if not named:
        return _made("device", "ok", required, say("not set: device 0"), hard=True)
    if not re.fullmatch(r"[0-9]{1,4}", named):
        return _made("device", "fail", required, say("ASCEND_DEVICE_ID={value}", value=named), hard=True)
    devices = len([f for f in _DEVICES.glob("davinci*") if f.name.removeprefix("davinci").isdecimal()])
    found = say_n("{number}; {n} device is seen here", "{number}; {n} devices are seen here", devices,
                  number=int(named))  # fmt: skip
    return _made("device", "warn" if 0 < devices <= int(named) else "ok", required, found, hard=True)


def _again(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check whether what the bank has is tuned again, which takes as long as the first time."""
    required = say("REPEAT_TUNE, where it is set, is True or False")
    named = environment.get("REPEAT_TUNE", "")
    if job.repeat:
        return _made("tuning again", "ok", required, say("what the knowledge base has is tuned again"))
    if named in ("", "False"):
        return _made("tuning again", "ok", required, say("only what the knowledge base does not have"))
    found = say("REPEAT_TUNE={value}", value=named)
    if named == "True":
        found = say("REPEAT_TUNE=True: what the knowledge base has is tuned again")
    return _made("tuning again", "warn", required, found)


def _default_bank(job: TuningJob, place: Path) -> Message:
    """Say where the bank is, and where it would be with another version of CANN."""
    others = set(default_places("op" if job.mode == "op" else "graph", Path.home())) - {place}
    if len(others) != 1:
        return say("not set: the knowledge base is {place}", place=str(place))
    other = str(min(others))
    return say(
        "not set: the knowledge base is {place} ({other} in other versions of CANN)", place=str(place), other=other
    )


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
    required = say("set_env.sh sourced")
    if not any(environment.get(name) for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")):
        script = set_env_script(environment)
        found = say("ASCEND_TOOLKIT_HOME is not set; source {script}", script=script)
        return _made("CANN environment", "warn", required, found)
    version = cann_version(environment)
    found = say("CANN {version}", version=version) if version else say("CANN of unknown version")
    return _made("CANN environment", "ok", required, found)


def _disk() -> Check:
    home, required = Path.home(), say("20 GiB free in the home folder")
    try:
        free = shutil.disk_usage(home).free
    except OSError as error:
        return _made("disk", "unknown", required, say("{why}", why=str(error)))
    found = say("{free} in {home}", free=size(free), home=str(home))
    return _made("disk", "ok" if free >= 20 * _GIB else "warn", required, found)


def _memory(job: TuningJob, machine: TuningHost, environment: Mapping[str, str]) -> Check:
    free = psutil.virtual_memory().available
    least, required = 32 * _GIB, say("32 GiB")
    if job.mode == "op" and (job.deep or any("deeper_opat" in a or a.endswith("=O1") for a in job.arguments)):
        least, required = 64 * _GIB, say("64 GiB for deep tuning")
    if job.in_adapter:
        parallel = tuning_parallel(environment)
        if machine.model_bytes is None:
            required = say("the model's memory × {parallel}", parallel=parallel)
            return _made("memory", "unknown", required, say("the model's memory is unknown"))
        least = machine.model_bytes * parallel
        required = say("the model's {size} × {parallel}", size=size(machine.model_bytes), parallel=parallel)
    found = say("{free} available", free=size(free))
    return _made("memory", "ok" if free >= least else "warn", required, found)


def _cpus(job: TuningJob, environment: Mapping[str, str]) -> Check:
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
    required = say("{need} CPU cores ({formula}, TE {te}, TPN {tpn})", need=need, formula=formula, te=te, tpn=tpn)
    return _made("CPU cores", "ok" if have >= need else "warn", required, say("{cores}", cores=have))


def _processes(environment: Mapping[str, str]) -> int:
    """Return how many processes the program has, as far as the environment says."""
    size = environment.get("WORLD_SIZE") or environment.get("RANK_SIZE") or "1"
    return max(int(size), 1) if size.isdecimal() and len(size) < 10 else 1


def compilers(job: TuningJob, environment: Mapping[str, str]) -> int:
    """Return TE_PARALLEL_COMPILER, 8 unless set."""
    text = str(job.parallel) if job.parallel is not None else environment.get("TE_PARALLEL_COMPILER", "")
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) else _TE


def tuning_parallel(environment: Mapping[str, str]) -> int:
    """Return TUNING_PARALLEL_NUM of CANN's aoe.ini, 8 unless set."""
    for root in roots(environment):
        for place in ("tools/aoe/conf/aoe.ini", "conf/aoe.ini"):
            file = Path(root, place)
            with suppress(InputError):
                found = re.search(rb"^\s*TUNING_PARALLEL_NUM\s*=\s*(\d{1,9})", read_input(file), re.MULTILINE)
                return int(found[1]) if found else _TPN
    return _TPN


def _compilers(environment: Mapping[str, str], job: TuningJob) -> Check:
    have, te = os.cpu_count() or 1, compilers(job, environment)
    most = min(32, max(int(have * 0.8), 1))
    required = say("TE_PARALLEL_COMPILER between 1 and {most} (80 % of the CPU cores, 32 at most)", most=most)
    return _made("compilers", "ok" if 1 <= te <= most else "warn", required, say("{compilers}", compilers=te))


def _set(environment: Mapping[str, str], *names: str) -> list[str]:
    """Return those variables that are set to anything but off."""
    return [f"{name}={environment[name]}" for name in names if environment.get(name, "") not in ("", "false", "0")]


def _off(job: TuningJob, name: str, required: Message, found: Sequence[str]) -> Check:
    """Check variables that are set; where none is, a program may say otherwise."""
    if found:
        return _made(name, "warn", required, say("{variables}", variables=series(found)))
    if isinstance(job.source, Script):
        return _made(name, "unknown", required, say("not set in the environment; the program may set it"))
    return _made(name, "ok", required, say("as required"))


#: Programs that start one process per device.
_LAUNCHERS: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "mpirun", "mpiexec", "horovodrun",
                     "accelerate", "deepspeed", "msrun")  # fmt: skip


def _one_device(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check that a program is one process: AOE does not tune in several. A model is tuned by one process, aoe."""
    required = say("a program of one process on one device")
    count = _processes(environment)
    words = job.source.command if isinstance(job.source, Script) else ()
    status: CheckStatus = "fail" if words else "warn"
    launcher = next((w for w in words if Path(w).name in _LAUNCHERS), None)
    if count > 1:
        found = say_n("the environment says {n} process", "the environment says {n} processes", count)
        return _made("single device", status, required, found, hard=True)
    if launcher:
        return _made("single device", status, required, say("started by {launcher}", launcher=launcher), hard=True)
    if words:
        found = say("one process is started; it may start others")
        return _made("single device", "unknown", required, found, hard=True)
    return _made("single device", "ok", required, say("one"), hard=True)


def _cpu_binding(environment: Mapping[str, str]) -> Check:
    required = say("not bound to a part of the CPU cores")
    conf = environment.get("CPU_AFFINITY_CONF", "0")
    if conf not in ("", "0"):
        return _made("CPU binding", "warn", required, say("CPU_AFFINITY_CONF={value}", value=conf))
    allowed, have = len(psutil.Process().cpu_affinity()), os.cpu_count() or 1
    found = say("{allowed} of {have} CPU cores", allowed=allowed, have=have)
    return _made("CPU binding", "warn" if allowed < have else "ok", required, found)


def _device_cores(machine: TuningHost) -> Check:
    required = say("at least as many device cores as any operator uses")
    if machine.cores is None or machine.most_blocks is None:
        found = say("needs a profile with core counts (--level 1)")
        return _made("device cores", "unknown", required, found)
    found = say("{cores}, and {used} used at most", cores=machine.cores, used=machine.most_blocks)
    return _made("device cores", "ok" if machine.most_blocks <= machine.cores else "warn", required, found)


def _other_users() -> Check:
    required = say("nobody else is tuning on this machine")
    others = [
        say("aoe, process {pid} of {user}", pid=process.info["pid"], user=process.info["username"])
        for process in psutil.process_iter(["name", "username", "pid"])
        if process.info["name"] == "aoe"
    ]
    if not others:
        return _made("other tuning", "ok", required, say("no other aoe is seen here"))
    return _made("other tuning", "warn", required, chain(*others[:3]))

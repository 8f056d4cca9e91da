"""What must hold before tuning: every documented condition, with what is required and what was found."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from npuperf.base.cann import cann_version, roots, set_env_script
from npuperf.base.errors import InputError
from npuperf.base.files import begun_in, open_input, read_input
from npuperf.base.messages import Message, chain, say, say_n, series, share, size
from npuperf.base.notes import read_json
from npuperf.model.chip import product_of_soc
from npuperf.model.tuning import Check, CheckStatus
from npuperf.tune.bank import default_places, read_bank
from npuperf.tune.request import Dump, Script, SingleOperators, TuningJob

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
#: All ways to write it: parameter_map["static_memory_policy"].i = 2, memory_config.static_memory_policy = 2,
#: NPURunConfig(static_memory_policy=2), {"ge.exec.staticMemoryPolicy": "2"}; comments end the line before.
_POLICY: Final = re.compile(
    r"""^[^#\n]*?(?:static_memory_policy|staticMemoryPolicy)["']?\]?(?:\.[is])?\s*[=:]\s*(?P<value>[^\s,)}#][^,)}#\n]*)""",
    re.MULTILINE,
)
#: How much of a program's text is read.
_LARGEST: Final = 1 << 22
#: Programs that start one process per device.
_LAUNCHERS: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "mpirun", "mpiexec", "horovodrun",
                     "accelerate", "deepspeed", "msrun")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TuningHost:
    """What is known of where tuning will run; None is unknown.

    ``dynamic``: the share of kernels of dynamic shape, ``precompiled`` of those that come with CANN (aclnn).
    """

    soc: str | None
    cores: int | None
    dynamic: float | None
    model_bytes: int | None
    most_blocks: int | None
    precompiled: float | None = None


def check(job: TuningJob, machine: TuningHost, environment: Mapping[str, str], place: Path) -> Iterator[Check]:
    """Check everything; ``hard`` ones that fail forbid tuning, the others are recommendations.

    ``place``: where the bank will be written.
    """
    yield _product(job, machine)
    yield _shapes(job, machine)
    yield from _bank(job, environment, place)
    yield from _settings(job, environment)
    yield from _resources(job, machine, environment)
    yield _profiling(job, environment)
    yield static_memory(job, environment)
    yield _one_device(job, environment)
    yield from _rest(machine, environment)
    # What nothing here can tell:
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


_UNKNOWN: Final[CheckStatus] = "unknown"


def _shapes(job: TuningJob, machine: TuningHost) -> Check:
    """Check described operators by their file and a program's by its profile; what is in a model or a dump is AOE's
    to tell.
    """
    status, required = _UNKNOWN, say("static shapes")
    if isinstance(job.source, SingleOperators):
        operators = described_operators(job.source.file)
        dynamic = [one.type for one in operators if one.dynamic]
        status = "fail" if dynamic else "ok"
        found = say_n("{n} operator, static", "{n} operators, all static", len(operators))
        if dynamic:
            found = say_n("{n} of {all} operators has a dynamic shape: {types}",
                          "{n} of {all} operators have dynamic shapes: {types}",
                          len(dynamic), all=len(operators), types=series(dict.fromkeys(dynamic)))  # fmt: skip
    elif isinstance(job.source, Script) and not job.source.adapter and machine.precompiled:
        # Which are called dynamic, whatever their shapes are: what speaks against them is another thing.
        status = "fail" if machine.precompiled == 1 else "warn"
        found = say("{share} of the kernels in the profile are precompiled (aclnn), which torch_npu never dumps",
                    share=share(machine.precompiled))  # fmt: skip
        required = say("operators that are compiled: export the model and give --model FILE.onnx or .air")
    elif not isinstance(job.source, Script):
        found = say("not read from the model: AOE refuses dynamic shapes")
    elif machine.dynamic is None:
        found = say("no profile shows the shapes; OP State needs CANN 8 or newer and --level 1")
    else:
        status = "fail" if machine.dynamic == 1 else "warn" if machine.dynamic else "ok"
        found = say("{share} of the kernels in the profile have dynamic shapes", share=share(machine.dynamic))
    return _made("shapes", status, required, found, hard=True)


@dataclass(frozen=True, slots=True)
class DescribedOperator:
    """An operator as a file for --singleop describes it; ``dynamic``: a size is known only at run time."""

    type: str
    dynamic: bool


def described_operators(file: Path) -> list[DescribedOperator]:
    """Return what a file for --singleop describes: a list of operators with ``op``, or one of them.

    Raises InputError where it describes none.
    """
    found = read_json(file)
    operators = found if isinstance(found, list) else [found]
    if not operators or not all(isinstance(one, dict) and isinstance(one.get("op"), str) for one in operators):
        what = say("--singleop {file}: not a list of operators, each with its type as op", file=str(file))
        operand = '{"format": "ND", "shape": [8, 16], "type": "float16"}'
        example = f'{{"op": "Add", "input_desc": [{operand}, …], "output_desc": […]}}'
        raise InputError(what, hint=say("for example [{example}]", example=example))

    described = []
    for one in operators:
        listed = [one.get(key) for key in ("input_desc", "output_desc")]
        operands = [o for part in listed if isinstance(part, list) for o in part if isinstance(o, dict)]
        shapes = [shape for o in operands if isinstance(shape := o.get("shape"), list)]
        sizes = [size for shape in shapes for size in shape if isinstance(size, int)]
        described.append(DescribedOperator(one["op"], any(size < 0 for size in sizes)))
    return described


def _bank(job: TuningJob, environment: Mapping[str, str], place: Path) -> Iterator[Check]:
    """Check where the bank is and, of operators, what is there already; nobody but CANN can read one of subgraphs."""
    named = str(job.bank) if job.bank else environment.get("TUNE_BANK_PATH")
    if named:
        path = Path(named).absolute()
        fine = path.is_dir() and os.access(path, os.R_OK | os.W_OK | os.X_OK) and _can_write(path)
        found = say("{path}", path=str(path))
        if not path.is_dir():
            found = say("{path}: no such folder", path=str(path))
        elif not fine:
            found = say("{path}: cannot be written", path=str(path))
    else:
        existing = next(p for p in [place, *place.parents] if p.exists())
        fine = existing.is_dir() and _can_write(existing)
        others = set(default_places("op" if job.mode == "op" else "graph", Path.home())) - {place}
        found = say("not set: the knowledge base is {place}", place=str(place))
        if len(others) == 1:
            found = say("not set: the knowledge base is {place} ({other} in other versions of CANN)",
                        place=str(place), other=str(min(others)))  # fmt: skip
    required = say("TUNE_BANK_PATH, where it is set, is a folder that can be read, written and entered")
    yield _made("bank path", "ok" if fine else "fail", required, found, hard=True)
    if job.mode != "op" or not place.is_dir():
        return
    bank = read_bank(place)
    refused = bank.lines_without_record()
    faults = [*refused, *bank.unread]  # the latter need not be part of it
    status: CheckStatus = "fail" if refused else "warn" if faults else "ok"
    found = say_n("{n} record in {place}", "{n} records in {place}", len(bank.records), place=str(place))
    if faults:
        more = len(faults) - _FAULTS
        found = chain(*faults[:_FAULTS], say_n("{n} more file", "{n} more files", more) if more > 0 else None)
    yield _made("bank content", status, say("a knowledge base that CANN can read, line by line"), found, hard=True)


def _can_write(folder: Path) -> bool:
    """Try it: root may write by permission where the file system is read-only. A full disk is told when it is met."""
    try:
        with begun_in(folder):
            return True
    except OSError as error:
        return error.errno == errno.ENOSPC


def _settings(job: TuningJob, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check which device AOE is told to take, whether it tunes again what the bank has, and CANN's own variables."""
    named = environment.get("ASCEND_DEVICE_ID", "") if job.device is None else str(job.device)
    status: CheckStatus = "ok"
    found = say("not set: device 0")
    if named and not re.fullmatch(r"[0-9]{1,4}", named):
        status, found = "fail", say("ASCEND_DEVICE_ID={value}", value=named)
    elif named:  # how many there are is known where the driver shows them
        devices = len([f for f in _DEVICES.glob("davinci*") if f.name.removeprefix("davinci").isdecimal()])
        status = "warn" if 0 < devices <= int(named) else "ok"
        found = say_n("{number}; {n} device is seen here", "{number}; {n} devices are seen here", devices,
                      number=int(named))  # fmt: skip
    required = say("ASCEND_DEVICE_ID, where it is set, is the number of a device, from 0 on")
    yield _made("device", status, required, found, hard=True)

    named, status = environment.get("REPEAT_TUNE", ""), "ok"
    if job.repeat:
        found = say("what the knowledge base has is tuned again")
    elif named in ("", "False"):
        found = say("only what the knowledge base does not have")
    else:
        status, found = "warn", say("REPEAT_TUNE={value}", value=named)
        if named == "True":  # which takes as long as the first time
            found = say("REPEAT_TUNE=True: what the knowledge base has is tuned again")
    yield _made("tuning again", status, say("REPEAT_TUNE, where it is set, is True or False"), found)

    status, version = "ok", cann_version(environment)
    found = say("CANN {version}", version=version) if version else say("CANN of unknown version")
    if not any(environment.get(name) for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")):
        status = "warn"
        found = say("ASCEND_TOOLKIT_HOME is not set; source {script}", script=set_env_script(environment))
    yield _made("CANN environment", status, say("set_env.sh sourced"), found)


def _resources(job: TuningJob, machine: TuningHost, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check disk, memory and CPU cores; TE and TPN are TE_PARALLEL_COMPILER and TUNING_PARALLEL_NUM."""
    home, required = Path.home(), say("20 GiB free in the home folder")
    try:
        free = shutil.disk_usage(home).free
    except OSError as error:
        yield _made("disk", "unknown", required, say("{why}", why=str(error)))
    else:
        found = say("{free} in {home}", free=size(free), home=str(home))
        yield _made("disk", "ok" if free >= 20 * _GIB else "warn", required, found)

    of_operators, tpn, free = job.mode == "op", tuning_parallel(environment), psutil.virtual_memory().available
    least, required = 32 * _GIB, say("32 GiB")
    if of_operators and (job.deep or any("deeper_opat" in a or a.endswith("=O1") for a in job.arguments)):
        least, required = 64 * _GIB, say("64 GiB for deep tuning")
    status: CheckStatus = "ok" if free >= least else "warn"
    found = say("{free} available", free=size(free))
    if job.in_adapter and machine.model_bytes is None:
        status, found = "unknown", say("the model's memory is unknown")
        required = say("the model's memory × {parallel}", parallel=tpn)
    elif job.in_adapter and machine.model_bytes is not None:
        status = "ok" if free >= machine.model_bytes * tpn else "warn"
        required = say("the model's {size} × {parallel}", size=size(machine.model_bytes), parallel=tpn)
    yield _made("memory", status, required, found)

    text = str(job.parallel) if job.parallel is not None else environment.get("TE_PARALLEL_COMPILER", "")
    te = int(text) if text.isdecimal() and len(text) < 10 and int(text) else _TE
    have = os.cpu_count() or 1
    if job.in_adapter:
        processes = _processes(environment)
        each = te + tpn + min(have // 2, 8) + 50 if of_operators else 2 * tpn + te
        formula = "TE + TPN + min(cores/2, 8) + 50" if of_operators else "2·TPN + TE"
        need, formula = processes * each, formula if processes == 1 else f"{processes} × ({formula})"
    elif of_operators:
        extra = 58 if isinstance(job.source, Dump | Script) else 50
        need, formula = te + tpn + 1 + min(have // 2, 8) + extra, f"TE + TPN + 1 + min(cores/2, 8) + {extra}"
    else:
        need, formula = 2 * tpn + te + 1, "2·TPN + TE + 1"
    required = say("{need} CPU cores ({formula}, TE {te}, TPN {tpn})", need=need, formula=formula, te=te, tpn=tpn)
    yield _made("CPU cores", "ok" if have >= need else "warn", required, say("{cores}", cores=have))
    most = min(32, max(int(have * 0.8), 1))
    required = say("TE_PARALLEL_COMPILER between 1 and {most} (80 % of the CPU cores, 32 at most)", most=most)
    yield _made("compilers", "ok" if 1 <= te <= most else "warn", required, say("{compilers}", compilers=te))


def _processes(environment: Mapping[str, str]) -> int:
    """Return how many processes the program has, as far as the environment says."""
    size = environment.get("WORLD_SIZE") or environment.get("RANK_SIZE") or "1"
    return max(int(size), 1) if size.isdecimal() and len(size) < 10 else 1


def tuning_parallel(environment: Mapping[str, str]) -> int:
    """Return TUNING_PARALLEL_NUM of CANN's aoe.ini, 8 unless set."""
    for root in roots(environment):
        for place in ("tools/aoe/conf/aoe.ini", "conf/aoe.ini"):
            with suppress(InputError):
                text = read_input(Path(root, place))
                found = re.search(rb"^\s*TUNING_PARALLEL_NUM\s*=\s*(\d{1,9})", text, re.MULTILINE)
                return int(found[1]) if found else _TPN
    return _TPN


def _profiling(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check variables that switch a profiler on; where none is set, a program may do it otherwise."""
    names = ("PROFILING_MODE", "PROFILER_SAMPLECONFIG")
    there = [f"{name}={environment[name]}" for name in names if environment.get(name, "") not in ("", "false", "0")]
    status: CheckStatus = "ok"
    found = say("as required")
    if there:
        status, found = "warn", say("{variables}", variables=series(there))
    elif isinstance(job.source, Script):
        status, found = "unknown", say("not set in the environment; the program may set it")
    return _made("profiling", status, say("off while tuning"), found)


def static_memory(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check that memory is not allocated statically, by the environment and by what the program itself sets."""
    status, found = _memory_policy(job, environment)
    required = say("static_memory_policy 0, which is its default, and GE_USE_STATIC_MEMORY unset")
    return _made("static memory", status, required, found)


def _memory_policy(job: TuningJob, environment: Mapping[str, str]) -> tuple[CheckStatus, Message]:
    variable = environment.get("GE_USE_STATIC_MEMORY")
    if variable:
        return "warn", say("GE_USE_STATIC_MEMORY={value}", value=variable)
    if not isinstance(job.source, Script):
        return "ok", say("as required")
    names, values, places = [], [], []
    for word in dict.fromkeys(job.source.command):
        file = (job.source.folder or Path()) / word
        if not word.endswith(".py"):
            continue
        with suppress(InputError), open_input(file) as opened:
            text = opened.read(_LARGEST).decode("utf-8", "replace")
            names.append(file.name)
            for match in _POLICY.finditer(text):
                value, line = match["value"].strip(), text.count("\n", 0, match.start("value")) + 1
                values.append(value.strip("\"'"))
                places.append(say("{file}:{line} sets it to {value}", file=file.name, line=line, value=value))
    if not names:
        return "unknown", say("the program's text was not found among the words of its command")
    if not values:
        return "unknown", say("not set in {files}; modules that it imports were not read", files=series(names))
    told = say("{places}", places=series(places))
    if any(value != "0" and value.isdecimal() for value in values):
        return "warn", told
    if all(value == "0" for value in values):
        return "ok", told
    return "unknown", say("set to what only the run can tell: {places}", places=told)


def _one_device(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check that a program is one process: AOE does not tune in several. A model is tuned by one process, aoe."""
    count = _processes(environment)
    words = job.source.command if isinstance(job.source, Script) else ()
    status: CheckStatus = "fail" if words else "warn"
    launcher = next((w for w in words if Path(w).name in _LAUNCHERS), None)
    if count > 1:
        found = say_n("the environment says {n} process", "the environment says {n} processes", count)
    elif launcher:
        found = say("started by {launcher}", launcher=launcher)
    elif words:
        status, found = "unknown", say("one process is started; it may start others")
    else:
        status, found = "ok", say("one")
    return _made("single device", status, say("a program of one process on one device"), found, hard=True)


def _rest(machine: TuningHost, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check that the host's cores are all ours, that the device has enough of its own, and that nobody else tunes."""
    allowed, have = len(psutil.Process().cpu_affinity()), os.cpu_count() or 1
    status: CheckStatus = "warn" if allowed < have else "ok"
    found = say("{allowed} of {have} CPU cores", allowed=allowed, have=have)
    binding = environment.get("CPU_AFFINITY_CONF", "0")
    if binding not in ("", "0"):
        status, found = "warn", say("CPU_AFFINITY_CONF={value}", value=binding)
    yield _made("CPU binding", status, say("not bound to a part of the CPU cores"), found)

    if machine.cores is None or machine.most_blocks is None:
        status, found = "unknown", say("needs a profile with core counts (--level 1)")
    else:
        status = "ok" if machine.most_blocks <= machine.cores else "warn"
        found = say("{cores}, and {used} used at most", cores=machine.cores, used=machine.most_blocks)
    yield _made("device cores", status, say("at least as many device cores as any operator uses"), found)

    others = [
        say("aoe, process {pid} of {user}", pid=process.info["pid"], user=process.info["username"])
        for process in psutil.process_iter(["name", "username", "pid"])
        if process.info["name"] == "aoe"
    ]
    found = chain(*others[:3]) if others else say("no other aoe is seen here")
    yield _made("other tuning", "warn" if others else "ok", say("nobody else is tuning on this machine"), found)

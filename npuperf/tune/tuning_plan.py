"""Work out what to do before anything is done: the job, its programs, the checks, where the bank is.

What AOE is given, as command and environment: the vendor's AOE guides.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.base.cann import cann_version, find_program, set_env_script
from npuperf.base.errors import ExitCode, InputError, UsageError, unreadable
from npuperf.base.escape import for_shell
from npuperf.base.files import read_input
from npuperf.base.messages import Message, Parameter, chain, say, series, share
from npuperf.model.document import Problem
from npuperf.model.tuning import Check, PlannedProgram, TunePlan
from npuperf.tune import bank, preflight
from npuperf.tune.request import Dump, JobMode, ModelFile, Script, SingleOperators, Source, TuneRequest, TuningJob
from npuperf.tune.savings import Usage
from npuperf.tune.state import State, is_ours, not_ours, read_state, recorded, recorded_by_us, survivor, unfinished_run

JOB_TYPE: Final[dict[JobMode, str]] = {"op": "2", "subgraph": "1"}
#: ``--framework`` of aoe by the model's suffix.
_FRAMEWORKS: Final = {".prototxt": "0", ".air": "1", ".pb": "3", ".onnx": "5"}
_BINARIES: Final = ("tools/aoe/bin/aoe", "bin/aoe", "compiler/bin/aoe")
#: A script that says one of these runs TensorFlow, whose adapter tunes by itself.
_TENSORFLOW: Final = re.compile(
    r"^\s*(?:import|from)\s+(?:tensorflow|npu_bridge|npu_device|tf_adapter)\w*", re.MULTILINE
)
#: Operator types that a sentence names.
_NAMED: Final = 3
#: Why a dump may be empty.
NO_DUMP: Final = say(
    "torch_npu dumps the operators that it compiles (aclop); on Atlas A2 and A3 nearly all "
    "operators run precompiled (aclnn), so this is normal there"
)
#: What to do then.
NO_DUMP_HINT: Final = say(
    "tune an exported model (--model FILE.onnx or .air); a graph of torchair (max-autotune, static) is tuned by its "
    'own config.aoe_config.aoe_mode = "2", and only its log says how that went (Success to run aoe_tuning)'
)
#: Runs a Python program after asking torch_npu to dump the operators that it compiles.
_DUMP: Final = Path(__file__).resolve().parent.parent / "record" / "agent" / "dump_operators.py"


@dataclass(frozen=True, slots=True)
class TuningProgram:
    """One program of a job: what is run, what its environment has in addition, where."""

    title: Message
    argv: tuple[str, ...]
    added: Mapping[str, str]
    folder: Path

    def shown(self, quote: Callable[[str], str] = for_shell) -> str:
        """Render it for a shell, each word by ``quote``."""
        words = [f"{name}={quote(value)}" for name, value in self.added.items()]
        return f"cd {quote(str(self.folder))} && {' '.join([*words, *map(quote, self.argv)])}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done: what a dry run shows of it, and what only carrying it out needs.

    ``doubt``: why it is not run without a question, None where everything in it was said by this user.
    """

    document: TunePlan
    job: TuningJob
    programs: tuple[TuningProgram, ...]
    soc: str | None
    usage: Usage | None
    doubt: Message | None = None

    @property
    def folder(self) -> Path:
        """Where results and logs go."""
        return Path(self.document.folder)

    def script(self) -> str:
        """Return a shell script that does the same again."""
        lines = ["#!/bin/sh", "# What npuperf ran; CANN's set_env.sh must be sourced.", "set -eu"]
        if self.document.ops:
            lines += [f"cat > {shlex.quote(str(self.folder / 'tune_ops.cfg'))} <<'END'"]
            lines += [self.document.ops.rstrip(), "END"]
        # Spelled out as for_shell does, sh would not know it.
        return "\n".join([*lines, *(f"({program.shown(shlex.quote)})" for program in self.programs)]) + "\n"


def draw_plan(request: TuneRequest, usage: Usage | None, environment: Mapping[str, str]) -> Plan:
    """Work out what to do; nothing is made. Raises UsageError or InputError for what cannot be done."""
    begun, job = unfinished_run(request.run, request.mode) if request.resume else (None, None)
    bank_place = request.bank.absolute() if request.bank else None
    if job is None or request.names_source:
        mode, source, (types, names) = request.job_mode, find_source(request), _operators(request, usage)
        job = TuningJob(
            mode=mode,
            source=source,
            types=types,
            names=names,
            device=request.device,
            bank=bank_place,
            parallel=request.parallel,
            repeat=request.repeat,
            deep=request.deep,
            arguments=request.aoe_arg,
        )
    elif bank_place:
        job = replace(job, bank=bank_place)
    if begun is None:  # a folder of its own for a run that begins now
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03d}"
        free = (request.run / "tune" / (f"{stamp}-{n}" if n else stamp) for n in itertools.count())
        folder, state = next(path for path in free if not path.exists()).absolute(), State()
    else:
        folder, state = begun.absolute(), read_state(begun)
    aoe, missing = _find_aoe(job, folder, state, environment, dry=request.dry_run)
    model = job.source.file if isinstance(job.source, ModelFile) else None
    try:
        model_bytes = model.stat().st_size if model else None
    except OSError as error:  # gone since the run began
        raise unreadable(model, error) from error
    machine = preflight.TuningHost(
        soc=request.soc or state.soc or (usage.soc if usage else None) or recorded(request.run).soc,
        cores=usage.cores if usage else None,
        dynamic=usage.dynamic if usage else None,
        model_bytes=model_bytes,
        most_blocks=usage.most_blocks if usage else None,
        precompiled=usage.part_precompiled if usage else None,
    )
    place = _place(job, folder, state, environment)
    found = tuple(programs(job, folder, aoe, environment, resume=request.resume))
    by_profile = request.top_given and usage is not None and job.types and not request.ops
    chosen = (_choice(job.types, usage),) if by_profile and usage is not None else ()
    checks = (*missing, *chosen, *preflight.check(job, machine, environment, place))
    wanted = {"tune_ops_name": [*job.names], "tune_ops_type": [*job.types]}
    kept = {key: names for key, names in wanted.items() if names}
    document = TunePlan(
        problem=None if request.force else _refusal(checks),
        folder=str(folder),
        place=str(place),
        ops=json.dumps(kept, indent=1) + "\n" if kept else None,
        programs=tuple(PlannedProgram(title=p.title, shell=p.shown()) for p in found),
        checks=checks,
        operators=tuple(usage.candidates(job.types, dumped=_is_dumped(job.source)))
        if usage and job.mode == "op"
        else (),
    )
    # Programs that come from a folder, which may be a stranger's, need a person's consent.
    known, where = (is_ours(begun, state), begun) if begun else (recorded_by_us(request.run), request.run)
    doubt = None
    if not known and (begun or not request.names_source):
        doubt = not_ours(where, chain(*(say("{command}", command=p.shell) for p in document.programs), by="\n  "))
    return Plan(document, job, found, machine.soc, usage, doubt)


def _is_dumped(source: Source) -> bool:
    """Tell whether operators are tuned that torch_npu compiles while a program runs."""
    return isinstance(source, Dump) or (isinstance(source, Script) and not source.adapter)


def _refusal(checks: Sequence[Check]) -> Problem | None:
    """Say which hard conditions fail, None where none does."""
    failed = [c for c in checks if c.hard and c.status == "fail"]
    if not failed:
        return None
    faults = chain(*(say("{name}: {found}", name=c.name, found=c.found) for c in failed))
    hint = say("required: {required} (--force tunes anyway)", required=chain(*(c.required for c in failed)))
    return Problem(what=say("cannot tune: {faults}", faults=faults), hint=hint, exit_code=ExitCode.USAGE)


def find_source(request: TuneRequest) -> Source:
    """Choose what to tune: a model, a dump, operators that a file describes, a program, or the program that a run
    directory recorded, in this order.

    Raises UsageError or InputError when it is not there or there is none.
    """
    model, weight, dump = request.model, request.weight, request.dump
    if model is not None:
        if not model.is_file():
            raise InputError(say("--model {model}: no such file", model=str(model)))
        if model.suffix not in _FRAMEWORKS:
            hint = say("AOE takes {suffixes}", suffixes=series(_FRAMEWORKS))
            raise UsageError(say("--model {model}: unknown kind of model", model=str(model)), hint=hint)
        if model.suffix == ".prototxt" and weight is None:
            what = say("--model {model}: Caffe keeps its weights in another file", model=str(model))
            raise UsageError(what, hint=say("add --weight FILE.caffemodel"))
        if weight is not None and not weight.is_file():
            raise InputError(say("--weight {weight}: no such file", weight=str(weight)))
        return ModelFile(model.absolute(), weight.absolute() if weight else None)
    if dump is not None:
        if not dump.is_dir():
            raise InputError(say("--dump {dump}: no such folder", dump=str(dump)))
        if not dumped(dump):
            raise InputError(say("--dump {dump}: empty: {why}", dump=str(dump), why=NO_DUMP), hint=NO_DUMP_HINT)
        return Dump(dump.absolute())
    if request.singleop is not None:
        preflight.described_operators(request.singleop)  # one without any is refused here, and not by AOE
        return SingleOperators(request.singleop.absolute())
    words = request.command or recorded(request.run).command
    if not words:
        hint = say(
            "give --model FILE, --dump FOLDER, --singleop FILE, or -- python train.py; or run npuperf profile train.py "
            "first"
        )
        raise UsageError(say("nothing to tune"), hint=hint)
    # The first script of a command tells whether TensorFlow's adapter runs it.
    script = next((Path(w) for w in words if w.endswith(".py") and Path(w).is_file()), None)
    adapter = bool(script and _TENSORFLOW.search(read_input(script).decode("utf-8", "replace")))
    return Script(tuple(words), adapter, Path.cwd())


def dumped(dump: Path) -> bool:
    """Tell whether anything lies in a dump."""
    return dump.is_dir() and any(f.is_file() for f in dump.rglob("*"))


def _operators(request: TuneRequest, usage: Usage | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types and the names of the operators to tune; neither for all."""
    if request.ops and request.mode != "op":
        raise UsageError(say("--ops: subgraphs are not chosen by operators"), hint=say("--mode op"))
    if request.ops:
        wanted = [word.strip() for word in request.ops.split(",") if word.strip()]
        names = [w for w in wanted if "/" in w or w.split("_")[-1].isdigit()]  # GE numbers operators' names
        return tuple(w for w in wanted if w not in names), tuple(names)
    unfit = usage is None and "top" in request.by_recipe  # recipes are for runs with and without a profile
    if not request.top_given or request.mode != "op" or unfit:
        return (), ()
    if usage is None:
        what = say("--top {top}: no profile in {run} says which operators matter",
                   top=request.top, run=str(request.run))  # fmt: skip
        raise UsageError(what, hint=say("npuperf profile records one; or name operators with --ops"))
    return _worth_tuning(usage, request.top), ()


def _worth_tuning(usage: Usage, top: int) -> tuple[str, ...]:
    """Return the operator types of which tuning can win most. Raises UsageError where that shortens no step.

    What can be won ends at their roofs, where these are known, else all their time counts; and no more than the replay
    says, or where it abstains in phases that neither the host nor communication limits.
    """
    from npuperf.advise import load_thresholds

    busiest, worth, won = usage.busiest(), usage.worth, usage.at_most()
    hint = say("npuperf analyze says what limits the step; --ops tunes anyway")
    if not busiest:
        what = say("no operator runs in compute-bound time: tuning would not shorten the step")
        raise UsageError(what, hint=hint)
    chosen = list(won)[:top]
    if not worth.each:
        return tuple(chosen)
    saved = min(worth.together, sum(won[t] for t in chosen))
    least = load_thresholds({}).compare_ratio  # what no verification could tell from the same
    if saved < least * usage.step_ns:
        names, time = series((chosen or busiest)[:_NAMED]), share(saved / usage.step_ns)
        if any(t in usage.winnable for t in chosen):
            what = say("tuning would not shorten the step by {least}: replayed with the operators that could win most "
                       "({types}) as fast as the chip can run them, it is {saved} shorter at most",
                       least=share(least), types=names, saved=time)  # fmt: skip
        else:
            what = say("tuning would not shorten the step by {least}: replayed with no time in the operators that have "
                       "most ({types}), it is {saved} shorter",
                       least=share(least), types=names, saved=time)  # fmt: skip
        raise UsageError(what, hint=hint)
    return tuple(chosen)


def _choice(types: Sequence[str], usage: Usage) -> Check:
    """Say why these operators were chosen."""
    required, worth, won = say("operators whose time the step feels"), usage.worth, usage.at_most()
    roofed = [t for t in types if t in usage.winnable]
    if worth.reason is not None or not worth.each:
        why = worth.reason or say("the replay gives no figures")
        if roofed:
            found = say("chosen by what they could win up to their roofs, as nothing could be replayed: {why}", why=why)
        else:
            found = say("chosen by their time alone, as nothing could be replayed: {why}", why=why)
        return Check(name="operators", status="warn", required=required, found=found, hard=False)

    def saved(some: Sequence[str]) -> Parameter:
        return series(say("{name} {share}", name=t, share=share(won.get(t, 0) / usage.step_ns)) for t in some)

    rest = [t for t in types if t not in usage.winnable]
    found = chain(
        say("as fast as the chip can run them the step is shorter by at most: {saved}", saved=saved(roofed))
        if roofed else None,
        say("without any time in them the step is shorter by at most: {saved}", saved=saved(rest)) if rest else None,
    )  # fmt: skip
    return Check(name="operators", status="ok", required=required, found=found, hard=False)


def _find_aoe(
    job: TuningJob, folder: Path, state: State, environment: Mapping[str, str], *, dry: bool
) -> tuple[str, tuple[Check, ...]]:
    """Find aoe, which may be missing in a dry run (a check says so) and where it runs already.

    Raises InputError with what to source.
    """
    found = None if job.in_adapter else find_program("aoe", _BINARIES, environment)
    if job.in_adapter or found:
        return str(found or "aoe"), ()
    what = say("aoe: not found on PATH or in CANN")
    hint = say("source {script}", script=set_env_script(environment))
    if dry:
        required = say("CANN's aoe")
        return "aoe", (Check(name="aoe", status="fail", required=required, found=chain(what, hint), hard=True),)
    dumping = isinstance(job.source, Script) and not state.step
    if dumping or not survivor(folder):
        raise InputError(what, hint=hint)
    return "aoe", ()


def _place(job: TuningJob, folder: Path, state: State, environment: Mapping[str, str]) -> Path:
    """Return where the bank is. Raises UsageError where it is another than the run began with."""
    kind = "op" if job.mode == "op" else "graph"
    banks = {**environment, **_absolute_banks(environment)}
    place = bank.winning_place(kind, job.bank, banks, Path.home(), cann_version(environment))
    if state.place and Path(state.place) != place:
        begun = state.place
        what = say("{folder}: was started with the knowledge base {begun}, but now it is {place}",
                   folder=str(folder), begun=begun, place=str(place))  # fmt: skip
        hint = say("use --bank {begun}, or the environment that it was started in; without --resume a new run starts",
                   begun=begun)  # fmt: skip
        raise UsageError(what, hint=hint)
    return place


def _absolute_banks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return where AOE keeps banks, as absolute paths: it runs in another folder than we."""
    named = {name: environment.get(name) for name in ("ASCEND_CACHE_PATH", "TUNE_BANK_PATH")}
    return {name: str(Path(path).absolute()) for name, path in named.items() if path}


def programs(
    job: TuningJob, folder: Path, aoe: str, environment: Mapping[str, str] | None = None, *, resume: bool = False
) -> list[TuningProgram]:
    """Return the programs of a job, in order; ``folder`` is where results and AOE's work space go.

    Raises UsageError for what TensorFlow's adapter cannot be told from outside.
    """
    source = job.source
    if isinstance(source, SingleOperators) and job.mode != "op":
        raise UsageError(say("--singleop: operators alone have no subgraphs"), hint=say("--mode op"))
    added = {"ASCEND_WORK_PATH": str(folder), **_absolute_banks(environment or {})}
    if job.bank:
        added["TUNE_BANK_PATH"] = str(job.bank)
    if job.device is not None:
        added["ASCEND_DEVICE_ID"] = str(job.device)
    if job.parallel is not None:
        added["TE_PARALLEL_COMPILER"] = str(job.parallel)
    if job.repeat:
        added["REPEAT_TUNE"] = "True"
    if not isinstance(source, Script):
        return [TuningProgram(say("tune"), _aoe(job, aoe, source, folder, resume), added, folder)]
    if job.in_adapter:
        if job.types or job.names or job.deep or job.arguments:
            what = say("--ops, --top, --deep, --aoe-arg: TensorFlow's adapter takes no such options")
            raise UsageError(what, hint=say("set aoe_config_file in the program to a file with them"))
        added["AOE_MODE"] = JOB_TYPE[job.mode]
        return [TuningProgram(say("tune in the program"), source.command, added, source.folder or Path.cwd())]
    if job.mode == "subgraph":
        hint = say("export the model: npuperf tune --mode subgraph --model FILE.onnx")
        raise UsageError(say("--mode subgraph: torch_npu dumps single operators only"), hint=hint)
    dump = folder / "dump"
    return [
        TuningProgram(say("dump operators"), dump_command(source.command, dump), {}, source.folder or Path.cwd()),
        TuningProgram(say("tune"), _aoe(job, aoe, Dump(dump), folder, resume), added, folder),
    ]


def _aoe(
    job: TuningJob, aoe: str, source: ModelFile | Dump | SingleOperators, folder: Path, resume: bool
) -> tuple[str, ...]:
    argv = [aoe]
    if isinstance(source, ModelFile):
        argv += [f"--model={source.file}", f"--framework={_FRAMEWORKS[source.file.suffix]}"]
        argv += [f"--weight={source.weight}"] if source.weight else []
    elif isinstance(source, Dump):
        argv += [f"--model_path={source.folder}"]
    else:
        argv += [f"--singleop={source.file}"]
    argv += [f"--job_type={JOB_TYPE[job.mode]}", "--progress_bar=off"]
    if job.types or job.names:
        argv += [f"--tune_ops_file={folder / 'tune_ops.cfg'}"]
    if job.device is not None:
        argv += [f"--device={job.device}"]
    if job.deep:
        argv += ["--tune_optimization_level=O1"]
    if resume and job.mode == "subgraph":
        argv += ["--reload"]  # operators need none: cases in the bank are skipped
    return (*argv, *job.arguments)


def dump_command(command: Sequence[str], dump: Path) -> tuple[str, ...]:
    """Return the command that runs a Python program while torch_npu dumps its operators.

    Raises UsageError for programs that are not started by Python directly.
    """
    words = [*command]
    if words[0].endswith(".py"):
        words.insert(0, "python3")
    if not re.fullmatch(r"python[\d.]*", Path(words[0]).name) or len(words) < 2:
        hint = say("call torch.npu.set_aoe(FOLDER) in your program, run it, then: npuperf tune --dump FOLDER")
        raise UsageError(say("{word}: only Python programs can be dumped from outside", word=words[0]), hint=hint)
    rest = words[2:] if words[1] == "-m" else words[1:]
    if not rest or rest[0].startswith("-"):
        what = " ".join(words[:3])
        raise UsageError(say("{command}: Python's own options are not supported here", command=what))
    return (words[0], str(_DUMP), str(dump), *words[1:])

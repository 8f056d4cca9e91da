"""A tuning job: what is tuned, and the command and environment that AOE gets. Facts: the vendor's AOE guides."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from npuperf.cann import find_program, set_env_script
from npuperf.errors import InputError, UsageError
from npuperf.escape import for_shell
from npuperf.files import read_input
from npuperf.messages import Message, say, series
from npuperf.notes import read_json

JobMode = Literal["op", "subgraph"]

JOB_TYPE: Final[dict[JobMode, str]] = {"op": "2", "subgraph": "1"}
#: ``--framework`` of aoe by the model's suffix.
_FRAMEWORKS: Final = {".prototxt": "0", ".air": "1", ".pb": "3", ".onnx": "5"}
_BINARIES: Final = ("tools/aoe/bin/aoe", "bin/aoe", "compiler/bin/aoe")
#: A script that says one of these runs TensorFlow, whose adapter tunes by itself.
_TENSORFLOW: Final = re.compile(
    r"^\s*(?:import|from)\s+(?:tensorflow|npu_bridge|npu_device|tf_adapter)\w*", re.MULTILINE
)
FINISHED: Final = "Aoe process finished"
#: What TF Adapter says at the end of a tuned graph.
ADAPTER_FINISHED: Final = "Aoe success"
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


class ModelFile(msgspec.Struct, frozen=True, tag=True):
    """A model file, with Caffe's weights beside it."""

    file: Path
    weight: Path | None = None


class Dump(msgspec.Struct, frozen=True, tag=True):
    """A folder of dumped operator graphs."""

    folder: Path


class SingleOperators(msgspec.Struct, frozen=True, tag=True):
    """A JSON file that describes operators one by one, without a model."""

    file: Path


class Script(msgspec.Struct, frozen=True, tag=True):
    """A program to run in ``folder`` (None: here); ``adapter``: TensorFlow's adapter tunes inside of it, else PyTorch
    dumps operators first.
    """

    command: tuple[str, ...]
    adapter: bool
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class DescribedOperator:
    """An operator as a file for --singleop describes it. ``sizes``: all numbers in the shapes of its operands."""

    type: str
    sizes: tuple[int, ...]

    @property
    def dynamic(self) -> bool:
        """Tell whether a size is known only at run time."""
        return any(size < 0 for size in self.sizes)


Source = ModelFile | Dump | SingleOperators | Script


@dataclass(frozen=True, slots=True)
class TuningJob:
    """Everything that was asked for. ``types`` and ``names`` are operators to tune, empty for all."""

    mode: JobMode
    source: Source
    types: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    device: int | None = None
    bank: Path | None = None
    parallel: int | None = None
    repeat: bool = False
    deep: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def in_adapter(self) -> bool:
        """Tell whether TensorFlow's adapter tunes, inside of the program."""
        return isinstance(self.source, Script) and self.source.adapter


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


def find_source(
    model: Path | None,
    weight: Path | None,
    dump: Path | None,
    command: Sequence[str],
    recorded: Sequence[str] | None,
    singleop: Path | None = None,
) -> Source:
    """Choose what to tune: a model, a dump, operators that a file describes, a program, or the program that a run
    directory recorded, in this order.

    Raises UsageError or InputError when it is not there or there is none.
    """
    if model is not None:
        return _model(model, weight)
    if dump is not None:
        if not dump.is_dir():
            raise InputError(say("--dump {dump}: no such folder", dump=str(dump)))
        if not dumped(dump):
            raise InputError(say("--dump {dump}: empty: {why}", dump=str(dump), why=NO_DUMP), hint=NO_DUMP_HINT)
        return Dump(dump.absolute())
    if singleop is not None:
        described_operators(singleop)  # so that a file without any is refused here, and not by AOE
        return SingleOperators(singleop.absolute())
    words = [*(command or recorded or ())]
    if not words:
        hint = say(
            "give --model FILE, --dump FOLDER, --singleop FILE, or -- python train.py; or run npuperf profile train.py "
            "first"
        )
        raise UsageError(say("nothing to tune"), hint=hint)
    return Script(tuple(words), _is_tensorflow(words), Path.cwd())


def dumped(dump: Path) -> bool:
    """Tell whether anything lies in a dump."""
    return dump.is_dir() and any(f.is_file() for f in dump.rglob("*"))


def described_operators(file: Path) -> list[DescribedOperator]:
    """Return what a file for --singleop describes: a list of operators with ``op``, or one of them.

    Raises InputError where it describes none.
    """
    found = read_json(file)
    operators = found if isinstance(found, list) else [found]
    if not operators or not all(isinstance(one, dict) and isinstance(one.get("op"), str) for one in operators):
        what = say("--singleop {file}: not a list of operators, each with its type as op", file=str(file))
        raise InputError(what, hint=say("for example [{example}]", example=_DESCRIBED))
    return [DescribedOperator(one["op"], tuple(_sizes(one))) for one in operators]


def _sizes(operator: dict[str, Any]) -> Iterator[int]:
    """Yield the sizes in the shapes of an operator's operands."""
    for key in ("input_desc", "output_desc"):
        described = operator.get(key)
        for operand in described if isinstance(described, list) else []:
            shape = operand.get("shape") if isinstance(operand, dict) else None
            yield from (size for size in shape if isinstance(size, int)) if isinstance(shape, list) else ()


#: One operator as such a file describes it.
_DESCRIBED: Final = (
    '{"op": "Add", "input_desc": [{"format": "ND", "shape": [8, 16], "type": "float16"}, …], "output_desc": […]}'
)


def _model(model: Path, weight: Path | None) -> ModelFile:
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


def _is_tensorflow(words: Sequence[str]) -> bool:
    """Tell by the first script of a command whether TensorFlow's adapter runs it."""
    script = next((Path(w) for w in words if w.endswith(".py") and Path(w).is_file()), None)
    return bool(script and _TENSORFLOW.search(read_input(script).decode("utf-8", "replace")))


def find_aoe(environment: Mapping[str, str]) -> str:
    """Return the path of ``aoe``. Raises InputError with what to source."""
    found = find_program("aoe", _BINARIES, environment)
    if found is None:
        hint = say("source {script}", script=set_env_script(environment))
        raise InputError(say("aoe: not found on PATH or in CANN"), hint=hint)
    return str(found)


def programs(
    job: TuningJob, folder: Path, aoe: str, environment: Mapping[str, str] | None = None, *, resume: bool = False
) -> list[TuningProgram]:
    """Return the programs of a job, in order; ``folder`` is where results and AOE's work space go.

    Raises UsageError for what TensorFlow's adapter cannot be told from outside.
    """
    source = job.source
    if isinstance(source, SingleOperators) and job.mode != "op":
        raise UsageError(say("--singleop: operators alone have no subgraphs"), hint=say("--mode op"))
    added = _environment(job, folder, environment or {})
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


def absolute_banks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return where AOE keeps banks, as absolute paths: it runs in another folder than we."""
    named = {name: environment.get(name) for name in ("TUNE_BANK_PATH", "ASCEND_CACHE_PATH")}
    return {name: str(Path(path).absolute()) for name, path in named.items() if path}


def _environment(job: TuningJob, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    banks = absolute_banks(environment)
    wanted = {
        "ASCEND_WORK_PATH": str(folder),
        "ASCEND_CACHE_PATH": banks.get("ASCEND_CACHE_PATH"),
        "TUNE_BANK_PATH": str(job.bank) if job.bank else banks.get("TUNE_BANK_PATH"),
        "ASCEND_DEVICE_ID": None if job.device is None else str(job.device),
        "TE_PARALLEL_COMPILER": None if job.parallel is None else str(job.parallel),
        "REPEAT_TUNE": "True" if job.repeat else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


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


def tune_ops(job: TuningJob) -> str | None:
    """Return the content of the file that names the operators to tune, None for all."""
    wanted = {"tune_ops_name": [*job.names], "tune_ops_type": [*job.types]}
    kept = {key: names for key, names in wanted.items() if names}
    return json.dumps(kept, indent=1) + "\n" if kept else None


#: Runs a Python program after asking torch_npu to dump the operators that it compiles.
_DUMP: Final = Path(__file__).resolve().parent.parent / "agent" / "dump_operators.py"


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


def reproduce(found: Sequence[TuningProgram], ops: str | None, folder: Path) -> str:
    """Return a shell script that does the same again."""
    lines = ["#!/bin/sh", "# What npuperf ran; CANN's set_env.sh must be sourced.", "set -eu"]
    if ops:
        lines += [f"cat > {shlex.quote(str(folder / 'tune_ops.cfg'))} <<'END'", ops.rstrip(), "END"]
    lines += [
        f"({program.shown(shlex.quote)})" for program in found
    ]  # spelled out as for_shell does, sh would not know it
    return "\n".join(lines) + "\n"

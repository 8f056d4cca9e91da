"""npuperf.json: everything that explains a result later."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from npuperf.base import __version__
from npuperf.base.cann import cann_version
from npuperf.base.errors import InputError
from npuperf.base.files import read_input, write_atomically
from npuperf.base.messages import Message, recall, say
from npuperf.base.notes import read_struct
from npuperf.base.process import run_quietly
from npuperf.model.parts import SCHEMA_VERSION, Model, Tool, encoded
from npuperf.model.recorded import Attached, Exported, Overhead, ProcessStatus, Proof, Recorded
from npuperf.record.folder import RunFolder
from npuperf.record.program import Command, worth_keeping
from npuperf.record.request import ProfileRequest, RecordingOptions

# -- The processes of the program: what they say of themselves.

_STATES: Final = {
    "waiting": say("waiting"),
    "waiting for the NPU": say("waiting for the NPU"),
    "warming up": say("warming up"),
    "recording": say("recording"),
    "saving": say("saving"),
    "recorded": say("recorded"),
    "standby": say("in standby"),
    "launcher": say("only starting others"),
    "stopped": say("stopped before anything was recorded"),
    "left out": say("left out"),
    "forked": say("forked from a process that was recorded"),
    "aside": say("left to the program's own profiler"),
    "refused": say("refused"),
    "failed": say("failed"),
}
#: States in which a process cannot have ended by itself.
BUSY: Final = ("warming up", "recording", "saving")
#: States of a process that records nothing.
OUT: Final = ("left out", "forked", "launcher", "refused", "stopped", "failed")


def state_of(process: ProcessStatus) -> Message:
    """Say in which state a process is, or was last."""
    return _STATES.get(process.state) or recall(process.state)


def read_all(folder: Path) -> list[ProcessStatus]:
    """Return every process, by rank, then pid."""
    found = []
    for file in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(read_input(file), type=ProcessStatus, dec_hook=as_message))
        except (InputError, msgspec.DecodeError, RecursionError):  # the process died while its disk was full
            continue
    return sorted(found, key=lambda p: (p.rank is None, p.rank or 0, p.pid))


def all_recorded(processes: Sequence[ProcessStatus], options: RecordingOptions) -> bool:
    """Tell whether every process that counts steps has saved all that it was to record, and at least one did.

    By the clock it is those that have recorded, or make steps, and windows are counted.
    """
    counting = [p for p in processes if (p.step or p.folders) and p.state not in OUT]

    def is_full(p: ProcessStatus) -> bool:
        if options.duration is not None:
            return len(p.folders) >= options.repeat
        return len(p.recorded) >= options.active * options.repeat

    return bool(counting) and all(
        p.state == "recorded" and (is_full(p) or p.early or p.stopped is not None) for p in counting
    )


def as_message(type_: Any, value: object) -> Message:
    """Decode a message: what msgspec asks for types that are not its own."""
    if type_ is not Message:
        raise NotImplementedError(type_)
    return recall(value)


Outcome = Literal["done", "failed"]


class Host(Model, frozen=True, kw_only=True):
    """The machine that npuperf ran on."""

    name: str
    system: str
    cpus: int | None


class GitState(Model, frozen=True, kw_only=True):
    """The commit of a repository, and whether files differ from it."""

    commit: str
    dirty: bool


class InputFile(Model, frozen=True, kw_only=True):
    """A file that was run, and its digest; None where it cannot be read."""

    file: str
    sha256: str | None


class RunStage(Model, frozen=True, kw_only=True, omit_defaults=True):
    """How the program ended. ``stopped``: npuperf asked it to, as it had recorded everything.

    *running* with nobody at work in the run directory means: interrupted, by what nobody can handle.
    """

    status: Literal["running", "done", "failed", "interrupted"]
    stopped: bool = False
    exit_status: int | None = None
    seconds: float | None = None


class ExportStage(Model, frozen=True, kw_only=True):
    """What was exported."""

    status: Outcome
    folders: tuple[Exported, ...]


class ProofStage(Model, frozen=True, kw_only=True):
    """What was read of the export."""

    status: Outcome
    devices: tuple[Proof, ...]


class Stages(Model, frozen=True, kw_only=True, omit_defaults=True):
    """How far a run got; None where it did not get."""

    run: RunStage | None = None
    export: ExportStage | None = None
    proof: ProofStage | None = None


class Manifest(Model, frozen=True, kw_only=True):
    """What is known about a run. Everything may be missing: older versions, and others, write such files, too."""

    schema_version: str = SCHEMA_VERSION
    tool: Tool | None = None
    created: str | None = None
    argv: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    cwd: str | None = None
    host: Host | None = None
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    git: GitState | None = None
    inputs: tuple[InputFile, ...] = ()
    options: RecordingOptions | None = None
    imported_from: str | None = None
    stages: Stages = Stages()
    processes: tuple[ProcessStatus, ...] = ()
    soc: str | None = None
    cores_cube: int | None = None
    cores_vector: int | None = None
    warnings: tuple[Message, ...] = ()
    problem: Message | None = None
    data: tuple[str, ...] = ()
    overhead: Overhead | None = None
    attached: Attached | None = None


def begin(
    command: Command, request: ProfileRequest, environment: Mapping[str, str], run: RunStage | None = None
) -> Manifest:
    """Return what is known before anything is started."""
    script = command.script
    digest, git = None, None
    if script is not None:
        with suppress(InputError):
            digest = hashlib.sha256(read_input(script)).hexdigest()
    at = ["git", "-C", str(script.parent if script else Path.cwd())]
    commit = run_quietly([*at, "rev-parse", "HEAD"])
    if commit.returncode == 0:  # else it is outside of a repository
        changes = run_quietly([*at, "status", "--porcelain", "--untracked-files=no"])
        git = GitState(commit=commit.text.strip(), dirty=bool(changes.text.strip()))
    return Manifest(
        tool=Tool(name="npuperf", version=__version__),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        argv=tuple(sys.argv),
        command=command.argv,
        cwd=str(Path.cwd()),
        host=Host(name=socket.gethostname(), system=platform.platform(), cpus=os.cpu_count()),
        versions={"cann": cann_version(environment)},
        environment=worth_keeping(environment),
        git=git,
        inputs=(InputFile(file=str(script), sha256=digest),) if script else (),
        options=msgspec.convert(request, RecordingOptions, from_attributes=True),
        imported_from=None if request.source is None else str(request.source.absolute()),
        stages=Stages(run=run),
    )


def with_processes(manifest: Manifest, processes: Sequence[ProcessStatus], run: RunStage) -> Manifest:
    """Add how the program ended and what its processes said; the chip is that of the first that recorded."""
    first = next((p for p in processes if p.folders), next(iter(processes), None))
    known: dict[str, str | None] = {}
    if first is not None:
        known = {"python": first.python, "torch": first.torch, "torch_npu": first.torch_npu, "cann": first.cann}
    return msgspec.structs.replace(
        manifest,
        stages=Stages(run=run),
        processes=tuple(processes),
        versions={**manifest.versions, **{name: version for name, version in known.items() if version}},
        soc=first and first.soc,
        cores_cube=first and first.cores_cube,
        cores_vector=first and first.cores_vector,
    )


def with_outcome(manifest: Manifest, document: Recorded) -> Manifest:
    """Add what was exported and proven, and what there is to say."""
    exported = all(e.done for e in document.exports)
    proven = any(p.holds for p in document.proofs)
    return msgspec.structs.replace(
        manifest,
        schema_version=SCHEMA_VERSION,
        stages=Stages(
            run=manifest.stages.run,
            export=ExportStage(status="done" if exported else "failed", folders=document.exports),
            proof=ProofStage(status="done" if proven else "failed", devices=document.proofs),
        ),
        warnings=(*document.cautions, *document.warnings),
        problem=document.problem and document.problem.what,
        data=document.data,
        overhead=document.overhead or manifest.overhead,
    )


def write(folder: RunFolder, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    content = msgspec.json.format(encoded(manifest, str), indent=1)
    write_atomically(folder.manifest, content.decode() + "\n")


def read(folder: RunFolder) -> Manifest | None:
    """Return the manifest of a run, None where there is none; what cannot be read in it counts as missing."""
    return read_struct(folder.manifest, Manifest, as_message)

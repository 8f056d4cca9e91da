"""npuperf.json: everything that explains a result later."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import msgspec

from npuperf import __version__
from npuperf.cann import cann_version
from npuperf.errors import InputError
from npuperf.files import write_atomically
from npuperf.process import run_quietly
from npuperf.profile.command import Command
from npuperf.profile.environment import worth_keeping
from npuperf.profile.folder import RunFolder
from npuperf.profile.options import Options
from npuperf.profile.processes import ProcessStatus

SCHEMA_VERSION: Final = "1.0"


def begin(command: Command, options: Options, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what is known before the program starts."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "npuperf", "version": __version__},
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "argv": sys.argv,
        "command": list(command.argv),
        "cwd": str(Path.cwd()),
        "host": {"name": socket.gethostname(), "system": platform.platform(), "cpus": os.cpu_count()},
        "versions": {"cann": cann_version(environment)},
        "environment": worth_keeping(environment),
        "git": git_state(command.script.parent if command.script else Path.cwd()),
        "inputs": [{"file": str(f), "sha256": sha256(f)} for f in [command.script] if f is not None],
        "options": msgspec.to_builtins(options),
        "stages": {},
        "processes": [],
        "warnings": [],
    }


def describe_processes(manifest: dict[str, Any], processes: Sequence[ProcessStatus]) -> None:
    """Add what the processes said; versions and the chip are those of the first that recorded."""
    manifest["processes"] = [msgspec.to_builtins(p) for p in processes]
    first = next((p for p in processes if p.folders), next(iter(processes), None))
    if first is not None:
        known = {"python": first.python, "torch": first.torch, "torch_npu": first.torch_npu, "cann": first.cann}
        manifest["versions"].update({name: version for name, version in known.items() if version})
        manifest.update(soc=first.soc, cores_cube=first.cores_cube, cores_vector=first.cores_vector)


def write(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    """Write the manifest."""
    write_atomically(folder.manifest, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def read(folder: RunFolder) -> dict[str, Any]:
    """Read the manifest of a run; raises InputError when it cannot be read."""
    try:
        found = json.loads(folder.manifest.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder.manifest}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{folder.manifest}: not a manifest")
    return found


def git_state(folder: Path) -> dict[str, object] | None:
    """Return commit and cleanness of the repository that a folder belongs to; None outside of one."""
    commit = run_quietly(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit.returncode != 0:
        return None
    changes = run_quietly(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit.text.strip(), "dirty": bool(changes.text.strip())}


def sha256(file: Path) -> str | None:
    """Return the digest of a file, None when it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None

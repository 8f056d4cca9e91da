"""CANN's exporter on this machine: where msprof is, and what to do where it does not work."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from npuperf.cann import find_program, roots, set_env_script
from npuperf.errors import InputError
from npuperf.messages import Message, say, series
from npuperf.process import Printed, run_quietly

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
    return _examined(binary) if binary else None


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
    if msprof.works or msprof.script is None:
        yield _with_path(environment, msprof.binary.parent)
        return
    elsewhere = "/var/tmp" if "tools" in tempfile.gettempdir() else None
    with tempfile.TemporaryDirectory(prefix="npuperf-", dir=elsewhere) as folder:
        profiler = Path(folder) / "tools" / "profiler"
        (profiler / "bin").mkdir(parents=True)
        (profiler / "profiler_tool").symlink_to(msprof.script.parents[2])
        stand_in = profiler / "bin" / "msprof"
        stand_in.write_text(f"#!{sys.executable}\nSCRIPT = {str(msprof.script)!r}\n{_STAND_IN}", "utf-8")
        stand_in.chmod(0o755)
        yield _with_path(environment, stand_in.parent)


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


def _examined(binary: Path) -> Msprof:
    """Try the binary: without a driver it cannot even show its help."""
    script = binary.resolve().parents[1] / _SCRIPT
    beside = script if script.is_file() else None
    output = run_quietly([str(binary), "--help"])
    works = _NO_DRIVER not in output.text and output.returncode is not None
    return Msprof(binary, beside, works, output.text, None if works else _note(binary, beside, output))


def _note(binary: Path, script: Path | None, output: Printed) -> Message:
    """Say why a binary does not work, and what is used in its place."""
    why = say("{binary} does not start ({words})", binary=str(binary), words=output.text.strip())
    if _NO_DRIVER in output.text:
        why = say("{binary} finds no driver", binary=str(binary))
    if script:
        return say("{why}: {script} is used instead", why=why, script=str(script))
    return say("{why}, and there is no msprof.py beside it", why=why)


def _with_path(environment: Mapping[str, str], first: Path) -> dict[str, str]:
    return {**environment, "PATH": f"{first}{os.pathsep}{environment.get('PATH', os.defpath)}"}

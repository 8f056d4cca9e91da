"""msprof-analyze, the vendor's own tool for the same files, in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from measuring import Command


def install(folder: Path) -> Path:
    """Install msprof-analyze from PyPI into ``folder``, unless it is there; return the program."""
    program = folder / "bin" / "msprof-analyze"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "msprof-analyze"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
    return program


def version(program: Path) -> str:
    """Return the version that is installed."""
    code = "from importlib.metadata import version; print(version('msprof-analyze'))"
    done = subprocess.run([str(program.parent / "python"), "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def advise(program: Path, profile: Path, out: Path) -> Command:
    """Return ``advisor all``. It ends with status 0 whatever happens, so its report is asked for afterwards.

    The profile's folder must be called ``*_ascend_pt``.
    """

    def clean() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)

    def check() -> None:
        if not [*out.glob("mstt_advisor_*.html")]:
            raise SystemExit(f"msprof-analyze made no report of {profile}")

    arguments = [str(program), "advisor", "all", "-d", str(profile), "-o", str(out)]
    return Command(arguments, before=clean, after=check)

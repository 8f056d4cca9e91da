"""Install the wheel of dist/ under every Python found, with the oldest and the newest of all it needs: ``make matrix``.

Every cell runs every sample; its documents have to be those of the first cell, to the byte. One line a cell, for
docs/install.md. What cannot be installed says why, and the status is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: How versions are chosen, as uv says it: what pyproject.toml allows at least (with wheels for this Python), or most.
CHOICES = {"oldest": "lowest-direct", "newest": "highest"}


def install(python: str, choice: str, wheel: Path, into: Path) -> str:
    """Make an environment; return why that was not possible, or nothing."""
    uv = str(Path(sys.executable).with_name("uv"))
    made = subprocess.run([uv, "venv", "-q", "--python", python, str(into)], capture_output=True, text=True)
    if made.returncode:
        return made.stderr.strip()
    command = [uv, "pip", "install", "-q", "--python", str(into / "bin" / "python"), "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--resolution", CHOICES[choice], "-r", str(ROOT / "pyproject.toml"), str(wheel)],
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


def documents(environment: Path) -> dict[str, str]:
    """Return the hash of every sample's document, or the first line of what went wrong."""
    found = {}
    for sample in sorted((ROOT / "samples").iterdir()):
        command = [str(environment / "bin" / "npuperf"), "analyze", str(sample), "--no-cache", "--format", "json"]
        done = subprocess.run(command, capture_output=True, cwd=environment)
        said = done.stderr.decode().partition("\n")[0]
        found[sample.name] = said if done.returncode else hashlib.sha256(done.stdout).hexdigest()
    return found


def versions(environment: Path) -> str:
    """Return the versions that matter, of an environment."""
    names = ("numpy", "pyarrow", "pandas", "msgspec", "typer", "rich")
    code = f"from importlib.metadata import version as v; print(*(n + ' ' + v(n) for n in {names}), sep=', ')"
    return subprocess.run([environment / "bin" / "python", "-c", code], capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Try every cell, and say of each what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", default="3.10 3.11 3.12 3.13 3.14", help="versions, or paths")
    parser.add_argument("--wheel", default="manylinux2014_" + os.uname().machine, help="a part of its name")
    asked = parser.parse_args()
    (wheel,) = [*(ROOT / "dist").glob(f"npuperf-*{asked.wheel}*.whl")] or sys.exit("first: make wheels")
    first: dict[str, str] = {}
    failed = False
    for python in asked.pythons.split():
        for choice in CHOICES:
            with tempfile.TemporaryDirectory() as folder:
                environment = Path(folder, "environment")
                if why := install(shutil.which(f"python{python}") or python, choice, wheel, environment):
                    result, failed = f"not installed: {why}", True
                else:
                    found = documents(environment)
                    first = first or found
                    same = [name for name in found if found[name] == first[name] and len(found[name]) == 64]
                    failed |= len(same) < len(found)
                    result = f"{len(same)} of {len(found)} documents the same ({versions(environment)})"
                    result += "".join(f"\n  {name}: {found[name]}" for name in found if name not in same)
            print(f"{python} {choice}: {result}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()

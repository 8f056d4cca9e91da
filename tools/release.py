"""Check and build a release, with its bill of materials and checksums, and say what to push: ``make release``.

The version is that of the tag on the commit; nothing is pushed or uploaded here.
"""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def said(*command: str) -> str:
    """Run a command here; return what it prints, or exit with what it says."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def lacking(version: str, source: str, changes: str) -> list[str]:
    """Return what this commit lacks for the release of a version."""
    found = []
    if f"v{version}" not in said("git", "tag", "--points-at", "HEAD").split():
        found.append(f"the commit has no tag v{version}")
    if f'__version__ = "{version}"' not in source:
        found.append(f"npuperf/base/__init__.py does not say {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        found.append(f"CHANGELOG.md has no heading '## [{version}] - YEAR-MONTH-DAY'")
    if not (ROOT / "tests" / "released" / version).is_dir():
        found.append(f"tests/released/{version} has no documents of this version: tests/test_released.py --update")
    return found


def papers(version: str) -> list[Path]:
    """Write what an installation consists of, as CycloneDX has it, and the manual page."""
    bill, page = DIST / f"npuperf-{version}.cdx.json", DIST / "npuperf.1"
    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = DIST.glob("npuperf-*-none-any.whl")
        python = f"{folder}/bin/python"
        said(sys.executable, "-m", "uv", "venv", "-q", folder)
        said(sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, str(wheel))
        said(sys.executable, "-m", "cyclonedx_py", "environment", python, "--pyproject", "pyproject.toml",
             "--output-reproducible", "-o", str(bill))  # fmt: skip
        said(python, "tools/man.py")
    return [bill, page]


def write_sums(files: list[Path]) -> Path:
    """Write the checksums of files, as ``sha256sum --check`` reads them."""
    sums = DIST / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files), "utf-8")
    return sums


def main() -> None:
    """Check, build, write what belongs to it, and say what is left to do."""
    version = runpy.run_path(str(ROOT / "hatch_build.py"))["version_of"](ROOT)
    source = (ROOT / "npuperf" / "base" / "__init__.py").read_text("utf-8")
    missing = lacking(version, source, (ROOT / "CHANGELOG.md").read_text("utf-8"))
    if said("git", "status", "--porcelain"):
        missing.append("not everything is committed")
    if missing:
        sys.exit("\n".join(["no release:", *missing]))
    if subprocess.run(["make", "check"], cwd=ROOT).returncode:
        sys.exit("no release: make check fails")
    print(said(sys.executable, "tools/wheels.py"))
    files = sorted([*DIST.glob("npuperf-*.whl"), *DIST.glob("npuperf-*.tar.gz")])
    said(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    sums = write_sums([*files, *papers(version)])
    key = subprocess.run(["git", "config", "user.signingkey"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if key:
        said("gpg", "--yes", "--armor", "--local-user", key, "--detach-sign", str(sums))
    print(f"{sums}: {f'signed with {key}' if key else 'not signed: git config user.signingkey names no key'}")
    if "[project.urls]" not in (ROOT / "pyproject.toml").read_text("utf-8"):
        print("pyproject.toml names no [project.urls]: say there where the project lives, before the first upload")
    print(f"next: git push origin v{version}; twine upload dist/npuperf-{version}*.whl dist/npuperf-{version}.tar.gz\n"
          "      (from a job with trusted publishing the index adds attestations: --attestations)")  # fmt: skip


if __name__ == "__main__":
    main()

"""Fetch npuperf's wheel of dist/ and all that it needs into one folder, and one tar: ``make wheelhouse``.

The tar is carried to a machine without a network. pip decides there which of the wheels fit.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
#: glibc's versions for which wheels are taken: up to that of openEuler 20.03 to 22.03 and RHEL 8 upwards.
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")


def fetch(into: Path, machine: str, python: str) -> None:
    """Download npuperf and what it needs, for one processor and one Python, as wheels."""
    (own,) = [*(ROOT / "dist").glob(f"npuperf-*manylinux2014_{machine}*.whl")] or sys.exit("first: make wheels")
    platforms = [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(into), "--only-binary=:all:", *platforms]
    subprocess.run([*command, "--python-version", python, "--implementation", "cp", str(own)], check=True)


def asked_of_glibc(wheel: Path) -> Iterator[tuple[int, int]]:
    """Yield the versions of glibc whose functions a wheel's libraries call, whatever the wheel's name says."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not re.search(r"\.so(\.\d+)*$", name):
                continue
            versions = ELFFile(BytesIO(archive.read(name))).get_section_by_name(".gnu.version_r")
            for _, symbols in versions.iter_versions() if versions else ():
                for symbol in symbols:
                    if found := re.match(r"GLIBC_(\d+)\.(\d+)", symbol.name):
                        yield int(found[1]), int(found[2])


def main() -> None:
    """Fetch for every processor and Python asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default="aarch64 x86_64")
    parser.add_argument("--pythons", default="3.10 3.11 3.12 3.13 3.14")
    parser.add_argument("--into", type=Path, default=ROOT / "dist" / "wheelhouse")
    parser.add_argument("--tar", action="store_true")
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    for machine in asked.machines.split():
        for python in asked.pythons.split():
            fetch(asked.into, machine, python)
    wheels = [*asked.into.glob("*.whl")]
    newest = max(version for wheel in wheels for version in asked_of_glibc(wheel))
    print(f"{asked.into}: {len(wheels)} wheels, whose libraries need glibc {'.'.join(map(str, newest))} at most")
    if newest > (2, 28):
        sys.exit("that is newer than openEuler 20.03 and RHEL 8 have")
    if asked.tar:
        packed = ROOT / "dist" / "npuperf-wheelhouse.tar"
        with tarfile.open(packed, "w") as archive:  # wheels are compressed
            archive.add(asked.into, "wheelhouse")
        print(f"{packed}: {packed.stat().st_size >> 20} MB")


if __name__ == "__main__":
    main()

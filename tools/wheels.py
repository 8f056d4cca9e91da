"""Build every wheel into dist/, from one commit on one machine: ``make wheels``.

Zig's C compiler (the package ziglang) has the headers and symbol versions of every system in itself, so that a wheel
for an old glibc, for musl or for another architecture needs no container. Wheels are built of the source distribution,
which is built first: the libraries that the checkout itself uses are not replaced by those of another machine.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
#: Platform of a wheel, and what zig calls its system; the first is pip's word, also of old ones.
TARGETS = {
    "manylinux2014_x86_64.manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux2014_aarch64.manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_1_x86_64": "x86_64-linux-musl",
    "musllinux_1_1_aarch64": "aarch64-linux-musl",
    "any": "",
}
#: Nothing of this machine in what is made: no names of folders, no hash of how the linker was called.
_FLAGS = "-g0 -Wl,-s"


def build(target: str, into: Path, source: Path, cache: Path) -> Path:
    """Build one wheel of an unpacked source distribution; return where it lies."""
    zig = TARGETS[target]
    compiler = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", zig, *shlex.split(_FLAGS)])
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(into), str(source)]
    said = subprocess.run(
        command, env=environment(CC=compiler, NPUPERF_PLATFORM=target, **caches), capture_output=True, text=True
    )
    if said.returncode or "npuperf does without" in said.stdout + said.stderr:
        sys.exit(said.stdout + said.stderr)
    return next(into.glob(f"*-{target}.whl"))


def environment(**variables: str) -> dict[str, str]:
    """Return a build's environment: files get the commit's time, or, without git, the first that a zip can hold."""
    found = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return {**os.environ, "SOURCE_DATE_EPOCH": found.stdout.strip() or "315532800", **variables}


def check(wheel: Path) -> str:
    """Return what auditwheel says of a wheel; exit if it is not what its name says."""
    platform = wheel.stem.split("-")[-1].split(".")[-1]
    if platform == "any":
        return "no library"
    if "musl" in platform:  # auditwheel would look for this machine's musl
        return "needs " + ", ".join(sorted({name for library in libraries(wheel) for name in needed(library)}))
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True)
    words = " ".join(said.stdout.split())
    known = re.search(r'consistent with the following platform tag: "(\S+)"', words)
    if said.returncode or not known or known[1] != platform:
        sys.exit(f"{wheel.name} is not what it says\n{said.stdout}{said.stderr}")
    return f"auditwheel: {known[1]}"


def libraries(wheel: Path) -> list[ELFFile]:
    """Return the libraries in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [ELFFile(BytesIO(archive.read(name))) for name in archive.namelist() if name.endswith(".so")]


def needed(library: ELFFile) -> list[str]:
    """Return what a library for musl is linked with; exit if that is more than musl."""
    names = [tag.needed for tag in library.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    if not {"libc.so"}.issuperset(names) or library.get_section_by_name(".gnu.version_r"):
        sys.exit(f"linked with more than musl: {names}")
    return names


def main() -> None:
    """Build all, or the platforms that are named, and say of each what it is."""
    into = ROOT / "dist"
    wanted = [target for target in TARGETS if not sys.argv[1:] or any(word in target for word in sys.argv[1:])]
    into.mkdir(exist_ok=True)
    for old in (*into.glob("npuperf-*.whl"), *into.glob("npuperf-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(into), str(ROOT)]
        made = subprocess.run(command, env=environment(), capture_output=True, text=True)
        if made.returncode:
            sys.exit(made.stdout + made.stderr)
        (packed,) = into.glob("npuperf-*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        source = Path(folder, packed.name.removesuffix(".tar.gz"))
        for target in wanted:
            wheel = build(target, into, source, Path(folder, "zig"))
            print(f"{wheel.name}  {wheel.stat().st_size >> 10} KB  {check(wheel)}")
    if shutil.which("git") and subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout:
        print("what is not committed is in these wheels, too", file=sys.stderr)


if __name__ == "__main__":
    main()

"""What tools/ builds: wheels that fit their platforms, and npuperf on another processor.

Building takes the network; what was built before (``make wheels``, ``make aarch64``) is held to what it has to be.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import run_cli
from ways import decoded_only

from npuperf.base import __version__
from npuperf.cli import streams

ROOT = Path(__file__).resolve().parent.parent
AARCH64 = ROOT / "dist" / "aarch64"
QEMU = shutil.which("qemu-aarch64")


def test_the_source_says_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f'    __version__ = "{__version__}"\n' in (ROOT / "npuperf" / "base" / "__init__.py").read_text("utf-8")


def test_one_lock_holds_all_that_tests_and_releases() -> None:
    """In the set-up commands, which CI runs too, nothing floats that pyproject.toml or tools/requirements.txt name."""
    lines = [*(ROOT / "tools" / "lock.txt").read_text("utf-8").splitlines()[1:]]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+( ; .+)?", line) for line in lines)
    asked = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.scripts]")[0]
    named = re.findall(r'^  "([\w-]+)(?:\[\w+\])?(?:[<>=]+[\d.]+)?",', asked, re.M)
    named += [line for line in (ROOT / "tools" / "requirements.txt").read_text("utf-8").splitlines()[1:] if line]
    assert {"torch", "ruff", "numpy", "ziglang", "dask"} <= set(named)
    assert {name.lower().replace("_", "-") for name in named} <= {line.partition("==")[0] for line in lines}
    for page in ("README.md", "README.zh-CN.md"):
        assert "pip install -q -c tools/lock.txt -e '.[dev]' && " in (ROOT / page).read_text("utf-8")


def built(platforms: str) -> Path:
    """Return the wheel that was built for these platforms; skip where none was."""
    found = [*(ROOT / "dist").glob(f"npuperf-*-py3-none-{platforms}.whl")]
    if not found:
        pytest.skip("nothing was built: make wheels")
    return found[0]


@pytest.mark.parametrize(
    ("platforms", "machine"),
    [("manylinux2014_x86_64*", 62), ("manylinux2014_aarch64*", 183), ("musllinux*_x86_64", 62),
     ("musllinux*_aarch64", 183)],
)  # fmt: skip
def test_wheels_have_the_libraries_of_their_platforms(platforms: str, machine: int) -> None:
    with zipfile.ZipFile(built(platforms)) as wheel:
        libraries = [name for name in wheel.namelist() if name.endswith(".so")]
        assert len(libraries) == len([*(ROOT / "npuperf").rglob("*.c")])
        for name in libraries:
            head = wheel.read(name)[:20]
            assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:], "little") == machine
            assert str(ROOT).encode() not in wheel.read(name)


def test_the_wheel_for_everything_has_no_library() -> None:
    with zipfile.ZipFile(built("any")) as wheel:
        assert [name for name in wheel.namelist() if name.endswith((".so", ".po"))] == []
        assert "npuperf/locale/zh.mo" in wheel.namelist()


@pytest.mark.skipif(
    QEMU is None and platform.machine() != "aarch64", reason="no emulator: apt-get install qemu-user debootstrap"
)
@pytest.mark.skipif(not (AARCH64 / "made").exists(), reason="nothing to emulate: make aarch64")
def test_on_aarch64_every_byte_is_the_same(tmp_path: Path) -> None:
    for file in (ROOT / "npuperf").rglob("*.py"):
        theirs = AARCH64 / "site" / file.relative_to(ROOT)
        if not theirs.exists() or theirs.read_bytes() != file.read_bytes():
            pytest.skip("what is there to emulate is another revision: make aarch64")
    python = [str(QEMU), "-L", str(AARCH64 / "root"), str(AARCH64 / "root" / "usr" / "bin" / "python3.11")]
    settings = {**os.environ, "NPUPERF_NO_CACHE": "1", "LC_ALL": "C.UTF-8"}

    def said(command: list[str], *arguments: str, **more: str) -> bytes:
        whole = [*command, "-m", "npuperf", *arguments]
        return subprocess.run(whole, cwd=tmp_path, check=True, capture_output=True, env={**settings, **more}).stdout

    there = {"PYTHONPATH": str(AARCH64 / "site"), "PYTHONDONTWRITEBYTECODE": ""}
    assert b"compiled reader: there" in said(python, "--version", **there)
    sample = str(ROOT / "samples" / "micro_batch_ascend_pt")
    here = said([sys.executable], "analyze", sample, "--format", "json")
    assert said(python, "analyze", sample, "--format", "json", **there) == here


def test_where_the_compiled_reader_would_matter_its_absence_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "npuperf: the compiled reader is missing, so reading takes two to three times as long"
    sample = ["analyze", str(ROOT / "samples" / "transformer_ascend_pt"), "--no-cache", "--format", "json"]
    with_it = run_cli(sample)
    decoded_only(monkeypatch)
    assert run_cli(sample).stderr == with_it.stderr  # a small one
    monkeypatch.setattr(streams, "_WORTH_A_BAR", 1_000)
    without = run_cli(sample)
    assert without.stderr.count(said) == 1 and without.stdout == with_it.stdout

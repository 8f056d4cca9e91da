"""Readers that leave, full disks and closed descriptors: the exit status is the command's own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

SAMPLE = "samples/transformer_ascend_pt"
#: Python keeps output to itself unless PYTHONUNBUFFERED is set, and notices only at its end that nobody reads.
pytestmark = pytest.mark.parametrize("unbuffered", ["", "1"])


def npuperf(arguments: str, unbuffered: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-B", "-m", "npuperf", *arguments.split()]  # what Python compiles might be cut, and stay
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, text=True, **streams)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--version", 0),
        ("profile --help", 0),
        ("profile --dry-run -- true", 0),
        (f"analyze {SAMPLE}", 0),
        ("analyze samples/micro_batch_ascend_pt --expect-cores 9=1,1", 1),
        ("analyze --unheard-of", 2),
        ("analyze samples/missing", 3),
    ],
)
def test_nobody_reads(arguments: str, status: int, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert npuperf(arguments, unbuffered, stdout=writer, stderr=writer).returncode == status
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("arguments", ["--version", "--help", "profile --dry-run -- true", f"analyze {SAMPLE}"])
def test_a_full_disk_is_said(arguments: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = npuperf(arguments, unbuffered, stdout=full.fileno(), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (3, "npuperf: stdout: cannot be written: No space left on device\n")


def test_a_disk_that_takes_a_part_is_full(unbuffered: str, tmp_path: Path) -> None:
    """Without a buffer of Python's nobody else writes what is left, nor hears why it cannot be."""

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    with (tmp_path / "out").open("wb") as out:
        done = npuperf(f"analyze {SAMPLE} --format json", unbuffered, stdout=out.fileno(), stderr=subprocess.PIPE,
                       preexec_fn=small_files_only)  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "npuperf: stdout: cannot be written: File too large\n")


@pytest.mark.parametrize("arguments", ["--version", "analyze --help", f"analyze {SAMPLE} --format json"])
def test_a_closed_stdout_is_said(arguments: str, unbuffered: str) -> None:
    done = in_shell(f"{arguments} >&-", unbuffered)
    assert (done.returncode, done.stderr) == (3, "npuperf: stdout is closed\n")
    assert in_shell(f"{arguments} >&- 2>&- <&-", unbuffered).returncode == 3


def test_what_needs_no_stdout_does_not_miss_it(unbuffered: str, tmp_path: Path) -> None:
    """What is opened meanwhile gets none of the closed descriptors, which others write to."""
    done = in_shell(f"analyze {SAMPLE} -o {tmp_path}/a >&- 2>&- <&-", unbuffered)
    assert (done.returncode, done.stderr) == (0, "")
    assert in_shell(f"analyze {SAMPLE} -o {tmp_path}/b", unbuffered).returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert in_shell(f"analyze {SAMPLE} 2>&- <&-", unbuffered).returncode == 0


def in_shell(line: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(["sh", "-c", f'"{sys.executable}" -m npuperf {line}'], cwd=ROOT, env=environment, check=False,
                          capture_output=True, text=True)  # fmt: skip

"""Arrays in files: what numpy makes is what it would have made in memory, and nothing is left behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from npuperf.model import memory, spill

SAMPLE = ROOT / "samples" / "transformer_ascend_pt"
MB = 1 << 20
#: A folder on a disk: that of temporary files may be in memory.
DISK = ROOT / "tests"
BEGIN = """
import numpy as np, os, sys
from pathlib import Path
from npuperf.model import spill
def mapped():
    return [line for line in open("/proc/self/maps") if "/.npuperf-" in line]
"""


def python(text: str, *arguments: object, **environment: str) -> str:
    """What a program prints that begins like this; it runs by itself, because what it settles holds to its end."""
    command = [sys.executable, "-c", BEGIN + text, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def takes_files(folder: Path) -> bool:
    return "True" in python("print(spill.spill(Path(sys.argv[1]), 0))", folder)


if not (spill.compiled_source() and takes_files(DISK)):
    pytest.skip("needs the compiled library, and a disk that reserves space", allow_module_level=True)


def test_the_library_is_made_of_this_source() -> None:
    source = Path(spill.__file__).with_suffix(".c").read_bytes()
    assert spill.compiled_source() == hashlib.sha256(source).hexdigest(), "run pip install -e . again"


def test_large_arrays_are_in_files_without_names_and_small_ones_are_not() -> None:
    told = python(
        """
assert spill.spill(Path(sys.argv[1]), 0, 1 << 20)
small, large = np.ones(1000), np.arange(1 << 20)
assert len(mapped()) == 1 and "(deleted)" in mapped()[0]
assert large.sum() == (1 << 19) * ((1 << 20) - 1) and small.sum() == 1000
del large
print(len(mapped()), spill.spilled_bytes())
""",
        DISK,
    )
    assert told.split() == ["0", "0"]  # bytes are told where this was allowed: see below
    assert list(DISK.glob(".npuperf-*")) == []


def test_what_was_freed_is_used_again_and_zeros_are_zeros() -> None:
    told = python(
        """
assert spill.spill(Path(sys.argv[1]), 64 << 20, 1 << 20)
for _ in range(3):
    one = np.full(1 << 20, 7)
    del one
    zeros = np.zeros(1 << 20, np.int64)
    assert not zeros.any()
    del zeros
grown = np.arange(1 << 20)
grown.resize(1 << 21, refcheck=False)
assert (grown[: 1 << 20] == np.arange(1 << 20)).all() and not grown[1 << 20 :].any()
grown.resize(10, refcheck=False)
assert grown.tolist() == list(range(10))
print(len(mapped()))
""",
        DISK,
    )
    assert 1 <= int(told) <= 4


def test_no_more_than_is_allowed_lies_in_files() -> None:
    """The rest is in memory, as it is where the disk is full."""
    told = python(
        """
spill._OF_DISK = 3 * 8 * 2**20 / spill.shutil.disk_usage(sys.argv[1]).free
assert spill.spill(Path(sys.argv[1]), 0, 1 << 20)
arrays = [np.full(1 << 20, i) for i in range(5)]
print(len(mapped()), [int(a[-1]) for a in arrays])
""",
        DISK,
    )
    assert told.split(maxsplit=1)[0] in ("2", "3")  # somebody else may take of the disk meanwhile
    assert json.loads(told.split(maxsplit=1)[1]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("folder", ["/dev/shm", "/proc", "/nowhere", "/" + "a" * 5000])
def test_a_folder_that_is_in_memory_or_takes_no_files_is_refused(folder: str) -> None:
    assert not takes_files(Path(folder))


def test_threads_make_arrays_where_those_that_start_them_do() -> None:
    told = python(
        """
from npuperf.parallel import Threads
assert spill.spill(Path(sys.argv[1]), 0, 1 << 20)
with Threads(2) as pool:
    arrays = [f.result() for f in [pool.submit(np.ones, 1 << 20) for _ in range(4)]]
print(len(mapped()), sum(map(np.sum, arrays)) == 4 << 20)
""",
        DISK,
    )
    assert told.split() == ["4", "True"]


@pytest.mark.parametrize("kept", [0, 8 * MB])
def test_an_analysis_is_the_same_out_of_core(kept: int) -> None:
    """Every array of 4 KB and more is in a file, which hardly any of this small profile's is by itself."""
    text = """
from contextlib import suppress
from npuperf.__main__ import main
if sys.argv[2] != "-":
    assert spill.spill(Path(sys.argv[1]), int(sys.argv[2]), 4096)
sys.argv = ["npuperf", "analyze", sys.argv[3], "--format", "json"]
with suppress(SystemExit):
    main()
print(len(mapped()) if spill.spilling() else "none", file=sys.stderr)
"""
    assert python(text, DISK, kept, SAMPLE) == python(text, DISK, "-", SAMPLE)


@pytest.mark.parametrize(("needed", "room", "allowed", "does"), [
    (10_000 * MB, 8_000 * MB, True, True),
    (10_000 * MB, 8_000 * MB, False, False),  # a program that we are only a part of
    (5_000 * MB, 8_000 * MB, True, False),  # fits
    (100 * MB, 10 * MB, True, False),  # too little to be worth it, whatever there is
])  # fmt: skip
def test_files_are_used_where_memory_is_short(needed: int, room: int, allowed: bool, does: bool) -> None:
    told = python(
        """
needed, room, allowed = map(int, sys.argv[2:])
spill.available = lambda: room
if allowed:
    spill.allow()
print(spill.spill_if_short(needed, [Path("/nowhere"), Path(sys.argv[1])]), spill.spilling())
""",
        DISK, needed, room, int(allowed),
    )  # fmt: skip
    assert told.split() == [str(does)] * 2


# ---- how much there is ----


def group(root: Path, path: str, **files: object) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.mark.parametrize(("line", "root", "limit", "used"), [
    ("0::/jobs/one", "", "memory__max", "anon"),
    ("5:memory:/jobs/one", "memory", "memory__limit_in_bytes", "total_rss"),
    ("3:cpu,cpuacct:/jobs/one", "cpu,cpuacct", "memory__max", None),  # tells nothing of memory
])  # fmt: skip
def test_the_least_of_all_groups_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, root: str, limit: str, used: str | None
) -> None:
    stat = f"file 77\n{used} {1000 * MB}\nother 5"
    group(tmp_path / root, "jobs/one", **{limit: "max", "memory__stat": stat})
    group(tmp_path / root, "jobs", **{limit: 3000 * MB, "memory__stat": stat})
    group(tmp_path / root, "", **{limit: 4000 * MB, "memory__stat": stat})
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "read_input", lambda path: line.encode() if path == "/proc/self/cgroup"
                        else Path(path).read_bytes())  # fmt: skip
    monkeypatch.setattr(memory, "InputError", OSError)
    found = list(memory._left_in_groups())
    assert found == ([2000 * MB, 3000 * MB] if used else [])

"""What the hot passes of ``analyze`` cost, counted rather than timed, so that no busy machine hides or feigns a change.

``costs.json`` has what was counted last. Whoever changes a pass by more than the tolerance, in either direction, looks
why and records it anew: ``make costs``. Calls of our own functions are the same on every machine; instructions are
compared where Python (the very build), its libraries and the processor's kind are those of the record.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from conversion import to_db

RECORD = ROOT / "tests" / "costs.json"
#: Repeated on one machine, calls are equal and instructions differ by 1 %.
TOLERANCE = 0.10
KERNELS = 1_500
LIBRARIES = ("msgspec", "numpy", "pyarrow")
#: Nothing runs beside what is counted, and nothing depends on chance.
STEADY = {
    "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system", "NPUPERF_NO_CACHE": "1",
}  # fmt: skip
CALLGRIND = """
#include <valgrind/callgrind.h>
void look(void) { CALLGRIND_START_INSTRUMENTATION; }
void start(void) { CALLGRIND_ZERO_STATS; }
void stop(void) { CALLGRIND_DUMP_STATS; }
"""


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run as text files and as a database, and a part of its trace with a byte gone in the middle of that.

    Whole, what is damaged would cost four times as much as all else together.
    """
    folder = tmp_path_factory.mktemp("costs")
    text = folder / "text_ascend_pt"
    simulate = [sys.executable, str(ROOT / "benchmarks" / "simulate.py"), str(text), "--preset", "bench"]
    subprocess.run([*simulate, "--kernels", str(KERNELS)], check=True)
    to_db(text, folder / "db")
    trace = bytearray((text / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
    del trace[len(trace) // 60 :]
    del trace[trace.index(b":", len(trace) // 2)]
    (folder / "damaged.json").write_bytes(trace)
    return folder


def count(*command: str) -> Any:
    """Run the passes; return what they print."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | STEADY
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def passes(what: str) -> tuple[str, ...]:
    return sys.executable, str(ROOT / "tests" / "passes.py"), what


def here() -> dict[str, str]:
    """On what instructions depend."""
    libraries = {name: ".".join(version(name).split(".")[:2]) for name in LIBRARIES}
    return {"python": sys.version, "machine": platform.machine(), **libraries}


def hold(kind: str, found: dict[str, int], request: pytest.FixtureRequest) -> None:
    """Hold counts against the record, or record them."""
    record = json.loads(RECORD.read_text("utf-8"))
    if request.config.getoption("--update", default=False):
        record[kind] = found
        if kind == "instructions":
            record["instructions of"] = here()
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        return
    assert differing(found, record[kind]) == [], "see why, then record what must be so: make costs"


def differing(found: dict[str, int], recorded: dict[str, int]) -> list[str]:
    """Name the passes that cost more, or less, than was recorded."""
    assert found.keys() == recorded.keys()
    return [
        f"{name}: {count:,} instead of {recorded[name]:,}, {count / recorded[name] - 1:+.0%}"
        for name, count in found.items()
        if abs(count - recorded[name]) > TOLERANCE * recorded[name]
    ]


def test_differences_are_noticed() -> None:
    recorded = {"a": 1000, "b": 1000, "c": 1000}
    assert differing({"a": 1100, "b": 900, "c": 1000}, recorded) == []
    told = differing({"a": 1101, "b": 899, "c": 1000}, recorded)
    assert [line.split(":")[0] for line in told] == ["a", "b"]


def test_calls_of_our_functions(made_up: Path, request: pytest.FixtureRequest) -> None:
    hold("calls", count(*passes("calls"), str(made_up)), request)


@pytest.mark.long
def test_instructions(made_up: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if shutil.which("valgrind") is None or shutil.which("gcc") is None:
        pytest.skip("needs valgrind and gcc")
    recorded = json.loads(RECORD.read_text("utf-8"))["instructions of"]
    if recorded != here() and not request.config.getoption("--update", default=False):
        pytest.skip(f"instructions were counted with {recorded}, here is {here()}: make costs")
    library = tmp_path / "callgrind.so"
    source = tmp_path / "callgrind.c"
    source.write_text(CALLGRIND)
    built = subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip("needs valgrind's headers")
    valgrind = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={tmp_path / 'dump'}")
    names = count(*valgrind, *passes("instructions"), str(made_up), str(library))
    hold("instructions", {name: total(tmp_path / f"dump.{i}") for i, name in enumerate(names, 1)}, request)


def total(dump: Path) -> int:
    """Read callgrind's sum of a dump."""
    (found,) = re.findall(r"^totals: (\d+)$", dump.read_text(), re.MULTILINE)
    return int(found)

"""What tuned operators are worth in a profile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from build import K, ascend_pt
from msgspec.structs import replace
from workplace import OP, Place, busy_profile, document, entry

from npuperf.tune.savings import read_profiled, savings


def test_savings_count_only_device_bound_time(tmp_path: Path) -> None:
    profiled = read_profiled(busy_profile(tmp_path))
    assert profiled is not None and profiled.usage.steps == 2
    usage = profiled.usage
    assert usage.busiest(5)[0] == "MatMulV2"
    entries = [entry("mm_1", ("MatMulV2",), 100, 60), entry("net/x", ("MatMulV2",), 100, 90),
               entry("add_0", ("Add",), 5, 1), entry("gone", ("Conv2D",), 9, 3)]  # fmt: skip
    rows, total = savings(entries, usage)
    found = {s.name: s for s in rows}
    assert (found["mm_1"].basis, found["mm_1"].calls_per_step, found["mm_1"].least_ns) == ("name", 1.0, 40_000)
    by_type = found["net/x"]
    assert (by_type.basis, by_type.calls_per_step, by_type.least_ns) == ("type", 3.0, 0)  # one of four is mm_1
    assert 0 < by_type.felt_per_step <= 3  # a phase may begin within the last of them
    assert by_type.most_ns == round(10_000 * by_type.felt_per_step)
    assert total == (40_000, 40_000 + by_type.most_ns)
    assert found["add_0"].felt_per_step == 0 and found["add_0"].most_ns == 0
    assert "host-bound" in str(found["add_0"].reason)
    assert found["gone"].basis == "none" and "no such operator" in str(found["gone"].reason)


def test_no_call_is_counted_twice(tmp_path: Path) -> None:
    """Two cases of one type, of which nobody knows which calls are which: each call is worth the better one."""
    profiled = read_profiled(busy_profile(tmp_path))
    assert profiled is not None
    usage = profiled.usage
    felt = [i for i in range(len(usage.dur)) if usage.types[i] == "MatMulV2" and usage.felt[i]]
    cases = [entry("net/x", ("MatMulV2",), 100, 90), entry("net/y", ("matmulv2",), 100, 70)]
    rows, total = savings(cases, usage)
    assert sorted(r.most_ns for r in rows) == [10_000 * len(felt) // 2, 30_000 * len(felt) // 2]
    assert total == (0, 30_000 * len(felt) // 2)
    # A call of 100 µs cannot save 400; strategies may compete (40 at least) or add up (60 at most).
    assert savings([entry("mm_1", ("MatMulV2",), 900, 500)], usage)[1] == (100_000, 100_000)
    times = {"Format": (100, 60), "Schedule": (60, 40)}
    both = [replace(entry("mm_1", (), *t), strategy=strategy) for strategy, t in times.items()]
    assert savings(both, usage)[1] == (40_000, 60_000)
    # Two different times of one operator and strategy: which of them its calls have is not known.
    assert savings([entry("mm_1", (), 100, 60), entry("mm_1", (), 50, 40)], usage)[1] == (0, 40_000)


def test_the_busiest_operators_are_chosen_from_the_profile(place: Place) -> None:
    busy_profile(place.root / "result")
    done = place.run(*OP, "--top", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    names = json.loads((place.runs[-1] / "tune_ops.cfg").read_text())
    assert names == {"tune_ops_type": ["MatMulV2"]}
    found = document(done)
    assert found["step_ns"] > 0
    assert {s["basis"] for s in found["savings"]} == {"type"}
    none = place.run(*OP, "--top", "3", "--run", "elsewhere")
    assert none.returncode == 2 and "npuperf profile" in none.stderr


def test_what_subgraphs_save_per_step_is_not_known(place: Place) -> None:
    busy_profile(place.root / "result")
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", "Ascend310P3", "--fail-on", "saved<1%",
                     FAKE_CANN_SOC="Ascend310P3")  # fmt: skip
    assert done.returncode == 4 and "expected:" not in done.stdout


#: Chooses operators from the profile of the first folder (libraries are loaded when they are first used), then of the
#: second, and prints how many bytes that has read.
COUNT = """
import os, sys
from pathlib import Path
from npuperf.tune.request import TuneRequest
from npuperf.tune.run import run

def read_bytes():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])

for folder in sys.argv[1:]:
    before = read_bytes()
    request = TuneRequest(mode="op", model=Path("net.onnx"), run=Path(folder), top=1, top_given=True, dry_run=True)
    plan = run(request, os.environ, tell=print, progress=print, keep_document=print)
    assert '"MatMulV2"' in plan.ops, plan.ops
print(read_bytes() - before)
"""


def test_a_profile_is_read_once(place: Place) -> None:
    """Bytes that the process reads, by the system's own count: at most a tenth more than the files have."""
    busy_profile(place.root / "small")
    big = [K(i * 100_500, 100_000, f"mm_{i % 300}", "MatMulV2", "AI_CORE", block=20, launch=i * 100_500 - 300_000)
           for i in range(8_000)]  # fmt: skip
    folder = ascend_pt(place.root / "big", big, cores="20,40")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    done = subprocess.run([sys.executable, "-c", COUNT, "small", "big"], cwd=place.root, env=place.environment(),
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert 0.9 * size < int(done.stdout.split()[-1]) < 1.1 * size

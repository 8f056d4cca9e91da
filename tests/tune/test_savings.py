"""What tuned operators are worth in a profile."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from aoe_results import LISTED
from build import H, K, ascend_pt
from msgspec.structs import replace
from workplace import OP, Place, busy_profile, document, entry, said

from npuperf.model.result import WhatIf
from npuperf.tune.savings import Worth, read_profiled, savings


def test_what_would_take_longer_saves_nothing() -> None:
    """Without the type that begins a wait another one may be longer than both were."""
    answers = [
        WhatIf(expr=expr, gain_ns_per_step=(-9, most), span_ns=None, gain_pct=None, gain_pct_interval=None,
               gain_per="step", title=None, asked=True, reason=None, rank=0, device=0)
        for expr, most in (("op:A*0", -2), ("op:B*0", 5), ("op:A*0,op:B*0", -1))
    ]  # fmt: skip
    assert Worth.of(answers, {"op:A*0": "A", "op:B*0": "B"}) == Worth({"A": 0, "B": 5}, 0)


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


def test_what_operators_save_that_are_not_in_the_profile_is_unknown(place: Place) -> None:
    """Neither nothing nor something: a sum of 0 ns would be a claim."""
    profile = busy_profile(place.root / "elsewhere")
    result = place.root / "aoe_result_opat_20260101120000000_pid7.json"
    text = json.dumps(LISTED).replace("[MatMulV2, Add]", "[Conv2D]")
    result.write_text(text)
    call = ("--from", str(result), "--run", str(profile))
    done = place.run(*call)
    assert "predicted saving: cannot tell: no operator that was tuned is in the profile" in said(done)
    found = document(place.run(*call, "--format", "json"))
    assert found["saved_ns"] is None and {s["basis"] for s in found["savings"]} == {"none"}
    gated = place.run(*call, "--fail-on", "saved<1%")
    assert gated.returncode == 4 and "no operator that was tuned is in the profile" in said(gated)
    result.write_text(text.replace("[Conv2D]", "[MatMulV2]"))  # one of them is there
    found = document(place.run(*call, "--format", "json"))
    assert found["saved_ns"] is not None and {s["basis"] for s in found["savings"]} == {"type", "none"}


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


# --- roofs ---------------------------------------------------------------------------------------------------------

#: Inputs and outputs of kernels in BF16, and their counters: all 20 cores work at 1650 MHz for the whole time.
OPERANDS = ("Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats",
            "aicore_time(us)", "aic_total_cycles", "cube_utilization(%)")  # fmt: skip
SHAPES = {"MatMulV2": ("4096,2048;2048,1536", "4096,1536"), "MatMulV3": ("1024,2048;2048,640", "1024,640")}


def with_roofs(root: Path) -> Path:
    """Two steps of four MatMulV2 of 100 us, of which 95.3 are needed, and four MatMulV3 of 50 us, of which 9.9 are.

    2 · 4096 · 2048 · 1536 and 2 · 1024 · 2048 · 640 FLOP at 20 · 1650e6 · 8192 a second; then the host waits for them,
    and three Add for the host.
    """
    kernels, clock = [], 0
    host = [H("x", 0, 10)]
    for step in range(2):
        for type_, dur in (("MatMulV2", 100_000), ("MatMulV3", 50_000)):
            for i in range(4):
                kernels.append(K(clock, dur, f"{type_}_{i}", type_, "AI_CORE", 2, 20, 0, step, clock - 300_000,
                                 shapes=SHAPES[type_][0]))  # fmt: skip
                clock += dur + 500
        host.append(H("AscendCL@aclrtSynchronizeStream", clock - 340_000, 340_000 - 500))
        for i in range(3):
            clock += 400_000
            kernels.append(K(clock, 5_000, f"add_{i}", "Add", "AI_VECTOR_CORE", 2, 40, 0, step, clock - 8_000))
            clock += 5_000
    folder = ascend_pt(root, kernels, {0: (0, clock // 2), 1: (clock // 2, clock)}, cores="20,40", host=host)
    (table,) = folder.rglob("kernel_details.csv")
    header, *lines = table.read_text().splitlines()
    rows = [f"{header},{','.join(OPERANDS)}"]
    for kernel, line in zip(kernels, lines, strict=True):
        us = kernel.dur / 1000
        more = (*("N/A",) * 5, 0, 0, 0)
        if kernel.type in SHAPES:
            out = f'"{SHAPES[kernel.type][1]}"'
            more = ("DT_BF16;DT_BF16", "ND;ND", out, "DT_BF16", "ND", us, round(us * 1650 * 20), 100)
        rows.append(f"{line},{','.join(map(str, more))}")
    table.write_text("\r\n".join(rows) + "\r\n", newline="")
    return folder


def test_operators_are_chosen_by_what_can_be_won(place: Place) -> None:
    """4 · (50 - 9.93) of 1,819 us, and not the longer ones, of which 4 · (100 - 95.33) can be won."""
    with_roofs(place.root / "result")
    done = place.run(*OP, "--top", "1", "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    plan = document(done)
    assert json.loads(plan["ops"]) == {"tune_ops_type": ["MatMulV3"]}
    (check,) = [c for c in plan["checks"] if c["name"] == "operators"]
    assert check["found"] == "as fast as the chip can run them the step is shorter by at most: MatMulV3 8.8 %"


def test_what_can_be_won_ends_at_the_roof(tmp_path: Path) -> None:
    """With a replay, and without one, where time counts that neither the host nor communication bounds."""
    profiled = read_profiled(with_roofs(tmp_path), asked=lambda types: types)
    assert profiled is not None
    roofs = {"MatMulV2": 2 * 4096 * 2048 * 1536 / 270.336e3, "MatMulV3": 2 * 1024 * 2048 * 640 / 270.336e3}
    won = {"MatMulV3": 4 * (50_000 - roofs["MatMulV3"]), "MatMulV2": 4 * (100_000 - roofs["MatMulV2"])}
    found = profiled.usage.at_most()
    assert list(found) == ["MatMulV3", "MatMulV2", "Add"]
    assert all(0 <= won[type_] - found[type_] < 10 for type_ in won)
    assert found["Add"] <= 15_000  # no roof: all of its time, as far as the step feels it
    adds = profiled.usage.types.flag([name == "Add" for name in profiled.usage.types.names])
    alone = dataclasses.replace(profiled.usage, worth=Worth(), felt=adds)
    assert alone.at_most() == {"Add": 15_000}


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
    big = [K(i * 100_500, 100_000, f"mm_{i % 300}", "MatMulV2", "AI_CORE", block=20, launch=i * 10_000 - 300_000)
           for i in range(8_000)]  # fmt: skip
    folder = ascend_pt(place.root / "big", big, cores="20,40")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    done = subprocess.run([sys.executable, "-c", COUNT, "small", "big"], cwd=place.root, env=place.environment(),
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert 0.9 * size < int(done.stdout.split()[-1]) < 1.1 * size


# --- operators that run beside something longer --------------------------------------------------------------------


def beside_an_allreduce(root: Path, alone: int) -> Path:
    """Two steps: an all-reduce of 1,000 us, beside it two MatMulV3 of 900 us, after it a MatMulV2 of ``alone`` ns.

    MatMulV2 and all-reduce are on one stream, each MatMulV3 on another. Everything is launched 3 ms before it starts.
    """
    kernels, clock = [], 0
    for step in range(2):
        at = clock - 3_000_000
        reduce = K(clock, 1_000_000, "hcom_allReduce__1_1", "hcom_allReduce_", "HCCL", 5, step=step, launch=at)
        beside = [
            K(clock + 1_000 * stream, 900_000, f"big_{stream}", "MatMulV3", "AI_CORE", stream, 10, step=step,
              launch=at + 1_000 * stream)
            for stream in (3, 6)
        ]  # fmt: skip
        after = K(clock + 1_000_500, alone, "mm_1", "MatMulV2", "AI_CORE", 5, 20, step=step, launch=at + 9_000)
        kernels += [reduce, *beside, after]
        clock += 1_001_000 + alone
    return ascend_pt(root, kernels, cores="20,40", host=[H("x", 0, 10)])


def test_operators_under_a_collective_are_not_worth_tuning(place: Place) -> None:
    """Per step 1.8 ms of MatMulV3 save nothing, 1.5 ms of MatMulV2 all of their time: 1.5 of 2.501 ms."""
    beside_an_allreduce(place.root / "result", 1_500_000)
    done = place.run(*OP, "--top", "2", "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    plan = document(done)
    assert json.loads(plan["ops"]) == {"tune_ops_type": ["MatMulV2"]}
    (check,) = [c for c in plan["checks"] if c["name"] == "operators"]
    assert check["status"] == "ok" and check["found"].endswith("shorter by at most: MatMulV2 60.0 %")


def test_tuning_stops_where_the_step_would_not_feel_it(place: Place) -> None:
    """Of 1.006 ms, 5 us are not beside the all-reduce: half a percent, whatever is tuned."""
    beside_an_allreduce(place.root / "result", 5_000)
    done = place.run(*OP, "--top", "2", "--dry-run")
    assert done.returncode == 2 and "tuning would not shorten the step" in done.stderr
    assert "--ops tunes anyway" in done.stderr


def test_what_was_tuned_saves_no_more_than_the_step_feels(tmp_path: Path) -> None:
    """Both kinds were made twice as fast: the step is 750 us shorter, which the MatMulV3 have no part in."""
    profiled = read_profiled(beside_an_allreduce(tmp_path, 1_500_000), asked=lambda types: types)
    assert profiled is not None
    cases = [entry("big_3", ("MatMulV3",), 900, 450), entry("mm_1", ("MatMulV2",), 1_500, 750)]
    rows, total = savings(cases, profiled.usage)
    found = {row.name: row for row in rows}
    assert (found["big_3"].least_ns, found["big_3"].most_ns) == (0, 0)
    assert "the step is shorter by 0 ns" in str(found["big_3"].reason)
    assert found["mm_1"].most_ns == 750_000
    assert total[1] <= 1_500_000
    for most in (750_000, 749_999):  # only the latter says more than the tuning does
        (row,), _ = savings(cases[1:], dataclasses.replace(profiled.usage, worth=Worth({"MatMulV2": most}, most)))
        assert (row.most_ns, row.reason is None) == (most, most == 750_000)


def test_it_is_replayed_what_was_tuned(place: Place) -> None:
    """Two MatMulV3 a step are 4 us shorter, and no step is; Add and SoftmaxV2, which are not there, save nothing."""
    profile = beside_an_allreduce(place.root / "elsewhere", 1_500_000)
    result = place.root / "aoe_result_opat_20260101120000000_pid7.json"
    result.write_text(json.dumps(LISTED).replace("MatMulV2", "MatMulV3"))
    found = document(place.run("--from", str(result), "--run", str(profile), "--format", "json"))
    assert found["saved_ns"] == [0, 0]
    assert "the step is shorter by 0 ns" in str([one["reason"] for one in found["savings"] if one["basis"] == "type"])


def test_a_host_bound_program_is_not_tuned(place: Place) -> None:
    """The sample's matrix products take a fifth of its step and cost it nothing: the next launch comes no sooner."""
    sample = Path(__file__).resolve().parents[2] / "samples" / "transformer_ascend_pt"
    done = place.run(*OP, "--top", "3", "--dry-run", "--run", str(sample))
    assert done.returncode == 2 and "tuning would not shorten the step" in done.stderr

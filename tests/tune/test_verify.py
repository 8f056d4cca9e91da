"""The same program profiled without and with the bank."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from build import K, ascend_pt
from preloaded import Loaded

from npuperf.tune.savings import Profiled, read_profiled
from npuperf.tune.verify import compare

#: Cube kernels are faster with a bank that has records, as the device would make them.
TRAIN = """
import atexit, os, pathlib
tuned = any(pathlib.Path(os.environ["TUNE_BANK_PATH"]).rglob("*_runtime_kb.json"))
os.environ["FAKE_CANN_CUBE_US"] = os.environ["TUNED_US"] if tuned else "9000"
import torch
torch.npu.set_device(0)
atexit.register(torch.npu.synchronize)
model = torch.nn.Linear(64, 64).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(30):
    model(torch.randn(16, 64).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.npu.synchronize()
"""


def test_the_gain_is_verified_with_two_profiles(loaded: Loaded, tmp_path: Path) -> None:
    """A tuning run, then --verify: the program with the bank from before, and with the bank as it is."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "net.onnx").touch()
    environment = {**loaded, "HOME": str(tmp_path), "FAKE_AOE_SECONDS": "0.1", "TUNED_US": "3000"}

    def tune(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "npuperf", "tune", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = tune("--mode", "op", "--model", "net.onnx")
    assert done.returncode == 0, done.stderr
    arguments = ("--verify", "--fail-on", "regression>3%", "--format", "json", "--", loaded.python(), "train.py")
    done = tune(*arguments)
    if "terminate called without an active exception" in done.stderr:  # see test_profile_npu
        done = tune(*arguments)
    found = json.loads(done.stdout)
    assert found["verification"]["samples"] == [10, 10]
    waterfall = found["verification"]["waterfall"]
    assert sum(part["delta_ns"] for part in waterfall) == found["verification"]["delta_ns"]
    step = next(r for r in found["verification"]["rows"] if r["kind"] == "step")
    (gate,) = found["gates"]
    assert gate["value"] == pytest.approx(100 * (step["new_ns"] - step["old_ns"]) / step["old_ns"])
    assert done.returncode == {"pass": 0, "fail": 1, "cannot_tell": 4}[gate["status"]], done.stderr
    rows = {r["name"]: r for r in found["verification"]["rows"]}
    for cube in (rows["MatMul"], rows["MatMulV3"]):  # once a step
        assert (cube["verdict"], cube["count"]) == ("better", 10)
        assert cube["old_ns"] == pytest.approx(9_000_000, rel=0.05)
        assert cube["new_ns"] == pytest.approx(3_000_000, rel=0.05)
    # A busy machine holds steps up by more than that, and then nothing can be told of them, or something else.
    if found["verification"]["delta_ns"] == pytest.approx(-12_000_000, rel=0.1):
        assert found["verification"]["verdict"] == "better" and found["verification"]["interval_ns"][1] < 0
        assert waterfall[0]["key"].startswith("MatMul") and gate["status"] == "pass"
    assert list(tmp_path.glob("result/tune/*/verification.json"))


US, MS = 1_000, 1_000_000
#: Eight steps of 10 ms, and what chance adds to each: 0.1 ms at most.
CHANCE = [0, 60 * US, -90 * US, 30 * US, -40 * US, 100 * US, -70 * US, 10 * US]


def steps_of(root: Path, matmul: list[int], pause: int | list[int]) -> Profiled:
    """A profile of steps with one MatMulV2 each and a pause after it; in the last one something ends the pause."""
    kernels, clock = [], 0
    pauses = [pause] * len(matmul) if isinstance(pause, int) else pause
    for step, (dur, rest) in enumerate(zip(matmul, pauses, strict=True)):
        kernels.append(K(clock, dur, "mm_1", "MatMulV2", "AI_CORE", 2, 20, 0, step, clock - 500_000))
        clock += dur + rest
    kernels.append(K(clock - 1_000, 1_000, "end", "Add", "AI_VECTOR_CORE", 2, 40, 0, len(matmul) - 1, clock - 500_000))
    profiled = read_profiled(ascend_pt(root, kernels, cores="20,40"))
    assert profiled is not None
    return profiled


def around(mean: int) -> list[int]:
    return [mean + chance for chance in CHANCE]


@pytest.mark.parametrize(
    ("before", "after", "verdict", "operator"),
    [
        (around(10 * MS), around(8 * MS), "better", "better"),
        (around(10 * MS), around(13 * MS), "worse", "worse"),
        (around(10 * MS), around(10 * MS), "same", "same"),
        ([10 * MS] * 8, [8 * MS] * 8, "better", "better"),
        ([10 * MS] * 8, [10 * MS + 20 * US] * 8, "same", "same"),  # within a percent
        ([8 * MS, 12 * MS] * 4, [9 * MS, 11 * MS] * 4, "cannot_tell", "cannot_tell"),
    ],
)
def test_verdicts(before: list[int], after: list[int], verdict: str, operator: str, tmp_path: Path) -> None:
    """Chance moves steps by a percent at most, what is planted by twenty; or by a fifth, and nothing is planted."""
    found = compare(steps_of(tmp_path / "a", before, 10_000), steps_of(tmp_path / "b", after, 10_000), None)
    assert found.verdict == verdict
    assert found.rows[0] is found.step
    (matmul,) = [row for row in found.rows if row.name == "MatMulV2"]
    assert (matmul.verdict, matmul.old_ns, matmul.new_ns) == (operator, sum(before) // 8, sum(after) // 8)
    assert matmul.count == 8 and found.samples == (8, 8)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_few_steps_tell_nothing_and_it_is_said_why(steps: int, tmp_path: Path) -> None:
    """Whatever they differ by: five on each side are the least that tell it from chance."""
    first, second = (steps_of(tmp_path / str(dur), [dur] * steps, 10_000) for dur in (10 * MS, 5 * MS))
    found = compare(first, second, None)
    assert {found.verdict, *(row.verdict for row in found.rows if row.old_ns != row.new_ns)} == {"cannot_tell"}
    assert found.interval_ns is None and found.step is not None and found.step.noise_ns is None
    assert "too few steps to tell" in str(found.reason) and "TUNE_BANK_PATH" in str(found.reason)


def test_the_waterfall_explains_the_mean_step(tmp_path: Path) -> None:
    """Seven of eight steps lose 2 ms of MatMulV2, and one gains 6 ms: 1 ms on average, 2 ms in the middle."""
    before, after = [10 * MS] * 8, [8 * MS] * 7 + [16 * MS]
    found = compare(steps_of(tmp_path / "a", before, 10_000), steps_of(tmp_path / "b", after, 10_000), None)
    assert (found.delta_ns, sum(part.delta_ns for part in found.waterfall)) == (-MS, -MS)
    assert found.old_median_ns is not None and found.new_median_ns is not None
    assert found.new_median_ns - found.old_median_ns == -2 * MS
    (first, *_) = found.waterfall
    assert (first.part, first.delta_ns, first.count_ns) == ("compute", -MS, 0)
    assert str(first.key).startswith("MatMulV2")


def test_a_faster_operator_that_the_step_does_not_feel(tmp_path: Path) -> None:
    """Steps last 10 ms whatever the operator takes."""
    sides = [around(dur) for dur in (4 * MS, 2 * MS)]
    first, second = (steps_of(tmp_path / str(i), of, [10 * MS - dur for dur in of]) for i, of in enumerate(sides))
    found = compare(first, second, None)
    assert found.verdict == "same" and "operators became faster, the step did not" in str(found.reason)
    (matmul,) = [row for row in found.rows if row.name == "MatMulV2"]
    assert (matmul.verdict, matmul.saved_ns) == ("better", 2 * MS)


def test_a_call_is_judged_by_its_mean_in_each_step(tmp_path: Path) -> None:
    """Two calls a step, of 1 and 9 ms, become 0.5 and 9 ms: 5 and 4.75 ms on average, in every step the same."""
    first, second = (steps_of(tmp_path / str(short), [short, 9 * MS] * 8, 10_000) for short in (MS, MS // 2))
    sides = [replace(side, usage=replace(side.usage, step=side.usage.step // 2)) for side in (first, second)]
    (matmul, *_) = [row for row in compare(sides[0], sides[1], None).rows if row.name == "MatMulV2"]
    assert (matmul.old_ns, matmul.new_ns, matmul.verdict) == (5 * MS, 4_750_000, "better")

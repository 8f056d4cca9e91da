"""The same program profiled without and with the bank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from build import K, ascend_pt

from npuperf.tune.verify import Profiled, compare, read_profiled

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


def test_the_gain_is_verified_with_two_profiles(npu: dict[str, str], tmp_path: Path) -> None:
    """A tuning run, then --verify: the program with the bank from before, and with the bank as it is."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "net.onnx").touch()
    environment = {**npu, "HOME": str(tmp_path), "FAKE_AOE_SECONDS": "0.1", "TUNED_US": "3000"}

    def tune(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "npuperf", "tune", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = tune("--mode", "op", "--model", "net.onnx")
    assert done.returncode == 0, done.stderr
    arguments = ("--verify", "--fail-on", "regression>3%", "--format", "json", "--", sys.executable, "train.py")
    done = tune(*arguments)
    if "terminate called without an active exception" in done.stderr:  # see test_profile_npu
        done = tune(*arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verification"]["verdict"] == "better"
    step = next(r for r in found["verification"]["rows"] if r["kind"] == "step")
    (gate,) = found["gates"]
    assert gate["value"] == pytest.approx(100 * (step["new_ns"] - step["old_ns"]) / step["old_ns"])
    assert gate["value"] < 0
    cube = {r["name"]: r for r in found["verification"]["rows"]}["MatMulV3"]
    assert cube["old_ns"] == pytest.approx(9_000_000, rel=0.05)
    assert cube["new_ns"] == pytest.approx(3_000_000, rel=0.05)
    assert list(tmp_path.glob("result/tune/*/verification.json"))


def steps_of(root: Path, matmul: list[int], pause: int) -> Profiled:
    """A profile of steps with one MatMulV2 each and a pause after it; in the last one something ends the pause."""
    kernels, clock = [], 0
    for step, dur in enumerate(matmul):
        kernels.append(K(clock, dur, "mm_1", "MatMulV2", "AI_CORE", 2, 20, 0, step, clock - 500_000))
        clock += dur + pause
    kernels.append(K(clock - 1_000, 1_000, "end", "Add", "AI_VECTOR_CORE", 2, 40, 0, len(matmul) - 1, clock - 500_000))
    return read_profiled(ascend_pt(root, kernels, cores="20,40"))


@pytest.mark.parametrize(
    ("before", "after", "verdict", "operator"),
    [
        ([100_000] * 4, [80_000] * 4, "better", "better"),
        ([100_000] * 4, [130_000] * 4, "worse", "worse"),
        ([100_000, 90_000, 110_000, 100_000], [99_000, 91_000, 108_000, 99_000], "same", "same"),
    ],
)
def test_verdicts(before: list[int], after: list[int], verdict: str, operator: str, tmp_path: Path) -> None:
    """Means and twice the standard error of their difference, by hand: equal steps have no noise."""
    found = compare(steps_of(tmp_path / "a", before, 10_000), steps_of(tmp_path / "b", after, 10_000), None)
    assert found.verdict == verdict
    assert found.rows[0] is found.step
    (matmul,) = [row for row in found.rows if row.name == "MatMulV2"]
    assert (matmul.verdict, matmul.old_ns, matmul.new_ns) == (operator, sum(before) // 4, sum(after) // 4)


def test_a_faster_operator_that_the_step_does_not_feel(tmp_path: Path) -> None:
    """Steps last 1 ms whatever the operator takes."""
    first, second = (
        steps_of(tmp_path / str(dur), [dur] * 4, 1_000_000 - dur) for dur in (100_000, 50_000)
    )  # fmt: skip
    found = compare(first, second, None)
    assert found.verdict == "same" and "operators became faster, the step did not" in str(found.reason)

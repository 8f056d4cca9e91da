"""What the real torch_npu writes, over the CANN stand-in: the simulated device tells the truth to compare with."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from npuperf.model.result import Device, Result
from npuperf.pipeline import analyze_path

STUB = Path(__file__).parent / "cann_stub"
LAUNCH_US = 11
SCRIPT = """
import sys
import torch, torch_npu
from torch_npu.profiler import (ExportType, ProfilerLevel, AiCMetrics, _ExperimentalConfig, profile, schedule,
                                tensorboard_trace_handler)

def forward(model, x):
    return model(x).sum()

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).npu()
level = getattr(ProfilerLevel, sys.argv[2])
metrics = AiCMetrics.PipeUtilization if sys.argv[2] == "Level1" else AiCMetrics.AiCoreNone
config = _ExperimentalConfig(profiler_level=level, aic_metrics=metrics)
if __name__ == "__main__":
    with profile(schedule=schedule(wait=10, warmup=1, active=2, repeat=1), with_stack=True,
                 on_trace_ready=tensorboard_trace_handler(sys.argv[1]), experimental_config=config) as p:
        for step in range(14):
            for _ in range(4):
                forward(model, torch.randn(16, 64).npu()).backward()
            p.step()
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_npu") is None or shutil.which("gcc") is None,
    reason="needs torch_npu and gcc (pip install '.[dev]')",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("cann")
    build = [sys.executable, str(STUB / "build.py"), "--python", sys.executable, "--out", str(out)]
    subprocess.run(build, check=True, capture_output=True)
    stub = json.loads((out / "env.json").read_text())
    search = stub["PATH"] + os.pathsep + os.environ["PATH"]
    return {**os.environ, **stub, "PATH": search, "FAKE_CANN_LAUNCH_US": str(LAUNCH_US)}


def record(environment: dict[str, str], folder: Path, level: str, cube_us: float, vector_us: float) -> Path:
    """Profile the script on a device whose kernels take this long."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    durations = {"FAKE_CANN_CUBE_US": str(cube_us), "FAKE_CANN_VECTOR_US": str(vector_us)}
    command = [sys.executable, str(script), str(folder / "out"), level]
    subprocess.run(command, check=True, capture_output=True, env={**environment, **durations}, timeout=300)
    (found,) = (folder / "out").iterdir()
    return found


@pytest.fixture(scope="module")
def small(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(environment, tmp_path_factory.mktemp("small"), "Level1", 3, 2)


@pytest.fixture(scope="module")
def large(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(environment, tmp_path_factory.mktemp("large"), "Level1", 2000, 1000)


def only_device(result: Result) -> Device:
    (device,) = result.devices
    return device


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_small_kernels_are_host_bound(small: Path) -> None:
    result = analyze_path(small)
    assert (result.verdict.bound, result.verdict.basis) == ("host", "measured")
    assert result.input.lost == []


def test_large_kernels_are_compute_bound(large: Path) -> None:
    result = analyze_path(large)
    assert (result.verdict.bound, result.verdict.basis) == ("compute", "measured")
    assert [f.rule for f in result.findings if f.status == "problem"] == []


def test_launch_latency_is_the_device_s_own(small: Path) -> None:
    clock = only_device(analyze_path(small)).clock
    assert abs(clock.launch_latency_ns - LAUNCH_US * 1000) <= 50
    assert clock.skew_ns == 0
    assert clock.launches == clock.tasks


def test_every_kernel_is_read(small: Path) -> None:
    result = analyze_path(small)
    rows = rows_of(small)
    assert sum(o.count for o in result.operators) == len(rows) > 100
    total = sum(round(float(row["Duration(us)"]) * 1000) for row in rows)
    assert sum(o.total_ns for o in result.operators) == total


def test_steps_and_cores_come_from_the_profile(small: Path) -> None:
    device = only_device(analyze_path(small))
    assert [s.step for s in device.steps] == sorted({int(row["Step Id"]) for row in rows_of(small)})
    assert (device.cores_cube, device.cores_vector, device.cores.source) == (20, 40, "info.json.0")


def test_kernels_lead_to_the_code_line(small: Path) -> None:
    lines = {o.where for o in analyze_path(small).operators}
    assert any(line and "train.py:" in line for line in lines)


def test_level0_still_gives_a_measured_verdict(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = record(environment, tmp_path_factory.mktemp("level0"), "Level0", 3, 2)
    result = analyze_path(folder)
    assert (result.verdict.bound, result.verdict.basis) == ("host", "measured")


def test_raw_data_names_the_export(small: Path, tmp_path: Path) -> None:
    from npuperf.errors import InputError

    raw = tmp_path / small.name
    shutil.copytree(small, raw)
    shutil.rmtree(raw / "ASCEND_PROFILER_OUTPUT")
    for exported in raw.glob("PROF_*/mindstudio_profiler_output"):
        shutil.rmtree(exported)
    with pytest.raises(InputError, match="never exported") as caught:
        analyze_path(raw)
    assert f"analyse('{raw}')" in str(caught.value)

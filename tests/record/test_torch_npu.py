"""What the real torch_npu writes, over the CANN stand-in: the simulated device tells the truth to compare with."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import made_once
from npu_runs import TORCH, WITH_OPTIMIZERS
from preloaded import Loaded

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Device, Result

LAUNCH_US = 11
SCRIPT = f"""
import sys
{TORCH}
import torch_npu
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
            for _ in range(4 if step > 8 else 1):
                forward(model, torch.randn(16, 64).npu()).backward()
            if step == 10:  # or the first copy waits for kernels that are not recorded, in a call that is not, either
                torch.npu.synchronize()
            p.step()
"""


def recorded_once(
    loaded: Loaded, factory: pytest.TempPathFactory, name: str, level: str, cube_us: float,
    vector_us: float, source: str = SCRIPT,
) -> Path:  # fmt: skip
    """Profile the script, once for all tests, on a device whose kernels take this long."""

    def record(folder: Path) -> None:
        script = folder / "train.py"
        script.write_text(source)
        durations = {
            "FAKE_CANN_LAUNCH_US": str(LAUNCH_US),
            "FAKE_CANN_CUBE_US": str(cube_us),
            "FAKE_CANN_VECTOR_US": str(vector_us),
        }
        command = [loaded.python(), str(script), str(folder / "out"), level]
        subprocess.run(command, check=True, capture_output=True, env={**loaded, **durations}, timeout=300)

    (found,) = (made_once(factory, name, record) / "out").iterdir()
    return found


@pytest.fixture(scope="module")
def small(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_once(loaded, tmp_path_factory, "small", "Level1", 3, 2)


@pytest.fixture(scope="module")
def large(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_once(loaded, tmp_path_factory, "large", "Level1", 16000, 8000)


def analyze_path(path: Path) -> Result:
    return run(AnalyzeRequest(path=path))


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
    """Unless a busy machine has held the host up: it is ahead by one copy to the device, which no call tells.

    Then it may be host-bound, where much of the time is idle (test_verdict).
    """
    result, rows = analyze_path(large), rows_of(large)
    compute, host = (gained(large, rows, waits=False, **faster) for faster in ({"device": "0.9"}, {"host": "0.9"}))
    assert result.verdict.basis == "measured" and result.verdict.elasticity is not None
    assert result.verdict.elasticity.compute == pytest.approx(compute, abs=0.02)
    assert result.verdict.elasticity.host == pytest.approx(host, abs=0.02)
    if compute > host + 0.04:
        assert result.verdict.bound == "compute"
        # The program computes in FP32, and the stand-in's kernels are not eligible.
        problems = {f.rule for f in result.findings if f.status == "problem"}
        assert problems - {"host_pauses", "uneven_host"} == {"fp32_products"}


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
    # On a busy machine a kernel may run between two steps: torch_npu gives it none.
    assert [s.step for s in device.steps] == sorted({int(s) for row in rows_of(small) if (s := row["Step Id"])})
    assert (device.cores_cube, device.cores_vector, str(device.cores.source)) == (20, 40, "info.json.0")


def test_kernels_lead_to_the_code_line(small: Path) -> None:
    lines = {o.where for o in analyze_path(small).operators}
    assert any(line and "train.py:" in line for line in lines)


def test_level0_still_gives_a_measured_verdict(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> None:
    result = analyze_path(recorded_once(loaded, tmp_path_factory, "level0", "Level0", 3, 2))
    assert (result.verdict.bound, result.verdict.basis) == ("host", "measured")


READING = f"""
import sys
{WITH_OPTIMIZERS}
import torch_npu
from torch_npu.profiler import (AiCMetrics, ProfilerLevel, _ExperimentalConfig, profile, schedule,
                                tensorboard_trace_handler)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = _ExperimentalConfig(profiler_level=ProfilerLevel.Level1, aic_metrics=AiCMetrics.PipeUtilization)

def train(passes, x):
    for _ in range(passes):
        loss = model(x).sum()
        loss.backward()
    optimizer.step()
    return loss.item()

if __name__ == "__main__":
    with profile(schedule=schedule(wait=10, warmup=1, active=3, repeat=1), with_stack=True,
                 on_trace_ready=tensorboard_trace_handler(sys.argv[1]), experimental_config=config) as p:
        for step in range(15):
            train(6 if step > 8 else 1, torch.randn(16, 64).npu())
            p.step()
"""


@pytest.fixture(scope="module")
def reading(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Every step ends with .item(); kernels of 4 and 6 ms keep the device busy, however slow the host is.

    After three of them the host is 10 ms ahead, which a busy machine may take from it at a time.
    """
    return analyze_path(recorded_once(loaded, tmp_path_factory, "reading", "Level1", 6000, 4000, READING))


def test_item_every_step_is_blamed_with_its_line(reading: Result) -> None:
    device = only_device(reading)
    line = 1 + READING.split("return loss.item()")[0].count("\n")
    (site,) = device.syncs
    assert (site.torch_op, site.count, len(device.steps)) == ("aten::item", 3, 3)
    assert site.where is not None and site.where.endswith(f"train.py:{line} train")
    assert site.idle_ns > 0 and site.gain_ns_per_step is not None and site.gain_ns_per_step[1] > 0


def gained(
    folder: Path, rows: list[dict[str, str]], *, device: str = "1", host: str = "1", waits: bool = True
) -> float:
    """Return by how much the run is shorter, of its tenth, if kernels or what the host does take that part of the time.

    The host issues each kernel as late as it was recorded. ``waits``: it begins a step when the kernels before it have
    ended, as its ``.item()`` waits for them.
    """
    trace = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    arrows = [e for e in trace if e.get("cat") == "HostToDevice"]
    issued = {e["id"]: Decimal(e["ts"]) for e in arrows if e["ph"] == "s"}
    issued_of = {Decimal(e["ts"]): issued[e["id"]] for e in arrows if e["ph"] == "f"}
    first = min(Decimal(e["ts"]) for e in trace if e["name"].startswith("ProfilerStep#") and e["ph"] == "X")
    step, recorded, faster = "", Decimal(0), Decimal(0)
    for row in rows:
        start, duration = Decimal(row["Start Time(us)"].strip()), Decimal(row["Duration(us)"])
        if row["Step Id"] != step:
            step, earlier = row["Step Id"], recorded - faster if waits else Decimal(0)
        sooner = (issued_of[start] - first) * (1 - Decimal(host))
        faster = max(faster, issued_of[start] - sooner + LAUNCH_US - earlier) + duration * Decimal(device)
        recorded = start + duration
    return float((recorded - faster) / (recorded - first) * 10)


def test_the_replay_holds_for_the_real_task_queue(reading: Result) -> None:
    """The device is busy but between a step's .item() and the next step's first kernel, and where the host is late."""
    device = only_device(reading)
    assert device.replay is not None and device.replay.usable and device.replay.error <= 0.001
    assert reading.verdict.elasticity is not None
    folder = Path(reading.input.path)
    expected = gained(folder, rows_of(folder), device="0.9")
    assert reading.verdict.elasticity.compute == pytest.approx(expected, abs=0.02)
    assert reading.verdict.basis == "measured"
    if expected > 0.5:  # or the machine was so busy that the host is what the device waits for
        assert reading.verdict.bound == "compute"
    assert sum(b.ns for b in device.blame) == device.window.host_wait_ns


def test_phases_name_forward_backward_and_optimizer(reading: Result) -> None:
    labels = {str(p.label) for p in only_device(reading).phases}
    assert any("forward" in label and "backward" in label for label in labels), labels


def test_every_launch_leads_to_its_operator(reading: Result) -> None:
    """torch_npu's own arrows leave some out; the task queue's lead there as well."""
    assert all(o.torch_op for o in reading.operators)


def test_raw_data_names_the_export(small: Path, tmp_path: Path) -> None:
    from npuperf.base.errors import InputError

    raw = tmp_path / small.name
    shutil.copytree(small, raw)
    shutil.rmtree(raw / "ASCEND_PROFILER_OUTPUT")
    for exported in raw.glob("PROF_*/mindstudio_profiler_output"):
        shutil.rmtree(exported)
    with pytest.raises(InputError, match="never exported") as caught:
        analyze_path(raw)
    assert f"npuperf profile --export {raw}" in str(caught.value)

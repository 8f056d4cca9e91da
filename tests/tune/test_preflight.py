"""Every condition for tuning, by the vendor's guides."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, run_cli
from workplace import OP, SOC, Place, bank, record, said

from npuperf.model.tuning import Check
from npuperf.tune import preflight
from npuperf.tune.request import Dump, ModelFile, Script, SingleOperators, TuningJob


def checks(job: TuningJob, machine: preflight.TuningHost | None = None, **environment: str) -> dict[str, Check]:
    nothing = preflight.TuningHost(None, None, None, None, None)
    return {c.name: c for c in preflight.check(job, machine or nothing, environment, Path.home() / "bank")}


MODEL = ModelFile(Path("/net.onnx"))


@pytest.mark.parametrize(
    ("soc", "mode", "status"),
    [
        ("Ascend910B3", "op", "ok"), ("Ascend910B3", "subgraph", "fail"), ("Ascend910_9391", "subgraph", "fail"),
        ("Ascend310P3", "subgraph", "ok"), ("Ascend910A", "subgraph", "ok"), ("Ascend950PR_9599", "op", "fail"),
        (None, "op", "unknown"),
    ],
)  # fmt: skip
def test_products_and_their_tuning(soc: str | None, mode: str, status: str) -> None:
    found = checks(TuningJob(mode, MODEL), preflight.TuningHost(soc, None, None, None, None))["product"]  # type: ignore[arg-type]
    assert (found.status, found.hard) == (status, True)


@pytest.mark.parametrize(("source", "status"), [(MODEL, "ok"), (Script(("t.py",), adapter=True), "fail")])
def test_only_models_are_tuned_on_the_small_chip(source: ModelFile | Script, status: str) -> None:
    machine = preflight.TuningHost("Ascend310B1", None, None, None, None)
    assert checks(TuningJob("op", source), machine)["product"].status == status


def test_cpu_formulas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CANN 9.0's guide: with the defaults 75 cores for operators of a model, 83 with --model_path, 25 for subgraphs;
    TensorFlow 74 and 24.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    script = Script(("python3", "t.py"), adapter=True)
    cases = [(TuningJob("op", MODEL), 75), (TuningJob("op", Dump(tmp_path)), 83), (TuningJob("subgraph", MODEL), 25),
             (TuningJob("op", script), 74), (TuningJob("subgraph", script), 24)]  # fmt: skip
    for job, need in cases:
        found = checks(job)["CPU cores"]
        assert str(found.required).startswith(f"{need} CPU cores"), (job, found)
        assert found.status == ("ok" if need <= 64 else "warn") and not found.hard
    assert checks(TuningJob("op", MODEL, parallel=4))["CPU cores"].required.parameters["need"] == 71


def test_every_other_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = TuningJob("op", Script(("python3", "train.py"), adapter=False))
    dynamic = preflight.TuningHost(SOC, 20, 1.0, None, 24)
    found = checks(job, dynamic, PROFILING_MODE="dynamic", GE_USE_STATIC_MEMORY="1", WORLD_SIZE="8",
                   CPU_AFFINITY_CONF="1", TE_PARALLEL_COMPILER="64", TUNE_BANK_PATH="/nowhere")  # fmt: skip
    wrong = {name for name, c in found.items() if c.status in ("warn", "fail")}
    assert wrong >= {
        "profiling", "static memory", "single device", "CPU binding", "compilers", "device cores", "shapes",
        "bank path", "CANN environment",
    }  # fmt: skip
    hard = {"product", "shapes", "bank path", "device", "single device"}
    assert {name for name, c in found.items() if c.hard} == hard
    fine = checks(
        job, preflight.TuningHost(SOC, 24, 0.0, None, 24), ASCEND_HOME_PATH="/cann", TUNE_BANK_PATH=str(tmp_path)
    )
    assert {fine[n].status for n in ("shapes", "bank path", "device cores", "CANN environment")} == {"ok"}
    assert fine["profiling"].status == fine["static memory"].status == "unknown"  # the program may say otherwise
    assert checks(TuningJob("op", MODEL))["profiling"].status == "ok"
    assert (
        checks(TuningJob("op", MODEL), GE_USE_STATIC_MEMORY="0")["static memory"].status == "warn"
    )  # unset is required
    some = checks(job, preflight.TuningHost(SOC, 24, 0.5, None, 24))["shapes"]
    assert (some.status, str(some.found)) == ("warn", "50.0 % of the kernels in the profile have dynamic shapes")
    eager = checks(job, preflight.TuningHost(SOC, 24, 1.0, None, 24, precompiled=1.0))["shapes"]
    assert eager.status == "fail" and "precompiled (aclnn), which torch_npu never dumps" in str(eager.found)
    assert "--model FILE.onnx" in str(eager.required)
    adapter = TuningJob("op", Script(("python3", "tf.py"), adapter=True))  # which compiles what it tunes
    compiled = checks(adapter, preflight.TuningHost(SOC, 24, 1.0, None, 24, precompiled=1.0))["shapes"]
    assert "have dynamic shapes" in str(compiled.found)
    by_hand = {n for n, c in checks(job).items() if c.status == "unknown" and str(c.found).startswith("not ")}
    assert by_hand >= {"device memory", "order", "program"}
    assert checks(job)["device cores"].status == checks(job)["shapes"].status == "unknown"
    assert checks(TuningJob("op", MODEL), dynamic)["shapes"].status == "unknown"  # the profile is not the model's


def test_a_bank_that_is_read_only(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not hold for root")
    tmp_path.chmod(0o555)
    assert checks(TuningJob("op", MODEL, bank=tmp_path))["bank path"].status == "fail"
    tmp_path.chmod(0o755)


def test_hard_conditions_stop_unless_forced(place: Place) -> None:
    refused = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", SOC)
    assert refused.returncode == 2 and "cannot tune: product" in refused.stderr and place.calls() == []
    forced = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", SOC, "--force")
    assert forced.returncode == 5 and "not supported on this product" in said(forced)
    assert "product:" in forced.stderr
    for named in ("nowhere", "net.onnx"):
        missing = place.run(*OP, "--bank", named)
        assert missing.returncode == 2 and "bank path" in missing.stderr


@pytest.mark.parametrize(
    ("command", "environment", "status"),
    [
        (("python3", "t.py"), {}, "unknown"), (("python3", "t.py"), {"WORLD_SIZE": "1"}, "unknown"),
        (("python3", "t.py"), {"WORLD_SIZE": "2"}, "fail"), (("python3", "t.py"), {"RANK_SIZE": "8"}, "fail"),
        (("torchrun", "t.py"), {}, "fail"), (("/opt/bin/torchrun", "t.py"), {}, "fail"),
        (("python3", "-m", "torch.distributed.launch", "t.py"), {}, "fail"), (("mpirun", "-n", "2", "t"), {}, "fail"),
    ],
)  # fmt: skip
def test_several_processes_are_not_tuned(command: tuple[str, ...], environment: dict[str, str], status: str) -> None:
    """The guide: tuning in several processes is not supported. A model is tuned by aoe, which is one."""
    found = checks(TuningJob("op", Script(command, adapter=True)), **environment)["single device"]
    assert (found.status, found.hard) == (status, True)
    of_model = checks(TuningJob("op", MODEL), **environment)["single device"]
    assert of_model.status == ("warn" if status == "fail" and environment else "ok")


def test_a_program_of_several_processes_is_refused(place: Place) -> None:
    """Nothing is run, unless --force says so."""
    (place.root / "train.py").write_text("import tensorflow\n")
    command = ("--mode", "op", "--soc", SOC, "--", "python3", "train.py")
    refused = place.run(*command, WORLD_SIZE="8")
    assert refused.returncode == 2 and "cannot tune: single device" in refused.stderr, refused.stderr
    assert "the environment says 8 processes" in refused.stderr and not (place.root / "result").exists()
    assert place.run("--dry-run", *command, WORLD_SIZE="8").returncode == 2
    assert place.run("--dry-run", "--force", *command, WORLD_SIZE="8").returncode == 0
    assert place.run("--dry-run", *command).returncode == 0


@pytest.mark.parametrize(
    ("shapes", "status", "said"),
    [
        ([[8, 16], [16]], "ok", "2 operators, all static"), ([[8, 16], [-1, 16]], "fail", "1 of 2 operators has"),
        ([[-2], [-1]], "fail", "2 of 2 operators have dynamic shapes: Add"), ([[]], "ok", "1 operator, static"),
    ],
)  # fmt: skip
def test_shapes_of_described_operators(shapes: list[list[int]], status: str, said: str, tmp_path: Path) -> None:
    """A size of -1, or a rank of -2, is known at run time only; AOE tunes static shapes."""
    file = tmp_path / "ops.json"
    file.write_text(json.dumps([{"op": "Add", "input_desc": [{"shape": s}], "output_desc": []} for s in shapes]))
    found = checks(TuningJob("op", SingleOperators(file)))["shapes"]
    assert (found.status, found.hard) == (status, True) and said in str(found.found)


@pytest.mark.parametrize(
    ("device", "option", "seen", "status"),
    [
        ("", None, 0, "ok"), ("0", None, 0, "ok"), ("7", None, 8, "ok"), ("8", None, 8, "warn"), ("8", None, 0, "ok"),
        ("x", None, 8, "fail"), ("-1", None, 8, "fail"), ("1.0", None, 8, "fail"), ("9" * 5000, None, 8, "fail"),
        ("x", 1, 8, "ok"), ("0", 8, 8, "warn"),
    ],
)  # fmt: skip
def test_the_device_that_is_named(
    device: str, option: int | None, seen: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0 on, and no more than the driver shows; what is no number is refused. --device wins."""
    monkeypatch.setattr(preflight, "_DEVICES", tmp_path)
    for name in ("davinci_manager", *(f"davinci{i}" for i in range(seen))):
        (tmp_path / name).touch()
    found = checks(TuningJob("op", MODEL, device=option), ASCEND_DEVICE_ID=device)["device"]
    assert (found.status, found.hard) == (status, True)


@pytest.mark.parametrize(
    ("value", "option", "status"),
    [("", False, "ok"), ("False", False, "ok"), ("True", False, "warn"), ("yes", False, "warn"), ("yes", True, "ok")],
)
def test_tuning_again(value: str, option: bool, status: str) -> None:
    assert checks(TuningJob("op", MODEL, repeat=option), REPEAT_TUNE=value)["tuning again"].status == status


def test_a_bank_that_cann_would_refuse(place: Place) -> None:
    """One line that is no record, and CANN refuses the file. Nothing is run, and a dry run says so with its status."""
    where = bank(place.root / "bank", [record(1, 10)])
    assert checks(TuningJob("op", MODEL))["bank path"].status == "ok"
    (file,) = where.rglob("*_runtime_kb.json")
    file.write_text(file.read_text() + '{"id": 2, "info_di\n')
    for more in ((), ("--dry-run",)):
        done = place.run(*OP, "--bank", "bank", *more)
        assert done.returncode == 2 and "_runtime_kb.json:2: not a record" in said(done), done.stdout
    assert place.calls() == []
    assert place.run(*OP, "--bank", "bank", "--dry-run", "--force").returncode == 0
    shutil.rmtree(where)
    done = place.run(*OP, "--bank", str(bank(place.root / "bank", [record(1, 10)])), "--dry-run", "--table", "checks")
    assert done.returncode == 0 and "1 record in" in said(done)
    os.mkfifo(next(where.rglob("*_runtime_kb.json")).with_name("Ascend910B3_20_AiCore_Add_runtime_kb.json"))
    done = place.run(*OP, "--bank", "bank", "--dry-run")
    assert done.returncode == 0 and "check bank content: warning" in said(done)  # told, and no reason to refuse


def test_a_dry_run_lists_operators_and_faults_first(tmp_path: Path) -> None:
    """Held against the rows of the profile; what eager programs run is never dumped, whatever it would save."""
    sample = ROOT / "samples" / "transformer_ascend_pt"
    with (sample / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Step Id"]]
    steps = len({row["Step Id"] for row in rows})
    mine = [float(row["Duration(us)"]) for row in rows if row["Type"] == "MatMulV2"]
    words = ["tune", "--mode", "op", "--run", str(sample), "--dry-run", "--soc", "Ascend910B1"]
    done = run_cli([*words, "--format", "json", "--", "python3", "train.py"])
    found = {one["type"]: one for one in json.loads(done.stdout)["operators"]}
    matmul = found["MatMulV2"]
    assert matmul["calls"] == len(mine) / steps and matmul["time_ns"] == pytest.approx(1000 * sum(mine) / steps, abs=1)
    assert [one["time_ns"] for one in found.values()] == sorted((o["time_ns"] for o in found.values()), reverse=True)
    assert not matmul["chosen"] and matmul["reason"] == "precompiled (aclnn): never dumped"
    assert found["Cumsum"]["reason"] == "runs on no AI core" and found["Cumsum"]["most_ns"] is None
    (tmp_path / "net.onnx").touch()
    model = run_cli([*words, "--format", "json", "--model", str(tmp_path / "net.onnx")])
    for one in json.loads(model.stdout)["operators"]:  # of which nobody knows what it has in common with the program
        saves = {0: "saves nothing: no step waits for it", None: found[one["type"]]["reason"]}.get(one["most_ns"])
        assert one["reason"] in (saves, None) and one["chosen"] == (one["reason"] is None)
    lines = run_cli([*words, "--", "python3", "train.py"]).stdout.splitlines()
    checks = [line.split(":")[1].strip() for line in lines if line.startswith("# check")]
    assert checks == sorted(checks, key=("FAILS", "warning", "unknown").index) and "FAILS" in checks
    assert sum(line.startswith("# no fault (") for line in lines) == 1

"""``npuperf profile`` with the real torch_npu over the CANN stand-in: what is recorded."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from npu_runs import (
    MODEL,
    OFF,
    ON_THE_CPU,
    SHOWN,
    TOLD,
    TORCH,
    TRAIN,
    analyzed,
    on_the_cpu,
    profile,
    steps_of,
)
from preloaded import Loaded

from npuperf.against.run import run as analyze
from npuperf.analyze.request import AnalyzeRequest

# ---- what is recorded ----


@pytest.mark.long
def test_the_same_as_a_hand_written_profiler(
    loaded: Loaded, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Same files, same columns, the same kernels in the same steps; steps keep their numbers."""
    by_hand = f"""{MODEL}
import torch_npu
from torch_npu.profiler import *
config = torch_npu.profiler._ExperimentalConfig(profiler_level=ProfilerLevel.Level1,
                                                aic_metrics=AiCMetrics.PipeUtilization)
if __name__ == "__main__":
    with profile(schedule=schedule(wait=10, warmup=1, active=2, repeat=1), experimental_config=config,
                 on_trace_ready=tensorboard_trace_handler("by_hand")) as p:
        for i in range(25):
            step()
            p.step()
"""
    (tmp_path / "by_hand.py").write_text(by_hand)
    subprocess.run(
        [loaded.python(), "by_hand.py"], cwd=tmp_path, env=loaded, check=True, capture_output=True, timeout=120
    )
    (expected,) = (tmp_path / "by_hand").iterdir()
    run = analyzed(loaded, tmp_path_factory)
    assert run.code == 0, run.err
    (found,) = run.raw

    def listing(folder: Path) -> list[str]:
        return sorted(p.name for p in (folder / "ASCEND_PROFILER_OUTPUT").iterdir())

    assert listing(found) == listing(expected)
    mine, theirs = run.kernels(), run.kernels(expected)
    assert list(mine[0]) == list(theirs[0])
    assert [(r["Step Id"], r["Type"]) for r in mine] == [(r["Step Id"], r["Type"]) for r in theirs]
    assert steps_of(mine) == {11, 12} and run.recorded == [[11, 12]]


def test_the_program_is_left_as_it_is(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> None:
    """argv, __main__, cwd, start method, output, stdin: as without npuperf, whose hooks are gone at the end."""
    run = analyzed(loaded, tmp_path_factory)
    assert run.code == 0, run.err
    here = run.folder.parent
    seen = f"['train.py', '--lr', '-o', '--'] __main__ {here}/train.py {here} None {here}\n"
    seen += "a line []\n/optim/optimizer.py posix\n"
    assert run.out.splitlines(keepends=True)[:SHOWN] == seen.splitlines(keepends=True), run.out
    assert "to stderr" in run.err
    assert not list(Path(sys.prefix).glob("lib/python*/site-packages/*npuperf_agent*"))


def test_options_reach_the_profiler(loaded: Loaded, tmp_path: Path) -> None:
    """And with call stacks npuperf is no part of what it shows: the profiler's own time is a cause of its own."""
    options = "--level 2 --aic-metrics 2 --shapes --stack --memory --modules --gc-threshold 1.5 --host-sys cpu,mem"
    options += " --export both --op-attr --no-simplify train.py"
    run = profile(loaded, tmp_path, *options.split(), FAKE_CANN_CUBE_US="1", FAKE_CANN_VECTOR_US="1")
    assert run.code == 0, run.err
    (info,) = run.raw[0].glob("profiler_info*.json")
    config = json.loads(info.read_text())["config"]
    common, experimental = config["common_config"], config["experimental_config"]
    assert all(common[k] for k in ("record_shapes", "with_stack", "profile_memory", "with_modules"))
    assert not common["with_flops"]
    assert common["schedule"]["wait"] == 10 and common["schedule"]["active"] == 2
    assert experimental["_profiler_level"] == "Level2"
    assert experimental["_aic_metrics"] == "ACL_AICORE_MEMORY_BANDWIDTH"
    assert sorted(experimental["_host_sys"]) == ["cpu", "mem"]
    assert experimental["_gc_detect_threshold"] == 1.5
    assert experimental["_op_attr"] and not experimental["_data_simplification"]
    assert sorted(experimental["_export_type"]) == ["db", "text"]
    assert "kinds of data at once" in run.err
    assert list(run.raw[0].glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler*.db"))
    (device,) = analyze(AnalyzeRequest(path=run.folder)).devices
    causes = {b.cause: b for b in device.blame}
    assert causes["profiler"].ns > 0
    places = [b.where for b in device.blame] + [b.name for b in device.blame if b.cause != "profiler"]
    assert not [p for p in places if p and "agent/s" in p]


TWO_THREADS = f"""
import threading
{TORCH}
torch.npu.set_device(0)
model = torch.nn.Linear(64, 64).npu()
turns = [threading.Semaphore(1), threading.Semaphore(0)]
def work(mine):
    for i in range(25):
        turns[mine].acquire(); model(torch.ones(4, 64).npu()); turns[not mine].release()
other = threading.Thread(target=work, args=(1,), name="second")
other.start(); work(0); other.join()
torch.npu.synchronize()
print(threading.active_count())
"""


@pytest.mark.long
def test_threads_that_take_turns(loaded: Loaded, tmp_path: Path) -> None:
    """Kernels of all are there, their operators where that was asked for; what was added is, and how to replay it."""
    options = ["--step-on", "forward", "--metadata", "job=17", "--metadata", 'x={"a": [1]}', "--execution-trace"]
    run = profile(
        loaded, tmp_path, *options, "--all-threads", "--export-processes", "1", "train.py", source=TWO_THREADS
    )
    assert run.code == 0 and run.out == "1\n", run.err
    (raw,) = (path for path in run.raw if path.is_dir())
    assert json.loads((raw / "profiler_metadata.json").read_text()).items() >= {"job": "17", "x": {"a": [1]}}.items()
    (trace,) = run.folder.glob("raw/execution_trace_*.json")
    assert "aten::linear" in {node["name"] for node in json.loads(trace.read_text())["nodes"]}
    events = json.loads((raw / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    threads = [event["tid"] for event in events if event["name"] == "aten::linear"]
    assert sorted(threads.count(thread) for thread in set(threads)) == [2, 2]  # steps 11 and 12, and what took turns
    assert "2 threads make steps" in run.err and "what these did meanwhile is in the recording" in run.err
    assert run.manifest["options"]["metadata"] == ["job=17", 'x={"a": [1]}']


@pytest.mark.long
def test_two_ranks(loaded: Loaded, tmp_path: Path) -> None:
    """One folder per rank, each with its own device; a rank that is not wanted records nothing."""
    python = loaded.python()
    torchrun = [python, "-m", "torch.distributed.run", "--no-python", "--nproc_per_node=2", python]
    run = profile(loaded, tmp_path, "--", *torchrun, "train.py", FAKE_CANN_DEVICES="2")
    assert run.code == 0, run.err
    assert [raw.name.split("_rank")[1][0] for raw in run.raw] == ["0", "1"]
    assert [{row["Device_id"] for row in run.kernels(raw)} for raw in run.raw] == [{"0"}, {"1"}]
    assert run.recorded == [[11, 12], [11, 12]]
    shutil.rmtree(run.folder)
    # Any launcher and any device will do: a shell and the CPU are the quickest.
    ranks = f"for i in 0 1; do RANK=$i LOCAL_RANK=$i {shlex.quote(loaded.python(npu=False))} train.py & done; wait"
    one = profile(loaded, tmp_path, "--ranks", "1", "--", "sh", "-c", ranks, source=ON_THE_CPU, **OFF)
    assert [p["rank"] for p in one.manifest["processes"] if p["folders"]] == [1]
    assert len(one.raw) == 1 and one.code == 0


def test_a_rank_opens_no_device_but_its_own(loaded: Loaded, tmp_path: Path) -> None:
    """CANN sees the same devices opened with npuperf as without; the whole run is recorded, from step 0 on."""
    second = {"FAKE_CANN_DEVICES": "2", "LOCAL_RANK": "1"}

    def opened(log: Path) -> set[str]:
        return {line.split("] ")[1] for line in log.read_text().splitlines() if "aclrtSetDevice" in line}

    plain, mine = tmp_path / "plain.log", tmp_path / "mine.log"
    run = profile(loaded, tmp_path, "--whole-run", "train.py", "4", FAKE_CANN_LOG=str(mine), **second)
    assert run.code == 0, run.err
    alone = [loaded.python(), "train.py", "4"]
    logged = {**loaded, **second, "FAKE_CANN_LOG": str(plain)}
    subprocess.run(alone, cwd=tmp_path, env=logged, check=True, capture_output=True, timeout=120)
    assert opened(mine) == opened(plain) != set()
    config = [line for line in mine.read_text().splitlines() if "aclprofCreateConfig" in line]
    assert config and all("devices[0]=1," in line for line in config)
    assert run.recorded == [[0, 1, 2, 3]]
    assert {0, 1, 2, 3} <= steps_of(run.kernels())


FORWARD = MODEL.replace("optimizer = ", "other = torch.nn.Linear(64, 64).npu()\noptimizer = ")
FORWARD += "for i in range(14): model(other(torch.randn(8, 64).npu()))"
EXPLICIT = MODEL + "import npuperf\nfor i in range(8): step(); step(); npuperf.step()"


@pytest.mark.parametrize(
    ("arguments", "source", "recorded"),
    [
        ("--step-on forward --warmup 0 --active 3", FORWARD, [10, 11, 12]),
        ("--wait 3", EXPLICIT, [4, 5]),
        ("--wait 1 --repeat 2 --active 1", TRAIN, [2, 5]),
    ],
)
def test_where_steps_come_from(
    loaded: Loaded, tmp_path: Path, arguments: str, source: str, recorded: list[int]
) -> None:
    """And with variables that would silence the profiler, if they were not kept out."""
    silencing = {"PROFILING_MODE": "true", "ASCEND_LAUNCH_BLOCKING": "1"}
    run = profile(loaded, tmp_path, *arguments.split(), "train.py", source=on_the_cpu(source), **silencing, **OFF)
    assert run.code == 0, run.err
    assert "PROFILING_MODE=true is set" in run.err and "ASCEND_LAUNCH_BLOCKING=1 is set" in run.err
    assert run.recorded == [recorded]
    assert set(recorded) <= run.steps


def test_seconds_as_steps(loaded: Loaded, tmp_path: Path) -> None:
    calls = "model(torch.randn(8, 64)); time.sleep(0.01)"
    source = f"{on_the_cpu(MODEL)}{TOLD}while True:\n    {calls}\n    if told() == 'recorded': break\n"
    source += f"for i in range(20): {calls}"
    run = profile(loaded, tmp_path, "--step-on", "0.25-seconds", "--wait", "2", "train.py", source=source, **OFF)
    assert run.code == 0, run.err
    assert run.recorded == [[3, 4]]
    inside = run.manifest["processes"][0]["step_ns"]["inside"]
    assert all(0.23e9 < ns < 3e9 for ns in inside)  # on a busy machine a call may hold a step up


# ---- other profilers ----

OWN = (
    MODEL
    + """
from torch_npu.profiler import profile, schedule, tensorboard_trace_handler
if __name__ == "__main__":
    for i in range(int(sys.argv[1])): step()
    with profile(schedule=schedule(wait=2, warmup=1, active=2, repeat=1),
                 on_trace_ready=tensorboard_trace_handler("own")) as p:
        for i in range(20):
            step()
            p.step()
"""
)


def test_a_script_with_its_own_profiler(loaded: Loaded, tmp_path: Path) -> None:
    """npuperf defers to it while it records, and says where the script's data is."""
    always = OWN.replace("wait=2, warmup=1, active=2", "wait=0, warmup=1, active=40")
    run = profile(loaded, tmp_path, "train.py", "0", source=always)
    assert run.code == 0, run.err
    (own,) = (tmp_path / "own").iterdir()
    assert "deferred to it" in run.err and f"npuperf analyze {own}" in run.err
    assert steps_of(run.kernels(own)) == {*range(1, 20)}
    assert not run.raw


def test_a_script_whose_profiler_has_ended_before(loaded: Loaded, tmp_path: Path) -> None:
    """Both recordings are whole, each in its folder; that it was made before, and is there still, does not matter."""
    run = profile(loaded, tmp_path, "train.py", "0", source=OWN)
    assert run.code == 0, run.err
    (own,) = (tmp_path / "own").iterdir()
    assert steps_of(run.kernels(own)) == {3, 4}
    assert run.recorded == [[11, 12]] and run.steps == {11, 12}
    assert "own profiler" not in run.err


def test_a_script_whose_profiler_begins_while_recording(loaded: Loaded, tmp_path: Path) -> None:
    """Both recordings are whole: npuperf's ends before the script's begins."""
    run = profile(loaded, tmp_path, "train.py", "10", source=OWN)
    assert "the program's own profiler began at step 12: recording ended there" in run.err
    (own,) = (tmp_path / "own").iterdir()
    assert steps_of(run.kernels(own)) == {3, 4}
    assert 11 in steps_of(run.kernels())
    assert run.recorded == [[11]]


def test_taking_the_place_of_a_script_s_profiler(loaded: Loaded, tmp_path: Path) -> None:
    """Its step() calls are the steps."""
    run = profile(loaded, tmp_path, "--own-profiler", "replace", "train.py", "3", source=OWN)
    assert run.code == 0, run.err
    assert not (tmp_path / "own").exists()
    assert run.recorded == [[11, 12]]


def test_spawned_workers(loaded: Loaded, tmp_path: Path) -> None:
    """They carry the agent, make no steps, and are in nobody's way."""
    source = f"""
{TORCH}
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 300
    def __getitem__(self, i): return torch.randn(64)
if __name__ == "__main__":
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(Data(), batch_size=15, num_workers=1, multiprocessing_context="spawn"):
        model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
    run = profile(loaded, tmp_path, "train.py", source=source, **OFF)
    assert run.code == 0, run.err
    assert run.recorded == [[11, 12]] and len(run.raw) == 1
    assert [w for w in run.manifest["warnings"] if "recorded nothing" in w] == []


# ---- other engines ----


def test_msprof(loaded: Loaded, tmp_path: Path) -> None:
    """The whole program, its own exit status, and its data even where msprof gives up."""
    run = profile(loaded, tmp_path, "--engine", "msprof", "train.py", source=TRAIN + "sys.exit(1)")
    assert run.code == 1, run.err
    (table,) = run.raw[0].glob("mindstudio_profiler_output/op_summary*.csv")
    assert len(table.read_text().splitlines()) > 100
    lacking = profile(loaded, tmp_path, "-o", "other", "--engine", "msprof", "--sys-interconnection", "train.py")
    assert lacking.code == 2 and "has no --sys-interconnection-profiling=on" in lacking.err


LEGACY = """
import os, time
class profileConfig:
    def __init__(self, ACL_PROF_ACL_API=True, ACL_PROF_TASK_TIME=True, ACL_PROF_AICORE_METRICS=True,
                 ACL_PROF_AICPU=True, ACL_PROF_L2CACHE=False, ACL_PROF_HCCL_TRACE=True,
                 ACL_PROF_TRAINING_TRACE=False, TORCH_CALL_STACK=False, aiCoreMetricsType=1):
        self.said = dict(locals()); self.said.pop("self")
class profile:
    def __init__(self, profiler_result_path=None, use_e2e_profiler=False, config=profileConfig()):
        self.path, self.e2e, self.config = profiler_result_path, use_e2e_profiler, config
    def __enter__(self):
        self.prof = os.path.join(self.path, "PROF_000001_20260101000000000_ABC")
        os.makedirs(self.prof + "/host"); self.began = calls
    def __exit__(self, *_):
        import json
        with open(self.prof + "/said.json", "w") as f:
            json.dump([self.e2e, self.config.said, self.began, calls], f)
        with open(self.prof + "/host/sample.json", "w") as f: f.write('{"prof_level": "l1"}')
        with open(self.prof + "/stub_timeline.csv", "w") as f:
            f.write("device,stream,task,tid,op,host_start_ns,host_end_ns,device_start_ns,device_end_ns\\n"
                    "0,1,1,9,aclnnMatmul,1000,2000,10000,20000\\n")
calls = 0
def is_initialized(): return True
def device_count(): return 1
"""


def test_the_legacy_profiler(loaded: Loaded, tmp_path: Path) -> None:
    """No wheel that has it runs here: a stand-in for its interface, as documented, takes the call."""
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text("from . import npu\n__version__ = '2.1.0'\n")
    (package / "npu.py").write_text(LEGACY)
    source = """
import torch, torch_npu
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(20):
    model(torch.randn(2, 4)).sum().backward(); optimizer.step(); torch_npu.npu.calls += 1
"""
    options = ["--engine", "e2e", "--aic-metrics", "5", "--l2-cache", "--no-aicpu", "--stack"]
    run = profile(loaded, tmp_path, *options, "train.py", source=source, **OFF)
    assert run.code == 0, run.err
    (said,) = run.folder.glob("raw/*/PROF_*/said.json")
    e2e, config, began, ended = json.loads(said.read_text())
    assert e2e is True and (began, ended) == (10, 12)  # calls that were complete: steps 11 and 12 are recorded
    assert config == {
        "ACL_PROF_ACL_API": True,
        "ACL_PROF_TASK_TIME": True,
        "ACL_PROF_AICORE_METRICS": True,
        "ACL_PROF_AICPU": False,
        "ACL_PROF_L2CACHE": True,
        "ACL_PROF_HCCL_TRACE": True,
        "ACL_PROF_TRAINING_TRACE": False,
        "TORCH_CALL_STACK": True,
        "aiCoreMetricsType": 5,
    }
    assert list(run.folder.glob("raw/*/PROF_*/mindstudio_profiler_output/op_summary*.csv"))


def test_without_an_npu(loaded: Loaded, tmp_path: Path) -> None:
    """auto falls back to the CPU and says so loudly; a real model, a real trace."""
    run = profile(loaded, tmp_path, "--shapes", "train.py", source=ON_THE_CPU, **OFF)
    assert run.code == 0, run.err
    assert "NO NPU (torch_npu was not imported): only the CPU was recorded" in run.err
    (trace,) = run.raw
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(e["name"].startswith("ProfilerStep#") and e["ph"] == "X" for e in events) == 2
    assert run.steps == {11, 12}
    linear = [e for e in events if e.get("name") == "aten::linear"]
    assert len(linear) == 2 and linear[0]["args"]["Input Dims"]
    assert run.recorded == [[11, 12]]

"""``npuperf profile`` with the real torch_npu over the CANN stand-in: what is recorded, and what survives."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from npuperf.analyze.run import analyze_path

#: The queue is drained before Python goes: torch_npu's consumer thread may want the GIL, and be aborted, after that.
MODEL = """
import atexit, os, signal, sys, time
import torch
torch.npu.set_device(int(os.environ.get("LOCAL_RANK", "0")))
atexit.register(torch.npu.synchronize)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(16, 64).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAIN = MODEL + "for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 25):\n    step()\n"


@dataclass
class Run:
    """A finished ``npuperf profile`` and what it left."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "npuperf.json").read_text("utf-8"))
        return found

    @property
    def recorded(self) -> list[list[int]]:
        return [p["recorded"] for p in self.manifest["processes"] if p["folders"]]

    @property
    def raw(self) -> list[Path]:
        return sorted((self.folder / "raw").iterdir())

    def kernels(self, raw: Path | None = None) -> list[dict[str, str]]:
        table = (raw or self.raw[0]) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        with table.open(newline="") as file:
            return list(csv.DictReader(file))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "npuperf", "profile", *map(str, arguments)]


def profile(environment: dict[str, str], folder: Path, *arguments: object, source: str = TRAIN, **extra: str) -> Run:
    """Run ``npuperf profile ARGUMENTS`` in a folder that holds ``source`` as train.py."""
    (folder / "train.py").write_text(source)
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env={**environment, **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr.split("npuperf: ", 1)[-1], done.stderr
    if "terminate called without an active exception" in done.stderr and (folder / "result").exists():
        # One in some hundred runs of torch_npu over the stand-in ends like this, with npuperf or without.
        shutil.rmtree(folder / "result")
        return profile(environment, folder, *arguments, source=source, **extra)
    return Run(done.returncode, done.stdout, done.stderr, folder / "result")


def steps_of(rows: list[dict[str, str]]) -> set[int]:
    return {int(row["Step Id"]) for row in rows if row["Step Id"]}


# ---- what is recorded ----


def test_the_same_as_a_hand_written_profiler(npu: dict[str, str], tmp_path: Path) -> None:
    """Same files, same columns, the same kernels in the same steps; steps keep their numbers."""
    waits = "class Waits(torch.optim.SGD):\n    def step(self): super().step(); torch.npu.synchronize()\n"
    synchronised = MODEL.replace("optimizer = torch.optim.SGD", waits + "optimizer = Waits")  # no kernel runs late
    by_hand = (
        synchronised
        + """
from torch_npu.profiler import *
config = torch_npu.profiler._ExperimentalConfig(profiler_level=ProfilerLevel.Level1,
                                                aic_metrics=AiCMetrics.PipeUtilization)
if __name__ == "__main__":
    import torch_npu
    with profile(schedule=schedule(wait=10, warmup=1, active=2, repeat=1), experimental_config=config,
                 on_trace_ready=tensorboard_trace_handler("by_hand")) as p:
        for i in range(25):
            step()
            p.step()
""".replace("config =", "import torch_npu\nconfig =")
    )
    (tmp_path / "by_hand.py").write_text(by_hand)
    subprocess.run([sys.executable, "by_hand.py"], cwd=tmp_path, env=npu, check=True, capture_output=True, timeout=120)
    (expected,) = (tmp_path / "by_hand").iterdir()
    run = profile(npu, tmp_path, "train.py", source=TRAIN.replace(MODEL, synchronised))
    assert run.code == 0, run.err
    (found,) = run.raw

    def listing(folder: Path) -> list[str]:
        return sorted(p.name for p in (folder / "ASCEND_PROFILER_OUTPUT").iterdir())

    assert listing(found) == listing(expected)
    mine, theirs = run.kernels(), run.kernels(expected)
    assert list(mine[0]) == list(theirs[0])
    assert [(r["Step Id"], r["Type"]) for r in mine] == [(r["Step Id"], r["Type"]) for r in theirs]
    assert steps_of(mine) == {11, 12} and run.recorded == [[11, 12]]


def test_the_program_is_left_as_it_is(npu: dict[str, str], tmp_path: Path) -> None:
    """argv, __main__, cwd, start method, output, stdin: all as without npuperf, to the byte."""
    source = (
        TRAIN.replace("int(sys.argv[1]) if len(sys.argv) > 1 else ", "")
        + """
import multiprocessing
print(sys.argv, __name__, __file__, os.getcwd(), multiprocessing.get_start_method(allow_none=True), sys.path[0])
print(sys.stdin.read(), [p for p in sys.path if "npuperf" in p and "inject" in p])
print("to stderr", file=sys.stderr)
"""
    )
    (tmp_path / "train.py").write_text(source)
    call: dict[str, Any] = {"cwd": tmp_path, "env": npu, "input": "a line", "text": True, "timeout": 120}
    plain = subprocess.run([sys.executable, "train.py", "--lr", "-o", "--"], **call, capture_output=True)
    mine = subprocess.run(command("train.py", "--lr", "-o", "--"), **call, capture_output=True)
    assert mine.stdout == plain.stdout and "['train.py', '--lr', '-o', '--'] __main__" in mine.stdout
    assert "to stderr" in mine.stderr
    assert not list(Path(sys.prefix).rglob("*npuperf_agent*"))


def test_options_reach_the_profiler(npu: dict[str, str], tmp_path: Path) -> None:
    options = "--level 2 --aic-metrics 2 --shapes --stack --memory --modules --gc-threshold 1.5 --host-sys cpu,mem"
    run = profile(npu, tmp_path, *options.split(), "--export", "both", "--op-attr", "--no-simplify", "train.py")
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


def test_two_ranks(npu: dict[str, str], tmp_path: Path) -> None:
    """One folder per rank, each with its own device; a rank that is not wanted records nothing."""
    launcher = ["--", "torchrun", "--nproc_per_node=2", "train.py"]
    run = profile(npu, tmp_path, *launcher, FAKE_CANN_DEVICES="2")
    assert run.code == 0, run.err
    assert [raw.name.split("_rank")[1][0] for raw in run.raw] == ["0", "1"]
    assert [{row["Device_id"] for row in run.kernels(raw)} for raw in run.raw] == [{"0"}, {"1"}]
    assert run.recorded == [[11, 12], [11, 12]]
    shutil.rmtree(run.folder)
    one = profile(npu, tmp_path, "--ranks", "1", *launcher, FAKE_CANN_DEVICES="2")
    assert [p["rank"] for p in one.manifest["processes"] if p["folders"]] == [1]
    assert len(one.raw) == 1 and one.code == 0


def test_a_rank_opens_no_device_but_its_own(npu: dict[str, str], tmp_path: Path) -> None:
    """CANN sees the same devices opened with npuperf as without."""

    def opened(log: Path, *words: str) -> set[str]:
        environment = {**npu, "FAKE_CANN_DEVICES": "2", "LOCAL_RANK": "1", "FAKE_CANN_LOG": str(log)}
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
        return {line.split("] ")[1] for line in log.read_text().splitlines() if "aclrtSetDevice" in line}

    (tmp_path / "train.py").write_text(TRAIN)
    plain = opened(tmp_path / "plain.log", sys.executable, "train.py")
    mine = opened(tmp_path / "mine.log", *command("--whole-run", "train.py"))
    assert mine == plain
    config = [line for line in (tmp_path / "mine.log").read_text().splitlines() if "aclprofCreateConfig" in line]
    assert config and all("devices[0]=1," in line for line in config)


FORWARD = MODEL.replace("optimizer = ", "other = torch.nn.Linear(64, 64).npu()\noptimizer = ")


@pytest.mark.parametrize(
    ("arguments", "source", "recorded"),
    [
        (["--step-on", "forward"], FORWARD + "for i in range(13): model(other(torch.randn(8, 64).npu()))", [11, 12]),
        (["--wait", "3"], MODEL + "import npuperf\nfor i in range(8): step(); step(); npuperf.step()", [4, 5]),
        (["--wait", "1", "--repeat", "2", "--active", "1"], TRAIN, [2, 5]),
        (["--whole-run"], MODEL + "for i in range(4): step()", [0, 1, 2, 3]),
        (["--wait", "1", "--warmup", "0", "--active", "3"], TRAIN, [1, 2, 3]),
    ],
)
def test_where_steps_come_from(
    npu: dict[str, str], tmp_path: Path, arguments: list[str], source: str, recorded: list[int]
) -> None:
    run = profile(npu, tmp_path, *arguments, "train.py", source=source)
    assert run.code == 0, run.err
    assert run.recorded == [recorded]
    found = set().union(*(steps_of(run.kernels(raw)) for raw in run.raw))
    assert set(recorded) <= found


def test_npuperf_is_no_part_of_what_it_shows(npu: dict[str, str], tmp_path: Path) -> None:
    """With call stacks the profiler's own time is a cause of its own, and no code line is npuperf's."""
    run = profile(npu, tmp_path, "--stack", "train.py", FAKE_CANN_CUBE_US="1", FAKE_CANN_VECTOR_US="1")
    assert run.code == 0, run.err
    (device,) = analyze_path(run.folder).devices
    causes = {b.cause: b for b in device.blame}
    assert causes["profiler"].ns > 0
    places = [b.where for b in device.blame] + [b.name for b in device.blame if b.cause != "profiler"]
    assert not [p for p in places if p and "agent/s" in p]


def test_seconds_as_steps(npu: dict[str, str], tmp_path: Path) -> None:
    source = MODEL + "end = time.time() + 4\nwhile time.time() < end: model(torch.randn(8, 64).npu()); time.sleep(0.01)"
    run = profile(npu, tmp_path, "--step-on", "0.5-seconds", "--wait", "2", "train.py", source=source)
    assert run.code == 0, run.err
    assert run.recorded == [[3, 4]]
    inside = run.manifest["processes"][0]["step_ns"]["inside"]
    assert all(0.45e9 < ns < 1.5e9 for ns in inside)


# ---- what survives ----

AT_12 = MODEL + "for i in range(30):\n    step()\n    if i == 11: {what}\n"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("raise ValueError('boom')", 1),
        ("sys.exit(7)", 7),
        ("os._exit(9)", 9),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_a_program_that_ends_inside_the_window(npu: dict[str, str], tmp_path: Path, what: str, code: int) -> None:
    """Its own exit status, and everything recorded until then."""
    run = profile(npu, tmp_path, "train.py", source=AT_12.format(what=what))
    assert run.code == code
    assert run.recorded == [[11]]
    assert 11 in steps_of(run.kernels())
    assert "ended at step 12, inside the window" in run.err
    assert f"exit status {code}" in run.err


def test_a_crash_in_c(npu: dict[str, str], tmp_path: Path) -> None:
    """Nothing can be saved any more; raw data stays, and the exporters' own words are shown."""
    run = profile(npu, tmp_path, "train.py", source=AT_12.format(what="os.kill(os.getpid(), signal.SIGSEGV)"))
    assert run.code == 139
    assert "died while recording" in run.err and "npuperf profile --export result" in run.err
    assert list(run.raw[0].glob("PROF_*"))


SLOW = MODEL + "for i in range(2000):\n    step(); time.sleep(0.05)\n    print(i, flush=True)\n"


@pytest.mark.parametrize(
    ("number", "to_group", "words"),
    [
        (signal.SIGINT, False, ["train.py"]),
        (signal.SIGINT, True, ["train.py"]),
        (signal.SIGTERM, False, ["train.py"]),
        (signal.SIGTERM, False, ["--", "sh", "-c", f"sleep 300 & {sys.executable} train.py; echo after"]),
    ],
)
def test_signals_stop_recording_and_leave_no_orphan(
    npu: dict[str, str], tmp_path: Path, number: int, to_group: bool, words: list[str]
) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    options = ["--wait", "2", "--warmup", "1", "--active", "1000"]
    with subprocess.Popen(
        command(*options, *words),
        cwd=tmp_path,
        env=npu,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "9":
                break
        family = psutil.Process(child.pid).children(recursive=True)
        assert family
        (os.killpg if to_group else os.kill)(child.pid, number)
        out, err = child.communicate(timeout=100)
    assert child.returncode == 128 + number, err
    run = Run(child.returncode, out, err, tmp_path / "result")
    assert {4, 5, 6} <= steps_of(run.kernels()), err
    assert "inside the window" in err and "after" not in out
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


def test_data_that_grows_too_large(npu: dict[str, str], tmp_path: Path) -> None:
    source = SLOW.replace("2000", "400")
    run = profile(npu, tmp_path, "--active", "1000", "--max-size", "10K", "train.py", source=source)
    assert run.code == 0, run.err
    assert "are more than --max-size 10.0 KiB" in run.err
    (recorded,) = run.recorded
    assert recorded[0] == 11 and len(recorded) < 350
    assert set(recorded) <= steps_of(run.kernels())


# ---- why there is nothing ----


@pytest.mark.parametrize(
    ("arguments", "source", "code", "words"),
    [
        ([], TRAIN.replace("25", "8"), 3, "made 8 steps; recording begins at step 11\n  next: --wait 5 "),
        ([], MODEL + "model(torch.randn(8, 64).npu())", 3, "no optimizer.step()"),
        ([], "print(1)", 3, "no Python process of the program imported torch"),
        (["--ranks", "5"], TRAIN, 3, "no process has one of the ranks"),
        (["--engine", "e2e"], TRAIN, 2, "up to torch_npu 5.0.0"),
        ([], TRAIN + "    os.environ['PROFILING_MODE'] = 'true'\n", 3, "was set inside"),
    ],
)
def test_why_nothing_was_recorded(
    npu: dict[str, str], tmp_path: Path, arguments: list[str], source: str, code: int, words: str
) -> None:
    run = profile(npu, tmp_path, *arguments, "train.py", source=source)
    assert run.code == code, run.err
    assert words in run.err
    assert run.manifest["problem"]


def test_cann_that_is_not_sourced(npu: dict[str, str], tmp_path: Path) -> None:
    bare = {k: v for k, v in npu.items() if not k.startswith("ASCEND") and k != "LD_LIBRARY_PATH"}
    run = profile(bare, tmp_path, "train.py")
    assert run.code == 1
    assert "libhccl.so" in run.err and "source /usr/local/Ascend/" in run.err


def test_variables_that_silence_the_profiler_are_kept_out(npu: dict[str, str], tmp_path: Path) -> None:
    run = profile(npu, tmp_path, "train.py", PROFILING_MODE="true", ASCEND_LAUNCH_BLOCKING="1")
    assert run.code == 0, run.err
    assert "PROFILING_MODE=true is set" in run.err and "ASCEND_LAUNCH_BLOCKING=1 is set" in run.err
    assert len(run.kernels()) > 10


# ---- exporting ----


@pytest.mark.parametrize(
    ("extra", "words"),
    [({"FAKE_MSPROF_RC": "3"}, "exit status 3"), ({"FAKE_MSPROF_MODE": "silent"}, "its exit status was 0")],
)
def test_exporters_that_fail(npu: dict[str, str], tmp_path: Path, extra: dict[str, str], words: str) -> None:
    """Both say 0; the missing file tells. The raw data stays, and a second try succeeds."""
    run = profile(npu, tmp_path, "train.py", **extra)
    assert run.code == 5
    assert "made no ASCEND_PROFILER_OUTPUT/kernel_details.csv" in run.err and words in run.err
    assert run.manifest["stages"]["run"]["status"] == "done"
    again = profile(npu, tmp_path, "--export", "result")
    assert again.code == 0, again.err
    assert len(again.kernels()) > 10


def test_no_driver(npu: dict[str, str], tmp_path: Path) -> None:
    run = profile(npu, tmp_path, "train.py", FAKE_MSPROF_DRIVER="0")
    assert run.code == 0, run.err
    assert "finds no driver: used" in run.err and "msprof.py in its place" in run.err
    assert len(run.kernels()) > 10


def test_no_msprof(npu: dict[str, str], tmp_path: Path) -> None:
    """Without msprof torch_npu still says that it succeeded."""
    path = [p for p in npu["PATH"].split(os.pathsep) if "toolkit" not in p]
    home = tmp_path / "cann"
    shutil.copytree(npu["ASCEND_HOME_PATH"], home, ignore=shutil.ignore_patterns("msprof", "lib64"))
    hidden = {"PATH": os.pathsep.join(path), "ASCEND_TOOLKIT_HOME": str(home), "ASCEND_HOME_PATH": str(home)}
    run = profile(npu, tmp_path, "train.py", **hidden)
    assert run.code == 5
    assert "msprof was not found (looked at PATH, " in run.err and "source " in run.err


def test_export_of_data_collected_elsewhere(npu: dict[str, str], tmp_path: Path) -> None:
    """The user's data is copied, not touched, even where it holds an export already."""
    first = profile(npu, tmp_path, "-o", "first", "train.py")
    source = next((tmp_path / "first" / "raw").iterdir())
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in source.rglob("*")}
    run = profile(npu, tmp_path, "--export", source)
    assert run.code == 0, run.err
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in source.rglob("*")} == before
    assert run.manifest["imported_from"] == str(source)
    expected = first.kernels(source)
    assert [r["Start Time(us)"] for r in run.kernels()] == [r["Start Time(us)"] for r in expected]


def test_an_export_that_is_there_survives_one_that_fails(npu: dict[str, str], tmp_path: Path) -> None:
    """analyse() deletes what is there before it begins; another format must not cost the first."""
    first = profile(npu, tmp_path, "train.py")
    before = first.kernels()
    failed = profile(npu, tmp_path, "--export", "db", "--export", "result", FAKE_MSPROF_RC="3")
    assert failed.code == 5 and first.kernels() == before
    both = profile(npu, tmp_path, "--export", "db", "--export", "result")
    assert both.code == 0, both.err
    assert len(both.kernels()) == len(before)
    assert list(both.raw[0].glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler*.db"))


def test_the_loop_goes_on_with_analyze(npu: dict[str, str], tmp_path: Path) -> None:
    run = profile(npu, tmp_path, "--analyze", "train.py")
    assert run.code == 0, run.err
    assert run.out.splitlines()[2].split()[0] in ("HOST-BOUND", "COMPUTE-BOUND")
    assert (run.folder / "analysis" / "result.json").is_file()
    again = profile(npu, tmp_path, "train.py")
    assert again.code == 2 and "holds a run already" in again.err
    kept = profile(npu, tmp_path, "--force", "train.py")
    assert kept.code == 0 and (tmp_path / "result.1" / "analysis" / "result.json").is_file()


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


def test_a_script_with_its_own_profiler(npu: dict[str, str], tmp_path: Path) -> None:
    """npuperf stands aside, and says where the script's data is."""
    run = profile(npu, tmp_path, "train.py", "0", source=OWN)
    assert run.code == 0, run.err
    (own,) = (tmp_path / "own").iterdir()
    assert "stood aside" in run.err and f"npuperf analyze {own}" in run.err
    assert steps_of(run.kernels(own)) == {3, 4}
    assert not run.raw


def test_a_script_that_makes_its_profiler_while_recording(npu: dict[str, str], tmp_path: Path) -> None:
    """Both recordings are whole: npuperf's ends before the script's begins."""
    run = profile(npu, tmp_path, "train.py", "12", source=OWN)
    assert "recording ended there" in run.err
    (own,) = (tmp_path / "own").iterdir()
    assert steps_of(run.kernels(own)) == {3, 4}
    assert 11 in steps_of(run.kernels())
    assert run.recorded == [[11]]


def test_taking_the_place_of_a_script_s_profiler(npu: dict[str, str], tmp_path: Path) -> None:
    """Its step() calls are the steps."""
    run = profile(npu, tmp_path, "--own-profiler", "replace", "train.py", "3", source=OWN)
    assert run.code == 0, run.err
    assert not (tmp_path / "own").exists()
    assert run.recorded == [[11, 12]]


def test_spawned_workers(npu: dict[str, str], tmp_path: Path) -> None:
    """They carry the agent, make no steps, and are in nobody's way."""
    source = """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 300
    def __getitem__(self, i): return torch.randn(64)
if __name__ == "__main__":
    torch.npu.set_device(0)
    model = torch.nn.Linear(64, 64).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    import atexit; atexit.register(torch.npu.synchronize)
    for x in DataLoader(Data(), batch_size=15, num_workers=2, multiprocessing_context="spawn"):
        model(x.npu()).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
    run = profile(npu, tmp_path, "train.py", source=source)
    assert run.code == 0, run.err
    assert run.recorded == [[11, 12]] and len(run.raw) == 1
    assert [w for w in run.manifest["warnings"] if "recorded nothing" in w] == []


# ---- other engines ----


def test_msprof(npu: dict[str, str], tmp_path: Path) -> None:
    """The whole program, its own exit status, and its data even where msprof gives up."""
    run = profile(npu, tmp_path, "--engine", "msprof", "train.py", source=TRAIN + "sys.exit(1)")
    assert run.code == 1, run.err
    (table,) = run.raw[0].glob("mindstudio_profiler_output/op_summary*.csv")
    assert len(table.read_text().splitlines()) > 100
    lacking = profile(npu, tmp_path, "-o", "other", "--engine", "msprof", "--sys-interconnection", "train.py")
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


def test_the_legacy_profiler(npu: dict[str, str], tmp_path: Path) -> None:
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
    run = profile(npu, tmp_path, *options, "train.py", source=source, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
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


def test_without_an_npu(npu: dict[str, str], tmp_path: Path) -> None:
    """auto falls back to the CPU and says so loudly; a real model, a real trace."""
    source = TRAIN.replace("torch.npu.set_device", "int").replace("torch.npu.synchronize", "int").replace(".npu()", "")
    run = profile(npu, tmp_path, "--shapes", "train.py", source=source, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert run.code == 0, run.err
    assert "NO NPU (torch_npu was not imported): only the CPU was recorded" in run.err
    (trace,) = run.raw
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["name"] for e in events if e["name"].startswith("ProfilerStep#") and e["ph"] == "X"] == [
        "ProfilerStep#11",
        "ProfilerStep#12",
    ]
    linear = [e for e in events if e.get("name") == "aten::linear"]
    assert len(linear) == 2 and linear[0]["args"]["Input Dims"]
    assert run.recorded == [[11, 12]]


def test_steps_outside_the_window_cost_nothing_afterwards(npu: dict[str, str], tmp_path: Path) -> None:
    """When all is recorded, the hooks are gone."""
    home = "torch.optim.SGD.step.__code__.co_filename.startswith(os.path.dirname(torch.__file__))"
    source = TRAIN + f"print({home}, os._exit.__module__)"
    run = profile(npu, tmp_path, "train.py", source=source)
    assert run.code == 0, run.err
    assert run.out.splitlines()[-1] == "True posix"


# ---- core limits, end to end ----


def test_a_core_limit_is_verified_and_violated(npu: dict[str, str], tmp_path: Path) -> None:
    """The stand-in's exporter obeys a limit as limit_core_num would: the gate passes, and fails for a lower one."""
    run = profile(npu, tmp_path, "--wait", "2", "--active", "1", "train.py", FAKE_CANN_CORE_LIMIT="4,5")
    assert run.code == 0, run.err
    rows = run.kernels()
    blocks = {int(row["Block Num"]) for row in rows}  # both spellings: test_expect
    assert max(blocks) == 5

    def gate(limit: str) -> int:
        options = [f"--expect-cores={stream}={limit}" for stream in sorted({row["Stream ID"] for row in rows})]
        analyze = [sys.executable, "-m", "npuperf", "analyze", "result", *options]
        return subprocess.run(analyze, cwd=tmp_path, capture_output=True, check=False).returncode

    assert (gate("4,5"), gate("4,4"), gate("3,5")) == (0, 1, 1)

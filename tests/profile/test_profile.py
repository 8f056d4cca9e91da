"""``npuperf profile`` without torch: options, commands, environment, folders, and what is said."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from npuperf.cann import set_env_script
from npuperf.cli.profile import ScriptCommand
from npuperf.errors import UsageError
from npuperf.profile.command import resolve
from npuperf.profile.environment import distortions, for_program, worth_keeping
from npuperf.profile.export import raw_folders
from npuperf.profile.folder import RunFolder, check_free, create
from npuperf.profile.msprof import find_msprof, msprof_first
from npuperf.profile.options import Options, build, e2e_arguments, msprof_arguments, torch_arguments
from npuperf.profile.processes import ProcessStatus, StepTimes, read_all
from npuperf.profile.remarks import overhead_of, remarks, why_nothing
from npuperf.profile.watch import Watch

ROOT = Path(__file__).resolve().parents[2]


def npuperf(*arguments: object, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "npuperf", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


# ---- options ----


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0", "ArithmeticUtilization"),
        ("1", "PipeUtilization"),
        ("2", "Memory"),
        ("3", "MemoryL0"),
        ("4", "ResourceConflictRatio"),
        ("5", "MemoryUB"),
        ("0xFF", "AiCoreNone"),
        ("255", "AiCoreNone"),
        ("none", "AiCoreNone"),
        ("l2cache", "L2Cache"),
    ],
)
def test_metrics_by_name_or_by_the_vendor_s_number(text: str, name: str) -> None:
    assert build({"aic_metrics": text}, []).aic_metrics == name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"engine": "torhc"}, "did you mean torch?"),
        ({"aic_metrics": "PipeUtil"}, "did you mean PipeUtilization?"),
        ({"aic_metrics": "9"}, "5 MemoryUB"),
        ({"level": "3"}, "valid: 0, 1, 2, none"),
        ({"step_on": "sometimes"}, "2-seconds"),
        ({"step_on": "0-seconds"}, "2-seconds"),
        ({"ranks": "0,x"}, "'x' is not a rank"),
        ({"ranks": "5-3"}, "not a rank"),
        ({"max_size": "much"}, "500M"),
        ({"activities": "gpu"}, "CPU, NPU"),
        ({"host_sys": "cpu,ram"}, "valid: cpu, mem"),
        ({"engine": "msprof", "stack": True}, "for --engine torch or cpu or e2e"),
        ({"training_trace": True}, "needs --engine e2e"),
        ({"engine": "e2e", "aic_metrics": "L2Cache"}, "has only ArithmeticUtilization"),
        ({"op_attr": True}, "--export db"),
        ({"mstx_include": "a", "mstx_exclude": "b"}, "only one"),
        ({"communication": False}, "only the e2e engine"),
        ({"communication": True, "level": "0"}, "--level 1"),
        ({"level": "0", "aic_metrics": "Memory"}, "no counters are recorded at level 0"),
    ],
)
def test_values_that_cannot_be_are_explained(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(values, values)
    assert words in str(caught.value)


def test_sizes_and_ranks() -> None:
    options = build({"max_size": "1.5G", "ranks": "0,2-4", "step_on": "0.5s"}, [])
    assert options.max_size == 3 * 2**29
    assert options.ranks == (0, 2, 3, 4)
    assert options.step_on == "0.5"


def test_what_torch_npu_is_given() -> None:
    values = {"level": "2", "aic_metrics": "3", "export": "both", "stack": True, "gc_threshold": 2.0, "host_sys": "mem"}
    found = torch_arguments(build(values, ["stack", "level"]))
    assert found["profile"] == [("with_stack", True, "--stack")]
    assert {key: value for key, value, _ in found["experimental"]} == {
        "profiler_level": "Level2",
        "aic_metrics": "MemoryL0",
        "export_type": ["Text", "Db"],
        "gc_detect_threshold": 2.0,
        "host_sys": ["MEM"],
    }
    assert {key for key, _, option in found["experimental"] if option} == {"profiler_level"}
    quiet = {k: v for k, v, _ in torch_arguments(build({"level": "0"}, ["level"]))["experimental"]}
    assert quiet["aic_metrics"] == "AiCoreNone", "counters need level 1: asking for them would only make a warning"


def test_what_the_legacy_profiler_is_given() -> None:
    """Defaults are those of the vendor's table."""
    assert {key: value for key, value, _ in e2e_arguments(Options(engine="e2e"))} == {
        "ACL_PROF_ACL_API": True,
        "ACL_PROF_TASK_TIME": True,
        "ACL_PROF_AICORE_METRICS": True,
        "ACL_PROF_AICPU": True,
        "ACL_PROF_L2CACHE": False,
        "ACL_PROF_HCCL_TRACE": True,
        "ACL_PROF_TRAINING_TRACE": False,
        "TORCH_CALL_STACK": False,
        "aiCoreMetricsType": 1,
    }


def test_what_msprof_is_given() -> None:
    values = {"engine": "msprof", "level": "2", "host_sys": "cpu,mem", "export": "db", "max_size": "3G", "mstx": True}
    found = msprof_arguments(build(values, values))
    assert found == [
        "--task-time=l1",
        "--runtime-api=on",
        "--aic-metrics=PipeUtilization",
        "--aicpu=on",
        "--msproftx=on",
        "--type=db",
        "--host-sys=cpu,mem",
        "--storage-limit=3072MB",
    ]


# ---- the command line ----


@pytest.mark.parametrize(
    ("line", "engine", "words"),
    [
        ("--engine cpu train.py --engine torch -o x", "cpu", ["train.py", "--engine", "torch", "-o", "x"]),
        ("--engine cpu -- train.py -- --engine", "cpu", ["train.py", "--", "--engine"]),
        ("--engine cpu -m mod --engine torch -m other", "cpu", ["-m", "mod", "--engine", "torch", "-m", "other"]),
        ("-m mod", "auto", ["-m", "mod"]),
        ("-o out -m mod -- x", "auto", ["-m", "mod", "--", "x"]),
    ],
)
def test_options_end_at_the_script(
    tmp_path: Path, line: str, engine: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    done = npuperf("profile", "--dry-run", "--python", sys.executable, *line.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()[0]
    assert shown.endswith(" ".join([Path(sys.executable).name, *words]))
    assert not (tmp_path / "result").exists() and not (tmp_path / "out").exists()


def test_every_option_is_a_field(tmp_path: Path) -> None:
    """What the command line offers and what a plan knows cannot drift apart."""
    import typer.main

    from npuperf.cli import app

    group: Any = typer.main.get_command(app)
    command = group.commands["profile"]
    assert isinstance(command, ScriptCommand)
    offered = {p.name for p in command.params}
    apart = {"command", "module", "output", "force", "python", "analyze", "dry_run", "debug", "recipe"}
    assert offered - apart == set(Options.__struct_fields__) - {"given"}
    for parameter in command.params:
        if parameter.name in Options.__struct_fields__ and parameter.default is not None:
            values = {parameter.name: parameter.default}
            assert getattr(build(values, []), parameter.name) == getattr(Options(), parameter.name), parameter.name


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to run"),
        (["none.py"], 2, "none.py: no such file"),
        (["no-such-command"], 2, "no such file or command"),
        (["--export", "nowhere"], 2, "no such format or folder"),
        (["--export", "text", "--export", "db"], 2, "one format"),
        (["--export", ".", "train.py"], 2, "runs no program"),
        (["--export", "empty"], 3, "no raw profiling data found"),
        (["--wait", "0", "train.py"], 2, "--wait"),
        (["-o", "empty/../data", "train.py"], 2, "is no run of npuperf"),
        (["--python", "no-python", "train.py"], 2, "no such program"),
        (["notes.txt"], 2, "neither a Python file"),
        (["--engine", "msprof", "train.py"], 3, "msprof was not found"),
    ],
)
def test_errors_teach(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "notes.txt").write_text("dear diary")
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("1")
    done = npuperf("profile", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "result").exists()


def test_programs_without_torch_keep_their_status(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.stdin.read() == ''); sys.exit(4)")
    done = npuperf("profile", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "True\n")
    assert "the program failed before it imported torch" in done.stderr
    manifest = json.loads((tmp_path / "result" / "npuperf.json").read_text())
    assert manifest["stages"]["run"]["exit_status"] == 4
    assert manifest["options"]["wait"] == 10


# ---- commands ----


def test_what_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    Path("run.sh").write_text("python train.py")
    Path("tool").write_text("#!/bin/sh\n")
    Path("tool").chmod(0o755)
    Path("pack").mkdir()
    Path("pack/__main__.py").write_text("")
    me = sys.executable
    assert resolve(["train.py", "-x"], python=me).argv == (me, "train.py", "-x")
    assert resolve(["run.sh"], python=me).argv in (("bash", "run.sh"), ("sh", "run.sh"))
    assert resolve(["tool", "a"], python=me).argv == ("./tool", "a")
    assert resolve(["pack"], python=me).argv == (me, "pack")
    assert resolve(["a", "b"], module="pkg.mod", python=me).argv == (me, "-m", "pkg.mod", "a", "b")
    launched = resolve(["sh", "-c", "x", "train.py"], python=me)
    assert launched.argv == ("sh", "-c", "x", "train.py") and launched.script == Path("train.py")


# ---- environment ----


def test_only_what_silences_is_removed() -> None:
    before = {"PROFILING_MODE": "true", "PYTHONPATH": "/mine", "X": "1", "PROFILER_SAMPLECONFIG": "s"}
    chosen, warnings = for_program(before, Path("/agent"), Path("/plan"))
    assert chosen == {"PYTHONPATH": "/agent:/mine", "X": "1", "NPUPERF_PLAN": "/plan"}
    assert len(warnings) == 2 and "PROFILING_MODE=true" in warnings[1]
    assert before["PYTHONPATH"] == "/mine"


def test_distortions_are_named_with_their_reason() -> None:
    assert distortions({"ASCEND_LAUNCH_BLOCKING": "0", "PYTHONTRACEMALLOC": "0"}) == []
    (found,) = distortions({"ASCEND_LAUNCH_BLOCKING": "1"})
    assert found.startswith("ASCEND_LAUNCH_BLOCKING=1 is set: every operator waits")


def test_the_manifest_keeps_no_secrets() -> None:
    kept = worth_keeping({"ASCEND_HOME_PATH": "/a", "HCCL_TOKEN": "x", "TORCH_API_KEY": "y", "HOME": "/h", "RANK": "0"})
    assert kept == {"ASCEND_HOME_PATH": "/a", "RANK": "0"}


# ---- CANN ----


def install(root: Path, binary: str, script: str) -> Path:
    """Make a toolkit with an msprof that runs a shell script."""
    path = root / binary
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("binary", ["tools/profiler/bin/msprof", "toolkit/tools/profiler/bin/msprof"])
@pytest.mark.parametrize("variable", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
def test_msprof_is_found_in_every_layout(tmp_path: Path, binary: str, variable: str) -> None:
    path = install(tmp_path, binary, "echo usage: --export")
    (tmp_path / "set_env.sh").write_text("")
    environment = {"PATH": "/bin", variable: str(tmp_path)}
    found = find_msprof(environment)
    assert found is not None and found.binary == path and found.works
    assert set_env_script(environment) == str(tmp_path / "set_env.sh")
    on_path = install(tmp_path / "other", "msprof", "echo")
    first = find_msprof({**environment, "PATH": str(on_path.parent)})
    assert first is not None and first.binary == on_path


def test_without_a_driver_the_toolkit_s_exporter_takes_over(tmp_path: Path) -> None:
    binary = install(tmp_path, "tools/profiler/bin/msprof", 'echo "Init platform by driver failed!"; exit 255')
    script = tmp_path / "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(4 if sys.argv[2] == 'summary' else 0)")
    found = find_msprof({"PATH": str(binary.parent)})
    assert found is not None and not found.works and found.note and "finds no driver" in found.note
    with msprof_first(found, {"PATH": os.environ["PATH"]}) as environment:
        call = ["msprof", "--export=on", "--output=/data/PROF_1"]
        done = subprocess.run(call, env=environment, capture_output=True, text=True)
        stand_in = Path(environment["PATH"].split(os.pathsep)[0]) / "msprof"
        # where torch_npu looks for the exporter
        root = str(stand_in.resolve()).split("tools")[0]
        assert (Path(root) / "tools/profiler/profiler_tool/analysis/msprof/msprof.py").is_file()
    assert done.stdout.splitlines() == [
        "['export', 'timeline', '-dir', '/data/PROF_1']",
        "['export', 'summary', '-dir', '/data/PROF_1']",
    ]
    assert done.returncode == 4


# ---- folders ----


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    for number in range(3):
        folder, moved = create(tmp_path / "result", force=True)
        (folder.raw / "data").write_text(str(number))
        folder.manifest.write_text("{}")
        assert moved == (tmp_path / f"result.{number}" if number else None)
    assert [(tmp_path / f"result.{n}" / "raw" / "data").read_text() for n in (1, 2)] == ["0", "1"]
    with pytest.raises(UsageError, match=r"holds a run already"):
        check_free(tmp_path / "result", force=False)
    assert not (RunFolder(tmp_path / "result").raw.stat().st_mode & stat.S_IWOTH)


def test_a_run_that_recorded_nothing_is_in_nobody_s_way(tmp_path: Path) -> None:
    """But one with data, or with tuning runs, is."""
    folder, _ = create(tmp_path / "result", force=False)
    folder.manifest.write_text("{}")
    again, moved = create(tmp_path / "result", force=False)
    assert moved == tmp_path / "result.1" and again.path == tmp_path / "result"
    again.manifest.write_text("{}")
    (again.path / "tune" / "20260101").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds a run already"):
        create(tmp_path / "result", force=False)


def test_raw_data_is_found_once(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "host_1_20260101000000000_ascend_pt" / "PROF_000001_20260101000000000_ABC"
    outer = tmp_path / "b" / "PROF_000002_20260101000000000_ABC"
    for folder in (inner / "host", outer / "device_0"):
        folder.mkdir(parents=True)
    assert raw_folders(tmp_path) == [inner.parent, outer]
    assert raw_folders(inner.parent) == [inner.parent] and raw_folders(inner) == [inner]


# ---- what is said ----


def process(**news: Any) -> ProcessStatus:
    return msgspec.convert({"state": "recorded", "pid": 7, "host": "h", "folders": ("f",), **news}, ProcessStatus)


def test_overhead_by_hand() -> None:
    """Of the steps before the window the later half counts: 30, 20 and 10 with those after it, 12: median 16."""
    times = StepTimes(before=(900, 800, 30, 20), inside=(40, 32), after=(10, 12))
    found = overhead_of([process(step_ns=msgspec.to_builtins(times))])
    assert found is not None
    assert (found.inside_ns, found.outside_ns, found.inside, found.outside) == (36, 16, 2, 4)
    assert found.share == 1.25
    assert overhead_of([process()]) is None


def test_remarks() -> None:
    world = [process(rank=0, world_size=4), process(rank=1, world_size=4, folders=(), state="waiting", step=5)]
    found = remarks(world, Options())
    assert "rank 1 recorded nothing: waiting at step 5" in found
    assert any(r.startswith("ranks 2, 3 did not report") for r in found)
    assert remarks([process(rank=0, world_size=4)], Options(ranks=(0,))) == []
    (died,) = remarks([process(state="recording")], Options())
    assert "died while recording" in died
    loud = remarks([process(engine="cpu", why_cpu="no torch_npu")], Options(given=("level",)))
    assert "NO NPU (no torch_npu)" in loud[0] and "--level" in loud[1]


@pytest.mark.parametrize(
    ("processes", "options", "words"),
    [
        ([], Options(), "imported torch"),
        (
            [{"state": "failed", "import_error": "torch: ImportError: libascendcl.so: cannot open"}],
            Options(),
            "source ",
        ),
        ([{"state": "waiting", "step": 0}], Options(step_on="forward"), "call of a module"),
        ([{"state": "waiting", "step": 12}], Options(active=5), "--wait 6 "),
        ([{"state": "waiting for the NPU", "step": 12}], Options(), "never used an NPU"),
        ([{"state": "saving", "step": 12}], Options(), "died while saving"),
        ([{"state": "left out", "step": 9, "rank": 3}], Options(ranks=(8,)), "there were: 3"),
    ],
)
def test_why_there_is_nothing(processes: list[dict[str, Any]], options: Options, words: str) -> None:
    statuses = [process(**{"folders": (), **p}) for p in processes]
    problem = why_nothing(statuses, options, {}, 0)
    assert words in f"{problem.what} {problem.hint}"


def test_progress_is_told_once_per_phase(tmp_path: Path) -> None:
    folder, _ = create(tmp_path / "result", force=False)
    said: list[str] = []
    watch = Watch(folder, Options(), said.append)
    states = [
        ("waiting", 4, []),
        ("waiting", 5, []),
        ("warming up", 10, []),
        ("recording", 11, [11]),
        ("recording", 12, [11, 12]),
        ("recorded", 13, [11, 12]),
    ]
    watch.tick()
    for state, step, recorded in states:
        document = {"state": state, "step": step, "recorded": recorded, "pid": 1, "host": "h", "rank": 0}
        (folder.status / "h_1.json").write_text(json.dumps(document))
        watch.tick()
        watch.tick()
    assert said == [
        "step 4 of 10 before recording (rank 0)",
        "warming up: step 10 (rank 0)",
        "recording: step 11, 1 of 2 (rank 0)",
        "recorded 2 steps (rank 0); the program goes on",
    ]


def test_data_that_is_found_too_large_only_at_the_end(tmp_path: Path) -> None:
    folder, _ = create(tmp_path / "result", force=False)
    (folder.raw / "data").write_bytes(bytes(3000))
    process = ProcessStatus(state="recorded", pid=1, host="h")
    stopped = msgspec.structs.replace(process, stopped="at step 3: large")
    assert Watch(folder, Options(max_size=3000), None).too_late([process]) == []
    assert Watch(folder, Options(max_size=2048), None).too_late([stopped]) == []
    (line,) = Watch(folder, Options(max_size=2048), None).too_late([process])
    assert line.startswith("2.9 KiB are more than --max-size 2.0 KiB; recording had ended")
    assert remarks([stopped], Options()) == ["pid 1: recording stopped at step 3: large"]


def test_half_a_status_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "h_1.json").write_text(
        '{"state": "waiting", "pid": 1, "host": "h", "later": "unknown fields are fine"}'
    )
    (tmp_path / "h_2.json").write_text('{"state": "wai')
    assert [p.pid for p in read_all(tmp_path)] == [1]


# ---- the agent, without torch ----


def test_the_window_by_brute_force() -> None:
    """Against a list of what every step of every cycle does."""
    sys.path.insert(0, str(ROOT))
    from npuperf.agent.schedule import Window

    for wait, warmup, active, repeat, delay in itertools.product((1, 3), (0, 2), (1, 2), (1, 2), (0, 4)):
        schedule = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        window = Window({"whole_run": False, "schedule": schedule})
        window.delay = delay
        cycle = ["wait"] * wait + ["warm up"] * warmup + ["record"] * active
        expected = ["wait"] * delay + cycle * repeat + ["over"] * 5
        assert [window.phase(step) for step in range(len(expected))] == expected
        begins = [delay + wait + n * len(cycle) for n in range(repeat)]
        assert [step for step in range(len(expected)) if window.begins(step)] == begins


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ("AAAA", [0, 1, 2, 3]),  # one optimizer
        ("ABABAB", [0, 2, 4]),  # two that take turns
        ("DDDGDDDG", [0, 1, 2, 4, 5, 6]),  # one that steps several times a round
        ("AABBB", [0, 1, 3, 4]),  # A is given up for B
        ("ABCABC", [0, 3]),  # one per layer
    ],
)
def test_a_step_ends_when_an_optimizer_comes_round_again(events: str, steps: list[int]) -> None:
    from npuperf.agent.sources import once_per_round

    objects = {name: object() for name in set(events)}
    ended: list[int] = []
    now = [0]
    event = once_per_round(lambda: ended.append(now[0]))
    for now[0], name in enumerate(events):
        event(objects[name])
    assert ended == steps


def test_nested_steps_count_once() -> None:
    """Subclasses call their parents' step; wrappers call the optimizer they wrap."""
    from types import SimpleNamespace

    from npuperf.agent.sources import optimizers

    class Optimizer:
        def __init__(self) -> None:
            self.calls = 0

        def step(self) -> str:
            self.calls += 1
            return "done"

    class Derived(Optimizer):
        def step(self) -> str:
            return super().step()

    seen: list[object] = []
    undo = optimizers(SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer)), seen.append)
    plain, derived = Optimizer(), Derived()
    assert (plain.step(), derived.step(), derived.step()) == ("done", "done", "done")
    assert seen == [plain, derived, derived]
    undo()
    Derived().step()
    assert len(seen) == 3 and Optimizer.step.__qualname__.endswith("Optimizer.step")
    assert Derived.step.__code__.co_name == "step"


def start(tmp_path: Path, code: str, *flags: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that carries the agent, with a package called torch that does nothing."""
    package = tmp_path / "modules" / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(extra.pop("TORCH", "class optim:\n    class Optimizer: pass\n"))
    plan = tmp_path / "plan.json"
    (tmp_path / "status").mkdir(exist_ok=True)
    document = {"engine": "auto", "status": str(tmp_path / "status"), "whole_run": False, "step_on": "optimizer"}
    schedule = {"wait": 1, "warmup": 0, "active": 1, "repeat": 1}
    plan.write_text(json.dumps({**document, "schedule": schedule, "ranks": None}))
    inject = ROOT / "npuperf" / "agent" / "inject"
    search = os.pathsep.join(map(str, [inject, tmp_path / "modules"]))
    environment = {**os.environ, "PYTHONPATH": search, "NPUPERF_PLAN": str(plan), **extra}
    return subprocess.run(
        [sys.executable, *flags, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )


def test_the_agent_gives_way_to_the_sitecustomize_it_hides(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sitecustomize.py").write_text("print('mine')")
    done = start(tmp_path, "import sys; print(sys.modules['sitecustomize'].__file__, '_npuperf_agent' in sys.modules)")
    assert done.stdout == f"mine\n{tmp_path / 'modules' / 'sitecustomize.py'} True\n", done.stderr


def test_imports_are_left_alone(tmp_path: Path) -> None:
    """Modules and their loaders are what they would be, and errors are the import's own."""
    code = "import torch; print(torch.__spec__.loader.exec_module.__qualname__, torch.__file__)"
    plain = start(tmp_path, code, NPUPERF_PLAN="")
    mine = start(tmp_path, code)
    assert plain.stdout == mine.stdout and plain.stdout.startswith("_LoaderBasics.exec_module ")
    (tmp_path / "modules" / "torch_npu.py").write_text("raise KeyError('its own')")
    assert "KeyError: 'its own'" in start(tmp_path, "import torch, torch_npu").stderr


def test_a_broken_import_is_told_and_raised(tmp_path: Path) -> None:
    torch = "raise ImportError('libhccl.so: cannot open shared object file')"
    done = start(tmp_path, "import torch", TORCH=torch)
    assert done.returncode == 1 and "libhccl.so" in done.stderr
    (status,) = read_all(tmp_path / "status")
    assert status.import_error == "torch: ImportError: libhccl.so: cannot open shared object file"


def test_an_error_of_the_agent_never_stops_the_program(tmp_path: Path) -> None:
    done = start(tmp_path, "import torch; print('goes on')", TORCH="pass")
    assert done.returncode == 0 and done.stdout == "goes on\n"
    assert "npuperf: not profiling this process: AttributeError" in done.stderr


class Version:
    """A torch_npu.profiler as an older release had it."""

    class ProfilerLevel:
        Level0 = 0
        Level1 = 1

    class AiCMetrics:
        PipeUtilization = 1

    @staticmethod
    def _ExperimentalConfig(profiler_level: int = 0, aic_metrics: int = 1, l2_cache: bool = False) -> None: ...

    @staticmethod
    def profile(activities: Any = None, schedule: Any = None, with_stack: bool = False) -> None: ...


def test_what_an_older_version_lacks() -> None:
    """Only what was asked for is a problem; defaults it does not know are left out."""
    from types import SimpleNamespace

    from npuperf.agent.engines import TorchNpu

    def problems(**values: Any) -> list[str]:
        plan = {"raw": "", "activities": ["CPU"], **torch_arguments(build(values, values))}
        return TorchNpu(plan, SimpleNamespace(profiler=Version)).problems()

    assert problems() == [] and problems(l2_cache=True, stack=True) == []
    assert problems(level="2") == ["--level: no Level2 in this version, only Level0, Level1"]
    assert problems(aic_metrics="L2Cache") == ["--aic-metrics: no L2Cache in this version, only PipeUtilization"]
    assert problems(mstx=True, export="db") == [
        "--export: this version has no export_type",
        "--mstx: this version has no mstx",
    ]
    assert problems(flops=True, host_sys="cpu") == [
        "--host-sys: this version has no host_sys",
        "--flops: this version has no with_flops",
    ]


def test_the_agent_runs_under_old_pythons() -> None:
    """Syntax of 3.7 and nothing but the standard library: the program's interpreter may be older than npuperf's."""
    import ast

    standard = {*sys.stdlib_module_names, "torch_npu", "sitecustomize"}
    for path in sorted((ROOT / "npuperf" / "agent").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 7))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level}
        assert {n.split(".")[0] for n in names} <= standard, path
        assert any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body), path


def test_step_does_nothing_where_nobody_profiles() -> None:
    import npuperf as package

    package.step()

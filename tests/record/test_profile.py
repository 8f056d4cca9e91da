"""``npuperf profile`` without torch: the command line, what is started, in which environment, and into which folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_cli

from npuperf.base.cann import set_env_script
from npuperf.base.errors import UsageError
from npuperf.record.export import raw_folders
from npuperf.record.folder import RunFolder, check_free, create
from npuperf.record.plan import find_msprof, msprof_first
from npuperf.record.program import distortions, for_program, resolve, worth_keeping

ROOT = Path(__file__).resolve().parents[2]


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
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    done = run_cli(["profile", "--dry-run", "--python", sys.executable, *line.split()], columns=1000)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()[0]
    assert shown.endswith(" ".join([Path(sys.executable).name, *words]))
    assert not (tmp_path / "result").exists() and not (tmp_path / "out").exists()


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
        (["-o", "empty/../data", "train.py"], 2, "is not a run of npuperf"),
        (["--python", "no-python", "train.py"], 2, "no such program"),
        (["notes.txt"], 2, "neither a Python file"),
        (
            ["--python", "./no-jupyter", "a b.ipynb"],
            2,
            "jupyter nbconvert --to script 'a b.ipynb' && npuperf profile 'a b.py'",
        ),
        (["--engine", "msprof", "train.py"], 3, "msprof was not found"),
    ],
)
def test_errors_teach(
    tmp_path: Path, arguments: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "notes.txt").write_text("dear diary")
    (tmp_path / "a b.ipynb").write_text("{}")
    (tmp_path / "no-jupyter").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "no-jupyter").chmod(0o755)
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("1")
    done = run_cli(["profile", *arguments])
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "result").exists()


def test_programs_without_torch_keep_their_status(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.stdin.read() == ''); sys.exit(4)")
    call = [sys.executable, "-m", "npuperf", "profile", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        call, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
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
    Path("a.ipynb").write_text("{}")
    assert resolve(["a.ipynb"], python=me).argv == (me, "-m", "jupyter", "execute", "a.ipynb")
    for shell in ("sh", "bash"):
        with monkeypatch.context() as alone:
            alone.setenv("PATH", str(install(tmp_path / shell, shell, "").parent))
            assert resolve(["run.sh"], python=me).argv == (shell, "run.sh")
    assert resolve(["tool", "a"], python=me).argv == ("./tool", "a")
    Path("script").write_text("#!/usr/bin/env python3\n")
    for mode, argv in ((0o644, (me, "script")), (0o755, ("./script",))):
        Path("script").chmod(mode)
        assert resolve(["script"], python=me).argv == argv
    assert resolve(["pack"], python=me).argv == (me, "pack")
    assert resolve(["a", "b"], module="pkg.mod", python=me).argv == (me, "-m", "pkg.mod", "a", "b")
    launched = resolve(["sh", "-c", "x", "train.py"], python=me)
    assert launched.argv == ("sh", "-c", "x", "train.py") and launched.script == Path("train.py")


# ---- environment ----


def test_only_what_silences_is_removed() -> None:
    before = {"PROFILING_MODE": "true", "PYTHONPATH": "/mine", "X": "1", "PROFILER_SAMPLECONFIG": "s"}
    chosen, warnings = for_program(before, Path("/agent"), Path("/plan"))
    assert chosen == {"PYTHONPATH": "/agent:/mine", "X": "1", "NPUPERF_PLAN": "/plan"}
    assert len(warnings) == 2 and "PROFILING_MODE=true" in str(warnings[1])
    assert before["PYTHONPATH"] == "/mine"


def test_distortions_are_named_with_their_reason() -> None:
    assert distortions({"ASCEND_LAUNCH_BLOCKING": "0", "PYTHONTRACEMALLOC": "0"}) == []
    (found,) = distortions({"ASCEND_LAUNCH_BLOCKING": "1"})
    assert str(found).startswith("ASCEND_LAUNCH_BLOCKING=1 is set: every operator waits")


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
    alone = find_msprof({"PATH": str(binary.parent)})
    assert alone is not None and alone.script is None and "there is no msprof.py beside it" in str(alone.note)
    script = tmp_path / "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(4 if sys.argv[2] == 'summary' else 0)")
    found = find_msprof({"PATH": str(binary.parent)})
    assert found is not None and not found.works and "finds no driver" in str(found.note)
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
        folder.lock.release()
        assert moved == (tmp_path / f"result.old.{number}" if number else None)
    assert [(tmp_path / f"result.old.{n}" / "raw" / "data").read_text() for n in (1, 2)] == ["0", "1"]
    with pytest.raises(UsageError, match=r"already holds a run"):
        check_free(tmp_path / "result", force=False)
    assert not (RunFolder(tmp_path / "result").raw.stat().st_mode & stat.S_IWOTH)


def test_a_run_that_recorded_nothing_is_in_nobody_s_way(tmp_path: Path) -> None:
    """But one with data, or with tuning runs, is."""
    folder, _ = create(tmp_path / "result", force=False)
    folder.manifest.write_text("{}")
    folder.lock.release()
    again, moved = create(tmp_path / "result", force=False)
    assert moved == tmp_path / "result.old.1" and again.path == tmp_path / "result"
    again.manifest.write_text("{}")
    again.lock.release()
    (again.path / "tune" / "20260101").mkdir(parents=True)
    with pytest.raises(UsageError, match="already holds a run"):
        create(tmp_path / "result", force=False)


def test_raw_data_is_found_once(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "host_1_20260101000000000_ascend_pt" / "PROF_000001_20260101000000000_ABC"
    outer = tmp_path / "b" / "PROF_000002_20260101000000000_ABC"
    for folder in (inner / "host", outer / "device_0"):
        folder.mkdir(parents=True)
    assert raw_folders(tmp_path) == [inner.parent, outer]
    assert raw_folders(inner.parent) == [inner.parent] and raw_folders(inner) == [inner]

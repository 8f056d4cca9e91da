"""``npuperf profile`` with the real torch_npu over the CANN stand-in: what survives, and why there is nothing."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conftest import run_cli
from npu_runs import (
    MODEL,
    OFF,
    ON_THE_CPU,
    SHOWN,
    TOLD,
    TRAIN,
    Run,
    analyzed,
    command,
    copy_of,
    on_the_cpu,
    profile,
    run_once,
    steps_of,
)
from preloaded import Loaded


@pytest.fixture(scope="module")
def default(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was exported and analyzed, to be read and copied only."""
    return analyzed(loaded, tmp_path_factory)


@pytest.fixture(scope="module")
def elsewhere(loaded: Loaded, default: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Raw data of that run, exported into another one; the stand-in's exporter obeys a limit of cores."""
    limited = {"FAKE_CANN_CORE_LIMIT": "4,5"}
    (source,) = default.raw

    def make(folder: Path) -> Run:
        before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in source.rglob("*")}
        run = profile(loaded, folder, "--export", source, **limited)
        assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in source.rglob("*")} == before
        return run

    return run_once(tmp_path_factory, "elsewhere", make)


@pytest.fixture(scope="module")
def unexported(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a machine where msprof is not, to be read and copied only."""

    def make(folder: Path) -> Run:
        path = [p for p in loaded["PATH"].split(os.pathsep) if "toolkit" not in p]
        home = folder / "cann"
        shutil.copytree(loaded["ASCEND_HOME_PATH"], home, ignore=shutil.ignore_patterns("msprof", "lib64"))
        hidden = {"PATH": os.pathsep.join(path), "ASCEND_TOOLKIT_HOME": str(home), "ASCEND_HOME_PATH": str(home)}
        return profile(loaded, folder, "train.py", **hidden)

    return run_once(tmp_path_factory, "unexported", make)


# ---- what survives ----

AT_12 = MODEL + "for i in range(30):\n    step()\n    if i == 11: {what}\n"


@pytest.mark.parametrize(
    ("what", "code", "off"),
    [
        ("raise ValueError('boom')", 1, OFF),
        ("sys.exit(7)", 7, {}),  # torch_npu's own handler at exit must come after ours
        ("os._exit(9)", 9, OFF),
    ],
)
def test_a_program_that_ends_inside_the_window(
    loaded: Loaded, tmp_path: Path, what: str, code: int, off: dict[str, str]
) -> None:
    """Its own exit status, and everything recorded until then."""
    source = AT_12.format(what=what)
    own = code == 7  # what is done at exit is in its order only where the program loads torch
    run = profile(loaded, tmp_path, "train.py", source=on_the_cpu(source) if off else source, own=own, **off)
    assert run.code == code
    assert run.recorded == [[11]]
    assert 11 in run.steps
    assert "ended at step 12, during recording" in run.err
    assert f"exit status {code}" in run.err


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSEGV, "the process died while recording: what the profiler had not written by then is lost"),
        (signal.SIGTERM, "SIGTERM ended the program while pid"),
    ],
)
def test_an_end_past_python(loaded: Loaded, tmp_path: Path, number: signal.Signals, words: str) -> None:
    """Nothing can be saved any more; raw data stays, and the exporters' own words are shown."""
    source = AT_12.format(what=f"os.kill(os.getpid(), {int(number)})")
    run = profile(loaded, tmp_path, "train.py", source=source)
    assert run.code == 128 + number
    assert words in run.err and "npuperf profile --export result" in run.err
    assert list(run.raw[0].glob("PROF_*"))


SLOW = MODEL + "for i in range(2000):\n    step(); time.sleep(0.05)\n    print(i, flush=True)\n"


@pytest.mark.parametrize(
    ("number", "to_group", "words", "off"),
    [
        (signal.SIGINT, False, ["train.py"], {}),
        (signal.SIGINT, True, ["train.py"], OFF),
        (signal.SIGTERM, False, ["--", "sh", "-c", f"sleep 300 & {sys.executable} train.py; echo after"], OFF),
    ],
)
def test_signals_stop_recording_and_leave_no_orphan(
    npu: dict[str, str], tmp_path: Path, number: signal.Signals, to_group: bool, words: list[str], off: dict[str, str]
) -> None:
    (tmp_path / "train.py").write_text(on_the_cpu(SLOW) if off else SLOW)
    options = ["--wait", "2", "--warmup", "1", "--active", "1000"]
    with subprocess.Popen(
        command(*options, *words),
        cwd=tmp_path,
        env={**npu, **off},
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
    assert {4, 5, 6} <= run.steps, err
    assert f"npuperf got {number.name} for the program" in err and "after" not in out
    _, alive = psutil.wait_procs(family, timeout=120)
    assert not alive


def test_data_that_grows_too_large(loaded: Loaded, tmp_path: Path) -> None:
    """Recording ends, and the program goes on."""
    source = MODEL + TOLD + "for i in range(2000):\n    step(); time.sleep(0.02)\n    if told() == 'recorded': break\n"
    source += "print(i)\nfor j in range(5): step()"
    run = profile(loaded, tmp_path, "--active", "5000", "--max-size", "10K", "train.py", source=source)
    assert run.code == 0, run.err
    assert "more than --max-size 10.0 KiB" in run.err
    (recorded,) = run.recorded
    assert recorded[0] == 11 and recorded[-1] <= int(run.out.split()[0]) + 1 < 2000
    assert set(recorded) <= steps_of(run.kernels())


# ---- why there is nothing ----


@pytest.mark.parametrize(
    ("arguments", "source", "off", "code", "words"),
    [
        ([], ON_THE_CPU.replace("25", "8"), OFF, 3, "made 8 steps; recording begins at step 11\n  next: --wait 5 "),
        ([], ON_THE_CPU.replace("    step()", "    model(torch.ones(8, 64))"), OFF, 3, "never called optimizer.step()"),
        ([], "print(1)", {}, 3, "no Python process of the program imported torch"),
        (["--ranks", "5"], ON_THE_CPU, OFF, 3, "no process has one of the requested ranks"),
        (["--engine", "e2e"], TRAIN, {}, 2, "up to torch_npu 5.0.0"),
        ([], TRAIN + "    os.environ['PROFILING_MODE'] = 'true'\n", {}, 3, "was set inside"),
    ],
)
def test_why_nothing_was_recorded(
    loaded: Loaded, tmp_path: Path, arguments: list[str], source: str, off: dict[str, str], code: int, words: str
) -> None:
    run = profile(loaded, tmp_path, *arguments, "train.py", source=source, **off)
    assert run.code == code, run.err
    assert words in run.err
    assert run.manifest["problem"]


def test_who_is_interrupted_before_torch_has_not_failed(npu: dict[str, str], tmp_path: Path) -> None:
    """A Python that is interrupted as it starts ends with 1, as one does that cannot find its script."""
    source = (
        "import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(1))\nprint(9, flush=True)\nsignal.pause()"
    )
    (tmp_path / "train.py").write_text(source)
    with subprocess.Popen(command("train.py"), cwd=tmp_path, env={**npu, **OFF}, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == "9\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=100)
    assert child.returncode == 1 and "interrupted before the program imported torch" in err


def test_cann_that_is_not_sourced(loaded: Loaded, tmp_path: Path) -> None:
    bare = copy.copy(loaded)
    for name in [name for name in bare if name.startswith("ASCEND") or name == "LD_LIBRARY_PATH"]:
        del bare[name]
    run = profile(bare, tmp_path, "train.py", own=True)
    assert run.code == 1
    assert "libhccl.so" in run.err and "source /usr/local/Ascend/" in run.err


# ---- exporting ----


def test_exporters_that_fail(loaded: Loaded, unexported: Run, tmp_path: Path) -> None:
    """torch_npu says 0 all the same; the missing file tells. The raw data stays, and another try succeeds.

    Even where there is no driver, without which msprof does not start.
    """
    copy_of(unexported, tmp_path)
    run = profile(loaded, tmp_path, "--export", "result", FAKE_MSPROF_MODE="silent")
    assert run.code == 5
    assert "made no ASCEND_PROFILER_OUTPUT/kernel_details.csv" in run.err and "its exit status was 0" in run.err
    assert run.manifest["stages"]["run"]["status"] == "done"
    again = profile(loaded, tmp_path, "--export", "result", FAKE_MSPROF_DRIVER="0")
    assert again.code == 0, again.err
    assert "finds no driver" in again.err and "msprof.py is used instead" in again.err
    assert len(again.kernels()) > 10


def test_no_msprof(unexported: Run) -> None:
    """Without msprof torch_npu still says that it succeeded."""
    assert unexported.code == 5
    assert "msprof was not found (looked at PATH, " in unexported.err and "source " in unexported.err


def test_export_of_data_collected_elsewhere(default: Run, elsewhere: Run) -> None:
    """The user's data is copied, not touched, even where it holds an export already."""
    assert elsewhere.code == 0, elsewhere.err
    (source,) = default.raw
    assert elsewhere.manifest["imported_from"] == str(source)
    assert [r["Start Time(us)"] for r in elsewhere.kernels()] == [r["Start Time(us)"] for r in default.kernels()]


def test_a_core_limit_is_verified_and_violated(elsewhere: Run) -> None:
    """As limit_core_num would set it: the gate passes, and fails for a lower one."""
    rows = elsewhere.kernels()
    blocks = {int(row["Block Num"]) for row in rows}  # both spellings: test_expect
    assert max(blocks) == 5

    def gate(limit: str) -> int:
        options = [f"--expect-cores={stream}={limit}" for stream in sorted({row["Stream ID"] for row in rows})]
        return run_cli(["analyze", str(elsewhere.folder), *options]).returncode

    assert (gate("4,5"), gate("4,4"), gate("3,5")) == (0, 1, 1)


def test_an_export_that_is_there_survives_one_that_fails(loaded: Loaded, default: Run, tmp_path: Path) -> None:
    """analyse() deletes what is there before it begins; another format must not cost the first."""
    first = copy_of(default, tmp_path)
    before = first.kernels()
    failed = profile(loaded, tmp_path, "--export", "db", "--export", "result", FAKE_MSPROF_RC="3")
    assert failed.code == 5 and first.kernels() == before
    assert "exit status 3" in failed.err, failed.err
    both = profile(loaded, tmp_path, "--export", "db", "--export", "result")
    assert both.code == 0, both.err
    assert len(both.kernels()) == len(before)
    assert list(both.raw[0].glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler*.db"))


def test_the_loop_goes_on_with_analyze(loaded: Loaded, default: Run, tmp_path: Path) -> None:
    assert default.code == 0, default.err
    assert default.out.splitlines()[SHOWN + 2].split()[0] in ("HOST-BOUND", "COMPUTE-BOUND")
    assert (default.folder / "analysis" / "result.json").is_file()
    copy_of(default, tmp_path)
    again = profile(loaded, tmp_path, "-o", "result", "train.py")
    assert again.code == 2 and "already holds a run" in again.err
    kept = profile(loaded, tmp_path, "--force", "-o", "result", "train.py", source=ON_THE_CPU, **OFF)
    assert kept.code == 0 and (tmp_path / "result.old.1" / "analysis" / "result.json").is_file()

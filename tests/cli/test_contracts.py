"""The command line keeps its promises: exit codes, streams, one document, the same numbers in every format."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build import K, kernel_details
from conftest import Done, run_cli

from npuperf.model.result import Partition

ROOT = Path(__file__).resolve().parents[2]


def npuperf(*arguments: object) -> Done:
    return run_cli([*map(str, arguments)], columns=80)


@pytest.fixture(scope="module")
def document(sample: Path) -> dict:
    """Of a process of its own."""
    command = [sys.executable, "-m", "npuperf", "analyze", str(sample), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    return json.loads(done.stdout)


def test_csv_shows_the_numbers_of_the_document(sample: Path, document: dict) -> None:
    rows = list(csv.DictReader(io.StringIO(npuperf("analyze", sample, "--format", "csv").stdout)))
    assert [(r["type"], int(r["count"]), int(r["total_ns"]), float(r["share"])) for r in rows] == [
        (o["type"], o["count"], o["total_ns"], o["share"]) for o in document["operators"]
    ]
    steps = list(csv.DictReader(io.StringIO(npuperf("analyze", sample, "--format", "csv", "--table", "steps").stdout)))
    for shown, step in zip(steps, document["devices"][0]["steps"], strict=True):
        assert {k: int(shown[k]) for k in Partition.__struct_fields__} == step["partition"]


def test_text_is_plain_when_piped_and_fits_80_columns(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the profile's path, which is part of it, is short: our folder may be anywhere."""
    monkeypatch.chdir(sample.parent)
    for arguments in ([], ["--full"]):
        shown = npuperf("analyze", sample.name, *arguments).stdout
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["analyze", "/no/such/place"], 3, "no such file or folder"),
        (["analyze", "{empty}"], 3, "no profile found"),
        (["analyze", "{raw}"], 3, "never exported"),
        (["analyze", "{text}"], 3, "row 1"),
        (["analyze", "{sample}", "--step", "99"], 2, "steps: 11, 12, 13"),
        (["analyze", "{sample}", "--rank", "7"], 2, "ranks: 0"),
        (["analyze", "{sample}", "--device", "7"], 2, "devices: 0"),
        (["analyze", "{sample}", "--cores", "many"], 2, "--cores 24,48"),
        (["analyze", "{sample}", "--soc", "Ascend1"], 2, "Ascend910B1"),
        (["analyze", "{sample}", "-o", "{text}"], 2, "--force"),
        (["analyze", "{sample}", "-o", "{empty}/no/out.json"], 2, "folder does not exist"),
        (["analyze", "{sample}", "--nonsense"], 2, "--nonsense"),
        (["tune", "--mode", "op", "--run", "{empty}"], 2, "nothing to tune"),
    ],
)
def test_errors_teach_and_have_their_exit_code(
    tmp_path: Path, sample: Path, arguments: list[str], code: int, words: str
) -> None:
    places = {"empty": tmp_path / "empty", "raw": tmp_path / "raw", "text": tmp_path / "notes.csv", "sample": sample}
    places["empty"].mkdir()
    (places["raw"] / "PROF_000001_20250101000000000_X" / "device_0" / "data").mkdir(parents=True)
    places["text"].write_text("dear diary,\n")
    done = npuperf(*(a.format(**places) for a in arguments))
    assert done.returncode == code
    assert done.stdout == ""
    assert words in done.stderr and "Traceback" not in done.stderr
    assert places["text"].read_text() == "dear diary,\n"


def test_raw_data_names_the_command_that_exports_it(tmp_path: Path) -> None:
    prof = tmp_path / "PROF_000001_20250101000000000_X"
    (prof / "device_0" / "data").mkdir(parents=True)
    assert f"npuperf profile --export {prof}" in npuperf("analyze", tmp_path).stderr


def test_output_files_are_whole_and_guarded(tmp_path: Path, sample: Path) -> None:
    out = tmp_path / "out.json"
    done = npuperf("analyze", sample, "--format", "json", "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    first = out.read_text()
    assert json.loads(first)["tool"]["name"] == "npuperf"
    assert npuperf("analyze", sample, "-o", out).returncode == 2
    assert out.read_text() == first
    assert npuperf("analyze", sample, "-o", out, "--force", "--format", "text").returncode == 0
    assert out.read_text().startswith("npuperf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json"]


def test_a_run_directory_keeps_the_document(tmp_path: Path) -> None:
    kernel_details(tmp_path / "raw" / "kernel_details.csv", [K(0, 1000)])
    (tmp_path / "npuperf.json").write_text("{}")
    shown = npuperf("analyze", tmp_path, "--format", "json").stdout
    assert (tmp_path / "analysis" / "result.json").read_text() == shown
    assert npuperf("analyze", tmp_path, "--format", "json").stdout == shown


def test_the_document_is_not_kept_behind_a_link(tmp_path: Path) -> None:
    """A run directory may come from a stranger."""
    kernel_details(tmp_path / "run" / "raw" / "kernel_details.csv", [K(0, 1000)])
    (tmp_path / "run" / "npuperf.json").write_text("{}")
    (tmp_path / "precious").mkdir()
    (tmp_path / "run" / "analysis").symlink_to("../precious")
    done = npuperf("analyze", tmp_path / "run")
    assert done.returncode == 0 and "leads out of" in done.stderr
    assert not any((tmp_path / "precious").iterdir())


def test_a_view_of_a_part_does_not_replace_the_document(tmp_path: Path, sample: Path) -> None:
    """And a run that may not be written in is analyzed all the same."""
    run = tmp_path / "result"
    shutil.copytree(sample, run / "raw" / sample.name)
    (run / "npuperf.json").write_text("{}")
    assert npuperf("analyze", run, "--step", "12").returncode == 0
    assert not (run / "analysis").exists()
    (run / "analysis").write_text("in the way")
    done = npuperf("analyze", run)
    assert done.returncode == 0 and "HOST-BOUND" in done.stdout
    assert "not kept in the run" in done.stderr


def test_gates_speak_beside_a_table(sample: Path) -> None:
    done = npuperf("analyze", sample, "--expect-cores", "*=1,1", "--format", "csv")
    assert done.returncode == 1 and "gate FAIL  *=1,1" in done.stderr and "gate" not in done.stdout


def test_file_and_folder_give_the_same_numbers(sample: Path, tmp_path: Path) -> None:
    shutil.copytree(sample, tmp_path / sample.name)
    output = sample / "ASCEND_PROFILER_OUTPUT"
    documents = [json.loads(npuperf("analyze", p, "--format", "json").stdout) for p in (sample, tmp_path, output)]
    for other in documents[1:]:
        assert other["devices"][0]["partition"] == documents[0]["devices"][0]["partition"]
        assert other["operators"] == documents[0]["operators"]


def test_choosing_a_step(sample: Path, document: dict) -> None:
    chosen = json.loads(npuperf("analyze", sample, "--step", 12, "--format", "json").stdout)
    (device,) = chosen["devices"]
    (step,) = device["steps"]
    assert step == document["devices"][0]["steps"][1]
    assert device["partition"] == step["partition"]
    assert sum(o["count"] for o in chosen["operators"]) == sum(o["count"] for o in document["operators"]) / 3


def test_top_limits_the_kernels(sample: Path) -> None:
    assert len(json.loads(npuperf("analyze", sample, "--top", 3, "--format", "json").stdout)["kernels"]) == 3


def test_version_and_help() -> None:
    assert re.fullmatch(r"npuperf \d+\.\d+\.\d+\ncompiled reader: (there|missing; .*)\n", npuperf("--version").stdout)
    for flag in ("-h", "--help"):
        shown = npuperf(flag).stdout
        assert all(command in shown for command in ("profile", "analyze", "tune", "--install-completion"))


@pytest.mark.parametrize(("arguments", "more"), [(["--help"], {"msgspec"}), (["analyze", "--help"], set())])
def test_help_imports_nothing_heavy(arguments: list[str], more: set[str]) -> None:
    """On a verb it reads how that one's request declares its fields."""
    command = [sys.executable, "-X", "importtime", "-m", "npuperf", *arguments]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stderr
    names = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in loaded.splitlines() if "|" in line}
    assert "typer" in names
    assert not names & {"pandas", "pyarrow", "torch", "numpy", "yaml", *more}


def test_analyze_imports_no_torch(sample: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "npuperf", "analyze", str(sample)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stderr
    names = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in loaded.splitlines() if "|" in line}
    assert "pyarrow" in names
    assert not names & {"torch", "torch_npu"}


def test_a_closed_pipe_is_no_error(sample: Path) -> None:
    command = f"{sys.executable} -m npuperf analyze {sample} --full | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_ctrl_c_stops_with_130(sample: Path) -> None:
    script = (
        "import os, signal, sys, npuperf.analyze.run as analysis\n"
        "analysis.Analysis.run = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "from npuperf.cli import main\n"
        f"sys.argv = ['npuperf', 'analyze', {str(sample)!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "npuperf: interrupted"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("profile --debug missing.py", True),
        ("profile missing.py --debug", False),
        ("profile --wait 3 -- missing --debug", False),
        ("profile --level 9 -m package.train --debug", False),
        ("profile --level 9 --debug -m package.train --debug", True),
        ("tune --mode none -- python train.py --debug", False),
        ("tune --mode none --debug -- python train.py", True),
        ("analyze missing --debug", True),
        ("analyze missing", False),
    ],
)
def test_only_our_own_debug_shows_tracebacks(arguments: str, shown: bool) -> None:
    """And the exit status is the same with it."""
    done = run_cli(arguments.split())
    assert ("Traceback" in done.stderr) == shown, done.stderr
    assert done.returncode in (2, 3) and "npuperf: " in done.stderr


def test_an_error_of_npuperf_is_no_fault_of_the_input(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuperf.analyze.run.Analysis.run", lambda *_: 1 // 0)
    done = run_cli(["analyze", str(sample)])
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.startswith("npuperf: internal error: ZeroDivisionError: ") and "report it with" in done.stderr


def test_what_the_system_fails_to_do_is_no_error_of_npuperf(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails, or a file server that is gone, wherever that is met."""

    def fails(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", "/data/run")

    monkeypatch.setattr("npuperf.analyze.run.Analysis.run", fails)
    done = run_cli(["analyze", str(sample)])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("npuperf: /data/run: Stale file handle\n  next: ")

"""What people type first: two paths, a file by its ending, nothing at all, another program's options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import run_cli
from test_baseline_options import profile


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    profile(Path("old"))
    profile(Path("slow"), kernel=20_000, hour=2)
    return tmp_path


def test_two_paths_are_compared(runs: Path) -> None:
    """The older one first: it is the baseline. It is said which is which, and the answer is that of --baseline."""
    done = run_cli(["analyze", "old", "slow", "--format", "json"])
    assert done.stderr.startswith("npuperf: comparing: slow is the new one, old the baseline\n")
    told = run_cli(["analyze", "slow", "--baseline", "old", "--format", "json"])
    assert done.stdout == told.stdout and json.loads(done.stdout)["comparison"]["verdict"] == "worse"


def test_more_than_two_are_not(runs: Path) -> None:
    for words in (["old", "slow", "old"], ["old", "slow", "--baseline", "old"]):
        done = run_cli(["analyze", *words])
        assert done.returncode == 2 and "--again NEW" in done.stderr and not done.stdout


def test_two_ranks_of_a_job_are_no_older_and_newer_run(runs: Path) -> None:
    """Their folder is to be named; who means it says so."""
    one, two = (str(runs / "job" / name) for name in ("first", "second"))
    profile(Path(one))
    recorded = profile(Path(two), hour=1)
    (recorded / "profiler_info_0.json").unlink()
    (recorded / "profiler_info_1.json").write_text(json.dumps({"rank_id": 1}))
    done = run_cli(["analyze", one, two])
    assert done.returncode == 2 and not done.stdout
    assert "ranks 0 and 1 of one folder" in done.stderr
    assert f"npuperf analyze {runs / 'job'} --ranks 0,1" in done.stderr
    assert run_cli(["analyze", two, "--baseline", one, "--allow-mismatch"]).returncode == 0


@pytest.mark.parametrize(
    ("name", "begins"),
    [("x.json", "{"), ("x.html", "<!DOCTYPE html>"), ("x.md", "# "), ("x.CSV", "type,"), ("x.txt", "npuperf ")],
)
def test_a_file_is_written_as_it_is_called(runs: Path, name: str, begins: str) -> None:
    assert run_cli(["analyze", "old", "-o", name]).returncode == 0
    assert Path(name).read_text("utf-8").startswith(begins), Path(name).read_text("utf-8")[:60]
    assert run_cli(["analyze", "old", "-o", name, "--force", "--format", "text"]).returncode == 0  # what is typed wins
    assert Path(name).read_text("utf-8").startswith("npuperf ")


def test_without_a_run_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(["analyze"])
    assert done.returncode == 3
    assert "result: no run is there, and none was named" in done.stderr and "npuperf profile train.py" in done.stderr
    assert "no such file" in run_cli(["analyze", "result"]).stderr  # named, and not there


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--json", "--format json"), ("--md", "--format markdown"), ("--csv", "--format csv"), ("--basline", "--baseline"),
     ("--stk", None), ("--duration", None), ("--verbose", None)],
)  # fmt: skip
def test_an_unknown_option_is_taken_for_one_that_is_near_only(option: str, meant: str | None) -> None:
    done = run_cli(["analyze", option])
    assert done.returncode == 2
    said = done.stderr.partition("did you mean ")[2].partition("?")[0]
    assert said == (meant or "")

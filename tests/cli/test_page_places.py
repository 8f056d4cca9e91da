"""Where pages and traces may be written: nowhere that something was read from, and each in a place of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_cli

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "micro_batch_ascend_pt"
KERNELS = Path("ASCEND_PROFILER_OUTPUT") / "kernel_details.csv"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, an earlier one, and the result of that."""
    monkeypatch.chdir(tmp_path)
    for name in ("now", "before"):
        shutil.copytree(SAMPLE, tmp_path / name)
    (tmp_path / "before.json").write_text(run_cli(["analyze", "before", "--format", "json"]).stdout)
    return tmp_path


@pytest.mark.parametrize("option", ["-o", "--html", "--trace", "--trace-full", "--junit"])
@pytest.mark.parametrize(
    ("baseline", "file"),
    [("before", f"before/{KERNELS}"), ("before.json", "before.json"), ("before", f"now/{KERNELS}"), ("before", "link")],
)
def test_neither_side_of_a_comparison_is_written_over(two: Path, option: str, baseline: str, file: str) -> None:
    (two / "link").symlink_to(two / "before" / KERNELS)
    before = Path(file).read_bytes()
    done = run_cli(["analyze", "now", "--baseline", baseline, option, file, "--force"])
    assert done.returncode == 2 and f"{file}: was read for this report" in done.stderr
    assert Path(file).read_bytes() == before and (two / "link").is_symlink()


@pytest.mark.parametrize("option", ["-o", "--html", "--trace", "--trace-full"])
def test_nor_is_what_is_only_known_once_it_was_read(two: Path, option: str) -> None:
    file, held = Path("before") / KERNELS, (two / "before" / KERNELS).read_bytes()
    done = run_cli(["analyze", "now", "--before", "before", option, str(file), "--force"])
    assert done.returncode == 2 and f"{file}: was read for this report" in done.stderr
    assert file.read_bytes() == held


@pytest.mark.parametrize("other", ["-o", "--trace", "--trace-full", "--junit", "--lock"])
def test_two_things_need_two_files(two: Path, other: str) -> None:
    done = run_cli(["analyze", "now", "--html", "x", other, "./now/../x"])
    assert done.returncode == 2 and "the same file for several" in done.stderr
    assert not (two / "x").exists()


def test_a_device_takes_several(two: Path) -> None:
    done = run_cli(["analyze", "now", "--html", "/dev/null", "--trace", "/dev/null", "-o", "/dev/null", "--force"])
    assert done.returncode == 0


def test_files_that_lead_in_a_circle_do_not_end_a_page(two: Path) -> None:
    loop = two / "now" / "profiler_info_0.json"
    loop.unlink(missing_ok=True)
    loop.symlink_to(loop.name)
    run_cli(["analyze", "now", "--html", "page.html"])
    assert (two / "page.html").is_file()


def test_names_of_pages_need_not_be_text(two: Path) -> None:
    name = os.fsdecode(b"bad\xff.html")
    done = run_cli(["analyze", "now", "--html", name, "--format", "markdown"])
    assert "(bad%FF.html)" in done.stdout
    assert (two / name).is_file()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux, to be no superuser")
@pytest.mark.parametrize("option", ["-o", "--html", "--trace", "--trace-full", "--junit"])
def test_a_folder_that_may_not_be_entered(two: Path, option: str) -> None:
    (two / "closed").mkdir(mode=0)
    argv = [sys.executable, "-m", "npuperf", "analyze", "now", option, "closed/file"]
    if os.geteuid() == 0:
        argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, "closed/file: cannot be written: Permission denied" in done.stderr) == (3, True)


def test_a_file_is_as_wide_as_a_page_whatever_the_terminal(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = run_cli(["analyze", "now", "--full"]).stdout
    monkeypatch.setenv("COLUMNS", "60")
    assert "wrote x.txt" in run_cli(["analyze", "now", "--full", "-o", "x.txt"]).stderr
    assert (two / "x.txt").read_text("utf-8") == shown

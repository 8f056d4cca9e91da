"""How much memory there is, and what is said where that may not do; Arrow does without pandas until it is wanted."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from conftest import ROOT

from npuperf.__main__ import main
from npuperf.base import memory

SAMPLES = ROOT / "samples"
MB = 1 << 20
CODE = """
import sys
from npuperf.base.memory import spare_pandas
spare_pandas()
import pyarrow as pa
import pyarrow.compute as pc
column = pc.fill_null(pa.array([1, None]), 7)
print("pandas" in sys.modules, column.to_pylist())
print(pa.table({"a": column}).to_pandas()["a"].tolist(), "pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Series([1.5, float("nan")])).to_pylist())
"""


def test_pandas_is_loaded_when_a_frame_is_wanted_and_not_before() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False [1, 7]", "[1, 7] True", "[1.5, None]"]


def test_pandas_can_be_loaded_as_ever() -> None:
    code = "from npuperf.base import memory; memory.spare_pandas(); import pandas; print(pandas.Series([1]).sum())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_only_pandas_is_kept_out_and_only_while_arrow_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def look(_: object) -> None:
        for name in ("pandas", "colorsys"):
            monkeypatch.delitem(sys.modules, name, raising=False)
            try:
                looked.append(importlib.import_module(name).__name__)
            except ModuleNotFoundError as error:
                looked.append((error.name,))

    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(array=look))
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    before = list(sys.meta_path)
    memory.spare_pandas()
    assert looked == [("pandas",), "colorsys"] and sys.meta_path == before
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace())  # then there is nothing to be spared
    memory.spare_pandas()
    assert len(looked) == 2


def test_a_process_of_our_own_does_without_pandas_and_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("spare_pandas", "keep_freed"):
        monkeypatch.setattr(memory, name, lambda name=name: done.append(name))
    memory.be_alone()
    assert sorted(done) == ["keep_freed", "spare_pandas"]


def group(root: Path, path: str, **files: object) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.mark.parametrize(("line", "root", "limit", "used"), [
    ("0::/jobs/one", "", "memory__max", "anon"),
    ("5:memory:/jobs/one", "memory", "memory__limit_in_bytes", "total_rss"),
    ("3:cpu,cpuacct:/jobs/one", "cpu,cpuacct", "memory__max", None),  # tells nothing of memory
])  # fmt: skip
def test_the_least_of_all_groups_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, root: str, limit: str, used: str | None
) -> None:
    stat = f"file 77\n{used} {1000 * MB}\nother 5"
    group(tmp_path / root, "jobs/one", **{limit: "max", "memory__stat": stat})
    group(tmp_path / root, "jobs", **{limit: 3000 * MB, "memory__stat": stat})
    group(tmp_path / root, "", **{limit: 4000 * MB, "memory__stat": stat})
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "read_input", lambda path: line.encode() if path == "/proc/self/cgroup"
                        else Path(path).read_bytes())  # fmt: skip
    monkeypatch.setattr(memory, "InputError", OSError)
    found = list(memory._left_in_groups())
    assert found == ([2000 * MB, 3000 * MB] if used else [])


def analyzed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], free: int, *arguments: object
) -> tuple[str, str]:
    """The report of an analysis where so many bytes are free, and what is said on stderr."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": free}))
    monkeypatch.setattr(sys, "argv", ["npuperf", "analyze", *map(str, arguments), "--no-cache", "--format", "json"])
    monkeypatch.setattr("npuperf.cli.streams._SURELY_FREE", 0)
    monkeypatch.setattr(memory, "be_alone", lambda: None)  # this process is that of all tests
    with pytest.raises(SystemExit, match="0"):
        main()
    return capfd.readouterr()


def test_where_memory_may_not_do_both_figures_are_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sample = ROOT / "samples" / "transformer_ascend_pt"
    report, line = analyzed(monkeypatch, capfd, 50_000, sample)
    assert line == (
        "npuperf: this takes about 194.2 KiB of memory, and 48.8 KiB is free: it may be ended by the system\n"
    )
    assert analyzed(monkeypatch, capfd, 1000 * MB, sample) == (report, "")


def test_of_a_job_it_is_said_how_to_read_less(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of ranks that are not asked for nothing is read, so that damage to them is not told; beside a rank alone it is
    what tells for whom this one waits, not their kernels.
    """
    job = tmp_path / "job"
    shutil.copytree(ROOT / "samples" / "pipeline_job", job)
    for file in (job / "rank_2_ascend_pt").rglob("*.csv"):
        file.write_bytes(b"damaged")
    report, line = analyzed(monkeypatch, capfd, 100_000, job)
    assert "--rank or --ranks reads fewer ranks" in line and line.count("\n") == 1 and "rank_2" in report
    kernels = str(job / "rank_2_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    assert kernels in report
    report, line = analyzed(monkeypatch, capfd, 100_000, job, "--ranks", "0,1")
    assert "rank_2" not in report
    report, line = analyzed(monkeypatch, capfd, 100_000, job, "--rank", "0")
    assert line == "" and kernels not in report and "waits for rank 2" in report

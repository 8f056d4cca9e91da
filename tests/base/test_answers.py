"""Asked again, npuperf says the same, byte for byte, whatever it still reads; asked otherwise, it says what is so."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import run_cli

from npuperf.base import cache
from npuperf.base.errors import unreadable
from npuperf.base.files import MANIFEST
from npuperf.base.notes import read_note
from npuperf.base.trust import secret
from npuperf.model.device import DeviceProfile
from npuperf.readers.find import Source, find
from npuperf.readers.kernels import Kernels
from npuperf.readers.log import ReadLog
from npuperf.readers.source import read_source

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
VIEWS = (
    (), ("--full",), ("--format", "json"), ("--format", "markdown"), ("--format", "csv"), ("--table", "phases"),
    ("--full", "--top", "3"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user with folders of her own, for whom small profiles are kept, too."""
    monkeypatch.delenv("NPUPERF_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    monkeypatch.setattr(cache, "_WORTH_KEEPING", 0)
    secret.cache_clear()
    yield tmp_path / "home"
    secret.cache_clear()


def kept(folder: Path) -> int:
    """How many entries there are."""
    return len(list(folder.glob("**/*.entry")))


def copied(sample: str, folder: Path) -> Path:
    """A copy whose files were written some time ago."""
    path = folder / "run" / sample
    shutil.copytree(SAMPLES / sample, path)
    for file in path.rglob("*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return path


def said(*arguments: object) -> str:
    done = run_cli(["analyze", *map(str, arguments)])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("sample", sorted(p.name for p in SAMPLES.glob("[!.]*")))
def test_a_known_result_looks_the_same_in_every_view(sample: str, tmp_path: Path) -> None:
    path = copied(sample, tmp_path)
    fresh = {view: said(path, "--no-cache", *view) for view in VIEWS}
    assert kept(tmp_path) == 0
    said(path)
    for view in VIEWS:
        done = run_cli(["analyze", str(path), "--debug", *view])
        assert done.stdout == fresh[view], view
        if "--top" not in view:  # which is a request of its own
            assert "from the cache" in done.stderr


def test_a_known_result_loads_no_analysis(tmp_path: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    said(path)
    program = (
        "import sys; from npuperf.base import cache; cache._WORTH_KEEPING = 0\n"
        "from npuperf.cli import main\n"
        "try: main()\n"
        "finally: print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", str(path), "--format", "json"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    document, _, modules = done.stdout.rpartition("}\n")
    assert document + "}\n" == said(path, "--format", "json", "--no-cache")
    assert "npuperf.analyze.run" in modules.split()
    assert not {"npuperf.analyze.work", "npuperf.readers.recording", "pandas", "scipy"} & set(modules.split())


@pytest.mark.parametrize(
    ("sample", "engine"),
    [("transformer_ascend_pt", "serial"), ("micro_batch_ascend_pt", "serial"), ("pipeline_job", "serial"),
     ("pipeline_job", "processes")],
)  # fmt: skip
def test_another_question_starts_from_the_columns_and_says_the_same(
    sample: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(sample, tmp_path)
    said(path, "--engine", engine)
    sources = len(list(path.glob("rank_*"))) or 1
    assert kept(tmp_path) == sources + 1
    for request in (("--what-if", "host*0.5"), ("--step", "11"), ("--cores", "20,40"), ("--rank", "0")):
        asked = run_cli(["analyze", str(path), "--engine", engine, "--format", "json", *request])
        again = run_cli(["analyze", str(path), "--no-cache", "--format", "json", *request])
        assert (asked.returncode, asked.stdout, asked.stderr) == (again.returncode, again.stdout, again.stderr)
    if engine == "serial":
        monkeypatch.setattr("npuperf.readers.recording.read_source", None)
        said(path, "--what-if", "host*0.25")


def test_what_is_kept_is_read_by_other_processes_too(tmp_path: Path) -> None:
    """The columns that one way of reading kept serve the other."""
    path = copied("pipeline_job", tmp_path)
    said(path, "--engine", "processes")
    number = kept(tmp_path)
    fresh = said(path, "--engine", "serial", "--no-cache")
    assert said(path, "--engine", "serial") == fresh
    assert kept(tmp_path) == number + 1  # the result of another request


def test_a_change_is_seen(tmp_path: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    said(path)
    table = min(path.rglob("kernel_details.csv"))
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(lines[:-20]))
    os.utime(table, (1_700_000_000, 1_700_000_000))
    assert said(path) == said(path, "--no-cache")
    more = path / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    if more.exists():
        more.unlink()
    else:
        more.write_text("Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n1,1,1,1,1,1\n")
        os.utime(more, (1_700_000_000, 1_700_000_000))
    assert said(path) == said(path, "--no-cache")


def test_gates_and_their_exit_codes_are_kept(tmp_path: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    for gate, code in (("host_wait>0%", 1), ("host_wait>100%", 0)):
        found = [run_cli(["analyze", str(path), "--fail-on", gate]) for _ in range(2)]
        assert [done.returncode for done in found] == [code, code]
        assert found[0].stdout == found[1].stdout
    wrong = [run_cli(["analyze", str(path), "--fail-on", "host_wai>0%"]) for _ in range(2)]
    assert [done.returncode for done in wrong] == [2, 2]


def test_a_source_that_failed_is_read_again(tmp_path: Path) -> None:
    path = copied("pipeline_job", tmp_path)
    output = path / "rank_2_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    for file in output.iterdir():
        if file.name == "kernel_details.csv":
            file.write_bytes(b"\0" * 600)
            os.utime(file, (1_700_000_000, 1_700_000_000))
        else:
            file.unlink()
    first, second = (said(path, "--format", "json") for _ in range(2))
    assert first == second == said(path, "--format", "json", "--no-cache")
    assert str(output) in str(json.loads(first)["input"]["warnings"])
    assert kept(tmp_path) == 3  # the columns of the other ranks, and no result


def test_a_file_that_the_system_did_not_let_us_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("transformer_ascend_pt", tmp_path)

    def broken(source: Source, log: ReadLog) -> Kernels:
        raise unreadable(source.kernels[0], OSError(errno.EIO, "Input/output error")) from OSError()

    with monkeypatch.context() as patched:
        patched.setattr("npuperf.readers.source.read_kernels", broken)
        assert "Input/output error" in said(path, "--full")
    assert kept(tmp_path) == 0
    assert said(path) == said(path, "--no-cache")
    assert kept(tmp_path) == 2


def test_a_note_that_the_system_did_not_let_us_read_is_told_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the short screen of a job, too, and of one rank of it; nothing is kept of that rank."""
    path = copied("pipeline_job", tmp_path)
    fresh = said(path, "--no-cache")

    def broken(note: Path) -> object:
        if "rank_2" in str(note):
            raise unreadable(note, OSError(errno.EIO, "Input/output error")) from OSError()
        return read_note(note)

    with monkeypatch.context() as patched:
        patched.setattr("npuperf.readers.context.read_note", broken)
        short = said(path, "--engine", "serial")
    assert "Input/output error" in short and "Input/output error" not in fresh
    assert kept(tmp_path) == 3  # the columns of the other ranks
    assert said(path) == fresh


def test_what_changes_while_it_is_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    fresh = said(path, "--no-cache")
    table = min(path.rglob("kernel_details.csv"))
    whole = table.read_bytes()

    def reading(source: Source, log: ReadLog, progress: None) -> list[DeviceProfile]:
        table.write_bytes(b"".join(whole.splitlines(keepends=True)[:-20]))
        os.utime(table, (1_700_000_100, 1_700_000_100))
        return read_source(source, log, progress)

    with monkeypatch.context() as patched:
        patched.setattr("npuperf.readers.recording.read_source", reading)
        assert said(path, "--engine", "serial") != fresh
    assert kept(tmp_path) == 0
    table.write_bytes(whole)
    os.utime(table, (1_700_000_000, 1_700_000_000))
    assert said(path, "--engine", "serial") == fresh


def test_what_changes_while_it_is_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the document and on stderr, whatever is shown; nothing of it is kept, neither in the run nor as a baseline."""
    path = copied("transformer_ascend_pt", tmp_path).parent
    (path / MANIFEST).write_text("{}")
    tables, request = [*path.rglob("kernel_details.csv")], ("analyze", str(path), "--save-baseline", "main")

    def reading(source: Source, log: ReadLog, progress: None) -> object:
        read = read_source(source, log, progress)
        for table in tables:  # as rsync does it: another file, of the time of the original
            new = table.with_name(".new")
            shutil.copyfile(table, new)
            os.utime(new, (1_700_000_000, 1_700_000_000))
            new.replace(table)
        return read

    with monkeypatch.context() as patched:
        patched.setattr("npuperf.readers.recording.read_source", reading)
        done = run_cli([*request, "--format", "json"])
    assert done.returncode == 0
    first = json.loads(done.stdout)["input"]["warnings"][0]
    assert first.startswith(f"{tables[0]}: changed while it was read")
    assert f"npuperf: warning: {first}\n" in done.stderr and done.stderr.count("changed while it was read") == 1
    assert "npuperf: not kept as baseline main: files changed while they were read\n" in done.stderr
    assert not kept(tmp_path) and not [*path.rglob("result.json"), *tmp_path.rglob("main.json")]
    again = run_cli([*request, "--format", "json"])
    assert "changed while" not in again.stdout + again.stderr and [*tmp_path.rglob("main.json")]


def test_what_is_gone_before_it_is_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was found and is no more has changed, and is not one that was missing."""
    path = copied("transformer_ascend_pt", tmp_path)
    note = path / "profiler_metadata.json"

    def found_and_gone(where: Path) -> object:
        found = find(where)
        note.unlink(missing_ok=True)
        return found

    monkeypatch.setattr("npuperf.analyze.run.find", found_and_gone)
    assert f"npuperf: warning: {note}: changed while it was read" in run_cli(["analyze", str(path)]).stderr


def test_a_run_directory_keeps_its_own_and_is_not_read_for_it(tmp_path: Path, home: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path).parent
    (path / MANIFEST).write_text("{}")
    os.utime(path / MANIFEST, (1_700_000_000, 1_700_000_000))
    fresh = said(path)
    document = path / "analysis" / "result.json"
    first = document.read_bytes()
    document.unlink()
    assert kept(path / ".cache") == 2
    assert kept(home) == 0
    assert said(path) == fresh
    assert document.read_bytes() == first
    shutil.rmtree(path / ".cache")
    assert said(path) == fresh == said(path, "--no-cache")


def test_folders_of_others_stay_as_they_are(tmp_path: Path, home: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    said(path)
    said(path)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before
    assert kept(home) == 2


def test_no_cache_neither_reads_nor_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    said(path, "--no-cache")
    monkeypatch.setenv("NPUPERF_NO_CACHE", "1")
    said(path)
    assert kept(tmp_path) == 0
    assert not (tmp_path / "home").exists()


def test_clearing_says_what_went_and_leaves(tmp_path: Path, home: Path) -> None:
    path = copied("transformer_ascend_pt", tmp_path)
    other = copied("micro_batch_ascend_pt", tmp_path)
    said(path)
    said(other)
    assert kept(home) == 4
    done = run_cli(["analyze", str(path), "--clear-cache"])
    assert (done.returncode, done.stdout) == (0, "")
    assert "2 cache entries removed (" in done.stderr
    assert kept(home) == 2
    again = run_cli(["analyze", str(path), "--clear-cache"])
    assert (again.returncode, "the cache has nothing of it" in again.stderr) == (0, True)
    shutil.rmtree(other)
    assert "2 cache entries removed (" in run_cli(["analyze", str(other), "--clear-cache"]).stderr


def test_an_earlier_profile_that_it_is_held_against_is_part_of_the_question(tmp_path: Path) -> None:
    path, before = copied("micro_batch_ascend_pt", tmp_path), copied("transformer_ascend_pt", tmp_path)
    asked = (path, "--before", before, "--format", "json")
    assert said(*asked) == said(*asked) == said(*asked, "--no-cache")
    number = kept(tmp_path)
    table = min(before.rglob("kernel_details.csv"))
    os.utime(table, (1_700_000_001, 1_700_000_001))
    said(*asked)
    assert kept(tmp_path) == number + 2  # its columns and the result, anew

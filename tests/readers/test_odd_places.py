"""Where profiles lie in odd places: behind links, without permission, under odd names, and where no file is.

Whatever was not entered and not read is told, and the ranks beside it are analyzed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from build import K, ascend_pt, kernel_details
from conftest import no_privileges
from inputs import KERNELS, database, op_summary

from npuperf.base import files
from npuperf.base.cache import clear
from npuperf.base.errors import InputError
from npuperf.base.files import MANIFEST, Walk, few
from npuperf.base.messages import Message, say, text
from npuperf.readers.context import plog_files, read_plog
from npuperf.readers.find import find
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import Recording, open_recording

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only POSIX has these places")


def rank(folder: Path, number: int) -> Path:
    """A rank's profile of one kernel more than its number."""
    made = ascend_pt(folder, [K(i * 10_000, 5_000) for i in range(number + 1)])
    (made / "profiler_info_0.json").unlink()
    (made / f"profiler_info_{number}.json").write_text("{}")
    return made


def kernels(recording: Recording) -> dict[int | None, int]:
    """How many kernels each rank has, of those that could be read."""
    readings = recording.map(lambda reading: reading)
    return {p.rank: len(p.tasks) for reading in readings for p in reading.profiles}


def told(recording: Recording) -> list[str]:
    """Everything that is said of a recording."""
    readings = recording.map(lambda reading: reading)
    of_sources = [m for r in readings for m in (*r.log.warnings, *([r.error.what] if r.error else []))]
    return [text(message) for message in (*recording.notes, *of_sources)]


def test_ranks_behind_links_are_found_once(tmp_path: Path) -> None:
    """Also where a link's name is none that a profiler gives, and where links lead back to where they came from."""
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    rank(job / "node0", 0)
    (job / "node1").symlink_to(rank(elsewhere / "node1", 1))  # the rank's own folder
    (job / "node2").symlink_to(rank(elsewhere / "node2", 2).parent)
    (elsewhere / "node2" / "back").symlink_to(job)
    (job / "again").symlink_to("node0")
    (job / "up").symlink_to("..")
    (job / "loop").symlink_to("loop")
    (job / "gone").symlink_to("nowhere")
    recording = open_recording(job)
    assert kernels(recording) == {0: 1, 1: 2, 2: 3}
    assert sorted(str(s.root.relative_to(job)).split("/")[0] for s in recording.sources) == ["node0", "node1", "node2"]
    assert sorted(told(recording)) == [
        f"{job}/again: a link to a folder that was entered already; it was not entered twice",
        f"{job}/gone: a link that leads nowhere",
        f"{job}/loop: a link that cannot be followed: Too many levels of symbolic links",
        f"{job}/node2/back: a link to a folder that was entered already; it was not entered twice",
        f"{job}/up: a link to a folder that it lies in; it was not followed",
    ]


def test_a_link_is_called_by_another_name_and_holds_the_same(tmp_path: Path) -> None:
    """What is passed over in a collection, and what it is, does not depend on the link's name."""
    prof = tmp_path / "PROF_000001_20250101000000000_X"
    op_summary(prof / "mindstudio_profiler_output" / "op_summary_20250101000000.csv", KERNELS)
    (prof / "other.json").write_text('{"traceEvents": []}')
    (prof / "data").mkdir()
    op_summary(prof / "data" / "op_summary_20250101000001.csv", KERNELS)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "mine").symlink_to(prof)
    for path in (prof, tmp_path / "job", tmp_path / "job" / "mine"):
        (source,), notes = find(path)
        assert (source.kind, len(source.data_files()), notes) == ("prof", 1, [])


def test_raw_data_behind_a_link_is_told(tmp_path: Path) -> None:
    raw = tmp_path / "elsewhere" / "PROF_000001_20250101000000000_X" / "device_0" / "data"
    raw.mkdir(parents=True)
    rank(tmp_path / "job", 0)
    (tmp_path / "job" / "rank1").symlink_to(raw.parent.parent)
    (note,) = find(tmp_path / "job")[1]
    assert text(note).startswith(f"{tmp_path}/job/rank1: raw data that was never exported")


def test_folders_and_files_without_permission_are_told(tmp_path: Path) -> None:
    closed, half, locked = rank(tmp_path / "a", 0), rank(tmp_path / "b", 1), rank(tmp_path / "c", 2)
    rank(tmp_path / "d", 3)
    table, output = half / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", locked / "ASCEND_PROFILER_OUTPUT"
    other = tmp_path / "other.json"
    other.write_text("{}")
    for path in (closed, table, output, other):
        path.chmod(0)
    with no_privileges():
        recording = open_recording(tmp_path)
        found, said = kernels(recording), told(recording)
        with pytest.raises(InputError, match="Permission denied") as refused:
            find(closed)
        assert refused.value.what.parameters["path"] == str(closed)
        with pytest.raises(InputError, match="Permission denied"):
            find(closed / "kernel_details.csv")
        with pytest.raises(InputError, match=r"no profile found.*\n.*ASCEND_PROFILER_OUTPUT: cannot be entered"):
            find(locked)
    assert found == {1: 2, 3: 4}  # of rank 1 the timeline is read
    assert f"{closed}: cannot be entered: Permission denied" in said
    assert f"{output}: cannot be entered: Permission denied" in said
    assert f"{other}: cannot be read: Permission denied" in said
    assert f"{table}: cannot be read: Permission denied; the other files were used" in said
    assert not any("never exported" in line for line in said)
    for path in (closed, output):
        path.chmod(0o700)


def test_what_a_bad_disk_hides_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that fails just when it is listed for what describes a collection, and a note that cannot be seen."""
    folder = ascend_pt(tmp_path, [K(0, 5_000)], cores="24,48")
    (prof,), note = folder.glob("PROF_*"), folder / "profiler_metadata.json"
    listing, seeing = os.listdir, Path.stat

    def broken(do: Callable[..., object], bad: Path) -> Callable[..., object]:
        def fail(path: Path, **more: object) -> object:
            if Path(path) == bad:
                raise OSError(errno.EIO, "Input/output error", str(path))
            return do(path, **more)

        return fail

    monkeypatch.setattr("os.listdir", broken(listing, prof))
    monkeypatch.setattr("pathlib.Path.stat", broken(seeing, note))
    (source,), _ = find(folder)
    assert [str(told) for told in source.unseen] == [
        f"{prof}: cannot be entered: Input/output error", f"{note}: cannot be read: Input/output error"
    ]  # fmt: skip
    with pytest.raises(InputError, match="cannot be read: Input/output error"):
        files.is_file(note)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


#: One after the other the files that a rank may have, and more of which each may be the only one.
NAMES = (
    "kernel_details.csv", "trace_view.json", "communication.json", "communication_matrix.json", "step_trace_time.csv",
    "analysis.db", "ascend_pytorch_profiler_0.db", "op_summary_20250101000000.csv", "op_summary_mine.csv",
    "op_summary_yours.csv", "cluster_step_trace_time.csv", "msprof_20250101000000.json", "other.json", "other.json.gz",
)  # fmt: skip


@pytest.mark.parametrize("make", [pipe, unix_socket, device, Path.mkdir])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    """Beside a rank's other files, and by itself."""
    beside = ascend_pt(tmp_path / "with", KERNELS) / "ASCEND_PROFILER_OUTPUT" / name
    alone = tmp_path / "alone" / name
    alone.parent.mkdir()
    if name.startswith(("other", "op_summary", "cluster")):  # else it would be passed over, as part of a collection
        beside = tmp_path / "with" / name
    for path in (beside, alone):
        path.unlink(missing_ok=True)
        make(path)
    recording = open_recording(tmp_path / "with")
    assert [len(r.profiles) for r in recording.map(lambda r: r) if not r.error] == [1]
    is_folder = make is Path.mkdir
    passed_over = name.startswith("msprof") and not is_folder  # beside a trace_view.json it is not asked for
    if not (passed_over or (is_folder and name.startswith("other"))):  # folders may have any name
        assert any(line.startswith(f"{beside}: a ") for line in told(recording)), told(recording)
    for path in (alone, alone.parent):
        with pytest.raises(InputError) as refused:
            _ = open_recording(path).profiles
        no_profile = path.is_dir() and (is_folder or name == "communication_matrix.json")  # which is none by itself
        assert ("no profile found" if no_profile else "not a file") in str(refused.value) or is_folder


@pytest.mark.parametrize(
    "name", ["info.json.0", "profiler_info_0.json", "profiler_metadata.json", MANIFEST, "communication_group.json"]
)
@pytest.mark.parametrize("make", [pipe, unix_socket, device])
def test_notes_that_are_no_files_cost_what_they_describe(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    folder = ascend_pt(tmp_path, KERNELS)
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    recording = open_recording(folder)
    (profile,) = recording.profiles
    assert len(profile.tasks) == len(KERNELS)
    as_none = name in ("profiler_metadata.json", MANIFEST, "communication_group.json")  # taken only where it is a file
    assert as_none or any(f"{folder / name}: a " in line for line in told(recording))


def test_a_path_that_nothing_lies_at(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path / "nowhere", "no such file or folder"),
        (tmp_path / "file" / "below", "no such file or folder"),
        (tmp_path / "link", "a link that leads nowhere"),
        (tmp_path / ("n" * 300), "File name too long"),
        (tmp_path / "a\0b", "null"),
        (Path("/proc/self/mem"), "Input/output error"),
    ):
        with pytest.raises(InputError, match=why) as refused:
            find(path)
        assert refused.value.what.parameters["path"] == str(path)


def test_paths_that_are_not_utf8(tmp_path: Path) -> None:
    """As the argument and as a rank's folder, on every output."""
    odd = tmp_path / os.fsdecode(b"job\xff\xfe")
    for number in (0, 1):
        rank(odd / os.fsdecode(b"rank\xe9" + str(number).encode()), number)
    assert kernels(open_recording(odd)) == {0: 1, 1: 2}
    for format_ in ("json", "text", "markdown", "csv"):
        made = tmp_path / f"out.{format_}"
        table = ("--table", "devices") if format_ == "csv" else ()
        command = (sys.executable, "-m", "npuperf", "analyze", odd, "--format", format_, *table, "-o", made)
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        shown = made.read_text("utf-8")
        if format_ == "json":
            assert [device["rank"] for device in json.loads(shown)["devices"]] == [0, 1]


def test_walking_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep, and however many folders there are; what is left out is told."""
    monkeypatch.setattr(files, "_MOST_DEEP", 3)
    deep = tmp_path / "deep"
    (deep / "1" / "2" / "3" / "4" / "5").mkdir(parents=True)
    walk = Walk(deep)
    assert [str(f.path.relative_to(deep)) for f in walk] == [".", "1", "1/2", "1/2/3"]
    assert list(map(text, walk.told)) == [f"{deep}/1/2/3/4: more than 3 folders deep; it was not entered"]
    monkeypatch.setattr(files, "_MOST_FOLDERS", 4)
    for i in range(5):
        (tmp_path / "many" / f"r{i}").mkdir(parents=True)
    walk = Walk(tmp_path / "many")
    assert [f.path.name for f in walk] == ["many", "r0", "r1", "r2"]
    (last,) = map(text, walk.told)
    assert last.startswith(f"{tmp_path}/many/r3: there are more than 4 folders; this one and the rest were not entered")


def test_much_of_a_kind_is_told_in_few_lines() -> None:
    def left(number: int) -> Message:
        return say("{path}: not entered", path=str(number))

    assert few(map(left, range(3))) == [left(0), left(1), left(2)]
    many = few([*map(left, range(10)), say("else")])
    assert list(map(text, many)) == ["0: not entered", "1: not entered", "2: not entered; and so for 7 more", "else"]


def test_the_cache_is_not_cleared_behind_links(tmp_path: Path) -> None:
    other = tmp_path / "other"
    entry = other / ".cache" / ("0" * 64 + ".entry")
    entry.parent.mkdir(parents=True)
    entry.touch()
    (other / MANIFEST).touch()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "link").symlink_to(other)
    (mine / "run").mkdir()
    (mine / "run" / MANIFEST).touch()
    (mine / "run" / ".cache").symlink_to(entry.parent)
    assert clear(mine) == (0, 0)
    assert entry.exists()
    assert clear(other) == (1, 0)


def table_of(path: Path) -> Path:
    return kernel_details(path / "kernel_details.csv", KERNELS)


def trace_of(path: Path) -> Path:
    return ascend_pt(path, KERNELS) / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"


def database_of(path: Path) -> Path:
    return database(path / "msprof_20250101000000.db", KERNELS, "blockDim")


def lines_of(path: Path) -> Path:
    """A table that is read line by line."""
    table = table_of(path)
    with table.open("a") as file:
        file.write("a row that is none\n")
    return table


@pytest.mark.parametrize("make", [table_of, trace_of, lines_of])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path]) -> None:
    """At the first byte, or after some, however often the file is opened."""
    path = make(tmp_path)
    opened = files._opened

    class Failing(io.FileIO):
        left = 0

        def _fail(self) -> None:
            Failing.left -= 1
            if Failing.left < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        def read(self, size: int | None = -1, /) -> bytes:
            self._fail()
            return super().read(size)  # type: ignore[return-value]

        def readinto(self, buffer: object, /) -> int:
            self._fail()
            return super().readinto(buffer)  # type: ignore[arg-type,return-value]

    for after in range(4):
        Failing.left = after
        monkeypatch.setattr(files, "_opened", lambda p: Failing(p) if Path(p) == path else opened(p))
        try:
            readings = open_recording(path).map(lambda reading: reading)
        except InputError as error:
            assert "Input/output error" in str(error)
            continue
        errors = [str(reading.error) for reading in readings if reading.error]
        assert (errors and all("Input/output error" in error for error in errors)) or path.suffix == ".db"


@pytest.mark.parametrize("make", [table_of, trace_of, database_of, lines_of])
def test_files_that_vanish_or_shrink_before_they_are_read(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    for change in (lambda: os.truncate(path, path.stat().st_size // 2), lambda: os.truncate(path, 0), path.unlink):
        recording = open_recording(path)
        change()
        (reading,) = recording.map(lambda reading: reading)
        assert reading.error is not None or reading.log.warnings or reading.log.lost


def test_logs_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """Behind links, too; the key of a cached answer counts the same logs."""
    logs = tmp_path / "log"
    (logs / "closed").mkdir(parents=True)
    line = "[ERROR] GE(1,python):2026-11-21-10:00:00.1.2 [sk.cc:1]1 f: super_kernel_scope layer stops\n"
    (tmp_path / "plog-1.log").write_text(line)
    (logs / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "plog-1.log").rename(tmp_path / "elsewhere" / "plog-1.log")
    os.mkfifo(logs / "plog-2.log")
    (logs / "closed").chmod(0)
    log = ReadLog()
    with no_privileges():
        assert len(read_plog(logs, log)) == 1
    (logs / "closed").chmod(0o700)
    assert log.files == [str(logs / "link" / "plog-1.log")]
    assert list(map(text, log.warnings)) == [
        f"{logs}/closed: cannot be entered: Permission denied",
        f"{logs}/plog-2.log: a pipe, not a file; it was not opened",
    ]
    assert [f.name for f in plog_files(logs, [])] == ["plog-1.log", "plog-2.log"]
    with pytest.raises(InputError, match="a pipe, not a file"):
        read_plog(logs / "plog-2.log", log)


@pytest.mark.parametrize("within", [".", "OPPROF_20261010201530_PYKLOEUOUAQXUQRW"])
def test_what_msprof_op_wrote_is_called_that(tmp_path: Path, within: str) -> None:
    folder = tmp_path / within
    folder.mkdir(exist_ok=True)
    header = "Op Name,Op Type,Task Duration(us),Block Dim,"
    (folder / "OpBasicInfo.csv").write_text(f"{header}\nk_mix_aic,mix,73.441467,64,\n")
    with pytest.raises(InputError, match="msprof op wrote this") as refused:
        find(tmp_path)
    assert "npuperf profile -o FOLDER" in text(refused.value.hint)
    rank(tmp_path / "a", 1)
    assert len(find(tmp_path)[0]) == 1

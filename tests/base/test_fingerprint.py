"""Whatever an answer depends on changes its key, and nothing else does."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from npuperf.base import cache
from npuperf.base.cache import EntryKey, paths_of
from npuperf.readers.find import find
from npuperf.readers.recording import open_recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
#: A time at which nothing is written any more, ns.
BEFORE = 1_700_000_000_000_000_000


def key(*files: Path, question: object = "q") -> EntryKey | None:
    return EntryKey.of(files[0].parent, files, question)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "big.csv"
    path.write_bytes(bytes(1 << 20))
    os.utime(path, ns=(BEFORE, BEFORE))
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is not read whole: a hole, but for a byte that no sample has."""
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(17 << 20)
    write_at(100_000)(path)
    os.utime(path, ns=(BEFORE, BEFORE))
    return path


def changed(path: Path, change: Callable[[Path], object]) -> EntryKey | None:
    """The key after a change that leaves no trace in the time."""
    change(path)
    os.utime(path, ns=(BEFORE, BEFORE))
    return key(path)


def write_at(position: int) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(b"x")

    return write


def test_the_same_again(file: Path) -> None:
    found = key(file)
    assert found is not None
    assert found == key(file) == changed(file, lambda path: None)


@pytest.mark.parametrize("position", [*range(0, 1 << 20, 70_001), (1 << 20) - 1])
def test_every_byte_of_files_that_are_read_whole(file: Path, position: int) -> None:
    assert key(file) != changed(file, write_at(position))


def test_a_write_to_a_large_file_between_samples(large: Path) -> None:
    """Size, time of change and all samples stay; the time that nobody can set does not."""
    found = key(large)
    assert found is not None and found == key(large)
    assert changed(large, write_at(100_000)) not in (None, found)


def test_another_large_file_in_its_place(large: Path) -> None:
    found, other = key(large), large.with_name("other")
    shutil.copy2(large, other)
    assert changed(large, lambda path: other.replace(path)) not in (None, found)


def test_size_and_time(file: Path) -> None:
    found = key(file)
    os.utime(file, ns=(BEFORE, BEFORE + 1))
    assert key(file) not in (None, found)
    assert changed(file, lambda path: os.truncate(path, (1 << 20) - 1)) not in (None, found)


def test_name_place_and_question(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.csv"
    shutil.copy2(file, other)
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy2(file, folder / file.name)
    monkeypatch.chdir(tmp_path)
    here = key(Path(file.name))
    monkeypatch.chdir(folder)
    there = key(Path(file.name))
    found = [key(file), key(other), key(file, other), key(folder / file.name), key(file, question="r"), here, there]
    assert None not in found
    assert len({k.digest for k in found if k}) == len(found) - 2  # the same files, once by a relative path each
    assert found[0] == here


@pytest.mark.parametrize("age", [0.0, 1.5, -60.0])
def test_files_that_may_still_be_written_have_no_key(file: Path, age: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    monkeypatch.setattr("npuperf.base.cache.time", SimpleNamespace(time_ns=lambda: now))  # the test may be held up
    for seconds, has_key in ((age, False), (5, True)):
        os.utime(file, ns=(now, now - int(seconds * 1e9)))
        assert (key(file) is not None) == has_key


def test_files_that_cannot_be_told_apart_have_no_key(file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe.json"):
        assert key(file, path) is None


def test_other_versions(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {key(file)}
    for where, name, value in (
        (cache, "__version__", "9"), (metadata, "version", lambda library: "9"), (cache, "_state", lambda: "edited"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            cache._answerer.cache_clear()
            found.add(key(file))
    cache._answerer.cache_clear()
    assert len(found) == 4


def test_an_edit_of_npuperf_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "npuperf"
    (package / "room" / "__pycache__").mkdir(parents=True)
    (package / "room" / "a.py").write_text("1")
    monkeypatch.setattr(cache, "_PACKAGE", package)
    states = [cache._state()]
    (package / "room" / "__pycache__" / "a.pyc").write_text("compiled")
    assert cache._state() == states[0]
    for name, text in (("a.py", "22"), ("b.yaml", ""), ("b.yaml", "1")):
        (package / "room" / name).write_text(text)
        states.append(cache._state())
    os.utime(package / "room" / "a.py", ns=(BEFORE, BEFORE))
    states.append(cache._state())
    assert len(set(states)) == len(states)


def test_what_a_database_s_writer_left_beside_it_is_part_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "msprof_1.db"
    path.write_bytes(b"SQLite format 3")
    (source,), _ = find(path)
    assert set(paths_of(source)) == {path}
    log = tmp_path / "msprof_1.db-wal"
    log.touch()
    assert set(paths_of(source)) == {path, log}


OPENED: list[str] = []


@pytest.fixture(scope="module")
def listening() -> Iterator[list[str]]:
    """Every path that this process opens from now on, by Python or by SQLite; a hook stays until the process ends."""
    sys.addaudithook(
        lambda event, about: OPENED.append(str(about[0])) if event in ("open", "sqlite3.connect") else None
    )
    yield OPENED


@pytest.mark.parametrize("sample", sorted(p.name for p in SAMPLES.glob("[!.]*")))
def test_the_key_knows_every_file_that_reading_opens(sample: str, listening: list[str], tmp_path: Path) -> None:
    path = tmp_path / sample
    shutil.copytree(SAMPLES / sample, path)
    sources, _ = find(path)
    known = {str(file) for source in sources for file in paths_of(source)}
    listening.clear()
    open_recording(path, keep=True).map(lambda reading: reading)
    opened = {name for name in listening if name.startswith(str(path)) and Path(name).is_file()}
    assert opened
    assert opened <= known

"""An entry is whole, this user's own and about what was asked, or it is not there; nothing ever fails for it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuperf.base import trust
from npuperf.base.cache import Cache, EntryKey, cache_of, clear
from npuperf.base.files import MANIFEST
from npuperf.base.trust import own_folder, secret
from npuperf.model.labels import Labels

KEY = EntryKey("/data/run", "ab" * 32)
OTHER = EntryKey("/data/run", "cd" * 32)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user with folders of her own, who has no secret yet."""
    monkeypatch.delenv("NPUPERF_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    secret.cache_clear()
    yield tmp_path / "home"
    secret.cache_clear()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "entries", 1 << 20)


def value(number: int = 0) -> Labels:
    return Labels(np.arange(number, number + 300, dtype=np.int32), ("a", "b"))


def is_value(found: Labels | None, number: int = 0) -> bool:
    return found is not None and found.codes.tolist() == list(range(number, number + 300)) and found.names == ("a", "b")


def only(cache: Cache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_what_is_put_is_there(cache: Cache) -> None:
    assert cache.get(KEY, Labels) is None
    cache.put(KEY, value())
    assert is_value(cache.get(KEY, Labels))
    assert cache.get(OTHER, Labels) is None
    assert cache.get(KEY, dict) is None
    assert only(cache).stat().st_mode & 0o777 == 0o600


def test_what_has_no_place_leaves_nothing(cache: Cache) -> None:
    cache.put(KEY, {1, 2})
    assert not cache.folder.exists()


def test_a_change_of_any_byte_is_seen_and_mended(cache: Cache) -> None:
    cache.put(KEY, value())
    path = only(cache)
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x40]) + good[position + 1 :])
        assert cache.get(KEY, Labels) is None, position
    cache.put(KEY, value())
    assert is_value(cache.get(KEY, Labels))


def test_cut_off_foreign_and_empty_entries_are_not_there(cache: Cache) -> None:
    cache.put(KEY, value())
    path = only(cache)
    good = path.read_bytes()
    for content in (b"", good[:10], good[:48], good[: len(good) // 2], good[:-1], good + b"x", b"x" * 1000, b"\n" * 99):
        path.write_bytes(content)
        assert cache.get(KEY, Labels) is None


def test_an_entry_of_somebody_else_is_not_used(cache: Cache, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, value())
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "another"))
    secret.cache_clear()
    assert cache.get(KEY, Labels) is None
    cache.put(KEY, value(5))
    assert is_value(cache.get(KEY, Labels), 5)


def test_entries_cannot_be_exchanged(cache: Cache) -> None:
    cache.put(KEY, value())
    path = only(cache)
    path.rename(path.with_name(f"{OTHER.digest}.entry"))
    assert cache.get(OTHER, Labels) is None


def test_what_is_no_plain_file_is_not_opened(cache: Cache, tmp_path: Path) -> None:
    cache.put(KEY, value())
    path = only(cache)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get(KEY, Labels) is None
    path.unlink()
    os.mkfifo(path)
    assert cache.get(KEY, Labels) is None  # and nobody waits
    path.unlink()
    path.mkdir()
    cache.put(KEY, value())
    assert cache.get(KEY, Labels) is None


def test_where_nothing_can_be_written_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/entries")):
        cache = Cache(folder, 1 << 20)
        cache.put(KEY, value())
        assert cache.get(KEY, Labels) is None
        assert cache.clear(Path("/data")) == (0, 0)


def test_a_full_disk_leaves_nothing_behind(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A file on a disk that has no room."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, piece: bytes) -> None:
            self._file.write(bytes(piece)[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

    cache.put(OTHER, value())
    opened = os.fdopen
    monkeypatch.setattr("os.fdopen", lambda *arguments: Full(opened(*arguments)))
    cache.put(KEY, value())
    assert [path.name for path in cache.folder.iterdir()] == [f"{OTHER.digest}.entry"]


def key(number: int) -> EntryKey:
    return EntryKey("/data/run", f"{number:064x}")


def test_what_was_longest_not_asked_for_goes_first(cache: Cache) -> None:
    cache.put(key(0), value())
    size = only(cache).stat().st_size
    small = Cache(cache.folder, 3 * size + size // 2)
    for number in range(1, 3):
        small.put(key(number), value())
    for number in range(3):
        os.utime(small.folder / f"{number:064x}.entry", (1000 + number, 1000 + number))
    assert is_value(small.get(key(0), Labels))  # which makes it the youngest
    small.put(key(3), value())
    assert [number for number in range(4) if small.get(key(number), Labels)] == [0, 2, 3]


def test_what_is_larger_than_all_room_is_not_kept(cache: Cache) -> None:
    cache.put(KEY, value())
    Cache(cache.folder, 100).put(OTHER, value())
    assert is_value(cache.get(KEY, Labels))
    assert cache.get(OTHER, Labels) is None


def test_only_entries_make_room(tmp_path: Path) -> None:
    folder = tmp_path / "entries"
    folder.mkdir()
    for name in ("notes.txt", "x.entry", "ab.entry"):
        (folder / name).write_bytes(bytes(4096))
    (folder / f"{'ef' * 32}.entry").symlink_to(folder / "notes.txt")
    (folder / ".npuperf-left").write_text("")
    cache = Cache(folder, 3000)
    cache.put(KEY, value())
    left = {path.name for path in folder.iterdir()}
    assert left == {"notes.txt", "x.entry", "ab.entry", f"{'ef' * 32}.entry", f"{KEY.digest}.entry"}


def test_several_at_the_same_time(cache: Cache) -> None:
    """Whoever looks sees a whole entry, of one of the writers."""
    cache.put(KEY, value())
    small = Cache(cache.folder, 5 * only(cache).stat().st_size)
    wrong = threading.Event()

    def work(number: int) -> None:
        for turn in range(30):
            small.put(KEY, value())
            small.put(key(number * 100 + turn), value(number))
            found = small.get(KEY, Labels)
            if found is not None and not is_value(found):
                wrong.set()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong.is_set()
    assert is_value(small.get(KEY, Labels))
    assert not list(cache.folder.glob(".begun-*"))


def test_one_secret_for_all_who_begin_at_the_same_time(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secret.__wrapped__(), range(32)))
    assert len(found) == 1
    path = home / "state" / "npuperf" / "cache.key"
    assert path.read_bytes() in found
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["cache.key"]


@pytest.mark.parametrize("damage", ["open to others", "short", "link", "folder"])
def test_a_secret_that_is_none_is_not_used(damage: str, cache: Cache, home: Path) -> None:
    secret()
    path = home / "state" / "npuperf" / "cache.key"
    if damage == "open to others":
        path.chmod(0o640)
    elif damage == "short":
        path.write_bytes(b"")
    elif damage == "link":
        path.rename(home / "real")
        path.symlink_to(home / "real")
    else:
        path.unlink()
        path.mkdir()
    secret.cache_clear()
    cache.put(KEY, value())
    assert not cache.folder.exists()
    assert cache.get(KEY, Labels) is None


def test_only_absolute_folders_of_the_environment_count(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOME", str(home))
    for given in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert own_folder("XDG_CACHE_HOME", ".cache") == home / ".cache" / "npuperf"


def without_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home_there_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(trust.Path, "home", without_home)
    assert cache_of(tmp_path, [big_file(tmp_path)]) is None
    assert clear(tmp_path) == (0, 0)


@pytest.mark.parametrize("given", ["a", "./a"])
def test_a_home_that_is_relative_is_none(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", given)
    assert cache_of(tmp_path, [big_file(tmp_path)]) is None


def big_file(folder: Path) -> Path:
    path = folder / "big.csv"
    with path.open("wb") as file:
        file.truncate(4 << 20)
    return path


def test_where_entries_lie(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run directory of one's own, else in one's own folder; nowhere for small files, or where that is said."""
    run = tmp_path / "run"
    run.mkdir()
    big = big_file(run)
    assert cache_of(run, [big]) == Cache(home / "cache" / "npuperf", 2 << 30)
    (run / MANIFEST).write_text("{}")
    assert cache_of(run, [big]) == Cache(run / ".cache", 2 << 30)
    assert cache_of(big, [big]) == Cache(home / "cache" / "npuperf", 2 << 30)
    (run / ".cache").symlink_to(tmp_path)  # somebody wants others' files to be written, or removed
    assert cache_of(run, [big]) == Cache(home / "cache" / "npuperf", 2 << 30)
    assert cache_of(run, []) is None
    assert cache_of(run, [tmp_path / "missing"]) is None
    monkeypatch.setenv("NPUPERF_NO_CACHE", "1")
    assert cache_of(run, [big]) is None


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ("500", 500),
        ("1k", 1024),
        ("1.5M", 3 << 19),
        ("3G", 3 << 30),
        ("0", 0),
        ("lots", 2 << 30),
        ("-1", 2 << 30),
        ("9" * 400, 2 << 30),
    ],
)
def test_how_much_there_may_be(given: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUPERF_CACHE_SIZE", given)
    found = cache_of(tmp_path, [big_file(tmp_path)])
    assert found is not None
    assert found.limit == limit


def test_clearing_removes_what_is_about_a_path_and_below_it(tmp_path: Path, home: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    cache = Cache(home / "cache" / "npuperf", 1 << 20)
    roots = [run, run / "rank_0", run / "rank_1" / "x.csv", tmp_path / "run2", tmp_path]
    for number, root in enumerate(roots):
        cache.put(EntryKey(str(root), f"{number:064x}"), value())
    size = sum(path.stat().st_size for path in list(cache.folder.iterdir())) // 5
    (cache.folder / "notes.txt").write_text("mine")
    number, removed = clear(run)
    assert number == 3
    assert abs(removed - 3 * size) < 300  # roots are of different lengths
    left = {path.name for path in cache.folder.iterdir()}
    assert left == {f"{3:064x}.entry", f"{4:064x}.entry", "notes.txt"}
    assert clear(run) == (0, 0)
    (run / MANIFEST).write_text("{}")
    own = Cache(run / ".cache", 1 << 20)
    own.put(EntryKey(str(run), f"{5:064x}"), value())
    own.put(EntryKey("/where/it/was/recorded", f"{6:064x}"), value())
    (own.folder / ".npuperf-left").touch()  # by who was killed
    assert clear(run)[0] == 2
    assert not own.folder.exists()


def test_clearing_reaches_the_run_directories_below(tmp_path: Path) -> None:
    run, other = tmp_path / "all" / "run", tmp_path / "run"
    for folder in (run, other):
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text("{}")
        Cache(folder / ".cache", 1 << 20).put(EntryKey(str(folder), "ab" * 32), value())
    assert clear(tmp_path / "all")[0] == 1
    assert not (run / ".cache").exists()
    assert (other / ".cache").exists()

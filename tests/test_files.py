"""What is written stands there whole, and where it was told to stand."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from npuperf.base.errors import InputError
from npuperf.base.files import open_input, read_input, write_atomically, writing_atomically


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    write_atomically(tmp_path / "out", "after")
    assert [f.name for f in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "after"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only POSIX has named pipes")
def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """As root, a rename would put a file in the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    listener = Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    listener.start()
    write_atomically(pipe, "after")
    listener.join(10)
    assert heard == ["after"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [f.name for f in tmp_path.iterdir()] == ["pipe"]


def test_a_folder_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path, "after")


def test_the_door_gives_what_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\x00\xffab\n")
    (tmp_path / "link").symlink_to("in")
    for name in ("in", "link"):
        assert read_input(tmp_path / name) == b"\x00\xffab\n"
        with open_input(str(tmp_path / name)) as file:
            assert (file.read(2), file.read(), file.read()) == (b"\x00\xff", b"ab\n", b"")
        assert file.closed


def special(folder: Path, kind: str) -> Path:
    """Something that is no file."""
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only POSIX has these")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_the_door_opens_only_files(short_path: Path, kind: str) -> None:
    path = special(short_path, kind)
    with pytest.raises(InputError) as refused:
        read_input(path)
    assert refused.value.what.parameters["path"] == str(path)
    assert str(refused.value.what).endswith(f": a {kind}, not a file; it was not opened")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose sockets' paths are not too long."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def test_what_became_a_pipe_meanwhile_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    before = (tmp_path / "file").stat()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda _: before)
    with pytest.raises(InputError, match="a pipe, not a file"):
        read_input(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "why"),
    [("missing", "No such file"), ("n" * 300, "File name too long"), ("a\0b", "null"), ("loop", "symbolic links")],
)
def test_paths_that_lead_nowhere(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=why):
        read_input(tmp_path / name)


def test_a_disk_that_fails_while_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("some")
    with pytest.raises(InputError, match=r"in: cannot be read: Input/output error"), open_input(tmp_path / "in"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_pieces_are_there_once_all_are_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with writing_atomically(path) as file:
        file.write(b"a")
        assert path.read_text() == "before"
        file.write(b"b")
    assert path.read_text() == "ab"
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_breaks_off_leaves_the_file_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(error), writing_atomically(path) as file:
        file.write(b"half")
        raise error
    assert path.read_text() == "before"
    assert [f.name for f in tmp_path.iterdir()] == ["out"]

"""What is written stands there whole, and where it was told to stand."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest

from npuperf.base.errors import InputError
from npuperf.base.files import (
    is_file,
    is_folder,
    is_special,
    is_there,
    open_input,
    read_input,
    scratch_folder,
    write_atomically,
    writing_atomically,
)
from npuperf.base.messages import Message


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    write_atomically(tmp_path / "out", "after")
    assert [f.name for f in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "after"


@pytest.mark.skipif(sys.platform != "linux", reason="where nothing else tells it, it is set to be read")
def test_a_file_is_for_those_that_the_program_lets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that make files meanwhile are not to make them for everybody."""
    before = os.umask(0o137)
    try:
        monkeypatch.delattr(os, "umask")
        write_atomically(tmp_path / "out", "text")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


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


def test_what_is_there_is_told_and_what_no_path_can_be_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("missing")
    asked = (is_there, is_file, is_folder, is_special)
    for name, told in (
        ("file", "1100"), ("link", "1100"), ("", "1011"), ("nowhere", "0000"), ("missing", "0000"), ("file/x", "0000"),
        ("a\0b", "0000"), ("a" * 5000, "0000"),
    ):  # fmt: skip
        assert "".join(str(int(ask(tmp_path / name))) for ask in asked) == told, name
    (tmp_path / "loop").symlink_to("loop")
    why: list[Message] = []
    assert not any(is_file(tmp_path / name, why) for name in ("missing", "file/x", "loop"))
    assert [str(message).startswith(f"{tmp_path / 'loop'}: ") for message in why] == [True]


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


WRITER = """
import os, signal, sys
from pathlib import Path
from npuperf.base.files import scratch_folder, writing_atomically
with scratch_folder(sys.argv[1]) as scratch, writing_atomically(Path(sys.argv[1], "out")) as file:
    (scratch / "copy").write_text("half")
    file.write(b"half")
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """As long as it lives, nobody takes what it has begun for left behind."""
    (tmp_path / ".npuperf.yaml").write_text("somebody's own")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "begun\n"
        begun = {path.name for path in tmp_path.iterdir() if path.name.startswith(".npuperf-")}
        assert len(begun) == 2
        write_atomically(tmp_path / "other", "whole")
        assert begun <= {path.name for path in tmp_path.iterdir()}
        writer.kill()
    assert begun <= {path.name for path in tmp_path.iterdir()}
    write_atomically(tmp_path / "other", "again")
    assert {path.name for path in tmp_path.iterdir()} == {"other", ".npuperf.yaml"}


def test_what_cannot_be_opened_again_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota or a file server may say of what was just made that it cannot be opened, or closed."""
    opening = os.open

    def once(path: str, flags: int, *more: Any, **named: Any) -> int:
        if ".npuperf-" in str(path) and not flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opening(path, flags, *more, **named)

    monkeypatch.setattr("os.open", once)
    write_atomically(tmp_path / "out", "text")
    with pytest.raises(PermissionError), scratch_folder(str(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_cannot_be_looked_at_is_not_made_anew_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = os.lstat

    def stale(path: str, **named: Any) -> os.stat_result:
        if ".npuperf-" in str(path):
            raise OSError(errno.ESTALE, "Stale file handle")
        return looking(path, **named)

    monkeypatch.setattr("os.lstat", stale)
    write_atomically(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_locks_only_what_is_old_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    new, old = tmp_path / ".npuperf-new", tmp_path / ".npuperf-old"
    for path, age in ((new, 60), (old, 7200)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    write_atomically(tmp_path / "out", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".npuperf-new"}


def test_many_write_one_file_at_the_same_time(tmp_path: Path) -> None:
    """None loses what it has begun to another one that looks for what was left behind."""
    texts = [str(i) * 1000 for i in range(8)]

    def write(text: str) -> None:
        for _ in range(50):
            write_atomically(tmp_path / "out", text)

    threads = [Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "out").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

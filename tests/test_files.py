"""What is written stands there whole, and where it was told to stand."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from npuperf.errors import InputError
from npuperf.files import write_atomically


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

"""Modules are loaded without a search for garbage, which goes on afterwards, and without threads that nobody needs."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from npuperf.base.loading import load_library, loading, no_matrix_threads

_VARIABLE = "OPENBLAS_NUM_THREADS"
_COUNTED = "import os, numpy; print(len(os.listdir('/proc/self/task')))"


class Ring:
    """An object that only a search for garbage frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    gc.enable()  # whatever ran before
    yield
    gc.unfreeze()
    gc.enable()


def test_garbage_is_searched_for_again_afterwards() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    later = weakref.ref(Ring())
    gc.collect()
    assert later() is None


def test_a_search_that_was_off_stays_off_and_errors_pass() -> None:
    gc.disable()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert not gc.isenabled()


def test_after_an_error_garbage_is_searched_for_as_well() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def _threads(code: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    return int(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads in /proc")  # noqa: PTH110
def test_numpy_starts_no_threads() -> None:
    assert (
        _threads(f"from npuperf.base.loading import no_matrix_threads\nwith no_matrix_threads():\n    {_COUNTED}") == 1
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads in /proc")  # noqa: PTH110
def test_a_program_that_is_started_later_has_its_own() -> None:
    child = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {_COUNTED!r}], text=True))"
    code = f"from npuperf.base.loading import no_matrix_threads\nwith no_matrix_threads():\n    import numpy\n{child}"
    assert _threads(code) == _threads(_COUNTED)


def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_VARIABLE, "7")
    with no_matrix_threads():
        assert os.environ[_VARIABLE] == "7"
    assert os.environ[_VARIABLE] == "7"


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_VARIABLE, raising=False)
    with pytest.raises(KeyError), no_matrix_threads():
        assert os.environ[_VARIABLE] == "1"
        raise KeyError
    assert _VARIABLE not in os.environ


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_library_is_loaded_if_its_last_table_is_whole(
    order: str, more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ELF says where its table of sections begins (byte 0x28), how large each is and how many there are (0x3A)."""
    head = bytearray(b"\x7fELF\x02" + bytes(59))
    head[5] = 1 if order == "<" else 2
    struct.pack_into(f"{order}Q", head, 0x28, 100)
    struct.pack_into(f"{order}HH", head, 0x3A, 64, 3)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: SimpleNamespace(path=path, go=SimpleNamespace()))
    library = tmp_path / "lib.so"
    library.write_bytes(head.ljust(100 + 3 * 64 + more))
    loaded = load_library(library, [("go", int, (str,))])
    assert (loaded is not None) == (more >= 0)
    assert loaded is None or (loaded.path, vars(loaded.go)) == (str(library), {"restype": int, "argtypes": (str,)})
    assert load_library(library, [("come", int, ())]) is None  # another version's
    library.write_bytes(head[:63])
    assert load_library(library, []) is None and load_library(tmp_path / "missing.so", []) is None
    library.write_bytes(b"\xcf\xfa\xed\xfe".ljust(64))  # of a system that checks by itself what it loads
    assert load_library(library, []) is not None

"""Loading modules, which is much of what a small recording takes, and the libraries of our own C."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from npuperf.base.errors import InputError
from npuperf.base.files import open_input

#: How many threads OpenBLAS starts when numpy is loaded, if it is set.
_MATRIX_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def loading() -> Iterator[None]:
    """Load the modules of a verb: they stay."""
    with gathering(), no_matrix_threads():
        yield


@contextmanager
def gathering() -> Iterator[None]:
    """Gather what stays without a search for garbage, and never search what is there by then."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def no_matrix_threads() -> Iterator[None]:
    """Load numpy, or start a process that does, without threads for matrices, of which we multiply none.

    OpenBLAS starts one per core, and each runs at full speed for a while before it sleeps: as much CPU time as loading
    numpy takes, on two cores. What is set already stays, and a program that is started later sees no difference.
    """
    if _MATRIX_THREADS in os.environ:
        yield
        return
    os.environ[_MATRIX_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_MATRIX_THREADS]


# -- Libraries of our own C, made when npuperf is installed (hatch_build.py); without a compiler there are none.
#
# They know nothing of Python and are called by ctypes. Whoever calls one has another way where it is missing, which
# gives the same, and takes longer.

_ELF_BYTES: Final = 64

#: A function of a library: its name, what it returns, and what it is given, as ctypes has it.
Function = tuple[str, Any, tuple[Any, ...]]


def library_of(source: Path) -> Path:
    """Return where the library of a C file lies."""
    return source.with_name(f"lib{source.stem}.so")


def load_library(path: Path, functions: Iterable[Function]) -> Any:
    """Load a library and declare its functions; None if it is missing, cut, of another system or another version."""
    try:
        if not _is_whole(path):
            return None
        library = ctypes.CDLL(str(path))
        for name, result, arguments in functions:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (InputError, OSError, AttributeError):
        return None
    return library


def _is_whole(path: Path) -> bool:
    """Tell whether nothing is cut of a library, at whose end ELF has a table: a step beyond would kill the process."""
    with open_input(path) as file:
        head, size = file.read(_ELF_BYTES), os.fstat(file.fileno()).st_size
    if not head.startswith(b"\x7fELF\x02") or len(head) < _ELF_BYTES:
        return len(head) == _ELF_BYTES
    order = "<" if head[5] == 1 else ">"
    (table,), (each, count) = struct.unpack_from(f"{order}Q", head, 0x28), struct.unpack_from(f"{order}HH", head, 0x3A)
    return bool(size >= table + each * count)

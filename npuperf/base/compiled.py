"""Libraries of our own C, made when npuperf is installed (hatch_build.py); where there was no compiler, there are none.

They know nothing of Python and are called by ctypes. Whoever calls one has another way where it is missing, which gives
the same, and takes longer.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from npuperf.base.errors import InputError
from npuperf.base.files import open_input

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

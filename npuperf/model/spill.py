"""Out of core: where a recording takes more memory than there is, large arrays lie in files that have no name.

The system keeps in memory what of them is in use, and puts the rest aside; an analysis takes longer then, but is not
killed. numpy is told by its own interface for that (NEP 49), so whoever makes arrays need not know.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, Final

import numpy as np

from npuperf.compiled import library_of, load_library
from npuperf.model.memory import available

#: Where the library is, if it is.
LIBRARY: Final = library_of(Path(__file__))
_FUNCTIONS: Final = (
    ("spill_source", ctypes.c_char_p, ()),
    ("spill_into", ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)),
    ("spill_peak", ctypes.c_int64, ()),
)
#: So much is always there.
_SURE: Final = 256 << 20
#: Smaller arrays stay in memory: there are many of them.
_LEAST: Final = 1 << 20
#: What may be taken: of the memory that there is, and of the disk's free space.
_OF_MEMORY, _OF_DISK = 0.7, 0.8
#: Of the memory that there is, what freed files may keep.
_KEPT: Final = 0.1
#: Where numpy's C interface is, where it has what sets the handler, and what it calls one.
_CORE: Final = "core" if np.__version__.startswith("1.") else "_core"
_SET_HANDLER: Final = 304
_CAPSULE: Final = ctypes.c_char_p(b"mem_handler")

_ALLOWED = Event()
_SPILLING: ContextVar[bool] = ContextVar("spilling", default=False)


def allow() -> None:
    """Let arrays lie in files, in a process that is ours alone."""
    _ALLOWED.set()


def spill_if_short(needed: int, folders: Iterable[Path]) -> bool:
    """Put the large arrays that this thread makes from now on into files, if so many bytes would not find room.

    The files go to the first of the folders that takes them. Returns whether they do.
    """
    if not _ALLOWED.is_set() or _SPILLING.get() or needed < _SURE:
        return _SPILLING.get()
    room = available()
    return needed > _OF_MEMORY * room and any(spill(folder, int(_KEPT * room)) for folder in folders)


def spill(folder: Path, kept: int, least: int = _LEAST) -> bool:
    """Put arrays of ``least`` bytes or more that this thread makes from now on into files in a folder, if it takes any.

    ``kept``: bytes of those freed that are kept for others. Threads that take over this one's context do so, too.
    """
    library = _library()
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return False
    handler = library.spill_into(os.fsencode(folder), least, int(_OF_DISK * free), kept) if library else None
    if handler:
        _set_handler(handler)
        _SPILLING.set(True)
    return bool(handler)


def spilling() -> bool:
    """Tell whether the large arrays that this thread makes lie in files."""
    return _SPILLING.get()


def spilled_bytes() -> int:
    """Return the most bytes that were in files at the same time."""
    library = _library()
    return int(library.spill_peak()) if library and _ALLOWED.is_set() else 0


def compiled_source() -> str:
    """Return the hash of the source that the library was made of; empty without it."""
    library = _library()
    return library.spill_source().decode() if library else ""


@cache
def _library() -> Any:
    return load_library(LIBRARY, _FUNCTIONS)


def _set_handler(handler: int) -> None:
    """Have numpy make arrays by a handler, in this context."""
    interface = import_module(f"numpy.{_CORE}.multiarray")
    pointer, capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    functions = ctypes.cast(pointer(interface._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    setting = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER])
    setting(capsule(handler, _CAPSULE, None))

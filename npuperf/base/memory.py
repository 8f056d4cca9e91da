"""How much memory there is; what a process that is ours alone may do: keep what was freed, and leave pandas be."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Final

from npuperf.base.errors import InputError
from npuperf.base.files import read_input

#: What mallopt(3) calls the parameters, and values beyond which the C library takes no other.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGEST_SHARED: Final = 32 << 20
_NEVER_TRIMMED: Final = 1 << 30
#: Where control groups are, and what those of both versions call a limit, and what cannot be put aside.
_GROUPS: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = (("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss"))


def available() -> int:
    """Return the bytes of memory that may be had: by the system, or the container that limits us."""
    import psutil

    return min([int(psutil.virtual_memory().available), *_left_in_groups()])


def _left_in_groups() -> Iterator[int]:
    """Yield what is left in the control groups of this process; files that are kept in memory do not count as used.

    A container sees its own group at the root of the mounted tree, whatever the kernel calls it.
    """
    with suppress(InputError):
        for line in read_input("/proc/self/cgroup").decode(errors="replace").splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            if controllers in ("", "memory"):
                yield from _left_below(_GROUPS / controllers, path)


def _left_below(root: Path, path: str) -> Iterator[int]:
    group = root / path.strip("/")
    for folder in (group, *group.parents):
        for limit, used in _LIMITS if folder.is_relative_to(root) else ():
            with suppress(InputError, ValueError, KeyError):  # no such group here, or its limit is "max"
                most = int(read_input(folder / limit))
                lines = read_input(folder / "memory.stat").decode().splitlines()
                yield max(most - int(dict(line.split() for line in lines)[used]), 0)


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas, and leaves everything else to others."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Find nothing. Raises ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def be_alone() -> None:
    """Settle in a process that is ours alone: a program that we are only a part of might want it otherwise."""
    spare_pandas()
    keep_freed()


def spare_pandas() -> None:
    """Keep Arrow from loading pandas.

    Handed its first list or number, Arrow loads pandas to see whether that is a Series: a fifth of the time that a
    small recording takes. Where it finds none it asks no more until somebody wants a frame; a program that we are only
    a part of might hand it a Series before that.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    nobody = _NoPandas()
    sys.meta_path.insert(0, nobody)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(nobody)


def keep_freed() -> None:
    """Keep memory that is freed until :func:`give_back`, in a process that is ours alone.

    Arrays of millions of rows come and go. Each would be memory of its own, which the system fills with zeros first:
    a tenth of the time that a large profile takes. Threads share it: what one has freed another may take.
    """
    options = _of_c_library("mallopt")
    if options:
        options(_MMAP_THRESHOLD, _LARGEST_SHARED)
        options(_TRIM_THRESHOLD, _NEVER_TRIMMED)
        options(_ARENA_MAX, 1)


def give_back() -> None:
    """Give memory that was freed back to the system, where the C library can; Arrow has some of its own."""
    trim = _of_c_library("malloc_trim")
    if trim:
        trim(0)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


def _of_c_library(name: str) -> Any:
    """Return a function that not every C library has, or None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

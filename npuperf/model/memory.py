"""Memory that was freed: kept for what comes next, or given back to the system."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

#: What mallopt(3) calls the parameters, and values beyond which the C library takes no other.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGEST_SHARED: Final = 32 << 20
_NEVER_TRIMMED: Final = 1 << 30


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
    """Give memory that was freed back to the system, where the C library can."""
    trim = _of_c_library("malloc_trim")
    if trim:
        trim(0)


def _of_c_library(name: str) -> Any:
    """Return a function that not every C library has, or None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

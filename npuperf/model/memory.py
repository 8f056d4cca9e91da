"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Give memory that was freed back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)

"""Loading modules, which is much of what a small recording takes, without what nobody needs."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: How many threads OpenBLAS starts when numpy is loaded, if it is set.
_MATRIX_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def loading() -> Iterator[None]:
    """Load the modules of a verb without a search for garbage, and never search what is there by then: it stays."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with no_matrix_threads():
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

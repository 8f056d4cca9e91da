"""Map a function over ranks, in order, serially or on threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ranks(work: Callable[[T], R], items: Sequence[T], workers: int | None = None) -> list[R]:
    """Apply ``work`` to each item; results keep the order of the items.

    Threads suffice: reading is Arrow's and numpy's work, which runs without the interpreter lock. Few workers
    bound the memory, since each holds one rank's tables.
    """
    workers = workers or min(4, os.cpu_count() or 1, len(items) or 1)
    if workers <= 1:
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(work, items))
    finally:  # after an error or Ctrl-C nobody waits for the ranks still being read
        pool.shutdown(wait=False, cancel_futures=True)

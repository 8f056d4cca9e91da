"""What is said on stderr: lines, and a progress bar where a person watches and the work is long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Below this many bytes reading is over before a bar could be read.
_WORTH_A_BAR = 50 << 20


def tell(line: str) -> None:
    """Speak on stderr: stdout belongs to data, and to the programs that are run."""
    print(f"npuperf: {line}" if not line.startswith(" ") else line, file=sys.stderr, flush=True)


@contextmanager
def reading(total: Callable[[], int]) -> Iterator[Callable[[int], None] | None]:
    """Yield the callback that gets bytes read, or None when no bar is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    size = total()
    if size < _WORTH_A_BAR:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=size)
        yield lambda read: bar.advance(task, read)

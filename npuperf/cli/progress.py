"""What is said on stderr: lines, and a progress bar where a person watches and the work is long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from npuperf.base.escape import for_screen
from npuperf.base.messages import Message, say
from npuperf.show.language import lines_of, text

#: Below this many bytes reading is over before a bar could be read.
_WORTH_A_BAR = 50 << 20
#: From this many ranks on it is not, however small they are.
_MANY_RANKS = 32


def tell(message: Message) -> None:
    """Speak on stderr: stdout belongs to data, and to the programs that are run."""
    tell_line("\n".join(lines_of(message)))


def tell_line(line: str) -> None:
    """Say what is text already; lines that begin with a blank go on with the one before."""
    line = "\n".join(map(for_screen, line.split("\n")))  # those that a sentence has between what happened and what next
    print(f"npuperf: {line}" if not line.startswith(" ") else line, file=sys.stderr, flush=True)


@contextmanager
def reading(
    total: Callable[[], int], ranks: int
) -> Iterator[tuple[Callable[[int], None] | None, Callable[[], None] | None]]:
    """Yield what is told of bytes read and what is called after each rank, or None twice when no bar is shown."""
    size = total() if sys.stderr.isatty() else 0
    if size < _WORTH_A_BAR and (ranks < _MANY_RANKS or not sys.stderr.isatty()):
        yield None, None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text(_read(0, ranks)), total=size or None)
        done = count(1)
        yield (
            lambda read: bar.advance(task, read),
            lambda: bar.update(task, description=text(_read(next(done), ranks))),
        )


def _read(done: int, ranks: int) -> Message:
    if ranks == 1:
        return say("reading")
    return say("reading: {done} of {ranks} ranks", done=done, ranks=ranks)


@contextmanager
def rewriting() -> Iterator[Callable[[Message], None]]:
    """Yield what shows progress: a line that is rewritten for a person, elsewhere a line whenever its words change."""
    last: Message | None = None

    def show(message: Message) -> None:
        nonlocal last
        if sys.stderr.isatty():
            print(f"\r\x1b[K{for_screen(text(message))}", end="", file=sys.stderr, flush=True)
        elif last is None or _without_time(message) != _without_time(last):
            tell(message)
        last = message

    yield show
    if last is not None and sys.stderr.isatty():
        print(file=sys.stderr)


def _without_time(message: Message) -> Message:
    """Return what a message says beside the time that has passed."""
    return Message(message.id, {name: value for name, value in message.parameters.items() if name != "elapsed"})

"""What is said on stderr: lines, and a progress bar where a person watches and the work is long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from npuperf.base.escape import for_screen
from npuperf.base.messages import Message, say, size
from npuperf.show.language import lines_of, text

if TYPE_CHECKING:
    from npuperf.analyze.request import Question
    from npuperf.analyze.run import Watched
    from npuperf.base.parallel import Engine
    from npuperf.readers.recording import Recording

#: Below this many bytes reading is over before a bar could be read.
_WORTH_A_BAR = 50 << 20
#: From this many ranks on it is not, however small they are.
_MANY_RANKS = 32
#: So much memory every machine has: where it does, what is free need not be asked, which takes its time.
_SURELY_FREE: Final = 256 << 20


def tell(message: Message) -> None:
    """Speak on stderr: stdout belongs to data, and to the programs that are run."""
    tell_line("\n".join(lines_of(message)))


def tell_line(line: str) -> None:
    """Say what is text already; lines that begin with a blank go on with the one before."""
    line = "\n".join(map(for_screen, line.split("\n")))  # those that a sentence has between what happened and what next
    print(f"npuperf: {line}" if not line.startswith(" ") else line, file=sys.stderr, flush=True)


@contextmanager
def reading(recording: Recording, engine: Engine, question: Question) -> Iterator[Watched]:
    """Yield what is told of bytes read and what is called after each rank, or None twice when no bar is shown.

    Where memory may not do that is said before: else nobody says it, as the system ends what takes too much.
    """
    from npuperf.base.memory import available

    chosen = recording.of_ranks(question.chosen_ranks) if question.chosen_ranks else recording
    needed = chosen.memory_bytes(engine)
    if needed >= _SURELY_FREE and needed > (free := available()):
        if len(chosen.sources) > 1:
            tell(say("this takes about {needed} of memory, and {free} is free: it may be ended by the system; --rank "
                     "or --ranks reads fewer ranks", needed=size(needed), free=size(free)))  # fmt: skip
        else:
            tell(say("this takes about {needed} of memory, and {free} is free: it may be ended by the system",
                     needed=size(needed), free=size(free)))  # fmt: skip
    total, ranks = recording.timeline_bytes if sys.stderr.isatty() else 0, len(recording.sources)
    if total < _WORTH_A_BAR and (ranks < _MANY_RANKS or not sys.stderr.isatty()):
        yield None, None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text(_read(0, ranks)), total=total or None)
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

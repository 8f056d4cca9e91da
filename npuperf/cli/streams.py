"""The ways out of the process, in whatever state: readers that left, full disks, poor encodings, odd widths.

And what is said on stderr: lines, and a progress bar where a person watches and the work is long.
"""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, TextIO

from npuperf.base.errors import InputError
from npuperf.base.escape import for_screen
from npuperf.base.messages import Message, say, size
from npuperf.show.language import lines_of, text

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from npuperf.analyze.request import Question
    from npuperf.analyze.run import Watched
    from npuperf.base.parallel import Engine
    from npuperf.readers.recording import Recording

_STDIN, _STDOUT, _STDERR = range(3)
#: Columns that a report can be read in; narrower or wider is taken for a mistake of whoever set COLUMNS.
_LEAST_COLUMNS, _MOST_COLUMNS = 20, 1000
#: Terminals that know no links, and the last release of a common one that does not survive them.
_WITHOUT_LINKS, _VTE_THAT_CRASHES = ("", "dumb", "linux", "vt100", "vt220", "eterm-color"), 5000
#: What our own sentences and pictures have beyond ASCII, for encodings that lack it.
_PLAIN = {
    **dict(zip("µ−–·×▁▂▃▄▅▆▇█▓", "u--|x__--==##+", strict=True)),
    "→": "->",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "Σ": "sum ",
    "√": "sqrt ",
}
_IN_PLAIN_LETTERS = "npuperf-plain"


class _Outlet(io.FileIO):
    """A way out of the process whose other end may go away.

    What cannot be written is dropped. Left in a buffer it would fail once more when Python ends, which then leaves
    with 120, whatever the command's own exit status is.
    """

    _lost = False
    #: Whether the descriptor was closed before we began.
    closed_before = False

    def write(self, data: Buffer, /) -> int:
        """Write, or drop. Raises InputError, once, if stdout cannot be written though somebody wants it."""
        length = memoryview(data).nbytes
        if self._lost or not length:  # libraries write nothing, to see whether they may
            return length
        wanted = self.fileno() == _STDOUT
        if self.closed_before:
            self._lost = True
            if wanted:
                raise InputError(say("stdout is closed"))
            return length
        rest = memoryview(data).cast("B")
        try:
            while rest:  # a disk that is nearly full takes a part, and without a buffer nobody would write the others
                rest = rest[super().write(rest) or 0 :]
            return length
        except OSError as error:
            self._lost = True
            if wanted and not isinstance(error, BrokenPipeError):
                raise InputError(say("stdout: cannot be written: {why}", why=error.strerror)) from error
            return length


def outlast_readers() -> None:
    """Let nothing fail because nobody reads our stdout or stderr any more, or because they were closed before us.

    An absurd COLUMNS is dropped: libraries read it without a doubt.
    """
    codecs.register_error(_IN_PLAIN_LETTERS, _in_plain_letters)
    if not _is_width(os.environ.get("COLUMNS", "")):
        os.environ.pop("COLUMNS", None)
    for descriptor in (_STDIN, _STDOUT, _STDERR):  # a file that is opened must not become a stream that was closed
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    # Others than the process's own are a test's or a notebook's; they stay.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _outlet(sys.stdout, _STDOUT)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _outlet(sys.stderr, _STDERR)


def terminal_width() -> int:
    """Return how many columns a report may have."""
    return min(max(shutil.get_terminal_size().columns, _LEAST_COLUMNS), _MOST_COLUMNS)


def draws_blocks() -> bool:
    """Tell whether a report on stdout may have blocks: East Asian encodings have them, too, but twice as wide."""
    dumb = os.environ.get("TERM") == "dumb" and sys.stdout.isatty()
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf") and not dumb  # a buffer of Python's has none


def opens_links() -> bool:
    """Tell whether stdout is a terminal that opens links, or shows nothing of them. FORCE_HYPERLINK says it, too."""
    if not sys.stdout.isatty():
        return False
    forced, term = os.environ.get("FORCE_HYPERLINK", ""), os.environ.get("TERM", "")
    if forced:
        return forced.lower() not in ("0", "false", "no", "never")
    vte = os.environ.get("VTE_VERSION", "9999")
    # Old releases of VTE crash; Linux's console, screen and Emacs write out what they do not know.
    knows = vte.isdecimal() and int(vte) > _VTE_THAT_CRASHES and "INSIDE_EMACS" not in os.environ
    return knows and term not in _WITHOUT_LINKS and (not term.startswith("screen") or "TMUX" in os.environ)


def _is_width(columns: str) -> bool:
    digits = columns.isascii() and columns.isdecimal() and len(columns) <= len(str(_MOST_COLUMNS))
    return digits and _LEAST_COLUMNS <= int(columns) <= _MOST_COLUMNS


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks so that it can still be read; what we know no letters for becomes "?"."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _outlet(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return a stream like this one; Python has none where the descriptor was closed."""
    out = _Outlet(descriptor, "w", closefd=False)
    if not isinstance(stream, io.TextIOWrapper):
        out.closed_before = True
        return io.TextIOWrapper(out, "utf-8", _IN_PLAIN_LETTERS, write_through=True)
    return io.TextIOWrapper(
        out if stream.write_through else io.BufferedWriter(out),
        stream.encoding,
        _IN_PLAIN_LETTERS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


# -- What is said on stderr.

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

    Where memory may not do that is said before: else nobody says it, as the system ends what takes too much. So is what
    makes it slow; the document does not differ.
    """
    from npuperf.base.memory import available
    from npuperf.readers.plain_events import compiled_source

    chosen = recording.of_ranks(question.chosen_ranks) if question.chosen_ranks else recording
    needed = chosen.memory_bytes(engine)
    if needed >= _SURELY_FREE and needed > (free := available()):
        if len(chosen.sources) > 1:
            tell(say("this takes about {needed} of memory, and {free} is free: it may be ended by the system; --rank "
                     "or --ranks reads fewer ranks", needed=size(needed), free=size(free)))  # fmt: skip
        else:
            tell(say("this takes about {needed} of memory, and {free} is free: it may be ended by the system",
                     needed=size(needed), free=size(free)))  # fmt: skip
    if not compiled_source() and chosen.timeline_bytes >= _WORTH_A_BAR:
        tell(say("the compiled reader is missing, so reading takes two to three times as long: install npuperf from a "
                 "wheel for this platform, or where there is a C compiler"))  # fmt: skip
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

"""Large traces on several cores: helpers read stretches from the end of the file, this thread from its start.

The compiled reader needs no interpreter lock; without it threads would wait for each other, and there are none. A
stretch ends behind an event, and is read only if everything in it is as it should be: all else is left to whoever reads
the file as a whole.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from msgspec import Struct

from npuperf.errors import InputError
from npuperf.files import open_input
from npuperf.parallel import Threads, spare_cores
from npuperf.readers import pieces
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.pieces import GAP, Event, FilePieces
from npuperf.readers.plain_events import is_compiled
from npuperf.readers.trace_gather import Gathered, Gatherer
from npuperf.readers.unpack import Ahead

#: Below this many bytes there is little to share.
WORTH_HELP: Final = 48 << 20
#: Bytes of a stretch: few enough that nobody waits long for the last one.
STRETCH_BYTES: Final = 16 << 20
#: More helpers would wait for the interpreter.
_MOST: Final = 3


class TraceStretch(Struct, frozen=True):
    """Bytes of a file, from the start of an event to that of another. ``any_times``: how its times are read."""

    path: Path
    start: int
    stop: int
    last: bool
    any_times: bool


class StretchFound(Struct, frozen=True):
    """What a stretch told; ``header``: the file's other keys, where it has the file's start or end."""

    gathered: Gathered
    header: Mapping[str, object]


class Told:
    """Bytes that were told as read; those that are read once more are not told again."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._told = 0
        self._lock = Lock()

    def tell(self, size: int) -> None:
        """Tell that bytes were read."""
        with self._lock:
            self._told += size
        if self._progress:
            self._progress(size)

    def again(self, size: int) -> None:
        """Tell of bytes read from the start only what is beyond those told before."""
        known = min(size, self._told)
        self._told -= known
        if self._progress and size > known:
            self._progress(size - known)


class OddStretchError(Exception):
    """Something in a stretch is not as it should be."""


def read_stretches(path: Path, helpers: int, progress: Progress | None) -> list[StretchFound] | None:
    """Read a file in stretches; None where something is odd: then it is to be read as a whole."""
    try:
        waiting = deque(enumerate(_stretches(path)))
        found: dict[int, StretchFound] = {}
        gatherer = Gatherer()
        header: dict[str, object] = {}
        with Threads(max(helpers, 1)) as pool, _cleared(waiting):
            helping = [pool.submit(_help, waiting, found, progress) for _ in range(helpers)]
            for _, stretch in _taken(waiting.popleft):
                header |= read_stretch(stretch, gatherer, progress)
            for helper in helping:
                helper.result()
    except (OddStretchError, InputError, OSError, MemoryError, RuntimeError):  # the last: no thread can be started
        return None
    return [StretchFound(gatherer.found, header), *(found[at] for at in sorted(found))]


def spare_helpers(path: Path) -> int:
    """Return how many threads may help with a file: none with a small or packed one, or where others work as well."""
    with suppress(InputError), open_input(path) as file:
        if os.fstat(file.fileno()).st_size >= WORTH_HELP and file.read(2) != b"\x1f\x8b":
            return min(spare_cores(), _MOST) if is_compiled() else 0
    return 0


def read_stretch(stretch: TraceStretch, gatherer: Gatherer, progress: Progress | None = None) -> Mapping[str, object]:
    """Gather a stretch; return what it has of the header. Raises OddStretchError where it is not as it should be."""
    stretched = _StretchPieces(stretch, progress)
    for events in stretched.read(gatherer.plain):
        if gatherer.add(events):  # some have no time
            raise OddStretchError
    if stretched.log.lost or stretched.log.warnings or stretched.any_times != stretch.any_times:
        raise OddStretchError
    return stretched.header


class _StretchPieces(FilePieces):
    """The events of a stretch. Raises OddStretchError where reading would begin to try things."""

    def __init__(self, stretch: TraceStretch, progress: Progress | None) -> None:
        super().__init__(stretch.path, ReadLog(), progress)
        self.any_times = stretch.any_times and stretch.start > 0  # at the start it is found out
        self._stretch = stretch
        self._left = stretch.stop - stretch.start

    def _start(self, file: BinaryIO | Ahead) -> bytes:
        if not self._stretch.start:
            return super()._start(file)
        assert not isinstance(file, Ahead)
        file.seek(self._stretch.start)
        return b""

    def _block(self, file: BinaryIO | Ahead) -> bytes:
        block = file.read(min(pieces.PIECE_BYTES, self._left))
        self._left -= len(block)
        return block

    def _forgiving(self, text: bytes) -> list[Event] | None:
        return None

    def _salvage_all(self, body: bytes) -> list[Event]:
        raise OddStretchError

    def _last(self, rest: bytes) -> list[Event]:
        if self._left:  # the file became shorter
            raise OddStretchError
        events = super()._last(rest) if self._stretch.last else self._try(rest)
        if events is None:
            raise OddStretchError
        return events


def _stretches(path: Path) -> Iterator[TraceStretch]:
    """Cut a file behind events, as far as can be told without reading what is before; a wrong cut leaves odd ends."""
    starts = [0]
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(STRETCH_BYTES, size, STRETCH_BYTES):
            file.seek(at)
            gap = GAP.search(file.read(pieces.PIECE_BYTES))
            if gap is not None:
                starts.append(at + gap.end() - 1)
    first = FilePieces(path, ReadLog(), None)
    next(iter(first), None)
    for start, stop in pairwise([*starts, size]):
        yield TraceStretch(path, start, stop, stop == size, first.any_times)


def _taken(take: Callable[[], tuple[int, TraceStretch]]) -> Iterator[tuple[int, TraceStretch]]:
    """Take stretches until there are none; to look first whether there are is no use, with others taking, too."""
    with suppress(IndexError):
        while True:
            yield take()


@contextmanager
def _cleared(waiting: deque[tuple[int, TraceStretch]]) -> Iterator[None]:
    """Let helpers find nothing more to do, whatever happens."""
    try:
        yield
    finally:
        waiting.clear()


def _help(waiting: deque[tuple[int, TraceStretch]], found: dict[int, StretchFound], progress: Progress | None) -> None:
    """Read stretches from the end, as long as there are any."""
    with _cleared(waiting):
        for at, stretch in _taken(waiting.pop):
            gatherer = Gatherer()
            header = read_stretch(stretch, gatherer, progress)
            found[at] = StretchFound(gatherer.found, header)

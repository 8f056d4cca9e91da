"""Files unpacked on the way, and Chrome-trace JSON in pieces of bounded size, whatever state it is in.

The file is cut behind an event's closing brace and each piece is decoded as a typed list. A wrong cut leaves
something open and cannot decode, so another one is tried. A piece that no cut can save is halved until the
broken events stand alone; those are counted and everything around them is kept.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from npuperf.base.errors import InputError
from npuperf.base.files import open_input
from npuperf.base.messages import Message, say, size
from npuperf.readers.log import ReadLog
from npuperf.readers.plain_events import PlainEvents, PlainReader

# -- The bytes of a file: as few of them as tell what it is, or all of them, unpacked on the way.

#: A file's kind and its header show within so many bytes, mostly within the first few.
HEAD_BYTES: Final = 1 << 16
_FEW_BYTES: Final = 1 << 10
_PACKED_BYTES: Final = 1 << 16


def sniff(path: Path, enough: Callable[[bytes], bool]) -> bytes:
    """Return a file's first bytes (unpacked): until they are enough, ``HEAD_BYTES`` or the file ends."""
    head = b""
    with open_unpacked(path) as file:
        while len(head) < HEAD_BYTES and not enough(head) and (block := file.read(_FEW_BYTES)):
            head += block
    return head


class Gunzip:
    """Reads a gzip file piece by piece; of a damaged one it gives everything before the damage."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(wbits=31)
        self.damage: Message | None = None

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, nothing at the end or at the damage."""
        while self.damage is None:
            left = self._unpack.unconsumed_tail or self._unpack.unused_data
            packed = left or self._file.read(min(size, _PACKED_BYTES))
            if self._unpack.eof:  # another member may follow
                if not packed:
                    return b""
                self._unpack = zlib.decompressobj(wbits=31)
            elif not packed:
                self.damage = say("it ends early")
                return self._unpack.flush()
            before = self._unpack.copy()
            try:
                block = self._unpack.decompress(packed, size)
            except zlib.error as error:
                self.damage = say("{error}", error=str(error))
                blocks = []
                with contextlib.suppress(zlib.error):  # byte by byte nothing is lost that comes before a damaged one
                    for i in range(len(packed)):
                        blocks.append(before.decompress(packed[i : i + 1]))
                return b"".join(blocks)
            if block:
                return block
        return b""


class Ahead:
    """Reads a packed file one block ahead, on a thread of its own: unpacking needs no interpreter lock."""

    def __init__(self, file: Gunzip, thread: Executor, size: int) -> None:
        self.file = file
        self._ahead = partial(thread.submit, partial(file.read, size))
        self._next = self._ahead()

    def read(self, size: int) -> bytes:
        """Return the next block, whatever its size; nothing at the end or at the damage."""
        block = self._next.result()
        if block:
            self._next = self._ahead()
        return block


@contextlib.contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO | Gunzip]:
    """Open a file, and unpack it on the way if it is packed; raises InputError when it cannot be read."""
    with open_input(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield Gunzip(file) if packed else file


# -- Events, piece by piece.

#: Small enough that a piece stays in the processor's cache while its columns are taken out one by one.
PIECE_BYTES: Final = 2 << 20
#: No event is larger, bytes: what has no end within so many is damage, and stepped over.
_MOST_EVENT: Final = 32 << 20
#: An event comes within so many bytes, or never: a few bytes may be packed that unpack to anything.
_MOST_BEFORE: Final = 256 << 20
#: What stands before the events is looked at if it is not larger, bytes.
_MOST_HEADER: Final = 8 << 20
#: Bytes that may lie on both sides of a cut: the longest that is looked for.
_SEAM: Final = 1 << 12
#: Damaged events told one by one; the others are counted.
_TOLD: Final = 3
#: Brackets that are looked at for the end of a list.
_BRACKETS: Final = 10_000
_BLANK: Final = b" \t\r\n"
_BETWEEN: Final = _BLANK + b","
GAP: Final = re.compile(rb"\}\s*,\s*\{")
_NAN: Final = re.compile(rb"([:\[,]\s*)-?(?:NaN|nan|Infinity|inf)\b")
#: A group without a description, as some releases of Kineto write it: nothing stands where its text should be.
_UNTOLD: Final = re.compile(rb'("Process Group Description"\s*:)(\s*[,}])')
_HEAD: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_OBJECTS: Final = json.JSONDecoder()
_END: Final = re.compile(rb"\}\s*\]")

#: What decoding raises, of what is nested deeply as well.
DAMAGED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Scalar = int | str | float | bool | None


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that tie layers together, or name a process or thread."""

    connection: Scalar = msgspec.field(default=None, name="connection_id")
    task_type: Scalar = msgspec.field(default=None, name="Task Type")
    label: Scalar = msgspec.field(default=None, name="name")
    labels: Scalar = msgspec.field(default=None, name="labels")
    sort_index: Scalar = None
    stack: Scalar = msgspec.field(default=None, name="Call stack")
    correlation: Scalar = msgspec.field(default=None, name="correlation")
    external: Scalar = msgspec.field(default=None, name="External id")
    stream: Scalar = msgspec.field(default=None, name="stream")
    device: Scalar = msgspec.field(default=None, name="device")
    operation: Scalar = msgspec.field(default=None, name="operation")
    moved: Scalar = msgspec.field(default=None, name="size(B)")
    mhz: Scalar = msgspec.field(default=None, name="MHz")
    bytes: Scalar = msgspec.field(default=None, name="size(Byte)")
    source: Scalar = msgspec.field(default=None, name="src rank")
    target: Scalar = msgspec.field(default=None, name="dst rank")
    count: Scalar = msgspec.field(default=None, name="count")
    dtype: Scalar = msgspec.field(default=None, name="data_type")


class Event(msgspec.Struct, gc=False):
    """An event whose times are text, as msprof and torch_npu write them."""

    ts: str | None = None
    dur: float | None = None
    ph: str = ""
    name: str = ""
    cat: str | None = None
    pid: Scalar = None
    tid: Scalar = None
    id: Scalar = None
    args: Args | None = None


class RawArgs(Args, gc=False):
    """What PyTorch's own traces say of a collective as well, at its kernel and at its record_param_comms.

    Source: saveNcclMeta in torch/csrc/profiler/util.cpp, appendCollectiveArgs in Kineto's output_json.cpp. ``members``
    may be a list, or its text, in which from 30 ranks on most are "...".
    """

    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")  # of torch 2.3 and before
    described: Any = msgspec.field(default=None, name="Process Group Description")
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    first_rank: Any = msgspec.field(default=None, name="Global rank start")
    rank_stride: Any = msgspec.field(default=None, name="Global rank stride")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")
    sequence: Any = msgspec.field(default=None, name="Seq")


class RawEvent(Event, gc=False):
    """An event whose times may be numbers: kept as text, because a float64 loses 250 ns of an epoch."""

    ts: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]
    dur: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]
    args: RawArgs | None = None


_TEXT_TIMES: Final = msgspec.json.Decoder(list[Event])
_ANY_TIMES: Final = msgspec.json.Decoder(list[RawEvent])


def decoded(text: bytes, any_times: bool) -> list[Event]:
    """Decode a list of events, whose times may be numbers or not."""
    decoder: msgspec.json.Decoder[Any] = _ANY_TIMES if any_times else _TEXT_TIMES
    events: list[Event] = decoder.decode(text)
    return events


class FilePieces:
    """Iterate over a file's events, a decoded list per piece; ``header`` holds the other top-level keys.
    ``any_times``: some time was no text, and from there on all are read as they stand.
    """

    def __init__(self, path: Path, log: ReadLog, progress: Callable[[int], None] | None) -> None:
        self.path = path
        self.log = log
        self._name = str(path)
        self.progress = progress
        self.header: dict[str, Any] = {}
        self.any_times = False
        self._offset = 0
        self._damaged: list[int] = []
        self._over = False

    def __iter__(self) -> Iterator[list[Event]]:
        for events in self.read(None):
            assert isinstance(events, list)
            yield events

    def read(self, plain: PlainReader | None) -> Iterator[list[Event] | PlainEvents]:
        """Iterate; pieces without anything odd are read as columns by ``plain``, where there is one."""
        with open_unpacked(self.path) as unpacked, contextlib.ExitStack() as stack:
            file: BinaryIO | Ahead
            if isinstance(unpacked, Gunzip):
                file = Ahead(unpacked, stack.enter_context(ThreadPoolExecutor(1)), PIECE_BYTES)
            else:  # what is not packed is read when it is asked for
                file = unpacked
            rest = self._start(file)
            events: list[Event] | PlainEvents
            while block := self._more(file, len(rest)):
                buffer = rest + block
                found = plain.read(buffer, self.any_times) if plain else None
                if found is not None and not (
                    found.closed and GAP.search(buffer, found.cut)
                ):  # nothing stands behind the list
                    cut, events = found.cut, found
                else:
                    cut, events = self._whole_events(buffer)
                if cut < 0:  # no event ends here: a very large event, or damage
                    cut, events = len(buffer) - len(buffer.lstrip(_BETWEEN)), []
                    if len(buffer) - cut > _MOST_EVENT:
                        cut, events, buffer = self._without_end(file, buffer)
                if events:
                    yield events
                rest = buffer[cut:]
                self._offset += cut
            yield self._last(rest)
        for offset in self._damaged[:_TOLD]:
            self.log.lose(self.path, 1, say("damaged event at byte {offset}", offset=offset))
        others = self._damaged[_TOLD:]
        if others:
            reason = say("damaged events between byte {first} and {last}", first=others[0], last=others[-1])
            self.log.lose(self.path, len(others), reason)

    def _without_end(self, file: BinaryIO | Ahead, buffer: bytes) -> tuple[int, list[Event], bytes]:
        """Return what a large buffer begins with, an event before blanks or before the list's end, and how to go on."""
        body = buffer.strip(_BETWEEN)
        events = self._try(body) if body.endswith(b"}") else None
        if events:
            return len(buffer), events, buffer
        closed = _END.search(buffer)
        events = self._try(buffer[: closed.start() + 1]) if closed else None
        if not events and body.strip(b"]}"):
            self._damaged.append(self._offset)
        return 0, events or [], self._next_gap(file, buffer)

    def _next_gap(self, file: BinaryIO | Ahead, buffer: bytes) -> bytes:
        """Read on to where an event begins behind another one, and return what was read from there on."""
        skipped = len(buffer)
        while block := self._read(file):
            buffer = buffer[-_SEAM:] + block
            gap = GAP.search(buffer)
            if gap is not None:
                self._offset += skipped + len(block) - (len(buffer) - gap.end() + 1)
                return buffer[gap.end() - 1 :]
            skipped += len(block)
            if _endless(file, skipped):
                self.log.warn(
                    say("{path}: no event in {size} from byte {offset} on; the rest of the packed file was not read",
                        path=self._name, size=size(skipped), offset=self._offset)
                )  # fmt: skip
                self._over = True
        self._offset += skipped
        return b""

    def _more(self, file: BinaryIO | Ahead, size: int) -> bytes:
        """Read a block; where no event ended in ``size`` bytes, as many again: else they would be copied with each."""
        blocks, read = [self._read(file)], 0
        while blocks[-1] and (read := read + len(blocks[-1])) < size:
            blocks.append(self._read(file))
        return b"".join(blocks)

    def _read(self, file: BinaryIO | Ahead) -> bytes:
        block = b"" if self._over else file.read(PIECE_BYTES)
        if isinstance(file, Ahead):
            if not block and (damage := file.file.damage):
                self.log.warn(say("{path}: the compressed file is damaged: {why}", path=self._name, why=damage))
        elif self.progress:
            self.progress(len(block))
        return block

    def _start(self, file: BinaryIO | Ahead) -> bytes:
        """Step over what stands before the first event."""
        block = self._read(file).lstrip(b"\xef\xbb\xbf" + _BLANK)
        read = len(block)
        while not block and not _endless(file, read) and (more := self._read(file)):
            read += len(more)
            block = more.lstrip(_BLANK)
        if block.startswith(b"["):
            return block[1:]
        blocks, found = [block], _HEAD.search(block)
        while not found and not _endless(file, read) and (more := self._read(file)):
            read += len(more)
            blocks.append(more)
            block = block[-_SEAM:] + more
            found = _HEAD.search(block)
            if read > _MOST_HEADER:
                blocks.clear()  # nothing is read from them
        if not found:
            what = say("{path}: not a trace: neither a list of events nor an object with traceEvents", path=self._name)
            if _endless(file, read):
                what = say("{path}: not a trace: no event in its first {size}", path=self._name, size=size(read))
            raise InputError(what, hint=say("give a trace_view.json, msprof*.json or a PyTorch trace"))
        whole = b"".join(blocks) if read <= _MOST_HEADER else b""  # of nothing nothing can be read, which is told
        self._keep_header(whole[: len(whole) - len(block) + found.start()] + b'"":0}')
        return block[found.end() :]

    def _keep_header(self, text: bytes) -> None:
        """Keep what stands beside the events, as an object; what cannot be read is told."""
        try:
            value = msgspec.json.decode(_NAN.sub(rb"\1null", text), type=dict[str, Any])
        except DAMAGED:
            self.log.warn(say("{path}: what stands beside the events cannot be read; what it tells is unknown",
                              path=self._name))  # fmt: skip
            return
        self.header |= {k: v for k, v in value.items() if k}

    def _whole_events(self, buffer: bytes) -> tuple[int, list[Event]]:
        """Decode all events that end in ``buffer``; return where the next one starts."""
        end = len(buffer)
        for _ in range(8):
            cut = _last_gap(buffer, end)
            if cut is None:
                return -1, []
            brace, after = cut
            events = self._try(buffer[: brace + 1])
            if events is not None:
                return after, events
            end = brace
        cut = _gap_by_steps(buffer)
        events = self._try(buffer[: cut[0] + 1]) if cut and cut[0] >= 0 else []
        if cut is not None and events is not None:
            return cut[1], events
        cut = _last_gap(buffer, len(buffer))
        assert cut is not None
        return cut[1], self._salvage_all(buffer[: cut[0] + 1])

    def _try(self, body: bytes) -> list[Event] | None:
        text = b"".join((b"[", body.strip(b" \t\r\n,"), b"]"))
        try:
            return self._decode(text)
        except msgspec.ValidationError:
            self.any_times = True
        except DAMAGED:
            pass
        with contextlib.suppress(*DAMAGED):
            return self._decode(text)
        plain, changed = _NAN.subn(rb"\1null", text)  # numbers that JSON does not have
        if b'"Process Group Description"' in text:
            plain, untold = _UNTOLD.subn(rb"\1null\2", plain)
            changed += untold
        with contextlib.suppress(*DAMAGED):
            return self._decode(plain) if changed else None
        return None

    def _decode(self, text: bytes) -> list[Event]:
        return decoded(text, self.any_times)

    def _salvage_all(self, body: bytes) -> list[Event]:
        """Salvage a piece with the decoder that takes any kind of time, so that all its events are of one kind."""
        before, self.any_times = self.any_times, True
        try:
            return self._salvage(body, self._offset)
        finally:
            self.any_times = before

    def _salvage(self, body: bytes, offset: int) -> list[Event]:
        """Decode what can be decoded, halving around the damage; one loss per event that cannot."""
        events = self._try(body)
        if events is not None:
            return events
        found = GAP.search(body, len(body) // 2)
        gap = (found.start(), found.end() - 1) if found else _last_gap(body, len(body))
        if gap is not None:
            brace, after = gap
            return self._salvage(body[: brace + 1], offset) + self._salvage(body[after:], offset + after)
        # A single event, which the closing bracket of the list may follow.
        events = self._try(body[: body.rfind(b"}", 0, body.rfind(b"]") + 1) + 1]) if b"]" in body else None
        if not events and body.strip(b" \t\r\n,[]}"):
            self._damaged.append(offset)
        return events or []

    def _last(self, rest: bytes) -> list[Event]:
        """Decode the tail, with or without its closing bracket and the keys behind it."""
        body = rest.strip()
        for end in _closing_brackets(body):
            events = self._try(body[:end])
            if events is not None:
                tail = body[end + 1 :].strip().lstrip(b",")
                if tail not in (b"", b"}"):
                    self._keep_header(b"{" + tail)
                return events
        events = self._try(body)
        if events is not None:
            if body:
                self.log.warn(
                    say("{path}: the list of events is not closed; the file may be cut short", path=self._name)
                )
            return events
        return self._cut_short(body)

    def _cut_short(self, body: bytes) -> list[Event]:
        """Decode a tail that ends inside an event, as a killed exporter leaves it."""
        cut = _last_gap(body, len(body))
        for _ in range(8):
            if cut is None:
                break
            events = self._try(body[: cut[0] + 1])
            if events is not None:
                rest, before = body[cut[1] :], self.any_times
                behind = map(self._try, _first_objects(rest))
                goes_on = any(event.ph for found in behind for event in found or ())
                self.any_times = before
                if goes_on:  # one is damaged, and sound ones stand behind it, and not just objects inside of it
                    break
                where = self._offset + cut[1]
                self.log.lose(
                    self.path, 1, say("the file ends inside an event that starts at byte {offset}", offset=where)
                )
                return events
            cut = _last_gap(body, cut[0])
        return self._salvage_all(body)


def _endless(file: BinaryIO | Ahead, read: int) -> bool:
    """Tell whether so many bytes without an event are reason to give a packed file up; others end by themselves."""
    return read > _MOST_BEFORE and isinstance(file, Ahead)


def _last_gap(buffer: bytes, end: int) -> tuple[int, int] | None:
    """Find the last ``}, {`` before ``end``: the position of the brace and that of the next event."""
    window, start = _SEAM, end
    while start > 0:
        start = max(end - window, 0)
        for last in deque(GAP.finditer(buffer, start, end), 1):
            return last.start(), last.end() - 1
        window *= 4
    return None


def _gap_by_steps(buffer: bytes) -> tuple[int, int] | None:
    """Find the last gap that is between events and not within one, from the start: in one with many objects most are.

    (-1, -1): there is but one event, behind which none begins. None where something is damaged, or nothing is whole.
    """
    text, at, found = buffer.decode("latin-1"), 0, None  # a character is a byte
    try:
        while True:
            end = _OBJECTS.raw_decode(text, at)[1]
            gap = GAP.match(buffer, end - 1)
            if gap is None:
                behind = buffer[end:].strip()
                return (found or (-1, -1)) if behind in (b"", b",") or behind.startswith(b"]") else None
            found, at = (end - 1, gap.end() - 1), gap.end() - 1
    except (ValueError, RecursionError):
        try:
            msgspec.json.decode(buffer[at:])
        except DAMAGED as error:
            return found if "truncated" in str(error) else None  # it is JSON as far as it goes
        return found


def _first_objects(rest: bytes) -> Iterator[bytes]:
    """Yield the objects behind the first one, each up to where the next begins, the last to the last brace."""
    for gap in GAP.finditer(rest):
        body = rest[gap.end() - 1 :]
        following = GAP.search(body)
        end = following.start() if following else body.rfind(b"}", 0, body.rfind(b"]") + 1 or len(body))
        yield body[: end + 1]


def _closing_brackets(body: bytes) -> Iterator[int]:
    """Yield the positions of the last few ``]`` that follow an event (or an open list), last first."""
    at = len(body)
    found = looked = 0
    while found < 8 and looked < _BRACKETS and (at := body.rfind(b"]", 0, at)) >= 0:
        looked += 1
        before = body[max(0, at - 64) : at].rstrip()
        if before.endswith(b"}") or not before:
            found += 1
            yield at

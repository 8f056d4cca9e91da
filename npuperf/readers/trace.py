"""Chrome-trace JSON (trace_view.json, msprof*.json, Kineto) to columns, in pieces of bounded size.

The file is cut behind an event's closing brace and each piece is decoded as a typed list. A wrong cut leaves
something open and cannot decode, so another one is tried. A piece that no cut can save is halved until the
broken events stand alone; those are counted and everything around them is kept.
"""

from __future__ import annotations

import contextlib
import gc
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.errors import InputError
from npuperf.model.host import is_user_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.profile import ReadLog
from npuperf.readers.join import match
from npuperf.readers.table import labels

#: Small enough that a piece stays in the processor's cache while its columns are taken out one by one.
PIECE_BYTES: Final = 1 << 20
_GAP: Final = re.compile(rb"\}\s*,\s*\{")
_NAN: Final = re.compile(rb"([:\[,]\s*)-?(?:NaN|nan|Infinity|inf)\b")
_HEAD: Final = re.compile(rb'"traceEvents"\s*:\s*\[')

_Scalar = int | str | float | bool | None


class _Args(msgspec.Struct, gc=False):
    connection: _Scalar = msgspec.field(default=None, name="connection_id")
    task_type: _Scalar = msgspec.field(default=None, name="Task Type")
    label: _Scalar = msgspec.field(default=None, name="name")
    labels: _Scalar = msgspec.field(default=None, name="labels")
    stack: _Scalar = msgspec.field(default=None, name="Call stack")
    correlation: _Scalar = msgspec.field(default=None, name="correlation")
    external: _Scalar = msgspec.field(default=None, name="External id")
    stream: _Scalar = msgspec.field(default=None, name="stream")
    device: _Scalar = msgspec.field(default=None, name="device")


class _Event(msgspec.Struct, gc=False):
    """An event whose times are text, as msprof and torch_npu write them."""

    ts: str | None = None
    dur: float | None = None
    ph: str = ""
    name: str = ""
    cat: str | None = None
    pid: _Scalar = None
    tid: _Scalar = None
    id: _Scalar = None
    args: _Args | None = None


class _RawEvent(_Event, gc=False):
    """An event whose times may be numbers: kept as text, because a float64 loses 250 ns of an epoch."""

    ts: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]
    dur: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]


_TEXT_TIMES: Final = msgspec.json.Decoder(list[_Event])
_ANY_TIMES: Final = msgspec.json.Decoder(list[_RawEvent])
_PIECES_TO_JOIN: Final = 64
#: Flow categories that tie layers together; the others repeat what events say themselves.
_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "fwdbwd"})
_ARG_INTS: Final = ("connection", "correlation", "external", "stream", "device")
#: Traces whose times are text are Ascend's: they have no other integers of use.
_ASCEND_INTS: Final = ("connection",)
_NO_ARGS: Final = _Args()


@dataclass(frozen=True, slots=True)
class Slices:
    """Complete events (``ph`` X): ns, process, thread, and the arguments that tie layers together."""

    start: I64
    end: I64
    pid: I64
    tid: I64
    connection: I64
    correlation: I64
    external: I64
    stream: I64
    device: I64
    name: Labels
    cat: Labels
    task_type: Labels
    stack: Labels

    def __len__(self) -> int:
        return len(self.start)

    def filter(self, mask: Mask) -> Slices:
        """Return the events where ``mask`` holds."""
        return self.take(np.flatnonzero(mask))

    def by_thread(self) -> Slices:
        """Return the events ordered by thread, then start, the longer first."""
        return self.take(np.lexsort((-self.end, self.start, self.tid)))

    def take(self, index: I64) -> Slices:
        """Return the events at ``index``, in that order."""
        ints = {name: getattr(self, name)[index] for name in _SLICE_INTS}
        return Slices(**ints, **{name: getattr(self, name).take(index) for name in _SLICE_TEXTS})


_SLICE_INTS: Final = (
    "start", "end", "pid", "tid", "connection", "correlation", "external", "stream", "device",
)  # fmt: skip
_SLICE_TEXTS: Final = ("name", "cat", "task_type", "stack")


@dataclass(frozen=True, slots=True)
class Flows:
    """Arrows between layers: one start and one finish per row, matched by equal id within a category."""

    cat: Labels
    id: I64
    start: Mask
    pid: I64
    tid: I64
    time: I64

    def link(self, category: str) -> Links:
        """Match every finish of ``category`` with its start; a start may have several finishes."""
        here = self.cat.flag([name == category for name in self.cat.names])
        s, f = np.flatnonzero(here & self.start), np.flatnonzero(here & ~self.start)
        which = match(self.id[f], self.id[s])
        f, s = f[which >= 0], s[which[which >= 0]]
        return Links(self.tid[s], self.time[s], self.pid[f], self.tid[f], self.time[f])


@dataclass(frozen=True, slots=True)
class Links:
    """Matched arrows: thread and time of the start, process, thread and time of the finish."""

    from_tid: I64
    from_time: I64
    to_pid: I64
    to_tid: I64
    to_time: I64


@dataclass(slots=True)
class Trace:
    """A whole timeline. ``processes`` and ``process_labels`` by pid, ``threads`` by (pid, tid)."""

    slices: Slices
    flows: Flows
    processes: dict[int, str] = field(default_factory=dict)
    process_labels: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)

    def pids(self, *names: str) -> list[int]:
        """Return the processes with one of these names."""
        return [pid for pid, name in self.processes.items() if name in names]


def read_trace(paths: Sequence[Path], log: ReadLog, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one timeline, possibly split over several files.

    ``progress`` gets the number of bytes just read. Raises InputError when no event can be read.
    """
    builder = _Builder()
    header: dict[str, Any] = {}
    with _no_gc():
        for path in paths:
            pieces = _Pieces(path, log, progress)
            for events in pieces:
                untimed = builder.add(events)
                if untimed:
                    log.lose(path, untimed, "events without a readable time")
            header |= pieces.header
    if not builder.events:
        raise InputError(f"{paths[0]}: no trace event could be read", hint="export the profile again")
    return builder.trace(header)


@contextmanager
def _no_gc() -> Iterator[None]:
    """Hold the garbage collector: it would walk millions of fresh events for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Gunzip:
    """Reads a gzip file piece by piece; of a damaged one it gives everything before the damage."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(wbits=31)
        self.damage: str | None = None

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, nothing at the end or at the damage."""
        while self.damage is None:
            packed = self._unpack.unconsumed_tail or self._unpack.unused_data or self._file.read(1 << 16)
            if self._unpack.eof:  # another member may follow
                if not packed:
                    return b""
                self._unpack = zlib.decompressobj(wbits=31)
            elif not packed:
                self.damage = "it ends early"
                return self._unpack.flush()
            before = self._unpack.copy()
            try:
                block = self._unpack.decompress(packed, size)
            except zlib.error as error:
                self.damage = str(error)
                return _up_to_damage(before, packed)
            if block:
                return block
        return b""


def _up_to_damage(unpack: Any, packed: bytes) -> bytes:
    """Decompress byte by byte, to lose nothing that comes before a damaged one."""
    block = b""
    with contextlib.suppress(zlib.error):
        for i in range(len(packed)):
            block += unpack.decompress(packed[i : i + 1])
    return block


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO | _Gunzip]:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield _Gunzip(file) if packed else file
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


class _Pieces:
    """Iterate over a file's events, a decoded list per piece; ``header`` holds the other top-level keys."""

    def __init__(self, path: Path, log: ReadLog, progress: Callable[[int], None] | None) -> None:
        self.path = path
        self.log = log
        self.progress = progress
        self.header: dict[str, Any] = {}
        self._decode = _TEXT_TIMES.decode
        self._offset = 0

    def __iter__(self) -> Iterator[list[_Event]]:
        with _open(self.path) as file:
            rest = self._start(file)
            while block := self._read(file):
                buffer = rest + block
                cut, events = self._whole_events(buffer)
                if cut < 0:  # no event ends here: a very large event, or damage
                    rest = buffer
                    continue
                yield events
                rest = buffer[cut:]
                self._offset += cut
            yield self._last(rest)

    def _read(self, file: BinaryIO | _Gunzip) -> bytes:
        block = file.read(PIECE_BYTES)
        if isinstance(file, _Gunzip):
            if not block and file.damage:
                self.log.warn(f"{self.path}: the compressed file is damaged: {file.damage}")
        elif self.progress:
            self.progress(len(block))
        return block

    def _start(self, file: BinaryIO | _Gunzip) -> bytes:
        """Step over what stands before the first event."""
        block = self._read(file).lstrip(b"\xef\xbb\xbf \t\r\n")
        if block.startswith(b"["):
            return block[1:]
        found = _HEAD.search(block)
        while not found and (more := self._read(file)):
            block += more
            found = _HEAD.search(block)
        if not found:
            raise InputError(
                f"{self.path}: not a trace: neither a list of events nor an object with traceEvents",
                hint="give a trace_view.json, msprof*.json or a PyTorch trace",
            )
        self._keep_header(block[: found.start()] + b'"":0}')
        return block[found.end() :]

    def _keep_header(self, text: bytes) -> None:
        try:
            value = msgspec.json.decode(_NAN.sub(rb"\1null", text))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        self.header |= {k: v for k, v in value.items() if k}

    def _whole_events(self, buffer: bytes) -> tuple[int, list[_Event]]:
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
        cut = _last_gap(buffer, len(buffer))
        assert cut is not None
        return cut[1], self._salvage_all(buffer[: cut[0] + 1])

    def _try(self, body: bytes) -> list[_Event] | None:
        text = b"[" + body.strip(b" \t\r\n,") + b"]"
        try:
            return self._decode(text)
        except msgspec.ValidationError:
            self._decode = _ANY_TIMES.decode  # type: ignore[assignment]
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        try:
            return self._decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            plain, changed = _NAN.subn(rb"\1null", text)
        try:
            return self._decode(plain) if changed else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _salvage_all(self, body: bytes) -> list[_Event]:
        """Salvage a piece with the decoder that takes any kind of time, so that all its events are of one kind."""
        decode, self._decode = self._decode, _ANY_TIMES.decode  # type: ignore[assignment]
        try:
            return self._salvage(body, self._offset)
        finally:
            self._decode = decode

    def _salvage(self, body: bytes, offset: int) -> list[_Event]:
        """Decode what can be decoded, halving around the damage; one loss per event that cannot."""
        events = self._try(body)
        if events is not None:
            return events
        gap = _middle_gap(body)
        if gap is None:
            return self._lone(body, offset)
        brace, after = gap
        return self._salvage(body[: brace + 1], offset) + self._salvage(body[after:], offset + after)

    def _lone(self, body: bytes, offset: int) -> list[_Event]:
        """Decode a single event, which the closing bracket of the list may follow; else count it as lost."""
        events = self._try(body[: body.rfind(b"}", 0, body.rfind(b"]") + 1) + 1]) if b"]" in body else None
        if events:
            return events
        if body.strip(b" \t\r\n,[]}"):
            self.log.lose(self.path, 1, f"damaged event at byte {offset}")
        return []

    def _last(self, rest: bytes) -> list[_Event]:
        """Decode the tail, with or without its closing bracket and the keys behind it."""
        body = rest.strip()
        for end in _closing_brackets(body):
            events = self._try(body[:end])
            if events is not None:
                tail = body[end + 1 :].strip().lstrip(b",")
                if tail.endswith(b"}") and tail != b"}":
                    self._keep_header(b"{" + tail)
                return events
        events = self._try(body)
        if events is not None:
            if body:
                self.log.warn(f"{self.path}: the list of events is not closed; the file may be cut short")
            return events
        return self._cut_short(body)

    def _cut_short(self, body: bytes) -> list[_Event]:
        """Decode a tail that ends inside an event, as a killed exporter leaves it."""
        cut = _last_gap(body, len(body))
        for _ in range(8):
            if cut is None:
                break
            events = self._try(body[: cut[0] + 1])
            if events is not None:
                where = self._offset + cut[1]
                self.log.lose(self.path, 1, f"the file ends inside an event that starts at byte {where}")
                return events
            cut = _last_gap(body, cut[0])
        return self._salvage_all(body)


def _last_gap(buffer: bytes, end: int) -> tuple[int, int] | None:
    """Find the last ``}, {`` before ``end``: the position of the brace and that of the next event."""
    at = end
    while (brace := buffer.rfind(b"}", 0, at)) >= 0:
        found = _GAP.match(buffer, brace, end)
        if found:
            return brace, found.end() - 1
        at = brace
        if end - brace > PIECE_BYTES:
            break
    return None


def _middle_gap(body: bytes) -> tuple[int, int] | None:
    """Find the ``}, {`` nearest behind the middle, else before it."""
    found = _GAP.search(body, len(body) // 2)
    if found is None:
        return _last_gap(body, len(body))
    return found.start(), found.end() - 1


def _closing_brackets(body: bytes) -> Iterator[int]:
    """Yield the positions of the last few ``]`` that follow an event (or an open list), last first."""
    at = len(body)
    found = 0
    while found < 8 and (at := body.rfind(b"]", 0, at)) >= 0:
        before = body[max(0, at - 64) : at].rstrip()
        if before.endswith(b"}") or not before:
            found += 1
            yield at


class _Builder:
    """Collects decoded events as columns, piece by piece."""

    def __init__(self) -> None:
        self.events = 0
        self._slices: list[dict[str, Any]] = []
        self._flows: list[dict[str, Any]] = []
        self._meta: list[_Event] = []

    def add(self, events: list[_Event]) -> int:
        """Take what matters of one piece; return how many events had no readable time.

        Counters and instants are left behind.
        """
        self.events += len(events)
        boxes = np.empty(len(events), object)
        boxes[:] = events
        phase = _labels(_column(events, "ph"))
        untimed = 0
        for code, ph in enumerate(phase.names):
            if ph not in ("X", "s", "f", "M"):
                continue
            chosen = boxes[phase.codes == code].tolist()
            if ph == "X":
                untimed += self._add_slices(chosen)
            elif ph == "M":
                self._meta += chosen
            else:
                self._add_flows(chosen, ph == "s")
        return untimed

    def _add_slices(self, events: list[_Event]) -> int:
        args = [_NO_ARGS if a is None else a for a in _column(events, "args")]
        wanted = _ARG_INTS if isinstance(events[0], _RawEvent) else _ASCEND_INTS
        start, length = _ns(_column(events, "ts")), _dur_ns(_column(events, "dur"))
        part: dict[str, Any] = {"start": start, "end": start + np.maximum(length, 0)}
        part |= {name: _ints(_column(events, name)) for name in ("pid", "tid")}
        part |= {name: _ints(_column(args, name)) if name in wanted else _nothing(len(args)) for name in _ARG_INTS}
        part |= {name: _labels(_column(events, name)) for name in ("name", "cat")}
        part |= {name: _labels(_column(args, name)) for name in ("task_type", "stack")}
        timed = (start >= 0) & (length >= 0)
        keep = _kept(part["cat"], part["name"]) & timed
        if not keep.all():
            part = {k: v.filter(keep) if isinstance(v, Labels) else v[keep] for k, v in part.items()}
        _append(self._slices, part)
        return int(np.count_nonzero(~timed))

    def _add_flows(self, events: list[_Event], start: bool) -> None:
        events = [e for e in events if e.cat in _ARROWS]
        if not events:
            return
        part = {
            "cat": _labels(_column(events, "cat")),
            "id": _ids(_column(events, "id")),
            "start": np.full(len(events), start),
            "pid": _ints(_column(events, "pid")),
            "tid": _ints(_column(events, "tid")),
            "time": _ns(_column(events, "ts")),
        }
        _append(self._flows, part)

    def trace(self, header: dict[str, Any]) -> Trace:
        """Assemble everything."""
        base = _base(header)
        trace = Trace(self._all_slices(base), self._all_flows(base), header=header)
        for event in self._meta:
            pid, tid = _int(event.pid), _int(event.tid)
            args = event.args or _NO_ARGS
            if event.name == "process_name" and args.label is not None:
                trace.processes[pid] = str(args.label)
            elif event.name == "process_labels" and args.labels is not None:
                trace.process_labels[pid] = str(args.labels)
            elif event.name == "thread_name" and args.label is not None:
                trace.threads[pid, tid] = str(args.label)
        return trace

    def _all_slices(self, base: int) -> Slices:
        columns: dict[str, Any] = {name: _concat(_pop(self._slices, name)) for name in _SLICE_INTS}
        for name in ("start", "end"):
            columns[name] += base
        columns |= {name: Labels.concat(_pop(self._slices, name)) for name in _SLICE_TEXTS}
        return Slices(**columns)

    def _all_flows(self, base: int) -> Flows:
        columns = {name: _concat(_pop(self._flows, name)) for name in ("start", "pid", "tid", "time")}
        columns["time"] += base
        cat = Labels.concat(_pop(self._flows, "cat"))
        return Flows(cat=cat, id=_all_ids(_pop(self._flows, "id")), **columns)


def _append(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a piece's columns; every so often the last pieces become one.

    Many small arrays would stay in the process's heap when they are freed; large ones go back to the system.
    """
    parts.append(part)
    small = [p for p in parts if "pieces" not in p]
    if len(small) < _PIECES_TO_JOIN:
        return
    del parts[-len(small) :]
    joined = {name: _join([p[name] for p in small]) for name in part}
    parts.append(joined | {"pieces": len(small)})


def _join(columns: list[Any]) -> Any:
    if isinstance(columns[0], Labels):
        return Labels.concat(columns)
    if isinstance(columns[0], pa.Array):
        kinds = {c.type for c in columns}
        return pa.concat_arrays(columns if len(kinds) == 1 else [c.cast(pa.string()) for c in columns])
    return _concat(columns)


def _column(items: Sequence[Any], name: str) -> list[Any]:
    """Return one attribute of many objects, at the speed of C."""
    return list(map(attrgetter(name), items))


def _pop(parts: list[dict[str, Any]], name: str) -> list[Any]:
    """Take a column out of all parts, so that its pieces can be freed once they are joined."""
    return [part.pop(name) for part in parts]


def _base(header: dict[str, Any]) -> int:
    """Newer Kineto traces count from a base time, in epoch ns."""
    base = header.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) else 0


def _concat(parts: list[Any]) -> Any:
    """Join columns; those that hold one repeated value everywhere stay a view of it."""
    if not parts:
        return np.empty(0, np.int64)
    if all(p.strides == (0,) for p in parts):
        return np.broadcast_to(parts[0].base if parts[0].base is not None else parts[0], sum(map(len, parts)))
    return np.concatenate(parts)


def _ids(values: list[Any]) -> pa.Array:
    """Convert flow ids: whole numbers where they fit, else text (some exporters use more than 64 bits)."""
    try:
        return pa.array(list(map(int, values)), pa.int64())
    except (pa.ArrowInvalid, OverflowError, ValueError, TypeError):
        return pa.array([str(v) for v in values], pa.string())


def _all_ids(parts: list[pa.Array]) -> I64:
    """Number the ids so that equal ids get equal numbers."""
    if all(p.type == pa.int64() for p in parts):
        return np.asarray(_concat([pc.fill_null(p, -1).to_numpy(zero_copy_only=False) for p in parts]), np.int64)
    texts = pa.chunked_array([p.cast(pa.string()) for p in parts], pa.string())
    return np.asarray(texts.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)


def _kept(cat: Labels, name: Labels) -> Mask:
    """Leave out Python functions of libraries: they are most of a trace with stacks, and lead nowhere."""
    python = cat.flag([c == "python_function" for c in cat.names])
    if not python.any():
        return np.ones(len(cat), np.bool_)
    return ~python | name.flag([is_user_frame(n) for n in name.names])


def _nothing(size: int) -> I64:
    """Return a column without values, that takes no memory."""
    return np.broadcast_to(np.int64(-1), size)


def _labels(values: list[Any]) -> Labels:
    if not values or (values[0] is None and values.count(None) == len(values)):
        return Labels.missing(len(values))
    try:
        array = pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        array = pa.array([None if v is None else str(v) for v in values], pa.string())
    return labels(array)


def _ints(values: list[Any]) -> I64:
    """Convert to integers; anything else is -1 (Kineto has processes called "Spans")."""
    if values[0] is None and values.count(None) == len(values):
        return _nothing(len(values))
    try:
        array = pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array([_int(v) for v in values], pa.int64())
    return np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False), np.int64)


def _int(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 1 << 63 else -1


def _ns(values: Sequence[Any]) -> I64:
    """Convert µs (text or raw JSON) to exact ns; unreadable times become -1."""
    texts = _texts(values)
    fast = _ns_of_equal_length(texts)
    if fast is not None:
        return fast
    try:
        exact = texts.cast(pa.decimal128(30, 6))
    except pa.ArrowInvalid:
        plain = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d{1,20}(\.\d+)?$"), False)
        digits = pc.extract_regex(pc.if_else(plain, texts, None), r"^(?P<n>-?\d{1,20}(?:\.\d{1,6})?)")
        exact = pc.struct_field(digits, "n").cast(pa.decimal128(30, 6))
    whole = pc.round(pc.multiply(exact, pa.scalar(1000, pa.decimal128(7, 0))), ndigits=0)
    return np.asarray(pc.fill_null(whole.cast(pa.int64(), safe=False), -1).to_numpy(), np.int64)


def _ns_of_equal_length(texts: pa.Array) -> I64 | None:
    """Convert times that all look like ``1736413971558972.912``, as exporters write them: digits by position."""
    if texts.null_count or not len(texts):
        return None
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    width = int(offsets[1] - offsets[0])
    if not 5 <= width <= 20 or (np.diff(offsets) != width).any():
        return None
    characters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)
    digits = np.delete(characters, width - 4, axis=1) - np.uint8(ord("0"))
    if (characters[:, width - 4] != ord(".")).any() or (digits > 9).any():
        return None
    ns = np.zeros(len(texts), np.int64)
    for place in range(width - 1):
        ns *= 10
        ns += digits[:, place]
    return ns


def _dur_ns(values: Sequence[Any]) -> I64:
    """Convert durations in µs to ns; JSON floats are exact enough for anything shorter than a month."""
    if values and isinstance(values[0], msgspec.Raw):
        return _ns(values)
    array = np.array(values, np.float64)
    return np.asarray(np.rint(np.where(np.isnan(array), -0.001, array) * 1000), np.int64)


def _texts(values: Sequence[Any]) -> pa.Array:
    if not values or not isinstance(values[0], msgspec.Raw):
        return pc.utf8_trim_whitespace(pa.array(values, pa.string()))
    raw = list(map(bytes, values))
    try:
        text = pa.array(raw, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: no time, but no reason to stop either
        text = pa.array([r.decode(errors="replace") for r in raw], pa.string())
    text = pc.utf8_trim(text, '" \t')
    return pc.if_else(pc.equal(text, "null"), None, text)

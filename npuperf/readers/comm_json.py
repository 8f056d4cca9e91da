"""communication.json: the exporter's sums over every operation, in the layout of torch_npu or of msprof.

The file is large where many ranks talk much, so it is decoded by type, section by section. What a damaged file still
holds whole is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct, field

from npuperf.files import read_input
from npuperf.messages import say, say_n
from npuperf.model.communication import Bandwidth, Communication, VendorTimes
from npuperf.model.labels import I64, Labels
from npuperf.readers.cells import nanoseconds
from npuperf.readers.comm_names import operations
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import DAMAGED
from npuperf.units import NS_PER_MS, NS_PER_US

#: The exporter's own sums over all operations.
TOTAL: Final = "Total Op Info"
_BYTES_PER_MB: Final = 1_000_000
#: Longer than a year in ms, more than an exabyte in MB, beyond the year 2096 in ns: damage.
_MOST_MS, _MOST_MB, _LATEST = 4e10, 1e12, 4 * 10**18
_NOT_JSON: Final = re.compile(rb"(?<=[:\[,\s])-?(?:NaN|Infinity)(?=[\s,\]}])")
_KEY: Final = re.compile(
    rb'"(?:(?P<layer>step\s*\d*|p2p|collective)"\s*:\s*\{'
    rb'|(?P<op>[^"]+)"\s*:\s*(?P<object>\{\s*"Communication \w+ Info"))'
)
_BRACE: Final = re.compile(rb"[{}]")
_STEP: Final = re.compile(r"step\s*(\d{1,18})?")
_SECTIONS: Final = ("p2p", "collective")


class _Times(msgspec.Struct, gc=False):
    start: Raw = msgspec.field(name="Start Timestamp(us)", default=Raw(b"null"))
    elapse: Any = msgspec.field(name="Elapse Time(ms)", default=None)
    transit: Any = msgspec.field(name="Transit Time(ms)", default=None)
    wait: Any = msgspec.field(name="Wait Time(ms)", default=None)
    synchronization: Any = msgspec.field(name="Synchronization Time(ms)", default=None)
    idle: Any = msgspec.field(name="Idle Time(ms)", default=None)


class _Transport(msgspec.Struct, gc=False):
    size: Any = msgspec.field(name="Transit Size(MB)", default=None)
    time: Any = msgspec.field(name="Transit Time(ms)", default=None)
    packets: Any = msgspec.field(name="Size Distribution", default=None)


class _Op(msgspec.Struct, gc=False):
    times: _Times = msgspec.field(name="Communication Time Info", default_factory=_Times)
    transports: dict[str, _Transport] = msgspec.field(name="Communication Bandwidth Info", default_factory=dict)


_OP: Final = msgspec.json.Decoder(_Op)
_OPS: Final = msgspec.json.Decoder(dict[str, _Op])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


def _float(value: object) -> float:
    """Return a number that is written as text, -1 for anything else."""
    try:
        return float(value) if isinstance(value, str) else -1.0
    except ValueError:
        return -1.0


class _Columns(Struct):
    """What was decoded so far; ``cells`` and ``ops``: how much was unreadable."""

    names: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    p2p: list[bool] = field(default_factory=list)
    times: list[I64] = field(default_factory=list)
    rows: list[tuple[int, str, int, int, int, int]] = field(default_factory=list)
    cells: int = 0
    ops: int = 0

    def add(self, step: int, section: str, ops: dict[str, _Op]) -> None:
        """Take over the operations of one section."""
        chosen = {name: op for name, op in ops.items() if name != TOTAL}
        if not chosen:
            return
        for at, op in enumerate(chosen.values(), len(self.names)):
            self._transports(at, op.transports)
        times = [op.times for op in chosen.values()]
        parts = ("elapse", "transit", "wait", "synchronization", "idle")
        columns = [[self.ns(getattr(t, part)) for t in times] for part in parts]
        self.times.append(np.array([self._starts([t.start for t in times]), *columns], np.int64))
        self.names += chosen
        self.steps += [step] * len(chosen)
        self.p2p += [section == "p2p"] * len(chosen)

    def number(self, value: object, most: float) -> float | None:
        """Return a number that can be one; what is there and cannot is counted."""
        if type(value) is float or type(value) is int:  # nearly all are
            found = value
        elif value is None or value == "N/A":
            return None
        else:
            found = _float(value)
        if 0 <= found <= most:
            return found
        self.cells += 1
        return None

    def ns(self, value: object) -> int:
        """Return milliseconds as nanoseconds, -1 unknown."""
        found = self.number(value, _MOST_MS)
        return -1 if found is None else round(found * NS_PER_MS)

    def bytes(self, value: object) -> int:
        """Return megabytes (10^6) as bytes, -1 unknown."""
        found = self.number(value, _MOST_MB)
        return -1 if found is None else round(found * _BYTES_PER_MB)

    def _starts(self, raw: list[Raw]) -> I64:
        """Return exact times, -1 unknown."""
        exact = nanoseconds(raw).copy()
        for i in np.flatnonzero((exact <= 0) | (exact > _LATEST)).tolist():
            text = bytes(raw[i]).strip(b'" \t').decode(errors="replace")
            found = self.number(None if text in ("null", "N/A", "") else text, _LATEST / NS_PER_US)
            exact[i] = -1 if found is None else round(found * NS_PER_US)
        return exact

    def _transports(self, op: int, found: dict[str, _Transport]) -> None:
        """Add a row per transport and packet size. SDMA is the sum of the others, unless it stands alone."""
        before = len(self.rows)
        for name, transport in found.items():
            if name != "SDMA":
                self.rows += self._packets(op, name, transport)
        if len(self.rows) == before and "SDMA" in found:
            self.rows += self._packets(op, "SDMA", found["SDMA"])

    def _packets(self, op: int, name: str, transport: _Transport) -> Iterator[tuple[int, str, int, int, int, int]]:
        any_ = False
        for packet, value in transport.packets.items() if isinstance(transport.packets, dict) else ():
            if not isinstance(value, list) or len(value) != 2:
                self.cells += 1
                continue
            size, count, ns = self.bytes(packet), self.number(value[0], 1e15), self.ns(value[1])
            if size > 0 and count and ns >= 0:
                any_ = True
                yield op, name, round(size * count), ns, size, round(count)
        size = 0 if any_ else self.bytes(transport.size)
        if size > 0:
            yield op, name, size, max(self.ns(transport.time), 0), -1, -1


def read_communication_json(path: Path, log: ReadLog) -> Communication:
    """Read operations, what they moved and the exporter's own split of their time.

    Where a start or a length is not readable, it is -1. Raises InputError when the file cannot be opened.
    """
    data = read_input(path).removeprefix(b"\xef\xbb\xbf")
    found = _Columns()
    try:
        _decode(data, found)
    except DAMAGED as error:
        found = _Columns()
        repaired, found.cells = _NOT_JSON.subn(b"null", data)
        if not found.cells or not _decoded(repaired, found):
            cells = found.cells
            found = _Columns(cells=cells)
            _salvage(repaired, found)
            log.warn(say_n("{path}: damaged or cut short ({why}); {n} whole operation was kept, the others are lost",
                           "{path}: damaged or cut short ({why}); {n} whole operations were kept, the others are lost",
                           len(found.names), path=str(path), why=str(error)))  # fmt: skip
    _report(path, found, log)
    return _communication(found)


def _report(path: Path, found: _Columns, log: ReadLog) -> None:
    if found.ops:
        log.lose(path, found.ops, say("operations that are damaged or cut short"))
    if found.cells:
        log.lose(path, found.cells, say("cells without a usable number; the other cells of their operations are used"))


def _decoded(data: bytes, found: _Columns) -> bool:
    try:
        _decode(data, found)
    except DAMAGED:
        return False
    return True


def _decode(data: bytes | Raw, found: _Columns) -> None:
    """Decode a sound file: step → p2p or collective → operation, or the operations alone."""
    for key, value in _OBJECT.decode(data).items():
        if _STEP.fullmatch(key) or key in _SECTIONS:
            sections = {key: value} if key in _SECTIONS else _OBJECT.decode(value)
            for section, ops in sections.items():
                _section(found, step_number(key), section, ops)
        elif key != TOTAL:
            _one(found, -1, "", key, value)


def _section(found: _Columns, step: int, section: str, value: Raw) -> None:
    try:
        found.add(step, section, _OPS.decode(value))
    except DAMAGED:  # something in it is not of the kind it should be
        try:
            ops = _OBJECT.decode(value)
        except DAMAGED:
            found.ops += 1
            return
        for name, op in ops.items():
            _one(found, step, section, name, op)


def _one(found: _Columns, step: int, section: str, name: str, value: Raw | bytes) -> None:
    if name == TOTAL:
        return
    try:
        op = _OP.decode(value)
    except DAMAGED:
        found.ops += 1
    else:
        found.add(step, section, {name: op})


def _salvage(data: bytes, found: _Columns) -> None:
    """Decode the whole operations of a damaged file, one by one."""
    for step, section, name, value in objects_in(data, _KEY):
        _one(found, step, section, name, value)


def objects_in(data: bytes, keys: re.Pattern[bytes]) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield step, section, name and text of the objects in a damaged file.

    ``keys`` finds their names, with ``object`` where each begins, and the names of steps and sections as ``layer``.
    """
    step, section = -1, ""
    found = list(keys.finditer(data))
    for key, following in zip(found, [*(k.start() for k in found), len(data)][1:], strict=True):
        if key["layer"] is None:
            yield step, section, key["op"].decode(errors="replace"), _balanced(data[key.start("object") : following])
        elif (layer := key["layer"].decode()) in _SECTIONS:
            section = layer
        else:
            step = step_number(layer)


def _balanced(data: bytes) -> bytes:
    """Return the object that the bytes begin with; the texts in it have no braces."""
    depth = 0
    for brace in _BRACE.finditer(data):
        depth += 1 if brace.group() == b"{" else -1
        if depth == 0:
            return data[: brace.end()]
    return data


def step_number(key: str) -> int:
    """Return 13 for step13, -1 for a step without a number."""
    found = _STEP.fullmatch(key)
    return int(found.group(1)) if found and found.group(1) else -1


def _communication(found: _Columns) -> Communication:
    none = np.empty((6, 0), np.int64)
    start, elapse, *split = np.concatenate([none, *found.times], axis=1)
    known = (start > 0) & (elapse >= 0)
    ops = operations(
        Labels.of([*found.names]),
        np.where(known, start, -1),
        np.where(known, start + elapse, -1),
        step=np.array(found.steps, np.int64),
        p2p=np.array(found.p2p, np.bool_),
    )
    recorded = np.flatnonzero(np.any(np.array(split) >= 0, axis=0))
    vendor = VendorTimes(recorded, *(part[recorded] for part in split))
    return Communication(operations=ops, bandwidth=_bandwidth(found.rows), vendor=vendor)


def _bandwidth(rows: list[tuple[int, str, int, int, int, int]]) -> Bandwidth:
    if not rows:
        return Bandwidth.empty()
    op, transport, *numbers = zip(*rows, strict=True)
    bytes_, ns, packet, count = (np.array(column, np.int64) for column in numbers)
    return Bandwidth(np.array(op, np.int64), Labels.of([*transport]), bytes_, ns, packet, count)

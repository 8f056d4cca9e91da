"""communication.json: the exporter's sums over every operation, in the layout of torch_npu or of msprof.

The file is large where many ranks talk much, so it is decoded by type, section by section. What a damaged file still
holds whole is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.files import read_input
from npuperf.base.messages import say, say_n
from npuperf.base.units import NS_PER_MS, NS_PER_US
from npuperf.model.communication import Bandwidth, Communication, LinkUse, Operations, VendorTimes
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels
from npuperf.readers.cells import nanoseconds
from npuperf.readers.comm_groups import POINT_TO_POINT, GroupBook, operations, type_of
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import DAMAGED

#: The exporter's own sums over all operations.
TOTAL: Final = "Total Op Info"
BYTES_PER_MB: Final = 1_000_000
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
            try:
                found = float(value) if isinstance(value, str) else -1.0
            except ValueError:
                found = -1.0
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
        return -1 if found is None else round(found * BYTES_PER_MB)

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
        data, cells = _NOT_JSON.subn(b"null", data)
        found, whole = _Columns(cells=cells), bool(cells)
        if whole:
            try:
                _decode(data, found)
            except DAMAGED:
                found, whole = _Columns(cells=cells), False
        if not whole:
            for step, section, name, value in objects_in(data, _KEY):
                _one(found, step, section, name, value)
            log.warn(say_n("{path}: damaged or cut short ({why}); {n} whole operation was kept, the others are lost",
                           "{path}: damaged or cut short ({why}); {n} whole operations were kept, the others are lost",
                           len(found.names), path=str(path), why=str(error)))  # fmt: skip
    _tell_lost(path, found.ops, found.cells, log)
    return _communication(found)


def read_cluster_communication(path: Path, log: ReadLog) -> dict[int, Communication]:
    """Read cluster_communication.json: what communication.json has, of every rank.

    The cluster tool of msprof-analyze files it by ranks of a group → step → operation@group → rank. Raises InputError
    when the file cannot be opened, or is no such file.
    """
    data = read_input(path).removeprefix(b"\xef\xbb\xbf")
    ranks: dict[int, _Columns] = {}
    lost = 0
    try:
        for steps in _OBJECT.decode(data).values():
            for step, ops in _OBJECT.decode(steps).items():
                for name, value in _OBJECT.decode(ops).items():
                    if name.partition("@")[0] == TOTAL:
                        continue
                    try:
                        of_ranks = _OPS.decode(value)
                    except DAMAGED:
                        lost += 1
                        continue
                    for rank, op in of_ranks.items():
                        if rank.isdecimal():
                            ranks.setdefault(int(rank), _Columns()).add(step_number(step), "", {name: op})
    except DAMAGED as error:
        raise InputError(say("{path}: damaged or cut short ({why})", path=str(path), why=str(error))) from error
    _tell_lost(path, lost, sum(found.cells for found in ranks.values()), log)
    return {rank: _communication(found) for rank, found in ranks.items()}


def _tell_lost(path: Path, ops: int, cells: int, log: ReadLog) -> None:
    if ops:
        log.lose(path, ops, say("operations that are damaged or cut short"))
    if cells:
        log.lose(path, cells, say("cells without a usable number; the other cells of their operations are used"))


def _communication(found: _Columns) -> Communication:
    """Put together what was decoded; where a start or a length is not readable, it is -1."""
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
    bandwidth = Bandwidth.empty()
    if found.rows:
        op, transport, *numbers = zip(*found.rows, strict=True)
        bytes_, ns, packet, count = (np.array(column, np.int64) for column in numbers)
        bandwidth = Bandwidth(np.array(op, np.int64), Labels.of([*transport]), bytes_, ns, packet, count)
    return Communication(operations=ops, bandwidth=bandwidth, vendor=vendor)


def _decode(data: bytes | Raw, found: _Columns) -> None:
    """Decode a sound file: step → p2p or collective → operation, or the operations alone."""
    for key, value in _OBJECT.decode(data).items():
        if _STEP.fullmatch(key) or key in _SECTIONS:
            sections = {key: value} if key in _SECTIONS else _OBJECT.decode(value)
            for section, ops in sections.items():
                try:
                    found.add(step_number(key), section, _OPS.decode(ops))
                except DAMAGED:  # something in it is not of the kind it should be
                    try:
                        each = _OBJECT.decode(ops)
                    except DAMAGED:
                        found.ops += 1
                        continue
                    for name, op in each.items():
                        _one(found, step_number(key), section, name, op)
        elif key != TOTAL:
            _one(found, -1, "", key, value)


def _one(found: _Columns, step: int, section: str, name: str, value: Raw | bytes) -> None:
    if name == TOTAL:
        return
    try:
        op = _OP.decode(value)
    except DAMAGED:
        found.ops += 1
    else:
        found.add(step, section, {name: op})


def objects_in(data: bytes, keys: re.Pattern[bytes]) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield step, section, name and text of the objects in a damaged file, whose texts have no braces.

    ``keys`` finds their names, with ``object`` where each begins, and the names of steps and sections as ``layer``.
    """
    step, section = -1, ""
    found = list(keys.finditer(data))
    for key, following in zip(found, [*(k.start() for k in found), len(data)][1:], strict=True):
        if key["layer"] is not None:
            layer = key["layer"].decode()
            step, section = (step, layer) if layer in _SECTIONS else (step_number(layer), section)
            continue
        text, depth = data[key.start("object") : following], 0
        for brace in _BRACE.finditer(text):
            depth += 1 if brace.group() == b"{" else -1
            if depth == 0:
                text = text[: brace.end()]
                break
        yield step, section, key["op"].decode(errors="replace"), text


@lru_cache(1024)
def step_number(key: str) -> int:
    """Return 13 for step13, -1 for a step without a number."""
    found = _STEP.fullmatch(key)
    return int(found.group(1)) if found and found.group(1) else -1


# -- communication_matrix.json: what went over each link, summed per type and group, and of single operations.
#
# Ranks in it count inside the group; :func:`world_links` turns them into those of the whole run.

_LINK: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
#: "<type>-<which>@<group>"; sums over all operations have "total" there.
_LINK_KEY: Final = re.compile(r"(?P<type>[A-Za-z_]+?)-(?P<which>total|top\d*|middle|bottom\d*)(?:@(?P<group>.+))?")
_LINK_KEYS: Final = re.compile(
    rb'"(?:(?P<layer>step\s*\d*|p2p|collective)"\s*:\s*\{'
    rb'|(?P<op>[A-Za-z_]+-(?:total|top\d*|middle|bottom\d*)(?:@[^"]*)?)"\s*:\s*(?P<object>\{))'
)
#: Not links: inside of a chip.
LOCAL: Final = ("LOCAL", "ON_CHIP")


class _Link(msgspec.Struct, gc=False):
    transport: Any = msgspec.field(name="Transport Type", default=None)
    size: Any = msgspec.field(name="Transit Size(MB)", default=None)
    time: Any = msgspec.field(name="Transit Time(ms)", default=None)
    op: Any = msgspec.field(name="Op Name", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    target: Any = msgspec.field(name="Dst Rank", default=None)


class _Listed(msgspec.Struct, gc=False):
    """An operation as msprof itself lists it."""

    op: str = msgspec.field(name="op_name", default="")
    links: list[_Link] = msgspec.field(name="link_info", default_factory=list)


#: step, type, group, transport, source, target, bytes, ns, count, name
LinkRow = tuple[int, str, str | None, str, int, int, int, int, int, str | None]
_LINKS: Final = msgspec.json.Decoder(dict[str, _Link])
_LIST: Final = msgspec.json.Decoder(list[_Listed])


def read_matrix(path: Path, log: ReadLog) -> LinkUse:
    """Read the links, with ranks inside of their groups. Raises InputError when the file cannot be opened."""
    data = read_input(path).removeprefix(b"\xef\xbb\xbf")
    try:
        if data.lstrip()[:1] == b"[":  # msprof's form: a list of operations with their links
            rows = [
                row
                for op in _LIST.decode(data)
                for use in op.links
                for row in matrix_row(op.op, "", (use.source, use.target), use.transport, (use.size, use.time), use.op)
            ]
        else:  # torch_npu's: step → p2p or collective → type and group → link
            rows = [
                row
                for step, sections in _OBJECT.decode(data).items()
                for keys in _OBJECT.decode(sections).values()
                for key, links in _OBJECT.decode(keys).items()
                for row in _of_key(step, key, links)
            ]
    except DAMAGED as error:
        rows = [
            row
            for number, _, key, links in objects_in(data, _LINK_KEYS)
            for row in _of_key(f"step{number}" if number >= 0 else "step", key, links)
        ]
        log.warn(say_n("{path}: damaged or cut short ({why}); the uses of {n} link were kept, the others are lost",
                       "{path}: damaged or cut short ({why}); the uses of {n} links were kept, the others are lost",
                       len(rows) - rows.count(None), path=str(path), why=str(error)))  # fmt: skip
    return link_use(_usable(path, rows, log))


def read_cluster_matrix(path: Path, log: ReadLog) -> dict[int, LinkUse]:
    """Read cluster_communication_matrix.json: the links by the rank that sends, with the ranks of the whole run.

    The cluster tool of msprof-analyze files communication_matrix.json by ranks of a group → step → type and group →
    link, counts ranks anew, and adds the sum of each group. Raises InputError when the file cannot be opened, or is no
    such file.
    """
    data = read_input(path).removeprefix(b"\xef\xbb\xbf")
    try:
        rows = [
            row
            for steps in _OBJECT.decode(data).values()
            for step, keys in _OBJECT.decode(steps).items()
            for key, links in _OBJECT.decode(keys).items()
            if key.partition("@")[0] != TOTAL
            for row in _of_key(step, key, links)
        ]
    except DAMAGED as error:
        raise InputError(say("{path}: damaged or cut short ({why})", path=str(path), why=str(error))) from error
    return links_by_rank(_usable(path, rows, log))


def _usable(path: Path, rows: list[LinkRow | None], log: ReadLog) -> list[LinkRow]:
    """Return the rows that are usable, and tell how many are not."""
    if None in rows:
        log.lose(path, rows.count(None), say("links without usable numbers"))
    return [row for row in rows if row is not None]


def links_by_rank(rows: list[LinkRow]) -> dict[int, LinkUse]:
    """Return the rows of each rank that sends, as a table."""
    found: dict[int, list[LinkRow]] = {}
    for row in rows:
        found.setdefault(row[4], []).append(row)
    return {rank: link_use(own) for rank, own in found.items()}


def link_use(rows: list[LinkRow]) -> LinkUse:
    """Return rows as a table, each once: the same operation may be the best and the worst."""
    rows = list(dict.fromkeys(rows))
    if not rows:
        return LinkUse.empty()
    step, type_, group, transport, source, target, size, ns, count, name = zip(*rows, strict=True)
    return LinkUse(
        step=np.array(step, np.int64),
        type=Labels.of([*type_]),
        group=Labels.of([*group]),
        transport=Labels.of([*transport]),
        source=np.array(source, np.int64),
        target=np.array(target, np.int64),
        bytes=np.array(size, np.int64),
        ns=np.array(ns, np.int64),
        count=np.array(count, np.int64),
        name=Labels.of([*name]),
    )


def _of_key(step: str, key: str, links: Raw | bytes) -> Iterator[LinkRow | None]:
    try:
        found = _LINKS.decode(links)
    except DAMAGED:
        yield None
        return
    for link, use in found.items():
        yield from matrix_row(key, step, _ends(link), use.transport, (use.size, use.time), use.op)


def matrix_row(
    key: str, step: str, ends: tuple[object, object], transport: object, amounts: tuple[object, object], op: object
) -> Iterator[LinkRow | None]:
    """Yield the row of one link, None if it is unusable; nothing for what stays on the chip."""
    source, target = _rank(ends[0]), _rank(ends[1])
    if transport in LOCAL or (source == target and source >= 0):
        return
    size, ns = _scaled(amounts[0], BYTES_PER_MB), _scaled(amounts[1], NS_PER_MS)
    if not isinstance(transport, str) or size < 0 or ns < 0 or min(source, target) < 0:
        yield None
        return
    type_, which, id_, own = _about(key)
    op = op or own
    name = None if which == "total" or not isinstance(op, str) or not op else op.split("@", 1)[0]
    yield step_number(step), type_, id_, transport, source, target, size, ns, 1 if name else -1, name


# Keys and ends recur on every link, in every rank's file: each is looked at once.
_RECURRING: Final = 1 << 14


@lru_cache(_RECURRING)
def _about(key: str) -> tuple[str, str, str | None, str | None]:
    """Return the type, which of them, the group, and the name that a key says: msprof lists operations by their own."""
    found = _LINK_KEY.fullmatch(key)
    if found is not None:
        return type_of(found["type"]), found["which"], found["group"], None
    head, _, group = key.partition("@")
    named = re.match(r"(?:hcom_)?([A-Za-z]+)", head)
    return type_of(named.group(1) if named else head), "", group or None, head if re.search(r"\d", head) else None


@lru_cache(_RECURRING)
def _ends(link: str) -> tuple[str | None, str | None]:
    ends = _LINK.fullmatch(link)
    return (ends[1], ends[2]) if ends else (None, None)


def _rank(end: object) -> int:
    """Return the number of a rank, -1 for what is none."""
    return _number(end) if isinstance(end, str) else _number(str(end))


@lru_cache(_RECURRING)
def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else -1


def _scaled(value: object, unit: int) -> int:
    """Return a number in our unit, -1 if it is none."""
    if type(value) is float:  # nearly all are
        found = value
    else:
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
        except (ValueError, OverflowError):
            return -1
    return round(found * unit) if 0 <= found <= _MOST_MB else -1


def least_ranks(links: LinkUse, group: str) -> int:
    """Return how many ranks a group has at least, by links whose ranks are those inside of it; 0 where none is known.

    Point-to-point operations do not count: they need not reach everybody.
    """
    mine = links.group.flag([name == group for name in links.group.names])
    mine &= ~links.type.flag([type_of(name) in POINT_TO_POINT for name in links.type.names])
    return int(max(links.source[mine].max(), links.target[mine].max())) + 1 if mine.any() else 0


def world_links(links: LinkUse, book: GroupBook) -> LinkUse:
    """Return links with the ranks of the whole run, -1 where the group's are unknown."""
    world = []
    for rank in (links.source, links.target):
        world.append(np.full(len(rank), -1, np.int64))
        for code, id_ in enumerate(links.group.names):
            ranks = np.array(book.ranks(id_), np.int64)
            mine = np.flatnonzero((links.group.codes == code) & (rank >= 0) & (rank < len(ranks)))
            world[-1][mine] = ranks[rank[mine]]
    return replace(links, source=world[0], target=world[1])


def typed_links(links: LinkUse, ops: Operations) -> LinkUse:
    """Return links with the types of operations: the exporter files reduceScatter as reduce, alltoallv as alltoall."""

    def groups_with(type_: str) -> set[str]:
        mine = ops.type.flag([t == type_ for t in ops.type.names])
        return {ops.group.names[c] for c in distinct(ops.group.codes[mine]).tolist() if c >= 0}

    labels = [*dict.fromkeys(("reduce", "reduceScatter", "alltoall", "alltoallv", *links.type.names))]
    codes = np.append([labels.index(n) for n in links.type.names], -1)[links.type.codes].astype(np.int32)
    for filed, meant in (("reduce", "reduceScatter"), ("alltoall", "alltoallv")):
        there = groups_with(meant) - groups_with(filed)
        by_group = links.group.flag([g in there for g in links.group.names])
        by_name = links.name.flag([f"_{meant}_" in n for n in links.name.names])
        codes[(codes == labels.index(filed)) & (by_group | by_name)] = labels.index(meant)
    return replace(links, type=Labels(codes, tuple(labels)).compact())

"""Communication in the profiler's databases: operations, what their tasks moved over which link, groups."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.messages import say
from npuperf.base.notes import parse_note
from npuperf.base.units import NS_PER_MS, NS_PER_US
from npuperf.model.communication import Bandwidth, Communication, LinkUse, VendorTimes
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels, Mask
from npuperf.readers.comm_files import BYTES_PER_MB, TOTAL, LinkRow, link_use, links_by_rank, matrix_row, step_number
from npuperf.readers.comm_groups import GroupBook, book_of, group_hash, operations
from npuperf.readers.comm_parts import NOTIFY_WAIT, Parts, bytes_of, first_waits
from npuperf.readers.join import match, pick
from npuperf.readers.sqlite import Database, integer

#: What links are called in the exporter's sums. HCCS_SW counts as HCCS there.
_TRANSPORTS: Final = {"HCCS_SW": "HCCS", "ROCE": "RDMA", "STANDARD_ROCE": "RDMA"}
#: Tasks that move data, on links without RDMA.
_MOVES: Final = ("Memcpy", "Reduce_Inline")
_PAYLOAD: Final = "RDMA_SEND_PAYLOAD"
#: Of RDMA, tasks from the last payload to the one that closes the transfer (msprof: 3 for send and receive, else 5).
_CLOSING: Final = {True: 1, False: 3}
#: Unset ranks.
_NO_RANK: Final = (-1, 4294967295)


class DbCommunication(Struct, frozen=True):
    """What a database has: communication by device, -1 where rows name none, with ranks inside of groups; groups."""

    devices: dict[int, Communication] = field(default_factory=dict)
    book: GroupBook = field(default_factory=GroupBook)


def read_communication_db(db: Database) -> DbCommunication:
    """Read operations, what they moved over which link, groups and the machine's name from a profiler's database."""
    op = db.spans("COMMUNICATION_OP", {
        "name": "opName",
        "id": "opId",
        "type": ("opType",),
        "group": "groupName",
        "device": ("deviceId",),
        "retry": ("retry",),
        "relay": ("relay",),
        "elements": ("count",),
        "dtype": ("dataType",),
    })  # fmt: skip
    texts = db.text(op["group"])
    groups = Labels(texts.codes, tuple(map(group_hash, texts.names)))
    told = {"bytes": bytes_of(op["elements"], Labels.of(_named(db, "ENUM_HCCL_DATA_TYPE", op["dtype"]).tolist()))}
    transfers, inside = _transfers(db, op)
    told |= inside
    has = db.has("HOST_INFO")  # the machine's name, or else its number
    columns = (column for column in ("hostName", "hostUid") if column in has)
    cells = (cell for c in columns for batch in db.rows("HOST_INFO", f"SELECT {c} FROM HOST_INFO") for (cell,) in batch)
    host = next((str(cell) for cell in cells if cell and isinstance(cell, str | int)), None)
    devices = {}
    for device in distinct(op["device"]).tolist() if len(op["device"]) else [-1]:
        rows = np.flatnonzero(op["device"] == device)
        flags = {part: np.where(np.isin(op[part][rows], (0, 1)), op[part][rows], -1) for part in ("retry", "relay")}
        ops = operations(
            db.text(op["name"][rows]), op["start"][rows], op["end"][rows],
            type_=db.text(op["type"][rows]), group=groups.take(rows),
            told=flags | {name: column[rows] for name, column in told.items()},
        )  # fmt: skip
        place = np.full(len(groups) + 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        here = transfers.of_operations(place)
        type_, name = (column.take(here.op) for column in (ops.type, ops.name))
        links = here.links(type_, ops.group, name)
        devices[device] = Communication(operations=ops, bandwidth=here.bandwidth(), links=links, host=host)
    return DbCommunication(devices, book_of(notes(db, "distributed_args", "parallel_group_info")))


def notes(db: Database, *names: str) -> dict[str, object]:
    """Return what META_DATA holds under these names, which is JSON; what is none is told."""
    found: dict[str, object] = {}
    if not db.offers("META_DATA", "name", "value"):
        return found
    wanted = ", ".join(f"'{name}'" for name in names)
    for batch in db.rows("META_DATA", f"SELECT name, value FROM META_DATA WHERE name IN ({wanted})"):
        for name, value in batch:
            try:
                found[name] = parse_note(value)
            except (TypeError, ValueError, RecursionError):
                db.log.warn(say("{path}: table META_DATA: {name} is not JSON, so what it tells is unknown",
                                path=str(db.path), name=str(name)))  # fmt: skip
    return found


class _Transfers(Struct, frozen=True):
    """Data that went over links: ``op`` is the row of the operation, ranks are those inside of its group."""

    op: I64
    transport: Labels
    source: I64
    target: I64
    bytes: I64
    ns: I64

    def of_operations(self, place: I64) -> _Transfers:
        """Return the transfers of operations that have a place (not -1), which stands for them then."""
        op = place[self.op]
        mine = op >= 0
        return _Transfers(
            op[mine], self.transport.filter(mine), self.source[mine], self.target[mine], self.bytes[mine],
            self.ns[mine],
        )  # fmt: skip

    def bandwidth(self) -> Bandwidth:
        """Return a row per operation, transport and packet size."""
        first, bytes_, ns, count = _sums((self.op, self.transport.codes, self.bytes), self.bytes, self.ns)
        return Bandwidth(self.op[first], self.transport.take(first), bytes_, ns, self.bytes[first], count)

    def links(self, type_: Labels, groups: Labels, name: Labels) -> LinkUse:
        """Return a row per operation and link; ``groups`` of the operations."""
        first, bytes_, ns, count = _sums((self.op, self.source, self.target, self.transport.codes), self.bytes, self.ns)
        return LinkUse(
            np.full(len(first), -1, np.int64), type_.take(first), groups.take(self.op[first]),
            self.transport.take(first), self.source[first], self.target[first], bytes_, ns, count, name.take(first),
        )  # fmt: skip


def _sums(keys: tuple[I64 | Any, ...], bytes_: I64, ns: I64) -> tuple[I64, I64, I64, I64]:
    """Return for each distinct key its first row, the sums of its rows and their number."""
    if not len(bytes_):
        none = np.empty(0, np.int64)
        return none, none, none, none
    order = np.lexsort(keys[::-1])
    new = np.ones(len(order), np.bool_)
    new[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    starts = np.flatnonzero(new)
    count = np.diff(np.append(starts, len(order)))
    return order[starts], np.add.reduceat(bytes_[order], starts), np.add.reduceat(ns[order], starts), count


def _transfers(db: Database, op: dict[str, I64]) -> tuple[_Transfers, dict[str, I64]]:
    """Read the parts of operations with the times of their tasks: what moves data, and what they tell of waiting."""
    table = "COMMUNICATION_TASK_INFO"
    none = np.empty(0, np.int64)
    part = db.columns(table, {"task": "globalTaskId", "op": "opId", "source": "srcRank", "target": "dstRank",
                              "size": "size", "type": ("taskType",), "plane": ("planeId",), "link": ("linkType",),
                              "transport": ("transportType",), "rdma": ("rdmaType",)})  # fmt: skip
    if not len(part["task"]) or "globalTaskId" not in db.has("TASK"):
        return _Transfers(none, Labels.missing(0), none, none, none, none), {}
    known = (part["task"] >= 0) & (part["op"] >= 0)
    db.lose(known, say("table {table}: it is not known which task and operation these are of", table=table))
    part = {name: column[known] for name, column in part.items()}
    in_parts = f"WHERE globalTaskId IN (SELECT globalTaskId FROM {table})"
    time = db.spans("TASK", {"id": "globalTaskId"}, in_parts)
    row = match(part["task"], time["id"])
    at = match(part["op"], op["id"])
    start, end = pick(time["start"], row), pick(time["end"], row)
    listed = (at >= 0) & (row >= 0)
    if not listed.all():  # those of rows that are lost are told with these
        tasks, ops = db.columns("TASK", {"id": "globalTaskId"}), db.columns("COMMUNICATION_OP", {"id": "opId"})
        there = np.isin(part["task"], tasks["id"]) & np.isin(part["op"], ops["id"])
        db.lose(there, say("table {table}: parts of operations, or of tasks, that are not listed", table=table))
    order = np.lexsort((start, part["plane"], at))
    order = order[listed[order]]
    part = {name: column[order] for name, column in part.items()}
    at, start, end = at[order], start[order], end[order]
    payload = _named(db, "ENUM_HCCL_RDMA_TYPE", part["rdma"]) == _PAYLOAD
    names, types = db.text(op["name"]), db.text(part["type"])
    two = names.flag([any(w in n.lower() for w in ("send", "receive")) for n in names.names])
    ns = _with_closing(payload, at, part["plane"], start, end, two[at])
    moves = types.flag([name in _MOVES for name in types.names])
    moves &= _named(db, "ENUM_HCCL_TRANSPORT_TYPE", part["transport"]) == "SDMA"
    link = _named(db, "ENUM_HCCL_LINK_TYPE", part["link"])
    link = np.where(payload, "RDMA", link)
    other = (part["source"] != part["target"]) & ~np.isin(part["source"], _NO_RANK)
    other &= ~np.isin(part["target"], _NO_RANK)
    waits = types.flag([name == NOTIFY_WAIT for name in types.names])
    told = Parts(at, part["plane"], start, end, waits, part["size"], part["target"]).filter(other)
    chosen = np.flatnonzero((payload | moves) & other & (part["size"] > 0) & ~np.isin(link, ("ON_CHIP", "LOCAL")))
    transport = Labels.of([_TRANSPORTS.get(n, n) for n in link[chosen].tolist()])
    found = _Transfers(
        at[chosen], transport, part["source"][chosen], part["target"][chosen], part["size"][chosen], ns[chosen]
    )
    return found, first_waits(told, op["start"])


def _with_closing(payload: Mask, op: I64, plane: I64, start: I64, end: I64, two: Mask) -> I64:
    """Return how long each task took; a run of RDMA payloads lasts until the task that closes it.

    The first payload of a run gets its time, the others none: together they are what the exporter counts.
    """
    ns = end - start
    if not payload.any():
        return ns
    same = (op[1:] == op[:-1]) & (plane[1:] == plane[:-1])
    first = payload & ~np.append(False, payload[:-1] & same)
    last = payload & ~np.append(payload[1:] & same, False)
    begin, until = np.flatnonzero(first), np.flatnonzero(last)
    close = until + np.where(two[begin], _CLOSING[True], _CLOSING[False]) + 1
    within = np.minimum(close, len(op) - 1)
    closed = (close < len(op)) & (op[within] == op[begin]) & (plane[within] == plane[begin])
    ns = np.where(payload, 0, ns)
    ns[begin] = np.where(closed, end[within], end[until]) - start[begin]
    return ns


def _named(db: Database, table: str, ids: I64) -> Any:
    """Return the names that an enumeration of the database has for these numbers."""
    found = db.names(table)
    values, codes = np.unique(ids, return_inverse=True)
    return np.array([found.get(int(v), "") for v in values] + [""])[codes]


# -- The exporter's sums in analysis.db and communication_analyzer.db: the tables CommAnalyzer….

_MOST: Final = 1e12
_LATEST_US: Final = 4e15


def _rows(db: Database, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    has = db.has(table)
    if not has:
        return []
    query = ", ".join(c if c in has else "NULL" for c in columns)
    return [row for batch in db.rows(table, f'SELECT {query} FROM "{table}"') for row in batch]


#: How exporters write that there is no number.
_NOTHING: Final = (None, "", "N/A")
_PARTS: Final = ("transit_time", "wait_time", "synchronization_time", "idle_time")


def read_sums(db: Database) -> Communication:
    """Read the exporter's sums from analysis.db: the tables CommAnalyzerTime, …Bandwidth and …Matrix."""
    found = [*_sums_by_rank(db, "CommAnalyzerTime", "CommAnalyzerBandwidth").values(), Communication()][0]
    return Communication(
        found.operations,
        bandwidth=found.bandwidth,
        vendor=found.vendor,
        links=link_use(_link_rows(db, "CommAnalyzerMatrix")),
    )


def read_cluster_sums(db: Database) -> dict[int, Communication]:
    """Read the same of every rank, as the cluster tool of msprof-analyze puts it together, but for the links."""
    names = (("ClusterCommunicationTime", "ClusterCommunicationBandwidth"),
             ("ClusterCommAnalyzerTime", "ClusterCommAnalyzerBandwidth"))  # fmt: skip
    found = (_sums_by_rank(db, *tables) for tables in names if db.has(tables[0]))
    return next(({rank: part for rank, part in ranks.items() if rank is not None} for ranks in found), {})


def read_cluster_links(db: Database) -> dict[int, LinkUse]:
    """Read what the cluster tool put together of links, by the rank that sends; ranks are those of the whole run."""
    tables = ("ClusterCommunicationMatrix", "ClusterCommAnalyzerMatrix")
    return links_by_rank(_link_rows(db, next((table for table in tables if db.has(table)), "")))


def _sums_by_rank(db: Database, table: str, packets: str) -> dict[int | None, Communication]:
    """Read operations and what they moved by rank, None where rows name none."""
    elapse = "elapse_time" if "elapse_time" in db.has(table) else "elapsed_time"
    by_rank: dict[int | None, tuple[list[Any], list[Any]]] = {}
    columns = (*_KEY, "type", "start_timestamp", elapse, *_PARTS)
    transport = "transport_type" if "transport_type" in db.has(packets) else "band_type"
    for place, (name, wanted) in enumerate(((table, columns), (packets, (*_KEY, transport, *_AMOUNTS)))):
        for rank, *row in _rows(db, name, ("rank_id", *wanted)):
            if row[0] != TOTAL:
                own = rank if isinstance(rank, int) else None
                by_rank.setdefault(own, ([], []))[place].append(tuple(row))
    return {rank: _of_rows(db, (table, packets), *rows) for rank, rows in by_rank.items() if rows[0]}


#: What tells operations of a step apart, and what their packets have.
_KEY: Final = ("hccl_op_name", "group_name", "step")
_AMOUNTS: Final = ("transit_size", "transit_time", "package_size", "total_duration", "count")


def _of_rows(
    db: Database, tables: tuple[str, str], rows: list[tuple[Any, ...]], packets: list[tuple[Any, ...]]
) -> Communication:
    """Put one rank's rows together."""
    table = tables[0]
    name, group, step, kind, *times = zip(*rows, strict=True)
    start, length = _numbers(times[0], NS_PER_US, _LATEST_US), _numbers(times[1], NS_PER_MS, _MOST)
    split = [_told(db, table, *part, NS_PER_MS) for part in zip(_PARTS, times[2:], strict=True)]
    known = (start > 0) & (length >= 0)
    lost = int(np.count_nonzero(~known))
    if lost:
        db.log.lose(db.path, lost, say("operations without a usable start or length"))
    ops = operations(
        Labels.of([_text(n) for n in name]),
        np.where(known, start, -1),
        np.where(known, start + length, -1),
        group=Labels.of([group_hash(g) if (g := _text(v)) else None for v in group]),
        step=np.array([step_number(str(s)) for s in step], np.int64),
        p2p=np.array([k == "p2p" for k in kind], np.bool_),
    )
    places = {key: i for i, key in enumerate(zip(name, group, step, strict=True))}
    recorded = np.flatnonzero(np.any(np.array(split) >= 0, axis=0))
    vendor = VendorTimes(recorded, *(part[recorded] for part in split))
    return Communication(operations=ops, bandwidth=_packets(db, tables[1], packets, places), vendor=vendor)


def _packets(db: Database, table: str, every: list[tuple[Any, ...]], places: dict[tuple[Any, ...], int]) -> Bandwidth:
    """Return a row per packet size, or one of an operation whose packets are not recorded."""
    units = (BYTES_PER_MB, NS_PER_MS) * 2
    rows = [(places[r[:3]], *r[3:]) for r in every if r[:3] in places]
    db.lose(len(every) - len(rows), say("table {table}: of operations that are not listed", table=table))
    if not rows:
        return Bandwidth.empty()
    op, transport, *amounts = zip(*rows, strict=True)
    found = (_told(db, table, *part) for part in zip(_AMOUNTS, amounts, (*units, 1), strict=True))
    size, ns, packet, packet_ns, count = found
    at, names = np.array(op, np.int64), Labels.of([_text(t) for t in transport])
    split = (packet > 0) & (count > 0) & (packet_ns >= 0)
    used = split | (size > 0)
    sdma = names.flag([n == "SDMA" for n in names.names])
    used &= ~sdma | ~np.isin(at, at[used & ~sdma])
    db.lose(~used | names.known(), say("table {table}: over a link that is not named", table=table))
    keep = np.flatnonzero(used & names.known())
    split = split[keep]
    return Bandwidth(
        at[keep],
        names.take(keep).compact(),
        np.where(split, packet[keep] * count[keep], size[keep]),
        np.where(split, packet_ns[keep], np.maximum(ns[keep], 0)),
        np.where(split, packet[keep], -1),
        np.where(split, count[keep], -1),
    )


def _link_rows(db: Database, table: str) -> list[LinkRow]:
    columns = ("hccl_op_name", "group_name", "step", "src_rank", "dst_rank", "transport_type", "transit_size",
               "transit_time", "op_name")  # fmt: skip
    found = []
    lost = 0
    for name, group, step, source, target, transport, size, ns, op in _rows(db, table, columns):
        if name == TOTAL:
            continue
        source, target = (integer(end) if isinstance(end, float) else end for end in (source, target))
        key = f"{name}@{group}" if group and "@" not in str(name) else str(name)
        for row in matrix_row(key, str(step), (source, target), transport, (size, ns), op):
            if row is None:
                lost += 1
            else:
                found.append(row)
    if lost:
        db.log.lose(db.path, lost, say("links without usable numbers"))
    return found


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value not in _NOTHING else None


def _told(db: Database, table: str, column: str, values: tuple[Any, ...], unit: int) -> I64:
    """Return numbers as :func:`_numbers` does; tell of cells that hold something else."""
    found = _numbers(values, unit, _MOST)
    db.unreadable(table, column, sum(values[i] not in _NOTHING for i in np.flatnonzero(found < 0).tolist()))
    return found


def _numbers(values: tuple[Any, ...], unit: int, most: float) -> I64:
    """Return numbers in our unit, -1 for what is none. Times keep what their text has, as floats do not."""
    return np.array([amount(v, unit, most) for v in values], np.int64)


def amount(value: object, unit: int, most: float) -> int:
    """Return a number in our unit, rounded; -1 for what is none, below zero or above ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return -1
    try:
        found = Decimal(str(value))
        return round(found * unit) if 0 <= found <= Decimal(most) else -1
    except (InvalidOperation, ValueError):  # no number, or NaN
        return -1

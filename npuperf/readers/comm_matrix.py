"""communication_matrix.json: what went over each link, summed per type and group, and of single operations.

Ranks in it count inside the group; :func:`world_links` turns them into those of the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw
from msgspec.structs import replace

from npuperf.files import read_input
from npuperf.messages import say, say_n
from npuperf.model.communication import LinkUse, Operations
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels
from npuperf.readers.comm_groups import GroupBook
from npuperf.readers.comm_json import objects_in, step_number
from npuperf.readers.comm_names import type_of
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import DAMAGED
from npuperf.units import NS_PER_MS

_BYTES_PER_MB: Final = 1_000_000
_MOST: Final = 1e12
_LINK: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
#: "<type>-<which>@<group>"; sums over all operations have "total" there.
_KEY: Final = re.compile(r"(?P<type>[A-Za-z_]+?)-(?P<which>total|top\d*|middle|bottom\d*)(?:@(?P<group>.+))?")
_KEYS: Final = re.compile(
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
_Row = tuple[int, str, str | None, str, int, int, int, int, int, str | None]
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_LINKS: Final = msgspec.json.Decoder(dict[str, _Link])
_LIST: Final = msgspec.json.Decoder(list[_Listed])


def read_matrix(path: Path, log: ReadLog) -> LinkUse:
    """Read the links, with ranks inside of their groups. Raises InputError when the file cannot be opened."""
    data = read_input(path).removeprefix(b"\xef\xbb\xbf")
    try:
        rows = list(_listed(data) if data.lstrip()[:1] == b"[" else _nested(data))
    except DAMAGED as error:
        rows = list(_salvaged(data))
        log.warn(say_n("{path}: damaged or cut short ({why}); the uses of {n} link were kept, the others are lost",
                       "{path}: damaged or cut short ({why}); the uses of {n} links were kept, the others are lost",
                       len(rows) - rows.count(None), path=str(path), why=str(error)))  # fmt: skip
    if None in rows:
        log.lose(path, rows.count(None), say("links without usable numbers"))
    return link_use([row for row in rows if row is not None])


def link_use(rows: list[_Row]) -> LinkUse:
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


def _nested(data: bytes) -> Iterator[_Row | None]:
    """Yield the rows of torch_npu's form: step → p2p or collective → type and group → link."""
    for step, sections in _OBJECT.decode(data).items():
        for keys in _OBJECT.decode(sections).values():
            for key, links in _OBJECT.decode(keys).items():
                yield from _of_key(step, key, links)


def _of_key(step: str, key: str, links: Raw | bytes) -> Iterator[_Row | None]:
    try:
        found = _LINKS.decode(links)
    except DAMAGED:
        yield None
        return
    for link, use in found.items():
        ends = _LINK.fullmatch(link)
        pair = (ends[1], ends[2]) if ends else (None, None)
        yield from matrix_row(key, step, pair, use.transport, (use.size, use.time), use.op)


def _salvaged(data: bytes) -> Iterator[_Row | None]:
    """Yield what a damaged file still has whole."""
    for step, _, key, links in objects_in(data, _KEYS):
        yield from _of_key(f"step{step}" if step >= 0 else "step", key, links)


def _listed(data: bytes) -> Iterator[_Row | None]:
    """Yield the rows of msprof's own form: a list of operations with their links."""
    for listed in _LIST.decode(data):
        for use in listed.links:
            yield from matrix_row(listed.op, "", (use.source, use.target), use.transport, (use.size, use.time), use.op)


def matrix_row(
    key: str, step: str, ends: tuple[object, object], transport: object, amounts: tuple[object, object], op: object
) -> Iterator[_Row | None]:
    """Yield the row of one link, None if it is unusable; nothing for what stays on the chip."""
    found = _KEY.fullmatch(key)
    source, target = map(_rank, ends)
    if transport in LOCAL or (source == target and source >= 0):
        return
    size, ns = (_scaled(a, unit) for a, unit in zip(amounts, (_BYTES_PER_MB, NS_PER_MS), strict=True))
    if not isinstance(transport, str) or size < 0 or ns < 0 or min(source, target) < 0:
        yield None
        return
    if found is None:  # msprof lists operations by their own names
        head, _, group = key.partition("@")
        named = re.match(r"(?:hcom_)?([A-Za-z]+)", head)
        type_, which, id_ = named.group(1) if named else head, "", group or None
        op = op or (head if re.search(r"\d", head) else None)
    else:
        type_, which, id_ = found["type"], found["which"], found["group"]
    name = None if which == "total" or not isinstance(op, str) or not op else op.split("@", 1)[0]
    yield step_number(step), type_of(type_), id_, transport, source, target, size, ns, 1 if name else -1, name


def _rank(value: object) -> int:
    text = str(value)
    return int(text) if re.fullmatch(r"\d{1,9}", text) else -1


def _scaled(value: object, unit: int) -> int:
    """Return a number in our unit, -1 if it is none."""
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return -1
    return round(found * unit) if 0 <= found <= _MOST else -1


def world_links(links: LinkUse, book: GroupBook, ops: Operations) -> LinkUse:
    """Return links with the ranks of the whole run, and the types that operations have.

    The exporter files reduceScatter as reduce and alltoallv as alltoall.
    """
    source, target = (_world(links.group, ranks, book) for ranks in (links.source, links.target))
    return replace(links, source=source, target=target, type=_typed(links, ops))


def _world(group: Labels, rank: I64, book: GroupBook) -> I64:
    """Return the ranks of the whole run behind ranks of groups, -1 where the group's are unknown."""
    world = np.full(len(rank), -1, np.int64)
    for code, id_ in enumerate(group.names):
        ranks = np.array(book.ranks(id_), np.int64)
        mine = np.flatnonzero((group.codes == code) & (rank >= 0) & (rank < len(ranks)))
        world[mine] = ranks[rank[mine]]
    return world


def _typed(links: LinkUse, ops: Operations) -> Labels:
    """Put the types of operations for those that the exporter files under another's."""
    labels = [*dict.fromkeys(("reduce", "reduceScatter", "alltoall", "alltoallv", *links.type.names))]
    codes = np.append([labels.index(n) for n in links.type.names], -1)[links.type.codes].astype(np.int32)
    for filed, meant in (("reduce", "reduceScatter"), ("alltoall", "alltoallv")):
        there = _groups_with(ops, meant) - _groups_with(ops, filed)
        by_group = links.group.flag([g in there for g in links.group.names])
        by_name = links.name.flag([f"_{meant}_" in n for n in links.name.names])
        is_filed = codes == labels.index(filed)
        codes[is_filed & (by_group | by_name)] = labels.index(meant)
    return Labels(codes, tuple(labels)).compact()


def _groups_with(ops: Operations, type_: str) -> set[str]:
    mine = ops.type.flag([t == type_ for t in ops.type.names])
    return {ops.group.names[c] for c in distinct(ops.group.codes[mine]).tolist() if c >= 0}

"""Process groups: which ranks they have and what the program calls them, from every file that knows some.

Operations name a group by the hash of its id, or by the last three digits of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.files import read_input
from npuperf.base.messages import say
from npuperf.base.notes import read_note
from npuperf.model.communication import Operations, ProcessGroup
from npuperf.model.labels import I64, Labels, Mask
from npuperf.readers.comm_parts import Parts, bytes_of, first_waits
from npuperf.readers.join import match_keys, shared_codes
from npuperf.readers.log import ReadLog
from npuperf.readers.trace import Slices, Trace

_FACTORS: Final = (29, 131)
_WORD: Final = 0xFFFFFFFF
#: Numbers this long are hashes already.
_HASH: Final = re.compile(r"\d{10,20}")


def group_hash(text: str) -> str:
    """Return the hash that operations carry of a group's id: two polynomial hashes of 32 bits side by side.

    Source: ``double_hash`` of msprof-analyze; group_name_5 → 5862276114690318097, as in the names of operations.
    """
    if _HASH.fullmatch(text):
        return text
    high = low = 0
    for byte in text.encode("utf-8", errors="replace"):
        high = (high * _FACTORS[0] + byte) & _WORD
        low = (low * _FACTORS[1] + byte) & _WORD
    return str(high << 32 | low)


class GroupBook(Struct):
    """The groups that files know, by id; ``distributed``: sizes of the program's parallel dimensions.

    ``sets``: ranks of groups whose id is not recorded. ``rank``: this rank, as the program counted it.
    """

    groups: dict[str, ProcessGroup] = field(default_factory=dict)
    distributed: dict[str, int] = field(default_factory=dict)
    sets: set[tuple[int, ...]] = field(default_factory=set)
    rank: int | None = None

    def add(self, group: ProcessGroup) -> None:
        """Enter a group; what is known of it already stays."""
        known = self.groups.get(group.id)
        if known is not None:
            group = ProcessGroup(known.id, known.kind or group.kind, known.ranks or group.ranks)
        self.groups[group.id] = group

    def take(self, other: GroupBook) -> None:
        """Enter what another book has."""
        for group in other.groups.values():
            self.add(group)
        self.distributed = other.distributed | self.distributed
        self.sets |= other.sets
        self.rank = other.rank if self.rank is None else self.rank

    def ranks(self, id_: str | None) -> tuple[int, ...]:
        """Return the ranks of a group, none if they are not recorded."""
        known = self.groups.get(id_) if id_ is not None else None
        return known.ranks if known else ()

    def of_rank(self, rank: int | None, seen: Iterable[str]) -> tuple[ProcessGroup, ...]:
        """Return what one rank knows: its groups, and those that its operations name."""
        named = set(seen)
        # The only group without ranks has the only set of ranks without a group.
        open_ = [id_ for id_ in named if not self.ranks(id_)]
        taken = {tuple(sorted(g.ranks)) for g in self.groups.values()}
        sets = [s for s in self.sets if rank in s and tuple(sorted(s)) not in taken]
        if len(open_) == 1 and len(sets) == 1:
            self.add(ProcessGroup(open_[0], None, sets[0]))
        for id_ in sorted(named - self.groups.keys()):
            self.add(ProcessGroup(id_))
        return tuple(g for g in self.groups.values() if g.id in named or rank is None or rank in g.ranks)


def by_digits(ids: Iterable[str]) -> dict[str, str]:
    """Return the group behind the last three digits of its hash, where only one has them."""
    found: dict[str, str | None] = {}
    for id_ in set(ids):
        if _HASH.fullmatch(id_):
            found[id_[-3:]] = None if id_[-3:] in found else id_
    return {digits: id_ for digits, id_ in found.items() if id_ is not None}


def book_of(metadata: Mapping[str, object]) -> GroupBook:
    """Return what profiler_metadata.json (or a database's META_DATA) says of groups."""
    book = GroupBook()
    sizes = metadata.get("distributed_args")
    if isinstance(sizes, dict):
        book.rank = _rank(sizes.get("rank"))
        book.distributed = {
            str(k): v for k, v in sizes.items() if isinstance(v, int) and not isinstance(v, bool) and k != "rank"
        }
    groups = metadata.get("parallel_group_info")
    for id_, info in groups.items() if isinstance(groups, dict) else ():
        info = info if isinstance(info, dict) else {}
        book.add(ProcessGroup(group_hash(str(id_)), _kind(info.get("group_name")), _ranks(info.get("global_ranks"))))
    return book


def read_groups(paths: Iterable[Path], log: ReadLog) -> GroupBook:
    """Read communication_group.json and what the vendor's cluster tool wrote."""
    book = GroupBook()
    for path in paths:
        try:
            book.take(_read_groups(path, log))
        except InputError as error:
            log.fail(say("{failure}; the ranks of its groups are unknown", failure=error.what), error)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            log.warn(
                say("{path}: cannot be read ({why}); the ranks of its groups are unknown",
                    path=str(path), why=str(error))
            )  # fmt: skip
        else:
            log.use(path)
    return book


def _read_groups(path: Path, log: ReadLog) -> GroupBook:
    """Read one of CLUSTER_FILES: sets of ranks, or groups by name or id with their ranks."""
    book = GroupBook()
    keys = ("group_name", "group_id", "pg_name", "rank_set")
    rows: list[Sequence[Any]] = []
    if path.suffix == ".db":
        from npuperf.readers.sqlite import open_database  # most groups are noted in JSON

        with open_database(path, log) as db:
            table = "CommunicationGroupMapping"
            columns = ", ".join(c if c in db.has(table) else "NULL" for c in keys)
            for batch in db.rows(table, f"SELECT {columns} FROM {table}") if db.has(table) else ():
                rows += batch
    elif path.name == "cluster_communication.json":  # ranks → step → operation@group
        of_ranks = msgspec.json.decode(read_input(path), type=dict[str, dict[str, dict[str, msgspec.Raw]]])
        for ranks, steps in of_ranks.items():
            names = {name.rpartition("@")[2] for ops in steps.values() for name in ops if "@" in name}
            rows += [(id_, None, None, ranks) for id_ in sorted(names)]
    else:
        noted = read_note(path)
        for kind in ("collective", "p2p"):
            sets = noted.get(kind)
            found = map(_ranks, sets if isinstance(sets, list) else ())
            book.sets.update(r for r in found if len(r) > 1)
        known = noted.get("comm_group_parallel_info")  # in newer files
        infos = known if isinstance(known, list) else ()
        rows += [list(map(info.get, keys)) for info in infos if isinstance(info, dict)]
    for name, id_, kind_, ranks_ in rows:
        text = next((str(n) for n in (name, id_) if n not in (None, "")), None)
        if text is not None:
            book.add(ProcessGroup(group_hash(text), _kind(kind_), _ranks(ranks_)))
    return book


#: What the vendor's cluster tool writes about groups, best first.
CLUSTER_FILES: Final = (
    "communication_group.json", "cluster_analysis.db", "cluster_communication_analyzer.db",
    "cluster_communication.json",
)  # fmt: skip


def _kind(value: object) -> str | None:
    return value if isinstance(value, str) and value not in ("", "N/A") else None


def _ranks(value: Any) -> tuple[int, ...]:
    """Return ranks of a list, or of one as text: (0, 1)."""
    if isinstance(value, str):
        value = [int(n) for n in re.findall(r"\d{1,9}", value)]
    found = [_rank(v) for v in value] if isinstance(value, list) else []
    return () if None in found else tuple(dict.fromkeys(r for r in found if r is not None))


def _rank(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


# -- What the names of communication operations say: type, last digits of the group, running number, group.
#
# ``hcom_<type>__<ddd>_<index>_<n>@<group>``; the part after @ is only in the exporter's own sums. NCCL and the kernels
# of AI CPU and AI vector cores name the type somewhere in the middle.

#: Types as HCCL spells them.
TYPES: Final = (
    "allReduce", "allGather", "reduceScatter", "broadcast", "scatter", "reduce", "gather", "alltoall", "alltoallv",
    "alltoallvc", "send", "receive", "batchSendRecv", "barrier",
)  # fmt: skip
POINT_TO_POINT: Final = ("send", "receive", "batchSendRecv")
_KNOWN: Final = {t.lower(): t for t in TYPES} | {
    "sendrecv": "batchSendRecv",
    "recv": "receive",
    "bcast": "broadcast",
    "crossdevicereduce": "allReduce",  # vLLM's and SGLang's own, of one or two stages
}
_INSIDE: Final = re.compile("|".join(sorted(_KNOWN, key=len, reverse=True)))
_NAME: Final = (
    r"^(?i:hcom)_+(?P<type>[A-Za-z]+(?:_[A-Za-z]+)*)"
    r"(?:_+(?P<digits>\d+)_(?P<index>\d{1,18})(?:_\d+)?|_*)(?:@(?P<group>.+))?$"
)


def type_of(word: str) -> str:
    """Return a type in HCCL's spelling; one that is not known stays as it is."""
    return _KNOWN.get(word.replace("_", "").lower(), word)


def type_inside(name: str) -> str | None:
    """Return the type that a kernel's name mentions: ncclDevKernel_AllReduce_Sum_f32_RING_LL(…) → allReduce."""
    found = _INSIDE.search(name.replace("_", "").lower())
    return _KNOWN[found.group()] if found else None


def digits_of(name: Labels) -> Labels:
    """Return the last digits of the groups that the names carry."""
    return _parts(name.names).digits.take(name.codes.astype(np.int64))


def operations(
    name: Labels,
    start: I64,
    end: I64,
    *,
    type_: Labels | None = None,
    group: Labels | None = None,
    step: I64 | None = None,
    p2p: Mask | None = None,
    told: Mapping[str, I64] | None = None,
) -> Operations:
    """Return operations with what their names say; what is given counts before that, but for the type.

    ``told``: other columns of Operations.
    """
    parts, codes = _parts(name.names), name.codes.astype(np.int64)
    typed = _types(name, parts).take(codes)
    if type_ is not None:
        typed = typed.fill(_types(type_, _parts(type_.names)).take(type_.codes.astype(np.int64)))
    named = parts.group.take(codes)
    unknown = np.full(len(name), -1, np.int64)
    others = ("peer", "retry", "relay", "bytes", "awaited", "awaited_rank", "reached")
    sides = typed.flag([t in POINT_TO_POINT for t in typed.names])
    return Operations(
        name=_renamed(name, [n.split("@", 1)[0] for n in name.names]),  # as the device's tasks have them
        type=typed,
        group=group.fill(named) if group is not None else named,
        start=start,
        end=end,
        step=unknown if step is None else step,
        index=np.append(parts.index, -1)[codes],
        p2p=sides if p2p is None else sides | p2p,
        **{column: (told or {}).get(column, unknown) for column in others},
    )


#: What fewer names say is kept for a while.
_FEW: Final = 1_000


class _Parts(Struct, frozen=True):
    """What each distinct name says."""

    type: Labels
    digits: Labels
    group: Labels
    index: I64


def _parts(names: tuple[str, ...]) -> _Parts:
    """Take each distinct name apart; those of a file are asked for several times, and few are kept until then."""
    return _taken_apart(names) if len(names) < _FEW else _taken_apart.__wrapped__(names)


@lru_cache(8)
def _taken_apart(names: tuple[str, ...]) -> _Parts:
    found = pc.extract_regex(pa.array(names, pa.string()), _NAME)
    type_, digits, index, group = (pc.struct_field(found, part) for part in ("type", "digits", "index", "group"))
    number = pc.fill_null(pc.cast(pc.if_else(pc.equal(index, ""), None, index), pa.int64()), -1)
    running = np.asarray(number.to_numpy(zero_copy_only=False), np.int64)
    return _Parts(_labels(type_), _labels(digits), _labels(group), running)


def _labels(texts: pa.Array) -> Labels:
    coded = pc.if_else(pc.equal(texts, ""), None, texts).dictionary_encode()
    codes = pc.fill_null(coded.indices.cast(pa.int32()), -1).to_numpy(zero_copy_only=False)
    return Labels(np.asarray(codes, np.int32), tuple(coded.dictionary.to_pylist()))


def _types(name: Labels, parts: _Parts) -> Labels:
    """Return the type of each distinct name."""
    named = _renamed(parts.type, [type_of(t) for t in parts.type.names])
    others = [type_inside(n) if code < 0 else None for n, code in zip(name.names, named.codes.tolist(), strict=True)]
    return named.fill(Labels.of(others))


def _renamed(column: Labels, names: list[str]) -> Labels:
    """Return the column with other names, of which several may have become one."""
    if list(column.names) == names:
        return column
    short = Labels.of([*names])
    return Labels(np.append(short.codes, np.int32(-1))[column.codes], short.names)


# -- What timelines of the NPU's profilers say about process groups: the names of threads.

_THREAD: Final = re.compile(r"Group (.+) Communication")
#: Some exporters only number the groups.
_NUMBER: Final = re.compile(r"\d{1,6}")


def named_operations(trace: Trace, collective: Slices, parts: Parts) -> Operations:
    """Return the operations with what their events tell: elements, parts, and the group that their thread names, as in
    "Group group_name_5 Communication".
    """
    named = {key: m[1] for key, name in trace.threads.items() if (m := _THREAD.fullmatch(name))}
    groups = {key: group_hash(name) for key, name in named.items() if not _NUMBER.fullmatch(name)}
    size, told = bytes_of(collective.elements, collective.dtype), first_waits(parts, collective.start)
    group = Labels.missing(len(collective))
    if groups and len(collective):
        pid, tid = np.array([*groups], np.int64).T
        group = Labels.of([*groups.values()]).take(match_keys((collective.pid, collective.tid), (pid, tid)))
        # The digits in an operation's name are the group's last: what contradicts them is another numbering.
        ends, digits = shared_codes(Labels(group.codes, tuple(g[-3:] for g in group.names)), digits_of(collective.name))
        group = group.take(np.where(ends == digits, np.arange(len(group)), -1))
    mine = np.flatnonzero(group.known() | (size >= 0) | (told["reached"] >= 0))
    here, told = collective.take(mine), {name: column[mine] for name, column in (told | {"bytes": size}).items()}
    return operations(here.name, here.start, here.end, group=group.take(mine), told=told)

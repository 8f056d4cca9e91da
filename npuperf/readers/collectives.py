"""What PyTorch's own traces say of collectives: process groups, and of each kernel which one it is and in which group.

Groups stand in the header (distributedInfo) and in the arguments of every record_param_comms, the operator on the host
that starts a collective; newer releases repeat them at its kernel. Sources: torch/csrc/profiler/util.cpp
(saveNcclMeta), torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, torch/distributed/distributed_c10d.py, and Kineto's
output_json.cpp (appendCollectiveArgs, addOnDemandDistMetadata).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.model.communication import Operations, ProcessGroup
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels
from npuperf.readers.cells import integer
from npuperf.readers.comm_groups import POINT_TO_POINT, TYPES, GroupBook, type_inside
from npuperf.readers.join import match, match_keys, pick
from npuperf.readers.trace import Collectives, GroupText, Slices

#: What Megatron-LM calls its groups (group_desc in parallel_state.py), and the short names that its own communicator
#: configuration and MindSpeed's groups have.
_SHORT: Final = {
    "tensor_model_parallel": "tp", "pipeline_model_parallel": "pp", "data_parallel": "dp",
    "data_parallel_group_with_cp": "dp_cp", "context_parallel": "cp", "model_parallel": "mp",
    "expert_model_parallel": "exp", "embedding": "embd", "position_embedding": "pos_embd",
    "tensor_and_data_parallel": "tp_dp", "tensor_and_data_parallel_group_with_cp": "tp_dp_cp",
    "tensor_and_context_parallel": "tp_cp", "expert_tensor_parallel": "ep_tp", "expert_data_parallel": "ep_dp",
    "expert_tensor_and_model_parallel": "tp_ep", "expert_tensor_model_pipeline_parallel": "tp_ep_pp",
}  # fmt: skip
#: No group has more ranks: what says so is damage.
_MOST_RANKS: Final = 1 << 20
#: A long list of ranks as text leaves most out.
_LEFT_OUT: Final = "..."
#: Ranks that stand in a group's id one by one.
_SHOWN: Final = 8


class TorchGroups(Struct, frozen=True):
    """The groups of a trace: the ``ids`` of those that its collectives name, the ``only`` one that there is, and all.

    An id is the group's name and its ranks, as groups that were split off together have one name.
    """

    ids: tuple[str, ...]
    only: str | None
    book: GroupBook


def torch_groups(header: Mapping[str, object], texts: Sequence[GroupText]) -> TorchGroups:
    """Return the groups of a trace, with how many ranks it has; ``texts``: as collectives spell theirs."""
    info = header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    size = info.get("world_size")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _MOST_RANKS
    book = GroupBook(distributed={"world_size": size} if known and isinstance(size, int) else {})
    listed = info.get("pg_config")
    ranks_of: dict[str, tuple[int, ...]] = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(name := entry.get("pg_name"), (str, int)):
            ranks_of[str(name)] = _ranks(entry.get("ranks"))
            book.add(_group(str(name), entry.get("pg_desc"), ranks_of[str(name)]))
    ids = []
    for text in texts:
        name = next((str(n) for n in (text.name, text.number) if n not in (None, "")), "")
        ranks = _ranks(text.members) or ranks_of.get(name) or _strided(text)
        if name:
            group = _group(name, text.described, ranks)
            book.add(group)
        ids.append(group.id if name else "")
    only = [*book.groups] if len(ranks_of) == 1 and info.get("pg_count") == 1 else []
    return TorchGroups(tuple(ids), only[0] if len(only) == 1 else None, book)


def _group(name: str, described: object, ranks: tuple[int, ...]) -> ProcessGroup:
    """Name a group by its name and its ranks, and call it what the program does."""
    kind = described.removeprefix("mesh_") if isinstance(described, str) else ""
    short = kind.lower()
    kind = _SHORT.get(short.removesuffix("_group"), kind)
    return ProcessGroup(
        f"{name} ({_few(ranks)})" if ranks else name, None if short in ("", "undefined") else kind, ranks
    )


def _few(ranks: tuple[int, ...]) -> str:
    """Spell ranks shortly, different ones differently: one by one, or as first-last:step, or with a sum of all."""
    if len(ranks) <= _SHOWN:
        return ", ".join(map(str, ranks))
    steps = {b - a for a, b in pairwise(ranks)}
    if len(steps) == 1:
        step = steps.pop()
        return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step != 1 else "")
    checked = sum((i + 1) * r for i, r in enumerate(ranks))
    return f"{', '.join(map(str, ranks[:_SHOWN]))}, …, {ranks[-1]}; {len(ranks)}, {checked}"


def _ranks(value: Any) -> tuple[int, ...]:
    """Return ranks of a list or of its text; none where some are left out."""
    if isinstance(value, str):
        value = [] if _LEFT_OUT in value else [int(n) for n in re.findall(r"\d{1,9}", value)]
    if not isinstance(value, list) or not all(isinstance(v, int) and 0 <= v < 1 << 31 for v in value):
        return ()
    return tuple(dict.fromkeys(value))


def _strided(text: GroupText) -> tuple[int, ...]:
    """Return ranks at equal distances, of which the first, the distance and how many there are are told."""
    first, stride, size = (integer(part) for part in (text.first, text.stride, text.size))
    if first < 0 or not 0 < size <= _MOST_RANKS or (stride < 1 and size > 1):
        return ()
    return tuple(range(first, first + size * max(stride, 1), max(stride, 1)))[:size]


def told_operations(kernels: Slices, calls: Slices, told: Collectives, groups: TorchGroups) -> Operations:
    """Return the collectives of which a trace tells the group: by their kernels, each a row.

    ``calls``: of the runtime, which launch kernels. A kernel's own arguments count, then those of the operator that it
    names, then those of a batch (:func:`_of_batches`); the only group that there is is that of all others, too.
    """
    if not len(kernels) or not (len(told) or groups.only):
        return Operations.empty()
    own, host = np.flatnonzero(told.kernel), np.flatnonzero(~told.kernel)
    stream = np.where(kernels.stream >= 0, kernels.stream, kernels.tid)
    at = pick(own, match_keys((stream, kernels.start), (told.tid[own], told.time[own])))
    by_operator = np.where(kernels.external > 0, match(kernels.external, told.external[host]), -1)
    at = np.where(at >= 0, at, pick(host, by_operator))
    columns = [_types(told), told.group, told.peer, told.sequence]
    found = [pick(column, at) for column in columns]
    open_ = np.flatnonzero(at < 0)
    started = host[~np.isin(told.external[host], kernels.external)]
    started = started[np.isin(columns[0][started], _ENDS)]
    if len(open_) and len(started):
        _of_batches(found, open_, kernels.take(open_), calls, told.take(started), [c[started] for c in columns])
    type_, group, peer, sequence = found
    p2p = np.append([t in POINT_TO_POINT for t in TYPES], False)[type_]
    ids = Labels.of([id_ or None for id_ in groups.ids]).take(group)
    unknown = np.full(len(kernels), -1, np.int64)
    return Operations(
        name=kernels.name,
        type=Labels(type_.astype(np.int32), TYPES).compact(),
        group=ids.fill(Labels.of([groups.only]).take(np.zeros(len(kernels), np.int64))),
        start=kernels.start,
        end=kernels.end,
        step=unknown,
        index=sequence,
        p2p=p2p.astype(np.bool_),
        peer=np.where(p2p, peer, -1),
        **dict.fromkeys(("retry", "relay", "bytes", "awaited", "awaited_rank", "reached"), unknown),
    )


_ENDS: Final = [TYPES.index(t) for t in ("send", "receive")]


def _types(told: Collectives) -> I64:
    """Return which of the known types each is, -1: none of them (waiting, for instance)."""
    found = [TYPES.index(t) if (t := type_inside(name)) else -1 for name in told.type.names]
    return np.array([*found, -1], np.int64)[told.type.codes]


def _of_batches(
    found: list[I64], rows: I64, kernels: Slices, calls: Slices, started: Collectives, columns: list[I64]
) -> None:
    """Fill what is ``found`` of the ``rows`` of kernels that name no collective: type, group, peer and number.

    Sends and receives of a batch are ``started`` one by one and launched together, after the last of them: such a
    kernel is all that were started on its thread since the one before, if these are of one group.
    """
    launch = np.where(kernels.correlation > 0, match(kernels.correlation, calls.correlation), -1)
    thread, time = pick(calls.tid, launch), pick(calls.start, launch)
    for tid in distinct(thread[launch >= 0]).tolist():
        batch = np.flatnonzero(started.tid == tid)
        batch = batch[np.argsort(started.time[batch], kind="stable")]
        mine = np.flatnonzero((thread == tid) & (launch >= 0))
        mine = mine[np.argsort(time[mine], kind="stable")]
        stop = np.searchsorted(started.time[batch], time[mine])
        first = np.concatenate([[0], stop[:-1]])
        mine, first, batch = mine[stop > first], first[stop > first], batch[: int(stop.max(initial=0))]
        if not len(mine):
            continue
        low, high = ([f.reduceat(column[batch], first) for column in columns] for f in (np.minimum, np.maximum))
        one = low[1] == high[1]
        several = (TYPES.index("batchSendRecv"), -1, -1)
        for column, least, most, other in zip(found[:3], low[:3], high[:3], several, strict=True):
            column[rows[mine[one]]] = np.where(least == most, least, other)[one]
        found[3][rows[mine[one]]] = low[3][one]

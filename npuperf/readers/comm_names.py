"""What the names of communication operations say: type, last digits of the group, running number, group.

``hcom_<type>__<ddd>_<index>_<n>@<group>``; the part after @ is only in the exporter's own sums. NCCL and the kernels of
AI CPU and AI vector cores name the type somewhere in the middle.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from npuperf.model.communication import Operations
from npuperf.model.labels import I64, Labels, Mask

#: Types as HCCL spells them.
TYPES: Final = (
    "allReduce",
    "allGather",
    "reduceScatter",
    "broadcast",
    "scatter",
    "reduce",
    "gather",
    "alltoall",
    "alltoallv",
    "alltoallvc",
    "send",
    "receive",
    "batchSendRecv",
    "barrier",
)
POINT_TO_POINT: Final = ("send", "receive", "batchSendRecv")
_KNOWN: Final = {t.lower(): t for t in TYPES} | {"sendrecv": "batchSendRecv", "recv": "receive", "bcast": "broadcast"}
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


def is_point_to_point(type_: Labels) -> Mask:
    """Tell the types that have a sender and a receiver."""
    return type_.flag([t in POINT_TO_POINT for t in type_.names])


def digits_of(name: Labels) -> Labels:
    """Return the last digits of the groups that the names carry."""
    return _parts(name).digits.take(name.codes.astype(np.int64))


def without_group(name: Labels) -> Labels:
    """Return the names as the device's tasks have them, without ``@<group>``."""
    return _renamed(name, [n.split("@", 1)[0] for n in name.names])


def operations(
    name: Labels,
    start: I64,
    end: I64,
    *,
    type_: Labels | None = None,
    group: Labels | None = None,
    step: I64 | None = None,
    p2p: Mask | None = None,
    retry: I64 | None = None,
    relay: I64 | None = None,
) -> Operations:
    """Return operations with what their names say; what is given counts before that, but for the type."""
    parts, codes = _parts(name), name.codes.astype(np.int64)
    typed = _types(name, parts).take(codes)
    if type_ is not None:
        typed = typed.fill(_types(type_, _parts(type_)).take(type_.codes.astype(np.int64)))
    named = parts.group.take(codes)
    unknown = np.full(len(name), -1, np.int64)
    sides = is_point_to_point(typed)
    return Operations(
        name=without_group(name),
        type=typed,
        group=group.fill(named) if group is not None else named,
        start=start,
        end=end,
        step=unknown if step is None else step,
        index=np.append(parts.index, -1)[codes],
        p2p=sides if p2p is None else sides | p2p,
        peer=unknown,
        retry=unknown if retry is None else retry,
        relay=unknown if relay is None else relay,
    )


class _Parts(Struct, frozen=True):
    """What each distinct name says."""

    type: Labels
    digits: Labels
    group: Labels
    index: I64


def _parts(name: Labels) -> _Parts:
    """Take each distinct name apart."""
    found = pc.extract_regex(pa.array(name.names, pa.string()), _NAME)
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

"""Columns that several tables of an analysis have, and where their rows come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from npuperf.documents.analysis import Device, Range, Result
from npuperf.messages import say
from npuperf.render.tables import Cell, Column, Row

WHO: Final = (
    Column("rank", say("rank"), "id", lambda d, *_: d.rank, 0, quiet=True),
    Column("device", say("device"), "id", lambda d, *_: d.device, 0, quiet=True),
)
#: The same for rows that name their device themselves.
OF_DEVICE: Final = (
    Column("rank", say("rank"), "id", weight=0, quiet=True),
    Column("device", say("device"), "id", weight=0, quiet=True),
)
CODE: Final = Column("where", say("code line"))
TORCH_OP: Final = Column("torch_op", say("torch operator"))


def _part(field: str) -> Callable[..., Cell]:
    def get(*row: Any) -> Cell:
        found: int = getattr(row[-1].partition, field)
        return found

    return get


#: The partition of a row's innermost part.
PARTITION: Final = (
    Column("span_ns", say("span"), "ms", _part("span_ns")),
    Column("compute_ns", say("compute"), "ms", _part("compute_ns")),
    Column("comm_exposed_ns", say("comm. exposed"), "ms", _part("comm_exposed_ns")),
    Column("other_exposed_ns", say("other exposed"), "ms", _part("other_exposed_ns")),
    Column("idle_ns", say("idle"), "ms", _part("idle_ns")),
    Column("host_wait_ns", say("host wait"), "ms", _part("host_wait_ns"), 2),
    Column("launch_latency_ns", say("launch latency"), "ms", _part("launch_latency_ns"), 2),
    Column("dependency_wait_ns", say("dependency wait"), "ms", _part("dependency_wait_ns"), 2),
    Column("unattributed_ns", say("unattributed"), "ms", _part("unattributed_ns"), 2),
)


def end_of(pair: tuple[Any, ...] | None, end: int) -> Any:
    """Return one end of an interval that may be unknown."""
    return None if pair is None else pair[end]


GAIN: Final = (
    Column("gain_low_ns", say("saves per step, min"), "us", lambda *row: end_of(row[-1].gain_ns_per_step, 0)),
    Column("gain_high_ns", say("saves per step, max"), "us", lambda *row: end_of(row[-1].gain_ns_per_step, 1)),
)
BOUND: Final = Column("bound", say("verdict"), "word", lambda *row: row[-1].verdict.bound)
BASIS: Final = Column("basis", say("basis"), "word", lambda *row: row[-1].verdict.basis)


def least(values: Range | None) -> int | None:
    """Return the least of values that may be unknown."""
    return None if values is None else values.min


def greatest(values: Range | None) -> int | None:
    """Return the greatest of values that may be unknown."""
    return None if values is None else values.max


def span_of(values: Range | None) -> str | None:
    """Return both ends of values that may be unknown, as one text."""
    if values is None:
        return None
    return str(values.max) if values.min == values.max else f"{values.min}–{values.max}"


def by_device(items: Callable[[Device], Iterable[Any]]) -> Callable[[Result], Iterator[Row]]:
    """Return rows of what every device has several of."""
    return lambda result: ((device, item) for device in result.devices for item in items(device))


def alone(items: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Row]]:
    """Return rows of one part each."""
    return lambda document: ((item,) for item in items(document))

"""The tables of an analysis on cores: their use over time, limits, SuperKernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from npuperf.documents.analysis import CoresOverTime, Result
from npuperf.messages import say
from npuperf.render.shared_columns import GAIN, WHO, by_device
from npuperf.render.tables import Column, Row, Table

_IDLE: Final = (
    Column("idle_cube_core_ns", say("idle cube core time"), "core_ms"),
    Column("idle_vector_core_ns", say("idle vector core time"), "core_ms"),
)
_STREAMS: Final = Column("streams", say("streams"), get=lambda _, s: "+".join(map(str, s.streams)), weight=0)

CORES: Final = Table(
    "cores",
    say("Block Dim by core type"),
    by_device(lambda d: d.cores.by_type),
    (
        *WHO,
        Column("core", say("core"), weight=0),
        Column("kernels", say("kernels"), "count"),
        Column("total_ns", say("total"), "ms"),
        Column("blocks_unknown", say("blocks unknown"), "count", weight=2),
        Column("block_min", say("blocks, min"), "id"),
        Column("block_median", say("blocks, median"), "plain"),
        Column("block_max", say("blocks, max"), "id"),
        Column("mix_block_min", say("mix blocks, min"), "id"),
        Column("mix_block_max", say("mix blocks, max"), "id"),
        Column("occupancy", say("cores used while busy"), "percent"),
        Column("waves_max", say("waves"), "id"),
        Column("tail", say("idle in waves"), "percent"),
    ),
)
IDLE_KERNELS: Final = Table(
    "idle_kernels",
    say("kernels that leave most core time idle"),
    by_device(lambda d: d.cores.most_idle),
    (
        *WHO,
        Column("type", say("type"), weight=0),
        Column("core", say("core"), weight=0),
        Column("count", say("count"), "count"),
        Column("block_dim", say("blocks"), "id"),
        Column("cores", say("cores"), "id"),
        Column("idle_core_ns", say("idle core time"), "core_ms"),
        Column("waves", say("waves"), "id"),
        Column("tail_core_ns", say("lost in last waves"), "core_ms"),
        Column("name", say("longest"), weight=2),
    ),
)


def _over_time(items: Callable[[CoresOverTime], Iterable[Any]]) -> Callable[[Result], Iterator[Row]]:
    return by_device(lambda d: items(d.cores.over_time) if d.cores.over_time else ())


def _sides(result: Result) -> Iterator[Row]:
    for device in result.devices:
        use = device.cores.over_time
        for side, time in (("cube", use and use.cube), ("vector", use and use.vector)):
            if time:
                yield device, side, time


CORE_TIME: Final = Table(
    "core_time",
    say("cores over time"),
    _sides,
    (
        *WHO,
        Column("side", say("side"), "word", lambda _, side, time: side, 0),
        Column("cores", say("cores"), "id"),
        Column("kernel_ns", say("kernels run"), "ms"),
        Column("busy_ns", say("busy"), "ms"),
        Column("full_ns", say("no core free"), "ms"),
        Column("over_ns", say("more asked for"), "ms"),
        Column("occupied_core_ns", say("occupied core time"), "core_ms"),
        Column("idle_core_ns", say("idle core time"), "core_ms"),
    ),
)
IDLE_TYPES: Final = Table(
    "idle_types",
    say("core time left idle, by kernel type"),
    _over_time(lambda use: use.by_type),
    (
        *WHO,
        Column("type", say("type"), weight=0),
        Column("core", say("core"), weight=0),
        Column("kernels", say("kernels"), "count"),
        *_IDLE,
    ),
)
TOGETHER: Final = Table(
    "together",
    say("which streams run at the same time"),
    _over_time(lambda use: use.together),
    (*WHO, _STREAMS, Column("ns", say("time"), "ms"), *_IDLE),
)
PAIRS: Final = Table(
    "pairs",
    say("pairs of streams"),
    _over_time(lambda use: use.pairs),
    (
        *WHO,
        _STREAMS,
        Column("overlap_ns", say("side by side"), "ms"),
        Column("share", say("% of the shorter"), "share"),
        Column("over_ns", say("more cores asked for"), "ms"),
    ),
)
CONTENTION: Final = Table(
    "contention",
    say("waits for cores"),
    _over_time(lambda use: use.contention),
    (
        *WHO,
        Column("stream", say("stream"), "id", weight=0),
        Column("holders", say("cores held by"), get=lambda _, c: "+".join(map(str, c.holders)), weight=0),
        Column("kernels", say("kernels"), "count"),
        Column("least_ns", say("waited, min"), "us"),
        Column("most_ns", say("waited, max"), "us"),
        Column("full_ns", say("no core free"), "us"),
    ),
)


def _limits(result: Result) -> Iterator[Row]:
    for device in result.devices:
        for split in device.core_splits:
            for limit in split.limits:
                yield device, limit, split


CORE_LIMITS: Final = Table(
    "core_limits",
    say("core limits per stream"),
    _limits,
    (
        *WHO,
        Column("asked", say("asked"), "word", lambda _, x, split: "yes" if split.asked else "proposed"),
        Column("stream", say("stream"), "id", lambda _, x, split: x.stream, 0),
        Column("cube", say("cube"), "id", lambda _, x, split: x.cube, 0),
        Column("vector", say("vector"), "id", lambda _, x, split: x.vector, 0),
        Column("kernels", say("kernels"), "count", lambda _, x, split: x.kernels),
        *GAIN,
        Column("mode", say("mode"), "message"),
        Column("reason", say("cannot tell because"), "message"),
    ),
)
SUPER_KERNELS: Final = Table(
    "super_kernels",
    say("sequences worth a SuperKernel"),
    by_device(lambda d: d.super_kernels),
    (
        *WHO,
        Column("name", say("scope"), weight=0),
        Column("stream", say("stream"), "id"),
        Column("count", say("runs"), "count"),
        Column("kernels", say("kernels"), "count"),
        Column("segments", say("segments"), "count", lambda _, s: len(s.segments), 2),
        Column("dur_ns", say("kernels"), "us"),
        Column("gaps_ns", say("gaps"), "us"),
        *GAIN,
        Column("cube", say("cube"), "id"),
        Column("vector", say("vector"), "id"),
        Column("options", say("options"), get=lambda _, s: ":".join(f"{o.key}={o.value}" for o in s.options), weight=2),
        Column("types", say("types"), get=lambda _, s: " ".join(s.types), weight=2),
    ),
)


def _saved(_: object, check: Any) -> int | None:
    old, new = check.compared.old_ns, check.compared.new_ns
    return None if old is None or new is None else old - new


SUPER_KERNEL_CHECKS: Final = Table(
    "super_kernel_checks",
    say("SuperKernels and the kernels they replaced"),
    by_device(lambda d: d.super_kernel_checks),
    (
        *WHO,
        Column("scope", say("scope"), get=lambda _, c: c.compared.name, weight=0),
        Column("verdict", say("verdict"), "word", lambda _, c: c.compared.verdict, 0),
        Column("basis", say("basis"), "word", weight=2),
        Column("count", say("runs"), "count", lambda _, c: c.compared.count),
        Column("parts", say("parts"), "count", weight=2),
        Column("kernels", say("kernels"), "count", weight=2),
        Column("before_ns", say("before"), "us", lambda _, c: c.compared.old_ns),
        Column("gaps_ns", say("of it gaps"), "us"),
        Column("after_ns", say("after"), "us", lambda _, c: c.compared.new_ns),
        Column("saved_ns", say("saved"), "us", _saved),
        Column("block_dim", say("cores"), "id"),
        Column("block_expected", say("expected"), "id"),
        Column("reason", say("why"), "message"),
    ),
)

TABLES: Final = (
    CORES, IDLE_KERNELS, CORE_TIME, IDLE_TYPES, TOGETHER, PAIRS, CONTENTION, CORE_LIMITS, SUPER_KERNELS,
    SUPER_KERNEL_CHECKS,
)  # fmt: skip

"""The tables of an analysis. Those on cores and their limits are in ``core_tables``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from npuperf.documents.analysis import Result
from npuperf.messages import say
from npuperf.render import core_tables as cores
from npuperf.render.shared_columns import (
    BASIS,
    BOUND,
    CODE,
    GAIN,
    OF_DEVICE,
    PARTITION,
    TORCH_OP,
    WHO,
    alone,
    by_device,
    greatest,
    least,
)
from npuperf.render.tables import Cell, Column, Row, Table

DEVICES: Final = Table(
    "devices", say("devices"), alone(lambda result: result.devices), (*WHO, *PARTITION, BOUND, BASIS)
)


def _elasticity(resource: str) -> Callable[..., Cell]:
    def get(*row: object) -> Cell:
        found = row[-1].verdict.elasticity  # type: ignore[attr-defined]
        return None if found is None else float(getattr(found, resource))

    return get


PHASES: Final = Table(
    "phases",
    say("phases"),
    by_device(lambda d: d.phases),
    (
        *WHO,
        Column("start_ns", say("start"), "ms", weight=0),
        Column("end_ns", say("end"), "ms", weight=0),
        BOUND,
        BASIS,
        Column("label", say("part"), "message"),
        Column("first_step", say("first step"), "id", weight=2),
        Column("last_step", say("last step"), "id", weight=2),
        *PARTITION,
        Column("elasticity_host", say("10 % less host"), "tenth", _elasticity("host"), 2),
        Column("elasticity_compute", say("10 % less compute"), "tenth", _elasticity("compute"), 2),
        Column("elasticity_communication", say("10 % less comm."), "tenth", _elasticity("communication"), 2),
        Column(
            "blame",
            say("mostly to blame"),
            get=lambda _, p: f"{p.blame[0].cause}: {p.blame[0].name}" if p.blame else None,
        ),
        CODE,
        Column(
            "kernels", say("longest types"), get=lambda _, p: ", ".join(k.type for k in p.kernels) or None, weight=2
        ),
    ),
)


def _typical(result: Result) -> Iterator[Row]:
    for device in result.devices:
        for phase in device.typical_step.phases if device.typical_step else ():
            yield device, device.typical_step, phase


TYPICAL: Final = Table(
    "typical",
    say("the typical step"),
    _typical,
    (
        *WHO,
        Column("bound", say("verdict"), "word"),
        Column("label", say("part"), "message"),
        Column("start_ns", say("start, median"), "ms", lambda *row: row[-1].start.median_ns),
        Column("end_ns", say("end, median"), "ms", lambda *row: row[-1].end.median_ns),
        Column("min_ns", say("length, min"), "ms", lambda *row: row[-1].length.min_ns),
        Column("median_ns", say("length, median"), "ms", lambda *row: row[-1].length.median_ns),
        Column("max_ns", say("length, max"), "ms", lambda *row: row[-1].length.max_ns),
        Column("steps", say("of steps"), "count", lambda _, typical, phase: typical.steps),
    ),
)
BLAME: Final = Table(
    "blame",
    say("what the host did while the device waited for it"),
    by_device(lambda d: d.blame),
    (
        *WHO,
        Column("cause", say("cause"), "word", weight=0),
        Column("name", say("doing"), weight=0),
        Column("ns", say("waiting for the host"), "ms"),
        Column("share", say("% of the wait"), "share", lambda d, b: b.ns / d.partition.host_wait_ns),
        Column("count", say("pieces"), "count", weight=2),
        CODE,
    ),
)
SYNCS: Final = Table(
    "syncs",
    say("where the host waits for the device"),
    by_device(lambda d: d.syncs),
    (
        *WHO,
        Column("name", say("call"), weight=0),
        TORCH_OP,
        Column("count", say("count"), "count"),
        Column("host_ns", say("host waited"), "ms"),
        Column("idle_ns", say("device idle after"), "ms"),
        *GAIN,
        CODE,
    ),
)
WHAT_IF: Final = Table(
    "what_if",
    say("what if (replayed)"),
    alone(lambda result: result.what_if),
    (
        *OF_DEVICE,
        Column("expr", say("what if"), weight=0),
        Column("span_ns", say("window then"), "ms"),
        Column("gain_pct", say("saves"), "number"),
        *GAIN,
        Column("title", say("that is"), "message"),
        Column("reason", say("cannot tell because"), "message"),
    ),
)
STEPS: Final = Table(
    "steps",
    say("steps"),
    by_device(lambda d: d.steps),
    (
        *WHO,
        Column("step", say("step"), "id", weight=0),
        Column("start_ns", say("start"), "ms", weight=2),
        *PARTITION,
        BOUND,
        BASIS,
    ),
)
STREAMS: Final = Table(
    "streams",
    say("streams, each on its own (their idle time overlaps)"),
    by_device(lambda d: d.streams),
    (*WHO, Column("stream", say("stream"), "id", weight=0), Column("tasks", say("tasks"), "count"), *PARTITION),
)
OPERATORS: Final = Table(
    "operators",
    say("operators by total time"),
    alone(lambda result: result.operators),
    (
        Column("type", say("type"), weight=0),
        Column("core", say("core"), weight=0),
        Column("count", say("count"), "count"),
        Column("total_ns", say("total"), "ms"),
        Column("share", say("% of operator time"), "share"),
        Column("min_ns", say("min"), "us"),
        Column("max_ns", say("max"), "us"),
        Column("block_min", say("blocks, min"), "id", lambda o: least(o.block_dim)),
        Column("block_max", say("blocks, max"), "id", lambda o: greatest(o.block_dim)),
        Column("mix_block_min", say("mix blocks, min"), "id", lambda o: least(o.mix_block_dim), 2),
        Column("mix_block_max", say("mix blocks, max"), "id", lambda o: greatest(o.mix_block_dim), 2),
        Column("occupancy_cube", say("cube cores used"), "percent"),
        Column("occupancy_vector", say("vector cores used"), "percent"),
        Column("pmu_bound", say("unit bound"), "word", lambda o: o.pmu.bound if o.pmu else None),
        Column("first_ns", say("first at"), "ms", weight=3),
        Column("last_ns", say("last at"), "ms", weight=3),
        Column("torch_op", say("torch operator"), weight=2),
        CODE,
    ),
    usual=True,
)
KERNELS: Final = Table(
    "kernels",
    say("longest kernels"),
    alone(lambda result: result.kernels),
    (
        *OF_DEVICE,
        Column("name", say("kernel"), weight=0),
        Column("type", say("type"), weight=2),
        Column("core", say("core")),
        Column("stream", say("stream"), "id"),
        Column("step", say("step"), "id"),
        Column("start_ns", say("start"), "ms"),
        Column("dur_ns", say("duration"), "us", weight=0),
        Column("block_dim", say("blocks"), "id"),
        Column("mix_block_dim", say("mix blocks"), "id"),
        TORCH_OP,
        CODE,
    ),
)
COUNTERS: Final = Table(
    "counters",
    say("hardware counters by operator"),
    lambda result: ((o, o.pmu) for o in result.operators if o.pmu),
    (
        Column("type", say("type"), get=lambda o, _: o.type, weight=0),
        Column("core", say("core"), get=lambda o, _: o.core, weight=0),
        Column("bound", say("unit bound"), "word"),
        Column("rule", say("rule"), "message"),
        Column(
            "means",
            say("means over time"),
            get=lambda _, pmu: ", ".join(f"{k} {v:.3g}" for k, v in pmu.means.items() if v),
        ),
    ),
)
VENDOR: Final = Table(
    "vendor",
    say("against step_trace_time.csv (ours minus theirs)"),
    by_device(lambda d: d.vendor),
    (
        *WHO,
        Column("step", say("step"), "id", weight=0),
        Column("agrees", say("agrees"), "word", lambda _, v: "yes" if v.agrees else "no"),
        Column("span_diff_ns", say("span"), "us"),
        Column("compute_diff_ns", say("compute"), "us"),
        Column("comm_exposed_diff_ns", say("communication, exposed"), "us"),
        Column("free_diff_ns", say("idle and other"), "us"),
        Column("why", say("why"), "message"),
    ),
)


def _gates(result: Result) -> Iterator[Row]:
    for gate in result.gates:
        for over in gate.over or (None,):
            yield gate, over


GATES: Final = Table(
    "gates",
    say("gates"),
    _gates,
    (
        Column("expr", say("gate"), get=lambda g, _: g.expr, weight=0),
        Column("status", say("status"), "word", lambda g, _: g.status, 0),
        Column("value", say("found"), "plain", lambda g, _: g.value),
        Column("limit", say("limit"), "plain", lambda g, _: g.limit),
        Column("reason", say("reason"), "message", lambda g, _: g.reason),
        Column("rank", say("rank"), "id", lambda _, o: o and o.rank, 1, quiet=True),
        Column("device", say("device"), "id", lambda _, o: o and o.device, 1, quiet=True),
        Column("stream", say("stream"), "id", lambda _, o: o and o.stream),
        Column("type", say("type"), get=lambda _, o: o and o.type),
        Column("core", say("core"), get=lambda _, o: o and o.core),
        Column("count", say("kernels"), "count", lambda _, o: o and o.count),
        Column("cube", say("cube"), "id", lambda _, o: o and o.cube),
        Column("vector", say("vector"), "id", lambda _, o: o and o.vector),
        Column("likely", say("likely"), "message", lambda _, o: o and o.reason),
    ),
)
FINDINGS: Final = Table(
    "findings",
    say("findings"),
    alone(lambda result: result.findings),
    (
        *OF_DEVICE,
        Column("rule", say("rule"), weight=0),
        Column("status", say("status"), "word"),
        Column("severity", say("severity"), "word"),
        Column("title", say("finding"), "message", weight=0),
        *GAIN,
        Column("next", say("next"), "message"),
        Column("refute", say("not the cause if"), "message", weight=2),
        Column("source", say("source"), "message", weight=2),
    ),
)

TABLES: Final = (
    DEVICES, PHASES, TYPICAL, BLAME, SYNCS, WHAT_IF, STEPS, STREAMS, OPERATORS, KERNELS,
    *cores.TABLES, COUNTERS, VENDOR, GATES, FINDINGS,
)  # fmt: skip

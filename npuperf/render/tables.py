"""The tables of a result: what stands in which column, once for all formats.

Cells are raw values of the document (ns, fractions, counts); each column knows its unit, so that text and
Markdown can format what CSV writes as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from npuperf.model.result import Device, Partition, Result, Verdict

Unit = Literal["text", "count", "ms", "us", "percent", "core_ms"]
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """``key`` is the name in CSV, ``header`` that for people (the unit is appended)."""

    key: str
    header: str
    unit: Unit = "text"

    @property
    def title(self) -> str:
        """Header with its unit."""
        unit = {"ms": "ms", "us": "µs", "percent": "%", "core_ms": "core·ms"}.get(self.unit)
        return f"{self.header} ({unit})" if unit else self.header

    def format(self, value: Cell) -> str:
        """Render a cell for people."""
        if value is None:
            return "–"
        if self.unit in ("ms", "core_ms"):
            return f"{float(value) / 1e6:,.3f}".replace(",", " ")
        if self.unit == "us":
            return f"{float(value) / 1e3:,.3f}".replace(",", " ")
        if self.unit == "percent":
            return f"{100 * float(value):.1f}"
        if self.unit == "count":
            return f"{value:,}".replace(",", " ")
        return str(value)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw cells under typed columns.

    ``name`` is what ``--table`` takes; the first ``keys`` columns say what a row is about.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[Cell, ...]]
    keys: int = 2


_WHO = (Column("rank", "rank", "count"), Column("device", "device", "count"))
_PARTS = (
    Column("span_ns", "span", "ms"),
    Column("compute_ns", "compute", "ms"),
    Column("comm_exposed_ns", "comm. exposed", "ms"),
    Column("other_exposed_ns", "other", "ms"),
    Column("idle_ns", "idle", "ms"),
    Column("host_wait_ns", "host wait", "ms"),
    Column("launch_latency_ns", "launch latency", "ms"),
    Column("dependency_wait_ns", "dependency wait", "ms"),
    Column("unattributed_ns", "unattributed", "ms"),
)
_JUDGED = (Column("bound", "verdict"), Column("basis", "basis"))


def _parts(p: Partition) -> tuple[Cell, ...]:
    return tuple(getattr(p, column.key) for column in _PARTS)


def _judged(v: Verdict) -> tuple[Cell, ...]:
    return (v.bound, v.basis)


def _who(d: Device) -> tuple[Cell, ...]:
    return (d.rank, d.device)


def devices(result: Result) -> Table:
    """One row per device: the partition of its whole span."""
    rows = [(*_who(d), *_parts(d.partition), *_judged(d.verdict)) for d in result.devices]
    return Table("devices", "devices", (*_WHO, *_PARTS, *_JUDGED), rows)


def steps(result: Result) -> Table:
    """One row per device and step."""
    columns = (*_WHO, Column("step", "step", "count"), Column("start_ns", "start", "ms"), *_PARTS, *_JUDGED)
    rows = [
        (*_who(d), s.step, s.start_ns, *_parts(s.partition), *_judged(s.verdict))
        for d in result.devices
        for s in d.steps
    ]
    return Table("steps", "steps", columns, rows, keys=3)


def streams(result: Result) -> Table:
    """One row per device and stream, each split on its own."""
    columns = (*_WHO, Column("stream", "stream", "count"), Column("tasks", "tasks", "count"), *_PARTS)
    rows = [(*_who(d), s.stream, s.tasks, *_parts(s.partition)) for d in result.devices for s in d.streams]
    return Table("streams", "streams, each on its own (their idle time overlaps)", columns, rows, keys=3)


def operators(result: Result) -> Table:
    """One row per operator type and core."""
    columns = (
        Column("type", "type"),
        Column("core", "core"),
        Column("count", "count", "count"),
        Column("total_ns", "total", "ms"),
        Column("share", "share", "percent"),
        Column("min_ns", "min", "us"),
        Column("max_ns", "max", "us"),
        Column("block_min", "blocks min", "count"),
        Column("block_max", "blocks max", "count"),
        Column("mix_block_min", "mix blocks min", "count"),
        Column("mix_block_max", "mix blocks max", "count"),
        Column("occupancy_cube", "cube cores used", "percent"),
        Column("occupancy_vector", "vector cores used", "percent"),
        Column("pmu_bound", "unit bound"),
        Column("first_ns", "first at", "ms"),
        Column("last_ns", "last at", "ms"),
        Column("torch_op", "torch operator"),
        Column("where", "code line"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            o.type,
            o.core,
            o.count,
            o.total_ns,
            o.share,
            o.min_ns,
            o.max_ns,
            o.block_dim.min if o.block_dim else None,
            o.block_dim.max if o.block_dim else None,
            o.mix_block_dim.min if o.mix_block_dim else None,
            o.mix_block_dim.max if o.mix_block_dim else None,
            o.occupancy_cube,
            o.occupancy_vector,
            o.pmu.bound if o.pmu else None,
            o.first_ns,
            o.last_ns,
            o.torch_op,
            o.where,
        )
        for o in result.operators
    ]
    return Table("operators", "operators by total time", columns, rows)


def kernels(result: Result) -> Table:
    """The longest single kernels."""
    columns = (
        *_WHO,
        Column("name", "kernel"),
        Column("type", "type"),
        Column("core", "core"),
        Column("stream", "stream", "count"),
        Column("step", "step", "count"),
        Column("start_ns", "start", "ms"),
        Column("dur_ns", "duration", "us"),
        Column("block_dim", "blocks", "count"),
        Column("mix_block_dim", "mix blocks", "count"),
        Column("torch_op", "torch operator"),
        Column("where", "code line"),
    )
    names = [c.key for c in columns]
    rows = [tuple(getattr(k, name) for name in names) for k in result.kernels]
    return Table("kernels", "longest kernels", columns, rows, keys=3)


def cores(result: Result) -> Table:
    """Block Dim and Mix Block Dim per core type."""
    columns = (
        *_WHO,
        Column("core", "core"),
        Column("kernels", "kernels", "count"),
        Column("total_ns", "total", "ms"),
        Column("blocks_unknown", "blocks unknown", "count"),
        Column("block_min", "blocks min", "count"),
        Column("block_median", "median", "count"),
        Column("block_max", "max", "count"),
        Column("mix_block_min", "mix blocks min", "count"),
        Column("mix_block_max", "max", "count"),
        Column("occupancy", "cores used while busy", "percent"),
        Column("waves_max", "waves", "count"),
        Column("tail", "tail loss", "percent"),
    )
    names = [c.key for c in columns[2:]]
    rows = [(*_who(d), *(getattr(t, name) for name in names)) for d in result.devices for t in d.cores.by_type]
    return Table("cores", "Block Dim by core type", columns, rows, keys=3)


def idle_kernels(result: Result) -> Table:
    """The kernels that leave most core time idle while they run."""
    columns = (
        *_WHO,
        Column("type", "type"),
        Column("core", "core"),
        Column("count", "count", "count"),
        Column("block_dim", "blocks", "count"),
        Column("cores", "cores", "count"),
        Column("idle_core_ns", "idle core time", "core_ms"),
        Column("name", "longest"),
    )
    names = [c.key for c in columns[2:]]
    rows = [(*_who(d), *(getattr(k, n) for n in names)) for d in result.devices for k in d.cores.most_idle]
    return Table("idle_kernels", "kernels that leave most core time idle", columns, rows, keys=4)


def counters(result: Result) -> Table:
    """Hardware counters per operator: the rule that judged them, and the means."""
    columns = (
        Column("type", "type"),
        Column("core", "core"),
        Column("bound", "unit bound"),
        Column("rule", "rule"),
        Column("means", "means over time"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            o.type,
            o.core,
            o.pmu.bound,
            o.pmu.rule,
            ", ".join(f"{k} {v:.3g}" for k, v in o.pmu.means.items() if v),
        )
        for o in result.operators
        if o.pmu
    ]
    return Table("counters", "hardware counters by operator", columns, rows)


def vendor(result: Result) -> Table:
    """Our partition against the exporter's own."""
    columns = (
        *_WHO,
        Column("step", "step", "count"),
        Column("agrees", "agrees"),
        Column("span_diff_ns", "span diff", "us"),
        Column("compute_diff_ns", "compute diff", "us"),
        Column("comm_exposed_diff_ns", "comm. exposed diff", "us"),
        Column("free_diff_ns", "idle and other diff", "us"),
        Column("why", "why"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(d),
            v.step,
            "yes" if v.agrees else "no",
            v.span_diff_ns,
            v.compute_diff_ns,
            v.comm_exposed_diff_ns,
            v.free_diff_ns,
            v.why,
        )
        for d in result.devices
        for v in d.vendor
    ]
    return Table("vendor", "against step_trace_time.csv (ours minus theirs)", columns, rows, keys=3)


def findings(result: Result) -> Table:
    """What rules found, and what they could not tell."""
    columns = (
        *_WHO,
        Column("rule", "rule"),
        Column("status", "status"),
        Column("severity", "severity"),
        Column("title", "finding"),
        Column("gain_low_ns", "gain per step, least", "us"),
        Column("gain_high_ns", "gain per step, most", "us"),
        Column("next", "next"),
        Column("refute", "refuted if"),
        Column("source", "source"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            f.rank,
            f.device,
            f.rule,
            f.status,
            f.severity,
            f.title,
            *(f.gain_ns_per_step or (None, None)),
            f.next,
            f.refute,
            f.source,
        )
        for f in result.findings
    ]
    return Table("findings", "findings", columns, rows)


TABLES: dict[str, Callable[[Result], Table]] = {
    f.__name__: f
    for f in (
        devices,
        steps,
        streams,
        operators,
        kernels,
        cores,
        idle_kernels,
        counters,
        vendor,
        findings,
    )
}


def how_many(shown: int, total: int, what: str) -> str:
    """Say how much of a list is shown."""
    return f"{shown} of {total} {what}" if shown < total else f"{total} {what}"


def evidence(value: Any) -> str:
    """Render one number of a verdict's evidence."""
    return "–" if value is None else f"{100 * value:.1f} %"

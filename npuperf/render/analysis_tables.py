"""The tables of a result: what stands in which column, once for all formats.

Cells are raw values of the document (ns, fractions, counts); each column knows its unit, so that text and
Markdown can format what CSV writes as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from npuperf.documents.analysis import Device, Partition, Result, Verdict

Unit = Literal["text", "count", "ms", "us", "percent", "number", "tenth", "core_ms", "plain"]
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
        unit = {"ms": "ms", "us": "µs", "percent": "%", "number": "%", "tenth": "%", "core_ms": "core·ms"}.get(
            self.unit
        )
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
        if self.unit == "number":
            return f"{float(value):.1f}"
        if self.unit == "plain":
            return f"{float(value):,.3f}".rstrip("0").rstrip(".").replace(",", " ")
        if self.unit == "tenth":
            return f"{10 * float(value):.1f}"
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
_GAIN = (
    Column("gain_low_ns", "gain per step, least", "us"),
    Column("gain_high_ns", "gain per step, most", "us"),
)
_ELASTICITY = (
    Column("elasticity_host", "10 % less host", "tenth"),
    Column("elasticity_compute", "10 % less compute", "tenth"),
    Column("elasticity_communication", "10 % less comm.", "tenth"),
)
_JUDGED = (Column("bound", "verdict"), Column("basis", "basis"))


def _parts(p: Partition) -> tuple[Cell, ...]:
    return tuple(getattr(p, column.key) for column in _PARTS)


def _judged(v: Verdict) -> tuple[Cell, ...]:
    return (v.bound, v.basis)


def _elasticity(v: Verdict) -> tuple[Cell, ...]:
    e = v.elasticity
    return (e.host, e.compute, e.communication) if e else (None, None, None)


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


def phases(result: Result) -> Table:
    """One row per device and phase."""
    columns = (
        *_WHO,
        Column("start_ns", "start", "ms"),
        Column("end_ns", "end", "ms"),
        *_JUDGED,
        Column("label", "part"),
        Column("first_step", "first step", "count"),
        Column("last_step", "last step", "count"),
        *_PARTS,
        *_ELASTICITY,
        Column("blame", "mostly to blame"),
        Column("where", "code line"),
        Column("kernels", "longest types"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(d),
            p.start_ns,
            p.end_ns,
            p.bound,
            p.verdict.basis,
            p.label or None,
            p.first_step,
            p.last_step,
            *_parts(p.partition),
            *_elasticity(p.verdict),
            f"{p.blame[0].cause}: {p.blame[0].name}" if p.blame else None,
            p.where,
            ", ".join(k.type for k in p.kernels) or None,
        )
        for d in result.devices
        for p in d.phases
    ]
    return Table("phases", "phases", columns, rows, keys=4)


def typical(result: Result) -> Table:
    """The usual phases of a step: where they begin and end in it, over all usual steps."""
    columns = (
        *_WHO,
        Column("bound", "verdict"),
        Column("label", "part"),
        Column("start_ns", "start, median", "ms"),
        Column("end_ns", "end, median", "ms"),
        Column("min_ns", "length, least", "ms"),
        Column("median_ns", "median", "ms"),
        Column("max_ns", "greatest", "ms"),
        Column("steps", "of steps", "count"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(d),
            p.bound,
            p.label or None,
            p.start.median_ns,
            p.end.median_ns,
            p.length.min_ns,
            p.length.median_ns,
            p.length.max_ns,
            d.typical_step.steps,
        )
        for d in result.devices
        if d.typical_step
        for p in d.typical_step.phases
    ]
    return Table("typical", "the typical step", columns, rows, keys=4)


def blame(result: Result) -> Table:
    """What the launching thread did while the device waited for it; adds up to host wait."""
    columns = (
        *_WHO,
        Column("cause", "cause"),
        Column("name", "doing"),
        Column("ns", "host wait", "ms"),
        Column("share", "share", "percent"),
        Column("count", "pieces", "count"),
        Column("where", "code line"),
    )
    rows: list[tuple[Cell, ...]] = [
        (*_who(d), b.cause, b.name, b.ns, b.ns / d.partition.host_wait_ns, b.count, b.where)
        for d in result.devices
        for b in d.blame
    ]
    return Table("blame", "what the host was doing while the device waited for it", columns, rows, keys=4)


def syncs(result: Result) -> Table:
    """Where the host waits for the device."""
    columns = (
        *_WHO,
        Column("name", "call"),
        Column("torch_op", "torch operator"),
        Column("count", "count", "count"),
        Column("host_ns", "host waited", "ms"),
        Column("idle_ns", "device idle after", "ms"),
        *_GAIN,
        Column("where", "code line"),
    )
    rows: list[tuple[Cell, ...]] = [
        (*_who(d), s.name, s.torch_op, s.count, s.host_ns, s.idle_ns, *(s.gain_ns_per_step or (None, None)), s.where)
        for d in result.devices
        for s in d.syncs
    ]
    return Table("syncs", "where the host waits for the device", columns, rows, keys=3)


def what_if(result: Result) -> Table:
    """Modelled changes, the user's own first."""
    columns = (
        *_WHO,
        Column("expr", "what if"),
        Column("span_ns", "window then", "ms"),
        Column("gain_pct", "gain", "number"),
        *_GAIN,
        Column("title", "that is"),
        Column("reason", "cannot tell because"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            w.rank,
            w.device,
            w.expr,
            w.span_ns,
            w.gain_pct,
            *(w.gain_ns_per_step or (None, None)),
            w.title or None,
            w.reason,
        )
        for w in result.what_if
    ]
    return Table("what_if", "what if (replayed)", columns, rows, keys=3)


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
        Column("tail", "idle in waves", "percent"),
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
        Column("waves", "waves", "count"),
        Column("tail_core_ns", "lost in last waves", "core_ms"),
        Column("name", "longest"),
    )
    names = [c.key for c in columns[2:]]
    rows = [(*_who(d), *(getattr(k, n) for n in names)) for d in result.devices for k in d.cores.most_idle]
    return Table("idle_kernels", "kernels that leave most core time idle", columns, rows, keys=4)


def core_time(result: Result) -> Table:
    """The occupancy of each side's cores over time."""
    columns = (
        *_WHO,
        Column("side", "side"),
        Column("cores", "cores", "count"),
        Column("kernel_ns", "kernels run", "ms"),
        Column("busy_ns", "busy", "ms"),
        Column("full_ns", "no core free", "ms"),
        Column("over_ns", "more asked for", "ms"),
        Column("occupied_core_ns", "occupied core time", "core_ms"),
        Column("idle_core_ns", "idle core time", "core_ms"),
    )
    names = [c.key for c in columns[3:]]
    rows = [
        (*_who(d), side, *(getattr(t, n) for n in names))
        for d in result.devices
        if d.cores.over_time
        for side, t in (("cube", d.cores.over_time.cube), ("vector", d.cores.over_time.vector))
        if t
    ]
    return Table("core_time", "cores over time", columns, rows, keys=3)


_IDLE = (
    Column("idle_cube_core_ns", "idle cube core time", "core_ms"),
    Column("idle_vector_core_ns", "idle vector core time", "core_ms"),
)


def idle_types(result: Result) -> Table:
    """Core time left idle while kernels of a type run."""
    columns = (*_WHO, Column("type", "type"), Column("core", "core"), Column("kernels", "kernels", "count"), *_IDLE)
    names = [c.key for c in columns[2:]]
    rows = [
        (*_who(d), *(getattr(t, n) for n in names))
        for d in result.devices
        if d.cores.over_time
        for t in d.cores.over_time.by_type
    ]
    return Table("idle_types", "core time left idle, by kernel type", columns, rows, keys=4)


def together(result: Result) -> Table:
    """The time in which kernels of exactly these streams run."""
    columns = (*_WHO, Column("streams", "streams"), Column("ns", "time", "ms"), *_IDLE)
    rows = [
        (*_who(d), "+".join(map(str, s.streams)), s.ns, s.idle_cube_core_ns, s.idle_vector_core_ns)
        for d in result.devices
        if d.cores.over_time
        for s in d.cores.over_time.together
    ]
    return Table("together", "which streams run at the same time", columns, rows, keys=3)


def pairs(result: Result) -> Table:
    """What of two streams is truly parallel."""
    columns = (
        *_WHO,
        Column("streams", "streams"),
        Column("overlap_ns", "side by side", "ms"),
        Column("share", "of the shorter", "percent"),
        Column("over_ns", "more cores asked for", "ms"),
    )
    rows = [
        (*_who(d), "+".join(map(str, p.streams)), p.overlap_ns, p.share, p.over_ns)
        for d in result.devices
        if d.cores.over_time
        for p in d.cores.over_time.pairs
    ]
    return Table("pairs", "pairs of streams", columns, rows, keys=3)


def contention(result: Result) -> Table:
    """Waits for cores that other streams hold."""
    columns = (
        *_WHO,
        Column("stream", "stream", "count"),
        Column("holders", "cores held by"),
        Column("kernels", "kernels", "count"),
        Column("least_ns", "waited, least", "us"),
        Column("most_ns", "most", "us"),
        Column("full_ns", "no core free", "us"),
    )
    rows = [
        (*_who(d), c.stream, "+".join(map(str, c.holders)), c.kernels, c.least_ns, c.most_ns, c.full_ns)
        for d in result.devices
        if d.cores.over_time
        for c in d.cores.over_time.contention
    ]
    return Table("contention", "waits for cores", columns, rows, keys=3)


def core_limits(result: Result) -> Table:
    """Core limits per stream, asked for and proposed, replayed: one row per limit."""
    columns = (
        *_WHO,
        Column("asked", "asked"),
        Column("stream", "stream", "count"),
        Column("cube", "cube", "count"),
        Column("vector", "vector", "count"),
        Column("kernels", "kernels", "count"),
        *_GAIN,
        Column("mode", "mode"),
        Column("reason", "cannot tell"),
    )
    rows = [
        (
            *_who(d),
            "yes" if s.asked else "proposed",
            x.stream,
            x.cube,
            x.vector,
            x.kernels,
            *(s.gain_ns_per_step or (None, None)),
            s.mode,
            s.reason,
        )
        for d in result.devices
        for s in d.core_splits
        for x in s.limits
    ]
    return Table("core_limits", "core limits per stream", columns, rows, keys=4)


def super_kernels(result: Result) -> Table:
    """Sequences worth a SuperKernel."""
    columns = (
        *_WHO,
        Column("name", "scope"),
        Column("stream", "stream", "count"),
        Column("count", "runs", "count"),
        Column("kernels", "kernels", "count"),
        Column("segments", "segments", "count"),
        Column("dur_ns", "kernels", "us"),
        Column("gaps_ns", "gaps", "us"),
        *_GAIN,
        Column("cube", "cube", "count"),
        Column("vector", "vector", "count"),
        Column("options", "options"),
        Column("types", "types"),
    )
    rows = [
        (
            *_who(d),
            s.name,
            s.stream,
            s.count,
            s.kernels,
            len(s.segments),
            s.dur_ns,
            s.gaps_ns,
            *s.gain_ns_per_step,
            s.cube,
            s.vector,
            ":".join(f"{o.key}={o.value}" for o in s.options),
            " ".join(s.types),
        )
        for d in result.devices
        for s in d.super_kernels
    ]
    return Table("super_kernels", "sequences worth a SuperKernel", columns, rows, keys=3)


def super_kernel_checks(result: Result) -> Table:
    """SuperKernels against the kernels they replaced."""
    columns = (
        *_WHO,
        Column("scope", "scope"),
        Column("verdict", "verdict"),
        Column("basis", "basis"),
        Column("count", "runs", "count"),
        Column("parts", "parts", "count"),
        Column("kernels", "kernels", "count"),
        Column("before_ns", "before", "us"),
        Column("gaps_ns", "of it gaps", "us"),
        Column("after_ns", "after", "us"),
        Column("saved_ns", "saved", "us"),
        Column("block_dim", "cores", "count"),
        Column("block_expected", "expected", "count"),
        Column("reason", "why"),
    )
    names = [c.key for c in columns[2:]]
    rows = [(*_who(d), *(getattr(c, n) for n in names)) for d in result.devices for c in d.super_kernel_checks]
    return Table("super_kernel_checks", "SuperKernels against the earlier profile", columns, rows, keys=3)


def gates(result: Result) -> Table:
    """Gates, and for core limits the kernels above them: one row per kind of kernel."""
    columns = (
        Column("expr", "gate"),
        Column("status", "status"),
        Column("value", "found", "plain"),
        Column("limit", "at most", "plain"),
        Column("reason", "reason"),
        *_WHO,
        Column("stream", "stream", "count"),
        Column("type", "type"),
        Column("core", "core"),
        Column("count", "kernels", "count"),
        Column("cube", "cube", "count"),
        Column("vector", "vector", "count"),
        Column("likely", "likely"),
    )
    rows: list[tuple[Cell, ...]] = []
    for g in result.gates:
        head = (g.expr, g.status, g.value, g.limit, g.reason)
        over = [(o.rank, o.device, o.stream, o.type, o.core, o.count, o.cube, o.vector, o.reason) for o in g.over]
        rows += [(*head, *row) for row in over] or [(*head, *[None] * 9)]
    return Table("gates", "gates", columns, rows, keys=1)


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
        *_GAIN,
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
        phases,
        typical,
        blame,
        syncs,
        what_if,
        steps,
        streams,
        operators,
        kernels,
        cores,
        idle_kernels,
        core_time,
        idle_types,
        together,
        pairs,
        contention,
        core_limits,
        super_kernels,
        super_kernel_checks,
        counters,
        vendor,
        gates,
        findings,
    )
}


def how_many(shown: int, total: int, what: str) -> str:
    """Say how much of a list is shown."""
    if total == 1:
        what = what.removesuffix("ies") + "y" if what.endswith("ies") else what.removesuffix("s")
    return f"{shown} of {total} {what}" if shown < total else f"{total} {what}"


def evidence(value: Any) -> str:
    """Render one number of a verdict's evidence."""
    return "–" if value is None else f"{100 * value:.1f} %"

"""The tables of an analysis, each declared once, one line per column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from npuperf.base.messages import Message, chain, mib, say, series
from npuperf.base.units import short_names
from npuperf.model.memory_result import Memory, MemoryGraph
from npuperf.model.result import Phase, Result
from npuperf.show.comparison_text import COMPARISON_TABLES
from npuperf.show.efficiency_tables import (
    COLLECTIVES,
    EFFICIENCY_TABLES,
    OPERATOR_COLUMNS,
    ROOFLINE,
    no_collectives,
    no_efficiency,
    no_idle,
    no_modules,
    no_parts,
    no_roofs,
    operators_of,
)
from npuperf.show.job_text import CLUSTER_TABLES
from npuperf.show.tables import EXTRA, WHO, Column, Row, Table, each, tables_of
from npuperf.show.words import CAUSE, WORDS


def _sides(result: Result) -> Iterator[Row]:
    for device in result.devices:
        use = device.cores.over_time
        for side, time in (("cube", use and use.cube), ("vector", use and use.vector)):
            if time:
                yield device, side, time


def _wider(result: Result) -> Iterator[Row]:
    """Return devices of which some is not judged; another split alone is none: steps of the host begin before tasks."""
    return ((device,) for device in result.devices if (of := device.judged) and (of.before_ns or of.after_ns))


def _curves(result: Result) -> Iterator[Row]:
    """Return each slice of each device: where it starts, and the most in it."""
    for device in result.devices:
        curve = device.memory.curve if device.memory is not None else None
        if curve is not None:
            for place, told in enumerate(zip(curve.allocated, curve.reserved, curve.process, strict=True)):
                yield device, device.memory, curve.start_ns + place * curve.slice_ns, told


def _time(_: object, memory: Memory, at: int | None, *__: object) -> int | None:
    """Return a time of memory: none where events have no times."""
    return at if memory.timed else None


def _event(_: object, memory: Memory, at: int | None, *__: object) -> int | None:
    """Return which event it is where these have no times, and are counted."""
    return None if memory.timed else at


def _largest_of(graph: MemoryGraph) -> Message:
    """Name the operators that a graph plans most for, with their bytes."""
    largest = (say("{operator} {size}", operator=o.operator or "N/A", size=mib(o.bytes)) for o in graph.largest)
    return say("{operators}", operators=series(largest))


def _of_curve(place: int, _: object, __: object, ___: int, told: Sequence[int]) -> int | None:
    """Return one of a slice's figures, none where it is not known."""
    return told[place] if told[place] >= 0 else None


def _types(phase: Phase) -> list[str]:
    return [kernel.type for kernel in phase.kernels]


# fmt: off
#: Stands last, so that columns of CSV keep their places.
_RUN: Final = Column("run", say("run"), get=lambda *row: getattr(row[0], "run", None), weight=0, quiet=True)
_TYPE: Final = Column("type", say("type"), "kernel", weight=0)
_CORE: Final = Column("core", say("core"), weight=0)
_STREAM: Final = Column("stream", say("stream"), "id", weight=0)
_STREAMS: Final = Column("streams", say("streams"), get=lambda _, s: "+".join(map(str, s.streams)), weight=0)
_STEP: Final = Column("step", say("step"), "id", weight=0)
_COUNT: Final = Column("count", say("count"), "count")
_RUNS: Final = Column("count", say("runs"), "count")
_KERNELS: Final = Column("kernels", say("kernels"), "count")
_CUBE: Final = Column("cube", say("cube"), "id")
_VECTOR: Final = Column("vector", say("vector"), "id")
_LABEL: Final = Column("label", say("part"), "message")
_TORCH_OP: Final = Column("torch_op", say("torch operator"))
_CODE: Final = Column("where", say("code line"), "code", weight=0)
_UNKNOWN: Final = Column("reason", say("cannot tell because"), "message")
_BOUND: Final = Column("bound", say("verdict"), "word", "verdict.bound")
_BASIS: Final = Column("basis", say("basis"), "word", "verdict.basis")
_PARTITION: Final = (
    Column("span_ns", say("span"), "ms", "partition.span_ns"),
    Column("compute_ns", say("compute"), "ms", "partition.compute_ns"),
    Column("comm_exposed_ns", say("exposed comm."), "ms", "partition.comm_exposed_ns"),
    Column("other_exposed_ns", say("exposed other"), "ms", "partition.other_exposed_ns"),
    Column("idle_ns", say("idle"), "ms", "partition.idle_ns"),
    Column("host_wait_ns", say("host wait"), "ms", "partition.host_wait_ns", 2),
    Column("launch_latency_ns", say("launch latency"), "ms", "partition.launch_latency_ns", 2),
    Column("dependency_wait_ns", say("dependency wait"), "ms", "partition.dependency_wait_ns", 2),
    Column("unattributed_ns", say("unattributed"), "ms", "partition.unattributed_ns", 2),
    Column("comm_transfer_ns", say("exposed transfer"), "ms", "partition.comm_transfer_ns", 3),
    Column("comm_wait_ns", say("exposed wait for ranks"), "ms", "partition.comm_wait_ns", 3),
    Column("comm_unknown_ns", say("exposed, unknown which"), "ms", "partition.comm_unknown_ns", 3),
)
#: The same of a device's window.
_WINDOW: Final = tuple(replace(column, get=f"window.{column.key}") for column in _PARTITION)
_GAIN: Final = (
    Column("gain_low_ns", say("saves per step or window, min"), "us", "gain_ns_per_step.0"),
    Column("gain_high_ns", say("saves per step or window, max"), "us", "gain_ns_per_step.1"),
)
_IDLE: Final = (
    Column("idle_cube_core_ns", say("idle cube core time"), "core_ms"),
    Column("idle_vector_core_ns", say("idle vector core time"), "core_ms"),
)

#: What stands for the name of an activity where it is none.
_NO_NAMES: Final = {name: WORDS[name] for name in ("others", "nothing recorded")}

#: All tables: what is declared here is in ``--table``, ``--full``, CSV, Markdown and notebooks, and on the page under
#: its topic.
_OF_DEVICES: Final = (
    *CLUSTER_TABLES,
    Table("devices", say("devices"), each("devices"), (
        *WHO, *_WINDOW, _BOUND, _BASIS, Column("source", say("source"), weight=2, quiet=True),
        Column("stage", say("stage"), "id", quiet=True),
        Column("bubble", say("% in receives"), "share", quiet=True,
               get=lambda d: None if d.bubble_ns is None else d.bubble_ns / max(d.window.span_ns, 1)),
    ), topic="time", go=lambda at, device: at.whole(device)),
    Table("recorded", say("all that was recorded, with what is not judged"), _wider, (
        *WHO, *_PARTITION,
    ), topic="time", go=lambda at, device: at.whole(device)),
    Table("phases", say("phases"), each("devices", "phases"), (
        *WHO,
        Column("start_ns", say("start"), "ms", weight=0),
        Column("end_ns", say("end"), "ms", weight=0),
        _BOUND, _BASIS, _LABEL,
        Column("first_step", say("first step"), "id", weight=2),
        Column("last_step", say("last step"), "id", weight=2),
        *_PARTITION,
        Column("elasticity_host", say("10 % less host"), "tenth", "verdict.elasticity.host", 2),
        Column("elasticity_compute", say("10 % less compute"), "tenth", "verdict.elasticity.compute", 2),
        Column("elasticity_communication", say("10 % less comm."), "tenth", "verdict.elasticity.communication", 2),
        Column("blame", say("main cause of waiting"),
               get=lambda _, p: next((f"{blame.cause}: {blame.name}" for blame in p.blame), None)),
        _CODE,
        Column(
            "kernels", say("longest types"), get=lambda _, p: ", ".join(_types(p)) or None, weight=2,
            brief=lambda _, p: ", ".join(short_names(_types(p)).values()) or None,
        ),
    ), topic="time", go=lambda at, device, p: at.stretch(device, p.start_ns, p.end_ns - p.start_ns)),
    Table("typical", say("typical step"), each("devices", "typical_step", "phases"), (
        *WHO,
        Column("bound", say("verdict"), "word"),
        _LABEL,
        Column("start_ns", say("start, median"), "ms", "start.median_ns"),
        Column("end_ns", say("end, median"), "ms", "end.median_ns"),
        Column("min_ns", say("length, min"), "ms", "length.min_ns"),
        Column("median_ns", say("length, median"), "ms", "length.median_ns"),
        Column("max_ns", say("length, max"), "ms", "length.max_ns"),
        Column("steps", say("of steps"), "count"),
    ), topic="time"),
    Table("blame", say("waiting for the host: what the host did"), each("devices", "blame"), (
        *WHO,
        Column("cause", say("cause"), "word", weight=0, brief=lambda *row: CAUSE.get(row[-1].cause, row[-1].cause)),
        Column("name", say("host activity"), weight=0, brief=lambda *row: _NO_NAMES.get(row[-1].name, row[-1].name)),
        Column("ns", say("waiting for the host"), "ms", weight=0),
        Column("share", say("% of the wait"), "share", lambda d, b: b.ns / d.window.host_wait_ns, whole=1.0),
        Column("count", say("intervals"), "count", weight=2),
        _CODE,
    ), topic="host", go=lambda at, device, b: at.named(device, "wait", f"{b.cause}: {b.name}")),
    Table("host_work", say("what the host did, each by itself"), each("hosts", "work"), (
        Column("rank", say("rank"), "id", weight=0, quiet=True),
        Column("cause", say("cause"), "word", weight=0, brief=lambda *row: CAUSE.get(row[-1].cause, row[-1].cause)),
        Column("name", say("host activity"), weight=0, brief=lambda *row: _NO_NAMES.get(row[-1].name, row[-1].name)),
        Column("self_ns", say("by itself"), "ms"),
        Column("per_step", say("per step"), "ms", lambda run, work: round(work.self_ns / run.per_step)),
        Column("share", say("% of the steps"), "share", lambda run, work: work.self_ns / run.span_ns, whole=1.0),
        Column("calls", say("calls"), "count"),
        _CODE,
    ), topic="host", go=lambda at, _, work: at.anywhere("host", work.name)),
    Table("host_steps", say("steps of the host"), each("hosts", "steps"), (
        Column("rank", say("rank"), "id", weight=0, quiet=True),
        _STEP,
        Column("start_ns", say("start"), "ms"),
        Column("length_ns", say("length"), "ms"),
    ), topic="time", go=lambda at, run, step: at.of_host(run, step.start_ns, step.length_ns)),
    Table("dependencies", say("waiting for a dependency: what for"), each("devices", "dependencies"), (
        *WHO,
        Column("kind", say("kind"), "word", weight=0),
        Column("name", say("what for"), "kernel", weight=0),
        _STREAM,
        Column("ns", say("waited"), "ms", weight=0),
        Column("count", say("intervals"), "count", weight=2),
        Column("certain", say("certain"), "word"),
        Column("meanwhile", say("host waited in"), weight=2),
        _CODE,
    ), topic="host"),
    Table("syncs", say("where the host waits for the device"), each("devices", "syncs"), (
        *WHO,
        Column("name", say("call"), weight=0),
        _TORCH_OP, _COUNT,
        Column("kind", say("waits for"), "word"),
        Column("purpose", say("purpose"), "word", weight=2),
        Column("host_ns", say("host waited"), "ms", weight=0),
        Column("idle_ns", say("device idle after"), "ms"),
        *_GAIN, _CODE,
    ), topic="host", go=lambda at, device, s: at.named(device, "sync", s.name, s.torch_op, s.where)),
    Table("what_if", say("what if (replayed)"), each("what_if"), (
        *WHO,
        Column("expr", say("what if"), weight=0),
        Column("span_ns", say("new window"), "ms"),
        Column("gain_pct", say("saves"), "number", whole=100.0),
        *_GAIN,
        Column("peak_bytes", say("new peak"), "mib"),
        Column("gain_low_bytes", say("peak lower by, min"), "mib", "gain_bytes.0"),
        Column("gain_high_bytes", say("peak lower by, max"), "mib", "gain_bytes.1"),
        Column("title", say("that is"), "message"),
        Column("assumes", say("presupposing"), "message", lambda w: chain(*w.assumes) if w.assumes else None, 2),
        _UNKNOWN,
    ), topic="time", place=1),
    Table("steps", say("steps"), each("devices", "steps"), (
        *WHO, _STEP, Column("start_ns", say("start"), "ms", weight=2), *_PARTITION, _BOUND, _BASIS,
    ), topic="time", go=lambda at, device, s: at.stretch(device, s.start_ns, s.partition.span_ns)),
    Table(
        "streams", say("streams, each on its own (their idle time overlaps)"), each("devices", "streams"),
        (*WHO, _STREAM, Column("tasks", say("tasks"), "count"), *_PARTITION), topic="time"),
    Table("operators", say("operators by total time"), operators_of, (
        _TYPE, _CORE, _COUNT,
        Column("total_ns", say("total"), "ms", weight=0),
        Column("share", say("% of operator time"), "share", whole=1.0),
        Column("min_ns", say("min"), "us"),
        Column("max_ns", say("max"), "us"),
        Column("block_min", say("blocks, min"), "id", "block_dim.min"),
        Column("block_max", say("blocks, max"), "id", "block_dim.max"),
        Column("mix_block_min", say("mix blocks, min"), "id", "mix_block_dim.min", 2),
        Column("mix_block_max", say("mix blocks, max"), "id", "mix_block_dim.max", 2),
        Column("occupancy_cube", say("cube cores held"), "percent"),
        Column("occupancy_vector", say("vector cores held"), "percent"),
        Column("pmu_units", say("busiest unit"), "message", "pmu.brief"),
        Column("pmu_bound", say("unit bound"), "word", "pmu.bound", 3),
        Column("first_ns", say("first at"), "ms", weight=3),
        Column("last_ns", say("last at"), "ms", weight=3),
        Column("torch_op", say("torch operator"), weight=2),
        _CODE, *OPERATOR_COLUMNS,
    ), usual=True, topic="operators", go=lambda at, o, _: at.anywhere("operator", o.type, o.core)),
    Table("kernels", say("longest kernels"), each("window_kernels"), (
        *WHO,
        Column("name", say("kernel"), "kernel", weight=0),
        Column("type", say("type"), "kernel", weight=2),
        Column("core", say("core")),
        Column("stream", say("stream"), "id"),
        Column("step", say("step"), "id"),
        Column("start_ns", say("start"), "ms"),
        Column("dur_ns", say("duration"), "us", weight=0),
        Column("block_dim", say("blocks"), "id"),
        Column("mix_block_dim", say("mix blocks"), "id"),
        _TORCH_OP, _CODE,
    ), topic="operators", go=lambda at, k: at.stretch(k, k.start_ns, k.dur_ns)),
    Table("cores", say("Block Dim by core type"), each("devices", "cores.by_type"), (
        *WHO, _CORE, _KERNELS,
        Column("total_ns", say("total"), "ms"),
        Column("blocks_unknown", say("blocks unknown"), "count", weight=2),
        Column("block_min", say("blocks, min"), "id"),
        Column("block_median", say("blocks, median"), "plain"),
        Column("block_max", say("blocks, max"), "id"),
        Column("mix_block_min", say("mix blocks, min"), "id"),
        Column("mix_block_max", say("mix blocks, max"), "id"),
        Column("occupancy", say("cores held while busy"), "percent"),
        Column("waves_max", say("waves"), "id"),
        Column("tail", say("idle in waves"), "percent"),
    ), topic="cores", place=-1),
    Table("idle_kernels", say("kernels that leave most core time idle"), each("devices", "cores.most_idle"), (
        *WHO, _TYPE, _CORE, _COUNT,
        Column("block_dim", say("blocks"), "id"),
        Column("cores", say("cores"), "id"),
        Column("idle_core_ns", say("idle core time"), "core_ms"),
        Column("waves", say("waves"), "id"),
        Column("tail_core_ns", say("lost in last waves"), "core_ms"),
        Column("name", say("longest"), "kernel", weight=2),
    ), topic="cores", go=lambda at, device, k: at.named(device, "operator", k.type, k.core)),
    Table("core_time", say("cores over time"), _sides, (
        *WHO,
        Column("side", say("side"), "word", lambda _, side, time: side, 0),
        Column("cores", say("cores"), "id"),
        Column("kernel_ns", say("kernels run"), "ms"),
        Column("busy_ns", say("busy"), "ms"),
        Column("full_ns", say("no core free"), "ms"),
        Column("over_ns", say("more cores requested"), "ms"),
        Column("occupied_core_ns", say("occupied core time"), "core_ms"),
        Column("idle_core_ns", say("idle core time"), "core_ms"),
    ), topic="cores", place=-1),
    Table(
        "idle_types", say("core time left idle, by kernel type"), each("devices", "cores.over_time.by_type"),
        (*WHO, _TYPE, _CORE, _KERNELS, *_IDLE),
        topic="cores", go=lambda at, device, t: at.named(device, "operator", t.type, t.core)),
    Table(
        "together", say("which streams run at the same time"), each("devices", "cores.over_time.together"),
        (*WHO, _STREAMS, Column("ns", say("time"), "ms"), *_IDLE), topic="cores"),
    Table("pairs", say("pairs of streams"), each("devices", "cores.over_time.pairs"), (
        *WHO, _STREAMS,
        Column("overlap_ns", say("side by side"), "ms"),
        Column("share", say("% of the shorter"), "share"),
        Column("over_ns", say("more cores requested"), "ms"),
    ), topic="cores"),
    Table("contention", say("waits for cores"), each("devices", "cores.over_time.contention"), (
        *WHO, _STREAM,
        Column("holders", say("cores held by"), get=lambda _, c: "+".join(map(str, c.holders)), weight=0),
        _KERNELS,
        Column("least_ns", say("waited, min"), "us"),
        Column("most_ns", say("waited, max"), "us"),
        Column("full_ns", say("no core free"), "us"),
    ), topic="cores"),
    Table("core_limits", say("core limits per stream"), each("devices", "core_splits", "limits"), (
        *WHO,
        Column("asked", say("requested"), "word", lambda _, split, limit: "yes" if split.asked else "proposed"),
        _STREAM,
        Column("cube", say("cube"), "id", weight=0),
        Column("vector", say("vector"), "id", weight=0),
        _KERNELS, *_GAIN,
        Column("mode", say("mode"), "message"),
        _UNKNOWN,
    ), topic="cores"),
    Table("super_kernels", say("sequences for SuperKernels"), each("devices", "super_kernels"), (
        *WHO,
        Column("name", say("scope"), weight=0),
        Column("stream", say("stream"), "id"),
        _RUNS, _KERNELS,
        Column("segments", say("segments"), "count", lambda _, s: len(s.segments), 2),
        Column("dur_ns", say("kernel time"), "us"),
        Column("gaps_ns", say("gaps"), "us"),
        *_GAIN, _CUBE, _VECTOR,
        Column("options", say("options"), get=lambda _, s: ":".join(f"{o.key}={o.value}" for o in s.options), weight=2),
        Column("types", say("types"), get=lambda _, s: " ".join(s.types), weight=2),
    ), topic="cores"),
    Table("super_kernel_checks", say("SuperKernels and the kernels they replaced"),
          each("devices", "super_kernel_checks"), (
        *WHO,
        Column("scope", say("scope"), get="compared.name", weight=0),
        Column("verdict", say("verdict"), "word", "compared.verdict", 0),
        Column("basis", say("basis"), "word", weight=2),
        Column("count", say("runs"), "count", "compared.count"),
        Column("parts", say("parts"), "count", weight=2),
        Column("kernels", say("kernels"), "count", weight=2),
        Column("before_ns", say("before"), "us", "compared.old_ns"),
        Column("gaps_ns", say("of which gaps"), "us"),
        Column("after_ns", say("after"), "us", "compared.new_ns"),
        Column("saved_ns", say("saved"), "us", "compared.saved_ns"),
        Column("block_dim", say("cores"), "id"),
        Column("block_expected", say("expected"), "id"),
        Column("reason", say("why"), "message"),
    ), topic="cores"),
    Table("counters", say("hardware counters by operator"), each("window_operators", "pmu"), (
        _TYPE, _CORE,
        Column("bound", say("unit bound"), "word", weight=3),
        Column("rule", say("what the units do"), "message", weight=0),
        Column("pattern", say("pattern"), "word", weight=3),
        Column("recorded", say("% of time with counters"), "share", weight=3),
        Column("means", say("means over time"), weight=2,
               get=lambda _, pmu: ", ".join(f"{name} {value:.3g}" for name, value in pmu.means.items() if value)),
    ), topic="operators", go=lambda at, o, _: at.anywhere("operator", o.type, o.core)),
    Table("vendor", say("against step_trace_time.csv (ours minus theirs)"), each("devices", "vendor"), (
        *WHO, _STEP,
        Column("agrees", say("agrees"), "word"),
        Column("span_diff_ns", say("span"), "us"),
        Column("compute_diff_ns", say("compute"), "us"),
        Column("comm_exposed_diff_ns", say("exposed communication"), "us"),
        Column("free_diff_ns", say("idle and other"), "us"),
        # where both agree it is the largest of the cells beside it, in words
        Column("why", say("why"), "message", brief=lambda _, check: None if check.agrees else check.why),
    ), topic="exporter"),
    Table("witnesses", say("totals that other files tell, too"), each("devices", "witnesses"), (
        *WHO,
        Column("total", say("total"), "word", weight=0),
        Column("source", say("file"), weight=0),
        Column("unit", say("unit"), "word"),
        Column("told", say("told"), "plain"),
        Column("found", say("read"), "plain"),
        Column("missing_share", say("% missing"), "share", weight=0),
        Column("holds", say("holds"), "word"),
        Column("figures", say("figures"), "message", weight=EXTRA),
    ), topic="exporter"),
    Table("gates", say("gates"), lambda result: ((g, over) for g in result.gates for over in g.over or (None,)), (
        Column("expr", say("gate"), weight=0),
        Column("status", say("status"), "word", weight=0),
        Column("value", say("found"), "plain"),
        Column("limit", say("limit"), "plain"),
        Column("unit", say("unit"), "word", weight=2),
        Column("baseline", say("baseline"), "plain"),
        Column("least", say("differs by, min"), "plain", "interval.0"),
        Column("most", say("differs by, max"), "plain", "interval.1"),
        Column("runs", say("failed in the last runs"),
               get=lambda gate, _: f"{sum(gate.runs)}/{len(gate.runs)}" if gate.runs else None),
        Column("level", say("level"), "word", quiet=True),
        Column("reason", say("reason"), "message", lambda gate, _: gate.reason),
        Column("rank", say("rank"), "id", quiet=True),
        Column("device", say("device"), "id", quiet=True),
        Column("stream", say("stream"), "id"),
        Column("type", say("type"), "kernel"),
        Column("core", say("core")),
        Column("count", say("kernels"), "count"),
        _CUBE, _VECTOR,
        Column("likely", say("likely reason"), "message", lambda _, over: over and over.reason),
    )),
    Table("findings", say("findings"), each("findings"), (
        *WHO,
        Column("rule", say("rule"), weight=0),
        Column("status", say("status"), "word"),
        Column("severity", say("severity"), "word"),
        Column("title", say("finding"), "message", weight=0),
        *_GAIN,
        Column("next", say("next"), "message"),
        Column("refute", say("not the cause if"), "message", weight=2),
        Column("source", say("source"), "message", weight=2),
    ), aside=True),
    Table("host_sums", say("host calls, as the exporter summed them"), each("host_sums"), (
        Column("level", say("level"), weight=0),
        Column("name", say("name"), weight=0),
        _COUNT,
        Column("total_ns", say("total"), "ms"),
        Column("max_ns", say("longest"), "us"),
        Column("files", say("files"), "count", quiet=True),
    ), aside=True),
    Table("suggestions", say("what msprof suggests (its words, not checked)"), each("suggestions"), (
        Column("kind", say("kind")),
        Column("rule", say("rule")),
        Column("suggestion", say("suggestion"), weight=0),
        Column("operators", say("operators")),
        Column("files", say("files"), "count", quiet=True),
    ), topic="exporter"),
    Table("memory", say("memory at the peak, by device"), each("devices", "memory"), (
        *WHO,
        Column("peak_bytes", say("peak"), "mib", weight=0),
        Column("before_bytes", say("before the window"), "mib"),
        Column("freed_bytes", say("of that given back"), "mib"),
        Column("alive_bytes", say("in blocks of the window"), "mib"),
        Column("residual_bytes", say("residual"), "mib", weight=3),
        Column("reserved_bytes", say("reserved"), "mib"),
        Column("cached_bytes", say("cached"), "mib"),
        Column("waiting_bytes", say("waiting for a stream"), "mib", weight=2),
        Column("outside_bytes", say("outside of PyTorch"), "mib"),
        Column("unnamed_bytes", say("of no module"), "mib", weight=2),
        Column("process_bytes", say("process"), "mib"),
        Column("hbm_bytes", say("HBM"), "mib", weight=3),
        Column("headroom_bytes", say("left"), "mib"),
        Column("reserved_most_bytes", say("reserved, max"), "mib", weight=3),
        Column("fragments_share", say("% never filled of it"), "share", weight=2),
        Column("leak_bytes_per_step", say("kept by every step"), "mib", weight=2),
        Column("growth_bytes_per_step", say("growth per step"), "mib", weight=3),
        Column("peak_at_ns", say("at"), "ms"),
        Column("peak_step", say("step"), "id"),
        Column("peak_part", say("part"), "word", weight=2),
        Column("peak_operator", say("operator"), weight=2),
        Column("split", say("split"), "word", weight=3),
        _UNKNOWN,
    ), topic="memory"),
    Table("memory_peak", say("blocks that lived at the peak"), each("devices", "memory", "alive"), (
        *WHO,
        Column("class", say("class"), "word", "class_", 0),
        Column("inferred", say("inferred"), "word", lambda *row: "yes" if row[-1].inferred else "no", 2),
        Column("operator", say("operator"), weight=0),
        Column("module", say("module")),
        Column("count", say("count"), "count", "count"),
        Column("bytes", say("size"), "mib", "bytes", 0),
        Column("share", say("% of peak"), "share", lambda _, memory, a: a.bytes / memory.peak_bytes, whole=1.0),
        _CODE,
    ), topic="memory"),
    Table("memory_blocks", say("largest blocks at the peak"), each("devices", "memory", "blocks"), (
        *WHO,
        Column("bytes", say("size"), "mib", "bytes", 0),
        Column("class", say("class"), "word", "class_"),
        Column("operator", say("operator"), weight=0),
        Column("module", say("module"), weight=2),
        Column("step", say("step"), "id", "step"),
        Column("start_ns", say("asked for at"), "ms", lambda _, memory, block: _time(_, memory, block.start_ns)),
        Column("end_ns", say("given back at"), "ms", lambda _, memory, block: _time(_, memory, block.end_ns)),
        Column("start_event", say("asked for by event"), "count", lambda _, m, block: _event(_, m, block.start_ns)),
        Column("end_event", say("given back by event"), "count", lambda _, m, block: _event(_, m, block.end_ns)),
        _CODE,
    ), topic="memory"),
    Table("memory_steps", say("memory by step"), each("devices", "memory", "steps"), (
        *WHO, _STEP,
        Column("peak_bytes", say("peak"), "mib", weight=0),
        Column("start_bytes", say("when it began"), "mib"),
        Column("least_bytes", say("at least"), "mib"),
        Column("blocks", say("memory blocks"), "count"),
        Column("asked_bytes", say("asked for"), "mib"),
        Column("kept_bytes", say("not given back"), "mib"),
    ), topic="memory"),
    Table("memory_modules", say("outside of PyTorch, by module"), each("devices", "memory", "modules"), (
        *WHO,
        Column("name", say("module"), weight=0),
        Column("bytes", say("at the peak"), "mib", "bytes"),
        Column("most_bytes", say("at most"), "mib"),
    ), topic="memory"),
    Table("memory_graphs", say("planned for graphs"), each("devices", "memory", "graphs"), (
        *WHO,
        Column("model", say("model")),
        Column("graph", say("graph"), "id", weight=0),
        Column("blocks", say("memory blocks"), "count"),
        Column("peak_bytes", say("peak"), "mib", weight=0),
        Column("node", say("at node"), "id"),
        Column("largest", say("most for"), get=lambda _, memory, graph: _largest_of(graph), weight=0),
    ), topic="memory"),
    Table("memory_curve", say("memory over time"), _curves, (
        *WHO,
        Column("start_ns", say("from"), "ms", _time, 0),
        Column("start_event", say("from event"), "count", _event, 0),
        *(Column(f"{name}_bytes", title, "mib", partial(_of_curve, place))
          for place, (name, title) in enumerate((
              ("allocated", say("allocated")), ("reserved", say("reserved")), ("process", say("process")),
          ))),
    ), aside=True),
    *EFFICIENCY_TABLES,
    ROOFLINE,
    COLLECTIVES,
    *COMPARISON_TABLES,
)
# fmt: on


# -- Why a table has no rows.


def _no_device(result: Result) -> Message | None:
    return None if result.devices else say("as no device task is recorded in this data")


def _of_devices(result: Result) -> Message | None:
    why = say("as devices were recorded: what the host did while they waited is in --table blame")
    return why if result.devices else None


def _no_job(result: Result) -> Message | None:
    return None if result.cluster else say("as no two ranks here are known to be of one job")


def _no_comparison(result: Result) -> Message | None:
    return None if result.comparison else say("as nothing is compared (npuperf analyze NEW --baseline OLD)")


def _no_step(result: Result) -> Message | None:
    if any(device.steps for device in result.devices):
        return None
    return _no_device(result) or say("as no step is recorded (npuperf profile marks them)")


def _no_replay(result: Result) -> Message | None:
    refused = next((d.replay.reason for d in result.devices if d.replay and d.replay.reason is not None), None)
    why = refused or say("launches are not recorded")
    return _no_device(result) or say("as nothing can be replayed ({why})", why=why)


def _no_memory(result: Result) -> Message | None:
    if any(device.memory is not None for device in result.devices):
        return None
    return _no_device(result) or say("as no memory is recorded (npuperf profile --memory)")


def _no_split(result: Result) -> Message | None:
    why = next((d.memory.reason for d in result.devices if d.memory is not None and d.memory.reason is not None), None)
    return _no_memory(result) or (why and say("as the peak cannot be split ({why})", why=why))


def _unless_read(why: Message, *files: str) -> Callable[[Result], Message | None]:
    """Say it unless such a file was read, of which other things may be the reason."""
    return lambda result: (
        None if any(fnmatch(PurePath(read).name, name) for read in result.input.files for name in files) else why
    )


def _not_seen(what: Message) -> Callable[[Result], Message]:
    return lambda result: _no_device(result) or what


_EMPTY: Final[dict[str, Callable[[Result], Message | None]]] = {
    **{table.name: _no_job for table in CLUSTER_TABLES},
    "roles": lambda result: _no_job(result) or say("as no range on the hosts has the name of a role (docs/cluster.md)"),
    **{table.name: _no_comparison for table in COMPARISON_TABLES},
    "gates": lambda _: say("as no gate was given (--fail-on, --gates, --expect-cores)"),
    "steps": _no_step,
    "typical": lambda result: _no_step(result) or say("as no two steps are alike"),
    "what_if": _no_replay,
    "blame": _not_seen(say("as the device is not seen to wait for the host")),
    "host_work": _of_devices,
    "host_steps": _of_devices,
    "dependencies": _not_seen(say("as the device is not seen to wait for anything but the host")),
    "syncs": _not_seen(say("as the host is not seen to wait for the device")),
    "vendor": _unless_read(
        say("as there is no step_trace_time.csv or analysis.db"), "step_trace_time.csv", "analysis.db"
    ),
    "witnesses": lambda _: say("as no other file here tells any"),
    "host_sums": _unless_read(say("as there is no api_statistic*.csv or the like"), "api_statistic*.csv"),
    "suggestions": _unless_read(say("as there is no prof_rule*.json"), "prof_rule*.json"),
    **dict.fromkeys(("memory", "memory_curve"), _no_memory),
    "efficiency": no_parts,
    "efficiency_devices": no_efficiency,
    "efficiency_idle": no_idle,
    "efficiency_modules": no_modules,
    "efficiency_steps": lambda result: no_efficiency(result) or _no_step(result),
    "efficiency_phases": no_efficiency,
    "roofline": lambda result: no_efficiency(result) or no_roofs(result),
    "collective_rates": no_collectives,
    "memory_peak": _no_split,
    "memory_blocks": _no_split,
    "memory_steps": lambda result: _no_memory(result) or _no_step(result),
    "memory_modules": lambda result: _no_memory(result) or say("as no file tells what modules of CANN have"),
    "memory_graphs": lambda result: _no_memory(result) or say("as no static_op_mem*.csv tells what graphs plan"),
    "super_kernel_checks": lambda _: say("as no earlier profile was given (--before)"),
}


def _whole(table: Table) -> Table:
    """Return a table that also tells runs apart, and why it is empty."""
    columns = (*table.columns, _RUN) if table.columns[:2] == WHO else table.columns
    return replace(table, columns=columns, empty=_EMPTY.get(table.name, _no_device))


TABLES: Final = tuple(map(_whole, _OF_DEVICES))
NAMED: Final = {table.name: table for table in TABLES}
#: What tables are about, in the order of the page. Those of "comparison" are with what changed.
TOPICS: Final = {
    "job": say("the job: ranks, groups, links"),
    "time": say("time: phases and steps"),
    "host": say("waiting: what for"),
    "operators": say("operators and kernels"),
    "cores": say("cores"),
    "efficiency": say("efficiency: how far from the chip"),
    "memory": say("memory"),
    "exporter": say("what the exporter says itself"),
}


def tables_about(topic: str) -> list[Table]:
    """Return the tables of a topic in the order of the page."""
    return sorted((table for table in tables_of(Result) if table.topic == topic), key=lambda table: table.place)

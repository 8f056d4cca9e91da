"""No rule says that there is no problem without the data that would show one.

Two runs in which everything is recorded and nothing is wrong: one keeps the device busy, in the other the device waits
for the host between the steps, which waits for other processes. Each kind of data is taken away in turn; which rules
may then not say "ok" is written by hand, from what each of them looks at.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from build import H, K, ascend_pt
from msgspec.structs import replace

from npuperf import advise
from npuperf.advise import load_thresholds
from npuperf.advise.needs import LAUNCHES
from npuperf.analyze.examine import Earlier, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.cli.command_line import typed_fields
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile, Environment, HostSteps
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import OPERAND_COLUMNS, Labels, operand_labels
from npuperf.model.result import Finding
from npuperf.model.tasks import NO_TIME, Tasks
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.record.request import ProfileRequest
from npuperf.tune.request import TuneRequest

STEPS, KERNELS, LONG = (11, 12, 13), 50, 100_000


def barrier(start: int, dur: int) -> list[H]:
    """The host waits for other processes, which no rule is about; torch and CANN have both recorded it."""
    call = H("AscendCL@HcclBarrier", start + 100, max(dur - 200, 0))
    return [H("c10d::barrier", start, dur, python=True), call] if dur else []


def program(pause: int) -> tuple[list[K], list[H], dict[int, tuple[int, int]]]:
    """Three steps of 50 products of 100 µs, launched 10 µs apart; before each step a barrier of ``pause`` ns."""
    kernels, host, steps, clock, free = [], [], {}, 0, 0
    for step in STEPS:
        begin = clock
        host += barrier(clock, pause)
        clock += pause
        for _ in range(KERNELS):
            host.append(H("aten::mm", clock, 9_000, python=True))
            host.append(H("AscendCL@aclnnMatmulGetWorkspaceSize", clock + 500, 1_000))
            host.append(H("AscendCL@aclnnMatmul", clock + 2_000, 6_000))
            start = max(clock + 13_000, free)
            kernels.append(K(start, LONG, "aclnnMatmul_MatMulV3_MatMulV3", "MatMulV3", "AI_CORE", block=24, step=step,
                             launch=clock + 3_000, launch_dur=4_000, shapes="4096,1024;1024,1024"))  # fmt: skip
            free = start + LONG + 500
            clock += 10_000
        steps[step] = (begin, clock)
        if pause > KERNELS * LONG:  # so that the next step's pause is not hidden
            host += barrier(clock, free - clock)
            clock = free
    return kernels, host, steps


#: Pauses, by which the runs are called: none; longer than a step; the same, of a graph.
BUSY, WAITING, GRAPH = 0, 12_000_000, -12_000_000

MANIFEST = {
    "command": ["python", "train.py"],
    "versions": {"torch": "2.7.1", "torch_npu": "2.7.1", "cann": "8.3.RC1"},
    "environment": {"TASK_QUEUE_ENABLE": "2", "MAX_RUNTIME_CORE_NUMBER": "3"},
    "options": {"gc_threshold": 1.0},
    "overhead": {"inside_ns": 5_000_000, "outside_ns": 5_000_000, "inside": 2, "outside": 5},
}


def as_graph(kernels: list[K], host: list[H]) -> tuple[list[K], list[H]]:
    """The same kernels as nodes of a dynamic graph, whose shapes recur in every step."""
    nodes = [replace(k, name=f"MatMul_{i % KERNELS}", state="dynamic") for i, k in enumerate(kernels)]
    runs = [H("Model@ModelExecute", h.start - 1, 10) for h in host if h.name == "c10d::barrier"]
    tiling = [replace(h, name="AscendCL@MatMul_Tiling") if "GetWorkspaceSize" in h.name else h for h in host]
    return nodes, [*tiling, *runs]


def recorded(where: Path, pause: int) -> DeviceProfile:
    kernels, host, steps = program(abs(pause))
    if pause == GRAPH:
        kernels, host = as_graph(kernels, host)
    queued = [H("Dequeue@aclnnMatmul", h.start, 10, python=True, thread=12) for h in host if h.name == "aten::mm"]
    folder = ascend_pt(where / "raw", kernels, steps, cores="24,48", host=[*host, *queued])
    (where / "npuperf.json").write_text(json.dumps(MANIFEST))
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": ""}}))
    (profile,) = open_recording(where).profiles
    ends = {"dtypes": "BF16;BF16", "formats": "ND;ND", "out_shapes": "4096,1024", "out_dtypes": "BF16",
            "out_formats": "ND", "hf32": "NO"}  # fmt: skip
    size = len(profile.tasks)
    operands = operand_labels({name: Labels.of([ends[name]] * size) for name in OPERAND_COLUMNS})
    return replace(profile, tasks=replace(profile.tasks, operands=operands, pmu=counters(size)), soc="Ascend910B1")


#: Of a matmul: what cores multiply, compute besides, and move.
RATIOS = {
    "aic_mac_ratio": 0.7, "aic_scalar_ratio": 0.2, "aic_mte1_ratio": 0.4, "aic_mte2_ratio": 0.6, "aiv_vec_ratio": 0.0,
    "aiv_scalar_ratio": 0.0, "aiv_mte2_ratio": 0.0, "aiv_mte3_ratio": 0.0,
}  # fmt: skip


def counters(n: int) -> dict[str, np.ndarray]:
    """Of kernels that keep 24 cores busy at 1850 MHz for 100 µs; other tasks have none."""
    values = {"aicore_time": 100.0, "aic_total_cycles": 100 * 1850 * 24.0, "cube_utilization": 100.0, **RATIOS}
    return {name: np.full(n, value, np.float32) for name, value in values.items()}


def some_counters(part: int) -> Callable[[DeviceProfile], DeviceProfile]:
    """Without the counters of every kernel but one in ``part``."""

    def change(profile: DeviceProfile) -> DeviceProfile:
        pmu = {name: values.copy() for name, values in profile.tasks.pmu.items()}
        for values in pmu.values():
            values[np.arange(len(values)) % part > 0] = np.nan
        return replace(profile, tasks=profile.tasks.with_columns(pmu=pmu))

    return change


def answers(profile: DeviceProfile) -> dict[str, Finding]:
    found = examine(profile, AnalyzeRequest(path=Path()), load_thresholds(), Earlier(), ReadLog())
    assert found is not None
    return {f.rule: f for f in found.findings}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[int, DeviceProfile]:
    return {pause: recorded(tmp_path_factory.mktemp("run"), pause) for pause in (BUSY, WAITING, GRAPH)}


@pytest.mark.parametrize("pause", [BUSY, WAITING, GRAPH])
def test_with_everything_recorded_nothing_is_wrong(pause: int, profiles: dict[int, DeviceProfile]) -> None:
    found = answers(profiles[pause])
    assert {name: str(f.needs or f.title) for name, f in found.items() if f.status != "ok"} == {}


# --- what is taken away --------------------------------------------------------------------------------------------


def tasks(profile: DeviceProfile, **changed: object) -> DeviceProfile:
    return replace(profile, tasks=replace(profile.tasks, **changed))  # type: ignore[arg-type]


def column(name: str, part: int = 1) -> Callable[[DeviceProfile], DeviceProfile]:
    """Take a column of text away from every ``part``-th task."""

    def without(profile: DeviceProfile) -> DeviceProfile:
        labels: Labels = getattr(profile.tasks, name)
        codes = np.where(np.arange(len(labels)) % part == 0, np.int32(-1), labels.codes)
        return tasks(profile, **{name: Labels(codes, labels.names)})

    return without


def launches(part: int = 1) -> Callable[[DeviceProfile], DeviceProfile]:
    """Take the launches away from every ``part``-th task; the first of each step is among them."""

    def without(profile: DeviceProfile) -> DeviceProfile:
        gone = np.arange(len(profile.tasks)) % part == 0
        old: Tasks = profile.tasks
        times = {n: np.where(gone, NO_TIME, getattr(old, n)) for n in ("launch_start", "launch_end")}
        return tasks(profile, **times, launch_thread=np.where(gone, -1, old.launch_thread))

    return without


def blocks(part: int = 1) -> Callable[[DeviceProfile], DeviceProfile]:
    def without(profile: DeviceProfile) -> DeviceProfile:
        return tasks(profile, block=np.where(np.arange(len(profile.tasks)) % part == 0, 0, profile.tasks.block))

    return without


def events(*starts: str) -> Callable[[DeviceProfile], DeviceProfile]:
    """Take host events away whose names begin so."""

    def without(profile: DeviceProfile) -> DeviceProfile:
        all_ = profile.host.events
        kept = ~all_.name.flag([n.startswith(starts) for n in all_.name.names])
        left = Spans(all_.start[kept], all_.end[kept], all_.thread[kept], all_.name.filter(kept).compact())
        return replace(profile, host=replace(profile.host, events=left))

    return without


def no_host(profile: DeviceProfile) -> DeviceProfile:
    return replace(tasks(profile, op=np.full(len(profile.tasks), -1, np.int64)), host=HostOps())


def half_of_host(profile: DeviceProfile) -> DeviceProfile:
    """Take away what was recorded in the second half of the run."""
    all_ = profile.host.events
    kept = all_.start < (all_.start.min() + all_.end.max()) // 2
    left = Spans(all_.start[kept], all_.end[kept], all_.thread[kept], all_.name.filter(kept).compact())
    return replace(no_host(profile), host=HostOps(events=left))


def no_torch(profile: DeviceProfile) -> DeviceProfile:
    rest = events("aten::", "c10d::", "ProfilerStep")(profile)
    return replace(no_host(profile), host=HostOps(events=rest.host.events))


def no_steps(profile: DeviceProfile) -> DeviceProfile:
    steps = np.full(len(profile.tasks), -1, profile.tasks.step.dtype)
    return replace(tasks(profile, step=steps), host_steps=HostSteps.empty())


def context(**changed: object) -> Callable[[DeviceProfile], DeviceProfile]:
    return lambda p: replace(p, context=replace(p.context, **changed))  # type: ignore[arg-type]


#: What a rule about the host's part must know first: whether the device waited for it.
WAITS = {
    "small_kernels", "graph_capture", "sync_points", "value_dependent", "blocking_copies", "data_loading",
    "captures", "compilation", "online_compile", "garbage_collection", "task_queue", "uneven_host", "start_up",
    "host_pauses",
}  # fmt: skip
#: And then: what the host was doing all the while.
DOINGS = WAITS - {"small_kernels", "graph_capture", "host_pauses"}
#: What only calls of CANN show.
CALLS = {
    "sync_points",
    "value_dependent",
    "blocking_copies",
    "compilation",
    "captures",
    "online_compile",
    "task_queue",
    "start_up",
}
#: What only torch's own events show: its loader, its compiler, the operator that a wait belongs to.
TORCH = {"data_loading", "compilation", "value_dependent"}
#: What is about graphs of dynamic shape that the host schedules.
DYNAMIC = {"dynamic_shape", "runtime_threads", "tiling_cache", "host_operators"}
#: What may be among rows that are missing.
ROWS = {
    "ai_cpu", "waiting_kernels", "layout", "idle_cores", "core_limit", "low_clock", "exposed_communication",
    "slowed_compute", "scalar_kernels", "fp32_products", "padded_products", "narrow_products", "unaligned_products",
    "slow_copies", "moved_for_products",
}  # fmt: skip
#: What is asked of matmuls by their sizes.
SIZED = {"padded_products", "narrow_products", "unaligned_products"}
SHAPED = SIZED | {"moved_for_products"}

TABLE: dict[str, tuple[Callable[[DeviceProfile], DeviceProfile], dict[int, set[str]]]] = {
    "launches": (launches(), {BUSY: WAITS, WAITING: WAITS, GRAPH: DYNAMIC}),
    "half of the launches": (launches(2), {WAITING: WAITS, GRAPH: DYNAMIC}),
    "host events": (no_host, {WAITING: DOINGS, GRAPH: DYNAMIC}),
    "half of the host events": (
        half_of_host,
        {WAITING: DOINGS - {"uneven_host"}},
    ),  # which compares calls that are there
    "input shapes": (
        column("shapes"),
        {BUSY: SHAPED, GRAPH: {"tiling_cache", "host_operators"}},
    ),
    "half of the input shapes": (
        column("shapes", 2),
        {BUSY: SHAPED, GRAPH: {"tiling_cache", "host_operators"}},
    ),
    "types of operands": (column("operands"), {BUSY: {"fp32_products"}}),
    "half of the types of operands": (column("operands", 2), {BUSY: {"fp32_products"}}),
    "calls of CANN": (events("AscendCL@", "Runtime@", "Node@"), {WAITING: CALLS}),
    "torch operators": (no_torch, {WAITING: TORCH}),
    "watch on collections": (context(watches_gc=False), {WAITING: {"garbage_collection"}}),
    "whether collections were watched": (context(watches_gc=None), {WAITING: {"garbage_collection"}}),
    "core types": (
        column("core"),
        {BUSY: {"ai_cpu", "exposed_communication", "slowed_compute", "low_clock"}},
    ),
    "half of the core types": (column("core", 2), {BUSY: {"ai_cpu"}}),
    "operator types": (column("type"), {BUSY: {"layout", "fp32_products"} | SIZED}),
    "half of the operator types": (column("type", 2), {BUSY: {"layout", "fp32_products"} | SIZED}),
    "OP State": (column("state"), {WAITING: {"dynamic_shape"}, GRAPH: {"dynamic_shape", "runtime_threads"}}),
    "half of OP State": (column("state", 2), {WAITING: {"dynamic_shape"}, GRAPH: {"dynamic_shape", "runtime_threads"}}),
    "block counts": (blocks(), {BUSY: {"idle_cores"}}),
    "half of the block counts": (blocks(2), {BUSY: {"idle_cores"}}),
    "core counts": (
        lambda p: replace(p, cores=Cores(), tasks=p.tasks.without_counters()),  # which tell them, too
        {BUSY: {"idle_cores"}},
    ),
    "counters": (
        lambda p: replace(p, tasks=p.tasks.without_counters()),
        {BUSY: SIZED | {"low_clock", "scalar_kernels"}},
    ),
    "half of the counters": (some_counters(2), {BUSY: SIZED | {"low_clock", "scalar_kernels"}}),
    "steps": (no_steps, {BUSY: {"early_steps"}, WAITING: {"early_steps", "uneven_host"}}),
    "environment": (
        context(environment=Environment()),
        {BUSY: {"launch_blocking"}, WAITING: {"launch_blocking", "env_settings"}, GRAPH: {"env_settings"}},
    ),
    "cost of recording": (context(overhead=None), {BUSY: {"recording_cost"}, WAITING: {"recording_cost"}}),
    "rows": (lambda p: replace(p, excerpt=True), {BUSY: WAITS | ROWS, WAITING: WAITS | ROWS, GRAPH: DYNAMIC}),
}


NAMES = {BUSY: "busy", WAITING: "waiting", GRAPH: "graph"}
CASES = [pytest.param(kind, pause, id=f"{kind}-{NAMES[pause]}") for kind in TABLE
         for pause in TABLE[kind][1]]  # fmt: skip


@pytest.mark.parametrize(("kind", "pause"), CASES)
def test_no_ok_lives_on_data_that_is_gone(kind: str, pause: int, profiles: dict[int, DeviceProfile]) -> None:
    without, expected = TABLE[kind]
    found = answers(without(profiles[pause]))
    assert {name for name in expected[pause] if found[name].status == "ok"} == set()
    for name in expected[pause]:
        if found[name].status == "cannot_tell":
            assert found[name].needs and found[name].next == found[name].needs


@pytest.mark.parametrize(("kind", "pause"), CASES)
def test_what_is_gone_is_no_problem_by_itself(kind: str, pause: int, profiles: dict[int, DeviceProfile]) -> None:
    """Nothing is wrong in these runs, whatever is recorded; that the host pauses is true, and then without a reason."""
    found = answers(TABLE[kind][0](profiles[pause]))
    problems = {name: str(f.title) for name, f in found.items() if f.status == "problem"}
    assert {name: title for name, title in problems.items() if name != "host_pauses"} == {}


# --- what would supply it ------------------------------------------------------------------------------------------

PACKAGE = Path(advise.__file__).parent.parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def literals(folder: Path) -> Iterator[tuple[str, str]]:
    """Every text in the code of a folder, with its file."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value


def test_every_option_that_a_sentence_names_exists() -> None:
    """Of npuperf's own; a text that names another program's options names the program."""
    declared = {name for verb in (AnalyzeRequest, ProfileRequest, TuneRequest)
                for field in typed_fields(verb).values() for name in getattr(field.declared, "names", ())}  # fmt: skip
    named = {(file, option) for file, text in literals(PACKAGE / "advise")
             if not any(program in text for program in ("Megatron", "msmemscope"))
             for option in OPTION.findall(text)}  # fmt: skip
    assert len(named) > 20
    assert {(file, option) for file, option in named if option not in declared} == set()


@pytest.mark.parametrize(
    ("launched", "unknown", "part"),
    [(False, 0, 0.0), (True, 0, 1.0), (True, 20, 1.0), (True, 50, 0.75), (True, 200, 0)],
)
def test_launches_are_known_of_the_idle_time_but_for_what_is_too_short(
    launched: bool, unknown: int, part: float
) -> None:
    """Of 1,000 ns 200 are idle; up to 2 % of all is too short to matter."""
    view = SimpleNamespace(
        launches=SimpleNamespace(known=np.array([False, launched])), thresholds=load_thresholds({"cause_share": 0.02}),
        partition=SimpleNamespace(span_ns=1_000, idle_ns=200, unattributed_ns=unknown),
    )  # fmt: skip
    assert LAUNCHES.recorded(cast(Any, view)) == part


def test_a_timeline_that_was_read_is_not_asked_for(profiles: dict[int, DeviceProfile]) -> None:
    """Level0, or a graph: events of the host are there, launches of kernels are not."""
    found = answers(launches()(profiles[WAITING]))["small_kernels"]
    assert "trace_view.json" not in str(found.needs) and "--level 1" in str(found.needs)
    found = answers(no_host(launches()(profiles[WAITING])))["small_kernels"]
    assert "trace_view.json" in str(found.needs)


def test_what_is_missing_of_the_environment_is_named(profiles: dict[int, DeviceProfile]) -> None:
    found = answers(context(environment=Environment({"ACLNN_CACHE_LIMIT": ""}))(profiles[WAITING]))["env_settings"]
    assert "ASCEND_GLOBAL_LOG_LEVEL" in str(found.needs)
    assert "ACLNN_CACHE_LIMIT" not in str(found.needs)
    assert "HCCL_DETERMINISTIC" not in str(found.needs)  # nothing is transferred


@pytest.mark.parametrize(
    ("kind", "kineto", "rule", "said"),
    [
        ("calls of CANN", False, "sync_points",
         "calls of the runtime are not recorded: record with npuperf profile --level 1"),
        ("calls of CANN", True, "sync_points",
         "calls of the runtime are not recorded: record again with torch.profiler, activities CPU and CUDA"),
        ("core counts", False, "core_limit", "core counts are unknown: there is no info.json.N with the data"),
        ("block counts", False, "core_limit", "no kernel has a Block Dim above 0: record with npuperf profile"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_what_supplies_it(
    kind: str, rule: str, said: str, profiles: dict[int, DeviceProfile], *, kineto: bool
) -> None:
    found = answers(TABLE[kind][0](replace(profiles[WAITING], kineto=kineto)))[rule]
    assert found.status == "cannot_tell" and str(found.needs).startswith(said)

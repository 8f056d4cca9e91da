"""Each rule: a planted case with the gain worked out by hand, a healthy case, and a case that lacks the data."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path

import pytest
import yaml
from build import H, K, ascend_pt, kernel_details

from npuperf import advise
from npuperf.advise import RULES, load_thresholds
from npuperf.analyze.run import Options, analyze_path
from npuperf.documents.analysis import Finding, Result
from npuperf.model.thresholds import Thresholds

RULE_NAMES = {
    "ai_cpu", "compilation", "core_limit", "data_loading", "dynamic_shape", "early_steps", "garbage_collection",
    "graph_capture", "host_operators", "idle_cores", "launch_blocking", "layout", "runtime_threads",
    "small_kernels", "super_kernel", "sync_points", "task_queue", "tiling_cache", "uneven_host",
}  # fmt: skip


def answer(path: Path | Result, rule: str) -> Finding:
    result = path if isinstance(path, Result) else analyze_path(path)
    (found,) = [f for f in result.findings if f.rule == rule]
    return found


def busy(count: int = 100, **more: object) -> list[K]:
    """Device-bound: kernels of 100 µs back to back, all launched long before; steps 11 and 12."""
    made = [K(i * 100_000, 100_000, f"k{i}", "MatMulV2", "AI_CORE", block=24, launch=i * 5_000 - 500_000,
              launch_dur=2_000, step=11 + 2 * i // count) for i in range(count)]  # fmt: skip
    return [replace(k, **more) for k in made]  # type: ignore[arg-type]


def starved(count: int = 100, **more: object) -> list[K]:
    """Host-bound: kernels of 6 µs every 40 µs, 8 µs after their launch returns; steps 11 and 12.

    Between two kernels the device waits 26 µs for the host (40 - 6 - 8).
    """
    made = [K(i * 40_000, 6_000, f"k{i}", "Add", launch=i * 40_000 - 10_000, launch_dur=2_000,
              step=11 + 2 * i // count) for i in range(count)]  # fmt: skip
    return [replace(k, **more) for k in made]  # type: ignore[arg-type]


WAIT = 26_000  # of the host, before each kernel of starved() but the first


def beside(kernels: list[K], dur: int, **more: object) -> K:
    """One more kernel, 1 µs after everything, that nothing hides."""
    end = max(k.start + k.dur for k in kernels)
    return replace(K(end + 1_000, dur, "extra", launch=end - 300_000, step=12), **more)  # type: ignore[arg-type]


def assert_complete(found: Finding, window_ns: int) -> None:
    """A problem carries everything a reader needs to act and to doubt."""
    assert found.status == "problem"
    assert found.title and found.next and found.refute and found.source and found.evidence
    assert found.needs is None
    if found.gain_ns_per_step:
        low, high = found.gain_ns_per_step
        assert 0 <= low <= high <= window_ns
        assert found.gain_pct == pytest.approx((100 * low / window_ns, 100 * high / window_ns), rel=1e-6)


def step_length(result: Result) -> int:
    (device,) = result.devices
    return device.partition.span_ns // max(len(device.steps), 1)


# --- the register --------------------------------------------------------------------------------------------------


def test_every_rule_module_is_registered_and_answers() -> None:
    modules = {m.name for m in pkgutil.iter_modules(advise.__path__)} - {"rule", "slow_rank"}
    assert modules == RULE_NAMES == {r.__name__.rsplit(".", 1)[1] for r in RULES}
    assert len(RULES) == len(RULE_NAMES)
    for name in modules:
        module = importlib.import_module(f"npuperf.advise.{name}")
        assert callable(module.needs) and callable(module.judge)
        assert module.TITLE.strip() and module.SOURCE.strip() and module.__doc__


def test_every_threshold_has_a_value_and_a_source() -> None:
    entries = yaml.safe_load((resources.files("npuperf.advise") / "thresholds.yaml").read_text("utf-8"))
    assert set(entries) == {f.name for f in fields(Thresholds)}
    for name, entry in entries.items():
        assert isinstance(entry["value"], (int, float)) and entry["value"] > 0, name
        assert isinstance(entry["source"], str) and len(entry["source"].split()) >= 4, name
    thresholds = load_thresholds()
    assert thresholds.as_dict() == {name: entry["value"] for name, entry in entries.items()}
    assert all(0 < entry["value"] <= 1 for name, entry in entries.items() if name.endswith("_share"))


def test_every_rule_answers_once_per_device(tmp_path: Path) -> None:
    kernels = [*busy(), *(replace(k, device=1) for k in busy())]
    findings = analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)).findings
    for device in (0, 1):
        assert sorted(f.rule for f in findings if f.device == device) == sorted(RULE_NAMES)


def test_problems_stand_first_the_gravest_on_top(tmp_path: Path) -> None:
    kernels = starved(step=1, state="dynamic", block=4)
    kernels.append(beside(kernels, 300_000, core="AI_CPU", type="Unique", step=1))
    found = analyze_path(ascend_pt(tmp_path, kernels, cores="24,48")).findings
    status = [f.status for f in found]
    assert status == sorted(status, key=["problem", "cannot_tell", "ok"].index)
    grave = [f.severity for f in found if f.status == "problem"]
    assert len(grave) >= 3
    assert grave == sorted(grave, key=["high", "medium", "low"].index)


# --- healthy profiles ----------------------------------------------------------------------------------------------


def with_hidden_traffic() -> list[K]:
    """Collectives beside compute, and events and waits between kernels."""
    kernels = busy()
    for i in range(0, 100, 10):
        start = i * 100_000 + 10_000
        kernels.append(K(start, 80_000, f"hcom_allReduce__{i}_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0,
                         launch=i * 5_000 - 400_000))  # fmt: skip
        kernels.append(K(start, 50_000, "EVENT_WAIT", core="EVENT_WAIT", stream=5, launch=i * 5_000 - 400_000))
    return kernels


@pytest.mark.parametrize("make", [busy, with_hidden_traffic])
def test_no_rule_says_problem_on_a_healthy_profile(tmp_path: Path, make: Callable[[], list[K]]) -> None:
    folder = ascend_pt(tmp_path, make(), cores="24,48")
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": ""}}))
    result = analyze_path(folder)
    assert result.verdict.bound == "compute"
    assert {f.rule: f.status for f in result.findings} == dict.fromkeys(RULE_NAMES, "ok")


def test_nothing_recorded_means_cannot_tell_not_ok(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    rows = "".join(f"k{i},N/A,N/A,{i * 100}.5,40.25\n" for i in range(50))
    path.write_text("Name,Type,Accelerator Core,Start Time(us),Duration(us)\n" + rows)
    findings = analyze_path(path).findings
    assert {f.rule: f.status for f in findings} == dict.fromkeys(RULE_NAMES, "cannot_tell")
    for f in findings:
        assert f.needs and f.next and f.gain_ns_per_step is None


# --- ai_cpu --------------------------------------------------------------------------------------------------------


def test_ai_cpu_counts_only_time_that_nothing_hides(tmp_path: Path) -> None:
    """300 µs on AI CPU, of which a kernel on another stream covers 60: at most 240 in two steps."""
    kernels = busy()
    cpu = beside(kernels, 300_000, core="AI_CPU", type="Unique2")
    cover = K(cpu.start + 100_000, 60_000, "cover", "Add", stream=5, launch=cpu.start - 1_000_000, step=12)
    result = analyze_path(ascend_pt(tmp_path, [*kernels, cpu, cover]))
    found = answer(result, "ai_cpu")
    assert_complete(found, step_length(result))
    assert found.gain_ns_per_step == (0, 120_000)
    assert found.evidence["exposed_ns"] == 240_000 and found.evidence["count"] == 1
    assert "Unique2" in found.title


def test_hidden_ai_cpu_operators_are_no_problem(tmp_path: Path) -> None:
    kernels = [*busy(), K(150_000, 90_000, "c", "Unique2", "AI_CPU", 5, launch=-300_000, step=11)]
    assert answer(ascend_pt(tmp_path, kernels), "ai_cpu").status == "ok"


def test_ai_cpu_needs_core_types(tmp_path: Path) -> None:
    found = answer(kernel_details(tmp_path / "kernel_details.csv", busy(core="N/A")), "ai_cpu")
    assert (found.status, "--level 1" in (found.needs or "")) == ("cannot_tell", True)


# --- layout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["TransData", "Transpose", "TransposeD", "Cast", "trans_TransData", "AsStrided"])
def test_rearranging_data_beyond_a_twentieth_of_compute(tmp_path: Path, type_: str) -> None:
    """10 ms of compute and 0.8 ms of conversions, of which another stream hides 0.3: at most 0.5 ms in two steps."""
    kernels = busy()
    turn = beside(kernels, 800_000, type=type_)
    cover = K(turn.start + 500_000, 300_000, "cover", "Mul", stream=5, launch=turn.start - 1_000_000, step=12)
    result = analyze_path(ascend_pt(tmp_path, [*kernels, turn, cover]))
    found = answer(result, "layout")
    assert_complete(found, step_length(result))
    assert found.evidence["share_of_compute"] == pytest.approx(0.8 / 11.1)
    assert found.gain_ns_per_step == (0, 250_000)


@pytest.mark.parametrize(
    ("type_", "dur"), [("TransData", 400_000), ("MatMulV2", 4_000_000), ("BroadcastTo", 2_000_000)]
)
def test_little_rearranging_is_no_problem(tmp_path: Path, type_: str, dur: int) -> None:
    kernels = busy()
    kernels.append(beside(kernels, dur, type=type_))
    assert answer(ascend_pt(tmp_path, kernels), "layout").status == "ok"


@pytest.mark.parametrize("type_", ["TransposeBatchMatMul", "TransposeQuantBatchMatMul"])
def test_a_matrix_product_that_transposes_is_no_rearranging(tmp_path: Path, type_: str) -> None:
    kernels = busy()
    kernels.append(beside(kernels, 4_000_000, type=type_, core="AI_CORE", block=24))
    assert answer(ascend_pt(tmp_path, kernels), "layout").status == "ok"


def test_layout_needs_operator_types(tmp_path: Path) -> None:
    found = answer(kernel_details(tmp_path / "kernel_details.csv", busy(type="N/A")), "layout")
    assert (found.status, "types" in (found.needs or "")) == ("cannot_tell", True)


# --- small_kernels -------------------------------------------------------------------------------------------------


def test_small_kernels_that_the_host_cannot_feed(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, starved()))
    found = answer(result, "small_kernels")
    assert_complete(found, step_length(result))
    # Half as many launches: 1 of the 2 µs that are recorded of each, or half of the 40 µs between two.
    assert found.gain_ns_per_step == (99 * 1_000 // 2, 99 * 20_000 // 2)
    assert found.evidence["host_wait_ns"] == 99 * WAIT == result.devices[0].partition.host_wait_ns
    assert found.severity == "high"


def test_the_wait_for_small_kernels_is_that_of_the_partition(tmp_path: Path) -> None:
    """An event in every gap neither shortens the wait for the next launch nor begins it."""
    kernels = starved()
    for k in list(kernels[:-1]):
        kernels.append(K(k.start + 16_000, 10, "EVENT_RECORD", core="EVENT_RECORD", launch=k.start + 8_000))
    kernels.append(K(-500_000, 10, "EVENT_RECORD", core="EVENT_RECORD", launch=-510_000))
    result = analyze_path(ascend_pt(tmp_path, kernels))
    assert result.devices[0].partition.host_wait_ns == 99 * WAIT
    assert answer(result, "small_kernels").evidence["host_wait_ns"] == 99 * WAIT


def test_large_kernels_of_a_slow_host_are_not_small(tmp_path: Path) -> None:
    kernels = [replace(k, dur=12_000) for k in starved()]
    result = analyze_path(ascend_pt(tmp_path, kernels))
    assert result.verdict.bound == "host"
    assert answer(result, "small_kernels").status == "ok"


def test_small_kernels_of_a_busy_device_are_no_problem(tmp_path: Path) -> None:
    kernels = [K(i * 5_000, 5_000, f"k{i}", launch=i * 1_000 - 900_000) for i in range(200)]
    assert answer(ascend_pt(tmp_path, kernels), "small_kernels").status == "ok"


def test_small_kernels_need_launches(tmp_path: Path) -> None:
    found = answer(kernel_details(tmp_path / "kernel_details.csv", starved()), "small_kernels")
    assert (found.status, "trace_view.json" in (found.needs or "")) == ("cannot_tell", True)


@pytest.mark.parametrize("rule", ["small_kernels", "dynamic_shape"])
def test_without_a_verdict_no_rule_that_builds_on_it_says_ok(tmp_path: Path, rule: str) -> None:
    """The kernel table is an excerpt: whether the device waits for the host cannot be told."""
    folder = ascend_pt(tmp_path, starved(state="dynamic"))
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(",6.000,0,", ",6.000,0.5,") for line in lines[1::4])]) + "\n")
    result = analyze_path(folder)
    assert result.verdict.bound == "unknown"
    assert answer(result, rule).status == "cannot_tell"


# --- dynamic_shape -------------------------------------------------------------------------------------------------


def test_dynamic_shapes_of_a_starved_device(tmp_path: Path) -> None:
    """Three of four kernels are dynamic; 30 of the 40 µs between launches are tiling: without it 10 µs remain."""
    kernels = [replace(k, state="static" if i % 4 == 3 else "dynamic") for i, k in enumerate(starved())]
    tiling = [H("AscendCL@Add_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    result = analyze_path(ascend_pt(tmp_path, kernels, host=tiling))
    found = answer(result, "dynamic_shape")
    assert_complete(found, step_length(result))
    assert found.evidence["share_of_compute"] == pytest.approx(0.75)
    assert found.gain_ns_per_step == (99 * 30_000 // 2, 99 * 30_000 // 2)


@pytest.mark.parametrize("make", [lambda: starved(state="static"), lambda: busy(state="dynamic")])
def test_static_shapes_or_a_busy_device_are_no_problem(tmp_path: Path, make: Callable[[], list[K]]) -> None:
    assert answer(ascend_pt(tmp_path, make()), "dynamic_shape").status == "ok"


def test_dynamic_shape_needs_the_state_and_launches(tmp_path: Path) -> None:
    no_state = answer(ascend_pt(tmp_path / "a", starved(state="N/A")), "dynamic_shape")
    assert (no_state.status, "OP State" in (no_state.needs or "")) == ("cannot_tell", True)
    no_launch = answer(kernel_details(tmp_path / "b" / "kernel_details.csv", starved()), "dynamic_shape")
    assert (no_launch.status, "launches" in (no_launch.needs or "")) == ("cannot_tell", True)


# --- what the host was doing ---------------------------------------------------------------------------------------

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def stalled(name: str, python: bool = False) -> tuple[list[K], list[H]]:
    """Two steps of 50 kernels of 50 µs, back to back; before the second step the host is away for 10 ms.

    The host launches a kernel every 10 µs. The second step's first launch returns 10.5 ms after the start, when
    the device has been idle since 2.5 ms: 8 ms of wait, less without the event.
    """
    first = [K(i * 50_000, 50_000, f"k{i}", launch=i * 10_000 - 10_000, launch_dur=2_000, step=11) for i in range(50)]
    begin = 10_500_000
    second = [K(begin + 8_000 + i * 50_000, 50_000, f"m{i}", launch=begin + i * 10_000 - 2_000, launch_dur=2_000,
                step=12) for i in range(50)]  # fmt: skip
    return [*first, *second], [H(name, 490_000, 10_000_000, python)]


@pytest.mark.parametrize(
    ("rule", "name", "python"),
    [
        ("data_loading", LOADER, True),
        ("compilation", "AscendCL@opCompile", False),
        ("garbage_collection", "GC", True),
    ],
)
def test_a_stall_is_blamed_on_what_the_host_did(tmp_path: Path, rule: str, name: str, python: bool) -> None:
    kernels, host = stalled(name, python)
    result = analyze_path(ascend_pt(tmp_path, kernels, host=host))
    (device,) = result.devices
    assert device.partition.host_wait_ns == 8_000_000
    blamed = sum(b.ns for b in device.blame if b.name == name)
    assert blamed == 10_490_000 - 2_500_000  # until the event ends; the launch itself takes the rest
    found = answer(result, rule)
    assert_complete(found, step_length(result))
    # Without the event the second step follows the first at once: 2.5 ms after the start instead of 10.508.
    assert found.gain_ns_per_step and found.gain_ns_per_step[1] == pytest.approx(8_008_000 / 2, rel=0.001)
    others = {"data_loading", "compilation", "garbage_collection"} - {rule}
    assert {answer(result, other).status for other in others} == {"ok"}


def with_syncs() -> tuple[list[K], list[H]]:
    """20 times: 5 launches in 50 µs, 5 kernels of 40 µs, a wait for the last one, which returns 6 µs after it."""
    kernels, host, clock, free = [], [], 0, -10_000
    for n in range(20):
        for i in range(5):
            clock += 10_000
            start = max(clock + 8_000, free)
            free = start + 40_000
            kernels.append(K(start, 40_000, f"k{n}_{i}", launch=clock - 2_000, launch_dur=2_000, step=11 + n // 10))
        host.append(H("aten::item", clock + 1_000, free + 6_500 - clock - 1_000, python=True))
        host.append(H("train.py(41): step", clock + 500, free + 7_000 - clock - 500, python=True))
        host.append(H("AscendCL@aclrtSynchronizeStream", clock + 2_000, free + 6_000 - clock - 2_000))
        clock = free + 6_000
    return kernels, host


def test_a_sync_is_named_with_its_line_and_its_gain(tmp_path: Path) -> None:
    """Each wait costs 24 µs of idle time (6 to return, 10 to launch, 8 of latency); without it the queue stays full."""
    kernels, host = with_syncs()
    result = analyze_path(ascend_pt(tmp_path, kernels, host=host))
    found = answer(result, "sync_points")
    assert_complete(found, step_length(result))
    assert "aten::item at train.py:41 step" in found.title
    (site,) = result.devices[0].syncs
    assert (site.count, site.idle_ns) == (20, 19 * 24_000)
    assert found.gain_ns_per_step == (19 * 24_000 // 2, 19 * 24_000 // 2)


def test_a_sync_that_costs_nothing_is_no_problem(tmp_path: Path) -> None:
    kernels = busy()
    host = [H("AscendCL@aclrtSynchronizeDevice", 9_000_000, 1_005_000)]
    assert answer(ascend_pt(tmp_path, kernels, host=host), "sync_points").status == "ok"


def test_launching_one_by_one_could_be_captured(tmp_path: Path) -> None:
    """Of 40 µs per kernel 6 are compute; without host and latency they follow each other 0.5 µs apart (assumed)."""
    result = analyze_path(ascend_pt(tmp_path, starved()))
    found = answer(result, "graph_capture")
    assert_complete(found, step_length(result))
    assert found.gain_ns_per_step == (0, 99 * 34_000 // 2)


def test_a_stall_is_no_reason_to_capture(tmp_path: Path) -> None:
    kernels, host = stalled(LOADER, python=True)
    assert answer(ascend_pt(tmp_path, kernels, host=host), "graph_capture").status == "ok"


def test_a_host_that_sleeps_is_not_launching(tmp_path: Path) -> None:
    """Kernels 5 ms apart, and nothing recorded between them: capturing would not shorten that."""
    kernels = [K(5_000_000 * i, 6_000, launch=5_000_000 * i - 9_000) for i in range(20)]
    result = analyze_path(ascend_pt(tmp_path, kernels))
    assert result.verdict.bound == "host"
    assert answer(result, "graph_capture").status == "ok"


def test_task_queue_off_and_on(tmp_path: Path) -> None:
    calls = [H("AscendCL@aclnnAddGetWorkspaceSize", i * 40_000 - 40_000, 20_000) for i in range(100)]
    off = analyze_path(ascend_pt(tmp_path / "off", starved(), host=calls))
    assert_complete(answer(off, "task_queue"), step_length(off))
    assert "TASK_QUEUE_ENABLE=1" in answer(off, "task_queue").next
    queued = [*calls, *(H("Dequeue@aclnnAdd", i * 40_000 - 15_000, 8_000, python=True) for i in range(100))]
    on = answer(ascend_pt(tmp_path / "on", starved(), host=queued), "task_queue")
    assert (on.status, "TASK_QUEUE_ENABLE=2" in on.next) == ("problem", True)
    assert on.gain_ns_per_step == (0, 99 * 20_000 // 2)
    none = answer(ascend_pt(tmp_path / "none", starved()), "task_queue")
    assert (none.status, "aclnn" in (none.needs or "")) == ("cannot_tell", True)


def graph(count: int = 300, shapes: int = 200) -> tuple[list[K], list[H]]:
    """A GE graph of dynamic shape: kernels named after its nodes, tiling and memory work before every launch."""
    kernels = [replace(k, name="Add_17", state="dynamic", shapes=f"{i % shapes + 1},64") for i, k in
               enumerate(starved(count))]  # fmt: skip
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 40_000, 20_000) for i in range(count)]
    host += [H("AscendCL@aclrtMalloc", i * 40_000 - 19_000, 8_000) for i in range(count)]
    return kernels, [*host, H("Model@ModelExecute", -90_000, 50_000)]


def test_dynamic_graphs_need_threads_and_fewer_shapes(tmp_path: Path) -> None:
    kernels, host = graph()
    result = analyze_path(ascend_pt(tmp_path, kernels, host=host))
    threads = answer(result, "runtime_threads")
    assert_complete(threads, step_length(result))
    assert "MAX_RUNTIME_CORE_NUMBER=3" in threads.next
    assert threads.gain_ns_per_step == (0, 299 * 10_000 // 2)  # 8 µs of memory work, 2 of launching
    cache = answer(result, "tiling_cache")
    assert_complete(cache, step_length(result))
    assert "200 different shapes" in cache.title
    assert cache.gain_ns_per_step == (0, 299 * 20_000 // 2)


def test_a_hundred_shapes_fit_the_tiling_cache(tmp_path: Path) -> None:
    kernels, host = graph(shapes=100)
    assert answer(ascend_pt(tmp_path, kernels, host=host), "tiling_cache").status == "ok"


def test_eager_kernels_are_no_graph(tmp_path: Path) -> None:
    kernels, host = graph()
    eager = [replace(k, name="aclnnAdd_Add_Add") for k in kernels]
    result = analyze_path(ascend_pt(tmp_path, eager, host=host))
    assert {answer(result, r).status for r in ("runtime_threads", "tiling_cache", "host_operators")} == {"ok"}


def test_shape_computing_belongs_on_the_host(tmp_path: Path) -> None:
    kernels, host = graph(shapes=1)
    small = [replace(k, type="Pack", shapes="2;2,4") if i % 2 else k for i, k in enumerate(kernels)]
    result = analyze_path(ascend_pt(tmp_path, small, host=host))
    found = answer(result, "host_operators")
    assert_complete(found, step_length(result))
    assert found.evidence["count"] == 150
    assert found.gain_ns_per_step == (0, (150 * WAIT + 150 * 6_000) // 2)
    assert answer(ascend_pt(tmp_path / "b", kernels, host=host), "host_operators").status == "ok"


def test_uneven_host_calls(tmp_path: Path) -> None:
    """Every tenth of 100 equal calls of 10 µs takes 100: 80 of it beyond twice the usual, of 1900 µs in all."""
    calls = [H("AscendCL@aclnnAdd", i * 200_000 - 105_000, 100_000 if i % 10 == 0 else 10_000) for i in range(100)]
    kernels = [replace(k, start=k.start * 5, launch=(k.launch or 0) + k.start * 4) for k in starved()]
    result = analyze_path(ascend_pt(tmp_path / "a", kernels, host=calls))
    found = answer(result, "uneven_host")
    assert_complete(found, step_length(result))
    assert (found.evidence["excess_ns"], found.evidence["calls_ns"]) == (800_000, 1_900_000)
    even = [replace(c, dur=10_000) for c in calls]
    assert answer(ascend_pt(tmp_path / "b", kernels, host=even), "uneven_host").status == "ok"


# --- idle_cores ----------------------------------------------------------------------------------------------------


def test_kernels_that_leave_most_cores_idle(tmp_path: Path) -> None:
    """100 kernels of 100 µs on 6 of 24 cores: 75 µs of each could be saved at most, in two steps."""
    result = analyze_path(ascend_pt(tmp_path, busy(block=6), cores="24,48"))
    found = answer(result, "idle_cores")
    assert_complete(found, step_length(result))
    assert found.evidence["idle_share_of_busy_core_time"] == pytest.approx(0.75)
    assert found.gain_ns_per_step == (0, 100 * 75_000 // 2)


def test_a_mix_kernel_counts_the_side_it_fills(tmp_path: Path) -> None:
    assert (
        answer(ascend_pt(tmp_path, busy(core="MIX_AIC", block=2, mix=48), cores="24,48"), "idle_cores").status == "ok"
    )


def test_idle_cores_that_another_stream_hides_gain_no_more_than_they_cover(tmp_path: Path) -> None:
    """Beside every kernel runs another one on 24 of 24 cores: nothing is won by speeding the small ones up."""
    kernels = [*busy(block=2), *busy(stream=5, name="other", type="Other", block=24)]
    found = answer(ascend_pt(tmp_path, kernels, cores="24,48"), "idle_cores")
    unused = 100 * 100_000 * 22 // 24
    assert found.evidence["idle_share_of_busy_core_time"] == pytest.approx(22 / 48)
    assert found.gain_ns_per_step and found.gain_ns_per_step[1] <= unused // 2


@pytest.mark.parametrize("block", [24, 18, 100])
def test_kernels_that_fill_the_cores_are_no_problem(tmp_path: Path, block: int) -> None:
    assert answer(ascend_pt(tmp_path, busy(block=block), cores="24,48"), "idle_cores").status == "ok"


def test_idle_cores_need_core_counts_and_blocks(tmp_path: Path) -> None:
    no_cores = answer(ascend_pt(tmp_path / "a", busy(block=2)), "idle_cores")
    assert (no_cores.status, "--cores" in (no_cores.needs or "")) == ("cannot_tell", True)
    no_blocks = answer(ascend_pt(tmp_path / "b", busy(block=0), cores="24,48"), "idle_cores")
    assert (no_blocks.status, "Block Dim" in (no_blocks.needs or "")) == ("cannot_tell", True)


def test_vector_kernels_need_the_number_of_vector_cores(tmp_path: Path) -> None:
    """info.json names cube cores only, and every kernel is a vector kernel: nothing can be compared."""
    folder = ascend_pt(tmp_path, busy(core="AI_VECTOR_CORE", block=2), cores="24,48")
    (info,) = folder.rglob("info.json.0")
    info.write_text(json.dumps({"DeviceInfo": [{"id": 0, "ai_core_num": 24}]}))
    assert answer(folder, "idle_cores").status == "cannot_tell"


# --- early_steps ---------------------------------------------------------------------------------------------------


def test_steps_among_the_first_ten(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, [*busy(step=3), *busy(step=12)]))
    found = answer(result, "early_steps")
    assert_complete(found, step_length(result))
    assert (found.evidence["steps"], found.gain_ns_per_step) == ([3], None)
    assert "--wait 10" in found.next


@pytest.mark.parametrize(("step", "status"), [(9, "problem"), (10, "ok"), (500, "ok")])
def test_the_tenth_step_is_warm(tmp_path: Path, step: int, status: str) -> None:
    assert answer(ascend_pt(tmp_path, busy(step=step)), "early_steps").status == status


def test_early_steps_need_step_numbers(tmp_path: Path) -> None:
    assert answer(ascend_pt(tmp_path, busy(step="")), "early_steps").status == "cannot_tell"


def test_a_chosen_warm_step_is_not_early(tmp_path: Path) -> None:
    second = [replace(k, start=k.start + 20_000_000, step=12) for k in busy()]
    folder = ascend_pt(tmp_path, [*busy(step=3), *second])
    assert answer(analyze_path(folder, Options(step=12)), "early_steps").status == "ok"
    assert answer(analyze_path(folder, Options(step=3)), "early_steps").status == "problem"


# --- launch_blocking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "status"), [("1", "problem"), ("0", "ok"), ("", "ok")])
def test_blocking_launches_are_read_from_the_environment(tmp_path: Path, value: str, status: str) -> None:
    folder = ascend_pt(tmp_path, busy())
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": value}}))
    found = answer(folder, "launch_blocking")
    assert found.status == status
    if status == "problem":
        assert_complete(found, 1)
        assert "unset" in found.next


@pytest.mark.parametrize("text", [None, "{}", '{"ENV_VARIABLES": {"HCCL_ALGO": ""}}', "not json"])
def test_blocking_launches_need_the_environment(tmp_path: Path, text: str | None) -> None:
    folder = ascend_pt(tmp_path, busy())
    if text is not None:
        (folder / "profiler_metadata.json").write_text(text)
    assert answer(folder, "launch_blocking").status == "cannot_tell"


# --- gains ---------------------------------------------------------------------------------------------------------


def test_without_steps_a_gain_is_for_the_whole_window(tmp_path: Path) -> None:
    found = answer(ascend_pt(tmp_path, starved(step="")), "small_kernels")
    assert (found.gain_per, found.gain_ns_per_step) == ("window", (99 * 1_000, 99 * 20_000))


@pytest.mark.parametrize(("extra", "severity"), [(150_000, "low"), (400_000, "medium"), (2_000_000, "high")])
def test_severity_follows_the_gain(tmp_path: Path, extra: int, severity: str) -> None:
    """Beside 10 ms of work: 1.5 %, 3.8 %, 16.7 % of the step."""
    kernels = busy()
    kernels.append(beside(kernels, extra, core="AI_CPU", type="Unique"))
    assert answer(ascend_pt(tmp_path, kernels), "ai_cpu").severity == severity

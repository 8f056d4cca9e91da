"""Rules about the host: planted cases with the gain worked out by hand, healthy ones, and missing data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from build import H, K, ascend_pt, kernel_details
from msgspec.structs import replace
from small_programs import WAIT, analyzed, answer, assert_complete, batches, busy, problem, starved, step_length

# --- small_kernels -------------------------------------------------------------------------------------------------


def test_small_kernels_that_the_host_cannot_feed(tmp_path: Path) -> None:
    result = analyzed(ascend_pt(tmp_path, starved()))
    found = problem(result, "small_kernels")
    # Half as many launches: at most half of the 40 µs between two; whether the advice halves them is not sure.
    assert found.gain_ns_per_step == (0, 99 * 20_000 // 2)
    assert found.evidence["host_wait_ns"] == 99 * WAIT == result.devices[0].partition.host_wait_ns
    assert found.severity == "high"


def test_the_wait_for_small_kernels_is_that_of_the_partition(tmp_path: Path) -> None:
    """An event in every gap neither shortens the wait for the next launch nor begins it."""
    kernels = starved()
    for k in list(kernels[:-1]):
        kernels.append(K(k.start + 16_000, 10, "EVENT_RECORD", core="EVENT_RECORD", launch=k.start + 8_000))
    kernels.append(K(-500_000, 10, "EVENT_RECORD", core="EVENT_RECORD", launch=-510_000))
    result = analyzed(ascend_pt(tmp_path, kernels))
    assert result.devices[0].partition.host_wait_ns == 99 * WAIT
    assert answer(result, "small_kernels").evidence["host_wait_ns"] == 99 * WAIT


def test_large_kernels_of_a_slow_host_are_not_small(tmp_path: Path) -> None:
    kernels = [replace(k, dur=12_000) for k in starved()]
    result = analyzed(ascend_pt(tmp_path, kernels))
    assert result.verdict.bound == "host"
    assert answer(result, "small_kernels").status == "ok"


def test_small_kernels_of_a_busy_device_are_no_problem(tmp_path: Path) -> None:
    kernels = [K(i * 5_000, 5_000, f"k{i}", launch=i * 1_000 - 900_000) for i in range(200)]
    assert answer(ascend_pt(tmp_path, kernels), "small_kernels").status == "ok"


def test_small_kernels_need_launches(tmp_path: Path) -> None:
    found = answer(kernel_details(tmp_path / "kernel_details.csv", starved()), "small_kernels")
    assert (found.status, "trace_view.json" in str(found.needs)) == ("cannot_tell", True)


@pytest.mark.parametrize("rule", ["small_kernels", "dynamic_shape"])
def test_without_a_verdict_no_rule_that_builds_on_it_says_ok(tmp_path: Path, rule: str) -> None:
    """The kernel table is an excerpt: whether the device waits for the host cannot be told."""
    folder = ascend_pt(tmp_path, starved(state="dynamic"))
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(",6.000,0,", ",6.000,0.5,") for line in lines[1::4])]) + "\n")
    result = analyzed(folder)
    assert result.verdict.bound == "unknown"
    assert answer(result, rule).status == "cannot_tell"


# --- dynamic_shape -------------------------------------------------------------------------------------------------


def test_dynamic_shapes_of_a_starved_device(tmp_path: Path) -> None:
    """Three of four kernels are dynamic; 30 of the 40 µs between launches are tiling.

    The advice is a graph of fixed shape that runs as a whole: it saves 99 waits of 34 µs, if no launch is waited for.
    """
    kernels = [replace(k, state="static" if i % 4 == 3 else "dynamic") for i, k in enumerate(starved())]
    tiling = [H("AscendCL@Add_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    found = problem(ascend_pt(tmp_path, kernels, host=tiling), "dynamic_shape")
    assert found.evidence["share_of_compute"] == pytest.approx(0.75)
    assert "max-autotune" in str(found.next)
    assert found.gain_ns_per_step == (0, 99 * 34_000 // 2)


def test_where_no_graph_fits_fixed_sizes_save_their_tiling(tmp_path: Path) -> None:
    """In training shapes are padded, which leaves the launches: of 40 µs between two, 30 are tiling."""
    kernels = [replace(k, state="dynamic") for k in starved()]
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    host.append(H("Optimizer.step#SGD.step", -60_000, 1_000, python=True, thread=10))
    found = problem(ascend_pt(tmp_path, kernels, host=host), "dynamic_shape")
    assert "pad batch and sequence length" in str(found.next)
    assert found.gain_ns_per_step == (99 * 30_000 // 2, 99 * 30_000 // 2)


@pytest.mark.parametrize("make", [lambda: starved(state="static"), lambda: busy(state="dynamic")])
def test_static_shapes_or_a_busy_device_are_no_problem(tmp_path: Path, make: Callable[[], list[K]]) -> None:
    assert answer(ascend_pt(tmp_path, make()), "dynamic_shape").status == "ok"


def test_dynamic_shape_needs_the_state_and_launches(tmp_path: Path) -> None:
    no_state = answer(ascend_pt(tmp_path / "a", starved(state="N/A")), "dynamic_shape")
    assert (no_state.status, "OP State" in str(no_state.needs)) == ("cannot_tell", True)
    no_launch = answer(kernel_details(tmp_path / "b" / "kernel_details.csv", starved(state="dynamic")), "dynamic_shape")
    assert (no_launch.status, "launches" in str(no_launch.needs)) == ("cannot_tell", True)


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
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    (device,) = result.devices
    assert device.partition.host_wait_ns == 8_000_000
    blamed = sum(b.ns for b in device.blame if b.name == name)
    assert blamed == 10_490_000 - 2_500_000  # until the event ends; the launch itself takes the rest
    found = problem(result, rule)
    # Without the event the second step follows the first at once: 2.5 ms after the start instead of 10.508.
    assert found.gain_ns_per_step and found.gain_ns_per_step[1] == pytest.approx(8_008_000 / 2, rel=0.001)
    others = {"data_loading", "compilation", "garbage_collection"} - {rule}
    assert "problem" not in {answer(result, other).status for other in others}


def test_a_sync_is_named_with_its_line_and_its_gain(tmp_path: Path) -> None:
    """Each wait costs 24 µs of idle time (6 to return, 10 to launch, 8 of latency); without it the queue stays full."""
    kernels, host = batches("aten::item")
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    found = problem(result, "sync_points")
    assert "aten::item at train.py:41 step" in str(found.title)
    (site,) = result.devices[0].syncs
    assert (site.count, site.idle_ns) == (20, 19 * 24_000)
    assert found.gain_ns_per_step == (19 * 24_000 // 2, 19 * 24_000 // 2)


def test_a_sync_that_costs_nothing_is_no_problem(tmp_path: Path) -> None:
    kernels = busy()
    host = [H("AscendCL@aclrtSynchronizeDevice", 9_000_000, 1_005_000)]
    assert answer(ascend_pt(tmp_path, kernels, host=host), "sync_points").status == "ok"


def test_launching_one_by_one_could_be_captured(tmp_path: Path) -> None:
    """Of 40 µs per kernel 6 are compute; without host and latency they follow each other 0.5 µs apart (assumed)."""
    found = problem(ascend_pt(tmp_path, starved()), "graph_capture")
    assert found.gain_ns_per_step == (0, 99 * 34_000 // 2)


def test_a_stall_is_no_reason_to_capture(tmp_path: Path) -> None:
    kernels, host = stalled(LOADER, python=True)
    assert answer(ascend_pt(tmp_path, kernels, host=host), "graph_capture").status == "ok"


def test_a_host_that_sleeps_is_not_launching(tmp_path: Path) -> None:
    """Kernels 5 ms apart, and nothing recorded between them: capturing would not shorten that."""
    kernels = [K(5_000_000 * i, 6_000, launch=5_000_000 * i - 9_000) for i in range(20)]
    result = analyzed(ascend_pt(tmp_path, kernels))
    assert result.verdict.bound == "host"
    assert answer(result, "graph_capture").status == "ok"


def test_task_queue_off_and_on(tmp_path: Path) -> None:
    calls = [H("AscendCL@aclnnAddGetWorkspaceSize", i * 40_000 - 40_000, 20_000) for i in range(100)]
    ops = [H("aten::add", i * 40_000 - 40_100, 39_900, python=True) for i in range(100)]
    off = analyzed(ascend_pt(tmp_path / "off", starved(), host=[*calls, *ops]))
    assert_complete(answer(off, "task_queue"), step_length(off))
    assert "TASK_QUEUE_ENABLE=1" in str(answer(off, "task_queue").next)
    alone = answer(ascend_pt(tmp_path / "alone", starved(), host=calls), "task_queue")
    assert (alone.status, "torch operators" in str(alone.needs)) == ("cannot_tell", True)  # where its events would be
    queued = [*calls, *(H("Dequeue@aclnnAdd", i * 40_000 - 15_000, 8_000, python=True) for i in range(100))]
    on = answer(ascend_pt(tmp_path / "on", starved(), host=queued), "task_queue")
    assert (on.status, "TASK_QUEUE_ENABLE=2" in str(on.next)) == ("problem", True)
    assert on.gain_ns_per_step == (0, 99 * 20_000 // 2)
    none = answer(ascend_pt(tmp_path / "none", starved()), "task_queue")
    assert (none.status, "aclnn" in str(none.needs)) == ("cannot_tell", True)


def graph(count: int = 300, shapes: int = 200) -> tuple[list[K], list[H]]:
    """A GE graph of dynamic shape: kernels named after its nodes, tiling and memory work before every launch."""
    kernels = [replace(k, name="Add_17", state="dynamic", shapes=f"{i % shapes + 1},64") for i, k in
               enumerate(starved(count))]  # fmt: skip
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 40_000, 20_000) for i in range(count)]
    host += [H("AscendCL@aclrtMalloc", i * 40_000 - 19_000, 8_000) for i in range(count)]
    return kernels, [*host, H("Model@ModelExecute", -90_000, 50_000)]


def test_dynamic_graphs_need_threads_and_fewer_shapes(tmp_path: Path) -> None:
    kernels, host = graph()
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    threads = answer(result, "runtime_threads")
    assert_complete(threads, step_length(result))
    assert "MAX_RUNTIME_CORE_NUMBER=3" in str(threads.next)
    assert threads.gain_ns_per_step == (0, 299 * 10_000 // 2)  # 8 µs of memory work, 2 of launching
    cache = answer(result, "tiling_cache")
    assert_complete(cache, step_length(result))
    assert "200 different shapes" in str(cache.title)
    assert cache.gain_ns_per_step == (0, 299 * 20_000 // 2)


@pytest.mark.parametrize(
    "memory", ["AllocMemHbm", "AllocBatchHbm", "FreeMemHbm", "FreeBatchHbm", "Node@AllocMemHbm", "[AllocMemHbm]"]
)
def test_memory_and_launches_of_graphs_are_theirs_under_any_name(tmp_path: Path, memory: str) -> None:
    """GE's own kernels around every launch: 20 µs of tiling, 8 µs of memory, 3 µs of launching."""
    kernels, host = graph()
    named = [replace(h, name=memory) if h.name == "AscendCL@aclrtMalloc" else h for h in host]
    launches = [H("LaunchKernelWithHandle", i * 40_000 - 11_000, 3_000) for i in range(len(kernels))]
    result = analyzed(ascend_pt(tmp_path, kernels, host=[*named, *launches]))
    assert answer(result, "runtime_threads").gain_ns_per_step == (0, 299 * 11_000 // 2)
    assert answer(result, "tiling_cache").gain_ns_per_step == (0, 299 * 20_000 // 2)


def test_a_hundred_shapes_fit_the_tiling_cache(tmp_path: Path) -> None:
    kernels, host = graph(shapes=100)
    assert answer(ascend_pt(tmp_path, kernels, host=host), "tiling_cache").status == "ok"


def test_eager_kernels_are_no_graph(tmp_path: Path) -> None:
    kernels, host = graph()
    eager = [replace(k, name="aclnnAdd_Add_Add") for k in kernels]
    result = analyzed(ascend_pt(tmp_path, eager, host=host))
    assert {answer(result, r).status for r in ("runtime_threads", "tiling_cache", "host_operators")} == {"ok"}


def test_shape_computing_belongs_on_the_host(tmp_path: Path) -> None:
    kernels, host = graph(shapes=1)
    small = [replace(k, type="Pack", shapes="2;2,4") if i % 2 else k for i, k in enumerate(kernels)]
    found = problem(ascend_pt(tmp_path, small, host=host), "host_operators")
    assert found.evidence["count"] == 150
    assert found.gain_ns_per_step == (0, (150 * WAIT + 150 * 6_000) // 2)
    assert answer(ascend_pt(tmp_path / "b", kernels, host=host), "host_operators").status == "ok"


def test_uneven_host_calls(tmp_path: Path) -> None:
    """Every tenth of 100 equal calls of 10 µs takes 100: 80 of it beyond twice the usual, of 1900 µs in all."""
    calls = [H("AscendCL@aclnnAdd", i * 200_000 - 105_000, 100_000 if i % 10 == 0 else 10_000) for i in range(100)]
    kernels = [replace(k, start=k.start * 5, launch=(k.launch or 0) + k.start * 4) for k in starved()]
    folder = ascend_pt(tmp_path / "a", kernels, host=calls)
    found = problem(folder, "uneven_host")
    assert (found.evidence["excess_ns"], found.evidence["calls_ns"]) == (800_000, 1_900_000)
    assert found.evidence["worst"] == "AscendCL@aclnnAdd" and "part in AscendCL@aclnnAdd" in str(found.title)
    assert str(found.title).startswith("42.1 %")  # 800 of 1900
    even = [replace(c, dur=10_000) for c in calls]
    assert answer(ascend_pt(tmp_path / "b", kernels, host=even), "uneven_host").status == "ok"
    assert "CPU_AFFINITY_CONF=2" in str(found.next)
    bound = {"ENV_VARIABLES": {"CPU_AFFINITY_CONF": "1,npu0:0-23"}}
    (folder / "profiler_metadata.json").write_text(json.dumps(bound))
    found = answer(analyzed(folder), "uneven_host")
    assert str(found.next) == "keep other processes off the CPUs that the process is bound to"

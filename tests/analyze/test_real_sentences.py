"""What the reports say of profiles that nobody planted, held against what their raw files say.

Every number and every list here was worked out from the files by hand (csv, json and sqlite3, no npuperf), as
docs/real_profiles.md tells; a profile that is not there is skipped.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from build import analyze_path
from small_programs import steps_of

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import say
from npuperf.model.chip import Cores
from npuperf.model.result import Finding, Result
from npuperf.show.formats import View, render

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"

#: What only a timeline shows: calls of the host, launches, collections.
HOST_SIDE = frozenset({
    "sync_points", "value_dependent", "blocking_copies", "data_loading", "compilation", "online_compile",
    "garbage_collection", "graph_capture", "small_kernels", "fused_operators", "task_queue", "uneven_host", "start_up",
})  # fmt: skip
#: Needs the number of cores, which counters tell in some profiles; info.json is with none of them.
CORES = frozenset({"idle_cores", "core_limit"})
#: Needs the types of operators, or what is recorded with them: shapes and counters.
TYPES = frozenset({"layout", "casts", "copies", "scalar_kernels", "fp32_products", "padded_products",
                   "narrow_products", "unaligned_products", "slow_copies", "moved_for_products"})  # fmt: skip
#: The rules that were judged by hand; of others nothing is said here.
JUDGED = HOST_SIDE | CORES | TYPES | {
    "ai_cpu", "early_steps", "exposed_communication", "slowed_compute", "super_kernel", "dynamic_shape",
    "host_pauses", "launch_blocking", "recording_cost", "env_settings", "tiling_cache", "runtime_threads",
    "host_operators",
}  # fmt: skip
#: The environment is not recorded, or only eight variables of it.
NEVER_SURE = frozenset({"recording_cost", "garbage_collection"}) | CORES
#: Of the core time of busy kernels 11 % are idle in level1, 1 % in cluster4, 42 % in op_summary_2026 (9 and 18 blocks
#: on 20 and 40 cores); kernels run on one stream.
COUNTED = NEVER_SURE - CORES


@dataclass(frozen=True)
class Truth:
    """What is true of a profile.

    ``steps``: number and length in ns: of one alone the host's range of it (ProfilerStep#N, STEP_TIME); of several from
    where the host begins it and the device is done with the one before; without a timeline between first kernels;
    ``problems``: all of them that were judged; ``not_ok``: what the data cannot tell, or is a problem; ``never``: words
    of advice that does not fit.
    """

    path: str
    bound: str
    steps: dict[int, int]
    problems: frozenset[str]
    not_ok: frozenset[str]
    never: tuple[str, ...] = ()


#: Graphs are not captured in training with dropout and with operators of aclop; its reads of values cost nothing.
ALEXNET_NEVER = (
    "torchair",
    "reduce-overhead",
    "npugraph_ex",
    "max-autotune",
    "make_graphed_callables",
    "jit_compile=F",
)
ALEXNET = frozenset({"exposed_communication", "graph_capture", "blocking_copies", "online_compile", "data_loading",
                     "host_pauses"})  # fmt: skip
LEVEL1 = ALEXNET | {"layout", "copies"}
TRUTHS = {
    t.path: t
    for t in (
        Truth("msinsight/text/level1/rank0_ascend_pt", "communication", {50: 155_985_800}, LEVEL1,
              COUNTED, ALEXNET_NEVER),
        Truth("msinsight/text/level1/rank1_ascend_pt", "communication", {50: 153_888_390}, LEVEL1,
              COUNTED, ALEXNET_NEVER),
        Truth("msinsight/text/level0/rank0_ascend_pt", "communication", {50: 136_897_820},
              frozenset({"exposed_communication", "graph_capture", "data_loading", "host_pauses"}),
              NEVER_SURE | TYPES | {"sync_points", "value_dependent", "blocking_copies", "compilation",
                                    "online_compile", "ai_cpu", "super_kernel", "dynamic_shape", "start_up"},
              ALEXNET_NEVER[:4]),
        Truth("msinsight/db/level0/rank0_ascend_pt", "communication", {50: 138_666_740}, ALEXNET,
              NEVER_SURE | TYPES | {"dynamic_shape"}, ALEXNET_NEVER),
        Truth("msinsight/db/level1/rank0_ascend_pt", "communication", {50: 151_888_750}, LEVEL1,
              COUNTED | {"dynamic_shape", "fp32_products"}, ALEXNET_NEVER),
        Truth("msinsight/db/level1/rank1_ascend_pt", "communication", {50: 148_265_420}, LEVEL1,
              COUNTED | {"dynamic_shape", "fp32_products"}, ALEXNET_NEVER),
        Truth("msinsight/cluster4/rank_0_ascend_pt", "communication", {13: 810_022_360},
              frozenset({"exposed_communication", "casts", "copies"}), COUNTED | HOST_SIDE,
              ("set torch.npu.config.allow_internal_format",)),
        Truth("msinsight/cluster4/rank_2_ascend_pt", "unknown", {13: 809_803_200},
              frozenset({"exposed_communication", "casts", "layout", "moved_for_products"}), COUNTED | HOST_SIDE,
              ("set torch.npu.config.allow_internal_format",)),
        Truth("msinsight/toy/op_summary_1.csv", "unknown", {2: 267_849_918}, frozenset({"early_steps"}),
              NEVER_SURE | HOST_SIDE | {"launch_blocking", "env_settings", "scalar_kernels"}),
        Truth("msprof-analyze/arithmetic_utilization", "communication", {1: 516_885_540},
              frozenset({"exposed_communication", "casts", "early_steps"}),
              NEVER_SURE | HOST_SIDE | {"launch_blocking", "env_settings", "scalar_kernels", "narrow_products"}),
        Truth("msprof-analyze/pipe_utilization", "unknown", {19: 2_857_120_405}, frozenset(),
              NEVER_SURE | HOST_SIDE | TYPES | {"ai_cpu", "launch_blocking", "env_settings"}),
        Truth("msprof-analyze/oldest", "unknown", {}, frozenset(),
              NEVER_SURE | HOST_SIDE | TYPES | {"ai_cpu", "super_kernel", "launch_blocking", "env_settings",
                                                "early_steps", "exposed_communication", "slowed_compute"}),
        Truth("msprof-analyze/timeline", "host", {1: 14_091_970},
              frozenset({"graph_capture", "online_compile", "small_kernels", "fused_operators", "task_queue", "ai_cpu",
                         "early_steps", "data_loading"}),
              NEVER_SURE | TYPES | {"launch_blocking", "env_settings", "dynamic_shape", "super_kernel"},
              ALEXNET_NEVER),
        Truth("op_summary_2026/op_summary_pipe_utilization.csv", "unknown", {},
              frozenset({"casts", "idle_cores", "moved_for_products"}),
              COUNTED | HOST_SIDE | {"launch_blocking", "env_settings", "padded_products", "narrow_products"}),
        Truth("op_summary_2026/op_summary_block_over_cores.csv", "compute", {}, frozenset({"scalar_kernels"}),
              NEVER_SURE | HOST_SIDE - {"graph_capture", "small_kernels"} | {"launch_blocking"}),
        Truth("hta/alexnet_gpu.json.gz", "host", {}, frozenset({"start_up", "host_pauses"}),
              frozenset({"garbage_collection"})),
        Truth("hta/simple_add_gpu.json.gz", "host", {}, frozenset({"start_up"}), frozenset({"garbage_collection"})),
        Truth("hta/ns_resolution_gpu.json.gz", "compute",
              {101: 101_151_318, 102: 95_736_858, 103: 95_570_619, 104: 95_664_091, 105: 95_394_716}, frozenset(),
              frozenset()),
    )
}  # fmt: skip
JOBS = ("msinsight/text/level1", "msinsight/db/level1", "msinsight/cluster4")
GPU = tuple(path for path in TRUTHS if path.startswith("hta/"))


@cache
def _analyzed(path: str) -> Result:
    return run(AnalyzeRequest(path=DATA / path))


def analyzed(path: str) -> Result:
    if not (DATA / path).exists():
        pytest.skip(f"no {path}")
    return _analyzed(path)


def answer(path: str, rule: str, rank: int | None = None) -> Finding:
    (found,) = [f for f in analyzed(path).findings if f.rule == rule and rank in (None, f.rank)]
    return found


def advice(result: Result) -> str:
    return "\n".join(steps_of(f) + (f.code or "") for f in result.findings if f.status == "problem")


# --- every profile -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_the_report_is_true(truth: Truth) -> None:
    result = analyzed(truth.path)
    (device,) = result.devices
    assert result.verdict.bound == truth.bound
    assert {s.step: s.partition.span_ns for s in device.steps} == truth.steps
    assert {f.rule for f in result.findings if f.status == "problem"} & JUDGED == truth.problems
    assert not {f.rule for f in result.findings if f.status == "ok"} & truth.not_ok
    for word in truth.never:
        assert word not in advice(result)


@pytest.mark.parametrize("path", [*TRUTHS, *JOBS])
def test_gains_are_within_the_step_and_conditions_are_in_the_document(path: str) -> None:
    result = analyzed(path)
    windows = {(d.rank, d.device): d.window.span_ns / max(len(d.steps), 1) for d in result.devices}
    longest = max(windows.values())
    for found in result.findings:
        if found.gain_ns_per_step:
            low, high = found.gain_ns_per_step
            assert 0 <= low <= high <= windows.get((found.rank, found.device), longest) + 1
        if found.status == "problem":
            assert all(condition.holds is not False for condition in found.preconditions)
        assert all(str(e.advice) not in steps_of(found) for e in found.excluded)


@pytest.mark.parametrize("path", GPU)
def test_gpu_traces_get_no_word_of_an_npu(path: str) -> None:
    said = str(render(analyzed(path), "text", View(width=100, full=True)))
    for word in ("NPU", "Ascend", "CANN", "torch_npu", "aclnn", "HCCL", "TASK_QUEUE", "AI Core", "npuperf profile"):
        assert word not in said


# --- AlexNet: training, DDP on eight ranks, SGD with foreach, dropout ------------------------------------------------

#: Calls of aclopCompileAndExecute: ns in all, the longest opCompile (api_statistic.csv, CANN_API); and the longest
#: aclrtSynchronizeStreamWithTimeout but one, inside Tensor.to, before the first kernel.
HOST_CALLS = {
    "msinsight/text/level1/rank0_ascend_pt": (14_049_230, 47_050, 6_089_620),
    "msinsight/text/level1/rank1_ascend_pt": (14_643_370, 51_260, 7_172_340),
    "msinsight/db/level0/rank0_ascend_pt": (9_543_420, 53_100, 4_881_200),
    "msinsight/db/level1/rank0_ascend_pt": (27_601_640, 69_760, 4_362_620),
    "msinsight/db/level1/rank1_ascend_pt": (14_152_370, 44_630, 4_841_680),
}


@pytest.mark.parametrize("path", HOST_CALLS)
def test_lookups_are_no_compilations(path: str) -> None:
    """19 calls, an opCompile inside each: the longest takes 70 µs, so that nothing was compiled."""
    total, longest, _ = HOST_CALLS[path]
    found = answer(path, "online_compile")
    told = found.evidence
    assert (told["calls"], told["host_ns"]) == (19, total)
    assert (told["compiled"], told["longest_compile_ns"]) == (0, longest)
    assert {row["type"]: row["count"] for row in told["types"]} == {
        "Conv2D": 5, "Conv2DBackpropFilter": 5, "Conv2DBackpropInput": 4, "ReduceSum": 5,
    }  # fmt: skip
    assert "none of them compiles here" in str(found.title) and "in the median" in str(found.title)
    assert "allow_internal_format = False" in steps_of(found)
    assert answer(path, "compilation").status == "ok"


@pytest.mark.parametrize("path", HOST_CALLS)
def test_the_copy_of_the_batch_is_a_copy_and_the_loss_costs_nothing(path: str) -> None:
    """The loss is read for 75 to 92 ms while the device is in its allReduces: the longest wait of all is hidden."""
    waited = HOST_CALLS[path][2]
    found = answer(path, "blocking_copies")
    assert (found.evidence["kind"], found.evidence["host_ns"]) == ("htod", waited)
    assert "main.py:350" in str(found.title)
    assert "pin_memory=True" in steps_of(found) and "non_blocking=True" in steps_of(found)
    assert ".item()" not in advice(analyzed(path)) and ".cpu()" not in advice(analyzed(path))
    (reads,) = [s for s in analyzed(path).devices[0].syncs if s.kind != "htod" and s.host_ns > 50_000_000]
    assert "item" in str(reads.torch_op)
    assert answer(path, "sync_points").status == "ok"


@pytest.mark.parametrize("path", HOST_CALLS)
def test_launches_are_cheaper_with_what_a_training_step_may_use(path: str) -> None:
    found = answer(path, "graph_capture")
    assert "TASK_QUEUE_ENABLE=2" in steps_of(found) and "NpuFusedSGD" in steps_of(found)
    assert found.gain_ns_per_step is not None and found.gain_ns_per_step[0] == 0
    held = {str(p.what): p.holds for p in found.preconditions}
    assert held["training"] is True and held["eager execution"] is True


@pytest.mark.parametrize("path", [*HOST_CALLS, "msprof-analyze/timeline"])
def test_no_change_is_advised_first_twice(path: str) -> None:
    """Settings and optimizers that the first remedies name, found here by their looks."""
    changes = Counter(
        (f.rank, change)
        for f in analyzed(path).findings
        if f.status == "problem"
        for change in {*re.findall(r"NpuFused\w+|\w+(?= ?= ?(?:True|False|\d))", str(f.next))}
    )
    assert changes and set(changes.values()) == {1}


def test_what_rearranges_data_in_alexnet() -> None:
    """op_statistic.csv: TransData ×57 in 1423.208 µs, TensorMove ×11 and Transpose ×5 in 692.753, of 8873.756 µs."""
    path = "msinsight/text/level1/rank0_ascend_pt"
    layout, copies = answer(path, "layout").evidence, answer(path, "copies").evidence
    assert (layout["count"], layout["share_of_compute"]) == (57, pytest.approx(1_423.208 / 8_873.756, rel=1e-4))
    assert (copies["count"], copies["share_of_compute"]) == (16, pytest.approx(692.753 / 8_873.756, rel=1e-4))


@pytest.mark.parametrize("path", [p for p in HOST_CALLS if "level1" in p])
def test_the_copies_are_those_of_ddp_s_buckets(path: str) -> None:
    """Seven TensorMove lie in torch.distributed.ddp.reducer::copy_bucket_to_grad, four in a clone of the backward."""
    found = answer(path, "copies")
    rows = [(r["count"], r["asked"]) for r in found.evidence["copies"] if r["type"] == "TensorMove"]
    assert rows == [(7, "torch.distributed.ddp.reducer::copy_bucket_to_grad"), (4, "aten::copy_")]
    assert "“gradients kept twice”" in str(found.next)
    assert "gradient_as_bucket_view=True" in str(answer(path, "gradient_copies").next)
    for word in (".contiguous()", "COMBINED_ENABLE"):  # the program has no such copy, and no view is stored anew
        assert word not in steps_of(found)


def test_level_0_cannot_rule_out_aclop() -> None:
    """No process CANN in the trace; kernels named trans_TransData_3 and Conv2D1 are there."""
    found = answer("msinsight/text/level0/rank0_ascend_pt", "graph_capture")
    held = {str(p.what): p.holds for p in found.preconditions}
    assert held.get("operators of aclnn only") is not True


def test_the_vendor_s_own_sums_of_the_step() -> None:
    """step_trace_time.csv of rank 0 in ns: Computing, Communication(Not Overlapped), Free.

    It begins with the first kernel and ends with the last: 136,581,009 ns of the host's 155,985,800.
    """
    (device,) = analyzed("msinsight/text/level1/rank0_ascend_pt").devices
    part = device.steps[0].partition
    assert [check.agrees for check in device.vendor] == [True]
    assert part.compute_ns == pytest.approx(8_873_756, abs=50)
    assert part.comm_exposed_ns == pytest.approx(101_963_203, abs=50)
    outside = 155_985_800 - 136_581_009
    assert part.other_exposed_ns + part.idle_ns == pytest.approx(25_744_050 + outside, abs=100)


@pytest.mark.parametrize(
    ("path", "length"),
    [
        # dataloader.py: __next__ of the timelines and databases: 2.2 to 2.7 % of the step, before its first kernel
        ("msinsight/text/level1/rank0_ascend_pt", 3_481_130),
        ("msinsight/text/level1/rank1_ascend_pt", 3_694_900),
        ("msinsight/text/level0/rank0_ascend_pt", 3_751_830),
        ("msinsight/db/level0/rank0_ascend_pt", 3_794_490),
        ("msinsight/db/level1/rank0_ascend_pt", 3_885_090),
        ("msinsight/db/level1/rank1_ascend_pt", 3_650_460),
    ],
)
def test_an_only_step_begins_with_loading_its_batch(path: str, length: int) -> None:
    """Between the first kernel and the last one there is none of it, so that it once was "ok data loading"."""
    found = answer(path, "data_loading")
    assert found.status == "problem" and found.evidence["host_wait_ns"] == length
    step = analyzed(path).devices[0].steps[0]
    assert step.host_ns == step.partition.span_ns


# --- Megatron, four ranks --------------------------------------------------------------------------------------------


def test_four_casts_of_logits_take_most_of_all_casts() -> None:
    """Rank 2: 302 casts take 26.745 ms of 400.448, four of them of (4096,1,151936) 24.013 ms; rows of aclnnCast."""
    found = answer("msinsight/cluster4/rank_2_ascend_pt", "casts")
    logits = [row for row in found.evidence["casts"] if row["shape"] == "4096,1,151936"]
    assert found.evidence["count"] == 302
    assert found.evidence["share_of_compute"] == pytest.approx(26.745 / 400.448, rel=1e-3)
    assert (sum(r["count"] for r in logits), sum(r["total_ns"] for r in logits)) == (4, 24_012_960)
    assert {r["asked"] for r in logits} == {"aclnnCast"}
    assert "internal_format" not in steps_of(found)


def test_conversions_inside_a_matmul_are_not_the_program_s() -> None:
    """Rank 2: six TransData named aclnnMatmul_TransData_TransData, four ND to FRACTAL_NZ and two back, 10.367 ms."""
    found = answer("msinsight/cluster4/rank_2_ascend_pt", "layout")
    rows = found.evidence["conversions"]
    assert [(r["source"], r["target"], r["count"], r["asked"]) for r in rows] == [
        ("ND", "FRACTAL_NZ", 4, "aclnnMatmul"), ("FRACTAL_NZ", "ND", 2, "aclnnMatmul"),
    ]  # fmt: skip
    assert sum(r["total_ns"] for r in rows) == 10_367_220
    assert found.gain_ns_per_step == (0, 10_367_220)


def test_the_job_of_four_ranks() -> None:
    """The second stage computes 400.8 ms where the first computes 231.1; two micro-batches fill two stages badly."""
    result = analyzed("msinsight/cluster4")
    assert result.verdict.bound == "compute"
    assert {d.rank: d.steps[0].partition.compute_ns for d in result.devices} == {
        0: pytest.approx(231_290_000, abs=10_000), 1: pytest.approx(230_904_000, abs=10_000),
        2: pytest.approx(400_448_000, abs=10_000), 3: pytest.approx(401_132_000, abs=10_000),
    }  # fmt: skip
    (slow,) = [f for f in result.findings if f.rule == "slow_rank" and f.status == "problem"]
    assert slow.evidence["ranks"] == [2, 3]
    said = str(render(result, "text", View(width=100, full=True)))
    fine = said[said.index("  ok ") : said.index("devices")]
    for check in ("conversions between formats", "casts between dtypes", "copies and transposes"):
        assert check not in fine


# --- counters ------------------------------------------------------------------------------------------------------

_UNITS = ("mac", "vec", "scalar", "mte1", "mte2", "mte3", "fixpipe")


def busiest_units(table: Path) -> dict[tuple[str, str], str]:
    """The unit that keeps each operator type busy, by csv alone.

    Ratios weighted by duration; of cube and vector cores those whose busiest unit works longer, ratio times their time.
    """
    sums: dict[tuple[str, str], dict[str, float]] = {}
    counted = re.compile(r"ai[cv]_(mac|vec|scalar|mte\d|fixpipe)_ratio|(aicore|aiv)_time\(us\)")
    with table.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            core = row.get("Task Type") or row["Accelerator Core"]
            mine = sums.setdefault((row.get("OP Type") or row["Type"], core), {})
            dur = float(row.get("Task Duration(us)") or row["Duration(us)"])
            for column, cell in row.items():
                if counted.fullmatch(column) and cell not in ("N/A", ""):
                    mine[column] = mine.get(column, 0.0) + dur * float(cell)
    found = {}
    for key, mine in sums.items():
        works = {
            (side, unit): mine.get(f"{side}_{unit}_ratio", 0.0) for side in ("aic", "aiv") for unit in _UNITS
        }  # fmt: skip
        busiest = {side: max(_UNITS, key=lambda unit: works[side, unit]) for side in ("aic", "aiv")}
        time = {"aic": mine.get("aicore_time(us)", 0.0), "aiv": mine.get("aiv_time(us)", 0.0)}
        side = max(busiest, key=lambda side: works[side, busiest[side]] * time[side])
        if works[side, busiest[side]] > 0:
            found[key] = busiest[side]
    return found


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("op_summary_2026/op_summary_pipe_utilization.csv", {"mte2": 1, "scalar": 1}),
        ("op_summary_2026/op_summary_block_over_cores.csv", {"scalar": 1}),
        ("msprof-analyze/pipe_utilization/kernel_details.csv", {"mte2": 3, "scalar": 2}),
        ("msinsight/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
         {"mte2": 14, "scalar": 13, "mte1": 2, "mte3": 1, "vec": 1, "fixpipe": 1}),
        ("msinsight/cluster4/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
         {"mte2": 16, "scalar": 10, "vec": 6, "mte3": 2, "fixpipe": 1}),
        ("msinsight/cluster4/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
         {"mte2": 22, "scalar": 14, "vec": 7, "mte3": 2, "fixpipe": 1}),
    ],
)  # fmt: skip
def test_the_busiest_unit_is_that_of_the_raw_file(path: str, counted: dict[str, int]) -> None:
    result = analyzed(path)
    expected = busiest_units(DATA / path)
    units = {(o.type, o.core): o.pmu.sides[0].units[0].unit for o in result.operators if o.pmu and o.pmu.sides}
    assert Counter(expected.values()) == counted
    assert {key: units.get(key) for key in expected} == expected


def test_an_operator_that_is_scalar_on_vector_cores_is_not_cube_cores_at_100_percent() -> None:
    """Two MIX_AIC kernels, 256 and 512 blocks on 24 and 48 cores, 42,399.12 and 42,058.48 us.

    Cube cores work 12.778 and 9.321 us of these, vector cores 38,332.239 and 38,315.953, of which 99.5 % are scalar.
    """
    path = DATA / "op_summary_2026/op_summary_block_over_cores.csv"
    if not path.exists():
        pytest.skip("no shared data")
    result = analyze_path(path, cores=Cores(24, 48, say("--cores")))
    use = result.devices[0].cores
    assert use.cube and use.vector
    whole = 42_399.12 + 42_058.48
    assert use.cube.at_work == pytest.approx((12.778 + 9.321) / whole, rel=1e-3)
    assert use.vector.at_work == pytest.approx((38_332.239 + 38_315.953) / whole, rel=1e-4)
    screen = str(render(result, "text", View(width=100)))
    assert "cube cores   0.0 % at work by cycles, 100.0 % held by blocks" in screen
    assert "vector cores 90.8 % at work by cycles, 100.0 % held by blocks" in screen
    assert "AIV scalar 99.5 %" in screen
    assert "core counts are unknown" not in screen  # they were given


def test_a_random_number_of_the_dsa_engine_has_no_blocks_to_record() -> None:
    """One DSA_SQE row without blocks beside four that have them, 16.42 of 62.8 us."""
    path = DATA / "op_summary_2026/op_summary_pipe_utilization.csv"
    if not path.exists():
        pytest.skip("no shared data")
    result = analyze_path(path, cores=Cores(20, 40, say("--cores")))
    (idle,) = [f for f in result.findings if f.rule == "idle_cores"]
    assert idle.status == "problem" and {str(p.what): p.holds for p in idle.preconditions}["recorded: block counts"]


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_small_model_that_waits_for_its_operators() -> None:
    """Adam, one step of 11.27 ms: 11 calls of aclop in 6.637 ms; two casts on AI CPU, 188.148 and 139.419 µs."""
    path = "msprof-analyze/timeline"
    # Overlap Analysis of the trace: 274 tasks compute for 1788.2505 µs, 21 of them named …_MemSet.
    assert analyzed(path).devices[0].partition.compute_ns == pytest.approx(1_788_250, abs=50)
    told = answer(path, "online_compile").evidence
    assert (told["calls"], told["host_ns"], told["compiled"]) == (11, pytest.approx(6_637_096, abs=20), 0)
    cpu = answer(path, "ai_cpu")
    assert (cpu.evidence["count"], cpu.evidence["exposed_ns"]) == (2, pytest.approx(327_567, abs=20))
    small = answer(path, "small_kernels")
    assert small.gain_ns_per_step is not None and small.gain_ns_per_step[0] == 0
    assert "NpuFusedAdam" in advice(analyzed(path))


@pytest.mark.parametrize(
    ("path", "calls"),
    [
        ("hta/alexnet_gpu.json.gz", {"cudaFree": 6.55e9, "cudaLaunchKernel": 3.06e9}),
        ("hta/simple_add_gpu.json.gz", {"cudaFree": 8.31e9, "cudaLaunchKernel": 4.22e9}),
    ],
)
def test_a_window_of_start_up_is_not_a_slow_program(path: str, calls: dict[str, float]) -> None:
    """All calls of the name, ns; the first ones are nearly all of it, and none lasts longer than all."""
    found = answer(path, "start_up")
    told = {row["name"]: row["ns"] for row in found.evidence["calls"]}
    for name, total in calls.items():
        assert 0.95 * total < told[name] < 1.01 * total
    assert "after warm-up" in steps_of(found)


def test_pauses_of_the_allocator_are_not_the_program_s() -> None:
    """24 calls of cudaMalloc take 1.957 s of AlexNet's first forward pass: nothing that another thread could do."""
    found = answer("hta/alexnet_gpu.json.gz", "host_pauses")
    assert "cudaMalloc" in str(found.title) and "later steps" in steps_of(found)
    assert "another thread" not in steps_of(found)
    assert found.evidence["host_wait_ns"] <= 1_957_000_000 + 12_000_000  # with what is between two calls
    assert found.gain_ns_per_step is not None and found.gain_ns_per_step[1] <= found.evidence["host_wait_ns"]
    # 24 calls take 0.298 s of the other trace's 16 s: less than a fiftieth.
    assert answer("hta/simple_add_gpu.json.gz", "host_pauses").status == "ok"


def test_a_csv_of_eight_ranks_is_told_as_it_is() -> None:
    """cluster_step_trace_time.csv: Computing, Communication(Not Overlapped) and Free of ranks 1 and 5, in µs."""
    parts = {d.rank: d.partition for d in analyzed("msprof-analyze/cluster").devices}
    for rank, compute, communication, free in ((1, 80_435.7465, 133_385.97745, 1_488_610.05876),
                                               (5, 81_367.62002, 756_374.86, 892_836.9)):  # fmt: skip
        part = parts[rank]
        assert part.compute_ns == pytest.approx(compute * 1_000, abs=1_000)
        assert part.comm_exposed_ns == pytest.approx(communication * 1_000, abs=1_000)
        assert part.idle_ns == pytest.approx(free * 1_000, abs=2_000)
    assert analyzed("msprof-analyze/cluster").verdict.bound == "unknown"


def test_a_run_on_the_cpu_alone_has_no_device_to_judge() -> None:
    result = analyzed("hta/cpu_only.json.gz")
    assert not result.devices and not result.findings and result.verdict.bound == "unknown"


def test_no_profile_is_left_out() -> None:
    """Whatever is in the folder is in a table of this file."""
    if not DATA.is_dir():
        pytest.skip("no data")
    known = {*TRUTHS, *JOBS, "msprof-analyze/cluster", "hta/cpu_only.json.gz", *_parts()}
    assert {str(p.relative_to(DATA)) for p in _profiles()} <= known


def _parts() -> Iterator[str]:
    """Ranks that have no kernels of their own: only their job is analysed."""
    yield from (f"msinsight/cluster4/rank_{n}_ascend_pt" for n in (1, 3))


def _profiles() -> Iterator[Path]:
    yield from DATA.glob("**/*_ascend_pt")
    yield from (DATA / "hta").glob("*.gz")
    yield from (p for p in (DATA / "msprof-analyze").iterdir() if p.is_dir())
    yield from (DATA / "op_summary_2026").glob("*.csv")
    yield from (DATA / "msinsight" / "toy").glob("*.csv")

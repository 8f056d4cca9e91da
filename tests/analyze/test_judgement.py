"""Verdicts, cores, counters and rules on small situations whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt, kernel_details
from msgspec.structs import replace

from npuperf.advise import RULES, load_thresholds
from npuperf.base.messages import say
from npuperf.device.counters import Counter, judge_counters
from npuperf.model.chip import Cores, cores_of_soc
from npuperf.model.parts import Pmu
from npuperf.model.result import Finding, Result

LIMITS = load_thresholds()


def run(n: int, host: int, device: int, *, latency: int = 8_000, stall: tuple[int, int] = (-1, 0)) -> list[K]:
    """``n`` kernels of ``device`` ns, launched every ``host`` ns; at kernel ``stall[0]`` the host pauses."""
    kernels, clock, free = [], 0, 0
    for i in range(n):
        clock += host + (stall[1] if i == stall[0] else 0)
        start = max(clock + latency, free + 400)
        free = start + device
        kernels.append(K(start, device, f"k{i}", step=11 + 2 * i // n, launch=clock - 2_000, launch_dur=2_000))
    return kernels


def with_collective(kernels: list[K], dur: int) -> list[K]:
    end = max(k.start + k.dur for k in kernels)
    return [*kernels, K(end + 100, dur, "hcom_allReduce__1_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=12,
                        launch=end - 50_000)]  # fmt: skip


@pytest.mark.parametrize(
    ("kernels", "bound"),
    [
        (run(200, 50_000, 5_000), "host"),
        (run(200, 10_000, 200_000), "compute"),
        (run(200, 10_000, 7_500), "host"),  # busy 75 % of the time, and paced by the host all the time
        # A stall that the full queue nearly covers; then one of 24 ms of host time before the last 10 ms of compute.
        (run(200, 10_000, 100_000, stall=(100, 9_500_000)), "compute"),
        (run(200, 10_000, 100_000, stall=(100, 23_000_000)), "host"),
        (with_collective(run(200, 10_000, 20_000), 20_000_000), "communication"),
    ],
)
def test_verdicts_with_launches_are_measured(tmp_path: Path, kernels: list[K], bound: str) -> None:
    verdict = analyze_path(ascend_pt(tmp_path, kernels)).verdict
    assert (verdict.bound, verdict.basis) == (bound, "measured"), verdict


@pytest.mark.parametrize(
    ("kernels", "bound", "basis"),
    [
        (run(200, 50_000, 5_000), "host", "inferred"),
        (run(200, 10_000, 200_000), "compute", "measured"),
        (run(200, 10_000, 100_000, stall=(100, 23_000_000)), "unknown", "inferred"),
        (run(20, 50_000, 5_000), "unknown", "inferred"),
        (with_collective(run(200, 10_000, 20_000), 20_000_000), "communication", "measured"),
    ],
)
def test_verdicts_without_launches_say_so(tmp_path: Path, kernels: list[K], bound: str, basis: str) -> None:
    verdict = analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)).verdict
    assert (verdict.bound, verdict.basis) == (bound, basis), verdict


def test_a_filtered_table_gives_no_verdict(tmp_path: Path) -> None:
    kernels = run(400, 10_000, 9_000)
    lines = kernel_details(tmp_path / "kernel_details.csv", kernels).read_text().splitlines()
    busy = [line.replace(",0,40,", ",1.4,40,") for line in lines[1::9]]
    (tmp_path / "kernel_details.csv").write_text("\n".join([lines[0], *busy]) + "\n")
    result = analyze_path(tmp_path)
    assert result.verdict.bound == "unknown"
    assert any("rows are missing" in str(w) for w in result.input.warnings)


CORES = [
    K(0, 1_000, "a", "A", "AI_CORE", block=12),
    K(2_000, 3_000, "b", "B", "AI_CORE", block=36),
    K(6_000, 2_000, "c", "C", "AI_VECTOR_CORE", block=48),
    K(10_000, 4_000, "d", "D", "MIX_AIC", block=6, mix=12),
    K(20_000, 5_000, "e", "E", "MIX_AIV", block=24, mix=12),
    K(30_000, 7_000, "f", "F", "AI_VECTOR_CORE", block=0),
    K(40_000, 8_000, "g", "G", "AI_CPU", block=1),
]


def test_core_use_by_hand(tmp_path: Path) -> None:
    """24 cube, 48 vector cores. Cube: a 12, b 24 of 36, d 6, e 12 (mix); vector: c 48, d 12 (mix), e 24."""
    (device,) = analyze_path(ascend_pt(tmp_path, CORES, cores="24,48")).devices
    cube, vector = device.cores.cube, device.cores.vector
    assert cube and vector
    core_time = 12 * 1_000 + 24 * 3_000 + 6 * 4_000 + 12 * 5_000
    assert cube.occupancy_busy == pytest.approx(core_time / (24 * 13_000))
    assert cube.occupancy_span == pytest.approx(core_time / (24 * 48_000))
    assert cube.idle_core_ns == 24 * 13_000 - core_time
    assert vector.occupancy_busy == pytest.approx((48 * 2_000 + 12 * 4_000 + 24 * 5_000) / (48 * 11_000))
    by_type = {t.core: t for t in device.cores.by_type}
    assert (by_type["AI_CORE"].waves_max, by_type["AI_VECTOR_CORE"].blocks_unknown) == (2, 1)
    # a: 1 wave, half of it unused; b: 36 blocks in 2 waves of 24, a quarter unused
    assert by_type["AI_CORE"].tail == pytest.approx((0.5 * 1_000 + 0.25 * 3_000) / 4_000)
    worst = device.cores.most_idle[0]
    assert (worst.type, worst.idle_core_ns) == ("E", 24 * 5_000)  # its own side is the vector one: 24 of 48 idle


def test_operators_by_hand(tmp_path: Path) -> None:
    result = analyze_path(
        ascend_pt(tmp_path, [*CORES, replace(CORES[0], start=60_000, dur=500, block=24)], cores="24,48")
    )
    a = next(o for o in result.operators if o.type == "A")
    assert (a.count, a.total_ns, a.min_ns, a.max_ns, a.first_ns, a.last_ns) == (2, 1_500, 500, 1_000, 0, 60_000)
    assert a.block_dim and (a.block_dim.min, a.block_dim.max) == (12, 24)
    assert a.occupancy_cube == pytest.approx((0.5 * 1_000 + 1.0 * 500) / 1_500)
    assert a.occupancy_vector is None
    assert sum(o.share for o in result.operators) == pytest.approx(1)
    assert [o.total_ns for o in result.operators] == sorted((o.total_ns for o in result.operators), reverse=True)


def test_unknown_cores_are_a_value(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", CORES)
    (device,) = analyze_path(path).devices
    assert (device.cores_cube, device.cores.cube) == (None, None)
    assert device.cores.reason and "--soc" in str(device.cores.reason)
    (told,) = analyze_path(path, cores=Cores(24, 48, say("--cores"))).devices
    assert told.cores.cube and str(told.cores.source) == "--cores"
    (old,) = analyze_path(path, cores=Cores(32, 0, say("--cores"))).devices
    assert old.cores.cube and old.cores.vector is None


def test_soc_table() -> None:
    for soc, cube, vector in (("Ascend910B1", 24, 48), ("ascend910b4-1", 20, 40), ("Ascend910_9392", 24, 48)):
        found = cores_of_soc(soc)
        assert found and (found.cube, found.vector) == (cube, vector)
    assert cores_of_soc("Ascend910B") is None  # two chips share this name


def judged(**means: float) -> Pmu:
    pmu = judge_counters({name: Counter(value * 100, 100) for name, value in means.items()}, LIMITS)
    assert pmu
    return pmu


@pytest.mark.parametrize(
    ("bound", "means"),
    [
        (
            "compute",
            {"aicore_time": 9, "aiv_time": 0, "aic_mac_ratio": 0.9, "aic_mte2_ratio": 0.5, "aic_scalar_ratio": 0.1},
        ),
        ("memory", {"aicore_time": 0, "aiv_time": 9, "aiv_vec_ratio": 0.3, "aiv_mte2_ratio": 0.95, "aic_mac_ratio": 0}),
        ("scalar", {"aiv_time": 9, "aicore_time": 1, "aiv_scalar_ratio": 0.85, "aiv_vec_ratio": 0.1}),
        ("unknown", {"aicore_time": 9, "aiv_time": 0, "aic_mac_ratio": 0.5, "aic_mte2_ratio": 0.6}),
        ("compute", {"mac_ratio": 0.9, "vec_ratio": 0.1, "mte2_ratio": 0.3}),
        ("compute", {"mac_fp16_ratio": 0.5, "mac_int8_ratio": 0.4, "vec_fp32_ratio": 0.1}),
        ("unknown", {"aic_mac_fp16_ratio": 0.5, "aic_mac_int8_ratio": 0.1}),
        ("conflict", {"aiv_vec_bank_cflt_ratio": 0.3, "aiv_vec_resc_cflt_ratio": 0.1}),
        ("conflict", {"vec_bankgroup_cflt_ratio": 0.0, "mte2_iq_full_ratio": 0.4}),
        ("unknown", {"aic_main_mem_read_bw": 800.0, "aic_l2_read_bw": 900.0}),
        ("unknown", {"ub_read_bw_vector": 12.0}),
    ],
)
def test_the_unit_that_bounds_an_operator(bound: str, means: dict[str, float]) -> None:
    pmu = judged(**means)
    assert pmu.bound == bound and pmu.rule
    assert pmu.means == pytest.approx(means)


def problems(result: Result) -> dict[str, Finding]:
    return {f.rule: f for f in result.findings if f.status == "problem"}


def test_no_rule_fires_on_a_healthy_profile(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, run(200, 10_000, 200_000), cores="24,40"))
    assert problems(result) == {}
    assert {f.rule for f in result.findings} == {r.name for r in RULES if r.on_device or r.on_rank}


def test_rules_on_a_sick_profile(tmp_path: Path) -> None:
    """Host-bound small kernels; the AI CPU kernel covers 90 µs alone; steps 1 and 2; launches block."""
    kernels = [replace(k, step=int(k.step) - 10, state="dynamic", block=4) for k in run(100, 50_000, 5_000)]
    last = kernels[-1]
    kernels.append(K(last.start + 50_000, 90_000, "u", "Unique", "AI_CPU", block=1, step=2, launch=last.start + 20_000))
    kernels.append(K(last.start + 200_000, 90_000, "t", "TransData", block=4, step=2, launch=last.start + 150_000))
    folder = ascend_pt(tmp_path, kernels, cores="24,40")
    # a launch every 50 µs, of which 2 are recorded: half as many launches save 25 µs each at most (and of the 158 µs
    # before the last two kernels half), and nothing for sure
    least, most = problems(analyze_path(folder))["small_kernels"].gain_ns_per_step
    assert least == 0 and 99 * 25_000 // 2 <= most <= (99 * 25_000 + 79_000) // 2
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "1"}}))
    result = analyze_path(folder)
    found = problems(result)
    expected = {"ai_cpu", "layout", "small_kernels", "graph_capture", "idle_cores", "early_steps", "launch_blocking"}
    assert set(found) == expected
    assert found["ai_cpu"].gain_ns_per_step == (0, 45_000)
    assert found["layout"].gain_ns_per_step == (0, 45_000)
    # What the host costs where every launch blocks is not what it costs otherwise.
    assert found["small_kernels"].gain_ns_per_step is None and found["small_kernels"].gain_withheld
    for finding in found.values():
        assert finding.next and finding.refute and finding.source and finding.evidence
        if finding.gain_ns_per_step:
            assert finding.gain_ns_per_step[1] <= result.devices[0].partition.span_ns / 2


def test_rules_abstain_and_name_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text("Name,Type,Accelerator Core,Start Time(us),Duration(us)\nk,N/A,N/A,1,2\nk,N/A,N/A,9,2\n")
    findings = analyze_path(path).findings
    assert {f.status for f in findings} == {"cannot_tell"}
    assert all(f.needs for f in findings)

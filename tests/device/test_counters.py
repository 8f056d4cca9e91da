"""Hardware counters: the unit that bounds an operator, read from tables with each aiCoreMetricsType's columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import EPOCH, analyze_path, us

from npuperf.model.parts import Pmu
from npuperf.model.result import Operator

BASE = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,Mix Block Num"
TIMES = ("aicore_time(us)", "aic_total_cycles")
VECTOR_TIMES = ("aiv_time(us)", "aiv_total_cycles")

#: FORMATS 4.2: columns of chips with separate cube and vector cores, by aiCoreMetricsType.
SPLIT: dict[int, tuple[str, ...]] = {
    0: (
        *TIMES, "aic_mac_fp16_ratio", "aic_mac_int8_ratio", "aic_cube_fops",
        *VECTOR_TIMES, "aiv_vec_fp32_ratio", "aiv_vec_fp16_ratio", "aiv_vec_int32_ratio", "aiv_vec_misc_ratio",
        "aiv_vector_fops",
    ),
    1: (
        *TIMES, "aic_mac_time(us)", "aic_mac_ratio", "aic_scalar_time(us)", "aic_scalar_ratio", "aic_mte1_time(us)",
        "aic_mte1_ratio", "aic_mte2_time(us)", "aic_mte2_ratio", "aic_fixpipe_time(us)", "aic_fixpipe_ratio",
        "aic_icache_miss_rate", *VECTOR_TIMES, "aiv_vec_time(us)", "aiv_vec_ratio", "aiv_scalar_time(us)",
        "aiv_scalar_ratio", "aiv_mte2_time(us)", "aiv_mte2_ratio", "aiv_mte3_time(us)", "aiv_mte3_ratio",
        "aiv_icache_miss_rate", "cube_utilization(%)",
    ),
    2: (
        *TIMES, "aic_l1_read_bw(GB/s)", "aic_l1_write_bw(GB/s)", "aic_main_mem_read_bw(GB/s)",
        "aic_main_mem_write_bw(GB/s)", "aic_l2_read_bw(GB/s)", "aic_l2_write_bw(GB/s)", *VECTOR_TIMES,
        "aiv_ub_read_bw(GB/s)", "aiv_ub_write_bw(GB/s)", "aiv_main_mem_read_bw(GB/s)", "aiv_main_mem_write_bw(GB/s)",
        "aiv_l2_read_bw(GB/s)", "aiv_l2_write_bw(GB/s)",
    ),
    3: (
        *TIMES, "aic_l0a_read_bw(GB/s)", "aic_l0a_write_bw(GB/s)", "aic_l0b_read_bw(GB/s)", "aic_l0b_write_bw(GB/s)",
        "aic_l0c_read_bw_cube(GB/s)", "aic_l0c_write_bw_cube(GB/s)", *VECTOR_TIMES, "aiv_l0c_read_bw(GB/s)",
        "aiv_l0c_write_bw(GB/s)",
    ),
    4: (
        *TIMES, *VECTOR_TIMES, "aiv_vec_bankgroup_cflt_ratio", "aiv_vec_bank_cflt_ratio", "aiv_vec_resc_cflt_ratio",
    ),
    5: (
        *TIMES, "aic_ub_read_bw_scalar(GB/s)", "aic_ub_write_bw_scalar(GB/s)", *VECTOR_TIMES,
        "aiv_ub_read_bw_vector(GB/s)", "aiv_ub_write_bw_vector(GB/s)", "aiv_ub_read_bw_scalar(GB/s)",
        "aiv_ub_write_bw_scalar(GB/s)",
    ),
}  # fmt: skip

#: The same lists on chips whose cores are one (910A, 310P): no prefix.
UNIFIED: dict[int, tuple[str, ...]] = {
    0: (
        "aicore_time(us)", "total_cycles", "mac_fp16_ratio", "mac_int8_ratio", "vec_fp32_ratio", "vec_fp16_ratio",
        "vec_int32_ratio", "vec_misc_ratio",
    ),
    1: (
        "aicore_time(us)", "total_cycles", "vec_time(us)", "vec_ratio", "mac_time(us)", "mac_ratio", "scalar_time(us)",
        "scalar_ratio", "mte1_time(us)", "mte1_ratio", "mte2_time(us)", "mte2_ratio", "mte3_time(us)", "mte3_ratio",
        "icache_miss_rate", "memory_bound", "cube_utilization(%)",
    ),
    4: ("aicore_time(us)", "total_cycles", "vec_bankgroup_cflt_ratio", "vec_bank_cflt_ratio", "vec_resc_cflt_ratio"),
}  # fmt: skip

Cells = dict[str, float | str]


def operator(tmp_path: Path, columns: tuple[str, ...], rows: list[tuple[int, Cells]], core: str) -> Operator:
    """Analyze a table with one operator; ``rows``: duration in ns and counters, 0 where not given."""
    lines = [",".join([BASE, *columns])]
    for i, (dur, cells) in enumerate(rows):
        assert not set(cells) - set(columns)
        known = [str(cells.get(c, 0)) for c in columns]
        start = us(EPOCH + 1_000_000 * i)
        lines.append(",".join(["0", f"k{i}", "Op", core, f"{start}\t", us(dur), "0", "20", "0", *known]))
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join(lines) + "\n")
    (found,) = analyze_path(path).operators
    return found


def pmu(tmp_path: Path, columns: tuple[str, ...], cells: Cells, core: str = "AI_CORE") -> Pmu:
    found = operator(tmp_path, columns, [(5_000, cells)], core).pmu
    assert found is not None
    return found


CUBE = {"aicore_time(us)": 5, "aic_total_cycles": 9000}
VECTOR = {"aiv_time(us)": 5, "aiv_total_cycles": 9000}


@pytest.mark.parametrize(
    ("type_", "core", "cells", "bound", "culprit"),
    [
        (0, "AI_CORE", {**CUBE, "aic_mac_fp16_ratio": 0.7, "aic_mac_int8_ratio": 0.15}, "compute", "mac"),
        (0, "AI_CORE", {**CUBE, "aic_mac_fp16_ratio": 0.5}, "unknown", "mac"),
        (0, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_fp32_ratio": 0.5, "aiv_vec_misc_ratio": 0.4}, "compute", "vec"),
        (1, "AI_CORE", {**CUBE, "aic_mac_ratio": 0.91, "aic_mte2_ratio": 0.85}, "compute", "mac"),
        (1, "AI_CORE", {**CUBE, "aic_mac_ratio": 0.4, "aic_mte2_ratio": 0.93}, "memory", "mte2"),
        (1, "AI_CORE", {**CUBE, "aic_mac_ratio": 0.4, "aic_fixpipe_ratio": 0.81}, "memory", "fixpipe"),
        (1, "AI_CORE", {**CUBE, "aic_mac_ratio": 0.4, "aic_scalar_ratio": 0.9}, "scalar", "scalar"),
        (
            1,
            "AI_CORE",
            {**CUBE, "aic_mac_ratio": 0.79, "aic_mte2_ratio": 0.7},
            "unknown",
            "no unit leads: cube 79.0 %, MTE2",
        ),
        (1, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_ratio": 0.3, "aiv_mte3_ratio": 0.88}, "memory", "mte3"),
        (1, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_ratio": 0.84, "aiv_mte2_ratio": 0.1}, "compute", "vec"),
        (2, "AI_CORE", {**CUBE, "aic_main_mem_read_bw(GB/s)": 900.5}, "unknown", "PipeUtilization"),
        (3, "AI_CORE", {**CUBE, "aic_l0a_read_bw(GB/s)": 700}, "unknown", "PipeUtilization"),
        (4, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_bank_cflt_ratio": 0.25}, "conflict", "bank_cflt"),
        (4, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_resc_cflt_ratio": 0.2}, "conflict", "resc_cflt"),
        (4, "AI_VECTOR_CORE", {**VECTOR, "aiv_vec_bank_cflt_ratio": 0.1}, "unknown", "PipeUtilization"),
        (5, "AI_VECTOR_CORE", {**VECTOR, "aiv_ub_read_bw_vector(GB/s)": 12.5}, "unknown", "PipeUtilization"),
    ],
)
def test_the_bound_of_chips_with_split_cores(
    tmp_path: Path, type_: int, core: str, cells: Cells, bound: str, culprit: str
) -> None:
    found = pmu(tmp_path, SPLIT[type_], cells, core)
    assert (found.bound, culprit.lower() in str(found.rule).lower()) == (bound, True), found


@pytest.mark.parametrize(
    ("type_", "cells", "bound"),
    [
        (0, {"mac_fp16_ratio": 0.5, "mac_int8_ratio": 0.35, "vec_fp32_ratio": 0.3}, "compute"),
        (0, {"mac_fp16_ratio": 0.5, "vec_fp32_ratio": 0.4}, "unknown"),  # cube and vector are different units
        (1, {"vec_ratio": 0.05, "mac_ratio": 0.9, "mte2_ratio": 0.5}, "compute"),
        (1, {"vec_ratio": 0.1, "mac_ratio": 0.1, "mte2_ratio": 0.93, "memory_bound": 9.3}, "memory"),
        (1, {"vec_ratio": 0.1, "mac_ratio": 0.1, "scalar_ratio": 0.85}, "scalar"),
        (4, {"vec_bankgroup_cflt_ratio": 0.31}, "conflict"),
    ],
)
def test_the_bound_of_chips_with_one_kind_of_core(tmp_path: Path, type_: int, cells: Cells, bound: str) -> None:
    assert pmu(tmp_path, UNIFIED[type_], {"aicore_time(us)": 5, **cells}).bound == bound


def test_memory_bound_and_cube_utilization_name_no_unit(tmp_path: Path) -> None:
    """memory_bound is a quotient and may be large, cube_utilization is in percent: neither is a share of cycles."""
    cells: Cells = {"mac_ratio": 0.3, "mte2_ratio": 0.3, "memory_bound": 9, "cube_utilization(%)": 97}
    found = pmu(tmp_path, UNIFIED[1], {"aicore_time(us)": 5, **cells})
    assert found.bound == "unknown" and "0.3" not in str(found.rule)
    assert found.means["memory_bound"] == pytest.approx(9)


def test_a_mix_kernel_is_judged_by_the_side_that_works_longer(tmp_path: Path) -> None:
    both: Cells = {"aic_mac_ratio": 0.9, "aiv_mte2_ratio": 0.95}
    cube = pmu(tmp_path, SPLIT[1], {"aicore_time(us)": 9, "aiv_time(us)": 2, **both}, "MIX_AIC")
    vector = pmu(tmp_path, SPLIT[1], {"aicore_time(us)": 2, "aiv_time(us)": 9, **both}, "MIX_AIC")
    assert (cube.bound, vector.bound) == ("compute", "memory")
    assert [s.side for s in cube.sides] == ["cube", "vector"] and [s.side for s in vector.sides] == ["vector", "cube"]
    assert str(cube.rule) == (
        "cube cores: limited by cube computing (mac): cube 90.0 % of cycles; "
        "vector cores: limited by MTE2 (reads from memory): MTE2 95.0 % of cycles"
    )


def test_conflicts_of_the_idle_side_do_not_count(tmp_path: Path) -> None:
    found = pmu(tmp_path, SPLIT[4], {"aicore_time(us)": 9, "aiv_time(us)": 0.1, "aiv_vec_bank_cflt_ratio": 0.9})
    assert found.bound == "unknown"


def test_conflicts_go_before_ratios(tmp_path: Path) -> None:
    columns = (*SPLIT[1], *SPLIT[4][4:])
    found = pmu(tmp_path, columns, {**VECTOR, "aiv_vec_ratio": 0.95, "aiv_vec_bank_cflt_ratio": 0.3}, "AI_VECTOR_CORE")
    assert (found.bound, "cflt" in str(found.rule)) == ("conflict", True)


def test_means_are_weighed_by_duration_over_rows_that_have_them(tmp_path: Path) -> None:
    """0.9 for 1 µs, 0.5 for 3 µs, nothing for 100 µs: (0.9 + 1.5) / 4 = 0.6."""
    rows: list[tuple[int, Cells]] = [
        (1_000, {**CUBE, "aic_mac_ratio": 0.9}),
        (3_000, {**CUBE, "aic_mac_ratio": 0.5}),
        (100_000, dict.fromkeys(SPLIT[1], "N/A")),
    ]
    found = operator(tmp_path, SPLIT[1], rows, "AI_CORE").pmu
    assert found and found.means["aic_mac_ratio"] == pytest.approx(0.6, rel=1e-6)
    assert found.bound == "unknown"


def test_nothing_recorded_is_no_answer(tmp_path: Path) -> None:
    assert operator(tmp_path, SPLIT[1], [(5_000, dict.fromkeys(SPLIT[1], "N/A"))], "AI_CORE").pmu is None
    assert operator(tmp_path, (), [(5_000, {})], "AI_CORE").pmu is None


def test_every_counter_is_shown_under_its_own_name(tmp_path: Path) -> None:
    for columns in (*SPLIT.values(), *UNIFIED.values()):
        cells: Cells = {c: round(0.01 * (i + 1), 2) for i, c in enumerate(columns)}
        means = pmu(tmp_path, columns, cells).means
        shares = [c for c in columns if c.endswith(("_ratio", "_rate", "(GB/s)", "_bound", "(%)"))]
        assert shares
        for column in shares:
            assert means[column.split("(")[0]] == pytest.approx(cells[column], rel=1e-6)


def test_names_in_any_case_and_without_units(tmp_path: Path) -> None:
    columns = ("AICORE_TIME(us)", "AIC_MAC_RATIO", "aic_mte2_ratio")
    assert pmu(tmp_path, columns, {"AICORE_TIME(us)": 5, "AIC_MAC_RATIO": 0.9}).bound == "compute"


def test_kernels_of_one_type_on_two_cores_are_judged_apart(tmp_path: Path) -> None:
    lines = [",".join([BASE, *SPLIT[1]])]
    for i, (core, side) in enumerate((("AI_CORE", CUBE), ("AI_VECTOR_CORE", VECTOR))):
        busy = {"AI_CORE": "aic_mac_ratio", "AI_VECTOR_CORE": "aiv_mte2_ratio"}[core]
        cells = {**side, busy: 0.9}
        known = [str(cells.get(c, 0)) for c in SPLIT[1]]
        lines.append(",".join(["0", "k", "Op", core, us(EPOCH + i * 9_000), "5", "0", "20", "0", *known]))
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join(lines) + "\n")
    found = {o.core: o.pmu.bound for o in analyze_path(path).operators if o.pmu}
    assert found == {"AI_CORE": "compute", "AI_VECTOR_CORE": "memory"}


#: Ratios of units, the pattern, and the sentence; sums and leads are reckoned by hand.
PATTERNS: list[tuple[dict[str, float], str, str]] = [
    ({"vec": 0.2, "mte2": 0.62}, "leading", "mostly MTE2 (reads from memory): MTE2 62.0 %, vector 20.0 % of cycles"),
    ({"vec": 0.25, "mte3": 0.5}, "leading", "mostly MTE3 (writes to memory): MTE3 50.0 %, vector 25.0 % of cycles"),
    ({"vec": 0.7, "scalar": 0.4}, "leading", "mostly vector computing (vec): vector 70.0 %, scalar 40.0 % of cycles"),
    ({"scalar": 0.6, "mte2": 0.53}, "shared", "no unit leads: scalar 60.0 %, MTE2 53.0 % of cycles"),
    (  # 1 − 0.38 − 0.12 − 0.02
        {"mte2": 0.38, "scalar": 0.12, "mte3": 0.02},
        "waiting",
        "waits in between, no unit is busy for half of the cycles: MTE2 38.0 %, scalar 12.0 %, MTE3 2.0 %; "
        "in at least 48.0 % of cycles none of them is busy",
    ),
    (  # they add up to 1.05: one of them may be busy in every cycle
        {"mte2": 0.36, "scalar": 0.4, "mte3": 0.29},
        "waiting",
        "waits in between, no unit is busy for half of the cycles: scalar 40.0 %, MTE2 36.0 %, MTE3 29.0 %",
    ),
    ({}, "unknown", "all recorded ratios are 0"),
]


@pytest.mark.parametrize(("ratios", "pattern", "sentence"), PATTERNS)
def test_what_is_told_where_no_unit_is_the_limit(
    tmp_path: Path, ratios: dict[str, float], pattern: str, sentence: str
) -> None:
    cells: Cells = {**VECTOR, **{f"aiv_{unit}_ratio": value for unit, value in ratios.items()}}
    found = pmu(tmp_path, SPLIT[1], cells, "AI_VECTOR_CORE")
    assert (found.pattern, str(found.rule), found.bound) == (pattern, sentence, "unknown")
    assert found.unit == (max(ratios, key=lambda u: ratios[u]) if ratios else None)


def test_other_units_at_the_limit_are_shown(tmp_path: Path) -> None:
    found = pmu(tmp_path, SPLIT[1], {**CUBE, "aic_mac_ratio": 0.82, "aic_mte2_ratio": 0.97})
    assert str(found.rule) == "limited by MTE2 (reads from memory): MTE2 97.0 %, cube 82.0 % of cycles"


def test_units_of_sides_that_work_for_different_times(tmp_path: Path) -> None:
    """The cube's unit is busy for 0.6 · 10 = 6 µs, the vector's for 0.9 · 4 = 3.6 µs: the first is the operator's."""
    cells: Cells = {"aicore_time(us)": 10, "aiv_time(us)": 4, "aic_mte2_ratio": 0.6, "aiv_vec_ratio": 0.9}
    found = pmu(tmp_path, SPLIT[1], cells, "MIX_AIC")
    assert (found.unit, found.pattern, found.bound) == ("mte2", "leading", "unknown")
    assert [(s.side, s.time_ns) for s in found.sides] == [("cube", 10_000), ("vector", 4_000)]


def test_counters_of_a_part_of_the_kernels(tmp_path: Path) -> None:
    """2 of 8 µs have counters."""
    rows: list[tuple[int, Cells]] = [
        (2_000, {**CUBE, "aic_mte2_ratio": 0.9}),
        (6_000, dict.fromkeys(SPLIT[1], "N/A")),
    ]
    found = operator(tmp_path, SPLIT[1], rows, "AI_CORE").pmu
    assert found and found.recorded == pytest.approx(0.25)
    assert str(found.rule).endswith("; counters are recorded for 25.0 % of its time")


REAL = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize(
    ("path", "type_", "told"),
    [  # duration-weighted means, computed from the raw files with pandas
        ("msprof-analyze/pipe_utilization", "MatMulV3", ("limit", "mte2", [("cube", 0.94)])),
        ("msprof-analyze/pipe_utilization", "FlashAttentionScoreGrad",
         ("leading", "scalar", [("cube", 0.78), ("vector", 0.42)])),
        ("msprof-analyze/arithmetic_utilization", "ApplyAdamW", ("unknown", None, [("vector", 0.22)])),
        ("msinsight/cluster4/rank_0_ascend_pt", "FlashAttentionScoreGrad",
         ("leading", "fixpipe", [("cube", 0.71), ("vector", 0.44)])),
        ("msinsight/cluster4/rank_0_ascend_pt", "ZerosLike", ("limit", "mte3", [("vector", 0.91)])),
        ("op_summary_2026/op_summary_pipe_utilization.csv", "Cast", ("waiting", "mte2", [("vector", 0.38)])),
    ],
)  # fmt: skip
def test_real_profiles(path: str, type_: str, told: tuple[str, str | None, list[tuple[str, float]]]) -> None:
    (found,) = (o.pmu for o in analyze_path(REAL / path).operators if o.type == type_ and o.core != "AI_CPU")
    assert found
    busiest = [(s.side, round(s.units[0].ratio, 2)) for s in found.sides]
    assert (found.pattern, found.unit, busiest) == told

"""Kernels that use little of what the chip can: planted, and healthy beside them. Figures are worked out by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from build import K, ascend_pt
from small_programs import analyzed, answer, assert_complete, beside, busy, step_length, steps_of

from npuperf.model.result import Finding

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

AIC = ("mac", "scalar", "mte1", "mte2", "fixpipe")
AIV = ("vec", "scalar", "mte2", "mte3")
RATIOS = [*(f"aic_{unit}_ratio" for unit in AIC), *(f"aiv_{unit}_ratio" for unit in AIV)]
ENDS = ("Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "HF32 Eligible")
#: A healthy kernel of vector cores.
ADD = {"aiv_vec_ratio": 0.3, "aiv_scalar_ratio": 0.1, "aiv_mte2_ratio": 0.9, "aiv_mte3_ratio": 0.4}
#: Of a kernel that does nothing but multiply.
MULTIPLIES = {"aic_mac_ratio": 0.9, "aic_scalar_ratio": 0.2, "aic_mte1_ratio": 0.5, "aic_mte2_ratio": 0.7}
#: Of one that waits for memory, as a real one of 32 rows, by 4096 × 9216.
READS = {"aic_mac_ratio": 0.123, "aic_scalar_ratio": 0.209, "aic_mte1_ratio": 0.1, "aic_mte2_ratio": 0.986}


def matmul(m: int, k: int, n: int, dtype: str = "DT_BF16", hf32: str = "NO", batch: str = "") -> dict[str, str]:
    return {
        "Input Shapes": f"{batch}{m},{k};{batch}{k},{n}", "Output Shapes": f"{batch}{m},{n}",
        "Input Data Types": f"{dtype};{dtype}", "Output Data Types": dtype,
        "Input Formats": "ND;ND", "Output Formats": "ND", "HF32 Eligible": hf32,
    }  # fmt: skip


def written(root: Path, cells: dict[str, Any], type: str, core: str, *, drop: tuple[str, ...] = ()) -> Path:
    """10 ms of healthy additions in two steps, and 1 ms of one more kernel with these cells after them."""
    kernels = busy(type="Add", core="AI_VECTOR_CORE", block=48)
    kernels.append(beside(kernels, 1_000_000, name="asked", type=type, core=core, block=20))
    return with_cells(ascend_pt(root, kernels), cells, drop)


def with_cells(folder: Path, cells: dict[str, Any], drop: tuple[str, ...] = ()) -> Path:
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    names = [*dict.fromkeys([*rows[0], *ENDS, *RATIOS])]
    for row in rows:
        more = cells if row["Name"] == "asked" else ADD
        row |= {name: more.get(name, 0.0) for name in RATIOS} | {name: more.get(name, "N/A") for name in ENDS}
        row |= {name: value for name, value in more.items() if name == "Input Shapes"}
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, [name for name in names if name not in drop], extrasaction="ignore")
        out.writeheader()
        out.writerows(rows)
    return folder


def asked(path: Path, rule: str) -> Finding:
    """The answer of a rule, by the rates of a 910B2: 24 cube cores of 1800 MHz, 1.6 TB/s."""
    result = analyzed(path, soc="Ascend910B2")
    found = answer(result, rule)
    if found.status == "problem":
        assert_complete(found, step_length(result))
    return found


# --- scalar computing ----------------------------------------------------------------------------------------------


def test_a_kernel_that_only_computes_scalars_is_named(tmp_path: Path) -> None:
    """The real op_summary's ratios: without scalar work it would take what its busiest other unit takes, 1.2 %."""
    cells = {"aiv_scalar_ratio": 0.995, "aiv_vec_ratio": 0.004, "aiv_mte2_ratio": 0.012}
    found = asked(written(tmp_path, cells, "MyKernel", "AI_VECTOR_CORE"), "scalar_kernels")
    assert found.status == "problem" and "MyKernel ×1" in str(found.title) and "9.1 %" in str(found.title)
    assert found.gain_ns_per_step == (0, pytest.approx(1_000_000 * 0.988 / 2, abs=1))


FLASH = {"aic_mac_ratio": 0.348, "aic_scalar_ratio": 0.913, "aic_mte1_ratio": 0.28, "aic_mte2_ratio": 0.721,
         "aic_fixpipe_ratio": 0.799, "aiv_vec_ratio": 0.522, "aiv_scalar_ratio": 0.326, "aiv_mte2_ratio": 0.41,
         "aiv_mte3_ratio": 0.268}  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "core"),
    [
        pytest.param(FLASH, "MIX_AIC", id="a real FlashAttentionScore: everything is busy beside it"),
        pytest.param({**FLASH, **dict.fromkeys(RATIOS[2:5], 0.0)}, "MIX_AIC", id="its vector cores work"),
        pytest.param({"aiv_scalar_ratio": 0.49}, "AI_VECTOR_CORE", id="it waits for longer than it computes"),
        pytest.param({"aiv_scalar_ratio": 0.6, "aiv_mte2_ratio": 0.61}, "AI_VECTOR_CORE", id="it reads meanwhile"),
        pytest.param(ADD, "AI_VECTOR_CORE", id="healthy"),
    ],
)
def test_a_kernel_whose_other_units_work_is_not(tmp_path: Path, cells: dict[str, float], core: str) -> None:
    assert asked(written(tmp_path, cells, "Kernel", core), "scalar_kernels").status == "ok"


def test_scalar_work_beside_another_stream_costs_nothing(tmp_path: Path) -> None:
    kernels = busy(type="Add", core="AI_VECTOR_CORE", block=48)
    kernels.append(K(0, 5_000_000, "asked", "MyKernel", stream=7, step=11, launch=-600_000))
    folder = with_cells(ascend_pt(tmp_path, kernels), {"aiv_scalar_ratio": 0.995})
    assert asked(folder, "scalar_kernels").status == "ok"


def test_without_pipe_ratios_nobody_can_tell(tmp_path: Path) -> None:
    without = tuple(name for name in RATIOS if "scalar" in name)
    found = asked(written(tmp_path, ADD, "MyKernel", "AI_VECTOR_CORE", drop=without), "scalar_kernels")
    assert found.status == "cannot_tell" and "PipeUtilization" in str(found.needs)


# --- FP32 ----------------------------------------------------------------------------------------------------------


def test_a_matmul_in_fp32_would_multiply_in_half_of_the_time(tmp_path: Path) -> None:
    cells = {**matmul(4096, 4096, 4096, "FLOAT"), **MULTIPLIES}
    found = asked(written(tmp_path, cells, "MatMulV3", "AI_CORE"), "fp32_products")
    assert found.status == "problem" and "torch_npu.npu.matmul.allow_hf32 = True" in str(found.next)
    assert found.gain_ns_per_step == (0, pytest.approx(1_000_000 * 0.9 / 2 / 2, abs=1))
    assert "conv.allow_hf32" not in steps_of(found) and "BF16" in steps_of(found)


def test_a_convolution_in_fp32_has_its_own_switch(tmp_path: Path) -> None:
    cells = {
        "Input Shapes": "32,64,56,56;64,64,3,3", "Input Data Types": "FLOAT;FLOAT", "Input Formats": "NCHW;NCHW",
        "Output Shapes": "32,64,54,54", "Output Data Types": "FLOAT", "Output Formats": "NCHW",
        "HF32 Eligible": "NO", **MULTIPLIES,
    }  # fmt: skip
    found = asked(written(tmp_path, cells, "Conv2D", "AI_CORE"), "fp32_products")
    assert "torch_npu.npu.conv.allow_hf32 = True" in str(found.next) and "matmul.allow_hf32" not in steps_of(found)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param({**matmul(4096, 4096, 4096, "FLOAT", "YES"), **MULTIPLIES}, id="HF32"),
        pytest.param({**matmul(4096, 4096, 4096), **MULTIPLIES}, id="BF16"),
        pytest.param(
            {**matmul(32, 9216, 4096, "FLOAT"), **MULTIPLIES, "aic_mac_ratio": 0.05}, id="it waits for memory"
        ),
    ],
)
def test_what_hf32_would_not_shorten_is_no_problem(tmp_path: Path, cells: dict[str, Any]) -> None:
    assert asked(written(tmp_path, cells, "MatMulV3", "AI_CORE"), "fp32_products").status == "ok"


def test_whether_hf32_is_allowed_must_be_recorded(tmp_path: Path) -> None:
    cells = {**matmul(4096, 4096, 4096, "FLOAT"), **MULTIPLIES}
    found = asked(written(tmp_path, cells, "MatMulV3", "AI_CORE", drop=("HF32 Eligible",)), "fp32_products")
    assert found.status == "cannot_tell" and "as HF32 is not recorded" in str(found.needs)


# --- padding -------------------------------------------------------------------------------------------------------


def test_sizes_that_are_filled_up_are_named(tmp_path: Path) -> None:
    """17 rows are multiplied as 32, and 1000 columns as 1008: 1 - 17/32 * 1000/1008 of 0.9 ms is padding."""
    cells = {**matmul(17, 4096, 1000), **MULTIPLIES}
    found = asked(written(tmp_path, cells, "MatMulV3", "AI_CORE"), "padded_products")
    padding = 1_000_000 * 0.9 * (1 - 17 / 32 * 1000 / 1008)
    assert found.status == "problem" and found.gain_ns_per_step == (0, pytest.approx(padding / 2, abs=1))
    (row,) = found.evidence["products"]
    assert (row["m"], row["n"], row["k"], row["fills"]) == (17, 1000, 4096, ["M", "N"])
    assert "which fills M, N up" in str(found.title) and "17 × 4096 by 4096 × 1000" in str(found.title)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param({**matmul(4096, 4096, 4096), **MULTIPLIES}, id="multiples of 16"),
        pytest.param({**matmul(4097, 4096, 4096), **MULTIPLIES}, id="one of many blocks"),
        pytest.param({**matmul(1, 4096, 4096), **READS, "aic_mac_ratio": 0.02}, id="cube cores are idle anyway"),
        pytest.param({**matmul(256, 8, 4096, "FLOAT"), **MULTIPLIES}, id="8 values of FP32 along K are 32 bytes"),
    ],
)
def test_sizes_that_cost_nothing_are_not(tmp_path: Path, cells: dict[str, Any]) -> None:
    assert asked(written(tmp_path, cells, "MatMulV3", "AI_CORE"), "padded_products").status == "ok"


def test_along_k_int8_is_filled_up_to_32(tmp_path: Path) -> None:
    cells = {**matmul(4096, 48, 4096, "INT8"), **MULTIPLIES}
    (row,) = asked(written(tmp_path, cells, "QuantBatchMatmulV3", "AI_CORE"), "padded_products").evidence["products"]
    assert row["fills"] == ["K"] and row["padded"] == pytest.approx(1 - 48 / 64)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        pytest.param(MULTIPLIES, "shapes are not recorded", id="no shapes"),
        pytest.param({**matmul(17, 4096, 1000), "Input Shapes": "17,4096;512,1000", **MULTIPLIES},
                     "shapes do not fit", id="shapes of another kernel"),
    ],
)  # fmt: skip
def test_without_sizes_nobody_can_tell(tmp_path: Path, cells: dict[str, Any], says: str) -> None:
    for rule in ("padded_products", "narrow_products"):
        found = asked(written(tmp_path / rule, cells, "MatMulV3", "AI_CORE"), rule)
        assert found.status == "cannot_tell" and says in str(found.needs)


# --- few rows ------------------------------------------------------------------------------------------------------


def test_few_rows_wait_for_their_weights(tmp_path: Path) -> None:
    """8 rows by 8192 × 8192 in BF16: 84 µs of HBM for 3 µs of products; weights are 99.8 % of what moves."""
    folder = written(tmp_path, {**matmul(8, 8192, 8192), **READS}, "MatMulV3", "AI_CORE")
    found = asked(folder, "narrow_products")
    products = 2 * 8 * 8192 * 8192 / (24 * 1800e6 * 8192) * 1e9
    assert found.status == "problem" and "8 × 8192 by 8192 × 8192" in str(found.title)
    assert found.gain_ns_per_step == (0, pytest.approx((1_000_000 - products) / 2, abs=1))
    assert "let more rows share" in str(found.next) and "npu_weight_quant_batchmatmul" in steps_of(found)


@pytest.mark.parametrize(
    ("cells", "type"),
    [
        pytest.param({**matmul(4096, 4096, 4096), **MULTIPLIES}, "MatMulV3", id="many rows"),
        pytest.param({**matmul(8, 8192, 8192), **MULTIPLIES}, "MatMulV3", id="cube cores are busy none the less"),
        pytest.param({**matmul(8192, 8, 8192), **READS}, "MatMulV3", id="weights are hardly any of it"),
        pytest.param({**matmul(8, 8192, 8192, batch="4,"), **READS}, "BatchMatMulV2", id="each batch its own matrix"),
    ],
)
def test_other_matmuls_do_not(tmp_path: Path, cells: dict[str, Any], type: str) -> None:
    assert asked(written(tmp_path, cells, type, "AI_CORE"), "narrow_products").status == "ok"


def test_weights_of_one_byte_are_not_quantised_again(tmp_path: Path) -> None:
    cells = {**matmul(8, 8192, 8192, "INT8"), **READS}
    found = asked(written(tmp_path, cells, "QuantBatchMatmulV3", "AI_CORE"), "narrow_products")
    assert found.status == "problem" and "npu_weight_quant_batchmatmul" not in steps_of(found)


def test_unknown_rates_are_asked_for(tmp_path: Path) -> None:
    folder = written(tmp_path, {**matmul(8, 8192, 8192), **READS}, "MatMulV3", "AI_CORE")
    found = answer(analyzed(folder), "narrow_products")
    assert found.status == "cannot_tell" and "--soc" in str(found.needs)


# --- reading -------------------------------------------------------------------------------------------------------


def test_rows_of_matrices_off_512_bytes_are_named(tmp_path: Path) -> None:
    """1000 values of BF16 are 2000 bytes; 4096 are 8192. At most 30 % of 98.6 % of 1 ms is won, in two steps."""
    found = asked(written(tmp_path, {**matmul(4096, 4096, 1000), **READS}, "MatMulV3", "AI_CORE"), "unaligned_products")
    assert found.status == "problem" and found.evidence["row_bytes"] == [2000]
    assert "rows of 2000 bytes are no multiples of 512: MatMulV3 ×1 of 4096 × 4096 by 4096 × 1000" in str(found.title)
    assert found.gain_ns_per_step == (0, pytest.approx(1_000_000 * 0.3 * 0.986 / 2, abs=1))


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param({**matmul(1000, 4096, 4096), **READS}, id="the number of rows does not matter"),
        pytest.param({**matmul(4096, 4096, 1000), **MULTIPLIES}, id="it multiplies for longer than it reads"),
        pytest.param({**matmul(4096, 4096, 1000), **READS, "Input Formats": "ND;FRACTAL_NZ"}, id="stored in blocks"),
        pytest.param({**matmul(4096, 4096, 1024, "FLOAT"), **READS}, id="4096 bytes"),
    ],
)
def test_rows_that_are_aligned_or_not_waited_for_are_not(tmp_path: Path, cells: dict[str, Any]) -> None:
    assert asked(written(tmp_path, cells, "MatMulV3", "AI_CORE"), "unaligned_products").status == "ok"


def copied(shape: str, dtype: str = "DT_BF16") -> dict[str, str]:
    return {"Input Shapes": shape, "Output Shapes": shape, "Input Data Types": dtype, "Output Data Types": dtype,
            "Input Formats": "ND", "Output Formats": "ND"}  # fmt: skip


def test_copies_that_wait_for_reading_far_from_hbm_are_named(tmp_path: Path) -> None:
    """100 MiB are read and written in 1 ms: 209.7 GB/s of 1600, which needs 131 µs; and a launch takes 5 at most."""
    cells = {**copied("52428800,1"), "aiv_mte2_ratio": 0.9, "aiv_mte3_ratio": 0.2, "aiv_vec_ratio": 0.1}
    found = asked(written(tmp_path, cells, "Transpose", "AI_VECTOR_CORE"), "slow_copies")
    assert found.status == "problem" and "move 209.7 GB/s, of 1600 that HBM gives: Transpose ×1" in str(found.title)
    assert found.gain_ns_per_step == (0, pytest.approx((1_000_000 - 209_715_200 / 1600 - 5_000) / 2, abs=1))


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param({**copied("524288000,1"), "aiv_mte2_ratio": 0.9}, id="more than half of HBM's rate"),
        pytest.param({**copied("52428800,1"), "aiv_mte2_ratio": 0.4, "aiv_mte3_ratio": 0.9}, id="it writes for longer"),
        pytest.param({**copied("52428800,1"), "aiv_mte2_ratio": 0.3}, id="it waits for something else"),
    ],
)
def test_copies_at_memorys_rate_or_waiting_for_others_are_not(tmp_path: Path, cells: dict[str, Any]) -> None:
    """1 GB in 1 ms is 2097 GB/s: from L2."""
    assert asked(written(tmp_path, cells, "Transpose", "AI_VECTOR_CORE"), "slow_copies").status == "ok"


def test_sizes_of_copies_must_be_recorded(tmp_path: Path) -> None:
    folder = written(tmp_path, {"aiv_mte2_ratio": 0.9}, "Transpose", "AI_VECTOR_CORE")
    found = asked(folder, "slow_copies")
    assert found.status == "cannot_tell" and "--shapes" in str(found.needs)


# --- moves that matmuls take ---------------------------------------------------------------------------------------


def followed(
    tmp_path: Path, type: str, moved: dict[str, str], taken: dict[str, str], drop: str = "", **before: dict[str, str]
) -> Finding:
    """10 ms of additions, and twice a move of 1 ms before a matmul, of which one takes another shape.

    ``before``: more kernels of that type that come before the first of them, by name.
    """
    kernels = busy(type="Add", core="AI_VECTOR_CORE", block=48)
    for name in (*before, "moved", "taken", "moved", "other"):
        made = "MatMulV3" if name in ("taken", "other") else type
        kernels.append(beside(kernels, 1_000_000, name=name, type=made, core="AI_CORE", block=20))
    folder = ascend_pt(tmp_path, kernels)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    cells = {**before, "moved": moved, "taken": taken, "other": matmul(64, 64, 64)}
    for row in rows:
        row |= {name: cells.get(row["Name"], {}).get(name, "N/A") for name in (*ENDS, "Input Shapes")}
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, [name for name in dict.fromkeys([*rows[0], *ENDS]) if name != drop],
                             extrasaction="ignore")  # fmt: skip
        out.writeheader()
        out.writerows(rows)
    return asked(folder, "moved_for_products")


TURNED = {**copied("1024,4096"), "Output Shapes": "4096,1024"}


def test_a_transpose_that_the_next_matmul_takes_is_named(tmp_path: Path) -> None:
    """Of 14 ms of compute one is such a transpose: a matmul reads it as it lies."""
    found = followed(tmp_path, "Transpose", TURNED, matmul(512, 4096, 1024))
    assert found.status == "problem" and found.gain_ns_per_step == (0, 500_000)
    assert str(found.title).startswith("7.1 % of compute time moves or casts what the next matmul takes (inferred")
    assert "Transpose before MatMulV3" in str(found.title) and ".contiguous()" in str(found.next)
    assert found.evidence["time_ns"] == {"transposes": 1_000_000, "casts": 0, "conversions": 0}


def test_both_inputs_of_a_matmul_may_be_moved_right_before_it(tmp_path: Path) -> None:
    """Of three transposes in a row the last two are those of its inputs; the first comes too early."""
    left = {**copied("4096,512"), "Output Shapes": "512,4096"}
    found = followed(tmp_path, "Transpose", TURNED, matmul(512, 4096, 1024), early=left, left=left)
    assert found.status == "problem" and found.evidence["count"] == 2 and found.gain_ns_per_step == (0, 1_000_000)


def test_a_cast_that_the_next_matmul_takes_has_advice_of_its_own(tmp_path: Path) -> None:
    moved = {**copied("512,4096"), "Input Data Types": "FLOAT"}
    found = followed(tmp_path, "Cast", moved, matmul(512, 4096, 1024))
    assert found.status == "problem" and "autocast" in str(found.next) and ".contiguous()" not in steps_of(found)


@pytest.mark.parametrize(
    ("type", "moved", "taken"),
    [
        pytest.param("Transpose", TURNED, matmul(512, 1024, 2048), id="the matmul takes another shape"),
        pytest.param("Transpose", {**copied("8,128,32,64"), "Output Shapes": "8,32,128,64"},
                     matmul(128, 64, 32, batch="8,32,"), id="heads change places, not rows and columns"),
        pytest.param("Transpose", copied("4096,4096"), matmul(512, 4096, 4096), id="of a square nobody knows"),
        pytest.param("Cast", copied("512,4096", "FLOAT"), matmul(512, 4096, 1024), id="the matmul reads another dtype"),
        pytest.param("Add", TURNED, matmul(512, 4096, 1024), id="no move"),
    ],
)  # fmt: skip
def test_what_the_matmul_does_not_take_or_cannot_read_otherwise_is_not(
    tmp_path: Path, type: str, moved: dict[str, str], taken: dict[str, str]
) -> None:
    assert followed(tmp_path, type, moved, taken).status == "ok"


def test_without_the_outputs_shapes_nobody_can_tell(tmp_path: Path) -> None:
    found = followed(tmp_path, "Transpose", TURNED, matmul(512, 4096, 1024), drop="Output Shapes")
    assert found.status == "cannot_tell" and "--shapes" in str(found.needs)


# --- real recordings -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA.exists(), reason="the real recordings are not here")
def test_real_conversions_before_matmuls_are_counted() -> None:
    """Rank 2 multiplies logits: four TransData of aclnnMatmul store its inputs in blocks right before it."""
    folder = DATA / "msinsight/cluster4/rank_2_ascend_pt"
    with (folder / "ASCEND_PROFILER_OUTPUT/kernel_details.csv").open(encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file) if row["Accelerator Core"] != "COMMUNICATION"]
    total = 0.0
    for at, row in enumerate(rows):
        if "MatMul" in row["Type"]:
            for before in rows[at - 1 : at - 3 : -1]:
                if before["Type"] != "TransData" or before["Stream ID"] != row["Stream ID"]:
                    break
                inputs = row["Input Shapes"].strip('"').split(";")
                total += number(before, "Duration(us)") * (before["Output Shapes"].strip('"') in inputs)
    assert total == pytest.approx(8388.98)
    found = answer(analyzed(folder), "moved_for_products")
    assert found.status == "problem" and found.gain_ns_per_step == (0, round(total * 1000))
    assert found.evidence["pairs"] == [{"move": "TransData", "product": "MatMulV2", "total_ns": 8_388_980}]


def number(row: dict[str, str], name: str) -> float:
    return float(row.get(name) or 0)


@pytest.mark.skipif(not DATA.exists(), reason="the real recordings are not here")
def test_a_real_kernel_that_computes_scalars_is_named() -> None:
    """Two kernels of 42 ms: vector cores compute scalars in 99.5 % of their cycles, cube cores run for 12 µs."""
    path = DATA / "op_summary_2026/op_summary_block_over_cores.csv"
    with path.open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    total = sum(number(row, "Task Duration(us)") for row in rows)
    assert all(number(row, "aiv_scalar_ratio") > 0.99 for row in rows)
    found = answer(analyzed(path), "scalar_kernels")
    assert found.status == "problem" and found.gain_ns_per_step is not None
    assert 0.99 * total * 1000 < found.gain_ns_per_step[1] <= total * 1000


@pytest.mark.skipif(not DATA.exists(), reason="the real recordings are not here")
def test_real_fp32_matmuls_of_few_rows_would_win_little() -> None:
    """AlexNet's are 10 % of compute in FP32 without HF32, but multiply for 159 µs of a step of 141 ms."""
    folder = DATA / "msinsight/text/level1/rank0_ascend_pt"
    with (folder / "ASCEND_PROFILER_OUTPUT/kernel_details.csv").open(encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file) if "MatMul" in row["Type"] and row["HF32 Eligible"] == "NO"]
    assert sum(number(row, "Duration(us)") for row in rows) == pytest.approx(997.4, abs=0.1)
    assert sum(number(row, "Duration(us)") * number(row, "aic_mac_ratio") for row in rows) / 2 < 0.02 * 141_164
    assert answer(analyzed(folder), "fp32_products").status == "ok"

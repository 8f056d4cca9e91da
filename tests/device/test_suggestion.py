"""Core counts suggested where a profile does not name them, by kernels put together by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt

from npuperf.model.result import Device

ROOT = Path(__file__).resolve().parents[3] / "shared" / "data"
Kernels = list[tuple[str, int, int]]  # core type, Block Dim, Mix Block Dim


def device(root: Path, kernels: Kernels, **more: str) -> Device:
    rows = [K(i * 1_000, 900, f"{c}_{i}", f"T{i % 3}", c, 2, b, m) for i, (c, b, m) in enumerate(kernels)]
    (found,) = analyze_path(ascend_pt(root, rows, **more)).devices
    return found


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (
            [("AI_CORE", 20, 0)] * 3 + [("AI_VECTOR_CORE", 40, 0)] * 4 + [("AI_VECTOR_CORE", 1, 0)] * 9,
            "--cores 20,40: 3 kernels use exactly 20 cube cores and 4 exactly 40 vector cores, none starts more blocks",
        ),
        (
            [("MIX_AIC", 24, 48)] * 2 + [("MIX_AIV", 48, 24)] * 3 + [("AI_VECTOR_CORE", 256, 0)],
            "suggest --cores 24,48: 5 kernels use exactly 24 cube cores and 5 exactly 48 vector cores, 1 starts more",
        ),
    ],
)
def test_what_kernels_that_fill_the_chip_suggest(kernels: Kernels, words: str, tmp_path: Path) -> None:
    found = device(tmp_path, kernels)
    assert words in str(found.cores.reason) and "core counts are unknown" in str(found.cores.reason)
    assert (found.cores_cube, found.cores_vector) == (None, None)  # a suggestion is no fact


@pytest.mark.parametrize(
    "kernels",
    [
        [("AI_CORE", 7, 0)] * 9 + [("AI_VECTOR_CORE", 13, 0)] * 9,  # no chip has as many
        [("AI_CORE", 20, 0)] * 9,  # nothing is known of the vector cores
        [("AI_CORE", 20, 0), ("AI_VECTOR_CORE", 40, 0)],  # once may be chance
        [("AI_CORE", 20, 0)] * 3 + [("AI_CORE", 24, 0)] * 4 + [("AI_VECTOR_CORE", 40, 0)] * 3,  # more kernels need more
        [("MIX_AIC", 256, 0)] * 3,
    ],
)
def test_nothing_is_suggested_that_kernels_do_not_show(kernels: Kernels, tmp_path: Path) -> None:
    reason = str(device(tmp_path, kernels).cores.reason)
    assert "--cores CUBE,VECTOR or --soc NAME" in reason
    assert "suggest" not in reason and "24,48" not in reason and "910B1" not in reason


def test_a_column_of_zeros_is_no_missing_column(tmp_path: Path) -> None:
    found = device(tmp_path, [("AI_CORE", 0, 0)] * 3, cores="24,48")
    assert str(found.cores.reason).startswith("no kernel has a Block Dim above 0")


@pytest.mark.parametrize(
    ("file", "cores"),
    [
        ("msinsight/cluster4/rank_0_ascend_pt", "20,40"),
        ("msinsight/text/level1/rank0_ascend_pt", "24,48"),
        ("msprof-analyze/pipe_utilization/kernel_details.csv", "20,40"),
        ("msinsight/text/level0/rank0_ascend_pt", None),
        ("hta/alexnet_gpu.json.gz", None),
    ],
)
def test_real_profiles(file: str, cores: str | None) -> None:
    """Counted in the raw files: 1426 rows of cluster4 have Block Dim 40 and 392 have 20; level1 has 58 with 48."""
    if not (ROOT / file).exists():
        pytest.skip("the collection of real profiles is not here")
    (found,) = (d for d in analyze_path(ROOT / file).devices if d.rank in (0, None))
    reason = str(found.cores.reason)
    assert (f"--cores {cores}" in reason) if cores else ("--cores" not in reason)

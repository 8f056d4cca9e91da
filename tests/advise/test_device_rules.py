"""Rules about what the device does: planted cases with the gain worked out by hand, healthy ones, and missing data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import K, ascend_pt, kernel_details
from msgspec.structs import replace
from small_programs import analyzed, answer, assert_complete, beside, busy, problem

from npuperf.device import core_splits

# --- ai_cpu --------------------------------------------------------------------------------------------------------


def test_ai_cpu_counts_only_time_that_nothing_hides(tmp_path: Path) -> None:
    """300 µs on AI CPU, of which a kernel on another stream covers 60: at most 240 in two steps."""
    kernels = busy()
    cpu = beside(kernels, 300_000, core="AI_CPU", type="Unique2")
    cover = K(cpu.start + 100_000, 60_000, "cover", "Add", stream=5, launch=cpu.start - 1_000_000, step=12)
    found = problem(ascend_pt(tmp_path, [*kernels, cpu, cover]), "ai_cpu")
    assert found.gain_ns_per_step == (0, 120_000)
    assert found.evidence["exposed_ns"] == 240_000 and found.evidence["count"] == 1
    assert "Unique2" in str(found.title)


def test_hidden_ai_cpu_operators_are_no_problem(tmp_path: Path) -> None:
    kernels = [*busy(), K(150_000, 90_000, "c", "Unique2", "AI_CPU", 5, launch=-300_000, step=11)]
    assert answer(ascend_pt(tmp_path, kernels), "ai_cpu").status == "ok"


def test_ai_cpu_needs_core_types(tmp_path: Path) -> None:
    found = answer(kernel_details(tmp_path / "kernel_details.csv", busy(core="N/A")), "ai_cpu")
    assert (found.status, "--level 1" in str(found.needs)) == ("cannot_tell", True)


# --- layout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["TransData", "trans_TransData", "FormatCast"])
def test_conversions_that_take_a_notable_part_of_compute(tmp_path: Path, type_: str) -> None:
    """10 ms of compute and 0.8 ms of conversions, of which another stream hides 0.3: at most 0.5 ms in two steps."""
    kernels = busy()
    turn = beside(kernels, 800_000, type=type_)
    cover = K(turn.start + 500_000, 300_000, "cover", "Mul", stream=5, launch=turn.start - 1_000_000, step=12)
    found = problem(ascend_pt(tmp_path, [*kernels, turn, cover]), "layout")
    assert found.evidence["share_of_compute"] == pytest.approx(0.8 / 11.1)
    assert found.gain_ns_per_step == (0, 250_000)


@pytest.mark.parametrize(
    ("type_", "dur"), [("TransData", 150_000), ("MatMulV2", 4_000_000), ("BroadcastTo", 2_000_000)]
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
    assert (found.status, "types" in str(found.needs)) == ("cannot_tell", True)


# --- idle_cores ----------------------------------------------------------------------------------------------------


def test_kernels_that_leave_most_cores_idle(tmp_path: Path) -> None:
    """100 kernels of 100 µs on 6 of 24 cores: 75 µs of each could be saved at most, in two steps."""
    found = problem(ascend_pt(tmp_path, busy(block=6), cores="24,48"), "idle_cores")
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
    assert (no_cores.status, "--cores" in str(no_cores.needs)) == ("cannot_tell", True)
    no_blocks = answer(ascend_pt(tmp_path / "b", busy(block=0), cores="24,48"), "idle_cores")
    assert (no_blocks.status, "Block Dim" in str(no_blocks.needs)) == ("cannot_tell", True)


def test_vector_kernels_need_the_number_of_vector_cores(tmp_path: Path) -> None:
    """info.json names cube cores only, and every kernel is a vector kernel: nothing can be compared."""
    folder = ascend_pt(tmp_path, busy(core="AI_VECTOR_CORE", block=2), cores="24,48")
    (info,) = folder.rglob("info.json.0")
    info.write_text(json.dumps({"DeviceInfo": [{"id": 0, "ai_core_num": 24}]}))
    assert answer(folder, "idle_cores").status == "cannot_tell"


# --- early_steps ---------------------------------------------------------------------------------------------------


def test_steps_among_the_first_ten(tmp_path: Path) -> None:
    found = problem(ascend_pt(tmp_path, [*busy(step=3), *busy(step=12)]), "early_steps")
    assert (found.evidence["steps"], found.gain_ns_per_step) == ([3], None)
    assert "--wait 10" in str(found.next)


@pytest.mark.parametrize(("step", "status"), [(9, "problem"), (10, "ok"), (500, "ok")])
def test_the_tenth_step_is_warm(tmp_path: Path, step: int, status: str) -> None:
    assert answer(ascend_pt(tmp_path, busy(step=step)), "early_steps").status == status


def test_early_steps_need_step_numbers(tmp_path: Path) -> None:
    assert answer(ascend_pt(tmp_path, busy(step="")), "early_steps").status == "cannot_tell"


def test_a_chosen_warm_step_is_not_early(tmp_path: Path) -> None:
    second = [replace(k, start=k.start + 20_000_000, step=12) for k in busy()]
    folder = ascend_pt(tmp_path, [*busy(step=3), *second])
    assert answer(analyzed(folder, step=12), "early_steps").status == "ok"
    assert answer(analyzed(folder, step=3), "early_steps").status == "problem"


# --- launch_blocking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "status"), [("1", "problem"), ("0", "ok"), ("", "ok")])
def test_blocking_launches_are_read_from_the_environment(tmp_path: Path, value: str, status: str) -> None:
    folder = ascend_pt(tmp_path, busy())
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": value}}))
    found = answer(folder, "launch_blocking")
    assert found.status == status
    if status == "problem":
        assert_complete(found, 1)
        assert "unset" in str(found.next)


@pytest.mark.parametrize("text", [None, "{}", '{"ENV_VARIABLES": {"HCCL_ALGO": ""}}', "not json"])
def test_blocking_launches_need_the_environment(tmp_path: Path, text: str | None) -> None:
    folder = ascend_pt(tmp_path, busy())
    if text is not None:
        (folder / "profiler_metadata.json").write_text(text)
    assert answer(folder, "launch_blocking").status == "cannot_tell"


# --- core_limit ----------------------------------------------------------------------------------------------------


def test_a_search_for_limits_in_a_part_of_the_profile_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream 5 is ready at 22 µs and has no cores until 100: for certain: events are recorded, none was awaited."""
    monkeypatch.setattr(core_splits, "_EXCERPT", 1)
    kernels = [
        K(2_000, 98_000, core="AI_CORE", block=24, stream=2, launch=0),
        K(100_000, 50_000, core="AI_CORE", block=24, stream=5, launch=20_000),
        K(202_000, 10_000, core="AI_CORE", block=24, stream=2, launch=200_000),
        K(900_000, 1_000, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 99, 0),
    ]
    found = answer(ascend_pt(tmp_path, kernels, cores="24,48"), "core_limit")
    assert found.status == "cannot_tell"
    assert "up to 78.00 us per step" in str(found.needs) and "--step N" in str(found.needs)

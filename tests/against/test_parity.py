"""What differs between two set-ups, in which order, and what may not be compared."""

from __future__ import annotations

import pytest
from digests import Parts, digest_of, run_of
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.parity import Side, alike, comparable, differences, in_common, refuse_mismatch
from npuperf.against.waterfall import sum_runs
from npuperf.base.errors import UsageError
from npuperf.base.messages import say
from npuperf.model.comparison import Difference
from npuperf.model.parts import GroupSize, Lack
from npuperf.model.result import Lost, Result

THRESHOLDS = load_thresholds()
KERNELS: Parts = {("compute", "MatMul [8,8] FLOAT"): (900, 9), ("compute", "Add [8] FLOAT"): (100, 1)}
OTHERS: Parts = {("compute", "MatMul [9,9] FLOAT"): (900, 9), ("compute", "Add [8] FLOAT"): (100, 1)}


def side(parts: Parts = KERNELS, **workload: object) -> Side:
    return of(run_of(digest_of(parts, [1000]), **workload))


def of(run: Result) -> Side:
    assert run.digest is not None
    return Side([run], sum_runs([run.digest]))


def between(old: Side, new: Side) -> list[Difference]:
    return list(differences(old, new, THRESHOLDS))


def test_equal_set_ups_do_not_differ() -> None:
    known = {"command": ("python", "train.py"), "soc": "910B", "frequency_mhz": (1800, 1800), "world_size": 8}
    assert between(side(**known), side(**known)) == []
    assert alike(side(**known), side(**known), []) == "same"


def test_what_is_not_recorded_on_one_side_is_no_difference() -> None:
    assert between(side(soc="910B", torch="2.1", level="Level1"), side()) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ((1800, 1800), (1790, 1800), False),
        ((1800, 1800), (1700, 1800), True),
        ((1000, 1800), (1000, 1600), True),
        ((1800, 1800), None, False),
    ],
)
def test_the_clock_is_told_from_a_hundredth_on(old: tuple[int, int], new: tuple[int, int] | None, told: bool) -> None:
    found = between(side(frequency_mhz=old), side(frequency_mhz=new))
    assert [d.what for d in found] == ["AI Core frequency"] * told


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ((1000, 1600), "is lower"),
        ((800, 1600), "is lower"),
        ((1200, 1800), "is higher"),
        ((1200, 1600), "has another range"),
        ((900, 2000), "has another range"),
    ],
)
def test_of_a_clock_that_varies_it_is_said_how(new: tuple[int, int], told: str) -> None:
    (found,) = between(side(frequency_mhz=(1000, 1800)), side(frequency_mhz=new))
    assert told in str(found.reason)


@pytest.mark.parametrize(
    ("old", "new", "told"), [(1.02, 1.05, False), (1.0, 1.2, True), (None, 1.5, True), (None, 1.1, False)]
)
def test_what_recording_costs(old: float | None, new: float, told: bool) -> None:
    found = between(side(recording_overhead=old), side(recording_overhead=new))
    assert [d.what for d in found] == ["recording overhead"] * told


def test_clock_and_recording_come_first_then_the_work_then_the_rest() -> None:
    old = side(frequency_mhz=(1800, 1800), recording_overhead=1.0, world_size=8, soc="910B", cann="8.0",
               git_commit="a", level="Level1", groups=(GroupSize(kind="dp", groups=1, ranks=8),))  # fmt: skip
    new = side(frequency_mhz=(1500, 1500), recording_overhead=1.4, world_size=4, soc="910C", cann="8.1",
               git_commit="b", level="Level0", groups=(GroupSize(kind="dp", groups=1, ranks=4),))  # fmt: skip
    assert [d.what for d in between(old, new)] == [
        "AI Core frequency", "recording overhead", "world size", "process groups", "SoC", "profiler level", "CANN",
        "git commit",
    ]  # fmt: skip


def test_launches_in_common() -> None:
    """Nine of ten launches have another shape, one is the same."""
    assert in_common(side(), side()) == 1
    assert in_common(side(), side(OTHERS)) == pytest.approx(0.1)


def test_other_shapes_are_another_workload_unless_the_command_is_the_same() -> None:
    mismatch = [d for d in between(side(), side(OTHERS)) if d.mismatch]
    assert [d.what for d in mismatch] == ["launches per step"]
    with pytest.raises(UsageError, match=r"launches per step: 10 against 10, only 10\.0 % of the kernels"):
        refuse_mismatch(mismatch)
    command = ("python", "train.py")
    certain = between(side(command=command), side(OTHERS, command=command))
    assert [(d.what, d.mismatch) for d in certain] == [("launches per step", False)]
    assert alike(side(command=command), side(OTHERS, command=command), certain) == "same"


def test_many_launches_fused_into_one_are_the_same_workload() -> None:
    """Nine tenths of the launches are gone, and with them a tenth of the time."""
    eager: Parts = {("compute", "MatMul"): (900, 1), ("compute", "Mul"): (50, 5), ("compute", "Add"): (50, 4)}
    fused: Parts = {("compute", "MatMul"): (900, 1), ("compute", "MulAdd"): (60, 1)}
    assert in_common(side(eager), side(fused)) == pytest.approx(0.9)
    assert not any(d.mismatch for d in between(side(eager), side(fused)))


def test_what_is_no_operator_has_no_shapes() -> None:
    waits: Parts = {("compute", "Add"): (9, 1), ("host_wait", "the loader [8]"): (9, 1)}
    assert comparable(side(waits), side({("compute", "Add"): (9, 1)})).note is None


def test_other_arguments_of_one_script_are_a_difference() -> None:
    a, b = side(command=("python", "a/train.py", "--lr", "1")), side(command=("python", "b/train.py", "--lr", "2"))
    assert [(d.what, d.mismatch) for d in between(a, b)] == [("command", False)]
    assert alike(a, b, between(a, b)) == "same"


def test_training_against_inference() -> None:
    backward: Parts = {**KERNELS, ("compute", "FlashAttentionScoreGrad [8]"): (300, 3)}
    (found,) = between(side(), side(backward))
    assert (found.what, found.old, found.new, found.mismatch) == (
        "operators of training",
        "none by their names",
        "yes",
        True,
    )


def test_a_refusal_names_every_reason_and_the_way_out() -> None:
    with pytest.raises(UsageError) as error:
        refuse_mismatch(between(side(world_size=8), side(OTHERS, world_size=4)))
    for word in ("world size: 8 against 4", "launches per step", "--allow-mismatch"):
        assert word in str(error.value)


def test_lost_rows_differ() -> None:
    run = run_of(digest_of(KERNELS, [1000]))
    lost = [Lost(file="kernel_details.csv", rows=7, reason=say("damaged"))]
    damaged = replace(run, input=replace(run.input, lost=lost))
    assert [(d.what, d.old, d.new) for d in between(of(run), of(damaged))] == [("rows lost in reading", "0", "7")]


@pytest.mark.parametrize(
    ("lack", "what", "values"),
    [
        ("launches", "launches of kernels", ("recorded", None)),
        ("calls", "calls of the runtime", ("recorded", None)),
        ("rows", "table of kernels", ("whole", "rows are missing")),
    ],
)
def test_what_only_one_side_recorded(lack: Lack, what: str, values: tuple[str | None, str | None]) -> None:
    whole = digest_of(KERNELS, [1000])
    lacking = replace(whole, lacks=[lack])
    (found,) = between(of(run_of(whole)), of(run_of(lacking)))
    assert (found.what, (found.old, found.new), found.matters, found.mismatch) == (what, values, True, False)
    assert found.reason is not None
    assert not between(of(run_of(lacking)), of(run_of(lacking)))


def test_optimizers_and_backward_passes_of_any_name_are_of_training() -> None:
    for name in ("ApplyAdamW [8]", "Conv2DBackpropFilterD [8]", "aclnnMaxPool2dWithMaskBackward_Mask [8]"):
        backward: Parts = {**KERNELS, ("compute", name): (300, 3)}
        assert [d.new for d in between(side(), side(backward))] == ["yes"], name


def test_launches_are_of_a_step_only_where_both_sides_have_steps() -> None:
    stepless = replace(digest_of(OTHERS, [1000]), steps=[])
    found = between(side(), of(run_of(stepless)))
    assert [(d.what, d.mismatch) for d in found if d.mismatch] == [("launches", True)]

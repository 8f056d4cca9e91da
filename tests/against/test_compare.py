"""Two sides compared, from results to the comparison."""

from __future__ import annotations

import pytest
from digests import digest_of, run_of
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.analyze.counting import host_alone
from npuperf.base.errors import UsageError
from npuperf.model.parts import Count

THRESHOLDS = load_thresholds()
SPANS = [1_000_000 + 1_000 * i for i in (3, 1, 4, 1, 5, 9, 2, 6)]


def side(matmul: int = 0, **workload: object):  # type: ignore[no-untyped-def]
    """Eight steps of one operator and waiting; each step ``matmul`` ns longer."""
    spans = [ns + matmul for ns in SPANS]
    total = sum(spans)
    parts = {("compute", "MatMul [8,8] FLOAT"): (total - 800_000, 80), ("host_wait", "x: y"): (800_000, 8)}
    return run_of(digest_of(parts, spans, types={"MatMul": [ns - 100_000 for ns in spans]}), **workload)


def test_a_slower_operator_is_named() -> None:
    found = compare_results([side()], [side(200_000)], THRESHOLDS)
    assert found.verdict == "worse"
    assert found.delta_ns == 200_000 == sum(p.delta_ns for p in found.waterfall)
    assert found.waterfall[0].key == "MatMul [8,8] FLOAT"
    assert found.interval_ns is not None and found.interval_ns[0] > 0
    assert "MatMul [8,8] FLOAT +200.00 us" in str(found.reason)
    assert str(found.reason).startswith("the step is 19.9 % longer (1.00 ms to 1.20 ms; ")


def test_against_itself_it_is_the_same_whatever_the_number_of_steps() -> None:
    one = run_of(digest_of({("compute", "A"): (100, 1)}, [100]))
    for run in (one, side()):
        found = compare_results([run], [run], THRESHOLDS)
        assert (found.verdict, found.delta_ns) == ("same", 0)
        assert str(found.reason) == "the steps are equally long (every step and every sum is identical)"


def test_two_steps_cannot_tell_and_what_would_is_said() -> None:
    old = run_of(digest_of({("compute", "A"): (100_000_000, 2)}, [50_000_000] * 2))
    new = run_of(digest_of({("compute", "A"): (140_000_000, 2)}, [70_000_000] * 2))
    found = compare_results([old], [new], THRESHOLDS)
    assert (found.verdict, found.delta_ns, found.samples) == ("cannot_tell", 20_000_000, (2, 2))
    assert "npuperf profile --for-compare" in str(found.reason)


def test_another_world_size_needs_leave() -> None:
    old, new = side(world_size=8), side(world_size=16)
    with pytest.raises(UsageError, match=r"(?s)world size: 8 against 16.*--allow-mismatch") as error:
        compare_results([old], [new], THRESHOLDS)
    assert error.value.exit_code == 2
    found = compare_results([old], [new], THRESHOLDS, allow_mismatch=True)
    assert str(found.reason).startswith("not of one workload (world size); ")
    assert found.workload == "different"


def test_a_lower_clock_is_told_before_anything_else() -> None:
    found = compare_results([side(frequency_mhz=(1800, 1800))], [side(90_000, frequency_mhz=(1500, 1800))], THRESHOLDS)
    assert found.parity[0].what == "AI Core frequency"
    assert (found.parity[0].old, found.parity[0].new) == ("1800 MHz", "1500-1800 MHz")
    assert str(found.reason).startswith("the AI Core clock of the new side is lower")


def test_without_digest_it_is_said_what_to_do() -> None:
    found = compare_results([replace(side(), digest=None)], [side()], THRESHOLDS)
    assert found.verdict == "cannot_tell"
    assert "analyze it anew" in str(found.reason)


def test_a_profile_without_shapes_is_compared_by_type() -> None:
    fine = {("compute", "MatMul [8,8] FLOAT"): (600, 6), ("compute", "MatMul [9,9] FLOAT"): (400, 2)}
    old = run_of(digest_of(fine, [1000], types={"MatMul": [1000]}))
    new = run_of(digest_of({("compute", "MatMul"): (1200, 8)}, [1200], types={"MatMul": [1200]}))
    found = compare_results([old], [new], THRESHOLDS)
    assert [(p.key, p.delta_ns, p.speed_ns) for p in found.waterfall] == [("MatMul", 200, 200)]
    assert "operators are compared by their type" in str(found.reason)


def test_two_sides_with_too_many_operators_are_compared_by_core() -> None:
    sides = [run_of(digest_of({("compute", "AIC"): (ns, 1)}, [ns], keyed_by="core")) for ns in (100, 130)]
    assert [p.key for p in compare_results(sides[:1], sides[1:], THRESHOLDS).waterfall] == ["AIC"]
    fine = run_of(digest_of({("compute", "Add"): (70, 1), ("compute", "Mul"): (30, 1)}, [100]))
    assert [p.key for p in compare_results([fine], sides[1:], THRESHOLDS).waterfall] == [None]


GPU = {"void cublas::gemm<float>(int)": "aten::mm", "void at::native::vectorized_elementwise_kernel<4>": "aten::add"}
NPU = {"MatMulV2 [8,8] FLOAT16": "aten::mm", "Add [8] FLOAT16": "aten::add"}


def test_a_gpu_and_an_npu_are_compared_by_torch_operator() -> None:
    old = run_of(digest_of({("compute", key): (500, 5) for key in GPU}, [1000], torch_ops=GPU), kineto=True)
    parts = {("compute", key): (700, 5) for key in NPU} | {("transfer", "dp"): (30, 1)}  # type: ignore[operator]
    found = compare_results([old], [run_of(digest_of(parts, [1430], torch_ops=NPU))], THRESHOLDS)  # type: ignore[arg-type]
    assert {p.key: p.delta_ns for p in found.waterfall} == {"aten::mm": 200, "aten::add": 200, None: 30}
    assert "compared by torch operators" in str(found.reason)
    assert "recorded with" in [d.what for d in found.parity]
    assert found.workload == "unknown"


def test_without_torch_operators_they_are_compared_by_what_kernels_do() -> None:
    old = run_of(digest_of({("compute", key): (500, 5) for key in GPU}, [1000]), kineto=True)
    new = run_of(digest_of({("compute", key): (700, 5) for key in NPU}, [1400]))
    found = compare_results([old], [new], THRESHOLDS)
    assert {p.key: p.delta_ns for p in found.waterfall} == {"matrix products": 200, "elementwise": 200}


def test_runs_of_a_side_are_one() -> None:
    """Steps of both runs count: the mean of 1000, 1300 and 1300 is 1200."""
    runs = [run_of(digest_of({("compute", "A"): (ns * n, n)}, [ns] * n)) for ns, n in ((1000, 1), (1300, 2))]
    found = compare_results(runs, [side()], THRESHOLDS, allow_mismatch=True)
    assert (found.old_step_ns, found.samples) == (1200, (3, 8))


def test_exchanging_the_sides_exchanges_the_verdict() -> None:
    forth, back = (compare_results([a], [b], THRESHOLDS) for a, b in ((side(), side(90_000)), (side(90_000), side())))
    assert (forth.verdict, back.verdict) == ("worse", "better")
    assert forth.interval_ns is not None and back.interval_ns is not None
    assert forth.interval_ns == (-back.interval_ns[1], -back.interval_ns[0])


def test_no_time_on_a_side_is_said() -> None:
    found = compare_results([run_of(digest_of({}, []))], [side()], THRESHOLDS)
    assert (found.verdict, found.delta_ns, found.old_step_ns) == ("cannot_tell", None, None)
    assert "no time of a device" in str(found.reason)


def test_ten_thousand_operators_take_no_time() -> None:
    """5,000 on each side, of which a third changed shapes; and never all pairs of them."""
    from time import process_time

    def big(shift: int) -> list[object]:
        keys = {("compute", f"Op{i % 700} [{i if i % 3 else i + shift}]"): (1_000 + i + shift, 8) for i in range(5_000)}
        return [run_of(digest_of(keys, SPANS))]  # type: ignore[arg-type]

    old, new = big(0), big(10_000)
    begin = process_time()
    compare_results(old, new, THRESHOLDS)  # type: ignore[arg-type]
    assert process_time() - begin < 5


def test_names_are_taken_for_the_types_that_they_end_with() -> None:
    """At Level0 no type is recorded; MatMulV2 of the other side is what both names end with."""
    names = {
        "aclnnAddmm_MatMulCommon_MatMulV2": (500, 1),
        "aclnnMm_MatMulCommon_MatMulV2": (400, 1),
        "Some_Own": (9, 1),
    }
    old = run_of(digest_of({("compute", key): cell for key, cell in names.items()}, [909]))
    fine = {("compute", "MatMulV2 [8] FLOAT"): (880, 2), ("compute", "Some_Own [8]"): (10, 1)}
    new = run_of(digest_of(fine, [890], types={"MatMulV2": [880], "Some_Own": [10]}))  # type: ignore[arg-type]
    found = compare_results([old], [new], THRESHOLDS)
    assert {p.key: p.delta_ns for p in found.waterfall} == {"MatMulV2": -20, "Some_Own": 1}


def test_operators_of_a_side_without_types_are_summed_by_type() -> None:
    from npuperf.against.shifts import operator_rows

    old = digest_of(
        {}, SPANS, types={"a_Conv_Mul": [30_000] * 8, "b_Mul": [20_000] * 8, "hcom_allReduce_": [9_000] * 8}
    )
    new = digest_of({}, SPANS, types={"Mul": [90_000] * 8, "hcom_allReduce": [9_000] * 8})
    rows, unchanged = operator_rows([old], [new], THRESHOLDS, by_ending=True)
    assert [(r.name, r.old_ns, r.new_ns) for r in rows] == [("Mul", 50_000, 90_000)]
    assert unchanged == 1


def test_a_recording_without_steps_is_not_compared_with_steps() -> None:
    whole = digest_of({("compute", "MatMul [8,8] FLOAT"): (90_000_000, 80)}, [90_000_000])
    found = compare_results([run_of(replace(whole, steps=[]))], [side()], THRESHOLDS)
    assert found.verdict == "cannot_tell"
    assert "one side has no steps" in str(found.reason)
    assert [(d.what, d.old, d.new) for d in found.parity if d.matters] == [("steps", "none", "8")]


@pytest.mark.parametrize(
    ("kernel", "does"),
    [
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_execute_kernel_cudnn", "convolution"),
        ("Conv2DBackpropFilter", "convolution"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "matrix products"),
        ("BatchMatMulV2", "matrix products"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(float const*)", "moving and casting data"),
        ("TransData", "moving and casting data"),
        ("void at::native::vectorized_elementwise_kernel<4, launch_clamp(at::TensorIteratorBase&)::{lambda()}",
         "elementwise"),
        ("FlashAttentionScore", "attention"),
        ("pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "attention"),
        ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float>", "random numbers"),
        ("ApplyAdamW", "optimizer"),
        ("LayerNormV4", "normalization"),
        ("KernelOfSomebody", "other kernels"),
    ],
)  # fmt: skip
def test_what_kernels_do_by_their_names(kernel: str, does: str) -> None:
    """The other side has a kernel that only its name tells about, too."""
    old = run_of(digest_of({("compute", kernel): (500, 5)}, [500], types={kernel: [500]}), kineto=True)
    found = compare_results([old], [run_of(digest_of({("compute", "Zzz"): (9, 1)}, [9]))], THRESHOLDS)
    assert does in {part.key for part in found.waterfall if part.old_ns}


def stepless(ns: int, counts: list[Count] | None = None):  # type: ignore[no-untyped-def]
    """One recording without steps; without time it has no device."""
    digest = digest_of({("compute", "A"): (ns, 1)} if ns else {}, [ns] if ns else [], counts=counts or ())
    return run_of(replace(digest, steps=[]))


def test_recordings_without_steps_are_no_steps() -> None:
    found = compare_results([stepless(50_000_000)], [stepless(70_000_000)], THRESHOLDS)
    assert (found.verdict, found.delta_ns, found.stepped) == ("cannot_tell", 20_000_000, (False, False))
    assert "no steps are recorded: all that one side recorded" in str(found.reason)
    assert "too few" not in str(found.reason)
    same = compare_results([stepless(50_000_000)], [stepless(50_000_000)], THRESHOLDS)
    assert str(same.reason) == "both recordings are equally long (every sum is identical)"


def test_counts_of_a_step_are_not_judged_against_those_of_a_recording() -> None:
    """Nine synchronizations in all may be fewer per step than two."""
    sync = Count(kind="sync", key="s", count=[2])
    steps = run_of(digest_of({("compute", "A"): (100, 1)}, [100], counts=[sync]))
    found = compare_results([steps], [stepless(900, [replace(sync, count=[9])])], THRESHOLDS)
    assert {(shift.what, shift.verdict) for shift in found.shifts} == {
        ("synchronizations", "cannot_tell"),
        ("synchronizations: s", "cannot_tell"),
    }


def test_operators_are_not_gone_where_no_device_is_recorded() -> None:
    found = compare_results([side()], [stepless(0)], THRESHOLDS)
    assert (found.verdict, found.delta_ns, found.waterfall) == ("cannot_tell", None, ())
    assert str(found.reason) == "the new side has no time of a device"


def test_equal_counts_say_nothing_of_time() -> None:
    """A run without a device and without steps has no length, whatever it counted, even against itself."""
    add = Count(kind="host_operator", key="aten::add", count=[4])
    alone = run_of(host_alone([], [], [add], []))
    found = compare_results([alone], [alone], THRESHOLDS)
    assert found.verdict == "cannot_tell"
    assert str(found.reason).startswith("no time of a device is recorded on either side, and no step of the host; ")
    assert "npuperf profile" in str(found.reason)


def on_host(*span_ns: int):  # type: ignore[no-untyped-def]
    """A run on a CPU: the same operators in each step, however long it is."""
    adds = [Count(kind="host_operator", key="aten::add", count=[4] * len(span_ns))]
    return run_of(host_alone([*range(len(span_ns))], [*span_ns], adds, []))


def test_without_a_device_the_steps_of_the_host_are_judged() -> None:
    """Equal counts, and steps of 19 ms against such of 893 ms: 47 times as long."""
    fast = on_host(*(19_000_000 + 10_000 * i for i in (3, 1, 4, 1, 5, 9, 2, 6)))
    slow = on_host(*(893_000_000 + 10_000 * i for i in (2, 7, 1, 8, 2, 8, 1, 8)))
    found = compare_results([fast], [slow], THRESHOLDS)
    assert (found.verdict, found.samples, found.waterfall, found.delta_ns) == ("worse", (8, 8), (), None)
    assert (found.old_median_ns, found.new_median_ns) == (19_035_000, 893_045_000)  # by hand
    assert "these are the host's steps: no time of a device is recorded" in str(found.reason)
    assert compare_results([slow], [fast], THRESHOLDS).verdict == "better"
    assert compare_results([fast], [fast], THRESHOLDS).verdict == "same"
    assert compare_results([fast], [on_host(893_000_000)], THRESHOLDS).verdict == "cannot_tell"


def test_the_hosts_steps_never_stand_against_a_devices() -> None:
    found = compare_results([side()], [on_host(*SPANS)], THRESHOLDS)
    assert (found.verdict, str(found.reason)) == ("cannot_tell", "the new side has no time of a device")


def test_where_only_one_side_has_steps_of_the_host_nothing_is_told() -> None:
    found = compare_results([on_host(*SPANS)], [run_of(host_alone([], [], [], []))], THRESHOLDS)
    assert found.verdict == "cannot_tell"
    assert str(found.reason).startswith("the new side has no steps; mark steps on both sides")


def test_in_other_work_nothing_replaces_anything() -> None:
    """Other shapes of one type are a replacement in the same work only."""
    old, new = (run_of(digest_of({("compute", f"A [{n}]"): (100, 2)}, [100], types={"A": [100]})) for n in (1, 2))
    allowed = compare_results([old], [new], THRESHOLDS, allow_mismatch=True)
    assert allowed.workload == "different"
    assert [part.instead_of for part in allowed.waterfall] == [(), ()]
    command = ("python", "train.py")
    certain = [replace(run, workload=replace(run.workload, command=command)) for run in (old, new)]
    (part,) = compare_results(certain[:1], certain[1:], THRESHOLDS).waterfall
    assert part.instead_of == ("A [1]",)


def test_steps_of_the_host_do_not_stand_against_those_of_the_device() -> None:
    """A result of before steps were the host's says nothing of that, and has steps between first kernels."""
    old, new = side(), side(200_000)
    assert old.digest is not None and old.digest.bounded_by == "device" and new.digest is not None
    new = replace(new, digest=replace(new.digest, bounded_by="host"))
    for one, other in ((old, new), (new, old)):
        found = compare_results([one], [other], THRESHOLDS)
        assert found.verdict == "cannot_tell" and found.interval_ns is None
        assert "as the host ran them" in str(found.reason) and "analyze the recording anew" in str(found.reason)
        assert "steps told by" in {difference.what for difference in found.parity}
    assert compare_results([new], [new], THRESHOLDS).verdict == "same"
    mixed = compare_results([old, new], [old], THRESHOLDS)
    assert "steps told by" not in {difference.what for difference in mixed.parity}
    again = compare_results([replace(old, digest=replace(new.digest, span_ns=SPANS))], [new], THRESHOLDS)
    assert again.verdict != "cannot_tell"

"""A step is the host's step where that is recorded: what lies before its first kernel and after its last is of it.

Every expectation is worked out by hand beside the data.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt, kernel_details
from small_programs import analyzed, answer

from npuperf.model.result import Device
from npuperf.show.formats import View, render

US = 1_000
MS = 1_000_000


def kernels(step: int, begin: int, count: int = 40, every: int = 50 * US) -> list[K]:
    """Kernels of 50 µs, each begun 8 µs after its launch returns: back to back unless they begin ``every`` so often."""
    return [K(begin + i * every, 50 * US, f"k{step}_{i}", launch=begin + i * every - 9 * US, launch_dur=US, step=step)
            for i in range(count)]  # fmt: skip


def device(root: Path, made: list[K], steps: dict[int, tuple[int, int]], host: tuple[H, ...] = ()) -> Device:
    (found,) = analyzed(ascend_pt(root, made, steps=steps, host=host)).devices
    for step in found.steps:
        p = step.partition
        assert p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns == p.span_ns
        assert p.host_wait_ns + p.launch_latency_ns + p.dependency_wait_ns + p.unattributed_ns == p.idle_ns
    assert found.judged is not None
    assert sum(s.partition.span_ns for s in found.steps if s.whole) == found.window.span_ns
    assert sum(b.ns for b in found.blame) == found.window.host_wait_ns
    assert sum(p.partition.span_ns for p in found.phases) == found.window.span_ns
    return found


def lengths(found: Device) -> list[int]:
    return [s.partition.span_ns for s in found.steps]


LOADING = H(
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", -900 * US, 700 * US, python=True, thread=10
)
LOGGING = H("train.py(7): log", 2_010 * US, 80 * US, python=True, thread=10)


def test_idle_time_before_the_first_kernel_and_after_the_last_is_of_the_step(tmp_path: Path) -> None:
    """The host's step lasts 3 ms: 0.9 ms before the first kernel, 2 ms of kernels, 0.1 ms after the last.

    Of the 0.9 ms 0.7 are loading; the first launch returns 8 µs before its kernel.
    """
    found = device(tmp_path, kernels(11, 0), {11: (-900 * US, 2_100 * US)}, (LOADING, LOGGING))
    (step,) = found.steps
    assert (step.start_ns, step.partition.span_ns, step.partition.idle_ns) == (0, 3 * MS, MS)
    assert step.partition.host_wait_ns == (900 - 8 + 100) * US
    causes = {b.name: b.ns for b in found.blame}
    assert causes[LOADING.name] == 700 * US and causes[LOGGING.name] == 80 * US
    assert found.partition.span_ns == found.partition.compute_ns == 2 * MS  # that of the device is what it was
    assert found.judged is not None and (found.judged.before_ns, found.judged.after_ns) == (0, 0)
    assert (found.judged.host_before_ns, found.judged.host_after_ns) == (900 * US, 100 * US)


def test_kernels_and_operators_are_where_the_step_is(tmp_path: Path) -> None:
    """Their places count from the step's begin, as all others do: the first kernel begins 0.9 ms after it."""
    result = analyzed(ascend_pt(tmp_path, kernels(11, 0), {11: (-900 * US, 2_100 * US)}, host=(LOADING, LOGGING)))
    assert min(kernel.start_ns for kernel in result.kernels) == 900 * US  # of kernels as long the first come first
    assert min(operator.first_ns for operator in result.operators) == 900 * US
    assert max(operator.last_ns for operator in result.operators) == (900 + 39 * 50) * US


def test_data_loading_before_the_first_kernel_of_an_only_step_is_a_problem(tmp_path: Path) -> None:
    """The step is 3 ms, loading 0.7 of it; without it the step is shorter by exactly that."""
    folder = ascend_pt(tmp_path, kernels(11, 0), {11: (-900 * US, 2_100 * US)}, host=(LOADING, LOGGING))
    result = analyzed(folder, what_if=("host:data_loading*0", "host*0"))
    found = answer(result, "data_loading")
    assert found.status == "problem" and found.gain_ns_per_step == (700 * US, 700 * US)
    less, none = (w for w in result.what_if if w.asked)
    assert less.span_ns == 2_300 * US
    # without the host's time what is left begins with the launch of the first kernel, and ends with the last kernel
    assert none.span_ns is not None and 2 * MS <= none.span_ns <= 2 * MS + 9 * US
    assert "3.00 ms/step" in str(render(result, "text", View(width=200)))


def test_preprocessing_longer_than_the_kernels_makes_the_host_the_limit(tmp_path: Path) -> None:
    """8 ms of the host's work, then 2 ms of kernels launched one by one: a tenth less of the host saves 0.8 ms."""
    work = H("train.py(3): preprocess", -8 * MS, 7_900 * US, python=True, thread=10)
    result = analyze_path(ascend_pt(tmp_path, kernels(11, 0), {11: (-8 * MS, 2 * MS)}, host=(work,)))
    verdict = result.verdict
    assert verdict.bound == "host" and verdict.elasticity is not None
    assert verdict.elasticity.host == pytest.approx(0.8, abs=0.01)
    assert answer(result, "host_pauses").status == "problem"


def test_a_step_lasts_until_the_host_begins_the_next_one(tmp_path: Path) -> None:
    """Two steps of 3 ms for the host, 2 ms of kernels in each: no work of the device crosses their border."""
    two = [*kernels(11, 0), *kernels(12, 3 * MS)]
    found = device(tmp_path, two, {11: (-900 * US, 2_100 * US), 12: (2_100 * US, 5_100 * US)})
    assert [(s.start_ns, s.partition.span_ns) for s in found.steps] == [(0, 3 * MS), (3 * MS, 3 * MS)]
    assert [s.partition.idle_ns for s in found.steps] == [MS, MS]


def test_what_runs_past_the_host_s_end_is_of_the_step_that_launched_it(tmp_path: Path) -> None:
    """The host launches 2 ms of kernels in 0.4 ms, step after step: the next one begins where the device is done.

    Step 12 is launched while step 11 runs, step 13 only 0.5 ms after the end of 12, which the host spent in step 13.
    """

    def ahead(step: int, begin: int, launched: int) -> list[K]:
        return [K(begin + i * 50 * US, 50 * US, f"k{step}_{i}", launch=launched + i * 10 * US, launch_dur=US, step=step)
                for i in range(40)]  # fmt: skip

    made = [*ahead(11, 0, -9 * US), *ahead(12, 2 * MS, 450 * US), *ahead(13, 4_500 * US, 4_491 * US)]
    steps = {11: (-100 * US, 400 * US), 12: (400 * US, 900 * US), 13: (900 * US, 4_900 * US)}
    found = device(tmp_path, made, steps)
    assert lengths(found) == [2_100 * US, 2_000 * US, 2_500 * US]
    assert [s.partition.idle_ns for s in found.steps] == [100 * US, 0, 500 * US]
    assert [s.partition.host_wait_ns for s in found.steps] == [92 * US, 0, 492 * US]


def test_steps_that_overlap_on_the_device_part_at_the_first_kernel(tmp_path: Path) -> None:
    """A copy of step 11 runs on until 0.3 ms after step 12 has begun on another stream."""
    late = K(1_900 * US, 500 * US, "hcom_allReduce_1", "hcom_allReduce_", "HCCL", stream=7, launch=1_800 * US, step=11)
    made = [*kernels(11, 0), late, *kernels(12, 2_100 * US)]
    found = device(tmp_path, made, {11: (-50 * US, 2_050 * US), 12: (2_050 * US, 4_150 * US)})
    assert lengths(found) == [2_150 * US, 2_050 * US]


def test_without_the_host_s_ranges_steps_are_those_of_the_device(tmp_path: Path) -> None:
    made = [*kernels(11, 0), *kernels(12, 3 * MS)]
    (found,) = analyze_path(kernel_details(tmp_path / "kernel_details.csv", made)).devices
    assert lengths(found) == [3 * MS, 2 * MS]


def test_a_clock_that_the_device_does_not_share_tells_nothing(tmp_path: Path) -> None:
    """The ranges are a day off, and no launch is known: steps are those of the device alone."""
    day = 86_400_000 * MS
    made = [K(k.start, k.dur, k.name, step=k.step) for k in (*kernels(11, 0), *kernels(12, 3 * MS))]
    (found,) = analyze_path(ascend_pt(tmp_path, made, {11: (-day, -day + MS), 12: (-day + MS, -day + 2 * MS)})).devices
    assert lengths(found) == [3 * MS, 2 * MS]


def test_one_step_of_several(tmp_path: Path) -> None:
    two = [*kernels(11, 0), *kernels(12, 3 * MS)]
    folder = ascend_pt(tmp_path, two, {11: (-900 * US, 2_100 * US), 12: (2_100 * US, 5_100 * US)})
    result = analyzed(folder, step=12, what_if=("host*0.5",))
    (found,) = result.devices
    assert [(s.start_ns, s.partition.span_ns) for s in found.steps] == [(3 * MS, 3 * MS)]
    assert found.window.span_ns == sum(p.partition.span_ns for p in found.phases) == 3 * MS
    (less,) = (w for w in result.what_if if w.asked)
    # In half of the time the host is in step 12 after 1.5 ms, and launches its first kernel 0.45 ms later: before the
    # device is done with step 11, at 2.45 ms. So the step begins there, and is its kernels, and a gap between two.
    assert less.span_ns is not None and 2 * MS <= less.span_ns <= 2 * MS + US


def test_a_baseline_whose_steps_are_the_device_s_is_not_held_against_the_host_s(tmp_path: Path) -> None:
    """Eight steps of the same kernels: the one recording has the host's ranges, the other one is a table alone."""
    made = [k for n in range(8) for k in kernels(11 + n, n * 3 * MS)]
    ranges = {11 + n: (n * 3 * MS - 900 * US, n * 3 * MS + 2_100 * US) for n in range(8)}
    new = ascend_pt(tmp_path / "new", made, ranges)
    table = kernel_details(tmp_path / "old" / "kernel_details.csv", made)
    for old, verdict, status in ((new, "same", "pass"), (table, "cannot_tell", "cannot_tell")):
        result = analyzed(new, baseline=(str(old),), fail_on=("step_time>+5%",))
        assert result.comparison is not None and result.comparison.verdict == verdict
        assert [gate.status for gate in result.gates] == [status]
    assert "as the host ran them" in str(result.gates[0].reason)


def test_a_step_that_gives_the_device_nothing_to_do_is_a_step(tmp_path: Path) -> None:
    """Step 12 saves a checkpoint for 5 ms: step 11 has ended before, at 2.1 ms, and is no longer for it."""
    saving = H("train.py(9): save", 2_150 * US, 4_900 * US, python=True, thread=10)
    made = [*kernels(11, 0), *kernels(13, 8 * MS)]
    steps = {11: (-900 * US, 2_100 * US), 12: (2_100 * US, 7_100 * US), 13: (7_100 * US, 10_100 * US)}
    found = device(tmp_path, made, steps, (saving,))
    assert [(s.step, s.start_ns, s.partition.span_ns) for s in found.steps] == [
        (11, 0, 3 * MS), (12, 3 * MS, 5 * MS), (13, 8 * MS, 3 * MS)
    ]  # fmt: skip
    assert [s.partition.idle_ns for s in found.steps] == [MS, 5 * MS, MS]
    assert {b.name: b.ns for b in found.blame}[saving.name] == 4_900 * US


def test_a_step_without_kernels_begins_when_the_device_is_done_with_those_before(tmp_path: Path) -> None:
    """The device works for step 11 until 2 ms: of step 12, which the host runs from 0.4 to 3 ms, it idles 1 ms.

    Step 13 lasts from 3 to 3.1 ms for the host and gives nothing to do either; step 14 has kernels from 3.1 ms on.
    """
    ahead = [K(i * 50 * US, 50 * US, f"k11_{i}", launch=-9 * US + i * 10 * US, launch_dur=US, step=11)
             for i in range(40)]  # fmt: skip
    steps = {11: (-100 * US, 400 * US), 12: (400 * US, 3 * MS), 13: (3 * MS, 3_080 * US), 14: (3_080 * US, 5_200 * US)}
    found = device(tmp_path, [*ahead, *kernels(14, 3_100 * US)], steps)
    assert [(s.step, s.start_ns, s.partition.span_ns) for s in found.steps] == [
        (11, 0, 2_100 * US), (12, 2_100 * US, MS), (13, 3_100 * US, 80 * US), (14, 3_180 * US, 2_120 * US)
    ]  # fmt: skip


def test_a_step_that_the_device_never_waits_for_is_none(tmp_path: Path) -> None:
    """The host runs through step 12 while the device works for step 11: nothing of the device's time is that step's."""
    ahead = [K(i * 50 * US, 50 * US, f"k11_{i}", launch=-9 * US + i * 10 * US, launch_dur=US, step=11)
             for i in range(40)]  # fmt: skip
    steps = {11: (-100 * US, 400 * US), 12: (400 * US, 900 * US), 13: (900 * US, 4_000 * US)}
    found = device(tmp_path, [*ahead, *kernels(13, 2 * MS)], steps)
    assert [s.step for s in found.steps] == [11, 13]


def test_steps_before_the_first_and_after_the_last_with_kernels_are_not_judged(tmp_path: Path) -> None:
    steps = {10: (-2 * MS, -900 * US), 11: (-900 * US, 2_100 * US), 12: (2_100 * US, 2_105 * US)}
    found = device(tmp_path, kernels(11, 0), steps)
    assert [(s.step, s.partition.span_ns) for s in found.steps] == [(11, 3 * MS)]

"""Which steps are shown exactly, and why; of recordings without steps, what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from build import K, analyze_path, ascend_pt
from msgspec import structs

from npuperf.base.messages import say
from npuperf.model.result import Device, OddStep, Spread, TypicalStep
from npuperf.show.draw import stretches
from npuperf.show.lanes import allot


def device(tmp_path: Path, lengths: list[int]) -> Device:
    """Steps of these lengths, each with a kernel at its start, and one at the end of the last."""
    starts = np.cumsum([0, *lengths]).tolist()
    kernels = [K(at, 10, step=i) for i, at in enumerate(starts[:-1])]
    kernels.append(K(starts[-1] - 10, 10, step=len(lengths) - 1))
    return analyze_path(ascend_pt(tmp_path, sorted(kernels, key=lambda k: k.start))).devices[0]


def chosen(report: Device) -> dict[int | None, tuple[int, int, str]]:
    window = (report.origin_ns, report.origin_ns + report.partition.span_ns)
    found = stretches(report, window, np.empty(0, np.int64), 100, None)
    return {s.step: (s.start - report.origin_ns, s.end - report.origin_ns, str(s.why)) for s in found}


def test_typical_longest_and_shortest_step_are_shown_in_order(tmp_path: Path) -> None:
    report = structs.replace(device(tmp_path, [1000, 1010, 1900, 1005, 900]), typical_step=None)
    assert chosen(report) == {
        2: (2010, 3910, "the longest step"),
        3: (3910, 4915, "a typical step"),
        4: (4915, 5815, "the shortest step"),
    }


def test_steps_that_are_alike_are_shown_once(tmp_path: Path) -> None:
    found = chosen(device(tmp_path, [1000, 1000]))
    assert [why for _, _, why in found.values()] == ["the first of two steps that take the same time"]


def test_of_two_steps_neither_is_typical_and_of_equal_ones_none_is_the_longest(tmp_path: Path) -> None:
    two = chosen(structs.replace(device(tmp_path / "two", [1000, 1200]), typical_step=None))
    assert [why for _, _, why in two.values()] == ["the shortest step", "the longest step"]
    three = chosen(device(tmp_path / "three", [1000, 1000, 1000]))
    assert [why for _, _, why in three.values()] == ["a typical step"]


def test_a_whole_step_among_parts_of_others_is_the_only_whole_one(tmp_path: Path) -> None:
    report = device(tmp_path, [1000, 1200])
    first, second = report.steps
    part = structs.replace(report, steps=[structs.replace(first, whole=False), second])
    assert [why for _, _, why in chosen(part).values()] == ["the only whole step"]


def test_an_odd_step_is_never_the_typical_one(tmp_path: Path) -> None:
    report = device(tmp_path, [1000, 1500, 2000])
    spread = Spread(min_ns=1, median_ns=1, max_ns=1)
    odd = [OddStep(step=1, span_ns=1500, why=say("{text}", text="twice as wide"))]
    report = structs.replace(report, typical_step=TypicalStep(steps=2, length=spread, phases=[], odd=odd))
    assert {step: why for step, (_, _, why) in chosen(report).items()} == {
        0: "a typical step, the shortest step",
        1: "unlike the others: twice as wide",
        2: "the longest step",
    }


def test_of_a_step_that_was_asked_for_all_is_shown(tmp_path: Path) -> None:
    report = device(tmp_path, [1000, 1500])
    (only,) = stretches(report, (7, 9), np.empty(0, np.int64), 1, 1)
    assert (only.start, only.end, only.step) == (7, 9, 1)


def test_without_steps_everything_is_shown_if_it_fits(tmp_path: Path) -> None:
    kernels = [K(at, 10) for at in range(0, 1000, 100)]
    report = analyze_path(ascend_pt(tmp_path, kernels)).devices[0]
    starts = report.origin_ns + np.arange(0, 1000, 100)
    window = report.origin_ns, report.origin_ns + 910
    (whole,) = stretches(report, window, starts, 10, None)
    assert (whole.start, whole.end, str(whole.why)) == (*window, "all that was recorded")
    (part,) = stretches(structs.replace(report, phases=[]), window, starts, 4, None)
    assert (part.start, part.end) == (window[0], window[0] + 400)  # the first four
    assert str(part.why) == "the beginning of the recording"


def test_what_one_does_not_need_the_others_get() -> None:
    assert allot([10, 2, 10], 12) == [5, 2, 5]
    assert allot([3, 2], 12) == [3, 2]
    assert allot([], 12) == []
    assert sum(allot([100, 100, 100], 100)) == 100

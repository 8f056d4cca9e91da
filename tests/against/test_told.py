"""The sentence under a comparison's verdict: which parts it names, and what it says where means and medians differ."""

from __future__ import annotations

import pytest
from comparisons import part
from digests import digest_of, run_of

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results, part_sentence
from npuperf.model.comparison import Comparison, WaterfallPart

USUAL = [1_000_000 + 1_000 * i for i in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (part("compute", "Add [8]", 100, 300), "Add [8] +200 ns"),
        (part("compute", "Add [8]", 0, 300, change="added"), "Add [8] is new +300 ns"),
        (part("compute", "Add [8]", 300, 0, change="removed"), "Add [8] is gone -300 ns"),
        (part("compute", None, 300, 400), "compute +100 ns"),
        (part("transfer", "dp", 300, 400), "transfer (dp) +100 ns"),
        (part("host_wait", "sync: aten::item", 0, 5, change="added"), "waiting for the host (aten::item) is new +5 ns"),
        (part("host_wait", "unrecorded", 5, 6), "waiting for the host (unrecorded) +1 ns"),
        (part("launch_latency", None, 5, 6), "launch latency +1 ns"),
        (part("compute", "F", 9, 5, instead_of=("A", "B")), "F instead of A, B -4 ns"),
        (part("compute", "F", 9, 5, instead_of=tuple("ABCDE")), "F instead of A, B, C, and 2 more -4 ns"),
    ],
)
def test_a_part_in_a_few_words(told: WaterfallPart, expected: str) -> None:
    assert str(part_sentence(told)) == expected


def compared(old: list[int], new: list[int]) -> Comparison:
    """Two sides that consist of one operator."""
    sides = [run_of(digest_of({("compute", "A"): (sum(spans), len(spans))}, spans)) for spans in (old, new)]
    return compare_results([sides[0]], [sides[1]], load_thresholds())


def test_a_single_slow_step_moves_the_mean_and_not_the_verdict() -> None:
    """Ten steps became 0.1 ms longer, and one that took 3 ms more is as the others now: the mean went down."""
    old, new = [*USUAL[:-1], 4_000_000], [ns + 100_000 for ns in USUAL]
    delta = round(sum(new) / 11) - round(sum(old) / 11)
    assert delta == -172_273
    there, back = compared(old, new), compared(new, old)
    assert (there.verdict, there.delta_ns, back.verdict, back.delta_ns) == ("worse", delta, "better", -delta)
    assert str(there.reason).endswith("; a few steps are of other length: the mean step changed by -172.27 us")
    assert str(back.reason).endswith("; a few steps are of other length: the mean step changed by +172.27 us")


def test_equal_means_are_told_as_such() -> None:
    new = [ns + 100_000 for ns in USUAL]
    old = [*USUAL[:-1], USUAL[-1] + 100_000 * len(USUAL)]
    for verdict, found in (("worse", compared(old, new)), ("better", compared(new, old))):
        assert (found.verdict, found.delta_ns) == (verdict, 0)
        assert str(found.reason).endswith("; a few steps are of other length: the mean step changed by 0 ns")


def test_parts_that_go_the_way_of_the_verdict_are_named() -> None:
    found = compared(USUAL, [ns + 100_000 for ns in USUAL])
    assert str(found.reason).endswith("; of the mean step: A +100.00 us")

"""The waterfall adds up to the nanosecond, by count and by speed, and is negated with the sides exchanged."""

from __future__ import annotations

from fractions import Fraction

import pytest
from digests import Parts, digest_of
from hypothesis import given
from hypothesis import strategies as st

from npuperf.against.waterfall import Cell, Sums, mean_ns, parts_of, rounded, side_by_side, sum_runs, type_of
from npuperf.model.comparison import WaterfallPart

#: On a busy machine an example may take long.

KEYS = st.tuples(st.sampled_from(["compute", "host_wait", "wait"]), st.sampled_from(["A", "B", "C", "D", None]))
CELLS = st.builds(Cell, ns=st.integers(0, 10**12), count=st.integers(0, 50))
SIDES = st.builds(
    Sums,
    windows=st.integers(1, 9),
    cells=st.dictionaries(KEYS, CELLS, max_size=8),
    types=st.just(frozenset()),
    keyed_by=st.just("shapes"),
)


def fall(old: Sums, new: Sums) -> tuple[WaterfallPart, ...]:
    return parts_of(side_by_side(old, new))


def sums(parts: Parts, windows: int) -> Sums:
    return sum_runs([digest_of(parts, [0] * windows)])


def half_away(value: Fraction) -> int:
    below = abs(value).__floor__() + (abs(value) % 1 >= Fraction(1, 2))
    return -below if value < 0 else below


@given(SIDES, SIDES)
def test_it_adds_up(old: Sums, new: Sums) -> None:
    parts = fall(old, new)
    lengths = [half_away(Fraction(side.total_ns, side.windows)) for side in (old, new)]
    assert [sum(p.old_ns for p in parts), sum(p.new_ns for p in parts)] == lengths
    assert sum(p.delta_ns for p in parts) == lengths[1] - lengths[0]
    assert all(p.count_ns + p.speed_ns == p.delta_ns == p.new_ns - p.old_ns for p in parts)


@given(SIDES)
def test_no_row_is_off_by_a_nanosecond(side: Sums) -> None:
    for row, ns in mean_ns(side).items():
        assert abs(ns - Fraction(side.cells[row].ns, side.windows)) < 1


@given(SIDES, SIDES)
def test_with_the_sides_exchanged_every_row_is_negated(old: Sums, new: Sums) -> None:
    there = {(p.part, p.key): (p.delta_ns, p.count_ns, p.speed_ns) for p in fall(old, new)}
    back = {(p.part, p.key): (-p.delta_ns, -p.count_ns, -p.speed_ns) for p in fall(new, old)}
    assert there == back


@given(SIDES)
def test_against_itself_nothing_changed(side: Sums) -> None:
    assert {(p.delta_ns, p.count_ns, p.speed_ns, p.change) for p in fall(side, side)} <= {(0, 0, 0, "same")}


@given(SIDES, SIDES)
def test_count_and_speed_are_what_the_formula_says(old: Sums, new: Sums) -> None:
    """The formula with means and counts as fractions, one row at a time."""
    for p in fall(old, new):
        counts = [side.cells.get((p.part, p.key), Cell(0, 0)).count for side in (old, new)]
        n, m = Fraction(counts[0], old.windows), Fraction(counts[1], new.windows)
        absent = [(p.part, p.key) not in side.cells or (ns, c) == (0, 0)
                  for side, ns, c in ((old, p.old_ns, n), (new, p.new_ns, m))]  # fmt: skip
        if (n == 0 and not absent[0]) or (m == 0 and not absent[1]) or n == m == 0:
            assert p.count_ns == 0
            continue
        t = p.old_ns / n if n else p.new_ns / m
        u = p.new_ns / m if m else t
        assert p.count_ns == half_away((m - n) * (t + u) / 2)
        assert abs(p.speed_ns - (u - t) * (m + n) / 2) <= Fraction(1, 2)


def test_a_slower_operator_and_more_of_another() -> None:
    """Two steps: A 10 times, 100 ns then 130 ns; B 4 then 6 times at 50 ns: +300 by speed, +100 by count."""
    old = sums({("compute", "A"): (2_000, 20), ("compute", "B"): (400, 8)}, 2)
    new = sums({("compute", "A"): (2_600, 20), ("compute", "B"): (600, 12)}, 2)
    rows = [(p.key, p.delta_ns, p.count_ns, p.speed_ns, p.old_count, p.new_count) for p in fall(old, new)]
    assert rows == [("A", 300, 0, 300, 10.0, 10.0), ("B", 100, 100, 0, 4.0, 6.0)]


def test_what_one_side_lacks_is_all_by_count() -> None:
    (part,) = fall(sums({("compute", "A"): (700, 3)}, 2), sums({}, 2))
    assert (part.change, part.delta_ns, part.count_ns, part.speed_ns) == ("removed", -350, -350, 0)


def test_the_largest_difference_is_first_and_what_did_not_change_last() -> None:
    old = sums({("compute", "A"): (100, 1), ("wait", None): (500, 1), ("other", "x"): (7, 1)}, 1)
    new = sums({("compute", "A"): (160, 1), ("wait", None): (300, 1), ("other", "x"): (7, 1)}, 1)
    assert [(p.part, p.delta_ns) for p in fall(old, new)] == [("wait", -200), ("compute", 60), ("other", 0)]


@pytest.mark.parametrize(("above", "below", "expected"), [(5, 2, 3), (-5, 2, -3), (4, 3, 1), (-4, 3, -1), (0, 7, 0)])
def test_halves_are_rounded_away_from_zero(above: int, below: int, expected: int) -> None:
    assert rounded(above, below) == expected


def test_several_runs_are_one_recording() -> None:
    runs = [digest_of({("compute", "A"): (300, 3)}, [100] * 3), digest_of({("compute", "A"): (500, 2)}, [250] * 2)]
    summed = sum_runs(runs)
    assert (summed.windows, summed.cells) == (5, {("compute", "A"): Cell(800, 5)})


def test_runs_of_one_side_are_folded_to_the_coarsest_keys() -> None:
    fine = digest_of({("compute", "Add [2] FLOAT"): (10, 1), ("compute", "Add [3] FLOAT"): (20, 1)}, [30],
                     types={"Add": [30]})  # fmt: skip
    coarse = digest_of({("compute", "Add"): (70, 2)}, [70], types={"Add": [70]}, keyed_by="type")
    assert sum_runs([fine, coarse]).cells == {("compute", "Add"): Cell(100, 4)}


def test_the_type_of_a_key_may_have_spaces() -> None:
    types = frozenset({"void at::native::copy<float, 4>", "Add"})
    assert type_of("void at::native::copy<float, 4> [2,3] FLOAT", types) == "void at::native::copy<float, 4>"
    assert type_of("Add FLOAT", types) == "Add"
    assert type_of("Mul [2,3;4] FLOAT", types) == "Mul"

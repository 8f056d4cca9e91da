"""Operators in place of others are one row each, whichever side is the new one."""

from __future__ import annotations

from digests import Parts, digest_of
from hypothesis import given
from hypothesis import strategies as st

from npuperf.against.waterfall import Fallen, folded, parts_of, side_by_side, sum_runs
from npuperf.model.comparison import WaterfallPart

STEPS = 2
#: On a busy machine an example may take long.


def fall(old: dict[str, tuple[int, int]], new: dict[str, tuple[int, int]], **ops: str) -> tuple[WaterfallPart, ...]:
    """Operators with ns and count per step."""
    sides = [sum_runs([digest_of(compute(side), [0] * STEPS, torch_ops=ops)]) for side in (old, new)]
    return parts_of(folded(side_by_side(*sides), frozenset()))


def compute(operators: dict[str, tuple[int, int]]) -> Parts:
    return {("compute", key): (ns * STEPS, count * STEPS) for key, (ns, count) in operators.items()}


def identity(part: WaterfallPart) -> frozenset[str]:
    return frozenset(part.instead_of + part.replaced_by) or frozenset([part.key or ""])


BEFORE = {
    "Pow [8]": (120, 12),
    "Mean [8]": (240, 12),
    "Rsqrt [1]": (60, 12),
    "Mul [8]": (480, 24),
    "MatMul [8]": (900, 9),
}


def test_one_for_several() -> None:
    """24 multiplications go with 12 of each other: the fused operator takes 600 instead of 900 ns per step."""
    parts = fall(BEFORE, {"RmsNorm [8]": (600, 12), "MatMul [8]": (900, 9)})
    first = parts[0]
    assert (first.key, first.delta_ns, first.old_ns, first.new_ns) == ("RmsNorm [8]", -300, 900, 600)
    assert set(first.instead_of) == {"Pow [8]", "Mean [8]", "Rsqrt [1]", "Mul [8]"}
    assert first.replaced_by == ("RmsNorm [8]",)
    assert (first.old_count, first.new_count) == (60.0, 12.0)
    # by count: (12 - 60) * (900/60 + 600/12) / 2
    assert (first.count_ns, first.speed_ns) == (-1560, 1260)
    assert [(p.key, p.delta_ns) for p in parts[1:]] == [("MatMul [8]", 0)]


def test_uses_that_are_left_keep_a_row_of_their_own() -> None:
    """Of ten casts and ten additions four of each are fused away; those that are left run as fast as before."""
    parts = fall({"Cast [8]": (1000, 10), "Add [8]": (2000, 10)},
                 {"Cast [8]": (600, 6), "Add [8]": (1200, 6), "CastAdd [8]": (700, 4)})  # fmt: skip
    assert [(p.key, p.delta_ns) for p in parts] == [("CastAdd [8]", -500), ("Add [8]", 0), ("Cast [8]", 0)]
    assert set(parts[0].instead_of) == {"Cast [8]", "Add [8]"}
    assert (parts[0].old_ns, parts[0].new_ns, parts[0].old_count) == (1200, 700, 8.0)


def test_other_shapes_of_a_type() -> None:
    """Twice the batch: nothing is launched more often, all is speed."""
    (part,) = fall({"MatMul [8,4]": (800, 4), "MatMul [8,2]": (200, 2)},
                   {"MatMul [16,4]": (1500, 4), "MatMul [16,2]": (390, 2)})  # fmt: skip
    assert (part.key, part.delta_ns, part.count_ns, part.speed_ns) == ("MatMul", 890, 0, 890)
    assert set(part.instead_of) == {"MatMul [8,4]", "MatMul [8,2]"}


def test_one_for_one_of_another_name() -> None:
    parts = fall({"MatMulV2 [8]": (800, 4)}, {"MatMulV3 [8]": (700, 4)})
    assert [(p.key, p.instead_of, p.delta_ns) for p in parts] == [("MatMulV3 [8]", ("MatMulV2 [8]",), -100)]


def test_what_does_not_belong_together_stays_apart() -> None:
    """As often, but a thousand times as long; and what is new without anything being gone."""
    assert len(fall({"Cast [8]": (10, 4)}, {"MatMul [8]": (10_000, 4)})) == 2
    assert len(fall({"Cast [8]": (10, 4)}, {"MatMul [8]": (10, 5)})) == 2
    (new,) = [p for p in fall({"A": (50, 4)}, {"A": (50, 4), "B": (70, 4)}) if p.delta_ns]
    assert (new.key, new.change, new.instead_of) == ("B", "added", ())


def test_fewer_uses_alone_replace_nothing() -> None:
    assert all(not p.instead_of for p in fall({"A": (50, 5), "B": (60, 6)}, {"A": (40, 4), "B": (70, 7)}))


def test_what_is_fused_on_one_line_is_told_apart_from_another() -> None:
    def at(line: str, rows: list[Fallen]) -> list[Fallen]:
        from msgspec.structs import replace

        return [replace(row, where="a.py:1" if (row.row[1] or "").startswith("A") else line) for row in rows]

    old = sum_runs([digest_of(compute({"A1": (10, 3), "A2": (10, 3), "B1": (20, 3), "B2": (20, 3)}), [0] * STEPS)])
    new = sum_runs([digest_of(compute({"AF": (15, 3), "BF": (30, 3)}), [0] * STEPS)])
    apart = parts_of(folded(at("b.py:9", side_by_side(old, new)), frozenset()))
    assert {p.key: set(p.instead_of) for p in apart} == {"AF": {"A1", "A2"}, "BF": {"B1", "B2"}}
    together = parts_of(folded(side_by_side(old, new), frozenset()))
    assert [set(p.instead_of) for p in together] == [{"A1", "A2", "B1", "B2"}]


OPERATORS = st.dictionaries(
    st.sampled_from(["A [1]", "A [2]", "B [1]", "C", "D", "E [3]", "F"]),
    st.tuples(st.integers(0, 1000), st.integers(0, 4)),
    max_size=7,
)


@given(OPERATORS, OPERATORS)
def test_it_still_adds_up_and_is_negated_with_the_sides_exchanged(
    old: dict[str, tuple[int, int]], new: dict[str, tuple[int, int]]
) -> None:
    parts, back = fall(old, new), fall(new, old)
    assert sum(p.old_ns for p in parts) == sum(ns for ns, _ in old.values())
    assert sum(p.new_ns for p in parts) == sum(ns for ns, _ in new.values())
    assert abs(sum(p.old_count for p in parts) - sum(n for _, n in old.values())) < 1e-9
    assert all(p.count_ns + p.speed_ns == p.delta_ns == p.new_ns - p.old_ns for p in parts)
    forth = sorted((sorted(identity(p)), p.delta_ns, p.count_ns, p.speed_ns) for p in parts)
    assert forth == sorted((sorted(identity(p)), -p.delta_ns, -p.count_ns, -p.speed_ns) for p in back)
    assert len({p.key for p in parts}) == len(parts)


def test_another_stage_of_a_pipeline_replaces_nothing() -> None:
    """As often, and no line of code: too many on both sides, too many in all, and too much longer."""
    some = {f"A{n}": (100, 1) for n in range(5)}
    assert len(fall(some, {f"B{n}": (100, 1) for n in range(4)})) == 9
    assert len(fall({"A": (100, 1)}, {f"B{n}": (30, 1) for n in range(13)})) == 14
    assert len(fall({"A": (100, 1)}, {"B": (300, 1), "C": (300, 1)})) == 3
    assert len(fall({"A": (100, 1)}, {"B": (200, 1), "C": (200, 1)})) == 1


def test_what_is_there_more_often_is_added_only_as_far_as_it_may_be_one_replacement() -> None:
    """Two for one; with what is there twice as often it would be six times as long."""
    parts = fall({"A": (100, 1)}, {"B": (200, 1), "C": (200, 1), "D": (200, 2)})
    assert sorted(p.key or "" for p in parts) == ["B", "D"] and len(parts) == 2
    assert [set(p.replaced_by) for p in parts if p.instead_of] == [{"B", "C"}]

"""Bars, sparklines and meters, and what is saved in words: by hand, and by what must hold for all of them."""

from __future__ import annotations

import random

import pytest

from npuperf.show.words import any_of, grouped, heights, in_letters, level, meter, saving, spark, thinned, widths


def test_widths_by_hand() -> None:
    # 10 places for 3 : 3 : 1 are 4.28, 4.28 and 1.42: the last has the largest rest.
    assert widths([3, 3, 1], 10) == [4, 4, 2]
    assert widths([1, 1, 1], 2) == [1, 1, 0]  # of equal rests the first ones
    assert widths([999, 1], 10) == [10, 0]
    assert widths([0, 5, 0], 7) == [0, 7, 0]
    assert widths([], 5) == [] and widths([0, 0], 5) == [0, 0] and widths([1, 2], 0) == [0, 0]
    assert widths([10**18, 10**18 + 1], 3) == [1, 2]  # exact where floats are not


def test_widths_are_all_of_the_room_and_off_by_less_than_one() -> None:
    rolled = random.Random(19)
    for _ in range(500):
        sizes = [rolled.randrange(0, 10 ** rolled.randrange(1, 12)) for _ in range(rolled.randrange(1, 9))]
        room = rolled.randrange(1, 200)
        places = widths(sizes, room)
        if sum(sizes):
            assert sum(places) == room
            assert all(abs(p - s * room / sum(sizes)) < 1 for p, s in zip(places, sizes, strict=True))


def test_letters_by_hand() -> None:
    assert in_letters([("C", 50), ("M", 30), ("H", 20)], 10) == "CCCCCMMMHH"
    assert in_letters([("C", 1), ("H", -5), (" ", 1)], 4) == "CC  "


def test_meters_by_hand() -> None:
    assert [meter(part, 4) for part in (0.0, 0.124, 0.125, 0.5, 1.0)] == ["░░░░", "░░░░", "█░░░", "██░░", "████"]
    assert meter(-0.3, 2) == "░░" and meter(1.7, 2) == "██" and meter(None) == "" and len(meter(0.25)) == 10


def test_levels_by_hand() -> None:
    assert [level(part) for part in (0.0, 1e-9, 0.1, 0.2, 0.5, 0.99, 1.0, 3.0)] == [0, 1, 1, 2, 4, 8, 8, 8]


def test_a_series_from_zero_to_its_greatest() -> None:
    assert spark([80, 10, 40, 0, 20], 10, blocks=True).signs == "█▁▄ ▂"
    assert spark([80, 10, 40, 0, 20], 10, blocks=False).signs == "814 2"
    assert spark([100, 101, 99], 10, blocks=False).signs == "888"  # what hardly differs looks alike
    assert spark([0, 0], 10, blocks=True).signs == "  "


def test_digits_say_what_blocks_say() -> None:
    parts = [n / 97 for n in range(98)]
    digits = str.maketrans("▁▂▃▄▅▆▇█", "12345678")
    assert heights(parts, blocks=True).translate(digits) == heights(parts, blocks=False)


@pytest.mark.parametrize(("n", "room", "each", "signs"), [(10, 10, 1, 10), (11, 10, 2, 6), (100, 10, 10, 10)])
def test_a_long_series_is_grouped_so_that_nothing_high_is_lost(n: int, room: int, each: int, signs: int) -> None:
    for odd in range(n):
        values = [10] * n
        values[odd] = 80
        drawn = spark(values, room, blocks=False)
        assert (drawn.each, len(drawn.signs)) == (each, signs)
        assert drawn.signs == "1" * (odd // each) + "8" + "1" * (signs - odd // each - 1)
        marks = any_of([value == 80 for value in values], each)
        assert [mark for mark in range(signs) if marks[mark]] == [odd // each]


def test_groups_by_hand() -> None:
    assert grouped([1, 5, 2, 9, 3], 2) == [5, 9, 3]
    assert thinned([0.0, 1.0, 0.5, 0.5], 2) == [0.5, 0.5]
    assert thinned([0.25] * 6, 5) == [0.25] * 3 and thinned([1.0] * 7, 6) == [1.0]
    assert thinned([0.5, 0.5], 2) == [0.5, 0.5] and thinned([1.0], 0) == [] and thinned([], 9) == []


@pytest.mark.parametrize(
    ("us", "percents", "said"),
    [
        ((0, 0), (0.0, 0.0), "saves nothing"),
        ((2, 5), (1.0, 2.5), "saves 2.00–5.00 us per step (1.0–2.5 %)"),
        ((0, 5), (0.0, 2.5), "saves up to 5.00 us per step (2.5 %)"),
        ((1, 5), (0.04, 2.5), "saves up to 5.00 us per step (2.5 %)"),  # 0.0 % is nothing
        ((-3, 5), (-1.5, 2.5), "saves up to 5.00 us per step (2.5 %)"),
        ((-5, -2), (-2.5, -1.0), "costs 2.00–5.00 us per step (1.0–2.5 %)"),
        ((-5, 0), (-2.5, 0.0), "costs 0–5.00 us per step (0–2.5 %)"),
    ],
)
def test_what_is_saved_by_hand(us: tuple[int, int], percents: tuple[float, float], said: str) -> None:
    times = us[0] * 1000, us[1] * 1000
    assert str(saving(times, percents)) == said
    assert str(saving(times, percents, per="window")) == said.replace("per step", "in all")

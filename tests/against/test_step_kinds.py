"""Steps of one kind beside each other, operators as witnesses, and how often what is told of two sides is right."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import ROOT
from digests import digest_of
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against import compare
from npuperf.against.compare import judge_steps
from npuperf.against.step_kinds import StepKinds, sure_change
from npuperf.base.messages import text
from npuperf.model.noise import judge_shift, surely_shifted
from npuperf.model.parts import Digest, TypeSteps

sys.path.insert(0, str(ROOT / "benchmarks"))

from false_alarms import tell

LIMITS = load_thresholds()
LUCK = 20


def steps_of(spans: list[int], counts: list[int], **types: list[int]) -> Digest:
    """A run of steps, of which each has so many kernels of a type that tells kinds apart; other types have one each."""
    found = [TypeSteps(type="Marks", ns=[1] * len(spans), count=counts)]
    found += [TypeSteps(type=name, ns=ns, count=[1] * len(spans)) for name, ns in types.items()]
    return replace(digest_of({}, spans), steps=[*range(len(spans))], types=found)


def floats(*values: int) -> list[np.ndarray]:
    return [np.array(values, float)]


# --- kinds of steps ---------------------------------------------------------------------------------------------------

EVEN = [1, 1, 2, 1] * 4  # every fourth step runs more


def test_what_a_kind_takes_longer_is_taken_off_on_both_sides() -> None:
    """Medians 100 and 150 on the one side, 104 and 154 on the other: levels 102 and 152, which are 114.5 on average."""
    old, new = ([base + (50 if n == 2 else 0) for n in EVEN] for base in (100, 104))
    of = StepKinds([steps_of(old, EVEN)], [steps_of(new, EVEN)])
    a, b = of.leveled(floats(*old), floats(*new))
    assert {*a[0]} == {100 + 12.5} and {*b[0]} == {104 + 12.5}


def test_several_runs_stay_apart() -> None:
    old = [100 + (50 if n == 2 else 0) for n in EVEN]
    runs = [steps_of(old[:6], EVEN[:6]), steps_of(old[6:], EVEN[6:])]
    a, b = StepKinds(runs, runs).leveled(floats(*old[:6]) + floats(*old[6:]), floats(*old[:6]) + floats(*old[6:]))
    assert [len(run) for run in a] == [len(run) for run in b] == [6, 10]
    assert {*np.concatenate(a)} == {112.5}


@pytest.mark.parametrize(
    "other",
    [
        [1, 2] * 8,  # as many kinds, and not equally often
        [1, 1, 3, 1] * 4,  # a kind that the other side has not got
        [1] * 16,
    ],
)
def test_kinds_that_do_not_match_are_left_alone(other: list[int]) -> None:
    old, new = [100] * 16, [100 + n for n in range(16)]
    a, b = StepKinds([steps_of(old, EVEN)], [steps_of(new, other)]).leveled(floats(*old), floats(*new))
    assert a[0].tolist() == old and b[0].tolist() == new


def test_a_recording_may_begin_at_another_step_of_the_period() -> None:
    """Of 18 steps four or five are of the other kind."""
    old, new = ([1, 1, 1, 2] * 5)[:18], ([1, 2, 1, 1] * 5)[:18]
    sides = [[100 + (50 if n == 2 else 0) for n in counts] for counts in (old, new)]
    of = StepKinds([steps_of(sides[0], old)], [steps_of(sides[1], new)])
    a, b = of.leveled(floats(*sides[0]), floats(*sides[1]))
    assert len({*a[0], *b[0]}) == 1


def test_kinds_tell_what_their_spread_hides() -> None:
    """Steps of 100 and 150 ms, with 0.3 % of noise, that take 2 % longer: of all together the spread is 20 %."""
    luck, turns = np.random.default_rng(4), [1, 2] * 8
    old, new = (
        [round(1e6 * (100 + (50 if n == 2 else 0)) * by * (1 + 0.003 * luck.standard_normal())) for n in turns]
        for by in (1.0, 1.02)
    )
    side = [steps_of(old, turns)], [steps_of(new, turns)]
    assert judge_steps(*side, LIMITS).verdict == "worse"
    assert judge_shift(floats(*old), floats(*new), ratio=LIMITS.compare_ratio).verdict == "cannot_tell"


# --- operators --------------------------------------------------------------------------------------------------------


def noisy(mean: float, spread: float, seed: int, n: int = 10) -> list[int]:
    """So many samples in ns, of milliseconds."""
    drawn = np.random.default_rng([LUCK, seed]).standard_normal(n)
    drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)  # neither luck nor its lack
    return np.rint(1e6 * (mean + spread * drawn)).astype(int).tolist()


def two(old: float, new: float, spread: float, step: float = 102) -> tuple[list[Digest], list[Digest]]:
    """Ten steps a side with a noise of 1 ms, 100 ms and ``step`` long, of which an operator takes so many ms."""
    flat = [1] * 10
    return (
        [steps_of(noisy(100, 1, 1), flat, MatMul=noisy(old, spread, 2))],
        [steps_of(noisy(step, 1, 3), flat, MatMul=noisy(new, spread, 4))],
    )


def test_an_operator_that_changed_for_certain_is_believed() -> None:
    told = judge_steps(*two(20, 22, 0.1), LIMITS)
    assert (told.verdict, told.confidence) == ("worse", 0.90)
    assert told.sure == pytest.approx(2e6, rel=0.05)
    assert told.interval is not None and 0 < told.interval[0] < 2e6 < told.interval[1]
    assert "operators changed beyond chance, and the same way" in text(told.method)
    back = judge_steps(*reversed(two(20, 22, 0.1)), LIMITS)
    assert (back.verdict, back.confidence) == ("better", 0.90)


@pytest.mark.parametrize(
    ("old", "new", "spread", "step"),
    [
        (20, 20, 0.1, 102),  # no operator changed
        (20, 22, 3.0, 102),  # it may be chance
        (22, 20, 0.1, 102),  # the other way
        (20, 20.5, 0.1, 102),  # by less than the tolerance
        (20, 22, 0.1, 100),  # something else hides it
    ],
)
def test_what_operators_do_not_show_is_not_told(old: float, new: float, spread: float, step: float) -> None:
    assert judge_steps(*two(old, new, spread, step), LIMITS).verdict == "cannot_tell"


def test_an_operator_that_only_one_side_has_counts_from_zero() -> None:
    flat = [1] * 10
    old, new = [steps_of(noisy(100, 1, 1), flat)], [steps_of(noisy(102, 1, 3), flat, Cast=noisy(2, 0.1, 4))]
    of = StepKinds(old, new)
    assert sure_change(old, new, of, 1e6) == pytest.approx(2e6, rel=0.05)
    assert sure_change(new, old, of, 1e6) == pytest.approx(-2e6, rel=0.05)


def test_one_of_many_tests_needs_more() -> None:
    """All of 8 above all of 8 is one of 12,870 orders: 1 % of one test leaves 64 of them at one end, of 65 none."""
    old, new = floats(*range(100, 108)), floats(*range(200, 208))
    assert surely_shifted(old, new, 1) == surely_shifted(old, new, 64) == 100
    assert surely_shifted(old, new, 65) is None


# --- how often that is right ------------------------------------------------------------------------------------------


def test_a_tolerance_shows_sameness_at_five_percent_an_end() -> None:
    """99 % of twenty steps with 1 % of noise reach beyond the tolerance of 1 %, 90 % do not."""
    old, new = noisy(100, 1, 17, 20), noisy(100.1, 1, 18, 20)
    told = judge_shift(floats(*old), floats(*new), ratio=0.01)
    assert (told.verdict, told.confidence) == ("same", 0.90)
    assert told.interval is not None and -1e6 <= told.interval[0] < told.interval[1] <= 1e6
    assert "each end is tested at 5 %" in text(told.method)


@pytest.mark.parametrize("noise", ["all of a step alike", "between operators", "each operator by itself"])
def test_equal_pairs_differ_in_none_and_are_the_same_in_half(noise: str) -> None:
    found = tell(noise, "none", "normal", 0.0, steps=20, pairs=100, seed=3)
    assert found.differs == 0 and found.same > 40


@pytest.mark.parametrize("noise", ["all of a step alike", "between operators", "each operator by itself"])
def test_two_percent_in_one_operator_are_told_from_ten_steps(noise: str) -> None:
    assert tell(noise, "one operator", "normal", 0.0, steps=10, pairs=100, seed=3).differs > 65
    assert tell(noise, "one operator", "normal", 0.0, steps=20, pairs=50, seed=3).differs >= 96


@pytest.mark.parametrize(
    ("noise", "shape", "phi"),
    [
        ("all of a step alike", "normal", 0.6),
        ("all of a step alike", "drift", 0.0),
        ("between operators", "one step in ten is slow", 0.0),
        ("each operator by itself", "normal", 0.6),
    ],
)
def test_more_power_buys_no_false_alarms(noise: str, shape: str, phi: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocorrelated, of heavy tails, with a drift over the steps: operators make no more of them than steps do."""
    with_operators = tell(noise, "none", shape, phi, steps=10, pairs=100, seed=3).differs
    monkeypatch.setattr(compare, "sure_change", lambda *of: 0.0)
    assert with_operators <= tell(noise, "none", shape, phi, steps=10, pairs=100, seed=3).differs + 1


def test_what_is_hidden_makes_the_step_longer_in_one_of_twenty_at_most() -> None:
    """Each end of the interval that is used then is one at 5 %, and the shift has to exceed the tolerance."""
    assert tell("between operators", "hidden", "normal", 0.0, steps=10, pairs=200, seed=3).differs <= 5

"""Gates judged on figures by hand: absolute, against a baseline, with noise, over several runs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median

import pytest
from comparisons import WORSE
from msgspec import Struct
from msgspec.structs import replace

from npuperf.against.gate_verdicts import judge_gate, settle
from npuperf.against.gates import parse_gate
from npuperf.base.messages import say
from npuperf.model import document
from npuperf.model.document import Gate, Measured, Metric


class Doc(Struct):
    """A document that is what a metric found."""

    found: Measured


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = (
        Metric("time", "ns", Doc, lambda doc, _: doc.found, parts=("compute", "transfer", "host_wait", "wait")),
        Metric("share", "percent", Doc, lambda doc, _: doc.found),
        Metric("free", "percent", Doc, lambda doc, _: doc.found, worst="least"),
        Metric("things", "count", Doc, lambda doc, _: doc.found),
        Metric("moved", "bytes", Doc, lambda doc, _: doc.found),
        Metric("of", "ns", Doc, lambda doc, _: doc.found, "required", parts=("compute",)),
        Metric("bad", "count", Doc, lambda doc, _: doc.found, words=("low", "medium", "high")),
        Metric("verdict", "count", Doc, lambda doc, _: doc.found, words=("host", "compute", "unknown"), expects=True),
    )
    monkeypatch.setattr(document, "METRICS", {metric.name: metric for metric in made})
    yield


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("share>12%", "pass"),  # the median is 2 %, and 12 % if all that is not known belonged to it
        ("share>11%", "cannot_tell"),
        ("share>1%", "fail"),
        ("max(share)>20%", "pass"),
        ("each(share)>20%", "pass"),
        ("each(share)>19%", "cannot_tell"),
        ("share<1%", "pass"),
        ("share<3%", "cannot_tell"),
    ],
)
def test_what_is_not_known_may_be_too_little_to_matter(text: str, status: str) -> None:
    found = steps(1, 2, 3, reason=say("some idle time has no launch"), at_least=True, most=((11.0, 12.0, 20.0),))
    gate = judged(text, found)
    assert gate.status == status and gate.reason is not None


def judged(text: str, new: Measured, *old: Measured, **more: object) -> Gate:
    return judge_gate(parse_gate(text, Doc), Doc(new), [Doc(one) for one in old], **more)  # type: ignore[arg-type]


def steps(*values: float, **more: object) -> Measured:
    return Measured(series=(tuple(map(float, values)),), **more)  # type: ignore[arg-type]


FIVE = steps(10, 20, 30, 40, 100)


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        ("time>30ns", "pass", 30),
        ("time>=30ns", "fail", 30),
        ("median(time)>29ns", "fail", 30),
        ("mean(time)>39ns", "fail", 40),
        ("mean(time)>40ns", "pass", 40),
        ("max(time)>=100ns", "fail", 100),
        ("p95(time)>87ns", "fail", 88),  # 40 and four fifths of the way to 100
        ("p95(time)>88ns", "pass", 88),
        ("each(time)>99ns", "fail", 100),
        ("each(time)>100ns", "pass", 100),
        ("each(time)<20ns", "fail", 10),
        ("each(time)<10ns", "pass", 10),
    ],
)
def test_aggregates_are_over_the_steps(text: str, status: str, value: float) -> None:
    gate = judged(text, FIVE)
    assert (gate.status, gate.value, gate.unit) == (status, value, "ns")


def test_a_share_says_of_which_steps_it_is() -> None:
    """The report has the share of all steps together, which is another figure."""
    assert str(judged("share>12%", steps(1, 2, 30)).reason) == "2.0 %; the median of 3 steps"
    assert judged("share>1%", steps(2)).reason is None
    assert judged("max(share)>12%", steps(1, 2, 30)).reason is None
    assert judged("time>1ms", steps(1, 2, 30)).reason is None


def test_the_worst_device_counts() -> None:
    two = Measured(series=((10.0, 12.0, 14.0), (1.0, 20.0, 2.0)))
    assert judged("share>11%", two).value == 12
    assert judged("max(share)>11%", two).value == 20
    assert judged("free<5%", two).value == 2
    assert judged("free<5%", two).status == "fail"


def test_one_value_for_all_steps() -> None:
    one = Measured(7.0)
    assert judged("time>6ns", one).status == "fail"
    for text in ("max(time)>6ns", "each(time)>6ns"):
        gate = judged(text, one)
        assert gate.status == "cannot_tell" and "no value in each step" in str(gate.reason)
    told = Measured(7.0, series=((1.0, 2.0),))
    assert judged("time>6ns", told).value == 7 and judged("median(time)>6ns", told).value == 1.5
    nothing = judged("time>6ns", Measured(reason=say("it is not there")))
    assert (nothing.status, str(nothing.reason)) == ("cannot_tell", "it is not there")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("things>2", "fail"),
        ("things>=3", "fail"),
        ("things>3", "cannot_tell"),
        ("things<3", "cannot_tell"),
        ("things<2", "cannot_tell"),
        ("things=3", "cannot_tell"),
        ("things=2", "pass"),
        ("things!=2", "fail"),
        ("things!=4", "cannot_tell"),
    ],
)
def test_what_may_be_more_is_judged_where_more_changes_nothing(text: str, status: str) -> None:
    """Three, or more: with "less than" it may be less than nothing that is told."""
    expected = {"things<3": "pass", "things<2": "pass"}.get(text, status)
    assert judged(text, Measured(3.0, at_least=True)).status == expected


def test_a_count_that_is_more_in_single_steps_is_told() -> None:
    found = steps(3, 3, 3, 5)
    gate = judged("things>3", found)
    assert gate.status == "pass" and "1 of 4 steps would not" in str(gate.reason)
    gate = judged("each(things)>3", found)
    assert (gate.status, gate.value, str(gate.reason)) == ("fail", 5, "5; in 1 of 4 steps")
    slow = judged("each(time)>30ns", FIVE)
    assert (slow.status, str(slow.reason)) == ("fail", "100 ns; in 2 of 5 steps")


def test_a_value_that_may_be_larger_is_said_with_the_reason() -> None:
    gate = judged("things>2", Measured(3.0, say("rows are missing"), at_least=True))
    assert (gate.status, gate.value, str(gate.reason)) == ("fail", 3, "3; rows are missing")


@pytest.mark.parametrize(
    ("text", "old", "new", "status"),
    [
        ("things>+0", 5, 5, "pass"),
        ("things>+0", 5, 6, "fail"),
        ("things>=+0", 5, 5, "fail"),
        ("things>+0", 5, 4, "pass"),
        ("things!=+0", 5, 4, "fail"),
        ("things=+0", 5, 4, "pass"),
        ("things>+10%", 100, 110, "pass"),
        ("things>+10%", 100, 111, "fail"),
        ("things>+10%,20", 100, 115, "pass"),
        ("things>+10%,20", 100, 121, "fail"),
        ("things>+10%", 0, 1, "fail"),
        ("things<-10%", 100, 89, "fail"),
        ("things<-10%", 100, 90, "pass"),
        ("things<-10%,20", 100, 85, "pass"),
        ("things>-10%", 100, 91, "fail"),  # ten percent fewer are demanded
        ("things>-10%", 100, 90, "pass"),
        ("moved>+1KiB", 1024, 2049, "fail"),
        ("moved>+1KiB", 1024, 2048, "pass"),
        ("each(things)>+1", 5, 7, "fail"),
    ],
)
def test_counts_are_exact_against_a_baseline(text: str, old: int, new: int, status: str) -> None:
    gate = judged(text, steps(new, new), steps(old, old))
    assert (gate.status, gate.value, gate.baseline, gate.interval) == (status, new, old, None)


@pytest.mark.parametrize(
    ("old_open", "new_open", "new", "status"),
    [
        (False, True, 6, "fail"),
        (False, True, 5, "cannot_tell"),
        (True, False, 6, "cannot_tell"),
        (True, False, 5, "pass"),
        (True, True, 6, "cannot_tell"),
        (True, True, 5, "cannot_tell"),
    ],
)
def test_either_side_may_have_more(old_open: bool, new_open: bool, new: int, status: str) -> None:
    old = Measured(5.0, say("old may be more"), at_least=old_open)
    assert judged("things>+0", Measured(float(new), at_least=new_open), old).status == status
    old = steps(5, reason=old.reason, at_least=old_open)
    assert judged("each(things)>+0", steps(new, at_least=new_open), old).status == status


def around(middle: float, spread: float, seed: int, n: int = 10) -> Measured:
    random = Random(seed)
    return steps(*(middle + random.uniform(-spread, spread) for _ in range(n)))


@pytest.mark.parametrize(
    ("text", "old", "new", "status"),
    [
        ("time>+5%", (1000, 5), (1100, 5), "fail"),
        ("time>+5%", (1000, 5), (1030, 5), "pass"),
        ("time>+5%", (1000, 5), (900, 5), "pass"),
        ("time>+5%,200ns", (1000, 5), (1100, 5), "pass"),
        ("time>+5%,50ns", (1000, 5), (1100, 5), "fail"),
        ("time>+5%", (1000, 300), (1060, 300), "cannot_tell"),
        ("time>+50ns", (1000, 5), (1100, 5), "fail"),
        ("time>+150ns", (1000, 5), (1100, 5), "pass"),
        ("time<-5%", (1000, 5), (900, 5), "fail"),
        ("time<-5%", (1000, 5), (1100, 5), "pass"),
        ("time>-5%", (1000, 5), (980, 5), "fail"),  # it was to become shorter by five percent
        ("time>-5%", (1000, 5), (900, 5), "pass"),
        ("mean(time)>+5%", (1000, 5), (1100, 5), "fail"),
        ("p95(time)>+5%", (1000, 5), (1100, 5), "fail"),
        ("max(time)>+5%", (1000, 5), (1010, 5), "pass"),
        ("share>+5%", (40, 1), (50, 1), "fail"),  # points: ten of them
        ("share>+5%", (40, 0.5), (43, 0.5), "pass"),  # although three of forty are more than five percent
        ("free<-5%", (40, 0.5), (30, 0.5), "fail"),
    ],
)
def test_times_are_judged_beyond_their_noise(
    text: str, old: tuple[float, float], new: tuple[float, float], status: str
) -> None:
    gate = judged(text, around(*new, seed=1), around(*old, seed=2))
    assert gate.status == status
    assert gate.interval is not None and gate.interval[0] < gate.interval[1]
    assert gate.value is not None and gate.baseline is not None and gate.limit is not None
    assert (gate.value > gate.limit) == (status == "fail" and ">" in text) or status == "cannot_tell" or "<" in text


def test_an_outlier_is_no_proof_for_the_mean() -> None:
    """One step in ten that is ten times as long: the mean says so, and the typical step does not."""
    old, new = around(1000, 5, 1), around(1000, 5, 2)
    new = steps(*new.series[0][:-1], 10_000)
    assert judged("time>+5%", new, old).status == "pass"
    for aggregate in ("mean", "max", "p95"):
        assert judged(f"{aggregate}(time)>+5%", new, old).status == "cannot_tell"


def test_identical_sides_pass_however_few_steps() -> None:
    gate = judged("time>+0", steps(10, 11), steps(10, 11))
    assert (gate.status, gate.interval) == ("pass", (0.0, 0.0))
    assert judged("time>=+0", steps(10, 11), steps(10, 11)).status == "fail"


def test_few_steps_decide_nothing() -> None:
    gate = judged("time>+5%", steps(100, 101), steps(10, 11))
    assert gate.status == "cannot_tell" and "npuperf profile --for-compare" in str(gate.reason)
    assert (gate.value, gate.baseline) == (100.5, 10.5)
    assert judged("time>+5%", Measured(100.0), Measured(10.0)).status == "cannot_tell"
    assert judged("time>+5%", Measured(10.0), Measured(10.0)).status == "pass"
    assert judged("time>=+0", Measured(10.0), Measured(10.0)).status == "fail"
    assert judged("time>+5%", Measured(10.0, at_least=True), Measured(10.0)).status == "cannot_tell"


def test_no_false_alarm_on_noise() -> None:
    """Two hundred pairs of nothing but noise, in which five percent are twice what a step varies by."""
    failed = sum(
        judged("time>+1%", around(1000, 25, seed), around(1000, 25, -1 - seed)).status == "fail" for seed in range(200)
    )
    assert failed <= 2


def test_the_baseline_may_be_several_runs() -> None:
    olds = [around(1000, 5, seed) for seed in (1, 2, 3)]
    assert judged("time>+5%", around(1100, 5, 4), *olds).status == "fail"
    assert judged("things>+0", steps(5), steps(4), steps(5), steps(9)).baseline == 5
    gate = judged("things>+0", steps(5), Measured(reason=say("it is not counted")))
    assert gate.status == "cannot_tell" and "baseline: it is not counted" in str(gate.reason)


def test_the_new_side_may_be_several_runs() -> None:
    """What is measured in time is judged of all runs, its value their median; counts are those of the first run."""
    old, new, again = around(100, 1, 1), around(120, 1, 4), [Doc(around(100, 1, 2)), Doc(around(101, 1, 3))]
    alone, all_of_them = (judged("time>+5%", new, old, again=runs) for runs in ((), again))
    assert (alone.status, all_of_them.status) == ("fail", "cannot_tell")
    assert all_of_them.value == median(median(one.series[0]) for one in (new, *(doc.found for doc in again)))
    assert all_of_them.interval is not None and all_of_them.interval[1] > 15
    more = [Doc(Measured(4.0)), Doc(Measured(5.0))]
    assert judged("things>+0", Measured(3.0), Measured(3.0), again=more).status == "pass"
    untold = judged("time>+5%", around(100, 1, 4), old, again=[Doc(Measured(reason=say("it broke off")))])
    assert (untold.status, str(untold.reason)) == ("cannot_tell", "it broke off")


def test_a_name_that_nobody_has_never_passes() -> None:
    absent = Measured(0.0, say("no such thing; there is: MatMul"), absent=True)
    for text in ("of:Matmul>1ns", "of:Matmul>+5%"):
        gate = judged(text, absent, absent)
        assert gate.status == "cannot_tell" and "MatMul" in str(gate.reason)
    gate = judged("of:Matmul>1ns", absent)
    assert gate.status == "cannot_tell"
    assert settle([gate], "pass") == (gate,)
    assert settle([gate], "fail")[0].status == "fail"
    zero = Measured(series=((0.0,) * 6,), absent=True)
    there = steps(5, 5, 5, 5, 5, 6)
    assert judged("of:Cast>+5%", there, zero).status == "fail"  # new
    assert judged("of:Cast>+5%", zero, there).status == "pass"  # gone
    assert judged("of:Cast>1ns", zero, there).status == "pass"


def test_words() -> None:
    found = Measured(2.0, named=(("low", "a"), ("medium", "b")))
    expected = {
        "bad>=low": "fail", "bad>=medium": "fail", "bad>=high": "pass", "bad>medium": "pass", "bad>low": "fail",
        "bad=low": "fail", "bad>1": "fail", "bad>2": "pass",
    }  # fmt: skip
    assert {text: judged(text, found).status for text in expected} == expected
    gate = judged("bad>=medium", found)
    assert (gate.value, gate.limit) == (1, 0) and "b (medium)" in str(gate.reason)
    open_ = Measured(0.0, say("two checks cannot tell"), at_least=True, named=())
    gate = judged("bad>=high", open_)
    assert (gate.status, str(gate.reason)) == ("cannot_tell", "two checks cannot tell")


@pytest.mark.parametrize(
    ("text", "found", "status"),
    [
        ("verdict=host", "host", "pass"),
        ("verdict=host", "compute", "fail"),
        ("verdict!=host", "host", "fail"),
        ("verdict!=host", "compute", "pass"),
        ("verdict=host", "unknown", "cannot_tell"),
        ("verdict!=host", "unknown", "cannot_tell"),
        ("verdict!=unknown", "unknown", "fail"),
        ("verdict=unknown", "unknown", "pass"),
        ("verdict!=unknown", "host", "pass"),
    ],
)
def test_the_verdict_is_what_must_be(text: str, found: str, status: str) -> None:
    gate = judged(text, Measured(reason=say("for a reason"), named=((found, ""),)))
    assert gate.status == status and f"the verdict is {found}" in str(gate.reason)


@pytest.mark.parametrize(
    ("history", "failed", "status", "runs"),
    [
        ((), True, "pass", (True,)),
        ((True,), True, "fail", (True, True)),
        ((True, False), True, "fail", (True, False, True)),
        ((True, False, False), True, "pass", (False, False, True)),  # the first is forgotten
        ((False, True, True), False, "pass", (True, True, False)),  # this one is in order
    ],
)
def test_two_of_three_runs(history: tuple[bool, ...], failed: bool, status: str, runs: tuple[bool, ...]) -> None:
    gate = judged("things>3 for 2 of 3", Measured(4.0 if failed else 3.0), history=history)
    assert (gate.status, gate.runs) == (status, runs)
    if failed and status == "pass":
        assert "1 of 3 so far, and 2 make it fail" in str(gate.reason)


def test_a_run_that_cannot_be_judged_is_not_counted() -> None:
    gate = judged("things>3 for 1 of 3", Measured(reason=say("unknown")), history=(True, True))
    assert (gate.status, gate.runs) == ("cannot_tell", ())
    assert judged("things>3 for 1 of 1", Measured(4.0), history=(True, True)).runs == (True,)


def test_a_warning_and_what_cannot_be_judged() -> None:
    gate = judged("warn: things>3", Measured(4.0))
    assert (gate.status, gate.level, gate.expr) == ("fail", "warn", "warn: things>3")
    open_ = judged("things>3", Measured(reason=say("unknown")))
    assert settle([gate, open_], None) == (gate, open_)
    for fate in ("pass", "fail"):
        first, second = settle([gate, open_], fate)  # type: ignore[arg-type]
        assert first is gate and second.status == fate and "unknown; it counts as" in str(second.reason)


def test_a_failure_is_explained_by_what_became_longer() -> None:
    gate = judged("time>1ns", Measured(2.0), comparison=WORSE)
    assert [(p.part, p.delta_ns) for p in gate.explained_by] == [
        ("compute", 380_412), ("host_wait", 140_001), ("transfer", 105_000)
    ]  # fmt: skip
    assert [p.part for p in judged("time<3ns", Measured(2.0), comparison=WORSE).explained_by][:2] == ["compute", "wait"]
    assert [p.key for p in judged("of:Cast3>1ns", Measured(2.0), comparison=WORSE).explained_by] == ["Cast3 [3]"]
    assert judged("time>2ns", Measured(2.0), comparison=WORSE).explained_by == ()
    for way, ways in (((0, 1), [1, 0]), ((-1, 0), [0, 1]), ((-1, 1), [0, 0])):
        cause = replace(WORSE, causes=(replace(WORSE.causes[0], delta_ns=way),))
        assert [
            len(judged(f"time{limit}", Measured(2.0), comparison=cause).causes) for limit in (">1ns", "<3ns")
        ] == ways
    assert judged("things>1", Measured(2.0), comparison=WORSE).explained_by == ()

"""What-if over several ranks: the language, and its answers worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from ranks import US, Item, Work, group, told

from npuperf.advise import load_thresholds
from npuperf.base.errors import UsageError
from npuperf.device.rank_summary import LocalTime
from npuperf.device.whatif import names_ranks
from npuperf.job.job_study import JobStudy, study_job
from npuperf.job.job_whatif import Answer, answers, check, predict
from npuperf.model.job_result import Link

#: Four ranks of one group do this, then a collective of 10 µs, five times over; before it all come together.
DATA = (Work(60, 20), Work(60, 20), Work(100, 20), Work(60, 20))
LINK = Link(
    ranks=(0, 1), transport="HCCS", kind="allReduce", size_class="32–64 MiB", count=5, bytes=1_000_000, time_ns=100_000,
    gb_per_s=10.0, peers_gb_per_s=20.0, reference_gb_per_s=18.0, slow=True, lost_ns=50_000,
)  # fmt: skip


def job(*work: Work, host_known: bool = True) -> JobStudy:
    programs: dict[int, list[Item]] = {
        r: ["dp/0", *(item for n in range(1, 6) for item in (w, f"dp/{n}"))] for r, w in enumerate(work)
    }
    ranks = told(programs, {f"dp/{n}": 10 for n in range(6)}, [group(range(len(work)), "dp", "dp")])
    if not host_known:
        ranks = [replace(r, host_ns=None) for r in ranks]
    found = study_job(ranks, load_thresholds())
    assert found is not None
    return found


def pipeline(first: int, second: int) -> JobStudy:
    """Two stages of two ranks, compute by stage; an exchange after it, then all together. 10 µs each."""
    groups = [group([0, 2], "pp", "p0"), group([1, 3], "pp", "p1"), group(range(4), "mp", "mp")]
    programs: dict[int, list[Item]] = {
        r: ["mp/0", Work(first if r < 2 else second), f"p{r % 2}/0", "mp/1"] for r in range(4)
    }
    ranks = told(programs, dict.fromkeys(("mp/0", "p0/0", "p1/0", "mp/1"), 10), groups)
    found = study_job(ranks, load_thresholds())
    assert found is not None
    return found


def saved(study: JobStudy, expression: str, links: tuple[Link, ...] = ()) -> float:
    answer = predict(study, links, expression)
    assert answer.reason is None
    return answer.saved / US


@pytest.mark.parametrize(
    ("expression", "us"),
    [
        ("rank:2=median", 5 * 40),  # 60 instead of 100
        ("rank:0=median", 0),  # it is like its peers
        ("rank:2:compute*0.5", 5 * 40),  # 50: then the others' 60 set the pace
        ("rank:2:compute*0.8", 5 * 20),
        ("rank:2:host*0.5", 5 * 10),
        ("rank:2*0.5", 5 * 40),  # 120 → 60, the others take 80
        ("rank:2*2", -5 * 120),
        ("rank:1:host*0.5", 0),  # it is waited for by nobody
        ("compute*0.5", 5 * 50),
        ("host*0.5", 5 * 10),
        ("comm*0.8", 6 * 2),
        ("comm*0.5,compute*0.5", 6 * 5 + 5 * 50),
        ("rank:2:compute*0.8,rank:2:host*0.5", 5 * 30),
        ("compute*0.5, host*0.5", 5 * 60),
        ("rank:2*0.9,rank:2*0.9", 5 * 22.8),  # 120 → 97.2
    ],
)
def test_answers_worked_out_by_hand(expression: str, us: float) -> None:
    """Every round takes 120 + 10 µs, because of rank 2; the others take 80 + 10 by themselves."""
    assert saved(job(*DATA), expression) == pytest.approx(us, abs=0.01)


@pytest.mark.parametrize(
    ("expression", "us"),
    [("stage:1*0.8", 60), ("stage:1*0.5", 100), ("stage:0*0.5", 0), ("stage:0*2", -100), ("comm*0.5", 15)],
)
def test_a_stage_is_as_long_as_its_ranks(expression: str, us: float) -> None:
    """Stages take 200 and 300 µs side by side: the longer one counts. Three operations of 10 µs in a row."""
    assert saved(pipeline(200, 300), expression) == pytest.approx(us, abs=0.01)


def test_a_link_like_its_peers() -> None:
    """Twice as fast as now, so all operations of ranks 0 and 1 take 5 µs instead of 10; 6 of them."""
    assert saved(job(*DATA), "link:0-1=peers", (LINK,)) == pytest.approx(30)


def test_a_host_that_may_be_ahead_gains_between_two_bounds() -> None:
    """Half of the waiting for it goes at least, all of it at most: 50 to 100 µs."""
    answer = predict(job(*DATA), (), "rank:2:host*0.5")
    assert (answer.least / US, answer.most / US) == (pytest.approx(50), pytest.approx(100))


def test_a_slower_host_is_no_gain_within_any_bound() -> None:
    answer = predict(job(*DATA), (), "host*2")
    assert answer.saved / US == answer.least / US == answer.most / US == pytest.approx(-100)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("rank:9=median", "rank 9 was not loaded"),
        ("rank:9*0.5", "rank 9 was not loaded"),
        ("stage:1*0.5", "there is no stage 1"),
        ("link:0-1=peers", "no three peers"),
        ("link:0-9=peers", "no three peers"),
        ("rank:2=median,stage:3*0.5", "there is no stage 3"),
    ],
)
def test_what_is_not_there_is_said(expression: str, reason: str) -> None:
    answer = predict(job(*DATA), (), expression)
    assert reason in str(answer.reason) and answer.saved == 0


def test_a_rank_alone_in_its_stage_has_no_peers() -> None:
    groups = [group([0, 1], "pp", "pp")]
    study = study_job(told({0: ["pp/0"], 1: [Work(9), "pp/0"]}, {"pp/0": 5}, groups), load_thresholds())
    assert study is not None
    assert "no peers" in str(predict(study, (), "rank:1=median").reason)


@pytest.mark.parametrize("expression", ["host*0.5", "rank:2:host*0.5"])
def test_host_time_that_is_not_recorded_cannot_change(expression: str) -> None:
    assert "launches are not recorded" in str(predict(job(*DATA, host_known=False), (), expression).reason)


def test_a_replay_that_misses_the_job_gives_no_figures() -> None:
    answer = predict(replace(job(*DATA), usable=False), (), "compute*0.5")
    assert answer == Answer(reason=answer.reason)
    assert "gives no figures" in str(answer.reason)


def test_the_replay_is_unusable_where_work_is_lost() -> None:
    """Half of 100 µs is missing on both ranks: the job of 110 comes out at 60."""
    ranks = told({0: [Work(100), "dp/0"], 1: [Work(100), "dp/0"]}, {"dp/0": 10}, [group([0, 1], "dp", "dp")])
    short = LocalTime(*(v // 2 for v in (ranks[0].to_start.length, ranks[0].to_start.compute, ranks[0].to_start.host)))
    study = study_job([replace(r, to_start=short, to_block=short) for r in ranks], load_thresholds())
    assert study is not None and not study.usable
    assert study.error == pytest.approx(50 / 110)


# --- the language ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "rank:x*0.5", "rank:1", "rank:1=mean", "rank:1*", "rank:1*-1", "rank:1:gpu*0.5", "stage:1=median", "stage:*0.5",
        "link:0-1*0.5", "link:0=peers", "rank:1=median,", "rank:1=median;comm*0.5", "rank:1=median,nothing*2",
    ],
)  # fmt: skip
def test_what_cannot_be_read_comes_with_the_grammar(expression: str) -> None:
    with pytest.raises(UsageError) as error:
        check(expression)
    assert "what-if: cannot read" in str(error.value)
    assert "rank:N=median" in str(error.value.hint) and "link:A-B=peers" in str(error.value.hint)


@pytest.mark.parametrize("expression", ["rank:0=median", " rank:12:host*.5 , comm*2", "stage:0*1.5", "link:3-11=peers"])
def test_what_can_be_read(expression: str) -> None:
    check(expression)
    assert answers(expression) and names_ranks(expression)


def test_expressions_of_one_device_are_left_to_it() -> None:
    assert not names_ranks("compute*0.5") and answers("compute*0.5")
    assert not names_ranks("type:MatMul*0.5") and not answers("type:MatMul*0.5")

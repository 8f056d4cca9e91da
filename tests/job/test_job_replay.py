"""The job run again: against an event loop (ranks.play) on random programs; and what-ifs, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace
from ranks import US, Begin, Item, Join, Played, Work, begun, flat, group, play, told

from npuperf.advise import load_thresholds
from npuperf.base.errors import UsageError
from npuperf.device.rank_summary import LocalTime
from npuperf.device.whatif import names_ranks
from npuperf.job.clocks import align
from npuperf.job.job_replay import (
    JobChange,
    JobProgram,
    build,
    calmed,
    level_ranks,
    level_steps,
    on_longest_path,
    run,
    scaled,
    track_totals,
    with_twins,
)
from npuperf.job.job_study import JobStudy, study_job
from npuperf.job.job_whatif import Answer, answers, check, predict
from npuperf.job.links import LinkPaces
from npuperf.job.match import match
from npuperf.job.waits import find_waits
from npuperf.model.communication import ProcessGroup
from npuperf.model.labels import Labels

Programs = dict[int, list[Item]]


class Made(Struct, frozen=True):
    """Programs of ranks, how long each operation transfers (µs), groups, and when each rank begins."""

    programs: Programs
    transfer: dict[str, int]
    groups: list[ProcessGroup]
    begin: dict[int, int]

    def play(self) -> Played:
        return play(self.programs, self.transfer, self.begin)

    def build(self) -> JobProgram:
        ranks = told(self.programs, self.transfer, self.groups, self.begin, {r: 1_000 * r for r in self.programs})
        matched = match(ranks, len(ranks))
        return build(ranks, matched, find_waits(matched, ranks), align(matched, len(ranks)))


def some_work(random: Random) -> Work:
    return Work(*(random.choice([0, random.randint(1, 200)]) for _ in range(3)))


def made(seed: int) -> Made:
    """4 ranks, in pairs by rows and columns; operations block, or run beside the work, some queued behind others."""
    random = Random(seed)
    groups = [group([0, 1, 2, 3], "all", "all"), group([0, 1], "tp", "t0"), group([2, 3], "tp", "t1"),
              group([0, 2], "dp", "d0"), group([1, 3], "dp", "d1")]  # fmt: skip
    programs: Programs = {r: [] for r in range(4)}
    transfer = {}
    beside: dict[int, str] = {}  # by rank: what it began and has not joined, of which new ones queue up behind
    for n in range(random.randint(3, 14)):
        for p in programs.values():
            p.append(some_work(random))
        g = random.choice(groups)
        op = f"{g.id}/{n}"
        transfer[op] = random.randint(1, 300)
        asynchronous = random.random() < 0.4
        for r in g.ranks:
            if not asynchronous:
                programs[r].append(op)
            elif r in beside and random.random() < 0.5:
                programs[r].append(Begin(op, beside[r], random.randint(0, 3)))
            else:
                programs[r].append(Begin(op))
            if asynchronous:
                beside[r] = op
        for r in list(beside):
            if random.random() < 0.4:
                programs[r] += [some_work(random), Join(beside.pop(r))]
    transfer["all/99"] = 5
    for r, p in programs.items():
        p += [*([Join(beside[r])] if r in beside else []), "all/99", some_work(random)]
    job = Made(programs, transfer, groups, {r: random.choice([0, random.randint(0, 500)]) for r in range(4)})
    # Where nothing was waited for, files do not show that something would have been.
    idle = job.play().idle
    seen = {r: [i for i in flat(p) if not (isinstance(i, Join) and (r, i.op) in idle)] for r, p in programs.items()}
    return replace(job, programs=seen)


def scaled_by(programs: Programs, factors: Mapping[int, tuple[int, int]]) -> Programs:
    """The same programs, compute and waiting for the host of some ranks so many times as long."""
    return {
        r: [Work(i.compute * factors[r][0], i.host * factors[r][1], i.other) if isinstance(i, Work) else i for i in p]
        if r in factors
        else p
        for r, p in programs.items()
    }


def lengths(made: Made) -> float:
    played = made.play()
    return (max(played.finish.values()) - min(made.begin.values(), default=0)) * US


def test_a_program_worked_out_by_hand() -> None:
    """Rank 0 works 10 and comes to dp at 10; rank 1 at 30; transfer 5; then 20 and 1 µs: 55. Rank 0 waits 20."""
    programs: Programs = {0: [Work(10), "dp/1", Work(20)], 1: [Work(25, 5), "dp/1", Work(1)]}
    job = Made(programs, {"dp/1": 5}, [group([0, 1], "dp", "dp")], {}).build()
    found = run(job, [JobChange(), scaled(job, np.array([1.0, 0.0])), scaled(job, host=np.array([1.0, 0.0]))])
    assert found.wait[:, 0].tolist() == [20 * US, 0]
    assert found.length.tolist() == [
        55 * US,
        35 * US,
        50 * US,
    ]  # without rank 1's 25 µs rank 0 is last; without 5 at 25


def test_where_waiting_is_gone_more_work_costs_nothing() -> None:
    """Rank 0 waits 20 µs for rank 1: twice its compute of 10 only shortens that."""
    programs: Programs = {0: [Work(10), "dp/1"], 1: [Work(30), "dp/1"]}
    job = Made(programs, {"dp/1": 5}, [group([0, 1], "dp", "dp")], {}).build()
    found = run(job, [scaled(job, np.array([2.0, 1.0])), scaled(job, np.array([4.0, 1.0]))])
    assert found.length.tolist() == [35 * US, 45 * US]
    assert found.wait[:, 0].tolist() == [10 * US, 0] and found.wait[:, 1].tolist() == [0, 10 * US]


def test_an_operation_beside_the_work_is_waited_for_only_where_it_is_needed() -> None:
    """It runs from 0 to 100 µs; the rank works 60, waits 40. With 0.5 of the transfer it does not wait."""
    programs: Programs = {r: [Begin("dp/1"), Work(60), Join("dp/1"), Work(10)] for r in (0, 1)}
    job = Made(programs, {"dp/1": 100}, [group([0, 1], "dp", "dp")], {}).build()
    assert run(job, [JobChange(), JobChange(transfer=job.transfer / 2)]).length.tolist() == [110 * US, 70 * US]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_changed_gives_what_was_measured(seed: int) -> None:
    job = made(seed)
    played, program = job.play(), job.build()
    found = run(program, [JobChange()])
    assert found.length[0] == program.measured == lengths(job)
    first = min(job.begin.values())
    for i, arrival in enumerate(found.arrival[:, 0].tolist()):
        assert arrival / US + first == played.arrival[named(job, program, i)]
    assert not program.looped.any()


def named(job: Made, program: JobProgram, row: int) -> tuple[int, str]:
    """The rank and name of an operation of the program: a rank's are in the order of their arrival."""
    rank = int(program.matched.rank[row])
    arrival = job.play().arrival
    ops = sorted(begun([*flat(job.programs[rank])]), key=lambda op: arrival[rank, op])
    return rank, ops[row - int(program.matched.first[rank])]


@pytest.mark.parametrize("seed", range(40))
def test_changes_give_what_the_event_loop_does(seed: int) -> None:
    """Compute of rank 1 three times as long, waiting of rank 2's host gone, transfers four times as long, all of it."""
    job = made(seed)
    program = job.build()
    slow, quick, both = (
        replace(job, programs=scaled_by(job.programs, f)) for f in ({1: (3, 1)}, {2: (1, 0)}, {1: (3, 1), 2: (1, 0)})
    )
    compute, host = np.array([1.0, 3.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    stretched = replace(job, transfer={op: 4 * t for op, t in job.transfer.items()})
    longer = JobChange(transfer=program.transfer * 4)
    found = run(program, [
        scaled(program, compute), scaled(program, host=host), scaled(program, compute, host=host), longer,
        scaled(program, compute, longer),
    ])  # fmt: skip
    expected = [slow, quick, both, stretched, replace(slow, transfer=stretched.transfer)]
    assert found.length.tolist() == [lengths(e) for e in expected]


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_like_its_peers(seed: int) -> None:
    """All ranks run one program; rank 2's compute is three times as long: levelled, it is like the others'."""
    random = Random(seed)
    common = [item for n in range(6) for item in (Work(random.randint(1, 200)), f"all/{n}")] + [Work(30)]
    job = Made(
        {r: list(common) for r in range(4)}, {f"all/{n}": 10 for n in range(6)}, [group(range(4), None, "all")], {}
    )
    slow = replace(job, programs=scaled_by(job.programs, {2: (3, 1)}))
    program = slow.build()
    none, peers = (np.array([0]), np.empty(0, np.int64)), (np.array([2]), np.array([0, 1, 3]))
    found = run(program, [JobChange(), level_ranks(program, [peers]), level_ranks(program, [none, peers])])
    assert found.length.tolist() == [lengths(slow), lengths(job), lengths(job)]


def test_of_peers_that_take_part_in_other_operations_only_the_end_counts() -> None:
    """Rank 2 never comes to x; its 150 µs, less than rank 1 has, are half of what rank 0 has: so is all of that."""
    programs: Programs = {
        0: [Work(100), "x/0", Work(100), "all/0", Work(100)],
        1: [Work(60), "x/0", Work(60), "all/0", Work(60)],
        2: [Work(50), "all/0", Work(100)],
    }
    job = Made(programs, {"x/0": 5, "all/0": 5}, [group([0, 1], None, "x"), group(range(3), None, "all")], {}).build()
    change = level_ranks(job, [(np.array([0]), np.array([1, 2]))])
    assert change.to_block is not None and change.tail is not None
    assert change.to_block[job.to_block.rank == 0].tolist() == [50 * US, 50 * US]
    assert change.tail.tolist() == [50 * US, 60 * US, 100 * US]


def test_stages_of_one_rank_are_calmed_and_of_them_only_those_that_are_asked_for() -> None:
    """Their hosts take 10, 20, 50 and 90 µs: what is beyond the lower median, 20, goes. The rest is 10, 5 and 1 µs."""
    programs: Programs = {r: [Work(10, host), "all/1", Work(1)] for r, host in enumerate((10, 20, 50, 90))}
    job = Made(programs, {"all/1": 5}, [group(range(4), None, "all")], {}).build()
    stage = np.arange(4)
    changes = [calmed(job, stage), *(calmed(job, stage, ranks=np.array(one)) for one in ([3], [2], [0], [2, 3]))]
    assert run(job, changes).length.tolist() == [36 * US, 66 * US, 106 * US, 106 * US, 36 * US]


def test_late_steps_of_a_rank_alone_are_levelled_on_top_of_another_change() -> None:
    """Rank 1 works 50 µs instead of 10 in the third of four steps, of two operations of 5 µs each; 3 µs follow.

    As in its other steps it takes 10; where rank 0 works twice as long all wait for that one instead.
    """
    programs: Programs = {
        r: [item for n in range(8) for item in (Work(50 if r == 1 and n in (4, 5) else 10), f"all/{n}")] + [Work(3)]
        for r in range(3)
    }
    job = Made(programs, {f"all/{n}": 5 for n in range(8)}, [group(range(3), None, "all")], {}).build()
    job = replace(job, matched=replace(job.matched, step=np.tile(np.arange(8) // 2, 3)))
    twice = scaled(job, np.array([2.0, 1.0, 1.0]))
    changes = [JobChange(), *(level_steps(job, 1, np.array([2]), on) for on in (JobChange(), twice))]
    assert run(job, changes).length.tolist() == [(6 * 15 + 2 * 55 + 3) * US, (8 * 15 + 3) * US, (8 * 25 + 6) * US]


@pytest.mark.parametrize("seed", range(40))
def test_a_rank_saves_no_more_than_it_has_on_the_longest_path(seed: int) -> None:
    """The best repair of a rank: it needs no time of its own at all. Shares of one path are no longer than the job."""
    program = made(seed).build()
    own = on_longest_path(program, JobChange())
    assert 0 < own.sum() <= program.measured + 1
    for rank in range(4):
        kept = np.where(np.arange(4) == rank, 0.0, 1.0)
        best = replace(scaled(program, kept, host=kept, other=kept), begin=program.begin * kept)
        length = run(program, [JobChange(), best]).length
        assert length[0] - length[1] <= own[rank] + 1


@pytest.mark.parametrize("seed", range(6))
def test_who_exchanges_with_a_rank_that_was_not_loaded_works_like_its_twin(seed: int) -> None:
    """Two stages of two ranks, of the second of which one was not loaded; that stage is made twice as fast.

    In every second job rank 0 begins with an exchange.
    """
    random = Random(seed)
    programs: Programs = {r: [] for r in range(4)}
    batches = random.randint(2, 6)
    for n in range(batches):
        for stage, most in ((0, 100), (1, 400)):
            work = Work(random.randint(1, most))
            for r in (2 * stage, 2 * stage + 1):
                there, back = f"p{r % 2}/{2 * n}", f"p{r % 2}/{2 * n + 1}"
                before = [work, f"t0/{n}"] if seed % 2 else [work]
                programs[r] += [*before, there, back] if stage == 0 else [there, work, f"t1/{n}", back]
    groups = [
        group([0, 1], "tp", "t0"),
        group([2, 3], "tp", "t1"),
        group([0, 2], "pp", "p0"),
        group([1, 3], "pp", "p1"),
    ]
    transfer = {op: 5 for p in programs.values() for op in p if isinstance(op, str)}
    whole = Made(programs, transfer, groups, {})
    ranks = told(programs, transfer, groups, {}, {})[:3]
    matched = match(ranks, 4)
    job = build(ranks, matched, find_waits(matched, ranks), align(matched, 3))
    joined, faster = with_twins(job), np.array([1.0, 1.0, 0.5])
    now = lengths(whole)
    then = lengths(replace(whole, programs=scaled_by(programs, {2: (0.5, 1), 3: (0.5, 1)})))
    assert run(joined, [JobChange(), scaled(joined, faster)]).length.tolist() == pytest.approx([now, then])
    assert run(job, [scaled(job, faster)]).length[0] > then
    mine, twins = (np.flatnonzero((matched.rank == r) & matched.p2p) for r in (1, 0))
    assert joined.instance[mine].tolist() == matched.instance[twins].tolist()
    own = on_longest_path(joined, scaled(joined, faster))
    assert own.sum() + (3 + seed % 2) * 5 * US * batches == pytest.approx(then)  # in a stage or both, there, and back

    shorter = [ranks[0], told({**programs, 1: programs[1][:-1]}, transfer, groups, {}, {})[1], ranks[2]]
    matched = match(shorter, 4)  # rank 1 has not as many exchanges as rank 0
    alone = build(shorter, matched, find_waits(matched, shorter), align(matched, 3))
    assert with_twins(alone) is alone


def test_operations_that_wait_for_each_other_in_a_circle_are_told() -> None:
    """Rank 0 does a then b, rank 1 b then a: no such job can run, so the match must be wrong."""
    ranks = told({0: ["dp/1", "dp/2"], 1: ["dp/1", "dp/2"]}, {"dp/1": 5, "dp/2": 5}, [group([0, 1], None, "dp")])
    names = ranks[1].operations.name
    crossed = replace(
        ranks[1], operations=replace(ranks[1].operations, name=replace(names, codes=names.codes[::-1].copy()))
    )
    matched = match([ranks[0], crossed], 2)
    job = build([ranks[0], crossed], matched, find_waits(matched, ranks), align(matched, 2))
    assert job.looped.tolist() == [True, True]


# --- what-if over several ranks: the language, and its answers worked out by hand ------------------------------------


#: Four ranks of one group do this, then a collective of 10 µs, five times over; before it all come together.
DATA = (Work(60, 20), Work(60, 20), Work(100, 20), Work(60, 20))
#: Both ways of the link take twice as long as their peers do.
LINK = LinkPaces(
    type=Labels.of(["allReduce"] * 2), group=Labels.of(["dp"] * 2), source=np.array([0, 1]), target=np.array([1, 0]),
    now=np.array([100_000] * 2), then=np.array([50_000.0] * 2), judged=np.array([True] * 2),
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


def saved(study: JobStudy, expression: str) -> float:
    answer = predict(study, expression)
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
    assert saved(replace(job(*DATA), paces=LINK), "link:0-1=peers") == pytest.approx(30)


def test_a_host_that_may_be_ahead_gains_between_two_bounds() -> None:
    """Half of the waiting for it goes at least, all of it at most: 50 to 100 µs."""
    answer = predict(job(*DATA), "rank:2:host*0.5")
    assert (answer.least / US, answer.most / US) == (pytest.approx(50), pytest.approx(100))


def test_what_was_waited_for_ranks_that_were_not_loaded_is_shortened_by_no_network() -> None:
    """Of 10 µs, six times, that may all be transfer or waiting, 2 are for others: at most half of 8 is saved."""
    study = job(*DATA)
    known = np.zeros(len(study.waits.known), np.bool_)
    study = replace(study, waits=replace(study.waits, known=known, absent=np.full(len(known), 2 * US)))
    answer = predict(study, "comm*0.5")
    assert (answer.saved / US, answer.least / US, answer.most / US) == pytest.approx((0, 0, 6 * 4))


def test_a_slower_host_is_no_gain_within_any_bound() -> None:
    answer = predict(job(*DATA), "host*2")
    assert answer.saved / US == answer.least / US == answer.most / US == pytest.approx(-100)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("rank:9=median", "rank 9 was not loaded"),
        ("rank:9*0.5", "rank 9 was not loaded"),
        ("stage:1*0.5", "there is no stage 1"),
        ("link:0-1=peers", "has no peers"),
        ("link:0-9=peers", "has no peers"),
        ("rank:2=median,stage:3*0.5", "there is no stage 3"),
    ],
)
def test_what_is_not_there_is_said(expression: str, reason: str) -> None:
    answer = predict(job(*DATA), expression)
    assert reason in str(answer.reason) and answer.saved == 0


def test_a_rank_alone_in_its_stage_has_no_peers() -> None:
    groups = [group([0, 1], "pp", "pp")]
    study = study_job(told({0: ["pp/0"], 1: [Work(9), "pp/0"]}, {"pp/0": 5}, groups), load_thresholds())
    assert study is not None
    assert "no peers" in str(predict(study, "rank:1=median").reason)


@pytest.mark.parametrize("expression", ["host*0.5", "rank:2:host*0.5"])
def test_host_time_that_is_not_recorded_cannot_change(expression: str) -> None:
    assert "launches are not recorded" in str(predict(job(*DATA, host_known=False), expression).reason)


def test_a_replay_that_misses_the_job_gives_no_figures() -> None:
    answer = predict(replace(job(*DATA), usable=False), "compute*0.5")
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


# --- clocks that drift ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ppm", [-47.0, 0.0, 13.0, 82.8])
def test_a_stretch_that_is_all_work_has_no_rest_however_its_clock_drifts(ppm: float) -> None:
    """Nothing but compute and waiting for hosts: the rest is 0 of each rank, not a rounded bit more or less."""
    random = Random(3)
    programs: Programs = {r: [] for r in range(2)}
    for n in range(40):
        for program in programs.values():
            program += [Work(random.randint(1, 99_999), random.randint(1, 99_999)), f"all/{n}"]
    ranks = told(programs, {f"all/{n}": 7 for n in range(40)}, [group([0, 1], "dp", "all")])
    matched = match(ranks, 2)
    clocks = replace(align(matched, 2), drift=np.array([0.0, ppm * 1e-6]))
    job = build(ranks, matched, find_waits(matched, ranks), clocks)
    assert track_totals(job)[:, 2].tolist() == [0, 0]
    change = calmed(job, np.array([0, 1]))
    assert all(np.isfinite(part).all() for part in (change.to_start, change.to_block, change.tail) if part is not None)

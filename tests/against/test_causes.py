"""Of two jobs: what slows each of them is said before where it shows, and is one finding, whoever it is told of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from clusters import MS, finding, pipeline_job, result_of
from msgspec.structs import replace

from npuperf.against.aligned import finding_changes
from npuperf.against.causes import cause_changes, cause_sentence
from npuperf.base.messages import Message, ns, say, text
from npuperf.model.job_result import ClusterReplay, Root, RootKind
from npuperf.model.result import Finding, Result


def slow_rank(rank: int, ms: float) -> Message:
    return say("rank {rank} computes {more} longer per step than its peers, and they wait for it",
               rank=rank, more=ns(ms * MS))  # fmt: skip


def root(rank: int, least: float, most: float, kind: RootKind = "rank") -> Root:
    """A root that costs so many ms of a step."""
    return Root(kind=kind, ranks=[rank], why="compute", wait_ns=0, share=0.5, where=None, title=slow_rank(rank, most),
                gain_ns_per_step=(round(least * MS), round(most * MS)))  # fmt: skip


def job(*roots: Root) -> Result:
    return result_of(replace(pipeline_job(), roots=list(roots)))


def told(old: Sequence[Result], new: Sequence[Result]) -> list[str]:
    return [text(cause_sentence(cause)) for cause in cause_changes(old, new)]


def test_causes_are_new_gone_or_cost_another_time() -> None:
    old = job(root(1, 4, 5), root(2, 1, 2), root(0, 7, 8))
    new = job(root(3, 9, 10), root(2, 1.9, 3), root(0, 3, 4))
    found = [(c.ranks, c.change, c.old_ns, c.new_ns, c.delta_ns) for c in cause_changes([old], [new])]
    assert found == [  # by how much they change: 9.5, 4.5 and 4 ms; what rank 2 costs may be the same
        ([3], "added", None, (9 * MS, 10 * MS), (9 * MS, 10 * MS)),
        ([1], "removed", (4 * MS, 5 * MS), None, (-5 * MS, -4 * MS)),
        ([0], "changed", (7 * MS, 8 * MS), (3 * MS, 4 * MS), (-5 * MS, -3 * MS)),
    ]
    assert told([old], [new]) == [
        "rank 3 computes 10.00 ms longer per step than its peers, and they wait for it (new: +9.00 to +10.00 ms per "
        "step)",
        "rank 1 computes 5.00 ms longer per step than its peers, and they wait for it (gone: -5.00 to -4.00 ms per "
        "step)",
        "rank 0 computes 8.00 ms longer per step than its peers, and they wait for it (on both sides: -5.00 to -3.00 "
        "ms per step)",
    ]
    assert [c.delta_ns for c in cause_changes([new], [old])] == [
        (-10 * MS, -9 * MS), (4 * MS, 5 * MS), (3 * MS, 5 * MS)
    ]  # fmt: skip


def test_ranks_that_join_a_cause_change_it() -> None:
    """Rank 3 costs 4 to 5 ms, then ranks 3 and 5 together 8 to 9: that is one cause, of which ranks changed."""
    both = replace(root(3, 8, 9), ranks=[3, 5], title=say("ranks 3, 5"))
    old, new = job(root(3, 4, 5), root(2, 1, 2)), job(both, root(7, 2, 3))
    assert [(c.ranks, c.change, c.old_ns, c.new_ns) for c in cause_changes([old], [new])] == [
        ([3, 5], "changed", (4 * MS, 5 * MS), (8 * MS, 9 * MS)),
        ([7], "added", None, (2 * MS, 3 * MS)),
        ([2], "removed", (1 * MS, 2 * MS), None),
    ]
    assert told([old], [new])[0] == "ranks 3, 5; before, it was rank 3 (on both sides: +3.00 to +5.00 ms per step)"
    assert told([new], [old])[0] == "ranks 3, 5; now it is rank 3 (on both sides: -5.00 to -3.00 ms per step)"
    apart = job(root(3, 1, 2), root(5, 2, 3))  # which cost 3 to 5 ms together
    assert told([new], [apart])[0] == "ranks 3, 5; now it is rank 5 (on both sides: -6.00 to -3.00 ms per step)"


@pytest.mark.parametrize("kind", ["jitter", "schedule", "unknown"])
def test_what_nobody_can_mend_is_no_cause(kind: RootKind) -> None:
    assert not cause_changes([job()], [job(root(3, 9, 10, kind))])


def test_without_a_replay_on_both_sides_nothing_is_told() -> None:
    new = job(root(3, 9, 10))
    assert new.cluster is not None
    missed = ClusterReplay(usable=False, error=0.2, measured_ns=MS, reason=None)
    for replay in (None, missed):
        untold = replace(new, cluster=replace(new.cluster, roots=[], replay=replay))
        assert not cause_changes([untold], [new]) and not cause_changes([new], [untold])
    assert not cause_changes([result_of(None)], [new]) and not cause_changes([job(), result_of(None)], [new])


def test_of_several_runs_a_cause_costs_the_mean() -> None:
    (found,) = cause_changes([job(), job()], [job(root(3, 9, 10)), job()])
    assert found.new_ns == (4.5 * MS, 5 * MS)


# --- findings ---------------------------------------------------------------------------------------------------------


def with_findings(*findings: Finding) -> Result:
    return result_of(pipeline_job(), findings=list(findings))


def of_slow_rank(rank: int, ms: float = 2) -> Finding:
    return replace(finding("slow_rank", rank), title=slow_rank(rank, ms))


def changes(old: Result, new: Result) -> list[tuple[str, int | None, str]]:
    return [(found.rule, found.rank, found.change) for found in finding_changes([old], [new])[0]]


def test_a_finding_of_the_job_is_the_same_whatever_rank_it_is_told_of() -> None:
    """Which rank communicates most is chance where all do alike."""
    old, new = (with_findings(finding("exposed_communication", rank)) for rank in (1, 0))
    assert finding_changes([old], [new]) == ([], 1)
    assert changes(with_findings(), new) == [("exposed_communication", None, "added")]


def test_a_cause_that_moved_is_one_that_changed() -> None:
    (found,), unchanged = finding_changes([with_findings(of_slow_rank(1))], [with_findings(of_slow_rank(3))])
    assert (found.change, unchanged) == ("changed", 0)
    assert text(found.old).startswith("rank 1 ") and text(found.new).startswith("rank 3 ")


def test_causes_are_held_against_themselves_in_whatever_order_they_stand() -> None:
    old = with_findings(of_slow_rank(1))
    new = with_findings(of_slow_rank(3, 5), of_slow_rank(1, 2.5))
    (found,), unchanged = finding_changes([old], [new])
    assert (found.change, unchanged) == ("added", 1) and text(found.new).startswith("rank 3 ")


def test_a_cause_stands_before_where_it_shows() -> None:
    new = with_findings(finding("exposed_communication", 0), of_slow_rank(3))
    assert [rule for rule, _, _ in changes(with_findings(), new)] == ["slow_rank", "exposed_communication"]


def test_what_is_said_alike_of_several_ranks_is_one_change() -> None:
    new = with_findings(*(finding("ai_cpu", rank) for rank in range(4)), finding("casts", 2))
    found = finding_changes([with_findings()], [new])[0]
    assert [(f.rule, f.rank, f.ranks) for f in found] == [("ai_cpu", 0, [0, 1, 2, 3]), ("casts", 2, [2])]

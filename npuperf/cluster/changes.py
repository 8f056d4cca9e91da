"""What-if over all ranks: the job run with changes, as :mod:`npuperf.cluster.job_grammar` names them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.cluster.job_grammar import read
from npuperf.cluster.job_replay import JobChange, JobProgram, run
from npuperf.cluster.judge import JobStudy
from npuperf.cluster.links import peer_factors
from npuperf.cluster.repair import faster_link, level_rank, scaled
from npuperf.documents.cluster import Link
from npuperf.messages import Message, say
from npuperf.model.labels import F64


class Answer(Struct, frozen=True):
    """What a change of the job saves (ns of its length), and between which limits; or why nothing can be told."""

    saved: float = 0.0
    least: float = 0.0
    most: float = 0.0
    reason: Message | None = None


class _Plan(Struct):
    """What an expression changes: factors of each rank's time by what fills it, and everything else.

    ``host_least``: the same as ``host`` where a faster host gets ahead at once, and nothing waits for it any more.
    """

    compute: F64
    host: F64
    host_least: F64
    other: F64
    change: JobChange

    @classmethod
    def of(cls, ranks: int) -> _Plan:
        compute, host, host_least, other = np.ones((4, ranks))
        return cls(compute, host, host_least, other, JobChange())

    @property
    def sure(self) -> bool:
        return bool((self.host == self.host_least).all())

    def scale_host(self, places: Sequence[int], factor: float) -> None:
        self.host[places] *= factor
        self.host_least[places] *= 0.0 if factor < 1 else factor

    def with_host(self, job: JobProgram, host: F64) -> JobChange:
        """Return the whole change."""
        return scaled(job, self.compute, self.change, host=host, other=self.other)


def predict(study: JobStudy, links: Sequence[Link], expression: str) -> Answer:
    """Run the job with a change. Where the replay abstains, or data is missing, the answer says so."""
    if not study.usable:
        return Answer(reason=say("the replay over all ranks misses the measured time, so it gives no figures"))
    plan = _Plan.of(len(study.ranks))
    for part in expression.split(","):
        found = read(part.strip())
        assert found is not None, "expressions are checked before"
        reason = _add(study, links, found, plan)
        if reason is not None:
            return Answer(reason=reason)
    changes = [JobChange(), plan.with_host(study.job, plan.host)]
    if not plan.sure:
        changes.append(plan.with_host(study.job, plan.host_least))
    length = run(study.job, changes).length
    saved = float(length[0] - length[1])
    slack = study.error * study.length
    return Answer(saved, saved - slack, max(saved, float(length[0] - length[-1])) + slack)


def _add(study: JobStudy, links: Sequence[Link], found: re.Match[str], plan: _Plan) -> Message | None:
    """Add one part of an expression to a plan; the reason where it cannot be told."""
    words = found.groupdict()
    if words.get("rank") is not None:
        return _rank(study, words, plan)
    if words.get("stage") is not None:
        return _stage(study, words, plan)
    if words.get("a") is not None:
        return _link(study, links, int(words["a"]), int(words["b"]), plan)
    factor, part = float(words["factor"]), words["part"]
    if part == "comm":
        transfer = study.job.transfer if plan.change.transfer is None else plan.change.transfer
        faster = np.where(study.waits.known, transfer * factor, transfer)
        plan.change = replace(plan.change, transfer=faster)
        return None
    if part == "host":
        return _host(study, factor, plan, range(len(study.ranks)))
    plan.compute *= factor
    return None


def _host(study: JobStudy, factor: float, plan: _Plan, places: Sequence[int]) -> Message | None:
    if any(study.ranks[p].host_ns is None for p in places):
        return say("launches are not recorded on every rank, so host time cannot be changed (record with npuperf "
                   "profile --level 1)")  # fmt: skip
    plan.scale_host(places, factor)
    return None


def _rank(study: JobStudy, words: dict[str, str | None], plan: _Plan) -> Message | None:
    number = int(words["rank"] or 0)
    place = next((i for i, r in enumerate(study.ranks) if r.rank == number), None)
    if place is None:
        return say("rank {rank} was not loaded", rank=number)
    if words["median"]:
        stage = study.stages.of
        peers = np.flatnonzero((stage == stage[place]) & (np.arange(len(stage)) != place))
        if not len(peers):
            return say("rank {rank} has no peers of its stage", rank=number)
        plan.change = _joined(study.job, plan.change, level_rank(study.job, place, peers))
        return None
    factor = float(words["factor"] or 1)
    if words["part"] == "host":
        return _host(study, factor, plan, [place])
    plan.compute[place] *= factor
    if words["part"] is None:
        for factors in (plan.host, plan.host_least, plan.other):
            factors[place] *= factor
    return None


def _joined(job: JobProgram, change: JobChange, other: JobChange) -> JobChange:
    """Put a rank's own change on top of others: its stretches replace theirs."""
    parts = {}
    for name in ("to_start", "to_block", "tail"):
        before, own, now = getattr(change, name), getattr(job, name).length, getattr(other, name)
        parts[name] = now if before is None else np.where(now != own, now, before)
    return replace(change, **parts)


def _stage(study: JobStudy, words: dict[str, str | None], plan: _Plan) -> Message | None:
    stage = int(words["stage"] or 0)
    if stage not in study.stages.of.tolist():
        return say("there is no stage {stage}: the groups of this job name {count}", stage=stage,
                   count=study.stages.count)  # fmt: skip
    plan.compute[study.stages.of == stage] *= float(words["factor"] or 1)
    return None


def _link(study: JobStudy, links: Sequence[Link], a: int, b: int, plan: _Plan) -> Message | None:
    """Let a link take the time that its peers would."""
    factors = peer_factors(links, (a, b), [frozenset(g.ranks) for g in study.matched.groups])
    places = [i for i, r in enumerate(study.ranks) if r.rank in (a, b)]
    if not factors or len(places) != 2:
        return say("link {a}-{b} has no three peers to be like", a=a, b=b)
    plan.change = faster_link(study.job, (places[0], places[1]), factors, plan.change)
    return None

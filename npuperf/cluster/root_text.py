"""A root cause in words: what it is, what it costs, where to look, and what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

import numpy as np

from npuperf.cluster.judge import JobStudy
from npuperf.cluster.root_causes import RootCause
from npuperf.cluster.summary import RankSummary
from npuperf.cluster.waits import kind_name
from npuperf.documents.cluster import Root
from npuperf.messages import Message, Quantity, Series, ns, say, say_n, series
from npuperf.messages import share as part

#: Operators that are named.
_OPERATORS: Final = 3
#: Ranks that are named.
_RANKS: Final = 8
#: What an operator takes beyond its peers must be this part of what the rank does.
_NOTABLE: Final = 0.05


def root(study: JobStudy, cause: RootCause, wait: int, share: float, gain: tuple[int, int] | None) -> Root:
    """Return a cause as it stands in the document."""
    operators = _operators(study, cause)
    title, next_ = _WORDS[cause.kind](study, cause)
    ranks = [study.ranks[p] for p in cause.places]
    group = study.matched.groups[cause.group] if cause.group is not None else None
    return Root(
        kind=cause.kind,
        ranks=[r.rank for r in ranks],
        why=cause.why,
        wait_ns=wait,
        share=share,
        gain_ns_per_step=gain,
        where=next((o.where for r in ranks for o in r.operators if o.where and _label(o) in operators), None)
        or next((r.where for r in ranks if r.where), None),
        stage=cause.stage,
        group=group.id if group else None,
        operators=list(operators),
        title=title,
        next=next_,
        evidence={"excess_ns_per_step": round(cause.excess / study.step_count), **_rounded(cause, study)},
    )


def _rounded(cause: RootCause, study: JobStudy) -> dict[str, int]:
    return {f"{why}_excess_ns_per_step": round(value / study.step_count) for why, value in cause.parts.items()}


def _label(operator: object) -> str:
    shapes = getattr(operator, "shapes", None)
    name = str(getattr(operator, "type", ""))
    return f"{name} {shapes.strip(chr(34))}" if shapes else name


def _operators(study: JobStudy, cause: RootCause) -> tuple[str, ...]:
    """Return the operators that take longer on the cause's ranks than on the others, costliest first."""
    if cause.kind not in ("rank", "stage") or cause.why != "compute":
        return ()
    mine = [study.ranks[p] for p in cause.places if study.ranks[p].operators]
    others = _peers(study, cause)
    if not mine or not others:
        return ()
    own, theirs = _times(mine, sum), _times(others, _middle)
    more = {name: total / len(mine) - theirs.get(name, 0.0) for name, total in own.items()}
    least = _NOTABLE * cause.excess
    return tuple(sorted((n for n, v in more.items() if v > max(least, 0)), key=lambda n: -more[n])[:_OPERATORS])


def _peers(study: JobStudy, cause: RootCause) -> list[RankSummary]:
    stage = study.stages.of
    own = set(cause.places)
    if cause.kind == "stage":
        return [r for i, r in enumerate(study.ranks) if i not in own and r.operators]
    return [r for i, r in enumerate(study.ranks) if i not in own and stage[i] == stage[cause.places[0]] and r.operators]


def _middle(values: list[float]) -> float:
    return float(np.median(values))


def _times(ranks: list[RankSummary], summed: Callable[[list[float]], float]) -> dict[str, float]:
    totals: dict[str, list[float]] = defaultdict(list)
    for rank in ranks:
        for operator in rank.operators:
            totals[_label(operator)].append(float(operator.total_ns))
    return {name: float(summed(values)) for name, values in totals.items()}


def _rank(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    if len(cause.places) > 1:
        return _ranks(study, cause)
    summary = study.ranks[cause.places[0]]
    more = ns(round(cause.excess / study.step_count))
    what = {
        "compute": say("rank {rank} computes {more} longer per step than its peers, and they wait for it",
                       rank=summary.rank, more=more),
        "host": say("rank {rank} waits {more} longer per step for its host than its peers, and they wait for it",
                    rank=summary.rank, more=more),
    }.get(cause.why, _elsewhere(summary, more))  # fmt: skip
    next_ = {
        "compute": _compare(summary),
        "host": say("look at what its host does while the device waits: npuperf analyze PATH --rank {rank}",
                    rank=summary.rank),
    }.get(cause.why, _look_elsewhere(summary))  # fmt: skip
    return what, next_


def _ranks(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    """Say by how much ranks that are slow alike are slow."""
    summary = study.ranks[cause.places[0]]
    ranks, more = _listed(study, cause), ns(round(cause.excess / study.step_count))
    what = {
        "compute": say("ranks {ranks} each compute about {more} longer per step than their peers, which wait for them",
                       ranks=ranks, more=more),
        "host": say("ranks {ranks} each wait about {more} longer per step for their hosts than their peers, which wait "
                    "for them", ranks=ranks, more=more),
    }.get(cause.why, say("ranks {ranks} each take about {more} longer per step than their peers, which wait for them; "
                         "their compute is not longer", ranks=ranks, more=more))  # fmt: skip
    return what, say("see what they share (machine, data), then look at one: npuperf analyze PATH --rank {rank}",
                     rank=summary.rank)  # fmt: skip


def _listed(study: JobStudy, cause: RootCause) -> Series:
    """Return the numbers of a cause's ranks, of many only the first."""
    numbers: list[str | int] = [study.ranks[p].rank for p in cause.places]
    return series(numbers if len(numbers) <= _RANKS else [*numbers[:_RANKS], "…"])


def _elsewhere(summary: RankSummary, more: Quantity) -> Message:
    """Say that a rank is longer in neither compute nor, as far as launches tell, in waiting for its host."""
    if summary.host_ns is None:
        return say("rank {rank} takes {more} longer per step than its peers, and they wait for it; its compute is not "
                   "longer, and launches that would tell more are not recorded",
                   rank=summary.rank, more=more)  # fmt: skip
    return say("rank {rank} takes {more} longer per step than its peers, and they wait for it: mostly neither in "
               "compute nor waiting for its host, but in copies or waits between streams",
               rank=summary.rank, more=more)  # fmt: skip


def _look_elsewhere(summary: RankSummary) -> Message:
    if summary.host_ns is not None:
        return say("look at its copies and streams: npuperf analyze PATH --rank {rank}", rank=summary.rank)
    if summary.kineto:
        return say("record CPU activities, too: they hold the launches")
    return say("record launches: npuperf profile --activities cpu,npu --level 1")


def _compare(summary: RankSummary) -> Message:
    """Say what to compare of a rank that computes longer; AI Cores are an NPU's."""
    if summary.kineto:
        return say("compare its data and its shapes with its peers': npuperf analyze PATH --rank {rank}",
                   rank=summary.rank)  # fmt: skip
    return say("compare its data, its shapes and its AI Core frequency with its peers': npuperf analyze PATH "
               "--rank {rank}", rank=summary.rank)  # fmt: skip


def _stage(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    title = say_n("stage {stage} (rank {ranks}) computes {more} longer per step than the stages' usual pace",
                  "stage {stage} (ranks {ranks}) computes {more} longer per step than the stages' usual pace",
                  len(cause.places), stage=cause.stage, ranks=_listed(study, cause),
                  more=ns(round(cause.excess / study.step_count)))  # fmt: skip
    return title, say("move layers from stage {stage} to the others: look at the stage split, not at the network",
                      stage=cause.stage)  # fmt: skip


def _group(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    group = study.matched.groups[cause.group or 0]
    title = say("group {group} (ranks {ranks}) transfers {more} longer per step than groups of its kind",
                group=kind_name(group.kind, group.id), ranks=series(group.ranks[:8]),
                more=ns(round(cause.excess / study.step_count)))  # fmt: skip
    return title, say("look at its links: npuperf analyze PATH --table links")


def _link(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    a, b = (study.ranks[p].rank for p in cause.places)
    title = say("the link between ranks {a} and {b} is slower than its peers: both ways take {more} longer per step",
                a=a, b=b,
                more=ns(round(cause.excess / study.step_count)))  # fmt: skip
    return title, say("check this link, then compare again: npuperf analyze PATH --table links")


def _schedule(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    micro = study.micro_batches
    stages = study.stages.count
    if micro is None:
        return say("the pipeline's own bubble over {stages} stages: nobody's fault", stages=stages), None
    title = say("the pipeline's own bubble ({micro} micro-batches on {stages} stages): nobody's fault",
                micro=micro, stages=stages)  # fmt: skip
    return title, say("more micro-batches per step make it smaller (now {part} of the pipeline's time)",
                      part=part((stages - 1) / (micro + stages - 1)))  # fmt: skip


def _jitter(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    if cause.why == "compute":
        return say("stages are not quite equal, but making them so saves little"), None
    if study.step_count < 2:
        return say("no rank stands out; one step cannot tell what lasts"), None
    return say("now one rank is late, now another: no lasting cause"), None


def _unknown(study: JobStudy, cause: RootCause) -> tuple[Message, Message | None]:
    if cause.places:
        title = say_n("rank {ranks} waits for the others in every step: most ranks take longer than it does",
                      "ranks {ranks} wait for the others in every step: most ranks take longer than these",
                      len(cause.places), ranks=_listed(study, cause))  # fmt: skip
        return title, say("compare their data and shapes with the others': npuperf analyze PATH --rank {rank}",
                          rank=study.ranks[cause.places[0]].rank)  # fmt: skip
    title = say("waits that nothing in these files explains")
    if any(r.kineto for r in study.ranks):
        return title, say("load all ranks of the job, with their launches")
    return title, say("load all ranks of the job, with launches (npuperf profile --level 1)")


_WORDS: Final[dict[str, Callable[[JobStudy, RootCause], tuple[Message, Message | None]]]] = {
    "rank": _rank,
    "stage": _stage,
    "group": _group,
    "link": _link,
    "schedule": _schedule,
    "jitter": _jitter,
    "unknown": _unknown,
}

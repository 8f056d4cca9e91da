"""Root causes of waiting between ranks: a slow rank, an unequal stage, a slow group; replayed, not voted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from npuperf.advise.rule import MATCHED, RankRule, severity
from npuperf.documents.analysis import Finding
from npuperf.documents.cluster import Cluster, Root
from npuperf.messages import Message, say
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

TITLE = say("slow rank")
SOURCE = say(
    "durations of the same operations on all ranks: they end together, so the rank that stayed shortest came last"
)
_REFUTE: Final = {
    "rank": say("the ranks have different work by design, or another rank is last in another recording"),
    "stage": say("another recording, with the same split of layers, has stages of equal length"),
    "link": say("another recording shows this link as fast as its peers"),
    "group": say("another recording shows the same transfer times in all groups of this kind"),
}


def judge(study: JobStudy, cluster: Cluster, thresholds: Thresholds) -> list[Finding]:
    """Return a finding for each root cause that somebody can mend."""
    return [_finding(study, cluster, r, thresholds) for r in cluster.roots if r.kind in _REFUTE and r.gain_ns_per_step]


def _finding(study: JobStudy, cluster: Cluster, root: Root, thresholds: Thresholds) -> Finding:
    gain = root.gain_ns_per_step or (0, 0)
    step = max(cluster.step_ns, 1)
    percent = (100 * gain[0] / step, 100 * gain[1] / step)
    device = next(r.device for r in study.ranks if r.rank == root.ranks[0])
    return Finding(
        rule=RULE.name,
        status="problem",
        severity=severity(percent[1] / 100, thresholds),
        title=root.title,
        evidence={"kind": root.kind, "ranks": root.ranks, "waited_ns": root.wait_ns, **root.evidence},
        gain_ns_per_step=gain,
        gain_pct=percent,
        gain_per="step",
        refute=_REFUTE[root.kind],
        next=_next(root),
        code=None,
        needs=None,
        source=SOURCE,
        rank=root.ranks[0] if root.kind == "rank" and len(root.ranks) == 1 else None,
        device=device,
        preconditions=[MATCHED],
    )


def _next(root: Root) -> Message | None:
    return root.next


RULE = RankRule("slow_rank", TITLE, SOURCE, judge, any_device=True)

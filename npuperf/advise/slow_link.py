"""A link between two ranks that is slower than links of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from npuperf.advise.across import JobSteps, job_finding
from npuperf.advise.rule import Detected, RankRule
from npuperf.documents.analysis import Finding
from npuperf.documents.cluster import Cluster, Link
from npuperf.messages import Message, chain, number, say, say_n
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

NAME: Final = "slow_link"
TITLE = say("slow link")
SOURCE = say(
    "bytes and times of transfers (communication_matrix.json, analysis.db): the link beside those of other pairs of "
    "ranks with the same transport, kind and size of operation"
)
#: Links that lose nearly as much as the worst one may be held up by it: of those the slowest is named.
_AS_MUCH: Final = 0.8
_SHOWN: Final = 10


def judge(links: Sequence[Link], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Name the slowest of the links that lose most; see :func:`npuperf.cluster.links.judge_links`."""
    slow = [link for link in links if link.slow]
    if not slow:
        return None
    lost: dict[tuple[int, int], int] = {}
    for link in slow:
        lost[link.ranks] = lost.get(link.ranks, 0) + link.lost_ns
    pairs = {pair for pair, ns in lost.items() if ns >= _AS_MUCH * max(lost.values())}
    worst = min((link for link in slow if link.ranks in pairs), key=lambda link: (_pace(link), -link.lost_ns))
    gain = job.gain(lost[worst.ranks])
    problem = Detected(
        title=_title(worst, gain, job, len(lost) - 1),
        evidence={"links": [_row(link) for link in sorted(slow, key=lambda link: -link.lost_ns)[:_SHOWN]]},
        gain=gain,
        refute=say(
            "the transfers lie beside compute that takes longer anyway, or the pair is as fast as the others in "
            "another recording"
        ),
        next=_next(worst, job),
    )
    return job_finding(NAME, SOURCE, problem, worst.ranks[0], job, thresholds)


def _pace(link: Link) -> float:
    """Return how fast a link is beside its peers."""
    return link.gb_per_s / link.peers_gb_per_s if link.peers_gb_per_s else 1.0


def _title(link: Link, gain: tuple[int, int], job: JobSteps, others: int) -> Message:
    slow = say(
        "the {transport} link between ranks {first} and {second} moves {rate} GB/s in {kind}, links of other ranks "
        "{peers} GB/s",
        transport=link.transport,
        first=link.ranks[0],
        second=link.ranks[1],
        rate=number(link.gb_per_s),
        kind=link.kind,
        peers=number(link.peers_gb_per_s or 0.0),
    )
    more = say_n("another link is slow, too", "{n} other links are slow, too", others) if others else None
    return chain(slow, job.price(gain), more)


def _next(link: Link, job: JobSteps) -> Message:
    first, second = link.ranks
    if link.transport.upper() == "RDMA":
        return say(
            "hccn_tool -i {device} -stat -g on the hosts of ranks {first} and {second} counts errors and retries of "
            "their ports; then look at cables, optical modules and the switches between them",
            device=job.devices.get(first, 0),
            first=first,
            second=second,
        )
    return say(
        "run the job with ranks {first} and {second} on other devices: if the slow link stays with the devices, have "
        "them checked; if it moves with the ranks, look at what else uses it then",
        first=first,
        second=second,
    )


def _row(link: Link) -> dict[str, Any]:
    return {
        "ranks": list(link.ranks),
        "transport": link.transport,
        "kind": link.kind,
        "size_class": link.size_class,
        "gb_per_s": link.gb_per_s,
        "peers_gb_per_s": link.peers_gb_per_s,
        "reference_gb_per_s": link.reference_gb_per_s,
        "lost_ns": link.lost_ns,
    }


def unsaid(cluster: Cluster) -> list[Link]:
    """Return the links that no root is about: a slow one holds up all links of its groups, and is said once."""
    roots = [frozenset(r.ranks) for r in cluster.roots if r.kind == "link" and r.gain_ns_per_step]
    said = [frozenset(g.ranks) for g in cluster.groups for pair in roots if pair <= frozenset(g.ranks)] + roots
    return [link for link in cluster.links if not any(frozenset(link.ranks) <= ranks for ranks in said)]


def _ask(study: JobStudy, cluster: Cluster, thresholds: Thresholds) -> list[Finding]:
    del study
    found = judge(unsaid(cluster), JobSteps.of(cluster), thresholds)
    return [found] if found else []


RULE = RankRule(NAME, TITLE, SOURCE, _ask)

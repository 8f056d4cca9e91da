"""The communication of one rank alone: between which bounds its transfers lie, when nobody knows who waited for whom.

A stay is waiting and transfer. What an operation moved over one transport took at least as long as it did on one of its
links: the exporter sums links that run side by side, so the sum is divided by their number. Of transports whose links
cannot be counted, and of RDMA, whose times hold waiting for the other end, nothing is certain.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import CommunicationBounds
from npuperf.model.communication import LinkUse
from npuperf.model.groups import alike
from npuperf.model.labels import I64

#: Its times run from the first payload to the end of the closing task, and so hold waiting.
_WAITS: Final = "RDMA"


def bounds_alone(summary: RankSummary, exposed_ns: int) -> CommunicationBounds:
    """Return the bounds of a rank's transfers. ``exposed_ns``: its communication that no compute hides."""
    least, stay = least_transfer(summary), summary.operations.stay
    exposed = summary.exposed_end - summary.exposed_start
    own = np.bincount(summary.exposed_op, weights=exposed, minlength=len(stay)).astype(np.int64)
    # Wherever in its stay a transfer lies, what does not fit into the hidden part is exposed.
    certain = int(np.maximum(least - (stay - own), 0).sum()) if summary.exposed_known else 0
    return CommunicationBounds(
        transfer_least_ns=int(least.sum()),
        transfer_most_ns=int(stay.sum()),
        exposed_least_ns=min(certain, exposed_ns),
        exposed_most_ns=exposed_ns,
    )


def least_transfer(summary: RankSummary) -> I64:
    """Return how much of each operation's stay is transfer for certain, ns."""
    moved, operations = summary.bandwidth, summary.operations
    least = np.zeros(len(operations), np.int64)
    if not len(moved):
        return least
    row = alike(moved.op, moved.transport.codes)
    first = np.unique(row, return_index=True)[1]
    op, transport = moved.op[first], moved.transport.take(first)
    count = _counts(summary.links)
    type_, group = operations.type.take(op), operations.group.take(op)
    beside = np.array([count.get((type_[i], group[i], transport[i]), 0) for i in range(len(op))], np.int64)
    spent = np.bincount(row, weights=moved.ns).astype(np.int64)
    np.maximum.at(least, op, np.where(beside > 0, spent // np.maximum(beside, 1), 0))
    return np.minimum(least, operations.stay)


def links_beside(links: LinkUse) -> int:
    """Return how many links the rank's widest operation uses side by side: it has at least as many partners."""
    return max(_links_of(links), default=0)


def _counts(links: LinkUse) -> dict[tuple[str | None, str | None, str | None], int]:
    """Return by type, group and transport how many links an operation uses side by side; without RDMA."""
    if not len(links):
        return {}
    kind = alike(links.type.codes, links.group.codes, links.transport.codes)
    first = np.unique(kind, return_index=True)[1].tolist()
    names = [(links.type[i], links.group[i], links.transport[i]) for i in first]
    return {n: c for n, c in zip(names, _links_of(links), strict=True) if (n[2] or "").upper() != _WAITS}


def _links_of(links: LinkUse) -> list[int]:
    """Return the same as a list, in the order of :func:`npuperf.cluster.alike.alike`: a row is one link's."""
    if not len(links):
        return []
    kind = alike(links.type.codes, links.group.codes, links.transport.codes)
    used = alike(kind, links.step, links.name.codes)
    _, first, rows = np.unique(used, return_index=True, return_counts=True)
    widest = np.zeros(int(kind.max()) + 1, np.int64)
    np.maximum.at(widest, kind[first], rows)
    return [int(n) for n in widest]

"""Charts of a job as rows: why its ranks wait, its stages, its groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.documents.analysis import Result
from npuperf.documents.cluster import ClusterGroup, Root, Stage
from npuperf.messages import Message, chain, ns, say, say_n, share
from npuperf.render.cluster_rows import ranges, roots_by_gain
from npuperf.render.cluster_words import pipeline_lines, replay_line, root_line, taking_line, waiting_line
from npuperf.webpage.bars import BarRow, Piece, bars
from npuperf.webpage.chart import Chart, plain, sentences
from npuperf.webpage.svg import element, legend
from npuperf.webpage.whereabouts import Whereabouts

_ROOTS, _STAGES, _KINDS = 12, 32, 15
_TRANSFER: Final = ("c-transfer", say("transfer"))
_WAIT: Final = ("c-comm_wait", say("waiting"))


def roots(result: Result, where: Whereabouts) -> Chart | None:
    """Draw the root causes of waiting, by how much of all waiting each explains."""
    cluster = result.cluster
    if cluster is None or not cluster.roots:
        return None
    shown = roots_by_gain(cluster)[:_ROOTS]
    rows = [
        BarRow(plain(root_line(root, cluster)), plain(share(root.share)), (Piece(0, root.share, "c-comm_wait"),),
               _note(root))
        for root in shown
    ]  # fmt: skip
    some = len(shown) < len(cluster.roots)
    caption = sentences(
        waiting_line(cluster),
        say("the whole width is all of it"),
        replay_line(cluster) if any(root.gain_ns_per_step for root in shown) else None,
        say("{shown} of {all} causes", shown=len(shown), all=len(cluster.roots)) if some else None,
    )
    body = bars(rows, 0, max(1.0, *(root.share for root in shown)))
    return Chart("roots", say("why ranks wait for each other"), caption, body, wide=True)


def _note(root: Root) -> str:
    taking = taking_line(root)
    return plain(taking) if taking else ""


def stages(result: Result, where: Whereabouts) -> Chart | None:
    """Draw what every stage of the pipeline computes in a step, and how long it waits for the others."""
    cluster = result.cluster
    if cluster is None or not cluster.stages:
        return None
    steps = max(cluster.steps, 1)
    shown = cluster.stages[:_STAGES]
    longest = max(stage.compute_ns + stage.bubble_ns for stage in shown)
    if not longest:
        return None
    caption = sentences(
        *pipeline_lines(cluster),
        say("{shown} of {all} stages", shown=len(shown), all=len(cluster.stages))
        if len(shown) < len(cluster.stages) else None,
    )  # fmt: skip
    words = (("c-compute", plain(say("compute"))), ("c-comm_wait", plain(say("bubble: waiting for other stages"))))
    body = element("div", legend(words), bars([_stage(s, steps) for s in shown], 0, longest))
    return Chart("stages", say("stages of the pipeline, per step"), caption, body)


def _stage(stage: Stage, steps: int) -> BarRow:
    ranks = say_n("rank {ranks}", "ranks {ranks}", len(stage.ranks), ranks=ranges(stage.ranks))
    value = say("compute {compute}, bubble {bubble}", compute=ns(stage.compute_ns / steps),
                bubble=ns(stage.bubble_ns / steps))  # fmt: skip
    both = stage.compute_ns + stage.bubble_ns
    pieces = (Piece(0, stage.compute_ns, "c-compute"), Piece(stage.compute_ns, both, "c-comm_wait", look="stripes"))
    return BarRow(plain(say("stage {stage}", stage=stage.stage)), plain(value), pieces, plain(ranks))


def groups(result: Result, where: Whereabouts) -> Chart | None:
    """Draw transfer and waiting by the kind of process group."""
    cluster = result.cluster
    if cluster is None:
        return None
    kinds: dict[str | None, list[ClusterGroup]] = {}
    for group in cluster.groups:
        kinds.setdefault(group.kind, []).append(group)
    ranked = sorted(kinds.items(), key=lambda item: -sum(g.transfer_ns + g.wait_ns for g in item[1]))[:_KINDS]
    longest = sum(g.transfer_ns + g.wait_ns for g in ranked[0][1]) if ranked else 0
    if not longest:
        return None
    steps = max(cluster.steps, 1)
    caption = sentences(
        say("of all ranks together, per step"),
        _least(sum(not group.complete for group in cluster.groups)),
    )
    words = [(colour, plain(said)) for colour, said in (_TRANSFER, _WAIT)]
    rows = [_kind(kind, found, steps) for kind, found in ranked]
    body = element("div", legend(words), bars(rows, 0, longest))
    return Chart("groups", say("communication by kind of group"), caption, body)


def _least(incomplete: int) -> Message | None:
    """Say that waits are lower bounds where ranks of groups are missing."""
    if not incomplete:
        return None
    return say_n("{n} group lacks ranks that were not loaded: it may wait longer",
                 "{n} groups lack ranks that were not loaded: they may wait longer", incomplete)  # fmt: skip


def _kind(kind: str | None, found: Sequence[ClusterGroup], steps: int) -> BarRow:
    transfer, wait = sum(g.transfer_ns for g in found), sum(g.wait_ns for g in found)
    value = say("transfer {transfer}, waiting {wait}", transfer=ns(transfer / steps), wait=ns(wait / steps))
    operations = say_n("{n} operation", "{n} operations", sum(g.operations for g in found))
    note = chain(say_n("{n} group", "{n} groups", len(found)), operations, by=" · ")
    pieces = (Piece(0, transfer, "c-transfer"), Piece(transfer, transfer + wait, "c-comm_wait", look="stripes"))
    name = say("{kind}", kind=kind) if kind else say("kind not known")
    return BarRow(plain(name), plain(value), pieces, plain(note))

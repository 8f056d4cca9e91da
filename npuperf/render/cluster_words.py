"""What is said of a job in every format: how long its step is, why its ranks wait, its pipeline, links and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from npuperf.documents.cluster import Cluster, Link, Pipeline, Root, Stage
from npuperf.messages import Message, Quantity, chain, factor, ns, number, say, say_n, series, share
from npuperf.render.cluster_rows import Slice, outliers_first, ranges, roots_by_gain

#: Clocks are worth a line where arrivals closer than this cannot be put in order: a share of the step.
_CLOCKS: Final = 0.001
#: Arrivals closer than so many residuals cannot be put in order.
_RESIDUALS: Final = 3
_STAGES: Final = 4
#: Causes that are somewhere, so that they can be repaired there.
_REPAIRABLE: Final = ("rank", "stage", "link", "group")
#: A cause of less waiting than this, whose repair saves nothing, is not worth its room on one screen.
_SMALL: Final = 0.01


def job_line(cluster: Cluster) -> Message:
    """Say how many ranks and steps there are, and how long a step is."""
    n, world = len(cluster.ranks), cluster.world_size or 0
    ranks = say_n("{n} rank", "{n} ranks", n)
    if world > n:
        ranks = say("{loaded} of {all} ranks loaded", loaded=Quantity(n, "count"), all=Quantity(world, "count"))
    steps = say_n("{n} step", "{n} steps", cluster.steps)
    return chain(ranks, steps, say("{length}/step", length=ns(cluster.step_ns)), by=" · ")


def waiting_line(cluster: Cluster) -> Message:
    """Say how long the ranks wait for each other."""
    wait, part = _waiting(cluster)
    return say("ranks wait for each other: {wait} per step together, {part} of their time", wait=wait, part=part)


def waiting_title(cluster: Cluster, shown: int) -> Message:
    """Say the same as the title of the causes, so many of which are shown."""
    wait, part = _waiting(cluster)
    if shown < len(cluster.roots):
        return say("why ranks wait ({shown} of {all}), in % of {wait} per step ({part} of their time)",
                   shown=shown, all=len(cluster.roots), wait=wait, part=part)  # fmt: skip
    return say("why ranks wait for each other, in % of {wait} per step ({part} of their time)", wait=wait, part=part)


def _waiting(cluster: Cluster) -> tuple[Quantity, Quantity]:
    wait, whole = sum(r.comm.wait_ns for r in cluster.ranks), cluster.time_of(cluster.ranks)
    return ns(wait / max(cluster.steps, 1)), share(wait / whole if whole else None)


def worth_showing(cluster: Cluster) -> list[Root]:
    """Return the causes that are worth room on one screen, by what repairing one alone saves."""
    roots = roots_by_gain(cluster)
    return [r for r in roots if r.share >= _SMALL or (r.gain_ns_per_step or (0, 0))[1]] or roots[:1]


def root_line(root: Root, cluster: Cluster) -> Message:
    """Say what makes ranks wait, and what repairing it alone saves."""
    return chain(root.title, _root_gain(root, cluster))


def _root_gain(root: Root, cluster: Cluster) -> Message | None:
    if root.gain_ns_per_step is None:
        return None
    low, high = root.gain_ns_per_step
    if not high:
        return say("saves nothing by itself") if root.kind in _REPAIRABLE else None
    step = max(cluster.step_ns, 1)
    return say("saves {saved} per step ({share})", saved=ns(low, high), share=share(low / step, high / step))


def taking_line(root: Root) -> Message | None:
    """Say which operators and which line of code take the time of a root."""
    names = [say("{name}", name=name) for name in root.operators]
    where = say("{where}", where=root.where) if root.where else None
    return chain(*names, where, by=" · ") if names or where else None


def replay_line(cluster: Cluster) -> Message | None:
    """Say how far the gains can be relied on."""
    replay = cluster.replay
    if replay is None:
        return None
    if replay.usable:
        return say("saved if repaired alone: replayed over all ranks, {error} off the measured time",
                   error=share(replay.error))  # fmt: skip
    return say("no gains: {reason}", reason=replay.reason)


def pipeline_title(pipeline: Pipeline) -> Message:
    """Say how many stages and micro-batches there are."""
    stages = say_n("{n} stage", "{n} stages", pipeline.stages)
    micro = pipeline.micro_batches
    batches = say("micro-batches unknown") if micro is None else say_n("{n} micro-batch", "{n} micro-batches", micro)
    times = pipeline.pipelines
    several = say_n("{n} pipeline alike", "{n} pipelines alike", times) if times > 1 else None
    return say("pipeline: {facts}", facts=chain(stages, batches, several, by=" · "))


def pipeline_lines(cluster: Cluster) -> Iterator[Message]:
    """Say how even the stages are, how large the bubble is, and what of the waiting comes from which."""
    found, steps = cluster.pipeline, max(cluster.steps, 1)
    if found is None:
        return
    if cluster.stages:
        yield _stage_times(cluster.stages, steps, found)
    yield _bubble(found)
    wait = sum(r.comm.wait_ns for r in cluster.ranks)
    if wait:
        schedule, uneven = found.schedule_wait_ns, found.imbalance_wait_ns
        yield say("schedule's own waiting {schedule} ({part}), uneven stages' {uneven} ({rest})",
                  schedule=ns(schedule / steps), part=share(schedule / wait),
                  uneven=ns(uneven / steps), rest=share(uneven / wait))  # fmt: skip
    said_before = any(root.kind == "stage" and root.gain_ns_per_step for root in cluster.roots)
    if found.gain_ns_per_step and found.gain_ns_per_step[1] and not said_before:
        yield say("even stages would save {saved} per step", saved=ns(*found.gain_ns_per_step))
    if any(s.bubble_ns for s in cluster.stages) and {s.vendor_bubble_ns for s in cluster.stages} == {0}:
        yield say("the exporter's own Bubble is 0: it counts only operations named hcom_receive")


def _stage_times(stages: Sequence[Stage], steps: int, pipeline: Pipeline) -> Message:
    times = [stage.compute_ns / steps for stage in stages]
    longest = stages[times.index(max(times))].stage
    each = (
        series(ns(time) for time in times) if len(times) <= _STAGES else series((ns(min(times)), ns(max(times))), " … ")
    )
    return say("compute per stage {times}: stage {stage} takes {ratio} times the mean",
               times=each, stage=longest, ratio=factor(pipeline.imbalance))  # fmt: skip


def _bubble(pipeline: Pipeline) -> Message:
    bubble, own = share(pipeline.bubble_share), pipeline.schedule_share
    if own is None:
        return say("bubble {bubble} of the pipeline's time", bubble=bubble)
    return say("bubble {bubble} of the pipeline's time; the schedule alone makes {own}", bubble=bubble, own=share(own))


def others_line(others: Sequence[Slice]) -> Message:
    """Say between which values the ranks are that are not listed."""
    steps = [s.step_ns for s in others]
    ranges_ = [
        say("step {length}", length=ns(min(steps), max(steps))),
        _spread(say("compute"), [s.compute for s in others]),
        _spread(say("transfer"), [s.transfer for s in others]),
        _spread(say("waiting"), [s.wait for s in others]),
        _spread(say("host wait"), [s.host for s in others]),
    ]
    return say_n("the other {n} rank: {facts}", "the other {n} ranks: {facts}", len(others),
                 facts=chain(*ranges_, by=", "))  # fmt: skip


def _spread(what: Message, values: Sequence[float | None]) -> Message | None:
    known = [v for v in values if v is not None]
    most = max(known, default=0.0)
    return say("{what} {part}", what=what, part=share(min(known), most)) if most else None


def slow_links(cluster: Cluster) -> list[Link]:
    """Return the links that are slow, the costliest first."""
    return sorted((link for link in cluster.links if link.slow), key=lambda link: -link.lost_ns)


def slow_link(link: Link, steps: int) -> Message:
    """Say how slow a link is beside its peers, and what that costs."""
    what = series((part for part in (link.transport, link.kind, link.size_class) if part), " ")
    lost, rate, peers = ns(link.lost_ns / max(steps, 1)), number(link.gb_per_s), link.peers_gb_per_s
    one, other = link.ranks
    if peers is None:
        return say("slow link {one}-{other} ({what}): {rate} GB/s; {lost}/step lost",
                   one=one, other=other, what=what, rate=rate, lost=lost)  # fmt: skip
    return say("slow link {one}-{other} ({what}): {rate}, peers {peers} GB/s; {lost}/step lost",
               one=one, other=other, what=what, rate=rate, peers=number(peers), lost=lost)  # fmt: skip


def links_line(cluster: Cluster) -> Message | None:
    """Say that no link is slow, or that none can be judged."""
    compared = sum(link.peers_gb_per_s is not None for link in cluster.links)
    if not cluster.links or slow_links(cluster):
        return None
    if not compared:
        return say("links: too few peers to judge any of them")
    return say_n("links: {n} compared with its peers and not slow", "links: {n} compared with their peers, none slow",
                 compared)  # fmt: skip


def clocks_line(cluster: Cluster, always: bool = False) -> Message | None:
    """Say how well the devices' clocks agree after correction, where that limits what can be told."""
    clocks = [r.clock for r in cluster.ranks if r.clock]
    if not clocks:
        return None
    residual = max(c.residual_ns for c in clocks)
    if not always and _RESIDUALS * residual < _CLOCKS * cluster.step_ns:
        return None
    offset = max(abs(c.offset_ns) for c in clocks)
    return say("clocks corrected by up to {offset}; arrivals within {residual} cannot be ordered",
               offset=ns(offset), residual=ns(_RESIDUALS * residual))  # fmt: skip


def notes_of(cluster: Cluster) -> list[Message]:
    """Return what could not be told, and which ranks are missing."""
    absent = cluster.absent
    missing = say("not loaded: ranks {ranks}; waiting for them is not seen", ranks=ranges(absent)) if absent else None
    return [*([missing] if missing and not cluster.notes else []), *cluster.notes]


def pointer(cluster: Cluster) -> Message | None:
    """Name the rank to look at by itself: one of the first cause, else the most unusual one."""
    if not cluster.ranks:
        return None
    named = (root.ranks[0] for root in roots_by_gain(cluster) if root.kind in _REPAIRABLE and root.ranks)
    first = next(named, outliers_first(cluster)[0].rank)
    return say("one rank's phases, blame, operators, cores: npuperf analyze PATH --rank {rank}", rank=first)

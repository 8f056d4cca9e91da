"""A job of several ranks in words and tables, for every format: why they wait, pipeline, links, clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import fsum
from statistics import median
from typing import Any, Final

from msgspec import Struct, structs

from npuperf.base.messages import Message, Quantity, chain, factor, ns, number, say, say_n, series, share
from npuperf.base.units import in_rows
from npuperf.model.job_result import Cluster, ClusterRank, Experts, Link, Pipeline, RankCommunication, Root
from npuperf.model.result import Result
from npuperf.show import words
from npuperf.show.tables import Column, Row, Table, as_cell, each
from npuperf.show.words import outside_lines, steps_line

#: Distances are compared by tenths of a percent of the step.
_DIGITS: Final = 3


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, e.g. ``0-3, 7``."""
    return ", ".join(in_rows(numbers))


def roots_worth(cluster: Cluster) -> list[Root]:
    """Return the root causes that are worth their room: those that can be repaired, or explain much of the waiting."""
    roots = roots_by_gain(cluster)
    return [root for root in roots if root.share >= _SMALL or root.kind in REPAIRABLE] or roots[:1]


def roots_by_gain(cluster: Cluster) -> list[Root]:
    """Return the root causes, those first whose repair saves most; of what nobody can repair, those that explain most.

    Those that are behind others follow them, in their order.
    """

    def most(root: Root) -> int:
        return (root.gain_ns_per_step or (0, 0))[1] if root.kind in REPAIRABLE else 0

    last = min((most(r) for r in cluster.roots if r.kind in REPAIRABLE and not r.gain_behind_ns_per_step), default=0)
    return sorted(cluster.roots, key=lambda r: (-last, 0) if r.gain_behind_ns_per_step else (-most(r), -r.wait_ns))


def outliers_first(cluster: Cluster) -> list[ClusterRank]:
    """Return the ranks, those first that are furthest from their peers; those as good as alike by number."""
    apart = distances(cluster)
    return sorted(cluster.ranks, key=lambda r: (-round(apart[r.rank], _DIGITS), r.rank))


def distances(cluster: Cluster) -> dict[int, float]:
    """Return how far each rank is from the median of its stage, in what it is furthest, as a share of the step.

    Ranks of a stage do the same work; without stages, all do. Stages that differ are the pipeline's matter.
    """

    def measured(rank: ClusterRank) -> tuple[float, ...]:
        parts = (rank.compute_ns or 0, rank.comm.exposed_wait_ns, rank.host_wait_ns or 0)
        return rank.step_ns, *(part / max(cluster.steps, 1) for part in parts)

    found = dict.fromkeys((r.rank for r in cluster.ranks), 0.0)
    for stage in {r.stage for r in cluster.ranks}:
        peers = [r for r in cluster.ranks if r.stage == stage]
        for values in zip(*map(measured, peers), strict=True):
            usual = median(values)
            for r, value in zip(peers, values, strict=True):
                found[r.rank] = max(found[r.rank], abs(value - usual) / max(cluster.step_ns, 1))
    return found


# -- Tables, one line per column.


class Arrival(Struct, frozen=True):
    """One rank in a collective: how long it waited, and how long after the first it came."""

    rank: int
    wait_ns: int
    arrival_ns: int | None


def _arrivals(result: Result) -> Iterator[Row]:
    for of in result.cluster.collectives if result.cluster else ():
        arrivals: Sequence[int | None] = of.arrival_ns or [None for _ in of.ranks]
        for rank, wait, after in zip(of.ranks, of.wait_ns, arrivals, strict=True):
            yield of, Arrival(rank, wait, after)


def _mean_steps(result: Result) -> Iterator[Row]:
    """Return every rank with the times of a step as it is on average: in the document they are those of all steps."""
    steps = max(result.cluster.steps, 1) if result.cluster else 1
    for rank in outliers_first(result.cluster) if result.cluster else ():
        whole: dict[str, Any] = structs.asdict(rank.comm)
        kinds = {kind: ns // steps for kind, ns in whole.pop("wait_by_kind").items()}
        comm = RankCommunication(wait_by_kind=kinds, **{name: ns // steps for name, ns in whole.items()})
        times = {name: None if (ns := getattr(rank, name)) is None else ns // steps
                 for name in ("compute_ns", "host_wait_ns", "idle_ns")}  # fmt: skip
        yield (structs.replace(rank, comm=comm, **times),)


def _tokens(experts: Experts, of: Callable[[list[int]], int]) -> int | None:
    """Return what of the ranks' tokens is asked for; None where not all are recorded."""
    known = [tokens for tokens in experts.tokens if tokens is not None]
    return of(known) if known and len(known) == len(experts.tokens) else None


# fmt: off
_RANK: Final = Column("rank", say("rank"), "id", weight=0)
_RANKS: Final = Column("ranks", say("ranks"), get=lambda *row: ranges(row[-1].ranks), weight=0)
_STAGE: Final = Column("stage", say("stage"), "id", weight=2)
_MACHINE: Final = Column("host", say("machine"), weight=2, quiet=True)
_GROUP: Final = Column("group", say("group"), weight=2)
_KIND: Final = Column("kind", say("kind"))
_COMPLETE: Final = Column("complete", say("all ranks loaded"), "word", weight=2)
_LAST: Final = Column("last", say("came last"), "id")
_SAVES: Final = (
    Column("gain_low_ns", say("saves per step, min"), "ms", "gain_ns_per_step.0"),
    Column("gain_high_ns", say("saves per step, max"), "ms", "gain_ns_per_step.1"),
)
CLUSTER_TABLES: Final = (
    Table("roots", say("root causes of waiting, by what repairing one alone saves"),
          lambda result: ((root,) for root in (roots_by_gain(result.cluster) if result.cluster else ())), (
        Column("kind", say("root"), "word", weight=0),
        _RANKS, _STAGE, _GROUP,
        Column("why", say("for its"), "word"),
        Column("title", say("cause"), "message", weight=0),
        Column("wait_ns", say("waiting"), "ms"),
        Column("share", say("% of all waiting"), "share", weight=0, whole=1.0),
        *_SAVES,
        Column("behind_low_ns", say("saves behind others, min"), "ms", "gain_behind_ns_per_step.0", 2),
        Column("behind_high_ns", say("saves behind others, max"), "ms", "gain_behind_ns_per_step.1", 2),
        Column("steps", say("steps"), get=lambda root: ranges(root.steps) or None, weight=2),
        Column("operators", say("operators"), weight=2),
        Column("where", say("where"), weight=2),
        Column("next", say("next"), "message"),
    ), topic="job"),
    Table("ranks", say("ranks, the most unusual first: a step of each, on average"), _mean_steps, (
        _RANK,
        Column("device", say("device"), "id", weight=2),
        Column("stage", say("stage"), "id"),
        _MACHINE,
        Column("step_ns", say("step"), "ms", weight=0),
        Column("compute_ns", say("compute"), "ms"),
        Column("comm_ns", say("comm."), "ms", "comm.total_ns"),
        Column("transfer_ns", say("transfer"), "ms", "comm.transfer_ns"),
        Column("wait_ns", say("waiting"), "ms", "comm.wait_ns"),
        Column("unknown_ns", say("unknown"), "ms", "comm.unknown_ns"),
        Column("exposed_transfer_ns", say("exposed transfer"), "ms", "comm.exposed_transfer_ns", 2),
        Column("exposed_wait_ns", say("exposed waiting"), "ms", "comm.exposed_wait_ns", 2),
        Column("exposed_unknown_ns", say("exposed, unknown"), "ms", "comm.exposed_unknown_ns", 2),
        Column("host_wait_ns", say("host wait"), "ms"),
        Column("idle_ns", say("idle"), "ms"),
        Column("wait_by_kind", say("waiting by kind of group, ns"), weight=2,
               get=lambda r: as_cell(r.comm.wait_by_kind)),
        Column("source", say("source"), weight=3),
    ), topic="job", go=lambda at, r: at.rank(r.rank)),
    Table("stages", say("pipeline stages, mean of their ranks"), each("cluster.stages"), (
        Column("stage", say("stage"), "id", weight=0),
        _RANKS,
        Column("compute_ns", say("compute"), "ms"),
        Column("bubble_ns", say("bubble"), "ms"),
        Column("window_ns", say("pipeline's window"), "ms"),
        Column("vendor_bubble_ns", say("exporter's Bubble"), "ms"),
    ), topic="job"),
    Table("groups", say("process groups"), each("cluster.groups"), (
        Column("group", say("group"), weight=0),
        _KIND, _RANKS,
        Column("missing", say("not loaded"), get=lambda group: ranges(group.missing) or None),
        _COMPLETE,
        Column("inferred", say("ranks inferred"), "word", weight=2),
        Column("operations", say("operations"), "count"),
        Column("unmatched", say("unmatched"), "count", weight=2),
        Column("transfer_ns", say("transfer"), "ms", weight=0),
        Column("wait_ns", say("waiting"), "ms", weight=0),
        Column("unknown_ns", say("unknown"), "ms"),
    ), topic="job"),
    Table("collectives", say("operations in which most is waited"), each("cluster.collectives"), (
        Column("step", say("step"), "id", quiet=True),
        Column("name", say("operation"), weight=0),
        _GROUP, _KIND, _RANKS, _COMPLETE,
        Column("transfer_ns", say("transfer"), "ms", weight=0),
        Column("unknown_ns", say("unknown"), "ms"),
        Column("wait_ns", say("waiting, all ranks"), "ms", lambda of: sum(of.wait_ns), 0),
        Column("wait_max_ns", say("waiting, max"), "ms", lambda of: max(of.wait_ns, default=None)),
        _LAST,
    ), topic="job"),
    Table("waits", say("waiting of every rank in these operations"), _arrivals, (
        Column("step", say("step"), "id", quiet=True),
        Column("name", say("operation"), weight=0),
        _GROUP, _KIND, _RANK,
        Column("wait_ns", say("waiting"), "ms", weight=0),
        Column("transfer_ns", say("transfer"), "ms"),
        Column("unknown_ns", say("unknown"), "ms"),
        Column("arrival_ns", say("came after the first"), "ms"),
        _LAST,
        Column("complete", say("all ranks loaded"), "word", weight=2),
    ), aside=True),
    Table("links", say("links between ranks"), each("cluster.links"), (
        Column("from", say("rank"), "id", "ranks.0", 0),
        Column("to", say("with rank"), "id", "ranks.1", 0),
        Column("transport", say("transport"), weight=0),
        Column("kind", say("operation")),
        Column("size_class", say("size")),
        Column("count", say("count"), "count", weight=2),
        Column("bytes", say("bytes"), "count", weight=3),
        Column("time_ns", say("time"), "ms", weight=2),
        Column("gb_per_s", say("GB/s"), "plain", weight=0),
        Column("peers_gb_per_s", say("peers GB/s"), "plain"),
        Column("reference_gb_per_s", say("vendor's GB/s"), "plain", weight=2),
        Column("slow", say("slow"), "word"),
        Column("lost_ns", say("lost"), "ms", weight=0),
    ), topic="job"),
    Table("clocks", say("clocks against the first rank's"), each("cluster.ranks", "clock"), (
        _RANK, _MACHINE,
        Column("offset_ns", say("correction"), "us", weight=0),
        Column("low_ns", say("provable, min"), "us"),
        Column("high_ns", say("provable, max"), "us"),
        Column("residual_ns", say("residual"), "us", weight=0),
        Column("drift_ppm", say("drift, ppm"), "plain"),
        Column("operations", say("operations"), "count"),
    ), topic="job"),
    Table("roles", say("roles in reinforcement learning, by the names of ranges"), each("cluster.roles"), (
        Column("role", say("role"), weight=0),
        _RANKS,
        Column("turns", say("turns"), "count", weight=2),
        Column("time_ns", say("time"), "ms", weight=0),
        Column("share", say("% of the window"), "share", weight=0, whole=1.0),
        Column("busy_share", say("busy, %"), "share", weight=2, whole=1.0),
        Column("idle_share", say("idle in it, %"), "share", weight=0, whole=1.0),
        Column("early_share", say("done early, %"), "share", weight=0, whole=1.0),
        Column("longest_rank", say("longest rank"), "id"),
        Column("longest_in", say("longest in turns"), "count", weight=2),
        Column("longest_ns", say("longest"), "ms", weight=2),
        Column("median_ns", say("median"), "ms", weight=2),
        Column("tail_ns", say("longest above median"), "ms"),
        Column("names", say("ranges"), weight=2, get=lambda role: ", ".join(role.names)),
    ), topic="job"),
    Table("experts", say("uneven experts"), each("cluster.experts"), (
        _GROUP, _RANKS,
        Column("layer", say("layer"), "id", weight=0),
        Column("imbalance", say("longest over mean"), "plain"),
        Column("lost_ns", say("lost"), "ms"),
        Column("tokens_least", say("tokens of a rank, min"), "count", lambda e: _tokens(e, min), 2),
        Column("tokens_most", say("tokens of a rank, max"), "count", lambda e: _tokens(e, max), 2),
    ), topic="job"),
)
# fmt: on


# -- What is said of a job: how long its step is, why its ranks wait, its pipeline, links and clocks.

#: Clocks are worth a line where arrivals closer than this cannot be put in order: a share of the step.
_CLOCKS: Final = 0.001
#: Arrivals closer than so many residuals cannot be put in order.
_RESIDUALS: Final = 3
_STAGES: Final = 4
#: A tail is worth words from this share of a role's time on: that of the step from which a cause is named.
_EARLY: Final = 0.01
#: A cause of less waiting than this, whose repair saves nothing, is not worth its room on one screen.
_SMALL: Final = 0.01
#: Causes that are somewhere, so that they can be repaired there.
REPAIRABLE: Final = ("rank", "stage", "link", "group")


def job_line(cluster: Cluster, *, stepped: bool = True) -> Message:
    """Say how many ranks and steps there are, and how long a step is; where none was recorded (``stepped``), all."""
    n, world, least = len(cluster.ranks) + len(cluster.cut), cluster.world_size or 0, cluster.world_size_least
    ranks = say_n("{n} rank", "{n} ranks", n)
    if world > n:
        ranks = say("{loaded} of {all} ranks loaded", loaded=Quantity(n, "count"), all=Quantity(world, "count"))
    elif least > n:
        ranks = say("{loaded} of at least {all} ranks loaded", loaded=Quantity(n, "count"),
                    all=Quantity(least, "count"))  # fmt: skip
    steps = say_n("{n} step", "{n} steps", cluster.steps) if stepped else say("no steps recorded")
    cut = say("{n} left out (see notes)", n=len(cluster.cut))
    return chain(ranks, cut if cluster.cut else None, steps, _length(cluster, stepped=stepped), by=" · ")


def run_line(result: Result) -> Message:
    """Say how many steps there are, how long one takes, and what of the recording is in none: of a job, or of ranks."""
    if result.cluster is None:
        return steps_line(result)
    return chain(
        job_line(result.cluster, stepped=_stepped(result, result.cluster)), *outside_lines(result.devices), by=" · "
    )


def step_length(result: Result) -> Message | None:
    """Say how long a step is, of the job or of the devices, or all of it; None where that is unknown."""
    cluster = result.cluster
    return words.step_length(result) if cluster is None else _length(cluster, stepped=_stepped(result, cluster))


def _length(cluster: Cluster, *, stepped: bool) -> Message:
    return (
        say("{length}/step", length=ns(cluster.step_ns)) if stepped else say("{span} in all", span=ns(cluster.step_ns))
    )


def _stepped(result: Result, cluster: Cluster) -> bool:
    return cluster.steps > 1 or not result.devices or any(device.steps for device in result.devices)


def waiting_line(cluster: Cluster) -> Message:
    """Say how long the ranks wait for each other."""
    wait, part = waiting(cluster)
    return say("ranks wait for each other: {wait} per step together, {part} of their time", wait=wait, part=part)


def waiting(cluster: Cluster) -> tuple[Quantity, Quantity]:
    """Return how long all ranks together wait for each other per step, and which part of their time that is."""
    wait, whole = sum(r.comm.wait_ns for r in cluster.ranks), cluster.time_of(cluster.ranks)
    return ns(wait / max(cluster.steps, 1)), share(wait / whole if whole else None)


def root_line(root: Root, cluster: Cluster) -> Message:
    """Say what makes ranks wait, and what repairing it alone saves."""
    return chain(root.title, root_gain(root, cluster))


def root_gain(root: Root, cluster: Cluster) -> Message | None:
    """Say what repairing a cause alone saves; None where that cannot be told."""
    saved, step = root.gain_ns_per_step, max(cluster.step_ns, 1)
    if (behind := root.gain_behind_ns_per_step) is not None:
        alone = words.saving(behind, (100 * behind[0] / step, 100 * behind[1] / step))
        return chain(alone, say("but only once the causes before it are repaired"), by=", ")
    if saved is not None and saved[1]:
        return words.saving(saved, (100 * saved[0] / step, 100 * saved[1] / step))
    return say("saves nothing by itself") if saved is not None and root.kind in REPAIRABLE else None


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
    chunks, times = pipeline.interleaving or 1, pipeline.pipelines
    several = say_n("{n} pipeline alike", "{n} pipelines alike", times) if times > 1 else None
    virtual = say("{n} chunks per stage", n=chunks) if chunks > 1 else None
    order = say("schedule {name}", name=pipeline.schedule) if pipeline.schedule else None
    return say("pipeline: {facts}", facts=chain(stages, batches, virtual, order, several, by=" · "))


def pipeline_lines(cluster: Cluster) -> Iterator[Message]:
    """Say how even the stages are, how large the bubble is, and what of the waiting comes from which."""
    found, steps = cluster.pipeline, max(cluster.steps, 1)
    if found is None:
        return
    if cluster.stages:
        times = [stage.compute_ns / steps for stage in cluster.stages]
        each = series((ns(min(times)), ns(max(times))), " … ") if len(times) > _STAGES else series(map(ns, times))
        yield say("compute per stage {times}: stage {stage} takes {ratio} times the mean", times=each,
                  stage=cluster.stages[times.index(max(times))].stage, ratio=factor(found.imbalance))  # fmt: skip
    if found.why is not None:
        yield found.why if found.micro_batches else say("micro-batches unknown: {why}", why=found.why)
    bubble, own = share(found.bubble_share), found.schedule_share
    if own is None:
        yield say("bubble {bubble} of the pipeline's time", bubble=bubble)
    else:
        yield say("bubble {bubble} of the pipeline's time; the schedule alone makes {own}",
                  bubble=bubble, own=share(own))  # fmt: skip
    wait = sum(r.comm.wait_ns for r in cluster.ranks)
    if wait:
        schedule, uneven = found.schedule_wait_ns, found.imbalance_wait_ns
        yield say("schedule's own waiting {schedule} ({part}), uneven stages' {uneven} ({rest})",
                  schedule=ns(schedule / steps), part=share(schedule / wait),
                  uneven=ns(uneven / steps), rest=share(uneven / wait))  # fmt: skip
    said_before = any(root.kind == "stage" and root.gain_ns_per_step for root in cluster.roots)
    if found.gain_ns_per_step and found.gain_ns_per_step[1] and not said_before:
        yield say("even stages would save {saved} per step", saved=words.at_most(*found.gain_ns_per_step))
    if any(s.bubble_ns for s in cluster.stages) and {s.vendor_bubble_ns for s in cluster.stages} == {0}:
        yield say("the exporter's own Bubble is 0: it counts only operations named hcom_receive")


def roles_title(cluster: Cluster) -> Message:
    """Say that what follows rests on names."""
    return say("roles of reinforcement learning, inferred from the names of ranges ({ranges})",
               ranges=series(list(dict.fromkeys(role.names[0] for role in cluster.roles))))  # fmt: skip


def role_lines(cluster: Cluster) -> Iterator[Message]:
    """Say of each role how long it takes, how much of that its devices idle, and who is longest; last, what is none."""
    steps = max(cluster.steps, 1)
    for role in cluster.roles:
        said = say_n("{role}: {time} per step ({share}) on {n} rank, idle in {idle} of it",
                     "{role}: {time} per step ({share}) on {n} ranks, idle in {idle} of it",
                     len(role.ranks), role=role.role, time=ns(role.time_ns / steps), share=share(role.share),
                     idle=share(role.idle_share))  # fmt: skip
        if role.early_share < _EARLY:
            yield said
            continue
        tail = say("on average a rank takes {part} of the longest one's time, and turns take {tail} per step more than "
                   "the median rank's", part=share(1 - role.early_share), tail=ns(role.tail_ns / steps))  # fmt: skip
        who = say("now one rank is the longest, now another")
        if role.turns is None:
            who = say("ranks do not take their turns together, so sums are compared: rank {rank}'s is the longest",
                      rank=role.longest_rank)  # fmt: skip
        elif role.longest_in > role.turns / 2:
            who = say("rank {rank} is the longest in {n} of {all} turns", rank=role.longest_rank,
                      n=Quantity(role.longest_in, "count"), all=Quantity(role.turns, "count"))  # fmt: skip
        yield chain(said, tail, who)
    within = fsum((role.busy_share + role.idle_share) * role.share * len(role.ranks) for role in cluster.roles)
    yield say("in none of these roles: {share} of the ranks' time",
              share=share(max(1 - within / len(cluster.ranks), 0.0)))  # fmt: skip


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


def asides(cluster: Cluster) -> Iterator[Message]:
    """Say how far gains can be relied on, what is known of links and clocks, and what could not be told."""
    yield from filter(None, (replay_line(cluster), links_line(cluster), clocks_line(cluster), *notes_of(cluster)))


def notes_of(cluster: Cluster) -> list[Message]:
    """Return what could not be told, and which ranks are missing."""
    if cluster.notes or not cluster.absent:
        return [*cluster.notes]
    return [say("not loaded: ranks {ranks}; waiting for them is not seen", ranks=ranges(cluster.absent))]

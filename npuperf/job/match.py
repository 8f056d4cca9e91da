"""The same operation on all its ranks: collectives by step and key, point-to-point by pair and order.

Nothing is matched by its place in a rank's sequence alone as long as files name groups: ranks of a pipeline, or of
experts, run different sequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.rank_summary import RankSummary
from npuperf.model.communication import EVERYBODY, TOGETHER, VARIABLE, Operations, ProcessGroup
from npuperf.model.groups import alike, distinct
from npuperf.model.labels import I64, Labels, Mask


class JobGroup(Struct, frozen=True):
    """A process group of the job. ``members``: places in the list of ranks, of those that were loaded.

    ``inferred``: the files do not name its ranks. ``complete``: all were loaded for certain; where files tell neither
    its ranks nor how many the job has, and no links that all end among those loaded, that is not known.
    """

    id: str
    kind: str | None
    ranks: tuple[int, ...]
    members: tuple[int, ...]
    complete: bool
    inferred: bool

    @property
    def single(self) -> bool:
        """Tell whether it has one member only: its operations wait for nobody."""
        return len(self.ranks) == 1 and (self.complete or not self.inferred)


class Matched(Struct, frozen=True):
    """All operations of all ranks, flat: rank by rank, each rank's by start (times in each device's own clock).

    ``first[r]`` is where rank r's begin; ``type`` points into ``types``. ``instance``: which operations are one and the
    same, -1 unmatched; ``instance_group``: its group; ``complete``: all members of the group take part. ``members``
    lists operations by instance, those of instance i from ``starts[i]`` on.
    """

    rank: I64
    start: I64
    end: I64
    step: I64
    group: I64
    type: I64
    p2p: Mask
    first: I64
    instance: I64
    members: I64
    starts: I64
    instance_group: I64
    complete: Mask
    together: Mask
    groups: tuple[JobGroup, ...]
    types: tuple[str, ...]

    @property
    def variable(self) -> Mask:
        """Of which operations each rank moves what its own part is."""
        return np.isin(self.type, [i for i, name in enumerate(self.types) if name in VARIABLE])

    @property
    def instances(self) -> int:
        """How many different operations there are."""
        return len(self.starts)

    @property
    def stay(self) -> I64:
        """How long each rank was in each operation, ns."""
        return self.end - self.start

    def drop(self, instances: Mask) -> Matched:
        """Return the same operations, those of some instances unmatched."""
        gone = (self.instance >= 0) & instances[self.instance]
        number = np.where(instances, -1, np.cumsum(~instances) - 1)
        instance = np.where(gone, -1, np.where(self.instance >= 0, number[self.instance], -1))
        members, starts = _by_instance(instance)
        return replace(
            self,
            instance=instance,
            members=members,
            starts=starts,
            instance_group=self.instance_group[~instances],
            complete=self.complete[~instances],
            together=self.together[~instances],
        )


def match(ranks: Sequence[RankSummary], world: int | None) -> Matched:
    """Match the operations of ranks of one job. ``world``: how many ranks it has, None where that is not known."""
    counts = np.array([len(r.operations) for r in ranks], np.int64)
    rank = np.repeat(np.arange(len(ranks)), counts)
    start, end, step, p2p = (
        np.concatenate([getattr(r.operations, name) for r in ranks]) for name in ("start", "end", "step", "p2p")
    )
    types = Labels.concat([r.operations.type for r in ranks])
    group, groups = _groups(ranks, world)
    # By group, the last place being that of operations without one.
    size = np.array([len(g.ranks) for g in groups] + [0], np.int64)
    single = np.array([g.single for g in groups] + [False], np.bool_)
    all_there = np.array([g.complete for g in groups] + [False], np.bool_)
    nameless = group == len(groups) - 1 if groups and not groups[-1].id else np.zeros(len(rank), np.bool_)
    key, wide = _keys(ranks, nameless, world), (size[group] > 2) & p2p
    index = np.concatenate([r.operations.index for r in ranks])
    every = wide & (np.concatenate([r.operations.peer for r in ranks]) == EVERYBODY)
    peer = np.where(every, EVERYBODY, _peers(ranks, rank, group, groups))
    pair = _pair_keys(rank, group, step, peer, _direction(types), index, wide, p2p)
    key = np.where(pair >= 0, pair + key.max(initial=-1) + 1, np.where(wide, -1, key))
    instance = _instances(rank, group, key, step, start, (key >= 0) & (group >= 0) & ~single[group])
    members, starts = _by_instance(instance)
    heads = members[starts]
    of_two = p2p[heads] & ~every[heads]
    wanted = np.where(of_two, 2, size[group[heads]])
    return Matched(
        rank=rank,
        start=start,
        end=end,
        step=step,
        group=group,
        type=types.codes.astype(np.int64),
        p2p=p2p,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        instance=instance,
        members=members,
        starts=starts,
        instance_group=group[heads],
        complete=(all_there[group[heads]] | of_two) & (np.diff(np.append(starts, len(members))) == wanted),
        together=types.flag([name in TOGETHER for name in types.names])[heads],
        groups=tuple(groups),
        types=types.names,
    )


def _by_instance(instance: I64) -> tuple[I64, I64]:
    """Return the operations by instance, and where those of each begin among them."""
    chosen = np.flatnonzero(instance >= 0)
    members = chosen[np.argsort(instance[chosen], kind="stable")]
    return members, np.flatnonzero(np.diff(instance[members], prepend=-1))


def _keys(ranks: Sequence[RankSummary], nameless: Mask, world: int | None) -> I64:
    """Number what operations that are one and the same have in common; -1: nothing tells.

    That is the exported name, of NCCL's, whose kernels are called alike, the type and the number in the group.
    Operations without a group go by type and order: only where all ranks run the same sequence of them. That several
    groups of NCCL do, too: theirs only in a ``world`` of two ranks.
    """
    seen: dict[str, int] = {}
    parts = []
    for summary in ranks:
        operations = summary.operations
        if summary.kineto:
            parts.append(_torch_keys(operations, seen))
            continue
        named = np.array([seen.setdefault(name, len(seen)) for name in operations.name.names] + [-1], np.int64)
        parts.append(named[operations.name.codes])
    keys = np.where(nameless, -1, np.concatenate(parts))

    without = [~summary.operations.group.known() for summary in ranks]
    sequences = {tuple(s.operations.type.filter(mine).texts()) for s, mine in zip(ranks, without, strict=True)}
    one_group = not any(summary.kineto for summary in ranks) or len(ranks) == world == 2
    if one_group and len(sequences) == 1 and None not in (sequence := sequences.pop()):
        ordered = [seen.setdefault(f"{n}th without a group", len(seen)) for n in range(len(sequence))]
        keys[np.concatenate(without)] = ordered * len(ranks)
    return keys


def _peers(ranks: Sequence[RankSummary], rank: I64, group: I64, groups: Sequence[JobGroup]) -> I64:
    """Return the place of each operation's other end: in a group of two the other one, else as files tell; or -1."""
    places = {summary.rank: i for i, summary in enumerate(ranks)}
    told = np.concatenate([r.operations.peer for r in ranks])
    names = distinct(told)
    peer = np.array([places.get(name, -1) for name in names.tolist()], np.int64)[np.searchsorted(names, told)]
    pairs = [[places.get(r, -1) for r in g.ranks] if len(g.ranks) == 2 else [-1, -1] for g in groups]
    one, two = np.array([*pairs, [-1, -1]], np.int64).T[:, group]
    return np.where(one == rank, two, np.where(two == rank, one, peer))


def _direction(types: Labels) -> I64:
    """Tell of each type whether it sends (1), receives (-1), or may do both (0)."""
    return np.array([{"send": 1, "receive": -1}.get(name, 0) for name in types.names] + [0], np.int64)[types.codes]


def _pair_keys(place: I64, group: I64, step: I64, peer: I64, sends: I64, index: I64, wide: Mask, p2p: Mask) -> I64:
    """Number what both ends of point-to-point operations have in common; -1: it is none, or nothing tells.

    That is the pair of ranks, who sends, and the order among those, told by running numbers where names carry them: one
    rank's operations may overlap, and begin in another order than their other ends. Where one end of a pair has more
    than the other, and there is no third rank to count for, the numbers themselves are the key; else it is the order in
    a step, so that one that is lost moves no more than that.
    ``peer``: the place of the other end, -1 unknown, or EVERYBODY, who have it in common; ``sends``: see
    :func:`_direction`; ``wide``: of a group of more.
    """
    keys = np.full(len(place), -1, np.int64)
    rows = np.flatnonzero(p2p & ((peer >= 0) | (peer == EVERYBODY)) & (wide | (index >= 0)))
    if not len(rows):
        return keys
    place, peer, sends, index = place[rows], peer[rows], sends[rows], index[rows]
    low, high = np.minimum(place, peer), np.where(peer < 0, peer, np.maximum(place, peer))
    kind = alike(group[rows], low, high, sends * np.where(place == low, 1, -1), np.where(wide[rows], step[rows], -2))
    order = np.lexsort((index, place, kind))
    fresh = np.append(True, (np.diff(kind[order]) != 0) | (np.diff(place[order]) != 0))
    first = np.flatnonzero(fresh)
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    kinds = int(kind.max()) + 1
    ends = np.stack([np.bincount(kind[end], minlength=kinds) for end in (place == low, place == high)])
    numbers = np.bincount(kind[np.unique(alike(kind, index), return_index=True)[1]], minlength=kinds)
    lost = (ends[0] != ends[1]) & (numbers == ends.max(axis=0))  # all numbers of one end are among the other's
    keys[rows] = alike(kind, np.where(lost[kind] & ~wide[rows], index, nth))
    return keys


def _torch_keys(operations: Operations, seen: dict[str, int]) -> I64:
    """Number the types of a rank's operations with their numbers in the group, where these are recorded."""
    types = (*operations.type.names, None)
    kind = np.where(operations.p2p, len(types), operations.type.codes.astype(np.int64) % len(types))
    pairs, at = np.unique(np.stack([kind, operations.index]), axis=1, return_inverse=True)
    names = (*types, "point to point")
    texts = [f"{names[k]} {n}" if n >= 0 else str(names[k]) for k, n in pairs.T.tolist()]
    return np.array([seen.setdefault(text, len(seen)) for text in texts], np.int64)[at.ravel()]


def _instances(rank: I64, group: I64, key: I64, step: I64, start: I64, usable: Mask) -> I64:
    """Number operations that are one and the same; those of a single rank are unmatched.

    Where a key comes up once on each rank it needs no step: ranks may count an operation to different steps. Else the
    step tells them apart, then the order within the step.
    """
    instance = np.full(len(rank), -1, np.int64)
    rows = np.flatnonzero(usable)
    if not len(rows):
        return instance
    _, once = np.unique(group[rows] * (int(key.max()) + 1) + key[rows], return_inverse=True)
    kinds, ranks = int(once.max()) + 1, int(rank.max()) + 1
    per_rank = np.bincount(once * ranks + rank[rows], minlength=kinds * ranks)
    repeats = per_rank.reshape(kinds, ranks).max(axis=1) > 1
    at_step = np.where(repeats[once], step[rows], -2)
    _, stepped = np.unique(np.stack([once, at_step]), axis=1, return_inverse=True)
    stepped = stepped.ravel()
    order = np.lexsort((start[rows], rank[rows], stepped))
    run = np.flatnonzero(np.diff(stepped[order], prepend=-1) | np.diff(rank[rows][order], prepend=-1))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(run, np.diff(np.append(run, len(rows))))
    _, number = np.unique(np.stack([stepped, nth]), axis=1, return_inverse=True)
    number = number.ravel()
    alone = np.bincount(number) < 2
    kept = np.cumsum(~alone) - 1
    instance[rows] = np.where(alone[number], -1, kept[number])
    return instance


def _groups(ranks: Sequence[RankSummary], world: int | None) -> tuple[I64, list[JobGroup]]:
    """Number the groups that operations name, and find their members."""
    place = {summary.rank: i for i, summary in enumerate(ranks)}
    told: dict[str, ProcessGroup] = {}
    least: dict[str, list[int]] = defaultdict(list)
    for summary in ranks:
        for group in summary.groups:
            least[group.id].append(group.least)
            known = told.get(group.id)
            if known is None or (group.ranks and not known.ranks) or (group.kind and not known.kind):
                told[group.id] = group
    seen: dict[str, int] = {}
    codes, holders, nameless = [], defaultdict(set), []
    for i, summary in enumerate(ranks):
        labels = summary.operations.group
        named = np.array([seen.setdefault(name, len(seen)) for name in labels.names] + [-1], np.int64)
        mine = named[labels.codes]
        if (mine < 0).any():
            nameless.append(i)
        codes.append(mine)
        for code in distinct(mine[mine >= 0]).tolist():
            holders[code].add(i)
    everybody = world is not None and len(ranks) >= world
    groups = []
    for name, code in seen.items():
        found = told.get(name, ProcessGroup(name))
        members = tuple(sorted(holders[code]))
        if found.ranks:
            loaded = tuple(place[r] for r in found.ranks if r in place)
            groups.append(JobGroup(name, found.kind, found.ranks, loaded, len(loaded) == len(found.ranks), False))
        else:
            own = tuple(ranks[i].rank for i in members)
            # A collective reaches everybody: where no link of its ranks leads elsewhere, there is nobody else.
            ends = least[name]
            closed = 0 < len(own) <= len(ends) and min(ends) > 0 and max(ends) <= len(own)
            groups.append(JobGroup(name, found.kind, own, members, everybody or closed, True))
    code = np.concatenate(codes)
    if nameless:
        own = tuple(ranks[i].rank for i in nameless)
        groups.append(JobGroup("", None, own, tuple(nameless), everybody, True))
        code = np.where(code < 0, len(groups) - 1, code)
    return code, groups

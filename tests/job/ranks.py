"""Ranks' summaries written by hand: as little as a question needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from npuperf.device.rank_summary import ExpertTimes, LocalTime, RankSummary
from npuperf.model.communication import Bandwidth, LinkUse, Operations, ProcessGroup
from npuperf.model.labels import I64, Labels

MS = 1_000_000


def ints(values: Sequence[int]) -> I64:
    return np.array(values, np.int64)


def summary(rank: int, **parts: Any) -> RankSummary:
    """A rank of which only ``parts`` are known; its window is 100 ms."""
    none = ints([])
    empty = {"I64": none, "LocalTime": LocalTime(none, none, none), "dict[str, int]": {}, "int | None": None}
    given: dict[str, Any] = {name: empty[kind] for name, kind in RankSummary.__annotations__.items() if kind in empty}
    given |= {
        "rank": rank,
        "device": rank % 8,
        "source": f"rank_{rank}",
        "host": None,
        "begin": 0,
        "end": 100 * MS,
        "operations": Operations.empty(),
        "groups": (),
        "bandwidth": Bandwidth.empty(),
        "links": LinkUse.empty(),
        **parts,
    }
    if "transit" not in parts:
        given["transit"] = np.full(len(given["operations"]), -1, np.int64)
    return RankSummary(**given)


def link_use(rows: Sequence[dict[str, Any]]) -> LinkUse:
    """Rows of links: source, target, bytes and ns are asked for."""

    def column(name: str, default: int) -> I64:
        return ints([row.get(name, default) for row in rows])

    def texts(name: str, default: str | None) -> Labels:
        return Labels.of([row.get(name, default) for row in rows])

    return LinkUse(
        step=column("step", -1),
        type=texts("type", "allReduce"),
        group=texts("group", "1"),
        transport=texts("transport", "HCCS"),
        source=column("source", -1),
        target=column("target", -1),
        bytes=column("bytes", 0),
        ns=column("ns", 0),
        count=column("count", -1),
        name=texts("name", None),
    )


def operations(rows: Sequence[dict[str, Any]]) -> Operations:
    """Operations one after the other, ``stay`` ns each unless said otherwise."""

    def column(name: str, default: int) -> I64:
        return ints([row.get(name, default) for row in rows])

    start = np.cumsum(column("stay", MS)) - column("stay", MS)
    return Operations(
        name=Labels.of([row.get("name", f"hcom_{i}") for i, row in enumerate(rows)]),
        type=Labels.of([row.get("type", "allReduce") for row in rows]),
        group=Labels.of([row.get("group", "1") for row in rows]),
        start=start,
        end=start + column("stay", MS),
        step=column("step", -1),
        index=column("index", -1),
        p2p=np.zeros(len(rows), np.bool_),
        peer=column("peer", -1),
        retry=column("retry", -1),
        relay=column("relay", -1),
        bytes=column("bytes", -1),
        awaited=column("awaited", -1),
        awaited_rank=column("awaited_rank", -1),
        reached=column("reached", -1),
    )


def bandwidth(rows: Sequence[tuple[int, str, int, int, int]]) -> Bandwidth:
    """Rows of (operation, transport, bytes of a packet, packets, ns)."""
    return Bandwidth(
        op=ints([r[0] for r in rows]),
        transport=Labels.of([r[1] for r in rows]),
        bytes=ints([r[2] * r[3] for r in rows]),
        ns=ints([r[4] for r in rows]),
        packet=ints([r[2] for r in rows]),
        count=ints([r[3] for r in rows]),
    )


def group(ranks: Sequence[int], kind: str | None = None, id: str = "1") -> ProcessGroup:
    return ProcessGroup(id, kind, tuple(ranks))


def experts(rows: Sequence[tuple[int, int, int]]) -> ExpertTimes:
    """Grouped matmuls as (start, ns, tokens)."""
    return ExpertTimes(*(ints([row[i] for row in rows]) for i in range(3)))


# --- ranks that run a program ----------------------------------------------------------------------------------------

US = 1_000


@dataclass(frozen=True)
class Work:
    """What a rank does by itself, µs: compute, waiting for its host, anything else."""

    compute: int = 0
    host: int = 0
    other: int = 0

    @property
    def us(self) -> int:
        return self.compute + self.host + self.other


@dataclass(frozen=True)
class Begin:
    """The rank begins an operation beside its own work; ``after`` its end of another one, ``gap`` µs later."""

    op: str
    after: str | None = None
    gap: int = 0


@dataclass(frozen=True)
class Join:
    """The rank goes on when the operation has ended."""

    op: str


#: An operation by its name ("dp/3": the third of group dp) is one that blocks: begun and joined at once.
Item = Work | Begin | Join | str
Program = Sequence[Item]


@dataclass
class Played:
    """When what happened, µs: per rank and operation its arrival and end, when the rank went on, and when it was done.

    ``idle``: joins at which the operation had ended already.
    """

    arrival: dict[tuple[int, str], int]
    end: dict[tuple[int, str], int]
    release: dict[tuple[int, str], int]
    finish: dict[int, int]
    idle: set[tuple[int, str]]


def play(
    programs: Mapping[int, Program], transfer: Mapping[str, int], begin: Mapping[int, int] | None = None
) -> Played:
    """Run ranks until all are done: an operation ends, for all, ``transfer`` µs after its last rank has come to it."""
    programs = {r: [*flat(p)] for r, p in programs.items()}
    members = {op: [r for r, p in programs.items() if Begin in map(type, p) and op in begun(p)] for op in transfer}
    now = {r: (begin or {}).get(r, 0) for r in programs}
    at = dict.fromkeys(programs, 0)
    held: list[tuple[int, Begin]] = []
    done = Played({}, {}, {}, {}, set())
    moved = True
    while moved:
        moved = False
        for rank, item in list(held):
            if (rank, item.after) in done.end:
                done.arrival[rank, item.op] = done.end[rank, item.after or ""] + item.gap
                held.remove((rank, item))
                moved = True
        for op, ranks in members.items():
            if ranks and (ranks[0], op) not in done.end and all((r, op) in done.arrival for r in ranks):
                last = max(done.arrival[r, op] for r in ranks)
                done.end |= {(r, op): last + transfer[op] for r in ranks}
                moved = True
        for rank, program in programs.items():
            if at[rank] == len(program):
                continue
            item = program[at[rank]]
            if isinstance(item, Join) and (rank, item.op) not in done.end:
                continue
            if isinstance(item, Work):
                now[rank] += item.us
            elif isinstance(item, Begin) and item.after is None:
                done.arrival[rank, item.op] = now[rank]
            elif isinstance(item, Begin):
                held.append((rank, item))
            elif isinstance(item, Join):
                if done.end[rank, item.op] <= now[rank]:
                    done.idle.add((rank, item.op))
                now[rank] = max(now[rank], done.end[rank, item.op])
                done.release[rank, item.op] = now[rank]
            at[rank] += 1
            moved = True
    assert all(at[r] == len(p) for r, p in programs.items()), "the programs wait for each other"
    done.finish = now
    return done


def flat(program: Program) -> Iterator[Work | Begin | Join]:
    for item in program:
        if isinstance(item, str):
            yield from (Begin(item), Join(item))
        else:
            yield item


def begun(program: Program) -> list[str]:
    return [i.op for i in program if isinstance(i, Begin)]


def told(
    programs: Mapping[int, Program],
    transfer: Mapping[str, int],
    groups: Sequence[ProcessGroup],
    begin: Mapping[int, int] | None = None,
    ahead: Mapping[int, int] | None = None,
    **more: Any,
) -> list[RankSummary]:
    """The summaries of ranks that ran their programs; clocks are ``ahead`` by so many µs. ``more``: for all of them.

    An operation whose name begins with the id of a group is of it, and point-to-point if its kind is pp.
    """
    played = play(programs, transfer, begin)
    return [
        _told(rank, [*flat(p)], played, groups, (begin or {}).get(rank, 0), (ahead or {}).get(rank, 0), more)
        for rank, p in programs.items()
    ]


def _told(
    rank: int, program: list[Any], played: Played, groups: Sequence[ProcessGroup], begin: int, ahead: int,
    more: dict[str, Any],
) -> RankSummary:  # fmt: skip
    ops = sorted(begun(program), key=lambda op: played.arrival[rank, op])
    row = {op: i for i, op in enumerate(ops)}
    base, after, to_start = np.full(len(ops), -1), np.full(len(ops), -1), [Work()] * len(ops)
    spent, until, to_block, since = [Work()] * len(ops), [], [], []
    total, own, block = Work(), Work(), -1
    for item in program:
        if isinstance(item, Work):
            total, own = plus(total, item), plus(own, item)
        elif isinstance(item, Join):
            until.append(row[item.op])
            to_block.append(own)
            own, block = Work(), block + 1
        elif item.after is None:
            base[row[item.op]], to_start[row[item.op]], spent[row[item.op]] = block, own, total
        else:
            after[row[item.op]], to_start[row[item.op]] = row[item.after], Work(other=item.gap)
            base[row[item.op]] = block
    release = [played.release[rank, ops[u]] for u in until]
    since = [before + w.us for before, w in zip([begin, *release], to_block, strict=False)]
    pieces = [(u, s, r) for u, s, r in zip(until, since, release, strict=True) if r > s]
    times = ints([played.arrival[rank, op] for op in ops]), ints([played.end[rank, op] for op in ops])
    window = (begin + ahead) * US, (played.finish[rank] + ahead) * US
    kinds = {g.id: g.kind for g in groups}
    return summary(
        rank,
        begin=window[0],
        end=window[1],
        step_number=ints([1]),
        step_start=ints([window[0]]),
        step_end=ints([window[1]]),
        operations=replace(
            operations([{"group": op.partition("/")[0], "name": op, "step": 1} for op in ops]),
            start=(times[0] + ahead) * US,
            end=(times[1] + ahead) * US,
            p2p=np.array([kinds[op.partition("/")[0]] == "pp" for op in ops], np.bool_),
        ),
        groups=tuple(g for g in groups if rank in g.ranks),
        until=ints(until),
        block_start=(ints(since) + ahead) * US,
        base=ints(base.tolist()),
        after=ints(after.tolist()),
        to_start=local(to_start),
        to_block=local(to_block),
        tail=local([own]),
        to_step=local([Work()]),
        in_step=local([total]),
        compute_before=ints([w.compute for w in spent]) * US,
        host_before=ints([w.host for w in spent]) * US,
        exposed_op=ints([p[0] for p in pieces]),
        exposed_start=(ints([p[1] for p in pieces]) + ahead) * US,
        exposed_end=(ints([p[2] for p in pieces]) + ahead) * US,
        compute_ns=total.compute * US,
        host_ns=total.host * US,
        **more,
    )


def plus(a: Work, b: Work) -> Work:
    return Work(a.compute + b.compute, a.host + b.host, a.other + b.other)


def local(parts: Sequence[Work]) -> LocalTime:
    return LocalTime(*(ints([getattr(w, name) for w in parts]) * US for name in ("us", "compute", "host")))

"""Verify a core limit: no kernel of a stream, a range of names or a name may use more cores than it was given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, chain, say, say_n, series
from npuperf.device.cores import blocks, on_cores
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.document import Gate, OverLimit
from npuperf.model.groups import distinct
from npuperf.model.labels import Mask
from npuperf.model.tasks import Tasks, Work

#: No stream and no number of cores has more.
_DIGITS: Final = 9
_FORM: Final = re.compile(
    rf"^(?P<where>.+)=\s*(?P<cube>[0-9]{{1,{_DIGITS}}})\s*,\s*(?P<vector>[0-9]{{1,{_DIGITS}}})\s*$"
)
_UNCHECKED: Final = say(
    "core counts are unknown (give --cores or --soc), so whether the chip has as many was not checked"
)
_COLLECTIVE: Final = re.compile(r"aivkernel|hcom|hccl|allreduce|allgather|reducescatter|alltoall", re.I)


class Expectation(Struct, frozen=True):
    """``where``: a stream's number, ``FIRST..LAST`` (names of operators) or a name with wildcards."""

    expr: str
    where: str
    cube: int
    vector: int

    @property
    def stream(self) -> int | None:
        """The stream meant, if it is one."""
        return int(self.where) if self.where.isdecimal() and len(self.where) <= _DIGITS else None


def parse_expectation(option: str, text: str) -> Expectation:
    """Read ``WHERE=CUBE,VECTOR``. Raises UsageError."""
    found = _FORM.match(text)
    if found is None:
        stream = say('give STREAM=CUBE,VECTOR, e.g. "5=8,16"')
        names = say('or names of operators instead of the stream: "MatMul_3..Add_7=8,16", "MatMul*=8,16"')
        hint = chain(stream, names if option == "--expect-cores" else None, by=", ")
        raise UsageError(say("{option} {text}: cannot be read", option=option, text=repr(text)), hint=hint)
    return Expectation(text, found["where"].strip(), int(found["cube"]), int(found["vector"]))


def refuse_beyond(option: str, given: str, limit: tuple[int, int], chip: tuple[int, int]) -> None:
    """Raise UsageError for a limit that a chip with these cube and vector cores cannot have.

    It is at least 1 on a side that the chip has, and never more than there are.
    """
    wrong = [not min(1, most) <= value <= most for value, most in zip(limit, chip, strict=True)]
    if not any(wrong):
        return
    cores = say("{n} cube cores", n=limit[0]) if wrong[0] else say("{n} vector cores", n=limit[1])
    hint = say("this chip has {cube} cube and {vector} vector cores", cube=chip[0], vector=chip[1])
    raise UsageError(
        say("{option} {given}: cannot limit to {cores}", option=option, given=given, cores=cores), hint=hint
    )


class Checked(Struct, frozen=True):
    """One device's kernels held against a limit: how many, how many with unknown blocks, and those above it.

    ``half_unknown``: those of the unknown of which only the secondary side is not recorded. ``unchecked``: the chip's
    core counts are unknown, so nobody can tell whether it has as many as the limit says.
    """

    kernels: int
    unknown: int
    over: list[OverLimit]
    streams: list[int]
    half_unknown: int = 0
    unchecked: bool = False


def check_limit(profile: DeviceProfile, limit: Expectation, cores: Cores) -> Checked:
    """Hold every AI Core kernel in the limit's range against it, the main and the secondary side of mix kernels.

    Raises UsageError where the chip does not have as many cores.
    """
    if cores.cube is not None:
        vector = limit.vector if cores.vector is None else cores.vector
        refuse_beyond("--expect-cores", limit.expr, (limit.cube, limit.vector), (cores.cube, vector))
    tasks = profile.tasks
    mine = _meant(tasks, limit) & on_cores(tasks) & (tasks.work != Work.CONTROL)
    used = blocks(tasks)
    over = mine & ((used.cube > limit.cube) | (used.vector > limit.vector))
    unknown = mine & used.unknown
    groups: dict[tuple[int, int, int, int, int], list[int]] = {}
    for i in np.flatnonzero(over).tolist():
        key = (int(tasks.stream[i]), int(tasks.type.codes[i]), int(tasks.core.codes[i]))
        groups.setdefault((*key, int(used.cube[i]), int(used.vector[i])), []).append(i)
    obeyed = {int(c) for c in tasks.type.codes[mine & ~over].tolist()}
    rows = [
        OverLimit(
            rank=profile.rank,
            device=profile.device,
            stream=stream,
            name=tasks.name[at[0]] or "",
            type=tasks.type[at[0]],
            core=tasks.core[at[0]] or "",
            count=len(at),
            cube=max(cube, 0),
            vector=max(vector, 0),
            reason=_reason(tasks, at[0], everything=bool(over[mine].all()), obeyed=code in obeyed),
        )
        for (stream, code, _, cube, vector), at in groups.items()
    ]
    return Checked(
        kernels=int(mine.sum()),
        unknown=int((unknown & ~over).sum()),
        over=sorted(rows, key=lambda r: -r.count),
        streams=distinct(tasks.stream[tasks.stream >= 0]).tolist(),
        half_unknown=int((unknown & ~over & (tasks.block > 0)).sum()),
        unchecked=cores.cube is None,
    )


def _meant(tasks: Tasks, limit: Expectation) -> Mask:
    """True for tasks of a stream, of a name, or from one ``FIRST`` to the next ``LAST`` on its stream, every time."""
    if limit.stream is not None:
        return np.equal(tasks.stream, limit.stream)
    if ".." not in limit.where:
        return tasks.name.flag([fnmatchcase(n, limit.where) for n in tasks.name.names])
    first, last = (part.strip() for part in limit.where.split("..", 1))
    begins = tasks.name.flag([fnmatchcase(n, first) for n in tasks.name.names])
    ends = tasks.name.flag([fnmatchcase(n, last) for n in tasks.name.names])
    inside = np.zeros(len(tasks), np.bool_)
    for stream in distinct(tasks.stream[begins]).tolist():
        mine = np.flatnonzero(tasks.stream == stream)
        opened, closed = np.flatnonzero(begins[mine]), np.flatnonzero(ends[mine])
        at = np.searchsorted(closed, opened)
        reached = -1
        for begin, i in zip(opened.tolist(), at.tolist(), strict=True):
            if i < len(closed) and begin > reached:
                reached = int(closed[i])
                inside[mine[begin : reached + 1]] = True
    return inside


def _reason(tasks: Tasks, i: int, *, everything: bool, obeyed: bool) -> Message:
    """Name the likeliest reason why a kernel is above the limit."""
    if _COLLECTIVE.search(f"{tasks.name[i]} {tasks.type[i]}"):
        return say("communication: only its vector cores can be limited, with HCCL_OP_EXPANSION_MODE=AIV")
    if everything:
        return say(
            "no kernel obeys the limit: the scope does not cover them, or static kernel compilation is on as well"
        )
    if obeyed:
        return say(
            "others of this type obey: this one is outside the scope, or its binary was compiled statically before"
        )
    return say(
        "none of this type obeys: its binary was compiled statically before, or it is not an Ascend C operator (the "
        "profile does not tell)"
    )


def judge_cores(limit: Expectation, devices: Sequence[Checked]) -> Gate:
    """Sum the devices up to one gate: the kernels above the limit, of which there may be none."""
    over = tuple(row for checked in devices for row in checked.over)
    above = sum(row.count for row in over)
    kernels, unknown = (sum(getattr(c, name) for c in devices) for name in ("kernels", "unknown"))
    if over:
        reason = say_n(
            "{above} of {n} kernel above the limit", "{above} of {n} kernels above the limit", kernels, above=above
        )
        return Gate(expr=limit.expr, status="fail", value=above, limit=0, over=over, reason=reason)
    if kernels and not unknown:
        reason = say_n("{n} kernel within the limit", "{n} kernels within the limit", kernels)
        doubt = _UNCHECKED if any(c.unchecked for c in devices) else None
        return Gate(expr=limit.expr, status="pass", value=0, limit=0, reason=chain(reason, doubt))
    if kernels and unknown == sum(c.half_unknown for c in devices):
        reason = say_n("Mix Block Dim is not recorded for {unknown} of {n} kernel: npuperf profile --level 1",
                       "Mix Block Dim is not recorded for {unknown} of {n} kernels: npuperf profile --level 1",
                       kernels, unknown=unknown)  # fmt: skip
    elif kernels:
        reason = say_n("Block Dim is not recorded for {unknown} of {n} kernel: npuperf profile --level 1",
                       "Block Dim is not recorded for {unknown} of {n} kernels: npuperf profile --level 1",
                       kernels, unknown=unknown)  # fmt: skip
    else:
        streams = sorted({s for checked in devices for s in checked.streams})
        listed = say("streams: {streams}", streams=series(streams)) if streams else say("streams: none recorded")
        order = say("(FIRST..LAST: in this order, on one stream)") if ".." in limit.where else None
        reason = chain(chain(say("no AI Core kernel matches"), listed), order, by=" ")
    return Gate(expr=limit.expr, status="cannot_tell", value=None, limit=0, reason=reason)

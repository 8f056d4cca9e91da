"""SuperKernels of a profile beside the kernels they replaced in an earlier one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from math import fsum
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, chain, ns, say, series
from npuperf.device.superkernel import launch_blocks, launch_cores
from npuperf.model.comparison import Compared, Outcome
from npuperf.model.groups import distinct
from npuperf.model.labels import F64, I64, Mask
from npuperf.model.noise import Judged, judge_shift
from npuperf.model.result import Basis, SuperKernelCheck
from npuperf.model.tasks import Tasks, Work

#: GE names a SuperKernel after its scope, its first and its last operator; of a scope that it cut at other operators
#: each part is named ``SCOPE_split_BEGIN_END``.
_NAME: Final = re.compile(r"^sk_(?P<scope>.+?)_start_(?P<first>.+)_end_(?P<last>.+)$")
_SPLIT: Final = re.compile(r"_split_\d+_\d+$")
_NUMBER: Final = re.compile(r"_\d+$")
_NUMBERS: Final = re.compile(r"\d+")
_ANY: Final = re.compile(r"^(te_superkernel|sk_.+_start_)", re.I)
UNNAMED: Final = "(unnamed)"
_SHOWN: Final = 4
#: Kernels of a type that a step must have fewer of, on average, to call them replaced.
_A_KERNEL: Final = 0.5


class _Replaced(Struct, frozen=True):
    """Where in the earlier profile the kernels of a SuperKernel ran: step, elapsed time and gaps (ns) of every run."""

    kernels: int
    step: I64
    elapsed: I64
    gaps: I64
    blocks: int


class _Sides(Struct, frozen=True):
    """The tasks of both profiles, the lines of plog files, and from which relative difference on it is worth a word."""

    before: Tasks
    after: Tasks
    log: Sequence[str]
    ratio: float


def is_super_kernel(tasks: Tasks) -> Mask:
    """True for SuperKernels: by their type, or by the names that the compiler and GE give them."""
    by_type = tasks.type.flag([t.lower() == "superkernel" for t in tasks.type.names])
    by_name = tasks.name.flag([bool(_ANY.match(n)) for n in tasks.name.names])
    return (by_type | by_name) & np.equal(tasks.work, Work.COMPUTE)


def check_super_kernels(before: Tasks, after: Tasks, log: Sequence[str], ratio: float) -> list[SuperKernelCheck]:
    """Compare every SuperKernel of ``after`` with what ``before`` ran in its place; ``log``: lines of plog files.

    Steps are the samples; differences of less than this ``ratio`` are none.
    """
    sides = _Sides(before, after, log, ratio)
    found = np.flatnonzero(is_super_kernel(after))
    if not len(found):
        return [_check("–", _NONE, log)]
    scopes: dict[str, dict[str, list[int]]] = {}
    for i in found.tolist():
        name = after.name[i] or ""
        match = _NAME.match(name)
        scope = _SPLIT.sub("", match["scope"]) if match else UNNAMED
        scopes.setdefault(scope, {}).setdefault(name, []).append(i)
    unnamed = scopes.pop(UNNAMED, {})
    # Scopes whose names differ by their last number only are one scope, named anew for every use of it.
    families: dict[str, list[str]] = {}
    for scope in scopes:
        families.setdefault(_NUMBER.sub("_*", scope), []).append(scope)
    checks = []
    for family, members in families.items():
        parts = {name: at for scope in members for name, at in scopes[scope].items()}
        checks.append(_of_scope(family if len(members) > 1 else members[0], parts, sides))
    if unnamed:
        rows = np.array(sorted(i for at in unnamed.values() for i in at))
        checks.append(_by_disappearance(rows, sides, alone=not scopes))
    return checks


def _of_scope(scope: str, parts: dict[str, list[int]], sides: _Sides) -> SuperKernelCheck:
    """Compare one scope, found by the names of its first and last operators."""
    before, after = sides.before, sides.after
    rows = [np.array(at) for at in parts.values()]
    took = fsum(float(after.dur[at].mean()) for at in rows)
    pieces, broken = _broken(parts)
    answer = partial(_check, scope, log=sides.log, new_ns=round(took), count=max(map(len, rows)), parts=pieces)
    if not len(before):
        return answer(chain(_NO_EARLIER, broken))
    block = max(int(after.block[at].max()) for at in rows)
    replaced = [_find(name, before) for name in parts]
    known = [r for r in replaced if r is not None]
    answer = partial(answer, block_dim=max(block, 0) or None)
    if len(known) < len(parts):
        missing = next(name for name, r in zip(parts, replaced, strict=True) if r is None)
        absent = say("the operators that {name} names are not in the earlier profile", name=missing)
        return answer(chain(absent, broken))
    was = fsum(float(r.elapsed.mean()) for r in known)
    judged = judge_shift(
        [_in_steps([(r.step, r.elapsed) for r in known])],
        [_in_steps([(after.step[at], after.dur[at]) for at in rows])],
        ratio=sides.ratio,
    )
    expected = max(r.blocks for r in known)
    became = say(
        "{before} became {after}, {noise}", before=ns(round(was)), after=ns(round(took)), noise=_noise_text(judged)
    )
    fewer = None
    if 0 < block != expected > 0:
        fewer = say(
            "it launches with {block} cores, its kernels with {expected} at most", block=block, expected=expected
        )
    return answer(
        chain(became, judged.needs, fewer, broken),
        verdict=judged.verdict,
        noise=judged.margin,
        kernels=sum(r.kernels for r in known),
        block_expected=expected or None,
        old_ns=round(was),
        gaps_ns=round(fsum(float(r.gaps.mean()) for r in known)),
    )


_NONE: Final = say(
    "no SuperKernel in this profile: no scope is set, it is in a dynamic graph, or nothing can be fused (plog says "
    "what, with ASCEND_GLOBAL_LOG_LEVEL=2)"
)
_NO_EARLIER: Final = say("no earlier profile to compare with (--before)")


def _broken(parts: dict[str, list[int]]) -> tuple[int, Message | None]:
    """Return into how many SuperKernels a scope broke at most, and say so.

    Equal sequences of one name are no break: the name was used for each of them, and GE cut its range between them.
    """
    uses: dict[str, dict[str, re.Match[str]]] = {}
    for match in filter(None, map(_NAME.match, parts)):
        uses.setdefault(_SPLIT.sub("", match["scope"]), {}).setdefault(match["scope"], match)
    most = max(map(len, uses.values()), default=0)
    told = (_cut(scope, list(pieces.values())) for scope, pieces in uses.items())
    found = [message for message in told if message]
    if len(uses) > 1 and found:
        number = say("{n} of {all} scopes of this name are not whole", n=len(found), all=len(uses))
        return most, chain(number, found[0])
    return most, found[0] if found else None


def _cut(scope: str, pieces: Sequence[re.Match[str]]) -> Message | None:
    """Say what GE's names tell about where it cut the range of one name."""
    kinds: dict[str, list[re.Match[str]]] = {}
    for match in pieces:
        kinds.setdefault(_NUMBERS.sub("#", f"{match['first']} … {match['last']}"), []).append(match)
    named = series((f"{m[0]['first']} … {m[0]['last']}" for m in list(kinds.values())[:_SHOWN]), by="; ")
    broke = say("the scope broke into {n} SuperKernels: {names}", n=len(kinds), names=named) if len(kinds) > 1 else None
    times = max(map(len, kinds.values()))
    again = say(
        "the name {scope} stands for {times} equal sequences with other operators between them, each of which is a "
        "SuperKernel: strict-scope-check would refuse them all, so give each use a name of its own",
        scope=scope,
        times=times,
    )
    edge = None
    if len(pieces) == 1 and _SPLIT.search(pieces[0]["scope"]):
        edge = say("the scope was cut: {names} is what is left of it in a SuperKernel", names=named)
    said = [message for message in (broke, again if times > 1 else None, edge) if message]
    return chain(*said) if said else None


def _noise_text(judged: Judged) -> Message:
    if judged.margin is None:
        return say("noise unknown: {why}", why=judged.method)
    return say("noise {noise}", noise=ns(round(judged.margin)))


def _in_steps(parts: Sequence[tuple[I64, I64]]) -> F64:
    """Return how long a mean run of all parts takes in each step that has all of them (ns).

    ``parts``: of every part the steps of its runs, negative outside of steps, and how long each took.
    """
    means = []
    for step, took in parts:
        inside = step >= 0
        steps = distinct(step[inside])
        place = np.searchsorted(steps, step[inside])
        mean = np.bincount(place, took[inside], len(steps)) / np.bincount(place, minlength=len(steps))
        means.append(dict(zip(steps.tolist(), mean.tolist(), strict=True)))
    whole = sorted(set(means[0]).intersection(*means[1:]))
    return np.array([sum(mean[step] for mean in means) for step in whole], np.float64)


def _find(name: str, before: Tasks) -> _Replaced | None:
    """Find every run of the operators from the first to the last that a SuperKernel is named after."""
    match = _NAME.match(name)
    assert match is not None
    first, last = _named(before, match["first"]), _named(before, match["last"])
    if not last.any():  # the number at the end may be the SuperKernel's own
        last = _named(before, _NUMBER.sub("", match["last"]))
    steps, elapsed, gaps, found = [], [], [], np.empty(0, np.int64)
    for stream in distinct(before.stream[first]).tolist():
        mine = np.flatnonzero((before.stream == stream) & (before.work == Work.COMPUTE))
        begins, ends = np.flatnonzero(first[mine]), np.flatnonzero(last[mine])
        for begin, after in zip(begins.tolist(), [*begins[1:].tolist(), len(mine)], strict=True):
            at = int(np.searchsorted(ends, begin))
            if at < len(ends) and ends[at] < after:
                run = mine[begin : int(ends[at]) + 1]
                whole = int(before.end[run].max() - before.start[run[0]])
                steps.append(int(before.step[run[0]]))
                elapsed.append(whole)
                gaps.append(int(np.maximum(before.start[run][1:] - before.end[run][:-1], 0).sum()))
                found = run
    if not elapsed:
        return None
    launch = launch_cores(before, found)
    return _Replaced(
        len(found), np.array(steps), np.array(elapsed), np.array(gaps), launch_blocks(launch) if launch else 0
    )


def _named(tasks: Tasks, name: str) -> Mask:
    return tasks.name.flag([n == name for n in tasks.name.names])


def _by_disappearance(found: I64, sides: _Sides, *, alone: bool) -> SuperKernelCheck:
    """Compare SuperKernels without telling names with the kernels that there are fewer of per step.

    ``alone``: there are no others, which would have replaced some of these kernels.
    """
    before, after, log = sides.before, sides.after, sides.log
    if not len(before):
        return _check(UNNAMED, _NO_EARLIER, log, count=len(found))
    if not all((tasks.step >= 0).any() for tasks in (before, after)):
        reason = say("the SuperKernels do not name their operators, and without steps it is unknown what they replaced")
        return _check(UNNAMED, reason, log, new_ns=int(after.dur[found].sum()), count=len(found))
    was_run, is_run = (
        {name: _per_step(t, np.flatnonzero(kernels & t.type.flag([n == name for n in t.type.names])))
         for name in t.type.names if name}
        for t in (before, after) for kernels in [np.equal(t.work, Work.COMPUTE) & ~is_super_kernel(t)]
    )  # fmt: skip
    fused = _per_step(after, found)
    none = np.zeros_like(fused)
    fewer = {name: was[0].mean() - is_run.get(name, none)[0].mean() for name, was in was_run.items()}
    gone = {name: n for name, n in fewer.items() if n > _A_KERNEL}
    came = {name: now[0].mean() - was_run.get(name, none)[0].mean() for name, now in is_run.items()}
    others = [name for name, n in came.items() if n > _A_KERNEL]
    now = round(float(fused[1].mean()))
    parts = len(distinct(after.name.codes[found]))
    answer = partial(_check, UNNAMED, log=log, count=len(found), parts=parts, new_ns=now, basis="inferred")
    if not gone:
        return answer(say("no kernels disappeared with which they could be compared"))
    was = np.sum([was_run[name][1] for name in gone], axis=0)
    left = np.sum([fused[1], *(is_run.get(name, none)[1] for name in gone)], axis=0)
    judged, gain = judge_shift([was], [left], ratio=sides.ratio), float(was.mean() - left.mean())
    faster = alone and not others and judged.verdict == "better"
    types = series(f"{name} ×{n:.0f}" for name, n in list(gone.items())[:_SHOWN])
    more = say("there are more of {types}, which may have replaced some", types=series(others[:_SHOWN]))
    reason = chain(
        say(
            "per step, compared with the kernels that disappeared: {types}, {noise}",
            types=types,
            noise=_noise_text(judged),
        ),
        judged.needs,
        say("the gaps between those kernels are saved, too, but not counted"),
        more if others else None,
        None if alone else say("some were replaced by the SuperKernels that name their operators"),
    )
    return answer(
        reason,
        kernels=round(float(sum(gone.values()))),
        old_ns=now + round(gain),
        noise=judged.margin,
        verdict="better" if faster else "cannot_tell",
    )


def _per_step(tasks: Tasks, rows: I64) -> I64:
    """Return in row 0 how many of these tasks each step has, and in row 1 how long they take (ns)."""
    steps = distinct(tasks.step[tasks.step >= 0])
    rows = rows[tasks.step[rows] >= 0]
    place = np.searchsorted(steps, tasks.step[rows])
    count, time = (np.bincount(place, weights, len(steps)) for weights in (None, tasks.dur[rows]))
    return np.stack([count, time.astype(np.int64)])


def _check(
    scope: str,
    reason: Message,
    log: Sequence[str],
    *,
    verdict: Outcome = "cannot_tell",
    old_ns: int | None = None,
    new_ns: int | None = None,
    noise: float | None = None,
    count: int = 0,
    parts: int = 0,
    kernels: int = 0,
    block_dim: int | None = None,
    block_expected: int | None = None,
    gaps_ns: int | None = None,
    basis: Basis = "measured",
) -> SuperKernelCheck:
    pattern = re.escape(scope[:-1]) + r"\d+" if scope.endswith("_*") else re.escape(scope)
    named = re.compile(rf"(?<!\w){pattern}(?!\w)")
    about = [line for line in log if named.search(line)] if scope not in ("–", UNNAMED) else []
    return SuperKernelCheck(
        compared=Compared(
            kind="scope",
            name=scope,
            change="changed" if old_ns is not None else "added",
            verdict=verdict,
            old_ns=old_ns,
            new_ns=new_ns,
            count=count,
            noise_ns=None if noise is None else round(noise),
        ),
        parts=parts,
        kernels=kernels,
        block_dim=block_dim,
        block_expected=block_expected,
        gaps_ns=gaps_ns,
        basis=basis,
        reason=reason,
        log=about or list(log),
    )

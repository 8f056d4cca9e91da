"""Whether two sides were set up alike: what differs, in the order of what it may change, and what may not be compared.

The AI Core clock and what recording costs come first: they make everything slower, whatever the program does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from math import fsum
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from npuperf.against.waterfall import Cell, Row, Sums, keyed, type_of
from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, chain, factor, say, share
from npuperf.model.comparison import Difference, Parity, worded
from npuperf.model.parts import KeyedBy, Lack, Workload
from npuperf.model.result import Result
from npuperf.model.thresholds import Thresholds

#: Of the factor that recording makes a step longer by: measured on few steps, it is no more exact.
_OVERHEAD: Final = 0.05
#: Of the launches or the time, that both have: below, the sides did not do the same work.
_IN_COMMON: Final = 0.5
#: The difference that makes a step of one side another thing than one of the other.
_TOLD_BY: Final = "steps told by"
#: Differences that a sentence names.
_NAMED: Final = 3
#: From here on the share of compute time in operators of a backward pass, or of an optimizer, makes a run a training.
_BACKWARD: Final = 0.01
_TRAINING: Final = re.compile(
    r"Grad(V\d+)?$|Backward|Backprop|^Apply(Adam|Ada|Momentum|RMSProp|GradientDescent)|[dw]grad|bn_bw"
)
#: What a recording may lack: what it is called, what there is on the side that has it and on the other one, and what
#: comes of that.
_LACKS: Final[dict[Lack, tuple[str, str, str | None, Message]]] = {
    "rows": ("table of kernels", "whole", "rows are missing",
             say("what seems new or gone may be among the rows that are missing")),
    "launches": ("launches of kernels", "recorded", None,
                 say("where they are not recorded, waiting for the host is part of unattributed idle time")),
    "calls": ("calls of the runtime", "recorded", None,
              say("where they are not recorded, other events are blamed for waiting for the host")),
}  # fmt: skip


class Side(Struct, frozen=True):
    """One side: its runs, of which the first speaks for all, and their sums."""

    runs: Sequence[Result]
    sums: Sums

    @property
    def workload(self) -> Workload:
        """What was run."""
        return self.runs[0].workload

    @property
    def kineto(self) -> bool:
        """Whether it was recorded on a GPU (or CPU) with Kineto."""
        return self.workload.kineto or self.runs[0].input.kind == "kineto"


def differences(old: Side, new: Side, thresholds: Thresholds) -> tuple[Difference, ...]:
    """Return what differs between the set-ups, what may change most first."""
    return (
        *_measured(old.workload, new.workload, thresholds),
        *_work(old, new),
        *_recorded(old, new),
        *_machine(old, new),
        *_read(old, new),
    )


def alike(old: Side, new: Side, found: Sequence[Difference]) -> Parity:
    """Tell whether both sides ran the same: by what differs, by their command, or by their launches."""
    if any(difference.mismatch for difference in found):
        return "different"
    if old.workload.command and old.workload.command == new.workload.command:
        return "same"
    common = in_common(old, new)
    return "same" if common is not None and common >= _IN_COMMON else "unknown"


def refuse_mismatch(found: Sequence[Difference]) -> None:
    """Raise UsageError where the sides are not of one workload."""
    mismatches = [chain(sentence(d), d.reason, by=", ") for d in found if d.mismatch]
    if mismatches:
        what = say("the two sides are not of one workload: {differences}", differences=chain(*mismatches[:_NAMED]))
        raise UsageError(what, hint=say("--allow-mismatch compares them all the same, and says so in the verdict"))


def sentence(difference: Difference) -> Message:
    """Say a difference with both values."""
    old, new = (say("not recorded") if side is None else worded(side) for side in (difference.old, difference.new))
    return say("{what}: {old} against {new}", what=worded(difference.what), old=old, new=new)


# --- what is checked before anything is blamed ------------------------------------------------------------------------


def _measured(old: Workload, new: Workload, thresholds: Thresholds) -> Iterator[Difference]:
    """Yield what makes all times others: the clock of the AI Cores, and what recording costs."""
    if old.frequency_mhz is not None and new.frequency_mhz is not None:
        pairs = list(zip(old.frequency_mhz, new.frequency_mhz, strict=True))
        if any(abs(b - a) > thresholds.clock_ratio * max(a, b) for a, b in pairs):
            why = say("the AI Core clock of the new side has another range: kernels took more or less time with it")
            if all(b <= a for a, b in pairs):
                why = say("the AI Core clock of the new side is lower: kernels take longer with it")
            elif all(b >= a for a, b in pairs):
                why = say("the AI Core clock of the new side is higher: kernels take less time with it")
            ranges = (f"{a} MHz" if a == b else f"{a}-{b} MHz" for a, b in (old.frequency_mhz, new.frequency_mhz))
            yield _differs("AI Core frequency", *ranges, reason=why)
    a, b = old.recording_overhead, new.recording_overhead
    times = (None if overhead is None else f"{overhead:.2f}" for overhead in (a, b))
    if a is None or b is None:
        costly = next((x for x in (a, b) if x is not None and x - 1 > thresholds.recording_cost_share), None)
        if costly is not None:
            why = say("recording made the steps of one side {factor} times as long; of the other that is not known",
                      factor=factor(costly))  # fmt: skip
            yield _differs("recording overhead", *times, reason=why)
    elif abs(b - a) > _OVERHEAD * min(a, b):
        why = say("recording made steps {old} and {new} times as long: the host's part of it is not the program's",
                  old=factor(a), new=factor(b))  # fmt: skip
        yield _differs("recording overhead", *times, reason=why)


# --- the work ---------------------------------------------------------------------------------------------------------


def _work(old: Side, new: Side) -> Iterator[Difference]:
    a, b = old.workload, new.workload
    certain = bool(a.command) and a.command == b.command
    if a.world_size is not None and b.world_size is not None and a.world_size != b.world_size:
        yield _differs("world size", str(a.world_size), str(b.world_size), mismatch=True)
    modes = _mode(old), _mode(new)
    if None not in modes and modes[0] != modes[1] and old.kineto == new.kineto:
        yield _differs("operators of training", modes[0], modes[1], mismatch=not certain)
    common = in_common(old, new)
    if common is not None and common < _IN_COMMON:
        why = say("only {common} of the kernels are on both sides", common=share(common))
        if not common:
            why = say("no operator is on both sides")
        total = (f"{fsum(n for n, _ in _operators(side.sums).values()):.0f}" for side in (old, new))
        what = "launches per step" if _stepped(old) and _stepped(new) else "launches"
        yield _differs(what, *total, mismatch=not certain, reason=why)
    if a.command and b.command and not certain:
        names = [[PurePosixPath(word).name for word in command] for command in (a.command, b.command)]
        scripts = {next((name for name in words if name.endswith(".py")), words[0]) for words in names}
        other = len(scripts) > 1 and common is None
        yield _differs("command", " ".join(a.command), " ".join(b.command), mismatch=other)
    if (a.groups or b.groups) and set(a.groups) != set(b.groups):
        texts = (", ".join(f"{g.kind} {g.groups} × {g.ranks}" for g in w.groups) or None for w in (a, b))
        yield _differs("process groups", *texts)


def _recorded(old: Side, new: Side) -> Iterator[Difference]:
    """Yield what only one side recorded, and what parts and operators say on the other one."""
    lacks = [{lack for run in side.runs if run.digest is not None for lack in run.digest.lacks} for side in (old, new)]
    for lack, (what, there, lacking, why) in _LACKS.items():
        if (lack in lacks[0]) != (lack in lacks[1]):
            texts = (lacking if lack in side else there for side in lacks)
            yield _differs(what, *texts, reason=why)
    bounded = [_bounded_by(side) for side in (old, new)]
    if None not in bounded and bounded[0] != bounded[1]:
        texts = ("the host's ranges" if host else "first kernels" for host in bounded)
        why = say(
            "steps of one side are as the host ran them, of the other from first kernel to first kernel, so that what "
            "the host does before the first one counts on one side only; analyze the recording anew where it was "
            "analyzed by an earlier version, and record the timeline on both sides"
        )
        yield _differs(_TOLD_BY, *texts, reason=why)


def told_apart(parity: Sequence[Difference]) -> Message | None:
    """Return why steps are not the same on both sides, where they are told by something else."""
    return next((difference.reason for difference in parity if difference.what == _TOLD_BY), None)


def _bounded_by(side: Side) -> bool | None:
    """Tell whether the host's ranges bound the steps of a side; None where it has none, or of either kind."""
    kinds = {run.digest.bounded_by for run in side.runs if run.digest is not None and run.digest.steps}
    return "host" in kinds if len(kinds) == 1 and side.sums.total_ns else None


def in_common(old: Side, new: Side) -> float | None:
    """Return which part of the work both sides have, by operator: of the launches, or of the time if that is more.

    A fused operator takes many launches away, other shapes change all the time: only where both are few, it is other
    work. None where that cannot be told.
    """
    if old.kineto != new.kineto:
        return None
    sides = [_operators(side.sums) for side in (old, new)]
    launches = [fsum(n for n, _ in operators.values()) for operators in sides]
    if not all(launches):
        return None
    shared = [key for key in sides[0] if key in sides[1]]
    counted = fsum(min(sides[0][key][0], sides[1][key][0]) for key in shared) / max(launches)
    totals = [sum(ns for _, ns in operators.values()) for operators in sides]
    timed = [
        sum(side[key][1] for key in shared) / all_ns if all_ns else 0.0
        for side, all_ns in zip(sides, totals, strict=True)
    ]
    return max(counted, min(timed))


def _operators(sums: Sums) -> dict[str | None, tuple[float, int]]:
    """Return launches per step and ns of all steps by operator."""
    windows = max(sums.windows, 1)
    return {row[1]: (cell.count / windows, cell.ns) for row, cell in sums.cells.items() if row[0] == "compute"}


def _mode(side: Side) -> str | None:
    """Tell by their names whether there are operators of a backward pass; None where no operator is named.

    Names tell of training, and never that a run is none: TransData and MatMul are on both ways.
    """
    compute = [(row[1], cell) for row, cell in side.sums.cells.items() if row[0] == "compute" and row[1]]
    total = sum(cell.ns for _, cell in compute)
    if not total:
        return None
    backward = sum(
        cell.ns
        for key, cell in compute
        if "Backward" in (cell.torch_op or "") or _TRAINING.search(type_of(key, side.sums.types) or "")
    )
    return "yes" if backward > _BACKWARD * total else "none by their names"


# --- what it ran on, and how it was read ------------------------------------------------------------------------------


def _machine(old: Side, new: Side) -> Iterator[Difference]:
    a, b = old.workload, new.workload
    cores: list[str | None] = []
    for side in (old, new):
        known = {(d.cores_cube, d.cores_vector) for d in side.runs[0].devices if d.cores_cube or d.cores_vector}
        texts = (f"{cube or 0} cube + {vector or 0} vector" for cube, vector in sorted(known, key=str))
        cores.append(", ".join(texts) or None)
    yield from _unequal("SoC", a.soc, b.soc)
    yield from _unequal("cores", *cores)
    yield from _unequal("devices", str(len(old.runs[0].devices)), str(len(new.runs[0].devices)))
    if old.kineto != new.kineto:
        why = say("kernels of a GPU have other names: operators are compared by torch operator, or by what they do")
        yield _differs("recorded with", *("Kineto" if side.kineto else "Ascend" for side in (old, new)), reason=why)
    yield from _unequal("profiler level", a.level, b.level)
    for what, mine, theirs in (("profiler options", a.options, b.options), ("environment", a.settings, b.settings)):
        if mine and theirs and set(mine) != set(theirs):  # what only one side has, where both tell any
            alone = (", ".join(sorted(set(x) - set(y))) or None for x, y in ((mine, theirs), (theirs, mine)))
            yield _differs(what, *alone)
    yield from _unequal("CANN", a.cann, b.cann)
    yield from _unequal("torch_npu", a.torch_npu, b.torch_npu)
    yield from _unequal("torch", a.torch, b.torch)
    yield from _unequal("git commit", a.git_commit, b.git_commit)


def _read(old: Side, new: Side) -> Iterator[Difference]:
    lost = [sum(lost.rows for run in side.runs for lost in run.input.lost) for side in (old, new)]
    if lost[0] != lost[1]:
        yield _differs("rows lost in reading", str(lost[0]), str(lost[1]))
    yield from _unequal("operators told apart by", old.sums.keyed_by, new.sums.keyed_by, matters=False)
    digests = [[run.digest for run in side.runs if run.digest is not None] for side in (old, new)]
    steps = (" + ".join(str(len(d.steps)) if d.steps else "none" for d in side) or None for side in digests)
    yield from _unequal("steps", *steps, matters=_stepped(old) != _stepped(new))


def _stepped(side: Side) -> bool:
    return all(run.digest.steps for run in side.runs if run.digest is not None)


def _unequal(what: str, old: str | None, new: str | None, *, matters: bool = True) -> Iterator[Difference]:
    """Yield a difference where both sides are known."""
    if old is not None and new is not None and old != new:
        yield _differs(what, old, new, matters=matters)


def _differs(
    what: str,
    old: str | None,
    new: str | None,
    *,
    matters: bool = True,
    mismatch: bool = False,
    reason: Message | None = None,
) -> Difference:
    return Difference(what=what, old=old, new=new, matters=matters, mismatch=mismatch, reason=reason)


# -- Two sides whose operators bear the same names: what only one side tells is asked of neither.
#
# Keys with shapes need shapes on both sides. A GPU's kernels have other names than an NPU's: the two are compared by
# the torch operators that launched them where these are recorded and mostly the same, else by what kernels do.

#: Of the compute time of both sides: so much of it is of torch operators that both have, to compare by these.
_ENOUGH: Final = 0.5
#: What a kernel does, by what its name has in it: the first that fits.
_DOES: Final = tuple(
    (what, re.compile(pattern, re.I))
    for what, pattern in (
        ("attention", r"attention|flash|fmha|sdpa"),
        ("optimizer", r"adam|sgd|\blamb(?!da)|optimizer|foreach"),
        ("normalization", r"norm|bn_|batch_?normal"),
        ("moving and casting data", r"to_?n(hwc|chw)|transdata"),
        ("convolution", r"conv(?!ert)|[fdw](prop|grad)_|cudnn|winograd"),
        ("matrix products", r"matmul|gemm|gemv|bmm|\bmm\b|linear|cutlass|cublas|xmma"),
        ("softmax and loss", r"soft_?max|cross_?entropy|nll|loss"),
        ("indexing", r"index|gather|scatter|embedding|topk|sort|arange|nonzero|masked"),
        ("moving and casting data", r"cast|copy|cpy|memset|transpose|permute|concat|\bcat|slice|split|fill|"
                                    r"zeros|pad"),
        ("random numbers", r"dropout|random|philox|uniform|bernoulli"),
        ("reductions", r"reduce|sum|mean|argm|\bmax|\bmin|pool"),
        ("elementwise", r"elementwise|add|sub|mul|div|pow|sqrt|exp|log|neg|tanh|gelu|relu|silu|swish|sigmoid|where|"
                        r"equal|greater|less|logical|not|abs|cos|sin|clamp|clip|pointwise|triton_poi"),
    )
)  # fmt: skip
_OTHER: Final = "other kernels"


class SameKeys(Struct, frozen=True):
    """Both sides with keys that can be held against each other; ``note``: what was left out for that.

    ``named_anew``: the keys of compute are no operators of the device any more; ``by_ending``: where a side does not
    know a name of the other's, what it ends with is its type.
    """

    old: Side
    new: Side
    note: Message | None = None
    named_anew: bool = False
    by_ending: bool = False


def comparable(old: Side, new: Side) -> SameKeys:
    """Fold the rows of two sides until both tell them apart by the same."""
    if old.kineto != new.kineto:
        return _across_makers(old, new)
    kinds = {old.sums.keyed_by, new.sums.keyed_by}
    coarsest: KeyedBy = "shapes"
    if "core" in kinds:
        coarsest = "core"
    elif "type" in kinds or _details(old.sums) != _details(new.sums):
        coarsest = "type"
    if coarsest == "shapes" or kinds == {coarsest}:
        return SameKeys(old, new)
    note = say("shapes are not known of both sides: operators are compared by their type")
    if coarsest == "core":
        note = say("one side has too many operators to list: compute is compared as a whole")
    a, b = keyed(old.sums, coarsest), keyed(new.sums, coarsest)
    return SameKeys(Side(old.runs, _with_types(a, b)), Side(new.runs, _with_types(b, a)), note, by_ending=True)


def _with_types(sums: Sums, other: Sums) -> Sums:
    """Return a side with operators by the names that the other side has for them."""
    mine, theirs = (
        {row[1] for row in side.cells if row[0] == "compute" and row[1] is not None} for side in (sums, other)
    )
    known = known_as(mine, theirs)
    return sums.renamed(lambda row, _: known.get(row[1] or "", row[1]) if row[0] == "compute" else row[1])


def known_as(mine: Collection[str], theirs: Collection[str]) -> dict[str, str]:
    """Return by which name the other side knows an operator whose name here it does not know: what it ends with.

    Without types recorded, a kernel is known by its name: ``aclnnMuls_MulAiCore_Mul`` is a ``Mul``.
    """
    found = {}
    for name in mine:
        bare = name.rstrip("_")
        endings = [ending for ending in (bare, bare.rpartition("_")[2]) if ending in theirs]
        if name not in theirs and endings:
            found[name] = endings[0]
    return found


def _details(sums: Sums) -> set[str]:
    """Return what follows the type in keys of compute: shapes, dtypes, both or neither."""
    found = set()
    for row in sums.cells:
        if row[0] == "compute" and row[1] is not None:
            rest = row[1][len(type_of(row[1], sums.types) or "") :]
            found |= {"shapes"} if rest.startswith(" [") else set()
            found |= {"dtypes"} if rest and not rest.endswith("]") else set()
    return found


# --- GPU against NPU --------------------------------------------------------------------------------------------------


def _across_makers(old: Side, new: Side) -> SameKeys:
    by_op = [_renamed(side, lambda cell, type_: cell.torch_op or _what_it_does(type_)) for side in (old, new)]
    # of the compute time, that of torch operators that the other side has, too
    apart = []
    for mine, other in (by_op, by_op[::-1]):
        compute = [(row, cell) for row, cell in mine.sums.cells.items() if row[0] == "compute"]
        shared = sum(cell.ns for row, cell in compute if row in other.sums.cells and cell.torch_op is not None)
        apart.append(shared < _ENOUGH * max(sum(cell.ns for _, cell in compute), 1))
    if not any(apart):
        note = say("a GPU and an NPU are compared by torch operators, and communication as a whole")
        return SameKeys(by_op[0], by_op[1], note, named_anew=True)
    note = say(
        "a GPU and an NPU are compared by what their kernels do, as their names tell, and communication as a whole"
    )
    a, b = (_renamed(side, lambda _, type_: _what_it_does(type_)) for side in (old, new))
    return SameKeys(a, b, note, named_anew=True)


def _renamed(side: Side, of_compute: Callable[[Cell, str], str]) -> Side:
    """Return a side with other names of operators; of waits for the host the causes are kept, of others nothing."""

    def name(row: Row, cell: Cell) -> str | None:
        if row[0] == "compute":
            return of_compute(cell, type_of(row[1], side.sums.types) or "")
        return row[1].partition(":")[0] if row[0] == "host_wait" and row[1] is not None else None

    return Side(side.runs, side.sums.renamed(name))


def _what_it_does(type_: str) -> str:
    return next((what for what, pattern in _DOES if pattern.search(type_)), _OTHER)

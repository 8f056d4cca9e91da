"""Two sides whose operators bear the same names: what only one side tells is asked of neither.

Keys with shapes need shapes on both sides. A GPU's kernels have other names than an NPU's: the two are compared by the
torch operators that launched them where these are recorded and mostly the same, else by what kernels do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.compare.mean_step import Cell, Row, Sums, keyed, type_of
from npuperf.compare.parity import Side
from npuperf.documents.digest import KeyedBy
from npuperf.messages import Message, say

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
    coarsest = _coarsest(old.sums, new.sums)
    if coarsest == "shapes" or {old.sums.keyed_by, new.sums.keyed_by} == {coarsest}:
        return SameKeys(old, new)
    note = say("shapes are not known of both sides: operators are compared by their type")
    if coarsest == "core":
        note = say("one side has too many operators to list: compute is compared as a whole")
    a, b = _folded(old, coarsest), _folded(new, coarsest)
    return SameKeys(_with_types(a, b.sums), _with_types(b, a.sums), note, by_ending=True)


def _with_types(side: Side, other: Sums) -> Side:
    """Return a side with operators by the names that the other side has for them."""
    theirs = known_as(_operators(side.sums), _operators(other))
    return replace(
        side,
        sums=side.sums.renamed(lambda row, _: theirs.get(row[1] or "", row[1]) if row[0] == "compute" else row[1]),
    )


def _operators(sums: Sums) -> set[str]:
    return {row[1] for row in sums.cells if row[0] == "compute" and row[1] is not None}


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


def _folded(side: Side, keyed_by: KeyedBy) -> Side:
    sums = side.sums
    if keyed_by == "core" and sums.keyed_by == "core":  # the other side has no cores in its keys
        sums = replace(sums, keyed_by="shapes")
    return replace(side, sums=keyed(sums, keyed_by))


def _coarsest(old: Sums, new: Sums) -> KeyedBy:
    kinds = {old.keyed_by, new.keyed_by}
    if "core" in kinds:
        return "core"
    return "type" if "type" in kinds or _details(old) != _details(new) else "shapes"


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
    by_op = [_renamed(side, _torch_op) for side in (old, new)]
    if all(_shared_time(a.sums, b.sums) >= _ENOUGH for a, b in (by_op, by_op[::-1])):
        note = say("a GPU and an NPU are compared by torch operators, and communication as a whole")
        return SameKeys(by_op[0], by_op[1], note, named_anew=True)
    note = say(
        "a GPU and an NPU are compared by what their kernels do, as their names tell, and communication as a whole"
    )
    return SameKeys(_renamed(old, _what_it_does), _renamed(new, _what_it_does), note, named_anew=True)


def _renamed(side: Side, of_compute: Callable[[Cell, str], str]) -> Side:
    """Return a side with other names of operators; of waits for the host the causes are kept, of others nothing."""

    def name(row: Row, cell: Cell) -> str | None:
        if row[0] == "compute":
            return of_compute(cell, type_of(row[1], side.sums.types) or "")
        return row[1].partition(":")[0] if row[0] == "host_wait" and row[1] is not None else None

    return replace(side, sums=side.sums.renamed(name))


def _torch_op(cell: Cell, type_: str) -> str:
    return cell.torch_op or _what_it_does(cell, type_)


def _what_it_does(_: Cell, type_: str) -> str:
    return next((what for what, pattern in _DOES if pattern.search(type_)), _OTHER)


def _shared_time(mine: Sums, other: Sums) -> float:
    """Return which part of the compute time is of torch operators that the other side has, too."""
    compute = [(row, cell) for row, cell in mine.cells.items() if row[0] == "compute"]
    total = sum(cell.ns for _, cell in compute)
    shared = sum(cell.ns for row, cell in compute if row in other.cells and cell.torch_op is not None)
    return shared / total if total else 0.0

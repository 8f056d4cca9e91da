"""Two sides whose operators bear the same names: of what only one side tells, neither is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuperf.compare.mean_step import Sums, keyed, type_of
from npuperf.compare.parity import Side
from npuperf.documents.digest import KeyedBy
from npuperf.messages import Message, say


@dataclass(frozen=True, slots=True)
class SameKeys:
    """Both sides with keys that can be held against each other; ``note``: what was left out for that.

    ``named_anew``: the keys of compute are no operators of the device any more.
    """

    old: Side
    new: Side
    note: Message | None = None
    named_anew: bool = False


def comparable(old: Side, new: Side) -> SameKeys:
    """Fold the operators of two sides until both tell them apart by the same."""
    coarsest = _coarsest(old.sums, new.sums)
    if coarsest != "shapes" and {old.sums.keyed_by, new.sums.keyed_by} != {coarsest}:
        note = say("shapes are not known of both sides: operators are compared by their type")
        if coarsest == "core":
            note = say("one side has too many operators to list: compute is compared as a whole")
        return SameKeys(_folded(old, coarsest), _folded(new, coarsest), note)
    return SameKeys(old, new)


def _coarsest(old: Sums, new: Sums) -> KeyedBy:
    kinds = {old.keyed_by, new.keyed_by}
    if "core" in kinds:
        return "core"
    return "type" if "type" in kinds or _detailed(old) != _detailed(new) else "shapes"


def _detailed(sums: Sums) -> bool:
    """Tell whether any operator has shapes or dtypes in its key."""
    keys = (row[1] for row in sums.cells if row[0] == "compute")
    return any(key is not None and type_of(key, sums.types) != key for key in keys)


def _folded(side: Side, keyed_by: KeyedBy) -> Side:
    sums = side.sums
    if keyed_by == "core" and sums.keyed_by == "core":  # the other side has no cores in its keys
        sums = replace(sums, keyed_by="shapes")
    return replace(side, sums=keyed(sums, keyed_by))

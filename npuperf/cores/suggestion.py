"""Core counts that a profile does not name, guessed from the kernels: tilings that use the whole chip start as many
blocks as it has cores. A suggestion with its reason, never a figure that anything is computed with.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.messages import Message, chain, say, say_n
from npuperf.model.chip import known_core_counts
from npuperf.model.labels import I64

#: Kernels that must start exactly as many blocks as a side has cores.
_AT_LEAST: Final = 2


class _Side(Struct, frozen=True):
    """One side of a chip held against the kernels: how many start exactly as many blocks as it has ``cores``, and how
    many start more.
    """

    cores: int
    exact: int
    more: int

    @classmethod
    def of(cls, used: I64, cores: int) -> _Side:
        return cls(cores, int(np.count_nonzero(used == cores)), int(np.count_nonzero(used > cores)))

    @property
    def speaks_for(self) -> bool:
        """Whether kernels fill the side, and few start more blocks than that, in several waves."""
        return self.exact >= _AT_LEAST and self.more < self.exact


def suggested_cores(cube: I64, vector: I64) -> Message | None:
    """Suggest the core counts of a known chip from the blocks of kernels on either side, or nothing.

    Both sides must speak for it, and of several chips it is the one that most kernels fill.
    """
    chips = [(_Side.of(cube, most[0]), _Side.of(vector, most[1])) for most in known_core_counts()]
    likely = [chip for chip in chips if all(side.speaks_for for side in chip)]
    if not likely:
        return None
    one, other = max(likely, key=lambda chip: chip[0].exact + chip[1].exact)
    kernels = say(
        "{cube_kernels} kernels use exactly {cube} cube cores and {vector_kernels} exactly {vector} vector cores",
        cube_kernels=one.exact,
        cube=one.cores,
        vector_kernels=other.exact,
        vector=other.cores,
    )
    more = one.more + other.more
    beyond = say_n("{n} starts more blocks", "{n} start more blocks", more) if more else say("none starts more blocks")
    return say("the kernels suggest --cores {cube},{vector}: {reason}",
               cube=one.cores, vector=other.cores, reason=chain(kernels, beyond, by=", "))  # fmt: skip

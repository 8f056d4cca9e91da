"""Chips: how many cores they have, and which side of them a kernel type uses.

Core counts: CANN's platform configuration (cube_core_cnt, vector_core_cnt per SoC). A profile's own
info.json overrides it, because a container or a vNPU may own fewer cores than the chip has.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct

from npuperf.base.messages import Message, say

_SOCS: tuple[tuple[str, int, int], ...] = (
    ("Ascend910B1", 24, 48),
    ("Ascend910B2*", 24, 48),
    ("Ascend910B3", 20, 40),
    ("Ascend910B4*", 20, 40),
    ("Ascend910_939[12]", 24, 48),
    ("Ascend910_938[12]", 24, 48),
    ("Ascend910_9372", 20, 40),
    ("Ascend910_936[23]", 20, 40),
    ("Ascend910A", 32, 0),
    ("Ascend910ProA", 32, 0),
    ("Ascend910PremiumA", 32, 0),
    ("Ascend910ProB", 30, 0),
    ("Ascend310P1", 10, 8),
    ("Ascend310P[357]", 8, 7),
    ("Ascend310B[1-4]", 1, 1),
    ("Ascend950*_957?", 28, 56),
    ("Ascend950*_958?", 32, 64),
    ("Ascend950*_959?", 36, 72),
    ("Ascend950*_95A[12]", 36, 72),
)

CUBE_CORES = ("AI_CORE", "MIX_AIC")
VECTOR_CORES = ("AI_VECTOR_CORE", "MIX_AIV")


class Cores(Struct, frozen=True):
    """Usable cores of one device; None means unknown. ``source`` says where the numbers come from."""

    cube: int | None = None
    vector: int | None = None
    source: Message | None = None


def cores_of_soc(soc: str) -> Cores | None:
    """Look a SoC name up (``Ascend910B1``), without regard to case; None when it is not in the table."""
    for pattern, cube, vector in _SOCS:
        if fnmatchcase(soc.lower(), pattern.lower()):
            return Cores(cube, vector, say("SoC table: {soc}", soc=soc))
    return None


def product_of_soc(soc: str) -> str | None:
    """Return the product line of a SoC, ``Atlas A2`` or ``Atlas A3``; None for others and unknown names."""
    for pattern, product in (("ascend910b[1-4]*", "Atlas A2"), ("ascend910_9[0-9]*", "Atlas A3")):
        if fnmatchcase(soc.lower(), pattern):
            return product
    return None


def hbm_of_soc(soc: str) -> int | None:
    """Return the bytes of HBM that one device of a SoC has; None for others, and where cards of one name differ.

    One device is one die: half of what a card with two has.
    """
    known = ("ascend910b[123]*", "ascend910_939[12]", "ascend910_938[12]", "ascend910_9372")
    return 64 << 30 if any(fnmatchcase(soc.lower(), pattern) for pattern in known) else None


def known_core_counts() -> list[tuple[int, int]]:
    """Return the pairs of cube and vector cores that chips of the table have."""
    return sorted({(cube, vector) for _, cube, vector in _SOCS})


def known_socs() -> list[str]:
    """Return the names (patterns) of the table."""
    return [pattern for pattern, _, _ in _SOCS]

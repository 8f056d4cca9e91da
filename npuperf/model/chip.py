"""Chips: what each is known to have, and which side of its cores a kernel type uses.

Core counts, clocks and L2: CANN's platform configuration files of 2026 (``platform_config/<SoC>.ini``: cube_core_cnt,
vector_core_cnt, cube_freq, l2_size), which name a clock for split chips alone. HBM and its bandwidth: the vendor's data
sheets of cards and servers. A profile's own info.json overrides core counts, because a container or a vNPU may own
fewer cores than the chip has; a card may run at another clock than those files say (1650 MHz where they have 1500).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from npuperf.base.messages import Message, say

#: Multiply-adds count as two: 16 × 16 × 16 of them on a cube core, 128 lanes of FP16 on a vector core.
CUBE_FLOP: Final = 16 * 16 * 16 * 2
VECTOR_FLOP: Final = 128 * 2
#: Bytes per cycle and cube core, with its two vector cores, that L2 of Atlas A2 and A3 gives and takes (CANN's files:
#: l2_read_rate 110, l2_write_rate 86); most that was seen is 113, of a kernel that reads as much as it writes.
_L2_RATE: Final = 110 + 86


class Chip(Struct, frozen=True):
    """One device, which is one die: half of what a card with two has. None: not published, or cards of a name differ.

    ``soc``: its names, as a pattern; ``mhz``: the clock of cube and vector cores; ``hbm``: GiB, ``l2``: MB (2**20
    bytes), ``hbm_rate``: GB/s.
    """

    soc: str
    cube: int
    vector: int
    mhz: int | None = None
    hbm: int | None = None
    l2: int | None = None
    hbm_rate: int | None = None

    @property
    def split(self) -> bool:
        """Whether vector cores are cores of their own, two beside each cube core."""
        return self.vector == 2 * self.cube


_CHIPS: Final[tuple[Chip, ...]] = (
    Chip("Ascend910B1", 24, 48, 1850, 64, 192),
    Chip("Ascend910B2*", 24, 48, 1800, 64, 192, 1600),
    Chip("Ascend910B3", 20, 40, 1800, 64, 192, 1600),
    Chip("Ascend910B4*", 20, 40, 1500, None, 96),
    Chip("Ascend910_939[12]", 24, 48, 1850, 64, 192, 1600),
    Chip("Ascend910_938[12]", 24, 48, 1800, 64, 192, 1600),
    Chip("Ascend910_9372", 20, 40, 1800, 64, 192, 1600),
    Chip("Ascend910_936[23]", 20, 40, 1500, None, 168, 1600),
    Chip("Ascend910A", 32, 0),
    Chip("Ascend910ProA", 32, 0),
    Chip("Ascend910PremiumA", 32, 0),
    Chip("Ascend910ProB", 30, 0),
    Chip("Ascend310P1", 10, 8),
    Chip("Ascend310P[357]", 8, 7),
    Chip("Ascend310B[1-4]", 1, 1),
    Chip("Ascend350_354f", 14, 28),
    Chip("Ascend350_355e", 16, 32),
    Chip("Ascend950PR_950z", 4, 8),
    Chip("Ascend950DT_950[xy]", 8, 16),
    Chip("Ascend950*_957?", 28, 56, 1650),
    Chip("Ascend950PR_957bx", 28, 56),
    Chip("Ascend950*_958?", 32, 64, 1650),
    Chip("Ascend950DT_958[12]x", 32, 64),
    Chip("Ascend950*_959?", 36, 72, 1800),
    Chip("Ascend950*_95A[12]", 36, 72, 1800),
)

CUBE_CORES = ("AI_CORE", "MIX_AIC")
VECTOR_CORES = ("AI_VECTOR_CORE", "MIX_AIV")


class Cores(Struct, frozen=True):
    """Usable cores of one device; None means unknown. ``source`` says where the numbers come from."""

    cube: int | None = None
    vector: int | None = None
    source: Message | None = None


def chip_of_soc(soc: str) -> Chip | None:
    """Look a SoC name up (``Ascend910B1``), without regard to case; None when it is not in the table."""
    return next((chip for chip in _CHIPS if fnmatchcase(soc.lower(), chip.soc.lower())), None)


def cores_of_soc(soc: str) -> Cores | None:
    """Return the core counts of a SoC; None when it is not in the table."""
    chip = chip_of_soc(soc)
    return None if chip is None else Cores(chip.cube, chip.vector, say("SoC table: {soc}", soc=soc))


def vector_cores_beside(cube: int) -> int | None:
    """Return how many vector cores split chips with so many cube cores have; None where none is known."""
    return next((chip.vector for chip in _CHIPS if chip.split and chip.cube == cube), None)


def split_chips() -> list[tuple[int, int, int]]:
    """Return cube cores, vector cores and clock (MHz) of the split chips of which all are known, each once."""
    return sorted({(chip.cube, chip.vector, chip.mhz) for chip in _CHIPS if chip.split and chip.mhz is not None})


def known_clocks() -> list[int]:
    """Return the clocks that chips of the table run at, MHz, lowest first."""
    return sorted({chip.mhz for chip in _CHIPS if chip.mhz is not None})


def cube_flop_per_s(core_mhz: float) -> float:
    """Return what cube cores reach at most in FP16 or BF16, FLOP/s; ``core_mhz``: cores × MHz."""
    return core_mhz * 1e6 * CUBE_FLOP


def vector_flop_per_s(core_mhz: float) -> float:
    """Return what vector cores reach at most in FP16, FLOP/s; ``core_mhz``: cores × MHz."""
    return core_mhz * 1e6 * VECTOR_FLOP


class MemoryRates(Struct, frozen=True):
    """What a chip's memory gives at most: HBM bytes/s, L2 bytes, and from and to L2 bytes per cycle and cube core.

    ``of_chip``: HBM's rate is the chip's own; else no chip of its kind has more.
    """

    hbm_rate: float
    l2: int
    l2_rate: int
    of_chip: bool


def memory_of_soc(soc: str | None, cube: int | None) -> MemoryRates | None:
    """Return it for Atlas A2 and A3, known by their name or, without one, by so many cube cores; None for others."""
    kind = [chip for chip in _CHIPS if chip.split and chip.soc.startswith("Ascend910")]
    chip = chip_of_soc(soc or "")
    if chip not in kind if soc else all(cube != one.cube for one in kind):
        return None
    known = chip is not None and chip.hbm_rate is not None
    of = [chip] if chip is not None and known else kind
    rate, l2 = max(one.hbm_rate or 0 for one in of), max(one.l2 or 0 for one in of)
    return MemoryRates(rate * 1e9, l2 << 20, _L2_RATE, known)


def product_of_soc(soc: str) -> str | None:
    """Return the product line of a SoC, ``Atlas A2`` or ``Atlas A3``; None for others and unknown names."""
    for pattern, product in (("ascend910b[1-4]*", "Atlas A2"), ("ascend910_9[0-9]*", "Atlas A3")):
        if fnmatchcase(soc.lower(), pattern):
            return product
    return None


def hbm_of_soc(soc: str) -> int | None:
    """Return the bytes of HBM that one device of a SoC has; None for others, and where cards of one name differ."""
    chip = chip_of_soc(soc)
    return None if chip is None or chip.hbm is None else chip.hbm << 30


def known_core_counts() -> list[tuple[int, int]]:
    """Return the pairs of cube and vector cores that chips of the table have."""
    return sorted({(chip.cube, chip.vector) for chip in _CHIPS})


def known_socs() -> list[str]:
    """Return the names (patterns) of the table."""
    return [chip.soc for chip in _CHIPS]

"""What a document says of one device's efficiency: peak × time as a sum of exact parts. docs/efficiency.md has all.

FLOP of cube cores are in FP16 units: what the same cycles are worth in FP16, so that products of any type add up.
Intervals are least and most.
"""

from __future__ import annotations

from math import fsum
from typing import Literal

from msgspec import structs

from npuperf.base.messages import Message
from npuperf.model.parts import Model

#: Where peak × time goes, in order. ``useful``: the least that shapes prove; ``useful_or_padded``: up to the most that
#: they do; ``padded``: products beyond that, of padding and masks; ``cube_busy_without_formula``: products of kernels
#: whose shapes tell no count, or contradict the counters; ``cube_uncounted``: the rest of the time of kernels without
#: counters, or with odd ones, idle or not; ``cube_idle``: no products while a kernel has the cube cores; then, while no
#: kernel has them, the parts of the partition: kernels of vector cores and AI CPU, and the rest.
EfficiencyPartName = Literal[
    "useful",
    "useful_or_padded",
    "padded",
    "cube_busy_without_formula",
    "cube_uncounted",
    "cube_idle",
    "vector",
    "communication",
    "other",
    "host_wait",
    "launch_latency",
    "dependency",
    "unattributed",
]

#: What a kernel does while its cube cores multiply nothing: ``cores_unused``: it has fewer blocks than there are cores;
#: ``memory`` (MTE1 to 3), ``scalar``, ``fixpipe``: the unit of theirs that is busiest meanwhile, which is inferred;
#: ``unknown``: its pipe ratios are not recorded.
IdleCause = Literal["cores_unused", "memory", "scalar", "fixpipe", "unknown"]


#: What limits a kernel: the rate of cube cores, of vector cores, of HBM or L2, the time that launching any takes; or
#: scalar work, by counters.
Limit = Literal["cube", "vector", "scalar", "hbm", "l2", "launch", "unknown"]


class EfficiencyPart(Model, frozen=True, kw_only=True):
    """One part of peak × time; ``share``: of all of it. FLOP add up to peak × span, ns to the span."""

    part: EfficiencyPartName
    flop: float
    ns: int
    share: float


class CubeIdle(Model, frozen=True, kw_only=True):
    """What ``cube_idle`` is made of; FLOP add up to it."""

    cause: IdleCause
    flop: float
    share: float


class ModelWork(Model, frozen=True, kw_only=True):
    """What a step of the model asks of each device, on average: FLOP forward and backward, nothing computed anew.

    ``palm_flop``, ``verl_flop``: by both conventions; ``given``: by the FLOP that the user gave, which both are then.
    ``tokens``: null where not given. ``devices``: among which the job's work is divided; ``assumed``: how many it has
    is not known, these are those that were loaded.
    """

    palm_flop: float
    verl_flop: float
    given: bool
    tokens: float | None
    devices: int
    assumed: bool = False


class Mfu(Model, frozen=True, kw_only=True):
    """Useful FLOP over peak × span, without what was computed anew.

    ``kernels``: by their shapes; the others by the model's size (:class:`ModelWork`), of windows of whole steps.

    ``palm``: as PaLM counts, causal attention in full; ``verl``: as verl does, half of it. Null: the size is not given.
    """

    kernels: tuple[float, float]
    palm: float | None = None
    verl: float | None = None


class Roofs(Model, frozen=True, kw_only=True):
    """The most that a device does in a second: FLOP of cube cores in FP16, of vector cores, bytes of L2 and of HBM.

    Bytes are null where the kind of chip is not known; ``hbm_of_chip``: HBM's are the chip's own, else no chip of its
    kind has more.
    """

    cube_flop_per_s: float
    vector_flop_per_s: float
    l2_bytes_per_s: float | None
    hbm_bytes_per_s: float | None
    hbm_of_chip: bool


class EfficiencySum(Model, frozen=True, kw_only=True):
    """What gates ask of a step's efficiency, as shares of its peak × time; ``hfu`` with what nothing tells in its most.

    ``kernels``: of :class:`Mfu`, likewise; both null where no kernel has a formula.
    """

    hfu: tuple[float, float] | None
    kernels: tuple[float, float] | None
    cube_busy: float | None
    recoverable_ns: tuple[int, int] | None
    palm: float | None = None
    verl: float | None = None


class ModuleEfficiency(Model, frozen=True, kw_only=True):
    """Kernels on cube cores that a module, or a range of the user's, launched; their time, side by side or not.

    ``module``: null for all that no other row has. FLOP as in :class:`Efficiency`.
    """

    module: str | None
    kernels: int
    ns: int
    cube_busy_flop: float | None
    useful_flop: tuple[float, float]


class Efficiency(Model, frozen=True, kw_only=True):
    """Where a device's peak × time goes, in a window of ``span_ns``.

    ``basis``: what tells the peak: counters of kernels, info.json with the chip's clock, the chip's name, or what
    the user gave; ``inferred``: counters tell it of a known chip alone, by the waves that blocks ran in, and
    ``most_flop_per_s`` is the peak of another one, if that may be throttled throughout. ``cube_busy_flop``:
    products by counters (null: none recorded), ``useful_flop``: by shapes, of kernels whose shapes tell.
    ``formula_share``: how much of the time of kernels on cube cores these are (null: no such kernel).
    ``contradictions``: kernels whose shapes contradict each other, or ask for more than counters say was done,
    which count as without formula; ``uncounted``: kernels on cube cores of which no counters tell how busy they
    are, ``odd``: those of them whose counters cannot be. ``recomputed_flop``: what of the useful was computed anew
    in backward. ``tokens_per_s``: of this device, where the user gave the tokens of a step. ``reason``: why there
    are no ``parts``. ``recoverable_ns``: what kernels that begin in the window could win, least: were equal ones as
    fast as the best of them, most: were all as fast as their roof (null: no roof is known);
    ``roof_contradictions``: kernels that were faster than their shapes allow. ``modules``: of what is judged, those
    of most time first; empty where neither modules nor ranges are recorded. ``ran_mhz``: the clock of the kernels
    that begin in the window, least, mean over time and most (null: not told).
    """

    cube_cores: int | None
    clock_mhz: float | None
    basis: Literal["counters", "info", "chip", "asked"]
    peak_flop_per_s: float
    span_ns: int
    cube_busy_flop: float | None
    cube_busy_share: float | None
    useful_flop: tuple[float, float]
    hfu: tuple[float, float]
    mfu: Mfu
    tokens_per_s: float | None = None
    parts: list[EfficiencyPart]
    idle: list[CubeIdle]
    formula_share: float | None
    contradictions: int
    odd: int
    uncounted: int = 0
    recomputed_flop: tuple[float, float] = (0.0, 0.0)
    reason: Message | None = None
    roofs: Roofs | None = None
    recoverable_ns: tuple[int, int] | None = None
    roof_contradictions: int = 0
    modules: list[ModuleEfficiency] = []
    ran_mhz: tuple[int, float, int] | None = None
    inferred: bool = False
    most_flop_per_s: float | None = None

    @property
    def summed(self) -> EfficiencySum:
        """What gates ask for."""
        told, untold = self.formula_share != 0, self._untold_share
        hfu, kernels = ((low, min(high + untold, 1.0)) for low, high in (self.hfu, self.mfu.kernels))
        return EfficiencySum(
            hfu=hfu if told else None,
            kernels=kernels if told else None,
            cube_busy=self.cube_busy_share,
            recoverable_ns=self.recoverable_ns,
            palm=self.mfu.palm,
            verl=self.mfu.verl,
        )

    def of_sum(self, own: EfficiencySum, span_ns: int) -> Efficiency:
        """Return a window of the same device of which only the sum was kept."""
        whole = self.peak_flop_per_s * span_ns / 1e9
        low, high = own.hfu or (0.0, 0.0)
        return structs.replace(
            self,
            span_ns=span_ns,
            cube_busy_flop=None if own.cube_busy is None else own.cube_busy * whole,
            cube_busy_share=own.cube_busy,
            useful_flop=(low * whole, high * whole),
            hfu=(low, high),
            mfu=Mfu(kernels=own.kernels or (0.0, 0.0), palm=own.palm, verl=own.verl),
            tokens_per_s=None,
            parts=[],
            idle=[],
            formula_share=0.0 if own.hfu is None else 1.0,
            reason=None,
            recoverable_ns=own.recoverable_ns,
            modules=[],
            ran_mhz=None,
        )

    @property
    def _untold_share(self) -> float:
        """How much of the peak may be useful beyond what formulas tell: what kernels without one do on cube cores.

        That is as many products as counters tell; where these are missing or odd, as the time would allow.
        """
        if self.formula_share in (None, 1.0):
            return 0.0
        if self.reason is not None:
            return max(1 - self.hfu[1], 0.0)
        return fsum(one.share for one in self.parts if one.part in ("cube_busy_without_formula", "cube_uncounted"))

"""Hardware counters of an operator: which unit keeps it busy, and how clearly.

Ratios are fractions of all cycles of the cores that have the unit; units work side by side, so that they may add up to
more than all. Cube and vector cores of mix kernels are told apart; the operator's own answer is that of the unit which
is busy longest. Pipeline conflicts go first, because they make every other ratio look small. Bandwidths and hit rates
are reported without a verdict: their peak is not in the profile.
"""

from __future__ import annotations

import re
from math import fsum
from typing import Final, Literal

from msgspec import Struct

from npuperf.base.messages import Message, chain, say, series, share
from npuperf.base.units import NS_PER_US
from npuperf.model.parts import CoreSide, CounterPattern, Pmu, PmuSide, UnitShare
from npuperf.model.thresholds import Thresholds

_Group = Literal["compute", "memory", "scalar"]

_PREFIX: Final = re.compile(r"^ai[cv]_")
_COMPUTE: Final = re.compile(r"^(mac|vec|cube)(_(fp16|fp32|int8|int16|int32|misc|exe))?_ratio$")
_MEMORY: Final = re.compile(r"^(mte\d|fixpipe)(_exe)?_ratio$")
_SCALAR: Final = re.compile(r"^scalar(_\w+)?_ratio$")
_CONFLICT: Final = re.compile(r"(_cflt_ratio|iq_full_ratio)$")
_PATTERNS: Final[tuple[tuple[_Group, re.Pattern[str]], ...]] = (
    ("compute", _COMPUTE),
    ("memory", _MEMORY),
    ("scalar", _SCALAR),
)
_SIDES: Final[dict[str, CoreSide | None]] = {"aic_": "cube", "aiv_": "vector", "": None}
_TIMES: Final = {"aic_": "aicore_time", "aiv_": "aiv_time", "": "aicore_time"}
#: Below this part of an operator's time with counters the answer says so; less is rounding.
_ALL: Final = 0.999

#: Units by the names that counters have, with what they do (the vendor's op_summary page).
UNITS: Final = {
    "mac": say("cube"),
    "cube": say("cube"),
    "vec": say("vector"),
    "scalar": say("scalar"),
    "mte1": say("MTE1"),
    "mte2": say("MTE2"),
    "mte3": say("MTE3"),
    "fixpipe": say("FixPipe"),
}
_DUTIES: Final = {
    "mac": say("cube computing (mac)"),
    "cube": say("cube computing (mac)"),
    "vec": say("vector computing (vec)"),
    "scalar": say("scalar computing"),
    "mte1": say("MTE1 (moves from L1 to L0)"),
    "mte2": say("MTE2 (reads from memory)"),
    "mte3": say("MTE3 (writes to memory)"),
    "fixpipe": say("FixPipe (moves results out of L0)"),
}


class Counter(Struct, frozen=True):
    """Σ value·duration and Σ duration (ns) of one counter over the kernels that have it."""

    weighted: float
    weight: float

    def __add__(self, other: Counter) -> Counter:
        return Counter(self.weighted + other.weighted, self.weight + other.weight)


def judge_counters(counters: dict[str, Counter], thresholds: Thresholds, total: int = 0) -> Pmu | None:
    """Summarise an operator's counters; None when nothing was recorded. ``total``: the time of all its kernels, ns."""
    means = {name: c.weighted / c.weight for name, c in counters.items() if c.weight > 0}
    if not means:
        return None
    weight = max(c.weight for c in counters.values())
    recorded = min(weight / total, 1.0) if total else 1.0
    partly = say("counters are recorded for {share} of its time", share=share(recorded)) if recorded < _ALL else None
    sides = _sides(means, thresholds)
    if conflict := _conflict(means, thresholds):
        rule = chain(conflict, partly)
        brief = say("conflicts")
        return Pmu(
            bound="conflict", pattern="conflict", rule=rule, brief=brief, means=means, sides=sides, recorded=recorded
        )
    if not sides:
        missing = say("no pipe ratios are recorded: record with --aic-metrics PipeUtilization")
        return Pmu(bound="unknown", rule=chain(missing, partly), means=means, recorded=recorded)
    main = sides[0]
    unit = main.units[0].unit if main.pattern != "unknown" else None
    bound = _group(unit) if unit and main.pattern == "limit" else "unknown"
    told = [_told(side, thresholds) for side in sides]
    if len(sides) > 1:
        told = [
            say("cube cores: {told}", told=text) if side.side == "cube" else say("vector cores: {told}", told=text)
            for side, text in zip(sides, told, strict=True)
        ]
    return Pmu(
        bound=bound,
        rule=chain(*told, partly),
        means=means,
        pattern=main.pattern,
        unit=unit,
        brief=_brief(main),
        sides=sides,
        recorded=recorded,
    )


def _sides(means: dict[str, float], thresholds: Thresholds) -> list[PmuSide]:
    """Return cube and vector cores (or the one kind there is) that did anything; first the unit busy longest.

    A kernel that uses one kind of core has zeros for the other.
    """
    split = any(_PREFIX.match(n) for n in means)
    sides = []
    for prefix in ("aic_", "aiv_") if split else ("",):
        units: dict[str, float] = {}
        for name, value in means.items():
            bare = _PREFIX.sub("", name)
            if name == prefix + bare and any(pattern.match(bare) for _, pattern in _PATTERNS):
                unit = bare.split("_")[0]  # parts of one unit (fp16 and int8 of the cube, …) add up
                units[unit] = units.get(unit, 0.0) + value
        if not units:
            continue
        ranked = [UnitShare(unit=u, ratio=r) for u, r in sorted(units.items(), key=lambda item: -item[1])]
        memory = any(_group(u) == "memory" for u in units)
        time = means.get(_TIMES[prefix])
        side = PmuSide(
            side=_SIDES[prefix],
            pattern=_pattern(ranked, memory, thresholds),
            units=ranked,
            time_ns=None if time is None else round(time * NS_PER_US),
            idle_least=max(1 - fsum(units.values()), 0.0) if memory else None,
        )
        sides.append(side)
    working = [s for s in sides if s.units[0].ratio > 0] or sides[:1]
    timed = all(s.time_ns is not None for s in working)  # databases leave the times out
    return sorted(working, key=lambda s: -s.units[0].ratio * (s.time_ns or 0 if timed else 1))


def _pattern(ranked: list[UnitShare], memory: bool, thresholds: Thresholds) -> CounterPattern:
    """Tell how clearly the busiest unit is the limit; without memory ratios another one may be busier."""
    most = ranked[0].ratio
    if most >= thresholds.pmu_share:
        return "limit"
    if not memory or most <= 0:
        return "unknown"
    if most < thresholds.pmu_busy_share:
        return "waiting"
    following = ranked[1].ratio if len(ranked) > 1 else 0.0
    return "leading" if most - following >= thresholds.pmu_lead_share else "shared"


def _told(side: PmuSide, thresholds: Thresholds) -> Message:
    busiest, used = side.units[0], [u for u in side.units if u.ratio > 0]
    ratios = series(say("{unit} {ratio}", unit=UNITS[u.unit], ratio=share(u.ratio)) for u in used)
    unit = _DUTIES[busiest.unit]
    if side.pattern == "limit":
        return say("limited by {unit}: {ratios} of cycles", unit=unit, ratios=ratios)
    if side.pattern == "leading":
        return say("mostly {unit}: {ratios} of cycles", unit=unit, ratios=ratios)
    if side.pattern in ("shared", "waiting"):
        if side.pattern == "shared":
            none = say("no unit leads: {ratios} of cycles", ratios=ratios)
        else:
            none = say("waits in between, no unit is busy for half of the cycles: {ratios}", ratios=ratios)
        if not side.idle_least:
            return none
        return chain(none, say("in at least {share} of cycles none of them is busy", share=share(side.idle_least)))
    if busiest.ratio <= 0:
        return say("all recorded ratios are 0")
    return say(
        "{unit} {ratio} < {limit}, and memory ratios are not recorded: record with --aic-metrics PipeUtilization",
        unit=unit,
        ratio=share(busiest.ratio),
        limit=share(thresholds.pmu_share),
    )


def _brief(side: PmuSide) -> Message | None:
    """Return the busiest unit in short, with how clearly it leads."""
    busiest = side.units[0]
    if busiest.ratio <= 0:
        return None
    first = say("{unit} {ratio}", unit=UNITS[busiest.unit], ratio=share(busiest.ratio))
    if side.pattern == "leading":
        return say("mostly {unit}", unit=first)
    if side.pattern == "waiting":
        return say("waits ({unit})", unit=first)
    if side.pattern == "shared":
        return say("no leader ({unit})", unit=first)
    return first


def _group(unit: str) -> _Group:
    return next(group for group, pattern in _PATTERNS if pattern.match(f"{unit}_ratio"))


def _conflict(means: dict[str, float], thresholds: Thresholds) -> Message | None:
    """Say which conflict of the side that works longer takes a notable part of its cycles, if one does."""
    side = ""  # old chips have no sides and no prefix
    if any(_PREFIX.match(name) for name in means):
        cube, vector = means.get("aicore_time"), means.get("aiv_time")
        if cube is None or vector is None:  # databases leave the times out: the busier side has the larger ratios
            cube, vector = (max((v for n, v in means.items() if n.startswith(p)), default=0) for p in ("aic_", "aiv_"))
        side = "aic_" if cube >= vector else "aiv_"
    own = {n: v for n, v in means.items() if _CONFLICT.search(n) and (n.startswith(side) or not _PREFIX.match(n))}
    worst = max(own, key=lambda n: own[n], default=None)
    if worst is None or own[worst] < thresholds.conflict_share:
        return None
    return say(
        "{unit} {ratio} ≥ {limit} of cycles",
        unit=worst,
        ratio=share(own[worst]),
        limit=share(thresholds.conflict_share),
    )

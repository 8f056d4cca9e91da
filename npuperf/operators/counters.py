"""Hardware counters of an operator: which unit keeps it busy.

Ratios are fractions of all cycles. The unit with the largest ratio names the bound if it reaches the limit;
pipeline conflicts go first, because they make every other ratio look small. Bandwidths and hit rates are
reported without a verdict: their peak is not in the profile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from npuperf.documents.analysis import Pmu
from npuperf.messages import Message, say, share
from npuperf.model.thresholds import Thresholds

_PREFIX: Final = re.compile(r"^ai[cv]_")
_COMPUTE: Final = re.compile(r"^(mac|vec|cube)(_(fp16|fp32|int8|int16|int32|misc|exe))?_ratio$")
_MEMORY: Final = re.compile(r"^(mte\d|fixpipe)(_exe)?_ratio$")
_SCALAR: Final = re.compile(r"^scalar(_\w+)?_ratio$")
_CONFLICT: Final = re.compile(r"(_cflt_ratio|iq_full_ratio)$")
_GROUPS: Final[tuple[tuple[Literal["compute", "memory", "scalar"], re.Pattern[str]], ...]] = (
    ("compute", _COMPUTE),
    ("memory", _MEMORY),
    ("scalar", _SCALAR),
)


@dataclass(frozen=True, slots=True)
class Counter:
    """Σ value·duration and Σ duration (ns) of one counter over the kernels that have it."""

    weighted: float
    weight: float

    def __add__(self, other: Counter) -> Counter:
        return Counter(self.weighted + other.weighted, self.weight + other.weight)


def judge_counters(counters: dict[str, Counter], thresholds: Thresholds) -> Pmu | None:
    """Summarise an operator's counters; None when nothing was recorded."""
    means = {name: c.weighted / c.weight for name, c in counters.items() if c.weight > 0}
    if not means:
        return None
    side = _main_side(means)
    own = {_PREFIX.sub("", n): v for n, v in means.items() if n.startswith(side) or not _PREFIX.match(n)}
    conflicts = {n: v for n, v in own.items() if _CONFLICT.search(n)}
    if conflicts:
        worst = max(conflicts, key=lambda n: conflicts[n])
        if conflicts[worst] >= thresholds.conflict_share:
            rule = _reached(f"{side}{worst}", conflicts[worst], thresholds.conflict_share)
            return Pmu(bound="conflict", rule=rule, means=means)
    return _largest(own, side, means, thresholds)


def _largest(own: dict[str, float], side: str, means: dict[str, float], thresholds: Thresholds) -> Pmu:
    units = _unit_ratios(own)
    if not units:
        return Pmu(
            bound="unknown",
            rule=say("no pipe ratios are recorded: record with --aic-metrics PipeUtilization"),
            means=means,
        )
    (group, unit), ratio = max(units.items(), key=lambda item: item[1])
    limit, name = thresholds.pmu_share, f"{side}{unit}"
    if ratio >= limit:
        return Pmu(bound=group, rule=_reached(name, ratio, limit), means=means)
    if any(g == "memory" for g, _ in units):
        rule = say(
            "no unit reaches {limit} of cycles: the highest is {unit} with {ratio}",
            limit=share(limit),
            unit=name,
            ratio=share(ratio),
        )
    else:
        rule = say(
            "{unit} {ratio} < {limit}, and memory ratios are not recorded: record with --aic-metrics PipeUtilization",
            unit=name,
            ratio=share(ratio),
            limit=share(limit),
        )
    return Pmu(bound="unknown", rule=rule, means=means)


def _reached(unit: str, ratio: float, limit: float) -> Message:
    return say("{unit} {ratio} ≥ {limit} of cycles", unit=unit, ratio=share(ratio), limit=share(limit))


def _unit_ratios(own: dict[str, float]) -> dict[tuple[Literal["compute", "memory", "scalar"], str], float]:
    """Add up the parts of one unit (fp16 and int8 of the cube, …); different units stay apart."""
    units: dict[tuple[Literal["compute", "memory", "scalar"], str], float] = {}
    for name, value in own.items():
        for group, pattern in _GROUPS:
            if pattern.match(name):
                unit = name.split("_")[0]
                units[group, unit] = units.get((group, unit), 0.0) + value
    return units


def _main_side(means: dict[str, float]) -> str:
    """Return the prefix of the side that works longer; old chips have no sides and no prefix."""
    if not any(_PREFIX.match(n) for n in means):
        return ""
    cube, vector = means.get("aicore_time"), means.get("aiv_time")
    if cube is None or vector is None:  # databases leave the times out: the busier side has the larger ratios
        cube, vector = (max((v for n, v in means.items() if n.startswith(p)), default=0.0) for p in ("aic_", "aiv_"))
    return "aic_" if cube >= vector else "aiv_"

"""What can be asked of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:  # an answer that is known needs nothing of what works it out
    from npuperf.device.core_splits import Split
    from npuperf.device.expect import Expectation
    from npuperf.model.chip import Cores

#: What becomes of a gate that cannot be judged.
Undecided = Literal["pass", "fail"]
#: Fields that decide what a result is held against; the analysis itself does not depend on them.
_HELD_AGAINST: Final = (
    *("baseline", "again", "allow_mismatch", "baseline_dir", "save_baseline", "fail_on", "gates", "undecided"),
    *("lock", "update_lock", "check", "junit"),
)
#: Fields that ask for more about a profile than a comparison needs of a baseline.
_OF_ONE_SIDE: Final = ("top", "what_if", "cores_of", "expect", "before", "plog")


class AnalyzeRequest(Struct, frozen=True, kw_only=True):
    """What to analyze, and how.

    ``cores`` is the user's word on core counts and overrides the profile's; ``what_if`` are expressions of
    :mod:`npuperf.device.whatif`; ``cores_of`` a split of cores to replay, by stream; ``expect`` limits that kernels
    must obey; ``ranks`` and ``group`` (a kind of process group, or its id) narrow what is told of a job; ``before`` an
    earlier profile of the same program, against which SuperKernels are held, and ``plog`` a folder of CANN's logs;
    ``rules`` those to ask (all if empty); ``engine``, ``workers`` and ``scheduler`` say where ranks are worked on
    (:class:`npuperf.base.parallel.Engine`).

    The rest is about what the result is held against: ``baseline`` the sides to compare with (a profile, a result as
    JSON, or the name of a kept one), ``again`` further runs of what ``path`` is a run of, for the new side; also where
    the sides are of another workload (``allow_mismatch``); ``baseline_dir`` where baselines are kept, and
    ``save_baseline`` the name to keep this one under; ``fail_on`` the gates, and ``gates`` files or presets of more,
    ``undecided`` what becomes of those that cannot be judged; ``lock`` and ``update_lock`` where exact counts are
    written to, ``check`` locks that they must agree with; ``junit`` a file for the gates as JUnit.
    """

    path: Path = Path("result")
    top: int = 10
    step: int | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    group: str | None = None
    device: int | None = None
    cores: Cores | None = None
    soc: str | None = None
    what_if: tuple[str, ...] = ()
    cores_of: Split = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    before: Path | None = None
    plog: Path | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    engine: str = "auto"
    workers: int | None = None
    scheduler: str | None = None
    baseline: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    allow_mismatch: bool = False
    baseline_dir: Path | None = None
    save_baseline: str | None = None
    fail_on: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    undecided: Undecided | None = None
    lock: Path | None = None
    update_lock: Path | None = None
    check: tuple[Path, ...] = ()
    junit: Path | None = None

    @property
    def chosen_ranks(self) -> frozenset[int]:
        """The ranks asked for; empty: all."""
        return frozenset(self.ranks) | frozenset([self.rank] if self.rank is not None else [])

    @property
    def partial(self) -> bool:
        """Tell whether only a part of the path is asked for."""
        return any(value is not None for value in (self.step, self.rank, self.device, self.group)) or bool(self.ranks)

    @property
    def analysis(self) -> AnalyzeRequest:
        """The request without what its result is held against: two with the same have the same analysis."""
        return replace(self, **_usual(_HELD_AGAINST))

    def of_baseline(self, path: Path) -> AnalyzeRequest:
        """Ask the same of another profile of a comparison, as far as a comparison needs it."""
        return replace(self.analysis, path=path, **_usual(_OF_ONE_SIDE))


def _usual(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the defaults of fields."""
    usual = AnalyzeRequest()
    return {name: getattr(usual, name) for name in names}

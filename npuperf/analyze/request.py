"""What can be asked of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an answer that is known needs nothing of what works it out
    from npuperf.model.chip import Cores
    from npuperf.scopes.expect import Expectation
    from npuperf.scopes.splits import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """What to analyze, and how.

    ``cores`` is the user's word on core counts and overrides the profile's; ``what_if`` are expressions of
    :mod:`npuperf.replay.whatif`; ``cores_of`` a split of cores to replay, by stream; ``expect`` limits that kernels
    must obey; ``ranks`` and ``group`` (a kind of process group, or its id) narrow what is told of a job; ``before`` an
    earlier profile of the same program, against which SuperKernels are held, and ``plog`` a folder of CANN's logs;
    ``rules`` those to ask (all if empty); ``fail_on`` the gates; ``engine``, ``workers`` and
    ``scheduler`` say where ranks are worked on (:class:`npuperf.parallel.Engine`).
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
    fail_on: tuple[str, ...] = ()
    engine: str = "auto"
    workers: int | None = None
    scheduler: str | None = None

    @property
    def chosen_ranks(self) -> frozenset[int]:
        """The ranks asked for; empty: all."""
        return frozenset(self.ranks) | frozenset([self.rank] if self.rank is not None else [])

    @property
    def partial(self) -> bool:
        """Tell whether only a part of the path is asked for."""
        return any(value is not None for value in (self.step, self.rank, self.device, self.group)) or bool(self.ranks)

"""What can be asked of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:  # an answer that is known needs nothing of what works it out
    from npuperf.device.core_splits import Split
    from npuperf.device.expect import Expectation
    from npuperf.model.chip import Cores

#: What becomes of a gate that cannot be judged.
Undecided = Literal["pass", "fail"]


class Question(Struct, frozen=True, kw_only=True):
    """What to read, and what to ask of it: two that are equal have the same analysis.

    ``cores`` is the user's word on core counts and overrides the profile's; ``what_if`` are expressions of
    :mod:`npuperf.device.whatif`; ``cores_of`` a split of cores to replay, by stream; ``expect`` limits that kernels
    must obey; ``ranks`` and ``group`` (a kind of process group, or its id) narrow what is told of a job; ``before`` an
    earlier profile of the same program, against which SuperKernels are held, and ``plog`` a folder of CANN's logs;
    ``rules`` those to ask (all if empty); ``engine``, ``workers`` and ``scheduler`` say where ranks are worked on
    (:class:`npuperf.base.parallel.Engine`).
    """

    path: Path = Path("result")
    step: int | None = None
    rank: int | None = None
    device: int | None = None
    ranks: tuple[int, ...] = ()
    group: str | None = None
    soc: str | None = None
    cores: Cores | None = None
    before: Path | None = None
    plog: Path | None = None
    what_if: tuple[str, ...] = ()
    cores_of: Split = field(default_factory=dict)
    engine: str = "auto"
    workers: int | None = None
    scheduler: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    expect: tuple[Expectation, ...] = ()
    top: int = 10

    @property
    def chosen_ranks(self) -> frozenset[int]:
        """The ranks asked for; empty: all."""
        return frozenset(self.ranks) | frozenset([self.rank] if self.rank is not None else [])

    @property
    def partial(self) -> bool:
        """Tell whether only a part of the path is asked for."""
        return any(value is not None for value in (self.step, self.rank, self.device, self.group)) or bool(self.ranks)


class AnalyzeRequest(Question, frozen=True, kw_only=True):
    """A question, what its answer is held against, and what is written.

    ``no_cache``: nothing that was kept is used, and nothing is kept. ``baseline`` are the sides to compare with (a
    profile, a result as JSON, or the name of a kept one), ``again`` further runs of what ``path`` is a run of, for the
    new side; also where the sides are of another workload (``allow_mismatch``); ``baseline_dir`` where baselines are
    kept, and ``save_baseline`` the name to keep this one under; ``fail_on`` the gates, and ``gates`` files or presets
    of more, ``undecided`` what becomes of those that cannot be judged; ``lock`` and ``update_lock`` where exact counts
    are written to, ``check`` locks that they must agree with.

    ``output`` is a file for the report, ``junit`` one for the gates as JUnit, ``html`` one for the page, ``trace`` and
    ``trace_full`` for traces; ``force``: files that exist may be replaced.
    """

    no_cache: bool = False
    baseline: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    allow_mismatch: bool = False
    save_baseline: str | None = None
    baseline_dir: Path | None = None
    fail_on: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    undecided: Undecided | None = None
    lock: Path | None = None
    check: tuple[Path, ...] = ()
    update_lock: Path | None = None
    output: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    trace: Path | None = None
    trace_full: Path | None = None
    force: bool = False

    @property
    def question(self) -> Question:
        """What is asked, without what its answer is held against."""
        return Question(**{name: getattr(self, name) for name in Question.__struct_fields__})

    def of_baseline(self, path: Path) -> Question:
        """Ask the same of another profile of a comparison, as far as a comparison needs it."""
        usual = Question()
        of_one_side = ("top", "what_if", "cores_of", "expect", "before", "plog")
        return replace(self.question, path=path, **{name: getattr(usual, name) for name in of_one_side})

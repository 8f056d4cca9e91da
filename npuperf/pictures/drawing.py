"""What all lanes of a picture are drawn from: a device's study, the buckets, the stretches that are shown exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Device
from npuperf.host.bulk_lines import Lines
from npuperf.model.chip import Cores
from npuperf.model.groups import distinct, largest
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64
from npuperf.pictures.buckets import Buckets
from npuperf.pictures.slice_columns import Names
from npuperf.pictures.stretches import CloseUp, allot
from npuperf.replay.study import Study


class Drawing(Struct, frozen=True, dict=True):
    """One picture on its way. ``origin``: what its times count from, epoch ns; ``slices``: about so many it may have.

    ``names``: those that its slices use, collected by the lanes.
    """

    study: Study
    report: Device
    buckets: Buckets
    stretches: Sequence[CloseUp]
    origin: int
    slices: int
    names: Names

    @property
    def window(self) -> tuple[int, int]:
        """What is drawn, epoch ns."""
        edges = self.buckets.edges
        return int(edges[0]), int(edges[-1])

    @property
    def cores(self) -> Cores:
        """The device's cores, as the report has them."""
        return Cores(self.report.cores_cube, self.report.cores_vector)

    @cached_property
    def exact(self) -> Intervals:
        """The stretches as windows, epoch ns."""
        start, end = (np.array([getattr(s, side) for s in self.stretches], np.int64) for side in ("start", "end"))
        return Intervals(start, end)

    @cached_property
    def lines(self) -> Lines:
        """What tells lines of code."""
        return Lines.of(self.study.profile.host)

    def near(self, start: I64, end: I64, most: int) -> tuple[I64, list[int]]:
        """Return which of some things lie in the stretches, at least in part: the longest of each, up to ``most``.

        In order, and how many of each stretch are left out. What lies in several counts for each.
        """
        windows = zip(self.exact.start.tolist(), self.exact.end.tolist(), strict=True)
        there = [np.flatnonzero((start < b) & ((end > a) | (start >= a))) for a, b in windows]
        kept = [
            rows if count == len(rows) else rows[largest((end - start)[rows], count)] if count else rows[:0]
            for rows, count in zip(there, allot([len(rows) for rows in there], most), strict=True)
        ]
        cut = [len(rows) - len(some) for rows, some in zip(there, kept, strict=True)]
        return distinct(np.concatenate([np.empty(0, np.int64), *kept])), cut

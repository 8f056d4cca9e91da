"""One device as rules and proposals see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from npuperf.documents.analysis import Device, Partition, Verdict
from npuperf.host.mode import Mode
from npuperf.messages import Message
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene, predict
from npuperf.scopes.splits import Bench
from npuperf.timeline.launches import Launches

#: Launching operators looked at for code lines.
_OPS: Final = 50


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The window of a device that is judged, and what is already known of it.

    ``tasks``, ``types`` and ``launches`` are of the window; ``waits``: how long the idle device waited for the launch
    of each task, ``held``: how long each waited for cores that other streams held, as far as that can be told (ns);
    ``scene``: for what-ifs; ``bench``: for core limits, or why there is none.
    """

    study: Study
    tasks: Tasks
    types: Labels
    launches: Launches
    waits: I64
    held: I64
    cores: Cores
    report: Device
    scene: Scene | None
    bench: Bench | Message
    thresholds: Thresholds

    @property
    def profile(self) -> DeviceProfile:
        """The whole profile."""
        return self.study.profile

    @property
    def mode(self) -> Mode:
        """How the program was executed."""
        return self.study.mode

    @property
    def partition(self) -> Partition:
        """The split of the window."""
        return self.report.partition

    @property
    def verdict(self) -> Verdict:
        """The verdict over the window."""
        return self.report.verdict

    @property
    def steps(self) -> list[int]:
        """The numbers of the window's steps."""
        return [s.step for s in self.report.steps]

    @property
    def host_bound_ns(self) -> int:
        """How much of the window lies in host-bound phases."""
        return sum(p.end_ns - p.start_ns for p in self.report.phases if p.bound == "host")

    @property
    def host_bound(self) -> bool:
        """Whether the window, or a notable part of it, is host-bound."""
        notable = self.thresholds.idle_share * self.partition.span_ns
        return self.verdict.bound == "host" or self.host_bound_ns >= max(notable, 1)

    def blamed(self, *causes: str) -> int:
        """Return how long the device waited for the host while it was at one of these causes, ns."""
        return sum(b.ns for b in self.report.blame if b.cause in causes)

    def predict(self, expression: str) -> tuple[int, int] | None:
        """Return what a change saves per step (ns, least and most), or None where the replay abstains."""
        if self.scene is None:
            return None
        found = predict(self.scene, expression)
        return (self.per_step(max(found.least, 0)), self.per_step(max(found.most, 0))) if found.matched else None

    @property
    def compute(self) -> Mask:
        """True for compute tasks."""
        return np.equal(self.tasks.work, Work.COMPUTE)

    def per_step(self, ns: int) -> int:
        """Spread a sum over the steps of the window."""
        return ns // max(len(self.steps), 1)

    def exposed(self, chosen: Mask) -> int:
        """Return the device time, ns, that only ``chosen`` tasks cover: what their removal could save at most."""
        active = self.tasks.work != Work.CONTROL
        rest = active & ~chosen
        everything = Intervals.union(self.tasks.start[active], self.tasks.end[active])
        return everything.total() - Intervals.union(self.tasks.start[rest], self.tasks.end[rest]).total()

    def code_lines(self, chosen: I64, count: int = 3) -> list[str]:
        """Return where most of some tasks come from: code lines, or torch operators where no stack is recorded."""
        ops, place = np.unique(self.tasks.op[chosen], return_inverse=True)
        total = np.bincount(place, self.tasks.dur[chosen], minlength=len(ops))
        host, lines = self.profile.host, dict[str, None]()
        for i in np.argsort(-total, kind="stable")[:_OPS].tolist():
            line = host.code_line(int(ops[i])) or host.torch_op(int(ops[i]))
            if line:
                lines.setdefault(line)
        return list(lines)[:count]

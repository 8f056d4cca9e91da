"""What the streams of a device make of its cores: occupancy over time, contention, core limits, SuperKernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuperf.advise import core_limit, super_kernel
from npuperf.advise.rule import View
from npuperf.analyze.contention import NO_LAUNCHES, Waits, add_contention, find_waits
from npuperf.analyze.fused import check_super_kernels, is_super_kernel
from npuperf.analyze.limits import Bench, Split
from npuperf.analyze.mode import Mode, mode_of
from npuperf.analyze.study import Study
from npuperf.analyze.sweep import Sweep, cores_over_time
from npuperf.analyze.whatif import Scene
from npuperf.model.chip import Cores
from npuperf.model.labels import I64
from npuperf.model.profile import DeviceProfile
from npuperf.model.result import CoresOverTime, Device
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds

_FOREVER = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class CoreStudy:
    """The occupancy of a device's cores over the whole profile, and the waits for cores, where they can be told."""

    mode: Mode
    sweep: Sweep | None
    waits: Waits | None

    @classmethod
    def of(cls, study: Study, cores: Cores, limits: Thresholds) -> CoreStudy:
        """Sweep over the whole profile."""
        mode, tasks = mode_of(study.profile), study.profile.tasks
        sweep = Sweep.of(tasks, cores, _FOREVER)
        graph = mode in ("aclgraph", "ge")
        if sweep is None or study.profile.excerpt or not (graph or study.launches.known.any()):
            return cls(mode, sweep, None)
        return cls(mode, sweep, find_waits(tasks, study.launches, sweep, limits, graph=graph))

    def held(self, size: int) -> I64:
        """Return how long each of all tasks waited for cores, ns; 0 where that cannot be told."""
        held = np.zeros(size, np.int64)
        if self.waits is not None:
            held[self.waits.task] = self.waits.short_ns
        return held

    def over_time(self, study: Study, cores: Cores, span: tuple[int, int]) -> CoresOverTime | None:
        """Sum up a window."""
        tasks = study.profile.tasks.without_counters()
        sweep = Sweep.of(tasks, cores, span)
        if sweep is None:
            return None
        use = cores_over_time(sweep)
        if self.waits is None:
            use.contention_reason = NO_LAUNCHES if len(use.pairs) else None
            return use
        inside = (self.waits.until >= span[0]) & (self.waits.until < span[1])
        add_contention(use, tasks, self.waits.filter(inside), self.sweep or sweep)
        return use

    def bench(self, study: Study, scene: Scene | None, limits: Thresholds) -> tuple[Bench | None, str | None]:
        """Return what core limits are tried on, or why there is nothing."""
        if self.sweep is None:
            return None, "core counts or Block Dim are unknown"
        if len(self.sweep.numbers) < 2:
            return None, "kernels run on one stream only: there is nothing to divide"
        if self.waits is None:
            return None, "rows are missing from the kernel table" if study.profile.excerpt else NO_LAUNCHES
        if scene is None:
            return None, "nothing to replay"
        refused = scene.replay.refusal(limits, host=False)
        if refused:
            return None, refused
        return Bench.of(scene, study.profile.tasks, self.sweep, self.waits, limits), None


def device_scene(study: Study, scene: Scene | None, span: tuple[int, int], limits: Thresholds) -> Scene | None:
    """Return the scene of the what-ifs, or one of the device alone where the host cannot be modelled."""
    if scene is not None:
        return scene
    replay = study.device_replay(limits)
    return None if replay is None else Scene.of(study, replay, span)


def add_scopes(report: Device, view: View, cores_of: Split) -> None:
    """Add core limits and SuperKernels, proposed and asked for, to a device's report."""
    report.core_splits = core_limit.splits(view, cores_of)
    report.super_kernels = super_kernel.scopes(view)


def add_checks(report: Device, profile: DeviceProfile, earlier: Sequence[DeviceProfile], log: Sequence[str]) -> None:
    """Hold the SuperKernels of a profile against the same device's earlier profile without them."""
    if earlier:
        same = [p for p in earlier if (p.rank, p.device) == (profile.rank, profile.device)]
        report.super_kernel_checks = check_super_kernels((same or [*earlier])[0].tasks, profile.tasks, log)
    elif log and is_super_kernel(profile.tasks).any():
        report.super_kernel_checks = check_super_kernels(Tasks.empty(), profile.tasks, log)

"""What the streams of a device make of its cores: occupancy over time, contention, core limits, SuperKernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuperf.advise import core_limit, super_kernel
from npuperf.advise.rule import View
from npuperf.cores.sweep import Sweep, cores_over_time
from npuperf.documents.analysis import CoresOverTime, Device
from npuperf.host.mode import Mode, mode_of
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene
from npuperf.scopes.contention import NO_LAUNCHES, Waits, add_contention, find_waits
from npuperf.scopes.fused import check_super_kernels
from npuperf.scopes.splits import Bench, Split

_FOREVER = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class CoreStudy:
    """What the cores of a device do over a window.

    ``held``: how long each task waited for cores (ns), None where none did as far as can be told; ``bench``: what
    core limits are tried on, or ``no_bench`` says why there is nothing to try.
    """

    mode: Mode
    over_time: CoresOverTime | None
    held: I64 | None
    bench: Bench | None
    no_bench: str | None

    @classmethod
    def of(
        cls,
        study: Study,
        cores: Cores,
        span: tuple[int, int],
        scene: Scene | None,
        thresholds: Thresholds,
        asked: Split,
    ) -> CoreStudy:
        """Sweep over the profile, and over the window if that is less."""
        mode, tasks = mode_of(study.profile), study.profile.tasks
        sweep = Sweep.of(tasks, cores, _FOREVER)
        if sweep is None:
            return cls(mode, None, None, None, "core counts or Block Dim are unknown")
        waits = _waits(study, sweep, mode, thresholds)
        use = _over_time(study, sweep, waits, cores, span)
        held = None
        if waits is not None and len(waits.task):
            held = np.zeros(len(tasks), np.int64)
            held[waits.task] = waits.short_ns
        reason = _nothing_to_divide(study, sweep, waits, use, asked)
        if reason or waits is None:
            return cls(mode, use, held, None, reason)
        scene = _device_scene(study, scene, span, thresholds)
        refused = scene.replay.refusal(thresholds, host=False) if scene else "there is nothing to replay"
        bench = Bench.of(scene, tasks, sweep, waits, thresholds) if scene and not refused else None
        return cls(mode, use, held, bench, refused)


def _waits(study: Study, sweep: Sweep, mode: Mode, thresholds: Thresholds) -> Waits | None:
    """Find the waits for cores; None where nothing tells when kernels were ready."""
    graph = mode in ("aclgraph", "ge")
    if study.profile.excerpt or not (graph or study.launches.known.any()):
        return None
    return find_waits(study.profile.tasks, study.launches, sweep, thresholds, graph=graph)


def _over_time(
    study: Study, whole: Sweep, waits: Waits | None, cores: Cores, span: tuple[int, int]
) -> CoresOverTime | None:
    sweep = whole if whole.covers(span) else Sweep.of(study.profile.tasks, cores, span)
    if sweep is None:
        return None
    use = cores_over_time(sweep)
    if waits is None:
        use.contention_reason = NO_LAUNCHES if use.pairs else None
        return use
    inside = (waits.until >= span[0]) & (waits.until < span[1])
    add_contention(use, study.profile.tasks, waits.filter(inside), whole)
    return use


def _nothing_to_divide(
    study: Study, sweep: Sweep, waits: Waits | None, use: CoresOverTime | None, asked: Split
) -> str | None:
    """Say why there is no use in trying core limits, if so."""
    if len(sweep.numbers) < 2:
        return "kernels run on one stream only: there is nothing to divide"
    if waits is None:
        return "rows are missing from the kernel table" if study.profile.excerpt else NO_LAUNCHES
    crowded = use is not None and any(pair.over_ns for pair in use.pairs)
    if not (len(waits.task) or crowded or asked):
        return "no kernel waits for the cores of another stream, or shares them"
    return None


def _device_scene(study: Study, scene: Scene | None, span: tuple[int, int], thresholds: Thresholds) -> Scene | None:
    """Return the scene of the what-ifs, or one of the device alone where the host cannot be modelled."""
    if scene is not None:
        return scene
    replay = study.device_replay(thresholds)
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
    elif log:
        report.super_kernel_checks = check_super_kernels(Tasks.empty(), profile.tasks, log)

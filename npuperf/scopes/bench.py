"""What the cores of a device do over a window, and what core limits are tried on."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.cores.sweep import Sweep, cores_over_time
from npuperf.documents.analysis import CoresOverTime
from npuperf.messages import Message, say
from npuperf.model.chip import Cores
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds
from npuperf.replay.study import Study
from npuperf.replay.whatif import Scene
from npuperf.scopes.contention import NO_LAUNCHES, Waits, find_waits, with_contention
from npuperf.scopes.splits import Bench, Split

_FOREVER: Final = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def study_cores(
    study: Study, cores: Cores, span: tuple[int, int], scene: Scene | None, thresholds: Thresholds, asked: Split
) -> tuple[CoresOverTime | None, I64, Bench | Message]:
    """Sweep over the profile, and over the window if that is less.

    Returns the use of cores over time; how long each task of the profile waited for cores, ns; and what core limits are
    tried on, or why there is nothing to try. ``asked``: the limits that the user asked for.
    """
    tasks = study.profile.tasks
    held = np.zeros(len(tasks), np.int64)
    sweep = Sweep.of(tasks, cores, _FOREVER)
    if sweep is None:
        return None, held, say("core counts or Block Dim are unknown")
    waits = _waits(study, sweep, thresholds)
    use = _over_time(study, sweep, waits, cores, span)
    if waits is not None:
        held[waits.task] = waits.short_ns
    return use, held, _bench(study, sweep, waits, use, scene, span, thresholds, bool(asked))


def _waits(study: Study, sweep: Sweep, thresholds: Thresholds) -> Waits | None:
    """Find the waits for cores; None where nothing tells when kernels were ready."""
    graph = study.mode in ("aclgraph", "ge")
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
        return replace(use, contention_reason=NO_LAUNCHES if use.pairs else None)
    inside = (waits.until >= span[0]) & (waits.until < span[1])
    return with_contention(use, study.profile.tasks, waits.filter(inside), whole)


def _bench(
    study: Study,
    sweep: Sweep,
    waits: Waits | None,
    use: CoresOverTime | None,
    scene: Scene | None,
    span: tuple[int, int],
    thresholds: Thresholds,
    asked: bool,
) -> Bench | Message:
    if len(sweep.numbers) < 2:
        return say("kernels run on one stream only: there is nothing to divide")
    if waits is None:
        return say("rows are missing from the kernel table") if study.profile.excerpt else NO_LAUNCHES
    crowded = use is not None and any(pair.over_ns for pair in use.pairs)
    if not (len(waits.task) or crowded or asked):
        return say("no kernel waits for the cores of another stream, or shares them")
    if scene is None:  # where the host cannot be modelled, the device alone may be
        replay = study.device_replay(thresholds)
        scene = None if replay is None else Scene.of(study, replay, span)
    if scene is None:
        return say("there is nothing to replay")
    refused = scene.replay.refusal(thresholds, host=False)
    return refused or Bench.of(scene, study.profile.tasks, sweep, waits, thresholds)

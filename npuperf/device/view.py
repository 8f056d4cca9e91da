"""One device as rules and proposals see it, and what core limits are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.messages import Message, say
from npuperf.device.blame import Blamed
from npuperf.device.core_splits import Bench, Split, find_contention, find_core_waits
from npuperf.device.cores import NO_LAUNCHES, Sweep, cores_over_time
from npuperf.device.cube_work import Costs, CubeWork, Peak
from npuperf.device.memory_study import MemoryStudy
from npuperf.device.mode import Mode, Traits, is_graph
from npuperf.device.partition import Launches, within
from npuperf.device.pipes import Pipes
from npuperf.device.roofline import MeasuredKernels, Rates, Roofline
from npuperf.device.study import Study
from npuperf.device.whatif import Scene, predict
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.intervals import SIGNED, Intervals, narrow
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.result import CoresOverTime, Device, Partition, Verdict
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: Launching operators looked at for code lines.
_OPS: Final = 50


class DeviceWindow(Struct, frozen=True):
    """The window of a device that is judged, as proposals see it.

    ``steps``: their numbers; ``tasks``, ``types`` and ``launches`` are of the window; ``waits``: how long the idle
    device waited for the launch of each task, ``held``: how long each waited for cores that other streams held, as far
    as that can be told (ns); ``over_time``: the use of its cores; ``scene``: for what-ifs, None where the replay
    abstains; ``bench``: for core limits, or why there is none.
    """

    study: Study
    span: tuple[int, int]
    steps: list[int]
    tasks: Tasks
    types: Labels
    launches: Launches
    waits: I64
    held: I64
    soc: str | None
    cores: Cores
    over_time: CoresOverTime | None
    scene: Scene | None
    bench: Bench | Message
    thresholds: Thresholds

    @classmethod
    def of(
        cls,
        study: Study,
        span: tuple[int, int],
        steps: list[int],
        soc: str | None,
        cores: Cores,
        limits: Split,
        thresholds: Thresholds,
    ) -> DeviceWindow:
        """Gather what is known of a window; ``limits``: of cores, by stream, that the user asked for."""
        tasks = study.profile.tasks
        inside = within(tasks, span)
        scene = Scene.of(study, study.replay, span) if study.replay is not None and study.usable else None
        over_time, held, bench = _study_cores(study, cores, span, scene, thresholds, asked=bool(limits))
        return cls(
            study=study,
            span=span,
            steps=steps,
            tasks=tasks.part(inside),
            types=study.types.filter(inside),
            launches=study.launches.take(inside),
            waits=narrow(study.timeline.host_waits(len(tasks))[inside], SIGNED),
            held=held[inside],
            soc=soc,
            cores=cores,
            over_time=over_time,
            scene=scene,
            bench=bench,
            thresholds=thresholds,
        )

    @property
    def profile(self) -> DeviceProfile:
        """The whole profile."""
        return self.study.profile

    @property
    def mode(self) -> Mode:
        """How the program was executed."""
        return self.study.traits.mode

    @property
    def traits(self) -> Traits:
        """What kind of run it is."""
        return self.study.traits

    @property
    def compute(self) -> Mask:
        """True for compute tasks."""
        return np.equal(self.tasks.work, Work.COMPUTE)

    def per_step(self, ns: int) -> int:
        """Spread a sum over the steps of the window."""
        return ns // max(len(self.steps), 1)

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


class KernelUse(Struct, frozen=True):
    """What each kernel was asked to do, and did, by its shapes and counters; worked out while counters are there.

    ``measured``: None where nothing tells the peak of the device's cores.
    """

    costs: Costs
    pipes: Pipes
    measured: MeasuredKernels | None = None

    @classmethod
    def of(cls, tasks: Tasks, types: Labels, peak: Peak | None, cores: Cores, soc: str | None) -> KernelUse:
        """Work it out; ``types``: of the tasks, ``soc``: the chip, if it is known."""
        costs, pipes = Costs.of(tasks, types), Pipes.of(tasks)
        if peak is None:
            return cls(costs, pipes)
        work = CubeWork.of(tasks, costs, peak)
        roofline = Roofline.of(tasks, types, costs, work, pipes, Rates.of(peak, cores, soc))
        return cls(costs, pipes, MeasuredKernels(peak, work, roofline))

    @property
    def work(self) -> CubeWork | None:
        """What kernels do on cube cores."""
        return None if self.measured is None else self.measured.work

    @property
    def roofline(self) -> Roofline | None:
        """How fast kernels could be."""
        return None if self.measured is None else self.measured.roofline

    @property
    def rates(self) -> Rates | None:
        """What the chip can."""
        return None if self.measured is None else self.measured.roofline.rates

    def part(self, chosen: slice) -> KernelUse:
        """Return that of a stretch of the tasks."""
        measured = self.measured and self.measured.part(chosen)
        return KernelUse(self.costs.part(chosen), self.pipes.part(chosen), measured)


class DeviceView(DeviceWindow, frozen=True):
    """A window as rules see it, with what the report says of it.

    ``paused``: the wait for the host in which it paused, and no launch was prepared; ``memory``: None if not recorded.
    """

    paused: Blamed
    report: Device
    use: KernelUse
    memory: MemoryStudy | None = None
    _asked: dict[Callable[[DeviceView], float], float] = field(default_factory=dict)

    def part(self, recorded: Callable[[DeviceView], float]) -> float:
        """Return which part of some data is recorded; many rules ask, it is looked up once."""
        if recorded not in self._asked:
            self._asked[recorded] = recorded(self)
        return self._asked[recorded]

    @property
    def partition(self) -> Partition:
        """The split of the window."""
        return self.report.window

    @property
    def verdict(self) -> Verdict:
        """The verdict over the window."""
        return self.report.verdict

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

    def exposed(self, chosen: Mask) -> int:
        """Return the device time, ns, that only ``chosen`` tasks cover: what their removal could save at most."""
        if not chosen.any():  # as rules find it mostly: adding up all tasks takes long
            return 0
        active = self.tasks.work != Work.CONTROL
        rest = active & ~chosen
        everything = Intervals.union(self.tasks.start[active], self.tasks.end[active])
        return everything.total() - Intervals.union(self.tasks.start[rest], self.tasks.end[rest]).total()


_FOREVER: Final = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def _study_cores(
    study: Study, cores: Cores, span: tuple[int, int], scene: Scene | None, thresholds: Thresholds, *, asked: bool
) -> tuple[CoresOverTime | None, I64, Bench | Message]:
    """Sweep over the profile, and over the window if that is less.

    Returns the use of cores over time; how long each task of the profile waited for cores, ns; and what core limits are
    tried on, or why there is nothing to try. ``asked``: whether the user asked for limits.
    """
    profile, tasks = study.profile, study.profile.tasks
    held = np.zeros(len(tasks), np.int64)
    whole = Sweep.of(tasks, cores, _FOREVER)
    if whole is None:
        return None, held, say("core counts or Block Dim are unknown")
    graph = is_graph(study.traits.mode)
    waits = contention = None  # where nothing tells when kernels were ready
    if not profile.excerpt and (graph or study.launches.known.any()):
        waits = find_core_waits(tasks, study.launches, whole, thresholds, graph=graph)
        held[waits.task] = waits.short_ns
        inside = (waits.until >= span[0]) & (waits.until < span[1])
        contention = find_contention(tasks, waits.filter(inside), whole)
    held = narrow(held)
    sweep = whole if whole.covers(span) else Sweep.of(tasks, cores, span)
    use = None if sweep is None else cores_over_time(sweep, contention)
    if len(whole.numbers) < 2:
        return use, held, say("kernels run on one stream only, so there are no cores to divide between streams")
    if waits is None:
        return use, held, profile.excerpt or NO_LAUNCHES
    crowded = use is not None and any(pair.over_ns for pair in use.pairs)
    if not (len(waits.task) or crowded or asked):
        return use, held, say("no kernel waits for the cores of another stream, or shares them")
    if scene is None:  # where the host cannot be modelled, the device alone may be
        replay = study.device_replay(thresholds)
        scene = None if replay is None else Scene.of(study, replay, span)
    if scene is None:
        return use, held, say("there is nothing to replay")
    refused = scene.replay.refusal(thresholds, span, host=False)
    return use, held, refused or Bench.of(scene, tasks, whole, waits, thresholds)

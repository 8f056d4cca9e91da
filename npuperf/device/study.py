"""Everything that is worked out once per device: launches, idle time, host events, syncs, blame, the replay."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say, series
from npuperf.device.blame import Blamed, HostThreads, blame_waits, main_thread
from npuperf.device.host_events import CODE, NONE, Nesting
from npuperf.device.mode import Traits
from npuperf.device.operators import type_labels
from npuperf.device.partition import Launches, Returns, Timeline, calibrate, lay_out
from npuperf.device.replay import Replay, build_replay
from npuperf.device.steps import judged_window, step_windows, whole_steps
from npuperf.device.syncs import (
    ONE_STREAM,
    WHOLE_DEVICE,
    SyncPoint,
    Syncs,
    find_syncs,
    in_steps,
    only_waiting,
    sync_points,
)
from npuperf.model.device import DeviceProfile
from npuperf.model.groups import tally
from npuperf.model.host import HostOps
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds

# -- Which part of the program launched a task: forward, backward or optimizer, the user's own ranges, modules.

_OPTIMIZER: Final = re.compile(r"^Optimizer\.")
_BACKWARD: Final = re.compile(r"^autograd::engine::evaluate_function|[bB]ackward")
_MODULE: Final = re.compile(r"^nn\.Module: (.+)$")
#: The parts of training.
PARTS: Final = {"forward": say("forward"), "backward": say("backward"), "optimizer": say("optimizer")}
#: What a label names must cover this share of the phase's launches.
_MAIN_SHARE: Final = 0.6
_PART_SHARE: Final = 0.2


class Sections(Struct, frozen=True):
    """Per task: the part of training it belongs to, and the user's range or module around its launch."""

    part: Labels
    range: Labels

    def label(self, first: int, last: int, weight: I64) -> Message | None:
        """Name the tasks ``first`` … ``last-1`` by what most of their time belongs to."""
        parts = _shares(self.part, first, last, weight)
        notable = {name for name, share in parts if share >= _PART_SHARE}
        named = [name for name in self.part.names if name in notable]
        ranges = [name for name, share in _shares(self.range, first, last, weight)[:1] if share >= _MAIN_SHARE]
        if not named:
            return say("{range}", range=ranges[0]) if ranges else None
        listed = series(PARTS[name] for name in named)
        return say("{parts} in {range}", parts=listed, range=ranges[0]) if ranges else say("{parts}", parts=listed)


def find_sections(tasks: Tasks, host: HostOps, nesting: Nesting) -> Sections:
    """Find the part and the range of every task, by its torch operator, else by its launch."""
    events = nesting.events
    if not len(events):
        return Sections(Labels.missing(len(tasks)), Labels.missing(len(tasks)))
    thread, time = tasks.launch_thread.copy(), np.where(tasks.launched, tasks.launch_start, 0)
    if len(host.ops):
        known = tasks.op >= 0
        thread = np.where(known, host.ops.thread[tasks.op], thread)
        time = np.where(known, host.ops.start[tasks.op], time)
    inner = nesting.at(thread, time)
    names = events.name.names
    optimizer = nesting.nearest(inner, events.name.flag([bool(_OPTIMIZER.search(n)) for n in names])) != NONE
    backward = nesting.nearest(inner, events.name.flag([bool(_BACKWARD.search(n)) for n in names])) != NONE
    numbers, step = np.unique(tasks.step, return_inverse=True)
    last = np.full(len(numbers), np.iinfo(np.int64).min)  # launch of a backward pass in each step; what follows is none
    np.maximum.at(last, step[backward], time[backward])
    forward = (inner != NONE) & (time <= last[step])
    part = np.select([optimizer, backward, forward], [2, 1, 0], NONE).astype(np.int32)
    # The innermost range of the user's around each launch, else the module just below the model itself.
    own = nesting.nearest(inner, nesting.causes == CODE["range"])
    module = events.name.flag([bool(_MODULE.match(n)) for n in names])
    model, below = nesting.outermost(inner, module), np.full(len(inner), NONE)
    at = nesting.nearest(inner, module)
    while (moving := (at >= 0) & (at != model)).any():
        below = np.where(moving, at, below)
        at = nesting.nearest(np.where(moving, nesting.parent[at], NONE), module)
    found = events.name.take(np.where(own >= 0, own, np.where(below >= 0, below, model)))
    ranges = Labels(found.codes, tuple(_MODULE.sub(r"\1", n) for n in found.names)).narrowed()
    return Sections(Labels(part, tuple(PARTS)).narrowed(), ranges)


def _shares(labels: Labels, first: int, last: int, weight: I64) -> list[tuple[str, float]]:
    """Return the names of a stretch of tasks with their share of its weight, the largest first."""
    codes, _, sums = tally(labels.codes[first:last], weight[first:last])
    total = int(weight[first:last].sum())
    order = np.argsort(-sums, kind="stable")
    named = ((int(codes[i]), int(sums[i])) for i in order.tolist())
    return [(labels.names[code], ns / total) for code, ns in named if code >= 0 and ns]


class Study(Struct, frozen=True):
    """What is known of one device. ``replay`` is None where no launch is known or rows are missing.

    ``usable``: whether the replay is like the run, so that changes may be replayed.

    ``types``: of all tasks; ``whole``: which of the steps were recorded from beginning to end; ``pause_ns``: from when
    on host time without a call that launches is a pause.
    """

    profile: DeviceProfile
    traits: Traits
    types: Labels
    launches: Launches
    timeline: Timeline
    step_numbers: I64
    steps: Intervals
    whole: Mask
    nesting: Nesting
    syncs: Syncs
    points: list[SyncPoint]
    threads: HostThreads
    blamed: Blamed
    sections: Sections
    replay: Replay | None
    usable: bool
    pause_ns: int

    @classmethod
    def of(cls, profile: DeviceProfile, thresholds: Thresholds) -> Study:
        """Work everything out; at least one task must occupy the device."""
        tasks, host = profile.tasks, profile.host
        nesting = Nesting.build(host.events)
        syncs = only_waiting(find_syncs(nesting), nesting, thresholds)
        # The return of these calls shows that the device has finished, or one stream of it, which is not named.
        names = nesting.events.name.take(syncs.event)
        whole, one = (names.flag([bool(p.search(n)) for n in names.names]) for p in (WHOLE_DEVICE, ONE_STREAM))
        sure = whole | one
        launches = calibrate(tasks, thresholds, Returns(syncs.start[sure], syncs.end[sure], one[sure]))
        timeline = lay_out(tasks, launches)
        numbers, steps = step_windows(tasks)
        main = main_thread(host)
        threads = HostThreads.of(tasks, host, main)
        replay = None
        if launches.known.any() and not profile.excerpt:
            replay = build_replay(tasks, launches, syncs, threads, nesting, thresholds).held_against(tasks, steps)
        return cls(
            profile=profile,
            traits=Traits.of(profile, thresholds),
            types=type_labels(tasks).narrowed(),
            launches=launches,
            timeline=timeline,
            step_numbers=numbers,
            steps=steps,
            whole=whole_steps(tasks, numbers, thresholds),
            nesting=nesting,
            syncs=syncs,
            points=sync_points(syncs, nesting, host, tasks),
            threads=threads,
            blamed=blame_waits(timeline.idle, threads, nesting, launches.skew),
            sections=find_sections(tasks, host, nesting),
            replay=replay,
            usable=replay is not None and replay.refusal(thresholds) is None,
            pause_ns=thresholds.pause_ns,
        )

    def device_replay(self, thresholds: Thresholds) -> Replay | None:
        """Return a replay for questions about the device alone, also of graphs; None where rows are missing.

        Kernels of graphs have no launch of their own.
        """
        if self.profile.excerpt or self.usable:
            return self.replay
        return build_replay(
            self.profile.tasks, self.launches, self.syncs, self.threads, self.nesting, thresholds, anchor=True
        )

    @property
    def judged(self) -> tuple[int, int]:
        """The window that verdict, findings and what-ifs are about: the whole steps, or everything without steps."""
        return judged_window(self.steps, self.whole) or self.timeline.span

    def step_span(self, step: int) -> tuple[int, int]:
        """Return start and end of a step that exists."""
        at = int(np.flatnonzero(self.step_numbers == step)[0])
        return int(self.steps.start[at]), int(self.steps.end[at])

    def syncs_of(self, span: tuple[int, int]) -> Mask:
        """True for waits for the device that a report of ``span`` is about.

        Those of its steps as the host ran them; where it recorded none, those that lie in it, at least in part.
        """
        syncs, skew = self.syncs, self.launches.skew
        numbers = self.step_numbers[(self.steps.start < span[1]) & (self.steps.end > span[0])]
        of_steps = in_steps(syncs, self.profile.host_steps, numbers)
        return (syncs.end - skew > span[0]) & (syncs.start - skew < span[1]) if of_steps is None else of_steps

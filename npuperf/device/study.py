"""Everything that is worked out once per device: launches, idle time, host events, syncs, blame, the replay."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.device.blame import Blamed, HostThreads, blame_waits, main_thread
from npuperf.device.first_calls import first_calls
from npuperf.device.host_events import Nesting
from npuperf.device.mode import Traits
from npuperf.device.operators import type_labels
from npuperf.device.partition import Launches, Returns, Timeline, calibrate, lay_out
from npuperf.device.replay import Replay, build_replay
from npuperf.device.sections import Sections, find_sections
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
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.thresholds import Thresholds


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
        nesting = Nesting.build(host.events, tasks)
        nesting = nesting.blamed_on("start_up", first_calls(nesting, tasks, thresholds))
        syncs = only_waiting(find_syncs(nesting), nesting, thresholds)
        # The return of these calls shows that the device has finished, or one stream of it, which is not named.
        names = nesting.events.name.take(syncs.event)
        device, one = (names.flag([bool(p.search(n)) for n in names.names]) for p in (WHOLE_DEVICE, ONE_STREAM))
        sure = device | one
        launches = calibrate(tasks, thresholds, Returns(syncs.start[sure], syncs.end[sure], one[sure]))
        timeline = lay_out(tasks, launches)
        numbers, steps = step_windows(tasks)
        whole = whole_steps(tasks, numbers, thresholds)
        types = type_labels(tasks).narrowed()
        main = main_thread(host)
        threads = HostThreads.of(tasks, host, main)
        replay = None
        if launches.known.any() and not profile.excerpt:
            replay = build_replay(tasks, launches, syncs, threads, nesting, thresholds)
            replay = replay.held_against(tasks, Intervals(steps.start[whole], steps.end[whole]))
        judged = judged_window(steps, whole) or timeline.span
        return cls(
            profile=profile,
            traits=Traits.of(profile, thresholds),
            types=types,
            launches=launches,
            timeline=timeline,
            step_numbers=numbers,
            steps=steps,
            whole=whole,
            nesting=nesting,
            syncs=syncs,
            points=sync_points(syncs, nesting, host, tasks),
            threads=threads,
            blamed=blame_waits(timeline.idle, threads, nesting, launches.skew),
            sections=find_sections(tasks, types, host, nesting, thresholds),
            replay=replay,
            usable=replay is not None and replay.refusal(thresholds, judged) is None,
            pause_ns=thresholds.pause_ns,
        )

    def device_replay(self, thresholds: Thresholds) -> Replay | None:
        """Return a replay for questions about the device alone, also of graphs; None where rows are missing.

        Kernels of graphs have no launch of their own.
        """
        if self.profile.excerpt or self.usable:
            return self.replay
        replay = build_replay(
            self.profile.tasks, self.launches, self.syncs, self.threads, self.nesting, thresholds, anchor=True
        )
        judged = Intervals(self.steps.start[self.whole], self.steps.end[self.whole])
        return replay.held_against(self.profile.tasks, judged)

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

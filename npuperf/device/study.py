"""Everything that is worked out once per device: launches, idle time, host events, syncs, blame, the replay."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.device.blame import Blamed, HostThreads, blame_waits, main_thread, paused
from npuperf.device.first_calls import first_calls
from npuperf.device.host_events import Nesting
from npuperf.device.mode import Traits
from npuperf.device.operators import type_labels
from npuperf.device.partition import Launches, Returns, Timeline, calibrate, lay_out, span_of
from npuperf.device.replay import Replay, borders_of, build_replay
from npuperf.device.sections import Sections, find_sections
from npuperf.device.steps import (
    begun_after,
    idle_steps,
    judged_window,
    step_windows,
    steps_of_host,
    whole_steps,
    work_before,
)
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
from npuperf.model.parts import BoundedBy
from npuperf.model.thresholds import Thresholds


class Study(Struct, frozen=True):
    """What is known of one device. ``replay`` is None where no launch is known or rows are missing.

    ``usable``: whether the replay is like the run, so that changes may be replayed.

    ``types``: of all tasks; ``steps``: ``bounded_by`` the host's own ranges, where these are recorded, or as the device
    alone shows them, as ``of_tasks`` has them in any case; ``whole``: which of the steps were recorded from beginning
    to end; ``judged``: the window that verdict, findings and what-ifs are about: of the whole steps, without steps
    everything; ``since``: where it begins only when work ended that had been launched before the recording, else None;
    ``paused``: what of ``blamed`` are pauses; ``pause_ns``: from when on host time without a call that launches is one.
    """

    profile: DeviceProfile
    traits: Traits
    types: Labels
    launches: Launches
    timeline: Timeline
    step_numbers: I64
    steps: Intervals
    of_tasks: Intervals
    bounded_by: BoundedBy
    whole: Mask
    since: int | None
    judged: tuple[int, int]
    nesting: Nesting
    syncs: Syncs
    points: list[SyncPoint]
    threads: HostThreads
    blamed: Blamed
    paused: Blamed
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
        types = type_labels(tasks).narrowed()
        numbers, of_tasks = step_windows(tasks)
        steps, bounded_by = steps_of_host(tasks, launches, numbers, of_tasks, profile.host_steps)
        whole = whole_steps(tasks, numbers, thresholds)
        if bounded_by == "host":
            idle, begin, at = idle_steps(tasks, launches, numbers, steps, profile.host_steps)
            begins, alone = (np.insert(w.start, at, t) for w, t in ((steps, begin), (of_tasks, of_tasks.start[at])))
            numbers, whole = np.insert(numbers, at, idle), np.insert(whole, at, True)
            steps = Intervals(begins, np.append(begins[1:], steps.end[-1:]))
            of_tasks = Intervals(alone, np.insert(of_tasks.end, at, of_tasks.start[at]))
        first, last = span_of(tasks)
        since = work_before(tasks, launches, (syncs.start - launches.skew, syncs.end - launches.skew), thresholds)
        steps, since = begun_after(steps, first, since)
        span = (min([first, *steps.start[:1].tolist()]), max([last, *steps.end[-1:].tolist()]))
        timeline = lay_out(tasks, launches, span, hosts_end=span[1] > last)
        threads = HostThreads.of(tasks, host, main_thread(host))
        replay = None
        if launches.known.any() and not profile.excerpt:
            replay = build_replay(tasks, launches, syncs, threads, nesting, thresholds, borders_of(steps), since=since)
            replay = replay.held_against(tasks, Intervals(steps.start[whole], steps.end[whole]))
        blamed = blame_waits(timeline.idle, threads, nesting, launches.skew)
        start, end = timeline.span
        judged = judged_window(steps, whole) or (start if since is None else since, end)
        return cls(
            profile=profile,
            traits=Traits.of(profile, thresholds),
            types=types,
            launches=launches,
            timeline=timeline,
            step_numbers=numbers,
            steps=steps,
            of_tasks=of_tasks,
            bounded_by=bounded_by,
            since=since,
            whole=whole,
            judged=judged,
            nesting=nesting,
            syncs=syncs,
            points=sync_points(syncs, nesting, host, tasks),
            threads=threads,
            blamed=blamed,
            paused=paused(blamed, timeline.idle, thresholds.pause_ns),
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
            self.profile.tasks,
            self.launches,
            self.syncs,
            self.threads,
            self.nesting,
            thresholds,
            borders_of(self.steps),
            since=self.since,
            anchor=True,
        )
        judged = Intervals(self.steps.start[self.whole], self.steps.end[self.whole])
        return replay.held_against(self.profile.tasks, judged)

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

"""What npuperf found as a trace on the clock of the original one, so that both can be looked at together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.escape import without_halves
from npuperf.base.messages import Message, chain, say
from npuperf.device.blame import NOTHING, Blamed
from npuperf.device.host_events import CAUSES, CODE
from npuperf.device.partition import Gaps
from npuperf.device.study import Study
from npuperf.model.groups import largest
from npuperf.model.labels import I64, Labels
from npuperf.model.result import Bound, Device, Partition, Result, Verdict, texts_in
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import FilePieces
from npuperf.readers.recording import Reading, Recording
from npuperf.readers.trace import base_ns
from npuperf.show.language import text
from npuperf.show.trace_events import (
    Args,
    FindingArgs,
    MarkEvent,
    PartArgs,
    RootArgs,
    SliceEvent,
    TraceWriter,
    WaitArgs,
    called,
    core_counters,
    device_of,
    in_turn,
    memory_counters,
    microseconds,
    names_of,
    trace_file,
    vendor_text,
)
from npuperf.show.words import BOUND

# -- Where a finding is in time: at the longest thing of the first kind that its evidence names.


def place_of(evidence: Mapping[str, object], study: Study, window: tuple[int, int]) -> int | None:
    """Return when the longest task, or wait of the host, begins that the evidence names first, epoch ns.

    Tasks are named by their type, waits by their call. None where none of them begins within ``window``.
    """
    tasks, syncs, events = study.profile.tasks, study.syncs, study.nesting.events
    for name in texts_in(evidence):
        found = _longest(study.types, name, tasks.start, tasks.end, window)
        if found is None and len(syncs.event):
            found = _longest(events.name.take(syncs.event), name, syncs.start, syncs.end, window)
        if found is not None:
            return found
    return None


def _longest(labels: Labels, name: str, start: I64, end: I64, window: tuple[int, int]) -> int | None:
    if name not in labels.names:
        return None
    mine = np.flatnonzero((labels.codes == labels.names.index(name)) & (start >= window[0]) & (start < window[1]))
    return int(start[mine[np.argmax(end[mine] - start[mine])]]) if len(mine) else None


#: Waits whose line of code is looked up, the longest of a device: each takes a walk through its stack.
_LINES: Final = 10_000
#: Numbers of processes and threads begin here, so that both traces can be in one file: no system has pids so large.
_NUMBERS: Final = 4_200_000_001
#: Slices that are turned into events at the same time.
_ROWS: Final = 1 << 14


#: Start and end (epoch ns), name and arguments of a slice.
_Row = tuple[int, int, str, Args]


def _base(files: Sequence[Path]) -> int:
    """Return what the times of Kineto's files count from, epoch ns: some say so before their events, some behind."""
    for file in files:
        pieces = FilePieces(file, ReadLog(), None)
        for _ in pieces:
            if base := base_ns(pieces.header):
                return base
        if base := base_ns(pieces.header):
            return base
    return 0


class _Overlay(Struct):
    """Findings on their way into a trace. ``base``: what the times of the first original count from, epoch ns.

    None until it is known. Times are written as text, which viewers read exactly.
    """

    result: Result
    thresholds: Thresholds
    writer: TraceWriter
    of_job: bool
    slices: int = 0
    markers: int = 0
    devices: int = 0
    base: int | None = None

    def add(self, reading: Reading) -> None:
        """Write what was found about the devices of one source."""
        for profile in reading.profiles:
            device = device_of(self.result, profile)
            if device is not None and (profile.tasks.work != Work.CONTROL).any():
                study = Study.of(profile, self.thresholds)
                if self.base is None:
                    self.base = _base(reading.source.timeline) if profile.kineto else 0
                _DeviceOverlay(self, device, study, self.base).write()
                self.devices += 1


class _DeviceOverlay(Struct):
    """What was found about one device."""

    job: _Overlay
    device: Device
    study: Study
    base: int
    pid: int = 0

    def write(self) -> None:
        """Write its process, a thread for each kind of thing, its cores and its memory."""
        profile, device, job = self.study.profile, self.device, self.job
        name = called(device.rank, text(say("npuperf: what was found")), of_job=job.of_job)
        self.pid = job.writer.process(name, f"{'GPU' if profile.kineto else 'NPU'} {device.device}")
        findings = [*self._findings()]
        if findings:
            tid = job.writer.thread(self.pid, text(say("Findings")))
            times = self.moments(np.array([at for at, _, _ in findings], np.int64))
            job.writer.write(
                MarkEvent(title, self.pid, tid, ts, "g", args)
                for ts, (_, title, args) in zip(times, findings, strict=True)
            )
            job.markers += len(findings)
        self._track(say("Roots of waiting"), self._roots())
        self._track(say("Steps"), self._steps())
        self._track(say("Phases"), self._phases())
        self._track(say("Waiting for the host"), self._waits())
        self._track(say("Other idle time"), self._idle(self.study.timeline.idle))
        job.writer.write(core_counters(profile.tasks, device, self.pid, self.moments))
        job.writer.write(memory_counters(profile.memory, self.pid, self.moments))

    def moments(self, time: I64) -> list[str]:
        """Return times, epoch ns, as µs of the original."""
        return vendor_text(time - self.base)

    @property
    def window(self) -> tuple[int, int]:
        """What was judged, epoch ns: from the first phase to the last one."""
        origin, phases = self.device.origin_ns, self.device.phases
        if phases:
            return origin + phases[0].start_ns, origin + phases[-1].end_ns
        begin = origin + (self.device.judged.start_ns if self.device.judged else 0)
        return begin, begin + self.device.window.span_ns

    def _track(self, title: Message, rows: Iterator[_Row]) -> None:
        """Write slices, a chunk at a time; without any there is no track."""
        tid = 0
        while chunk := list(islice(rows, _ROWS)):
            tid = tid or self.job.writer.thread(self.pid, text(title))
            self.job.slices += len(chunk)
            starts, ends, names, args = zip(*chunk, strict=True)
            begin, end = np.array(starts, np.int64), np.array(ends, np.int64)
            columns = (map(without_halves, names), self.moments(begin), microseconds(end - begin).tolist(), args)
            self.job.writer.write(
                SliceEvent(name, self.pid, tid, ts, dur, known) for name, ts, dur, known in zip(*columns, strict=True)
            )

    def _steps(self) -> Iterator[_Row]:
        for step in self.device.steps:
            begin = self.device.origin_ns + step.start_ns
            args = _part(step.verdict.bound, step.verdict, step.partition, whole=step.whole)
            yield begin, begin + step.partition.span_ns, text(say("step {step}", step=step.step)), args

    def _phases(self) -> Iterator[_Row]:
        origin = self.device.origin_ns
        for phase in self.device.phases:
            label = without_halves(text(phase.label)) if phase.label else None
            where = without_halves(phase.where)
            args = _part(phase.bound, phase.verdict, phase.partition, label=label, where=where)
            name = text(chain(BOUND[phase.bound], phase.label, by=" · "))
            yield origin + phase.start_ns, origin + phase.end_ns, name, args

    def _roots(self) -> Iterator[_Row]:
        """Yield what others wait for because of this rank, over all that was judged: it has no place of its own."""
        cluster, rank = self.result.cluster, self.device.rank
        for root in cluster.roots if cluster else ():
            if rank in root.ranks:
                args = RootArgs(
                    kind=root.kind,
                    why=root.why,
                    ranks=root.ranks,
                    wait_ns=root.wait_ns,
                    share=root.share,
                    where=without_halves(root.where),
                    gain_ns_per_step=root.gain_ns_per_step,
                    next=without_halves(text(root.next)) if root.next else None,
                )
                yield *self.window, text(root.title), args

    @property
    def result(self) -> Result:
        """The whole result."""
        return self.job.result

    def _findings(self) -> Iterator[tuple[int, str, FindingArgs]]:
        """Yield problems of this device with their places (epoch ns); those of the whole job are the first device's.

        What has no place is where the judged window begins.
        """
        for finding in self.result.findings:
            mine = (finding.rank, finding.device) == (self.device.rank, self.device.device)
            of_all = finding.rank is None and self.device.rank is not None and not self.job.devices
            if finding.status == "problem" and (mine or of_all):
                place = place_of(finding.evidence, self.study, self.window) if mine else None
                at = self.window[0] if place is None else place
                device = self.device.device
                args = FindingArgs(
                    rule=finding.rule,
                    severity=finding.severity,
                    device=f"{device}" if finding.rank is None else f"{finding.rank}:{finding.device}",
                    gain_ns_per_step=finding.gain_ns_per_step,
                    gain_pct=finding.gain_pct,
                    next=without_halves(text(finding.next)) if finding.next else None,
                    code=without_halves(finding.code),
                )
                yield at, without_halves(text(finding.title)), args

    def _waits(self) -> Iterator[_Row]:
        """Yield waits for the host, cut where phases begin and end, so that they add up to the phases' blame."""
        borders = [self.device.origin_ns + at for p in self.device.phases for at in (p.start_ns, p.end_ns)]
        blamed = cut_at(self.study.blamed, np.unique(np.array(borders, np.int64)))
        lines = self._lines(blamed)
        events = self.study.nesting.events
        names = (*map(without_halves, events.name.names), NOTHING)  # the last place is that of -1
        event = np.where(blamed.cause == CODE["unrecorded"], -1, blamed.event)
        code = events.name.take(event).codes
        thread = np.where(event >= 0, events.thread[event], -1) if len(events) else np.full(len(event), -1, np.int64)
        for first in range(0, len(event), _ROWS):
            part = slice(first, first + _ROWS)
            columns = (blamed.start, blamed.end, blamed.event, blamed.cause, code, thread)
            rows = zip(*(column[part].tolist() for column in columns), strict=True)
            for begin, end, source, cause, name, number in rows:
                yield begin, end, names[name], WaitArgs(CAUSES[cause], names[name], lines.get(source), number)

    def _lines(self, blamed: Blamed) -> dict[int, str]:
        """Return the lines of code behind the events that the longest waits are blamed on."""
        host, events = self.study.profile.host, self.study.nesting.events
        if not host.has_lines or not len(blamed.start):
            return {}
        longest = largest(blamed.end - blamed.start, _LINES)
        found = {}
        for event in {e for e in blamed.event[longest].tolist() if e >= 0}:
            if line := host.line_at(int(events.thread[event]), int(events.start[event])):
                found[event] = without_halves(line)
        return found

    def _idle(self, gaps: Gaps) -> Iterator[_Row]:
        """Yield idle time that is no waiting for the host, with the task that ended it."""
        parts = [getattr(gaps, kind) for kind in _WAITED]
        start, end = (np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end"))
        kind = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(start, kind="stable")
        kinds, titles = [*_WAITED], [text(title) for title in _WAITED.values()]
        for first in range(0, len(order), _ROWS):
            part = order[first : first + _ROWS]
            task = gaps.task[np.searchsorted(gaps.end, end[part])]  # each ends with its gap, or inside of it
            names = names_of(self.study.profile.tasks.name.take(task), "")
            columns = (start[part].tolist(), end[part].tolist(), kind[part].tolist(), names)
            for begin, finish, which, name in zip(*columns, strict=True):
                yield begin, finish, titles[which], WaitArgs(kinds[which], name)


#: What an idle device waits for if not for the host.
_WAITED: Final = {
    "launch_latency": say("the launch on its way"),
    "dependency_wait": say("waiting for something else"),
    "unattributed": say("idle, and no launch is known"),
}


def cut_at(blamed: Blamed, borders: I64) -> Blamed:
    """Cut pieces wherever one of the borders lies inside of them."""
    first, last = np.searchsorted(borders, blamed.start, side="right"), np.searchsorted(borders, blamed.end)
    pieces = last - first + 1
    owner = np.repeat(np.arange(len(pieces)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start, end = blamed.start[owner], blamed.end[owner]
    if len(borders):
        place = first[owner] + number
        start = np.where(number > 0, borders[np.maximum(place - 1, 0)], start)
        end = np.where(number < pieces[owner] - 1, borders[np.minimum(place, len(borders) - 1)], end)
    return Blamed(start, end, blamed.event[owner], blamed.cause[owner])


def _part(
    bound: Bound,
    verdict: Verdict,
    partition: Partition,
    *,
    label: str | None = None,
    where: str | None = None,
    whole: bool | None = None,
) -> PartArgs:
    """Return what is told of a stretch of time; shares of parts that it does not have are left out."""
    span = max(partition.span_ns, 1)
    parts = ((name, getattr(partition, name)) for name in partition.__struct_fields__ if name != "span_ns")
    shares = {name.removesuffix("_ns"): round(ns / span, 6) for name, ns in parts if ns}
    reason = without_halves(text(verdict.reason))
    return PartArgs(bound, verdict.basis, reason, shares, partition, label, where, whole)


def write_overlay(file: Path, recording: Recording, result: Result, thresholds: Thresholds) -> Message:
    """Write what was found about every device that was analyzed, each on its own original's clock; return what to say.

    Raises InputError where it cannot be written.
    """
    with trace_file(file, _NUMBERS) as writer:
        job = _Overlay(result, thresholds, writer, len(recording.sources) > 1)
        unread = in_turn(recording, job.add)
        writer.end(job.base or 0)
    wrote = say("wrote {file} (slices: {slices}, markers: {markers}), on the clock of the original trace",
                file=str(file), slices=job.slices, markers=job.markers)  # fmt: skip
    return chain(wrote, unread)

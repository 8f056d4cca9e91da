"""Profiles as pandas tables, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pandas as pd
from msgspec import structs

from npuperf.advise import load_thresholds
from npuperf.against.baselines import distinct
from npuperf.against.compare import compare_results
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import UsageError
from npuperf.base.escape import visible
from npuperf.base.files import is_file, write_atomically
from npuperf.base.messages import Message, chain, ns, say, say_n, text
from npuperf.device.operators import core_labels
from npuperf.device.partition import span_of
from npuperf.model.comparison import Comparison
from npuperf.model.device import DeviceProfile
from npuperf.model.host import Lines
from npuperf.model.labels import I64, Labels
from npuperf.model.result import Device, Finding, Partition, Result, Step, Verdict
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.readers.recording import open_recording
from npuperf.record.folder import latest_run
from npuperf.show import language, words
from npuperf.show.comparison_text import COMPARISON_TABLES
from npuperf.show.formats import View, is_page, render
from npuperf.show.tables import Cell, table_named

if TYPE_CHECKING:
    from npuperf.model.picture import Picture


class ShownComparison(Comparison, frozen=True, kw_only=True, dict=True):
    """A comparison that a notebook shows as its verdict, the waterfall and its table; equal to the same without that.

    ``devices``: how many the new side has; it is no field of the document.
    """

    @classmethod
    def of(cls, found: Comparison, devices: int) -> ShownComparison:
        """Return a comparison that can be shown."""
        shown = cls(**structs.asdict(found))
        vars(shown)["devices"] = devices
        return shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparison) and structs.astuple(self) == structs.astuple(other)

    def __hash__(self) -> int:
        return hash((self.old, self.new, self.delta_ns))

    def _repr_html_(self) -> str:
        from npuperf.show.notebook import comparison_html

        return comparison_html(self, vars(self).get("devices", 1))


class Run:
    """A profile on disk. It is read when first used, and once; all times are int64 epoch nanoseconds.

    Raises :class:`npuperf.base.errors.InputError` when nothing at ``path`` can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recording = open_recording(path, keep=True)

    def __repr__(self) -> str:
        """Return what --brief prints."""
        return f"npuperf.load({str(self.path)!r})\n{render(self.result, 'text', View(brief=True, width=80))}".rstrip()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the main parts of the page that :meth:`save_html` writes."""
        from npuperf.show.notebook import result_html

        return result_html(self.result)

    @cached_property
    def result(self) -> Result:
        """The analysis, as ``npuperf analyze`` prints it."""
        return run(AnalyzeRequest(path=self.path), self._recording)

    def compare(self, *old: Run, allow_mismatch: bool = False) -> ShownComparison:
        """Return what changed from earlier runs to this one: the verdict, and parts that add up to the difference.

        Several runs are one side, and what differs between them is noise; one given twice counts once. Raises
        :class:`npuperf.base.errors.UsageError` where the two are not of one workload, unless ``allow_mismatch``.
        """
        if not old:
            raise UsageError(say("compare: give at least one earlier run"))
        results = distinct([run.result for run in old])
        found = compare_results(results, [self.result], load_thresholds({}), allow_mismatch=allow_mismatch)
        return ShownComparison.of(found, len(self.result.devices))

    def changes(self, *old: Run, allow_mismatch: bool = False) -> dict[str, pd.DataFrame]:
        """Return :meth:`compare` as tables, by name: comparison, waterfall, parity, compared, shifts, …; times in ns.

        Columns are those of ``npuperf analyze --baseline --table NAME --format csv``.
        """
        compared = self._against(old, allow_mismatch)
        return {table.name: _frame(compared, table.name) for table in COMPARISON_TABLES}

    def save_html(self, file: str | Path, *old: Run, force: bool = False, allow_mismatch: bool = False) -> Path:
        """Write the page that ``npuperf analyze --html`` writes, compared with earlier runs if any are given.

        Returns the file. It may replace an earlier page of ours, anything else only with ``force``: else raises
        :class:`npuperf.base.errors.UsageError`, as for a file that was read for the report and for runs that are not of
        one workload (see :meth:`compare`).
        """
        path = Path(file)
        if is_file(path) and not force and not is_page(path):
            hint = say("choose another name, or replace it with {option}", option="force=True")
            raise UsageError(say("{file}: already exists", file=str(path)), hint=hint)
        read = {Path(name).resolve() for run in (self, *old) for name in run.result.input.files}
        if path.resolve() in read:
            hint = say("choose another name: what is analyzed is never changed")
            raise UsageError(say("{file}: was read for this report", file=str(path)), hint=hint)
        result = self._against(old, allow_mismatch) if old else self.result
        before = old[0]._pictures() if old else ()
        write_atomically(path, render(result, "html", View(full=True, pictures=self._pictures(), old_pictures=before)))
        return path

    def _pictures(self) -> tuple[Picture, ...]:
        """Draw timelines of what was analyzed."""
        from npuperf.show.draw import draw

        return draw(self._recording, self.result, load_thresholds({}))

    def _against(self, old: Sequence[Run], allow_mismatch: bool) -> Result:
        """Return the analysis with what changed from earlier runs to this one."""
        return structs.replace(self.result, comparison=self.compare(*old, allow_mismatch=allow_mismatch))

    @property
    def verdict(self) -> Verdict:
        """What limits the run."""
        return self.result.verdict

    @property
    def findings(self) -> pd.DataFrame:
        """What the rules found, one row each; sentences are in English. It prints as what there is to do."""
        found = (f for kind in ("problem", "cannot_tell") for f in self.result.findings if f.status == kind)
        return ReadableFrame.of(_frame(self.result, "findings"), map(_finding, found))

    @property
    def operators(self) -> pd.DataFrame:
        """Operator types, those with most time first."""
        return _frame(self.result, "operators")

    @property
    def devices(self) -> pd.DataFrame:
        """Devices, one row each, with the partition of what is judged (ns)."""
        return _frame(self.result, "devices")

    @property
    def kernels(self) -> pd.DataFrame:
        """Kernels and collectives: the rows of :attr:`tasks` whose work is compute or communication."""
        tasks = self.tasks
        if tasks.empty:
            return tasks
        kernels = tasks[tasks["work"].isin(["compute", "communication"])].copy()
        for name in kernels.select_dtypes("category"):
            kernels[name] = kernels[name].cat.remove_unused_categories()
        return kernels

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """All device tasks, one row each, in the order of the files' devices and of time.

        Columns: rank, device, stream, step (Int64, missing where not recorded); start_ns, end_ns, dur_ns;
        work (compute, communication, other, control); name, type, core, state, shapes (categories);
        block_dim, mix_block_dim (Int64); torch_op, where (the line of code that led to it), and one float column per
        hardware counter.
        """
        return self._concat([_tasks(p) for p in self._recording.profiles])

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Host launches, one row per task whose launch is recorded.

        Columns: rank, device, task (row of :attr:`tasks`), launch_start_ns, launch_end_ns on the host's clock,
        start_ns on the device's.
        """
        frames = []
        offset = 0
        for p in self._recording.profiles:
            at = np.flatnonzero(p.tasks.launched)
            frames.append(_launches(p, at.astype(np.int64), offset))
            offset += len(p.tasks)
        return self._concat(frames)

    @property
    def steps(self) -> pd.DataFrame:
        """Steps, one row per device and step: rank, device, step, start_ns, bound, and the partition (ns).

        It prints as what limits each.
        """
        rows = [
            {
                "rank": d.rank,
                "device": d.device,
                "step": s.step,
                "start_ns": d.origin_ns + s.start_ns,
                "bound": s.verdict.bound,
                **_parts(s.partition),
            }
            for d in self.result.devices
            for s in d.steps
        ]
        frame = pd.DataFrame(rows, columns=["rank", "device", "step", "start_ns", "bound", *_PARTS])
        several = len(self.result.devices) > 1
        return ReadableFrame.of(frame, (_step(d, s, several) for d in self.result.devices for s in d.steps))

    @property
    def phases(self) -> pd.DataFrame:
        """Phases, one row each: rank, device, start_ns, end_ns, bound, label, and the partition (ns)."""
        rows = [
            {
                "rank": d.rank,
                "device": d.device,
                "start_ns": d.origin_ns + p.start_ns,
                "end_ns": d.origin_ns + p.end_ns,
                "bound": p.bound,
                "label": _plain(p.label),
                **_parts(p.partition),
            }
            for d in self.result.devices
            for p in d.phases
        ]
        return pd.DataFrame(rows, columns=["rank", "device", "start_ns", "end_ns", "bound", "label", *_PARTS])

    @property
    def blame(self) -> pd.DataFrame:
        """What the host did while the device waited: rank, device, cause, name, ns, count, where; adds up."""
        columns = ["rank", "device", "cause", "name", "ns", "count", "where"]
        rows = [
            (d.rank, d.device, b.cause, b.name, b.ns, b.count, b.where) for d in self.result.devices for b in d.blame
        ]
        return pd.DataFrame(rows, columns=columns)

    @property
    def partition(self) -> pd.DataFrame:
        """Per device: rank, device, start_ns, bound, and the partition (ns) from its first task to its last.

        Parts add up exactly.
        """
        profiles = [p for p in self._recording.profiles if (p.tasks.work != Work.CONTROL).any()]
        begins = {(p.rank, p.device): span_of(p.tasks)[0] for p in profiles}
        rows = [
            {
                "rank": d.rank,
                "device": d.device,
                "start_ns": begins.get((d.rank, d.device), d.origin_ns),
                "bound": d.verdict.bound,
                **_parts(d.partition),
            }
            for d in self.result.devices
        ]
        return pd.DataFrame(rows, columns=["rank", "device", "start_ns", "bound", *_PARTS])

    @staticmethod
    def _concat(frames: list[pd.DataFrame]) -> pd.DataFrame:
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


_PARTS: Final = Partition.__struct_fields__
#: Sentences that a table prints at most.
_SHOWN: Final = 20


class ReadableFrame(pd.DataFrame):
    """A table that prints as sentences, and after that as what it is; a part of it is a plain table."""

    _metadata: ClassVar[list[str]] = ["_sentences"]
    _sentences: tuple[str, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame, sentences: Iterable[Message]) -> ReadableFrame:
        """Return a table that prints as sentences, in the language that is spoken when they are made."""
        told = cls(frame)
        told._sentences = tuple(language.text(sentence, visible) for sentence in sentences)
        return told

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        return "\n".join([*_few(self._sentences), f"[{len(self)} × {len(self.columns)}: {', '.join(self.columns)}]"])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in _few(self._sentences))
        table = pd.DataFrame(self).to_html(max_rows=_SHOWN, notebook=True)
        return f"<ul>{items}</ul><details><summary>{len(self)} × {len(self.columns)}</summary>{table}</details>"


def _few(sentences: Sequence[str]) -> list[str]:
    """Leave out those in the middle that are too many for a screen."""
    if len(sentences) <= _SHOWN:
        return [*sentences]
    left = say_n("… {n} more", "… {n} more", len(sentences) - _SHOWN)
    return [*sentences[: _SHOWN // 2], language.text(left), *sentences[-(_SHOWN // 2) :]]


def _finding(finding: Finding) -> Message:
    """Say what a finding is, what it saves, and what to do."""
    if finding.status == "cannot_tell":
        return say("cannot tell: {what}: {needs}", what=finding.title, needs=finding.needs)
    what = chain(finding.title, words.gain(finding))
    return say("{what} → {step}", what=what, step=finding.next) if finding.next is not None else what


def _step(device: Device, step: Step, several: bool) -> Message:
    """Say how long a step is, and what limits it."""
    reason = words.reason_of(step.verdict)
    what = say("step {step}: {length}, {bound}: {reason}", step=step.step, length=ns(step.partition.span_ns),
               bound=words.BOUND[step.verdict.bound], reason=reason)  # fmt: skip
    return say("rank {rank}, {what}", rank=device.rank, what=what) if several and device.rank is not None else what


def _frame(result: Result, table: str) -> pd.DataFrame:
    """Return a table of the report; its columns are those of ``--format csv``."""
    found = table_named(Result, table)
    rows = [[_plain(cell) for cell in row] for row in found.cells(result)]
    return pd.DataFrame(rows, columns=[column.key for column in found.columns])


def _plain(cell: Cell) -> Cell:
    return text(cell) if isinstance(cell, Message) else cell


def _parts(partition: Partition) -> dict[str, int]:
    return {name: getattr(partition, name) for name in _PARTS}


def _tasks(profile: DeviceProfile) -> pd.DataFrame:
    tasks: Tasks = profile.tasks
    size = len(tasks)
    work = Labels(tasks.work.astype(np.int32), tuple(w.name.lower() for w in Work))
    columns = {
        "rank": pd.array([profile.rank] * size, dtype="Int64"),
        "device": np.full(size, profile.device),
        "stream": _nullable(tasks.stream),
        "step": _nullable(tasks.step),
        "start_ns": tasks.start,
        "end_ns": tasks.end,
        "dur_ns": tasks.dur,
        "work": _category(work),
        "name": _category(tasks.name),
        "type": _category(tasks.type),
        "core": _category(core_labels(tasks)),
        "state": _category(tasks.state),
        "shapes": _category(tasks.shapes),
        "block_dim": _nullable(tasks.block),
        "mix_block_dim": _nullable(tasks.mix_block),
        "torch_op": _category(profile.host.ops.name.take(tasks.op)),
        "where": _category(Lines.of(profile.host).of_ops(tasks.op)),
        **tasks.pmu,
    }
    return pd.DataFrame(columns)


def _launches(profile: DeviceProfile, at: I64, offset: int) -> pd.DataFrame:
    tasks = profile.tasks
    return pd.DataFrame(
        {
            "rank": pd.array([profile.rank] * len(at), dtype="Int64"),
            "device": np.full(len(at), profile.device),
            "task": at + offset,
            "launch_start_ns": tasks.launch_start[at],
            "launch_end_ns": tasks.launch_end[at],
            "start_ns": tasks.start[at],
        }
    )


def _nullable(values: I64) -> pd.api.extensions.ExtensionArray:
    missing = (values < 0) | (values == NO_TIME)
    return pd.arrays.IntegerArray(values.astype(np.int64), missing)


def _category(labels: Labels) -> pd.Categorical:
    labels = labels.compact()
    category: pd.Categorical = pd.Categorical.from_codes(labels.codes, categories=pd.Index(labels.names, dtype=object))
    return category


def load(path: str | Path | None = None) -> Run:
    """Read a profile; see :func:`npuperf.load`."""
    return Run(latest_run() if path is None else Path(path))

"""From raw data to files that can be read. Exporters say 0 when they failed: only the files that were wanted count."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from npuperf.base.errors import InputError
from npuperf.base.files import open_lines, refuse_ways_out
from npuperf.base.messages import Message, chain, recall, say, say_n, size
from npuperf.base.notes import part_of, read_object
from npuperf.base.process import Printed, run_quietly
from npuperf.model.recorded import Exported, ProcessStatus
from npuperf.record.folder import ELSEWHERE, RunFolder, bytes_below, this_host
from npuperf.record.plan import AGENT, RecordingJob, find_msprof, msprof_first, not_found

ASCEND: Final = re.compile(r".+_ascend_(pt|ms)$")
PROF: Final = re.compile(r"^PROF_\w+$")
#: Exports inside raw data: they are made anew.
_EXPORTS: Final = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
_LAST_WORDS: Final = 4
#: What steers a terminal, colours among it, and everything else that is no text; a spinner's "\r" ends a line.
_STEERING: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_LINE_END: Final = re.compile(r"\r\n?")
#: Spinners and time stamps of torch_npu.
_DECORATION: Final = re.compile(r"^[|/\\\s-]+(?=\[)|\[\d{4}-[\d :-]+\] ")
#: What torch_npu says of every step that follows the one that failed.
_CASCADE: Final = re.compile(r"Task \[\w+\] run failed|\[INFO\]")
#: The longest that the export of a folder may take: seconds, and seconds per byte of it.
_LONGEST, _PER_BYTE = 30 * 60.0, 60 / 10e6
#: Seconds between two signs of life.
_BEAT: Final = 30.0


_FORMATS: Final = {"text": ("text",), "db": ("db",), "both": ("text", "db")}


def raw_folders(path: Path) -> list[Path]:
    """Return the folders of raw data at or below a path: ``*_ascend_pt``, and ``PROF_*`` outside of those."""
    if ASCEND.match(path.name) or PROF.match(path.name):
        return [path]
    found: list[Path] = []
    for base, folders, _ in os.walk(path):
        mine = [f for f in sorted(folders) if ASCEND.match(f) or PROF.match(f)]
        found += [Path(base) / f for f in mine]
        folders[:] = [f for f in folders if f not in mine and not f.startswith(".")]
    return sorted(found)


def export(folder: RunFolder, job: RecordingJob, python: str) -> tuple[tuple[Exported, ...], Message | None]:
    """Export everything below ``folder.raw``, but for folders that have their files. Raw data is never deleted.

    Returns what came of it, and what had to be done differently. ``python`` is an interpreter that has torch_npu. Waits
    for another npuperf that exports the same run. Raises InputError when one on another machine does.
    """
    request = job.request
    asked = _FORMATS[request.export] if request.source is None or "export" in request.given else None
    wanted: dict[Path, Sequence[str]] = {}
    for raw in raw_folders(folder.raw):  # the formats that were asked for, else those that were recorded for
        recorded = part_of(_info(raw), "experimental_config").get("_export_type", "text")
        listed = recorded if isinstance(recorded, list) else [recorded]
        wanted[raw] = asked or [str(f) for f in listed if f in ("text", "db")] or ["text"]
    if not _all_missing(wanted, folder):
        return tuple(Exported(folder=str(raw)) for raw in wanted), None
    try:
        with _alone(folder, job.tell):
            missing = _all_missing(wanted, folder)
            done = [Exported(folder=str(raw)) for raw in wanted if raw not in missing]
            if not missing:
                return tuple(done), None
            msprof = find_msprof(job.environment)
            if msprof is None:
                error = not_found(job.environment)
                useless = chain(error.what, say("run: {command}", command=error.hint))
            elif not (msprof.works or msprof.script):
                useless = chain(msprof.note)
            else:
                with msprof_first(msprof, job.environment) as environment:
                    for number, raw in enumerate(missing, 1):
                        if job.progress is not None:
                            job.progress(say("exporting {name} ({number} of {count})",
                                             name=raw.name, number=number, count=len(missing)))  # fmt: skip
                        done.append(_Attempt(raw, folder, job, python, environment).export(wanted[raw]))
                return tuple(sorted(done, key=lambda e: e.folder)), msprof.note
            done += (Exported(folder=str(r), missing=m, tool="msprof", words=(useless,)) for r, m in missing.items())
            return tuple(done), None
    except OSError as error:  # a full disk, most often
        missing, words = _all_missing(wanted, folder), (recall(str(error)),)
        return tuple(
            Exported(folder=str(raw), missing=missing.get(raw, ()), tool="npuperf", words=words) for raw in wanted
        ), None


def without_steering(output: str) -> str:
    """Return the text of a program's output: without colours, moves of the cursor, titles and bells."""
    return _STEERING.sub("", _LINE_END.sub("\n", output))


@contextmanager
def _alone(folder: RunFolder, tell: Callable[[Message], None]) -> Iterator[None]:
    """Let one npuperf at a time export a run; others wait, and say so."""
    folder.work.mkdir(exist_ok=True)
    began, spoken = time.monotonic(), -_BEAT
    while not folder.export_lock.take():
        holder = folder.export_lock.holder()
        if holder is not None and holder.host != this_host():
            what, hint = folder.export_lock.refusal(holder, folder.shown)
            raise InputError(what, hint=hint)
        if time.monotonic() - began - spoken >= _BEAT:
            spoken = time.monotonic() - began
            pid = holder.pid if holder else 0
            tell(say("{folder}: process {pid} exports it already: waiting for that", folder=folder.shown, pid=pid))
        time.sleep(1)
    try:
        yield
    finally:
        folder.export_lock.release()


def _all_missing(wanted: Mapping[Path, Sequence[str]], folder: RunFolder) -> dict[Path, tuple[str, ...]]:
    """Return the wanted files that are not there by folder; of an export that broke off none counts as there."""
    found = {}
    for raw, kinds in wanted.items():
        missing = _names(raw, kinds) if _mark(raw, folder).exists() else _missing(raw, kinds)
        if missing:
            found[raw] = missing
    return found


def keep_snapshots(folder: RunFolder, environment: Mapping[str, str], processes: Sequence[ProcessStatus]) -> None:
    """Copy what OOM_SNAPSHOT_ENABLE made torch_npu write, for the processes of a run, beside what they recorded."""
    place = Path(environment.get("OOM_SNAPSHOT_PATH") or ".")
    for process in processes if environment.get("OOM_SNAPSHOT_ENABLE", "0") not in ("", "0") else ():
        beside = Path(process.folders[-1]) if process.folders else folder.raw
        for path in sorted(place.glob(f"oom_snapshot_{process.pid}_*.pickle")) if process.host == this_host() else ():
            with suppress(OSError):
                shutil.copy2(path, beside if beside.is_dir() else folder.raw)


def copy_raw(found: Sequence[Path], folder: RunFolder) -> None:
    """Copy raw data of the user's into a run: exporters delete and rewrite, and this is not ours to lose.

    Raises InputError when there is no room for it, and for links that would lead exporters out of the copy.
    """
    for raw in found:
        refuse_ways_out(raw, copied=True)
    needed, free = sum(map(bytes_below, found)), shutil.disk_usage(folder.raw).free
    if needed > free:
        what = say("{folder}: not enough space for a working copy: {needed} are needed and {free} are free",
                   folder=str(folder.path), needed=size(needed), free=size(free))  # fmt: skip
        raise InputError(what, hint=ELSEWHERE)
    for raw in found:
        target = folder.raw / raw.name
        while target.exists():  # the same name in two folders
            target = target.with_name("1_" + target.name)
        try:
            shutil.copytree(raw, target, symlinks=True, ignore=shutil.ignore_patterns(*_EXPORTS))
        except OSError as error:
            why = error.strerror or str(error)
            if isinstance(error, shutil.Error) and error.args and error.args[0]:  # it has a triple for every file
                why = str(error.args[0][0][-1])
            raise InputError(say("{raw}: cannot be copied: {why}", raw=str(raw), why=why)) from error
        for base in [target, *(p for p in target.rglob("*") if p.is_dir() and not p.is_symlink())]:
            base.chmod(base.stat().st_mode | 0o700)


class _Attempt:
    """One export of a folder: torch_npu under ``python``, and the msprof of ``environment``.

    An export that is there is kept until the new one is whole: analyse() deletes it. A mark in the run directory tells
    that an export has begun: should npuperf be killed, the files of that export look whole and may not be. Every step
    leaves something from which :meth:`_tidy` can tell how far it came.
    """

    def __init__(
        self, raw: Path, folder: RunFolder, job: RecordingJob, python: str, environment: Mapping[str, str]
    ) -> None:
        self.raw, self.folder, self.python, self.environment, self.tell = raw, folder, python, environment, job.tell
        self.mark = _mark(raw, folder)
        self.output, self.kept = raw / _EXPORTS[0], folder.work / f"{self.mark.name}.{_EXPORTS[0]}"
        self.by_torch = bool(ASCEND.match(raw.name))
        self.processes = job.request.export_processes
        minutes = job.request.export_timeout
        self.longest = _LONGEST + _PER_BYTE * bytes_below(raw) if minutes is None else 60 * minutes
        self.until = time.monotonic() + self.longest

    def export(self, formats: Sequence[str]) -> Exported:
        """Export, and say what is missing and why."""
        raw, began = self.raw, time.time() - 1
        tool = "torch_npu.profiler.profiler.analyse" if self.by_torch else "msprof --export"
        if self.by_torch or self.mark.exists():  # what is there goes, and is made anew
            there = [kind for kind in ("text", "db") if not _missing(raw, [kind])]
            formats = list(dict.fromkeys([*there, *formats]))
        self._tidy()
        if self.by_torch and self.output.is_dir():
            self.output.rename(self.kept)
        self.mark.parent.mkdir(exist_ok=True)
        self.mark.touch()
        try:
            outputs = self._parse(formats, began) if self.by_torch else self._msprof(raw, formats)
            late = any(output.late for output in outputs)
            missing = _names(raw, formats) if late else _missing(raw, formats, began)
        except BaseException:
            self._give_up(half=True)
            raise
        if missing:
            self._give_up(half=late)
        else:
            self.mark.unlink()
            shutil.rmtree(self.kept, ignore_errors=True)
        with suppress(OSError), self.folder.export_log.open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write("".join(f"==== {tool} {raw}\n{output.text}\n" for output in outputs))
        words: list[Message] = []
        if missing:
            if late:
                words = [say("it took longer than {minutes} min and was ended; --export-timeout gives it more",
                             minutes=f"{self.longest / 60:.3g}")]  # fmt: skip
            words += _words([output for output in outputs if not output.late])
            for made in _EXPORTS:  # what can be read, and is not whole
                left = sum(1 for p in (raw / made).rglob("*") if p.is_file())
                if left:
                    words.append(say_n("{n} file is left in {folder}, unfinished",
                                       "{n} files are left in {folder}, unfinished", left, folder=made))  # fmt: skip
        return Exported(folder=str(raw), missing=missing, tool=tool, words=tuple(words))

    def _tidy(self) -> None:
        """Put things as they were before an attempt that was killed."""
        if self.mark.exists():
            for half in (self.output, self.raw / _EXPORTS[1], *self.raw.glob(f"PROF_*/{_EXPORTS[1]}")):
                shutil.rmtree(half, ignore_errors=True)
            for half in (*self.raw.glob("msprof_*.db"), *self.raw.glob("PROF_*/msprof_*.db")):
                half.unlink()
            self.mark.unlink()
        if self.kept.is_dir():
            if self.output.exists():
                shutil.rmtree(self.kept, ignore_errors=True)
            else:
                self.kept.rename(self.output)

    def _give_up(self, *, half: bool) -> None:
        """Restore what was there; else the mark stays on what was ``half`` written when it ended."""
        if self.kept.is_dir():
            shutil.rmtree(self.output, ignore_errors=True)
            self.mark.unlink()
            self.kept.rename(self.output)
        elif not half:
            self.mark.unlink()

    def _parse(self, formats: Sequence[str], began: float) -> list[Printed]:
        """Let torch_npu parse. Where files are missing, ask msprof alone: for its words, and for what it can save.

        If msprof does its part, torch_npu gets a second chance: its scheduler loses a task now and then.
        """
        processes = str(self.processes or max(1, (os.cpu_count() or 2) // 2))
        call = [self.python, str(AGENT / "parse.py"), str(self.raw), processes, ",".join(formats)]
        first = self._run(call)
        if not _missing(self.raw, formats, began):
            return [first]
        inner = sorted(self.raw.glob("PROF_*"))
        alone = [output for prof in inner for output in self._msprof(prof, formats)]
        if not inner or any(_missing(prof, formats, began) for prof in inner):
            return [*alone, first]
        again = self._run(call)
        if _missing(self.raw, formats, began):  # which has deleted what msprof had saved
            alone = [output for prof in inner for output in self._msprof(prof, formats)]
        return [first, again, *alone]

    def _msprof(self, raw: Path, formats: Sequence[str]) -> list[Printed]:
        """Let msprof export each format."""
        call = ["msprof", "--export=on", f"--output={raw}"]
        return [self._run([*call, "--type=db"] if kind == "db" else call) for kind in formats]

    def _run(self, call: Sequence[str]) -> Printed:
        """Run a helper as long as there is time, with a sign of life now and then; its words do not steer terminals."""
        left = self.until - time.monotonic()
        if left <= 0:
            return Printed(None, "", late=True)
        spoken = 0.0

        def beat(passed: float) -> None:
            nonlocal spoken
            if passed - spoken >= _BEAT:
                spoken = passed
                self.tell(say("exporting {name}: {seconds} s so far, {size} in its folder",
                              name=self.raw.name, seconds=int(passed), size=size(bytes_below(self.raw))))  # fmt: skip

        done = run_quietly(call, self.environment, beat, left)
        return Printed(done.returncode, without_steering(done.text), done.late)


def _mark(raw: Path, folder: RunFolder) -> Path:
    return folder.exporting / raw.relative_to(folder.raw).as_posix().replace("/", "__")


def _missing(raw: Path, formats: Sequence[str], since: float = 0.0) -> tuple[str, ...]:
    """Return the wanted files that are not there, older than ``since``, or without a row."""

    def has_rows(file: Path) -> bool:
        state = file.stat()
        if state.st_mtime < since:
            return False
        if file.suffix == ".csv":
            with open_lines(file) as lines:
                return next(lines, "") != "" and next(lines, "").strip() != ""
        return state.st_size > 2

    return tuple(wanted for wanted in _names(raw, formats) if not any(map(has_rows, raw.glob(wanted))))


def _names(raw: Path, formats: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the wanted files."""
    if PROF.match(raw.name):
        return tuple(
            "msprof_*.db" if kind == "db" else "mindstudio_profiler_output/op_summary*.csv" for kind in formats
        )
    # Without device tasks there is no kernel table; then the timeline has to do.
    level = part_of(_info(raw), "experimental_config").get("_profiler_level")
    activities = part_of(_info(raw), "common_config").get("activities")
    on_device = level != "Level_none" and (not isinstance(activities, list) or any("NPU" in str(a) for a in activities))
    table = "kernel_details.csv" if on_device else "trace_view.json"
    names = ("ascend_pytorch_profiler*.db" if kind == "db" else table for kind in formats)
    return tuple(f"ASCEND_PROFILER_OUTPUT/{name}" for name in names)


def _info(raw: Path) -> dict[str, Any]:
    """Return the profiler's own record of its options; empty where there is none."""
    found = (part_of(read_object(file), "config") for file in sorted(raw.glob("profiler_info*.json")))
    return next(filter(None, found), {})


def _words(outputs: Sequence[Printed]) -> tuple[Message, ...]:
    """Return the lines that explain a failure: of each helper its first errors, else its last lines."""
    found: list[Message] = []
    for output in outputs:
        lines = [_DECORATION.sub("", line).strip() for line in output.text.splitlines()]
        lines = [line for line in lines if line and not _CASCADE.search(line)]
        errors = [line for line in lines if re.search(r"error|fail|not found|denied|no space", line, re.IGNORECASE)]
        found += map(recall, errors[:_LAST_WORDS] or lines[-_LAST_WORDS:])
        found += [say("exit status {status}", status=output.returncode)] if output.returncode else []
    return tuple(dict.fromkeys(found)) or (say("it printed nothing, and its exit status was 0"),)

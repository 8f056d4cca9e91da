"""From raw data to files that can be read. Exporters say 0 when they failed: only the files that were wanted count."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from npuperf.documents.recorded import Exported
from npuperf.errors import InputError
from npuperf.messages import Message, chain, recall, say, size
from npuperf.process import Printed, run_quietly
from npuperf.profile.folder import ELSEWHERE, RunFolder, bytes_below
from npuperf.profile.msprof import Msprof, find_msprof, msprof_first, not_found
from npuperf.profile.plan import AGENT

ASCEND: Final = re.compile(r".+_ascend_(pt|ms)$")
PROF: Final = re.compile(r"^PROF_\w+$")
#: Exports inside raw data: they are made anew.
_EXPORTS: Final = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
_LAST_WORDS: Final = 4
#: Colours, spinners and time stamps of torch_npu.
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|^[|/\\\s-]+(?=\[)|\[\d{4}-[\d :-]+\] ")
#: What torch_npu says of every step that follows the one that failed.
_CASCADE: Final = re.compile(r"Task \[\w+\] run failed|\[INFO\]")


@dataclass(frozen=True, slots=True)
class Export:
    """The export of a run. ``note`` says what had to be done differently."""

    folders: tuple[Exported, ...] = ()
    note: Message | None = None


@dataclass(frozen=True, slots=True)
class _Exporter:
    """What exports the raw data of one run: torch_npu under ``python``, and the msprof of ``environment``."""

    folder: RunFolder
    python: str
    environment: Mapping[str, str]


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


def export(
    folder: RunFolder,
    formats: Sequence[str] | None,
    python: str,
    environment: Mapping[str, str],
    progress: Callable[[Message], None],
) -> Export:
    """Export everything below ``folder.raw``. ``formats``: text, db, both of them, or None for what was recorded.

    ``python`` is an interpreter that has torch_npu. Raw data is never deleted; folders that have their files are left
    alone.
    """
    wanted = {raw: _formats(raw, formats) for raw in raw_folders(folder.raw)}
    missing = {raw: found for raw, kinds in wanted.items() if (found := _missing(raw, kinds))}
    done = [Exported(folder=str(raw)) for raw in wanted if raw not in missing]
    if not missing:
        return Export(tuple(done))
    msprof = find_msprof(environment)
    if msprof is None or not (msprof.works or msprof.script):
        words = (_useless(msprof, environment),)
        failed = (Exported(folder=str(r), missing=m, tool="msprof", words=words) for r, m in missing.items())
        return Export((*done, *failed))
    with msprof_first(msprof, environment) as chosen:
        exporter = _Exporter(folder, python, chosen)
        for number, raw in enumerate(missing):
            progress(
                say("exporting {name} ({number} of {count})", name=raw.name, number=number + 1, count=len(missing))
            )
            done.append(_export_one(exporter, raw, wanted[raw]))
    return Export(tuple(sorted(done, key=lambda e: e.folder)), msprof.note)


def _useless(msprof: Msprof | None, environment: Mapping[str, str]) -> Message:
    """Say why nothing can be exported with the msprof of this machine."""
    if msprof is not None:
        return chain(msprof.note)
    error = not_found(environment)
    return chain(error.what, say("run: {command}", command=error.hint))


def copy_raw(found: Sequence[Path], folder: RunFolder) -> None:
    """Copy raw data of the user's into a run: exporters delete and rewrite, and this is not ours to lose.

    Raises InputError when there is no room for it.
    """
    needed, free = sum(map(bytes_below, found)), shutil.disk_usage(folder.raw).free
    if needed > free:
        what = say("{folder}: not enough space for a working copy: {needed} are needed and {free} are free",
                   folder=str(folder.path), needed=size(needed), free=size(free))  # fmt: skip
        raise InputError(what, hint=ELSEWHERE)
    for raw in found:
        target = folder.raw / raw.name
        while target.exists():  # the same name in two folders
            target = target.with_name("1_" + target.name)
        shutil.copytree(raw, target, symlinks=True, ignore=shutil.ignore_patterns(*_EXPORTS))
        for base in [target, *(p for p in target.rglob("*") if p.is_dir())]:
            base.chmod(base.stat().st_mode | 0o700)


def _export_one(exporter: _Exporter, raw: Path, formats: Sequence[str]) -> Exported:
    began = time.time() - 1
    if ASCEND.match(raw.name):
        there = [kind for kind in ("text", "db") if not _missing(raw, [kind])]
        formats = list(dict.fromkeys([*there, *formats]))
        with _keeping(raw, exporter.folder, lambda: not _missing(raw, formats, began)):
            tool, outputs = "torch_npu.profiler.profiler.analyse", _parse(exporter, raw, formats, began)
            missing = _missing(raw, formats, began)
    else:
        tool, outputs = "msprof --export", _msprof(exporter, raw, formats)
        missing = _missing(raw, formats, began)
    with exporter.folder.export_log.open("a", encoding="utf-8") as log:
        log.write("".join(f"==== {tool} {raw}\n{output.text}\n" for output in outputs))
    return Exported(folder=str(raw), missing=missing, tool=tool, words=_words(outputs) if missing else ())


@contextmanager
def _keeping(raw: Path, folder: RunFolder, succeeded: Callable[[], bool]) -> Iterator[None]:
    """Keep an export that is there already until the new one is: analyse() begins by deleting it."""
    output, kept = raw / _EXPORTS[0], folder.work / f"{raw.name}.{_EXPORTS[0]}"
    if not output.is_dir():
        yield
        return
    folder.work.mkdir(exist_ok=True)
    output.rename(kept)
    try:
        yield
    finally:
        if succeeded():
            shutil.rmtree(kept)
        else:
            shutil.rmtree(output, ignore_errors=True)
            kept.rename(output)


def _parse(exporter: _Exporter, raw: Path, formats: Sequence[str], began: float) -> list[Printed]:
    """Let torch_npu parse. Where files are missing, ask msprof alone: for its words, and for what it can save.

    If msprof does its part, torch_npu gets a second chance: its scheduler loses a task now and then.
    """
    first = _analyse(exporter, raw, formats)
    if not _missing(raw, formats, began):
        return [first]
    inner = sorted(raw.glob("PROF_*"))
    alone = [output for prof in inner for output in _msprof(exporter, prof, formats)]
    if not inner or any(_missing(prof, formats, began) for prof in inner):
        return [*alone, first]
    again = _analyse(exporter, raw, formats)
    if _missing(raw, formats, began):  # which has deleted what msprof had saved
        alone = [output for prof in inner for output in _msprof(exporter, prof, formats)]
    return [first, again, *alone]


def _analyse(exporter: _Exporter, raw: Path, formats: Sequence[str]) -> Printed:
    processes = str(max(1, (os.cpu_count() or 2) // 2))
    call = [exporter.python, str(AGENT / "parse.py"), str(raw), processes, ",".join(formats)]
    return run_quietly(call, exporter.environment)


def _msprof(exporter: _Exporter, raw: Path, formats: Sequence[str]) -> list[Printed]:
    """Let msprof export each format."""
    environment = exporter.environment
    call = [shutil.which("msprof", path=environment["PATH"]) or "msprof", "--export=on", f"--output={raw}"]
    return [run_quietly([*call, "--type=db"] if kind == "db" else call, environment) for kind in formats]


def _formats(raw: Path, formats: Sequence[str] | None) -> list[str]:
    """Return the formats to export: those asked for, else those the data was recorded for."""
    if formats is not None:
        return list(formats)
    recorded = _experimental(raw).get("_export_type", "text")
    listed = recorded if isinstance(recorded, list) else [recorded]
    return [str(f) for f in listed if f in ("text", "db")] or ["text"]


def _missing(raw: Path, formats: Sequence[str], since: float = 0.0) -> tuple[str, ...]:
    """Return the wanted files that are not there, older than ``since``, or without a row."""
    wanted = []
    for kind in formats:
        if PROF.match(raw.name):
            wanted.append("msprof_*.db" if kind == "db" else "mindstudio_profiler_output/op_summary*.csv")
        else:
            name = "ascend_pytorch_profiler*.db" if kind == "db" else _torch_table(raw)
            wanted.append(f"ASCEND_PROFILER_OUTPUT/{name}")
    return tuple(w for w in wanted if not any(_has_rows(f, since) for f in raw.glob(w)))


def _torch_table(raw: Path) -> str:
    """Without device tasks there is no kernel table; then the timeline has to do."""
    level = _experimental(raw).get("_profiler_level")
    activities = _info(raw).get("common_config", {}).get("activities", ["NPU"])
    on_device = level != "Level_none" and any("NPU" in str(a) for a in activities)
    return "kernel_details.csv" if on_device else "trace_view.json"


def _has_rows(file: Path, since: float) -> bool:
    state = file.stat()
    if state.st_mtime < since:
        return False
    if file.suffix == ".csv":
        with file.open("rb") as opened:
            return opened.readline() != b"" and opened.readline().strip() != b""
    return state.st_size > 2


def _info(raw: Path) -> dict[str, Any]:
    """Return the profiler's own record of its options; empty where there is none."""
    for file in sorted(raw.glob("profiler_info*.json")):
        try:
            document = msgspec.json.decode(file.read_bytes())
            return dict(document["config"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue
    return {}


def _experimental(raw: Path) -> dict[str, Any]:
    return _info(raw).get("experimental_config") or {}


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

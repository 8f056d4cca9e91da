"""The files aoe_result_*.json of one tuning run: what AOE says that it tuned, and what two runs tuned differently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.documents.comparison import Change, Compared, Comparison
from npuperf.documents.tuning import Entry, Mode, Status, Summary, Task, Tuning
from npuperf.errors import InputError
from npuperf.files import read_input
from npuperf.folders import files_below
from npuperf.messages import Message, chain, say, say_n
from npuperf.tune.lenient import parse
from npuperf.tune.reports import Report, read_reports, without_section
from npuperf.units import NS_PER_US

PATTERN: Final = "aoe_result_*.json"
#: Seconds between two files of one process that do something else than tune.
_PAUSE: Final = 60
_NAME: Final = re.compile(r"aoe_result_(?P<kind>[a-z]+)_(?P<stamp>.+)_(?:pid)?(?P<pid>\d+)\.json$")


def result_files(path: Path) -> list[Path]:
    """Return the result files of the newest run at ``path``: the file itself, or those of one process in a folder.

    Raises InputError when there is none.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        hint = say("give {pattern} or the folder that holds it", pattern=PATTERN)
        raise InputError(say("{path}: no such file or folder", path=str(path)), hint=hint)
    told: list[Message] = []
    found = files_below(path, PATTERN, told)
    if not found:
        hint = say(
            "AOE writes it to $ASCEND_WORK_PATH, else to the folder it was started in; if there is "
            "none, AOE did not get far"
        )
        what = say("{path}: no {pattern} below it", path=str(path), pattern=PATTERN)
        raise InputError(chain(what, *told, by="\n  "), hint=hint)
    return of_one_process(newest_run(found))


def count_results(path: Path) -> int:
    """Return how many result files lie at or below a path."""
    return sum(1 for _ in path.rglob(PATTERN)) if path.is_dir() else 1


def newest_run(files: Iterable[Path]) -> list[Path]:
    """Return those files that one process wrote: the one with the newest of them."""
    runs: dict[str, list[Path]] = {}
    for file in sorted(files):
        name = _NAME.search(file.name)
        runs.setdefault(f"{file.parent}/{name['pid'] if name else file.name}", []).append(file)
    return max(runs.values(), key=lambda found: max(f.name.split("_", 3)[-1] for f in found), default=[])


def of_one_process(files: Sequence[Path]) -> list[Path]:
    """Return the last of these files, oldest first, with those before it that the same process can have written.

    Containers give the same number to every run. A process goes on from one file to the next: the one before says how
    long it took (or it ended there), and the next begins by then.
    """
    kept = list(files[-1:])
    for earlier in reversed(files[:-1]):
        begun, next_begun = _begun(earlier), _begun(kept[0])
        seconds = _seconds(earlier)
        if begun is None or next_begun is None or seconds is None or next_begun - begun > seconds + _PAUSE:
            break
        kept.insert(0, earlier)
    return kept


def _begun(file: Path) -> float | None:
    """Return when a file was begun by the digits of its name (year to millisecond), in seconds; None if not told."""
    name = _NAME.search(file.name)
    digits = re.sub(r"\D", "", name["stamp"]) if name else ""
    try:
        return datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _seconds(file: Path) -> float | None:
    """Return how long the reports of a file took in all; None unless all of them got to their end."""
    try:
        seconds = [report.seconds for report in _read(file)[0]]
    except InputError:
        return None
    return None if None in seconds else sum(s for s in seconds if s is not None)


def read_results(files: Sequence[Path], asked: Mode | None = None) -> Tuning:
    """Read the files of one run into one document; ``asked``: what it was to tune, where that is known.

    Raises InputError when none of them can be read.
    """
    reports: list[Report] = []
    warnings: list[Message] = []
    unread: list[InputError] = []
    recovered = False
    for file in files:
        try:
            found, faults = _read(file)
        except InputError as error:
            unread.append(error)
            continue
        reports += found
        recovered = recovered or bool(faults)
        warnings += [say("{name}: {fault}", name=file.name, fault=fault) for fault in faults]
    if unread and not reports:
        raise unread[0]
    without_section(reports, asked)
    warnings += [error.what for error in unread]
    recovered = recovered or bool(unread)
    warnings += [say("{name}: {fault}", name=r.name, fault=fault) for r in reports for fault in r.warnings]
    seconds = [r.seconds for r in reports if r.seconds is not None]
    modes = set().union(*(r.modes for r in reports))
    return Tuning(
        mode="mixed" if len(modes) > 1 else next(iter(modes), None),
        status=_overall([r.status for r in reports], recovered),
        recovered=recovered,
        files=tuple(str(f) for f in files),
        entries=tuple(replace(e, task=r.task) for r in reports for e in r.entries),
        tasks=tuple(Task(name=r.task, status=r.status, tuning_time_s=r.seconds) for r in reports),
        failed_operators=tuple(dict.fromkeys(name for r in reports for name in r.failed)),
        summary=_sum([r.summary for r in reports if r.summary]),
        tuning_time_s=sum(seconds) if seconds else None,
        warnings=tuple(warnings),
    )


def compare_tunings(old: Tuning, new: Tuning) -> Comparison:
    """Say what one run tuned that another did not, and what it tuned to another time."""
    before, after = ({(e.name, e.strategy): e for e in t.entries if e.kind != "model"} for t in (old, new))
    pairs = [(before.get(key), after.get(key)) for key in sorted({*before, *after}, key=str)]
    moved = [(b, a) for b, a in pairs if b is None or a is None or b.after_us != a.after_us]
    whole = not any(tuning.recovered or tuning.status == "incomplete" for tuning in (old, new))
    timed = bool(pairs) and all(b is not None and b.after_us is not None for b, _ in pairs)
    alike = whole and timed and not moved
    unknown = say("a result has one time for each entry, so the noise is unknown")
    return Comparison(
        old=", ".join(old.files),
        new=", ".join(new.files),
        verdict="same" if alike else "cannot_tell",
        reason=say("every entry was tuned to the very same time") if alike else unknown,
        rows=tuple(_compared(b, a) for b, a in moved),
        unchanged=len(pairs) - len(moved),
        warnings=(*old.warnings, *new.warnings),
    )


def _compared(before: Entry | None, after: Entry | None) -> Compared:
    """Hold what two runs tuned an entry to against each other; one of them has it at least."""
    entry = after or before
    assert entry is not None
    change: Change = "added" if before is None else "removed" if after is None else "changed"
    return Compared(
        kind=entry.kind,
        name=entry.name,
        change=change,
        verdict="cannot_tell",
        old_ns=_tuned_ns(before),
        new_ns=_tuned_ns(after),
        strategy=entry.strategy,
    )


def _tuned_ns(entry: Entry | None) -> int | None:
    return None if entry is None or entry.after_us is None else round(entry.after_us * NS_PER_US)


def _read(file: Path) -> tuple[list[Report], tuple[Message, ...]]:
    data = read_input(file)
    if not data.strip():
        hint = say("AOE was stopped before it had a result; look at its log, and start it again")
        raise InputError(say("{file}: empty", file=str(file)), hint=hint)
    parsed = parse(data.decode("utf-8-sig", "replace"))
    reports = [report for document in parsed.documents for report in read_reports(document)]
    if not reports:
        hint = say("a result file has reports with basic, OPAT or SGAT in them")
        what = say_n("{file}: no tuning report in its {n} byte", "{file}: no tuning report in its {n} bytes",
                     len(data), file=str(file))  # fmt: skip
        raise InputError(what, hint=hint)
    return reports, tuple(parsed.faults)


def _overall(statuses: Sequence[Status | None], recovered: bool) -> Status:
    """A run succeeded if every report did and nothing had to be recovered."""
    known = [s for s in statuses if s is not None]
    if "failed" in known:
        return "failed"
    if recovered or "incomplete" in known or not known:
        return "incomplete"
    return "successful" if "successful" in known else "nothing_to_tune"


def _sum(summaries: Sequence[Summary]) -> Summary | None:
    if not summaries:
        return None
    return Summary(**{name: sum(getattr(s, name) for s in summaries) for name in Summary.__struct_fields__})

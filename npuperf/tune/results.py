"""aoe_result_*.json of every version: what AOE says that it tuned.

Schemas: an object of reports (each a list of sections), or the bare list of sections of older versions; operators as a
list with strategies, or as two lists add_/update_repo_operators; subgraphs likewise. Sources: the vendor's AOE guides
of CANN 6.0 to 9.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from npuperf.documents.tuning import (
    TUNING_SCHEMA,
    Change,
    Entry,
    EntryChange,
    Kind,
    Mode,
    ResultDiff,
    Status,
    Summary,
    Tuning,
)
from npuperf.errors import InputError
from npuperf.tune.lenient import Object, parse

PATTERN: Final = "aoe_result_*.json"
_NAME: Final = re.compile(r"aoe_result_(?P<kind>[a-z]+)_(?P<stamp>.+)_(?:pid)?(?P<pid>\d+)\.json$")
_US: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_MODEL_TIMES: Final = {"before": "model_baseline_performance", "after": "model_result_performance"}
_SECTIONS: Final[dict[str, Mode]] = {"OPAT": "op", "SGAT": "subgraph"}
#: The file rounds (OPAT) or truncates (SGAT) to two decimals.
_IMPROVEMENT_TOLERANCE: Final = 0.02
_COUNTS: Final = {
    "added": "repo_add_num",
    "updated": "repo_update_num",
    "hit": "repo_hit_num",
    "reserved": "repo_reserved_num",
    "unsatisfied": "repo_unsatisfied_num",
    "total": "total_num",
}


@dataclass(slots=True)
class _Report:
    """One report while it is read."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    summary: Summary | None = None
    seconds: float | None = None
    status: Status | None = None
    modes: set[Mode] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)


def result_files(path: Path) -> list[Path]:
    """Return the result files of the newest run at ``path``: the file itself, or those of one process in a folder.

    Raises InputError when there is none.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        raise InputError(f"{path}: no such file or folder", hint=f"give {PATTERN} or the folder that holds it")
    found = sorted(path.rglob(PATTERN))
    if not found:
        raise InputError(
            f"{path}: no {PATTERN} below it",
            hint="AOE writes it to $ASCEND_WORK_PATH, else to the folder it was started in; none: AOE did not get far",
        )
    return newest_run(found)


def newest_run(files: Iterable[Path]) -> list[Path]:
    """Return those files that one process wrote: the one with the newest of them."""
    runs: dict[str, list[Path]] = {}
    for file in sorted(files):
        name = _NAME.search(file.name)
        runs.setdefault(f"{file.parent}/{name['pid'] if name else file.name}", []).append(file)
    return max(runs.values(), key=lambda found: max(f.name.split("_", 3)[-1] for f in found), default=[])


def read_results(files: Sequence[Path]) -> Tuning:
    """Read the files of one run into one document. Raises InputError when none of them can be read."""
    reports: list[_Report] = []
    warnings: list[str] = []
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
        warnings += [f"{file.name}: {fault}" for fault in faults]
    if unread and not reports:
        raise unread[0]
    warnings += [error.what for error in unread]
    recovered = recovered or bool(unread)
    warnings += [f"{report.name}: {warning}" for report in reports for warning in report.warnings]
    modes = set().union(*(r.modes for r in reports))
    return Tuning(
        schema_version=TUNING_SCHEMA,
        mode="mixed" if len(modes) > 1 else next(iter(modes), None),
        status=_overall([r.status for r in reports], recovered),
        recovered=recovered,
        files=tuple(str(f) for f in files),
        entries=tuple(e for r in reports for e in r.entries),
        failed_operators=tuple(dict.fromkeys(name for r in reports for name in r.failed)),
        summary=_sum([r.summary for r in reports if r.summary]),
        tuning_time_s=_total([r.seconds for r in reports]),
        warnings=tuple(warnings),
    )


def compare_results(before: Tuning, after: Tuning) -> ResultDiff:
    """Say what one run tuned that another did not, and what it tuned to another time."""
    old, new = ({(e.name, e.strategy): e for e in t.entries if e.kind != "model"} for t in (before, after))
    changes, unchanged = [], 0
    for key in sorted({*old, *new}, key=str):
        times = [found[key].after_us if key in found else None for found in (old, new)]
        if key in old and key in new and times[0] == times[1]:
            unchanged += 1
            continue
        changes.append(
            EntryChange(
                name=key[0],
                strategy=key[1],
                change="added" if key not in old else "removed" if key not in new else "changed",
                before_us=times[0],
                after_us=times[1],
                speedup=times[0] / times[1] if times[0] and times[1] else None,
            )
        )
    return ResultDiff(
        before=", ".join(before.files),
        after=", ".join(after.files),
        changes=tuple(changes),
        unchanged=unchanged,
        warnings=(*before.warnings, *after.warnings),
    )


def _read(file: Path) -> tuple[list[_Report], list[str]]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    if not data.strip():
        hint = "AOE was stopped before it had a result; look at its log, and start it again"
        raise InputError(f"{file}: empty", hint=hint)
    parsed = parse(data.decode("utf-8-sig", "replace"))
    reports = [report for document in parsed.documents for report in _reports(document)]
    if not reports:
        hint = "a result file has reports with basic, OPAT or SGAT in them"
        raise InputError(f"{file}: no tuning report in its {len(data)} bytes", hint=hint)
    return reports, parsed.faults


def _reports(document: Any) -> Iterator[_Report]:
    """Find the reports of a document, whatever its form."""
    if isinstance(document, Object):
        named = [(key, value) for key, value in document.members if isinstance(value, list | Object)]
        if any(key in ("basic", *_SECTIONS) for key, _ in named):
            yield _report("report", document.members)
            return
        for key, value in named:
            yield _report(key, _sections(value))
    elif isinstance(document, list):
        sections = _sections(document)
        if any(key in ("basic", *_SECTIONS) for key, _ in sections):
            yield _report("report", sections)
        else:
            for item in document:
                yield from _reports(item)


def _sections(value: Any) -> list[tuple[str, Any]]:
    """Return the members of all objects of a list, or of one object."""
    items = value if isinstance(value, list) else [value]
    return [member for item in items if isinstance(item, Object) for member in item.members]


def _report(name: str, sections: Iterable[tuple[str, Any]]) -> _Report:
    report = _Report(name)
    summary: Any = None
    for key, value in sections:
        if not isinstance(value, Object):
            continue
        if key == "basic":
            report.seconds = _number(value.get("tuning_time(s)"))
        elif key in _SECTIONS:
            report.modes.add(_SECTIONS[key])
            _read_section(report, key, value)
            summary = value.get("repo_summary") or summary
        elif key == "repo_summary":  # one version closes the section before it
            summary = value
    report.summary = _summary(summary)
    report.status = _status(report)
    _check(report)
    return report


def _read_section(report: _Report, key: str, section: Object) -> None:
    said = section.get("opat_tuning_result", "opat_tune_result", "sgat_tuning_result", "sgat_tune_result")
    report.status = _status_of(said) if isinstance(said, str) else report.status
    report.failed += _names(section.get("tuning_failed_operators", "tune_failed_operators"))
    if section.get(_MODEL_TIMES["before"] + "(ms)") is not None:
        report.entries.append(_entry("model", section, _MODEL_TIMES, "model_performance_improvement", name="model"))
    changed = section.get("repo_modified_operators" if key == "OPAT" else "repo_modified_subgraphs")
    kind: Kind = "operator" if key == "OPAT" else "subgraph"
    if isinstance(changed, list):
        for item in changed:
            report.entries += _with_strategies(kind, item) if isinstance(item, Object) else []
    elif isinstance(changed, Object):
        for group, items in changed.members:
            change: Change = "updated" if group.startswith("update") else "added"
            for item in items if isinstance(items, list) else []:
                if isinstance(item, Object):
                    report.entries.append(_entry(kind, item, _TIMES, "performance_improvement", change=change))


_TIMES: Final = {"before": "performance_before_tune", "after": "performance_after_tune"}


def _with_strategies(kind: Kind, item: Object) -> list[Entry]:
    """Return one entry per strategy (Format, Schedule, Impl) of an operator."""
    tuned = item.get("tune_performance")
    if not isinstance(tuned, Object):
        measured = any(key.startswith("performance_") for key, _ in item.members)
        return [_entry(kind, item, _TIMES, "performance_improvement")] if measured else []
    found = []
    for strategy, times in tuned.members:
        if isinstance(times, Object) and times.members:
            said = str(times.get("update_mode") or "")
            change: Change = {"add": "added", "update": "updated"}.get(said, "unknown")  # type: ignore[assignment]
            whole = Object([*item.members, *times.members])
            found.append(_entry(kind, whole, _TIMES, "performance_improvement", change=change, strategy=strategy))
    return found


def _entry(
    kind: Kind,
    item: Object,
    times: dict[str, str],
    improvement: str,
    *,
    change: Change = "unknown",
    strategy: str | None = None,
    name: str | None = None,
) -> Entry:
    before, after = (_microseconds(item, times[when]) for when in ("before", "after"))
    comparable = before is not None and after is not None and before > 0 and after > 0  # 0: not measured
    key = item.get("repo_key")
    return Entry(
        kind=kind,
        name=name or str(item.get("op_name") or key or "?"),
        types=_types(item.get("op_type")),
        repo_key=None if key is None else str(key),
        strategy=strategy,
        change=change,
        before_us=before,
        after_us=after,
        speedup=round(before / after, 3) if comparable and before and after else None,
        time_saved_pct=round(100 * (1 - after / before), 2) if comparable and before and after else None,
        reported_improvement_pct=_percent(item.get(improvement)),
    )


def _microseconds(item: Object, stem: str) -> float | None:
    """Return a time; its unit is part of its key: ``performance_after_tune(us)``."""
    for key, value in item.members:
        unit = re.fullmatch(re.escape(stem) + r"\((\w+)\)", key)
        number = _number(value)
        if unit and unit[1] in _US and number is not None:
            return number * _US[unit[1]]
    return None


def _types(value: Any) -> tuple[str, ...]:
    """Read ``"A"``, ``"[A, B]"`` or a list."""
    parts = value if isinstance(value, list) else str(value or "").strip().strip("[]").split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _percent(value: Any) -> float | None:
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*%?\s*", str(value)) if value is not None else None
    return float(found[1]) if found else None


def _summary(value: Any) -> Summary | None:
    if not isinstance(value, Object):
        return None
    counts = {name: value.get(key) for name, key in _COUNTS.items()}
    return Summary(**{name: count for name, count in counts.items() if isinstance(count, int)})


def _status_of(text: str) -> Status:
    """Read ``tuning successful``, ``tune failed`` and their like; what is unknown is not a success."""
    for word, status in _STATUS_WORDS.items():
        if word in text.lower():
            return status
    return "incomplete"


_STATUS_WORDS: Final[dict[str, Status]] = {"success": "successful", "fail": "failed", "incomplete": "incomplete"}


def _status(report: _Report) -> Status:
    """Complete what the file says: subgraphs have no status, and an interrupted run has no tuning time."""
    if not report.modes:
        report.warnings.append(
            "neither OPAT nor SGAT: nothing was tunable, or (subgraphs) the tuning failed; the log tells which"
        )
        return "nothing_to_tune" if report.seconds is not None else "incomplete"
    if report.seconds is None:
        report.warnings.append("no tuning time: AOE did not end by itself (a crash, no memory, or it was stopped)")
        return "failed" if report.status == "failed" else "incomplete"
    if report.status is None and "op" in report.modes:
        report.warnings.append("the operators' section says no result: the file is damaged, or was not finished")
        return "incomplete"
    return report.status or "successful"


def _check(report: _Report) -> None:
    """Warn where the file contradicts itself."""
    for e in report.entries:
        if e.speedup is None or e.reported_improvement_pct is None or not e.before_us or not e.after_us:
            continue
        own = 100 * (e.before_us / e.after_us - 1)
        if abs(own - e.reported_improvement_pct) > _IMPROVEMENT_TOLERANCE:
            report.warnings.append(
                f"{e.name}: the file says {e.reported_improvement_pct} % improvement, its times say {own:.2f} %"
            )
    s = report.summary
    if s is None:
        return
    if s.hit != s.reserved + s.updated:
        report.warnings.append(f"{s.hit} hits are not {s.reserved} reserved and {s.updated} updated")
    if s.total != s.added + s.hit + s.unsatisfied:
        parts = f"{s.added} added, {s.hit} hit and {s.unsatisfied} unsatisfied"
        report.warnings.append(f"a total of {s.total} is not {parts}")
    for change, count in (("added", s.added), ("updated", s.updated)):
        listed = len({(e.name, e.repo_key) for e in report.entries if e.change == change})
        if listed != count:
            report.warnings.append(f"{count} {change} by the summary, {listed} listed")


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


def _total(seconds: Sequence[float | None]) -> float | None:
    known = [s for s in seconds if s is not None]
    return sum(known) if known else None

"""The reports inside of an aoe_result file, whatever its version.

Schemas: an object of reports (each a list of sections), or the bare list of sections of older versions; operators as a
list with strategies, or as two lists add_/update_repo_operators; subgraphs likewise. Sources: the vendor's AOE guides
of CANN 6.0 to 9.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from npuperf.documents.tuning import Change, Entry, Kind, Mode, Status, Summary
from npuperf.messages import Message, number, say
from npuperf.tune.lenient import CutList, Object

_US: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
#: No operator and no model takes longer, µs, and no tuning, s: what is more, or less than 0, was not measured.
_LONGEST_US: Final = 1e13
_LONGEST_S: Final = 1e9
#: Below this, no clock measures anything, µs.
_SHORTEST_US: Final = 1e-6
#: Counts beyond it are damage.
_MOST_COUNTED: Final = 1 << 53
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
class Report:
    """One report while it is read. ``task``: what AOE calls what it tuned."""

    name: str
    task: str | None = None
    entries: list[Entry] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    summary: Summary | None = None
    seconds: float | None = None
    status: Status | None = None
    modes: set[Mode] = field(default_factory=set)
    warnings: list[Message] = field(default_factory=list)


def without_section(reports: Sequence[Report], asked: Mode | None) -> None:
    """Judge the reports without a section of results: operators had nothing to tune, subgraphs failed (the guide).

    ``asked``: what was to be tuned, None where only the other reports of the run can tell.
    """
    known: set[Mode | None] = {mode for report in reports for mode in report.modes} or {asked}
    for report in reports:
        if report.modes:
            continue
        if known == {"subgraph"}:
            report.status = "failed"
            report.warnings.append(say("no section SGAT: the tuning of subgraphs failed; the log tells why"))
        elif known == {"op"}:
            report.warnings.append(say("no section OPAT: no operator could be tuned"))
        else:
            report.warnings.append(
                say("neither OPAT nor SGAT: nothing was tunable, or (subgraphs) the tuning failed; the log tells which")
            )


def read_reports(document: Any) -> Iterator[Report]:
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
                yield from read_reports(item)


def _sections(value: Any) -> list[tuple[str, Any]]:
    """Return the members of all objects of a list, or of one object."""
    items = value if isinstance(value, list) else [value]
    return [member for item in items if isinstance(item, Object) for member in item.members]


def _report(name: str, sections: Iterable[tuple[str, Any]]) -> Report:
    report = Report(name)
    summary: Any = None
    for key, value in sections:
        if not isinstance(value, Object):
            continue
        if key == "basic":
            report.seconds = _number(value.get("tuning_time(s)"), _LONGEST_S)
            named = value.get("tuning_name")
            report.task = named if isinstance(named, str) and named else None
        elif key in _SECTIONS:
            report.modes.add(_SECTIONS[key])
            _read_section(report, key, value)
            summary = value.get("repo_summary") or summary
        elif key == "repo_summary":  # one version closes the section before it
            summary = value
    report.summary = _summary(summary)
    if isinstance(summary, Object) and report.summary is None:
        report.warnings.append(say("the summary lacks counts, so none of them is used"))
    report.status = _status(report)
    # Where the file contradicts itself:
    report.warnings += filter(None, map(_improvement_check, report.entries))
    if report.summary is not None:
        report.warnings += _count_checks(report.summary, report.entries)
    return report


def _read_section(report: Report, key: str, section: Object) -> None:
    said = section.get("opat_tuning_result", "opat_tune_result", "sgat_tuning_result", "sgat_tune_result")
    report.status = _status_of(said) if isinstance(said, str) else report.status
    failed = section.get("tuning_failed_operators", "tune_failed_operators")
    report.failed += map(str, failed) if isinstance(failed, list) else []
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
    ratio = before / after if before and after and min(before, after) > _SHORTEST_US else None  # 0: not measured
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
        speedup=None if ratio is None else round(ratio, 3),
        time_saved_pct=round(100 * (1 - after / before), 2) if ratio is not None and before and after else None,
        reported_improvement_pct=_percent(item.get(improvement)),
    )


def _microseconds(item: Object, stem: str) -> float | None:
    """Return a time; its unit is part of its key: ``performance_after_tune(us)``."""
    for key, value in item.members:
        unit = re.fullmatch(re.escape(stem) + r"\((\w+)\)", key)
        if unit and unit[1] in _US:
            number = _number(value, _LONGEST_US / _US[unit[1]])
            if number is not None:
                return number * _US[unit[1]]
    return None


def _types(value: Any) -> tuple[str, ...]:
    """Read ``"A"``, ``"[A, B]"`` or a list; part of a list is none."""
    if isinstance(value, CutList):
        return ()
    parts = value if isinstance(value, list) else str(value or "").strip().strip("[]").split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _number(value: Any, most: float) -> float | None:
    """Return a number from 0 to ``most``; anything else is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= most else None  # nor what is no number at all


def _percent(value: Any) -> float | None:
    found = re.fullmatch(r"\s*(-?\d{1,12}(?:\.\d+)?)\s*%?\s*", str(value))
    return float(found[1]) if found else None


def _summary(value: Any) -> Summary | None:
    if not isinstance(value, Object):
        return None
    counts = {name: value.get(key) for name, key in _COUNTS.items()}
    if not all(type(count) is int and 0 <= count < _MOST_COUNTED for count in counts.values()):
        return None
    return Summary(**counts)


def _status_of(text: str) -> Status:
    """Read ``tuning successful``, ``tune failed`` and their like; what is unknown is not a success."""
    for word, status in _STATUS_WORDS.items():
        if word in text.lower():
            return status
    return "incomplete"


_STATUS_WORDS: Final[dict[str, Status]] = {"success": "successful", "fail": "failed", "incomplete": "incomplete"}


def _status(report: Report) -> Status:
    """Complete what the file says: subgraphs have no status, and an interrupted run has no tuning time."""
    if not report.modes:
        return "nothing_to_tune" if report.seconds is not None else "incomplete"
    if report.seconds is None:
        report.warnings.append(
            say("no tuning time: AOE did not end by itself (it crashed, ran out of memory, or was stopped)")
        )
        return "failed" if report.status == "failed" else "incomplete"
    if report.status is None and "op" in report.modes:
        report.warnings.append(
            say("the operators' section does not say how tuning ended: the file is damaged or unfinished")
        )
        return "incomplete"
    return report.status or "successful"


def _improvement_check(entry: Entry) -> Message | None:
    said = entry.reported_improvement_pct
    if entry.speedup is None or said is None or not entry.before_us or not entry.after_us:
        return None
    own = 100 * (entry.before_us / entry.after_us - 1)
    if abs(own - said) <= _IMPROVEMENT_TOLERANCE:
        return None
    return say("{name}: the file says {said} % improvement, its times say {own} %",
               name=entry.name, said=number(said), own=number(own))  # fmt: skip


def _count_checks(s: Summary, entries: Sequence[Entry]) -> Iterator[Message]:
    if s.hit != s.reserved + s.updated:
        yield say("the summary does not add up: {hit} hits, but {reserved} reserved and {updated} updated",
                  hit=s.hit, reserved=s.reserved, updated=s.updated)  # fmt: skip
    if s.total != s.added + s.hit + s.unsatisfied:
        yield say("the summary does not add up: a total of {total}, but {added} added, {hit} hit and "
"{unsatisfied} unsatisfied",
                  total=s.total, added=s.added, hit=s.hit, unsatisfied=s.unsatisfied)  # fmt: skip
    # Strategies are counted, not operators: one operator may have several.
    added, updated = (sum(entry.change == change for entry in entries) for change in ("added", "updated"))
    if added != s.added:
        yield say("{said} added in the summary, but {listed} listed", said=s.added, listed=added)
    if updated != s.updated:
        yield say("{said} updated in the summary, but {listed} listed", said=s.updated, listed=updated)

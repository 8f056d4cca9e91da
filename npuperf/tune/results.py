"""The files aoe_result_*.json of one tuning run: what AOE says that it tuned, and what two runs tuned differently.

They may be damaged: AOE rewrites its result file while it runs, and its documented samples do not parse. Only what is
complete is kept. Repair libraries complete what was cut (a number that broke off stays a number): that would be a wrong
measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from math import fsum
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.files import files_below, read_input
from npuperf.base.messages import Message, chain, number, say, say_n
from npuperf.base.units import NS_PER_US
from npuperf.model.comparison import Compared, Comparison
from npuperf.model.tuning import Change as Action
from npuperf.model.tuning import Entry, Kind, Mode, Status, Summary, Task, Tuning

# -- JSON that may be damaged.

#: An object: its members in order, because keys are repeated.
Members = list[tuple[str, Any]]

_SPACE: Final = re.compile(r"[\s\ufeff]*")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
#: A number, or a word, up to what must follow it: one that breaks off ("58." of 58.781) or ends the text may be half.
_SCALAR: Final = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity)(?=[\s,\]}])")
_MOST_FAULTS: Final = 50
#: Characters within which faults of a row are one: what follows the first is not a value, either.
_ONE_FAULT: Final = 200
_FILLER: Final = re.compile(r"[.…]+")
_TOO_DEEP: Final = say("nested too deeply")
_BREAKS_OFF: Final = say("the text ends too early")
_NO_VALUE: Final = say("something that is not a value")
_NO_COMMA: Final = say("a missing comma")


class Object:
    """The members of a JSON object, repeated keys included."""

    def __init__(self, members: Members) -> None:
        self.members = members

    def get(self, *names: str) -> Any:
        """Return the first member with one of these names, None if there is none."""
        return next((value for key, value in self.members if key in names), None)


class CutList(list[Any]):
    """The items of a JSON array that breaks off: there were more."""


@dataclass(slots=True)
class Parsed:
    """The documents of a text. ``faults`` say what was wrong and where; empty means that it is JSON."""

    documents: list[Any] = field(default_factory=list)
    faults: list[Message] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Read JSON; where it is damaged, keep everything that is whole."""
    try:
        return Parsed([json.loads(text.lstrip("\ufeff"), object_pairs_hook=Object)])
    except ValueError:
        reader = _Reader(text)
    except RecursionError:
        return Parsed(faults=[_TOO_DEEP])
    try:
        return reader.read()
    except RecursionError:
        return Parsed(reader.parsed.documents, [*reader.parsed.faults, _TOO_DEEP])


class _CutError(Exception):
    """A value breaks off, or is none."""


class _Reader:
    """Goes on after a fault. Containers always return what they have; values that break off are dropped."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.parsed = Parsed()
        self._place = (0, 1, 0)

    def read(self) -> Parsed:
        while self._next():
            before = self.at
            try:
                key = _STRING.match(self.text, self.at)
                after = _SPACE.match(self.text, key.end()) if key else None
                if after and self.text.startswith(":", after.end()):
                    self._fault(say("an object without its opening brace"))
                    self.parsed.documents.append(self._object(opened=False))
                else:
                    self.parsed.documents.append(self._value())
            except _CutError:
                self._fault(say("not JSON"))
                self.at = max(self.at, before + 1)
        count = len(self.parsed.documents)
        if count > 1:
            self.parsed.faults.append(say_n("{n} document in one file", "{n} documents in one file", count))
        return self.parsed

    def _next(self) -> str:
        """Skip space and return the character that follows, empty at the end."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def _fault(self, what: Message) -> None:
        faults = self.parsed.faults
        if len(faults) > _MOST_FAULTS:
            return
        at, row, byte = self._place  # of the fault before: texts are long, and faults may be many
        passed = self.text[at : self.at]
        follows = bool(faults) and len(passed) <= _ONE_FAULT and "\n" not in passed
        self._place = (self.at, row + passed.count("\n"), byte + len(passed.encode("utf-8", "replace")))
        fault = say("{what} at row {row}, byte {byte}", what=what, row=self._place[1], byte=self._place[2])
        if len(faults) == _MOST_FAULTS:
            faults.append(say("more faults after these"))
        elif fault not in faults[-2:] and not (follows and what in (_NO_VALUE, _NO_COMMA)):
            faults.append(fault)

    def _value(self) -> Any:
        first = self._next()
        if first == "{":
            self.at += 1
            return self._object(opened=True)
        if first == "[":
            self.at += 1
            return self._array()
        found = (_STRING if first == '"' else _SCALAR).match(self.text, self.at)
        if not found:
            raise _CutError
        self.at = found.end()
        try:
            return json.loads(found[0])
        except ValueError as error:
            raise _CutError from error

    def _object(self, *, opened: bool) -> Object:
        members: Members = []
        while True:
            first = self._separated("}", bool(members))
            if not first:
                if opened:
                    self._fault(_BREAKS_OFF)
                return Object(members)
            if first == "}":
                self.at += 1
                return Object(members)
            try:
                key = self._value() if first == '"' else None
                if not isinstance(key, str) or self._next() != ":":
                    raise _CutError
                self.at += 1
                members.append((key, self._value()))
            except _CutError:
                if not self._skip():
                    return Object(members)

    def _array(self) -> list[Any]:
        items: list[Any] = []
        while True:
            first = self._separated("]", bool(items))
            if not first:
                self._fault(_BREAKS_OFF)
                return CutList(items)
            if first == "]":
                self.at += 1
                return items
            if first == "}":  # of an object around it: the bracket is missing
                self._fault(say("a missing bracket"))
                return items
            try:
                items.append(self._value())
            except _CutError:
                if not self._skip():
                    return CutList(items)

    def _separated(self, end: str, after_value: bool) -> str:
        """Step over the comma between two values, and say where it is missing; return what follows."""
        first = self._next()
        if first == ",":
            self.at += 1
            return self._next()
        if after_value and first and first != end and first not in "}]":
            self._fault(_NO_COMMA)
        return first

    def _skip(self) -> bool:
        """Step over what cannot be read; return False at the end of the text."""
        filler = _FILLER.match(self.text, self.at)
        self._fault(_NO_VALUE if self.at < len(self.text) else _BREAKS_OFF)
        self.at = filler.end() if filler else self.at + 1
        return self.at < len(self.text)


# -- The reports inside of an aoe_result file, whatever its version.
#
# Schemas: an object of reports (each a list of sections), or the bare list of sections of older versions; operators as
# a list with strategies, or as two lists add_/update_repo_operators; subgraphs likewise. Sources: the vendor's AOE
# guides of CANN 6.0 to 9.0.

_US: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
#: No operator and no model takes longer, µs, and no tuning, s: what is more, or less than 0, was not measured.
_LONGEST_US: Final = 1e13
_LONGEST_S: Final = 1e9
#: Below this, no clock measures anything, µs.
_SHORTEST_US: Final = 1e-6
#: Characters shown of what is no time.
_SHOWN: Final = 40
#: Counts beyond it are damage.
_MOST_COUNTED: Final = 1 << 53
_MODEL_TIMES: Final = {"before": "model_baseline_performance", "after": "model_result_performance"}
_TIMES: Final = {"before": "performance_before_tune", "after": "performance_after_tune"}
_STATUS_WORDS: Final[dict[str, Status]] = {"success": "successful", "fail": "failed", "incomplete": "incomplete"}
_SECTIONS: Final[dict[str, Mode]] = {"OPAT": "op", "SGAT": "subgraph"}
#: The file rounds (OPAT) or truncates (SGAT), to two decimals as a rule: what the last of its digits is worth, twice.
_LAST_DIGIT: Final = 2.0
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


def without_section(reports: Sequence[Report], asked: str | None) -> None:
    """Judge the reports without a section of results: operators had nothing to tune, subgraphs failed (the guide).

    ``asked``: what was to be tuned, None where only the other reports of the run can tell.
    """
    known: set[str | None] = {mode for report in reports for mode in report.modes} or {asked}
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
    told: Any = None
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
            told = value.get("repo_summary") or told
        elif key == "repo_summary":  # one version closes the section before it
            told = value
    if isinstance(told, Object):
        counts = {name: told.get(key) for name, key in _COUNTS.items()}
        if all(type(count) is int and 0 <= count < _MOST_COUNTED for count in counts.values()):
            report.summary = Summary(**counts)
        else:
            report.warnings.append(say("the summary lacks counts, so none of them is used"))
    # What the file does not say: subgraphs have no status, and an interrupted run has no tuning time.
    if not report.modes:
        report.status = "nothing_to_tune" if report.seconds is not None else "incomplete"
    elif report.seconds is None:
        report.status = "failed" if report.status == "failed" else "incomplete"
        report.warnings.append(
            say("no tuning time: AOE did not end by itself (it crashed, ran out of memory, or was stopped)")
        )
    elif report.status is None and "op" in report.modes:
        report.status = "incomplete"
        report.warnings.append(
            say("the operators' section does not say how tuning ended: the file is damaged or unfinished")
        )
    else:
        report.status = report.status or "successful"
    report.warnings += _contradictions(report)
    return report


def _read_section(report: Report, key: str, section: Object) -> None:
    said = section.get("opat_tuning_result", "opat_tune_result", "sgat_tuning_result", "sgat_tune_result")
    if isinstance(said, str):  # "tuning successful", "tune failed" and their like; what is unknown is no success
        words = (status for word, status in _STATUS_WORDS.items() if word in said.lower())
        report.status = next(words, "incomplete")
    failed = section.get("tuning_failed_operators", "tune_failed_operators")
    report.failed += map(str, failed) if isinstance(failed, list) else []
    if section.get(_MODEL_TIMES["before"] + "(ms)") is not None:
        _add(report, "model", section, _MODEL_TIMES, "model_performance_improvement", name="model")
    changed = section.get("repo_modified_operators" if key == "OPAT" else "repo_modified_subgraphs")
    kind: Kind = "operator" if key == "OPAT" else "subgraph"
    if isinstance(changed, list):
        for item in changed:
            if isinstance(item, Object):
                _add_strategies(report, kind, item)
    elif isinstance(changed, Object):
        for group, items in changed.members:
            change: Action = "updated" if group.startswith("update") else "added"
            for item in items if isinstance(items, list) else []:
                if isinstance(item, Object):
                    _add(report, kind, item, _TIMES, "performance_improvement", change=change)


def _add_strategies(report: Report, kind: Kind, item: Object) -> None:
    """Add one entry per strategy (Format, Schedule, Impl) of an operator."""
    tuned = item.get("tune_performance")
    if not isinstance(tuned, Object):
        if any(key.startswith("performance_") for key, _ in item.members):
            _add(report, kind, item, _TIMES, "performance_improvement")
        return
    for strategy, times in tuned.members:
        if isinstance(times, Object) and times.members:
            said = str(times.get("update_mode") or "")
            change: Action = {"add": "added", "update": "updated"}.get(said, "unknown")  # type: ignore[assignment]
            whole = Object([*item.members, *times.members])
            _add(report, kind, whole, _TIMES, "performance_improvement", change=change, strategy=strategy)


def _add(
    report: Report,
    kind: Kind,
    item: Object,
    times: dict[str, str],
    improvement: str,
    *,
    change: Action = "unknown",
    strategy: str | None = None,
    name: str | None = None,
) -> None:
    """Add an entry to a report, and say what of its times is none, or contradicts what the file says of them."""
    key = item.get("repo_key")
    name = name or str(item.get("op_name") or key or "?")
    before, after = (_microseconds(report, name, item, times[when]) for when in ("before", "after"))
    types = item.get("op_type")  # "A", "[A, B]" or a list; part of a list is none
    if isinstance(types, CutList):
        types = []
    parts = types if isinstance(types, list) else str(types or "").strip().strip("[]").split(",")
    ratio = before / after if before and after else None
    percent = re.fullmatch(r"\s*(-?\d{1,12}(?:\.(\d+))?)\s*%?\s*", str(item.get(improvement)))
    said = float(percent[1]) if percent else None
    if ratio is not None and percent and said is not None:
        own = 100 * (ratio - 1)
        if abs(own - said) > _LAST_DIGIT * 10.0 ** -len(percent[2] or ""):
            report.warnings.append(say("{name}: the file says {said} % improvement, its times say {own} %",
                                       name=name, said=number(said), own=number(own)))  # fmt: skip
    report.entries.append(
        Entry(
            kind=kind,
            name=name,
            types=tuple(str(part).strip() for part in parts if str(part).strip()),
            repo_key=None if key is None else str(key),
            strategy=strategy,
            change=change,
            before_us=before,
            after_us=after,
            speedup=None if ratio is None else round(ratio, 3),
            time_saved_pct=None if ratio is None else round(100 * (1 - 1 / ratio), 2),
            reported_improvement_pct=said,
        )
    )


def _microseconds(report: Report, name: str, item: Object, stem: str) -> float | None:
    """Return a time; its unit is part of its key: ``performance_after_tune(us)``. What is no time is told."""
    for key, value in item.members:
        unit = re.fullmatch(re.escape(stem) + r"\((\w+)\)", key)
        if unit and unit[1] in _US and value is not None:
            found = _number(value, _LONGEST_US / _US[unit[1]])
            if found is not None and found * _US[unit[1]] > _SHORTEST_US:
                return found * _US[unit[1]]
            shown = str(value)[:_SHOWN] if isinstance(value, int | float | str) else say("no number")
            report.warnings.append(
                say("{name}: {key} is {value}: nothing was measured", name=name, key=key, value=shown)
            )
    return None


def _number(value: Any, most: float) -> float | None:
    """Return a number from 0 to ``most``; anything else is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= most else None  # nor what is no number at all


def _contradictions(report: Report) -> Iterator[Message]:
    """Say where the summary of a report contradicts itself, or its lists."""
    s = report.summary
    if s is None:
        return
    if s.hit != s.reserved + s.updated:
        yield say("the summary does not add up: {hit} hits, but {reserved} reserved and {updated} updated",
                  hit=s.hit, reserved=s.reserved, updated=s.updated)  # fmt: skip
    if s.total != s.added + s.hit + s.unsatisfied:
        yield say("the summary does not add up: a total of {total}, but {added} added, {hit} hit and "
                  "{unsatisfied} unsatisfied",
                  total=s.total, added=s.added, hit=s.hit, unsatisfied=s.unsatisfied)  # fmt: skip
    # Strategies are counted, not operators: one operator may have several.
    added, updated = (sum(entry.change == change for entry in report.entries) for change in ("added", "updated"))
    if added != s.added:
        yield say("{said} added in the summary, but {listed} listed", said=s.added, listed=added)
    if updated != s.updated:
        yield say("{said} updated in the summary, but {listed} listed", said=s.updated, listed=updated)


PATTERN: Final = "aoe_result_*.json"
#: Seconds between two files of one process that do something else than tune.
_PAUSE: Final = 60
_NAME: Final = re.compile(r"aoe_result_(?P<kind>[a-z]+)_(?P<stamp>.+)_(?:pid)?(?P<pid>\d+)\.json$")


def result_files(path: Path) -> tuple[list[Path], list[Message]]:
    """Return the result files of the newest run at ``path``: the file itself, or those of one process in a folder.

    Beside them what was left out: older runs, and folders that cannot be entered.

    Raises InputError when there is none.
    """
    if path.is_file():
        return [path], []
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
    files = of_one_process(newest_run(found))
    if len(found) > len(files):
        told.append(say_n("{n} other result file there is of an earlier run, and was not read",
                          "{n} other result files there are of earlier runs, and were not read",
                          len(found) - len(files)))  # fmt: skip
    return files, told


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

    def begun(file: Path) -> float | None:
        """Return when a file was begun (s), by the digits of its name: year to millisecond."""
        name = _NAME.search(file.name)
        digits = re.sub(r"\D", "", name["stamp"]) if name else ""
        try:
            return datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            return None

    kept = list(files[-1:])
    for earlier in reversed(files[:-1]):
        start, end = begun(earlier), begun(kept[0])
        try:  # what all reports of the file took, if all of them got to their end
            seconds = [report.seconds for report in _read(earlier)[0]]
        except InputError:  # who reads it says why
            kept.insert(0, earlier)
            break
        if start is None or end is None or None in seconds or end - start > fsum(s or 0 for s in seconds) + _PAUSE:
            break
        kept.insert(0, earlier)
    return kept


def read_results(files: Sequence[Path], asked: str | None = None) -> Tuning:
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
    summaries, names = [r.summary for r in reports if r.summary], Summary.__struct_fields__
    seconds = [r.seconds for r in reports if r.seconds is not None]
    # A run succeeded if every report did and nothing had to be recovered.
    statuses: set[Status | None] = {r.status for r in reports} - {None}
    status: Status = "successful" if "successful" in statuses else "nothing_to_tune"
    if "failed" in statuses:
        status = "failed"
    elif recovered or "incomplete" in statuses or not statuses:
        status = "incomplete"
    modes = set().union(*(r.modes for r in reports))
    return Tuning(
        mode="mixed" if len(modes) > 1 else next(iter(modes), None),
        status=status,
        recovered=recovered,
        files=tuple(str(f) for f in files),
        entries=tuple(replace(e, task=r.task) for r in reports for e in r.entries),
        tasks=tuple(Task(name=r.task, status=r.status, tuning_time_s=r.seconds) for r in reports),
        failed_operators=tuple(dict.fromkeys(name for r in reports for name in r.failed)),
        summary=Summary(**{name: sum(getattr(s, name) for s in summaries) for name in names}) if summaries else None,
        tuning_time_s=fsum(seconds) if seconds else None,
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
        rows=tuple(
            Compared(
                kind=entry.kind,
                name=entry.name,
                change="added" if b is None else "removed" if a is None else "changed",
                verdict="cannot_tell",
                old_ns=_tuned_ns(b),
                new_ns=_tuned_ns(a),
                strategy=entry.strategy,
            )
            for b, a in moved
            if (entry := a or b) is not None
        ),
        unchanged=len(pairs) - len(moved),
        warnings=(*old.warnings, *new.warnings),
    )


def _tuned_ns(entry: Entry | None) -> int | None:
    return None if entry is None or entry.after_us is None else round(entry.after_us * NS_PER_US)


def _read(file: Path) -> tuple[list[Report], tuple[Message, ...]]:
    data = read_input(file)
    if not data.strip():
        hint = say("AOE was stopped before it had a result; look at its log, and start it again")
        raise InputError(say("{file}: empty", file=str(file)), hint=hint)
    parsed = _parsed(data)
    reports = [report for document in parsed.documents for report in read_reports(document)]
    if not reports:
        hint = say("a result file has reports with basic, OPAT or SGAT in them")
        what = say_n("{file}: no tuning report in its {n} byte", "{file}: no tuning report in its {n} bytes",
                     len(data), file=str(file))  # fmt: skip
        raise InputError(what, hint=hint)
    return reports, tuple(parsed.faults)


def _parsed(data: bytes) -> Parsed:
    """Read the text of a file in UTF-8, or in GBK, which Chinese systems write; what is neither is lost, and told."""
    text = data.decode("utf-8-sig", "replace")
    lost = text.count("\ufffd")
    if lost > len(re.findall(r"[^\x00-\x7f\ufffd]", text)):  # else it is UTF-8 that was damaged
        with suppress(UnicodeDecodeError):
            return parse(data.decode("gbk"))
    found = parse(text)
    if lost:
        found.faults.append(say_n("{n} character is no text", "{n} characters are no text", lost))
    return found

"""What the exporter itself summed and suggested: tables of host calls, suggestions. Sources: msprof's exporters.

Nothing here is part of a verdict. A damaged file costs its own rows alone, and is told.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import HostSum, Suggestion
from npuperf.errors import InputError
from npuperf.messages import say
from npuperf.model.columns import ColumnNames, Kind
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import NO_TIME
from npuperf.notes import read_note
from npuperf.readers.log import ReadLog
from npuperf.readers.table import RowTable, read_table
from npuperf.units import NS_PER_S

#: A call or a sum of calls that takes longer (ns: a month), or counts beyond a trillion, are damage.
_LONGEST: Final = 31 * 24 * 3600 * NS_PER_S
_MOST: Final = 10**12

_SUMS: Final = (
    ColumnNames("level", Kind.TEXT, ("level",)),
    ColumnNames("name", Kind.TEXT, ("api name", "name")),
    ColumnNames("total", Kind.TIME, ("time",)),
    ColumnNames("count", Kind.INT, ("count", "calls")),
    ColumnNames("longest", Kind.TIME, ("max",)),
)


def _calls(*names: str) -> tuple[ColumnNames, ...]:
    return (
        ColumnNames("name", Kind.TEXT, names),
        ColumnNames("dur", Kind.TIME, ("duration",)),
        ColumnNames("start", Kind.TIME, ("start time",)),
        ColumnNames("end", Kind.TIME, ("end time",)),
    )


class _Form(Struct, frozen=True):
    """One kind of table: ``level`` stands for rows that name none; a row is a sum, or one call (``each``)."""

    level: str
    columns: tuple[ColumnNames, ...]
    each: bool = False


#: By the beginning of the file's name. The first two are the same data.
_FORMS: Final = {
    "acl_statistic": _Form("acl", _SUMS),
    "acl": _Form("acl", _calls("name"), each=True),
    "api_statistic": _Form("api", _SUMS),
    "runtime_api": _Form("runtime", _SUMS),
    "ge_op_execute": _Form("ge", _calls("event type"), each=True),
    "msprof_tx": _Form("tx", _calls("message"), each=True),
    "pytorch_operator_view": _Form("torch", _calls("name", "message", "op name"), each=True),
}
_STEM: Final = re.compile(r"_slice_\d+|[_\d]+$")


def read_summaries(files: Iterable[Path], log: ReadLog) -> None:
    """Read tables of sums and suggestions into ``log``; what cannot be read is said there, too."""
    paths = list(files)
    summed = {path.parent for path in paths if _stem(path) == "acl_statistic"}
    sums: list[HostSum] = []
    suggestions: list[Suggestion] = []
    for path in paths:
        if _stem(path) == "acl" and path.parent in summed:
            continue  # the same calls, one by one
        try:
            if path.suffix == ".json":
                suggestions += _read_suggestions(path, log)
            else:
                sums += _read_sums(path, log)
        except InputError as error:
            log.warn(say("{failure}; what the exporter summed or suggested there is not shown", failure=error.what))
            log.settled &= not isinstance(error.__cause__, OSError)
        else:
            log.use(path)
    log.host_sums += merged_sums(sums)
    log.suggestions += merged_suggestions(suggestions)


def _stem(path: Path) -> str:
    """Return what a file's name begins with, before slices, numbers and time stamps."""
    return _STEM.sub("", path.stem)


def _read_sums(path: Path, log: ReadLog) -> Iterator[HostSum]:
    form = _FORMS[_stem(path)]
    required = ("name",) if form.each else ("name", "total", "count")
    table = read_table(path, form.columns, required, log)
    name = table.texts["name"]
    total = _durations(table) if form.each else table.times["total"]
    count = np.ones(len(total), np.int64) if form.each else table.ints["count"]
    sound = name.known() & (total >= 0) & (total <= _LONGEST) & (count > 0) & (count <= _MOST)
    if not sound.all():
        rows = np.flatnonzero(~sound) + 2
        log.lose(path, len(rows), say("host calls without a name, or a time or count that can be; first in row {row}",
                                      row=int(rows[0])))  # fmt: skip
    longest = total if form.each else table.times["longest"]
    level = Labels.missing(len(total)) if form.each else table.texts["level"]
    return _grouped(form, level.filter(sound), name.filter(sound), total[sound], count[sound], longest[sound])


def _durations(table: RowTable) -> I64:
    """Return how long each call took, NO_TIME where that is not recorded."""
    dur, start, end = table.times["dur"], table.times["start"], table.times["end"]
    if not len(dur) or (dur != NO_TIME).any():
        return dur
    known = (start != NO_TIME) & (end != NO_TIME)
    return np.where(known, np.where(known, end, 0) - np.where(known, start, 0), NO_TIME)


def _grouped(form: _Form, level: Labels, name: Labels, total: I64, count: I64, longest: I64) -> Iterator[HostSum]:
    """Yield the sum of each name of each level."""
    key = (level.codes.astype(np.int64) + 1) * (len(name.names) + 1) + name.codes
    order = np.argsort(key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else ():
        most = int(longest[rows].max())
        yield HostSum(
            level=level[rows[0]] or form.level,
            name=name[rows[0]] or "",
            count=sum(count[rows].tolist()),
            total_ns=sum(total[rows].tolist()),
            max_ns=most if 0 <= most <= _LONGEST else None,
            files=1,
        )


def merged_sums(sums: Iterable[HostSum]) -> list[HostSum]:
    """Add sums of the same name and level, those of most time first."""
    found: dict[tuple[str, str], HostSum] = {}
    for one in sums:
        key = one.level, one.name
        found[key] = one.and_also(found[key]) if key in found else one
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.level, one.name))


def _read_suggestions(path: Path, log: ReadLog) -> list[Suggestion]:
    """Read what the exporter's own rules found: groups of rules, in each the rules that hold."""
    groups = _plain(read_note(path)).get("data")
    if not isinstance(groups, list):
        raise InputError(say("{path}: no list of suggestions in it", path=str(path)))
    found: list[Suggestion] = []
    bad = 0
    for group in map(_plain, groups):
        held = group.get("result")
        for rule in map(_plain, held if isinstance(held, list) else [None]):
            suggested = rule.get("rule suggestion")
            if isinstance(suggested, str) and suggested:
                operators = rule.get("op list", rule.get("tuning data"))
                found.append(Suggestion(
                    kind=str(group.get("rule type") or ""),
                    rule=str(rule.get("rule subtype") or ""),
                    suggestion=suggested,
                    operators=tuple(map(_named, operators if isinstance(operators, list) else ())),
                    files=1,
                ))  # fmt: skip
            else:
                bad += 1
    if bad:
        log.lose(path, bad, say("parts of a list of suggestions that suggest nothing"))
    return found


def _plain(value: Any) -> dict[str, Any]:
    """Return an object with its keys in one spelling: ``Rule Type`` and ``rule_type`` are the same."""
    members = value.items() if isinstance(value, dict) else ()
    return {key.lower().replace("_", " "): member for key, member in members}


def _named(operator: object) -> str:
    return operator if isinstance(operator, str) else json.dumps(operator, ensure_ascii=False)


def merged_suggestions(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Put equal suggestions together, with their operators; those that most files have come first."""
    found: dict[tuple[str, str, str], list[Suggestion]] = {}
    for one in suggestions:
        found.setdefault((one.kind, one.rule, one.suggestion), []).append(one)
    files = Counter({key: sum(one.files for one in same) for key, same in found.items()})
    return [
        Suggestion(
            kind=kind, rule=rule, suggestion=text, files=number,
            operators=tuple(dict.fromkeys(name for one in found[kind, rule, text] for name in one.operators)),
        )
        for (kind, rule, text), number in files.most_common()
    ]  # fmt: skip

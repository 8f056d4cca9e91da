"""AOE's runtime knowledge bases of operators: what they hold, and what changed between two of them.

One file per SoC, core count and operator, one JSON object per line. Records are told apart by SoC, cores, operator and
their ``info_dict``; the ``id`` in a record repeats and is ignored, as by CANN's own reader. Both dictionaries are
opaque: every operator has its own fields. Source: CANN's reader and the knowledge bases that ship with ops-nn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from npuperf.documents.tuning import BankChange, BankChangeKind, BankDiff, FieldChange, Tuning
from npuperf.errors import InputError
from npuperf.files import read_input
from npuperf.folders import files_below
from npuperf.messages import Message, Parameter, say, say_n, series

#: Chips and operators become names of files where banks are merged: none may lead elsewhere.
_NAME: Final = re.compile(r"^(?P<soc>\w.*?)_(?P<cores>\d+)_AiCore_(?P<op>\w.*)_runtime_kb\.json$")
_OP: Final = re.compile(r"\w[\w.+-]{0,127}")
#: Why a bank may not show what a result claims.
ANOTHER_PLACE: Final = say(
    "was TUNE_BANK_PATH different, did another user tune (the default knowledge base is in "
    "the home folder), or does this version of CANN keep it elsewhere (~/Ascend/latest, "
    "~/Ascend/cann)?"
)
#: Rows that a message names.
_ROWS: Final = 5
_FIELDS: Final = ("info_dict", "knowledge")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a record is about; ``info`` is its info_dict as JSON text with sorted keys."""

    soc: str
    cores: int
    op: str
    info: str


@dataclass(frozen=True, slots=True)
class Record:
    """What the bank knows about a key."""

    knowledge: dict[str, Any]
    version: Any
    file: str
    row: int


@dataclass(slots=True)
class Bank:
    """All records of a bank; by file, the rows that are none (``bad``) and those that repeat a case (``twice``)."""

    path: Path
    files: list[str] = field(default_factory=list)
    records: dict[Key, Record] = field(default_factory=dict)
    unread: list[Message] = field(default_factory=list)
    bad: dict[str, list[int]] = field(default_factory=dict)
    twice: dict[str, list[int]] = field(default_factory=dict)

    def faults(self) -> list[Message]:
        """Say what is wrong, a line for each file."""
        repeated = [
            say(
                "{file}:{rows}: cases that are already in the file; the first one counts", file=file, rows=_listed(rows)
            )
            for file, rows in self.twice.items()
        ]
        return [*self.unread, *self.lines_without_record(), *repeated]

    def lines_without_record(self) -> list[Message]:
        """Name the lines that are no record, a line for each file."""
        return [
            say("{file}:{rows}: not a record: CANN refuses the whole file because of such a line",
                file=file, rows=_listed(rows))
            for file, rows in self.bad.items()
        ]  # fmt: skip


def read_bank(path: Path) -> Bank:
    """Read a bank: one file, or every ``*_runtime_kb.json`` below a folder. An empty folder is an empty bank.

    Raises InputError when there is nothing at ``path`` or a file has no bank's name.
    """
    if not path.exists():
        hint = say("give a knowledge base, or the folder that TUNE_BANK_PATH names")
        raise InputError(say("{path}: no such file or folder", path=str(path)), hint=hint)
    bank = Bank(path)
    if path.is_file():
        if not _NAME.match(path.name):
            hint = say(
                "the file name must give SoC, cores and operator, e.g. Ascend910B3_20_AiCore_MatMulV3_runtime_kb.json"
            )
            raise InputError(say("{path}: not a runtime knowledge base", path=str(path)), hint=hint)
        _read_file(path, bank)
        return bank
    for file in files_below(path, "*_runtime_kb.json", bank.unread):
        if _NAME.match(file.name):
            _read_file(file, bank)
    return bank


def compare(before: Bank, after: Bank) -> BankDiff:
    """Say which records were added, removed or changed, and which fields of their knowledge moved."""
    changes = []
    keys = sorted({*before.records, *after.records})
    for key in keys:
        old, new = before.records.get(key), after.records.get(key)
        if old is None or new is None:
            changes.append(_change(key, "removed" if new is None else "added", ()))
        elif moved := _moved(old, new):
            changes.append(_change(key, "changed", moved))
    return BankDiff(
        before=str(before.path),
        after=str(after.path),
        records_before=len(before.records),
        records_after=len(after.records),
        changes=tuple(changes),
        unchanged=len(keys) - len(changes),
        warnings=tuple(dict.fromkeys([*before.faults(), *after.faults(), *_other_cores(before, after)])),
    )


def _listed(rows: Sequence[int]) -> Parameter:
    some = series(rows[:_ROWS])
    more = len(rows) - _ROWS
    return say_n("{rows} and {n} more", "{rows} and {n} more", more, rows=some) if more > 0 else some


def add_bank(tuning: Tuning, diff: BankDiff) -> Tuning:
    """Return a tuning with what changed in the bank, and where the two disagree."""
    return replace(tuning, bank=diff, warnings=(*tuning.warnings, *check_claims(tuning, diff)))


def check_claims(tuning: Tuning, diff: BankDiff) -> list[Message]:
    """Compare what a result file says it wrote with what the bank shows."""
    summary = tuning.summary
    if summary is None or tuning.mode == "subgraph" or tuning.status != "successful":
        return []  # what ended early had not written its bank yet
    added, updated = summary.added, summary.updated
    seen = sum(c.change != "removed" for c in diff.changes)
    if seen == 0 and added + updated:
        return [
            say("the result file says {added} added and {updated} updated, but the knowledge base shows "
"none: {why}",
                added=added, updated=updated, why=ANOTHER_PLACE)
        ]  # fmt: skip
    if seen < added + updated:
        return [
            say("the result file says {added} added and {updated} updated, but the knowledge base shows "
"{seen}: several operators may share one case, or another knowledge base has the rest",
                added=added, updated=updated, seen=seen)
        ]  # fmt: skip
    return []


def _read_file(file: Path, bank: Bank) -> None:
    name = _NAME.match(file.name)
    assert name is not None
    bank.files.append(str(file))
    try:
        text = read_input(file).decode("utf-8-sig", "replace")
    except InputError as error:
        bank.unread.append(error.what)
        return
    for row, line in enumerate(text.split("\n"), 1):  # a text inside of a record may hold other separators
        record = _record(line)
        if record == {} or not line.strip():
            continue
        if record is None:
            bank.bad.setdefault(str(file), []).append(row)
            continue
        key = Key(name["soc"], int(name["cores"]), str(record.get("op", name["op"])), _canonical(record["info_dict"]))
        if key in bank.records:
            bank.twice.setdefault(str(file), []).append(row)
            continue
        bank.records[key] = Record(record["knowledge"], record.get("version"), str(file), row)


def _record(line: str) -> dict[str, Any] | None:
    """Return the record of a line; empty for the placeholder ``{}``, None for what is no record."""
    try:
        found = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or (found and not all(isinstance(found.get(f), dict) for f in _FIELDS)):
        return None
    if "op" in found and not _OP.fullmatch(str(found["op"])):
        return None
    return found


def _canonical(info: dict[str, Any]) -> str:
    """Return a dictionary as text: 1 and 1.0 are the same number, true is not 1."""
    return json.dumps({k: _plain(v) for k, v in info.items()}, sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _moved(old: Record, new: Record) -> tuple[FieldChange, ...]:
    """Return the fields that differ."""
    if repr((old.knowledge, old.version)) == repr((new.knowledge, new.version)):  # nearly always, and soon told
        return ()
    found = []
    for name in sorted({*old.knowledge, *new.knowledge}):
        values = [json.dumps(_plain(r.knowledge[name])) if name in r.knowledge else None for r in (old, new)]
        if values[0] != values[1]:
            found.append(FieldChange(field=name, before=values[0], after=values[1]))
    if old.version != new.version:
        found.append(FieldChange(field="version", before=json.dumps(old.version), after=json.dumps(new.version)))
    return tuple(found)


def _change(key: Key, change: BankChangeKind, fields: tuple[FieldChange, ...]) -> BankChange:
    return BankChange(soc=key.soc, cores=key.cores, op=key.op, info=key.info, change=change, fields=fields)


def core_counts(banks: Sequence[Bank]) -> dict[tuple[str, str], set[int]]:
    """Return for which numbers of cores every operator (SoC, operator) is tuned."""
    tuned: dict[tuple[str, str], set[int]] = {}
    for key in sorted({key for bank in banks for key in bank.records}):
        tuned.setdefault((key.soc, key.op), set()).add(key.cores)
    return tuned


def count_list(counts: Iterable[int]) -> Parameter:
    """Return numbers of cores as they stand in a sentence."""
    *some, last = sorted(counts)
    return say("{some} and {last}", some=series(some), last=last) if some else last


def _other_cores(before: Bank, after: Bank) -> list[Message]:
    """Warn where an operator is tuned for another number of cores: CANN looks only at the number that it runs with."""
    return [
        say("{op} on {soc} is tuned for {counts} cores: a core limit (limit_core_num) decides which is found",
            op=op, soc=soc, counts=count_list(counts))
        for (soc, op), counts in core_counts([before, after]).items()
        if len(counts) > 1
    ]  # fmt: skip

"""AOE's runtime knowledge bases of operators: what they hold, and what changed between two of them.

One file per SoC, core count and operator, one JSON object per line. Records are told apart by SoC, cores, operator and
their ``info_dict``; the ``id`` in a record repeats and is ignored, as by CANN's own reader. Both dictionaries are
opaque: every operator has its own fields. Source: CANN's reader and the knowledge bases that ship with ops-nn.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.files import files_below, read_input, write_atomically
from npuperf.base.messages import Message, Parameter, say, say_n, series
from npuperf.base.notes import read_object
from npuperf.model.tuning import (  # fmt: skip
    BankChange,
    BankChangeKind,
    BankDiff,
    BankUse,
    FieldChange,
    Merged,
    RolledBack,
    Status,
    Taken,
    Tuning,
)
from npuperf.tune.request import JobMode, ModelFile, TuningJob

#: Chips and operators become names of files where banks are merged: none may lead elsewhere.
_NAME: Final = re.compile(r"^(?P<soc>\w.*?)_(?P<cores>\d+)_AiCore_(?P<op>\w.*)_runtime_kb\.json$")
_OP: Final = re.compile(r"\w[\w.+-]{0,127}")
#: Why a bank may not show what a result claims.
_ANOTHER_PLACE: Final = say(
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
    files = [path] if path.is_file() else files_below(path, "*_runtime_kb.json", bank.unread)
    for file in files:
        name = _NAME.match(file.name)
        if name is None and path.is_file():
            hint = say(
                "the file name must give SoC, cores and operator, e.g. Ascend910B3_20_AiCore_MatMulV3_runtime_kb.json"
            )
            raise InputError(say("{path}: not a runtime knowledge base", path=str(path)), hint=hint)
        if name is None:
            continue
        bank.files.append(str(file))
        try:
            text = read_input(file).decode("utf-8-sig", "replace")
        except InputError as error:
            bank.unread.append(error.what)
            continue
        for row, line in enumerate(text.split("\n"), 1):  # a text inside of a record may hold other separators
            record = _record(line)
            if record is None:
                bank.bad.setdefault(str(file), []).append(row)
            if not record:
                continue
            op = str(record.get("op", name["op"]))
            info = {k: _plain(v) for k, v in record["info_dict"].items()}  # 1 and 1.0 are one number, true is not 1
            key = Key(name["soc"], int(name["cores"]), op, json.dumps(info, sort_keys=True, ensure_ascii=False))
            if key in bank.records:
                bank.twice.setdefault(str(file), []).append(row)
            else:
                bank.records[key] = Record(record["knowledge"], record.get("version"), str(file), row)
    return bank


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


def compare(before: Bank, after: Bank, place: Path | None = None) -> BankDiff:
    """Say which records were added, removed or changed, and which fields of their knowledge moved.

    ``place``: what is called the bank after, where ``after`` is a copy of it.
    """
    changes = []
    keys = sorted({*before.records, *after.records})
    for key in keys:
        old, new = before.records.get(key), after.records.get(key)
        change: BankChangeKind = "removed" if new is None else "added" if old is None else "changed"
        moved = _moved(old, new) if old and new else ()
        if moved or change != "changed":
            changes.append(
                BankChange(soc=key.soc, cores=key.cores, op=key.op, info=key.info, change=change, fields=moved)
            )
    # CANN looks only at the number of cores that an operator runs with.
    several = [
        say("{op} on {soc} is tuned for {counts} cores: a core limit (limit_core_num) decides which is found",
            op=op, soc=soc, counts=count_list(counts))
        for (soc, op), counts in core_counts([before, after]).items()
        if len(counts) > 1
    ]  # fmt: skip
    return BankDiff(
        before=str(before.path),
        after=str(place or after.path),
        records_before=len(before.records),
        records_after=len(after.records),
        changes=tuple(changes),
        unchanged=len(keys) - len(changes),
        warnings=tuple(dict.fromkeys([*before.faults(), *after.faults(), *several])),
    )


def _listed(rows: Sequence[int]) -> Parameter:
    some = series(rows[:_ROWS])
    more = len(rows) - _ROWS
    return say_n("{rows} and {n} more", "{rows} and {n} more", more, rows=some) if more > 0 else some


def claims(tuning: Tuning, status: Status, diff: BankDiff) -> list[Message]:
    """Say where the bank does not show what a result file says it wrote, if tuning came to its end."""
    summary, seen = tuning.summary, sum(c.change != "removed" for c in diff.changes)
    if summary is None or tuning.mode == "subgraph" or status != "successful":
        return []  # what ended early had not written its bank yet
    added, updated = summary.added, summary.updated
    if seen == 0 and added + updated:
        return [say("the result file says {added} added and {updated} updated, but the knowledge base shows none: "
                    "{why}", added=added, updated=updated, why=_ANOTHER_PLACE)]  # fmt: skip
    if seen < added + updated:
        return [say("the result file says {added} added and {updated} updated, but the knowledge base shows "
                    "{seen}: several operators may share one case, or another knowledge base has the rest",
                    added=added, updated=updated, seen=seen)]  # fmt: skip
    return []


def changes_by(
    tuning: Tuning, status: Status, folder: Path, place: Path, mode: JobMode, cores: int | None
) -> tuple[BankDiff | None, list[Message]]:
    """Return what a tuning run in ``folder`` changed in the bank in ``place``, and what there is to say of it: above
    all where its results claim what the bank does not show. ``cores``: of the chip that the bank is for, if known.
    """
    shutil.rmtree(folder / "bank_after", ignore_errors=True)
    try:
        before, after = folder / "bank_before", snapshot(place, folder / "bank_after", None)
        if mode == "subgraph":
            return None, _subgraph_changes(tuning, status, place, hashes(before), hashes(after))
        old, new = read_bank(before), read_bank(after)
    except InputError as error:
        return None, [say("not compared with the knowledge base: {why}", why=error.what)]
    told = []
    # Nothing in the bank may be for the number of cores that the profile's program ran with.
    counts = {key.cores for key in new.records}
    if counts and cores is not None and cores not in counts:
        told = [say("the knowledge base is for {counts} cores, but the profile's chip has {cores}: CANN looks "
                    "for records for the chip's own number of cores",
                    counts=count_list(counts), cores=cores)]  # fmt: skip
    diff = compare(old, new, place)
    return diff, [*told, *claims(tuning, status, diff)]


def _subgraph_changes(
    tuning: Tuning, status: Status, place: Path, before: Mapping[str, str], after: Mapping[str, str]
) -> list[Message]:
    changed = sum(before.get(name) != digest for name, digest in after.items())
    claimed = tuning.summary.added + tuning.summary.updated if tuning.summary else 0
    if claimed and not changed and status == "successful":
        return [say_n("the result file says {n} subgraph added or updated, but no file in {place} changed: {why}",
                      "the result file says {n} subgraphs added or updated, but no file in {place} changed: {why}",
                      claimed, place=str(place), why=_ANOTHER_PLACE)]  # fmt: skip
    return [say("the subgraph knowledge base {place}: {changed} of {all} files are new or changed (their content "
                "cannot be read)", place=str(place), changed=changed, all=len(after))]  # fmt: skip


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


# -- Where AOE's knowledge bases lie, and what npuperf does to them: snapshots, merging, going back.

#: Beside a merged or snapshot bank: which version of CANN its records come from.
ORIGIN: Final = "npuperf-bank.json"


def winning_place(
    kind: str, bank: Path | None, environment: Mapping[str, str], home: Path, cann: str | None = None
) -> Path:
    """Return where AOE will write a bank (``op`` or ``graph``).

    ``TUNE_BANK_PATH``, then ``ASCEND_CACHE_PATH``, then the home: below ``cann`` since CANN 9.0 (inferred from its
    sources of 2026), below ``latest`` before; the one that exists, where only one does.
    """
    if bank or environment.get("TUNE_BANK_PATH"):
        return bank or Path(environment["TUNE_BANK_PATH"])
    if environment.get("ASCEND_CACHE_PATH"):
        return Path(environment["ASCEND_CACHE_PATH"]) / "aoe_data"
    defaults = default_places(kind, home)
    if re.match(r"(9|\d\d)\.", cann or ""):
        defaults.reverse()
    return next((p for p in defaults if p.is_dir()), defaults[0])


def default_places(kind: str, home: Path) -> list[Path]:
    """Return where banks lie where no variable says so: of older CANN, then of newer."""
    return [home / "Ascend" / version / "data/aoe/custom" / kind for version in ("latest", "cann")]


def graph_bank(place: Path, soc: str | None) -> Path:
    """Return what TUNE_BANK_PATH names for a bank of subgraphs: in the home it has a folder for each SoC."""
    return place / soc if soc and (place / soc).is_dir() else place


def snapshot(place: Path, target: Path, cann: str | None) -> Path:
    """Copy a bank as it is now; an absent one gives an empty folder. Raises InputError."""
    with _copying(place, target):
        target.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            shutil.copytree(place, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    if not (target / ORIGIN).exists():
        note = {"place": str(place), "cann": cann, "snapshot": True}
        write_atomically(target / ORIGIN, json.dumps(note) + "\n")
    return target


def refuse_inside(target: Path, place: Path) -> None:
    """Raise InputError where something would be put into the bank that is copied."""
    if target.resolve().is_relative_to(place.resolve()):
        what = say("{target}: is inside the knowledge base {place}", target=str(target), place=str(place))
        raise InputError(what, hint=say("choose another --run, or another knowledge base"))


@contextlib.contextmanager
def _copying(place: Path, target: Path) -> Iterator[None]:
    """Say in one line what went wrong with a copy, and refuse one into itself."""
    refuse_inside(target, place)
    try:
        yield
    except OSError as error:
        why: Parameter | None = error.strerror
        if not why:  # a tree's copy lists what went wrong with every file
            faults = error.args[0]
            first = str(faults[0][2])
            why = say_n("{n} file: {first}", "{n} files, the first: {first}", len(faults), first=first)
        what = say("{place}: cannot be copied to {target}: {why}", place=str(place), target=str(target), why=why)
        raise InputError(what) from error


def hashes(place: Path) -> dict[str, str]:
    """Return the digest of every file of a bank: all that can be said of subgraph banks, which are opaque.

    Raises InputError where one cannot be read.
    """
    files = (f for f in sorted(place.rglob("*")) if f.is_file() and f.name != ORIGIN) if place.is_dir() else ()
    return {str(f.relative_to(place)): hashlib.sha256(read_input(f)).hexdigest() for f in files}


def origin(place: Path) -> str | None:
    """Return the version of CANN that a bank's records come from, as npuperf noted it."""
    found = read_object(place / ORIGIN).get("cann")
    return str(found) if found else None


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Merge banks of operators into a folder; what is there already wins, then the first source, and so on.

    Refuses banks of several SoCs, of several core counts for one operator, of several versions of CANN, and banks with
    files or lines that cannot be read. What is there is backed up first. Raises UsageError.
    """
    banks = [read_bank(path) for path in sources]
    local = read_bank(into) if into.is_dir() else Bank(into)
    _check_alike([local, *banks], [into, *sources])
    backup = _back_up(into) if local.files else None
    merged = dict(local.records)
    taken, conflicts = [], 0
    for bank in banks:
        new = [key for key in bank.records if key not in merged]
        both = (key for key in bank.records if key in merged)
        conflicts += sum(bank.records[key].knowledge != merged[key].knowledge for key in both)
        merged.update({key: bank.records[key] for key in new})
        taken.append(Taken(source=str(bank.path), records=len(new)))
    files: dict[Path, list[str]] = {}  # one per SoC, cores and operator, as CANN reads them
    for number, (key, record) in enumerate(sorted(merged.items(), key=lambda item: item[0])):
        name = f"{key.soc}_{key.cores}_AiCore_{key.op}_runtime_kb.json"
        line = {"id": number, "info_dict": json.loads(key.info), "knowledge": record.knowledge}
        text = json.dumps({**line, "op": key.op, "version": record.version})  # ASCII: half a character can be told
        files.setdefault(into / key.soc / "unified_bank" / name, []).append(text)
    for file, lines in files.items():
        write_atomically(file, "\n".join(lines) + "\n")
    for file in {*map(Path, local.files)} - {*files}:  # their records now stand elsewhere
        file.unlink()
    known = [o for o in map(origin, [into, *sources]) if o]
    unknown = [str(bank.path) for bank in [local, *banks] if bank.records and not origin(bank.path)]
    cann = known[0] if known and not unknown else None
    write_atomically(into / ORIGIN, json.dumps({"place": str(into), "cann": cann}) + "\n")
    unchecked = say(
        "{banks}: do not say which version of CANN they come from, so it was not checked that the versions agree",
        banks=series(unknown),
    )
    return Merged(
        into=str(into),
        records=len(merged),
        taken=tuple(taken),
        conflicts=conflicts,
        backup=str(backup) if backup else None,
        warnings=(unchecked,) if unknown else (),
    )


def _check_alike(banks: Sequence[Bank], places: Sequence[Path]) -> None:
    for fault in [fault for bank in banks for fault in [*bank.unread, *bank.lines_without_record()]]:
        raise UsageError(fault, hint=say("repair it first"))
    empty = [p for p, bank in zip(places[1:], banks[1:], strict=True) if not bank.records]
    if empty:
        what = say("{path}: has no records of a runtime knowledge base", path=str(empty[0]))
        raise InputError(what, hint=say("records are in *_runtime_kb.json files"))
    socs = sorted({key.soc for bank in banks for key in bank.records})
    if len(socs) > 1:
        what = say("knowledge bases of different chips: {socs}", socs=series(socs))
        raise UsageError(what, hint=say("merge knowledge bases of one chip"))
    for (_, op), counts in core_counts(banks).items():
        if len(counts) > 1:
            what = say("{op} is tuned for {counts} cores", op=op, counts=count_list(counts))
            raise UsageError(what, hint=say("merge knowledge bases of one core count"))
    versions = sorted({v for v in map(origin, places) if v})
    if len(versions) > 1:
        hint = say("tune again with one version: the knowledge base of one version is not valid for another")
        raise UsageError(
            say("knowledge bases of different versions of CANN: {versions}", versions=series(versions)), hint=hint
        )


def _back_up(place: Path) -> Path:
    """Copy a bank beside itself, under the first free name."""
    place = place.absolute()
    number = 1
    while (target := place.with_name(f"{place.name}.before-{number}")).exists():
        number += 1
    with _copying(place, target):
        shutil.copytree(place, target, ignore_dangling_symlinks=True)
    return target


def roll_back(saved: Path, place: Path) -> RolledBack:
    """Put a bank back as a snapshot has it; what is there now is backed up.

    Raises InputError; by then the backup is whole.
    """
    backup = _back_up(place) if place.is_dir() and any(place.iterdir()) else None
    with _copying(saved, place):
        for path in _contents(place):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        place.mkdir(parents=True, exist_ok=True)
        for path in _contents(saved):
            if path.name != ORIGIN or "snapshot" not in read_object(path):  # else a note that only the snapshot got
                shutil.copytree(path, place / path.name) if path.is_dir() else shutil.copy2(path, place / path.name)
    return RolledBack(place=str(place), backup=str(backup) if backup else None)


def _contents(folder: Path) -> Iterable[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else ()


# -- How a program uses what was tuned: where the bank is found, and what must be built anew once.
#
# Facts: programs look where TUNE_BANK_PATH says, then in the default folder of their user; kernels that lie compiled
# in a cache hide a bank until ``op_compiler_cache_mode`` is ``force`` once, which deletes that cache.


def bank_use(job: TuningJob, place: Path) -> BankUse:
    """Say how to use the bank in ``place``, which a job has filled, by what builds the operators."""
    root = place.absolute()
    if isinstance(job.source, ModelFile):
        how = say("convert the model again, once with {option}", option="atc --op_compiler_cache_mode=force")
    elif job.in_adapter:
        option = 'parameter_map["op_compiler_cache_mode"].s = tf.compat.as_bytes("force")'
        how = say("run once with {option}", option=option)
    else:
        option = 'torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})'
        how = say("run once with {option} before the first operator (it is for operators that are compiled; aclnn's "
                  "are built already)", option=option)  # fmt: skip
    after = say(
        "force deletes the cache of compiled operators: not while other builds share it, and afterwards set enable"
    )
    default = root in default_places("op" if job.mode == "op" else "graph", Path.home())
    return BankUse(
        place=str(root),
        export=None if default else f"export TUNE_BANK_PATH={for_shell(str(root))}",
        refresh=say("{how}; {after}", how=how, after=after),
    )

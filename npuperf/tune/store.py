"""Where AOE's knowledge bases lie, and what npuperf does to them: snapshots, merging, going back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from npuperf.documents.tuning import Merged, RolledBack, Taken
from npuperf.errors import InputError, UsageError
from npuperf.files import read_input, write_atomically
from npuperf.messages import Parameter, say, say_n, series
from npuperf.notes import read_object
from npuperf.tune.bank import Bank, Key, Record, core_counts, count_list, read_bank

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
        what = say(
            "{place}: cannot be copied to {target}: {why}", place=str(place), target=str(target), why=_why(error)
        )
        raise InputError(what) from error


def _why(error: OSError) -> Parameter:
    """Say what went wrong with a copy; a tree's copy lists what went wrong with every file."""
    if error.strerror:
        return error.strerror
    faults = error.args[0]
    return say_n("{n} file: {first}", "{n} files, the first: {first}", len(faults), first=str(faults[0][2]))


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
    _write(into, merged, local.files)
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


def _write(into: Path, merged: Mapping[Key, Record], before: Sequence[str]) -> None:
    """Write one file per SoC, cores and operator, as CANN reads them; ``before``: the files that were read there."""
    files: dict[Path, list[str]] = {}
    for number, (key, record) in enumerate(sorted(merged.items(), key=lambda item: item[0])):
        name = f"{key.soc}_{key.cores}_AiCore_{key.op}_runtime_kb.json"
        line = {"id": number, "info_dict": json.loads(key.info), "knowledge": record.knowledge}
        text = json.dumps({**line, "op": key.op, "version": record.version})  # ASCII: half a character can be told
        files.setdefault(into / key.soc / "unified_bank" / name, []).append(text)
    for file, lines in files.items():
        write_atomically(file, "\n".join(lines) + "\n")
    for file in {*map(Path, before)} - {*files}:  # their records now stand elsewhere
        file.unlink()


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

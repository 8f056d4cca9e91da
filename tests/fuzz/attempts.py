"""One attempt: a sound input, damage by a seed, the command, and what the oracle says. A name repeats it exactly."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import mutators
import pytest
import truths
import typer.main
import ways
from bases import KINDS, Kind
from looks import wrong_files
from mutators import Mutator
from oracle import complaint, false_in, ill_formed, misshapen, parsed, rows_lost, snapshot, span_of, tasks_of, told
from truths import Truth

from npuperf.cli import main

# The commands are made of their functions once, not for each attempt anew.
typer.main.get_command = functools.cache(typer.main.get_command)

FORMATS = ("text", "markdown", "csv")
#: What a command may leave in a run directory.
_OURS = ("analysis", ".cache")


@dataclass(frozen=True)
class Outcome:
    """How an attempt went; ``failure``: what should not be. ``detail``: of the first run that failed."""

    name: str
    damage: str
    failure: str | None = None
    detail: str = ""
    code: int | None = None


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str


def attempt(name: str, room: Path) -> Outcome:
    """Make one attempt, named KIND/NUMBER, within a folder that is emptied before; ``input`` stays there."""
    shutil.rmtree(room, ignore_errors=True)
    root, scratch = room / "input", room / "scratch"
    root.mkdir(parents=True)
    scratch.mkdir()
    kind, rng = KINDS[name.partition("/")[0]], Random(name)
    os.chdir(room)
    try:
        sound = sound_answer(name.partition("/")[0], room)
    except AssertionError as error:
        return Outcome(name, "none", f"SOUND INPUT REFUSED {error}")
    kind.build(root)
    damage, keeps, truth = do_damage(name, kind, rng, root)
    before = snapshot(root)
    with (
        patch.dict(os.environ, {"TMPDIR": str(scratch), "HOME": str(scratch)}),
        patch.object(tempfile, "tempdir", None),
    ):
        code, failure, detail = judged(rng, kind, root, sound, keeps, truth)
    failure = failure or read_differently(root, Random(name))
    after = {
        path: content
        for path, content in snapshot(root).items()
        if path in before or not set(_OURS) & set(Path(path).parts)
    }
    if kind.writes:
        before, after = (
            {path: content for path, content in there.items() if not path.startswith(kind.writes)}
            for there in (before, after)
        )
    if failure is None and after != before:
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        failure, detail = f"CHANGED INPUT {changed[0]!r}", str([(before.get(p), after.get(p)) for p in changed])
    left = sorted(path.name for path in scratch.iterdir())
    if failure is None and left:
        failure = f"LEFT BEHIND {left}"
    return Outcome(name, damage, failure, detail, code)


def judged(
    rng: Random, kind: Kind, root: Path, sound: Any, keeps: bool, truth: Truth | None
) -> tuple[int, str | None, str]:
    """Run the command for JSON, and where that went well for a format to be looked at."""
    words = [word.format(root=root) for word in kind.command]
    ran = run([*words, "--format", "json"])
    detail = ran.stderr
    failure = complaint(ran.code, ran.stdout, ran.stderr)
    if failure and failure.startswith("INTERNAL"):
        detail = run([*words, "--format", "json", "--debug"]).stderr
        failure = f"{failure} at {last_place(detail)}"
    elif not failure:
        failure = wrong_answer(ran, kind.schema, sound, keeps, truth) or ill_formed(root.parent / "junit.xml", ran.code)
    if failure or ran.code not in (0, 1, 4):
        return ran.code, failure, detail
    format_, more = rng.choice(FORMATS), rng.choice(((), ("--full",))) if words[0] == "analyze" else ()
    if format_ == "csv" and words[0] == "analyze":
        more = ("--table", rng.choice(("operators", "kernels", "phases", "findings", "inputs", "steps")))
    with patch.dict(os.environ, {"COLUMNS": rng.choice(("0", "20", "80", "120", "400"))}):
        shown = run([*words, "--format", format_, *more])
    failure = complaint(shown.code, shown.stdout, shown.stderr)
    if not failure and shown.code in (0, 1, 4):
        failure = misshapen(format_, shown.stdout)
    elif failure and failure.startswith("INTERNAL"):
        detail = run([*words, "--format", format_, *more, "--debug"]).stderr
        failure = f"{failure} at {last_place(detail)}"
    if failure is None:
        return ran.code, *looked_at(rng, kind, words, root.parent / "pages", ran.code)
    return ran.code, failure, f"{format_} {more}\n{shown.stdout}\n{shown.stderr}\n{detail}"


def read_differently(root: Path, rng: Random) -> str | None:
    """Say which trace tells something else to the compiled reader than decoded."""
    size = rng.choice((300, 1_000, 4_000, 20_000))
    for path in sorted(path for path in root.rglob("*trace*.json*") if path.is_file() and not path.is_symlink()):
        with pytest.MonkeyPatch.context() as way:
            ways.in_small_pieces(way, size)
            compiled = ways.told(path)
            ways.decoded_only(way)
            if ways.told(path) != compiled:
                return f"DECODED pieces of {size} B tell something else of {path.name}"
    return None


def looked_at(rng: Random, kind: Kind, words: list[str], folder: Path, code: int) -> tuple[str | None, str]:
    """Have a page and traces written, in Chinese as likely as not, and look at them; what else was said is the same."""
    folder.mkdir()
    asked = ["--html", str(folder / "page.html"), "--lang", rng.choice(("zh", "en"))]
    if words[0] == "analyze":
        asked += ["--trace", str(folder / rng.choice(("overlay.json", "overlay.json.gz")))]
        asked += ["--trace-full", str(folder / rng.choice(("full.json", "full.json.gz")))]
    ran = run([*words, *asked])
    failure = complaint(ran.code, ran.stdout, ran.stderr) or wrong_files(folder, ran.code)
    whole = len([*folder.iterdir()]) == sum(word.startswith("--") for word in asked) - 1
    if failure and failure.startswith("INTERNAL"):
        detail = run([*words, *asked, "--force", "--debug"]).stderr
        return f"{failure} at {last_place(detail)}", detail
    if not failure and ran.code not in ((code,) if whole else (2, 3)) and not kind.writes:
        failure = f"CODE {ran.code} with a page, {code} without"
    return failure, "" if failure is None else f"{asked}\n{ran.stderr}"


def wrong_answer(ran: Ran, schema: str, sound: Any, keeps: bool, truth: Truth | None) -> str | None:
    """Say what is wrong with the document, and with what it says of the reading."""
    if ran.code not in (0, 1, 4):
        return None if truth is None else f"NOTHING LEFT with {ran.code} after {truth.what}"
    try:
        document = parsed(ran.stdout)
    except ValueError as error:
        return f"NO JSON {str(error)[:100]}"
    failure = false_in(document, schema)
    if failure or schema != "result":
        return failure
    lost, silent = tasks_of(sound) - tasks_of(document), told(document) == told(sound)
    if truth is not None:
        if lost != truth.gone:
            return f"{lost} TASKS GONE, not {truth.gone}, after {truth.what}"
        rows = rows_lost(document, truth.table)
        if truth.told not in (None, rows):
            return f"{rows} ROWS TOLD, not {truth.told}, after {truth.what}"
        if span_of(document) > span_of(sound):
            return f"A LONGER SPAN after {truth.what}"
        if truth.told is None and silent:
            return f"NOT A WORD after {truth.what}"
    return f"SILENT LOSS of {lost} tasks" if keeps and lost > 0 and silent else None


def do_damage(name: str, kind: Kind, rng: Random, root: Path) -> tuple[str, bool, Truth | None]:
    """Damage an input; return with what, whether all tasks are still there, and what is known of the consequence."""
    places = sorted(path for path in root.glob(kind.damaged) if "folder" in name or path.is_file())
    path = rng.choice(places)
    spoilers = truths.FILES.get(name.partition("/")[0]) or truths.DATABASES.get(name.partition("/")[0]) or ()
    if spoilers and rng.random() < 0.3:
        truth = spoil(rng.choice(spoilers), rng, path)
        return truth.what, False, truth
    if "folder" in name:
        done = [act_on_folder(rng, places) for _ in range(rng.choice((1, 1, 2, 4)))]
    elif rng.random() < 0.25 or path.suffix == ".pickle":
        done = act_on_bytes(rng, path, mutators.BYTES)
    else:
        done = STRUCTURES[path.suffix if path.suffix in STRUCTURES else ".json"](rng, path)
    return f"{path.relative_to(root)}: {', '.join(m.name for m in done)}", all(m.keeps for m in done), None


def spoil(spoiler: truths.Spoiler, rng: Random, path: Path) -> Truth:
    if path.suffix != ".db":
        return spoiler(rng, path)
    with opened(path) as db:
        return spoiler(rng, db)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db:
        yield db
        db.commit()


def act_on_bytes(rng: Random, path: Path, register: list[Mutator]) -> list[Mutator]:
    chosen = rng.choices(register, k=rng.choice((1, 1, 2)))
    data = path.read_bytes()
    for mutator in chosen:
        data = mutator.act(rng, data)
    path.write_bytes(data)
    return chosen


def act_on_table(rng: Random, path: Path) -> list[Mutator]:
    chosen, rows = rng.choices(mutators.TABLE, k=rng.choice((1, 1, 2))), mutators.parse_table(path.read_bytes())
    for mutator in chosen:
        rows = mutator.act(rng, rows) if len(rows) > 1 and rows[0] else rows
    path.write_bytes(mutators.table_bytes(rows))
    return chosen


def act_on_tree(rng: Random, path: Path) -> list[Mutator]:
    chosen, tree = rng.choices(mutators.TREE, k=rng.choice((1, 1, 2))), json.loads(path.read_bytes())
    for mutator in chosen:
        tree = mutator.act(rng, tree)
    path.write_bytes(mutators.json_bytes(tree))
    return chosen


def act_on_packed(rng: Random, path: Path) -> list[Mutator]:
    plain = path.with_suffix("")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    chosen = act_on_tree(rng, plain)
    path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return chosen


def act_on_lines(rng: Random, path: Path) -> list[Mutator]:
    chosen, lines = rng.choices(mutators.LINES, k=rng.choice((1, 1, 3))), path.read_text().splitlines()
    for mutator in chosen:
        lines = mutator.act(rng, lines) or [""]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return chosen


def act_on_records(rng: Random, path: Path) -> list[Mutator]:
    """Damage one line of a file with an object on each."""
    lines = path.read_bytes().splitlines()
    chosen, at = rng.choice(mutators.TREE), rng.randrange(len(lines))
    lines[at] = mutators.json_bytes(chosen.act(rng, json.loads(lines[at])))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return [chosen]


def act_on_json(rng: Random, path: Path) -> list[Mutator]:
    return (act_on_records if path.name.endswith("_runtime_kb.json") else act_on_tree)(rng, path)


def act_on_database(rng: Random, path: Path) -> list[Mutator]:
    chosen = rng.choices(mutators.DATABASE, k=rng.choice((1, 1, 2, 3)))
    with opened(path) as db:
        for mutator in chosen:
            with contextlib.suppress(sqlite3.Error, IndexError):  # the one before may have taken what this one wants
                mutator.act(rng, db)
    return chosen


STRUCTURES = {
    ".log": act_on_lines, ".lock": act_on_lines,
    ".csv": act_on_table, ".json": act_on_json, ".gz": act_on_packed, ".yaml": act_on_lines, ".db": act_on_database,
}  # fmt: skip


def act_on_folder(rng: Random, places: list[Path]) -> Mutator:
    mutator = rng.choice(mutators.FOLDER)
    there = [path for path in places if os.path.lexists(path) and not path.is_symlink()]
    if there:
        with contextlib.suppress(OSError):
            mutator.act(rng, rng.choice(there))
    return mutator


_SOUND: dict[str, Any] = {}


def sound_answer(name: str, room: Path) -> Any:
    """Return what is said of the input before it is damaged; worked out once."""
    if name not in _SOUND:
        kind, root = KINDS[name], room / "input"
        kind.build(root)
        ran = run([*(word.format(root=root) for word in kind.command), "--format", "json"])
        if ran.code:
            raise AssertionError(f"{name}: the sound input is refused with {ran.code}: {ran.stderr}")
        _SOUND[name] = json.loads(ran.stdout)
        shutil.rmtree(root)
        root.mkdir()
    return _SOUND[name]


def run(words: list[str]) -> Ran:
    """Run a command in this process, its output encoded as a terminal's is."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("replace", "backslashreplace"))
    code: Any = 0
    with contextlib.ExitStack() as around:
        around.enter_context(patch.object(sys, "argv", ["npuperf", *words]))
        around.enter_context(patch.dict(os.environ, {"NPUPERF_NO_CACHE": "1"}))
        around.enter_context(contextlib.redirect_stdout(out))
        around.enter_context(contextlib.redirect_stderr(err))
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", RuntimeWarning)
        try:
            main()
        except SystemExit as left:
            code = left.code
        except BaseException:  # nothing but SystemExit leaves main
            traceback.print_exc()
            code = 70
    found = []
    for stream in (out, err):
        stream.flush()
        found.append(stream.buffer.getvalue().decode("utf-8", "surrogateescape"))  # type: ignore[attr-defined]
    return Ran(code if isinstance(code, int) else 0 if code is None else 1, *found)


def last_place(trace: str) -> str:
    """Return the innermost line of ours in a traceback."""
    lines = [line.strip() for line in trace.splitlines() if "/npuperf/" in line and line.strip().startswith("File")]
    return lines[-1].rpartition("/npuperf/")[2].replace('", line ', ":") if lines else "?"

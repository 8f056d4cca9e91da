"""Change single places of a room's code, each alone, and see whether the tests notice: make mutants ROOM=job.

Places are drawn among those that the room's tests run, and mutants are written into a copy of the checkout. Of every
test it is known which lines it reaches: a mutant meets those that reach it alone, the quickest first. One that passes
is printed, unless explained.txt says why it is none, or why nobody need notice. See CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import importlib
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import changes
import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "npuperf-mutants")
EXPLAINED = Path(__file__).with_name("explained.txt")
SKIPPED = (".git", ".venv*", ".*_cache", "*.egg-info", "fuzz-found", "result", "dist", "build")
#: How pytest runs in one process, whatever was loaded before it.
ALONE = ("-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
#: What all tests load, of others: they run in copies of the process that has it.
WARM = ("numpy", "pandas", "pyarrow.compute", "pyarrow.csv", "msgspec", "typer.main", "rich.console")
#: Tests of a room that lie elsewhere.
ELSEWHERE = {
    "advise": ["tests/job/test_cluster_findings.py"],
    "base": ["tests/test_files.py", "tests/test_notes.py", "tests/test_parallel.py", "tests/test_streams.py"],
    "model": ["tests/against/test_noise.py", "tests/device"],
    "cli": ["tests/test_api.py"],
}
#: ROOM=maxplus: changes of the compiled program of the replay.
MAXPLUS = """a > b ? a : b -> a < b ? a : b
== NEVER ? LONG_AGO -> == NEVER ? NEVER
< (uint64_t)clocks -> <= (uint64_t)clocks
: clocks - 1) -> : 0)
later(done, LONG_AGO) -> later(done, done)
if (at < 0) -> if (at <= 0)
place ? place[i] : i -> i
sum(begin, DELAY(DUR_NS)) -> begin
, ARM(before, OVERLAP_NS)) -> , begin)
DELAY(EXTRA_NS)); -> 0);
i < count; -> i < count - 1;
clock[CLOCK(SAVE)] = done -> (void)done
start[at] = begin -> start[at] = done
clock[stream] = done -> (void)done
== 4 ? -> != 2 ?
(host, LAUNCH_NS) -> (host, GAP_NS)
clock[CLOCK(WAITED)], WAITED_NS -> clock[CLOCK(WAITED)], HOST_NS"""

Lines = dict[str, set[int]]


@dataclass
class Reached:
    """What a test reaches of a room, lines by file; its CPU seconds; the shared fixtures that it needs."""

    seconds: float = 0.0
    lines: Lines = field(default_factory=lambda: defaultdict(set))
    fixtures: tuple[str, ...] = ()
    passed: bool = False


class Recorder:
    """A plugin of pytest that notes which lines of a room each test runs, and each shared fixture."""

    def __init__(self, package: Path, room: str) -> None:
        self.package, self.room = f"{package}{os.sep}", f"{package / room}{os.sep}"
        self.tests: dict[str, Reached] = {}
        self.fixtures: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        self.now: Lines = defaultdict(set)

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self.room):
            return None
        if event == "line":
            self.now[frame.f_code.co_filename[len(self.package) :]].add(frame.f_lineno)
        return self._trace

    @contextlib.contextmanager
    def _into(self, lines: Lines) -> Iterator[None]:
        before, self.now = self.now, lines
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            yield
        finally:
            self.now = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        reached, start = self.tests.setdefault(item.nodeid, Reached()), time.process_time()
        known = item._fixtureinfo.name2fixturedefs
        reached.fixtures = tuple(f"{d[-1].baseid}:{name}" for name, d in known.items() if d[-1].scope != "function")
        with self._into(reached.lines):
            done = yield
        reached.seconds = time.process_time() - start
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self._into(self.fixtures[f"{fixturedef.baseid}:{fixturedef.argname}"]):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.tests[report.nodeid].passed = report.passed

    def known(self) -> dict[str, Reached]:
        """Return what tests reach that passed."""
        for test in self.tests.values():
            for name in test.fixtures:
                for path, lines in self.fixtures.get(name, {}).items():
                    test.lines[path] |= lines
        return {n: Reached(t.seconds, dict(t.lines), t.fixtures, True) for n, t in self.tests.items() if t.passed}


class Chosen:
    """A plugin of pytest that keeps some tests, in an order."""

    def __init__(self, names: list[str]) -> None:
        self.order = {name: at for at, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])


def in_a_copy(tree: Path, seconds: float, run: Callable[[], int]) -> int:
    """Run something in a copy of this process, in a tree; return its status, or -9 if it took longer."""
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for mine, other in ((0, os.open(os.devnull, os.O_RDONLY)), (1, said), (2, said)):
            os.dup2(other, mine)
        status = 70
        try:
            status = run()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    last, done, status = time.monotonic() + seconds, 0, signal.SIGKILL
    while not done and time.monotonic() < last:
        time.sleep(0.02)
        done, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # it, or what it started and left
    return os.waitstatus_to_exitcode(status if done else os.waitpid(pid, 0)[1])


def recorded(tree: Path, room: str, file: Path) -> dict[str, Reached]:
    """Return what the tests of a file reach of a room, which is kept until either changes."""
    sources = [file, *sorted((tree / "npuperf" / room).rglob("*.py"))]
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    kept = KEPT / f"{room}-{file.stem}-{digest}"

    def run() -> int:
        recorder = Recorder(tree / "npuperf", room)
        status = pytest.main([*ALONE, str(file.relative_to(tree))], plugins=[recorder])
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(recorder.known()))
        return int(status)

    if not kept.exists() and in_a_copy(tree, 3600, run) not in (0, 1, 5):
        sys.exit(f"{file}: {(tree / 'said.txt').read_text()[-2000:]}")
    return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Mutant:
    """A file with a change, and the tests that reach it."""

    path: str
    line: int
    old: bytes
    new: bytes
    tests: tuple[str, ...]

    def diff(self) -> list[str]:
        """Return the lines that differ."""
        old, new = self.old.decode().splitlines(), self.new.decode().splitlines()
        return [d for d in difflib.unified_diff(old, new, n=0, lineterm="") if not re.match(r"---|\+\+\+|@@", d)]

    def name(self) -> str:
        """Return its name in explained.txt, wherever lines move."""
        return f"{self.path}: " + " ".join(f"{d[0]} {d[1:].strip()}" for d in self.diff())


def reaching(change: changes.Change, path: str, source: bytes, tests: dict[str, Reached]) -> list[str]:
    """Return the tests that reach a place, the quickest first; of one that importing runs, those that use its names."""
    wanted = [{change.line}, {change.statement}]
    if not change.inside:
        uses = re.compile(rb"\b(%s)\b" % "|".join(change.names or ("$^",)).encode())
        wanted = [{at for at, line in enumerate(source.splitlines(), 1) if uses.search(line)}, set(range(10**5))]
    found = (sorted(n for n, t in tests.items() if lines & t.lines.get(path, set())) for lines in wanted)
    return sorted(next(filter(None, found), []), key=lambda name: tests[name].seconds)


def mutants(tree: Path, room: str, tests: dict[str, Reached], chance: random.Random) -> Iterator[Mutant]:
    """Draw mutants: lines first, all alike, then one of the changes of a line."""
    if room == "maxplus":
        path, source = "device/maxplus.c", (tree / "npuperf/device/maxplus.c").read_bytes()
        reach = (n for n, t in tests.items() if "test_programs" in n or "device/maxplus.py" in t.lines)
        names = sorted(reach, key=lambda n: tests[n].seconds)
        for old, new in (pair.encode().split(b" -> ") for pair in MAXPLUS.splitlines()):
            line = source[: source.index(old)].count(b"\n") + 1
            yield Mutant(path, line, source, source.replace(old, new, 1), tuple(names))
        return
    places = defaultdict(list)
    for file in sorted((tree / "npuperf" / room).rglob("*.py")):
        path, source = file.relative_to(tree / "npuperf").as_posix(), file.read_bytes()
        for change in changes.changes(source):
            places[path, change.line].append((change, source))
    for path, line in chance.sample(sorted(places), len(places)):
        change, source = chance.choice(places[path, line])
        if names := reaching(change, path, source, tests):
            yield Mutant(path, line, source, change.apply(source), tuple(names))


def put(file: Path, text: bytes) -> None:
    """Write a file, and the library made of it; bytecode is known by its source's time, so that is new."""
    file.write_bytes(text)
    os.utime(file, (put.moment, put.moment))  # type: ignore[attr-defined]
    put.moment += 2  # type: ignore[attr-defined]
    if file.suffix == ".c":
        known = f'-DSOURCE_HASH="{hashlib.sha256(text).hexdigest()}"'
        flags, library = importlib.import_module("hatch_build").FLAGS, file.with_name(f"lib{file.stem}.so")
        subprocess.run(["cc", *flags, known, file, "-o", library], check=True, stderr=subprocess.DEVNULL)


put.moment = 1_000_000_000  # type: ignore[attr-defined]


def survives(tree: Path, mutant: Mutant, tests: dict[str, Reached], budget: float) -> bool:
    """Run the tests that reach a mutant, a few first, for about so many CPU seconds; tell whether all pass."""
    file, names, portion = tree / "npuperf" / mutant.path, list(mutant.tests), 2.0
    try:
        put(file, mutant.new)
        while names and budget > 0:
            some, expected = [], 0.0
            while names and (not some or expected < min(portion, budget)):
                some.append(names.pop(0))
                expected += tests[some[-1]].seconds
            words = [*ALONE, "-x", *dict.fromkeys(name.split("::")[0] for name in some)]
            if in_a_copy(tree, 60 + 20 * expected, lambda w=words, s=some: int(pytest.main(w, plugins=[Chosen(s)]))):  # type: ignore[misc]
                return False
            budget, portion = budget - expected, portion * 8
        return True
    finally:
        put(file, mutant.old)


def main() -> None:
    """Try as many mutants of a room as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=60, help="of CPU time that tests of one mutant may take")
    parser.add_argument("--tests", help="other tests than the room's, separated by blanks")
    parser.add_argument("--only", default="", help="only mutants whose name, as in explained.txt, has this in it")
    asked = parser.parse_args()
    for name in WARM:
        importlib.import_module(name)
    room = "device" if asked.room == "maxplus" else asked.room
    explained = dict(re.findall(r"^(\S+: .*)\n  +(.*)$", EXPLAINED.read_text("utf-8"), re.MULTILINE))
    tests: dict[str, Reached] = {}
    fates = {"killed": 0, "explained": 0, "survived": 0}
    with tempfile.TemporaryDirectory(prefix="npuperf-mutants-") as scratch:
        tree = Path(scratch, "npuperf")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*SKIPPED), symlinks=True)
        sys.path.insert(0, str(tree))
        for where in asked.tests.split() if asked.tests else [f"tests/{room}", *ELSEWHERE.get(room, [])]:
            for file in sorted((tree / where).rglob("test_*.py")) or [tree / where]:
                tests |= recorded(tree, room, file)
        for mutant in mutants(tree, asked.room, tests, random.Random(asked.seed)):
            if asked.only in mutant.name():
                passed = mutant.name() not in explained and survives(tree, mutant, tests, asked.seconds)
                fates["survived" if passed else "explained" if mutant.name() in explained else "killed"] += 1
                if passed:
                    where = f"npuperf/{mutant.path}:{mutant.line}"
                    print(f"{where} survived {len(mutant.tests)} tests", *mutant.diff(), sep="\n  ", flush=True)
            if sum(fates.values()) == asked.count:
                break
    print(f"{asked.room}, SEED={asked.seed}: {sum(fates.values())} mutants, {fates}")
    sys.exit(fates["survived"] > 0.1 * sum(fates.values()))


if __name__ == "__main__":
    main()

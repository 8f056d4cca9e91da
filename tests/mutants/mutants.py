"""Change single places of a room's code, each alone, and see whether the tests notice: make mutants ROOM=job.

Places are drawn among those that the room's tests run. Tests are collected once; a mutant is a copy of that process in
which one function has other code, or one name another value, and no file changes. Of every test it is known which lines
it reaches: a mutant meets those that reach it alone, the quickest first. One that passes is printed, unless
explained.txt says why. What runs in an interpreter of its own is never changed. See CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import gc
import hashlib
import importlib
import inspect
import os
import pickle
import random
import re
import resource
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
from types import CodeType, FrameType, FunctionType
from typing import Any

import changes
import psutil
import pytest

from npuperf.base.process import _adopt_orphans

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "npuperf"
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "npuperf-mutants")
EXPLAINED = Path(__file__).with_name("explained.txt")
#: Tests of a room that lie elsewhere.
ELSEWHERE = {
    "advise": ["tests/job/test_cluster_findings.py", "tests/job/test_collective_rates.py"],
    "against": [f"tests/analyze/test_{name}.py" for name in ("baselines", "cut_documents", "metrics", "sides")],
    "analyze": [
        "tests/advise/test_launch_advice.py",
        "tests/readers/test_cluster_output.py",
        "tests/job/test_named_causes.py",
    ],
    "base": [
        *(f"tests/test_{name}.py" for name in ("files", "loading", "notes", "parallel", "streams")),
        *("tests/show/test_escape.py", "tests/show/test_kernel_names.py"),
    ],
    "device": ["tests/analyze/test_witness.py", "tests/job/test_unknown_size.py"],
    "model": [
        *("tests/against/test_noise.py", "tests/analyze/test_cut_documents.py", "tests/device"),
        *("tests/readers/test_context.py", "tests/readers/test_exports.py"),
    ],
    "show": ["tests/test_messages.py", "tests/advise/test_explain.py", "tests/analyze/test_real_sentences.py"],
    "cli": [
        *("tests/test_api.py", "tests/test_streams.py", "tests/record/test_run_folder.py"),
        *("tests/show/test_notebook.py", "tests/tune/test_trust.py"),
    ],
}
#: ROOM=maxplus: changes of the compiled program of the replay.
MAXPLUS = """a > b ? a : b -> a < b ? a : b
== NEVER ? LONG_AGO -> == NEVER ? NEVER
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


def forget() -> None:
    """Empty what functions remember, which would keep tests from reaching them."""
    for name, module in [*sys.modules.items()]:
        for one in vars(module).values() if name.startswith("npuperf.") else ():
            if callable(getattr(one, "cache_clear", None)):
                one.cache_clear()


class Recorder:
    """A plugin of pytest that notes which lines of a room each test runs, and each shared fixture."""

    def __init__(self, room: str) -> None:
        self.room = f"{PACKAGE / room}{os.sep}"
        self.tests: dict[str, Reached] = {}
        self.fixtures: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        self.now: Lines = defaultdict(set)

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self.room):
            return None
        if event == "line":
            self.now[frame.f_code.co_filename[len(str(PACKAGE)) + 1 :]].add(frame.f_lineno)
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
        forget()
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


@dataclass(frozen=True)
class Mutant:
    """A file with a change, and the tests that reach it."""

    path: str
    change: changes.Change
    old: bytes
    tests: tuple[str, ...]

    def diff(self) -> list[str]:
        """Return the lines that differ."""
        old, new = (text.decode().splitlines() for text in (self.old, self.change.apply(self.old)))
        return [d for d in difflib.unified_diff(old, new, n=0, lineterm="") if not re.match(r"---|\+\+\+|@@", d)]

    def name(self) -> str:
        """Return its name in explained.txt, wherever lines move."""
        return f"{self.path}: " + " ".join(f"{d[0]} {d[1:].strip()}" for d in self.diff())

    def put(self, scratch: Path) -> None:
        """Change this process: the functions with the code in question, or a name that is given a value on import."""
        file, new = PACKAGE / self.path, self.change.apply(self.old)
        name = ".".join(["npuperf", *Path(self.path).with_suffix("").parts])
        if file.suffix == ".c":
            source, library = scratch / file.name, scratch / f"lib{file.stem}.so"
            source.write_bytes(new)
            known = f'-DSOURCE_HASH="{hashlib.sha256(self.old).hexdigest()}"'
            flags = importlib.import_module("hatch_build").FLAGS
            subprocess.run(["cc", *flags, known, source, "-o", library], check=True)
            importlib.import_module("npuperf.device.maxplus").LIBRARY = library  # type: ignore[attr-defined]
        elif self.change.inside:
            importlib.import_module(name)  # some are loaded only where they are used
            gc.unfreeze()
            live = [o for o in gc.get_objects() if isinstance(o, FunctionType) and o.__code__.co_filename == str(file)]
            todo = [tuple(compile(text, str(file), "exec", dont_inherit=True) for text in (self.old, new))]
            while todo:
                pair = todo.pop()
                inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in pair]
                todo += zip(*inner, strict=True) if len(inner[0]) == len(inner[1]) else ()
                for function in live:
                    if function.__code__ == pair[0]:
                        function.__code__ = pair[1]
        else:
            module, names, before = importlib.import_module(name), set[str](), dict[str, object]()
            for s in ast.parse(new).body:  # what is made of it is made anew, too
                used = {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}
                if s.lineno == self.change.statement or (isinstance(s, ast.Assign | ast.AnnAssign) and used & names):
                    made = changes.stored(s) & vars(module).keys()  # without those of comprehensions
                    before |= {n: vars(module)[n] for n in made - names}
                    names |= made
                    exec(compile(ast.Module([s], []), str(file), "exec"), vars(module))
            for other in list(sys.modules.values()):
                for n, value in before.items():
                    if getattr(other, "__dict__", {}).get(n) is value:
                        setattr(other, n, vars(module)[n])


def reaching(change: changes.Change, path: str, source: bytes, tests: dict[str, Reached]) -> list[str]:
    """Return the tests that reach a place, the quickest first; of one that importing runs, those that use its names."""
    wanted = [{change.line}, {change.statement}]
    if not change.inside:
        uses = re.compile(rb"\b(%s)\b" % "|".join(change.names).encode())
        wanted = [{at for at, line in enumerate(source.splitlines(), 1) if uses.search(line)}, set(range(10**5))]
        same = (s for s in ast.parse(source).body if s.lineno == change.statement and isinstance(s, ast.FunctionDef))
        wanted[:0] = [set(range(s.body[0].lineno, (s.end_lineno or 0) + 1)) for s in same]  # of defaults: who calls it
    found = (sorted(n for n, t in tests.items() if lines & t.lines.get(path, set())) for lines in wanted)
    return sorted(next(filter(None, found), []), key=lambda name: tests[name].seconds)


def mutants(room: str, tests: dict[str, Reached], chance: random.Random) -> Iterator[Mutant]:
    """Draw mutants: lines first, all alike, then one of the changes of a line."""
    if room == "maxplus":
        path, source = "device/maxplus.c", (PACKAGE / "device/maxplus.c").read_bytes()
        for old, new in (pair.split(" -> ") for pair in MAXPLUS.splitlines()):
            at = source.index(old.encode())
            line = source[:at].count(b"\n") + 1
            names = sorted((n for n in tests if "test_programs" in n), key=lambda n: tests[n].seconds)
            yield Mutant(path, changes.Change(line, line, True, (), at, at + len(old), new), source, tuple(names))
        return
    places = defaultdict(list)
    for file in sorted((PACKAGE / room).rglob("*.py")):
        source = file.read_bytes()
        top = {s.lineno for s in ast.parse(source).body}
        for change in changes.changes(source):
            if change.inside or (change.names and change.statement in top):
                places[file.relative_to(PACKAGE).as_posix(), change.line].append((change, source))
    for path, line in chance.sample(sorted(places), len(places)):
        change, source = chance.choice(places[path, line])
        if names := reaching(change, path, source, tests):
            yield Mutant(path, change, source, tuple(names))


class Trial:
    """A plugin of pytest that, instead of running the tests that were collected, tries mutants on them."""

    def __init__(self, asked: argparse.Namespace, scratch: Path) -> None:
        self.asked, self.scratch = asked, scratch
        self.room = "device" if asked.room == "maxplus" else asked.room
        self.fates = {"killed": 0, "explained": 0, "survived": 0}

    def _copy(self, session: Any, seconds: dict[str, float], prepare: Callable[[Path], object]) -> int:
        """Run tests in a copy of this process until one fails, or takes much more than its seconds of CPU time; return
        its status, negative if it took too long.
        """
        mine = Path(tempfile.mkdtemp(dir=self.scratch))
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            nothing, status = os.open(os.devnull, os.O_RDWR), 70
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            try:
                finish = prepare(mine)
                forget()
                session.config._tmp_path_factory._basetemp = mine
                items = [self.items[name] for name in seconds]
                for item, following in zip(items, [*items[1:], None], strict=True):
                    most = round(time.process_time() + 20 + 5 * seconds[item.nodeid])
                    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
                    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if session.testsfailed and not callable(finish):
                        (self.scratch / "failed.txt").write_text(item.nodeid)
                        break
                if callable(finish):
                    finish()
                status = int(session.testsfailed > 0)
            except BaseException:
                (self.scratch / "said.txt").write_text(traceback.format_exc())
            finally:
                os._exit(status)
        last, done, status = time.monotonic() + 60 + 20 * sum(seconds.values()), 0, 0
        while not done and time.monotonic() < last:
            time.sleep(0.02)
            done, status = os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # it, or what it started and left
        status = status if done else os.waitpid(pid, 0)[1]
        subprocess.run(["rm", "-rf", mine], check=False)
        while left := psutil.Process().children():  # in sessions of their own
            for orphan in left:
                orphan.kill()
                orphan.wait()
        return os.waitstatus_to_exitcode(status)

    def _killed(self, session: Any, seconds: dict[str, float], mutant: Mutant) -> bool:
        """Tell whether tests fail or hang with a mutant. One that fails without it, too, would say so of all: it ends
        the trial.
        """
        failed = self.scratch / "failed.txt"
        failed.unlink(missing_ok=True)
        killed = self._copy(session, seconds, mutant.put) != 0
        if failed.exists():
            name = failed.read_text()
            if self._copy(session, {name: seconds[name]}, lambda _: None):
                pytest.exit(f"{name} fails by itself, though it has passed: did a mutant change what it needs?")
        return killed

    def _recorded(self, session: Any, file: Path, names: list[str]) -> dict[str, Reached]:
        """Return what the tests of a file reach of a room, which is kept until either changes."""
        sources = [file, *sorted((PACKAGE / self.room).rglob("*.py"))]
        how = inspect.getsource(Recorder).encode()
        digest = hashlib.sha256(how + b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
        kept = KEPT / f"{self.room}-{file.stem}-{digest}"

        def prepare(_: Path) -> Callable[[], object]:
            recorder = Recorder(self.room)
            session.config.pluginmanager.register(recorder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            return lambda: kept.write_bytes(pickle.dumps(recorder.known()))

        if not kept.exists():
            self._copy(session, dict.fromkeys(names, 600.0), prepare)
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        gc.freeze()
        tests: dict[str, Reached] = {}
        for file in sorted({item.path for item in session.items}):
            tests |= self._recorded(session, file, [i.nodeid for i in session.items if i.path == file])
        tests = {name: test for name, test in tests.items() if name in self.items}
        explained = dict(re.findall(r"^(\S+: .*)\n  +(.*)$", EXPLAINED.read_text("utf-8"), re.MULTILINE))
        for mutant in mutants(self.asked.room, tests, random.Random(self.asked.seed)):
            if self.asked.only not in mutant.name():
                continue
            seconds: dict[str, float] = {}
            for name in mutant.tests:
                if sum(seconds.values()) < self.asked.seconds:
                    seconds[name] = tests[name].seconds
            known = mutant.name() in explained
            killed = known or self._killed(session, seconds, mutant)
            self.fates["explained" if known else "killed" if killed else "survived"] += 1
            if not killed:
                where = f"npuperf/{mutant.path}:{mutant.change.line}"
                print(
                    f"{where} survived {len(seconds)} of {len(mutant.tests)} tests",
                    *mutant.diff(),
                    sep="\n  ",
                    flush=True,
                )
            if sum(self.fates.values()) == self.asked.count:
                break
        return True


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
    os.chdir(ROOT)
    _adopt_orphans()  # who outlives a trial becomes a child of this process
    with tempfile.TemporaryDirectory(prefix="npuperf-mutants-") as scratch:
        trial = Trial(asked, Path(scratch))
        where = asked.tests.split() if asked.tests else [f"tests/{trial.room}", *ELSEWHERE.get(trial.room, [])]
        words = ("-qq", "-s", "-p", "no:cacheprovider", "-p", "no:xdist")
        broken = pytest.main([*words, *where], plugins=[trial])
    tried = sum(trial.fates.values())
    print(f"{asked.room}, SEED={asked.seed}: {tried} mutants, {trial.fates}")
    sys.exit(bool(broken) or trial.fates["survived"] > 0.1 * tried)


if __name__ == "__main__":
    main()

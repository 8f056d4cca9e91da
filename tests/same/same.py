"""Hold everything that npuperf says against what another revision says of the same inputs: make same.

Both revisions are unpacked, compiled and run alike, through the command line alone; inputs and outputs have the same
paths for both. What the other revision said is kept. A difference that is wanted gets a line in decided.txt, or
BASE is moved. See CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import difflib
import fcntl
import fnmatch
import hashlib
import importlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import asked
import drive

#: What this checkout is held against.
BASE = "6e41f4b510f781f91c5b0acf19669d11ce758373"
#: Whose tests and benchmarks make the inputs: inputs stay as they are, wherever the code that made them goes.
MAKERS = "3fd4a3e4e16e86edfac3b84f7cb92b933876839a"
ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(tempfile.gettempdir(), "npuperf-same")
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "npuperf-same")
DECIDED = Path(__file__).with_name("decided.txt")
NORMAL = (
    (rb"\d{8}-\d{6}-\d{1,6}", b"<time>"),  # the folder of a tuning
    (rb'"time": "20[^"]*"', b'"time": "<time>"'),  # when a run was held against a baseline
    (rb"[\d.]+ GiB", b"<room> GiB"),  # what the machine has left
    (rb'("free": \{\s*"value": )\d+', rb"\1<room>"),
    (rb"/[\w/.-]+/bin/python\b", b"<python>"),  # of the environment that asks
    (rb"<tree>/npuperf/[\w/]+/inject", b"<inject>"),  # what programs that are recorded load
    (rb"--help, -h ", b"-h, --help "),  # in an order of chance
)


def git(*words: str, **more: Any) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, **more
    ).stdout.strip()


def tree_here() -> str:
    """Return the tree of the checkout as it is, with what is not committed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / git("rev-parse", "--git-path", "index"), Path(folder, "index"))
        environment = {**os.environ, "GIT_INDEX_FILE": str(Path(folder, "index"))}
        git("add", "-A", env=environment)
        return git("write-tree", env=environment)


def unpacked(tree: str) -> Path:
    """Unpack and compile a tree, as its own hatch_build.py does."""
    folder = KEPT / "trees" / tree
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", tree], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", part], input=archive, check=True)
        subprocess.run([sys.executable, __file__, "--compile", part], check=True)
        part.rename(folder)
    folder.touch()
    for old in sorted(folder.parent.iterdir(), key=lambda path: -path.stat().st_mtime)[6:]:
        shutil.rmtree(old)
    return folder


def compile_tree(folder: Path) -> None:
    """Call the hook of hatch_build.py; hatchling itself need not be there."""

    class Hook:
        root, target_name, app = str(folder), "wheel", SimpleNamespace(display_warning=print)
        __class_getitem__ = classmethod(lambda cls, _: cls)

    name = "hatchling.builders.hooks.plugin.interface"
    parts = name.split(".")
    sys.modules.update({".".join(parts[: i + 1]): ModuleType(part) for i, part in enumerate(parts)})
    sys.modules[name].BuildHookInterface = Hook  # type: ignore[attr-defined]
    sys.path.insert(0, str(folder))
    importlib.import_module("hatch_build")
    Hook.__subclasses__()[0]().initialize("editable", {"artifacts": []})  # type: ignore[attr-defined]


def environment(tree: Path, seed: int, *more: str) -> dict[str, str]:
    """What a revision finds in its environment: nothing of the user's."""
    source = tree / "src" if (tree / "src" / "npuperf").exists() else tree
    return {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC", "HOME": str(PLACE),
        "PYTHONPATH": ":".join([str(source), *(str(tree / folder) for folder in more)]), "PYTHONHASHSEED": str(seed),
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(PLACE.parent), "COLUMNS": "80",
    }  # fmt: skip


class Side:
    """A revision, and the process that drives it for one worker; it begins with the first job."""

    def __init__(self, tree: Path, seed: int, core: int) -> None:
        self.tree, self.seed, self.core = tree, seed, core
        self._process: subprocess.Popen[str] | None = None

    def answer(self, job: dict[str, Any], to: Path) -> Path:
        if self._process is None:
            command = ["nice", sys.executable, __file__, "--drive", str(self.tree), "--core", str(self.core)]
            self._process = subprocess.Popen(
                command, stdin=-1, stdout=-1, text=True, env=environment(self.tree, self.seed), cwd=PLACE
            )
        assert self._process.stdin and self._process.stdout
        print(json.dumps({**job, "to": str(to)}), file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise RuntimeError(f"the driver of {self.tree} died at {job['name']}")
        return to

    def end(self) -> None:
        if self._process is not None:
            self._process.communicate()


def inputs() -> Path:
    """Return the folder of the inputs that are made, which is done once."""
    folder = KEPT / "inputs" / MAKERS
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        tree = unpacked(git("rev-parse", f"{MAKERS}^{{tree}}"))
        needed = environment(tree, 0, "tests", "tests/fuzz", "tests/tune", "tests/traces", "benchmarks")
        needed["NPUPERF_NO_CACHE"] = "1"
        subprocess.run([sys.executable, __file__, "--make", part], env=needed, check=True, cwd=PLACE)
        part.rename(folder)
    return folder


def tables(tree: Path) -> dict[str, list[str]]:
    """Return the names of all tables that can be asked for."""
    found = {}
    for verb in ("analyze", "tune"):
        command = [sys.executable, "-m", "npuperf", verb, "--table", "help"]
        said = subprocess.run(command, env=environment(tree, 0), cwd=PLACE, capture_output=True, text=True).stdout
        found[verb] = [line.split()[0] for line in said.splitlines() if line.strip()]
    return found


def fingerprint(job: dict[str, Any]) -> str:
    """Return what an answer depends on, but for the revision."""
    told = hashlib.sha256(json.dumps([drive.VERSION, str(PLACE), job["name"], job["asked"]]).encode())
    for target, source in sorted(job["sources"].items()):
        for path in [Path(source), *sorted(Path(source).rglob("*"))]:
            told.update(f"{target} {path.relative_to(source)} {path.lstat().st_mode:o}\n".encode("utf-8", "replace"))
            if path.is_symlink():
                told.update(os.fsencode(path.readlink()))
            elif path.is_file():
                told.update(path.read_bytes())
    return told.hexdigest()[:20]


def normal(text: bytes) -> bytes:
    for pattern, instead in NORMAL:
        text = re.sub(pattern, instead, text)
    return text


class Comparison:
    """What was equal, decided and different so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.held = 0
        self.lock = threading.Lock()
        self.decided = [
            line.split(None, 2)
            for line in (DECIDED.read_text("utf-8").splitlines() if DECIDED.exists() else [])
            if line.strip() and not line.startswith("#")
        ]

    def next(self, todo: list[dict[str, Any]]) -> dict[str, Any] | None:
        with self.lock:
            return todo.pop() if todo else None

    def hold(self, job: dict[str, Any], old: Path, new: Path) -> None:
        """Compare what two revisions said of an input."""
        with zipfile.ZipFile(old) as before, zipfile.ZipFile(new) as after, self.lock:
            self.held += 1
            for output, columns, words in job["asked"]:
                texts = [normal(side.read(output.replace("/", "_"))) for side in (before, after)]
                if output == "json-warm" and normal(after.read("json-cold")) != texts[1]:
                    print(f"DIFFERENT warm from cold: {job['name']}")
                    self.counts["different"] += 1
                if texts[0] == texts[1]:
                    self.counts["equal"] += 1
                    continue
                rows = (row for row in self.decided if all(map(fnmatch.fnmatchcase, (output, job["name"]), row)))
                if reason := next(rows, None):
                    self.counts["decided"] += 1
                    print(f"decided: {output} of {job['name']}: {' '.join(reason[2:])}")
                else:
                    self.counts["different"] += 1
                    self._show(f"{job['name']}/{output.replace('/', '_')}", words, columns, texts)

    def _show(self, name: str, words: list[str], columns: int, texts: list[bytes]) -> None:
        paths = [KEPT / "different" / side / name for side in ("old", "new")]
        for path, text in zip(paths, texts, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        print(f"DIFFERENT {name}: npuperf {shlex.join(words)}  ({columns} columns)")
        print(f"  to see it all: diff {shlex.quote(str(paths[0]))} {shlex.quote(str(paths[1]))}")
        lines = [text.decode("utf-8", "backslashreplace").splitlines() for text in texts]
        told = (
            list(difflib.unified_diff(*lines, "old", "new", n=1, lineterm="")) if self.counts["different"] <= 20 else []
        )
        for line in told[2:22]:
            print("   ", line if len(line) <= 160 else self._around(line, told))

    @staticmethod
    def _around(line: str, told: list[str]) -> str:
        """Cut a long line to what is not in the first line of the other side."""
        other = next((each for each in told[2:] if each[:1] != line[:1] and each[:1] in "+-"), "")
        at = next((i for i, (a, b) in enumerate(zip(line[1:], other[1:], strict=False)) if a != b), 0)
        return f"{line[0]}…{line[max(1, at - 60) : at + 90]}…"


def main() -> int:
    """Compare all, and say how many were equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default=BASE, metavar="REV", help=f"the other revision [{BASE[:12]}]")
    parser.add_argument("--quick", action="store_true", help="few inputs, in well under a minute")
    parser.add_argument("--workers", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only these inputs")
    given = parser.parse_args()
    began = time.monotonic()
    PLACE.mkdir(exist_ok=True)
    alone = (PLACE / "lock").open("w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("another comparison is running; waiting for it", flush=True)
        fcntl.flock(alone, fcntl.LOCK_EX)
    trees = [git("rev-parse", f"{given.against}^{{tree}}"), tree_here()]
    old, new = map(unpacked, trees)
    made = inputs()
    todo = [job for job in asked.jobs(made, tables(old), given.quick) if fnmatch.fnmatchcase(job["name"], given.only)]
    todo.sort(key=lambda job: len(job["asked"]))  # the longest, which are done first, last
    number = len(todo)
    answers = [KEPT / "answers" / trees[0], KEPT / "new"]
    for folder in (KEPT / "different", KEPT / "new"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in answers:
        folder.mkdir(parents=True, exist_ok=True)
    comparison = Comparison()

    def work(core: int) -> None:
        sides = [Side(tree, seed, core) for seed, tree in enumerate((old, new), 1)]
        while job := comparison.next(todo):
            before = answers[0] / f"{job['name']}-{fingerprint(job)}.zip"
            if not before.exists():
                sides[0].answer(job, before)
            comparison.hold(job, before, sides[1].answer(job, answers[1] / f"{job['name']}.zip"))
        for side in sides:
            side.end()

    threads = [threading.Thread(target=work, args=(core,)) for core in sorted(os.sched_getaffinity(0))[: given.workers]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts, used = comparison.counts, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{number} inputs, {counts.total()} outputs: {counts['equal']} equal, {counts['decided']} decided, "
          f"{counts['different']} different ({time.monotonic() - began:.0f} s, on cores "
          f"{used.ru_utime + used.ru_stime:.0f} s)")  # fmt: skip
    return 1 if counts["different"] or comparison.held < number or not number else 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["--drive"], ["--make"], ["--compile"]):
        if sys.argv[1] == "--drive":
            drive.drive(sys.argv[2], int(sys.argv[4]), PLACE)
        else:
            asked.make(Path(sys.argv[2]), PLACE) if sys.argv[1] == "--make" else compile_tree(Path(sys.argv[2]))
        sys.exit()
    sys.exit(main())

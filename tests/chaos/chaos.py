"""Chaos: random faults of the machine while random commands run; each is answered rightly, or refused clearly.

    make chaos [SECONDS=600] [RUNS=N] [SEED=N] [ONLY='COMMAND/FAULT']

A run is one of the COMMANDS under one of the FAULTS, which strikes at a call to the system that is chosen by its
number, so that a seed repeats it (faults.c). Afterwards holds what :func:`judged` and :func:`afterwards` say: the
answer is that of the undisturbed command, to the byte, or names what was the matter; or there is none, with words and
a documented exit status. Nothing hangs, is left behind or changed, and the same command answers rightly once more.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fnmatch
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from place import EACH, HERE, KINDS, LIMIT, OLD, ROOT, Command, Outcome, Place, Trouble, load

# -- What is run: {one}, {job}, {db}, … are inputs, {out} is a folder to write to.

_TWO = "--engine processes --workers 2"
COMMANDS = {
    "text": Command("analyze {one}"),
    "chinese": Command("--lang zh analyze {job} --full"),
    "json": Command("analyze {job} --format json"),
    "unbuffered": Command("analyze {one} --format json", environment={"PYTHONUNBUFFERED": "1"}),
    "csv": Command("analyze {one} --format csv --table operators"),
    "markdown": Command("analyze {one} --format markdown"),
    "junit": Command("analyze {one} --format junit --fail-on host_wait>1% --junit {out}/junit.xml"),
    "page": Command("analyze {job} --format html -o {out}/page"),
    "page beside": Command("analyze {one} --html {out}/page.html"),
    "traces": Command("analyze {one} --trace {out}/found.json --trace-full {out}/whole.json.gz"),
    "output": Command("analyze {job} -o {out}/report --full"),
    "database": Command("analyze {db}/ascend_pytorch_profiler_4.db --format json"),
    "packed": Command("analyze {packed}/trace.json.gz --format json"),
    "gates": Command("analyze {one} --fail-on host_wait>1% --fail-on compute<1%"),
    "usage": Command("analyze {one} --unheard-of"),
    "nothing there": Command("analyze {one}/nothing"),
    "baseline": Command("analyze {one} --baseline {old} --format json"),
    "kept": Command("analyze {one} --save-baseline main --baseline-dir {out}"),
    "lock": Command("analyze {one} --lock {out}/lock.yaml"),
    "update": Command("analyze {one} --update-lock {lock}"),
    "check": Command("analyze {one} --check {lock}"),
    "what if": Command("analyze {job} --what-if host*0.5 --what-if comm*0"),
    "run": Command("analyze {run}/run"),
    "processes": Command(f"analyze {{job}} --format json {_TWO}"),
    "processes page": Command(f"analyze {{job}} --html {{out}}/page.html {_TWO}"),
    "threads": Command("analyze {job} --format json --engine serial --workers 3"),
    "dask": Command("analyze {job} --format json --engine dask --workers 2"),
    "clear": Command("analyze {one} --clear-cache"),
    "dry profile": Command("profile --dry-run -- true"),
    "profile": Command("profile --active 25 --python {python} {program}/train.py 0", loose=True),
    "dry tune": Command("tune --dry-run --mode op --model {model}/net.onnx", loose=True),
    "results": Command("tune --from {results} --format json"),
    "banks": Command("tune --diff {banks}/one {banks}/two"),
    "merge": Command("tune --merge {banks}/one {banks}/two --into {out}/bank", loose=True),
    "tune": Command("tune --mode op --model {model}/net.onnx", loose=True),
}
#: Those that take seconds come less often than others.
_RARE = {"dask": 0.3, "profile": 0.3, "tune": 0.3}


def make_inputs(folder: Path) -> None:
    """Make what commands are about."""
    import bases  # sound inputs of every kind
    from pretended import MSPROF, PROGRAM

    for name, sample in (("one", "transformer_ascend_pt"), ("job", "pipeline_job"), ("old", "micro_batch_ascend_pt")):
        shutil.copytree(ROOT / "samples" / sample, folder / name)
    for name, make in (
        ("db", bases.torch_db), ("packed", bases.packed), ("run", bases.run_folder), ("results", bases.aoe_results),
        ("banks", bases.two_banks), ("model", lambda where: (where / "net.onnx").write_bytes(b"onnx")),
        ("program", lambda where: (where / "train.py").write_text(PROGRAM.replace("time.sleep(600)", "1"))),
    ):  # fmt: skip
        (folder / name).mkdir()
        make(folder / name)
    shutil.copytree(HERE.parent / "cann_stub" / "bin", folder / "bin")
    (folder / "bin" / "msprof").write_text(MSPROF)
    made = [sys.executable, "-m", "npuperf", "analyze", folder / "one", "--lock", folder / "lock.yaml", "--no-cache"]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)


# -- What befalls it.


def _kill(run: Run, _: int) -> None:
    victim = run.chance.choice(run.place.processes())
    number = run.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    run.told.append(f"{number.name} to {'npuperf' if victim.pid == run.place.pid else victim.cmdline()[-1][-60:]}")
    victim.send_signal(number)


def _changed(how: Callable[[Path, random.Random], object], run: Run, _: int) -> None:
    """Change a file as rsync does, which sets the time of the original."""
    files = run.place.read_by(run.command)
    if not files:
        return
    file = run.chance.choice(files)
    assert file.is_relative_to(run.place.inputs)
    run.told.append(f"{how.__name__} {file}")
    how(file, run.chance)
    if file.exists():
        os.utime(file, OLD)


def _cut(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(file.stat().st_size))


def _grow(file: Path, chance: random.Random) -> None:
    file.open("ab").write(file.read_bytes()[-chance.randrange(1, 4000) :])


def _replace(file: Path, chance: random.Random) -> None:
    content, new = file.read_bytes(), file.with_name(".new")
    new.write_bytes(content.replace(b"5", b"6") if chance.random() < 0.5 else content[: len(content) // 2])
    new.replace(file)


def _remove(file: Path, _: random.Random) -> None:
    file.unlink()


def _poison(run: Run, _: int) -> None:
    for file in run.place.home.rglob("*.entry"):
        content = bytearray(file.read_bytes())
        content[run.chance.randrange(len(content))] ^= 1 << run.chance.randrange(8)
        file.write_bytes(content)


def _forget(run: Run, _: int) -> None:
    """Remove all that is kept, the secret that signs it among them."""
    shutil.rmtree(run.place.home, ignore_errors=True)


def _of_another(run: Run, _: int) -> None:
    """Give what is kept to another user, who lets nobody write there."""
    for path in (run.place.home / "cache" / "npuperf", *run.place.home.rglob("*.entry")):
        if path.exists():
            os.chown(path, 12345, 12345)
            path.chmod(0o500)


def _times(run: Run) -> None:
    """Set the times of inputs to what does not fit into 32 bits, or lies before 1970."""
    for file in run.place.read_by(run.command):
        os.utime(file, (run.chance.choice((-(1 << 31), -1, 1 << 32, 1 << 33)),) * 2)


def _limit(which: int, least: float, most: float, run: Run) -> None:
    limit = int(math.exp(run.chance.uniform(math.log(least), math.log(most))))
    run.told.append(f"limit {limit}")
    run.trouble.prepare = partial(resource.setrlimit, which, (limit, limit))


def _close(run: Run) -> None:
    closed = [descriptor for descriptor in (0, 1, 2) if run.chance.random() < 0.5]
    run.told.append(f"closed {closed}")
    run.trouble.prepare = lambda: [os.close(descriptor) for descriptor in closed]


_SHORT, _SLOW, _HELD, _CLOCK = -1, -2, -3, -4
_LASTING = 1 << 40
_READING, _WRITING, _ALL = "open,list,stat,read", "make,write,close,rename", ",".join(KINDS)


@dataclass(frozen=True)
class Fault:
    """``effect``, an error number or a word of faults.c, strikes ``calls`` of some kinds: one, or all from there on.

    ``act``: what is done while the call waits; ``first``: before the command begins. ``harmless``: nobody may notice.
    ``kills``: it may end by a signal. ``changes``: inputs are others afterwards.
    """

    calls: str = "-"
    effect: int = 0
    lasts: bool = False
    harmless: bool = False
    act: Callable[[Run, int], object] | None = None
    first: Callable[[Run], object] | None = None
    kills: bool = False
    changes: bool = False


FAULTS = {
    "disk full": Fault(_WRITING, errno.ENOSPC, lasts=True),
    "disk full for a moment": Fault(_WRITING, errno.ENOSPC),
    "quota": Fault("write,close", errno.EDQUOT, lasts=True),
    "read-only": Fault("make,rename,remove,touch", errno.EROFS, lasts=True),
    "not ours": Fault("make,rename,touch", errno.EACCES, lasts=True),
    "unreadable": Fault("open,list", errno.EACCES),
    "a read fails": Fault(_READING, errno.EIO),
    "bad disk": Fault(_READING, errno.EIO, lasts=True),
    "a write fails": Fault(_WRITING, errno.EIO),
    "stale handle": Fault(f"{_READING},write,rename,lock", errno.ESTALE),
    "server gone": Fault(f"{_READING},{_WRITING},lock", errno.ESTALE, lasts=True),
    "renamed twice": Fault("rename,remove", errno.ENOENT),
    "no locks": Fault("lock", errno.ENOLCK, lasts=True, harmless=True),
    "no removal": Fault("remove", errno.EBUSY, lasts=True),
    "interrupted": Fault("open,read,write,lock", errno.EINTR),
    "short reads": Fault("read", _SHORT, lasts=True, harmless=True),
    "short writes": Fault("write", _SHORT, lasts=True, harmless=True),
    "slow disk": Fault(f"{_READING},{_WRITING}", _SLOW, lasts=True, harmless=True),
    "out of memory": Fault("memory", errno.ENOMEM),
    "no memory left": Fault("memory", errno.ENOMEM, lasts=True),
    "little memory": Fault(first=partial(_limit, resource.RLIMIT_AS, 15e7, 3e9)),
    "small files only": Fault(first=partial(_limit, resource.RLIMIT_FSIZE, 4096, 3e5)),
    "few descriptors": Fault(first=partial(_limit, resource.RLIMIT_NOFILE, 8, 60)),
    "no descriptors": Fault("open,make,list,pipe", errno.EMFILE, lasts=True),
    "no processes": Fault("process", errno.EAGAIN, lasts=True),
    "no threads": Fault("thread", errno.EAGAIN, lasts=True),
    "closed": Fault(first=_close),
    "killed": Fault(_ALL, _HELD, act=_kill, kills=True),
    "killed at work": Fault("memory,process,thread,pipe", _HELD, act=_kill, kills=True),
    "cut": Fault(_READING, _HELD, act=partial(_changed, _cut), changes=True),
    "grown": Fault(_READING, _HELD, act=partial(_changed, _grow), changes=True),
    "replaced": Fault(_READING, _HELD, act=partial(_changed, _replace), changes=True),
    "removed": Fault(_READING, _HELD, act=partial(_changed, _remove), changes=True),
    "cache poisoned": Fault(_READING, _HELD, act=_poison, harmless=True),
    "cache removed": Fault(_ALL, _HELD, act=_forget, harmless=True),
    "cache of another": Fault(_READING, _HELD, act=_of_another, harmless=True),
    "odd times": Fault(first=_times, harmless=True),
    "before 1970": Fault(effect=_CLOCK, first=lambda run: run.at(-(1 << 31)), harmless=True),
    "after 2038": Fault(effect=_CLOCK, first=lambda run: run.at(1 << 32), harmless=True),
}
#: How often Python begins anew for a command, and how often one that answered rightly is asked once more.
_FRESH, _AGAIN = 0.1, 0.1


class Run:
    """One command, and what befalls it."""

    def __init__(self, place: Place, name: str, fault: str, chance: random.Random, usual: Outcome) -> None:
        self.place, self.command, self.fault, self.chance, self.usual = (
            place,
            COMMANDS[name],
            FAULTS[fault],
            chance,
            usual,
        )
        self.told: list[str] = []
        self.acted = False
        fresh = chance.random() < _FRESH or fault == "little memory"  # a fork has more than that
        self.trouble = Trouble(fresh=fresh, seconds=LIMIT + EACH * usual.seconds)
        self.at(
            chance.randrange(max(1, sum(usual.calls[kind] for kind in KINDS if kind in self.fault.calls.split(","))))
            + 1
        )
        if self.fault.first is not None:
            self.fault.first(self)
        if self.fault.act is not None:
            self.trouble.held = self._act

    def at(self, first: int) -> None:
        """Strike at a call by its number; a clock is shifted by so many seconds."""
        self.trouble.fault = f"{self.fault.calls} {self.fault.effect} {first} {_LASTING if self.fault.lasts else 1}"

    def _act(self, pid: int) -> None:
        self.acted = True
        assert self.fault.act is not None
        self.fault.act(self, pid)


# -- What must hold afterwards.

#: A traceback of ours, or what libraries say to themselves; what a program that is profiled says is its own.
_FAULT = re.compile("internal error|outside of npuperf")
_OURS = re.compile(  # a Python that gets no memory to begin with has no other words
    rf'{_FAULT.pattern}|File ".*/npuperf/(?!agent/)|Fatal Python(?! error: _PyErr_NoMemory)|Segmentation|core dumped'
)
_NOISE = re.compile(r"Traceback|Exception ignored|Warning:|terminate called")
_CHANGED = re.compile("changed while it was read|在读取过程中发生了变化")
_UNABLE = ("read", "entered", "opened", "written", "made", "created", "started", "loaded", "imported", "sent", "noted")
_WORDS = ("out of memory", *(f"cannot be {done}" for done in _UNABLE), "worker process", "dask worker",
          "is not there any more", "内存不足")  # fmt: skip


def same(one: Outcome, other: Outcome, command: Command) -> bool:
    """Tell whether two answers are the same, with all files; of tries that are remembered the moment is told."""
    if one.status != other.status or command.loose:
        return one.status == other.status
    files = [{name: text for name, text in x.written.items() if "candidates" not in name} for x in (one, other)]
    return one.out == other.out and files[0] == files[1]


def judged(run: Run, found: Outcome) -> Iterator[str]:
    """Yield what is wrong with an outcome."""
    fault, command, usual = run.fault, run.command, run.usual
    if found.status is None:
        yield f"hung for {found.seconds:.0f} s: {found.running}"
        return
    memory = fault.effect == errno.ENOMEM or fault is FAULTS["little memory"]
    aborted = memory and found.status in (
        127,
        -signal.SIGSEGV,
        -signal.SIGABRT,
    )  # a library in C that cannot do without
    dask = memory and "dask" in command.words  # each of its processes says itself what it met, and where
    noisy = command.loose or aborted or (memory and "npuperf: out of memory" in found.said)
    words = [_FAULT] if dask else [_OURS] if noisy else [_OURS, _NOISE]
    if match := next(filter(None, (one.search(found.said) for one in words)), None):
        yield f"no words: {match[0]}: {found.said[-1500:]}"
    if found.running:
        yield f"left running: {found.running}"
    struck = fault.kills and run.acted
    # What cannot be removed, or listed, which takes memory of its own, is left to the next run.
    unable = "remove" in fault.calls or (fault.lasts and {"list", "memory"} & {*fault.calls.split(",")})
    if found.left and not (struck or unable):
        yield f"left behind: {found.left}"
    if command.loose or same(found, usual, command) or (fault.changes and run.acted):
        return
    if fault.harmless:
        yield f"differs: status {found.status}: {difference(found, usual)}"
    elif found.status == usual.status:
        if not _says_why(found, usual, fault):
            yield f"another answer without a word: {difference(found, usual)}"
    elif aborted or (found.status == 4 and _says_why(found, usual, fault)):  # a gate that cannot be judged for that
        pass
    elif found.status not in (3, *((130, 143, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM) if struck else ())):
        yield f"exit status {found.status}: {found.said[-400:]}"
    elif found.status == 3 and "npuperf: " not in found.said and fault.first is not _close:
        yield f"exit status 3 without a word: {found.said[-400:]}"


def _says_why(found: Outcome, usual: Outcome, fault: Fault) -> bool:
    """Tell whether an answer names what was the matter, and the undisturbed one does not."""
    texts = [x.said + b"".join([x.out, *x.written.values()]).decode(errors="replace") for x in (found, usual)]
    told, before = ("".join(text.split()) for text in texts)  # however it is wrapped
    words = (os.strerror(fault.effect), *_WORDS) if fault.effect > 0 else _WORDS
    return any(word in told and word not in before for word in ("".join(word.split()) for word in words))


def afterwards(run: Run, found: Outcome) -> Iterator[str]:
    """Do the same undisturbed; yield what is wrong then."""
    place, command, usual = run.place, run.command, run.usual
    again = place.again(command)
    if run.fault.changes and run.acted:
        shutil.rmtree(place.home)
        truth = place.again(command)
        if not same(again, truth, command):
            yield f"stale: {difference(again, truth)}"
        told = _CHANGED.search(found.said) or _says_why(found, usual, run.fault)
        refused = found.status == 3 and "npuperf: " in found.said
        if not (refused or told or any(same(found, one, command) for one in (usual, truth))):
            yield f"neither the old answer nor the new: {difference(found, usual)} | {difference(found, truth)}"
        return
    if not same(again, usual, command):
        yield f"rerun: status {again.status}: {difference(again, usual)}"
    if again.left and "remove" not in run.fault.calls:
        yield f"left behind by the rerun: {again.left}"


def difference(found: Outcome, usual: Outcome) -> str:
    """Show where two answers begin to differ."""
    names = ["", *{**found.written, **usual.written}]
    for name in names:
        one, other = ((x.written.get(name, b"none") if name else x.out) for x in (found, usual))
        if one != other:
            alike = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
            at = max(alike - 60, 0)
            parts = f"{one[at : at + 200]!r} instead of {other[at : at + 90]!r}"
            return f"{name or 'stdout'} ({len(one)}, {len(other)}): {parts}"
    return found.said[-300:]


def once(place: Place, seed: int, only: str, usual: dict[str, Outcome], seen: Counter[str]) -> Iterator[str]:
    """Make the run of a seed; yield what went wrong."""
    chance = random.Random(seed)
    pairs = [(name, fault) for name in COMMANDS for fault in FAULTS if fnmatch.fnmatch(f"{name}/{fault}", only)]
    name, fault = chance.choices(pairs, [_RARE.get(name, 1) for name, _ in pairs])[0]
    command = COMMANDS[name]
    if name not in usual:
        place.anew()
        usual[name] = place.again(command)
        again = place.again(command)
        sound = same(usual[name], again, command) and not again.left and not (_OURS.search(again.said) or again.hits)
        assert sound, (name, again.status, difference(usual[name], again), again.said, again.left)
        place.home.rename(place.base / name)
    place.anew(place.base / name if chance.random() < 0.5 else None)  # to be answered from what is kept
    before, run = place.digest(), Run(place, name, fault, chance, usual[name])
    found = place.run(command, run.trouble)
    right = same(found, usual[name], command)
    seen["struck" if found.hits or FAULTS[fault].first else "missed"] += 1
    seen["right" if right else f"status {found.status}"] += 1
    faults = [*judged(run, found)]
    if place.digest() != before and not FAULTS[fault].changes:
        faults.append("the input has changed")
    if run.acted or found.left or not right or chance.random() < _AGAIN:
        faults += afterwards(run, found)
    yield from (f"{name}/{fault} {run.trouble.fault} {run.told}: {what}" for what in faults)


def main() -> int:
    """Make runs until there are enough; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", default="*")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    seen: Counter[str] = Counter()
    usual: dict[str, Outcome] = {}
    failures, runs, last = 0, 0, time.monotonic() + asked.seconds
    load()
    with tempfile.TemporaryDirectory(prefix="npuperf-chaos-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), make_inputs)
        with contextlib.suppress(KeyboardInterrupt):
            while runs < asked.runs and time.monotonic() < last:
                for fault in once(place, asked.seed + runs, asked.only, usual, seen):
                    failures += 1
                    print(f"FAILED: SEED={asked.seed + runs} RUNS=1: {fault}", flush=True)
                runs += 1
    print(f"{runs} runs, {failures} failures; " + ", ".join(f"{n} {what}" for what, n in sorted(seen.items())))
    return 1 if failures else 0


def _below_the_library() -> int:
    """Begin anew, with the library of faults loaded before all others."""
    with tempfile.TemporaryDirectory(prefix="npuperf-chaos-") as folder:
        library = Path(folder) / "faults.so"
        call = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c"]
        subprocess.run([*call, "-ldl", "-lpthread"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main() if "faults.so" in os.environ.get("LD_PRELOAD", "") else _below_the_library())

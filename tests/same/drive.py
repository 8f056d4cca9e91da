"""One revision answers: it runs every command that it is given, and keeps all that is written. Run by same.py.

It knows the command line of npuperf and nothing else. What a first command loads is loaded once for each language, and
forks of that process run the commands: hundreds take little time.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import zipfile
from pathlib import Path
from typing import Any, TextIO

#: Raise it when what is kept of a command changes, or how it is run.
VERSION = 3
PATIENCE_S = 120
#: When inputs seem to have been written.
LONG_AGO = 1_700_000_000
WRITES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def act(order: dict[str, Any]) -> None:
    """Run one command in this process, and leave."""
    room = Path(order["room"])
    os.chdir(room)
    os.environ.update(HOME=str(room / "home"), TMPDIR=str(room / "tmp"), COLUMNS=str(order["columns"]))
    tempfile.tempdir = None
    for fd, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", WRITES), (2, "stderr", WRITES)):
        os.dup2(os.open(name, flags, 0o644), fd)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    signal.alarm(PATIENCE_S)
    sys.argv, code = ["npuperf", *order["words"]], 0
    try:
        importlib.import_module("npuperf.__main__").main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 99
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if order.get("modules"):
        Path(order["modules"]).write_text("\n".join(sys.modules))
    atexit._run_exitfuncs()
    os._exit(code)


def serve(orders: TextIO, answers: int, language: str, modules: list[str]) -> None:
    """Load what is to be loaded, and fork for every command."""
    if language:
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            sys.argv = ["npuperf", "--lang", language, "--version"]
            importlib.import_module("npuperf.__main__").main()
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    for line in orders:
        child = os.fork()
        if child == 0:
            act(json.loads(line))
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


class Server:
    """A process that has loaded everything for a language, or nothing, and forks for every command."""

    def __init__(self, language: str, modules: list[str]) -> None:
        (orders, to), (answers_from, answers) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for fd in (0, *(int(path.name) for path in [*Path("/proc/self/fd").iterdir()])):
                with contextlib.suppress(OSError):  # the listing's own; what others hold open does not end
                    _ = fd in (1, 2, orders, answers) or os.close(fd)
            os.dup2(2, 1)
            serve(os.fdopen(orders), answers, language, modules)
        os.close(orders)
        os.close(answers)
        self._orders, self._answers = to, os.fdopen(answers_from)

    def run(self, **order: Any) -> int:
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        return int(self._answers.readline())

    def end(self) -> None:
        os.close(self._orders)
        os.waitpid(self._pid, 0)


def drive(tree: str, core: int, place: Path) -> None:
    """Do jobs, one per line of the input; an answer is one line, too."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})  # files are read one after the other, in the same order each time
    room = place / f"drive-{core}"
    prepare(room, {f"in/{path.name}": path for path in [*Path(tree, "samples").iterdir()][:1]})
    sample = next(iter((room / "in").iterdir()))
    first = ["analyze", str(sample), "--html", "out/a", "--trace", "out/b", "--trace-full", "out/c"]
    fresh = Server("", [])
    fresh.run(room=str(room), columns=80, words=first, modules=str(room / "modules"))
    modules = (room / "modules").read_text().split()
    modules = [name for name in modules if not name.startswith(("_cython", "cython_", "same", "__m"))]
    servers = {way: Server(way, modules) for way in ("en", "zh")}
    for line in sys.stdin:
        job = json.loads(line)
        room = place / job["name"]
        prepare(room, job["sources"])
        with zipfile.ZipFile(job["to"] + ".part", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as kept:
            there: dict[Path, int] = {}
            for output, columns, words in job["asked"]:
                server = fresh if job["name"] == "alone" else servers["zh" if "zh" in words else "en"]
                code = server.run(room=str(room), columns=columns, words=words)
                now = {path: path.stat().st_mtime_ns for path in sorted((room / "out").rglob("*")) if path.is_file()}
                parts = [room / "stdout", room / "stderr", *(path for path in now if there.get(path) != now[path])]
                there = now
                text = b"".join(
                    b"--- %s\n%s\n" % (path.relative_to(room).as_posix().encode(), path.read_bytes()) for path in parts
                )
                text = text.replace(tree.encode(), b"<tree>")
                kept.writestr(output.replace("/", "_"), b"exit %d\n%s" % (code, text))
        Path(job["to"] + ".part").replace(job["to"])
        subprocess.run(["rm", "-rf", room], check=True)
        print("done", flush=True)
    for server in (fresh, *servers.values()):
        server.end()


def prepare(room: Path, sources: dict[str, Any]) -> None:
    """Make the place of a job: its input, and empty folders for all that is written."""
    subprocess.run(["rm", "-rf", room], check=True)
    for name in ("in", "out", "home", "tmp"):
        (room / name).mkdir(parents=True)
    for target, source in sources.items():
        (room / target).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-aT", source, room / target], check=True)
        if target != "in":  # not made by us: it may be read-only
            subprocess.run(["chmod", "-R", "u+rwX", room / target], check=True)
    for path in (room / "in").rglob("*"):
        with contextlib.suppress(OSError):
            os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)

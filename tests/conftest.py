"""Options and places that all tests share."""

from __future__ import annotations

import atexit
import compileall
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import typer.main

from npuperf.base.process import _SUBREAPER
from npuperf.model.document import Document
from npuperf.show import language

if TYPE_CHECKING:
    from preloaded import Loaded
    from workplace import Place

# The same examples every time, so that what passed here passes there, and few; to look for others:
# pytest --hypothesis-profile=hunt. How long one takes tells how busy the machine is.
hypothesis.settings.register_profile("hunt", deadline=None)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("same")

# Tests leave nothing behind in the user's folders, and nothing there decides what they see.
os.environ["NPUPERF_NO_CACHE"] = "1"
_STATE = tempfile.TemporaryDirectory(prefix="npuperf-tests-", ignore_cleanup_errors=True)
atexit.register(_STATE.cleanup)
os.environ["XDG_STATE_HOME"] = _STATE.name


# Commands that run within this process are made of their functions once, not each time: some run for less long. Verbs
# are made with them, while the language is spoken that their help is of.
@functools.cache
def _command_of(app: typer.Typer, _language: str, make: Any = typer.main.get_command) -> Any:
    command = make(app)
    for name in getattr(command, "commands", ()):
        command.commands[name]
    return command


typer.main.get_command = lambda app: _command_of(app, language.spoken())

# What they start keeps the bytecode of npuperf: compiling it anew takes half of a short command's time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# They read English, whoever runs them.
for _name in ("NPUPERF_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES"):
    os.environ.pop(_name, None)
os.environ["LANG"] = "C.UTF-8"

# Nor do they write what others may write to, whoever's umask lets them: such a file is not believed.
os.umask(0o022)

# A shell that runs us in the background has us ignore Ctrl-C, and all that we start would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "tests" / "cann_stub"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the recorded screens")
    parser.addoption("--every", action="store_true", help="run simulated jobs that others stand for, too")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: what a test has started it often waits for, and then others have its core."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Compile a share of the sources where no bytecode is kept yet: each worker would do all, while others do the same.

    With functions of pytest's own, which may change: then each worker does all.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    share = slice(int(worker["workerid"].removeprefix("gw")), None, worker["workercount"])
    for file in sorted((ROOT / "npuperf").rglob("*.py"))[share]:
        compileall.compile_file(file, quiet=2)
    with contextlib.suppress(ImportError, AttributeError, TypeError, OSError):
        from _pytest.assertion import rewrite

        for file in sorted((ROOT / "tests").rglob("test_*.py"))[share]:
            kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(kept.parent):
                source, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, that no process is left with it at the end while the others have nothing to do."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Never look for garbage in what stays, and seldom: that took an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of pytest-xdist have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that one test's need has filled for all, those in other workers of pytest-xdist among them."""
    folder = shared_folder(factory) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        done = folder.with_suffix(".made")
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def npu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the real torch_npu runs, over the CANN stand-in."""
    if importlib.util.find_spec("torch_npu") is None or shutil.which("gcc") is None:
        pytest.skip("needs torch_npu and gcc (pip install '.[dev]')")
    build = [sys.executable, str(STUB / "build.py"), "--python", sys.executable, "--out"]
    out = made_once(tmp_path_factory, "cann", lambda o: subprocess.run([*build, o], check=True, capture_output=True))
    stub = json.loads((out / "env.json").read_text())
    mine = Path(sys.executable).parent  # torchrun of this environment
    search = os.pathsep.join([stub["PATH"], str(mine), os.environ["PATH"]])
    return {**os.environ, **stub, "PATH": search, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def loaded(npu: dict[str, str], quick: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """The same, for programs that need no interpreter of their own: torch is loaded once for all of them."""
    from preloaded import Loaded

    with contextlib.ExitStack() as until:
        yield Loaded(npu, quick, shared_folder(tmp_path_factory), until)


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python that has loaded npuperf, for many short commands of a shell."""
    from preloaded import interpreter

    modules = ("npuperf.cli.analyze", "npuperf.cli.profile", "npuperf.against.run", "npuperf.show.formats")
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    with interpreter(shared_folder(tmp_path_factory) / "loaded_npuperf", here, *modules) as python:
        yield str(python)


@pytest.fixture(scope="session")
def sample() -> Path:
    """The profile that ships with the project."""
    return ROOT / "samples" / "transformer_ascend_pt"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A working folder with the stand-in for aoe."""
    from workplace import Place

    return Place(tmp_path)


@pytest.fixture(params=["whole", "compiled"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read traces each way; not in a conftest.py of the readers, which would take this one's name.

    A small trace is decoded, whole: only what is followed by more is read by the compiled reader.
    """
    from ways import in_small_pieces

    if request.param == "compiled":
        in_small_pieces(monkeypatch)
    return str(request.param)


@pytest.fixture(params=["compiled", "decoded"])
def either_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read traces in small pieces by the compiled reader, or as where there is none."""
    from ways import decoded_only, in_small_pieces

    in_small_pieces(monkeypatch)
    if request.param == "decoded":
        decoded_only(monkeypatch)
    return str(request.param)


@pytest.fixture(scope="session")
def everything() -> Iterator[dict[str, Document]]:
    """Documents of every kind, made where the samples' paths are short."""
    from sample_documents import documents

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield documents()


@dataclass(frozen=True)
class Done:
    """A finished command."""

    returncode: int
    stdout: str
    stderr: str


def run_cli(arguments: list[str], columns: int = 120) -> Done:
    """Run npuperf as from a shell, within this process: most of a short command's time is Python's start."""
    from npuperf.cli import main
    from npuperf.show.language import asked_for, choose

    choose(asked_for(arguments))
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["npuperf", *arguments])
        patch.setenv("COLUMNS", str(columns))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
            main()
    _adopt_no_more()
    return Done(int(left.value.code or 0), out.getvalue(), err.getvalue())


def _adopt_no_more() -> None:
    """Leave orphans to the system again: a command that ran here would adopt, and never reap, those of later tests."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 0, 0, 0, 0)


def until(happened: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something."""
    last = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < last, "it did not happen"
        time.sleep(0.02)


#: As the kernel counts them: what lets root read what the modes of files do not.
_OVERRIDE, _READ_SEARCH = 1, 2
_VERSION_3 = 0x20080522


@contextlib.contextmanager
def no_privileges() -> Iterator[None]:
    """Let modes of files hold for root, too, in this thread and those that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, found = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, found):
        pytest.skip("needs capabilities")
    before = found[0]
    found[0] &= ~(1 << _OVERRIDE | 1 << _READ_SEARCH)
    assert libc.capset(header, found) == 0
    try:
        yield
    finally:
        found[0] = before
        assert libc.capset(header, found) == 0

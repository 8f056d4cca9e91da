"""A Python that has modules loaded already: what it is to run runs in a fork of a process that has imported them.

Importing torch and torch_npu takes three seconds, and a recording needs them twice: for the program and for the parser;
npuperf's own modules take most of a short command's time. The interpreter made here is a file to be named by
``--python``; it hands its arguments, environment, folder and files on to that process, sends signals after them, and
ends as they end. ``import torch`` in the program then passes all finders, those of npuperf's agent among them, and only
what it would execute is there before. Who tests starts, signals' targets, or the order of what is done at exit wants
the real interpreter.
"""

from __future__ import annotations

import copy
import fcntl
import gc
import hashlib
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

#: What is passed on to the process: its length first, with the files that are its input and output.
_HEAD = 8
#: Seconds without anybody who wants it, after which the process ends: another worker may be about to come.
_LONELY_S = 10
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if not words or words[0] != "-m" and words[0].startswith("-"):
    os.execv({python!r}, [{python!r}, *words])
server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
request = json.dumps([sys.argv[0], words, dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(request).to_bytes({head}, "big")], [0, 1, 2])
server.sendall(request)
answers = server.makefile()
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(answers.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class Loaded(dict[str, str]):
    """The environment of torch_npu over the stand-in for CANN, and interpreters that have loaded torch in it.

    ``npuperf`` is one that has loaded npuperf.
    """

    def __init__(self, environment: Mapping[str, str], npuperf: str, folder: Path, until: ExitStack) -> None:
        super().__init__(environment)
        self.npuperf = npuperf
        self._folder, self._until = folder, until
        self._made: dict[bool, str] = {}

    def python(self, *, npu: bool = True) -> str:
        """Return an interpreter that has loaded torch_npu, too, or torch alone."""
        if npu not in self._made:
            environment = self if npu else {**self, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            name = f"loaded_{'npu' if npu else 'cpu'}"
            made = interpreter(
                self._folder / name, environment, "torch", "torch._dynamo"
            )  # the first optimizer has that
            self._made[npu] = str(self._until.enter_context(made))
        return self._made[npu]


@contextmanager
def interpreter(folder: Path, environment: Mapping[str, str], *modules: str) -> Iterator[Path]:
    """Yield the interpreter of a folder, which is there as long as a process wants it; the first one loads modules."""
    folder.mkdir(exist_ok=True)
    place = f"\0npuperf-{hashlib.sha256(bytes(folder)).hexdigest()}"
    client = folder / "python"
    with socket.socket(socket.AF_UNIX) as wanted, (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            wanted.connect(place)
        except OSError:
            client.write_text(_CLIENT.format(python=sys.executable, place=place, head=_HEAD))
            client.chmod(0o755)
            with (folder / "said").open("w") as said:
                subprocess.run(
                    [sys.executable, __file__, place[1:], *modules], env=dict(environment), check=True,
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                )  # fmt: skip
            wanted.connect(place)
        wanted.sendall(bytes(_HEAD))  # nothing is to run
        fcntl.flock(lock, fcntl.LOCK_UN)
        yield client


class _Loaded(MetaPathFinder):
    """Finds the modules that are there, as if each were to be executed now."""

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self.modules = modules

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self.modules:
            return None
        spec = copy.copy(self.modules[fullname].__spec__)
        assert spec is not None
        spec.loader = _Again(self.modules)
        return spec


class _Again(Loader):
    """Executes a module that has been: it imports those that it imports."""

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self.modules = modules

    def create_module(self, spec: Any) -> ModuleType:
        return self.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        for name in self.modules:
            __import__(name)


def serve(place: str, *wanted: str) -> None:
    """Load modules, with torch torch_npu if the environment lets it; run what is asked for while anybody may ask."""
    plain = sys.path[1:]  # without the folder of this file
    gc.disable()
    for name in wanted:
        importlib.import_module(name)

    modules = {name: sys.modules[name] for name in ("torch", "torch_npu") if name in sys.modules}
    gc.freeze()
    gc.enable()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{place}")
        listening.listen()
        if os.fork():  # who waits for this process knows by its end that all is ready
            os._exit(0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        asked = _next_request(listening)
    if asked is None:
        os._exit(0)
    _run(*asked, modules, plain)


def _next_request(listening: socket.socket) -> tuple[Any, list[int]] | None:
    """Return a request, in a process of its own, or None when nobody is left who may ask."""
    wanting = selectors.DefaultSelector()
    wanting.register(listening, selectors.EVENT_READ)
    while True:
        ready = wanting.select(_LONELY_S if len(wanting.get_map()) == 1 else None)
        if not ready:
            return None
        for key, _ in ready:
            if key.fileobj is not listening:
                wanting.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                continue
            caller, _ = listening.accept()
            head, files, _, _ = socket.recv_fds(caller, _HEAD, 3)
            if not files:
                wanting.register(caller, selectors.EVENT_READ)
                continue
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                with caller, caller.makefile("rb") as stream:
                    request = json.loads(stream.read(int.from_bytes(head, "big")))
                    _see_to_its_end(caller)
                for other in wanting.get_map().values():
                    other.fileobj.close()  # type: ignore[union-attr]
                return request, files
            caller.close()
            for file in files:
                os.close(file)


def _see_to_its_end(caller: socket.socket) -> None:
    """Go on in a child; tell the caller who that is and how it ends, and end it where the caller is gone."""
    child = os.fork()
    if child == 0:
        return
    caller.sendall(b"%d\n" % child)
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, caller], [], [])[0]:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    caller.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(request: Any, files: list[int], modules: Mapping[str, ModuleType], plain: list[str]) -> None:
    """Do in this process what Python does when it starts, and be the program."""
    executable, words, environment, folder = request
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.executable = executable
    for name in modules:
        del sys.modules[name]
    sys.meta_path.insert(0, _Loaded(modules))
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *plain]
    sys.modules.pop("sitecustomize", None)
    sys.path_importer_cache.clear()
    with suppress(ImportError):
        import sitecustomize  # noqa: F401
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, folder)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    script = Path(folder, words[0])
    sys.path.insert(0, str(script.parent))
    main = ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), script, "exec"), main.__dict__)


if __name__ == "__main__":
    serve(*sys.argv[1:])

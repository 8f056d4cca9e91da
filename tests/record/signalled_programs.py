"""Programs that go on until a signal ends them: how they end is the same with npuperf and without.

``python signalled_programs.py serve`` imports torch once and is asked for programs on stdin, a line of JSON each
(``[kind, number, folder]``): it forks one, prints its process number and, when it has ended, its status. Their output
goes to ``out`` of the folder, where ``ready`` appears when the first step was made. PROGRAMS_ON is the device that
they use.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Steps before an engine that is to hang does so: in the window, and after it.
HANG_AT = (8, 40)
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
#: Seconds by which a step is longer than it takes.
_PACE = 0.002


class Ready:
    """Says that the first step was made, or something else."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str = "ready") -> None:
        (Path(self.folder) / name).touch()


def hang() -> None:
    """Wait in C, as for a peer that is gone: no handler of Python's is run any more."""
    held, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(held)
    libc.pthread_mutex_lock(held)


def stepper() -> Callable[[], None]:
    """Return what makes one step of a training."""
    import torch

    device = os.environ.get("PROGRAMS_ON", "cpu")
    model = torch.nn.Linear(8, 8, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(_PACE)

    return step


def train(ready: Callable[[], None], until: Callable[[int], object]) -> None:
    """Make steps until something is true."""
    step, made = stepper(), 0
    while not until(made):
        step()
        made += 1
        if made == 1:
            ready()


def trainer(ready: Callable[[], None], number: int) -> None:
    """Handles nothing."""
    train(ready, lambda made: False)


def hanging(ready: Callable[[], None], number: int) -> None:
    """Waits in C from some step on."""
    train(ready, lambda made: made == HANG_AT[number % 2] and hang())


def saving(ready: Callable[[], None], number: int) -> None:
    """Saves when it is told to end, and ends with a status of its own."""
    told: list[int] = []
    for name in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, lambda number, _: told.append(number))
    train(ready, lambda made: told)
    print("saved", told, flush=True)
    sys.exit(3)


def leaving(ready: Callable[[], None], number: int) -> None:
    """Leaves from within its handlers, as many servers do."""

    def leave(number: int, _: object) -> None:
        print("told", number, flush=True)
        sys.exit(4)

    for name in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(name, leave)
    train(ready, lambda made: False)


def serving(ready: Callable[[], None], number: int) -> None:
    """Works in an event loop that is woken by signals."""

    async def serve() -> None:
        loop, step, told = asyncio.get_running_loop(), stepper(), asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGUSR2):
            loop.add_signal_handler(name, lambda name=name: (print("told", name, flush=True), told.set()))
        step()
        ready()
        while not told.is_set():
            step()
            await asyncio.sleep(0)
        print("stopped", flush=True)

    asyncio.run(serve())


def shells(ready: Callable[[], None], number: int) -> None:
    """Starts a shell every few steps, which hears what it would hear."""

    def shell(made: int) -> None:
        if made % 8 == 0:
            status = subprocess.run(["sh", "-c", "kill -s TERM $$; echo no"], stdout=subprocess.PIPE).returncode
            if status != -signal.SIGTERM:
                print("shell", status, flush=True)

    train(ready, shell)


def engine(line: Any, ready: Ready, number: int) -> None:
    """Answer; wait in C for good after some answers, where that is asked for."""
    hangs = number % 3
    step, made = stepper(), 0
    while line.recv() is not None:
        step()
        made += 1
        if made == 1:
            ready()
        line.send(made)
        if hangs and made == HANG_AT[hangs - 1]:
            ready("hangs")
            hang()


def server(ready: Ready, number: int, how: str = "fork") -> None:
    """An engine in a process of its own; it is ended with the server."""
    context = multiprocessing.get_context(how)
    ours, theirs = context.Pipe()
    child: Any = context.Process(target=engine, args=(theirs, ready, number), daemon=True)  # type: ignore[attr-defined]
    child.start()
    theirs.close()

    def terminated(*_: object) -> None:
        child.terminate()
        child.join(20)
        print("engine", child.exitcode, flush=True)
        if child.exitcode is None:
            child.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, terminated)
    try:
        while True:
            ours.send(1)
            ours.recv()
    except (EOFError, OSError):
        child.join()
        print("the engine is gone", child.exitcode, flush=True)
        sys.exit(5)


def _rank(rank: int, ready: Callable[[], None], number: int) -> None:
    if rank:
        train(ready, lambda made: made == HANG_AT[number % 2] + number // 2 % 8 and sys.exit(6))
    else:
        train(lambda: None, lambda made: made == HANG_AT[number // 2 % 2] and hang())


def peers(ready: Callable[[], None], number: int) -> None:
    """Two ranks, of which one dies and the other waits for it in C; nobody sends a signal but their launcher."""
    import torch.multiprocessing

    try:
        torch.multiprocessing.start_processes(_rank, (ready, number), nprocs=2, start_method="fork")
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[-1:], flush=True)
        sys.exit(7)


KINDS: dict[str, Callable[[Ready, int], None]] = {
    made.__name__: made for made in (trainer, hanging, saving, leaving, serving, shells, server, peers)
}


def serve() -> None:
    """Fork what is asked for."""
    import gc

    import torch._dynamo  # noqa: F401 - optimizers import it: once for all

    gc.freeze()
    for line in sys.stdin:
        kind, number, folder = json.loads(line)
        child = os.fork()
        if not child:
            os.setsid()
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # who asked is gone
            for file, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), file)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            (KINDS | {"spawned": functools.partial(server, how="spawn")})[kind](Ready(folder), number)
            sys.exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()

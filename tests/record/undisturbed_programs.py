"""Small programs that train, each in a process of its own: what they print is the same with npuperf and without.

``python undisturbed_programs.py FOLDER NAME…`` runs them one after the other and prints how each ended; for each, the
folder gets a file of its name that holds its process number. One interpreter serves all: importing torch takes longest.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

gc.disable()
import torch  # noqa: E402  # what it makes stays: no child is to look through it, nor to copy it

if __name__ == "__main__":  # a spawned worker needs none of it
    import torch._dynamo  # optimizers import it: once for all
    import torch._inductor.cudagraph_trees  # as does torch.compile

gc.freeze()
gc.enable()

#: Steps that every program makes; the window lies within them.
STEPS = 24
INSIDE = 8


class Training:
    """A model, an optimizer and what they come to."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, data: Any = None) -> None:
        self.model(torch.ones(4, 8) if data is None else data).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def result(self) -> str:
        return hashlib.sha256(self.model.weight.detach().numpy().tobytes()).hexdigest()


def train(inside: Callable[[], object] = lambda: None) -> None:
    """Train; do something in the middle of the window."""
    training = Training()
    for i in range(STEPS):
        training.step()
        if i == INSIDE:
            inside()
    print(training.result(), torch.rand(1).item())


def compiled() -> None:
    training = Training()
    step = torch.compile(training.optimizer.step, backend="eager")
    for _ in range(STEPS):
        training.model(torch.ones(4, 8)).sum().backward()
        step()
    print(training.result())
    print(dict(torch._dynamo.utils.counters["frames"]))


def compiled_with_the_loss() -> None:
    training = Training()
    torch.optim.lr_scheduler.StepLR(training.optimizer, 100)  # it wraps the optimizer's step, too

    @torch.compile(backend="eager")
    def step() -> None:
        training.step()

    for _ in range(STEPS):
        step()
    print(training.result())
    print(dict(torch._dynamo.utils.counters["frames"]))


def two_threads() -> None:
    trainings = [Training(1), Training(2)]

    def work(training: Training, pause: float) -> None:
        for _ in range(STEPS):
            training.step()
            sys.stdout.flush()
            time.sleep(pause)

    threads = [
        threading.Thread(target=work, args=(training, pause), name=f"trainer {pause}")
        for training, pause in zip(trainings, (0.001, 0.002), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print([training.result() for training in trainings])


def own_handlers() -> None:
    leave = os._exit

    def terminated(*_: object) -> None:
        print("terminated")

    def mine(status: int) -> None:
        print("leaving by my own", status, flush=True)
        leave(status + 1)

    def install() -> None:
        signal.signal(signal.SIGTERM, terminated)
        signal.signal(signal.SIGINT, terminated)
        os._exit = mine  # type: ignore[assignment]
        sys.excepthook = threading.excepthook = mine  # type: ignore[assignment]
        atexit.register(print, "my atexit")

    train(install)
    print(signal.getsignal(signal.SIGTERM) is terminated, signal.getsignal(signal.SIGINT) is terminated)
    print(sys.excepthook is mine, threading.excepthook is mine)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(4)


def handlers_before() -> None:
    """What is there before the window is there after it."""
    signal.signal(signal.SIGTERM, lambda *_: print("terminated"))
    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(n) for n in names], os._exit, sys.excepthook, sys.stdout, threading.excepthook
    train(lambda: os.kill(os.getpid(), signal.SIGTERM))
    after = [signal.getsignal(n) for n in names], os._exit, sys.excepthook, sys.stdout, threading.excepthook
    print(before == after)


def scaled() -> None:
    training = Training()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16):
            loss = training.model(torch.ones(4, 8)).sum()
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        training.optimizer.zero_grad()
    print(training.result())


def loaded(how: str) -> None:
    training = Training()
    data = torch.utils.data.TensorDataset(torch.arange(8.0 * 4 * STEPS).reshape(-1, 8) / 1000)
    loader = torch.utils.data.DataLoader(data, 4, num_workers=1, shuffle=True, multiprocessing_context=how)
    for (batch,) in loader:
        training.step(batch)
    print(training.result())


def forks() -> None:
    """A child that is forked inside the window trains on, and leaves through atexit and finalizers."""
    training = Training()
    for i in range(STEPS):
        training.step()
        if i == INSIDE:
            sys.stdout.flush()
            child = os.fork()
            if not child:
                print("child", signal.getsignal(signal.SIGTERM), os._exit.__module__)
                training.step()
                print(training.result())
                sys.exit(5)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(training.result())


def fails() -> None:
    raise ValueError("of the program")


PROGRAMS: dict[str, Callable[[], object]] = {
    "plain": train,
    "compiled": compiled,
    "compiled with the loss": compiled_with_the_loss,
    "two threads": two_threads,
    "own handlers": own_handlers,
    "handlers before": handlers_before,
    "scaled": scaled,
    "workers forked": lambda: loaded("fork"),
    "workers spawned": lambda: loaded("spawn"),
    "forks": forks,
    "fails": lambda: train(fails),
    "sys.exit": lambda: train(lambda: sys.exit(7)),
    "os._exit": lambda: train(lambda: os._exit(9)),
    "killed": lambda: train(lambda: os.kill(os.getpid(), signal.SIGTERM)),
    "interrupted": lambda: train(lambda: os.kill(os.getpid(), signal.SIGINT)),
}


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        print(name, flush=True)
        child = os.fork()
        if not child:
            (folder / name).write_text(str(os.getpid()))
            PROGRAMS[name]()
            sys.exit(0)
        print("exit status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

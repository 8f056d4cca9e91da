"""Programs that go on until they are told to end: ``standby_program.py FOLDER`` trains, and forks when it is told to.

A file in the folder tells it: ``fork_NAME`` (a child is to be that program), ``rest`` (make no more steps) or
``enough``. It prints what is left in it.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

gc.disable()
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # once for all children

gc.freeze()
gc.enable()
here = Path(sys.argv[1])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)  # it keeps the optimizer's step
weights = torch.ones(8, 8)


def is_enough() -> bool:
    return (here / "enough").exists()


def train() -> None:
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def ranges() -> None:
    while not is_enough():
        with torch.profiler.record_function("before"):
            train()
        with torch.profiler.record_function("decode"):
            functional()


def functional() -> None:
    with torch.autograd.profiler.record_function("functional"):
        (weights @ weights).clamp(0, 1)


def compiled() -> None:
    """Its range is in what torch.compile sees, too."""

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("decode"):
            return (x @ x).clamp(0, 1)

    while not is_enough():
        with torch.profiler.record_function("decode"):
            step(weights)
    print("compiled", dict(torch._dynamo.utils.counters["frames"]), flush=True)


def joins() -> None:
    """The main thread is inside of one C function; another calls the model."""

    def serve() -> None:
        while not is_enough():
            model(torch.ones(4, 8))
            (here / "serving").touch()

    thread = threading.Thread(target=serve, name="server")
    thread.start()
    thread.join()


def by_itself() -> None:
    import npuperf

    for _ in range(2):
        train()
        npuperf.start()
        train()
        functional()
        train()
        npuperf.stop()
        train()
    while not is_enough():
        functional()


PROGRAMS: dict[str, Callable[[], object]] = {
    "ranges": ranges,
    "compiled": compiled,
    "joins": joins,
    "by_itself": by_itself,
}


def main() -> None:
    children: dict[str, int] = {}
    while not is_enough():
        if (here / "rest").exists():
            functional()
        else:
            train()
        for file in here.glob("fork_*"):
            name = file.name.partition("_")[2]
            if name not in children:
                children[name] = os.fork()
                if not children[name]:
                    (here / f"child_{name}_{os.getpid()}").touch()
                    PROGRAMS.get(name, lambda: [train() for _ in iter(is_enough, True)])()
                    os._exit(0)
    for name, child in children.items():
        print("child", name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print("threads", [thread.name for thread in threading.enumerate()])
    print("forward", torch.nn.Module.__call__.__module__, os._exit.__module__)
    entered = torch.autograd.profiler.record_function.__enter__
    print("ranges", entered.__code__.co_filename.replace(str(Path(torch.__file__).parent), ""))


if __name__ == "__main__":
    main()

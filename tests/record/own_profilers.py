"""Small programs with profilers of their own, each in a process of its own: they print what these have recorded.

``python own_profilers.py DEVICE FOLDER NAME…`` runs them one after the other and prints how each ended; for each, the
folder gets a file of its name that holds its process number, and what its profilers write.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

gc.disable()
import torch  # noqa: E402  # what it makes stays: no child is to look through it, nor to copy it
import torch._dynamo  # noqa: E402  # optimizers import it: once for all
from torch.autograd import profiler as autograd_profiler  # noqa: E402
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, record_function, schedule  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

gc.freeze()
gc.enable()

#: Steps that every program makes. npuperf waits for 6, warms up in one and records 4: those that are 7 to 10.
STEPS = 24
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
CPU = [ProfilerActivity.CPU]

model: Any = None
optimizer: Any = None


def begin() -> None:
    """Make what is trained, in each process anew."""
    global model, optimizer
    if DEVICE == "npu":
        torch.npu.set_compile_mode(jit_compile=False)  # which library runs an operator is chance otherwise
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)


def step() -> None:
    model(torch.ones(4, 8, device=DEVICE)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


class Kineto:
    """A profiler of ``torch.profiler``, or of ``torch.autograd.profiler``, which has other names for the same."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.profiler = make()
        self.start = getattr(self.profiler, "start", None) or self.profiler.__enter__
        self.stop = getattr(self.profiler, "stop", None) or partial(self.profiler.__exit__, None, None, None)

    def tell(self) -> None:
        events = getattr(self.profiler, "function_events", None)
        tell(self.profiler.events() if events is None else events)
        self.profiler.export_chrome_trace("trace.json")
        tell_trace("trace.json")


def tell(events: Any) -> None:
    print(sorted(Counter(event.name for event in events).items()))


def tell_trace(path: str) -> None:
    events = json.loads(Path(path).read_text())["traceEvents"]
    print(len([e for e in events if e["ph"] == "X"]), "in the trace")


class Observer:
    """Every operator, as ``torch.profiler.ExecutionTraceObserver`` writes it."""

    def __init__(self) -> None:
        self.observer = ExecutionTraceObserver().register_callback("observed.json")
        self.start, self.stop = self.observer.start, self.observer.stop

    def tell(self) -> None:
        self.observer.unregister_callback()
        print(sorted(Counter(node["name"] for node in json.loads(Path("observed.json").read_text())["nodes"]).items()))


class Ascend:
    """A profiler of ``torch_npu.profiler``."""

    def __init__(self, kind: str = "profile", folder: str = "ascend", **options: Any) -> None:
        import torch_npu

        self.folder = folder
        options.setdefault("activities", [torch_npu.profiler.ProfilerActivity.CPU])
        if kind == "profile":
            options["on_trace_ready"] = torch_npu.profiler.tensorboard_trace_handler(folder, analyse_flag=False)
        self.profiler = getattr(torch_npu.profiler, kind)(**options)
        self.start, self.stop, self.step = self.profiler.start, self.profiler.stop, getattr(self.profiler, "step", None)

    def tell(self) -> None:
        tell_ascend(self.folder)


def tell_ascend(folder: str) -> None:
    for path in sorted(Path(folder).glob("*_ascend_pt/FRAMEWORK/torch.op_range")):
        print(sorted(Counter(re.findall(rb"[A-Za-z_:#.0-9]{7,}", path.read_bytes())).items()))
    print(len([*Path(folder).glob("*")]), "recordings")


KINDS: dict[str, Callable[[], Any]] = {
    "profile": lambda: Kineto(lambda: torch.profiler.profile(activities=CPU)),
    "kineto": lambda: Kineto(lambda: torch.profiler._KinetoProfile(activities=CPU)),
    "autograd": lambda: Kineto(autograd_profiler.profile),
    "observer": Observer,
}
if DEVICE == "npu":
    KINDS = {
        "profile": KINDS["profile"],
        "autograd device": lambda: Kineto(lambda: autograd_profiler.profile(use_device="npu")),
        "ascend": Ascend,
    }
#: Between which steps a profiler of the program records, against npuperf's from the 6th to the 11th.
SPANS = {
    "before": (0, 4),
    "containing": (2, 20),
    "equal": (6, 11),
    "overlapping its begin": (4, 8),
    "overlapping its end": (9, 14),
    "contained": (8, 9),
    "after": (14, 18),
}


def spanning(kind: str, begin: int, end: int, made_at: int = 0) -> None:
    for i in range(STEPS):
        if i == made_at:
            profiler = KINDS[kind]()
        if i == begin:
            profiler.start()
        if i == end:
            profiler.stop()
        step()
    profiler.tell()


def around_all(kind: str) -> None:
    profiler = KINDS[kind]()
    profiler.start()
    for _ in range(STEPS):
        step()
    profiler.stop()
    profiler.tell()


def scheduled(**phases: int) -> None:
    """The loop of PyTorch's tutorial."""

    def ready(profiler: Any) -> None:
        print("ready", profiler.step_num)
        tell(profiler.events())
        print(len(profiler.key_averages().table()) > 0)
        profiler.export_chrome_trace(f"trace_{profiler.step_num}.json")
        tell_trace(f"trace_{profiler.step_num}.json")

    with torch.profiler.profile(activities=CPU, schedule=schedule(**phases), on_trace_ready=ready) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()


def ascend_scheduled(**options: Any) -> None:
    """The same, with torch_npu's."""
    import torch_npu

    phases = {"wait": 6, "warmup": 1, "active": 4, "repeat": 1, **options}
    activities = [torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU]
    profiler = Ascend(schedule=torch_npu.profiler.schedule(**phases), activities=activities)
    profiler.start()
    for _ in range(STEPS):
        step()
        profiler.step()
    profiler.stop()
    profiler.tell()


def dynamic() -> None:
    """torch_npu's dynamic profiler, which is told while the program runs; here before."""
    import torch_npu
    from torch_npu.profiler import dynamic_profile

    os.environ["RANK"] = "0"  # it says otherwise, again and again, that there is none
    told = {"activities": ["CPU", "NPU"], "prof_dir": "dynamic", "analyse": False, "active": 2, "start_step": 0}
    Path("profiler_config.json").write_text(json.dumps(told))
    for i in range(STEPS):
        step()
        if i == 8:
            torch_npu.profiler.dynamic_profile.init(".")
            dynamic_profile.start("profiler_config.json")
        if i > 8:
            dynamic_profile.step()
    tell_ascend("dynamic")


def in_scopes() -> None:
    """Scopes that are open when npuperf's window begins or ends, and when the program's own does."""
    profiler = KINDS["profile"]()
    outer = record_function("outer").__enter__()
    for i in range(STEPS):
        if i == 7:
            middle = record_function("middle").__enter__()
        if i == 9:
            profiler.start()
        with record_function("inner"):
            step()
        if i == 12:
            middle.__exit__(None, None, None)
        if i == 14:
            outer.__exit__(None, None, None)
        if i == 16:
            profiler.stop()
    profiler.tell()


def in_a_thread(kind: str, begin: int, end: int) -> None:
    """The profiler and what it records are in a thread beside the one that makes the steps."""
    turns = [threading.Event() for _ in range(STEPS + 1)]
    done = [threading.Event() for _ in range(STEPS)]
    profiler = KINDS[kind]()

    def work() -> None:
        other = torch.nn.Linear(8, 8).to(DEVICE)
        for i in range(STEPS):
            turns[i].wait()
            if i == begin:
                profiler.start()
            other(torch.ones(4, 8, device=DEVICE)).sum().backward()
            if i == end:
                profiler.stop()
            done[i].set()

    thread = threading.Thread(target=work)
    thread.start()
    for i in range(STEPS):
        step()
        turns[i].set()
        done[i].wait()
    thread.join()
    profiler.tell()


def in_backward(profiled: tuple[int, int] | None = None, checkpointed: bool = False) -> None:
    """Every parameter has an optimizer of its own, which steps as soon as its gradient is there."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8).to(DEVICE) for _ in range(3)]
    optimizers = {p: torch.optim.Adam([p], lr=0.01, foreach=False) for layer in layers for p in layer.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)
    profiler = KINDS["profile"]()
    for i in range(STEPS):
        if profiled and i == profiled[0]:
            profiler.start()
        if profiled and i == profiled[1]:
            profiler.stop()
        data = torch.ones(4, 8, device=DEVICE, requires_grad=True)
        for layer in layers:
            data = checkpoint(layer, data, use_reentrant=True) if checkpointed else layer(data)
        data.square().sum().backward()
    if profiled:
        profiler.tell()
    if DEVICE == "cpu":
        print([layer.weight.sum().item() for layer in layers])
    print(torch.autograd._engine_run_backward.__module__, autograd_profiler.record_function.__enter__.__module__)


def begun_in_backward() -> None:
    """A profiler that begins inside of backward and goes on after it is lost there, with npuperf or without."""
    begin()
    own = torch.profiler.profile(activities=CPU)
    for i in range(STEPS):
        inner = model(torch.ones(4, 8, device=DEVICE))
        if i == 8:
            inner.register_hook(lambda _: own.start())
        inner.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i == 8:
            own.stop()
            tell(own.events())


PROGRAMS: dict[str, Callable[[], object]] = {
    **{f"{kind}, {span}": partial(spanning, kind, *SPANS[span]) for kind in KINDS for span in SPANS},
    **{f"{kind}, around all": partial(around_all, kind) for kind in KINDS},
    "profile, made inside": partial(spanning, "profile", 8, 12, 8),
    "tutorial": partial(scheduled, wait=1, warmup=1, active=3, repeat=2),
    "scheduled, equal": partial(scheduled, wait=6, warmup=1, active=4, repeat=1),
    "scheduled, for ever": partial(scheduled, wait=1, warmup=1, active=2),
    "scheduled, never": partial(scheduled, wait=100, warmup=1, active=2),
    "ascend, scheduled": ascend_scheduled,
    "ascend, for ever": partial(ascend_scheduled, wait=1, active=2, repeat=0),
    "ascend, never": partial(ascend_scheduled, wait=100),
    "dynamic": dynamic,
    "in scopes": in_scopes,
    **{f"{kind}, in a thread, {span}": partial(in_a_thread, kind, *SPANS[span]) for kind in KINDS for span in SPANS},
    "in backward": in_backward,
    "begun in backward": begun_in_backward,
    "in backward, nested": partial(in_backward, checkpointed=True),
    "in backward, profiled": partial(in_backward, (8, 12)),
}


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        print(name, flush=True)
        child = os.fork()
        if not child:
            (folder / name).mkdir()
            os.chdir(folder / name)
            Path("pid").write_text(str(os.getpid()))
            begin()
            PROGRAMS[name]()
            sys.exit(0)
        print("exit status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3:] or [*PROGRAMS])

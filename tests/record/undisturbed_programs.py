"""Small programs that train, each in a process of its own: what they print is the same with npuperf and without.

``python undisturbed_programs.py FOLDER NAME…`` runs them one after the other, each in a folder of its name, and prints
how each ended; beside that folder ``NAME.pid`` holds the number of the process that is to be recorded. One interpreter
serves all: importing torch takes longest. PROGRAMS_ON is the device that they use, the CPU unless it is set.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import faulthandler
import gc
import hashlib
import io
import os
import signal
import sys
import threading
import time
import traceback
import urllib.request
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

gc.disable()
import torch  # noqa: E402  # what it makes stays: no child is to look through it, nor to copy it

if __name__ == "__main__":  # a spawned worker needs none of it
    import torch._dynamo  # optimizers import it: once for all
    import torch._inductor.cudagraph_trees  # as does torch.compile

gc.freeze()
gc.enable()

DEVICE = os.environ.get("PROGRAMS_ON", "cpu")
#: Steps that every program makes; the window lies within them.
STEPS = 24
INSIDE = 8


class Training:
    """A model, an optimizer and what they come to."""

    def __init__(self, seed: int = 0, device: str = DEVICE) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(8, 8, device=device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, data: Any = None) -> None:
        self.model(torch.ones(4, 8, device=DEVICE) if data is None else data).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def result(self) -> str:
        return hashlib.sha256(self.model.weight.detach().cpu().numpy().tobytes()).hexdigest()


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
        training.model(torch.ones(4, 8, device=DEVICE)).sum().backward()
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
    """Each makes its step when the other has made the one before: else one might have made all before the other."""
    trainings, both = [Training(1), Training(2)], threading.Barrier(2)

    def work(training: Training, pause: float) -> None:
        for _ in range(STEPS):
            training.step()
            sys.stdout.flush()
            time.sleep(pause)
            both.wait()

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
    scaler = torch.amp.GradScaler(DEVICE)
    for _ in range(STEPS):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = training.model(torch.ones(4, 8, device=DEVICE)).sum()
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


def note() -> None:
    """This process is the one that is to be recorded."""
    Path(f"../{Path.cwd().name}.pid").write_text(str(os.getpid()))


def in_a_child(work: Callable[[], object]) -> None:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        note()
        work()
        leave(6)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def forked_before(steps: int) -> None:
    """The model is the parent's, and so is a scheduler that has wrapped the optimizer; the child trains.

    The child opens the device: torch_npu's queue does not outlive a fork.
    """
    training = Training(device="cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 10)
    for _ in range(steps):
        training.step(torch.ones(4, 8))

    def work() -> None:
        training.model.to(DEVICE)
        for _ in range(STEPS):
            training.step()
            scheduler.step()
        print(training.result(), scheduler.get_last_lr())

    in_a_child(work)


def in_a_thread(*, daemon: bool) -> None:
    """A thread trains, and ends, or blocks, in the middle of the window; the program goes on."""
    training, trained = Training(), threading.Event()

    def work() -> None:
        for _ in range(INSIDE + 1):
            training.step()
        trained.set()
        if daemon:
            threading.Event().wait()

    thread = threading.Thread(target=work, daemon=daemon, name="trainer")
    thread.start()
    trained.wait()
    if not daemon:
        thread.join()
    print(training.result(), training.model(torch.ones(1, 8, device=DEVICE)).sum().item(), threading.active_count())


def accumulated() -> None:
    training = Training()
    for i in range(4 * STEPS):
        training.model(torch.full((4, 8), i / 100, device=DEVICE)).square().sum().backward()
        if i % 4 == 3:
            training.optimizer.step()
            training.optimizer.zero_grad()
    print(training.result())


def with_closures() -> None:
    training, calls = Training(), []
    optimizer = torch.optim.LBFGS(training.model.parameters(), max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = training.model(torch.ones(4, 8, device=DEVICE)).square().sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    print(training.result(), len(calls), calls[-1])


def traced(install: Callable[[Any], None]) -> None:
    """As coverage does: it counts what happens in its own file."""
    seen: list[tuple[str, str, int]] = []

    def trace(frame: Any, event: str, _: object) -> Any:
        if frame.f_code.co_filename == __file__:
            seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace

    install(trace)
    train()
    install(None)
    print(len(seen), hashlib.sha256(repr(seen).encode()).hexdigest())


class Own(io.StringIO):
    """A stream of the program's own."""

    def write(self, text: str) -> int:
        return sys.__stdout__.write(f"<{text}>")  # type: ignore[union-attr]


def own_stdout() -> None:
    mine = Own()

    def install() -> None:
        sys.stdout = mine

    train(install)
    print(sys.stdout is mine)


def closed_stdout() -> None:
    train(lambda: sys.stdout.close())


def elsewhere() -> None:
    """It changes its folder, and what it inherits from it, in the middle of the window."""
    Path("other").mkdir()
    train(lambda: os.chdir("other"))
    Path("written").write_text("here")
    print(sorted(p.name for p in Path().iterdir()), Path.cwd().name)


def released() -> None:
    """What it drops is gone at once, without any garbage collector."""
    gc.disable()
    training = Training()
    gone = [weakref.ref(training.model), weakref.ref(training.optimizer)]
    for _ in range(STEPS):
        training.step()
    del training
    print([reference() for reference in gone][:1], gc.isenabled(), gc.get_threshold())


def recursive() -> None:
    def deep(n: int) -> int:
        return deep(n - 1) + 1 if n else 0

    sys.setrecursionlimit(5000)
    train(lambda: print(deep(4000)))
    print(sys.getrecursionlimit())


def reported() -> None:
    """Its own stack, from within and without, and what faulthandler says of a fault."""
    faulthandler.enable()
    train(lambda: traceback.print_stack(limit=2))
    os.kill(os.getpid(), signal.SIGSEGV)


def scanned() -> None:
    """It looks at every hook of the interpreter, in the middle of the window and after it."""

    def look() -> None:
        print([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks))
        print([name for name in sys.path if "inject" in name], sys.gettrace(), sys.getprofile(), sys.displayhook)
        print(threading.active_count(), sys.getswitchinterval(), signal.getsignal(signal.SIGUSR1).name)

    train(look)
    look()
    print(torch.optim.Adam.step.__qualname__, torch.optim.Optimizer.__init__.__qualname__, torch.nn.Module.__call__)


def profiled(after: int) -> None:
    """Its own profiler, once all has been recorded."""
    training = Training()
    for _ in range(after):
        training.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as mine:
        for _ in range(STEPS):
            training.step()
    mine.export_chrome_trace("own.json")
    print(training.result(), sorted((e.key, e.count) for e in mine.key_averages()))


def fails() -> None:
    raise ValueError("of the program")


def hang() -> None:
    """Wait in C, where no handler of Python's gets a thread out."""
    held, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(held)
    libc.pthread_mutex_lock(held)


def left_by_a_thread() -> None:
    """What watches over a main thread that hangs leaves at once: it waits for nothing that this one may hold."""
    threading.Thread(target=os._exit, args=(11,)).start()
    hang()


def killed() -> None:
    if not os.fork():
        time.sleep(0.2)  # the parent dies of it sooner, too
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    hang()


# -- Programs that answer: their steps are calls of a model.


class Model(torch.nn.Linear):
    """What is served; every answer is a number of its own."""

    def __init__(self, device: str = DEVICE) -> None:
        torch.manual_seed(0)
        super().__init__(8, 8, device=device)

    @torch.inference_mode()
    def answer(self, question: int) -> float:
        answer: float = self(torch.full((1, 8), question / 100, device=self.weight.device)).sum().item()
        return answer


def loop() -> None:
    model = Model()
    print([model.answer(i) for i in range(STEPS)])


def pool() -> None:
    """All four have twelve answers to give, however long one of them is held up."""
    model, all_four = Model(), threading.Barrier(4)

    def answer(first: int) -> list[float]:
        all_four.wait()
        return [model.answer(first + i) for i in range(12)]

    with ThreadPoolExecutor(4, "worker") as workers:
        print(list(workers.map(answer, range(0, 48, 12))))


def http(server: type[HTTPServer]) -> None:
    """A server, and all who ask it; each answer comes in a thread of its own, or all in one."""
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = str(model.answer(int(self.path[1:]))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with server(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,), name="server")
        thread.start()
        place = f"http://127.0.0.1:{serving.server_address[1]}"
        for i in range(STEPS):
            with urllib.request.urlopen(f"{place}/{i}", timeout=60) as answer:
                print(answer.read().decode())
        serving.shutdown()
        thread.join()


def asynchronous() -> None:
    model = Model()

    async def answer(reader: Any, writer: Any) -> None:
        while line := await reader.readline():
            writer.write(f"{model.answer(int(line))}\n".encode())
            await writer.drain()
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_unix_server(answer, "socket"):
            reader, writer = await asyncio.open_unix_connection("socket")
            for i in range(STEPS):
                writer.write(f"{i}\n".encode())
                print((await reader.readline()).decode(), end="")
            writer.close()

    asyncio.run(ask())
    Path("socket").unlink(missing_ok=True)


def prefork() -> None:
    """The parent warms the model up, without opening the device; its child answers."""
    model = Model("cpu")
    print([model.answer(i) for i in range(3)])
    in_a_child(lambda: print([model.to(DEVICE).answer(i) for i in range(STEPS)]))


class Prepared(torch.utils.data.Dataset[Any]):
    """Its workers call modules, too, and often; these are no steps."""

    def __init__(self) -> None:
        self.prepare = torch.nn.LayerNorm(8)

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, i: int) -> Any:
        return self.prepare(torch.arange(8.0) + i).detach()


def prepared() -> None:
    model = Model()
    loader = torch.utils.data.DataLoader(Prepared(), 4, num_workers=2, multiprocessing_context="fork")
    with torch.inference_mode():
        print([model(batch).sum().item() for batch in loader])


def batches() -> Any:
    data = torch.arange(STEPS * 32.0).reshape(-1, 8) / 1000
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), 4)


def accelerated() -> None:
    """Its optimizer holds the one that steps, its scheduler gives that a step of its own."""
    from accelerate import Accelerator

    training, accelerator = Training(), Accelerator(cpu=DEVICE == "cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 8, 0.5)
    prepared = accelerator.prepare(training.model, training.optimizer, batches(), scheduler)
    model, optimizer, loader, scheduler = prepared
    for (batch,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    accelerator.save_state("state")
    print(training.result(), scheduler.get_last_lr(), accelerator.device)


def with_transformers() -> None:
    """A whole trainer, which saves in the middle of the window."""
    if DEVICE == "cpu":
        sys.modules["torch_npu"] = None  # type: ignore[assignment]  # it would import that, which needs CANN

    import transformers

    class Judged(Model):
        def forward(self, data: Any, labels: Any = None) -> Any:  # type: ignore[override]
            return {"loss": super().forward(data).square().mean()}

    data = [{"data": torch.arange(8.0) + i, "labels": 0} for i in range(4 * STEPS)]
    model = Judged()
    asked = transformers.TrainingArguments(
        "out", use_cpu=DEVICE == "cpu", max_steps=STEPS, per_device_train_batch_size=4, save_steps=INSIDE,
        logging_steps=INSIDE, report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = transformers.Trainer(model, asked, train_dataset=data)
    trainer.remove_callback(transformers.PrinterCallback)  # it prints times
    ended = trainer.train()
    print(ended.global_step, ended.training_loss, [entry.get("loss") for entry in trainer.state.log_history])
    print({name: value.sum().item() for name, value in model.state_dict().items()})


def with_lightning() -> None:
    """A whole trainer, whose optimizer's step calls what computes the loss."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Training().model

        def training_step(self, batch: Any, _: int) -> Any:
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 8)]

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=STEPS, logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(module, batches())
    print(trainer.global_step, {name: value.sum().item() for name, value in module.state_dict().items()})


def in_a_notebook() -> None:
    """The kernel, a process that Jupyter starts, is the one that is to be recorded."""
    import nbclient
    import nbformat

    cells = [
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})",
        "import undisturbed_programs as programs; programs.note()",
        "programs.train()",
        "1 / 0",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    runs = nbclient.NotebookClient(
        book, kernel_name="python3", allow_errors=True, record_timing=False, resources={"metadata": {"path": "."}}
    )
    runs.execute()
    nbformat.write(book, "ran.ipynb")
    for cell in book.cells:
        print(cell.execution_count, [output.get("text", output.get("evalue")) for output in cell.outputs])


#: Those that need a library beyond PyTorch, with the module that must be there.
LIBRARIES: dict[str, tuple[str, Callable[[], object]]] = {
    "accelerate": ("accelerate", accelerated),
    "Hugging Face Trainer": ("transformers", with_transformers),
    "Lightning": ("lightning", with_lightning),
    "a notebook": ("nbclient", in_a_notebook),
}
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
    "killed": lambda: train(killed),
    "left by a thread": lambda: train(left_by_a_thread),
    "interrupted": lambda: train(lambda: os.kill(os.getpid(), signal.SIGINT)),
    "made before a fork": lambda: forked_before(0),
    "warmed up before a fork": lambda: forked_before(3),
    "thread ends": lambda: in_a_thread(daemon=False),
    "daemon thread": lambda: in_a_thread(daemon=True),
    "gradients accumulated": accumulated,
    "closures": with_closures,
    "sys.settrace": lambda: traced(sys.settrace),
    "sys.setprofile": lambda: traced(sys.setprofile),
    "own stdout": own_stdout,
    "closed stdout": closed_stdout,
    "another folder": elsewhere,
    "released": released,
    "recursive": recursive,
    "reported": reported,
    "scanned": scanned,
    "own profiler afterwards": lambda: profiled(STEPS),
}
#: Those whose steps are calls of a model.
SERVERS: dict[str, Callable[[], object]] = {
    "inference": loop,
    "thread pool": pool,
    "http.server": lambda: http(HTTPServer),
    "http.server with threads": lambda: http(ThreadingHTTPServer),
    "asyncio": asynchronous,
    "pre-fork server": prefork,
    "modules prepare data": prepared,
}


#: Those that Python ends as it ends programs: taking torch down takes longer than the rest of one.
TO_THE_END = (
    "plain", "forks", "workers spawned", "thread ends", "daemon thread", "closed stdout", "thread pool"
)  # fmt: skip


def leave(status: int = 0) -> None:
    """Do at exit what the program has asked for, and no more."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def main(folder: Path, names: list[str]) -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what programs leave behind is this one's child
    for name in names:
        print(name, flush=True)
        child = os.fork()
        if not child:
            (folder / name).mkdir()
            os.chdir(folder / name)
            note()
            (LIBRARIES[name][1] if name in LIBRARIES else (PROGRAMS | SERVERS)[name])()
            if name in TO_THE_END:
                sys.exit(0)
            leave()
        watch = threading.Timer(300, os.kill, (child, signal.SIGKILL))
        watch.start()
        print("exit status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        watch.cancel()
        watch.join()  # forks have one thread to copy
        for _ in range(600):
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.1)
            except ChildProcessError:
                break
        else:
            print("a process is left")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

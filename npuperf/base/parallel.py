"""Run one function over many ranks, in their order: in this process, on processes of its own, or on a dask cluster."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base import __version__
from npuperf.base.errors import ExitCode, InputError, NpuperfError, UsageError, lacks_memory, of_the_system
from npuperf.base.files import scratch_folder
from npuperf.base.loading import gathering
from npuperf.base.memory import available
from npuperf.base.messages import Message, say, series

if TYPE_CHECKING:  # loaded where they are used: one rank needs no worker, and few have dask
    from distributed import Client, Future

    from npuperf.base.process import Worker, WorkerDiedError

T = TypeVar("T")
R = TypeVar("R")
#: Where an item stands, and what returns its result or raises its error.
Done = tuple[int, Callable[[], R]]

ENGINES: Final = ("auto", "serial", "processes", "dask")
#: Threads of one process: more of them wait for the interpreter.
_THREADS: Final = 4
#: Below this many bytes the workers would take longer to start than the work takes (docs/decisions.md).
_WORTH_PROCESSES: Final = 32 << 20
#: Memory that a worker needs to begin with, and per byte of its rank's files (docs/decisions.md).
_BASE, _PER_BYTE = 150 << 20, 3
#: Seconds to wait for a dask worker where there is none, and between two looks at what dask lacks.
_NO_WORKER: Final = 60
_LOOK: Final = 1
_ADDRESS: Final = re.compile(r"^(\w+://.+|[\w.-]+:\d+)$")
#: A cluster on this machine: what kills a worker is the system's lack of memory, and there is no page to look at.
_LOCAL: Final = {
    "threads_per_worker": 1,
    "memory_limit": 0,
    "silence_logs": logging.CRITICAL,
    "dashboard_address": None,
    "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
}
#: Who tells of what fails in dask itself.
_LOGGERS: Final = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")
_VERSION: Final = "npuperf:__version__"
_ALONE: Final = Lock()


def _more_memory(items: Sequence[object]) -> Message:
    """Say what helps where memory was short for some items."""
    return say("give it more memory, or fewer --workers") if len(items) > 1 else say("give it more memory")


class Engine(Struct, frozen=True):
    """Where ranks are worked on: a name of :data:`ENGINES`. ``workers``: how many at the same time, at most.

    ``scheduler``: the address of a dask cluster that is there, or its scheduler file.
    """

    name: str = "serial"
    workers: int | None = None
    scheduler: str | None = None

    @classmethod
    def asked(cls, name: str, workers: int | None = None, scheduler: str | None = None) -> Engine:
        """Return what was asked for. Raises UsageError where that cannot be."""
        if name not in ENGINES:
            raise UsageError(say("--engine {name}: no such engine", name=repr(name)),
                             hint=say("known: {names}", names=series(ENGINES)))  # fmt: skip
        if scheduler is not None and name not in ("auto", "dask"):
            raise UsageError(say("--scheduler is for --engine dask, not {name}", name=name))
        if workers is not None and workers < 1:
            raise UsageError(say("--workers {workers}: at least 1", workers=workers))
        name = "dask" if scheduler is not None else name
        if name == "dask" and find_spec("distributed") is None:
            raise UsageError(say("--engine dask: dask is not installed here"),
                             hint=say("{command}", command="pip install 'npuperf[cluster]'"))  # fmt: skip
        return cls(name, workers, scheduler)

    def fitted(self, sizes: Sequence[int]) -> Engine:
        """Choose what was left open, knowing how many bytes each item has to read."""
        name = self.name
        if name == "auto":
            much = len(sizes) > 1 and cores() > 1 and sum(sizes) >= _WORTH_PROCESSES
            name = "processes" if much and self.workers != 1 else "serial"
        if self.scheduler is not None:
            return replace(self, name=name)
        if len(sizes) < 2:
            return replace(self, name=name, workers=1)
        in_memory = available() // (_BASE + _PER_BYTE * max(sizes))  # those that find room beside each other
        most = min(cores(), _THREADS if name == "serial" else max(1, in_memory))
        return replace(self, name=name, workers=max(1, min(self.workers or most, len(sizes))))


class RankLostError(InputError):
    """The worker of an item ended before the work was done."""


def map_ranks(
    work: Callable[[T], R],
    items: Sequence[T],
    engine: Engine | None = None,
    *,
    sizes: Sequence[int] = (),
    lost: Callable[[T, RankLostError], R] | None = None,
    finished: Callable[[int], None] | None = None,
) -> list[R]:
    """Apply ``work`` to each item; results keep the order of the items, whatever the engine.

    A worker has one item at a time, which bounds the memory. Outside of this process ``work`` and what it takes and
    returns are pickled. ``sizes``: bytes that each item has to read. ``lost`` makes the result of an item whose worker
    died, ran out of memory or met a mistake of ours; without it, or where that befalls all, it is an error.
    ``finished`` is told where each item stands that is done.
    """
    fitted = (engine or Engine()).fitted(sizes or [0] * len(items))
    results: dict[int, R] = {}
    mistakes: dict[int, Exception] = {}
    here = fitted.name == "serial"  # where the work leaves garbage
    with nullcontext() if here else gathering(), closing(_ENGINES[fitted.name](work, items, fitted)) as done:
        for at, result in done:
            try:
                results[at] = result()
            except Exception as error:
                of_rank = isinstance(error, RankLostError) or lacks_memory(error) or of_the_system(error) is not None
                if lost is None or (isinstance(error, NpuperfError) and not of_rank):
                    raise  # what was asked for cannot be, on any rank
                if of_rank:
                    results[at] = lost(items[at], _as_lost(error, items))
                else:
                    mistakes[at] = error
            if finished is not None:
                finished(at)
    if mistakes and len(mistakes) == len(items):  # then it is no rank's fault
        raise mistakes[min(mistakes)]
    for at, mistake in mistakes.items():
        assert lost is not None
        results[at] = lost(items[at], _as_lost(mistake, items))
    return [results[at] for at in range(len(items))]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _as_lost(error: Exception, items: Sequence[object]) -> RankLostError:
    """Say in the words of a reading error why there is no result."""
    if isinstance(error, RankLostError):
        return error
    if lacks_memory(error):
        return RankLostError(say("out of memory"), hint=_more_memory(items))
    failed = of_the_system(error)
    if failed is not None:
        return RankLostError(failed.what, hint=failed.hint)
    what = say("internal error: {name}: {error}", name=type(error).__name__, error=str(error))
    lost = RankLostError(what, hint=say("analyze this rank alone with --debug and report what it shows"))
    lost.__cause__ = error
    return lost


def _in_process(work: Callable[[T], R], items: Sequence[T], engine: Engine) -> Generator[Done[R], None, None]:
    """Work here, on few threads: much of reading is Arrow's and numpy's work, which needs no interpreter lock."""
    if engine.workers == 1:
        for at, item in enumerate(items):
            yield at, partial(work, item)
        return
    pool = ThreadPoolExecutor(engine.workers)
    try:
        places = {pool.submit(work, item): at for at, item in enumerate(items)}
        for future in as_completed(places):
            yield places.pop(future), future.result
    finally:  # after an error or Ctrl-C nobody waits for the ranks still being read
        pool.shutdown(wait=False, cancel_futures=True)


def _on_processes(work: Callable[[T], R], items: Sequence[T], engine: Engine) -> Generator[Done[R], None, None]:
    """Work on processes; what a worker died of is tried once more at the end, alone: it may have lacked memory."""
    from npuperf.base.process import WorkerDiedError

    def died(status: int | None) -> NoReturn:
        if status is not None and status < 0:
            raise RankLostError(say("the worker process was killed by signal {number} (out of memory?)",
                                    number=-status), hint=_more_memory(items))  # fmt: skip
        what = say("the worker process ended by itself, with status {status}", status=status)
        raise RankLostError(what, hint=_more_memory(items))

    again: list[int] = []
    for at, result in _shared_out(work, items, range(len(items)), engine.workers or 1):
        if isinstance(result, WorkerDiedError):
            again.append(at)
        else:
            yield at, result
    for at in again:
        for _, result in _shared_out(work, items, [at], 1):
            yield at, (partial(died, result.status) if isinstance(result, WorkerDiedError) else result)


def _shared_out(
    work: Callable[[T], R], items: Sequence[T], places: Sequence[int], most: int
) -> Iterator[tuple[int, Callable[[], R] | WorkerDiedError]]:
    """Share the items at these places out to workers, and yield answers as they come."""
    from npuperf.base.process import Worker, WorkerDiedError, first_ready

    waiting = deque(places)
    idle: list[Worker[T, R]] = []
    busy: dict[Worker[T, R], int] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < most:
                worker = idle.pop() if idle else Worker(work)
                busy[worker] = waiting.popleft()
                worker.hand(items[busy[worker]])
            for worker in first_ready(busy):
                at = busy.pop(worker)
                try:
                    answer = worker.answer()
                except WorkerDiedError as died:
                    worker.end()
                    yield at, died
                else:
                    idle.append(worker)
                    yield at, answer
    finally:
        for worker in (*busy, *idle):
            worker.end()


def _on_dask(work: Callable[[T], R], items: Sequence[T], engine: Engine) -> Generator[Done[R], None, None]:
    """Work on a dask cluster; each of its workers has one item at a time, and one to go on with.

    What a worker had when it died is tried once more at the end, alone: dask suspects all that the worker had.
    """
    with _Heeding() as heeding, _connected(engine) as client:
        ahead = engine.workers or 2 * _agreeing_workers(client)
        call = partial(_on_worker, work, version=__version__, folder=str(Path.cwd()))
        again: list[int] = []
        for at, future in _submitted(client, heeding, call, items, range(len(items)), ahead):
            if future is not None and _died_of(future):
                again.append(at)
            else:
                yield at, partial(_gathered, future, items)
        for at, future in _submitted(client, heeding, call, items, again, 1):
            yield at, partial(_gathered, future, items)


class _Heeding(logging.Handler):
    """Hears, within the block, that dask itself lacked memory: what that lost is waited for by dask for ever.

    ``end``: the process is to end, whose work others then take up.
    """

    def __init__(self, *, end: bool = False) -> None:
        super().__init__()
        self.short = False
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        """Look at the error that dask tells of."""
        error = record.exc_info[1] if record.exc_info else None
        self.short |= error is not None and lacks_memory(error)
        if self.short and self._end:
            os._exit(ExitCode.INPUT)

    def __enter__(self) -> _Heeding:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)


def _end_without_memory() -> None:
    """Have this worker end once dask lacks memory in it."""
    _Heeding(end=True).__enter__()


def _submitted(
    client: Client,
    heeding: _Heeding,
    call: Callable[[T], object],
    items: Sequence[T],
    places: Iterable[int],
    ahead: int,
) -> Iterator[tuple[int, Future | None]]:
    """Submit the items at these places, ``ahead`` at a time, and yield them as they are done; None: by nobody.

    Raises MemoryError where dask lacked it here.
    """
    from distributed import CancelledError, TimeoutError, wait

    waiting, quiet = iter(places), 0
    held: dict[Future, int] = {}
    while True:
        for at in islice(waiting, ahead - len(held)):
            held[client.submit(call, items[at], pure=False)] = at
        if not held:
            return
        try:
            with client.as_current():
                done, quiet = wait(list(held), timeout=_LOOK, return_when=FIRST_COMPLETED).done, 0
        except TimeoutError:
            if heeding.short:
                raise MemoryError from None
            quiet += _LOOK
            if quiet < _NO_WORKER or client.nthreads():
                continue
            break
        except CancelledError:
            break
        for future in done:
            yield held.pop(future), future
    for at in (*held.values(), *waiting):
        yield at, None


def _died_of(future: Future) -> bool:
    from distributed.scheduler import KilledWorker

    return future.status == "error" and isinstance(future.exception(), KilledWorker)


def _gathered(future: Future | None, items: Sequence[object]) -> Any:
    if future is None:
        raise RankLostError(say("the dask cluster was lost, or its last worker"))
    if _died_of(future):
        raise RankLostError(say("the dask workers that had it died (out of memory?)"), hint=_more_memory(items))
    return future.result()


@contextmanager
def _connected(engine: Engine) -> Iterator[Client]:
    """Connect to the cluster that is there, or make one on this machine for as long as it is needed."""
    import dask
    from distributed import Client, LocalCluster

    from npuperf.base.process import held_back

    scheduler = engine.scheduler
    if scheduler is not None:
        is_file = Path(scheduler).is_file()
        if not is_file and not _ADDRESS.match(scheduler):
            what = say("--scheduler {scheduler}: neither a file nor an address", scheduler=scheduler)
            hint = say("give tcp://HOST:PORT, or the file of: dask scheduler --scheduler-file FILE")
            raise UsageError(what, hint=hint)
        try:
            client = Client(**{"scheduler_file" if is_file else "address": scheduler}, set_as_default=False)
        except (OSError, ValueError) as error:
            what = say("--scheduler {scheduler}: cannot be reached: {why}", scheduler=scheduler, why=str(error))
            raise UsageError(what, hint=say("docs/cluster.md shows how a cluster is started")) from error
        with client:
            yield client
        return
    with scratch_folder() as scratch:  # else dask makes one where the user has such things, and leaves it there
        asked = {"distributed.scheduler.allowed-failures": 1, "temporary-directory": str(scratch)}
        asked["distributed.worker.use-file-locking"] = False  # nobody else is in there, and a file system may have none
        with dask.config.set(asked), held_back(signal.SIGINT):
            try:
                cluster = LocalCluster(n_workers=engine.workers, **_LOCAL)
            except (OSError, RuntimeError) as error:  # the latter is what dask says of a worker that did not come
                what = say("dask workers cannot be started: {why}", why=str(error.__cause__ or error))
                raise InputError(what, hint=say("--engine processes needs no dask")) from error
        try:
            with Client(cluster, set_as_default=False) as client:
                client.run(_end_without_memory)
                yield client
        except KeyboardInterrupt:
            raise  # nobody waits for workers that are busy: they end with us
        except BaseException:
            cluster.close()
            raise
        cluster.close()


def _agreeing_workers(client: Client) -> int:
    """Wait for a first worker and return how many there are. Raises UsageError where npuperf is another, or none."""
    from distributed import TimeoutError

    try:
        client.wait_for_workers(1, timeout=_NO_WORKER)
    except TimeoutError as error:
        what = say("the dask cluster has no workers: none came within {seconds} s", seconds=_NO_WORKER)
        raise UsageError(what, hint=say("start some: dask worker --scheduler-file FILE (docs/cluster.md)")) from error
    found = client.run(resolve_name, _VERSION, on_error="return")
    there: dict[str, str | Exception] = dict(found)
    try:  # dask lets the scheduler look at the work, too
        there[client.scheduler.address] = client.run_on_scheduler(resolve_name, _VERSION)
    except ImportError as error:
        there[client.scheduler.address] = error
    for where, version in there.items():
        if isinstance(version, Exception):
            what = say("dask process {where}: npuperf cannot be loaded there: {why}", where=where, why=str(version))
            hint = say("start scheduler and workers with a Python that has npuperf {version}", version=__version__)
            raise UsageError(what, hint=hint) from version
        if version != __version__:
            what = say("dask process {where} has npuperf {theirs}, this is {ours}",
                       where=where, theirs=version, ours=__version__)  # fmt: skip
            raise UsageError(what, hint=say("install the same version everywhere"))
    return len(found)


def _on_worker(work: Callable[[T], R], item: T, version: str, folder: str) -> R:
    """Work on a dask worker: on one item at a time, however many threads it has, and in the client's folder."""
    if version != __version__:  # it came after the others
        raise RankLostError(say("a dask worker has npuperf {theirs}, not {ours}", theirs=__version__, ours=version))
    with _ALONE:
        before = Path.cwd()
        with suppress(OSError):  # relative paths will not be found
            os.chdir(folder)
        try:
            return work(item)
        finally:
            os.chdir(before)


_ENGINES: Final = {"serial": _in_process, "processes": _on_processes, "dask": _on_dask}

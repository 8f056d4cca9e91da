"""Many ranks, wherever they are worked on: in order, one per worker, and one that comes to grief sinks nobody."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from npuperf.base import parallel
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import say
from npuperf.base.parallel import Engine, RankLostError, map_ranks

MB = 1 << 20
MEMORY: list[int] = []
#: What a process does that has no other thread, as this one may have, and then one that has.
ALONE = """
from threading import Event, Thread
import pyarrow
import test_parallel as here
from npuperf.base.parallel import Engine, map_ranks
two = Engine("processes", 2)
here.MEMORY.append(7)
print(map_ranks(here.remembered, range(3), two))
here.test_results_keep_the_order_of_the_items(two)
here.test_a_mistake_on_one_rank_sinks_no_other(two)
here.test_a_mistake_on_all_ranks_is_ours(two)
here.test_only_the_culprit_is_lost_when_its_worker_is_killed()
here.test_other_ways_to_give_no_answer()
Thread(target=Event().wait, daemon=True).start()
print(map_ranks(here.remembered, range(3), two))
"""
HERE = [Engine("serial", 1), Engine("serial", 3), Engine("processes", 2)]


def late_first(item: int, ends_after: list[int] | None = None) -> tuple[int, int]:
    """The first item ends when the results of others have been taken, if that is what is wanted."""
    last = time.monotonic() + 60
    while item == 0 and ends_after == [] and time.monotonic() < last:
        time.sleep(0.01)
    return item, os.getpid()


def mistaken(item: int, bad: tuple[int, ...], error: type[Exception] = ZeroDivisionError) -> str:
    if item in bad:
        raise error("on purpose")
    return f"done {item}"


def refused(item: int) -> str:
    raise UsageError(say("not on any rank"))


def killed(item: int, bad: int, marks: Path | None = None) -> str:
    """Die of one item: always, or only until it has left a mark."""
    mark = marks / "tried" if marks else None
    if item == bad and not (mark and mark.exists()):
        if mark:
            mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"done {item}"


def left(item: int) -> str:
    os._exit(7)


def remembered(item: int) -> list[int]:
    return MEMORY


class TooLarge:
    """An answer that finds no room on its way."""

    def __reduce__(self) -> str:
        raise MemoryError


def answered_at_length(item: int) -> TooLarge:
    return TooLarge()


def unsendable(item: int) -> Callable[[], int]:
    return lambda: item


def lost(item: int, why: RankLostError) -> str:
    return f"lost {item}: " + str(why.what)


@pytest.mark.parametrize("engine", HERE, ids=str)
def test_results_keep_the_order_of_the_items(engine: Engine) -> None:
    finished: list[int] = []
    # Results are taken as they come, where threads share what is known of them.
    first = partial(late_first, ends_after=finished) if engine == Engine("serial", 3) else late_first
    results = map_ranks(first, range(6), engine, finished=finished.append)
    assert [item for item, _ in results] == list(range(6))
    assert sorted(finished) == list(range(6))
    assert engine != Engine("serial", 3) or finished[0] != 0
    pids = {pid for _, pid in results}
    assert (os.getpid() in pids) == (engine.name == "serial") and len(pids) <= 2


@pytest.mark.parametrize("engine", HERE, ids=str)
def test_a_mistake_on_one_rank_sinks_no_other(engine: Engine) -> None:
    results = map_ranks(partial(mistaken, bad=(1,)), range(3), engine, lost=lost)
    assert results[::2] == ["done 0", "done 2"]
    assert results[1] == "lost 1: internal error: ZeroDivisionError: on purpose"
    results = map_ranks(partial(mistaken, bad=(0,), error=MemoryError), range(2), engine, lost=lost)
    assert results == ["lost 0: out of memory", "done 1"]


def read_from_a_bad_disk(item: int) -> str:
    if item == 1:
        raise OSError(errno.EIO, "Input/output error", "/data/rank_1")
    return f"done {item}"


@pytest.mark.parametrize("engine", HERE, ids=str)
def test_a_disk_that_fails_one_rank_is_no_mistake_of_ours(engine: Engine) -> None:
    results = map_ranks(read_from_a_bad_disk, range(3), engine, lost=lost)
    assert results == ["done 0", "lost 1: /data/rank_1: Input/output error", "done 2"]


@pytest.mark.parametrize("engine", HERE, ids=str)
def test_a_mistake_on_all_ranks_is_ours(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        map_ranks(partial(mistaken, bad=(0, 1)), range(2), engine, lost=lost)
    if engine.name == "processes":  # what --debug shows
        assert "in mistaken" in str(raised.value.__cause__)
    with pytest.raises(UsageError, match="not on any rank"):
        map_ranks(refused, range(3), engine, lost=lost)


def test_only_the_culprit_is_lost_when_its_worker_is_killed() -> None:
    results = map_ranks(partial(killed, bad=2), range(6), Engine("processes", 2), lost=lost)
    assert results[2] == "lost 2: the worker process was killed by signal 9 (out of memory?)"
    assert [r for r in results if r != results[2]] == [f"done {i}" for i in (0, 1, 3, 4, 5)]
    with pytest.raises(InputError, match="killed by signal 9"):
        map_ranks(partial(killed, bad=0), [0], Engine("processes"))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads in /proc")  # noqa: PTH110
def test_workers_are_forked_where_there_is_no_other_thread() -> None:
    """The workers of other tests may be started anew."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-c", ALONE]
    ran = subprocess.run(
        program, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["[[7], [7], [7]]", "[[], [], []]"]


def test_what_a_worker_died_of_is_tried_once_more_alone(tmp_path: Path) -> None:
    results = map_ranks(partial(killed, bad=1, marks=tmp_path), range(3), Engine("processes", 2), lost=lost)
    assert results == ["done 0", "done 1", "done 2"]


def test_other_ways_to_give_no_answer() -> None:
    for work, status in ((left, 7), (answered_at_length, 3)):
        (answer,) = map_ranks(work, [0], Engine("processes"), lost=lost)
        assert answer == f"lost 0: the worker process ended by itself, with status {status}"
    with pytest.raises(RuntimeError, match="cannot be sent"):
        map_ranks(unsendable, [0], Engine("processes"))


@pytest.mark.parametrize(
    ("sizes", "engine", "chosen"),
    [
        ([400 * MB], Engine("auto"), Engine("serial", 1)),
        ([1 * MB] * 8, Engine("auto"), Engine("serial", 4)),
        ([1 * MB] * 3, Engine("auto"), Engine("serial", 3)),
        ([16 * MB] * 2, Engine("auto"), Engine("processes", 2)),  # 32 MB is worth them
        ([16 * MB, 16 * MB - 1], Engine("auto"), Engine("serial", 2)),
        ([100 * MB] * 64, Engine("auto"), Engine("processes", 8)),
        ([100 * MB] * 3, Engine("auto"), Engine("processes", 3)),
        ([100 * MB] * 64, Engine("auto", 2), Engine("processes", 2)),
        ([100 * MB] * 64, Engine("auto", 1), Engine("serial", 1)),
        ([4_000 * MB] * 64, Engine("auto"), Engine("processes", 2)),  # memory for two
        ([1 * MB] * 8, Engine("processes", 99), Engine("processes", 8)),
        ([100 * MB] * 64, Engine("dask"), Engine("dask", 8)),
        ([1 * MB] * 8, Engine("dask", None, "tcp://there:1"), Engine("dask", None, "tcp://there:1")),
    ],
    ids=str,
)
def test_the_engine_is_chosen_by_the_size_of_the_work(
    sizes: list[int], engine: Engine, chosen: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    monkeypatch.setattr(parallel, "available", lambda: 32_000 * MB)
    assert engine.fitted(sizes) == chosen


def test_memory_is_shared_by_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"available": 4_000 * MB}))
    monkeypatch.setattr(parallel, "cores", lambda: 64)
    few, some, many = (Engine("processes").fitted([size * MB] * 64).workers for size in (100_000, 1_000, 10))
    assert few == 1 and some in (1, 2) and many is not None and 10 < many < 64


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("threads",), "known: auto, serial, processes, dask"),
        (("processes", None, "tcp://there:1"), "--scheduler is for --engine dask"),
        (("processes", 0), "at least 1"),
    ],
)
def test_what_cannot_be_asked_for(asked: tuple, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Engine.asked(*asked)


def test_without_dask_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "find_spec", lambda _: None)
    assert Engine.asked("processes").name == "processes"
    for asked in (("dask",), ("auto", None, "tcp://there:1")):
        with pytest.raises(UsageError, match=r"pip install 'npuperf\[cluster\]'"):
            Engine.asked(*asked)


#: A worker that ends before it takes anything, as one that the system kills then, and more work than a pipe holds.
STILLBORN = """
from functools import partial
from multiprocessing import spawn
from threading import Event, Thread
import test_parallel as here
from npuperf.base.errors import InputError
from npuperf.base.parallel import Engine, map_ranks
Thread(target=Event().wait, daemon=True).start()
spawn.set_executable("/bin/false")
try:
    map_ranks(partial(here.remembered, bytes(1 << 22)), range(3), Engine("processes", 2))
except InputError as error:
    print(error)
"""


def test_a_worker_that_ends_while_it_starts_holds_nobody_up() -> None:
    done = subprocess.run([sys.executable, "-c", STILLBORN], capture_output=True, text=True, timeout=300, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.stdout.splitlines() == [
        "the worker process ended by itself, with status 1", "  next: give it more memory, or fewer --workers"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "hint"), [(1, "give it more memory"), (2, "give it more memory, or fewer --workers")]
)
def test_one_rank_alone_is_not_told_to_take_fewer_workers(ranks: int, hint: str) -> None:
    with pytest.raises(InputError) as died:
        map_ranks(partial(killed, bad=0), range(ranks), Engine("processes", 2))
    assert str(died.value.hint) == hint


def test_what_the_work_carries_needs_memory_in_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GB is free, a worker needs 150 MB and three times what it reads: 50 MB alone, 300 MB with 250 MB carried."""
    monkeypatch.setattr(parallel, "available", lambda: 1000 * MB)
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    assert Engine("processes").fitted([50 * MB] * 8).workers == 3
    assert Engine("processes").fitted([(250 + 50) * MB] * 8).workers == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        ImportError("libarrow.so: failed to map segment from shared object"),
    ],
)
def test_want_of_memory_in_whichever_words(error: Exception) -> None:
    def work(item: int) -> str:
        if item == 0:
            raise error
        return "done"

    assert map_ranks(work, range(2), lost=lost) == ["lost 0: out of memory", "done"]

"""The same analysis on every engine: in process, on processes, on dask; and what is said when a rank is lost."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import distributed
import psutil
import pytest
from build import K, ascend_pt
from conftest import ROOT
from test_parallel import killed, lost

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base import parallel
from npuperf.base.errors import InputError, UsageError
from npuperf.base.parallel import Engine, map_ranks
from npuperf.readers.recording import Reading, open_recording
from npuperf.show.formats import render

#: For what is started by hand: dask gives up what has killed one worker, and its workers find the tests' functions.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
}


def write_rank(root: Path, rank: int, kernels: int = 40) -> Path:
    made = [
        K(i * 9_000 + 70 * rank, 5_000, f"k{i % 7}", step=i // 10, launch=i * 9_000 - 4_000) for i in range(kernels)
    ]
    made += [K(kernels * 9_000, 9_000 - 500 * rank, "hcom_allReduce_", "hcom_allReduce_", "COMMUNICATION", stream=9)]
    folder = ascend_pt(root / f"r{rank}", made, cores="24,48")
    (folder / "profiler_info_0.json").unlink()
    (folder / f"profiler_info_{rank}.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks that wait for each other, of which one cannot be read and one lost its timeline."""
    root = tmp_path_factory.mktemp("job")
    folders = [write_rank(root, rank) for rank in range(5)]
    damaged = folders[2] / "ASCEND_PROFILER_OUTPUT"
    (damaged / "kernel_details.csv").write_text("")
    (damaged / "trace_view.json").write_text("{")
    (folders[3] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    return root


@pytest.fixture(scope="module")
def expected(job: Path) -> str:
    return analyzed(job, "serial")


def analyzed(path: Path, engine: str, **asked: object) -> str:
    """The JSON document, as a string."""
    request = AnalyzeRequest(path=path, engine=engine, what_if=("host*0.5",), **asked)  # type: ignore[arg-type]
    return render(run(request), "json")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A scheduler and two workers as somebody starts them by hand, elsewhere; its scheduler file."""
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [["scheduler", "--port", "0", "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", *common]]
    commands += [["worker", "--nthreads", "2", "--host", "127.0.0.1", "--local-directory", str(folder), *common]] * 2
    started = []
    with (folder / "log").open("wb") as log:
        for command in commands:
            dask = [sys.executable, "-m", "dask", *command]
            started.append(subprocess.Popen(dask, cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log))
    try:
        wait_until(file.exists)
        yield file
    finally:
        family = [p for s in started for p in (psutil.Process(s.pid), *psutil.Process(s.pid).children(recursive=True))]
        for process in family:
            process.kill()
        for process in started:
            process.wait()


def wait_until(holds: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_every_engine_gives_the_same_document(
    job: Path, expected: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged rank is named in the warnings, the others are there; nothing is left where temporary files go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert analyzed(job, engine, workers=2) == expected
    assert [device["rank"] for device in json.loads(expected)["devices"]] == [0, 1, 3, 4]
    assert any("r2/host_1_20250101000000000_ascend_pt" in w for w in json.loads(expected)["input"]["warnings"])
    assert not [*tmp_path.iterdir()]


def test_a_cluster_started_by_hand_gives_the_same_document(
    job: Path, expected: str, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where paths are relative to a folder in which the workers are not."""
    assert analyzed(job, "auto", scheduler=str(cluster)) == expected
    monkeypatch.chdir(job)
    asked = [analyzed(Path(), engine, scheduler=s) for engine, s in (("serial", None), ("dask", str(cluster)))]
    assert asked[0] == asked[1]


def short(item: int, mark: Path) -> int:
    """Have dask tell, in the worker of one item, that it lacked memory, and wait for ever; not when tried again."""
    if item == 1 and not mark.exists():
        mark.touch()
        logging.getLogger("distributed.core").error("what was lost", exc_info=MemoryError())
        Event().wait()
    return item


def test_what_dask_lost_for_want_of_memory_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert map_ranks(partial(short, mark=tmp_path / "mark"), range(3), Engine("dask", 2)) == [0, 1, 2]

    def not_yet(*_: object, **__: object) -> None:
        logging.getLogger("distributed.core").error("what was lost", exc_info=MemoryError())
        raise TimeoutError

    monkeypatch.setattr(distributed, "wait", not_yet)
    with pytest.raises(MemoryError):
        map_ranks(abs, range(3), Engine("dask", 2), lost=lambda *_: -1)


def test_dask_loses_only_the_rank_that_kills_its_worker(cluster: Path) -> None:
    results = map_ranks(partial(killed, bad=1), range(4), Engine("dask", None, str(cluster)), lost=lost)
    assert results == ["done 0", "lost 1: the dask workers that had it died (out of memory?)", "done 2", "done 3"]


def test_another_version_on_the_workers_is_refused(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "__version__", "99.0")
    with pytest.raises(UsageError, match=r"has npuperf .*, this is 99\.0"):
        map_ranks(partial(killed, bad=-1), [0], Engine("dask", None, str(cluster)))


def test_a_scheduler_that_is_not_there_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    with pytest.raises(UsageError, match="neither a file nor an address"):
        map_ranks(abs, [0], Engine("dask", None, str(tmp_path / "none.json")))
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(UsageError, match="cannot be"):
        map_ranks(abs, [0], Engine("dask", None, "tcp://127.0.0.1:9"))


def source_error(reading: Reading) -> str:
    return str(reading.error)


def killed_by_rank_one(reading: Reading) -> str:
    if reading.error is None and reading.profiles[0].rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return source_error(reading)


def test_a_worker_that_does_not_see_a_path_says_so(tmp_path: Path) -> None:
    write_rank(tmp_path, 0)
    folder = write_rank(tmp_path, 1)
    opened = open_recording(tmp_path)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    errors = opened.map(source_error, engine=Engine("processes"))
    assert errors[0] == "None"
    assert "kernel_details.csv: cannot be seen on" in errors[1] and "docs/cluster.md" in errors[1]


def test_a_rank_whose_worker_is_killed_is_named(tmp_path: Path) -> None:
    folders = [write_rank(tmp_path, rank) for rank in range(3)]
    read: list[int] = []
    opened = open_recording(tmp_path)
    errors = opened.map(killed_by_rank_one, read.append, Engine("processes", 2))
    assert errors[::2] == ["None", "None"]
    assert errors[1].startswith(f"{folders[1]}: the worker process was killed by signal 9") and "--workers" in errors[1]
    assert sum(read) == opened.timeline_bytes


def reads_a_timeline(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(Path(opened.path).name == "trace_view.json" for opened in process.open_files())
    return False


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_ctrl_c_ends_npuperf_and_its_workers(tmp_path: Path, engine: str) -> None:
    """As in a terminal: everybody gets the signal. The ranks' timelines have a hole of which no end is in sight."""
    for rank in range(2):
        timeline = write_rank(tmp_path, rank) / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
        os.truncate(timeline, 1 << 38)
    command = [sys.executable, "-m", "npuperf", "analyze", str(tmp_path), "--engine", engine, "--workers", "2"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        npuperf = psutil.Process(started.pid)
        try:
            wait_until(lambda: sum(map(reads_a_timeline, npuperf.children(recursive=True))) == 2)
            family = npuperf.children(recursive=True)
            os.killpg(started.pid, signal.SIGINT)
            _, said = started.communicate(timeout=100)  # the rest of such a file takes for ever
        finally:
            started.kill()
    assert started.returncode == 130
    assert "npuperf: interrupted" in said.splitlines() and "Traceback" not in said
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_one_rank_loads_nothing_for_many(sample: Path) -> None:
    code = """
import contextlib, io, sys
from npuperf.cli import main
sys.argv = ["npuperf", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(sorted({"multiprocessing.context", "dask", "distributed", "pandas", "psutil", "scipy"} & set(sys.modules)))
"""
    for arguments in (["--help"], ["analyze", str(sample)]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.strip() == "[]", done.stderr


def test_of_many_ranks_that_cannot_be_read_one_is_named_and_the_others_counted(tmp_path: Path) -> None:
    for rank in range(3):
        output = write_rank(tmp_path, rank) / "ASCEND_PROFILER_OUTPUT"
        (output / "trace_view.json").unlink()
        (output / "kernel_details.csv").write_text("")
    for only, more in ((tmp_path, "; nor can 2 other profiles be read"), (next(tmp_path.iterdir()), "")):
        with pytest.raises(InputError) as none:
            run(AnalyzeRequest(path=only))
        assert str(none.value.what).endswith(f"the file is empty{more}")

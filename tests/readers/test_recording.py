"""The one door to data: everything is read once, and shared by all who ask."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from build import EPOCH, H, K, ascend_pt, kernel_details
from inputs import KERNELS, database

from npuperf.base.errors import InputError
from npuperf.readers import recording
from npuperf.readers.find import Source
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import Reading, open_recording
from npuperf.readers.source import read_source


def same(reading: Reading) -> Reading:
    return reading


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Three ranks, of which one cannot be read."""
    for rank in range(3):
        folder = ascend_pt(tmp_path / "run" / f"r{rank}", KERNELS)
        (folder / "profiler_info_0.json").rename(folder / f"profiler_info_{rank}.json")
        (folder / f"profiler_info_{rank}.json").write_text("{}")
    output = folder / "ASCEND_PROFILER_OUTPUT"
    (output / "trace_view.json").unlink()
    (output / "kernel_details.csv").write_text("")
    return tmp_path / "run"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each source was read."""
    times: Counter[Path] = Counter()

    def counted(source: Source, log: ReadLog, progress: object = None) -> object:
        times[source.root] += 1
        return read_source(source, log)

    monkeypatch.setattr(recording, "read_source", counted)
    return times


def test_results_keep_the_order_of_the_sources_and_errors_are_readings(ranks: Path) -> None:
    opened = open_recording(ranks)
    readings = opened.map(same)
    assert [r.source for r in readings] == list(opened.sources)
    assert [[p.rank for p in r.profiles] for r in readings] == [[0], [1], []]
    assert [r.error is None for r in readings] == [True, True, False]
    assert "the file is empty" in str(readings[2].error)
    assert [p.rank for p in opened.profiles] == [0, 1]


def test_what_is_kept_is_read_once_however_many_ask(ranks: Path, read: Counter[Path]) -> None:
    opened = open_recording(ranks, keep=True)
    together = Barrier(4)

    def ask(_: int) -> list[Reading]:
        together.wait()
        return opened.map(same)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert len(opened.profiles) == 2
    assert set(read.values()) == {1} and len(read) == 3
    for answer in answers[1:]:
        assert all(a is b for a, b in zip(answer, answers[0], strict=True))


def test_what_is_not_kept_is_read_again(ranks: Path, read: Counter[Path]) -> None:
    opened = open_recording(ranks)
    opened.map(same)
    opened.map(same)
    assert set(read.values()) == {2}


def test_a_mistake_while_reading_is_not_kept(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_recording(ranks / "r0", keep=True)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(recording, "read_source", lambda *_: 1 // 0)
        opened.map(same)
    assert len(opened.profiles) == 1


def test_nothing_readable_is_an_error_at_once_or_when_profiles_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        open_recording(tmp_path / "nothing")
    path = tmp_path / "kernel_details.csv"
    path.write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        _ = open_recording(path).profiles


def test_progress_adds_up_to_the_timelines(ranks: Path) -> None:
    opened = open_recording(ranks, keep=True)
    seen: list[int] = []
    opened.map(same, seen.append)
    assert sum(seen) == opened.timeline_bytes == sum(f.stat().st_size for f in ranks.rglob("trace_view.json"))
    seen.clear()
    opened.map(same, seen.append)
    assert seen == []


@pytest.mark.parametrize("number", [0, 7])
def test_of_tasks_that_one_call_launches_the_one_with_the_flow_tells_when(tmp_path: Path, number: int) -> None:
    """Both have the connection of the call, which is recorded by its flow alone."""
    folder = ascend_pt(tmp_path, [K(0, 2_000, "a", launch=-5_000), K(9_000, 2_000, "b")])
    trace = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    made = [event for event in json.loads(trace.read_text()) if event["name"] != "Node@launch"]
    for event in made:
        if event["name"] in ("a", "b"):
            event["args"]["connection_id"] = number
    trace.write_text(json.dumps(made))
    assert open_recording(folder).profiles[0].tasks.launch_start.tolist() == [EPOCH - 5_000] * 2


BIG = [K(i * 9_000, 5_000, f"k{i % 300}", block=20, launch=i * 9_000 - 4_000, launch_dur=500) for i in range(8_000)]
COUNT = """
import sys
from pathlib import Path
from npuperf.readers.recording import open_recording
from threading import Thread

def read_bytes():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])

for path in sys.argv[1:2]:  # libraries are loaded when they are first used
    open_recording(Path(path)).profiles
before = read_bytes()
opened = open_recording(Path(sys.argv[2]), keep=True)
threads = [Thread(target=opened.map, args=(lambda reading: reading,)) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
assert opened.profiles and opened.map(lambda reading: reading.log.lost) == [[]]
print(read_bytes() - before)
"""


#: A table's first 64 KB are looked at first. Compiled code keeps no pages of a database: columns that several parts ask
#: for are read for each of them, which is all of this one, and a tenth of one with counters.
MOST = {"table": 1.2, "database": 2.4}


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
@pytest.mark.parametrize("form", ["folder", "table", "trace", "packed", "database"])
def test_every_byte_is_read_once(tmp_path: Path, form: str) -> None:
    """Whatever is read twice on the way (to tell kinds of files, to count rows, by several queries) shows here."""
    small, big = tmp_path / "small", tmp_path / "big"
    for root, kernels in ((small, KERNELS), (big, BIG)):
        made(root, form, kernels)
    size = sum(f.stat().st_size for f in big.rglob("*") if f.is_file())
    assert size > (200_000 if form == "packed" else 600_000)
    command = [sys.executable, "-c", COUNT, str(small), str(big)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.9 * size < int(done.stdout) < MOST.get(form, 1.1) * size


def made(root: Path, form: str, kernels: list[K]) -> None:
    """Write the same run in one form."""
    root.mkdir()
    if form == "table":
        kernel_details(root / "kernel_details.csv", kernels)
    elif form == "database":
        host = [H("AscendCL@aclrtSynchronizeStream", k.start, 100) for k in kernels]
        database(root / "ascend_pytorch_profiler_0.db", kernels, "blockDim", host)
    else:
        folder = ascend_pt(root, kernels, cores="24,48")
        if form != "folder":
            trace = (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes()
            shutil.rmtree(folder)
            (root / "trace.json.gz").write_bytes(gzip.compress(trace, 1)) if form == "packed" else None
            (root / "trace.json").write_bytes(trace) if form == "trace" else None

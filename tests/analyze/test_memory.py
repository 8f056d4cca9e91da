"""What a device takes in memory grows by few bytes per kernel, and so does what is needed on the way.

Counted are the bytes that Python and numpy ask for, at two sizes: the difference is that of the kernels between them.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from build import H, K, ascend_pt
from conftest import ROOT

from npuperf.advise import load_thresholds
from npuperf.analyze.examine import Earlier, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.study import Study
from npuperf.model.device import DeviceProfile
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording

SIZES = (3_000, 9_000)


def profile_of(root: Path, size: int) -> DeviceProfile:
    """Return a profile of few operators on two streams, each launched by one of the host, some of them waited for."""
    kernels, host, now = [], [], 0
    for i in range(size):
        kernels.append(
            K(
                start=now + (9_000 if i % 3 else 30_000),
                dur=4_000 + 7 * i % 900,
                name=f"aclnnT{i % 9}x",
                type=f"T{i % 9}x",
                core="AI_CORE",
                stream=2 + i % 2,
                block=1 + i % 24,
                step=i * 8 // size,
                launch=now + 3_000,
                launch_dur=2_000,
            )
        )
        host.append(H(f"aten::op{i % 9}", now + 500, 7_000, True))
        now += 10_000
        if i % 100 == 99:
            host.append(H("AscendCL@aclrtSynchronizeStream", now + 500, 60_000))
            now += 80_000
    (profile,) = open_recording(ascend_pt(root / str(size), kernels, cores="24,48", host=host)).profiles
    return profile


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> list[DeviceProfile]:
    root = tmp_path_factory.mktemp("memory")
    return [profile_of(root, size) for size in SIZES]


def bytes_per_kernel(pass_: Callable[[DeviceProfile], object], profiles: list[DeviceProfile]) -> tuple[float, float]:
    """Return how many bytes a kernel adds to what a pass leaves behind, and to the most that it needs on the way."""
    pass_(profiles[0])  # modules are loaded, and what is kept is kept
    found = []
    for profile in profiles:
        tracemalloc.start()
        result = pass_(profile)
        found.append(tracemalloc.get_traced_memory())
        tracemalloc.stop()
        del result
    (kept, most), (kept_more, most_more) = found
    return (kept_more - kept) / (SIZES[1] - SIZES[0]), (most_more - most) / (SIZES[1] - SIZES[0])


def test_tasks_take_few_bytes(profiles: list[DeviceProfile]) -> None:
    tasks = profiles[0].tasks
    small = (tasks.stream, tasks.step, tasks.block, tasks.op, tasks.name.codes, tasks.type.codes)
    assert [column.dtype.itemsize for column in small] == [4, 4, 4, 4, 2, 2]
    assert [column.strides for column in (tasks.mix_block, tasks.moved)] == [(0,), (0,)]  # one value, once


def test_a_study_keeps_few_bytes_of_a_kernel(profiles: list[DeviceProfile]) -> None:
    thresholds = load_thresholds()
    kept, most = bytes_per_kernel(lambda profile: Study.of(profile, thresholds), profiles)
    assert kept < 370
    assert most < 475


def test_an_analysis_needs_few_bytes_for_a_kernel(tmp_path: Path, profiles: list[DeviceProfile]) -> None:
    request, thresholds = AnalyzeRequest(path=tmp_path), load_thresholds()
    _, most = bytes_per_kernel(lambda profile: examine(profile, request, thresholds, Earlier(), ReadLog()), profiles)
    assert most < 790


def test_what_nobody_else_asks_for_is_handed_over(tmp_path: Path) -> None:
    path = ascend_pt(tmp_path, [K(start=1_000 * i, dur=500) for i in range(3)])
    (alone,), (shared,) = (open_recording(path, keep=keep).map(lambda reading: reading) for keep in (False, True))
    given, kept = alone.handed_over(), shared.handed_over()
    assert len(given) == 1 and not alone.profiles
    assert len(kept) == 1 and kept == deque(shared.profiles)


# -- Where memory is short: the same answer, or none, which is said.


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of 6,000 kernels each, 10 MB, and another recording of the first."""
    root = tmp_path_factory.mktemp("short")
    for rank, place in enumerate((root / "job" / "n0_ascend_pt", root / "job" / "n1_ascend_pt")):
        command = [sys.executable, str(ROOT / "benchmarks" / "simulate.py"), str(place)]
        subprocess.run([*command, "--preset", "bench", "--kernels", "6000", "--seed", str(rank)], check=True)
        (place / "profiler_info_0.json").rename(place / f"profiler_info_{rank}.json")
    shutil.copytree(root / "job" / "n0_ascend_pt", root / "before_ascend_pt")
    return root


def under(most: int, root: Path) -> subprocess.CompletedProcess[str]:
    """Compare the job with another one in processes that get ``most`` bytes each, used or not."""
    command = [sys.executable, "-m", "npuperf", "analyze", "job", "--baseline", "before_ascend_pt", "--format", "json"]
    return subprocess.run(
        [*command, "--engine", "processes", "--workers", "2"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere this limit is of other memory")
def test_where_memory_is_short_the_answer_is_the_same_or_there_is_none(job: Path) -> None:
    whole = under(resource.RLIM_INFINITY, job)
    assert whole.returncode == 0 and whole.stdout
    status = {}
    for most in (90, 700, 4000):
        done = under(most << 20, job)
        status[most] = done.returncode
        if done.returncode:
            assert done.returncode == 3 and "out of memory" in done.stderr and "give it more memory" in done.stderr
        else:
            assert done.stdout == whole.stdout
    assert status[90] and not status[4000], status

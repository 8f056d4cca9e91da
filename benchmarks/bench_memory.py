"""Device memory of large recordings: what reading the blocks costs, and what is worked out of them.

python benchmarks/bench_memory.py [--blocks 1000000] [--data DIR]

operator_memory.csv and memory_record.csv are generated in a temporary folder, or in --data, where they are found again
the next time. CPU seconds and the most memory of one process that does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from npuperf.device.memory_study import describe_memory, study_memory
from npuperf.model.chip import Cores
from npuperf.model.device import DeviceProfile
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks
from npuperf.readers.log import ReadLog
from npuperf.readers.memory_files import read_memory

EPOCH = 1_764_246_877_000_000_000
MIB = 1 << 20
OPERATORS = ("aten::mm", "aten::empty_strided", "npu::npu_fusion_attention", "aten::cat")
RECORD = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type"
BLOCKS = (
    "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
    "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
    "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type"
)


def spelled(times: I64) -> list[str]:
    """Spell times as the exporter does."""
    return [f"{at // 1000}.{at % 1000:03d}\t" for at in (times + EPOCH).tolist()]


def generate(folder: Path, count: int) -> tuple[Path, Path]:
    """Write blocks of 20 s, of 512 bytes to 8 MiB and of 1 us to 50 ms, with the counters after each event."""
    record, blocks = folder / "memory_record.csv", folder / "operator_memory.csv"
    if record.exists() and blocks.exists():
        return record, blocks
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(1)
    start = np.sort(chance.integers(0, 20_000_000_000, count)) // 10 * 10
    size = chance.integers(1, 1 << 14, count) * 512
    free = start + chance.integers(1_000, 50_000_000, count) // 10 * 10
    freed = free + 2_000  # reported after it is free for others
    times = np.concatenate([start, free, freed])
    order = np.argsort(times, kind="stable")
    allocated = np.cumsum(np.concatenate([size, -size, 0 * size])[order]) + (1 << 32)
    told = [repr(value) for value in (allocated / MIB).tolist()]
    with record.open("w") as file:
        print(RECORD, file=file)
        for at, now in zip(spelled(times[order]), told, strict=True):
            for component in ("PTA", "PTA+GE"):
                print(f"{component},{at},{now},60000.0,{now},2,NPU:0", file=file)
    then = [np.searchsorted(times[order], at, side="right") - 1 for at in (start, freed)]
    names = chance.integers(0, len(OPERATORS), count).tolist()
    columns = (names, (size / 1024).tolist(), *map(spelled, (start, freed, free)), *(at.tolist() for at in then))
    with blocks.open("w") as file:
        print(BLOCKS, file=file)
        for name, kib, a, b, c, first, last in zip(*columns, strict=True):
            x, y = told[first], told[last]
            print(f"{OPERATORS[name]},{kib},{a},{b},{c},12.3,10.3,{x},60000.0,{x},{y},60000.0,{y},2,NPU:0", file=file)
    return record, blocks


def most_mb() -> int:
    """Return the most memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measure(files: tuple[Path, Path]) -> None:
    """Print what reading costs, and the whole."""
    began, before = time.process_time(), most_mb()
    (memory,) = read_memory([*files], ReadLog(), nullcontext).devices().values()
    read = time.process_time() - began
    profile = DeviceProfile(source="", rank=0, device=0, cores=Cores(), tasks=Tasks.empty(), memory=memory)
    said = describe_memory(study_memory(profile, None), 0, None)
    whole = time.process_time() - began
    assert said is not None and said.split == "measured" and said.residual_bytes == 0, "the sum has to close"
    text = sum(file.stat().st_size for file in files) // 10**6
    print("| blocks | text | reading, CPU | the whole, CPU | memory |\n|---|---|---|---|---|")
    print(f"| {len(memory.blocks):,} | {text} MB | {read:.1f} s | {whole:.1f} s | {most_mb() - before} MB |")


def main() -> None:
    """Generate in a process of its own, whose memory is not this one's, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or Path(temporary)) / f"memory_{options.blocks}"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            files = other.submit(generate, folder, options.blocks).result()
        measure(files)


if __name__ == "__main__":
    main()

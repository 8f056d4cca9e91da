"""Many ranks: npuperf analyze over a job, on all cores and pinned to one, and its memory.

python benchmarks/bench_cluster.py [--ranks 64] [--kernels 20000] [--rounds 5] [--data DIR]

Both commands read the same files in turn, so that a busy machine slows both. The figures are ratios of medians; what a
worker needs at most is the largest child's peak.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cluster_files import big

HERE = Path(__file__).resolve().parent


def measure(command: list[str], cores: set[int]) -> tuple[float, float]:
    """Run a command on these cores; return wall seconds and the peak memory of it or its largest child in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", PEAK, *command], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    out, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"failed: {command}")
    return time.perf_counter() - start, float(out.split()[-1])


PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def compare(data: Path, rounds: int) -> None:
    """Analyze on all cores and on one in turn."""
    command = [sys.executable, "-m", "npuperf", "analyze", str(data), "--engine", "processes"]
    every = os.sched_getaffinity(0)
    wide, narrow = [], []
    for _ in range(rounds):
        wide.append(measure(command, every))
        narrow.append(measure(command, {min(every)}))
    for name, runs in ((f"{len(every)} cores", wide), ("1 core", narrow)):
        seconds = sorted(s for s, _ in runs)
        peak = max(m for _, m in runs)
        print(f"{name:<10}{median(seconds):8.2f} s ({seconds[0]:.2f}–{seconds[-1]:.2f})  {peak:6.0f} MB in a process")
    ratios = sorted(n / w for (w, _), (n, _) in zip(wide, narrow, strict=True))
    print(f"speed-up  {median(ratios):8.2f}× ({ratios[0]:.2f}–{ratios[-1]:.2f}), limit 1.6× on two cores")


def main() -> None:
    """Write the job if there is none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="a job to use (or to make)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = options.data or Path(scratch) / "job"
        if not data.exists():
            big(data, options.ranks, options.kernels)
        print(f"{options.ranks} ranks, {sum(f.stat().st_size for f in data.rglob('*') if f.is_file()) / 1e6:.0f} MB")
        compare(data, options.rounds)


if __name__ == "__main__":
    main()

"""Many ranks: npuperf analyze over a job, on all cores and pinned to one, and its memory.

python benchmarks/bench_cluster.py [--ranks 64] [--kernels 20000] [--rounds 5] [--engine processes] [--data DIR]
python benchmarks/bench_cluster.py --ranks 1024 --kernels 50 --rounds 1 --engine dask    # a thousand small ranks

Both commands read the same files in turn, so that a busy machine slows both. The figures are ratios of medians; what a
worker needs at most is the largest child's peak. What is said of a job that is made here is held against what its
simulation knows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cluster_files import big
from cluster_world import Truth

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


def hold(truth: Truth, command: list[str]) -> None:
    """Analyze, and hold the job that is told of against the one that was simulated."""
    done = subprocess.run([*command, "--format", "json"], check=True, capture_output=True)
    cluster = json.loads(done.stdout)["cluster"]
    waited, known = sum(rank["comm"]["wait_ns"] for rank in cluster["ranks"]), truth.wait_ns()
    facts = {
        "all ranks are there": len(cluster["ranks"]) == truth.job.world and not cluster["absent"],
        "all groups are whole": all(g["complete"] and not g["unmatched"] for g in cluster["groups"]),
        "ranks wait as long, within 1 %": abs(waited - known) <= 0.01 * known,
        "every wait has a root": sum(root["wait_ns"] for root in cluster["roots"]) == waited,
        "replay is within 1 %": cluster["replay"]["error"] < 0.01,
    }
    wrong = [name for name, so in facts.items() if not so]
    if wrong:
        raise SystemExit(f"not so: {'; '.join(wrong)}")
    print(f"said as simulated: {'; '.join(facts)}")


def compare(command: list[str], rounds: int) -> None:
    """Analyze on all cores and on one in turn."""
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
    parser.add_argument("--engine", default="processes")
    parser.add_argument("--data", type=Path, help="a job to use (or to make)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = options.data or Path(scratch) / "job"
        truth = None if data.exists() else big(data, options.ranks, options.kernels)
        print(f"{options.ranks} ranks, {sum(f.stat().st_size for f in data.rglob('*') if f.is_file()) / 1e6:.0f} MB")
        command = [sys.executable, "-m", "npuperf", "analyze", str(data), "--engine", options.engine, "--no-cache"]
        if truth is not None:
            hold(truth, command)
        compare(command, options.rounds)


if __name__ == "__main__":
    main()

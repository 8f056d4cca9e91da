"""Pages of large profiles: what --html costs beside the analysis, bytes, and how a browser copes with the page.

python benchmarks/bench_page.py [--sizes 100000 1000000] [--ranks 64] [--data DIR]

Profiles are generated in a temporary folder, or in --data, where they are found again the next time. "first" reads and
analyzes; "again" and "with page" take turns and begin with what the first kept. CPU seconds, medians; frames are script
time, as the page itself measures it. Needs playwright (pip install '.[dev]') and chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from cluster_files import big

HERE = Path(__file__).resolve().parent
KEYS = "dwwwwsssdt" + "wwdwwadsssss" + "0" + "t]" + "wwsss["


def simulated(data: Path, kernels: int) -> Path:
    """Return a generated profile; make it if it is not there yet."""
    out = data / f"{kernels}_ascend_pt"
    if not out.is_dir():
        command = [sys.executable, str(HERE / "simulate.py"), str(out), "--preset", "bench", "--kernels", str(kernels)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def taken(path: Path, data: Path, *more: str) -> float:
    """Analyze; return CPU seconds of the command and its children."""
    before = os.times()
    environment = os.environ | {"XDG_CACHE_HOME": str(data / "cache")}
    command = [sys.executable, "-m", "npuperf", "analyze", str(path), *more]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def opened(page: Any, file: Path) -> dict[str, float]:
    """Open a page, move and zoom about, and search; return milliseconds."""
    start = time.perf_counter()
    page.goto(file.as_uri())
    while not page.evaluate("'ready' in document.documentElement.dataset"):
        time.sleep(0.01)
    ready = 1000 * (time.perf_counter() - start)
    frame = "document.getElementById('timeline').dataset.frameMs"
    page.locator("#timeline canvas").last.focus()
    frames = []
    for key in KEYS:
        page.keyboard.press(key)
        page.wait_for_timeout(40)
        frames.append(float(page.evaluate(frame).split()[0]))
    page.locator(".timeline-search input").fill("matmul")
    page.wait_for_timeout(100)
    searching = float(page.evaluate(frame).split()[0])
    return {"ready": ready, "median": median(frames), "longest": max(frames), "searching": searching}


def measure(profiles: dict[str, Path], data: Path, rounds: int) -> None:
    """Print a row for each profile."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print("profile            first    again  with page      bytes    ready  frame: median  longest  searching")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name, path in profiles.items():
            file = data / f"{path.name}.html"
            first = taken(path, data)
            pairs = [(taken(path, data), taken(path, data, "--html", str(file))) for _ in range(rounds)]
            seen = opened(browser.new_page(viewport={"width": 1280, "height": 900}), file)
            alone, both = (median(times) for times in zip(*pairs, strict=True))
            print(
                f"{name:<17}{first:5.1f} s{alone:7.2f} s{both:9.2f} s{file.stat().st_size:11,}{seen['ready']:6.0f} ms"
                f"{seen['median']:12.1f} ms{seen['longest']:6.1f} ms{seen['searching']:8.1f} ms"
            )
        browser.close()


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = asked.data or Path(scratch)
        data.mkdir(parents=True, exist_ok=True)
        profiles = {f"{size:,} kernels": simulated(data, size) for size in asked.sizes}
        if asked.ranks:
            job = data / f"{asked.ranks}_ranks"
            if not job.is_dir():
                big(job, asked.ranks, 100)
            profiles[f"{asked.ranks:,} ranks"] = job
        measure(profiles, data, asked.rounds)


if __name__ == "__main__":
    main()

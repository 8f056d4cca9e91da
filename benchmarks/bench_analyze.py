"""How fast is ``npuperf analyze``, and how much memory does it take? Ratios, measured side by side in one run.

    python benchmarks/bench_analyze.py [PART ...] [--sizes 100000,300000,1000000] [--data DIR] [--update-docs]

Parts (all of them, unless some are named):

    reading   analyze against merely reading the same files (readers.py), at every size; how time grows with the size
    readers   what each reader needs for the trace alone, and ours
    stages    where the time goes, and where it went in another checkout (--before)
    cores     analyze on one core against all, of one profile and of several ranks
    cache     the second analyze of the same files against the first
    small     the sample against importing numpy and pyarrow; --help against importing typer
    db        a database against the same run as text files
    gz        a packed trace against unpacking it and reading it unpacked
    advisor   msprof-analyze (PyPI; in a virtual environment of its own) against analyze

Data is generated (simulate.py) in a temporary folder, or in --data, where it is found again the next time. What is
measured is printed as Markdown; with --update-docs it is kept in figures.json and shown in docs/performance.md and
README.md. README.md in this folder says what each part needs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import advisor
from figures import FILE, ROOT, Goal, Row, compare, fill, kept, short, spaced, summary, tables
from measuring import Command, Spread, Usage, in_turn

HERE = Path(__file__).resolve().parent
SAMPLE = ROOT / "samples" / "transformer_ascend_pt"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
SHORT_ROUNDS = 3  # times as many for commands of less than a second
RANKS, RANK_KERNELS = 4, 100_000
#: Peak memory in MB by kernels.
ROOM = {100_000: 200, 1_000_000: 850}
READERS = ("duckdb", "msgspec")
TRACE_READERS = {
    "DuckDB, `read_json`": ("duckdb", "as text", "no"),
    "msgspec, structs, then columns": ("msgspec", "as text", "piece by piece"),
    "pyarrow.json, an event per line": ("pyarrow_json", "as text", "no"),
}
OURS = "from pathlib import Path; from sys import argv; from npuperf.readers.log import ReadLog; " \
       "from npuperf.base.memory import spare_pandas; spare_pandas(); " \
       "from npuperf.readers.trace import read_trace; read_trace([Path(argv[1])], ReadLog())"  # fmt: skip
#: No threads for matrices, which numpy starts otherwise: they take CPU time, and nobody here multiplies any.
ALONE = {"OPENBLAS_NUM_THREADS": "1"}
#: As where npuperf was installed without a C compiler.
DECODED = "from npuperf.readers import plain_events; plain_events._library = lambda: None; " + OURS


@dataclass
class Workshop:
    """Where files are made, how often commands are run, and on what."""

    data: Path
    sizes: list[int]
    rounds: int
    advisor_sizes: list[int]
    before: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep caches and state here, so that nothing of the user's is used or changed."""
        self.data.mkdir(parents=True, exist_ok=True)
        for name in ("CACHE", "STATE", "CONFIG", "DATA"):
            self.environment[f"XDG_{name}_HOME"] = str(self.data / "home" / name.lower())

    def profile(self, kernels: int) -> Path:
        """Return a generated profile; make it if it is not there yet."""
        out = self.data / f"kernels_{kernels}_ascend_pt"
        if not out.exists():
            self._simulate(out, kernels)
        return out

    def job(self) -> Path:
        """Return a generated job of several ranks; make it if it is not there yet."""
        job = self.data / f"ranks_{RANKS}"
        for rank in range(RANKS):
            out = job / f"rank_{rank}_ascend_pt"
            if not out.exists():
                self._simulate(out, RANK_KERNELS, rank)
        return job

    def _simulate(self, out: Path, kernels: int, rank: int = 0) -> None:
        print(f"  generating {out.name}", file=sys.stderr, flush=True)
        unfinished = self.data / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [sys.executable, str(HERE / "simulate.py"), str(unfinished), "--preset", "bench"]
        command += ["--kernels", str(kernels), "--seed", str(rank)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        info = unfinished / "profiler_info_0.json"
        told = json.loads(info.read_text("utf-8")) | {"rank_id": rank}
        info.rename(info.with_name(f"profiler_info_{rank}.json")).write_text(json.dumps(told), "utf-8")
        out.parent.mkdir(exist_ok=True)
        unfinished.rename(out)

    def analyze(self, path: Path, *, cached: bool = False, **more: Any) -> Command:
        """Return the command, without a cache unless ``cached``."""
        environment = self.environment | {"PYTHONPATH": str(ROOT)} | ({} if cached else {"NPUPERF_NO_CACHE": "1"})
        return Command([sys.executable, "-m", "npuperf", "analyze", str(path)], environment, **more)

    def forget(self) -> None:
        """Remove what was cached."""
        shutil.rmtree(self.data / "home" / "cache", ignore_errors=True)


def files(profile: Path) -> tuple[Path, Path]:
    """Return the kernel table and the trace."""
    return profile / OUTPUT / "kernel_details.csv", profile / OUTPUT / "trace_view.json"


def python(*arguments: str, environment: Mapping[str, str] | None = None) -> Command:
    """Return a command of this Python."""
    return Command([sys.executable, *arguments], environment or {})


def reading(shop: Workshop) -> list[Row]:
    """Compare with the faster of the frozen readers."""
    commands = {}
    for size in shop.sizes:
        profile = shop.profile(size)
        table, trace = files(profile)
        commands[f"analyze {size}"] = shop.analyze(profile)
        for reader in READERS:
            arguments = [str(HERE / "readers.py"), reader, "--table", str(table), "--trace", str(trace)]
            commands[f"{reader} {size}"] = python(*arguments, environment=ALONE)
    taken = in_turn(commands, shop.rounds)
    rows = [_against_floor(taken, size) for size in shop.sizes]
    first, last = min(shop.sizes), max(shop.sizes)
    if last > first:
        goal = Goal("cpu", "≤", 1.05 * last / first)
        one, other = taken[f"analyze {last}"], taken[f"analyze {first}"]
        rows.append(compare("analyze", one, f"analyze of {spaced(first)} kernels", other, last, goal))
    return rows


def _against_floor(taken: Mapping[str, list[Usage]], size: int) -> Row:
    floor = min(READERS, key=lambda reader: Spread.of([u.cpu for u in taken[f"{reader} {size}"]]).median)
    goals = [Goal("cpu", "≤", 1.5), *([Goal("megabytes", "≤", ROOM[size])] if size in ROOM else [])]
    against = f"merely reading (pyarrow.csv, {floor})"
    return compare("analyze", taken[f"analyze {size}"], against, taken[f"{floor} {size}"], size, *goals)


def readers(shop: Workshop) -> list[dict[str, str]]:
    """Read the trace of the smallest profile in every way, ours with imports as the others."""
    _, trace = files(shop.profile(min(shop.sizes)))
    arguments = {name: (str(HERE / "readers.py"), key, "--trace") for name, (key, *_) in TRACE_READERS.items()}
    commands = {name: python(*given, str(trace), environment=ALONE) for name, given in arguments.items()}
    ours = [("npuperf", ROOT, OURS), ("npuperf, decoded", ROOT, DECODED)]
    for name, checkout, text in [*ours, *([("npuperf before", shop.before, OURS)] if shop.before else [])]:
        environment = shop.environment | ALONE | {"PYTHONPATH": str(checkout)}
        commands[name] = Command([sys.executable, "-c", text, str(trace)], environment)
    taken = in_turn(commands, shop.rounds)
    megabytes = trace.stat().st_size / 1e6
    facts = {name: tuple(rest) for name, (_, *rest) in TRACE_READERS.items()}
    rows = []
    for name, used in taken.items():
        exact, salvages = facts.get(name, ("int64 ns", "event by event"))
        cpu = Spread.of([u.cpu for u in used])
        rows.append(
            {
                "reader": name,
                f"CPU s for {megabytes:.0f} MB": f"{short(cpu.median)} [{short(cpu.least)}–{short(cpu.greatest)}]",
                "peak MB": f"{Spread.of([u.peak for u in used]).median:.0f}",
                "exact times": exact,
                "salvages damaged files": salvages,
            }
        )
    return rows


def stages(shop: Workshop) -> list[dict[str, str]]:
    """Take CPU time stage by stage, at the smallest and the largest size, each the least of the rounds."""
    versions = {"before": shop.before, "now": ROOT} if shop.before else {"now": ROOT}
    columns = {}
    for size in sorted({min(shop.sizes), max(shop.sizes)}):
        laps: dict[str, list[dict[str, float]]] = {version: [] for version in versions}
        for _ in range(shop.rounds):
            for version, checkout in versions.items():
                laps[version].append(_stages(shop, shop.profile(size), checkout))
        for version, runs in laps.items():
            columns[f"{spaced(size)}: {version}"] = {name: min(run[name] for run in runs) for name in runs[0]}
    names = next(iter(columns.values()))
    return [{"stage": name, **{key: f"{laps[name]:.2f}" for key, laps in columns.items()}} for name in names]


def _stages(shop: Workshop, profile: Path, checkout: Path | None) -> dict[str, float]:
    environment = os.environ | shop.environment | {"PYTHONPATH": str(checkout), "NPUPERF_NO_CACHE": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(HERE / "stages.py"), str(profile)]
    laps = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    assert isinstance(laps, dict)
    return laps


def cores(shop: Workshop) -> list[Row]:
    """Bind the whole command to one core: one large profile, and a job of several ranks."""
    size = max(shop.sizes)
    profiles = {"analyze": (shop.profile(size), size), f"analyze of {RANKS} ranks": (shop.job(), RANKS * RANK_KERNELS)}
    rows = []
    for name, (profile, kernels) in profiles.items():
        one, every = f"{name} on one core", f"on {len(os.sched_getaffinity(0))} cores"
        commands = {one: shop.analyze(profile, one_core=True), every: shop.analyze(profile)}
        taken = in_turn(commands, shop.rounds)
        goals = [Goal("wall", "≥", 1.5)] if kernels != size or size >= 1_000_000 else []
        rows.append(compare(one, taken[one], every, taken[every], kernels, *goals))
    return [*rows, _most(shop)]


def _most(shop: Workshop) -> Row:
    """Measure what these cores can give: as many analyses as there are cores, which share nothing, at once."""
    size, count = min(shop.sizes), len(os.sched_getaffinity(0))
    one, every = f"{count} analyses at once on one core", f"on {count} cores"
    alone = shop.analyze(shop.profile(size))
    shell = ["sh", "-c", f'for each in $(seq {count}); do "$@" & done; wait', "sh", *alone.arguments]
    commands = {one: Command(shell, alone.environment, one_core=True), every: Command(shell, alone.environment)}
    taken = in_turn(commands, shop.rounds)
    return compare(one, taken[one], every, taken[every], size)


def cache(shop: Workshop) -> list[Row]:
    """Analyze with an empty cache, then again; and a question that was not asked before, from the cached columns."""
    rows = []
    for size in sorted({min(shop.sizes), max(shop.sizes)}):
        profile = shop.profile(size)
        again = shop.analyze(profile, cached=True)
        asked = Command([*again.arguments, "--what-if", "host*0.7"], again.environment)
        commands = {
            "without": shop.analyze(profile),
            "first": shop.analyze(profile, cached=True, before=shop.forget),
            "second": again,
            "other": asked,
        }
        taken = in_turn(commands, shop.rounds, ordered=True)
        goals = [Goal("cpu", "≤", 0.1)] if size >= 1_000_000 else [Goal("seconds", "≤", 0.5)]
        rows.append(compare("second analyze", taken["second"], "first analyze", taken["first"], size, *goals))
        rows.append(compare("analyze with another --what-if", taken["other"], "first analyze", taken["first"], size))
        rows.append(compare("first analyze", taken["first"], "analyze --no-cache", taken["without"], size))
    shop.forget()
    return rows


def small(shop: Workshop) -> list[Row]:
    """Compare what is mostly start-up with what must be imported."""
    libraries, typer = '`python -c "import numpy, pyarrow.csv"`', '`python -c "import typer"`'
    helped = Command([sys.executable, "-m", "npuperf", "--help"], shop.environment | {"PYTHONPATH": str(ROOT)})
    commands = {
        "sample": shop.analyze(SAMPLE),
        "libraries": python("-c", "import numpy, pyarrow.csv"),
        "help": helped,
        "typer": python("-c", "import typer"),
    }
    taken = in_turn(commands, SHORT_ROUNDS * shop.rounds)
    goals = (Goal("cpu", "≤", 3), Goal("seconds", "≤", 0.5))
    return [
        compare("analyze of the sample", taken["sample"], libraries, taken["libraries"], 156, *goals),
        compare("`npuperf --help`", taken["help"], typer, taken["typer"], None, Goal("cpu", "≤", 1.5)),
    ]


def db(shop: Workshop) -> list[Row]:
    """Compare a database with the text files that it was made of, by the tests' converter."""
    size = min(shop.sizes)
    text = shop.profile(size)
    made = shop.data / "db" / text.name
    if not made.exists():
        shutil.rmtree(made.parent, ignore_errors=True)
        code = "import sys; from pathlib import Path; from conversion import to_db; to_db(*map(Path, sys.argv[1:]))"
        environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
        subprocess.run([sys.executable, "-c", code, str(text), str(made.parent)], check=True, env=environment)
    taken = in_turn({"db": shop.analyze(made), "text": shop.analyze(text)}, shop.rounds)
    goals = (Goal("cpu", "≤", 1.8),)
    return [compare("analyze of a .db", taken["db"], "analyze of the same run as text", taken["text"], size, *goals)]


def gz(shop: Workshop) -> list[Row]:
    """Compare a packed trace alone with gunzip, and with the plain trace plus gunzip."""
    size = min(shop.sizes)
    _, trace = files(shop.profile(size))
    packed = shop.data / f"trace_{size}.json.gz"
    if not packed.exists():
        with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
    commands = {
        "packed": shop.analyze(packed),
        "plain": shop.analyze(trace),
        "gunzip": Command(["gzip", "-dc", str(packed)]),
    }
    taken = in_turn(commands, shop.rounds)
    both = [one + other for one, other in zip(taken["gunzip"], taken["plain"], strict=True)]
    name = "analyze of a trace as .json.gz"
    goals = (Goal("cpu", "≤", 1), Goal("wall", "≤", 1))
    return [
        compare(name, taken["packed"], "`gzip -dc`, then analyze of the unpacked trace", both, size, *goals),
        compare(name, taken["packed"], "`gzip -dc` alone", taken["gunzip"], size),
    ]


def advise(shop: Workshop) -> list[Row]:
    """Compare with msprof-analyze on the same profile."""
    program = advisor.install(shop.data / "msprof-analyze")
    name = f"`msprof-analyze advisor all` {advisor.version(program)}"
    rows = []
    for size in shop.advisor_sizes:
        profile = shop.profile(size)
        out = shop.data / "advised"
        commands = {name: advisor.advise(program, profile, out), "analyze": shop.analyze(profile)}
        taken = in_turn(commands, shop.rounds)
        goals = (Goal("cpu", "≥", 50), Goal("memory", "≥", 10))
        rows.append(compare(name, taken[name], "analyze", taken["analyze"], size, *goals))
    return rows


Part = Callable[[Workshop], Iterable[Any]]
PARTS: dict[str, tuple[str, Part]] = {
    "reading": ("Against merely reading the same files", reading),
    "readers": ("Readers of a trace", readers),
    "stages": ("CPU seconds of the stages", stages),
    "cores": ("One core and all", cores),
    "cache": ("The second time", cache),
    "small": ("Small profiles and --help", small),
    "db": ("Databases", db),
    "gz": ("Packed traces", gz),
    "advisor": ("Against msprof-analyze", advise),
}


def where() -> str:
    """Say on what was measured."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    cores = len(os.sched_getaffinity(0))
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return f"{today}, commit {commit or '?'}, {cores} cores, {platform.machine()}, Python {platform.python_version()}"


def measured(shop: Workshop, names: Iterable[str]) -> dict[str, Any]:
    """Measure these parts."""
    found = {}
    for name in names:
        title, part = PARTS[name]
        print(title, file=sys.stderr, flush=True)
        rows = [*part(shop)]
        if not rows:
            continue
        found[name] = {"title": title, "where": where(), "rows": kept(rows) if isinstance(rows[0], Row) else rows}
    return found


def keep(found: Mapping[str, Any]) -> None:
    """Put figures beside those of earlier runs, and into the pages."""
    earlier = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    every = {name: (earlier | found)[name] for name in PARTS if name in earlier | found}
    FILE.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n", "utf-8")
    fill(ROOT / "docs" / "performance.md", "figures", tables(every))
    fill(ROOT / "README.md", "speed", summary(every))


def numbers(text: str) -> list[int]:
    """Read a list of sizes."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sizes", type=numbers, default=[100_000, 300_000, 1_000_000], help="kernels, with commas")
    parser.add_argument("--advisor-sizes", type=numbers, default=[100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="a folder for profiles, databases and environments; kept")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version, for readers and stages")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = (options.data or Path(scratch)).resolve()
        shop = Workshop(data, options.sizes, options.rounds, options.advisor_sizes, options.before)
        found = measured(shop, options.parts or PARTS)
    print(tables(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if options.update_docs:
        keep(found)


if __name__ == "__main__":
    main()

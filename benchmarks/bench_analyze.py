"""How fast is ``npuperf analyze``? Ratios against the cost of merely reading the same files, in one run.

    python benchmarks/bench_analyze.py [--kernels 1000000] [--data DIR]

Every measurement is a child process; memory is its peak resident set. "merely reading" is a script of its own
that shares no code with npuperf: pyarrow.csv with the columns that analyze needs, then the trace decoded with
msgspec in 16 MB pieces, and nothing done with either.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

READ_ONLY = """
import gc
import sys
import msgspec
import pyarrow as pa
import pyarrow.csv as pv

class Args(msgspec.Struct, gc=False):
    connection_id: int | str | None = None
    task_type: str | None = msgspec.field(default=None, name="Task Type")

class Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str | None = None
    pid: int | None = None
    tid: int | None = None
    ts: str | None = None
    dur: float | None = None
    id: int | str | None = None
    args: Args | None = None

kernels, timeline = sys.argv[1:]
header = open(kernels).readline().strip().split(",")
exact = {c: pa.decimal128(20, 3) for c in ("Start Time(us)", "Duration(us)", "Wait Time(us)")}
whole = {c: pa.int64() for c in header if c.startswith(("Block ", "Mix Block ", "Step Id", "Device_id", "Stream ID"))}
texts = ("Name", "Type", "Accelerator Core", "OP State", "Input Shapes")
words = {c: pa.dictionary(pa.int32(), pa.string()) for c in texts}
counters = ("_ratio", "_rate", "utilization(%)", "aicore_time(us)", "aiv_time(us)")
ratios = {c: pa.float32() for c in header if c.endswith(counters)}
types = exact | whole | words | ratios
nulls = {"null_values": ["", "N/A"], "strings_can_be_null": True}
convert = pv.ConvertOptions(column_types=types, include_columns=list(types), **nulls)
table = pv.read_csv(kernels, convert_options=convert, parse_options=pv.ParseOptions(newlines_in_values=True))
assert table.num_rows
del table

gc.disable()
decode = msgspec.json.Decoder(list[Event]).decode
events = 0
with open(timeline, "rb") as file:
    rest = b""
    while block := file.read(16 << 20):
        buffer = (rest + block).lstrip(b"[, ")
        cut = buffer.rfind(b"}, {")
        events += len(decode(b"[" + buffer[: cut + 1] + b"]"))
        rest = buffer[cut + 1 :]
    events += len(decode(b"[" + rest.lstrip(b", ")))
assert events
"""


def measure(command: list[str], repeat: int = 1) -> tuple[float, float]:
    """Run a command; return the best wall time in seconds and the peak memory in MB."""
    seconds, megabytes = [], []
    for _ in range(repeat):
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"failed: {command}")
        seconds.append(time.perf_counter() - start)
        megabytes.append(usage.ru_maxrss / 1024)
    return min(seconds), max(megabytes)


def row(name: str, seconds: float, megabytes: float, ratio: float | None, limit: str) -> None:
    """Print one line of the table."""
    print(f"{name:<34}{seconds:>9.2f} s{megabytes:>9.0f} MB{'' if ratio is None else f'{ratio:9.2f}×'}  {limit}")


def bench_analyze(data: Path, repeat: int) -> None:
    """Compare the whole command with merely reading its input."""
    output = data / "ASCEND_PROFILER_OUTPUT"
    kernels, timeline = output / "kernel_details.csv", output / "trace_view.json"
    sizes = [file.stat().st_size / 1e6 for file in (kernels, timeline)]
    print("{:.0f} MB of CSV and {:.0f} MB of trace".format(*sizes))
    base = measure([sys.executable, "-c", READ_ONLY, str(kernels), str(timeline)], repeat)
    row("merely reading", *base, None, "")
    full = measure([sys.executable, "-m", "npuperf", "analyze", str(data)], repeat)
    row("npuperf analyze", *full, full[0] / base[0], "limit 3×, 1500 MB")


def bench_help(repeat: int) -> None:
    """Compare ``--help`` with importing typer."""
    base = measure([sys.executable, "-c", "import typer"], repeat)
    row("import typer", *base, None, "")
    shown = measure([sys.executable, "-m", "npuperf", "--help"], repeat)
    row("npuperf --help", *shown, shown[0] / base[0], "limit 2×")


def main() -> None:
    """Generate the profile if there is none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="a generated profile to use (or to make)")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    bench_help(10)
    with tempfile.TemporaryDirectory() as scratch:
        data = options.data or Path(scratch) / "bench_ascend_pt"
        if not data.exists():
            command = [sys.executable, str(HERE / "simulate.py"), str(data), "--kernels", str(options.kernels)]
            subprocess.run([*command, "--preset", "bench"], check=True, stdout=subprocess.DEVNULL)
        bench_analyze(data, options.repeat)


if __name__ == "__main__":
    main()

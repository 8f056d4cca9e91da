"""Merely reading a profile into columns, in the best ways known: what ``analyze`` is measured against.

    python benchmarks/readers.py duckdb|msgspec|pyarrow_json [--table kernel_details.csv] [--trace trace_view.json]

Shares no code with npuperf. The table is read by pyarrow.csv with the columns that analyze uses, typed; the trace
becomes columns of all its events: phase, name, category, process, thread, time (text, as it stands there, so that no
digit is lost), duration, id, and of the arguments ``connection_id`` and ``Task Type``. Batches are dropped as soon as
they are made: nothing is done with either. Prints rows and events, so that readers can be compared.

A reader becomes faster only: this is the floor that the goals in docs/performance.md stand on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 20
TIMES = ("Start Time(us)", "Duration(us)", "Wait Time(us)")
WHOLE = ("Block ", "Mix Block ", "Step Id", "Device_id", "Stream ID")
TEXTS = ("Name", "Type", "Accelerator Core", "OP State", "Input Shapes", "Input Data Types", "Input Formats",
         "Output Data Types", "Output Formats")  # fmt: skip
COUNTERS = ("_ratio", "_rate", "utilization(%)", "aicore_time(us)", "aiv_time(us)")


def read_table(path: Path) -> int:
    """Read a kernel table in batches; return the number of rows."""
    import pyarrow as pa
    import pyarrow.csv as pv

    with path.open(encoding="utf-8") as file:
        header = file.readline().strip().split(",")
    types = {c: pa.decimal128(20, 3) for c in TIMES}
    types |= {c: pa.dictionary(pa.int32(), pa.string()) for c in TEXTS}
    types |= {c: pa.int64() for c in header if c.startswith(WHOLE)}
    types |= {c: pa.float32() for c in header if c.endswith(COUNTERS)}
    convert = pv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=["", "N/A"], strings_can_be_null=True
    )
    parse = pv.ParseOptions(newlines_in_values=True)
    return sum(batch.num_rows for batch in pv.open_csv(path, convert_options=convert, parse_options=parse))


def with_duckdb(path: Path) -> int:
    """Read a trace as Arrow batches from DuckDB's ``read_json``; return the number of events.

    One array is read by one thread, however many there are.
    """
    import duckdb

    columns = """{ph: 'VARCHAR', name: 'VARCHAR', cat: 'VARCHAR', pid: 'BIGINT', tid: 'BIGINT', ts: 'VARCHAR',
        dur: 'DOUBLE', id: 'VARCHAR', args: 'STRUCT(connection_id BIGINT, "Task Type" VARCHAR)'}"""
    name = str(path).replace("'", "''")
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")  # which slow machines would see among the numbers
    query = f"SELECT * FROM read_json('{name}', format='array', columns={columns}, maximum_object_size=16777216)"
    return sum(batch.num_rows for batch in connection.sql(query).to_arrow_reader(50_000))


def with_msgspec(path: Path) -> int:
    """Decode a trace with msgspec, a list of structs per piece, and turn each list into columns."""
    import gc

    import msgspec
    import numpy as np
    import pyarrow as pa

    gc.disable()
    decode = msgspec.json.Decoder(list[_event_type(msgspec)]).decode

    def columns(events: list[Any]) -> list[Any]:
        text, args = pa.string(), [e.args for e in events]
        return [
            *(pa.array(c, text) for c in ([e.ph for e in events], [e.name for e in events], [e.cat for e in events])),
            *(np.fromiter(c, np.int64, len(c)) for c in ([e.pid for e in events], [e.tid for e in events])),
            pa.array([e.ts for e in events], text),
            pa.array([e.dur for e in events], pa.float64()),
            pa.array([None if e.id is None else str(e.id) for e in events], text),
            pa.array([a.connection_id for a in args], pa.int64()),
            pa.array([a.task_type for a in args], text),
        ]

    return sum(len(columns(decode(piece))[0]) for piece in _lists(path))


def _event_type(msgspec: Any) -> Any:
    """Return the type of an event: only what becomes a column."""

    class Args(msgspec.Struct, gc=False, frozen=True):
        connection_id: int | None = None
        task_type: str | None = msgspec.field(default=None, name="Task Type")

    fields = [("ph", str, ""), ("name", str, ""), ("cat", str | None, None), ("pid", int, 0), ("tid", int, 0),
              ("ts", str | None, None), ("dur", float | None, None), ("id", int | str | None, None),
              ("args", Args, Args())]  # fmt: skip
    return msgspec.defstruct("Event", fields, gc=False)


def with_pyarrow_json(path: Path) -> int:
    """Read a trace with pyarrow.json, which wants an event per line, so gaps between events become line ends."""
    import pyarrow as pa
    import pyarrow.json as pj

    text = pa.string()
    args = pa.struct([("connection_id", pa.int64()), ("Task Type", text)])
    types = {"ph": text, "name": text, "cat": text, "pid": pa.int64(), "tid": pa.int64(), "ts": text,
             "dur": pa.float64(), "id": pa.decimal128(38, 0), "args": args}  # fmt: skip
    parse = pj.ParseOptions(explicit_schema=pa.schema(types.items()), unexpected_field_behavior="ignore")

    def rows(piece: bytes) -> int:
        lines = piece[1:-1].replace(b"}, {", b"}\n{")
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        return int(pj.read_json(pa.BufferReader(lines), read_options=options, parse_options=parse).num_rows)

    return sum(map(rows, _lists(path)))


def _lists(path: Path) -> Iterator[bytes]:
    """Cut a whole trace (an array of events, written by json.dumps) into arrays of about PIECE_BYTES."""
    with path.open("rb") as file:
        file.seek(len(b"["))
        rest = b""
        while block := file.read(PIECE_BYTES):
            block = rest + block
            cut = block.rfind(b"}, {")
            if cut < 0:
                rest = block
                continue
            yield b"[" + block[: cut + 1] + b"]"
            rest = block[cut + 3 :]
        yield b"[" + rest.rstrip()


TRACES = {"duckdb": with_duckdb, "msgspec": with_msgspec, "pyarrow_json": with_pyarrow_json}


def main() -> None:
    """Read what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reader", choices=TRACES)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    if options.table:
        print("rows", read_table(options.table))
    if options.trace:
        print("events", TRACES[options.reader](options.trace))


if __name__ == "__main__":
    main()

"""The alias table: every header that any version of CANN or torch_npu wrote for a column we use.

Matching ignores case, surrounding space, underscores against spaces, and a unit in parentheses, which is
returned apart. Headers are listed best first: where a file has several, the first one with data wins.
Sources: torch_npu's and msprof's exporters of 2023 to 2026.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from npuperf.base.units import BYTES_PER_UNIT, NS_PER_UNIT

#: Cells that mean "not recorded".
NULLS = ("", "N/A", "NA", "n/a", "None", "null", "NULL", "nan", "NaN", "-")
#: Integers that mean "not recorded" (unset unsigned fields).
UNSET_INTS = (4294967295, -1, 18446744073709551615)


class Kind(Enum):
    """How the text of a column becomes numbers."""

    TIME = "time"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"


class ColumnNames(Struct, frozen=True):
    """One column of our model and the headers it is known by, normalised, best first."""

    name: str
    kind: Kind
    headers: tuple[str, ...]


KERNEL_COLUMNS = (
    ColumnNames("start", Kind.TIME, ("task start time", "start time", "task start")),
    ColumnNames("dur", Kind.TIME, ("task duration", "duration", "task time")),
    ColumnNames("wait", Kind.TIME, ("task wait time", "wait time")),
    ColumnNames("name", Kind.TEXT, ("op name", "name", "kernel name")),
    ColumnNames("type", Kind.TEXT, ("op type", "type")),
    ColumnNames("core", Kind.TEXT, ("task type", "accelerator core", "kernel type")),
    ColumnNames("block", Kind.INT, ("block num", "block dim")),
    ColumnNames("mix_block", Kind.INT, ("mix block num", "mix block dim")),
    ColumnNames("step", Kind.INT, ("step id", "infer id", "iteration id")),
    ColumnNames("device", Kind.INT, ("device id",)),
    ColumnNames("stream", Kind.INT, ("stream id",)),
    ColumnNames("state", Kind.TEXT, ("op state",)),
    ColumnNames("shapes", Kind.TEXT, ("input shapes",)),
    ColumnNames("dtypes", Kind.TEXT, ("input data types",)),
    ColumnNames("formats", Kind.TEXT, ("input formats",)),
    ColumnNames("out_dtypes", Kind.TEXT, ("output data types",)),
    ColumnNames("out_formats", Kind.TEXT, ("output formats",)),
    ColumnNames("out_shapes", Kind.TEXT, ("output shapes",)),
    ColumnNames("hf32", Kind.TEXT, ("hf32 eligible",)),
)
#: Without these a row says nothing about time.
KERNEL_REQUIRED = ("start", "dur")

STEP_COLUMNS = (
    ColumnNames("step", Kind.TEXT, ("step",)),
    ColumnNames("device", Kind.INT, ("device id",)),
    ColumnNames("type", Kind.TEXT, ("type",)),
    ColumnNames("index", Kind.TEXT, ("index",)),
    ColumnNames("compute", Kind.TIME, ("computing",)),
    ColumnNames("comm_exposed", Kind.TIME, ("communication(not overlapped)", "communication not overlapped")),
    ColumnNames("communication", Kind.TIME, ("communication",)),
    ColumnNames("free", Kind.TIME, ("free",)),
    ColumnNames("stage", Kind.TIME, ("stage",)),
    ColumnNames("bubble", Kind.TIME, ("bubble",)),
    ColumnNames("pp", Kind.INT, ("pp index",)),
)
STEP_REQUIRED = ("compute", "comm_exposed", "free")

STATISTIC_COLUMNS = (
    ColumnNames("device", Kind.INT, ("device id",)),
    ColumnNames("type", Kind.TEXT, ("op type",)),
    ColumnNames("core", Kind.TEXT, ("core type",)),
    ColumnNames("count", Kind.INT, ("count",)),
    ColumnNames("total", Kind.TIME, ("total time",)),
)
STATISTIC_REQUIRED = ("type", "count", "total")

_PER_UNIT = NS_PER_UNIT | BYTES_PER_UNIT
_UNIT = re.compile(rf"\s*\(({'|'.join(_PER_UNIT)})\)$")
#: Counters that grow with a kernel's time: cycles of all the cores of a kind that it holds. All others are means.
CYCLES = ("aic_total_cycles", "aiv_total_cycles")
_PMU = re.compile(
    r"""^(aicore_time|aiv_time|ai[cv]_total_cycles)$ |
        (_ratio|_rate|_bw(_cube|_vector|_scalar|_mte)?|_hit|_miss|_miss_allocate|_victim)$ |
        ^(cube_utilization|memory_bound)$""",
    re.VERBOSE,
)
_PMU_UNIT = re.compile(r"\s*\((gb/s|%|us)\)$")


def normalise(header: str) -> tuple[str, str | None]:
    """Split a header into its comparable name and its unit of time or bytes, if it has one."""
    text = header.strip().strip('"').strip().lower().replace("_", " ")
    text = re.sub(r"\s+", " ", text)
    unit = _UNIT.search(text)
    return (text[: unit.start()], unit.group(1)) if unit else (text, None)


def pmu_name(header: str) -> str | None:
    """Return the name of a hardware-counter column, without its unit, or None for any other column."""
    text = _PMU_UNIT.sub("", header.strip().strip('"').strip().lower())
    return text if _PMU.search(text) else None


class Place(Struct, frozen=True):
    """Where a column of ours stands in a file: its position and the ns, or bytes, per unit of its numbers."""

    index: int
    scale: int | None


def locate(headers: list[str], columns: tuple[ColumnNames, ...]) -> dict[str, list[Place]]:
    """Find our columns in a file's header row: for each, every place it stands, best first."""
    seen = [normalise(h) for h in headers]
    return {
        column.name: [
            Place(i, _PER_UNIT[unit] if unit else None)
            for wanted in column.headers
            for i, (text, unit) in enumerate(seen)
            if text == wanted
        ]
        for column in columns
    }

"""The alias table: every header that any version of CANN or torch_npu wrote for a column we use.

Matching ignores case, surrounding space, underscores against spaces, and a unit in parentheses, which is
returned apart. Headers are listed best first: where a file has several, the first one with data wins.
Sources: torch_npu's and msprof's exporters of 2023 to 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from npuperf.units import NS_PER_UNIT

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


@dataclass(frozen=True, slots=True)
class Column:
    """One column of our model and the headers it is known by, normalised, best first."""

    name: str
    kind: Kind
    headers: tuple[str, ...]


KERNEL_COLUMNS = (
    Column("start", Kind.TIME, ("task start time", "start time", "task start")),
    Column("dur", Kind.TIME, ("task duration", "duration", "task time")),
    Column("wait", Kind.TIME, ("task wait time", "wait time")),
    Column("name", Kind.TEXT, ("op name", "name", "kernel name")),
    Column("type", Kind.TEXT, ("op type", "type")),
    Column("core", Kind.TEXT, ("task type", "accelerator core", "kernel type")),
    Column("block", Kind.INT, ("block num", "block dim")),
    Column("mix_block", Kind.INT, ("mix block num", "mix block dim")),
    Column("step", Kind.INT, ("step id", "infer id", "iteration id")),
    Column("device", Kind.INT, ("device id",)),
    Column("stream", Kind.INT, ("stream id",)),
    Column("state", Kind.TEXT, ("op state",)),
    Column("shapes", Kind.TEXT, ("input shapes",)),
)
#: Without these a row says nothing about time.
KERNEL_REQUIRED = ("start", "dur")

STEP_COLUMNS = (
    Column("step", Kind.TEXT, ("step",)),
    Column("device", Kind.INT, ("device id",)),
    Column("type", Kind.TEXT, ("type",)),
    Column("index", Kind.TEXT, ("index",)),
    Column("compute", Kind.TIME, ("computing",)),
    Column("comm_exposed", Kind.TIME, ("communication(not overlapped)", "communication not overlapped")),
    Column("communication", Kind.TIME, ("communication",)),
    Column("free", Kind.TIME, ("free",)),
    Column("stage", Kind.TIME, ("stage",)),
    Column("bubble", Kind.TIME, ("bubble",)),
)
STEP_REQUIRED = ("compute", "comm_exposed", "free")

_UNIT = re.compile(r"\s*\((ns|us|ms|s)\)$")
_PMU = re.compile(
    r"""^(aicore_time|aiv_time)$ |
        (_ratio|_rate|_bw(_cube|_vector|_scalar|_mte)?|_hit|_miss|_miss_allocate|_victim)$ |
        ^(cube_utilization|memory_bound)$""",
    re.VERBOSE,
)
_PMU_UNIT = re.compile(r"\s*\((gb/s|%|us)\)$")


def normalise(header: str) -> tuple[str, str | None]:
    """Split a header into its comparable name and its time unit, if it has one."""
    text = header.strip().strip('"').strip().lower().replace("_", " ")
    text = re.sub(r"\s+", " ", text)
    unit = _UNIT.search(text)
    return (text[: unit.start()], unit.group(1)) if unit else (text, None)


def pmu_name(header: str) -> str | None:
    """Return the name of a hardware-counter column, without its unit, or None for any other column."""
    text = _PMU_UNIT.sub("", header.strip().strip('"').strip().lower())
    return text if _PMU.search(text) else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column of ours stands in a file: its position and the ns per unit of its numbers."""

    index: int
    scale: int | None


def locate(headers: list[str], columns: tuple[Column, ...]) -> dict[str, list[Place]]:
    """Find our columns in a file's header row: for each, every place it stands, best first."""
    seen = [normalise(h) for h in headers]
    return {
        column.name: [
            Place(i, NS_PER_UNIT[unit] if unit else None)
            for wanted in column.headers
            for i, (text, unit) in enumerate(seen)
            if text == wanted
        ]
        for column in columns
    }

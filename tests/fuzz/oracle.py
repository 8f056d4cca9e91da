"""What holds whatever the input was: what may be said about a run that is over."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema

from npuperf.model.schema import documents, schema_of

#: done, gate failed, usage, input, cannot tell, child failed
CODES = (0, 1, 2, 3, 4, 5)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PARTITION = {
    "span_ns": ("compute_ns", "comm_exposed_ns", "other_exposed_ns", "idle_ns"),
    "idle_ns": ("host_wait_ns", "launch_latency_ns", "dependency_wait_ns", "unattributed_ns"),
    "comm_exposed_ns": ("comm_transfer_ns", "comm_wait_ns", "comm_unknown_ns"),
}
_NEVER_NEGATIVE = {
    "dur_ns", "total_ns", "min_ns", "max_ns", "median_ns", "host_ns", "busy_ns", "kernel_ns", "full_ns", "over_ns",
    "overlap_ns", "transfer_ns", "wait_ns", "unknown_ns", "step_ns", "before_ns", "after_ns", "host_before_ns",
    "host_after_ns", "count", "tasks", "rows", "launches", "kernels", "ns",
}  # fmt: skip


def complaint(code: int, stdout: str, stderr: str) -> str | None:
    """Say what is wrong with how a command ended, if anything."""
    if "internal error" in stderr or code == 70:
        told_ = next((line for line in stderr.splitlines() if "internal error" in line), "")
        return f"INTERNAL {told_.rpartition('internal error: ')[2][:200]}"
    if "Traceback" in stderr + stdout:
        return "TRACEBACK"
    if code not in CODES:
        return f"CODE {code}"
    if code in (2, 3, 5) and not stderr.strip():
        return f"SILENT CODE {code}"
    said = re.search(r"\w*Warning: .*", stderr)
    return f"PYTHON WARNING {said[0][:150]}" if said else unprintable("stderr", stderr)


def unprintable(where: str, text: str) -> str | None:
    """Say whether a text holds what a terminal would obey or not show."""
    found = _CONTROL.search(text)
    return None if found is None else f"CONTROL {where} U+{ord(found[0]):04X}"


@lru_cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema_of(documents()[name]))


def parsed(text: str) -> Any:
    """Read JSON as the standard has it: without NaN."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number")

    return json.loads(text, parse_constant=refuse)


def false_in(document: Any, schema: str) -> str | None:
    """Say what is wrong within a document, if anything."""
    error = next(validator(schema).iter_errors(document), None)
    if error is not None:
        return f"SCHEMA {error.json_path} {error.message[:150]}"
    return next((f"SUM {place}: {wrong}" for place, part in parts(document) for wrong in untrue(part)), None)


def parts(tree: Any, place: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(tree, dict):
        yield place, tree
        for key, value in tree.items():
            if key not in ("messages", "evidence"):
                yield from parts(value, f"{place}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from parts(value, f"{place}[]")


def untrue(part: dict[str, Any]) -> Iterator[str]:
    """Say which sums of one part of a document do not hold."""
    if part.keys() >= _PARTITION.keys():
        for whole, pieces in _PARTITION.items():
            if part[whole] != sum(part[piece] for piece in pieces):
                yield f"{whole} is not the sum of its parts"
        if min(v for v in part.values() if isinstance(v, int)) < 0:
            yield "negative part of a span"
    yield from (
        f"negative {key}" for key in part.keys() & _NEVER_NEGATIVE if isinstance(part[key], int) and part[key] < 0
    )
    if {"cores", "occupied_core_ns", "kernel_ns"} <= part.keys():
        idle = part["cores"] * part["kernel_ns"] - part["occupied_core_ns"]
        if idle != part["idle_core_ns"]:
            yield "core time is neither occupied nor idle"
    if {"blame", "dependencies", "partition"} <= part.keys():
        judged = (part.get("judged") or part)["partition"]
        for lines, whole in (("blame", "host_wait_ns"), ("dependencies", "dependency_wait_ns")):
            if part[lines] and sum(line["ns"] for line in part[lines]) != judged[whole]:
                yield f"{lines} do not add up to {whole}"
    if {"waterfall", "delta_ns"} <= part.keys() and part["delta_ns"] is not None:
        if part["delta_ns"] != sum(row["delta_ns"] for row in part["waterfall"]):
            yield "the waterfall does not add up to delta_ns"
        if part["delta_ns"] != part["new_step_ns"] - part["old_step_ns"]:
            yield "delta_ns is not the difference of the steps"
    if {"delta_ns", "count_ns", "speed_ns"} <= part.keys() and part["delta_ns"] != part["count_ns"] + part["speed_ns"]:
        yield "count and speed do not add up to delta_ns"
    if {"judged", "partition", "phases"} <= part.keys() and part["judged"]:
        yield from _wrongly_judged(part["judged"], part)


def _wrongly_judged(judged: dict[str, Any], device: dict[str, Any]) -> Iterator[str]:
    """Say what is wrong with the window that is judged, held against the device's span and the steps.

    Each of its ends lies within the device's span, of which the rest is then not judged, or beyond it, where only the
    host works: never both. What lies beyond is idle, and what is judged beside it is no more than the device did.
    """
    own, whole = judged["partition"], device["partition"]
    beyond = judged["host_before_ns"] + judged["host_after_ns"]
    if judged["before_ns"] + own["span_ns"] + judged["after_ns"] != whole["span_ns"] + beyond:
        yield "judged steps, and what is before and after, are not the whole and the host's part around it"
    if any(judged[f"{side}_ns"] and judged[f"host_{side}_ns"] for side in ("before", "after")):
        yield "an end of what is judged is both within the device's span and beyond it"
    if beyond > own["idle_ns"]:
        yield "the host's part around the device's span is not idle"
    for busy in ("compute_ns", "comm_exposed_ns", "other_exposed_ns"):
        if own[busy] > whole[busy] or (own[busy] != whole[busy] and not judged["before_ns"] + judged["after_ns"]):
            yield f"{busy} of what is judged is not that of the whole, less what is not judged"
    steps = device["steps"]
    places = [place for place, step in enumerate(steps) if step["whole"]]
    if places:  # they follow each other without a gap
        steps = steps[places[0] : places[-1] + 1]
        length = sum(step["partition"]["span_ns"] for step in steps)
        if (steps[0]["start_ns"], length) != (judged["start_ns"], own["span_ns"]):
            yield "the whole steps are not what is judged"


def ill_formed(path: Path, code: int) -> str | None:
    """Say what is wrong with a report of JUnit that was asked for, if anything; what it counts goes with the code."""
    if code not in (0, 1, 4) or not path.exists():
        return None
    try:
        suites = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        return f"XML {error}"
    told_ = tuple(len(suites.findall(f".//{name}")) for name in ("failure", "error"))
    if told_ != (int(suites.attrib["failures"]), int(suites.attrib["errors"])):
        return "XML counts other failures than it has"
    unlike = {0: told_ != (0, 0), 1: told_[0] == 0, 4: told_[1] == 0}[code]
    return f"XML with {told_} failures and errors beside a status of {code}" if unlike else None


def misshapen(format_: str, text: str) -> str | None:
    """Say what is wrong with a rendered page, if anything."""
    found = unprintable(format_, text)
    if found:
        return found
    if format_ == "markdown":
        widths = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0 for line in text.splitlines()]
        if any(a and b and a != b for a, b in itertools.pairwise(widths)):
            return "MARKDOWN a table's rows differ in their number of cells"
        if text.count("```") % 2:
            return "MARKDOWN a block of code does not end"
    if format_ == "csv":
        rows = [*csv.reader(io.StringIO(text, newline=""))]
        if len({len(row) for row in rows}) > 1:
            return "CSV rows differ in their number of cells"
        formula = next(
            (cell for row in rows for cell in row if cell[:1] in ("=", "+", "-", "@") and not is_number(cell)), None
        )
        return formula and f"CSV a formula: {formula[:50]!r}"
    return None if text.strip() else "EMPTY page"


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def tasks_of(document: Any) -> int:
    """Count the tasks that were used."""
    return sum(device["clock"]["tasks"] for device in document["devices"])


def span_of(document: Any) -> int:
    """Return the longest span of a device, ns."""
    return max((device["partition"]["span_ns"] for device in document["devices"]), default=0)


def told(document: Any) -> list[Any]:
    """Return everything that is said about the reading."""
    return [document["input"][key] for key in ("lost", "warnings", "missing")]


def rows_lost(document: Any, table: str | None = None) -> int:
    """Count the rows that are told as lost, of one table of a database or of all files."""
    lost = [part for part in document["input"]["lost"] if table is None or f"table {table}:" in part["reason"]]
    return sum(part["rows"] for part in lost)


def snapshot(root: Path) -> dict[str, object]:
    """Return what lies below a folder, without following links: modes, and digests of what can be read."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content: object = status.st_size
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o400:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISDIR(status.st_mode):
            content = None
        found[str(path.relative_to(root))] = (stat.filemode(status.st_mode), content)
    return found

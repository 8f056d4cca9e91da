"""What was measured: rows of ratios with their goals, as JSON, as Markdown, and in the pages that show them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from measuring import Spread, Usage, ratios

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "figures.json"
#: Ratios, and what a command takes itself.
KINDS = {"cpu": "CPU {limit:g}×", "wall": "wall {limit:g}×", "memory": "memory {limit:g}×",
         "seconds": "{limit:g} s CPU", "megabytes": "{limit:g} MB"}  # fmt: skip
#: Parts of which the README shows the rows that have a goal.
SHOWN = ("reading", "cache", "small", "advisor")


@dataclass(frozen=True)
class Goal:
    """A limit of a row's ratio (cpu, wall, memory) or of what its own command takes (seconds of CPU, megabytes)."""

    kind: str
    sign: str
    limit: float


@dataclass(frozen=True)
class Row:
    """One command against another: ratios of the rounds, medians of what each took."""

    of: str
    against: str
    kernels: int | None
    rounds: int
    cpu: Spread
    wall: Spread
    memory: Spread
    own: Usage
    other: Usage
    goals: tuple[Goal, ...] = ()


def compare(
    of: str, own: Sequence[Usage], against: str, other: Sequence[Usage], kernels: int | None = None, *goals: Goal
) -> Row:
    """Make a row of what two commands took in the same rounds."""
    cpu, wall, memory = (ratios(own, other, what) for what in ("cpu", "wall", "peak"))
    return Row(of, against, kernels, len(own), cpu, wall, memory, usual(own), usual(other), goals)


def usual(taken: Sequence[Usage]) -> Usage:
    """Return the medians."""
    return Usage(*(median(getattr(u, what) for u in taken) for what in ("cpu", "wall", "peak")))


def kept(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as they are kept in the file: figures with four digits."""
    return [json.loads(json.dumps(asdict(row)), parse_float=lambda text: float(f"{float(text):.4g}")) for row in rows]


def tables(parts: Mapping[str, Any]) -> str:
    """Render all parts, each with when and where it was measured."""
    return "\n\n".join(f"**{part['title']}** ({part['where']})\n\n{_table(part['rows'])}" for part in parts.values())


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if "of" not in rows[0]:
        return markdown(rows)
    return markdown([_cells(row) for row in rows])


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Render rows as a table, the first one's keys as its head."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(c) for c in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    own, other = row["own"], row["other"]
    return {
        "what": row["of"],
        "against": row["against"],
        "kernels": "" if row["kernels"] is None else spaced(row["kernels"]),
        "n": str(row["rounds"]),
        "CPU s": f"{short(own['cpu'])} : {short(other['cpu'])}",
        "CPU ratio": _spread(row["cpu"]),
        "wall s": f"{short(own['wall'])} : {short(other['wall'])}",
        "wall ratio": _spread(row["wall"]),
        "peak MB": f"{own['peak']:.0f} : {other['peak']:.0f}",
        "goal": "; ".join(_told(goal, row) for goal in row["goals"]),
    }


def _told(goal: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Say a goal, and whether the median reaches it."""
    own = {"seconds": row["own"]["cpu"], "megabytes": row["own"]["peak"]}
    value = own[goal["kind"]] if goal["kind"] in own else row[goal["kind"]]["median"]
    reached = value <= goal["limit"] if goal["sign"] == "≤" else value >= goal["limit"]
    text = KINDS[goal["kind"]].format(limit=goal["limit"])
    head, _, tail = text.partition(" ")
    text = f"{goal['sign']} {text}" if goal["kind"] in own else f"{head} {goal['sign']} {tail}"
    return text if reached else f"{text}: **missed**"


def _spread(value: Mapping[str, float]) -> str:
    return f"{short(value['median'])}× [{short(value['least'])}–{short(value['greatest'])}]"


def short(value: float) -> str:
    """Three digits, as far as they are behind the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spaced(number: int) -> str:
    """Group digits by thousands."""
    return f"{number:,}".replace(",", " ")


def fill(page: Path, mark: str, text: str) -> None:
    """Put a text between its marks in a page."""
    old = page.read_text("utf-8")
    new = filled(old, mark, text)
    if new != old:
        page.write_text(new, "utf-8")


def filled(page: str, mark: str, text: str) -> str:
    """Return the page with this text between the marks. Raises ValueError if it has none."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no mark {mark!r}")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def summary(parts: Mapping[str, Any]) -> str:
    """Render what the README shows: what a user waits for, beside what it can be held against."""
    rows = [row for part in SHOWN for row in parts.get(part, {}).get("rows", []) if row["goals"]]
    return markdown([*map(_short_cells, rows)])


def _short_cells(row: Mapping[str, Any]) -> dict[str, str]:
    own, size = row["own"], row["kernels"]
    return {
        "command": row["of"] if size is None else f"{row['of']}, {spaced(size)} kernels",
        "CPU": f"{short(own['cpu'])} s",
        "wall": f"{short(own['wall'])} s",
        "peak memory": f"{own['peak']:.0f} MB",
        "CPU time against": f"{short(row['cpu']['median'])}× {row['against']}",
    }

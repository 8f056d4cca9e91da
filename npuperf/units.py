"""Numbers with units, the same way everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

#: Relative difference below which two times are shown as one.
_CLOSE: Final = 0.02
#: Nanoseconds per unit, by the suffix that column headers carry in parentheses.
NS_PER_UNIT: Final = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}


def duration(ns: float | None) -> str:
    """Render nanoseconds with three significant digits or more, e.g. ``12.35 ms``."""
    if ns is None:
        return "–"
    for unit, size in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if abs(ns) >= size:
            return f"{ns / size:.2f} {unit}"
    return f"{ns:.0f} ns"


def percent(part: float | None) -> str:
    """Render a fraction as percent with one decimal."""
    return "–" if part is None else f"{100 * part:.1f} %"


def percents(low: float, high: float) -> str:
    """Render an interval of fractions as percent; one number where both read the same."""
    ends = list(dict.fromkeys("0" if end == 0 else f"{100 * end:.1f}" for end in (low, high)))
    return f"{' to '.join(ends)} %"


def interval(low: float, high: float) -> str:
    """Render an interval of times, ns; one number where its ends are within two percent."""
    close = abs(high - low) <= _CLOSE * abs(high)
    return duration(high) if close else f"{duration(low) if low else 0} … {duration(high)}"


def spread(low: float, high: float, like: float) -> str:
    """Render two times in the unit that :func:`duration` has for a third, without it."""
    size = next((size for size in (NS_PER_S, NS_PER_MS, NS_PER_US) if abs(like) >= size), 1)
    return f"{low / size:.2f}–{high / size:.2f}" if size > 1 else f"{low:.0f}–{high:.0f}"


def count(n: int) -> str:
    """Render a count with thin separators, e.g. ``1 234 567``."""
    return f"{n:,}".replace(",", " ")


def plural(n: int, noun: str) -> str:
    """Render ``1 row`` or ``2 rows``."""
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun.replace(' or ', 's or ')}s"


def byte_text(size: float) -> str:
    """Render a number of bytes, e.g. ``1.5 MiB``."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while size >= 1024 and power < len(units) - 1:
        size /= 1024
        power += 1
    return f"{size:.0f} B" if not power else f"{size:.1f} {units[power]}"


def grouped(value: float, decimals: int = 0) -> str:
    """Render a number with thin separators and a fixed number of decimals."""
    return f"{value:,.{decimals}f}".replace(",", " ")


def ms(ns: float) -> str:
    """Render nanoseconds as milliseconds without their unit, which a table has in its header."""
    return grouped(ns / NS_PER_MS, 3)


#: Units of whole columns: the sign for their header, and how a cell is shown below it.
COLUMN_UNITS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "count": ("", lambda value: count(int(value))),
    "ms": ("ms", ms),
    "duration": ("", ms),
    "us": ("µs", lambda value: grouped(value / NS_PER_US, 3)),
    "core_ms": ("core·ms", ms),
    "percent": ("%", lambda value: f"{100 * value:.1f}"),
    "share": ("", lambda value: f"{100 * value:.1f}"),  # of what: the header says it
    "number": ("%", lambda value: f"{value:.1f}"),
    "tenth": ("%", lambda value: f"{10 * value:.1f}"),
    "plain": ("", lambda value: grouped(value, 3).rstrip("0").rstrip(".")),
}

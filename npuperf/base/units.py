"""Numbers with units, the same way everywhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

_SIZES: Final = (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US))
#: Relative difference below which two times are shown as one.
_CLOSE: Final = 0.02
#: Nanoseconds per unit, by the suffix that column headers carry in parentheses.
NS_PER_UNIT: Final = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
MIB: Final = 1 << 20
TERA: Final = 1_000_000_000_000
#: Bytes per unit, likewise: exporters count in powers of 1024.
BYTES_PER_UNIT: Final = {"bytes": 1, "kb": 1 << 10, "mb": MIB, "gb": 1 << 30}


def duration(ns: float | None) -> str:
    """Render nanoseconds with three significant digits or more, e.g. ``12.35 ms``."""
    if ns is None:
        return "–"
    for unit, size in _SIZES:
        if abs(ns) >= size:
            return f"{ns / size:.2f} {unit}"
    return f"{ns:.0f} ns"


def percent(part: float | None) -> str:
    """Render a fraction as percent with one decimal."""
    return "–" if part is None else f"{100 * part:.1f} %"


def percents(low: float, high: float) -> str:
    """Render an interval of fractions as percent, e.g. ``35.4–36.7 %``; one number where both read the same."""
    return f"{_ends(*('0' if end == 0 else f'{100 * end:.1f}' for end in (low, high)))} %"


def interval(low: float, high: float) -> str:
    """Render an interval of times, ns, in the unit of its end, e.g. ``825–856 us``: it is an estimate.

    Three digits tell, and one number where both ends are within two percent.
    """
    most = max(abs(low), abs(high))
    unit, size = next(((unit, size) for unit, size in _SIZES if most >= size), ("ns", 1))
    decimals = 0 if size == 1 or most >= 100 * size else 1 if most >= 10 * size else 2
    low = high if abs(high - low) <= _CLOSE * abs(high) else low
    return f"{_ends(*('0' if end == 0 else f'{end / size:.{decimals}f}' for end in (low, high)))} {unit}"


def _ends(low: str, high: str) -> str:
    """Put the ends of an interval together: one where they read alike, and no dash before or behind a sign."""
    if low == high:
        return high
    return f"{low} to {high}" if "-" in low + high else f"{low}–{high}"


def change(ns: float | None) -> str:
    """Render a difference of two times with its sign, e.g. ``+1.20 ms``."""
    return f"+{duration(ns)}" if ns is not None and ns > 0 else duration(ns)


def changes(low: float, high: float) -> str:
    """Render an interval of differences of times, e.g. ``-0.10 to +1.20 ms``; of equal ends one."""
    if low == high:
        return change(low)
    unit = next((unit for unit in ("s", "ms", "us") if max(abs(low), abs(high)) >= NS_PER_UNIT[unit]), "ns")
    ends = (_signed(end / NS_PER_UNIT[unit], 0 if unit == "ns" else 2) for end in (low, high))
    return f"{' to '.join(ends)} {unit}"


def _signed(value: float, decimals: int) -> str:
    """Render a number with its sign; nothing has none."""
    return f"{value:+,.{decimals}f}".replace(",", " ") if round(value, decimals) else "0"


def percent_change(part: float | None) -> str:
    """Render a relative difference, e.g. ``+4.2 %``."""
    return "–" if part is None else f"{_signed(100 * part, 1)} %"


def percent_changes(low: float, high: float) -> str:
    """Render an interval of differences in percent, e.g. ``-0.5 to +4.2 %``."""
    return f"{_signed(100 * low, 1)} to {_signed(100 * high, 1)} %"


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


_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_text(size: float) -> str:
    """Render a number of bytes, e.g. ``1.5 MiB``."""
    power = 0
    if size < 0:
        return f"-{byte_text(-size)}"
    while size >= 1024 and power < len(_BYTE_UNITS) - 1:
        size /= 1024
        power += 1
    return f"{size:.0f} B" if not power else f"{size:.1f} {_BYTE_UNITS[power]}"


def mib_text(size: float | None) -> str:
    """Render bytes as MiB with three decimals, in which the allocator's 512 bytes show, e.g. ``10282.749 MiB``."""
    return "–" if size is None else f"{size / MIB:.3f} MiB"


def mib_interval(low: float, high: float) -> str:
    """Render an interval of bytes as MiB; one number where both read the same."""
    return f"{_ends(*(mib_text(end).removesuffix(' MiB') for end in (low, high)))} MiB"


def byte_interval(low: float, high: float) -> str:
    """Render an interval of bytes in the unit of its end; one number where both read the same."""
    unit = byte_text(max(abs(low), abs(high))).split()[1]
    size, decimals = 1 << 10 * _BYTE_UNITS.index(unit), 0 if unit == "B" else 1
    return f"{_ends(*('0' if end == 0 else f'{end / size:.{decimals}f}' for end in (low, high)))} {unit}"


def flop_rate(value: float) -> str:
    """Render FLOP per second, e.g. ``270.3 TFLOPS``."""
    return f"{grouped(value / TERA, 1)} TFLOPS"


def grouped(value: float, decimals: int = 0) -> str:
    """Render a number with thin separators and a fixed number of decimals."""
    return f"{value:,.{decimals}f}".replace(",", " ")


def ms(ns: float) -> str:
    """Render nanoseconds as milliseconds without their unit, which a table has in its header."""
    return grouped(ns / NS_PER_MS, 3)


def us_change(ns: float) -> str:
    """Render a difference of times as microseconds with its sign, to the nanosecond."""
    return f"{'+' if ns > 0 else ''}{grouped(ns / NS_PER_US, 3)}"


#: Units of whole columns: the sign for their header, and how a cell is shown below it.
COLUMN_UNITS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "count": ("", lambda value: count(int(value))),
    "ms": ("ms", ms),
    "duration": ("", ms),
    "us": ("µs", lambda value: grouped(value / NS_PER_US, 3)),
    "bare_us": ("", lambda value: grouped(value / NS_PER_US, 3)),  # where the title says it
    "us_change": ("µs", us_change),
    "bare_us_change": ("", us_change),
    "core_ms": ("core·ms", ms),
    "mib": ("MiB", lambda value: f"{value / MIB:.3f}"),
    "bare_mib": ("", lambda value: f"{value / MIB:.3f}"),
    "tflop": ("TFLOP", lambda value: grouped(value / TERA, 3)),
    "tflops": ("TFLOPS", lambda value: grouped(value / TERA, 1)),
    "percent": ("%", lambda value: f"{100 * value:.1f}"),
    "share": ("", lambda value: f"{100 * value:.1f}"),  # of what: the header says it
    "number": ("%", lambda value: f"{value:.1f}"),
    "tenth": ("%", lambda value: f"{10 * value:.1f}"),
    "plain": ("", lambda value: grouped(value, 3).rstrip("0").rstrip(".")),
}

#: Parts of a template's arguments that say nothing about what a kernel does.
_PLAIN: Final = frozenset(
    re.split(
        " ",
        "bool char short int long float double half void unsigned signed const true false auto size_t Array Half "
        "BFloat16 OffsetCalculator TrivialOffsetCalculator TensorListMetadata OpaqueType TensorInfo LoadWithoutCast "
        "StoreWithoutCast operator std at c10 detail",
    )
)
_CPP: Final = re.compile(r"^(?:void |[\w:]*::)|^\w+<")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)*")
_TOO_LONG: Final = 100


def in_rows(numbers: Iterable[int]) -> list[str]:
    """Return numbers in order, those in a row by their first and last: ``["0-3", "7"]``."""
    rows: list[list[int]] = []
    for n in sorted(numbers):
        if rows and n == rows[-1][1] + 1:
            rows[-1][1] = n
        else:
            rows.append([n, n])
    return [str(low) if low == high else f"{low}-{high}" for low, high in rows]


def short_name(name: str) -> str:
    """Return a C++ kernel's function, with what is innermost in its template; other names stay as they are."""
    return next(forms(name))


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return short names for different names, of which no two are alike: where they would be, with what differs."""
    short: dict[str, str] = {}
    open_ = [(name, forms(name)) for name in dict.fromkeys(names)]
    while open_:
        tried = [(name, left, next(left)) for name, left in open_]
        seen = Counter([*short.values(), *(form for _, _, form in tried)])
        short |= {name: form for name, _, form in tried if seen[form] == 1 or form == name}
        open_ = [(name, left) for name, left, _ in tried if name not in short]
    return short


def forms(name: str) -> Iterator[str]:
    """Yield a name's forms, from the shortest to the whole name; … stands for what is left out."""
    if _CPP.match(name) and ("<" in name or "(" in name):
        bare = _without_groups(name.removeprefix("void ").replace("(anonymous namespace)::", ""))
        function, _, arguments = bare.partition("<")
        base = function.strip().rsplit("::", 1)[-1]
        if base:
            named = _named(arguments)
            inner = max(named, key=lambda part: part[0])[1] if named else ""
            yield f"{base}<…{inner}…>" if inner else f"{base}<…>" if arguments else base
            yield f"{base}<…{'…'.join(part for _, part in named)}…>" if named else base
            numbers = re.match(r"[\d, ]*", arguments)
            if inner and numbers and numbers.group():
                yield f"{base}<{numbers.group().rstrip(', ')}…{inner}…>"
            whole = f"{function.strip().removeprefix('at::native::')}<{arguments}"
            if len(whole) <= _TOO_LONG:
                yield whole
            from hashlib import sha256  # seldom needed, and --help would load it

            yield f"{base}<…{inner}…> #{sha256(name.encode()).hexdigest()[:4]}"
    yield name


def _without_groups(name: str) -> str:
    """Leave out everything in parentheses and braces: arguments of functions, and lambdas."""
    kept, depth = [], 0
    for sign in name:
        depth += sign in "({"
        if not depth:
            kept.append(sign)
        depth -= sign in ")}"
    bare = re.sub(r"[\s:]*\b(?:operator|const)\b", "", "".join(kept))
    return re.sub(r"(?:::)+(?=[,>\s]|$)", "", bare).strip()


def _named(arguments: str) -> list[tuple[int, str]]:
    """Return what a template's arguments name, each with how deep it lies; the first of equally deep ones counts."""
    found, depth, at = [], 0, 0
    for match in _IDENTIFIER.finditer(arguments):
        between = arguments[at : match.start()]
        depth += between.count("<") - between.count(">")
        at = match.end()
        part = match.group().rsplit("::", 1)[-1]
        if part not in _PLAIN and not arguments[: match.start()][-1:].isdigit():
            found.append((depth, part))
    return found

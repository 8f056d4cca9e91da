"""The house in figures, from its files alone: ``make house``. tests/test_architecture.py holds some of them.

An *arrow* leads from one room to another whose files it imports; *named once* is a private function of a module that
one place uses; an *import* is a statement ``from npuperf... import ...``, wherever it stands.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "npuperf"
#: It runs inside the user's program and is no part of the floors.
AGENT = "agent"


class File(NamedTuple):
    """A file of the package; ``name`` as imports have it, ``room`` the folder below npuperf, empty for none."""

    path: Path
    name: str
    room: str
    text: str
    nodes: tuple[ast.AST, ...]


@cache
def files() -> tuple[File, ...]:
    """Every Python file of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        room = AGENT if AGENT in place.parts else place.parts[0] if len(place.parts) > 1 else ""
        text = path.read_text("utf-8")
        found.append(File(path, name, room, text, (*ast.walk(ast.parse(text)),)))
    return (*found,)


def imports(file: File) -> list[ast.ImportFrom]:
    """Statements that import something of ours."""
    froms = (n for n in file.nodes if isinstance(n, ast.ImportFrom))
    return [n for n in froms if (n.module or "").split(".")[0] == "npuperf"]


def imported(file: File) -> set[str]:
    """Names of the files that a file imports, also where a function does when it is called."""
    known = {f.name for f in files()}
    named = {(f"{n.module}.{a.name}", str(n.module)) for n in imports(file) for a in n.names}
    return {full if full in known else module for full, module in named} - {file.name, "npuperf"}


def check_circles() -> None:
    """Raise graphlib.CycleError, which names them, where files import each other in a circle."""
    TopologicalSorter({f.name: imported(f) for f in files()}).prepare()


def arrows() -> set[tuple[str, str]]:
    """From which room to which others something is imported."""
    rooms = {f.name: f.room for f in files()}
    found = {(f.room, rooms.get(name, "")) for f in files() for name in imported(f)}
    return {(a, b) for a, b in found if a and b and a != b}


def function_lines() -> list[tuple[int, str]]:
    """Lines of every function, and where it is, the longest last."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    all_ = [(f, n) for f in files() for n in f.nodes if isinstance(n, kinds)]
    return sorted((int(n.end_lineno or 0) - n.lineno + 1, f"{f.name}.{n.name}") for f, n in all_)


def named_once() -> tuple[int, int]:
    """How many private functions of modules are named in one other place at most, and how many there are."""
    once = total = 0
    for f in files():
        tops = [n.name for n in ast.parse(f.text).body if isinstance(n, ast.FunctionDef) and n.name[0] == "_"]
        total += len(tops)
        once += sum(len(re.findall(rf"\b{name}\b", f.text)) <= 2 for name in tops)
    return once, total


def lines_below(folder: Path, pattern: str, without: str = "") -> int:
    """Lines of all files below a folder whose names match."""
    paths = (p for p in folder.rglob(pattern) if not without or without not in p.parts)
    return sum(p.read_text("utf-8").count("\n") for p in paths)


def main() -> None:
    """Print the figures."""
    check_circles()
    lengths = [n for n, _ in function_lines()]
    once, private = named_once()
    rooms = {f.room for f in files()} - {"", AGENT}
    rows = {
        "rooms": len(rooms),
        "arrows between rooms": len({(a, b) for a, b in arrows() if AGENT not in (a, b)}),
        "circles of files": 0,
        "files": len(files()),
        "lines of Python": lines_below(PACKAGE, "*.py"),
        "lines of tests": lines_below(ROOT / "tests", "*.py", "cann_stub"),
        "files of C, and their lines": f"{len([*PACKAGE.rglob('*.c')])}, {lines_below(PACKAGE, '*.c'):,}",
        "functions": len(lengths),
        "their lines: median, 95 of 100, longest": f"{lengths[len(lengths) // 2]}, "
        f"{lengths[int(len(lengths) * 0.95)]}, {lengths[-1]} ({function_lines()[-1][1]})",
        "private functions named once": f"{once / private:.0%}",
        "imports a file": round(sum(len(imports(f)) for f in files()) / len(files()), 1),
        "replace(": sum(len(re.findall(r"(?:structs\.|(?<![.\w]))replace\(", f.text)) for f in files()),
    }
    for what, value in rows.items():
        print(f"{what:<42}{value:,}" if isinstance(value, int) else f"{what:<42}{value}")


if __name__ == "__main__":
    main()

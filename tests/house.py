"""The house in figures, from its files alone: ``make house`` prints them and writes them into docs/architecture.md.
tests/test_architecture.py holds some of them, and that the page is not far behind.

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
PAGE = ROOT / "docs" / "architecture.md"
#: It runs inside the user's program and is no part of the floors.
AGENT = "agent"


class File(NamedTuple):
    """A file of the package; ``name`` as imports have it, ``room`` the folder below npuperf, empty for none."""

    path: Path
    name: str
    room: str
    text: str
    tree: ast.Module
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
        tree = ast.parse(text)
        found.append(File(path, name, room, text, tree, (*ast.walk(tree),)))
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


def figures() -> dict[str, float]:
    """What is to be held in the head, in figures."""
    lengths = [n for n, _ in function_lines()]
    once, private = named_once()
    return {
        "rooms": len({f.room for f in files()} - {"", AGENT}),
        "arrows between rooms": len({(a, b) for a, b in arrows() if AGENT not in (a, b)}),
        "files of Python": len(files()),
        "lines of Python": lines_below(PACKAGE, "*.py"),
        "lines of tests": lines_below(ROOT / "tests", "*.py", "cann_stub"),
        "files of C": len([*PACKAGE.rglob("*.c")]),
        "lines of C": lines_below(PACKAGE, "*.c"),
        "functions": len(lengths),
        "lines of a function: median": lengths[len(lengths) // 2],
        "… 95 of 100 have at most": lengths[int(len(lengths) * 0.95)],
        "… the longest": lengths[-1],
        "private functions named once, %": round(100 * once / private),
        "imports from the house, per file": round(sum(len(imports(f)) for f in files()) / len(files()), 1),
        "`replace(`": sum(len(re.findall(r"(?:structs\.|(?<![.\w]))replace\(", f.text)) for f in files()),
    }


def table(found: dict[str, float]) -> str:
    """Figures as the page shows them."""
    return "\n".join(["| what | now |", "|---|---|", *(f"| {what} | {value:,} |" for what, value in found.items())])


def main() -> None:
    """Print the figures, and write them into the page."""
    check_circles()
    shown = table(figures())
    print(shown)
    page = PAGE.read_text("utf-8")
    begin, end = "<!-- figures -->\n", "\n<!-- end of figures -->"
    before, _, rest = page.partition(begin)
    PAGE.write_text(before + begin + shown + end + rest.partition(end)[2], "utf-8")


if __name__ == "__main__":
    main()

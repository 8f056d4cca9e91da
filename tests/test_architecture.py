"""The layout of DESIGN: imports only go down, children start in one place, nothing slow in hot paths."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "npuperf"
LEVELS = [
    {"errors", "units", "agent"},
    {"model", "process", "files", "cann"},
    {"readers", "analyze", "profile", "tune"},
    {"advise", "engine"},
    {"scopes", "device", "pipeline", "api", "proof", "record", "savings", "tuning", "verify", "render"},
    {"cli"},
]
#: Parts of one level that must not know each other.
STRANGERS = {"readers", "analyze", "profile", "tune"}


def modules() -> list[tuple[str, Path, ast.Module]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.append((part, path, ast.parse(path.read_text("utf-8"))))
    assert len(found) > 40
    return found


def imported_parts(tree: ast.Module) -> set[str]:
    names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {name.split(".")[1] for name in names if name.startswith("npuperf.")}


def level(part: str) -> int:
    (found,) = [i for i, parts in enumerate(LEVELS) if part in parts]
    return found


def test_imports_only_go_down() -> None:
    for part, path, tree in modules():
        if part in ("__init__", "__main__"):
            continue
        for other in imported_parts(tree):
            assert level(other) <= level(part), (path, other)
            if part in STRANGERS and other in STRANGERS:
                assert other == part, (path, other)


def test_children_start_in_one_place() -> None:
    for part, path, tree in modules():
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        alone = part == "process" or path.name == "relay.py"  # which is a program of its own
        assert alone or not names & {"subprocess", "multiprocessing"}, path


def test_no_row_by_row_frames_and_no_eval() -> None:
    banned_calls = {"iterrows", "itertuples", "apply", "applymap"}
    for _, path, tree in modules():
        calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
        attributes = {f.attr for f in calls if isinstance(f, ast.Attribute)}
        plain = {f.id for f in calls if isinstance(f, ast.Name)}
        assert not attributes & banned_calls, path
        assert not plain & {"eval", "exec"}, path


def test_only_the_api_uses_pandas_and_nothing_uses_torch() -> None:
    for part, path, tree in modules():
        names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert "pandas" not in names or part == "api", path
        assert part == "agent" or not names & {"torch", "torch_npu"}, path


def test_the_agent_knows_nothing_of_npuperf() -> None:
    """It is loaded by itself, into programs whose Python may not have npuperf."""
    for part, path, tree in modules():
        if part == "agent":
            assert not imported_parts(tree), path
        else:
            assert "agent" not in imported_parts(tree), path

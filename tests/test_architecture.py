"""The house is as docs/architecture.md draws it: imports only go down, and what must lie in one place does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import house
import pytest

ROOT, PACKAGE = house.ROOT, house.PACKAGE
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
#: Names that a file may have in several rooms: every verb has them.
SHARED = {"__init__", "run", "request"}
#: A room never knows these, although they lie below it.
PURE = ("device", "job", "advise")
NEVER = {
    **{room: {"readers"} for room in PURE},
    "record": {"device", "job", "advise", "analyze", "against", "show"},
    "tune": {"show"},
}


def picture() -> list[str]:
    """The rooms from the top down."""
    (drawn,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    return [re.split(r"/ +", line)[0] for line in drawn.splitlines()]


ROOMS = picture()
#: Where JSON of others, or a JSON Schema, is what is handed over.
FOREIGN = {
    ("notes", "read_note"),
    ("notes", "read_object"),
    ("notes", "read_yaml"),
    ("schema", "schema_of"),
    ("trace", "trace"),
}


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    return [(f.room or f.path.stem, f.path, f.tree) for f in house.files()]


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return next(f.nodes for f in house.files() if f.tree is tree)


def imported_names(tree: ast.Module) -> list[str]:
    names = [n.module or "" for n in nodes(tree) if isinstance(n, ast.ImportFrom)]
    return [*names, *(a.name for n in nodes(tree) if isinstance(n, ast.Import) for a in n.names)]


def imported_parts(tree: ast.Module) -> set[str]:
    return {name.split(".")[1] for name in imported_names(tree) if name.startswith("npuperf.")}


def floor(room: str) -> int:
    return -ROOMS.index(room)


def test_the_picture_has_every_room_once_and_nothing_lies_loose() -> None:
    there = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    assert sorted(ROOMS) == sorted(there)
    assert {p.stem for p in PACKAGE.glob("*.py")} == {"__init__", "__main__"}


def test_imports_only_go_down() -> None:
    for part, path, tree in modules():
        if part in ("__init__", "__main__", "agent"):
            continue
        for other in imported_parts(tree) - {part}:
            assert floor(other) < floor(part), (path, other)
            assert other not in NEVER.get(part, ()), (path, other)


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not even where a function does, when it is called: whoever reads one of them has to read them all."""
    house.check_circles()


def test_the_house_stays_small() -> None:
    """Bounds, not aims: ``make house`` prints where it is."""
    assert len({(a, b) for a, b in house.arrows() if house.AGENT not in (a, b)}) <= 60
    assert len(house.files()) <= 263
    longest = house.function_lines()[-1]
    assert longest[0] <= 240, longest


def test_the_page_knows_how_large_the_house_is() -> None:
    """Within a tenth, or two: ``make house`` writes them anew."""
    rows = re.findall(r"^\| (.+) \| ([\d,.]+) \|$", PAGE.split("<!-- figures -->")[1], re.MULTILINE)
    found = house.figures()
    assert [what for what, _ in rows] == [*found]
    for what, shown in rows:
        assert float(shown.replace(",", "")) == pytest.approx(found[what], rel=0.1, abs=2), what


def test_file_names_are_unique() -> None:
    names = Counter(path.stem for part, path, _ in modules() if part != "agent" and path.stem not in SHARED)
    assert {name for name, n in names.items() if n > 1} == set()


def test_class_names_are_unique() -> None:
    """Of public classes; a reader of a traceback or a search should not have to ask which one is meant."""
    names = Counter(
        n.name
        for part, _, tree in modules()
        if part != "agent"
        for n in tree.body
        if isinstance(n, ast.ClassDef) and not n.name.startswith("_")
    )
    assert {name for name, n in names.items() if n > 1} == set()


def test_nothing_untyped_passes_between_layers() -> None:
    """``dict[str, Any]`` stays inside of the module where a foreign format is taken apart."""
    for part, path, tree in modules():
        if part in ("agent", "cli"):  # the agent knows no types of ours; click hands parameters over so
            continue
        for f in (n for n in nodes(tree) if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")):
            annotations = [a.annotation for a in (*f.args.args, *f.args.kwonlyargs) if a.annotation] + [f.returns]
            written = " ".join(ast.unparse(a) for a in annotations if a is not None)
            if (path.stem, f.name) in FOREIGN:
                continue
            assert "[str, Any]" not in written, (path, f.name)


def test_children_start_in_one_place() -> None:
    for _part, path, tree in modules():
        names = {a.name for n in nodes(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in nodes(tree) if isinstance(n, ast.ImportFrom) and n.module}
        alone = path.name == "process.py" or path.name == "relay.py"  # which is a program of its own
        assert alone or not names & {"subprocess", "multiprocessing"}, path


def test_text_for_a_target_is_made_in_one_place() -> None:
    """Rich's own text would take escape codes of a name for its own; of commands ``reproduce.sh`` has no other way."""
    for _part, path, tree in modules():
        names = {n.module for n in nodes(tree) if isinstance(n, ast.ImportFrom) and n.module}
        assert "rich.text" not in names or path.name == "terminal.py", path
        names |= {a.name for n in nodes(tree) if isinstance(n, ast.Import) for a in n.names}
        assert "shlex" not in names or path.name in ("escape.py", "tuning_plan.py"), path


def test_no_row_by_row_frames_and_no_eval() -> None:
    banned_calls = {"iterrows", "itertuples", "apply", "applymap"}
    for _, path, tree in modules():
        calls = [n.func for n in nodes(tree) if isinstance(n, ast.Call)]
        attributes = {f.attr for f in calls if isinstance(f, ast.Attribute)}
        plain = {f.id for f in calls if isinstance(f, ast.Name)}
        assert not attributes & banned_calls, path
        assert not plain & {"eval", "exec"}, path


def test_only_the_api_uses_pandas_and_nothing_uses_torch() -> None:
    for part, path, tree in modules():
        names = {a.name.split(".")[0] for n in nodes(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {(n.module or "").split(".")[0] for n in nodes(tree) if isinstance(n, ast.ImportFrom)}
        assert "pandas" not in names or path.name == "api.py", path
        assert part == "agent" or not names & {"torch", "torch_npu"}, path


def test_the_agent_knows_nothing_of_npuperf() -> None:
    """It is loaded by itself, into programs whose Python may not have npuperf."""
    for part, path, tree in modules():
        if part == "agent":
            assert not imported_parts(tree), path
        else:
            assert not any("agent" in name for name in imported_names(tree)), path


def test_places_to_add_something_exist() -> None:
    """Every file and name that the page's table points to."""
    rows = PAGE.split("## Where do I add")[1]
    files = re.findall(r"`(npuperf/[\w/.]+?)`", rows)
    assert len(files) >= 8
    for name in files:
        assert (ROOT / name).exists(), name
    for name, file in re.findall(r"`(\w+)` in `(npuperf/[\w/.]+\.py)`", rows):
        assert re.search(rf"^(def |class )?{name}\b", (ROOT / file).read_text("utf-8"), re.MULTILINE), (file, name)


#: What reads without the door, and why it may.
OWN_READING = {
    "record/agent": "runs inside the user's program and knows nothing of npuperf",
    "base/cache.py": "own entries, looked at before they are opened",
    "base/trust.py": "the user's own secret",
    "base/cann.py": "lies below the door, and reads where CANN is installed",
    "base/files.py": "the door itself",
    "advise/rule.py": "ships with the package",
    "against/anonymous.py": "ships with the package",
    "show/language.py": "ships with the package",
    "readers/unpickle.py": "a process of its own, started once the path has passed the door",
}


def reads(call: ast.Call) -> bool:
    """Tell whether a call opens a file for reading, or reads one as a whole."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("read_text", "read_bytes", "FileIO"):
        return True
    if name != "open":
        return False
    of_path = isinstance(call.func, ast.Attribute)  # else the mode is second
    given = [*call.args[0 if of_path else 1 :], *(k.value for k in call.keywords if k.arg == "mode")]
    modes = [value.value for value in given[:1] if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    text = any(k.arg in ("encoding", "errors", "newline") for k in call.keywords)
    return "r" in modes[0] and "+" not in modes[0] if modes else text or not of_path


def test_files_of_others_are_read_through_the_door() -> None:
    """A pipe named like an input would be waited for, and what the system says would be an internal error."""
    found = []
    for _, path, tree in modules():
        place = path.relative_to(PACKAGE)
        if not place.as_posix().startswith((*OWN_READING,)):
            found += [f"{place}:{n.lineno}" for n in nodes(tree) if isinstance(n, ast.Call) and reads(n)]
    assert not found, "read with npuperf.base.files: open_input, open_lines, read_input, or npuperf.base.notes"


def test_reading_is_recognised() -> None:
    def tells(code: str) -> bool:
        (call,) = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call)]
        return reads(call)

    for code in ("open(p)", "open(p, 'rb')", "p.open('rb')", "p.open(encoding='x')", "p.read_text()", "io.FileIO(p)"):
        assert tells(code), code
    for code in (
        "p.open('wb')",
        "p.open('a', encoding='x')",
        "open(p, 'w')",
        "question.open()",
        "p.open('r+b')",
        "engine.open(1, 2)",
    ):
        assert not tells(code), code


def test_pages_name_files_that_are_there() -> None:
    pages = [(page, (ROOT / "docs" / f"{page}.md").read_text("utf-8")) for page in ("architecture", "decisions")]
    places = [(page, name) for page, said in pages for name in re.findall(r"\b[a-z]+/\w+\.(?:py|c|yaml)\b", said)]
    named = {(page, name) for page, name in places if name.split("/")[0] in ROOMS}
    assert len(named) > 20
    assert {(page, name) for page, name in named if not (PACKAGE / name).is_file()} == set()

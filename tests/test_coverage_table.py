"""docs/coverage.md: every place that it names is there, its counts are right, and no name of the pages is missing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from npuperf.model.columns import pmu_name

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "coverage.md").read_text("utf-8")
SEEDS = ROOT.parent / "shared" / "seeds"
VERBS = ("profile", "analyze", "tune")
#: The pages in their order, by their numbers as seeds.
PAGES = ("Core limits per stream", "SuperKernel scopes", "Profiling end to end", "Dynamic shapes on the host",
         "Tuning with AOE", "AOE beyond its page")  # fmt: skip
NOT_HANDLED = "not handled: "
#: Names in the pages that are nobody's option or field: of the examples, and of the site.
EXAMPLES = {"graph-engine", "model_train", "custom_tune_bank", "layer_10", "layer_8", "res4a_branch1", "Softmax_OPAT_0"}


def rows(page: str) -> list[tuple[str, str]]:
    """What a page has, and where."""
    table = TEXT.split(f"\n## {page}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)
    return [(what, where) for what, where in found if not what.startswith("what the ")]


ENTRIES = [(page, what, where) for page in PAGES for what, where in rows(page)]


@cache
def help_of(verb: str) -> set[str]:
    done = subprocess.run([sys.executable, "-m", "npuperf", verb, "--help"], cwd=ROOT, capture_output=True, text=True,
                          check=True)  # fmt: skip
    return set(re.findall(r"--[a-z][a-z0-9-]*", done.stdout))


@cache
def names_in(file: str) -> set[str]:
    """The functions, classes and constants that a module has at its top."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def fields_in(file: str, name: str) -> set[str]:
    (node,) = (n for n in ast.parse((ROOT / file).read_text("utf-8")).body if getattr(n, "name", None) == name)
    assert isinstance(node, ast.ClassDef)
    return {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}


def places(where: str) -> list[str]:
    """The files and options that a cell names."""
    quoted = re.findall(r"`([^`]+)`", where)
    return [q for q in quoted if q.startswith("npuperf/") or q.split(" ")[0] in VERBS]


@pytest.mark.parametrize(("page", "what", "where"), ENTRIES, ids=lambda text: text[:40])
def test_every_entry_is_handled_in_a_place_that_is_there(page: str, what: str, where: str) -> None:
    if where.startswith(NOT_HANDLED):
        assert len(where) > len(NOT_HANDLED) + 20, "why not?"
    else:
        assert places(where), "no place is named"
    for place in places(where):
        if not place.startswith("npuperf/"):
            verb, option = place.split(" ")
            assert option in help_of(verb), place
            continue
        file, _, name = place.partition(":")
        assert (ROOT / file).is_file(), place
        assert not name or name in names_in(file), place


def test_words_that_are_quoted_are_said_there() -> None:
    """A rule, a check or a step by its name: it stands in one of the files beside it."""
    seen = 0
    for _, _, where in ENTRIES:
        if where.startswith(NOT_HANDLED):
            continue
        files = [(ROOT / place.partition(":")[0]).read_text("utf-8") for place in places(where) if "/" in place]
        for word in re.findall(r'"([^"]+)"', where):
            assert any(f'"{word}"' in text for text in files), (word, where)
            seen += 1
    assert seen > 10


def test_every_counter_of_the_page_is_read() -> None:
    """The columns of the six sets of hardware counters, as the page spells them."""
    columns = [
        what.removeprefix("its columns ").split(", ") for what, _ in rows(PAGES[2]) if what.startswith("its col")
    ]
    assert [len(names) for names in columns] == [6, 7, 8, 8, 9, 4]
    assert [name for names in columns for name in names if pmu_name(name) is None] == []


def test_fields_that_are_named_are_in_the_documents() -> None:
    seen = 0
    for _, _, where in ENTRIES:
        found = re.fullmatch(r"(`.+`) of `(npuperf/model/\w+\.py):(\w+)`.*", where)
        if found:
            fields = {field.split("[]")[0] for field in re.findall(r"`(\w+)`", found[1])}
            assert fields <= fields_in(found[2], found[3]), where
            seen += 1
    assert seen > 10


def test_the_counts_are_those_of_the_tables() -> None:
    said = {
        page: (int(all_), int(none)) for page, all_, none in re.findall(r"^\| (.+) \| (\d+) \| (\d+) \|$", TEXT, re.M)
    }
    counted = {page: (len(rows(page)), sum(where.startswith(NOT_HANDLED) for _, where in rows(page))) for page in PAGES}
    assert said == counted


def test_nothing_is_listed_twice() -> None:
    for page in PAGES:
        listed = [what for what, _ in rows(page)]
        assert len(listed) == len(set(listed)), page


@pytest.mark.parametrize(("number", "page"), list(enumerate(PAGES[:5])), ids=lambda part: str(part)[:20])
def test_no_name_of_a_page_is_missing(number: int, page: str) -> None:
    """Every name with an underscore or a hyphen that stands in the page outside of its code samples."""
    found = sorted(SEEDS.glob(f"{number:03}_*.txt"))
    if not found:
        pytest.skip("the vendor's pages are not here")
    prose = "\n".join(line for line in found[0].read_text("utf-8").splitlines() if not line.startswith("1 2 3"))
    names = set(re.findall(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+", prose)) - EXAMPLES
    listed = TEXT.split(f"\n## {page}\n")[1].split("\n## ")[0].replace("set_env.sh", "set_env")
    assert len(names) > 0 and {name for name in names if name not in listed} == set()

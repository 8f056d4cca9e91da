"""The pages in Chinese keep step with the English ones: the same commands, names, numbers, tables and links."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "zh"
INDEX = GUIDE / "README.md"
TWINS = {
    ROOT / "README.zh-CN.md": ROOT / "README.md",
    **{page: ROOT / "docs" / page.name for page in sorted(GUIDE.glob("*.md")) if page != INDEX},
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n|((?:^    [^\n]*\n)+)", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:\$ |npuperf |pip |python|git |dask |srun |rsync |aoe )")
SCREEN = re.compile(
    r"<!-- screen: ([^|\n]+?) \| first (\d+) lines -->\n```text\n(.*?)```\n<!-- end of screen -->", re.DOTALL
)
COMMENT = re.compile(r"<!--.*?-->")
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Section(NamedTuple):
    """What one section of a page has that does not depend on its language."""

    level: int
    names: Counter[str]
    """Code in sentences and tables, which is typed or looked for as it stands."""
    numbers: Counter[str]
    tables: list[int]
    """Rows of each table, head and ruler included."""
    bold: int


def without_comment(line: str) -> str:
    return re.split(r"\s+# |\s+$", line, maxsplit=1)[0]


def commands(text: str) -> list[str]:
    """The lines of a page's blocks of code that are typed or stored, without comments, in order.

    Screens, formulas and pictures of folders are for reading: of them only the lines that are commands count.
    """
    lines: list[str] = []
    for language, fenced, indented in BLOCK.findall(text):
        for line in (fenced or indented).splitlines():
            if language not in ("", "text") or (language == "" and COMMAND.match(line.strip())):
                lines.append(without_comment(line))
    return lines


def kinds_of_blocks(text: str) -> list[str]:
    return [language or "plain" for language, _, _ in BLOCK.findall(text)]


def unnamed_screens(text: str) -> list[str]:
    """Screens that no command of the page makes: the English page's test holds them against the program."""
    return list(re.findall(r"^```text\n(npuperf .*?)^```", SCREEN.sub("", text), re.DOTALL | re.MULTILINE))


def row_counts(text: str) -> list[int]:
    return [len(table.splitlines()) for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def sections(text: str) -> list[Section]:
    prose = COMMENT.sub("", BLOCK.sub("", text))
    found = []
    for part in re.split(r"^(?=#+ )", prose, flags=re.MULTILINE)[1:]:
        plain = re.sub(r"`[^`]*`", "", LINK.sub("]", part))
        found.append(
            Section(
                level=len(part) - len(part.lstrip("#")),
                names=Counter(" ".join(name.split()) for name in re.findall(r"`([^`]+)`", part)),
                numbers=Counter(re.findall(r"\d+(?:\.\d+)*", plain)),
                tables=row_counts(part),
                bold=plain.count("**"),
            )
        )
    return found


def targets(page: Path) -> set[Path]:
    """The files that a page links to; of those that are there in both languages the English one."""
    links = {link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8")) if "://" not in link}
    files = {(page.parent / link).resolve() for link in links if link}
    pictures = {file: file.with_name(file.name.replace(".zh.", ".")) for file in files}
    return {TWINS.get(file, pictures[file]) for file in files}


def anchors(text: str) -> set[str]:
    """What can stand after `#` in a link to a page, as GitHub and GitLab make it of the headings."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows_of_index(title: str | None) -> list[str]:
    """The pages that the index lists under a heading, or before the first."""
    parts = INDEX.read_text("utf-8").split("\n## ")
    (part,) = [part for part in parts[1:] if part.startswith(title)] if title else parts[:1]
    return re.findall(r"^\| \[[\w.-]+\]\(([\w./-]+)\)", part, re.MULTILINE)


def pairs() -> list[object]:
    return [pytest.param(page, twin, id=page.name) for page, twin in TWINS.items()]


def test_every_english_page_is_translated_or_listed_as_not() -> None:
    """Whoever adds a page decides: a file in docs/zh, or a row in the second table of its README.md."""
    english = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    translated, others = rows_of_index(None), rows_of_index("只有英文的页面")
    assert sorted(translated) == sorted(page.name for page in GUIDE.glob("*.md") if page != INDEX)
    assert all(name.startswith("../") for name in others)
    assert sorted(translated + [name.removeprefix("../") for name in others]) == sorted(english)


@pytest.mark.parametrize(("page", "twin"), pairs())
def test_code_is_the_same(page: Path, twin: Path) -> None:
    chinese, english = page.read_text("utf-8"), twin.read_text("utf-8")
    assert commands(chinese) == commands(english)
    assert kinds_of_blocks(chinese) == kinds_of_blocks(english)
    assert unnamed_screens(chinese) == unnamed_screens(english)
    marks = r"<!-- (?!screen)([^>]*) -->"
    assert re.findall(marks, chinese) == re.findall(marks, english)


@pytest.mark.parametrize(("page", "twin"), pairs())
def test_sections_have_the_same_names_numbers_and_tables(page: Path, twin: Path) -> None:
    chinese, english = sections(page.read_text("utf-8")), sections(twin.read_text("utf-8"))
    assert [part.level for part in chinese] == [part.level for part in english]
    for number, (ours, theirs) in enumerate(zip(chinese, english, strict=True)):
        where = f"section {number} of {page.name}"
        assert ours.names - theirs.names == theirs.names - ours.names == Counter(), where
        assert ours.numbers - theirs.numbers == theirs.numbers - ours.numbers == Counter(), where
        assert ours.tables == theirs.tables, where
        assert ours.bold == theirs.bold, where


@pytest.mark.parametrize(("page", "twin"), pairs())
def test_links_are_the_same_and_lead_somewhere(page: Path, twin: Path) -> None:
    ours, theirs = targets(page), targets(twin)
    assert theirs <= ours
    assert ours - theirs <= {INDEX}
    for file in ours:
        assert file.exists(), file


@pytest.mark.parametrize("page", [*TWINS, INDEX], ids=lambda page: page.name)
def test_links_prefer_chinese_pages_and_find_their_headings(page: Path) -> None:
    english = set(TWINS.values())
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), link
        assert file not in english or file == TWINS.get(page), link
        assert not anchor or anchor in anchors(file.read_text("utf-8")), link


def test_readmes_link_to_each_other() -> None:
    for page, twin in ((ROOT / "README.md", "README.zh-CN.md"), (ROOT / "README.zh-CN.md", "README.md")):
        assert f"]({twin})" in page.read_text("utf-8").split("\n")[2]


@pytest.mark.parametrize(
    "page", [page for page in TWINS if SCREEN.search(page.read_text("utf-8"))], ids=lambda p: p.name
)
def test_screens_are_those_of_the_program(page: Path, request: pytest.FixtureRequest) -> None:
    """In the language that the command above the screen asks for."""
    text = page.read_text("utf-8")
    (found,) = SCREEN.finditer(text)
    command, count, shown = found.groups()
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    screen = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()[: int(count)])
    if request.config.getoption("--update", default=False):
        page.write_text(text[: found.start(3)] + screen + text[found.end(3) :], "utf-8")
        return
    assert screen == shown
    (original,) = SCREEN.finditer(TWINS[page].read_text("utf-8"))
    assert command.removesuffix(" --lang zh") == original.group(1)

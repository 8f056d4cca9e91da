"""Documents in which every string is an attack: in no format is it more than text, and it stays recognisable.

The documents are made by walking their types, so that a field that comes to them tomorrow is attacked, too.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import run_cli
from hostile_documents import HEADS, MARK, SEEN, TAIL, Poisoner, is_seen
from markdown_it import MarkdownIt
from rich.cells import cell_len

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.document import Document
from npuperf.model.recorded import Recorded
from npuperf.model.result import Result
from npuperf.model.schema import documents as kinds
from npuperf.show.formats import View, render
from npuperf.show.tables import tables_of

#: The same in a command to be pasted.
QUOTED = SEEN.replace("\\|", "\\\\|").replace("'", "\\x27")
#: And in JSON, which has everything but what is no text.
KEPT = TAIL.replace("\udcff", "\ufffd").replace("\ud83d", "\ufffd")
HALF = re.compile("[\ud800-\udfff]")


@lru_cache
def poisoned(name: str, head: str) -> tuple[Document, list[str]]:
    poisoner = Poisoner(head)
    return poisoner.of(kinds()[name]), poisoner.made


@pytest.fixture(params=sorted(kinds()))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def attack(kind: str) -> tuple[Document, list[str]]:
    return poisoned(kind, HEADS[0])


def views(document: Document, width: int) -> Iterator[View]:
    yield from (View(full=full, width=width) for full in (False, True))
    yield from (View(table=table.name, width=width) for table in tables_of(type(document)))


def assert_recognisable(said: str) -> int:
    """Every name is followed by what people see of it; return how many there are."""
    marks = list(MARK.finditer(said))
    for mark in marks:
        assert said.startswith((SEEN, QUOTED), mark.end()), said[mark.start() : mark.end() + len(QUOTED)]
    return len(marks)


def test_nothing_reaches_a_screen_but_text(attack: tuple[Document, list[str]]) -> None:
    document, _ = attack
    found = 0
    for view in views(document, 100_000):
        for form in ("text",) if view.table else ("text", "notes"):
            said = render(document, form, view)
            assert all(map(is_seen, said)) and not re.search(r"^\s*INJECTED", said, re.MULTILINE)
            found += assert_recognisable(said)
    assert found


def test_colours_are_the_only_commands_to_a_screen(attack: tuple[Document, list[str]]) -> None:
    document, _ = attack
    plain = render(document, "text", View(full=True, width=100_000))
    coloured = render(document, "text", View(full=True, width=100_000, colour=True))
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert "\n".join(line.rstrip() for line in without.split("\n")) == plain


def test_narrow_screens_have_nothing_unseen_and_no_line_too_long(attack: tuple[Document, list[str]]) -> None:
    document, _ = attack
    for view in views(document, 80):
        said = render(document, "text", view)
        assert all(map(is_seen, said))
        for line in said.splitlines():
            assert cell_len(line) <= 80 or SEEN in line or isinstance(document, Recorded)  # lines for stderr; code


@pytest.mark.parametrize("head", HEADS)
def test_nothing_is_a_mark_of_markdown(kind: str, head: str) -> None:
    document, _ = poisoned(kind, head)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for view in views(document, 80) if head == HEADS[0] else [View(top=1)]:
        said = render(document, "markdown", view)
        assert all(map(is_seen, said))
        assert not re.search(r"(?<!\w)@you", re.sub("^```+sh$.*?^```+$", "", said, flags=re.MULTILINE | re.DOTALL))
        for block in parser.parse(said):
            if block.type == "heading_open":
                assert block.tag in ("h1", "h2")
            elif block.type == "bullet_list_open":
                assert block.level == 0
            else:
                assert block.type not in ("html_block", "code_block", "ordered_list_open", "blockquote_open", "hr")
            if block.type == "fence":
                assert_recognisable(block.content)
                continue
            inside = {token.type for token in block.children or ()}
            assert inside <= {"text", "strong_open", "strong_close", "text_special", "softbreak"}, block.content
            shown = "".join(token.content for token in block.children or ())
            assert_recognisable(shown.replace("\u200b", ""))


def test_no_cell_is_a_formula(attack: tuple[Document, list[str]]) -> None:
    document, _ = attack
    for table in tables_of(type(document)):
        said = render(document, "csv", View(table=table.name))
        assert all(map(is_seen, said))
        names, *rows = csv.reader(io.StringIO(said))
        assert rows and said.count("\n") == len(rows) + 1
        for row in rows:
            for name, cell in zip(names, row, strict=True):
                if name.endswith("_message"):
                    assert all(map(is_kept, strings(json.loads(cell or "null"))))
                    continue
                assert cell[:1] not in ("=", "+", "@") and (not cell.startswith("-") or float(cell))
                assert_recognisable(cell)


def test_xml_has_text_alone(attack: tuple[Document, list[str]]) -> None:
    document, _ = attack
    said = render(document, "junit", View())
    assert all(map(is_seen, said))
    for case in ElementTree.fromstring(said).iter("testcase"):
        assert [case.attrib["classname"], len(case)] == ["npuperf", 1] and not len(case[0])
        texts = (case.attrib["name"], case[0].attrib.get("message", ""), case[0].text or "")
        assert sum(map(assert_recognisable, texts))


def is_kept(text: str) -> bool:
    """Tell whether names in a message, as CSV has it, are as they are."""
    return all(mark + KEPT in HALF.sub("\ufffd", text) for mark in MARK.findall(text))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*strings(key), *strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def test_json_has_every_string_as_it_is(attack: tuple[Document, list[str]]) -> None:
    document, made = attack
    said = render(document, "json", View())
    assert all(map(is_seen, said))
    found: set[str] = set()
    for text in strings(json.loads(said)):
        marks = MARK.findall(text)
        found.update(marks)
        assert all(mark + KEPT in text or mark + SEEN in text for mark in marks)  # the latter in code
    assert found == set(made)


# --- from files to every format ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with names of kernels, types, operators and frames that go on with an attack, in a folder like it."""
    folder = tmp_path_factory.mktemp("hostile") / "=m1m[red]x[/]\x1b]0;t\x07\u202e\nINJECTED @you"
    shutil.copytree(sample, folder)
    out = folder / "ASCEND_PROFILER_OUTPUT"
    table = list(csv.reader(io.StringIO((out / "kernel_details.csv").read_text(), newline="")))
    columns = [table[0].index(name) for name in ("Name", "Type", "Input Shapes", "OP State", "Input Formats")]
    for row in table[1:]:
        for column in columns:
            row[column] += f"m2m{TEXT_TAIL}"
    with (out / "kernel_details.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)
    trace = json.loads((out / "trace_view.json").read_text())
    for event in trace:
        if event.get("name", "").startswith(("aten::", "aclnn", "model.py", "train.py")):
            event["name"] += f"m3m{TEXT_TAIL}"
        for key, value in event.get("args", {}).items():
            if isinstance(value, str) and key in ("Call stack", "name"):
                event["args"][key] = value + f"m4m{TEXT_TAIL}"
    (out / "trace_view.json").write_text(json.dumps(trace))
    return folder


#: What tables can hold: they are text.
TEXT_TAIL = TAIL.replace("\udcff", "").replace("\ud83d", "").replace("\x00", "")


@pytest.fixture(scope="module")
def analyzed(hostile: Path) -> Result:
    return run(AnalyzeRequest(path=hostile))


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json"])
def test_nothing_of_hostile_files_is_more_than_text(analyzed: Result, form: str) -> None:
    for view in views(analyzed, 100_000) if form != "json" else [View(full=True)]:
        said = render(analyzed, form, view)
        assert all(map(is_seen, said)) and not re.search(r"^\W*INJECTED", said, re.MULTILINE), view
        if view.full and form != "csv":
            assert {"m1m", "m2m"} <= {*MARK.findall(said)}


@pytest.mark.parametrize(
    "more", [[], ["--format", "json"], ["--fail-on", "x=\x1b[31m"], ["--no\x1b[31m"], ["--table", "\x9b"]]
)
def test_a_command_says_nothing_that_is_not_seen(hostile: Path, more: list[str]) -> None:
    done = run_cli(["analyze", str(hostile), *more])
    assert done.stdout or done.returncode == 2
    assert all(map(is_seen, done.stdout + done.stderr))
    assert not more or "json" in more or "\\x1b" in done.stderr or "\\u009b" in done.stderr or "\\x9b" in done.stderr


@pytest.mark.parametrize("name", ["\x1b]0;t\x07[red]", "\u202egpj.exe", "a\nnpuperf: done"])
def test_a_path_that_is_not_there_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    traced = run_cli(["analyze", str(tmp_path / name), "--debug"])
    assert "Traceback" in traced.stderr and all(map(is_seen, traced.stderr))
    done = run_cli(["analyze", str(tmp_path / name)])
    assert done.returncode == 3 and all(map(is_seen, done.stderr))
    assert [line.split(":")[0] for line in done.stderr.splitlines() if not line.startswith(" ")] == ["npuperf"]

"""Chinese: no line of what a person reads holds an English sentence, and what is aligned stays so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from gettext import NullTranslations
from html.parser import HTMLParser
from pathlib import Path

import pytest
from babel.messages.extract import extract_from_file
from conftest import run_cli
from rich.cells import cell_len

import languages
from npuperf.base import messages
from npuperf.base.messages import Message, Parameter
from npuperf.model.document import Document
from npuperf.model.gist import Explanation, Gist
from npuperf.show.formats import View, render
from npuperf.show.tables import tables_of

ROOT = Path(__file__).resolve().parent.parent
#: What is put in place of a parameter that is a text: a name, a path, code.
NAME = "◇"
#: Words of English prose in a row: what makes a sentence.
SENTENCE = re.compile(r"(?<![\w/.-])[A-Za-z]?[a-z']+(?:,? (?:[a-z']{2,}|a|AI)){2,}(?![\w/=-])")
#: Code that is to be pasted, and its comments; commands.
CODE = re.compile(r"^\s*(?:#|with |for |import |from |@).*|\s# .*|`[^`]*`|npuperf \w+ [\w./-]+")
#: Profiles that others recorded, where they are.
_DATA = ROOT.parent / "shared" / "data"
SHARED = [
    path
    for path in (*_DATA.glob("msinsight/cluster4"), *_DATA.glob("msinsight/*/level0"), *_DATA.glob("msprof-analyze/*"))
    if path.is_dir()
]
ATTRIBUTES = ("aria-label", "title", "alt", "placeholder")


def sentences(said: str) -> Iterator[str]:
    for line in said.splitlines():
        for found in SENTENCE.finditer(CODE.sub("", line)):
            yield f"{found[0]!r} in {line.strip()[:200]}"


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every text that a message has as a parameter be a sign, and all that tests say: what remains is npuperf's."""
    whole, others = messages.text, said_by_tests()

    def text(
        message: Parameter, language: NullTranslations = messages.ENGLISH, names: Callable[[str], str] = str
    ) -> str:
        if isinstance(message, Message) and message.id in others:
            return NAME
        return whole(message, language, lambda name: NAME if re.search("[A-Za-z]", name) else name)

    monkeypatch.setattr(messages, "text", text)


@cache
def said_by_tests() -> set[str]:
    """Sentences that documents made for tests have, and npuperf has not."""
    said = {
        sentence if isinstance(sentence, str) else sentence[0]
        for made in ("sample_documents.py", "clusters.py", "comparisons.py")
        for _, sentence, _, _ in extract_from_file("python", ROOT / "tests" / made, languages.KEYWORDS)
    }
    return said - {m.id if isinstance(m.id, str) else m.id[0] for m in languages.catalogue()}


class Words(HTMLParser):
    """What a person reads of a page: its text, and what is said of pictures and buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.unread = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.unread += tag in ("script", "style", "code", "pre")
        self.said += [value for name, value in attributes if name in ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        self.unread -= tag in ("script", "style", "code", "pre")

    def handle_data(self, data: str) -> None:
        if not self.unread:
            self.said.append(data)


def readable(form: str, said: str) -> str:
    if form != "html":
        return said
    words = Words()
    words.feed(said)
    return "\n".join(words.said)


def views(document: Document) -> Iterator[tuple[str, View]]:
    for form in ("text", "markdown", "notes", "html"):
        for full in (False, True):
            yield form, View(full=full, language="zh", width=1000)
    for table in tables_of(type(document)):
        yield "text", View(table=table.name, language="zh", width=1000)


def test_no_report_holds_an_english_sentence(everything: dict[str, Document], nameless: None) -> None:
    found: dict[str, str] = {}
    chinese = 0
    for name, document in everything.items():
        if isinstance(document, (Gist, Explanation)):  # English: for programs, and what a rule's author wrote
            continue
        for form, view in views(document):
            said = readable(form, render(document, form, view))
            chinese += len(re.findall(r"[\u4e00-\u9fff]", said))
            for sentence in sentences(said):
                found.setdefault(sentence, f"{name}, {form} {view.table or ''}")
    assert not found, "\n".join(f"{where}: {sentence}" for sentence, where in found.items())
    assert chinese > 10_000


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_recorded_profiles_are_reported_without_english(path: Path, nameless: None) -> None:
    for more in ([], ["--full"], ["--format", "markdown"]):
        done = run_cli(["analyze", str(path), "--lang", "zh", *more])
        assert done.returncode == 0 and not list(sentences(done.stdout + done.stderr))


@pytest.mark.parametrize("english", ["where the time goes", "Only this step.", "rows or events lost"])
def test_english_would_be_found(english: str) -> None:
    assert list(sentences(f"用时 {english}，其余"))
    assert not list(sentences("npuperf analyze samples/pipeline_job --rank 2；MatMulV3 4096,1024 与 AI Core 频率"))


# --- the command line -------------------------------------------------------------------------------------------------


def npuperf(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "npuperf", *arguments]
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    return subprocess.run(
        command, env={**os.environ, "COLUMNS": "80", **environment}, cwd=ROOT, capture_output=True, encoding=encoding
    )


@pytest.mark.parametrize("verb", [[], ["profile"], ["analyze"], ["tune"]])
def test_help_is_chinese_and_as_wide_as_the_terminal(verb: list[str]) -> None:
    shown = npuperf(*verb, "--lang", "zh", "--help").stdout
    own = [line for line in shown.splitlines() if not line.startswith("    npuperf ")]
    assert not list(sentences("\n".join(own)))
    assert max(map(cell_len, own)) <= 80
    assert len(re.findall(r"[\u4e00-\u9fff]", shown)) > 100
    assert npuperf(*verb, "--help", LC_ALL="zh_CN.UTF-8").stdout.splitlines()[2:5] == shown.splitlines()[2:5]


@pytest.mark.parametrize(
    ("environment", "chinese"),
    [
        ({"LC_ALL": "zh_CN.UTF-8"}, True),
        ({"LANG": "zh_CN"}, True),
        ({"LC_MESSAGES": "zh_Hans"}, True),
        ({"LANG": "zh_TW.UTF-8"}, True),  # for which there is no catalogue of its own
        ({"NPUPERF_LANGUAGE": "zh"}, True),
        ({"NPUPERF_LANGUAGE": "en", "LC_ALL": "zh_CN.UTF-8"}, False),
        ({"LANGUAGE": "zh:en", "LANG": "en_US.UTF-8"}, True),
        ({"LANGUAGE": "zh", "LC_ALL": "C"}, False),  # as with gettext
        ({"LC_ALL": "de_DE.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ({"LC_ALL": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_the_environment_chooses(environment: dict[str, str], chinese: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANG", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = run_cli(["analyze", "/no/such/place"])
    assert (done.returncode, "没有该文件或目录" in done.stderr) == (3, chinese)


def test_a_screen_without_chinese_letters_has_english() -> None:
    plain = npuperf("analyze", "/no/such/place", LC_ALL="zh_CN.UTF-8", PYTHONIOENCODING="ascii")
    assert "no such file or folder" in plain.stderr
    chinese = npuperf("analyze", "/no/such/place", LC_ALL="zh_CN.GBK", PYTHONIOENCODING="gbk")
    assert "no such file" not in chinese.stderr


def test_the_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "no such file or folder" in run_cli(["analyze", "/no/such/place", "--lang", "en"]).stderr
    assert "no such file or folder" in run_cli(["--lang", "en", "analyze", "/no/such/place"]).stderr
    assert "没有" in run_cli(["--lang", "en", "analyze", "/no/such/place", "--lang", "zh"]).stderr
    unknown = run_cli(["analyze", "--lang", "xx"])
    assert unknown.returncode == 2 and "en、zh" in unknown.stderr
    assert "no such file or folder" in run_cli(["analyze", "/no/such/place", "--lang=en_GB.UTF-8"]).stderr


def test_an_option_of_the_program_is_not_ours(tmp_path: Path) -> None:
    done = run_cli(["profile", "--dry-run", str(tmp_path / "gone.py"), "--lang", "zh"])
    assert done.returncode == 2 and not re.search(r"[\u4e00-\u9fff]", done.stderr)


def test_json_and_csv_are_english_in_any_language(sample: Path) -> None:
    for form in ("json", "csv", "junit"):
        said = [run_cli(["analyze", str(sample), "--format", form, "--lang", lang]).stdout for lang in ("en", "zh")]
        assert said[0] == said[1]


#: Command lines of which each is wrong in its own way.
WRONG = [
    ["analyze", "/no/such/place"],
    ["analyze", "{empty}"],
    ["analyze", "{raw}"],
    ["analyze", "{text}"],
    ["analyze", "{sample}", "--step", "99"],
    ["analyze", "{sample}", "--rank", "7"],
    ["analyze", "{sample}", "--device", "7"],
    ["analyze", "{sample}", "--cores", "many"],
    ["analyze", "{sample}", "--soc", "Ascend1"],
    ["analyze", "{sample}", "-o", "{text}"],
    ["analyze", "{sample}", "-o", "{empty}/no/out.json"],
    ["analyze", "{sample}", "--nonsense"],
    ["analyze", "{sample}", "--step"],
    ["analyze", "{sample}", "--step", "x"],
    ["analyze", "{sample}", "--top", "0"],
    ["analyze", "{sample}", "--full=3"],
    ["analyze", "{sample}", "once", "more"],
    ["analyze", "{sample}", "--format", "docx"],
    ["analyze", "{sample}", "--table", "nothing"],
    ["analyze", "{sample}", "--what-if", "host"],
    ["analyze", "{sample}", "--what-if", "nothing*2"],
    ["analyze", "{sample}", "--fail-on", "idle"],
    ["analyze", "{sample}", "--fail-on", "step_time>5kg"],
    ["analyze", "{sample}", "--fail-on", "idle_share>1%"],
    ["analyze", "{sample}", "--cores-of", "x=1,2"],
    ["analyze", "{sample}", "--expect-cores", "9=24"],
    ["analyze", "{sample}", "--again", "{sample}"],
    ["analyze", "{sample}", "--baseline", "nobody"],
    ["analyze", "{sample}", "--baseline", "{text}"],
    ["analyze", "{sample}", "--check", "{text}"],
    ["analyze", "{sample}", "--gates", "{text}"],
    ["analyze", "{sample}", "--recipe", "nobody"],
    ["analyze", "{sample}", "--undecided", "maybe"],
    ["analyze", "{sample}", "--engine", "steam"],
    ["analyze", "{sample}", "--ranks", "a-b"],
    ["analize"],
    ["tune", "--mode", "op", "--run", "{empty}"],
    ["tune", "--from", "{empty}"],
    ["tune", "--mode", "all", "--dry-run", "--", "python", "train.py"],
    ["tune", "--diff", "{empty}", "{text}"],
    ["profile", "--dry-run", "{empty}/nowhere.py"],
    ["profile", "--export", "{empty}"],
    ["profile", "--level", "9", "--dry-run", "{script}"],
    ["profile", "--step-on", "nothing", "--dry-run", "{script}"],
    ["profile", "--dry-run", "--aic-metrics", "nothing", "{script}"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_errors_are_chinese(arguments: list[str], tmp_path: Path, sample: Path, nameless: None) -> None:
    places = {
        "empty": tmp_path / "empty",
        "raw": tmp_path / "PROF_000001_20260101000000000_AAA",
        "text": tmp_path / "notes.csv",
        "script": tmp_path / "train.py",
        "sample": sample,
    }
    places["empty"].mkdir()
    (places["raw"] / "device_0" / "data").mkdir(parents=True)
    places["text"].write_text("Name,Type\nsome words that nobody wrote,x\n")
    places["script"].write_text("pass\n")
    verb, *rest = (argument.format(**places) for argument in arguments)
    done = run_cli([verb, "--lang", "zh", *rest])
    assert done.returncode or "idle_share" in str(arguments)
    assert not list(sentences(done.stderr + done.stdout)), done.stderr
    assert re.search(r"[\u4e00-\u9fff]", done.stderr + done.stdout), done.stderr
    assert "Traceback" not in done.stderr and done.returncode != 70, done.stderr


# --- widths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "full"), [(60, True), (80, False), (120, True)])
def test_reports_are_as_wide_as_there_is_room(everything: dict[str, Document], width: int, full: bool) -> None:
    for name, document in everything.items():
        said = render(document, "text", View(language="zh", width=width, full=full))
        english = render(document, "text", View(language="en", width=width, full=full))
        most = max(width, *map(cell_len, english.splitlines()))  # code is not wrapped
        wide = [line for line in said.splitlines() if cell_len(line) > most]
        assert not wide, f"{name}: {wide}"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_align(everything: dict[str, Document], width: int) -> None:
    """Numbers, which stand at the right of their column, end where its header does, in columns of the terminal."""
    seen = 0
    for name, document in everything.items():
        for table in tables_of(type(document)):
            rows = len(list(table.rows(document)))
            lines = render(document, "text", View(language="zh", width=width, table=table.name)).splitlines()
            lines = [line for line in lines if "--format csv" not in line]
            if len(lines) <= rows or len(table.columns) == 1 or not rows:
                continue  # cells of several lines are not told from rows
            header = lines[: len(lines) - rows]
            if any("  " not in line.strip() for line in header[-1:]):
                continue
            ends = {cell_len(line[: found.end()]) for line in header for found in re.finditer(r"\S+(?: \S+)*", line)}
            for line in lines[-rows:]:
                for found in re.finditer(r"(?<=\s\s)[\d ]+\.\d{3}(?=\s\s|$)", line):
                    seen += 1
                    assert cell_len(line[: found.end()]) in ends, (name, table.name, line)
    assert seen > 100

"""Sentences: whole, with the parameters they name, and none that a language could not translate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from io import BytesIO
from pathlib import Path
from string import Formatter
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from test_architecture import modules, nodes

import languages
from npuperf.base.messages import Message, Series, recall, say
from npuperf.model.document import Document
from npuperf.model.gist import Explanation, Gist
from npuperf.model.parts import Model
from npuperf.model.schema import parts_of
from npuperf.show import language
from npuperf.show.formats import FORMATS, View, render
from npuperf.show.tables import list_tables, tables_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "npuperf"
#: What says a sentence, and how many sentences it takes.
SAYING = {"say": 1, "say_n": 2}
#: Where text is made of messages.
TEXT_MAKERS = ("render", "cli", "messages.py", "errors.py")


@cache
def sayings() -> list[tuple[str, ast.Call, str]]:
    """Every call that says something, and where it is."""
    return [*calls_that_say()]


def calls_that_say() -> Iterator[tuple[str, ast.Call, str]]:
    for _, path, tree in modules():
        defined = {n.name for n in nodes(tree) if isinstance(n, ast.FunctionDef)}
        for call in (n for n in nodes(tree) if isinstance(n, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            own = path.name in ("messages.py", "language.py") and path.parent.name in ("npuperf", "render") and defined
            if name in SAYING and not own:
                yield name, call, f"{path.relative_to(ROOT)}:{call.lineno}"


@pytest.fixture(scope="module")
def template() -> Catalog:
    """Every sentence that there is: gathered once, for it is read from every file."""
    return languages.catalogue()


def placeholders(sentence: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(sentence) if field is not None}


def test_every_sentence_is_whole_and_has_the_parameters_it_names() -> None:
    faults = []
    for name, call, where in sayings():
        sentences = call.args[: SAYING[name]]
        if not all(isinstance(s, ast.Constant) and isinstance(s.value, str) and s.value for s in sentences):
            faults.append(f"{where}: {name}: not a literal sentence")
            continue
        if len(call.args) != SAYING[name] + name.endswith("_n") or any(k.arg is None for k in call.keywords):
            faults.append(f"{where}: {name}: parameters are to be named one by one")
            continue
        given = {k.arg for k in call.keywords}
        for s in sentences:
            found = placeholders(s.value)  # type: ignore[attr-defined]
            if found - {"n"} != given - {"n"} or ("n" in found - given and not name.endswith("_n")):
                faults.append(f"{where}: {s.value!r} with {sorted(given)}")  # type: ignore[attr-defined]
    assert not faults, "\n".join(faults)


def test_no_sentence_is_glued_together() -> None:
    """No f-string, + or % makes a sentence, and none takes a message apart: titles, reasons, hints and the like."""
    faults = []
    for _, path, tree in modules():
        if path.relative_to(PACKAGE).parts[0] in TEXT_MAKERS:
            continue
        for node in nodes(tree):
            glued = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.Call) and called(n) in SAYING]
            if glued and isinstance(node, ast.BinOp | ast.FormattedValue):
                faults.append(f"{path.relative_to(ROOT)}:{glued[0].lineno}: a message inside of other text")
            if isinstance(node, ast.Call) and called(node) in (*SAYING, "str") and SAYING.get(called(node)):
                faults += [
                    f"{path.relative_to(ROOT)}:{node.lineno}: a sentence as a parameter: {text!r}"
                    for keyword in node.keywords
                    for text in prose(keyword.value)
                ]
    assert not faults, "\n".join(faults)


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def prose(value: ast.expr) -> Iterator[str]:
    """Yield f-strings that hold words of their own."""
    for node in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if re.search(r"[a-z]{3,} [a-z]{2,}", words):
                yield words


def test_every_sentence_can_be_gathered(template: Catalog) -> None:
    found = {m.id[0] if isinstance(m.id, tuple) else m.id for m in template if m.id}
    said = {call.args[0].value for _, call, _ in sayings() if isinstance(call.args[0], ast.Constant)}  # type: ignore[attr-defined]
    assert said <= found
    assert len(found) > 500
    assert any("msprof-analyze" in sentence for sentence in found)  # of thresholds.yaml
    assert any(sentence.startswith("The device waits") for sentence in found)  # of a recipe


@pytest.mark.parametrize("path", sorted((PACKAGE / "locale").glob("*.po")), ids=lambda p: p.stem)
def test_languages_are_complete(path: Path, template: Catalog) -> None:
    """Every sentence is translated, with its own parameters, and nothing else is."""
    with path.open("rb") as file:
        known = read_po(file, locale=path.stem)
    faults = []
    for message in template:
        if not message.id:
            continue
        found = known.get(message.id, message.context)
        if found is None or not found.string or not all(forms(found.string)) or found.fuzzy:
            faults.append(f"not translated: {message.id!r}")
            continue
        wanted = placeholders(forms(message.id)[-1])
        for form in forms(found.string):
            if not wanted - {"n"} <= placeholders(form) <= wanted:
                faults.append(f"other parameters: {form!r}")
            if form.count("\n") != forms(message.id)[-1].count("\n"):
                faults.append(f"other lines: {form!r}")
    faults += [f"said by nobody: {m.id!r}" for m in known if m.id and template.get(m.id, m.context) is None]
    assert not faults and not known.obsolete, f"{len(faults)} (make messages):\n" + "\n".join(faults)
    compiled = BytesIO()
    write_mo(compiled, known)
    assert path.with_suffix(".mo").read_bytes() == compiled.getvalue(), "make messages"


def forms(said: str | tuple[str, ...] | list[str]) -> list[str]:
    """A sentence's forms: one, or what it is for one and for many."""
    return [said] if isinstance(said, str) else list(said)


@pytest.mark.parametrize(
    "sentence", ["{other}", "{name:>999999999}", "{name.__class__}", "{name!r}", "{", "}", "{0}", "{}"]
)
def test_a_sentence_of_others_that_asks_for_more_than_names_is_text(sentence: str) -> None:
    said = recall({"id": sentence, "parameters": {"name": "x"}})
    assert said.id == "{text}" and sentence in str(said)


def test_a_sentence_that_was_written_down_is_the_same_again() -> None:
    assert recall({"id": "{n} of {name}", "parameters": {"n": 3, "name": "x"}}) == say("{n} of {name}", n=3, name="x")
    assert str(recall({"id": "so", "parameters": [1]})) == "so"
    assert str(recall("a {name}")) == "a {name}"


# --- a made-up language -----------------------------------------------------------------------------------------------

#: What is never translated: units, the field's names of cores, names of files, values of Python, kinds of input.
NAMES = ("npuperf", "KiB", "MiB", "core·ms", "TFLOP", "TFLOPS", "AIC", "AIV", "COMM", "tune_ops.cfg", "True", "cluster")
_ALPHABET = dict(zip("abcdefghijklmnopqrstuvwxyz", "αβψδεφγηιξκλμνοπқρστυвωхζж", strict=True))
_MADE_UP = str.maketrans({**_ALPHABET, **{k.upper(): v.upper() for k, v in _ALPHABET.items()}})


def made_up(sentence: str) -> str:
    """Return a sentence without a single ASCII letter outside of its placeholders."""
    return "".join(p if p.startswith("{") else p.translate(_MADE_UP) for p in re.split(r"(\{\w+\})", sentence))


@pytest.fixture(scope="module")
def made_up_catalogue(template: Catalog) -> bytes:
    """A language in one file."""
    catalogue = deepcopy(template)
    catalogue.locale = "en"  # whose plural forms it has
    for made in ("sample_documents.py", "clusters.py", "comparisons.py"):
        for _, sentence, _, _ in extract_from_file("python", ROOT / "tests" / made, languages.KEYWORDS):
            catalogue.add(sentence)
    for message in catalogue:
        if message.id:
            message.string = tuple(map(made_up, message.id)) if isinstance(message.id, tuple) else made_up(message.id)
    file = BytesIO()
    write_mo(file, catalogue)
    return file.getvalue()


@pytest.fixture
def made_up_language(made_up_catalogue: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "xx.mo").write_bytes(made_up_catalogue)
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    monkeypatch.chdir(ROOT)
    return "xx"


def test_no_sentence_escapes_a_language(made_up_language: str, everything: dict[str, Document]) -> None:
    """In a language without ASCII letters, whatever has three of them in a row comes from the data."""
    escaped: dict[str, str] = {}
    for name, document in everything.items():
        if isinstance(document, (Gist, Explanation)):  # English: for programs, and what a rule's author wrote
            continue
        known = data_words(document)
        for form, view in views(document):
            said = render(document, form, view)
            for line in said.splitlines():
                for word in re.findall(r"[A-Za-z]{3,}", line):
                    bar = not set(word) - set("BCDHILMPRUVWXou") or not set(word) - set("pdtewH")  # of time, of a rank
                    if word not in known and not bar:
                        escaped.setdefault(word, f"{name}, {form}: {line.strip()}")
    assert not escaped, "\n".join(f"{word}: {line}" for word, line in escaped.items())


def views(document: Document) -> Iterator[tuple[str, View]]:
    """Yield what people read: everything, one screen, and every table alone."""
    # JSON, CSV and JUnit are English in any language.
    assert set(FORMATS) == {"text", "json", "csv", "markdown", "junit", "html"}
    for form in ("text", "markdown", "notes"):
        for full in (False, True):
            yield form, View(full=full, language="xx", width=1000)
    for table in tables_of(type(document)):
        yield "text", View(table=table.name, language="xx", width=1000)


def data_words(document: Document) -> set[str]:
    """Return the words that the data has: names, paths, code, identifiers; not the values of enumerations."""
    tables = tables_of(type(document))
    texts = [*data_texts(document, type(document)), *(table.name for table in tables), *NAMES, type(document).__name__]
    if any(table.name == "facts" for table in tables):  # derived from the fields, whose names are the titles
        texts += [column.key for table in tables for column in table.columns]
    return {word for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}


def data_texts(value: Any, kind: Any) -> Iterator[str]:
    if isinstance(value, Model):
        for field in msgspec.structs.fields(value):
            yield from data_texts(getattr(value, field.name), field.type)
    elif isinstance(value, Message):
        yield from (text for parameter in value.parameters.values() for text in data_texts(parameter, str))
    elif isinstance(value, Series):
        yield from (text for item in value.items for text in data_texts(item, str))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from data_texts(item, Any)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from data_texts(item, kind if get_origin(kind) is Literal else (get_args(kind) or (Any,))[0])
    elif isinstance(value, str) and not any(get_origin(part) is Literal for part in parts_of(kind)):
        yield value


def test_the_made_up_language_is_heard(
    made_up_language: str, everything: dict[str, Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = everything["transformer"]
    assert "HOST-BOUND" in render(document, "text")
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8@somewhere")
    assert made_up("HOST-BOUND") in render(document, "text")
    assert "HOST-BOUND" in render(document, "text", View(language="en"))
    monkeypatch.setenv("NPUPERF_LANGUAGE", "en")
    assert "HOST-BOUND" in render(document, "text")
    assert made_up("devices") in language_of_tables(document)


def language_of_tables(document: Document) -> str:
    with language.speaking("xx"):
        return list_tables(type(document))

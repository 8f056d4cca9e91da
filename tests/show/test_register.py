"""One register of formats: a made-up one takes one call and serves the documents of all verbs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, say
from npuperf.model.document import Document
from npuperf.model.parts import Model
from npuperf.model.result import Result
from npuperf.model.schema import documents as kinds
from npuperf.show import formats as register_module
from npuperf.show.formats import FORMATS, View, register, render, renderer_of
from npuperf.show.tables import table_named


class Part(Model, frozen=True, kw_only=True):
    name: str
    took_ns: int
    why: Message | None = None


class Unheard(Document, frozen=True, kw_only=True):
    """A document of a verb that is yet to come."""

    folder: str
    count: int
    parts: tuple[Part, ...]
    fine: bool = True


UNHEARD = Unheard(folder="here", count=2, parts=(Part(name="one", took_ns=1_500_000, why=say("so")),))


@pytest.fixture
def shouting() -> str:
    """A format in one file: this."""
    before = dict(register_module._KNOWN), list(FORMATS)
    register(Document, "shout", lambda document, view: f"{type(document).__name__.upper()} {view.top}!\n")
    yield "shout"
    register_module._KNOWN.clear()
    register_module._KNOWN.update(before[0])
    FORMATS[:] = before[1]


def test_a_format_is_one_call_for_all_documents(shouting: str, everything: dict[str, Document]) -> None:
    assert shouting in FORMATS
    for document in everything.values():
        assert render(document, shouting, View(top=3)) == f"{type(document).__name__.upper()} 3!\n"
    register(Result, shouting, "npuperf.show.json:render_json")  # its own, for one kind
    assert render(everything["transformer"], shouting).startswith("{")
    assert render(everything["tuning"], shouting).startswith("TUNING")


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'jsom'.*\n.*did you mean json\? known: text, json, csv, markdown"):
        render(UNHEARD, "jsom")
    with pytest.raises(UsageError, match="no such format"):
        renderer_of(Result, "jsom")


def test_an_unknown_table_names_the_near_one() -> None:
    with pytest.raises(UsageError, match="did you mean operators"):
        table_named(Result, "operator")
    table_named(Result, "operators")


@pytest.mark.parametrize("form", ["text", "json", "csv", "markdown"])
def test_every_document_has_every_format(form: str, everything: dict[str, Document]) -> None:
    assert {type(d) for d in everything.values()} == set(kinds().values())
    for name, document in everything.items():
        assert render(document, form).endswith("\n"), name


def test_a_document_of_which_nothing_is_known_is_shown_by_its_fields() -> None:
    assert render(UNHEARD, "text").splitlines()[1:] == [
        "folder  here",
        "count  2",
        "fine  yes",
        "",
        "parts (1)",
        "  name  took (ms)  why",
        "  one       1.500  so",
    ]
    assert render(UNHEARD, "csv") == "folder,count,fine\nhere,2,yes\n"
    said = '"{""id"": ""so"", ""parameters"": {}}"'
    assert render(UNHEARD, "csv", View(table="parts")) == f"name,took_ns,why,why_message\none,1500000,so,{said}\n"
    assert "| one | 1.500 | so |" in render(UNHEARD, "markdown")
    assert '"messages"' in render(UNHEARD, "json")


def test_the_register_costs_nothing_to_import() -> None:
    code = "import sys, npuperf.show.formats; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"rich", "msgspec", "numpy", "babel"} & set(loaded)

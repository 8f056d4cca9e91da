"""A document as text, JSON, CSV or Markdown. No analysis here: every number comes out as it went in.

What is known of a type of document is registered here: a format is a function from a document and a view to text,
``report`` one to what people are told, ``tables`` are its tables. What is known of a type's bases serves where it has
nothing of its own, so that one function is enough for a format of all documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from npuperf.base.errors import UsageError
from npuperf.base.files import open_input
from npuperf.base.messages import Message, about, chain, say, series
from npuperf.show import language

if TYPE_CHECKING:
    from pathlib import Path

    from npuperf.model.document import Document
    from npuperf.model.picture import Picture


@dataclass(frozen=True, slots=True)
class View:
    """How a document is to be shown.

    ``full``: everything, not one screen; ``brief``: a dozen lines of it, or these first; ``top``: rows of every list,
    None for what suits the format; ``table``: this table alone; ``width`` in columns and ``colour`` of a terminal,
    ``blocks``: whether it draws blocks as wide as letters, ``links``: if it opens them, the folders in which code is
    looked for; ``language``: a code, None as the environment says; ``page``: the address of a page of the same
    document, if one is written; ``pictures``: timelines for a page, and ``old_pictures`` those of what the document is
    compared with. ``undrawn``: why some of these are not there.
    """

    full: bool = False
    brief: bool = False
    top: int | None = None
    table: str | None = None
    width: int = 120
    colour: bool = False
    blocks: bool = True
    links: tuple[Path, ...] = ()
    language: str | None = None
    page: str = ""
    pictures: tuple[Picture, ...] = ()
    old_pictures: tuple[Picture, ...] = ()
    undrawn: Message | None = None


Renderer = Callable[[Any, View], str]

#: The names of all formats, in the order of their registration.
FORMATS: Final[list[str]] = []
#: What is known, by the name of a type and what it is: the format, or one of those at the end of this file.
_KNOWN: Final[dict[tuple[str, str], Any]] = {}


def register(document: type[Document] | str, format_: str, renderer: Renderer | str) -> None:
    """Make a format known for a type of document (or its name). A renderer as "module:function" is loaded when used."""
    _KNOWN[document if isinstance(document, str) else document.__name__, format_] = renderer
    if format_ not in FORMATS:
        FORMATS.append(format_)


def render(document: Document, format_: str, view: View | None = None) -> str:
    """Return a document in a format. Raises UsageError for a format or a table that does not exist."""
    view = view or View()
    renderer: Renderer = renderer_of(type(document), format_)
    with language.speaking(view.language), about(document.place):
        return renderer(document, view)


def renderer_of(document: type[Document], format_: str) -> Any:
    """Return the renderer of a type of document. Raises UsageError for a format that does not exist."""
    found = known(document, format_)
    if found is None:
        raise unknown(say("--format {name}: no such format", name=repr(format_)), format_, FORMATS)
    return found


def known(document: type[Document], what: str) -> Any:
    """Return what is registered for a type of document or the nearest of its bases; "module:name" is loaded."""
    found = next((_KNOWN[base.__name__, what] for base in document.__mro__ if (base.__name__, what) in _KNOWN), None)
    if not isinstance(found, str):
        return found
    module, attribute = found.split(":")
    return getattr(import_module(module), attribute)


def unknown(what: Message, name: str, known: list[str]) -> UsageError:
    """Return the error for a name that is not among the known ones, with the nearest of them."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    meant = say("did you mean {name}?", name=near[0]) if near else None
    return UsageError(what, hint=chain(meant, say("known: {names}", names=series(known)), by=" "))


#: How much of a file is read to see whether it is a page of ours, and what such a page says of itself.
_HEAD: Final = 1 << 10
_OURS: Final = b'<meta name="generator" content="npuperf'


def is_page(path: Path) -> bool:
    """Tell whether a file is a page that npuperf wrote. Raises InputError where it is none, or cannot be read."""
    with open_input(path) as file:
        return _OURS in file.read(_HEAD)


_KNOWN.update({
    # Lines to be said beside a table, or on stderr: a format that is not for ``--format``.
    ("Document", "notes"): "npuperf.show.report:render_notes",
    ("Result", "notes"): "npuperf.show.report:render_gates",
    # The sheet that text, Markdown and pages are made of.
    ("Document", "report"): "npuperf.show.sheet:plain_report",
    ("Result", "report"): "npuperf.show.analysis_report:report",
    ("Explanation", "report"): "npuperf.show.result_sheet:explained",
    ("Tuning", "report"): "npuperf.show.verb_reports:tuning",
    ("BankChanges", "report"): "npuperf.show.verb_reports:bank_changes",
    ("ResultChanges", "report"): "npuperf.show.verb_reports:result_changes",
    ("TunePlan", "report"): "npuperf.show.verb_reports:tune_plan",
    ("Merged", "report"): "npuperf.show.verb_reports:merged",
    ("RolledBack", "report"): "npuperf.show.verb_reports:rolled_back",
    ("Recorded", "report"): "npuperf.show.verb_reports:recorded",
    ("RecordingPlan", "report"): "npuperf.show.verb_reports:recording_plan",
    # Tables, or a function from the type to them.
    ("Document", "tables"): "npuperf.show.tables:derived_tables",
    ("Result", "tables"): "npuperf.show.analysis_tables:TABLES",
    ("Tuning", "tables"): "npuperf.show.verb_reports:TUNING",
    ("BankChanges", "tables"): "npuperf.show.verb_reports:BANK_CHANGES",
    ("ResultChanges", "tables"): "npuperf.show.verb_reports:RESULT_CHANGES",
    ("TunePlan", "tables"): "npuperf.show.verb_reports:PLAN",
})  # fmt: skip

register("Document", "text", "npuperf.show.terminal:render_text")
register("Result", "text", "npuperf.show.analysis_text:render_text")
register("Recorded", "text", "npuperf.show.report:render_notes")
register("Document", "json", "npuperf.show.json:render_json")
register("Result", "json", "npuperf.show.json:render_result")
register("Document", "csv", "npuperf.show.tables:render_csv")
register("Document", "markdown", "npuperf.show.report:render_markdown")
register("Document", "html", "npuperf.show.html:render_html")
register("Document", "junit", "npuperf.show.junit:render_junit")

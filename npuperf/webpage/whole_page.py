"""The whole page: one file that needs no other and no network, and runs nothing but its own script.

Whatever a profile holds comes in as text: Jinja escapes all that the template is given, and scripts set texts only. The
policy that stands before everything else allows one style sheet and one script, by what is in them.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from npuperf import __version__
from npuperf.documents.analysis import Result
from npuperf.documents.document import Document
from npuperf.escape import for_screen, visible
from npuperf.files import read_input
from npuperf.messages import Message, Quantity, Series
from npuperf.render import View
from npuperf.render.language import spoken, text
from npuperf.webpage.chart import Chart
from npuperf.webpage.charts import charts_of
from npuperf.webpage.pack import Json, pack_pictures, packed
from npuperf.webpage.page_words import PAGE_WORDS, script_words
from npuperf.webpage.result_sheet import result_sheet
from npuperf.webpage.sheet import Sheet, plain_sheet, shortened, size_of_tables

_HERE: Final = Path(__file__).resolve().parent
#: The style sheet that stands before all others, and the script that starts what the others define.
_FIRST_STYLE, _LAST_SCRIPT = "palette.css", "page.js"
#: Tables get shorter until all of them together are no larger, in bytes; the last is what is left of every table.
_ROOM: Final = 600_000
_ROWS: Final = (200, 100, 50, 20, 10)
#: Numbers are aligned by the places of their columns, which a table names as classes.
_MOST_COLUMNS: Final = 48


def render_html(document: Document, view: View) -> str:
    """Return a document as a page, with the timelines of the view, in the language that is spoken."""
    template = _environment().get_template("template.html")
    charts = tuple(charts_of(document, view.pictures))
    drawn = [chart for chart in charts if chart.matrix is not None]
    data: dict[str, Json] = {
        "words": script_words(launches_apart=_launches_apart(document)),
        "pictures": pack_pictures(view.pictures),
        "old_pictures": pack_pictures(view.old_pictures),
        "matrices": [cast("Json", chart.matrix.packed()) for chart in drawn if chart.matrix is not None],
    }
    style, script = _style(), _script()
    return template.render(
        sheet=_sheet(document, view, charts),
        words=PAGE_WORDS,
        language=spoken(),
        version=__version__,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=Markup(packed(data)),
        numbers={chart.id: number for number, chart in enumerate(drawn)},
    )


def _launches_apart(document: Document) -> bool:
    devices = document.devices if isinstance(document, Result) else ()
    return not any(device.clock.latency_reason for device in devices)


def _sheet(document: Document, view: View, charts: tuple[Chart, ...]) -> Sheet:
    """Return what the page shows, its tables as long as there is room."""
    if isinstance(document, Result) and view.table is None:
        sheet = result_sheet(document, view, charts)
    else:
        sheet = plain_sheet(document, view, charts)
    for rows in _ROWS:
        sheet = shortened(sheet, rows)
        if size_of_tables(sheet) <= _ROOM:
            break
    return sheet


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(_HERE)
    environment = Environment(loader=loader, autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = visible
    return environment


def _shown(value: Any) -> Any:
    """Return what the template prints: sentences in the current language, texts fit for people, markup as it is."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Message | Quantity | Series):
        return for_screen(text(value))
    return for_screen(value) if isinstance(value, str) else "–" if value is None else value


@cache
def _style() -> str:
    """Return the style sheet: all files, numbers at the right of their columns, and what paper has no room for."""
    places = range(1, _MOST_COLUMNS + 1)
    numbers, minor = (",".join(f".{kind}{n} tr>:nth-child({n})" for n in places) for kind in "nm")
    rules = (
        f"{numbers}{{text-align:right;font-variant-numeric:tabular-nums}}\n@media print{{{minor}{{display:none}}}}\n"
    )
    return _joined("*.css") + rules


@cache
def _script() -> str:
    """Return the script: all files one after the other, in a room of their own."""
    return f'"use strict";\n(() => {{\n{_joined("*.js")}}})();\n'


def _joined(pattern: str) -> str:
    files = sorted(
        _HERE.glob(pattern), key=lambda file: (file.name != _FIRST_STYLE, file.name == _LAST_SCRIPT, file.name)
    )
    return "".join(read_input(file).decode("utf-8") for file in files)


def _policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: nothing is allowed but this style and this script."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode('utf-8')).digest()).decode('ascii')}"

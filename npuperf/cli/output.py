"""The one way out: a document in a format, to the terminal or into a file, then the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from msgspec import Struct

from npuperf.base.errors import UsageError
from npuperf.base.files import is_file, is_folder, is_special, is_there, refuse_inputs, shown, write_atomically
from npuperf.base.messages import say
from npuperf.cli.streams import draws_blocks, opens_links, tell, tell_line, terminal_width
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View, is_page, render, renderer_of

if TYPE_CHECKING:
    from npuperf.analyze.run import Analysis
    from npuperf.model.picture import Picture

    Pictures = tuple[tuple[Picture, ...], tuple[Picture, ...]]


#: A profile lies so deep at most below the folder that its program was run in: result/raw/…_ascend_pt/….
_ABOVE: Final = 4


class Output(Struct, frozen=True):
    """Where a document goes, and how it is shown there: options of verbs.

    ``force``: a file that exists may be replaced; ``html``: where a page of it is written, too.
    """

    format: str = "text"
    output: Path | None = None
    force: bool = False
    full: bool = False
    top: int | None = None
    table: str | None = None
    html: Path | None = None

    @classmethod
    def of(cls, typed: Mapping[str, Any], **more: Any) -> Output:
        """Return what was typed."""
        return cls(**{name: typed[name] for name in cls.__struct_fields__ if name not in more}, **more)

    def check(self, document: type[Document]) -> None:
        """Raise UsageError before any work is done for what could not be shown afterwards."""
        if self.table == "help":
            from npuperf.show.tables import list_tables

            _write(list_tables(document))
            raise typer.Exit
        renderer_of(document, self.format)
        if self.table is not None:
            from npuperf.show.tables import table_named

            table_named(document, self.table)
        if self.output is None:
            return
        if is_there(self.output) and not self.force:
            hint = say("choose another name, or replace it with --force")
            raise UsageError(say("{file}: already exists", file=str(self.output)), hint=hint)
        if not is_folder(self.output.absolute().parent):
            raise UsageError(say("{file}: its folder does not exist", file=str(self.output)))

    def show(self, document: Document, pictures: Pictures = ((), ())) -> None:
        """Write a document to stdout, or to the file; ``pictures``: timelines for a page, its own and the old ones."""
        text = render(document, self.format, self._view(document, *pictures))
        if self.output is not None:
            refuse_what_was_read(self.output, document)
        if self.output is None:
            _write(text)
        else:
            write_atomically(self.output, text)
            tell(say("wrote {file}", file=str(self.output)))
        if self.format == "csv":  # which shows one table
            for line in render(document, "notes", View()).splitlines():
                tell_line(line)
        elif document.problem is not None and (self.format != "text" or self.output is not None):
            tell(document.problem.message)

    def _view(self, document: Document, pictures: tuple[Picture, ...], old_pictures: tuple[Picture, ...]) -> View:
        on_terminal = self.output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = terminal_width() if self.output is None else 120
        return View(
            full=self.full,
            top=self.top,
            table=self.table,
            width=width,
            colour=on_terminal,
            blocks=self.output is not None or draws_blocks(),
            links=_folders_of(document) if self.output is None and opens_links() else (),
            page=self._link(),
            pictures=pictures,
            old_pictures=old_pictures,
        )

    def _link(self) -> str:
        """Return the page's address, seen from where the report is."""
        if self.html is None:
            return ""
        from urllib.parse import quote  # seldom needed

        start = Path.cwd() if self.output is None else self.output.absolute().parent
        return quote(os.fsencode(os.path.relpath(self.html.absolute(), start)))  # names need not be UTF-8


def _folders_of(document: Document) -> tuple[Path, ...]:
    """Return the folders in which the code of a run may lie: the current one, and those that its profile lies in."""
    above = Path(document.input.path).absolute().parents[:_ABOVE] if isinstance(document, Result) else ()
    return Path.cwd(), *above


def refuse_what_was_read(file: Path, document: Document) -> None:
    """Raise UsageError for a file that the report is about."""
    if isinstance(document, Result):
        refuse_inputs([file], document.input.files)


def leave(document: Document) -> NoReturn:
    """Leave with the status that a document stands for."""
    raise typer.Exit(document.exit_code)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


# -- What is written beside a report where that is asked for: a page for the browser, and traces for other viewers.


class Pages(Struct, frozen=True):
    """Files to write. ``force``: any file that exists may be replaced; without it only an earlier page of ours."""

    html: Path | None = None
    trace: Path | None = None
    trace_full: Path | None = None
    force: bool = False

    @classmethod
    def of(cls, typed: Mapping[str, Any]) -> Pages:
        """Return what was typed."""
        return cls(**{name: typed[name] for name in cls.__struct_fields__})

    def check(self, others: Mapping[str, Path | None]) -> None:
        """Raise UsageError or InputError, before any work is done, for files that could not be written afterwards.

        ``others``: what else is written, by its option.
        """
        named = {"--html": self.html, "--trace": self.trace, "--trace-full": self.trace_full}
        there = {option: path for option, path in named.items() if path is not None}
        if not there:
            return
        for option, path in there.items():
            if not is_folder(path.absolute().parent):
                raise UsageError(say("{file}: its folder does not exist", file=str(path)))
            if is_folder(path):
                raise UsageError(say("{option} {file}: a folder, and a file is wanted", option=option, file=str(path)))
            if is_file(path) and not self.force and not (option == "--html" and is_page(path)):
                hint = say("choose another name, or replace it with --force")
                raise UsageError(say("{file}: already exists", file=str(path)), hint=hint)
        places: dict[str, str] = {}
        for option, file in (*there.items(), *others.items()):
            if file is None or is_special(file):
                continue
            before = places.setdefault(os.path.realpath(file), option)
            if before != option:
                raise UsageError(say("{options}: the same file for several", options=f"{before} {option}"))

    def write(self, document: Document, pictures: Sequence[Picture] = (), old_pictures: Sequence[Picture] = ()) -> None:
        """Write the page of a document, if it is wanted."""
        if self.html is not None:
            refuse_what_was_read(self.html, document)
            page = View(full=True, pictures=tuple(pictures), old_pictures=tuple(old_pictures))
            write_atomically(self.html, render(document, "html", page))
            tell(say("wrote {file}", file=str(self.html)))

    def write_traces(self, analysis: Analysis, result: Result) -> None:
        """Write the traces that are wanted, from the columns of what was analyzed."""
        if self.trace is None and self.trace_full is None:
            return
        from npuperf.advise import load_thresholds
        from npuperf.show.full_trace import write_full
        from npuperf.show.overlay import write_overlay

        thresholds = load_thresholds(analysis.question.thresholds)
        for file, write in ((self.trace, write_overlay), (self.trace_full, write_full)):
            if file is not None:
                refuse_what_was_read(file, result)
                tell(write(file, analysis.recording, result, thresholds))


def pictures_of(analysis: Analysis, result: Result) -> tuple[Picture, ...]:
    """Draw what was analyzed, from its columns; what cannot be read any more is told, and not drawn."""
    from npuperf.advise import load_thresholds
    from npuperf.base.errors import InputError
    from npuperf.base.parallel import Engine
    from npuperf.show.draw import draw

    asked = analysis.question
    try:
        engine = Engine.asked(asked.engine, asked.workers, asked.scheduler)
        return draw(analysis.recording, result, load_thresholds(asked.thresholds), step=asked.step, engine=engine)
    except InputError as error:
        tell(say("the page has no timeline of {path}: {why}", path=shown(asked.path), why=error.what))
        return ()

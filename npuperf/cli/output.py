"""The one way out: a document in a format, to the terminal or into a file, then the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer
from msgspec import Struct

from npuperf.cli.progress import tell, tell_line
from npuperf.cli.streams import draws_blocks, opens_links, terminal_width
from npuperf.documents.analysis import Result
from npuperf.documents.document import Document
from npuperf.errors import UsageError
from npuperf.files import is_folder, is_there, write_atomically
from npuperf.messages import say
from npuperf.render import View, check, render

if TYPE_CHECKING:
    from npuperf.documents.picture import Picture

    Pictures = tuple[tuple[Picture, ...], tuple[Picture, ...]]


#: A profile lies so deep at most below the folder that its program was run in: result/raw/…_ascend_pt/….
_ABOVE: Final = 4


class Output(Struct, frozen=True):
    """Where a document goes, and how it is shown there. ``force``: a file that exists may be replaced; ``html``: where
    a page of it is written, too.
    """

    format: str = "text"
    file: Path | None = None
    force: bool = False
    full: bool = False
    top: int | None = None
    table: str | None = None
    html: Path | None = None

    def check(self, document: type[Document]) -> None:
        """Raise UsageError before any work is done for what could not be shown afterwards."""
        if self.table == "help":
            from npuperf.render.tables import list_tables

            _write(list_tables(document))
            raise typer.Exit
        check(document, self.format, self.table)
        if self.file is None:
            return
        if is_there(self.file) and not self.force:
            hint = say("choose another name, or replace it with --force")
            raise UsageError(say("{file}: already exists", file=str(self.file)), hint=hint)
        if not is_folder(self.file.absolute().parent):
            raise UsageError(say("{file}: its folder does not exist", file=str(self.file)))

    def show(self, document: Document, pictures: Pictures = ((), ())) -> None:
        """Write a document to stdout, or to the file; ``pictures``: timelines for a page, its own and the old ones."""
        text = render(document, self.format, self._view(document, *pictures))
        if self.file is not None:
            refuse_what_was_read(self.file, document)
        if self.file is None:
            _write(text)
        else:
            write_atomically(self.file, text)
            tell(say("wrote {file}", file=str(self.file)))
        if self.format == "csv":  # which shows one table
            for line in render(document, "notes", View()).splitlines():
                tell_line(line)
        elif document.problem is not None and (self.format != "text" or self.file is not None):
            tell(document.problem.message)

    def _view(self, document: Document, pictures: tuple[Picture, ...], old_pictures: tuple[Picture, ...]) -> View:
        on_terminal = self.file is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = terminal_width() if self.file is None else 120
        return View(
            full=self.full,
            top=self.top,
            table=self.table,
            width=width,
            colour=on_terminal,
            blocks=self.file is not None or draws_blocks(),
            links=_folders_of(document) if self.file is None and opens_links() else (),
            page=self._link(),
            pictures=pictures,
            old_pictures=old_pictures,
        )

    def _link(self) -> str:
        """Return the page's address, seen from where the report is."""
        if self.html is None:
            return ""
        from urllib.parse import quote  # seldom needed

        start = Path.cwd() if self.file is None else self.file.absolute().parent
        return quote(os.fsencode(os.path.relpath(self.html.absolute(), start)))  # names need not be UTF-8


def _folders_of(document: Document) -> tuple[Path, ...]:
    """Return the folders in which the code of a run may lie: the current one, and those that its profile lies in."""
    above = Path(document.input.path).absolute().parents[:_ABOVE] if isinstance(document, Result) else ()
    return Path.cwd(), *above


def refuse_what_was_read(file: Path, document: Document) -> None:
    """Raise UsageError for a file that the report is about."""
    if isinstance(document, Result):
        refuse_inputs([file], document.input.files)


def refuse_inputs(files: Iterable[Path | None], inputs: Iterable[str | Path]) -> None:
    """Raise UsageError where a file to write is one to read, links followed as far as they lead anywhere."""
    read = set(map(os.path.realpath, inputs))
    for file in files:
        if file is not None and os.path.realpath(file) in read:
            hint = say("choose another name: what is analyzed is never changed")
            raise UsageError(say("{file}: was read for this report", file=str(file)), hint=hint)


def leave(document: Document) -> NoReturn:
    """Leave with the status that a document stands for."""
    raise typer.Exit(document.exit_code)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()

"""The one way out: a document in a format, to the terminal or into a file, a page and traces beside it, the status."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from msgspec import Struct

from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.files import PACK, is_file, is_folder, is_special, is_there, refuse_inputs, shown, write_atomically
from npuperf.base.messages import Message, say
from npuperf.cli.streams import draws_blocks, opens_links, tell, tell_line, terminal_width
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View, is_page, render, renderer_of

if TYPE_CHECKING:
    from npuperf.analyze.run import Analysis
    from npuperf.model.picture import Picture


#: A profile lies so deep at most below the folder that its program was run in: result/raw/…_ascend_pt/….
_ABOVE: Final = 4


class Output(Struct, frozen=True):
    """Where a document goes, and how it is shown there: options of verbs, called as they are.

    ``html`` is a file for its page, ``trace`` and ``trace_full`` are files for traces. ``force``: files that exist may
    be replaced; without it only an earlier page of ours.
    """

    format: str = "text"
    output: Path | None = None
    full: bool = False
    brief: bool = False
    top: int | None = None
    table: str | None = None
    html: Path | None = None
    trace: Path | None = None
    trace_full: Path | None = None
    force: bool = False

    @classmethod
    def of(cls, typed: Mapping[str, Any], **more: Any) -> Output:
        """Return what was typed; ``more``: what this verb has no options for."""
        return cls(**{name: typed[name] for name in cls.__struct_fields__ if name not in more}, **more)

    def check(self, document: type[Document], others: Mapping[str, Path | None] = MappingProxyType({})) -> None:
        """Raise UsageError or InputError before any work is done for what could not be shown or written afterwards.

        ``others``: what else is written, by its option.
        """
        if self.table == "help":
            from npuperf.show.tables import list_tables

            _write(list_tables(document))
            raise typer.Exit
        renderer_of(document, self.format)
        if self.brief and self.format not in ("text", "markdown", "json"):
            what = say("--brief: not as {format}", format=self.format)
            raise UsageError(what, hint=say("it is there as text, Markdown and JSON"))
        if self.brief and (self.full or self.table is not None):
            other = "--full" if self.full else "--table"
            raise UsageError(say("--brief and {option}: one asks for less, the other for more", option=other))
        if self.table is not None:
            from npuperf.show.tables import table_named

            table_named(document, self.table)
        another = say("choose another name, or replace it with --force")
        if self.output is not None:
            if self.output.suffix == PACK and not is_special(self.output):
                hint = say("--pack {file} writes one", file=for_shell(str(self.output)))
                raise UsageError(say("-o {file}: a report is no pack", file=str(self.output)), hint=hint)
            if is_there(self.output) and not self.force:
                raise UsageError(say("{file}: already exists", file=str(self.output)), hint=another)
            if not is_folder(self.output.absolute().parent):
                raise UsageError(say("{file}: its folder does not exist", file=str(self.output)))
        named = {"--html": self.html, "--trace": self.trace, "--trace-full": self.trace_full}
        beside = {option: path for option, path in named.items() if path is not None}
        for option, path in beside.items():
            if not is_folder(path.absolute().parent):
                raise UsageError(say("{file}: its folder does not exist", file=str(path)))
            if is_folder(path):
                raise UsageError(say("{option} {file}: a folder, and a file is wanted", option=option, file=str(path)))
            if is_file(path) and not self.force and not (option == "--html" and is_page(path)):
                raise UsageError(say("{file}: already exists", file=str(path)), hint=another)
        places: dict[str, str] = {}
        for option, file in {**beside, "-o": self.output, **others}.items() if beside else ():
            if file is None or is_special(file):
                continue
            before = places.setdefault(os.path.realpath(file), option)
            if before != option:
                raise UsageError(say("{options}: the same file for several", options=f"{before} {option}"))

    def show(self, document: Document, analysis: Analysis | None = None, old: Analysis | None = None) -> None:
        """Write a document to stdout, or to the file, and what is asked for beside it.

        ``analysis`` is what it is the result of, and ``old`` what that is compared with: of these pictures are drawn.
        """
        drawn = self.html is not None or self.format == "html"
        pictures, undrawn = _pictures(analysis, document) if drawn else ((), None)
        old_pictures, _ = _pictures(old, old.result) if drawn and old is not None else ((), None)
        page = View(full=True, pictures=pictures, old_pictures=old_pictures, undrawn=undrawn)
        text = render(document, self.format, self._view(document, page))
        self._tell_gates(document)
        if self.output is None:
            _write(text)
        else:
            _refuse_what_was_read(self.output, document)
            write_atomically(self.output, text)
            tell(say("wrote {file}", file=str(self.output)))
        if self.format == "csv":  # which shows one table
            for line in render(document, "notes", View()).splitlines():
                tell_line(line)
        elif document.problem is not None and (self.format != "text" or self.output is not None):
            tell(document.problem.message)
        if self.html is not None:
            _refuse_what_was_read(self.html, document)
            write_atomically(self.html, render(document, "html", page))
            tell(say("wrote {file}", file=str(self.html)))
        if analysis is not None and isinstance(document, Result) and (self.trace or self.trace_full):
            from npuperf.advise import load_thresholds
            from npuperf.show.full_trace import write_full
            from npuperf.show.overlay import write_overlay

            thresholds = load_thresholds(analysis.question.thresholds)
            for file, write in ((self.trace, write_overlay), (self.trace_full, write_full)):
                if file is not None:
                    _refuse_what_was_read(file, document)
                    tell(write(file, analysis.recording, document, thresholds))

    def _tell_gates(self, document: Document) -> None:
        """Say on stderr which gates stop the pipeline, unless the report says it on the same screen or there."""
        same = self.format == "text" and self.output is None and sys.stdout.isatty() and sys.stderr.isatty()
        if same or self.format == "csv":
            return
        for gate in document.stopping:
            from npuperf.show.sheet import gate_line

            tell_line("\n".join(gate_line(gate).lines))

    def _view(self, document: Document, drawn: View) -> View:
        """Return how a document is shown: in the language, the width and the colours of a terminal, or for a file."""
        here = self.output is None
        links: tuple[Path, ...] = ()
        if here and opens_links():  # folders in which the code of a run may lie
            above = Path(document.input.path).absolute().parents[:_ABOVE] if isinstance(document, Result) else ()
            links = (Path.cwd(), *above)
        page = ""  # its address, seen from where the report is
        if self.html is not None:
            from urllib.parse import quote  # seldom needed

            start = Path.cwd() if self.output is None else self.output.absolute().parent
            page = quote(os.fsencode(os.path.relpath(self.html.absolute(), start)))  # names need not be UTF-8
        return View(
            full=self.full,
            brief=self.brief,
            top=self.top,
            table=self.table,
            width=terminal_width() if here else 120,
            colour=here and sys.stdout.isatty() and "NO_COLOR" not in os.environ,
            blocks=not here or draws_blocks(),
            links=links,
            page=page,
            pictures=drawn.pictures,
            old_pictures=drawn.old_pictures,
            undrawn=drawn.undrawn,
        )


def leave(document: Document) -> NoReturn:
    """Leave with the status that a document stands for."""
    raise typer.Exit(document.exit_code)


def _refuse_what_was_read(file: Path, document: Document) -> None:
    """Raise UsageError for a file that the report is about."""
    if isinstance(document, Result):
        refuse_inputs([file], document.input.files)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _pictures(analysis: Analysis | None, result: Document | None) -> tuple[tuple[Picture, ...], Message | None]:
    """Draw what was analyzed, from its columns; what cannot be read any more is told, and not drawn; return why."""
    if analysis is None or not isinstance(result, Result):
        return (), None
    if analysis.packed:
        tell(say("the page has no timeline of {path}: a pack has no tasks", path=shown(analysis.question.path)))
        return (), None
    from npuperf.advise import load_thresholds
    from npuperf.base.parallel import Engine
    from npuperf.show.draw import draw

    asked, failures = analysis.question, list[InputError]()
    pictures: tuple[Picture, ...] = ()
    try:
        engine = Engine.asked(asked.engine, asked.workers, asked.scheduler)
        thresholds = load_thresholds(asked.thresholds)
        pictures = draw(analysis.recording, result, thresholds, step=asked.step, engine=engine, failed=failures.append)
    except InputError as error:
        failures.append(error)
    if not failures:
        return pictures, None
    why = failures[0].what
    if pictures:
        tell(say("the page has no timeline of some devices of {path}: {why}", path=shown(asked.path), why=why))
    else:
        tell(say("the page has no timeline of {path}: {why}", path=shown(asked.path), why=why))
    return pictures, why

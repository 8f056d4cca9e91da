"""What is written beside a report where that is asked for: a page for the browser, and traces for other viewers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from npuperf.cli.output import refuse_what_was_read
from npuperf.cli.progress import tell
from npuperf.documents.document import Document
from npuperf.errors import UsageError
from npuperf.files import is_file, is_folder, is_special, shown, write_atomically
from npuperf.messages import say
from npuperf.render import View, render
from npuperf.webpage.page_file import is_page

if TYPE_CHECKING:  # most reports are text
    from npuperf.cli.answers import Question
    from npuperf.documents.analysis import Result
    from npuperf.documents.picture import Picture


class Pages(Struct, frozen=True):
    """Files to write. ``force``: any file that exists may be replaced; without it only an earlier page of ours."""

    html: Path | None = None
    trace: Path | None = None
    trace_full: Path | None = None
    force: bool = False

    def check(self, others: Mapping[str, Path | None]) -> None:
        """Raise UsageError or InputError, before any work is done, for files that could not be written afterwards.

        ``others``: what else is written, by its option.
        """
        named = {"--html": self.html, "--trace": self.trace, "--trace-full": self.trace_full}
        there = {option: path for option, path in named.items() if path is not None}
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

    def write_traces(self, question: Question, result: Result) -> None:
        """Write the traces that are wanted, from the columns of what was analyzed."""
        if self.trace is None and self.trace_full is None:
            return
        from npuperf.advise import load_thresholds
        from npuperf.traces.full import write_full
        from npuperf.traces.overlay import write_overlay

        thresholds = load_thresholds(question.request.thresholds)
        for file, write in ((self.trace, write_overlay), (self.trace_full, write_full)):
            if file is not None:
                refuse_what_was_read(file, result)
                tell(write(file, question.open(), result, thresholds))


def pictures_of(question: Question, result: Result) -> tuple[Picture, ...]:
    """Draw what was analyzed, from its columns; what cannot be read any more is told, and not drawn."""
    from npuperf.advise import load_thresholds
    from npuperf.errors import InputError
    from npuperf.parallel import Engine
    from npuperf.pictures.draw import draw

    asked = question.request
    try:
        engine = Engine.asked(asked.engine, asked.workers, asked.scheduler)
        return draw(question.open(), result, load_thresholds(asked.thresholds), step=asked.step, engine=engine)
    except InputError as error:
        path = shown(question.request.path)
        tell(say("the page has no timeline of {path}: {why}", path=path, why=error.what))
        return ()

"""Answers that were given before, to the same request about the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.cache import EntryKey, cache_of, paths_of
from npuperf.base.errors import InputError
from npuperf.base.files import shown
from npuperf.base.messages import Message, say
from npuperf.cli.progress import tell
from npuperf.model.result import Result
from npuperf.readers.find import Source, find

if TYPE_CHECKING:  # loaded where something may be known, and where nothing is
    from npuperf.base.cache import Cache
    from npuperf.readers.recording import Recording


class Question(Struct, frozen=True):
    """A request, and what lies at its path. ``cache`` and ``key``: where its answer is, or will be; None: nowhere."""

    request: AnalyzeRequest
    sources: list[Source]
    notes: list[Message]
    cache: Cache | None
    key: EntryKey | None

    @classmethod
    def of(cls, request: AnalyzeRequest, *, cached: bool) -> Question:
        """Look for files at the request's path. Raises InputError when nothing is there that could be read."""
        sources, notes = find(request.path)
        cache = cache_of(request.path, _files(sources)) if cached else None
        return cls(request, sources, notes, cache, _key(request, sources, notes) if cache else None)

    def answer(self) -> Result | None:
        """Return the answer, if it is known."""
        return self.cache.get(self.key, Result) if self.cache and self.key else None

    def keep(self, result: Result) -> None:
        """Remember the answer, unless files changed meanwhile: then who knows what was read."""
        if self.cache and self.key and self.key == _key(self.request, self.sources, self.notes):
            self.cache.put(self.key, result)

    def files(self) -> Iterator[Path]:
        """Yield the files that an answer is made of."""
        return _files(self.sources)

    def open(self) -> Recording:
        """Return what is to be read for an answer."""
        from npuperf.readers.recording import Recording

        return Recording(self.request.path, self.sources, self.notes, keep=False, cache=self.cache)


def _key(request: AnalyzeRequest, sources: list[Source], notes: list[Message]) -> EntryKey | None:
    """Return the key of the answer, which also depends on the files that this profile is held against."""
    try:
        beside = find(request.before)[0] if request.before else []
        logs = _logs(request.plog) if request.plog else []
    except InputError:  # whoever reads them says why
        return None
    files = (*_files(sources), *_files(beside), *logs)
    return EntryKey.of(request.path, files, request, sources, notes, beside)


def _logs(plog: Path) -> list[Path]:
    from npuperf.readers.context import plog_files  # seldom asked for

    return plog_files(plog, [])


def _files(sources: list[Source]) -> Iterator[Path]:
    return (file for source in sources for file in paths_of(source))


#: Makes an analysis; the function gets it if it would be the same again.
Analyze = Callable[[AnalyzeRequest, "Recording", Callable[[Result], None]], Result]


class Answers(Struct):
    """Analyses, known or made now by ``analyze``; what was made is remembered once everything was shown.

    ``debug``: what is known already is told.
    """

    analyze: Analyze
    cached: bool
    debug: bool
    _made: list[tuple[Question, Result]] = field(default_factory=list)

    def asked(self, request: AnalyzeRequest) -> Question:
        """Look for what is to be analyzed. Raises InputError when nothing is there that could be read."""
        return Question.of(request, cached=self.cached)

    def answer(self, question: Question) -> Result:
        """Return the analysis that was asked for."""
        known = question.answer()
        if known is None:
            return self.analyze(question.request, question.open(), lambda made: self._made.append((question, made)))
        if self.debug:
            name = shown(question.request.path)
            tell(say("{path}: the result is from the cache (--no-cache analyzes anew)", path=name))
        return known

    def keep(self) -> None:
        """Remember what was made."""
        for question, made in self._made:
            question.keep(made)

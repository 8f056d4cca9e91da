"""Answers that were given before, to the same request about the same files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from npuperf.analyze.request import AnalyzeRequest
from npuperf.cache.fingerprint import EntryKey, paths_of
from npuperf.cache.places import cache_of
from npuperf.documents.analysis import Result
from npuperf.errors import InputError
from npuperf.messages import Message
from npuperf.readers.find import Source, find

if TYPE_CHECKING:  # loaded where something may be known, and where nothing is
    from npuperf.cache.entries import Cache
    from npuperf.readers.recording import Recording


@dataclass(frozen=True, slots=True)
class Question:
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
        files = [file for source in sources for file in paths_of(source)]
        cache = cache_of(request.path, files) if cached else None
        return cls(request, sources, notes, cache, _key(request, sources, notes, files) if cache else None)

    def answer(self) -> Result | None:
        """Return the answer, if it is known."""
        return self.cache.get(self.key, Result) if self.cache and self.key else None

    def keep(self, result: Result) -> None:
        """Remember the answer."""
        if self.cache and self.key:
            self.cache.put(self.key, result)

    def open(self) -> Recording:
        """Return what is to be read for an answer."""
        from npuperf.readers.recording import Recording

        return Recording(self.request.path, self.sources, self.notes, keep=False, cache=self.cache)


def _key(request: AnalyzeRequest, sources: list[Source], notes: list[Message], files: list[Path]) -> EntryKey | None:
    """Return the key of the answer, which also depends on the files that this profile is held against."""
    try:
        beside = find(request.before)[0] if request.before else []
    except InputError:  # whoever reads them says why
        return None
    more = [file for source in beside for file in paths_of(source)]
    return EntryKey.of(request.path, (*files, *more, *_logs(request.plog)), request, sources, notes, beside)


def _logs(plog: Path | None) -> Iterator[Path]:
    """Yield CANN's logs in a folder, or the one that was named."""
    if plog is not None:
        yield from [plog] if plog.is_file() else plog.rglob("plog-*.log")

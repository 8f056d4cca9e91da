"""From a path to a result: find the files, recall the answer or work it out, keep it once everything was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from npuperf.analyze.request import Question
from npuperf.base.cache import Cache, EntryKey, cache_of, paths_of
from npuperf.base.errors import InputError
from npuperf.base.files import few, state_of
from npuperf.base.messages import Message, say
from npuperf.model.result import Result
from npuperf.readers.find import Source, find

if TYPE_CHECKING:  # loaded where no answer is known
    from npuperf.base.parallel import Engine
    from npuperf.readers.recording import Recording

#: What is told of bytes read, and what is called after each rank.
Watched = tuple[Callable[[int], None] | None, Callable[[], None] | None]


def _unheard(_: object) -> None:
    """Do nothing."""


def _unwatched(*_: object) -> AbstractContextManager[Watched]:
    return nullcontext((None, None))


class Observer(Struct, frozen=True):
    """Who hears of an analysis while it goes on: nobody, unless somebody is named.

    ``tell`` gets what is to be said; ``begin`` the path, once everything was refused that could be; ``recalled`` a path
    of which the answer was known. ``loading`` is entered while modules are loaded, ``reading`` while a recording is
    read: it answers what hears of that.
    """

    tell: Callable[[Message], None] = _unheard
    begin: Callable[[Path], None] = _unheard
    recalled: Callable[[Path], None] = _unheard
    loading: Callable[[], AbstractContextManager[None]] = nullcontext
    reading: Callable[[Recording, Engine, Question], AbstractContextManager[Watched]] = _unwatched


class Analysis:
    """A question, the files that it is about, and what became of it. ``torn``: files changed while they were read."""

    def __init__(
        self,
        question: Question,
        recording: Recording | None = None,
        *,
        answer: Result | None = None,
        cached: bool = False,
    ) -> None:
        """Look for files at the question's path, unless a recording of it is open already, which is asked then.

        ``answer``: what a pack at the path has, of which there are no files. Raises InputError when nothing is there
        that could be read.
        """
        self.question = question
        self.result = answer
        self._cache: Cache | None = None
        self._key: EntryKey | None = None
        self._settled = False
        self._states: dict[Path, tuple[int, ...]] = {}
        self.torn = False
        self.packed = answer is not None
        if self.packed:
            self.sources: Sequence[Source] = ()
            return
        if recording is not None:
            self.sources = recording.sources
            self.recording = recording
            return
        self.sources, self._notes = find(question.path)
        found = ((file, state_of(file)) for file in self.files)
        self._states = {file: state for file, state in found if state is not None}
        if cached:
            self._cache = cache_of(question.path, self.files)
        if self._cache is not None:
            self._key = self._now()

    @property
    def files(self) -> list[Path]:
        """The files that the answer is made of."""
        return [file for source in self.sources for file in paths_of(source)]

    @cached_property
    def recording(self) -> Recording:
        """What is read for the answer, and for pictures of it."""
        from npuperf.readers.recording import Recording

        return Recording(self.question.path, self.sources, self._notes, keep=False, cache=self._cache)

    def run(self, observer: Observer) -> Result:
        """Return the answer, as it is known or worked out now. Raises as :func:`npuperf.analyze.work.work_out` does."""
        if self.result is not None:  # which a pack has
            return self.result
        self.result = self._cache.get(self._key, Result) if self._cache and self._key else None
        if self.result is not None:
            observer.recalled(self.question.path)
            return self._matched(self.result)
        with observer.loading():
            from npuperf.analyze.work import work_out
            from npuperf.base.parallel import Engine
        question, recording = self.question, self.recording
        engine = Engine.asked(question.engine, question.workers, question.scheduler)
        with observer.reading(recording, engine, question) as (progress, finished):
            self.result, self._settled = work_out(question, recording, engine, progress, finished)
        if told := self.tell_changed(observer):
            source = self.result.input
            source = structs.replace(source, warnings=[*told, *source.warnings])
            self.result = structs.replace(self.result, input=source)
        return self._matched(self.result)

    def _matched(self, result: Result) -> Result:
        """Return an answer. Raises UsageError where a change that is asked about names nothing in it."""
        if self.question.what_if:
            from npuperf.device.whatif import refuse_unmatched  # seldom asked for

            refuse_unmatched(self.question.what_if, result)
        return result

    def tell_changed(self, observer: Observer) -> list[Message]:
        """Say which files have changed since they were found: nobody knows what was read of them, so it is not kept."""
        now = {file: state_of(file) for file in self._states}
        changed = [file for file, was in self._states.items() if not was or now[file] not in (was, None)]
        told = few(
            say("{path}: changed while it was read, so what is told may be of neither state, and none of it is kept: "
                "analyze it again once it is whole", path=str(file)) for file in changed
        )  # fmt: skip
        for message in told:
            observer.tell(say("warning: {warning}", warning=message))
            self.torn = True
        for file in changed:  # which is said once
            del self._states[file]
        return told

    def keep(self) -> None:
        """Remember what was worked out, unless files changed meanwhile."""
        if not self.torn and self._settled and self._cache and self._key and self._key == self._now():
            self._cache.put(self._key, self.result)

    def _now(self) -> EntryKey | None:
        """Return the key of the answer, which also depends on the files that this profile is held against."""
        question = self.question
        try:
            beside = [source for path in (question.before, question.other) if path for source in find(path)[0]]
            logs: list[Path] = []
            if question.plog:
                from npuperf.readers.context import plog_files  # seldom asked for

                logs = plog_files(question.plog, [])
        except InputError:  # whoever reads them says why
            return None
        files = (*self.files, *(file for source in beside for file in paths_of(source)), *logs)
        return EntryKey.of(question.path, files, question, self.sources, self._notes, beside)

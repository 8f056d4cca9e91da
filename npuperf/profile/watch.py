"""What is done while the program runs: saying how far it is, and acting when its data is too large or complete."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from npuperf.documents.recorded import ProcessStatus
from npuperf.escape import for_shell
from npuperf.messages import Message, say, say_n, size
from npuperf.process import Beside
from npuperf.profile.evidence import RecordingJob, Tell
from npuperf.profile.folder import RunFolder, bytes_below
from npuperf.profile.processes import all_recorded, read_all, state_of
from npuperf.profile.request import ProfileRequest

#: Seconds between two lines that only count steps, between two looks at size and processes, and between two lines
#: that only say that something goes on.
_PATIENCE: Final = 10.0
_WEIGH: Final = 1.0
_BEAT: Final = 30.0


class Watch:
    """Looks at the processes of a run.

    Whoever watches gets a line whenever the first of them enters another phase. When everything has been recorded and
    the program goes on, it is ended or exported beside, as was asked, or it is said what can be typed meanwhile.
    """

    def __init__(self, folder: RunFolder, job: RecordingJob) -> None:
        self.folder, self.job, self.request = folder, job, job.request
        self._said = ("", 0.0)
        self._looked = 0.0
        self._too_much: Message | None = None
        self._recorded_at: float | None = None
        self._spoken = 0.0
        self._exporter: Beside | None = None

    def tick(self) -> bool:
        """Look once, and return whether the program is to end."""
        now = time.monotonic()
        if self.job.progress is not None:
            self._say_news(self.job.progress)
        if now - self._looked < _WEIGH:
            return False
        self._looked = now
        if self.request.max_size is not None and self._too_much is None:
            self._weigh(self.request.max_size)
        if self._recorded_at is None:
            if self.request.whole_run or not all_recorded(read_all(self.folder.status), self.request):
                return False
            self._recorded_at = now
            if self.request.export_early and not self.request.stop_after:
                self._export_beside()
        return self._after(now - self._recorded_at)

    def end(self) -> None:
        """End the export beside the program, if it still works; what it exports is waited for by who needs it."""
        if self._exporter is not None:
            self._exporter.end()

    def found(self, processes: Sequence[ProcessStatus]) -> list[Message]:
        """Say where recording was stopped because of the data's size, or that it grew too large unseen.

        torch_npu's writer thread sometimes ends as it begins; its data then reaches the disk only at the end.
        """
        limit = self.request.max_size
        if limit is None:
            return []
        stopped = [p for p in processes if p.stopped is not None]
        if stopped:
            return [say("{process}: recording stopped at step {step}: {why}",
                        process=p.name, step=p.stopped, why=self._too_much) for p in stopped]  # fmt: skip
        grown = bytes_below(self.folder.raw)
        if grown <= limit:
            return []
        return [say("{why}; recording had ended before this was noticed", why=_too_much(grown, limit))]

    def _after(self, passed: float) -> bool:
        """Everything was recorded ``passed`` seconds ago: return whether the program is to end."""
        if self.request.stop_after:
            if not self._spoken:
                self._spoken = passed or 1.0
                self.job.tell(say("everything has been recorded: ending the program, as --stop-after asks"))
            elif passed - self._spoken >= _BEAT:
                self._spoken = passed
                self.job.tell(
                    say("the program has been asked to end (SIGTERM) and goes on; Ctrl-C three times kills it")
                )
            return True
        if self._exporter is not None:
            if self._exporter.ended == 0 and not self._spoken:
                self._spoken = passed
                self.job.tell(say("exported; the program goes on. Meanwhile, elsewhere: npuperf analyze {folder}",
                                  folder=for_shell(self.folder.shown)))  # fmt: skip
        elif passed >= _PATIENCE and not self._spoken:
            self._spoken = passed
            self.job.tell(say("everything has been recorded; the program goes on. Meanwhile, elsewhere: "
                              "npuperf profile --export {folder}; Ctrl-C here ends the program and keeps the data",
                              folder=for_shell(self.folder.shown)))  # fmt: skip
        return False

    def _export_beside(self) -> None:
        """Start what a user would type meanwhile."""
        chosen = ["--python", self.request.python] if self.request.python else []
        limit = self.request.export_timeout
        chosen += [] if limit is None else ["--export-timeout", str(limit)]
        call = [sys.executable, "-m", "npuperf", "profile", *chosen, "--export", str(self.folder.path)]
        if "export" in self.request.given:
            call += ["--export", self.request.export]
        with suppress(OSError):
            self._exporter = Beside(call, self.job.environment, self.folder.beside_log)
            self.job.tell(say("everything has been recorded: exporting it beside the program"))

    def _say_news(self, progress: Tell) -> None:
        first = next((p for p in read_all(self.folder.status) if p.state != "left out"), None)
        if first is not None and self._is_news(first):
            news = _progress(first, self.request)
            progress(news if first.rank is None else say("{news} (rank {rank})", news=news, rank=first.rank))

    def _is_news(self, process: ProcessStatus) -> bool:
        """Tell whether to speak of it: in another state, or still waiting after some time."""
        state, when = self._said
        now = time.monotonic()
        if process.state == state and not (state.startswith("wait") and now - when > _PATIENCE):
            return False
        self._said = (process.state, now)
        return True

    def _weigh(self, limit: int) -> None:
        grown = bytes_below(self.folder.raw)
        if grown > limit:
            self._too_much = _too_much(grown, limit)
            with suppress(OSError):  # a new name needs no space, unlike a new file
                self.folder.go_on.rename(self.folder.stop)


def _progress(process: ProcessStatus, request: ProfileRequest) -> Message:
    if process.state == "waiting":
        return say("step {step} of {wait} before recording", step=process.step, wait=request.wait)
    if process.state in ("warming up", "recording"):
        return _position(process, request)
    if process.state == "recorded":
        count = len(process.recorded)
        return say_n("recorded {n} step; the program goes on", "recorded {n} steps; the program goes on", count)
    return state_of(process)


def _position(process: ProcessStatus, request: ProfileRequest) -> Message:
    state, step = state_of(process), process.step
    if not process.recorded or request.whole_run:
        return say("{state}: step {step}", state=state, step=step)
    number = (len(process.recorded) - 1) % request.active + 1
    return say("{state}: step {step}, {number} of {active}",
               state=state, step=step, number=number, active=request.active)  # fmt: skip


def _too_much(grown: int, limit: int) -> Message:
    return say("the data has grown to {grown}, more than --max-size {limit}", grown=size(grown), limit=size(limit))

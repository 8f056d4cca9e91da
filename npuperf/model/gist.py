"""What is told of a result to who wants little of it: its gist, and all about one rule."""

from __future__ import annotations

from typing import Literal

from npuperf.base.escape import for_shell
from npuperf.base.messages import Message
from npuperf.model.comparison import Outcome
from npuperf.model.document import Document
from npuperf.model.parts import Model, Tool
from npuperf.model.result import Basis, Bound, Finding, Severity


class RuleLimit(Model, frozen=True, kw_only=True):
    """A threshold that a rule judges by: its value in the run, the one it has where nothing changes it, its source."""

    name: str
    value: float
    shipped: float
    source: str


class Explanation(Document, frozen=True, kw_only=True):
    """A rule, and what it found in a run: the document of ``npuperf analyze --explain RULE``.

    ``asks``: what it looks for, as its author wrote it (English); null where that says no more than the title.
    ``of``: what it is asked of. ``relieves``: the limit that its problem is about; ``gpus``: it is asked of traces of
    GPUs, too. ``needs``: data without which it cannot tell; ``requires``: what else a run has to be like.
    ``findings``: its answers, whole; empty where it was not asked.
    """

    tool: Tool
    path: str
    rule: str
    title: Message
    asks: str | None
    source: Message
    of: list[Literal["device", "ranks", "memory"]]
    relieves: Bound | None
    gpus: bool
    needs: list[Message]
    requires: list[Message]
    limits: list[RuleLimit]
    findings: list[Finding]

    @property
    def place(self) -> str:
        """The path that was analyzed, as a shell takes it."""
        return for_shell(self.path)


class GistFinding(Model, frozen=True, kw_only=True):
    """A problem, the gravest first. ``id``: a rule's name, of which --explain tells more, or ``root:`` and its kind.

    ``gain``: what it saves, in words; ``evidence``: its numbers and words, without lists; ``next``: what to do.
    """

    id: str
    severity: Severity
    title: str
    rank: int | None
    gain: str | None
    gain_ns_per_step: tuple[int, int] | None
    evidence: dict[str, bool | int | float | str]
    next: str | None


class GistComparison(Model, frozen=True, kw_only=True):
    """What a comparison says: by how much the mean step of ``new`` differs from that of ``old``, and mostly why."""

    old: str
    new: str
    outcome: Outcome
    delta_ns: int | None
    interval_ns: tuple[int, int] | None
    parts: list[str]


class Gist(Document, frozen=True, kw_only=True):
    """A result in eight kilobytes: the document of ``npuperf analyze --brief --format json``. Sentences are English.

    ``evidence``: the numbers that the verdict was judged by; ``step_ns``: the mean step of the devices, or of the job;
    null where no step was recorded. Of ``gates`` those that stop a pipeline come first, and why is left out.
    ``findings`` are the first of ``problems``, as many as there is room for; ``cannot_tell``: rules that lack data;
    ``warnings``: how many the whole document has; ``next``: commands that tell more.
    """

    tool: Tool
    path: str
    bound: Bound
    basis: Basis
    reason: str
    evidence: dict[str, float | None]
    step_ns: int | None
    steps: int
    ranks: int
    devices: int
    compared: GistComparison | None
    problems: int
    findings: list[GistFinding]
    cannot_tell: list[str]
    warnings: int
    next: list[str]

"""What is said of an analysis in a dozen lines, and in one: the verdict, how long a step is, gates, what to do first.

``brief_of`` says once what that is; text, Markdown and the last line of every report are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.escape import for_shell
from npuperf.base.messages import NOTHING, Message, Parameter, chain, first_few, first_of, say, say_n, series
from npuperf.base.messages import text as english
from npuperf.model.document import Gate
from npuperf.model.job_result import Cluster
from npuperf.model.result import Finding, Result, Severity
from npuperf.show import job_text, words
from npuperf.show.formats import View
from npuperf.show.memory_text import memory_lines, only_memory
from npuperf.show.sheet import gate_line, problem_lines
from npuperf.show.words import BOUND, OUTCOME, WORDS, Line

if TYPE_CHECKING:
    from npuperf.model.gist import Gist, GistFinding

#: A screen of 80 columns has no more lines of it, but for answers to the user's own questions.
_LINES: Final = 12
#: How much of what to do is said, and whether the verdict's whole reason is, from the most to the least.
_ROOMS: Final = ((3, True), (2, True), (3, False), (2, False), (1, True), (1, False), (0, False))
#: Of gates and of what a difference consists of no more is said.
_GATES, _PARTS = 2, 3


class Advice(Struct, frozen=True):
    """One thing to know and, if ``next`` says so, to do: a root of waiting (``root:stage``) or a finding, by its rule.

    ``gain`` says what it saves, where that is known; ``of_memory``: no time, but memory.
    """

    id: str
    severity: Severity
    title: Message
    gain: Message | None
    next: Message | None
    of_memory: bool = False


class Brief(Struct, frozen=True):
    """The verdict (``bound``: a limit, or the outcome of a comparison) and its reason, then what follows from it.

    ``compared``: the sides of a comparison, new and old; ``run``: steps and their length; ``length`` alone, or from
    what to what it changed; ``parts`` of a difference, the greatest first; ``stopping``: those of the ``gates`` that
    stop a pipeline; ``advice`` in the report's order, but what there is to do before what is only to be known.
    """

    compared: tuple[str, str] | None
    bound: str
    word: Message
    reason: Message
    run: Message | None
    length: Message | None
    parts: tuple[Message, ...]
    gates: tuple[Gate, ...]
    stopping: tuple[Gate, ...]
    advice: tuple[Advice, ...]


def brief_of(result: Result) -> Brief:
    """Return the gist of an analysis, or of a comparison."""
    comparison, verdict = result.comparison, result.verdict
    bound: str = verdict.bound
    word, reason = BOUND[verdict.bound], words.reason_of(verdict)
    run: Message | None = job_text.run_line(result)
    length, parts = job_text.step_length(result), tuple[Message, ...]()
    if only_memory(result):
        run, reason = None, next((say("{peak}", peak=one.content) for one in memory_lines(result)), reason)
    if comparison is not None:
        from npuperf.show import comparison_text as compared  # of no use without one

        bound, word = comparison.verdict, OUTCOME[comparison.verdict]
        reason, length = compared.reason_of(comparison), compared.length_line(comparison)
        parts = tuple(compared.largest_parts(comparison, _PARTS))
    return Brief(
        compared=None if comparison is None else (comparison.new, comparison.old),
        bound=bound,
        word=word,
        reason=reason,
        run=run,
        length=length,
        parts=parts,
        gates=result.gates,
        stopping=result.stopping,
        advice=tuple(sorted(_advice(result, result.cluster), key=lambda one: one.next is None)),
    )


def _advice(result: Result, cluster: Cluster | None) -> Iterator[Advice]:
    """Yield why ranks wait, then what else was found."""
    said = set()
    if cluster is not None:
        for root in job_text.roots_worth(cluster):
            said.add(root.title)
            yield Advice(f"root:{root.kind}", "high", root.title, job_text.root_gain(root, cluster), root.next)
    for finding, devices in words.folded(result.findings, "problem"):
        if finding.title not in said:
            title = chain(finding.title, words.elsewhere(devices))
            yield Advice(
                finding.rule, finding.severity, title, words.gain(finding), finding.next, finding.gain_bytes is not None
            )


def recap(result: Result) -> Message:
    """Return the last line of a report: the verdict, the step, what to do first, and the gates."""
    brief = brief_of(result)
    decided = brief.bound not in ("unknown", "cannot_tell")
    told: Message | None = None
    steps = sorted((one for one in brief.advice if one.next is not None), key=lambda one: one.of_memory)
    first = next(iter(steps), None)
    if brief.compared is not None:
        told = say("most of it: {part}", part=brief.parts[0]) if brief.parts and decided else None
    elif first is not None and first.next is not None:
        told = say("first: {step}", step=chain(first_of(first.next), first.gain))
    why = None if decided else first_of(brief.reason)
    return chain(brief.word, brief.length, why, told, _gates_line(brief), by=" · ")


def _gates_line(brief: Brief) -> Message | None:
    """Name the gates that failed or cannot be judged, or say that all passed."""
    failed, unknown = ([g.expr for g in brief.stopping if g.status == how] for how in ("fail", "cannot_tell"))
    parts = []
    if failed:
        parts.append(
            say_n("gate failed: {names}", "{n} gates failed: {names}", len(failed), names=first_few(failed, _GATES))
        )
    if unknown:
        parts.append(say_n("gate cannot be judged: {names}", "{n} gates cannot be judged: {names}", len(unknown),
                           names=first_few(unknown, _GATES)))  # fmt: skip
    if parts or not brief.gates:
        return chain(*parts) if parts else None
    return say_n("the gate passed", "all {n} gates passed", len(brief.gates))


def lines(brief: Brief, also: Sequence[Line] = (), *, whole: bool = True) -> Iterator[Line]:
    """Yield everything but what to do, as lines; ``whole``: with the whole reason of the verdict.

    ``also``: what the document says beside it: answers to what-ifs, and what went wrong.
    """
    yield Line(brief.reason if whole else first_of(brief.reason), "bold", brief.word)
    if brief.compared is None:
        yield from () if brief.run is None else [Line(brief.run)]
    elif brief.length is not None:
        yield Line(brief.length)
    yield from () if not brief.parts else [Line(say("most of it: {parts}", parts=series(brief.parts, "; ")))]
    yield from also
    shown = brief.stopping[:_GATES] or brief.gates[:1]
    for gate in shown:
        said = gate_line(gate)
        content = said.content if isinstance(said.content, Message) else NOTHING
        yield Line(first_of(content), said.style)  # what explains it, the parts tell
    if (rest := len(brief.gates) - len(shown)) > 0:
        yield Line(say_n("{n} more gate", "{n} more gates", rest), "dim")


def beside(result: Result) -> list[Line]:
    """Return the answers to what-ifs, and what went wrong."""
    return [*words.asked_lines(result), *problem_lines(result)]


def render_brief(result: Result, view: View) -> str:
    """Return the gist as text: a dozen lines."""
    from rich.table import Table

    from npuperf.show.terminal import Text, line, line_text, print_all

    brief, path = brief_of(result), result.input.path
    about = path if brief.compared is None else say("{new} against {old}", new=brief.compared[0], old=brief.compared[1])
    title = Text.assemble((f"npuperf {result.tool.version}", "bold"), "  ", line(about))
    more = line(say("the whole report: npuperf analyze {path}", path=for_shell(path)), "dim")
    shown, lines_at_most = "", _LINES + print_all(map(line_text, words.asked_lines(result)), view).count("\n")
    for most, whole in _ROOMS:
        advice = Table.grid(padding=(0, 2, 0, 0))
        for one in brief.advice[:most]:
            advice.add_row(line(WORDS[one.severity], "bold"), line(chain(one.title, one.gain)))
            if one.next is not None:
                advice.add_row("", Text.assemble(("→ ", "bold green"), line(one.next, "green")))
        body = map(line_text, lines(brief, beside(result), whole=whole))
        shown = print_all([title, *body, *([advice] if advice.row_count else []), more], view)
        if shown.count("\n") <= lines_at_most:
            break
    return shown


def advice_lines(brief: Brief, most: int = _ROOMS[0][0]) -> Iterator[Line]:
    """Yield what to do, a line each."""
    for one in brief.advice[:most]:
        step = one.next and say("→ {step}", step=one.next)
        yield Line(chain(chain(one.title, one.gain), step, by=" "), "", WORDS[one.severity])


# -- The gist as JSON, for who reads with a program, and has little room.

#: No gist has more bytes, whatever is in the document.
MOST_BYTES: Final = 8 << 10
#: Of findings there are so many, and texts have so many letters, from the most to the least.
_SIZES: Final = ((10, 300), (6, 200), (3, 160), (1, 100), (0, 40), (0, 8))
#: Of a finding's evidence, rules without an answer, gates and rules to explain there are no more.
_NUMBERS, _UNTOLD, _ASKED, _EXPLAINED = 6, 60, 8, 3


def gists_of(result: Result) -> Iterator[Gist]:
    """Yield the gist, and again with fewer findings and shorter texts, for who has no room for the one before."""
    brief = brief_of(result)
    for findings, letters in _SIZES:
        yield _gist(result, brief, findings, letters)


def _gist(result: Result, brief: Brief, most: int, letters: int) -> Gist:
    """Return the gist with so many findings, and no text that is longer than so many letters."""
    from npuperf.model.gist import Gist, GistComparison  # programs alone ask for it

    def short(said: Parameter) -> str:
        told = english(said)
        return told if len(told) <= letters else told[: letters - 1] + "…"

    comparison, digest = result.comparison, result.digest
    known = {key: f for f, _ in reversed(words.folded(result.findings, "problem")) for key in (f.rule, f.title)}
    shown = [(one, known.get(one.id) or known.get(one.title)) for one in brief.advice[:most]]
    stepped = digest is not None and bool(digest.steps)
    step = digest.total_ns // digest.windows if digest is not None and stepped and digest.windows else None
    gates = [*brief.stopping, *(gate for gate in result.gates if gate not in brief.stopping)]
    answered = {f.rule for f in result.findings if f.status != "cannot_tell"}
    return Gist(
        tool=replace(result.tool, version=short(result.tool.version)),
        path=short(result.input.path),
        problem=result.problem
        and replace(result.problem, what=say("{text}", text=short(result.problem.message)), hint=None),
        gates=tuple(
            replace(gate, expr=short(gate.expr), reason=None, over=(), explained_by=(), causes=(), runs=())
            for gate in gates[:_ASKED]
        ),
        bound=result.verdict.bound,
        basis=result.verdict.basis,
        reason=short(result.verdict.reason),
        evidence={short(name): n for name, n in [*result.verdict.evidence.items()][: 2 * _NUMBERS]},
        step_ns=result.cluster.step_ns if result.cluster is not None and stepped else step,
        steps=len(digest.steps) if digest is not None else 0,
        ranks=len({device.rank for device in result.devices}),
        devices=len(result.devices),
        compared=None
        if comparison is None
        else GistComparison(
            old=short(comparison.old),
            new=short(comparison.new),
            outcome=comparison.verdict,
            delta_ns=comparison.delta_ns,
            interval_ns=comparison.interval_ns,
            parts=[short(part) for part in brief.parts],
        ),
        problems=len(brief.advice),
        findings=[_told(one, found, short) for one, found in shown],
        cannot_tell=[*dict.fromkeys(short(f.rule) for f in result.findings if f.rule not in answered)][:_UNTOLD],
        warnings=len(result.input.warnings),
        next=_commands(result, [found for _, found in shown if found is not None], letters),
    )


def _told(one: Advice, found: Finding | None, short: Callable[[Parameter], str]) -> GistFinding:
    """Return a piece of advice, with what is known of it as numbers; ``short`` returns a text's begin."""
    from npuperf.model.gist import GistFinding

    numbers = {} if found is None else found.evidence
    told = {name: value for name, value in numbers.items() if isinstance(value, bool | int | float | str)}
    return GistFinding(
        id=short(one.id if found is None else found.rule),
        severity=one.severity,
        title=short(one.title),
        rank=None if found is None else found.rank,
        gain=None if one.gain is None else short(one.gain),
        gain_ns_per_step=None if found is None else found.gain_ns_per_step,
        evidence={short(name): short(v) if isinstance(v, str) else v for name, v in [*told.items()][:_NUMBERS]},
        next=None if one.next is None else short(one.next),
    )


def _commands(result: Result, shown: Sequence[Finding], letters: int) -> list[str]:
    """Return what to run next; none where the path is so long that a command would be cut."""
    path = for_shell(result.input.path)
    if len(path) > letters:
        return []
    rules = dict.fromkeys(finding.rule for finding in shown)
    more = [f"npuperf analyze {path} --explain {rule}" for rule in [*rules][:_EXPLAINED]]
    if result.cluster is not None:
        more.append(f"npuperf analyze {path} --table ranks")
    return [*more, f"npuperf analyze {path} --table operators", f"npuperf analyze {path} --full --format json"]

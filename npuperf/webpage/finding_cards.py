"""Findings and roots of waiting as cards: what, how much, from which numbers, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from npuperf.documents.analysis import Finding, Result
from npuperf.documents.cluster import Cluster, Root
from npuperf.escape import for_shell
from npuperf.messages import Message, Parameter, Quantity, chain, ns, number, say, say_n, share, size
from npuperf.render.cluster_rows import roots_by_gain
from npuperf.render.cluster_words import root_line, taking_line
from npuperf.render.language import text
from npuperf.render.words import WORDS, device_name, elsewhere, folded, gain
from npuperf.webpage.sheet import Card, EvidenceTable, NamedValue
from npuperf.webpage.whereabouts import Whereabouts

#: Of a list in the evidence, so many are shown.
_FEW: Final = 8
#: How numbers of the evidence are shown, by the ends of their names.
_UNITS: Final = (
    (("_ns", "_ns_per_step"), ns),
    (("_bytes", "bytes"), lambda value: size(round(value))),
    (("_share", "share", "_share_of_compute", "share_of_compute", "_share_of_busy_core_time"), share),
)  # fmt: skip
#: A command in a sentence, and what of it stands for the path of what was analyzed.
_COMMAND: Final = re.compile(r"npuperf analyze PATH(?: --(?:rank|table|step) \w+)*")
_PATH: Final = re.compile(r"\bPATH\b")
_HOLDS: Final = {True: "holds", False: "fails", None: "unknown"}


def finding_cards(result: Result, places: Whereabouts) -> tuple[Card, ...]:
    """Return the problems, each rule's once, the gravest of several devices' standing for all."""
    several = len(result.devices) > 1
    shown = result.devices if several else []
    first = {(d.rank, d.device): say("look first at {device}", device=device_name(d)) for d in shown}
    return tuple(
        _finding_card(f, _about(first.get((f.rank, f.device)), elsewhere(devices)), result, places)
        for f, devices in folded(result.findings, "problem")
    )


def _about(*parts: Message | None) -> Message | None:
    return chain(*parts) if any(parts) else None


def _finding_card(f: Finding, about: Message | None, result: Result, places: Whereabouts) -> Card:
    refute = f.refute and say("not the cause if {condition}", condition=f.refute)
    source = f.source and say("source: {source}", source=f.source)
    advice = tuple(step for step in (f.next, *f.alternatives) if step is not None)
    return Card(
        severity=WORDS[f.severity],
        mark=f.severity,
        title=f.title,
        about=about,
        gain=gain(f),
        share=_greatest(f.gain_pct),
        facts=tuple(_facts(f.evidence)),
        tables=tuple(_tables(f.evidence)),
        advice=advice,
        commands=tuple(_commands(advice, result)),
        code=f.code,
        presupposed=tuple((_HOLDS[p.holds], p.what) for p in f.preconditions),
        excluded=tuple(say("{advice}: {because}", advice=e.advice, because=e.because) for e in f.excluded),
        grounds=tuple(part for part in (refute, source) if part),
        go=places.of_finding(f),
    )


def _greatest(gain_pct: tuple[float, float] | None) -> float:
    return min(max(gain_pct[1] if gain_pct else 0.0, 0.0), 100.0)


def root_cards(result: Result, cluster: Cluster) -> tuple[Card, ...]:
    """Return the roots of waiting, those first whose repair saves most."""
    return tuple(_root_card(root, cluster, result) for root in roots_by_gain(cluster))


def _root_card(root: Root, cluster: Cluster, result: Result) -> Card:
    advice = () if root.next is None else (root.next,)
    return Card(
        severity=WORDS.get(root.kind, say("{kind}", kind=root.kind)),
        mark="root",
        title=root_line(root, cluster),
        about=taking_line(root),
        gain=say("{share} of all waiting, {wait} per step",
                 share=share(root.share), wait=ns(root.wait_ns / max(cluster.steps, 1))),
        share=min(100 * root.share, 100.0),
        advice=advice,
        commands=tuple(_commands(advice, result)),
    )  # fmt: skip


def _commands(advice: Sequence[Message], result: Result) -> Iterator[str]:
    """Yield the commands in what is advised, with the path of what was analyzed, fit to be pasted into a shell."""
    found = (text(step, lambda _: "") for step in advice)  # without names, which anybody may have written
    for command in dict.fromkeys(match[0] for said in found for match in _COMMAND.finditer(said)):
        yield _PATH.sub(lambda _: for_shell(result.input.path), command)


def _facts(evidence: dict[str, Any]) -> Iterator[NamedValue]:
    """Yield what of the evidence is one value, or a few, where it is known; names are those of JSON."""
    for name, value in evidence.items():
        if value not in (None, [], {}) and not _is_rows(value):
            yield NamedValue(name, _shown(name, value))


def _shown(name: str, value: Any) -> Parameter:
    if isinstance(value, bool):
        return WORDS["yes" if value else "no"]
    if isinstance(value, int | float):
        known = next((unit(value) for ends, unit in _UNITS if name.endswith(ends)), None)
        return known or (Quantity(value, "count") if isinstance(value, int) else number(value))
    if isinstance(value, dict):
        return chain(*(say("{name} {value}", name=str(k), value=_shown(name, v)) for k, v in value.items()), by=", ")
    if isinstance(value, list | tuple):
        more = say_n("and {n} more", "and {n} more", len(value) - _FEW) if len(value) > _FEW else None
        return chain(*(say("{value}", value=_shown(name, item)) for item in value[:_FEW]), more, by=", ")
    return None if value is None else value if isinstance(value, str | Message) else str(value)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables(evidence: dict[str, Any]) -> Iterator[EvidenceTable]:
    for name, value in evidence.items():
        if _is_rows(value):
            headers = tuple(dict.fromkeys(str(key) for row in value[:_FEW] for key in row))
            used = tuple(key for key in headers if any(row.get(key) not in (None, "", [], {}) for row in value[:_FEW]))
            rows = tuple(tuple(_shown(key, row.get(key)) for key in used) for row in value[:_FEW])
            yield EvidenceTable(name, used, rows, len(value) - len(rows))

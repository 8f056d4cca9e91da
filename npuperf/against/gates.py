"""The grammar of gates, the same for all verbs.

    [warn:|fail:] [AGGREGATE(]METRIC[)] OPERATOR LIMIT[,FLOOR] [for K of N]

A limit with a sign is a change against the baseline, one without a figure. The condition is what makes the gate fail,
unless its metric expects something (``verdict=host``). A misspelt gate never passes: it is a UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import copysign, isfinite
from pathlib import Path
from typing import Final, Literal, NoReturn, get_args

from msgspec import Struct

from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import is_file, is_there, shown
from npuperf.base.messages import Message, chain, say, series
from npuperf.base.notes import read_yaml
from npuperf.base.units import NS_PER_UNIT
from npuperf.model.document import Level, Metric, MetricUnit, metrics_of

#: Over the steps; ``each``: every step by itself.
Aggregate = Literal["median", "p95", "max", "mean", "each"]
Sign = Literal[">", ">=", "<", "<=", "=", "!="]

#: No gate asks for more runs than are kept.
MOST_RUNS: Final = 20
#: Characters of a gate, and of one that cannot be read how many are shown.
_LONGEST: Final = 500
_SHOWN: Final = 100
_QUOTED: Final = "\"[^\"]*\"|'[^']*'"
_IN_QUOTES: Final = re.compile(f"({_QUOTED})")
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_UNIT: Final = r"%|(?!for\b)[a-zµμ]+"
_FORM: Final = re.compile(
    rf"""\s*(?:(?P<level>warn|fail)\s*:(?!:)\s*)?
    (?:(?P<aggregate>\w+)\s*(?P<opened>\())?\s*
    (?P<metric>[a-z_][\w.]*)\s*
    (?: :\s*(?P<of>{_QUOTED}|[^\s<>=!()\[\],"']+)
      | \[\s*(?P<inside>{_QUOTED}|[^<>=!()\[\]"']*?)\s*\])?\s*
    (?P<closed>\))?\s*
    (?: (?P<sign>>=|<=|!=|==?|>|<)\s*
      (?: (?P<change>[+-])?\s*(?P<limit>{_NUMBER})\s*(?P<unit>{_UNIT})?
          (?:\s*,\s*(?P<floor>{_NUMBER})\s*(?P<floor_unit>{_UNIT})?)?
        | (?P<word>[a-z_]+))
    )?
    (?:\s+for\s+(?P<times>[0-9]{{1,9}})\s+of\s+(?P<runs>[0-9]{{1,9}}))?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_BYTES: Final = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
#: What a limit's unit is worth in the metric's own.
_UNITS: Final[dict[MetricUnit, dict[str, int]]] = {
    "percent": {"": 1, "%": 1},
    "ns": {**NS_PER_UNIT, "µs": 1_000, "μs": 1_000},
    "count": {"": 1},
    "bytes": {"": 1, **_BYTES},
    "mhz": {"": 1, "mhz": 1},
}
_SPELLED: Final[dict[MetricUnit, tuple[tuple[str, int], ...]]] = {
    "percent": (("%", 1),),
    "ns": (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)),
    "count": (("", 1),),
    "bytes": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)),
    "mhz": (("MHz", 1),),
}
_PLAIN: Final = re.compile(r"[^\s<>=!()\[\],\"']+")


class Condition(Struct, frozen=True):
    """A gate as it was asked for, of which ``expr`` has the words.

    ``limit`` and ``floor`` are as the metric counts: percent, ns, bytes, MHz or things; with ``relative`` a change
    against the baseline, and with ``share`` percent of the baseline's value. ``word``: the limit where that is one.
    ``aggregate``: None where none is named, which is the median of the steps, or the metric's one value. ``of``: it
    fails if ``times`` of so many runs failed, None where every run counts by itself.
    """

    expr: str
    metric: Metric
    sign: Sign
    limit: float = 0.0
    argument: str | None = None
    aggregate: Aggregate | None = None
    word: str | None = None
    relative: bool = False
    share: bool = False
    floor: float = 0.0
    level: Level = "fail"
    times: int = 1
    of: int | None = None

    @property
    def upward(self) -> bool:
        """Whether more is what makes it fail."""
        return self.sign.startswith(">")


def parse_gate(text: str, document: type) -> Condition:
    """Read a gate for documents of a type. Raises UsageError: a misspelt gate never passes."""
    known = metrics_of(document)
    # Of many blanks outside of quotes, each could belong to any of several places.
    narrow = (part if at % 2 else re.sub(r"\s+", " ", part) for at, part in enumerate(_IN_QUOTES.split(text)))
    found = _FORM.fullmatch("".join(narrow)) if len(text) <= _LONGEST else None
    if found is None or bool(found["opened"]) != bool(found["closed"]):
        hint = say("METRIC>LIMIT, e.g. {examples}; the gate fails if the condition holds",
                   examples=_examples(known.values()))  # fmt: skip
        _refuse(text, say("cannot be read"), hint)
    metric = known.get(found["metric"].lower())
    if metric is None:
        listed = say("known: {names}", names=", ".join(map(form_of, known.values())))
        _refuse(text, say("no such metric"), _near(found["metric"], [*known], listed))

    given, word, limit, floor, relative, share = found["sign"], None, 0.0, 0.0, False, False
    if given is not None and found["word"] is not None:
        word = found["word"].lower()
        if not metric.words:
            _refuse(text, say("{word} is no number", word=word), _needed(metric))
        if word not in metric.words:
            listed = say("known: {names}", names=series(metric.words))
            _refuse(text, say("no such limit"), _near(word, metric.words, listed))
    elif given is not None:
        if metric.expects:
            _refuse(text, say("its limit is a word"), say("known: {names}", names=series(metric.words)))
        relative, unit = found["change"] is not None, (found["unit"] or "").lower()
        share = relative and unit == "%" and metric.unit != "percent"
        limit = float(found["limit"]) if share else _scaled(text, metric, found["limit"], unit)
        if found["floor"] is not None:
            if not relative:
                _refuse(
                    text, say("only a limit against a baseline has a floor"), say("give the limit a sign: +5%,200us")
                )
            floor = _scaled(text, metric, found["floor"], (found["floor_unit"] or "").lower())
        if not isfinite(limit) or not isfinite(floor):
            _refuse(text, say("the limit is too large"), say("nothing is ever beyond it"))
        limit = -limit if found["change"] == "-" else limit
    elif metric.name != "finding":
        hint = say("METRIC>LIMIT, e.g. {examples}; the gate fails if the condition holds",
                   examples=_examples([metric]) or f"{form_of(metric)}>5ms")  # fmt: skip
        _refuse(text, say("it has no limit"), hint)
    signs: tuple[Sign, ...] = get_args(Sign)
    argument = _argument(text, metric, found)

    aggregate: Aggregate | None = None
    if found["aggregate"] is not None:
        names: tuple[Aggregate, ...] = get_args(Aggregate)
        aggregate = next((name for name in names if name == found["aggregate"].lower()), None)
        if aggregate is None:
            listed = say("known: {names}", names=series(names))
            _refuse(text, say("no such aggregate"), _near(found["aggregate"], names, listed))
        if metric.words:
            _refuse(text, say("{metric} has no value in each step", metric=metric.name),
                    say("leave out {aggregate}", aggregate=aggregate))  # fmt: skip
    condition = Condition(
        expr=text.strip(),
        metric=metric,
        sign=">" if given is None else next(sign for sign in signs if sign == given.replace("==", "=")),
        limit=limit,
        argument=argument,
        aggregate=aggregate,
        word=word,
        relative=relative,
        share=share,
        floor=floor,
        level="warn" if (found["level"] or "").lower() == "warn" else "fail",
        times=int(found["times"] or 1),
        of=None if found["runs"] is None else int(found["runs"]),
    )
    _check(text, condition)
    return condition


def check_baseline(conditions: Iterable[Condition], *, given: bool) -> None:
    """Raise UsageError for a gate against a baseline where none is ``given``."""
    alone = next((condition for condition in conditions if condition.relative and not given), None)
    if alone is not None:
        hint = say("give one with --baseline; a limit without a sign needs none")
        _refuse(alone.expr, say("a limit with a sign is a change against a baseline, and there is none"), hint)


def spelled(condition: Condition) -> str:
    """Return a gate in the one form in which it reads the same to everybody."""
    metric, argument = condition.metric, condition.argument
    name = metric.name
    if argument is not None:
        plain = argument if _PLAIN.fullmatch(argument) else f"'{argument}'" if '"' in argument else f'"{argument}"'
        name = f"{name}:{plain}" if metric.argument == "required" else f"{name}[{plain}]"
    if condition.aggregate is not None:
        name = f"{condition.aggregate}({name})"
    limit = condition.word
    if limit is None:
        size = abs(condition.limit)
        limit = f"{_plain_number(size)}%" if condition.share else _number(size, metric.unit)
    sign = "" if not condition.relative else "-" if copysign(1, condition.limit) < 0 else "+"
    floor = f",{_number(condition.floor, metric.unit)}" if condition.floor else ""
    runs = f" for {condition.times} of {condition.of}" if condition.of is not None else ""
    level = "warn: " if condition.level == "warn" else ""
    return f"{level}{name}{condition.sign}{sign}{limit}{floor}{runs}"


def _number(value: float, unit: MetricUnit) -> str:
    """Return a number in the largest unit that says it exactly."""
    for name, worth in _SPELLED[unit]:
        text = _plain_number(value / worth)
        if value >= worth and float(text) * worth == value:
            return f"{text}{name}"
    return f"{_plain_number(value)}{_SPELLED[unit][-1][0]}"


def _plain_number(value: float) -> str:
    return str(int(value)) if value.is_integer() and value < 10**15 else repr(value)


def _refuse(text: str, why: Message, hint: Message) -> NoReturn:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    raise UsageError(say("gate {text}: {why}", text=repr(shown), why=why), hint=hint)


def _examples(metrics: Iterable[Metric]) -> str:
    limits: dict[MetricUnit, str] = {"percent": "3%", "ns": "5ms", "count": "0", "bytes": "1GiB", "mhz": "1700MHz"}
    plain = [metric for metric in metrics if metric.argument != "required" and not metric.expects]
    return ", ".join(f"{metric.name}>{limits[metric.unit]}" for metric in plain[:5])


def form_of(metric: Metric) -> str:
    """Return how a metric is written."""
    if metric.argument == "none":
        return metric.name
    what = {"op": "TYPE", "finding": "RULE"}.get(metric.name, "GROUP")
    return f"{metric.name}:{what}" if metric.argument == "required" else f"{metric.name}[{what}]"


def _needed(metric: Metric) -> Message:
    """Say what a metric's limit has to be."""
    if metric.unit == "percent":
        return say("{metric} is a percentage", metric=metric.name)
    if metric.unit == "ns":
        return say("{metric} is a time: give ns, us, ms or s", metric=metric.name)
    if metric.unit == "bytes":
        return say("{metric} is a number of bytes: give none, B, KiB, MiB or GiB", metric=metric.name)
    if metric.unit == "mhz":
        return say("{metric} is in MHz", metric=metric.name)
    return say("{metric} is a count", metric=metric.name)


def _near(name: str, names: Sequence[str], listed: Message) -> Message:
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    return chain(say("did you mean {name}?", name=near[0]) if near else None, listed, by=" ")


def _argument(text: str, metric: Metric, found: re.Match[str]) -> str | None:
    """Return what a metric is asked about. Raises UsageError where it cannot be, or has to be."""
    given = found["of"] if found["of"] is not None else found["inside"]
    argument = None if given is None else given[1:-1] if given[:1] in ("'", '"') else given
    if argument is None and metric.argument == "required":
        _refuse(text, say("it does not say of what"), say("{form}>LIMIT", form=form_of(metric)))
    if argument is not None and metric.argument == "none":
        _refuse(text, say("{metric} is of nothing in particular", metric=metric.name), say("leave out the rest of it"))
    if argument is not None and not argument.strip():
        _refuse(text, say("it does not say of what"), say("{form}>LIMIT", form=form_of(metric)))
    if argument is not None and metric.arguments is not None:
        known = [*metric.arguments()]
        if argument not in known:
            why = say("{metric}: no {name}", metric=metric.name, name=argument)
            _refuse(text, why, _near(argument, known, say("known: {names}", names=series(known))))
    return argument


def _scaled(text: str, metric: Metric, number: str, unit: str) -> float:
    """Return a number in the unit of its metric; nothing at all needs none."""
    units = _UNITS[metric.unit]
    if unit in units:
        return float(number) * units[unit]
    if not unit and not float(number):
        return 0.0
    of_baseline = say("a percentage of the baseline has a sign: +5%") if unit == "%" else None
    _refuse(text, say("the unit does not fit"), chain(_needed(metric), of_baseline))


def _check(text: str, condition: Condition) -> None:
    """Raise UsageError for what can be read, and could never be judged, or means nothing."""
    metric, sign = condition.metric, condition.sign
    if condition.word is not None:
        allowed = ("=", "!=") if metric.expects else (">=", ">", "=")
        if sign not in allowed:
            _refuse(text, say("a word cannot be held against {sign}", sign=sign),
                    say("{metric} takes {signs}", metric=metric.name, signs=series(allowed)))  # fmt: skip
    elif sign in ("=", "!=") and not metric.exact:
        _refuse(text, say("two measurements are hardly ever equal"), say("use >, >=, < or <="))
    if condition.relative and condition.aggregate == "each" and not metric.exact:
        _refuse(text, say("a single step says nothing against a baseline"), say("median, p95, max or mean do"))
    if condition.floor and sign in ("=", "!="):
        _refuse(text, say("equal or not, there is no floor"), say("+5%,200us goes with >, -5%,200us with <"))
    if condition.floor and condition.upward != (copysign(1, condition.limit) > 0):
        _refuse(
            text, say("the floor lies on the other side of the limit"), say("+5%,200us goes with >, -5%,200us with <")
        )
    if condition.of is not None and not 1 <= condition.times <= condition.of <= MOST_RUNS:
        _refuse(text, say("{times} of {runs} runs cannot be", times=condition.times, runs=condition.of),
                say("K of N: 1 to N of at most {most}", most=MOST_RUNS))  # fmt: skip


# -- Gates that are kept in files: presets by name, and YAML files that have a list of ``gates``, as recipes do.

_PRESETS: Final = Path(__file__).with_name("presets.yaml")
_KEY: Final = "gates"
#: Nobody asks for more.
_MOST: Final = 200


def gates_of(name: str) -> tuple[str, ...]:
    """Return the gates of a preset, or of a YAML file.

    Raises UsageError where there is none of that name, or none in it, InputError where the file cannot be read.
    """
    if Path(name).suffix in (".yaml", ".yml") or "/" in name or (name not in _presets() and is_file(Path(name))):
        path = Path(name)
        if not is_there(path):
            raise UsageError(say("--gates {name}: no such file", name=shown(path)))
        return gates_in(path, read_yaml(path).get(_KEY))
    presets = _presets()
    if name not in presets:
        listed = say("known: {names}; or give the path of a .yaml file", names=series(presets))
        what = say("--gates {name}: no such preset", name=repr(name[:_MOST]))
        raise UsageError(what, hint=_near(name, [*presets], listed))
    return presets[name]


def gates_in(path: Path, gates: object) -> tuple[str, ...]:
    """Return what a YAML file has as its gates. Raises UsageError where these are none: no gates never pass."""
    if not isinstance(gates, list) or not gates:
        hint = say('a list of gates, each as --fail-on takes it: gates: ["host_wait>20%"]')
        raise UsageError(say("{path}: has no {key}", path=shown(path), key=_KEY), hint=hint)
    odd = [gate for gate in gates if not isinstance(gate, str)]
    if odd:
        hint = say('quote it: "warn: host_wait>20%" is a mapping for YAML without quotes')
        what = say("{path}: {key}: {value} is no text", path=shown(path), key=_KEY, value=repr(odd[0])[:_MOST])
        raise UsageError(what, hint=hint)
    if len(gates) > _MOST:
        raise InputError(say("{path}: more than {most} gates", path=shown(path), most=_MOST))
    return tuple(gates)


@cache
def _presets() -> Mapping[str, tuple[str, ...]]:
    return {str(name): tuple(gates) for name, gates in read_yaml(_PRESETS).items()}

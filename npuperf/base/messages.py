"""Sentences with named parameters: written in English beside what says them, made into text only by render.

The English sentence is the key under which translations are kept (gettext), so a message is found where it is said.
Numbers stay numbers, with their unit, until render formats them; names, places and code are never translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from gettext import NullTranslations
from string import Formatter
from typing import Any, Final, Literal

from npuperf.base.units import (
    byte_interval,
    byte_text,
    change,
    changes,
    count,
    duration,
    flop_rate,
    interval,
    mib_interval,
    mib_text,
    percent,
    percent_change,
    percent_changes,
    percents,
)

Unit = Literal["ns", "ns_change", "share", "share_change", "bytes", "mib", "count", "factor", "number", "flop_rate"]

_FORMAT: Final[dict[Unit, Callable[[float], str]]] = {
    "ns": duration,
    "ns_change": change,
    "share": percent,
    "share_change": percent_change,
    "bytes": byte_text,
    "mib": mib_text,
    "count": lambda value: count(int(value)),
    "factor": lambda value: f"{value:.2f}",
    "number": lambda value: f"{round(value, 2):g}",
    "flop_rate": flop_rate,
}
_FORMAT_INTERVAL: Final[dict[Unit, Callable[[float, float], str]]] = {
    "ns": interval,
    "ns_change": changes,
    "share": percents,
    "share_change": percent_changes,
    "bytes": byte_interval,
    "mib": mib_interval,
}
#: What stands between the items of a series, unless something else is said.
_COMMA: Final = ", "
#: What stands between the ends of an interval.
_TO: Final = " to "
#: The sentence of which several make one.
_CHAIN: Final = "{parts}"
#: What has a unit: numbers, and what is not known.
_NUMBER: Final = (int, float, type(None))
#: What languages have signs of their own for: between sentences, between the items of a list, between two numbers.
BETWEEN_SENTENCES: Final = (_COMMA, "; ")
BETWEEN_ITEMS: Final = (_COMMA, "; ")
BETWEEN_NUMBERS: Final = (_TO,)
#: The context in which catalogues have those of items; that of sentences is none.
ITEMS: Final = "between items"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit; with ``high`` an interval that begins with ``value``."""

    value: float | None
    unit: Unit
    high: float | None = None

    def __str__(self) -> str:
        return self.shown()

    def shown(self, to: str = _TO) -> str:
        """Return the number as text; ``to`` stands between the ends of an interval."""
        if self.value is None:
            return "–"
        if self.high is None:
            return _FORMAT[self.unit](self.value)
        return _FORMAT_INTERVAL[self.unit](self.value, self.high).replace(_TO, to)


@dataclass(frozen=True, slots=True)
class Series:
    """Parameters one after the other."""

    items: tuple[Parameter, ...]
    by: str = _COMMA


class Message:
    """A sentence and its parameters. ``plural`` and ``n``: what to say unless ``n`` is one."""

    __slots__ = ("_parameters", "id", "n", "plural")

    def __init__(
        self, id: str, parameters: Mapping[str, Parameter], plural: str | None = None, n: int | None = None
    ) -> None:
        self.id = id
        self.plural = plural
        self.n = n
        self._parameters = tuple(parameters.items())

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return dict(self._parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"<{text(self)}>"

    def __str__(self) -> str:
        """Return the sentence in English, for developers and exceptions."""
        return text(self)

    def __format__(self, spec: str) -> str:
        raise TypeError(f"a message is not to be glued into another text: {self.id!r}")

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.id, self.n, self._parameters


Parameter = str | int | None | Quantity | Series | Message
ENGLISH: Final = NullTranslations()
NOTHING: Final = Message("", {})


def say(sentence: str, /, **parameters: Parameter) -> Message:
    """Return a message; ``sentence`` has a ``{name}`` for every parameter."""
    return Message(sentence, parameters)


def say_n(one: str, many: str, n: int, /, **parameters: Parameter) -> Message:
    """Return a message whose words depend on a number, which is its parameter ``n``."""
    return Message(one, {"n": Quantity(n, "count"), **parameters}, many, n)


def series(items: Iterable[Parameter], by: str = _COMMA) -> Series:
    """Return parameters that stand one after the other."""
    return Series(tuple(items), by)


def first_few(items: Sequence[Parameter], most: int) -> Series:
    """Return so many parameters, one after the other, and how many more there are."""
    more = [say("and {n} more", n=len(items) - most)] if len(items) > most else []
    return series([*items[:most], *more])


def chain(*parts: Message | None, by: str = "; ") -> Message:
    """Return sentences one after the other as one message; None is left out."""
    kept = [part for part in parts if part is not None]
    return kept[0] if len(kept) == 1 else Message(_CHAIN, {"parts": Series(tuple(kept), by)})


def first_of(message: Message) -> Message:
    """Return the first of the sentences that a message chains; of a reason whose basis is named, with that."""
    inside = message.parameters
    parts, reason = inside.get("parts"), inside.get("reason")
    if isinstance(reason, Message):
        return Message(message.id, {**inside, "reason": first_of(reason)}, message.plural, message.n)
    if message.id == _CHAIN and isinstance(parts, Series) and isinstance(first := parts.items[0], Message):
        return first_of(first)
    return message


def ns(value: float | None, high: float | None = None) -> Quantity:
    """Return a time in nanoseconds, or an interval of times."""
    return Quantity(value, "ns", high)


def share(value: float | None, high: float | None = None) -> Quantity:
    """Return a fraction, shown as a percentage, or an interval of fractions."""
    return Quantity(value, "share", high)


def ns_change(value: float | None, high: float | None = None) -> Quantity:
    """Return a difference of times in nanoseconds, shown with its sign, or an interval of them."""
    return Quantity(value, "ns_change", high)


def share_change(value: float | None, high: float | None = None) -> Quantity:
    """Return a difference as a fraction, shown as a percentage with its sign, or an interval of them."""
    return Quantity(value, "share_change", high)


def size(value: int, high: int | None = None) -> Quantity:
    """Return a number of bytes, or an interval of them."""
    return Quantity(value, "bytes", high)


def mib(value: int | None, high: int | None = None) -> Quantity:
    """Return a number of bytes of a device's memory, or an interval of them, shown in MiB."""
    return Quantity(value, "mib", high)


def factor(value: float) -> Quantity:
    """Return a ratio."""
    return Quantity(value, "factor")


def number(value: float) -> Quantity:
    """Return a number without a unit, shown with two decimals at most."""
    return Quantity(value, "number")


def tflops(value: float) -> Quantity:
    """Return FLOP per second, shown in TFLOPS."""
    return Quantity(value, "flop_rate")


#: In sentences, the command for more about what was analyzed, which has the true path when a document is rendered.
_ANALYZE: Final = "npuperf analyze {}"
_UNNAMED: Final = _ANALYZE.format("PATH")
_place: ContextVar[str | None] = ContextVar("place", default=None)


@contextmanager
def about(place: str | None) -> Iterator[None]:
    """Let commands in sentences name this path, as a shell takes it, in place of PATH; None leaves them as they are."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def analyze_command() -> str:
    """Return how sentences call the command for more about what is being rendered."""
    return _ANALYZE.format(_place.get() or "PATH")


def text(message: Parameter, language: NullTranslations = ENGLISH, names: Callable[[str], str] = str) -> str:
    """Return a message, or a parameter of one, as text; ``names``: what is made of strings that are parameters."""
    if isinstance(message, Message):
        if not message.id:  # under which gettext keeps a catalogue's own header
            return ""
        found = (
            language.gettext(message.id)
            if message.plural is None or message.n is None
            else language.ngettext(message.id, message.plural, message.n)
        )
        if message.id == _CHAIN and isinstance(parts := message.parameters.get("parts"), Series):
            return language.gettext(parts.by).join(text(part, language, names) for part in parts.items)
        values = {name: text(value, language, names) for name, value in message.parameters.items()}
        if _UNNAMED in found:
            found = found.replace(_UNNAMED, analyze_command().replace("{", "{{").replace("}", "}}"))
        try:
            return found.format_map(values)
        except (LookupError, ValueError, AttributeError):  # a translation names what the sentence has not
            return message.id.format_map(values)
    if isinstance(message, Series):
        return language.pgettext(ITEMS, message.by).join(text(item, language, names) for item in message.items)
    if isinstance(message, Quantity):
        return message.shown(language.gettext(_TO))
    if isinstance(message, str):
        return names(message)
    return "–" if message is None else str(message)


def plain(message: Parameter) -> Any:
    """Return a message, or a parameter of one, as values that JSON has.

    ``plural`` and ``n`` are there where the words depend on a number; ``by`` has what stands between the items of a
    series where that is no comma.
    """
    if isinstance(message, Message):
        parameters = message.parameters
        made = {"id": message.id, "parameters": {name: plain(value) for name, value in parameters.items()}}
        by = {name: v.by for name, v in parameters.items() if isinstance(v, Series) and v.by != _COMMA}
        words = {} if message.plural is None else {"plural": message.plural, "n": message.n}
        return {**made, **words, **({"by": by} if by else {})}
    if isinstance(message, Series):
        return [plain(item) for item in message.items]
    if isinstance(message, Quantity):
        ends = {"value": message.value} if message.high is None else {"low": message.value, "high": message.high}
        return {**ends, "unit": message.unit}
    return message


def recall(value: object) -> Message:
    """Return the message that an agent wrote down as ``{"id", "parameters"}``; anything else is text, as it is."""
    if isinstance(value, Mapping) and isinstance(value.get("id"), str):
        given = value.get("parameters")
        given = given if isinstance(given, Mapping) else {}
        if _names_only(value["id"], given):
            return Message(value["id"], {str(k): v if isinstance(v, int) else str(v) for k, v in given.items()})
    return say("{text}", text=str(value))


def said(sentence: str, written: object) -> Message:
    """Return the message that :func:`plain` wrote beside its sentence; what says anything else is text, as it is."""
    try:
        found = _parameter(written)
        if isinstance(found, Message) and text(found) == sentence:
            return found
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):  # not written by plain
        pass
    return say("{text}", text=sentence)


def _parameter(written: object, by: str = _COMMA) -> Parameter:
    """Return what :func:`plain` wrote. Raises ValueError, TypeError or LookupError for anything else."""
    if written is None or isinstance(written, str | int):
        return written
    if isinstance(written, list):
        return Series(tuple(_parameter(item) for item in written), by)
    if not isinstance(written, Mapping):
        raise TypeError(written)
    if "id" not in written:
        low, high = written.get("low", written.get("value")), written.get("high")
        if written["unit"] not in _FORMAT or not isinstance(low, _NUMBER) or not isinstance(high, _NUMBER):
            raise ValueError(written)
        return Quantity(low, written["unit"], high)
    given, signs, plural, n = written["parameters"], written.get("by", {}), written.get("plural"), written.get("n")
    if not (isinstance(given, Mapping) and isinstance(signs, Mapping) and isinstance(n, int | None)):
        raise TypeError(written)
    sentences = [written["id"], *([] if plural is None else [plural])]
    if not all(isinstance(one, str) and _names_only(one, given) for one in sentences):
        raise ValueError(written)
    parameters = {str(name): _parameter(value, str(signs.get(name, _COMMA))) for name, value in given.items()}
    return Message(written["id"], parameters, plural, n)


def _names_only(sentence: str, given: Mapping[str, object]) -> bool:
    """Tell whether a sentence names parameters that there are, and asks nothing else of them, such as a width."""
    try:
        parts = list(Formatter().parse(sentence))
    except ValueError:  # a brace alone
        return False
    return all(name is None or (name in given and not spec and not how) for _, name, spec, how in parts)

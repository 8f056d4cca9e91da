"""A result without what is the user's own: no name, path, shape, host, command line or variable is left in it.

Nothing is looked for that might be secret; a text stays only where it is public, and all others give way to a made-up
one. Public is what stands in npuperf's own source (its sentences, causes, rules and the operators that it knows), and
in ``public_names.txt``: operators of PyTorch, torch_npu and CANN. One text has one made-up name in a result, and
another in the next: it is made with a number that is drawn for the one result, and kept nowhere.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from npuperf.base import __version__
from npuperf.base.messages import Message, Quantity, Series, say
from npuperf.model.chip import chip_of_soc
from npuperf.model.parts import SCHEMA_VERSION, Tool, Workload
from npuperf.model.result import CoreSplit, Device, Finding, Input, Result, SuperKernelCheck, SuperKernelScope

_PACKAGE: Final = Path(__file__).resolve().parent.parent
#: A text in the source, without the ends of its pieces that stand one after the other.
_LITERAL: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_JOINED: Final = re.compile(r'(?<!")"\s*\n?\s*"(?!")')
#: A field or an argument, which is a key where a struct becomes a dictionary; a function, of which rules have names.
_FIELD: Final = re.compile(r"\b([a-z]\w*)\s*[:=]|\bdef (\w+)")
#: What lies between the words of a text that is not public as a whole.
_WORD: Final = re.compile(r"(?:(?!->)[^\s();])+")
_EDGE: Final = re.compile(r"(.*?)([,:]*)", re.DOTALL)
#: A layer of CANN before a call; an optimizer of a class; a node of autograd; a step of what precedes a launch.
_LAYERED: Final = re.compile(r"((?:AscendCL|Node|Model|Runtime|HCCL|Hccl|Enqueue|Dequeue)@)(.+)")
_OPTIMIZER: Final = re.compile(r"(Optimizer\.(?:step|zero_grad)#)(\w+)(\.(?:step|zero_grad))")
_AUTOGRAD: Final = re.compile(r"(\w+)Backward\d")
_STAGE: Final = re.compile(r"(\w+)(?:GetWorkspaceSize|_Tiling)")
#: How the parts of a kernel's name end that say where an operator of aclnn runs: aclnnAdd_CastAiCore_Cast.
_ENDS: Final = re.compile(r"(?:Op)?(?:AiCore|AiCpu)$|Common$|Special$")
_VERSION: Final = re.compile(r"\d{1,2}(\.\d{1,2}){1,3}(\.?(RC|rc|alpha|beta|post|dev)\d{0,2})?(\.\d)?")
#: Under which names findings have the sizes of matrices, where "m" is among them, and those of their rows.
_ROWS: Final = frozenset(("row_bytes", "sizes"))
_SIDES: Final = _ROWS | {"batch", "m", "n", "k"}
#: What may be a shape, or a part of one, though npuperf's source has such a number.
_NUMBERS: Final = re.compile(r"[\W\d_]*\d[\W\d_]*")
#: Fields that are dictionaries whose keys npuperf, or an exporter's table, gives.
_OWN_KEYS: Final = frozenset(("evidence", "means", "thresholds"))
#: A range of sizes as npuperf writes them: 4–8 MiB.
_SIZES: Final = re.compile(r"\d{1,4}–\d{1,4} [KMGT]?i?B")
#: A condition or a what-if, in which numbers are the user's word on time, and names are names.
_EXPRESSION: Final = re.compile(r"[^\W\d][\w.@/-]*(?:::[\w.@/-]+)*")

#: Patterns of chips have no end of their own.
_LONGEST_CHIP: Final = 20

_S = TypeVar("_S", bound=Struct)


def anonymous(result: Result) -> Result:
    """Return a result whose texts are public or made up, and of which nobody knows when it was.

    How long things took, their counts and bytes are what they were.
    """
    first = min([d.origin_ns for d in result.devices] + [h.origin_ns for h in result.hosts], default=0)
    dateless = structs.replace(
        result,
        devices=[structs.replace(d, origin_ns=d.origin_ns - first) for d in result.devices],
        hosts=[structs.replace(h, origin_ns=h.origin_ns - first) for h in result.hosts],
    )
    return _Anonymous(secrets.token_bytes(16)).struct(dateless)


@lru_cache(maxsize=1)
def _public() -> frozenset[str]:
    """Return every text that stands in the package's source, and the names of the shipped list.

    ``backward of …``: what a node of autograd may be called after, in small letters.
    """
    found: set[str] = set()
    for file in sorted(_PACKAGE.rglob("*.py")):
        source = _JOINED.sub("", file.read_text("utf-8"))
        found.update(name for names in _FIELD.findall(source) for name in names)
        for text in _LITERAL.findall(source):
            found.add(_unescaped(text) if "\\" in text else text)
    for file in sorted(_PACKAGE.rglob("*.yaml")):
        found.update(re.findall(r"[\w.:]+", file.read_text("utf-8")))
    for line in Path(__file__).with_name("public_names.txt").read_text("utf-8").splitlines():
        prefix, *names = line.split()  # "=": these are whole names
        if prefix != "#":
            found.update(names if prefix == "=" else (f"{prefix}{name}" for name in names))
            found.update(names if prefix == "aclnn" else ())  # an operator's type is called so, as a rule
    autograd = {name[6:].replace("_", "").lower() for name in found if name.startswith("aten::")}
    return frozenset(found | {f"backward of {name}" for name in autograd})


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:  # a pattern, which is no text of a document
        return text


class _Anonymous:
    """Walks a result, and remembers which made-up name stands for which text by the key that makes it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known = _public()

    def struct(self, part: _S) -> _S:
        """Return a part of the document without the user's texts."""
        if isinstance(part, Tool):
            return structs.replace(part, name="npuperf", version=__version__)
        if isinstance(part, Workload):
            return self._workload(part)  # type: ignore[return-value]
        changed = {
            name: self.expression(value)
            if name == "expr"
            else self._fields(value)
            if name in _OWN_KEYS and isinstance(value, dict)
            else self.value(value)
            for name in part.__struct_fields__
            if (value := getattr(part, name)) is not None
        }
        if isinstance(part, Result):
            changed["schema_version"] = SCHEMA_VERSION
            changed["suggestions"] = []  # the exporter's own words about the user's operators
        elif isinstance(part, Input):
            changed["anonymous"] = True
        elif isinstance(part, Device):
            changed["environment"] = []
        elif isinstance(part, CoreSplit):
            changed["code"] = None
        elif isinstance(part, SuperKernelScope):
            changed["code"] = ""
        elif isinstance(part, SuperKernelCheck):
            changed["log"] = []
        elif isinstance(part, Finding) and part.code is not None and "\n" in part.code:
            changed["code"] = None
        return structs.replace(part, **changed)

    def value(self, value: Any) -> Any:
        """Return any value of a document: a text, a sentence, a number, or several in a list or by name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Message):
            return self._message(value)
        if isinstance(value, Series):
            return Series(tuple(map(self.value, value.items)), value.by if value.by in self._known else ", ")
        if isinstance(value, Quantity):
            return value
        if isinstance(value, Struct):
            return self.struct(value)
        if isinstance(value, dict):
            return {self.value(name): one for name, one in self._values(value).items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        return value

    def text(self, text: str) -> str:
        """Return a text if it is public, else word by word what is, and made-up names for the others."""
        if (text in self._known and not _NUMBERS.fullmatch(text)) or _SIZES.fullmatch(text):
            return text
        if ".py" in text or "/" in text:  # a line of code or a path, which may have blanks
            cause, between, name = text.partition(": ")
            known = between and cause in self._known
            return f"{cause}: {self._made(name)}" if known else self._made(text)
        return _WORD.sub(self._word, text)

    def _fields(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return what stands under names of npuperf's own, which may be made of several words: aic_mac_ratio."""
        return {
            name if all(part in self._known for part in name.split("_")) else self.text(name): one
            for name, one in self._values(value).items()
        }

    def expression(self, text: str) -> str:
        """Return a condition or a what-if with made-up names where names are not public; numbers stay."""
        return _EXPRESSION.sub(lambda found: self._named(found[0]), text)

    def _message(self, message: Message) -> Message:
        """Return a sentence of npuperf's own with its parameters; of any other nothing is known."""
        sentences = [message.id, *([] if message.plural is None else [message.plural])]
        if not all(not one or one in self._known for one in sentences):
            return say("{text}", text=self.text(str(message)))
        return Message(message.id, self._values(message.parameters), message.plural, message.n)

    def _values(self, named: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return values under their names, without those that are sizes of the user's matrices."""
        sizes = _SIDES if "m" in named else _ROWS
        return {
            name: self.value(value) if name not in sizes else [] if isinstance(value, list) else None
            for name, value in named.items()
        }

    def _word(self, found: re.Match[str]) -> str:
        word, edge = _EDGE.fullmatch(found[0]).groups()  # type: ignore[union-attr]  # which matches any text
        return self._named(word) + edge if word else edge

    def _named(self, word: str) -> str:
        """Return a word if it is public, else its made-up name."""
        if _NUMBERS.fullmatch(word):
            return self._made(word)
        if word in self._known or (len(word) <= _LONGEST_CHIP and chip_of_soc(word) is not None):
            return word
        if (layered := _LAYERED.fullmatch(word)) is not None:
            return layered[1] + self._named(layered[2])
        if (found := _OPTIMIZER.fullmatch(word)) is not None:
            return found[1] + self._named(found[2]) + found[3]
        if (found := _AUTOGRAD.fullmatch(word)) is not None and f"backward of {found[1].lower()}" in self._known:
            return word
        if (found := _STAGE.fullmatch(word)) is not None and self._named(found[1]) == found[1]:
            return word
        if word.startswith("aclnn") and all(_ENDS.sub("", part) in self._known for part in word.split("_")):
            return word
        return self._made(word)

    def _made(self, text: str) -> str:
        """Return the made-up name of a text, which says of what kind it is."""
        made = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
        kind = "code" if ".py" in text else "path" if "/" in text else "name"
        return f"{kind}-{made[:10]}"

    def _workload(self, own: Workload) -> Workload:
        """Return what was run without how and when it was called, which commit it was, and what it was set to."""
        changed = {name: self.value(getattr(own, name)) for name in own.__struct_fields__}
        changed |= {"command": (), "git_commit": None, "recorded_at": None, "options": (), "settings": ()}
        for name in ("cann", "torch", "torch_npu"):
            version = getattr(own, name)
            changed[name] = version if version and _VERSION.fullmatch(version) else None
        return structs.replace(own, **changed)

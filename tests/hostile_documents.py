"""Documents in which every string is an attack, made by their types: a field that comes tomorrow is attacked, too."""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import count
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from npuperf.base.escape import for_code
from npuperf.base.messages import Message, say
from npuperf.model.parts import Model

#: What follows a name's own mark: commands to terminals, markup of rich, Markdown and HTML, ends of lines.
TAIL = (
    "[red]x[/red][/] :smile:\x1b]0;t\x07\x00\x9b\u202e\u2066\u200b\nINJECTED\r\nINJECTED\u2028INJECTED\tend|`c`"
    '<b>&lt;</b>![i](x)[l](x)*a*_b_~c~@you\udcff\\|"$(id)";\'\ud83d'
)
#: The same as people see it, on a screen and in cells.
SEEN = (
    "[red]x[/red][/] :smile:\\x1b]0;t\\x07\\x00\\u009b\\u202e\\u2066\\u200b"
    "\\nINJECTED\\r\\nINJECTED\\u2028INJECTED\\tend|`c`"
    '<b>&lt;</b>![i](x)[l](x)*a*_b_~c~@you\\xff\\|"$(id)";\'\\ud83d'
)
#: What a name begins with: a formula, and what begins a block of Markdown.
HEADS = ("=", "- ", "# ", "1. ", "> ", "```")
#: What can be seen of a mark, whatever is left out before it.
MARK = re.compile(r"m\d+m")


class Poisoner:
    """Makes documents by their types: every string is an attack with a number of its own, every list has two items."""

    def __init__(self, head: str) -> None:
        self.head = head
        self.numbers = count()
        self.made: list[str] = []

    def name(self) -> str:
        self.made.append(f"m{next(self.numbers)}m")
        return f"{self.head}{self.made[-1]}{TAIL}"

    def of(self, kind: Any, name: str = "") -> Any:
        """Return a value of a type, or of the first that it may be beside None."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return arguments[0]
        if origin in (list, tuple):
            several = 2 if origin is list or arguments[-1] is ... else len(arguments)
            return origin(self.of(arguments[0], name) for _ in range(several))
        if origin is dict:
            return {self.of(arguments[0], name): self.of(arguments[1], name) for _ in range(2)}
        if origin is not None:
            return self.of(next(a for a in arguments if a is not NoneType), name)
        if kind is Message:
            return say("{name} of {other}", name=self.name(), other=say("{one}", one=self.name()))
        if isinstance(kind, type) and issubclass(kind, Model):
            return kind(**{field.name: self.of(field.type, field.name) for field in msgspec.structs.fields(kind)})
        if name == "ops":  # the content of a file, which is JSON
            return json.dumps({"tune_ops_type": [TAIL]}, indent=1)
        if name == "code":  # which is made of lines
            return for_code([f"# {self.name()}", "...  # done"])
        if kind in (str, Any):
            return self.name()
        return {int: 1_500_000, float: 0.25, bool: True}[kind]


def is_seen(sign: str) -> bool:
    return unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or sign == "\n"

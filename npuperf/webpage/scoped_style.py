"""The style of what a notebook shows: the page's own, and nothing outside of one class changes its looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from npuperf.files import read_input

_HERE: Final = Path(__file__).resolve().parent
_FILES: Final = ("palette.css", "charts.css", "cells/notebook.css")
#: Everything is inside of this class; twice, since rules of notebooks for lists and tables weigh more than one.
SCOPE: Final = "npuperf"
_SCOPE: Final = f".{SCOPE}.{SCOPE}"
#: How JupyterLab and nbconvert, VS Code, Colab, and Sphinx say whether they are light or dark.
_SAID: Final = {
    "light": ('[data-jp-theme-light="true"]', ".vscode-light", 'html[theme="light"]', 'html[data-theme="light"]'),
    "dark": ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]', 'html[data-theme="dark"]'),
}
#: What the page says on its root, and how that is said of something inside of a notebook.
_ROOTS: Final = {
    ":root:root:root": _SCOPE * 2,
    ':root:not([data-theme="light"])': f"{_SCOPE}:not({', '.join(f'{said} *' for said in _SAID['light'])})",
    **{f':root[data-theme="{name}"]': f":is({', '.join(said)}) {_SCOPE}" for name, said in _SAID.items()},
    ":root": _SCOPE,
}
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE: Final = re.compile(r"([^{}]+)\{((?:[^{}]|\{[^{}]*\})*)\}")
#: Notebooks have no timeline to go to, and no canvas.
_UNUSED: Final = ("[data-go]", ".bar-go", ".matrix", ".curve")


@cache
def scoped_style() -> str:
    """Return the style sheet; every rule of it is about what is inside of the class."""
    return scoped("".join(read_input(_HERE / name).decode("utf-8") for name in _FILES))


def scoped(css: str) -> str:
    """Return rules for what is inside of the class alone; those for all of a page's root are for the class itself."""
    return "\n".join(_rules(_COMMENT.sub("", css)))


def _rules(css: str) -> Iterator[str]:
    for found in _RULE.finditer(css):
        head, body = (" ".join(part.split()) for part in found.groups())
        if head.startswith("@media"):
            yield f"{head}{{{''.join(_rules(body))}}}"
            continue
        used = [one for one in map(str.strip, head.split(",")) if not any(part in one for part in _UNUSED)]
        if used:
            yield f"{','.join(map(_selector, used))}{{{body}}}"


def _selector(selector: str) -> str:
    for root, scope in _ROOTS.items():
        if selector.startswith(root):
            return scope + selector.removeprefix(root)
    return f"{_SCOPE} {selector}"

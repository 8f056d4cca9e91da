"""How a field of a request is typed on a command line, declared once, beside the field; what reads it lies far above.

step: Annotated[int | None, Typed(WHEN, say("Only this step."), "--step", metavar="N")] = None
"""

from __future__ import annotations

from typing import Any, Final

from npuperf.base.messages import Message, say

#: The panels of --help.
WHAT: Final = say("What")
WHEN: Final = say("When")
DATA: Final = say("Data")
HOW: Final = say("How")
COMPARISON: Final = say("Comparison")
GATES: Final = say("Gates")
OUTPUT: Final = say("Output")


class Typed:
    """A field that an option sets.

    ``metavar`` says what to give; flags have none. ``kind`` is that of what is typed where the field holds another, and
    ``usual`` what stands for it where nothing is typed; ``least`` and ``most`` bound a number. Options are listed in
    the order of the fields, but for those that are to be the ``first`` or ``last`` of their panel.
    """

    def __init__(
        self,
        panel: Message,
        help: Message,
        *names: str,
        metavar: str | None = None,
        kind: Any = None,
        usual: object = None,
        least: float | None = None,
        most: float | None = None,
        first: bool = False,
        last: bool = False,
    ) -> None:
        self.panel, self.help, self.names, self.metavar = panel, help, names, metavar
        self.kind, self.usual, self.least, self.most = kind, usual, least, most
        self.place = int(last) - int(first)


class BareWords:
    """A field that words set which no option stands before."""

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar


class NotTyped:
    """A field that no option sets."""


NOT_TYPED: Final = NotTyped()

# -- Options of several verbs.

FORMAT: Final = Typed(OUTPUT, say("text, json, csv, markdown, html or junit."), "--format", metavar="FORMAT")
TABLE: Final = Typed(OUTPUT, say("Only this table; --table help lists them."), "--table", metavar="NAME")
FILE: Final = Typed(OUTPUT, say("Write to a file instead."), "-o", "--output", metavar="FILE")
HTML: Final = Typed(OUTPUT, say("Write a page for the browser to a file, too."), "--html", metavar="FILE")
LANG: Final = Typed(OUTPUT, say("en or zh, whatever NPUPERF_LANGUAGE or the locale says."), "--lang", metavar="CODE")
DEBUG: Final = Typed(OUTPUT, say("Show tracebacks."), "--debug")
RECIPE: Final = Typed(
    HOW,
    say("Options, rules and thresholds from a recipe, by name or path; what you type overrides them."),
    "--recipe",
    metavar="NAME",
)

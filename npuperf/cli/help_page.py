"""The page that --help shows: the framework's own words in the reader's language, lines as wide as what is in them."""

from __future__ import annotations

import re
from typing import Any, Final

from npuperf.messages import Message, say
from npuperf.render.language import text

#: Letters before this are one column wide: those of English, and its signs.
_WIDE: Final = "\u2e80"
#: How the framework lays out a list: its first column at most, and the gaps beside it.
_FIRST_COLUMN, _GAP, _LEAST = 30, 2, 10
#: What the framework says of its own options, by their names.
_FRAMEWORKS: Final = {
    "help": say("Show this message and exit."),
    "install_completion": say("Install completion for the current shell."),
    "show_completion": say(
        "Show completion for the current shell, to copy it or customize the installation."
    ),
}  # fmt: skip


class HelpPage:
    """What commands and their group have in common: mixed into the framework's classes."""

    def format_usage(self: Any, ctx: Any, formatter: Any) -> None:
        """Write how the command is called."""
        usage = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, usage, prefix=text(say("Usage:")) + " ")

    def format_help_text(self: Any, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        _paragraphs(formatter, self.help or "")

    def format_epilog(self: Any, ctx: Any, formatter: Any) -> None:
        """Write what comes last."""
        _paragraphs(formatter, self.epilog or "")


def in_our_language(parameters: list[Any]) -> list[Any]:
    """Return parameters, of which the framework's own say in the reader's language what they do."""
    for parameter in parameters:
        if parameter.name in _FRAMEWORKS and getattr(parameter, "help", None):
            parameter.help = text(_FRAMEWORKS[parameter.name])
    return parameters


def write_rows(formatter: Any, title: Message | str, rows: list[tuple[str, str]]) -> None:
    """Write a list under its title, if there is any: names, and what they are."""
    if not rows:
        return
    first = min(max(len(name) for name, _ in rows), _FIRST_COLUMN) + _GAP
    with formatter.section(title if isinstance(title, str) else text(title)):
        room = max(formatter.width - first - formatter.current_indent, _LEAST)
        formatter.write_dl([(name, _laid_out(what, room)) for name, what in rows])


def _paragraphs(formatter: Any, said: str) -> None:
    if said:
        formatter.write_paragraph()
        with formatter.indentation():
            room = formatter.width - formatter.current_indent
            formatter.write_text("\n\n".join(_laid_out(part, room) for part in said.strip("\n").split("\n\n")))


def _laid_out(paragraph: str, room: int) -> str:
    """Return a paragraph that the framework lays out as it should: it takes every letter for one column wide."""
    if paragraph.startswith("\b") or max(paragraph) < _WIDE:
        return paragraph
    from npuperf.render.wide_text import WIDE, is_wide, line_starts

    if not is_wide(paragraph):
        return paragraph
    said = re.sub(rf"(?<=[{WIDE}])\n(?=[{WIDE}])", "", paragraph).replace("\n", " ")
    starts = [0, *line_starts(said, room)]
    return "\b\n" + "\n".join(said[i:j].rstrip() for i, j in zip(starts, [*starts[1:], None], strict=True))

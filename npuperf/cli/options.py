"""How options are declared: with a metavar instead of a Python type, in panels, at the terminal's width."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from npuperf.cli.help_page import HelpPage, in_our_language, write_rows
from npuperf.cli.sparing import spare
from npuperf.cli.streams import terminal_width
from npuperf.errors import UsageError
from npuperf.messages import Message, chain, say, series
from npuperf.render import FORMATS, unknown
from npuperf.render.language import choose, codes, is_known, text

if TYPE_CHECKING:
    from msgspec import Struct

R = TypeVar("R", bound="Struct")

WHAT: Final = text(say("What"))
WHEN: Final = text(say("When"))
DATA: Final = text(say("Data"))
HOW: Final = text(say("How"))
COMPARISON: Final = text(say("Comparison"))
GATES: Final = text(say("Gates"))
OUTPUT: Final = text(say("Output"))
#: The order of panels; an option without one comes last.
_PANELS: Final = (WHAT, WHEN, DATA, HOW, COMPARISON, GATES, OUTPUT)

EXIT_CODES: Final = text(
    say(
        "Exit codes: 0 done · 1 a gate failed · 2 usage · 3 input missing, unreadable or damaged beyond use · 4 a gate "
        "cannot be judged · 5 a child failed · 70 an internal error · 130 interrupted"
    )
)


def context_settings(**more: Any) -> dict[str, Any]:
    """Return what all commands have in common."""
    return {"max_content_width": terminal_width(), "help_option_names": ["-h", "--help"], **more}


def option(panel: str, help: Message, *names: str, metavar: str | None = None, **more: Any) -> Any:
    """Declare an option. ``metavar`` says what to give; flags have none."""
    return typer.Option(*names, help=text(help), metavar=metavar, rich_help_panel=panel, **more)


def _known_format(name: str) -> str:
    if name not in FORMATS:
        raise unknown(say("--format {name}: no such format", name=repr(name)), name, FORMATS)
    return name


FormatOption = Annotated[
    str,
    option(
        OUTPUT, say("text, json, csv, markdown, html or junit."), "--format", metavar="FORMAT", callback=_known_format
    ),
]
TableOption = Annotated[
    str | None, option(OUTPUT, say("Only this table; --table help lists them."), "--table", metavar="NAME")
]
FileOption = Annotated[Path | None, option(OUTPUT, say("Write to a file instead."), "-o", "--output", metavar="FILE")]
HtmlOption = Annotated[
    Path | None,
    option(OUTPUT, say("Write a page for the browser to a file, too."), "--html", metavar="FILE"),
]


def _speak(ctx: typer.Context, language: str | None) -> str | None:
    """Speak the language of a command, else that given before it, else that of the environment."""
    if language is not None and not is_known(language):
        hint = say("known: {names}", names=series(codes()))
        raise UsageError(say("--lang {language}: no such language", language=repr(language)), hint=hint)
    if language is not None or ctx.parent is not None:  # before a command, it may still be said behind it
        choose(language or ctx.find_root().params.get("lang"))
    return language


LangOption = Annotated[
    str | None,
    option(
        OUTPUT, say("en or zh, whatever NPUPERF_LANGUAGE or the locale says."), "--lang", metavar="CODE",
        callback=_speak,
    ),
]  # fmt: skip
DebugOption = Annotated[bool, option(OUTPUT, say("Show tracebacks."), "--debug")]


def given(ctx: typer.Context, name: str) -> bool:
    """Tell whether a parameter was given: typed, or by a recipe."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")


def typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether a parameter is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class Verb(HelpPage, TyperCommand):
    """A command whose help shows its options in panels."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return in_our_language(spare(super().get_params(ctx)))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, panel by panel."""
        options = [p for p in self.get_params(ctx) if isinstance(p, TyperOption) and not p.hidden]
        others = dict.fromkeys(p.rich_help_panel or OUTPUT for p in options if p.rich_help_panel not in _PANELS)
        for panel in (*_PANELS, *(name for name in others if name not in _PANELS)):
            rows = [_row(p) for p in options if (p.rich_help_panel or OUTPUT) == panel]
            write_rows(formatter, panel, rows)


class Commands(HelpPage, TyperGroup):
    """All commands, and the options that come before them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant. Raises UsageError with the nearest where there is none."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown(say("{name}: no such command", name=args[0]), args[0], list(self.commands))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the commands below them."""
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        write_rows(formatter, say("Options"), [record for record in records if record is not None])
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        write_rows(formatter, say("Commands"), [(name, command.short_help or "") for name, command in commands])

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return in_our_language(spare(super().get_params(ctx)))


def _row(declared: TyperOption) -> tuple[str, str]:
    """Return an option's names and what it does, with its default where that tells something."""
    names = ", ".join([*declared.opts, *declared.secondary_opts])
    left = f"{names} {declared.metavar}" if declared.metavar and not declared.is_flag else names
    if declared.is_flag or declared.default in (None, "") or not declared.show_default:
        return left, declared.help or ""
    default = say("[{default}]", default=str(declared.default))
    return left, text(chain(say("{help}", help=declared.help or ""), default, by=" "))


def requested(ctx: typer.Context, request: type[R], **more: object) -> R:
    """Fill a request's fields with the command's parameters of the same names; ``more`` overrides them.

    Repeatable options become tuples.
    """
    names = request.__struct_fields__
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in ctx.params.items() if name in names}
    known = {name: value for name, value in values.items() if value is not None}
    return request(**{**known, **more})

"""How a command line is read: options as requests declare them, in panels, at the terminal's width."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature, get_annotations
from pathlib import Path
from reprlib import repr as brief
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption

from npuperf.base.declared import (
    COMPARISON,
    DATA,
    DEBUG,
    GATES,
    HOW,
    LANG,
    OUTPUT,
    RECIPE,
    WHAT,
    WHEN,
    BareWords,
    NotTyped,
    Typed,
)
from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, chain, say, series
from npuperf.cli import recipes
from npuperf.cli.streams import terminal_width
from npuperf.show.formats import FORMATS, unknown
from npuperf.show.language import choose, codes, is_known, text

# -- The page that --help shows: the framework's own words in the reader's language, lines as wide as what is in them.

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
    from npuperf.show.language import WIDE, is_wide, line_starts

    if not is_wide(paragraph):
        return paragraph
    said = re.sub(rf"(?<=[{WIDE}])\n(?=[{WIDE}])", "", paragraph).replace("\n", " ")
    starts = [0, *line_starts(said, room)]
    return "\b\n" + "\n".join(said[i:j].rstrip() for i, j in zip(starts, [*starts[1:], None], strict=True))


#: The formats of files that are named so, unless another one is asked for.
_OF_ENDINGS: Final = {".html": "html", ".json": "json", ".md": "markdown", ".csv": "csv"}
#: How much of two options must be alike for one to be meant by the other: "stak" by "stack", not "json" by "soc".
_NEAR: Final = 0.7

# -- What is wrong with a command line, in our words: the framework's change with its releases and speak of validation.

_WANTED: Final = {int: say("a whole number"), float: say("a number"), Path: say("a path")}


def bad_value(param: Any, value: object, wanted: type | None, why: str = "") -> UsageError:
    """Return the error for a value that does not suit a parameter; ``why`` is said where we do not know better."""
    name = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name
    if wanted not in _WANTED:
        return UsageError(say("{name} {value}: {why}", name=name, value=brief(value), why=why))
    if wanted is Path and value != "":  # the framework asks of a path only whether it may be read
        return UsageError(say("{name} {value}: permission to read it is denied", name=name, value=str(value)))
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    limits: Message | None = None
    if least is not None:
        limits = say("of at least {least}", least=f"{least:g}")
        if most is not None:
            limits = say("from {least} to {most}", least=f"{least:g}", most=f"{most:g}")
    kind = chain(_WANTED[wanted], limits, by=" ")
    return UsageError(say("{name} {value}: {kind} is wanted", name=name, value=brief(value), kind=kind))


def in_our_words(error: Any) -> UsageError:
    """Return our error for any of the framework's: an option that does not exist, lacks its value, or is too many."""
    command = f"{error.ctx.command_path.replace('python -m ', '')} " if getattr(error, "ctx", None) else ""
    everything = say("{command} lists everything", command=f"{command}--help")
    name = getattr(error, "option_name", None)
    told = error.format_message().rstrip(".")
    if name is None:  # of arguments; what we do not know of stays as it is
        extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", told, re.DOTALL)
        what = say("a command is missing") if told == "Missing command" else say("{what}", what=told)
        if extra is not None:
            what = say("got unexpected extra arguments: {words}", words=extra[1])
        return UsageError(what, hint=everything)
    if "not take a value" in told:
        return UsageError(say("{name}: takes no value", name=name), hint=everything)
    if not hasattr(error, "possibilities"):  # a known option, used wrongly
        return UsageError(say("{name}: its value is missing", name=name), hint=everything)
    from difflib import get_close_matches

    known = [flag for param in error.ctx.command.params for flag in (*param.opts, *param.secondary_opts)]
    format_ = _OF_ENDINGS.get(f".{name.lstrip('-')}", name.lstrip("-"))
    bare = {flag.lstrip("-"): flag for flag in known}
    near = [bare[one] for one in get_close_matches(name.lstrip("-"), bare, n=1, cutoff=_NEAR)]
    if "--format" in known and format_ in FORMATS:
        near = [f"--format {format_}"]
    meant = say("did you mean {name}?", name=near[0]) if near else None
    return UsageError(say("{name}: no such option", name=name), hint=chain(meant, everything, by=" "))


# -- Values that are right as they come, kept from typer's converter.
#
# Releases of typer that convert with pydantic load it for a value that nobody gave, too, and build a validator for
# every option. That takes longer than everything else which the command line does.

#: Longer numbers than anybody counts to are typer's.
_DIGITS: Final = 9
_NOT_SURE: Final = object()


def spare(parameters: list[Any]) -> list[Any]:
    """Return the parameters, for which typer builds a converter only when a value needs it.

    Whether a value is wrong is for typer to say. Its releases without this method have nothing to be spared.
    """
    for parameter in parameters:
        build = getattr(parameter, "get_runtime_param", None)
        if build is not None and not isinstance(build, _Converter):
            parameter.get_runtime_param = _Converter(build)
    return parameters


class _Converter:
    """A parameter's converter, and what typer calls to get it; ``build`` makes typer's own."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def __call__(self) -> _Converter:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter as its function takes it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        wanted = param.type_descriptor.annotation
        if wanted is Path and (why := _no_path(value)):
            raise bad_value(param, value, None, why)
        known = _right(value, param)
        if known is not _NOT_SURE:
            return known
        if wanted is Path and value == "":  # which would be the current folder
            raise bad_value(param, value, wanted)
        try:
            return self._build().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            raise bad_value(param, value, wanted, error.message) from error


def _no_path(value: Any) -> str | None:
    """Say why no file can be called so, if that is so: whoever looks for it would be told that as an error."""
    try:
        os.lstat(value)
    except (ValueError, TypeError) as error:
        return str(error)
    except OSError as error:
        return error.strerror if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else None
    return None


def _right(value: Any, param: Any) -> Any:
    """Return a value that certainly suits a parameter, else _NOT_SURE."""
    wanted = param.type_descriptor.annotation
    if wanted == list[str]:
        texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return list(value) if texts else _NOT_SURE
    if wanted is int and isinstance(value, str):
        if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS):
            return _NOT_SURE
        number, least, most = int(value), param.min, param.max
        return number if (least is None or least <= number) and (most is None or number <= most) else _NOT_SURE
    if wanted is Path and isinstance(value, str | Path) and value != "":
        return Path(value) if not os.path.exists(value) or os.access(value, os.R_OK) else _NOT_SURE  # noqa: PTH110
    return value if type(value) is wanted else _NOT_SURE


# -- Commands whose options are declared beside the fields of their requests.

EXIT_CODES: Final = text(
    say(
        "Exit codes: 0 done · 1 a gate failed · 2 usage · 3 input missing, unreadable or damaged beyond use · 4 a gate "
        "cannot be judged · 5 a child failed · 70 an internal error · 130 interrupted"
    )
)
#: The order of panels in --help.
_PANELS: Final = (WHAT, WHEN, DATA, HOW, COMPARISON, GATES, OUTPUT)
R = TypeVar("R")
#: What a request's field is made of, if not of what was typed as it is: a function of that, or of None.
Readers = Mapping[str, Callable[[Any], Any]]


def context_settings(**more: Any) -> dict[str, Any]:
    """Return what all commands have in common."""
    return {"max_content_width": terminal_width(), "help_option_names": ["-h", "--help"], **more}


class Shared:
    """Options that every verb has, and no request."""

    recipe: Annotated[str | None, RECIPE] = None
    lang: Annotated[str | None, LANG] = None
    debug: Annotated[bool, DEBUG] = False


class Field(NamedTuple):
    """A field that is typed: how it is declared, the type of what is typed, and what stands for it where nothing is.

    ``item`` makes each value of a repeatable one. ``read``: somebody has to make of the text what the field holds.
    """

    declared: Typed | BareWords
    typed: Any
    usual: object
    item: Callable[[Any], Any] | None = None
    read: bool = False


def typed_fields(declared: type) -> dict[str, Field]:
    """Return the fields of a request, or of a class of options, that are typed, in their order.

    Raises TypeError for a field of which nobody said how it is typed, nor that it is not.
    """
    usual = dict(vars(declared))
    if names := getattr(declared, "__struct_fields__", ()):  # msgspec is loaded with the requests
        usual = dict(zip(names, declared.__struct_defaults__, strict=True))  # type: ignore[attr-defined]
    hints: dict[str, Any] = {}
    for base in reversed(declared.__mro__):
        hints |= get_annotations(base, eval_str=True)
    found = {}
    for name, hint in hints.items():
        how = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, _DECLARED)), None)
        if how is None:
            raise TypeError(f"{declared.__name__}.{name}: neither how it is typed is declared, nor that it is not")
        if not isinstance(how, NotTyped):
            found[name] = _field(how, get_args(hint)[0], usual[name])
    return found


_DECLARED: Final = (Typed, BareWords, NotTyped)


def _field(how: Typed | BareWords, kind: Any, usual: object) -> Field:
    """Return what is typed for a field of a kind: one of several words as text, several values as a list."""
    if isinstance(how, Typed) and how.kind is not None:
        return Field(how, how.kind if how.usual is not None else how.kind | None, how.usual, read=how.kind != kind)
    parts = get_args(kind)
    if get_origin(kind) is tuple and parts[-1] is ...:
        return Field(how, list[str] | None, None, parts[0])
    if Literal in (get_origin(kind), *map(get_origin, parts)):
        return Field(how, str | None if type(None) in parts else str, usual)
    return Field(how, kind, usual)


def request_of(ctx: typer.Context, request: type[R], read: Readers = MappingProxyType({}), **more: object) -> R:
    """Make a request of what was typed, field by field; ``read`` makes some, ``more`` are those that nobody types.

    Raises TypeError where a field is unknown, or its text would stay as it was typed.
    """
    fields, made = typed_fields(request), dict(more)
    if unknown := read.keys() - fields:
        raise TypeError(f"{request.__name__}: nobody types {', '.join(sorted(unknown))}")
    for name, one in fields.items():
        value = ctx.params[name]
        if name in read:
            value = read[name](value)
        elif one.read:
            raise TypeError(f"{request.__name__}.{name}: nobody reads what is typed for it")
        elif one.item is not None:
            value = tuple(map(one.item, value or ()))
        if value is not None:
            made[name] = value
    return request(**made)


def known_format(name: str) -> str:
    """Return the name of a format. Raises UsageError for what is none."""
    if name not in FORMATS:
        raise unknown(say("--format {name}: no such format", name=repr(name)), name, FORMATS)
    return name


def speak(ctx: typer.Context, language: str | None) -> str | None:
    """Speak the language of a command, else that given before it, else that of the environment."""
    if language is not None and not is_known(language):
        hint = say("known: {names}", names=series(codes()))
        raise UsageError(say("--lang {language}: no such language", language=repr(language)), hint=hint)
    if language is not None or ctx.parent is not None:  # before a command, it may still be said behind it
        choose(language or ctx.find_root().params.get("lang"))
    return language


def given(ctx: typer.Context, name: str) -> bool:
    """Tell whether a parameter was given: typed, or by a recipe."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")


def typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether a parameter is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class VerbCommand(HelpPage, TyperCommand):
    """A command whose help shows its options in panels."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return in_our_language(spare(super().get_params(ctx)))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, panel by panel."""
        options = [p for p in self.get_params(ctx) if isinstance(p, TyperOption) and not p.hidden]
        for panel in _PANELS:
            rows = [_row(p) for p in options if (p.rich_help_panel or str(OUTPUT)) == str(panel)]
            write_rows(formatter, text(panel), rows)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb as the command line has it.

    ``options`` loads and returns the request and other classes whose fields are typed; ``more`` is what typer is told
    of some of them beside what is declared; ``panels``: in which order recipes name their options.
    """

    name: str
    summary: Message
    help: Message
    run: Callable[[typer.Context], None]
    options: Callable[[], Sequence[type]]
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    panels: Sequence[Message] = _PANELS
    kind: type[VerbCommand] = VerbCommand
    settings: Mapping[str, Any] = field(default_factory=dict)

    def command(self) -> Any:
        """Make the command. Raises TypeError where something is said of an option that is none."""
        fields = {name: one for declared in self.options() for name, one in typed_fields(declared).items()}
        more: dict[str, Any] = {
            "lang": {"callback": speak},
            "recipe": {"callback": recipes.apply, "is_eager": True},
            **self.more,
        }
        if unknown := more.keys() - fields:
            raise TypeError(f"{self.name}: no option is called {', '.join(sorted(unknown))}")

        def place(item: tuple[str, Field]) -> tuple[int, int]:
            how = item[1].declared
            return (-1, 0) if isinstance(how, BareWords) else (self.panels.index(how.panel), how.place)

        def carry_out(ctx: typer.Context, **values: object) -> None:
            ctx.params.update(values)  # where typer converts them last, the context has them as they were typed
            if "format" in values and (output := values.get("output")) and not given(ctx, "format"):
                ctx.params["format"] = _OF_ENDINGS.get(Path(str(output)).suffix.lower(), values["format"])
            self.run(ctx)

        parameters = [Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for name, (how, kind, usual, *_) in sorted(fields.items(), key=place):
            told: Any
            if isinstance(how, BareWords):
                told = typer.Argument(metavar=how.metavar)
            else:
                told = typer.Option(
                    *how.names,
                    help=text(how.help),
                    metavar=how.metavar,
                    min=how.least,
                    max=how.most,
                    rich_help_panel=str(how.panel),
                    **more.get(name, {}),
                )
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=usual, annotation=Annotated[kind, told]))
        carry_out.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        carry_out.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(
            self.name,
            cls=self.kind,
            help=text(self.help),
            short_help=text(self.summary),
            epilog=EXIT_CODES,
            context_settings=context_settings(**self.settings),
        )(carry_out)
        return typer.main.get_command(app)


class _Made(dict[str, Any]):
    """Commands by name, each made when somebody asks for it: what others need is not loaded."""

    def __init__(self, names: Iterable[str], verb: Callable[[str], Verb]) -> None:
        super().__init__(dict.fromkeys(names))
        self._verb = verb

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = self._verb(name).command()
        return super().__getitem__(name)


class Commands(HelpPage, TyperGroup):
    """All commands, and the options that come before them."""

    names: ClassVar[Sequence[str]] = ()

    @classmethod
    def verb(cls, name: str) -> Verb:
        """Return what is known of a verb by its name."""
        raise NotImplementedError

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.commands = _Made(self.names, self.verb)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*self.names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None where there is none of this name."""
        return self.commands[cmd_name] if cmd_name in self.names else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant. Raises UsageError with the nearest where there is none."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown(say("{name}: no such command", name=args[0]), args[0], list(self.commands))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the commands below them."""
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        write_rows(formatter, say("Options"), [record for record in records if record is not None])
        write_rows(formatter, say("Commands"), [(name, text(self.verb(name).summary)) for name in self.names])

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

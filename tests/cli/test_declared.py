"""Options are declared beside the fields of requests: none is lost on the way from a word that is typed to a field."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
import typer.main
from msgspec import Struct

from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.declared import HOW, NOT_TYPED, Typed
from npuperf.base.messages import say
from npuperf.cli import app
from npuperf.cli.command_line import Shared, Verb, request_of, typed_fields
from npuperf.record.request import ProfileRequest
from npuperf.tune.request import TuneRequest

#: Requests, their fields that nobody types, and options that are no fields of theirs.
VERBS: dict[str, tuple[Any, set[str], set[str]]] = {
    "analyze": (AnalyzeRequest, {"thresholds", "rules"}, {"clear_cache", "newer"}),
    "profile": (ProfileRequest, {"given", "source"}, {"analyze"}),
    "tune": (TuneRequest, {"top_given", "by_recipe"}, set()),
}


def option(name: str, **more: Any) -> Typed:
    return Typed(HOW, say("{what}", what=name), name, **more)


@pytest.mark.parametrize("verb", VERBS)
def test_options_and_fields_are_the_same(verb: str) -> None:
    """A field that is new or renamed is an option of that name, or one of those that nobody types."""
    request, untyped, apart = VERBS[verb]
    group: Any = typer.main.get_command(app)
    offered = {parameter.name for parameter in group.commands[verb].params}
    assert offered == (set(request.__struct_fields__) - untyped) | apart | {"recipe", "lang", "debug"}
    assert set(typed_fields(request)) == set(request.__struct_fields__) - untyped


class Sound(Struct, frozen=True, kw_only=True):
    """A field of every kind."""

    number: Annotated[int | None, option("--number")] = None
    words: Annotated[tuple[str, ...], option("--words")] = ()
    files: Annotated[tuple[Path, ...], option("--files")] = ()
    mode: Annotated[Literal["a", "b"], option("--mode")] = "a"
    pairs: Annotated[dict[int, int] | None, "a note of others", option("--pairs", kind=list[str])] = None
    set_elsewhere: Annotated[bool, NOT_TYPED] = False


TYPED: dict[str, Any] = {"number": 3, "words": ["x", "y"], "files": ["f"], "mode": "b", "pairs": ["1=2"]}
READ = {"pairs": lambda texts: {int(a): int(b) for a, b in (text.split("=") for text in texts or ())}}


def made(typed: dict[str, Any], read: Any = READ, **more: Any) -> Sound:
    context: Any = SimpleNamespace(params=typed)
    return request_of(context, Sound, read, **more)


def test_what_is_typed_arrives_in_its_field() -> None:
    arrived = Sound(number=3, words=("x", "y"), files=(Path("f"),), mode="b", pairs={1: 2}, set_elsewhere=True)
    assert made(TYPED, set_elsewhere=True) == arrived
    nothing = dict.fromkeys(("number", "words", "files", "pairs"))
    assert made({**nothing, "mode": "a"}) == Sound(pairs={})
    assert {name: field.typed for name, field in typed_fields(Sound).items()} == {
        "number": int | None, "words": list[str] | None, "files": list[str] | None, "mode": str,
        "pairs": list[str] | None,
    }  # fmt: skip


def test_nothing_typed_is_lost_silently() -> None:
    """Neither where the command line lacks a field, nor where it has a reader or a value for one that is not there."""
    with pytest.raises(KeyError, match="number"):
        made({name: value for name, value in TYPED.items() if name != "number"})
    with pytest.raises(TypeError, match="nobody reads what is typed"):
        made(TYPED, {})
    with pytest.raises(TypeError, match="nobody types paris"):
        made(TYPED, {**READ, "paris": READ["pairs"]})
    with pytest.raises(TypeError, match="set_elsewehre"):
        made(TYPED, set_elsewehre=True)


def test_a_field_of_which_nobody_says_how_it_is_typed_is_refused() -> None:
    class Undeclared(Struct):
        group: str | None = None

    class AsText(Struct):
        group: "Annotated[str | None, option('--group')]" = None

    with pytest.raises(TypeError, match=r"Undeclared\.group: neither how it is typed"):
        typed_fields(Undeclared)
    assert typed_fields(AsText).keys() == {"group"}


def test_what_is_said_of_no_option_is_refused() -> None:
    verb = Verb("v", say("v"), say("v"), lambda _: None, lambda: [Sound, Shared], {"numbre": {"callback": print}})
    with pytest.raises(TypeError, match="no option is called numbre"):
        verb.command()


def test_what_the_framework_converts_last_is_what_is_read() -> None:
    """As releases of typer do that convert on the way to the function: the context has what was typed."""
    seen: list[Any] = []
    verb = Verb("v", say("v"), say("v"), lambda ctx: seen.append(ctx.params["number"]), lambda: [Sound, Shared])
    command = verb.command()
    with command.make_context("v", ["--number", "3"]) as context:
        context.params["number"] = "3"
        context.invoke(command.callback, **{**context.params, "number": 3})
    assert seen == [3]

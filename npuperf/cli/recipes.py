"""Recipes: options, rules and thresholds from a YAML file. What is typed overrides them.

A recipe has any of these keys: ``description``; ``profile``, ``analyze`` and ``tune`` (options of the command, as
they are typed, without the dashes); ``output`` (format, full, top, table: for analyze and tune); ``rules`` (those to
ask), ``thresholds`` (numbers that judge) and ``gates`` (conditions, as ``--fail-on`` takes them) for analyze.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, chain, say, say_n, series

_SECTIONS: Final = ("profile", "analyze", "tune")
_KEYS: Final = ("description", *_SECTIONS, "output", "rules", "thresholds", "gates")
_OUTPUT: Final = ("format", "full", "top", "table")
#: Options that say what a run is about, not how: they do not belong into a recipe.
_NOT_HERE: Final = (
    *("help", "recipe", "output", "force", "debug", "dry-run", "yes", "module"),
    *("before", "with", "from", "diff", "merge", "into", "rollback", "verify", "resume"),
)
#: Characters of a value that are shown.
_SHOWN: Final = 60
#: No threshold is larger; this is many years in ns.
_MOST: Final = 1e18
_PACKAGE: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What of a recipe is no option of a command."""

    name: str
    rules: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)


def chosen(ctx: typer.Context) -> Recipe | None:
    """Return the recipe that a command was given, if any."""
    found: Recipe | None = ctx.meta.get(__name__)
    return found


def effect(ctx: typer.Context, recipe: Recipe) -> Message:
    """Say in one line what a recipe changes, and that checks which it does not name are not made."""
    sources = {p.name: ctx.get_parameter_source(str(p.name)) for p in ctx.command.params}
    given = [p for p in ctx.command.params if (source := sources[p.name]) and source.name == "DEFAULT_MAP"]
    options = series(_as_typed(p, ctx.params[str(p.name)]) for p in given)
    changes = say("{options}", options=options) if given else say("changes no option of this command")
    checks = limits = None
    if recipe.thresholds and ctx.command.name == "analyze":
        limits = say("thresholds: {names}", names=series(sorted(recipe.thresholds)))
    if recipe.rules and ctx.command.name == "analyze":
        from npuperf.advise import rule_names

        made, all_ = len(recipe.rules), len(rule_names())
        checks = say_n("{n} of {all} checks is run", "{n} of {all} checks are run", made, all=all_)
    return say("recipe {name}: {changes}", name=recipe.name, changes=chain(changes, limits, checks))


def _as_typed(declared: Any, value: Any) -> str:
    """Return an option as it would be typed."""
    if declared.is_flag:
        return str(declared.opts[0] if value or not declared.secondary_opts else declared.secondary_opts[0])
    return " ".join(f"{declared.opts[0]} {v}" for v in (value if isinstance(value, list | tuple) else [value]))


def apply(ctx: typer.Context, name: str | None) -> str | None:
    """Make a recipe's options the defaults of the command that is being read.

    Raises UsageError for keys and values that cannot be, InputError when the recipe cannot be read.
    """
    if name is None or ctx.resilient_parsing:
        return name
    from npuperf.base.notes import read_yaml

    path = find_recipe(name)
    recipe = read_yaml(path)
    _check(ctx, path, recipe)
    section = str(ctx.command.name)
    wanted = {**(recipe.get("output") or {} if section != "profile" else {}), **(recipe.get(section) or {})}
    options = _options_of(ctx, section)
    if "gates" in recipe and section == "analyze":
        others = wanted.get("gates")
        wanted["gates"] = [*(others if isinstance(others, list) else [] if others is None else [others]), str(path)]
    # An output option that this command does not have is for the others.
    known = {key: value for key, value in wanted.items() if key in options}
    where = _within(say("{path}", path=str(path)), section)
    ctx.default_map = {str(options[k].name): _converted(ctx, where, k, options[k], v) for k, v in known.items()}
    ctx.meta[__name__] = Recipe(name, tuple(recipe.get("rules") or ()), recipe.get("thresholds") or {})
    return name


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given by name or by path."""
    if Path(name).suffix in (".yaml", ".yml") or "/" in name:
        if not os.path.exists(name):  # noqa: PTH110 - which takes any name, longer than those of files as well
            raise UsageError(say("--recipe {name}: no such file", name=name))
        return Path(name)
    folder = _PACKAGE / "recipes"
    if not folder.is_dir():  # a checkout has them beside the package
        folder = _PACKAGE.parent / "recipes"
    shipped = {f.stem: f for f in folder.glob("*.yaml")}
    if name not in shipped:
        listed = say("known: {names}; or give the path of a .yaml file", names=series(sorted(shipped)))
        raise UsageError(say("--recipe {name}: no such recipe", name=repr(name)), hint=_near(name, shipped, listed))
    return shipped[name]


def _check(ctx: typer.Context, path: Path, recipe: Mapping[str, Any]) -> None:
    """Refuse keys that nobody would read, in every section, whichever is used."""
    where = say("{path}", path=str(path))
    _known(where, recipe, _KEYS)
    for section in _SECTIONS:
        _known(_within(where, section), _mapping(where, recipe, section), _options_of(ctx, section))
    _known(_within(where, "output"), _mapping(where, recipe, "output"), _OUTPUT)
    if "gates" in recipe:
        from npuperf.against.gates import gates_in, parse_gate
        from npuperf.against.metrics import register_all
        from npuperf.model.result import Result

        register_all()
        for gate in gates_in(path, recipe.get("gates")):
            parse_gate(gate, Result)
    if not (recipe.keys() & {"rules", "thresholds"}):
        return
    from npuperf.advise import load_thresholds, rule_names

    rules = recipe.get("rules") or []
    if not isinstance(rules, list):
        raise UsageError(say("{where}: rules: not a list", where=where))
    _known(_within(where, "rules"), map(str, rules), rule_names())
    thresholds = _mapping(where, recipe, "thresholds")
    _known(_within(where, "thresholds"), thresholds, load_thresholds().as_dict())
    for key, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
            what = say("{where}: thresholds: {key}: {value} is not a number", where=where, key=key, value=repr(value))
            raise UsageError(what)


def _within(where: Message, section: str) -> Message:
    return say("{where}: {section}", where=where, section=section)


def _mapping(where: Message, recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = recipe.get(key) or {}
    if not isinstance(found, dict):
        raise UsageError(say("{where}: {key}: not a mapping", where=where, key=key))
    return found


def _known(where: Message, keys: Iterable[Any], known: Iterable[str]) -> None:
    names = list(known)
    for key in keys:
        if key not in names:
            hint = _near(str(key), names, say("valid: {names}", names=series(names)))
            raise UsageError(say("{where}: {key}: unknown key", where=where, key=repr(key)), hint=hint)


def _near(name: str, names: Iterable[str], listed: Message) -> Message:
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return chain(say("did you mean {name}?", name=found[0]) if found else None, listed, by=" ")


def _options_of(ctx: typer.Context, section: str) -> dict[str, Any]:
    """Return a command's options that a recipe may set, by their long names; both names of a switch."""
    command: Any = ctx.find_root().command
    options: dict[str, Any] = {}
    for param in command.commands[section].params:
        for flag in (*param.opts, *param.secondary_opts):
            if flag.startswith("--") and flag[2:] not in _NOT_HERE:
                options[flag[2:]] = param
    return options


def _converted(ctx: typer.Context, where: Message, key: str, declared: Any, value: Any) -> Any:
    """Return a value as the command line takes it. Raises UsageError where it would not."""
    if declared.is_flag and not isinstance(value, bool):
        what = say("{where}: {key}: {value} is neither true nor false", where=where, key=key, value=repr(value))
        raise UsageError(what)
    if declared.multiple and not isinstance(value, list):
        value = [value]
    singles = value if declared.multiple else [value]
    if not declared.is_flag and any(one is None or isinstance(one, dict | list | set | bytes) for one in singles):
        shown = repr(value) if len(repr(value)) <= _SHOWN else repr(value)[:_SHOWN] + "…"
        raise UsageError(say("{where}: {key}: {value} is not a single value", where=where, key=key, value=shown))
    if f"--{key}" in declared.secondary_opts:
        value = not value
    if not declared.is_flag:
        value = [str(v) for v in value] if declared.multiple else str(value)
    try:
        declared.process_value(ctx, value)
    except UsageError as error:
        raise UsageError(say("{where}: {key}: {why}", where=where, key=key, why=error.what), hint=error.hint) from error
    except Exception as error:  # click has many ways to say no
        why = str(getattr(error, "message", error))
        raise UsageError(say("{where}: {key}: {why}", where=where, key=key, why=why)) from error
    return value

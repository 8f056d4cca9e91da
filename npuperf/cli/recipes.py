"""Recipes: options, rules and thresholds from a YAML file. What the command line says goes before them.

A recipe has any of these keys: ``description``; ``profile``, ``analyze`` and ``tune`` (options of the command, as
they are typed, without the dashes); ``output`` (format, full, top, table: for analyze and tune); ``rules`` (those to
ask) and ``thresholds`` (numbers that judge) for analyze.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from npuperf.errors import InputError, UsageError

_SECTIONS: Final = ("profile", "analyze", "tune")
_KEYS: Final = ("description", *_SECTIONS, "output", "rules", "thresholds")
_OUTPUT: Final = ("format", "full", "top", "table")
#: Options that say what a run is about, not how: they do not belong into a recipe.
_NOT_HERE: Final = (
    *("help", "recipe", "output", "force", "debug", "dry-run", "module"),
    *("before", "from", "diff", "merge", "into", "rollback", "verify", "resume"),
)
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def with_recipe(ctx: typer.Context, name: str | None, section: str) -> dict[str, Any]:
    """Return a command's parameters with those of a recipe, if any, where the command line does not give them.

    ``rules`` and ``thresholds`` are added for analyze, ``recipe_gave`` names the parameters that the recipe set.
    Raises UsageError for keys and values that cannot be, InputError when the recipe cannot be read.
    """
    values: dict[str, Any] = {**ctx.params, "recipe_gave": []}
    if name is None:
        return values
    path = find_recipe(name)
    recipe = _read(path)
    _check(ctx, path, recipe)
    wanted = {**(recipe.get("output") or {} if section != "profile" else {}), **(recipe.get(section) or {})}
    options = _options_of(ctx, section)
    for key, value in wanted.items():
        option = options.get(key)
        if option is None:  # an output option that this command does not have
            continue
        if not typed(ctx, option.name):
            values[option.name] = _converted(ctx, path, section, key, option, value)
            values["recipe_gave"].append(option.name)
    if section == "analyze":
        values.update(rules=recipe.get("rules") or [], thresholds=recipe.get("thresholds") or {})
    return values


def typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether a parameter is on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given by name or by path."""
    if Path(name).suffix in (".yaml", ".yml") or "/" in name:
        if not Path(name).is_file():
            raise UsageError(f"--recipe {name}: no such file")
        return Path(name)
    folder = _PACKAGE / "recipes"
    if not folder.is_dir():  # a checkout has them beside the package
        folder = _PACKAGE.parent / "recipes"
    shipped = {f.stem: f for f in folder.glob("*.yaml")}
    if name not in shipped:
        hint = f"{_near(name, shipped)}shipped: {', '.join(sorted(shipped))}; or give the path of a .yaml file"
        raise UsageError(f"--recipe {name!r}: no such recipe", hint=hint)
    return shipped[name]


def effect(ctx: typer.Context, name: str, values: Mapping[str, Any]) -> str:
    """Say in one line what a recipe changes."""
    given = set(values["recipe_gave"])
    options = (p for p in ctx.command.params if p.name in given)
    shown = ", ".join(_typed(p, values[str(p.name)]) for p in options)
    return f"recipe {name}: {shown or 'changes nothing here'}"


def _typed(option: Any, value: Any) -> str:
    """Render an option as it would be typed."""
    if option.is_flag:
        return str(option.opts[0] if value or not option.secondary_opts else option.secondary_opts[0])
    return " ".join(f"{option.opts[0]} {v}" for v in (value if isinstance(value, list | tuple) else [value]))


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        recipe = yaml.safe_load(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: not a recipe: its top level is no mapping", hint=f"keys: {', '.join(_KEYS)}")
    return recipe


def _check(ctx: typer.Context, path: Path, recipe: Mapping[str, Any]) -> None:
    """Refuse keys that nobody would read, in every section, whichever is used."""
    _known(path, "", recipe, _KEYS)
    for section in _SECTIONS:
        _known(path, section, _mapping(path, recipe, section), _options_of(ctx, section))
    _known(path, "output", _mapping(path, recipe, "output"), _OUTPUT)
    if not (recipe.keys() & {"rules", "thresholds"}):
        return
    from npuperf.advise import load_thresholds, rule_names

    rules = recipe.get("rules") or []
    if not isinstance(rules, list):
        raise UsageError(f"{path}: rules: not a list")
    _known(path, "rules", dict.fromkeys(map(str, rules)), rule_names())
    thresholds = _mapping(path, recipe, "thresholds")
    _known(path, "thresholds", thresholds, load_thresholds().as_dict())
    for key, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{path}: thresholds: {key}: {value!r} is no number")


def _mapping(path: Path, recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = recipe.get(key) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {key}: not a mapping")
    return found


def _known(path: Path, section: str, keys: Iterable[Any], known: Iterable[str]) -> None:
    names = list(known)
    for key in keys:
        if key not in names:
            where = f"{section}: " if section else ""
            hint = f"{_near(str(key), names)}valid: {', '.join(names)}"
            raise UsageError(f"{path}: {where}{key!r}: unknown key", hint=hint)


def _near(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {found[0]}? " if found else ""


def _options_of(ctx: typer.Context, section: str) -> dict[str, Any]:
    """Return a command's options that a recipe may set, by their long names; both names of a switch."""
    command: Any = ctx.find_root().command
    options: dict[str, Any] = {}
    for param in command.commands[section].params:
        for flag in (*param.opts, *param.secondary_opts):
            if flag.startswith("--") and flag[2:] not in _NOT_HERE:
                options[flag[2:]] = param
    return options


def _converted(ctx: typer.Context, path: Path, section: str, key: str, option: Any, value: Any) -> Any:
    """Convert a value as the command line would."""
    if f"--{key}" in option.secondary_opts:
        value = not value
    if option.multiple and not isinstance(value, list):
        value = [value]
    try:
        if option.is_flag and not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither true nor false")
        texts = [str(v) for v in value] if option.multiple else value if option.is_flag else str(value)
        return option.process_value(ctx, texts)
    except Exception as error:  # click has many ways to say no
        raise UsageError(f"{path}: {section}: {key}: {getattr(error, 'message', error)}") from error

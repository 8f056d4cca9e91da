"""Gather every sentence to be translated: ``make messages`` writes ``npuperf.pot`` and brings every .po up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import yaml
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from npuperf.messages import BETWEEN_ITEMS, BETWEEN_NUMBERS, BETWEEN_SENTENCES, ITEMS
from npuperf.render.language import LOCALE

_PACKAGE: Final = Path(__file__).resolve().parents[1]
#: What says a sentence, and which of its arguments are one.
KEYWORDS: Final = {"say": None, "say_n": (1, 2)}
#: Keys of YAML files under which sentences stand.
_IN_YAML: Final = ("source", "description")
#: Where signs between sentences are said.
_SIGNS: Final = ("npuperf/messages.py", 0)


def from_yaml(
    file: IO[bytes], keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield the sentences of a YAML file as Babel's extractors do: line, keyword, sentence, comments."""

    def sentences(value: Any) -> Iterator[str]:
        for key, found in value.items() if isinstance(value, Mapping) else ():
            if key in _IN_YAML and isinstance(found, str):
                yield found
            yield from sentences(found)

    for sentence in sentences(yaml.safe_load(file)):
        yield 1, "say", sentence, []


def catalogue() -> Catalog:
    """Return all sentences of the package and of the recipes."""
    found = Catalog(project="npuperf", charset="utf-8", fuzzy=False)
    methods = [("**.py", "python"), ("**.yaml", f"{__package__}.gathering:from_yaml")]
    recipes = _PACKAGE / "recipes"  # a checkout has them beside the package
    for folder in (_PACKAGE, recipes if recipes.is_dir() else _PACKAGE.parent / "recipes"):
        place = folder.relative_to(_PACKAGE.parent)
        for file, line, sentence, comments, context in extract_from_dir(
            folder, methods, keywords=KEYWORDS, comment_tags=()
        ):
            found.add(sentence, None, [(f"{place}/{file}", line)], auto_comments=comments, context=context)
    for between in (*BETWEEN_SENTENCES, *BETWEEN_NUMBERS):
        found.add(between, None, [_SIGNS])
    for between in BETWEEN_ITEMS:
        found.add(between, None, [_SIGNS], context=ITEMS)
    return found


def main() -> None:
    """Write the template, and what is new into every language."""
    template = catalogue()
    with (LOCALE / "npuperf.pot").open("wb") as file:
        write_po(file, template, width=120)
    for path in LOCALE.glob("*.po"):
        update(path, template)


def update(path: Path, template: Catalog) -> None:
    """Give a language's file the sentences of a template: new ones are empty, those that nobody says are gone.

    Neither lines nor dates are in it, so that it changes with its sentences alone.
    """
    with path.open("rb") as file:
        language = read_po(file, locale=path.stem)
    made = language.creation_date
    language.update(template, no_fuzzy_matching=True)
    language.creation_date = made
    with path.open("wb") as file:
        write_po(file, language, width=120, include_lineno=False, ignore_obsolete=True)


if __name__ == "__main__":
    main()

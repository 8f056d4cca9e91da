"""Languages, for who develops npuperf: ``make messages`` gathers every sentence and brings every language up to date.

Files are sorted by sentence and hold no places, so that they change with their sentences alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT: Final = Path(__file__).resolve().parent
LOCALE: Final = ROOT / "npuperf" / "locale"
#: What says a sentence, and which of its arguments are one.
KEYWORDS: Final = {"say": None, "say_n": (1, 2)}
#: Keys of YAML files under which sentences stand.
_IN_YAML: Final = ("source", "description")


def from_yaml(
    file: IO[bytes], keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield the sentences of a YAML file as Babel's extractors do: line, keyword, sentence, comments."""
    import yaml

    def sentences(value: Any) -> Iterator[str]:
        for key, found in value.items() if isinstance(value, Mapping) else ():
            if key in _IN_YAML and isinstance(found, str):
                yield found
            yield from sentences(found)

    for sentence in sentences(yaml.safe_load(file)):
        yield 1, "say", sentence, []


def catalogue() -> Catalog:
    """Return all sentences of the package and of the recipes."""
    from npuperf.base.messages import BETWEEN_ITEMS, BETWEEN_NUMBERS, BETWEEN_SENTENCES, ITEMS

    found = Catalog(project="npuperf", charset="utf-8", fuzzy=False)
    methods = [("**.py", "python"), ("**.yaml", from_yaml)]
    for folder in (ROOT / "npuperf", ROOT / "recipes"):
        for _, _, sentence, comments, context in extract_from_dir(folder, methods, keywords=KEYWORDS, comment_tags=()):
            found.add(sentence, auto_comments=comments, context=context)
    for between in (*BETWEEN_SENTENCES, *BETWEEN_NUMBERS):
        found.add(between)
    for between in BETWEEN_ITEMS:
        found.add(between, context=ITEMS)
    return found


def update(path: Path, template: Catalog) -> None:
    """Give a language's file the sentences of a template: new ones are empty, those that nobody says are gone."""
    with path.open("rb") as file:
        language = read_po(file, locale=path.stem)
    made = language.creation_date
    language.update(template, no_fuzzy_matching=True)
    language.creation_date = made
    with path.open("wb") as file:
        write_po(file, language, width=120, no_location=True, sort_output=True, ignore_obsolete=True)


def compile_language(source: Path) -> Path:
    """Write ``<code>.mo`` beside ``<code>.po``: the form in which npuperf reads a language."""
    compiled = source.with_suffix(".mo")
    with source.open("rb") as file:
        sentences = read_po(file, locale=source.stem, abort_invalid=True)
    with compiled.open("wb") as file:
        write_mo(file, sentences)
    return compiled


def main() -> None:
    """Write the template, and what is new into every language."""
    template = catalogue()
    with (LOCALE / "npuperf.pot").open("wb") as file:
        write_po(file, template, width=120, no_location=True, sort_output=True)
    for path in LOCALE.glob("*.po"):
        update(path, template)
        compile_language(path)


if __name__ == "__main__":
    main()

"""Compile the languages when the package is built: reading them as they are written takes ten times as long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileLanguages(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Write ``<code>.mo`` beside every ``<code>.po``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile all languages; ``version`` says which kind of installation is made."""
        for source in Path(self.root, "npuperf", "locale").glob("*.po"):
            compiled = source.with_suffix(".mo")
            with source.open("rb") as file:
                sentences = read_po(file, locale=source.stem, abort_invalid=True)
            with compiled.open("wb") as file:
                write_mo(file, sentences)
            build_data["artifacts"].append(compiled.relative_to(self.root).as_posix())

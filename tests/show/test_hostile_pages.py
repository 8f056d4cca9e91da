"""Pages of documents in which every string is an attack: they are made like those of harmless ones, text aside."""

from __future__ import annotations

import re
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any

import pytest
from hostile_documents import HEADS, MARK, SEEN, TAIL, Poisoner, is_seen

from npuperf.model.document import Document
from npuperf.model.schema import documents as kinds
from npuperf.show.formats import View, render

#: Attributes that are texts for people; all others are ours.
TEXTS = {"aria-label", "title", "content", "aria-description", "aria-valuetext"}


class Harmless(Poisoner):
    """The same documents with names as long as those of the attacks as people see them, of which none is one."""

    def name(self) -> str:
        super().name()
        return f"{'e' * len(self.head)}{self.made[-1]}{'x' * len(SEEN)}"


class Built(HTMLParser):
    """What a page is built of, in order: elements, their attributes, and ends; its texts apart from that."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self._raw = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._raw = tag in ("script", "style")
        kept = (f"{key}={'' if key in TEXTS else value}" for key, value in attrs)
        self.texts += [value or "" for key, value in attrs if key in TEXTS]
        self.parts.append((tag, *kept))

    def handle_endtag(self, tag: str) -> None:
        self._raw = False
        self.parts.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self.texts.append(data)


@lru_cache
def page_of(name: str, maker: type[Poisoner], head: str) -> str:
    document: Document = maker(head).of(kinds()[name])
    return render(document, "html", View(full=True))


def shape(built: Built) -> list[tuple[str, ...]]:
    """Bars of charts are as wide as names sort; how wide is no matter here."""
    drawn = re.compile(r"^(x|y|width|height|x1|x2|y1|y2|d|points|transform|textlength)=")
    return [tuple(part for part in parts if not drawn.match(part)) for parts in built.parts]


@pytest.mark.parametrize("head", [HEADS[0], HEADS[-1]])
@pytest.mark.parametrize("name", sorted(kinds()))
def test_an_attack_builds_nothing(name: str, head: str) -> None:
    attacked, harmless = (Built(page_of(name, maker, head)) for maker in (Poisoner, Harmless))
    assert shape(attacked) == shape(harmless)


@pytest.mark.parametrize("name", sorted(kinds()))
def test_everything_is_seen_and_recognised(name: str) -> None:
    page = page_of(name, Poisoner, HEADS[0])
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert all(map(is_seen, body))
    said = "".join(Built(page).texts)
    assert not re.search(r"^\s*INJECTED", said, re.MULTILINE)
    found = [m for m in MARK.finditer(said) if said.startswith(SEEN, m.end())]
    assert found
    assert TAIL not in said


def test_a_name_cannot_end_the_script_with_the_data() -> None:
    page = page_of("result", Poisoner, HEADS[0])
    data: list[Any] = re.findall(r'<script type="application/octet-stream"[^>]*>([^<]*)</script>', page)
    assert len(data) == 1 and re.fullmatch(r"[A-Za-z0-9+/=]+", data[0])
    assert page.count("<script") == 2 and page.count("<style") == 1

"""What holds for a page and for traces that were written beside a report, whatever the input was."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from oracle import parsed, unprintable
from trace_reader import read_strictly

MOST_BYTES = 2_000_000
#: What a page may consist of; everything else came out of the input.
TAGS = {
    "a", "article", "b", "body", "br", "button", "canvas", "caption", "circle", "code", "dd", "details", "div", "dl",
    "dt", "figcaption", "figure", "g", "h1", "h2", "h3", "h4", "head", "header", "html", "li", "line", "link", "main",
    "meta", "nav", "ol", "p", "path", "polygon", "polyline", "pre", "rect", "script", "section", "span", "style",
    "summary", "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "aria-describedby", "aria-hidden", "aria-label", "aria-labelledby", "aria-live", "charset", "class", "colspan",
    "content", "cx", "cy", "d", "data-go", "data-matrix", "data-value", "data-words", "dx", "dy", "focusable", "height",
    "hidden", "href", "http-equiv", "id", "lang", "name", "open", "points", "preserveaspectratio", "r", "rel", "role",
    "rowspan", "scope", "tabindex", "text-anchor", "textlength", "title", "transform", "type", "viewbox", "width",
    "x", "x1", "x2", "y", "y1", "y2",
}  # fmt: skip
#: What stands in these is ours and no text.
_NUMBERS = {"cx", "cy", "dx", "dy", "height", "r", "width", "x", "x1", "x2", "y", "y1", "y2"}
_FAR = 1 << 53


class Taken(HTMLParser):
    """A page as a browser takes it apart; ``wrong``: what is not of ours."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": [], "data": []}
        self.policies: list[str] = []
        self.ids: list[str] = []
        self._in: str | None = None
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in = tag if tag in ("script", "style") else None
        if tag == "script" and given.get("type") == "application/octet-stream":
            self._in = "data"
        if self._in:
            self.raw[self._in].append("")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(given["content"] or "")
        self.ids += [given["id"] or ""] if "id" in given else []
        self.wrong += self._wrong(tag, given)
        self.texts += [value or "" for value in given.values()]

    def _wrong(self, tag: str, given: dict[str, str | None]) -> Iterator[str]:
        if tag not in TAGS:
            yield f"<{tag[:30]}>"
        yield from (f"<{tag} {key[:30]}>" for key in given.keys() - ATTRIBUTES)
        if not re.match(r"#[a-z0-9-]+$|data:,$", given.get("href") or "#a"):
            yield f"a way out: {given['href']}"
        if not re.fullmatch(r"-?\d+:-?\d+:-?\d+", given.get("data-go") or "0:0:0"):
            yield f"no place: {given['data-go']}"
        yield from (f"{key}={given[key]}" for key in _NUMBERS & given.keys() if not _is_length(given[key]))

    def handle_endtag(self, tag: str) -> None:
        self._in = None

    def handle_data(self, data: str) -> None:
        if self._in:
            self.raw[self._in][-1] += data
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"a comment: {data[:30]}")


def _is_length(value: str | None) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?%?", value or ""))


def wrong_page(path: Path) -> str | None:
    """Say what is wrong with a page, if anything."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        return f"PAGE of {size} bytes"
    page = path.read_bytes().decode("utf-8")
    if not page.startswith("<!DOCTYPE html>") or not page.endswith("</html>"):
        return "PAGE half-written"
    taken = Taken(page)
    script, style, data = (taken.raw[name] for name in ("script", "style", "data"))
    if (len(script), len(style), len(data), len(taken.policies)) != (1, 1, 1, 1):
        return f"PAGE with {len(script)} scripts, {len(style)} styles, {len(data)} data"
    for content in (*script, *style):
        if f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" not in taken.policies[0]:
            return "PAGE with a script or style that its policy forbids"
    if taken.wrong:
        return f"PAGE with {taken.wrong[0]}"
    if len(taken.ids) != len(set(taken.ids)):
        return "PAGE with an id twice"
    return unprintable("PAGE", "".join(taken.texts)) or _wrong_data(data[0])


def _wrong_data(packed: str) -> str | None:
    """Say what is wrong with what the scripts draw."""
    try:
        data = parsed(gzip.decompress(base64.b64decode(packed, validate=True)).decode("ascii"))
    except (ValueError, EOFError, OSError) as error:
        return f"PAGE with data that cannot be unpacked: {error}"
    pictures = (*data["pictures"], *data["old_pictures"])
    far = any(picture["span"] + picture["at"] >= _FAR for picture in pictures)  # of a hundred days, scripts round times
    for number in _numbers(data):
        if isinstance(number, int) and abs(number) >= _FAR and not far:
            return f"PAGE with {number}, which scripts round"
    for picture in pictures:
        for lane in picture["lanes"]:
            if any(len(column) != len(lane["slices"]["start"]) for column in lane["slices"].values()):
                return "PAGE with columns of several lengths"
        for *_, start, end in picture["places"]:  # a call may go on when the device is done
            if not (start <= end and start <= picture["span"] and end >= 0):
                return "PAGE with a place outside of its timeline"
    return unprintable("PAGE data", "".join(_texts(data)))


def _numbers(tree: Any) -> Iterator[float]:
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _numbers(value)
    elif isinstance(tree, int | float):
        yield tree


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from tree
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(value)
    elif isinstance(tree, str):
        yield tree


def wrong_trace(path: Path, *, overlay: bool) -> str | None:
    """Say what is wrong with a trace, if anything; ``overlay``: its times are as the original's."""
    packed = path.read_bytes()
    try:
        events = parsed((gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8"))
        if any(_is_far(event, relative=not overlay) for event in events):
            return None  # which is told: viewers round such times
        read_strictly(path, text_times=overlay)
    except (AssertionError, KeyError, ValueError, EOFError) as error:
        return f"TRACE {path.name}: {type(error).__name__} {str(error)[:200]}"
    return None


def _is_far(event: Any, *, relative: bool) -> bool:
    """Tell whether a time of an event, µs, has more ns than numbers of viewers have; ``relative``: not an epoch."""
    times = (event.get("dur"), event.get("ts") if relative else None)
    return any(isinstance(time, int | float) and time * 1000 >= _FAR for time in times)


def wrong_files(folder: Path, code: int) -> str | None:
    """Say what is wrong with what lies in a folder after a page and traces were asked for there; ``code``: the exit."""
    for path in sorted(folder.iterdir()):
        if path.name not in ("page.html", "overlay.json", "overlay.json.gz", "full.json", "full.json.gz"):
            return f"LEFT BEHIND {path.name}"
        if code not in (0, 1, 3, 4):
            return f"WRITTEN {path.name} with {code}"
        failure = wrong_page(path) if path.suffix == ".html" else wrong_trace(path, overlay="overlay" in path.name)
        if failure:
            return failure
    return None

"""Text that others wrote, made fit for where it goes: one function for each target, which every string passes there.

Names of kernels, ranks, files and settings come from files that anybody may have written. Wherever they are shown they
stay text: no command to a terminal, no markup, no formula, no line of a program. What cannot be seen is spelled out
(``\\x1b``, ``\\n``, ``\\u202e``), so that a name stays recognisable; what can be seen, in any script, stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any, Final

#: What is not seen: control characters, what changes the direction of text or hides in it, what other programs take for
#: the end of a line, and halves of pairs, which are no text. Joiners stay: emoji and several scripts need them.
_BEYOND_ASCII: Final = (
    "\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
_HIDDEN: Final = re.compile(f"[\x00-\x1f{_BEYOND_ASCII}]")
_HIDDEN_IN_JSON: Final = re.compile(f"[{_BEYOND_ASCII}]")
_SEEN_IN_JSON: Final = bytes(range(0x7F))  # with the ends of its lines; in its strings, encoders spell them out
_HALVES: Final = re.compile("[\ud800-\udfff]")
_SPELLED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: What XML takes for markup, and two signs that Unicode keeps free, which it must not have.
_IN_XML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_UNFIT_FOR_XML: Final = re.compile('[&<>"\ufffe\uffff]')
_FREE: Final = re.compile("[\ufffe\uffff]")
#: Bytes of a path that are no UTF-8, as Python keeps them.
_BYTES: Final = range(0xDC80, 0xDD00)

#: People are shown no longer words and no longer texts than these; of longer ones the two ends.
_WORD, _TEXT, _HEAD, _TAIL = 1000, 4000, 200, 100
_LONG_WORD: Final = re.compile(rf"\S{{{_WORD + 1},}}")

#: What Markdown would not take for text; underscores only where they may begin what others end.
_MARKS: Final = re.compile(
    r"""
    (?P<sign> [`*\[|~$] | (?<!\w)_+(?=.*_(?!\w)) | \\(?=[!-/:-@\[-`{-~]|\Z) )
    | (?P<less> < ) | (?P<entity> &(?=\#|\w+;) ) | (?P<mention> (?<!\w)@(?=\w) )
    """,
    re.VERBOSE,
)
_BLOCK: Final = re.compile(r"(?P<number>\s*\d+)(?=[.)](?:\s|\Z))|(?P<blank>\s*)(?=[-+>=#])")
_INDENTED: Final = re.compile(r"\A {4,}")
#: Spreadsheets take a cell that begins with one of these for a formula; the last four are the same, twice as wide.
_FORMULA: Final = frozenset("=+-@＝＋－＠")


def visible(text: str) -> str:
    """Return a text in one line, in which everything can be seen."""
    return text if text.isprintable() else _HIDDEN.sub(_spelled, text)


def for_screen(text: str) -> str:
    """Return a line for people: everything in it can be seen, and of what has no end the two ends."""
    if len(text) > _WORD:
        text = _LONG_WORD.sub(lambda word: _ends(word[0]), text)
        text = text if len(text) <= _TEXT else _ends(text)
    return visible(text)


def for_markdown(text: str) -> str:
    """Return what Markdown shows as the same text, within a line."""
    return _MARKS.sub(_marked, for_screen(text))


def for_markdown_line(text: str) -> str:
    """Return what Markdown shows as the same text where a line begins: as no list, heading, quotation or code."""
    escaped = for_markdown(_INDENTED.sub("", text))
    found = _BLOCK.match(escaped)
    return f"{found[0]}\\{escaped[found.end() :]}" if found else escaped


def for_csv(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: an apostrophe stands before what would be one."""
    if not cell.isprintable():  # as in visible, without a call for each of millions of cells
        cell = visible(cell)
    if cell[:1] in _FORMULA:
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


def for_json(json: bytes) -> str:
    """Return JSON of which everything can be seen: its strings stay the same, only spelled in another way."""
    text = json.decode("utf-8", "surrogatepass")
    if json.translate(None, _SEEN_IN_JSON).decode("utf-8", "surrogatepass").isprintable():
        return text  # without a look at each of millions of characters
    lines = text.split("\n")  # of which few have anything to be spelled; a search through all would take longer
    return "\n".join(line if line.isprintable() else _HIDDEN_IN_JSON.sub(_as_json, line) for line in lines)


def for_xml(text: str) -> str:
    """Return a line as text or an attribute of XML 1.0, which has no sign for what it spells out."""
    return _UNFIT_FOR_XML.sub(lambda sign: _IN_XML.get(sign[0]) or _spelled(sign), for_screen(text))


def for_yaml(text: str) -> str:
    """Return a text as a string of YAML, in quotes and in one line, that is read as the same text."""
    quoted = without_halves(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{for_yaml_comment(quoted)}"'


def for_yaml_comment(text: str) -> str:
    """Return a text to stand behind a # in YAML: two signs that Unicode keeps free YAML must not have."""
    return _FREE.sub(_spelled, visible(text))


def without_halves(value: Any) -> Any:
    """Return a text, or lists and objects of texts, without halves of pairs, which no encoding has."""
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {without_halves(key): without_halves(item) for key, item in value.items()}
    return [without_halves(item) for item in value] if isinstance(value, list | tuple) else value


def for_code(lines: Iterable[str]) -> str:
    """Return lines of a program, each of them one line, whatever the names in its comment hold."""
    return "".join(f"{visible(line)}\n" for line in lines)


def for_shell(*words: str) -> str:
    """Return words of a command line to be pasted into a shell, in one line; what is not seen is spelled out."""
    quoted = []
    for word in words:
        if visible(word) == word:
            quoted.append(shlex.quote(word))
        else:
            spelled = _HIDDEN.sub(_spelled, word.replace("\\", "\\\\").replace("'", "\\x27"))
            quoted.append(f"$'{spelled}'")
    return " ".join(quoted)


def _spelled(found: re.Match[str]) -> str:
    sign = found[0]
    code = ord(sign)
    if sign in _SPELLED:
        return _SPELLED[sign]
    if code in _BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _as_json(found: re.Match[str]) -> str:
    pair = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[i : i + 2].hex()}" for i in range(0, len(pair), 2))


def _marked(found: re.Match[str]) -> str:
    sign = found[0]
    if found["less"]:
        return "&lt;"
    if found["entity"]:
        return "&amp;"
    if found["mention"]:
        return "@&#8203;"  # a name is no longer one's; nothing of this is seen
    return "".join(f"\\{one}" for one in sign)


def _ends(text: str) -> str:
    return f"{text[:_HEAD]}…{text[-_TAIL:]}"

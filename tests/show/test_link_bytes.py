"""Links on a screen, byte by byte as a terminal reads them, in a real terminal and in a pipe, from hostile names, too.

A link is ESC ] 8 ; parameters ; address ESC \\, and another one without an address ends it. Whatever stands in an
address is of the signs from 32 to 126, and no link reaches beyond its line.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT
from hostile_documents import HEADS, Poisoner

from npuperf.model.schema import documents as kinds
from npuperf.show.formats import View, render

SAMPLE = ROOT / "samples" / "transformer_ascend_pt"
ESC, OPEN, END = 0x1B, b"\x1b]8;", b"\x1b\\"


def read_links(screen: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return a screen without its links, and their addresses and texts; a link that is none is an error."""
    plain, links = bytearray(), []
    at, address, text = 0, b"", bytearray()
    while at < len(screen):
        if screen.startswith(OPEN, at):
            parameters, at = _until(screen, at + len(OPEN), b";")
            said, at = _until(screen, at, END)
            assert parameters == b"" and not (said and address), "one within another"
            if not said:
                assert address, "ended without a beginning"
                links.append((address.decode("ascii"), bytes(text)))
                text = bytearray()
            address = said
            continue
        byte = screen[at]
        assert not screen.startswith((b"\x1b]", b"\x07", b"\xc2\x9d", b"\xc2\x9c"), at), "another command"
        assert not (address and byte in (ESC, 0x0A, 0x0D)), "more than the text of its line is in a link"
        plain.append(byte)
        if address:
            text.append(byte)
        at += 1
    assert not address, "never ended"
    return bytes(plain), links


def _until(screen: bytes, at: int, end: bytes) -> tuple[bytes, int]:
    stop = screen.index(end, at)
    said = screen[at:stop]
    assert all(32 <= byte <= 126 for byte in said), said
    return said, stop + len(end)


@pytest.mark.parametrize(
    "screen",
    [
        b"\x1b]8;;file://h/a#1\x1b\\text",  # never ended
        b"\x1b]8;;file://h/a#1\x1b\\te\nxt\x1b]8;;\x1b\\",
        b"\x1b]8;;file://h/a#1\x1b\\\x1b[1mtext\x1b]8;;\x1b\\",
        b"\x1b]8;;file://h/a#1\x1b\\a\x1b]8;;file://h/b#1\x1b\\b\x1b]8;;\x1b\\",
        b"\x1b]8;;file://h/\xe6\x96\x87#1\x1b\\text\x1b]8;;\x1b\\",
        b"text\x1b]8;;\x1b\\",
        b"\x1b]0;title\x07",
    ],
)
def test_what_is_no_link_is_seen(screen: bytes) -> None:
    with pytest.raises(AssertionError):
        read_links(screen)


def command(*arguments: object) -> tuple[list[str], dict[str, str]]:
    unwanted = ("NO_COLOR", "INSIDE_EMACS", "VTE_VERSION")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    variables = {"TERM": "xterm-256color", "FORCE_HYPERLINK": "1", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    return [sys.executable, "-m", "npuperf", "analyze", *map(str, arguments)], {**kept, **variables}


def on_terminal(folder: Path, *arguments: object) -> bytes:
    """Return what a command writes to a terminal."""
    main, other = pty.openpty()
    words, variables = command(*arguments)
    process = subprocess.Popen(words, cwd=folder, env=variables, stdout=other, stderr=subprocess.DEVNULL)
    os.close(other)
    found, end = bytearray(), time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if select.select([main], [], [], 0.2)[0]:
                found += os.read(main, 1 << 16)
            elif process.poll() is not None:
                break
    except OSError:  # that is how Linux says that nobody writes there any more
        pass
    finally:
        os.close(main)
        process.wait(timeout=120)
    assert process.returncode == 0
    return bytes(found)


def test_a_terminal_gets_links_and_nothing_else_does(tmp_path: Path) -> None:
    folder = tmp_path / "with ; and 文\x1b]8;;x"
    folder.mkdir()
    code = folder / "model.py"
    code.write_text("\n" * 89 + "def mlp(): pass\n" + "\n" * 60, "utf-8")
    plain, links = read_links(on_terminal(folder, SAMPLE))
    assert len(links) >= 3 and {text for _, text in links} == {b"model.py:131"}
    for address, _ in links:
        parts = urlsplit(address)
        assert (parts.scheme, unquote(parts.path), parts.fragment) == ("file", str(code), "131")
    assert plain.count(b"model.py:131") == len(links)
    words, variables = command(SAMPLE, "--html", "page.html")
    piped = subprocess.run(words, cwd=folder, env=variables, capture_output=True, check=True, timeout=60)
    assert b"\x1b" not in piped.stdout + piped.stderr and b"model.py:131" in piped.stdout
    assert b"\x1b" not in (folder / "page.html").read_bytes()
    read_links(on_terminal(folder, SAMPLE, "-o", "report.txt", "--force"))
    assert b"\x1b" not in (folder / "report.txt").read_bytes()


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_hostile_names_are_no_links_and_end_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("\n" * 99, "utf-8")
    found = 0
    attacks = (*HEADS, "model.py:7\x1b]8;;http://evil/\x1b\\here\x1b]8;;\x1b\\", "\x9d8;;http://evil/\x9cmodel.py:7 ")
    for n, head in enumerate(attacks):
        view = View(full=n % 2 == 0, links=(tmp_path,), colour=True)
        _, links = read_links(render(Poisoner(head).of(kinds()[kind]), "text", view).encode())
        found += len(links)
        assert all(unquote(address).startswith("file://") for address, _ in links)
        assert {unquote(urlsplit(address).path) for address, _ in links} <= {str(tmp_path / "model.py")}
    assert found or kind == "recorded"  # whose names are paths, none of them code

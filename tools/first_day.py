"""Draw docs/pictures/first_day*.svg: the five commands of docs/first-day.md, as a terminal of 80×24 shows them.

Commands and questions are those of the page, and of its Chinese twin; each command is run, in a folder with the samples
and two simulated recordings of one program (benchmarks/pairs.py: the newer one no longer waits for a value on the
device), and what it prints is drawn, page by page. Only paths of this machine are replaced. Without motion, where none
is wanted or possible, the first page stands.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import unicodedata
from html import escape
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import pairs

ROOT: Final = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 80, 24
CELL, LINE, EDGE = 8.0, 17, 14
#: Seconds: a letter is typed, a command is about to run, a page stands to be read.
TYPED, PAUSE, READ = 0.045, 0.7, 6.0
PAGES: Final = {"": "docs/first-day.md", ".zh": "docs/zh/first-day.md"}
COLOURS: Final = {
    "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea",
    "90": "#8b949e", "91": "#ffa198", "92": "#7ee787", "93": "#e3b341", "94": "#79c0ff", "96": "#76e3ea",
}  # fmt: skip


def asked(page: str) -> list[tuple[str, str]]:
    """Return the page's questions, each with its command."""
    found = re.findall(r"^\*\*\d\. (.*?)\*\*.*?```sh\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)
    return [(question, command) for question, command in found]


def printed(command: str, folder: Path, language: str) -> str:
    """Run a command in a terminal of 80 columns and return what it shows: what it says aside, then its output."""
    environment = {**os.environ, "NPUPERF_LANGUAGE": language, "NPUPERF_NO_CACHE": "1", "TERM": "xterm-256color"}
    environment |= {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    for name in ("NO_COLOR", "CI"):
        environment.pop(name, None)
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        command, shell=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how Linux says that nobody writes there any more
        pass
    aside = program.stderr.read() if program.stderr else b""
    if program.wait():
        raise SystemExit(f"{command}: {aside.decode()}")
    text = (aside + shown).decode().replace("\r\n", "\n")
    for path, name in ((folder, "/home/me/day"), (ROOT, "/home/me/npuperf")):
        text = text.replace(str(path), name)
    return text


def width(character: str) -> int:
    """Return how many cells a character fills."""
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def rows(text: str) -> list[list[tuple[int, str, str]]]:
    """Lay text out in rows of 80 cells: runs of one style (SGR codes) with their first cells."""
    found: list[list[tuple[int, str, str]]] = []
    style = ""
    for line in text.rstrip("\n").split("\n"):
        found.append([])
        at = 0
        for part in re.split(r"(\x1b\[[\d;]*[A-Za-z])", line):
            if part.startswith("\x1b"):
                codes = part[2:-1].split(";") if part.endswith("m") else []
                style = "" if codes in ([""], ["0"]) else ";".join([style, *codes]).strip(";")
                continue
            for character in part:
                if at + width(character) > COLUMNS:
                    found.append([])
                    at = 0
                wide = width(character) == 2
                if found[-1] and found[-1][-1][1] == style and (width(found[-1][-1][2][-1]) == 2) == wide:
                    start, _, run = found[-1][-1]
                    found[-1][-1] = (start, style, run + character)
                else:
                    found[-1].append((at, style, character))
                at += width(character)
    return found


def looks(style: str) -> str:
    """Return what SGR codes mean, as attributes."""
    codes = style.split(";")
    colour = next((COLOURS[code] for code in reversed(codes) if code in COLOURS), None)
    faint = ' fill-opacity=".65"' if "2" in codes else ""
    return (f' fill="{colour}"' if colour else "") + (' font-weight="700"' if "1" in codes else "") + faint


def drawn(row: int, runs: list[tuple[int, str, str]]) -> str:
    """Return one row as an element; every run keeps to its cells, whatever the font."""
    pieces = []
    for start, style, run in runs:
        text = run.rstrip(" ") if start + len(run) >= COLUMNS or (start, style, run) == runs[-1] else run
        bare = text.lstrip(" ")
        if not bare:
            continue
        at, cells = start + len(text) - len(bare), sum(map(width, bare))
        pieces.append(f'<tspan x="{at * CELL:g}" textLength="{cells * CELL:g}"{looks(style)}>{escape(bare)}</tspan>')
    return f'<text y="{row * LINE}">{"".join(pieces)}</text>' if pieces else ""


def picture(page: str, language: str, folder: Path) -> str:
    """Return the recording of a page's commands as an SVG that plays by itself, again and again."""
    scenes = []  # per command: its rows, the cells of what is typed, when it begins, when each page stands, its end
    clock = 0.0
    for number, (question, command) in enumerate(asked(page), 1):
        head = rows(f"\x1b[90m# {number}. {question}\x1b[0m\n\x1b[92m$\x1b[0m {command}")
        whole = [*head, *rows(printed(command, folder, language))]
        begin, typed = clock, TYPED * len(command)
        starts = [*range(0, max(len(whole) - ROWS, 1), ROWS - 2)]
        if starts[-1] + ROWS < len(whole):
            starts.append(len(whole) - ROWS)
        clock += PAUSE + typed + PAUSE
        turns = [clock + READ * i for i in range(len(starts))]
        clock += READ * len(starts)
        scenes.append((whole, len(head), begin, typed, [*zip(turns, starts, strict=True)], clock))
    styles, bodies = [], []
    for i, (whole, head, begin, typed, turns, end) in enumerate(scenes):

        def part(second: float) -> str:
            return f"{100 * second / clock:.3f}%"

        styles.append(f"@keyframes s{i}{{0%{{opacity:0}}{part(begin)}{{opacity:1}}{part(end)},to{{opacity:0}}}}")
        styles.append(f"@keyframes o{i}{{0%{{opacity:0}}{part(turns[0][0])}{{opacity:1}}}}")
        moves = "".join(f"{part(at)}{{transform:translateY({-first * LINE}px)}}" for at, first in turns)
        styles.append(f"@keyframes m{i}{{0%{{transform:none}}{moves}}}")
        cells = max(run[0] + sum(map(width, run[2])) for run in whole[head - 1]) - 2
        away = f"translateX({cells * CELL:g}px)"
        typing_begins, typing_ends = part(begin + PAUSE), part(begin + PAUSE + typed)
        styles.append(
            f"@keyframes t{i}{{0%,{typing_begins}{{transform:none;opacity:1;animation-timing-function:steps({cells})}}"
            f"{typing_ends}{{transform:{away};opacity:1}}{part(turns[0][0])},to{{transform:{away};opacity:0}}}}"
        )
        typing = (
            f'<g class="a" style="animation-name:t{i}"><rect x="{2 * CELL:g}" y="{(head - 2) * LINE + 4}" '
            f'width="{COLUMNS * CELL:g}" height="{LINE}" fill="#0d1117"/><rect x="{2 * CELL:g}" '
            f'y="{(head - 2) * LINE + 5}" width="{CELL:g}" height="{LINE - 2}" fill="#e6edf3"/></g>'
        )
        output = "".join(drawn(row, runs) for row, runs in enumerate(whole[head:], head))
        bodies.append(
            f'<g class="a s" style="animation-name:s{i}"><g class="a" style="animation-name:m{i}">'
            f"{''.join(drawn(row, runs) for row, runs in enumerate(whole[:head]))}"
            f'<g class="a" style="animation-name:o{i}">{output}</g><g class="c">{typing}</g></g></g>'
        )
    wide, high = COLUMNS * CELL + 2 * EDGE, ROWS * LINE + 2 * EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high}" width="{wide:g}" height="{high}">\n'
        f"<title>{escape(page.partition(chr(10))[0].lstrip('# '))}</title>\n"
        '<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Noto Sans Mono CJK SC",'
        "monospace;fill:#e6edf3;white-space:pre}.c{opacity:0}.s+.s{opacity:0}"
        "@media (prefers-reduced-motion:no-preference){.c{opacity:1}"
        f".a{{animation:{clock:.2f}s step-end infinite}}}}{''.join(styles)}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n<svg x="{EDGE}" y="{EDGE}" '
        f'width="{COLUMNS * CELL:g}" height="{ROWS * LINE}"><g transform="translate(0 13)">\n'
        + "\n".join(body.replace("</text>", "</text>\n") for body in bodies)
        + "\n</g></svg>\n</svg>\n"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "samples").symlink_to(ROOT / "samples")
        (folder / "train.py").touch()
        pair = pairs.new_sync(3)
        for side, name in ((1, "result.1"), (0, "result")):
            (folder / name).mkdir()
            pair.write(side, folder / name)
        for ending, page in PAGES.items():
            drawing = picture((ROOT / page).read_text("utf-8"), "zh" if ending else "en", folder)
            (ROOT / "docs" / "pictures" / f"first_day{ending}.svg").write_text(drawing, "utf-8")
            (folder / "report.html").unlink(missing_ok=True)

"""What ``matrix.js`` says; in braces what it puts in."""

from __future__ import annotations

from typing import Final

from npuperf.messages import Message, say

CHART_WORDS: Final[dict[str, Message]] = {
    "matrix_cell": say("{row} {one}, {column} {other}: {value}",
                       row="{row}", one="{one}", column="{column}", other="{other}", value="{value}"),
    "matrix_about": say("about {value}", value="{value}"),
    "matrix_missing": say("not known"),
    "matrix_nothing": say("nothing"),
    "matrix_layers": say("what is shown"),
    "matrix_keys": say("arrow keys move from cell to cell; Enter shows it in the timeline"),
    "matrix_rate": say("{n} GB/s", n="{n}"),
}  # fmt: skip

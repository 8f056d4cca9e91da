"""The words of the page that stand in no table or sentence of another format, and those that its scripts say."""

from __future__ import annotations

from typing import Final

from npuperf.messages import Message, say
from npuperf.render.language import text
from npuperf.webpage.chart import WITH_LAUNCHES
from npuperf.webpage.chart_words import CHART_WORDS
from npuperf.webpage.timeline_words import TIMELINE_WORDS

#: What the template says.
PAGE_WORDS: Final[dict[str, Message]] = {
    "skip": say("skip to the report"),
    "contents": say("contents"),
    "summary": say("summary"),
    "theme": say("light or dark"),
    "presupposes": say("what this presupposes"),
    "holds": say("holds"),
    "fails": say("does not hold"),
    "unknown": say("the profile does not tell"),
    "excluded": say("not advised here"),
    "grounds": say("how to prove it wrong, and where it comes from"),
    "no_script": say("the timeline needs scripts, which this browser does not run; everything else is here"),
    "canvas": say("this picture needs scripts; its numbers are in the tables below"),
    "on_paper": say("printed without the less important columns of wide tables"),
    "not_shown": say("the rows that are not shown:"),
}
#: What ``page.js`` says; in braces what it puts in.
_SCRIPT_WORDS: Final[dict[str, Message]] = {
    "page_copy": say("copy"),
    "page_copied": say("copied"),
    "page_copy_failed": say("cannot copy: select it by hand"),
    "page_go": say("show in timeline"),
    "page_all": say("show all {n} rows", n="{n}"),
    "page_fewer": say("show fewer rows"),
    "page_filter": say("filter rows of: {table}", table="{table}"),
    "page_filtered": say("{shown} of {all} rows", shown="{shown}", all="{all}"),
    "page_sorted_up": say("sorted by {column}, the least first", column="{column}"),
    "page_sorted_down": say("sorted by {column}, the greatest first", column="{column}"),
}


def script_words(*, launches_apart: bool = True) -> dict[str, str]:
    """Return all words of scripts in the current language, by name; ``launches_apart``: not counted to the host."""
    said = {**_SCRIPT_WORDS, **TIMELINE_WORDS, **CHART_WORDS}
    if not launches_apart:
        said["timeline_host_wait"] = WITH_LAUNCHES
    return {name: text(message) for name, message in said.items()}

"""The whole page: one file that needs no other and no network, and runs nothing but its own script.

Whatever a profile holds comes in as text: Jinja escapes all that the template is given, and scripts set texts only. The
policy that stands before everything else allows one style sheet and one script, by what is in them.
"""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import numpy as np
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from msgspec.structs import asdict

from npuperf.base import __version__
from npuperf.base.escape import for_screen, visible, without_halves
from npuperf.base.files import read_input
from npuperf.base.messages import Message, Quantity, Series, say, share
from npuperf.model.document import Document
from npuperf.model.labels import I64
from npuperf.model.picture import COLOURS, Lane, Picture
from npuperf.model.result import Result
from npuperf.show.charts import charts_of
from npuperf.show.formats import View
from npuperf.show.language import spoken, text
from npuperf.show.matrix import ALIKE
from npuperf.show.result_sheet import result_sheet
from npuperf.show.sheet import Whereabouts, grid_of, plain_sheet, short_list
from npuperf.show.words import WITH_LAUNCHES

# -- What a page draws, as little text: JSON, compressed, in base64, which the page's script takes apart again.
#
# Of columns that hardly compress, whole numbers of slices take 7 % less as JSON's own numbers than as bytes in base64,
# and shares 14 % less as bytes (measured after gzip); so each is written in its way. All times stay exact: they are
# below 2^53 ns, which is a hundred days, and so whole in JavaScript's numbers, too.

#: What JSON has.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
#: Names are cut to so many characters.
LONGEST_NAME: Final = 200


def pack_pictures(pictures: Sequence[Picture]) -> list[Json]:
    """Return pictures as plain values, in their order.

    Per picture: ``span`` in ns, ``at``: when it begins, ns after the first one does on the job's clock, and its
    ``lanes``, whose ``slices`` have a column of numbers each: ``start`` as differences between one and the next,
    ``length``, ``lag`` from the launch to the start, ``asked`` from where the torch operator began to it, -1 for what
    is unknown, ``null`` for a lag that is; a column in which nothing is known is left out. ``shares`` and ``counters``
    are bytes in base64 by their names, ``places`` rows of kind, name, start and end.
    """
    first = min((one.origin_ns + one.offset_ns for one in pictures), default=0)
    return [
        {
            "rank": picture.rank,
            "device": picture.device,
            "source": shown_name(picture.source),
            "why": visible(text(picture.why)) if picture.why else None,
            "span": picture.span_ns,
            "at": picture.origin_ns + picture.offset_ns - first,
            "colours": list(COLOURS),
            "names": [shown_name(name) for name in picture.names],
            "facts": [{fact: shown_name(said) for fact, said in known.items()} for known in picture.facts],
            "lanes": [_lane(lane) for lane in picture.lanes],
            "exact": [{**asdict(stretch), "why": visible(text(stretch.why))} for stretch in picture.exact],
            "places": sorted((kind, shown_name(name), *stretch) for (kind, name), stretch in picture.places.items()),
        }
        for picture in pictures
    ]


def _lane(lane: Lane) -> Json:
    slices = lane.slices
    columns: dict[str, Json] = {
        "start": np.diff(slices.start, prepend=0).tolist(),
        "length": (slices.end - slices.start).tolist(),
        "depth": slices.depth.tolist() if slices.depth.any() else None,
        "colour": slices.colour.tolist(),
        "name": slices.name.tolist(),
    }
    columns |= {name: _known(getattr(slices, name)) for name in ("called", "where", "facts", "cause", "cube", "vector")}
    columns |= {name: _known(getattr(slices, name)) for name in ("launch_thread", "op_thread")}
    for name, time in (("lag", slices.launch), ("asked", slices.op)):
        if (there := time >= 0).any():  # it is less than nothing where the clocks disagree
            lags = zip((slices.start - time).tolist(), there.tolist(), strict=True)
            columns[name] = [lag if known else None for lag, known in lags]
    return {
        "kind": lane.kind,
        "title": visible(text(lane.title)),
        "thread": lane.thread,
        "counters": {name: b64encode(column.tobytes()).decode("ascii") for name, column in lane.counters.items()},
        "shares": {name: b64encode(share.tobytes()).decode("ascii") for name, share in lane.shares.items()},
        "cut": list(lane.cut),
        "slices": {name: column for name, column in columns.items() if column is not None},
    }


def _known(column: I64) -> Json:
    """Return a column of numbers of which -1 says "unknown"; None where that is all it says."""
    return column.tolist() if (column >= 0).any() else None


def packed(data: Mapping[str, Json]) -> str:
    """Return JSON-able data compressed, in base64; the same data give the same text."""
    written = json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=compressed, mtime=0) as file:
        file.write(written)
    return b64encode(compressed.getvalue()).decode("ascii")


def shown_name(name: str) -> str:
    """Return a name of a profile as the page's scripts show it: in one line, all of it visible, and not too long."""
    cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return str(without_halves(visible(cut)))


# -- What the timeline's scripts say; in braces what they put in.

TIMELINE_WORDS: Final[Mapping[str, Message]] = {
    # What colours stand for.
    "timeline_compute": say("compute"),
    "timeline_communication": say("communication"),
    "timeline_transfer": say("transfer"),
    "timeline_comm_wait": say("waiting for other ranks"),
    "timeline_other": say("copies and other work"),
    "timeline_control": say("events and waits of streams"),
    "timeline_host_wait": say("waiting for the host"),
    "timeline_launch_latency": say("launch latency"),
    "timeline_dependency_wait": say("waiting for a dependency"),
    "timeline_unattributed": say("unattributed (no launch recorded)"),
    "timeline_host_op": say("host operator"),
    "timeline_host_sync": say("host waits for the device"),
    "timeline_cube": say("cube cores"),
    "timeline_vector": say("vector cores"),
    "timeline_clock": say("clock, of the highest"),
    "timeline_allocated": say("allocated, of the most"),
    "timeline_reserved": say("reserved beyond it"),
    "timeline_idle": say("nothing"),
    # Buttons, boxes, labels.
    "timeline_tools": say("timeline: view"),
    "timeline_canvas": say(
        "timeline of {devices}; arrow keys move, + and - zoom, n and p go from one task to the next, question mark for "
        "all keys",
        devices="{devices}",
    ),
    "timeline_zoom_in": say("zoom in"),
    "timeline_zoom_out": say("zoom out"),
    "timeline_left": say("move left"),
    "timeline_right": say("move right"),
    "timeline_whole": say("whole"),
    "timeline_typical": say("typical step"),
    "timeline_exact_before": say("previous exact stretch"),
    "timeline_exact_after": say("next exact stretch"),
    "timeline_sum": say("sum of what is in view"),
    "timeline_measure": say("measure"),
    "timeline_link": say("copy link"),
    "timeline_flame": say("flame view: what the host did, equal stacks together"),
    "timeline_flame_all": say("all threads"),
    "timeline_flame_about": say(
        "{start} to {end}, as far as it is in exact stretches; as wide as it takes time; a "
        "click on a box makes it the whole, a second one goes back",
        start="{start}",
        end="{end}",
    ),
    "timeline_flame_none": say(
        "nothing exact of the host from {start} to {end}: go to a typical step", start="{start}", end="{end}"
    ),
    "timeline_flame_box": say(
        "{name}: {time}, {share} of what is shown", name="{name}", time="{time}", share="{share}"
    ),
    "timeline_align": say("align at the typical step"),
    "timeline_devices": say("devices: {shown} of {all}", shown="{shown}", all="{all}"),
    "timeline_search": say("find an operator or event"),
    "timeline_search_before": say("previous match"),
    "timeline_search_after": say("next match"),
    "timeline_legend": say("colours"),
    "timeline_keys": say("keys, mouse and touch"),
    "timeline_help_zoom": say("+ and -, W and S, the wheel, two fingers: zoom"),
    "timeline_help_pan": say("left and right, A and D, dragging, shift and the wheel, one finger: move"),
    "timeline_help_whole": say("0 or Home: everything; T: the typical step; [ and ]: the exact stretches"),
    "timeline_help_cursor": say("n and p: the next and the previous task of a lane; up and down: another lane"),
    "timeline_help_choose": say("Enter or a click: what is known of it; Z or a double click: zoom to it"),
    "timeline_help_sum": say("X, or dragging with shift or on the ruler: what a stretch consists of; Escape: nothing"),
    "timeline_help_measure": say("M, then two clicks: the time between, from edge to edge of what is near"),
    # Lanes.
    "timeline_rank": say("rank {rank}", rank="{rank}"),
    "timeline_device": say("device {device}", device="{device}"),
    "timeline_host": say("host"),
    "timeline_new": say("new: {device}", device="{device}"),
    "timeline_old": say("old: {device}", device="{device}"),
    "timeline_step": say("step {step}", step="{step}"),
    # What is said of one thing.
    "timeline_what": say("what"),
    "timeline_took": say("took"),
    "timeline_started": say("started after"),
    "timeline_share": say("share"),
    "timeline_of_step": say("{share} of step {step}", share="{share}", step="{step}"),
    "timeline_of_stretch": say("{share} of the exact stretch", share="{share}"),
    "timeline_cores": say("cores"),
    "timeline_cube_of": say("{n} cube", n="{n}"),
    "timeline_vector_of": say("{n} vector", n="{n}"),
    "timeline_launched": say("launched"),
    "timeline_launched_before": say("{time} before it started", time="{time}"),
    "timeline_launched_after": say("{time} after it started: the clocks disagree", time="{time}"),
    "timeline_cause": say("cause"),
    "timeline_where": say("code"),
    "timeline_lane": say("lane"),
    "timeline_called": say("name"),
    "timeline_inputs": say("inputs"),
    "timeline_outputs": say("outputs"),
    "timeline_core": say("core"),
    "timeline_blocks": say("blocks"),
    "timeline_operator": say("operator"),
    "timeline_moved": say("copy"),
    "timeline_counters": say("counters"),
    "timeline_stack": say("stack"),
    "timeline_kernels": say("its tasks"),
    "timeline_kernels_of": say(
        "{n} drawn, {time} of the device; the first begins {lag} later", n="{n}", time="{time}", lag="{lag}"
    ),
    "timeline_show_it": say("zoom to it"),
    "timeline_show_host": say("show what asked for it"),
    "timeline_show_kernels": say("show what it asked for"),
    "timeline_copy": say("copy"),
    "timeline_copied": say("copied"),
    "timeline_copy_failed": say("cannot copy: select it by hand"),
    "timeline_in_bucket": say("{start} to {end}: shares of this time", start="{start}", end="{end}"),
    # Stretches.
    "timeline_exact": say("exact: {why}", why="{why}"),
    "timeline_exact_step": say("exact, step {step}: {why}", step="{step}", why="{why}"),
    "timeline_cut": say("tasks not drawn, the shortest: {n}", n="{n}"),
    "timeline_coarse": say(
        "Closer than the data: here it is only known how busy each lane is per {bucket}. Single tasks are in the "
        "exact stretches.",
        bucket="{bucket}",
    ),
    "timeline_selected": say("{start} to {end}: {length}", start="{start}", end="{end}", length="{length}"),
    "timeline_about": say("of shares of the time, which are off by {time} at most", time="{time}"),
    "timeline_to_the_ns": say("to the nanosecond"),
    "timeline_part": say("part"),
    "timeline_time": say("time"),
    "timeline_nothing": say("nothing recorded"),
    # Searching.
    "timeline_found": say("{n} of {m} in the exact stretches", n="{n}", m="{m}"),
    "timeline_found_none": say("nothing of this name"),
    "timeline_found_place": say("in no exact stretch; this is the longest one: {name}", name="{name}"),
    "timeline_lane_empty": say("{lane}: nothing exact here", lane="{lane}"),
}


# -- What ``matrix.js`` says; in braces what it puts in.

CHART_WORDS: Final[dict[str, Message]] = {
    "matrix_cell": say("{row} {one}, {column} {other}: {value}",
                       row="{row}", one="{one}", column="{column}", other="{other}", value="{value}"),
    "matrix_about": say("about {value}", value="{value}"),
    "matrix_missing": say("not known"),
    "matrix_nothing": say("nothing"),
    "matrix_alike": say("alike: none is farther than {share} from the middle", share=share(ALIKE)),
    "matrix_layers": say("what is shown"),
    "matrix_keys": say("arrow keys move from cell to cell; Enter shows it in the timeline"),
    "matrix_rate": say("{n} GB/s", n="{n}"),
}  # fmt: skip


# -- The words of the page that stand in no table or sentence of another format, and those that its scripts say.

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
#: What ``page.js`` says, in plain sight: it works without what is packed; in braces what it puts in.
SCRIPT_WORDS: Final[dict[str, Message]] = {
    "page_packed": say(
        "this picture needs a browser of 2023 or later, which unpacks its data; everything else is here"
    ),
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


_HERE: Final = Path(__file__).resolve().parent / "assets"
#: The style sheet that stands before all others, and the script that starts what the others define.
_FIRST_STYLE, _LAST_SCRIPT = "palette.css", "page.js"
#: Tables get shorter until all of them together are no larger, in bytes; the last is what is left of every table.
_ROOM: Final = 600_000
_ROWS: Final = (200, 100, 50, 20, 10)
#: Numbers are aligned by the places of their columns, which a table names as classes.
_MOST_COLUMNS: Final = 48


def render_html(document: Document, view: View) -> str:
    """Return a document as a page, with the timelines of the view, in the language that is spoken."""
    template = environment().get_template("template.html")
    charts = tuple(charts_of(document, view.pictures))
    drawn = [chart for chart in charts if chart.matrix is not None]
    devices = document.devices if isinstance(document, Result) else ()
    said = {**TIMELINE_WORDS, **CHART_WORDS}
    if any(device.clock.latency_reason for device in devices):
        said["timeline_host_wait"] = WITH_LAUNCHES
    data: dict[str, Json] = {
        "words": {name: text(message) for name, message in said.items()},
        "pictures": pack_pictures(view.pictures),
        "old_pictures": pack_pictures(view.old_pictures),
        "matrices": [cast("Json", chart.matrix.packed()) for chart in drawn if chart.matrix is not None],
    }
    places = None
    if isinstance(document, Result) and view.table is None:
        sheet, places = result_sheet(document, view, charts), Whereabouts(view.pictures, devices)
    else:
        sheet = plain_sheet(document, view, charts)
    grids = {block.id: [grid_of(table, places) for table in block.tables] for block in sheet.blocks}
    for rows in _ROWS:
        grids = {block: [grid.cut_to(rows) for grid in several] for block, several in grids.items()}
        if sum(grid.size for several in grids.values() for grid in several) <= _ROOM:
            break
    style, script, policy = _style_and_script()
    return template.render(
        sheet=sheet,
        grids=grids,
        words=PAGE_WORDS,
        script_words=json.dumps({name: text(said) for name, said in SCRIPT_WORDS.items()}, ensure_ascii=False),
        language=spoken(),
        version=__version__,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        data=Markup(packed(data)),
        numbers={chart.id: number for number, chart in enumerate(drawn)},
    )


@cache
def environment() -> Environment:
    """Return what reads templates: it escapes all that they are given, and says messages in the current language."""
    loader = FileSystemLoader(_HERE)
    made = Environment(loader=loader, autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    made.filters["visible"] = visible
    made.filters["short"] = short_list
    return made


def _shown(value: Any) -> Any:
    """Return what the template prints: sentences in the current language, texts fit for people, markup as it is."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Message | Quantity | Series):
        return for_screen(text(value))
    return for_screen(value) if isinstance(value, str) else "–" if value is None else value


@cache
def _style_and_script() -> tuple[str, str, str]:
    """Return the style sheet, the script and the page's Content-Security-Policy: only these two are allowed.

    The style sheet is all files, numbers at the right of their columns, and what paper has no room for; the script all
    files one after the other, in a room of their own.
    """
    files = sorted(_HERE.iterdir(), key=lambda file: (file.name != _FIRST_STYLE, file.name == _LAST_SCRIPT, file.name))
    styles, scripts = ("".join(read_input(file).decode("utf-8") for file in files if file.suffix == kind)
                       for kind in (".css", ".js"))  # fmt: skip
    places = range(1, _MOST_COLUMNS + 1)
    numbers, minor = (",".join(f".{kind}{n} tr>:nth-child({n})" for n in places) for kind in "nm")
    style = f"{styles}{numbers}{{text-align:right;font-variant-numeric:tabular-nums}}\n"
    style += f"@media print{{{minor}{{display:none}}}}\n"
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    hashes = (b64encode(sha256(one.encode("utf-8")).digest()).decode("ascii") for one in (script, style))
    of_script, of_style = (f"'sha256-{one}'" for one in hashes)
    policy = (
        f"default-src 'none'; script-src {of_script}; style-src {of_style}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return style, script, policy

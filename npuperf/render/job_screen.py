"""The screen of a job of several ranks: what they tell together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs
from rich.console import RenderableType

from npuperf.documents.analysis import Result
from npuperf.documents.cluster import Cluster
from npuperf.messages import chain
from npuperf.render import View
from npuperf.render.analysis_text import all_tables, devices, head
from npuperf.render.cluster_text import ROOMS, Room, job_parts, roots_shown
from npuperf.render.cluster_words import job_line
from npuperf.render.finding_text import finding_lines, footer, what_if_lines
from npuperf.render.terminal import print_all
from npuperf.render.words import outside_lines

#: There are no more lines, whatever the number of ranks.
_LINES: Final = 45


def render_job(result: Result, cluster: Cluster, view: View) -> str:
    """Return the report of a job, as brief as one screen demands."""
    if view.full or view.top is not None:
        return print_all(_screen(result, cluster, view, ROOMS[0]), view)
    screens = (print_all(_screen(result, cluster, view, room), view) for room in ROOMS)
    return next((screen for screen in screens if screen.count("\n") <= _LINES), None) or print_all(
        _screen(result, cluster, view, ROOMS[-1]), view
    )


def _screen(result: Result, cluster: Cluster, view: View, room: Room) -> Iterator[RenderableType]:
    """Show what the ranks tell together; what each of them does follows where everything is wanted."""
    yield from head(result, chain(job_line(cluster), *outside_lines(result.devices), by=" · "), view)
    yield from job_parts(cluster, view, room)
    said = {root.title for root in roots_shown(cluster, view, room)}
    more = structs.replace(result, findings=[f for f in result.findings if f.title not in said])
    yield from finding_lines(more, view, room.findings, brief=room.brief and not view.full)
    if view.full:
        yield from devices(result, view)
        yield from all_tables(result, view)
    else:
        yield from what_if_lines(result, view, room.changes)
    yield from footer(result, view, room.notes)

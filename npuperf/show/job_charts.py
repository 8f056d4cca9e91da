"""Charts of a job as rows: why its ranks wait, its stages, its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from markupsafe import Markup

from npuperf.base.messages import Message, chain, ns, say, say_n, share
from npuperf.model.job_result import Cluster, ClusterGroup, PipelineStep, StageDoing
from npuperf.model.result import Partition, Result
from npuperf.show.analysis_tables import NAMED
from npuperf.show.job_text import (
    links_line,
    pipeline_lines,
    ranges,
    replay_line,
    root_line,
    roots_by_gain,
    slow_link,
    slow_links,
    taking_line,
    waiting_line,
)
from npuperf.show.matrix import MOST_CELLS, MOST_COLUMNS, MOST_ROWS, Matrix, grouped, layer, mean_of_known
from npuperf.show.sheet import Whereabouts
from npuperf.show.svg import DRAWN, BarRow, Chart, Piece, bars, element, legend, plain, rect, width_of
from npuperf.show.words import device_name

_ROOTS, _STAGES, _KINDS = 12, 32, 15


def roots(cluster: Cluster) -> Chart | None:
    """Draw the root causes of waiting, by how much of all waiting each explains."""
    if not cluster.roots:
        return None
    shown = roots_by_gain(cluster)[:_ROOTS]
    rows = [
        BarRow(root_line(root, cluster), share(root.share), [Piece(0, root.share, "c-comm_wait")], taking_line(root))
        for root in shown
    ]
    some = len(shown) < len(cluster.roots)
    caption = chain(
        waiting_line(cluster),
        say("the whole width is all of it"),
        replay_line(cluster) if any(root.gain_ns_per_step for root in shown) else None,
        say("{shown} of {all} causes", shown=len(shown), all=len(cluster.roots)) if some else None,
    )
    body = bars(rows, 0, max(1.0, *(root.share for root in shown)))
    return Chart("roots", say("why ranks wait for each other"), caption, body, wide=True)


def stages(cluster: Cluster) -> Chart | None:
    """Draw what every stage of the pipeline computes in a step, and how long it waits for the others."""
    if not cluster.stages:
        return None
    steps = max(cluster.steps, 1)
    shown = cluster.stages[:_STAGES]
    longest = _longest(cluster)
    if not any(stage.compute_ns + stage.bubble_ns for stage in shown):
        return None
    caption = chain(
        *pipeline_lines(cluster),
        say("{shown} of {all} stages", shown=len(shown), all=len(cluster.stages))
        if len(shown) < len(cluster.stages) else None,
    )  # fmt: skip
    rows = []
    for stage in shown:
        compute, both = stage.compute_ns, stage.compute_ns + stage.bubble_ns
        value = say("compute {compute}, bubble {bubble}", compute=ns(compute / steps),
                    bubble=ns(stage.bubble_ns / steps))  # fmt: skip
        pieces = [Piece(0, compute, "c-compute"), Piece(compute, both, "c-comm_wait", look="stripes")]
        ranks = say_n("rank {ranks}", "ranks {ranks}", len(stage.ranks), ranks=ranges(stage.ranks))
        rows.append(BarRow(say("stage {stage}", stage=stage.stage), value, pieces, ranks))
    words = (("c-compute", say("compute")), ("c-comm_wait", say("bubble: waiting for other stages")))
    body = element("div", legend(words), bars(rows, 0, longest))
    return Chart("stages", say("stages of the pipeline, per step"), caption, body)


#: What a stage does in a stretch of a step: its words, its colour, and whether it has stripes.
_DOINGS: Final[dict[StageDoing, tuple[Message, str, bool]]] = {
    "forward": (say("forward"), "p-forward", False),
    "backward": (say("backward"), "p-backward", False),
    "both": (say("forward and backward, nothing recorded between them"), "p-both", True),
    "own": (say("other time of its own"), "c-unattributed", False),
    "wait": (say("waiting for other ranks"), "c-comm_wait", True),
    "communication": (say("communication"), "c-communication", False),
}
_TRACK, _GAP, _LETTERS, _STRIPES = 24, 20, 12, 9
#: Blocks narrower than this are not seen; of more blocks than so many none says by itself what it is.
_NARROWEST, _TELLING = 0.5, 600


def in_time(cluster: Cluster) -> Chart | None:
    """Draw one step of a pipeline: when each stage worked on which micro-batch, when it waited for others."""
    step = cluster.pipeline.in_time if cluster.pipeline else None
    if cluster.pipeline is None or step is None or not step.stages or step.span_ns <= 0:
        return None
    number = say("step {step}", step=step.step) if step.step is not None else say("what was recorded")
    length = say("{step}, {span}, on the job's clock", step=number, span=ns(step.span_ns))
    unknown = say(
        "what is exchanged does not tell where one micro-batch ends and the next begins: own time is all that a rank "
        "does between communication"
    )
    numbered = say("micro-batches are numbered as activations (F) and gradients (B) follow each other")
    caption = chain(
        length,
        numbered if step.told else unknown,
        say("the first of {n} pipelines", n=cluster.pipeline.pipelines) if cluster.pipeline.pipelines > 1 else None,
        say("{shown} of {all} stages", shown=len(step.stages), all=len(cluster.stages))
        if len(step.stages) < len(cluster.stages) else None,
    )  # fmt: skip
    there = {what for track in step.stages for what in track.what}
    words = [(colour, said) for what, (said, colour, _) in _DOINGS.items() if what in there]
    if not step.told:
        words = [(colour, say("own time: compute, and waiting for the host") if colour == "c-unattributed" else said)
                 for colour, said in words]  # fmt: skip
    title = say("one step of the pipeline, stage by stage")
    drawn = [_tracks(step, cluster.pipeline.stages, width, plain(title), class_) for class_, width in DRAWN]
    return Chart("pipeline-step", title, caption, element("div", legend(words), *drawn), wide=True)


def _tracks(step: PipelineStep, stages: int, width: int, said: str, class_: str) -> Markup:
    """Draw a stage below the other on one scale of time; ``width``: in points, as text is not stretched."""
    high = len(step.stages) * (_GAP + _TRACK) + _GAP
    telling = sum(len(track.what) for track in step.stages) <= _TELLING
    drawn = []
    for row, track in enumerate(step.stages):
        top = row * (_GAP + _TRACK) + _GAP
        name = say("stage {stage}, rank {rank}", stage=track.stage, rank=track.rank)
        drawn.append(element("text", plain(name), x=0, y=top - 5, class_="plot-text"))
        stripes = []
        columns = (track.start_ns, track.end_ns, track.what, track.forward, track.backward)
        for start, end, what, forward, backward in zip(*columns, strict=True):
            left, right = width * start / step.span_ns, width * end / step.span_ns
            if right - left < _NARROWEST:
                continue
            words, colour, striped = _DOINGS[what]
            work = [f"{kind}{n + 1}" for kind, n in (("B", backward), ("F", forward)) if n >= 0]
            label = " ".join(reversed(work) if track.stage == stages - 1 else work)  # which turns round
            told = say("{what}: {time}", what=words, time=ns(end - start))
            if label:
                told = say("{what} ({micro}): {time}", what=words, micro=label, time=ns(end - start))
            inside = [element("title", plain(told))] if telling else []
            drawn.append(rect(left, top, right - left, _TRACK, f"fill {colour}", *inside))
            if striped and not label:
                stripes += [f"M {x} {top} v {_TRACK}" for x in range(int(left) + 4, int(right), _STRIPES)]
            if label and width_of(label, _LETTERS) <= right - left - 2:
                middle, base = (left + right) / 2, top + _TRACK / 2 + _LETTERS / 3
                drawn.append(element("text", label, x=middle, y=base, class_="track-text"))
        if stripes:
            drawn.append(element("path", d=" ".join(stripes), class_="stripe"))
    for place, at in (("", 0), (" middle", step.span_ns // 2), (" end", step.span_ns)):
        drawn.append(
            element("text", plain(ns(at)), x=width * at / step.span_ns, y=high - 4, class_=f"plot-text{place}")
        )
    return element("svg", element("title", said), *drawn, viewBox=f"0 0 {width} {high}", class_=f"plot {class_}",
                   role="img", aria_label=said, focusable="false")  # fmt: skip


def _all_of(group: ClusterGroup) -> int:
    return group.transfer_ns + group.wait_ns + group.unknown_ns


def _by_kind(cluster: Cluster) -> list[tuple[str | None, list[ClusterGroup]]]:
    """Return groups by their kind, the kind that takes most time first."""
    kinds: dict[str | None, list[ClusterGroup]] = {}
    for group in cluster.groups:
        kinds.setdefault(group.kind, []).append(group)
    return sorted(kinds.items(), key=lambda item: -sum(map(_all_of, item[1])))[:_KINDS]


def _longest(cluster: Cluster) -> int:
    """Return the one scale of stages and groups, which stand side by side: the longest bar of either, ns."""
    ends = [stage.compute_ns + stage.bubble_ns for stage in cluster.stages[:_STAGES]]
    return max(0, *ends, *(sum(map(_all_of, found)) for _, found in _by_kind(cluster)), 0)


def groups(cluster: Cluster) -> Chart | None:
    """Draw transfer and waiting by the kind of process group."""
    ranked, longest = _by_kind(cluster), _longest(cluster)
    if not any(map(_all_of, cluster.groups)):
        return None
    steps = max(cluster.steps, 1)
    incomplete = sum(not group.complete for group in cluster.groups)
    caption = chain(
        say("of all ranks together, per step"),
        say_n("of {n} group ranks are missing, or may be: what is neither transfer nor waiting for sure is unknown",
              "of {n} groups ranks are missing, or may be: what is neither transfer nor waiting for sure is unknown",
              incomplete) if incomplete else None,
    )  # fmt: skip
    rows = []
    for kind, found in ranked:
        transfer, wait = sum(g.transfer_ns for g in found), sum(g.wait_ns for g in found)
        unknown = sum(g.unknown_ns for g in found)
        value = say("transfer {transfer}, waiting {wait}", transfer=ns(transfer / steps), wait=ns(wait / steps))
        if unknown:
            value = chain(value, say("unknown {time}", time=ns(unknown / steps)), by=", ")
        pieces = [
            Piece(0, transfer, "c-transfer"),
            Piece(transfer, transfer + wait, "c-comm_wait", look="stripes"),
            *([Piece(transfer + wait, transfer + wait + unknown, "c-communication")] if unknown else []),
        ]
        operations = say_n("{n} operation", "{n} operations", sum(g.operations for g in found))
        note = chain(say_n("{n} group", "{n} groups", len(found)), operations, by=" · ")
        rows.append(BarRow(say("{kind}", kind=kind) if kind else say("kind not known"), value, pieces, note))
    words = [("c-transfer", say("transfer")), ("c-comm_wait", say("waiting"))]
    if any(group.unknown_ns for group in cluster.groups):
        words.append(("c-communication", say("unknown")))
    body = element("div", legend(words), bars(rows, 0, longest))
    return Chart("groups", say("communication by kind of group"), caption, body)


# -- Heat maps of a job: ranks over steps, links between ranks, and which rank waits for which.

_SLOW: Final = 5
#: Links between more ranks than this have the whole width of the page.
_NARROW: Final = 200
#: Of more ranks that wait, neighbours share a row.
_WAITING: Final = 128
#: Of so many cells at most it is told where in the timeline they are.
_PLACES: Final = 1500


#: What is shown of every rank in every step; no waiting, not even none, where none is told and some may be.
_MEASURES: Final[tuple[tuple[Message, Callable[[Partition], int | None]], ...]] = (
    (say("step time"), lambda p: p.span_ns),
    (
        say("waiting for other ranks"),
        lambda p: None if p.comm_unknown_ns and not p.comm_wait_ns else p.comm_wait_ns,
    ),
    (say("waiting for the host"), lambda p: p.host_wait_ns),
    (say("compute"), lambda p: p.compute_ns),
)


def ranks_by_step(result: Result, where: Whereabouts) -> Chart | None:
    """Show every rank's steps: how long they take, what they wait for, what they compute.

    Of groups of steps the mean is shown, of groups of ranks the greatest.
    """
    devices = sorted((d for d in result.devices if d.whole_steps), key=lambda d: (d.rank is None, d.rank, d.device))
    if len(devices) < 2:
        return None
    numbers = sorted({step.step for device in devices for step in device.whole_steps})
    rows = grouped(len(devices), MOST_ROWS)
    columns = grouped(len(numbers), min(MOST_COLUMNS, max(MOST_CELLS // len(rows.bounds), 1)))
    single = len({device.rank for device in devices}) == len(devices) and devices[-1].rank is not None
    names = [str(d.rank) if single else plain(device_name(d)) for d in devices]
    row_labels, column_labels = rows.labels(names), columns.labels([str(n) for n in numbers])
    row_word, column_word = say("rank") if single else say("device"), say("step")
    in_rows, in_columns = (
        [plain(say("{what} {name}", what=word, name=label)) for label in labels]
        for word, labels in ((row_word, row_labels), (column_word, column_labels))
    )
    layers = []
    for words, get in _MEASURES:
        lines: list[list[float | None]] = []
        for device in devices:
            there = {step.step: get(step.partition) for step in device.whole_steps}
            known = [there.get(n) for n in numbers]
            lines.append([mean_of_known(known[low:high]) for low, high in columns.bounds])
        values = [
            [
                max((one for one in column if one is not None), default=None)
                for column in zip(*lines[low:high], strict=True)
            ]
            for low, high in rows.bounds
        ]
        layers.append(layer(words, "ns", values, in_rows, in_columns))
    found = tuple(one for one in layers if one is not None)
    if not found:
        return None
    places: list[tuple[int, str]] = []
    if rows.size == columns.size == 1:
        at = {n: i for i, n in enumerate(numbers)}
        every = (
            (i * len(numbers) + at[step.step], where.row(NAMED["steps"], (device, step)))
            for i, device in enumerate(devices)
            for step in device.whole_steps
        )
        places = [(cell, go) for cell, go in every if go][:_PLACES]
    about = say("ranks and steps") if single else say("devices and steps")
    matrix = Matrix(about, row_word, column_word, row_labels, column_labels, found, places=tuple(places))
    caption = chain(
        say_n("{ranks} ranks over {n} step", "{ranks} ranks over {n} steps", len(numbers), ranks=len(devices))
        if single
        else say_n("{devices} devices over {n} step", "{devices} devices over {n} steps", len(numbers),
                   devices=len(devices)),
        found[0].said,
        columns.note(),
        say_n("each row is {n} rank", "each row is the slowest or longest waiting of {n} ranks", rows.size)
        if rows.size > 1 else None,
    )  # fmt: skip
    title = say("every rank in every step") if single else say("every device in every step")
    return Chart("ranks", title, caption, matrix=matrix, wide=True)


# --- links ------------------------------------------------------------------------------------------------------------


def links(cluster: Cluster) -> Chart | None:
    """Show how fast data goes from rank to rank, by transport; slow links have a frame."""
    known = [link for link in cluster.links if link.time_ns > 0]
    ends = sorted({rank for link in known for rank in link.ranks})
    if len(ends) < 2 or len(ends) > MOST_ROWS:
        return None
    place = {rank: i for i, rank in enumerate(ends)}
    labels = tuple(str(rank) for rank in ends)
    said = [plain(say("rank {rank}", rank=rank)) for rank in ends]
    layers = []
    for transport in dict.fromkeys(link.transport for link in known):
        sums: dict[tuple[int, int], tuple[int, int]] = {}  # of every pair all bytes, and all the time
        for link in known:
            if link.transport == transport:
                one, other = sorted(place[rank] for rank in link.ranks)
                size, time = sums.get((one, other), (0, 0))
                sums[one, other] = size + link.bytes, time + link.time_ns
        rates: list[list[float | None]] = [[None] * len(ends) for _ in ends]
        for (one, other), (size, time) in sums.items():
            rates[one][other] = rates[other][one] = size / time  # the same in both directions
        layers.append(layer(say("{transport}", transport=transport), "gb_s", rates, said, said))
    slow = slow_links(cluster)
    marked = {place[one] * len(ends) + place[other] for x in slow for one, other in (x.ranks, x.ranks[::-1])
              if one in place and other in place}  # fmt: skip
    matrix = Matrix(
        say("links between ranks"), say("rank"), say("rank"), labels, labels,
        tuple(one for one in layers if one is not None), tuple(sorted(marked)), say("slow link") if marked else None,
    )  # fmt: skip
    if not matrix.layers:
        return None
    pairs = len({frozenset(x.ranks) for x in known})
    caption = chain(
        say_n("{n} pair of ranks, mean speed of all that went between them",
              "{n} pairs of ranks, mean speed of all that went between them", pairs),
        *(slow_link(link, cluster.steps) for link in slow[:_SLOW]),
        links_line(cluster),
    )  # fmt: skip
    title = say("links from rank to rank, in GB/s")
    return Chart("links", title, caption, matrix=matrix, wide=len(ends) > _NARROW)


# --- who waits for whom -----------------------------------------------------------------------------------------------


def who_waits(cluster: Cluster) -> Chart | None:
    """Show how long every rank waits for the one that comes last, in the costliest operations."""
    sums: dict[tuple[int, int], int] = {}
    unknown = 0  # operations of which it is not known who comes last
    for operation in cluster.collectives:
        if operation.last is None:
            unknown += 1
            continue
        for rank, wait in zip(operation.ranks, operation.wait_ns, strict=False):
            if wait > 0 and rank != operation.last:
                sums[rank, operation.last] = sums.get((rank, operation.last), 0) + wait
    if not sums:
        return None
    waiting, last = (sorted({pair[i] for pair in sums}) for i in (0, 1))
    lines = [[float(sums.get((one, other), 0)) for other in last] for one in waiting]
    together = grouped(len(waiting), _WAITING)
    labels = together.labels([str(rank) for rank in waiting])
    values = [[mean_of_known(column) for column in zip(*lines[low:high], strict=True)] for low, high in together.bounds]
    rows = [plain(say("rank {rank} waits", rank=label)) for label in labels]
    columns = [plain(say("rank {rank} is last", rank=rank)) for rank in last]
    found = layer(say("waiting"), "ns", values, rows, columns)
    if found is None:
        return None
    matrix = Matrix(
        say("who waits for whom"), say("waiting rank"), say("rank that comes last"), labels, tuple(map(str, last)),
        (found,),
    )  # fmt: skip
    by_last = {other: sum(ns_ for (_, late), ns_ in sums.items() if late == other) for other in last}
    worst = max(by_last, key=lambda rank: by_last[rank])
    caption = chain(
        say_n("of the costliest operation that is listed", "of the {n} costliest operations, which are listed",
              len(cluster.collectives) - unknown),
        say_n(
            "most is waited for rank {rank}: {time}, by {n} rank",
            "most is waited for rank {rank}: {time}, by {n} ranks",
            sum(late == worst for _, late in sums), rank=worst, time=ns(by_last[worst]),
        ),
        say_n("each row is {n} rank", "each row is the mean of {n} ranks", together.size)
        if together.size > 1 else None,
        say_n("of {n} more it cannot be told who comes last", "of {n} more it cannot be told who comes last", unknown)
        if unknown else None,
    )  # fmt: skip
    return Chart("who-waits", say("who waits for whom"), caption, matrix=matrix)

"""What the timeline's scripts say; in braces what they put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from npuperf.messages import Message, say

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
    # Lanes.
    "timeline_rank": say("rank {rank}", rank="{rank}"),
    "timeline_device": say("device {device}", device="{device}"),
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

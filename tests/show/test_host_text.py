"""What the screen says of the host."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.show.formats import View, render

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "transformer_ascend_pt"


def test_a_copy_that_the_host_waits_for_has_no_recorded_direction() -> None:
    """The word is one of another list, too: what a device waits for, where it is a copy of any kind."""
    result = run(AnalyzeRequest(path=SAMPLE))
    device = result.devices[0]
    syncs = [replace(site, kind="copy") for site in device.syncs]
    said = str(render(replace(result, devices=[replace(device, syncs=syncs)]), "text", View(width=200)))
    assert "sync (copy, direction not recorded)" in said


def test_a_call_is_worth_a_line_from_a_fiftieth_of_the_time() -> None:
    result = run(AnalyzeRequest(path=SAMPLE))
    device = result.devices[0]
    worth = -(-device.window.span_ns // 50)
    idle = {"enough": worth, "too_little": worth - 1}
    syncs = [replace(device.syncs[0], torch_op=name, idle_ns=ns) for name, ns in idle.items()]
    said = str(render(replace(result, devices=[replace(device, syncs=syncs)]), "text", View(width=200)))
    assert ": enough from" in said and "too_little" not in said


def test_steps_of_which_none_is_typical_are_drawn_all_the_same() -> None:
    result = run(AnalyzeRequest(path=SAMPLE))
    screens = [str(render(replace(result, devices=[replace(result.devices[0], **more)]), "text", View(width=200)))
               for more in ({}, {"typical_step": None})]  # fmt: skip
    assert screens[0].splitlines()[1] == screens[1].splitlines()[1] and "heights from 0" in screens[1]

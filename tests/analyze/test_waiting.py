"""What the device waited for, from a timeline's rows to the report: named, summed, shown."""

from __future__ import annotations

import csv
import io

import pytest
from build import H, K, analyze_path, ascend_pt
from msgspec.structs import replace

from npuperf.show.formats import View, render

US = 1_000


def idle_before_last(tmp_path, *, host=(), rows=(), late=400, start_stream=2):
    """Two kernels of 100 us, both launched at the beginning; the second begins at ``late`` us.

    The first one begins 1 us after its launch, which is how long launches take.
    """
    kernels = [
        K(0, 100 * US, "first", "MatMulV2", stream=start_stream, launch=-2 * US, launch_dur=1 * US),
        *rows,
        K(late * US, 100 * US, "second", "Add", launch=10 * US, launch_dur=5 * US),
    ]
    return analyze_path(ascend_pt(tmp_path, kernels, host=host))


def lines(result):
    (device,) = result.devices
    assert sum(d.ns for d in device.dependencies) == device.window.dependency_wait_ns
    for phase in device.phases:
        assert sum(d.ns for d in phase.dependencies) == phase.partition.dependency_wait_ns
    return device.dependencies


def shown(result):
    return render(result, "text", View(width=160))


def test_the_wait_for_an_event_is_named_and_shown(tmp_path):
    wait = K(150 * US, 248 * US, "EVENT_WAIT", "", "EVENT_WAIT")
    (event, rest) = sorted(lines(idle_before_last(tmp_path, rows=[wait])), key=lambda d: d.kind)
    assert (event.kind, event.name, event.ns, event.count, event.certain) == ("event", "EVENT_WAIT", 248 * US, 1, True)
    assert rest.kind == "unrecorded"


def test_a_blocking_copy_is_named_where_it_lasts_until_the_kernel_begins(tmp_path):
    copy = H("AscendCL@aclrtMemcpy", 90 * US, 312 * US, thread=10)
    step = H("ProfilerStep#1", -60 * US, 900 * US, python=True, thread=10)
    result = idle_before_last(tmp_path, host=[copy, step])
    (line,) = lines(result)
    assert (line.kind, line.name, line.certain) == ("copy", "AscendCL@aclrtMemcpy", False)
    assert line.ns == 299 * US
    assert "a copy?" in shown(result)
    assert line.needs is None


def test_another_stream_is_named_with_its_kernel(tmp_path):
    (line,) = lines(idle_before_last(tmp_path, late=108, start_stream=3))
    assert (line.kind, line.name, line.stream, line.ns) == ("stream", "MatMulV2", 3, 7 * US)


def test_nothing_recorded_says_what_would_tell(tmp_path):
    sync = H("AscendCL@aclrtSynchronizeStream", 50 * US, 460 * US, thread=10)
    step = H("ProfilerStep#1", -60 * US, 900 * US, python=True, thread=10)
    result = idle_before_last(tmp_path, host=[sync, step])
    (line,) = lines(result)
    assert (line.kind, line.name, line.meanwhile) == (
        "unrecorded", "nothing recorded", "AscendCL@aclrtSynchronizeStream",
    )  # fmt: skip
    assert line.needs is not None
    text = shown(result)
    assert "the host, too, waited in AscendCL@aclrtSynchronizeStream" in text
    assert "npuperf profile --level 2" in text


def test_the_table_has_every_line(tmp_path):
    wait = K(150 * US, 248 * US, "EVENT_WAIT", "", "EVENT_WAIT")
    result = idle_before_last(tmp_path, rows=[wait])
    rows = list(csv.DictReader(io.StringIO(render(result, "csv", View(table="dependencies")))))
    assert {(r["kind"], int(r["ns"]), r["certain"]) for r in rows} == {
        (d.kind, d.ns, "yes" if d.certain else "no") for d in result.devices[0].dependencies
    }


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_text_speaks_of_notable_waits_only(tmp_path, share):
    """``share``: of 10 ms, the wait; two percent are worth a line."""
    wait = round(share * 10_000)
    long = K(0, 10_000 * US, "first", "MatMulV2", launch=-2 * US, launch_dur=1 * US)
    late = replace(long, start=long.dur + wait * US, dur=100 * US, name="second", launch=10 * US)
    result = analyze_path(ascend_pt(tmp_path, [long, late]))
    assert lines(result)
    assert ("what for" in shown(result)) == (share > 0.02)

"""Idle time per stream against the definitions of Holistic Trace Analysis, implemented here on the raw events.

HTA looks at each stream alone. The gap before a device activity is a *host wait* as a whole if its launch began
after the activity before it had ended, a *kernel wait* if the gap is short (30 ns), and *other* otherwise. npuperf
cuts a gap where the launch returned: before is host wait, behind is latency and dependency. So the two differ by
what lies behind the launch in HTA's host waits (R), and by gaps during which a launch was under way (D).
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_kineto import object_, trace

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "hta"
TRACES = sorted(REAL.glob("*gpu*.json.gz")) if REAL.is_dir() else []
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
SHORT = 30  # ns


def ns(value: Any) -> int:
    return int(Decimal(str(value)) * 1000)


def events_of(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [e for e in events if e.get("ph") == "X"]


def hta(path: Path) -> dict[int, dict[str, int]]:
    """Sums per stream, ns: HTA's three classes, and the two differences R and D."""
    events = events_of(path)
    launch = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    streams: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if str(e.get("cat")).lower() in ACTIVITIES:
            streams[e["args"]["stream"]].append(e)
    sums: dict[int, dict[str, int]] = {}
    for stream, activities in streams.items():
        mine = dict.fromkeys(("host_wait", "kernel_wait", "other", "R", "D"), 0)
        activities.sort(key=lambda e: ns(e["ts"]))
        until = None
        for e in activities:
            start, end = ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])
            call = launch.get(e["args"].get("correlation"))
            if until is not None and start > until and call is not None:
                begun, returned = ns(call["ts"]), min(ns(call["ts"]) + ns(call["dur"]), start)
                if begun > until:
                    mine["host_wait"] += start - until
                    mine["R"] += start - returned
                else:
                    mine["kernel_wait" if start - until < SHORT else "other"] += start - until
                    mine["D"] += max(returned - until, 0)
            until = end if until is None else max(until, end)
        sums[stream] = mine
    return sums


@pytest.mark.parametrize("path", [None, *TRACES], ids=lambda p: p.name if p else "by hand")
def test_streams_agree_with_hta(path: Path | None, tmp_path: Path) -> None:
    if path is None:
        path = tmp_path / "trace.json"
        path.write_bytes(object_(trace()))
    expected = hta(path)
    (device,) = run(AnalyzeRequest(path=path)).devices
    assert device.clock.skew_ns == 0
    for stream in device.streams:
        theirs = expected[stream.stream if stream.stream is not None else -1]
        ours = stream.partition
        # Beyond HTA's gaps ours has the time before the stream's first activity and behind its last one.
        waited = theirs["host_wait"] - theirs["R"] + theirs["D"]
        assert abs(ours.host_wait_ns - _around(path, stream.stream) - waited) <= 1
        inside = theirs["host_wait"] + theirs["kernel_wait"] + theirs["other"]
        assert ours.idle_ns >= inside


def _around(path: Path, stream: int | None) -> int:
    """The host wait before the first activity of a stream and behind its last, within the host's steps, if it has any.

    Until the host's last step ends, a stream without further work waits for the host, if no other's work outlasts that.
    """
    events = events_of(path)
    activities = [e for e in events if str(e.get("cat")).lower() in ACTIVITIES]
    own = sorted((e for e in activities if e["args"]["stream"] == stream), key=lambda e: ns(e["ts"]))
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    begin = min(ns(e["ts"]) for e in activities + steps)
    last = max(ns(e["ts"]) + ns(e["dur"]) for e in activities)
    hosts_end = max((ns(e["ts"]) + ns(e["dur"]) for e in steps), default=last)
    behind = hosts_end - max(ns(e["ts"]) + ns(e["dur"]) for e in own) if hosts_end > last else 0
    calls = [e for e in events if e.get("args", {}).get("correlation") == own[0]["args"].get("correlation")]
    launches = [c for c in calls if c.get("cat") in ("cuda_runtime", "cuda_driver")]
    if not launches:
        return behind
    returned = ns(launches[0]["ts"]) + ns(launches[0]["dur"])
    return max(min(returned, ns(own[0]["ts"])) - begin, 0) + behind

"""Pages of real recordings: their tables and charts hold the numbers of JSON, and their sentences what is true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.picture import Picture
from npuperf.model.result import Result
from npuperf.readers.recording import open_recording
from npuperf.show.analysis_tables import TABLES
from npuperf.show.charts import falls_chart
from npuperf.show.draw import draw
from npuperf.show.formats import View, render
from npuperf.show.sheet import Whereabouts

ROOT = Path(__file__).resolve().parents[2]
DATA, SAMPLES = ROOT.parent / "shared" / "data", ROOT / "samples"
REAL = (
    *(f"msinsight/text/level{x}" for x in ("1/rank0_ascend_pt", "1/rank1_ascend_pt", "1", "0/rank0_ascend_pt")),
    *(f"msinsight/db/level{x}" for x in ("0/rank0_ascend_pt", "1")),
    *("msinsight/cluster4", "msinsight/cluster4/rank_1_ascend_pt", "msinsight/toy/op_summary_1.csv"),
    *(f"msprof-analyze/{x}" for x in ("arithmetic_utilization", "pipe_utilization", "oldest", "timeline", "cluster")),
    *(f"op_summary_2026/op_summary_{x}.csv" for x in ("pipe_utilization", "block_over_cores")),
    *(f"hta/{x}.json.gz" for x in ("alexnet_gpu", "simple_add_gpu", "ns_resolution_gpu", "cpu_only")),
)
OWN = tuple(sorted(path.name for path in SAMPLES.glob("[!.]*") if path.is_dir()))
#: Where the rows of a table are in JSON.
LISTS = {
    **{name: ("devices", name) for name in ("phases", "blame", "dependencies", "syncs", "steps", "streams", "vendor")},
    **{name: (name,) for name in ("devices", "operators", "kernels", "what_if")},
    **{name: ("cluster", name) for name in ("roots", "ranks", "stages", "groups", "collectives", "links")},
}
UNITS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class Table:
    title: str = ""
    rows: list[list[str]] = field(default_factory=list)


class Tables(HTMLParser):
    """The tables of a page, by their captions, and everything that it says."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self.charts: dict[str, list[str]] = {}
        self.said: list[str] = []
        self._into: str = ""
        self._chart = ""
        self._skip = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skip = tag in ("style", "script")
        known = dict(attrs)
        if tag == "figure":
            self._chart = known.get("id") or ""
            self.charts[self._chart] = []
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("th", "td"):
            self.tables[-1].rows[-1].append("")
        self._into = tag if tag in ("caption", "th", "td") else ""

    def handle_endtag(self, tag: str) -> None:
        self._into, self._skip = "", False
        self._chart = "" if tag == "figure" else self._chart

    def handle_data(self, data: str) -> None:
        if self._skip:
            return
        self.said.append(data)
        if self._chart:
            self.charts[self._chart].append(data)
        if self._into == "caption":
            self.tables[-1].title += data
        elif self._into:
            self.tables[-1].rows[-1][-1] += data.rstrip("\n")

    @property
    def text(self) -> str:
        return " ".join("".join(self.said).split())


def place_of(name: str) -> Path:
    return SAMPLES / name if name in OWN else DATA / name


@cache
def drawn(name: str) -> tuple[Result, tuple[Picture, ...]]:
    recording = open_recording(place_of(name), keep=True)
    result = run(AnalyzeRequest(path=place_of(name)), recording)
    return result, draw(recording, result, load_thresholds({}))


@cache
def page_of(name: str) -> Tables:
    result, pictures = drawn(name)
    return Tables(render(result, "html", View(pictures=pictures)))


@cache
def told(name: str) -> Any:
    return json.loads(render(drawn(name)[0], "json", View()))


def real(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(not place_of(name).exists(), reason="no shared data"))


EVERY = [real(name) for name in (*REAL, *OWN)]


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("messages", "steps", "phases", "blame", "syncs", "streams", "environment"):
                yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
        yield sum(one for one in value if isinstance(one, int | float))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def rows_in(document: Any, where: tuple[str, ...]) -> list[Any]:
    found = [document]
    for key in where:
        inner = [part[key] for part in found if part and part.get(key)]
        found = [row for part in inner for row in (part if isinstance(part, list) else [part])]
    return found


@pytest.mark.parametrize("name", EVERY)
def test_times_in_tables_are_those_of_json(name: str) -> None:
    """Every time of a row, to the last digit that is shown, is in one and the same row of JSON's list."""
    titles = {str(table.title): table.name for table in TABLES}
    checked = 0
    for table in page_of(name).tables:
        known = titles.get(re.sub(r" \([\d of,]+\)$", "", table.title[:1].lower() + table.title[1:]))
        if known not in LISTS:
            continue
        lists = [sorted(numbers(row)) for row in rows_in(told(name), LISTS[known])]
        assert lists
        if known == "ranks":  # of a step on average, where JSON has the times of all; the length of one is beside them
            steps = told(name)["cluster"]["steps"]
            lists = [[row["step_ns"], *(ns / steps for ns in numbers({**row, "step_ns": None}))]
                     for row in rows_in(told(name), LISTS[known])]  # fmt: skip
        header, *rows = table.rows
        units = [UNITS.get(match[1]) if (match := re.search(r"\((\w+)\)$", title)) else None for title in header]
        for row in rows:
            times = [(cell.replace("\N{NO-BREAK SPACE}", "").replace(" ", ""), unit)
                     for cell, unit in zip(row, units, strict=True) if unit and cell != "–"]  # fmt: skip
            assert any(all(there(time, unit, numbers_) for time, unit in times) for numbers_ in lists), (known, row)
            checked += len(times)
    assert checked or name == "hta/cpu_only.json.gz"


def there(cell: str, unit: int, among: list[float]) -> bool:
    number = float(cell.replace("\N{NARROW NO-BREAK SPACE}", "").replace("−", "-"))
    digits = len(cell.partition(".")[2])
    return any(abs(number - one / unit) <= 0.5 * 10**-digits + 1e-9 for one in among)


@pytest.mark.parametrize("name", EVERY)
def test_operators_are_drawn_as_json_has_them(name: str) -> None:
    """The longest first, with their times and kernels; the caption has the sum."""
    found = sorted(told(name)["operators"], key=lambda one: -one["total_ns"])
    said = page_of(name).charts.get("chart-operators", [])
    assert bool(found) == bool(said)
    times = [match for text in said if (match := re.fullmatch(r"([\d.]+) (ns|us|ms|s) \(([\d.]+) %\)", text))]
    assert len(times) == min(len(found), 15)
    every = sum(one["total_ns"] for one in found)
    for match, one in zip(times, found, strict=False):
        assert close(match[1], match[2], one["total_ns"])
        assert abs(float(match[3]) - 100 * one["total_ns"] / every) <= 0.05 + 1e-9
    counts = [int(match[1]) for text in said if (match := re.search(r"\b(\d+) kernels?\b", text))]
    assert counts == [one["count"] for one in found[:15]]
    if found:
        caption = next(text for text in said if "operator" in text and re.search(r"\d", text))
        together, unit = re.findall(r"([\d.]+) (ns|us|ms|s)\b", caption)[-1]
        assert close(together, unit, every)


def close(number: str, unit: str, ns: float) -> bool:
    unit_ns = UNITS["µs" if unit == "us" else unit]
    return abs(float(number) - ns / unit_ns) <= 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_the_strip_is_the_partition_of_all_devices(name: str) -> None:
    page, devices = page_of(name), told(name)["devices"]
    if not devices:
        assert " judged" not in page.text
        return
    parts = [device["judged"]["partition"] if device["judged"] else device["partition"] for device in devices]
    span = sum(part["span_ns"] for part in parts)
    match = re.search(r"([\d.]+) (us|ms|s) judged", page.text)
    assert match and close(match[1], match[2], span)
    strip = page.text[match.end() :]
    wanted = ["compute_ns", "comm_transfer_ns", "comm_wait_ns", "comm_unknown_ns", "other_exposed_ns", "host_wait_ns"]
    wanted += ["launch_latency_ns", "dependency_wait_ns", "unattributed_ns"]
    sums = [total for field_ in wanted if (total := sum(part[field_] for part in parts))]
    shown = re.findall(r"([\d.]+) % ([\d.]+) (ns|us|ms|s)\b", strip)[: len(sums)]
    assert sum(sums) == span
    for (share, time, unit), total in zip(shown, sums, strict=True):
        assert abs(float(share) - 100 * total / span) <= 0.05 + 1e-9 and close(time, unit, total)


BARE = "no timeline: this recording has no kernels with times to draw"
UNDRAWN = {
    "msinsight/cluster4": "drawn: 2 of 4 devices; 2 have no kernels with times",
    "msinsight/cluster4/rank_1_ascend_pt": BARE,
    "msprof-analyze/cluster": BARE,
}


@pytest.mark.parametrize("name", [*map(real, UNDRAWN)])
def test_what_is_not_drawn_is_said_with_its_reason(name: str) -> None:
    said = page_of(name).text.lower()
    assert UNDRAWN[name] in said and "that stand out" not in said
    assert "over 1 steps" not in said


@pytest.mark.parametrize("name", [real("msinsight/text/level1")])
def test_a_rank_whose_waiting_is_not_told_has_none_in_the_map(name: str, tmp_path: Path) -> None:
    """Without the parts that tell it of both, rank 1 does not wait "0 ns": nobody can tell how long it waits."""
    waits = []
    for file in (path for path in place_of(name).rglob("*") if path.is_file()):
        copy = tmp_path / file.relative_to(place_of(name))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        if file.name == "trace_view.json":
            events = json.loads(file.read_text())
            waits.append(max(float(e["dur"]) for e in events if e["name"] == "Notify_Wait"))
            copy.write_text(json.dumps([e for e in events if e["name"] != "Notify_Wait"]))
    for place, both in ((name, True), (str(tmp_path), False)):
        parts = [device["judged"]["partition"] for device in told(place)["devices"]]
        assert [part["comm_wait_ns"] > 0 for part in parts] == [True, both]
        assert both or parts[1]["comm_unknown_ns"] > 1_000 * min(waits)  # what the parts were of
        match = re.search(r"waiting for other ranks: ((?:least |\d).*?); waiting for the host", page_of(place).text)
        assert match and "nothing in" not in match[1]
        assert [f"(rank {rank}, step 50)" in match[1] for rank in (0, 1)] == [True, both]
        assert both or match[1] == "4.31 ms (rank 0, step 50)"


@pytest.mark.parametrize(
    "name", [real("msinsight/text/level1/rank0_ascend_pt"), real("msinsight/db/level0/rank0_ascend_pt")]
)
def test_the_finding_of_a_copy_leads_to_this_copy(name: str) -> None:
    """The same call reads the loss, for 75 to 92 ms: the finding about the batch must not lead there."""
    result, (picture,) = drawn(name)
    finding = next(f for f in result.findings if f.rule == "blocking_copies" and f.status == "problem")
    _, start, end = Whereabouts((picture,), result.devices).of_finding(finding).split(":")
    assert finding.evidence["count"] == 1 and int(end) - int(start) == finding.evidence["host_ns"]
    assert max(site.host_ns for site in result.devices[0].syncs if site.name == finding.evidence["call"]) > 75_000_000


@pytest.mark.parametrize("name", EVERY)
def test_ways_lead_into_the_picture(name: str) -> None:
    """Wherever a row or a card leads, something of it is in the picture."""
    result, pictures = drawn(name)
    ways = re.findall(r'data-go="(\d+):(-?\d+):(-?\d+)"', render(result, "html", View(pictures=pictures)))
    assert ways or not pictures
    for at, start, end in ways:
        assert int(start) < int(end) and int(start) < pictures[int(at)].span_ns and int(end) > 0


BLOCK = re.compile(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"')
PAIRS = (
    ("msinsight/text/level1/rank0_ascend_pt", "msinsight/text/level1/rank1_ascend_pt"),
    ("msinsight/text/level1/rank0_ascend_pt", "msinsight/db/level1/rank0_ascend_pt"),
    ("msinsight/text/level0/rank0_ascend_pt", "msinsight/text/level1/rank0_ascend_pt"),
    ("msinsight/cluster4/rank_0_ascend_pt", "msinsight/cluster4/rank_2_ascend_pt"),
    ("hta/simple_add_gpu.json.gz", "hta/alexnet_gpu.json.gz"),
    tuple(f"op_summary_2026/op_summary_{name}.csv" for name in ("block_over_cores", "pipe_utilization")),
)


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_the_waterfall_goes_from_the_old_time_to_the_new_one(old: str, new: str) -> None:
    """Every bar begins where the one above ends, the first at the old time, and the last ends at the new one."""
    sides = [analyzed_again(name) for name in (old, new)]
    found = compare_results(sides[:1], sides[1:], load_thresholds({}), allow_mismatch=True)
    chart = falls_chart(found)
    assert chart is not None and chart.svg is not None
    rows = str(chart.svg).split("<li")[3:]  # after the two entries of the legend
    drawn_ = [[(float(x), float(x) + float(width)) for x, width in BLOCK.findall(row)] for row in rows]
    (first,), (last,) = drawn_[0], drawn_[-1]
    at, moved = first[1], 0.0
    for row, pieces in zip(rows[1:-1], drawn_[1:-1], strict=True):
        begin = at
        for left, right in pieces:
            assert min(abs(at - left), abs(at - right)) <= 0.03, row
            at = right if abs(at - left) <= abs(at - right) else left
        (sign,) = re.findall(r'bar-value">([-+]?)', row)
        assert (at - begin) * {"+": 1, "-": -1, "": 0}[sign] >= 0
        moved += at - begin
    assert abs(at - last[1]) <= 0.03 * len(rows)
    assert abs(moved - (last[1] - first[1])) <= 0.03 * len(rows)


@cache
def analyzed_again(name: str) -> Result:
    return run(AnalyzeRequest(path=place_of(name)))

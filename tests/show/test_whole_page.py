"""The page as a file: what it allows, what it holds, where it leads, how large it gets."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import large_job
from comparisons import GATES, WORSE
from markdown_it import MarkdownIt
from msgspec.structs import replace
from pictures import random_picture

from languages import compile_language
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import say
from npuperf.model.comparison import Compared, Difference
from npuperf.model.picture import Lane, LaneSlices, Picture, place_name
from npuperf.model.result import Device, Result
from npuperf.model.tuning import Tuning
from npuperf.show import language
from npuperf.show.analysis_tables import TABLES, TOPICS
from npuperf.show.formats import View, render
from npuperf.show.html import PAGE_WORDS, SCRIPT_WORDS
from npuperf.show.words import EVIDENCE

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
#: Elements that have no end, and those whose ends may be left out.
OPEN = {"meta", "link", "br", "tr", "td", "th", "thead", "tbody", "rect", "path", "line"}


class Seen(HTMLParser):
    """What a page is made of: elements with their attributes, and the text inside of some of them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"style": [], "script": []}
        self._inside: str | None = None
        self._table = self._cell = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in self.raw else None
        if tag in self.raw:
            self.raw[tag].append("")
        elif tag == "div" and dict(attrs).get("class") == "grid":
            self._table = dict(attrs)["id"] or ""
            self.rows[self._table] = []
        elif tag == "tr" and self._table:
            self.rows[self._table].append([])
        elif tag in ("th", "td") and self._table:
            self.rows[self._table][-1].append("")
        if tag in ("section", "h2"):
            self._table = ""
        self._cell = tag if tag in ("th", "td") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = None
        if tag in ("table", "tbody"):
            self._cell = ""
            self._table = ""

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.raw[self._inside][-1] += data
            return
        self.texts.append(data)
        if self._cell and self._table:
            self.rows[self._table][-1][-1] += data.rstrip("\n")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@cache
def analyzed(name: str) -> Result:
    return run(AnalyzeRequest(path=SAMPLES / name))


@cache
def page_of(name: str) -> Seen:
    return Seen(render(analyzed(name), "html", View(full=True)))


def data_of(page: str) -> dict[str, Any]:
    (content,) = re.findall(r'id="npuperf-data">([A-Za-z0-9+/=]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(content)))


def empty() -> LaneSlices:
    none = np.zeros(0, np.int64)
    colour = none.astype(np.uint8)
    return LaneSlices(**{**dict.fromkeys(LaneSlices.__struct_fields__, none), "colour": colour})


def picture(device: Device, places: dict[tuple[str, str], tuple[int, int]]) -> Picture:
    lane = Lane("parts", say("{name}", name="parts"), {"compute": np.full(4, 99, np.uint8)}, empty())
    return Picture(
        device.rank, device.device, device.source, device.origin_ns, device.partition.span_ns, (lane,), (), (), places
    )


# --- what it allows ---------------------------------------------------------------------------------------------------


def test_the_policy_allows_this_style_and_this_script_alone() -> None:
    page = page_of("transformer_ascend_pt")
    (policy,) = [m["content"] or "" for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    (style,) = page.raw["style"]
    data, script = page.raw["script"]

    def allowed(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == allowed(style) and rules["script-src"] == allowed(script)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data)
    assert {"default-src", "style-src", "script-src", "img-src", "base-uri", "form-action"} == set(rules)


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job", "micro_batch_ascend_pt"])
def test_nothing_is_fetched_and_no_attribute_is_code_or_style(name: str) -> None:
    page = page_of(name)
    for tag, attributes in page.elements:
        assert not [key for key in attributes if key == "style" or key.startswith("on")], (tag, attributes)
        for key in ("src", "href", "action", "data", "srcset", "xlink:href"):
            assert (attributes.get(key) or "#").startswith(("#", "data:,")), (tag, attributes)
    assert not re.search(r"@import|url\(", page.raw["style"][0])
    assert not re.search(
        r"\b(eval|innerHTML|outerHTML|insertAdjacentHTML|fetch|XMLHttpRequest)\b", page.raw["script"][1]
    )


def test_a_page_says_first_that_it_is_ours() -> None:
    """By this a page may be written over."""
    page = render(analyzed("transformer_ascend_pt"), "html", View())
    assert b'<meta name="generator" content="npuperf' in page.encode()[:1024]


# --- what it holds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job", "micro_batch_ascend_pt"])
@pytest.mark.parametrize("table", ["operators", "phases", "kernels", "steps", "ranks", "roots", "what_if", "links"])
def test_tables_have_the_numbers_of_markdown(name: str, table: str) -> None:
    result = analyzed(name)
    markdown = MarkdownIt("commonmark").enable("table").parse(render(result, "markdown", View(table=table, top=200)))
    cells = [
        [cell.content.strip() for cell in row]
        for row in _rows(markdown)
    ]  # fmt: skip
    if not cells:
        return
    title = re.sub(r" \(\d.*", "", next(t.content for t in markdown if t.type == "inline"))
    found = [rows for rows in page_of(name).rows.values() if {*rows[0]} <= {*cells[0]} and len(rows) == len(cells)]
    there = [{head: [row[i] for row in rows] for i, head in enumerate(rows[0])} for rows in found]
    wanted = {head: [" ".join(row[i].split()) for row in cells] for i, head in enumerate(cells[0])}
    assert any(
        columns and all([" ".join(c.split()) for c in column] == wanted[head] for head, column in columns.items())
        for columns in there
    ), title


def _rows(tokens: list[Any]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for i, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and tokens[i - 1].type in ("th_open", "td_open"):
            token.content = "".join(child.content for child in token.children or ())
            rows[-1].append(token)
    return rows


def test_the_verdict_stands_before_all_else() -> None:
    page = page_of("transformer_ascend_pt")
    order = [page.text.index(said) for said in ("HOST-BOUND", "3 steps · 2.31 ms/step", "measured: 10 % less host time",
                                                "where the time goes", "kernels are launched one by one")]  # fmt: skip
    assert order[:3] == sorted(order[:3])
    assert max(order[:3]) < page.text.rindex("where the time goes")
    sections = [s["id"] for s in page.all("section")]
    assert sections[:5] == ["verdict", "timeline", "parts", "findings", "charts"]
    assert {a["href"] for a in page.all("a")} >= {f"#{id_}" for id_ in sections}
    assert len({a["id"] for _, a in page.elements if "id" in a}) == sum("id" in a for _, a in page.elements)


def test_a_job_says_what_its_ranks_wait_for() -> None:
    page = page_of("pipeline_job")
    assert [s["id"] for s in page.all("section")][:5] == ["verdict", "timeline", "parts", "waiting", "findings"]
    assert "stage 1 (ranks 2, 3) computes 11.20 ms longer per step" in page.text
    assert "pipeline_job --rank 1" in page.text and "analyze PATH" not in page.text


def test_the_strip_adds_up() -> None:
    device = analyzed("transformer_ascend_pt").devices[0]
    page = render(analyzed("transformer_ascend_pt"), "html", View())
    (strip,) = re.findall(r'<figure class="strip">.*?</svg>', page, re.DOTALL)
    widths = {colour: float(width) for colour, width in re.findall(r'c-(\w+)" x="[\d.]+" width="([\d.]+)"', strip)}
    assert sum(widths.values()) == pytest.approx(100, abs=0.01)
    assert widths["compute"] == pytest.approx(100 * device.window.compute_ns / device.window.span_ns, abs=0.001)
    assert widths["host_wait"] == pytest.approx(100 * device.window.host_wait_ns / device.window.span_ns, abs=0.001)


def test_a_comparison_has_its_verdict_first_and_its_sum_last() -> None:
    result = replace(analyzed("transformer_ascend_pt"), comparison=WORSE, gates=GATES)
    page = Seen(render(result, "html", View(full=True)))
    assert [s["id"] for s in page.all("section")][:2] == ["verdict", "comparison"]
    assert page.text.index("WORSE") < page.text.index("HOST-BOUND") < page.text.index("step_time>+5%,200us for 2 of 3")
    waterfall = page.rows["comparison-table-1"]
    change = waterfall[0].index("change")
    parts = [float(row[change].replace(" ", "")) for row in waterfall[1:]]
    assert WORSE.delta_ns is not None and waterfall[-1][0] == "mean step"
    assert sum(parts[:-1]) == pytest.approx(parts[-1]) and parts[-1] == pytest.approx(WORSE.delta_ns / 1000)
    assert "the host waits for the device" in page.text and "step 13 is on one side only" in page.text
    shifts = next(rows for rows in page.rows.values() if rows[0][:1] == ["what"] and "samples before" in rows[0])
    assert [c.strip() for c in shifts[4][:3]] == ["transfer in dp", "1.20 ms", "1.30 ms"]


def test_the_data_are_words_and_pictures() -> None:
    device = analyzed("transformer_ascend_pt").devices[0]
    page = render(analyzed("transformer_ascend_pt"), "html", View(pictures=(picture(device, {}),)))
    data = data_of(page)
    assert set(data) == {"words", "pictures", "old_pictures", "matrices"}
    assert len(data["pictures"]) == 1 and data["old_pictures"] == []
    assert data["words"]["timeline_copy"] == "copy" and data["words"]["matrix_about"] == "about {value}"
    canvases = [int(c["data-matrix"] or -1) for c in page_of("pipeline_job").all("canvas")]
    assert canvases == list(range(len(data_of(render(analyzed("pipeline_job"), "html", View()))["matrices"])))
    assert canvases


def test_scripts_use_words_that_there_are() -> None:
    own = Path(language.__file__).parents[1] / "show" / "assets" / "page.js"
    used = set(re.findall(r"""(?:words\.|["'])(page_\w+)""", own.read_text()))
    assert used == set(SCRIPT_WORDS)
    template = (own.parent / "template.html").read_text()
    assert {*re.findall(r"words\.(\w+)", template), "holds", "fails", "unknown"} == set(PAGE_WORDS)


def test_without_pictures_it_says_why() -> None:
    assert "no timeline: it is drawn from the profile" in page_of("transformer_ascend_pt").text
    device = analyzed("transformer_ascend_pt").devices[0]
    page = Seen(render(analyzed("transformer_ascend_pt"), "html", View(pictures=(picture(device, {}),))))
    assert "no timeline: it is drawn from the profile" not in page.text


# --- where it leads ---------------------------------------------------------------------------------------------------


def test_rows_and_findings_lead_to_their_places() -> None:
    result = analyzed("transformer_ascend_pt")
    device = result.devices[0]
    blame, sync = device.blame[0], device.syncs[0]
    cumsum = next(o for o in result.operators if o.type == "Cumsum")
    places = {("operator", "Cumsum"): (7, 19), ("operator", place_name("Cumsum", cumsum.core)): (70, 71),
              ("wait", f"{blame.cause}: {blame.name}"): (20, 31),
              ("sync", place_name(sync.name, sync.torch_op, sync.where)): (40, 44), ("sync", sync.name): (50, 51),
              ("sync", sync.where or ""): (60, 61)}  # fmt: skip
    page = Seen(render(result, "html", View(pictures=(picture(device, places),))))
    ways = [a["data-go"] for tag, a in page.elements if tag == "tr" and a.get("data-go")]
    assert {"0:70:71", "0:20:31", "0:40:44"} <= {*ways}
    assert not {"0:50:51", "0:60:61"} & {*ways}  # they may be of other calls
    phase, step, kernel = device.phases[1], device.steps[1], result.kernels[0]
    assert f"0:{phase.start_ns}:{phase.end_ns}" in ways
    assert f"0:{step.start_ns}:{step.start_ns + step.partition.span_ns}" in ways
    assert f"0:{kernel.start_ns}:{kernel.start_ns + kernel.dur_ns}" in ways
    # The host's wait for a value, and the operator; of the others nothing is named that is drawn: all that is.
    whole = f"0:0:{device.partition.span_ns}"
    problems = [f.rule for f in result.findings if f.status == "problem"]
    named = {"sync_points": "0:40:44", "ai_cpu": "0:7:19"}
    ways = [b["data-go"] for b in page.all("button") if b.get("class") == "go"]
    assert ways == [named.get(rule, whole) for rule in problems]


def test_compared_operators_lead_to_the_new_run() -> None:
    slower = Compared(kind="operator", name="Cumsum", change="changed", verdict="worse", old_ns=1, new_ns=2)
    rows = (slower, replace(slower, kind="scope"))
    result = replace(analyzed("transformer_ascend_pt"), comparison=replace(WORSE, rows=rows))
    drawn = picture(result.devices[0], {("operator", "Cumsum"): (7, 19)})
    page = Seen(render(result, "html", View(pictures=(drawn,))))
    assert [a["data-go"] for tag, a in page.elements if tag == "tr" and a.get("data-go")].count("0:7:19") == 1


def test_rows_of_devices_that_are_not_drawn_lead_nowhere() -> None:
    result = analyzed("pipeline_job")
    drawn = result.devices[2]
    page = Seen(render(result, "html", View(pictures=(picture(drawn, {}),))))
    ways = {a["data-go"] for _, a in page.elements if a.get("data-go")}
    phases = {f"0:{phase.start_ns}:{phase.end_ns}" for phase in drawn.phases}
    steps = {f"0:{s.start_ns}:{s.start_ns + s.partition.span_ns}" for s in drawn.steps}
    mine = {f"0:{k.start_ns}:{k.start_ns + k.dur_ns}" for k in result.kernels if k.rank == drawn.rank}
    in_tables = {a["data-go"] for tag, a in page.elements if tag == "tr" and a.get("data-go")}
    assert in_tables == phases | steps | mine | {f"0:0:{drawn.partition.span_ns}"}
    assert in_tables <= ways


def test_commands_of_advice_name_the_path() -> None:
    result = analyzed("pipeline_job")
    odd = replace(result, input=replace(result.input, path="/a b/$(id)'/job"))
    page = Seen(render(odd, "html", View()))
    assert r"""npuperf analyze '/a b/$(id)'"'"'/job' --rank 1""" in page.text


# --- languages --------------------------------------------------------------------------------------------------------


def test_a_page_says_in_which_language_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = 'msgid ""\nmsgstr "Language: zh_CN\\nContent-Type: text/plain; charset=utf-8\\n"\n\n'
    (tmp_path / "zh_CN.po").write_text(f'{catalogue}msgid "findings"\nmsgstr "问题"\n\nmsgid "copy"\nmsgstr "复制"\n')
    compile_language(tmp_path / "zh_CN.po")
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    page = render(analyzed("transformer_ascend_pt"), "html", View(language="zh_CN"))
    assert '<html lang="zh-CN">' in page and "问题</h2>" in page
    assert data_of(page)["words"]["timeline_copy"] == "复制"
    (words,) = [json.loads(p["data-words"] or "") for p in Seen(page).all("p") if p.get("id") == "live"]
    assert words["page_copy"] == "复制"
    assert '<html lang="en">' in render(analyzed("transformer_ascend_pt"), "html", View(language="en"))


# --- how large it gets ------------------------------------------------------------------------------------------------


def thousand() -> Result:
    """A job of 1,024 ranks, each with all that one device may have, 660 operators, and findings on every rank."""
    one = analyzed("transformer_ascend_pt")
    device = one.devices[0]
    steps = [replace(device.steps[i % 3], step=i) for i in range(60)]
    places = [(rank, rank % 8) for rank in range(1024)]
    return replace(
        one,
        cluster=large_job(),
        devices=[replace(device, rank=r, device=d, steps=steps, source=f"job/{r}_ascend_pt") for r, d in places],
        findings=[replace(f, rank=r, device=d) for r, d in places for f in one.findings],
        what_if=[replace(w, rank=r, device=d) for r, d in places for w in one.what_if],
        operators=[replace(o, type=f"{o.type}{k}") for k in range(30) for o in one.operators],
        input=replace(
            one.input,
            files=[f"job/{r}/{file}" for r, _ in places for file in one.input.files],
            warnings=[say("rank {rank} is missing a file", rank=r) for r, _ in places],
        ),
    )


def test_a_thousand_ranks_and_a_large_timeline_take_two_megabytes_at_most() -> None:
    result = thousand()
    page = render(result, "html", View(full=True, pictures=(random_picture(1),)))
    print(f"{len(page.encode()):,} bytes")
    assert len(page.encode()) <= 2_000_000
    seen = Seen(page)
    assert all(len(rows) <= 201 for rows in seen.rows.values())
    assert "phases (100 of 6144)" in seen.text  # all tables have half as many rows, to keep within the room
    # of the input: its path, the number of its files, a warning per rank, clocks and thresholds; 200 lines are shown
    assert re.findall(r"\d+ more lines?", seen.text) == [f"{1 + 1 + 1024 + 1 + 1 - 200} more lines"]
    assert "of 1 024 devices together" in seen.text
    assert "also on 1 023 more devices" in seen.text


def test_long_names_make_tables_shorter() -> None:
    one = analyzed("transformer_ascend_pt")
    long = [replace(o, type=f"{'语' * 900}{k}", torch_op="y" * 900, where="z" * 900) for k in range(300)
            for o in one.operators[:1]]  # fmt: skip
    page = Seen(render(replace(one, operators=long), "html", View()))
    assert any(20 <= len(rows) - 1 < 200 for id_, rows in page.rows.items() if id_.startswith("operators"))


def test_the_same_document_makes_the_same_page() -> None:
    result = analyzed("pipeline_job")
    view = View(pictures=(picture(result.devices[0], {("operator", "b"): (1, 2), ("operator", "a"): (2, 3)}),))
    assert render(result, "html", view) == render(result, "html", view)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_evidence_has_units_by_its_names_and_lists_of_rows_are_tables() -> None:
    one = analyzed("transformer_ascend_pt")
    found = next(f for f in one.findings if f.status == "problem")
    rows = [{"type": f"T{i}", "total_ns": 1_500 * i, "where": None} for i in range(10)]
    evidence = {"waited_ns": 1_500_000, "idle_share": 0.125, "peak_bytes": 2048, "count": 12_345, "queued": False,
                "unset": None, "wait_by_kind_ns": {"dp": 2_000}, "types": rows, "ranks": list(range(12)),
                "nobody_knows_ns": 7}  # fmt: skip
    page = Seen(render(replace(one, findings=[replace(found, evidence=evidence)]), "html", View()))
    for name, said in (("waited for it", "1.50 ms"), ("idle", "12.5 %"), ("peak", "2.0 KiB"), ("count", "12 345"),
                       ("task queue in use", "no"), ("waiting by kind of group", "dp 2.00 us"),
                       ("ranks", "0, 1, 2, 3, 4, 5, 6, 7, and 4 more")):  # fmt: skip
        assert f"{name}{said}" in page.text, said  # a name and its value are elements of their own
    assert "nobody_knows" not in page.text  # what has no word stands in JSON alone
    assert "types (+2)" in page.text and "T7" in page.text and "T8" not in page.text and "unset" not in page.text


def names_in(evidence: object) -> set[str]:
    """The names in evidence that a page shows as labels: of its values, and of the columns of its lists of rows."""
    found = set(evidence) if isinstance(evidence, dict) else set()
    for value in evidence.values() if isinstance(evidence, dict) else ():
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            found |= {name for row in value for name in row}
    return found


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job", "memory_ascend_pt"])
def test_evidence_is_called_in_words(name: str) -> None:
    """What findings and verdict are grounded on has words in every sample, and no id of JSON is among the labels."""
    result = analyzed(name)
    problems = [f.evidence for f in result.findings if f.status == "problem"]
    missing = names_in(result.verdict.evidence).union(*map(names_in, problems)) - EVIDENCE.keys()
    assert missing <= {"asked", "kinds"}  # told by the title
    page = render(result, "html", View())
    labels = re.findall(r"<dt>(.*?)</dt>", page) + re.findall(r"<caption>(.*?)</caption>", page)
    labels += re.findall(r'<th scope="col">([^<]+)', "".join(re.findall(r"<article.*?</article>", page, re.DOTALL)))
    assert len(labels) > 5 and not [one for one in labels if re.search(r"[a-z]_[a-z]", one)]


def test_a_variable_to_set_can_be_copied() -> None:
    page = render(analyzed("transformer_ascend_pt"), "html", View())
    assert "export TASK_QUEUE_ENABLE=1" in re.findall(r'<div class="paste"><pre tabindex="0"><code>(.*?)</code>', page)


def test_other_documents_begin_with_their_verdict_and_have_all_their_lines() -> None:
    tuning = Tuning(mode="op", status="successful", recovered=False, files=("a/result.json",), verification=WORSE)
    page = Seen(render(tuning, "html", View(full=True)))
    assert (
        page.text.index("a/result.json") < page.text.index("SUCCESSFUL") < page.text.index("the step is 5.1 % longer")
    )
    markdown = MarkdownIt("commonmark").enable("table").parse(render(tuning, "markdown", View(full=True, top=200)))
    inline = ("".join(c.content for c in token.children or ()) for token in markdown if token.type == "inline")
    for said in filter(str.strip, inline):
        assert " ".join(said.removeprefix("npuperf: ").split()) in page.text, said


@pytest.mark.parametrize("view", [View(), View(full=True)])
def test_a_page_has_all_differences_of_set_ups(view: View) -> None:
    differences = tuple(Difference(what=f"setting {n}", old="1", new="2", matters=n < 5) for n in range(7))
    verification = replace(WORSE, parity=differences, samples=(3, 3))
    tuning = Tuning(mode="op", status="successful", recovered=False, files=("a",), verification=verification)
    page = Seen(render(tuning, "html", view))
    assert all(f"setting {n}" in page.text for n in range(7))
    assert "--full" not in page.text
    assert "--full shows all" in render(tuning, "text", View())
    assert "setting 6" in render(tuning, "text", View(full=True))


def test_one_table_alone_is_a_page() -> None:
    page = Seen(render(analyzed("transformer_ascend_pt"), "html", View(table="operators", top=3)))
    (rows,) = page.rows.values()
    assert [row[0] for row in rows[1:]] == [o.type for o in analyzed("transformer_ascend_pt").operators[:3]]


def test_every_table_has_a_place_or_is_told_otherwise() -> None:
    told = {"findings", "comparison", "finding_changes", "aligned", "gates", "waterfall", "waits", "host_sums"}
    told.add("memory_curve")  # which is drawn
    assert {table.name for table in TABLES if not table.topic} == told
    compared = {"parity", "compared", "shifts", "causes", "memory_changes"}
    assert {table.name for table in TABLES if table.topic == "comparison"} == compared
    assert {table.topic for table in TABLES} == {"", "comparison", *TOPICS}


def test_devices_alike_lead_nowhere_by_their_numbers_and_by_their_source_somewhere() -> None:
    one = analyzed("transformer_ascend_pt")
    first = one.devices[0]
    twin = replace(first, source="elsewhere")
    drawn = picture(first, {("operator", "Cumsum"): (7, 19)})
    page = Seen(render(replace(one, devices=[twin, first]), "html", View(pictures=(drawn,))))
    ways = [a["data-go"] for tag, a in page.elements if tag == "tr" and a.get("data-go")]
    step = first.steps[0]
    of_steps = [table for table in TABLES if table.topic and table.go and table.name.endswith("steps")
                and table.name != "host_steps"]  # fmt: skip
    assert ways.count(f"0:{step.start_ns}:{step.start_ns + step.partition.span_ns}") == len(of_steps) == 2
    assert not [b for b in page.all("button") if b.get("class") == "go"]


def test_launches_count_to_the_host_where_their_latency_cannot_be_told() -> None:
    one = analyzed("transformer_ascend_pt")
    clock = replace(one.devices[0].clock, latency_reason=say("too few launches"))
    page = Seen(render(replace(one, devices=[replace(one.devices[0], clock=clock)]), "html", View()))
    assert "waiting for the host and launches" in page.text[: page.text.index("kernels are launched one by one")]
    told = data_of(render(replace(one, devices=[replace(one.devices[0], clock=clock)]), "html", View()))["words"]
    assert told["timeline_host_wait"] == "waiting for the host and launches"
    assert data_of(render(one, "html", View()))["words"]["timeline_host_wait"] == "waiting for the host"

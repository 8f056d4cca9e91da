"""What notebooks show: the page's numbers without its scripts, within one class and a budget; and the guide runs."""

from __future__ import annotations

import base64
import re
import shutil
import struct
import zlib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from clusters import large_job, pipeline_job, result_of
from comparisons import WORSE
from hostile_documents import HEADS, MARK, TAIL, Poisoner, is_seen
from msgspec import structs

import npuperf
from npuperf.base.errors import UsageError
from npuperf.base.messages import say
from npuperf.cli.api import Run
from npuperf.model.comparison import Comparison
from npuperf.model.parts import encoded
from npuperf.model.result import Result
from npuperf.show import language
from npuperf.show.formats import View, render
from npuperf.show.matrix import FIRST, LAST, Layer
from npuperf.show.notebook import (
    MOST_BYTES,
    MOST_LINES,
    comparison_html,
    heat_image,
    lines_of_codes,
    png,
    result_html,
    scoped,
    scoped_style,
)

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
GUIDE = ROOT / "docs" / "notebook.ipynb"
VOID = {"img", "br"}
#: What JupyterLab keeps of a notebook that nobody trusts has neither of these.
UNTRUSTED = re.compile(r"<(style|svg)\b.*?</\1>", re.DOTALL)


class Nested(HTMLParser):
    """Elements of a piece of HTML; each must be closed where it belongs. ``text``: what is not a style."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@cache
def loaded(name: str) -> Run:
    return npuperf.load(SAMPLES / name)


def shown(thing: Run | Comparison) -> str:
    html: str = thing._repr_html_()  # type: ignore[union-attr]
    return html


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job", "micro_batch_ascend_pt"])
def test_it_says_what_the_page_says_without_styles_and_pictures(name: str) -> None:
    run = loaded(name)
    said = Nested(UNTRUSTED.sub("", shown(run))).text
    markdown = re.sub(r"[\\*]", "", render(run.result, "markdown", View()))
    assert f"{run.verdict.bound}-bound".upper() in said
    (per_step,) = set(re.findall(r"[\d.]+ [mu]s/step", said))
    assert per_step in markdown
    problems = [f for f in run.result.findings if f.status == "problem"]
    assert _plain(problems[0].title) in said
    assert _plain(problems[0].next) in said
    for operator in run.result.operators[:10]:
        assert re.search(rf"{re.escape(operator.type)} (\w+ )?{operator.count} {operator.total_ns / 1e6:.3f} ", said)


def _plain(message: Any) -> str:
    return language.text(message)


def test_parts_add_up_to_the_time() -> None:
    """Bars of where the time goes begin where the one above ends, the last at the end of the scale."""
    html = shown(loaded("transformer_ascend_pt"))
    strip = html[html.index("where the time goes") :].split("</figure>")[0]
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="2" width="([\d.]+)"', strip)]
    assert len(bars) == 5
    at = 0.0
    for x, width in bars:
        assert x == pytest.approx(at, abs=0.02)
        at = x + width
    assert at == pytest.approx(1000, abs=0.02)


def test_every_class_of_a_bar_has_its_colour() -> None:
    used = {c for name in ("transformer_ascend_pt", "pipeline_job") for c in _classes(shown(loaded(name)))}
    assert {"c-compute", "c-host_wait", "c-transfer"} <= used
    for name in used:
        if name.startswith("c-"):
            assert f" .{name}{{ fill" in scoped_style().replace(f".{name}{{fill", f".{name}{{ fill"), name


def _classes(html: str) -> set[str]:
    return {c for _, attributes in Nested(html).elements for c in (attributes.get("class") or "").split()}


def test_a_job_says_what_its_ranks_wait_for() -> None:
    page = Nested(UNTRUSTED.sub("", shown(loaded("pipeline_job"))))
    assert "why ranks wait for each other" in page.text
    assert "stage 1 (ranks 2, 3) computes 11.20 ms longer per step" in page.text
    heat = [a for tag, a in page.elements if tag == "img" and a["class"] == "heat"]
    assert len(heat) == 3
    assert all("least" in (a["alt"] or "") for a in heat)


def test_a_comparison_says_its_verdict_and_all_parts() -> None:
    said = Nested(UNTRUSTED.sub("", comparison_html(WORSE))).text
    assert said.startswith("runs/tuesday against runs/monday WORSE")
    assert "mean of 4 devices" in Nested(comparison_html(WORSE, 4)).text and "mean of" not in said
    table = re.search(r"by count by speed (.*?) mean step \+([\d.]+) ", said)
    assert table
    rows = re.findall(r"([+-]?[\d.]+) ([+-]?[\d.]+) ([+-]?[\d.]+)(?= [a-z]|$)", table[1])
    assert len(rows) == 11
    for total, by_count, by_speed in rows:
        assert float(total) == pytest.approx(float(by_count) + float(by_speed), abs=1e-6)
    assert sum(float(total) for total, _, _ in rows) == pytest.approx(float(table[2]), abs=1e-6)
    assert float(table[2]) * 1000 == pytest.approx(WORSE.delta_ns)


def test_lines_left_out_are_counted_also_where_the_page_leaves_out_some_itself() -> None:
    notable = next(found for found in WORSE.parity if found.matters)
    for n in (13, 200, 250):
        said = Nested(comparison_html(structs.replace(WORSE, parity=(notable,) * n))).text
        assert re.findall(r"(\d+) more line", said) == [str(n - 12)]


def test_nothing_that_differs_is_called_nothing() -> None:
    """Where all that differs should not change the time, it is counted, and not denied."""
    harmless = tuple(structs.replace(d, matters=False, mismatch=False) for d in WORSE.parity)
    said = Nested(comparison_html(structs.replace(WORSE, parity=harmless))).text
    assert f"{len(harmless)} differences that should not change the time" in said
    assert "nothing is known to differ" not in said
    alike = structs.replace(WORSE, parity=(), workload="unknown")
    assert "nothing is known to differ" in Nested(comparison_html(alike)).text


def test_it_speaks_the_language_of_its_reader() -> None:
    with language.speaking("zh"):
        html = shown(loaded("transformer_ascend_pt"))
    assert Nested(html).elements[0][1]["lang"] == "zh-CN"
    assert re.search("[\u4e00-\u9fff]", html)


def test_nothing_measured_has_nothing_to_show() -> None:
    nothing = structs.replace(result_of(None), devices=[], operators=[], findings=[])
    assert not {"figure", "table", "li"} & {tag for tag, _ in Nested(result_html(nothing)).elements}


# --- what it may not do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job"])
def test_it_may_be_shown_twice_and_runs_nothing(name: str) -> None:
    for tag, attributes in Nested(shown(loaded(name))).elements:
        assert tag not in ("script", "iframe", "canvas", "button", "link")
        assert not [key for key in attributes if key in ("id", "style", "data-go") or key.startswith("on")]
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")


def test_styles_stay_inside() -> None:
    css = scoped_style()
    flat = re.sub(r"@media[^{]*\{|\}\}", "", css.replace("}}", "}"))
    heads = re.findall(r"([^{}]+)\{[^{}]*\}", flat)
    assert len(heads) > 100
    for head in heads:
        for selector in re.split(r",(?![^()]*\))", head):
            assert ".npuperf.npuperf" in selector and ":root" not in selector, selector
    assert not re.search(r"url\(|@import|@font-face", css)


def test_rules_of_the_root_are_for_what_is_shown() -> None:
    css = ':root { --a: 1 } /* , */ p, b { x: y } @media print { :root[data-theme="dark"] i { x: y } }'
    one, two, three = scoped(css).splitlines()
    assert one == ".npuperf.npuperf{--a: 1}"
    assert two == ".npuperf.npuperf p,.npuperf.npuperf b{x: y}"
    assert three.startswith("@media print{:is(") and three.endswith(") .npuperf.npuperf i{x: y}}")
    assert '[data-jp-theme-light="false"]' in three


@pytest.mark.parametrize("head", [HEADS[0], HEADS[-1]])
def test_names_stay_text(head: str) -> None:
    attack = Poisoner(head)
    for html in (result_html(attack.of(Result)), comparison_html(attack.of(Comparison))):
        page = Nested(html)
        assert {tag for tag, _ in page.elements} <= KNOWN
        assert all(map(is_seen, html.replace("\n", " ")))
        assert "INJECTED" in page.text and TAIL not in page.text
        assert MARK.search(page.text)


KNOWN = {
    *("div", "style", "p", "b", "br", "span", "ul", "li", "figure", "figcaption", "svg", "rect", "path", "title", "g"),
    *("text", "circle", "img", "details", "summary", "pre", "code", "table", "thead", "tbody", "tr", "th", "td"),
}


def test_a_large_job_fits() -> None:
    job = loaded("pipeline_job").result
    steps = [structs.replace(step, step=n) for n, step in enumerate(job.devices[0].steps * 30)]
    devices = [structs.replace(job.devices[0], rank=rank, steps=steps) for rank in range(1_024)]
    html = result_html(structs.replace(job, devices=devices, cluster=large_job()))
    assert len(html.encode()) <= 200_000
    page = Nested(html)
    assert "too large" not in page.text
    assert "8 rows in a line: the most of them" in page.text
    assert next(a["height"] for tag, a in page.elements if tag == "img" and a["class"] == "heat") == str(2 * 128)


def test_what_is_too_large_is_left_out_and_counted() -> None:
    result = loaded("transformer_ascend_pt").result
    long = [
        structs.replace(f, title=say("{name}", name="x y" * 4000), code="z" * 60_000 + f.rule) for f in result.findings
    ]
    html = result_html(structs.replace(result, findings=long))
    assert len(html.encode()) <= MOST_BYTES + 1_000
    said = Nested(html).text
    assert "HOST-BOUND" in said and "operators by total time" in said
    assert "1 part is too large for a notebook" in said and "zzz" not in said


# --- heat maps --------------------------------------------------------------------------------------------------------


def decoded(image: bytes) -> tuple[int, int, list[bytes], bytes]:
    """Width, height, the lines of pixels and the palette of a PNG with eight bits of palette and filters 0 and 2."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(image):
        (size,) = struct.unpack(">I", image[at : at + 4])
        kind, data = image[at + 4 : at + 8], image[at + 8 : at + 8 + size]
        assert struct.unpack(">I", image[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + size
    width, height, bits, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (bits, colour, chunks[b"tRNS"]) == (8, 3, b"\0")
    raw, lines, above = zlib.decompress(chunks[b"IDAT"]), [], bytes(width)
    assert len(raw) == height * (width + 1)
    for start in range(0, len(raw), width + 1):
        line = raw[start + 1 : start + 1 + width]
        above = line if raw[start] == 0 else bytes((a + b) % 256 for a, b in zip(line, above, strict=True))
        lines.append(above)
    return width, height, lines, chunks[b"PLTE"]


def test_an_image_has_every_cell() -> None:
    width, height, lines, palette = decoded(png([bytes([0, 1, 2]), bytes([255, 128, 7])], 2, 3))
    assert (width, height) == (6, 6)
    assert lines == [bytes([0, 0, 1, 1, 2, 2])] * 3 + [bytes([255, 255, 128, 128, 7, 7])] * 3
    colours = [palette[i : i + 3] for i in range(0, len(palette), 3)]
    assert len(colours) == 256
    lightness = [sum(colour) for colour in colours[FIRST : LAST + 1]]
    assert lightness == sorted(lightness, reverse=True) and colours[FIRST] == b"\xdf\xea\xfa"


def test_a_slow_rank_is_seen_however_many_there_are() -> None:
    codes = bytearray([FIRST]) * (1_024 * 3)
    codes[777 * 3 + 1] = LAST
    lines = lines_of_codes(bytes(codes), 3)
    assert len(lines) == MOST_LINES
    assert [(i, line) for i, line in enumerate(lines) if LAST in line] == [(777 // 8, bytes([FIRST, LAST, FIRST]))]


def test_an_image_is_no_larger_than_its_place() -> None:
    layer = Layer(say("x"), "ns", 1.0, 2.0, bytes(range(120)) * 128, (), say("x"))
    image = str(heat_image(layer, 120, '"<b>'))
    assert 'alt="&#34;&lt;b&gt;"' in image
    width, height, lines, _ = decoded(base64.b64decode(re.findall(r"base64,([^\"]+)", image)[0]))
    assert (width, height) == (480, 256) and lines[0][::4] == bytes(range(120))


# --- the interface ----------------------------------------------------------------------------------------------------


def test_a_shown_comparison_is_the_document() -> None:
    run = loaded("transformer_ascend_pt")
    found = run.compare(run)
    plain = Comparison(**structs.asdict(found))
    assert isinstance(found, Comparison) and found == plain and plain == found and hash(found) == hash(run.compare(run))
    assert found != structs.replace(found, new="other") and found != "x"
    assert encoded(found, _plain) == encoded(plain, _plain)
    assert shown(found) == comparison_html(plain, 1)
    assert shown(structs.replace(found, warnings=())) == comparison_html(structs.replace(plain, warnings=()))


def test_the_saved_page_is_that_of_the_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from npuperf.cli import app

    run = npuperf.load(SAMPLES / "micro_batch_ascend_pt")
    saved = run.save_html(tmp_path / "saved.html")
    done = CliRunner().invoke(app, ["analyze", str(run.path), "--html", str(tmp_path / "asked.html")])
    assert done.exit_code == 0, done.output
    assert saved.read_text("utf-8") == (tmp_path / "asked.html").read_text("utf-8")
    assert 'id="timeline"' in saved.read_text("utf-8")


def test_a_page_replaces_a_page_alone(tmp_path: Path) -> None:
    run = npuperf.load(shutil.copytree(SAMPLES / "micro_batch_ascend_pt", tmp_path / "run"))
    file = tmp_path / "report.html"
    run.save_html(file)
    before = file.read_text("utf-8")
    run.save_html(file, run)
    assert file.read_text("utf-8") != before
    file.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        run.save_html(file)
    assert file.read_text() == "mine"
    assert run.save_html(str(file), force=True).stat().st_size > 10_000
    with pytest.raises(UsageError, match="was read"):
        run.save_html(next(iter(run.result.input.files)), force=True)


# --- the guide --------------------------------------------------------------------------------------------------------


def test_the_guide_is_paired_and_has_no_outputs() -> None:
    jupytext = pytest.importorskip("jupytext", reason="needs jupytext (pip install '.[dev]')")
    notebook, script = jupytext.read(GUIDE), jupytext.read(GUIDE.with_suffix(".py"))
    cells, twins = ([(cell.cell_type, cell.source) for cell in one.cells] for one in (notebook, script))
    assert cells == twins, "make them the same: jupytext --to ipynb --update docs/notebook.py"
    assert len(cells) > 15
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.filterwarnings("ignore")  # of the kernel's own parts, which are others'
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="needs ipykernel (pip install '.[dev]')")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient (pip install '.[dev]')")
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat (pip install '.[dev]')")
    (tmp_path / "samples").symlink_to(SAMPLES)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(GUIDE, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        startup_timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [o for o in outputs if o.output_type in ("error", "display_data") or o.get("name") == "stderr"]
    shown_html = [o.data["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    ours = [html for html in shown_html if 'class="npuperf"' in html]
    assert [Nested(UNTRUSTED.sub("", html)).text.split()[0] for html in ours[:2]] == [
        "transformer_ascend_pt",
        "pipeline_job",
    ]
    assert len(ours) == 3 and "SAME" in ours[2] and len(shown_html) >= 6
    assert all(len(html.encode()) < 60_000 for html in ours)
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_job_made_by_hand_has_its_roots() -> None:
    assert "why ranks wait for each other" in Nested(result_html(result_of(pipeline_job()))).text

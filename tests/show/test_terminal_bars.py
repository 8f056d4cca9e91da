"""Pictures on the screen: they add up, say the same in colour, in letters and in ASCII, and no number is ever cut."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from sample_documents import result

from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.result import OddStep, Partition, Result, Spread, TypicalStep
from npuperf.show.analysis_report import COLOURS, LETTERS, SIGNS, partition_bar, partition_rows, shares_line
from npuperf.show.formats import View, render
from npuperf.show.language import text
from npuperf.show.tables import EXTRA, Column, Table, each, filled
from npuperf.show.terminal import Fitted, painted, print_all

_ANSI = re.compile("\x1b\\[[0-9;]*m")
_NOTHING = dict.fromkeys(Partition.__struct_fields__, 0)


def window(**parts: int) -> Partition:
    """A partition of these parts, which adds up."""
    own = _NOTHING | parts
    comm = sum(own[name] for name in ("comm_transfer_ns", "comm_wait_ns", "comm_unknown_ns"))
    idle = sum(own[n] for n in ("host_wait_ns", "launch_latency_ns", "dependency_wait_ns", "unattributed_ns"))
    span = own["compute_ns"] + comm + own["other_exposed_ns"] + idle
    return Partition(**own | {"comm_exposed_ns": comm, "idle_ns": idle, "span_ns": span})


def with_window(whole: Partition) -> Result:
    device = replace(result().devices[0], partition=whole, judged=None)
    return replace(result(), devices=[device])


def test_a_bar_by_hand() -> None:
    whole = window(compute_ns=40, comm_transfer_ns=20, comm_wait_ns=10, host_wait_ns=20, unattributed_ns=10)
    assert partition_bar(whole, 10) == "CCCCMMWHH."
    assert partition_bar(whole, 0) == ""
    assert partition_bar(window(compute_ns=1, comm_unknown_ns=1), 4) == "CCMM"  # of one rank: communication
    assert partition_bar(window(comm_unknown_ns=2, comm_wait_ns=2), 4) == "WW??"


def test_every_part_has_a_letter_a_colour_and_a_name() -> None:
    leaves = [name for name in Partition.__struct_fields__ if name not in ("span_ns", "comm_exposed_ns", "idle_ns")]
    assert sorted(SIGNS) == sorted(leaves) and len(set(SIGNS.values())) == len(SIGNS)
    assert set(COLOURS) == set(LETTERS) == set(SIGNS.values())


def test_rows_are_steps_of_one_stair() -> None:
    whole = window(compute_ns=300, comm_unknown_ns=200, other_exposed_ns=100, host_wait_ns=250, dependency_wait_ns=150)
    rows = [row[0] for row in partition_rows(with_window(whole).devices[0], 50)]
    bars = {text(part.title): part.bar for part in rows}
    for place, letter in enumerate(bars["span"]):  # each place in the row of its part, and in that of what it is in
        in_rows = [part.depth for part in rows if part.bar[place : place + 1].strip() == letter]
        assert in_rows in ([0, 1], [0, 1, 2])
    assert bars["span"] == "C" * 15 + "M" * 10 + "o" * 5 + "H" * 13 + "D" * 7  # 12.5 and 7.5: the first one's rest
    assert bars["idle"] == " " * 30 + "H" * 13 + "D" * 7


@pytest.mark.parametrize("width", [40, 60, 80, 140, 300])
def test_the_bar_of_the_window_is_on_every_screen(width: int) -> None:
    whole = window(compute_ns=600, host_wait_ns=400)
    lines = render(with_window(whole), "text", View(width=width)).splitlines()
    (bar,) = {found[0] for line in lines if (found := re.search("C+H+$", line))}
    assert bar.count("C") == round(0.6 * len(bar)) and len(bar) >= 16
    if width <= 40:
        assert any("C compute   H waiting for the host" in line for line in lines)


def test_letters_of_a_bar_stay_where_colours_are(everything: dict[str, Document]) -> None:
    for document in everything.values():
        plain = render(document, "text", View(width=100)).splitlines()
        coloured = _ANSI.sub("", render(document, "text", View(width=100, colour=True))).splitlines()
        assert [line.rstrip() for line in coloured] == plain
    bar = painted("CCCH█", {"C": "cyan", "H": "yellow", "█": "red"})
    assert bar.plain == "CCCH█"
    styles = [str(span.style) for span in bar.spans]
    assert styles == ["not dim black on cyan", "not dim cyan on cyan", "not dim black on yellow", "red"]


def test_without_blocks_a_screen_says_the_same(everything: dict[str, Document]) -> None:
    pairs = {*zip("▁▂▃▄▅▆▇█", "12345678", strict=True), ("█", "#"), ("▓", "+")}
    for name, document in everything.items():
        drawn, plain = (render(document, "text", View(width=120, blocks=blocks)) for blocks in (True, False))
        drawn = drawn.replace("  heights from 0\n", "  digits from 0 to 8, the longest\n")
        assert len(drawn) == len(plain) and all(a == b or (a, b) in pairs for a, b in zip(drawn, plain, strict=True))
        assert not set(plain) & set("▁▂▃▄▅▆▇█▓░"), name


def with_steps(times: list[int], odd: tuple[int, ...] = ()) -> Result:
    """A device of steps so long, some of which are told to be odd."""
    device = result().devices[0]
    steps = [replace(device.steps[0], step=n, partition=window(compute_ns=ns)) for n, ns in enumerate(times)]
    typical = TypicalStep(
        steps=len(times),
        length=Spread(min_ns=min(times), median_ns=round(median(times)), max_ns=max(times)),
        phases=[],
        odd=[OddStep(step=n, span_ns=times[n], why=say("longer")) for n in odd],
    )
    return replace(result(), devices=[replace(device, steps=steps, typical_step=typical)])


def head(document: Result, width: int = 80, **how: bool) -> list[str]:
    return render(document, "text", View(width=width, **how)).splitlines()[1:5]


def test_steps_are_drawn_from_zero_beside_what_is_said_of_them() -> None:
    times = [4_000_000, 8_000_000, 2_000_000, 0]
    assert "3.00 ms/step (0.00–8.00)" in head(with_steps(times))[0]
    assert head(with_steps(times))[0].endswith("  ▄█▂   heights from 0")
    assert head(with_steps(times), 120, blocks=False)[0].endswith("  482   digits from 0 to 8, the longest")
    assert "from 0" not in "".join(head(with_steps(times[:2])))  # two are no series


def test_odd_steps_are_marked() -> None:
    times = [1_000_000] * 20
    times[7] = 8_000_000
    said = head(with_steps(times, odd=(7,)))
    assert said[1].strip().split("  ") == ["▁" * 7 + "█" + "▁" * 12, "heights from 0"]
    assert said[2].index("^") == said[1].index("█") and said[2].split() == ["^", "unusual"]


def test_of_many_steps_each_sign_is_the_longest_of_several() -> None:
    times = [1_000_000] * 1000
    times[500] = 8_000_000
    lines = render(with_steps(times, odd=(500,)), "text", View(width=100)).splitlines()
    drawn = next(i for i, line in enumerate(lines) if "▁█▁" in line)
    assert lines[drawn] == "  " + "▁" * 45 + "█" + "▁" * 45
    assert lines[drawn + 1] == "  " + " " * 45 + "^  unusual"
    assert lines[drawn + 2] == "    heights from 0; each sign: the longest of 11 steps"


_WIDE = Table("made", say("made"), each(), (
    Column("name", say("name"), get=lambda n: f"kernel_{n}_of_a_very_long_name_that_is_cut", weight=0),
    Column("ns", say("time"), "ms", lambda n: n * 987_654_321_012, 0),
    Column("share", say("%"), "share", lambda n: n / 7, 1),
    Column("count", say("count"), "count", lambda n: 10**n),
    Column("title", say("what"), "message", lambda n: say("it is said {n} times over and over", n=n), 2),
    Column("more", say("more"), "us", lambda n: n * 123_456, EXTRA),
))  # fmt: skip


def test_numbers_are_whole_on_every_screen() -> None:
    rows = [(n,) for n in range(1, 7)]
    numbers = [column for column in _WIDE.columns if column.unit in ("ms", "share", "count", "us")]
    before = 0
    for width in range(40, 301):
        table = Fitted(filled(_WIDE, rows))
        shown = print_all([table], View(width=width))
        assert max(map(cell_len, shown.splitlines())) <= width
        first = shown[: shown.index("kernel_")]
        heads = [c for c in numbers if c.key == "ns" or re.search(rf"(?<!\w){re.escape(c.title.split()[0])}", first)]
        for column in heads:
            for row in rows:
                assert column.shown(column.cell(row)) in shown, (width, column.key)
        assert ("more (µs)" in shown) <= ("it is said 1 times over and over" in shown)  # only with room for all
        before = max(before, len(heads))
    assert before == len(numbers)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200, 300])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_screen_is_wider_than_the_terminal(width: int, language: str, everything: dict[str, Document]) -> None:
    for name in ("transformer", "micro_batch", "job", "large_job"):
        shown = render(everything[name], "text", View(width=width, language=language)).splitlines()
        wide = [line for line in shown if cell_len(line) > width]
        assert wide == [], name


def test_shares_of_all_devices_by_hand() -> None:
    one = with_window(window(compute_ns=500, comm_wait_ns=300, comm_transfer_ns=190, other_exposed_ns=10))
    both = replace(one, devices=[*one.devices, with_window(window(compute_ns=1000)).devices[0]])
    said = shares_line(both)
    assert said is not None
    # 1500 + 300 + 190 of 2000; the copies' 0.5 % are not worth a word
    assert text(said) == (
        "compute ████████░░ 75.0 % · transfer █░░░░░░░░░ 9.5 % · waiting for other ranks ██░░░░░░░░ 15.0 %"
    )
    assert shares_line(replace(one, devices=[])) is None


def test_a_job_summary_stays_short(everything: dict[str, Document]) -> None:
    path = Path(__file__).parents[1] / "cases" / "pages" / "compared.md"
    assert "░" in path.read_text("utf-8") and len(path.read_text("utf-8").splitlines()) <= 60
    assert "░" in render(everything["job"], "markdown")
    for form in ("csv", "json"):
        assert not set("█░") & set(render(everything["job"], form))

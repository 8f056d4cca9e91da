"""The page of a job: one screen for four ranks and for a thousand, outliers first, the document's numbers."""

from __future__ import annotations

import csv
import io
import re

import pytest
from clusters import MS, finding, large_job, pipeline_job, result_of, slow_rank_job
from msgspec.structs import replace

from npuperf.model.job_result import Cluster
from npuperf.show.formats import View, render
from npuperf.show.job_screen import draw, outliers, slice_of
from npuperf.show.job_text import outliers_first, ranges, roots_by_gain, roots_worth

JOBS = {"4 ranks": pipeline_job, "8 ranks": slow_rank_job, "1024 ranks": large_job}
NAMES = ("ranks", "groups", "collectives", "links", "waits", "roots", "clocks", "stages")


def screen(cluster: Cluster, width: int = 80, **how: bool) -> list[str]:
    findings = [finding(f"rule{i}", rank) for i in range(4) for rank in range(3)]
    return render(result_of(cluster, findings=findings, warnings=9), "text", View(width=width, **how)).splitlines()


def rows(cluster: Cluster, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(result_of(cluster), "csv", View(table=table)))))


def place(lines: list[str], words: str) -> int:
    (found,) = [i for i, line in enumerate(lines) if words in line]
    return found


def test_what_explains_most_is_not_below_chance() -> None:
    """Chance may save something, too, but nobody can repair it: it is shown after what explains more."""
    first = slow_rank_job().roots[0]
    chance = replace(first, kind="jitter", ranks=[], share=0.02, wait_ns=2 * MS, gain_ns_per_step=(0, MS))
    absent = replace(first, kind="unknown", ranks=[], share=0.97, wait_ns=97 * MS, gain_ns_per_step=None)
    small = replace(first, share=0.01, wait_ns=MS, gain_ns_per_step=(1, 2))
    for roots in ([chance, absent], [absent, chance]):
        assert roots_worth(replace(slow_rank_job(), roots=roots)) == [absent, chance]
    assert roots_by_gain(replace(slow_rank_job(), roots=[chance, absent, small])) == [small, absent, chance]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_job_is_one_screen(job: str, width: int) -> None:
    lines = screen(JOBS[job](), width)
    assert len(lines) <= 48
    assert max(map(len, lines)) <= width


def test_many_groups_without_a_name_are_counted_in_the_legend() -> None:
    """Where files name no groups, each has a number of twenty digits: these would fill the screen."""
    job = pipeline_job()
    waits = {f"group {10**19 + i}": 40 * MS for i in range(5)}
    ranks = [replace(r, comm=replace(r.comm, wait_by_kind=waits, wait_ns=200 * MS, exposed_wait_ns=200 * MS))
             for r in job.ranks]  # fmt: skip
    assert "w waits in 5 groups" in " ".join(screen(replace(job, ranks=ranks)))


def test_the_order_is_verdict_causes_pipeline_ranks_findings() -> None:
    lines = screen(large_job())
    assert lines[1] == "1 024 of 1 025 ranks loaded · no steps recorded · 1.00 s in all"
    assert lines[2].startswith("COMMUNICATION-BOUND  measured: ")
    parts = ("why ranks wait", "pipeline: 8 stages", "where the step goes", "slow link 16-24", "clocks corrected")
    places = [*(place(lines, words) for words in parts), lines.index("findings")]
    assert places == sorted(places)


def test_causes_are_sorted_by_what_they_save_and_say_what_to_do() -> None:
    lines = screen(pipeline_job())
    assert place(lines, "30.8 %  stage 1 (ranks 2, 3) computes 169.10 ms longer") < place(
        lines, "63.8 %  the pipeline's own bubble"
    )
    said = " ".join(line.strip() for line in lines)
    assert "saves 40.0–48.0 ms per step (4.9–5.9 %)" in said
    assert "MatMulV3 2048,4096;4096,151936" in said
    assert "→ move layers from stage 1 to the others" in said
    assert "994.00 ms per step" in said  # 318 + 340 + 176 + 160
    few = screen(large_job())
    assert re.search(r"why ranks wait \(\d of 7\)", "\n".join(few))


def test_the_pipeline_says_both_parts_of_the_waiting_and_what_the_exporter_misses() -> None:
    lines = screen(pipeline_job())
    assert "  compute per stage 231.30 ms, 400.40 ms: stage 1 takes 1.27 times the mean" in lines
    assert "  bubble 29.6 % of the pipeline's time; the schedule alone makes 33.3 %" in lines
    assert "  schedule's own waiting 634.00 ms (63.8 %), uneven stages' 306.00 ms (30.8 %)" in lines
    blind = "the exporter's own Bubble is 0"
    assert any(blind in line for line in lines)
    job = pipeline_job()
    seeing = replace(job, stages=[replace(s, vendor_bubble_ns=s.bubble_ns) for s in job.stages])
    assert not any(blind in line for line in screen(seeing))


def rank_rows(lines: list[str]) -> list[list[str]]:
    """The rows of the table of ranks, from its first, which is of all ranks."""
    first = next(i for i, line in enumerate(lines) if line.split()[:1] == ["mean"])
    return [line.split() for line in lines[first:] if re.match(r" +(mean|\d+) +[\d.–]+ ", line)]


def test_outliers_come_first_and_a_line_says_how_the_others_are() -> None:
    lines = screen(large_job())
    assert [row[0] for row in rank_rows(lines)][:3] == ["mean", "77", "600"]
    others = place(lines, "the other 1 021 ranks: ")
    said = f"{lines[others]} {lines[others + 1].strip()}"
    assert "compute 28.1–28.8 %" in said and "waiting 33.3–34.0 %" in said and "host wait 2.0–2.2 %" in said
    assert [row[0] for row in rank_rows(screen(slow_rank_job()))] == ["mean", "3", "0", "1", "2", "4", "5", "6", "7"]


def test_a_rank_is_compared_with_its_own_stage() -> None:
    """Stage 1 computes 170 ms longer, but within a stage ranks are alike but for 11 ms of waiting."""
    assert [r.rank for r in outliers_first(pipeline_job())] == [0, 1, 2, 3]
    job = large_job()
    shown, rest = outliers(job, 8)
    assert [r.rank for r in shown][:2] == [77, 600] and len(shown) == 3 and len(rest) == 1_021
    assert outliers(job, None) == (outliers_first(job), [])


def test_shares_and_bars_are_those_of_the_document() -> None:
    job = pipeline_job()
    shown = {row[0]: row for row in rank_rows(screen(job))}
    for rank in job.ranks:
        parts = rank.compute_ns or 0, rank.comm.exposed_transfer_ns, rank.comm.exposed_wait_ns, rank.idle_ns or 0
        assert sum(parts) == rank.step_ns
        assert shown[str(rank.rank)][2:6] == [f"{100 * part / rank.step_ns:.1f}" for part in parts]
    bar = draw(slice_of(job.ranks[0], 1), 810)  # a sign per ms
    assert [bar.count(sign) for sign in "█▓pw·"] == [231, 102, 284, 34, 159]
    assert len(bar) == 810 and bar.replace("·", "") + "·" * 159 == bar


def test_shares_are_of_all_steps() -> None:
    """Ten steps of 100 ms: 800 ms of compute are 80 %, 30.3 ms of waiting for the host 3.0 %."""
    three = slice_of(slow_rank_job().ranks[3], 10)
    assert (three.compute, three.wait, three.transfer) == (0.8, 0.0, 0.06)
    assert three.host == pytest.approx(0.0303)


def test_no_bar_is_longer_than_its_room() -> None:
    odd = replace(slice_of(slow_rank_job().ranks[0], 10), compute=0.9, transfer=0.4, host=0.5)
    assert len(draw(odd, 20)) == 20


@pytest.mark.parametrize("table", NAMES)
def test_every_table_has_the_numbers_of_the_document(table: str) -> None:
    job = pipeline_job()
    found = rows(job, table)
    assert len(found) == (2 if table == "waits" else len(getattr(job, "ranks" if table == "clocks" else table)))
    markdown = render(result_of(job), "markdown", View(table=table))
    text = render(result_of(job), "text", View(table=table, width=1_000))
    for row in found:
        for name, cell in row.items():
            if name.endswith("_ns") and cell and name not in ("offset_ns", "low_ns", "high_ns", "residual_ns"):
                for said in (markdown, text):
                    assert f"{int(cell) / MS:.3f}" in said, name


def test_sums_of_the_tables_are_the_documents() -> None:
    job = pipeline_job()
    assert sum(int(r["wait_ns"]) for r in rows(job, "ranks")) == 994 * MS
    assert [int(r["transfer_ns"]) for r in rows(job, "ranks")] == [101_800_000] * 4
    assert [(r["kind"], r["ranks"], int(r["wait_ns"])) for r in rows(job, "roots")] == [
        ("stage", "2-3", 306 * MS), ("schedule", "", 634 * MS)
    ]  # fmt: skip
    assert rows(job, "ranks")[0]["wait_by_kind"] == "pp 283600000, embd 34400000"
    waits = rows(job, "waits")
    assert [(r["rank"], r["wait_ns"], r["arrival_ns"], r["last"]) for r in waits] == [
        ("0", "157750000", "0", "2"), ("2", "0", "157750000", "2")
    ]  # fmt: skip
    assert rows(job, "collectives")[0]["wait_ns"] == "157750000"
    assert rows(job, "clocks")[2]["offset_ns"] == "24800"


def test_without_a_job_tables_are_empty_and_the_screen_is_as_before() -> None:
    none = result_of(None)
    for table in NAMES:
        assert render(none, "csv", View(table=table)).count("\n") == 1
    lines = render(none, "text", View(width=80)).splitlines()
    assert lines[1] == "no steps recorded · 1.00 s in all · 8 devices"
    assert any("devices, in % of span (8)" in line for line in lines)
    assert not any("why ranks wait" in line for line in lines)


def test_markdown_says_the_same() -> None:
    said = render(result_of(pipeline_job()), "markdown")
    for words in ("ranks wait for each other: 994.00 ms per step together, 30.7 % of their time",
                  "schedule's own waiting 634.00 ms (63.8 %)", "| 0 | 0 | 0 | node0 | 810.000 | 231.200 |",
                  "| stage | 2-3 | 1 |"):  # fmt: skip
        assert words in said
    large = render(result_of(large_job(), findings=[finding("ai_cpu", r) for r in range(1_024)]), "markdown")
    assert "(10 of 1024)" in large and large.count("Cumsum") == 1 and "also on 1 023 more devices" in large
    assert large.count("\n") < 160


def test_full_shows_every_rank_and_what_each_of_them_does() -> None:
    full = screen(slow_rank_job(), width=200, full=True)
    assert any(line.startswith("devices, in % of span") for line in full)
    assert not any("npuperf analyze job --rank" in line for line in full)
    assert len(rank_rows(screen(large_job(96), width=200, full=True))) > 96


def test_one_rank_is_pointed_to() -> None:
    where = "one rank's phases, blame, operators, cores: npuperf analyze job --rank "
    for job, rank in ((pipeline_job(), 2), (slow_rank_job(), 3), (large_job(), 77)):
        assert f"{where}{rank}" in screen(job)
    assert f"{where}3" in screen(replace(slow_rank_job(), roots=[]))


def test_clocks_are_worth_a_line_only_where_they_limit_what_is_told() -> None:
    assert not any(line.startswith("clocks") for line in screen(pipeline_job()))  # 0.8 us of 810 ms
    assert any("arrivals within 1.20 ms cannot be ordered" in line for line in screen(large_job()))  # 3 x 400 us


def test_links_that_are_slow_are_named_beside_their_peers() -> None:
    lines = screen(large_job())
    assert "slow link 16-24 (RDMA allReduce 32 MiB): 6.25, peers 16 GB/s; 44.00 ms/step lost" in lines
    fine = replace(large_job(), links=[replace(link, slow=False) for link in large_job().links])
    assert "links: 8 compared with their peers, none slow" in screen(fine)
    assert "links: too few peers to judge any of them" in screen(pipeline_job())


def test_colour_only_where_it_is_wanted() -> None:
    plain, colourful = (render(result_of(pipeline_job()), "text", View(width=80, colour=c)) for c in (False, True))
    assert "\x1b" not in plain and "\x1b[" in colourful
    stripped = re.sub(r"\x1b\[[\d;]*m", "", colourful)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_names_from_files_are_shown_as_they_are() -> None:
    job = slow_rank_job()
    named = replace(job, roots=[replace(job.roots[0], operators=["[red]Mul[/red] a|b <c>"], where="x.py:1")])
    assert any("[red]Mul[/red] a|b <c> · x.py:1" in line for line in screen(named))
    assert "\\[red]Mul\\[/red] a\\|b &lt;c>" in render(result_of(named), "markdown")


def test_what_is_not_known_is_left_out() -> None:
    bare = replace(
        slow_rank_job(), roots=[], ranks=[
            replace(r, compute_ns=None, host_wait_ns=None, idle_ns=None, clock=None) for r in slow_rank_job().ranks
        ]
    )  # fmt: skip
    assert "  rank  transfer  waits" in "\n".join(screen(bare))


def test_ranges() -> None:
    assert ranges([3, 0, 1, 7]) == "0-1, 3, 7"
    assert (ranges([]), ranges([5])) == ("", "5")


def test_one_rank_shows_what_of_its_communication_is_waiting_or_says_what_would_tell() -> None:
    everyone = result_of(None)
    told = everyone.devices[0]  # of ten steps: transfer 60 ms exposed, waiting 200 ms
    lines = render(replace(everyone, devices=[told]), "text", View(width=80)).splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.startswith("    exposed communication")]
    assert [line.split()[-3:-1] for line in lines[first : first + 3]] == [
        ["260.000", "26.0"], ["60.000", "6.0"], ["200.000", "20.0"]
    ]  # fmt: skip
    assert [line.strip().split("  ")[0] for line in lines[first + 1 : first + 3]] == [
        "transfer", "waiting for other ranks"
    ]  # fmt: skip
    hint = "  one rank alone cannot tell transfer from waiting: load all ranks"
    assert hint not in lines
    untold = replace(told.partition, comm_transfer_ns=0, comm_wait_ns=0, comm_unknown_ns=260 * MS)
    lines = render(replace(everyone, devices=[replace(told, partition=untold)]), "text", View(width=80)).splitlines()
    assert hint in lines and not any("waiting for other ranks" in line for line in lines)

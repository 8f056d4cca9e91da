"""A short attack, the same every time (``make fuzz`` goes on for hours), and that it would tell what it is to tell."""

from __future__ import annotations

import copy
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import attempts
import mutators
import pytest
from attack import Worker
from attempts import Outcome, attempt
from bases import KINDS
from looks import wrong_files, wrong_page, wrong_trace
from oracle import complaint, false_in, misshapen, snapshot, untrue

#: Attempts per kind: that each of them can be made. Databases are many things at once; more find more: make fuzz.
FEW, MANY = 1, 3
#: Kinds that are known to fail, with the reason: to be empty.
KNOWN: dict[str, str] = {}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = Worker(tmp_path_factory.mktemp("attack") / "room")
    yield made
    made.end()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_get_an_answer_or_a_message(worker: Worker, kind: str, request: pytest.FixtureRequest) -> None:
    if kind in KNOWN:
        request.applymarker(pytest.mark.xfail(reason=KNOWN[kind]))
    failures = []
    for number in range(MANY if kind.endswith("_db") else FEW):
        damage, failure, detail = worker.attempt(f"{kind}/{number}")
        if failure is not None:
            failures.append(f"make fuzz CASE={kind}/{number}: {failure} ({damage})\n{detail[:2000]}")
    assert not failures, "\n".join(failures)


def test_an_attempt_is_the_same_every_time(tmp_path: Path) -> None:
    there = []
    for folder in ("a", "b"):
        root = tmp_path / folder
        root.mkdir()
        kind = KINDS["torch_db"]
        kind.build(root)
        there.append((attempts.do_damage("torch_db/7", kind, Random("torch_db/7"), root)[0], snapshot(root)))
    assert there[0] == there[1]


@pytest.mark.parametrize(
    ("register", "sound"),
    [
        (mutators.BYTES, b"some bytes that are long enough to be cut"),
        (mutators.TABLE, [["Name", "Type"], *([f"k{i}", "Add"] for i in range(9))]),
        (mutators.TREE, {"traceEvents": [{"name": "k", "ts": "1.5", "args": {"a": 1}} for _ in range(9)]}),
        (mutators.LINES, ["analyze:", "  top: 5", "rules: [a, b]"]),
    ],
)
def test_every_mutator_changes_something(register: list[mutators.Mutator], sound: Any) -> None:
    for mutator in register:
        assert any(mutator.act(Random(seed), copy.deepcopy(sound)) != sound for seed in range(9)), mutator.name


def broken(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Have the program answer so, where the input is damaged."""
    whole = attempts.run

    def run(words: list[str]) -> attempts.Ran:
        return answer(words, whole(words))

    monkeypatch.setattr(attempts, "run", run)


def made(tmp_path: Path, kind: str = "bare_table", number: int = 2) -> Outcome:
    here = Path.cwd()
    try:
        attempts.sound_answer(kind, tmp_path)
        return attempt(f"{kind}/{number}", tmp_path / "room")
    finally:
        os.chdir(here)


def test_a_changed_input_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touch(words: list[str], ran: attempts.Ran) -> attempts.Ran:
        (tmp_path / "room" / "input" / "kernel_details.csv").write_text("gone")
        return ran

    attempts.sound_answer("bare_table", tmp_path)
    broken(monkeypatch, touch)
    assert str(made(tmp_path).failure).startswith("CHANGED INPUT")


def test_a_file_that_is_left_behind_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(words: list[str], ran: attempts.Ran) -> attempts.Ran:
        (tmp_path / "room" / "scratch" / "copy.db").touch()
        return ran

    attempts.sound_answer("bare_table", tmp_path)
    broken(monkeypatch, leave)
    assert made(tmp_path).failure == "LEFT BEHIND ['copy.db']"


def test_rows_that_vanish_are_told(tmp_path: Path) -> None:
    """As many as the oracle is told of, by a truth that is wrong by one."""
    wrong = attempts.Truth("nothing", gone=1, told=1)
    kind, root = KINDS["bare_table"], tmp_path / "input"
    root.mkdir()
    kind.build(root)
    ran = attempts.run(["analyze", str(root), "--format", "json"])
    sound = attempts.parsed(ran.stdout)
    assert attempts.wrong_answer(ran, "result", sound, False, wrong) == "0 TASKS GONE, not 1, after nothing"
    told = attempts.Truth("nothing", gone=0, told=3)
    assert attempts.wrong_answer(ran, "result", sound, False, told) == "0 ROWS TOLD, not 3, after nothing"
    short = {**sound, "devices": [{**sound["devices"][0], "partition": {"span_ns": 1}}]}
    right = attempts.Truth("nothing", gone=0, told=0)
    assert attempts.wrong_answer(ran, "result", short, False, right) == "A LONGER SPAN after nothing"
    assert attempts.wrong_answer(ran, "result", sound, False, right) is None
    more = {**sound, "devices": [{"clock": {"tasks": attempts.tasks_of(sound) + 2}}]}
    assert attempts.wrong_answer(ran, "result", more, True, None) == "SILENT LOSS of 2 tasks"
    assert attempts.wrong_answer(ran, "result", more, False, None) is None


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        ((70, "", "npuperf: internal error: KeyError: 'x'\n  next: report it"), "INTERNAL KeyError: 'x'"),
        ((0, "", "Traceback (most recent call last)"), "TRACEBACK"),
        ((-11, "", ""), "CODE -11"),
        ((3, "", ""), "SILENT CODE 3"),
        ((0, "", "/x.py:1: RuntimeWarning: overflow"), "PYTHON WARNING RuntimeWarning: overflow"),
        ((3, "", "npuperf: \x1b[31m: no such file"), "CONTROL stderr U+001B"),
    ],
)
def test_a_bad_end_is_told(ran: tuple[int, str, str], words: str) -> None:
    assert complaint(*ran) == words
    assert complaint(0, "fine", "npuperf: wrote x\n") is None


@pytest.mark.parametrize(
    ("format_", "page", "words"),
    [
        ("text", "all \u202e well\n", "CONTROL text U+202E"),
        ("text", "\n", "EMPTY page"),
        (
            "markdown",
            "| a | b |\n|---|---|\n| a | b | c |\n",
            "MARKDOWN a table's rows differ in their number of cells",
        ),
        ("markdown", "```sh\nls\n", "MARKDOWN a block of code does not end"),
        ("csv", "a,b\n1\n", "CSV rows differ in their number of cells"),
        ("csv", "a,b\n-1,=cmd()\n", "CSV a formula: '=cmd()'"),
        ("csv", "a,b\n-1,x\n", None),
        ("markdown", "| a | b |\n|---|---|\n| a\\|b | c |\n", None),
    ],
)
def test_a_bad_page_is_told(format_: str, page: str, words: str | None) -> None:
    assert misshapen(format_, page) == words


SPLIT = {
    "span_ns": 10, "compute_ns": 4, "comm_exposed_ns": 3, "other_exposed_ns": 1, "idle_ns": 2, "host_wait_ns": 2,
    "launch_latency_ns": 0, "dependency_wait_ns": 0, "unattributed_ns": 0, "comm_transfer_ns": 3, "comm_wait_ns": 0,
    "comm_unknown_ns": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (SPLIT, []),
        ({**SPLIT, "compute_ns": 5}, ["span_ns is not the sum of its parts"]),
        (
            {**SPLIT, "compute_ns": 6, "idle_ns": 0, "host_wait_ns": 2, "dependency_wait_ns": -2},
            ["negative part of a span"],
        ),
        ({"total_ns": -1}, ["negative total_ns"]),
        (
            {"cores": 2, "kernel_ns": 5, "occupied_core_ns": 3, "idle_core_ns": 6},
            ["core time is neither occupied nor idle"],
        ),
        ({"blame": [{"ns": 1}], "dependencies": [], "partition": SPLIT}, ["blame do not add up to host_wait_ns"]),
    ],
)
def test_a_wrong_sum_is_told(part: dict[str, Any], words: list[str]) -> None:
    assert list(untrue(part)) == words


#: Of 10 ns of a device 7 are judged: 3 lie before, of which 1 was idle; then 2 ns of the host after its last task.
AROUND = {
    "partition": SPLIT,
    "phases": [],
    "steps": [
        {"start_ns": 0, "whole": False, "partition": {"span_ns": 3}},
        {"start_ns": 3, "whole": True, "partition": {"span_ns": 4}},
        {"start_ns": 7, "whole": True, "partition": {"span_ns": 5}},
    ],
    "judged": {
        "start_ns": 3, "before_ns": 3, "after_ns": 0, "host_before_ns": 0, "host_after_ns": 2,
        "partition": {**SPLIT, "span_ns": 9, "compute_ns": 2, "idle_ns": 3, "host_wait_ns": 3},
    },
}  # fmt: skip
NOT_WHOLE = "judged steps, and what is before and after, are not the whole and the host's part around it"
BOTH = "an end of what is judged is both within the device's span and beyond it"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"before_ns": 2}, [NOT_WHOLE]),
        ({"host_after_ns": 1}, [NOT_WHOLE]),
        ({"after_ns": 1, "host_after_ns": 3}, [BOTH]),
        ({"before_ns": 5, "host_after_ns": 4}, ["the host's part around the device's span is not idle"]),
        ({"before_ns": 0, "host_before_ns": -3}, ["compute_ns of what is judged is not that of the whole, less what"]),
        ({"start_ns": 4}, ["the whole steps are not what is judged"]),
    ],
)
def test_a_window_that_is_not_what_it_says_is_told(change: dict[str, int], words: list[str]) -> None:
    found = [*untrue({**AROUND, "judged": {**AROUND["judged"], **change}})]
    assert len(found) == len(words) and all(f.startswith(w) for f, w in zip(found, words, strict=True)), found


def test_a_document_against_its_schema_is_told() -> None:
    assert str(false_in({"schema_version": "2.0"}, "result")).startswith("SCHEMA $ ")


def test_hangs_and_crashes_are_told_and_outlived(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "room", patience=0)
    assert worker.attempt("bare_table/1")[1] == "HANG for 0 s"
    worker.patience = 60
    worker._process.kill()
    assert worker.attempt("bare_table/1")[1] == "CRASH with -9"
    damage, _, _ = worker.attempt("bare_table/1")
    assert damage.startswith("kernel_details.csv")
    worker.end()


# -- What is asked of pages and traces would tell what it is to tell.

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "micro_batch_ascend_pt"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looks") / "pages"
    folder.mkdir()
    there = {"--html": "page.html", "--trace": "overlay.json", "--trace-full": "full.json.gz"}
    options = [word for option, name in there.items() for word in (option, str(folder / name))]
    assert attempts.run(["analyze", str(SAMPLE), *options]).code == 0
    return folder


def test_sound_files_are_fine(written: Path) -> None:
    assert len([*written.iterdir()]) == 3
    assert wrong_files(written, 0) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda page: page.replace("</main>", "<img src=x></main>"), "PAGE with <img>"),
        (lambda page: page.replace("<main ", "<main onclick=alert(1) "), "PAGE with <main onclick>"),
        (lambda page: page.replace("</main>", "<a href='http://x'>x</a></main>"), "PAGE with a way out: http://x"),
        (lambda page: page.replace("</main>", "<!-- x --></main>"), "PAGE with a comment"),
        (lambda page: page.replace("</main>", "<rect width=nan /></main>"), "PAGE with width=nan"),
        (lambda page: page.replace("</main>", "<p id=report></main>"), "PAGE with an id twice"),
        (lambda page: page.replace("</main>", "<script>x</script></main>"), "PAGE with 2 scripts"),
        (lambda page: page.replace('"use strict"', '"use sloppy"'), "PAGE with a script or style that its policy"),
        (lambda page: page.replace("</main>", "\x1b</main>"), "CONTROL PAGE U+001B"),
        (lambda page: page[:-100], "PAGE half-written"),
        (lambda page: page.replace("</main>", "x" * 2_000_000), "PAGE of 2"),
        (lambda page: page.replace('npuperf-data">H4sI', 'npuperf-data">AAAA'), "PAGE with data that cannot"),
    ],
)
def test_a_wrong_page_is_told(written: Path, tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    sound = (written / "page.html").read_text("utf-8")
    changed = change(sound)
    assert changed != sound
    path = tmp_path / "page.html"
    path.write_text(changed, "utf-8")
    assert str(wrong_page(path)).startswith(words)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-100],
        lambda text: text.replace('"dur":', '"dur":NaN,"d":', 1),
        lambda text: text.replace('"ph":"X"', '"ph":"B"', 1),
        lambda text: text.replace("thread_name", "thread_title", 1),
        lambda text: text.replace('"dur":', '"dur":1234'),
    ],
)
@pytest.mark.parametrize("name", ["overlay.json", "full.json.gz"])
def test_a_wrong_trace_is_told(written: Path, tmp_path: Path, name: str, change: Callable[[str], str]) -> None:
    data = (written / name).read_bytes()
    sound = (gzip.decompress(data) if name.endswith("gz") else data).decode()
    changed = change(sound)
    assert changed != sound
    path = tmp_path / name
    path.write_bytes(gzip.compress(changed.encode()) if name.endswith("gz") else changed.encode())
    assert str(wrong_trace(path, overlay="overlay" in name)).startswith(f"TRACE {name}")


def test_what_is_left_behind_is_told(tmp_path: Path) -> None:
    (tmp_path / "tmp1234").touch()
    assert wrong_files(tmp_path, 0) == "LEFT BEHIND tmp1234"
    (tmp_path / "tmp1234").rename(tmp_path / "page.html")
    assert wrong_files(tmp_path, 5) == "WRITTEN page.html with 5"

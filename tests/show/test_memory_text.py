"""What the screen says of memory: once, whole, and of equal devices that they are equal."""

from __future__ import annotations

from pathlib import Path

from build import analyze_path
from conftest import ROOT, run_cli
from memory_plan import MIB, Training
from memory_snapshot import Allocator, dump
from msgspec.structs import replace

from npuperf.model.result import Device
from npuperf.show.memory_text import memory_lines
from npuperf.show.words import thresholds_line

SAMPLE = ROOT / "samples" / "memory_ascend_pt"


def screen_of(*options: str, columns: int = 80) -> str:
    return run_cli(["analyze", str(SAMPLE), "--no-cache", *options], columns=columns).stdout


def test_a_term_of_nothing_is_left_out_and_a_leak_is_told_once() -> None:
    screen = screen_of()
    assert "0.000 MiB of that given back" not in screen
    assert screen.count("every step keeps") == 1 and "peaks of the steps: 2684.000 MiB (step 1) to 3008" in screen


def test_groups_of_one_line_of_code_are_told_apart() -> None:
    rows = [line for line in screen_of().splitlines() if line.startswith("  activation?  aten::mm")]
    assert len(rows) == 2 and len(set(rows)) == 2


def test_what_a_group_is_made_of_and_its_size_have_room_on_any_screen() -> None:
    heads = [line.split() for line in screen_of(columns=60).splitlines() if line.split()[:1] == ["class"]]
    assert heads == [["class", "operator", "MiB", "where"]]


def test_only_classes_that_are_inferred_have_a_question_mark() -> None:
    cells = [line.split()[0] for line in screen_of().splitlines() if "  aten::" in line and line.startswith("  ")]
    assert {"temporary?", "lasting", "activation?"} <= {*cells} and not {"temporary", "lasting?"} & {*cells}


def test_the_answer_about_memory_is_whole_and_no_part_of_a_share_of_time() -> None:
    screen = screen_of("--what-if", "recompute:forward", "--what-if", "hccl_buffer=100")
    _, _, said = screen.split("\n\n")[0].partition("what if  ")  # right below the verdict
    assert "…" not in said
    words = " ".join(said.split())
    assert "recompute:forward: peak 3008.000 MiB → 2720.000–2912.000 MiB; each stretch" in words
    assert "hccl_buffer=100: communicators are not recorded: record with npuperf profile --level 1" in words
    assert screen.count("recompute:forward") == 1  # and not in the table of shares of time
    table = screen_of("--what-if", "recompute:forward", "--format", "markdown").split("## what if")[1]
    assert "each stretch of a part is computed anew" in table.split("## ")[0]


def test_devices_of_one_peak_are_not_ranked(tmp_path: Path) -> None:
    result = analyze_path(Training().write(tmp_path), no_cache=True)
    (device,) = result.devices
    alike = replace(result, devices=[device, replace(device, rank=1)])
    assert str(memory_lines(alike)[-1].content) == "2 devices with memory have the same peak"
    assert device.memory is not None and device.memory.peak_bytes is not None
    lower: Device = replace(device, rank=1, memory=replace(device.memory, peak_bytes=device.memory.peak_bytes - MIB))
    assert "lowest of 2 devices" in str(memory_lines(replace(result, devices=[device, lower]))[-1].content)


def test_thresholds_of_memory_are_named_where_memory_is(tmp_path: Path) -> None:
    for name, memory in (("with", True), ("without", False)):
        result = analyze_path(Training().write(tmp_path / name, memory=memory), no_cache=True)
        told = str(thresholds_line(result))
        assert ("leak_steps" in told) == memory and "short_peak_share" in result.thresholds


# -- A snapshot alone: memory, and nothing about time.


def snapshot_of(folder: Path) -> Path:
    """40 blocks of one line, every other one given back, then one that is more than the device has."""
    allocator = Allocator(device_bytes=900 * MIB)
    live = list[int]()
    for i in range(40):
        live.append(allocator.malloc(17 * MIB, 7, ("/home/u/train.py", 41, "forward")))
        if i % 2:
            allocator.free(live.pop(-2))
    assert allocator.malloc(700 * MIB, 7, ("/home/u/train.py", 52, "attention")) == -1
    return dump(allocator.snapshot(), folder / "snapshot.pickle")


def analyzed(path: Path, *options: str) -> str:
    return run_cli(["analyze", str(path), "--no-cache", *options], columns=100).stdout


def test_a_snapshot_says_nothing_of_time_and_counts_events(tmp_path: Path) -> None:
    path = snapshot_of(tmp_path)
    screen = analyzed(path)
    assert "where the time goes" not in screen and "0 ns" not in screen and "no device task" not in screen
    assert screen.count("train.py:41 forward") == 2, "one group of blocks, and what holds most"
    told = analyzed(path, "--format", "markdown").split("\n## ")[0]
    assert "peak" in told and "0 ns" not in told and "no device task" not in told
    for table, first in (("memory_blocks", "asked for by event"), ("memory_curve", "from event")):
        shown = analyzed(path, "--table", table)
        assert first in " ".join(shown.split()) and "(ms)" not in shown
    assert "PyTorch had nothing cached" in " ".join(screen.split())


def test_what_ended_the_program_is_the_first_finding(tmp_path: Path) -> None:
    Training(steps=5, leak=8 * MIB, spike=300 * MIB).write(tmp_path)
    snapshot_of(tmp_path)
    found = [f for f in analyze_path(tmp_path, no_cache=True).findings if f.severity == "high"]
    assert found[0].rule == "out_of_memory" and {"memory_leak", "short_peak"} <= {f.rule for f in found[1:]}
    kinds = [f.gain_bytes is not None for f in found[1:]]
    assert kinds == sorted(kinds, reverse=True), "bytes are not compared with nanoseconds"

"""Shapes that depend on values, in eager mode and in graphs, and what a recording tells of the tiling cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import H, K, ascend_pt
from msgspec.structs import replace
from small_programs import analyzed, answer, assert_complete, problem, starved, step_length

#: Groups of ten kernels of 10 µs each; the host waits for the tenth before it launches the next group.
GROUP, GAP = 100_000, 24_000


def groups(count: int = 20) -> tuple[list[K], list[tuple[int, int]]]:
    """Kernels of ``count`` groups, and the waits between them: from 40 µs before a group's end to 6 µs after it.

    The next launch returns 10 µs after the wait, its kernel starts 8 µs later: the device idles for 24 µs.
    """
    kernels, waits = [], []
    for g in range(count):
        begin = g * (GROUP + GAP)
        kernels += [K(begin + i * 10_000, 10_000, f"aclnnAdd_{g}_{i}_Add", "Add", step=11 + 2 * g // count,
                      launch=begin - 10_000 + i * 3_000, launch_dur=2_000) for i in range(10)]  # fmt: skip
        waits.append((begin + 60_000, 46_000))
    return kernels, waits


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("aten::nonzero", "nonzero_static"),
        ("aten::masked_select", "torch.where"),
        ("aten::index", "x[mask]"),
        ("aten::repeat_interleave", "output_size"),
        ("aten::_unique2", "fixed output size"),
    ],
)
def test_operators_whose_size_depends_on_values(op: str, advice: str, tmp_path: Path) -> None:
    """Each of the 20 waits but the last, after which nothing comes, costs 24 µs of idle time."""
    kernels, waits = groups()
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in waits]
    host += [H(op, start - 1_000, dur + 2_000, python=True) for start, dur in waits]
    host.append(H("train.py(41): step", -100_000, 3_000_000, python=True))
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    found = problem(result, "value_dependent")
    assert op in str(found.title) and "train.py:41 step" in str(found.title)
    assert advice in str(found.next)
    assert found.gain_ns_per_step == (19 * GAP // 2, 19 * GAP // 2)
    assert answer(result, "sync_points").status == "ok"  # said once


def test_a_wait_for_one_value_is_no_shape(tmp_path: Path) -> None:
    kernels, waits = groups()
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in waits]
    host += [H("aten::item", start - 1_000, dur + 2_000, python=True) for start, dur in waits]
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    assert answer(result, "sync_points").status == "problem"
    assert answer(result, "value_dependent").status != "problem"


def dynamic(kernels: list[K]) -> list[K]:
    """The same as nodes of a graph; the first of each group is a Tile."""
    return [
        replace(k, name=f"Node_{i % 10}", state="dynamic", type="Tile" if i % 10 == 0 else "Add")
        for i, k in enumerate(kernels)
    ]


@pytest.mark.parametrize("torch_events", [True, False])
def test_a_graph_that_reads_values(torch_events: bool, tmp_path: Path) -> None:
    """The waits lie within the graph's run; after each a Tile is launched."""
    kernels, waits = groups()
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in waits]
    if torch_events:
        host.append(H("TorchNpuGraphBase::Run", -50_000, 21 * (GROUP + GAP), python=True))
    else:
        host.append(H("Model@ModelExecute", -50_000, 21 * (GROUP + GAP)))
    found = problem(ascend_pt(tmp_path, dynamic(kernels), host=host), "value_dependent")
    assert "the graph waits for values" in str(found.title) and "Tile" in str(found.title)
    assert "8 elements" in str(found.next)
    assert found.gain_ns_per_step == (19 * GAP // 2, 19 * GAP // 2)


def test_a_static_graph_that_reads_values_has_advice(tmp_path: Path) -> None:
    """What GE keeps on the host is for graphs that the host schedules."""
    kernels, waits = groups()
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in waits]
    host.append(H("TorchNpuGraphBase::Run", -50_000, 21 * (GROUP + GAP), python=True))
    static = [replace(k, state="static") for k in dynamic(kernels)]
    found = answer(analyzed(ascend_pt(tmp_path, static, host=host)), "value_dependent")
    assert_complete(found, step_length(analyzed(tmp_path)))
    assert "fixed output size" in str(found.next)
    assert ["8 elements" in str(e.advice) for e in found.excluded] == [True]


def test_waits_outside_of_a_graph_are_not_the_graphs(tmp_path: Path) -> None:
    kernels, waits = groups()
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in waits]
    host += [H("Model@ModelExecute", start - 80_000, 70_000) for start, _ in waits]
    result = analyzed(ascend_pt(tmp_path, dynamic(kernels), host=host))
    assert answer(result, "value_dependent").status != "problem"
    assert answer(result, "sync_points").status == "problem"


# --- tiling_cache --------------------------------------------------------------------------------------------------


def tiled(count: int, shapes: int) -> tuple[list[K], list[H]]:
    """A node of a dynamic graph, launched ``count`` times with ``shapes`` different shapes in turn; tiling is slow."""
    kernels = [replace(k, name="Add_17", state="dynamic", shapes=f"{i % shapes + 1},64") for i, k in
               enumerate(starved(count))]  # fmt: skip
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 40_000, 38_000) for i in range(count)]
    return kernels, [*host, H("Model@ModelExecute", -90_000, 50_000)]


@pytest.mark.parametrize(
    ("count", "shapes", "status"),
    [
        (300, 200, "problem"),
        (300, 100, "ok"),  # more launches than entries, and all shapes fit
        (100, 2, "ok"),  # 98 of 100 launches have a shape that was there before
        (100, 60, "cannot_tell"),  # 60 entries are in use; how many there will be does not show
        (3, 3, "cannot_tell"),
        (100, 100, "cannot_tell"),
    ],
)
def test_a_cache_is_ok_where_its_entries_were_seen_to_do(count: int, shapes: int, status: str, tmp_path: Path) -> None:
    kernels, host = tiled(count, shapes)
    found = answer(ascend_pt(tmp_path, kernels, host=host), "tiling_cache")
    assert found.status == status
    if status == "cannot_tell":
        assert found.evidence == {"most_launches": count, "most_shapes": shapes}
        assert "--active" in str(found.needs) and "--shapes" in str(found.needs)

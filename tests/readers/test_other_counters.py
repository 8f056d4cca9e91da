"""Counters of a second recording: every kernel of a planted pair gets its own, or none; what is no pair is refused."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from build import HEADER, K, analyze_path, row
from conftest import run_cli
from msgspec import Struct

from npuperf.base.messages import text
from npuperf.model.labels import Labels
from npuperf.model.tasks import Tasks
from npuperf.readers.other_counters import Joined, join_counters

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msprof-analyze"


class Kernel(Struct, frozen=True):
    """One kernel of a program; ``identity`` is what its counter shows, so that a wrong partner is seen."""

    identity: int
    kind: str
    stream: int = 2
    step: int = -1


def program(layers: int = 6, step: int = -1, first: int = 0, streams: tuple[int, int] = (2, 7)) -> list[Kernel]:
    """A model of equal layers, of which nothing follows itself, on two streams."""
    layer = ["Norm", "Project", "Rope", "Attention", "Project", "Add", "Norm", "Up", "Glu", "Down", "Add"]
    kinds = ["Embedding", *(layer * layers), "Norm", "Head", "Loss"]
    return [Kernel(first + at, kind, streams[at % 4 == 3], step) for at, kind in enumerate(kinds)]


def recorded(kernels: Sequence[Kernel], *counters: str, shapes: str = "8,8") -> Tasks:
    """Tasks of a recording in the order given; without ``counters`` none."""
    start = np.arange(len(kernels), dtype=np.int64) * 10
    return Tasks.build(
        start, start + 7, np.zeros(len(kernels), np.uint8),
        stream=np.array([k.stream for k in kernels], np.int64), step=np.array([k.step for k in kernels], np.int64),
        type=Labels.of([k.kind for k in kernels]), core=Labels.of(["AI_CORE"] * len(kernels)),
        shapes=Labels.of([shapes] * len(kernels)),
        pmu={name: np.array([k.identity for k in kernels], np.float32) for name in counters},
    )  # fmt: skip


def joined(main: Sequence[Kernel], other: Sequence[Kernel]) -> tuple[dict[int, int | None], Joined]:
    """What each kernel of the main recording got, by its identity: that of its partner, None: nothing."""
    tasks = recorded(main, "aic_mac_ratio", "aic_total_cycles")
    found = join_counters(tasks, recorded(other, "aic_l1_read_bw", "aic_total_cycles", "aicore_time"), "other")
    assert found.tasks.pmu["aic_total_cycles"] is tasks.pmu["aic_total_cycles"]
    assert "aicore_time" not in found.tasks.pmu, "times are of one run"
    got = found.tasks.pmu.get("aic_l1_read_bw", np.full(len(main), np.nan)).tolist()
    return {k.identity: None if math.isnan(v) else int(v) for k, v in zip(main, got, strict=True)}, found


def test_every_kernel_gets_its_own() -> None:
    got, found = joined(program(), program())
    assert got == {identity: identity for identity in got}
    assert found.refused is None and found.said is not None
    assert text(found.said) == "counters of other were joined to 70 of 70 kernels: aic_l1_read_bw"


@pytest.mark.parametrize("gone", [0, 1, 20, 35, 68, 69])
def test_one_kernel_is_missing(gone: int) -> None:
    """Of its equals, which every layer has, none takes its place."""
    less = [k for k in program() if k.identity != gone]
    got, _ = joined(program(), less)
    assert got == {identity: None if identity == gone else identity for identity in got}
    got, _ = joined(less, program())
    assert got == {identity: identity for identity in got}


def test_two_kernels_changed_places() -> None:
    """Of the two, one may be told; the others all have their own."""
    there = program(streams=(2, 2))
    there[30], there[31] = there[31], there[30]
    got, _ = joined(program(streams=(2, 2)), there)
    assert all(mine == identity for identity, mine in got.items() if identity not in (30, 31))
    assert all(got[identity] in (None, identity) for identity in (30, 31))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_out_at_random(seed: int) -> None:
    """No kernel ever gets another one's counters, although every layer has its equal."""
    chance = random.Random(seed)
    main, other = program(30), program(30)
    here, there = (set(chance.sample(range(len(main)), 3)) for _ in range(2))
    got, _ = joined([k for k in main if k.identity not in here], [k for k in other if k.identity not in there])
    assert not [identity for identity, mine in got.items() if mine not in (None, identity)]
    assert sum(mine is not None for mine in got.values()) > 0.9 * len(got)


@pytest.mark.parametrize("seed", range(40))
def test_as_little_is_left_out_as_can_be(seed: int) -> None:
    """The longest common subsequence by its table, of sequences that have little or much in common."""
    chance = random.Random(seed)
    letters = chance.choice((2, 4, 30))
    a, b = ([chance.randrange(letters) for _ in range(chance.randrange(45))] for _ in range(2))
    if chance.random() < 0.5:
        b = [x for x in a if chance.random() < 0.9]
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    here = [Kernel(at, str(x)) for at, x in enumerate(a)]
    there = [Kernel(at, str(x)) for at, x in enumerate(b)]
    got, found = joined(here, there)
    pairs = [(at, to) for at, to in got.items() if to is not None]
    assert all(a[at] == b[to] for at, to in pairs)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs)), "in order"
    longest, edits = table[-1][-1], len(a) + len(b) - 2 * table[-1][-1]
    if found.refused is None and edits <= 64:
        assert len(pairs) == longest
    else:
        assert edits > 64 or longest < 0.5 * min(len(a), len(b)) or not longest


def test_streams_of_other_numbers_and_other_orders() -> None:
    """Streams that run beside each other may begin in any order among themselves."""
    there = program(streams=(31, 4))
    late = [k for k in there if k.stream == 31] + [k for k in there if k.stream == 4]
    for other in (there, late):
        got, _ = joined(program(), other)
        assert got == {identity: identity for identity in got}


def test_steps_are_paired_by_their_order() -> None:
    """The other recording has steps of other numbers and fewer of them, and kernels before them."""
    main = [k for at in range(3) for k in program(step=10 + at, first=1000 * at)]
    other = [Kernel(5000 + at, "Copy") for at in range(30)]
    other += [k for at in range(2) for k in program(step=77 + at, first=1000 * at)]
    got, _ = joined(main, other)
    assert got == {identity: identity if identity < 2000 else None for identity in got}


def test_what_is_no_pair_is_refused() -> None:
    main = recorded(program(), "aic_mac_ratio")
    same = join_counters(main, recorded(program(), "aic_mac_ratio", "aicore_time"), "other")
    assert same.refused is not None and "the same hardware counters" in text(same.refused)
    none = join_counters(main, recorded(program()), "other")
    assert none.refused is not None and "no hardware counters" in text(none.refused)
    for other in (
        recorded([Kernel(at, f"Other{at % 3}") for at in range(70)], "aic_l1_read_bw"),
        recorded(program(), "aic_l1_read_bw", shapes="16,8"),
        recorded([], "aic_l1_read_bw"),
    ):
        found = join_counters(main, other, "other")
        assert found.refused is not None and "not a recording of the same program" in text(found.refused)
        assert found.tasks is main


def test_cube_shares_by_types_stay_those_of_the_run() -> None:
    """What multiplied is told by types here: the other run's whole must not take its place."""
    main = recorded(program(), "aic_mac_fp16_ratio", "aic_mac_int8_ratio")
    found = join_counters(main, recorded(program(), "aic_mac_ratio", "aic_mte2_ratio"), "other")
    assert found.tasks.pmu.keys() == {"aic_mac_fp16_ratio", "aic_mac_int8_ratio", "aic_mte2_ratio"}


def write(folder: Path, counter: str, types: Sequence[str]) -> Path:
    """A kernel table with one counter that nobody else has, the same for every kernel of a type."""
    kernels = [K(at * 10_000, 8_000, f"k{at}", type_, "AI_CORE", shapes="8,8") for at, type_ in enumerate(types)]
    lines = [f"{HEADER},{counter}", *(f"{row(k)},0.{1 + sorted(set(types)).index(k.type)}" for k in kernels)]
    folder.mkdir()
    (folder / "kernel_details.csv").write_text("\r\n".join(lines) + "\r\n", newline="")
    return folder


def test_a_report_has_the_counters_of_both(tmp_path: Path) -> None:
    types = ["MatMulV2", "Add", "Softmax"] * 9
    main = write(tmp_path / "pipe", "aic_mac_ratio", types)
    other = write(tmp_path / "l2", "aic_write_cache_hit", types[:-1])
    found = analyze_path(main, other=other, no_cache=True)
    means = {o.type: o.pmu.means for o in found.operators if o.pmu is not None}
    assert means["Softmax"] == {"aic_mac_ratio": pytest.approx(0.3), "aic_write_cache_hit": pytest.approx(0.3)}
    said = [text(w) for w in found.input.warnings]
    assert any("joined to 26 of 27 kernels: aic_write_cache_hit" in one for one in said), said
    strange = write(tmp_path / "strange", "aic_write_cache_hit", ["Cast", "Mul"] * 9)
    for wrong in (main, strange):
        done = run_cli(["analyze", str(main), "--with", str(wrong)])
        assert done.returncode == 2 and done.stderr.startswith("npuperf: --with"), done.stderr
    assert run_cli(["analyze", str(main), "--with", str(tmp_path / "nothing")]).returncode == 3


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared recordings are not here")
def test_two_real_recordings_of_other_programs() -> None:
    """Their tables have few kernels in common, in whichever order, counted from the files."""
    pair = [DATA / name / "kernel_details.csv" for name in ("pipe_utilization", "arithmetic_utilization")]
    kinds = []
    for path in pair:
        with path.open(encoding="utf-8") as file:
            kinds.append(Counter((r["Type"], r["Accelerator Core"], r["Input Shapes"]) for r in csv.DictReader(file)))
    assert (kinds[0] & kinds[1]).total() < 0.5 * kinds[0].total()
    done = run_cli(["analyze", str(pair[0].parent), "--with", str(pair[1].parent)])
    assert done.returncode == 2 and "not a recording of the same program" in done.stderr
    back = run_cli(["analyze", str(pair[1].parent), "--with", str(pair[0].parent)])
    assert back.returncode == 2


CLUSTER = DATA.parent / "msinsight" / "cluster4" / "rank_0_ascend_pt"


@pytest.mark.skipif(not CLUSTER.is_dir(), reason="the shared recordings are not here")
def test_a_real_recording_with_one_of_its_counters_under_another_name(tmp_path: Path) -> None:
    """Five kernels are taken out of the second table; all others find themselves, as their counter says."""
    (table,) = CLUSTER.rglob("kernel_details.csv")
    with table.open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    counter = head.index("aic_mte2_ratio")
    own = [at for at, name in enumerate(head) if not name.startswith(("aic_", "aiv_", "aicore_", "cube_"))]
    gone = random.Random(1).sample([at for at, r in enumerate(rows) if r[head.index("Type")][:5] != "hcom_"], 5)
    with (tmp_path / "kernel_details.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(head[at] for at in own), "aic_main_mem_read_bw(GB/s)"])
        writer.writerows([*(r[at] for at in own), r[counter]] for at, r in enumerate(rows) if at not in gone)
    found = analyze_path(CLUSTER, other=tmp_path, no_cache=True)
    said = [text(w) for w in found.input.warnings if "joined" in text(w)]
    kernels = sum(r[head.index("Type")][:5] != "hcom_" for r in rows)
    assert len(said) == 1 and f"to {kernels - 5} of {kernels} kernels: aic_main_mem_read_bw" in said[0]
    for operator in found.operators:
        means = {} if operator.pmu is None else operator.pmu.means
        if operator.type in ("MatMulV2", "FlashAttentionScore", "FlashAttentionScoreGrad"):
            whole = not any(rows[at][head.index("Type")] == operator.type for at in gone)
            assert not whole or means["aic_main_mem_read_bw"] == pytest.approx(means["aic_mte2_ratio"], rel=1e-9)

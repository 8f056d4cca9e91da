"""Heat maps as they are packed: codes, ends of scales, groups, and what is said of them."""

from __future__ import annotations

import base64

import pytest
from clusters import device_of, pipeline_job, result_of
from msgspec.structs import replace
from pictures import random_picture

from npuperf.base.messages import say
from npuperf.model.job_result import Cluster, Collective, Link
from npuperf.model.result import Device, Partition, Result, Step
from npuperf.show.charts import charts_of
from npuperf.show.matrix import Layer, Matrix, grouped, layer, mean_of_known, shown
from npuperf.show.svg import Chart


def made(values: list[list[float | None]]) -> Layer:
    rows, columns = ([f"{what} {i}" for i in range(n)] for what, n in (("r", len(values)), ("c", len(values[0]))))
    found = layer(say("time"), "ns", values, rows, columns)
    assert found is not None
    return found


def test_codes_keep_the_ends_and_tell_nothing_from_missing() -> None:
    """Of 10 to 263 every step is one code: 10 is 2, 137 in the middle is 129, 263 is 255."""
    found = made([[None, 0, 10], [137, 263, 11]])
    assert list(found.codes) == [0, 1, 2, 129, 255, 3]
    assert (found.least, found.most) == (10, 263)
    assert found.texts == ("", "0 ns", "10 ns", "137 ns", "263 ns", "11 ns")
    assert str(found.said) == "time: least 10 ns (r 0, c 2), most 263 ns (r 1, c 1); nothing in 1 more"
    assert str(made([[None, 7]]).said) == "time: 7 ns (r 0, c 1)"  # a least and a most would be the same


def test_small_differences_look_small() -> None:
    """A scale reaches 5 % to either side of its middle; what differs by no more than 1 % from there is grey.

    Of 99 and 103 the middle is 101, so it goes from 95.95 to 106.05: 3.05 of 10.1 are 76 of 253 codes, 7.05 are 177.
    """
    assert list(made([[5, 5], [0, None]]).codes) == [128, 128, 1, 0]
    found = made([[99, 103]])
    assert list(found.codes) == [2 + 76, 2 + 177] and not found.alike
    assert (found.least, found.most) == pytest.approx((95.95, 106.05))
    assert made([[100, 101, None, 0]]).alike and not made([[100, 103]]).alike and not made([[7]]).alike


def test_of_nothing_there_is_no_layer() -> None:
    assert layer(say("time"), "ns", [[0, None]], ["r"], ["a", "b"]) is None


def test_large_ones_have_no_texts() -> None:
    assert made([[float(i) for i in range(40)] for _ in range(40)]).texts == ()


@pytest.mark.parametrize(
    ("count", "most", "bounds"),
    [
        (5, 5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (5, 2, [(0, 3), (3, 5)]),
        (6, 4, [(0, 2), (2, 4), (4, 6)]),
        (0, 4, []),
    ],
)
def test_groups_are_of_one_size_and_leave_nobody_out(count: int, most: int, bounds: list[tuple[int, int]]) -> None:
    assert list(grouped(count, most).bounds) == bounds


def test_labels_of_groups() -> None:
    assert grouped(5, 2).labels(["0", "1", "2", "3", "7"]) == ("0–2", "3–7")
    assert grouped(3, 2).labels(["0", "1", "2"]) == ("0–1", "2")


def test_means_are_of_what_is_known() -> None:
    assert mean_of_known([None, 2, 4]) == 3 and mean_of_known([None]) is None


def test_units() -> None:
    assert (shown(1_500_000, "ns"), shown(0.25, "share"), shown(12.5, "gb_s")) == ("1.50 ms", "25.0 %", "12.5 GB/s")


# --- those of a job ---------------------------------------------------------------------------------------------------


def split(span: int, wait: int = 0) -> Partition:
    return Partition(
        span_ns=span, compute_ns=span - wait, comm_exposed_ns=wait, other_exposed_ns=0, idle_ns=0, host_wait_ns=0,
        launch_latency_ns=0, dependency_wait_ns=0, unattributed_ns=0, comm_wait_ns=wait,
    )  # fmt: skip


def with_steps(device: Device, steps: dict[int, tuple[int, int]]) -> Device:
    """A device with steps by number: (length, waiting)."""
    made_steps = [
        Step(step=n, start_ns=1000 * n, partition=split(*times), verdict=device.verdict) for n, times in steps.items()
    ]
    return replace(device, steps=made_steps)


def job(*steps: dict[int, tuple[int, int]], **parts: object) -> Result:
    """A job of some ranks with these steps."""
    cluster = replace(pipeline_job(), ranks=pipeline_job().ranks[: len(steps)], **parts)
    devices = [with_steps(device_of(r, 1), s) for r, s in zip(cluster.ranks, steps, strict=True)]
    return replace(result_of(cluster), devices=devices)


def found(result: Result, name: str) -> Chart:
    (one,) = [c for c in charts_of(result) if c.id == name]
    return one


def matrix(result: Result, name: str) -> Matrix:
    drawn = found(result, name).matrix
    assert drawn is not None
    return drawn


def test_every_rank_in_every_step() -> None:
    """Rank 1 has no step 3; nobody waits for the host, so that there is no layer of it."""
    drawn = matrix(job({2: (100, 0), 3: (200, 50)}, {2: (300, 30)}), "ranks")
    assert (str(drawn.title), drawn.rows, drawn.columns) == ("ranks and steps", ("0", "1"), ("2", "3"))
    assert [str(one.name) for one in drawn.layers] == ["step time", "waiting for other ranks", "compute"]
    assert drawn.layers[0].texts == ("100 ns", "200 ns", "300 ns", "")
    assert drawn.layers[1].texts == ("0 ns", "50 ns", "30 ns", "")
    assert [list(one.codes)[3] for one in drawn.layers] == [0, 0, 0]


def test_devices_without_ranks_are_not_called_ranks() -> None:
    known = job({2: (100, 0), 3: (200, 0)}, {2: (300, 0), 3: (400, 0)})
    devices = [replace(d, rank=None, device=n) for n, d in enumerate(known.devices)]
    drawn = found(replace(known, devices=devices), "ranks")
    assert drawn.matrix is not None and str(drawn.matrix.row) == "device"
    assert str(drawn.caption).startswith("2 devices over 2 steps")
    assert not any("rank" in str(said) for said in (drawn.title, drawn.matrix.title))


def test_steps_of_a_long_run_are_grouped_and_it_says_so() -> None:
    """250 steps are 84 columns of 3: of 3, 4, 5 the mean is 4."""
    drawn = matrix(job(*[{n: (n + 1, 0) for n in range(2, 252)}] * 2), "ranks")
    assert len(drawn.columns) == 84 and drawn.columns[:2] == ("2–4", "5–7") and drawn.columns[-1] == "251"
    assert drawn.layers[0].least == 4 and drawn.layers[0].most == 252
    assert "the mean of 3 steps" in str(found(job(*[{n: (n + 1, 0) for n in range(2, 252)}] * 2), "ranks").caption)


def test_cells_lead_to_the_timeline_of_their_rank() -> None:
    result = job({2: (100, 0), 3: (200, 0)}, {2: (300, 0), 3: (400, 0)})
    second = result.devices[1]
    picture = replace(random_picture(1), rank=second.rank, device=second.device, source=second.source)
    (one,) = [c for c in charts_of(result, [picture]) if c.id == "ranks"]
    assert one.matrix is not None
    assert one.matrix.places == ((2, "0:2000:2300"), (3, "0:3000:3400"))


def link(one: int, other: int, size: int, time: int, *, slow: bool = False, transport: str = "HCCS") -> Link:
    return Link(
        ranks=(one, other), transport=transport, kind="allReduce", size_class=None, count=1, bytes=size, time_ns=time,
        gb_per_s=size / time, peers_gb_per_s=None, reference_gb_per_s=None, slow=slow, lost_ns=0,
    )  # fmt: skip


def test_links_are_means_over_all_that_went_and_slow_ones_are_marked() -> None:
    """200 bytes in 10 ns and 100 in 20 are 10 GB/s; both ways are one pair."""
    links = [link(0, 2, 200, 10), link(2, 0, 100, 20), link(2, 5, 40, 10, slow=True)]
    drawn = matrix(job({1: (1, 0)}, {1: (1, 0)}, links=links), "links")
    assert drawn.rows == drawn.columns == ("0", "2", "5")
    assert drawn.layers[0].texts == ("", "10 GB/s", "", "10 GB/s", "", "4 GB/s", "", "4 GB/s", "")
    assert drawn.marked == (5, 7)


def test_links_have_a_layer_for_every_transport() -> None:
    links = [link(0, 1, 8, 1), link(0, 1, 4, 1, transport="RDMA")]
    drawn = matrix(job({1: (1, 0)}, {1: (1, 0)}, links=links), "links")
    assert [(str(one.name), one.texts[1]) for one in drawn.layers] == [("HCCS", "8 GB/s"), ("RDMA", "4 GB/s")]


def operation(wait: list[int], last: int | None) -> Collective:
    return Collective(
        step=1, name="a", group="g", kind="dp", ranks=list(range(len(wait))), complete=True, transfer_ns=1,
        wait_ns=wait, arrival_ns=None, last=last,
    )  # fmt: skip


def test_who_waits_for_whom() -> None:
    """Rank 0 waits 7 + 5 for rank 1, which waits 3 for rank 0; of one operation nobody knows who is last."""
    operations = [operation([7, 0], 1), operation([5, 0], 1), operation([0, 3], 0), operation([9, 9], None)]
    result = job({1: (1, 0)}, {1: (1, 0)}, collectives=operations)
    drawn = matrix(result, "who-waits")
    assert drawn.layers[0].texts == ("0 ns", "12 ns", "3 ns", "0 ns")
    said = str(found(result, "who-waits").caption)
    assert "the 3 costliest" in said and "rank 1: 12 ns, by 1 rank;" in said and "of 1 more" in said


def test_packed_in_the_language_spoken_and_with_names_that_are_seen() -> None:
    drawn = matrix(job({1: (1, 0)}, {1: (1, 0)}, links=[link(0, 1, 8, 1, transport="<b>\u202eH")]), "links")
    packed = drawn.packed()
    (one,) = packed["layers"]  # type: ignore[misc]
    assert one["name"] == "<b>\\u202eH"  # as text: the script sets textContent
    assert base64.b64decode(one["codes"]) == drawn.layers[0].codes
    assert one["ends"] == ["7.6 GB/s", "8.4 GB/s"]  # 5 % to either side


def test_clusters_without_links_or_waits() -> None:
    result = job({1: (1, 0)}, {1: (1, 0)}, links=[], collectives=[])
    assert not {"links", "who-waits"} & {c.id for c in charts_of(result)}
    assert isinstance(result.cluster, Cluster)


def test_many_that_wait_share_rows() -> None:
    """300 ranks wait 1, 2, … 300 ns for rank 300: rows of 3, whose means are 2, 5, …"""
    result = job({1: (1, 0)}, {1: (1, 0)}, collectives=[operation([*range(1, 301), 0], 300)])
    drawn = matrix(result, "who-waits")
    assert (len(drawn.rows), drawn.rows[0], drawn.rows[-1]) == (100, "0–2", "297–299")
    assert drawn.layers[0].texts[:2] == ("2 ns", "5 ns")
    assert "each row is the mean of 3 ranks" in str(found(result, "who-waits").caption)

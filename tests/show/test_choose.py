"""Which devices of a job are drawn, in which order, and why."""

from __future__ import annotations

from clusters import large_job, result_of, slow_rank_job
from msgspec import structs

from npuperf.model.result import Device, Result
from npuperf.show.draw import choose


def with_spans(result: Result, spans: dict[int, int]) -> Result:
    """Give some ranks another length than the others'."""

    def changed(device: Device) -> Device:
        span = spans.get(device.rank or 0, 100)
        return structs.replace(device, partition=structs.replace(device.partition, span_ns=span))

    return structs.replace(result, devices=[changed(d) for d in result.devices])


def chosen(result: Result, limit: int) -> list[tuple[int | None, str | None]]:
    return [(device.rank, why and str(why)) for device, why in choose(result, limit)]


def test_all_are_drawn_where_they_are_not_many() -> None:
    assert chosen(result_of(slow_rank_job()), 8) == [(rank, None) for rank in range(8)]


def test_of_many_the_roots_come_first_then_extremes() -> None:
    result = with_spans(result_of(slow_rank_job()), {5: 300, 6: 20})
    assert next(root.ranks for root in slow_rank_job().roots if root.ranks) == [3]
    found = chosen(result, 7)
    assert found[0] == (3, "others wait for it")
    assert (5, "it has the longest steps") in found
    assert (6, "it has the shortest steps") in found
    assert (0, "it is the first") in found
    assert chosen(result, 2) == found[:2]


def test_of_a_thousand_ranks_no_more_are_drawn_than_allowed() -> None:
    found = chosen(result_of(large_job()), 8)
    assert 0 < len(found) <= 8
    assert len({rank for rank, _ in found}) == len(found)
    assert all(why for _, why in found)
    assert chosen(result_of(large_job()), 8) == found


def test_devices_without_kernels_are_not_drawn() -> None:
    result = result_of(slow_rank_job())
    without = structs.replace(result.devices[3], clock=structs.replace(result.devices[3].clock, tasks=0))
    devices = [without if d.rank == 3 else d for d in result.devices]
    assert [device.rank for device, _ in choose(structs.replace(result, devices=devices), 8)] == [0, 1, 2, 4, 5, 6, 7]

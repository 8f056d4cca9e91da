"""What a wait of the host for the device that only one side has costs the device."""

from __future__ import annotations

from digests import digest_of
from msgspec.structs import replace

from npuperf.against.aligned import by_new_waits
from npuperf.model.parts import Count, Digest, PartSum

ITEM = "AscendCL@aclrtSynchronizeStream in aten::item (stream)"
END = "AscendCL@aclrtSynchronizeDevice (device)"


def side(waits: dict[str | None, int], syncs: dict[str, list[int]]) -> Digest:
    """Two steps that wait for the host in ``aten::linear``, so long after each wait for the device."""
    found = digest_of(
        {},
        [100, 100],
        counts=[Count(kind="sync", key=k, count=n, where=f"metrics.py:{len(k)}") for k, n in syncs.items()],
    )
    parts = [
        PartSum(part="host_wait", key="torch_op: aten::linear", ns=ns, count=2, after=after)
        for after, ns in waits.items()
    ]
    return replace(found, parts=parts, total_ns=sum(waits.values()))


def keys(run: Digest) -> dict[str | None, int]:
    return {part.key: part.ns for part in run.parts}


def test_a_new_wait_is_named_on_both_sides_and_the_others_are_not() -> None:
    old = side({END: 30, None: 50}, {END: [1, 1]})
    new = side({END: 40, ITEM: 70, None: 50}, {END: [1, 1], ITEM: [3, 3]})
    (before,), (after,) = by_new_waits([old], [new])
    assert before == old
    assert sorted((p.key or "", p.ns) for p in after.parts) == [
        ("sync: aten::item", 70), ("torch_op: aten::linear", 40), ("torch_op: aten::linear", 50)
    ]  # fmt: skip
    assert sum(p.ns for p in after.parts) == new.total_ns
    assert {p.key: (p.where, p.count) for p in after.parts if p.after == ITEM} == {
        "sync: aten::item": (f"metrics.py:{len(ITEM)}", 6)  # three in each of two steps
    }


def test_one_that_became_more_frequent_is_held_against_itself() -> None:
    old = side({ITEM: 20, None: 5}, {ITEM: [1, 1]})
    new = side({ITEM: 60, None: 5}, {ITEM: [3, 3]})
    (before,), (after,) = by_new_waits([old], [new])
    assert keys(before) == {"sync: aten::item": 20, "torch_op: aten::linear": 5}
    assert keys(after) == {"sync: aten::item": 60, "torch_op: aten::linear": 5}


def test_whatever_the_host_did_after_a_wait_is_one_row() -> None:
    new = side({ITEM: 70}, {ITEM: [3, 3]})
    more = PartSum(part="host_wait", key="launch: Node@launch", ns=8, count=5, after=ITEM)
    _, (after,) = by_new_waits([side({}, {})], [replace(new, parts=[*new.parts, more])])
    assert [(p.key, p.ns, p.count) for p in after.parts] == [("sync: aten::item", 78, 6)]


def test_as_many_waits_in_more_steps_are_no_more() -> None:
    old = side({END: 30}, {END: [1, 1]})
    new = replace(side({END: 45}, {END: [1, 1, 1]}), span_ns=[100] * 3, steps=[0, 1, 2], windows=3)
    assert by_new_waits([old], [new]) == ([old], [new])


def test_a_call_without_an_operator_is_named_itself() -> None:
    _, (after,) = by_new_waits([side({}, {})], [side({END: 9}, {END: [1, 1]})])
    assert keys(after) == {"sync: AscendCL@aclrtSynchronizeDevice": 9}


def test_where_a_side_does_not_tell_its_waits_nothing_is_named() -> None:
    old = replace(side({None: 30}, {}), uncounted=["sync"])
    new = side({ITEM: 40}, {ITEM: [1, 1]})
    assert by_new_waits([old], [new]) == ([old], [new])

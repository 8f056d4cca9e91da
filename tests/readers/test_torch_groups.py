"""Process groups of PyTorch's own traces: what each kernel of NCCL is, and in which group, however that is told."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_hta import REAL
from test_kineto import Event, object_, slice_

from npuperf.model.communication import Communication
from npuperf.readers.find import find
from npuperf.readers.log import ReadLog
from npuperf.readers.source import read_source
from npuperf.readers.timeline import interpret
from npuperf.readers.trace import read_trace

pytestmark = pytest.mark.usefixtures("either_reader")

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def told(
    name: str, group: str, ranks: object, described: str | None = "undefined", **more: object
) -> dict[str, object]:
    """Arguments as saveNcclMeta writes them."""
    found: dict[str, object] = {
        "Collective name": name, "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 4,
        "Process Group Name": group, "Process Group Ranks": ranks,
    }  # fmt: skip
    return found | ({} if described is None else {"Process Group Description": described}) | more


def started(at: int, args: dict[str, object], operator: int, until: int = 3) -> Event:
    return slice_("cpu_op", "record_param_comms", at, at + until, 9, **{"External id": operator}, **args)


def launched(at: int, name: str, begin: int, end: int, correlation: int, **args: object) -> list[Event]:
    """A call at ``at`` and its kernel on stream 20."""
    call = slice_("cuda_runtime", "cudaLaunchKernelExC", at, at + 1, 9, correlation=correlation)
    return [call, slice_("kernel", name, begin, end, 20, correlation=correlation, device=0, stream=20, **args)]


def read(path: Path, events: list[Event], **header: object) -> Communication:
    path.write_bytes(object_(events, **header))
    return read_file(path)


def read_file(path: Path) -> Communication:
    log = ReadLog()
    ((source,), _) = find(path)
    found = read_source(source, log)
    assert log.lost == []
    (profile,) = found.profiles
    return profile.communication


def rows(comm: Communication) -> list[tuple[Any, ...]]:
    """Type, ranks of the group, what it is called, number, peer and whether point to point, of each operation."""
    ops, groups = comm.operations, {g.id: g for g in comm.groups}
    group = [groups[id_] if id_ is not None else None for id_ in ops.group.texts()]
    columns = (ops.type.texts(), [g and g.ranks for g in group], [g and g.kind for g in group], ops.index.tolist(),
               ops.peer.tolist(), ops.p2p.tolist())  # fmt: skip
    return list(zip(*columns, strict=True))


def test_the_kernel_s_own_arguments_count(tmp_path: Path) -> None:
    """An all-to-all runs by the kernels that send and receive, and is no exchange of two."""
    events = [
        *launched(100, ALL_REDUCE, 110, 120, 1, **told("allreduce", "0", "[0, 1, 2, 3]", "default_pg", Seq=7)),
        *launched(130, SEND_RECV, 140, 150, 2, **told("all_to_all", "5", "[2, 3]", "mesh_ep", Seq=1)),
        *launched(160, SEND_RECV, 170, 180, 3,
                  **told("send", "6", [0, 2], "PIPELINE_MODEL_PARALLEL_GROUP", Seq=4, **{"Dst Rank": 0})),
        *launched(190, "ncclDevKernel_Generic_4", 200, 210, 4, **told("_reduce_scatter_base", "7", "[2]", "undefined")),
    ]  # fmt: skip
    assert rows(read(tmp_path / "t.json", events)) == [
        ("allReduce", (0, 1, 2, 3), "default_pg", 7, -1, False),
        ("alltoall", (2, 3), "ep", 1, -1, False),
        ("send", (0, 2), "pp", 4, 0, True),
        ("reduceScatter", (2,), None, -1, -1, False),
    ]


def test_else_the_operator_tells_which_the_kernel_names(tmp_path: Path) -> None:
    args = told("_allgather_base", "1", "[2, 3]", "DATA_PARALLEL_GROUP_WITH_CP", Seq=3)
    events = [started(95, args, 50, 10), *launched(100, "ncclKernel_AllGather", 110, 120, 1, **{"External id": 50})]
    assert rows(read(tmp_path / "t.json", events)) == [("allGather", (2, 3), "dp_cp", 3, -1, False)]


def test_a_batch_is_what_was_started_since_the_one_before(tmp_path: Path) -> None:
    """Its kernel is launched behind all of them, by no operator. A send that was launched by itself is not of it."""

    def one(name: str, group: str, ranks: str, peer: int, number: int) -> dict[str, object]:
        key = "Dst Rank" if name == "send" else "Src Rank"
        return told(name, group, ranks, "PIPELINE_MODEL_PARALLEL_GROUP", Seq=number, **{key: peer})

    alone = one("send", "9", "[2, 3]", 3, 1)
    events = [
        started(100, one("send", "6", "[0, 2]", 0, 4), 50), started(104, one("recv", "6", "[0, 2]", 0, 4), 51),
        started(108, alone, 52), *launched(109, SEND_RECV, 125, 130, 1, **{"External id": 52}),
        *launched(112, SEND_RECV, 131, 140, 2),
        started(150, one("recv", "6", "[0, 2]", 0, 5), 53), *launched(154, SEND_RECV, 160, 170, 3),
        started(180, one("send", "6", "[0, 2]", 0, 6), 54), started(184, one("send", "9", "[2, 3]", 3, 2), 55),
        *launched(188, SEND_RECV, 190, 200, 4),  # of two groups: nobody knows
        *launched(210, SEND_RECV, 220, 230, 5),  # nothing was started
    ]  # fmt: skip
    assert rows(read(tmp_path / "t.json", events)) == [
        ("send", (2, 3), "pp", 1, 3, True),
        ("batchSendRecv", (0, 2), "pp", 4, 0, True),
        ("receive", (0, 2), "pp", 5, 0, True),
        ("batchSendRecv", None, None, -1, -1, True),
        ("batchSendRecv", None, None, -1, -1, True),
    ]


def test_groups_of_one_name_with_other_ranks_are_others(tmp_path: Path) -> None:
    """Those that are split off together are numbered once on each rank."""
    ids = set()
    spelled = ("[0, 1]", "[2, 3]", "[2,3]", str([*range(0, 18, 2)]), str([*range(9)]),
               str([0, 1, 2, 3, 4, 5, 6, 7, 9]), str([0, 1, 2, 3, 4, 5, 6, 7, 8, 10]))  # fmt: skip
    for i, ranks in enumerate(spelled):
        args = told("allreduce", "3", ranks)
        ids.add(read(tmp_path / f"{i}.json", launched(100, ALL_REDUCE, 110, 120, 1, **args)).groups[0].id)
    assert len(ids) == 6


LONG = "[" + ", ".join(map(str, range(0, 58, 2))) + ", ..., 126]"


@pytest.mark.parametrize("way", ["header", "text", "stride", "nothing"])
def test_a_long_list_of_ranks_is_found_elsewhere(tmp_path: Path, way: str) -> None:
    """From 30 ranks on torch writes the first 29, "..." and the last."""
    ranks = [*range(0, 128, 2)]
    entry = {"pg_name": "4", "pg_desc": "undefined", "pg_size": 64, "ranks": str(ranks) if way == "text" else ranks}
    others = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [*range(128)]}]
    info = {"rank": 2, "world_size": 128, "pg_config": [*others, entry] if way in ("header", "text") else []}
    stride = {"Global rank start": 0, "Global rank stride": 2, "Group size": 64} if way == "stride" else {}
    args = told("allreduce", "4", LONG) | stride
    events = [started(95, args, 50, 10), *launched(100, ALL_REDUCE, 110, 120, 1, **{"External id": 50})]
    comm = read(tmp_path / "t.json", events, distributedInfo=info)
    (group,) = (g for g in comm.groups if g.id == comm.operations.group[0])
    assert group.ranks == (() if way == "nothing" else tuple(ranks))


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_group_all_are(tmp_path: Path, count: int) -> None:
    listed = [{"pg_name": str(n), "pg_desc": "undefined", "ranks": [0, 1, 2, 3]} for n in range(count)]
    info = {"rank": 2, "world_size": 4, "pg_count": count, "pg_config": listed}
    comm = read(tmp_path / "t.json", launched(100, ALL_REDUCE, 110, 120, 1), distributedInfo=info)
    assert [r[:2] for r in rows(comm)] == [("allReduce", (0, 1, 2, 3) if count == 1 else None)]


def test_a_group_without_a_description_loses_nothing(tmp_path: Path) -> None:
    """Some releases write no text at all for it, which is no JSON."""
    path = tmp_path / "t.json"
    args = told("allreduce", "1", "[2, 3]", "@@", Seq=2)
    events = [
        e for n in range(3) for e in launched(100 + 50 * n, ALL_REDUCE, 110 + 50 * n, 120 + 50 * n, n + 1, **args)
    ]
    path.write_text(object_(events).decode().replace('"@@"', ""))
    assert rows(read_file(path)) == [("allReduce", (2, 3), None, 2, -1, False)] * 3


@pytest.mark.parametrize("value", [None, [], {}, "x", "", -1, 1.5, True, 10**30, [[1]], "[1, x]"])
@pytest.mark.parametrize("key", ["Process Group Name", "Process Group Ranks", "Process Group Description", "Seq",
                                 "Dst Rank", "Group size", "Global rank start", "Collective name"])  # fmt: skip
def test_arguments_of_anything_cost_what_they_would_have_told(tmp_path: Path, key: str, value: object) -> None:
    args = told("allreduce", "1", "[2, 3]", Seq=2) | {key: value}
    events = [started(95, args, 50, 10), *launched(100, ALL_REDUCE, 110, 120, 1, **args)]
    ops = read(tmp_path / "t.json", events).operations
    assert (ops.start.tolist(), ops.type.texts()) == ([110_000], ["allReduce"])


@pytest.mark.parametrize("name", ["cpu_only.json.gz", "ns_resolution_gpu.json.gz"])
def test_groups_of_real_traces(name: str) -> None:
    """Counted in the file itself: what the header lists, and the operators that name a group."""
    path = REAL / name
    if not path.is_file():
        pytest.skip("the recording is not here")
    whole = json.loads(gzip.decompress(path.read_bytes()))
    trace = read_trace((path,), ReadLog())
    raw = Counter(e["args"]["Collective name"] for e in whole["traceEvents"]
                  if e.get("ph") == "X" and "Collective name" in e.get("args", {}))  # fmt: skip
    assert Counter(trace.collectives.type.texts()) == raw
    listed = {(tuple(p["ranks"]), p.get("pg_desc")) for p in whole["distributedInfo"]["pg_config"]}
    kind = {"undefined": None}
    book = interpret(trace).book
    assert {(g.ranks, g.kind) for g in book.groups.values()} == {(r, kind.get(d or "", d)) for r, d in listed}
    assert len(book.groups) == len(whole["distributedInfo"]["pg_config"])

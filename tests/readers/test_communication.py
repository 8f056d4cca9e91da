"""Communication of a rank, from files written by hand and from real ones taken apart with plain json."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from build import EPOCH, HEADER, K, ascend_pt, row

from npuperf.model.communication import EVERYBODY, SEVERAL, Communication
from npuperf.model.labels import Labels
from npuperf.readers.comm_groups import group_hash, type_inside, type_of
from npuperf.readers.recording import Reading, open_recording

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
CLUSTER = REAL / "cluster4"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
#: The hashes of these ids, worked out by hand from the names of the operations of real files.
PP, DP = "3985310405473756128", "5862276114690318097"  # of group_name_19, group_name_5
METADATA = {
    "distributed_args": {"world_size": 4, "sequence_parallel": False, "rank": 2, "pipeline_model_parallel_size": 2},
    "parallel_group_info": {
        "group_name_19": {"group_name": "pp", "group_rank": 1, "global_ranks": [0, 2]},
        "group_name_5": {"group_name": "dp", "group_rank": 0, "global_ranks": [2, 3]},
    },
}


def read(path: Path) -> Reading:
    (reading,) = open_recording(path).map(lambda reading: reading)
    return reading


def communication(path: Path) -> Communication:
    (profile,) = read(path).profiles
    return profile.communication


def texts(labels: Labels) -> list[str | None]:
    return [labels[i] for i in range(len(labels))]


def op(start: int, ms: float, **transports: dict[str, Any]) -> dict[str, Any]:
    """An operation as communication.json has it; ``start`` in ns after EPOCH."""
    times = {"Start Timestamp(us)": (EPOCH + start) / 1000, "Elapse Time(ms)": ms, "Transit Time(ms)": 0.25,
             "Wait Time(ms)": 0.5, "Synchronization Time(ms)": 0, "Idle Time(ms)": 1e-05}  # fmt: skip
    none = {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Size Distribution": {}}
    bands = {name: transports.get(name, none) for name in ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")}
    return {"Communication Time Info": times, "Communication Bandwidth Info": bands}


def moved(mb: float, ms: float, packets: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"Transit Size(MB)": mb, "Transit Time(ms)": ms, "Bandwidth(GB/s)": 1, "Size Distribution": packets or {}}


def rank(root: Path, document: object = None, metadata: object = METADATA, kernels: list[K] | None = None) -> Path:
    """A torch_npu result of rank 2 with communication.json, and a kernel table where there are kernels."""
    folder = root / "host_1_20260101000000000_ascend_pt"
    (folder / OUTPUT).mkdir(parents=True)
    (folder / "profiler_info_2.json").write_text("{}")
    (folder / "profiler_metadata.json").write_text(json.dumps(metadata))
    if document is not None:
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / OUTPUT / "communication.json").write_text(text)
    if kernels is not None:
        table = "\n".join([HEADER, *map(row, kernels)]) + "\n"
        (folder / OUTPUT / "kernel_details.csv").write_text(table)
    return folder


SEND = f"hcom_batchSendRecv__128_3_1@{PP}"
SCATTER = f"hcom_reduceScatter__097_7_1@{DP}"
DOCUMENT: dict[str, dict[str, dict[str, Any]]] = {
    "step13": {
        "p2p": {SEND: op(0, 2.0, HCCS=moved(8, 0.5, {"8": [1, 0.5]}), SDMA=moved(8, 0.5)), "Total Op Info": op(0, 2.0)},
        "collective": {
            SCATTER: op(
                10_000_000,
                1.5,
                RDMA=moved(3, 0.25),
                HCCS=moved(24.5, 3.0, {"8": [3, 2.5], "0.5": [1, 0.5]}),
                SDMA=moved(24.5, 3.0),
            )
        },
    }
}


def comm(start: int, dur: int, name: str, step: int | str = 13, type_: str = "") -> K:
    return K(start, dur, name, type_ or name.split("__")[0] + "_", "COMMUNICATION", "N/A", 0, step=step)


def test_a_rank_with_nothing_but_communication_json(tmp_path: Path) -> None:
    reading = read(rank(tmp_path, DOCUMENT))
    (profile,) = reading.profiles
    found = profile.communication
    ops = found.operations
    assert profile.rank == 2 and reading.log.warnings == [] and reading.log.lost == []
    assert texts(ops.name) == ["hcom_batchSendRecv__128_3_1", "hcom_reduceScatter__097_7_1"]
    assert texts(ops.type) == ["batchSendRecv", "reduceScatter"] and texts(ops.group) == [PP, DP]
    assert (ops.start - EPOCH).tolist() == [0, 10_000_000] and ops.stay.tolist() == [2_000_000, 1_500_000]
    assert ops.step.tolist() == [13, 13] and ops.index.tolist() == [3, 7]
    assert ops.p2p.tolist() == [True, False] and ops.peer.tolist() == [0, -1]
    moved_ = found.bandwidth
    rows = list(zip(moved_.op.tolist(), texts(moved_.transport), moved_.bytes.tolist(), moved_.ns.tolist(),
                    moved_.packet.tolist(), moved_.count.tolist(), strict=True))  # fmt: skip
    assert sorted(rows) == [
        (0, "HCCS", 8_000_000, 500_000, 8_000_000, 1),
        (1, "HCCS", 500_000, 500_000, 500_000, 1),
        (1, "HCCS", 24_000_000, 2_500_000, 8_000_000, 3),
        (1, "RDMA", 3_000_000, 250_000, -1, -1),
    ]
    assert found.vendor.op.tolist() == [0, 1] and found.vendor.wait.tolist() == [500_000] * 2
    assert found.vendor.transit.tolist() == [250_000] * 2 and found.vendor.idle.tolist() == [10, 10]
    assert {(g.id, g.kind, g.ranks) for g in found.groups} == {(PP, "pp", (0, 2)), (DP, "dp", (2, 3))}
    assert found.distributed == {"world_size": 4, "pipeline_model_parallel_size": 2}


def test_sums_stand_in_where_their_parts_are_missing(tmp_path: Path) -> None:
    only = {"step": {"collective": {SCATTER: op(0, 1.0, SDMA=moved(2, 0.5))}}}
    found = communication(rank(tmp_path, only))
    assert texts(found.bandwidth.transport) == ["SDMA"] and found.bandwidth.bytes.tolist() == [2_000_000]
    assert found.operations.step.tolist() == [-1]


def test_times_come_from_the_device_and_groups_from_the_exporter(tmp_path: Path) -> None:
    kernels = [
        K(0, 1_000, step=13),
        comm(130, 2_000_020, "hcom_batchSendRecv__128_3_1"),
        comm(20_000_000, 500, "hcom_allReduce__097_8_1"),  # not in the JSON: digits of a group that is known
        comm(30_000_000, 500, "hcom_allReduce__555_0_1"),
        comm(31_000_000, 500, "hcom_allReduce_"),
    ]
    found = communication(rank(tmp_path, DOCUMENT, kernels=kernels))
    ops = found.operations
    assert (ops.start - EPOCH).tolist() == [130, 10_000_000, 20_000_000, 30_000_000, 31_000_000]
    assert ops.stay.tolist() == [2_000_020, 1_500_000, 500, 500, 500]
    assert texts(ops.group) == [PP, DP, DP, "555", None] and ops.step.tolist() == [13] * 5
    assert texts(ops.type) == ["batchSendRecv", "reduceScatter", *["allReduce"] * 3]
    assert found.bandwidth.op.tolist().count(1) == 3
    assert ("555", None, ()) in {(g.id, g.kind, g.ranks) for g in found.groups}


def test_equal_names_in_several_steps_are_told_apart_by_time(tmp_path: Path) -> None:
    name = "hcom_allReduce__097_0_1"
    steps = {
        f"step{s}": {"collective": {f"{name}@{DP}": op(s * 5_000_000, 1.0, HCCS=moved(s, 0.5))}} for s in (1, 2, 3)
    }
    kernels = [comm(s * 5_000_000 + 40, 999_960, name, "") for s in (1, 3)]
    found = communication(rank(tmp_path, steps, kernels=kernels))
    ops = found.operations
    assert (ops.start - EPOCH).tolist() == [5_000_040, 10_000_000, 15_000_040] and ops.step.tolist() == [1, 2, 3]
    assert found.bandwidth.bytes[found.bandwidth.op.argsort()].tolist() == [1_000_000, 2_000_000, 3_000_000]


def test_one_operation_listed_several_times_counts_once(tmp_path: Path) -> None:
    name = "hcom_allReduce__097_0_1"
    kernels = [
        comm(0, 900, name),
        comm(0, 900, name),
        comm(100, 500, name),  # a plane of it
        comm(2_000, 50, "hcom_allReduce_"),
        comm(2_010, 20, "hcom_allReduce_"),  # may be another one: it has no number
        comm(200, 300, "allReduce_910b_AivKernel"),  # what carries out the first
        comm(9_000, 300, "allReduce_910b_AivKernel"),
    ]
    ops = communication(rank(tmp_path, kernels=kernels)).operations
    assert (ops.start - EPOCH).tolist() == [0, 2_000, 2_010, 9_000] and texts(ops.type) == ["allReduce"] * 4


def test_types_are_written_one_way() -> None:
    for name, type_ in (
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allReduce"),
        ("ncclKernel_SendRecv", "batchSendRecv"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", "reduceScatter"),
        ("ncclAllGatherRingLLKernel_sum_f32", "allGather"),
        ("allreduceAicpuKernel", "allReduce"),
        ("Add", None),
    ):
        assert type_inside(name) == type_, name
    assert [type_of(t) for t in ("ALLREDUCE", "batchsendrecv", "alltoallvc", "newThing")] == [
        "allReduce", "batchSendRecv", "alltoallvc", "newThing",
    ]  # fmt: skip


def test_the_hash_of_a_group() -> None:
    assert group_hash("group_name_5") == DP and group_hash("group_name_19") == PP
    assert group_hash(DP) == DP
    # From a real database: the group's id, and the hash that its analysis.db has of it.
    assert group_hash("90.91.105.46%enp189s0f0_60000_0_1736410538306028") == "17148521525495523210"


def test_links_have_the_ranks_of_the_run(tmp_path: Path) -> None:
    def link(op_name: str | None, transport: str = "HCCS", mb: float = 1.0) -> dict[str, Any]:
        use = {"Transport Type": transport, "Transit Size(MB)": mb, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 2}
        return use if op_name is None else {**use, "Op Name": op_name}

    folder = rank(tmp_path, DOCUMENT)
    matrix: dict[str, dict[str, dict[str, Any]]] = {
        "step13": {
            "p2p": {
                f"batchsendrecv-top1@{PP}": {"1-1": link(SEND, "LOCAL"), "1-0": link(SEND)},
                f"batchsendrecv-middle@{PP}": {"1-0": link(SEND)},
                f"batchsendrecv-total@{PP}": {"1-0": link(None, mb=2.5)},
            },
            "collective": {
                f"reduce-total@{DP}": {"0-1": link(None), "0-7": link(None), "1-0": "damaged"},
                "reduce-total@99": {"0-1": link(None)},
            },
        }
    }
    (folder / OUTPUT / "communication_matrix.json").write_text(json.dumps(matrix))
    reading = read(folder)
    links = reading.profiles[0].communication.links
    # The damaged entry makes its whole type unusable: it is one object.
    assert [lost.rows for lost in reading.log.lost] == [1]
    matrix["step13"]["collective"][f"reduce-total@{DP}"].pop("1-0")
    (folder / OUTPUT / "communication_matrix.json").write_text(json.dumps(matrix))
    links = communication(folder).links
    rows = list(zip(texts(links.type), links.source.tolist(), links.target.tolist(), links.bytes.tolist(),
                    links.count.tolist(), texts(links.name), strict=True))  # fmt: skip
    assert rows == [
        ("batchSendRecv", 2, 0, 1_000_000, 1, "hcom_batchSendRecv__128_3_1"),
        ("batchSendRecv", 2, 0, 2_500_000, -1, None),
        ("reduceScatter", 2, 3, 1_000_000, -1, None),
        ("reduceScatter", 2, -1, 1_000_000, -1, None),
        ("reduce", -1, -1, 1_000_000, -1, None),
    ]
    assert links.step.tolist() == [13] * 5 and links.ns.tolist() == [500_000] * 5


@pytest.mark.parametrize(("ends", "peer"), [("0", -1), ("013", EVERYBODY), ("01", SEVERAL)])
def test_a_batch_may_be_with_several_ranks(ends: str, peer: int, tmp_path: Path) -> None:
    """A matrix has the best operations of each link: what has two there is with two; what has one may be with more."""
    metadata = {"parallel_group_info": {"group_name_19": {"group_name": "pp", "group_rank": 2,
                                                          "global_ranks": [0, 1, 2, 3]}}}  # fmt: skip
    other = SEND.replace("_3_1@", "_4_1@")
    document = {"step13": {"p2p": {SEND: op(0, 2.0), other: op(4_000, 2.0)}, "collective": {}}}
    folder = rank(tmp_path, document, metadata=metadata)
    use = {"Transport Type": "HCCS", "Transit Size(MB)": 1, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 2}
    links = {f"2-{end}": {**use, "Op Name": SEND} for end in ends}
    every = {f"batchsendrecv-top1@{PP}": links, f"batchsendrecv-total@{PP}": {f"2-{end}": use for end in ends}}
    matrix = {"step13": {"p2p": every, "collective": {}}}
    (folder / OUTPUT / "communication_matrix.json").write_text(json.dumps(matrix))
    assert communication(folder).operations.peer.tolist() == [peer, -1 if peer == -1 else SEVERAL]


def test_groups_of_the_cluster_tool(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rank(run, DOCUMENT, metadata={})
    tool = run / "cluster_analysis_output"
    tool.mkdir()
    named = [{"type": "p2p", "rank_set": [0, 2], "group_name": PP, "group_id": "group_name_19", "pg_name": "pp"}]
    sets = {"collective": [[2, 3], [2, 3], [2], [0, 1]], "p2p": [[0, 2]], "comm_group_parallel_info": named}
    (tool / "communication_group.json").write_text(json.dumps(sets))
    header = "Step,Type,Index,Computing,Communication(Not Overlapped),Free\n"
    (tool / "cluster_step_trace_time.csv").write_text(header + "13,rank,2,1,1,1\n13,rank,3,1,1,1\n")
    assert [p.rank for p in open_recording(tool).profiles] == [2, 3]  # alone it is all there is
    found = communication(run)
    # The one set of rank 2 that no group has goes to the one group whose ranks are unknown.
    assert {(g.id, g.kind, g.ranks) for g in found.groups} == {(PP, "pp", (0, 2)), (DP, None, (2, 3))}
    assert found.operations.peer.tolist() == [0, -1]
    (tool / "communication_group.json").write_text("{")
    (tool / "cluster_communication.json").write_text(json.dumps({"(2, 3)": {"step13": {SCATTER: {"2": {}}}}}))
    reading = read(run)
    assert {(g.id, g.ranks) for g in reading.profiles[0].communication.groups} == {(PP, ()), (DP, (2, 3))}
    (warning,) = reading.log.warnings
    assert "communication_group.json" in str(warning)
    with sqlite3.connect(tool / "cluster_analysis.db") as db:
        db.execute("CREATE TABLE CommunicationGroupMapping(type, rank_set, group_name, group_id, pg_name)")
        db.execute("INSERT INTO CommunicationGroupMapping VALUES ('p2p', '(0,2)', ?, 'group_name_19', 'pp')", [PP])
    assert (PP, "pp", (0, 2)) in {(g.id, g.kind, g.ranks) for g in communication(run).groups}


def test_every_cut_keeps_what_is_whole(tmp_path: Path) -> None:
    ops = {
        f"hcom_allReduce__097_{i}_1@{DP}": op(i * 1_000_000, 0.5, HCCS=moved(1, 0.25, {"1": [1, 0.25]}))
        for i in range(4)
    }
    document = json.dumps({"step7": {"p2p": {}, "collective": {**ops, "Total Op Info": op(0, 2.0)}}})
    ends = [document.index(name) for name in list(ops)[1:]] + [document.index("Total Op Info")]
    folder = rank(tmp_path, "{}", kernels=[K(0, 5)])
    path = folder / OUTPUT / "communication.json"
    for cut in range(0, len(document), 41):
        path.write_text(document[:cut])
        reading = read(folder)
        whole = sum(cut >= end - 3 for end in ends)  # an object ends before the comma, blank and quote of the next name
        found = reading.profiles[0].communication
        assert len(found.operations) == whole and (found.operations.step == 7).all(), cut
        assert any("communication.json" in str(w) for w in reading.log.warnings), cut


def test_damage_in_the_middle_costs_one_operation(tmp_path: Path) -> None:
    ops = {f"hcom_allReduce__097_{i}_1@{DP}": op(i * 1_000_000, 0.5) for i in range(3)}
    document = json.dumps({"step7": {"p2p": {}, "collective": ops}})
    at = document.index("_1_1@")
    spot = document.index("Elapse", at)
    reading = read(rank(tmp_path, document[:spot] + "\x00}}{garbage" + document[spot + 30 :]))
    assert reading.profiles[0].communication.operations.index.tolist() == [0, 2]
    assert [lost.rows for lost in reading.log.lost] == [1]


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", '"text"', "-3", "1e300", "[1]", "true", "{}"])
def test_cells_without_a_number_cost_the_cell(tmp_path: Path, bad: str) -> None:
    text = json.dumps(DOCUMENT)
    for cell in ('"Wait Time(ms)": 0.5', '"8": [3, 2.5]'):
        text = text.replace(cell, cell.rsplit(" ", 1)[0] + " " + bad + ("]" if "[" in cell else ""), 1)
    reading = read(rank(tmp_path, text))
    found = reading.profiles[0].communication
    assert len(found.operations) == 2 and sorted(found.vendor.wait.tolist()) == [-1, 500_000]
    assert 2_500_000 not in found.bandwidth.ns.tolist()
    assert [lost.rows for lost in reading.log.lost] == [2]


@pytest.mark.parametrize("key", ["Start Timestamp(us)", "Elapse Time(ms)"])
def test_an_operation_without_a_time_is_lost_unless_a_task_has_it(tmp_path: Path, key: str) -> None:
    broken = op(0, 2.0, HCCS=moved(8, 0.5))
    broken["Communication Time Info"][key] = "?"
    document = {"step13": {"p2p": {SEND: broken}, "collective": {SCATTER: op(0, 1.0)}}}
    reading = read(rank(tmp_path / "a", document))
    assert texts(reading.profiles[0].communication.operations.group) == [DP]
    assert sum(lost.rows for lost in reading.log.lost) == 2  # the cell, and then the operation
    kernels = [comm(130, 2_000, "hcom_batchSendRecv__128_3_1"), comm(0, 5, "hcom_reduceScatter__097_7_1")]
    found = communication(rank(tmp_path / "b", document, kernels=kernels))
    assert texts(found.operations.group) == [DP, PP] and found.bandwidth.op.tolist() == [1]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"step1": 3}', '{"step1": {"p2p": [1]}}', "\x00" * 99])
def test_what_is_no_communication_json_is_said(tmp_path: Path, text: str) -> None:
    reading = read(rank(tmp_path, text, kernels=[K(0, 5)]))
    assert len(reading.profiles[0].communication.operations) == 0
    told = [str(w) for w in reading.log.warnings] + [lost.file for lost in reading.log.lost]
    assert any("communication.json" in t for t in told)


def test_the_rank_may_stand_in_the_metadata_alone(tmp_path: Path) -> None:
    folder = rank(tmp_path, DOCUMENT)
    (folder / "profiler_info_2.json").rename(folder / "profiler_info.json")
    assert [p.rank for p in read(folder).profiles] == [2]


def test_a_damaged_matrix_keeps_what_is_whole(tmp_path: Path) -> None:
    def total(type_: str, mb: int) -> str:
        link = {"0-1": {"Transport Type": "HCCS", "Transit Size(MB)": mb, "Transit Time(ms)": 0.5}}
        return json.dumps(f"{type_}-total@{DP}") + ": " + json.dumps(link)

    folder = rank(tmp_path, DOCUMENT)
    keys = ", ".join((total("allgather", 1), total("allreduce", 2), total("broadcast", 3)))
    document = '{"step13": {"p2p": {}, "collective": {' + keys + "}}}"
    (folder / OUTPUT / "communication_matrix.json").write_text(document[:-20])
    reading = read(folder)
    links = reading.profiles[0].communication.links
    assert texts(links.type) == ["allGather", "allReduce"] and links.bytes.tolist() == [1_000_000, 2_000_000]
    assert links.step.tolist() == [13, 13] and links.target.tolist() == [3, 3]
    assert [lost.rows for lost in reading.log.lost] == [1]
    assert any("communication_matrix.json" in str(w) for w in reading.log.warnings)


def test_msprofs_own_layout_has_no_steps(tmp_path: Path) -> None:
    prof = tmp_path / "PROF_000001_20260101000000000_X"
    (prof / "analyze").mkdir(parents=True)
    document = {SCATTER: op(0, 1.0), "Total Op Info": op(0, 1.0)}
    (prof / "analyze" / "communication.json").write_text(json.dumps(document))
    reading = read(tmp_path)
    assert reading.source.root == prof
    assert texts(reading.profiles[0].communication.operations.type) == ["reduceScatter"]


def test_timelines_name_groups(tmp_path: Path) -> None:
    kernels = [K(0, 500), comm(1_000, 500, "hcom_allReduce__097_0_1"), comm(2_000, 500, "hcom_allReduce__128_0_1")]
    folder = ascend_pt(tmp_path, kernels)
    path = folder / OUTPUT / "trace_view.json"
    path.write_text(path.read_text().replace("Group 0 Communication", "Group group_name_5 Communication"))
    ops = communication(tmp_path).operations
    assert texts(ops.group) == [DP, "128"]  # the thread's group ends in other digits than the second


def profiler_db(path: Path) -> None:
    """One batchSendRecv of group_name_19: two copies to the other rank, one over RDMA with its closing tasks."""
    strings = [
        "hcom_batchSendRecv__128_0_1",
        "hcom_batchSendRecv_",
        "group_name_19",
        "Memcpy",
        "RDMASend",
        "Notify_Wait",
        "EVENT",
    ]
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE TASK(startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId);"
            "CREATE TABLE STRING_IDS(id, value); CREATE TABLE META_DATA(name, value);"
            "CREATE TABLE COMMUNICATION_OP(opName, startNs, endNs, connectionId, groupName, opId, relay, retry, opType,"
            " deviceId);"
            "CREATE TABLE COMMUNICATION_TASK_INFO(globalTaskId, taskType, planeId, rdmaType, srcRank, dstRank,"
            " transportType, size, linkType, opId);"
            "CREATE TABLE ENUM_HCCL_LINK_TYPE(id, name); CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE(id, name);"
            "CREATE TABLE ENUM_HCCL_RDMA_TYPE(id, name); CREATE TABLE HOST_INFO(hostUid, hostName);"
            "INSERT INTO HOST_INFO VALUES ('77', 'node-3');"
            "INSERT INTO ENUM_HCCL_LINK_TYPE VALUES (0, 'ON_CHIP'), (5, 'HCCS_SW'), (3, 'ROCE');"
            "INSERT INTO ENUM_HCCL_TRANSPORT_TYPE VALUES (0, 'SDMA'), (1, 'RDMA');"
            "INSERT INTO ENUM_HCCL_RDMA_TYPE VALUES (1, 'RDMA_SEND_PAYLOAD'), (0, 'RDMA_SEND_NOTIFY');"
        )
        db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", enumerate(strings))
        db.execute(
            "INSERT INTO META_DATA VALUES ('parallel_group_info', ?)", [json.dumps(METADATA["parallel_group_info"])]
        )
        db.execute("INSERT INTO COMMUNICATION_OP VALUES (0, ?, ?, 1, 2, 9, 1, 0, 1, 0)", [EPOCH, EPOCH + 90_000])
        parts = [  # start, end, type, plane, rdma, source, target, transport, size, link
            (0, 100, 3, 0, 9, 1, 1, 0, 64, 0),  # on the chip
            (200, 500, 3, 0, 9, 1, 0, 0, 4096, 5),
            (600, 1_000, 3, 0, 9, 1, 0, 0, 4096, 5),
            (1_100, 1_110, 4, 1, 1, 1, 0, 1, 512, 3),
            (1_120, 1_130, 4, 1, 0, 1, 0, 1, 4, 3),
            (1_200, 9_100, 5, 1, 9, 1, 4294967295, 9, 0, 65535),  # the transfer is over
        ]
        for i, (start, end, *info) in enumerate(parts):
            db.execute("INSERT INTO TASK VALUES (?, ?, 0, -1, ?, 6, 1)", [EPOCH + start, EPOCH + end, i])
            type_, plane, rdma, source, target, transport, size, link = info
            values = (i, type_, plane, rdma, source, target, transport, size, link, 9)
            db.execute("INSERT INTO COMMUNICATION_TASK_INFO VALUES (?,?,?,?,?,?,?,?,?,?)", values)


def test_a_profilers_database(tmp_path: Path) -> None:
    folder = rank(tmp_path, metadata={})
    profiler_db(folder / OUTPUT / "ascend_pytorch_profiler_2.db")
    found = communication(folder)
    ops, links = found.operations, found.links
    assert (texts(ops.group), ops.retry.tolist(), ops.relay.tolist(), ops.peer.tolist()) == ([PP], [0], [1], [0])
    assert (found.host, {g.id: g.ranks for g in found.groups}) == ("node-3", {PP: (0, 2), DP: (2, 3)})
    rows = set(zip(texts(links.transport), links.source.tolist(), links.target.tolist(), links.bytes.tolist(),
                   links.ns.tolist(), links.count.tolist(), strict=True))  # fmt: skip
    assert rows == {("HCCS", 2, 0, 8192, 700, 2), ("RDMA", 2, 0, 512, 8_000, 1)}
    assert texts(links.name) == ["hcom_batchSendRecv__128_0_1"] * 2
    moved_ = found.bandwidth
    assert sorted(zip(moved_.packet.tolist(), moved_.count.tolist(), moved_.ns.tolist(), strict=True)) == [
        (512, 1, 8_000), (4096, 2, 700),
    ]  # fmt: skip


def test_the_steps_own_bubble_and_communication(tmp_path: Path) -> None:
    folder = rank(tmp_path)
    header = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
    (folder / OUTPUT / "step_trace_time.csv").write_text(header + "0,13,5,3,1,4,2,9,1.5\n0,14,5,3,1,,2,9,N/A\n")
    (profile,) = read(folder).profiles
    assert [(s.comm, s.bubble, s.span) for s in profile.vendor_steps] == [(4_000, 1_500, 10_000), (None, None, 10_000)]
    with sqlite3.connect(folder / OUTPUT / "analysis.db") as db:
        db.execute(
            "CREATE TABLE StepTraceTime(step, computing, communication_not_overlapped, communication, free, bubble)"
        )
        db.execute("INSERT INTO StepTraceTime VALUES ('13', 5, 3, 4.25, 2, 0)")
    (folder / OUTPUT / "step_trace_time.csv").unlink()
    (profile,) = read(folder).profiles
    assert [(s.comm, s.bubble) for s in profile.vendor_steps] == [(4_250, 0)]


needs_cluster = pytest.mark.skipif(not CLUSTER.is_dir(), reason="no data of msinsight")


@needs_cluster
def test_a_real_job_of_four_ranks() -> None:
    profiles = {p.rank: p for p in open_recording(CLUSTER).profiles}
    assert set(profiles) == {0, 1, 2, 3}
    for number, profile in profiles.items():
        output = CLUSTER / f"rank_{number}_ascend_pt" / OUTPUT
        document = json.loads((output / "communication.json").read_text(), parse_float=Decimal)
        listed = {
            name: (int(i["Communication Time Info"]["Start Timestamp(us)"] * 1000), kind, i)
            for kind, section in document["step13"].items()
            for name, i in section.items()
            if name != "Total Op Info"
        }
        found = profile.communication
        ops = found.operations
        assert Counter(f"{n}@{g}" for n, g in zip(texts(ops.name), texts(ops.group), strict=True)) == Counter(
            listed.keys()
        )
        assert (ops.start[1:] >= ops.start[:-1]).all() and set(ops.step.tolist()) == {13}
        for i in range(len(ops)):
            start, kind, info = listed[f"{ops.name[i]}@{ops.group[i]}"]
            elapse = info["Communication Time Info"]["Elapse Time(ms)"] * 1_000_000
            assert abs(int(ops.start[i]) - start) <= 250 and abs(int(ops.stay[i]) - elapse) <= 1
            assert bool(ops.p2p[i]) == (kind == "p2p")
            assert int(ops.peer[i]) == ((int(number or 0) + 2) % 4 if kind == "p2p" else -1)
            here = found.bandwidth.op == i
            hccs = info["Communication Bandwidth Info"]["HCCS"]
            assert abs(found.bandwidth.bytes[here].sum() - hccs["Transit Size(MB)"] * 1_000_000) < 1
            assert abs(found.bandwidth.ns[here].sum() - hccs["Transit Time(ms)"] * 1_000_000) <= 2
        # Two stages of two ranks: links lead to the partner of the pipeline, and to that of the data.
        ends = {(s, t) for s, t in zip(found.links.source.tolist(), found.links.target.tolist(), strict=True)}
        assert {s for s, _ in ends} == {number} and (number, (int(number or 0) + 2) % 4) in ends
        assert "reduceScatter" in texts(found.links.type) and "reduce" not in texts(found.links.type)
        assert profile.vendor_steps[0].bubble == 0 and profile.vendor_steps[0].comm
    groups = {g.id: (g.kind, g.ranks) for g in profiles[0].communication.groups}
    assert groups[DP] == ("dp_cp", (0, 1)) and groups[PP] == ("pp", (0, 2))


@needs_cluster
def test_the_database_says_the_same_as_the_files(tmp_path: Path) -> None:
    source = CLUSTER / "rank_3_ascend_pt"
    copy = tmp_path / "rank_3_ascend_pt"
    shutil.copytree(source, copy)
    for name in ("communication.json", "communication_matrix.json"):
        (copy / OUTPUT / name).unlink()
    files, database = communication(source), communication(copy)
    assert texts(files.operations.name) == texts(database.operations.name)
    assert texts(files.operations.group) == texts(database.operations.group)
    assert files.operations.start.tolist() == database.operations.start.tolist()
    assert files.operations.end.tolist() == database.operations.end.tolist()

    def moved_rows(c: Communication) -> Counter[tuple[Any, ...]]:
        b = c.bandwidth
        return Counter(zip(b.op.tolist(), texts(b.transport), b.bytes.tolist(), b.ns.tolist(), b.packet.tolist(),
                           b.count.tolist(), strict=True))  # fmt: skip

    def link_rows(c: Communication) -> Counter[tuple[Any, ...]]:
        x = c.links
        return Counter(zip(x.step.tolist(), texts(x.type), texts(x.group), x.source.tolist(), x.target.tolist(),
                           x.bytes.tolist(), x.ns.tolist(), texts(x.name), strict=True))  # fmt: skip

    assert moved_rows(files) == moved_rows(database) and link_rows(files) == link_rows(database)


@pytest.mark.skipif(not (REAL / "db").is_dir(), reason="no data of msinsight")
def test_a_real_database_against_the_exporters_own_sums() -> None:
    for number in (0, 1):
        folder = REAL / "db" / "level1" / f"rank{number}_ascend_pt"
        with sqlite3.connect(f"file:{folder / OUTPUT / 'analysis.db'}?mode=ro&immutable=1", uri=True) as db:
            query = (
                "SELECT dst_rank, transit_size FROM CommAnalyzerMatrix"
                " WHERE hccl_op_name LIKE '%total' AND transport_type = 'HCCS'"
            )
            told = {int(target): round(mb * 1_000_000) for target, mb in db.execute(query)}
            group = db.execute("SELECT group_name FROM CommAnalyzerTime").fetchone()[0]
        (profile,) = read(folder).profiles
        found = profile.communication
        assert set(texts(found.operations.group)) == {group} and found.host == "ubuntu"
        assert found.operations.retry.tolist() == [0] * 4 and found.links.count.sum() == 7 * 8
        assert len(told) == 7 and found.links.bytes.sum() == sum(told.values())
        assert set(found.links.step.tolist()) == {50}

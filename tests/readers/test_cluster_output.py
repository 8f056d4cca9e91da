"""What the cluster tool of msprof-analyze wrote of a job: read as the job itself, told as what sums of many ranks tell.

Formats: its sources (step_trace_time_analysis, communication_analysis, tables_config). Files are made of the sample's
own folders, so that the job's answer is known from its kernels, or by hand.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from build import analyze_path
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.model.result import Result
from npuperf.readers.recording import open_recording
from npuperf.show.formats import View, render

SAMPLE = Path(__file__).parents[2] / "samples" / "pipeline_job"
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "msprof-analyze" / "cluster"
HEADER = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
COLUMNS = HEADER.split(",")[3:]


def split_of(rank: int) -> list[dict[str, str]]:
    """The rows of a rank's own step_trace_time.csv, without the device."""
    (path,) = (SAMPLE / f"rank_{rank}_ascend_pt").rglob("step_trace_time.csv")
    return list(csv.DictReader(io.StringIO(path.read_text())))


def operations() -> dict[tuple[int, ...], dict[str, dict[str, dict[str, Any]]]]:
    """Ranks of a group → step → operation@group → rank → what communication.json has, as the tool files it."""
    members: dict[str, set[int]] = defaultdict(set)
    found: list[tuple[str, str, int, Any]] = []
    for rank in range(4):
        (path,) = (SAMPLE / f"rank_{rank}_ascend_pt").rglob("communication.json")
        for step, sections in json.loads(path.read_text()).items():
            for ops in sections.values():
                for name, op in ops.items():
                    if name != "Total Op Info":
                        members[name.partition("@")[2]].add(rank)
                        found.append((step, name, rank, op))
    filed: dict[tuple[int, ...], dict[str, dict[str, dict[str, Any]]]] = {}
    for step, name, rank, op in found:
        ranks = tuple(sorted(members[name.partition("@")[2]]))
        filed.setdefault(ranks, {}).setdefault(step, {}).setdefault(name, {})[str(rank)] = op
    return filed


def matrix() -> dict[tuple[int, ...], dict[str, dict[str, dict[str, dict[str, Any]]]]]:
    """Ranks of a group → step → type and group → link, by ranks of the whole run, and the sum of each group.

    Whose rank inside of a group is whose of the run is told by what each of them moves to itself.
    """
    members: dict[str, dict[str, int]] = defaultdict(dict)
    found: list[tuple[str, str, str, Any]] = []
    for rank in range(4):
        (path,) = (SAMPLE / f"rank_{rank}_ascend_pt").rglob("communication_matrix.json")
        for step, sections in json.loads(path.read_text()).items():
            for key, links in ((key, links) for keys in sections.values() for key, links in keys.items()):
                for link, use in links.items():
                    source, _, target = link.partition("-")
                    if source == target:
                        members[key.partition("@")[2]][source] = rank
                    found.append((step, key, link, use))
    filed: dict[tuple[int, ...], dict[str, dict[str, dict[str, dict[str, Any]]]]] = {}
    for step, key, link, use in found:
        group = key.partition("@")[2]
        inside = members[group]
        keys = filed.setdefault(tuple(sorted(inside.values())), {}).setdefault(step, {})
        ends = "-".join(str(inside[end]) for end in link.split("-"))
        keys.setdefault(key, {})[ends] = use
        if "-total" in key:
            keys.setdefault(f"Total Op Info@{group}", {})[ends] = use
    return filed


def step_rows(*, pp_index: bool = True, stages: bool = True) -> list[list[Any]]:
    """Rows of ranks, then of stages: of each part the most of its ranks, as the tool writes them."""
    rows: list[list[Any]] = []
    for rank in range(4):
        for row in split_of(rank):
            cells = [float(row.get(column) or 0) for column in COLUMNS]
            rows.append([row["Step"], "rank", rank, *cells, *([rank % 2, rank // 2, 0] if pp_index else [])])
    for stage in ((0, 1), (2, 3)) if stages else ():
        for step in sorted({row[0] for row in rows}):
            own = [row[3 : 3 + len(COLUMNS)] for row in rows if row[0] == step and row[2] in stage]
            rows.append(
                [step, "stage", str(stage), *map(max, zip(*own, strict=True)), *(["NA"] * 3 if pp_index else [])]
            )
    return rows


def write_steps(folder: Path, rows: list[list[Any]], *, pp_index: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cluster_step_trace_time.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*HEADER.split(","), *(["DP Index", "PP Index", "TP Index"] if pp_index else [])])
        writer.writerows(rows)
    return folder


def write_text(folder: Path, **how: bool) -> Path:
    """What the tool writes of text exports."""
    write_steps(folder, step_rows(**how), pp_index=how.get("pp_index", True))
    filed = {str(ranks): {step: {**ops, "Total Op Info@1": {}} for step, ops in steps.items()}
             for ranks, steps in operations().items()}  # fmt: skip
    (folder / "cluster_communication.json").write_text(json.dumps(filed))
    links = {str(ranks): steps for ranks, steps in matrix().items()}
    (folder / "cluster_communication_matrix.json").write_text(json.dumps(links))
    told = [{"type": "collective", "rank_set": [*ranks], "group_name": group, "group_id": "", "pg_name": ""}
            for ranks, steps in operations().items() for group in
            sorted({name.partition("@")[2] for ops in steps.values() for name in ops})]  # fmt: skip
    groups = {"collective": [[0, 1]], "p2p": [], "comm_group_parallel_info": told}
    (folder / "communication_group.json").write_text(json.dumps(groups))
    return folder


def write_db(folder: Path, name: str, time_table: str, packets: str, elapse: str, links: str) -> Path:
    """What it writes of databases; newer releases rename file, tables and a column."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = ("computing", "communication_not_overlapped", "overlapped", "communication", "free", "stage", "bubble",
             "communication_not_overlapped_and_exclude_receive", "preparing")  # fmt: skip
    with closing(sqlite3.connect(folder / name)) as db:
        columns = ", ".join(f'"{c}"' for c in ("step", "type", "index", *parts, "dp_index", "pp_index", "tp_index"))
        db.execute(f"CREATE TABLE ClusterStepTraceTime ({columns})")
        db.executemany(f"INSERT INTO ClusterStepTraceTime VALUES ({','.join('?' * 15)})", step_rows())
        db.execute(f"CREATE TABLE {time_table} (step, rank_id, hccl_op_name, group_name, start_timestamp, {elapse}, "
                   "transit_time, wait_time, synchronization_time, idle_time)")  # fmt: skip
        db.execute(f"CREATE TABLE {packets} (step, rank_id, hccl_op_name, group_name, band_type, transit_size, "
                   "transit_time, bandwidth, large_packet_ratio, package_size, count, total_duration)")  # fmt: skip
        db.execute(f"CREATE TABLE {links} (step, hccl_op_name, group_name, src_rank REAL, dst_rank REAL, transit_size, "
                   "transit_time, bandwidth, transport_type, op_name)")  # fmt: skip
        for steps in matrix().values():
            for step, keys in steps.items():
                for key, uses in keys.items():
                    for link, use in uses.items():
                        db.execute(f"INSERT INTO {links} VALUES ({','.join('?' * 10)})", (
                            step, *key.split("@"), *map(float, link.split("-")), use["Transit Size(MB)"],
                            use["Transit Time(ms)"], 0, use["Transport Type"], use.get("Op Name")))  # fmt: skip
        db.execute("CREATE TABLE CommunicationGroupMapping (type, rank_set, group_name, group_id, pg_name)")
        for ranks, steps in operations().items():
            groups = set()
            for step, ops in steps.items():
                for op, by_rank in ops.items():
                    plain, _, group = op.partition("@")
                    groups.add(group)
                    for rank, info in by_rank.items():
                        times = info["Communication Time Info"]
                        db.execute(f"INSERT INTO {time_table} VALUES ({','.join('?' * 10)})", (
                            step, int(rank), plain, group, times["Start Timestamp(us)"], times["Elapse Time(ms)"],
                            times["Transit Time(ms)"], times["Wait Time(ms)"], times["Synchronization Time(ms)"],
                            times["Idle Time(ms)"]))  # fmt: skip
                        for transport, moved in info["Communication Bandwidth Info"].items():
                            for size, (count, total) in moved["Size Distribution"].items():
                                db.execute(f"INSERT INTO {packets} VALUES ({','.join('?' * 12)})", (
                                    step, int(rank), plain, group, transport, moved["Transit Size(MB)"],
                                    moved["Transit Time(ms)"], 0, 0, float(size), count, total))  # fmt: skip
            db.executemany("INSERT INTO CommunicationGroupMapping VALUES ('collective', ?, ?, '', '')",
                           [(f"({','.join(map(str, ranks))})", group) for group in sorted(groups)])  # fmt: skip
        db.commit()
    return folder


def waits(result: Result) -> dict[int, tuple[int, int]]:
    assert result.cluster is not None
    return {r.rank: (r.comm.wait_ns, r.comm.transfer_ns) for r in result.cluster.ranks}


def document(result: Result) -> dict[str, Any]:
    found = json.loads(render(result, "json"))
    return {key: value for key, value in found.items() if key not in ("input", "workload")}


def without_sources(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_sources(v) for k, v in value.items() if k not in ("source", "messages")}
    if isinstance(value, str):  # the path in commands
        return re.sub(r"npuperf analyze \S+", "npuperf analyze", value)
    return [without_sources(v) for v in value] if isinstance(value, list) else value


def test_the_job_is_that_of_its_ranks(tmp_path: Path) -> None:
    """Waits, transfers, steps and the slow stage are those that kernels and communication of the ranks tell."""
    folder = write_text(tmp_path / "cluster_analysis_output")
    summed = analyze_path(folder)
    own = analyze_path(SAMPLE)
    assert {*map(Path, summed.input.files)} == {*folder.iterdir()}
    assert summed.cluster is not None and own.cluster is not None
    assert waits(summed).keys() == waits(own).keys() == {0, 1, 2, 3}
    for rank, (wait, transfer) in waits(own).items():
        assert waits(summed)[rank] == (pytest.approx(wait, rel=0.01), pytest.approx(transfer, rel=0.01))
    assert summed.cluster.step_ns == pytest.approx(own.cluster.step_ns, rel=0.001)
    assert [s.ranks for s in summed.cluster.stages] == [s.ranks for s in own.cluster.stages] == [[0, 1], [2, 3]]
    # Computing of step_trace_time.csv: both steps, the mean of a stage's ranks
    for stage, ranks in zip(summed.cluster.stages, ([0, 1], [2, 3]), strict=True):
        rows = [float(row["Computing"]) for rank in ranks for row in split_of(rank)]
        assert stage.compute_ns == pytest.approx(1000 * sum(rows) / len(ranks), rel=1e-4)
    assert summed.verdict.bound == own.verdict.bound == "compute" and "stage 1 is the longest" in str(
        summed.verdict.reason
    )
    text = render(summed, "text", View(width=200))
    assert "one rank alone" not in text and "cannot tell transfer" not in text
    assert not [str(m) for m in summed.input.missing if "matrix" in str(m)]
    # Which links are between the same machines only the ranks' own files tell: those are held against a single peer.
    clusters = summed.cluster, own.cluster
    carried = [[replace(link, peers_gb_per_s=None, lost_ns=0) for link in c.links] for c in clusters]
    assert carried[0] == carried[1] and len(own.cluster.links) == 6 and not any(link.slow for link in own.cluster.links)
    assert {(link.peers_gb_per_s, link.lost_ns) for link in summed.cluster.links} == {(None, 0)}
    one, two = (link for link in own.cluster.links if link.transport == "RDMA")
    assert (one.peers_gb_per_s, two.peers_gb_per_s) == (two.gb_per_s, one.gb_per_s)


@pytest.mark.parametrize(
    "names",
    [
        (
            "cluster_analysis.db",
            "ClusterCommunicationTime",
            "ClusterCommunicationBandwidth",
            "elapsed_time",
            "ClusterCommunicationMatrix",
        ),
        (
            "cluster_communication_analyzer.db",
            "ClusterCommAnalyzerTime",
            "ClusterCommAnalyzerBandwidth",
            "elapse_time",
            "ClusterCommAnalyzerMatrix",
        ),
    ],
    ids=["newer", "older"],
)
def test_databases_tell_what_text_tells(tmp_path: Path, names: tuple[str, str, str, str, str]) -> None:
    text = analyze_path(write_text(tmp_path / "text" / "cluster_analysis_output"))
    base = analyze_path(write_db(tmp_path / "db" / "cluster_analysis_output", *names))
    assert without_sources(document(base)) == without_sources(document(text))
    (file,) = [f for f in base.input.files if f.endswith(names[0])][:1]
    assert Path(file).exists()


def test_links_of_a_rank_are_those_of_its_own_file(tmp_path: Path) -> None:
    """Ranks are those of the run in the tool's matrix, and those of a group in the rank's own."""

    def links(path: Path) -> list[set[tuple[Any, ...]]]:
        uses = [profile.communication.links for profile in open_recording(path).profiles]
        return [{(use.step[i], use.type[i], use.group[i], use.transport[i], use.source[i], use.target[i], use.bytes[i],
                  use.ns[i], use.name[i]) for i in range(len(use))} for use in uses]  # fmt: skip

    own = links(SAMPLE)
    assert links(write_text(tmp_path / "cluster_analysis_output")) == own
    assert {(source, target) for uses in own for *_, source, target, _, _, _ in uses} == {
        (0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)
    }  # fmt: skip


def test_a_matrix_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """Cut short it costs the links and nothing else; without operations there is no job whose links they are."""
    folder = write_text(tmp_path / "cluster_analysis_output")
    file = folder / "cluster_communication_matrix.json"
    whole = file.read_text()
    file.write_text(whole[:5000])
    cut = analyze_path(folder)
    assert cut.cluster is not None and waits(cut).keys() == {0, 1, 2, 3}
    assert ["cluster_communication_matrix.json: damaged" in str(w) for w in cut.input.warnings] == [True]
    file.write_text(whole)
    (folder / "cluster_communication.json").unlink()
    (told,) = [str(m) for m in analyze_path(folder).input.missing if "matrix" in str(m)]
    assert told == "cluster_communication_matrix.json is not used: links are told with cluster_communication.json"


@pytest.mark.parametrize(("pp_index", "stages", "known"), [
    (True, True, True), (True, False, True), (False, True, True), (False, False, False),
])  # fmt: skip
def test_stages_come_from_the_pp_index_or_the_rows_of_stages(
    tmp_path: Path, pp_index: bool, stages: bool, known: bool
) -> None:
    """Rows of stages name their ranks and are none themselves."""
    rows = step_rows(pp_index=pp_index, stages=stages)
    folder = write_steps(tmp_path, rows, pp_index=pp_index)
    profiles = open_recording(folder).profiles
    assert [p.rank for p in profiles] == [0, 1, 2, 3]
    assert [p.stage for p in profiles] == ([0, 0, 1, 1] if known else [None] * 4)
    assert [[s.compute for s in p.vendor_steps] for p in profiles] == [
        [round(1000 * float(row["Computing"])) for row in split_of(rank)] for rank in range(4)
    ]


def test_indices_that_a_database_was_padded_with_are_no_stages(tmp_path: Path) -> None:
    """Without the program's sizes the tool fills its last three columns with zeros; rows of stages still tell."""
    rows = [[*row[:-3], 0, 0, 0] for row in step_rows()]
    profiles = open_recording(write_steps(tmp_path, rows)).profiles
    assert [p.stage for p in profiles] == [0, 0, 1, 1]


# --- sums alone ------------------------------------------------------------------------------------------------------

#: µs of a step of 1 s: per stage (four ranks each) compute, communication without receives, receives.
PIPELINE = (
    (500_000, 100_000, 200_000),
    (500_000, 100_000, 140_000),
    (500_000, 100_000, 80_000),
    (620_000, 100_000, 20_000),
)


def sixteen(folder: Path, *, late: int | None = None, parts: tuple[tuple[int, int, int], ...] = PIPELINE) -> Path:
    """Sixteen ranks in four stages; ``late``: a rank for which the others of its stage wait 60 ms in collectives."""
    rows: list[list[Any]] = []
    for step in (7, 8):
        for rank in range(16):
            compute, collective, bubble = parts[rank // 4]
            if late is not None and rank // 4 == late // 4 and rank != late:
                collective += 60_000
            exposed = collective + bubble
            free = 1_000_000 - compute - exposed
            rows.append([step, "rank", rank, compute, exposed, 0, exposed, free, 1_000_000 - bubble, bubble, collective,
                         200, rank % 4, rank // 4, 0])  # fmt: skip
        for stage in range(4):
            own = [row[3:12] for row in rows if row[0] == step and row[1] == "rank" and row[2] // 4 == stage]
            members = str(tuple(range(4 * stage, 4 * stage + 4)))
            rows.append([step, "stage", members, *map(max, zip(*own, strict=True)), "NA", "NA", "NA"])
        rows = [row for row in rows if row[1] == "rank"] + [row for row in rows if row[1] == "stage"]
    return write_steps(folder, rows)


def screen(result: Result) -> str:
    return re.sub(r"\s+", " ", render(result, "text", View(width=160)))


def test_pipeline_bubbles_of_sums_are_said(tmp_path: Path) -> None:
    """Receives are 20, 14, 8 and 2 % of the stages' time, 11 % of all; stage 3 computes 620 of 530 ms on average."""
    result = analyze_path(sixteen(tmp_path))
    said = str(result.verdict.reason)
    assert "11.0 % of the ranks' time is in receives from other pipeline stages" in said
    assert "stage 0: 20.0 %, stage 1: 14.0 %, stage 2: 8.0 %, stage 3: 2.0 %" in said
    assert "stage 3 computes 1.24 s, 1.17 times the stages' mean" in said
    assert "waiting for other ranks" not in said, "all ranks of a stage communicate as long"
    assert [(d.rank, d.stage, d.bubble_ns) for d in result.devices] == [
        (rank, rank // 4, 2 * 1000 * PIPELINE[rank // 4][2]) for rank in range(16)
    ]
    assert "one rank alone" not in screen(result) and "load all ranks" not in screen(result)


def test_waiting_is_what_a_rank_communicates_beyond_its_stage(tmp_path: Path) -> None:
    """Three of sixteen ranks wait 60 ms of each second: 3 × 60 / 16 000 = 1.1 % of all ranks' time."""
    said = str(analyze_path(sixteen(tmp_path, late=5)).verdict.reason)
    assert "at least 1.1 % of their time is waiting for other ranks, if ranks of one stage transfer the same" in said
    assert "rank 5 for 200.00 ms" in said, "the late one waits least: 2 steps of 100 ms"


def test_ranks_in_the_same_state_get_the_same_verdict(tmp_path: Path) -> None:
    """On either side of the border between compute and communication, by a thousandth: one state, one verdict."""
    rows: list[list[Any]] = []
    for rank in range(16):
        compute, exposed = (495_000, 496_000) if rank % 2 else (496_000, 495_000)
        free = 1_000_000 - compute - exposed
        rows.append(["1", "rank", rank, compute, exposed, 0, exposed, free, 1_000_000, 0, exposed, 0])
    result = analyze_path(write_steps(tmp_path, rows, pp_index=False))
    assert len({d.verdict.bound for d in result.devices}) == 1
    assert "16 ranks in this state" in str(result.devices[0].verdict.reason)
    # one that splits its time otherwise is judged by itself
    rows[3][3:5], rows[3][7] = [900_000, 50_000], 50_000
    result = analyze_path(write_steps(tmp_path / "odd", rows, pp_index=False))
    assert "in this state" not in str(result.devices[3].verdict.reason) and result.devices[3].verdict.bound == "compute"


def test_communication_without_steps_is_no_job(tmp_path: Path) -> None:
    folder = write_text(tmp_path / "cluster_analysis_output")
    (folder / "cluster_step_trace_time.csv").unlink()
    with pytest.raises(InputError, match="without their steps"):
        analyze_path(folder)


def test_a_damaged_communication_file_costs_only_itself(tmp_path: Path) -> None:
    folder = write_text(tmp_path / "cluster_analysis_output")
    whole = (folder / "cluster_communication.json").read_text()
    (folder / "cluster_communication.json").write_text(whole[: len(whole) // 2])
    result = analyze_path(folder)
    assert len(result.devices) == 4 and result.cluster is None
    assert any("damaged or cut short" in str(w) for w in result.input.warnings)


def test_the_public_example() -> None:
    """Eight ranks, one stage: what they communicate beyond the 133.46 ms of rank 1 is 18.9 % of their 13.69 s."""
    if not PUBLIC.is_dir():
        pytest.skip("public recordings are not here")
    rows = list(csv.DictReader(io.StringIO((PUBLIC / "cluster_step_trace_time.csv").read_text())))
    ranks = [row for row in rows if row["Type"] == "rank"]
    spent = [float(row["Communication"]) for row in ranks]
    span = sum(float(row[c]) for row in ranks for c in ("Computing", "Communication(Not Overlapped)", "Free"))
    share = 100 * sum(own - min(spent) for own in spent) / span
    result = analyze_path(PUBLIC)
    assert f"at least {share:.1f} % of their time is waiting for other ranks" in str(result.verdict.reason)
    assert "rank 5 communicates for 763.60 ms, rank 1 for 133.46 ms" in str(result.verdict.reason)
    assert [d.rank for d in result.devices] == [*range(8)] and {d.stage for d in result.devices} == {None}
    assert "one rank alone" not in screen(result) and "receives" not in str(result.verdict.reason)

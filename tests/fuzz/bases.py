"""Sound inputs of every kind, small: what is damaged afterwards."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import held
from aoe_results import GROUPED, LISTED, SUBGRAPHS
from build import EPOCH, HEADER, H, K, ascend_pt, events, kernel_details, row
from inputs import database
from memory_plan import MIB, Block, Plan, write_memory
from memory_snapshot import Allocator, dump
from workplace import bank, record

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
PAIR = (("MatMulV2", "AI_CORE", 20), ("Add", "AI_VECTOR_CORE", 40), ("Cast", "AI_VECTOR_CORE", 8))
STEPS = {11: (-20_000, 230_000), 12: (230_000, 520_000)}
HOST = [H("AscendCL@Add_Tiling", 1_000, 500), H("Runtime@KernelLaunch", 2_000, 100)]
TORCH_HOST = [
    H("aten::add", 1_000, 5_000, python=True),
    H("train.py(7): step", 0, 300_000, python=True),
    H("AscendCL@aclrtLaunch", 2_000, 100),
]


def kernels() -> list[K]:
    """Two steps of twelve kernels, every sixth a collective."""
    made = []
    for i in range(24):
        type_, core, block = PAIR[i % len(PAIR)]
        start, step = i * 20_000, 11 if i < 12 else 12
        launch = {"step": step, "launch": start - 9_000, "launch_dur": 1_000}
        if i % 6 == 5:
            made.append(
                K(start, 9_000 + i, f"hcom_allReduce__1_{i}_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, **launch)
            )
        else:
            made.append(K(start, 5_000 + i, f"{type_}_{i}", type_, core, 2 + i % 2, block, shapes="2,3;3,4", **launch))
    return made


def whole(root: Path) -> Path:
    """A result folder of torch_npu."""
    return ascend_pt(root, kernels(), STEPS, cores="24,48", host=TORCH_HOST)


def bare_table(root: Path) -> Path:
    return kernel_details(root / "kernel_details.csv", kernels())


def op_summary(root: Path) -> Path:
    """A table as msprof writes it, with counters."""
    header = HEADER.replace("Start Time", "Task Start Time").replace("Duration", "Task Duration")
    lines = [f"{header},aicore_time(us),aic_mac_ratio,aic_total_cycles,cube_utilization(%)"]
    lines += [f"{row(k)},{k.dur / 2000},0.5,1000,{50 + i}" for i, k in enumerate(kernels())]
    path = root / "PROF_000001_20250101000000000_X" / "mindstudio_profiler_output" / "op_summary_20250101000000.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\r\n".join(lines) + "\r\n", newline="")
    return path


def with_step_times(root: Path) -> Path:
    folder = whole(root)
    text = (SAMPLES / "pipeline_job/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv").read_text()
    rows = [f"0,{step},30.5,10.25,2.5,12.75,5.125,45.875,0,10.25,1.5" for step in (11, 12)]  # no more than its kernels
    written = "\n".join([text.splitlines()[0], *rows]) + "\n"
    (folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").write_text(written)
    return folder


def with_memory(root: Path) -> Path:
    """A result folder with the files of memory: blocks of which one waits, one stays, one was there before."""
    blocks = (Block(10_000, 90_000, 300 * MIB, "aten::mm"), Block(20_000, 30_000, 50 * MIB, "aten::add", 5_000))
    plan = Plan(1000 * MIB, (*blocks, Block(40_000, None, 512, "aten::add")), older=((35_000, 100 * MIB),))
    folder = whole(root)
    write_memory(plan, folder / "ASCEND_PROFILER_OUTPUT")
    return folder


def snapshot(root: Path) -> Path:
    """A snapshot of memory, whose history begins with a block in use."""
    allocator = Allocator()
    allocator.recording = False
    older = allocator.malloc(40 * MIB)
    allocator.recording = True
    for size in (1 << 10, 3 * MIB, 30 * MIB):
        allocator.free(allocator.malloc(size, 7, ("/home/u/train.py", 3, "step")), waits=size == 3 * MIB)
    allocator.free(older)
    allocator.empty_cache()
    return dump(allocator.snapshot(), root / "snapshot.pickle")


def with_summaries(root: Path) -> Path:
    """A result folder with what the exporter summed and suggested itself, in the forms of several years."""
    folder = whole(root)
    files = {
        "api_statistic.csv": "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n"
        "host,acl,aclrtMemcpy,1700.5,2,850.25,1.5,1699,0\nhost,node,launch,30,3,10,5,20,1\n",
        "ge_op_execute_0_1.csv": "Thread ID,OP Name,OP Type,Event Type,Start Time,Duration(us)\n"
        "1,conv,Conv2D,tiling,10,2.5\n1,relu,Relu,infer_shape,20,1.5\n",
        "msprof_tx_20250101000000.csv": "pid,tid,Start_time(us),End_time(us),message\n1,1,1000.5,4000,epoch\n",
        "prof_rule_0.json": '{"status": 0, "data": [{"Rule Type": "Memory", "result": [{"Rule Subtype": "L2", '
        '"Rule Suggestion": "use fewer copies", "Op List": ["conv", "relu"]}]}]}',
    }
    (folder / "summary").mkdir()
    for name, text in files.items():
        (folder / "summary" / name).write_text(text)
    return folder


def described(root: Path) -> Path:
    """Operators that a file describes, for tuning."""
    path = root / "ops.json"
    shape = '{"format": "ND", "shape": [8, 16], "type": "float16"}'
    path.write_text(f'[{{"op": "Add", "input_desc": [{shape}, {shape}], "output_desc": [{shape}]}}]')
    return path


def cluster_steps(root: Path) -> Path:
    header = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
    rows = [f"{s},rank,{r},{50 + r}.5,20.25,3.5,23.75,{9 - r},70.75,1.5" for s in (11, 12) for r in range(4)]
    path = root / "cluster_step_trace_time.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def bare_trace(root: Path) -> Path:
    path = root / "trace_view.json"
    path.write_text(json.dumps(events(kernels(), STEPS)))
    return path


def first_level(root: Path) -> Path:
    """A Level0 recording: kernels without operators, launches or flows."""
    path = root / "trace_view.json"
    path.write_text(json.dumps([e for e in events(kernels()) if e.get("pid") != 2 and e["ph"] in "MX"]))
    return path


def kineto(root: Path) -> Path:
    """A trace of PyTorch with CUDA kernels, in an object."""
    made: list[dict[str, object]] = []
    for i, k in enumerate(kernels(), 1):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "dur": 1.0}
        made.append({**call, "ts": (EPOCH + k.start - 9_000) / 1000, "args": {"correlation": i, "External id": i}})
        task = {"ph": "X", "cat": "kernel", "name": k.name, "pid": 0, "tid": 7, "dur": k.dur / 1000}
        made.append({**task, "ts": (EPOCH + k.start) / 1000, "args": {"correlation": i, "device": 0, "stream": 7}})
    path = root / "trace.json"
    header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "distributedInfo": {"rank": 0}}
    path.write_text(json.dumps({**header, "traceEvents": made}))
    return path


def packed(root: Path) -> Path:
    plain = kineto(root)
    path = root / "trace.json.gz"
    path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return path


def add(path: Path, script: str, **rows: list[tuple[object, ...]]) -> Path:
    """Add tables and rows to a database."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
        for table, values in rows.items():
            connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(values[0]))})", values)
    return path


def torch_db(root: Path) -> Path:
    """The database of torch_npu: tasks, operators with their stacks, counters, copies, links, groups."""
    path = root / "ascend_pytorch_profiler_4.db"
    steps = [(number, *ends) for number, ends in STEPS.items()]
    database(path, kernels(), "blockNum", HOST, steps)
    thread, collective = (5 << 32) + 12, [i for i, k in enumerate(kernels()) if k.core == "COMMUNICATION"]
    names = ["aten::add", "aten::mm", "train.py(7): step", "aic_mac_ratio", "ProfilerStep#11", "Memcpy", "group_name_5"]
    strings = {name: 1000 + i for i, name in enumerate(names)}
    calls = [
        (EPOCH + i * 20_000 - 9_500, EPOCH + i * 20_000 - 7_000, thread, 500 + i, strings["aten::add"], 1, 50001)
        for i in range(24)
    ]
    groups = {"group_name_5": {"group_name": "dp", "group_rank": 0, "global_ranks": [4, 5]}}
    add(
        path,
        "CREATE TABLE PYTORCH_API(startNs, endNs, globalTid, connectionId, name, callchainId, type);"
        "CREATE TABLE PYTORCH_CALLCHAINS(id, stack, stackDepth); CREATE TABLE CONNECTION_IDS(id, connectionId);"
        "CREATE TABLE MSTX_EVENTS(startNs, endNs, globalTid, message);"
        "CREATE TABLE GC_RECORD(startNs, endNs, globalTid);"
        "CREATE TABLE TASK_PMU_INFO(globalTaskId, name, value); CREATE TABLE META_DATA(name, value);"
        "CREATE TABLE MEMCPY_INFO(globalTaskId, size, memcpyOperation); CREATE TABLE ENUM_MEMCPY_OPERATION(id, name);"
        "CREATE TABLE HOST_INFO(hostUid, hostName); CREATE TABLE ENUM_HCCL_LINK_TYPE(id, name);"
        "CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE(id, name); CREATE TABLE ENUM_HCCL_RDMA_TYPE(id, name);"
        "CREATE TABLE COMMUNICATION_TASK_INFO(globalTaskId, taskType, planeId, rdmaType, srcRank, dstRank,"
        " transportType, linkType, size, opId);"
        "ALTER TABLE COMMUNICATION_OP ADD groupName;"
        f"UPDATE COMMUNICATION_OP SET groupName = {strings['group_name_5']};"
        "ALTER TABLE COMMUNICATION_OP ADD opId; UPDATE COMMUNICATION_OP SET opId = connectionId;",
        STRING_IDS=[(number, name) for name, number in strings.items()],
        PYTORCH_API=[*calls, (EPOCH - 20_000, EPOCH + 230_000, thread, None, strings["ProfilerStep#11"], None, 50001)],
        PYTORCH_CALLCHAINS=[(1, strings["train.py(7): step"], 0)],
        CONNECTION_IDS=[(500 + i, i) for i in range(24)],
        MSTX_EVENTS=[(EPOCH, EPOCH + 500, thread, strings["aten::mm"])],
        GC_RECORD=[(EPOCH + 30_000, EPOCH + 31_000, thread)],
        TASK_PMU_INFO=[(i, strings["aic_mac_ratio"], 0.25) for i in range(24) if i not in collective],
        MEMCPY_INFO=[(0, 4096, 1)],
        ENUM_MEMCPY_OPERATION=[(1, "device to host")],
        HOST_INFO=[("1", "node0")],
        META_DATA=[("ENV_VARIABLES", json.dumps({"HCCL_ALGO": "ring"})), ("parallel_group_info", json.dumps(groups))],
        ENUM_HCCL_LINK_TYPE=[(1, "HCCS")],
        ENUM_HCCL_TRANSPORT_TYPE=[(1, "SDMA")],
        ENUM_HCCL_RDMA_TYPE=[(1, "RDMA_SEND_PAYLOAD")],
        COMMUNICATION_TASK_INFO=[(i - 1, strings["Memcpy"], 0, 0, 0, 1, 1, 1, 1 << 20, i) for i in collective],
    )
    return path


def msprof_db(root: Path) -> Path:
    path = root / "PROF_000001_20250101000000000_X" / "msprof_20250101000000.db"
    path.parent.mkdir()
    return database(path, kernels(), "blockDim", HOST, [(number, *ends) for number, ends in STEPS.items()])


def analysis_db(root: Path) -> Path:
    folder = whole(root)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "analysis.db"
    start = EPOCH / 1000
    group, kind, times = "group_name_5", ("step11", "collective"), (0.009, 0.004, 0.003, 0.001, 0.002)
    ops = [(f"hcom_allReduce__1_{i}_1", group, start + i * 20, *times, *kind) for i in (5, 11)]
    add(
        path,
        "CREATE TABLE StepTraceTime(deviceId, step, computing, communication_not_overlapped, communication, free,"
        " bubble);"
        "CREATE TABLE CommAnalyzerTime(hccl_op_name, group_name, start_timestamp, elapse_time, transit_time, wait_time,"
        " synchronization_time, idle_time, step, type);"
        "CREATE TABLE CommAnalyzerBandwidth(hccl_op_name, group_name, transport_type, transit_size, transit_time,"
        " bandwidth, large_packet_ratio, package_size, count, total_duration, step, type);"
        "CREATE TABLE CommAnalyzerMatrix(hccl_op_name, group_name, src_rank, dst_rank, transport_type, transit_size,"
        " transit_time, bandwidth, step, type, op_name)",
        StepTraceTime=[(0, 11, 30.5, 10.25, 12.75, 5.125, 0.5), (0, 12, 30.5, 10.25, 12.75, 5.125, 0.5)],
        CommAnalyzerTime=ops,
        CommAnalyzerBandwidth=[(op[0], group, "HCCS", 8.0, 0.004, 12.0, 0, 8.0, 1, 0.004, *kind) for op in ops],
        CommAnalyzerMatrix=[(op[0], group, 0, 1, "HCCS", 8.0, 0.004, 12.0, *kind, op[0]) for op in ops],
    )
    return folder


MANIFEST = {
    "schema_version": "2.0", "tool": {"name": "npuperf", "version": "0.1.0"}, "created": "2026-01-01T00:00:00+00:00",
    "argv": ["npuperf", "profile"], "command": ["python", "train.py"], "host": {"name": "node0", "system": "Linux",
    "cpus": 8}, "versions": {"cann": "8.5.0", "torch": "2.7.1", "torch_npu": "2.7.1"},
    "environment": {"HCCL_ALGO": "ring"}, "options": {"stack": True, "shapes": True, "memory": False},
    "soc": "Ascend910B3", "cores_cube": 20, "cores_vector": 40, "stages": {"run": {"status": "done",
    "exit_status": 0, "seconds": 3.5}}, "processes": [], "warnings": [], "overhead": {"inside_ns": 110,
    "outside_ns": 100, "inside": 2, "outside": 9}, "data": ["data"],
}  # fmt: skip


def run_folder(root: Path) -> Path:
    """What a run leaves: the manifest above its data, options and environment as torch_npu tells them."""
    folder = whole(root / "run" / "data")
    rank = SAMPLES / "pipeline_job" / "rank_0_ascend_pt"
    for name in ("profiler_info_0.json", "profiler_metadata.json"):
        shutil.copyfile(rank / name, folder / name)
    (root / "run" / "npuperf.json").write_text(json.dumps(MANIFEST))
    return root / "run"


def job(root: Path) -> Path:
    """Two ranks of the sample, with what links and operations moved."""
    for rank in (0, 2):
        shutil.copytree(SAMPLES / "pipeline_job" / f"rank_{rank}_ascend_pt", root / "job" / f"rank_{rank}_ascend_pt")
    return root / "job"


def clustered(root: Path) -> Path:
    """The job, with what the vendor's cluster tool wrote of its groups."""
    tool = job(root) / "cluster_analysis_output"
    tool.mkdir()
    name = "5862276118985285394"
    named = [{"type": "p2p", "rank_set": [0, 2], "group_name": name, "group_id": "group_name_6", "pg_name": "pp"}]
    groups = {"collective": [[0, 1], [2, 3]], "p2p": [[0, 2]], "comm_group_parallel_info": named}
    (tool / "communication_group.json").write_text(json.dumps(groups))
    add(
        tool / "cluster_analysis.db",
        "CREATE TABLE CommunicationGroupMapping(type, rank_set, group_name, group_id, pg_name)",
        CommunicationGroupMapping=[("p2p", "(0,2)", name, "group_name_6", "pp")],
    )
    return root / "job"


def aoe_results(root: Path) -> Path:
    for name, content in (("opat", LISTED), ("sgat", SUBGRAPHS)):
        (root / f"aoe_result_{name}_20260101120000000_pid7.json").write_text(json.dumps(content, indent=1))
    return root


def two_results(root: Path) -> Path:
    for name, content in (("one", LISTED), ("two", GROUPED)):
        (root / name).mkdir()
        (root / name / "aoe_result_opat_20260101120000000_pid7.json").write_text(json.dumps(content, indent=1))
    return root


def two_banks(root: Path) -> Path:
    bank(root / "one", [record(i, i) for i in range(5)], cann="8.5.0")
    bank(root / "two", [record(i, i + (i == 3)) for i in range(1, 6)], cann="8.5.0")
    return root


def tuning_run(root: Path) -> Path:
    """A run directory with a finished tuning."""
    run = run_folder(root)
    folder = run / "tune" / "20260101-120000"
    folder.mkdir(parents=True)
    aoe_results(folder)
    job = {
        "mode": "op",
        "source": {"type": "ModelFile", "file": "net.onnx"},
        "types": ["Add"],
        "repeat": False,
        "deep": False,
    }
    programs = [{"argv": ["aoe", "--job_type=2"], "environment": {"TUNE_BANK_PATH": "bank"}}]
    state = {"status": "done", "mode": "op", "job": job, "place": "bank", "soc": "Ascend910B3", "cann": "8.5.0",
             "step": 1, "programs": programs, "program": {"pid": 999_999, "began": 1.5}, "exit_status": 0}  # fmt: skip
    (folder / "state.json").write_text(json.dumps(state, indent=1))
    return run


RECIPE = """description: what we look at
analyze:
  top: 5
  full: true
  soc: Ascend910B3
  what-if: ["host*0.5"]
output:
  format: json
rules: [small_kernels, ai_cpu]
thresholds:
  idle_share: 0.2
"""


def recipe(root: Path) -> Path:
    (root / "ours.yaml").write_text(RECIPE)
    return bare_table(root)


LOG = (
    "[WARNING] GE(7,python):2026-01-01-00:00:00.000.000 [x.cc:7]7 Run:SuperKernel sub op Add_1 cannot fuse: stream {n}"
)


def two_runs(root: Path) -> Path:
    """A profile, an earlier one to hold it against, and CANN's log."""
    whole(root / "now")
    whole(root / "before")
    (root / "plog-7_20260101.log").write_text("\n".join(LOG.format(n=n) for n in range(9)) + "\n")
    return root


@dataclass(frozen=True)
class Kind:
    """A kind of input: how it is made, what of it is damaged (a pattern), who reads it, how often it has its turn.

    ``schema``: of the document that is made of it; ``writes``: how the paths of what the command writes begin.
    """

    build: Callable[[Path], Path]
    damaged: str
    command: tuple[str, ...] = ("analyze", "{root}")
    weight: int = 4
    schema: str = "result"
    writes: tuple[str, ...] = ()


#: Where what is remembered of a run arrives; some damage puts the folder behind a link beside it.
_KEPT = ("kept/candidates", "kept/elsewhere", "kept/.elsewhere")
KINDS = {
    "kernel_details": Kind(whole, "**/kernel_details.csv"),
    "bare_table": Kind(bare_table, "*.csv"),
    "op_summary": Kind(op_summary, "**/op_summary*.csv"),
    "step_trace_time": Kind(with_step_times, "**/step_trace_time.csv", weight=2),
    "memory": Kind(with_memory, "**/*mem*.csv"),
    "snapshot": Kind(snapshot, "*.pickle", weight=2),
    "summaries": Kind(with_summaries, "**/summary/*", weight=2),
    "cluster_steps": Kind(cluster_steps, "*.csv", weight=2),
    "trace_view": Kind(whole, "**/trace_view.json"),
    "bare_trace": Kind(bare_trace, "*.json"),
    "first_level": Kind(first_level, "*.json", weight=2),
    "kineto": Kind(kineto, "*.json"),
    "packed": Kind(packed, "*.gz", weight=2),
    "torch_db": Kind(torch_db, "*.db", weight=24),
    "msprof_db": Kind(msprof_db, "**/*.db", weight=9),
    "analysis_db": Kind(analysis_db, "**/*.db", weight=9),
    "context": Kind(run_folder, "**/profiler_*.json"),
    "info": Kind(run_folder, "**/info.json.*", weight=2),
    "manifest": Kind(run_folder, "**/npuperf.json", ("analyze", "{root}/run"), 2),
    "communication": Kind(job, "**/communication.json", weight=3),
    "matrix": Kind(job, "**/communication_matrix.json", weight=3),
    "groups": Kind(clustered, "job/cluster*/*", weight=2),
    "before": Kind(two_runs, "before/**/*.*", ("analyze", "{root}/now", "--before", "{root}/before"), 2),
    "log": Kind(two_runs, "*.log", ("analyze", "{root}/now", "--before", "{root}/before", "--plog", "{root}"), 1),
    "folder": Kind(run_folder, "**/*", weight=4),
    "job_folder": Kind(job, "**/*", weight=4),
    "aoe_result": Kind(aoe_results, "*.json", ("tune", "--from", "{root}"), schema="tuning"),
    "aoe_diff": Kind(two_results, "**/*.json", ("tune", "--diff", "{root}/one", "{root}/two"), 2, "result_changes"),
    "bank": Kind(two_banks, "**/*.json", ("tune", "--diff", "{root}/one", "{root}/two"), 3, "bank_changes"),
    "merge": Kind(
        two_banks, "**/*.json", ("tune", "--merge", "{root}/one", "{root}/two", "--into", "{root}/../into"), 2, "merged"
    ),
    "state": Kind(tuning_run, "**/state.json", ("tune", "--from", "{root}/run"), 2, "tuning"),
    "tuned_run": Kind(tuning_run, "run/**/*.json", ("tune", "--from", "{root}/run"), 2, "tuning"),
    "described": Kind(
        described,
        "*.json",
        ("tune", "--mode", "op", "--singleop", "{root}/ops.json", "--soc", "Ascend910B3", "--dry-run", "--force"),
        1,
        "tune_plan",
    ),
    "recipe": Kind(recipe, "*.yaml", ("analyze", "{root}/kernel_details.csv", "--recipe", "{root}/ours.yaml"), 3),
    "result": Kind(held.against_result, "old.json", held.AGAINST_RESULT, 4),
    "baseline": Kind(held.against_baseline, "kept/*.json", held.AGAINST_BASELINE, 4, writes=_KEPT),
    "candidates": Kind(held.against_baseline, "kept/candidates/*.json", held.AGAINST_BASELINE, 2, writes=_KEPT),
    "kept_folder": Kind(held.against_baseline, "kept/**/*", held.AGAINST_BASELINE, 2, writes=_KEPT),
    "lock": Kind(held.against_lock, "perf.lock", held.AGAINST_LOCK, 4),
    "relock": Kind(held.against_lock, "perf.lock", held.RELOCKED, 2, writes=("perf.lock",)),
    "gates": Kind(held.with_gates, "gates.yaml", held.WITH_GATES, 4),
    "compared": Kind(held.two_runs, "now/**/*.*", held.AGAINST_RUN, 4),
    "compared_jobs": Kind(held.jobs, "now/**/*.*", held.JOBS, 2),
}

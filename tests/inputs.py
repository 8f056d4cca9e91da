"""One small run in the layouts of other exporters: op_summary tables and databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from build import EPOCH, HEADER, H, K, row

KERNELS = [
    K(0, 5_000, "a", "MatMul", "AI_CORE", block=20, step=11, launch=-9_000, launch_dur=1_000),
    K(20_000, 5_000, "b", "Add", step=11, launch=10_000, launch_dur=2_000),
    K(26_000, 30_000, "hcom_allReduce__1_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=11, launch=15_000),
    K(60_000, 5_000, "c", "Add", step=12, launch=40_000, launch_dur=2_000),
]


def op_summary(path: Path, kernels: list[K]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = HEADER.replace("Start Time", "Task Start Time").replace("Duration", "Task Duration")
    path.write_text("\r\n".join([header, *map(row, kernels)]) + "\r\n", newline="")
    return path


#: Two steps: number, and the host's time in them.
STEPS = ((11, -10_000, 30_000), (12, 30_000, 90_000))


def database(
    path: Path, kernels: list[K], block: str, host: Sequence[H] = (), steps: Sequence[tuple[int, int, int]] = STEPS
) -> Path:
    """The same kernels (and host events of the CANN process) as a database export would hold them."""
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    connection = sqlite3.connect(path)
    mix = block.replace("block", "mixBlock")
    connection.executescript(
        "CREATE TABLE TASK(startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId);"
        f"CREATE TABLE COMPUTE_TASK_INFO(name, globalTaskId, {block}, {mix}, taskType, opType, opState);"
        "CREATE TABLE COMMUNICATION_OP(opName, startNs, endNs, connectionId, opType, deviceId);"
        "CREATE TABLE CANN_API(startNs, endNs, type, globalTid, connectionId, name);"
        "CREATE TABLE STEP_TIME(id, startNs, endNs); CREATE TABLE RANK_DEVICE_MAP(rankId, deviceId);"
        "CREATE TABLE STRING_IDS(id, value); INSERT INTO RANK_DEVICE_MAP VALUES (4, 0);"
    )
    ranges = [(number, EPOCH + start, EPOCH + end) for number, start, end in steps]
    connection.executemany("INSERT INTO STEP_TIME VALUES (?,?,?)", ranges)
    for i, k in enumerate(kernels):
        start = EPOCH + k.start
        if k.core == "COMMUNICATION":
            values = (text(k.name), start, start + k.dur, i, text(k.type), 0)
            connection.execute("INSERT INTO COMMUNICATION_OP VALUES (?,?,?,?,?,?)", values)
        else:
            task = (start, start + k.dur, 0, i, i, text("KERNEL_AICORE"), k.stream)
            connection.execute("INSERT INTO TASK VALUES (?,?,?,?,?,?,?)", task)
            info = (text(k.name), i, k.block, k.mix, text(k.core), text(k.type), text(k.state))
            connection.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (?,?,?,?,?,?,?)", info)
        if k.launch is not None:
            launch = (EPOCH + k.launch, EPOCH + k.launch + k.launch_dur, 10000, (5 << 32) + 11, i, text("launch"))
            connection.execute("INSERT INTO CANN_API VALUES (?,?,?,?,?,?)", launch)
    for h in host:
        layer, name = h.name.split("@")
        call = (
            EPOCH + h.start,
            EPOCH + h.start + h.dur,
            {"AscendCL": 20000, "Runtime": 5000}[layer],
            (5 << 32) + h.thread,
        )
        connection.execute("INSERT INTO CANN_API VALUES (?,?,?,?,NULL,?)", (*call, text(name)))
    connection.executemany("INSERT INTO STRING_IDS VALUES (?,?)", [(i, s) for s, i in strings.items()])
    connection.commit()
    connection.close()
    return path

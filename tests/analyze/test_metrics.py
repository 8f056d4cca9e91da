"""Gates of ``npuperf analyze --fail-on``: values by hand, and a pass only on evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import K, ascend_pt
from clusters import VERDICT, finding, result_of
from conftest import run_cli
from digests import digest_of
from msgspec.structs import replace

from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.against.metrics import register_all
from npuperf.base.messages import say
from npuperf.model.parts import Count, Digest
from npuperf.model.result import CoreSide, Finding, Lost, Partition, Result, Step

register_all()

US = 1_000


def profile(folder: Path) -> str:
    """Three steps of 100, 300 and 120 us: kernels without a gap, each launched long before it starts."""
    kernels, at = [], 0
    for step, parts in enumerate((10, 30, 12)):
        for _ in range(parts):
            kernels.append(K(at, 10 * US, f"k{at}", step=step, launch=at - 500 * US))
            at += 10 * US
    return str(ascend_pt(folder, kernels, cores="24,48"))


def gates(*arguments: str) -> tuple[int, list[tuple[str, float | None, str | None]]]:
    done = run_cli(["analyze", *arguments, "--format", "json"])
    found = json.loads(done.stdout)["gates"]
    return done.returncode, [(g["status"], g["value"], g["unit"]) for g in found]


@pytest.mark.parametrize(
    ("condition", "code", "status"),
    [
        ("step_time>119us", 1, "fail"),
        ("step_time>121us", 0, "pass"),
        ("step_time>=0.12ms", 1, "fail"),
        ("step_time<120000ns", 0, "pass"),
    ],
)
def test_the_step_time_is_the_median(tmp_path: Path, condition: str, code: int, status: str) -> None:
    assert gates(profile(tmp_path), "--fail-on", condition) == (code, [(status, 120 * US, "ns")])


def test_several_gates_are_judged_one_by_one(tmp_path: Path) -> None:
    code, judged = gates(profile(tmp_path), "--fail-on", "idle>1%", "--fail-on", "step_time>1us")
    assert (code, judged) == (1, [("pass", 0, "percent"), ("fail", 120 * US, "ns")])


def test_no_pass_without_evidence(tmp_path: Path) -> None:
    """Without launches idle time may be waiting for the host, and rules cannot tell: more may be there than is seen."""
    kernels = [K(i * 30 * US, 10 * US, f"k{i}", step=0) for i in range(20)]
    folder = str(ascend_pt(tmp_path, kernels, cores="24,48"))
    for condition, missing in (("host_wait>5%", "without a recorded launch"), ("findings>5", "checks cannot tell")):
        code, ((status, _, _),) = gates(folder, "--fail-on", condition)
        assert (code, status) == (4, "cannot_tell"), condition
        assert missing in run_cli(["analyze", folder, "--fail-on", condition]).stdout


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("step_tme>5ms", "did you mean step_time?"),
        ("step_time>5", "give ns, us, ms or s"),
        ("idle>5ms", "idle is a percentage"),
        ("idle", "METRIC>LIMIT"),
        ("saved<1%", "no such metric"),
    ],
)
def test_a_misspelt_gate_never_passes(tmp_path: Path, condition: str, hint: str) -> None:
    done = run_cli(["analyze", profile(tmp_path), "--fail-on", condition])
    assert (done.returncode, done.stdout) == (2, "") and hint in done.stderr


def test_what_was_read_is_not_written(tmp_path: Path) -> None:
    folder = profile(tmp_path)
    (file,) = Path(folder).rglob("kernel_details.csv")
    before = file.read_bytes()
    done = run_cli(["analyze", folder, "-o", str(file), "--force"])
    assert done.returncode == 2 and "was read for this report" in done.stderr
    assert file.read_bytes() == before


def partition(span: int, host: int = 0, unknown: int = 0, wait: int = 0, unattributed: int = 0) -> Partition:
    idle, exposed = host + unattributed, unknown + wait
    return Partition(
        span_ns=span, compute_ns=span - idle - exposed, comm_exposed_ns=exposed, other_exposed_ns=0, idle_ns=idle,
        host_wait_ns=host, launch_latency_ns=0, dependency_wait_ns=0, unattributed_ns=unattributed,
        comm_wait_ns=wait, comm_unknown_ns=unknown,
    )  # fmt: skip


def run(steps: list[list[Partition]], digest: Digest | None = None, findings: list[Finding] | None = None) -> Result:
    """A result of one device per list of steps."""
    made = result_of(None, findings=findings)
    devices = [
        replace(made.devices[0], rank=rank, device=rank, partition=partition(sum(p.span_ns for p in mine)),
                steps=[Step(step=i, start_ns=0, partition=p, verdict=VERDICT) for i, p in enumerate(mine)])
        for rank, mine in enumerate(steps)
    ]  # fmt: skip
    return replace(made, devices=devices, digest=digest)


def judged(text: str, result: Result) -> tuple[str, float | None, str]:
    gate = judge_gate(parse_gate(text, Result), result)
    return gate.status, gate.value, str(gate.reason)


def test_shares_are_of_each_step_and_of_the_worst_device() -> None:
    """One device waits for 10, 10 and 90 %, the other for 20 % always: in the middle the other is worse."""
    one = [partition(100, 10), partition(100, 10), partition(1000, 900)]
    other = [partition(100, 20)] * 3
    both = run([one, other])
    assert judged("host_wait>15%", both)[:2] == ("fail", 20)
    assert judged("mean(host_wait)>15%", both)[1] == pytest.approx(110 / 3)
    assert judged("max(host_wait)>15%", both)[:2] == ("fail", 90)
    assert judged("each(host_wait)>15%", both)[2] == "90.0 %; in 4 of 6 steps"
    assert judged("step_time>1ns", both)[1] == 100
    assert judged("max(step_time)>1ns", both)[1] == 1000


def test_communication_that_cannot_be_told_apart_leaves_it_open() -> None:
    steps = [partition(100, wait=10, unknown=30)] * 3
    device = replace(run([steps]).devices[0], partition=partition(300, wait=30, unknown=90))
    found = replace(run([steps]), devices=[device])
    assert judged("comm.exposed>39%", found)[:2] == ("fail", 40)
    assert judged("comm.wait>9%", found)[:2] == ("fail", 10)
    assert judged("comm.wait>40%", found)[:2] == ("pass", 10)  # 10 % waits, and 30 % that may be waits
    status, value, reason = judged("comm.wait>20%", found)
    assert (status, value) == ("cannot_tell", None) and "without all ranks" in reason


PARTS = {
    ("compute", "MatMulV2 [2]"): (700, 6),
    ("wait", "dp, 8 ranks"): (100, 2),
    ("transfer", "dp, 8 ranks"): (60, 2),
    ("comm_unknown", "pp, 2 ranks"): (40, 2),
    ("transfer", None): (100, 1),
}


def counted(kind: str, key: str, count: list[int], bytes: list[int] | None = None) -> Count:
    return Count(kind=kind, key=key, count=count, bytes=bytes)  # type: ignore[arg-type]


def test_figures_of_the_digest() -> None:
    counts = [
        counted("launch", "MatMulV2", [3, 3, 4]),
        counted("launch", "Add", [1, 1, 1]),
        counted("collective", "allReduce (dp)", [2, 2, 2], [1024, 1024, 1024]),
        counted("collective", "send (pp)", [1, 1, 1], [1, 2, 3]),
    ]
    types = {"MatMulV2": [200, 250, 300], "MatMulV3": [1, 1, 1]}
    digest = digest_of(PARTS, [300, 300, 400], counts=counts, types=types)
    found = run([], digest)
    assert judged("count.launches>4", found)[:2] == ("pass", 4)
    assert judged("max(count.launches)>4", found)[:2] == ("fail", 5)
    assert judged("count.syncs>0", found)[:2] == ("pass", 0)
    assert judged("count.collectives=3", found)[0] == "fail"
    assert judged("bytes.comm>1KiB", found)[:2] == ("fail", 1026)
    assert judged("op:MatMulV2>249ns", found)[:2] == ("fail", 250)
    status, value, reason = judged("op:MatMul>1ns", found)
    assert (status, value) == ("cannot_tell", None) and "there is: MatMulV3, MatMulV2" in reason
    assert judged("comm.wait[dp]>9%", found)[:2] == ("fail", 10)
    assert judged("comm.transfer[dp]>5%", found)[:2] == ("fail", 6)
    assert judged("comm.exposed[dp]>5%", found)[:2] == ("fail", 16)
    assert judged("comm.exposed['pp, 2 ranks']>3%", found)[:2] == ("fail", 4)
    assert judged("comm.wait[pp]>3%", found)[0] == "cannot_tell"
    assert "dp, 8 ranks" in judged("comm.wait[tp]>3%", found)[2]
    assert judged("max(comm.wait[dp])>3%", found)[0] == "cannot_tell"


def test_what_is_not_counted_is_not_none() -> None:
    digest = digest_of(PARTS, [300], counts=[counted("collective", "send", [1])])
    found = run([], replace(digest, uncounted=["sync", "aicpu"]))
    for text, option in (("count.syncs>0", "--activities cpu,npu"), ("count.aicpu>0", "--level 1")):
        status, value, reason = judged(text, found)
        assert (status, value) == ("cannot_tell", None) and option in reason
    assert judged("bytes.comm>0", found)[0] == "cannot_tell"
    lost = [Lost(file="a.csv", rows=3, reason=say("damaged"))]
    broken = replace(found, input=replace(found.input, lost=lost))
    assert judged("count.collectives>0", broken)[0] == "fail"
    status, _, reason = judged("count.launches>0", broken)
    assert status == "cannot_tell" and "3 rows could not be used" in reason
    for text in ("count.launches>0", "op:Add>1ns", "bytes.comm>0", "comm.wait[dp]>0"):
        assert judged(text, run([]))[0] == "cannot_tell"


def test_occupancy_is_that_of_the_device_with_the_least() -> None:
    def side(busy: float | None) -> CoreSide:
        return CoreSide(cores=24, kernels=1, occupancy_busy=busy, occupancy_span=0.1, idle_core_ns=0)

    two = run([[partition(10)], [partition(10)]])
    cores = two.devices[0].cores
    used = [replace(d, cores=replace(cores, cube=side(b))) for d, b in zip(two.devices, (0.9, 0.4), strict=True)]
    found = replace(two, devices=used)
    assert judged("occupancy.cube<50%", found)[:2] == ("fail", 40)
    assert judged("occupancy.vector<50%", found) == ("cannot_tell", None, "no core figures")


def test_findings_by_how_grave_they_are() -> None:
    high = replace(finding("graph_capture", 0), severity="high")
    fine = replace(finding("copies", 0), status="ok", severity="low")
    open_ = replace(finding("layout", 0), status="cannot_tell", severity="low", needs=say("record it with --stack"))
    found = run([[partition(10)]], findings=[high, finding("ai_cpu", 0), finding("ai_cpu", 1), fine])
    assert judged("findings>2", found)[:2] == ("fail", 3)
    assert judged("findings>=high", found) == ("fail", 1, "graph_capture (high)")
    assert judged("findings>=medium", found)[:2] == ("fail", 3)
    assert judged("finding:ai_cpu>1", found)[:2] == ("fail", 2)
    assert judged("finding:ai_cpu>=high", found)[:2] == ("pass", 0)
    assert judged("finding:copies", found)[:2] == ("pass", 0)
    assert "was not made" in judged("finding:casts", found)[2]
    half = run([[partition(10)]], findings=[finding("ai_cpu", 0), open_])
    assert judged("findings>=medium", half)[0] == "fail"
    assert judged("findings>=high", half) == ("cannot_tell", None, "record it with --stack")
    assert judged("verdict=communication", half)[0] == "pass" and judged("verdict=host", half)[0] == "fail"

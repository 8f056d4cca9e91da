"""Words that every format uses for the same thing."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from npuperf.documents.analysis import Device, Finding, Result
from npuperf.documents.document import Problem
from npuperf.documents.gates import Gate, quantity
from npuperf.messages import Message, chain, ns, say, share

#: Verdicts as headlines.
BOUND: Final = {
    "host": say("HOST-BOUND"),
    "compute": say("COMPUTE-BOUND"),
    "communication": say("COMMUNICATION-BOUND"),
    "unknown": say("CANNOT TELL"),
}
GATE: Final = {"pass": say("PASS"), "fail": say("FAIL"), "cannot_tell": say("CANNOT TELL")}

#: Causes of host wait.
CAUSE: Final = {
    "sync": say("waiting for the device"),
    "data_loading": say("data loading"),
    "compile": say("compiling operators"),
    "gc": say("garbage collection"),
    "communication": say("communication calls"),
    "tiling": say("shapes and tiling"),
    "launch": say("launching"),
    "execute": say("aclnn/aclop calls"),
    "memory": say("memory calls"),
    "runtime": say("runtime calls"),
    "queue": say("task queue"),
    "optimizer": say("optimizer"),
    "autograd": say("autograd"),
    "torch_op": say("torch operators"),
    "python": say("Python"),
    "range": say("user range"),
    "profiler": say("the profiler itself"),
    "unrecorded": say("nothing recorded"),
}

#: Values that a field may have, for people.
WORDS: Final = {
    "host": say("host"),
    "compute": say("compute"),
    "communication": say("communication"),
    "unknown": say("unknown"),
    "memory": say("memory"),
    "scalar": say("scalar"),
    "conflict": say("conflict"),
    "measured": say("measured"),
    "inferred": say("inferred"),
    "problem": say("problem"),
    "ok": say("ok"),
    "cannot_tell": say("cannot tell"),
    "high": say("high"),
    "medium": say("medium"),
    "low": say("low"),
    "pass": say("pass"),
    "fail": say("fail"),
    "warn": say("warning"),
    "violated": say("violated"),
    "yes": say("yes"),
    "no": say("no"),
    "proposed": say("proposed"),
    "cube": say("cube"),
    "vector": say("vector"),
    "better": say("better"),
    "same": say("same"),
    "worse": say("worse"),
    "added": say("added"),
    "removed": say("removed"),
    "changed": say("changed"),
    "updated": say("updated"),
    "operator": say("operator"),
    "subgraph": say("subgraph"),
    "model": say("model"),
    "step": say("step"),
    "successful": say("successful"),
    "failed": say("failed"),
    "incomplete": say("incomplete"),
    "nothing_to_tune": say("nothing to tune"),
    "others": say("others"),
    "nothing recorded": say("nothing recorded"),
}

#: The rows of a partition: field, label, depth.
PARTS: Final = (
    ("span_ns", say("span"), 0),
    ("compute_ns", say("compute"), 1),
    ("comm_exposed_ns", say("communication, exposed"), 1),
    ("other_exposed_ns", say("copies and other work, exposed"), 1),
    ("idle_ns", say("idle"), 1),
    ("host_wait_ns", say("waiting for the host"), 2),
    ("launch_latency_ns", say("launch latency"), 2),
    ("dependency_wait_ns", say("waiting for a dependency"), 2),
    ("unattributed_ns", say("unattributed (no launch recorded)"), 2),
)


def title_of(result: Result) -> str:
    """Name what was analyzed."""
    name = PurePath(result.input.path).name or result.input.path
    return f"{name} ({result.input.kind})"


def gain(finding: Finding) -> Message:
    """Say what a finding expects to save, an interval per step."""
    if finding.gain_ns_per_step is None or finding.gain_pct is None:
        return say("gain not computable from this data")
    saved = ns(*finding.gain_ns_per_step)
    part = share(*(percent / 100 for percent in finding.gain_pct))
    if finding.gain_per == "step":
        return say("saves {saved} per step ({share})", saved=saved, share=part)
    return say("saves {saved} in all ({share})", saved=saved, share=part)


def device_name(device: Device) -> Message:
    """Name a device and its rank."""
    if device.rank is None:
        return say("device {device}", device=device.device)
    return say("rank {rank}, device {device}", rank=device.rank, device=device.device)


def named(device: Device, title: Message, several: bool) -> Message:
    """Put the device before a title, where there are several."""
    return say("{device}: {title}", device=device_name(device), title=title) if several else title


def verdict_of(result: Result) -> Message:
    """Say what limits the run, how that is known, and what would save the most, if anything was found."""
    verdict = result.verdict
    reason = verdict.reason
    if verdict.bound != "unknown":
        reason = say("{basis}: {reason}", basis=WORDS[verdict.basis], reason=reason)
    return chain(reason, _lever(result))


def _lever(result: Result) -> Message | None:
    """Name the finding that may save most, where it is about another limit than the verdict."""
    problems = [f for f in result.findings if f.status == "problem" and f.gain_pct]
    best = max(problems, key=lambda f: f.gain_pct[1] if f.gain_pct else 0, default=None)
    if best is None or best.relieves in (None, result.verdict.bound):
        return None
    return say("largest lever: {finding}", finding=best.title)


def gate_line(gate: Gate) -> Message:
    """Say in one line what a gate found."""
    return say("gate {status}  {condition}", status=GATE[gate.status], condition=gate_found(gate))


def gate_found(gate: Gate) -> Message:
    """Say a gate's condition and why it went so, else what was found."""
    return say("{condition}: {found}", condition=gate.expr, found=gate.reason or quantity(gate))


def problem_line(problem: Problem) -> Message:
    """Say what went wrong, and what to do."""
    next_ = problem.hint and say("next: {hint}", hint=problem.hint)
    return chain(say("problem: {what}", what=problem.what), next_, by="\n  ")

"""Advice: one rule per module, each a question to the data with three answers: problem, no problem, cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from types import ModuleType
from typing import Any

import yaml

from npuperf.advise import (
    ai_cpu,
    compilation,
    core_limit,
    data_loading,
    dynamic_shape,
    early_steps,
    garbage_collection,
    graph_capture,
    host_operators,
    idle_cores,
    launch_blocking,
    layout,
    runtime_threads,
    small_kernels,
    super_kernel,
    sync_points,
    task_queue,
    tiling_cache,
    uneven_host,
)
from npuperf.advise.rule import View, finding
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

#: Every rule, in the order of asking. A rule is a module with TITLE, SOURCE, needs() and judge().
RULES: tuple[ModuleType, ...] = (
    launch_blocking,
    sync_points,
    data_loading,
    compilation,
    garbage_collection,
    graph_capture,
    small_kernels,
    dynamic_shape,
    runtime_threads,
    tiling_cache,
    host_operators,
    task_queue,
    uneven_host,
    ai_cpu,
    layout,
    idle_cores,
    core_limit,
    super_kernel,
    early_steps,
)
#: Rules that ask nothing that only an NPU has.
_ANY_DEVICE = (sync_points, data_loading, garbage_collection, small_kernels, uneven_host, early_steps)

_ORDER = {"problem": 0, "cannot_tell": 1, "ok": 2}
_SEVERITY = {"high": 0, "medium": 1, "low": 2}


def advise(view: View, thresholds: Thresholds, names: Sequence[str] = ()) -> list[Finding]:
    """Ask every rule, or those named, about one device; problems first, the gravest on top."""
    rules = [r for r in RULES if not view.profile.kineto or r in _ANY_DEVICE]
    rules = [r for r in rules if not names or rule_name(r) in names]
    answers = [_ask(rule, view, thresholds) for rule in rules]
    return sort_findings(answers)


def rule_name(rule: ModuleType) -> str:
    """Return the name under which a rule answers."""
    return rule.__name__.rsplit(".", 1)[1]


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Order findings: problems before open questions, the gravest first."""

    def rank(f: Finding) -> tuple[int, int, float]:
        gain = f.gain_ns_per_step[1] if f.gain_ns_per_step else 0
        return _ORDER[f.status], _SEVERITY[f.severity], -float(gain)

    return sorted(findings, key=rank)


def _ask(rule: ModuleType, view: View, thresholds: Thresholds) -> Finding:
    name = rule_name(rule)
    missing = rule.needs(view)
    if missing:
        return finding(view, name, "cannot_tell", rule.TITLE, needs=missing, next=missing, source=rule.SOURCE)
    answer: Finding | None = rule.judge(view, thresholds)
    return answer or finding(view, name, "ok", rule.TITLE, source=rule.SOURCE)


def load_thresholds(changed: Mapping[str, float] | None = None) -> Thresholds:
    """Read thresholds.yaml; ``changed`` values go before it."""
    values = {name: entry["value"] for name, entry in _entries().items()}
    return Thresholds(**{**values, **(changed or {})})


def _entries() -> dict[str, dict[str, Any]]:
    text = (resources.files("npuperf.advise") / "thresholds.yaml").read_text("utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return entries

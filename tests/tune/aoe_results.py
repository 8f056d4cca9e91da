"""Results as AOE writes them, in every schema. Expected figures are worked out by hand beside the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import Done, run_cli

from npuperf.model.tuning import Tuning
from npuperf.tune.results import read_results

ROOT = Path(__file__).resolve().parents[2]


def times(before: float, after: float, improvement: str | None, unit: str = "us", **more: Any) -> dict[str, Any]:
    found = {f"performance_after_tune({unit})": after, f"performance_before_tune({unit})": before, **more}
    return found if improvement is None else {**found, "performance_improvement": improvement}


def summary(added: int, updated: int, reserved: int, unsatisfied: int, **more: int) -> dict[str, int]:
    return {
        "repo_add_num": added,
        "repo_update_num": updated,
        "repo_reserved_num": reserved,
        "repo_hit_num": reserved + updated,
        "repo_unsatisfied_num": unsatisfied,
        "total_num": added + reserved + updated + unsatisfied,
        **more,
    }


BASIC = {"basic": {"tuning_name": "job", "tuning_time(s)": 44}}


# 80 → 32 µs: 2.5 times as fast, 60 % less time, "150 %" as AOE counts it. 12 → 10: 1.2, 16.67 %, "20 %".
LISTED = {
    "report_20260101_1": [
        BASIC,
        {
            "OPAT": {
                "opat_tuning_result": "tuning successful",
                "repo_modified_operators": [
                    {
                        "op_name": "net/softmax",
                        "op_type": "SoftmaxV2",
                        "tune_performance": {"Format": times(80, 32, "150.00%", update_mode="add")},
                    },
                    {
                        "op_name": "net/dense",
                        "op_type": "[MatMulV2, Add]",
                        "tune_performance": {
                            "Schedule": times(12, 10, "20.00%", update_mode="update"),
                            "Impl": times(10, 8, "25.00%", update_mode="add"),
                        },
                    },
                ],
                "repo_summary": summary(2, 1, 7, 3),
            }
        },
    ]
}


GROUPED = {
    "report_20260101_1": [
        {"basic": {"tuning_name": "job", "tuning_time(s)": 26.5}},
        {
            "OPAT": {
                "opat_tune_result": "tune success",
                "repo_modified_operators": {
                    "add_repo_operators": [{"op_name": "a", "op_type": "matmul", **times(4, 2, "100.00%")}],
                    "update_repo_operators": [{"op_name": "b", "op_type": ["conv2d"], **times(9, 6, "50.00%")}],
                },
                "repo_summary": summary(1, 1, 0, 0),
            }
        },
    ]
}


BARE = [
    {"basic": {"tuning_name": "job", "tuning_time(s)": 1000}},
    {
        "OPAT": {
            "model_baseline_performance(ms)": 110.0,
            "model_result_performance(ms)": 100.0,
            "model_performance_improvement": "10.00%",
            "opat_tuning_result": "tuning successful",
            "repo_modified_operators": {"add_repo_operators": [{"op_name": "s", "op_type": "x", **times(5, 4, "25%")}]},
        },
        "repo_summary": summary(1, 0, 2, 0),
    },
]


SUBGRAPHS = {
    "report_20260101_1": [
        BASIC,
        {
            "SGAT": {
                "model_baseline_performance(ms)": 6.0,
                "model_result_performance(ms)": 4.0,
                "model_performance_improvement": "50.00%",
                "repo_modified_subgraphs": {
                    "add_repo_subgraphs": [{"repo_key": "1024942313106047484", **times(3, 2, "49.99%", "ms")}],
                    "update_repo_subgraphs": [{"repo_key": 18446744073709551615, **times(5, 4, "25.00%", "ms")}],
                },
                "repo_summary": summary(1, 1, 0, 120),
            }
        },
    ]
}


def read(folder: Path, content: Any, name: str = "aoe_result_opat_20260101120000000_pid7.json") -> Tuning:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")
    before = file.read_bytes()
    found = read_results([file])
    assert file.read_bytes() == before
    return found


def rows(tuning: Tuning) -> list[tuple[Any, ...]]:
    return [(e.kind, e.name, e.strategy, e.change, e.before_us, e.after_us) for e in tuning.entries]


def changed(document: dict[str, Any], **opat: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(document))
    copy["report_20260101_1"][1]["OPAT"].update(opat)
    return copy


def tune(*arguments: object) -> Done:
    return run_cli(["tune", *map(str, arguments)], columns=80)

"""What can be asked of ``npuperf profile``: how it is read, and what each profiler is given."""

from __future__ import annotations

from typing import Any

import pytest

from npuperf.base.errors import UsageError
from npuperf.record.plan import e2e_arguments, msprof_arguments, torch_arguments
from npuperf.record.request import ProfileRequest, read_request


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0", "ArithmeticUtilization"),
        ("1", "PipeUtilization"),
        ("2", "Memory"),
        ("3", "MemoryL0"),
        ("4", "ResourceConflictRatio"),
        ("5", "MemoryUB"),
        ("0xFF", "AiCoreNone"),
        ("255", "AiCoreNone"),
        ("none", "AiCoreNone"),
        ("l2cache", "L2Cache"),
    ],
)
def test_metrics_by_name_or_by_the_vendor_s_number(text: str, name: str) -> None:
    assert read_request({"aic_metrics": text}, []).aic_metrics == name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"engine": "torhc"}, "did you mean torch?"),
        ({"aic_metrics": "PipeUtil"}, "did you mean PipeUtilization?"),
        ({"aic_metrics": "9"}, "5 MemoryUB"),
        ({"level": "3"}, "valid: 0, 1, 2, none"),
        ({"step_on": "sometimes"}, "2-seconds"),
        ({"delay": "30s", "wait": 5}, "--delay 30s --active 2 records 2 steps after 30 seconds"),
        ({"delay": "30s", "whole_run": True}, "--delay: not together with --whole-run"),
        ({"delay": "soon"}, "--delay 'soon': not a time"),
        ({"start_on": "decode", "wait": 5}, "--start-on RANGE --active 2"),
        ({"standby": True, "active": 5}, "give it to npuperf profile --pid"),
        ({"standby": True, "duration": "5s"}, "give it to npuperf profile --pid"),
        ({"step_on": "0-seconds"}, "2-seconds"),
        ({"ranks": "0,x"}, "'x' is not a rank"),
        ({"ranks": "5-3"}, "not a rank"),
        ({"ranks": "9" * 5000}, "not a rank"),
        ({"ranks": "0-999999999999"}, "not a rank"),
        ({"max_size": "much"}, "500M"),
        ({"activities": "gpu"}, "CPU, NPU"),
        ({"host_sys": "cpu,ram"}, "valid: cpu, mem"),
        ({"engine": "msprof", "stack": True}, "for --engine torch | cpu | e2e"),
        ({"training_trace": True}, "needs --engine e2e"),
        ({"engine": "e2e", "aic_metrics": "L2Cache"}, "has only ArithmeticUtilization"),
        ({"op_attr": True}, "--export db"),
        ({"mstx_include": "a", "mstx_exclude": "b"}, "only one"),
        ({"communication": False}, "only the e2e engine"),
        ({"communication": True, "level": "0"}, "add --level 1"),
        ({"level": "0", "aic_metrics": "Memory"}, "no counters are recorded at level 0"),
    ],
)
def test_values_that_cannot_be_are_explained(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_request(values, values)
    assert words in str(caught.value)


def test_sizes_and_ranks() -> None:
    options = read_request({"max_size": "1.5G", "ranks": "0,2-4", "step_on": "0.5s"}, [])
    assert options.max_size == 3 * 2**29
    assert options.ranks == (0, 2, 3, 4)
    assert options.step_on == "0.5"


def test_what_torch_npu_is_given() -> None:
    values = {"level": "2", "aic_metrics": "3", "export": "both", "stack": True, "gc_threshold": 2.0, "host_sys": "mem"}
    found = torch_arguments(read_request(values, ["stack", "level"]))
    assert found["profile"] == [("with_stack", True, "--stack")]
    assert {key: value for key, value, _ in found["experimental"]} == {
        "profiler_level": "Level2",
        "aic_metrics": "MemoryL0",
        "export_type": ["Text", "Db"],
        "gc_detect_threshold": 2.0,
        "host_sys": ["MEM"],
    }
    assert {key for key, _, option in found["experimental"] if option} == {"profiler_level"}
    quiet = {k: v for k, v, _ in torch_arguments(read_request({"level": "0"}, ["level"]))["experimental"]}
    assert quiet["aic_metrics"] == "AiCoreNone", "counters need level 1: asking for them would only make a warning"


def test_what_is_done_besides() -> None:
    values = {"metadata": ["job=17", "a=b=c"], "all_threads": True, "execution_trace": True}
    found = torch_arguments(read_request(values, values))
    assert found["metadata"] == [("job", "17", "--metadata"), ("a", "b=c", "--metadata")]
    assert [(key, option) for key, _, option in found["profile"]] == [
        ("execution_trace_observer", "--execution-trace"),
        ("enable_profiler_in_child_thread", "--all-threads"),
    ]
    for wrong in ("job", "=17", " =17"):
        with pytest.raises(UsageError, match="not KEY=VALUE"):
            read_request({"metadata": [wrong]}, ["metadata"])


def test_what_the_legacy_profiler_is_given() -> None:
    """Defaults are those of the vendor's table."""
    assert {key: value for key, value, _ in e2e_arguments(ProfileRequest(engine="e2e"))} == {
        "ACL_PROF_ACL_API": True,
        "ACL_PROF_TASK_TIME": True,
        "ACL_PROF_AICORE_METRICS": True,
        "ACL_PROF_AICPU": True,
        "ACL_PROF_L2CACHE": False,
        "ACL_PROF_HCCL_TRACE": True,
        "ACL_PROF_TRAINING_TRACE": False,
        "TORCH_CALL_STACK": False,
        "aiCoreMetricsType": 1,
    }


def test_what_msprof_is_given() -> None:
    values = {"engine": "msprof", "level": "2", "host_sys": "cpu,mem", "export": "db", "max_size": "3G", "mstx": True}
    found = msprof_arguments(read_request(values, values))
    assert found == [
        "--task-time=l1",
        "--runtime-api=on",
        "--aic-metrics=PipeUtilization",
        "--aicpu=on",
        "--msproftx=on",
        "--type=db",
        "--host-sys=cpu,mem",
        "--storage-limit=3072MB",
    ]


def test_what_is_usual_reads_as_the_field_has_it() -> None:
    """What the command line offers where nothing is typed is what a request has by itself."""
    import typer.main

    from npuperf.cli import app

    group: Any = typer.main.get_command(app)
    for parameter in group.commands["profile"].params:
        if parameter.name in ProfileRequest.__struct_fields__ and parameter.default is not None:
            values = {parameter.name: parameter.default}
            assert getattr(read_request(values, []), parameter.name) == getattr(ProfileRequest(), parameter.name), (
                parameter.name
            )


def test_for_compare_chooses_what_was_not_given() -> None:
    """Ten steps without counters; level 1 stays, since it has shapes and communication."""
    values = {"command": ("train.py",), "for_compare": True, "active": 2, "aic_metrics": "PipeUtilization"}
    chosen = read_request(values, ["for_compare"])
    assert (chosen.active, chosen.aic_metrics, chosen.level) == (10, "AiCoreNone", "1")
    assert chosen.given == ("for_compare",)
    typed = read_request(values, ["for_compare", "active", "aic_metrics"])
    assert (typed.active, typed.aic_metrics) == (2, "PipeUtilization")
    usual = read_request({**values, "for_compare": False}, [])
    assert (usual.active, usual.aic_metrics) == (2, "PipeUtilization")
    with pytest.raises(UsageError, match="--for-compare: not an option of the msprof engine"):
        read_request({**values, "engine": "msprof"}, ["for_compare"])

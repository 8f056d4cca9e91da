"""Two sides compared, from results to the comparison."""

from __future__ import annotations

import pytest
from digests import digest_of, run_of

from npuperf.advise import load_thresholds
from npuperf.compare.compare import compare_results
from npuperf.errors import UsageError

THRESHOLDS = load_thresholds()
SPANS = [1_000_000 + 1_000 * i for i in (3, 1, 4, 1, 5, 9, 2, 6)]


def side(matmul: int = 0, **workload: object):  # type: ignore[no-untyped-def]
    """Eight steps of one operator and waiting; each step ``matmul`` ns longer."""
    spans = [ns + matmul for ns in SPANS]
    total = sum(spans)
    parts = {("compute", "MatMul [8,8] FLOAT"): (total - 800_000, 80), ("host_wait", "x: y"): (800_000, 8)}
    return run_of(digest_of(parts, spans, types={"MatMul": [ns - 100_000 for ns in spans]}), **workload)


def test_a_slower_operator_is_named() -> None:
    found = compare_results([side()], [side(200_000)], THRESHOLDS)
    assert found.verdict == "worse"
    assert found.delta_ns == 200_000 == sum(p.delta_ns for p in found.waterfall)
    assert found.waterfall[0].key == "MatMul [8,8] FLOAT"
    assert found.interval_ns is not None and found.interval_ns[0] > 0
    assert "MatMul [8,8] FLOAT +200.00 us" in str(found.reason)
    assert str(found.reason).startswith("the step is 19.9 % longer (1.00 ms to 1.20 ms; ")


def test_against_itself_it_is_the_same_whatever_the_number_of_steps() -> None:
    one = run_of(digest_of({("compute", "A"): (100, 1)}, [100]))
    for run in (one, side()):
        found = compare_results([run], [run], THRESHOLDS)
        assert (found.verdict, found.delta_ns) == ("same", 0)
        assert str(found.reason) == "the steps are equally long (every step and every sum is identical)"


def test_two_steps_cannot_tell_and_what_would_is_said() -> None:
    old = run_of(digest_of({("compute", "A"): (100_000_000, 2)}, [50_000_000] * 2))
    new = run_of(digest_of({("compute", "A"): (140_000_000, 2)}, [70_000_000] * 2))
    found = compare_results([old], [new], THRESHOLDS)
    assert (found.verdict, found.delta_ns, found.samples) == ("cannot_tell", 20_000_000, (2, 2))
    assert "npuperf profile --for-compare" in str(found.reason)


def test_another_world_size_needs_leave() -> None:
    old, new = side(world_size=8), side(world_size=16)
    with pytest.raises(UsageError, match=r"(?s)world size: 8 against 16.*--allow-mismatch") as error:
        compare_results([old], [new], THRESHOLDS)
    assert error.value.exit_code == 2
    found = compare_results([old], [new], THRESHOLDS, allow_mismatch=True)
    assert str(found.reason).startswith("not of one workload (world size: 8 against 16); ")
    assert found.workload == "different"


def test_a_lower_clock_is_told_before_anything_else() -> None:
    found = compare_results([side(frequency_mhz=(1800, 1800))], [side(90_000, frequency_mhz=(1500, 1800))], THRESHOLDS)
    assert found.parity[0].what == "AI Core frequency"
    assert (found.parity[0].old, found.parity[0].new) == ("1800 MHz", "1500-1800 MHz")
    assert str(found.reason).startswith("the AI Core clock of the new side is lower")


def test_without_digest_it_is_said_what_to_do() -> None:
    from msgspec.structs import replace

    found = compare_results([replace(side(), digest=None)], [side()], THRESHOLDS)
    assert found.verdict == "cannot_tell"
    assert "analyze it anew" in str(found.reason)

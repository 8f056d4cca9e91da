"""What a step of a model asks for by its size: worked out by hand beside each case."""

from __future__ import annotations

import pytest

from npuperf.analyze.model_mfu import ModelStep, palm_flop_per_token, verl_flop_per_token, with_model
from npuperf.base.errors import UsageError
from npuperf.base.messages import text
from npuperf.model.efficiency_result import Efficiency, Mfu, ModelWork

#: A model of 32 layers with 32 heads of 128, a vocabulary of 32,000 and 4,096 tokens per sequence: per layer the
#: attention has 4 × 4096² and the MLP 3 × 4096 × 11008 parameters, the embedding and the LM head 32000 × 4096 each.
PER_LAYER = 4 * 4096**2 + 3 * 4096 * 11008
EMBEDDING = 32_000 * 4096
PARAMS = 32 * PER_LAYER + 2 * EMBEDDING
SIZE = {"params": PARAMS, "embedding": EMBEDDING, "layers": 32, "hidden": 4096, "seq": 4096, "tokens": 8 * 4096}


def test_the_size_is_what_it_is_taken_for() -> None:
    assert PER_LAYER == 202_375_168
    assert PARAMS == 6_738_149_376


def test_palm_counts_attention_whole_and_no_embedding() -> None:
    """Product by product: 2mnk forward, and twice that backward, for one token of a sequence of 4,096."""
    projections = 2 * PER_LAYER  # a token goes through every weight of a layer once
    scores = 2 * 4096 * 4096  # its query with 4,096 keys of 32 heads of 128
    weighted = 2 * 4096 * 4096  # its scores with as many values
    forward = 32 * (projections + scores + weighted) + 2 * EMBEDDING  # and the LM head
    found = palm_flop_per_token(params=PARAMS, embedding=EMBEDDING, layers=32, hidden=4096, seq=4096)
    assert found == 3 * forward
    assert found == 46_084_915_200


def test_verl_counts_half_of_attention_and_the_embedding() -> None:
    """As its counter does: 6 × (all weights) per token, and 6 × (sequence²) × hidden per sequence and layer."""
    of_weights = 6 * (32 * PER_LAYER + 2 * 32_000 * 4096) * 4096
    of_attention = 6 * 4096**2 * 4096 * 32
    found = verl_flop_per_token(params=PARAMS, layers=32, hidden=4096, seq=4096)
    assert found * 4096 == pytest.approx(of_weights + of_attention, rel=1e-12)
    assert found == 43_650_121_728


def test_a_step_of_the_whole_job_is_divided_among_its_devices() -> None:
    step = ModelStep.of(None, SIZE)
    assert step is not None
    work = step.per_device(16, assumed=False)
    assert work.palm_flop == pytest.approx(46_084_915_200 * 32_768 / 16, rel=1e-12)
    assert work.verl_flop == pytest.approx(43_650_121_728 * 32_768 / 16, rel=1e-12)
    assert (work.tokens, work.devices, work.given) == (2048, 16, False)


def test_given_flop_are_both_conventions() -> None:
    step = ModelStep.of(3e15, dict.fromkeys(SIZE) | {"tokens": 1e6})
    assert step == ModelStep(3e15, 3e15, 1e6, given=True)
    assert ModelStep.of(None, dict.fromkeys(SIZE)) is None


@pytest.mark.parametrize("name", SIZE)
def test_a_size_that_lacks_something_says_what(name: str) -> None:
    with pytest.raises(UsageError, match=f"without --{name}\n"):
        ModelStep.of(None, {**SIZE, name: None})


@pytest.mark.parametrize("name", SIZE)
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_size_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"--{name} {value:g}: a number above 0"):
        ModelStep.of(None, {**SIZE, name: value})
    with pytest.raises(UsageError, match="--model-flops"):
        ModelStep.of(value, dict.fromkeys(SIZE))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({**SIZE, "embedding": PARAMS}, "--embedding"),
        ({**SIZE, "tokens": 4095}, "--seq"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(size: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        ModelStep.of(None, size)
    assert text(refused.value.what).startswith(said)


def test_flop_and_a_size_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="--params, --embedding"):
        ModelStep.of(1e15, SIZE)


def window(span_ns: int, peak: float) -> Efficiency:
    return Efficiency(
        cube_cores=24, clock_mhz=1800.0, basis="chip", peak_flop_per_s=peak, span_ns=span_ns, cube_busy_flop=None,
        cube_busy_share=None, useful_flop=(0.0, 0.0), hfu=(0.0, 0.0), mfu=Mfu(kernels=(0.25, 0.5)), parts=[], idle=[],
        formula_share=None, contradictions=0, odd=0,
    )  # fmt: skip


def test_a_window_of_several_steps() -> None:
    """Three steps in 2 s at 300 TFLOPS, of 60 and 80 TFLOP each: 180 and 240 of 600."""
    work = ModelWork(palm_flop=60e12, verl_flop=80e12, given=False, tokens=5000.0, devices=8)
    found = with_model(window(2_000_000_000, 300e12), work, 3)
    assert found is not None
    assert found.mfu.palm == pytest.approx(0.3, rel=1e-12)
    assert found.mfu.verl == pytest.approx(0.4, rel=1e-12)
    assert found.mfu.kernels == (0.25, 0.5)
    assert found.tokens_per_s == pytest.approx(7500.0, rel=1e-12)


def test_more_than_the_peak_is_not_told() -> None:
    work = ModelWork(palm_flop=301e12, verl_flop=302e12, given=False, tokens=None, devices=8)
    found = with_model(window(1_000_000_000, 300e12), work, 1)
    assert found is not None
    assert (found.mfu.palm, found.mfu.verl, found.tokens_per_s) == (None, None, None)
    least = ModelWork(palm_flop=301e12, verl_flop=200e12, given=False, tokens=None, devices=8)
    found = with_model(window(1_000_000_000, 300e12), least, 1)
    assert found is not None and found.mfu.palm is not None and found.mfu.palm > 1, "causal attention does half of it"

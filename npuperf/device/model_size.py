"""What a step of a model asks for by its size, and which part of the peak that is: MFU of a step, not of kernels.

Two conventions, which differ by up to 2 in attention. PaLM (Chowdhery et al. 2022, appendix B): 6 FLOP per token and
parameter and 12 L H Q T of attention, causal or not; torchtitan (``get_nparams_and_flops``) counts the same and leaves
the embedding out, of which no products are. verl (``verl/utils/flops_counter.py``) counts the embedding beside the
LM head, and of attention the half that a causal mask leaves. Neither counts what is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.errors import UsageError
from npuperf.base.messages import say, series
from npuperf.base.units import NS_PER_S
from npuperf.model.efficiency_result import Efficiency, ModelWork

#: Per parameter and token: a multiplication and an addition forward, and two of each backward.
_PER_PARAMETER: Final = 6


def palm_flop_per_token(*, params: float, embedding: float, layers: float, hidden: float, seq: float) -> float:
    """Return FLOP per token as PaLM and torchtitan count: attention in full, no embedding.

    ``hidden``: heads × head dimension, so that queries and keys, and scores and values, are twice that per layer.
    """
    return _PER_PARAMETER * (params - embedding) + _PER_PARAMETER * layers * (2 * hidden) * seq


def verl_flop_per_token(*, params: float, layers: float, hidden: float, seq: float) -> float:
    """Return FLOP per token as verl counts: half of attention, and the embedding as if it were multiplied, too."""
    return _PER_PARAMETER * params + _PER_PARAMETER * layers * hidden * seq


class ModelStep(Struct, frozen=True):
    """A step of the whole job: FLOP by both conventions, or as ``given``, and its tokens where they are known."""

    palm: float
    verl: float
    tokens: float | None = None
    given: bool = False

    @classmethod
    def of(cls, model_flops: float | None, size: Mapping[str, float | None]) -> ModelStep | None:
        """Return what the options say, of which ``size`` has those of the model's size by name; None: nothing.

        Raises UsageError for what is no size, or only a part of one.
        """
        asked = {"model_flops": model_flops, **size}
        options = {name: f"--{name.replace('_', '-')}" for name in asked}
        for name, value in asked.items():
            if value is not None and not (isfinite(value) and value > 0):
                raise UsageError(say("{option} {value}: a number above 0 is wanted", option=options[name],
                                     value=f"{value:g}"))  # fmt: skip
        lacking = [options[name] for name, value in size.items() if value is None]
        known = {name: value for name, value in size.items() if value is not None}
        if model_flops is not None:
            of_size = [options[name] for name in known if name != "tokens"]
            if of_size:
                raise UsageError(say("--model-flops and {options}: give one or the other", options=series(of_size)))
            return cls(model_flops, model_flops, known.get("tokens"), given=True)
        if not known:
            return None
        if lacking:
            raise UsageError(say("the model's size is not whole without {options}", options=series(lacking)),
                             hint=say("give all of them, or --model-flops alone"))  # fmt: skip
        if known["embedding"] >= known["params"]:
            raise UsageError(say("--embedding {embedding}: of {params} parameters these would be all",
                                 embedding=f"{known['embedding']:g}", params=f"{known['params']:g}"))  # fmt: skip
        if known["seq"] > known["tokens"]:
            raise UsageError(say("--seq {seq}: a step has no more tokens than {tokens}", seq=f"{known['seq']:g}",
                                 tokens=f"{known['tokens']:g}"),
                             hint=say("--tokens are those of a step of the whole job"))  # fmt: skip
        tokens = known.pop("tokens")
        palm = palm_flop_per_token(**known)
        del known["embedding"]
        return cls(tokens * palm, tokens * verl_flop_per_token(**known), tokens)

    def per_device(self, devices: int, *, assumed: bool) -> ModelWork:
        """Divide it among the devices of the job."""
        return ModelWork(
            palm_flop=self.palm / devices,
            verl_flop=self.verl / devices,
            given=self.given,
            tokens=None if self.tokens is None else self.tokens / devices,
            devices=devices,
            assumed=assumed,
        )


def with_model(of_window: Efficiency | None, work: ModelWork, steps: int) -> Efficiency | None:
    """Add to the efficiency of a window of so many whole steps what these ask for by the model's size.

    More than all of the peak cannot be, and stays null: what must be multiplied is no more than either convention.
    """
    if of_window is None or not of_window.span_ns or not steps:
        return of_window
    seconds = of_window.span_ns / NS_PER_S
    palm, verl = (flop * steps / (of_window.peak_flop_per_s * seconds) for flop in (work.palm_flop, work.verl_flop))
    possible = min(palm, verl) <= 1
    return replace(
        of_window,
        mfu=replace(of_window.mfu, palm=palm if possible else None, verl=verl if possible else None),
        tokens_per_s=None if work.tokens is None else work.tokens * steps / seconds,
    )

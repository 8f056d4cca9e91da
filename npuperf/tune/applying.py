"""How a program uses what was tuned: where the bank is found, and what must be built anew once.

Facts: programs look where TUNE_BANK_PATH says, then in the default folder of their user; kernels that lie compiled in
a cache hide a bank until ``op_compiler_cache_mode`` is ``force`` once, which deletes that cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from npuperf.documents.tuning import BankUse
from npuperf.escape import for_shell
from npuperf.messages import Message, say
from npuperf.tune.job import ModelFile, TuningJob
from npuperf.tune.store import default_places

_AFTER: Final = say(
    "force deletes the cache of compiled operators: not while other builds share it, and afterwards set enable"
)


def bank_use(job: TuningJob, place: Path) -> BankUse:
    """Say how to use the bank in ``place``, which a job has filled."""
    root = place.absolute()
    default = root in default_places("op" if job.mode == "op" else "graph", Path.home())
    return BankUse(
        place=str(root),
        export=None if default else f"export TUNE_BANK_PATH={for_shell(str(root))}",
        refresh=say("{how}; {after}", how=_refresh(job), after=_AFTER),
    )


def _refresh(job: TuningJob) -> Message:
    """Say where the mode of the cache is set, by what builds the operators."""
    if isinstance(job.source, ModelFile):
        return say("convert the model again, once with {option}", option="atc --op_compiler_cache_mode=force")
    if job.in_adapter:
        return say(
            "run once with {option}",
            option='parameter_map["op_compiler_cache_mode"].s = tf.compat.as_bytes("force")',
        )
    return say(
        "run once with {option} before the first operator (it is for operators that are compiled; aclnn's are built "
        "already)",
        option='torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})',
    )

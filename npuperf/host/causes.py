"""What a host event is about, told by its name: the causes that host time is blamed on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np

from npuperf.model.host import PROFILER_FRAME
from npuperf.model.labels import U8, Labels, Mask

#: Every cause with the names that tell it; the first match counts. Names are those of torch_npu, CANN and CUDA.
_PATTERNS: Final = (
    ("step", r"^ProfilerStep"),
    ("profiler", PROFILER_FRAME),
    ("sync", r"Synchronize|aten::(item|_local_scalar_dense|is_nonzero|equal)$|AscendCL@aclrtMemcpy$|^cudaMemcpy$"),
    ("data_loading", r"data_?load|__next__|_next_data|prefetch"),
    ("compile", r"opCompile$|aclopCompile$|torch_?dynamo|inductor|compile_fx|TorchAir.*compile|jit_compile|BuildModel"),
    ("gc", r"^(Python )?GC\b|garbage|^gc\."),
    ("communication", r"hcom|hccl|nccl|c10d|Communication@|record_param_comms"),
    ("tiling", r"Tiling|InferShape|GetWorkspaceSize|AllocMem|AllocBatchHbm|FreeMem|CalcWorkspace"),
    ("launch", r"^Node@|^Runtime@|^Model@|LaunchKernel|rtKernelLaunch|GraphLaunch|launch_kernel|aclmdlExecute"),
    ("execute", r"AscendCL@acl(nn|op)|^aclnn|^aclop|AscendCL@aclCreate|AscendCL@aclDestroy"),
    ("memory", r"aclrt(Malloc|Free|Memcpy|Memset)|cuda(Malloc|Free|Memcpy|Memset|HostAlloc)|PTA.*(malloc|free)"),
    ("runtime", r"^AscendCL@|^cuda|^cu[A-Z]|^hip"),
    ("queue", r"^(Enqueue|Dequeue)"),
    ("optimizer", r"^Optimizer\."),
    ("autograd", r"^autograd::|Backward\d*$|^torch::autograd"),
    ("torch_op", r"::"),
    ("python", r"^nn\.Module|^\S.*\(\d+\): |^<built-in"),
)
CAUSES: Final = (*(name for name, _ in _PATTERNS), "range", "unrecorded")
CODE: Final = {name: code for code, name in enumerate(CAUSES)}
_RULES: Final = tuple((name, re.compile(pattern, re.IGNORECASE if name in ("data_loading", "communication") else 0))
                      for name, pattern in _PATTERNS)  # fmt: skip

#: Runtime calls in which the host waits for the device, and torch operators that may contain them.
WAITING: Final = re.compile(r"(AscendCL@aclrt|Runtime@|cuda|hip)\w*Synchronize|AscendCL@aclrtMemcpy$|^cudaMemcpy$")
READING: Final = re.compile(r"^aten::_local_scalar_dense$")
#: Causes that stand for work of the thread itself; ranges, frames and steps merely surround it.
BUSY: Final = frozenset(CAUSES) - {"step", "range", "python", "optimizer", "unrecorded"}
#: Causes of the host time that a launch itself costs: fewer launches mean less of them.
LAUNCHING: Final = ("tiling", "launch", "execute", "runtime", "queue", "autograd", "torch_op")


@lru_cache(maxsize=1 << 16)
def cause_of(name: str) -> str:
    """Return the cause that an event of this name stands for."""
    return next((cause for cause, pattern in _RULES if pattern.search(name)), "range")


def cause_codes(names: Labels) -> U8:
    """Return the cause of each event as an index into CAUSES."""
    table = [CODE[cause_of(n)] for n in names.names]
    return np.array([*table, CODE["range"]], np.uint8)[names.codes]


def flag_causes(codes: U8, causes: frozenset[str] | tuple[str, ...]) -> Mask:
    """True where the cause is one of ``causes``."""
    return np.array([c in causes for c in CAUSES], np.bool_)[codes]

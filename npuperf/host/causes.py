"""What a host event is about: the causes that host time is blamed on.

A name tells a cause only where it is one that a runtime, an exporter or torch gives to what it does, from the name's
beginning to its end. A user's range, a user's file or a folder that merely sounds like one tells nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np

from npuperf.model.frames import frame_cause, is_frame
from npuperf.model.host import PROFILER_FRAME
from npuperf.model.labels import U8, Labels, Mask

#: Calls of a runtime; where none is recorded, there may have been any number of them.
RUNTIME_CALL: Final = re.compile(r"^(AscendCL@|Runtime@|acl(rt|mdl)|cuda[A-Z]|cu[A-Z]|hip[A-Z])")
#: Calls of a runtime in which the host waits for the device.
BLOCKING_COPY: Final = re.compile(r"^(AscendCL@aclrt|cuda|hip)Memcpy$")
WAITING: Final = re.compile(rf"^(AscendCL@aclrt|Runtime@|cuda|cu[A-Z]|hip)\w*Synchronize\w*$|{BLOCKING_COPY.pattern}")
#: Torch operators that bring a value back to the host: they wait only where it comes from the device.
READERS: Final = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")
#: The one of them that reads, which the others may contain.
READING: Final = re.compile(r"^aten::_local_scalar_dense$")
_LAYER: Final = r"(AscendCL|Node|Model|Runtime|GE)@"
#: Names of phases that torch times while it compiles (torch._dynamo.utils.dynamo_timed).
_TIMED: Final = r"\(dynamo_timed\)$|^(entire_frame_compile|_compile\.compile_inner|backend_compile|compile_fx_inner)$"
#: Every cause with the names that tell it; the first match counts. Names are those of torch_npu, CANN and CUDA.
_PATTERNS: Final = (
    ("step", r"^ProfilerStep"),
    ("profiler", PROFILER_FRAME),
    ("sync", rf"{WAITING.pattern}|{READERS.pattern}"),
    ("data_loading", r"^enumerate\(DataLoader\)#"),
    ("compile", rf"^AscendCL@(opCompile|aclopCompile)$|^{_LAYER}\w*Build(Model|Graph)\w*$|{_TIMED}"),
    ("gc", r"^(Python )?GC$"),
    ("communication", r"^((Enqueue|Dequeue|AscendCL|Node|Model|Runtime)@)?(hcom_\w+|Hccl[A-Z]\w*|nccl[A-Z]\w*)$"
                      r"|^(Communication|Hccl|HCCL)@|^(nccl|hccl|gloo):\w+|^_?c10d\w*::|^record_param_comms$"),
    ("tiling", rf"^{_LAYER}\w*(Tiling|InferShape|GetWorkspaceSize|AllocMem|AllocBatchHbm|FreeMem|CalcWorkspace)"
               r"|^(aclnn\w+GetWorkspaceSize|\[?(Tiling|InferShape|AllocBatchHbm|FreeMem|CalcWorkspace)\w*\]?)$"),
    ("launch", r"^Node@|^Runtime@|^Model@|^(cuda|cu|hip)\w*(LaunchKernel|GraphLaunch|LaunchCooperative)\w*$"
               r"|^rtKernelLaunch|^AscendCL@(aclmdl\w*Execute\w*|aclrtLaunch\w*)$"),
    ("aclop", r"^AscendCL@aclop(CompileAndExecute|Execute)(V2)?$"),
    ("execute", r"^AscendCL@acl(nn|op|Create|Destroy)|^aclnn\w|^aclop\w"),
    ("memory", r"^AscendCL@aclrt(Malloc|Free|Memcpy|Memset)|^cuda(Malloc|Free|Memcpy|Memset|HostAlloc)"
               r"|^PTA\b.*(malloc|free)"),
    ("runtime", r"^AscendCL@|^cuda[A-Z]|^cu[A-Z]|^hip[A-Z]"),
    ("queue", r"^(Enqueue|Dequeue)\b"),
    ("optimizer", r"^Optimizer\."),
    ("autograd", r"^autograd::|^\w*Backward\d*$|^torch::autograd"),
    ("torch_op", r"^[\w.]+::|^TorchDynamo Cache Lookup$"),
    ("python", r"^nn\.Module: "),
)  # fmt: skip
CAUSES: Final = (*(name for name, _ in _PATTERNS), "range", "unrecorded")
CODE: Final = {name: code for code, name in enumerate(CAUSES)}
_RULES: Final = tuple((name, re.compile(pattern)) for name, pattern in _PATTERNS)

#: Causes that stand for work of the thread itself; ranges, frames and steps merely surround it.
BUSY: Final = frozenset(CAUSES) - {"step", "range", "python", "optimizer", "unrecorded"}
#: Causes of the host time that a launch itself costs: fewer launches mean less of them.
LAUNCHING: Final = ("tiling", "launch", "aclop", "execute", "runtime", "queue", "autograd", "torch_op")
#: Host time that fewer or cheaper launches do not save.
NOT_LAUNCHING: Final = ("sync", "data_loading", "compile", "gc", "communication")
#: What may go on between two launches as a part of launching, but not for long: see ``pauses``.
BETWEEN: Final = tuple(name for name in CAUSES if name not in (*LAUNCHING, *NOT_LAUNCHING))
#: What runs inside of these is part of them, whatever it is. A compilation launches nothing but its own trials.
COVERING: Final = ("compile", "gc")
#: What runs inside of these is part of them where it does not say by itself what it is: see DECIDED.
SURROUNDING: Final = ("sync", "data_loading", "communication")
#: Calls that say what they do wherever they stand.
DECIDED: Final = ("sync", "communication", "launch", "aclop", "execute", "tiling", "memory", "runtime")


@lru_cache(maxsize=1 << 16)
def cause_of(name: str) -> str:
    """Return the cause that an event of this name stands for."""
    if is_frame(name):
        return frame_cause(name)
    return next((cause for cause, pattern in _RULES if pattern.search(name)), "range")


def cause_codes(names: Labels) -> U8:
    """Return the cause of each event as an index into CAUSES."""
    table = [CODE[cause_of(n)] for n in names.names]
    return np.array([*table, CODE["range"]], np.uint8)[names.codes]


def flag_causes(codes: U8, causes: frozenset[str] | tuple[str, ...]) -> Mask:
    """True where the cause is one of ``causes``."""
    flags = bytes(c in causes for c in CAUSES).ljust(256, b"\0")
    return np.frombuffer(bytearray(codes).translate(flags), np.bool_)  # the quickest way to look bytes up

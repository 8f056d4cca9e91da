"""Python frames that say what happens: functions of modules that are known, never a path's resemblance.

A frame says which function runs, and nothing more. Functions of torch that load data or compile are known by module
and name; whoever executes what was compiled (generated code, wrappers around it) is not among them, nor is any file
of the user's.
"""

from __future__ import annotations

import re
from typing import Final

from npuperf.model.host import is_profiler_frame

_FRAME: Final = re.compile(r"^(?P<module>.+?)\(\d+\): (?P<function>.*)$")
_BUILTIN: Final = re.compile(r"^<built-in ")
#: Modules without which a name needs no closer look.
_CANDIDATE: Final = re.compile(r"torch/(utils/data|_dynamo|_functorch|_inductor)/|triton/compiler/|torchair/")
_COLLECT: Final = re.compile(r"^<built-in (function collect>|method collect of module )")
#: Modules (paths in a package, anchored at its name) and functions whose frames stand for a cause.
_KNOWN: Final = tuple(
    (cause, re.compile(rf"(?:^|/){module}$"), re.compile(rf"^(?:.*\.)?(?:{functions})$"))
    for cause, module, functions in (
        ("data_loading", r"torch/utils/data/(dataloader|_utils/\w+)\.py", r".*"),
        # Called where no compiled code fits, and done before the new code runs.
        ("compile", r"torch/_dynamo/convert_frame\.py", r"_compile|compile_inner|_convert_frame|_convert_frame_assert"),
        ("compile", r"torch/_dynamo/output_graph\.py", r"_?call_user_compiler|compile_and_call_fx_graph"),
        ("compile", r"torch/_functorch/aot_autograd\.py", r"aot_module_simplified|create_aot_dispatcher_function"),
        ("compile", r"torch/_inductor/compile_fx\.py",
         r"compile_fx|_?compile_fx_inner|fx_codegen_and_compile|codegen_and_compile|(fw|bw)_compiler(_base|_freezing)?"),
        ("compile", r"torch/_inductor/graph\.py", r"compile_to_module|compile_to_fn|codegen"),
        ("compile", r"torch/_inductor/async_compile\.py", r"wait|_wait_futures"),
        ("compile", r"triton/compiler/compiler\.py", r"compile"),
        ("compile", r"torchair/(core/)?\w*_?concrete_graph\w*(/\w+)?\.py", r"compile"),
    )
)  # fmt: skip


def is_frame(name: str) -> bool:
    """Tell a Python function, or a built-in one, from other host events."""
    return bool(_FRAME.match(name) or _BUILTIN.match(name))


def frame_cause(name: str) -> str:
    """Return the cause that a Python frame stands for: ``python`` unless its module and function say more."""
    if is_profiler_frame(name):
        return "profiler"
    if _COLLECT.match(name):
        return "gc"
    found = _FRAME.match(name) if _CANDIDATE.search(name) else None
    if found is None:
        return "python"
    for cause, module, functions in _KNOWN:
        if module.search(found["module"]) and functions.match(found["function"]):
            return cause
    return "python"

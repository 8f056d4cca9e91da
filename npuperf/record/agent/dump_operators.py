"""Run a Python program while torch_npu dumps the operators that it compiles, for AOE to tune.

    python dump_operators.py DUMP train.py ARGUMENT…
    python dump_operators.py DUMP -m package.train ARGUMENT…

The program sees the arguments, the search path and the ``__file__`` that it would have under ``python`` alone.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Ask for the dump, and become the program."""
    dump, *program = sys.argv[1:]
    as_module = program[0] == "-m"
    if as_module:
        del program[0]
    # As under python: not this file's folder, but the program's; set before torch, which it may have beside it.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.realpath(program[0]))
    sys.argv = program
    torch: Any = import_module("torch")
    import_module("torch_npu")  # which makes torch.npu
    torch.npu.set_aoe(dump)
    if as_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:  # its __file__ is absolute, as under python; so is its sys.argv[0], which is not
        runpy.run_path(os.path.abspath(program[0]), run_name="__main__")


if __name__ == "__main__":
    main()

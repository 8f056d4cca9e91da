"""Run torch_npu's own parser, in a process that can be lost: ``parse.py FOLDER PROCESSES [text,db]``."""

from __future__ import annotations

import gc
import inspect
import os
import sys


def main() -> None:
    """Parse one folder."""
    gc.disable()  # what torch makes while it is imported stays: looking through it takes a fifth of that time
    from torch_npu.profiler.profiler import analyse

    gc.freeze()
    gc.enable()
    wanted: dict[str, object] = {"max_process_number": int(sys.argv[2])}
    if sys.argv[3:]:
        wanted["export_type"] = sys.argv[3].split(",")
    known = inspect.signature(analyse).parameters  # export_type came in 7.1.0, max_process_number in 6.0
    analyse(sys.argv[1], **{key: value for key, value in wanted.items() if key in known})


if __name__ == "__main__":  # the parser starts processes of its own
    main()
    # All is on the disk: taking torch down, and waiting for a spinner of torch_npu's that turns once a second, is not
    # worth a second of the user's time. An exception never gets here.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

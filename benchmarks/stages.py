"""CPU seconds of the stages of ``npuperf analyze``, one after the other in one process: see bench_analyze.py.

    python benchmarks/stages.py PROFILE

Prints a JSON object, in the order of the stages. The last one is everything from the beginning, where table and trace
are read side by side. Set PYTHONPATH to a checkout to measure that version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time


def main() -> None:
    """Run the stages."""
    laps: dict[str, float] = {}
    began = process_time()

    def lap(name: str) -> None:
        nonlocal began
        laps[name] = process_time() - began
        began = process_time()

    from npuperf.base.memory import spare_pandas

    spare_pandas()  # as the command does
    from npuperf.advise import load_thresholds
    from npuperf.against.run import run
    from npuperf.analyze.examine import Earlier, examine
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.device.study import Study
    from npuperf.readers.kernels import merge, read_kernels
    from npuperf.readers.log import ReadLog
    from npuperf.readers.recording import open_recording, read_source
    from npuperf.readers.timeline import interpret
    from npuperf.readers.trace import read_trace

    path = Path(sys.argv[1])
    lap("start: imports")
    source = open_recording(path).sources[0]
    lap("find the files")
    log = ReadLog()
    trace = read_trace(source.timeline, log)
    lap("read the trace")
    timeline = interpret(trace, source.timeline)
    lap("timeline: who is who, launches")
    kernels = read_kernels(source, log)
    lap("read the kernel table")
    merge(kernels.devices, timeline, source, log)
    lap("join table and timeline")
    del trace, timeline, kernels
    profile = read_source(source, log).profiles[0]
    began = process_time()  # it was measured above
    thresholds = load_thresholds()
    Study.of(profile, thresholds)
    lap("study: waits, phases, the replay's program")
    examine(profile, AnalyzeRequest(path=path), thresholds, Earlier(), ReadLog())
    lap("what-ifs, rules, description")
    laps["what-ifs, rules, description"] -= list(laps.values())[-2]
    del profile
    run(AnalyzeRequest(path=path))
    lap("all but the start, read side by side")
    print(json.dumps(laps))


if __name__ == "__main__":
    main()

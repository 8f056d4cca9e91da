#!/usr/bin/env python3
"""Stand-in for the toolkit's own exporter: msprof.py export summary|timeline|db -dir PROF, msprof.py analyze -dir PROF."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bin"))
import exporter

words = sys.argv[1:]
if "-dir" not in words:
    print("usage: msprof.py export summary|timeline|db -dir PROF")
    sys.exit(1)
prof = words[words.index("-dir") + 1]
if words[0] == "analyze":
    exporter.analyze(prof)
elif words[:2] in (["export", "summary"], ["export", "db"]):  # the timeline comes with the summary
    exporter.export(prof, "db" if words[1] == "db" else "text")

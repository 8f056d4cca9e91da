"""Write dist/npuperf.1: the manual page, which says what ``--help`` says of npuperf and of each of its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: As its script calls it, under the name that help tells.
CODE = "import sys; sys.argv[0] = 'npuperf'; from npuperf.__main__ import main; main()"


def helped(*command: str) -> str:
    """Return what is printed with --help."""
    environment = {**os.environ, "COLUMNS": "78", "NPUPERF_LANGUAGE": "en", "NO_COLOR": "1"}
    whole = [sys.executable, "-c", CODE, *command, "--help"]
    return subprocess.run(whole, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def roff(text: str) -> str:
    """Return text as it is laid out, so that roff takes none of it for its own words."""
    lines = text.rstrip().replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join([".nf", *("\\&" + line if line.startswith((".", "'")) else line for line in lines), ".fi"])


def page() -> str:
    """Return the manual page."""
    whole = helped()
    verbs = re.findall(r"^  (\w+) ", whole.split("\nCommands:\n")[1].split("\n\n")[0], re.MULTILINE)
    parts = ['.TH NPUPERF 1 "" "npuperf" "npuperf"', ".SH NAME", "npuperf \\- performance of PyTorch on Ascend NPUs"]
    parts += [".SH DESCRIPTION", roff(whole)]
    for verb in verbs:
        parts += [f'.SH "NPUPERF {verb.upper()}"', roff(helped(verb))]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    made = ROOT / "dist" / "npuperf.1"
    made.parent.mkdir(exist_ok=True)
    made.write_text(page(), "utf-8")
    print(made)

"""CANN on this machine: where it lies, what to source, which version it is."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

#: Where CANN is installed unless somebody chose another place.
_PLACES: Final = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/latest")


def roots(environment: Mapping[str, str]) -> list[str]:
    """Return where CANN may lie: what the environment names, then the usual places."""
    named = [environment.get(name) for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")]
    return list(dict.fromkeys([*(root for root in named if root), *_PLACES]))


def find_program(name: str, below: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Look for a program of CANN on PATH, then below its installations."""
    on_path = shutil.which(name, path=environment.get("PATH"))
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(root) / binary for root in roots(environment) for binary in below]
    return next((c for c in candidates if c.is_file() and os.access(c, os.X_OK)), None)


def set_env_script(environment: Mapping[str, str]) -> str:
    """Return the script that sets CANN's environment up: one that exists, else the usual one."""
    names = ("set_env.sh", "../set_env.sh", "bin/setenv.bash")
    found = (Path(root, name) for root in roots(environment) for name in names)
    return os.path.normpath(next((f for f in found if f.is_file()), "/usr/local/Ascend/ascend-toolkit/set_env.sh"))


def cann_version(environment: Mapping[str, str]) -> str | None:
    """Return the version of the CANN that the environment names, as its own files say."""
    for root in roots(environment):
        for info in [*sorted(Path(root).glob("*-linux/ascend_toolkit_install.info")), Path(root, "version.info")]:
            if info.is_file():
                found = re.search(r"^version=(.+)$", info.read_text("utf-8", "replace"), re.MULTILINE | re.IGNORECASE)
                if found:
                    return found[1].strip()
    return None

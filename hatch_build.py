"""Make what a build makes: the version, languages, JSON Schemas and the libraries of our own C (base/loading.py).

Languages read as they are written take ten times as long. Without a C compiler there are no libraries, and npuperf does
everything by its other ways: the wheel then fits every platform. CC names the compiler; NPUPERF_PLATFORM the platform
for which it compiles, if that is not this machine's, as tools/wheels.py says it; "any" compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: No instructions that only some processors have, and no arithmetic other than what is written.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")
#: The version of a source without tags: a copy without git, or a clone without history.
SOURCE = Path("npuperf", "base", "__init__.py")


def version_of(root: Path) -> str:
    """Return a checkout's version: that of the tag it is, of the commits since one, or that which its source says."""
    (said,) = re.findall(r'^    __version__ = "(.+)"$', (root / SOURCE).read_text("utf-8"), re.MULTILINE)
    if not (root / ".git").exists():  # another project's repository may be around it
        return str(said)
    command = ["git", "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        found = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return str(said)
    tag, commits, commit = found.strip().removeprefix("v").rsplit("-", 2)
    if commits == "0":
        return tag
    *most, last = tag.split(".")
    return f"{'.'.join(most)}.{int(last) + 1}.dev{commits}+{commit}" if last.isdigit() else str(said)


class Compile(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Write ``<code>.mo`` beside every ``<code>.po``, ``lib<name>.so`` beside every ``<name>.c``, and the schemas."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make all; ``version`` says which kind of installation is made."""
        for source in Path(self.root, "npuperf", "locale").glob("*.po"):
            self._ship(runpy.run_path(str(Path(self.root, "languages.py")))["compile_language"](source), build_data)
        if self.target_name == "wheel":
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join((self.root, *sys.path))}  # what pip installed to build
            subprocess.run([sys.executable, "-m", "npuperf.model.schema"], cwd=self.root, env=paths, check=True)
            for schema in sorted(Path(self.root, "npuperf", "model").glob("*.schema.json")):
                self._ship(schema, build_data)
        if self.target_name == "wheel" and version != "editable":  # there the source says it
            self._write_version(build_data)
        platform = os.environ.get("NPUPERF_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if self.target_name == "wheel" and os.name == "posix" and platform != "any":
            sources = sorted(Path(self.root, "npuperf").rglob("*.c"))
            libraries = [library for library in map(self._compile, sources) if library]
            for library in libraries:
                self._ship(library, build_data)
            if libraries:
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{platform}"

    def _write_version(self, build_data: dict[str, Any]) -> None:
        """Put the wheel's version into the wheel, not into the source, where it would soon be another's."""
        made = Path(self.root, "dist", "_version.py")
        made.parent.mkdir(exist_ok=True)
        made.write_text(f'"""The version of this wheel."""\n\n__version__ = "{self.metadata.version}"\n', "utf-8")
        build_data.setdefault("force_include", {})[str(made)] = "npuperf/base/_version.py"

    def _ship(self, compiled: Path, build_data: dict[str, Any]) -> None:
        build_data["artifacts"].append(compiled.relative_to(self.root).as_posix())

    def _compile(self, source: Path) -> Path | None:
        """Compile beside the place and move there: somebody may be using the one before, which is gone in any case."""
        library = source.with_name(f"lib{source.stem}.so")
        made = library.with_name(f".{library.name}.{os.getpid()}")
        known = f'-DSOURCE_HASH="{hashlib.sha256(source.read_bytes()).hexdigest()}"'
        try:
            command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS, known, str(source), "-lm", "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            made.replace(library)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            made.unlink(missing_ok=True)
            library.unlink(missing_ok=True)
            why = getattr(error, "stderr", None) or error
            self.app.display_warning(f"npuperf does without {library.name}, and will be slower: {why}")
            return None
        return library

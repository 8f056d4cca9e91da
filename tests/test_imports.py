"""What each command loads: of a short command, loading modules is most of the time.

A new name here is a decision: every module is paid for on every start.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from conversion import to_db

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
#: Modules that the analysis of one device takes. Ten of them sum up and count what each step is made of, and say what
#: was run: every result has that, since nobody knows at the time whether it will be compared with. Eight
#: look for memory, thirteen for efficiency, one for the clock; one says the gist last.
MOST = 153
#: The way through the verb, of a room of which all else is for a comparison, a gate or a lock alone.
HELD = {"npuperf.against", "npuperf.against.run"}
#: What typer, whichever release, and the interpreter's own packages bring along.
TYPER = {"typer", "click", "annotated_doc", "shellingham", "typing_extensions", "colorama"}
#: And Arrow: cloudpickle and dateutil it looks for, and takes where they are.
READING = {"msgspec", "numpy", "pyarrow", "yaml", "cloudpickle", "cython_runtime", "dateutil", "six"}
#: Modules of ours that only a job of several ranks has a use for, beside the room `job`.
JOB = {"npuperf.show.job_screen", "npuperf.analyze.whole_job"}
#: Of the standard library, what takes long and is not needed for it.
SLOW = {"email", "importlib.metadata", "zipfile", "multiprocessing.context", "unittest", "xml", "http", "asyncio"}
#: A twentieth of a small analysis: np.unique without any flag loads it (npuperf.model.groups has another way).
MASKED = "numpy.ma"
SHOW = """
import atexit, json, sys
before = set(sys.modules)
atexit.register(lambda: print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr))
sys.argv = ["npuperf", *sys.argv[1:]]
from npuperf.__main__ import main
main()
"""


@cache
def loaded(*arguments: str, status: int = 0) -> frozenset[str]:
    """The modules that a command has loaded by its end."""
    done = subprocess.run([sys.executable, "-c", SHOW, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return frozenset(json.loads(done.stderr.splitlines()[-1]))


def ours(modules: frozenset[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "npuperf"}


def others(modules: frozenset[str]) -> set[str]:
    """The packages that are neither ours nor the standard library's nor parts of one of those."""
    top = {name.split(".")[0] for name in modules} - {"npuperf"} - set(sys.stdlib_module_names)
    return {name for name in top if not name.startswith("_")}


def held(modules: frozenset[str]) -> set[str]:
    return {name for name in modules if name.startswith("npuperf.against")}


def rooms(modules: frozenset[str]) -> set[str]:
    return {name.split(".")[1] for name in ours(modules) if "." in name}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_declarations_only(arguments: list[str]) -> None:
    modules = loaded(*arguments)
    assert others(modules) <= TYPER
    assert rooms(modules) <= {"__main__", "base", "cli", "show"}
    assert len(ours(modules)) <= 20
    assert not modules & SLOW


@pytest.mark.parametrize(("verb", "room"), [("profile", "record"), ("analyze", "analyze"), ("tune", "tune")])
def test_help_on_a_verb_loads_its_request_and_no_other(verb: str, room: str) -> None:
    """Of tunings also what their gates measure, which is declared beside what can be asked of one."""
    modules = loaded(verb, "--help")
    measured = {f"npuperf.model.{name}" for name in ("comparison", "document", "job_result", "parts", "tuning")} | {
        "npuperf.model"
    }
    assert others(modules) <= TYPER | {"msgspec"}
    assert rooms(modules) <= {"__main__", "base", "cli", "show", room, *(["model"] if verb == "tune" else [])}
    requests = {name for name in ours(modules) if name.startswith(f"npuperf.{room}")}
    assert requests == {f"npuperf.{room}", f"npuperf.{room}.request"}
    assert len(ours(modules) - (measured if verb == "tune" else set())) <= 20
    assert not modules & SLOW


def test_the_tables_are_listed_without_reading_anything() -> None:
    modules = loaded("analyze", "--table", "help")
    assert others(modules) <= TYPER | {"msgspec"}
    assert len(ours(modules)) <= 38


@pytest.mark.parametrize("asked", [[], ["--step", "12", "--top", "3"], ["--format", "json"]])
def test_one_device_loads_nothing_for_others(asked: list[str]) -> None:
    modules = loaded("analyze", str(SAMPLES / "transformer_ascend_pt"), "--no-cache", *asked)
    assert others(modules) <= TYPER | READING | (set() if "json" in asked else {"rich"})
    assert not modules & (JOB | SLOW | {"hashlib", MASKED, "pyarrow.parquet", "pyarrow.dataset"})
    assert not rooms(modules) & {"tune", "job"} and held(modules) == HELD
    assert not modules & {"npuperf.cli.api", "npuperf.base.process", "npuperf.show.html", "npuperf.show.draw"}
    assert len(ours(modules)) <= MOST


def test_what_shows_an_answer_that_is_known_loads_nothing_that_works_it_out() -> None:
    shown = "import json, sys, npuperf.show.analysis_text; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = frozenset(json.loads(done.stdout))
    assert not modules & {"numpy", "pyarrow"} and not rooms(modules) & {"advise", "job", "readers"}


def test_a_page_loads_what_draws_it_and_no_more(tmp_path: Path) -> None:
    modules = loaded("analyze", str(SAMPLES / "transformer_ascend_pt"), "--html", str(tmp_path / "page.html"))
    assert modules >= {"npuperf.show.html", "npuperf.show.draw"}
    assert others(modules) <= TYPER | READING | {"rich", "jinja2", "markupsafe"}
    assert (
        not rooms(modules) & {"tune"}
        and held(modules) == HELD
        and not modules & {"npuperf.cli.api", "npuperf.show.overlay"}
    )


def test_a_database_loads_no_more(tmp_path: Path) -> None:
    folder = to_db(SAMPLES / "transformer_ascend_pt", tmp_path / "db")
    modules = loaded("analyze", str(folder), "--no-cache")
    assert "sqlite3" in modules
    assert others(modules) <= TYPER | READING | {"rich"}
    assert not modules & (JOB | SLOW | {MASKED}) and "job" not in rooms(modules)
    assert len(ours(modules)) <= MOST


def test_a_job_in_one_process() -> None:
    modules = loaded("analyze", str(SAMPLES / "pipeline_job"), "--engine", "serial", "--no-cache")
    assert modules >= JOB
    assert others(modules) <= TYPER | READING | {"rich", "psutil"}  # which asks how many fit beside each other


def test_other_verbs_load_nothing_of_an_analysis() -> None:
    for arguments, status in ((("tune", "--from", "nowhere"), 3), (("profile", "--dry-run", "nowhere.py"), 2)):
        modules = loaded(*arguments, status=status)
        assert others(modules) <= TYPER | READING | {"psutil", "rich"}
        assert not rooms(modules) & {"advise", "analyze", "job"}, arguments


def test_workers_load_neither_pandas_nor_what_shows(tmp_path: Path) -> None:
    """Started as a shell starts it: workers load the script that their parent was started with once more.

    It has a thread, as where progress is shown: else they would be forked, and load nothing.
    """
    assert 'npuperf = "npuperf.__main__:main"' in (ROOT / "pyproject.toml").read_text()
    script = tmp_path / "npuperf"
    script.write_text(
        "from npuperf.__main__ import main\nif __name__ == '__main__':\n"
        "    from threading import Event, Thread\n    Thread(target=Event().wait, daemon=True).start()\n    main()\n"
    )
    command = [sys.executable, "-X", "importtime", str(script), "analyze", str(SAMPLES / "pipeline_job")]
    command += ["--no-cache", "--engine", "processes", "--workers", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    times = Counter(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert times["npuperf.readers.recording"] == 3  # in two workers and their parent
    for name in ("npuperf.cli", "npuperf.show.formats", "typer", "rich.console", "npuperf.job.job_study", *JOB):
        assert times[name] == 1, name
    assert not any(name.startswith(("pandas.", "scipy.", "dask.", "torch.")) for name in times)


def test_what_an_installation_needs_is_imported() -> None:
    """Each of the packages that come with npuperf costs disk on every machine: none is there that nothing imports."""
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.M | re.S)
    assert listed
    needed = re.findall(r'^  "([\w-]+)', listed[1], re.M)
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "npuperf").rglob("*.py"))
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", source, re.M))
    assert len(needed) > 5 and [name for name in needed if {"pyyaml": "yaml"}.get(name, name) not in imported] == []

"""What docs/ci.md shows is run as shell, as its CI system would: the first time, unchanged, and with a change.

Only the recording is pretended: its command line is checked, and lays down a profile that was built by hand.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
import yaml
from build import H, K, ascend_pt

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"<!-- ci: ([\w, ]+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))

INSTALL = BLOCKS["install"].strip()


def github() -> tuple[str, str]:
    """What runs on main, and what on a pull request."""
    (job,) = yaml.safe_load(BLOCKS["github"])["jobs"].values()
    steps = [step for step in job["steps"] if "run" in step]
    main = [step["run"] for step in steps if "pull_request" not in step.get("if", "")]
    change = [step["run"] for step in steps if "main" not in step.get("if", "")]
    assert len(main) == len(change) == 3
    return "\n".join(main), "\n".join(change)


def gitlab() -> tuple[str, str]:
    jobs = yaml.safe_load(BLOCKS["gitlab"])
    kept, fetched = (jobs[name]["cache"] for name in ("performance baseline", "performance"))
    assert {**kept, "policy": "pull"} == fetched
    return "\n".join(jobs["performance baseline"]["script"]), "\n".join(jobs["performance"]["script"])


def jenkins() -> tuple[str, str]:
    found = re.findall(r"stage\('([\w ]+)'\).*?sh ('''.*?'''|'.*?')", BLOCKS["jenkins"], re.DOTALL)
    assert [name for name, _ in found] == ["Record", "Judge", "Keep as the baseline"]
    record, judge, keep = (script.strip("'") for _, script in found)
    return f"{record}\n{keep}", f"{record}\n{judge}"


SYSTEMS = {
    "shell": (BLOCKS["shell, main"], BLOCKS["shell, change"]),
    "github": github(),
    "gitlab": gitlab(),
    "jenkins": jenkins(),
}


def recorded(folder: Path, *, factor: float = 1.0, casts: int = 0, seed: int = 0) -> Path:
    """Ten steps of ten operators: MatMulV2 may take longer, and there may be casts in each."""
    random, kernels, steps, at = Random(seed), [], {}, 0
    for step in range(10):
        begin = at
        for i in range(10 + casts):
            type_ = "Cast" if i >= 10 else "MatMulV2" if i % 2 else "Add"
            dur = 200_000 + random.randrange(2_000)
            dur = int(dur * factor) if type_ == "MatMulV2" else dur
            kernels.append(K(at + 20_000, dur, f"aclnn{type_}", type_, step=step, launch=at, launch_dur=5_000,
                             shapes="2,3;3,4"))  # fmt: skip
            at += dur + 30_000
        steps[step] = (begin, at)
    host = [H(k.name, k.launch - 1_000, 8_000, python=True) for k in kernels if k.launch]
    return ascend_pt(folder, kernels, steps, cores="24,48", host=host)


class Runner:
    """A working folder of a CI system, with an npuperf whose recordings are pretended."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        (self.work / "train.py").write_text("")
        python = shlex.quote(python)
        (folder / "npuperf").write_text(
            "#!/bin/sh\n"
            'if [ "$1" = profile ]; then\n'
            "  shift\n"
            "  rm -rf result\n"
            f'  {python} -m npuperf profile --dry-run "$@" >"$DRY" && cp -r "$RECORDED" result\n'
            "  exit\n"
            "fi\n"
            f'exec {python} -m npuperf "$@"\n'
        )
        (folder / "npuperf").chmod(0o755)
        (folder / "pip").write_text(
            '#!/bin/sh\n[ -d "$5" ] && [ "$1 $2 $3 $4 $6" = "install -q --no-index --find-links npuperf" ]\n'
        )
        (folder / "pip").chmod(0o755)

    def run(self, script: str, recorded: Path) -> subprocess.CompletedProcess[str]:
        """Run a script as CI systems do: the first command that fails ends it."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RECORDED": str(recorded),
            "NPUPERF_WHEELHOUSE": str(self.folder),
            "DRY": str(self.folder / "dry"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "COLUMNS": "120",
        }
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.work, env=environment, capture_output=True, text=True, check=False
        )

    def gates(self) -> dict[str, bool]:
        """Every test case of the JUnit file, and whether it passed."""
        cases = ElementTree.parse(self.work / "npuperf.xml").iter("testcase")
        return {case.get("name", ""): case.find("failure") is None and case.find("error") is None for case in cases}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recorded")
    return {
        "main": recorded(folder / "main"),
        "same": recorded(folder / "same", seed=1),
        "worse": recorded(folder / "worse", factor=1.4, casts=1, seed=2),
    }


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory, profiles: dict[str, Path], quick: str) -> Path:
    """What a project has locked: counts of the run on main."""
    runner = Runner(tmp_path_factory.mktemp("locked"), quick)
    done = runner.run('npuperf analyze "$RECORDED" --lock perf.lock', profiles["main"])
    assert done.returncode == 0, done.stdout + done.stderr
    return runner.work / "perf.lock"


@pytest.mark.parametrize("system", sorted(SYSTEMS.keys() - {"shell"}))
def test_every_system_installs_what_it_runs(system: str) -> None:
    for script in SYSTEMS[system]:
        assert script.strip("'\n ").startswith(INSTALL) and script.count(INSTALL) == 1


def test_recipes_install_from_the_same_folder(tmp_path: Path, profiles: dict[str, Path], quick: str) -> None:
    """The action's and the template's own lines, as their systems run them, over a run that was recorded."""
    action = yaml.safe_load((ROOT / "recipes" / "ci" / "action.yml").read_text("utf-8"))
    template = yaml.safe_load((ROOT / "recipes" / "ci" / "gitlab.yml").read_text("utf-8"))[".npuperf"]
    given = {name: shlex.quote(str(one.get("default", "result"))) for name, one in action["inputs"].items()}
    given["wheelhouse"] = '"$NPUPERF_WHEELHOUSE"'
    steps = [
        re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda of: given[of[1]], one["run"]) for one in action["runs"]["steps"]
    ]
    for name, script in (("action", steps), ("template", template["before_script"] + template["script"])):
        (tmp_path / name).mkdir()
        runner = Runner(tmp_path / name, quick)
        (runner.work / "result").symlink_to(profiles["main"])
        done = runner.run("\n".join(["export NPUPERF_ARGUMENTS='result'", *script]), profiles["main"])
        assert done.returncode == 0, done.stdout + done.stderr
        if name == "action":
            assert (runner.folder / "summary.md").read_text("utf-8").startswith("#")
        else:
            assert (runner.work / "npuperf.xml").stat().st_size > 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_passes_what_is_the_same_and_stops_what_is_not(
    tmp_path: Path, profiles: dict[str, Path], lock: Path, system: str, quick: str
) -> None:
    main, change = SYSTEMS[system]
    runner = Runner(tmp_path, quick)
    shutil.copy(lock, runner.work)
    done = runner.run(main, profiles["main"])
    assert done.returncode == 0, done.stdout + done.stderr
    done = runner.run(change, profiles["same"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(runner.gates().values())
    done = runner.run(change, profiles["worse"])
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [case for case, passed in runner.gates().items() if not passed]
    assert any("step_time" in case for case in failed) and any("Cast" in case for case in failed)
    if system == "github":
        summary = (tmp_path / "summary.md").read_text("utf-8")
        assert "step_time>+5%,200us" in summary
        for part in summary.split("\n# ")[1:]:
            seen, _, folded = part.partition("<details>")
            assert len(seen.splitlines()) < 30 and 0 < len(folded.splitlines()) < 60


def test_nothing_passes_without_a_baseline(tmp_path: Path, profiles: dict[str, Path], quick: str) -> None:
    runner = Runner(tmp_path, quick)
    done = runner.run(SYSTEMS["shell"][1], profiles["main"])
    assert done.returncode in (2, 3)
    assert not (runner.work / "npuperf.xml").exists()


def test_every_system_asks_the_same() -> None:
    """The pages differ in what hands the files on, not in what is judged."""
    asked = {re.sub(r"\s*\\\n\s*|\s*--format markdown.*", " ", change).split("analyze", 1)[1].strip()
             for _, change in SYSTEMS.values()}  # fmt: skip
    assert len(asked) == 1, asked


def test_the_page_has_no_block_that_is_not_run() -> None:
    marked = {*BLOCKS}
    assert len(re.findall(r"^```\w+$", PAGE, re.MULTILINE)) == len(marked)
    assert marked == {"install", "shell, main", "shell, change", "github", "gitlab", "jenkins", "cpu, change"}

"""What a release brings besides wheels: refusals, checksums, the manual page, and completion for three shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

from npuperf.cli import app

ROOT = Path(__file__).resolve().parent.parent
VERBS = ("profile", "analyze", "tune")


def tool(name: str) -> ModuleType:
    """A script of tools/, as a module."""
    module = ModuleType(name)
    module.__file__ = str(ROOT / "tools" / f"{name}.py")
    exec(compile(Path(module.__file__).read_text("utf-8"), module.__file__, "exec"), module.__dict__)
    return module


#: npuperf as its script calls it: its name is that of the variables by which a shell asks.
CODE = tool("man").CODE
COMMAND = [sys.executable, "-c", CODE]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project that may be released as 0.2.0: all committed, and tagged."""
    root = tmp_path / "project"
    for name, text in {
        "hatch_build.py": 'def version_of(root):\n    return "0.2.0"\n',
        "npuperf/base/__init__.py": '    __version__ = "0.2.0"\n',
        "pyproject.toml": "[project]\n",
        "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n",
        "tests/released/0.2.0/result.json": "{}",
        ".gitignore": "dist\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x")
    git(root, "tag", "v0.2.0")
    yield root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: git(root, "tag", "-d", "v0.2.0"), "the commit has no tag v0.2.0"),
        (
            lambda root: (root / "npuperf/base/__init__.py").write_text("x"),
            "npuperf/base/__init__.py does not say 0.2.0",
        ),
        (lambda root: (root / "CHANGELOG.md").write_text("## [0.2.0]\n"), "CHANGELOG.md has no heading"),
        (lambda root: shutil.rmtree(root / "tests/released"), "tests/released/0.2.0 has no documents"),
        (lambda root: (root / "new").touch(), "not everything is committed"),
    ],
)
def test_what_is_not_ready_is_refused_before_anything_runs(project: Path, change: Any, said: str) -> None:
    release = tool("release")
    release.ROOT = project
    change(project)
    with pytest.raises(SystemExit) as refused:
        release.main()
    assert str(refused.value).startswith("no release:\n") and said in str(refused.value)


def test_a_release_is_checked_built_and_summed_in_this_order(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release, ran = tool("release"), []
    real, said, dist = subprocess.run, release.said, project / "dist"
    release.ROOT, release.DIST = project, dist

    def run(command: list[str], **more: Any) -> Any:
        ran.append(command)
        return real(["true"] if command[0] == "make" else command, **more)

    def pretend(*command: str) -> str:
        """Make what the tools make; of git only is asked."""
        if command[0] == "git":
            return str(said(*command))
        ran.append([*command])
        dist.mkdir(exist_ok=True)
        made = {
            "tools/wheels.py": ["npuperf-0.2.0-py3-none-any.whl", "npuperf-0.2.0.tar.gz"],
            "tools/man.py": ["npuperf.1"],
        }
        names = made.get(command[1], [Path(command[-1]).name] if "-o" in command else [])
        for name in names:
            (dist / name).write_text(name, "utf-8")
        return ""

    monkeypatch.setattr(release.subprocess, "run", run)
    monkeypatch.setattr(release, "said", pretend)
    git(project, "config", "user.signingkey", "")
    release.main()
    steps = [" ".join(command) for command in ran]
    order = ["make check", "tools/wheels.py", "twine check", "cyclonedx_py environment", "tools/man.py"]
    places = [next(at for at, step in enumerate(steps) if word in step) for word in order]
    assert places == sorted(places)
    monkeypatch.undo()
    summed = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=dist, check=True, capture_output=True, text=True
    )
    assert sorted(re.findall(r"^(\S+): OK$", summed.stdout, re.M)) == sorted(
        {p.name for p in dist.iterdir()} - {"SHA256SUMS"}
    )
    assert "names no [project.urls]" in (told := capsys.readouterr().out) and "git push origin v0.2.0" in told


def test_the_manual_page_has_every_option_of_every_command() -> None:
    page = tool("man").page()
    assert "Usage: npuperf [OPTIONS]" in page and "python" not in page.partition('\n.SH "NPUPERF')[0]
    parts = dict(re.findall(r'^\.SH "NPUPERF (\w+)"\n(.*?)(?=^\.SH|\Z)', page, re.M | re.S))
    group: Any = typer.main.get_command(app)
    assert [*parts] == [name.upper() for name in group.list_commands(None)] == [name.upper() for name in VERBS]
    for name in VERBS:
        command = group.get_command(typer.Context(group), name)
        text = parts[name.upper()].replace("\\-", "-")
        options = {
            word for p in command.params if not getattr(p, "hidden", False) for word in (*p.opts, *p.secondary_opts)
        }
        options = {word for word in options if word.startswith("-")}
        assert (
            len(options) > 20
            and [word for word in sorted(options) if not re.search(rf"(?<![\w-]){word}\b", text)] == []
        )
    assert "\n." not in re.sub(
        r"^\.(TH|SH|nf|fi)\b", "", page, flags=re.M
    )  # no line that roff takes for a word of its own


def completed(shell: str, line: str, **more: str) -> str:
    """What npuperf answers to a shell that completes a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment = {**os.environ, "_NPUPERF_COMPLETE": f"complete_{shell}", "NPUPERF_LANGUAGE": "en", **words, **more}
    return subprocess.run(COMMAND, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("shell", "registers"),
    [("bash", "complete -o default"), ("zsh", "#compdef npuperf"), ("fish", "complete --command npuperf")],
)
def test_completion_knows_commands_and_options(shell: str, registers: str) -> None:
    more = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    script = subprocess.run(COMMAND, env={**os.environ, "_NPUPERF_COMPLETE": f"source_{shell}"}, check=True,
                            capture_output=True, text=True).stdout  # fmt: skip
    assert registers in script and f"_NPUPERF_COMPLETE=complete_{shell}" in script
    commands = completed(shell, "npuperf ", **more)
    assert [verb for verb in VERBS if verb not in commands] == []
    assert shell == "bash" or "Tune operators with AOE, and verify the gain." in commands  # as npuperf --help has it
    assert "--what-if" in completed(shell, "npuperf analyze --wh", **more)
    options = completed(shell, "npuperf analyze --", **more).splitlines()  # each with its description in one line
    assert len(options) > 50 and [line for line in options if not re.search('(^|["(])--[a-z]', line)] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_bash_completion_works_once_it_is_sourced(tmp_path: Path) -> None:
    program = tmp_path / "npuperf"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{CODE}" "$@"\n', "utf-8")
    program.chmod(0o755)
    script = """source <(_NPUPERF_COMPLETE=source_bash npuperf)
        COMP_WORDS=(npuperf t) COMP_CWORD=1; _npuperf_completion npuperf; echo "${COMPREPLY[@]}"; complete -p npuperf"""
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, **path}, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["tune", "complete -o default -F _npuperf_completion npuperf"]

"""The documentation is true: its commands run, its screen is the program's, its tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from conftest import ROOT, Done, run_cli

from npuperf.base.errors import ExitCode

README = (ROOT / "README.md").read_text("utf-8")
SCREEN = re.compile(
    r"<!-- screen: (?P<command>[^|\n]+?) \| first (?P<lines>\d+) lines -->\n"
    r"```text\n(?P<screen>.*?)```\n<!-- end of screen -->",
    re.DOTALL,
)


def run(command: str) -> Done:
    """Run an npuperf command line, 80 columns wide."""
    program, *arguments = shlex.split(command, comments=True)
    assert program == "npuperf"
    return run_cli(arguments, columns=80)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def section(title: str, page: str = README) -> str:
    """The text of a section, up to the next of its kind."""
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def examples(title: str) -> list[str]:
    """The commands that a section of the README shows."""
    lines = [line for block in blocks(section(title), "sh") for line in block.splitlines()]
    return [line.split(" #")[0].rstrip() for line in lines if line.startswith("npuperf ")]


def shown_by_help(verb: str) -> list[str]:
    """The examples of a verb's help, which stand deeper than its sentences."""
    done = run(f"npuperf {verb} --help")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Examples:" in done.stdout, done.stdout
    return [line.strip() for line in lines if line.startswith("    npuperf ")]


@pytest.mark.parametrize("page", ["README.md", "docs/cluster.md", "docs/first-day.md"])
def test_pages_show_the_real_screen(page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text("utf-8")
    found = SCREEN.search(text)
    assert found
    done = run(found["command"])
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert len(lines) > int(found["lines"])  # there is more, as the page says
    screen = "\n".join(lines[: int(found["lines"])]) + "\n"
    if request.config.getoption("--update", default=False):
        (ROOT / page).write_text(text[: found.start("screen")] + screen + text[found.end("screen") :], "utf-8")
        return
    assert screen == found["screen"]


def test_set_up_takes_two_commands() -> None:
    setup = README.split("<!-- setup -->")[1].split("<!-- end of setup -->")[0]
    commands = "".join(blocks(setup, "sh")).strip().splitlines()
    assert len(commands) == 2
    assert "npuperf analyze samples/transformer_ascend_pt" in commands[0]
    assert "pytest" in commands[1]


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result").symlink_to(ROOT / "samples" / "transformer_ascend_pt")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    commands = examples("Analyze")
    assert len(commands) >= 10
    for command in commands:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "out.json").stat().st_size > 1000


def test_the_first_day_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "first-day.md").read_text("utf-8")
    commands = [block.strip() for block in blocks(page, "sh")]
    assert len(commands) == len(re.findall(r"^\*\*\d\. .*\?\*\* ", page, re.MULTILINE)) == 5
    for name, target in (("samples", ""), ("result", "transformer_ascend_pt"), ("result.1", "transformer_ascend_pt")):
        (tmp_path / name).symlink_to(ROOT / "samples" / target)
    (tmp_path / "train.py").touch()
    for command in commands:
        done = run(command)
        assert done.returncode == 0 and done.stdout + done.stderr, (command, done.stderr)
    assert (tmp_path / "report.html").exists()
    (first, *_) = re.findall(r"\]\((docs/[\w.-]+)\)", README)
    assert first == "docs/first-day.md"


@pytest.mark.parametrize(
    ("page", "shown"), [("docs/first-day.md", "first_day.svg"), ("docs/zh/first-day.md", "first_day.zh.svg")]
)
def test_the_recording_of_the_first_day_shows_its_page(page: str, shown: str) -> None:
    """Its questions, its commands and its screen, in their order (make day)."""
    text = (ROOT / page).read_text("utf-8")
    assert f"pictures/{shown})" in text
    path = ROOT / "docs" / "pictures" / shown
    assert path.stat().st_size < 300_000
    rows = ["".join(row.itertext()) for row in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    screen = SCREEN.search(text)
    questions = re.findall(r"^\*\*(\d\. .*?)\*\*", text, re.MULTILINE)
    commands = [block.strip() for block in blocks(text, "sh")]
    asked = [f"# {question}$ {command}" for question, command in zip(questions, commands, strict=True)]
    for said in (*asked, *(screen["screen"].splitlines() if screen else ())):
        assert "".join(said.split()) in "".join("".join(rows).split()), said


def test_readme_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = blocks(README, "python")
    names: dict[str, object] = {}
    exec(code, names)
    assert len(names["run"].kernels) > 100  # type: ignore[attr-defined]


@contextmanager
def in_standby(folder: Path) -> Iterator[int]:
    """A program that waits for requests, as far as anybody can tell by its files."""
    waiting = folder / "standing" / ".profile"
    (waiting / "standby").mkdir(mode=0o700, parents=True)
    (waiting / "status").mkdir()
    plan = {name: str(waiting / name) for name in ("standby", "status")}
    (waiting / "plan.json").write_text(json.dumps(plan))
    environment = {**os.environ, "NPUPERF_PLAN": str(waiting / "plan.json")}
    with subprocess.Popen(["cat"], env=environment, stdin=subprocess.PIPE) as program:  # until its input ends
        status = {"state": "standby", "pid": program.pid, "host": os.uname().nodename}
        (waiting / "status" / "one.json").write_text(json.dumps(status))
        yield program.pid


def test_profile_examples_can_be_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the help and of the README: dry, because they want an NPU; the export stops at the missing msprof."""
    for name in ("train.py", "serve.py", "torchrun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "host_123_20260101120000000_ascend_pt").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    commands = shown_by_help("profile") + examples("Record")
    assert len(commands) >= 10
    with in_standby(tmp_path) as pid:
        for command in commands:
            export = "--export" in command
            command = command.replace("--pid 4711", f"--pid {pid}")
            done = run(command if export else command.replace("profile", "profile --dry-run", 1))
            assert done.returncode == (5 if export else 0), (command, done.stderr)
            shutil.rmtree(tmp_path / "result", ignore_errors=True)


def test_tuning_examples_can_be_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the help and of the README: dry, with the stand-in for aoe; there is no tuning run to verify yet."""
    for name in ("net.onnx", "train.py"):
        (tmp_path / name).write_text("")
    for name in ("bank_before", "bank_after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Ascend910B3_20_AiCore_MatMulV3_runtime_kb.json").write_text("{}\n")
    # The other sample is host-bound: there tuning stops, as no operator's time is felt.
    (tmp_path / "result").symlink_to(ROOT / "samples" / "micro_batch_ascend_pt")
    section = [{"basic": {"tuning_name": "t"}}, {"OPAT": {"opat_tuning_result": "tuning successful"}}]
    for folder in ("", "tune", "aoe_results"):
        (tmp_path / folder).mkdir(exist_ok=True)
        file = tmp_path / folder / "aoe_result_opat_20260101120000000_pid7.json"
        file.write_text(json.dumps({"report_1_1": section}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{ROOT / 'tests' / 'cann_stub' / 'bin'}:{os.environ['PATH']}")
    commands = shown_by_help("tune") + examples("Tune")
    assert len(commands) >= 9
    for command in commands:
        if "--mode" in command and "--dry-run" not in command:
            command = command.replace("tune", "tune --dry-run", 1)
        done = run(command)
        assert done.returncode == (3 if "--verify" in command else 0), (command, done.stderr)


def test_help_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = ROOT / "samples" / "transformer_ascend_pt"
    (tmp_path / "result").symlink_to(sample)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (tmp_path / "with_super_kernel").symlink_to(sample)
    (tmp_path / "earlier").symlink_to(sample)
    (tmp_path / "once_more").symlink_to(sample)
    (tmp_path / "plog").mkdir()
    (tmp_path / "plog" / "plog-1_20260101.log").write_text("")
    (tmp_path / "op_summary_20250101120000.csv").symlink_to(sample / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    commands = shown_by_help("analyze")
    assert len(commands) >= 5
    for command in commands:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)


CLI_PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
PANELS = ("What", "When", "Data", "How", "Comparison", "Gates", "Output")


def first_cells(text: str) -> list[str]:
    """The first cells of the tables in a text, without their heads."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("command", ["profile", "analyze", "tune"])
def test_cli_page_lists_exactly_the_options(command: str) -> None:
    """In the panels of the help, and in their order."""
    help_ = run(f"npuperf {command} --help").stdout
    (page,) = re.findall(rf"\n## npuperf {command}\b(.*?)\n## ", CLI_PAGE, re.DOTALL)
    assert re.findall(r"^(\w+):$", help_, re.MULTILINE) == re.findall(r"^\*\*(\w+)\*\*$", page, re.MULTILINE)
    for panel in re.findall(r"^(\w+):$", help_, re.MULTILINE):
        assert panel in PANELS
        shown = re.split(r"\n(?=\S)", help_.split(f"\n{panel}:\n")[1])[0]
        rows = re.findall(r"^  (-.*?)(?:  |$)", shown, re.MULTILINE)
        described = re.split(r"\n(?:\*\*|###)", page.split(f"**{panel}**")[1])[0]
        options = {name for row in rows for name in re.findall(r"--[\w-]+", row)} - {"--help"}
        assert {name for cell in first_cells(described) for name in re.findall(r"`(--[\w-]+)`", cell)} == options, panel


@pytest.mark.parametrize("verb", ["analyze", "tune"])
def test_cli_page_names_all_tables(verb: str) -> None:
    page = section("Tables", CLI_PAGE).split(f"Tables of `{verb}`:")[1].split("Tables of")[0]
    listed = run(f"npuperf {verb} --table help").stdout.splitlines()
    assert [cell.strip("`") for cell in first_cells(page)] == [line.split()[0] for line in listed]


def test_cli_page_names_all_causes() -> None:
    from npuperf.show.words import CAUSE

    (listed,) = re.findall(r"blamed on one cause: ([\w, ]+) \|", CLI_PAGE)
    assert set(listed.split(", ")) == set(CAUSE)


def test_columns_page_names_all_aliases() -> None:
    from npuperf.model.columns import KERNEL_COLUMNS

    page = (ROOT / "docs" / "columns.md").read_text("utf-8").split("| column | names |\n|---|---|\n")[1]
    rows = [line.split("|")[2].strip().lower().split(", ") for line in page.splitlines()]
    assert sorted(map(sorted, rows)) == sorted(sorted(column.headers) for column in KERNEL_COLUMNS)


def test_documentation_is_indexed() -> None:
    pages = {page.name for kind in ("*.md", "*.ipynb") for page in (ROOT / "docs").glob(kind)} - {"README.md"}
    listed = re.findall(r"^\| \[[\w.-]+\]\(([\w.-]+)\)", (ROOT / "docs" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_exit_codes_are_listed() -> None:
    listed = {int(n) for n in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert listed == {int(c) for c in ExitCode}


def test_links_lead_somewhere() -> None:
    for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), (page, target)


def test_contributing_names_what_is_there() -> None:
    commands = "".join(blocks((ROOT / "CONTRIBUTING.md").read_text("utf-8"), "sh"))
    words = [line.split(" #")[0].split() for line in commands.splitlines()]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {line[1] for line in words if line[0] == "make"} <= targets
    for file in (word for line in words for word in line if word.startswith(("tests/", ".ci/"))):
        assert (ROOT / file).is_file(), file


def test_hooks_are_the_linters_of_make() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = [hook["entry"].removeprefix(".venv/bin/python ") for hook in repository["hooks"]]
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\nlint:\n\t")[1].splitlines()[0]
    assert hooks == [step.removeprefix("$(PYTHON) ").removesuffix(" .") for step in recipe.split(" && ")]


def test_recipes_run(tmp_path: Path) -> None:
    shim = tmp_path / "npuperf"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m npuperf "$@"\n')
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = ROOT / "recipes" / "ci-verdict.sh"
    command = ["sh", str(script), str(ROOT / "samples" / "transformer_ascend_pt"), str(tmp_path / "v.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("rank,device,span_ns")
    assert len(done.stdout.splitlines()) == 2


def test_recipes_are_all_listed() -> None:
    page = (ROOT / "recipes" / "README.md").read_text("utf-8")
    files = {p.relative_to(ROOT / "recipes") for p in (ROOT / "recipes").rglob("*") if p.is_file()}
    names = {p.stem if p.suffix == ".yaml" else str(p) for p in files} - {"README.md"}
    listed = re.findall(r"^\| (?:`|\[)([\w./-]+)", page, re.MULTILINE)
    assert {name for name in listed if "." in name or "/" in name or f"{name}.yaml" in map(str, files)} == names


def test_sample_is_what_the_generator_makes(tmp_path: Path) -> None:
    out = tmp_path / "transformer_ascend_pt"
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "simulate.py"), str(out)], check=True)
    shipped = ROOT / "samples" / "transformer_ascend_pt"
    files = sorted(p.relative_to(out) for p in out.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(shipped) for p in shipped.rglob("*") if p.is_file())
    for name in files:
        assert (out / name).read_bytes() == (shipped / name).read_bytes(), name


def test_every_threshold_has_a_source() -> None:
    entries = yaml.safe_load((ROOT / "npuperf" / "advise" / "thresholds.yaml").read_text("utf-8"))
    assert entries
    for name, entry in entries.items():
        assert set(entry) == {"value", "source"}, name
        assert len(entry["source"]) > 20, name

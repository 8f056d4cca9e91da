"""What docs teach an agent: each command runs as it stands, and what the page says of the answers is so."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from build import H, K, ascend_pt
from conftest import ROOT, Done, run_cli

from npuperf.base.errors import ExitCode
from npuperf.model.schema import documents, schema_of

PAGE = (ROOT / "docs" / "SKILL.md").read_text()
LLMS = (ROOT / "docs" / "llms.txt").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def recorded(folder: Path, kernel_ns: int, hour: int) -> None:
    """Ten steps of eight kernels and a wait of the host for a value; times vary by a nanosecond or so."""
    begin, kernels, events = hour * 3_600_000_000_000, [], []
    for step in range(1, 11):
        at = begin + step * 40 * kernel_ns
        kernels += [
            K(at + n * 2 * kernel_ns, kernel_ns + step * 7 % 5, step=step, launch=at + n * 2 * kernel_ns - 5_000,
              launch_dur=1_000) for n in range(8)
        ]  # fmt: skip
        events.append(H("AscendCL@aclrtSynchronizeStream", at + 16 * kernel_ns, kernel_ns))
    ascend_pt(folder, kernels, host=events, cores="24,48")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Every command of the page, in its order, where an agent would be. Recording is dry: it wants an NPU."""
    with pytest.MonkeyPatch.context() as patch:
        empty, folder = tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("agent")
        (empty / "train.py").touch()
        recorded(folder / "base", 10_000, 0)
        recorded(folder / "change", 8_000, 1)
        found = {}
        for command in COMMANDS:
            name, verb, *rest = shlex.split(command)
            assert name == "npuperf"
            patch.chdir(empty if verb == "profile" else folder)
            found[command] = run_cli([verb, *(["--dry-run"] if verb == "profile" else []), *rest])
        return found


def test_every_command_runs(told: dict[str, Done]) -> None:
    assert len(told) == len(COMMANDS) > 9
    for command, done in told.items():
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout, command


def test_what_is_said_of_the_gist_is_so(told: dict[str, Done]) -> None:
    """Names of fields in the page are those of the schema, and the example's answers have them."""
    gist = json.loads(told["npuperf analyze base --brief --format json"].stdout)
    second = PAGE.partition("## 2.")[2].partition("## 3.")[0]
    for field in ("bound", "evidence", "basis", "findings", "cannot_tell", "next"):
        assert f"`{field}`" in second
        assert field in gist
    parts = {name: part.get("properties") for name, part in schema_of(documents()["gist"])["$defs"].items()}
    assert "gain_ns_per_step" in parts["GistFinding"]
    assert {*parts["Gist"]["bound"]["enum"]} == {"host", "compute", "communication", "unknown"}
    compared = json.loads(told["npuperf analyze base change --brief --format json"].stdout)["compared"]
    assert (compared["old"], compared["new"], compared["outcome"]) == ("base", "change", "better")
    assert compared["delta_ns"] < 0 and compared["interval_ns"][1] < 0
    assert {*parts["GistComparison"]["outcome"]["enum"]} == {
        "better", "worse", "same", "cannot_tell"
    }  # fmt: skip


def test_exit_statuses_are_all_there() -> None:
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert rows == {int(code) for code in ExitCode} - {ExitCode.INTERNAL, ExitCode.INTERRUPTED}


def test_the_index_leads_to_pages_that_are_there() -> None:
    """In the form of llms.txt: a title, what it is, and lists of links with a word on each."""
    assert re.match(r"# npuperf\n\n> ", LLMS)
    links = re.findall(r"^- \[([\w.]+)\]\(([\w.]+)\): \S", LLMS, re.MULTILINE)
    assert len(links) > 15
    for name, target in links:
        assert name == target and (ROOT / "docs" / target).is_file()

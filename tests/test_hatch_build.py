"""What an installation makes: schemas, languages and, with a compiler, libraries; where paths have blanks."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from npuperf.model.schema import documents, schema_of

ROOT = Path(__file__).resolve().parent.parent
INTERFACE = "hatchling.builders.hooks.plugin.interface"
#: What is made when the package is built, and other C than that of the test.
GENERATED = shutil.ignore_patterns("*.mo", "*.schema.json", "*.so", "*.c", "__pycache__")
LANGUAGES = ["npuperf/locale/zh.mo"]
SCHEMAS = [f"npuperf/model/{name}.schema.json" for name in sorted(documents())]


class Hook:
    """As hatchling's: it has told where the project is, what is built, and who shows warnings."""

    def __init__(self, root: Path, target: str) -> None:
        self.root, self.target_name = str(root), target
        self.warnings: list[str] = []
        self.app = SimpleNamespace(display_warning=self.warnings.append)
        self.metadata = SimpleNamespace(version="0.2.0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "a place with blanks"
    shutil.copytree(ROOT / "npuperf" / "base", root / "npuperf" / "base", ignore=GENERATED)
    shutil.copytree(ROOT / "npuperf" / "model", root / "npuperf" / "model", ignore=GENERATED)
    (root / "npuperf" / "readers").mkdir()
    shutil.copy(ROOT / "npuperf" / "readers" / "plain_events.c", root / "npuperf" / "readers")
    shutil.copytree(ROOT / "npuperf" / "locale", root / "npuperf" / "locale", ignore=GENERATED)
    shutil.copy(ROOT / "languages.py", root)
    shutil.copy(ROOT / "npuperf" / "__init__.py", root / "npuperf")
    return root


def builder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of the hook, without hatchling."""
    for at in range(INTERFACE.count(".") + 1):
        monkeypatch.setitem(sys.modules, INTERFACE.rsplit(".", at)[0], ModuleType("stand-in"))
    sys.modules[INTERFACE].BuildHookInterface = Hook  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(
    project: Path, monkeypatch: pytest.MonkeyPatch, target: str = "wheel", kind: str = "editable"
) -> tuple[dict[str, Any], Any]:
    """Run the hook; return what it asks of the build, and itself."""
    asked: dict[str, Any] = {"artifacts": []}
    hook = builder(monkeypatch).Compile(project, target)
    hook.initialize(kind, asked)
    return asked, hook


def library(project: Path) -> Path:
    return project / "npuperf" / "readers" / "libplain_events.so"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_compiled_wheel_fits_its_platform(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    asked, hook = built(project, monkeypatch)
    assert hook.warnings == []
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert asked == {"artifacts": [*LANGUAGES, *SCHEMAS, "npuperf/readers/libplain_events.so"], "pure_python": False,
                     "tag": f"py3-none-{platform}"}  # fmt: skip
    assert ctypes.CDLL(str(library(project))).plain_layout() > 0
    assert [path.name for path in library(project).parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false", "true", '"unclosed', "sh -c 'exit 1'"])
def test_without_a_compiler_the_wheel_fits_everywhere(
    project: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    library(project).write_bytes(b"of a source before")
    asked, hook = built(project, monkeypatch)
    assert asked == {"artifacts": [*LANGUAGES, *SCHEMAS]}
    assert len(hook.warnings) == 1 and "does without libplain_events.so" in hook.warnings[0]
    assert [path.name for path in library(project).parent.iterdir()] == ["plain_events.c"]


def test_a_source_distribution_has_nothing_that_a_wheel_makes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = built(project, monkeypatch, "sdist")
    assert asked == {"artifacts": LANGUAGES}
    assert not library(project).exists() and not [*project.rglob("*.schema.json")]


def test_schemas_are_in_a_wheel_as_they_are_derived(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    built(project, monkeypatch)
    for name, kind in documents().items():
        written = (project / "npuperf" / "model" / f"{name}.schema.json").read_text("utf-8")
        assert json.loads(written) == json.loads(json.dumps(schema_of(kind)))


def test_a_wheel_says_its_own_version_and_leaves_the_source(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    before = (project / "npuperf" / "base" / "__init__.py").read_bytes()
    asked, _ = built(project, monkeypatch, kind="standard")
    ((made, place),) = asked["force_include"].items()
    assert place == "npuperf/base/_version.py" and '__version__ = "0.2.0"' in Path(made).read_text("utf-8")
    assert (project / "npuperf" / "base" / "__init__.py").read_bytes() == before
    assert not (project / place).exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("platform", ["manylinux2014_aarch64", "any"])
def test_the_platform_of_a_wheel_is_the_one_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setenv("NPUPERF_PLATFORM", platform)
    asked, _ = built(project, monkeypatch)
    assert asked.get("tag", "py3-none-any") == f"py3-none-{platform}"
    assert library(project).exists() is (platform != "any")


def git(folder: Path, *command: str) -> str:
    """Run git as nobody in particular; return what it prints."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    settings = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True, text=True, env=settings)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, whose source says 0.1.0."""
    source = tmp_path / "npuperf" / "base" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('try:\n    import _none\nexcept ImportError:\n    __version__ = "0.1.0"\n')
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_version_is_that_of_the_tag(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version_of = builder(monkeypatch).version_of
    git(checkout, "tag", "v0.2.0")
    assert version_of(checkout) == "0.2.0"
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    assert version_of(checkout) == "0.2.1.dev1+g" + git(checkout, "rev-parse", "--short", "HEAD")
    git(checkout, "tag", "v0.3.0rc1")  # what the next one is called cannot be told of it
    assert version_of(checkout) == "0.3.0rc1"
    git(checkout, "tag", "other")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "third")
    assert version_of(checkout) == "0.1.0"


def test_without_tags_a_version_is_that_of_the_source(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    version_of = builder(monkeypatch).version_of
    assert version_of(checkout) == "0.1.0"
    git(checkout, "tag", "v0.2.0")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    shallow = tmp_path_factory.mktemp("clones") / "shallow"
    git(checkout, "clone", "-q", "--depth=1", "--no-tags", f"file://{checkout}", str(shallow))
    assert version_of(shallow) == "0.1.0"
    copy = checkout / "copy"  # a source distribution unpacked inside another project's repository
    shutil.copytree(checkout / "npuperf", copy / "npuperf")
    assert version_of(copy) == "0.1.0"

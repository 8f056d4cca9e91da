"""Packs: one file from which the same is told, which holds nothing of the user's where it is anonymous."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from clusters import large_job, result_of
from conftest import ROOT, run_cli
from hostile_documents import MARK, Poisoner
from msgspec.structs import replace

from npuperf.against.anonymous import anonymous
from npuperf.against.packs import read_pack, write_pack
from npuperf.against.run import run
from npuperf.against.sides import read_result
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import MANIFEST
from npuperf.model.result import Result
from npuperf.show.formats import View, render
from npuperf.show.json import render_json

SAMPLES = ("transformer_ascend_pt", "micro_batch_ascend_pt", "memory_ascend_pt", "pipeline_job")
#: Nothing of npuperf's, and no word of anybody's: whoever finds it has found something of the user's.
SECRET = "zqmark"


def packed(tmp_path: Path, path: Path, *, anonymize: bool = False, **more: object) -> tuple[Result, Path]:
    """Return what is told of a recording, and its pack."""
    pack = tmp_path / "it.npack"
    request = AnalyzeRequest(path=path, pack=pack, anonymize=anonymize, no_cache=True, **more)  # type: ignore[arg-type]
    return run(request, render=render), pack


def shown(result: Result, pack: Path) -> Iterator[str]:
    """Yield the result in every form that people see, called as its pack is."""
    result = replace(result, input=replace(result.input, path=str(pack)))
    for format_, view in (
        ("text", View()), ("text", View(full=True)), ("text", View(full=True, language="zh")), ("markdown", View()),
        ("csv", View(table="operators")), ("csv", View(table="kernels")),
        ("csv", View(table="findings")), ("csv", View(table="phases")),
    ):  # fmt: skip
        yield render(result, format_, view)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_pack_tells_the_same(tmp_path: Path, name: str) -> None:
    result, pack = packed(tmp_path, ROOT / "samples" / name)
    back = run(AnalyzeRequest(path=pack))
    assert list(shown(back, pack)) == list(shown(result, pack))
    if name == "micro_batch_ascend_pt":
        assert render(back, "html") == render(replace(result, input=replace(result.input, path=str(pack))), "html")
    assert pack.stat().st_size < 100_000


def test_a_comparison_and_its_gates_come_along_until_something_else_is_asked(tmp_path: Path) -> None:
    old, new = (ROOT / "samples" / name for name in ("transformer_ascend_pt", "micro_batch_ascend_pt"))
    result, pack = packed(
        tmp_path, new, baseline=(str(old),), allow_mismatch=True, fail_on=("step_time>+1%", "idle>99%")
    )
    assert result.comparison is not None
    back = run(AnalyzeRequest(path=pack))
    assert back.comparison == result.comparison
    assert [(gate.expr, gate.status) for gate in back.gates] == [(gate.expr, gate.status) for gate in result.gates]
    other = run(AnalyzeRequest(path=pack, fail_on=("idle>99%",)))
    assert other.comparison is None
    assert [gate.expr for gate in other.gates] == ["idle>99%"]


def test_packs_are_sides_of_a_comparison(tmp_path: Path) -> None:
    """As the recordings that they are of are, whichever side they are."""
    old, new = (ROOT / "samples" / name for name in ("transformer_ascend_pt", "micro_batch_ascend_pt"))
    old_pack, new_pack = tmp_path / "old.npack", tmp_path / "new.npack"
    for path, pack in ((old, old_pack), (new, new_pack)):
        run(AnalyzeRequest(path=path, pack=pack), render=render)

    def compared(path: Path, baseline: Path) -> str:
        found = run(AnalyzeRequest(path=path, baseline=(str(baseline),), allow_mismatch=True)).comparison
        assert found is not None
        return repr(found).replace(repr(found.old), "OLD").replace(repr(found.new), "NEW")

    assert compared(new_pack, old_pack) == compared(new, old)


def test_a_job_of_many_ranks_stays_small(tmp_path: Path) -> None:
    result = result_of(large_job(256))
    pack = tmp_path / "job.npack"
    write_pack(pack, render(result, "json"))
    assert pack.stat().st_size < 1_000_000
    assert len(read_result(pack, "job").devices) == len(result.devices)


# -- What an anonymous pack has of the user: nothing.


def texts_of(pack: Path) -> str:
    """Return the bytes of a pack as they lie there, and of everything in it unpacked."""
    with zipfile.ZipFile(pack) as zipped:
        parts = [pack.read_bytes(), *map(zipped.read, zipped.namelist())]
    return b"\n".join(parts).decode("latin-1")


def test_no_text_of_a_document_is_left() -> None:
    """Every field of every type that takes a text, made by the types: one that comes tomorrow is tried, too."""
    poisoner = Poisoner("")
    hostile: Result = poisoner.of(Result)
    assert len(poisoner.made) > 500
    assert MARK.search(render_json(hostile, View()))
    assert not MARK.search(made := render_json(anonymous(hostile), View()))
    assert re.findall(r'"log": (?!\[\])', render_json(hostile, View()))
    assert not re.findall(r'"log": (?!\[\])', made)


#: What a recording has names in, and what a user may have put there: places of code, ranges, types, operators, groups.
PLANTED: tuple[tuple[str, Callable[[str], str]], ...] = (
    (r"[\w/]+\.py\b", lambda found: f"/home/{SECRET}/{SECRET}_{found}"),
    (r"(?<=\.py\(\d\d\): )\w+", lambda found: f"{SECRET}_{found}"),
    (r"\bCumsum\b", lambda _: f"{SECRET}Cumsum"),
    (r"\baclnnGelu\w*", lambda found: f"{found}{SECRET}"),
    (r"\baten::linear\b", lambda _: f"{SECRET}::linear"),
    (r"\bSwiGlu\b", lambda _: f"{SECRET}SwiGlu"),
    (r"\bLayer_\d\b", lambda found: f"{SECRET}{found}"),
    (r"\b(?:pp|dp_cp|mp)\b(?=\")", lambda found: f"{SECRET}_{found}"),
    (r"(?<=@)\d{10,}", lambda found: f"{SECRET}{found}"),
)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_text_of_a_recording_is_left(tmp_path: Path, name: str) -> None:
    folder = tmp_path / SECRET / f"{SECRET}_{name}"
    shutil.copytree(ROOT / "samples" / name, folder)
    planted = 0
    for file in folder.rglob("*"):
        if file.suffix in (".json", ".csv"):
            content = file.read_text()
            for pattern, made in PLANTED:
                content = re.sub(pattern, lambda found, made=made: made(found[0]), content)  # type: ignore[misc]
            planted += content.count(SECRET)
            file.write_text(content)
    settings = {"ENV_VARIABLES": {"HCCL_ALGO": SECRET, "ASCEND_LAUNCH_BLOCKING": "", "HOSTNAME": SECRET}}
    for file in folder.rglob("profiler_metadata.json"):
        found = json.loads(file.read_text())
        file.write_text(json.dumps({**found, **settings, "hostname": SECRET}))
    manifest = {
        "command": ["python", f"{SECRET}.py", "--token", SECRET], "git": {"commit": SECRET, "dirty": True},
        "environment": {"TASK_QUEUE_ENABLE": SECRET, "cann": SECRET, "hostname": SECRET, "torch": f"2.1+{SECRET}"},
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest))
    result, pack = packed(tmp_path, folder, anonymize=True)
    assert planted
    assert SECRET in render(result, "json")
    assert SECRET not in texts_of(pack)
    assert not re.search(r"20\d\d-\d\d-\d\d", texts_of(pack))
    back = run(AnalyzeRequest(path=pack))
    assert min(device.origin_ns for device in back.devices) == 0
    assert (back.verdict.bound, back.verdict.elasticity) == (result.verdict.bound, result.verdict.elasticity)
    assert [(f.rule, f.status, f.gain_ns_per_step) for f in back.findings] == [
        (f.rule, f.status, f.gain_ns_per_step) for f in result.findings
    ]
    assert [(o.count, o.total_ns) for o in back.operators] == [(o.count, o.total_ns) for o in result.operators]
    assert render(back, "text", View(full=True))


#: Primes beside the sizes that the samples have.
SIZES = {1024: 1031, 2048: 2053, 3072: 3079, 4096: 4099, 8192: 8209, 50304: 50311}


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "pipeline_job"])
def test_no_shape_is_left(tmp_path: Path, name: str) -> None:
    """Neither as text nor as numbers: findings tell of matrices, and of rows of two bytes for each of their values."""
    folder = tmp_path / name
    shutil.copytree(ROOT / "samples" / name, folder)
    for file in folder.rglob("kernel_details.csv"):
        content = file.read_text()
        for size, prime in SIZES.items():
            content = re.sub(rf"(?<=[\",;]){size}(?=[\",;])", str(prime), content)
        file.write_text(content)
    result, pack = packed(tmp_path, folder, anonymize=True)
    told = [str(size * times) for size in SIZES.values() for times in (1, 2)]
    primes = re.compile(rf"(?<![\d.])(?:{'|'.join(told)})(?![\d.])")
    assert len(set(primes.findall(render(result, "json")))) > 2
    assert not primes.findall(texts_of(pack))


@pytest.mark.parametrize("shape", ["512", "1000", "32;4", "8,16;16,32", ""])
def test_a_shape_of_common_numbers_is_none_the_less_a_shape(shape: str) -> None:
    """npuperf's own source has many a number as a text: that makes no shape public, alone or beside its operator."""
    result = run(AnalyzeRequest(path=ROOT / "samples" / "transformer_ascend_pt"))
    assert result.digest is not None
    key = f"Cast {shape} FLOAT32" if shape else "Cast"
    parts = [replace(result.digest.parts[0], key=key)]
    finding = replace(result.findings[0], evidence={"casts": [{"shape": shape, "type": "Cast"}]})
    found = anonymous(replace(result, digest=replace(result.digest, parts=parts), findings=[finding]))
    assert found.digest is not None
    told = f"{found.digest.parts[0].key} {found.findings[0].evidence}"
    assert "Cast" in told
    assert not shape or (
        re.sub("name-[0-9a-f]{10}", "", told).isascii()
        and not re.search(r"\d", re.sub("name-[0-9a-f]{10}", "", told).replace("FLOAT32", ""))
    )


def test_made_up_names_are_one_in_a_pack_and_others_in_the_next(tmp_path: Path) -> None:
    result = run(AnalyzeRequest(path=ROOT / "samples" / "transformer_ascend_pt"))
    lines = [one.where for one in result.operators if one.where]
    first, second = ([one.where for one in anonymous(result).operators if one.where] for _ in range(2))
    assert len(set(lines)) > 1
    assert [lines.index(line) for line in lines] == [first.index(line) for line in first]
    assert not {*first} & {*second}
    assert not {*first} & {*lines}


def test_made_up_names_are_not_paired_with_others(tmp_path: Path) -> None:
    """Shapes are parts of what tells operators apart: each would be gone on one side, and new on the other."""
    sample = ROOT / "samples" / "transformer_ascend_pt"
    _, pack = packed(tmp_path, sample, anonymize=True)
    for path, baseline in ((sample, pack), (pack, sample)):
        with pytest.raises(UsageError, match="anonymous, so operators, code lines and causes"):
            run(AnalyzeRequest(path=path, baseline=(str(baseline),), allow_mismatch=True))
    lock = tmp_path / "perf.lock"
    run(AnalyzeRequest(path=sample, lock=lock), render=render)
    with pytest.raises(UsageError, match="anonymous, so its counts are of other names"):
        run(AnalyzeRequest(path=pack, check=(lock,)))


def test_what_is_public_stays() -> None:
    """What a helper needs: operators that everybody has, by a list; one that merely begins like these does not."""
    result = run(AnalyzeRequest(path=ROOT / "samples" / "transformer_ascend_pt"))
    types = [operator.type for operator in anonymous(result).operators]
    assert {"MatMulV2", "FlashAttentionScore", "Cumsum", "hcom_allReduce_"} <= {*types}
    names = [
        "aclnnOurOwnThing",
        "Optimizer.step#OurAdam.step",
        "AscendCL@aclnnOurs",
        "MaskedFillBackward0",
        "OursBackward0",
    ]
    own = anonymous(replace(result, operators=[replace(result.operators[0], type=name) for name in names]))
    assert [re.sub("name-[0-9a-f]{10}", "*", operator.type) for operator in own.operators] == [
        "*", "Optimizer.step#*.step", "AscendCL@*", "MaskedFillBackward0", "*",
    ]  # fmt: skip


# -- Packs that nobody should have to trust.


def zipped(members: dict[str, bytes], path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    _, pack = packed(tmp_path_factory.mktemp("pack"), ROOT / "samples" / "micro_batch_ascend_pt")
    with zipfile.ZipFile(pack) as found:
        return {name: found.read(name) for name in found.namelist()}


def _whole(members: dict[str, bytes]) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return made.getvalue()


def _with(members: dict[str, bytes], **changed: object) -> dict[str, bytes]:
    found = json.loads(members["result.json"])
    return {**members, "result.json": json.dumps({**found, **changed}).encode()}


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    "empty": (lambda _: b"", "damaged"),
    "no zip": (lambda _: b"\x80\x04pickled", "damaged"),
    "cut": (lambda m: _whole(m)[:-40], "damaged"),
    "torn": (lambda m: (w := _whole(m))[:2000] + bytes(200) + w[2200:], "damaged"),
    "bomb": (lambda m: _whole({**m, "result.json": b" " * 30_000_000}), "unpacks to more than"),
    "a note of any size": (lambda m: _whole({**m, "npack.json": b" " * 5000}), "unpacks to more than"),
    "a way out": (lambda m: _whole({**m, "../../x": b"1"}), "'../../x' is nothing that a pack has"),
    "pickled": (lambda m: _whole({**m, "data.pkl": b"\x80\x04."}), "'data.pkl' is nothing that a pack has"),
    "half": (lambda m: _whole({"npack.json": m["npack.json"]}), "lacks a part"),
    "newer": (lambda m: _whole({**m, "npack.json": b'{"npack": 2}'}), "a pack of version 2, and this npuperf reads"),
    "no version": (lambda m: _whole({**m, "npack.json": b'{"npack": true}'}), "which version of packs"),
    "newer document": (lambda m: _whole(_with(m, schema_version="9.0")), "written in version 9.0 of the format"),
    "no document": (lambda m: _whole({**m, "result.json": b"[1]"}), "its result is no document"),
    "deep": (lambda m: _whole({**m, "result.json": b"[" * 100_000}), "damaged"),
    "no JSON": (lambda m: _whole({**m, "result.json": b"cos\nsystem"}), "damaged"),
    "wrong types": (lambda m: _whole(_with(m, devices="x")), "cannot be read as a result of npuperf"),
    "numbers as texts": (lambda m: _whole(_with(m, gates=[{"expr": 1}])), "cannot be read as a result of npuperf"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_packs_that_cannot_be_relied_on_are_refused(tmp_path: Path, members: dict[str, bytes], name: str) -> None:
    make, why = HOSTILE[name]
    pack = tmp_path / "x.npack"
    pack.write_bytes(make(members))
    for request in (AnalyzeRequest(path=pack), AnalyzeRequest(path=ROOT / "samples", baseline=(str(pack),))):
        with pytest.raises(InputError, match=re.escape(why)):
            run(request)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npack"]


def test_numbers_that_cannot_be_are_refused_wherever_they_are_shown(tmp_path: Path, members: dict[str, bytes]) -> None:
    device = json.loads(members["result.json"])["devices"][0]
    hostile = _with(members, devices=[{**device, "origin_ns": 0, "partition": {**device["partition"], "span_ns": 0}}])
    pack = zipped(hostile, tmp_path / "x.npack")

    def show(result: Result, *_: object) -> None:
        _ = 1 // result.devices[0].partition.span_ns  # what any renderer may do

    with pytest.raises(InputError, match="has what no npuperf writes"):
        run(AnalyzeRequest(path=pack), show=show)


def test_the_command(tmp_path: Path) -> None:
    """Exit codes and the words: what is written, what a pack cannot answer, and what makes no sense."""
    sample, pack = str(ROOT / "samples" / "micro_batch_ascend_pt"), tmp_path / "x.npack"
    made = run_cli(["analyze", sample, "--pack", str(pack)])
    assert made.returncode == 0
    assert f"wrote {pack}" in made.stderr
    again = run_cli(["analyze", str(pack)])
    assert (again.returncode, again.stdout) == (0, made.stdout.replace(sample, str(pack)))
    assert read_pack(pack)["schema_version"] == "2.0"
    for arguments, why in (
        (["analyze", sample, "--anonymize"], "--anonymize says how a pack is written"),
        (["analyze", sample, "--pack", str(pack)], "already exists"),
        (["analyze", sample, "--pack", str(tmp_path / "x.zip")], "a pack's name ends in .npack"),
        (["analyze", sample, "--pack", str(tmp_path / "no" / "x.npack")], "its folder does not exist"),
        (["analyze", sample, "-o", str(tmp_path / "y.npack")], "a report is no pack"),
        (["analyze", str(pack), "--what-if", "host*0.5"], "and no tasks, which --what-if would need"),
        (["analyze", str(pack), "--step", "1", "--trace", "t.json"], "which --step, --trace would need"),
        (["analyze", str(pack), "--pack", str(pack), "--force"], "was read"),
    ):
        refused = run_cli(arguments)
        assert refused.returncode == 2, arguments
        assert why in refused.stderr
    beside = run_cli(["analyze", sample, "--before", str(pack)])
    assert beside.returncode == 3
    assert "a pack has what was found, and no recording" in beside.stderr
    pack.write_bytes(b"PK")
    assert run_cli(["analyze", str(pack)]).returncode == 3


def test_what_is_asked_of_a_pack_is_named_by_its_option(tmp_path: Path, members: dict[str, bytes]) -> None:
    pack = zipped(members, tmp_path / "x.npack")
    with pytest.raises(UsageError, match="--recipe"):
        run(AnalyzeRequest(path=pack, thresholds={"idle_share": 0.5}))

"""What is asked of every input, and the inputs that the project makes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Profiles of others; without them there are fewer inputs.
SHARED = ROOT.parent / "shared" / "data"
FUZZED, SCENARIOS, PLANTED, PAIRS, TRAINED = 104, 18, 18, 12, 4
OUTPUT = "ASCEND_PROFILER_OUTPUT"
SINGLE = ("kernel_details.csv", "step_trace_time.csv", "trace_view.json")

#: Name, columns, and the words of a command; files are written to "out", which stays until all commands were run.
Asked = tuple[str, int, list[str]]
FEW = """
json         80   --format json
text-80      80
full         120  --full
markdown     80   --format markdown
text-zh      80   --lang zh
"""
FULL = """
json-cold      80   --format json
json-warm      80   --format json
json-no-cache  80   --format json --no-cache
text-80        80
text-120       120
full           120  --full
full-zh        80   --full --lang zh
text-zh        80   --lang zh
markdown       80   --format markdown
markdown-zh    80   --format markdown --lang zh
html           80   --html out/page.html --force
html-zh        80   --html out/page.html --force --lang zh
junit          80   --format junit
trace          80   --trace out/trace.json
trace-full     80   --trace-full out/all.json
top            80   --top 2 --full
what-if        80   --what-if host*0.5 --what-if sync*0,compute*0.9
soc            80   --soc Ascend910B1 --cores 20,40
processes      80   --engine processes --workers 2 --no-cache
gate           80   --fail-on host_wait>20% --fail-on count.launches>3 --junit out/gates.xml
gates          80   --gates ci-smoke --gates ci-strict --format markdown
undecided      80   --gates ci-strict --undecided fail --format json
lock           80   --lock out/perf.lock
check          80   --check out/perf.lock --format junit
save           80   --save-baseline main --baseline-dir out/kept
saved          80   --baseline main --baseline-dir out/kept --fail-on step_time>+5%
"""
COMPARED = f"""{FEW}
text-120     120
html         80   --html out/page.html
junit        80   --format junit --fail-on step_time>+5%,200us --fail-on host_wait>+5% --fail-on count.launches>+0
gates        80   --gates ci-strict --undecided pass
"""
#: What needs no input: help, wrong command lines, dry runs. Each is run with nothing loaded.
ALONE = """--help|--version||analyze --help|profile --help|tune --help|analyze --lang zh --help
profile --lang zh --help|tune --lang zh --help|--lang zh --help|analyze --table help|tune --table help|analyse in
analyze|analyze nowhere|analyze in/empty|analyze in/train.py|analyze in --format pdf|analyze in --table nothing
analyze in/empty --lang zh|analyze in --fail-on host_wait|analyze in --what-if gpu*2|analyze in --step x
analyze in --gates nothing.yaml|analyze in --recipe nothing|analyze in --check in/train.py|analyze --lang fr in
analyze in --top 0|analyze in --cores 1|analyze in --ranks a-b|analyze in --engine fast|analyze in --baseline nowhere
analyze in --cores-of 5|analyze in --save-baseline a/b
profile|profile nothing.py|profile --level 7 in/train.py|profile --ranks x in/train.py|profile --max-size 2X in/train.py
profile --dry-run in/train.py --lr 0.1|profile --engine cpu --dry-run in/train.py|profile --export in/empty
profile --engine msprof --dry-run --sys-io in/train.py|profile --engine e2e --dry-run -- python in/train.py
profile --lang zh --wait 20 --active 1 --stack --dry-run -m package.train|profile --dry-run -o in/empty in/train.py
profile --ranks 0 --level 2 --dry-run -- torchrun --nproc_per_node=8 in/train.py|profile -m --dry-run
profile --recipe inference-decode --dry-run in/train.py|profile --for-compare --dry-run in/train.py
tune|tune --mode op|tune --mode all|tune --from nowhere|tune --diff in/empty in/nothing|tune --rollback
tune --mode op --model in/net.onnx --dry-run|tune --mode op --top 10 --dry-run -- python in/train.py
tune --mode subgraph --model in/net.onnx --soc Ascend310P3 --dry-run --lang zh|tune --fail-on x --from in"""


def asked(words: list[str], texts: str, tables: list[str]) -> list[Asked]:
    """Return commands: some words with every line of a text, and for every table."""
    lines = [line.split(None, 2) for line in texts.splitlines() if line]
    lines = [line for line in lines if words[0] == "analyze" or line[0] != "full"]
    outputs = [(line[0], int(line[1]), [*words, *shlex.split("".join(line[2:]))]) for line in lines]
    return outputs + [(f"csv-{name}", 80, [*words, "--table", name]) for name in tables]


def jobs(made: Path, tables: dict[str, list[str]], quick: bool) -> list[dict[str, Any]]:
    """Return every input with what is asked about it. A source is copied to a place within the room of its job."""
    found: list[dict[str, Any]] = []

    def add(name: str, sources: dict[str, Path], commands: list[Asked]) -> None:
        found.append({"name": name, "sources": {k: str(v) for k, v in sources.items()}, "asked": commands})

    alone = [line.strip() for line in ALONE.replace("|", "\n").split("\n")]
    alone = alone[::4] if quick else alone
    add("alone", {"in": made / "alone" / "in"}, [(line or "nothing", 100, shlex.split(line)) for line in alone])
    samples = sorted(path for path in (ROOT / "samples").glob("[!.]*") if path.is_dir())
    for path in [*samples, *(real()[::6][:6] if quick else real())]:
        name = "-".join(path.relative_to(ROOT if path in samples else SHARED).parts)
        words, part = ["analyze", f"in/{path.name}"], OUTPUT in name  # a part of a folder that is asked for everything
        add(name, {f"in/{path.name}": path}, asked(words, FEW, [])
            if part else asked(words, FULL, tables["analyze"][:: 12 if quick else 1]))  # fmt: skip
    for i, (old, new) in enumerate(pairs(samples)[: 2 if quick else None]):
        words = ["analyze", f"in/new/{new.name}", "--baseline", f"in/old/{old.name}"]
        several = asked(
            [*words, "--allow-mismatch"], COMPARED, tables["analyze"][:: 1 if i in (0, 3) and not quick else 6]
        )
        add(f"pair-{i}", {f"in/old/{old.name}": old, f"in/new/{new.name}": new}, [("strict", 80, words), *several])
    folders = sorted(path for path in made.iterdir() if path.name != "alone")
    for folder in folders[:: len(folders) // 20] if quick else folders:
        words, texts = json.loads((folder / "words.json").read_text()), FEW
        whole = folder.name.startswith("sound") and words[0] == "tune" and not quick
        if whole:
            texts += "html 80 --html out/page.html\njunit 80 --format junit\n"
        add(folder.name, {"in": folder / "in"}, asked(words, texts, tables["tune"] if whole else []))
    return found


def real() -> list[Path]:
    """Return the profiles of others: folders of one rank and of several, and files that are read by themselves."""
    ranks = [path for path in SHARED.rglob("*_ascend_pt") if path.is_dir()]
    files = {path for path in SHARED.rglob("*") if path.suffix in (".csv", ".db", ".gz", ".json")}
    inside = {path for path in files if path.parent.name == OUTPUT}
    single = {path for path in inside if path.name in SINGLE or path.suffix == ".db"}
    own = {path for path in files - inside if not any(rank in path.parents for rank in ranks)}
    return sorted({*ranks, *(rank.parent for rank in ranks), *single, *own})


def pairs(samples: list[Path]) -> list[tuple[Path, Path]]:
    """Return what is held against each other: old and new."""
    text, db, hta = SHARED / "msinsight/text", SHARED / "msinsight/db", SHARED / "hta"
    found = [
        (samples[0], samples[-1]), (samples[1], samples[1]), (text / "level1/rank0_ascend_pt", text / "level1"),
        (text / "level1/rank0_ascend_pt", text / "level1/rank1_ascend_pt"), (text / "level1", db / "level1"),
        (text / "level0/rank0_ascend_pt", db / "level0/rank0_ascend_pt"),
        (hta / "alexnet_gpu.json.gz", hta / "simple_add_gpu.json.gz"),
    ]  # fmt: skip
    return [pair for pair in found if all(path.exists() for path in pair)]


def make(out: Path, place: Path) -> None:
    """Make all inputs, each below ``place``, where it is read later: some tell where they are. Run by same.py."""
    import attempts
    import cluster_files
    import cluster_scenarios
    import pairs
    import planted
    import simulate
    from attack import name_of
    from bases import KINDS

    tempfile._name_sequence = (f"made{i}" for i in count())  # type: ignore[attr-defined]

    def keep(name: str, build: Any, words: tuple[str, ...] = ("analyze", "{root}")) -> None:
        room = place / name
        shutil.rmtree(room, ignore_errors=True)
        (room / "in").mkdir(parents=True)
        os.chdir(room)
        build(room / "in")
        told = [word.replace("{root}/..", "out").format(root=room / "in") for word in words]
        (room / "words.json").write_text(json.dumps(told))
        os.chdir(out)
        subprocess.run(["cp", "-a", room, out], check=True)
        shutil.rmtree(room)

    def damaged(name: str, root: Path) -> None:
        kind = KINDS[name.partition("/")[0]]
        kind.build(root)
        attempts.do_damage(name, kind, Random(name), root)

    def trained(seed: int, root: Path) -> None:
        sys.argv = ["simulate", str(root / "result_ascend_pt"), "--seed", str(seed), "--steps", str(1 + seed)]
        simulate.main()

    def bare(root: Path) -> None:
        (root / "empty").mkdir()
        (root / "train.py").write_text("print('trained')\n")
        (root / "net.onnx").write_bytes(b"\x08\x07")

    keep("alone", bare)
    for name, kind in KINDS.items():
        keep(f"sound-{name}", kind.build, kind.command)
    for name in (name_of(number, [*KINDS]) for number in range(FUZZED)):
        kind = KINDS[name.partition("/")[0]]
        keep(f"fuzz-{name.replace('/', '-')}", lambda root, n=name: damaged(n, root), kind.command)
    clusters, plants = [each.job for each in cluster_scenarios.scenarios()], planted.scenarios()
    for number, job in enumerate(clusters[:: len(clusters) // SCENARIOS][:SCENARIOS]):
        keep(f"cluster-{number}", lambda root, j=job: cluster_files.write(j, root))
    for number, plant in enumerate(plants[:: len(plants) // PLANTED][:PLANTED]):
        keep(f"planted-{number}", lambda root, p=plant: planted.write(p, root / "p_ascend_pt"))
    for number in range(TRAINED):
        keep(f"trained-{number}", lambda root, n=number: trained(n, root))
    for seed in range(PAIRS):
        words = ("analyze", "{root}/1", "--baseline", "{root}/0", "--fail-on", "step_time>+1%,50us")
        keep(f"pairs-{seed}", lambda root, s=seed: [pairs.pair(s).write(i, root / str(i)) for i in (0, 1)], words)

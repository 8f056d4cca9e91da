"""Locks: what they hold, what they let pass, and what they make of files that others damaged."""

from __future__ import annotations

from pathlib import Path

import digests
import pytest
from digests import digest_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.against.locks import accepts, check_lock, check_target, lock_text, read_lock, spans_of, write_lock
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import say, text
from npuperf.model.document import Gate
from npuperf.model.parts import Count, CountKind, KeyedBy, Workload
from npuperf.model.result import Lost, Result

STEPS = [3, 4]


def launch(key: str, *count: int, where: str | None = None) -> Count:
    return Count(kind="launch", key=key, count=list(count), where=where)


def copy(key: str, count: list[int], moved: list[int] | None) -> Count:
    return Count(kind="copy", key=key, count=count, bytes=moved)


def run_of(
    *counts: Count,
    uncounted: tuple[CountKind, ...] = (),
    devices: int = 1,
    steps: list[int] | None = None,
    lost: int = 0,
    keyed_by: KeyedBy = "shapes",
) -> Result:
    """A result that has counted this."""
    steps = STEPS if steps is None else steps
    digest = digest_of({}, [1] * max(len(steps), 1), counts=counts, keyed_by=keyed_by)
    result = digests.run_of(replace(digest, devices=devices, steps=steps, uncounted=list(uncounted)))
    rows = [Lost(file="trace_view.json", rows=lost, reason=say("broken"))] if lost else []
    return replace(result, input=replace(result.input, path="run", lost=rows))


MATMUL = launch("MatMulV2 [2,3;3,4] FLOAT16", 47, 47, where="/home/me/model/layers.py(41): forward")
ADD = launch("Add [4] FLOAT", 2, 3)
FETCH = copy("host to device", [1, 1], [4096, 4096])
RUN = run_of(MATMUL, ADD, FETCH, uncounted=("allocation", "block", "host_operator"))


def locked(folder: Path, result: Result = RUN) -> Path:
    path = folder / "perf.lock"
    write_lock(result, path)
    return path


def told(gates: list[Gate]) -> list[tuple[str, str]]:
    """Every gate's status, and what follows the file's name in its line."""
    return [(g.status, f"{g.expr.partition('perf.lock')[2]} {text(g.reason)}".lstrip(": ")) for g in gates]


def status(gates: list[Gate]) -> int:
    return replace(RUN, gates=tuple(gates)).exit_code


def test_a_lock_is_sorted_yaml_with_a_line_for_each_count(tmp_path: Path) -> None:
    body = [line for line in locked(tmp_path).read_text("utf-8").splitlines() if not line.startswith("#")]
    assert body == [
        "npuperf_lock: 1",
        "setup: {}",
        "devices: 1",
        "per: step",
        "keyed_by: shapes",
        "lost: 0",
        "counts:",
        "  aicpu: {}",
        "  collective: {}",
        "  compile: {}",
        "  copy:",
        '    "host to device": {count: 1, bytes: 4096}',
        "  graph_replay: {}",
        "  launch:",
        '    "Add [4] FLOAT": [2, 3]',
        '    "MatMulV2 [2,3;3,4] FLOAT16": 47  # model/layers.py: forward',
        "  sync: {}",
    ]


@pytest.mark.parametrize(
    ("where", "comment"),
    [
        ("/home/me/model/layers.py(41): forward", "model/layers.py: forward"),
        ("train.py:12", "train.py"),
        ("a/b/c.py(1): f, /x/d.py(22): g", "b/c.py: f, x/d.py: g"),
        ("odd\nname.py(3): f", "odd\\nname.py: f"),
        ("Level2(5)x: f", "Level2(5)x: f"),
    ],
)
def test_comments_have_nothing_that_moves_by_itself(where: str, comment: str) -> None:
    (line,) = [line for line in lock_text(run_of(launch("Add", 1, 1, where=where))).splitlines() if "Add" in line]
    assert line == f'    "Add": 1  # {comment}'


def test_the_same_run_passes_and_its_order_does_not_count(tmp_path: Path) -> None:
    path = locked(tmp_path)
    turned = run_of(FETCH, ADD, MATMUL, uncounted=("host_operator", "block", "allocation"))
    assert lock_text(turned) == path.read_text("utf-8")
    assert told(check_lock(turned, path)) == [("pass", "3 counts are as locked")]


@pytest.mark.parametrize("counts", [[47], [47, 47, 47, 47]])
def test_the_number_of_steps_does_not_count(tmp_path: Path, counts: list[int]) -> None:
    n = len(counts)
    again = run_of(
        launch(MATMUL.key, *counts), launch(ADD.key, *[3] * n), copy(FETCH.key, [1] * n, [4096] * n),
        uncounted=("allocation", "block", "host_operator"), steps=list(range(n)),
    )  # fmt: skip
    assert status(check_lock(again, locked(tmp_path))) == 0


def test_every_change_is_named_with_its_numbers_and_its_code_line(tmp_path: Path) -> None:
    changed = run_of(
        launch(MATMUL.key, 48, 47, where="train.py(43): forward"),
        launch("Cast [4] FLOAT", 1, 1, where="train.py(44): forward"),
        copy(FETCH.key, [1, 1], [8192, 8192]),
        Count(kind="sync", key="aclrtMemcpy", count=[0, 1]),
        uncounted=("allocation", "block", "host_operator"),
    )
    gates = check_lock(changed, locked(tmp_path))
    assert told(gates[1:]) == [
        ("fail", "launch Add [4] FLOAT launches per step: none, locked: 2 or 3"),
        ("fail", "launch Cast [4] FLOAT launches per step: 1, locked: none (train.py(44): forward)"),
        ("fail", "launch MatMulV2 [2,3;3,4] FLOAT16 launches per step: 47 or 48, locked: 47 (train.py(43): forward)"),
        ("fail", "sync aclrtMemcpy waits of the host for the device per step: none or 1, locked: none"),
        ("fail", "copy host to device bytes: 8192, locked: 4096"),
    ]
    assert gates[0].value == 5
    assert "5 of 5 counts changed" in text(gates[0].reason)
    assert "--update-lock" in text(gates[0].reason)
    assert status(gates) == 1


def test_many_changes_are_counted_and_the_largest_named(tmp_path: Path) -> None:
    counts = [launch(f"Op{i:03}", i + 1, i + 1) for i in range(100)]
    path = locked(tmp_path, run_of(*counts))
    gates = check_lock(run_of(*[launch(c.key, 2 * c.count[0], 2 * c.count[0]) for c in counts]), path)
    assert [g.expr.split()[-1] for g in gates[1:]] == [f"Op{i:03}" for i in range(99, 79, -1)]
    assert gates[0].value == 100
    assert "the 20 largest changes follow" in text(gates[0].reason)


def test_what_this_recording_does_not_tell_never_passes(tmp_path: Path) -> None:
    """Nor does it where the lock says that there is none of it."""
    blind = run_of(MATMUL, ADD, uncounted=("copy", "compile", "allocation", "block", "host_operator"))
    gates = check_lock(blind, locked(tmp_path))
    assert [(g.expr.split()[-1], g.status) for g in gates[1:]] == [("compile", "cannot_tell"), ("copy", "cannot_tell")]
    assert all("npuperf profile" in text(g.reason) for g in gates[1:])
    assert status(gates) == 4


def test_what_the_lock_does_not_have_is_said(tmp_path: Path) -> None:
    more = run_of(
        MATMUL, ADD, FETCH, Count(kind="allocation", key="malloc", count=[1, 1]), uncounted=("block", "host_operator")
    )
    assert told(check_lock(more, locked(tmp_path))) == [
        ("pass", "3 counts are as locked; not locked: calls of the allocator")
    ]


def test_nothing_in_the_lock_or_in_the_run_never_passes(tmp_path: Path) -> None:
    path = locked(tmp_path)
    nothing = run_of()
    for result in (nothing, replace(nothing, digest=None)):
        assert status(check_lock(result, path)) == 4
        with pytest.raises(InputError, match="nothing was counted"):
            write_lock(result, tmp_path / "other.lock")
    head, _, _ = path.read_text("utf-8").partition("counts:")
    for counts in ("counts: {}\n", "counts:\n  launch: {}\n"):
        path.write_text(head + counts, "utf-8")
        assert told(check_lock(RUN, path)) == [("cannot_tell", "the lock has nothing in it")]
    assert not (tmp_path / "other.lock").exists()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (run_of(MATMUL, devices=2), "devices: 2, locked: 1"),
        (run_of(launch("Add", 1), steps=[]), "no whole step"),
        (run_of(launch("MatMulV2", 47, 47), launch("Add", 2, 3)), "has the shapes of operators, and this run has not"),
        (run_of(MATMUL, keyed_by="type"), "by shapes, and this run by type"),
    ],
)
def test_what_cannot_be_compared_is_not_judged(tmp_path: Path, other: Result, why: str) -> None:
    (gate,) = check_lock(other, locked(tmp_path))
    assert gate.status == "cannot_tell"
    assert why in text(gate.reason)


def test_a_lock_without_shapes_says_nothing_about_them(tmp_path: Path) -> None:
    (gate,) = check_lock(RUN, locked(tmp_path, run_of(launch("MatMulV2", 47, 47))))
    assert gate.status == "cannot_tell"
    assert "the lock has no shapes" in text(gate.reason)


def test_rows_that_were_lost_cast_doubt_on_a_pass(tmp_path: Path) -> None:
    lossy = run_of(MATMUL, ADD, FETCH, uncounted=("allocation", "block", "host_operator"), lost=2)
    assert status(check_lock(lossy, locked(tmp_path))) == 4
    assert status(check_lock(lossy, locked(tmp_path / "made of the same", lossy))) == 0


def test_bytes_that_are_not_told_cast_doubt_on_a_pass(tmp_path: Path) -> None:
    path = locked(tmp_path)
    untold = run_of(MATMUL, ADD, copy(FETCH.key, [1, 1], None), uncounted=("allocation", "block", "host_operator"))
    assert status(check_lock(untold, path)) == 4
    assert status(check_lock(RUN, locked(tmp_path / "without", untold))) == 0


def test_another_setup_is_said_and_does_not_fail(tmp_path: Path) -> None:
    old, new = (replace(RUN, workload=Workload(soc="Ascend910B1", torch=torch)) for torch in ("2.1.0", "2.6.0"))
    (gate,) = check_lock(new, locked(tmp_path, old))
    assert gate.status == "pass"
    assert text(gate.reason).endswith("the set-up is another one: torch 2.6.0, locked: 2.1.0")


def edited(path: Path, old: str, new: str) -> Path:
    content = path.read_text("utf-8")
    assert old in content
    path.write_text(content.replace(old, new), "utf-8")
    return path


@pytest.mark.parametrize(
    ("value", "passes"), [("any", True), ("40..50", True), ("[1, 45..47]", True), ("48..50", False)]
)
def test_what_people_write_by_hand_counts(tmp_path: Path, value: str, passes: bool) -> None:
    path = edited(locked(tmp_path), 'FLOAT16": 47', f'FLOAT16": {value}')
    assert status(check_lock(RUN, path)) == (0 if passes else 1)


def test_an_update_changes_only_what_is_contradicted(tmp_path: Path) -> None:
    path = edited(locked(tmp_path), 'FLOAT16": 47', 'FLOAT16": 40..50')
    changed = run_of(MATMUL, launch(ADD.key, 3, 5), uncounted=("copy", "allocation", "block", "host_operator"))
    write_lock(changed, path, update=True)
    counts = read_lock(path).counts
    assert counts["launch"] == {
        MATMUL.key: counts["launch"][MATMUL.key],
        ADD.key: replace(counts["launch"][ADD.key], count=((3, 3), (5, 5))),
    }
    assert counts["launch"][MATMUL.key].count == ((40, 50),)
    assert list(counts["copy"]) == [FETCH.key]  # nothing contradicts it
    assert [g.status for g in check_lock(changed, path)] == ["pass", "cannot_tell"]
    write_lock(changed, path, update=True)
    assert read_lock(path).counts == counts


def test_an_update_keeps_the_comments_of_unchanged_lines(tmp_path: Path) -> None:
    """Behind a line and above its key, whatever is in that; what stands behind a line that changes goes with it."""
    hard = launch("Cast 'a' # \"b\" [4] FLOAT", 5, 5)
    path = locked(tmp_path, run_of(MATMUL, ADD, FETCH, hard))
    lines = path.read_text("utf-8").splitlines()
    head = lines.index("npuperf_lock: 1")
    lines.insert(head, "# of the nightly run")
    for at, line in enumerate(lines):
        if "MatMulV2" in line:
            lines[at] = line.partition("  # ")[0] + " # two per layer"
        elif "Cast" in line:
            lines[at] = f"    # what autocast adds\n{line}    # one for each of five"
        elif "Add" in line:
            lines[at] = f"    # of the loss\n{line}  # once more with a metric"
        elif "launch:" in line:
            lines[at] = f"{line}  # kernels"
    path.write_text("\n".join([*lines, "# the end"]) + "\n", "utf-8")
    write_lock(run_of(MATMUL, launch("Add [4] FLOAT", 7, 7), FETCH, hard), path, update=True)
    kept = path.read_text("utf-8").splitlines()
    assert kept.count("# of the nightly run") == 1 and kept[head] == "# of the nightly run"
    launches = kept[kept.index("  launch:  # kernels") :]
    assert kept[-1] == "# the end"
    assert launches[1:6] == [
        "    # of the loss",
        '    "Add [4] FLOAT": 7',
        "    # what autocast adds",
        f'    "{hard.key.replace(chr(34), chr(92) + chr(34))}": 5  # one for each of five',
        '    "MatMulV2 [2,3;3,4] FLOAT16": 47  # two per layer',
    ]
    assert read_lock(path).counts["launch"][MATMUL.key].count == ((47, 47),)
    before = path.read_text("utf-8")
    write_lock(run_of(MATMUL, launch("Add [4] FLOAT", 7, 7), FETCH, hard), path, update=True)
    assert path.read_text("utf-8") == before


def test_an_update_mends_what_a_merge_left(tmp_path: Path) -> None:
    path = edited(locked(tmp_path), "  launch:\n", "<<<<<<< mine\n  launch:\n=======\n")
    with pytest.raises(InputError, match="cannot be read as YAML"):
        check_lock(RUN, path)
    write_lock(RUN, path, update=True)
    assert path.read_text("utf-8") == lock_text(RUN)


def test_only_locks_are_updated_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path, other = locked(tmp_path), tmp_path / "notes.yaml"
    other.write_text("a: 1\n")
    with pytest.raises(UsageError, match="the file exists"):
        write_lock(RUN, path)
    with pytest.raises(UsageError, match="no such file"):
        write_lock(RUN, tmp_path / "missing.lock", update=True)
    with pytest.raises(InputError, match="no lock"):
        write_lock(RUN, other, update=True)
    with pytest.raises(UsageError, match="a folder"):
        write_lock(RUN, tmp_path)
    assert other.read_text() == "a: 1\n"
    write_lock(RUN, other, force=True)
    assert status(check_lock(RUN, other)) == 0


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("npuperf_lock: 1", "npuperf_lock: 2", "newer npuperf"),
        ("npuperf_lock: 1", "npuperf_lock: true", "cannot be used as a lock"),
        ("npuperf_lock: 1\n", "", "no lock"),
        ("devices: 1\n", "", "devices"),
        ("devices: 1", "devices: -1", "devices"),
        ("per: step", "per: stepp", "per"),
        ("counts:", "extra: 1\ncounts:", "extra"),
        ("  launch:", "  launches:", "launches"),
        ("  sync: {}", "  sync: 3", "sync|counts"),
        ('FLOAT16": 47', 'FLOAT16": -47', "MatMulV2 .*-47 is no count"),
        ('FLOAT16": 47', 'FLOAT16": 4.7', "4.7 is no count"),
        ('FLOAT16": 47', 'FLOAT16": true', "True is no count"),
        ('FLOAT16": 47', 'FLOAT16": []', "no value"),
        ('FLOAT16": 47', 'FLOAT16": 50..40', "50..40 is no count"),
        ('FLOAT16": 47', 'FLOAT16": 99999999999999999999999', "is no count"),
        ('FLOAT16": 47', f'FLOAT16": {"9" * 5000}', "MatMulV2|99999"),
        ('FLOAT16": 47', 'FLOAT16": [[47]]', "is no count"),
        ('FLOAT16": 47', 'FLOAT16": {count: 47}', "both"),
        ('"MatMulV2 [2,3;3,4] FLOAT16"', "7", "str"),
        ('"MatMulV2 [2,3;3,4] FLOAT16"', '"Add [4] FLOAT"', "given twice"),
        ("setup: {}", "setup: &a {}\nmore: *a", "aliases"),
        ("setup: {}", "setup: " + "[" * 100, "nested too deeply"),
        ("setup: {}", "setup: !!python/object/apply:os.system [ls]", "python"),
    ],
)
def test_a_damaged_lock_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = edited(locked(tmp_path), old, new)
    with pytest.raises(InputError, match=why) as caught:
        check_lock(RUN, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_kind_that_is_half_a_sign_is_refused(tmp_path: Path) -> None:
    path = edited(locked(tmp_path), "  launch:", '  "\\ud800":')
    with pytest.raises(InputError, match="cannot be used as a lock"):
        read_lock(path)


def test_a_missing_lock_and_a_huge_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing.lock(.|\n)*--lock .* makes one"):
        check_lock(RUN, tmp_path / "missing.lock")
    path = locked(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write("# and so on\n" * (1 << 20))
    with pytest.raises(InputError, match="larger than"):
        check_lock(RUN, path)


ODD_BYTES = [b"{", b"]", b"\n", b": ", b"- ", b"&a ", b"!!int ", b"\xff", b"9" * 30, b"1e9", b"~", b"2026-01-01"]
NAMES = st.text(max_size=40) | st.text(
    alphabet="\"'\\\n\r\t:#{}[]?-|>&*!% \x00\x7f\x85\u2028\ufeff\uffff\ud800😀é", max_size=12
)


@given(st.dictionaries(NAMES, st.tuples(st.integers(1, 2**63), st.integers(1, 2**63)), min_size=1, max_size=5), NAMES)
def test_every_name_and_number_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, tuple[int, int]], where: str
) -> None:
    result = run_of(*(launch(key, *values, where=where) for key, values in counts.items()))
    path = tmp_path_factory.mktemp("lock") / "perf.lock"
    write_lock(result, path)
    assert status(check_lock(result, path)) == 0
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("    ")]
    assert len(lines) == len(read_lock(path).counts["launch"])


def test_names_longer_than_yaml_takes_are_read(tmp_path: Path) -> None:
    long = run_of(launch("x" * 5000, 1, 1), launch('"' * 999, 2, 2))
    path = locked(tmp_path, long)
    assert list(read_lock(path).counts["launch"]) == ['"' * 999, "x" * 5000]
    assert status(check_lock(long, path)) == 0


@pytest.mark.parametrize(("values", "told"), [((9, 3, 7, 5), "3 or 5 or 7 or 9"), ((1, 9, 3, 7, 5), "1..9")])
def test_up_to_four_values_are_named(tmp_path: Path, values: tuple[int, ...], told: str) -> None:
    run = run_of(launch(ADD.key, *values), steps=list(range(len(values))))
    _, gate = check_lock(run, locked(tmp_path, run_of(launch(ADD.key, 2, 2))))
    assert text(gate.reason) == f"launches per step: {told}, locked: 2"


@given(st.lists(st.integers(0, 2**63), min_size=1, max_size=9))
def test_what_was_counted_is_accepted(values: list[int]) -> None:
    spans = spans_of(values)
    assert accepts(spans, values)
    assert not accepts(spans, [max(values) + 1])
    if len(set(values)) <= 4:
        outside = {value + 1 for value in values} - set(values)
        assert not any(accepts(spans, [value]) for value in outside)


@given(st.data())
def test_damage_never_crashes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(lock_text(RUN).encode())
    start = content.index(b"npuperf_lock")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(start, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=4) | st.sampled_from(ODD_BYTES))
    path = tmp_path_factory.mktemp("lock") / "perf.lock"
    path.write_bytes(content)
    try:
        check_lock(RUN, path)
    except InputError as error:
        assert str(path) in str(error)


def test_nobody_is_told_to_write_over_what_is_no_lock(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("print(1)\n")
    for refused in (lambda: read_lock(program), lambda: check_target(program)):
        with pytest.raises((InputError, UsageError)) as told:
            refused()
        assert "--force" not in str(told.value.hint)

"""Text for a target: what cannot be seen is spelled out, what would be more than text is not, the rest stays."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import unicodedata

import pytest

from npuperf.base import escape
from npuperf.base.messages import say
from npuperf.device.core_limits import code_of
from npuperf.device.mode import DESCRIBED
from npuperf.device.superkernel import _code
from npuperf.model.result import CoreLimit, ScopeOption

ORDINARY = (
    "aclnnMatmul_MatMulV2_7", "训练 · 张量并行", "12.35 µs → 4 %", "void at::native::x<c10::Half, 4>(int)", "👩‍👩‍👧 é",
    "model.py:131 mlp", "C:\\data\\run", "host*0.5", "a_b__c_", "R&D", "n@me", "",
)  # fmt: skip
NASTY = "\x1b]0;t\x07\x00\x9b31m\u202e\u2066\u200b\ufeff\u2028\r\n\tend"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert (
        escape.visible(text)
        == escape.for_screen(text)
        == escape.for_csv(text)
        == escape.for_json(text.encode())
        == text
    )
    assert escape.for_code([text]) == f"{text}\n"
    assert shlex.split(escape.for_shell(text)) == [text]
    if not {"<", "*"} & {*text}:
        assert escape.for_markdown(text) == text


def test_what_is_not_seen_is_spelled_out() -> None:
    spelled = "\\x1b]0;t\\x07\\x00\\u009b31m\\u202e\\u2066\\u200b\\ufeff\\u2028\\r\\n\\tend"
    assert escape.visible(NASTY) == escape.for_screen(NASTY) == escape.for_csv(NASTY) == spelled
    assert escape.visible("caf\udce9 \ud83d") == "caf\\xe9 \\ud83d"  # a byte of a path that is not UTF-8, half a pair
    assert escape.visible("\U000e0041") == "\\U000e0041"
    assert escape.visible(spelled) == spelled


def test_every_character_without_a_look_is_spelled_out_but_for_joiners() -> None:
    left = {
        sign
        for sign in map(chr, range(0x110000))
        if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and escape.visible(sign) == sign
    }
    unseen = {"\u200c", "\u200d"}  # of Persian, and of families
    signs_of_scripts = {sign for sign in left if any(word in unicodedata.name(sign, "") for word in SCRIPTS)}
    assert left - signs_of_scripts == unseen


#: Format characters that are letters' neighbours, seen as signs or as the form of letters.
SCRIPTS = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND", "MUSICAL")


def test_what_has_no_end_is_shown_with_its_two_ends() -> None:
    name = "begin" + "x" * 10_000 + "end"
    shown = escape.for_screen(f"a {name} b")
    assert shown.startswith("a beginxxx") and shown.endswith("xxxend b") and "x…x" in shown and len(shown) < 400
    assert len(escape.for_screen("word " * 10_000)) < 400
    command = "python train.py " + " ".join(f"--option-{i} {i}" for i in range(150))
    assert escape.for_screen(command) == command and len(command) > 2000
    assert escape.for_csv(name) == escape.visible(name) == name


@pytest.mark.parametrize("cell", ["=1+1", "+A1", "-2+3", "@SUM(1)", "＝1", "=", "-", "-x.so"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert escape.for_csv(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["-5", "+3.25", "-1e-5", "5-3", "\t=1", "\r=1", "a=b"])
def test_numbers_and_other_cells_are_no_formulas(cell: str) -> None:
    shown = escape.for_csv(cell)
    assert shown == cell.replace("\t", "\\t").replace("\r", "\\r") and shown[:1] not in ("\t", "\r")


def test_json_says_the_same_in_another_spelling() -> None:
    text = json.dumps({"name": f"µ{NASTY}\x7f\U000e0041中", "other": "\x7f"}, ensure_ascii=False, indent=1)
    spelled = escape.for_json(text.encode("utf-8", "surrogatepass"))
    assert json.loads(spelled) == json.loads(text)
    assert all(sign.isprintable() or sign == "\n" for sign in spelled) and "µ" in spelled and "中" in spelled
    assert escape.without_halves("a\ud800\udcff😀") == "a\ufffd\ufffd😀"


@pytest.mark.parametrize(
    "word", ["a b", "$(touch x)", "`x`", "it's", "a\nb; touch x", "\x1b[31m'\\n", "é\u202e!", "-n"]
)
def test_a_command_is_one_line_and_runs_with_the_word_itself(word: str) -> None:
    command = escape.for_shell("printf", "%s", word)
    assert command.isprintable() and len(shlex.split(command)) == 3
    assert ("$'" in command) == (not word.isprintable())  # bash alone knows such a string
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode() == word


def statements(code: str) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]


@pytest.mark.parametrize("way", list(DESCRIBED))
def test_no_name_is_a_statement_of_code_to_paste(way: str) -> None:
    def written(name: str) -> str:
        limits = [CoreLimit(stream=n, cube=8, vector=16, kernels=3, types=[name], where=[name]) for n in (1, 2)]
        return code_of(way, limits)  # type: ignore[arg-type]

    assert_harmless(written)


def test_no_name_is_a_statement_of_a_scope() -> None:
    def written(name: str) -> str:
        options = [ScopeOption(key="feed-sync-all", value="1", reason=say("so"))]
        return escape.for_code(_code("sk1", options, [name] * 12, [name], 3, 2, True))

    assert_harmless(written)


def assert_harmless(written: object) -> None:
    assert callable(written)
    nasty = f'Add\nimport os\n    os.system("x")\r\x0c\u2028"""\n{NASTY}'
    assert statements(written(nasty)) == statements(written("Add"))
    assert len(written(nasty).splitlines()) == len(written("Add").splitlines())
    assert all(line.isprintable() for line in written(nasty).split("\n")) and "Add\\nimport os" in written(nasty)


def test_ordinary_text_costs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escape, "_HIDDEN", None)  # which would fail
    assert escape.for_csv("训练 · µ → Add") == escape.for_screen("训练 · µ → Add") == "训练 · µ → Add"

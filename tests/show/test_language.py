"""Languages: what stands between sentences and items, catalogues that are compiled, lines of Chinese."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from languages import compile_language
from npuperf.base.messages import chain, ns, say, series, share_change
from npuperf.show import language
from npuperf.show.language import (
    asked_for,
    choose,
    codes,
    columns,
    is_known,
    is_wide,
    line_starts,
    speaking,
    text,
    translations,
)
from npuperf.show.terminal import Text

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\nLanguage: xx\\n"\n\nmsgid "step"\nmsgstr "{}"\n'


def test_signs_between_are_those_of_the_language() -> None:
    said = chain(say("{n}", n=series([1, "b"])), say("{n}", n=share_change(-0.1, 0.2)), by="; ")
    comma = chain(say("{n}", n=ns(5)), say("{n}", n=series(["a; b", "c"], by="; ")), by=", ")
    assert (text(said), text(comma)) == ("1, b; -10.0 to +20.0 %", "5 ns, a; b; c")
    with speaking("zh"):
        assert text(said) == "1、b；-10.0 至 +20.0 %"
        assert text(comma) == "5 ns，a; b；c"  # what a name has in it stays
        assert text(chain(say("{n}", n=1), say("{n}", n=2), by="\n  ")) == "1\n  2"
        assert str(said) == "1, b; -10.0 to +20.0 %"  # for JSON


def test_who_chose_none_is_spoken_to_as_the_environment_says_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(None)
    for code, said in (("en", "1, b"), ("zh", "1、b")):
        monkeypatch.setenv("NPUPERF_LANGUAGE", code)
        assert text(say("{n}", n=series([1, "b"]))) == said


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    (tmp_path / "xx.po").write_text(PO.format("Schritt"), "utf-8")
    return compile_language(tmp_path / "xx.po")


def step() -> str:
    language._read.cache_clear()
    with speaking("xx"):
        return text(say("step"))


def test_a_language_is_read_as_it_was_compiled(made_up: Path) -> None:
    assert step() == "Schritt"
    made_up.with_suffix(".po").unlink()  # as in a wheel
    assert step() == "Schritt"
    assert codes() == ["en", "xx"]


@pytest.mark.parametrize("damaged", [b"", b"nonsense", b"\xde\x12\x04\x95", b"\xde\x12\x04\x95" + b"\xff" * 40])
def test_a_damaged_compilation_leaves_the_sentences_english(
    made_up: Path, damaged: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.write_bytes(damaged)
    assert step() == "step"
    assert capsys.readouterr().err.startswith(f"npuperf: {made_up}: not a catalogue of sentences: ")


def test_a_checkout_that_is_not_compiled_speaks_english_and_says_so_once(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up.unlink()
    assert is_known("xx") and codes() == ["en", "xx"]
    assert step() == "step" and translations("xx") is translations("en")
    assert capsys.readouterr().err == f"npuperf: {made_up}: not compiled; pip install -e . compiles it\n"
    assert "xx" not in step() and [path.name for path in made_up.parent.iterdir()] == ["xx.po"]


def test_what_is_chosen_holds_in_every_thread() -> None:
    heard: list[str] = []
    choose("zh")
    try:
        thread = threading.Thread(target=lambda: heard.append(text(say("no such option {x}", x=1)) + text(say("step"))))
        thread.start()
        thread.join()
        with speaking("en"):
            heard.append(text(say("step")))
        with speaking(None):
            heard.append(text(say("step")))
    finally:
        choose(None)
    assert heard == ["no such option 1迭代步", "step", "迭代步"]


def test_codes_are_those_of_locales() -> None:
    assert codes() == ["en", "zh"]
    for code in ("zh", "zh_CN", "zh_CN.UTF-8", "zh-Hans", "zh_TW", "zh_CN.GB18030@pinyin"):
        assert is_known(code) and translations(code) is translations("zh")
    for code in ("en", "en_GB.UTF-8", "C", "POSIX"):
        assert is_known(code) and translations(code) is translations("en")
    for code in ("", "..", "../zh", "x/y", "zho", "-", "zh\0"):
        assert not is_known(code)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("analyze --lang zh --help", "zh"),
        ("--lang=zh_CN analyze", "zh_CN"),
        ("analyze --lang", None),
        ("analyze --lang xx", None),
        ("profile -- train.py --lang zh", None),
        ("analyze --language zh", None),
        ("", None),
    ],
)
def test_the_command_line_is_looked_at_early(arguments: str, found: str | None) -> None:
    assert asked_for(arguments.split()) == found


# --- lines ------------------------------------------------------------------------------------------------------------


def lines(said: str, room: int) -> list[str]:
    starts = [0, *line_starts(said, room)]
    return [said[i:j].rstrip() for i, j in zip(starts, [*starts[1:], None], strict=True)]


def test_chinese_is_broken_between_letters_but_not_before_a_comma() -> None:
    assert lines("计算时间，其余", 8) == ["计算时", "间，其余"]
    assert lines("占 12.35 ms（共 3 次）", 10) == ["占", "12.35 ms", "（共 3", "次）"]
    assert lines("见 npuperf.json 文件", 8) == ["见", "npuperf.", "json 文", "件"]
    assert lines("短", 8) == ["短"]


def test_quantities_stay_whole() -> None:
    assert lines("saves 22.1 % (0–36.3 %) of it", 12) == ["saves 22.1 %", "(0–36.3 %)", "of it"]
    assert lines("for 825–834 us, then", 12) == ["for", "825–834 us,", "then"]
    assert lines("in 1 036.5 ms and 12 345 678 ns.", 16) == ["in 1 036.5 ms", "and", "12 345 678 ns."]
    assert lines("1 000 kernels", 7) == ["1 000", "kernels"]
    assert lines("5 s, 3 min 2 GB/s", 6) == ["5 s,", "3 min", "2 GB/s"]
    assert lines("of 4 msgs in 7 hours", 6) == ["of 4", "msgs", "in 7", "hours"]


@given(st.text(st.sampled_from("计算，。（）ab 1.%ms…\u3000"), max_size=60), st.integers(4, 30))
def test_no_line_is_wider_than_the_room_and_nothing_is_lost(said: str, room: int) -> None:
    found = lines(said, room)
    assert all(columns(line) <= room for line in found)
    assert "".join("".join(found).split()) == "".join(said.split())


@given(st.text(st.sampled_from("计算，。ab 1…→·█–é"), max_size=40))
def test_columns_are_those_of_the_screen(said: str) -> None:
    assert columns(said) == cell_len(said)
    assert is_wide(said) == any(letter in "计算，。" for letter in said)


def test_a_text_of_the_screen_is_wrapped_so_with_its_styles() -> None:
    said = Text.assemble(("瓶颈", "bold"), " 时间窗口中 37.5 % 为计算，26.4 % 为等待")
    wrapped = said.wrap(Console(width=16), 16)
    assert [line.plain for line in wrapped] == ["瓶颈 时间窗口中", "37.5 % 为计算，", "26.4 % 为等待"]
    assert [span.style for span in wrapped[0].spans] == ["bold"] and not wrapped[1].spans
    english = Text("37.5 % of span is compute … idle")
    split = [line.plain.rstrip() for line in english.wrap(Console(width=16), 16)]
    assert split == [
        "37.5 % of span",
        "is compute …",
        "idle",
    ]

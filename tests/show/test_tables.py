"""Tables: declared once, the same numbers everywhere, in the room that there is."""

from __future__ import annotations

import csv
import io
import json

import pytest
from sample_documents import RECORDED, TUNING, result

from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.model.tuning import Tuning
from npuperf.show.formats import View, render
from npuperf.show.tables import Column, Table, filled, list_tables, tables_of
from npuperf.show.terminal import Fitted, print_all

SHORT = Column("a", say("name"), weight=0)


def shown(table: Table, rows: list[tuple], width: int) -> list[str]:
    return print_all([Fitted(filled(table, rows))], View(width=width)).rstrip("\n").split("\n")


class Thing:
    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


def test_tables_have_names_of_their_own_and_one_is_usual(everything: dict[str, Document]) -> None:
    for kind in {type(document) for document in everything.values()}:
        tables = tables_of(kind)
        assert len({table.name for table in tables}) == len(tables)
        assert sum(table.usual for table in tables) <= 1
        for table in tables:
            keys = [column.key for column in table.columns]
            assert len(set(keys)) == len(keys), table.name


def test_what_a_row_of_an_analysis_is_about_stays_on_the_narrowest_screen() -> None:
    """But for rows that are a device, and the parts of a step, which their order tells."""
    unkept = {t.name for t in tables_of(Result) if not any(c.weight == 0 and not c.quiet for c in t.columns)}
    assert unkept == {"devices", "recorded", "efficiency_devices", "typical"}


def test_every_table_of_every_document_has_every_format(everything: dict[str, Document]) -> None:
    for document in everything.values():
        for table in tables_of(type(document)):
            rows = list(csv.DictReader(io.StringIO(render(document, "csv", View(table=table.name)))))
            assert len(rows) == len(list(table.rows(document)))
            for form in ("text", "markdown"):
                said = " ".join(render(document, form, View(table=table.name)).split())
                assert said and (": no rows, as" in said) == (not rows), table.name  # an empty line says nothing


def test_a_sentence_in_csv_has_its_message_beside_it() -> None:
    (row,) = csv.DictReader(io.StringIO(render(TUNING, "csv", View(table="savings"))))
    assert row["reason"] == "1.50 ms are 25.0 % of it"
    assert json.loads(row["reason_message"])["id"] == "{time} are {share} of it"
    assert row["most_ns"] == "12500"


def test_no_table_is_wider_than_the_screen(everything: dict[str, Document]) -> None:
    for document in (everything["transformer"], everything["micro_batch"], TUNING):
        for table in tables_of(type(document)):
            for width in (60, 80, 200):
                lines = render(document, "text", View(table=table.name, width=width)).splitlines()
                assert all(len(line) <= width for line in lines), (table.name, width)


def test_a_wide_screen_shows_all_columns() -> None:
    narrow, wide = (render(result(), "text", View(table="operators", width=width)) for width in (80, 400))
    assert "more columns with --format csv --table operators" in narrow
    assert "more column" not in wide and "code line" in wide


def test_what_does_not_fit_is_left_out_the_least_important_first() -> None:
    table = Table(
        "t", say("t"), lambda _: (), (SHORT, Column("b", say("b"), "id", weight=2), Column("c", say("c"), "id"))
    )
    rows = [(Thing(a="x" * 10, b=1111111, c=2222222),)]
    assert shown(table, rows, 40) == ["name              b        c", "xxxxxxxxxx  1111111  2222222"]
    assert shown(table, rows, 20)[1] == "xxxxxxxxxx  2222222"
    assert "1 more column with" in " ".join(shown(table, rows, 20))


def test_numbers_stay_whole_and_words_wrap() -> None:
    table = Table("t", say("t"), lambda _: (), (SHORT, Column("b", say("b"), "ms"), Column("c", say("c"), "message")))
    rows = [(Thing(a="x", b=1_234_567_000_000, c=say("one two three four five six seven")),)]
    lines = shown(table, rows, 50)
    assert lines[1] == "x     1 234 567.000  one two three four five six"
    assert "".join(lines[1:]).split()[-1] == "seven"


def test_columns_without_anything_in_them_are_left_out() -> None:
    table = Table(
        "t", say("t"), lambda _: (), (Column("r", say("rank"), "id", quiet=True), SHORT, Column("b", say("b")))
    )
    rows = [(Thing(r=0, a="x", b=None),), (Thing(r=0, a="y", b=None),)]
    assert shown(table, rows, 40) == ["name", "x", "y"]
    rows[1][0].r = 1
    assert shown(table, rows, 40)[0] == "rank  name"


def test_markup_in_names_is_text() -> None:
    table = Table("t", say("t"), lambda _: (), (SHORT,))
    assert shown(table, [(Thing(a="[red]x[/red] :smile:"),)], 40)[1] == "[red]x[/red] :smile:"


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("top", [1, 2])
def test_top_holds_for_every_list(form: str, top: int) -> None:
    for full in (False, True):
        said = render(result(), form, View(top=top, full=full))
        assert f"({top} of 21)" in said  # operators
        if full or form == "markdown":
            assert f"({top} of 6)" in said  # phases
            assert f"({top} of 10)" in said  # kernels
    assert render(result(), form, View(top=top, table="steps")).count("measured") == top


def test_help_lists_every_table_with_a_line() -> None:
    lines = list_tables(Result).splitlines()
    assert [line.split()[0] for line in lines] == [table.name for table in tables_of(Result)]
    assert all(len(line.split()) > 1 and len(line) <= 80 for line in lines)
    assert "entries" in list_tables(Tuning)


def test_a_recording_has_its_lists_as_tables() -> None:
    (row,) = csv.DictReader(io.StringIO(render(RECORDED, "csv", View(table="proofs"))))
    assert (row["kernels"], row["launched"]) == ("100", "90")

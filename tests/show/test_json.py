"""The JSON of every document follows its schema; sentences are English, with their messages beside them."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from sample_documents import TUNING

from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.schema import documents as kinds
from npuperf.model.schema import schema_of
from npuperf.show.formats import View, render


@pytest.mark.parametrize("name", sorted(kinds()))
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(kinds()[name]))


def test_documents_follow_their_schemas(everything: dict[str, Document]) -> None:
    for document in everything.values():
        found = json.loads(render(document, "json"))
        jsonschema.validate(found, schema_of(type(document)), cls=jsonschema.Draft202012Validator)
        assert found["schema_version"] == "2.0"


def test_a_wrong_document_does_not_follow_the_schema() -> None:
    found = json.loads(render(TUNING, "json"))
    for broken in ({**found, "status": "perhaps"}, {**found, "messages": {"warnings": ["?"]}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema_of(type(TUNING)), cls=jsonschema.Draft202012Validator)


def test_a_sentence_has_its_message_beside_it() -> None:
    found = json.loads(render(TUNING, "json"))
    assert found["warnings"] == ["1.50 ms are 25.0 % of it"]
    assert found["messages"] == {
        "warnings": [
            {
                "id": "{time} are {share} of it",
                "parameters": {
                    "time": {"value": 1_500_000, "unit": "ns"},
                    "share": {"value": 0.25, "unit": "share"},
                },
            }
        ]
    }
    assert "messages" not in found["summary"]


def test_json_is_english_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    english = render(TUNING, "json")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert render(TUNING, "json", View(language="zh_CN")) == english


def test_what_is_no_number_is_null() -> None:
    broken = msgspec.structs.replace(TUNING, tuning_time_s=float("nan"), warnings=())
    found = json.loads(render(broken, "json"), parse_constant=pytest.fail)
    assert found["tuning_time_s"] is None


def test_a_long_document_has_no_blanks_that_nobody_reads() -> None:
    """What it holds is the same."""
    short, long = (msgspec.structs.replace(TUNING, warnings=(say("x" * size),)) for size in (10, 5 << 20))
    assert render(short, "json").count("\n") > 20
    text = render(long, "json")
    assert text.count("\n") == 1
    said = {"warnings": None, "messages": None}
    assert {**json.loads(text), **said} == {**json.loads(render(short, "json")), **said}

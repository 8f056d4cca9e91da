"""Whatever the width, what matters is wrapped and not cut: sentences, types, and the number of a line of code.

What may be left out, and is: the least important columns of a table, which it says; folders before a file of code, and
then the function of a line in a column of them, of which the file and the number are enough to go there; the middle of
a name of more than 90 letters, and what is in a C++ template's brackets, which CSV and JSON have whole.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from clusters import pipeline_job, result_of
from conftest import ROOT
from msgspec.structs import replace
from sample_documents import result

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.analysis_tables import TABLES
from npuperf.show.formats import View, render

WIDTHS = (60, 80, 120, 200)
#: Something is cut at its end, or a file of code has lost its number; a program in a command has none.
CUT = re.compile(r"\S…(?=\s|$)|(?<!profile )(?<!python )\b\w+\.py(?![:(]\d)|\w\.p$")
DEEP = "a_company/research/models_of_this_year/transformer_blocks/attention_of_kinds.py:1234 forward_with_cache"
LONG = say("a sentence that is much longer than any line of a screen, as {n} of them are, and whose end matters most",
           n="many")  # fmt: skip


def deeper(part: Any) -> Any:
    """A part of a document whose code lies deep."""
    return replace(part, where=DEEP) if part.where else part


def with_deep_code() -> Result:
    """An analysis in whose program every line of code has a long path, and whose findings are long."""
    whole = result()
    devices = [
        replace(
            d, blame=[*map(deeper, d.blame)], syncs=[*map(deeper, d.syncs)], dependencies=[*map(deeper, d.dependencies)]
        )
        for d in whole.devices
    ]
    findings = [replace(f, title=LONG, next=LONG) if f.status == "problem" else f for f in whole.findings]
    operators, kernels = ([*map(deeper, of)] for of in (whole.operators, whole.kernels))
    return replace(whole, devices=devices, findings=findings, operators=operators, kernels=kernels)


def wordy_job() -> Result:
    """A job whose causes, notes and findings are all too long for a line."""
    job = result_of(pipeline_job())
    assert job.cluster is not None
    roots = [
        replace(root, title=LONG, next=LONG, operators=["MatMulV3 4096,1024;759680,1024"] * 4)
        for root in job.cluster.roots
    ]
    cluster = replace(job.cluster, roots=roots, notes=[LONG, LONG])
    return replace(job, cluster=cluster, findings=[replace(f, title=LONG) for f in result().findings])


@pytest.fixture(scope="module")
def documents(everything: dict[str, Document]) -> dict[str, Document]:
    samples = {name: run(AnalyzeRequest(path=ROOT / "samples" / name)) for name in ("memory_ascend_pt", "pipeline_job")}
    return {**everything, **samples, "deep": with_deep_code(), "wordy": wordy_job()}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_report_cuts_what_matters(width: int, documents: dict[str, Document]) -> None:
    for name, document in documents.items():
        for view in (View(width=width), View(width=width, full=True), View(width=width, brief=True)):
            cut = [line for line in render(document, "text", view).splitlines() if CUT.search(line)]
            assert not cut, (name, view.full, cut)


@pytest.mark.parametrize("width", (60, 80))
def test_no_table_cuts_what_matters(width: int, documents: dict[str, Document]) -> None:
    for name in ("deep", "compared", "pipeline_job"):
        for table in TABLES:
            said = render(documents[name], "text", View(width=width, table=table.name, top=10))
            assert not [line for line in said.splitlines() if CUT.search(line)], (name, table.name)


@pytest.mark.parametrize("name", ("transformer", "deep"))
def test_kernels_and_operators_have_their_code_line_at_80_columns(name: str, documents: dict[str, Document]) -> None:
    for table in ("kernels", "operators", "syncs"):
        view = View(width=80, table=table)
        rows = list(csv.DictReader(io.StringIO(render(documents[name], "csv", view))))
        places = [row["where"].split(" ")[0].rpartition("/")[2] for row in rows if row["where"]]
        shown = render(documents[name], "text", view)
        assert places and [shown.count(place) for place in set(places)] == [
            places.count(place) for place in set(places)
        ]

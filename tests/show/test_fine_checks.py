"""A check is fine for a job only if it is on every device."""

from __future__ import annotations

from clusters import finding, pipeline_job, result_of
from msgspec.structs import replace

from npuperf.base.messages import say
from npuperf.show.formats import View, render
from npuperf.show.language import text
from npuperf.show.result_sheet import result_sheet


def test_what_one_rank_has_a_problem_with_is_not_fine() -> None:
    """A check was once in both lists: a problem of rank 2, and "ok" because rank 0 has none."""
    problem = finding("casts", 2)
    fine = replace(problem, status="ok", title=say("casts between dtypes"), rank=0)
    other = replace(fine, rule="copies", title=say("copies and transposes"))
    result = result_of(pipeline_job(), findings=[problem, fine, other])
    said = render(result, "text", View(width=80, full=True))
    assert problem.status == "problem" and str(problem.title) in str(said)
    assert "copies and transposes" in str(said) and "casts between dtypes" not in str(said)
    (findings,) = [block for block in result_sheet(result, View(), ()).blocks if block.id == "findings"]
    assert [(str(line.label), text(line.content)) for line in findings.after] == [("no problem", str(other.title))]
